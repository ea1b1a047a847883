/* The terminal that shows what this process writes, if there is one: also at the other end of mpirun's pipe. */
#ifndef TR_TERMINAL_H
#define TR_TERMINAL_H

#include <stdbool.h>
#include <stdio.h>

/* Whether a person watches: true if the stream is a terminal; or a pipe to an mpirun on this host that writes to one,
 * which is where it copies what its ranks write. */
bool tr_terminal_shows(FILE *out);

/* How wide that is: as COLUMNS in the environment says it, or the terminal; 80 if it does not; otherwise: where there is
 * none. */
int tr_terminal_columns(FILE *out, int otherwise);

#endif
