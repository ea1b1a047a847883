/* What a data set is, and how it lies, in a few lines. */
#define _GNU_SOURCE
#include "data/dataset.h"

#include <stdlib.h>
#include <string.h>

#include "data/cache.h"
#include "data/node_rows.h"
#include "data/scale.h"
#include "data/schema_all.h"
#include "data/store.h"

static int by_number(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* What its rows, columns and non-zeros are. */
struct words {
    const char *rows, *columns, *nonzeros;
};

static struct words words_of(const tr_data *data)
{
    switch (data->format) {
    case TR_FORMAT_CSV: return (struct words){"rows", "columns", "numbers"};
    case TR_FORMAT_HDF5:
        if (data->state->full) return (struct words){"rows", "columns", "numbers"};
        return (struct words){"rows", "features", "non-zeros"};
    case TR_FORMAT_RATINGS: return (struct words){"users", "items", "ratings"};
    case TR_FORMAT_DOCWORD: return (struct words){"documents", "words", "counts"};
    default: return (struct words){"rows", "features", "non-zeros"};
    }
}

static uint64_t nonzeros_here(const tr_data *data)
{
    if (data->rows.n == 0) return 0;
    return data->rows.begin ? data->rows.begin[data->rows.n] : data->rows.n * data->columns;
}

/* An earlier start of the job has read it, or another team has made the same rows. */
static bool is_found(const struct tr_data_state *s)
{
    return s->cached && s->cached->found;
}

/* text: of rows and of non-zeros of each worker. */
static void say_data(const tr_data *data, const char *what, char text[2][96])
{
    tr_context *tr = data->state->tr;
    struct words words = words_of(data);
    char tokens[64] = "", read[96] = "in memory already";
    char label[32]; /* as wide as all labels before the table of progress */
    snprintf(label, sizeof label, "%s:", what);
    if (data->format == TR_FORMAT_DOCWORD)
        snprintf(tokens, sizeof tokens, ", %.0f tokens", data->total_values);
    bool on_disk = data->state->on_disk;
    const struct tr_node_rows *node = data->state->node_rows;
    if (node && strcmp(node->task, tr->team ? tr->team : "") != 0)
        snprintf(read, sizeof read, "rows of task %s%s", node->task,
                 is_found(data->state) ? ", where another has them" : "");
    else if (node && is_found(data->state)) snprintf(read, sizeof read, "where another task has them");
    else if (!node && data->state->store->opened == 1)
        snprintf(read, sizeof read, "%s in %.2f s",
                 is_found(data->state) ? on_disk ? "found on disk" : "found in memory"
                 : on_disk             ? "read, and written to disk,"
                                       : "read",
                 data->state->load_seconds);
    tr_say(tr, "%-14s %llu %s%s, %llu %s, %llu %s%s, %s", label, (unsigned long long)data->total_rows,
           data->dense ? "dense " : "", words.rows, (unsigned long long)data->columns, words.columns,
           (unsigned long long)data->total_nonzeros, words.nonzeros, tokens, read);
    if (tr_layout_workers(&tr->layout) > 1)
        tr_say(tr, "each worker:   %s %s, %s %s (min / median / max)", words.rows, text[0], words.nonzeros,
               text[1]);
    if (data->state->schema && !data->state->test) tr_schema_say(data);
    tr_scale_say(data);
    if (data->skipped)
        tr_say(tr, "%-14s %llu malformed records left out", label, (unsigned long long)data->skipped);
    if (data->state->unlabelled)
        tr_say(tr, "%-14s %llu rows without a label left out", label,
               (unsigned long long)data->state->unlabelled);
    if (data->state->unknown)
        tr_say(tr, "%-14s %llu values of categories are not among those of the training data", label,
               (unsigned long long)data->state->unknown);
}

/* Smallest, median and largest of number k of 0 and 1 that all workers have told. */
static int say_spread(const tr_context *tr, const uint64_t *all, int k, char text[96])
{
    size_t workers = (size_t)tr_layout_workers(&tr->layout);
    uint64_t *sorted;
    TR_TRY(TR_NEW(&sorted, workers));
    for (size_t w = 0; w < workers; w++) sorted[w] = all[2 * tr->layout.worker_rank[w] + k];
    qsort(sorted, workers, sizeof *sorted, by_number);
    snprintf(text, 96, "%llu / %llu / %llu", (unsigned long long)sorted[0],
             (unsigned long long)sorted[workers / 2], (unsigned long long)sorted[workers - 1]);
    free(sorted);
    return TR_OK;
}

int tr_data_describe(const tr_data *data, const char *what)
{
    tr_context *tr = data->state->tr;
    uint64_t mine[2] = {data->rows.n, nonzeros_here(data)}, *all;
    char text[2][96];
    TR_TRY(TR_NEW(&all, 2 * (size_t)tr->size));
    int status = tr_all_gather(tr, TR_SET_ALL, mine, sizeof mine, all);
    for (int k = 0; k < 2 && status == TR_OK; k++) status = say_spread(tr, all, k, text[k]);
    if (status == TR_OK) say_data(data, what, text);
    free(all);
    return status;
}
