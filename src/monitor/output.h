/* The folder of a run. */
#ifndef TR_MONITOR_OUTPUT_H
#define TR_MONITOR_OUTPUT_H

#include <stdbool.h>

/* Makes the folder of a new run and locks it for as long as this process lives, or until tr_output_release().
 * One that another run has locked is an error, which names that run's process and host. One that holds an
 * earlier run (job.yaml, status.json or checkpoints) is renamed to the first of <folder>.1, .2, … that is free; its
 * new name is put in *moved (to be freed, else NULL). An empty folder is taken as it is; any other is an error,
 * as it may be dear to somebody. */
int tr_output_prepare(const char *folder, char **moved, int *lock);

/* Takes the folder of a run that goes on: locked in the same way, and with all that is in it; made again where it is
 * gone. */
int tr_output_resume(const char *folder, int *lock);

/* Takes away the folder of a run that has come to nothing, of which there are at most the files that every run begins with, and
 * names the earlier one, which tr_output_prepare() has moved, as it was. Whether it could. */
bool tr_output_put_back(const char *folder, const char *moved);

/* Gives the earlier run its name back, and the one that has failed the name that tr_output_prepare() had moved it to. Whether
 * it could: not on all file systems. */
bool tr_output_exchange(const char *folder, const char *moved);

void tr_output_release(const char *folder, int lock); /* -1 is fine */

#endif
