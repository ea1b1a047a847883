#define _GNU_SOURCE
#include "data/exchange.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "data/reader.h"

static uint64_t sum_counts(const uint64_t *count, int n)
{
    uint64_t sum = 0;
    for (int m = 0; m < n; m++) sum += count[m];
    return sum;
}

int tr_all_to_all(tr_context *tr, enum tr_set set, const void *from, const uint64_t *count, size_t unit,
                  void **to, uint64_t *to_count)
{
    size_t members = (size_t)tr_set_size(tr, set), *bytes, *to_bytes;
    TR_TRY(TR_NEW(&bytes, 2 * members));
    to_bytes = bytes + members;
    for (size_t m = 0; m < members; m++) bytes[m] = (size_t)count[m] * unit;
    int status = tr_exchange_counts(tr, set, bytes, to_bytes);
    for (size_t m = 0; m < members && status == TR_OK; m++) to_count[m] = to_bytes[m] / unit;
    if (status == TR_OK)
        status = tr_new(to, (size_t)sum_counts(to_count, (int)members), unit, "data of other workers");
    if (status == TR_OK) status = tr_exchange(tr, set, from, bytes, *to, to_bytes);
    free(bytes);
    return status;
}

int tr_gather_to_all(tr_context *tr, enum tr_set set, const void *from, uint64_t n, size_t unit, void **all,
                     uint64_t *total)
{
    size_t members = (size_t)tr_set_size(tr, set), *bytes, mine = (size_t)n * unit, sum = 0;
    TR_TRY(TR_NEW(&bytes, members));
    int status = tr_all_gather(tr, set, &mine, sizeof mine, bytes);
    for (size_t m = 0; m < members; m++) sum += bytes[m];
    *total = sum / unit;
    if (status == TR_OK) status = tr_new(all, (size_t)*total, unit, "data of other workers");
    if (status == TR_OK) status = tr_all_gather_lists(tr, set, from, bytes, *all);
    free(bytes);
    return status;
}

int tr_replicate(tr_context *tr, enum tr_set set, void **array, uint64_t n, size_t unit)
{
    void *all;
    uint64_t total;
    TR_TRY(tr_gather_to_all(tr, set, *array, n, unit, &all, &total));
    free(*array);
    *array = all;
    return TR_OK;
}

/* ---- columns inside a group ---- */

/* Columns are dealt by a hash: neighbours in a file are often of one kind and equally full. */
int tr_column_member(uint32_t column, int members)
{
    return (int)(tr_mix(column) % (uint64_t)members);
}

/* *any: whether at least one member has some; then the others have to send theirs, too. */
static int agree_on_any(tr_context *tr, enum tr_set set, bool mine, bool *any)
{
    int32_t one = mine;
    TR_TRY(tr_all_reduce(tr, set, TR_MAX, TR_I32, &one, 1));
    *any = one;
    return TR_OK;
}

/* Values that are all 1 become an array if one member has other values. */
static int agree_on_values(tr_context *tr, enum tr_set set, struct tr_matrix *m, bool *any)
{
    TR_TRY(agree_on_any(tr, set, m->value != NULL, any));
    if (!*any || m->value) return TR_OK;
    TR_TRY(TR_NEW(&m->value, tr_matrix_nonzeros(m)));
    for (size_t k = 0; k < tr_matrix_nonzeros(m); k++) m->value[k] = 1;
    return TR_OK;
}

/* Sets m->begin from the lengths of n rows. */
static int find_begins(const uint32_t *length, uint64_t n, struct tr_matrix *m)
{
    free(m->begin);
    m->rows = (size_t)n;
    TR_TRY(TR_NEW(&m->begin, (size_t)n + 1));
    for (size_t i = 0; i < n; i++) m->begin[i + 1] = m->begin[i] + length[i];
    return TR_OK;
}

/* A worker's non-zeros, sorted by the member that owns their column: for each member the lengths of its pieces of all rows, and the
 * pieces. */
struct parcels {
    uint64_t *rows, *nonzeros, *got; /* of each member */
    uint32_t *length, *column;
    float *value;
};

