#define _GNU_SOURCE
#include "program/program.h"

#include <stdlib.h>
#include <string.h>

#include "class/class.h"
#include "data/dataset.h"
#include "data/store.h"
#include "stage/stage.h"
#include "store/checkpoint.h"
#include "trireme/collective.h"

/* ---- options ---- */

/* Options that are settings of the job under another name. */
static const struct {
    const char *name, *key;
} setting_options[] = {{"--max-time", "checkpoint.max_time"}, {"--plugin", "model.plugin"}};
_Static_assert(sizeof setting_options / sizeof *setting_options == TR_RUN_SETTINGS, "one setting for each");

/* Reads «--max-time T», two words, or «--max-time=T», one. A value that is missing makes a setting without value, which is
 * refused with the other settings. *used: the number of words. */
static int read_setting_option(char **word, int left, int *used, char **setting)
{
    *used = 0;
    for (size_t i = 0; i < TR_RUN_SETTINGS; i++) {
        size_t length = strlen(setting_options[i].name);
        char behind = strncmp(*word, setting_options[i].name, length) == 0 ? (*word)[length] : '?';
        if (behind && behind != '=') continue;
        const char *value = behind ? *word + length + 1 : left > 1 ? word[1] : "";
        *used = behind || left == 1 ? 1 : 2;
        free(setting[i]);
        return tr_format(&setting[i], "%s=%s", setting_options[i].key, value);
    }
    return TR_OK;
}

int tr_run_options_take(int *argc, char **argv, struct tr_run_options *o)
{
    int kept = 1, used, all = *argc;
    for (int i = 1; i < all; i++) {
        TR_TRY(read_setting_option(argv + i, all - i, &used, o->setting));
        if (strcmp(argv[i], "--explain") == 0) o->explain = true;
        else if (strcmp(argv[i], "--fresh") == 0) o->fresh = true;
        else if (used > 0) i += used - 1;
        else argv[kept++] = argv[i];
    }
    for (size_t i = 0; i < TR_RUN_SETTINGS && kept > 1; i++)
        if (o->setting[i]) argv[kept++] = o->setting[i];
    if (kept < all) argv[kept] = NULL;
    *argc = kept;
    return TR_OK;
}

void tr_run_options_free(struct tr_run_options *o)
{
    for (size_t i = 0; i < TR_RUN_SETTINGS; i++) free(o->setting[i]);
}

/* ---- services ---- */

/* What cannot be opened is said when it is read. */
static uint64_t digest_data(const tr_job *job)
{
    struct tr_files files;
    if (job->data.train.n == 0 || tr_data_files(job, false, &files) != TR_OK) return 0;
    uint64_t digest = tr_files_digest(&files);
    tr_files_close(&files);
    return digest;
}

int tr_services_open(tr_context *tr, bool fresh)
{
    if (tr->rank == 0) tr->data_digest = digest_data(tr->job);
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

/* ---- programs with a main of their own ---- */

/* Of a program that brings no class: it has the engine's keys alone, and stages of any name. */
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

static int check_job(const tr_job *job)
{
    if (job->tasks > 0)
        return tr_fail(TR_ERR_CONFIG, "%s: task %s: this program runs no tasks, only trireme train does",
                       job->task[0].first, job->task[0].name);
    TR_TRY(tr_job_check_use(job));
    return job->class->check ? job->class->check(job, job->options) : TR_OK;
}

static int open_all(tr_context *tr, bool fresh)
{
    TR_TRY(tr_agree(tr, check_job(tr->job)));
    TR_TRY(tr_context_assign(tr, tr->job));
    tr_context_describe(tr);
    return tr_services_open(tr, fresh);
}

int tr_open_as(int *argc, char ***argv, const tr_model_class *class, tr_context **out)
{
    struct tr_run_options options = {.fresh = false};
    tr_context *tr = NULL;
    tr_signals_open(); /* one that asks for a checkpoint, perhaps before there is anything to keep, must not end the process */
    int status = tr_run_options_take(argc, *argv, &options);
    if (status == TR_OK) status = tr_context_read(argc, argv, class, &tr);
    tr_run_options_free(&options);
    TR_TRY(status);
    status = open_all(tr, options.fresh);
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

static int write_summary(tr_context *tr)
{
    TR_TRY(tr_monitor_enter(tr->monitor, TR_WRITING));
    TR_TRY(tr_checkpoint_settle(tr));
    return tr_services_summary(tr, NULL, NULL);
}

int tr_close(tr_context *tr)
{
    int status = tr->status;
    if (status == TR_OK && tr->monitor) status = write_summary(tr);
    status = tr_services_close(tr, status);
    int outcome = tr_context_close(tr);
    return status != TR_OK ? status : outcome;
}
