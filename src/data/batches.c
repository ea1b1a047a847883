#include <stdlib.h>
#include <string.h>

#include "data/dataset.h"

void tr_batches_free(struct tr_batches *b)
{
    void *parts[] = {b->order, b->begin, b->column, b->value, b->label, b->weight};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) free(parts[i]);
    *b = (struct tr_batches){0};
}

/* Makes room for the largest batch of the pass. */
static int make_room(const tr_data *data, struct tr_batches *b)
{
    const tr_batch *rows = &data->rows;
    size_t most = 0;
    TR_TRY(TR_GROW(&b->begin, &b->begin_capacity, b->size + 1));
    TR_TRY(TR_GROW(&b->label, &b->label_capacity, b->size));
    if (rows->weight) TR_TRY(TR_GROW(&b->weight, &b->weight_capacity, b->size));
    if (rows->dense) return TR_GROW(&b->value, &b->value_capacity, b->size * (size_t)data->columns);
    for (size_t first = 0; first < b->end; first += b->size) {
        size_t sum = 0, end = tr_min_size(first + b->size, b->end);
        for (size_t i = first; i < end; i++)
            sum += (size_t)(rows->begin[b->order[i] + 1] - rows->begin[b->order[i]]);
        most = tr_max_size(most, sum);
    }
    TR_TRY(TR_GROW(&b->column, &b->column_capacity, most));
    return rows->value ? TR_GROW(&b->value, &b->value_capacity, most) : TR_OK;
}

int tr_data_shuffle(tr_data *data, const tr_worker *me, size_t rows, uint64_t pass)
{
    struct tr_batches *b = &((struct tr_data_user *)(void *)data)->batches;
    size_t first = tr_data_part_begin(data, me), n = tr_data_part_end(data, me) - first;
    struct tr_rng rng;
    if (rows == 0) return tr_fail(TR_ERR_CONFIG, "mini-batches of 0 rows, expected 1 at least");
    if (n >= UINT32_MAX)
        return tr_fail(TR_ERR_SYSTEM, "a worker has more than 2^32 - 2 rows: use more workers");
    TR_TRY(TR_GROW(&b->order, &b->order_capacity, n));
    tr_rng_seed(&rng, data->state->tr->job->seed, (uint64_t)me->worker, pass);
    tr_rng_permutation(&rng, b->order, n);
    for (size_t i = 0; i < n; i++) b->order[i] += (uint32_t)first;
    b->next = 0;
    b->end = n;
    b->size = tr_min_size(rows, n);
    return n > 0 ? make_room(data, b) : TR_OK;
}

static void copy_row(const tr_data *data, struct tr_batches *b, size_t row, size_t to)
{
    const tr_batch *rows = &data->rows;
    if (rows->label) b->label[to] = rows->label[row];
    if (rows->weight) b->weight[to] = rows->weight[row];
    if (rows->dense) {
        size_t n = (size_t)data->columns;
        memcpy(b->value + to * n, rows->dense + row * n, n * sizeof *b->value);
        return;
    }
    uint64_t from = rows->begin[row], n = rows->begin[row + 1] - from, at = b->begin[to];
    memcpy(b->column + at, rows->column + from, n * sizeof *b->column);
    if (rows->value) memcpy(b->value + at, rows->value + from, n * sizeof *b->value);
    b->begin[to + 1] = at + n;
}

bool tr_data_next(tr_data *data, tr_batch *batch)
{
    struct tr_batches *b = &((struct tr_data_user *)(void *)data)->batches;
    const tr_batch *rows = &data->rows;
    size_t n = tr_min_size(b->size, b->end - b->next);
    if (n == 0) return false;
    b->begin[0] = 0;
    for (size_t i = 0; i < n; i++) copy_row(data, b, b->order[b->next + i], i);
    b->next += n;
    *batch =
        (tr_batch){.n = n, .label = rows->label ? b->label : NULL, .weight = rows->weight ? b->weight : NULL};
    if (rows->dense) {
        batch->dense = b->value;
    } else {
        batch->begin = b->begin;
        batch->column = b->column;
        batch->value = rows->value ? b->value : NULL;
    }
    return true;
}
