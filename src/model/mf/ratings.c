#include "ratings.h"

#include <stdlib.h>
#include <string.h>

#include "trireme/base.h"
#include "trireme/collective.h"

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

/* All-to-all exchange of ratings in rounds; a worker sends at most `most` ratings per round. */
struct exchange {
    tr_context *tr;
    size_t workers, n, most;
    struct rating *out, *sorted; /* n ratings in the order of the data, and in the order of receivers */
    uint32_t *to;
    size_t *begin, *to_each, *from_each;
    struct rating *received;
    size_t n_received, capacity;
};

static int exchange_open(tr_context *tr, struct exchange *x)
{
    enum { PIECE = 1 << 19, LEAST = 1 << 12 };
    size_t workers = (size_t)tr_workers(tr);
    *x = (struct exchange){.tr = tr, .workers = workers};
    x->most = tr_max_size(PIECE / workers, LEAST); /* a worker receives at most PIECE ratings */
    TR_TRY(TR_NEW(&x->out, x->most));
    TR_TRY(TR_NEW(&x->sorted, x->most));
    TR_TRY(TR_NEW(&x->to, x->most));
    TR_TRY(TR_NEW(&x->begin, workers + 1));
    TR_TRY(TR_NEW(&x->to_each, workers));
    return TR_NEW(&x->from_each, workers);
}

static void exchange_free(struct exchange *x)
{
    void *parts[] = {x->out, x->sorted, x->to, x->begin, x->to_each, x->from_each, x->received};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) free(parts[i]);
}

static int exchange_round(struct exchange *x)
{
    size_t arriving = 0;
    memset(x->to_each, 0, x->workers * sizeof *x->to_each);
    for (size_t i = 0; i < x->n; i++) x->to_each[x->to[i]]++;
    for (size_t w = 0; w < x->workers; w++) x->begin[w + 1] = x->begin[w] + x->to_each[w];
    for (size_t i = 0; i < x->n; i++) x->sorted[x->begin[x->to[i]]++] = x->out[i];
    for (size_t w = 0; w < x->workers; w++) x->to_each[w] *= sizeof *x->sorted;
    x->begin[0] = x->n = 0;
    TR_TRY(tr_exchange_counts(x->tr, TR_SET_WORKERS, x->to_each, x->from_each));
    for (size_t w = 0; w < x->workers; w++) arriving += x->from_each[w] / sizeof *x->sorted;
    TR_TRY(TR_GROW(&x->received, &x->capacity, x->n_received + arriving + 1));
    TR_TRY(
        tr_exchange(x->tr, TR_SET_WORKERS, x->sorted, x->to_each, x->received + x->n_received, x->from_each));
    x->n_received += arriving;
    return TR_OK;
}

/* Sends each rating to the owner of its row, or, if row_owner is NULL, of its column. */
static int send_ratings(struct exchange *x, const tr_data *data, const uint32_t *row_owner,
                        const uint32_t *column_owner)
{
    const tr_batch *b = &data->rows;
    uint64_t k = 0, all = ratings_of(data);
    size_t row = 0;
    for (int64_t more = 1; more;) {
        for (; k < all && x->n < x->most; k++) {
            while (k >= b->begin[row + 1]) row++;
            x->to[x->n] = row_owner ? row_owner[row] : column_owner[b->column[k]];
            x->out[x->n++] = (struct rating){(uint32_t)data->row[row], (uint32_t)data->keys[b->column[k]],
                                             b->value ? b->value[k] : 1};
        }
        TR_TRY(exchange_round(x));
        more = k < all;
        TR_TRY(tr_all_reduce(x->tr, TR_SET_WORKERS, TR_MAX, TR_I64, &more, 1));
    }
    return TR_OK;
}

/* ---- lists ---- */

/* Lists the numbers below `all` that occur in lists->other, and replaces each number by its index; others by the length of
 * the list. */
