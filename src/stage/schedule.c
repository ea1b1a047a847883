#include "stage/schedule.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "stage/schedule_nodes.h"
#include "stage/schedule_queue.h"

const struct tr_schedule_options tr_schedule_defaults = {.growth = 1, .threshold = 10, .reservations = 1};

enum { PLACES = 3 };

struct task {
    char *name;
    enum tr_task_state state;
    double priority;
    int set;          /* of nodes with its data */
    bool indifferent; /* it named none */
    uint32_t *used;   /* by node: when it last ran there, counted in decisions; NULL: never anywhere */
    int blockers;     /* tasks that it comes after and that have not ended */
    int followers;    /* first of the edges to tasks that come after it; -1: none */

    /* its stage */
    enum tr_stage_place place;
    int stage_set;
    bool any_node;          /* of those nodes, none is to be preferred */
    int workers, need;      /* at most, at least */
    int level, above_level; /* every node: workers on each, if it has so many; and on how many one more */
    double since;           /* waits or runs */
    int *slot, *worker;     /* that it has or that are kept for it; worker is filled when it runs */
    size_t slot_capacity, worker_capacity;
    int taken;

    struct tr_task_view view;
};

struct edge {
    int task, next;
};

/* Workers are kept for a starved stage. */
struct holder {
    int task, missing;
    int node;  /* one node: which */
    int *want; /* every node: how many are missing, by node of its set */
};

struct event {
    enum tr_decide what;
    int task, because;
};

struct tr_schedule {
    struct tr_schedule_options options;
    struct tr_nodes nodes;
    bool *lost; /* by slot */
    struct task *tasks;
    struct tr_queue_entry *entries; /* by task */
    int count, fresh, ended;        /* fresh: from here on, it is not known whether tasks can begin */
    size_t task_capacity, entry_capacity;
    struct edge *edges;
    size_t edge_count, edge_capacity;
    struct event *events; /* at most two a task, ever */
    size_t event_count, events_seen, event_capacity;

    /* Stages that wait, by the set of their nodes and their place: those of a class all compare with the same count. */
    int *root;   /* by class; -1: none */
    int *active; /* classes with stages */
    int *listed; /* by class: where it stands among those; -1 */
    int active_count, class_count;
    size_t root_capacity, active_capacity, listed_capacity;

    struct holder *holders; /* first in the order first */
    int holding;
    int64_t asked;      /* stages so far: their numbers */
    uint32_t decisions; /* that count for who was used when */
    double then;        /* the time up to which is counted */
    int busy;           /* workers */
    struct tr_schedule_view view;
};

static int least(int a, int b)
{
    return a < b ? a : b;
}

static struct tr_node_set *set_of(const struct tr_schedule *s, const struct task *t)
{
    return s->nodes.sets[t->stage_set];
}

static void advance(struct tr_schedule *s, double now)
{
    if (isnan(s->then)) s->then = now;
    double passed = now - s->then;
    if (!(passed > 0)) return;
    s->view.busy += passed * s->busy;
    s->view.idle_kept += passed * s->view.kept;
    s->then = now;
}

/* ---- opening ---- */

static int open_schedule(struct tr_schedule *s, int workers, const int *node_of)
{
    TR_TRY(tr_nodes_open(workers, node_of, &s->nodes));
    TR_TRY(TR_NEW(&s->lost, (size_t)workers));
    TR_TRY(TR_NEW(&s->holders, (size_t)s->options.reservations));
    for (int i = 0; i < s->options.reservations; i++)
        TR_TRY(TR_NEW(&s->holders[i].want, (size_t)s->nodes.nodes));
    return TR_OK;
}

int tr_schedule_open(int workers, const int *node_of, const struct tr_schedule_options *options,
                     struct tr_schedule **schedule)
{
    if (workers < 1 || options->reservations < 0 || !(options->growth >= 0))
        return tr_fail(TR_ERR_INTERNAL, "a scheduler of %d workers, growth %g, %d reservations", workers,
                       options->growth, options->reservations);
    struct tr_schedule *s;
    TR_TRY(TR_NEW(&s, 1));
    s->options = *options;
    s->then = NAN;
    s->view.longest_waiting_task = -1;
    int status = open_schedule(s, workers, node_of);
    if (status) tr_schedule_close(s);
    else *schedule = s;
    return status;
}

