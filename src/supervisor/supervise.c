#define _GNU_SOURCE
#include "supervisor/supervisor.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/base.h"
#include "base/escape.h"
#include "base/file.h"
#include "monitor/monitor.h"

struct supervisor {
    const struct tr_supervision *options;
    struct tr_members members;
    struct tr_mpirun mpirun;
    struct tr_history history;
    FILE *log;            /* log of events; NULL: none */
    int attempt;          /* number of the attempt, from 0 */
    double opened, begun; /* times (tr_now()) of the start of the supervisor and of this attempt */

    /* requests of the user */
    int signals;  /* a signalfd */
    int asked;    /* signal that asked the job to stop; 0: none */
    bool hurry;   /* the user has asked the job to stop twice, not by SIGUSR1: kill the job */
    double urged; /* time of the last request to stop by a signal other than SIGUSR1; 0: none */
    int held[32]; /* `holds` signals that are sent once all ranks are connected */
    int holds;

    /* this attempt; times as of tr_now() */
    struct tr_failure failure;
    bool ending;                 /* a failure was detected: all processes must end */
    double noticed;              /* time when the failure was detected */
    double told;                 /* time when the ranks were told to exit; 0: not yet */
    int forced;                  /* signals sent to mpirun: 0 none, 1 SIGTERM, 2 SIGTERM and SIGKILL */
    struct tr_segments segments; /* shared memory to remove after a failure */
    double turned;               /* time of the last iteration of the event loop, turn() */
    double looked;               /* time of the last check for silent ranks */
    double launcher_ran;         /* last time when mpirun was not stopped */
    bool said_missing;           /* the message of is_stuck_at_start() was printed */
    struct tr_life_state logged; /* progress in the log, with logged_clocks clocks of this stage */
    int logged_clocks;
};

int tr_supervisor_cores(void)
{
    cpu_set_t set;
    int threads = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1, twins = 0;
    FILE *file = fopen("/sys/devices/system/cpu/smt/active", "re");
    if (file && fscanf(file, "%d", &twins) != 1) twins = 0;
    if (file) fclose(file);
    return tr_max_int(1, twins ? threads / 2 : threads);
}

/* ---- descriptions of failures, and the decision to start again ---- */

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
    else if (f->kind == TR_CAUSE_SILENT && f->pid == 0) /* no rank has connected, and no process is stopped */
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
    case TR_CAUSE_STUCK: break; /* the text above already says this */
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
    /* Failures are alike if they are of the same kind at the same clock. Clocks may differ by one, because it is chance whether
     * other ranks complete the clock of the failure. */
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

/* ---- the log ---- */

/* Writes a line to the log: seconds since 1970, number of the attempt, event, details. */
__attribute__((format(printf, 3, 4))) static void note(struct supervisor *s, const char *event,
                                                       const char *format, ...)
{
    struct timespec now;
    if (!s->log) return;
    clock_gettime(CLOCK_REALTIME, &now);
    tr_printf(s->log, "%lld.%06ld %d %s ", (long long)now.tv_sec, now.tv_nsec / 1000, s->attempt, event);
    va_list arguments;
    va_start(arguments, format);
    tr_vprintf(s->log, format, arguments);
    va_end(arguments);
    fputc('\n', s->log);
    fflush(s->log);
}

/* Records the shared memory of one rank of this host, because all ranks of a host map the same files. Called when ranks connect and
 * when they start to load or train: all ranks may be dead when a failure is detected. */
static void remember_segments(struct supervisor *s)
{
    for (size_t i = 0; i < s->members.n && s->segments.n == 0; i++) {
        const struct tr_supervised_rank *m = s->members.member[i];
        if (m->local && tr_process_state(m->pid, m->start, NULL) > TR_PROCESS_ENDED)
            (void)tr_segments_find(m->pid, &s->segments);
    }
}

/* ---- signals ---- */

