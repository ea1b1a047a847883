/* Ids of all workers as numbers 0, 1, 2, … in ascending order.
 *
 * Every worker holds a range of the sorted names, about equally many of them, and no one all: the ranges are found by a
 * sample of what each has met, ids travel to who has their range, and their numbers travel back.
 */
#ifndef TR_DATA_NAMES_H
#define TR_DATA_NAMES_H

#include "data/ids.h"
#include "ranks/ranks.h"
#include "trireme/collective.h"
#include "trireme/data.h"

/* All ranks together; ids are what this worker has met, empty elsewhere. number[i] becomes the number of the id in place
 * i. What `known` names (NULL: nothing) keeps its number, and only others are in *names, numbered behind. *names is to
 * be freed, after all that know it. The first `owners` workers hold ranges (where some are known, those who hold these).
 * TR_ERR_SYSTEM if there would be more than 2^32 - 2 numbers. */
int tr_names_unite(tr_context *tr, const struct tr_ids *ids, const tr_names *known, size_t owners,
                   uint32_t *number, tr_names **names);

/* The range that this worker holds, and the number of its first. */
const struct tr_ids *tr_names_here(const tr_names *names, uint64_t *first);

/* Names that are in their order already: this worker's list, behind those of the workers before it, in whatever order. They move.
 * All ranks; agreed on. */
int tr_names_of_list(tr_context *tr, struct tr_ids *list, tr_names **names);

/* Everybody in the set gets the ids of all, those of its first member first, in a list that is not searched (to be freed, also after
 * an error). All members together. */
int tr_ids_gather(tr_context *tr, enum tr_set set, const struct tr_ids *mine, struct tr_ids *all);

/* All names of text at all ranks. All ranks; agreed on. */
int tr_names_gather(const tr_names *names, struct tr_ids *all);

void tr_names_free(tr_names **names); /* *names may be NULL */

/* What this rank has of names, as *bytes (to be freed), and back, in the same layout. */
int tr_names_pack(const tr_names *names, char **bytes, size_t *n);
int tr_names_unpack(tr_context *tr, const char *bytes, tr_names **names);

#endif
