/* The folder of a run, and small files in it that are whole or not there. */
#ifndef TR_MONITOR_OUTPUT_H
#define TR_MONITOR_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>

/* Makes a folder with its parents; one that is there is fine. TR_ERR_NO_OUTPUT with the reason. */
int tr_output_make(const char *folder);

/* Makes the folder of a new run and locks it for as long as this process lives, or until tr_output_release().
 * One that another run has locked is an error, which names that run's process and host. One that holds an
 * earlier run (job.yaml, status.json or checkpoints) is renamed to the first of <folder>.1, .2, … that is free; its
 * new name is put in *moved (to be freed, else NULL). An empty folder is taken as it is; any other is an error,
 * as it may be dear to somebody. */
int tr_output_prepare(const char *folder, char **moved, int *lock);

/* Takes the folder of a run that goes on: locked in the same way, and with all that is in it; made again where it is
 * gone. */
int tr_output_resume(const char *folder, int *lock);

void tr_output_release(const char *folder, int lock); /* -1 is fine */

/* Writes folder/name through a temporary file, so that readers see the old text or the new one. Durable: it
 * is on the disk, not in memory, before its name is. On failure the old file stays: TR_ERR_NO_OUTPUT if the
 * file cannot be created, TR_ERR_IO if it cannot be written. */
int tr_output_replace(const char *folder, const char *name, const char *text, size_t length, bool durable);

/* Writes all of it: 0, or an errno. */
int tr_output_write(int fd, const char *text, size_t length);

/* Describes what the system said of the path, with the status that fits: a disk may be full before a byte is
 * written. */
int tr_output_failed(const char *path, const char *what, int error);

#endif
