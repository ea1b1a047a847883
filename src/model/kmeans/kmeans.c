/* K-means: sums of rows by centre, settings, data, training, the model file, predict, evaluate, inspect. See kmeans.h for words. */
#include "kmeans.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../labels.h"

/* Indices into tr_report.sum. */
enum { INERTIA, MOVED, TEST_INERTIA };

/* Maximum number of empty centres that receive a row in one clock. */
enum { SEEDS = 64 };

/* ================ sums ================ */

/* Maximum number of centres per key: a server stores the values of a key contiguously up to this width. */
enum { WIDEST = 2048 };

/* Rounds x to a multiple of the step that belongs to the rounding constant `by` (see kmeans_rounder()). */
static inline double sums_round(double x, double by)
{
    return (x + by) - by;
}

static size_t divide_up(size_t a, size_t b)
{
    return (a + b - 1) / b;
}

/* ---- norms, computed by the servers ---- */

/* A query to the servers for |c|² of the centres in parts first_part .. first_part + parts - 1, followed by the count of each
 * centre. The answer has two exact sums per centre: of the rounded squares, and of the remainders that rounding cut off. */
struct question {
    uint64_t all_parts, first_part, parts, width, columns;
    double round, round_rest;
};

/* Computes the answer of a server from the columns in its share. */
static int get_norms(const tr_share *share, const void *question, size_t question_bytes, void *result,
                     size_t *bytes)
{
    struct question q;
    memcpy(&q, question, sizeof q);
    size_t span = (size_t)(q.parts * q.width);
    if (question_bytes != sizeof q + span * sizeof(double) || *bytes < 2 * span * sizeof(double))
        return tr_fail(TR_ERR_INTERNAL, "answer norms: a question of %zu bytes", question_bytes);
    TR_FREED double *count = NULL;
    TR_FREED double *sum = NULL;
    TR_TRY(TR_NEW(&count, span));
    TR_TRY(TR_NEW(&sum, 2 * span));
    memcpy(count, (const char *)question + sizeof q, span * sizeof *count);
    for (size_t unit = 0; unit < share->units; unit++) {
        tr_key key = tr_share_key(share, unit);
        uint64_t part = key % q.all_parts - q.first_part;
        if (key / q.all_parts >= q.columns || part >= q.parts) continue;
        const double *value = (const double *)share->value + unit * share->width;
        for (size_t i = 0; i < q.width; i++) {
            size_t j = (size_t)part * q.width + i;
            if (value[i] == 0 || !(count[j] > 0)) continue;
            double c = (double)(float)(value[i] / count[j]), square = c * c;
            double much = sums_round(square, q.round);
            sum[2 * j] += much;
            sum[2 * j + 1] += sums_round(square - much, q.round_rest);
        }
    }
    *bytes = 2 * span * sizeof *sum;
    memcpy(result, sum, *bytes);
    return TR_OK;
}

static const tr_answer norms = {"kmeans-norms", true, get_norms, tr_answer_add_doubles};

/* ---- rounding ---- */

/* Returns the rounding constant for sums of `numbers` values up to `largest`: 1.5 × 2^52 steps. The step is such that sums stay
 * below 2^52 steps and are exact. Adding the constant to a value and subtracting it again rounds the value to whole steps. */
static double kmeans_rounder(double largest, double numbers)
{
    int bits, more;
    frexp(largest, &bits);
    frexp(numbers, &more);
    return largest > 0 ? ldexp(1.5, bits + more) : 1;
}

/* Sets the rounding constants; for dense rows also m->shift and m->spread. All ranks. */
static int sums_make_steps(struct tr_kmeans *m)
{
    size_t n = m->sparse ? 1 : (size_t)m->columns;
    double numbers = (double)m->train.data->total_rows;
    if (m->batches) numbers *= m->epochs + 1;
    TR_TRY(TR_NEW(&m->round, n));
    const tr_batch *rows = &m->train.rows;
    if (!m->sparse) {
        for (size_t i = 0; i < rows->n; i++)
            for (size_t p = 0; p < m->columns; p++) {
                double v = fabs((double)rows->dense[i * m->columns + p]);
                if (v > m->round[p]) m->round[p] = v;
            }
    } else if (rows->n > 0) {
        for (uint64_t i = 0; i < rows->begin[rows->n]; i++)
            m->round[0] = fmax(m->round[0], fabs((double)tr_value_at(rows, i)));
    }
    TR_TRY(tr_all_reduce(m->tr, TR_SET_ALL, TR_MAX, TR_F64, m->round, n));
    double most = m->sparse ? m->round[0] : 0;
    for (size_t p = 0; p < n; p++) m->round[p] = kmeans_rounder(m->round[p], numbers);
    if (!m->sparse) {
        size_t columns = (size_t)m->columns;
        TR_TRY(TR_NEW(&m->shift, columns + 1));
        for (size_t i = 0; i < rows->n; i++)
            for (size_t p = 0; p < columns; p++)
                m->shift[p] += sums_round((double)rows->dense[i * columns + p], m->round[p]);
        m->shift[columns] = (double)rows->n;
        TR_TRY(tr_all_reduce(m->tr, TR_SET_ALL, TR_SUM, TR_F64, m->shift, columns + 1));
        for (size_t p = 0; p < columns; p++) m->shift[p] /= m->shift[columns];
        for (size_t i = 0; i < rows->n; i++) {
            double sum = 0;
            for (size_t p = 0; p < columns; p++) {
                double d = (double)rows->dense[i * columns + p] - m->shift[p];
                sum += d * d;
            }
            m->spread += sum;
        }
        return TR_OK;
    }
    m->norm_round = kmeans_rounder(most * most, (double)m->columns);
    m->norm_round_rest = kmeans_rounder(m->norm_round * 0x1p-53, (double)m->columns);
    return TR_OK;
}

/* Pulls the centres and prepares them for tr_assign(). */
static int sums_pull(struct tr_kmeans *m, struct tr_kmeans_side *side)
{
    TR_TRY(tr_view_pull(side->view));
    /* An empty centre keeps its position: its values do not change. */
    const double *sum = side->view->value, *count = sum + side->n_keys * m->span;
    struct tr_centres *c = &side->centres;
    size_t across = m->sparse ? 1 : c->columns, down = m->sparse ? c->width : 1;
    for (size_t p = 0; p < side->n_keys; p++)
        for (size_t j = 0; j < m->mine; j++)
            if (count[j] > 0) c->value[p * down + j * across] = (float)(sum[p * m->span + j] / count[j]);
    if (m->sparse) {
        struct question q = {m->parts,   m->first_part, m->my_parts,       m->width,
                             m->columns, m->norm_round, m->norm_round_rest};
        size_t bytes = sizeof q + m->span * sizeof *count, room = 2 * m->span * sizeof(double);
        TR_FREED char *question = NULL;
        TR_FREED double *norm = NULL;
        TR_TRY(TR_NEW(&question, bytes));
        TR_TRY(TR_NEW(&norm, 2 * m->span));
        memcpy(question, &q, sizeof q);
        memcpy(question + sizeof q, count, m->span * sizeof *count);
        TR_TRY(tr_table_ask(m->sums, norms.name, question, bytes, norm, &room));
        for (size_t j = 0; j < m->mine; j++)
            if (count[j] > 0) side->centres.norm[j] = norm[2 * j] + norm[2 * j + 1];
    }
    return tr_centres_ready(&side->centres);
}

