/* watch/: trireme watch: a web server for the runs below some folders. It reads the files that runs have written and does not
 * contact the jobs, so it also works for runs of other hosts, ended runs, and runs of other users.
 *
 *   runs     the list of runs and their changes
 *   server   HTTP: access, the page, the runs, their files, and a stream of changes
 *   page/    HTML, CSS and JavaScript, which parse the files in the browser
 */
#ifndef TR_WATCH_H
#define TR_WATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct tr_watch_options {
    char **folder; /* the runs in these folders and below are shown */
    size_t folders;
    const char *host; /* address to listen on */
    int port;         /* 0: TR_WATCH_PORT, or the first free one of the next TR_WATCH_PORTS */
};

enum { TR_WATCH_PORT = 8642, TR_WATCH_PORTS = 50 };

/* Prints the URL and serves until SIGINT or SIGTERM. TR_ERR_NO_INPUT: a folder cannot be read; TR_ERR_USAGE: no such host;
 * TR_ERR_SYSTEM: the port is in use. */
int tr_watch(const struct tr_watch_options *options);

/* The same server in threads of its own, until tr_watch_stop(). The options' host must stay valid until then. */
struct tr_watch_server;
int tr_watch_start(const struct tr_watch_options *options, struct tr_watch_server **server);
void tr_watch_stop(struct tr_watch_server *server);
int tr_watch_port(const struct tr_watch_server *server);
const char *tr_watch_token(const struct tr_watch_server *server);

/* ---- runs (runs.c) ----
 *
 * The list of runs below the folders, and the changes since an earlier scan. A scan takes place on request, at most once a second and
 * for at most a tenth of the time. Scans and later reads of files do not follow symbolic links, so nothing outside the
 * folders is listed or read.
 */

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
