/* mpirun as a child: started with pipes between it and the terminal, in a process group of its own, so that what a
 * terminal sends to all is for the supervisor alone; ended when the supervisor dies. */
#ifndef TR_SUPERVISOR_LAUNCH_H
#define TR_SUPERVISOR_LAUNCH_H

#include <stdbool.h>
#include <sys/types.h>

#include "supervisor/relay.h"

struct tr_launch {
    pid_t pid; /* 0: none */
    bool ended;
    int wait_status; /* … how */
    struct tr_relay out, err;
};

/* argv[0] is looked for in PATH; TR_ERR_NO_INPUT if it cannot be run. */
int tr_launch_start(char *const argv[], struct tr_launch *launch);

/* Whether it has ended; never waits. */
bool tr_launch_is_over(struct tr_launch *launch);

/* To it, or to all of its group. */
void tr_launch_signal(const struct tr_launch *launch, int number, bool all);

/* After its end: passes on what is still in the pipes, and closes them. */
void tr_launch_close(struct tr_launch *launch);

#endif