/* ---- sums from labels ---- */

/* Adds a dense row to the sums of a centre, or subtracts it (sign -1). */
static void add_dense(struct tr_kmeans *m, size_t row, uint32_t centre, double sign)
{
    size_t columns = (size_t)m->columns, j = centre - m->first;
    if (j >= m->mine) return; /* another member is responsible for the centre */
    const float *x = m->train.rows.dense + row * columns;
    double *total = m->total + j * columns;
    const double *by = m->round;
    for (size_t p = 0; p < columns; p++) total[p] += sign * sums_round((double)x[p], by[p]);
    m->total_count[j] += sign;
}

/* Adds a sparse row to the update of a centre's sums, or subtracts it (sign -1). */
static void add_sparse(struct tr_kmeans *m, size_t row, uint32_t centre, double sign)
{
    const tr_batch *rows = &m->train.rows;
    double *delta = m->train.view->delta, by = m->round[0];
    size_t j = centre - m->first;
    if (j >= m->mine) return;
    for (uint64_t i = rows->begin[row]; i < rows->begin[row + 1]; i++)
        delta[rows->column[i] * m->span + j] += sign * sums_round((double)tr_value_at(rows, i), by);
    delta[m->train.n_keys * m->span + j] += sign;
}

/* Moves a row whose label changed between the sums of two centres. For sparse rows sums_push() does this later. */
static void sums_move_row(struct tr_kmeans *m, size_t row, uint32_t from, uint32_t to)
{
    if (m->sparse) return;
    if (from != TR_NO_CENTRE) add_dense(m, row, from, -1);
    add_dense(m, row, to, 1);
}

/* Pushes the changes of the sums since the last push. */
static int sums_push(struct tr_kmeans *m)
{
    TR_TRY(tr_turn_begin(m->tr, "update"));
    if (m->sparse) {
        const uint32_t *label = m->train.label;
        for (size_t i = 0, there = 0, end = m->train.rows.n; i < end; i++) {
            if (label[i] == m->pushed[i]) continue;
            if (i >= there) there = i + tr_data_ready(m->train.data, i, end - i);
            if (m->pushed[i] != TR_NO_CENTRE) add_sparse(m, i, m->pushed[i], -1);
            add_sparse(m, i, label[i], 1);
            m->pushed[i] = label[i];
        }
    } else {
        double *delta = m->train.view->delta;
        size_t columns = (size_t)m->columns;
        for (size_t j = 0; j < m->mine; j++) {
            for (size_t p = 0; p < columns; p++)
                delta[p * m->span + j] = m->total[j * columns + p] - m->sent[j * columns + p];
            delta[columns * m->span + j] = m->total_count[j] - m->sent_count[j];
        }
        memcpy(m->sent, m->total, m->mine * columns * sizeof *m->sent);
        memcpy(m->sent_count, m->total_count, m->mine * sizeof *m->sent_count);
    }
    return tr_turn_end(m->tr, tr_view_push(m->train.view));
}

/* Returns this worker's part of the inertia without a pass over its rows. The sum of |x - c|² over the n rows of a centre is
 * Σ |x|² - 2 c·s + n |c|², where s is the sum of the rows. The mean of all rows is subtracted before: this reduces cancellation. */
static double sums_inertia(const struct tr_kmeans *m)
{
    size_t columns = (size_t)m->columns;
    double sum = m->spread;
    for (size_t j = 0; j < m->mine; j++) {
        double n = m->total_count[j], dot = 0, square = 0;
        for (size_t p = 0; p < columns; p++) {
            double c = (double)m->train.centres.value[j * columns + p] - m->shift[p];
            dot += c * (m->total[j * columns + p] - n * m->shift[p]);
            square += c * c;
        }
        sum += n * square - 2 * dot;
    }
    return fmax(0, sum);
}

/* ================ training ================ */

/* ---- settings ---- */

static int kmeans_check(const tr_job *job, const void *options)
{
    const struct tr_kmeans_options *o = options;
    if (*o->init) TR_TRY(tr_check_initial(job, o->init));
    if (*o->init && tr_job_given(job, "solve.start"))
        return tr_fail(TR_ERR_CONFIG,
                       "%s: solve.start has no effect, because model.init has the initial centres",
                       tr_job_where(job, "solve.start"));
    if (tr_job_is(job, "data.partition", "vertical"))
        return tr_fail(TR_ERR_CONFIG,
                       "%s: data.partition vertical is not for kmeans: expected horizontal or replicated",
                       tr_job_where(job, "data.partition"));
    if (!tr_job_is(job, "table.filter", "none"))
        return tr_fail(TR_ERR_CONFIG, "%s: kmeans needs whole updates: expected table.filter none",
                       tr_job_where(job, "table.filter"));
    return TR_OK;
}

/* ---- opening ---- */

static void set_rows(const struct tr_kmeans *m, struct tr_kmeans_side *side)
{
    side->rows = side->data->rows;
    side->keys = m->sparse ? side->data->keys : NULL;
    side->n_keys = m->sparse ? side->data->n_keys : (size_t)m->columns;
}

