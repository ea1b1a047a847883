/* The HTTP server of trireme watch. It answers GET and HEAD with the page, the list of runs, and files that runs.c found.
 *
 * Access. If the server listens on a loopback address, the kernel tells which user is at the other end of a connection. The user of
 * this process has access; other users need the token, and so do all users if the server listens on another address. If the user
 * is unknown, access is denied. The Host header must be an address or a name of this machine: otherwise a page of another site
 * whose name was pointed at this machine (DNS rebinding) could read the answers. Limits on connections, streams and time apply per
 * peer, and some of the connections are reserved for peers with access. docs/security.md lists the attacks. */
#define _GNU_SOURCE
#include "watch/watch.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <microhttpd.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/base.h"
#include "monitor/monitor.h"
#include "page.h"

enum {
    CONNECTIONS = 200,          /* maximum number of connections of all peers */
    STRANGER_CONNECTIONS = 100, /* maximum number of connections of all peers without access */
    PEER_CONNECTIONS = 24,      /* maximum number of connections of one peer that is not this user */
    OWN_STREAMS = 100,          /* maximum number of event streams of this user */
    PEER_STREAMS = 12,          /* maximum number of event streams of another peer */
    REQUEST_SECONDS = 10, /* maximum time from a connection's start or last response to a complete request */
    SEND_SECONDS = 30,    /* maximum time without progress in sending a response */
    REQUEST_BYTES = 32 << 10,      /* maximum size of a request's line and headers */
    FILE_BYTES = 8 << 20,          /* maximum part of a file in one response */
    TABLE_SIZE = CONNECTIONS + 56, /* length of peer[] and client[]: libmicrohttpd may report an end late */
    TOKEN_DIGITS = 32,
    OVERFLOW_UID = 65534 /* uid that the kernel reports for users without an id in this user namespace */
};

/* The other end of one or more connections: a user if the server listens on a loopback address, otherwise a network address. */
struct peer {
    int64_t user; /* user id; -1: unknown, or on another machine */
    /* IPv4 address in v4-mapped form, or the first 64 bits of an IPv6 address; zeros if the peer is a user. */
    unsigned char network[16];
    bool own;                 /* whether the peer is the user of this process */
    bool has_access;          /* whether the peer is own or has sent the token */
    int connections, streams; /* numbers of open connections and event streams */
};

struct client {
    struct peer *peer; /* NULL: this element is unused */
    int fd;
    bool busy;    /* whether a response is being sent */
    double since; /* start of the connection, or end of its last response, as tr_now() */
};

struct tr_watch_server {
    struct tr_watched_runs runs;
    pthread_mutex_t lock; /* protects `runs` */
    struct peer peer[TABLE_SIZE];
    struct client client[TABLE_SIZE];
    pthread_mutex_t client_lock; /* protects `peer` and `client` */
    atomic_bool ends;            /* set when the server is stopped: streams end */
    bool foreign;                /* whether the server listens on an address that is not a loopback address */
    const char *host;
    int port;
    struct sockaddr_storage address;          /* address that the server listens on */
    char name[256];                           /* name of this machine */
    char token[TOKEN_DIGITS + 1], cookie[32]; /* the token, and the name of the cookie that contains it */
    struct MHD_Daemon *daemon;
};

typedef struct MHD_Connection connection;

/* ---- peers ---- */

struct endpoint {
    unsigned char address[16]; /* IPv6 address, or IPv4 address in v4-mapped form */
    uint16_t port;             /* network byte order */
};

static const unsigned char v4_mapped[12] = {[10] = 0xff, [11] = 0xff};

static struct endpoint endpoint_of(int family, const void *address, uint16_t port)
{
    struct endpoint e = {.port = port};
    bool v4 = family == AF_INET;
    if (v4) memcpy(e.address, v4_mapped, 12);
    memcpy(e.address + (v4 ? 12 : 0), address, v4 ? 4 : 16);
    return e;
}

static struct endpoint endpoint_of_socket(const void *any)
{
    const struct sockaddr_in *v4 = any;
    const struct sockaddr_in6 *v6 = any;
    if (v4->sin_family == AF_INET6) return endpoint_of(AF_INET6, &v6->sin6_addr, v6->sin6_port);
    return endpoint_of(AF_INET, &v4->sin_addr, v4->sin_port);
}

