/* Words of messages: a list of words as a sentence has it, and the distance of two words. */
#ifndef TR_JOB_TEXT_H
#define TR_JOB_TEXT_H

#include <stddef.h>

#include "base/escape.h"

/* Words as a sentence has them: «a, b or c». */
struct tr_shown tr_shown_words(const char *const *words);

/* The number of insertions, deletions, changes or swaps of neighbours that turn a into b; SIZE_MAX for long words. */
size_t tr_edit_distance(const char *a, const char *b);

#endif
