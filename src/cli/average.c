#include "cli/average.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>

#include "data/dataset.h"
#include "class/class.h"
#include "monitor/json.h"
#include "model/linear/linear.h"
#include "trireme/collective.h"

/* NaN where it is not defined. */
struct figures {
    double accuracy, auc, log_loss, rmse;
};

/* What orders rows for the area; travels as a number of 8 bytes. */
struct score {
    float score;
    int32_t positive;
};

struct member {
    const char *task, *folder;
    int type;
    struct figures figures;
};

/* Of this rank's rows, which are those that it counts: in a vertical group only member 0 does. */
struct tr_average {
    tr_context *tr;
    size_t n;
    struct member *member;
    bool classifies, by_probability;
    struct figures figures; /* of the mean */
    tr_data *data;
    float label[2]; /* classifiers: positive first */
    size_t first, rows;
    double *weight;  /* by key */
    double *margin;  /* by row */
    double *mean[2]; /* … of margins, or of the probabilities of the positive and of the other label */
    struct score *score;
};

/* ---- before anything runs ---- */

static int check_members(const tr_job *job, const struct tr_job_task *task)
{
    bool regression = false, classes = false;
    for (size_t i = 0; i < task->after.n; i++) {
        const struct tr_job_task *other = tr_job_task_of(job, task->after.item[i]);
        const char *where = other->first;
        if (other->run == TR_RUN_AVERAGE)
            return tr_fail(TR_ERR_CONFIG, "%s: task %s is an average, and leaves no model for task %s", where,
                           other->name, task->name);
        if (other->job->model.type >= TR_LOSSES || other->job->model.type == TR_LOSS_POISSON)
            return tr_fail(TR_ERR_CONFIG,
                           "%s: task %s averages margins of linear models, and task %s has none", where,
                           task->name, other->name);
        if (!tr_loss_classifies(other->job->model.type)) regression = true;
        else classes = true;
    }
    if (!regression || !classes) return TR_OK;
    return tr_fail(TR_ERR_CONFIG, "%s: task %s averages classifiers and regression", task->first, task->name);
}

int tr_average_check(const tr_job *job, const struct tr_job_task *task)
{
    if (task->job->data.test.n == 0)
        return tr_fail(TR_ERR_CONFIG, "%s: task %s evaluates on data.test, which names no files", task->first,
                       task->name);
    return check_members(job, task);
}

int tr_average_new(const tr_job *job, const struct tr_job_task *task, struct tr_average **average)
{
    TR_TRY(TR_NEW(average, 1));
    struct tr_average *a = *average;
    TR_TRY(TR_NEW(&a->member, task->after.n));
    a->n = task->after.n;
    a->by_probability = true;
    for (size_t i = 0; i < a->n; i++) {
        const struct tr_job_task *other = tr_job_task_of(job, task->after.item[i]);
        int type = other->job->model.type;
        a->member[i] = (struct member){.task = other->name, .folder = other->job->output, .type = type};
        a->classifies = tr_loss_classifies(type);
        a->by_probability = a->by_probability && type == TR_LOSS_LOGISTIC;
    }
    return TR_OK;
}

/* ---- test data ---- */

/* As many features as there are: what data.features says is for training. */
static int read_data(struct tr_average *a)
{
    tr_job *job = a->tr->job;
    uint64_t features = job->data.features;
    job->data.features = 0;
    int status = tr_data_open(a->tr, TR_DATA_TEST | TR_DATA_RAW, NULL, &a->data);
    job->data.features = features;
    if (status == TR_OK && a->data->format != TR_FORMAT_LIBSVM)
        status =
            tr_agree(a->tr, tr_fail(TR_ERR_CONFIG, "%s: data.test: linear models read data.format: libsvm",
                                    tr_job_where(job, "data.test")));
    return status;
}

static tr_worker myself(const struct tr_average *a)
{
    const tr_context *tr = a->tr;
    return (tr_worker){.tr = a->tr, .member = tr->me.member, .group_size = tr->layout.group_size};
}

static bool is_vertical(const struct tr_average *a)
{
    return a->tr->job->data.partition == TR_DATA_VERTICAL && a->tr->layout.group_size > 1;
}

static size_t counted(const struct tr_average *a)
{
    return is_vertical(a) && a->tr->me.member != 0 ? 0 : a->rows;
}

static int allocate(struct tr_average *a)
{
    if (tr_works(a->tr)) {
        tr_worker me = myself(a);
        a->first = tr_data_part_begin(a->data, &me);
        a->rows = tr_data_part_end(a->data, &me) - a->first;
    }
    if (a->data->total_rows > INT_MAX)
        return tr_fail(TR_ERR_CONFIG, "%s: data.test has %llu rows, an average takes %d at most",
                       tr_job_where(a->tr->job, "data.test"), (unsigned long long)a->data->total_rows,
                       INT_MAX);
    TR_TRY(TR_NEW(&a->weight, a->data->n_keys));
    TR_TRY(TR_NEW(&a->margin, a->rows));
    TR_TRY(TR_NEW(&a->mean[0], a->rows));
    TR_TRY(TR_NEW(&a->mean[1], a->rows));
    return TR_NEW(&a->score, a->rows);
}

