#define _GNU_SOURCE
#include "supervisor/supervisor.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ftw.h>
#include <glob.h>
#include <ifaddrs.h>
#include <limits.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/base.h"

/* ---- listening ---- */

static int members_fail(const char *what)
{
    return tr_fail(TR_ERR_SYSTEM, "the supervisor cannot listen to its ranks: %s: %s", what, strerror(errno));
}

static bool members_listen(struct tr_members *c, int family)
{
    union {
        struct sockaddr any;
        struct sockaddr_in four;
        struct sockaddr_in6 six;
    } at = {.six = {.sin6_family = (sa_family_t)family}}; /* zeros mean all addresses and any port */
    socklen_t size = family == AF_INET ? sizeof at.four : sizeof at.six;
    int no = 0;
    if (!c->everywhere) at.four.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    c->listener = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (c->listener < 0) return false;
    if (family == AF_INET6) setsockopt(c->listener, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no);
    if (bind(c->listener, &at.any, size) == 0 && listen(c->listener, 4096) == 0 &&
        getsockname(c->listener, &at.any, &size) == 0) {
        c->port = ntohs(family == AF_INET ? at.four.sin_port : at.six.sin6_port);
        return true;
    }
    close(c->listener);
    c->listener = -1;
    return false;
}

static int members_watch(const struct tr_members *c, int fd, struct tr_supervised_rank *m)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = m};
    return epoll_ctl(c->ready, EPOLL_CTL_ADD, fd, &event) == 0 ? TR_OK : members_fail("epoll");
}

int tr_members_open(bool everywhere, double period, double limit, struct tr_members *c)
{
    *c = (struct tr_members){.listener = -1, .everywhere = everywhere, .period = period, .limit = limit};
    gethostname(c->host, sizeof c->host - 1);
    c->ready = epoll_create1(EPOLL_CLOEXEC);
    if (c->ready < 0) return members_fail("epoll");
    bool open = everywhere && members_listen(c, AF_INET6);
    if (!open && !members_listen(c, AF_INET)) return members_fail("no port");
    TR_TRY(members_watch(c, c->listener, NULL));
    return tr_members_renew(c);
}

static void members_forget(struct tr_members *c)
{
    for (size_t i = 0; i < c->n; i++) {
        if (c->member[i]->socket >= 0) close(c->member[i]->socket);
        free(c->member[i]);
    }
    c->n = c->known = c->byes = c->broken = 0;
    c->size = 0;
    c->ending = false;
    c->dead = NULL;
    c->farthest = TR_LIFE_NOWHERE;
}

int tr_members_renew(struct tr_members *c)
{
    unsigned long long random[2];
    members_forget(c);
    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random)
        return members_fail("no random numbers");
    snprintf(c->token, sizeof c->token, "%016llx%016llx", random[0], random[1]);
    return TR_OK;
}

void tr_members_close(struct tr_members *c)
{
    members_forget(c);
    free(c->member);
    if (c->listener >= 0) close(c->listener);
    if (c->ready >= 0) close(c->ready);
}

/* Lists all addresses of this host that other hosts may reach. A rank tries one after the other. */
int tr_members_address(const struct tr_members *c, char **address)
{
    char list[TR_LIFELINE_LINE - 64] = "";
    struct ifaddrs *all = NULL;
    size_t n = 0;
    if (c->everywhere && getifaddrs(&all) != 0) all = NULL;
    for (struct ifaddrs *a = all; a; a = a->ifa_next) {
        char name[INET6_ADDRSTRLEN];
        if (!a->ifa_addr || !(a->ifa_flags & IFF_UP) || (a->ifa_flags & IFF_LOOPBACK)) continue;
        int family = a->ifa_addr->sa_family;
        const struct sockaddr_in6 *six = (const void *)a->ifa_addr;
        if (family != AF_INET && (family != AF_INET6 || IN6_IS_ADDR_LINKLOCAL(&six->sin6_addr))) continue;
        socklen_t length = family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
        if (getnameinfo(a->ifa_addr, length, name, sizeof name, NULL, 0, NI_NUMERICHOST) != 0) continue;
        if (n + strlen(name) + 2 > sizeof list) break;
        n += (size_t)snprintf(list + n, sizeof list - n, "%s%s", n ? "," : "", name);
    }
    if (all) freeifaddrs(all);
    return tr_format(address, "%s:%d:%s", n ? list : "127.0.0.1", c->port, c->token);
}

