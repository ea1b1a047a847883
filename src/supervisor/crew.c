#define _GNU_SOURCE
#include "supervisor/crew.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/base.h"

/* ---- listening ---- */

static int no_port(const char *what)
{
    return tr_fail(TR_ERR_SYSTEM, "the supervisor cannot listen to its ranks: %s: %s", what, strerror(errno));
}

static bool listen_at(struct tr_crew *c, int family, const struct sockaddr *address, socklen_t size)
{
    int no = 0;
    c->listener = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (c->listener < 0) return false;
    if (family == AF_INET6) setsockopt(c->listener, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no);
    if (bind(c->listener, address, size) == 0 && listen(c->listener, 4096) == 0) return true;
    int error = errno;
    close(c->listener);
    c->listener = -1;
    errno = error;
    return false;
}

static int open_listener(struct tr_crew *c, bool everywhere)
{
    struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_ANY_INIT};
    struct sockaddr_in four = {.sin_family = AF_INET,
                               .sin_addr.s_addr = htonl(everywhere ? INADDR_ANY : INADDR_LOOPBACK)};
    bool open = everywhere && listen_at(c, AF_INET6, (void *)&six, sizeof six);
    if (!open && !listen_at(c, AF_INET, (void *)&four, sizeof four)) return no_port("no port");
    union {
        struct sockaddr any;
        struct sockaddr_in four;
        struct sockaddr_in6 six;
    } bound;
    socklen_t size = sizeof bound;
    if (getsockname(c->listener, &bound.any, &size) != 0) return no_port("no address");
    c->port = ntohs(bound.any.sa_family == AF_INET ? bound.four.sin_port : bound.six.sin6_port);
    return TR_OK;
}

static int watch(const struct tr_crew *c, int fd, struct tr_member *m)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = m};
    return epoll_ctl(c->ready, EPOLL_CTL_ADD, fd, &event) == 0 ? TR_OK : no_port("epoll");
}

static int new_token(struct tr_crew *c)
{
    uint64_t random[2];
    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random) return no_port("no random numbers");
    snprintf(c->token, sizeof c->token, "%016llx%016llx", (unsigned long long)random[0],
             (unsigned long long)random[1]);
    return TR_OK;
}

static const struct tr_life_state nowhere = {.clock = -1, .kept_clock = -1};

int tr_crew_open(bool everywhere, double period, double limit, struct tr_crew *c)
{
    *c = (struct tr_crew){.listener = -1, .period = period, .limit = limit, .farthest = nowhere};
    gethostname(c->host, sizeof c->host - 1);
    c->ready = epoll_create1(EPOLL_CLOEXEC);
    if (c->ready < 0) return no_port("epoll");
    TR_TRY(open_listener(c, everywhere));
    TR_TRY(watch(c, c->listener, NULL));
    return new_token(c);
}

static void forget_all(struct tr_crew *c)
{
    for (size_t i = 0; i < c->n; i++) {
        if (c->member[i]->socket >= 0) close(c->member[i]->socket);
        free(c->member[i]);
    }
    c->n = c->known = c->byes = c->broken = 0;
    c->size = 0;
    c->ending = false;
    c->dead = NULL;
    c->farthest = nowhere;
}

int tr_crew_renew(struct tr_crew *c)
{
    forget_all(c);
    return new_token(c);
}

void tr_crew_close(struct tr_crew *c)
{
    forget_all(c);
    free(c->member);
    if (c->listener >= 0) close(c->listener);
    if (c->ready >= 0) close(c->ready);
}

/* ---- where to find it ---- */

