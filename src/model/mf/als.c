#include "model/mf/als.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ranks/ranks.h"
#include "trireme/rows.h"

enum {
    CHUNK = 1024, /* ratings that are looked up at a time */
    WORTH = 32,   /* ratings for which it pays to fetch a row's sums from memory */
    VISITS = 4,   /* in which sums are begun: each for at least this part of the rows */
    LINE_FLOATS = 16,
    CODE_SHIFT = 24, /* codes of values stand above places */
    CODED_PLACES = (1 << CODE_SHIFT) - 1
};

static const uint32_t NOT_HERE = UINT32_MAX;
static const struct tr_als_limits usual_limits = {
    .arena_bytes = (size_t)256 << 20, .sums_bytes = (size_t)256 << 20, .worth = WORTH};
/* Seconds: waiting that is noticed, the longest computation between two looks, and between two answers to others. */
static const double NOTICED = 1e-4, LONGEST = 0.05, ANSWER_EVERY = 1e-4;

static bool implicit(const struct tr_mf *m)
{
    return m->job->model.implicit;
}

/* ---- ratings ---- */

static size_t place_of(const struct tr_als_side *side, uint64_t k)
{
    return side->code ? side->other[k] & CODED_PLACES : side->other[k];
}

static float value_of(const struct tr_als_side *side, uint64_t k)
{
    if (side->code) return side->code[side->other[k] >> CODE_SHIFT];
    return side->value ? side->value[k] : 1;
}

/* ---- what each side needs ---- */

