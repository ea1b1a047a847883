/* Distribution of ratings to workers, and tiles. mf.h explains both. */
#include "mf.h"

#include <stdlib.h>
#include <string.h>

void tr_mf_divide(size_t n, const double *work, size_t parts, size_t *bound)
{
    double all = 0, so_far = 0;
    size_t part = 1;
    for (size_t i = 0; i < n; i++) all += work[i];
    bound[0] = 0;
    for (size_t i = 0; i < n; i++) {
        so_far += work[i];
        while (part < parts && so_far >= all * (double)part / (double)parts) bound[part++] = i + 1;
    }
    while (part <= parts) bound[part++] = n;
}

static uint64_t ratings_of(const tr_data *data)
{
    return data->rows.n > 0 ? data->rows.begin[data->rows.n] : 0;
}

/* ---- exchange ---- */

struct rating {
    uint32_t user, item;
    float value;
};

/* Sends each rating to the worker row_owner[row], or, if row_owner is NULL, column_owner[column]. Works in rounds with messages of
 * bounded size. All workers.
 *
 * @param [out] received  n ratings; free them with free(), also after an error */
static int send_ratings(tr_context *tr, const tr_data *data, const uint32_t *row_owner,
                        const uint32_t *column_owner, struct rating **received, size_t *n)
{
    enum { PIECE = 1 << 19, LEAST = 1 << 12 };
    const tr_batch *b = &data->rows;
    size_t workers = (size_t)tr_workers(tr),
           most = tr_max_size(PIECE / workers, LEAST), /* ratings that a worker sends per round */
        row = 0, capacity = 0;
    uint64_t k = 0, all = ratings_of(data);
    TR_FREED struct rating *out = NULL;    /* ratings of this round, in the order of the data */
    TR_FREED struct rating *sorted = NULL; /* the same ratings, sorted by receiver */
    TR_FREED uint32_t *to = NULL;          /* receiver of each rating in `out` */
    TR_FREED size_t *begin = NULL;
    TR_FREED size_t *bytes = NULL; /* bytes to send to each worker, then to receive from each worker */
    TR_TRY(TR_NEW(&out, most));
    TR_TRY(TR_NEW(&sorted, most));
    TR_TRY(TR_NEW(&to, most));
    TR_TRY(TR_NEW(&begin, workers + 1));
    TR_TRY(TR_NEW(&bytes, 2 * workers));
    *n = 0;
    for (int64_t more = 1; more;) {
        size_t sent = 0, arriving = 0;
        for (; k < all && sent < most; k++) {
            while (k >= b->begin[row + 1]) row++;
            to[sent] = row_owner ? row_owner[row] : column_owner[b->column[k]];
            out[sent++] = (struct rating){(uint32_t)data->row[row], (uint32_t)data->keys[b->column[k]],
                                          tr_value_at(b, k)};
        }
        memset(bytes, 0, workers * sizeof *bytes);
        for (size_t i = 0; i < sent; i++) bytes[to[i]]++;
        begin[0] = 0;
        for (size_t w = 0; w < workers; w++) begin[w + 1] = begin[w] + bytes[w];
        for (size_t i = 0; i < sent; i++) sorted[begin[to[i]]++] = out[i];
        for (size_t w = 0; w < workers; w++) bytes[w] *= sizeof *sorted;
        TR_TRY(tr_exchange_counts(tr, TR_SET_WORKERS, bytes, bytes + workers));
        for (size_t w = 0; w < workers; w++) arriving += bytes[workers + w] / sizeof *sorted;
        TR_TRY(TR_GROW(received, &capacity, *n + arriving + 1));
        TR_TRY(tr_exchange(tr, TR_SET_WORKERS, sorted, bytes, *received + *n, bytes + workers));
        *n += arriving;
        more = k < all;
        TR_TRY(tr_all_reduce(tr, TR_SET_WORKERS, TR_MAX, TR_I64, &more, 1));
    }
    return TR_OK;
}

/* ---- lists ---- */

