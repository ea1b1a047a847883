/* Alternating least squares: state of a worker, and the stage. An even clock computes the rows of users, an odd clock those of
 * items; both push the changes. With implicit ratings, a separate table contains Σ v vᵀ over all rows of a side. Evaluations use
 * the loss that the solver computed. mf.h explains the method and the words own side, batch and arena. */
#include "mf.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct tr_als_limits default_limits = {
    .arena_bytes = (size_t)256 << 20, .sums_bytes = (size_t)256 << 20, .worth = 32};

/* ---- batches ---- */

/* Marks the rows of the other side that the own row side->turn[turn] needs. Returns how many of them were not marked before. */
static size_t als_mark(const struct tr_als_side *side, size_t turn, uint8_t *needed)
{
    size_t i = side->turn[turn], n = 0;
    for (uint64_t k = side->begin[i]; k < side->begin[i + 1]; k++) {
        n += !needed[side->other[k]];
        needed[side->other[k]] = 1;
    }
    return n;
}

static void free_batches(struct tr_als_side *side)
{
    for (size_t b = 0; b < side->batches; b++) free(side->batch[b].place);
    free(side->batch);
    side->batch = NULL;
    side->batches = side->largest = 0;
}

/* Divides the own rows into batches that need at most `most` rows of the other side each. */
static int cut_batches(struct tr_als_side *side, size_t most, uint8_t *needed)
{
    size_t capacity = 0, first = 0;
    free_batches(side);
    while (first < side->n) {
        TR_TRY(TR_GROW(&side->batch, &capacity, side->batches + 1));
        struct tr_als_batch *batch = &side->batch[side->batches++];
        /* Extend the batch until the next own row would need too many rows; a batch has at least one own row. */
        size_t t = first, n = 0;
        memset(needed, 0, side->n_keys);
        for (size_t before = 0; t < side->n; t++, before = n) {
            n += als_mark(side, t, needed);
            if (n <= most || t == first) continue;
            n = before;
            break;
        }
        *batch = (struct tr_als_batch){.first = first, .end = t, .n = n};
        TR_TRY(TR_NEW(&batch->place, n));
        memset(needed, 0, side->n_keys);
        for (t = first; t < batch->end; t++) als_mark(side, t, needed);
        for (size_t place = 0, at = 0; place < side->n_keys; place++)
            if (needed[place]) batch->place[at++] = (uint32_t)place;
        side->largest = tr_max_size(side->largest, n);
        first = batch->end;
    }
    return TR_OK;
}

/* Sets the order of own rows, and divides them into batches. If one batch does not fit into the memory for arenas, batches use half
 * of the memory, because two arenas are needed. */
static int plan_batches(const struct tr_mf_als *als, struct tr_als_side *side)
{
    size_t most = als->limits.arena_bytes / (als->stride * sizeof(float));
    TR_FREED uint8_t *needed = NULL;
    /* Sort own rows by descending number of ratings: extending the sums of the first rows while rows arrive saves most work. */
    TR_FREED uint64_t *sorted = NULL;
    TR_TRY(TR_NEW(&side->turn, side->n));
    TR_TRY(TR_NEW(&sorted, side->n));
    for (size_t i = 0; i < side->n; i++) {
        uint64_t n = side->begin[i + 1] - side->begin[i];
        sorted[i] = (UINT32_MAX - (n < UINT32_MAX ? n : UINT32_MAX)) << 32 | i;
    }
    qsort(sorted, side->n, sizeof *sorted, tr_compare_u64);
    for (size_t i = 0; i < side->n; i++) side->turn[i] = (uint32_t)sorted[i];
    TR_TRY(TR_NEW(&needed, side->n_keys));
    TR_TRY(cut_batches(side, most, needed));
    if (side->batches > 1) TR_TRY(cut_batches(side, tr_max_size(most / 2, 1), needed));
    return TR_OK;
}

/* ---- state of a worker ---- */

