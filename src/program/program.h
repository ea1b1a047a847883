/* program/ — what every program of Trireme gets, be it `trireme train` or one with a main of its own: the words behind the
 * job file, checkpoints and going on from them, progress, and the run's folder with all that it holds.
 */
#ifndef TR_PROGRAM_H
#define TR_PROGRAM_H

#include "monitor/monitor.h"
#include "ranks/ranks.h"

/* Options that may stand among the words behind the job file. */
enum { TR_RUN_SETTINGS = 2 };

struct tr_run_options {
    bool explain; /* --explain: all that was decided is said */
    bool fresh;   /* --fresh: nothing is gone on with; what an earlier run has left is kept aside */
    char *setting[TR_RUN_SETTINGS]; /* of the job, by --max-time and --plugin; NULL: not given */
};

/* Removes the options from the words behind the first and adds their settings at the end. tr_run_options_free() after the job is
 * read. */
int tr_run_options_take(int *argc, char **argv, struct tr_run_options *options);
void tr_run_options_free(struct tr_run_options *options);

/* Begins a run of the context's job, whose roles are assigned: in its folder, going on from the newest checkpoint there
 * unless `fresh`. All ranks; agreed on. Afterwards tr->monitor is there. */
int tr_services_open(tr_context *tr, bool fresh);

/* Writes summary.json: what was trained on, the figures that were reported (tr_report_figure()), and members that `more`
 * writes, each with a comma behind it (NULL: none). All ranks; agreed on. */
int tr_services_summary(tr_context *tr, void (*more)(FILE *file, void *who), void *who);

/* Ends the run with this status, which all ranks know: checkpoints and the folder are as they are to be left. All ranks;
 * returns the status, or, where all was well until here, that of the last things that were written. Nothing happens in a
 * context without services. */
int tr_services_close(tr_context *tr, int status);

#endif
