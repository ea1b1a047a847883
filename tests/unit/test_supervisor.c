/* src/base/fault.c, src/ranks/lifeline.c and src/supervisor, without mpirun. */
#define _GNU_SOURCE
#include "unit.h"

#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"
#include "base/fault.h"
#include "supervisor/supervisor.h"

/* ---- faults ---- */

START_TEST(rules_of_faults_are_read)
{
    struct tr_faults f;
    ck_ok(tr_faults_parse("pull:0.5:7,checkpoint.write=enospc@2:#3,load=delay=50:1:0:4,merge=exit=3:1", &f));
    ck_assert_uint_eq(f.n, 4);
    ck_assert_str_eq(f.rule[0].point, "pull");
    ck_assert_int_eq(f.rule[0].action, TR_FAULT_KILL);
    ck_assert_double_eq(f.rule[0].chance, 0.5);
    ck_assert_uint_eq(f.rule[0].seed, 7);
    ck_assert_int_eq(f.rule[0].rank, -1);
    ck_assert_int_eq(f.rule[1].action, TR_FAULT_ENOSPC);
    ck_assert_int_eq(f.rule[1].rank, 2);
    ck_assert_uint_eq(f.rule[1].at, 3);
    ck_assert_int_eq(f.rule[2].action, TR_FAULT_DELAY);
    ck_assert_int_eq(f.rule[2].number, 50);
    ck_assert_int_eq(f.rule[2].attempt, 4);
    ck_assert_int_eq(f.rule[3].number, 3);
}
END_TEST

START_TEST(wrong_rules_of_faults_are_refused)
{
    struct tr_faults f;
    ck_fails(tr_faults_parse("pull", &f), TR_ERR_USAGE, "pull: expected POINT");
    ck_fails(tr_faults_parse("pull=fly:1", &f), TR_ERR_USAGE, "kill, segv");
    ck_fails(tr_faults_parse("pull=kill=3:1", &f), TR_ERR_USAGE, "kill, segv");
    ck_fails(tr_faults_parse("pull:2", &f), TR_ERR_USAGE, "a chance from 0 to 1");
    ck_fails(tr_faults_parse("pull:#0", &f), TR_ERR_USAGE, "from 1 on");
    ck_fails(tr_faults_parse("pull@x:1", &f), TR_ERR_USAGE, "a rank");
    ck_fails(tr_faults_parse("=kill:1", &f), TR_ERR_USAGE, "a point");
    ck_fails(tr_faults_parse("a:1:2:3:4", &f), TR_ERR_USAGE, "nothing behind");
    ck_ok(tr_faults_parse("", &f));
    ck_assert_uint_eq(f.n, 0);
}
END_TEST

static unsigned long visits(const char *rules, long rank, long attempt)
{
    struct tr_faults f;
    unsigned long pattern = 0;
    ck_ok(tr_faults_parse(rules, &f));
    tr_faults_settle(&f, rank, attempt);
    for (int i = 0; i < 64; i++) pattern = pattern << 1 | (tr_faults_visit(&f, "pull") != NULL);
    return pattern;
}

START_TEST(faults_are_those_of_their_seed)
{
    ck_assert_uint_eq(visits("pull:0.5:1", 0, 0), visits("pull:0.5:1", 0, 0));
    ck_assert_uint_ne(visits("pull:0.5:1", 0, 0), visits("pull:0.5:2", 0, 0));
    ck_assert_uint_ne(visits("pull:0.5:1", 0, 0), visits("pull:0.5:1", 1, 0));
    ck_assert_uint_ne(visits("pull:0.5:1", 0, 0), visits("pull:0.5:1", 0, 1));
    int n = __builtin_popcountl(visits("pull:0.5:1", 0, 0));
    ck_assert_msg(n > 16 && n < 48, "%d of 64", n);
    ck_assert_uint_eq(visits("pull:1", 5, 0), ~0ul);
    ck_assert_uint_eq(visits("pull:0", 5, 0), 0);
    ck_assert_uint_eq(visits("pull@4:1", 5, 0), 0);
    ck_assert_uint_eq(visits("pull@5:1:0:1", 5, 0), 0);
    ck_assert_uint_eq(visits("push:1", 5, 0), 0);
    ck_assert_uint_eq(visits("pull:#64", 5, 0), 1);
}
END_TEST