static int parcels_pack(const struct tr_matrix *m, int members, struct parcels *p)
{
    size_t n = tr_matrix_nonzeros(m);
    uint64_t *next;
    TR_TRY(TR_NEW(&p->rows, 4 * (size_t)members));
    p->nonzeros = p->rows + members;
    p->got = p->nonzeros + members;
    next = p->got + members;
    TR_TRY(TR_NEW(&p->length, (size_t)members * m->rows));
    TR_TRY(TR_NEW(&p->column, n));
    if (m->value) TR_TRY(TR_NEW(&p->value, n));
    for (size_t k = 0; k < n; k++) p->nonzeros[tr_column_member(m->column[k], members)]++;
    for (int to = 0; to < members; to++) {
        p->rows[to] = m->rows;
        next[to] = sum_counts(p->nonzeros, to);
    }
    for (size_t i = 0; i < m->rows; i++)
        for (uint64_t k = m->begin[i]; k < m->begin[i + 1]; k++) {
            int to = tr_column_member(m->column[k], members);
            p->length[(size_t)to * m->rows + i]++;
            p->column[next[to]] = m->column[k];
            if (m->value) p->value[next[to]] = m->value[k];
            next[to]++;
        }
    return TR_OK;
}

/* The pieces of all members, those of member 0 first, are the rows. */
static int exchange_parcels(tr_context *tr, struct tr_matrix *m, const struct parcels *p)
{
    void *length = NULL;
    uint64_t rows = m->rows;
    int members = tr->layout.group_size;
    TR_TRY(tr_all_to_all(tr, TR_SET_GROUP, p->length, p->rows, sizeof *p->length, &length, p->got));
    int status = find_begins(length, sum_counts(p->got, members), m);
    free(length);
    free(m->column);
    m->column = NULL;
    if (status == TR_OK)
        status = tr_all_to_all(tr, TR_SET_GROUP, p->column, p->nonzeros, sizeof *p->column,
                               (void **)&m->column, p->got);
    if (status == TR_OK && p->value) {
        free(m->value);
        m->value = NULL;
        status = tr_all_to_all(tr, TR_SET_GROUP, p->value, p->nonzeros, sizeof *p->value, (void **)&m->value,
                               p->got);
    }
    if (status == TR_OK) status = tr_replicate(tr, TR_SET_GROUP, (void **)&m->label, rows, sizeof *m->label);
    return status;
}

int tr_exchange_columns(tr_context *tr, struct tr_matrix *m)
{
    struct parcels p = {0};
    bool valued;
    TR_TRY(agree_on_values(tr, TR_SET_GROUP, m, &valued));
    int status = parcels_pack(m, tr->layout.group_size, &p);
    if (status == TR_OK) status = exchange_parcels(tr, m, &p);
    void *parts[] = {p.rows, p.length, p.column, p.value};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) free(parts[i]);
    return status;
}

/* ---- the keys of a group ---- */

/* bound[m]: the first key of member m, so that all have about the same number. A sample has as many keys of each member as there are
 * members. */
static int choose_bounds(tr_context *tr, const uint32_t *keys, size_t n, uint32_t *bound)
{
    size_t members = (size_t)tr->layout.group_size, some = 0;
    uint32_t *sample, *all;
    uint64_t total;
    TR_TRY(TR_NEW(&sample, members));
    for (; some < members && n > 0; some++) sample[some] = keys[n * some / members];
    TR_TRY(tr_gather_to_all(tr, TR_SET_GROUP, sample, some, sizeof *sample, (void **)&all, &total));
    size_t distinct = (size_t)total;
    TR_TRY(tr_keys_sort(all, &distinct));
    for (size_t m = 1; m < members; m++) bound[m] = distinct > 0 ? all[distinct * m / members] : 0;
    free(sample);
    free(all);
    return TR_OK;
}

int tr_unite_keys(tr_context *tr, const uint32_t *keys, size_t n, uint32_t **piece, size_t *n_piece)
{
    size_t members = (size_t)tr->layout.group_size, at = 0;
    uint32_t *bound;
    uint64_t *count;
    TR_TRY(TR_NEW(&bound, members));
    TR_TRY(TR_NEW(&count, 2 * members));
    TR_TRY(choose_bounds(tr, keys, n, bound));
    for (size_t i = 0; i < n; i++) {
        while (at + 1 < members && keys[i] >= bound[at + 1]) at++;
        count[at]++;
    }
    TR_TRY(tr_all_to_all(tr, TR_SET_GROUP, keys, count, sizeof *keys, (void **)piece, count + members));
    *n_piece = (size_t)sum_counts(count + members, (int)members);
    free(bound);
    free(count);
    return tr_keys_sort(*piece, n_piece);
}