static int open_signals(struct supervisor *s)
{
    static const int passed[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2};
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    for (size_t i = 0; i < sizeof passed / sizeof *passed; i++) {
        /* Signals that nohup or & ignore stay ignored. SIGUSR1 and SIGUSR2 do not: job scripts ignore them only to protect
         * processes that have no handler yet. */
        struct sigaction action;
        bool ignored = sigaction(passed[i], NULL, &action) == 0 && action.sa_handler == SIG_IGN;
        if (!ignored || passed[i] == SIGUSR1 || passed[i] == SIGUSR2) sigaddset(&set, passed[i]);
    }
    signal(SIGPIPE, SIG_IGN);
    sigprocmask(SIG_BLOCK, &set, NULL);
    s->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return s->signals >= 0 ? TR_OK : tr_fail(TR_ERR_SYSTEM, "signalfd: %s", strerror(errno));
}

/* Forwards held signals once all ranks are connected: a rank that is starting would miss a signal, or die from it. */
static void pass_on_held(struct supervisor *s)
{
    if (s->members.known == 0 || (long)s->members.known < s->members.size) return;
    for (int i = 0; i < s->holds; i++) tr_members_tell_signal(&s->members, s->held[i]);
    s->holds = 0;
}

static void take_signals(struct supervisor *s)
{
    /* A second request counts after `twice` seconds: some senders signal a process and then its group, or a script and then its
     * steps. */
    const double twice = 1;
    struct signalfd_siginfo info;
    while (read(s->signals, &info, sizeof info) == (ssize_t)sizeof info) {
        int number = (int)info.ssi_signo;
        if (number == SIGCHLD) continue;
        bool stops = number != SIGUSR2, urgent = stops && number != SIGUSR1;
        bool repeated = urgent && s->urged > 0;
        if (repeated && tr_now() - s->urged < twice) continue;
        s->hurry = s->hurry || repeated;
        if (urgent) s->urged = tr_now();
        if (stops && (!s->asked || urgent)) s->asked = number;
        note(s, "signal", "%d", number);
        if (s->holds < 32) s->held[s->holds++] = number == SIGHUP ? SIGTERM : number;
        pass_on_held(s);
    }
}

/* ---- failures ---- */

/* m: the rank that failed; NULL: mpirun, an unknown rank, or all ranks. */
static struct tr_failure failure_of(const struct tr_supervised_rank *m, enum tr_cause_kind kind, int number)
{
    struct tr_failure f = {.kind = kind, .number = number, .rank = m ? m->rank : -1, .epoch = NAN};
    if (!m) return f;
    f.pid = m->pid;
    memcpy(f.host, m->host, sizeof f.host);
    return f;
}

static void set_end(struct tr_failure *f, int wait_status)
{
    f->kind = WIFSIGNALED(wait_status) ? TR_CAUSE_SIGNAL : TR_CAUSE_EXIT;
    f->number = WIFSIGNALED(wait_status) ? WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
}

/* Finds how the first dead rank has ended: from the kernel while its process is a zombie, or from the banner of mpirun. Returns
 * true if the end is known. */
static bool find_end(struct supervisor *s)
{
    struct tr_failure *f = &s->failure;
    const struct tr_supervised_rank *m = s->members.dead;
    int wait_status = -1, number, code;
    long rank;
    if (f->kind != TR_CAUSE_GONE) return true;
    if (m && m->local) tr_process_state(m->pid, m->start, &wait_status);
    if (wait_status >= 0) {
        set_end(f, wait_status);
    } else if (tr_relay_blames(&s->mpirun.err, &rank, &number, &code) && rank == f->rank) {
        f->kind = number > 0 ? TR_CAUSE_SIGNAL : TR_CAUSE_EXIT;
        f->number = number > 0 ? number : code;
    }
    return f->kind != TR_CAUSE_GONE;
}

