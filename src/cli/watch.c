/* trireme watch: a web page for running and finished jobs (src/watch). */
#include "cli/cli.h"

#include <stddef.h>
#include <sys/stat.h>

#include "base/base.h"
#include "watch/watch.h"

#ifndef TR_WITH_WATCH
int tr_watch(const struct tr_watch_options *options)
{
    (void)options;
    return tr_fail(
        TR_ERR_USAGE,
        "watch: this trireme was built without libmicrohttpd: install libmicrohttpd-dev and build again");
}
#endif

struct watch_options {
    const char *host;
    long port;
};

static int watch_command(struct tr_arguments *arguments, void *given)
{
    static char runs[] = "runs", here[] = ".";
    const struct watch_options *options = given;
    struct stat seen;
    struct tr_watch_options o = {.folder = arguments->word,
                                 .folders = arguments->words,
                                 .host = options->host,
                                 .port = (int)options->port};
    if (o.folders == 0) o.folder[o.folders++] = stat(runs, &seen) == 0 ? runs : here;
    for (size_t i = 0; i < o.folders; i++)
        if (stat(o.folder[i], &seen) == 0 && !S_ISDIR(seen.st_mode))
            return tr_fail(TR_ERR_USAGE, "watch: %s: expected a folder", o.folder[i]);
    return tr_watch(&o);
}

static const struct tr_argument watch_arguments[] = {
    {"--port", TR_ARG_NUMBER, offsetof(struct watch_options, port), .least = 1, .most = 65535,
     .help = "the port; by default 8642, or the next free one"},
    {"--host", TR_ARG_TEXT, offsetof(struct watch_options, host), .value = "ADDRESS",
     .help = "the address to listen on. Use ssh -L, as printed, to reach the page from another machine; ssh "
             "also encrypts it"},
    {0}};

const struct tr_cli_command tr_watch_command = {
    .syntax = {.command = "watch", .expected = "folders", .options = watch_arguments},
    .brief = "show running and finished jobs as a web page",
    .usage = "trireme watch [FOLDER...] [OPTION...]",
    .about =
        "Serves a web page for the runs in these folders and below (default: runs, or the current folder): "
        "the state of each run, curves, ranks, the job, and comparisons. It only reads the files of the "
        "runs, so it can be started and stopped at any time, on any machine that has the folders.",
    .notes = "Access: the same user on this machine, which includes the user's ssh tunnels. Another user "
             "needs the token in the printed URL; with a --host of another address than loopback everybody "
             "needs it. Keep the token secret: it is new at each start.",
    .defaults = &(const struct watch_options){.host = "127.0.0.1"},
    .options_size = sizeof(struct watch_options),
    .run = watch_command,
};