static int number_keys(uint64_t all, struct tr_mf_lists *lists)
{
    uint32_t *place, *other = lists->other;
    uint64_t n = lists->begin[lists->n];
    TR_TRY(TR_NEW(&place, all));
    for (uint64_t k = 0; k < n; k++)
        if (other[k] < all) place[other[k]] = 1;
    for (uint64_t i = 0; i < all; i++) lists->keys += place[i];
    int status = TR_NEW(&lists->key, lists->keys);
    for (uint64_t i = 0, at = 0; i < all && status == TR_OK; i++) {
        if (!place[i]) continue;
        lists->key[at] = i;
        place[i] = (uint32_t)at++;
    }
    for (uint64_t k = 0; k < n; k++) other[k] = other[k] < all ? place[other[k]] : (uint32_t)lists->keys;
    free(place);
    return status;
}

/* Builds lists of n rows from the received ratings. by_user: rows are users, otherwise items. others: number of rows of the
 * other side in training. */
static int make_lists(const struct exchange *x, bool by_user, size_t n, uint64_t others,
                      struct tr_mf_lists *lists)
{
    const struct rating *r = x->received;
    lists->n = n;
    TR_TRY(TR_NEW(&lists->begin, n + 2));
    TR_TRY(TR_NEW(&lists->other, x->n_received));
    TR_TRY(TR_NEW(&lists->value, x->n_received));
    uint64_t *next = lists->begin + 1; /* next[i] moves from the begin of row i to its end */
    for (size_t i = 0; i < x->n_received; i++) next[(by_user ? r[i].user : r[i].item) + 1]++;
    for (size_t i = 0; i < n; i++) next[i + 1] += next[i];
    for (size_t i = 0; i < x->n_received; i++) {
        uint64_t at = next[by_user ? r[i].user : r[i].item]++;
        lists->other[at] = by_user ? r[i].item : r[i].user;
        lists->value[at] = r[i].value;
    }
    return number_keys(others, lists);
}

void tr_mf_lists_free(struct tr_mf_lists *lists)
{
    free(lists->begin);
    free(lists->other);
    free(lists->value);
    free(lists->key);
    *lists = (struct tr_mf_lists){0};
}

/* ---- training ratings by item ---- */

/* Determines the owner of each key of the data. With many items, runs of consecutive items are counted together. */
static int divide_items(tr_context *tr, const tr_data *data, double item_work, size_t *bound, uint64_t *width,
                        uint32_t *owner)
{
    enum { BUCKETS = 1 << 16 };
    uint64_t items = data->columns;
    unsigned shift = 0;
    double *work;
    while (items >> shift >= BUCKETS) shift++;
    *width = (uint64_t)1 << shift;
    size_t n = (size_t)(items >> shift) + 1, workers = (size_t)tr_workers(tr);
    TR_TRY(TR_NEW(&work, n));
    for (uint64_t k = 0; k < ratings_of(data); k++) work[data->keys[data->rows.column[k]] >> shift]++;
    int status = tr_all_reduce(tr, TR_SET_WORKERS, TR_SUM, TR_F64, work, n);
    for (size_t b = 0; b < n; b++)
        work[b] += item_work * (double)(b + 1 < n ? *width : items - ((uint64_t)b << shift));
    tr_mf_divide(n, work, workers, bound);
    uint32_t worker = 0;
    for (size_t j = 0; j < data->n_keys; j++) {
        while (data->keys[j] >> shift >= bound[worker + 1]) worker++;
        owner[j] = worker;
    }
    free(work);
    return status;
}

static int take_range(struct exchange *x, uint64_t first, uint64_t end, uint64_t users,
                      struct tr_mf_lists *lists)
{
    for (size_t i = 0; i < x->n_received; i++) x->received[i].item -= (uint32_t)first;
    return make_lists(x, false, (size_t)(end - first), users, lists);
}

int tr_mf_by_item(tr_context *tr, const tr_data *train, double item_work, uint64_t *first,
                  struct tr_mf_lists *lists)
{
    struct exchange x;
    uint32_t *owner = NULL;
    size_t *bound = NULL, me = (size_t)tr_set_rank(tr, TR_SET_WORKERS);
    uint64_t width = 0;
    int status = exchange_open(tr, &x);
    if (status == TR_OK) status = TR_NEW(&owner, train->n_keys);
    if (status == TR_OK) status = TR_NEW(&bound, x.workers + 1);
    if (status == TR_OK) status = divide_items(tr, train, item_work, bound, &width, owner);
    if (status == TR_OK) status = send_ratings(&x, train, NULL, owner);
    if (status == TR_OK) {
        uint64_t end = bound[me + 1] * width;
        *first = bound[me] * width;
        if (*first > train->columns) *first = train->columns;
        if (end > train->columns) end = train->columns;
        status = take_range(&x, *first, end, train->row_numbers, lists);
    }
    exchange_free(&x);
    free(owner);
    free(bound);
    return status;
}

