/* supervisor/: `trireme run`. It starts a job with mpirun, detects immediately when a rank dies or hangs, terminates the remaining
 * processes, and starts the job again. It does not use MPI. An attempt is one start of the job; attempts are numbered from 0.
 *
 *   members    the ranks of an attempt (members): their lifelines, processes and shared memory
 *   mpirun     mpirun as a child process, and its output
 *   supervise  the loop of attempts; description of failures, decision to start again
 */
#ifndef TR_SUPERVISOR_H
#define TR_SUPERVISOR_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "ranks/lifeline.h"

struct tr_supervision {
    /* command line of mpirun with the program and its arguments, ended by NULL, without the options that the supervisor adds */
    const char *const *command;
    size_t options; /* number of leading words that belong to mpirun, including its name */
    /* index of the word --fresh in command; it is passed only until training has started; 0: there is no such word */
    size_t fresh;
    const char *output;      /* output folder of the job, which contains status.json; NULL: none */
    bool everywhere;         /* ranks may run on other hosts */
    double heartbeat, limit; /* PERIOD and LIMIT of ranks/lifeline.h, in seconds */
    int max_restarts;
    double max_time; /* seconds until the job must have ended, including all restarts; 0: no limit */
    const char *log; /* file to which events are appended; NULL: none */
};

/* Runs the job to its end. Returns the exit code of `train`, or that of the failure that ended the job. Forwards SIGINT, SIGTERM,
 * SIGHUP, SIGUSR1 and SIGUSR2 to the ranks. Messages go to stderr. */
int tr_supervise(const struct tr_supervision *options);

/* Returns the number of cores that this process may use. */
int tr_supervisor_cores(void);

/* ---- members.c ----
 *
 * The ranks of one attempt: connections to their lifelines (src/ranks/lifeline.h), the processes of this host in
 * /proc, and shared memory that Open MPI does not remove. One thread uses one epoll, so that the cost of a heartbeat
 * does not depend on the number of ranks.
 */

typedef unsigned long long tr_start_time; /* field 22 of /proc/PID/stat */

struct tr_supervised_rank {
    int socket; /* -1: closed */
    bool known; /* the rank has sent hello; false: the peer may be another program */
    bool local; /* the process is on this host */
    bool bye;   /* the rank has sent bye */
    int status; /* exit status in the bye message */
    long rank, pid;
    tr_start_time start; /* distinguishes the process from a later one with the same pid */
    char host[128];
    double beat, broke;          /* times (tr_now()) of the last message and of the disconnection */
    long waits;                  /* seconds of the current wait in the last beat; 0: none */
    char line[TR_LIFELINE_LINE]; /* received text without a line feed so far: `filled` bytes */
    size_t filled;
};

struct tr_members {
    int listener, ready; /* listening socket; epoll descriptor of all sockets */
    int port;
    bool everywhere;      /* accept ranks of other hosts */
    char host[128];       /* name of this host */
    char token[33];       /* identifies the attempt (ranks/lifeline.h) */
    double period, limit; /* PERIOD and LIMIT of ranks/lifeline.h, in seconds */
    bool ending;          /* the attempt has failed: ranks that connect later are told to exit, too */
    struct tr_supervised_rank **member;
    size_t n, capacity;
    size_t known, byes,
        broken; /* number of ranks that are known, that have sent bye, that are disconnected */
    long size;  /* expected number of ranks; 0: not known yet */
    const struct tr_supervised_rank *dead; /* the first rank that disconnected without bye; NULL: none */
    struct tr_life_state farthest;         /* maximum of the progress of all ranks */
};

/* Opens a listening socket: on all interfaces if `everywhere`, else on the loopback interface. TR_ERR_SYSTEM. */
int tr_members_open(bool everywhere, double period, double limit, struct tr_members *members);
void tr_members_close(struct tr_members *members);

/* Forgets all ranks before the next attempt, and creates a new token. */
int tr_members_renew(struct tr_members *members);

/* Returns the value of TR_LIFELINE_VARIABLE for the ranks; free it with free(). */
int tr_members_address(const struct tr_members *members, char **address);

/* Receives all pending messages, and disconnects peers that do not send the token of this attempt. Does not block. */
int tr_members_receive(struct tr_members *members);

/* Returns a rank that has sent nothing for longer than the limit, or a rank of this host that has sent bye but is stopped, so that
 * it cannot exit. Returns NULL if there is no such rank. */
const struct tr_supervised_rank *tr_members_silent(const struct tr_members *members);