/* Creates the state of this rank. Workers exchange ratings, plan their batches, and allocate their buffers. */
static int als_open(struct tr_mf *m, const struct tr_als_limits *limits)
{
    struct tr_mf_als *als;
    TR_TRY(TR_NEW(&als, 1));
    m->als = als;
    als->m = m;
    als->limits = limits ? *limits : default_limits;
    if (tr_set_rank(m->tr, TR_SET_WORKERS) < 0) return TR_OK;
    const struct tr_solve_problem problem = {.rank = m->rank,
                                             .bias = m->bias,
                                             .nonnegative = m->o->nonnegative,
                                             .implicit = m->implicit,
                                             .weighted = m->o->l2_weighted,
                                             .l2 = m->l2,
                                             .bias_part = 1 / m->spread,
                                             .confidence = m->o->confidence};
    TR_TRY(tr_solver_new(&problem, tr_cpu(), &als->solver));
    als->stride = (m->rank + TR_MF_ALIGN - 1) / TR_MF_ALIGN * TR_MF_ALIGN;
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
    for (int s = 0; s < 2; s++) TR_TRY(plan_batches(als, &als->side[s]));
    /* Allocate the arenas; only sides with several batches use the second arena. */
    for (size_t a = 0; a < 2; a++) {
        struct tr_als_arena *arena = &als->arena[a];
        size_t rows = 0, keys = 0;
        for (int s = 0; s < 2; s++) {
            if (als->side[s].batches <= a) continue;
            rows = tr_max_size(rows, als->side[s].largest);
            keys = tr_max_size(keys, als->side[s].n_keys);
        }
        TR_TRY(TR_NEW(&arena->key, rows));
        TR_TRY(TR_NEW(&arena->order, rows));
        TR_TRY(TR_NEW(&arena->slot, keys));
        TR_TRY(TR_NEW_ALIGNED(&arena->row, rows * als->stride, false));
        TR_TRY(TR_NEW(&arena->bias, rows));
    }
    size_t sums = tr_solver_sums(als->solver), rows = tr_max_size(als->side[0].n, als->side[1].n);
    als->ahead = tr_job_number(tr_context_job(m->tr), "table.ahead") > 0 &&
                 (tr_nodes(m->tr) > 1 || als->limits.quantum > 0);
    als->begun_most = als->ahead ? tr_min_size(als->limits.sums_bytes / (sums * sizeof(float)), rows) : 0;
    TR_TRY(TR_NEW_ALIGNED(&als->sums, (als->begun_most + 1) * sums, false));
    TR_TRY(TR_NEW(&als->begun_at, als->begun_most));
    TR_TRY(TR_NEW(&als->other, TR_ALS_CHUNK));
    TR_TRY(TR_NEW(&als->target, TR_ALS_CHUNK));
    TR_TRY(TR_NEW(&als->x, m->width));
    als->look_every = tr_max_size(
        (size_t)tr_job_number(tr_context_job(m->tr), "table.row_bytes") / (m->width * sizeof(float)), 1);
    if (!m->implicit) return TR_OK;
    /* Compute Σ v vᵀ over the initial values of all items, which the first clock uses. */
    TR_TRY(TR_NEW(&als->gram, tr_solver_gram(als->solver)));
    for (size_t i = 0; i < items->n; i++) {
        tr_mf_first_row(m, TR_MF_ITEM, first + i, als->x);
        tr_gram_add(als->solver, 1, als->x, m->width, als->gram);
    }
    return tr_all_reduce(m->tr, TR_SET_WORKERS, TR_SUM, TR_F64, als->gram, tr_solver_gram(als->solver));
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
        TR_FREE_ALL(side->turn, side->gram_mine, arena->key, arena->order, arena->slot, arena->row,
                    arena->bias);
    }
    tr_mf_lists_free(&a->by_item);
    tr_solver_free(&a->solver);
    TR_FREE_ALL(a->x, a->item_number, (void *)a->other, a->target, a->gram, a->sums, a->begun_at, a);
    *als = NULL;
}

