/* mpirun as a child process. It has its own process group, so that signals of the terminal reach the supervisor only, and it is
 * terminated when the supervisor dies. The supervisor copies the output of mpirun and of the ranks, unchanged as long as no rank
 * has failed. After a failure it omits messages that follow from the failure: the text of mpirun between two lines of dashes,
 * and messages of Open MPI in other processes. */
#ifndef TR_SUPERVISOR_MPIRUN_H
#define TR_SUPERVISOR_MPIRUN_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct tr_relay {
    int from, to; /* file descriptors; from is -1 after the end of the input */
    bool filters;
    long first; /* pid of the process that failed first; 0: unknown */
    bool in_banner;
    char chunk[16384]; /* bytes that were read and not yet passed on */
    ssize_t taken;     /* their number; 0: none, -1: end of the input */
    double held;       /* time since which the chunk is held back (tr_now()); 0: not held back */
    double patience;   /* seconds for which a chunk with a line of dashes is held back at most */
    char line[4096];
    size_t filled;
    char banner[2048]; /* text of mpirun between the lines of dashes, as one line */
    size_t banner_length;
};

struct tr_mpirun {
    pid_t pid; /* 0: none */
    bool ended;
    int wait_status; /* if ended */
    struct tr_relay out, err;
};

/* Starts argv[0], which is searched for in PATH. TR_ERR_NO_INPUT if it cannot be executed. */
int tr_mpirun_start(const char *const argv[], struct tr_mpirun *mpirun);

/* Returns whether it has ended. Does not block. */
bool tr_mpirun_is_over(struct tr_mpirun *mpirun);

/* Starts to omit messages that follow from a failure.
 *
 * @param [in] first  pid of the process that failed first; 0: unknown
 */
void tr_mpirun_filter(struct tr_mpirun *mpirun, long first);

/* Copies the rest of the output and closes the pipes. Call it after the end of mpirun. */
void tr_mpirun_close(struct tr_mpirun *mpirun);

/* Filters n bytes and passes them on. n = 0 at the end: passes on an incomplete last line. */
void tr_relay_pass(struct tr_relay *relay, const char *text, size_t n);

/* tr_relay_take() reads the available bytes without blocking; tr_relay_give() passes them on, and closes `from` at its end. In
 * between, the supervisor checks whether a rank has died, because mpirun reports a death later than the lifeline does. Chunks
 * with a line of dashes, and chunks that follow them, are held back: messages of ranks on other hosts may arrive before the
 * lifeline reports the death. */
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

#endif