/* Returns whether some ranks connected long ago, others are missing, and MPI_Init, which needs all ranks, has not returned. If
 * MPI_Init has returned, the missing ranks run but cannot reach the supervisor: a message says once that they are not watched. */
static bool is_stuck_at_start(struct supervisor *s)
{
    const struct tr_members *all = &s->members;
    if (all->known == 0 || (long)all->known >= all->size || all->byes > 0) return false;
    if (tr_now() - s->begun <= 3 * all->limit) return false;
    if (all->farthest.phase == TR_LIFE_STARTING) return true;
    if (!s->said_missing)
        fprintf(
            stderr,
            "trireme: %ld of %ld ranks cannot connect to the supervisor: it will not notice if they hang\n",
            all->size - (long)all->known, all->size);
    s->said_missing = true;
    return false;
}

static struct tr_failure look_for_failure(struct supervisor *s)
{
    const struct tr_members *all = &s->members;
    const struct tr_supervised_rank *m = NULL;
    struct tr_failure f;
    long pid = 0;
    bool stuck = is_stuck_at_start(s);
    double now = tr_now(), stopped = 0;
    if (all->dead) return failure_of(all->dead, TR_CAUSE_GONE, 0);
    if (now - s->looked >=
        s->options->heartbeat / 2) { /* not at every message, because the check visits all ranks */
        s->looked = now;
        m = tr_members_silent(all);
        /* a stopped mpirun is a failure: ranks that start or exit wait for it, and it does not report exits */
        if (!tr_process_is_stopped(s->mpirun.pid)) s->launcher_ran = now;
        if (now - s->launcher_ran > all->limit) stopped = now - s->launcher_ran;
    }
    if (m) {
        f = failure_of(m, TR_CAUSE_SILENT, (int)lround(tr_now() - m->beat));
        f.stopped = m->local && tr_process_state(m->pid, m->start, NULL) == TR_PROCESS_STOPPED;
        return f;
    }
    if (stopped > 0) {
        f = failure_of(NULL, TR_CAUSE_SILENT, (int)lround(stopped));
        f.pid = s->mpirun.pid;
        f.mpirun = f.stopped = true;
        strcpy(f.host, all->host);
        return f;
    }
    for (size_t i = 0; i < all->n && all->byes > 0 && all->byes < all->known; i++) {
        m = all->member[i]; /* a rank has exited with an error while other ranks continue */
        if (m->bye && m->status != TR_OK && m->socket < 0 && tr_now() - m->broke > all->limit)
            return failure_of(m, TR_CAUSE_EXIT, m->status);
    }
    /* If no rank has connected yet, mpirun may wait for hosts or a batch system, which is no failure; a stopped child of mpirun is
     * one. After the limit for MPI_Init (TR_LIFELINE_STARTS), a host or its daemon must be unreachable. */
    if (all->known == 0 && now - s->begun > 3 * all->limit) pid = tr_process_stopped_child(s->mpirun.pid);
    if (stuck || pid > 0 || (all->known == 0 && now - s->begun > TR_LIFELINE_STARTS * all->limit)) {
        f = failure_of(NULL, TR_CAUSE_SILENT, (int)lround(now - s->begun));
        for (bool known = stuck; known;) { /* finds the lowest rank that has not connected */
            known = false;
            f.rank++;
            for (size_t i = 0; i < all->n; i++)
                known = known || (all->member[i]->known && all->member[i]->rank == f.rank);
        }
        f.pid = pid;
        f.stopped = pid > 0;
        return f;
    }
    long seconds = tr_members_waits(all);
    if (seconds > 0) return failure_of(NULL, TR_CAUSE_STUCK, (int)seconds);
    return failure_of(NULL, s->hurry ? TR_CAUSE_SIGNAL : TR_CAUSE_NONE, s->hurry ? s->asked : 0);
}