static int kmeans_open(tr_context *tr, const void *options, void *model)
{
    struct tr_kmeans *m = model;
    m->tr = tr;
    m->job = tr_context_job(tr);
    m->o = options;
    m->clusters = m->k = (size_t)m->o->clusters;
    m->before = NAN;
    m->batches = tr_job_method(m->job) == TR_MINIBATCH;
    m->group_size = tr_group_size(tr);
    m->member = tr_roles(tr) & TR_SLAVE ? tr_set_rank(tr, TR_SET_GROUP) : -1;
    m->replicated = tr_job_is(m->job, "data.partition", "replicated") && m->group_size > 1;
    TR_TRY(tr_job_integer(m->job, "seed", &m->seed));
    m->epochs = tr_job_number(m->job, "solve.epochs");
    const char *const *tests;
    const enum tr_data_part form = TR_DATA_DENSE | TR_DATA_PASSES;
    TR_TRY(tr_data_open(m->tr, TR_DATA_TRAIN | form, NULL, &m->train.data));
    if (tr_job_files(m->job, "data.test", &tests) > 0)
        TR_TRY(tr_data_open(m->tr, TR_DATA_TEST | form, m->train.data, &m->test.data));
    m->columns = m->train.data->columns;
    m->total_rows = m->train.data->total_rows;
    bool enough = m->k <= m->total_rows;
    TR_TRY(tr_agree(tr, enough ? TR_OK
                               : tr_fail(TR_ERR_CONFIG, "%s: model.clusters is %zu, but there are %llu rows",
                                         tr_job_where(m->job, "model.clusters"), m->k,
                                         (unsigned long long)m->total_rows)));
    m->sparse = !m->train.data->dense;
    bool table =
        m->train.data->format == TR_FORMAT_CSV || (m->train.data->format == TR_FORMAT_HDF5 && !m->sparse);
    m->first_index = table ? 1 : m->train.data->first_index;
    set_rows(m, &m->train);
    if (m->test.data) set_rows(m, &m->test);
    /* The default of solve.batch: at least ten rows per centre, and so large that computation takes longer than the pull. */
    double rows = (double)m->total_rows, numbers = (double)m->train.data->total_nonzeros / rows,
           worth = 4 * (double)m->columns / fmax(1, numbers) * tr_workers(tr), batch = (double)m->o->batch;
    if (batch == 0) batch = fmax(fmax(1024, rows / 100), fmax(10 * (double)m->k, m->sparse ? worth : 0));
    m->clocks_per_epoch = m->batches ? (int64_t)fmax(1, round(rows / batch)) : 1;
    TR_TRY(tr_data_describe(m->train.data, "training data"));
    if (m->test.data) TR_TRY(tr_data_describe(m->test.data, "test data"));
    TR_TRY(sums_make_steps(m));
    size_t shares = m->replicated ? (size_t)m->group_size : 1;
    m->parts = shares * divide_up(divide_up(m->k, shares), WIDEST);
    m->width = divide_up(m->k, m->parts);
    m->my_parts = m->parts / shares;
    m->first_part = m->replicated && m->member >= 0 ? (size_t)m->member * m->my_parts : 0;
    m->span = m->my_parts * m->width;
    m->first = tr_min_size(m->first_part * m->width, m->k);
    m->mine = tr_min_size(m->span, m->k - m->first);
    if (m->sparse) TR_TRY(tr_answer_register(tr, &norms));
    return tr_table_create(tr, "sums", TR_F64, (m->columns + 1) * m->parts, m->width, &m->sums);
}

static void close_side(struct tr_kmeans_side *side)
{
    tr_view_close(&side->view);
    if (side->label != side->assigned.label) free(side->label);
    tr_centres_close(&side->centres);
    tr_assigned_close(&side->assigned);
    free(side->least);
}

/* ---- before the first clock ---- */

/* Copies the initial centres that this worker is responsible for to side->centres. */
static void kmeans_start_at(struct tr_kmeans *m, struct tr_kmeans_side *side)
{
    struct tr_centres *c = &side->centres;
    const tr_batch *start = &m->start.rows;
    for (size_t j = 0; j < m->mine && start->n > 0; j++) {
        size_t row = m->first + j;
        if (!m->sparse) {
            memcpy(c->value + j * c->columns, start->dense + row * c->columns, c->columns * sizeof *c->value);
            continue;
        }
        for (uint64_t i = start->begin[row]; i < start->begin[row + 1]; i++) {
            size_t column = start->column[i],
                   place = side->keys ? tr_place_u64(side->keys, side->n_keys, column) : column;
            c->norm[j] += (double)start->value[i] * (double)start->value[i];
            bool here = place < side->n_keys && (!side->keys || side->keys[place] == column);
            if (here) c->value[place * c->width + j] = start->value[i];
        }
    }
}

static int prepare_side(struct tr_kmeans *m, struct tr_kmeans_side *side, bool training)
{
    bool bounds = training && !m->batches && !m->replicated && m->o->bounds != TR_BOUNDS_NO;
    TR_FREED tr_key *keys = NULL;
    size_t n = 0;
    TR_TRY(TR_NEW(&keys, (side->n_keys + 1) * m->my_parts));
    for (size_t i = 0; i <= side->n_keys; i++) {
        tr_key column = i == side->n_keys ? m->columns : side->keys ? side->keys[i] : i;
        for (size_t p = 0; p < m->my_parts; p++) keys[n++] = column * m->parts + m->first_part + p;
    }
    enum tr_view_use use = !training ? TR_VIEW_READ : m->replicated ? TR_VIEW_UPDATE : TR_VIEW_GROUP;
    TR_TRY(tr_view_open(m->sums, keys, n, use, &side->view));
    TR_TRY(tr_centres_open(m->mine, side->n_keys, m->sparse, &side->centres));
    TR_TRY(tr_assigned_open(&side->centres, &side->rows, bounds, &side->assigned));
    kmeans_start_at(m, side);
    side->label = side->assigned.label;
    if (!m->replicated) return TR_OK;
    TR_TRY(TR_NEW(&side->label, side->rows.n));
    memset(side->label, 0xff, side->rows.n * sizeof *side->label);
    return TR_NEW(&side->least, side->rows.n);
}

static int kmeans_prepare(tr_worker *me, void *state)
{
    (void)me;
    struct tr_kmeans *m = state;
    TR_TRY(prepare_side(m, &m->train, true));
    if (m->test.data) TR_TRY(prepare_side(m, &m->test, false));
    TR_TRY(TR_NEW(&m->order, (size_t)m->clocks_per_epoch));
    TR_TRY(TR_NEW(&m->pushed, m->train.rows.n));
    memset(m->pushed, 0xff, m->train.rows.n * sizeof *m->pushed);
    if (m->sparse) return TR_OK;
    size_t n = m->mine * (size_t)m->columns;
    TR_TRY(TR_NEW(&m->total, n));
    TR_TRY(TR_NEW(&m->sent, n));
    TR_TRY(TR_NEW(&m->total_count, m->mine));
    return TR_NEW(&m->sent_count, m->mine);
}

/* ---- labels ---- */

static void count_change(void *state, size_t row, uint32_t from, uint32_t to)
{
    struct tr_kmeans *m = state;
    m->moved++;
    sums_move_row(m, row, from, to);
}

static int kmeans_assign(struct tr_kmeans *m, tr_worker *me, struct tr_kmeans_side *side, size_t first,
                         size_t last, tr_changed_fn *changed)
{
    if (m->replicated) {
        /* Each member finds the nearest of its own centres for every row; then the group compares the results of its members. */
        TR_TRY(tr_turn_begin(m->tr, side == &m->train ? "assign" : "evaluate"));
        if (m->mine > 0) tr_assign(&side->centres, &side->rows, first, last, &side->assigned, NULL, NULL);
        for (size_t i = first; i < last; i++) {
            uint32_t label = side->assigned.label[i];
            side->least[i] = (tr_least){INFINITY, (int)m->k};
            if (m->mine > 0)
                side->least[i] =
                    (tr_least){tr_distance(&side->centres, &side->rows, i, label), (int)(m->first + label)};
        }
        TR_TRY(tr_turn_end(m->tr, TR_OK));
        TR_TRY(tr_group_least(me, side->least + first, last - first));
        for (size_t i = first; i < last; i++) {
            uint32_t from = side->label[i], to = (uint32_t)side->least[i].place;
            side->label[i] = to;
            if (from != to && changed) changed(m, i, from, to);
        }
        return TR_OK;
    }
    TR_TRY(tr_turn_begin(m->tr, side == &m->train ? "assign" : "evaluate"));
    for (size_t n; first < last && (n = tr_data_ready(side->data, first, last - first)) > 0; first += n)
        tr_assign(&side->centres, &side->rows, first, first + n, &side->assigned, changed, m);
    return tr_turn_end(m->tr, TR_OK);
}

