/* Text from outside the program: names of files, folders, columns and labels, and messages that contain them.
 *
 * Each function writes text in the form of one reader, so that the reader takes all of it as text: a terminal, JSON
 * and YAML, CSV, gnuplot. All prints of such text go through this file (tests/cli/test_prints.sh).
 *
 * The visible form, which the forms for a terminal, CSV and gnuplot share, is one line of valid UTF-8: a control
 * character and a byte that is not UTF-8 become \xNN, and a C1 control character, a line or paragraph separator, a byte
 * order mark, and a character that changes the direction of text or is a tag become \uNNNN (\UNNNNNNNN above U+FFFF).
 * A vertical tab, which stands for a line end in a field of a table, becomes \n. All other characters stay, a backslash as well: the form is for people and is not decoded.
 */
#ifndef TR_BASE_ESCAPE_H
#define TR_BASE_ESCAPE_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "trireme/base.h"

/* Decodes the first of n > 0 bytes. Returns the length of the character in bytes, or 0 if it is not valid UTF-8. */
size_t tr_utf8_decode(const char *text, size_t n, uint32_t *character);
bool tr_utf8_valid(const char *text);

/* Writes the visible form of n bytes to `to`, which has `size` >= 4 bytes, with a final NUL. A text that does not fit is
 * cut between characters and ends with an ellipsis. Returns the length without the NUL. */
size_t tr_escape(char *to, size_t size, const char *text, size_t n);

/* Returns the visible form, cut to fit a message: tr_fail(status, "«%s»", tr_shown(text).text). */
struct tr_shown {
    char text[96];
};
struct tr_shown tr_shown(const char *text);

/* tr_put_visible() prints the visible form of n bytes. tr_put_lines() prints that of a string but keeps its line feeds. */
void tr_put_visible(FILE *file, const char *text, size_t n);
void tr_put_lines(FILE *file, const char *text);

/* Does the same as tr_printf() of trireme/base.h, with a va_list. */
int tr_vprintf(FILE *file, const char *format, va_list arguments) __attribute__((format(printf, 2, 0)));

/* Prints "text" in double quotes, as both JSON and YAML read it: all characters are kept, and each byte that is not
 * UTF-8 becomes U+FFFD. */
void tr_put_quoted(FILE *file, const char *text);

/* Prints the fewest digits that read back as the same finite number. */
void tr_put_real(FILE *file, double number);

/* Prints one field of CSV: the visible form, in double quotes if it contains a comma or a quote. */
void tr_put_csv(FILE *file, const char *text);

/* Prints the visible form in single quotes, as a string of gnuplot, which replaces nothing within single quotes. */
void tr_put_gnuplot(FILE *file, const char *text);

#endif