/* Returns the shortest current wait of all ranks in seconds if all ranks are connected and have reported a wait; 0 otherwise. */
long tr_members_waits(const struct tr_members *members);

/* Restarts the timeouts of all ranks. Call it after a time in which the supervisor itself did not receive messages. */
void tr_members_excuse(struct tr_members *members);

/* tr_members_tell_to_die() tells all connected ranks to exit immediately, tr_members_tell_signal() to deliver a signal. */
void tr_members_tell_to_die(struct tr_members *members);
void tr_members_tell_signal(const struct tr_members *members, int number);

/* Returns the number of ranks on this host that have not exited. kill: sends SIGKILL to these ranks. */
size_t tr_members_left(const struct tr_members *members, bool kill);

/* Processes of this host. */

enum tr_process_state { TR_PROCESS_NONE, TR_PROCESS_ENDED, TR_PROCESS_STOPPED, TR_PROCESS_RUNS };

/* Returns the state of a process. A later process with the same pid has another start time and counts as TR_PROCESS_NONE.
 *
 * @param [out] wait_status  status as of waitpid(), known once the process has closed its files; -1: unknown. May be NULL
 * @return TR_PROCESS_ENDED for a zombie
 */
enum tr_process_state tr_process_state(long pid, tr_start_time start, int *wait_status);

/* Returns whether a child of this process is stopped. (The pid of a child cannot be reused before waitpid().) */
bool tr_process_is_stopped(long pid);

/* Returns a stopped child of a process, or 0. */
long tr_process_stopped_child(long parent);

/* Sends SIGKILL to a process, but not to a later process with the same pid, which has another start time. */
void tr_process_kill(long pid, tr_start_time start);

/* Files in /dev/shm by which Open MPI shares memory: segments of ranks, and windows. */
struct tr_segments {
    char **path; /* paths and patterns of glob() */
    size_t n, capacity;
};

/* Adds the files of Open MPI in /dev/shm that a running process has mapped, and a pattern that matches all segments of its job. */
int tr_segments_find(long pid, struct tr_segments *segments);
void tr_segments_free(struct tr_segments *segments);

/* Cleans up after an mpirun that was killed, or whose ranks died while they created a window. Removes the files in `segments`, all
 * segments and windows of the same jobs, and the session folder of mpirun, as far as they belong to this user. */
void tr_segments_remove(const struct tr_segments *segments, long mpirun);

/* Removes files that MPI_Init creates to test shared memory, and that remain if it is killed meanwhile. Only files of this user. */
void tr_segments_remove_trials(void);

/* ---- mpirun.c ----
 *
 * mpirun as a child process. It has its own process group, so that signals of the terminal reach the supervisor
 * only, and it is terminated when the supervisor dies. The supervisor copies the output of mpirun and of the ranks,
 * unchanged as long as no rank has failed. After a failure it omits messages that follow from the failure: the text
 * of mpirun between two lines of dashes (a banner), and messages of Open MPI in other processes than the failed one.
 */

struct tr_relay { /* copies one stream of output */
    int from, to; /* file descriptors; from is -1 after the end of the input */
    bool filters; /* omits messages that follow from a failure */
    long first;   /* pid of the process that failed first; 0: unknown */
    bool in_banner;
    char chunk[16384]; /* bytes that were read and not yet passed on */
    ssize_t taken;     /* number of bytes in the chunk; -1: end of the input */
    double held;       /* time since which the chunk is held back (tr_now()); 0: not held back */
    double patience;   /* seconds for which a chunk with a line of dashes is held back at most */
    char line[4096];   /* if filters: the incomplete last line, `filled` bytes */
    size_t filled;
    char banner[2048]; /* the omitted banners, as one line */
    size_t banner_length;
    /* mpirun could not create its session folder, because another mpirun that ended has removed the parent folder */
    bool lost_folder;
};

struct tr_mpirun {
    pid_t pid; /* 0: none */
    bool ended;
    int wait_status; /* status as of waitpid(), if ended */
    struct tr_relay out, err;
};

/* Starts argv[0], which is searched for in PATH. TR_ERR_NO_INPUT if it cannot be executed. */
int tr_mpirun_start(const char *const argv[], struct tr_mpirun *mpirun);

/* Returns whether mpirun has ended. Does not block. */
bool tr_mpirun_is_over(struct tr_mpirun *mpirun);

/* Starts to omit messages that follow from a failure.
 *
 * @param [in] first  pid of the process that failed first; 0: unknown
 */
void tr_mpirun_filter(struct tr_mpirun *mpirun, long first);

