/* Text as the job room needs it: UTF-8, showing what a user wrote, and how far two words are apart. */
#ifndef TR_JOB_TEXT_H
#define TR_JOB_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Decodes the first character. Returns its length in bytes, or 0 if it is not valid UTF-8. */
size_t tr_utf8_decode(const char *text, uint32_t *character);
bool tr_utf8_valid(const char *text);

/* The text made fit for a message of one line: short, valid, without control characters. By value, so
 * that it can be used in place: printf("«%s»", tr_shown(text).text). */
struct tr_shown {
    char text[96];
};
struct tr_shown tr_shown(const char *text);

/* Words as a sentence has them: «a, b or c». */
struct tr_shown tr_shown_words(const char *const *words);

/* Writes "text" in double quotes, escaped as both JSON and YAML read it. The text is valid UTF-8. */
void tr_put_quoted(FILE *file, const char *text);

/* Writes the text whole, but with ? for what would end or spoil a comment of one line. */
void tr_put_line(FILE *file, const char *text);

/* How many insertions, deletions, changes or swaps of neighbours turn a into b; SIZE_MAX for long words. */
size_t tr_edit_distance(const char *a, const char *b);

#endif
