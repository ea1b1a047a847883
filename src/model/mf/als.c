/* Alternating least squares: state of a worker, and the stage. An even clock solves for users, an odd one for items
 * (als_half.c), and pushes the changes. With implicit ratings Σ v vᵀ over all rows of a side is summed in a separate table.
 * Evaluations use the loss that the solver computed.
 */
#include "als.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct tr_als_limits default_limits = {
    .arena_bytes = (size_t)256 << 20, .sums_bytes = (size_t)256 << 20, .worth = 32};

/* ---- batches ---- */

static int by_number(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Orders rows by descending number of ratings: sums that are accumulated while rows arrive then save the most work. */
static int order_rows(struct tr_als_side *side)
{
    uint64_t *sorted;
    TR_TRY(TR_NEW(&side->turn, side->n));
    TR_TRY(TR_NEW(&sorted, side->n));
    for (size_t i = 0; i < side->n; i++) {
        uint64_t n = side->begin[i + 1] - side->begin[i];
        sorted[i] = (UINT32_MAX - (n < UINT32_MAX ? n : UINT32_MAX)) << 32 | i;
    }
    qsort(sorted, side->n, sizeof *sorted, by_number);
    for (size_t i = 0; i < side->n; i++) side->turn[i] = (uint32_t)sorted[i];
    free(sorted);
    return TR_OK;
}

/* Marks the rows of the other side that a row needs. Returns the number of newly marked ones. */
static size_t mark(const struct tr_als_side *side, size_t turn, uint8_t *needed)
{
    size_t i = side->turn[turn], n = 0;
    for (uint64_t k = side->begin[i]; k < side->begin[i + 1]; k++) {
        n += !needed[side->other[k]];
        needed[side->other[k]] = 1;
    }
    return n;
}

/* Builds a batch from side->turn[first] on: as many rows as need at most `most` rows of the other side, at least one row. */
static int cut_batch(struct tr_als_side *side, size_t first, size_t most, uint8_t *needed,
                     struct tr_als_batch *batch)
{
    size_t t = first, n = 0;
    memset(needed, 0, side->n_keys);
    for (size_t before = 0; t < side->n; t++, before = n) {
        n += mark(side, t, needed);
        if (n <= most || t == first) continue;
        n = before;
        break;
    }
    *batch = (struct tr_als_batch){.first = first, .end = t, .n = n};
    TR_TRY(TR_NEW(&batch->place, n));
    memset(needed, 0, side->n_keys);
    for (t = first; t < batch->end; t++) mark(side, t, needed);
    for (size_t place = 0, at = 0; place < side->n_keys; place++)
        if (needed[place]) batch->place[at++] = (uint32_t)place;
    side->largest = tr_max_size(side->largest, n);
    return TR_OK;
}

static void free_batches(struct tr_als_side *side)
{
    for (size_t b = 0; b < side->batches; b++) free(side->batch[b].place);
    free(side->batch);
    side->batch = NULL;
    side->batches = side->largest = 0;
}

static int cut_batches(struct tr_als_side *side, size_t most, uint8_t *needed)
{
    size_t capacity = 0, first = 0;
    free_batches(side);
    while (first < side->n) {
        TR_TRY(TR_GROW(&side->batch, &capacity, side->batches + 1));
        struct tr_als_batch *batch = &side->batch[side->batches++];
        TR_TRY(cut_batch(side, first, most, needed, batch));
        first = batch->end;
    }
    return TR_OK;
}

/* Divides a side into batches whose rows fit into an arena, or into half of it if there are several. */
static int plan_batches(const struct tr_mf_als *als, struct tr_als_side *side)
{
    size_t most = als->limits.arena_bytes / (als->stride * sizeof(float));
    uint8_t *needed;
    TR_TRY(order_rows(side));
    TR_TRY(TR_NEW(&needed, side->n_keys));
    int status = cut_batches(side, most, needed);
    if (status == TR_OK && side->batches > 1) status = cut_batches(side, tr_max_size(most / 2, 1), needed);
    free(needed);
    return status;
}

/* ---- state of a worker ---- */

static int open_sides(struct tr_mf_als *als)
{
    struct tr_mf *m = als->m;
    const tr_data *train = m->train;
    struct tr_mf_lists *items = &als->by_item;
    uint64_t first;
    TR_TRY(tr_mf_by_item(m->tr, train, (double)m->rank / 3, &first, items));
    TR_TRY(TR_NEW(&als->item_number, items->n));
    for (size_t i = 0; i < items->n; i++) als->item_number[i] = first + i;
    als->side[TR_MF_USER] = (struct tr_als_side){.which = TR_MF_USER,
                                                 .own = m->user_table,
                                                 .from = m->item_table,
                                                 .n = train->rows.n,
                                                 .number = train->row,
                                                 .begin = train->rows.begin,
                                                 .other = train->rows.column,
                                                 .value = train->rows.value,
                                                 .keys = train->keys,
                                                 .n_keys = train->n_keys};
    als->side[TR_MF_ITEM] = (struct tr_als_side){.which = TR_MF_ITEM,
                                                 .own = m->item_table,
                                                 .from = m->user_table,
                                                 .n = items->n,
                                                 .number = als->item_number,
                                                 .begin = items->begin,
                                                 .other = items->other,
                                                 .value = items->value,
                                                 .keys = items->key,
                                                 .n_keys = items->keys};
    return TR_OK;
}

static int open_arena(const struct tr_mf_als *als, size_t number, struct tr_als_arena *arena)
{
    size_t rows = 0, keys = 0;
    for (int s = 0; s < 2; s++) {
        const struct tr_als_side *side = &als->side[s];
        if (side->batches <= number) continue;
        rows = tr_max_size(rows, side->largest);
        keys = tr_max_size(keys, side->n_keys);
    }
    TR_TRY(TR_NEW(&arena->key, rows));
    TR_TRY(TR_NEW(&arena->order, rows));
    TR_TRY(TR_NEW(&arena->slot, keys));
    TR_TRY(tr_mf_memory((void **)&arena->row, rows * als->stride, sizeof(float)));
    return TR_NEW(&arena->bias, rows);
}

static int open_worker(struct tr_mf_als *als)
{
    struct tr_mf *m = als->m;
    const struct tr_solve_problem problem = {.rank = m->rank,
                                             .bias = m->bias,
                                             .nonnegative = m->o->nonnegative,
                                             .implicit = m->implicit,
                                             .weighted = m->o->l2_weighted,
                                             .l2 = m->l2,
                                             .confidence = m->o->confidence};
    TR_TRY(tr_solver_new(&problem, tr_cpu(), &als->solver));
    als->stride = (m->rank + TR_MF_ALIGN - 1) / TR_MF_ALIGN * TR_MF_ALIGN;
    TR_TRY(open_sides(als));
    for (int s = 0; s < 2; s++) TR_TRY(plan_batches(als, &als->side[s]));
    for (size_t a = 0; a < 2; a++) TR_TRY(open_arena(als, a, &als->arena[a]));
    size_t sums = tr_solver_sums(als->solver), rows = tr_max_size(als->side[0].n, als->side[1].n);
    als->ahead = tr_job_number(tr_context_job(m->tr), "table.ahead") > 0 &&
                 (tr_nodes(m->tr) > 1 || als->limits.quantum > 0);
    als->begun_most = als->ahead ? tr_min_size(als->limits.sums_bytes / (sums * sizeof(float)), rows) : 0;
    TR_TRY(tr_mf_memory((void **)&als->sums, (als->begun_most + 1) * sums, sizeof(float)));
    TR_TRY(TR_NEW(&als->begun_at, als->begun_most));
    TR_TRY(TR_NEW(&als->other, TR_ALS_CHUNK));
    TR_TRY(TR_NEW(&als->target, TR_ALS_CHUNK));
    TR_TRY(TR_NEW(&als->x, m->width));
    als->look_every = tr_max_size(
        (size_t)tr_job_number(tr_context_job(m->tr), "table.row_bytes") / (m->width * sizeof(float)), 1);
    return m->implicit ? TR_NEW(&als->gram, tr_solver_gram(als->solver)) : TR_OK;
}

void tr_mf_als_free(struct tr_mf_als **als)
{
    struct tr_mf_als *a = *als;
    if (!a) return;
    for (int s = 0; s < 2; s++) {
        struct tr_als_side *side = &a->side[s];
        struct tr_als_arena *arena = &a->arena[s];
        tr_view_close(&side->view);
        tr_view_close(&side->gram);
        free_batches(side);
        void *parts[] = {side->turn,  side->gram_mine, arena->key, arena->order,
                         arena->slot, arena->row,      arena->bias};
        for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) free(parts[i]);
    }
    void *parts[] = {a->x, a->item_number, (void *)a->other, a->target, a->gram, a->sums, a->begun_at};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) free(parts[i]);
    tr_mf_lists_free(&a->by_item);
    tr_solver_free(&a->solver);
    free(a);
    *als = NULL;
}