/* Returns this worker's part of the inertia. With replicated rows, member 0 returns the inertia of the group, other members 0. */
static double inertia_of(const struct tr_kmeans *m, const tr_worker *me, const struct tr_kmeans_side *side)
{
    double sum = 0;
    size_t end = side->rows.n;
    if (m->replicated) {
        for (size_t i = 0; i < end && me->member == 0; i++) sum += side->least[i].value;
        return sum;
    }
    for (size_t i = 0, n; i < end && (n = tr_data_ready(side->data, i, end - i)) > 0; i += n)
        sum += tr_inertia(&side->centres, &side->rows, i, i + n, &side->assigned);
    return sum;
}

/* Without BSP, starts to pull the centres of the next clock during the assignment. Sparse rows do not allow this, because the norms
 * of a later query would not belong to the pulled centres. */
static int read_ahead(struct tr_kmeans *m)
{
    return m->sparse || tr_in_lockstep(m->tr) ? TR_OK : tr_view_prefetch(m->train.view);
}

/* Pulls the centres, assigns all rows, and computes m->inertia, unless this has already happened in this clock. */
static int kmeans_refresh(struct tr_kmeans *m, tr_worker *me)
{
    if (m->fresh) return TR_OK;
    m->moved = 0;
    if (!m->sparse && !m->batches) memcpy(m->pushed, m->train.label, m->train.rows.n * sizeof *m->pushed);
    TR_TRY(sums_pull(m, &m->train));
    TR_TRY(read_ahead(m));
    TR_TRY(kmeans_assign(m, me, &m->train, 0, m->train.rows.n, m->batches ? NULL : count_change));
    bool from_sums = !m->sparse && !m->batches && !m->replicated;
    m->inertia = from_sums ? sums_inertia(m) : inertia_of(m, me, &m->train);
    if (m->batches && m->sparse) memcpy(m->pushed, m->train.label, m->train.rows.n * sizeof *m->pushed);
    m->fresh = !m->batches;
    return TR_OK;
}

/* ---- empty centres ---- */

/* A row that may be assigned to an empty centre. */
struct seed {
    double distance; /* squared distance to the row's centre; -1: unused entry */
    uint64_t hash;
    int32_t group, worker; /* group and worker that have the row */
    uint32_t row;
};

/* Orders seeds descending by distance, then by the hash of the row's values. */
static int kmeans_by_distance(const void *a, const void *b)
{
    const struct seed *x = a, *y = b;
    if (x->distance != y->distance) return x->distance > y->distance ? -1 : 1;
    if (x->hash != y->hash) return x->hash > y->hash ? 1 : -1;
    return (x->worker > y->worker) - (x->worker < y->worker);
}

/* Assigns the rows that are farthest from their centres to empty centres, at most SEEDS rows. All workers have pulled the same
 * counts and therefore find the same empty centres. */
static int fill_empty(struct tr_kmeans *m, tr_worker *me)
{
    struct tr_kmeans_side *side = &m->train;
    uint32_t empty[SEEDS];
    size_t n = 0, found = 0;
    TR_FREED double *count = NULL;
    const double *pulled = (const double *)side->view->value + side->n_keys * m->span;
    TR_TRY(TR_NEW(&count, m->k));
    memcpy(count + m->first, pulled, m->mine * sizeof *count);
    if (m->replicated) TR_TRY(tr_group_sum(me, count, m->k));
    for (size_t j = 0; j < m->k && n < SEEDS; j++)
        if (!(count[j] > 0)) empty[n++] = (uint32_t)j;
    if (n == 0) return TR_OK;

    /* Find the n rows of this worker with the largest distances, then gather those of all workers. */
    size_t total = n * (size_t)me->workers;
    TR_FREED struct seed *mine = NULL;
    TR_FREED struct seed *all = NULL;
    TR_TRY(TR_NEW(&mine, 2 * n));
    TR_TRY(TR_NEW(&all, total));
    for (size_t i = 0; i < side->rows.n; i++) {
        double distance = m->replicated ? side->least[i].value
                                        : tr_distance(&side->centres, &side->rows, i, side->label[i]);
        if (found >= n && distance < mine[n - 1].distance) continue;
        mine[found++] =
            (struct seed){distance, tr_kmeans_hash(side, m->columns, i), me->group, me->worker, (uint32_t)i};
        if (found < 2 * n) continue;
        qsort(mine, found, sizeof *mine, kmeans_by_distance);
        found = n;
    }
    qsort(mine, found, sizeof *mine, kmeans_by_distance);
    for (size_t i = found; i < n; i++) mine[i] = (struct seed){.distance = -1};
    TR_TRY(tr_all_gather(m->tr, TR_SET_WORKERS, mine, n * sizeof *mine, all));
    qsort(all, total, sizeof *all, kmeans_by_distance);
    for (size_t i = 0, used = 0; i < total && used < n && all[i].distance > 0; i++) {
        if (i > 0 && all[i].hash == all[i - 1].hash) continue;
        uint32_t centre = empty[used++], row = all[i].row;
        /* With replicated rows, all members of the group that has the row change its label; otherwise only one worker has it. */
        if (m->replicated ? all[i].group != me->group : all[i].worker != me->worker) continue;
        sums_move_row(m, row, side->label[row], centre);
        side->label[row] = centre;
        if (!m->replicated) tr_assigned_set(&side->assigned, row, centre);
    }
    return TR_OK;
}

/* ---- a clock ---- */

static int kmeans_lloyd(tr_worker *me, void *state)
{
    struct tr_kmeans *m = state;
    TR_TRY(kmeans_refresh(m, me));
    /* Without BSP, workers may pull different counts and would find different empty centres: these keep their positions. */
    if (me->clock > 0 && tr_in_lockstep(m->tr)) TR_TRY(fill_empty(m, me));
    m->fresh = false;
    return sums_push(m);
}

