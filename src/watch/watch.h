/* watch/ — a web page for the runs below some folders, as they lie there: trireme watch. It reads files that runs have
 * written and asks nothing of the jobs, so it works for those that run elsewhere, have ended, or are somebody else's.
 *
 *   runs     which runs there are, and which have changed
 *   server   HTTP: the page, the runs, their files as they are, and a stream of what changes
 *   page/    what the browser gets: HTML, CSS and JavaScript, which take the files apart
 */
#ifndef TR_WATCH_H
#define TR_WATCH_H

#include <stdbool.h>
#include <stddef.h>

struct tr_watch_options {
    char **folder; /* where to look for runs, and below */
    size_t folders;
    const char *host; /* to listen at */
    int port;         /* 0: TR_WATCH_PORT or the first free one of the next TR_WATCH_PORTS */
};

enum { TR_WATCH_PORT = 8642, TR_WATCH_PORTS = 50 };

/* Serves until SIGINT or SIGTERM; prints where. TR_ERR_NO_INPUT: a folder is not there; TR_ERR_SYSTEM: the port is not free. */
int tr_watch(const struct tr_watch_options *options);

#endif
