/* Stands in for the library of ThreadSanitizer (libtsan.so.2): a program that was built with -fsanitize=thread calls it at each
 * atomic operation and each access to memory. This one looks for nothing. It lets others go first at random, so that ranks
 * which share memory meet in orders that they seldom would by themselves: see tools/sanitize.
 *
 *   STAGGER_SEED  chooses where; other ranks and threads choose other places. Without it, nowhere
 */
#define _GNU_SOURCE
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

enum {
    ATOMICS = 16,
    ACCESSES = 1 << 16,
    MICROSECONDS = 100
}; /* mean number of atomic operations and of accesses between two pauses; length of a long pause */

static uint64_t seed;
static _Atomic uint64_t threads;
static _Thread_local uint64_t state;
static _Thread_local uint32_t left;

static uint64_t next(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    return state ^= state << 17;
}

/* Stops, one time of eight for longer. */
static void stop(void)
{
    if (seed == 0) return;
    if (state == 0) state = (seed + ++threads) * UINT64_C(0x9e3779b97f4a7c15) | 1;
    uint64_t by = next();
    struct timespec nap = {.tv_nsec = (long)(by >> 32) % (1000 * MICROSECONDS)};
    if (by % 8 == 0) nanosleep(&nap, NULL);
    else sched_yield();
}

static void at_atomic(void)
{
    if (seed > 0 && (state == 0 || next() % ATOMICS == 0)) stop();
}

static void at_access(void)
{
    if (left-- > 0) return;
    stop();
    left = seed == 0 ? UINT32_MAX : (uint32_t)(next() % (2 * ACCESSES));
}

void __tsan_init(void)
{
    const char *wanted = getenv("STAGGER_SEED"), *rank = getenv("OMPI_COMM_WORLD_RANK");
    if (!wanted) return;
    seed = (strtoull(wanted, NULL, 10) * 1000 + (rank ? strtoull(rank, NULL, 10) : 0)) * 1000 + 1;
}

void __tsan_func_entry(void *from)
{
    (void)from;
}
void __tsan_func_exit(void) {}

#define ACCESS(name)                                                                                         \
    void __tsan_##name(void *at)                                                                             \
    {                                                                                                        \
        (void)at;                                                                                            \
        at_access();                                                                                         \
    }
#define ACCESSES_OF(bytes)                                                                                   \
    ACCESS(read##bytes) ACCESS(write##bytes) ACCESS(unaligned_read##bytes) ACCESS(unaligned_write##bytes)
ACCESSES_OF(1)
ACCESSES_OF(2)
ACCESSES_OF(4) ACCESSES_OF(8) ACCESSES_OF(16)

    void __tsan_read_range(void *at, size_t bytes)
{
    (void)at, (void)bytes;
    at_access();
}

void __tsan_write_range(void *at, size_t bytes)
{
    (void)at, (void)bytes;
    at_access();
}

#define CHANGE(bits, name)                                                                                   \
    uint##bits##_t __tsan_atomic##bits##_##name(volatile uint##bits##_t *at, uint##bits##_t by, int order)   \
    {                                                                                                        \
        (void)order;                                                                                         \
        at_atomic();                                                                                         \
        return __atomic_##name(at, by, __ATOMIC_SEQ_CST);                                                    \
    }
#define ATOMIC(bits)                                                                                         \
    uint##bits##_t __tsan_atomic##bits##_load(const volatile uint##bits##_t *at, int order)                  \
    {                                                                                                        \
        (void)order;                                                                                         \
        at_atomic();                                                                                         \
        return __atomic_load_n(at, __ATOMIC_SEQ_CST);                                                        \
    }                                                                                                        \
    void __tsan_atomic##bits##_store(volatile uint##bits##_t *at, uint##bits##_t to, int order)              \
    {                                                                                                        \
        (void)order;                                                                                         \
        at_atomic();                                                                                         \
        __atomic_store_n(at, to, __ATOMIC_SEQ_CST);                                                          \
        at_atomic();                                                                                         \
    }                                                                                                        \
    uint##bits##_t __tsan_atomic##bits##_exchange(volatile uint##bits##_t *at, uint##bits##_t to, int order) \
    {                                                                                                        \
        (void)order;                                                                                         \
        at_atomic();                                                                                         \
        return __atomic_exchange_n(at, to, __ATOMIC_SEQ_CST);                                                \
    }                                                                                                        \
    int __tsan_atomic##bits##_compare_exchange_strong(volatile uint##bits##_t *at, uint##bits##_t *seen,     \
                                                      uint##bits##_t to, int well, int ill)                  \
    {                                                                                                        \
        (void)well, (void)ill;                                                                               \
        at_atomic();                                                                                         \
        return __atomic_compare_exchange_n(at, seen, to, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);         \
    }                                                                                                        \
    int __tsan_atomic##bits##_compare_exchange_weak(volatile uint##bits##_t *at, uint##bits##_t *seen,       \
                                                    uint##bits##_t to, int well, int ill)                    \
    {                                                                                                        \
        return __tsan_atomic##bits##_compare_exchange_strong(at, seen, to, well, ill);                       \
    }                                                                                                        \
    CHANGE(bits, fetch_add)                                                                                  \
    CHANGE(bits, fetch_sub) CHANGE(bits, fetch_and) CHANGE(bits, fetch_or) CHANGE(bits, fetch_xor)
ATOMIC(8)
ATOMIC(16)
ATOMIC(32) ATOMIC(64)

    void __tsan_atomic_thread_fence(int order)
{
    (void)order;
    at_atomic();
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
