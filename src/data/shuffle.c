#define _GNU_SOURCE
#include "data/shuffle.h"

#include <stdlib.h>
#include <string.h>

#include "base/pages.h"
#include "data/exchange.h"

/* ---- which row is whose ---- */

/* How rows lie over workers. */
struct plan {
    uint64_t rows; /* numbers are 0 .. rows - 1 */
    bool hashed;
    uint64_t buckets;
    uint32_t *worker; /* of each bucket */
};

static uint64_t bucket_of(const struct plan *plan, uint32_t row)
{
    uint64_t where = plan->hashed ? tr_mix(row) >> 32 : ((uint64_t)row << 32) / plan->rows;
    return where * plan->buckets >> 32;
}

struct load {
    uint64_t nonzeros, bucket;
};

static int by_load(const void *a, const void *b)
{
    const struct load *x = a, *y = b;
    if (x->nonzeros != y->nonzeros) return x->nonzeros < y->nonzeros ? 1 : -1;
    return (x->bucket > y->bucket) - (x->bucket < y->bucket);
}

/* The fullest first, there and back again. */
static int give_out_hashed(struct plan *plan, const uint64_t *count, uint64_t workers)
{
    struct load *load;
    TR_TRY(TR_NEW(&load, (size_t)plan->buckets));
    for (uint64_t b = 0; b < plan->buckets; b++) load[b] = (struct load){count[b], b};
    qsort(load, (size_t)plan->buckets, sizeof *load, by_load);
    for (uint64_t i = 0; i < plan->buckets; i++) {
        uint64_t turn = i % (2 * workers);
        plan->worker[load[i].bucket] = (uint32_t)(turn < workers ? turn : 2 * workers - 1 - turn);
    }
    free(load);
    return TR_OK;
}

/* In their order, as many non-zeros to each worker. */
static void give_out_in_order(struct plan *plan, const uint64_t *count, uint64_t workers)
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

static uint32_t worker_of(const struct plan *plan, const struct tr_triple *t)
{
    return plan->worker[bucket_of(plan, t->row)];
}

static int make_plan(tr_context *tr, const struct tr_triples *t, struct plan *plan)
{
    enum { BUCKETS = 256 }; /* of each worker */
    uint64_t workers = (uint64_t)tr_layout_workers(&tr->layout), *count;
    plan->buckets = plan->rows < BUCKETS * workers ? plan->rows : BUCKETS * workers;
    TR_TRY(TR_NEW(&plan->worker, (size_t)plan->buckets));
    TR_TRY(TR_NEW(&count, (size_t)plan->buckets));
    for (size_t i = 0; i < t->n; i++) count[bucket_of(plan, t->triple[i].row)]++;
    int status = tr_all_reduce(tr, TR_SET_WORKERS, TR_SUM, TR_I64, count, (size_t)plan->buckets);
    if (status == TR_OK && plan->hashed) status = give_out_hashed(plan, count, workers);
    else if (status == TR_OK) give_out_in_order(plan, count, workers);
    free(count);
    return status;
}

/* ---- on their way ---- */

/* What comes from all workers: worker w's are begin[w] .. begin[w + 1] - 1. */
struct arrivals {
    uint64_t *begin, *next; /* next: where its next go */
    struct tr_triple *triple;
    uint32_t *order; /* of each, the place of its piece among all; NULL: by worker */
};

/* A part of what is to be sent, sorted by worker. order: NULL, or one a triple. */
static int send_some(tr_context *tr, const struct plan *plan, const struct tr_triple *triple,
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
    void *parts[] = {count, packed, got, packed_order, got_order};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) free(parts[i]);
    return TR_OK;
}

/* The place of each triple's piece among all pieces of all files, which are numbered file by file. */
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

/* Merges what the workers have sent, each in order. */
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

/* Makes room for what comes from whom. */
static int open_arrivals(tr_context *tr, const struct plan *plan, const struct tr_triples *t, bool in_turns,
                         struct arrivals *in)
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
    if (status == TR_OK && in_turns) status = TR_NEW(&in->order, (size_t)in->begin[workers]);
    return status;
}

