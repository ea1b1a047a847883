#define _GNU_SOURCE
#include "ranks/lifeline.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/base.h"

struct tr_lifeline {
    pthread_t thread;
    int wake;    /* eventfd that wakes the thread to send */
    char *where; /* addresses: start of a copy of TRIREME_SUPERVISOR, which is split at colons */
    char *port;  /* port and token point into that copy */
    char *token;
    _Atomic int phase;
    _Atomic int64_t stage, clock, kept_stage, kept_clock;
    _Atomic int ended, status;           /* 1: the thread must say bye with this status and end */
    _Atomic int working;                 /* number of other threads that work (tr_lifeline_work()) */
    _Atomic double waits, waits_said_at; /* last tr_lifeline_wait(): its seconds, its time (tr_now()) */
    _Atomic double inside;               /* start of the current blocking MPI call (tr_now()); 0: none */
    _Atomic double patience;             /* seconds that the MPI call may take; 0: see tr_lifeline_enter() */

    /* number of clocks of this stage that were sent immediately: the first two, which show that the rank progresses again */
    int said;

    /* used by the thread only */
    int socket;
    int period, limit;           /* milliseconds */
    unsigned held;               /* bit i: signal i is not yet delivered */
    char line[TR_LIFELINE_LINE]; /* received text that is not yet executed: `filled` bytes */
    size_t filled;
};

/* ---- to the supervisor ---- */