/* Every address that other hosts might get through to; ranks try them in turn. */
static size_t list_addresses(char *text, size_t size)
{
    struct ifaddrs *all;
    size_t n = 0;
    if (getifaddrs(&all) != 0) return 0;
    for (struct ifaddrs *a = all; a; a = a->ifa_next) {
        char name[INET6_ADDRSTRLEN];
        if (!a->ifa_addr || !(a->ifa_flags & IFF_UP) || (a->ifa_flags & IFF_LOOPBACK)) continue;
        int family = a->ifa_addr->sa_family;
        const struct sockaddr_in6 *six = (const void *)a->ifa_addr;
        if (family != AF_INET && (family != AF_INET6 || IN6_IS_ADDR_LINKLOCAL(&six->sin6_addr))) continue;
        socklen_t length = family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
        if (getnameinfo(a->ifa_addr, length, name, sizeof name, NULL, 0, NI_NUMERICHOST) != 0) continue;
        int more = snprintf(text + n, size - n, "%s%s", n ? "," : "", name);
        if (more < 0 || (size_t)more >= size - n) break;
        n += (size_t)more;
    }
    freeifaddrs(all);
    text[n] = '\0';
    return n;
}

static bool is_for_all(const struct tr_crew *c)
{
    struct sockaddr_storage bound = {.ss_family = AF_UNSPEC};
    socklen_t size = sizeof bound;
    getsockname(c->listener, (struct sockaddr *)&bound, &size);
    const struct sockaddr_in *four = (const void *)&bound;
    return bound.ss_family == AF_INET6 || four->sin_addr.s_addr == htonl(INADDR_ANY);
}

int tr_crew_address(const struct tr_crew *c, char **address)
{
    char list[TR_LIFELINE_LINE - 64] = "";
    if (!is_for_all(c) || list_addresses(list, sizeof list) == 0) strcpy(list, "127.0.0.1");
    return tr_format(address, "%s:%d:%s", list, c->port, c->token);
}

/* ---- what they say ---- */

static void break_line(struct tr_crew *c, struct tr_member *m)
{
    if (m->socket < 0) return;
    close(m->socket); /* which takes it out of the epoll, too */
    m->socket = -1;
    m->broke = tr_now();
    if (!m->known) return;
    c->broken++;
    if (!m->bye && !c->dead) c->dead = m;
}

static bool take_hello(struct tr_crew *c, struct tr_member *m, const char *line)
{
    int version = 0;
    long size = 0;
    char token[40] = "", text[64];
    if (sscanf(line, "hello %d %39s %ld %ld %ld %llu %127s", &version, token, &m->rank, &size, &m->pid,
               &m->start, m->host) != 7 ||
        version != TR_LIFELINE_VERSION || strcmp(token, c->token) != 0)
        return false;
    m->known = true;
    m->local = strcmp(m->host, c->host) == 0 && tr_process_is_there(m->pid, m->start);
    c->known++;
    c->size = size;
    int n = snprintf(text, sizeof text, "welcome %d %d\n%s", (int)(c->period * 1e3), (int)(c->limit * 1e3),
                     c->ending ? "die\n" : "");
    return send(m->socket, text, (size_t)n, MSG_NOSIGNAL | MSG_DONTWAIT) == n;
}

static bool take_beat(struct tr_crew *c, struct tr_member *m, const char *line)
{
    long long stage, clock, kept_stage, kept_clock;
    int phase;
    if (sscanf(line, "beat %d %lld %lld %lld %lld %ld", &phase, &stage, &clock, &kept_stage, &kept_clock,
               &m->waits) != 6)
        return false;
    m->state = (struct tr_life_state){phase, stage, clock, kept_stage, kept_clock};
    tr_life_advance(&c->farthest, &m->state);
    return true;
}

/* False: these are no words of a rank. */
static bool take_line(struct tr_crew *c, struct tr_member *m, const char *line)
{
    m->beat = tr_now();
    if (!m->known) return take_hello(c, m, line);
    if (sscanf(line, "bye %d", &m->status) == 1) {
        c->byes += !m->bye;
        m->bye = true;
        return true;
    }
    return take_beat(c, m, line);
}

/* False: the line is broken, or to be. */
static bool take_lines(struct tr_crew *c, struct tr_member *m)
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
            if (!take_line(c, m, begin)) return false;
        }
        m->filled -= (size_t)(begin - m->line);
        memmove(m->line, begin, m->filled);
        if (m->filled == sizeof m->line - 1) return false;
    }
}

/* ---- who comes ---- */

