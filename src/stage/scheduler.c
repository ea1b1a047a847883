#define _GNU_SOURCE
#include "stage/scheduler.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/fault.h"
#include "stage/run.h"

/* ---- orders ---- */

/* An order that is being sent to one rank. */
struct tr_sent {
    struct tr_sent *next;
    MPI_Request request;
    char order[];
};

int tr_scheduler_open(struct tr_scheduler *s)
{
    TR_TRY(tr_new(&s->received, 1, tr_max_size(s->order_bytes, s->report_bytes), "an order"));
    return tr_new(&s->report, 1, s->report_bytes, "a report");
}

void tr_scheduler_close(struct tr_scheduler *s)
{
    TR_FREE_ALL(s->own, s->received, s->report);
    s->own = s->received = s->report = NULL;
}

static int order_send(struct tr_scheduler *s, const struct tr_order *order, size_t bytes, int rank)
{
    struct tr_sent *sent;
    TR_TRY(tr_new((void **)&sent, 1, sizeof *sent + bytes, "an order"));
    memcpy(sent->order, order, bytes);
    MPI_Isend(sent->order, (int)bytes, MPI_BYTE, rank, TR_TAG_ORDER, s->tr->wire, &sent->request);
    sent->next = s->sent;
    s->sent = sent;
    return TR_OK;
}

int tr_scheduler_order(struct tr_scheduler *s, const struct tr_order *order, size_t bytes, const int *rank,
                       int n)
{
    for (struct tr_sent **link = &s->sent; *link;) { /* frees orders that have arrived */
        struct tr_sent *sent = *link;
        bool arrived = tr_request_done(&sent->request);
        if (!arrived) link = &sent->next;
        else *link = sent->next;
        if (arrived) free(sent);
    }
    for (int i = 0; i < (rank ? n : s->tr->size); i++) {
        int to = rank ? rank[i] : i;
        if (to > 0) {
            TR_TRY(order_send(s, order, bytes, to));
        } else {
            TR_TRY(tr_new((void **)&s->own, 1, bytes, "an order"));
            memcpy(s->own, order, bytes);
        }
    }
    s->running += order->reporter >= 0;
    return TR_OK;
}

static int order_ended(struct tr_scheduler *s, const void *report)
{
    s->running--;
    s->ended(s->state, report);
    return s->next(s->state);
}

int tr_scheduler_poll(void *what, int *did)
{
    struct tr_scheduler *s = what;
    int from;
    if (!tr_receive_here(s->tr, TR_TAG_OUTCOME, s->received, s->report_bytes, &from)) return TR_OK;
    ++*did;
    return order_ended(s, s->received);
}

int tr_scheduler_direct(struct tr_scheduler *s)
{
    struct tr_waiting waiting = tr_waiting_begin();
    int status = s->next(s->state);
    while (status == TR_OK && (s->own || s->running > 0)) {
        int did = 0;
        if (!s->own) {
            status = tr_scheduler_poll(s, &did);
            if (status == TR_OK && !did) status = tr_waiting_turn(s->tr, &waiting, NULL);
            continue;
        }
        struct tr_order *own = s->own;
        s->own = NULL;
        status = s->run(s->state, own, s->report);
        if (status == TR_OK && own->reporter == 0) status = order_ended(s, s->report);
        else if (status == TR_OK && own->reporter < 0) status = s->next(s->state);
        free(own);
        waiting = tr_waiting_begin();
    }
    return status;
}

int tr_scheduler_end(struct tr_scheduler *s, int outcome)
{
    const struct tr_order end = {.kind = TR_ORDER_END, .number = outcome, .reporter = -1};
    int status = TR_OK;
    for (int rank = 1; status == TR_OK && rank < s->tr->size; rank++)
        status = order_send(s, &end, sizeof end, rank);
    for (struct tr_sent *sent; (sent = s->sent);) {
        if (status == TR_OK)
            status = tr_wait_request(s->tr, &sent->request, "the other ranks to receive their orders");
        if (status != TR_OK) return status; /* MPI may still read the orders */
        s->sent = sent->next;
        free(sent);
    }
    return status;
}

int tr_scheduler_follow(struct tr_scheduler *s, int *outcome)
{
    const struct tr_order *order = s->received;
    for (;;) {
        MPI_Request request;
        MPI_Irecv(s->received, (int)s->order_bytes, MPI_BYTE, 0, TR_TAG_ORDER, s->tr->wire, &request);
        TR_TRY(tr_wait_request(s->tr, &request, NULL));
        if (order->kind == TR_ORDER_END) break;
        if (s->run(s->state, order, s->report) != TR_OK || order->reporter != s->tr->rank) continue;
        MPI_Isend(s->report, (int)s->report_bytes, MPI_BYTE, 0, TR_TAG_OUTCOME, s->tr->wire, &request);
        TR_TRY(tr_wait_request(s->tr, &request, NULL));
    }
    *outcome = (int)order->number;
    return TR_OK;
}

/* ---- which task is next, and where ---- */

int tr_schedule_open(int ranks, const int *node_of, size_t tasks, struct tr_schedule **schedule)
{
    struct tr_schedule *s;
    TR_TRY(TR_NEW(&s, 1));
    *schedule = s;
    s->ranks = ranks;
    for (int rank = 0; rank < ranks; rank++) s->nodes = tr_max_int(s->nodes, node_of[rank] + 1);
    TR_TRY(TR_NEW(&s->node_of, (size_t)ranks));
    TR_TRY(TR_NEW(&s->owner, (size_t)ranks));
    TR_TRY(TR_NEW(&s->holds, (size_t)ranks));
    TR_TRY(TR_NEW(&s->held, tasks));
    TR_TRY(TR_NEW(&s->free, (size_t)s->nodes));
    TR_TRY(TR_NEW(&s->last, (size_t)s->nodes));
    TR_TRY(TR_NEW(&s->task, tasks));
    for (int rank = 0; rank < ranks; rank++) {
        s->owner[rank] = s->holds[rank] = -1;
        s->node_of[rank] =
            s->nodes - 1 - node_of[rank]; /* reversed, so that the node of rank 0 is chosen last */
        s->free[s->node_of[rank]]++;
    }
    s->tasks = tasks;
    for (size_t i = 0; i < tasks; i++) {
        struct tr_scheduled *t = &s->task[i];
        t->since = t->begin = t->end = NAN;
        t->because = -1;
    }
    return TR_OK;
}

