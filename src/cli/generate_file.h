/* Made-up data into a file: by several threads at once, whole or not at all. */
#ifndef TR_CLI_GENERATE_FILE_H
#define TR_CLI_GENERATE_FILE_H

#include <stdint.h>
#include <stdio.h>

/* What is to be written: lines of units (users, documents, rows), any range of which can be made alone. */
struct tr_generate_job {
    const char *file;   /* its name; - is standard output, and what ends in .gz is compressed */
    const char *header; /* what comes before the lines, or NULL */
    const char *what;   /* what a line is, in the plural */
    uint64_t units;
    uint64_t lines;                                                           /* of all units, about */
    int (*write)(const void *state, uint64_t begin, uint64_t end, FILE *out); /* units begin to end - 1 */
    const void *state;
};

/* Writes the file and says so on stderr. It gets its name when it is complete. TR_ERR_NO_OUTPUT, TR_ERR_IO, or
 * what job->write says. */
int tr_generate_file(const struct tr_generate_job *job);

/* How many lines that would be, found by making them all and writing none. */
int tr_generate_count(const struct tr_generate_job *job, uint64_t *lines);

#endif