static bool endpoint_is_v4(const struct endpoint *e)
{
    return memcmp(e->address, v4_mapped, 12) == 0;
}

static bool endpoint_equals(const struct endpoint *a, const struct endpoint *b)
{
    return a->port == b->port && memcmp(a->address, b->address, 16) == 0;
}

/* Returns the user who owns the socket at the other end of a TCP connection within this machine, from the kernel's sock_diag
 * interface; -1 if the kernel does not know the socket, or its owner. Two answers are rejected. A closed socket has no inode, and
 * the kernel reports root as its owner. A new socket may reuse the port of a closed socket, but is not yet connected. */
static int64_t user_at(const struct endpoint *peer, const struct endpoint *server)
{
    int64_t user = -1;
    bool v4 = endpoint_is_v4(peer) && endpoint_is_v4(server);
    size_t from = v4 ? 12 : 0, size = v4 ? 4 : 16;
    struct {
        struct nlmsghdr head;
        struct inet_diag_req_v2 body;
    } request = {.head = {.nlmsg_len = sizeof request,
                          .nlmsg_type = SOCK_DIAG_BY_FAMILY,
                          .nlmsg_flags = NLM_F_REQUEST},
                 .body = {.sdiag_family = v4 ? AF_INET : AF_INET6,
                          .sdiag_protocol = IPPROTO_TCP,
                          .idiag_states = UINT32_MAX,
                          .id = {.idiag_sport = peer->port,
                                 .idiag_dport = server->port,
                                 .idiag_cookie = {INET_DIAG_NOCOOKIE, INET_DIAG_NOCOOKIE}}}};
    struct {
        struct nlmsghdr head;
        struct inet_diag_msg body;
        char attributes[1024];
    } reply;
    struct sockaddr_nl kernel = {.nl_family = AF_NETLINK}, sender = {.nl_pid = 1};
    socklen_t length = sizeof sender;
    memcpy(request.body.id.idiag_src, peer->address + from, size);
    memcpy(request.body.id.idiag_dst, server->address + from, size);
    int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
    if (fd < 0) return -1;
    ssize_t n = sendto(fd, &request, sizeof request, 0, (struct sockaddr *)&kernel, sizeof kernel);
    if (n >= 0) n = recvfrom(fd, &reply, sizeof reply, MSG_DONTWAIT, (struct sockaddr *)&sender, &length);
    close(fd);
    if (n < (ssize_t)(sizeof reply.head + sizeof reply.body) || sender.nl_pid != 0) return -1;
    if (reply.head.nlmsg_type != SOCK_DIAG_BY_FAMILY) return -1;
    const struct inet_diag_msg *found = &reply.body;
    struct endpoint source = endpoint_of(found->idiag_family, found->id.idiag_src, found->id.idiag_sport);
    struct endpoint target = endpoint_of(found->idiag_family, found->id.idiag_dst, found->id.idiag_dport);
    bool connected = found->idiag_state == TCP_ESTABLISHED || found->idiag_state == TCP_FIN_WAIT1 ||
                     found->idiag_state == TCP_FIN_WAIT2 || found->idiag_state == TCP_CLOSE_WAIT;
    if (connected && found->idiag_inode != 0 && endpoint_equals(&source, peer) &&
        endpoint_equals(&target, server))
        user = found->idiag_uid;
    return user;
}

/* Returns the element of s->peer for the peer with this address. A new peer takes an unused or idle element; NULL: there is none.
 * The caller has locked client_lock. */
static struct peer *find_peer(struct tr_watch_server *s, const struct sockaddr *address)
{
    struct endpoint at = endpoint_of_socket(address), server = endpoint_of_socket(&s->address);
    struct peer wanted = {.user = -1}, *unused = NULL;
    if (s->foreign) memcpy(wanted.network, at.address, endpoint_is_v4(&at) ? 16 : 8);
    else wanted.user = user_at(&at, &server);
    for (struct peer *p = s->peer; p < s->peer + TABLE_SIZE; p++) {
        bool idle = p->connections == 0 && p->streams == 0;
        if (idle && (!unused || !p->has_access)) unused = p;
        bool is_set = !idle || p->has_access;
        if (is_set && p->user == wanted.user && memcmp(p->network, wanted.network, 16) == 0) return p;
    }
    wanted.own = wanted.user == geteuid() && wanted.user != OVERFLOW_UID;
    wanted.has_access = wanted.own;
    if (unused) *unused = wanted;
    return unused;
}

