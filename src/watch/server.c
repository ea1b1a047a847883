/* Who may ask: a browser of this user on this machine, also at the end of an ssh tunnel. The page of another site can make a
 * browser ask, too, and with a name of its own that it lets point at this machine it would even get to read the answer: so
 * the name that was asked for has to be an address, localhost or this machine's. On a machine that many share, others can
 * connect to 127.0.0.1 as well: the kernel says whose a connection is. Only GET and HEAD are answered, and only with files
 * that runs.c has found. */
#define _GNU_SOURCE
#include "watch/watch.h"

#include <arpa/inet.h>
#include <errno.h>
#include <limits.h>
#include <microhttpd.h>
#include <netdb.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/base.h"
#include "monitor/json.h"
#include "watch/runs.h"
#include "page.h"

enum { MOST_CONNECTIONS = 200, MOST_STREAMS = 100, MOST_OF_FILE = 8 << 20 };

static const char rules[] = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
                            "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

struct server {
    struct tr_watched_runs runs;
    pthread_mutex_t lock; /* of the runs */
    atomic_int streams;
    atomic_bool ends;
    bool foreign; /* other machines may ask, and so everybody */
    const char *host;
    char name[256]; /* of this machine */
};

typedef struct MHD_Connection connection;

/* ---- answers ---- */

static enum MHD_Result send_response(connection *c, unsigned code, const char *type, struct MHD_Response *r)
{
    if (!r) return MHD_NO;
    MHD_add_response_header(r, "Content-Type", type);
    MHD_add_response_header(r, "Cache-Control", "no-store");
    MHD_add_response_header(r, "X-Content-Type-Options", "nosniff");
    MHD_add_response_header(r, "Referrer-Policy", "no-referrer");
    MHD_add_response_header(r, "Content-Security-Policy", rules);
    enum MHD_Result result = MHD_queue_response(c, code, r);
    MHD_destroy_response(r);
    return result;
}

static enum MHD_Result send_text(connection *c, unsigned code, const char *text)
{
    return send_response(
        c, code, "text/plain; charset=utf-8",
        MHD_create_response_from_buffer(strlen(text), (void *)(uintptr_t)text, MHD_RESPMEM_MUST_COPY));
}

/* Of the runs: takes a look if it is time. */
static void lock_runs(struct server *s)
{
    pthread_mutex_lock(&s->lock);
    if (tr_watched_look(&s->runs) != TR_OK) fprintf(stderr, "trireme: %s\n", tr_error_text());
}

static enum MHD_Result send_runs(struct server *s, connection *c)
{
    char *text = NULL;
    size_t length = 0;
    FILE *file = open_memstream(&text, &length);
    if (!file) return MHD_NO;
    lock_runs(s);
    fprintf(file, "{\"look\": %llu, \"cut\": %s, \"folders\": [", (unsigned long long)s->runs.looks,
            s->runs.cut ? "true" : "false");
    for (size_t i = 0; i < s->runs.folders; i++) {
        if (i > 0) fputs(", ", file);
        tr_json_text(file, s->runs.folder[i]);
    }
    const char *comma = "";
    fputs("], \"runs\": [", file);
    for (size_t i = 0; i < s->runs.n; i++) {
        if (!s->runs.run[i].there) continue;
        fputs(comma, file);
        tr_watched_write(file, &s->runs.run[i]);
        comma = ",\n";
    }
    fputs("]}\n", file);
    pthread_mutex_unlock(&s->lock);
    if (fclose(file) != 0) return free(text), MHD_NO;
    return send_response(c, MHD_HTTP_OK, "application/json",
                         MHD_create_response_from_buffer(length, text, MHD_RESPMEM_MUST_FREE));
}

