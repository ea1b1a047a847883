/* One half of a sweep: all rows of one side are solved, given those of the other, batch by batch. Rows that a batch
 * needs go into its arena as they arrive; meanwhile the batch before is solved, or sums of this one's equations are
 * begun, for as long as waiting has shown that there is time; rows that were begun are solved first, when all is here.
 * What a row changes goes into the view of the side; als.c pushes it.
 */
#include "model/mf/als_parts.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "trireme/rows.h"

/* Sums are begun in so many visits: each for at least this part of the rows. */
enum { VISITS = 4 };

static const uint32_t NOT_HERE = UINT32_MAX;
/* Seconds: waiting that is noticed, the longest computation between two looks, and between two answers to others. */
static const double NOTICED = 1e-4, LONGEST = 0.05, ANSWER_EVERY = 1e-4;

/* ---- gathering and solving ---- */

/* The ratings k .. end - 1, at most TR_ALS_CHUNK, whose rows came from the `from`-th on, are looked up. Returns how
 * many. */
static size_t look_up(struct tr_mf_als *als, const struct tr_als_arena *arena, uint64_t k, uint64_t end,
                      uint32_t from)
{
    const struct tr_als_side *side = als->now;
    const struct tr_als_needs *needs = arena->needs;
    bool plain = tr_als_implicit(als->m);
    float mean = (float)als->m->mean;
    size_t n = 0;
    for (; k < end; k++) {
        size_t slot = needs->slot[tr_als_place_of(side, k)];
        if (arena->order[slot] < from || arena->order[slot] == NOT_HERE) continue;
        float value = tr_als_value_of(side, k);
        als->other[n] = arena->row + slot * als->stride;
        als->target[n++] = plain ? value : value - mean - arena->bias[slot];
    }
    return n;
}

static float *sums_of(const struct tr_mf_als *als, size_t begun)
{
    return als->sums + begun * tr_solver_sums(als->solver);
}

/* What the fit is measured from (tr_solver_fit()). */
static double squares(const struct tr_mf_als *als, size_t n)
{
    double sum = 0, confidence = als->m->job->model.confidence;
    for (size_t i = 0; i < n; i++) {
        double t = (double)als->target[i];
        sum += !tr_als_implicit(als->m) ? t * t : t > 0 ? 1 + confidence * t : 0;
    }
    return sum;
}

/* Adds the ratings of row i whose rows came from the `from`-th on to the sums. */
static void add_to(struct tr_mf_als *als, const struct tr_als_arena *arena, size_t i, uint32_t from,
                   float *sums)
{
    const struct tr_als_side *side = als->now;
    for (uint64_t k = side->begin[i], end; k < side->begin[i + 1]; k = end) {
        end = side->begin[i + 1] - k > TR_ALS_CHUNK ? k + TR_ALS_CHUNK : side->begin[i + 1];
        size_t n = look_up(als, arena, k, end, from);
        if (n > 0) tr_solve_add(als->solver, n, als->other, als->target, sums);
    }
}

/* The change goes into the view. */
static void snapshot(struct tr_mf_als *als, size_t i, const float *x, double square)
{
    struct tr_als_side *side = als->now;
    size_t width = als->m->width;
    float *value = (float *)side->view->value + i * width, *delta = (float *)side->view->delta + i * width;
    struct tr_solve_fit fit = tr_solver_fit(als->solver);
    for (size_t k = 0; k < width; k++) {
        delta[k] = x[k] - value[k];
        value[k] = x[k];
    }
    side->loss += square - fit.gain - fit.penalty;
    side->penalty += fit.penalty;
}

/* The first rows that a turn needs are fetched into the cache while the one before is solved. */
static void announce(struct tr_mf_als *als, const struct tr_als_arena *arena, size_t turn)
{
    enum { FIRST = 128 };
    const struct tr_als_side *side = als->now;
    size_t n = 0, i = turn < arena->end ? side->turn[turn] : 0;
    for (uint64_t k = side->begin[i]; turn < arena->end && k < side->begin[i + 1] && n < FIRST; k++)
        als->next[n++] = arena->row + arena->needs->slot[tr_als_place_of(side, k)] * als->stride;
    tr_solver_next(als->solver, n, als->next);
}