void tr_schedule_close(struct tr_schedule *s)
{
    if (!s) return;
    for (int i = 0; i < s->count; i++) {
        free(s->tasks[i].name);
        free(s->tasks[i].used);
        free(s->tasks[i].slot);
        free(s->tasks[i].worker);
    }
    for (int i = 0; s->holders && i < s->options.reservations; i++) free(s->holders[i].want);
    tr_nodes_close(&s->nodes);
    free(s->lost);
    free(s->tasks);
    free(s->entries);
    free(s->edges);
    free(s->events);
    free(s->root);
    free(s->active);
    free(s->listed);
    free(s->holders);
    free(s);
}

/* A class for every place and set of nodes that is known. */
static int make_classes(struct tr_schedule *s)
{
    size_t classes = PLACES * s->nodes.set_count;
    TR_TRY(TR_GROW(&s->root, &s->root_capacity, classes));
    TR_TRY(TR_GROW(&s->active, &s->active_capacity, classes));
    TR_TRY(TR_GROW(&s->listed, &s->listed_capacity, classes));
    for (; s->class_count < (int)classes; s->class_count++)
        s->root[s->class_count] = s->listed[s->class_count] = -1;
    return TR_OK;
}

/* ---- tasks ---- */

static int make_task(struct tr_schedule *s, const struct tr_task_wish *wish, struct task *t)
{
    TR_TRY(tr_nodes_set(&s->nodes, wish->node, wish->nodes, &t->set));
    TR_TRY(make_classes(s));
    return tr_copy_string(wish->name, &t->name);
}

int tr_schedule_add_task(struct tr_schedule *s, const struct tr_task_wish *wish, int *task)
{
    size_t n = (size_t)s->count + 1;
    TR_TRY(TR_GROW(&s->tasks, &s->task_capacity, n));
    TR_TRY(TR_GROW(&s->entries, &s->entry_capacity, n));
    TR_TRY(TR_GROW(&s->events, &s->event_capacity, 2 * n));
    struct task *t = &s->tasks[s->count];
    *t = (struct task){.priority = wish->priority, .indifferent = wish->nodes <= 0, .followers = -1};
    TR_TRY(make_task(s, wish, t));
    *task = s->count++;
    return TR_OK;
}

static bool has_ended(const struct task *t)
{
    return t->state == TR_TASK_DONE || t->state == TR_TASK_FAILED || t->state == TR_TASK_DROPPED;
}

static int check_task(const struct tr_schedule *s, int task)
{
    if (task >= 0 && task < s->count) return TR_OK;
    return tr_fail(TR_ERR_INTERNAL, "task %d: there are %d", task, s->count);
}

static void say(struct tr_schedule *s, enum tr_decide what, int task, int because)
{
    s->events[s->event_count++] = (struct event){what, task, because};
}

static void drop(struct tr_schedule *s, int task, int because)
{
    if (s->tasks[task].state != TR_TASK_BLOCKED) return;
    s->tasks[task].state = TR_TASK_DROPPED;
    s->ended++;
    say(s, TR_DECIDE_DROP, task, because);
}

/* Drops what comes after a task, and what comes after that: each event that this makes is a task to go on from. */
static void drop_followers(struct tr_schedule *s, int task)
{
    size_t next = s->event_count;
    for (;; task = s->events[next++].task) {
        for (int e = s->tasks[task].followers; e >= 0; e = s->edges[e].next) drop(s, s->edges[e].task, task);
        if (next == s->event_count) return;
    }
}

static void begin_if_free(struct tr_schedule *s, int task)
{
    struct task *t = &s->tasks[task];
    if (t->state != TR_TASK_BLOCKED || t->blockers) return;
    t->state = TR_TASK_IDLE;
    say(s, TR_DECIDE_BEGIN, task, -1);
}

static void begin_followers(struct tr_schedule *s, int task)
{
    for (int e = s->tasks[task].followers; e >= 0; e = s->edges[e].next) {
        s->tasks[s->edges[e].task].blockers--;
        if (s->edges[e].task < s->fresh) begin_if_free(s, s->edges[e].task);
    }
}

