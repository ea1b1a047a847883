#define _GNU_SOURCE
#include "program/program.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "class/class.h"
#include "data/dataset.h"
#include "stage/stage.h"
#include "store/checkpoint.h"
#include "trireme/collective.h"

/* ---- options ---- */

const struct tr_argument tr_run_arguments[] = {
    {"--fresh", TR_ARG_FLAG, offsetof(struct tr_run_options, fresh),
     .help = "start over; the results of an earlier run are renamed"},
    {"--max-time", TR_ARG_SETTING, .value = "T", .key = "checkpoint.max_time",
     .help = "stop early enough to write a checkpoint when the program has run for this time: minutes, "
             "minutes:seconds, hours:minutes:seconds, days-hours, or with a unit, as 90s or 2h"},
    {"--plugin", TR_ARG_SETTING, .value = "FILE", .key = "model.plugin",
     .help = "the shared object of a model class, as model.plugin; FILE and its folder must belong to you or "
             "root, and no other user may be able to write to them"},
    {"--explain", TR_ARG_FLAG, offsetof(struct tr_run_options, explain),
     .help = "print all decisions before training starts: settings of MPI, roles of the ranks, where tables "
             "lie, and how parameters and updates travel"},
    {0}};

/* ---- services ---- */

int tr_services_open(tr_context *tr, bool fresh)
{
    struct tr_files files;
    const tr_job *job = tr->job;
    /* ignore files that cannot be opened: the error is reported when they are read */
    if (tr->rank == 0 && job->data.train.n > 0 && tr_data_files(job, false, &files) == TR_OK) {
        tr->data_digest = tr_files_digest(&files);
        tr_files_close(&files);
    }
    int ended = tr->rank == 0 && !fresh && tr_status_look(tr->job->output).done;
    TR_TRY(tr_broadcast(tr, TR_SET_ALL, 0, &ended, sizeof ended));
    TR_TRY(tr_checkpoints_open(tr, fresh ? TR_BEGIN_ANEW : ended ? TR_GO_FURTHER : TR_GO_ON));
    int status = tr_monitor_open(tr, &tr->monitor);
    if (status == TR_OK) return tr_monitor_enter(tr->monitor, TR_LOADING);
    tr_checkpoints_leave(tr);
    return status;
}

int tr_services_summary(tr_context *tr, void (*more)(FILE *file, void *who), void *who)
{
    TR_TRY(tr_store_report(tr));
    return tr_monitor_summary(tr->monitor, more, who);
}

int tr_services_close(tr_context *tr, int status)
{
    if (!tr->monitor) return status;
    if (status == TR_ERR_STOPPED) tr_monitor_say_stopped(tr->monitor);
    status = tr_checkpoints_close(tr, status == TR_OK, status);
    if (status == TR_OK) tr_say(tr, "output:        %s", tr->job->output);
    return tr_monitor_close(&tr->monitor, status);
}

/* ---- programs with their own main() ---- */

/* The class of programs that call tr_open(): jobs have the keys of the engine only, and stages may have any names. */
static const char *const any_stages[] = {NULL};
static const tr_method own_method[] = {{.name = "own", .help = "the program's", .stages = any_stages}, {0}};
static const tr_model_class no_class = {.abi = TR_MODEL_ABI,
                                        .name = "program",
                                        .types = TR_WORDS("program"),
                                        .help = "what the program learns",
                                        .noun = "the program",
                                        .format = "program",
                                        .data_formats =
                                            TR_WORDS("libsvm", "csv", "ratings", "docword", "hdf5"),
                                        .methods = own_method};

static int program_open(tr_context *tr, bool fresh)
{
    const tr_job *job = tr->job;
    int status = TR_OK;
    if (job->tasks > 0)
        status = tr_fail(TR_ERR_CONFIG, "%s: task %s: this program runs no tasks, only trireme train does",
                         job->task[0].first, job->task[0].name);
    if (status == TR_OK) status = tr_job_check_use(job);
    if (status == TR_OK && job->class->check) status = job->class->check(job, job->options);
    TR_TRY(tr_agree(tr, status));
    TR_TRY(tr_context_assign(tr, tr->job));
    tr_context_describe(tr);
    return tr_services_open(tr, fresh);
}

int tr_open_as(int *argc, char ***argv, const tr_model_class *class, tr_context **out)
{
    static const char *const all_keys[] = {"", NULL};
    static const struct tr_syntax syntax = {
        .shared = tr_run_arguments, .keys = all_keys, .job = true, .hint = "settings are section.key=value"};
    struct tr_run_options options = {.fresh = false};
    struct tr_arguments arguments = {.words = 0};
    tr_context *tr = NULL;
    tr_signals_handle(TR_SIGNALS_ASK, true); /* a request for a checkpoint must not kill the process */
    int status = tr_arguments_read(&syntax, *argc - 1, *argv + 1, &options, &arguments);
    if (status == TR_OK) {
        *argc = tr_arguments_join(&arguments, *argv);
        status = tr_context_read(argc, argv, class, &tr);
    } else if (!tr_is_an_echo()) {
        tr_printf(stderr, "trireme: error: %s\n", tr_error_text());
    }
    tr_arguments_free(&arguments);
    TR_TRY(status);
    status = program_open(tr, options.fresh);
    if (status == TR_OK) {
        *out = tr;
        return TR_OK;
    }
    status = tr_services_close(tr, status);
    tr_context_close(tr);
    return status;
}

int tr_open(int *argc, char ***argv, tr_context **tr)
{
    return tr_open_as(argc, argv, &no_class, tr);
}

const void *tr_options(const tr_context *tr)
{
    return tr->job->options;
}

int tr_model_save(tr_context *tr, void *model)
{
    const tr_model_class *class = tr->job->class;
    if (!class->fields)
        return tr_agree(tr, tr_fail(TR_ERR_INTERNAL, "%s: the class lists no fields", class->name));
    TR_TRY(tr_agree(tr, tr_model_check_fields(tr, class, model)));
    return tr_model_write(tr, class, model, tr->job->output);
}

int tr_close(tr_context *tr)
{
    int status = tr->status;
    if (status == TR_OK && tr->monitor) {
        status = tr_monitor_enter(tr->monitor, TR_WRITING);
        if (status == TR_OK) status = tr_checkpoint_settle(tr);
        if (status == TR_OK) status = tr_services_summary(tr, NULL, NULL);
    }
    status = tr_services_close(tr, status);
    int outcome = tr_context_close(tr);
    return status != TR_OK ? status : outcome;
}
