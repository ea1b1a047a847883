/* program/: services for all programs that train, that is, `trireme train` and programs with their own main(): options of the
 * command line, checkpoints and resuming, progress, and the output folder.
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
extern const struct tr_argument tr_run_arguments[]; /* describes these members; ends with a name of NULL */

/* Starts a run of the job in its output folder, after the roles are assigned. Resumes from the newest checkpoint unless `fresh`.
 * Sets tr->monitor. All ranks must call it.
 *
 * @return the agreed status
 */
int tr_services_open(tr_context *tr, bool fresh);

/* Writes summary.json: the size of the training data and the reported figures (tr_report_figure()). All ranks must call it.
 *
 * @param [in] more  writes additional members, each followed by a comma; may be NULL
 * @return the agreed status
 */
int tr_services_summary(tr_context *tr, void (*more)(FILE *file, void *who), void *who);

/* Ends the run: completes checkpoints and the files of the output folder. Does nothing unless tr_services_open() succeeded. All
 * ranks must call it.
 *
 * @param [in] status  agreed status of the run
 * @return status; if it is TR_OK, the status of writing the last files
 */
int tr_services_close(tr_context *tr, int status);

#endif