/* Sends a line without blocking. If the buffer of the socket is full, because the supervisor does not read, the line is lost. */
__attribute__((format(printf, 2, 3))) static void lifeline_tell(const struct tr_lifeline *l,
                                                                const char *format, ...)
{
    char text[TR_LIFELINE_LINE];
    va_list arguments;
    va_start(arguments, format);
    int n = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (n > 0 && (size_t)n < sizeof text)
        (void)!send(l->socket, text, (size_t)n, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* Returns the seconds of the current wait, 0 if there is none. A wait is over if tr_lifeline_wait() was not called for `fresh`
 * seconds. Short waits count as 0: other ranks may start to wait for this rank before the supervisor knows that its wait has
 * ended. */
static long lifeline_waits(const struct tr_lifeline *l)
{
    const double fresh = 3, told = 2e-3 * l->period;
    double inside = atomic_load(&l->inside), since = tr_now() - inside, patience = atomic_load(&l->patience);
    if (patience <= 0) patience = 1e-3 * TR_LIFELINE_STARTS * l->limit;
    if (inside > 0) return since > fresh + told && since > patience ? lround(since) : 0;
    if (atomic_load(&l->working) > 0 || tr_now() - atomic_load(&l->waits_said_at) > fresh) return 0;
    double seconds = atomic_load(&l->waits);
    return seconds > fresh + told ? lround(seconds) : 0;
}

static void lifeline_beat(const struct tr_lifeline *l)
{
    lifeline_tell(l, "beat %d %lld %lld %lld %lld %ld\n", atomic_load(&l->phase),
                  (long long)atomic_load(&l->stage), (long long)atomic_load(&l->clock),
                  (long long)atomic_load(&l->kept_stage), (long long)atomic_load(&l->kept_clock),
                  lifeline_waits(l));
}

/* ---- from the supervisor ---- */

/* Delivers held signals to this process. SIGUSR1 and SIGUSR2 stay held until the process has handlers for them, since without
 * handlers they would kill it. They stay held, too, if they are ignored, which a job script may have caused. */
static void deliver_signals(struct tr_lifeline *l)
{
    for (int number = 1; l->held && number < 32; number++) {
        struct sigaction action;
        bool handled = sigaction(number, NULL, &action) == 0 && action.sa_handler != SIG_DFL &&
                       action.sa_handler != SIG_IGN;
        if (!(l->held & 1u << number) || (!handled && (number == SIGUSR1 || number == SIGUSR2))) continue;
        l->held &= ~(1u << number);
        kill(getpid(), number); /* not raise(): this thread blocks all signals */
    }
}

/* Exits without cleaning up: results are either on disk, or useless because another rank has failed. */
static void lifeline_die(const struct tr_lifeline *l)
{
    lifeline_beat(l);
    _exit(TR_ERR_PEER);
}

/* Receives and executes commands. Returns false if the connection is closed. An incomplete line remains in the buffer. */
static bool lifeline_listen(struct tr_lifeline *l)
{
    ssize_t n = recv(l->socket, l->line + l->filled, sizeof l->line - 1 - l->filled, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return true;
    if (n <= 0) return false;
    l->filled += (size_t)n;
    l->line[l->filled] = '\0';
    char *begin = l->line, *end;
    for (; (end = strchr(begin, '\n')) != NULL; begin = end + 1) {
        int number;
        *end = '\0';
        if (!l->period) {
            if (sscanf(begin, "welcome %d %d", &l->period, &l->limit) != 2 || l->period < 1) return false;
        } else if (strcmp(begin, "die") == 0) {
            lifeline_die(l);
        } else if (sscanf(begin, "signal %d", &number) == 1 && number >= 1 && number <= 31) {
            l->held |= 1u << number;
            deliver_signals(l);
        }
    }
    l->filled -= (size_t)(begin - l->line);
    memmove(l->line, begin, l->filled);
    return l->filled < sizeof l->line - 1;
}

/* ---- connecting ---- */

/* Waits until the socket has events, lifeline_wake() is called, or the time is over. Returns the events of the socket, or 0. */
static short lifeline_poll(const struct tr_lifeline *l, short events, int milliseconds)
{
    struct pollfd fds[2] = {{.fd = l->socket, .events = events}, {.fd = l->wake, .events = POLLIN}};
    if (poll(fds, 2, milliseconds) <= 0) return 0;
    uint64_t times;
    if (fds[1].revents) (void)!read(l->wake, &times, sizeof times);
    return fds[0].revents;
}

/* Connects to an address and waits for the welcome. On this host the address may belong to another program, which does not
 * answer. */
static bool lifeline_connect(struct tr_lifeline *l, const char *address)
{
    enum { PATIENCE = 2000, WELCOME = 5 }; /* limits: milliseconds to connect, seconds until the welcome */
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV}, *to;
    if (getaddrinfo(address, l->port, &hints, &to) != 0) return false;
    l->socket = socket(to->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    bool through = l->socket >= 0 && connect(l->socket, to->ai_addr, to->ai_addrlen) == 0;
    if (!through && l->socket >= 0 && errno == EINPROGRESS && lifeline_poll(l, POLLOUT, PATIENCE) & POLLOUT) {
        int error = 0;
        socklen_t size = sizeof error;
        through = getsockopt(l->socket, SOL_SOCKET, SO_ERROR, &error, &size) == 0 && error == 0;
    }
    freeaddrinfo(to);
    if (through) {
        char host[128] = "unknown";
        double end = tr_now() + WELCOME;
        gethostname(host, sizeof host - 1);
        l->filled = 0;
        lifeline_tell(l, "hello %d %s %ld %ld %ld %llu %s\n", (int)TR_LIFELINE_VERSION, l->token,
                      tr_number_in("OMPI_COMM_WORLD_RANK", tr_number_in("PMIX_RANK", 0)),
                      tr_number_in("OMPI_COMM_WORLD_SIZE", tr_number_in("SLURM_STEP_NUM_TASKS", 1)),
                      (long)getpid(), (unsigned long long)tr_start_ticks(), host);
        while (through && !l->period && !atomic_load(&l->ended) && tr_now() < end)
            if (lifeline_poll(l, POLLIN, 100) & (POLLIN | POLLHUP | POLLERR)) through = lifeline_listen(l);
    }
    if (through && l->period > 0) {
        int yes = 1;
        unsigned patience = 3 * (unsigned)l->limit; /* ms until the loss of the other host is detected */
        setsockopt(l->socket, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
        setsockopt(l->socket, IPPROTO_TCP, TCP_USER_TIMEOUT, &patience, sizeof patience);
        return true;
    }
    if (l->socket >= 0) close(l->socket);
    l->socket = -1;
    return false;
}

/* The thread. Tries all addresses until one connects; then sends heartbeats and executes commands. */
static void *lifeline_run(void *who)
{
    enum { TRIES = 60 };
    struct tr_lifeline *l = who;
    bool through = false;
    for (int i = 0; i < TRIES && !through && !atomic_load(&l->ended); i++) {
        char list[TR_LIFELINE_LINE], *rest = list, *address;
        snprintf(list, sizeof list, "%s", l->where);
        while (!through && (address = strsep(&rest, ",")) != NULL && !atomic_load(&l->ended))
            through = lifeline_connect(l, address);
        if (!through) lifeline_poll(l, 0, 500);
    }
    if (!through) return NULL;
    lifeline_beat(l);
    while (!atomic_load(&l->ended)) {
        bool said = lifeline_poll(l, POLLIN, l->period) != 0;
        if (said && !lifeline_listen(l)) lifeline_die(l);
        if (!said) lifeline_beat(l);
        deliver_signals(l);
    }
    lifeline_beat(l);
    lifeline_tell(l, "bye %d\n", atomic_load(&l->status));
    close(l->socket);
    return NULL;
}

/* ---- interface ---- */

static void lifeline_free(struct tr_lifeline *l)
{
    if (l->wake >= 0) close(l->wake);
    TR_FREE_ALL(l->where, l);
}

int tr_lifeline_start(struct tr_lifeline **line)
{
    enum { STACK = 256 << 10 };
    const char *where = getenv(TR_LIFELINE_VARIABLE);
    struct tr_lifeline *l;
    *line = NULL;
    if (!where) return TR_OK;
    TR_TRY(TR_NEW(&l, 1));
    l->socket = -1;
    l->clock = l->kept_clock = -1;
    l->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    int status = l->wake < 0 ? tr_fail(TR_ERR_SYSTEM, "eventfd: %s", strerror(errno))
                             : tr_copy_string(where, &l->where);
    /* ADDRESSES:PORT:TOKEN is split from its end, since addresses may contain colons */
    l->token = status == TR_OK ? strrchr(l->where, ':') : NULL;
    if (l->token) *l->token++ = '\0';
    l->port = l->token ? strrchr(l->where, ':') : NULL;
    if (l->port) *l->port++ = '\0';
    if (status == TR_OK && !l->port)
        status = tr_fail(TR_ERR_USAGE, "%s: %s: expected ADDRESS:PORT:TOKEN", TR_LIFELINE_VARIABLE, where);
    if (status == TR_OK) { /* all signals are blocked in the thread: the main thread receives them */
        sigset_t all, before;
        pthread_attr_t attributes;
        sigfillset(&all);
        pthread_sigmask(SIG_BLOCK, &all, &before);
        pthread_attr_init(&attributes);
        pthread_attr_setstacksize(&attributes, STACK);
        int error = pthread_create(&l->thread, &attributes, lifeline_run, l);
        pthread_attr_destroy(&attributes);
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        if (error) status = tr_fail(TR_ERR_SYSTEM, "no thread can be started: %s", strerror(error));
    }
    if (status == TR_OK) *line = l;
    else lifeline_free(l);
    return status;
}

static void lifeline_wake(const struct tr_lifeline *l)
{
    uint64_t once = 1;
    (void)!write(l->wake, &once, sizeof once);
}

void tr_lifeline_stop(struct tr_lifeline **line, int status)
{
    struct tr_lifeline *l = *line;
    if (!l) return;
    atomic_store(&l->status, status);
    atomic_store(&l->ended, 1);
    lifeline_wake(l);
    pthread_join(l->thread, NULL);
    lifeline_free(l);
    *line = NULL;
}

void tr_lifeline_load(struct tr_lifeline *l)
{
    if (!l || atomic_load(&l->phase) >= TR_LIFE_LOADING) return;
    atomic_store(&l->phase, TR_LIFE_LOADING);
    lifeline_wake(l);
}

void tr_lifeline_stage(struct tr_lifeline *l)
{
    if (!l) return;
    l->said = 0;
    atomic_store(&l->clock, -1);
    atomic_fetch_add(&l->stage, 1);
    atomic_store(&l->phase, TR_LIFE_TRAINING);
    lifeline_wake(l);
}

void tr_lifeline_clock(struct tr_lifeline *l, int64_t clock)
{
    enum { AT_ONCE = 2 };
    if (!l) return;
    atomic_store_explicit(&l->clock, clock, memory_order_relaxed);
    if (l->said < AT_ONCE) {
        l->said++;
        lifeline_wake(l);
    }
}

void tr_lifeline_kept(struct tr_lifeline *l, int64_t clock)
{
    if (!l) return;
    atomic_store(&l->kept_stage, atomic_load(&l->stage));
    atomic_store(&l->kept_clock, clock);
    lifeline_wake(l);
}

void tr_lifeline_wait(struct tr_lifeline *l, double seconds)
{
    if (!l) return;
    atomic_store(&l->waits, seconds);
    atomic_store(&l->waits_said_at, tr_now());
}

void tr_lifeline_enter(struct tr_lifeline *l, double patience)
{
    if (!l) return;
    atomic_store(&l->patience, patience);
    atomic_store(&l->inside, tr_now());
}

void tr_lifeline_through(struct tr_lifeline *l)
{
    if (l) atomic_store(&l->inside, 0);
}

void tr_lifeline_work(struct tr_lifeline *l, bool works)
{
    if (!l) return;
    if (!works) atomic_store(&l->waits_said_at, 0); /* drops a wait, which may have been for this work */
    atomic_fetch_add(&l->working, works ? 1 : -1);
}
