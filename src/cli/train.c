#define _GNU_SOURCE
#include "cli/cli.h"

#include <math.h>
#include <string.h>

#include "cli/average.h"
#include "cli/estimate.h"
#include "cli/explain.h"
#include "cli/tasks.h"
#include "cli/train.h"
#include "monitor/monitor.h"
#include "stage/stage.h"

/* Takes --explain out of the words, wherever it stands. */
static bool take_explain(int *argc, char **argv)
{
    int kept = 0, found = 0;
    for (int i = 0; i < *argc; i++)
        if (strcmp(argv[i], "--explain") == 0) found++;
        else argv[kept++] = argv[i];
    if (found) argv[kept] = NULL;
    *argc = kept;
    return found > 0;
}

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

int tr_train_here(tr_context *tr, const struct tr_model_kind *kind, void *model, bool explaining,
                  double *objective)
{
    struct tr_monitor *monitor = NULL;
    *objective = NAN;
    int status = tr_agree(tr, kind->check(tr_context_job(tr)));
    if (status == TR_OK) status = tr_monitor_open(tr, &monitor);
    if (status == TR_OK && explaining) status = explain(tr);
    if (status == TR_OK) status = train(tr, monitor, kind, &model);
    if (status == TR_OK) tr_say(tr, "output:        %s", tr_context_job(tr)->output);
    if (monitor) *objective = tr_monitor_objective(monitor);
    kind->close(&model);
    return tr_monitor_close(&monitor, status);
}

static int train_plain(tr_context *tr, bool explaining)
{
    double objective;
    TR_TRY(tr_context_assign(tr, tr->job));
    tr_context_describe(tr);
    return tr_train_here(tr, tr_model_kind_of(tr->job), NULL, explaining, &objective);
}

int tr_train_command(int argc, char **argv)
{
    static char name[] = "trireme train";
    argc++; /* tr_context_read() expects a name in front */
    argv--;
    argv[0] = name;
    if (argc == 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0))
        return tr_help_command(1, (char *[]){"train", NULL});
    setvbuf(stderr, NULL, _IOLBF,
            BUFSIZ); /* lines of several tasks, which are written piece by piece, stay whole */
    bool explaining = take_explain(&argc, argv);
    if (explaining) tr_explain_settings();
    tr_context *tr;
    TR_TRY(tr_context_read(&argc, &argv, &tr));
    int status = tr->job->tasks > 0 ? tr_tasks_run(tr, explaining) : train_plain(tr, explaining);
    int outcome = tr_close(tr);
    return status != TR_OK ? status : outcome;
}