static int by_number(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Rows with many ratings come first: their equations, begun while rows arrive, take the most work for their memory. */
static int take_turns(struct tr_als_side *side)
{
    uint64_t *sorted;
    if (side->n > UINT32_MAX)
        return tr_fail(TR_ERR_SYSTEM, "solve.method als takes at most 2^32 users or items of one worker");
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

/* Counts the rows that are needed from turn `first` on, until they are more than `room`; returns the first turn that does
 * not fit. One alone may need more. */
static size_t find_needs(const struct tr_als_side *side, size_t first, size_t room, uint8_t *needed,
                         size_t *n)
{
    memset(needed, 0, side->n_keys);
    *n = 0;
    for (size_t t = first; t < side->n; t++) {
        size_t before = *n, i = side->turn[t];
        for (uint64_t k = side->begin[i]; k < side->begin[i + 1]; k++) {
            *n += !needed[place_of(side, k)];
            needed[place_of(side, k)] = 1;
        }
        if (*n <= room || t == first) continue;
        *n = before;
        return t;
    }
    return side->n;
}

/* Slots for what the turns first .. end - 1 need. */
static void give_slots(const struct tr_als_side *side, size_t first, size_t end, uint8_t *needed,
                       struct tr_als_needs *needs)
{
    memset(needed, 0, side->n_keys);
    for (size_t t = first; t < end; t++)
        for (uint64_t k = side->begin[side->turn[t]]; k < side->begin[side->turn[t] + 1]; k++)
            needed[place_of(side, k)] = 1;
    needs->n = 0;
    for (size_t key = 0; key < side->n_keys; key++) {
        if (!needed[key]) continue;
        needs->slot[key] = (uint32_t)needs->n;
        needs->key[needs->n++] = side->keys[key];
    }
}

static int needs_open(const struct tr_als_side *side, struct tr_als_needs *needs)
{
    TR_TRY(TR_NEW(&needs->key, side->largest));
    return TR_NEW(&needs->slot, side->n_keys);
}

static void needs_free(struct tr_als_needs *needs)
{
    free(needs->key);
    free(needs->slot);
}

/* Cuts the own rows into batches whose needs fit into an arena, or into half of one where one is not enough. */
static int cut_batches(struct tr_als_side *side, size_t room)
{
    uint8_t *needed;
    size_t n, capacity = 0;
    TR_TRY(take_turns(side));
    TR_TRY(TR_NEW(&needed, side->n_keys));
    if (find_needs(side, 0, room, needed, &n) < side->n) room = tr_max_size(room / 2, 1);
    int status = TR_GROW(&side->batch, &capacity, 2);
    for (size_t first = 0; status == TR_OK && first < side->n; side->batches++) {
        side->batch[side->batches] = first;
        first = find_needs(side, first, room, needed, &n);
        side->largest = tr_max_size(side->largest, n);
        status = TR_GROW(&side->batch, &capacity, side->batches + 2);
    }
    if (status == TR_OK) side->batch[side->batches] = side->n;
    if (status == TR_OK && side->batches == 1) {
        status = needs_open(side, &side->needs);
        if (status == TR_OK) give_slots(side, 0, side->n, needed, &side->needs);
    }
    free(needed);
    return status;
}

/* ---- opening ---- */

static void open_users(struct tr_mf_als *als)
{
    const tr_data *train = als->m->train;
    als->side[TR_MF_USER] = (struct tr_als_side){.which = TR_MF_USER,
                                                 .own = als->m->user_table,
                                                 .from = als->m->item_table,
                                                 .n = train->rows.n,
                                                 .number = train->row,
                                                 .begin = train->rows.begin,
                                                 .other = train->rows.column,
                                                 .value = train->rows.value,
                                                 .keys = train->keys,
                                                 .n_keys = train->n_keys};
}

/* The numbers of users become places in a list of those that occur. */
static int number_users(struct tr_mf_als *als, size_t *n_keys)
{
    struct tr_by_item *b = &als->by_item;
    uint64_t ratings = b->begin[b->n];
    uint32_t *place;
    size_t n = 0;
    TR_TRY(TR_NEW(&place, als->m->users));
    for (uint64_t k = 0; k < ratings; k++) place[b->user[k]] = 1;
    for (uint64_t u = 0; u < als->m->users; u++) n += place[u];
    int status = TR_NEW(&als->user_keys, n);
    *n_keys = n;
    n = 0;
    for (uint64_t u = 0; status == TR_OK && u < als->m->users; u++) {
        if (!place[u]) continue;
        als->user_keys[n] = u;
        place[u] = (uint32_t)n++;
    }
    for (uint64_t k = 0; status == TR_OK && k < ratings; k++) b->user[k] = place[b->user[k]];
    free(place);
    return status;
}

/* The code of a value: where it stands among those met so far; as many as there are if it is new and no more fit. */
static size_t code_of(float value, float *code, uint32_t *hashed, size_t *codes)
{
    enum { CODES = 256, SLOTS = 1024 };
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    size_t at = (bits * 2654435761u) >> 22;
    for (; hashed[at] > 0; at = (at + 1) % SLOTS)
        if (code[hashed[at] - 1] == value) return hashed[at] - 1;
    if (*codes == CODES) return CODES;
    code[*codes] = value;
    hashed[at] = (uint32_t)++ * codes;
    return *codes - 1;
}

/* Where there are few different values, as of stars, a rating takes 4 bytes: place and code in one. */
static int code_values(struct tr_mf_als *als, size_t places)
{
    struct tr_by_item *b = &als->by_item;
    uint64_t ratings = b->begin[b->n], k = 0;
    uint32_t hashed[1024] = {0};
    size_t codes = 0, code = 0;
    if (!b->value || places > CODED_PLACES) return TR_OK;
    TR_TRY(TR_NEW(&als->code, 256));
    while (k < ratings && (code = code_of(b->value[k], als->code, hashed, &codes)) < 256) k++;
    if (k < ratings) {
        free(als->code);
        als->code = NULL;
        return TR_OK;
    }
    for (k = 0; k < ratings; k++)
        b->user[k] |= (uint32_t)code_of(b->value[k], als->code, hashed, &codes) << CODE_SHIFT;
    free(b->value);
    b->value = NULL;
    return TR_OK;
}

static int open_items(struct tr_mf_als *als)
{
    struct tr_mf *m = als->m;
    struct tr_by_item *b = &als->by_item;
    size_t n_keys;
    if (m->users > UINT32_MAX)
        return tr_fail(TR_ERR_DATA, "%llu users: solve.method als takes at most 2^32",
                       (unsigned long long)m->users);
    TR_TRY(tr_by_item_open(m->tr, m->train, m->items, (double)m->rank / 3, b));
    TR_TRY(number_users(als, &n_keys));
    TR_TRY(code_values(als, n_keys));
    TR_TRY(TR_NEW(&als->item_number, b->n));
    for (size_t i = 0; i < b->n; i++) als->item_number[i] = b->first + i;
    als->side[TR_MF_ITEM] = (struct tr_als_side){.which = TR_MF_ITEM,
                                                 .own = m->item_table,
                                                 .from = m->user_table,
                                                 .n = b->n,
                                                 .number = als->item_number,
                                                 .begin = b->begin,
                                                 .other = b->user,
                                                 .value = b->value,
                                                 .code = als->code,
                                                 .keys = als->user_keys,
                                                 .n_keys = n_keys};
    return TR_OK;
}

static int lines(float **array, size_t n)
{
    *array = aligned_alloc(64, (n * sizeof(float) + 63) / 64 * 64);
    return *array ? TR_OK : tr_fail(TR_ERR_SYSTEM, "out of memory: %zu numbers of pulled rows", n);
}

static int open_arena(const struct tr_mf_als *als, size_t number, struct tr_als_arena *arena)
{
    size_t slots = 0;
    for (int s = 0; s < 2; s++) {
        const struct tr_als_side *side = &als->side[s];
        if (side->batches <= number) continue;
        slots = tr_max_size(slots, side->largest);
        if (side->batches < 2) continue;
        free(arena->own.slot);
        size_t keys = tr_max_size(als->side[0].n_keys, als->side[1].n_keys);
        TR_TRY(TR_NEW(&arena->own.slot, keys));
    }
    TR_TRY(TR_NEW(&arena->own.key, slots));
    TR_TRY(TR_NEW(&arena->order, slots));
    TR_TRY(lines(&arena->row, slots * als->stride + 1));
    return TR_NEW(&arena->bias, slots);
}

static int open_worker(struct tr_mf_als *als)
{
    struct tr_mf *m = als->m;
    const struct tr_solve_problem problem = {.rank = m->rank,
                                             .bias = m->bias && !implicit(m),
                                             .nonnegative = m->job->model.nonnegative,
                                             .implicit = implicit(m),
                                             .weighted = m->job->model.l2_weighted,
                                             .l2 = m->l2,
                                             .confidence = m->job->model.confidence};
    TR_TRY(tr_solver_new(&problem, tr_cpu(), &als->solver));
    als->stride = (m->rank + LINE_FLOATS - 1) / LINE_FLOATS * LINE_FLOATS;
    open_users(als);
    TR_TRY(open_items(als));
    for (int s = 0; s < 2; s++)
        TR_TRY(cut_batches(&als->side[s], als->limits.arena_bytes / (als->stride * sizeof(float))));
    for (size_t a = 0; a < 2; a++) TR_TRY(open_arena(als, a, &als->arena[a]));
    als->begun_most = als->limits.sums_bytes / (tr_solver_sums(als->solver) * sizeof(float));
    als->begun_most = tr_min_size(als->begun_most, tr_max_size(als->side[0].n, als->side[1].n));
    TR_TRY(lines(&als->sums, (als->begun_most + 1) * tr_solver_sums(als->solver)));
    TR_TRY(TR_NEW(&als->begun_at, als->begun_most));
    TR_TRY(TR_NEW(&als->other, CHUNK));
    TR_TRY(TR_NEW(&als->target, CHUNK));
    TR_TRY(TR_NEW(&als->next, CHUNK));
    TR_TRY(TR_NEW(&als->x, m->width));
    als->look_every = tr_max_size(m->job->table.row_bytes / (m->width * sizeof(float)), 1);
    return implicit(m) ? TR_NEW(&als->gram, tr_solver_gram(als->solver)) : TR_OK;
}

/* ---- gathering and solving ---- */

/* The ratings k .. end - 1, at most CHUNK, whose rows came from the `from`-th on, are looked up. Returns how many. */
static size_t look_up(struct tr_mf_als *als, const struct tr_als_arena *arena, uint64_t k, uint64_t end,
                      uint32_t from)
{
    const struct tr_als_side *side = als->now;
    const struct tr_als_needs *needs = arena->needs;
    bool plain = implicit(als->m);
    float mean = (float)als->m->mean;
    size_t n = 0;
    for (; k < end; k++) {
        size_t slot = needs->slot[place_of(side, k)];
        if (arena->order[slot] < from || arena->order[slot] == NOT_HERE) continue;
        float value = value_of(side, k);
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
        sum += !implicit(als->m) ? t * t : t > 0 ? 1 + confidence * t : 0;
    }
    return sum;
}

/* Adds the ratings of row i whose rows came from the `from`-th on to the sums. */
static void add_to(struct tr_mf_als *als, const struct tr_als_arena *arena, size_t i, uint32_t from,
                   float *sums)
{
    const struct tr_als_side *side = als->now;
    for (uint64_t k = side->begin[i], end; k < side->begin[i + 1]; k = end) {
        end = side->begin[i + 1] - k > CHUNK ? k + CHUNK : side->begin[i + 1];
        size_t n = look_up(als, arena, k, end, from);
        if (n > 0) tr_solve_add(als->solver, n, als->other, als->target, sums);
    }
}

/* The change goes into the view. */
static void keep(struct tr_mf_als *als, size_t i, const float *x, double square)
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
        als->next[n++] = arena->row + arena->needs->slot[place_of(side, k)] * als->stride;
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
    if (n <= CHUNK && !is_begun) {
        look_up(als, arena, side->begin[i], side->begin[i + 1], 0);
        TR_TRY(tr_solve(als->solver, n, als->other, als->target, x));
        square = squares(als, n);
    } else {
        float *sums = sums_of(als, is_begun ? begun : als->begun_most);
        if (!is_begun) memset(sums, 0, tr_solver_sums(als->solver) * sizeof *sums);
        add_to(als, arena, i, is_begun ? als->begun_at[begun] : 0, sums);
        TR_TRY(tr_solve_sums(als->solver, n, sums, x));
        for (uint64_t k = side->begin[i], end; k < side->begin[i + 1]; k = end) {
            end = side->begin[i + 1] - k > CHUNK ? k + CHUNK : side->begin[i + 1];
            square += squares(als, look_up(als, arena, k, end, 0));
        }
    }
    keep(als, i, x, square);
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
        give_slots(side, arena->first, arena->end, needed, &arena->own);
        free(needed);
    }
    for (size_t slot = 0; slot < arena->needs->n; slot++) arena->order[slot] = NOT_HERE;
    als->filling = arena;
    return TR_OK;
}