/* Builds lists of n rows from the received ratings. by_user: rows are users and columns items, otherwise the reverse. others:
 * number of rows of the other side in training; ratings with a higher index there are cold. */
static int make_lists(const struct rating *r, size_t received, bool by_user, size_t n, uint64_t others,
                      struct tr_mf_lists *lists)
{
    lists->n = n;
    TR_TRY(TR_NEW(&lists->begin, n + 2));
    TR_TRY(TR_NEW(&lists->other, received));
    TR_TRY(TR_NEW(&lists->value, received));
    uint64_t *next = lists->begin + 1; /* next[i] advances from the start to the end of row i */
    for (size_t i = 0; i < received; i++) next[(by_user ? r[i].user : r[i].item) + 1]++;
    for (size_t i = 0; i < n; i++) next[i + 1] += next[i];
    for (size_t i = 0; i < received; i++) {
        uint64_t at = next[by_user ? r[i].user : r[i].item]++;
        lists->other[at] = by_user ? r[i].item : r[i].user;
        lists->value[at] = r[i].value;
    }
    /* List the numbers below `others` that occur in lists->other in lists->key, and replace each by its index there. Replace higher
     * numbers by the length of lists->key. */
    uint32_t *other = lists->other;
    TR_FREED uint32_t *place = NULL;
    TR_TRY(TR_NEW(&place, others));
    for (uint64_t k = 0; k < lists->begin[n]; k++)
        if (other[k] < others) place[other[k]] = 1;
    for (uint64_t i = 0; i < others; i++) lists->keys += place[i];
    TR_TRY(TR_NEW(&lists->key, lists->keys));
    for (uint64_t i = 0, at = 0; i < others; i++) {
        if (!place[i]) continue;
        lists->key[at] = i;
        place[i] = (uint32_t)at++;
    }
    for (uint64_t k = 0; k < lists->begin[n]; k++)
        other[k] = other[k] < others ? place[other[k]] : (uint32_t)lists->keys;
    return TR_OK;
}

void tr_mf_lists_free(struct tr_mf_lists *lists)
{
    TR_FREE_ALL(lists->begin, lists->other, lists->value, lists->key);
    *lists = (struct tr_mf_lists){0};
}

int tr_mf_by_item(tr_context *tr, const tr_data *train, double item_work, uint64_t *first,
                  struct tr_mf_lists *lists)
{
    enum { BUCKETS = 1 << 16 };
    size_t me = (size_t)tr_set_rank(tr, TR_SET_WORKERS), workers = (size_t)tr_workers(tr), received = 0;
    uint64_t items = train->columns;
    TR_FREED double *work = NULL;
    TR_FREED size_t *bound = NULL;
    TR_FREED uint32_t *owner = NULL;
    TR_FREED struct rating *rating = NULL;

    /* Divide the items into ranges with similar work. With many items, 2^shift consecutive items are counted together. */
    unsigned shift = 0;
    while (items >> shift >= BUCKETS) shift++;
    uint64_t width = (uint64_t)1 << shift;
    size_t n = (size_t)(items >> shift) + 1;
    TR_TRY(TR_NEW(&work, n));
    TR_TRY(TR_NEW(&bound, workers + 1));
    for (uint64_t k = 0; k < ratings_of(train); k++) work[train->keys[train->rows.column[k]] >> shift]++;
    TR_TRY(tr_all_reduce(tr, TR_SET_WORKERS, TR_SUM, TR_F64, work, n));
    for (size_t b = 0; b < n; b++)
        work[b] += item_work * (double)(b + 1 < n ? width : items - ((uint64_t)b << shift));
    tr_mf_divide(n, work, workers, bound);

