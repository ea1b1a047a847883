/* One start of the job: from mpirun's beginning until nothing of it is left. */
#ifndef TR_SUPERVISOR_WATCH_H
#define TR_SUPERVISOR_WATCH_H

#include <stdio.h>

#include "supervisor/crew.h"
#include "supervisor/launch.h"
#include "supervisor/supervisor.h"
#include "supervisor/verdict.h"

struct tr_watch {
    const struct tr_supervision *wish;
    struct tr_crew crew;
    struct tr_launch launch;
    int signals;  /* a signalfd */
    int asked;    /* the signal by which the user asked the job to stop; 0: nobody did */
    bool hurry;   /* … for the second time */
    double urged; /* when it was asked last by another signal than SIGUSR1, as tr_now() */
    int held[32]; /* signals for ranks that are not all there yet */
    int holds;
    FILE *log; /* or NULL */
    int attempt;
    double begun; /* this start of the job, as tr_now() */

    /* of this start */
    struct tr_failure failure;
    bool ending;    /* something failed: the others are to go */
    double noticed; /* when that was seen */
    double told;    /* when the others were told; 0: not yet */
    int forced;     /* what was done to mpirun so far: 1 SIGTERM, 2 SIGKILL */
    char **segment; /* what it may leave behind in shared memory */
    size_t segments;
    double turned; /* last time that the supervisor listened */
    double looked; /* … and looked who is silent */
    bool said_missing;
    struct tr_life_state logged;
    int logged_clocks;
};

/* Signals, and a place where ranks report. TR_ERR_SYSTEM. */
int tr_watch_open(const struct tr_supervision *wish, struct tr_watch *watch);
void tr_watch_close(struct tr_watch *watch);

/* Starts mpirun with these words and stays until it and all ranks have ended: watch->failure, of kind TR_CAUSE_NONE where
 * all ended well. An error is one of the supervisor's own. */
int tr_watch_run(struct tr_watch *watch, char *const command[]);

/* Waits, and hears what the user wants meanwhile. */
void tr_watch_pause(struct tr_watch *watch, double seconds);

/* A line in the log: seconds since 1970, number of the start, the event, and what there is to say of it. */
void tr_watch_note(struct tr_watch *watch, const char *event, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
