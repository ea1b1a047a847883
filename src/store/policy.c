#define _GNU_SOURCE
#include "store/policy.h"

#include <math.h>
#include <signal.h>
#include <stdatomic.h>

#include "base/base.h"

/* ---- time ---- */

void tr_policy_open(struct tr_policy *p, const struct tr_job *job, double begin)
{
    const struct tr_job_pace *disk = &job->checkpoint.every, *memory = &job->checkpoint.memory;
    double now = tr_now(), most = job->checkpoint.max_time > 0 ? job->checkpoint.max_time : INFINITY;
    *p = (struct tr_policy){.disk = {disk->seconds, (int64_t)disk->clocks, .last = now},
                            .memory = {memory->seconds, (int64_t)memory->clocks, .last = now},
                            .most = most,
                            .end = begin + most};
    p->opened = p->obeyed = tr_signals_asked();
}

void tr_policy_enter(struct tr_policy *p)
{
    if (!p->entered) p->disk.last = p->memory.last = tr_now();
    p->entered = true;
    p->disk.last_clock = p->memory.last_clock = 0;
}

static bool is_due(const struct tr_pace *p, double now, int64_t clock)
{
    return (p->seconds > 0 && now >= p->last + p->seconds) ||
           (p->clocks > 0 && clock >= p->last_clock + p->clocks);
}

/* To stop takes a checkpoint, perhaps the end of one in memory first, and some time for the rest. */
static bool is_nearly_over(const struct tr_policy *p, double now)
{
    return isfinite(p->end) &&
           now >= p->end - fmax(p->most / 100, fmin(p->most / 5, p->disk.cost + p->memory.cost + 1));
}

enum tr_due tr_policy_due(const struct tr_policy *p, int64_t clock)
{
    double now = tr_now();
    if (tr_signals_stop() || is_nearly_over(p, now)) return TR_DUE_AND_STOP;
    return tr_signals_asked() > p->obeyed || is_due(&p->disk, now, clock) ? TR_DUE : TR_NOT_DUE;
}

bool tr_policy_memory_due(const struct tr_policy *p, int64_t clock)
{
    return is_due(&p->memory, tr_now(), clock);
}

void tr_policy_taken(struct tr_policy *p, int64_t clock, bool in_memory)
{
    p->memory.last = tr_now();
    p->memory.last_clock = clock;
    if (in_memory) return;
    p->disk.last = p->memory.last;
    p->disk.last_clock = clock;
    p->obeyed = tr_signals_asked();
}

int tr_policy_asked(const struct tr_policy *p)
{
    return tr_signals_asked() - p->opened;
}

/* ---- signals ---- */

/* They are the process's, not a context's; hence variables of the process. */
static _Atomic int asked, stops, ends, openers, catchers;
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

void tr_signals_open(void)
{
    struct sigaction ask = {.sa_handler = on_ask, .sa_flags = SA_RESTART};
    if (atomic_fetch_add(&openers, 1) > 0) return;
    atomic_store(&asked, 0);
    atomic_store(&stops, 0);
    atomic_store(&ends, 0);
    sigaction(SIGUSR1, &ask, &before_usr1);
    sigaction(SIGUSR2, &ask, &before_usr2);
}

void tr_signals_close(void)
{
    if (atomic_fetch_sub(&openers, 1) > 1) return;
    sigaction(SIGUSR1, &before_usr1, NULL);
    sigaction(SIGUSR2, &before_usr2, NULL);
}

void tr_signals_catch(void)
{
    struct sigaction end = {.sa_handler = on_end, .sa_flags = SA_RESTART};
    if (atomic_fetch_add(&catchers, 1) > 0) return;
    sigaction(SIGTERM, &end, &before_term);
    sigaction(SIGINT, &end, &before_int);
}

void tr_signals_release(void)
{
    if (atomic_fetch_sub(&catchers, 1) > 1) return;
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

void tr_signals_pass(bool stop)
{
    atomic_fetch_add(stop ? &stops : &asked, 1);
}
