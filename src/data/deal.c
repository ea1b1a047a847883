#define _GNU_SOURCE
#include "data/deal.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "data/dataset.h"

/* ---- which row is whose ---- */

static uint64_t bucket_of(const struct tr_deal *deal, uint32_t row)
{
    uint64_t where = deal->hashed ? tr_mix(row) >> 32 : ((uint64_t)row << 32) / deal->rows;
    return where * deal->buckets >> 32;
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
static int give_out_hashed(struct tr_deal *deal, const uint64_t *count, uint64_t workers)
{
    struct load *load;
    TR_TRY(TR_NEW(&load, (size_t)deal->buckets));
    for (uint64_t b = 0; b < deal->buckets; b++) load[b] = (struct load){count[b], b};
    qsort(load, (size_t)deal->buckets, sizeof *load, by_load);
    for (uint64_t i = 0; i < deal->buckets; i++) {
        uint64_t turn = i % (2 * workers);
        deal->worker[load[i].bucket] = (uint32_t)(turn < workers ? turn : 2 * workers - 1 - turn);
    }
    free(load);
    return TR_OK;
}

/* In their order, as many non-zeros to each worker. */
static void give_out_in_order(struct tr_deal *deal, const uint64_t *count, uint64_t workers)
{
    double total = 0, before = 0;
    for (uint64_t b = 0; b < deal->buckets; b++) total += (double)count[b];
    for (uint64_t b = 0; b < deal->buckets; b++) {
        double middle = before + 0.5 * (double)count[b];
        uint64_t worker = total > 0 ? (uint64_t)(middle / total * (double)workers) : 0;
        deal->worker[b] = (uint32_t)(worker < workers ? worker : workers - 1);
        before += (double)count[b];
    }
}

int tr_deal_plan(tr_context *tr, const struct tr_triples *triples, uint64_t rows, bool hashed,
                 struct tr_deal *deal)
{
    enum { BUCKETS = 256 }; /* of each worker */
    uint64_t workers = (uint64_t)tr_layout_workers(&tr->layout), *count;
    *deal = (struct tr_deal){
        .rows = rows, .hashed = hashed, .buckets = rows < BUCKETS * workers ? rows : BUCKETS * workers};
    TR_TRY(TR_NEW(&deal->worker, (size_t)deal->buckets));
    if (workers == 1) return TR_OK;
    TR_TRY(TR_NEW(&count, (size_t)deal->buckets));
    for (size_t i = 0; i < triples->n; i++) count[bucket_of(deal, triples->triple[i].row)]++;
    MPI_Request request;
    MPI_Iallreduce(MPI_IN_PLACE, count, (int)deal->buckets, MPI_UINT64_T, MPI_SUM, tr->workers, &request);
    TR_TRY(tr_wait_request(tr, &request, "all workers to deal rows"));
    int status = TR_OK;
    if (hashed) status = give_out_hashed(deal, count, workers);
    else give_out_in_order(deal, count, workers);
    free(count);
    return status;
}

void tr_deal_free(struct tr_deal *deal)
{
    free(deal->worker);
    *deal = (struct tr_deal){0};
}

/* ---- on their way ---- */

/* Gives back the memory of whole pages of an array that is no longer read; the array can still be freed. */
static void drop_pages(void *array, size_t from, size_t to)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), base = (uintptr_t)array;
    uintptr_t first = (base + from + page - 1) / page * page, last = (base + to) / page * page;
    if (last > first)
        madvise((void *)first, last - first, MADV_DONTNEED); /* nothing is lost where it fails */
}

/* Where the next triples of each worker go in the array of all that this worker gets. */
struct arrivals {
    uint64_t *next;
    struct tr_triple *triple;
    uint32_t *order; /* NULL: by worker */
};

