/* Selection of the initial centres.
 *
 * Random numbers are hashes of a row's values and the job's seed, so that the selection does not depend on the distribution
 * of rows; equal rows count as one. To draw a row with a probability proportional to its weight, the row with the smallest
 * -log(u) / weight is taken.
 *
 *   first      the first distinct rows of the files
 *   random     uniformly drawn rows
 *   kmeans++   one after the other, with probability proportional to the squared distance to the nearest centre so far
 *              (Arthur and Vassilvitskii, SODA 2007)
 *   model.init the centres of another model
 *   kmeans||   about k rows in each of some rounds, drawn in the same way; kmeans++ selects k of them, weighted by the
 *              number of rows nearest to each (Bahmani et al., VLDB 2012)
 */
#include "kmeans.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Number of rounds of kmeans||; each draws k rows on average. */
enum { ROUNDS = 5 };

/* ---- random numbers ---- */

static uint64_t mix_in(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * 0x9fb21c651e98df25u;
    return hash ^ (hash >> 28);
}

/* Zeros are skipped, so that sparse and dense rows have equal hashes. */
uint64_t tr_kmeans_hash(const struct tr_kmeans_side *side, uint64_t columns, size_t row)
{
    const tr_batch *rows = &side->rows;
    uint64_t hash = 0x165667919e3779f9u, begin = rows->dense ? 0 : rows->begin[row];
    uint64_t n = rows->dense ? columns : rows->begin[row + 1] - begin;
    for (uint64_t i = 0; i < n; i++) {
        float value = rows->dense ? rows->dense[row * columns + i] : rows->value ? rows->value[begin + i] : 1;
        uint64_t column = i;
        if (!rows->dense) column = rows->column[begin + i];
        if (side->keys) column = side->keys[column];
        uint32_t bits;
        memcpy(&bits, &value, sizeof bits);
        if (value != 0) hash = mix_in(hash, column << 32 ^ bits);
    }
    return tr_mix(hash);
}

/* Uniform in (0, 1), a function of a row and a draw. */
static double chance(uint64_t hash, uint64_t draw)
{
    return ((double)(tr_mix(hash ^ draw) >> 11) + 0.5) * 0x1p-53;
}

/* ---- rows on all ranks ---- */

void tr_start_free(struct tr_start *s)
{
    free(s->dense);
    free(s->value);
    free(s->begin);
    free(s->column);
    *s = (struct tr_start){0};
}

static void point(struct tr_start *s, bool sparse)
{
    s->rows = sparse ? (tr_batch){.n = s->n, .begin = s->begin, .column = s->column, .value = s->value}
                     : (tr_batch){.n = s->n, .dense = s->dense};
}

/* Allocates one more row with the given number of non-zeros. */
static int grow(struct tr_start *s, uint64_t columns, bool sparse, size_t nonzeros)
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

/* Allocates k rows with the given number of non-zeros in total. */
static int make_room(struct tr_start *s, size_t k, uint64_t columns, bool sparse, size_t nonzeros)
{
    if (!sparse) return TR_GROW(&s->dense, &s->dense_room, k * (size_t)columns);
    TR_TRY(TR_GROW(&s->begin, &s->begin_room, k + 1));
    TR_TRY(TR_GROW(&s->column, &s->column_room, nonzeros));
    return TR_GROW(&s->value, &s->value_room, nonzeros);
}

int tr_start_keep(struct tr_start *s, tr_snapshot *snapshot, size_t k, uint64_t columns, bool sparse)
{
    int64_t nonzeros = sparse && s->n > 0 ? (int64_t)s->begin[s->n] : 0;
    if (sparse) TR_TRY(tr_snapshot_common(snapshot, "start_nonzeros", TR_I64, 1, &nonzeros));
    if (tr_snapshot_restores(snapshot)) TR_TRY(make_room(s, k, columns, sparse, (size_t)nonzeros));
    s->n = k;
    point(s, sparse);
    if (!sparse) return tr_snapshot_common(snapshot, "start", TR_F32, k * (size_t)columns, s->dense);
    TR_TRY(tr_snapshot_common(snapshot, "start_begin", TR_I64, k + 1, s->begin));
    TR_TRY(tr_snapshot_common(snapshot, "start_column", TR_I32, (size_t)nonzeros, s->column));
    return tr_snapshot_common(snapshot, "start_value", TR_F32, (size_t)nonzeros, s->value);
}

