/* A worker's ratings, cut into tiles: by part of its users, by block of items, by tile of the block.
 *
 * A block is what rotates in the group, a part what one clock trains on. Six bytes a rating and eight a visit stay;
 * the data they come from are not used any more.
 */
#ifndef TR_MODEL_MF_CUT_H
#define TR_MODEL_MF_CUT_H

#include "model/mf/tiles.h"
#include "trireme/data.h"

struct tr_mf_cut {
    size_t blocks, parts;
    const uint64_t *first_item; /* of each block, and behind the last; not owned */
    size_t tile_items;          /* of every tile of a block but its last */
    size_t *first_tile;         /* of each block in a part, and behind the last */
    struct tr_mf_tile *tile;    /* parts × first_tile[blocks] */
    struct tr_mf_visit *visit;
    uint16_t *item;
    float *value;
    size_t ratings;
    float mean, scale;
};

/* Values become (value - mean) × scale. first_item has blocks + 1 numbers and must stay. */
int tr_mf_cut(const tr_data *data, size_t parts, size_t blocks, const uint64_t *first_item, size_t tile_items,
              double mean, double scale, struct tr_mf_cut *cut);
void tr_mf_cut_free(struct tr_mf_cut *cut);

/* The tiles of a part and a block: from here on, *n of them. Tile t begins t × tile_items behind the block's first. */
const struct tr_mf_tile *tr_mf_tiles_of(const struct tr_mf_cut *cut, size_t part, size_t block, size_t *n);

#endif