/* ================ one half of a sweep ================ */

/* Own rows are solved batch by batch. The rows that a batch needs are stored in its arena as they arrive. Meanwhile the previous
 * batch is solved, or the sums of this batch are extended, for a time that depends on the time spent waiting. When all rows have
 * arrived, own rows with sums are solved first. Changes are written to the view of the own side. */

/* Maximum number of times that the sums of an own row are extended while rows arrive. */
enum { VISITS = 4 };

static const uint32_t NOT_HERE = UINT32_MAX;
/* In seconds: minimum waiting time that counts, maximum computation between two polls, and minimum time between two answers. */
static const double NOTICED = 1e-4, LONGEST = 0.05, ANSWER_EVERY = 1e-4;

/* ---- gathering and solving ---- */

/* Collects, of the ratings k .. end - 1 of an own row (at most TR_ALS_CHUNK), those whose row of the other side has an
 * arena->order of `from` or more. Writes these rows and targets to als->other and als->target. Returns their number. */
static size_t als_look_up(struct tr_mf_als *als, const struct tr_als_arena *arena, uint64_t k, uint64_t end,
                          uint32_t from)
{
    const struct tr_als_side *side = als->now;
    const struct tr_mf *m = als->m;
    size_t n = 0;
    for (; k < end; k++) {
        size_t slot = arena->slot[side->other[k]];
        if (arena->order[slot] < from || arena->order[slot] == NOT_HERE) continue;
        float value = side->value ? side->value[k] : 1;
        als->other[n] = arena->row + slot * als->stride;
        als->target[n++] = m->implicit ? value : value - (float)m->mean - arena->bias[slot];
    }
    return n;
}

/* Adds the ratings of own row i whose row of the other side has an arena->order of `from` or more to the sums. from = 0 clears the
 * sums first. */
static void als_add_to(struct tr_mf_als *als, const struct tr_als_arena *arena, size_t i, uint32_t from,
                       float *sums)
{
    const struct tr_als_side *side = als->now;
    if (from == 0) memset(sums, 0, tr_solver_sums(als->solver) * sizeof *sums);
    for (uint64_t k = side->begin[i], end; k < side->begin[i + 1]; k = end) {
        end = side->begin[i + 1] - k > TR_ALS_CHUNK ? k + TR_ALS_CHUNK : side->begin[i + 1];
        size_t n = als_look_up(als, arena, k, end, from);
        if (n > 0) tr_solve_add(als->solver, n, als->other, als->target, sums);
    }
}

/* Solves the own row side->turn[turn], using its sums if it has some, and writes the change to the view. */
static int solve_row(struct tr_mf_als *als, const struct tr_als_arena *arena, size_t turn)
{
    struct tr_als_side *side = als->now;
    size_t i = side->turn[turn], begun = turn - arena->batch->first, width = als->m->width;
    size_t n = (size_t)(side->begin[i + 1] - side->begin[i]);
    float *value = (float *)side->view->value + i * width, *delta = (float *)side->view->delta + i * width;
    bool is_begun = arena == als->filling && begun < als->begun;
    memcpy(als->x, value, width * sizeof *value);
    if (n <= TR_ALS_CHUNK && !is_begun) {
        als_look_up(als, arena, side->begin[i], side->begin[i + 1], 0);
        TR_TRY(tr_solve(als->solver, n, als->other, als->target, als->x));
    } else {
        float *sums = als->sums + (is_begun ? begun : als->begun_most) * tr_solver_sums(als->solver);
        als_add_to(als, arena, i, is_begun ? als->begun_at[begun] : 0, sums);
        TR_TRY(tr_solve_sums(als->solver, n, sums, als->x));
    }
    for (size_t k = 0; k < width; k++) {
        delta[k] = als->x[k] - value[k];
        value[k] = als->x[k];
    }
    /* Evaluations use the loss of the items. If the solver's difference of sums is inaccurate, compute the loss from the
     * ratings. */
    struct tr_solve_fit fit = tr_solver_fit(als->solver);
    bool exactly = fit.cancels && side->which == TR_MF_ITEM;
    double loss = exactly ? 0 : fit.loss;
    for (uint64_t k = side->begin[i], end; exactly && k < side->begin[i + 1]; k = end) {
        end = side->begin[i + 1] - k > TR_ALS_CHUNK ? k + TR_ALS_CHUNK : side->begin[i + 1];
        size_t found = als_look_up(als, arena, k, end, 0);
        loss += tr_solve_loss(als->solver, found, als->other, als->target, als->x);
    }
    side->loss += loss;
    return TR_OK;
}

