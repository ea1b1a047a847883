#define _GNU_SOURCE
#include "supervisor/watch.h"

#include <errno.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/base.h"

/* ---- saying ---- */

void tr_watch_note(struct tr_watch *w, const char *event, const char *format, ...)
{
    struct timespec now;
    if (!w->log) return;
    clock_gettime(CLOCK_REALTIME, &now);
    fprintf(w->log, "%lld.%06ld %d %s ", (long long)now.tv_sec, now.tv_nsec / 1000, w->attempt, event);
    va_list arguments;
    va_start(arguments, format);
    vfprintf(w->log, format, arguments);
    va_end(arguments);
    fputc('\n', w->log);
    fflush(w->log);
}

/* What shows how far a start has got: phases, stages, checkpoints, and the first clocks of each stage. */
static void note_state(struct tr_watch *w)
{
    enum { CLOCKS = 2 };
    static const char *const phases[] = {"starting", "loading", "training"};
    const struct tr_life_state *now = &w->crew.farthest, *old = &w->logged;
    if (!w->log) return;
    if (now->phase != old->phase || now->stage != old->stage) {
        tr_watch_note(w, phases[now->phase % 3], "stage %lld", (long long)now->stage);
        w->logged_clocks = 0;
    }
    if (now->kept_clock != old->kept_clock) /* first: where a run goes on its clock begins there */
        tr_watch_note(w, "checkpoint", "clock %lld", (long long)now->kept_clock);
    if (now->clock >= 0 && (now->clock != old->clock || now->stage != old->stage) &&
        w->logged_clocks < CLOCKS) {
        tr_watch_note(w, "clock", "%lld", (long long)now->clock);
        w->logged_clocks++;
    }
    w->logged = *now;
}

/* ---- signals ---- */

static const int passed[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2};
enum { PASSED = sizeof passed / sizeof *passed };

/* nohup and & have their reasons to ignore some; but wishes job scripts ignore only so that they kill nobody who does not
 * listen yet. */
static bool is_ours(int number)
{
    struct sigaction action;
    bool ignored = sigaction(number, NULL, &action) == 0 && action.sa_handler == SIG_IGN;
    return !ignored || number == SIGUSR1 || number == SIGUSR2;
}

static int open_signals(struct tr_watch *w)
{
    sigset_t set;
    sigemptyset(&set);
    for (int i = 0; i < PASSED; i++)
        if (is_ours(passed[i])) sigaddset(&set, passed[i]);
    sigaddset(&set, SIGCHLD);
    signal(SIGPIPE, SIG_IGN);
    sigprocmask(SIG_BLOCK, &set, NULL);
    w->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return w->signals >= 0 ? TR_OK : tr_fail(TR_ERR_SYSTEM, "signalfd: %s", strerror(errno));
}

static bool all_are_there(const struct tr_crew *crew)
{
    return crew->known > 0 && (long)crew->known >= crew->size;
}

/* Ranks that are still starting would miss it, or die of it. */
static void pass_on(struct tr_watch *w, int number)
{
    if (all_are_there(&w->crew)) tr_crew_tell_signal(&w->crew, number);
    else if (w->holds < 32) w->held[w->holds++] = number;
}

static void pass_on_held(struct tr_watch *w)
{
    if (w->holds == 0 || !all_are_there(&w->crew)) return;
    for (int i = 0; i < w->holds; i++) tr_crew_tell_signal(&w->crew, w->held[i]);
    w->holds = 0;
}

/* Many a sender signals a process and then its group, or a batch script and then its steps: that is one wish. */
static const double twice = 1;

static void take_signals(struct tr_watch *w)
{
    struct signalfd_siginfo info;
    while (read(w->signals, &info, sizeof info) == (ssize_t)sizeof info) {
        int number = (int)info.ssi_signo;
        if (number == SIGCHLD) continue;
        bool stops = number != SIGUSR2, urgent = stops && number != SIGUSR1;
        bool repeated = urgent && w->urged > 0;
        if (repeated && tr_now() - w->urged < twice) continue;
        w->hurry = w->hurry || repeated;
        if (urgent) w->urged = tr_now();
        if (stops && (!w->asked || urgent)) w->asked = number;
        tr_watch_note(w, "signal", "%d", number);
        pass_on(w, number == SIGHUP ? SIGTERM : number);
    }
}

