/* Numbering of texts and numbers over all workers: users and items (names), and values of categories (dictionaries).
 *
 * Names are numbered 0, 1, 2, ... in ascending order. Every worker holds a range of the sorted names, about equally many, and no
 * worker holds all: a sample of the names of each worker determines the ranges, names are sent to the owner of their range, and
 * their numbers are sent back.
 *
 * Values of categories are counted first (Angel's distributed counter). Each worker sends its values and counts, in rounds, to
 * the workers that own them by their hash. Values that are frequent enough are sorted by column, count and bytes, as names, and
 * the owners answer requests for their numbers. No worker holds all values, and values with equal hashes stay distinct.
 */
#ifndef TR_DATA_NAMES_H
#define TR_DATA_NAMES_H

#include "data/ids.h"
#include "ranks/ranks.h"
#include "trireme/collective.h"
#include "trireme/data.h"

/* ---- names ---- */

/* Numbers the ids of all workers. All ranks; they return the same status.
 *
 * @param [in]  ids     the ids of this worker; empty on other ranks
 * @param [in]  known   names that keep their numbers, before those of new names; NULL: none
 * @param [in]  owners  number of workers that hold ranges, from worker 0 on; ignored if some are known
 * @param [out] number  the number of each id
 * @param [out] names   the new names. Free them after all names that know them
 * @return TR_ERR_SYSTEM for more than 2^32 - 2 names
 */
int tr_names_unite(tr_context *tr, const struct tr_ids *ids, const tr_names *known, size_t owners,
                   uint32_t *number, tr_names **names);

/* Concatenates the ids of all members of the set in *all, which is not searchable. Free it also after an error. All members. */
int tr_ids_gather(tr_context *tr, enum tr_set set, const struct tr_ids *mine, struct tr_ids *all);

/* Copies all names, which are text, to all ranks. All ranks; they return the same status. */
int tr_names_gather(const tr_names *names, struct tr_ids *all);

void tr_names_free(tr_names **names); /* *names may be NULL */

/* Converts this rank's part of names to bytes (to be freed) and back, in the same layout. */
int tr_names_pack(const tr_names *names, char **bytes, size_t *n);
int tr_names_unpack(tr_context *tr, const char *bytes, tr_names **names);

/* ---- dictionaries ---- */

struct tr_dictionary;

/* The values of one column on one worker, and the number of rows with each. Values without rows do not count. */
struct tr_counted {
    const struct tr_ids *values;
    const uint64_t *count;
};

/* The result for one column, the same on all ranks. */
struct tr_dictionary_column {
    uint64_t values; /* their numbers are 0 .. values - 1 */
    bool others;     /* there are values without a number */
    uint64_t met;    /* number of values, with the others */
};

/* Numbers the values of n columns. The most frequent value of a column has number 0; equally frequent values are ordered by bytes.
 * All ranks; they return the same status.
 *
 * @param [in]  mine         the values of this worker, one element per column; NULL on other ranks
 * @param [in]  min_count    values in fewer rows get no number
 * @param [in]  most_values  maximum of numbers per column; 0: no maximum
 * @param [out] number       number[c][place]: the number of a value, or TR_NO_NUMBER
 */
#define TR_NO_NUMBER UINT32_MAX
int tr_dictionary_make(tr_context *tr, const struct tr_counted *mine, size_t n, uint64_t min_count,
                       uint64_t most_values, struct tr_dictionary **dictionary,
                       struct tr_dictionary_column *column, uint32_t **number);

/* Finds the numbers of the values of other rows. All ranks; they return the same status. */
int tr_dictionary_find(tr_context *tr, const struct tr_dictionary *dictionary, const struct tr_counted *mine,
                       size_t n, uint32_t **number);

/* Returns all values, column by column, in the order of their numbers. */
const tr_names *tr_dictionary_names(const struct tr_dictionary *dictionary);

/* Converts this rank's part of a dictionary to bytes (to be freed) and back, in the same layout. */
int tr_dictionary_pack(const struct tr_dictionary *dictionary, char **bytes, size_t *n);
int tr_dictionary_unpack(tr_context *tr, const char *bytes, struct tr_dictionary **dictionary);

void tr_dictionary_free(struct tr_dictionary **dictionary); /* *dictionary may be NULL */

#endif
