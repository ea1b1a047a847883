#include "model/mf/cut.h"

#include <stdlib.h>

static int count_tiles(struct tr_mf_cut *cut)
{
    TR_TRY(TR_NEW(&cut->first_tile, cut->blocks + 1));
    for (size_t b = 0; b < cut->blocks; b++) {
        uint64_t items = cut->first_item[b + 1] - cut->first_item[b];
        cut->first_tile[b + 1] =
            cut->first_tile[b] + (size_t)((items + cut->tile_items - 1) / cut->tile_items);
    }
    return TR_NEW(&cut->tile, cut->parts * cut->first_tile[cut->blocks]);
}

/* How the columns of the data fall into tiles. They ascend within a row, so that a user's ratings of a tile lie next to
 * each other. */
struct columns {
    uint32_t *tile;  /* of each: counted over all blocks */
    uint16_t *item;  /* of each: of the tile */
    uint32_t *bound; /* of each tile: the first column that is behind it */
};

static void columns_free(struct columns *c)
{
    free(c->tile);
    free(c->item);
    free(c->bound);
}

static int place_columns(const struct tr_mf_cut *cut, const tr_data *data, struct columns *c)
{
    TR_TRY(TR_NEW(&c->tile, data->n_keys));
    TR_TRY(TR_NEW(&c->item, data->n_keys));
    TR_TRY(TR_NEW(&c->bound, cut->first_tile[cut->blocks]));
    for (size_t j = 0, b = 0; j < data->n_keys; j++) {
        while (data->keys[j] >= cut->first_item[b + 1]) b++;
        uint64_t behind = data->keys[j] - cut->first_item[b];
        c->tile[j] = (uint32_t)(cut->first_tile[b] + behind / cut->tile_items);
        c->item[j] = (uint16_t)(behind % cut->tile_items);
        c->bound[c->tile[j]] = (uint32_t)j + 1;
    }
    return TR_OK;
}

/* The part that a user belongs to, so that parts have about equally many ratings. */
static size_t part_of(const struct tr_mf_cut *cut, const tr_batch *rows, size_t user)
{
    return (size_t)((double)rows->begin[user] / (double)(cut->ratings + 1) * (double)cut->parts);
}

struct count {
    size_t visits, ratings;
};

/* A user's ratings k .. end - 1 of a tile, to where its next go. */
static void fill_visit(struct tr_mf_cut *cut, const tr_data *data, const struct columns *c, uint32_t user,
                       uint64_t k, uint64_t end, const struct count *at)
{
    const tr_batch *rows = &data->rows;
    uint16_t *item = cut->item + at->ratings;
    float *value = cut->value + at->ratings;
    size_t n = (size_t)(end - k);
    cut->visit[at->visits] = (struct tr_mf_visit){user, (uint32_t)n};
    for (size_t i = 0; i < n; i++) item[i] = c->item[rows->column[k + i]];
    for (size_t i = 0; i < n; i++)
        value[i] = ((rows->value ? rows->value[k + i] : 1) - cut->mean) * cut->scale;
}

/* How much each tile has; and with `fill`, what: then the counts say where the next goes. */
static void walk(struct tr_mf_cut *cut, const tr_data *data, const struct columns *c, struct count *count,
                 bool fill)
{
    const tr_batch *rows = &data->rows;
    size_t tiles = cut->first_tile[cut->blocks];
    for (size_t user = 0; user < rows->n; user++) {
        struct count *of_part = count + part_of(cut, rows, user) * tiles;
        for (uint64_t k = rows->begin[user], end; k < rows->begin[user + 1]; k = end) {
            uint32_t tile = c->tile[rows->column[k]], bound = c->bound[tile];
            for (end = k + 1; end < rows->begin[user + 1] && rows->column[end] < bound;) end++;
            if (fill) fill_visit(cut, data, c, (uint32_t)user, k, end, &of_part[tile]);
            of_part[tile].visits++;
            of_part[tile].ratings += (size_t)(end - k);
        }
    }
}

/* From how much each tile has to where it begins. */
static int lay_out(struct tr_mf_cut *cut, struct count *count)
{
    size_t n = cut->parts * cut->first_tile[cut->blocks];
    struct count all = {0, 0};
    for (size_t t = 0; t < n; t++) {
        struct count here = count[t];
        cut->tile[t].visits = here.visits;
        cut->tile[t].ratings = here.ratings;
        count[t] = all;
        all.visits += here.visits;
        all.ratings += here.ratings;
    }
    TR_TRY(tr_mf_memory((void **)&cut->visit, all.visits, sizeof *cut->visit));
    TR_TRY(tr_mf_memory((void **)&cut->item, all.ratings + TR_MF_ALIGN, sizeof *cut->item));
    TR_TRY(tr_mf_memory((void **)&cut->value, all.ratings + TR_MF_ALIGN, sizeof *cut->value));
    for (size_t i = all.ratings; i < all.ratings + TR_MF_ALIGN; i++) cut->item[i] = 0, cut->value[i] = 0;
    for (size_t t = 0; t < n; t++) {
        cut->tile[t].visit = cut->visit + count[t].visits;
        cut->tile[t].item = cut->item + count[t].ratings;
        cut->tile[t].value = cut->value + count[t].ratings;
    }
    return TR_OK;
}

int tr_mf_cut(const tr_data *data, size_t parts, size_t blocks, const uint64_t *first_item, size_t tile_items,
              double mean, double scale, struct tr_mf_cut *cut)
{
    *cut = (struct tr_mf_cut){.blocks = blocks,
                              .parts = parts,
                              .first_item = first_item,
                              .tile_items = tile_items,
                              .mean = (float)mean,
                              .scale = (float)scale,
                              .ratings = data->rows.n > 0 ? (size_t)data->rows.begin[data->rows.n] : 0};
    struct columns columns = {0};
    struct count *count = NULL;
    int status = count_tiles(cut);
    if (status == TR_OK) status = place_columns(cut, data, &columns);
    if (status == TR_OK) status = TR_NEW(&count, parts * cut->first_tile[blocks]);
    if (status == TR_OK) walk(cut, data, &columns, count, false);
    if (status == TR_OK) status = lay_out(cut, count);
    if (status == TR_OK) walk(cut, data, &columns, count, true);
    columns_free(&columns);
    free(count);
    return status;
}

void tr_mf_cut_free(struct tr_mf_cut *cut)
{
    void *arrays[] = {cut->first_tile, cut->tile, cut->visit, cut->item, cut->value};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) free(arrays[i]);
    *cut = (struct tr_mf_cut){0};
}

const struct tr_mf_tile *tr_mf_tiles_of(const struct tr_mf_cut *cut, size_t part, size_t block, size_t *n)
{
    *n = cut->first_tile[block + 1] - cut->first_tile[block];
    return cut->tile + part * cut->first_tile[cut->blocks] + cut->first_tile[block];
}
