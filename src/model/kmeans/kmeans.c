#include "kmeans.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../labels.h"

/* Sums of an evaluation. */
enum { INERTIA, MOVED, TEST_INERTIA };

/* Maximum number of empty centres that receive a row in one clock. */
enum { SEEDS = 64 };

/* ---- settings ---- */

static int check(const tr_job *job, const void *options)
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

static int check_rows(const struct tr_kmeans *m)
{
    uint64_t rows = m->train.data->total_rows;
    if (m->k <= rows) return TR_OK;
    return tr_fail(TR_ERR_CONFIG, "%s: model.clusters is %zu, but there are %llu rows",
                   tr_job_where(m->job, "model.clusters"), m->k, (unsigned long long)rows);
}

/* Default number of rows per mini-batch: several per centre, and enough computation to be worth a pull of all columns. */
static double enough_rows(const struct tr_kmeans *m)
{
    const tr_data *data = m->train.data;
    double rows = (double)data->total_rows, numbers = (double)data->total_nonzeros / rows;
    double worth = 4 * (double)m->columns / fmax(1, numbers) * tr_workers(m->tr);
    return fmax(fmax(1024, rows / 100), fmax(10 * (double)m->k, m->sparse ? worth : 0));
}

static void plan_epoch(struct tr_kmeans *m)
{
    double rows = (double)m->train.data->total_rows, batch = (double)m->o->batch;
    if (batch == 0) batch = enough_rows(m);
    m->clocks_per_epoch = m->batches ? (int64_t)fmax(1, round(rows / batch)) : 1;
}

static int open_rows(struct tr_kmeans *m)
{
    const char *const *tests;
    const enum tr_data_part form = TR_DATA_DENSE | TR_DATA_PASSES;
    TR_TRY(tr_data_open(m->tr, TR_DATA_TRAIN | form, NULL, &m->train.data));
    if (tr_job_files(m->job, "data.test", &tests) > 0)
        TR_TRY(tr_data_open(m->tr, TR_DATA_TEST | form, m->train.data, &m->test.data));
    m->columns = m->train.data->columns;
    m->total_rows = m->train.data->total_rows;
    TR_TRY(tr_agree(m->tr, check_rows(m)));
    m->sparse = !m->train.data->dense;
    bool table =
        m->train.data->format == TR_FORMAT_CSV || (m->train.data->format == TR_FORMAT_HDF5 && !m->sparse);
    m->first_index = table ? 1 : m->train.data->first_index;
    set_rows(m, &m->train);
    if (m->test.data) set_rows(m, &m->test);
    return TR_OK;
}

static int open_model(tr_context *tr, const void *options, void *model)
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
    m->target = tr_job_number(m->job, "solve.target");
    TR_TRY(open_rows(m));
    plan_epoch(m);
    TR_TRY(tr_data_describe(m->train.data, "training data"));
    if (m->test.data) TR_TRY(tr_data_describe(m->test.data, "test data"));
    TR_TRY(tr_kmeans_make_steps(m));
    return tr_kmeans_make_table(m);
}

static void close_side(struct tr_kmeans_side *side)
{
    tr_view_close(&side->view);
    if (side->label != side->assigned.label) free(side->label);
    tr_centres_close(&side->centres);
    tr_assigned_close(&side->assigned);
    free(side->least);
}

static void close_model(void *model)
{
    struct tr_kmeans *m = model;
    tr_kmeans_saved_close(m);
    close_side(&m->train);
    close_side(&m->test);
    tr_data_close(&m->test.data);
    tr_data_close(&m->train.data);
    tr_start_free(&m->start);
    void *arrays[] = {m->round, m->shift,      m->total,  m->total_count,
                      m->sent,  m->sent_count, m->pushed, m->order};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) free(arrays[i]);
}

/* ---- before the first clock ---- */

/* Index of a column among the columns of this worker; n_keys if it is not one of them. */
static size_t local_column(const struct tr_kmeans_side *side, uint32_t column)
{
    if (!side->keys) return column;
    size_t at = tr_place_u64(side->keys, side->n_keys, column);
    return at < side->n_keys && side->keys[at] == column ? at : side->n_keys;
}

