#define _GNU_SOURCE
#include "supervisor/supervisor.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"

/* ---- output ---- */

static void write_all(int fd, const char *text, size_t n)
{
    while (n > 0) {
        ssize_t written = write(fd, text, n);
        if (written < 0 && errno == EINTR) continue;
        if (written < 0 && errno == EAGAIN) { /* a nonblocking terminal is busy */
            poll(&(struct pollfd){.fd = fd, .events = POLLOUT}, 1, 100);
            continue;
        }
        if (written < 0) return; /* the reader has closed the pipe: the job continues without output */
        text += written;
        n -= (size_t)written;
    }
}

/* Passes on a line, including its line feed if it has one. Omits the banner of mpirun, messages of Open MPI in other processes,
 * which start with "[host:pid]", and messages of mpirun about its own end, which start with "mpirun: ". */
static void relay_pass_line(struct tr_relay *r)
{
    char *line = r->line, *end;
    size_t n = r->filled, host = 0;
    line[n] = '\0';
    while (n > 0 && (line[n - 1] == '\n' || line[n - 1] == '\r')) n--;
    if (n >= 40 && strspn(line, "-") >= n) {
        r->in_banner = !r->in_banner;
    } else if (r->in_banner) {
        n = tr_min_size(r->filled, sizeof r->banner - 1 - r->banner_length);
        for (size_t i = 0; i < n; i++)
            r->banner[r->banner_length++] = (char)(line[i] == '\n' ? ' ' : line[i]);
        r->banner[r->banner_length] = '\0';
    } else {
        bool noise = strncmp(line, "mpirun: ", 8) == 0 || strncmp(line, "prterun: ", 9) == 0;
        if (*line == '[' && line[host = strcspn(line, ":]\n")] == ':') {
            long pid = strtol(line + host + 1, &end, 10);
            noise = end != line + host + 1 && *end == ']' && pid != r->first;
        }
        if (!noise) write_all(r->to, line, r->filled);
    }
    r->filled = 0;
}

void tr_relay_pass(struct tr_relay *r, const char *text, size_t n)
{
    if (n == 0 && r->filled > 0) relay_pass_line(r);
    if (!r->filters) write_all(r->to, text, n);
    for (size_t i = 0; r->filters && i < n; i++) {
        if (text[i] == '\0') continue; /* Open MPI 5 also writes the terminating NUL of strings */
        r->line[r->filled++] = text[i];
        if (text[i] == '\n' || r->filled == sizeof r->line - 1) relay_pass_line(r);
    }
}

static bool relay_has_taken(const struct tr_relay *r, const char *words)
{
    return r->taken > 0 && memmem(r->chunk, (size_t)r->taken, words, strlen(words));
}

void tr_relay_take(struct tr_relay *r)
{
    size_t room = sizeof r->chunk - (size_t)r->taken;
    if (r->from < 0 || room == 0) return;
    ssize_t n = read(r->from, r->chunk + r->taken, room);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n > 0) r->taken += n;
    else if (r->taken == 0) r->taken = -1;
    r->lost_folder = r->lost_folder || relay_has_taken(r, "util/session_dir.c");
}

static const char relay_dashes[] = "----------------------------------------";

void tr_relay_give(struct tr_relay *r)
{
    ssize_t n = r->taken;
    if (n == 0) return;
    if (!r->filters && relay_has_taken(r, relay_dashes)) {
        if (r->held == 0) r->held = tr_now();
        if (tr_now() - r->held < r->patience) return;
    }
    r->held = 0;
    r->taken = 0;
    tr_relay_pass(r, r->chunk, n > 0 ? (size_t)n : 0);
    if (n > 0) return;
    close(r->from);
    r->from = -1;
}

static bool number_behind(const char *text, const char *words, long *number)
{
    const char *at = strstr(text, words);
    char *end;
    if (!at) return false;
    at += strlen(words);
    *number = strtol(at, &end, 10);
    return end != at;
}

