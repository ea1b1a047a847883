#define _GNU_SOURCE
#include "cli/cli.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "store/checkpoint.h"

static int train(tr_context *tr, const tr_model_class *class, void *model)
{
    const tr_job *job = tr_context_job(tr);
    if (class->memory) TR_TRY(tr_say_estimate(tr));
    int status = class->open(tr, job->options, model);
    TR_TRY(tr->status != TR_OK ? tr->status : tr_agree(tr, status)); /* tr->status has been printed already */
    if (*job->model.plugin) TR_TRY(tr_agree(tr, tr_model_check_fields(tr, class, model)));
    TR_TRY(tr_monitor_enter(tr->monitor, TR_TRAINING));
    TR_TRY(class->train(model));
    TR_TRY(tr_monitor_enter(tr->monitor, TR_WRITING));
    TR_TRY(tr_checkpoint_settle(tr));
    if (class->fields) TR_TRY(tr_model_write(tr, class, model, job->output));
    return tr_services_summary(tr, class == &tr_average_class ? tr_average_members : NULL, model);
}

/* Checks that the model class supports data.format. */
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
    if (status == TR_OK && options->explain) {
        tr_observers(tr)->ready = tr_explain_stage;
        tr_observers(tr)->ready_who = tr;
        status = tr_explain_layout(tr);
    }
    if (status == TR_OK) status = train(tr, class, model);
    if (tr->monitor) *objective = tr_monitor_objective(tr->monitor);
    if (model) class->close(model);
    free(model);
    return tr_services_close(tr, status);
}

static int train_job(int argc, char **argv, const struct tr_run_options *options)
{
    tr_context *tr;
    double objective;
    tr_signals_handle(TR_SIGNALS_ASK, true); /* a request for a checkpoint must not kill the process */
    TR_TRY(tr_context_read(&argc, &argv, NULL, &tr));
    int status = tr_agree(tr, tr_job_check_use(tr->job));
    if (status == TR_OK && tr->job->tasks > 0) {
        status = tr_tasks_run(tr, options);
    } else if (status == TR_OK) {
        status = tr_context_assign(tr, tr->job);
        if (status == TR_OK) {
            tr_context_describe(tr);
            status = tr_train_here(tr, tr->job->class, NULL, options, &objective);
        }
    }
    int outcome = tr_context_close(tr);
    return status != TR_OK ? status : outcome;
}

int tr_train(const struct tr_arguments *arguments, const struct tr_run_options *options)
{
    static char name[] = "trireme train";
    TR_FREED char **argv = NULL;
    int status = TR_NEW(&argv, arguments->words + (size_t)arguments->settings + 2);
    if (status != TR_OK) return tr_complain(status);
    argv[0] = name; /* tr_context_read() expects the name of the program in argv[0] */
    if (options->explain) tr_explain_settings();
    return train_job(tr_arguments_join(arguments, argv), argv, options);
}

static int train_command(struct tr_arguments *arguments, void *options)
{
    return tr_train(arguments, options);
}

const char *const tr_all_keys[] = {"", NULL};

const struct tr_cli_command tr_train_command = {
    .syntax = {.command = "train",
               .shared = tr_run_arguments,
               .keys = tr_all_keys,
               .job = true,
               .hint = "settings are section.key=value"},
    .brief = "learn a model from data, as a job file says",
    .usage = "trireme train [JOB.yaml] [section.key=value ...] [OPTION...]\n"
             "mpirun -n RANKS trireme train [JOB.yaml] ...",
    .about =
        "Learns a model. Without mpirun, one process does everything; with it, the ranks share the work as "
        "ranks.layout says. A section.key=value wins over the job file, which may be left out, or be - for "
        "standard input: see trireme help job.\n"
        "Everything is written to the folder output (by default runs/<name>): see trireme help output.\n"
        "Checkpoints are written there as well: a run that was stopped or failed continues when the same "
        "command is given again, on any number of ranks: see trireme help job checkpoint. The signals USR1, "
        "TERM and INT write a checkpoint and stop with exit code 75; USR2 writes one and continues.",
    .options_size = sizeof(struct tr_run_options),
    .on_ranks = true,
    .run = train_command,
};
