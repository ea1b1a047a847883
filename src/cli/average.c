/* Tasks with `run: average`: see cli.h. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "class/class.h"
#include "cli/cli.h"
#include "data/dataset.h"
#include "monitor/monitor.h"
#include "ranks/ranks.h"
#include "trireme/collective.h"
#include "trireme/data.h"

enum { PIECE = 4096 }; /* rows per call of predict() */

struct tr_average {
    tr_context *tr;
    const struct tr_job_task *task;
    size_t n;             /* number of models */
    const tr_job **of;    /* jobs of the models */
    struct tr_given flag; /* flag of predict that gives the numbers to average */
    struct tr_ask ask;
    size_t by;        /* index of the model whose evaluate() is called with the mean of the predictions */
    tr_data *data;    /* test data */
    size_t rows;      /* number of rows of this rank */
    size_t width;     /* number of outputs per row */
    char **name;      /* names of the outputs */
    double *out;      /* rows × width outputs of the current model */
    double *mean;     /* rows × width means of the outputs */
    uint32_t *column; /* column of the current model for each key of the data; UINT32_MAX: there is none */
    float *label;     /* on rank 0: labels of all rows, in the order of ranks */
    float *weight;    /* on rank 0: weights of all rows, in the order of ranks; NULL: all weights are 1 */
    size_t all;       /* number of rows of all ranks */
    FILE *json;       /* on rank 0: the member `models` of summary.json is written to this stream */
    char *figures;    /* the text that was written to json */
    size_t length;    /* length of figures */
};

/* ---- checking ---- */

/* Finds the jobs of the models, and checks that their predictions may be averaged: see tr_model_class.mean(). */
static int average_members(const tr_job *job, const struct tr_job_task *task, const tr_job ***of,
                           const char **flag, size_t *by)
{
    TR_TRY(TR_NEW(of, task->after.n));
    for (size_t i = 0; i < task->after.n; i++) {
        const struct tr_job_task *other = tr_job_task_of(job, task->after.item[i]);
        (*of)[i] = other->job;
        if (other->run == TR_RUN_AVERAGE)
            return tr_fail(TR_ERR_CONFIG, "%s: task %s is an average, and leaves no model for task %s",
                           other->first, other->name, task->name);
    }
    const tr_job *const *jobs = *of;
    const tr_model_class *class = jobs[0]->class;
    for (size_t i = 0; i < task->after.n; i++)
        if (!jobs[i]->class->mean || jobs[i]->class != class)
            return tr_fail(TR_ERR_CONFIG, "%s: task %s: predictions of %s and %s have no mean", task->first,
                           task->name, jobs[0]->class->noun, jobs[i]->class->noun);
    *flag = NULL;
    *by = 0;
    if (class->mean(jobs, task->after.n, flag, by) == TR_OK) return TR_OK;
    char why[256];
    snprintf(why, sizeof why, "%s", tr_error_text());
    return tr_fail(TR_ERR_CONFIG, "%s: task %s: %s", task->first, task->name, why);
}

int tr_average_check(const tr_job *job, const struct tr_job_task *task)
{
    TR_FREED const tr_job **of = NULL;
    const char *flag;
    size_t by;
    if (task->job->data.test.n == 0)
        return tr_fail(TR_ERR_CONFIG, "%s: task %s evaluates on data.test, which names no files", task->first,
                       task->name);
    return average_members(job, task, &of, &flag, &by);
}

int tr_average_new(const tr_job *job, const struct tr_job_task *task, struct tr_average **average)
{
    TR_TRY(TR_NEW(average, 1));
    struct tr_average *a = *average;
    a->task = task;
    a->n = task->after.n;
    a->ask = (struct tr_ask){.command = TR_EVALUATE, .given = &a->flag};
    TR_TRY(average_members(job, task, &a->of, &a->flag.name, &a->by));
    a->ask.n_given = a->flag.name != NULL;
    return TR_OK;
}

/* ---- test data ---- */

/* Gathers an array on rank 0 that has one element of `bytes` bytes per row, distributed over the ranks. */
static int average_collect(struct tr_average *a, const void *mine, size_t bytes, void **all)
{
    size_t ranks = (size_t)a->tr->size;
    TR_FREED size_t *counts = NULL;
    TR_TRY(TR_NEW(&counts, 2 * ranks));
    counts[0] = a->rows * bytes;
    int status = tr_exchange_counts(a->tr, TR_SET_ALL, counts, counts + ranks);
    a->all = 0;
    for (size_t i = 0; i < ranks; i++) a->all += counts[ranks + i] / bytes;
    TR_TRY(status);
    TR_TRY(tr_agree(a->tr, tr_new(all, a->all, bytes, "rows")));
    return tr_exchange(a->tr, TR_SET_ALL, mine, counts, *all, counts + ranks);
}

