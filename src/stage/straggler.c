#include "stage/stage.h"

#include <math.h>

#include "table/table.h"

/* The stream of random numbers that chooses who is slow; those of workers are numbered from 0. */
enum { CHOOSE = -18 };

/* ---- who ---- */

int tr_slowed_workers(const struct tr_job *job, int workers)
{
    if (job->experiment.slow <= 0) return 0;
    return tr_max_int(1, (int)lround(job->experiment.slow * workers));
}

/* Selection sampling: of the workers that are left to be looked at, each is taken with the chance that keeps the number
 * exact (Knuth, The Art of Computer Programming, volume 2, algorithm 3.4.2 S). */
bool tr_is_slowed(const struct tr_job *job, int workers, int worker)
{
    struct tr_rng rng;
    tr_rng_seed(&rng, job->seed, (uint64_t)CHOOSE, 0);
    int wanted = tr_slowed_workers(job, workers);
    for (int w = 0; w <= worker; w++) {
        bool taken = tr_rng_below(&rng, (uint64_t)(workers - w)) < (uint64_t)wanted;
        if (w == worker) return taken;
        wanted -= taken;
    }
    return false;
}

/* ---- sleeping ---- */

/* Short sleeps, so that the server and the scheduler of this rank answer within a millisecond, and at once while messages
 * keep coming. */
static int sleep_until(tr_context *tr, double end)
{
    const double shortest = 50e-6, longest = 1e-3;
    double pause = shortest;
    for (double left; (left = end - tr_now()) > 0;) {
        int did = 0;
        TR_TRY(tr_progress(tr, &did));
        pause = did ? shortest : fmin(1.5 * pause, longest);
        tr_sleep(fmin(pause, left));
    }
    return TR_OK;
}

/* Time of this clock so far: computing and transferring. */
static double own_time(const struct tr_straggler *s)
{
    return tr_now() - s->begin - (s->tr->tables->traffic.wait_seconds - s->waited);
}

static double moving_time(const struct tr_straggler *s)
{
    const struct tr_traffic *t = &s->tr->tables->traffic;
    return t->pull_seconds + t->push_seconds - s->moved - (s->network ? s->nap : 0);
}

/* Naps add up to level - 1 times all that was computed and transferred, but each is in proportion to that part of its
 * own clock which is said to be slow; what the proportion misses is made up for in the next. What is pushed after a nap
 * counts for the next one, too. */
static double nap_for(struct tr_straggler *s)
{
    double transferred = s->transferred + moving_time(s);
    double computed = s->computed + own_time(s) - moving_time(s);
    double slow = s->network ? transferred : computed, all = (s->level - 1) * (computed + transferred);
    double share = slow > 0 ? fmax(0, slow - s->paid) / slow * all : 0;
    double planned = share + s->missed;
    s->missed += all - s->all - planned;
    s->paid = slow;
    s->all = all;
    return planned;
}

static int nap(struct tr_straggler *s)
{
    s->napped = true;
    s->natural = own_time(s);
    s->owed += nap_for(s);
    double missing = s->level * s->least - s->natural - s->late; /* up to the least clock */
    double wanted = fmax(s->owed, missing);
    if (wanted <= 0) return TR_OK;
    double begin = tr_now();
    TR_TRY(sleep_until(s->tr, begin + wanted));
    s->nap = tr_now() - begin;
    s->owed = s->owed >= missing ? s->owed - s->nap : 0;
    if (s->network) s->tr->tables->traffic.push_seconds += s->nap;
    return TR_OK;
}

static int before_push(void *who)
{
    struct tr_straggler *s = who;
    return s->computing && !s->napped ? nap(s) : TR_OK;
}

/* ---- a worker's clocks ---- */

void tr_straggler_open(tr_context *tr, int worker, struct tr_straggler *s)
{
    const struct tr_job *job = tr->job;
    *s = (struct tr_straggler){.tr = tr, .level = 1};
    if (!job) return;
    s->on = job->experiment.slow > 0 || job->experiment.clock > 0;
    s->least = job->experiment.clock;
    s->network = job->experiment.kind == TR_SLOW_NETWORK;
    s->slowed = tr_is_slowed(job, tr_layout_workers(&tr->layout), worker);
    if (s->slowed) s->level = job->experiment.level;
    if (!s->on) return;
    tr->before_push = before_push;
    tr->before_push_state = s;
}

void tr_straggler_close(struct tr_straggler *s)
{
    if (!s->on) return;
    s->tr->before_push = NULL;
    s->tr->before_push_state = NULL;
    s->on = false;
}

void tr_straggler_begin(struct tr_straggler *s)
{
    if (!s->on) return;
    const struct tr_traffic *t = &s->tr->tables->traffic;
    s->begin = tr_now();
    s->waited = t->wait_seconds;
    s->moved = t->pull_seconds + t->push_seconds;
    s->nap = 0;
    s->napped = false;
    s->computing = true;
}

int tr_straggler_end(struct tr_straggler *s)
{
    if (!s->on) return TR_OK;
    s->computing = false;
    if (!s->napped) TR_TRY(nap(s));
    double own = own_time(s), moving = moving_time(s);
    s->transferred += moving;
    s->computed += own - s->nap - moving;
    s->seconds += own;
    /* oversleeping and the time after the sleep are subtracted from the next sleep, but not from many: a worker that was
     * delayed for long does not run for many clocks without sleeping */
    double due = s->level * fmax(s->least, s->natural);
    s->late = fmin(fmax(own + s->late - due, 0), s->least);
    return TR_OK;
}

/* ---- the level reached ---- */

void tr_heterogeneity_say(const tr_context *tr, const struct tr_heterogeneity *h)
{
    char reached[48] = "";
    if (h->slowed == 0) return;
    if (isfinite(h->reached)) snprintf(reached, sizeof reached, ", reached %.2f", h->reached);
    bool far = fabs(h->reached - h->asked) > 0.15 * h->asked;
    tr_say(tr, "heterogeneity: asked %g%s: %d of %d workers slowed%s", h->asked, reached, h->slowed,
           h->workers,
           far ? "; experiment.clock, longer than a clock takes otherwise, brings it closer" : "");
}
