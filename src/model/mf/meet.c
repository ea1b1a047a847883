#include "model/mf/meet.h"

#include <stdlib.h>
#include <string.h>

#include "data/dataset.h"
#include "ranks/ranks.h"

/* A rating on its way. */
struct rating {
    uint64_t user, item; /* numbers, as in the data; those of cold ones are not below m->users, m->items */
    float value;
};

/* Who has a user is known to worker (user mod workers), whom all others ask. */

/* Sends n units to the workers that `to` names. */
static int send_units(const struct tr_mf *m, const void *unit, size_t n, size_t bytes, const uint32_t *to,
                      void **got, uint64_t *got_count)
{
    size_t workers = (size_t)tr_workers(m->tr);
    uint64_t *count = NULL, *at = NULL;
    char *sorted = NULL;
    int status = TR_NEW(&count, workers);
    if (status == TR_OK) status = TR_NEW(&at, workers);
    if (status == TR_OK) status = TR_NEW(&sorted, n * bytes);
    if (status == TR_OK) {
        for (size_t i = 0; i < n; i++) count[to[i]]++;
        for (size_t w = 1; w < workers; w++) at[w] = at[w - 1] + count[w - 1];
        for (size_t i = 0; i < n; i++)
            memcpy(sorted + at[to[i]]++ * bytes, (const char *)unit + i * bytes, bytes);
        status = tr_ship(m->tr, m->tr->workers, sorted, count, bytes, got, got_count);
    }
    free(count);
    free(at);
    free(sorted);
    return status;
}

/* The worker of every user that this one knows of: user u is in place u / workers. UINT32_MAX: nobody has it. */
static int gather_owners(const struct tr_mf *m, uint32_t **owners)
{
    size_t workers = (size_t)tr_workers(m->tr), n = m->train->rows.n, at = 0;
    uint32_t *to = NULL;
    uint64_t *user = NULL, *count = NULL;
    int status = TR_NEW(&to, n);
    if (status == TR_OK) status = TR_NEW(&count, workers);
    if (status == TR_OK) status = TR_NEW(owners, (size_t)(m->users / workers + 1));
    for (size_t i = 0; i < n && status == TR_OK; i++) to[i] = (uint32_t)(m->train->row[i] % workers);
    if (status == TR_OK) status = send_units(m, m->train->row, n, sizeof *user, to, (void **)&user, count);
    if (status == TR_OK) {
        memset(*owners, 0xff, (size_t)(m->users / workers + 1) * sizeof **owners);
        for (size_t w = 0; w < workers; w++)
            for (uint64_t i = 0; i < count[w]; i++) (*owners)[user[at++] / workers] = (uint32_t)w;
    }
    free(to);
    free(user);
    free(count);
    return status;
}

/* This worker's test ratings as they were read. */
static int list_ratings(const tr_data *test, struct rating **ratings, size_t *n)
{
    const tr_batch *rows = &test->rows;
    *n = rows->n > 0 ? (size_t)rows->begin[rows->n] : 0;
    TR_TRY(TR_NEW(ratings, *n));
    for (size_t i = 0; i < rows->n; i++)
        for (uint64_t k = rows->begin[i]; k < rows->begin[i + 1]; k++)
            (*ratings)[k] =
                (struct rating){test->row[i], test->keys[rows->column[k]], rows->value ? rows->value[k] : 1};
    return TR_OK;
}

/* Replaces the ratings by those that others send to this worker. */
static int forward(const struct tr_mf *m, const uint32_t *to, struct rating **ratings, size_t *n)
{
    size_t workers = (size_t)tr_workers(m->tr);
    uint64_t *count;
    void *got = NULL;
    TR_TRY(TR_NEW(&count, workers));
    int status = send_units(m, *ratings, *n, sizeof **ratings, to, &got, count);
    if (status == TR_OK) {
        free(*ratings);
        *ratings = got;
        *n = 0;
        for (size_t w = 0; w < workers; w++) *n += (size_t)count[w];
    }
    free(count);
    return status;
}

/* ---- in order ---- */

enum { DIGIT = 11, DIGITS = 1 << DIGIT };

static size_t digit_of(const struct rating *r, bool by_user, unsigned shift)
{
    return (size_t)((by_user ? r->user : r->item) >> shift) & (DIGITS - 1);
}

/* By user or by item, digit by digit, the last one first; what is equal keeps its order. The two arrays change places
 * with each digit. */
