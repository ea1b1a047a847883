/* Processes of this host, by what /proc says of them. A pid alone may be another process by now: with the time when it
 * started it cannot be. */
#ifndef TR_SUPERVISOR_PROCESS_H
#define TR_SUPERVISOR_PROCESS_H

#include <stdbool.h>
#include <stddef.h>

typedef unsigned long long tr_start_time; /* as /proc/PID/stat has it; 0: there is no such process */

/* That process, and not a later one, is there: running, stopped or, as a zombie, ended. */
bool tr_process_is_there(long pid, tr_start_time start);

/* … and has not ended. */
bool tr_process_lives(long pid, tr_start_time start);

/* … and is stopped, by a signal or by a debugger. */
bool tr_process_is_stopped(long pid, tr_start_time start);

/* How it ended, as waitpid() has it, though it is nobody's child here: known from the moment when its files are closed
 * until its parent has taken note. False: not known. */
bool tr_process_end(long pid, tr_start_time start, int *wait_status);

/* SIGKILL to that process and no other. */
void tr_process_kill(long pid, tr_start_time start);

/* ---- what it leaves behind when nobody cleans up ---- */

/* Paths below /dev/shm that the process has mapped and that were made by Open MPI, to be freed with their array (*n of
 * them); of a process that lives. What else lies there may be meant to stay. */
int tr_process_segments(long pid, char ***paths, size_t *n);

/* Removes them, and those of other ranks of their jobs, as far as they are still there and ours. */
void tr_segments_remove(char *const paths[], size_t n);
void tr_segments_free(char ***paths, size_t *n);

/* Removes the session folder of an mpirun that has ended without doing so: /tmp/ompi.<host>.<uid>/pid.<pid>, or what
 * later versions call it, in the folder for temporary files. */
void tr_session_remove(long mpirun);

#endif