static struct tr_member *free_place(struct tr_crew *c)
{
    for (size_t i = 0; i < c->n; i++) /* of a stranger who has gone: seldom, so it may be searched for */
        if (c->member[i]->socket < 0 && !c->member[i]->known && c->known < c->n) return c->member[i];
    if (TR_GROW(&c->member, &c->capacity, c->n + 1) != TR_OK || TR_NEW(&c->member[c->n], 1) != TR_OK)
        return NULL;
    return c->member[c->n++];
}

static int take_newcomers(struct tr_crew *c)
{
    for (;;) {
        int yes = 1, fd = accept4(c->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0)
            return TR_OK; /* none, or one that has gone again, or no descriptor left: they try again */
        struct tr_member *m = free_place(c);
        if (!m) {
            close(fd);
            return TR_ERR_SYSTEM;
        }
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
        *m = (struct tr_member){.socket = fd, .state = nowhere, .since = tr_now(), .beat = tr_now()};
        TR_TRY(watch(c, fd, m));
    }
}

/* Whoever connects and does not say who he is does not stay. */
static void turn_strangers_away(struct tr_crew *c)
{
    enum { PATIENCE = 5 };
    if (c->known == c->n) return;
    double now = tr_now();
    for (size_t i = 0; i < c->n; i++)
        if (!c->member[i]->known && now - c->member[i]->since > PATIENCE) break_line(c, c->member[i]);
}

int tr_crew_turn(struct tr_crew *c)
{
    enum { MANY = 64 };
    struct epoll_event event[MANY];
    int n;
    do {
        n = epoll_wait(c->ready, event, MANY, 0);
        for (int i = 0; i < n; i++) {
            struct tr_member *m = event[i].data.ptr;
            if (!m) TR_TRY(take_newcomers(c));
            else if (m->socket >= 0 && !take_lines(c, m)) break_line(c, m);
        }
    } while (n == MANY);
    turn_strangers_away(c);
    return TR_OK;
}

/* ---- all of them ---- */

static bool listens(const struct tr_member *m)
{
    return m->known && m->socket >= 0;
}

const struct tr_member *tr_crew_silent(const struct tr_crew *c)
{
    const struct tr_member *longest = NULL;
    double now = tr_now();
    for (size_t i = 0; i < c->n; i++) {
        const struct tr_member *m = c->member[i];
        bool silent = listens(m) && now - m->beat > c->limit;
        if (silent && (!longest || m->beat < longest->beat)) longest = m;
    }
    return longest;
}

long tr_crew_waits(const struct tr_crew *c)
{
    long least = 0;
    if (c->known == 0 || (long)c->known < c->size || c->byes > 0) return 0;
    for (size_t i = 0; i < c->n; i++) {
        const struct tr_member *m = c->member[i];
        if (!m->known) continue;
        if (m->waits == 0) return 0;
        least = least == 0 || m->waits < least ? m->waits : least;
    }
    return least;
}

void tr_crew_excuse(struct tr_crew *c)
{
    double now = tr_now();
    for (size_t i = 0; i < c->n; i++) {
        c->member[i]->beat = now;
        c->member[i]->waits = 0;
    }
}

static void tell(const struct tr_crew *c, const char *text)
{
    for (size_t i = 0; i < c->n; i++)
        if (listens(c->member[i]))
            (void)!send(c->member[i]->socket, text, strlen(text), MSG_NOSIGNAL | MSG_DONTWAIT);
}

void tr_crew_tell_to_die(struct tr_crew *c)
{
    c->ending = true;
    tell(c, "die\n");
}

void tr_crew_tell_signal(const struct tr_crew *c, int number)
{
    char text[32];
    snprintf(text, sizeof text, "signal %d\n", number);
    tell(c, text);
}

size_t tr_crew_left(const struct tr_crew *c, bool kill)
{
    size_t left = 0;
    for (size_t i = 0; i < c->n; i++) {
        const struct tr_member *m = c->member[i];
        if (!m->known || !m->local || !tr_process_lives(m->pid, m->start)) continue;
        left++;
        if (kill) tr_process_kill(m->pid, m->start);
    }
    return left;
}
