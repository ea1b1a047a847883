#include "model/mf/by_item.h"

#include <stdlib.h>
#include <string.h>

#include "ranks/ranks.h"

/* What travels: a rating, or (with no value) how many ratings of an item a worker has. */
struct record {
    uint64_t item;
    uint32_t user; /* or the number of ratings */
    float value;
};

typedef int take_fn(void *who, const struct record *record, size_t n);

/* An exchange among all workers, round by round: in each everybody sends about PIECE records at most. */
struct exchange {
    tr_context *tr;
    int workers;
    size_t piece; /* records sent by one worker in a round */
    int *count, *at, *from_count, *from_at;
    struct record *out, *sorted, *in;
    int *to; /* of each of out: the worker */
    size_t n, in_capacity;
    take_fn *take;
    void *who;
};

static int exchange_open(tr_context *tr, struct exchange *x)
{
    enum { PIECE = 1 << 19, LEAST = 1 << 12 };
    *x = (struct exchange){.tr = tr};
    MPI_Comm_size(tr->workers, &x->workers);
    size_t workers = (size_t)x->workers;
    x->piece = tr_max_size(PIECE / workers, LEAST); /* so that one whom all send to gets no more than that */
    TR_TRY(TR_NEW(&x->count, workers));
    TR_TRY(TR_NEW(&x->at, workers + 1));
    TR_TRY(TR_NEW(&x->from_count, workers));
    TR_TRY(TR_NEW(&x->from_at, workers + 1));
    TR_TRY(TR_NEW(&x->out, x->piece));
    TR_TRY(TR_NEW(&x->sorted, x->piece));
    return TR_NEW(&x->to, x->piece);
}

static void exchange_free(struct exchange *x)
{
    void *parts[] = {x->count, x->at, x->from_count, x->from_at, x->out, x->sorted, x->in, x->to};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) free(parts[i]);
}

/* Counts become places, in bytes both: so MPI wants them. */
static void lay_out(int *count, int *at, int n)
{
    at[0] = 0;
    for (int i = 0; i < n; i++) {
        count[i] *= (int)sizeof(struct record);
        at[i + 1] = at[i] + count[i];
    }
}

static int one_round(struct exchange *x)
{
    static const char what[] = "all workers to exchange ratings";
    MPI_Request request;
    memset(x->count, 0, (size_t)x->workers * sizeof *x->count);
    for (size_t i = 0; i < x->n; i++) x->count[x->to[i]]++;
    MPI_Ialltoall(x->count, 1, MPI_INT, x->from_count, 1, MPI_INT, x->tr->workers, &request);
    TR_TRY(tr_wait_request(x->tr, &request, what));
    x->at[0] = 0;
    for (int w = 0; w < x->workers; w++) x->at[w + 1] = x->at[w] + x->count[w];
    for (size_t i = 0; i < x->n; i++) x->sorted[x->at[x->to[i]]++] = x->out[i];
    lay_out(x->count, x->at, x->workers);
    lay_out(x->from_count, x->from_at, x->workers);
    size_t arriving = (size_t)x->from_at[x->workers] / sizeof(struct record);
    TR_TRY(TR_GROW(&x->in, &x->in_capacity, arriving + 1));
    MPI_Ialltoallv(x->sorted, x->count, x->at, MPI_BYTE, x->in, x->from_count, x->from_at, MPI_BYTE,
                   x->tr->workers, &request);
    TR_TRY(tr_wait_request(x->tr, &request, what));
    x->n = 0;
    return x->take(x->who, x->in, arriving);
}

/* How many rounds all will take, if this worker sends so many records. */
static int rounds_of(const struct exchange *x, uint64_t records, uint64_t *rounds)
{
    MPI_Request request;
    uint64_t mine = (records + x->piece - 1) / x->piece;
    MPI_Iallreduce(&mine, rounds, 1, MPI_UINT64_T, MPI_MAX, x->tr->workers, &request);
    return tr_wait_request(x->tr, &request, "all workers to exchange ratings");
}