static int solve_row(struct tr_mf_als *als, const struct tr_als_arena *arena, size_t turn, float *x)
{
    const struct tr_als_side *side = als->now;
    size_t i = side->turn[turn], begun = turn - arena->first;
    size_t n = (size_t)(side->begin[i + 1] - side->begin[i]), width = als->m->width;
    double square = 0;
    memcpy(x, (float *)side->view->value + i * width, width * sizeof *x);
    bool is_begun = arena == als->filling && begun < als->begun;
    if (n <= TR_ALS_CHUNK && !is_begun) {
        look_up(als, arena, side->begin[i], side->begin[i + 1], 0);
        TR_TRY(tr_solve(als->solver, n, als->other, als->target, x));
        square = squares(als, n);
    } else {
        float *sums = sums_of(als, is_begun ? begun : als->begun_most);
        if (!is_begun) memset(sums, 0, tr_solver_sums(als->solver) * sizeof *sums);
        add_to(als, arena, i, is_begun ? als->begun_at[begun] : 0, sums);
        TR_TRY(tr_solve_sums(als->solver, n, sums, x));
        for (uint64_t k = side->begin[i], end; k < side->begin[i + 1]; k = end) {
            end = side->begin[i + 1] - k > TR_ALS_CHUNK ? k + TR_ALS_CHUNK : side->begin[i + 1];
            square += squares(als, look_up(als, arena, k, end, 0));
        }
    }
    snapshot(als, i, x, square);
    return TR_OK;
}

static int fail_at(const struct tr_mf_als *als, size_t i, int status)
{
    char why[512];
    if (status != TR_ERR_DIVERGED) return status;
    snprintf(why, sizeof why, "%s", tr_error_text());
    return tr_fail(status, "%s %llu: %s", als->now->which == TR_MF_USER ? "user" : "item",
                   (unsigned long long)als->now->number[i], why);
}

static int solve_next(struct tr_mf_als *als, struct tr_als_arena *arena)
{
    size_t turn = arena->solved++;
    announce(als, arena, turn + 1);
    return fail_at(als, als->now->turn[turn], solve_row(als, arena, turn, als->x));
}

/* Lets this rank answer others now and then. */
static int answer(struct tr_mf_als *als, double now)
{
    if (now - als->answered_at < ANSWER_EVERY) return TR_OK;
    als->answered_at = now;
    return tr_rows_meanwhile(als->now->from);
}

/* Solves the turns before `end` of a batch of which all needs are here. */
static int solve_until(struct tr_mf_als *als, struct tr_als_arena *arena, size_t end)
{
    double begin = tr_now();
    while (arena->solved < end) {
        TR_TRY(solve_next(als, arena));
        TR_TRY(answer(als, tr_now()));
    }
    als->times.solve += tr_now() - begin;
    return TR_OK;
}

/* ---- while rows arrive ---- */

/* Whether enough has come for a row of the batch since its sums were added to last. */
static bool is_worth(const struct tr_mf_als *als, size_t at)
{
    const struct tr_als_arena *arena = als->filling;
    size_t i = als->now->turn[arena->first + at], from = at < als->begun ? als->begun_at[at] : 0;
    double part = (double)(arena->arrived - from) / (double)arena->needs->n;
    double ratings = part * (double)(als->now->begin[i + 1] - als->now->begin[i]);
    return part * VISITS >= 1 && ratings >= als->limits.worth;
}

/* Adds what has come to the sums of the next row for which that is worth it; after the last one the first comes again. */
static bool begin_some(struct tr_mf_als *als)
{
    struct tr_als_arena *arena = als->filling;
    size_t most = tr_min_size(als->begun_most, arena->end - arena->first), at = als->next_begun;
    if (most == 0) return false;
    if (at >= most || !is_worth(als, at)) at = 0;
    if (!is_worth(als, at)) return false;
    bool fresh = at >= als->begun;
    if (fresh) memset(sums_of(als, at), 0, tr_solver_sums(als->solver) * sizeof *als->sums);
    add_to(als, arena, als->now->turn[arena->first + at], fresh ? 0 : als->begun_at[at], sums_of(als, at));
    als->begun_at[at] = (uint32_t)arena->arrived;
    als->next_begun = at + 1;
    als->begun += fresh;
    return true;
}

