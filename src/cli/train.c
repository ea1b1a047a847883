#define _GNU_SOURCE
#include "cli/cli.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "class/class.h"
#include "cli/average.h"
#include "cli/estimate.h"
#include "cli/explain.h"
#include "cli/tasks.h"
#include "cli/train.h"
#include "job/text.h"
#include "program/program.h"
#include "stage/stage.h"
#include "store/checkpoint.h"

/* ---- one job ---- */

static int explain(tr_context *tr)
{
    tr_on_ready(tr, tr_explain_stage, tr);
    return tr_explain_layout(tr);
}

static int train(tr_context *tr, const tr_model_class *class, void *model)
{
    const tr_job *job = tr_context_job(tr);
    if (class->memory) TR_TRY(tr_say_estimate(tr));
    int status = class->open(tr, job->options, model);
    TR_TRY(tr->status != TR_OK ? tr->status : tr_agree(tr, status)); /* what was agreed on has been printed */
    if (*job->model.plugin) TR_TRY(tr_agree(tr, tr_model_check_fields(tr, class, model)));
    TR_TRY(tr_monitor_enter(tr->monitor, TR_TRAINING));
    TR_TRY(class->train(model));
    TR_TRY(tr_monitor_enter(tr->monitor, TR_WRITING));
    TR_TRY(tr_checkpoint_settle(tr));
    if (class->fields) TR_TRY(tr_model_write(tr, class, model, job->output));
    return tr_services_summary(tr, class == &tr_average_class ? tr_average_members : NULL, model);
}

/* Whether the class reads data of the format that the job names. */
static int check_format(const tr_job *job, const tr_model_class *class)
{
    const char *format = "auto", *const *known = class->data_formats;
    TR_TRY(tr_job_string(job, "data.format", &format));
    bool reads = strcmp(format, "auto") == 0 || !known;
    for (size_t i = 0; !reads && known[i]; i++) reads = strcmp(known[i], format) == 0;
    if (reads) return TR_OK;
    return tr_fail(TR_ERR_CONFIG, "%s: data.format is %s, but %s is learnt from %s",
                   tr_job_where(job, "data.format"), format, class->noun, tr_shown_words(known).text);
}

int tr_train_here(tr_context *tr, const tr_model_class *class, void *model,
                  const struct tr_run_options *options, double *objective)
{
    const tr_job *job = tr_context_job(tr);
    *objective = NAN;
    int status = check_format(job, class);
    if (status == TR_OK && class->check) status = class->check(job, job->options);
    if (status == TR_OK && !model) status = tr_new(&model, 1, class->model_size, "model");
    status = tr_agree(tr, status);
    if (status == TR_OK) status = tr_services_open(tr, options->fresh);
    if (status == TR_OK && options->explain) status = explain(tr);
    if (status == TR_OK) status = train(tr, class, model);
    if (tr->monitor) *objective = tr_monitor_objective(tr->monitor);
    if (model) class->close(model);
    free(model);
    return tr_services_close(tr, status);
}

static int train_plain(tr_context *tr, const struct tr_run_options *options)
{
    double objective;
    TR_TRY(tr_context_assign(tr, tr->job));
    tr_context_describe(tr);
    return tr_train_here(tr, tr->job->class, NULL, options, &objective);
}

/* ---- the command ---- */

static int run(int argc, char **argv, const struct tr_run_options *options)
{
    tr_context *tr;
    tr_signals_open(); /* one that asks for a checkpoint, perhaps before there is anything to keep, must not end the process */
    TR_TRY(tr_context_read(&argc, &argv, NULL, &tr));
    int status = tr_agree(tr, tr_job_check_use(tr->job));
    if (status == TR_OK) status = tr->job->tasks > 0 ? tr_tasks_run(tr, options) : train_plain(tr, options);
    int outcome = tr_context_close(tr);
    return status != TR_OK ? status : outcome;
}

int tr_train_command(int argc, char **argv)
{
    static char name[] = "trireme train";
    argc++; /* tr_context_read() expects a name in front */
    argv--;
    argv[0] = name;
    if (argc == 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0))
        return tr_is_an_echo() ? TR_OK : tr_help_command(1, (char *[]){"train", NULL});
    struct tr_run_options options = {.fresh = false};
    int status = tr_run_options_take(&argc, argv, &options);
    if (status != TR_OK) return tr_is_an_echo() ? TR_OK : tr_complain(status);
    if (options.explain) tr_explain_settings();
    status = run(argc, argv, &options);
    tr_run_options_free(&options);
    return status;
}
