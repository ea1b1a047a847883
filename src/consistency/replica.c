/* When a local model is taken and given: see trireme/replica.h; what it is made of: table/local_parts.h.
 *
 * Its workers wait for each other in words that they share. One that fails goes on with its clocks, but computes no more,
 * and so would be waited for in vain: the others are told by its polls, which find that it has come to a later clock than
 * those who wait. */
#include "table/replica_parts.h"

#include <string.h>

#include "consistency/sync.h"

static int watch(void *local, int *did)
{
    struct tr_replica *l = local;
    const struct tr_sync *s = l->tr->sync;
    struct tr_replica_head *head = l->head;
    (void)did;
    if (l->waiting || atomic_load_explicit(&head->arrived, memory_order_acquire) == 0) return TR_OK;
    if (!s->running || !tr_works(l->tr) || s->now <= atomic_load(&head->clock)) return TR_OK;
    int none = TR_OK;
    atomic_compare_exchange_strong(&head->failed, &none, TR_ERR_PEER);
    return TR_OK;
}

int tr_replica_open(tr_table *table, tr_replica **local)
{
    struct tr_replica *l;
    TR_TRY(tr_replica_make(table, &l));
    int status = tr_agree(l->tr, tr_poll_add(l->tr, watch, l));
    if (status != TR_OK) tr_replica_close(&l);
    else *local = l;
    return status;
}

void tr_replica_close(tr_replica **local)
{
    if (!*local) return;
    tr_poll_remove((*local)->tr, watch, *local);
    tr_replica_free(local);
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

static int meet(struct tr_replica *l, const tr_worker *me)
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

static int check_cast(const struct tr_replica *l)
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
    if (l->taken)
        return tr_fail(TR_ERR_INTERNAL, "table %s: its local model is taken already", l->table->name);
    if (l->tr->status != TR_OK && atomic_load(&l->head->failed) != TR_OK)
        return tr_fail(TR_ERR_INTERNAL, "table %s: its local model was left by a stage that has failed",
                       l->table->name);
    TR_TRY(check_cast(l));
    tr_replica_clear(l, me->worker, me->workers);
    if (l->model == TR_LOCAL_INTEGRAL) {
        TR_TRY(meet(l, me)); /* before absent chunks are counted down */
        TR_TRY(tr_replica_fetch_part(l, me->worker, me->workers));
    }
    return TR_OK;
}

int tr_replica_take(tr_replica *l, tr_worker *me)
{
    struct tr_traffic *traffic = &l->tr->tables->traffic;
    double begin = tr_now();
    int status = tr_replica_note(l, take(l, me));
    if (status == TR_OK) status = meet(l, me);
    l->idle = status != TR_OK && is_left(l);
    if (l->idle) status = TR_OK;
    l->taken = status == TR_OK;
    traffic->pull_seconds += tr_now() - begin;
    return status;
}

int tr_replica_give(tr_replica *l, tr_worker *me)
{
    struct tr_traffic *traffic = &l->tr->tables->traffic;
    double begin = tr_now();
    if (!l->taken)
        return tr_fail(TR_ERR_INTERNAL, "table %s: its local model is given, but was not taken",
                       l->table->name);
    int status = meet(l, me);
    double met = tr_now();
    l->taken = false;
    if (status == TR_OK) status = tr_replica_note(l, tr_replica_give_part(l, me->worker, me->workers));
    else if (is_left(l)) status = TR_OK;
    traffic->wait_seconds += met - begin;
    traffic->push_seconds += tr_now() - met;
    return status;
}