/* ---- relay ---- */

/* What comes out of a relay for this text, in pieces of this size. */
static char *passed_bytes(bool filters, long first, const char *text, size_t n, size_t piece,
                          struct tr_relay *r)
{
    static char out[4096];
    int ends[2];
    ck_assert_int_eq(pipe(ends), 0);
    *r = (struct tr_relay){.from = -1, .to = ends[1], .filters = filters, .first = first};
    for (size_t at = 0; at < n; at += piece) tr_relay_pass(r, text + at, at + piece < n ? piece : n - at);
    tr_relay_pass(r, NULL, 0);
    close(ends[1]);
    ssize_t length = read(ends[0], out, sizeof out - 1);
    close(ends[0]);
    out[length > 0 ? length : 0] = '\0';
    return out;
}

static char *passed(bool filters, long first, const char *text, size_t piece, struct tr_relay *r)
{
    return passed_bytes(filters, first, text, strlen(text), piece, r);
}

#define DASHES "--------------------------------------------------------------------------\n"

START_TEST(all_passes_while_all_is_well)
{
    struct tr_relay r;
    const char *text = "a\n" DASHES "b\n[vm:1] c\nno end";
    ck_assert_str_eq(passed(false, 0, text, 3, &r), text);
}
END_TEST

START_TEST(ends_of_strings_do_not_pass)
{
    struct tr_relay r;
    const char text[] = "a\n\0b\0\n";
    ck_assert_str_eq(passed_bytes(true, 0, text, sizeof text, 2, &r), "a\nb\n");
}
END_TEST

START_TEST(what_comes_of_a_failure_is_left_out)
{
    const char *text =
        "epoch 3\n" DASHES "mpirun noticed that process rank 1 with PID 77 on node vm exited on\n"
        "signal 9 (Killed).\n" DASHES "[vm:00077] *** signal\n[[12,1],0][x.c:3] y\n[vm:00078] storm\n"
        "mpirun: abort is already in progress\nlast";
    for (size_t piece = 1; piece < 200; piece += 13) {
        struct tr_relay r;
        long rank;
        int number, code;
        ck_assert_str_eq(passed(true, 77, text, piece, &r),
                         "epoch 3\n[vm:00077] *** signal\n[[12,1],0][x.c:3] y\nlast");
        ck_assert(tr_relay_blames(&r, &rank, &number, &code));
        ck_assert_int_eq(rank, 1);
        ck_assert_int_eq(number, 9);
    }
}
END_TEST

START_TEST(exit_codes_are_read_in_both_versions_words)
{
    static const char *const texts[] = {DASHES "  Process name: [[22655,1],12]\n  Exit code:    3\n" DASHES,
                                        DASHES
                                        "   Process name: [prterun-vm-12@1,12]\n   Exit code:    3\n" DASHES};
    for (int i = 0; i < 2; i++) {
        struct tr_relay r;
        long rank;
        int number, code;
        ck_assert_str_eq(passed(true, 0, texts[i], 1000, &r), "");
        ck_assert(tr_relay_blames(&r, &rank, &number, &code));
        ck_assert_int_eq(rank, 12);
        ck_assert_int_eq(code, 3);
        ck_assert_int_eq(number, -1);
    }
}
END_TEST