/* In rounds, so that what is sent and what comes take hardly more memory than one of them. */
static int send_all(tr_context *tr, const struct plan *plan, struct tr_triples *t, const uint32_t *order,
                    struct arrivals *in)
{
    enum { ROUND = 1 << 18 }; /* triples that a worker sends at once: 3 MiB */
    uint64_t rounds = (t->n + ROUND - 1) / ROUND;
    TR_TRY(tr_all_reduce(tr, TR_SET_WORKERS, TR_MAX, TR_I64, &rounds, 1));
    for (uint64_t k = 0; k < rounds; k++) {
        size_t first = tr_min_size((size_t)k * ROUND, t->n), n = tr_min_size(ROUND, t->n - first);
        TR_TRY(send_some(tr, plan, t->triple + first, order ? order + first : NULL, n, in));
        tr_pages_give_back(t->triple + first, n * sizeof *t->triple);
    }
    return TR_OK;
}

int tr_shuffle_triples(tr_context *tr, uint64_t rows, bool hashed, size_t files, bool in_turns,
                       struct tr_triples *t)
{
    int workers = tr_layout_workers(&tr->layout);
    struct plan plan = {.rows = rows, .hashed = hashed};
    struct arrivals in = {0};
    uint32_t *order = NULL;
    if (workers == 1) return TR_OK;
    int status = make_plan(tr, t, &plan);
    if (status == TR_OK) status = open_arrivals(tr, &plan, t, in_turns, &in);
    if (status == TR_OK && in_turns) status = number_pieces(tr, files, t, &order);
    if (status == TR_OK) status = send_all(tr, &plan, t, order, &in);
    if (status == TR_OK && in_turns) status = merge_by_order(&in, workers);
    if (status == TR_OK) {
        free(t->triple);
        t->triple = in.triple;
        t->n = t->triple_capacity = (size_t)in.begin[workers];
    } else {
        free(in.triple);
    }
    void *parts[] = {plan.worker, order, in.order, in.next, in.begin};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) free(parts[i]);
    return status;
}

/* ---- rows ---- */

/* 64 row numbers: which of them occur, and how many occur before the first. */
struct word {
    uint64_t bits, rank;
};

static size_t rank_of(const struct word *words, uint32_t row)
{
    const struct word *w = &words[row / 64];
    return (size_t)w->rank + (size_t)__builtin_popcountll(w->bits & (((uint64_t)1 << row % 64) - 1));
}

/* Numbers the rows that occur, and lists their numbers. */
static int find_rows(const struct tr_triples *t, uint64_t row_numbers, struct word **words, size_t *n,
                     uint64_t **numbers)
{
    size_t length = (size_t)(row_numbers / 64 + 1), rows = 0;
    TR_TRY(TR_NEW(words, length));
    for (size_t i = 0; i < t->n; i++)
        (*words)[t->triple[i].row / 64].bits |= (uint64_t)1 << t->triple[i].row % 64;
    for (size_t i = 0; i < length; i++) {
        (*words)[i].rank = rows;
        rows += (size_t)__builtin_popcountll((*words)[i].bits);
    }
    TR_TRY(TR_NEW(numbers, rows));
    uint64_t *number = *numbers;
    for (size_t i = 0; i < length; i++)
        for (uint64_t bits = (*words)[i].bits; bits; bits &= bits - 1)
            *number++ = 64 * i + (uint64_t)__builtin_ctzll(bits);
    *n = rows;
    return TR_OK;
}

static bool in_order(const struct tr_triples *t)
{
    for (size_t i = 1; i < t->n; i++) {
        const struct tr_triple *a = &t->triple[i - 1], *b = &t->triple[i];
        if (a->row > b->row || (a->row == b->row && a->column > b->column)) return false;
    }
    return true;
}

/* From here on a triple's row is its place among those of this worker; *next is where each row begins. */
static int place_rows(struct tr_triples *t, uint64_t row_numbers, struct tr_matrix *m, uint64_t **numbers)
{
    struct word *words;
    TR_TRY(find_rows(t, row_numbers, &words, &m->rows, numbers));
    TR_TRY(TR_NEW(&m->begin, m->rows + 2));
    uint64_t *next =
        m->begin + 1; /* first lengths, then where the next non-zero goes: the row's end at last */
    bool all = m->rows == row_numbers;
    for (size_t i = 0; i < t->n; i++) {
        size_t row = all ? t->triple[i].row : rank_of(words, t->triple[i].row);
        t->triple[i].row = (uint32_t)row;
        next[row + 1]++;
    }
    for (size_t row = 0; row < m->rows; row++) next[row + 1] += next[row];
    free(words);
    return TR_OK;
}