/* Returns a rank that has exited with this code (-1: any code except 0), or NULL. */
static const struct tr_supervised_rank *who_left_with(const struct tr_members *all, int code)
{
    for (size_t i = 0; i < all->n; i++) {
        const struct tr_supervised_rank *m = all->member[i];
        if (m->bye && (code < 0 ? m->status != TR_OK : m->status == code)) return m;
    }
    return NULL;
}

/* Returns the failure according to the exit code of mpirun and the bye messages of the ranks. The messages count even if mpirun
 * exits with 0, which happens if a host dies. */
static struct tr_failure conclude(const struct supervisor *s)
{
    struct tr_failure f = {.rank = -1, .epoch = NAN, .pid = s->mpirun.pid, .mpirun = true};
    int number, code;
    set_end(&f, s->mpirun.wait_status);
    bool left = f.kind == TR_CAUSE_EXIT, well = left && f.number == TR_OK;
    const struct tr_supervised_rank *m = left ? who_left_with(&s->members, well ? -1 : f.number) : NULL;
    if (m) return failure_of(m, TR_CAUSE_EXIT, m->status);
    if (well) f.kind = TR_CAUSE_NONE;
    strcpy(f.host, s->members.host);
    if (left && !well && s->members.known == 0 && tr_relay_misses_daemon(&s->mpirun.err))
        f.kind = TR_CAUSE_HOST;
    if (f.kind != TR_CAUSE_EXIT || !tr_relay_blames(&s->mpirun.err, &f.rank, &number, &code)) return f;
    f.mpirun = false; /* a rank failed that has never connected */
    f.pid = 0;
    if (number > 0) {
        f.kind = TR_CAUSE_SIGNAL;
        f.number = number;
    }
    return f;
}

/* Determines the final s->failure after the end of all processes. */
static void blame(struct supervisor *s)
{
    struct tr_failure end = conclude(s), *f = &s->failure;
    find_end(s);
    if (f->kind == TR_CAUSE_SIGNAL && (f->number == SIGTERM || f->number == SIGKILL)) {
        /* When a rank exits with an error, mpirun terminates ranks that are still exiting. The status of the first rank counts,
         * unless it reports the death of another rank (TR_ERR_PEER). */
        const struct tr_supervised_rank *left = who_left_with(&s->members, -1);
        if (left && left->status != TR_ERR_PEER) *f = failure_of(left, TR_CAUSE_EXIT, left->status);
    }
    if (f->kind == TR_CAUSE_NONE) *f = end;
    if (f->kind != TR_CAUSE_GONE || (end.kind != TR_CAUSE_SIGNAL && end.kind != TR_CAUSE_EXIT)) return;
    bool by_signal = end.kind == TR_CAUSE_EXIT && end.number > 128 &&
                     end.number < 128 + 32; /* mpirun exits with 128 + number of the signal */
    f->kind = by_signal ? TR_CAUSE_SIGNAL : end.kind;
    f->number = by_signal ? end.number - 128 : end.number;
}

/* ---- one attempt ---- */

/* Ends the attempt, step by step: tells the ranks to exit, after which mpirun cleans up quickly; kills ranks of this host; and if
 * this does not suffice, because a host is lost, sends SIGTERM to mpirun, later SIGKILL. */
static void press_on(struct supervisor *s)
{
    const double patience = 0.1, then_kill = 0.3;
    double since = tr_now() - s->noticed, grace = s->options->everywhere ? 3.0 : 1.0;
    bool known = find_end(s);
    if (s->told == 0 && (known || since > patience)) {
        tr_members_tell_to_die(&s->members);
        s->told = tr_now();
        if (s->failure.kind == TR_CAUSE_SILENT) (void)tr_members_left(&s->members, true);
    }
    if (since > then_kill) (void)tr_members_left(&s->members, true);
    int force = since > 2 * grace ? 2 : since > grace;
    if (force <= s->forced) return;
    s->forced = force;
    if (!s->mpirun.ended) kill(force == 2 ? -s->mpirun.pid : s->mpirun.pid, force == 2 ? SIGKILL : SIGTERM);
}

