/* What the ranks of a run do, and what befell it, for those who watch (trireme watch): ranks.json and events.csv. */
#ifndef TR_MONITOR_RANKS_H
#define TR_MONITOR_RANKS_H

#include <math.h>

#include "ranks/ranks.h"

/* Writes folder/ranks.json: rank 0. */
int tr_ranks_write(const tr_context *tr, const char *folder);

/* Where in a run something happened; NaN: not known. */
struct tr_event_place {
    double seconds, epoch, updates;
};

/* Adds a line to folder/events.csv; rank -1: none in particular. That it cannot be written is no error: it is for those who
 * watch. */
void tr_event_add(const char *folder, const char *event, struct tr_event_place place, long rank,
                  const char *text);

#endif
