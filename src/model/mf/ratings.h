/* Ratings brought where they are needed, and put into the order in which they are worked on.
 *
 * The data have whole users at each worker. Alternating least squares needs whole items as well; test ratings are needed
 * where their users are trained, since the users' factors are there; and gradient descent works on tiles of users ×
 * items.
 */
#ifndef TR_MODEL_MF_RATINGS_H
#define TR_MODEL_MF_RATINGS_H

#include "tiles.h"
#include "trireme/data.h"

/* Cuts n pieces of work into parts of about the same work: part p gets the pieces bound[p] .. bound[p + 1] - 1. */
void tr_mf_divide(size_t n, const double *work, size_t parts, size_t *bound);

/* Ratings row by row, where a row is a user or an item. */
struct tr_mf_lists {
    size_t n;        /* rows */
    uint64_t *begin; /* ratings of row i: begin[i] .. begin[i + 1] - 1 */
    uint32_t *other; /* of each: the place of the other side's row in `key` */
    float *value;
    tr_key *key; /* the numbers of the other side that occur, ascending */
    size_t keys;
};

/* Ratings of the training data by item. Items are cut into a range for each worker, with about the same work in each;
 * lists has those of this worker's range, which begins with item *first. item_work: the work that an item takes besides
 * its ratings, counted in ratings. All workers together; messages are of a few megabytes. Free the lists, also after an
 * error. */
int tr_mf_by_item(tr_context *tr, const tr_data *train, double item_work, uint64_t *first,
                  struct tr_mf_lists *lists);
void tr_mf_lists_free(struct tr_mf_lists *lists);

/* Test ratings by user, at the workers that have these users in training. lists has a row for each of train->row, and a
 * last one for users that training has not seen; those of items that training has not seen have other = keys. All
 * workers together. */
int tr_mf_by_user(tr_context *tr, const tr_data *train, const tr_data *test, struct tr_mf_lists *lists);

/* ---- tiles ---- */

/* A worker's ratings, cut into tiles: by part of its users, by block of items, by tile of the block. A block is what
 * rotates in the group, a part what is trained on in one rotation. Six bytes a rating and eight a visit; the data they
 * come from are not used any more. */
struct tr_mf_tiling {
    size_t blocks, parts;
    const uint64_t *first_item; /* of each block, and behind the last; not owned */
    size_t tile_items;          /* of every tile of a block but its last */
    size_t *first_tile;         /* of each block in a part, and behind the last */
    struct tr_mf_tile *tile;    /* parts × first_tile[blocks] */
    struct tr_mf_visit *visit;
    uint16_t *item;
    float *value;
    size_t ratings;
};

/* Values become (value - mean) × scale. first_item has blocks + 1 numbers and must stay. Free also after an error. */
int tr_mf_tile_ratings(const tr_data *data, size_t parts, size_t blocks, const uint64_t *first_item,
                       size_t tile_items, double mean, double scale, struct tr_mf_tiling *tiling);
void tr_mf_tiling_free(struct tr_mf_tiling *tiling);

/* The tiles of a part and a block: from here on, *n of them. Tile t begins t × tile_items behind the block's first. */
const struct tr_mf_tile *tr_mf_tiles_of(const struct tr_mf_tiling *tiling, size_t part, size_t block,
                                        size_t *n);

#endif