/* Appends a row of a batch. keys: keys of its columns; NULL: columns are keys. */
static int append(struct tr_start *s, const tr_batch *rows, const tr_key *keys, uint64_t columns, size_t row)
{
    bool sparse = !rows->dense;
    uint64_t begin = sparse ? rows->begin[row] : 0, n = sparse ? rows->begin[row + 1] - begin : columns;
    TR_TRY(grow(s, columns, sparse, (size_t)n));
    if (!sparse)
        memcpy(s->dense + s->n * columns, rows->dense + row * columns, (size_t)columns * sizeof(float));
    for (uint64_t i = 0; sparse && i < n; i++) {
        uint32_t column = rows->column[begin + i];
        s->column[s->begin[s->n] + i] = keys ? (uint32_t)keys[column] : column;
        s->value[s->begin[s->n] + i] = rows->value ? rows->value[begin + i] : 1;
    }
    s->n++;
    point(s, sparse);
    return TR_OK;
}

/* Appends a row of rank `root` on all ranks. */
static int share_row(struct tr_kmeans *m, struct tr_start *s, int root, size_t row)
{
    tr_context *tr = m->tr;
    const struct tr_kmeans_side *side = &m->train;
    uint64_t n = 0;
    if (tr_rank(tr) == root) {
        TR_TRY(append(s, &side->rows, side->keys, m->columns, row));
        s->n--;
        if (m->sparse) n = s->begin[s->n + 1] - s->begin[s->n];
    }
    if (m->sparse) TR_TRY(tr_broadcast(tr, TR_SET_ALL, root, &n, sizeof n));
    TR_TRY(grow(s, m->columns, m->sparse, (size_t)n));
    if (m->sparse) {
        TR_TRY(tr_broadcast(tr, TR_SET_ALL, root, s->column + s->begin[s->n], (size_t)n * sizeof *s->column));
        TR_TRY(tr_broadcast(tr, TR_SET_ALL, root, s->value + s->begin[s->n], (size_t)n * sizeof *s->value));
    } else
        TR_TRY(tr_broadcast(tr, TR_SET_ALL, root, s->dense + s->n * m->columns,
                            (size_t)m->columns * sizeof *s->dense));
    s->n++;
    point(s, m->sparse);
    return TR_OK;
}

/* ---- rows drawn by several workers ---- */

struct drawn {
    uint64_t rank; /* random order, ascending */
    uint64_t hash; /* of the row's values; breaks ties */
    int32_t at;    /* rank that has the row */
    uint32_t row;
};

static int by_rank(const void *a, const void *b)
{
    const struct drawn *x = a, *y = b;
    if (x->rank != y->rank) return x->rank > y->rank ? 1 : -1;
    if (x->hash != y->hash) return x->hash > y->hash ? 1 : -1;
    return (x->at > y->at) - (x->at < y->at);
}

/* Concatenates the lists of all ranks, sorted and without duplicates. The caller frees *all. */
static int gather(tr_context *tr, const struct drawn *mine, size_t n, struct drawn **all, size_t *total)
{
    size_t *counts, bytes = n * sizeof *mine, sum = 0;
    TR_TRY(TR_NEW(&counts, (size_t)tr_size(tr)));
    TR_TRY(tr_all_gather(tr, TR_SET_ALL, &bytes, sizeof bytes, counts));
    for (int r = 0; r < tr_size(tr); r++) sum += counts[r];
    size_t many = sum / sizeof **all;
    TR_TRY(TR_NEW(all, many));
    TR_TRY(tr_all_gather_lists(tr, TR_SET_ALL, mine, counts, *all));
    qsort(*all, many, sizeof **all, by_rank);
    *total = 0;
    for (size_t i = 0; i < many; i++)
        if (*total == 0 || (*all)[i].hash != (*all)[*total - 1].hash) (*all)[(*total)++] = (*all)[i];
    free(counts);
    return TR_OK;
}

