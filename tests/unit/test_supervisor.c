/* src/base/fault.c, src/ranks/lifeline.c and src/supervisor, without mpirun. */
#include "unit.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>

#include "base/fault.h"
#include "supervisor/supervisor.h"

/* ---- faults ---- */

UNIT_CASE(rules_of_faults_are_read)
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

UNIT_CASE(wrong_rules_of_faults_are_refused)
{
    static const char *const rules[][2] = {
        {"pull", "pull: expected POINT"}, {"pull=fly:1", "kill, segv"},
        {"pull=kill=3:1", "kill, segv"},  {"pull:2", "a chance from 0 to 1"},
        {"pull:#0", "from 1 on"},         {"pull@x:1", "a rank"},
        {"=kill:1", "a point"},           {"a:1:2:3:4", "nothing behind"}};
    struct tr_faults f;
    for (size_t i = 0; i < COUNT(rules); i++)
        ck_fails(tr_faults_parse(rules[i][0], &f), TR_ERR_USAGE, rules[i][1]);
    ck_ok(tr_faults_parse("", &f));
    ck_assert_uint_eq(f.n, 0);
}

static unsigned long visits(const char *rules, long rank, long attempt)
{
    struct tr_faults f;
    unsigned long pattern = 0;
    ck_ok(tr_faults_parse(rules, &f));
    tr_faults_settle(&f, rank, attempt);
    for (int i = 0; i < 64; i++) pattern = pattern << 1 | (tr_faults_visit(&f, "pull") != NULL);
    return pattern;
}

UNIT_CASE(faults_are_those_of_their_seed)
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

UNIT_CASE(all_passes_while_all_is_well)
{
    struct tr_relay r;
    const char *text = "a\n" DASHES "b\n[vm:1] c\nno end";
    ck_assert_str_eq(passed(false, 0, text, 3, &r), text);
}

UNIT_CASE(ends_of_strings_do_not_pass)
{
    struct tr_relay r;
    const char text[] = "a\n\0b\0\n";
    ck_assert_str_eq(passed_bytes(true, 0, text, sizeof text, 2, &r), "a\nb\n");
}

/* A failure that the relay blames on a rank is left out, in the words of both versions of Open MPI; what others print is not. */
UNIT_CASE(failures_are_left_out_and_blamed)
{
    static const struct {
        const char *text, *passed;
        long rank;
        int number, code; /* signal and exit code; -1: none */
    } all[] = {{"epoch 3\n" DASHES "mpirun noticed that process rank 1 with PID 77 on node vm exited on\n"
                "signal 9 (Killed).\n" DASHES "[vm:00077] *** signal\n[[12,1],0][x.c:3] y\n[vm:00078] storm\n"
                "mpirun: abort is already in progress\nlast",
                "epoch 3\n[vm:00077] *** signal\n[[12,1],0][x.c:3] y\nlast", 1, 9, -1},
               {DASHES "  Process name: [[22655,1],12]\n  Exit code:    3\n" DASHES, "", 12, -1, 3},
               {DASHES "   Process name: [prterun-vm-12@1,12]\n   Exit code:    3\n" DASHES, "", 12, -1, 3}};
    for (size_t i = 0; i < COUNT(all); i++)
        for (size_t piece = 1; piece < 200; piece += 13) {
            struct tr_relay r;
            long rank;
            int number, code;
            ck_assert_str_eq(passed(true, 77, all[i].text, piece, &r), all[i].passed);
            ck_assert(tr_relay_blames(&r, &rank, &number, &code));
            ck_assert_int_eq(rank, all[i].rank);
            ck_assert_int_eq(number, all[i].number);
            if (all[i].code >= 0) ck_assert_int_eq(code, all[i].code);
        }
}

UNIT_CASE(pages_are_held_back_until_it_is_known_what_they_mean)
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

UNIT_CASE(failures_are_said_in_a_line)
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

/* Adds failures one after the other: of a rank at a clock, with a checkpoint of a clock (-1: none). */
static struct tr_history history = {.best = {.clock = -1, .kept_clock = -1}};
static double last_pause;

static int add_failure(long rank, long long clock, long long kept, int most)
{
    struct tr_failure f = killed(rank, clock, kept);
    return tr_history_add(&history, &f, most, &last_pause);
}