static int owner_of(const uint64_t *bound, int workers, uint64_t item)
{
    int low = 0, high = workers;
    while (high - low > 1) {
        int middle = low + (high - low) / 2;
        if (item < bound[middle]) high = middle;
        else low = middle;
    }
    return low;
}

/* Sends (item, how many ratings this worker has of it) to who owns the item by these bounds. */
static int send_counts(struct exchange *x, const tr_data *ratings, const uint32_t *count,
                       const uint64_t *bound, take_fn *take, void *who)
{
    uint64_t rounds;
    x->take = take;
    x->who = who;
    TR_TRY(rounds_of(x, ratings->n_keys, &rounds));
    size_t key = 0;
    for (uint64_t round = 0; round < rounds; round++) {
        for (; key < ratings->n_keys && x->n < x->piece; key++) {
            if (count[key] == 0) continue;
            x->to[x->n] = owner_of(bound, x->workers, ratings->keys[key]);
            x->out[x->n++] = (struct record){.item = ratings->keys[key], .user = count[key]};
        }
        TR_TRY(one_round(x));
    }
    return TR_OK;
}

/* Ratings of each item of a range. */
struct range {
    uint64_t first;
    size_t n;
    uint64_t *count;
};

static int add_counts(void *who, const struct record *record, size_t n)
{
    struct range *r = who;
    for (size_t i = 0; i < n; i++) r->count[record[i].item - r->first] += record[i].user;
    return TR_OK;
}

static int range_open(const uint64_t *bound, int worker, struct range *r)
{
    *r = (struct range){.first = bound[worker], .n = (size_t)(bound[worker + 1] - bound[worker])};
    return TR_NEW(&r->count, r->n + 1);
}

/* Where ranges of equal work begin: each worker finds those in its range. bound has workers + 1 places. */
static int balance(struct exchange *x, int worker, const struct range *r, double item_work, uint64_t items,
                   uint64_t *bound)
{
    double mine = 0, before = 0, total;
    MPI_Request request;
    for (size_t i = 0; i < r->n; i++) mine += (double)r->count[i] + item_work;
    MPI_Iallreduce(&mine, &total, 1, MPI_DOUBLE, MPI_SUM, x->tr->workers, &request);
    TR_TRY(tr_wait_request(x->tr, &request, "all workers to divide the items"));
    MPI_Iexscan(&mine, &before, 1, MPI_DOUBLE, MPI_SUM, x->tr->workers, &request);
    TR_TRY(tr_wait_request(x->tr, &request, "all workers to divide the items"));
    if (worker == 0) before = 0;
    for (int w = 0; w <= x->workers; w++) bound[w] = w == 0 ? 0 : items;
    for (size_t i = 0, w = 1; i < r->n; i++) {
        while (w < (size_t)x->workers && before >= total * (double)w / x->workers) {
            if (bound[w] > r->first + i) bound[w] = r->first + i;
            w++;
        }
        before += (double)r->count[i] + item_work;
    }
    MPI_Iallreduce(MPI_IN_PLACE, bound, x->workers + 1, MPI_UINT64_T, MPI_MIN, x->tr->workers, &request);
    return tr_wait_request(x->tr, &request, "all workers to divide the items");
}

struct placing {
    struct tr_by_item *to;
    uint64_t *next; /* of each item: where its next rating goes */
};

static int place(void *who, const struct record *record, size_t n)
{
    struct placing *p = who;
    for (size_t i = 0; i < n; i++) {
        uint64_t at = p->next[record[i].item - p->to->first]++;
        p->to->user[at] = record[i].user;
        if (p->to->value) p->to->value[at] = record[i].value;
    }
    return TR_OK;
}

