#define _GNU_SOURCE
#include "cli/cli.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "store/checkpoint.h"
#include "cli/average.h"
#include "cli/estimate.h"
#include "cli/explain.h"
#include "cli/tasks.h"
#include "cli/train.h"
#include "monitor/monitor.h"
#include "monitor/status.h"
#include "stage/stage.h"

/* ---- options ---- */

/* What stands behind --max-time, as a setting of the job, to be freed: «--max-time T» takes two words, «--max-time=T»
 * one. A word that is missing becomes a setting without value, which is refused where all settings are. */
static int take_time(char **word, int left, int *used, char **setting)
{
    static const char name[] = "--max-time";
    size_t length = sizeof name - 1;
    *used = 0;
    if (strncmp(*word, name, length) != 0 || ((*word)[length] && (*word)[length] != '=')) return TR_OK;
    bool behind = (*word)[length] == '=';
    const char *time = behind ? *word + length + 1 : left > 1 ? word[1] : "";
    *used = behind || left == 1 ? 1 : 2;
    free(*setting);
    return tr_format(setting, "checkpoint.max_time=%s", time);
}

/* Takes the options out of the words, wherever they stand; a time becomes the last word, in the place of those that it was
 * given in. */
static int take_options(int *argc, char **argv, struct tr_train_wish *wish, char **setting)
{
    int kept = 0, used, all = *argc;
    for (int i = 0; i < all; i++) {
        TR_TRY(take_time(argv + i, all - i, &used, setting));
        if (strcmp(argv[i], "--explain") == 0) wish->explaining = true;
        else if (strcmp(argv[i], "--fresh") == 0) wish->fresh = true;
        else if (used > 0) i += used - 1;
        else argv[kept++] = argv[i];
    }
    if (*setting && kept > 1) argv[kept++] = *setting;
    if (kept < all) argv[kept] = NULL;
    *argc = kept;
    return TR_OK;
}

/* ---- one job ---- */

static int explain(tr_context *tr)
{
    tr_on_ready(tr, tr_explain_stage, tr);
    return tr_explain_layout(tr);
}

static int train(tr_context *tr, struct tr_monitor *monitor, const struct tr_model_kind *kind, void **model)
{
    struct tr_result result = {.test_auc = NAN, .test_perplexity = NAN};
    bool averages = kind == &tr_average_kind;
    TR_TRY(tr_monitor_enter(monitor, TR_LOADING));
    if (!averages) TR_TRY(tr_agree(tr, tr_say_estimate(tr)));
    TR_TRY(kind->open(tr, &result, model));
    tr_monitor_count_rows(monitor, result.rows);
    TR_TRY(tr_monitor_enter(monitor, TR_TRAINING));
    TR_TRY(kind->train(*model));
    TR_TRY(tr_monitor_enter(monitor, TR_WRITING));
    TR_TRY(tr_checkpoint_settle(tr));
    TR_TRY(kind->save(*model, tr_context_job(tr)->output, &result));
    struct tr_summary summary = {.rows = result.rows,
                                 .features = result.columns,
                                 .nonzeros = result.nonzeros,
                                 .test_auc = result.test_auc,
                                 .test_perplexity = result.test_perplexity,
                                 .test_accuracy = NAN,
                                 .test_rmse = NAN};
    if (averages) tr_average_summary(*model, &summary);
    return tr_monitor_summary(monitor, &summary);
}

/* Whether the run that has left the job's folder ended as it should. All ranks. */
static int look_for_end(tr_context *tr, bool *ended)
{
    int done = tr->rank == 0 && tr_status_look(tr->job->output).done;
    MPI_Request request;
    MPI_Ibcast(&done, 1, MPI_INT, 0, tr->world, &request);
    TR_TRY(tr_wait_request(tr, &request, "rank 0 to look for an earlier run"));
    *ended = done;
    return TR_OK;
}

/* Goes on from a checkpoint, or begins. */
static int begin(tr_context *tr, const struct tr_train_wish *wish, struct tr_monitor **monitor)
{
    bool ended = false;
    if (!wish->fresh) TR_TRY(look_for_end(tr, &ended));
    TR_TRY(tr_checkpoints_open(tr, wish->fresh || ended));
    return tr_monitor_open(tr, monitor);
}

int tr_train_here(tr_context *tr, const struct tr_model_kind *kind, void *model,
                  const struct tr_train_wish *wish, double *objective)
{
    struct tr_monitor *monitor = NULL;
    *objective = NAN;
    int status = tr_agree(tr, kind->check(tr_context_job(tr)));
    if (status == TR_OK) status = begin(tr, wish, &monitor);
    if (status == TR_OK && wish->explaining) status = explain(tr);
    if (status == TR_OK) status = train(tr, monitor, kind, &model);
    bool complete = status == TR_OK;
    if (monitor) *objective = tr_monitor_objective(monitor);
    if (status == TR_ERR_STOPPED) tr_monitor_say_stopped(monitor);
    kind->close(&model);
    status = tr_checkpoints_close(tr, complete, status);
    if (status == TR_OK) tr_say(tr, "output:        %s", tr_context_job(tr)->output);
    return tr_monitor_close(&monitor, status);
}

static int train_plain(tr_context *tr, const struct tr_train_wish *wish)
{
    double objective;
    TR_TRY(tr_context_assign(tr, tr->job));
    tr_context_describe(tr);
    return tr_train_here(tr, tr_model_kind_of(tr->job), NULL, wish, &objective);
}

/* ---- the command ---- */

static int run(int argc, char **argv, const struct tr_train_wish *wish)
{
    tr_context *tr;
    tr_signals_hear(); /* what asks for a checkpoint, perhaps before there is anything to keep, must not end the process */
    TR_TRY(tr_context_read(&argc, &argv, &tr));
    int status = tr->job->tasks > 0 ? tr_tasks_run(tr, wish) : train_plain(tr, wish);
    int outcome = tr_close(tr);
    return status != TR_OK ? status : outcome;
}

int tr_train_command(int argc, char **argv)
{
    static char name[] = "trireme train";
    argc++; /* tr_context_read() expects a name in front */
    argv--;
    argv[0] = name;
    if (argc == 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0))
        return tr_help_command(1, (char *[]){"train", NULL});
    /* lines of several tasks, which are written piece by piece, stay whole */
    setvbuf(stderr, NULL, _IOLBF, BUFSIZ);
    struct tr_train_wish wish = {.fresh = false};
    char *setting = NULL;
    int status = take_options(&argc, argv, &wish, &setting);
    if (status != TR_OK) return tr_complain(status);
    if (wish.explaining) tr_explain_settings();
    status = run(argc, argv, &wish);
    free(setting);
    return status;
}
