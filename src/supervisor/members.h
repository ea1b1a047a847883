/* The ranks of one start of the job, as they report through their lifelines (src/ranks/lifeline.h) and as /proc knows
 * those of this host, and what Open MPI leaves behind of them. One thread, one epoll; a beat costs the same however
 * many ranks there are. */
#ifndef TR_SUPERVISOR_MEMBERS_H
#define TR_SUPERVISOR_MEMBERS_H

#include <stdbool.h>
#include <stddef.h>

#include "ranks/lifeline.h"

typedef unsigned long long tr_start_time; /* as /proc/PID/stat has it */

struct tr_member {
    int socket; /* -1: broken */
    bool known; /* it has said hello */
    bool local; /* its process can be seen from here */
    bool bye;   /* … with this status */
    int status;
    long rank, pid;
    tr_start_time start; /* tells its process from a later one of the same pid */
    char host[128];
    double beat, broke; /* when it was heard last, and when its line broke: as tr_now() */
    long waits;         /* seconds for which it has waited in vain */
    char line[TR_LIFELINE_LINE];
    size_t filled;
};

struct tr_members {
    int listener, ready; /* ready: an epoll of all sockets, to be polled for */
    int port;
    bool everywhere; /* ranks may be on other hosts */
    char host[128];  /* this one */
    char token[33];
    double period, limit; /* seconds */
    bool ending;          /* whoever comes now is to die, too */
    struct tr_member **member;
    size_t n, capacity;
    size_t known, byes, broken;    /* of those known: that have said bye, whose lines are broken */
    long size;                     /* how many there should be; 0: not known yet */
    const struct tr_member *dead;  /* the first whose line broke without a bye */
    struct tr_life_state farthest; /* that any rank has said */
};

/* Listens: on all interfaces if ranks are to be on other hosts too, else on the loopback alone. TR_ERR_SYSTEM. */
int tr_members_open(bool everywhere, double period, double limit, struct tr_members *members);
void tr_members_close(struct tr_members *members);

/* Forgets everybody, for a new start of the job, whose ranks have another token. */
int tr_members_renew(struct tr_members *members);

/* What the ranks are to find in TR_LIFELINE_VARIABLE; to be freed. */
int tr_members_address(const struct tr_members *members, char **address);

/* Receives what has come, and turns away strangers; never waits. */
int tr_members_receive(struct tr_members *members);

/* One that was not heard of for longer than the limit, or that has said its last word and been stopped, here, before it ended;
 * or NULL. */
const struct tr_member *tr_members_silent(const struct tr_members *members);

/* All ranks are there and have lost patience, whatever they wait for: for so many seconds at least; 0: not so. */
long tr_members_waits(const struct tr_members *members);

/* Nobody is blamed for the time until now: it was the supervisor that did not listen. */
void tr_members_excuse(struct tr_members *members);

/* Tells all whose lines hold to end at once; to do as if they had got a signal. */
void tr_members_tell_to_die(struct tr_members *members);
void tr_members_tell_signal(const struct tr_members *members, int number);

/* The number of local processes that have not ended; `kill`: they are killed, too. */
size_t tr_members_left(const struct tr_members *members, bool kill);

/* ---- processes of this host ---- */

enum tr_process_state { TR_PROCESS_NONE, TR_PROCESS_ENDED, TR_PROCESS_STOPPED, TR_PROCESS_RUNS };

/* What that process, and not a later one of this pid, does; TR_PROCESS_ENDED: it is a zombie. *wait_status, if not
 * NULL: how it ended, as waitpid() has it, known from the moment when its files are closed; -1: not known. */
enum tr_process_state tr_process_state(long pid, tr_start_time start, int *wait_status);

/* Whether that process is stopped: of one's own child, whose pid cannot be another's yet. */
bool tr_process_is_stopped(long pid);

/* A child of that process that is stopped, or 0. */
long tr_process_stopped_child(long parent);

/* SIGKILL to that process and no other. */
void tr_process_kill(long pid, tr_start_time start);

struct tr_segments {
    char **path; /* or patterns */
    size_t n, capacity;
};

/* Files below /dev/shm that a living process has mapped and that were made by Open MPI, and what it calls others of this job.
 * What else lies there may be meant to stay. */
int tr_segments_find(long pid, struct tr_segments *segments);
void tr_segments_free(struct tr_segments *segments);

/* After an mpirun that could not clean up, or whose ranks died while they made a window: removes these, those of other
 * ranks and windows of their jobs, and the folder of its session below that for temporary files, as far as they are ours. */
void tr_segments_remove(const struct tr_segments *segments, long mpirun);

/* Of ours, too: what a process has left that was killed while it tried, in MPI_Init, whether there is shared memory. */
void tr_segments_remove_trials(void);

#endif