enum { SOME = 1 << 16 }; /* triples whose memory is given back at once */

static void put_in_order(struct tr_triples *t, struct tr_matrix *m)
{
    for (size_t first = 0; first < t->n; first += SOME) {
        size_t end = tr_min_size(first + SOME, t->n);
        for (size_t i = first; i < end; i++) {
            m->begin[t->triple[i].row + 1]++;
            m->column[i] = t->triple[i].column;
            m->value[i] = t->triple[i].value;
        }
        tr_pages_give_back(t->triple + first, (end - first) * sizeof *t->triple);
    }
}

/* What is left of a triple that lies with others of its column. */
struct entry {
    uint32_t row;
    float value;
};

/* The entries of column c become begin[c] .. begin[c + 1] - 1. */
static int sort_by_column(struct tr_triples *t, size_t columns, struct entry **entry, uint64_t **begin)
{
    uint64_t *next;
    TR_TRY(TR_NEW(begin, columns + 2));
    TR_TRY(TR_NEW(entry, t->n));
    next = *begin + 1;
    for (size_t i = 0; i < t->n; i++) next[t->triple[i].column + 1]++;
    for (size_t c = 0; c < columns; c++) next[c + 1] += next[c];
    for (size_t first = 0; first < t->n; first += SOME) {
        size_t end = tr_min_size(first + SOME, t->n);
        for (size_t i = first; i < end; i++)
            (*entry)[next[t->triple[i].column]++] = (struct entry){t->triple[i].row, t->triple[i].value};
        tr_pages_give_back(t->triple + first, (end - first) * sizeof *t->triple);
    }
    return TR_OK;
}

/* By columns, and from there to rows: two passes that keep the order of what is equal. */
static int put_by_columns(struct tr_triples *t, size_t columns, struct tr_matrix *m)
{
    struct entry *entry;
    uint64_t *begin, *next = m->begin + 1;
    size_t n = t->n;
    TR_TRY(sort_by_column(t, columns, &entry, &begin));
    tr_triples_free(t);
    TR_TRY(TR_NEW(&m->column, n));
    TR_TRY(TR_NEW(&m->value, n));
    for (size_t c = 0; c < columns; c++)
        for (uint64_t k = begin[c]; k < begin[c + 1]; k++) {
            uint64_t to = next[entry[k].row]++;
            m->column[to] = (uint32_t)c;
            m->value[to] = entry[k].value;
        }
    free(entry);
    free(begin);
    return TR_OK;
}

int tr_triples_to_rows(struct tr_triples *t, uint64_t row_numbers, size_t columns, struct tr_matrix *m,
                       uint64_t **numbers)
{
    *m = (struct tr_matrix){0};
    bool ordered = in_order(t);
    TR_TRY(place_rows(t, row_numbers, m, numbers));
    if (!ordered) return put_by_columns(t, columns, m);
    TR_TRY(TR_NEW(&m->column, t->n));
    TR_TRY(TR_NEW(&m->value, t->n));
    put_in_order(t, m);
    tr_triples_free(t);
    return TR_OK;
}

/* The value of the non-zeros first .. end - 1, which are of one row and column. */
static float merged(const float *value, uint64_t first, uint64_t end, int duplicates)
{
    double sum = 0;
    if (duplicates == TR_DUPLICATES_LAST) return value[end - 1];
    for (uint64_t k = first; k < end; k++) sum += (double)value[k];
    return (float)(duplicates == TR_DUPLICATES_MEAN ? sum / (double)(end - first) : sum);
}

void tr_rows_merge(struct tr_matrix *m, int duplicates)
{
    uint64_t kept = 0, k = 0;
    for (size_t i = 0; i < m->rows; i++) {
        uint64_t end = m->begin[i + 1];
        while (k < end) {
            uint64_t first = k;
            while (k < end && m->column[k] == m->column[first]) k++;
            float value = k - first == 1 ? m->value[first] : merged(m->value, first, k, duplicates);
            m->column[kept] = m->column[first];
            m->value[kept++] = value;
        }
        m->begin[i + 1] = kept;
    }
}
