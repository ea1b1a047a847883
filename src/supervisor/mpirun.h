/* mpirun as a child, in a process group of its own, so that what a terminal sends to all is for the supervisor alone;
 * ended when the supervisor dies. What it and the ranks write goes through the supervisor: unchanged as long as all is
 * well. Once a rank has failed, lines that come of that alone are left out: what mpirun has to say of it, between two
 * lines of dashes, and what Open MPI says in the name of other processes. */
#ifndef TR_SUPERVISOR_MPIRUN_H
#define TR_SUPERVISOR_MPIRUN_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct tr_relay {
    int from, to; /* file descriptors; from -1: nothing more comes */
    bool filters;
    long first; /* pid of the process that failed first; 0: not known */
    bool in_banner;
    char chunk[16384]; /* taken … */
    ssize_t taken;     /* … so much, and not given; 0: nothing, -1: the end */
    double held;       /* since when it is held back, as tr_now(); 0: it is not */
    double patience;   /* … for so many seconds at most, where it has a line of dashes */
    char line[4096];
    size_t filled;
    char banner[2048]; /* what mpirun said between its dashes, as one line */
    size_t banner_length;
};

struct tr_mpirun {
    pid_t pid; /* 0: none */
    bool ended;
    int wait_status; /* … how */
    struct tr_relay out, err;
};

/* argv[0] is looked for in PATH; TR_ERR_NO_INPUT if it cannot be run. */
int tr_mpirun_start(const char *const argv[], struct tr_mpirun *mpirun);

/* Whether it has ended; never waits. */
bool tr_mpirun_is_over(struct tr_mpirun *mpirun);

/* From now on what comes of a failure is left out; `first`: pid of the process that failed first, 0: not known. */
void tr_mpirun_filter(struct tr_mpirun *mpirun, long first);

/* After its end: passes on what is still in the pipes, and closes them. */
void tr_mpirun_close(struct tr_mpirun *mpirun);

/* Hands on text that has come; at the end of everything with n 0, which lets go of an unfinished line. */
void tr_relay_pass(struct tr_relay *relay, const char *text, size_t n);

/* take: reads what is there without waiting. give: hands it on, closing `from` at its end. Between the two the supervisor
 * looks whether a rank has died: what mpirun says of that it says later. What has a line of dashes is held back, and what
 * is taken meanwhile, too: ranks of other hosts may be quicker to complain of a death than its news is. */
void tr_relay_take(struct tr_relay *relay);
void tr_relay_give(struct tr_relay *relay);

/* What mpirun says of the first process that failed, in either version's words: false if it has not said that. A number
 * that it does not tell is -1. */
bool tr_relay_blames(const struct tr_relay *relay, long *rank, int *signal, int *exit_code);

/* Whether mpirun says between its dashes, held back or left out, that it could not start its daemon on a host or lost it. */
bool tr_relay_misses_daemon(const struct tr_relay *relay);

#endif