/* Copies the rest of the output and closes the pipes. Call it after the end of mpirun. */
void tr_mpirun_close(struct tr_mpirun *mpirun);

/* Passes on n bytes, filtered if relay->filters. n = 0 at the end of the input: passes on an incomplete last line. */
void tr_relay_pass(struct tr_relay *relay, const char *text, size_t n);

/* tr_relay_take() reads the available bytes without blocking; tr_relay_give() passes them on, and closes `from` after the end of
 * the input. Between these two calls the supervisor checks whether a rank has died, because mpirun reports a death later than the
 * lifeline does. tr_relay_give() holds back a chunk with a line of dashes for relay->patience seconds: messages about ranks on
 * other hosts may arrive before the lifeline reports the death. */
void tr_relay_take(struct tr_relay *relay);
void tr_relay_give(struct tr_relay *relay);

/* Parses the report of mpirun about the first process that failed (Open MPI 4 and 5).
 *
 * @param [out] rank, signal, exit_code  -1 if the report does not contain it
 * @return false if there is no report
 */
bool tr_relay_blames(const struct tr_relay *relay, long *rank, int *signal, int *exit_code);

/* Returns whether mpirun has reported that it could not start its daemon on a host, or lost it. */
bool tr_relay_misses_daemon(const struct tr_relay *relay);

/* ---- failures (supervise.c) ----
 *
 * Failures of attempts: their description, and the decision whether to start the job again.
 */

enum tr_cause_kind {
    TR_CAUSE_NONE,   /* no failure */
    TR_CAUSE_SIGNAL, /* killed by a signal */
    TR_CAUSE_EXIT,   /* exited with a code */
    TR_CAUSE_SILENT, /* has sent no message for `number` seconds; may be stopped */
    TR_CAUSE_HOST,   /* mpirun could not start its daemon on a host, or lost it, before any rank started */
    TR_CAUSE_STUCK,  /* all ranks have waited for each other for `number` seconds */
    TR_CAUSE_GONE    /* ended, reason unknown */
};

struct tr_failure {
    enum tr_cause_kind kind;
    int number;              /* signal, exit code or seconds, depending on kind */
    long rank;               /* -1: unknown, or mpirun itself */
    long pid;                /* 0: unknown */
    bool mpirun;             /* mpirun failed, not a rank */
    bool stopped;            /* the process is stopped, for example by SIGSTOP */
    char host[128];          /* "": unknown */
    struct tr_life_state at; /* progress of the attempt when it failed */
    double epoch;            /* epoch of the failure; NaN: unknown */
};

/* Describes a failure: "rank 2 (pid 4711 on node7) was killed by SIGKILL in stage 2 at clock 37, epoch 4.62". */
void tr_failure_describe(const struct tr_failure *failure, char *text, size_t size);

/* Describes the lost work: "5 clocks since the checkpoint of clock 32 are lost", or "5 clocks are lost: no checkpoint yet". "" if
 * no clock had ended. */
void tr_failure_loss(const struct tr_failure *failure, char *text, size_t size);

/* Returns the exit code of a job that ends with this failure. */
int tr_failure_code(const struct tr_failure *failure);

/* Failures of all attempts of a job. Initial value: {.best = TR_LIFE_NOWHERE}. */
struct tr_history {
    int restarts; /* number of attempts after the first */
    int alike;    /* number of last failures of the same kind at the same clock */
    int idle;     /* number of last failures without progress between them */
    struct tr_failure last;
    struct tr_life_state best; /* maximum of the progress and of the newest checkpoint of all attempts */
};

/* Returns true if another attempt would fail in the same way: a rank exited with a code of Trireme, or a rank has reported a lack
 * of system resources and no attempt has reached training. */
bool tr_failure_is_final(const struct tr_failure *failure, const struct tr_history *before);

enum tr_decision { TR_START_AGAIN, TR_FAILS_ALIKE, TR_FAILS_TOO_OFTEN };

enum { TR_ALIKE = 3, TR_LONGEST_PAUSE = 60 };

/* Adds a failure that is not final and decides whether to start again.
 *
 * @param [out] pause  seconds before the next attempt: 0 after progress, else 1, 2, 4, ... up to TR_LONGEST_PAUSE
 * @return TR_FAILS_ALIKE: the same failure has occurred TR_ALIKE times in a row at the same clock, without a new checkpoint;
 *         TR_FAILS_TOO_OFTEN: more than max_restarts restarts; TR_START_AGAIN otherwise
 */
enum tr_decision tr_history_add(struct tr_history *history, const struct tr_failure *failure,
                                int max_restarts, double *pause);

#endif