static int compute_some(struct tr_mf_als *als, bool *did)
{
    *did = true;
    if (als->ready && als->ready->solved < als->ready->end) return solve_next(als, als->ready);
    *did = begin_some(als);
    return TR_OK;
}

/* Computes for a while, for longer if one had to wait since the last look, for less if not. */
static int look(struct tr_mf_als *als)
{
    double begin = tr_now(), now = begin, *quantum = &als->now->quantum;
    if (als->m->job->table.ahead == 0) *quantum = 0; /* nothing is under way */
    else if (als->waited > NOTICED) *quantum = fmin(*quantum + als->waited, LONGEST);
    else *quantum *= 0.8;
    *quantum = fmax(*quantum, als->limits.quantum);
    als->waited = 0;
    als->until_look = als->look_every;
    for (bool did = true; did && now - begin < *quantum; now = tr_now()) {
        TR_TRY(compute_some(als, &did));
        TR_TRY(answer(als, now));
    }
    als->times.solve += now - begin;
    als->times.hidden += now - begin;
    return TR_OK;
}

/* Keeps a row that has come. */
static void put(struct tr_mf_als *als, size_t slot, const float *row)
{
    struct tr_als_arena *arena = als->filling;
    size_t rank = als->m->rank;
    memcpy(arena->row + slot * als->stride, row, rank * sizeof *row);
    arena->bias[slot] = als->m->bias ? row[rank] : 0;
    arena->order[slot] = (uint32_t)arena->arrived++;
}

static int take(void *state, const tr_row *row)
{
    struct tr_mf_als *als = state;
    als->waited += tr_now() - als->left_at;
    put(als, row->place, row->value);
    if (--als->until_look == 0) TR_TRY(look(als));
    als->left_at = tr_now();
    return TR_OK;
}

/* Before the first clock the items' table is still empty: everybody knows what their first values are. */
static void put_first_rows(struct tr_mf_als *als)
{
    const struct tr_als_needs *needs = als->filling->needs;
    float *row = als->x;
    for (size_t slot = 0; slot < needs->n; slot++) {
        tr_mf_first_row(als->m, TR_MF_ITEM, needs->key[slot], row);
        put(als, slot, row);
    }
}

static int pull_batch(struct tr_mf_als *als, bool first_clock)
{
    struct tr_als_arena *arena = als->filling;
    als->begun = als->next_begun = 0;
    als->waited = 0;
    als->until_look = als->look_every;
    if (first_clock) {
        put_first_rows(als);
        return TR_OK;
    }
    als->left_at = tr_now();
    return tr_rows_pull(als->now->from, arena->needs->key, arena->needs->n, take, als);
}

static int begin_batch(struct tr_mf_als *als, size_t b, struct tr_als_arena *arena)
{
    struct tr_als_side *side = als->now;
    arena->needs = side->batches == 1 ? &side->needs : &arena->own;
    arena->first = arena->solved = side->batch[b];
    arena->end = side->batch[b + 1];
    arena->arrived = 0;
    if (side->batches > 1) {
        uint8_t *needed;
        TR_TRY(TR_NEW(&needed, side->n_keys));
        tr_als_give_slots(side, arena->first, arena->end, needed, &arena->own);
        free(needed);
    }
    for (size_t slot = 0; slot < arena->needs->n; slot++) arena->order[slot] = NOT_HERE;
    als->filling = arena;
    return TR_OK;
}

int tr_als_solve_side(struct tr_mf_als *als, bool first_clock)
{
    als->now->loss = als->now->penalty = 0;
    als->ready = NULL;
    for (size_t b = 0; b < als->now->batches; b++) {
        TR_TRY(begin_batch(als, b, &als->arena[b % 2]));
        TR_TRY(pull_batch(als, first_clock));
        if (als->ready) TR_TRY(solve_until(als, als->ready, als->ready->end));
        /* rows that are begun have the only sums there are: they are solved before the next batch begins some */
        TR_TRY(solve_until(als, als->filling, als->filling->first + als->begun));
        als->ready = als->filling;
    }
    als->begun = 0;
    return als->ready ? solve_until(als, als->ready, als->ready->end) : TR_OK;
}