int tr_schedule_after(struct tr_schedule *s, int task, int before)
{
    TR_TRY(check_task(s, task));
    TR_TRY(check_task(s, before));
    struct task *t = &s->tasks[task], *b = &s->tasks[before];
    if (t->state == TR_TASK_DROPPED || b->state == TR_TASK_DONE) return TR_OK;
    if (t->state != TR_TASK_BLOCKED)
        return tr_fail(TR_ERR_INTERNAL, "task %s is to come after %s, but has begun", t->name, b->name);
    TR_TRY(TR_GROW(&s->edges, &s->edge_capacity, s->edge_count + 1));
    if (has_ended(b)) {
        drop(s, task, before);
        drop_followers(s, task);
        return TR_OK;
    }
    s->edges[s->edge_count] = (struct edge){task, b->followers};
    b->followers = (int)s->edge_count++;
    t->blockers++;
    return TR_OK;
}

/* ---- the queue ---- */

static int class_of(const struct task *t)
{
    return t->stage_set * PLACES + (int)t->place;
}

static void enqueue(struct tr_schedule *s, int task)
{
    int class = class_of(&s->tasks[task]);
    s->root[class] = tr_queue_add(s->entries, s->root[class], task);
    if (s->listed[class] >= 0) return;
    s->listed[class] = s->active_count;
    s->active[s->active_count++] = class;
}

static void dequeue(struct tr_schedule *s, int task)
{
    int class = class_of(&s->tasks[task]);
    s->root[class] = tr_queue_remove(s->entries, s->root[class], task);
    if (s->root[class] >= 0) return;
    int last = s->active[--s->active_count];
    s->active[s->listed[class]] = last;
    s->listed[last] = s->listed[class];
    s->listed[class] = -1;
}

/* ---- workers of a stage on every node ---- */

/* How many it has of a node, when `above` nodes before it have one more than the level. */
static int share(const struct tr_schedule *s, const struct task *t, int node, int *above)
{
    int capacity = s->nodes.capacity[node];
    if (capacity <= t->level || *above == t->above_level) return least(capacity, t->level);
    ++*above;
    return t->level + 1;
}

static int filled_to(const struct tr_schedule *s, const struct tr_node_set *set, int level)
{
    int all = 0;
    for (int i = 0; i < set->nodes; i++) all += least(s->nodes.capacity[set->node[i]], level);
    return all;
}

/* The highest level at which the nodes have together no more than the stage's workers. */
static void level_out(const struct tr_schedule *s, struct task *t)
{
    const struct tr_node_set *set = set_of(s, t);
    int low = 0, high = set->most_capacity;
    while (low < high) {
        int middle = low + (high - low + 1) / 2;
        if (filled_to(s, set, middle) <= t->workers) low = middle;
        else high = middle - 1;
    }
    t->level = low;
    t->above_level = t->workers - filled_to(s, set, low);
}

static bool has_its_shares(const void *who, int task)
{
    const struct tr_schedule *s = who;
    const struct task *t = &s->tasks[task];
    const struct tr_node_set *set = set_of(s, t);
    for (int i = 0, above = 0; i < set->nodes; i++)
        if (s->nodes.free[set->node[i]] < share(s, t, set->node[i], &above)) return false;
    return true;
}

static int least_share(const struct tr_schedule *s, const struct task *t)
{
    const struct tr_node_set *set = set_of(s, t);
    int smallest = INT32_MAX;
    for (int i = 0, above = 0; i < set->nodes; i++) {
        int workers = share(s, t, set->node[i], &above);
        if (s->nodes.capacity[set->node[i]]) smallest = least(smallest, workers);
    }
    return smallest;
}

/* ---- stages ---- */

/* How many workers the nodes of a class have free, in the terms of its stages' need. */
static int room(const struct tr_schedule *s, int class)
{
    const struct tr_free_count *count = tr_set_free(s->nodes.sets[class / PLACES]);
    switch ((enum tr_stage_place)(class % PLACES)) {
    case TR_PLACE_ANYWHERE: return count->all;
    case TR_PLACE_ONE_NODE: return count->most;
    case TR_PLACE_EVERY_NODE: return count->least;
    }
    return 0;
}