void tr_kmeans_start_at(struct tr_kmeans *m, struct tr_kmeans_side *side)
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
            size_t place = local_column(side, start->column[i]);
            c->norm[j] += (double)start->value[i] * (double)start->value[i];
            if (place < side->n_keys) c->value[place * c->width + j] = start->value[i];
        }
    }
}

static int prepare_side(struct tr_kmeans *m, struct tr_kmeans_side *side, bool training)
{
    bool bounds = training && !m->batches && !m->replicated && m->o->bounds != TR_BOUNDS_NO;
    TR_TRY(tr_kmeans_open_view(m, side, training));
    TR_TRY(tr_centres_open(m->mine, side->n_keys, m->sparse, &side->centres));
    TR_TRY(tr_assigned_open(&side->centres, &side->rows, bounds, &side->assigned));
    tr_kmeans_start_at(m, side);
    side->label = side->assigned.label;
    if (!m->replicated) return TR_OK;
    TR_TRY(TR_NEW(&side->label, side->rows.n));
    memset(side->label, 0xff, side->rows.n * sizeof *side->label);
    return TR_NEW(&side->least, side->rows.n);
}

static int prepare(tr_worker *me, void *state)
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
    tr_kmeans_change(m, row, from, to);
}

/* Replicated rows: each member finds the nearest of its centres, then the group the nearest of all. */
static int assign_together(struct tr_kmeans *m, tr_worker *me, struct tr_kmeans_side *side, size_t first,
                           size_t last, tr_changed_fn *changed)
{
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

static int assign(struct tr_kmeans *m, tr_worker *me, struct tr_kmeans_side *side, size_t first, size_t last,
                  tr_changed_fn *changed)
{
    if (m->replicated) return assign_together(m, me, side, first, last, changed);
    TR_TRY(tr_turn_begin(m->tr, side == &m->train ? "assign" : "evaluate"));
    for (size_t n; first < last && (n = tr_data_ready(side->data, first, last - first)) > 0; first += n)
        tr_assign(&side->centres, &side->rows, first, first + n, &side->assigned, changed, m);
    return tr_turn_end(m->tr, TR_OK);
}

/* Returns this worker's part of the inertia. With replicated rows the leader returns that of the group, the others 0. */
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

/* Without BSP the centres of the next clock are read during the assignment. Not for sparse rows, whose norms must belong to
 * the pulled centres. */
static int read_ahead(struct tr_kmeans *m)
{
    return m->sparse || tr_in_lockstep(m->tr) ? TR_OK : tr_view_prefetch(m->train.view);
}

/* Pulls the centres and assigns all rows, unless both were done in this clock. */
static int refresh(struct tr_kmeans *m, tr_worker *me)
{
    if (m->fresh) return TR_OK;
    m->moved = 0;
    if (!m->sparse && !m->batches) memcpy(m->pushed, m->train.label, m->train.rows.n * sizeof *m->pushed);
    TR_TRY(tr_kmeans_pull(m, &m->train));
    TR_TRY(read_ahead(m));
    TR_TRY(assign(m, me, &m->train, 0, m->train.rows.n, m->batches ? NULL : count_change));
    bool from_sums = !m->sparse && !m->batches && !m->replicated;
    m->inertia = from_sums ? tr_kmeans_inertia(m) : inertia_of(m, me, &m->train);
    if (m->batches && m->sparse) memcpy(m->pushed, m->train.label, m->train.rows.n * sizeof *m->pushed);
    m->fresh = !m->batches;
    return TR_OK;
}

/* ---- empty centres ---- */

/* A row that may become the centre of an empty cluster. */
struct seed {
    double distance;
    uint64_t hash;
    int32_t group, worker;
    uint32_t row;
};

/* By descending distance, then by the hash of the values. */
static int by_distance(const void *a, const void *b)
{
    const struct seed *x = a, *y = b;
    if (x->distance != y->distance) return x->distance > y->distance ? -1 : 1;
    if (x->hash != y->hash) return x->hash > y->hash ? 1 : -1;
    return (x->worker > y->worker) - (x->worker < y->worker);
}

static double distance_of(const struct tr_kmeans *m, size_t row)
{
    const struct tr_kmeans_side *side = &m->train;
    return m->replicated ? side->least[row].value
                         : tr_distance(&side->centres, &side->rows, row, side->label[row]);
}

/* Finds this worker's n rows with the largest distances; unused entries have distance -1. */
static int propose(const struct tr_kmeans *m, const tr_worker *me, struct seed *seeds, size_t n)
{
    struct seed *all;
    size_t rows = m->train.rows.n, kept = 0;
    TR_TRY(TR_NEW(&all, 2 * n));
    for (size_t i = 0; i < rows; i++) {
        struct seed s = {
            .distance = distance_of(m, i), .group = me->group, .worker = me->worker, .row = (uint32_t)i};
        if (kept >= n && s.distance < all[n - 1].distance) continue;
        s.hash = tr_kmeans_hash(&m->train, m->columns, i);
        all[kept++] = s;
        if (kept < 2 * n) continue;
        qsort(all, kept, sizeof *all, by_distance);
        kept = n;
    }
    qsort(all, kept, sizeof *all, by_distance);
    for (size_t i = 0; i < n; i++) seeds[i] = i < kept ? all[i] : (struct seed){.distance = -1};
    free(all);
    return TR_OK;
}

/* Assigns a row to an empty centre. With replicated rows all members of the group do so. */
static void plant(struct tr_kmeans *m, const tr_worker *me, const struct seed *seed, uint32_t centre)
{
    bool mine = m->replicated ? seed->group == me->group : seed->worker == me->worker;
    if (!mine) return;
    struct tr_kmeans_side *side = &m->train;
    tr_kmeans_change(m, seed->row, side->label[seed->row], centre);
    side->label[seed->row] = centre;
    if (!m->replicated) tr_assigned_set(&side->assigned, seed->row, centre);
}

/* All workers have pulled the same counts and therefore find the same empty centres. */
static int seed_empty(struct tr_kmeans *m, tr_worker *me, const uint32_t *empty, size_t n)
{
    struct seed *mine, *all;
    size_t total = n * (size_t)me->workers;
    TR_TRY(TR_NEW(&mine, n));
    TR_TRY(TR_NEW(&all, total));
    TR_TRY(propose(m, me, mine, n));
    TR_TRY(tr_all_gather(m->tr, TR_SET_WORKERS, mine, n * sizeof *mine, all));
    qsort(all, total, sizeof *all, by_distance);
    for (size_t i = 0, used = 0; i < total && used < n && all[i].distance > 0; i++)
        if (i == 0 || all[i].hash != all[i - 1].hash) plant(m, me, &all[i], empty[used++]);
    free(mine);
    free(all);
    return TR_OK;
}

/* Lists at most SEEDS centres without rows, over all members of the group. */
static int find_empty(struct tr_kmeans *m, tr_worker *me, uint32_t *empty, size_t *n)
{
    double *count;
    const double *pulled = (const double *)m->train.view->value + m->train.n_keys * m->span;
    TR_TRY(TR_NEW(&count, m->k));
    memcpy(count + m->first, pulled, m->mine * sizeof *count);
    int status = m->replicated ? tr_group_sum(me, count, m->k) : TR_OK;
    *n = 0;
    for (size_t j = 0; j < m->k && *n < SEEDS; j++)
        if (!(count[j] > 0)) empty[(*n)++] = (uint32_t)j;
    free(count);
    return status;
}

/* Under BSP only: otherwise workers see different counts, and an empty centre keeps its position. */
static int fill_empty(struct tr_kmeans *m, tr_worker *me)
{
    uint32_t empty[SEEDS];
    size_t n = 0;
    if (me->clock == 0 || !tr_in_lockstep(m->tr)) return TR_OK;
    TR_TRY(find_empty(m, me, empty, &n));
    return n > 0 ? seed_empty(m, me, empty, n) : TR_OK;
}

/* ---- a clock ---- */

static int update(struct tr_kmeans *m)
{
    TR_TRY(tr_turn_begin(m->tr, "update"));
    return tr_turn_end(m->tr, tr_kmeans_push(m));
}

static int lloyd(tr_worker *me, void *state)
{
    struct tr_kmeans *m = state;
    TR_TRY(refresh(m, me));
    TR_TRY(fill_empty(m, me));
    m->fresh = false;
    return update(m);
}

/* Draws the order of the mini-batches of an epoch, the same on all members of a group. */
static void shuffle(struct tr_kmeans *m, const tr_worker *me, int64_t epoch)
{
    struct tr_rng rng;
    if (m->ordered == epoch + 1) return;
    m->ordered = epoch + 1;
    tr_rng_seed(&rng, m->seed, (uint64_t)me->group, (uint64_t)epoch);
    for (int64_t i = 0; i < m->clocks_per_epoch; i++) {
        int64_t j = (int64_t)tr_rng_below(&rng, (uint64_t)i + 1);
        m->order[i] = m->order[j];
        m->order[j] = i;
    }
}

static int minibatch(tr_worker *me, void *state)
{
    struct tr_kmeans *m = state;
    struct tr_kmeans_side *side = &m->train;
    int64_t turn = me->clock % m->clocks_per_epoch;
    shuffle(m, me, me->clock / m->clocks_per_epoch);
    double rows = (double)side->rows.n, parts = (double)m->clocks_per_epoch, part = (double)m->order[turn];
    size_t first = (size_t)(rows * part / parts), last = (size_t)(rows * (part + 1) / parts);
    TR_TRY(tr_kmeans_pull(m, side));
    TR_TRY(read_ahead(m));
    for (size_t i = first; i < last; i++) {
        side->label[i] = TR_NO_CENTRE;
        side->assigned.label[i] = TR_NO_CENTRE;
        if (m->sparse) m->pushed[i] = TR_NO_CENTRE;
    }
    TR_TRY(assign(m, me, side, first, last, count_change));
    return update(m);
}

/* ---- evaluation ---- */

/* An empty cluster keeps the centre of the training side. */
static void keep_empty_centres(struct tr_kmeans *m)
{
    const struct tr_centres *c = &m->train.centres;
    memcpy(m->test.centres.value, c->value, c->k * c->columns * sizeof *c->value);
}

static int evaluate(tr_worker *me, void *state, tr_report *report)
{
    struct tr_kmeans *m = state;
    TR_TRY(refresh(m, me));
    report->sum[INERTIA] += m->inertia;
    report->sum[MOVED] += (double)m->moved;
    if (!m->test.data) return TR_OK;
    if (!m->sparse) keep_empty_centres(m);
    TR_TRY(tr_kmeans_pull(m, &m->test));
    TR_TRY(assign(m, me, &m->test, 0, m->test.rows.n, NULL));
    report->sum[TEST_INERTIA] += inertia_of(m, me, &m->test);
    return TR_OK;
}

static bool has_settled(const struct tr_kmeans *m, const tr_report *report)
{
    double tolerance = m->o->tolerance, now = report->sum[INERTIA], fall = m->before - now;
    if (m->batches) return false;
    if (!tr_in_lockstep(m->tr)) fall = fabs(fall);
    return tolerance > 0 ? fall <= tolerance * now : report->sum[MOVED] == 0 && tr_in_lockstep(m->tr);
}

static int summarize(void *state, const tr_report *report, tr_evaluation *evaluation)
{
    struct tr_kmeans *m = state;
    double inertia = report->sum[INERTIA];
    evaluation->objective = inertia;
    if (m->test.data) evaluation->metric = report->sum[TEST_INERTIA];
    if (!isfinite(inertia))
        return tr_fail(TR_ERR_DIVERGED, "the inertia is not finite: the data's numbers are too large");
    evaluation->stop = has_settled(m, report) || inertia <= m->target;
    m->before = inertia;
    m->last = *evaluation;
    return TR_OK;
}

/* ---- checkpoints ---- */

/* State besides the table: the initial centres, because centres that never receive a row are saved as these; the current
 * centres, because an empty cluster keeps its centre; and the pushed label of each row, because its values are subtracted
 * from that centre. Sums, bounds and the order of mini-batches follow from these. */

/* Dense centres are equal in all groups; the first group stores them. */
static int snapshot_dense(const tr_worker *me, struct tr_kmeans *m, tr_snapshot *s)
{
    bool lists = me->worker >= 0 && (tr_snapshot_restores(s) || me->group == 0);
    return tr_snapshot_rows(s, "centres", TR_F32, m->k, (size_t)m->columns, NULL, m->first,
                            lists ? m->mine : 0, m->train.centres.value);
}

/* Of sparse centres each worker stores its columns. If the centres are divided among the members of a group differently
 * after a restart, empty centres start again from their initial positions. */
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
    if (!m->sparse) return snapshot_dense(me, m, s);
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

/* Sets the labels of all rows to the restored ones. */
static void restore_labels(struct tr_kmeans *m)
{
    struct tr_kmeans_side *side = &m->train;
    for (size_t i = 0; i < side->rows.n; i++) {
        side->label[i] = m->pushed[i];
        if (!m->replicated) tr_assigned_set(&side->assigned, i, m->pushed[i]);
    }
    if (!m->sparse) tr_kmeans_recount(m);
}

/* Mini-batches never subtract rows, so they do not need the labels. */
static int snapshot_labels(const tr_worker *me, struct tr_kmeans *m, tr_snapshot *s)
{
    struct tr_kmeans_side *side = &m->train;
    bool works = me->worker >= 0;
    if (m->batches) return TR_OK;
    if (works && !m->sparse && !m->fresh) memcpy(m->pushed, side->label, side->rows.n * sizeof *m->pushed);
    TR_TRY(tr_data_keep(side->data, s, "labels", TR_I32, m->pushed));
    if (works && tr_snapshot_restores(s)) restore_labels(m);
    return TR_OK;
}

static int snapshot(tr_worker *me, void *state, tr_snapshot *s)
{
    struct tr_kmeans *m = state;
    TR_TRY(tr_model_keep_evaluation(s, &m->last));
    TR_TRY(tr_snapshot_common(s, "inertia_before", TR_F64, 1, &m->before));
    TR_TRY(tr_start_keep(&m->start, s, m->k, m->columns, m->sparse));
    if (tr_snapshot_restores(s) && me->worker >= 0) {
        tr_kmeans_start_at(m, &m->train);
        if (m->test.data) tr_kmeans_start_at(m, &m->test);
    }
    TR_TRY(snapshot_centres(me, m, s));
    return snapshot_labels(me, m, s);
}

/* ---- training ---- */

static int train_model(void *model)
{
    struct tr_kmeans *m = model;
    if (!tr_context_continues(m->tr)) TR_TRY(tr_kmeans_choose(m));
    tr_stage stage = {.name = "train",
                      .state = m,
                      .clocks = (int64_t)m->epochs * m->clocks_per_epoch,
                      .evaluate_every = (int64_t)tr_job_number(m->job, "report.every") * m->clocks_per_epoch,
                      .epochs_per_clock = 1 / (double)m->clocks_per_epoch,
                      .objective_name = "inertia",
                      .metric_name = m->test.data ? "test inertia" : NULL,
                      .prepare = prepare,
                      .compute = m->batches ? minibatch : lloyd,
                      .evaluate = evaluate,
                      .summarize = summarize,
                      .snapshot = snapshot};
    return tr_run(m->tr, &stage);
}

/* Estimates memory: the rows (or the part in memory plus 24 bytes per row) and some copies of the centres. */
static void estimate(const tr_job *job, const void *options, const tr_data_size *size, tr_memory *memory)
{
    const struct tr_kmeans_options *o = options;
    double centres = 4 * (double)o->clusters * size->features,
           written = 44 * size->features; /* for writing one centre */
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

/* ---- the class ---- */

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
    [TR_MINIBATCH] =
        {"minibatch",
         "every iteration assigns some rows; a centre is the mean of all rows it has ever received",
         .stages = TR_WORDS("start", "assign", "update", "evaluate")},
    {.name = NULL},
};

static const tr_rule rules[] = {
    {"sync.weight", .unused = true}, {"sync.stable", .unused = true},     {"sync.race", .unused = true},
    {"local.*", .unused = true},     {"data.vocabulary", .unused = true}, {"data.duplicates", .unused = true},
    {"data.scale", .unused = true},  {"data.weight", .unused = true},     {.key = NULL},
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
    .check = check,
    .open = open_model,
    .train = train_model,
    .fields = tr_kmeans_fields,
    .close = close_model,
    .memory = estimate,
    .ready = tr_kmeans_ready,
    .predict = tr_kmeans_predict,
    .evaluate = tr_kmeans_evaluate,
    .figures = tr_kmeans_figures,
    .inspect = tr_kmeans_inspect,
    .centres = tr_kmeans_centres,
};