START_TEST(pages_are_held_back_until_it_is_known_what_they_mean)
{
    static const char text[] = DASHES "ORTE was unable to reliably start one or more daemons.\n" DASHES;
    int from[2], to[2];
    char out[sizeof text] = "";
    ck_assert_int_eq(pipe(from) + pipe(to), 0);
    fcntl(to[0], F_SETFL, O_NONBLOCK);
    struct tr_relay r = {.from = from[0], .to = to[1], .patience = INFINITY};
    fcntl(from[0], F_SETFL, O_NONBLOCK);
    ck_assert_int_eq(write(from[1], text, sizeof DASHES - 1), sizeof DASHES - 1);
    tr_relay_take(&r);
    tr_relay_give(&r);
    ck_assert(!tr_relay_misses_daemon(&r));
    ck_assert_int_eq(write(from[1], text + sizeof DASHES - 1, sizeof text - sizeof DASHES),
                     sizeof text - sizeof DASHES);
    tr_relay_take(&r);
    ck_assert(tr_relay_misses_daemon(&r));
    tr_relay_give(&r);
    ck_assert_int_eq(read(to[0], out, sizeof out), -1);
    r.patience = 0; /* all is well: ranks have come */
    tr_relay_give(&r);
    ck_assert_int_eq(read(to[0], out, sizeof out), sizeof text - 1);
    ck_assert_str_eq(out, text);
    ck_assert_str_eq(passed(true, 0, text, 1000, &r), "");
    ck_assert(tr_relay_misses_daemon(&r));
    for (int i = 0; i < 2; i++) {
        close(from[i]);
        close(to[i]);
    }
}
END_TEST

/* ---- failures ---- */

static struct tr_failure killed(long rank, long long clock, long long kept)
{
    return (struct tr_failure){.kind = TR_CAUSE_SIGNAL,
                               .number = SIGKILL,
                               .rank = rank,
                               .pid = 77,
                               .host = "vm",
                               .epoch = NAN,
                               .at = {TR_LIFE_TRAINING, 1, clock, kept >= 0, kept}};
}

START_TEST(failures_are_said_in_a_line)
{
    char text[256];
    struct tr_failure f = killed(2, 37, 32);
    f.epoch = 4.625;
    tr_failure_describe(&f, text, sizeof text);
    ck_assert_str_eq(text, "rank 2 (pid 77 on vm) was killed by SIGKILL at clock 37, epoch 4.62");
    tr_failure_loss(&f, text, sizeof text);
    ck_assert_str_eq(text, "5 clocks since the checkpoint of clock 32 are lost");
    ck_assert_int_eq(tr_failure_code(&f), 137);
    f = killed(2, 1, -1);
    tr_failure_loss(&f, text, sizeof text);
    ck_assert_str_eq(text, "1 clock is lost: no checkpoint yet");
    f.kind = TR_CAUSE_SILENT;
    f.number = 10;
    f.stopped = true;
    f.at.phase = TR_LIFE_LOADING;
    tr_failure_describe(&f, text, sizeof text);
    ck_assert_str_eq(text, "rank 2 (pid 77 on vm) is stopped: no sign of life for 10 s while loading data");
    ck_assert_int_eq(tr_failure_code(&f), TR_ERR_PEER);
}
END_TEST

START_TEST(the_same_failure_three_times_is_enough)
{
    struct tr_history h = {.best = TR_LIFE_NOWHERE};
    double pause;
    struct tr_failure f = killed(2, 37, 30);
    ck_assert_int_eq(tr_history_add(&h, &f, 100, &pause), TR_START_AGAIN);
    ck_assert_double_eq(pause, 0);
    f = killed(2, 38, 30); /* others had ended the clock */
    ck_assert_int_eq(tr_history_add(&h, &f, 100, &pause), TR_START_AGAIN);
    f = killed(2, 37, 30);
    ck_assert_int_eq(tr_history_add(&h, &f, 100, &pause), TR_FAILS_ALIKE);
}
END_TEST