static int send_ratings(struct exchange *x, const tr_data *ratings, const uint64_t *bound,
                        struct placing *placing)
{
    const tr_batch *b = &ratings->rows;
    uint64_t rounds, k = 0, all = b->n ? b->begin[b->n] : 0;
    x->take = place;
    x->who = placing;
    TR_TRY(rounds_of(x, all, &rounds));
    size_t row = 0;
    for (uint64_t round = 0; round < rounds; round++) {
        for (; k < all && x->n < x->piece; k++) {
            while (k >= b->begin[row + 1]) row++;
            uint64_t item = ratings->keys[b->column[k]];
            x->to[x->n] = owner_of(bound, x->workers, item);
            x->out[x->n++] = (struct record){item, (uint32_t)ratings->row[row], b->value ? b->value[k] : 1};
        }
        TR_TRY(one_round(x));
    }
    return TR_OK;
}

static int any_values(tr_context *tr, const tr_data *ratings, bool *any)
{
    int mine = ratings->rows.value != NULL, all = 0;
    MPI_Request request;
    MPI_Iallreduce(&mine, &all, 1, MPI_INT, MPI_LOR, tr->workers, &request);
    TR_TRY(tr_wait_request(tr, &request, "all workers to exchange ratings"));
    *any = all;
    return TR_OK;
}

static int make_room(tr_context *tr, const tr_data *ratings, const struct range *range, struct tr_by_item *to,
                     struct placing *placing)
{
    bool values;
    to->first = range->first;
    to->n = range->n;
    TR_TRY(any_values(tr, ratings, &values));
    TR_TRY(TR_NEW(&to->begin, to->n + 1));
    TR_TRY(TR_NEW(&placing->next, to->n + 1));
    for (size_t i = 0; i < to->n; i++) {
        placing->next[i] = to->begin[i];
        to->begin[i + 1] = to->begin[i] + range->count[i];
    }
    TR_TRY(TR_NEW(&to->user, to->begin[to->n]));
    return values ? TR_NEW(&to->value, to->begin[to->n]) : TR_OK;
}

static int transpose(struct exchange *x, const tr_data *ratings, const uint32_t *count, uint64_t items,
                     double item_work, uint64_t *bound, struct tr_by_item *to)
{
    int worker;
    struct range even = {.n = 0}, own = {.n = 0};
    struct placing placing = {.to = to};
    MPI_Comm_rank(x->tr->workers, &worker);
    for (int w = 0; w <= x->workers; w++)
        bound[w] = items / (uint64_t)x->workers * (uint64_t)w +
                   items % (uint64_t)x->workers * (uint64_t)w / (uint64_t)x->workers;
    int status = range_open(bound, worker, &even);
    if (status == TR_OK) status = send_counts(x, ratings, count, bound, add_counts, &even);
    if (status == TR_OK) status = balance(x, worker, &even, item_work, items, bound);
    if (status == TR_OK) status = range_open(bound, worker, &own);
    if (status == TR_OK) status = send_counts(x, ratings, count, bound, add_counts, &own);
    if (status == TR_OK) status = make_room(x->tr, ratings, &own, to, &placing);
    if (status == TR_OK) status = send_ratings(x, ratings, bound, &placing);
    free(even.count);
    free(own.count);
    free(placing.next);
    return status;
}

int tr_by_item_open(tr_context *tr, const tr_data *ratings, uint64_t items, double item_work,
                    struct tr_by_item *by_item)
{
    struct exchange x;
    uint32_t *count = NULL;
    uint64_t *bound = NULL;
    const tr_batch *b = &ratings->rows;
    *by_item = (struct tr_by_item){.n = 0};
    int status = exchange_open(tr, &x);
    if (status == TR_OK) status = TR_NEW(&count, ratings->n_keys);
    if (status == TR_OK) status = TR_NEW(&bound, (size_t)x.workers + 1);
    for (uint64_t k = 0; status == TR_OK && b->n > 0 && k < b->begin[b->n]; k++) count[b->column[k]]++;
    if (status == TR_OK) status = transpose(&x, ratings, count, items, item_work, bound, by_item);
    exchange_free(&x);
    free(count);
    free(bound);
    if (status != TR_OK) tr_by_item_free(by_item);
    return status;
}

void tr_by_item_free(struct tr_by_item *by_item)
{
    free(by_item->begin);
    free(by_item->user);
    free(by_item->value);
    *by_item = (struct tr_by_item){.n = 0};
}