static bool fits(const struct tr_schedule *s, int task)
{
    const struct task *t = &s->tasks[task];
    return s->entries[task].need <= room(s, class_of(t)) &&
           (t->place != TR_PLACE_EVERY_NODE || has_its_shares(s, task));
}

/* Whether it could run if nothing else did. Sets what depends on how many workers its nodes have. */
static int settle(struct tr_schedule *s, int task, const char *stage)
{
    struct task *t = &s->tasks[task];
    const struct tr_node_set *set = set_of(s, t);
    int most = t->place == TR_PLACE_ONE_NODE ? set->most_capacity : set->all_capacity;
    const char *where = t->place == TR_PLACE_ONE_NODE ? "its largest node has" : "its nodes have";
    if (t->need > most)
        return tr_fail(TR_ERR_CONFIG, "task %s, stage %s: %d workers, but %s %d", t->name, stage, t->need,
                       where, most);
    t->workers = least(t->workers, most);
    s->entries[task].need = t->need;
    if (t->place != TR_PLACE_EVERY_NODE) return TR_OK;
    if (t->workers < set->peopled)
        return tr_fail(TR_ERR_CONFIG, "task %s, stage %s: %d workers on each of %d nodes", t->name, stage,
                       t->workers, set->peopled);
    level_out(s, t);
    s->entries[task].need = least_share(s, t);
    return TR_OK;
}

static int take_wish(struct tr_schedule *s, int task, const struct tr_stage_wish *wish)
{
    struct task *t = &s->tasks[task];
    bool exact = wish->least <= 0;
    if (wish->workers < 1 || (!exact && (wish->place == TR_PLACE_EVERY_NODE || wish->least > wish->workers)))
        return tr_fail(TR_ERR_INTERNAL, "task %s, stage %s: %d workers, at least %d", t->name, wish->name,
                       wish->workers, wish->least);
    t->stage_set = t->set;
    if (wish->nodes > 0) TR_TRY(tr_nodes_set(&s->nodes, wish->node, wish->nodes, &t->stage_set));
    TR_TRY(make_classes(s));
    t->any_node = wish->nodes <= 0 && t->indifferent;
    if (!t->any_node && !t->used) TR_TRY(TR_NEW(&t->used, (size_t)s->nodes.nodes));
    t->place = wish->place;
    t->workers = wish->workers;
    t->need = exact ? wish->workers : wish->least;
    TR_TRY(settle(s, task, wish->name));
    TR_TRY(TR_GROW(&t->slot, &t->slot_capacity, (size_t)t->workers));
    return TR_GROW(&t->worker, &t->worker_capacity, (size_t)t->workers);
}

int tr_schedule_stage(struct tr_schedule *s, int task, const struct tr_stage_wish *wish, double now)
{
    TR_TRY(check_task(s, task));
    struct task *t = &s->tasks[task];
    if (t->state != TR_TASK_IDLE)
        return tr_fail(TR_ERR_INTERNAL, "task %s, stage %s: it has not begun, has a stage or has ended",
                       t->name, wish->name);
    TR_TRY(take_wish(s, task, wish));
    t->state = TR_TASK_WAITING;
    t->since = now;
    t->taken = 0;
    s->entries[task].key = t->priority - s->options.growth * now;
    s->entries[task].number = s->asked++;
    s->view.waiting++;
    enqueue(s, task);
    return TR_OK;
}

/* ---- workers that are kept ---- */

static int wanted(const struct tr_schedule *s, const struct holder *h, int node)
{
    const struct task *t = &s->tasks[h->task];
    if (set_of(s, t)->place[node] < 0) return 0;
    switch (t->place) {
    case TR_PLACE_ANYWHERE: return h->missing;
    case TR_PLACE_ONE_NODE: return h->node == node ? h->missing : 0;
    case TR_PLACE_EVERY_NODE: return h->want[node];
    }
    return 0;
}

static void snapshot(struct tr_schedule *s, struct holder *h, int node, int workers)
{
    s->tasks[h->task].taken += workers;
    h->missing -= workers;
    h->want[node] -= workers; /* of no meaning but for stages on every node */
    s->view.kept += workers;
}

