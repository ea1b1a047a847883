/* The list of runs below the folders that the user gave, and the changes since an earlier scan. A scan takes place on request, at
 * most once a second and for at most a tenth of the time. Neither the scan nor a later opening of a file follows symbolic
 * links, so nothing outside the folders is listed or read. */
#ifndef TR_WATCH_RUNS_H
#define TR_WATCH_RUNS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* The files of a run that the page shows. A folder that has one of the first three is a run. */
enum { TR_WATCHED_FILES = 7 };
extern const char *const tr_watched_file[TR_WATCHED_FILES];

struct tr_watched_run {
    char *id;                        /* index of the given folder, and the path below it: "0/ctr", or "0" */
    char *path;                      /* absolute path of the run's folder */
    char *status;                    /* content of status.json, possibly incomplete; "" without the file */
    int64_t size[TR_WATCHED_FILES];  /* bytes; -1: no such file */
    uint64_t mark[TR_WATCHED_FILES]; /* changes when the file changes */
    uint64_t changed, seen;          /* numbers of the scans that found the last change, and the run */
    bool there;                      /* the last scan found it */
};

struct tr_watched_runs {
    char *const *folder; /* absolute paths without symbolic links */
    size_t folders;
    struct tr_watched_run *run; /* sorted by id */
    size_t n, capacity;
    uint64_t scans; /* number of scans so far */
    double next;    /* earliest time of the next scan, as tr_now() */
    size_t entries; /* number of directory entries in the last scan */
    bool cut;       /* the last scan stopped at the maximum number of entries */
};

/* Scans the folders if the next scan is due. Skips unreadable folders. TR_ERR_SYSTEM: no memory. */
int tr_watched_scan(struct tr_watched_runs *runs);

/* The run with this id that the last scan found, or NULL. */
const struct tr_watched_run *tr_watched_find(const struct tr_watched_runs *runs, const char *id);

/* Index of the file name in tr_watched_file; -1 if it is not there. */
int tr_watched_file_number(const char *name);

/* Opens a regular file of the run for reading. Returns a descriptor, or -1. */
int tr_watched_open(const struct tr_watched_run *run, int file);

/* Writes the run as a JSON object on one line. */
void tr_watched_write(FILE *file, const struct tr_watched_run *run);

void tr_watched_free(struct tr_watched_runs *runs);

#endif