void tr_schedule_close(struct tr_schedule *s)
{
    if (!s) return;
    TR_FREE_ALL(s->node_of, s->owner, s->holds, s->held, s->free, s->last, s->task, s);
}

int tr_choose_place(const int64_t *last, const int *free, int n, int workers, bool longest_unused)
{
    int best = -1;
    for (int i = 0; i < n; i++) {
        if (free && free[i] < workers) continue;
        if (best < 0 || (longest_unused ? last[i] < last[best] : last[i] > last[best])) best = i;
    }
    return best;
}

/* Starts a task: chooses its ranks. all: number of free ranks. */
static void schedule_start(struct tr_schedule *s, int task, int all, double now)
{
    struct tr_scheduled *t = &s->task[task];
    int wanted = t->wanted > 0 ? t->wanted : all;
    for (int node = 0; node < s->nodes; node++) s->last[node] = 0;
    for (size_t i = 0; i < s->tasks; i++) {
        const struct tr_scheduled *other = &s->task[i];
        if (other->turn > 0 && other->data == t->data && other->turn > s->last[other->home])
            s->last[other->home] = other->turn;
    }
    while (t->ranks < wanted) {
        int node = tr_choose_place(s->last, s->free, s->nodes, wanted - t->ranks, false);
        if (node < 0) { /* no node has enough free ranks: takes those of the node that has most */
            node = 0;
            for (int other = 1; other < s->nodes; other++)
                if (s->free[other] > s->free[node]) node = other;
        }
        if (t->ranks == 0) t->home = node;
        /* takes first ranks that hold the data, then the others, both in descending order */
        int n = tr_min_int(wanted - t->ranks, s->free[node]);
        for (int holding = 1; holding >= 0; holding--)
            for (int rank = s->ranks - 1; rank >= 0 && n > 0; rank--) {
                bool holds = s->holds[rank] == t->data;
                if (s->owner[rank] >= 0 || s->node_of[rank] != node || holds != holding) continue;
                s->owner[rank] = task;
                s->free[node]--;
                if (s->holds[rank] >= 0) s->held[s->holds[rank]]--;
                t->ranks++;
                n--;
            }
    }
    t->turn = ++s->turns;
    t->state = TR_TASK_RUNNING;
    t->begin = now;
}

/* Returns whether all tasks before this task are done. If one of them has failed or was dropped, drops this task, too. */
static bool schedule_is_ready(const struct tr_schedule *s, struct tr_scheduled *t)
{
    bool ready = true;
    for (size_t i = 0; i < t->after_count; i++) {
        enum tr_task_state before = s->task[t->after[i]].state;
        ready = ready && before == TR_TASK_DONE;
        if (before != TR_TASK_FAILED && before != TR_TASK_DROPPED) continue;
        t->state = TR_TASK_DROPPED;
        t->because = t->after[i];
        return false;
    }
    return ready;
}

/* Returns whether enough free ranks hold the task's data. */
static bool schedule_is_held(const struct tr_schedule *s, const struct tr_scheduled *t)
{
    return s->held[t->data] >= tr_max_int(t->wanted, 1);
}

static bool schedule_goes_before(const struct tr_schedule *s, const struct tr_scheduled *a,
                                 const struct tr_scheduled *b)
{
    double lead = (a->priority - a->since) - (b->priority - b->since);
    return lead > 0 || (lead == 0 && schedule_is_held(s, a) && !schedule_is_held(s, b));
}

bool tr_schedule_next(struct tr_schedule *s, double now, int *task)
{
    int all = 0, first = -1, fitting = -1; /* number of free ranks; first task; first task that fits */
    for (int node = 0; node < s->nodes; node++) all += s->free[node];
    for (int i = 0; i < (int)s->tasks; i++) {
        struct tr_scheduled *t = &s->task[i];
        if (t->state != TR_TASK_WAITING || t->held) continue;
        bool ready = schedule_is_ready(s, t);
        *task = i;
        if (t->state == TR_TASK_DROPPED) return true;
        if (!ready) continue;
        if (isnan(t->since)) t->since = now;
        bool fits = tr_max_int(t->wanted, 1) <= all;
        if (first < 0 || schedule_goes_before(s, t, &s->task[first])) first = i;
        if (fits && (fitting < 0 || schedule_goes_before(s, t, &s->task[fitting]))) fitting = i;
    }
    *task = fitting;
    if (fitting < 0) return false;
    const struct tr_scheduled *f = &s->task[first];
    if (first != fitting && f->priority + now - f->since >= TR_STARVED) return false;
    schedule_start(s, fitting, all, now);
    return true;
}

void tr_schedule_ended(struct tr_schedule *s, int task, bool failed, double now)
{
    struct tr_scheduled *t = &s->task[task];
    for (int rank = 0; rank < s->ranks; rank++) {
        if (s->owner[rank] != task) continue;
        s->owner[rank] = -1;
        s->holds[rank] = t->data;
        s->held[t->data]++;
        s->free[s->node_of[rank]]++;
    }
    t->state = failed ? TR_TASK_FAILED : TR_TASK_DONE;
    t->end = now;
}

