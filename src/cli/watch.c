/* trireme watch: a web page for running and finished jobs (src/watch). */
#include "cli/cli.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/base.h"
#include "cli/words.h"
#include "watch/watch.h"

static const char usage[] =
    "trireme watch [FOLDER...] [--port N] [--host ADDRESS]\n"
    "\n"
    "Serves a web page for the runs in these folders and below (default: runs, or the current folder): the\n"
    "state of each run, curves, ranks, the job, and comparisons. It only reads the files of the runs, so it\n"
    "can be started and stopped at any time, on any machine that has the folders.\n"
    "  --port N        default: 8642, or the next free port\n"
    "  --host ADDRESS  address to listen on; default: 127.0.0.1. Use ssh -L, as printed, to reach the page\n"
    "                  from another machine; ssh also encrypts it\n"
    "\n"
    "Access: the same user on this machine, which includes the user's ssh tunnels. Another user needs the\n"
    "token in the printed URL; with a --host of another address than loopback everybody needs it. Keep\n"
    "the token secret: it is new at each start.\n";

#ifndef TR_WITH_WATCH
int tr_watch(const struct tr_watch_options *options)
{
    (void)options;
    return tr_fail(
        TR_ERR_USAGE,
        "watch: this trireme was built without libmicrohttpd: install libmicrohttpd-dev and build again");
}
#endif

static int read_words(int argc, char **argv, struct tr_watch_options *o)
{
    for (int i = 0; i < argc; i++) {
        bool port = strcmp(argv[i], "--port") == 0, host = strcmp(argv[i], "--host") == 0;
        char *end = NULL;
        if (port || host) {
            const char *value = i + 1 < argc ? argv[++i] : "";
            long number = port ? strtol(value, &end, 10) : 1;
            if (!*value || (port && *end) || number < 1 || number > 65535)
                return tr_fail(TR_ERR_USAGE, "watch: expected %s after %s",
                               port ? "a number from 1 to 65535" : "an address", port ? "--port" : "--host");
            if (port) o->port = (int)number;
            else o->host = value;
        } else if (argv[i][0] == '-') {
            return tr_fail(TR_ERR_USAGE, "watch: unexpected %.40s: see trireme help watch", argv[i]);
        } else {
            o->folder[o->folders++] = argv[i];
        }
    }
    return TR_OK;
}

static int look_for_runs(struct tr_watch_options *o)
{
    static char runs[] = "runs", here[] = ".";
    struct stat seen;
    if (o->folders == 0) o->folder[o->folders++] = stat(runs, &seen) == 0 ? runs : here;
    for (size_t i = 0; i < o->folders; i++)
        if (stat(o->folder[i], &seen) == 0 && !S_ISDIR(seen.st_mode))
            return tr_fail(TR_ERR_USAGE, "watch: %s: expected a folder", o->folder[i]);
    return TR_OK;
}

int tr_watch_command(int argc, char **argv)
{
    struct tr_watch_options o = {.host = "127.0.0.1"};
    if (tr_wants_help(argc, argv)) {
        fputs(usage, stdout);
        return TR_OK;
    }
    int status = TR_NEW(&o.folder, (size_t)argc + 1);
    if (status == TR_OK) status = read_words(argc, argv, &o);
    if (status == TR_OK) status = look_for_runs(&o);
    if (status == TR_OK) status = tr_watch(&o);
    free(o.folder);
    return tr_complain(status);
}
