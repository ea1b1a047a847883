#include "model/mf/cut.h"

#include <stdlib.h>

/* Where the items of a worker's keys are. */
struct place {
    uint32_t tile; /* counted over all blocks */
    uint32_t item; /* of the tile */
};

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

static int place_keys(const struct tr_mf_cut *cut, const tr_data *data, struct place **places)
{
    struct place *place;
    TR_TRY(TR_NEW(&place, data->n_keys));
    for (size_t j = 0, b = 0; j < data->n_keys; j++) {
        while (data->keys[j] >= cut->first_item[b + 1]) b++;
        uint64_t behind = data->keys[j] - cut->first_item[b];
        place[j] = (struct place){(uint32_t)(cut->first_tile[b] + behind / cut->tile_items),
                                  (uint32_t)(behind % cut->tile_items)};
    }
    *places = place;
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

/* How much each tile has; and with `fill`, what: then the counts say where the next goes. */
static void walk(struct tr_mf_cut *cut, const tr_data *data, const struct place *place, struct count *count,
                 bool fill, double mean, double scale)
{
    const tr_batch *rows = &data->rows;
    size_t tiles = cut->first_tile[cut->blocks];
    for (size_t user = 0; user < rows->n; user++) {
        struct count *of_part = count + part_of(cut, rows, user) * tiles, *at = NULL;
        for (uint64_t k = rows->begin[user]; k < rows->begin[user + 1]; k++) {
            const struct place *p = &place[rows->column[k]];
            if (&of_part[p->tile] != at) {
                at = &of_part[p->tile];
                if (fill) cut->visit[at->visits] = (struct tr_mf_visit){(uint32_t)user, 0};
                at->visits++;
            }
            if (fill) {
                cut->visit[at->visits - 1].n++;
                cut->item[at->ratings] = (uint16_t)p->item;
                double value = rows->value ? (double)rows->value[k] : 1;
                cut->value[at->ratings] = (float)((value - mean) * scale);
            }
            at->ratings++;
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
    TR_TRY(TR_NEW(&cut->visit, all.visits));
    TR_TRY(TR_NEW(&cut->item, all.ratings + TR_MF_ALIGN));
    TR_TRY(TR_NEW(&cut->value, all.ratings + TR_MF_ALIGN));
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
                              .ratings = data->rows.n > 0 ? (size_t)data->rows.begin[data->rows.n] : 0};
    struct place *place = NULL;
    struct count *count = NULL;
    int status = count_tiles(cut);
    if (status == TR_OK) status = place_keys(cut, data, &place);
    if (status == TR_OK) status = TR_NEW(&count, parts * cut->first_tile[blocks]);
    if (status == TR_OK) walk(cut, data, place, count, false, 0, 0);
    if (status == TR_OK) status = lay_out(cut, count);
    if (status == TR_OK) walk(cut, data, place, count, true, mean, scale);
    free(place);
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
