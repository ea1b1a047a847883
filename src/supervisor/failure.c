#define _GNU_SOURCE
#include "supervisor/failure.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

void tr_failure_describe(const struct tr_failure *f, char *text, size_t size)
{
    const char *name = f->kind == TR_CAUSE_SIGNAL ? sigabbrev_np(f->number) : NULL;
    FILE *to = fmemopen(text, size, "w");
    *text = '\0';
    if (!to) return;
    if (f->kind == TR_CAUSE_STUCK)
        fprintf(to, "all ranks have been waiting for one another for %d s,", f->number);
    else if (f->mpirun) fputs("mpirun", to);
    else if (f->rank >= 0) fprintf(to, "rank %ld", f->rank);
    else if (f->kind == TR_CAUSE_SILENT && f->pid == 0) /* no rank has connected, and the reason is unknown */
        fputs("no rank has started: mpirun waits for a host or its daemon there and", to);
    else fputs("a rank", to);
    if (f->pid > 0) tr_printf(to, " (pid %ld%s%s)", f->pid, *f->host ? " on " : "", f->host);
    switch (f->kind) {
    case TR_CAUSE_SIGNAL:
        if (name) tr_printf(to, " was killed by SIG%s", name);
        else fprintf(to, " was killed by signal %d", f->number);
        break;
    case TR_CAUSE_EXIT: fprintf(to, " left with exit code %d", f->number); break;
    case TR_CAUSE_SILENT:
        tr_printf(to, " %s: no sign of life for %d s", f->stopped ? "is stopped" : "hangs", f->number);
        break;
    case TR_CAUSE_HOST:
        fputs(" could not start its daemon on a host, or lost it: expected ssh and Open MPI on each", to);
        break;
    case TR_CAUSE_STUCK: break; /* the subject already contains it */
    case TR_CAUSE_GONE: fputs(" is gone", to); break;
    case TR_CAUSE_NONE: fputs(" is well", to); break;
    }
    bool training = f->at.phase == TR_LIFE_TRAINING && f->kind != TR_CAUSE_HOST;
    if (f->kind != TR_CAUSE_HOST && f->at.phase == TR_LIFE_STARTING) fputs(" while starting", to);
    if (f->kind != TR_CAUSE_HOST && f->at.phase == TR_LIFE_LOADING) fputs(" while loading data", to);
    if (training && f->at.stage > 1) fprintf(to, " in stage %lld", (long long)f->at.stage);
    if (training && f->at.clock >= 0) fprintf(to, " at clock %lld", (long long)f->at.clock);
    if (training && f->at.clock < 0) fputs(" before its first clock", to);
    if (training && isfinite(f->epoch)) fprintf(to, ", epoch %.2f", f->epoch);
    fclose(to);
}

void tr_failure_loss(const struct tr_failure *f, char *text, size_t size)
{
    long long clock = (long long)f->at.clock, kept = (long long)f->at.kept_clock, lost = clock - kept;
    *text = '\0';
    if (f->at.phase != TR_LIFE_TRAINING || (kept < 0 && clock <= 0)) return;
    if (kept < 0)
        snprintf(text, size, "%lld clock%s lost: no checkpoint yet", clock, clock == 1 ? " is" : "s are");
    else if (f->at.stage != f->at.kept_stage)
        snprintf(text, size, "what came after the checkpoint of stage %lld, clock %lld is lost",
                 (long long)f->at.kept_stage, kept);
    else if (lost > 0)
        snprintf(text, size, "%lld clock%s since the checkpoint of clock %lld %s lost", lost,
                 lost == 1 ? "" : "s", kept, lost == 1 ? "is" : "are");
    else snprintf(text, size, "nothing since the checkpoint of clock %lld is lost", kept);
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

bool tr_failure_is_final(const struct tr_failure *f, const struct tr_history *before)
{
    static const int final[] = {TR_OK,           TR_ERR_USAGE,     TR_ERR_DATA,
                                TR_ERR_NO_INPUT, TR_ERR_NO_OUTPUT, TR_ERR_STOPPED,
                                TR_ERR_DIVERGED, TR_ERR_NO_PERM,   TR_ERR_CONFIG};
    if (f->kind != TR_CAUSE_EXIT) return false;
    for (size_t i = 0; i < sizeof final / sizeof *final; i++)
        if (final[i] == f->number) return true;
    return f->number == TR_ERR_SYSTEM && f->at.phase < TR_LIFE_TRAINING &&
           before->best.phase < TR_LIFE_TRAINING;
}

enum tr_decision tr_history_add(struct tr_history *h, const struct tr_failure *f, int max_restarts,
                                double *pause)
{
    bool kept = tr_life_is_kept_beyond(&f->at, &h->best), farther = tr_life_is_beyond(&f->at, &h->best);
    /* Alike: of the same kind at the same clock, up to one, because it is chance whether other ranks complete the clock of the
     * failure. Seconds are not compared. */
    const struct tr_failure *l = &h->last;
    bool timed = f->kind == TR_CAUSE_SILENT || f->kind == TR_CAUSE_STUCK;
    bool alike = f->kind == l->kind && f->rank == l->rank && f->mpirun == l->mpirun &&
                 (timed || f->number == l->number) && f->at.phase == l->at.phase &&
                 f->at.stage == l->at.stage && llabs((long long)(f->at.clock - l->at.clock)) <= 1;
    h->alike = h->alike > 0 && !kept && alike ? h->alike + 1 : 1;
    h->idle = kept || farther ? 1 : h->idle + 1;
    h->last = *f;
    tr_life_advance(&h->best, &f->at);
    *pause = h->idle < 2 ? 0 : h->idle < 8 ? (double)(1 << (h->idle - 2)) : TR_LONGEST_PAUSE;
    if (h->alike >= TR_ALIKE) return TR_FAILS_ALIKE;
    if (h->restarts >= max_restarts) return TR_FAILS_TOO_OFTEN;
    h->restarts++;
    return TR_START_AGAIN;
}