/* Free workers of a node, in the order of their slots: first to those that they are kept for. */
static void give_to_node(struct tr_schedule *s, int node, const int *slot, int n)
{
    for (int i = 0; i < s->holding && n; i++) {
        struct holder *h = &s->holders[i];
        struct task *t = &s->tasks[h->task];
        int given = least(n, wanted(s, h, node));
        if (!given) continue;
        memcpy(t->slot + t->taken, slot, (size_t)given * sizeof *slot);
        snapshot(s, h, node, given);
        slot += given;
        n -= given;
    }
    if (n) tr_nodes_give(&s->nodes, node, n, slot);
}

static int compare(const void *a, const void *b)
{
    int x = *(const int *)a, y = *(const int *)b;
    return (x > y) - (x < y);
}

static void sort_slots(struct task *t)
{
    for (int i = 1; i < t->taken; i++)
        if (t->slot[i] < t->slot[i - 1]) {
            qsort(t->slot, (size_t)t->taken, sizeof *t->slot, compare);
            return;
        }
}

/* All that a task has, which then has none. */
static void give_all(struct tr_schedule *s, struct task *t)
{
    int n = 0;
    sort_slots(t);
    for (int i = 0; i < t->taken; i++)
        if (!s->lost[t->slot[i]]) t->slot[n++] = t->slot[i];
    t->taken = 0;
    for (int from = 0, to; from < n; from = to) {
        int node = s->nodes.node_of[t->slot[from]];
        for (to = from; to < n && s->nodes.node_of[t->slot[to]] == node;) to++;
        give_to_node(s, node, t->slot + from, to - from);
    }
}

/* What is kept for the holders from this one on becomes free. */
static void let_go(struct tr_schedule *s, int from)
{
    int holding = s->holding;
    s->holding = from;
    for (int i = from; i < holding; i++) {
        struct task *t = &s->tasks[s->holders[i].task];
        s->view.kept -= t->taken;
        give_all(s, t);
    }
    s->holding = holding;
}

/* Of the nodes that are large enough, the one with the most free workers. */
static int node_to_keep(const struct tr_schedule *s, const struct task *t)
{
    const struct tr_node_set *set = set_of(s, t);
    int best = -1;
    for (int i = 0; i < set->nodes; i++) {
        int node = set->node[i];
        if (s->nodes.capacity[node] < t->need) continue;
        if (best < 0 || s->nodes.free[node] > s->nodes.free[best]) best = node;
    }
    return best;
}

/* What a stage that begins to wait for kept workers lacks; then takes what is free of that. */
static void fill(struct tr_schedule *s, struct holder *h)
{
    struct task *t = &s->tasks[h->task];
    const struct tr_node_set *set = set_of(s, t);
    h->missing = t->need;
    h->node = t->place == TR_PLACE_ONE_NODE ? node_to_keep(s, t) : -1;
    if (t->place == TR_PLACE_EVERY_NODE)
        for (int i = 0, above = 0; i < set->nodes; i++)
            h->want[set->node[i]] = share(s, t, set->node[i], &above);
    for (int i = 0; i < set->nodes && h->missing; i++) {
        int node = set->node[i], n = least(s->nodes.free[node], wanted(s, h, node));
        if (!n) continue;
        tr_nodes_take(&s->nodes, node, n, t->slot + t->taken);
        snapshot(s, h, node, n);
    }
}

static void remove_holder(struct tr_schedule *s, int at)
{
    struct holder removed = s->holders[at];
    s->holding--;
    memmove(&s->holders[at], &s->holders[at + 1], (size_t)(s->holding - at) * sizeof removed);
    s->holders[s->holding] = removed;
}

/* Those behind it in the order lose what was kept for them, and are served again after it: otherwise two could each keep
 * what the other lacks. */
static void hold(struct tr_schedule *s, int task)
{
    dequeue(s, task);
    int at = 0;
    while (at < s->holding && tr_queue_before(&s->entries[s->holders[at].task], &s->entries[task])) at++;
    let_go(s, at);
    if (s->holding == s->options.reservations) enqueue(s, s->holders[--s->holding].task);
    struct holder spare = s->holders[s->holding];
    memmove(&s->holders[at + 1], &s->holders[at], (size_t)(s->holding - at) * sizeof spare);
    s->holding++;
    spare.task = task;
    s->holders[at] = spare;
    for (int i = at; i < s->holding; i++) fill(s, &s->holders[i]);
}