/* A part of what is to be sent, sorted by worker. */
static int send_some(tr_context *tr, const struct tr_deal *deal, const struct tr_triple *triple,
                     const uint32_t *order, size_t n, struct arrivals *in)
{
    int workers = tr_layout_workers(&tr->layout);
    uint64_t *count, *got_count, *at;
    struct tr_triple *packed, *got;
    uint32_t *packed_order = NULL, *got_order = NULL;
    TR_TRY(TR_NEW(&count, (size_t)workers));
    TR_TRY(TR_NEW(&got_count, (size_t)workers));
    TR_TRY(TR_NEW(&at, (size_t)workers + 1));
    TR_TRY(TR_NEW(&packed, n));
    if (order) TR_TRY(TR_NEW(&packed_order, n));
    for (size_t i = 0; i < n; i++) count[deal->worker[bucket_of(deal, triple[i].row)]]++;
    for (int w = 0; w < workers; w++) at[w + 1] = at[w] + count[w];
    for (size_t i = 0; i < n; i++) {
        uint64_t to = at[deal->worker[bucket_of(deal, triple[i].row)]]++;
        packed[to] = triple[i];
        if (order) packed_order[to] = order[i];
    }
    TR_TRY(tr_ship(tr, tr->workers, packed, count, sizeof *packed, (void **)&got, got_count));
    if (order)
        TR_TRY(tr_ship(tr, tr->workers, packed_order, count, sizeof *order, (void **)&got_order, got_count));
    uint64_t from = 0;
    for (int w = 0; w < workers; from += got_count[w++]) {
        memcpy(in->triple + in->next[w], got + from, (size_t)got_count[w] * sizeof *got);
        if (order)
            memcpy(in->order + in->next[w], got_order + from, (size_t)got_count[w] * sizeof *got_order);
        in->next[w] += got_count[w];
    }
    void *parts[] = {count, got_count, at, packed, got, packed_order, got_order};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) free(parts[i]);
    return TR_OK;
}

