/* The context of a job in a process. It contains all state of Trireme, which has no global variables.
 *
 * MPI ranks have roles, and a rank may have several roles (Angel, section 4; Parameter Server, section 3):
 *   scheduler  rank 0: maintains the clock, combines reports, decides when to stop
 *   server     stores a shard of every table, answers pulls and pushes
 *   leader     first rank of a group of workers: runs the schedule function of a stage
 *   member     every rank of a group, including its leader: computes. TR_SLAVE, because the papers call it «slave»
 *
 * Example:
 *
 *     int main(int argc, char **argv)
 *     {
 *         tr_context *tr;
 *         TR_TRY(tr_open(&argc, &argv, &tr));
 *         tr_agree(tr, train(tr));               // every rank learns the outcome
 *         return tr_close(tr);
 *     }
 */
#ifndef TRIREME_CONTEXT_H
#define TRIREME_CONTEXT_H

#include <stdbool.h>
#include <stdint.h>

#include "trireme/job.h"
#include "trireme/base.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tr_context tr_context;

enum tr_role { TR_SCHEDULER = 1, TR_SERVER = 2, TR_LEADER = 4, TR_SLAVE = 8 };

/* Starts MPI, reads the job file argv[1] and the settings section.key=value that follow it, assigns roles and prints
 * the layout. All ranks must call it first. tr_open_as() (trireme/model.h) accepts additional job keys.
 *
 * @param [in,out] argc, argv  arguments of main()
 * @param [out]    tr          the context; free it with tr_close()
 * @return TR_OK; on failure the same code on every rank, and rank 0 has printed the reason
 */
int tr_open(int *argc, char ***argv, tr_context **tr);

/* Ends MPI and frees the context. All ranks must call it last.
 *
 * @return the exit code of the process: the first status other than TR_OK that the ranks agreed on, or TR_OK
 */
int tr_close(tr_context *tr);

/* ---- layout: the same on all ranks unless stated otherwise ---- */

int tr_rank(const tr_context *tr);       /* this rank */
int tr_size(const tr_context *tr);       /* number of ranks */
int tr_workers(const tr_context *tr);    /* number of workers in all groups */
int tr_groups(const tr_context *tr);     /* number of worker groups */
int tr_group_size(const tr_context *tr); /* number of members of each group */
int tr_servers(const tr_context *tr);    /* number of ranks that store shards of tables */
int tr_nodes(const tr_context *tr);      /* number of nodes: sets of ranks that share memory */
unsigned tr_roles(const tr_context *tr); /* roles of this rank, a set of enum tr_role */

/* Returns whether the job runs under BSP: all workers see the same parameters at the same clock. */
bool tr_in_lockstep(const tr_context *tr);

/* Returns true if the run resumes from a checkpoint, until the stage begins in which the checkpoint was written. In the stages
 * before, the caller can omit computations whose results the checkpoint contains. */
bool tr_context_continues(const tr_context *tr);

/* Returns the job's settings (trireme/job.h). Owned by the context. */
const tr_job *tr_context_job(const tr_context *tr);

/* ---- errors and messages ---- */

/* Returns the same status on all ranks. All ranks must call it.
 *
 * @param [in] status  status of this rank
 * @return the status of the lowest rank that failed, or TR_OK if none failed. The error text of that rank is printed
 *         once as «trireme: ...».
 */
int tr_agree(tr_context *tr, int status);

/* Print a line on the stderr of rank 0; other ranks do nothing. tr_say() is silent if report.progress is no. tr_warn() always
 * prints; it is for problems that do not end the job. */
void tr_say(const tr_context *tr, const char *format, ...) __attribute__((format(printf, 2, 3)));
void tr_warn(const tr_context *tr, const char *format, ...) __attribute__((format(printf, 2, 3)));

#ifdef __cplusplus
}
#endif
#endif
