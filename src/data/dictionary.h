/* Values of categories, counted and numbered by all workers together (Angel's distributed counter).
 *
 * Each worker has counted the values that it has met. It sends them, in pieces, to the workers that own them by their hash; owners
 * add up the counts. What is frequent enough is then sorted by column, count and bytes, as names are (names.h), and so gets its
 * number; owners tell the numbers to whoever has asked. Nobody has all values, and equal hashes make no two values one.
 */
#ifndef TR_DATA_DICTIONARY_H
#define TR_DATA_DICTIONARY_H

#include "data/ids.h"
#include "data/names.h"
#include "ranks/ranks.h"

struct tr_dictionary;

/* What a worker has met in one column: values, and how many rows have each. */
struct tr_counted {
    const struct tr_ids *values;
    const uint64_t *count; /* of each place; what no row has does not count */
};

/* Of one column, as all ranks learn it. */
struct tr_dictionary_column {
    uint64_t values; /* numbers are 0 .. values - 1 */
    bool others;     /* there are more, which have no number */
    uint64_t met;    /* with these */
};

/* Numbers the values of n columns: the most frequent of a column 0, of two equally frequent ones that first by its bytes. Values
 * that fewer rows than min_count have, and all but the first most_values of a column, get no number. number[c][place] becomes the
 * number or TR_NO_NUMBER; mine: NULL on ranks that do not work. All ranks; agreed on. */
#define TR_NO_NUMBER UINT32_MAX
int tr_dictionary_make(tr_context *tr, const struct tr_counted *mine, size_t n, uint64_t min_count,
                       uint64_t most_values, struct tr_dictionary **dictionary,
                       struct tr_dictionary_column *column, uint32_t **number);

/* The numbers of values of other rows. All ranks; agreed on. */
int tr_dictionary_find(tr_context *tr, const struct tr_dictionary *dictionary, const struct tr_counted *mine,
                       size_t n, uint32_t **number);

/* All values, of the first column first, in the order of their numbers. */
const tr_names *tr_dictionary_names(const struct tr_dictionary *dictionary);

/* What this rank has of it, as *bytes (to be freed), and back, in the same layout. */
int tr_dictionary_pack(const struct tr_dictionary *dictionary, char **bytes, size_t *n);
int tr_dictionary_unpack(tr_context *tr, const char *bytes, size_t n, struct tr_dictionary **dictionary);

void tr_dictionary_free(struct tr_dictionary **dictionary); /* NULL inside is fine */

#endif