static int kmeans_minibatch(tr_worker *me, void *state)
{
    struct tr_kmeans *m = state;
    struct tr_kmeans_side *side = &m->train;
    int64_t turn = me->clock % m->clocks_per_epoch;
    /* Shuffle the mini-batches at the start of an epoch, in the same order on all members of a group. */
    int64_t epoch = me->clock / m->clocks_per_epoch;
    struct tr_rng rng;
    if (m->ordered != epoch + 1) {
        m->ordered = epoch + 1;
        tr_rng_seed(&rng, m->seed, (uint64_t)me->group, (uint64_t)epoch);
        for (int64_t i = 0; i < m->clocks_per_epoch; i++) {
            int64_t j = (int64_t)tr_rng_below(&rng, (uint64_t)i + 1);
            m->order[i] = m->order[j];
            m->order[j] = i;
        }
    }
    double rows = (double)side->rows.n, parts = (double)m->clocks_per_epoch, part = (double)m->order[turn];
    size_t first = (size_t)(rows * part / parts), last = (size_t)(rows * (part + 1) / parts);
    TR_TRY(sums_pull(m, side));
    TR_TRY(read_ahead(m));
    for (size_t i = first; i < last; i++) {
        side->label[i] = TR_NO_CENTRE;
        side->assigned.label[i] = TR_NO_CENTRE;
        if (m->sparse) m->pushed[i] = TR_NO_CENTRE;
    }
    TR_TRY(kmeans_assign(m, me, side, first, last, count_change));
    return sums_push(m);
}

/* ---- evaluation ---- */

static int kmeans_evaluate(tr_worker *me, void *state, tr_report *report)
{
    struct tr_kmeans *m = state;
    TR_TRY(kmeans_refresh(m, me));
    report->sum[INERTIA] += m->inertia;
    report->sum[MOVED] += (double)m->moved;
    if (!m->test.data) return TR_OK;
    if (!m->sparse) {
        /* Empty centres, which sums_pull() does not change, get their positions from the training side. */
        const struct tr_centres *c = &m->train.centres;
        memcpy(m->test.centres.value, c->value, c->k * c->columns * sizeof *c->value);
    }
    TR_TRY(sums_pull(m, &m->test));
    TR_TRY(kmeans_assign(m, me, &m->test, 0, m->test.rows.n, NULL));
    report->sum[TEST_INERTIA] += inertia_of(m, me, &m->test);
    return TR_OK;
}

static int kmeans_summarize(void *state, const tr_report *report, tr_evaluation *evaluation)
{
    struct tr_kmeans *m = state;
    double inertia = report->sum[INERTIA];
    evaluation->objective = inertia;
    if (m->test.data) evaluation->metric[0] = report->sum[TEST_INERTIA];
    if (!isfinite(inertia))
        return tr_fail(TR_ERR_DIVERGED, "the inertia is not finite: the data's numbers are too large");
    double tolerance = m->o->tolerance, fall = m->before - inertia;
    if (!tr_in_lockstep(m->tr)) fall = fabs(fall);
    evaluation->stop = !m->batches && (tolerance > 0 ? fall <= tolerance * inertia
                                                     : report->sum[MOVED] == 0 && tr_in_lockstep(m->tr));
    m->before = inertia;
    m->last = *evaluation;
    return TR_OK;
}

/* ---- checkpoints ---- */

/* A checkpoint contains, besides the table: the initial centres, which are the result for centres that never receive a row; the
 * current centres, because empty centres keep their positions; and the pushed label of each row, because the row will be subtracted
 * from the sums of this centre. Sums, bounds and the order of mini-batches are computed from these. */

/* Stores the columns that this worker has of sparse centres. If a restart divides the centres among the members of a group
 * differently, empty centres start again from their initial positions. */
static int snapshot_sparse(const tr_worker *me, struct tr_kmeans *m, struct tr_kmeans_side *side,
                           const char *name, tr_snapshot *s)
{
    char part[64];
    if (me->worker < 0 || !side->data) return TR_OK;
    snprintf(part, sizeof part, "%s_from_%zu", name, m->first);
    return tr_snapshot_rows(s, part, TR_F32, m->columns, side->centres.width, side->keys, 0, side->n_keys,
                            side->centres.value);
}

static int snapshot_centres(const tr_worker *me, struct tr_kmeans *m, tr_snapshot *s)
{
    int64_t shares = m->replicated ? me->group_size : 1, now = shares;
    bool lists = me->worker >= 0 && (tr_snapshot_restores(s) || me->group == 0);
    if (!m->sparse) /* dense centres are equal in all groups; the first group stores them */
        return tr_snapshot_rows(s, "centres", TR_F32, m->k, (size_t)m->columns, NULL, m->first,
                                lists ? m->mine : 0, m->train.centres.value);
    TR_TRY(tr_snapshot_common(s, "shares", TR_I64, 1, &shares));
    if (shares != now) return TR_OK;
    TR_TRY(tr_snapshot_rows(s, "norms", TR_F64, m->k, 1, NULL, m->first, lists ? m->mine : 0,
                            m->train.centres.norm));
    TR_TRY(snapshot_sparse(me, m, &m->train, "centres", s));
    TR_TRY(snapshot_sparse(me, m, &m->test, "test_centres", s));
    if (tr_snapshot_restores(s) && me->worker >= 0 && m->test.data)
        memcpy(m->test.centres.norm, m->train.centres.norm, m->mine * sizeof *m->test.centres.norm);
    return TR_OK;
}

static int kmeans_snapshot(tr_worker *me, void *state, tr_snapshot *s)
{
    struct tr_kmeans *m = state;
    TR_TRY(tr_model_keep_evaluation(s, &m->last));
    TR_TRY(tr_snapshot_common(s, "inertia_before", TR_F64, 1, &m->before));
    TR_TRY(tr_start_keep(&m->start, s, m->k, m->columns, m->sparse));
    if (tr_snapshot_restores(s) && me->worker >= 0) {
        kmeans_start_at(m, &m->train);
        if (m->test.data) kmeans_start_at(m, &m->test);
    }
    TR_TRY(snapshot_centres(me, m, s));
    /* Mini-batches never subtract rows, so their checkpoints have no labels. */
    struct tr_kmeans_side *side = &m->train;
    bool works = me->worker >= 0;
    if (m->batches) return TR_OK;
    if (works && !m->sparse && !m->fresh) memcpy(m->pushed, side->label, side->rows.n * sizeof *m->pushed);
    TR_TRY(tr_data_keep(side->data, s, "labels", TR_I32, m->pushed));
    if (works && tr_snapshot_restores(s)) {
        for (size_t i = 0; i < side->rows.n; i++) {
            side->label[i] = m->pushed[i];
            if (!m->replicated) tr_assigned_set(&side->assigned, i, m->pushed[i]);
        }
        if (!m->sparse) {
            size_t n = m->mine * (size_t)m->columns;
            memset(m->total, 0, n * sizeof *m->total);
            memset(m->total_count, 0, m->mine * sizeof *m->total_count);
            for (size_t i = 0; i < m->train.rows.n; i++)
                if (m->pushed[i] != TR_NO_CENTRE) add_dense(m, i, m->pushed[i], 1);
            memcpy(m->sent, m->total, n * sizeof *m->sent);
            memcpy(m->sent_count, m->total_count, m->mine * sizeof *m->sent_count);
        }
    }
    return TR_OK;
}

/* ---- training ---- */

