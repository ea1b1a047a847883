/* What the programs share that fuzz readers of files: the input as a file, and its lines. */
#ifndef TR_FUZZ_FILES_H
#define TR_FUZZ_FILES_H

#include <sys/mman.h>
#include <unistd.h>

#include "data/input.h"
#include "fuzz.h"

/* A file in memory of these bytes, which goes when *fd is closed. */
static inline void open_bytes(const uint8_t *data, size_t n, int *fd, struct tr_files *files)
{
    char path[64];
    *fd = memfd_create("fuzz", 0);
    DEMAND(*fd >= 0 && write(*fd, data, n) == (ssize_t)n);
    snprintf(path, sizeof path, "/proc/self/fd/%d", *fd);
    DEMAND(tr_files_open((char *[]){path}, 1, files) == TR_OK);
}

/* A copy of the line that begins at *at, without its end, to be freed; NULL behind the last. Steps to the next. */
static inline char *copy_line(const uint8_t *data, size_t n, size_t *at)
{
    if (*at >= n) return NULL;
    const uint8_t *begin = data + *at, *newline = memchr(begin, '\n', n - *at);
    size_t length = newline ? (size_t)(newline - begin) : n - *at;
    char *line = strndup((const char *)begin, length);
    DEMAND(line);
    *at += length + 1;
    return line;
}

#endif