static int average_open(tr_context *tr, const void *options, void *model)
{
    struct tr_average *a = model;
    tr_job *job = tr->job;
    uint64_t features = job->data.features;
    int partition = job->data.partition;
    (void)options;
    a->tr = tr;
    job->data.features = 0; /* read rows with all features of the files, each row on one worker */
    job->data.partition = TR_DATA_HORIZONTAL;
    int status =
        tr_data_open(tr, (enum tr_data_part)(TR_DATA_TEST | TR_DATA_RAW | TR_DATA_SPARSE), NULL, &a->data);
    job->data.features = features;
    job->data.partition = partition;
    TR_TRY(status);
    a->rows = a->data->rows.n;
    TR_TRY(tr_agree(tr, TR_NEW(&a->column, a->data->n_keys)));
    TR_TRY(average_collect(a, a->data->rows.label, sizeof *a->label, (void **)&a->label));
    if (a->data->weighted)
        TR_TRY(average_collect(a, a->data->rows.weight, sizeof *a->weight, (void **)&a->weight));
    tr->trained_on.rows = a->data->total_rows;
    tr->trained_on.columns = a->data->columns;
    tr->trained_on.nonzeros = a->data->total_nonzeros;
    return tr_data_describe(a->data, "test data");
}

/* ---- one model ---- */

/* Checks that the model has the same outputs as the first model. */
static int check_outputs(struct tr_average *a, const tr_query *q, const char *folder)
{
    size_t n = 0;
    while (tr_query_output_name(q, n)) n++;
    if (!a->name) {
        TR_TRY(TR_NEW(&a->name, n + 1));
        for (; a->width < n; a->width++)
            TR_TRY(tr_copy_string(tr_query_output_name(q, a->width), &a->name[a->width]));
        TR_TRY(TR_NEW(&a->out, a->rows * n));
        TR_TRY(TR_NEW(&a->mean, a->rows * n));
    }
    bool same = n == a->width;
    for (size_t i = 0; i < n && same; i++) same = strcmp(tr_query_output_name(q, i), a->name[i]) == 0;
    if (same) return TR_OK;
    return tr_fail(TR_ERR_DATA, "%s: the model predicts %s, that of %s predicts %s", folder,
                   tr_query_output_name(q, 0), a->of[0]->output, a->name[0]);
}

/* Predicts the rows first .. first + n - 1, after converting their columns to those of the model. */
static int average_predict_rows(struct tr_average *a, const struct tr_model *m, tr_query *q, size_t first,
                                size_t n)
{
    const tr_batch *b = &a->data->rows;
    uint64_t at = 0, most = b->begin[first + n] - b->begin[first];
    TR_FREED uint64_t *begin = NULL;
    TR_FREED uint32_t *column = NULL;
    TR_FREED float *value = NULL;
    TR_TRY(TR_NEW(&begin, n + 1));
    TR_TRY(TR_NEW(&column, most));
    TR_TRY(TR_NEW(&value, most));
    for (size_t i = 0; i < n; i++) {
        for (uint64_t k = b->begin[first + i]; k < b->begin[first + i + 1]; k++) {
            if (a->column[b->column[k]] == UINT32_MAX) continue;
            column[at] = a->column[b->column[k]];
            value[at++] = b->value ? b->value[k] : 1;
        }
        begin[i + 1] = at;
    }
    tr_records records = {.rows = {.n = n,
                                   .begin = begin,
                                   .column = column,
                                   .value = value,
                                   .label = b->label + first,
                                   .offset = b->offset ? b->offset + first : NULL},
                          .first = first};
    return m->class->predict(m->model, q, &records, a->out + first * a->width);
}

static int average_predict(struct tr_average *a, const struct tr_model *m, tr_query *q, const char *folder)
{
    const tr_read_options *form = tr_query_form(q);
    TR_TRY(check_outputs(a, q, folder));
    for (size_t k = 0; k < a->data->n_keys; k++) {
        /* if the subtraction underflows, the result is larger than any column */
        uint64_t column = a->data->keys[k] + a->data->first_index - form->first_index;
        a->column[k] = column < form->columns ? (uint32_t)column : UINT32_MAX;
    }
    for (size_t first = 0; first < a->rows; first += PIECE) {
        TR_TRY(average_predict_rows(a, m, q, first, tr_min_size(PIECE, a->rows - first)));
        TR_TRY(tr_progress(a->tr, &(int){0}));
    }
    for (size_t i = 0; i < a->rows * a->width; i++) a->mean[i] += a->out[i] / (double)a->n;
    return TR_OK;
}

