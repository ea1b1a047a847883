/* Selects the initial centres.
 *
 * Random numbers are hashes of a row's values and the job's seed, so that the selection does not depend on the distribution
 * of rows; equal rows count as one row. To draw a row with a probability proportional to its weight, each row gets a random
 * number u in (0, 1), and the row with the smallest -log(u) / weight is taken.
 *
 *   first      takes the first distinct rows of the files
 *   random     draws k rows uniformly
 *   kmeans++   draws rows one after the other, with probability proportional to the squared distance to the nearest centre so
 *              far (Arthur and Vassilvitskii, SODA 2007)
 *   kmeans||   draws about k candidates in each of ROUNDS rounds with probabilities as in kmeans++; then kmeans++ selects k of the
 *              candidates, weighted by the number of rows nearest to each candidate (Bahmani et al., VLDB 2012)
 *   model.init takes the centres of another model */
#include "kmeans.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Number of rounds of kmeans||; each draws k rows on average. */
enum { ROUNDS = 5 };

/* ---- random numbers ---- */

/* Zeros are skipped, so that a row has the same hash in sparse and in dense form. */
uint64_t tr_kmeans_hash(const struct tr_kmeans_side *side, uint64_t columns, size_t row)
{
    const tr_batch *rows = &side->rows;
    uint64_t hash = 0x165667919e3779f9u, begin = rows->dense ? 0 : rows->begin[row];
    uint64_t n = rows->dense ? columns : rows->begin[row + 1] - begin;
    for (uint64_t i = 0; i < n; i++) {
        float value = rows->dense ? rows->dense[row * columns + i] : tr_value_at(rows, begin + i);
        uint64_t column = i;
        if (!rows->dense) column = rows->column[begin + i];
        if (side->keys) column = side->keys[column];
        uint32_t bits;
        memcpy(&bits, &value, sizeof bits);
        if (value == 0) continue;
        hash = (hash ^ (column << 32 ^ bits)) * 0x9fb21c651e98df25u;
        hash ^= hash >> 28;
    }
    return tr_mix(hash);
}

/* Returns a random number, uniform in (0, 1), for the row with this hash in the draw with this number. */
static double start_chance(uint64_t hash, uint64_t draw)
{
    return ((double)(tr_mix(hash ^ draw) >> 11) + 0.5) * 0x1p-53;
}

/* ---- rows on all ranks ---- */

void tr_start_free(struct tr_start *s)
{
    TR_FREE_ALL(s->dense, s->value, s->begin, s->column);
    *s = (struct tr_start){0};
}

/* Sets the pointers of s->rows. */
static void start_point(struct tr_start *s, bool sparse)
{
    s->rows = sparse ? (tr_batch){.n = s->n, .begin = s->begin, .column = s->column, .value = s->value}
                     : (tr_batch){.n = s->n, .dense = s->dense};
}

/* Allocates memory for one more row with the given number of non-zeros. */
static int start_grow(struct tr_start *s, uint64_t columns, bool sparse, size_t nonzeros)
{
    if (!sparse) return TR_GROW(&s->dense, &s->dense_room, (s->n + 1) * (size_t)columns);
    TR_TRY(TR_GROW(&s->begin, &s->begin_room, s->n + 2));
    if (s->n == 0) s->begin[0] = 0;
    size_t end = (size_t)s->begin[s->n] + nonzeros;
    TR_TRY(TR_GROW(&s->column, &s->column_room, end));
    TR_TRY(TR_GROW(&s->value, &s->value_room, end));
    s->begin[s->n + 1] = end;
    return TR_OK;
}

int tr_start_keep(struct tr_start *s, tr_snapshot *snapshot, size_t k, uint64_t columns, bool sparse)
{
    int64_t nonzeros = sparse && s->n > 0 ? (int64_t)s->begin[s->n] : 0;
    if (sparse) TR_TRY(tr_snapshot_common(snapshot, "start_nonzeros", TR_I64, 1, &nonzeros));
    if (tr_snapshot_restores(snapshot) && !sparse)
        TR_TRY(TR_GROW(&s->dense, &s->dense_room, k * (size_t)columns));
    if (tr_snapshot_restores(snapshot) && sparse) {
        TR_TRY(TR_GROW(&s->begin, &s->begin_room, k + 1));
        TR_TRY(TR_GROW(&s->column, &s->column_room, (size_t)nonzeros));
        TR_TRY(TR_GROW(&s->value, &s->value_room, (size_t)nonzeros));
    }
    s->n = k;
    start_point(s, sparse);
    if (!sparse) return tr_snapshot_common(snapshot, "start", TR_F32, k * (size_t)columns, s->dense);
    TR_TRY(tr_snapshot_common(snapshot, "start_begin", TR_I64, k + 1, s->begin));
    TR_TRY(tr_snapshot_common(snapshot, "start_column", TR_I32, (size_t)nonzeros, s->column));
    return tr_snapshot_common(snapshot, "start_value", TR_F32, (size_t)nonzeros, s->value);
}

