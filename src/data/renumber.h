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

#endif