static int holder_of(const struct tr_schedule *s, int task)
{
    int i = 0;
    while (i < s->holding && s->holders[i].task != task) i++;
    return i < s->holding ? i : -1;
}

/* A stage that waits does so no longer: it is in no queue, and nothing is kept for it. */
static void withdraw(struct tr_schedule *s, int task)
{
    int holder = holder_of(s, task);
    s->view.waiting--;
    if (holder < 0) {
        dequeue(s, task);
        return;
    }
    struct task *t = &s->tasks[task];
    s->view.kept -= t->taken;
    remove_holder(s, holder);
    give_all(s, t);
}

/* ---- choosing workers ---- */

/* The node with so many free workers that the task has not used for the longest time. */
static int longest_unused(const struct tr_schedule *s, const struct task *t, int workers)
{
    const struct tr_node_set *set = set_of(s, t);
    if (t->any_node) return tr_set_first(set, workers);
    int best = -1;
    for (int i = 0; i < set->nodes; i++) {
        int node = set->node[i];
        if (s->nodes.free[node] < workers) continue;
        if (!t->used[node]) return node;
        if (best < 0 || t->used[node] < t->used[best]) best = node;
    }
    return best;
}

static void take(struct tr_schedule *s, struct task *t, int node, int workers)
{
    if (!workers) return;
    tr_nodes_take(&s->nodes, node, workers, t->slot + t->taken);
    t->taken += workers;
}

/* So many in all, of as few nodes as can be. */
static void take_anywhere(struct tr_schedule *s, struct task *t, int workers)
{
    const struct tr_node_set *set = set_of(s, t);
    while (t->taken < workers) {
        int missing = workers - t->taken;
        bool enough = tr_set_free(set)->most >= missing;
        int node = enough ? longest_unused(s, t, missing) : tr_set_fullest(set);
        take(s, t, node, least(missing, s->nodes.free[node]));
    }
}

static void take_every_node(struct tr_schedule *s, struct task *t)
{
    const struct tr_node_set *set = set_of(s, t);
    for (int i = 0, above = 0; i < set->nodes; i++)
        take(s, t, set->node[i], share(s, t, set->node[i], &above));
}

static void take_workers(struct tr_schedule *s, struct task *t)
{
    const struct tr_free_count *count = tr_set_free(set_of(s, t));
    switch (t->place) {
    case TR_PLACE_ANYWHERE: take_anywhere(s, t, least(t->workers, count->all)); break;
    case TR_PLACE_ONE_NODE: take_anywhere(s, t, least(t->workers, count->most)); break;
    case TR_PLACE_EVERY_NODE: take_every_node(s, t); break;
    }
}

/* ---- decisions ---- */

/* How many nodes its workers lie on. A stage on all nodes of the data says nothing about which part of it is due. */
static int note_nodes(struct tr_schedule *s, struct task *t)
{
    int nodes = 0, last = -1;
    for (int i = 0; i < t->taken; i++) {
        nodes += s->nodes.node_of[t->slot[i]] != last;
        last = s->nodes.node_of[t->slot[i]];
        t->worker[i] = s->nodes.worker_of[t->slot[i]];
    }
    if (!t->used || nodes >= s->nodes.sets[t->set]->peopled) return nodes;
    s->decisions++;
    for (int i = 0; i < t->taken; i++) t->used[s->nodes.node_of[t->slot[i]]] = s->decisions;
    return nodes;
}

static void note_wait(struct tr_schedule *s, int task, double waited)
{
    struct tr_task_view *view = &s->tasks[task].view;
    view->stages++;
    view->waited += waited;
    view->longest_wait = fmax(view->longest_wait, waited);
    if (s->view.longest_waiting_task >= 0 && waited <= s->view.longest_wait) return;
    s->view.longest_wait = waited;
    s->view.longest_waiting_task = task;
}

/* The task has its workers. */
static bool started(struct tr_schedule *s, int task, double now, bool starved, struct tr_decision *decision)
{
    struct task *t = &s->tasks[task];
    double waited = fmax(0, now - t->since);
    sort_slots(t);
    *decision = (struct tr_decision){.what = TR_DECIDE_RUN,
                                     .task = task,
                                     .because = -1,
                                     .worker = t->worker,
                                     .workers = t->taken,
                                     .nodes = note_nodes(s, t),
                                     .waited = waited,
                                     .starved = starved};
    note_wait(s, task, waited);
    t->state = TR_TASK_RUNNING;
    t->since = now;
    s->busy += t->taken;
    s->view.waiting--;
    s->view.running++;
    s->view.started++;
    s->view.helped += starved;
    return true;
}

