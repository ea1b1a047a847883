/* Distribution of ratings to workers, and their order.
 *
 * Each worker has all training ratings of its users. Alternating least squares needs all ratings of its items as well. Test
 * ratings are sent to the workers that train their users, because these have the factors. Gradient descent uses tiles of
 * users × items.
 */
#ifndef TR_MODEL_MF_RATINGS_H
#define TR_MODEL_MF_RATINGS_H

#include "tiles.h"
#include "trireme/data.h"

/* Divides n pieces of work into parts of similar work.
 *
 * @param [in]  work   work of each piece
 * @param [out] bound  parts + 1 numbers: part p has the pieces bound[p] .. bound[p + 1] - 1
 */
void tr_mf_divide(size_t n, const double *work, size_t parts, size_t *bound);

/* Ratings by row; a row is a user or an item. */
struct tr_mf_lists {
    size_t n;        /* rows */
    uint64_t *begin; /* row i has the ratings begin[i] .. begin[i + 1] - 1 */
    uint32_t *other; /* index in `key` of the row of the other side */
    float *value;
    tr_key *key; /* numbers of the other side that occur, ascending */
    size_t keys;
};

/* Distributes training ratings by item: each worker receives a range of items with similar work. All workers. Messages have a
 * few megabytes.
 *
 * @param [in]  item_work  work per item besides its ratings, in units of one rating
 * @param [out] first      first item of this worker's range
 * @param [out] lists      ratings of the range; free them with tr_mf_lists_free(), also after an error
 */
int tr_mf_by_item(tr_context *tr, const tr_data *train, double item_work, uint64_t *first,
                  struct tr_mf_lists *lists);
void tr_mf_lists_free(struct tr_mf_lists *lists);

/* Distributes test ratings to the workers that train their users. All workers.
 *
 * @param [out] lists  a row for each user of train->row, and a last row for cold users; cold items have other = keys. Free
 *                     them with tr_mf_lists_free(), also after an error
 */
int tr_mf_by_user(tr_context *tr, const tr_data *train, const tr_data *test, struct tr_mf_lists *lists);

/* ---- tiles ---- */

/* A worker's ratings in tiles: by part of its users, by block of items, by tile of the block. Blocks rotate through the group;
 * a part is trained on in one rotation. 6 bytes per rating and 8 per visit. Independent of the data it was made from. */
struct tr_mf_tiling {
    size_t blocks, parts;
    const uint64_t *first_item; /* blocks + 1 numbers: first item of each block; not owned */
    size_t tile_items;          /* items per tile; the last tile of a block may have fewer */
    size_t *first_tile;         /* blocks + 1 numbers: first tile of each block in a part */
    struct tr_mf_tile *tile;    /* parts × first_tile[blocks] */
    struct tr_mf_visit *visit;
    uint16_t *item;
    float *value;
    size_t ratings;
};

/* Creates the tiles. Values become (value - mean) × scale.
 *
 * @param [in]  first_item  blocks + 1 numbers; must outlive the tiling
 * @param [out] tiling      free it with tr_mf_tiling_free(), also after an error
 */
int tr_mf_tile_ratings(const tr_data *data, size_t parts, size_t blocks, const uint64_t *first_item,
                       size_t tile_items, double mean, double scale, struct tr_mf_tiling *tiling);
void tr_mf_tiling_free(struct tr_mf_tiling *tiling);

/* Returns the *n tiles of a part and a block. Tile t starts with item t × tile_items of the block. */
const struct tr_mf_tile *tr_mf_tiles_of(const struct tr_mf_tiling *tiling, size_t part, size_t block,
                                        size_t *n);

#endif