/* One iteration of the event loop. */
static int turn(struct supervisor *s)
{
    struct tr_relay *out = &s->mpirun.out, *err = &s->mpirun.err;
    bool holds = out->held > 0 || err->held > 0;
    struct pollfd fds[] = {{.fd = s->members.ready, .events = POLLIN},
                           {.fd = s->signals, .events = POLLIN},
                           {.fd = out->held > 0 ? -1 : out->from, .events = POLLIN},
                           {.fd = err->held > 0 ? -1 : err->from, .events = POLLIN}};
    poll(fds, sizeof fds / sizeof *fds, s->ending || holds ? 5 : (int)(s->options->heartbeat * 500));
    bool was_away = tr_now() - s->turned >
                    s->options->limit / 2; /* the supervisor itself was stopped, or blocked while writing */
    take_signals(s);
    out->patience = err->patience =
        s->members.known > 0 ? 0.3 : INFINITY; /* no rank is known: until mpirun has ended */
    tr_relay_take(out);
    tr_relay_take(err);
    size_t known = s->members.known;
    TR_TRY(tr_members_receive(&s->members));
    if (s->members.known > known || s->members.farthest.phase != s->logged.phase) remember_segments(s);
    if (s->members.byes > 0)
        tr_mpirun_filter(&s->mpirun, s->failure.pid); /* a rank says bye after its last output */
    if (was_away) tr_members_excuse(&s->members);
    if (was_away) s->launcher_ran = tr_now();
    s->turned = tr_now();
    pass_on_held(s);
    /* logs the progress of an attempt: phases, stages, checkpoints, and the first clocks of each stage. */
    enum { CLOCKS = 2 };
    static const char *const phases[] = {"starting", "loading", "training"};
    const struct tr_life_state *now = &s->members.farthest, *old = &s->logged;
    if (now->phase != old->phase || now->stage != old->stage) {
        note(s, phases[now->phase % 3], "stage %lld", (long long)now->stage);
        s->logged_clocks = 0;
    }
    if (now->kept_clock != old->kept_clock) /* before the clock: a resumed run starts with a checkpoint */
        note(s, "checkpoint", "clock %lld", (long long)now->kept_clock);
    if (now->clock >= 0 && (now->clock != old->clock || now->stage != old->stage) &&
        s->logged_clocks < CLOCKS) {
        note(s, "clock", "%lld", (long long)now->clock);
        s->logged_clocks++;
    }
    s->logged = *now;
    if (!s->ending) {
        struct tr_failure failure = look_for_failure(s);
        if (failure.kind != TR_CAUSE_NONE) {
            s->ending = true;
            s->noticed = tr_now();
            s->failure = failure;
            tr_mpirun_filter(&s->mpirun, failure.pid);
            find_end(s);
            remember_segments(s);
            note(s, "noticed", "rank %ld pid %ld", failure.rank, failure.pid);
        }
    }
    tr_relay_give(out);
    tr_relay_give(err);
    if (s->ending) press_on(s);
    return TR_OK;
}

/* Kills all remaining processes and, after a failure, removes their shared memory. */
static int leave_nothing(struct supervisor *s)
{
    const double patience = 60; /* seconds until hundreds of processes have ended */
    double begin = tr_now();
    struct tr_members *all = &s->members;
    bool abandoned = WIFSIGNALED(s->mpirun.wait_status);
    if (abandoned) tr_members_tell_to_die(all);
    while (tr_members_left(all, tr_now() - begin > 0.3) > 0 || (abandoned && all->known > all->broken)) {
        if (tr_now() - begin > patience) break;
        poll(&(struct pollfd){.fd = all->ready, .events = POLLIN}, 1, 5);
        TR_TRY(tr_members_receive(all));
    }
    if (tr_members_left(all, true) > 0)
        return tr_fail(TR_ERR_SYSTEM, "processes of the job still exist 60 s after SIGKILL");
    if (s->failure.kind != TR_CAUSE_NONE) tr_segments_remove(&s->segments, s->mpirun.pid);
    tr_segments_free(&s->segments);
    return TR_OK;
}