/* ---- messages of ranks ---- */

static void member_disconnect(struct tr_members *c, struct tr_supervised_rank *m)
{
    if (m->socket < 0) return;
    close(m->socket); /* also removes the socket from the epoll */
    m->socket = -1;
    m->broke = tr_now();
    if (!m->known) return;
    c->broken++;
    if (!m->bye && !c->dead) c->dead = m;
}

static bool take_hello(struct tr_members *c, struct tr_supervised_rank *m, const char *line)
{
    int version = 0;
    long size = 0;
    char token[40] = "", text[64];
    if (sscanf(line, "hello %d %39s %ld %ld %ld %llu %127s", &version, token, &m->rank, &size, &m->pid,
               &m->start, m->host) != 7 ||
        version != TR_LIFELINE_VERSION || strcmp(token, c->token) != 0)
        return false;
    m->known = true;
    m->local = strcmp(m->host, c->host) == 0 && tr_process_state(m->pid, m->start, NULL) != TR_PROCESS_NONE;
    c->known++;
    c->size = size;
    int n = snprintf(text, sizeof text, "welcome %d %d\n%s", (int)(c->period * 1e3), (int)(c->limit * 1e3),
                     c->ending ? "die\n" : "");
    return send(m->socket, text, (size_t)n, MSG_NOSIGNAL | MSG_DONTWAIT) == n;
}

/* Handles a line of a rank. Returns false if the line is invalid. */
static bool member_take_line(struct tr_members *c, struct tr_supervised_rank *m, const char *line)
{
    long long stage, clock, kept_stage, kept_clock;
    int phase;
    m->beat = tr_now();
    if (!m->known) return take_hello(c, m, line);
    if (sscanf(line, "bye %d", &m->status) == 1) {
        c->byes += !m->bye;
        m->bye = true;
        return true;
    }
    if (sscanf(line, "beat %d %lld %lld %lld %lld %ld", &phase, &stage, &clock, &kept_stage, &kept_clock,
               &m->waits) != 6)
        return false;
    tr_life_advance(&c->farthest, &(struct tr_life_state){phase, stage, clock, kept_stage, kept_clock});
    return true;
}

/* Reads the pending lines of a rank. Returns false if it has disconnected or must be disconnected. */
static bool member_read(struct tr_members *c, struct tr_supervised_rank *m)
{
    for (;;) {
        ssize_t n = recv(m->socket, m->line + m->filled, sizeof m->line - 1 - m->filled, MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EINTR)) return true;
        if (n <= 0) return false;
        m->filled += (size_t)n;
        m->line[m->filled] = '\0';
        char *begin = m->line, *end;
        for (; (end = strchr(begin, '\n')) != NULL; begin = end + 1) {
            *end = '\0';
            if (!member_take_line(c, m, begin)) return false;
        }
        m->filled -= (size_t)(begin - m->line);
        memmove(m->line, begin, m->filled);
        if (m->filled == sizeof m->line - 1) return false;
    }
}

/* Accepts all pending connections. */
static int members_accept(struct tr_members *c)
{
    for (;;) {
        int yes = 1, fd = accept4(c->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0) return TR_OK; /* no connection is pending, or it fails: ranks retry */
        struct tr_supervised_rank *m = NULL;
        /* reuse the entry of a disconnected peer that was no rank; this is rare, so a linear search suffices */
        for (size_t i = 0; i < c->n && !m && c->known < c->n; i++)
            if (c->member[i]->socket < 0 && !c->member[i]->known) m = c->member[i];
        if (!m) {
            int status = TR_GROW(&c->member, &c->capacity, c->n + 1);
            if (status == TR_OK) status = TR_NEW(&c->member[c->n], 1);
            if (status != TR_OK) {
                close(fd);
                return TR_ERR_SYSTEM;
            }
            m = c->member[c->n++];
        }
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
        *m = (struct tr_supervised_rank){.socket = fd, .beat = tr_now()};
        TR_TRY(members_watch(c, fd, m));
    }
}

