#define _GNU_SOURCE
#include "store/when.h"

#include <math.h>
#include <signal.h>
#include <stdatomic.h>

#include "base/base.h"

/* ---- time ---- */

void tr_when_open(struct tr_when *w, const struct tr_job *job, double begin)
{
    *w = (struct tr_when){.every = job->checkpoint.every.seconds,
                          .every_clocks = (int64_t)job->checkpoint.every.clocks,
                          .memory = job->checkpoint.memory.seconds,
                          .memory_clocks = (int64_t)job->checkpoint.memory.clocks,
                          .most = job->checkpoint.max_time > 0 ? job->checkpoint.max_time : INFINITY,
                          .last = tr_now()};
    w->last_memory = w->last;
    w->end = begin + w->most;
    w->opened = w->heard = tr_signals_asked();
}

void tr_when_enter(struct tr_when *w)
{
    if (!w->entered) w->last = w->last_memory = tr_now();
    w->entered = true;
    w->last_clock = w->last_memory_clock = 0;
}

/* To stop takes a checkpoint, perhaps the end of one in memory first, and some time for the rest. */
static bool is_nearly_over(const struct tr_when *w, double now)
{
    return now >= w->end - fmax(w->most / 100, fmin(w->most / 5, w->cost + w->memory_cost + 1));
}

enum tr_due tr_when_due(const struct tr_when *w, int64_t clock)
{
    double now = tr_now();
    if (tr_signals_stop() || (isfinite(w->end) && is_nearly_over(w, now))) return TR_DUE_AND_STOP;
    if (tr_signals_asked() > w->heard) return TR_DUE;
    if (w->every > 0 && now >= w->last + w->every) return TR_DUE;
    if (w->every_clocks > 0 && clock >= w->last_clock + w->every_clocks) return TR_DUE;
    return TR_NOT_DUE;
}

bool tr_when_memory_due(const struct tr_when *w, int64_t clock)
{
    if (w->memory > 0 && tr_now() >= w->last_memory + w->memory) return true;
    return w->memory_clocks > 0 && clock >= w->last_memory_clock + w->memory_clocks;
}

void tr_when_memory_taken(struct tr_when *w, int64_t clock)
{
    w->last_memory = tr_now();
    w->last_memory_clock = clock;
}

void tr_when_taken(struct tr_when *w, int64_t clock)
{
    tr_when_memory_taken(w, clock);
    w->last = w->last_memory;
    w->last_clock = clock;
    w->heard = tr_signals_asked();
}

/* ---- signals ---- */

/* They are the process's, not a context's; hence variables of the process. */
static _Atomic int asked, stops, ends, hearing, listening;
static _Atomic double first_end; /* as tr_now() */
static struct sigaction before_usr1, before_usr2, before_term, before_int;

static void on_ask(int number)
{
    if (number == SIGUSR1) atomic_fetch_add(&stops, 1);
    else atomic_fetch_add(&asked, 1);
}

/* The second time is meant: of these signals, as a time limit may announce itself by USR1, and other ranks may have got the
 * first one earlier. What comes right behind the first is the same one by another way: from Slurm and a supervisor. */
static void on_end(int number)
{
    const double same = 1;
    double now = tr_now();
    atomic_fetch_add(&stops, 1);
    if (atomic_fetch_add(&ends, 1) == 0) atomic_store(&first_end, now);
    if (now - atomic_load(&first_end) < same) return;
    sigaction(number, number == SIGTERM ? &before_term : &before_int, NULL);
    raise(number);
}

void tr_signals_hear(void)
{
    struct sigaction ask = {.sa_handler = on_ask, .sa_flags = SA_RESTART};
    if (atomic_fetch_add(&hearing, 1) > 0) return;
    atomic_store(&asked, 0);
    atomic_store(&stops, 0);
    atomic_store(&ends, 0);
    sigaction(SIGUSR1, &ask, &before_usr1);
    sigaction(SIGUSR2, &ask, &before_usr2);
}

void tr_signals_unhear(void)
{
    if (atomic_fetch_sub(&hearing, 1) > 1) return;
    sigaction(SIGUSR1, &before_usr1, NULL);
    sigaction(SIGUSR2, &before_usr2, NULL);
}

void tr_signals_listen(void)
{
    struct sigaction end = {.sa_handler = on_end, .sa_flags = SA_RESTART};
    if (atomic_fetch_add(&listening, 1) > 0) return;
    sigaction(SIGTERM, &end, &before_term);
    sigaction(SIGINT, &end, &before_int);
}

void tr_signals_deafen(void)
{
    if (atomic_fetch_sub(&listening, 1) > 1) return;
    sigaction(SIGTERM, &before_term, NULL);
    sigaction(SIGINT, &before_int, NULL);
}

bool tr_signals_stop(void)
{
    return atomic_load(&stops) > 0;
}

int tr_signals_asked(void)
{
    return atomic_load(&asked);
}

int tr_when_asked(const struct tr_when *w)
{
    return tr_signals_asked() - w->opened;
}

void tr_signals_pass(bool stop)
{
    atomic_fetch_add(stop ? &stops : &asked, 1);
}