    /* Send each rating to the worker that has the range of its item. */
    TR_TRY(TR_NEW(&owner, train->n_keys));
    uint32_t worker = 0;
    for (size_t j = 0; j < train->n_keys; j++) {
        while (train->keys[j] >> shift >= bound[worker + 1]) worker++;
        owner[j] = worker;
    }
    TR_TRY(send_ratings(tr, train, NULL, owner, &rating, &received));
    uint64_t end = bound[me + 1] * width;
    *first = bound[me] * width;
    if (*first > items) *first = items;
    if (end > items) end = items;
    for (size_t i = 0; i < received; i++) rating[i].item -= (uint32_t)*first;
    return make_lists(rating, received, false, (size_t)(end - *first), train->row_numbers, lists);
}

int tr_mf_by_user(tr_context *tr, const tr_data *train, const tr_data *test, struct tr_mf_lists *lists)
{
    enum { PIECE = 1 << 20 }; /* number of users whose workers are found in one reduction */
    int32_t me = tr_set_rank(tr, TR_SET_WORKERS);
    size_t users = train->rows.n, mine = 0, asked = 0, received = 0;
    TR_FREED int32_t *worker = NULL;
    TR_FREED uint32_t *owner = NULL; /* per row of the test data: worker of the user; cold: this worker */
    TR_FREED struct rating *rating = NULL;
    TR_TRY(TR_NEW(&owner, test->rows.n));
    TR_TRY(TR_NEW(&worker, PIECE));
    for (uint64_t first = 0; first < train->row_numbers; first += PIECE) {
        uint64_t end = first + tr_min_size(PIECE, (size_t)(train->row_numbers - first));
        memset(worker, 0xff, PIECE * sizeof *worker);
        for (; mine < users && train->row[mine] < end; mine++) worker[train->row[mine] - first] = me;
        TR_TRY(tr_all_reduce(tr, TR_SET_WORKERS, TR_MAX, TR_I32, worker, (size_t)(end - first)));
        for (; asked < test->rows.n && test->row[asked] < end; asked++) {
            int32_t found = worker[test->row[asked] - first];
            owner[asked] = (uint32_t)(found < 0 ? me : found);
        }
    }
    while (asked < test->rows.n) owner[asked++] = (uint32_t)me;
    TR_TRY(send_ratings(tr, test, owner, NULL, &rating, &received));
    /* Replace each user by the index of its row on this worker; cold users have the last row. */
    for (size_t i = 0; i < received; i++) {
        size_t at = tr_place_u64(train->row, users, rating[i].user);
        rating[i].user = (uint32_t)(at < users && train->row[at] == rating[i].user ? at : users);
    }
    return make_lists(rating, received, true, users + 1, train->columns, lists);
}

/* ---- tiles ---- */

/* Assignment of columns to tiles. Columns ascend within a row, so that a user's ratings of a tile are contiguous. */
struct columns {
    uint32_t *tile;  /* per column: index of its tile among those of all blocks */
    uint16_t *item;  /* per column: its index in the tile */
    uint32_t *bound; /* per tile: one more than its last column */
};

/* Where the next visit and the next rating of a tile are written. */
struct next {
    struct tr_mf_visit *visit;
    uint16_t *item;
    float *value;
};

/* Writes the visits and ratings of each tile; next NULL: counts them instead. The parts of users have similar numbers of
 * ratings. */
static void ratings_walk(struct tr_mf_tiling *t, const tr_batch *rows, const struct columns *c, float mean,
                         float scale, struct next *next)
{
    size_t tiles = t->first_tile[t->blocks];
    for (size_t user = 0; user < rows->n; user++) {
        double share = (double)rows->begin[user] / (double)(t->ratings + 1);
        size_t first = (size_t)(share * (double)t->parts) * tiles;
        for (uint64_t k = rows->begin[user], end; k < rows->begin[user + 1]; k = end) {
            uint32_t tile = c->tile[rows->column[k]], bound = c->bound[tile];
            for (end = k + 1; end < rows->begin[user + 1] && rows->column[end] < bound;) end++;
            if (next) {
                struct next *to = &next[first + tile];
                *to->visit++ = (struct tr_mf_visit){(uint32_t)user, (uint32_t)(end - k)};
                for (uint64_t i = k; i < end; i++) *to->item++ = c->item[rows->column[i]];
                for (uint64_t i = k; i < end; i++) *to->value++ = (tr_value_at(rows, i) - mean) * scale;
                continue;
            }
            t->tile[first + tile].visits++;
            t->tile[first + tile].ratings += (size_t)(end - k);
        }
    }
}

