#include "ranks/ranks.h"

#include <dirent.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/terminal.h"

int tr_poll_add(tr_context *tr, tr_poll_fn *poll, void *what)
{
    TR_TRY(TR_GROW(&tr->polls, &tr->poll_capacity, tr->poll_count + 1));
    tr->polls[tr->poll_count++] = (struct tr_poll){poll, what};
    return TR_OK;
}

void tr_poll_remove(tr_context *tr, tr_poll_fn *poll, void *what)
{
    for (size_t i = 0; i < tr->poll_count; i++) {
        if (tr->polls[i].poll != poll || tr->polls[i].what != what) continue;
        tr->polls[i] = tr->polls[--tr->poll_count];
        return;
    }
}

int tr_progress(tr_context *tr, int *did)
{
    if (tr->polling) return TR_OK;
    tr->polling = true;
    if (tr->layout.nodes > 1) {
        /* Over TCP, accesses of other ranks to a window progress only while its owner is inside MPI. A probe that finds a
         * message would return without progress; this one never finds a message. */
        int here;
        MPI_Iprobe(MPI_ANY_SOURCE, TR_TAG_NONE, tr->wire, &here, MPI_STATUS_IGNORE);
    }
    int status = TR_OK;
    for (size_t i = 0; i < tr->poll_count && status == TR_OK; i++)
        status = tr->polls[i].poll(tr->polls[i].what, did);
    tr->polling = false;
    return status;
}

struct tr_waiting tr_waiting_begin(void)
{
    return (struct tr_waiting){.since = 0};
}

/* Returns the number of bytes that this process has sent or received over TCP. */
static uint64_t bytes_moved(void)
{
    uint64_t sum = 0;
    DIR *open = opendir("/proc/self/fd");
    for (const struct dirent *entry; open && (entry = readdir(open)) != NULL;) {
        struct tcp_info info = {0};
        socklen_t size = sizeof info;
        if (entry->d_name[0] == '.') continue;
        if (getsockopt(atoi(entry->d_name), IPPROTO_TCP, TCP_INFO, &info, &size) == 0)
            sum += info.tcpi_bytes_acked + info.tcpi_bytes_received;
    }
    if (open) closedir(open);
    return sum;
}

/* Prints the event that this rank waits for, at intervals that double (a rank may load data for hours). Reports the wait to the
 * supervisor, which detects that all ranks wait. The wait restarts while data are moving over TCP. A rank that has failed exits
 * after half the patience, before the supervisor detects a hang: other ranks wait for it in a collective and never reach
 * tr_agree(). */
static void waiting_lose_patience(const tr_context *tr, struct tr_waiting *waiting, const char *what,
                                  va_list arguments)
{
    const double often = 1; /* seconds between checks of the TCP traffic */
    const double rate =
        64 << 10; /* bytes per second that count as a transfer; the lifeline causes far fewer */
    double now = tr_now(), limit = tr_patience(tr);
    bool moves = false;
    if (waiting->since != 0 && now - waiting->looked >= often) {
        uint64_t moved = bytes_moved();
        moves = waiting->looked > 0 && (double)(moved - waiting->moved) >= rate * (now - waiting->looked);
        waiting->looked = now;
        waiting->moved = moved;
    }
    if (waiting->since == 0 || moves) {
        waiting->since = now;
        waiting->next = now + limit;
    }
    if (tr->failed && now - waiting->since >= limit / 2) {
        tr_say_error(tr, tr_error_text());
        _exit(tr->failed);
    }
    if (now - waiting->since >= limit) tr_lifeline_wait(tr->lifeline, now - waiting->since);
    if (!what || now < waiting->next) return;
    waiting->next = now + 2 * (now - waiting->since);
    char text[512];
    vsnprintf(text, sizeof text, what, arguments);
    tr_live_end();
    tr_printf(stderr, "trireme: %s%s%srank %d has been waiting %.0f s for %s\n", tr->team ? "task " : "",
              tr->team ? tr->team : "", tr->team ? ": " : "", tr->rank, now - waiting->since, text);
}

double tr_patience(const tr_context *tr)
{
    return tr->job ? tr->job->ranks.patience : 60.0;
}

int tr_waiting_turn(tr_context *tr, struct tr_waiting *waiting, const char *what, ...)
{
    int did = 0;
    TR_TRY(tr_progress(tr, &did));
    if (did) {
        *waiting = tr_waiting_begin();
        return TR_OK;
    }
    /* Pauses: first spins (an answer within the node takes a microsecond), then yields the core, then sleeps for growing times,
     * so that a long wait needs no core and a short wait loses no time. With several nodes the longest sleep is shorter: see
     * tr_progress(). */
    enum { SHORT = 50, LONGER = 128 }; /* number of sleeps up to 1 ms; number of later sleeps per added ms */
    const double longest = tr->layout.nodes > 1 ? 1e-3 : 5e-3;
    const unsigned spins = tr->crowded ? 2 : 2000, yields = tr->crowded ? 20 : 200, idle = waiting->idle++;
    bool slept = idle >= spins + yields + SHORT; /* this pause is a sleep of at least 1 ms */
    if (idle >= spins + yields) {
        unsigned sleeps = idle - spins - yields;
        double pause = slept ? 1e-3 * (1 + (double)(sleeps - SHORT) / LONGER) : 20e-6 * (1 + sleeps);
        tr_sleep(pause < longest ? pause : longest);
    } else if (idle >= spins) {
        sched_yield();
    }
    if (!slept && waiting->idle % 256) return TR_OK; /* reading the time costs as much as a poll */
    va_list arguments;
    va_start(arguments, what);
    waiting_lose_patience(tr, waiting, what, arguments);
    va_end(arguments);
    return TR_OK;
}

bool tr_request_done(MPI_Request *request)
{
    int done = 0;
    MPI_Test(request, &done, MPI_STATUS_IGNORE);
    return done;
}

int tr_wait_request(tr_context *tr, MPI_Request *request, const char *what)
{
    struct tr_waiting waiting = tr_waiting_begin();
    while (!tr_request_done(request)) TR_TRY(tr_waiting_turn(tr, &waiting, what ? "%s" : NULL, what));
    return TR_OK;
}

bool tr_receive_here(tr_context *tr, enum tr_tag tag, void *data, size_t bytes, int *from)
{
    int here = 0;
    MPI_Message message;
    MPI_Request request;
    MPI_Status status;
    MPI_Improbe(MPI_ANY_SOURCE, (int)tag, tr->wire, &here, &message, &status);
    if (!here) return false;
    *from = status.MPI_SOURCE;
    MPI_Imrecv(data, (int)bytes, MPI_BYTE, &message, &request);
    tr_wait_alone(tr, &request, "the rest of a message");
    return true;
}

int tr_barrier(tr_context *tr, MPI_Comm comm, const char *what)
{
    MPI_Request request;
    MPI_Ibarrier(comm, &request);
    return tr_wait_request(tr, &request, what);
}
