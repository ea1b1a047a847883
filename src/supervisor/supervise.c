#define _GNU_SOURCE
#include "supervisor/supervisor.h"

#include <math.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "monitor/status.h"
#include "supervisor/watch.h"

int tr_supervisor_cores(void)
{
    cpu_set_t set;
    int threads = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1, twins = 0;
    FILE *file = fopen("/sys/devices/system/cpu/smt/active", "re");
    if (file && fscanf(file, "%d", &twins) != 1) twins = 0;
    if (file) fclose(file);
    return tr_max_int(1, twins ? threads / 2 : threads);
}

/* ---- what status.json says ---- */

/* *seen: what it says, if it is that of this start: if its rank 0 wrote it. */
static bool sees_status(const struct tr_watch *w, struct tr_status_seen *seen)
{
    if (!w->wish->output) return false;
    *seen = tr_status_look(w->wish->output);
    for (size_t i = 0; i < w->crew.n; i++) {
        const struct tr_member *m = w->crew.member[i];
        if (m->known && m->rank == 0) return m->pid == (long)seen->pid;
    }
    return false;
}

static double epoch_of(const struct tr_watch *w)
{
    struct tr_status_seen seen;
    return sees_status(w, &seen) && seen.epoch > 0 ? seen.epoch : NAN;
}

/* Everything was trained and written, and all that was left was to leave. */
static bool is_complete(const struct tr_watch *w)
{
    struct tr_status_seen seen;
    return sees_status(w, &seen) && seen.done;
}

/* It was trained to the end, whatever failed afterwards: started again it would begin anew. */
static bool is_done(const struct tr_watch *w)
{
    struct tr_status_seen seen;
    char *summary;
    if (!sees_status(w, &seen)) return false;
    if (seen.done) return true;
    if (tr_format(&summary, "%s/summary.json", w->wish->output) != TR_OK) return false;
    bool there = access(summary, F_OK) == 0;
    free(summary);
    return there;
}

/* ---- mpirun's words ---- */

static const char *const exported[] = {TR_LIFELINE_VARIABLE, TR_ATTEMPT_VARIABLE, "TRIREME_TERMINAL",
                                       "TRIREME_FAULT"};
enum { EXPORTED = sizeof exported / sizeof *exported, TIME = 64 };

struct words {
    char **word; /* some are the wish's; ended by NULL */
    char time[TIME];
};

/* What of the time is left for another start, as a setting; false: there is none. */
static bool set_time_left(const struct tr_supervision *wish, double begun, struct words *words)
{
    const double least = 1;
    double left = wish->max_time - (tr_now() - begun);
    if (left < least) return false;
    long seconds = (long)left;
    snprintf(words->time, sizeof words->time, "checkpoint.max_time=%ld:%02ld", seconds / 60, seconds % 60);
    return true;
}

static int choose_words(const struct tr_supervision *wish, bool anew, bool limited, struct words *words)
{
    size_t n = 0, at = 0;
    while (wish->command[n]) n++;
    free(words->word);
    words->word = NULL;
    TR_TRY(TR_NEW(&words->word, n + 2 * EXPORTED + 2));
    char **to = words->word;
    for (; at < wish->options; at++) *to++ = wish->command[at];
    for (size_t i = 0; i < EXPORTED; i++) {
        if (!getenv(exported[i]) && i >= 2) continue;
        *to++ = (char *)(uintptr_t) "-x";
        *to++ = (char *)(uintptr_t)exported[i];
    }
    for (; at < n; at++)
        if (at != wish->fresh || wish->fresh == 0 || anew) *to++ = wish->command[at];
    if (limited) *to++ = words->time;
    *to = NULL;
    return TR_OK;
}

/* The ranks write to pipes; whether a person reads what comes out of them only we know. */
static void tell_of_terminal(void)
{
    char text[4] = "";
    for (int fd = STDOUT_FILENO; fd <= STDERR_FILENO; fd++)
        if (isatty(fd)) strcat(text, fd == STDOUT_FILENO ? "1" : "2");
    if (*text) setenv("TRIREME_TERMINAL", text, 1);
    else unsetenv("TRIREME_TERMINAL");
}

/* When one rank has died mpirun ends the others: at once, and not first by SIGTERM, which they would take a second to hear.
 * What there is to be saved at an orderly end is saved before. */
static void hurry_mpirun(void)
{
    setenv("OMPI_MCA_odls_base_sigkill_timeout", "0", 0);
    setenv("PRTE_MCA_odls_base_sigkill_timeout", "0", 0);
}

/* ---- one start after the other ---- */

struct story {
    struct tr_watch watch;
    struct tr_history history;
    struct words words;
    double begun;
};

