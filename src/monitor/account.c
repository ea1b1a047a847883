#include "monitor/account.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum {
    ACCOUNT = sizeof(struct tr_account) / sizeof(int64_t),
    COUNTS = sizeof(struct tr_counts) / sizeof(int64_t)
};
static_assert(sizeof(struct tr_account) % sizeof(int64_t) == 0 &&
                  sizeof(struct tr_counts) % sizeof(int64_t) == 0,
              "both are saved as numbers of 8 bytes");

int tr_account_snapshot(struct tr_account *a, tr_snapshot *snapshot)
{
    return tr_snapshot_common(snapshot, "account", TR_I64, ACCOUNT, a);
}

static void add_counts(struct tr_counts *sum, const struct tr_counts *one)
{
    tr_traffic_add(&sum->traffic, &one->traffic);
    sum->updates += one->updates;
}

/* Of this rank, with what was counted before on rank 0. */
static int copy_counts(const struct tr_tally *before, tr_context *tr, tr_snapshot *snapshot)
{
    struct tr_counts now = before->counts;
    const struct tr_traffic *t = &tr->tables->traffic;
    if (tr_works(tr)) add_counts(&now, &(struct tr_counts){*t, tr->active->member == 0 ? t->pushes : 0});
    return tr_snapshot_rows(snapshot, "counted", TR_I64, (uint64_t)tr->size, COUNTS, NULL, (uint64_t)tr->rank,
                            1, &now);
}

static int restore_counts(struct tr_tally *before, tr_context *tr, tr_snapshot *snapshot)
{
    const struct tr_facts *facts = &tr_checkpoint_found(tr)->facts;
    size_t ranks = (size_t)facts->ranks, mine = tr->rank == 0 ? ranks : 0;
    struct tr_counts *each;
    TR_TRY(TR_NEW(&each, ranks));
    int status = tr_snapshot_rows(snapshot, "counted", TR_I64, ranks, COUNTS, NULL, 0, mine, each);
    for (size_t i = 0; status == TR_OK && i < mine; i++) add_counts(&before->counts, &each[i]);
    free(each);
    return status;
}

int tr_tallies_snapshot(struct tr_tallies *t, tr_context *tr, const struct tr_progress_row *last,
                        tr_snapshot *snapshot)
{
    if (!tr_snapshot_restores(snapshot)) return copy_counts(&t->before, tr, snapshot);
    *t = (struct tr_tallies){
        .before = {.compute_seconds = last->compute_seconds, .evaluate_seconds = last->evaluate_seconds}};
    return restore_counts(&t->before, tr, snapshot);
}

void tr_tallies_add(struct tr_tallies *t, struct tr_progress_row *row)
{
    t->stage = (struct tr_tally){{row->traffic, row->updates}, row->compute_seconds, row->evaluate_seconds};
    tr_traffic_add(&row->traffic, &t->before.counts.traffic);
    row->updates += t->before.counts.updates;
    row->compute_seconds += t->before.compute_seconds;
    row->evaluate_seconds += t->before.evaluate_seconds;
}

void tr_tallies_end_stage(struct tr_tallies *t)
{
    add_counts(&t->before.counts, &t->stage.counts);
    t->before.compute_seconds += t->stage.compute_seconds;
    t->before.evaluate_seconds += t->stage.evaluate_seconds;
    t->stage = (struct tr_tally){.compute_seconds = 0};
}