int tr_members_receive(struct tr_members *c)
{
    enum { MANY = 64, PATIENCE = 5 };
    struct epoll_event event[MANY];
    int n;
    do {
        n = epoll_wait(c->ready, event, MANY, 0);
        for (int i = 0; i < n; i++) {
            struct tr_supervised_rank *m = event[i].data.ptr;
            if (!m) TR_TRY(members_accept(c));
            else if (m->socket >= 0 && !member_read(c, m)) member_disconnect(c, m);
        }
    } while (n == MANY);
    double now = tr_now();
    for (size_t i = 0; i < c->n && c->known < c->n; i++) /* disconnects peers without a valid hello */
        if (!c->member[i]->known && now - c->member[i]->beat > PATIENCE) member_disconnect(c, c->member[i]);
    return TR_OK;
}

/* ---- all ranks ---- */

static bool listens(const struct tr_supervised_rank *m)
{
    return m->known && m->socket >= 0;
}

const struct tr_supervised_rank *tr_members_silent(const struct tr_members *c)
{
    const struct tr_supervised_rank *longest = NULL;
    double since = tr_now() - c->limit;
    for (size_t i = 0; i < c->n; i++) {
        const struct tr_supervised_rank *m = c->member[i];
        bool silent = listens(m) && m->beat < since;
        /* a rank that has sent bye must exit: mpirun would wait forever for a stopped process */
        if (m->bye && m->socket < 0 && m->local && m->broke < since)
            silent = tr_process_state(m->pid, m->start, NULL) == TR_PROCESS_STOPPED;
        if (silent && (!longest || m->beat < longest->beat)) longest = m;
    }
    return longest;
}

long tr_members_waits(const struct tr_members *c)
{
    long least = 0;
    if (c->known == 0 || (long)c->known < c->size || c->byes > 0) return 0;
    for (size_t i = 0; i < c->n; i++) {
        const struct tr_supervised_rank *m = c->member[i];
        if (!m->known) continue;
        if (m->waits == 0) return 0;
        least = least == 0 || m->waits < least ? m->waits : least;
    }
    return least;
}

void tr_members_excuse(struct tr_members *c)
{
    double now = tr_now();
    for (size_t i = 0; i < c->n; i++) {
        c->member[i]->beat = c->member[i]->broke = now;
        c->member[i]->waits = 0;
    }
}

static void members_tell(const struct tr_members *c, const char *text)
{
    for (size_t i = 0; i < c->n; i++)
        if (listens(c->member[i]))
            (void)!send(c->member[i]->socket, text, strlen(text), MSG_NOSIGNAL | MSG_DONTWAIT);
}

void tr_members_tell_to_die(struct tr_members *c)
{
    c->ending = true;
    members_tell(c, "die\n");
}

void tr_members_tell_signal(const struct tr_members *c, int number)
{
    char text[32];
    snprintf(text, sizeof text, "signal %d\n", number);
    members_tell(c, text);
}

size_t tr_members_left(const struct tr_members *c, bool kill)
{
    size_t left = 0;
    for (size_t i = 0; i < c->n; i++) {
        const struct tr_supervised_rank *m = c->member[i];
        if (!m->local || tr_process_state(m->pid, m->start, NULL) <= TR_PROCESS_ENDED) continue;
        left++;
        if (kill) tr_process_kill(m->pid, m->start);
    }
    return left;
}

/* ---- processes of this host ---- */

struct stat_line {
    char state;
    tr_start_time start;
    long exit_code;
};