/* Solves the next own row of a batch; an error names the user or item. */
static int solve_next(struct tr_mf_als *als, struct tr_als_arena *arena)
{
    char why[512];
    size_t turn = arena->solved++;
    int status = solve_row(als, arena, turn);
    if (status != TR_ERR_DIVERGED) return status;
    snprintf(why, sizeof why, "%s", tr_error_text());
    return tr_fail(status, "%s %llu: %s", als->now->which == TR_MF_USER ? "user" : "item",
                   (unsigned long long)als->now->number[als->now->turn[turn]], why);
}

/* Answers requests of other ranks at most every ANSWER_EVERY seconds. */
static int als_answer(struct tr_mf_als *als, double now)
{
    if (now - als->answered_at < ANSWER_EVERY) return TR_OK;
    als->answered_at = now;
    return tr_rows_meanwhile(als->now->from);
}

/* Solves the own rows of a batch up to side->turn[end - 1]. All rows that the batch needs have arrived. */
static int als_solve_until(struct tr_mf_als *als, struct tr_als_arena *arena, size_t end)
{
    while (arena->solved < end) {
        TR_TRY(solve_next(als, arena));
        TR_TRY(als_answer(als, tr_now()));
    }
    return TR_OK;
}

/* ---- while rows arrive ---- */

/* Returns whether extending the sums of own row `at` of the batch is worth it: enough rows have arrived since the last
 * extension. */
static bool als_is_worth(const struct tr_mf_als *als, size_t at)
{
    const struct tr_als_arena *arena = als->filling;
    size_t i = als->now->turn[arena->batch->first + at], from = at < als->begun ? als->begun_at[at] : 0;
    double part = (double)(arena->arrived - from) / (double)arena->batch->n;
    double ratings = part * (double)(als->now->begin[i + 1] - als->now->begin[i]);
    return part * VISITS >= 1 && ratings >= als->limits.worth;
}

/* Extends the sums of the next own row if this is worth it, otherwise of the first one. Returns false if it is worth it for
 * neither. */
static bool als_begin_some(struct tr_mf_als *als)
{
    struct tr_als_arena *arena = als->filling;
    size_t most = tr_min_size(als->begun_most, arena->batch->end - arena->batch->first), at = als->next_begun;
    if (most == 0) return false;
    if (at >= most || !als_is_worth(als, at)) at = 0;
    if (!als_is_worth(als, at)) return false;
    if (at >= als->begun) als->begun_at[als->begun++] = 0;
    als_add_to(als, arena, als->now->turn[arena->batch->first + at], als->begun_at[at],
               als->sums + at * tr_solver_sums(als->solver));
    als->begun_at[at] = (uint32_t)arena->arrived;
    als->next_begun = at + 1;
    return true;
}

/* Stores a row of the other side that has arrived. */
static void als_store_row(struct tr_mf_als *als, size_t slot, const float *row)
{
    struct tr_als_arena *arena = als->filling;
    size_t rank = als->m->rank;
    memcpy(arena->row + slot * als->stride, row, rank * sizeof *row);
    arena->bias[slot] = als->m->bias ? row[rank] : 0;
    arena->order[slot] = (uint32_t)arena->arrived++;
}