static int too_few(const struct tr_kmeans *m, size_t found)
{
    return tr_fail(TR_ERR_CONFIG, "%s: model.clusters is %zu, but the data has only %zu distinct rows",
                   tr_job_where(m->job, "model.clusters"), m->k, found);
}

/* ---- distances of a rank's rows during the selection ---- */

struct pool {
    struct tr_kmeans *m;
    const tr_batch *rows;
    const tr_key *keys;   /* keys of their columns; NULL: all columns */
    size_t here;          /* number of columns on this rank */
    const double *weight; /* weights of rows; NULL: 1 */
    uint64_t *hash;
    double *square;  /* |x|² */
    double *least;   /* squared distance to the nearest centre so far, INFINITY at first */
    uint32_t *which; /* index of that centre */
    float *spread;   /* sparse: a centre as a dense vector over the columns of this rank */
};

static void close_pool(struct pool *p)
{
    free(p->hash);
    free(p->square);
    free(p->least);
    free(p->which);
    free(p->spread);
}

static double square_of(const struct pool *p, size_t row)
{
    double sum = 0;
    const tr_batch *b = p->rows;
    if (b->dense) return 0; /* unused */
    for (uint64_t i = b->begin[row]; i < b->begin[row + 1]; i++)
        sum += b->value ? (double)b->value[i] * (double)b->value[i] : 1;
    return sum;
}

static int open_pool(struct tr_kmeans *m, const tr_batch *rows, const tr_key *keys, size_t here,
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
        p->square[i] = square_of(p, i);
        p->least[i] = INFINITY;
    }
    return TR_OK;
}

/* ---- distances to the nearest centre so far ---- */

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

static void lower_sparse(struct pool *p, const tr_batch *centres, size_t c)
{
    double norm = 0;
    for (uint64_t i = centres->begin[c]; i < centres->begin[c + 1]; i++)
        norm += (double)centres->value[i] * (double)centres->value[i];
    spread_centre(p, centres, c, false);
    for (size_t i = 0; i < p->rows->n; i++) {
        double d = p->square[i] + norm - 2 * tr_row_dot(p->rows, i, p->spread);
        if (d < 0x1p-40 * norm) d = 0; /* rounding error of 0 */
        if (!(d < p->least[i])) continue;
        p->least[i] = d;
        p->which[i] = (uint32_t)c;
    }
    spread_centre(p, centres, c, true);
}

/* Updates the distances with centre c. */
static void lower(struct pool *p, const tr_batch *centres, size_t c)
{
    if (p->m->sparse) lower_sparse(p, centres, c);
    else
        tr_lower(p->rows->dense, p->rows->n, p->here, centres->dense + c * p->here, (uint32_t)c, p->least,
                 p->which);
}

static void copy_centres(struct pool *p, const tr_batch *from, size_t first, struct tr_centres *to)
{
    for (size_t j = 0; j < to->k; j++) {
        size_t c = first + j;
        if (!to->sparse) {
            memcpy(to->value + j * to->columns, from->dense + c * to->columns,
                   to->columns * sizeof *to->value);
            continue;
        }
        for (uint64_t i = from->begin[c]; i < from->begin[c + 1]; i++)
            to->norm[j] += (double)from->value[i] * (double)from->value[i];
        spread_centre(p, from, c, false);
        for (size_t at = 0; at < p->here; at++) to->value[at * to->width + j] = p->spread[at];
        spread_centre(p, from, c, true);
    }
}