static int open_average(tr_context *tr, const void *options, void *model)
{
    struct tr_average *a = model;
    (void)options;
    a->tr = tr;
    TR_TRY(read_data(a));
    TR_TRY(tr_agree(tr, allocate(a)));
    tr->trained_on.rows = a->data->total_rows;
    tr->trained_on.columns = a->data->columns;
    tr->trained_on.nonzeros = a->data->total_nonzeros;
    return tr_data_describe(a->data, "test data");
}

/* ---- one model ---- */

static int check_model(struct tr_average *a, const struct member *m, const struct tr_linear_model *model)
{
    if (model->type != m->type)
        return tr_fail(TR_ERR_DATA, "%s: the model is of type %s, expected %s", m->folder,
                       tr_linear_model_name(model->type), tr_linear_model_name(m->type));
    if (!a->classifies) return TR_OK;
    if (model->outputs > 1)
        return tr_fail(TR_ERR_DATA, "%s: the model is of %zu classes: expected two, to be averaged",
                       m->folder, model->labels);
    const float *label = model->label;
    if (m == a->member) {
        a->label[0] = label[0];
        a->label[1] = label[1];
    }
    if (label[0] != a->label[0] || label[1] != a->label[1])
        return tr_fail(TR_ERR_DATA,
                       "%s: the labels of the model are %.9g and %.9g, those of %s are %.9g and %.9g",
                       m->folder, (double)label[0], (double)label[1], a->member->folder, (double)a->label[0],
                       (double)a->label[1]);
    if (a->data->labels > 2)
        return tr_fail(TR_ERR_DATA, "%s: expected two kinds", tr_data_third_label(a->data));
    for (size_t i = 0; i < a->data->labels; i++)
        if (a->data->label[i] != label[0] && a->data->label[i] != label[1])
            return tr_fail(TR_ERR_DATA, "%s: label %.9g, expected %.9g or %.9g as in training",
                           a->tr->job->data.test.item[0], (double)a->data->label[i], (double)label[1],
                           (double)label[0]);
    return TR_OK;
}

/* A key that lies before the model's first feature is far behind its last, as there are no negative numbers. */
static void take_weights(struct tr_average *a, const struct tr_linear_model *model)
{
    for (size_t k = 0; k < a->data->n_keys; k++) {
        uint64_t i = a->data->keys[k] + a->data->first_index - model->first_index;
        a->weight[k] = i < model->features ? tr_linear_model_weight(model, i) : 0;
    }
}

static int find_margins(struct tr_average *a, double bias)
{
    const tr_batch *b = &a->data->rows;
    for (size_t i = 0; i < a->rows; i++) {
        double sum = a->tr->me.member == 0 || !is_vertical(a) ? bias : 0;
        for (uint64_t k = b->begin[a->first + i]; k < b->begin[a->first + i + 1]; k++)
            sum += (b->value ? (double)b->value[k] : 1) * a->weight[b->column[k]];
        a->margin[i] = sum;
    }
    tr_worker me = myself(a);
    return is_vertical(a) && tr_works(a->tr) ? tr_group_sum(&me, a->margin, a->rows) : TR_OK;
}

static int use_model(struct tr_average *a, const struct member *m)
{
    struct tr_model file;
    double bias = 0;
    TR_TRY(tr_model_open(m->folder, NULL, &file));
    int status = tr_model_read(&file);
    if (status == TR_OK) {
        const struct tr_linear_model *model = &((struct tr_linear *)file.model)->saved;
        status = check_model(a, m, model);
        if (status == TR_OK) take_weights(a, model);
        bias = *model->bias;
    }
    tr_model_close(&file);
    return status == TR_OK ? find_margins(a, bias) : status;
}

static void add_to_mean(struct tr_average *a)
{
    for (size_t i = 0; i < a->rows; i++) {
        double m = a->margin[i];
        a->mean[0][i] += (a->by_probability ? 1 / (1 + exp(-m)) : m) / (double)a->n;
        a->mean[1][i] += a->by_probability ? 1 / (1 + exp(m)) / (double)a->n : 0;
    }
}

/* ---- how good it is ---- */

/* The area needs all scores in one place: rank 0 gets them. */
static int find_area(struct tr_average *a, double *auc)
{
    tr_context *tr = a->tr;
    int mine = (int)counted(a), *rows, *at;
    struct score *all = NULL;
    float *score = NULL;
    signed char *positive = NULL;
    size_t n = 0;
    TR_TRY(TR_NEW(&rows, 2 * (size_t)tr->size));
    at = rows + tr->size;
    int status = tr_all_gather(tr, TR_SET_ALL, &mine, sizeof mine, rows);
    for (int rank = 0; rank < tr->size; n += (size_t)rows[rank++]) at[rank] = (int)n;
    if (tr->rank != 0) n = 0;
    bool enough = TR_NEW(&all, n) == TR_OK && TR_NEW(&score, n) == TR_OK && TR_NEW(&positive, n) == TR_OK;
    if (status == TR_OK) status = tr_agree(tr, enough ? TR_OK : TR_ERR_SYSTEM);
    if (status == TR_OK) {
        MPI_Request request;
        MPI_Igatherv(a->score, mine, MPI_INT64_T, all, rows, at, MPI_INT64_T, 0, tr->world, &request);
        status = tr_wait_request(tr, &request, "all ranks to send their scores");
    }
    for (size_t i = 0; status == TR_OK && i < n; i++) {
        score[i] = all[i].score;
        positive[i] = (signed char)all[i].positive;
    }
    if (status == TR_OK && tr->rank == 0) *auc = tr_auc(score, positive, n);
    free(all);
    free(score);
    free(positive);
    free(rows);
    return status;
}