/* ---- opening ---- */

/* A descriptor for every rank. */
static void raise_limits(struct rlimit *before)
{
    getrlimit(RLIMIT_NOFILE, before);
    struct rlimit most = *before;
    most.rlim_cur = most.rlim_max;
    setrlimit(RLIMIT_NOFILE, &most);
}

int tr_watch_open(const struct tr_supervision *wish, struct tr_watch *w)
{
    *w = (struct tr_watch){.wish = wish, .signals = -1};
    w->launch.ended = true;
    TR_TRY(open_signals(w));
    if (wish->log && !(w->log = fopen(wish->log, "ae")))
        return tr_fail(TR_ERR_NO_OUTPUT, "%s: %s", wish->log, strerror(errno));
    return tr_crew_open(wish->everywhere, wish->heartbeat, wish->limit, &w->crew);
}

void tr_watch_close(struct tr_watch *w)
{
    tr_segments_free(&w->segment, &w->segments);
    if (w->crew.ready > 0) tr_crew_close(&w->crew);
    if (w->log) fclose(w->log);
    if (w->signals >= 0) close(w->signals);
}

/* ---- what failed ---- */

static struct tr_failure failure_of(const struct tr_member *m, enum tr_cause_kind kind, int number)
{
    struct tr_failure f = {.kind = kind, .number = number, .rank = m->rank, .pid = m->pid, .epoch = NAN};
    memcpy(f.host, m->host, sizeof f.host);
    return f;
}

static void set_end(struct tr_failure *f, int wait_status)
{
    f->kind = WIFSIGNALED(wait_status) ? TR_CAUSE_SIGNAL : TR_CAUSE_EXIT;
    f->number = WIFSIGNALED(wait_status) ? WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
}

/* How the first one died, from whoever knows: the kernel, as long as nobody has taken note of the death; or mpirun. */
static bool find_end(struct tr_watch *w)
{
    struct tr_failure *f = &w->failure;
    const struct tr_member *m = w->crew.dead;
    int wait_status, number, code;
    long rank;
    if (f->kind != TR_CAUSE_GONE) return true;
    if (m && m->local && tr_process_end(m->pid, m->start, &wait_status)) {
        set_end(f, wait_status);
    } else if (tr_relay_blames(&w->launch.err, &rank, &number, &code) && rank == f->rank) {
        f->kind = number > 0 ? TR_CAUSE_SIGNAL : TR_CAUSE_EXIT;
        f->number = number > 0 ? number : code;
    }
    return f->kind != TR_CAUSE_GONE;
}

/* What one rank has mapped all have, on its host. */
static void remember_segments(struct tr_watch *w)
{
    for (size_t i = 0; i < w->crew.n && w->segments == 0; i++) {
        const struct tr_member *m = w->crew.member[i];
        if (m->local && tr_process_lives(m->pid, m->start))
            (void)tr_process_segments(m->pid, &w->segment, &w->segments);
    }
}

static void begin_ending(struct tr_watch *w, struct tr_failure failure)
{
    w->ending = true;
    w->noticed = tr_now();
    w->failure = failure;
    w->launch.out.filters = w->launch.err.filters = true;
    w->launch.out.first = w->launch.err.first = failure.pid;
    find_end(w);
    remember_segments(w);
    tr_watch_note(w, "noticed", "rank %ld pid %ld", failure.rank, failure.pid);
}

/* A rank that has left with an error, and whose others do not follow. */
static const struct tr_member *left_alone(const struct tr_crew *crew)
{
    if (crew->byes == 0 || crew->byes == crew->known) return NULL;
    for (size_t i = 0; i < crew->n; i++) {
        const struct tr_member *m = crew->member[i];
        if (m->bye && m->status != TR_OK && m->socket < 0 && tr_now() - m->broke > crew->limit) return m;
    }
    return NULL;
}