static bool run_from_queue(struct tr_schedule *s, int task, double now, struct tr_decision *decision)
{
    dequeue(s, task);
    take_workers(s, &s->tasks[task]);
    return started(s, task, now, false, decision);
}

/* With what was kept for it, and more if it wants more and there is more. */
static bool run_holder(struct tr_schedule *s, int at, double now, struct tr_decision *decision)
{
    int task = s->holders[at].task, node = s->holders[at].node;
    struct task *t = &s->tasks[task];
    s->view.kept -= t->taken;
    remove_holder(s, at);
    int more = least(t->workers - t->taken, node >= 0 ? s->nodes.free[node] : tr_set_free(set_of(s, t))->all);
    if (node >= 0) take(s, t, node, more);
    else if (t->place == TR_PLACE_ANYWHERE) take_anywhere(s, t, t->taken + more);
    return started(s, task, now, true, decision);
}

/* A stage that waits for one node may see another one get free first. */
static bool fits_elsewhere(const struct tr_schedule *s, const struct task *t)
{
    return t->place == TR_PLACE_ONE_NODE && tr_set_free(set_of(s, t))->most >= t->need;
}

static bool run_elsewhere(struct tr_schedule *s, int at, double now, struct tr_decision *decision)
{
    int task = s->holders[at].task;
    struct task *t = &s->tasks[task];
    s->view.kept -= t->taken;
    remove_holder(s, at);
    give_all(s, t);
    take_workers(s, t);
    return started(s, task, now, true, decision);
}

static bool run_any_holder(struct tr_schedule *s, double now, struct tr_decision *decision)
{
    for (int i = 0; i < s->holding; i++) {
        if (!s->holders[i].missing) return run_holder(s, i, now, decision);
        if (fits_elsewhere(s, &s->tasks[s->holders[i].task])) return run_elsewhere(s, i, now, decision);
    }
    return false;
}

/* Of all that wait without workers being kept for them, the first, or the first that fits; -1: none. */
static int first_waiting(const struct tr_schedule *s, bool fitting)
{
    int best = -1;
    for (int i = 0; i < s->active_count; i++) {
        int class = s->active[i], root = s->root[class];
        tr_queue_test *test = class % PLACES == TR_PLACE_EVERY_NODE ? has_its_shares : NULL;
        int first = fitting ? tr_queue_first(s->entries, root, room(s, class), test, s)
                            : tr_queue_head(s->entries, root);
        if (first < 0) continue;
        if (best < 0 || tr_queue_before(&s->entries[first], &s->entries[best])) best = first;
    }
    return best;
}

/* Whether workers are to be kept for the first in the queue: it is starved and does not fit, and there are not as many
 * before it already. */
static bool has_to_be_held(const struct tr_schedule *s, int task, double now)
{
    const struct tr_queue_entry *e = &s->entries[task];
    if (!s->options.reservations || e->key + s->options.growth * now < s->options.threshold) return false;
    if (fits(s, task)) return false;
    return s->holding < s->options.reservations ||
           tr_queue_before(e, &s->entries[s->holders[s->holding - 1].task]);
}

static void hold_starved(struct tr_schedule *s, double now)
{
    for (int first; (first = first_waiting(s, false)) >= 0 && has_to_be_held(s, first, now);) hold(s, first);
}

static bool next_event(struct tr_schedule *s, struct tr_decision *decision)
{
    for (; s->fresh < s->count; s->fresh++) begin_if_free(s, s->fresh);
    if (s->events_seen == s->event_count) return false;
    struct event e = s->events[s->events_seen++];
    *decision = (struct tr_decision){.what = e.what, .task = e.task, .because = e.because};
    return true;
}

