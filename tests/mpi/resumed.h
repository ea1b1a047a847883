/* For tests of checkpoints: rows of workers that add to a table what their own state says, so that lost state shows in the table. */
#ifndef TR_TESTS_RESUMED_H
#define TR_TESTS_RESUMED_H

#include "mpi_unit.h"

enum { KEYS = 40, ROWS = 60 };

struct resumed {
    tr_table *table;
    tr_view *view;
    size_t first, end; /* rows of this worker */
    int64_t row[ROWS]; /* Σ (clock + 1), by row */
};

static inline int resumed_prepare(struct resumed *r, const tr_worker *me)
{
    r->first = (size_t)(ROWS * me->worker / me->workers);
    r->end = (size_t)(ROWS * (me->worker + 1) / me->workers);
    return mpi_open_view(r->table, TR_VIEW_UPDATE, &r->view);
}

/* Pulls and fills view->delta. */
static inline int resumed_compute(struct resumed *r, int64_t clock)
{
    TR_TRY(tr_view_pull(r->view));
    for (size_t i = r->first; i < r->end; i++) {
        r->row[i] += clock + 1;
        ((double *)r->view->delta)[i % KEYS] += (double)r->row[i];
    }
    return TR_OK;
}

static inline int resumed_keep(struct resumed *r, const tr_worker *me, tr_snapshot *snapshot)
{
    size_t n = me->worker < 0 ? 0 : r->end - r->first;
    return tr_snapshot_rows(snapshot, "row", TR_I64, ROWS, 1, NULL, r->first, n, r->row + r->first);
}

static inline int resumed_pull(tr_worker *me, void *state)
{
    return tr_view_pull(((struct resumed *)state)->view);
}

/* Reads the table in a stage after one of `clocks` clocks. */
static inline void resumed_check(tr_context *tr, struct resumed *r, int64_t clocks)
{
    double expected[KEYS] = {0};
    const tr_stage stage = {.name = "look", .state = r, .clocks = 1, .compute = resumed_pull};
    mpi_ok(tr_run(tr, &stage));
    for (int64_t i = 0; i < ROWS; i++)
        for (int64_t c = 0, sum = 0; c < clocks; c++) expected[i % KEYS] += (double)(sum += c + 1);
    for (int k = 0; tr_is(tr, TR_SLAVE) && k < KEYS; k++)
        mpi_equal(((const double *)r->view->value)[k], expected[k]);
}

#endif
