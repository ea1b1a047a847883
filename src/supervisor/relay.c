#define _GNU_SOURCE
#include "supervisor/relay.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"

/* ---- lines ---- */

static void write_all(int fd, const char *text, size_t n)
{
    while (n > 0) {
        ssize_t written = write(fd, text, n);
        if (written < 0 && errno == EINTR) continue;
        if (written < 0 && errno == EAGAIN) { /* a terminal that its owner made so */
            struct pollfd ready = {.fd = fd, .events = POLLOUT};
            poll(&ready, 1, 100);
            continue;
        }
        if (written < 0) return; /* nobody reads it any more: the job goes on */
        text += written;
        n -= (size_t)written;
    }
}

static bool is_dashes(const char *line, size_t n)
{
    while (n > 0 && (line[n - 1] == '\n' || line[n - 1] == '\r')) n--;
    return n >= 40 && strspn(line, "-") >= n;
}

/* "[host:pid] …" is what Open MPI says in a process, "mpirun: …" what it says of ending itself. */
static bool is_noise(const struct tr_relay *r, const char *line)
{
    if (strncmp(line, "mpirun: ", 8) == 0 || strncmp(line, "prterun: ", 9) == 0) return true;
    if (*line != '[') return false;
    size_t host = strcspn(line, ":]\n");
    if (line[host] != ':') return false;
    char *end;
    long pid = strtol(line + host + 1, &end, 10);
    return end != line + host + 1 && *end == ']' && pid != r->first;
}

static void hear(struct tr_relay *r, const char *line, size_t n)
{
    size_t room = sizeof r->heard - 1 - r->heard_length;
    if (n > room) n = room;
    memcpy(r->heard + r->heard_length, line, n);
    for (size_t i = 0; i < n; i++)
        if (r->heard[r->heard_length + i] == '\n') r->heard[r->heard_length + i] = ' ';
    r->heard_length += n;
    r->heard[r->heard_length] = '\0';
}

/* A line with its end, or the last one without. */
static void pass_line(struct tr_relay *r)
{
    r->line[r->filled] = '\0';
    if (is_dashes(r->line, r->filled)) r->in_banner = !r->in_banner;
    else if (r->in_banner) hear(r, r->line, r->filled);
    else if (!is_noise(r, r->line)) write_all(r->to, r->line, r->filled);
    r->filled = 0;
}

static void filter(struct tr_relay *r, const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        r->line[r->filled++] = text[i];
        if (text[i] == '\n' || r->filled == sizeof r->line - 1) pass_line(r);
    }
}

void tr_relay_pass(struct tr_relay *r, const char *text, size_t n)
{
    if (n == 0) {
        if (r->filled > 0) pass_line(r);
    } else if (r->filters) {
        filter(r, text, n);
    } else {
        write_all(r->to, text, n);
    }
}

void tr_relay_take(struct tr_relay *r)
{
    if (tr_relay_holds(r)) return;
    r->taken = 0;
    if (r->from < 0) return;
    ssize_t n = read(r->from, r->chunk, sizeof r->chunk);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    r->taken = n > 0 ? n : -1;
}

bool tr_relay_holds(const struct tr_relay *r)
{
    return r->held > 0;
}

static bool is_to_be_held(struct tr_relay *r)
{
    static const char dashes[] = "----------------------------------------";
    const double patience = 0.3;
    bool suspect =
        !r->filters && r->taken > 0 && memmem(r->chunk, (size_t)r->taken, dashes, sizeof dashes - 1) != NULL;
    if (suspect && r->held == 0) r->held = tr_now();
    return suspect && tr_now() - r->held < patience;
}

void tr_relay_give(struct tr_relay *r)
{
    ssize_t n = r->taken;
    if (n == 0 || is_to_be_held(r)) return;
    r->held = 0;
    r->taken = 0;
    tr_relay_pass(r, r->chunk, n > 0 ? (size_t)n : 0);
    if (n > 0) return;
    close(r->from);
    r->from = -1;
}

/* ---- what mpirun says ---- */

static bool number_behind(const char *text, const char *words, long *number)
{
    const char *at = strstr(text, words);
    char *end;
    if (!at) return false;
    at += strlen(words);
    *number = strtol(at, &end, 10);
    return end != at;
}

/* "[[1234,1],2]" or "[prterun-host-1234@1,2]": the last number. */
static bool rank_of_name(const char *text, long *rank)
{
    const char *at = strstr(text, "Process name: "), *comma = NULL;
    if (!at) return false;
    for (at += strlen("Process name: "); *at && *at != ' '; at++)
        if (*at == ',') comma = at;
    return comma && number_behind(comma, ",", rank);
}

bool tr_relay_blames(const struct tr_relay *r, long *rank, int *signal, int *exit_code)
{
    long number = -1;
    *rank = *signal = *exit_code = -1;
    if (number_behind(r->heard, "exited on signal ", &number)) {
        *signal = (int)number;
        return number_behind(r->heard, "process rank ", rank);
    }
    if (!rank_of_name(r->heard, rank)) return false;
    if (!number_behind(r->heard, "Exit code: ", &number)) return false;
    *exit_code = (int)number;
    return true;
}