START_TEST(progress_is_no_repetition)
{
    struct tr_history h = {.best = TR_LIFE_NOWHERE};
    double pause;
    for (long long i = 0; i < 20; i++) { /* farther on each time */
        struct tr_failure f = killed(2, 10 * i, -1);
        ck_assert_int_eq(tr_history_add(&h, &f, 100, &pause), TR_START_AGAIN);
        ck_assert_double_eq(pause, 0);
    }
    for (long long i = 0; i < 20; i++) { /* at the same clock, but with newer checkpoints */
        struct tr_failure f = killed(2, 500, 300 + i);
        ck_assert_int_eq(tr_history_add(&h, &f, 100, &pause), TR_START_AGAIN);
    }
    for (long long i = 0; i < 20; i++) { /* without progress, but of different ranks */
        struct tr_failure f = killed(i, 500, 319);
        ck_assert_int_eq(tr_history_add(&h, &f, 100, &pause), TR_START_AGAIN);
    }
    ck_assert_double_eq(pause, TR_LONGEST_PAUSE);
}
END_TEST

START_TEST(what_has_no_room_is_not_started_again)
{
    struct tr_history h = {.best = TR_LIFE_NOWHERE};
    struct tr_failure f = {.kind = TR_CAUSE_EXIT, .number = TR_ERR_SYSTEM, .at = TR_LIFE_NOWHERE};
    ck_assert(tr_failure_is_final(&f, &h));
    f.at.phase = TR_LIFE_TRAINING;
    ck_assert(!tr_failure_is_final(&f, &h));
    f.at.phase = TR_LIFE_LOADING;
    h.best.phase = TR_LIFE_TRAINING; /* an earlier start had room */
    ck_assert(!tr_failure_is_final(&f, &h));
    f.number = TR_ERR_CONFIG;
    ck_assert(tr_failure_is_final(&f, &h));
    f.kind = TR_CAUSE_SIGNAL;
    ck_assert(!tr_failure_is_final(&f, &h));
}
END_TEST

START_TEST(restarts_are_counted)
{
    struct tr_history h = {.best = TR_LIFE_NOWHERE};
    double pause;
    for (long long i = 0; i < 3; i++) {
        struct tr_failure f = killed(0, 10 * i, -1);
        ck_assert_int_eq(tr_history_add(&h, &f, 3, &pause), TR_START_AGAIN);
    }
    struct tr_failure f = killed(0, 99, -1);
    ck_assert_int_eq(tr_history_add(&h, &f, 3, &pause), TR_FAILS_TOO_OFTEN);
    ck_assert_int_eq(h.restarts, 3);
}
END_TEST

/* ---- lifelines, to ranks that are processes of this test ---- */

/* A rank of two; in it, 0 and its lifeline. */
static pid_t fork_rank(const struct tr_members *members, const char *rank, struct tr_lifeline **line)
{
    char *address;
    ck_ok(tr_members_address(members, &address));
    pid_t child = fork();
    if (child == 0) {
        setenv(TR_LIFELINE_VARIABLE, address, 1);
        setenv("OMPI_COMM_WORLD_RANK", rank, 1);
        setenv("OMPI_COMM_WORLD_SIZE", "2", 1);
        if (tr_lifeline_start(line) != TR_OK) _exit(1);
    }
    free(address);
    return child;
}

/* A rank that says these clocks, and then waits or, told to, says good-bye. */
static pid_t start_rank(const struct tr_members *members, const char *rank, int clocks, int farewell)
{
    struct tr_lifeline *line;
    pid_t child = fork_rank(members, rank, &line);
    if (child == 0) {
        tr_lifeline_load(line);
        tr_lifeline_stage(line);
        tr_lifeline_kept(line, 3);
        for (int i = 1; i <= clocks; i++) tr_lifeline_clock(line, i);
        while (farewell < 0) pause();
        tr_sleep(0.3);
        tr_lifeline_stop(&line, farewell);
        _exit(0);
    }
    return child;
}

