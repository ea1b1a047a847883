/* Where predictions go: standard output, or a file that has its name only when it is complete; and what is said beside
 * them. */
#ifndef TR_CLI_PRINTOUT_H
#define TR_CLI_PRINTOUT_H

#include <stdint.h>
#include <stdio.h>

struct tr_printout {
    FILE *file;
    const char *path; /* NULL: standard output */
    char *part;       /* its name until it is complete; NULL: written in place */
};

/* path: NULL for standard output; kept, not copied. What is there and no regular file, /dev/null say, is written in
 * place. TR_ERR_NO_OUTPUT. */
int tr_printout_open(const char *path, struct tr_printout *printout);

/* For who has written in vain: describes errno. */
int tr_printout_failed(const struct tr_printout *printout);

/* Ends the output: complete (status TR_OK), or not, and then nothing is left of it. Returns the status, or TR_ERR_IO. */
int tr_printout_close(struct tr_printout *printout, int status);

/* Notes how many values belong to "features", say, that the model does not know; nothing if there are none. */
void tr_note_unknown(const char *of, uint64_t values);

#endif
