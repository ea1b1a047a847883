/* How several processes change one model that lies in memory they share, at the same time (FlexPS, section 5.3; Recht et
 * al. 2011, "Hogwild!"):
 *
 *   TR_RACE_CHUNK   the model is cut into chunks, and who reads or changes a coordinate holds its chunk's lock
 *   TR_RACE_ATOMIC  no locks: each change of an element is a compare-and-swap, none is lost
 *   TR_RACE_NONE    plain stores: now and then one overwrites another, which the methods bear
 *
 * With one process, all three compute the same bits.
 */
#ifndef TR_TABLE_RACE_H
#define TR_TABLE_RACE_H

#include <sched.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "job/job.h" /* TR_RACE_… */

/* The lock of coordinate j is number j >> shift. Lock words lie a cache line apart, so that neighbours do not slow each
 * other: tr_race_words() of them, all 0 at first, in memory that the processes share. Owned by the caller. Only chunks
 * need them. */
struct tr_race {
    int kind; /* TR_RACE_… */
    _Atomic uint32_t *lock;
    unsigned shift;
};

enum { TR_RACE_STRIDE = 16 }; /* words from lock to lock */

/* How many lock words a model of n coordinates needs. */
static inline size_t tr_race_words(size_t n, unsigned shift)
{
    return n ? (((n - 1) >> shift) + 1) * TR_RACE_STRIDE : 0;
}

static inline void tr_race_pause(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

/* Who holds a lock does so for some hundred cycles, unless its core was taken away: then it needs one to go on. */
static inline void tr_race_lock(const struct tr_race *race, size_t chunk)
{
    enum { PATIENCE = 100 };
    _Atomic uint32_t *lock = &race->lock[chunk * TR_RACE_STRIDE];
    for (int turn = 0; atomic_exchange_explicit(lock, 1, memory_order_acquire);) {
        while (atomic_load_explicit(lock, memory_order_relaxed)) {
            if (++turn < PATIENCE) tr_race_pause();
            else sched_yield();
        }
    }
}

static inline void tr_race_unlock(const struct tr_race *race, size_t chunk)
{
    atomic_store_explicit(&race->lock[chunk * TR_RACE_STRIDE], 0, memory_order_release);
}

/* Puts `to` where `from` is still found; otherwise *from becomes what is there. Returns whether it was put. */
static inline bool tr_race_swap_f32(float *at, float *from, float to)
{
    uint32_t old, new;
    memcpy(&old, from, sizeof old);
    memcpy(&new, &to, sizeof new);
    bool done = __atomic_compare_exchange_n((uint32_t *)(void *)at, &old, new, false, __ATOMIC_RELAXED,
                                            __ATOMIC_RELAXED);
    memcpy(from, &old, sizeof old);
    return done;
}

static inline bool tr_race_swap_f64(double *at, double *from, double to)
{
    uint64_t old, new;
    memcpy(&old, from, sizeof old);
    memcpy(&new, &to, sizeof new);
    bool done = __atomic_compare_exchange_n((uint64_t *)(void *)at, &old, new, false, __ATOMIC_RELAXED,
                                            __ATOMIC_RELAXED);
    memcpy(from, &old, sizeof old);
    return done;
}

#endif