/* Receives until something holds. */
#define LISTEN_UNTIL(members, condition)                                                                     \
    do {                                                                                                     \
        double end_ = tr_now() + 60;                                                                         \
        while (!(condition)) {                                                                               \
            struct pollfd ready_ = {.fd = (members)->ready, .events = POLLIN};                               \
            poll(&ready_, 1, 10);                                                                            \
            ck_ok(tr_members_receive(members));                                                              \
            ck_assert_msg(tr_now() < end_, "never: %s", #condition);                                         \
        }                                                                                                    \
    } while (0)

START_TEST(a_death_is_noticed_and_the_others_die)
{
    struct tr_members members;
    int status;
    ck_ok(tr_members_open(false, 0.05, 60, &members));
    pid_t rank[2] = {start_rank(&members, "0", 7, -1), start_rank(&members, "1", 0, -1)};
    LISTEN_UNTIL(&members,
                 members.known == 2 && members.farthest.clock == 7 && members.farthest.kept_clock == 3);
    ck_assert_int_eq(members.size, 2);
    ck_assert_int_eq(members.farthest.phase, TR_LIFE_TRAINING);
    ck_assert_uint_eq(tr_members_left(&members, false), 2);
    kill(rank[1], SIGKILL);
    LISTEN_UNTIL(&members, members.dead);
    ck_assert_int_eq(members.dead->rank, 1);
    ck_assert(members.dead->local);
    tr_process_state(rank[1], members.dead->start, &status); /* as nobody has waited for it */
    ck_assert_int_ne(status, -1);
    ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    tr_members_tell_to_die(&members);
    LISTEN_UNTIL(&members, members.known == members.broken);
    ck_assert_int_eq(waitpid(rank[0], &status, 0), rank[0]);
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == TR_ERR_PEER);
    LISTEN_UNTIL(&members, tr_members_left(&members, false) == 0); /* files close before it is a zombie */
    waitpid(rank[1], &status, 0);
    tr_members_close(&members);
}
END_TEST

START_TEST(one_that_is_stopped_is_silent)
{
    struct tr_members members;
    ck_ok(tr_members_open(false, 0.05, 0.5, &members));
    pid_t rank = start_rank(&members, "0", 1, -1);
    LISTEN_UNTIL(&members, members.known == 1);
    kill(rank, SIGSTOP);
    LISTEN_UNTIL(&members, tr_members_silent(&members));
    const struct tr_supervised_rank *m = tr_members_silent(&members);
    ck_assert_int_eq(tr_process_state(m->pid, m->start, NULL), TR_PROCESS_STOPPED);
    ck_assert(!members.dead);
    tr_members_excuse(&members);
    ck_assert(!tr_members_silent(&members));
    tr_process_kill(m->pid, m->start + 1); /* another process, therefore */
    ck_assert_int_eq(tr_process_state(m->pid, m->start, NULL), TR_PROCESS_STOPPED);
    ck_assert_uint_eq(tr_members_left(&members, true), 1);
    LISTEN_UNTIL(&members, members.dead);
    waitpid(rank, NULL, 0);
    ck_assert_uint_eq(tr_members_left(&members, true), 0);
    tr_members_close(&members);
}
END_TEST

START_TEST(a_good_bye_is_no_death)
{
    struct tr_members members;
    ck_ok(tr_members_open(true, 0.05, 60, &members)); /* over all interfaces */
    pid_t rank = start_rank(&members, "0", 1, 71);
    LISTEN_UNTIL(&members, members.broken == 1);
    ck_assert(!members.dead);
    ck_assert(members.member[0]->bye);
    ck_assert_int_eq(members.member[0]->status, 71);
    waitpid(rank, NULL, 0);
    tr_members_close(&members);
}
END_TEST

