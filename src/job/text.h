/* Words in messages: lists of words, and the edit distance for suggestions. */
#ifndef TR_JOB_TEXT_H
#define TR_JOB_TEXT_H

#include <stddef.h>

#include "base/escape.h"

/* Formats a list of words: «a, b or c». */
struct tr_shown tr_shown_words(const char *const *words);

/* Returns the number of insertions, deletions, substitutions or swaps of neighbours that turn a into b; SIZE_MAX for long words. */
size_t tr_edit_distance(const char *a, const char *b);

#endif