/* ---- all rows of a set ---- */

static int replicate_begins(tr_context *tr, enum tr_set set, struct tr_matrix *m)
{
    uint64_t total;
    uint32_t *length, *all;
    TR_TRY(TR_NEW(&length, m->rows));
    for (size_t i = 0; i < m->rows; i++) length[i] = (uint32_t)(m->begin[i + 1] - m->begin[i]);
    TR_TRY(tr_gather_to_all(tr, set, length, m->rows, sizeof *length, (void **)&all, &total));
    free(length);
    int status = find_begins(all, total, m);
    free(all);
    return status;
}

int tr_replicate_rows(tr_context *tr, enum tr_set set, struct tr_matrix *m, uint64_t **row_number)
{
    uint64_t rows = m->rows, nonzeros = tr_matrix_nonzeros(m), total;
    bool valued = true, labelled;
    TR_TRY(agree_on_any(tr, set, m->label != NULL, &labelled));
    if (m->columns == 0) {
        TR_TRY(agree_on_values(tr, set, m, &valued));
        TR_TRY(replicate_begins(tr, set, m));
        TR_TRY(tr_replicate(tr, set, (void **)&m->column, nonzeros, sizeof *m->column));
    }
    if (valued) TR_TRY(tr_replicate(tr, set, (void **)&m->value, nonzeros, sizeof *m->value));
    if (labelled) TR_TRY(tr_replicate(tr, set, (void **)&m->label, rows, sizeof *m->label));
    if (row_number) TR_TRY(tr_replicate(tr, set, (void **)row_number, rows, sizeof **row_number));
    if (m->columns == 0) return TR_OK;
    total = rows;
    TR_TRY(tr_all_reduce(tr, set, TR_SUM, TR_I64, &total, 1));
    m->rows = (size_t)total;
    return TR_OK;
}

/* ---- triples: the worker of each row ---- */

/* Rows belong to buckets, and buckets to workers. */
struct dealing {
    uint64_t rows; /* numbers are 0 .. rows - 1 */
    bool hashed;
    uint64_t buckets;
    uint32_t *worker; /* of each bucket */
};

static uint64_t bucket_of(const struct dealing *plan, uint32_t row)
{
    uint64_t where = plan->hashed ? tr_mix(row) >> 32 : ((uint64_t)row << 32) / plan->rows;
    return where * plan->buckets >> 32;
}

struct load {
    uint64_t nonzeros, bucket;
};

static int load_descending(const void *a, const void *b)
{
    const struct load *x = a, *y = b;
    if (x->nonzeros != y->nonzeros) return x->nonzeros < y->nonzeros ? 1 : -1;
    return (x->bucket > y->bucket) - (x->bucket < y->bucket);
}

/* In descending order of their loads to workers 0, 1, ..., n - 1, n - 1, ..., 1, 0, 0, 1, ... */
static int deal_hashed(struct dealing *plan, const uint64_t *count, uint64_t workers)
{
    struct load *load;
    TR_TRY(TR_NEW(&load, (size_t)plan->buckets));
    for (uint64_t b = 0; b < plan->buckets; b++) load[b] = (struct load){count[b], b};
    qsort(load, (size_t)plan->buckets, sizeof *load, load_descending);
    for (uint64_t i = 0; i < plan->buckets; i++) {
        uint64_t step = i % (2 * workers);
        plan->worker[load[i].bucket] = (uint32_t)(step < workers ? step : 2 * workers - 1 - step);
    }
    free(load);
    return TR_OK;
}

/* Consecutive buckets with about the same number of non-zeros to each worker. */
static void deal_in_order(struct dealing *plan, const uint64_t *count, uint64_t workers)
{
    double total = 0, before = 0;
    for (uint64_t b = 0; b < plan->buckets; b++) total += (double)count[b];
    for (uint64_t b = 0; b < plan->buckets; b++) {
        double middle = before + 0.5 * (double)count[b];
        uint64_t worker = total > 0 ? (uint64_t)(middle / total * (double)workers) : 0;
        plan->worker[b] = (uint32_t)(worker < workers ? worker : workers - 1);
        before += (double)count[b];
    }
}