/* Updates the distances with the centres first .. last - 1. */
static int lower_by_many(struct pool *p, const tr_batch *from, size_t first, size_t last)
{
    struct tr_centres c;
    struct tr_assigned a = {0};
    int status = tr_centres_open(last - first, p->here, p->m->sparse, &c);
    if (status == TR_OK) status = tr_assigned_open(&c, p->rows, false, &a);
    if (status == TR_OK) {
        copy_centres(p, from, first, &c);
        status = tr_centres_ready(&c);
    }
    if (status == TR_OK && first < last) tr_assign(&c, p->rows, 0, p->rows->n, &a, NULL, NULL);
    for (size_t i = 0; i < p->rows->n && status == TR_OK && first < last; i++) {
        double d = tr_distance(&c, p->rows, i, a.label[i]);
        if (p->m->sparse && d < 0x1p-40 * p->square[i]) d = 0;
        if (!(d < p->least[i])) continue;
        p->least[i] = d;
        p->which[i] = (uint32_t)first + a.label[i];
    }
    tr_centres_close(&c);
    tr_assigned_close(&a);
    return status;
}

/* Draws a row with probability proportional to its squared distance (uniformly if there is no centre yet). Returns its
 * -log(u) / weight, which the ranks compare; INFINITY if all rows are centres. */
static double race(const struct pool *p, uint64_t draw, size_t *winner)
{
    double best = INFINITY;
    for (size_t i = 0; i < p->rows->n; i++) {
        double weight = (isinf(p->least[i]) ? 1 : p->least[i]) * (p->weight ? p->weight[i] : 1);
        double u = chance(p->hash[i], draw);
        if (!(weight > 0) || (1 - u) >= best * weight) continue; /* -log(u) is more than 1 - u */
        double at = -log(u) / weight;
        if (!(at < best)) continue;
        best = at;
        *winner = i;
    }
    return best;
}

static uint64_t draw_number(const struct tr_kmeans *m, uint64_t which)
{
    return tr_mix(m->seed + tr_mix(which));
}

/* kmeans++ over the rows of all workers: appends to s until it has n rows. */
static int draw_apart(struct pool *p, struct tr_start *s, size_t n)
{
    tr_context *tr = p->m->tr;
    for (size_t c = s->n; c < n; c++) {
        size_t row = 0;
        TR_TRY(tr_turn_begin(tr, "start"));
        if (c > 0) lower(p, &s->rows, c - 1);
        double mine = race(p, draw_number(p->m, c), &row), best = mine;
        TR_TRY(tr_turn_end(tr, TR_OK));
        TR_TRY(tr_all_reduce(tr, TR_SET_ALL, TR_MIN, TR_F64, &best, 1));
        if (isinf(best)) return too_few(p->m, c);
        int32_t winner = mine == best ? tr_rank(tr) : INT32_MAX;
        TR_TRY(tr_all_reduce(tr, TR_SET_ALL, TR_MIN, TR_I32, &winner, 1));
        TR_TRY(share_row(p->m, s, winner, row));
    }
    return TR_OK;
}

/* ---- solve.start ---- */

static int start_apart(struct tr_kmeans *m)
{
    struct pool p;
    int status = open_pool(m, &m->train.rows, m->train.keys, m->train.n_keys, NULL, &p);
    status = tr_agree(m->tr, status);
    if (status == TR_OK) status = draw_apart(&p, &m->start, m->k);
    close_pool(&p);
    return status;
}

/* Takes the k rows with the smallest random numbers. */
static int start_random(struct tr_kmeans *m)
{
    size_t n = m->train.rows.n, total = 0;
    struct drawn *mine, *all = NULL;
    TR_TRY(TR_NEW(&mine, n));
    TR_TRY(tr_turn_begin(m->tr, "start"));
    for (size_t i = 0; i < n; i++) {
        uint64_t hash = tr_kmeans_hash(&m->train, m->columns, i);
        mine[i] = (struct drawn){tr_mix(hash ^ draw_number(m, 0)), hash, tr_rank(m->tr), (uint32_t)i};
    }
    qsort(mine, n, sizeof *mine, by_rank);
    size_t distinct = 0;
    for (size_t i = 0; i < n && distinct < m->k; i++)
        if (distinct == 0 || mine[i].hash != mine[distinct - 1].hash) mine[distinct++] = mine[i];
    int status = tr_turn_end(m->tr, TR_OK);
    if (status == TR_OK) status = gather(m->tr, mine, distinct, &all, &total);
    if (status == TR_OK && total < m->k) status = too_few(m, total);
    for (size_t j = 0; j < m->k && status == TR_OK; j++)
        status = share_row(m, &m->start, all[j].at, all[j].row);
    free(mine);
    free(all);
    return status;
}