static int start(struct supervisor *s, const char *const command[])
{
    TR_FREED char *address = NULL;
    char attempt[16];
    if (s->attempt > 0) TR_TRY(tr_members_renew(&s->members));
    TR_TRY(tr_members_address(&s->members, &address));
    snprintf(attempt, sizeof attempt, "%d", s->attempt);
    setenv(TR_LIFELINE_VARIABLE, address, 1);
    setenv(TR_ATTEMPT_VARIABLE, attempt, 1);
    s->ending = s->said_missing = false;
    s->told = 0;
    s->forced = 0;
    s->holds = 0;
    s->failure = (struct tr_failure){.epoch = NAN};
    s->logged = s->members.farthest;
    s->begun = s->turned = s->launcher_ran = tr_now();
    TR_TRY(tr_mpirun_start(command, &s->mpirun));
    note(s, "started", "mpirun %ld", (long)s->mpirun.pid);
    /* each rank needs a descriptor; the limit is raised after the start of mpirun, which closes all possible descriptors */
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    return TR_OK;
}

/* Starts mpirun with this command line and waits until it and all ranks have ended. Sets s->failure (TR_CAUSE_NONE on success).
 * Returns errors of the supervisor itself. */
static int run_once(struct supervisor *s, const char *const command[])
{
    TR_TRY(start(s, command));
    int status = TR_OK;
    while (status == TR_OK && !tr_mpirun_is_over(&s->mpirun)) status = turn(s);
    if (status == TR_OK)
        status = tr_members_receive(&s->members); /* messages that arrived while mpirun ended */
    if (!s->ending) {
        remember_segments(s);
        s->noticed = tr_now();
        tr_relay_take(&s->mpirun.err); /* the last output of mpirun */
        if (s->members.known > 0 || tr_relay_misses_daemon(&s->mpirun.err)) tr_mpirun_filter(&s->mpirun, 0);
        if (s->members.dead) s->failure = failure_of(s->members.dead, TR_CAUSE_GONE, 0);
    }
    tr_mpirun_close(&s->mpirun);
    blame(s);
    if (status == TR_OK) status = leave_nothing(s);
    s->failure.at = s->members.farthest;
    note(s, "ended", "after %.4f s", tr_now() - s->noticed);
    return status;
}

/* ---- end or next attempt ---- */

/* Reads status.json into *seen. Returns true if rank 0 of this attempt has written it. */
static bool sees_status(const struct supervisor *s, struct tr_status_seen *seen)
{
    if (!s->options->output) return false;
    *seen = tr_status_look(s->options->output);
    for (size_t i = 0; i < s->members.n; i++) {
        const struct tr_supervised_rank *m = s->members.member[i];
        if (m->known && m->rank == 0) return m->pid == (long)seen->pid;
    }
    return false;
}

static void print_failure(const struct tr_failure *f, const char *more)
{
    char what[512], loss[128];
    tr_failure_describe(f, what, sizeof what);
    tr_failure_loss(f, loss, sizeof loss);
    tr_printf(stderr, "trireme: %s%s%s%s\n", what, *loss ? "; " : "", loss, more);
}

/* Returns the exit code of a job that the user stopped and that did not end in order: TR_ERR_STOPPED if it has a checkpoint to
 * resume from. */
static int stopped_code(const struct supervisor *s)
{
    bool kept = s->failure.at.kept_clock >= 0 || s->history.best.kept_clock >= 0;
    return kept || s->asked == SIGUSR1 ? TR_ERR_STOPPED : 128 + s->asked;
}

