/* Fuzzes the server of trireme watch with requests over real connections to two servers: one knows this process as its user, the
 * other one listens on all addresses, so it requires the token. Whatever the request, no file outside the folder may be sent, and
 * without the token nothing may be sent by the second server; both must keep answering.
 *
 * Bit 0 of an input's first byte chooses the server, bit 1 closes the connection before the response. The rest is the request, in
 * which {token} and {port} are replaced by those of the server.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fuzz.h"
#include "watch/watch.h"

static char folder[] = "/tmp/fuzz-http-XXXXXX";
static struct tr_watch_server *server[2];

/* ---- the runs ---- */

static const struct {
    const char *path, *text; /* text: NULL: a folder */
} made[] = {
    {"runs", NULL},
    {"runs/good", NULL},
    {"runs/good/status.json", "{\"state\": \"inside\"}"},
    {"runs/good/metrics.csv", "time,inside\n1,2\n"},
    {"runs/linked", NULL},
    {"outside", NULL},
    {"outside/status.json", "{\"state\": \"outside\"}"},
};
static const char *const links[][2] = {{"../outside", "runs/link"},
                                       {"../../outside/status.json", "runs/linked/status.json"}};
enum { MADE = sizeof made / sizeof *made, LINKS = sizeof links / sizeof *links };

static void remove_files(void)
{
    for (int i = 0; i < LINKS; i++) unlink(links[i][1]);
    for (int i = MADE; i-- > 0;) remove(made[i].path);
    rmdir(folder);
}

static void start_servers(void)
{
    static const char *const host[] = {"127.0.0.1", "0.0.0.0"};
    DEMAND(mkdtemp(folder));
    char *work = getcwd(NULL, 0), *path;
    DEMAND(work && chdir(folder) == 0);
    for (int i = 0; i < MADE; i++) {
        if (!made[i].text) {
            DEMAND(mkdir(made[i].path, 0700) == 0);
            continue;
        }
        FILE *file = fopen(made[i].path, "w");
        DEMAND(file && fputs(made[i].text, file) >= 0 && fclose(file) == 0);
    }
    for (int i = 0; i < LINKS; i++) DEMAND(symlink(links[i][0], links[i][1]) == 0);
    DEMAND(tr_format(&path, "%s/runs", folder) == TR_OK);
    for (int i = 0; i < 2; i++) {
        struct tr_watch_options options = {.folder = &path, .folders = 1, .host = host[i]};
        DEMAND(tr_watch_start(&options, &server[i]) == TR_OK);
    }
    free(path);
    DEMAND(chdir(work) == 0);
    free(work);
}

static void stop_servers(void)
{
    for (int i = 0; i < 2; i++) tr_watch_stop(server[i]);
    DEMAND(chdir(folder) == 0);
    remove_files();
}

/* ---- one request ---- */

/* A copy of the request with the token and the port of the server, to be freed. */
static char *fill_in(const struct tr_watch_server *s, const uint8_t *data, size_t n, size_t *length,
                     bool *has_token)
{
    char *text = NULL;
    FILE *file = open_memstream(&text, length);
    DEMAND(file);
    *has_token = false;
    for (size_t i = 0; i < n;) {
        if (n - i >= 7 && memcmp(data + i, "{token}", 7) == 0) {
            fputs(tr_watch_token(s), file);
            *has_token = true;
            i += 7;
        } else if (n - i >= 6 && memcmp(data + i, "{port}", 6) == 0) {
            fprintf(file, "%d", tr_watch_port(s));
            i += 6;
        } else {
            fputc(data[i++], file);
        }
    }
    DEMAND(fclose(file) == 0);
    return text;
}

/* Sends the request, half-closes, and reads the response to its end, or to the first bytes of a stream, which has none. Each
 * connection comes from another loopback address: the ports of one would all wait for their time to be reused. */
static size_t converse(const struct tr_watch_server *s, const char *request, size_t length, bool reads,
                       char *response, size_t size)
{
    static unsigned connections;
    struct sockaddr_in from = {.sin_family = AF_INET,
                               .sin_addr.s_addr = htonl(0x7f000002 + connections++ % 60000)};
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                             .sin_port = htons((uint16_t)tr_watch_port(s))};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), yes = 1;
    size_t n = 0;
    DEMAND(fd >= 0 && setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &yes, sizeof yes) == 0);
    DEMAND(bind(fd, (struct sockaddr *)&from, sizeof from) == 0);
    if (connect(fd, (struct sockaddr *)&to, sizeof to) != 0) expect(false, strerror(errno));
    for (size_t at = 0; at < length;) {
        ssize_t sent = send(fd, request + at, length - at, MSG_NOSIGNAL);
        if (sent <= 0) break; /* the server has refused it */
        at += (size_t)sent;
    }
    shutdown(fd, SHUT_WR);
    while (reads && n < size && !memmem(response, n, "text/event-stream", 17)) {
        ssize_t got = recv(fd, response + n, size - n, 0);
        if (got <= 0) break;
        n += (size_t)got;
    }
    close(fd);
    return n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static const char good[] = "GET /run/0/good/status.json HTTP/1.1\r\nHost: localhost\r\n\r\n";
    static char response[1 << 18];
    static uint64_t inputs;
    size_t length;
    bool has_token;
    if (!server[0]) {
        struct sigaction timer; /* that libFuzzer uses: it must not interrupt connect() */
        DEMAND(sigaction(SIGALRM, NULL, &timer) == 0);
        timer.sa_flags |= SA_RESTART;
        DEMAND(sigaction(SIGALRM, &timer, NULL) == 0);
        start_servers();
        atexit(stop_servers);
    }
    if (n == 0) return 0;
    const struct tr_watch_server *s = server[*data & 1];
    char *request = fill_in(s, data + 1, n - 1, &length, &has_token);
    size_t got = converse(s, request, length, !(*data & 2), response, sizeof response);
    free(request);
    DEMAND(!memmem(response, got, "outside", 7));
    if ((*data & 1) && !has_token)
        DEMAND(!memmem(response, got, " 200 ", 5) && !memmem(response, got, "inside", 6));
    if (inputs++ % 100 == 0) {
        got = converse(server[0], good, strlen(good), true, response, sizeof response);
        DEMAND(memmem(response, got, " 200 ", 5) && memmem(response, got, "inside", 6));
    }
    return 0;
}