static uint32_t worker_of(const struct dealing *plan, const struct tr_triple *t)
{
    return plan->worker[bucket_of(plan, t->row)];
}

static int deal_rows(tr_context *tr, const struct tr_triples *t, struct dealing *plan)
{
    enum { BUCKETS = 256 }; /* of each worker */
    uint64_t workers = (uint64_t)tr_layout_workers(&tr->layout), *count;
    plan->buckets = plan->rows < BUCKETS * workers ? plan->rows : BUCKETS * workers;
    TR_TRY(TR_NEW(&plan->worker, (size_t)plan->buckets));
    TR_TRY(TR_NEW(&count, (size_t)plan->buckets));
    for (size_t i = 0; i < t->n; i++) count[bucket_of(plan, t->triple[i].row)]++;
    int status = tr_all_reduce(tr, TR_SET_WORKERS, TR_SUM, TR_I64, count, (size_t)plan->buckets);
    if (status == TR_OK && plan->hashed) status = deal_hashed(plan, count, workers);
    else if (status == TR_OK) deal_in_order(plan, count, workers);
    free(count);
    return status;
}

/* ---- triples: sending ---- */

/* Triples from all workers: those of worker w are begin[w] .. begin[w + 1] - 1. */
struct arrivals {
    uint64_t *begin, *next; /* next: position of its next triple */
    struct tr_triple *triple;
    uint32_t *order; /* of each triple, the position of its piece among all pieces; NULL: order by worker */
};

/* Sends n triples. order: of each of them, or NULL. */
static int send_round(tr_context *tr, const struct dealing *plan, const struct tr_triple *triple,
                      const uint32_t *order, size_t n, struct arrivals *in)
{
    int workers = tr_layout_workers(&tr->layout);
    uint64_t *count, *got_count, *at, from = 0;
    struct tr_triple *packed, *got;
    uint32_t *packed_order = NULL, *got_order = NULL;
    TR_TRY(TR_NEW(&count, 3 * (size_t)workers + 1));
    got_count = count + workers;
    at = got_count + workers;
    TR_TRY(TR_NEW(&packed, n));
    if (order) TR_TRY(TR_NEW(&packed_order, n));
    for (size_t i = 0; i < n; i++) count[worker_of(plan, &triple[i])]++;
    for (int w = 0; w < workers; w++) at[w + 1] = at[w] + count[w];
    for (size_t i = 0; i < n; i++) {
        uint64_t to = at[worker_of(plan, &triple[i])]++;
        packed[to] = triple[i];
        if (order) packed_order[to] = order[i];
    }
    TR_TRY(tr_all_to_all(tr, TR_SET_WORKERS, packed, count, sizeof *packed, (void **)&got, got_count));
    if (order)
        TR_TRY(tr_all_to_all(tr, TR_SET_WORKERS, packed_order, count, sizeof *order, (void **)&got_order,
                             got_count));
    for (int w = 0; w < workers; from += got_count[w++]) {
        memcpy(in->triple + in->next[w], got + from, (size_t)got_count[w] * sizeof *got);
        if (order)
            memcpy(in->order + in->next[w], got_order + from, (size_t)got_count[w] * sizeof *got_order);
        in->next[w] += got_count[w];
    }
    void *arrays[] = {count, packed, got, packed_order, got_order};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) free(arrays[i]);
    return TR_OK;
}

/* *order: the position of each triple's piece among the pieces of all files, file by file. */
static int number_pieces(tr_context *tr, size_t files, const struct tr_triples *t, uint32_t **order)
{
    uint64_t *pieces, sum = 0; /* of each file, then of those before it */
    TR_TRY(TR_NEW(&pieces, files));
    TR_TRY(TR_NEW(order, t->n));
    for (size_t i = 0; i < t->runs; i++)
        if (t->run[i].piece >= pieces[t->run[i].file]) pieces[t->run[i].file] = t->run[i].piece + 1;
    TR_TRY(tr_all_reduce(tr, TR_SET_WORKERS, TR_MAX, TR_I64, pieces, files));
    for (size_t i = 0; i < files; i++) {
        uint64_t n = pieces[i];
        pieces[i] = sum;
        sum += n;
    }
    for (size_t i = 0; i < t->runs; i++) {
        size_t end = i + 1 < t->runs ? t->run[i + 1].first : t->n;
        for (size_t k = t->run[i].first; k < end; k++)
            (*order)[k] = (uint32_t)(pieces[t->run[i].file] + t->run[i].piece);
    }
    free(pieces);
    return TR_OK;
}