/* Returns whether the last attempt was the last one of the job. Sets *code to the exit code of the job. */
static bool is_the_end(struct supervisor *s, int *code)
{
    struct tr_failure *f = &s->failure;
    struct tr_status_seen seen;
    bool exits = f->kind == TR_CAUSE_EXIT;
    *code = tr_failure_code(f);
    if (f->kind == TR_CAUSE_NONE || tr_failure_is_final(f, &s->history)) return true;
    bool sees = sees_status(s, &seen);
    bool says = exits && !s->members.dead; /* a bye message or mpirun has reported the exit code */
    if (sees && seen.done && !says) {      /* the run was complete; only its processes had not exited */
        char what[512];
        tr_failure_describe(f, what, sizeof what);
        tr_printf(stderr, "trireme: %s, after the run was complete\n", what);
        *code = TR_OK;
        return true;
    }
    if (sees && exits) { /* training has completed: another attempt would train again from the start */
        TR_FREED char *summary = NULL;
        if (seen.done) return true;
        if (tr_format(&summary, "%s/summary.json", s->options->output) == TR_OK && access(summary, F_OK) == 0)
            return true;
    }
    bool killed =
        f->kind == TR_CAUSE_SIGNAL || (exits && f->number > 128); /* mpirun: 128 + number of the signal */
    bool silent = f->kind == TR_CAUSE_SILENT;
    bool began =
        s->members.known > 0 || s->history.restarts > 0 || killed || silent || s->mpirun.err.lost_folder;
    if (!began && f->kind == TR_CAUSE_HOST) print_failure(f, "");
    if (!began) return true; /* mpirun could not start the ranks and has printed the reason */
    f->epoch = sees && seen.epoch > 0 ? seen.epoch : NAN;
    if (!s->asked) return false;
    bool obeyed = s->hurry || (f->kind == TR_CAUSE_SIGNAL && (f->number == s->asked || f->number == SIGTERM));
    if (!obeyed) print_failure(f, ", while the job was stopping");
    *code = stopped_code(s);
    return true;
}

/* Decides after an attempt whether there is another one. Sets *again; if it is false, returns the exit code. */
static int decide(struct supervisor *s, bool *again)
{
    double pause, ended = tr_now() - s->noticed;
    int code, most = s->options->max_restarts;
    char more[128] = "";
    *again = false;
    if (is_the_end(s, &code)) return code;
    struct tr_status_seen seen;
    if (sees_status(s, &seen)) { /* this attempt has opened the output folder, so the event belongs there */
        char what[512];
        tr_failure_describe(&s->failure, what, sizeof what);
        tr_event_add(s->options->output, "failure",
                     (struct tr_event_place){(double)NAN, s->failure.epoch, (double)NAN},
                     s->failure.mpirun ? -1 : s->failure.rank, what);
    }
    enum tr_decision decision = tr_history_add(&s->history, &s->failure, most, &pause);
    int restarts = s->history.restarts;
    if (decision == TR_START_AGAIN && pause > 0)
        snprintf(more, sizeof more, "; starting again in %.0f s (%d of %d)", pause, restarts, most);
    else if (decision == TR_START_AGAIN)
        snprintf(more, sizeof more, "; ended in %.2f s, starting again (%d of %d)", ended, restarts, most);
    print_failure(&s->failure, more);
    if (decision == TR_FAILS_ALIKE)
        fprintf(stderr, "trireme: error: gave up: the same failure %d times in a row at the same place\n",
                TR_ALIKE);
    if (decision == TR_FAILS_TOO_OFTEN)
        tr_printf(stderr, "trireme: error: gave up: started again %d time%s, the limit of --max-restarts\n",
                  restarts, restarts == 1 ? "" : "s");
    if (decision != TR_START_AGAIN) return tr_failure_code(&s->failure);
    for (double end = tr_now() + pause, left; !s->asked && (left = end - tr_now()) > 0;) {
        poll(&(struct pollfd){.fd = s->signals, .events = POLLIN}, 1, (int)(left * 1e3) + 1);
        take_signals(s);
    }
    if (s->asked) return stopped_code(s);
    *again = true;
    return TR_OK;
}