static int als_receive_row(void *state, const tr_row *row)
{
    struct tr_mf_als *als = state;
    als->waited += tr_now() - als->left_at;
    als_store_row(als, row->place, row->value);
    if (--als->until_look == 0) {
        /* Compute for als->now->quantum seconds. This time increases if rows were waited for since the last poll, else it
         * decreases. */
        double begin = tr_now(), now = begin, *quantum = &als->now->quantum;
        if (!als->ahead) *quantum = 0; /* no rows arrive during computation */
        else if (als->waited > NOTICED) *quantum = fmin(*quantum + als->waited, LONGEST);
        else *quantum *= 0.8;
        *quantum = fmax(*quantum, als->limits.quantum);
        als->waited = 0;
        als->until_look = als->look_every;
        for (bool did = true; did && now - begin < *quantum; now = tr_now()) {
            if (als->ready && als->ready->solved < als->ready->batch->end)
                TR_TRY(solve_next(als, als->ready));
            else did = als_begin_some(als);
            TR_TRY(als_answer(als, now));
        }
    }
    als->left_at = tr_now();
    return TR_OK;
}

static int als_solve_side(struct tr_mf_als *als, bool first_clock)
{
    als->now->loss = 0;
    als->ready = NULL;
    for (size_t b = 0; b < als->now->batches; b++) {
        struct tr_als_side *side = als->now;
        struct tr_als_arena *arena = als->filling = &als->arena[b % 2];
        const struct tr_als_batch *batch = arena->batch = &side->batch[b];
        arena->solved = batch->first;
        arena->arrived = als->begun = als->next_begun = 0;
        for (size_t slot = 0; slot < batch->n; slot++) {
            arena->slot[batch->place[slot]] = (uint32_t)slot;
            arena->key[slot] = side->keys[batch->place[slot]];
            arena->order[slot] = NOT_HERE;
        }
        als->waited = 0;
        als->until_look = als->look_every;
        als->left_at = tr_now();
        if (!first_clock) TR_TRY(tr_rows_pull(side->from, arena->key, batch->n, als_receive_row, als));
        for (size_t slot = 0; slot < batch->n && first_clock; slot++) {
            /* The table of items is still empty: use the initial values. */
            tr_mf_first_row(als->m, TR_MF_ITEM, arena->key[slot], als->x);
            als_store_row(als, slot, als->x);
        }
        if (als->ready) TR_TRY(als_solve_until(als, als->ready, als->ready->batch->end));
        /* Some rows of this batch already have sums. Solve these rows now, because the next batch reuses the memory of the sums. */
        TR_TRY(als_solve_until(als, als->filling, als->filling->batch->first + als->begun));
        als->ready = als->filling;
    }
    als->begun = 0;
    return als->ready ? als_solve_until(als, als->ready, als->ready->batch->end) : TR_OK;
}

/* ================ the stage ================ */

/* ---- implicit ratings: Σ v vᵀ over all rows ---- */

/* Computes Σ v vᵀ over this worker's rows of a side. */
static void als_add_rows(struct tr_mf_als *als, const struct tr_als_side *side, double *gram)
{
    memset(gram, 0, tr_solver_gram(als->solver) * sizeof *gram);
    tr_gram_add(als->solver, side->n, side->view->value, als->m->width, gram);
}

/* ---- clocks ---- */

static int als_prepare(tr_worker *me, void *state)
{
    (void)me;
    struct tr_mf *m = state;
    for (int s = 0; s < 2; s++) {
        struct tr_als_side *side = &m->als->side[s];
        TR_TRY(tr_view_open(side->own, side->number, side->n, TR_VIEW_UPDATE, &side->view));
        if (m->implicit) {
            size_t n = tr_solver_gram(m->als->solver);
            TR_FREED tr_key *keys = NULL;
            TR_TRY(TR_NEW(&side->gram_mine, n));
            TR_TRY(TR_NEW(&keys, n));
            for (size_t k = 0; k < n; k++) keys[k] = k;
            TR_TRY(tr_view_open(side->gram_table, keys, n, TR_VIEW_UPDATE, &side->gram));
        }
        /* A side with one batch pulls the same rows after each update: subscribe to them. */
        if (side->batches == 1) {
            const struct tr_als_batch *batch = &side->batch[0];
            TR_FREED tr_key *keys = NULL;
            TR_TRY(TR_NEW(&keys, batch->n));
            for (size_t i = 0; i < batch->n; i++) keys[i] = side->keys[batch->place[i]];
            TR_TRY(tr_rows_subscribe(side->from, keys, batch->n));
        }
    }
    return tr_mf_open_tests(m);
}