/* Appends a row of a batch to s. keys: column of the data for each column index of the batch; NULL: they are equal. */
static int start_append(struct tr_start *s, const tr_batch *rows, const tr_key *keys, uint64_t columns,
                        size_t row)
{
    bool sparse = !rows->dense;
    uint64_t begin = sparse ? rows->begin[row] : 0, n = sparse ? rows->begin[row + 1] - begin : columns;
    TR_TRY(start_grow(s, columns, sparse, (size_t)n));
    if (!sparse)
        memcpy(s->dense + s->n * columns, rows->dense + row * columns, (size_t)columns * sizeof(float));
    for (uint64_t i = 0; sparse && i < n; i++) {
        uint32_t column = rows->column[begin + i];
        s->column[s->begin[s->n] + i] = keys ? (uint32_t)keys[column] : column;
        s->value[s->begin[s->n] + i] = tr_value_at(rows, begin + i);
    }
    s->n++;
    start_point(s, sparse);
    return TR_OK;
}

/* Appends a training row of rank `root` to s on all ranks. */
static int start_share_row(struct tr_kmeans *m, struct tr_start *s, int root, size_t row)
{
    tr_context *tr = m->tr;
    const struct tr_kmeans_side *side = &m->train;
    uint64_t n = 0;
    if (tr_rank(tr) == root) {
        TR_TRY(start_append(s, &side->rows, side->keys, m->columns, row));
        s->n--;
        if (m->sparse) n = s->begin[s->n + 1] - s->begin[s->n];
    }
    if (m->sparse) TR_TRY(tr_broadcast(tr, TR_SET_ALL, root, &n, sizeof n));
    TR_TRY(start_grow(s, m->columns, m->sparse, (size_t)n));
    if (m->sparse) {
        TR_TRY(tr_broadcast(tr, TR_SET_ALL, root, s->column + s->begin[s->n], (size_t)n * sizeof *s->column));
        TR_TRY(tr_broadcast(tr, TR_SET_ALL, root, s->value + s->begin[s->n], (size_t)n * sizeof *s->value));
    } else
        TR_TRY(tr_broadcast(tr, TR_SET_ALL, root, s->dense + s->n * m->columns,
                            (size_t)m->columns * sizeof *s->dense));
    s->n++;
    start_point(s, m->sparse);
    return TR_OK;
}

/* ---- rows drawn by several workers ---- */

struct drawn {
    uint64_t rank; /* sort key: a random number, or the hash */
    uint64_t hash; /* hash of the row's values; breaks ties */
    int32_t at;    /* MPI rank that has the row */
    uint32_t row;  /* index of the row on that rank */
};

static int start_by_rank(const void *a, const void *b)
{
    const struct drawn *x = a, *y = b;
    if (x->rank != y->rank) return x->rank > y->rank ? 1 : -1;
    if (x->hash != y->hash) return x->hash > y->hash ? 1 : -1;
    return (x->at > y->at) - (x->at < y->at);
}

/* Concatenates the lists of all ranks, sorts them, and removes duplicates. The caller frees *all. */
static int start_gather(tr_context *tr, const struct drawn *mine, size_t n, struct drawn **all, size_t *total)
{
    size_t bytes = n * sizeof *mine, sum = 0;
    TR_FREED size_t *counts = NULL;
    TR_TRY(TR_NEW(&counts, (size_t)tr_size(tr)));
    TR_TRY(tr_all_gather(tr, TR_SET_ALL, &bytes, sizeof bytes, counts));
    for (int r = 0; r < tr_size(tr); r++) sum += counts[r];
    size_t many = sum / sizeof **all;
    TR_TRY(TR_NEW(all, many));
    TR_TRY(tr_all_gather_lists(tr, TR_SET_ALL, mine, counts, *all));
    qsort(*all, many, sizeof **all, start_by_rank);
    *total = 0;
    for (size_t i = 0; i < many; i++)
        if (*total == 0 || (*all)[i].hash != (*all)[*total - 1].hash) (*all)[(*total)++] = (*all)[i];
    return TR_OK;
}