/* Decides whether a new connection is accepted. libmicrohttpd calls it before the connection counts. */
static enum MHD_Result admit_connection(void *what, const struct sockaddr *address, socklen_t length)
{
    struct tr_watch_server *s = what;
    int strangers = 0;
    (void)length;
    pthread_mutex_lock(&s->client_lock);
    for (int i = 0; i < TABLE_SIZE; i++)
        if (!s->peer[i].has_access) strangers += s->peer[i].connections;
    const struct peer *peer = find_peer(s, address);
    bool admitted = peer && (peer->own || (peer->connections < PEER_CONNECTIONS &&
                                           (peer->has_access || strangers < STRANGER_CONNECTIONS)));
    pthread_mutex_unlock(&s->client_lock);
    return admitted ? MHD_YES : MHD_NO;
}

/* Updates s->client and s->peer at the start and at the end of each connection. */
static void track_connection(void *what, connection *c, void **context,
                             enum MHD_ConnectionNotificationCode event)
{
    struct tr_watch_server *s = what;
    struct client *client = *context;
    pthread_mutex_lock(&s->client_lock);
    if (event == MHD_CONNECTION_NOTIFY_STARTED) {
        const union MHD_ConnectionInfo *address =
            MHD_get_connection_info(c, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
        const union MHD_ConnectionInfo *fd = MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD);
        struct peer *peer = address && fd ? find_peer(s, address->client_addr) : NULL;
        for (client = s->client; peer && client < s->client + TABLE_SIZE; client++) {
            if (client->peer) continue;
            *client = (struct client){.peer = peer, .fd = fd->connect_fd, .since = tr_now()};
            peer->connections++;
            *context = client;
            break;
        }
    } else if (client) {
        client->peer->connections--;
        client->peer = NULL;
        *context = NULL;
    }
    pthread_mutex_unlock(&s->client_lock);
}

static struct client *client_of(connection *c)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(c, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    return info ? info->socket_context : NULL;
}

/* Called at the end of each response: the time limit for the next request of the connection starts. */
static void finish_response(void *what, connection *c, void **state, enum MHD_RequestTerminationCode code)
{
    struct tr_watch_server *s = what;
    struct client *client = client_of(c);
    (void)state, (void)code;
    if (!client) return;
    pthread_mutex_lock(&s->client_lock);
    client->busy = false;
    client->since = tr_now();
    pthread_mutex_unlock(&s->client_lock);
}

/* ---- responses ---- */