/* Solves all rows of a side. */
static int solve_side(struct tr_mf_als *als, bool first_clock)
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

/* ---- implicit ratings: Σ v vᵀ over all rows ---- */

/* Sums over this worker's rows of a side, and the change since it was pushed last. */
static void sum_gram(struct tr_mf_als *als, struct tr_als_side *side)
{
    size_t n = tr_solver_gram(als->solver);
    const float *value = side->view->value;
    memset(als->gram, 0, n * sizeof *als->gram);
    for (size_t i = 0, now; i < side->n; i += now) {
        now = tr_min_size(side->n - i, CHUNK);
        for (size_t k = 0; k < now; k++) als->other[k] = value + (i + k) * als->m->width;
        tr_gram_add(als->solver, now, als->other, als->gram);
    }
    double *delta = side->gram->delta;
    for (size_t k = 0; k < n; k++) {
        delta[k] = als->gram[k] - side->gram_mine[k];
        side->gram_mine[k] = als->gram[k];
    }
}

/* Of the items' first values, each worker for the items of its own: all workers together. */
static int sum_first_gram(struct tr_mf_als *als)
{
    struct tr_mf *m = als->m;
    size_t n = tr_solver_gram(als->solver);
    float *row = als->x;
    const float *one = row;
    for (size_t i = 0; i < als->by_item.n; i++) {
        tr_mf_first_row(m, TR_MF_ITEM, als->by_item.first + i, row);
        tr_gram_add(als->solver, 1, &one, als->gram);
    }
    MPI_Request request;
    MPI_Iallreduce(MPI_IN_PLACE, als->gram, (int)n, MPI_DOUBLE, MPI_SUM, m->tr->workers, &request);
    return tr_wait_request(m->tr, &request, "all workers to sum up the items");
}