static int start_too_few(const struct tr_kmeans *m, size_t found)
{
    return tr_fail(TR_ERR_CONFIG, "%s: model.clusters is %zu, but the data has only %zu distinct rows",
                   tr_job_where(m->job, "model.clusters"), m->k, found);
}

/* ---- rows to select from, and their distances ---- */

/* The rows of this rank from which centres are selected: training rows, or the candidates of kmeans||. */
struct pool {
    struct tr_kmeans *m;
    const tr_batch *rows;
    const tr_key *keys;   /* column of the data for each column index of the rows; NULL: they are equal */
    size_t here;          /* number of columns on this rank */
    const double *weight; /* weights of rows; NULL: every row has weight 1 */
    uint64_t *hash;       /* per row */
    double *square;       /* |x|² per row */
    double *least;        /* per row: squared distance to the nearest centre so far, INFINITY at first */
    uint32_t *which;      /* per row: index of this centre */
    float *spread;        /* sparse: a centre as a dense vector over the columns of this rank */
};

static void pool_close(struct pool *p)
{
    TR_FREE_ALL(p->hash, p->square, p->least, p->which, p->spread);
}

static int pool_open(struct tr_kmeans *m, const tr_batch *rows, const tr_key *keys, size_t here,
                     const double *weight, struct pool *p)
{
    *p = (struct pool){.m = m, .rows = rows, .keys = keys, .here = here, .weight = weight};
    TR_TRY(TR_NEW(&p->hash, rows->n));
    TR_TRY(TR_NEW(&p->square, rows->n));
    TR_TRY(TR_NEW(&p->least, rows->n));
    TR_TRY(TR_NEW(&p->which, rows->n));
    if (m->sparse) TR_TRY(TR_NEW(&p->spread, here));
    struct tr_kmeans_side side = {.rows = *rows, .keys = keys};
    for (size_t i = 0; i < rows->n; i++) {
        p->hash[i] = tr_kmeans_hash(&side, m->columns, i);
        p->least[i] = INFINITY;
        for (uint64_t k = m->sparse ? rows->begin[i] : 0; m->sparse && k < rows->begin[i + 1]; k++)
            p->square[i] += (double)tr_value_at(rows, k) * (double)tr_value_at(rows, k);
    }
    return TR_OK;
}

/* ---- distances to the nearest centre so far ---- */

/* Writes the sparse centre c to p->spread; clear: sets the elements that it wrote to 0 again. */
static void spread_centre(struct pool *p, const tr_batch *centres, size_t c, bool clear)
{
    size_t at = 0;
    for (uint64_t i = centres->begin[c]; i < centres->begin[c + 1]; i++) {
        uint32_t column = centres->column[i];
        if (!p->keys) at = column;
        else
            while (at < p->here && p->keys[at] < column) at++;
        if (at >= p->here) break; /* a rank without rows has no columns and no keys */
        if (p->keys && p->keys[at] != column) continue;
        p->spread[at] = clear ? 0 : centres->value[i];
    }
}

/* Updates p->least and p->which with centre c. */
static void start_lower(struct pool *p, const tr_batch *centres, size_t c)
{
    if (p->m->sparse) {
        double norm = 0;
        for (uint64_t i = centres->begin[c]; i < centres->begin[c + 1]; i++)
            norm += (double)centres->value[i] * (double)centres->value[i];
        spread_centre(p, centres, c, false);
        for (size_t i = 0; i < p->rows->n; i++) {
            double d = p->square[i] + norm - 2 * tr_row_dot(p->rows, i, p->spread);
            if (d < 0x1p-40 * norm) d = 0; /* the row equals the centre, up to rounding errors */
            if (!(d < p->least[i])) continue;
            p->least[i] = d;
            p->which[i] = (uint32_t)c;
        }
        spread_centre(p, centres, c, true);
    } else
        tr_lower(p->rows->dense, p->rows->n, p->here, centres->dense + c * p->here, (uint32_t)c, p->least,
                 p->which);
}

