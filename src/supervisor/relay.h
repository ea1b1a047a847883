/* What the ranks write, on its way through the supervisor: unchanged as long as all is well. Once a rank has failed, lines
 * that come of that alone are left out: what mpirun has to say of it, between two lines of dashes, and what Open MPI says
 * in the name of other processes. */
#ifndef TR_SUPERVISOR_RELAY_H
#define TR_SUPERVISOR_RELAY_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

enum { TR_RELAY_CHUNK = 16384, TR_RELAY_LINE = 4096, TR_RELAY_HEARD = 2048 };

struct tr_relay {
    int from, to; /* file descriptors; from -1: nothing more comes */
    bool filters;
    long first; /* pid of the process that failed first; 0: not known */
    bool in_banner;
    char chunk[TR_RELAY_CHUNK]; /* taken … */
    ssize_t taken;              /* … so much; 0: nothing, -1: the end */
    double held;                /* since when it is held back, as tr_now(); 0: it is not */
    char line[TR_RELAY_LINE];
    size_t filled;
    char heard[TR_RELAY_HEARD]; /* what mpirun said, as one line */
    size_t heard_length;
};

/* Hands on text that has come; at the end of everything with n 0, which lets go of an unfinished line. */
void tr_relay_pass(struct tr_relay *relay, const char *text, size_t n);

/* Takes what is there without waiting, and … */
void tr_relay_take(struct tr_relay *relay);

/* … hands it on, closing `from` at its end. Between the two it is to be seen whether a rank has died: what mpirun says of
 * that it says later. What has a line of dashes is held back a little, and nothing more is taken meanwhile: ranks of other
 * hosts may be quicker to complain of a death than its news is to come here. */
void tr_relay_give(struct tr_relay *relay);
bool tr_relay_holds(const struct tr_relay *relay);

/* What mpirun says of the first process that failed, in either version's words: false if it has not said that. A number
 * that it does not tell is -1. */
bool tr_relay_blames(const struct tr_relay *relay, long *rank, int *signal, int *exit_code);

#endif