/* ---- test ratings by user ---- */

/* Finds the worker that trains each user of the test data; this worker for cold users. */
static int find_owners(tr_context *tr, const tr_data *train, const tr_data *test, uint32_t *owner)
{
    enum { PIECE = 1 << 20 }; /* users per lookup */
    int32_t *worker, me = tr_set_rank(tr, TR_SET_WORKERS);
    size_t mine = 0, asked = 0;
    int status = TR_NEW(&worker, PIECE);
    for (uint64_t first = 0; first < train->row_numbers && status == TR_OK; first += PIECE) {
        uint64_t end = first + tr_min_size(PIECE, (size_t)(train->row_numbers - first));
        memset(worker, 0xff, PIECE * sizeof *worker);
        for (; mine < train->rows.n && train->row[mine] < end; mine++) worker[train->row[mine] - first] = me;
        status = tr_all_reduce(tr, TR_SET_WORKERS, TR_MAX, TR_I32, worker, (size_t)(end - first));
        for (; asked < test->rows.n && test->row[asked] < end; asked++) {
            int32_t found = worker[test->row[asked] - first];
            owner[asked] = (uint32_t)(found < 0 ? me : found);
        }
    }
    while (asked < test->rows.n) owner[asked++] = (uint32_t)me;
    free(worker);
    return status;
}

/* Returns the row of a user on this worker, or the number of rows if it has none. */
static uint32_t row_of(const tr_data *train, uint64_t user)
{
    size_t n = train->rows.n, at = tr_place_u64(train->row, n, user);
    return (uint32_t)(at < n && train->row[at] == user ? at : n);
}

int tr_mf_by_user(tr_context *tr, const tr_data *train, const tr_data *test, struct tr_mf_lists *lists)
{
    struct exchange x;
    uint32_t *owner = NULL;
    int status = exchange_open(tr, &x);
    if (status == TR_OK) status = TR_NEW(&owner, test->rows.n);
    if (status == TR_OK) status = find_owners(tr, train, test, owner);
    if (status == TR_OK) status = send_ratings(&x, test, owner, NULL);
    for (size_t i = 0; i < x.n_received && status == TR_OK; i++)
        x.received[i].user = row_of(train, x.received[i].user);
    if (status == TR_OK) status = make_lists(&x, true, train->rows.n + 1, train->columns, lists);
    exchange_free(&x);
    free(owner);
    return status;
}

/* ---- tiles ---- */

/* Assignment of columns to tiles. Columns ascend within a row, so that a user's ratings of a tile are contiguous. */
struct columns {
    uint32_t *tile;  /* tile of each column, counted over all blocks */
    uint16_t *item;  /* index of the column in its tile */
    uint32_t *bound; /* of each tile: one more than its last column */
};

static int place_columns(struct tr_mf_tiling *t, const tr_data *data, struct columns *c)
{
    for (size_t b = 0; b < t->blocks; b++) {
        uint64_t items = t->first_item[b + 1] - t->first_item[b];
        t->first_tile[b + 1] = t->first_tile[b] + (size_t)((items + t->tile_items - 1) / t->tile_items);
    }
    TR_TRY(TR_NEW(&t->tile, t->parts * t->first_tile[t->blocks]));
    TR_TRY(TR_NEW(&c->tile, data->n_keys));
    TR_TRY(TR_NEW(&c->item, data->n_keys));
    TR_TRY(TR_NEW(&c->bound, t->first_tile[t->blocks]));
    for (size_t j = 0, b = 0; j < data->n_keys; j++) {
        while (data->keys[j] >= t->first_item[b + 1]) b++;
        uint64_t behind = data->keys[j] - t->first_item[b];
        c->tile[j] = (uint32_t)(t->first_tile[b] + behind / t->tile_items);
        c->item[j] = (uint16_t)(behind % t->tile_items);
        c->bound[c->tile[j]] = (uint32_t)j + 1;
    }
    return TR_OK;
}