/* Updates p->least and p->which with the centres first .. last - 1. */
static int lower_by_many(struct pool *p, const tr_batch *from, size_t first, size_t last)
{
    TR_CLOSED_BY(tr_centres_close) struct tr_centres c = {0};
    TR_CLOSED_BY(tr_assigned_close) struct tr_assigned a = {0};
    if (first == last) return TR_OK;
    TR_TRY(tr_centres_open(last - first, p->here, p->m->sparse, &c));
    TR_TRY(tr_assigned_open(&c, p->rows, false, &a));
    for (size_t j = 0; j < c.k; j++) {
        if (!c.sparse) {
            memcpy(c.value + j * c.columns, from->dense + (first + j) * c.columns,
                   c.columns * sizeof *c.value);
            continue;
        }
        for (uint64_t i = from->begin[first + j]; i < from->begin[first + j + 1]; i++)
            c.norm[j] += (double)from->value[i] * (double)from->value[i];
        spread_centre(p, from, first + j, false);
        for (size_t at = 0; at < p->here; at++) c.value[at * c.width + j] = p->spread[at];
        spread_centre(p, from, first + j, true);
    }
    TR_TRY(tr_centres_ready(&c));
    tr_assign(&c, p->rows, 0, p->rows->n, &a, NULL, NULL);
    for (size_t i = 0; i < p->rows->n; i++) {
        double d = tr_distance(&c, p->rows, i, a.label[i]);
        if (p->m->sparse && d < 0x1p-40 * p->square[i]) d = 0;
        if (!(d < p->least[i])) continue;
        p->least[i] = d;
        p->which[i] = (uint32_t)first + a.label[i];
    }
    return TR_OK;
}

/* Draws a row of this rank with probability proportional to weight × squared distance (to weight if there is no centre yet).
 * Returns its -log(u) / weight, which the ranks compare to draw among all rows; INFINITY if every row equals a centre. */
static double start_race(const struct pool *p, uint64_t draw, size_t *winner)
{
    double best = INFINITY;
    for (size_t i = 0; i < p->rows->n; i++) {
        double weight = (isinf(p->least[i]) ? 1 : p->least[i]) * (p->weight ? p->weight[i] : 1);
        double u = start_chance(p->hash[i], draw);
        if (!(weight > 0) || (1 - u) >= best * weight) continue; /* avoids the logarithm: -log(u) > 1 - u */
        double at = -log(u) / weight;
        if (!(at < best)) continue;
        best = at;
        *winner = i;
    }
    return best;
}

/* Returns the random number that distinguishes a draw from other draws of the job. */
static uint64_t draw_number(const struct tr_kmeans *m, uint64_t which)
{
    return tr_mix(m->seed + tr_mix(which));
}

/* Selects rows by kmeans++ among the rows of all workers, and appends them to s until s has n rows. */
static int draw_apart(struct pool *p, struct tr_start *s, size_t n)
{
    tr_context *tr = p->m->tr;
    for (size_t c = s->n; c < n; c++) {
        size_t row = 0;
        TR_TRY(tr_turn_begin(tr, "start"));
        if (c > 0) start_lower(p, &s->rows, c - 1);
        double mine = start_race(p, draw_number(p->m, c), &row), best = mine;
        TR_TRY(tr_turn_end(tr, TR_OK));
        TR_TRY(tr_all_reduce(tr, TR_SET_ALL, TR_MIN, TR_F64, &best, 1));
        if (isinf(best)) return start_too_few(p->m, c);
        int32_t winner = mine == best ? tr_rank(tr) : INT32_MAX;
        TR_TRY(tr_all_reduce(tr, TR_SET_ALL, TR_MIN, TR_I32, &winner, 1));
        TR_TRY(start_share_row(p->m, s, winner, row));
    }
    return TR_OK;
}

/* ---- solve.start ---- */

static int start_apart(struct tr_kmeans *m)
{
    TR_CLOSED_BY(pool_close) struct pool p = {0};
    TR_TRY(tr_agree(m->tr, pool_open(m, &m->train.rows, m->train.keys, m->train.n_keys, NULL, &p)));
    return draw_apart(&p, &m->start, m->k);
}

