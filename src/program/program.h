/* program/ — what every program of Trireme gets, be it `trireme train` or one with a main of its own: the options of
 * its command line, checkpoints and going on from them, progress, and the run's folder with all that it holds.
 */
#ifndef TR_PROGRAM_H
#define TR_PROGRAM_H

#include "job/arguments.h"
#include "monitor/monitor.h"
#include "ranks/ranks.h"

/* The options of every program that trains. */
struct tr_run_options {
    bool explain; /* --explain: print all decisions before training starts */
    bool fresh;   /* --fresh: start over; the results of an earlier run are renamed */
};
extern const struct tr_argument tr_run_arguments[]; /* of this struct; ends with a name of NULL */

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