/* ?from=N: what is behind the first N bytes; from=-N: the last N. */
static enum MHD_Result send_file(connection *c, int fd)
{
    const char *from = MHD_lookup_connection_value(c, MHD_GET_ARGUMENT_KIND, "from");
    int64_t size = lseek(fd, 0, SEEK_END), at = from ? strtoll(from, NULL, 10) : 0;
    char *text = NULL;
    if (at < 0) at = size + at > 0 ? size + at : 0;
    int64_t length = at < size ? size - at : 0;
    if (length > MOST_OF_FILE) length = MOST_OF_FILE;
    if (TR_NEW(&text, (size_t)length + 1) != TR_OK) return MHD_NO;
    ssize_t got = pread(fd, text, (size_t)length, at);
    if (got < 0) return free(text), send_text(c, MHD_HTTP_FORBIDDEN, "this file cannot be read\n");
    return send_response(c, MHD_HTTP_OK, "text/plain; charset=utf-8",
                         MHD_create_response_from_buffer((size_t)got, text, MHD_RESPMEM_MUST_FREE));
}

/* /run/ID/FILE */
static enum MHD_Result send_file_of_run(struct server *s, connection *c, const char *path)
{
    char id[PATH_MAX];
    const char *slash = strrchr(path, '/');
    int file = slash ? tr_watched_file_number(slash + 1) : -1, fd = -1;
    if (file < 0) return send_text(c, MHD_HTTP_NOT_FOUND, "no such page\n");
    snprintf(id, sizeof id, "%.*s", (int)(slash - path), path);
    lock_runs(s);
    const struct tr_watched_run *run = tr_watched_find(&s->runs, id);
    if (run) fd = tr_watched_open(run, file);
    pthread_mutex_unlock(&s->lock);
    if (!run) return send_text(c, MHD_HTTP_NOT_FOUND, "no such run\n");
    if (fd < 0) return send_text(c, MHD_HTTP_NOT_FOUND, "this run has no such file\n");
    enum MHD_Result result = send_file(c, fd);
    close(fd);
    return result;
}

/* ---- the stream of what changes ---- */

struct stream {
    struct server *server;
    uint64_t look;  /* what came after it has not been told */
    double written; /* when something was last, as tr_now() */
    char *text;     /* still to be sent */
    size_t length, at;
};

static bool render_changes(struct stream *s)
{
    struct server *server = s->server;
    FILE *file = open_memstream(&s->text, &s->length);
    if (!file) return false;
    lock_runs(server);
    for (size_t i = 0; i < server->runs.n; i++) {
        if (server->runs.run[i].changed <= s->look) continue;
        fprintf(file, "id: %llu\ndata: ", (unsigned long long)server->runs.looks);
        tr_watched_write(file, &server->runs.run[i]);
        fputs("\n\n", file);
    }
    s->look = server->runs.looks;
    pthread_mutex_unlock(&server->lock);
    if (s->written == 0 || tr_now() - s->written > 10) fputs(": all is well\n\n", file);
    s->at = 0;
    return fclose(file) == 0;
}

/* Waits until there is something. */
static ssize_t read_stream(void *what, uint64_t position, char *to, size_t room)
{
    struct stream *s = what;
    (void)position;
    while (s->at == s->length) {
        if (s->written > 0) tr_sleep(0.25);
        if (s->server->ends) return MHD_CONTENT_READER_END_OF_STREAM;
        free(s->text);
        s->text = NULL;
        s->length = s->at = 0;
        if (!render_changes(s)) return MHD_CONTENT_READER_END_WITH_ERROR;
    }
    s->written = tr_now();
    size_t n = tr_min_size(room, s->length - s->at);
    memcpy(to, s->text + s->at, n);
    s->at += n;
    return (ssize_t)n;
}

static void end_stream(void *what)
{
    struct stream *s = what;
    s->server->streams--;
    free(s->text);
    free(s);
}

static enum MHD_Result send_stream(struct server *server, connection *c)
{
    const char *since = MHD_lookup_connection_value(c, MHD_GET_ARGUMENT_KIND, "since");
    const char *last = MHD_lookup_connection_value(c, MHD_HEADER_KIND, "Last-Event-ID");
    struct stream *s;
    if (last) since = last; /* the browser comes again */
    if (atomic_fetch_add(&server->streams, 1) >= MOST_STREAMS) {
        server->streams--;
        return send_text(c, MHD_HTTP_SERVICE_UNAVAILABLE, "too many look at this page\n");
    }
    if (TR_NEW(&s, 1) != TR_OK) return MHD_NO;
    *s = (struct stream){.server = server, .look = since ? strtoull(since, NULL, 10) : 0};
    return send_response(
        c, MHD_HTTP_OK, "text/event-stream",
        MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, 16384, read_stream, s, end_stream));
}