/* Merges the triples of the workers, each of which has sent them in order. */
static int merge_by_order(struct arrivals *in, int workers)
{
    uint64_t *begin = in->begin, *next = in->next, total = begin[workers], n = 0;
    struct tr_triple *merged;
    TR_TRY(TR_NEW(&merged, (size_t)total));
    memcpy(next, begin, (size_t)workers * sizeof *next);
    while (n < total) {
        int best = -1;
        for (int w = 0; w < workers; w++)
            if (next[w] < begin[w + 1] && (best < 0 || in->order[next[w]] < in->order[next[best]])) best = w;
        uint32_t order = in->order[next[best]];
        while (next[best] < begin[best + 1] && in->order[next[best]] == order)
            merged[n++] = in->triple[next[best]++];
    }
    free(in->triple);
    in->triple = merged;
    return TR_OK;
}

/* Exchanges the numbers of triples, and allocates memory for those that come. */
static int open_arrivals(tr_context *tr, const struct dealing *plan, const struct tr_triples *t,
                         bool interleaved, struct arrivals *in)
{
    size_t workers = (size_t)tr_layout_workers(&tr->layout);
    uint64_t *count;
    TR_TRY(TR_NEW(&count, workers));
    TR_TRY(TR_NEW(&in->begin, workers + 1));
    TR_TRY(TR_NEW(&in->next, workers));
    for (size_t i = 0; i < t->n; i++) count[worker_of(plan, &t->triple[i])]++;
    int status = tr_exchange_counts(tr, TR_SET_WORKERS, count, in->begin + 1);
    free(count);
    for (size_t w = 0; w < workers; w++) in->begin[w + 1] += in->begin[w];
    memcpy(in->next, in->begin, workers * sizeof *in->next);
    if (status == TR_OK) status = TR_NEW(&in->triple, (size_t)in->begin[workers]);
    if (status == TR_OK && interleaved) status = TR_NEW(&in->order, (size_t)in->begin[workers]);
    return status;
}

/* In rounds, each of which frees the triples that were sent: sent and received triples together take hardly more memory than one of them. */
static int send_all(tr_context *tr, const struct dealing *plan, struct tr_triples *t, const uint32_t *order,
                    struct arrivals *in)
{
    enum { ROUND = 1 << 18 }; /* triples that a worker sends in a round: 3 MiB */
    uint64_t rounds = (t->n + ROUND - 1) / ROUND;
    TR_TRY(tr_all_reduce(tr, TR_SET_WORKERS, TR_MAX, TR_I64, &rounds, 1));
    for (uint64_t k = 0; k < rounds; k++) {
        size_t first = tr_min_size((size_t)k * ROUND, t->n), n = tr_min_size(ROUND, t->n - first);
        TR_TRY(send_round(tr, plan, t->triple + first, order ? order + first : NULL, n, in));
        tr_pages_give_back(t->triple + first, n * sizeof *t->triple);
    }
    return TR_OK;
}

int tr_shuffle_triples(tr_context *tr, uint64_t rows, bool hashed, size_t files, bool interleaved,
                       struct tr_triples *t)
{
    int workers = tr_layout_workers(&tr->layout);
    struct dealing plan = {.rows = rows, .hashed = hashed};
    struct arrivals in = {0};
    uint32_t *order = NULL;
    if (workers == 1) return TR_OK;
    int status = deal_rows(tr, t, &plan);
    if (status == TR_OK) status = open_arrivals(tr, &plan, t, interleaved, &in);
    if (status == TR_OK && interleaved) status = number_pieces(tr, files, t, &order);
    if (status == TR_OK) status = send_all(tr, &plan, t, order, &in);
    if (status == TR_OK && interleaved) status = merge_by_order(&in, workers);
    if (status == TR_OK) {
        free(t->triple);
        t->triple = in.triple;
        t->n = t->triple_capacity = (size_t)in.begin[workers];
    } else {
        free(in.triple);
    }
    void *arrays[] = {plan.worker, order, in.order, in.next, in.begin};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) free(arrays[i]);
    return status;
}
