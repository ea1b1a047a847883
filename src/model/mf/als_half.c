/* One half of a sweep: solves all rows of one side, given those of the other, batch by batch. Rows that a batch needs are
 * stored in its arena as they arrive. Meanwhile the previous batch is solved, or sums of this batch are accumulated, for a
 * time that depends on the time spent waiting. Rows with sums are solved first once all rows have arrived. Changes are written
 * to the view of the side; als.c pushes them.
 */
#include "als.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Maximum number of extensions of the sums of a row while rows arrive. */
enum { VISITS = 4 };

static const uint32_t NOT_HERE = UINT32_MAX;
/* In seconds: minimum waiting time that counts, maximum computation between two polls, and between two answers. */
static const double NOTICED = 1e-4, LONGEST = 0.05, ANSWER_EVERY = 1e-4;

/* ---- gathering and solving ---- */

/* Collects the ratings k .. end - 1 of a row (at most TR_ALS_CHUNK) whose rows arrived at position `from` or later. Returns
 * their number. */
static size_t look_up(struct tr_mf_als *als, const struct tr_als_arena *arena, uint64_t k, uint64_t end,
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

static float *sums_of(const struct tr_mf_als *als, size_t begun)
{
    return als->sums + begun * tr_solver_sums(als->solver);
}

/* Adds the ratings of row i whose rows arrived at position `from` or later to the sums; from = 0 clears the sums first. */
static void add_to(struct tr_mf_als *als, const struct tr_als_arena *arena, size_t i, uint32_t from,
                   float *sums)
{
    const struct tr_als_side *side = als->now;
    if (from == 0) memset(sums, 0, tr_solver_sums(als->solver) * sizeof *sums);
    for (uint64_t k = side->begin[i], end; k < side->begin[i + 1]; k = end) {
        end = side->begin[i + 1] - k > TR_ALS_CHUNK ? k + TR_ALS_CHUNK : side->begin[i + 1];
        size_t n = look_up(als, arena, k, end, from);
        if (n > 0) tr_solve_add(als->solver, n, als->other, als->target, sums);
    }
}

/* Computes the loss of row i, given as als->x, from its ratings. */
static double loss_of(struct tr_mf_als *als, const struct tr_als_arena *arena, size_t i)
{
    const struct tr_als_side *side = als->now;
    double loss = 0;
    for (uint64_t k = side->begin[i], end; k < side->begin[i + 1]; k = end) {
        end = side->begin[i + 1] - k > TR_ALS_CHUNK ? k + TR_ALS_CHUNK : side->begin[i + 1];
        size_t n = look_up(als, arena, k, end, 0);
        loss += tr_solve_loss(als->solver, n, als->other, als->target, als->x);
    }
    return loss;
}

/* Solves one row, using its sums if there are any, and writes the change to the view. */
static int solve_row(struct tr_mf_als *als, const struct tr_als_arena *arena, size_t turn)
{
    struct tr_als_side *side = als->now;
    size_t i = side->turn[turn], begun = turn - arena->batch->first, width = als->m->width;
    size_t n = (size_t)(side->begin[i + 1] - side->begin[i]);
    float *value = (float *)side->view->value + i * width, *delta = (float *)side->view->delta + i * width;
    bool is_begun = arena == als->filling && begun < als->begun;
    memcpy(als->x, value, width * sizeof *value);
    if (n <= TR_ALS_CHUNK && !is_begun) {
        look_up(als, arena, side->begin[i], side->begin[i + 1], 0);
        TR_TRY(tr_solve(als->solver, n, als->other, als->target, als->x));
    } else {
        float *sums = sums_of(als, is_begun ? begun : als->begun_most);
        add_to(als, arena, i, is_begun ? als->begun_at[begun] : 0, sums);
        TR_TRY(tr_solve_sums(als->solver, n, sums, als->x));
    }
    for (size_t k = 0; k < width; k++) {
        delta[k] = als->x[k] - value[k];
        value[k] = als->x[k];
    }
    struct tr_solve_fit fit = tr_solver_fit(als->solver);
    bool asked = side->which == TR_MF_ITEM; /* evaluations use the loss of the items */
    side->loss += fit.cancels && asked ? loss_of(als, arena, i) : fit.loss;
    return TR_OK;
}

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
static int answer(struct tr_mf_als *als, double now)
{
    if (now - als->answered_at < ANSWER_EVERY) return TR_OK;
    als->answered_at = now;
    return tr_rows_meanwhile(als->now->from);
}

/* Solves the rows before `end` of a batch whose rows have all arrived. */
static int solve_until(struct tr_mf_als *als, struct tr_als_arena *arena, size_t end)
{
    while (arena->solved < end) {
        TR_TRY(solve_next(als, arena));
        TR_TRY(answer(als, tr_now()));
    }
    return TR_OK;
}

/* ---- while rows arrive ---- */

/* Returns whether enough rows have arrived for a row of the batch since its sums were last extended. */
static bool is_worth(const struct tr_mf_als *als, size_t at)
{
    const struct tr_als_arena *arena = als->filling;
    size_t i = als->now->turn[arena->batch->first + at], from = at < als->begun ? als->begun_at[at] : 0;
    double part = (double)(arena->arrived - from) / (double)arena->batch->n;
    double ratings = part * (double)(als->now->begin[i + 1] - als->now->begin[i]);
    return part * VISITS >= 1 && ratings >= als->limits.worth;
}

/* Extends the sums of the next row for which it is worth it, cyclically. Returns whether there was one. */
static bool begin_some(struct tr_mf_als *als)
{
    struct tr_als_arena *arena = als->filling;
    size_t most = tr_min_size(als->begun_most, arena->batch->end - arena->batch->first), at = als->next_begun;
    if (most == 0) return false;
    if (at >= most || !is_worth(als, at)) at = 0;
    if (!is_worth(als, at)) return false;
    if (at >= als->begun) als->begun_at[als->begun++] = 0;
    add_to(als, arena, als->now->turn[arena->batch->first + at], als->begun_at[at], sums_of(als, at));
    als->begun_at[at] = (uint32_t)arena->arrived;
    als->next_begun = at + 1;
    return true;
}

/* Computes for als->now->quantum seconds, which increases if there was waiting since the last call and decreases otherwise. */
static int look(struct tr_mf_als *als)
{
    double begin = tr_now(), now = begin, *quantum = &als->now->quantum;
    if (!als->ahead) *quantum = 0; /* no rows are in flight */
    else if (als->waited > NOTICED) *quantum = fmin(*quantum + als->waited, LONGEST);
    else *quantum *= 0.8;
    *quantum = fmax(*quantum, als->limits.quantum);
    als->waited = 0;
    als->until_look = als->look_every;
    for (bool did = true; did && now - begin < *quantum; now = tr_now()) {
        if (als->ready && als->ready->solved < als->ready->batch->end) TR_TRY(solve_next(als, als->ready));
        else did = begin_some(als);
        TR_TRY(answer(als, now));
    }
    return TR_OK;
}

/* Stores a row that has arrived. */
static void store_row(struct tr_mf_als *als, size_t slot, const float *row)
{
    struct tr_als_arena *arena = als->filling;
    size_t rank = als->m->rank;
    memcpy(arena->row + slot * als->stride, row, rank * sizeof *row);
    arena->bias[slot] = als->m->bias ? row[rank] : 0;
    arena->order[slot] = (uint32_t)arena->arrived++;
}

static int receive_row(void *state, const tr_row *row)
{
    struct tr_mf_als *als = state;
    als->waited += tr_now() - als->left_at;
    store_row(als, row->place, row->value);
    if (--als->until_look == 0) TR_TRY(look(als));
    als->left_at = tr_now();
    return TR_OK;
}

static void begin_batch(struct tr_mf_als *als, size_t b)
{
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
}

/* Pulls the rows of a batch. In the first clock the table of items is empty, and the initial values are computed. */
static int get_rows(struct tr_mf_als *als, bool first_clock)
{
    const struct tr_als_arena *arena = als->filling;
    if (!first_clock) return tr_rows_pull(als->now->from, arena->key, arena->batch->n, receive_row, als);
    for (size_t slot = 0; slot < arena->batch->n; slot++) {
        tr_mf_first_row(als->m, TR_MF_ITEM, arena->key[slot], als->x);
        store_row(als, slot, als->x);
    }
    return TR_OK;
}

int tr_als_solve_side(struct tr_mf_als *als, bool first_clock)
{
    als->now->loss = 0;
    als->ready = NULL;
    for (size_t b = 0; b < als->now->batches; b++) {
        begin_batch(als, b);
        TR_TRY(get_rows(als, first_clock));
        if (als->ready) TR_TRY(solve_until(als, als->ready, als->ready->batch->end));
        /* rows with sums are solved now, because the next batch reuses the memory of the sums */
        TR_TRY(solve_until(als, als->filling, als->filling->batch->first + als->begun));
        als->ready = als->filling;
    }
    als->begun = 0;
    return als->ready ? solve_until(als, als->ready, als->ready->batch->end) : TR_OK;
}