START_TEST(strangers_stay_outside)
{
    struct tr_members members;
    char old[40];
    ck_ok(tr_members_open(false, 0.05, 60, &members));
    strcpy(old, members.token);
    pid_t rank = start_rank(&members, "0", 1, -1); /* of a start that is over */
    ck_ok(tr_members_renew(&members));
    ck_assert_str_ne(old, members.token);
    LISTEN_UNTIL(&members, members.n == 1 && members.member[0]->socket < 0);
    ck_assert_uint_eq(members.known, 0);
    ck_assert(!members.dead);
    kill(rank, SIGKILL);
    waitpid(rank, NULL, 0);
    tr_members_close(&members);
}
END_TEST

START_TEST(ranks_die_with_their_supervisor)
{
    struct tr_members members;
    int status;
    ck_ok(tr_members_open(false, 0.05, 60, &members));
    pid_t rank = start_rank(&members, "0", 1, -1);
    LISTEN_UNTIL(&members, members.known == 1 && members.farthest.clock == 3); /* as it has kept it */
    tr_members_close(&members);
    ck_assert_int_eq(waitpid(rank, &status, 0), rank);
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == TR_ERR_PEER);
}
END_TEST

/* A wish waits for somebody who hears it. */
static void on_wish(int number)
{
    _exit(number == SIGUSR1 ? 42 : 1);
}

START_TEST(a_wish_kills_nobody)
{
    struct tr_members members;
    char *address;
    int status;
    ck_ok(tr_members_open(false, 0.05, 60, &members));
    ck_ok(tr_members_address(&members, &address));
    pid_t rank = fork();
    if (rank == 0) {
        struct tr_lifeline *line;
        setenv(TR_LIFELINE_VARIABLE, address, 1);
        if (tr_lifeline_start(&line) != TR_OK) _exit(1);
        tr_sleep(0.5);
        signal(SIGUSR1, on_wish);
        for (;;) pause();
    }
    free(address);
    LISTEN_UNTIL(&members, members.known == 1);
    tr_members_tell_signal(&members, SIGUSR1);
    LISTEN_UNTIL(&members, members.dead);
    ck_assert_int_eq(waitpid(rank, &status, 0), rank);
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 42);
    tr_members_close(&members);
}
END_TEST

/* A rank that waits, with a thread at work until it gets SIGUSR1; after SIGUSR2 it waits no more. */
static volatile sig_atomic_t wished[32];
static void note_wish(int number)
{
    wished[number] = 1;
}

static pid_t start_waiting(const struct tr_members *members, const char *rank, bool works)
{
    struct tr_lifeline *line;
    signal(SIGUSR1, note_wish); /* before it can be told */
    signal(SIGUSR2, note_wish);
    pid_t child = fork_rank(members, rank, &line);
    if (child == 0) {
        if (works) tr_lifeline_work(line, true);
        for (;;) {
            if (works && wished[SIGUSR1]) tr_lifeline_work(line, works = false);
            if (!wished[SIGUSR2]) tr_lifeline_wait(line, 100);
            tr_sleep(0.02);
        }
    }
    return child;
}

START_TEST(all_wait_or_nobody_does)
{
    struct tr_members members;
    ck_ok(tr_members_open(false, 0.05, 60, &members));
    pid_t rank[2] = {start_waiting(&members, "0", false), 0};
    LISTEN_UNTIL(&members, members.known == 1 && members.member[0]->waits > 0);
    ck_assert_int_eq(tr_members_waits(&members), 0); /* the other one has not come yet */
    rank[1] = start_waiting(&members, "1", true);
    LISTEN_UNTIL(&members, members.known == 2);
    double begin = tr_now();
    LISTEN_UNTIL(&members, tr_now() > begin + 0.5);
    ck_assert_int_eq(tr_members_waits(&members), 0); /* a thread is at work */
    tr_members_tell_signal(&members, SIGUSR1);
    LISTEN_UNTIL(&members, tr_members_waits(&members) > 0);
    ck_assert_int_eq(tr_members_waits(&members), 100);
    tr_members_excuse(&members);
    ck_assert_int_eq(tr_members_waits(&members), 0); /* their last report is too old */
    kill(rank[0], SIGUSR2);
    LISTEN_UNTIL(&members, members.member[0]->waits > 0 && members.member[1]->waits > 0);
    LISTEN_UNTIL(&members, members.member[0]->waits == 0);
    ck_assert_int_eq(tr_members_waits(&members), 0);
    tr_members_tell_to_die(&members);
    LISTEN_UNTIL(&members, members.known == members.broken);
    for (int i = 0; i < 2; i++) waitpid(rank[i], NULL, 0);
    tr_members_close(&members);
}
END_TEST

