/* Ids of all workers as numbers 0, 1, 2, … in ascending order.
 *
 * Every worker holds a range of the sorted names, about equally many of them, and no one all: the ranges are found by a
 * sample of what each has met, ids travel to who has their range, and their numbers travel back.
 */
#ifndef TR_DATA_NAMES_H
#define TR_DATA_NAMES_H

#include "data/ids.h"
#include "ranks/ranks.h"
#include "trireme/data.h"

/* All ranks together; ids are what this worker has met, empty elsewhere. number[i] becomes the number of the id in place
 * i. What `known` names (NULL: nothing) keeps its number, and only others are in *names, numbered behind. *names is to
 * be freed, after all that know it. TR_ERR_SYSTEM if there would be more than 2^32 - 2 numbers. */
int tr_names_unite(tr_context *tr, const struct tr_ids *ids, const tr_names *known, uint32_t *number,
                   tr_names **names);
void tr_names_free(tr_names **names); /* *names may be NULL */

/* What this rank has of names, as *bytes (to be freed), and back, in the same layout. */
int tr_names_pack(const tr_names *names, char **bytes, size_t *n);
int tr_names_unpack(tr_context *tr, const char *bytes, size_t n, tr_names **names);

/* ---- names in memory, for commands ---- */

/* All names of a list that a command has read, sorted as numbers are; nothing is copied. */
struct tr_name_list {
    size_t n;
    const uint64_t *number; /* NULL: text */
    const uint64_t *begin;  /* n + 1, as in tr_names_piece */
    const char *text;
};

/* The number of the id that stands there; false if there is none of that name. */
bool tr_name_find(const struct tr_name_list *list, const char *id, size_t length, uint64_t *number);

/* Prints name i. */
int tr_name_print(const struct tr_name_list *list, size_t i, FILE *file);

#endif