static int kmeans_train(void *model)
{
    struct tr_kmeans *m = model;
    if (!tr_context_continues(m->tr)) TR_TRY(tr_kmeans_choose(m));
    tr_stage stage = {.name = "train",
                      .state = m,
                      .clocks = (int64_t)m->epochs * m->clocks_per_epoch,
                      .evaluate_every = (int64_t)tr_job_number(m->job, "report.every") * m->clocks_per_epoch,
                      .epochs_per_clock = 1 / (double)m->clocks_per_epoch,
                      .objective_name = "inertia",
                      .metric = {{m->test.data ? "test inertia" : NULL, false}},
                      .prepare = kmeans_prepare,
                      .compute = m->batches ? kmeans_minibatch : kmeans_lloyd,
                      .evaluate = kmeans_evaluate,
                      .summarize = kmeans_summarize,
                      .snapshot = kmeans_snapshot};
    return tr_run(m->tr, &stage);
}

/* Estimates memory: the rows (with data on disk, their part in memory plus 24 bytes per row) and some copies of the centres. */
static void kmeans_estimate(const tr_job *job, const void *options, const tr_data_size *size,
                            tr_memory *memory)
{
    const struct tr_kmeans_options *o = options;
    double centres = 4 * (double)o->clusters * size->features,
           written = 44 * size->features; /* buffers for writing one centre to model.h5 */
    bool csv = strcmp(size->format, "csv") == 0, disk = tr_job_is(job, "data.storage", "disk"),
         some = tr_job_is(job, "data.storage", "memory_disk");
    double rows = (csv ? 4 * size->records * size->features : 0.6 * size->text) / size->workers,
           blocks = 50e6;
    if (disk || some)
        rows = fmin(rows, some ? tr_job_number(job, "data.memory") : 0) + blocks +
               24 * size->records / size->workers;
    memory->rows = rows;
    memory->worker = (9 + (size->workers > 1)) * centres + written;
    memory->server = 2 * centres / size->servers;
}

/* Maximum number of columns for which predict and evaluate read rows as dense arrays; above, as sparse rows. */
enum { DENSE_COLUMNS = 4096 };

/* Maximum number of distinct labels in the data for which evaluate computes the agreement with centres. */
enum { MOST_KINDS = 1000 };

/* Maximum number of bytes that are read from the table at a time. */
enum { PIECE_BYTES = 1 << 24 };

/* ================ the model file ================ */

/* model.h5 has /centres (clusters × columns, f32) and /sizes (rows per centre), and the attributes clusters, columns,
 * first_index (1 for csv), rows and inertia. */

/* Writes the numbers of rows of the centres first .. first + n - 1 to `values`. */
static int fill_sizes(void *model, uint64_t first, size_t n, void *values)
{
    struct tr_kmeans *m = model;
    uint64_t *size = values;
    if (!m->saved_count) {
        TR_TRY(TR_NEW(&m->saved_count, m->parts * m->width));
        TR_TRY(tr_table_read(m->sums, m->columns * m->parts, m->parts, m->saved_count));
    }
    for (size_t j = 0; j < n; j++) size[j] = (uint64_t)m->saved_count[first + j];
    return TR_OK;
}

/* Writes the centres first .. first + n - 1 to `values`. Each call reads all columns of the table once. */
static int fill_centres(void *model, uint64_t first, size_t n, void *values)
{
    struct tr_kmeans *m = model;
    const double *count = m->saved_count;
    size_t row = m->parts * m->width, columns = (size_t)m->columns, last = (size_t)first + n;
    size_t piece = tr_min_size(columns, tr_max_size(1, PIECE_BYTES / (row * sizeof(double))));
    float *centre = values;
    TR_FREED double *sum = NULL;
    TR_TRY(TR_NEW(&sum, piece * row));
    memset(centre, 0, n * columns * sizeof *centre);
    for (size_t p = 0; p < columns; p += piece) {
        size_t some = tr_min_size(piece, columns - p);
        TR_TRY(tr_table_read(m->sums, p * m->parts, some * m->parts, sum));
        for (size_t j = (size_t)first; j < last; j++)
            for (size_t i = 0; i < some && count[j] > 0; i++)
                centre[(j - (size_t)first) * columns + p + i] = (float)(sum[i * row + j] / count[j]);
    }
    const tr_batch *start = &m->start.rows;
    for (size_t j = (size_t)first; j < last;
         j++, centre += columns) { /* an empty centre is saved with its initial position */
        if (count[j] > 0) continue;
        if (start->dense) memcpy(centre, start->dense + j * columns, columns * sizeof *centre);
        for (uint64_t i = start->dense ? 0 : start->begin[j]; !start->dense && i < start->begin[j + 1]; i++)
            centre[start->column[i]] = start->value[i];
    }
    return TR_OK;
}

static int kmeans_fields(void *model, tr_fields *f)
{
    struct tr_kmeans *m = model;
    static char name[] = "kmeans";
    char *type = name;
    TR_TRY(tr_field_text(f, "model", &type));
    if (type != name) free(type);
    const tr_member numbers[] = {{"clusters", TR_FIELD_U64, .value = &m->clusters},
                                 {"columns", TR_FIELD_U64, .value = &m->columns},
                                 {"first_index", TR_FIELD_U64, .value = &m->first_index},
                                 {"rows", TR_FIELD_U64, .value = &m->total_rows},
                                 {"inertia", TR_FIELD_F64, &m->last.objective, .of_scheduler = true}};
    TR_TRY(tr_field_members(f, numbers, sizeof numbers / sizeof *numbers));
    if (m->clusters == 0 || m->clusters >= UINT32_MAX || m->columns == 0 || m->columns > UINT32_MAX)
        return tr_fail(TR_ERR_DATA, "model.h5: %llu clusters of %llu columns: expected some of each",
                       (unsigned long long)m->clusters, (unsigned long long)m->columns);
    const tr_member arrays[] = {
        {"sizes", TR_FIELD_U64, &m->size, m->batches ? "rows per centre, over all passes" : "rows per centre",
         m->clusters, .fill = fill_sizes},
        {"centres", TR_FIELD_F32, &m->centre, "a row per centre, a column per feature", m->clusters,
         m->columns, .fill = fill_centres}};
    return tr_field_members(f, arrays, sizeof arrays / sizeof *arrays);
}

/* ================ rows with their centres ================ */

/* The label of a row in the data, and its nearest centre. */
struct pair {
    float label;
    uint32_t centre;
};

struct tr_kmeans_evaluation {
    uint64_t rows;
    double inertia, distance; /* sum of squared distances; sum of distances */
    bool labelled;            /* whether all rows so far have a label */
    struct pair *pair;
    size_t capacity;
};

static bool wants_distance(const tr_query *q)
{
    return tr_query_command(q) == TR_EVALUATE || tr_query_given(q, "--distance");
}