static int set_gram(struct tr_mf_als *als, const struct tr_als_side *other, bool first_clock)
{
    if (!first_clock) TR_TRY(tr_view_pull(other->gram));
    tr_gram_set(als->solver, first_clock ? als->gram : other->gram->value);
    return TR_OK;
}

/* ---- test ratings ---- */

struct tr_als_test {
    size_t users, items; /* known ones */
    tr_key *user, *item; /* their numbers */
    float *user_row;     /* rows of the users, as pulled for this evaluation */
    uint32_t *row_user;  /* of each row of the data: which of the users; NOT_HERE: a cold one */
    uint64_t *begin;     /* ratings of each item, those of cold ones behind … */
    uint32_t *row;       /* … by rating: the row of the data … */
    float *value;        /* … and the rating */
    double squares, absolutes;
};

static void test_free(struct tr_als_test **test)
{
    struct tr_als_test *t = *test;
    if (!t) return;
    void *parts[] = {t->user, t->item, t->user_row, t->row_user, t->begin, t->row, t->value, t};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) free(parts[i]);
    *test = NULL;
}

/* Which of the items, in their order, each key is: those that do not occur none, cold ones all the one behind. */
static void number_test_items(const struct tr_mf *m, struct tr_als_test *t, uint32_t *item_of)
{
    const tr_data *d = m->test;
    const tr_batch *b = &d->rows;
    for (uint64_t k = 0; b->n > 0 && k < b->begin[b->n]; k++) item_of[b->column[k]] = 1;
    for (size_t key = 0; key < d->n_keys; key++) {
        if (!item_of[key] || d->keys[key] >= m->items) continue;
        t->item[t->items] = d->keys[key];
        item_of[key] = (uint32_t)t->items++;
    }
    for (size_t key = 0; key < d->n_keys; key++)
        if (d->keys[key] >= m->items) item_of[key] = (uint32_t)t->items;
}

