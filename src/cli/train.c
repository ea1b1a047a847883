#define _GNU_SOURCE
#include "cli/cli.h"

#include <math.h>
#include <string.h>

#include "cli/estimate.h"
#include "cli/explain.h"
#include "model/model.h"
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

static int train(tr_context *tr, struct tr_monitor *monitor, const struct tr_model_kind *kind, void **model)
{
    struct tr_result result = {.test_auc = NAN, .test_perplexity = NAN};
    TR_TRY(tr_monitor_enter(monitor, TR_LOADING));
    TR_TRY(tr_agree(tr, tr_say_estimate(tr)));
    TR_TRY(kind->open(tr, &result, model));
    tr_monitor_count_rows(monitor, result.rows);
    TR_TRY(tr_monitor_enter(monitor, TR_TRAINING));
    TR_TRY(kind->train(*model));
    TR_TRY(tr_monitor_enter(monitor, TR_WRITING));
    TR_TRY(kind->save(*model, tr_context_job(tr)->output, &result));
    struct tr_summary summary = {result.rows, result.columns, result.nonzeros, result.test_auc,
                                 result.test_perplexity};
    return tr_monitor_summary(monitor, &summary);
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
    const struct tr_model_kind *kind = tr_model_kind_of(tr_context_job(tr));
    void *model = NULL;
    int status = tr_agree(tr, kind->check(tr_context_job(tr)));
    if (status == TR_OK) status = tr_monitor_open(tr, &monitor);
    if (status == TR_OK && explaining) status = explain(tr);
    if (status == TR_OK) status = train(tr, monitor, kind, &model);
    if (status == TR_OK) tr_say(tr, "output:        %s", tr_context_job(tr)->output);
    kind->close(&model);
    status = tr_monitor_close(&monitor, status);
    int outcome = tr_close(tr);
    return status != TR_OK ? status : outcome;
}