/* ---- implicit ratings: Σ v vᵀ over all rows ---- */

/* Computes the sum over this worker's rows of a side. */
static void add_rows(struct tr_mf_als *als, const struct tr_als_side *side, double *gram)
{
    memset(gram, 0, tr_solver_gram(als->solver) * sizeof *gram);
    tr_gram_add(als->solver, side->n, side->view->value, als->m->width, gram);
}

/* Pushes the change of this sum since the last push. */
static int push_gram(struct tr_mf_als *als, struct tr_als_side *side)
{
    size_t n = tr_solver_gram(als->solver);
    double *delta = side->gram->delta;
    add_rows(als, side, als->gram);
    for (size_t k = 0; k < n; k++) {
        delta[k] = als->gram[k] - side->gram_mine[k];
        side->gram_mine[k] = als->gram[k];
    }
    return tr_view_push(side->gram);
}

/* Computes the sum over the initial values of all items. All workers. */
static int sum_first_gram(struct tr_mf_als *als)
{
    const struct tr_als_side *items = &als->side[TR_MF_ITEM];
    for (size_t i = 0; i < items->n; i++) {
        tr_mf_first_row(als->m, TR_MF_ITEM, items->number[i], als->x);
        tr_gram_add(als->solver, 1, als->x, als->m->width, als->gram);
    }
    return tr_all_reduce(als->m->tr, TR_SET_WORKERS, TR_SUM, TR_F64, als->gram, tr_solver_gram(als->solver));
}