static void sort(struct rating **ratings, struct rating **spare, size_t n, bool by_user)
{
    uint64_t largest = 0;
    for (size_t i = 0; i < n; i++) {
        uint64_t number = by_user ? (*ratings)[i].user : (*ratings)[i].item;
        if (number > largest) largest = number;
    }
    for (unsigned shift = 0; shift < 64 && largest >> shift > 0; shift += DIGIT) {
        size_t next[DIGITS + 1] = {0};
        struct rating *from = *ratings, *to = *spare;
        for (size_t i = 0; i < n; i++) next[digit_of(&from[i], by_user, shift) + 1]++;
        for (size_t d = 0; d < DIGITS; d++) next[d + 1] += next[d];
        for (size_t i = 0; i < n; i++) to[next[digit_of(&from[i], by_user, shift)]++] = from[i];
        *ratings = to;
        *spare = from;
    }
}

/* Lists the items, which ratings come in the order of, and leaves in each rating the place of its own. */
static int number_items(const struct tr_mf *m, struct rating *rating, size_t n, struct tr_mf_met *met)
{
    TR_TRY(TR_NEW(&met->item, n));
    for (size_t i = 0; i < n; i++) {
        uint64_t item = rating[i].item;
        bool cold = item >= m->items;
        if (!cold && (met->items == 0 || met->item[met->items - 1] != item)) met->item[met->items++] = item;
        rating[i].item = cold ? UINT32_MAX : met->items - 1;
    }
    TR_SHRINK(&met->item, met->items);
    return TR_OK;
}

/* Ratings in the order of users. */
static int find_rows(const struct tr_mf *m, const struct rating *rating, size_t n, struct tr_mf_met *met)
{
    TR_TRY(TR_NEW(&met->rating, n));
    met->n = n;
    size_t row = 0, rows = m->train->rows.n;
    for (size_t i = 0; i < n; i++) {
        while (row < rows && m->train->row[row] < rating[i].user) row++;
        bool known = row < rows && m->train->row[row] == rating[i].user;
        met->rating[i] = (struct tr_mf_rating){known ? (uint32_t)row : UINT32_MAX, (uint32_t)rating[i].item,
                                               rating[i].value};
    }
    return TR_OK;
}

static int put_in_order(const struct tr_mf *m, struct rating **ratings, size_t n, struct tr_mf_met *met)
{
    struct rating *spare;
    TR_TRY(TR_NEW(&spare, n));
    sort(ratings, &spare, n, false);
    int status = number_items(m, *ratings, n, met);
    if (status == TR_OK) sort(ratings, &spare, n, true);
    if (status == TR_OK) status = find_rows(m, *ratings, n, met);
    free(spare);
    return status;
}

/* ---- meeting ---- */

/* To those who know, and from them to the owners; of cold users, they stay. */
static int travel(const struct tr_mf *m, const uint32_t *owner, struct rating **ratings, size_t *n)
{
    uint32_t workers = (uint32_t)tr_workers(m->tr), *to;
    int me;
    MPI_Comm_rank(m->tr->workers, &me);
    TR_TRY(TR_NEW(&to, *n));
    for (size_t i = 0; i < *n; i++) to[i] = (uint32_t)((*ratings)[i].user % workers);
    int status = forward(m, to, ratings, n);
    free(to);
    TR_TRY(status);
    TR_TRY(TR_NEW(&to, *n));
    for (size_t i = 0; i < *n; i++) {
        uint64_t user = (*ratings)[i].user;
        to[i] = user < m->users ? owner[user / workers] : UINT32_MAX;
        if (to[i] == UINT32_MAX) to[i] = (uint32_t)me;
    }
    status = forward(m, to, ratings, n);
    free(to);
    return status;
}

int tr_mf_meet(const struct tr_mf *m, struct tr_mf_met *met)
{
    uint32_t *owner = NULL;
    struct rating *mine = NULL;
    size_t n = 0;
    *met = (struct tr_mf_met){0};
    int status = gather_owners(m, &owner);
    if (status == TR_OK) status = list_ratings(m->test, &mine, &n);
    if (status == TR_OK) status = travel(m, owner, &mine, &n);
    free(owner);
    if (status == TR_OK) status = put_in_order(m, &mine, n, met);
    free(mine);
    return status;
}

void tr_mf_met_free(struct tr_mf_met *met)
{
    free(met->rating);
    free(met->item);
    *met = (struct tr_mf_met){0};
}