/* Some ranks have got through to us long ago, others have not. */
static bool some_are_missing(const struct tr_watch *w)
{
    const struct tr_crew *crew = &w->crew;
    if (crew->known == 0 || (long)crew->known >= crew->size || crew->byes > 0) return false;
    return tr_now() - w->begun > 3 * crew->limit;
}

static long first_missing(const struct tr_crew *crew)
{
    for (long rank = 0;; rank++) {
        bool known = false;
        for (size_t i = 0; i < crew->n; i++)
            known = known || (crew->member[i]->known && crew->member[i]->rank == rank);
        if (!known) return rank;
    }
}

/* MPI starts with all ranks or with none: as long as it has not, whoever is missing is what the others wait for. */
static bool is_stuck_at_start(const struct tr_watch *w)
{
    return some_are_missing(w) && w->crew.farthest.phase == TR_LIFE_STARTING;
}

/* Later on, the line may be what is missing: who cannot get through to us is not watched, and that is to be known. */
static void say_who_is_missing(struct tr_watch *w)
{
    const struct tr_crew *crew = &w->crew;
    if (w->said_missing || !some_are_missing(w) || crew->farthest.phase == TR_LIFE_STARTING) return;
    w->said_missing = true;
    fprintf(stderr,
            "trireme: %ld of %ld ranks do not get through to the supervisor: whether they hang will not be "
            "seen\n",
            crew->size - (long)crew->known, crew->size);
}

/* Goes through all ranks, and so not for every beat. */
static const struct tr_member *silent_one(struct tr_watch *w)
{
    double now = tr_now();
    if (now - w->looked < w->wish->heartbeat / 2) return NULL;
    w->looked = now;
    return tr_crew_silent(&w->crew);
}

static void look_for_failure(struct tr_watch *w)
{
    const struct tr_crew *crew = &w->crew;
    const struct tr_member *m;
    long seconds;
    if (crew->dead) {
        begin_ending(w, failure_of(crew->dead, TR_CAUSE_GONE, 0));
    } else if ((m = silent_one(w)) != NULL) {
        struct tr_failure f = failure_of(m, TR_CAUSE_SILENT, (int)lround(tr_now() - m->beat));
        f.stopped = m->local && tr_process_is_stopped(m->pid, m->start);
        begin_ending(w, f);
    } else if ((m = left_alone(crew)) != NULL) {
        begin_ending(w, failure_of(m, TR_CAUSE_EXIT, m->status));
    } else if (is_stuck_at_start(w)) {
        begin_ending(w, (struct tr_failure){.kind = TR_CAUSE_SILENT,
                                            .number = (int)lround(tr_now() - w->begun),
                                            .rank = first_missing(crew),
                                            .epoch = NAN});
    } else if ((seconds = tr_crew_waits(crew)) > 0) {
        begin_ending(
            w, (struct tr_failure){.kind = TR_CAUSE_STUCK, .number = (int)seconds, .rank = -1, .epoch = NAN});
    } else if (w->hurry) {
        begin_ending(
            w, (struct tr_failure){.kind = TR_CAUSE_SIGNAL, .number = w->asked, .rank = -1, .epoch = NAN});
    }
}

/* ---- ending the others ---- */

/* mpirun cleans up by itself and in no time once nobody is left; where ranks do not hear, because they are stopped or
 * their host is lost, it is helped along. */
static void press_on(struct tr_watch *w)
{
    const double patience = 0.1, then_kill = 0.3;
    double since = tr_now() - w->noticed, grace = w->wish->everywhere ? 3.0 : 1.0;
    bool known = find_end(w);
    if (w->told == 0 && (known || since > patience)) {
        tr_crew_tell_to_die(&w->crew);
        w->told = tr_now();
        if (w->failure.kind == TR_CAUSE_SILENT) (void)tr_crew_left(&w->crew, true);
    }
    if (since > then_kill) (void)tr_crew_left(&w->crew, true);
    int force = since > 2 * grace ? 2 : since > grace;
    if (force <= w->forced) return;
    w->forced = force;
    tr_launch_signal(&w->launch, force == 2 ? SIGKILL : SIGTERM, force == 2);
}

