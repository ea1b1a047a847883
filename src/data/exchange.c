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
    size_t members = (size_t)tr_set_size(tr, set), *to_bytes;
    TR_FREED size_t *bytes = NULL;
    TR_TRY(TR_NEW(&bytes, 2 * members));
    to_bytes = bytes + members;
    for (size_t m = 0; m < members; m++) bytes[m] = (size_t)count[m] * unit;
    TR_TRY(tr_exchange_counts(tr, set, bytes, to_bytes));
    for (size_t m = 0; m < members; m++) to_count[m] = to_bytes[m] / unit;
    TR_TRY(tr_new(to, (size_t)sum_counts(to_count, (int)members), unit, "data of other workers"));
    return tr_exchange(tr, set, from, bytes, *to, to_bytes);
}

int tr_gather_to_all(tr_context *tr, enum tr_set set, const void *from, uint64_t n, size_t unit, void **all,
                     uint64_t *total)
{
    size_t members = (size_t)tr_set_size(tr, set), mine = (size_t)n * unit, sum = 0;
    TR_FREED size_t *bytes = NULL;
    TR_TRY(TR_NEW(&bytes, members));
    TR_TRY(tr_all_gather(tr, set, &mine, sizeof mine, bytes));
    for (size_t m = 0; m < members; m++) sum += bytes[m];
    *total = sum / unit;
    TR_TRY(tr_new(all, (size_t)*total, unit, "data of other workers"));
    return tr_all_gather_lists(tr, set, from, bytes, *all);
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

/* ---- rows ---- */

/* Sets *any to whether `mine` is true on at least one member. */
static int agree_on_any(tr_context *tr, enum tr_set set, bool mine, bool *any)
{
    int32_t one = mine;
    TR_TRY(tr_all_reduce(tr, set, TR_MAX, TR_I32, &one, 1));
    *any = one;
    return TR_OK;
}

/* If one member has values that are not 1, all members need an array of values: makes it. *any: all members have an array. */
static int agree_on_values(tr_context *tr, enum tr_set set, struct tr_matrix *m, bool *any)
{
    TR_TRY(agree_on_any(tr, set, m->value != NULL, any));
    if (!*any || m->value) return TR_OK;
    TR_TRY(TR_NEW(&m->value, tr_matrix_nonzeros(m)));
    for (size_t k = 0; k < tr_matrix_nonzeros(m); k++) m->value[k] = 1;
    return TR_OK;
}

/* Sets m->begin from the lengths of n rows, and frees `length`. */
static int rows_set_begins(uint32_t *length, uint64_t n, struct tr_matrix *m)
{
    free(m->begin);
    m->rows = (size_t)n;
    int status = TR_NEW(&m->begin, (size_t)n + 1);
    for (size_t i = 0; i < n && status == TR_OK; i++) m->begin[i + 1] = m->begin[i] + length[i];
    free(length);
    return status;
}

int tr_replicate_rows(tr_context *tr, enum tr_set set, struct tr_matrix *m, uint64_t **row_number)
{
    uint64_t rows = m->rows, nonzeros = tr_matrix_nonzeros(m), total = rows;
    bool valued = true, labelled;
    TR_TRY(agree_on_any(tr, set, m->label != NULL, &labelled));
    if (m->columns == 0) {
        uint32_t *length;
        TR_TRY(agree_on_values(tr, set, m, &valued));
        TR_TRY(TR_NEW(&length, m->rows));
        for (size_t i = 0; i < m->rows; i++) length[i] = (uint32_t)(m->begin[i + 1] - m->begin[i]);
        TR_TRY(tr_replicate(tr, set, (void **)&length, rows, sizeof *length));
        TR_TRY(tr_all_reduce(tr, set, TR_SUM, TR_I64, &total, 1));
        TR_TRY(rows_set_begins(length, total, m));
        TR_TRY(tr_replicate(tr, set, (void **)&m->column, nonzeros, sizeof *m->column));
    }
    if (valued) TR_TRY(tr_replicate(tr, set, (void **)&m->value, nonzeros, sizeof *m->value));
    if (labelled) TR_TRY(tr_replicate(tr, set, (void **)&m->label, rows, sizeof *m->label));
    if (row_number) TR_TRY(tr_replicate(tr, set, (void **)row_number, rows, sizeof **row_number));
    if (m->columns == 0) return TR_OK;
    TR_TRY(tr_all_reduce(tr, set, TR_SUM, TR_I64, &total, 1));
    m->rows = (size_t)total;
    return TR_OK;
}

/* ---- columns and keys of a group ---- */

/* Columns are distributed by a hash, since neighbours in a file are often of one kind and equally full. */
int tr_column_member(uint32_t column, int members)
{
    return (int)(tr_mix(column) % (uint64_t)members);
}

int tr_exchange_columns(tr_context *tr, struct tr_matrix *m)
{
    int members = tr->layout.group_size;
    size_t n, rows = m->rows;
    TR_FREED uint64_t *of_rows = NULL;
    /* for each member: number of non-zeros to send, number received, index of the next one to send */
    uint64_t *nonzeros, *got, *next;
    /* lengths of the rows, and columns, in the order of the receiving members */
    TR_FREED uint32_t *length = NULL, *column = NULL;
    TR_FREED float *value = NULL;
    void *all = NULL;
    bool valued;
    TR_TRY(agree_on_values(tr, TR_SET_GROUP, m, &valued));
    n = tr_matrix_nonzeros(m);
    TR_TRY(TR_NEW(&of_rows, 4 * (size_t)members));
    nonzeros = of_rows + members;
    got = nonzeros + members;
    next = got + members;
    TR_TRY(TR_NEW(&length, (size_t)members * rows));
    TR_TRY(TR_NEW(&column, n));
    if (m->value) TR_TRY(TR_NEW(&value, n));
    for (size_t k = 0; k < n; k++) nonzeros[tr_column_member(m->column[k], members)]++;
    for (int to = 0; to < members; to++) {
        of_rows[to] = rows;
        next[to] = sum_counts(nonzeros, to);
    }
    for (size_t i = 0; i < rows; i++)
        for (uint64_t k = m->begin[i]; k < m->begin[i + 1]; k++) {
            int to = tr_column_member(m->column[k], members);
            length[(size_t)to * rows + i]++;
            column[next[to]] = m->column[k];
            if (value) value[next[to]] = m->value[k];
            next[to]++;
        }
    TR_TRY(tr_all_to_all(tr, TR_SET_GROUP, length, of_rows, sizeof *length, &all, got));
    TR_TRY(rows_set_begins(all, sum_counts(got, members), m));
    free(m->column); /* frees memory before the columns of other members arrive */
    m->column = NULL;
    TR_TRY(tr_all_to_all(tr, TR_SET_GROUP, column, nonzeros, sizeof *column, (void **)&m->column, got));
    if (value) {
        free(m->value);
        m->value = NULL;
        TR_TRY(tr_all_to_all(tr, TR_SET_GROUP, value, nonzeros, sizeof *value, (void **)&m->value, got));
    }
    return tr_replicate(tr, TR_SET_GROUP, (void **)&m->label, rows, sizeof *m->label);
}

int tr_unite_keys(tr_context *tr, const uint32_t *keys, size_t n, uint32_t **piece, size_t *n_piece)
{
    size_t members = (size_t)tr->layout.group_size, at = 0, samples = 0;
    TR_FREED uint32_t *sample = NULL, *all = NULL;
    TR_FREED uint64_t *count = NULL;
    uint64_t total;
    /* a sample of `members` keys from each member determines the borders of the ranges */
    TR_TRY(TR_NEW(&sample, members));
    for (; samples < members && n > 0; samples++) sample[samples] = keys[n * samples / members];
    TR_TRY(tr_gather_to_all(tr, TR_SET_GROUP, sample, samples, sizeof *sample, (void **)&all, &total));
    size_t distinct = (size_t)total;
    TR_TRY(tr_keys_sort(all, &distinct));
    TR_TRY(TR_NEW(&count, 2 * members));
    for (size_t i = 0; i < n; i++) { /* the range of member m begins at all[distinct * m / members] */
        while (at + 1 < members && keys[i] >= all[distinct * (at + 1) / members]) at++;
        count[at]++;
    }
    TR_TRY(tr_all_to_all(tr, TR_SET_GROUP, keys, count, sizeof *keys, (void **)piece, count + members));
    *n_piece = (size_t)sum_counts(count + members, (int)members);
    return tr_keys_sort(*piece, n_piece);
}

/* ---- triples: the worker of each row ---- */

/* Rows belong to buckets, and buckets to workers. */
struct dealing {
    uint64_t rows; /* all row numbers are below this number */
    bool hashed;
    uint64_t buckets;
    uint32_t *worker; /* worker[b]: the worker to which bucket b belongs */
};

static void dealing_close(struct dealing *plan)
{
    free(plan->worker);
}

static uint64_t dealing_bucket(const struct dealing *plan, uint32_t row)
{
    uint64_t where = plan->hashed ? tr_mix(row) >> 32 : ((uint64_t)row << 32) / plan->rows;
    return where * plan->buckets >> 32;
}

static uint32_t dealing_worker(const struct dealing *plan, const struct tr_triple *t)
{
    return plan->worker[dealing_bucket(plan, t->row)];
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

/* Assigns hashed buckets, in descending order of their number of triples, to workers 0, 1, ..., n - 1, n - 1, ..., 1, 0, 0, 1, ...
 * Buckets of consecutive rows are assigned in ascending order, so that each worker has about the same number of triples. */
static int dealing_open(tr_context *tr, const struct tr_triples *t, struct dealing *plan)
{
    enum { BUCKETS = 256 }; /* number of buckets per worker */
    uint64_t workers = (uint64_t)tr_layout_workers(&tr->layout);
    TR_FREED uint64_t *count = NULL;
    TR_FREED struct load *load = NULL;
    double total = 0, before = 0;
    plan->buckets = plan->rows < BUCKETS * workers ? plan->rows : BUCKETS * workers;
    TR_TRY(TR_NEW(&plan->worker, (size_t)plan->buckets));
    TR_TRY(TR_NEW(&count, (size_t)plan->buckets));
    for (size_t i = 0; i < t->n; i++) count[dealing_bucket(plan, t->triple[i].row)]++;
    TR_TRY(tr_all_reduce(tr, TR_SET_WORKERS, TR_SUM, TR_I64, count, (size_t)plan->buckets));
    if (plan->hashed) {
        TR_TRY(TR_NEW(&load, (size_t)plan->buckets));
        for (uint64_t b = 0; b < plan->buckets; b++) load[b] = (struct load){count[b], b};
        qsort(load, (size_t)plan->buckets, sizeof *load, load_descending);
        for (uint64_t b = 0; b < plan->buckets; b++) {
            uint64_t step = b % (2 * workers);
            plan->worker[load[b].bucket] = (uint32_t)(step < workers ? step : 2 * workers - 1 - step);
        }
        return TR_OK;
    }
    for (uint64_t b = 0; b < plan->buckets; b++) total += (double)count[b];
    for (uint64_t b = 0; b < plan->buckets; b++) {
        double middle = before + 0.5 * (double)count[b];
        uint64_t worker = total > 0 ? (uint64_t)(middle / total * (double)workers) : 0;
        plan->worker[b] = (uint32_t)(worker < workers ? worker : workers - 1);
        before += (double)count[b];
    }
    return TR_OK;
}

/* ---- triples: sending ---- */

/* Triples from all workers: those of worker w are begin[w] .. begin[w + 1] - 1. */
struct arrivals {
    uint64_t *begin, *next; /* next[w]: index for the next triple that arrives from worker w */
    struct tr_triple *triple;
    /* for each triple, the index of its piece among all pieces; NULL: triples are sorted already */
    uint32_t *order;
};

/* Sends n triples to the workers of their rows. order: see struct arrivals. */
static int triples_send_round(tr_context *tr, const struct dealing *plan, const struct tr_triple *triple,
                              const uint32_t *order, size_t n, struct arrivals *in)
{
    int workers = tr_layout_workers(&tr->layout);
    TR_FREED uint64_t *count = NULL;
    TR_FREED struct tr_triple *packed = NULL, *got = NULL;
    TR_FREED uint32_t *packed_order = NULL, *got_order = NULL;
    uint64_t *got_count, *at, from = 0;
    TR_TRY(TR_NEW(&count, 3 * (size_t)workers + 1));
    got_count = count + workers;
    at = got_count + workers;
    TR_TRY(TR_NEW(&packed, n));
    if (order) TR_TRY(TR_NEW(&packed_order, n));
    for (size_t i = 0; i < n; i++) count[dealing_worker(plan, &triple[i])]++;
    for (int w = 0; w < workers; w++) at[w + 1] = at[w] + count[w];
    for (size_t i = 0; i < n; i++) {
        uint64_t to = at[dealing_worker(plan, &triple[i])]++;
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
    return TR_OK;
}

/* Sets (*order)[i] to the index, among the pieces of all files, of the piece from which triple i was read. */
static int triples_number_pieces(tr_context *tr, size_t files, const struct tr_triples *t, uint32_t **order)
{
    /* first: number of pieces of each file; then: number of pieces of all files before each file */
    TR_FREED uint64_t *pieces = NULL;
    uint64_t sum = 0;
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
    return TR_OK;
}

/* Sorts all triples by their pieces: merges the triples of the workers, each of which has sent them in the order of pieces. */
static int triples_merge(struct arrivals *in, int workers)
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

static void arrivals_free(struct arrivals *in)
{
    void *arrays[] = {in->begin, in->next, in->triple, in->order};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) free(arrays[i]);
}

/* Sends the triples in rounds. Each round frees the triples that it has sent, so that sent and received triples together take
 * little more memory than one copy. */
int tr_shuffle_triples(tr_context *tr, uint64_t rows, bool hashed, size_t files, bool interleaved,
                       struct tr_triples *t)
{
    enum { ROUND = 1 << 18 }; /* triples that a worker sends in a round: 3 MiB */
    size_t workers = (size_t)tr_layout_workers(&tr->layout);
    TR_CLOSED_BY(dealing_close) struct dealing plan = {.rows = rows, .hashed = hashed};
    TR_CLOSED_BY(arrivals_free) struct arrivals in = {0};
    TR_FREED uint32_t *order = NULL;
    TR_FREED uint64_t *count = NULL;
    uint64_t rounds = (t->n + ROUND - 1) / ROUND;
    if (workers == 1) return TR_OK;
    TR_TRY(dealing_open(tr, t, &plan));
    TR_TRY(TR_NEW(&count, workers));
    TR_TRY(TR_NEW(&in.begin, workers + 1));
    TR_TRY(TR_NEW(&in.next, workers));
    for (size_t i = 0; i < t->n; i++) count[dealing_worker(&plan, &t->triple[i])]++;
    TR_TRY(tr_exchange_counts(tr, TR_SET_WORKERS, count, in.begin + 1));
    for (size_t w = 0; w < workers; w++) {
        in.begin[w + 1] += in.begin[w];
        in.next[w] = in.begin[w];
    }
    TR_TRY(TR_NEW(&in.triple, (size_t)in.begin[workers]));
    if (interleaved) TR_TRY(TR_NEW(&in.order, (size_t)in.begin[workers]));
    if (interleaved) TR_TRY(triples_number_pieces(tr, files, t, &order));
    TR_TRY(tr_all_reduce(tr, TR_SET_WORKERS, TR_MAX, TR_I64, &rounds, 1));
    for (uint64_t k = 0; k < rounds; k++) {
        size_t first = tr_min_size((size_t)k * ROUND, t->n), n = tr_min_size(ROUND, t->n - first);
        TR_TRY(triples_send_round(tr, &plan, t->triple + first, order ? order + first : NULL, n, &in));
        tr_pages_give_back(t->triple + first, n * sizeof *t->triple);
    }
    if (interleaved) TR_TRY(triples_merge(&in, (int)workers));
    free(t->triple);
    t->triple = in.triple;
    t->n = t->triple_capacity = (size_t)in.begin[workers];
    in.triple = NULL;
    return TR_OK;
}
