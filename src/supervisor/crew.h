/* Who is there: the ranks of one start of the job, as they say it themselves through their lifelines
 * (src/ranks/lifeline.h). One thread, one epoll; a beat costs the same however many ranks there are. */
#ifndef TR_SUPERVISOR_CREW_H
#define TR_SUPERVISOR_CREW_H

#include <stdbool.h>
#include <stddef.h>

#include "ranks/lifeline.h"
#include "supervisor/process.h"

struct tr_member {
    int socket; /* -1: broken */
    bool known; /* it has said hello */
    bool local; /* its process can be seen from here */
    bool bye;   /* … with this status */
    int status;
    long rank, pid;
    tr_start_time start;
    char host[128];
    double since, beat; /* when it came, and was heard last: as tr_now() */
    double broke;       /* when its line broke; 0 before */
    struct tr_life_state state;
    long waits; /* seconds for which it has waited in vain */
    char line[TR_LIFELINE_LINE];
    size_t filled;
};

struct tr_crew {
    int listener, ready; /* ready: an epoll of all sockets, to be polled for */
    int port;
    char host[128]; /* this one */
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
int tr_crew_open(bool everywhere, double period, double limit, struct tr_crew *crew);
void tr_crew_close(struct tr_crew *crew);

/* Forgets everybody, for a new start of the job, whose ranks have another token. */
int tr_crew_renew(struct tr_crew *crew);

/* What the ranks are to find in TR_LIFELINE_VARIABLE; to be freed. */
int tr_crew_address(const struct tr_crew *crew, char **address);

/* Takes what has come, and turns away strangers; never waits. */
int tr_crew_turn(struct tr_crew *crew);

/* One that was not heard of for longer than the limit, or NULL. */
const struct tr_member *tr_crew_silent(const struct tr_crew *crew);

/* All ranks are there and have lost patience, whatever they wait for: for so many seconds at least; 0: not so. */
long tr_crew_waits(const struct tr_crew *crew);

/* Nobody is blamed for the time until now: it was the supervisor that did not listen. */
void tr_crew_excuse(struct tr_crew *crew);

/* Lines to all whose lines hold: to end at once; to do as if they had got a signal. */
void tr_crew_tell_to_die(struct tr_crew *crew);
void tr_crew_tell_signal(const struct tr_crew *crew, int number);

/* Local processes that have not ended; `kill`: they are killed, too. */
size_t tr_crew_left(const struct tr_crew *crew, bool kill);

/* Those known whose lines hold. */
static inline size_t tr_crew_connected(const struct tr_crew *crew)
{
    return crew->known - crew->broken;
}

#endif