static void sort_test_ratings(const struct tr_mf *m, struct tr_als_test *t, const uint32_t *item_of)
{
    const tr_batch *b = &m->test->rows;
    uint64_t *next = t->begin + 1; /* moves each item's beginning to its end, where the next one begins */
    for (uint64_t k = 0; b->n > 0 && k < b->begin[b->n]; k++) next[item_of[b->column[k]] + 1]++;
    for (size_t i = 0; i <= t->items; i++) next[i + 1] += next[i];
    for (size_t r = 0; r < b->n; r++)
        for (uint64_t k = b->begin[r]; k < b->begin[r + 1]; k++) {
            uint64_t at = next[item_of[b->column[k]]]++;
            t->row[at] = (uint32_t)r;
            t->value[at] = b->value ? b->value[k] : 1;
        }
}

static int open_test(const struct tr_mf *m, struct tr_als_test **test)
{
    const tr_data *d = m->test;
    size_t rows = d->rows.n;
    uint64_t ratings = rows ? d->rows.begin[rows] : 0;
    struct tr_als_test *t;
    uint32_t *item_of;
    TR_TRY(TR_NEW(&t, 1));
    *test = t;
    TR_TRY(TR_NEW(&t->user, rows));
    TR_TRY(TR_NEW(&t->row_user, rows));
    TR_TRY(TR_NEW(&t->user_row, rows * m->width));
    TR_TRY(TR_NEW(&t->item, d->n_keys));
    TR_TRY(TR_NEW(&t->begin, d->n_keys + 3));
    TR_TRY(TR_NEW(&t->row, ratings));
    TR_TRY(TR_NEW(&t->value, ratings));
    TR_TRY(TR_NEW(&item_of, d->n_keys));
    for (size_t r = 0; r < rows; r++) {
        bool cold = d->row[r] >= m->users;
        t->row_user[r] = cold ? NOT_HERE : (uint32_t)t->users;
        if (!cold) t->user[t->users++] = d->row[r];
    }
    number_test_items(m, t, item_of);
    sort_test_ratings(m, t, item_of);
    free(item_of);
    return TR_OK;
}

static int take_test_user(void *state, const tr_row *row)
{
    const struct tr_mf *m = state;
    memcpy(m->als->test->user_row + row->place * m->width, row->value, m->width * sizeof(float));
    return TR_OK;
}

/* The ratings of one item of the test data; NULL: of all cold ones. */
static void test_item(const struct tr_mf *m, size_t item, const float *value)
{
    struct tr_als_test *t = m->als->test;
    for (uint64_t k = t->begin[item]; k < t->begin[item + 1]; k++) {
        uint32_t u = t->row_user[t->row[k]];
        const float *user = u == NOT_HERE ? NULL : t->user_row + (size_t)u * m->width;
        double wanted = implicit(m) ? t->value[k] > 0 : (double)t->value[k];
        double error = wanted - tr_mf_predict(m, user, value);
        t->squares += error * error;
        t->absolutes += fabs(error);
    }
}

static int take_test_item(void *state, const tr_row *row)
{
    test_item(state, row->place, row->value);
    return TR_OK;
}

static int evaluate_test(struct tr_mf *m, tr_report *report)
{
    struct tr_als_test *t = m->als->test;
    t->squares = t->absolutes = 0;
    TR_TRY(tr_rows_pull(m->user_table, t->user, t->users, take_test_user, m));
    TR_TRY(tr_rows_pull(m->item_table, t->item, t->items, take_test_item, m));
    test_item(m, t->items, NULL);
    report->sum[TR_MF_TEST_SQUARES] = t->squares;
    report->sum[TR_MF_TEST_ABSOLUTES] = t->absolutes;
    report->sum[TR_MF_TEST_RATINGS] = (double)t->begin[t->items + 1];
    return TR_OK;
}

/* ---- the stage ---- */

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

