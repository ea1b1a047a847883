#define _GNU_SOURCE
#include "supervisor/verdict.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

/* ---- in words ---- */

static void add(char *text, size_t size, const char *format, ...) __attribute__((format(printf, 3, 4)));
static void add(char *text, size_t size, const char *format, ...)
{
    size_t n = strlen(text);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text + n, size - n, format, arguments);
    va_end(arguments);
}

static void add_who(const struct tr_failure *f, char *text, size_t size)
{
    if (f->kind == TR_CAUSE_STUCK)
        add(text, size, "all ranks have been waiting for one another for %d s,", f->number);
    else if (f->mpirun) add(text, size, "mpirun");
    else if (f->rank >= 0) add(text, size, "rank %ld", f->rank);
    else add(text, size, "a rank");
    if (f->pid > 0) add(text, size, " (pid %ld", f->pid);
    if (f->pid > 0 && *f->host) add(text, size, " on %s", f->host);
    if (f->pid > 0) add(text, size, ")");
}

static void add_what(const struct tr_failure *f, char *text, size_t size)
{
    const char *name = f->kind == TR_CAUSE_SIGNAL ? sigabbrev_np(f->number) : NULL;
    switch (f->kind) {
    case TR_CAUSE_SIGNAL:
        if (name) add(text, size, " was killed by SIG%s", name);
        else add(text, size, " was killed by signal %d", f->number);
        break;
    case TR_CAUSE_EXIT: add(text, size, " left with exit code %d", f->number); break;
    case TR_CAUSE_SILENT:
        add(text, size,
            f->stopped ? " is stopped: no sign of life for %d s" : " hangs: no sign of life for %d s",
            f->number);
        break;
    case TR_CAUSE_STUCK: break; /* add_who() has said it */
    case TR_CAUSE_GONE: add(text, size, " is gone"); break;
    case TR_CAUSE_NONE: add(text, size, " is well"); break;
    }
}

static void add_where(const struct tr_failure *f, char *text, size_t size)
{
    if (f->at.phase == TR_LIFE_STARTING) add(text, size, " while starting");
    if (f->at.phase == TR_LIFE_LOADING) add(text, size, " while loading data");
    if (f->at.phase != TR_LIFE_TRAINING) return;
    if (f->at.stage > 1) add(text, size, " in stage %lld", (long long)f->at.stage);
    if (f->at.clock >= 0) add(text, size, " at clock %lld", (long long)f->at.clock);
    else add(text, size, " before its first clock");
    if (isfinite(f->epoch)) add(text, size, ", epoch %.2f", f->epoch);
}

void tr_failure_describe(const struct tr_failure *f, char *text, size_t size)
{
    *text = '\0';
    add_who(f, text, size);
    add_what(f, text, size);
    add_where(f, text, size);
}

void tr_failure_loss(const struct tr_failure *f, char *text, size_t size)
{
    long long clock = (long long)f->at.clock, kept = (long long)f->at.kept_clock;
    bool same = f->at.stage == f->at.kept_stage;
    *text = '\0';
    if (f->at.phase != TR_LIFE_TRAINING) return;
    if (kept < 0 && clock > 0)
        snprintf(text, size, "%lld clock%s lost: no checkpoint yet", clock, clock == 1 ? " is" : "s are");
    if (kept < 0) return;
    if (same && clock > kept)
        snprintf(text, size, "%lld clock%s since the checkpoint of clock %lld %s lost", clock - kept,
                 clock - kept == 1 ? "" : "s", kept, clock - kept == 1 ? "is" : "are");
    else if (same) snprintf(text, size, "nothing since the checkpoint of clock %lld is lost", kept);
    else
        snprintf(text, size, "what came after the checkpoint of stage %lld, clock %lld is lost",
                 (long long)f->at.kept_stage, kept);
}

int tr_failure_code(const struct tr_failure *f)
{
    switch (f->kind) {
    case TR_CAUSE_NONE: return TR_OK;
    case TR_CAUSE_SIGNAL: return 128 + f->number;
    case TR_CAUSE_EXIT: return f->number;
    default: return TR_ERR_PEER;
    }
}

bool tr_code_is_final(int code)
{
    static const int final[] = {TR_OK,           TR_ERR_USAGE,     TR_ERR_DATA,
                                TR_ERR_NO_INPUT, TR_ERR_NO_OUTPUT, TR_ERR_STOPPED,
                                TR_ERR_DIVERGED, TR_ERR_CONFIG};
    for (size_t i = 0; i < sizeof final / sizeof *final; i++)
        if (final[i] == code) return true;
    return false;
}

/* ---- again? ---- */

struct tr_history tr_history_begin(void)
{
    static const struct tr_life_state nowhere = {.clock = -1, .kept_clock = -1};
    return (struct tr_history){.best = nowhere};
}

/* Others may have ended the clock in which one failed, or not: by chance. */
static bool is_same_place(const struct tr_life_state *a, const struct tr_life_state *b)
{
    return a->phase == b->phase && a->stage == b->stage && llabs((long long)(a->clock - b->clock)) <= 1;
}

static bool is_alike(const struct tr_failure *a, const struct tr_failure *b)
{
    return a->kind == b->kind && a->rank == b->rank && a->mpirun == b->mpirun &&
           (a->kind == TR_CAUSE_SILENT || a->kind == TR_CAUSE_STUCK || a->number == b->number) &&
           is_same_place(&a->at, &b->at);
}

enum tr_decision tr_judge(struct tr_history *h, const struct tr_failure *f, int max_restarts, double *pause)
{
    bool kept = tr_life_is_kept_beyond(&f->at, &h->best), farther = tr_life_is_beyond(&f->at, &h->best);
    h->alike = h->alike > 0 && !kept && is_alike(f, &h->last) ? h->alike + 1 : 1;
    h->idle = kept || farther ? 1 : h->idle + 1;
    h->last = *f;
    tr_life_advance(&h->best, &f->at);
    *pause = h->idle < 2 ? 0 : h->idle < 8 ? (double)(1 << (h->idle - 2)) : TR_LONGEST_PAUSE;
    if (h->alike >= TR_ALIKE) return TR_FAILS_ALIKE;
    if (h->restarts >= max_restarts) return TR_FAILS_TOO_OFTEN;
    h->restarts++;
    return TR_START_AGAIN;
}
