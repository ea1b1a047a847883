/* The context: one per job and process. Everything hangs from it; there is no global state.
 *
 * MPI ranks carry roles, and a rank may carry several at once (Angel, section 4; PS, section 3):
 *   scheduler  rank 0: keeps the clock, sums up reports, decides when to stop
 *   server     holds a share of every table and answers pulls and pushes
 *   leader     first rank of a worker group: runs the stage's schedule function
 *   slave      computes; every member of a group, its leader too, is one
 */
#ifndef TRIREME_CONTEXT_H
#define TRIREME_CONTEXT_H

#include <stdbool.h>
#include <stdint.h>

#include "trireme/job.h"
#include "trireme/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tr_context tr_context;

enum tr_role { TR_SCHEDULER = 1, TR_SERVER = 2, TR_LEADER = 4, TR_SLAVE = 8 };

/* Starts MPI, reads the job file argv[1] with the section.key=value settings behind it, gives every rank its
 * roles and prints the layout. All ranks call it first. On failure every rank gets the same status, and
 * rank 0 has printed why. The job has the engine's keys; tr_open_as() (trireme/model.h) brings keys of one's own. */
int tr_open(int *argc, char ***argv, tr_context **tr);

/* Ends MPI and frees the context. All ranks call it last; returns the status that the process should exit
 * with: that of the first tr_ call that failed on any rank and was agreed on, or TR_OK. */
int tr_close(tr_context *tr);

int tr_rank(const tr_context *tr);
int tr_size(const tr_context *tr);

/* Workers in all groups together. */
int tr_workers(const tr_context *tr);

/* Groups of workers, and members of each. */
int tr_groups(const tr_context *tr);
int tr_group_size(const tr_context *tr);

/* Ranks that hold shares of tables. */
int tr_servers(const tr_context *tr);

/* Nodes that the ranks lie on: sets of ranks that share memory. */
int tr_nodes(const tr_context *tr);

/* BSP: all workers see the same parameters at the same clock. */
bool tr_in_lockstep(const tr_context *tr);

/* The run goes on from a checkpoint, and the stage that was checkpointed has not begun yet: what stages before it make is
 * needed only as far as it is not kept. The same on all ranks. */
bool tr_context_continues(const tr_context *tr);

/* The roles of this rank: a set of enum tr_role. */
unsigned tr_roles(const tr_context *tr);

/* The job's settings, to be read by their names: see trireme/job.h. */
const tr_job *tr_context_job(const tr_context *tr);

/* Makes one outcome of many: every rank calls it with its own status, and all return that of the lowest rank
 * that failed (TR_OK if none did). That rank's error text is printed once, as `trireme: …`. */
int tr_agree(tr_context *tr, int status);

/* Words to the user: rank 0 prints a line on stderr, the others do nothing. tr_say() is silent where report.progress is
 * no; tr_warn() never is: something is lost, though it is no error yet. */
void tr_say(const tr_context *tr, const char *format, ...) __attribute__((format(printf, 2, 3)));
void tr_warn(const tr_context *tr, const char *format, ...) __attribute__((format(printf, 2, 3)));

#ifdef __cplusplus
}
#endif
#endif
