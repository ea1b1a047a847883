/* What a worker holds for alternating least squares: its ratings both ways, by user as the data have them and by item
 * as exchanged, these coded where values are few; the order in which rows of each side are solved, cut into batches
 * whose needs fit into an arena; and the arenas, sums and scratch that a clock computes in. It is opened once;
 * als_half.c works on it.
 */
#include "model/mf/als_parts.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"

enum { LINE_FLOATS = 16 };

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
            *n += !needed[tr_als_place_of(side, k)];
            needed[tr_als_place_of(side, k)] = 1;
        }
        if (*n <= room || t == first) continue;
        *n = before;
        return t;
    }
    return side->n;
}

void tr_als_give_slots(const struct tr_als_side *side, size_t first, size_t end, uint8_t *needed,
                       struct tr_als_needs *needs)
{
    memset(needed, 0, side->n_keys);
    for (size_t t = first; t < end; t++)
        for (uint64_t k = side->begin[side->turn[t]]; k < side->begin[side->turn[t] + 1]; k++)
            needed[tr_als_place_of(side, k)] = 1;
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

void tr_als_needs_free(struct tr_als_needs *needs)
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
        if (status == TR_OK) tr_als_give_slots(side, 0, side->n, needed, &side->needs);
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
    if (!b->value || places > TR_ALS_CODED_PLACES) return TR_OK;
    TR_TRY(TR_NEW(&als->code, 256));
    while (k < ratings && (code = code_of(b->value[k], als->code, hashed, &codes)) < 256) k++;
    if (k < ratings) {
        free(als->code);
        als->code = NULL;
        return TR_OK;
    }
    for (k = 0; k < ratings; k++)
        b->user[k] |= (uint32_t)code_of(b->value[k], als->code, hashed, &codes) << TR_ALS_CODE_SHIFT;
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

int tr_als_open_worker(struct tr_mf_als *als)
{
    struct tr_mf *m = als->m;
    const struct tr_solve_problem problem = {.rank = m->rank,
                                             .bias = m->bias && !tr_als_implicit(m),
                                             .nonnegative = m->job->model.nonnegative,
                                             .implicit = tr_als_implicit(m),
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
    TR_TRY(TR_NEW(&als->other, TR_ALS_CHUNK));
    TR_TRY(TR_NEW(&als->target, TR_ALS_CHUNK));
    TR_TRY(TR_NEW(&als->next, TR_ALS_CHUNK));
    TR_TRY(TR_NEW(&als->x, m->width));
    als->look_every = tr_max_size(m->job->table.row_bytes / (m->width * sizeof(float)), 1);
    return tr_als_implicit(m) ? TR_NEW(&als->gram, tr_solver_gram(als->solver)) : TR_OK;
}