static int set_gram(struct tr_mf_als *als, const struct tr_als_side *other, bool first_clock)
{
    if (!first_clock) TR_TRY(tr_view_pull(other->gram));
    tr_gram_set(als->solver, first_clock ? als->gram : other->gram->value);
    return TR_OK;
}

static int open_gram(struct tr_mf_als *als, struct tr_als_side *side)
{
    size_t n = tr_solver_gram(als->solver);
    tr_key *keys;
    TR_TRY(TR_NEW(&side->gram_mine, n));
    TR_TRY(TR_NEW(&keys, n));
    for (size_t k = 0; k < n; k++) keys[k] = k;
    int status = tr_view_open(side->gram_table, keys, n, TR_VIEW_UPDATE, &side->gram);
    free(keys);
    return status;
}

/* ---- the stage ---- */

/* A side that is solved in one batch reads the same rows after each update. */
static int subscribe(const struct tr_als_side *side)
{
    if (side->batches != 1) return TR_OK;
    const struct tr_als_batch *batch = &side->batch[0];
    tr_key *keys;
    TR_TRY(TR_NEW(&keys, batch->n));
    for (size_t i = 0; i < batch->n; i++) keys[i] = side->keys[batch->place[i]];
    int status = tr_rows_subscribe(side->from, keys, batch->n);
    free(keys);
    return status;
}

static int prepare(tr_worker *me, void *state)
{
    (void)me;
    struct tr_mf *m = state;
    for (int s = 0; s < 2; s++) {
        struct tr_als_side *side = &m->als->side[s];
        TR_TRY(tr_view_open(side->own, side->number, side->n, TR_VIEW_UPDATE, &side->view));
        if (m->implicit) TR_TRY(open_gram(m->als, side));
        TR_TRY(subscribe(side));
    }
    return tr_mf_open_tests(m);
}

