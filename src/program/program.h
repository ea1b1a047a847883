/* program/: services of all programs, `trireme train` and programs with their own main(): options of the command line,
 * checkpoints and resuming, progress, and the folder of the run.
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

/* Starts a run of the job in its folder, after the roles are assigned. Resumes from the newest checkpoint unless `fresh`. Sets
 * tr->monitor. All ranks.
 *
 * @return the agreed status
 */
int tr_services_open(tr_context *tr, bool fresh);

/* Writes summary.json: the size of the training data and the reported figures (tr_report_figure()). All ranks.
 *
 * @param [in] more  writes additional members, each followed by a comma; may be NULL
 * @return the agreed status
 */
int tr_services_summary(tr_context *tr, void (*more)(FILE *file, void *who), void *who);

/* Ends the run: finishes checkpoints and the folder. Does nothing in a context without services. All ranks.
 *
 * @param [in] status  agreed status of the run
 * @return status, or, if it is TR_OK, the status of the last files
 */
int tr_services_close(tr_context *tr, int status);

#endif
