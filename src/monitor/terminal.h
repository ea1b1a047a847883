/* Whether a person watches a stream. */
#ifndef TR_MONITOR_TERMINAL_H
#define TR_MONITOR_TERMINAL_H

#include <stdbool.h>
#include <stdio.h>

/* True if the stream is a terminal; or a pipe to an mpirun on this host that writes to one, which is where it
 * copies what its ranks write. */
bool tr_terminal_shows(FILE *out);

#endif
