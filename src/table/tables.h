/* All tables of a context from stage to stage: they are made ready for the views that a stage has opened, settled
 * when it ends, and suspended while another one runs: a stage that runs again and again, in turns with others, finds
 * its views and merges as it left them, instead of opening them anew, which takes all ranks and far longer than a
 * short stage. */
#ifndef TR_TABLE_TABLES_H
#define TR_TABLE_TABLES_H

#include "table/table.h"

int tr_tables_open(tr_context *tr);
void tr_tables_close(tr_context *tr); /* all ranks */

/* Ends what views of a node pull as one, and waits until no message of a closed view is under way any more: all ranks,
 * outside of stages. */
int tr_tables_forget_views(tr_context *tr);

/* Makes ready to receive by all ways what views push: all ranks, after all views of a stage are open. */
int tr_tables_ready(tr_context *tr);

/* The stage that has just been made ready goes on where an earlier part of the run stood: so many clocks are over.
 * Called on all ranks before its first clock. What views hold is to be read again. */
void tr_tables_count_from(tr_context *tr, int64_t clocks);

/* The stage's last update has arrived everywhere: what functions keep apart becomes part of the values. All ranks. */
int tr_tables_settle(tr_context *tr);

/* What a suspended stage has opened. */
struct tr_suspended {
    struct tr_view_state **views;
    size_t view_count, view_capacity;
    struct tr_suspended_table {
        struct tr_merge *merge;
        struct tr_subscription *subscription;
        uint32_t updating_views;
    } * table; /* of the first `tables` tables of the context */
    size_t tables;
};

/* What this rank has to do with the stage that has just been made ready: whether others need it as a server, and (the
 * same on all ranks) whether the stage can be suspended: not with server functions, hash storage, sparse rows or
 * updates as messages, whose servers count who pushes. All ranks. */
int tr_tables_needs(tr_context *tr, bool *needed, bool *can_suspend);

/* Suspends what is open, and resumes it as it was before the first clock. Each participant for itself. With resumes
 * false it waits only to be ended. */
int tr_tables_suspend(tr_context *tr, bool resumes, struct tr_suspended *suspended);
int tr_tables_resume(tr_context *tr, struct tr_suspended *suspended);

/* Ends what was suspended (zeros: nothing): its views can only be closed. All ranks. */
void tr_tables_end(tr_context *tr, struct tr_suspended *suspended);

/* A pull or push of this rank begins, and is over: its time counts as way_seconds, that of several at once but once. */
void tr_way_begin(struct tr_tables *tables);
void tr_way_end(struct tr_tables *tables);

/* This rank begins to compute, and stops; and while it computes it begins to wait, or to move something, and goes on. What
 * is on its way while it computes and does not wait counts as hidden_seconds. */
void tr_way_compute(struct tr_tables *tables, bool computes);
void tr_wait_begin(struct tr_tables *tables);
void tr_wait_end(struct tr_tables *tables);

#endif