bool tr_schedule_over(const struct tr_schedule *s)
{
    for (size_t i = 0; i < s->tasks; i++)
        if (s->task[i].state == TR_TASK_WAITING || s->task[i].state == TR_TASK_RUNNING) return false;
    return true;
}

/* ---- the best degree of a stage ---- */

/* These are ratios of times or, widest_gap, of degrees. */
static const double tolerance = 0.05; /* times count as equal up to this relative difference */
static const double clearly_faster = 0.8, clearly_slower = 2.0; /* three clocks suffice beyond these */
static const double near_best = 1.25; /* degrees up to this multiple of the best time are measured in full */
static const double widest_gap = 1.5; /* maximum without a degree between the best and the next degree */
static const double drift = 1.5;      /* change of the best time that starts a new search */

enum {
    FIRST_CLOCKS = 3, /* maximum number of clocks in the first measurement of a degree */
    MOST_GAPS = 4,
    FULL_SHARE = 30,   /* a full measurement has at most 1/30 of all clocks */
    FIRST_SHARE = 100, /* a first measurement has at most 1/100 of all clocks */
    START_SHARE = 30   /* the first degree is most × START_SHARE / clocks, within bounds */
};

/* ---- degrees: multiples of the unit ---- */

static int degree_clamp(int64_t value, int least, int most)
{
    return value < least ? least : value > most ? most : (int)value;
}

static int degree_rounded(const struct tr_degree *d, double parallelism)
{
    int64_t units = llround(parallelism / d->unit);
    return degree_clamp(units * d->unit, d->least, d->most);
}

static int degree_doubled(const struct tr_degree *d, int parallelism)
{
    return degree_clamp(2 * (int64_t)parallelism, d->least, d->most);
}

/* ---- measurements ---- */

