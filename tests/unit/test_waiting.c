/* How long a rank is patient: what moves over TCP is no deadlock; and how long it naps. */
#include "unit.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <time.h>

#include "ranks/ranks.h"

/* Two ends of a TCP connection to oneself. */
static void connect_ends(int end[2])
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof at;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    ck_assert(listener >= 0 && bind(listener, (struct sockaddr *)&at, size) == 0 && listen(listener, 1) == 0);
    ck_assert_int_eq(getsockname(listener, (struct sockaddr *)&at, &size), 0);
    end[0] = socket(AF_INET, SOCK_STREAM, 0);
    ck_assert_int_eq(connect(end[0], (struct sockaddr *)&at, size), 0);
    end[1] = accept(listener, NULL, NULL);
    ck_assert(end[1] >= 0);
    close(listener);
}

static void move(const int end[2], size_t bytes)
{
    char piece[1 << 12] = "";
    for (size_t at = 0; at < bytes; at += sizeof piece) {
        ck_assert_int_eq(write(end[0], piece, sizeof piece), sizeof piece);
        for (ssize_t n = 0, more; n < (ssize_t)sizeof piece; n += more)
            ck_assert_int_gt(more = read(end[1], piece, sizeof piece), 0);
    }
}

/* Waits for `seconds`; true if the wait was restarted meanwhile because bytes moved. */
static bool is_restarted(double seconds, const int *end, size_t bytes_a_turn)
{
    static tr_job job;
    tr_context tr = {.job = &job};
    struct tr_waiting waiting = tr_waiting_begin();
    job.ranks.patience = 100;
    while (waiting.since == 0) ck_assert_int_eq(tr_waiting_turn(&tr, &waiting, "bytes"), TR_OK);
    for (double begin = waiting.since, until = tr_now() + seconds; tr_now() < until;) {
        if (bytes_a_turn > 0) move(end, bytes_a_turn);
        ck_assert_int_eq(tr_waiting_turn(&tr, &waiting, "bytes"), TR_OK);
        if (waiting.since > begin) return true;
    }
    return false;
}

UNIT_CASE(nothing_moves)
{
    ck_assert(!is_restarted(3.5, NULL, 0));
}

UNIT_CASE(a_transfer_is_no_deadlock)
{
    int end[2];
    connect_ends(end);
    ck_assert(is_restarted(60, end, 16 << 10));
    close(end[0]);
    close(end[1]);
}

/* ---- how long it naps ---- */

static struct {
    bool counted; /* instead of slept */
    long n;
    double seconds, longest;
} naps;

int nanosleep(const struct timespec *time, struct timespec *left)
{
    double seconds = (double)time->tv_sec + 1e-9 * (double)time->tv_nsec;
    if (!naps.counted) return clock_nanosleep(CLOCK_REALTIME, 0, time, left);
    naps.n++;
    naps.seconds += seconds;
    if (seconds > naps.longest) naps.longest = seconds;
    return 0;
}

/* A wait with pauses of `seconds`. */
static void wait_for(int nodes, double seconds)
{
    static tr_job job;
    tr_context tr = {.job = &job, .polling = true, .layout.nodes = nodes};
    struct tr_waiting waiting = tr_waiting_begin();
    job.ranks.patience = 1e9;
    naps.n = 0;
    naps.seconds = naps.longest = 0;
    naps.counted = true;
    while (naps.seconds < seconds) ck_assert_int_eq(tr_waiting_turn(&tr, &waiting, "nothing"), TR_OK);
    naps.counted = false;
}

/* Idle servers, or ranks that outnumber cores, wake 200 times a second and not a thousand times. */
UNIT_CASE(who_waits_long_wakes_seldom)
{
    wait_for(1, 2);
    long before = naps.n;
    wait_for(1, 12);
    ck_assert_int_le(naps.n - before, 2100);
    ck_assert_int_ge(naps.n - before, 1900);
    ck_assert_double_le(naps.longest, 5e-3);
}

UNIT_CASE(who_waits_briefly_loses_no_time)
{
    wait_for(1, 1e-3);
    ck_assert_double_le(naps.longest, 0.25e-3);
    wait_for(1, 0.1);
    ck_assert_double_le(naps.longest, 2e-3);
}

/* Accesses of other hosts to a window progress only while its rank is in MPI. */
UNIT_CASE(between_hosts_naps_are_short)
{
    wait_for(2, 12);
    ck_assert_double_le(naps.longest, 1e-3);
}
