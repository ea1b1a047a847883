/* watch/ — trireme watch: a web server for the runs below some folders. It reads the files that runs have written and does not
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

#endif