static void say_failure(const struct tr_failure *f, const char *more)
{
    char what[512], loss[128];
    tr_failure_describe(f, what, sizeof what);
    tr_failure_loss(f, loss, sizeof loss);
    fprintf(stderr, "trireme: %s%s%s%s\n", what, *loss ? "; " : "", loss, more);
}

/* The user wanted it to stop, and it did not end by itself as it should: what was kept can be gone on from. */
static int stopped_code(const struct story *s)
{
    const struct tr_watch *w = &s->watch;
    bool kept = w->failure.at.kept_clock >= 0 || s->history.best.kept_clock >= 0;
    return kept || w->asked == SIGUSR1 ? TR_ERR_STOPPED : 128 + w->asked;
}

/* Ended by a signal, or mpirun says that of a rank. */
static bool was_killed(const struct tr_failure *f)
{
    return f->kind == TR_CAUSE_SIGNAL || (f->kind == TR_CAUSE_EXIT && f->number > 128);
}

/* How a start ended that is not followed by another one, whatever the cause: *code. */
static bool is_the_end(struct story *s, int *code)
{
    struct tr_watch *w = &s->watch;
    struct tr_failure *f = &w->failure;
    *code = tr_failure_code(f);
    if (f->kind == TR_CAUSE_NONE) return true;
    if (f->kind == TR_CAUSE_EXIT && (tr_code_is_final(f->number) || is_done(w))) return true;
    if (f->kind != TR_CAUSE_EXIT && is_complete(w)) {
        char what[512];
        tr_failure_describe(f, what, sizeof what);
        fprintf(stderr, "trireme: %s, when all was done\n", what);
        *code = TR_OK;
        return true;
    }
    bool began = w->crew.known > 0 || s->history.restarts > 0 || was_killed(f);
    if (!began) return true; /* mpirun has said why */
    f->epoch = epoch_of(w);
    if (!w->asked) return false;
    bool obeyed = w->hurry || (f->kind == TR_CAUSE_SIGNAL && (f->number == w->asked || f->number == SIGTERM));
    if (!obeyed) say_failure(f, ", while it was to stop");
    *code = stopped_code(s);
    return true;
}

static int give_up(const struct tr_failure *f, enum tr_decision decision, int restarts)
{
    if (decision == TR_FAILS_ALIKE)
        fprintf(stderr, "trireme: error: gave up: the same failure %d times in a row at the same place\n",
                TR_ALIKE);
    else
        fprintf(
            stderr,
            "trireme: error: gave up: started again %d time%s, which is as often as --max-restarts allows\n",
            restarts, restarts == 1 ? "" : "s");
    return tr_failure_code(f);
}

/* *again, or the code. */
static int judge(struct story *s, bool *again)
{
    struct tr_watch *w = &s->watch;
    double pause, ended = tr_now() - w->noticed;
    int code, most = w->wish->max_restarts;
    *again = false;
    if (is_the_end(s, &code)) return code;
    enum tr_decision decision = tr_judge(&s->history, &w->failure, most, &pause);
    char more[128] = "";
    if (decision == TR_START_AGAIN && pause > 0)
        snprintf(more, sizeof more, "; starting again in %.0f s (%d of %d)", pause, s->history.restarts,
                 most);
    else if (decision == TR_START_AGAIN)
        snprintf(more, sizeof more, "; ended in %.2f s, starting again (%d of %d)", ended,
                 s->history.restarts, most);
    say_failure(&w->failure, more);
    if (decision != TR_START_AGAIN) return give_up(&w->failure, decision, s->history.restarts);
    tr_watch_pause(w, pause);
    if (w->asked) return stopped_code(s);
    *again = true;
    return TR_OK;
}

static int run_all(struct story *s)
{
    const struct tr_supervision *wish = s->watch.wish;
    bool again = true, anew = true, limited = false;
    int code = TR_OK;
    while (again) {
        TR_TRY(choose_words(wish, anew, limited, &s->words));
        TR_TRY(tr_watch_run(&s->watch, s->words.word));
        code = judge(s, &again);
        anew = anew && s->history.best.phase < TR_LIFE_TRAINING;
        limited = wish->max_time > 0;
        if (again && limited && !set_time_left(wish, s->begun, &s->words)) return TR_ERR_STOPPED;
        s->watch.attempt++;
    }
    return code;
}

int tr_supervise(const struct tr_supervision *wish)
{
    struct story s = {.history = tr_history_begin(), .begun = tr_now()};
    tell_of_terminal();
    hurry_mpirun();
    int status = tr_watch_open(wish, &s.watch);
    if (status == TR_OK) {
        tr_fail(TR_OK, "%s", "");
        status = run_all(&s);
    }
    if (status != TR_OK && *tr_error_text()) fprintf(stderr, "trireme: error: %s\n", tr_error_text());
    free(s.words.word);
    tr_watch_close(&s.watch);
    return status;
}