UNIT_CASE(the_same_failure_three_times_is_enough)
{
    ck_assert_int_eq(add_failure(2, 37, 30, 100), TR_START_AGAIN);
    ck_assert_double_eq(last_pause, 0);
    ck_assert_int_eq(add_failure(2, 38, 30, 100), TR_START_AGAIN); /* others had ended the clock */
    ck_assert_int_eq(add_failure(2, 37, 30, 100), TR_FAILS_ALIKE);
}

UNIT_CASE(progress_is_no_repetition)
{
    for (long long i = 0; i < 20; i++) {
        ck_assert_int_eq(add_failure(2, 10 * i, -1, 100), TR_START_AGAIN);
        ck_assert_double_eq(last_pause, 0);
    }
    for (long long i = 0; i < 20; i++) /* at the same clock, but with newer checkpoints */
        ck_assert_int_eq(add_failure(2, 500, 300 + i, 100), TR_START_AGAIN);
    for (long i = 0; i < 20; i++) /* without progress, but of different ranks */
        ck_assert_int_eq(add_failure(i, 500, 319, 100), TR_START_AGAIN);
    ck_assert_double_eq(last_pause, TR_LONGEST_PAUSE);
}

UNIT_CASE(restarts_are_counted)
{
    for (long long i = 0; i < 3; i++) ck_assert_int_eq(add_failure(0, 10 * i, -1, 3), TR_START_AGAIN);
    ck_assert_int_eq(add_failure(0, 99, -1, 3), TR_FAILS_TOO_OFTEN);
    ck_assert_int_eq(history.restarts, 3);
}

UNIT_CASE(what_has_no_room_is_not_started_again)
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

/* ---- lifelines, to ranks that are processes of this test ---- */

/* A process that is rank 0 of two; in it, 0 and its lifeline. */
static pid_t fork_rank(const struct tr_members *members, struct tr_lifeline **line)
{
    char *address;
    ck_ok(tr_members_address(members, &address));
    pid_t child = fork();
    if (child == 0) {
        setenv(TR_LIFELINE_VARIABLE, address, 1);
        setenv("OMPI_COMM_WORLD_RANK", "0", 1);
        setenv("OMPI_COMM_WORLD_SIZE", "2", 1);
        if (tr_lifeline_start(line) != TR_OK) _exit(1);
    }
    free(address);
    return child;
}

static pid_t start_rank(const struct tr_members *members)
{
    struct tr_lifeline *line;
    pid_t child = fork_rank(members, &line);
    while (child == 0) pause();
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

UNIT_CASE(one_that_is_stopped_is_silent)
{
    struct tr_members members;
    ck_ok(tr_members_open(false, 0.05, 0.5, &members));
    pid_t rank = start_rank(&members);
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

UNIT_CASE(strangers_stay_outside)
{
    struct tr_members members;
    char old[40];
    ck_ok(tr_members_open(false, 0.05, 60, &members));
    strcpy(old, members.token);
    pid_t rank = start_rank(&members); /* of a start that is over */
    ck_ok(tr_members_renew(&members));
    ck_assert_str_ne(old, members.token);
    LISTEN_UNTIL(&members, members.n == 1 && members.member[0]->socket < 0);
    ck_assert_uint_eq(members.known, 0);
    ck_assert(!members.dead);
    kill(rank, SIGKILL);
    waitpid(rank, NULL, 0);
    tr_members_close(&members);
}

/* A wish waits for somebody who hears it. */
static void on_wish(int number)
{
    _exit(number == SIGUSR1 ? 42 : 1);
}

UNIT_CASE(a_wish_kills_nobody)
{
    struct tr_members members;
    struct tr_lifeline *line;
    int status;
    ck_ok(tr_members_open(false, 0.05, 60, &members));
    pid_t rank = fork_rank(&members, &line);
    if (rank == 0) {
        tr_sleep(0.5);
        signal(SIGUSR1, on_wish);
        for (;;) pause();
    }
    LISTEN_UNTIL(&members, members.known == 1);
    tr_members_tell_signal(&members, SIGUSR1);
    LISTEN_UNTIL(&members, members.dead);
    ck_assert_int_eq(waitpid(rank, &status, 0), rank);
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 42);
    tr_members_close(&members);
}

/* Of a rank that Open MPI has just begun to start: it has mapped nothing yet. */
UNIT_CASE(segments_of_a_job_are_known_by_its_number)
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

/* Found by name and age alone; a process that creates one now removes it immediately. */
UNIT_CASE(trials_of_shared_memory_do_not_stay)
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
