#include "table/shelf.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

/* One place, in shared memory. */
struct place {
    atomic_uint lock;
    uint32_t readers;
    enum { EMPTY, COMING, HERE } state;
    uint64_t unit, number;
    int64_t holds;
};

struct head {
    _Atomic uint64_t fetches;
    char pad[56];
    struct place place[];
};

struct tr_shelf {
    struct tr_shm memory;
    struct head *head;
    char *value; /* by place */
    uint64_t places;
    size_t bytes, stride; /* of a unit, and padded */
};

static size_t padded(size_t bytes)
{
    return (bytes + 63) & ~(size_t)63;
}

/* ---- opening ---- */

static size_t values_at(uint64_t places)
{
    return padded(sizeof(struct head) + places * sizeof(struct place));
}

/* Its memory belongs to the first rank of the node. */
static int make(struct tr_table *t, struct tr_shelf *s)
{
    tr_context *tr = t->tr;
    size_t bytes = tr->node_rank == 0 ? values_at(s->places) + s->places * s->stride : 0;
    TR_TRY(tr_shm_open(tr->node, bytes, false, &s->memory));
    s->head = (struct head *)(void *)s->memory.part[0].at;
    s->value = (char *)s->head + values_at(s->places);
    if (tr->node_rank == 0) memset(s->head, 0, values_at(s->places));
    MPI_Barrier(tr->node); /* nobody looks before the places are empty */
    return TR_OK;
}

int tr_shelf_open(struct tr_table *t, uint64_t bytes, struct tr_shelf **shelf)
{
    enum { FEWEST = 16 };
    struct tr_shelf *s = NULL;
    tr_context *tr = t->tr;
    int mine = TR_NEW(&s, 1), failed = 0;
    MPI_Allreduce(&mine, &failed, 1, MPI_INT, MPI_MAX, tr->node);
    if (failed) {
        free(s);
        return TR_OK; /* every worker fetches for itself */
    }
    uint64_t units = t->keys * t->pieces;
    s->memory = TR_SHM_CLOSED;
    s->bytes = t->unit_bytes;
    s->stride = padded(s->bytes);
    s->places = bytes / s->stride > FEWEST ? bytes / s->stride : FEWEST;
    if (s->places > units) s->places = units;
    if (make(t, s) == TR_OK) *shelf = s;
    else tr_shelf_close(&s);
    return TR_OK;
}

void tr_shelf_close(struct tr_shelf **shelf)
{
    struct tr_shelf *s = *shelf;
    if (!s) return;
    tr_shm_close(&s->memory);
    free(s);
    *shelf = NULL;
}

uint64_t tr_shelf_number(const struct tr_shelf *s)
{
    return atomic_load(&s->head->fetches);
}

/* ---- places ---- */

static struct place *lock(struct tr_shelf *s, uint64_t unit)
{
    struct place *p = &s->head->place[unit % s->places];
    while (atomic_exchange_explicit(&p->lock, 1, memory_order_acquire)) sched_yield();
    return p;
}

static void unlock(struct place *p)
{
    atomic_store_explicit(&p->lock, 0, memory_order_release);
}

/* Whether a place has the unit, or will have it, as it is wanted. */
static bool suits(const struct place *p, uint64_t unit, const struct tr_shelf_terms *terms)
{
    if (p->state == EMPTY || p->unit != unit || p->number <= terms->after) return false;
    return terms->lockstep ? p->holds == terms->least : p->holds >= terms->least;
}

enum tr_shelf_state tr_shelf_claim(struct tr_shelf *s, uint64_t unit, const struct tr_shelf_terms *terms,
                                   int64_t holds)
{
    struct place *p = lock(s, unit);
    enum tr_shelf_state state = TR_SHELF_NONE;
    if (suits(p, unit, terms)) {
        state = p->state == HERE ? TR_SHELF_HERE : TR_SHELF_COMING;
    } else if (p->state != COMING && p->readers == 0) {
        p->state = COMING;
        p->unit = unit;
        p->holds = holds;
        p->number = atomic_fetch_add(&s->head->fetches, 1) + 1;
        state = TR_SHELF_CLAIMED;
    }
    unlock(p);
    return state;
}

enum tr_shelf_state tr_shelf_take(struct tr_shelf *s, uint64_t unit, const struct tr_shelf_terms *terms,
                                  const void **value)
{
    struct place *p = lock(s, unit);
    enum tr_shelf_state state = TR_SHELF_NONE;
    if (suits(p, unit, terms)) {
        state = p->state == HERE ? TR_SHELF_HERE : TR_SHELF_COMING;
        p->readers += state == TR_SHELF_HERE;
        *value = s->value + unit % s->places * s->stride;
    }
    unlock(p);
    return state;
}

void tr_shelf_give_back(struct tr_shelf *s, uint64_t unit)
{
    struct place *p = lock(s, unit);
    p->readers--;
    unlock(p);
}

/* Until it is here, nobody but its fetcher touches the place. */
void tr_shelf_put(struct tr_shelf *s, uint64_t unit, const void *value)
{
    if (value) memcpy(s->value + unit % s->places * s->stride, value, s->bytes);
    struct place *p = lock(s, unit);
    p->state = value ? HERE : EMPTY;
    unlock(p);
}
