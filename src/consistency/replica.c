/* When a replica is taken and given: see trireme/replica.h; what it is made of: table/replica.h.
 *
 * Its workers wait for each other in words that they share. One that fails goes on with its clocks, but computes no more,
 * and so would be waited for in vain: the others are told by its polls, which find that it has come to a later clock than
 * those who wait. */
#include "table/replica.h"

#include <string.h>

#include "consistency/sync.h"
#include "job/job.h"

static int watch(void *replica, int *did)
{
    struct tr_replica *l = replica;
    const struct tr_sync *s = l->tr->sync;
    struct tr_replica_head *head = l->head;
    (void)did;
    if (l->waiting || atomic_load_explicit(&head->arrived, memory_order_acquire) == 0) return TR_OK;
    if (!s->running || !tr_works(l->tr) || s->now <= atomic_load(&head->clock)) return TR_OK;
    int none = TR_OK;
    atomic_compare_exchange_strong(&head->failed, &none, TR_ERR_PEER);
    return TR_OK;
}

int tr_replica_open_with(tr_context *tr, const tr_replica_options *options, tr_replica **replica)
{
    struct tr_replica *l;
    TR_TRY(tr_replica_make(tr, options, &l));
    int status = tr_agree(tr, tr_poll_add(tr, watch, l));
    if (status != TR_OK) tr_replica_close(&l);
    else *replica = l;
    return status;
}

int tr_replica_open(tr_table *table, tr_replica **replica)
{
    const tr_replica_array array = {.table = table, .given = true};
    return tr_replica_open_with(table->tr, &(tr_replica_options){.array = &array, .arrays = 1}, replica);
}

void tr_replica_close(tr_replica **replica)
{
    if (!*replica) return;
    tr_poll_remove((*replica)->tr, watch, *replica);
    tr_replica_free(replica);
}

/* ---- waiting for each other ---- */

/* Whether another worker has failed in what it does by itself: it says why when the stage ends, which nobody who waited
 * for it should hide. Until then there is nothing to be read, and what is given is worth nothing. */
static bool is_left(const struct tr_replica *l)
{
    return atomic_load(&l->head->failed) != TR_OK && !*l->head->why;
}

static int wait_until_all_came(struct tr_replica *l, uint32_t round)
{
    struct tr_replica_head *head = l->head;
    TR_WAIT_UNTIL(l->tr,
                  atomic_load_explicit(&head->round, memory_order_acquire) != round ||
                      atomic_load(&head->failed) != TR_OK,
                  "the other workers of the node that share table %s", l->table->name);
    return tr_replica_failure(l);
}

static int barrier(struct tr_replica *l, const tr_worker *me)
{
    struct tr_replica_head *head = l->head;
    uint32_t round = atomic_load(&head->round);
    TR_TRY(tr_replica_failure(l));
    atomic_store(&head->clock, l->tr->sync->now);
    l->waiting = true;
    int status = TR_OK;
    if (atomic_fetch_add(&head->arrived, 1) + 1 == (uint32_t)me->workers) {
        atomic_store(&head->arrived, 0);
        atomic_store(&head->round, round + 1);
    } else {
        status = wait_until_all_came(l, round);
    }
    l->waiting = false;
    return status;
}

/* ---- taking and giving ---- */

static int check_workers(const struct tr_replica *l)
{
    const tr_context *tr = l->tr;
    for (int w = 0; w < tr_worker_set_size(tr->active); w++)
        if (!tr_same_node(tr, tr_worker_rank(tr, tr->active, w)))
            return tr_fail(
                TR_ERR_CONFIG,
                "table %s: the workers of a stage with a local model must be of one node, but worker "
                "%d is of another: see ranks.groups and ranks.group_size",
                l->table->name, w);
    return TR_OK;
}

static int take(struct tr_replica *l, const tr_worker *me)
{
    if (l->tr->status != TR_OK && atomic_load(&l->head->failed) != TR_OK)
        return tr_fail(TR_ERR_INTERNAL, "table %s: its local model was left by a stage that has failed",
                       l->table->name);
    TR_TRY(check_workers(l));
    tr_replica_clear(l, me->worker, me->workers, false);
    if (l->model != TR_LOCAL_INTEGRAL) return TR_OK;
    TR_TRY(barrier(l, me)); /* before absent chunks are counted down */
    return tr_replica_fetch_part(l, me->worker, me->workers, UINT32_MAX);
}

static int take_from(struct tr_replica *l, const tr_worker *me, int group, unsigned again)
{
    const tr_context *tr = l->tr;
    int node = tr->node_of[group < 0 ? tr->rank : tr->layout.worker_rank[group * tr->layout.group_size]];
    TR_TRY(check_workers(l));
    if (l->model != TR_LOCAL_INTEGRAL)
        return tr_fail(TR_ERR_INTERNAL, "table %s: a local model on demand goes through its table",
                       l->table->name);
    tr_replica_clear(l, me->worker, me->workers, true);
    if (node != tr->node_of[tr->rank]) TR_TRY(tr_replica_fetch_from(l, node, me->worker, me->workers));
    else if (again) TR_TRY(tr_replica_fetch_part(l, me->worker, me->workers, again));
    return TR_OK;
}

static int end_taking(struct tr_replica *l, const tr_worker *me, double begin, int status)
{
    status = tr_replica_note(l, status);
    if (status == TR_OK) status = barrier(l, me);
    l->idle = status != TR_OK && is_left(l);
    if (l->idle) status = TR_OK;
    l->taken = status == TR_OK;
    l->astray = false;
    l->tr->tables->traffic.pull_seconds += tr_now() - begin;
    tr_wait_end(l->tr->tables);
    return status;
}

int tr_replica_take(tr_replica *l, tr_worker *me)
{
    double begin = tr_now();
    tr_wait_begin(l->tr->tables);
    return end_taking(l, me, begin, take(l, me));
}

int tr_replica_take_from(tr_replica *l, tr_worker *me, int group, unsigned again)
{
    double begin = tr_now();
    tr_wait_begin(l->tr->tables);
    return end_taking(l, me, begin, take_from(l, me, group, again));
}

static int end_using(struct tr_replica *l, const tr_worker *me, bool gives)
{
    struct tr_traffic *traffic = &l->tr->tables->traffic;
    double begin = tr_now();
    if (!l->taken)
        return tr_fail(TR_ERR_INTERNAL, "table %s: its local model is given, but was not taken",
                       l->table->name);
    tr_wait_begin(l->tr->tables);
    int status = barrier(l, me);
    double met = tr_now();
    l->taken = false;
    if (status == TR_OK) status = tr_replica_note(l, tr_replica_give_part(l, me->worker, me->workers, gives));
    else if (is_left(l)) status = TR_OK;
    traffic->wait_seconds += met - begin;
    traffic->push_seconds += tr_now() - met;
    tr_wait_end(l->tr->tables);
    return status;
}

int tr_replica_give(tr_replica *l, tr_worker *me)
{
    return end_using(l, me, true);
}

int tr_replica_leave(tr_replica *l, tr_worker *me)
{
    return end_using(l, me, false);
}