/* Builds the command line of mpirun for the next attempt; free it with free(). time: an additional job key with its value, or
 * "". */
static int write_command(const struct supervisor *s, const char *time, const char ***command)
{
    static const char *const exported[] = {TR_LIFELINE_VARIABLE, TR_ATTEMPT_VARIABLE, "TRIREME_TERMINAL",
                                           "TRIREME_FAULT"};
    enum { EXPORTED = sizeof exported / sizeof *exported };
    const struct tr_supervision *o = s->options;
    bool from_start = s->history.best.phase < TR_LIFE_TRAINING;
    size_t n = 0;
    while (o->command[n]) n++;
    TR_TRY(TR_NEW(command, n + 2 * EXPORTED + 2));
    const char **to = *command;
    for (size_t at = 0; at < n; at++) {
        for (size_t i = 0; at == o->options && i < EXPORTED; i++) {
            if (i >= 2 && !getenv(exported[i])) continue;
            *to++ = "-x";
            *to++ = exported[i];
        }
        if (at != o->fresh || at == 0 || from_start) *to++ = o->command[at];
    }
    if (*time) *to++ = time;
    *to = NULL;
    return TR_OK;
}

static int run_all(struct supervisor *s)
{
    const double least = 1;
    bool again = true;
    char time[64] = "";
    int code = TR_OK;
    for (; again; s->attempt++) {
        TR_FREED const char **command = NULL;
        TR_TRY(write_command(s, time, &command));
        TR_TRY(run_once(s, command));
        code = decide(s, &again);
        double left = s->options->max_time - (tr_now() - s->opened);
        if (!again || s->options->max_time <= 0) continue;
        if (left < least) return TR_ERR_STOPPED;
        snprintf(time, sizeof time, "checkpoint.max_time=%ld:%02ld", (long)left / 60, (long)left % 60);
    }
    return code;
}

int tr_supervise(const struct tr_supervision *options)
{
    struct supervisor s = {
        .options = options, .history.best = TR_LIFE_NOWHERE, .opened = tr_now(), .signals = -1};
    /* Ranks write to pipes, so the supervisor tells them which of its outputs are terminals. After the death of a rank, mpirun
     * kills the other ranks immediately (timeout 0) instead of a second after SIGTERM: their checkpoints are already complete. */
    char terminal[4] = "";
    if (isatty(STDOUT_FILENO)) strcat(terminal, "1");
    if (isatty(STDERR_FILENO)) strcat(terminal, "2");
    if (*terminal) setenv("TRIREME_TERMINAL", terminal, 1);
    else unsetenv("TRIREME_TERMINAL");
    setenv("OMPI_MCA_odls_base_sigkill_timeout", "0", 0);
    setenv("PRTE_MCA_odls_base_sigkill_timeout", "0", 0);
    int status = open_signals(&s);
    if (status == TR_OK && options->log) {
        int log = tr_open_file(options->log, O_WRONLY | O_APPEND);
        s.log = log >= 0 ? fdopen(log, "a") : NULL;
        if (!s.log) status = tr_file_failed(options->log, "created", errno);
    }
    if (status == TR_OK)
        status = tr_members_open(options->everywhere, options->heartbeat, options->limit, &s.members);
    if (status == TR_OK) {
        tr_fail(TR_OK, "%s", "");
        status = run_all(&s);
    }
    if (status != TR_OK && *tr_error_text()) tr_printf(stderr, "trireme: error: %s\n", tr_error_text());
    if (s.history.restarts > 0 || s.failure.kind != TR_CAUSE_NONE) tr_segments_remove_trials();
    tr_segments_free(&s.segments);
    if (s.members.ready > 0) tr_members_close(&s.members);
    if (s.log) fclose(s.log);
    if (s.signals >= 0) close(s.signals);
    return status;
}