/* Reads /proc/PID/stat. Field 2 is a name in parentheses that may contain any character, so counting starts at the last `)`. */
static bool read_stat(long pid, struct stat_line *l)
{
    enum { STATE = 3, START = 22, EXIT_CODE = 52 };
    char path[64], text[2048];
    *l = (struct stat_line){.exit_code = -1};
    snprintf(path, sizeof path, "/proc/%ld/stat", pid);
    FILE *file = pid > 0 ? fopen(path, "re") : NULL;
    if (!file) return false;
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    char *at = strrchr(text, ')');
    for (int field = STATE; at && (at = strchr(at, ' ')) != NULL; field++) {
        at++;
        if (field == STATE) l->state = *at;
        if (field == START) l->start = strtoull(at, NULL, 10);
        if (field == EXIT_CODE) l->exit_code = strtol(at, NULL, 10);
    }
    return true;
}

static bool is_stopped(const struct stat_line *l)
{
    return l->state == 'T' || l->state == 't';
}

enum tr_process_state tr_process_state(long pid, tr_start_time start, int *wait_status)
{
    struct stat_line l;
    if (wait_status) *wait_status = -1;
    if (start == 0 || !read_stat(pid, &l) || l.start != start) return TR_PROCESS_NONE;
    bool ended = l.state == 'Z' || l.state == 'X';
    /* the kernel sets the exit code before it closes the files; the 0 of a running process may mean that none is set yet */
    if (wait_status && (l.exit_code > 0 || ended)) *wait_status = (int)l.exit_code;
    return ended ? TR_PROCESS_ENDED : is_stopped(&l) ? TR_PROCESS_STOPPED : TR_PROCESS_RUNS;
}

bool tr_process_is_stopped(long pid)
{
    struct stat_line l;
    return read_stat(pid, &l) && is_stopped(&l);
}

long tr_process_stopped_child(long parent)
{
    char path[64];
    long pid = 0;
    snprintf(path, sizeof path, "/proc/%ld/task/%ld/children", parent, parent);
    FILE *file = fopen(path, "re");
    bool stopped = false;
    while (file && !stopped && fscanf(file, "%ld", &pid) == 1) stopped = tr_process_is_stopped(pid);
    if (file) fclose(file);
    return stopped ? pid : 0;
}

/* The start time is checked after pidfd_open(), so that the descriptor refers to the right process even if its pid is reused. */
void tr_process_kill(long pid, tr_start_time start)
{
    int held = (int)syscall(SYS_pidfd_open, (pid_t)pid, 0);
    if (tr_process_state(pid, start, NULL) > TR_PROCESS_ENDED) {
        if (held >= 0) syscall(SYS_pidfd_send_signal, held, SIGKILL, NULL, 0);
        else kill((pid_t)pid, SIGKILL); /* the kernel is older than 5.3 and has no pidfd_open() */
    }
    if (held >= 0) close(held);
}

static int add_segment(struct tr_segments *s, const char *path)
{
    TR_TRY(TR_GROW(&s->path, &s->capacity, s->n + 1));
    TR_TRY(tr_copy_string(path, &s->path[s->n]));
    s->n++;
    return TR_OK;
}

/* Adds a pattern for all segments of the job, whose number Open MPI 4 passes to its ranks: a segment that is being created is not
 * in /proc/PID/maps yet. */
static int find_job(long pid, struct tr_segments *s)
{
    static const char variable[] = "PMIX_NAMESPACE=";
    char name[64], path[64], *end;
    TR_FREED char *word = NULL;
    size_t room = 0, length = sizeof variable - 1;
    int status = TR_OK;
    snprintf(name, sizeof name, "/proc/%ld/environ", pid);
    FILE *file = fopen(name, "re");
    while (file && status == TR_OK && getdelim(&word, &room, '\0', file) > 0) {
        if (strncmp(word, variable, length) != 0) continue;
        unsigned long job = strtoul(word + length, &end, 10);
        if (job == 0 || *end) continue;
        snprintf(path, sizeof path, "/dev/shm/*_segment.*.%lx.0", job);
        status = add_segment(s, path);
    }
    if (file) fclose(file);
    return status;
}

