#include "data/dataset.h"

#include <stdlib.h>
#include <string.h>

#include "table/codec.h"

/* A run, and who has read it. */
struct read {
    struct tr_read_run run;
    uint64_t worker, at; /* its rows there begin with this one */
};

static int by_place(const void *a, const void *b)
{
    const struct tr_read_run *x = &((const struct read *)a)->run, *y = &((const struct read *)b)->run;
    if (x->file != y->file) return x->file > y->file ? 1 : -1;
    return (x->offset > y->offset) - (x->offset < y->offset);
}

/* Whose rows this worker holds: its own, or all of its group's, those of member 0 first. */
struct held {
    uint64_t first, end; /* workers */
};

static struct held held_by(const tr_context *tr)
{
    int size = tr->layout.group_size, group = tr->me.group * size, own = group + tr->me.member;
    if (tr->job->data.partition == TR_DATA_HORIZONTAL) return (struct held){(uint64_t)own, (uint64_t)own + 1};
    return (struct held){(uint64_t)group, (uint64_t)(group + size)};
}

/* Rows of the group's members before this one. */
static uint64_t rows_before(const struct read *all, uint64_t n, struct held held, uint64_t worker)
{
    uint64_t sum = 0;
    for (uint64_t i = 0; i < n && held.end - held.first > 1; i++)
        if (all[i].worker >= held.first && all[i].worker < worker) sum += all[i].run.rows;
    return sum;
}

/* Runs in the order of the files. */
static int number(tr_data *data, const struct read *all, uint64_t n, struct held held)
{
    struct tr_data_state *s = data->state;
    uint64_t *before, number = 0;
    size_t room = 0;
    TR_TRY(TR_NEW(&before, (size_t)(held.end - held.first)));
    for (uint64_t w = held.first; w < held.end; w++) before[w - held.first] = rows_before(all, n, held, w);
    int status = TR_OK;
    for (uint64_t i = 0; i < n && status == TR_OK; number += all[i++].run.rows) {
        const struct read *r = &all[i];
        if (r->worker < held.first || r->worker >= held.end || r->run.rows == 0) continue;
        status = TR_GROW(&s->stretch, &room, s->stretches + 1);
        if (status == TR_OK)
            s->stretch[s->stretches++] = (struct tr_stretch){
                number, (size_t)(before[r->worker - held.first] + r->at), (size_t)r->run.rows};
    }
    free(before);
    return status;
}

int tr_number_rows(tr_data *data, const struct tr_read_runs *runs)
{
    tr_context *tr = data->state->tr;
    struct read *mine, *all = NULL;
    uint64_t worker = (uint64_t)(tr->me.group * tr->layout.group_size + tr->me.member), at = 0, n = 0;
    TR_TRY(TR_NEW(&mine, runs->n));
    for (size_t i = 0; i < runs->n; at += runs->run[i++].rows)
        mine[i] = (struct read){runs->run[i], worker, at};
    int status = tr_gather_to_all(tr, TR_SET_WORKERS, mine, runs->n, sizeof *mine, (void **)&all, &n);
    free(mine);
    TR_TRY(status);
    if (n > 0) qsort(all, (size_t)n, sizeof *all, by_place);
    status = number(data, all, n, held_by(tr));
    free(all);
    return status;
}

void tr_data_numbers(const tr_data *data, uint64_t *number)
{
    const struct tr_data_state *s = data->state;
    for (size_t i = 0; data->row && i < data->rows.n; i++) number[i] = data->row[i];
    for (size_t i = 0; !data->row && i < s->stretches; i++)
        for (size_t r = 0; r < s->stretch[i].n; r++) number[s->stretch[i].at + r] = s->stretch[i].first + r;
}

/* ---- what is kept of each row ---- */

static int list_numbers(const struct tr_data_state *s, size_t n, uint64_t **row)
{
    size_t k = 0;
    TR_TRY(TR_NEW(row, n));
    for (size_t i = 0; i < s->stretches; i++)
        for (size_t r = 0; r < s->stretch[i].n; r++) (*row)[k++] = s->stretch[i].first + r;
    return TR_OK;
}

/* From the order of rows to that of their numbers, or back. */
static void reorder(const struct tr_data_state *s, size_t size, char *values, char *sorted, bool back)
{
    for (size_t i = 0; i < s->stretches; i++) {
        size_t bytes = s->stretch[i].n * size;
        char *here = values + s->stretch[i].at * size;
        memcpy(back ? here : sorted, back ? sorted : here, bytes);
        sorted += bytes;
    }
}

int tr_data_row_numbers(const tr_data *data, uint64_t **number)
{
    const struct tr_data_state *s = data->state;
    TR_TRY(TR_NEW(number, data->rows.n));
    if (data->row_numbers > 0 && data->rows.n > 0) memcpy(*number, data->row, data->rows.n * sizeof **number);
    for (size_t i = 0; i < s->stretches; i++)
        for (size_t r = 0; r < s->stretch[i].n; r++)
            (*number)[s->stretch[i].at + r] = s->stretch[i].first + r;
    return TR_OK;
}

int tr_data_keep(const tr_data *data, tr_snapshot *snapshot, const char *name, enum tr_dtype dtype,
                 void *values)
{
    const struct tr_data_state *s = data->state;
    size_t n = data->rows.n, size = tr_dtype_size(dtype);
    if (data->row_numbers > 0)
        return tr_snapshot_rows(snapshot, name, dtype, data->row_numbers, 1, data->row, 0, n, values);
    uint64_t *row = NULL;
    char *sorted = NULL;
    int status = list_numbers(s, n, &row);
    if (status == TR_OK) status = TR_NEW(&sorted, n * size);
    if (status == TR_OK && !tr_snapshot_restores(snapshot)) reorder(s, size, values, sorted, false);
    if (status == TR_OK)
        status = tr_snapshot_rows(snapshot, name, dtype, data->total_rows, 1, row, 0, n, sorted);
    if (status == TR_OK && tr_snapshot_restores(snapshot)) reorder(s, size, values, sorted, true);
    free(row);
    free(sorted);
    return status;
}