/* Position of the next visit and rating of a tile. */
struct next {
    struct tr_mf_visit *visit;
    uint16_t *item;
    float *value;
};

static void put_visit(const tr_batch *rows, const struct columns *c, uint32_t user, uint64_t k, uint64_t end,
                      float mean, float scale, struct next *next)
{
    *next->visit++ = (struct tr_mf_visit){user, (uint32_t)(end - k)};
    for (uint64_t i = k; i < end; i++) *next->item++ = c->item[rows->column[i]];
    for (uint64_t i = k; i < end; i++) *next->value++ = ((rows->value ? rows->value[i] : 1) - mean) * scale;
}

/* Counts the visits and ratings of each tile (next NULL), or writes them. Parts of users have similar numbers of ratings. */
static void walk(struct tr_mf_tiling *t, const tr_batch *rows, const struct columns *c, float mean,
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
                put_visit(rows, c, (uint32_t)user, k, end, mean, scale, &next[first + tile]);
                continue;
            }
            t->tile[first + tile].visits++;
            t->tile[first + tile].ratings += (size_t)(end - k);
        }
    }
}

/* Allocates the tiles one after the other. */
static int lay_out(struct tr_mf_tiling *t, struct next *next)
{
    size_t n = t->parts * t->first_tile[t->blocks], visits = 0, ratings = t->ratings + TR_MF_ALIGN;
    for (size_t i = 0; i < n; i++) visits += t->tile[i].visits;
    TR_TRY(tr_mf_memory((void **)&t->visit, visits, sizeof *t->visit));
    TR_TRY(tr_mf_memory((void **)&t->item, ratings, sizeof *t->item));
    TR_TRY(tr_mf_memory((void **)&t->value, ratings, sizeof *t->value));
    memset(t->item + t->ratings, 0, TR_MF_ALIGN * sizeof *t->item);
    memset(t->value + t->ratings, 0, TR_MF_ALIGN * sizeof *t->value);
    struct next at = {t->visit, t->item, t->value};
    for (size_t i = 0; i < n; i++) {
        struct tr_mf_tile *tile = &t->tile[i];
        next[i] = at;
        *tile = (struct tr_mf_tile){at.visit, tile->visits, tile->ratings, at.item, at.value};
        at = (struct next){at.visit + tile->visits, at.item + tile->ratings, at.value + tile->ratings};
    }
    return TR_OK;
}

int tr_mf_tile_ratings(const tr_data *data, size_t parts, size_t blocks, const uint64_t *first_item,
                       size_t tile_items, double mean, double scale, struct tr_mf_tiling *t)
{
    *t = (struct tr_mf_tiling){.blocks = blocks,
                               .parts = parts,
                               .first_item = first_item,
                               .tile_items = tile_items,
                               .ratings = (size_t)ratings_of(data)};
    struct columns columns = {0};
    struct next *next = NULL;
    int status = TR_NEW(&t->first_tile, blocks + 1);
    if (status == TR_OK) status = place_columns(t, data, &columns);
    if (status == TR_OK) status = TR_NEW(&next, parts * t->first_tile[blocks]);
    if (status == TR_OK) walk(t, &data->rows, &columns, 0, 0, NULL);
    if (status == TR_OK) status = lay_out(t, next);
    if (status == TR_OK) walk(t, &data->rows, &columns, (float)mean, (float)scale, next);
    void *parts_of_columns[] = {columns.tile, columns.item, columns.bound, next};
    for (size_t i = 0; i < 4; i++) free(parts_of_columns[i]);
    return status;
}

void tr_mf_tiling_free(struct tr_mf_tiling *t)
{
    void *arrays[] = {t->first_tile, t->tile, t->visit, t->item, t->value};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) free(arrays[i]);
    *t = (struct tr_mf_tiling){0};
}

const struct tr_mf_tile *tr_mf_tiles_of(const struct tr_mf_tiling *t, size_t part, size_t block, size_t *n)
{
    *n = t->first_tile[block + 1] - t->first_tile[block];
    return t->tile + part * t->first_tile[t->blocks] + t->first_tile[block];
}