bool tr_schedule_next(struct tr_schedule *s, double now, struct tr_decision *decision)
{
    advance(s, now);
    if (next_event(s, decision) || run_any_holder(s, now, decision)) return true;
    hold_starved(s, now);
    if (run_any_holder(s, now, decision)) return true;
    int first = first_waiting(s, true);
    return first >= 0 && run_from_queue(s, first, now, decision);
}

/* ---- what has happened ---- */

static void free_workers(struct tr_schedule *s, struct task *t, double now)
{
    t->view.worker_seconds += t->taken * fmax(0, now - t->since);
    s->busy -= t->taken;
    s->view.running--;
    give_all(s, t);
}

int tr_schedule_stage_ended(struct tr_schedule *s, int task, double now)
{
    TR_TRY(check_task(s, task));
    struct task *t = &s->tasks[task];
    if (t->state != TR_TASK_RUNNING)
        return tr_fail(TR_ERR_INTERNAL, "task %s has no stage that could end", t->name);
    advance(s, now);
    free_workers(s, t, now);
    t->state = TR_TASK_IDLE;
    return TR_OK;
}

static void end_task(struct tr_schedule *s, int task, bool failed)
{
    s->tasks[task].state = failed ? TR_TASK_FAILED : TR_TASK_DONE;
    s->ended++;
    if (failed) drop_followers(s, task);
    else begin_followers(s, task);
}

int tr_schedule_task_ended(struct tr_schedule *s, int task, bool failed, double now)
{
    TR_TRY(check_task(s, task));
    struct task *t = &s->tasks[task];
    if (t->state == TR_TASK_BLOCKED || has_ended(t))
        return tr_fail(TR_ERR_INTERNAL, "task %s has not begun or has ended before", t->name);
    advance(s, now);
    if (t->state == TR_TASK_RUNNING) free_workers(s, t, now);
    if (t->state == TR_TASK_WAITING) withdraw(s, task);
    end_task(s, task, failed);
    return TR_OK;
}

/* Stages that were to wait until others have ended, and now wait for what is gone. */
static void look_again(struct tr_schedule *s)
{
    for (int i = 0; i < s->count; i++) {
        struct task *t = &s->tasks[i];
        if (t->state != TR_TASK_WAITING) continue;
        dequeue(s, i);
        if (settle(s, i, "waiting") == TR_OK) {
            enqueue(s, i);
            continue;
        }
        s->view.waiting--;
        say(s, TR_DECIDE_IMPOSSIBLE, i, -1);
        end_task(s, i, true);
    }
}

static int task_on(const struct tr_schedule *s, int slot)
{
    for (int i = 0; i < s->count; i++)
        for (int w = 0; s->tasks[i].state == TR_TASK_RUNNING && w < s->tasks[i].taken; w++)
            if (s->tasks[i].slot[w] == slot) return i;
    return -1;
}

int tr_schedule_lost(struct tr_schedule *s, int worker, int *task, double now)
{
    if (worker < 0 || worker >= s->nodes.workers)
        return tr_fail(TR_ERR_INTERNAL, "worker %d: there are %d", worker, s->nodes.workers);
    int slot = s->nodes.slot_of[worker];
    *task = task_on(s, slot);
    if (s->lost[slot]) return TR_OK;
    advance(s, now);
    let_go(s, 0);
    while (s->holding) enqueue(s, s->holders[--s->holding].task);
    s->lost[slot] = true;
    tr_nodes_lose(&s->nodes, slot, *task < 0);
    look_again(s);
    return TR_OK;
}

/* ---- what can be seen ---- */

bool tr_schedule_over(const struct tr_schedule *s)
{
    return s->ended == s->count && s->events_seen == s->event_count;
}

void tr_schedule_view_task(const struct tr_schedule *s, int task, struct tr_task_view *view)
{
    *view = s->tasks[task].view;
    view->name = s->tasks[task].name;
    view->state = s->tasks[task].state;
}

void tr_schedule_view(const struct tr_schedule *s, double now, struct tr_schedule_view *view)
{
    double passed = isnan(s->then) ? 0 : fmax(0, now - s->then);
    const struct tr_node_set *all = s->nodes.sets[0];
    *view = s->view;
    view->workers = all->all_capacity;
    view->nodes = all->peopled;
    view->free = tr_set_free(all)->all;
    view->busy += passed * s->busy;
    view->idle_kept += passed * s->view.kept;
}