/* Of a rank that Open MPI has just begun to start: it has mapped nothing yet. */
START_TEST(segments_of_a_job_are_known_by_its_number)
{
    char variable[64], path[2][64];
    unsigned long job = (unsigned long)getpid() << 8;
    snprintf(variable, sizeof variable, "PMIX_NAMESPACE=%lu", job);
    for (int i = 0; i < 2; i++) { /* another job's, too */
        snprintf(path[i], sizeof path[i], "/dev/shm/vader_segment.here.0.%lx.7", job + (unsigned long)i);
        FILE *file = fopen(path[i], "w");
        ck_assert_ptr_nonnull(file);
        fclose(file);
    }
    int ready[2];
    ck_assert_int_eq(pipe2(ready, O_CLOEXEC), 0); /* closed where the child has its own environment */
    pid_t rank = fork();
    if (rank == 0) execle("/bin/sleep", "sleep", "60", NULL, (char *[]){"A=1", variable, "B=2", NULL});
    close(ready[1]);
    ck_assert_int_eq(read(ready[0], variable, 1), 0);
    close(ready[0]);
    struct tr_segments segments = {0};
    ck_ok(tr_segments_find(rank, &segments));
    ck_assert_uint_eq(segments.n, 1);
    kill(rank, SIGKILL);
    waitpid(rank, NULL, 0);
    tr_segments_remove(&segments, rank);
    tr_segments_free(&segments);
    ck_assert_int_ne(access(path[0], F_OK), 0);
    ck_assert_int_eq(access(path[1], F_OK), 0);
    unlink(path[1]);
}
END_TEST

/* Found by name and age alone; a process that creates one now removes it immediately. */
START_TEST(trials_of_shared_memory_do_not_stay)
{
    char old[64], other[64], young[64];
    snprintf(old, sizeof old, "/dev/shm/open_mpi.%04d", (int)getpid() % 10000);
    snprintf(other, sizeof other, "/dev/shm/open_mpi.%d.mine", (int)getpid());
    snprintf(young, sizeof young, "/dev/shm/open_mpi.%04d", ((int)getpid() + 1) % 10000);
    close(open(old, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    close(open(other, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    tr_sleep(0.2);
    close(open(young, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    tr_segments_remove_trials();
    ck_assert_int_ne(access(old, F_OK), 0);
    ck_assert_int_eq(access(other, F_OK), 0);
    unlink(other);
    unlink(young);
}
END_TEST

UNIT_MAIN("supervisor", ends_of_strings_do_not_pass, rules_of_faults_are_read,
          wrong_rules_of_faults_are_refused, faults_are_those_of_their_seed, all_passes_while_all_is_well,
          what_comes_of_a_failure_is_left_out, exit_codes_are_read_in_both_versions_words,
          pages_are_held_back_until_it_is_known_what_they_mean, failures_are_said_in_a_line,
          the_same_failure_three_times_is_enough, progress_is_no_repetition,
          what_has_no_room_is_not_started_again, restarts_are_counted, a_death_is_noticed_and_the_others_die,
          one_that_is_stopped_is_silent, a_good_bye_is_no_death, strangers_stay_outside,
          ranks_die_with_their_supervisor, a_wish_kills_nobody, all_wait_or_nobody_does,
          segments_of_a_job_are_known_by_its_number, trials_of_shared_memory_do_not_stay)