/* ---- watching ---- */

static int turn(struct tr_watch *w)
{
    struct tr_launch *l = &w->launch;
    struct pollfd fds[] = {{.fd = w->crew.ready, .events = POLLIN},
                           {.fd = w->signals, .events = POLLIN},
                           {.fd = tr_relay_holds(&l->out) ? -1 : l->out.from, .events = POLLIN},
                           {.fd = tr_relay_holds(&l->err) ? -1 : l->err.from, .events = POLLIN}};
    poll(fds, sizeof fds / sizeof *fds,
         w->ending || tr_relay_holds(&l->out) || tr_relay_holds(&l->err) ? 5
                                                                         : (int)(w->wish->heartbeat * 500));
    bool was_away =
        tr_now() - w->turned > w->wish->limit / 2; /* stopped itself, or nobody read what it wrote */
    take_signals(w);
    tr_relay_take(&l->out);
    tr_relay_take(&l->err);
    TR_TRY(tr_crew_turn(&w->crew));
    if (w->crew.byes > 0) l->out.filters = l->err.filters = true; /* ranks have no more to say */
    if (was_away) tr_crew_excuse(&w->crew);
    w->turned = tr_now();
    pass_on_held(w);
    note_state(w);
    say_who_is_missing(w);
    if (!w->ending) look_for_failure(w);
    tr_relay_give(&l->out);
    tr_relay_give(&l->err);
    if (w->ending) press_on(w);
    return TR_OK;
}

/* A rank that has left with this code (-1: with any but 0), or NULL. */
static const struct tr_member *who_left_with(const struct tr_crew *crew, int code)
{
    for (size_t i = 0; i < crew->n; i++) {
        const struct tr_member *m = crew->member[i];
        if (m->bye && (code < 0 ? m->status != TR_OK : m->status == code)) return m;
    }
    return NULL;
}

/* mpirun has ended and no rank was seen to fail before: what its code and the words of the ranks say together. If a whole
 * host dies, mpirun may end with 0. */
static struct tr_failure conclude(const struct tr_watch *w)
{
    struct tr_failure f = {.rank = -1, .epoch = NAN, .pid = w->launch.pid, .mpirun = true};
    int number, code;
    set_end(&f, w->launch.wait_status);
    bool well = f.kind == TR_CAUSE_EXIT && f.number == TR_OK;
    const struct tr_member *m =
        f.kind == TR_CAUSE_EXIT ? who_left_with(&w->crew, well ? -1 : f.number) : NULL;
    if (m) return failure_of(m, TR_CAUSE_EXIT, m->status);
    if (well) f.kind = TR_CAUSE_NONE;
    strcpy(f.host, w->crew.host);
    if (f.kind != TR_CAUSE_EXIT || !tr_relay_blames(&w->launch.err, &f.rank, &number, &code)) return f;
    f.mpirun = false; /* of a rank that never got through to us */
    f.pid = 0;
    if (number > 0) {
        f.kind = TR_CAUSE_SIGNAL;
        f.number = number;
    }
    return f;
}

static void end_by_itself(struct tr_watch *w)
{
    remember_segments(w);
    w->noticed = tr_now();
    w->launch.out.filters = w->launch.err.filters = w->crew.known > 0;
    if (w->crew.dead) w->failure = failure_of(w->crew.dead, TR_CAUSE_GONE, 0);
}

/* When a rank leaves with an error mpirun ends those that are still on their way out: the first one's word counts, unless
 * that is of the death of another. */
static const struct tr_member *who_left_first(const struct tr_watch *w)
{
    const struct tr_failure *f = &w->failure;
    if (f->kind != TR_CAUSE_SIGNAL || (f->number != SIGTERM && f->number != SIGKILL)) return NULL;
    const struct tr_member *m = who_left_with(&w->crew, -1);
    return m && m->status != TR_ERR_PEER ? m : NULL;
}

