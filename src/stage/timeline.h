/* The timeline of a run: which rank was at work in which stage, from when to when, for summary.json. */
#ifndef TR_STAGE_TIMELINE_H
#define TR_STAGE_TIMELINE_H

#include "ranks/ranks.h"

struct tr_span {
    char stage[40];
    int64_t rank;
    double begin, end; /* seconds since 1970, as clocks of hosts have them */
};

struct tr_timeline;

/* Each rank keeps its last spans, some hundred; of thousands of ranks fewer. */
int tr_timeline_open(tr_context *tr);
void tr_timeline_close(tr_context *tr);

/* This rank has been at work, from and until as tr_now(). */
void tr_timeline_add(tr_context *tr, const char *stage, double from, double until);

/* All ranks' spans, rank by rank in the order of time; to be freed. All ranks. */
int tr_timeline_gather(tr_context *tr, struct tr_span **all, size_t *n);

#endif