static enum MHD_Result send_response(connection *c, unsigned code, const char *type, struct MHD_Response *r)
{
    static const char *const header[][2] = {
        {"Cache-Control", "no-store"},
        {"X-Content-Type-Options", "nosniff"},
        {"X-Frame-Options", "DENY"},
        {"Referrer-Policy", "no-referrer"},
        {"Cross-Origin-Opener-Policy", "same-origin"},
        {"Cross-Origin-Embedder-Policy", "require-corp"},
        {"Cross-Origin-Resource-Policy", "same-origin"},
        {"Content-Security-Policy",
         "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
         "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"},
    };
    if (!r) return MHD_NO;
    MHD_add_response_header(r, "Content-Type", type);
    for (size_t i = 0; i < sizeof header / sizeof *header; i++)
        MHD_add_response_header(r, header[i][0], header[i][1]);
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

/* Locks the list of runs, and scans the folders if a scan is due. */
static void lock_runs(struct tr_watch_server *s)
{
    pthread_mutex_lock(&s->lock);
    if (tr_watched_scan(&s->runs) != TR_OK) tr_printf(stderr, "trireme: %s\n", tr_error_text());
}

static enum MHD_Result send_runs(struct tr_watch_server *s, connection *c)
{
    char *text = NULL;
    size_t length = 0;
    FILE *file = open_memstream(&text, &length);
    if (!file) return MHD_NO;
    lock_runs(s);
    fprintf(file, "{\"look\": %llu, \"cut\": %s, \"folders\": [", (unsigned long long)s->runs.scans,
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

/* Sends a file of a run, at most FILE_BYTES. With ?from=N it starts after the first N bytes, with ?from=-N at the last N bytes. */
static enum MHD_Result send_file_of_run(struct tr_watch_server *s, connection *c, const char *path)
{
    char id[PATH_MAX], *text = NULL;
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
    const char *from = MHD_lookup_connection_value(c, MHD_GET_ARGUMENT_KIND, "from");
    int64_t size = lseek(fd, 0, SEEK_END), at = from ? strtoll(from, NULL, 10) : 0;
    if (at < 0) at = size + at > 0 ? size + at : 0;
    int64_t length = at < size ? size - at : 0;
    if (length > FILE_BYTES) length = FILE_BYTES;
    bool allocated = TR_NEW(&text, (size_t)length + 1) == TR_OK;
    ssize_t got = allocated ? pread(fd, text, (size_t)length, at) : 0;
    close(fd);
    if (!allocated) return MHD_NO;
    if (got < 0) return free(text), send_text(c, MHD_HTTP_FORBIDDEN, "this file cannot be read\n");
    return send_response(c, MHD_HTTP_OK, "text/plain; charset=utf-8",
                         MHD_create_response_from_buffer((size_t)got, text, MHD_RESPMEM_MUST_FREE));
}

/* ---- the stream of changes ---- */

struct stream {
    struct tr_watch_server *server;
    struct peer *peer;
    int fd;
    uint64_t scan;       /* changes up to the scan with this number have been sent */
    double written;      /* time of the last write, as tr_now(); 0: nothing was written yet */
    char *text;          /* text that is being sent */
    size_t length, sent; /* length of the text; number of its bytes that have been sent */
};

/* Copies the next bytes of the stream to the buffer. Waits until a run changes. The stream ends when the client closes its
 * connection or the server stops. */
static ssize_t read_stream(void *what, uint64_t position, char *buffer, size_t size)
{
    struct stream *s = what;
    const struct tr_watched_runs *runs = &s->server->runs;
    (void)position;
    while (s->sent == s->length) {
        struct pollfd end = {.fd = s->fd, .events = POLLRDHUP};
        if (s->written > 0 && poll(&end, 1, 250) > 0) return MHD_CONTENT_READER_END_OF_STREAM;
        if (s->server->ends) return MHD_CONTENT_READER_END_OF_STREAM;
        free(s->text);
        s->text = NULL;
        s->length = s->sent = 0;
        FILE *file = open_memstream(&s->text, &s->length);
        if (!file) return MHD_CONTENT_READER_END_WITH_ERROR;
        lock_runs(s->server);
        for (size_t i = 0; i < runs->n; i++) {
            if (runs->run[i].changed <= s->scan) continue;
            fprintf(file, "id: %llu\ndata: ", (unsigned long long)runs->scans);
            tr_watched_write(file, &runs->run[i]);
            fputs("\n\n", file);
        }
        s->scan = runs->scans;
        pthread_mutex_unlock(&s->server->lock);
        if (s->written == 0 || tr_now() - s->written > 10) fputs(": all is well\n\n", file);
        if (fclose(file) != 0) return MHD_CONTENT_READER_END_WITH_ERROR;
    }
    s->written = tr_now();
    size_t n = tr_min_size(size, s->length - s->sent);
    memcpy(buffer, s->text + s->sent, n);
    s->sent += n;
    return (ssize_t)n;
}

/* Adds `change`, 1 or -1, to the number of the peer's streams. Returns false if the peer already has the maximum. */
static bool count_stream(struct tr_watch_server *s, struct peer *peer, int change)
{
    pthread_mutex_lock(&s->client_lock);
    bool allowed = change < 0 || peer->streams < (peer->own ? OWN_STREAMS : PEER_STREAMS);
    if (allowed) peer->streams += change;
    pthread_mutex_unlock(&s->client_lock);
    return allowed;
}

static void end_stream(void *what)
{
    struct stream *s = what;
    count_stream(s->server, s->peer, -1);
    TR_FREE_ALL(s->text, s);
}

static enum MHD_Result send_stream(struct tr_watch_server *server, connection *c, struct client *client)
{
    const char *since = MHD_lookup_connection_value(c, MHD_GET_ARGUMENT_KIND, "since");
    const char *last = MHD_lookup_connection_value(c, MHD_HEADER_KIND, "Last-Event-ID");
    struct stream *s;
    if (last) since = last; /* the browser has reconnected: it sends the last id that it received */
    if (TR_NEW(&s, 1) != TR_OK) return MHD_NO;
    *s = (struct stream){.server = server,
                         .peer = client->peer,
                         .fd = client->fd,
                         .scan = since ? strtoull(since, NULL, 10) : 0};
    if (!count_stream(server, s->peer, 1)) {
        free(s);
        return send_text(c, MHD_HTTP_SERVICE_UNAVAILABLE, "this page is open too many times\n");
    }
    return send_response(
        c, MHD_HTTP_OK, "text/event-stream",
        MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, 16384, read_stream, s, end_stream));
}

/* ---- requests ---- */

/* Returns whether the Host header is an address, localhost, or a name of this machine, with or without a port. */
static bool host_is_allowed(const struct tr_watch_server *s, const char *header)
{
    char host[256];
    unsigned char address[sizeof(struct in6_addr)];
    bool bracket = header && *header == '[';
    if (!header) return false;
    size_t length = strcspn(header += bracket, bracket ? "]" : ":");
    const char *port = header + length;
    if (length >= sizeof host || (bracket && *port++ != ']')) return false;
    if (*port && (*port != ':' || port[1 + strspn(port + 1, "0123456789")])) return false;
    memcpy(host, header, length);
    host[length] = '\0';
    return inet_pton(AF_INET, host, address) == 1 || inet_pton(AF_INET6, host, address) == 1 ||
           strcasecmp(host, "localhost") == 0 || strcasecmp(host, s->host) == 0 ||
           (s->foreign && strcasecmp(host, s->name) == 0);
}

/* Compares a token in a time that does not depend on the position of the first difference: the time must not reveal the token. */
static bool token_is_right(const struct tr_watch_server *s, const char *given)
{
    int difference = 0;
    if (!given || strlen(given) != TOKEN_DIGITS) return false;
    for (int i = 0; i < TOKEN_DIGITS; i++) difference |= given[i] ^ s->token[i];
    return difference == 0;
}

/* Answers a request that has the token in its URL: the browser gets the token as a cookie, and is redirected to the URL without the
 * token. The user of this process needs no cookie and gets none, because browsers send the cookies of a host to servers on all
 * ports of this host, which may belong to other users. */
static enum MHD_Result send_cookie(struct tr_watch_server *s, connection *c, struct client *client)
{
    char cookie[128];
    struct MHD_Response *r = MHD_create_response_from_buffer(0, NULL, MHD_RESPMEM_PERSISTENT);
    if (!r) return MHD_NO;
    pthread_mutex_lock(&s->client_lock);
    client->peer->has_access = true;
    bool own = client->peer->own;
    pthread_mutex_unlock(&s->client_lock);
    snprintf(cookie, sizeof cookie, "%s=%s; Path=/; HttpOnly; SameSite=Strict", s->cookie, s->token);
    if (!own) MHD_add_response_header(r, MHD_HTTP_HEADER_SET_COOKIE, cookie);
    MHD_add_response_header(r, MHD_HTTP_HEADER_LOCATION, "/");
    return send_response(c, MHD_HTTP_SEE_OTHER, "text/plain; charset=utf-8", r);
}

/* Answers a request after checking the Host header, the method, and access. */
static enum MHD_Result answer(void *what, connection *c, const char *path, const char *method,
                              const char *version, const char *upload, size_t *upload_size, void **state)
{
    struct tr_watch_server *s = what;
    struct client *client = client_of(c);
    (void)version, (void)upload, (void)upload_size, (void)state;
    if (!client) return MHD_NO;
    pthread_mutex_lock(&s->client_lock);
    client->busy = true;
    bool own = client->peer->own;
    pthread_mutex_unlock(&s->client_lock);
    if (!host_is_allowed(s, MHD_lookup_connection_value(c, MHD_HEADER_KIND, MHD_HTTP_HEADER_HOST)))
        return send_text(c, MHD_HTTP_FORBIDDEN, "ask for this page by an address or as localhost\n");
    if (strcmp(method, "GET") != 0 && strcmp(method, "HEAD") != 0)
        return send_text(c, MHD_HTTP_METHOD_NOT_ALLOWED, "this page is read only\n");
    if (token_is_right(s, MHD_lookup_connection_value(c, MHD_GET_ARGUMENT_KIND, "token")))
        return send_cookie(s, c, client);
    if (!own && !token_is_right(s, MHD_lookup_connection_value(c, MHD_COOKIE_KIND, s->cookie)))
        return send_text(c, MHD_HTTP_FORBIDDEN,
                         "access denied: open the URL with the token that trireme watch has printed\n");
    bool runs = strcmp(path, "/runs") == 0, events = strcmp(path, "/events") == 0;
    bool file = strncmp(path, "/run/", 5) == 0;
    const char *site = MHD_lookup_connection_value(c, MHD_HEADER_KIND, "Sec-Fetch-Site");
    if ((runs || events || file) && site && strcmp(site, "same-origin") != 0 && strcmp(site, "none") != 0)
        return send_text(c, MHD_HTTP_FORBIDDEN, "a page of another site asks for this file\n");
    if (runs) return send_runs(s, c);
    if (events) return send_stream(s, c, client);
    if (file) return send_file_of_run(s, c, path + 5);
    for (size_t i = 0; i < sizeof pages / sizeof *pages; i++)
        if (strcmp(path, pages[i].path) == 0)
            return send_response(c, MHD_HTTP_OK, pages[i].type,
                                 MHD_create_response_from_buffer(pages[i].length,
                                                                 (void *)(uintptr_t)pages[i].text,
                                                                 MHD_RESPMEM_PERSISTENT));
    return send_text(c, MHD_HTTP_NOT_FOUND, "no such page\n");
}

/* ---- start and end ---- */

static int open_listener(struct tr_watch_server *s, const struct tr_watch_options *o, int *fd)
{
    struct addrinfo *a, hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    int error = getaddrinfo(o->host, NULL, &hints, &a);
    if (error) return tr_fail(TR_ERR_USAGE, "watch: --host %s: %s", o->host, gai_strerror(error));
    int first = o->port ? o->port : TR_WATCH_PORT, ports = o->port ? 1 : TR_WATCH_PORTS;
    int yes = 1;
    *fd = -1;
    for (int i = 0; i < ports && *fd < 0 && (i == 0 || error == EADDRINUSE); i++) {
        in_port_t port = htons((uint16_t)(s->port = first + i));
        memcpy(&s->address, a->ai_addr, a->ai_addrlen);
        if (a->ai_family == AF_INET6) ((struct sockaddr_in6 *)&s->address)->sin6_port = port;
        else ((struct sockaddr_in *)&s->address)->sin_port = port;
        int opened = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (opened >= 0) setsockopt(opened, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
        if (opened >= 0 && bind(opened, (struct sockaddr *)&s->address, a->ai_addrlen) == 0 &&
            listen(opened, 64) == 0)
            *fd = opened;
        error = errno;
        if (*fd < 0 && opened >= 0) close(opened);
    }
    freeaddrinfo(a);
    struct endpoint listener = endpoint_of_socket(&s->address);
    s->foreign = endpoint_is_v4(&listener) ? listener.address[12] != 127
                                           : memcmp(listener.address, &in6addr_loopback, 16) != 0;
    if (*fd >= 0) return TR_OK;
    return tr_fail(TR_ERR_SYSTEM, "watch: port %d at %s: %s%s", s->port, o->host, strerror(error),
                   error == EADDRINUSE && o->port ? "; without --port a free one is found" : "");
}

int tr_watch_start(const struct tr_watch_options *o, struct tr_watch_server **server)
{
    struct tr_watch_server *s;
    unsigned char random[TOKEN_DIGITS / 2];
    int fd = -1;
    TR_TRY(TR_NEW(&s, 1));
    s->host = o->host;
    pthread_mutex_init(&s->lock, NULL);
    pthread_mutex_init(&s->client_lock, NULL);
    gethostname(s->name, sizeof s->name - 1);
    char **folder;
    int status = TR_NEW(&folder, o->folders);
    if (status == TR_OK) s->runs.folder = folder;
    s->runs.folders = status == TR_OK ? o->folders : 0;
    for (size_t i = 0; i < o->folders && status == TR_OK; i++) {
        DIR *opened = opendir(o->folder[i]);
        if (opened) folder[i] = realpath(o->folder[i], NULL);
        int error = errno;
        if (opened) closedir(opened);
        if (!folder[i]) status = tr_fail(TR_ERR_NO_INPUT, "watch: %s: %s", o->folder[i], strerror(error));
    }
    if (status == TR_OK && getrandom(random, sizeof random, 0) != sizeof random)
        status = tr_fail(TR_ERR_SYSTEM, "watch: no random numbers for the token: %s", strerror(errno));
    if (status == TR_OK) status = open_listener(s, o, &fd);
    if (status == TR_OK) {
        for (size_t i = 0; i < sizeof random; i++) snprintf(s->token + 2 * i, 3, "%02x", random[i]);
        snprintf(s->cookie, sizeof s->cookie, "trireme-%d", s->port);
        s->daemon = MHD_start_daemon(
            MHD_USE_THREAD_PER_CONNECTION | MHD_USE_INTERNAL_POLLING_THREAD, (uint16_t)s->port,
            admit_connection, s, answer, s, MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_CONNECTION_LIMIT,
            (unsigned)CONNECTIONS, MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)SEND_SECONDS,
            MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)REQUEST_BYTES, MHD_OPTION_NOTIFY_CONNECTION,
            track_connection, s, MHD_OPTION_NOTIFY_COMPLETED, finish_response, s, MHD_OPTION_END);
        if (!s->daemon) {
            close(fd);
            status = tr_fail(TR_ERR_SYSTEM, "watch: the server cannot be started");
        }
    }
    if (status != TR_OK) tr_watch_stop(s);
    else *server = s;
    return status;
}

void tr_watch_stop(struct tr_watch_server *s)
{
    char *const *folder = s->runs.folder;
    size_t folders = s->runs.folders;
    s->ends = true;
    if (s->daemon) MHD_stop_daemon(s->daemon);
    tr_watched_free(&s->runs);
    for (size_t i = 0; i < folders; i++) free(folder[i]);
    free((void *)(uintptr_t)folder);
    pthread_mutex_destroy(&s->lock);
    pthread_mutex_destroy(&s->client_lock);
    free(s);
}

int tr_watch_port(const struct tr_watch_server *s)
{
    return s->port;
}

const char *tr_watch_token(const struct tr_watch_server *s)
{
    return s->token;
}

int tr_watch(const struct tr_watch_options *o)
{
    struct tr_watch_server *s;
    sigset_t end;
    sigemptyset(&end);
    sigaddset(&end, SIGINT);
    sigaddset(&end, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &end, NULL);
    signal(SIGPIPE, SIG_IGN);
    TR_TRY(tr_watch_start(o, &s));
    const char *user = getenv("USER"), *name = s->foreign ? s->name : s->host;
    const char *open = strchr(name, ':') ? "[" : "", *shut = *open ? "]" : "";
    char url[400];
    snprintf(url, sizeof url, "http://%s%s%s:%d/", open, name, shut, s->port);
    printf("watching:      ");
    for (size_t i = 0; i < s->runs.folders; i++) tr_printf(stdout, "%s%s", i ? ", " : "", s->runs.folder[i]);
    if (s->foreign) {
        tr_printf(stdout, "\nopen:          %s?token=%s\n", url, s->token);
        printf("note:          the connection is not encrypted: without --host, ssh -L encrypts it\n");
    } else {
        tr_printf(stdout, "\nopen:          %s\n", url);
        tr_printf(stdout, "from afar:     ssh -N -L %d:%s%s%s:%d %s%s%s, then open http://localhost:%d/\n",
                  s->port, open, s->host, shut, s->port, user ? user : "", user ? "@" : "", s->name, s->port);
        tr_printf(stdout, "other users:   need the token: %s?token=%s\n", url, s->token);
    }
    printf("to end:        Ctrl-C\n");
    fflush(stdout);
    while (sigtimedwait(&end, NULL, &(struct timespec){.tv_sec = 1}) < 0) {
        /* Close connections whose request takes too long. The timeout of libmicrohttpd does not suffice: it restarts with each
         * byte. */
        double now = tr_now();
        pthread_mutex_lock(&s->client_lock);
        for (struct client *client = s->client; client < s->client + TABLE_SIZE; client++)
            if (client->peer && !client->busy && now - client->since > REQUEST_SECONDS)
                shutdown(client->fd, SHUT_RDWR);
        pthread_mutex_unlock(&s->client_lock);
    }
    tr_watch_stop(s);
    return TR_OK;
}