/* One clock. All pulls precede all pushes. */
static int compute(tr_worker *me, void *state)
{
    struct tr_mf *m = state;
    struct tr_als_side *side = &m->als->side[me->clock % 2], *other = &m->als->side[!(me->clock % 2)];
    m->als->now = side;
    if (m->implicit) TR_TRY(set_gram(m->als, other, me->clock == 0));
    TR_TRY(tr_turn_begin(m->tr, me->clock % 2 ? "items" : "users"));
    TR_TRY(tr_turn_end(m->tr, tr_als_solve_side(m->als, me->clock == 0)));
    if (m->implicit) TR_TRY(push_gram(m->als, side));
    return tr_view_push(side->view);
}

static const float *user_row(const struct tr_mf *m, size_t i)
{
    return (const float *)m->als->side[TR_MF_USER].view->value + i * m->width;
}

/* The loss of the items after their solution, given the users: the state of both tables. */
static int evaluate(tr_worker *me, void *state, tr_report *report)
{
    (void)me;
    struct tr_mf *m = state;
    const struct tr_als_side *items = &m->als->side[TR_MF_ITEM];
    report->sum[TR_MF_SQUARES] = items->loss;
    report->sum[TR_MF_RATINGS] = (double)items->begin[items->n];
    return tr_mf_add_tests(m, user_row, report);
}

/* Lists the rows of a side. The table sums up the changes of a row, which is not equal to the row in the last bits. */
static int snapshot_side(tr_worker *me, struct tr_mf *m, enum tr_mf_side which, tr_snapshot *snapshot)
{
    struct tr_als_side *side = &m->als->side[which];
    bool users = which == TR_MF_USER, works = me->worker >= 0;
    TR_TRY(tr_model_keep_sums(me, snapshot, users ? "user_losses" : "item_losses", 1, &side->loss));
    TR_TRY(tr_snapshot_rows(snapshot, users ? "users" : "items", TR_F32, users ? m->users : m->items,
                            m->width, side->number, 0, side->n, works ? side->view->value : NULL));
    if (works && m->implicit && tr_snapshot_restores(snapshot)) add_rows(m->als, side, side->gram_mine);
    return TR_OK;
}

static int snapshot(tr_worker *me, void *state, tr_snapshot *list)
{
    struct tr_mf *m = state;
    TR_TRY(tr_mf_snapshot_evaluation(m, list));
    TR_TRY(snapshot_side(me, m, TR_MF_USER, list));
    return snapshot_side(me, m, TR_MF_ITEM, list);
}

static int open_here(struct tr_mf *m, const struct tr_als_limits *limits)
{
    TR_TRY(TR_NEW(&m->als, 1));
    m->als->m = m;
    m->als->limits = limits ? *limits : default_limits;
    if (tr_set_rank(m->tr, TR_SET_WORKERS) < 0) return TR_OK;
    TR_TRY(open_worker(m->als));
    return m->implicit ? sum_first_gram(m->als) : TR_OK;
}

int tr_als_train(struct tr_mf *m, const struct tr_als_limits *limits)
{
    static const char *const gram_name[] = {"users squared", "items squared"};
    TR_TRY(tr_agree(m->tr, open_here(m, limits)));
    for (int s = 0; m->implicit && s < 2; s++)
        TR_TRY(
            tr_table_create(m->tr, gram_name[s], TR_F64, 1, m->rank * m->rank, &m->als->side[s].gram_table));
    for (int s = 0; s < 2; s++) {
        struct tr_als_side *side = &m->als->side[s];
        tr_table_update_every(s == TR_MF_USER ? m->user_table : m->item_table, 2, s);
        if (m->implicit) tr_table_update_every(side->gram_table, 2, s);
    }
    tr_stage train = {.name = "train",
                      .state = m,
                      .clocks = 2 * (int64_t)m->epochs,
                      .evaluate_every = 2 * (int64_t)m->report_every,
                      .epochs_per_clock = 0.5,
                      .metric_name = m->test ? "test rmse" : NULL,
                      .prepare = prepare,
                      .compute = compute,
                      .evaluate = evaluate,
                      .summarize = tr_mf_summarize,
                      .snapshot = snapshot};
    return tr_run(m->tr, &train);
}

int tr_mf_als_train(struct tr_mf *m)
{
    return tr_als_train(m, NULL);
}