/* ---- questions ---- */

static bool is_address(const char *text)
{
    unsigned char address[sizeof(struct in6_addr)];
    return inet_pton(AF_INET, text, address) == 1 || inet_pton(AF_INET6, text, address) == 1;
}

/* Of a connection within this machine: whether this user, or root, made it, as /proc/net/tcp says. */
static bool is_own(const struct server *s, connection *c)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(c, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    if (s->foreign || !info || info->client_addr->sa_family != AF_INET) return true;
    const struct sockaddr_in *peer = (const struct sockaddr_in *)(const void *)info->client_addr;
    FILE *file = fopen("/proc/net/tcp", "re");
    bool own = true;
    unsigned address, port, uid;
    for (char line[256]; file && fgets(line, sizeof line, file);)
        if (sscanf(line, " %*d: %x:%x %*x:%*x 01 %*x:%*x %*x:%*x %*x %u", &address, &port, &uid) == 3 &&
            address == peer->sin_addr.s_addr && port == ntohs(peer->sin_port))
            own = uid == 0 || uid == getuid();
    if (file) fclose(file);
    return own;
}

/* Host: an address, localhost, or a name of this machine. */
static bool knows_host(const struct server *s, const char *asked)
{
    char host[256];
    bool bracket = asked && *asked == '[';
    if (!asked || strlen(asked) >= sizeof host) return false;
    strcpy(host, asked + bracket);
    char *end = bracket ? strchr(host, ']') : strrchr(host, ':');
    if (end) *end = '\0';
    return is_address(host) || strcasecmp(host, "localhost") == 0 || strcasecmp(host, s->host) == 0 ||
           (s->foreign && strcasecmp(host, s->name) == 0);
}

static enum MHD_Result send_page(connection *c, const char *path)
{
    for (size_t i = 0; i < sizeof pages / sizeof *pages; i++)
        if (strcmp(path, pages[i].path) == 0)
            return send_response(c, MHD_HTTP_OK, pages[i].type,
                                 MHD_create_response_from_buffer(pages[i].length,
                                                                 (void *)(uintptr_t)pages[i].text,
                                                                 MHD_RESPMEM_PERSISTENT));
    return send_text(c, MHD_HTTP_NOT_FOUND, "no such page\n");
}

static enum MHD_Result answer(void *what, connection *c, const char *path, const char *method,
                              const char *version, const char *upload, size_t *upload_size, void **state)
{
    struct server *s = what;
    (void)version, (void)upload, (void)upload_size, (void)state;
    if (!knows_host(s, MHD_lookup_connection_value(c, MHD_HEADER_KIND, "Host")))
        return send_text(c, MHD_HTTP_FORBIDDEN, "ask for this page by an address or as localhost\n");
    if (!is_own(s, c)) return send_text(c, MHD_HTTP_FORBIDDEN, "this page is another user's\n");
    if (strcmp(method, "GET") != 0 && strcmp(method, "HEAD") != 0)
        return send_text(c, MHD_HTTP_METHOD_NOT_ALLOWED, "this page is to be read only\n");
    if (strcmp(path, "/runs") == 0) return send_runs(s, c);
    if (strcmp(path, "/events") == 0) return send_stream(s, c);
    if (strncmp(path, "/run/", 5) == 0) return send_file_of_run(s, c, path + 5);
    return send_page(c, path);
}

/* ---- listening ---- */

static int open_port(const struct addrinfo *a, int port)
{
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } address;
    int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0), yes = 1;
    if (fd < 0) return -1;
    memcpy(&address, a->ai_addr, a->ai_addrlen);
    if (a->ai_family == AF_INET) address.v4.sin_port = htons((uint16_t)port);
    else address.v6.sin6_port = htons((uint16_t)port);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (bind(fd, &address.any, a->ai_addrlen) == 0 && listen(fd, 64) == 0) return fd;
    int error = errno;
    close(fd);
    errno = error;
    return -1;
}

