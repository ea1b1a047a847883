/* The ranks of one start of the job: connections to their lifelines (src/ranks/lifeline.h), the processes of this host in /proc,
 * and shared memory that Open MPI does not remove. One thread, one epoll: the cost of a heartbeat does not depend on the number
 * of ranks. */
#ifndef TR_SUPERVISOR_MEMBERS_H
#define TR_SUPERVISOR_MEMBERS_H

#include <stdbool.h>
#include <stddef.h>

#include "ranks/lifeline.h"

typedef unsigned long long tr_start_time; /* field 22 of /proc/PID/stat */

struct tr_supervised_rank {
    int socket; /* -1: closed */
    bool known; /* it has sent hello */
    bool local; /* its process is on this host */
    bool bye;   /* it has sent bye */
    int status; /* of bye */
    long rank, pid;
    tr_start_time start; /* distinguishes the process from a later one with the same pid */
    char host[128];
    double beat, broke; /* time of the last message, time of disconnection (tr_now()) */
    long waits;         /* seconds of its current wait */
    char line[TR_LIFELINE_LINE];
    size_t filled;
};

struct tr_members {
    int listener, ready; /* ready: epoll descriptor of all sockets */
    int port;
    bool everywhere; /* accept ranks of other hosts */
    char host[128];  /* name of this host */
    char token[33];
    double period, limit; /* seconds */
    bool ending;          /* ranks that connect from now on must exit, too */
    struct tr_supervised_rank **member;
    size_t n, capacity;
    size_t known, byes,
        broken; /* number of ranks that are known, that have sent bye, that are disconnected */
    long size;  /* expected number of ranks; 0: not known yet */
    const struct tr_supervised_rank *dead; /* the first rank that disconnected without bye */
    struct tr_life_state farthest;         /* most advanced state of all ranks */
};

/* Opens a listening socket: on all interfaces if `everywhere`, else on the loopback interface. TR_ERR_SYSTEM. */
int tr_members_open(bool everywhere, double period, double limit, struct tr_members *members);
void tr_members_close(struct tr_members *members);

/* Forgets all ranks before the next start of the job, and creates a new token. */
int tr_members_renew(struct tr_members *members);

/* Returns the value of TR_LIFELINE_VARIABLE for the ranks; free it with free(). */
int tr_members_address(const struct tr_members *members, char **address);

/* Receives all pending messages and disconnects peers that are not ranks of this job. Does not block. */
int tr_members_receive(struct tr_members *members);

/* Returns a rank that has sent nothing for longer than the limit, or a rank of this host that has sent bye and was stopped before
 * it exited; NULL if there is none. */
const struct tr_supervised_rank *tr_members_silent(const struct tr_members *members);

/* Returns the shortest current wait of all ranks in seconds if all ranks are connected and have reported a wait; 0 otherwise. */
long tr_members_waits(const struct tr_members *members);

/* Restarts the timeouts of all ranks, after a time in which the supervisor itself did not receive messages. */
void tr_members_excuse(struct tr_members *members);

/* Send to all connected ranks: exit immediately; handle a signal. */
void tr_members_tell_to_die(struct tr_members *members);
void tr_members_tell_signal(const struct tr_members *members, int number);

/* Returns the number of local processes that have not exited. kill: sends SIGKILL to them. */
size_t tr_members_left(const struct tr_members *members, bool kill);

/* ---- processes of this host ---- */

enum tr_process_state { TR_PROCESS_NONE, TR_PROCESS_ENDED, TR_PROCESS_STOPPED, TR_PROCESS_RUNS };

/* Returns the state of a process. A later process with the same pid has another start time and counts as TR_PROCESS_NONE.
 *
 * @param [out] wait_status  status as of waitpid(), available once the files of the process are closed; -1: unknown. May be NULL
 * @return TR_PROCESS_ENDED for a zombie
 */
enum tr_process_state tr_process_state(long pid, tr_start_time start, int *wait_status);

/* Returns whether a child of this process is stopped. (The pid of a child cannot be reused before waitpid().) */
bool tr_process_is_stopped(long pid);

/* Returns a stopped child of a process, or 0. */
long tr_process_stopped_child(long parent);

/* Sends SIGKILL to this process, not to a later one with the same pid. */
void tr_process_kill(long pid, tr_start_time start);

struct tr_segments {
    char **path; /* paths and patterns of glob() */
    size_t n, capacity;
};

/* Adds the files of Open MPI in /dev/shm that a running process has mapped, and the pattern of the other files of its job. Other
 * files in /dev/shm are not touched. */
int tr_segments_find(long pid, struct tr_segments *segments);
void tr_segments_free(struct tr_segments *segments);

/* Cleans up after an mpirun that was killed, or whose ranks died while they created a window: removes these files, the files of
 * other ranks and windows of their jobs, and the session folder of mpirun, if they belong to this user. */
void tr_segments_remove(const struct tr_segments *segments, long mpirun);

/* Removes files of this user from processes that were killed while MPI_Init tested shared memory. */
void tr_segments_remove_trials(void);

#endif