/* Runs one clock. All pulls precede all pushes. */
static int als_compute(tr_worker *me, void *state)
{
    struct tr_mf *m = state;
    struct tr_als_side *side = &m->als->side[me->clock % 2], *other = &m->als->side[!(me->clock % 2)];
    m->als->now = side;
    if (m->implicit) {
        bool first_clock = me->clock == 0;
        if (!first_clock) TR_TRY(tr_view_pull(other->gram));
        tr_gram_set(m->als->solver, first_clock ? m->als->gram : other->gram->value);
    }
    TR_TRY(tr_turn_begin(m->tr, me->clock % 2 ? "items" : "users"));
    TR_TRY(tr_turn_end(m->tr, als_solve_side(m->als, me->clock == 0)));
    if (m->implicit) {
        size_t n = tr_solver_gram(m->als->solver);
        double *delta = side->gram->delta;
        als_add_rows(m->als, side, m->als->gram);
        for (size_t k = 0; k < n; k++) {
            delta[k] = m->als->gram[k] - side->gram_mine[k];
            side->gram_mine[k] = m->als->gram[k];
        }
        TR_TRY(tr_view_push(side->gram));
    }
    return tr_view_push(side->view);
}

static const float *als_user_row(const struct tr_mf *m, size_t i)
{
    return (const float *)m->als->side[TR_MF_USER].view->value + i * m->width;
}

/* Reports the loss of the items, which were solved last, given the users: it is the loss of the current values in both tables. */
static int als_evaluate(tr_worker *me, void *state, tr_report *report)
{
    (void)me;
    struct tr_mf *m = state;
    const struct tr_als_side *items = &m->als->side[TR_MF_ITEM];
    report->sum[TR_MF_SQUARES] = items->loss;
    report->sum[TR_MF_RATINGS] = (double)items->begin[items->n];
    return tr_mf_add_tests(m, als_user_row, report);
}

/* Writes the rows of both sides to a checkpoint, or restores them. The tables are not sufficient: they contain sums of changes,
 * which differ from the rows by rounding errors. */
static int als_snapshot(tr_worker *me, void *state, tr_snapshot *list)
{
    struct tr_mf *m = state;
    bool works = me->worker >= 0;
    TR_TRY(tr_model_keep_evaluation(list, &m->last));
    for (int s = 0; s < 2; s++) {
        struct tr_als_side *side = &m->als->side[s];
        bool users = s == TR_MF_USER;
        TR_TRY(tr_model_keep_sums(me, list, users ? "user_losses" : "item_losses", 1, &side->loss));
        TR_TRY(tr_snapshot_rows(list, users ? "users" : "items", TR_F32, users ? m->users : m->items,
                                m->width, side->number, 0, side->n, works ? side->view->value : NULL));
        if (works && m->implicit && tr_snapshot_restores(list)) als_add_rows(m->als, side, side->gram_mine);
    }
    return TR_OK;
}

int tr_mf_als_train(struct tr_mf *m, const struct tr_als_limits *limits)
{
    static const char *const gram_name[] = {"users squared", "items squared"};
    TR_TRY(tr_agree(m->tr, als_open(m, limits)));
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
                      .metric = {{m->test ? "test rmse" : NULL, false}},
                      .prepare = als_prepare,
                      .compute = als_compute,
                      .evaluate = als_evaluate,
                      .summarize = tr_mf_summarize,
                      .snapshot = als_snapshot};
    return tr_run(m->tr, &train);
}
