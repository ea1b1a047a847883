/* trireme watch: a web server that shows the runs below some folders. It reads the files that runs have written and does not
 * contact the jobs, so it also works for runs on other machines, ended runs, and runs of other users.
 *
 *   runs     the list of runs and their changes
 *   server   HTTP: access, the page, the list of runs, files of runs, and a stream of changes
 *   page/    HTML, CSS and JavaScript, which parse the files in the browser */
#ifndef TR_WATCH_H
#define TR_WATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct tr_watch_options {
    char **folder; /* the server shows the runs in these folders and their subfolders */
    size_t folders;
    const char *host; /* address to listen on */
    int port;         /* 0: the first free port of TR_WATCH_PORT .. TR_WATCH_PORT + TR_WATCH_PORTS - 1 */
};

enum { TR_WATCH_PORT = 8642, TR_WATCH_PORTS = 50 };

/* Prints the URL and serves until SIGINT or SIGTERM. Fails with TR_ERR_NO_INPUT if a folder cannot be read, TR_ERR_USAGE if the
 * host is unknown, TR_ERR_SYSTEM if the port is in use. */
int tr_watch(const struct tr_watch_options *options);

/* Starts the server in other threads, until tr_watch_stop(). options->host must stay valid until then. */
struct tr_watch_server;
int tr_watch_start(const struct tr_watch_options *options, struct tr_watch_server **server);
void tr_watch_stop(struct tr_watch_server *server);
int tr_watch_port(const struct tr_watch_server *server);
const char *tr_watch_token(const struct tr_watch_server *server);

/* ---- runs (runs.c) ----
 *
 * A scan updates the list of runs below the folders. Scans have ascending numbers; a run has the number of the scan that found its
 * last change. A request starts a scan if the last scan began at least a second ago, and at least ten times its duration. Scans and
 * later reads of files do not follow symbolic links, so nothing outside the folders is listed or read. */

/* Names of the files of a run that the page shows. A folder with one of the first three files is a run. */
enum { TR_WATCHED_FILES = 7 };
extern const char *const tr_watched_file[TR_WATCHED_FILES];

struct tr_watched_run {
    char *id;                        /* index in `folder`, and the path below that folder: "0/ctr", or "0" */
    char *path;                      /* absolute path of the run's folder */
    char *status;                    /* content of status.json, possibly incomplete; "": no such file */
    int64_t size[TR_WATCHED_FILES];  /* size of each file in bytes; -1: no such file */
    uint64_t mark[TR_WATCHED_FILES]; /* hash of each file's time, inode and size */
    uint64_t changed, seen;          /* numbers of the scans that last found a change, and the run */
    bool there;                      /* whether the last scan found the run */
};

struct tr_watched_runs {
    char *const *folder; /* absolute paths without symbolic links */
    size_t folders;
    struct tr_watched_run *run; /* sorted by id */
    size_t n, capacity;
    uint64_t scans; /* number of scans so far */
    double next;    /* earliest time of the next scan, as tr_now() */
    size_t entries; /* number of directory entries in the last scan */
    bool cut;       /* whether the last scan stopped because there were too many entries */
};

/* Scans the folders if the next scan is due. Skips unreadable folders. Fails with TR_ERR_SYSTEM if memory is exhausted. */
int tr_watched_scan(struct tr_watched_runs *runs);

/* Returns the run with this id, or NULL if the last scan did not find it. */
const struct tr_watched_run *tr_watched_find(const struct tr_watched_runs *runs, const char *id);

/* Returns the index of a file name in tr_watched_file, or -1. */
int tr_watched_file_number(const char *name);

/* Opens the file tr_watched_file[file] of a run for reading, if it is a regular file. Returns a descriptor, or -1. */
int tr_watched_open(const struct tr_watched_run *run, int file);

/* Writes a run as a JSON object on one line. A run that the last scan did not find has only its id. */
void tr_watched_write(FILE *file, const struct tr_watched_run *run);

void tr_watched_free(struct tr_watched_runs *runs);

#endif
