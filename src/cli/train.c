#include "cli/cli.h"

#include "data/dataset.h"
#include "model/linear.h"
#include "stage/stage.h"

static int observe(void *who, const tr_stage *stage, const struct tr_progress_row *row)
{
    (void)who;
    (void)stage;
    fprintf(stderr, "epoch %6.2f  %8.3f s  objective %.8f  gap %.2e  metric %.5f  compute %.3f wait %.3f pull %.3f push %.3f\n", row->epoch,
            row->seconds, row->verdict.objective, row->verdict.gap, row->verdict.metric, row->compute_seconds, row->traffic.wait_seconds, row->traffic.pull_seconds, row->traffic.push_seconds);
    return TR_OK;
}

int tr_train_command(int argc, char **argv)
{
    argc++; /* tr_open() expects a name in front */
    argv--;
    tr_context *tr;
    TR_TRY(tr_open(&argc, &argv, &tr));
    struct tr_linear *linear = NULL;
    int status = tr_linear_open(tr, &linear);
    if (status == TR_OK) status = tr_data_describe(linear->train, "training data");
    tr_observe(tr, observe, NULL);
    if (status == TR_OK) status = tr_linear_train(linear);
    tr_linear_close(&linear);
    int outcome = tr_close(tr);
    return status != TR_OK ? status : outcome;
}