/* Of predictions that are above the border where they are positive. negative: the probabilities of the other label where
 * predictions are probabilities; margins: they are those of a logistic model; without either there is no log loss. */
static int measure(struct tr_average *a, const double *prediction, double border, const double *negative,
                   bool logistic, struct figures *f)
{
    enum { ROWS, RIGHT, LOSS, SQUARES, SUMS };
    double sum[SUMS] = {0};
    if (!negative && !logistic) sum[LOSS] = NAN;
    for (size_t i = 0; i < counted(a); i++) {
        float label = a->data->rows.label[a->first + i];
        bool positive = label == a->label[0];
        double error = prediction[i] - (double)label;
        sum[ROWS]++;
        sum[RIGHT] += (prediction[i] > border) == positive;
        if (negative) sum[LOSS] -= log(positive ? prediction[i] : negative[i]);
        else if (logistic) sum[LOSS] += tr_loss(TR_LOSS_LOGISTIC, prediction[i], positive ? 1 : -1);
        sum[SQUARES] += error * error;
        a->score[i] = (struct score){(float)prediction[i], positive};
    }
    TR_TRY(tr_all_reduce(a->tr, TR_SET_ALL, TR_SUM, TR_F64, sum, SUMS));
    const double none = NAN;
    *f = (struct figures){.accuracy = a->classifies ? sum[RIGHT] / sum[ROWS] : none,
                          .auc = none,
                          .log_loss = a->classifies ? sum[LOSS] / sum[ROWS] : none,
                          .rmse = a->classifies ? none : sqrt(sum[SQUARES] / sum[ROWS])};
    return a->classifies ? find_area(a, &f->auc) : TR_OK;
}

/* ---- all of it ---- */

struct number {
    char text[24];
};

static struct number shown(double value)
{
    struct number number = {"-"};
    if (isfinite(value)) snprintf(number.text, sizeof number.text, "%.6f", value);
    return number;
}

static void say(const struct tr_average *a, const char *name, const struct figures *f)
{
    if (a->classifies)
        tr_say(a->tr, "%-14s accuracy %s  auc %s  log loss %s", name, shown(f->accuracy).text,
               shown(f->auc).text, shown(f->log_loss).text);
    else tr_say(a->tr, "%-14s rmse %s", name, shown(f->rmse).text);
}

static int run(void *model)
{
    struct tr_average *a = model;
    for (size_t i = 0; i < a->n; i++) {
        struct member *m = &a->member[i];
        TR_TRY(tr_agree(a->tr, use_model(a, m)));
        add_to_mean(a);
        TR_TRY(measure(a, a->margin, 0, NULL, m->type == TR_LOSS_LOGISTIC, &m->figures));
        say(a, m->task, &m->figures);
    }
    TR_TRY(measure(a, a->mean[0], a->by_probability ? 0.5 : 0, a->by_probability ? a->mean[1] : NULL, false,
                   &a->figures));
    say(a, "the mean", &a->figures);
    TR_TRY(tr_report_figure(a->tr, "test_auc", a->figures.auc));
    TR_TRY(tr_report_figure(a->tr, "test_accuracy", a->figures.accuracy));
    return tr_report_figure(a->tr, "test_rmse", a->figures.rmse);
}

void tr_average_members(FILE *file, void *who)
{
    const struct tr_average *a = who;
    tr_json_real_member(file, "test_log_loss", a->figures.log_loss);
    fputs("  \"models\": [", file);
    for (size_t i = 0; i < a->n; i++) {
        const struct member *m = &a->member[i];
        fprintf(file, "%s\n    {\"task\": \"%s\", \"model\": ", i ? "," : "", m->task);
        tr_json_text(file, m->folder);
        fprintf(file, ", \"type\": \"%s\"", tr_linear_model_name(m->type));
        tr_json_real_behind(file, "accuracy", m->figures.accuracy);
        tr_json_real_behind(file, "auc", m->figures.auc);
        tr_json_real_behind(file, "log_loss", m->figures.log_loss);
        tr_json_real_behind(file, "rmse", m->figures.rmse);
        fputc('}', file);
    }
    fputs("\n  ],\n", file);
}

static void close_average(void *model)
{
    struct tr_average *a = model;
    tr_data_close(&a->data);
    void *arrays[] = {a->member, a->weight, a->margin, a->mean[0], a->mean[1], a->score};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) free(arrays[i]);
}

/* Only what training calls: it is in no registry. */
const tr_model_class tr_average_class = {.open = open_average, .train = run, .close = close_average};