/* Draws each row with a probability proportional to its squared distance, k rows on average. */
static int draw_round(struct pool *p, struct tr_start *s, uint64_t round)
{
    struct tr_kmeans *m = p->m;
    tr_context *tr = m->tr;
    double cost = 0;
    for (size_t i = 0; i < p->rows->n; i++) cost += p->least[i];
    TR_TRY(tr_all_reduce(tr, TR_SET_ALL, TR_SUM, TR_F64, &cost, 1));
    if (m->replicated) cost /= m->group_size;
    struct drawn *mine = NULL, *all = NULL;
    size_t n = 0, room = 0, total = 0;
    for (size_t i = 0; i < p->rows->n; i++) {
        if (!(chance(p->hash[i], draw_number(m, round)) * cost < (double)m->k * p->least[i])) continue;
        TR_TRY(TR_GROW(&mine, &room, n + 1));
        mine[n++] = (struct drawn){p->hash[i], p->hash[i], tr_rank(tr), (uint32_t)i};
    }
    int status = gather(tr, mine, n, &all, &total);
    for (size_t i = 0; i < total && status == TR_OK; i++) status = share_row(m, s, all[i].at, all[i].row);
    free(mine);
    free(all);
    return status;
}

/* kmeans++ over weighted candidates. All ranks have the candidates and make the same selection. */
static int choose_among(struct tr_kmeans *m, const struct tr_start *candidates, const double *weight)
{
    struct pool p;
    int status = open_pool(m, &candidates->rows, NULL, (size_t)m->columns, weight, &p);
    for (size_t c = 0; c < m->k && status == TR_OK; c++) {
        size_t row = 0;
        if (c > 0) lower(&p, &m->start.rows, c - 1);
        if (isinf(race(&p, draw_number(m, c), &row))) break;
        status = append(&m->start, &candidates->rows, NULL, m->columns, row);
    }
    close_pool(&p);
    return status;
}

static int weigh(const struct pool *p, size_t n, double **weight)
{
    tr_context *tr = p->m->tr;
    TR_TRY(TR_NEW(weight, n));
    for (size_t i = 0; i < p->rows->n; i++) (*weight)[p->which[i]] += 1;
    return tr_all_reduce(tr, TR_SET_ALL, TR_SUM, TR_F64, *weight, n);
}

/* If there are fewer than k candidates, kmeans++ over all rows replaces the selection. */
static int start_parallel(struct tr_kmeans *m)
{
    struct pool p;
    struct tr_start candidates = {0};
    double *weight = NULL;
    int status = open_pool(m, &m->train.rows, m->train.keys, m->train.n_keys, NULL, &p);
    status = tr_agree(m->tr, status);
    if (status == TR_OK) status = draw_apart(&p, &candidates, 1);
    for (size_t round = 0, done = 0; round <= ROUNDS && status == TR_OK; round++) {
        TR_TRY(tr_turn_begin(m->tr, "start"));
        status = tr_turn_end(m->tr, lower_by_many(&p, &candidates.rows, done, candidates.n));
        status = tr_agree(m->tr, status);
        if (status != TR_OK) break;
        done = candidates.n;
        if (round < ROUNDS) status = draw_round(&p, &candidates, m->k + round);
    }
    if (status == TR_OK) status = weigh(&p, candidates.n, &weight);
    close_pool(&p);
    if (status == TR_OK) status = choose_among(m, &candidates, weight);
    free(weight);
    tr_start_free(&candidates);
    if (status != TR_OK || m->start.n == m->k) return status;
    tr_start_free(&m->start);
    return start_apart(m);
}

