#include "columns.h"

#include <stdlib.h>
#include <string.h>

#include "trireme/base.h"

/* Maximum number of elements of a replicated vector: 1 MB. */
enum { MOST_WHOLE = 1 << 17 };

static uint64_t columns_first(uint64_t columns, int worker, int workers)
{
    uint64_t all = (uint64_t)workers, w = (uint64_t)worker;
    return columns / all * w + columns % all * w / all;
}

int tr_columns_open(struct tr_columns *c, tr_context *tr, const tr_key *keys, size_t n, uint64_t columns,
                    size_t width)
{
    *c = (struct tr_columns){
        .tr = tr, .workers = tr ? tr_workers(tr) : 1, .width = width, .keys = keys, .local = n};
    c->whole = c->workers == 1 || columns * width <= MOST_WHOLE;
    int me = c->whole ? 0 : tr_set_rank(tr, TR_SET_WORKERS), parts = c->whole ? 1 : c->workers;
    c->first = columns_first(columns, me, parts);
    uint64_t own = columns_first(columns, me + 1, parts) - c->first;
    if (own > UINT32_MAX)
        return tr_fail(
            TR_ERR_CONFIG,
            "solve.method newton and descent keep vectors of all columns, and there are %llu at each worker: "
            "expected fewer than 2^32, or solve.method dual",
            (unsigned long long)own);
    c->n = (size_t)own;
    if (c->whole) return TR_OK;
    TR_TRY(TR_NEW(&c->to, (size_t)c->workers));
    TR_TRY(TR_NEW(&c->from, (size_t)c->workers));
    /* sends the columns of this worker's rows to their owners */
    tr_key *received;
    size_t at = 0, bytes = 0;
    for (int w = 0; w < c->workers; w++) {
        size_t begin = at;
        uint64_t end = columns_first(columns, w + 1, c->workers);
        while (at < n && keys[at] < end) at++;
        c->to[w] = (at - begin) * sizeof(tr_key);
    }
    TR_TRY(tr_exchange_counts(tr, TR_SET_WORKERS, c->to, c->from));
    for (int w = 0; w < c->workers; w++) bytes += c->from[w];
    c->places = bytes / sizeof *received;
    TR_TRY(TR_NEW(&received, c->places));
    int status = tr_exchange(tr, TR_SET_WORKERS, keys, c->to, received, c->from);
    if (status == TR_OK) status = TR_NEW(&c->place, c->places);
    for (size_t i = 0; i < c->places && status == TR_OK; i++)
        c->place[i] = (uint32_t)(received[i] - c->first);
    free(received);
    for (int w = 0; w < c->workers; w++) c->to[w] *= width, c->from[w] *= width;
    return status == TR_OK ? TR_NEW(&c->buffer, c->places * width) : status;
}

void tr_columns_close(struct tr_columns *c)
{
    free(c->to);
    free(c->from);
    free(c->place);
    free(c->buffer);
    *c = (struct tr_columns){0};
}

static void columns_copy(double *to, const double *from, size_t width)
{
    for (size_t k = 0; k < width; k++) to[k] = from[k];
}

int tr_columns_sum(struct tr_columns *c, const double *local, double *own)
{
    size_t width = c->width;
    memset(own, 0, c->n * width * sizeof *own);
    if (c->whole) {
        for (size_t j = 0; j < c->local; j++)
            columns_copy(own + c->keys[j] * width, local + j * width, width);
        return tr_columns_sum_rows(c, own, c->n * width);
    }
    TR_TRY(tr_exchange(c->tr, TR_SET_WORKERS, local, c->to, c->buffer, c->from));
    for (size_t i = 0; i < c->places; i++)
        for (size_t k = 0; k < width; k++) own[c->place[i] * width + k] += c->buffer[i * width + k];
    return TR_OK;
}

int tr_columns_fetch(struct tr_columns *c, const double *own, double *local)
{
    size_t width = c->width;
    if (c->whole) {
        for (size_t j = 0; j < c->local; j++)
            columns_copy(local + j * width, own + c->keys[j] * width, width);
        return TR_OK;
    }
    for (size_t i = 0; i < c->places; i++)
        columns_copy(c->buffer + i * width, own + c->place[i] * width, width);
    return tr_exchange(c->tr, TR_SET_WORKERS, c->buffer, c->from, local, c->to);
}

int tr_columns_sum_rows(struct tr_columns *c, double *sums, size_t n)
{
    return c->workers == 1 ? TR_OK : tr_all_reduce(c->tr, TR_SET_WORKERS, TR_SUM, TR_F64, sums, n);
}

int tr_columns_sum_parts(struct tr_columns *c, double *sums, size_t n)
{
    return c->whole ? TR_OK : tr_columns_sum_rows(c, sums, n);
}
