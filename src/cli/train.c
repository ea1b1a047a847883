#define _GNU_SOURCE
#include "cli/cli.h"

#include <math.h>
#include <string.h>

#include "cli/estimate.h"
#include "cli/explain.h"
#include "data/dataset.h"
#include "model/auc.h"
#include "model/linear.h"
#include "model/save.h"
#include "monitor/monitor.h"

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

static int load(tr_context *tr, struct tr_linear **linear)
{
    TR_TRY(tr_agree(tr, tr_say_estimate(tr)));
    TR_TRY(tr_linear_open(tr, linear));
    TR_TRY(tr_data_describe((*linear)->train, "training data"));
    return (*linear)->test ? tr_data_describe((*linear)->test, "test data") : TR_OK;
}

/* Only the last evaluation is exact under every consistency, and epochs may run out. */
static void say_missed_goal(tr_context *tr, const struct tr_linear *linear)
{
    double goal = linear->job->solve.target_gap, gap = linear->last.gap;
    if (linear->job->solve.method == TR_SOLVE_DUAL && goal > 0 && gap > goal)
        tr_say(tr,
               "note:          solve.target_gap %g is not reached, the gap is %.2e: more solve.epochs may do",
               goal, gap);
}

static int save(struct tr_linear *linear, struct tr_monitor *monitor)
{
    struct tr_summary summary = {.rows = linear->train->total_rows,
                                 .features = linear->train->columns,
                                 .nonzeros = linear->train->total_nonzeros,
                                 .test_auc = NAN};
    TR_TRY(tr_linear_save(linear, linear->job->output));
    if (linear->test && linear->job->model.type != TR_MODEL_LINEAR)
        TR_TRY(tr_linear_auc(linear, &summary.test_auc));
    return tr_monitor_summary(monitor, &summary);
}

static int train(tr_context *tr, struct tr_monitor *monitor, struct tr_linear **linear)
{
    TR_TRY(tr_monitor_enter(monitor, TR_LOADING));
    TR_TRY(load(tr, linear));
    tr_monitor_count_rows(monitor, (*linear)->train->total_rows);
    TR_TRY(tr_monitor_enter(monitor, TR_TRAINING));
    TR_TRY(tr_linear_train(*linear));
    say_missed_goal(tr, *linear);
    TR_TRY(tr_monitor_enter(monitor, TR_WRITING));
    return save(*linear, monitor);
}

int tr_train_command(int argc, char **argv)
{
    static char name[] = "trireme train";
    argc++; /* tr_open() expects a name in front */
    argv--;
    argv[0] = name;
    if (argc == 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0))
        return tr_help_command(1, (char *[]){"train", NULL});
    bool explaining = take_explain(&argc, argv);
    if (explaining) tr_explain_settings();
    tr_context *tr;
    TR_TRY(tr_open(&argc, &argv, &tr));
    struct tr_monitor *monitor = NULL;
    struct tr_linear *linear = NULL;
    int status = tr_agree(tr, tr_linear_check(tr_context_job(tr)));
    if (status == TR_OK) status = tr_monitor_open(tr, &monitor);
    if (status == TR_OK && explaining) status = explain(tr);
    if (status == TR_OK) status = train(tr, monitor, &linear);
    if (status == TR_OK) tr_say(tr, "output:        %s", tr_context_job(tr)->output);
    tr_linear_close(&linear);
    status = tr_monitor_close(&monitor, status);
    int outcome = tr_close(tr);
    return status != TR_OK ? status : outcome;
}
