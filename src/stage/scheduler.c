#include "stage/scheduler.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/fault.h"
#include "stage/run.h"

/* ---- orders ---- */

/* An order on its way to one rank. */
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
    free(s->own);
    free(s->received);
    free(s->report);
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

/* Frees orders that have arrived. */
static void orders_free_sent(struct tr_scheduler *s)
{
    for (struct tr_sent **link = &s->sent; *link;) {
        struct tr_sent *sent = *link;
        if (tr_request_done(&sent->request)) {
            *link = sent->next;
            free(sent);
        } else {
            link = &sent->next;
        }
    }
}

int tr_scheduler_order(struct tr_scheduler *s, const struct tr_order *order, size_t bytes, const int *rank,
                       int n)
{
    orders_free_sent(s);
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
            s->nodes - 1 - node_of[rank]; /* reversed: the node of rank 0, often the first, is taken last */
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
    free(s->node_of);
    free(s->owner);
    free(s->holds);
    free(s->held);
    free(s->free);
    free(s->last);
    free(s->task);
    free(s);
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

static int schedule_free_ranks(const struct tr_schedule *s)
{
    int n = 0;
    for (int node = 0; node < s->nodes; node++) n += s->free[node];
    return n;
}

static void schedule_take_ranks(struct tr_schedule *s, int task, int node, int n)
{
    struct tr_scheduled *t = &s->task[task];
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

static int schedule_freest_node(const struct tr_schedule *s)
{
    int best = 0;
    for (int node = 1; node < s->nodes; node++)
        if (s->free[node] > s->free[best]) best = node;
    return best;
}

static void schedule_start(struct tr_schedule *s, int task, double now)
{
    struct tr_scheduled *t = &s->task[task];
    int all = schedule_free_ranks(s), wanted = t->wanted > 0 ? t->wanted : all;
    for (int node = 0; node < s->nodes; node++) s->last[node] = 0;
    for (size_t i = 0; i < s->tasks; i++) {
        const struct tr_scheduled *other = &s->task[i];
        if (other->turn > 0 && other->data == t->data && other->turn > s->last[other->home])
            s->last[other->home] = other->turn;
    }
    while (t->ranks < wanted) {
        int node = tr_choose_place(s->last, s->free, s->nodes, wanted - t->ranks, false);
        if (node < 0) node = schedule_freest_node(s);
        if (t->ranks == 0) t->home = node;
        schedule_take_ranks(s, task, node, tr_min_int(wanted - t->ranks, s->free[node]));
    }
    t->turn = ++s->turns;
    t->state = TR_TASK_RUNNING;
    t->begin = now;
}

/* Whether all tasks before it are done; if one failed or was dropped, it is dropped. */
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

/* Whether enough free ranks hold its data. */
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

/* The first task that has been dropped; or -1, and then the first waiting task, and the first one that fits, or -1. */
static int schedule_look(struct tr_schedule *s, double now, int *first, int *fitting)
{
    int all = schedule_free_ranks(s);
    *first = *fitting = -1;
    for (int i = 0; i < (int)s->tasks; i++) {
        struct tr_scheduled *t = &s->task[i];
        if (t->state != TR_TASK_WAITING || t->held) continue;
        bool ready = schedule_is_ready(s, t);
        if (t->state == TR_TASK_DROPPED) return i;
        if (!ready) continue;
        if (isnan(t->since)) t->since = now;
        bool fits = tr_max_int(t->wanted, 1) <= all;
        if (*first < 0 || schedule_goes_before(s, t, &s->task[*first])) *first = i;
        if (fits && (*fitting < 0 || schedule_goes_before(s, t, &s->task[*fitting]))) *fitting = i;
    }
    return -1;
}

bool tr_schedule_next(struct tr_schedule *s, double now, int *task)
{
    int first, fitting, dropped = schedule_look(s, now, &first, &fitting);
    *task = dropped >= 0 ? dropped : fitting;
    if (dropped >= 0) return true;
    if (fitting < 0) return false;
    const struct tr_scheduled *f = &s->task[first];
    if (first != fitting && f->priority + now - f->since >= TR_STARVED) return false;
    schedule_start(s, fitting, now);
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

/* ---- tasks of several stages ---- */

/* A stage and the workers that it runs on are an instance of the stage. The first time, all ranks prepare it together; its
 * views, windows and communicators are then suspended, and from the second time on only its participants act. */
struct instance {
    struct instance *next;
    int stage;
    struct tr_worker_set workers;
    bool prepared, can_suspend; /* its views can be suspended and resumed */
    struct tr_suspended suspended;
    void *kept; /* tr_worker.kept */
};

/* The position in the task. Rank 0 sends it with every order. Saved byte by byte: numbers of 8 bytes. */
struct position {
    int64_t stages;      /* of the task */
    tr_next next;        /* the last request of next(); stage -1: none yet */
    int64_t before;      /* clocks of this request that are over */
    int64_t ended;       /* clocks of all stages that are over */
    int64_t evaluations; /* so far */
    int64_t group;       /* the group that runs the stage, if it is of one group */
    int64_t servers;     /* the number of servers of the tables, if next() has set it; else 0 */
};
static_assert(sizeof(struct position) % sizeof(int64_t) == 0, "");

/* Orders: a part of a stage is run, the tables move to at.next.servers servers, or a checkpoint is taken. */
enum { RUN, MOVE, TAKE };
struct assignment {
    struct tr_order order; /* number of RUN: the stage; of TAKE: whether the run stops */
    int64_t clocks;
    struct tr_worker_choice workers;
    int at_once; /* the number of them that compute at a time, if not all: groups are of equal size, and the degree is no multiple */
    struct position at;
};

/* Rank 0's record of a stage. Saved byte by byte. */
enum { TRANSITIONS = 128 };
struct record {
    tr_ran ran; /* the current request of next() so far */
    struct tr_stage_sum sum;
    struct tr_degree degree;
    bool searches;                  /* the search for the degree has started */
    bool cut;                       /* the last part was shortened: the next one is the rest of it */
    bool is_rest;                   /* the last part was such a rest */
    int64_t transitions;            /* their number; transition i is at i % TRANSITIONS */
    double transition[TRANSITIONS]; /* seconds */
};
static_assert(sizeof(struct record) % sizeof(int64_t) == 0, "");

struct task {
    tr_context *tr;
    const tr_task *task;
    struct instance *instances;
    struct tr_suspended outer; /* the views that were open before the task */
    struct position at;        /* on ranks other than 0: of the last order */
    struct record *record;     /* rank 0: by stage */
    int64_t
        *last; /* rank 0: by stage and group: number of the last run of the stage on that group; 0: none */
    double began;
    double compute_seconds, evaluate_seconds; /* of this worker, over all stages */
    double ended;                             /* rank 0: end of the last clock of the last stage */
    struct tr_scheduler scheduler;
    int agreed;              /* outcome, as the participants know it */
    struct assignment now;   /* rank 0: the part that runs */
    struct tr_stage_run run; /* its run */
    bool fresh;              /* its instance had to be prepared */
    bool taken;              /* rank 0: the checkpoint before this part has been considered */
};

/* Checkpoints are taken of it. */
static bool is_checkpointed(const struct task *k)
{
    return k->task->snapshot && k->tr->checkpoints;
}

static int64_t clocks_left(const struct task *k)
{
    return k->at.next.stage < 0 ? 0 : k->at.next.clocks - k->at.before;
}

static struct instance *find_instance(const struct task *k, const struct assignment *a)
{
    for (struct instance *s = k->instances; s; s = s->next)
        if (s->stage == a->order.number && memcmp(&s->workers.of, &a->workers, sizeof a->workers) == 0)
            return s;
    return NULL;
}

/* Prepares an instance: all ranks, also those that will not take part in running it. */
static int prepare_instance(struct task *k, struct instance *s, const tr_stage *stage)
{
    tr_context *tr = k->tr;
    struct tr_worker_set with_all = s->workers;
    with_all.participants = tr->world;
    with_all.participates = NULL;
    tr->active = &with_all;
    tr_tables_end(tr, &s->suspended); /* of the run before, if it could not be kept */
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

static void release_instance(const struct task *k, struct instance *s)
{
    const tr_stage *stage = &k->task->stage[s->stage];
    if (s->kept && stage->release) stage->release(s->kept);
    s->kept = NULL;
}

static int run_instance(struct task *k, struct instance *s, const tr_stage *stage, int at_once,
                        struct tr_stage_run *run)
{
    const struct position *at = &k->at;
    tr_stage_open(k->tr, stage, run);
    tr_stage shown = *stage;
    shown.name = k->task->name; /* its name in checkpoints, where the counts continue */
    shown.clocks = k->task->evaluations;
    run->shown = &shown;
    run->evaluated = at->evaluations;
    run->ended = at->ended;
    run->at_once = at_once;
    run->begin = k->began;
    run->compute_seconds = k->compute_seconds;
    run->evaluate_seconds = k->evaluate_seconds;
    run->me.kept = s->kept;
    run->me.before = at->before;
    run->me.whole = at->next.clocks;
    run->me.command = at->next.command;
    if (!tr_participates(&s->workers, k->tr->rank)) return TR_OK;
    (void)TR_FAULT("stage");
    TR_TRY(tr_stage_begin(run));
    int status = tr_stage_run(run);
    if (tr_works(k->tr) && at_once == 0) tr_timeline_add(k->tr, stage->name, run->first, run->last);
    k->compute_seconds = run->compute_seconds;
    k->evaluate_seconds = run->evaluate_seconds;
    return status;
}

/* Carries out an order on a rank that takes part in running the stage or in preparing it. */
static int run_assignment(struct task *k, const struct assignment *a, struct tr_stage_run *run)
{
    tr_context *tr = k->tr;
    struct instance *s = find_instance(k, a);
    bool ready = s && s->prepared;
    if (!s) {
        if (TR_NEW(&s, 1) != TR_OK) return tr_agree(tr, TR_ERR_SYSTEM);
        s->stage = (int)a->order.number;
        s->next = k->instances;
        k->instances = s;
        TR_TRY(tr_worker_set_open(tr, a->workers, &s->workers));
    }
    tr_stage stage = k->task->stage[a->order.number];
    stage.clocks = a->clocks;
    tr->active = &s->workers;
    int status = ready ? tr_tables_resume(tr, &s->suspended) : prepare_instance(k, s, &stage);
    if (status == TR_OK) status = run_instance(k, s, &stage, a->at_once, run);
    if (!s->can_suspend) release_instance(k, s);
    int suspending = tr_tables_suspend(tr, s->can_suspend, &s->suspended);
    if (!s->can_suspend) s->prepared = false;
    tr->active = &tr->all;
    return status == TR_OK ? suspending : status;
}

/* Closes the views of an instance, which has to be prepared again. All ranks. */
static void close_views(struct task *k, struct instance *s)
{
    tr_tables_end(k->tr, &s->suspended);
    release_instance(k, s);
    s->prepared = false;
}

static int move_tables(struct task *k, int64_t servers)
{
    for (struct instance *s = k->instances; s; s = s->next) close_views(k, s);
    for (size_t i = 0; i < k->task->tables; i++) {
        uint64_t moved;
        TR_TRY(tr_table_resize(k->task->table[i], (uint32_t)servers, &moved));
    }
    return TR_OK;
}

static void close_instances(struct task *k)
{
    for (struct instance *s; (s = k->instances);) {
        k->instances = s->next;
        close_views(k, s);
        tr_worker_set_close(&s->workers);
        free(s);
    }
}

/* ---- rank 0: the next part of a task ---- */

static int most_workers(const struct task *k, int stage)
{
    const struct tr_layout *layout = &k->tr->layout;
    return k->task->stage[stage].one_group ? layout->group_size : tr_layout_workers(layout);
}

/* Rank 0 cannot take a checkpoint while clocks run. So they run for about this many seconds at a time; the first clock shows
 * how long they take. */
static const double part_seconds = 0.1;

static int64_t length_of_part(const struct task *k, const struct record *r, int64_t clocks)
{
    const tr_stage *stage = &k->task->stage[k->at.next.stage];
    if (!is_checkpointed(k) || stage->evaluate || stage->begin) return clocks;
    double fit = part_seconds * (double)r->sum.clocks / r->sum.seconds;
    if (r->sum.clocks == 0 || fit < 1) return 1;
    return fit < (double)clocks ? (int64_t)fit : clocks;
}

/* The next part of the request of next(): all of it, a sub-stage of a search, or the clocks that run between two checkpoints. Worker 0
 * reports the times of its clocks. */
static struct assignment plan(const struct task *k)
{
    const tr_next *next = &k->at.next;
    struct record *r = &k->record[next->stage];
    struct tr_substage sub = {.parallelism = next->workers, .clocks = clocks_left(k)};
    if (next->workers == TR_ALL_WORKERS) sub.parallelism = most_workers(k, next->stage);
    if (next->workers == TR_AUTO_WORKERS) {
        struct tr_degree_options options = {
            .least = 1,
            .most = most_workers(k, next->stage),
            .unit = k->task->stage[next->stage].one_group ? 1 : k->tr->layout.groups,
            .clocks = clocks_left(k) * k->task->evaluations};
        if (!r->searches) tr_degree_begin(&r->degree, &options);
        r->searches = true;
        sub = tr_degree_next(&r->degree, clocks_left(k));
    }
    int64_t clocks = length_of_part(k, r, sub.clocks);
    r->is_rest = r->cut;
    r->cut = clocks < sub.clocks;
    int workers = tr_min_int(sub.parallelism, most_workers(k, next->stage));
    int groups = k->tr->layout.groups;
    struct tr_worker_choice choice = {0, groups, (workers + groups - 1) / groups};
    if (k->task->stage[next->stage].one_group)
        choice = (struct tr_worker_choice){(int)k->at.group, 1, workers};
    bool all = workers == choice.groups * choice.group_size;
    int first = k->tr->layout.worker_rank[choice.first_group * k->tr->layout.group_size];
    return (struct assignment){{RUN, next->stage, first}, clocks, choice, all ? 0 : workers, k->at};
}

/* Calls next(), unless a part of its last request is left. */
static int ask(struct task *k, bool *over)
{
    tr_ran ran = {.stage = -1, .evaluation = {.objective = NAN, .gap = NAN, .metric = NAN, .epoch = NAN}};
    tr_next next = {.stage = -1};
    int groups = k->tr->layout.groups;
    if (clocks_left(k) > 0) return TR_OK;
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

/* ---- rank 0: records of the parts that have run ---- */

static void note_run(void *state, const void *report)
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
    sum->fewest = sum->runs == 0 ? workers : tr_min_int(sum->fewest, workers);
    sum->most = tr_max_int(sum->most, workers);
    if (!r->is_rest) sum->runs++;
    for (int g = 0; g < a->workers.groups; g++)
        k->last[stage * k->tr->layout.groups + a->workers.first_group + g] = sum->runs;
    if (sum->clocks == 0) sum->began = run->first;
    sum->ended = run->last;
    sum->clocks += clocks;
    sum->seconds += seconds;
    sum->worker_seconds += seconds * workers;
    /* preparing takes longer than a transition between stages, and continuing a stage less */
    if (!k->fresh && !r->is_rest && k->ended > 0)
        r->transition[r->transitions++ % TRANSITIONS] = run->first - k->ended;
    k->ended = run->last;
    k->at.ended += clocks;
    k->at.before =
        clocks < a->clocks ? k->at.next.clocks : k->at.before + clocks; /* fewer: the stage was stopped */
    k->at.evaluations += run->evaluations;
    k->taken = false;
}

static int by_seconds(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int show_records(struct task *k)
{
    struct tr_stage_sum *sums;
    if (!k->tr->stages->task_observer) return TR_OK;
    TR_TRY(TR_NEW(&sums, k->task->n));
    for (size_t i = 0; i < k->task->n; i++) {
        struct record *r = &k->record[i];
        size_t n = (size_t)(r->transitions < TRANSITIONS ? r->transitions : TRANSITIONS);
        qsort(r->transition, n, sizeof *r->transition, by_seconds);
        sums[i] = r->sum;
        sums[i].transition = n > 0 ? r->transition[n / 2] : NAN;
        snprintf(sums[i].name, sizeof sums[i].name, "%s", k->task->stage[i].name);
        if (r->searches) tr_degree_describe(&r->degree, sums[i].degree, sizeof sums[i].degree);
    }
    int status = k->tr->stages->task_observer(k->tr->stages->task_observer_state, sums, k->task->n);
    free(sums);
    return status;
}

/* ---- checkpoints of a task ---- */

/* Rank 0's records. On another layout the searches for degrees, and the order of groups, start over. */
static int snapshot_records(struct task *k, tr_snapshot *snapshot)
{
    const struct tr_layout *now = &k->tr->layout;
    size_t n = k->task->n;
    bool same = true;
    if (tr_snapshot_restores(snapshot)) {
        const struct tr_facts *then = &tr_checkpoint_found(k->tr)->facts;
        same = then->groups == now->groups && then->group_size == now->group_size;
    }
    TR_TRY(tr_snapshot_common(snapshot, "task_records", TR_I64, n * sizeof *k->record / sizeof(int64_t),
                              k->record));
    if (same) return tr_snapshot_common(snapshot, "task_turns", TR_I64, n * (size_t)now->groups, k->last);
    for (size_t i = 0; i < n; i++) k->record[i].searches = false;
    return TR_OK;
}

/* The position and records of the task, and what its owner keeps; `me` says what runs next. */
static int list_task(void *what, tr_snapshot *snapshot)
{
    struct task *k = what;
    struct position *at = &k->at;
    struct tr_stage_run run;
    int stages = (int)k->task->n;
    at->stages = stages;
    TR_TRY(tr_snapshot_common(snapshot, "task_position", TR_I64, sizeof *at / sizeof(int64_t), at));
    if (at->stages != stages || at->next.stage < 0 || at->next.stage >= stages || clocks_left(k) <= 0)
        return tr_fail(TR_ERR_DATA, "checkpoint: task %s had %lld stages, it has %d now", k->task->name,
                       (long long)at->stages, stages);
    if (k->tr->rank == 0) TR_TRY(snapshot_records(k, snapshot));
    tr_stage_open(k->tr, &k->task->stage[0], &run);
    run.me.before = at->before;
    run.me.whole = at->next.clocks;
    run.me.clocks = clocks_left(k);
    run.me.command = at->next.command;
    return k->task->snapshot(&run.me, k->task->state, snapshot);
}

/* All ranks. TR_ERR_STOPPED: the task is to stop. */
static int take_checkpoint(struct task *k, bool stops)
{
    struct tr_facts facts = {
        .clock = k->at.ended, .evaluations = k->at.evaluations, .epoch = k->tr->stages->epoch};
    snprintf(facts.stage, sizeof facts.stage, "%s", k->task->name);
    TR_TRY(tr_checkpoint_take(k->tr, &facts, stops, list_task, k));
    return stops ? tr_fail(TR_ERR_STOPPED, "stopped on request") : TR_OK;
}

/* Continues from the checkpoint, if it was taken in this task: all ranks. The tables move to the servers that they were on, if
 * there are that many. */
static int restore_task(struct task *k)
{
    tr_context *tr = k->tr;
    bool restores;
    struct tr_facts facts;
    TR_TRY(tr_agree(tr, tr_checkpoint_enter(tr, k->task->name, &restores)));
    if (!restores) return TR_OK;
    if (!k->task->snapshot)
        return tr_agree(tr, tr_fail(TR_ERR_DATA, "checkpoint: task %s keeps nothing now", k->task->name));
    TR_TRY(tr_checkpoint_restore(tr, list_task, k, &facts));
    tr->stages->epoch = facts.epoch;
    if (tr_works(tr)) tr_lifeline_clock(tr->lifeline, facts.clock);
    tr->tables->before = 0; /* every run begins with clock 0 */
    if (k->at.group >= tr->layout.groups) k->at.group = 0;
    if (k->at.servers > tr->layout.servers) k->at.servers = 0;
    return k->at.servers > 0 ? move_tables(k, k->at.servers) : TR_OK;
}

/* ---- running a task ---- */

/* Rank 0: orders a checkpoint if one is due, a move of the tables if next() has asked for it, or the next part. */
static int order_next(void *state)
{
    struct task *k = state;
    struct assignment *a = &k->now;
    bool over = false;
    if (k->agreed != TR_OK) return TR_OK;
    TR_TRY(ask(k, &over));
    if (over) return TR_OK;
    enum tr_due due = is_checkpointed(k) && !k->taken ? tr_checkpoint_due(k->tr, k->at.ended) : TR_NOT_DUE;
    k->taken = true;
    if (due != TR_NOT_DUE || (k->at.next.servers > 0 && k->at.next.servers != k->at.servers)) {
        *a = (struct assignment){.order = {.kind = MOVE, .reporter = -1}, .at = k->at};
        if (due != TR_NOT_DUE) a->order.kind = TAKE;
        a->order.number = due == TR_DUE_AND_STOP;
        return tr_scheduler_order(&k->scheduler, &a->order, sizeof *a, NULL, 0);
    }
    *a = plan(k);
    const struct instance *s = find_instance(k, a);
    k->fresh = !s || !s->prepared;
    if (k->fresh) return tr_scheduler_order(&k->scheduler, &a->order, sizeof *a, NULL, 0);
    int *rank, n = 0;
    TR_TRY(TR_NEW(&rank, (size_t)k->tr->size));
    for (int r = 0; r < k->tr->size; r++)
        if (r == 0 || tr_participates(&s->workers, r)) rank[n++] = r;
    int status = tr_scheduler_order(&k->scheduler, &a->order, sizeof *a, rank, n);
    free(rank);
    return status;
}

/* Carries out an order. A failure is known to all that take part; the others learn it when the task ends. */
static int run_order(void *state, const struct tr_order *order, void *report)
{
    struct task *k = state;
    const struct assignment *a = (const struct assignment *)order;
    k->at = a->at;
    switch (order->kind) {
    case MOVE:
        k->agreed = move_tables(k, a->at.next.servers);
        k->at.servers = a->at.next.servers;
        break;
    case TAKE: k->agreed = take_checkpoint(k, order->number); break;
    case RUN:
        k->agreed = run_assignment(k, a, &k->run);
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
                                        .next = order_next,
                                        .run = run_order,
                                        .ended = note_run};
    bool kept = is_checkpointed(&k);
    if (tr->stages->before_run) TR_TRY(tr->stages->before_run(tr));
    TR_TRY(tr_agree(tr, tr_tables_suspend(tr, true, &k.outer)));
    int status = tr_scheduler_open(&k.scheduler);
    if (status == TR_OK && tr->rank == 0) status = TR_NEW(&k.record, task->n);
    if (status == TR_OK && tr->rank == 0) status = TR_NEW(&k.last, task->n * (size_t)tr->layout.groups);
    TR_TRY(tr_agree(tr, status));
    tr->tables->traffic = (struct tr_traffic){0};
    tr_lifeline_stage(tr->lifeline);
    if (kept) tr_signals_catch();
    k.agreed = restore_task(&k);
    if (k.agreed == TR_OK && tr->rank == 0) {
        status = tr_scheduler_direct(&k.scheduler);
        if (k.agreed != TR_OK) status = TR_OK; /* the others know it, or learn it now */
        int ending = tr_scheduler_end(&k.scheduler, k.agreed);
        if (status == TR_OK) status = ending;
    } else if (k.agreed == TR_OK) {
        status = tr_scheduler_follow(&k.scheduler, &k.agreed);
    }
    if (kept) tr_signals_release();
    if (status == TR_OK && k.agreed == TR_OK && tr->rank == 0) status = show_records(&k);
    close_instances(&k);
    tr_scheduler_close(&k.scheduler);
    free(k.record);
    free(k.last);
    if (status == TR_OK) status = tr_tables_resume(tr, &k.outer);
    status = tr_agree(tr, status);
    if (k.agreed != TR_OK && tr->status == TR_OK) tr->status = k.agreed;
    return k.agreed != TR_OK ? k.agreed : status;
}
