/* Which runs lie below some folders, and what has changed since somebody looked. Looks again when asked, at most once a
 * second and for at most a tenth of the time. Folders behind symbolic links are left out, so that no path leads out. */
#ifndef TR_WATCH_RUNS_H
#define TR_WATCH_RUNS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Files of a run that are shown; a folder that has one of the first three is a run. */
enum { TR_WATCHED_FILES = 7 };
extern const char *const tr_watched_file[TR_WATCHED_FILES];

struct tr_watched_run {
    char *id;                        /* number of the folder, and the path below it: "0/ctr", or "0" */
    char *path;                      /* of its folder */
    char *status;                    /* what stands in status.json, whole or torn; "" where it is not there */
    int64_t size[TR_WATCHED_FILES];  /* bytes; -1: no such file */
    uint64_t mark[TR_WATCHED_FILES]; /* differs when the file does */
    uint64_t changed, seen;          /* numbers of the looks that saw the last change, and the run */
    bool there;                      /* as of the last look */
};

struct tr_watched_runs {
    char *const *folder; /* absolute */
    size_t folders;
    struct tr_watched_run *run; /* by id */
    size_t n, capacity;
    uint64_t looks;
    double next;    /* when to look again, as tr_now() */
    size_t entries; /* that the last look came by */
    bool cut;       /* there are more than it may */
};

/* Looks, if it is time. TR_ERR_SYSTEM: no memory; what cannot be read is left out. */
int tr_watched_look(struct tr_watched_runs *runs);

/* The run with this id that is there, or NULL. */
const struct tr_watched_run *tr_watched_find(const struct tr_watched_runs *runs, const char *id);

/* Which of the files that are shown has this name; -1: none. */
int tr_watched_file_number(const char *name);

/* Opens one of its files to be read, if it is an ordinary one: a descriptor, or -1. */
int tr_watched_open(const struct tr_watched_run *run, int file);

/* Writes it as an object of JSON, on one line. */
void tr_watched_write(FILE *file, const struct tr_watched_run *run);

void tr_watched_free(struct tr_watched_runs *runs);

#endif