int tr_segments_find(long pid, struct tr_segments *s)
{
    static const char *const begins[] = {"/dev/shm/vader_segment.", "/dev/shm/sm_segment.",
                                         "/dev/shm/osc_rdma.", "/dev/shm/osc_sm."};
    char name[64], line[PATH_MAX + 128];
    int status = find_job(pid, s);
    snprintf(name, sizeof name, "/proc/%ld/maps", pid);
    FILE *file = fopen(name, "re");
    while (file && status == TR_OK && fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = '\0';
        const char *path = strstr(line, "/dev/shm/");
        bool adds = false;
        for (size_t i = 0; path && i < sizeof begins / sizeof *begins; i++)
            adds = adds || strncmp(path, begins[i], strlen(begins[i])) == 0;
        for (size_t i = 0; adds && i < s->n; i++) adds = strcmp(path, s->path[i]) != 0;
        if (adds) status = add_segment(s, path);
    }
    if (file) fclose(file);
    return status;
}

void tr_segments_free(struct tr_segments *s)
{
    for (size_t i = 0; i < s->n; i++) free(s->path[i]);
    free(s->path);
    *s = (struct tr_segments){0};
}

static int remove_one(const char *path, const struct stat *status, int kind, struct FTW *at)
{
    (void)status;
    (void)at;
    (void)(kind == FTW_DP || kind == FTW_DNR ? rmdir(path) : unlink(path));
    return 0;
}

/* Removes files, and folders with their contents, that are at least `age` seconds old. */
static void remove_matches(const char *pattern, double age)
{
    struct stat status;
    struct timespec now;
    glob_t found;
    clock_gettime(CLOCK_REALTIME, &now);
    if (glob(pattern, GLOB_NOSORT, NULL, &found) != 0) return;
    for (size_t i = 0; i < found.gl_pathc; i++) {
        if (lstat(found.gl_pathv[i], &status) != 0 || status.st_uid != getuid()) continue;
        if (age > 0 && (double)(now.tv_sec - status.st_ctim.tv_sec) +
                               1e-9 * (double)(now.tv_nsec - status.st_ctim.tv_nsec) <
                           age)
            continue;
        if (S_ISREG(status.st_mode) || S_ISDIR(status.st_mode))
            nftw(found.gl_pathv[i], remove_one, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
    }
    globfree(&found);
}

/* Segments are named KIND_segment.HOST.USER.JOB.RANK, windows osc_sm.HOST.JOB.NUMBER. A wildcard replaces RANK and NUMBER: a rank
 * that is starting has not mapped the segments of all other ranks, and no rank has mapped a window that is being created. The
 * session folder is ompi.HOST.USER/pid.PID (Open MPI 4) or prte.HOST.USER/dvm.PID (later versions). */
void tr_segments_remove(const struct tr_segments *s, long mpirun)
{
    const char *set = getenv("TMPDIR"), *temporary = set ? set : "/tmp";
    char pattern[PATH_MAX];
    for (size_t i = 0; i < s->n; i++) {
        const char *path = s->path[i];
        bool of_rank = strstr(path, "_segment.") != NULL;
        int length = of_rank ? (int)(strrchr(path, '.') - path) : (int)strlen(path);
        snprintf(pattern, sizeof pattern, "%.*s%s", length, path, of_rank ? ".*" : "");
        remove_matches(pattern, 0);
        const char *job = of_rank ? memrchr(path, '.', (size_t)length) : NULL;
        if (!job) continue;
        snprintf(pattern, sizeof pattern, "/dev/shm/osc_*%.*s.*", (int)(path + length - job), job);
        remove_matches(pattern, 0);
    }
    snprintf(pattern, sizeof pattern, "%s/ompi.*.%ld/pid.%ld", temporary, (long)getuid(), mpirun);
    remove_matches(pattern, 0);
    snprintf(pattern, sizeof pattern, "%s/prte.*.%ld/dvm.%ld", temporary, (long)getuid(), mpirun);
    remove_matches(pattern, 0);
}

void tr_segments_remove_trials(void)
{
    remove_matches("/dev/shm/open_mpi.[0-9][0-9][0-9][0-9]",
                   0.1); /* a file in use is younger: it exists for microseconds */
}