static bool is_loopback(const struct addrinfo *a)
{
    if (a->ai_family == AF_INET6)
        return IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)(const void *)a->ai_addr)->sin6_addr);
    return *(const unsigned char *)&((const struct sockaddr_in *)(const void *)a->ai_addr)->sin_addr == 127;
}

static int listen_at(struct server *s, const struct tr_watch_options *o, int *fd, int *port)
{
    struct addrinfo *a, hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    int error = getaddrinfo(o->host, NULL, &hints, &a);
    if (error) return tr_fail(TR_ERR_USAGE, "watch: --host %s: %s", o->host, gai_strerror(error));
    int first = o->port ? o->port : TR_WATCH_PORT, ports = o->port ? 1 : TR_WATCH_PORTS;
    s->foreign = !is_loopback(a);
    *fd = -1;
    for (int i = 0; i < ports && *fd < 0 && (i == 0 || errno == EADDRINUSE); i++)
        *fd = open_port(a, *port = first + i);
    freeaddrinfo(a);
    if (*fd >= 0) return TR_OK;
    return tr_fail(TR_ERR_SYSTEM, "watch: port %d at %s: %s%s", *port, o->host, strerror(errno),
                   errno == EADDRINUSE && o->port ? "; without --port a free one is found" : "");
}

static void say_where(const struct server *s, const struct tr_watch_options *o, int port)
{
    const char *user = getenv("USER");
    bool six = strchr(o->host, ':') != NULL;
    printf("watching:      ");
    for (size_t i = 0; i < s->runs.folders; i++) printf("%s%s", i ? ", " : "", s->runs.folder[i]);
    printf("\nopen:          http://%s%s%s:%d/\n", six ? "[" : "", s->foreign ? s->name : o->host,
           six ? "]" : "", port);
    if (s->foreign) printf("note:          whoever reaches this machine can read it\n");
    else
        printf("from afar:     ssh -N -L %d:%s:%d %s%s%s, then open http://localhost:%d/\n", port, o->host,
               port, user ? user : "", user ? "@" : "", s->name, port);
    printf("to end:        Ctrl-C\n");
    fflush(stdout);
}

static int serve(struct server *s, const struct tr_watch_options *o)
{
    int fd = -1, port = 0, number;
    sigset_t end;
    TR_TRY(listen_at(s, o, &fd, &port));
    sigemptyset(&end);
    sigaddset(&end, SIGINT);
    sigaddset(&end, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &end, NULL);
    signal(SIGPIPE, SIG_IGN);
    struct MHD_Daemon *daemon =
        MHD_start_daemon(MHD_USE_THREAD_PER_CONNECTION | MHD_USE_INTERNAL_POLLING_THREAD, (uint16_t)port,
                         NULL, NULL, answer, s, MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_CONNECTION_LIMIT,
                         (unsigned)MOST_CONNECTIONS, MHD_OPTION_CONNECTION_TIMEOUT, 30u, MHD_OPTION_END);
    if (!daemon) {
        close(fd);
        return tr_fail(TR_ERR_SYSTEM, "watch: the server cannot be started");
    }
    say_where(s, o, port);
    sigwait(&end, &number);
    s->ends = true;
    MHD_stop_daemon(daemon);
    return TR_OK;
}

int tr_watch(const struct tr_watch_options *o)
{
    struct server s = {.host = o->host, .lock = PTHREAD_MUTEX_INITIALIZER};
    char **folder;
    int status = TR_NEW(&folder, o->folders);
    gethostname(s.name, sizeof s.name - 1);
    for (size_t i = 0; i < o->folders && status == TR_OK; i++) {
        folder[i] = realpath(o->folder[i], NULL);
        if (!folder[i]) status = tr_fail(TR_ERR_NO_INPUT, "watch: %s: %s", o->folder[i], strerror(errno));
    }
    s.runs.folder = folder;
    s.runs.folders = o->folders;
    if (status == TR_OK) status = serve(&s, o);
    tr_watched_free(&s.runs);
    for (size_t i = 0; folder && i < o->folders; i++) free(folder[i]);
    free(folder);
    return status;
}