/* ---- evaluation: rank 0 has the predictions of all ranks ---- */

static int average_evaluate(struct tr_average *a, const struct tr_model *m, tr_query *q, const double *mine)
{
    TR_FREED double *all = NULL;
    int status = TR_OK;
    TR_TRY(average_collect(a, mine, a->width * sizeof *mine, (void **)&all));
    if (a->tr->rank == 0) {
        tr_records records = {.rows = {.n = a->all, .label = a->label, .weight = a->weight}};
        status = m->class->evaluate(m->model, q, &records, all);
        if (status == TR_OK) status = m->class->figures(m->model, q, a->all);
    }
    return tr_agree(a->tr, status);
}

/* Reports the metrics of the model of task i. i = n: reports those of the mean, with «test_» before their names. */
static int average_report(struct tr_average *a, size_t i, const struct tr_model *m, const tr_query *q)
{
    enum { MOST = 8, MOST_IN_LINE = 6 };
    static char names[MOST][64];
    char text[256] = "";
    const char *figure, *task = i < a->n ? a->task->after.item[i] : "the mean";
    double value;
    for (size_t k = 0, at = 0;
         k < MOST_IN_LINE && at < sizeof text && (figure = tr_query_figure(q, k, &value)); k++)
        at += (size_t)snprintf(text + at, sizeof text - at, "  %s %.6g", figure, value);
    tr_say(a->tr, "%-12s %s", task, text);
    for (size_t k = 0; i == a->n && k < MOST && (figure = tr_query_figure(q, k, &value)); k++) {
        snprintf(names[k], sizeof names[k], "test_%s", figure);
        TR_TRY(tr_report_figure(a->tr, names[k], value));
    }
    if (i == a->n || a->tr->rank != 0) return TR_OK;
    fprintf(a->json, "%s\n    {\"task\": ", i ? "," : "");
    tr_json_text(a->json, task);
    fputs(", \"model\": ", a->json);
    tr_json_text(a->json, a->of[i]->output);
    tr_json_text_behind(a->json, "type", m->type);
    for (size_t k = 0; (figure = tr_query_figure(q, k, &value)); k++)
        tr_json_real_behind(a->json, figure, value);
    fputc('}', a->json);
    return TR_OK;
}

/* Evaluates the model of task i. i = n: evaluates the mean of the predictions, by the model of task `by`. */
static int average_ask(struct tr_average *a, size_t i)
{
    const char *folder = a->of[i < a->n ? i : a->by]->output;
    TR_CLOSED_BY(tr_model_close) struct tr_model m = {0};
    TR_CLOSED_BY(tr_query_close) tr_query *q = NULL;
    TR_TRY(tr_agree(a->tr, tr_model_open(folder, NULL, &m)));
    int status = tr_query_open(&m, &a->ask, &q);
    if (status == TR_OK && !tr_schema_agrees(tr_data_schema(a->data), m.schema))
        status = tr_fail(
            TR_ERR_DATA,
            "%s: an average is of models whose columns are numbers, and in the same order as in data.test",
            a->task->first);
    if (status == TR_OK && i < a->n) status = average_predict(a, &m, q, folder);
    TR_TRY(tr_agree(a->tr, status));
    TR_TRY(average_evaluate(a, &m, q, i < a->n ? a->out : a->mean));
    return average_report(a, i, &m, q);
}

static int average_train(void *model)
{
    struct tr_average *a = model;
    a->json = open_memstream(&a->figures, &a->length);
    TR_TRY(tr_agree(a->tr, a->json ? TR_OK : tr_fail(TR_ERR_SYSTEM, "out of memory")));
    for (size_t i = 0; i <= a->n; i++) TR_TRY(average_ask(a, i));
    return TR_OK;
}

void tr_average_members(FILE *file, void *who)
{
    const struct tr_average *a = who;
    fflush(a->json);
    fprintf(file, "  \"models\": [%s\n  ],\n", a->figures);
}

static void average_close(void *model)
{
    struct tr_average *a = model;
    tr_data_close(&a->data);
    if (a->json) fclose(a->json);
    for (size_t i = 0; a->name && i < a->width; i++) free(a->name[i]);
    TR_FREE_ALL(a->of, a->name, a->out, a->mean, a->column, a->label, a->weight, a->figures);
}

/* The class is not registered, so it needs only the functions that tr_train_here() calls. */
const tr_model_class tr_average_class = {
    .open = average_open, .train = average_train, .close = average_close};