/* Appends a row of the files; converts sparse rows if training uses dense ones. */
static int append_first(struct tr_kmeans *m, const tr_batch *rows, size_t row)
{
    if (m->sparse || rows->dense) return append(&m->start, rows, NULL, m->columns, row);
    float *dense;
    TR_TRY(TR_NEW(&dense, (size_t)m->columns));
    for (uint64_t i = rows->begin[row]; i < rows->begin[row + 1]; i++)
        dense[rows->column[i]] = rows->value ? rows->value[i] : 1;
    tr_batch one = {.n = 1, .dense = dense};
    int status = append(&m->start, &one, NULL, m->columns, 0);
    free(dense);
    return status;
}

static int start_first(struct tr_kmeans *m)
{
    tr_batch *rows = NULL;
    TR_TRY(tr_data_first_rows(m->train.data, m->k, true, &rows));
    int status = rows->n < m->k ? too_few(m, rows->n) : TR_OK;
    for (size_t j = 0; j < m->k && status == TR_OK; j++) status = append_first(m, rows, j);
    tr_batch_free(&rows);
    return status;
}

/* ---- centres of another model ---- */

static int check_centres(const struct tr_kmeans *m, const tr_saved_centres *c)
{
    if (c->n == m->k) return TR_OK;
    return tr_fail(TR_ERR_DATA, "%s: model.init %s has %llu centres: expected model.clusters, %zu",
                   tr_job_where(m->job, "model.init"), m->o->init, (unsigned long long)c->n, m->k);
}

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

/* column: scratch memory for the indices of all columns. */
static int append_centre(struct tr_kmeans *m, float *row, uint32_t *column)
{
    tr_batch one = {.n = 1, .dense = row};
    uint64_t begin[2] = {0, 0};
    if (!m->sparse) return append(&m->start, &one, NULL, m->columns, 0);
    for (uint32_t j = 0; j < m->columns; j++) {
        if (row[j] == 0) continue;
        row[begin[1]] = row[j];
        column[begin[1]++] = j;
    }
    one = (tr_batch){.n = 1, .begin = begin, .column = column, .value = row};
    return append(&m->start, &one, NULL, m->columns, 0);
}

/* Rank 0 reads the model and broadcasts its centres one after the other. */
static int start_given(struct tr_kmeans *m)
{
    tr_saved_centres c = {0};
    float *row = NULL;
    uint32_t *column = NULL;
    bool reads = tr_rank(m->tr) == 0;
    int status = reads ? tr_model_load_centres(m->tr, m->o->init, &c) : TR_OK;
    if (status == TR_OK && reads) status = check_centres(m, &c);
    if (status == TR_OK) status = TR_NEW(&row, (size_t)m->columns);
    if (status == TR_OK) status = TR_NEW(&column, (size_t)m->columns);
    for (size_t i = 0;; i++) {
        if (status == TR_OK && reads && i < m->k) status = place_centre(m, &c, i, row);
        status = tr_agree(m->tr, status);
        if (status != TR_OK || i == m->k) break;
        status = tr_broadcast(m->tr, TR_SET_ALL, 0, row, (size_t)m->columns * sizeof *row);
        if (status == TR_OK) status = append_centre(m, row, column);
    }
    if (status == TR_OK) tr_say(m->tr, "begins with:   the centres of %s", m->o->init);
    free(c.value);
    free(row);
    free(column);
    return status;
}

int tr_kmeans_choose(struct tr_kmeans *m)
{
    int status;
    if (*m->o->init) return start_given(m);
    switch (m->o->start) {
    case TR_START_FIRST: status = start_first(m); break;
    case TR_START_RANDOM: status = start_random(m); break;
    case TR_START_PARALLEL: status = start_parallel(m); break;
    default: status = start_apart(m); break;
    }
    return tr_agree(m->tr, status);
}