int tr_mf_tile_ratings(const tr_data *data, size_t parts, size_t blocks, const uint64_t *first_item,
                       size_t tile_items, double mean, double scale, struct tr_mf_tiling *t)
{
    size_t ratings = (size_t)ratings_of(data), visits = 0;
    *t = (struct tr_mf_tiling){.blocks = blocks,
                               .parts = parts,
                               .first_item = first_item,
                               .tile_items = tile_items,
                               .ratings = ratings};
    TR_TRY(TR_NEW(&t->first_tile, blocks + 1));
    for (size_t b = 0; b < blocks; b++) {
        uint64_t items = first_item[b + 1] - first_item[b];
        t->first_tile[b + 1] = t->first_tile[b] + (size_t)((items + tile_items - 1) / tile_items);
    }
    size_t in_part = t->first_tile[blocks], tiles = parts * in_part;
    TR_FREED uint32_t *tile_of = NULL;
    TR_FREED uint16_t *item_of = NULL;
    TR_FREED uint32_t *bound = NULL;
    TR_FREED struct next *next = NULL;
    TR_TRY(TR_NEW(&t->tile, tiles));
    TR_TRY(TR_NEW(&tile_of, data->n_keys));
    TR_TRY(TR_NEW(&item_of, data->n_keys));
    TR_TRY(TR_NEW(&bound, in_part));
    TR_TRY(TR_NEW(&next, tiles));
    for (size_t j = 0, b = 0; j < data->n_keys; j++) {
        while (data->keys[j] >= first_item[b + 1]) b++;
        uint64_t behind = data->keys[j] - first_item[b];
        tile_of[j] = (uint32_t)(t->first_tile[b] + behind / tile_items);
        item_of[j] = (uint16_t)(behind % tile_items);
        bound[tile_of[j]] = (uint32_t)j + 1;
    }
    const struct columns columns = {tile_of, item_of, bound};
    ratings_walk(t, &data->rows, &columns, 0, 0, NULL);

    /* Place the tiles one after the other; kernels may read up to TR_MF_ALIGN elements after the last tile. */
    for (size_t i = 0; i < tiles; i++) visits += t->tile[i].visits;
    TR_TRY(TR_NEW_ALIGNED(&t->visit, visits, false));
    TR_TRY(TR_NEW_ALIGNED(&t->item, ratings + TR_MF_ALIGN, false));
    TR_TRY(TR_NEW_ALIGNED(&t->value, ratings + TR_MF_ALIGN, false));
    memset(t->item + ratings, 0, TR_MF_ALIGN * sizeof *t->item);
    memset(t->value + ratings, 0, TR_MF_ALIGN * sizeof *t->value);
    struct next at = {t->visit, t->item, t->value};
    for (size_t i = 0; i < tiles; i++) {
        struct tr_mf_tile *tile = &t->tile[i];
        next[i] = at;
        *tile = (struct tr_mf_tile){at.visit, tile->visits, tile->ratings, at.item, at.value};
        at = (struct next){at.visit + tile->visits, at.item + tile->ratings, at.value + tile->ratings};
    }
    ratings_walk(t, &data->rows, &columns, (float)mean, (float)scale, next);
    return TR_OK;
}

void tr_mf_tiling_free(struct tr_mf_tiling *t)
{
    TR_FREE_ALL(t->first_tile, t->tile, t->visit, t->item, t->value);
    *t = (struct tr_mf_tiling){0};
}

const struct tr_mf_tile *tr_mf_tiles_of(const struct tr_mf_tiling *t, size_t part, size_t block, size_t *n)
{
    *n = t->first_tile[block + 1] - t->first_tile[block];
    return t->tile + part * t->first_tile[t->blocks] + t->first_tile[block];
}