/* The place of each triple's piece among all pieces of all files, which are numbered file by file. */
static int number_pieces(tr_context *tr, size_t files, const struct tr_triples *t, uint32_t **order)
{
    uint64_t *pieces; /* of each file, then of those before it */
    TR_TRY(TR_NEW(&pieces, files));
    TR_TRY(TR_NEW(order, t->n));
    for (size_t i = 0; i < t->runs; i++)
        if (t->run[i].piece >= pieces[t->run[i].file]) pieces[t->run[i].file] = t->run[i].piece + 1;
    MPI_Request request;
    MPI_Iallreduce(MPI_IN_PLACE, pieces, (int)files, MPI_UINT64_T, MPI_MAX, tr->workers, &request);
    TR_TRY(tr_wait_request(tr, &request, "all workers to number pieces"));
    uint64_t sum = 0;
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
static int merge_by_order(const struct arrivals *in, const uint64_t *begin, int workers,
                          struct tr_triple **merged)
{
    uint64_t *next, total = begin[workers], n = 0;
    TR_TRY(TR_NEW(&next, (size_t)workers));
    TR_TRY(TR_NEW(merged, (size_t)total));
    memcpy(next, begin, (size_t)workers * sizeof *next);
    while (n < total) {
        int best = -1;
        for (int w = 0; w < workers; w++)
            if (next[w] < begin[w + 1] && (best < 0 || in->order[next[w]] < in->order[next[best]])) best = w;
        uint32_t order = in->order[next[best]];
        while (next[best] < begin[best + 1] && in->order[next[best]] == order)
            (*merged)[n++] = in->triple[next[best]++];
    }
    free(next);
    return TR_OK;
}

/* How much comes from whom. begin has one place more than there are workers. */
static int count_arrivals(tr_context *tr, const struct tr_deal *deal, const struct tr_triples *t,
                          uint64_t *begin)
{
    int workers = tr_layout_workers(&tr->layout);
    uint64_t *count;
    TR_TRY(TR_NEW(&count, (size_t)workers));
    for (size_t i = 0; i < t->n; i++) count[deal->worker[bucket_of(deal, t->triple[i].row)]]++;
    MPI_Request request;
    MPI_Ialltoall(count, 1, MPI_UINT64_T, begin + 1, 1, MPI_UINT64_T, tr->workers, &request);
    TR_TRY(tr_wait_request(tr, &request, "all workers to deal rows"));
    for (int w = 0; w < workers; w++) begin[w + 1] += begin[w];
    free(count);
    return TR_OK;
}

static int count_rounds(tr_context *tr, size_t n, size_t most, uint64_t *rounds)
{
    *rounds = (n + most - 1) / most;
    MPI_Request request;
    MPI_Iallreduce(MPI_IN_PLACE, rounds, 1, MPI_UINT64_T, MPI_MAX, tr->workers, &request);
    return tr_wait_request(tr, &request, "all workers to deal rows");
}

int tr_deal_triples(tr_context *tr, const struct tr_deal *deal, size_t files, bool in_turns,
                    struct tr_triples *t)
{
    enum { ROUND = 1 << 18 }; /* triples that a worker sends at once: 3 MiB */
    int workers = tr_layout_workers(&tr->layout);
    if (workers == 1) return TR_OK;
    struct arrivals in = {0};
    uint64_t *begin, rounds;
    uint32_t *order = NULL;
    TR_TRY(TR_NEW(&begin, (size_t)workers + 1));
    TR_TRY(TR_NEW(&in.next, (size_t)workers));
    TR_TRY(count_arrivals(tr, deal, t, begin));
    memcpy(in.next, begin, (size_t)workers * sizeof *begin);
    if (in_turns) TR_TRY(number_pieces(tr, files, t, &order));
    TR_TRY(TR_NEW(&in.triple, (size_t)begin[workers]));
    if (in_turns) TR_TRY(TR_NEW(&in.order, (size_t)begin[workers]));
    TR_TRY(count_rounds(tr, t->n, ROUND, &rounds));
    for (uint64_t k = 0; k < rounds; k++) {
        size_t first = tr_min_size((size_t)k * ROUND, t->n), n = tr_min_size(ROUND, t->n - first);
        TR_TRY(send_some(tr, deal, t->triple + first, order ? order + first : NULL, n, &in));
        drop_pages(t->triple, first * sizeof *t->triple, (first + n) * sizeof *t->triple);
    }
    free(order);
    free(t->triple);
    t->triple = in.triple;
    t->n = t->triple_capacity = (size_t)begin[workers];
    if (in_turns) {
        TR_TRY(merge_by_order(&in, begin, workers, &t->triple));
        free(in.triple);
    }
    free(in.order);
    free(in.next);
    free(begin);
    return TR_OK;
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
static int place_rows(struct tr_triples *t, uint64_t row_numbers, struct tr_csr *csr, uint64_t **numbers)
{
    struct word *words;
    TR_TRY(find_rows(t, row_numbers, &words, &csr->rows, numbers));
    TR_TRY(TR_NEW(&csr->begin, csr->rows + 2));
    uint64_t *next =
        csr->begin + 1; /* first lengths, then where the next non-zero goes: the row's end at last */
    bool all = csr->rows == row_numbers;
    for (size_t i = 0; i < t->n; i++) {
        size_t row = all ? t->triple[i].row : rank_of(words, t->triple[i].row);
        t->triple[i].row = (uint32_t)row;
        next[row + 1]++;
    }
    for (size_t row = 0; row < csr->rows; row++) next[row + 1] += next[row];
    free(words);
    return TR_OK;
}

enum { SOME = 1 << 16 }; /* triples whose memory is given back at once */

static void drop_triples(struct tr_triples *t, size_t first, size_t end)
{
    drop_pages(t->triple, first * sizeof *t->triple, end * sizeof *t->triple);
}

static void put_in_order(struct tr_triples *t, struct tr_csr *csr)
{
    for (size_t first = 0; first < t->n; first += SOME) {
        size_t end = tr_min_size(first + SOME, t->n);
        for (size_t i = first; i < end; i++) {
            csr->begin[t->triple[i].row + 1]++;
            csr->column[i] = t->triple[i].column;
            csr->value[i] = t->triple[i].value;
        }
        drop_triples(t, first, end);
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
        drop_triples(t, first, end);
    }
    return TR_OK;
}

/* By columns, and from there to rows: two passes that keep the order of what is equal. */
static int put_by_columns(struct tr_triples *t, size_t columns, struct tr_csr *csr)
{
    struct entry *entry;
    uint64_t *begin, *next = csr->begin + 1;
    size_t n = t->n;
    TR_TRY(sort_by_column(t, columns, &entry, &begin));
    tr_triples_free(t);
    TR_TRY(TR_NEW(&csr->column, n));
    TR_TRY(TR_NEW(&csr->value, n));
    for (size_t c = 0; c < columns; c++)
        for (uint64_t k = begin[c]; k < begin[c + 1]; k++) {
            uint64_t to = next[entry[k].row]++;
            csr->column[to] = (uint32_t)c;
            csr->value[to] = entry[k].value;
        }
    free(entry);
    free(begin);
    return TR_OK;
}

int tr_triples_to_rows(struct tr_triples *t, uint64_t row_numbers, size_t columns, struct tr_csr *csr,
                       uint64_t **numbers)
{
    *csr = (struct tr_csr){0};
    bool ordered = in_order(t);
    TR_TRY(place_rows(t, row_numbers, csr, numbers));
    if (!ordered) return put_by_columns(t, columns, csr);
    TR_TRY(TR_NEW(&csr->column, t->n));
    TR_TRY(TR_NEW(&csr->value, t->n));
    put_in_order(t, csr);
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

void tr_rows_merge(struct tr_csr *csr, int duplicates)
{
    uint64_t kept = 0, k = 0;
    for (size_t i = 0; i < csr->rows; i++) {
        uint64_t end = csr->begin[i + 1];
        while (k < end) {
            uint64_t first = k;
            while (k < end && csr->column[k] == csr->column[first]) k++;
            float value = k - first == 1 ? csr->value[first] : merged(csr->value, first, k, duplicates);
            csr->column[kept] = csr->column[first];
            csr->value[kept++] = value;
        }
        csr->begin[i + 1] = kept;
    }
}