static double degree_median(const double *seconds, int n)
{
    double sorted[TR_DEGREE_CLOCKS];
    for (int i = 0; i < n; i++) {
        int at = i;
        for (; at > 0 && sorted[at - 1] > seconds[i]; at--) sorted[at] = sorted[at - 1];
        sorted[at] = seconds[i];
    }
    return n % 2 ? sorted[n / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2;
}

/* Returns the index of the first point whose degree is not below `parallelism`. */
static int degree_place(const struct tr_degree *d, int parallelism)
{
    int at = 0;
    while (at < d->points && d->point[at].parallelism < parallelism) at++;
    return at;
}

static struct tr_degree_point *degree_point(struct tr_degree *d, int parallelism)
{
    int at = degree_place(d, parallelism);
    if (at == d->points || d->point[at].parallelism != parallelism) {
        memmove(&d->point[at + 1], &d->point[at], (size_t)(d->points - at) * sizeof *d->point);
        d->point[at] = (struct tr_degree_point){.parallelism = parallelism, .median = HUGE_VAL};
        d->points++;
    }
    return &d->point[at];
}

/* Returns the least time per clock of all degrees except `parallelism`; infinity if there are none. */
static double degree_fastest_but(const struct tr_degree *d, int parallelism)
{
    double least = HUGE_VAL;
    for (int i = 0; i < d->points; i++)
        if (d->point[i].parallelism != parallelism) least = fmin(least, d->point[i].median);
    return least;
}

/* ---- the search ---- */

static void degree_measure(struct tr_degree *d, int parallelism, int clocks)
{
    d->parallelism = parallelism;
    d->wanted = clocks;
}

/* Returns a degree between points low and high, if the gap between them is wide; otherwise 0. */
static int degree_between(const struct tr_degree *d, int low, int high)
{
    if (low < 0 || high >= d->points) return 0;
    int a = d->point[low].parallelism, b = d->point[high].parallelism;
    int middle = degree_rounded(d, sqrt((double)a * b));
    return b > widest_gap * a && middle > a && middle < b ? middle : 0;
}

/* Returns a degree in a gap next to point `best`, or 0. The gap below is only tried if the degree could be fast enough: if its time
 * were that of the lower point, divided by the increase of workers. */
static int degree_in_gap(struct tr_degree *d, int best)
{
    if (d->gaps == MOST_GAPS) return 0;
    int below = degree_between(d, best - 1, best), above = degree_between(d, best, best + 1);
    if (below) {
        const struct tr_degree_point *low = &d->point[best - 1];
        double hoped = low->median * low->parallelism / below;
        if (hoped > (1 + tolerance) * degree_fastest_but(d, -1)) below = 0;
    }
    bool take_below = below && (!above || d->point[best - 1].median <= d->point[best + 1].median);
    d->gaps += below || above;
    return take_below ? below : above;
}

/* The search after the search upward. Measures degrees that may be the best, and the degree below the best, in full, because a few
 * slow clocks may have misled the search. Then tries degrees beyond the best if it is the lowest or highest point, or in gaps next
 * to it. If there are no more degrees to try, the search ends. */
static void degree_search_around(struct tr_degree *d)
{
    double most = near_best * degree_fastest_but(d, -1);
    int best = 0; /* the point of the smallest degree that is about as fast as the fastest */
    while (d->point[best].median > (1 + tolerance) * degree_fastest_but(d, -1)) best++;
    int parallelism = d->point[best].parallelism, next = parallelism;
    d->phase = TR_DEGREE_AROUND;
    for (int i = 0; i < d->points; i++) {
        const struct tr_degree_point *point = &d->point[i];
        if (point->samples >= d->full || (point->median > most && i != best - 1)) continue;
        degree_measure(d, point->parallelism, d->full);
        return;
    }
    if (best == 0) next = degree_clamp(parallelism / 2 / d->unit * d->unit, d->least, d->most);
    if (next == parallelism && best == d->points - 1) next = degree_doubled(d, parallelism);
    if (next == parallelism) next = degree_in_gap(d, best);
    if (next && d->points < TR_DEGREE_POINTS) {
        degree_measure(d, next, d->first);
        return;
    }
    d->phase = TR_DEGREE_FOUND;
    d->parallelism = parallelism;
    d->recent = (struct tr_degree_point){.parallelism = parallelism};
}

/* Decides about the next measurement. The search upward ends at a slower degree, or at the second one that is not faster. */
static void degree_step(struct tr_degree *d)
{
    struct tr_degree_point *point = degree_point(d, d->parallelism);
    double time = point->median = degree_median(point->seconds, point->samples);
    double fastest = degree_fastest_but(d, point->parallelism);
    if (point->samples < d->wanted) return;
    bool unclear = isfinite(fastest) && time >= clearly_faster * fastest && time <= clearly_slower * fastest;
    if (d->wanted < d->full && unclear) {
        d->wanted = d->full;
        return;
    }
    if (d->phase == TR_DEGREE_UP) {
        bool first = d->points == 1, slower = !first && time > (1 + tolerance) * fastest;
        int next = degree_doubled(d, d->parallelism);
        d->level = first || time < (1 - tolerance) * fastest ? 0 : d->level + 1;
        if (!slower && d->level < 2 && next > d->parallelism) {
            degree_measure(d, next, d->first);
            return;
        }
    }
    degree_search_around(d);
}

static void degree_search_from(struct tr_degree *d, int start)
{
    d->phase = TR_DEGREE_UP;
    d->points = d->level = d->gaps = 0;
    d->searches++;
    degree_measure(d, start, d->first);
}

/* Starts the search at the least degree or, if this would take too many of the clocks, higher (see «start» in scheduler.h). */
static void degree_set_clocks(struct tr_degree *d, int64_t clocks)
{
    d->clocks = clocks;
    d->full = degree_clamp(clocks / FULL_SHARE, 1, TR_DEGREE_CLOCKS);
    d->first = degree_clamp(clocks / FIRST_SHARE, 1, FIRST_CLOCKS);
    double affordable = (double)START_SHARE * d->most / (double)clocks;
    degree_search_from(d, degree_rounded(d, fmin(affordable, sqrt((double)d->least * d->most))));
}

void tr_degree_begin(struct tr_degree *d, const struct tr_degree_options *options)
{
    *d = (struct tr_degree){.unit = tr_max_int(1, options->unit)};
    int64_t units = (tr_max_int(1, options->least) + (int64_t)d->unit - 1) / d->unit;
    d->most = tr_max_int(1, options->most / d->unit) * d->unit;
    d->least = degree_clamp(units * d->unit, d->unit, d->most);
    if (options->clocks > 0) degree_set_clocks(d, options->clocks);
}

struct tr_substage tr_degree_next(struct tr_degree *d, int64_t clocks_left)
{
    if (!d->searches) degree_set_clocks(d, clocks_left > 0 ? clocks_left : 1);
    struct tr_substage sub = {.parallelism = d->parallelism, .clocks = clocks_left};
    sub.searching = d->phase != TR_DEGREE_FOUND && d->least < d->most;
    int at = degree_place(d, d->parallelism);
    bool is_tried = at < d->points && d->point[at].parallelism == d->parallelism;
    int missing = d->wanted - (is_tried ? d->point[at].samples : 0);
    if (sub.searching && missing < sub.clocks) sub.clocks = missing;
    return sub;
}

/* When the best degree has been found, starts the search again from it if the time of its clocks changes. */
void tr_degree_report(struct tr_degree *d, const double *seconds, size_t n)
{
    bool searching = d->phase != TR_DEGREE_FOUND;
    struct tr_degree_point *point = searching ? degree_point(d, d->parallelism) : &d->recent;
    for (size_t i = 0; i < n; i++) {
        if (!isfinite(seconds[i]) || seconds[i] < 0) continue;
        if (point->samples == TR_DEGREE_CLOCKS) {
            memmove(point->seconds, point->seconds + 1, (TR_DEGREE_CLOCKS - 1) * sizeof *point->seconds);
            point->samples--;
        }
        point->seconds[point->samples++] = seconds[i];
    }
    if (searching && point->samples) degree_step(d);
    if (searching || point->samples < TR_DEGREE_CLOCKS || d->least == d->most) return;
    double now = degree_median(point->seconds, point->samples);
    double then = d->point[degree_place(d, d->parallelism)].median;
    if (now > drift * then || now * drift < then) degree_search_from(d, d->parallelism);
}

void tr_degree_describe(const struct tr_degree *d, char *text, size_t size)
{
    TR_FREED char *all = NULL;
    size_t length = 0;
    bool any = false;
    FILE *file = open_memstream(&all, &length);
    if (size) *text = '\0';
    if (!file) return;
    fputs("auto: ", file);
    for (int i = 0; i < d->points; i++) {
        double seconds = d->point[i].median;
        if (!d->point[i].samples) continue;
        fprintf(file, "%s%d: ", any ? ", " : "", d->point[i].parallelism);
        if (seconds >= 1) fprintf(file, "%.3g s", seconds);
        else if (seconds >= 1e-3) fprintf(file, "%.3g ms", 1e3 * seconds);
        else fprintf(file, "%.3g us", 1e6 * seconds);
        any = true;
    }
    fputs(any ? " -> " : "-> ", file);
    if (d->phase == TR_DEGREE_FOUND) fprintf(file, "%d", d->parallelism);
    else fputs("\u2026", file);
    if (d->searches > 1) fprintf(file, " (search %d)", d->searches);
    fclose(file);
    snprintf(text, size, "%s", all ? all : "");
}

/* ---- tasks of several stages ---- */

/* An instance is a stage together with a set of workers on which it runs. All ranks prepare it together when it runs first. After
 * that, its views, windows and communicators are suspended, and only its participants take part in further runs. */
struct instance {
    struct instance *next;
    int stage;
    struct tr_worker_set workers;
    bool prepared, can_suspend; /* the instance is prepared; its views can be suspended and resumed */
    struct tr_suspended suspended;
    void *kept; /* tr_worker.kept */
};

/* Position in the task. A request is a result of tr_task.next(); it is run in one or several parts, each by one order. Rank 0 sends
 * the position with every order. Checkpoints contain it as numbers of 8 bytes. */
struct position {
    int64_t stages;      /* number of stages of the task */
    tr_next next;        /* the last request; next.stage = -1: none yet */
    int64_t before;      /* number of clocks of this request that have ended */
    int64_t ended;       /* number of clocks of the task that ended in earlier requests and parts */
    int64_t evaluations; /* number of evaluations of all stages so far */
    int64_t group;       /* group that runs the stage, if the stage has one_group */
    int64_t servers;     /* number of servers of the tables, if a request has set it; else 0 */
};
static_assert(sizeof(struct position) % sizeof(int64_t) == 0, "");

/* Kinds of orders: run a part of a stage, move the tables to at.next.servers servers, or take a checkpoint. */
enum { RUN, MOVE, TAKE };
struct assignment {
    struct tr_order order; /* order.number is for RUN the stage; for TAKE: whether the run stops after it */
    int64_t clocks;
    struct tr_worker_choice workers;
    int at_once; /* number of these workers that compute at a time, if the degree is no multiple of the groups; 0: all */
    struct position at;
};

/* Record of a stage on rank 0. Checkpoints contain its bytes. */
enum { TRANSITIONS = 128 };
struct record {
    tr_ran ran; /* result of the current request so far */
    struct tr_stage_sum sum;
    struct tr_degree degree;
    bool searches;       /* the search for the best degree has begun */
    bool cut;            /* the current part was cut short by task_plan(), and the next part continues it */
    bool is_rest;        /* the current part continues a part that was cut short */
    int64_t transitions; /* number of transitions so far; the i-th is at i % TRANSITIONS */
    double transition[TRANSITIONS]; /* seconds from the end of the previous stage to the first clock */
};
static_assert(sizeof(struct record) % sizeof(int64_t) == 0, "");

struct task {
    tr_context *tr;
    const tr_task *task;
    struct instance *instances;
    struct tr_suspended outer; /* views that were open before the task */
    struct position at;        /* current position; on ranks other than 0, that of their last order */
    struct record *record;     /* rank 0: by stage */
    int64_t *last; /* rank 0: by stage and group: sum.runs after the last run on the group, or 0 */
    double began;
    double compute_seconds, evaluate_seconds; /* times of this worker, summed over all stages */
    double ended;                             /* rank 0: tr_now() at the end of the last clock that was run */
    struct tr_scheduler scheduler;
    int agreed;              /* status of the last order, equal on its participants */
    struct assignment now;   /* rank 0: the current order */
    struct tr_stage_run run; /* the run of this order */
    bool fresh;              /* rank 0: the instance of this order had to be prepared */
    bool taken;              /* rank 0: a checkpoint before the next part was taken, or was not due */
};

/* Returns whether checkpoints are taken of the task. */
static bool task_is_checkpointed(const struct task *k)
{
    return k->task->snapshot && k->tr->checkpoints;
}

static int64_t task_clocks_left(const struct task *k)
{
    return k->at.next.stage < 0 ? 0 : k->at.next.clocks - k->at.before;
}

static struct instance *instance_find(const struct task *k, const struct assignment *a)
{
    for (struct instance *s = k->instances; s; s = s->next)
        if (s->stage == a->order.number && memcmp(&s->workers.of, &a->workers, sizeof a->workers) == 0)
            return s;
    return NULL;
}

/* Prepares an instance. On all ranks, including those that will not take part in its runs. */
static int instance_prepare(struct task *k, struct instance *s, const tr_stage *stage)
{
    tr_context *tr = k->tr;
    struct tr_worker_set with_all = s->workers;
    with_all.participants = tr->world;
    with_all.participates = NULL;
    tr->active = &with_all;
    tr_tables_end(tr, &s->suspended); /* ends views of a previous run that cannot be resumed */
    struct tr_stage_run run;
    tr_stage_open(tr, stage, &run);
    TR_TRY(tr_sync_begin(tr->sync));
    int prepared = tr_stage_prepare(&run);
    s->kept = run.me.kept;
    TR_TRY(prepared);
    bool needed = false;
    int status = tr_tables_needs(tr, &needed, &s->can_suspend);
    if (status == TR_OK && !s->workers.participates) status = tr_worker_set_restrict(tr, &s->workers, needed);
    tr_clock_leave(tr->sync->clock);
    TR_TRY(tr_agree(tr, status));
    tr->active = &s->workers;
    s->prepared = true;
    return TR_OK;
}

static void instance_release(const struct task *k, struct instance *s)
{
    const tr_stage *stage = &k->task->stage[s->stage];
    if (s->kept && stage->release) stage->release(s->kept);
    s->kept = NULL;
}

/* Carries out order RUN, on the participants or, if the instance must be prepared, on all ranks. */
static int assignment_run(struct task *k, const struct assignment *a, struct tr_stage_run *run)
{
    tr_context *tr = k->tr;
    struct instance *s = instance_find(k, a);
    bool ready = s && s->prepared;
    if (!s) {
        if (TR_NEW(&s, 1) != TR_OK) return tr_agree(tr, TR_ERR_SYSTEM);
        s->stage = (int)a->order.number;
        s->next = k->instances;
        k->instances = s;
        TR_TRY(tr_worker_set_open(tr, a->workers, &s->workers));
    }
    tr_stage stage = k->task->stage[a->order.number], shown = stage;
    stage.clocks = a->clocks;
    tr->active = &s->workers;
    int status = ready ? tr_tables_resume(tr, &s->suspended) : instance_prepare(k, s, &stage);
    if (status == TR_OK) {
        tr_stage_open(tr, &stage, run);
        shown.name = k->task->name;
        shown.clocks = k->task->evaluations;
        run->shown = &shown;
        run->evaluated = k->at.evaluations;
        run->ended = k->at.ended;
        run->at_once = a->at_once;
        run->begin = k->began;
        run->compute_seconds = k->compute_seconds;
        run->evaluate_seconds = k->evaluate_seconds;
        run->me.kept = s->kept;
        run->me.before = k->at.before;
        run->me.whole = k->at.next.clocks;
        run->me.command = k->at.next.command;
    }
    if (status == TR_OK && tr_participates(&s->workers, tr->rank)) {
        (void)TR_FAULT("stage");
        status = tr_stage_begin(run);
        if (status == TR_OK) {
            status = tr_stage_run(run);
            if (tr_works(tr) && a->at_once == 0) tr_timeline_add(tr, stage.name, run->first, run->last);
            k->compute_seconds = run->compute_seconds;
            k->evaluate_seconds = run->evaluate_seconds;
        }
    }
    if (!s->can_suspend) instance_release(k, s);
    int suspending = tr_tables_suspend(tr, s->can_suspend, &s->suspended);
    if (!s->can_suspend) s->prepared = false;
    tr->active = &tr->all;
    return status == TR_OK ? suspending : status;
}

/* Closes the views of an instance, so that it must be prepared again. All ranks. */
static void instance_close(struct task *k, struct instance *s)
{
    tr_tables_end(k->tr, &s->suspended);
    instance_release(k, s);
    s->prepared = false;
}

static int task_move_tables(struct task *k, int64_t servers)
{
    for (struct instance *s = k->instances; s; s = s->next) instance_close(k, s);
    for (size_t i = 0; i < k->task->tables; i++) {
        uint64_t moved;
        TR_TRY(tr_table_resize(k->task->table[i], (uint32_t)servers, &moved));
    }
    return TR_OK;
}

/* ---- rank 0: the next part of a task ---- */

static const double part_seconds = 0.1; /* duration of a part between two possible checkpoints */

/* Plans the next part of the request: all clocks that are left, a sub-stage of a search, or clocks for part_seconds. The first of
 * the workers is the reporter, and reports the times of its clocks. */
static struct assignment task_plan(const struct task *k)
{
    const tr_next *next = &k->at.next;
    const tr_stage *stage = &k->task->stage[next->stage];
    struct record *r = &k->record[next->stage];
    struct tr_substage sub = {.parallelism = next->workers, .clocks = task_clocks_left(k)};
    const struct tr_layout *layout = &k->tr->layout;
    int groups = layout->groups, most = stage->one_group ? layout->group_size : tr_layout_workers(layout);
    if (next->workers == TR_ALL_WORKERS) sub.parallelism = most;
    if (next->workers == TR_AUTO_WORKERS) {
        struct tr_degree_options options = {.least = 1,
                                            .most = most,
                                            .unit = stage->one_group ? 1 : groups,
                                            .clocks = task_clocks_left(k) * k->task->evaluations};
        if (!r->searches) tr_degree_begin(&r->degree, &options);
        r->searches = true;
        sub = tr_degree_next(&r->degree, task_clocks_left(k));
    }
    /* Limits the part to about part_seconds, because no checkpoint can be taken before its end. The first clock is measured. */
    int64_t clocks = sub.clocks;
    if (task_is_checkpointed(k) && !stage->evaluate && !stage->begin) {
        double fit = part_seconds * (double)r->sum.clocks / r->sum.seconds;
        if (r->sum.clocks == 0 || fit < 1) clocks = 1;
        else if (fit < (double)clocks) clocks = (int64_t)fit;
    }
    r->is_rest = r->cut;
    r->cut = clocks < sub.clocks;
    int workers = tr_min_int(sub.parallelism, most);
    struct tr_worker_choice choice = {0, groups, (workers + groups - 1) / groups};
    if (stage->one_group) choice = (struct tr_worker_choice){(int)k->at.group, 1, workers};
    bool all = workers == choice.groups * choice.group_size;
    int first = layout->worker_rank[choice.first_group * layout->group_size];
    return (struct assignment){{RUN, next->stage, first}, clocks, choice, all ? 0 : workers, k->at};
}

/* Calls tr_task.next(), unless the last request has clocks left. *over = true: the task is complete. */
static int task_ask_next(struct task *k, bool *over)
{
    tr_ran ran = {.stage = -1,
                  .evaluation = {.objective = NAN, .gap = NAN, .metric = {NAN, NAN, NAN, NAN}, .epoch = NAN}};
    tr_next next = {.stage = -1};
    int groups = k->tr->layout.groups;
    if (task_clocks_left(k) > 0) return TR_OK;
    if (k->at.next.stage >= 0) ran = k->record[k->at.next.stage].ran;
    TR_TRY(k->task->next(k->task->state, &ran, &next));
    if (next.stage >= (int)k->task->n ||
        (next.stage >= 0 && (next.clocks <= 0 || next.workers < TR_AUTO_WORKERS)))
        return tr_fail(TR_ERR_INTERNAL, "task %s: no stage %d for %lld clocks on %d workers", k->task->name,
                       next.stage, (long long)next.clocks, next.workers);
    *over = next.stage < 0;
    if (*over) return TR_OK;
    k->at.next = next;
    k->at.before = 0;
    k->at.group = tr_choose_place(k->last + next.stage * groups, NULL, groups, 0, true);
    k->record[next.stage].ran = (tr_ran){.stage = next.stage};
    k->record[next.stage].cut = false;
    return TR_OK;
}

/* ---- rank 0: records of the stages ---- */

void tr_stage_sum_add(struct tr_stage_sum *sum, int workers, int64_t clocks, double begin, double end,
                      double seconds)
{
    if (sum->clocks == 0) sum->began = begin;
    sum->fewest = sum->most == 0 ? workers : tr_min_int(sum->fewest, workers);
    sum->most = tr_max_int(sum->most, workers);
    sum->ended = end;
    sum->clocks += clocks;
    sum->seconds += seconds;
    sum->worker_seconds += seconds * workers;
}

static void record_part(void *state, const void *report)
{
    struct task *k = state;
    const struct assignment *a = &k->now;
    struct tr_stage_run *run = &k->run;
    int stage = (int)a->order.number;
    run->times = *(const struct tr_clock_times *)report;
    struct record *r = &k->record[stage];
    struct tr_stage_sum *sum = &r->sum;
    int64_t clocks = run->times.clocks;
    int all = a->workers.groups * a->workers.group_size, workers = a->at_once > 0 ? a->at_once : all;
    double seconds = run->last - run->first;
    if (r->searches)
        tr_degree_report(&r->degree, run->times.seconds,
                         (size_t)(clocks < TR_TIMED_CLOCKS ? clocks : TR_TIMED_CLOCKS));
    r->ran.clocks += clocks;
    r->ran.workers = all;
    r->ran.first_group = a->workers.first_group;
    r->ran.seconds += seconds;
    r->ran.evaluation = run->evaluation;
    tr_stage_sum_add(sum, workers, clocks, run->first, run->last, seconds);
    if (!r->is_rest) sum->runs++;
    for (int g = 0; g < a->workers.groups; g++)
        k->last[stage * k->tr->layout.groups + a->workers.first_group + g] = sum->runs;
    /* counts transitions between stages only: preparing takes longer, and continuing a stage is faster */
    if (!k->fresh && !r->is_rest && k->ended > 0)
        r->transition[r->transitions++ % TRANSITIONS] = run->first - k->ended;
    k->ended = run->last;
    k->at.ended += clocks;
    k->at.before = clocks < a->clocks ? k->at.next.clocks /* the stage was stopped */ : k->at.before + clocks;
    k->at.evaluations += run->evaluations;
    k->taken = false;
}

static int record_by_seconds(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int records_show(struct task *k)
{
    TR_FREED struct tr_stage_sum *sums = NULL;
    const struct tr_observers *o = &k->tr->stages->observers;
    if (!o->sums) return TR_OK;
    TR_TRY(TR_NEW(&sums, k->task->n));
    for (size_t i = 0; i < k->task->n; i++) {
        struct record *r = &k->record[i];
        size_t n = (size_t)(r->transitions < TRANSITIONS ? r->transitions : TRANSITIONS);
        qsort(r->transition, n, sizeof *r->transition, record_by_seconds);
        sums[i] = r->sum;
        sums[i].transition = n > 0 ? r->transition[n / 2] : NAN;
        snprintf(sums[i].name, sizeof sums[i].name, "%s", k->task->stage[i].name);
        if (r->searches) tr_degree_describe(&r->degree, sums[i].degree, sizeof sums[i].degree);
    }
    return o->sums(o->who, sums, k->task->n);
}

/* ---- checkpoints of a task ---- */

/* Snapshot function of a task: lists its position, the records of rank 0, and the state of the model, for which `me` describes the
 * next part. On another layout, searches for degrees start again, and k->last is not restored. */
static int task_list(void *what, tr_snapshot *snapshot)
{
    struct task *k = what;
    struct position *at = &k->at;
    const struct tr_layout *now = &k->tr->layout;
    struct tr_stage_run run;
    int stages = (int)k->task->n;
    size_t n = k->task->n;
    at->stages = stages;
    TR_TRY(tr_snapshot_common(snapshot, "task_position", TR_I64, sizeof *at / sizeof(int64_t), at));
    if (at->stages != stages || at->next.stage < 0 || at->next.stage >= stages || task_clocks_left(k) <= 0)
        return tr_fail(TR_ERR_DATA, "checkpoint: task %s had %lld stages, it has %d now", k->task->name,
                       (long long)at->stages, stages);
    if (k->tr->rank == 0) {
        bool same = true;
        if (tr_snapshot_restores(snapshot)) {
            const struct tr_facts *then = &tr_checkpoint_found(k->tr)->facts;
            same = then->groups == now->groups && then->group_size == now->group_size;
        }
        TR_TRY(tr_snapshot_common(snapshot, "task_records", TR_I64, n * sizeof *k->record / sizeof(int64_t),
                                  k->record));
        if (same)
            TR_TRY(tr_snapshot_common(snapshot, "task_turns", TR_I64, n * (size_t)now->groups, k->last));
        for (size_t i = 0; !same && i < n; i++) k->record[i].searches = false;
    }
    tr_stage_open(k->tr, &k->task->stage[0], &run);
    run.me.before = at->before;
    run.me.whole = at->next.clocks;
    run.me.clocks = task_clocks_left(k);
    run.me.command = at->next.command;
    return k->task->snapshot(&run.me, k->task->state, snapshot);
}

/* Resumes from a checkpoint of this task, if there is one. Tables move to their number of servers then, if possible. All ranks. */
static int task_restore(struct task *k)
{
    tr_context *tr = k->tr;
    bool restores;
    struct tr_facts facts;
    TR_TRY(tr_agree(tr, tr_checkpoint_enter(tr, k->task->name, &restores)));
    if (!restores) return TR_OK;
    if (!k->task->snapshot)
        return tr_agree(
            tr, tr_fail(TR_ERR_DATA, "checkpoint: task %s has no state to restore now", k->task->name));
    TR_TRY(tr_checkpoint_restore(tr, task_list, k, &facts));
    tr->stages->epoch = facts.epoch;
    if (tr_works(tr)) tr_lifeline_clock(tr->lifeline, facts.clock);
    tr->tables->before = 0; /* clocks of every run start at 0 */
    if (k->at.group >= tr->layout.groups) k->at.group = 0;
    if (k->at.servers > tr->layout.servers) k->at.servers = 0;
    return k->at.servers > 0 ? task_move_tables(k, k->at.servers) : TR_OK;
}

/* ---- running a task ---- */

/* On rank 0: sends the next order: a checkpoint if it is due, a move of the tables if it was requested, or the next part. */
static int task_order_next(void *state)
{
    struct task *k = state;
    struct assignment *a = &k->now;
    bool over = false;
    if (k->agreed != TR_OK) return TR_OK;
    TR_TRY(task_ask_next(k, &over));
    if (over) return TR_OK;
    enum tr_due due =
        task_is_checkpointed(k) && !k->taken ? tr_checkpoint_due(k->tr, k->at.ended) : TR_NOT_DUE;
    k->taken = true;
    if (due != TR_NOT_DUE || (k->at.next.servers > 0 && k->at.next.servers != k->at.servers)) {
        *a = (struct assignment){.order = {.kind = MOVE, .reporter = -1}, .at = k->at};
        if (due != TR_NOT_DUE) a->order.kind = TAKE;
        a->order.number = due == TR_DUE_AND_STOP;
        return tr_scheduler_order(&k->scheduler, &a->order, sizeof *a, NULL, 0);
    }
    *a = task_plan(k);
    const struct instance *s = instance_find(k, a);
    k->fresh = !s || !s->prepared;
    if (k->fresh) return tr_scheduler_order(&k->scheduler, &a->order, sizeof *a, NULL, 0);
    TR_FREED int *rank = NULL;
    int n = 0;
    TR_TRY(TR_NEW(&rank, (size_t)k->tr->size));
    for (int r = 0; r < k->tr->size; r++)
        if (r == 0 || tr_participates(&s->workers, r)) rank[n++] = r;
    return tr_scheduler_order(&k->scheduler, &a->order, sizeof *a, rank, n);
}

/* Carries out an order. If it fails, all participants have the status; other ranks get it by tr_scheduler_end(). */
static int task_run_order(void *state, const struct tr_order *order, void *report)
{
    struct task *k = state;
    const struct assignment *a = (const struct assignment *)order;
    struct tr_facts facts = {
        .clock = a->at.ended, .evaluations = a->at.evaluations, .epoch = k->tr->stages->epoch};
    k->at = a->at;
    switch (order->kind) {
    case MOVE:
        k->agreed = task_move_tables(k, a->at.next.servers);
        k->at.servers = a->at.next.servers;
        break;
    case TAKE:
        snprintf(facts.stage, sizeof facts.stage, "%s", k->task->name);
        k->agreed = tr_checkpoint_take(k->tr, &facts, order->number, task_list, k);
        if (k->agreed == TR_OK && order->number) k->agreed = tr_fail(TR_ERR_STOPPED, "stopped on request");
        break;
    case RUN:
        k->agreed = assignment_run(k, a, &k->run);
        memcpy(report, &k->run.times, sizeof k->run.times);
        break;
    }
    return k->agreed;
}

int tr_run_task(tr_context *tr, const tr_task *task)
{
    struct task k = {.tr = tr, .task = task, .began = tr_now(), .at = {.next = {.stage = -1}}};
    k.scheduler = (struct tr_scheduler){.tr = tr,
                                        .order_bytes = sizeof(struct assignment),
                                        .report_bytes = sizeof(struct tr_clock_times),
                                        .state = &k,
                                        .next = task_order_next,
                                        .run = task_run_order,
                                        .ended = record_part};
    bool kept = task_is_checkpointed(&k);
    if (tr->stages->observers.before_run) TR_TRY(tr->stages->observers.before_run(tr));
    TR_TRY(tr_agree(tr, tr_tables_suspend(tr, true, &k.outer)));
    int status = tr_scheduler_open(&k.scheduler);
    if (status == TR_OK && tr->rank == 0) status = TR_NEW(&k.record, task->n);
    if (status == TR_OK && tr->rank == 0) status = TR_NEW(&k.last, task->n * (size_t)tr->layout.groups);
    TR_TRY(tr_agree(tr, status));
    tr->tables->traffic = (struct tr_traffic){0};
    tr_lifeline_stage(tr->lifeline);
    if (kept) tr_signals_handle(TR_SIGNALS_END, true);
    k.agreed = task_restore(&k);
    if (k.agreed == TR_OK && tr->rank == 0) {
        status = tr_scheduler_direct(&k.scheduler);
        if (k.agreed != TR_OK) status = TR_OK; /* other ranks have k.agreed, or get it now */
        int ending = tr_scheduler_end(&k.scheduler, k.agreed);
        if (status == TR_OK) status = ending;
    } else if (k.agreed == TR_OK) {
        status = tr_scheduler_follow(&k.scheduler, &k.agreed);
    }
    if (kept) tr_signals_handle(TR_SIGNALS_END, false);
    if (status == TR_OK && k.agreed == TR_OK && tr->rank == 0) status = records_show(&k);
    for (struct instance *s; (s = k.instances);) {
        k.instances = s->next;
        instance_close(&k, s);
        tr_worker_set_close(&s->workers);
        free(s);
    }
    tr_scheduler_close(&k.scheduler);
    TR_FREE_ALL(k.record, k.last);
    if (status == TR_OK) status = tr_tables_resume(tr, &k.outer);
    status = tr_agree(tr, status);
    if (k.agreed != TR_OK && tr->status == TR_OK) tr->status = k.agreed;
    return k.agreed != TR_OK ? k.agreed : status;
}