/* Selects the k rows with the smallest random numbers. */
static int start_random(struct tr_kmeans *m)
{
    size_t n = m->train.rows.n, total = 0;
    TR_FREED struct drawn *all = NULL;
    TR_FREED struct drawn *mine = NULL;
    TR_TRY(TR_NEW(&mine, n));
    TR_TRY(tr_turn_begin(m->tr, "start"));
    for (size_t i = 0; i < n; i++) {
        uint64_t hash = tr_kmeans_hash(&m->train, m->columns, i);
        mine[i] = (struct drawn){tr_mix(hash ^ draw_number(m, 0)), hash, tr_rank(m->tr), (uint32_t)i};
    }
    qsort(mine, n, sizeof *mine, start_by_rank);
    size_t distinct = 0;
    for (size_t i = 0; i < n && distinct < m->k; i++)
        if (distinct == 0 || mine[i].hash != mine[distinct - 1].hash) mine[distinct++] = mine[i];
    TR_TRY(tr_turn_end(m->tr, TR_OK));
    TR_TRY(start_gather(m->tr, mine, distinct, &all, &total));
    if (total < m->k) return start_too_few(m, total);
    for (size_t j = 0; j < m->k; j++) TR_TRY(start_share_row(m, &m->start, all[j].at, all[j].row));
    return TR_OK;
}

/* Draws each row independently with a probability proportional to its squared distance, k rows on average. Appends them to s. */
static int draw_round(struct pool *p, struct tr_start *s, uint64_t round)
{
    struct tr_kmeans *m = p->m;
    tr_context *tr = m->tr;
    double cost = 0;
    for (size_t i = 0; i < p->rows->n; i++) cost += p->least[i];
    TR_TRY(tr_all_reduce(tr, TR_SET_ALL, TR_SUM, TR_F64, &cost, 1));
    if (m->replicated) cost /= m->group_size;
    TR_FREED struct drawn *all = NULL;
    TR_FREED struct drawn *mine = NULL;
    size_t n = 0, room = 0, total = 0;
    for (size_t i = 0; i < p->rows->n; i++) {
        if (!(start_chance(p->hash[i], draw_number(m, round)) * cost < (double)m->k * p->least[i])) continue;
        TR_TRY(TR_GROW(&mine, &room, n + 1));
        mine[n++] = (struct drawn){p->hash[i], p->hash[i], tr_rank(tr), (uint32_t)i};
    }
    TR_TRY(start_gather(tr, mine, n, &all, &total));
    for (size_t i = 0; i < total; i++) TR_TRY(start_share_row(m, s, all[i].at, all[i].row));
    return TR_OK;
}

/* Selects rows by kmeans||. All ranks have all candidates and make the same selection among them. If fewer than k candidates are
 * distinct, kmeans++ over all rows is used instead. */
static int start_parallel(struct tr_kmeans *m)
{
    TR_CLOSED_BY(tr_start_free) struct tr_start candidates = {0};
    TR_CLOSED_BY(pool_close) struct pool p = {0};
    TR_CLOSED_BY(pool_close) struct pool among = {0};
    TR_FREED double *weight = NULL;
    TR_TRY(tr_agree(m->tr, pool_open(m, &m->train.rows, m->train.keys, m->train.n_keys, NULL, &p)));
    TR_TRY(draw_apart(&p, &candidates, 1));
    for (size_t round = 0, done = 0; round <= ROUNDS; round++) {
        TR_TRY(tr_turn_begin(m->tr, "start"));
        int status = tr_turn_end(m->tr, lower_by_many(&p, &candidates.rows, done, candidates.n));
        TR_TRY(tr_agree(m->tr, status));
        done = candidates.n;
        if (round < ROUNDS) TR_TRY(draw_round(&p, &candidates, m->k + round));
    }
    TR_TRY(TR_NEW(&weight, candidates.n));
    for (size_t i = 0; i < p.rows->n; i++) weight[p.which[i]] += 1;
    TR_TRY(tr_all_reduce(m->tr, TR_SET_ALL, TR_SUM, TR_F64, weight, candidates.n));
    pool_close(&p);
    p = (struct pool){0};
    TR_TRY(pool_open(m, &candidates.rows, NULL, (size_t)m->columns, weight, &among));
    for (size_t c = 0; c < m->k; c++) {
        size_t row = 0;
        if (c > 0) start_lower(&among, &m->start.rows, c - 1);
        if (isinf(start_race(&among, draw_number(m, c), &row))) break;
        TR_TRY(start_append(&m->start, &candidates.rows, NULL, m->columns, row));
    }
    if (m->start.n == m->k) return TR_OK;
    tr_start_free(&m->start);
    return start_apart(m);
}