static int prepare(tr_worker *me, void *state)
{
    (void)me;
    struct tr_mf_als *als = ((struct tr_mf *)state)->als;
    for (int s = 0; s < 2; s++) {
        struct tr_als_side *side = &als->side[s];
        TR_TRY(tr_view_open(side->own, side->number, side->n, TR_VIEW_UPDATE, &side->view));
        if (implicit(als->m)) TR_TRY(open_gram(als, side));
    }
    return TR_OK;
}

/* Everything that is read is read before anything is pushed. */
static int compute(tr_worker *me, void *state)
{
    struct tr_mf_als *als = ((struct tr_mf *)state)->als;
    struct tr_als_side *side = &als->side[me->clock % 2];
    als->now = side;
    if (implicit(als->m)) TR_TRY(set_gram(als, &als->side[!(me->clock % 2)], me->clock == 0));
    TR_TRY(solve_side(als, me->clock == 0));
    if (implicit(als->m)) {
        sum_gram(als, side);
        TR_TRY(tr_view_push(side->gram));
    }
    return tr_view_push(side->view);
}

/* The loss is that of the items as they were solved, given the users: what both tables hold now. */
static int evaluate(tr_worker *me, void *state, tr_report *report)
{
    (void)me;
    struct tr_mf *m = state;
    const struct tr_als_side *side = m->als->side;
    report->sum[TR_MF_SQUARES] = side[TR_MF_ITEM].loss;
    report->sum[TR_MF_RATINGS] = side[TR_MF_ITEM].n ? (double)side[TR_MF_ITEM].begin[side[TR_MF_ITEM].n] : 0;
    report->sum[TR_MF_PENALTY] = side[TR_MF_USER].penalty + side[TR_MF_ITEM].penalty;
    return m->test ? evaluate_test(m, report) : TR_OK;
}

static int open_here(struct tr_mf *m, const struct tr_als_limits *limits)
{
    struct tr_mf_als *als = m->als;
    if (!tr_is(m->tr, TR_SLAVE)) return TR_OK;
    als->m = m;
    als->limits = limits ? *limits : usual_limits;
    TR_TRY(open_worker(als));
    if (m->test) TR_TRY(open_test(m, &als->test));
    return implicit(m) ? sum_first_gram(als) : TR_OK;
}

int tr_als_open(struct tr_mf *m, const struct tr_als_limits *limits)
{
    static const char *const gram_name[] = {"users squared", "items squared"};
    int status = TR_NEW(&m->als, 1);
    TR_TRY(tr_agree(m->tr, status == TR_OK ? open_here(m, limits) : status));
    for (int s = 0; implicit(m) && s < 2; s++)
        TR_TRY(
            tr_table_create(m->tr, gram_name[s], TR_F64, 1, m->rank * m->rank, &m->als->side[s].gram_table));
    return TR_OK;
}

int tr_als_train(struct tr_mf *m, const struct tr_als_limits *limits)
{
    TR_TRY(tr_als_open(m, limits));
    tr_stage train = {.name = "train",
                      .state = m,
                      .clocks = 2 * (int64_t)m->job->solve.epochs,
                      .evaluate_every = 2 * (int64_t)m->job->report.every,
                      .epochs_per_clock = 0.5,
                      .metric_name = m->test ? "test rmse" : NULL,
                      .prepare = prepare,
                      .compute = compute,
                      .evaluate = evaluate,
                      .judge = tr_mf_judge};
    return tr_run(m->tr, &train);
}

int tr_mf_als_train(struct tr_mf *m)
{
    return tr_als_train(m, NULL);
}

void tr_mf_als_free(struct tr_mf_als **als)
{
    struct tr_mf_als *a = *als;
    if (!a) return;
    for (int s = 0; s < 2; s++) {
        tr_view_close(&a->side[s].view);
        tr_view_close(&a->side[s].gram);
        needs_free(&a->side[s].needs);
        free(a->side[s].turn);
        free(a->side[s].batch);
        free(a->side[s].gram_mine);
    }
    for (int i = 0; i < 2; i++) {
        needs_free(&a->arena[i].own);
        free(a->arena[i].order);
        free(a->arena[i].row);
        free(a->arena[i].bias);
    }
    void *parts[] = {a->item_number, a->user_keys, (void *)a->other, (void *)a->next,
                     a->target,      a->gram,      a->sums,          a->begun_at};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) free(parts[i]);
    tr_by_item_free(&a->by_item);
    test_free(&a->test);
    tr_solver_free(&a->solver);
    free(a);
    *als = NULL;
}
