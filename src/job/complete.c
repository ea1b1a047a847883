/* The job when all is read: defaults that follow from other values. */
#define _GNU_SOURCE
#include "job/schema.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"

/* Stages on some of a node's workers have all its rows, so there is one copy that these divide. Variance reduction works
 * on all weights; phases of growing batches are one pass each. */
static void choose_for_stages(struct tr_job *job)
{
    int method = job->solve.method;
    bool varies = method == TR_SOLVE_SVRG || method == TR_SOLVE_SVRGPP || method == TR_SOLVE_KATYUSHA;
    bool grows = method == TR_SOLVE_GROWING;
    if (!varies && !grows) return;
    if (strcmp(tr_job_where(job, "data.partition"), "default") == 0) job->data.partition = TR_DATA_REPLICATED;
    if (varies) job->table.prune = false;
    if (grows && strcmp(tr_job_where(job, "solve.epochs"), "default") == 0) job->solve.epochs = 1;
}

/* What follows from the kind of model. */
static void choose_method(struct tr_job *job)
{
    bool linear = job->model.type <= TR_MODEL_L2SVM;
    static const int usual[] = {[TR_MODEL_LOGISTIC] = TR_SOLVE_DUAL, [TR_MODEL_LINEAR] = TR_SOLVE_DUAL,
                                [TR_MODEL_SVM] = TR_SOLVE_DUAL,      [TR_MODEL_L2SVM] = TR_SOLVE_DUAL,
                                [TR_MODEL_KMEANS] = TR_SOLVE_LLOYD,  [TR_MODEL_MF] = TR_SOLVE_SGD,
                                [TR_MODEL_LDA] = TR_SOLVE_GIBBS};
    if (job->solve.method == TR_SOLVE_AUTO) job->solve.method = usual[job->model.type];
    bool by_data = job->solve.method >= TR_SOLVE_SVRG; /* the rate follows from the rows */
    if (job->solve.rate == TR_JOB_AUTO && linear && !by_data) job->solve.rate = 0.1;
    if (job->model.type == TR_MODEL_MF && strcmp(tr_job_where(job, "solve.optimizer"), "default") == 0)
        job->solve.optimizer = TR_OPTIMIZER_ADAGRAD;
    choose_for_stages(job);
}

/* jobs/ads.yaml is called ads. */
static int name_of_file(struct tr_job *job)
{
    const char *slash = strrchr(job->path, '/'), *base = slash ? slash + 1 : job->path;
    char *name;
    TR_TRY(tr_copy_string(*base ? base : "job", &name));
    char *dot = strrchr(name, '.');
    if (dot && dot != name && (!strcmp(dot, ".yaml") || !strcmp(dot, ".yml"))) *dot = '\0';
    struct tr_job_place place = {job->path, 0};
    struct tr_job_slot slot;
    int status = tr_job_find(job, "name", &slot) ? tr_job_set(&slot, name, false, place) : TR_OK;
    free(name);
    return status;
}

static int complete_task(const struct tr_job *whole, struct tr_job_task *task)
{
    struct tr_job *job = task->job;
    choose_method(job);
    if (!job->name) TR_TRY(tr_copy_string(task->name, &job->name));
    if (!job->output) TR_TRY(tr_format(&job->output, "%s/%s", whole->output, task->name));
    return TR_OK;
}

/* What a task takes over from the whole job is taken before that is completed: another model may have another
 * usual method. */
int tr_job_complete(struct tr_job *job)
{
    TR_TRY(tr_job_fill_tasks(job));
    choose_method(job);
    if (!job->name) TR_TRY(name_of_file(job));
    if (!job->output) TR_TRY(tr_format(&job->output, "runs/%s", job->name));
    for (size_t i = 0; i < job->tasks; i++) TR_TRY(complete_task(job, &job->task[i]));
    return tr_job_check_tasks(job);
}