static int kmeans_ready(void *model, tr_query *q)
{
    struct tr_kmeans *m = model;
    struct tr_centres *c = &m->asked;
    size_t k = (size_t)m->clusters, columns = (size_t)m->columns;
    bool sparse = columns > DENSE_COLUMNS;
    TR_TRY(tr_centres_open(k, columns, sparse, c));
    for (size_t j = 0; j < k && sparse; j++)
        for (size_t p = 0; p < columns; p++) {
            double v = (double)m->centre[j * columns + p];
            c->norm[j] += v * v;
            c->value[p * c->width + j] = m->centre[j * columns + p];
        }
    if (!sparse) memcpy(c->value, m->centre, k * columns * sizeof(float));
    TR_TRY(tr_centres_ready(c));
    TR_TRY(TR_NEW(&m->evaluation, 1));
    m->evaluation->labelled = true;
    tr_query_rows(q, m->asked.sparse ? TR_ROWS_SPARSE : TR_ROWS_DENSE, m->columns, m->first_index);
    TR_TRY(tr_query_output(q, "centre", 0));
    return wants_distance(q) ? tr_query_output(q, "distance", 9) : TR_OK;
}

static int kmeans_predict(void *model, tr_query *q, const tr_records *records, double *out)
{
    struct tr_kmeans *m = model;
    const tr_batch *rows = &records->rows;
    TR_CLOSED_BY(tr_assigned_close) struct tr_assigned to = {0};
    bool distance = wants_distance(q);
    TR_TRY(tr_assigned_open(&m->asked, rows, false, &to));
    tr_assign(&m->asked, rows, 0, rows->n, &to, NULL, NULL);
    for (size_t i = 0; i < rows->n; i++) {
        *out++ = to.label[i];
        if (distance) *out++ = sqrt(tr_distance(&m->asked, rows, i, to.label[i]));
    }
    return TR_OK;
}

/* ================ evaluate ================ */

/* Agreement of centres with the labels of the data; NaN if rows have no labels, only one label, or more than MOST_KINDS. */
struct agreement {
    size_t kinds; /* number of distinct labels */
    double purity, rand, information;
};

static int kmeans_evaluate_rows(void *model, tr_query *q, const tr_records *records, const double *out)
{
    struct tr_kmeans_evaluation *e = ((struct tr_kmeans *)model)->evaluation;
    const float *label = records->rows.label;
    (void)q;
    for (size_t i = 0; i < records->rows.n; i++, e->rows++, out += 2) {
        e->inertia += out[1] * out[1];
        e->distance += out[1];
        e->labelled = e->labelled && label && !isnan(label[i]);
        if (!e->labelled) continue;
        TR_TRY(TR_GROW(&e->pair, &e->capacity, e->rows + 1));
        e->pair[e->rows] = (struct pair){label[i], (uint32_t)out[0]};
    }
    return TR_OK;
}

static int kmeans_by_label(const void *a, const void *b)
{
    const struct pair *x = a, *y = b;
    return (x->label > y->label) - (x->label < y->label);
}

static double kmeans_pairs(double n)
{
    return n * (n - 1) / 2;
}

/* Returns the entropy, in nats, of a partition of n rows; part[i] is the number of rows of part i. */
static double kmeans_entropy(const double *part, size_t parts, double n)
{
    double sum = 0;
    for (size_t i = 0; i < parts; i++)
        if (part[i] > 0) sum -= part[i] / n * log(part[i] / n);
    return sum;
}

static int compare_labels(struct tr_kmeans_evaluation *e, size_t k, struct agreement *a)
{
    *a = (struct agreement){.purity = NAN, .rand = NAN, .information = NAN};
    if (!e->labelled || e->rows < 2) return TR_OK;
    qsort(e->pair, (size_t)e->rows, sizeof *e->pair, kmeans_by_label);
    a->kinds = 1;
    for (size_t i = 1; i < e->rows; i++) a->kinds += e->pair[i].label > e->pair[i - 1].label;
    if (a->kinds < 2 || a->kinds > MOST_KINDS) return TR_OK;
    TR_FREED double *of_centre = NULL;
    TR_FREED double *of_kind = NULL;
    TR_FREED double *table = NULL;
    TR_TRY(TR_NEW(&table, a->kinds * k));
    TR_TRY(TR_NEW(&of_kind, a->kinds));
    TR_TRY(TR_NEW(&of_centre, k));
    for (size_t i = 0, kind = 0; i < e->rows; i++) {
        if (i > 0 && e->pair[i].label > e->pair[i - 1].label) kind++;
        table[kind * k + e->pair[i].centre]++;
        of_kind[kind]++;
        of_centre[e->pair[i].centre]++;
    }
    /* Compute purity, the adjusted Rand index (Hubert and Arabie 1985), and mutual information relative to the mean entropy. */
    double n = (double)e->rows, pure = 0, same = 0, same_kind = 0, same_centre = 0;
    for (size_t j = 0; j < k; j++) {
        double most = 0;
        for (size_t i = 0; i < a->kinds; i++) {
            double here = table[i * k + j];
            most = fmax(most, here);
            same += kmeans_pairs(here);
        }
        pure += most;
        same_centre += kmeans_pairs(of_centre[j]);
    }
    for (size_t i = 0; i < a->kinds; i++) same_kind += kmeans_pairs(of_kind[i]);
    double expected = same_kind * same_centre / kmeans_pairs(n), best = (same_kind + same_centre) / 2;
    double kinds = kmeans_entropy(of_kind, a->kinds, n), centres = kmeans_entropy(of_centre, k, n);
    double shared = kinds + centres - kmeans_entropy(table, a->kinds * k, n);
    a->purity = pure / n;
    a->rand = best == expected ? 1 : (same - expected) / (best - expected);
    a->information = kinds + centres > 0 ? 2 * shared / (kinds + centres) : 1;
    return TR_OK;
}

static int kmeans_figures(void *model, tr_query *q, uint64_t rows)
{
    struct tr_kmeans *m = model;
    struct tr_kmeans_evaluation *e = m->evaluation;
    struct agreement a;
    TR_TRY(compare_labels(e, (size_t)m->clusters, &a));
    double mean = e->distance / (double)rows;
    TR_TRY(tr_figure(q, "rows", (double)rows, "%llu", (unsigned long long)rows));
    TR_TRY(tr_figure(q, "inertia", e->inertia, "%.9g", e->inertia));
    TR_TRY(tr_figure(q, "mean_distance", mean, "%.6g", mean));
    bool compared = !isnan(a.purity);
    if (compared) TR_TRY(tr_figure(q, "labels", (double)a.kinds, "%zu", a.kinds));
    TR_TRY(tr_figure(q, "purity", a.purity, compared ? "%.6f" : NULL, a.purity));
    TR_TRY(tr_figure(q, "ari", a.rand, compared ? "%.6f" : NULL, a.rand));
    return tr_figure(q, "nmi", a.information, compared ? "%.6f" : NULL, a.information);
}

/* ================ inspect ================ */

