/* From the columns of a file to the few that a worker really meets: distinct keys, and local columns 0..n-1.
 */
#ifndef TR_DATA_RENUMBER_H
#define TR_DATA_RENUMBER_H

#include "data/matrix.h"

/* Collects the distinct columns, ascending, into *keys (n of them, to be freed) and rewrites the columns to
 * their places in it. All columns must lie in lowest .. highest (as the reader reports them; lowest > highest
 * if there are none). Takes for a moment a quarter byte for each index of the range or 36 to 60 bytes for
 * each distinct column, about whichever is less. */
int tr_renumber(struct tr_matrix *m, uint32_t lowest, uint32_t highest, uint32_t **keys, size_t *n);

/* Sorts n keys and leaves each once; then n is how many are left. Takes as much memory again for a moment. */
int tr_keys_sort(uint32_t *keys, size_t *n);

/* The same of rows that come some at a time, twice: first the columns are noted, then those that occur are numbered, and then
 * each row's columns become these numbers. */
struct tr_columns_seen {
    struct tr_column_word **page; /* of 2^16 columns each; NULL: none of them occurs */
};

int tr_columns_note(struct tr_columns_seen *seen, const struct tr_matrix *m);

/* Of those from first_index on, counted from there, that are less than `columns`. */
int tr_columns_number(struct tr_columns_seen *seen, uint32_t first_index, uint64_t columns, uint32_t **keys,
                      size_t *n);

/* m's columns count from first_index, and have all been noted. */
void tr_columns_apply(const struct tr_columns_seen *seen, uint32_t first_index, struct tr_matrix *m);

void tr_columns_free(struct tr_columns_seen *seen);

#endif