static void blame(struct tr_watch *w)
{
    struct tr_failure end = conclude(w), *f = &w->failure;
    find_end(w);
    const struct tr_member *left = who_left_first(w);
    if (left) *f = failure_of(left, TR_CAUSE_EXIT, left->status);
    if (f->kind == TR_CAUSE_NONE) {
        *f = end;
    } else if (f->kind == TR_CAUSE_GONE && end.kind == TR_CAUSE_SIGNAL) {
        f->kind = end.kind;
        f->number = end.number;
    } else if (f->kind == TR_CAUSE_GONE && end.kind == TR_CAUSE_EXIT) {
        bool by_signal = end.number > 128 && end.number < 128 + 32; /* as mpirun says it */
        f->kind = by_signal ? TR_CAUSE_SIGNAL : TR_CAUSE_EXIT;
        f->number = by_signal ? end.number - 128 : end.number;
    }
}

/* Nothing of it is to be left: neither processes nor, where mpirun could not, what they had. */
static int leave_nothing(struct tr_watch *w)
{
    const double patience = 10;
    double begin = tr_now();
    bool abandoned = WIFSIGNALED(w->launch.wait_status);
    if (abandoned) tr_crew_tell_to_die(&w->crew);
    while (tr_crew_left(&w->crew, tr_now() - begin > 0.3) > 0 ||
           (abandoned && tr_crew_connected(&w->crew) > 0)) {
        if (tr_now() - begin > patience) break;
        struct pollfd ready = {.fd = w->crew.ready, .events = POLLIN};
        poll(&ready, 1, 5);
        TR_TRY(tr_crew_turn(&w->crew));
    }
    if (tr_crew_left(&w->crew, true) > 0)
        return tr_fail(TR_ERR_SYSTEM, "processes of the job cannot be ended, not even by SIGKILL");
    if (abandoned) {
        tr_segments_remove(w->segment, w->segments);
        tr_session_remove(w->launch.pid);
    }
    tr_segments_free(&w->segment, &w->segments);
    return TR_OK;
}

static int start(struct tr_watch *w, char *const command[])
{
    char *address, attempt[16];
    if (w->attempt > 0) TR_TRY(tr_crew_renew(&w->crew));
    TR_TRY(tr_crew_address(&w->crew, &address));
    snprintf(attempt, sizeof attempt, "%d", w->attempt);
    setenv(TR_LIFELINE_VARIABLE, address, 1);
    setenv(TR_ATTEMPT_VARIABLE, attempt, 1);
    free(address);
    w->ending = w->said_missing = false;
    w->told = 0;
    w->forced = 0;
    w->holds = 0;
    w->failure = (struct tr_failure){.epoch = NAN};
    w->logged = w->crew.farthest;
    w->begun = w->turned = tr_now();
    struct rlimit before;
    getrlimit(RLIMIT_NOFILE, &before);
    TR_TRY(tr_launch_start(command, &w->launch));
    tr_watch_note(w, "started", "mpirun %ld", (long)w->launch.pid);
    raise_limits(&before); /* not before: mpirun goes through all that it may have */
    return TR_OK;
}

int tr_watch_run(struct tr_watch *w, char *const command[])
{
    TR_TRY(start(w, command));
    int status = TR_OK;
    while (status == TR_OK && !tr_launch_is_over(&w->launch)) status = turn(w);
    if (status == TR_OK) status = tr_crew_turn(&w->crew); /* last words that came with mpirun's end */
    if (!w->ending) end_by_itself(w);
    tr_launch_close(&w->launch);
    blame(w);
    if (status == TR_OK) status = leave_nothing(w);
    w->failure.at = w->crew.farthest;
    tr_watch_note(w, "ended", "after %.4f s", tr_now() - w->noticed);
    return status;
}

void tr_watch_pause(struct tr_watch *w, double seconds)
{
    double end = tr_now() + seconds, left;
    while (!w->asked && (left = end - tr_now()) > 0) {
        struct pollfd ready = {.fd = w->signals, .events = POLLIN};
        poll(&ready, 1, (int)(left * 1e3) + 1);
        take_signals(w);
    }
}
