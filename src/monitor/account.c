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
static int copy_counts(const struct tr_counted *before, tr_context *tr, tr_snapshot *snapshot)
{
    struct tr_counts now = before->counts;
    const struct tr_traffic *t = &tr->tables->traffic;
    if (tr_works(tr)) add_counts(&now, &(struct tr_counts){*t, tr->active->member == 0 ? t->pushes : 0});
    return tr_snapshot_rows(snapshot, "counted", TR_I64, (uint64_t)tr->size, COUNTS, NULL, (uint64_t)tr->rank,
                            1, &now);
}

static int restore_counts(struct tr_counted *c, tr_context *tr, tr_snapshot *snapshot)
{
    const struct tr_facts *facts = &tr_checkpoint_found(tr)->facts;
    size_t ranks = (size_t)facts->ranks, mine = tr->rank == 0 ? ranks : 0;
    struct tr_counts *each;
    TR_TRY(TR_NEW(&each, ranks));
    int status = tr_snapshot_rows(snapshot, "counted", TR_I64, ranks, COUNTS, NULL, 0, mine, each);
    for (size_t i = 0; status == TR_OK && i < mine; i++) add_counts(&c->counts, &each[i]);
    free(each);
    return status;
}

int tr_counted_snapshot(struct tr_counted *c, tr_context *tr, const struct tr_progress_row *last,
                        tr_snapshot *snapshot)
{
    if (!tr_snapshot_restores(snapshot)) return copy_counts(c, tr, snapshot);
    *c = (struct tr_counted){.compute_seconds = last->compute_seconds,
                             .evaluate_seconds = last->evaluate_seconds};
    snprintf(c->stage, sizeof c->stage, "%s", tr_checkpoint_found(tr)->facts.stage);
    return restore_counts(c, tr, snapshot);
}

void tr_counted_add(struct tr_counted *c, const tr_stage *stage, struct tr_progress_row *row)
{
    if (*c->stage && strcmp(stage->name, c->stage) != 0) *c = (struct tr_counted){.stage = ""};
    tr_traffic_add(&row->traffic, &c->counts.traffic);
    row->updates += c->counts.updates;
    row->compute_seconds += c->compute_seconds;
    row->evaluate_seconds += c->evaluate_seconds;
}