bool tr_relay_blames(const struct tr_relay *r, long *rank, int *signal, int *exit_code)
{
    long number = -1;
    *rank = *signal = *exit_code = -1;
    if (number_behind(r->banner, "exited on signal ", &number)) {
        *signal = (int)number;
        return number_behind(r->banner, "process rank ", rank);
    }
    /* the rank is the last number of "[[1234,1],2]" or "[prterun-host-1234@1,2]" */
    const char *at = strstr(r->banner, "Process name: "), *comma = NULL;
    for (at += at ? strlen("Process name: ") : 0; at && *at && *at != ' '; at++)
        if (*at == ',') comma = at;
    if (!comma || !number_behind(comma, ",", rank) || !number_behind(r->banner, "Exit code: ", &number))
        return false;
    *exit_code = (int)number;
    return true;
}

bool tr_relay_misses_daemon(const struct tr_relay *r)
{
    return strstr(r->banner, "daemon") || (relay_has_taken(r, relay_dashes) && relay_has_taken(r, "daemon"));
}

/* ---- the process ---- */

/* Executes mpirun in the child process, with the signal handlers and files that it would have without a supervisor. */
static void become(const char *const argv[], pid_t parent, int out, int err, int trouble)
{
    sigset_t none;
    sigemptyset(&none);
    signal(SIGPIPE, SIG_DFL);
    sigprocmask(SIG_SETMASK, &none, NULL);
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM); /* mpirun then terminates its ranks on all hosts and cleans up */
    int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (nothing >= 0) dup2(nothing, STDIN_FILENO); /* a background process must not read from the terminal */
    dup2(out, STDOUT_FILENO);
    dup2(err, STDERR_FILENO);
    if (getppid() == parent) execvp(argv[0], (char *const *)(uintptr_t)argv);
    int error = errno;
    (void)!write(trouble, &error, sizeof error);
    _exit(127);
}

int tr_mpirun_start(const char *const argv[], struct tr_mpirun *m)
{
    enum { OUT, ERR, TROUBLE, PIPES };
    int pipes[PIPES][2], opened = 0;
    *m = (struct tr_mpirun){.out = {.from = -1}, .err = {.from = -1}};
    pid_t parent = getpid(), child = -1;
    while (opened < PIPES && pipe2(pipes[opened], O_CLOEXEC) == 0) opened++;
    if (opened == PIPES) child = fork();
    if (child == 0) become(argv, parent, pipes[OUT][1], pipes[ERR][1], pipes[TROUBLE][1]);
    int error = errno;
    if (child > 0)
        setpgid(child, child); /* parent and child both call it, because their order is undefined */
    for (int i = 0; i < opened; i++) close(pipes[i][1]);
    if (child < 0) {
        for (int i = 0; i < opened; i++) close(pipes[i][0]);
        return tr_fail(TR_ERR_SYSTEM, "%s cannot be started: %s", argv[0], strerror(error));
    }
    ssize_t n;
    do n = read(pipes[TROUBLE][0], &error, sizeof error); /* the error of execvp(), or nothing */
    while (n < 0 && errno == EINTR);
    close(pipes[TROUBLE][0]);
    for (int i = OUT; i <= ERR; i++) fcntl(pipes[i][0], F_SETFL, O_NONBLOCK);
    m->pid = child;
    m->out = (struct tr_relay){.from = pipes[OUT][0], .to = STDOUT_FILENO};
    m->err = (struct tr_relay){.from = pipes[ERR][0], .to = STDERR_FILENO};
    if (n != (ssize_t)sizeof error) return TR_OK;
    waitpid(child, &m->wait_status, 0);
    m->ended = true;
    tr_mpirun_close(m);
    return tr_fail(TR_ERR_NO_INPUT, "%s cannot be started: %s", argv[0], strerror(error));
}

bool tr_mpirun_is_over(struct tr_mpirun *m)
{
    if (!m->ended) m->ended = waitpid(m->pid, &m->wait_status, WNOHANG) == m->pid;
    return m->ended;
}

void tr_mpirun_filter(struct tr_mpirun *m, long first)
{
    m->out.filters = m->err.filters = true;
    m->out.first = m->err.first = first;
}

void tr_mpirun_close(struct tr_mpirun *m)
{
    struct tr_relay *const relays[] = {&m->out, &m->err};
    for (int i = 0; i < 2; i++) {
        struct tr_relay *r = relays[i];
        r->patience = 0;
        do {
            tr_relay_give(r);
            tr_relay_take(r);
        } while (r->taken > 0);
        tr_relay_give(r);
        if (r->from < 0) continue;
        tr_relay_pass(r, NULL, 0); /* no end of the input, because another process keeps the pipe open */
        close(r->from);
        r->from = -1;
    }
}
