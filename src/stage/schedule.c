#include "stage/schedule.h"

#include <math.h>
#include <stdlib.h>

#include "base/base.h"

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
            s->nodes - 1 - node_of[rank]; /* the node of rank 0, often the first, is the last */
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

/* ---- where ---- */

int tr_choose_place(const int64_t *last, const int *free, int n, int workers, bool longest_unused)
{
    int best = -1;
    for (int i = 0; i < n; i++) {
        if (free && free[i] < workers) continue;
        if (best < 0 || (longest_unused ? last[i] < last[best] : last[i] > last[best])) best = i;
    }
    return best;
}

static int free_ranks(const struct tr_schedule *s)
{
    int n = 0;
    for (int node = 0; node < s->nodes; node++) n += s->free[node];
    return n;
}

static void take_of_node(struct tr_schedule *s, int task, int node, int n)
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

static int node_with_most_free(const struct tr_schedule *s)
{
    int best = 0;
    for (int node = 1; node < s->nodes; node++)
        if (s->free[node] > s->free[best]) best = node;
    return best;
}

static void start(struct tr_schedule *s, int task, double now)
{
    struct tr_scheduled *t = &s->task[task];
    int all = free_ranks(s), wanted = t->wanted > 0 ? t->wanted : all;
    for (int node = 0; node < s->nodes; node++) s->last[node] = 0;
    for (size_t i = 0; i < s->tasks; i++) {
        const struct tr_scheduled *other = &s->task[i];
        if (other->turn > 0 && other->data == t->data && other->turn > s->last[other->home])
            s->last[other->home] = other->turn;
    }
    while (t->ranks < wanted) {
        int node = tr_choose_place(s->last, s->free, s->nodes, wanted - t->ranks, false);
        if (node < 0) node = node_with_most_free(s);
        if (t->ranks == 0) t->home = node;
        take_of_node(s, task, node, tr_min_int(wanted - t->ranks, s->free[node]));
    }
    t->turn = ++s->turns;
    t->state = TR_TASK_RUNNING;
    t->begin = now;
}

/* ---- when ---- */

/* Whether all tasks that it comes after are done; if one failed or was dropped it is dropped. */
static bool is_ready(const struct tr_schedule *s, struct tr_scheduled *t)
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
static bool is_held(const struct tr_schedule *s, const struct tr_scheduled *t)
{
    return s->held[t->data] >= tr_max_int(t->wanted, 1);
}

static bool goes_before(const struct tr_schedule *s, const struct tr_scheduled *a,
                        const struct tr_scheduled *b)
{
    double lead = (a->priority - a->since) - (b->priority - b->since);
    return lead > 0 || (lead == 0 && is_held(s, a) && !is_held(s, b));
}

/* Looks at all tasks that wait: the first that has been dropped; or -1, and then the first in the order and the first
 * that fits, or -1. */
static int look(struct tr_schedule *s, double now, int *first, int *fitting)
{
    int all = free_ranks(s);
    *first = *fitting = -1;
    for (int i = 0; i < (int)s->tasks; i++) {
        struct tr_scheduled *t = &s->task[i];
        if (t->state != TR_TASK_WAITING || t->held) continue;
        bool ready = is_ready(s, t);
        if (t->state == TR_TASK_DROPPED) return i;
        if (!ready) continue;
        if (isnan(t->since)) t->since = now;
        bool fits = tr_max_int(t->wanted, 1) <= all;
        if (*first < 0 || goes_before(s, t, &s->task[*first])) *first = i;
        if (fits && (*fitting < 0 || goes_before(s, t, &s->task[*fitting]))) *fitting = i;
    }
    return -1;
}

bool tr_schedule_next(struct tr_schedule *s, double now, int *task)
{
    int first, fitting, dropped = look(s, now, &first, &fitting);
    *task = dropped >= 0 ? dropped : fitting;
    if (dropped >= 0) return true;
    if (fitting < 0) return false;
    const struct tr_scheduled *f = &s->task[first];
    if (first != fitting && f->priority + now - f->since >= TR_STARVED) return false;
    start(s, fitting, now);
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