/* Selects the first distinct rows of the files. Sparse rows are converted if training uses dense rows. */
static int start_first(struct tr_kmeans *m)
{
    TR_CLOSED_BY(tr_batch_free) tr_batch *rows = NULL;
    TR_FREED float *dense = NULL;
    TR_TRY(TR_NEW(&dense, (size_t)m->columns));
    TR_TRY(tr_data_first_rows(m->train.data, m->k, true, &rows));
    if (rows->n < m->k) return start_too_few(m, rows->n);
    bool converts = !m->sparse && !rows->dense;
    const tr_batch one = {.n = 1, .dense = dense};
    for (size_t j = 0; j < m->k; j++) {
        if (converts) memset(dense, 0, (size_t)m->columns * sizeof *dense);
        for (uint64_t i = converts ? rows->begin[j] : 0; converts && i < rows->begin[j + 1]; i++)
            dense[rows->column[i]] = tr_value_at(rows, i);
        TR_TRY(start_append(&m->start, converts ? &one : rows, NULL, m->columns, converts ? 0 : j));
    }
    return TR_OK;
}

/* ---- centres of another model ---- */

/* Writes a centre of the model as a row over the columns of the data. */
static int place_centre(const struct tr_kmeans *m, const tr_saved_centres *c, size_t centre, float *row)
{
    memset(row, 0, (size_t)m->columns * sizeof *row);
    for (uint64_t j = 0; j < c->columns; j++) {
        float value = c->value[centre * c->columns + j];
        uint64_t index = c->first_index + j;
        if (value == 0) continue;
        if (index < m->first_index || index - m->first_index >= m->columns)
            return tr_fail(TR_ERR_DATA,
                           "%s: model.init %s has a column %llu, which the training data do not have: set "
                           "data.features to the number of columns",
                           tr_job_where(m->job, "model.init"), m->o->init, (unsigned long long)index);
        row[index - m->first_index] = value;
    }
    return TR_OK;
}

/* Takes the centres of model.init: rank 0 reads the model and broadcasts its centres one after the other. */
static int start_given(struct tr_kmeans *m)
{
    tr_saved_centres c = {0};
    TR_FREED float *row = NULL;
    TR_FREED uint32_t *column = NULL;
    bool reads = tr_rank(m->tr) == 0;
    int status = reads ? tr_model_load_centres(m->tr, m->o->init, &c) : TR_OK;
    if (status == TR_OK && reads && c.n != m->k)
        status = tr_fail(TR_ERR_DATA, "%s: model.init %s has %llu centres: expected model.clusters, %zu",
                         tr_job_where(m->job, "model.init"), m->o->init, (unsigned long long)c.n, m->k);
    if (status == TR_OK) status = TR_NEW(&row, (size_t)m->columns);
    if (status == TR_OK) status = TR_NEW(&column, (size_t)m->columns);
    for (size_t i = 0;; i++) {
        if (status == TR_OK && reads && i < m->k) status = place_centre(m, &c, i, row);
        status = tr_agree(m->tr, status);
        if (status != TR_OK || i == m->k) break;
        status = tr_broadcast(m->tr, TR_SET_ALL, 0, row, (size_t)m->columns * sizeof *row);
        tr_batch one = {.n = 1, .dense = row};
        uint64_t begin[2] = {0, 0};
        for (uint32_t j = 0; m->sparse && j < m->columns; j++) {
            if (row[j] == 0) continue;
            row[begin[1]] = row[j];
            column[begin[1]++] = j;
        }
        if (m->sparse) one = (tr_batch){.n = 1, .begin = begin, .column = column, .value = row};
        if (status == TR_OK) status = start_append(&m->start, &one, NULL, m->columns, 0);
    }
    if (status == TR_OK) tr_say(m->tr, "begins with:   the centres of %s", m->o->init);
    free(c.value);
    return status;
}

int tr_kmeans_choose(struct tr_kmeans *m)
{
    static int (*const start[])(struct tr_kmeans *) = {[TR_START_PLUSPLUS] = start_apart,
                                                       [TR_START_PARALLEL] = start_parallel,
                                                       [TR_START_RANDOM] = start_random,
                                                       [TR_START_FIRST] = start_first};
    return *m->o->init ? start_given(m) : tr_agree(m->tr, start[m->o->start](m));
}