static int kmeans_inspect(void *model, tr_query *q)
{
    const struct tr_kmeans *m = model;
    tr_line(q, "clusters", "%llu", (unsigned long long)m->clusters);
    tr_line(q, "columns", "%llu, the first has index %llu", (unsigned long long)m->columns,
            (unsigned long long)m->first_index);
    tr_line(q, "trained on", "%llu rows", (unsigned long long)m->total_rows);
    tr_line(q, "inertia", "%.9g", m->last.objective);
    TR_FREED uint64_t *size = NULL;
    size_t k = (size_t)m->clusters;
    TR_TRY(TR_NEW(&size, k));
    memcpy(size, m->size, k * sizeof *size);
    qsort(size, k, sizeof *size, tr_compare_u64);
    tr_line(q, "sizes", "%llu / %llu / %llu (min / median / max)", (unsigned long long)size[0],
            (unsigned long long)size[k / 2], (unsigned long long)size[k - 1]);
    size_t most = (size_t)tr_query_number(q, "--top", 0);
    TR_FREED uint32_t *top = NULL;
    TR_TRY(TR_NEW(&top, most + 1));
    TR_TRY(tr_print(q, "\n%8s  %12s  %12s%s\n", "centre", "rows", "length",
                    most > 0 ? "  largest columns" : ""));
    for (size_t j = 0; j < m->clusters; j++) {
        double square = 0;
        for (size_t p = 0; p < m->columns; p++) {
            double c = (double)m->centre[j * m->columns + p];
            square += c * c;
        }
        TR_TRY(tr_print(q, "%8zu  %12llu  %12.6g", j, (unsigned long long)m->size[j], sqrt(square)));
        /* Find the columns with the largest absolute values, in descending order. */
        const float *c = m->centre + j * m->columns;
        size_t n = 0;
        for (uint32_t p = 0; p < m->columns; p++) {
            size_t at = n;
            if (c[p] == 0 || (n == most && (n == 0 || fabsf(c[p]) <= fabsf(c[top[n - 1]])))) continue;
            if (n < most) n++;
            else at--;
            for (; at > 0 && fabsf(c[top[at - 1]]) < fabsf(c[p]); at--) top[at] = top[at - 1];
            top[at] = p;
        }
        for (size_t i = 0; i < n; i++) {
            char name[TR_LABEL_TEXT];
            tr_query_key_text(q, top[i], m->first_index, name);
            TR_TRY(tr_print(q, "  %s:%.4g", name, (double)c[top[i]]));
        }
        TR_TRY(tr_print(q, "\n"));
    }
    return TR_OK;
}

static int kmeans_centres(const void *model, tr_saved_centres *c)
{
    const struct tr_kmeans *m = model;
    *c = (tr_saved_centres){m->clusters, m->columns, m->first_index, NULL};
    TR_TRY(TR_NEW(&c->value, c->n * c->columns));
    memcpy(c->value, m->centre, (size_t)(c->n * c->columns) * sizeof *c->value);
    return TR_OK;
}

/* ================ the class ================ */

static void kmeans_close(void *model)
{
    struct tr_kmeans *m = model;
    if (m->evaluation) free(m->evaluation->pair);
    tr_centres_close(&m->asked);
    close_side(&m->train);
    close_side(&m->test);
    tr_data_close(&m->test.data);
    tr_data_close(&m->train.data);
    tr_start_free(&m->start);
    TR_FREE_ALL(m->evaluation, m->centre, m->size, m->saved_count, m->round, m->shift, m->total,
                m->total_count, m->sent, m->sent_count, m->pushed, m->order);
}

#define AT(field) offsetof(struct tr_kmeans_options, field)

static const tr_option options[] = {
    {"model.clusters", TR_KIND_INTEGER, AT(clusters), "8", .least = 1, .most = INT32_MAX,
     .help = "number of centres"},
    {"model.init", TR_KIND_TEXT, AT(init), "",
     .help = "run folder or model.h5 whose clusters, or topics as documents, are the initial centres; task "
             "NAME: the "
             "model of another task of the job"},
    {"solve.batch", TR_KIND_INTEGER, AT(batch), "0", .methods = "minibatch",
     .help = "rows per mini-batch over all groups; 0 = chosen from the data"},
    {"solve.start", TR_KIND_CHOICE, AT(start), "kmeans++",
     .words = TR_WORDS("kmeans++", "kmeans||", "random", "first"),
     .help = "initial centres: kmeans++ or kmeans|| (distant rows, one by one or several at a time), random "
             "rows, or "
             "the first distinct rows"},
    {"solve.bounds", TR_KIND_CHOICE, AT(bounds), "auto", .words = TR_WORDS("auto", "no", "yes"),
     .methods = "lloyd",
     .help = "skip distances that the triangle inequality makes unnecessary (Hamerly's bounds)"},
    {"solve.tolerance", TR_KIND_REAL, AT(tolerance), "1e-4", .may_change = true, .methods = "lloyd",
     .help =
         "stop when the inertia decreases by less than this fraction; 0 = when no row changes its centre"},
    {.name = NULL},
};

static const tr_method methods[] = {
    [TR_LLOYD] = {"lloyd", "every iteration assigns all rows",
                  .stages = TR_WORDS("start", "assign", "update", "evaluate")},
    [TR_MINIBATCH] = {"minibatch",
                      "every iteration assigns some rows; a centre is the mean of its rows in all iterations",
                      .stages = TR_WORDS("start", "assign", "update", "evaluate")},
    {.name = NULL},
};

static const tr_rule rules[] = {
    {"sync.weight", .unused = true},
    {"sync.stable", .unused = true},
    {"sync.race", .unused = true},
    {"local.*", .unused = true},
    {"data.vocabulary", .unused = true},
    {"data.duplicates", .unused = true},
    {"data.scale", .unused = true},
    {"data.weight", .unused = true},
    {"data.offset", .unused = true},
    {"report.metric", .unused = true},
    {.key = NULL},
};

static const tr_flag flags[] = {
    {"--distance", NULL, TR_PREDICT, .help = "print the distance to the centre after its number"},
    {"--top", "N", TR_INSPECT, 0, 1000, "print the N largest columns of each centre"},
    {.name = NULL},
};

const tr_model_class tr_kmeans_class = {
    .abi = TR_MODEL_ABI,
    .name = "kmeans",
    .types = TR_WORDS("kmeans"),
    .help = "clusters of rows; a centre is the mean of its rows",
    .predicts = "the number of the nearest centre, from 0",
    .evaluates =
        "inertia (the sum of squared distances to the nearest centres) and the agreement with labels",
    .noun = "clusters",
    .format = "trireme-kmeans",
    .format_version = 1,
    .data_formats = TR_WORDS("csv", "libsvm", "hdf5"),
    .options_size = sizeof(struct tr_kmeans_options),
    .options = options,
    .methods = methods,
    .rules = rules,
    .flags = flags,
    .model_size = sizeof(struct tr_kmeans),
    .check = kmeans_check,
    .open = kmeans_open,
    .train = kmeans_train,
    .fields = kmeans_fields,
    .close = kmeans_close,
    .memory = kmeans_estimate,
    .ready = kmeans_ready,
    .predict = kmeans_predict,
    .evaluate = kmeans_evaluate_rows,
    .figures = kmeans_figures,
    .inspect = kmeans_inspect,
    .centres = kmeans_centres,
};
