/* Protocols of ranks that share memory, with the ranks as threads of one process: the test includes this file and then the
 * source file that has the protocol.
 *
 * interleave() runs the threads one at a time, in every order: before each atomic operation, and at each
 * interleave_step(), another thread may continue instead of the running one. A run has at most `switches` of these switches,
 * in addition to those at which a thread waits or has ended; all such runs are tried. (Errors of concurrency seldom take more than two:
 * Musuvathi and Qadeer 2007.) Operations happen in the order of the program then, as if all were sequentially consistent.
 *
 * With ThreadSanitizer the threads are threads of the system, which are started many times and switch as they like: it finds
 * accesses that the operations in the source do not order.
 */
#ifndef TR_TESTS_INTERLEAVE_H
#define TR_TESTS_INTERLEAVE_H

#include "unit.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <ucontext.h>

#include "ranks/ranks.h"

enum { INTERLEAVE_THREADS = 4 };

struct interleaving {
    int threads;
    int switches;             /* at most, from a thread that could continue */
    void (*begin)(void);      /* before each run */
    void (*thread)(int self); /* 0 .. threads - 1 */
    void (*end)(void);        /* when all have ended */
};

#ifndef __SANITIZE_THREAD__

enum { INTERLEAVE_POINTS = 1 << 14, INTERLEAVE_STACK = 1 << 16 };

static struct {
    struct interleaving of;
    ucontext_t scheduler, context[INTERLEAVE_THREADS];
    bool ended[INTERLEAVE_THREADS];
    int running, switches;
    int failed; /* attempts, one after the other */
    /* the points of this run at which there was a choice: which was made, of how many */
    uint8_t choice[INTERLEAVE_POINTS], choices[INTERLEAVE_POINTS];
    size_t point, steps, runs;
    _Alignas(64) char stack[INTERLEAVE_THREADS][INTERLEAVE_STACK];
} interleave_state;

/* The i-th thread behind the running one that has not ended, round and round; or the running one. */
static int interleave_other(int i)
{
    int n = interleave_state.of.threads, next = interleave_state.running;
    for (int turn = 1; turn < n; turn++) {
        int thread = (interleave_state.running + turn) % n;
        if (!interleave_state.ended[thread] && i-- == 0) return thread;
    }
    return next;
}

static int interleave_others(void)
{
    int others = 0;
    for (int t = 0; t < interleave_state.of.threads; t++)
        others += t != interleave_state.running && !interleave_state.ended[t];
    return others;
}

/* The choice of this run among `ways` possible continuations. */
static int interleave_choose(int choices)
{
    if (choices <= 1) return 0;
    size_t point = interleave_state.point++;
    ck_assert(point < INTERLEAVE_POINTS); /* else the run may not end */
    interleave_state.choices[point] = (uint8_t)choices;
    return interleave_state.choice[point];
}

static void interleave_switch(int to)
{
    int from = interleave_state.running;
    if (to == from) return;
    interleave_state.running = to;
    swapcontext(&interleave_state.context[from], &interleave_state.context[to]);
}

static void interleave_step(void)
{
    ck_assert(++interleave_state.steps < 1 << 20); /* else threads wait for each other */
    if (interleave_state.switches == interleave_state.of.switches) return;
    int choice = interleave_choose(1 + interleave_others());
    if (choice == 0) return;
    interleave_state.switches++;
    interleave_switch(interleave_other(choice - 1));
}

/* The thread waits for another one: the threads run in turn. */
static void interleave_wait(void)
{
    interleave_state.failed = 0;
    interleave_switch(interleave_other(0));
}

/* Who tries in vain again and again waits, whether it knows or not. */
static void interleave_tried(bool well)
{
    interleave_state.failed = well ? 0 : interleave_state.failed + 1;
    if (interleave_state.failed > 2) interleave_wait();
}

static void interleave_thread(int self)
{
    interleave_state.of.thread(self);
    interleave_state.ended[self] = true;
    int others = interleave_others();
    if (others == 0) setcontext(&interleave_state.scheduler);
    interleave_state.running = interleave_other(interleave_choose(others));
    setcontext(&interleave_state.context[interleave_state.running]);
}

static void interleave_run(void)
{
    interleave_state.of.begin();
    interleave_state.point = interleave_state.steps = 0;
    interleave_state.switches = 0;
    for (int t = 0; t < interleave_state.of.threads; t++) {
        ucontext_t *c = &interleave_state.context[t];
        interleave_state.ended[t] = false;
        getcontext(c);
        c->uc_stack.ss_sp = interleave_state.stack[t];
        c->uc_stack.ss_size = INTERLEAVE_STACK;
        c->uc_link = NULL;
        makecontext(c, (void (*)(void))interleave_thread, 1, t);
    }
    interleave_state.running = interleave_choose(interleave_state.of.threads);
    swapcontext(&interleave_state.scheduler, &interleave_state.context[interleave_state.running]);
    interleave_state.of.end();
    interleave_state.runs++;
}

/* The next run differs at the last point that has a way left; false: all runs have been. */
static bool interleave_next(void)
{
    size_t point = interleave_state.point;
    while (point > 0 && interleave_state.choice[point - 1] + 1 == interleave_state.choices[point - 1])
        point--;
    if (point == 0) return false;
    interleave_state.choice[point - 1]++;
    memset(interleave_state.choice + point, 0, INTERLEAVE_POINTS - point);
    return true;
}

static void interleave(struct interleaving of)
{
    memset(interleave_state.choice, 0, sizeof interleave_state.choice);
    interleave_state.of = of;
    interleave_state.runs = 0;
    do interleave_run();
    while (interleave_next());
    printf("%zu runs\n", interleave_state.runs);
}

/* What the source file that is included next calls. There is one thread of the system, so nothing need be atomic. */
#undef atomic_load
#undef atomic_load_explicit
#undef atomic_store
#undef atomic_store_explicit
#undef atomic_exchange
#undef atomic_exchange_explicit
#undef atomic_fetch_add
#undef atomic_fetch_add_explicit
#undef atomic_fetch_sub_explicit
#undef atomic_compare_exchange_strong
#undef atomic_compare_exchange_weak
#undef atomic_compare_exchange_strong_explicit
#define INTERLEAVED(type, at, then)                                                                          \
    __extension__({                                                                                          \
        interleave_step();                                                                                   \
        type *at_ = (at), was_ = *at_;                                                                       \
        then;                                                                                                \
        was_;                                                                                                \
    })
#define INTERLEAVED_CHANGE(at, to) INTERLEAVED(__typeof__(*(at)), at, *at_ = (to))
#define atomic_load(at)            INTERLEAVED(const __typeof__(*(at)), at, (void)0)
#define atomic_store(at, to)       (void)INTERLEAVED_CHANGE(at, to)
#define atomic_exchange(at, to)    INTERLEAVED_CHANGE(at, to)
#define atomic_fetch_add(at, by)   INTERLEAVED_CHANGE(at, was_ + (by))
#define atomic_compare_exchange_strong(at, seen, to)                                                         \
    __extension__({                                                                                          \
        interleave_step();                                                                                   \
        bool same_ = *(at) == *(seen);                                                                       \
        if (same_) *(at) = (to);                                                                             \
        else *(seen) = *(at);                                                                                \
        interleave_tried(same_);                                                                             \
        same_;                                                                                               \
    })
#define atomic_load_explicit(at, order)            atomic_load(at)
#define atomic_store_explicit(at, to, order)       atomic_store(at, to)
#define atomic_exchange_explicit(at, to, order)    atomic_exchange(at, to)
#define atomic_fetch_add_explicit(at, by, order)   atomic_fetch_add(at, by)
#define atomic_fetch_sub_explicit(at, by, order)   INTERLEAVED_CHANGE(at, was_ - (by))
#define atomic_compare_exchange_weak(at, seen, to) atomic_compare_exchange_strong(at, seen, to)
#define atomic_compare_exchange_strong_explicit(at, seen, to, well, ill)                                     \
    atomic_compare_exchange_strong(at, seen, to)
#define sched_yield() interleave_wait()

#else

static struct interleaving interleave_of;

static void interleave_step(void) {}

static void interleave_wait(void)
{
    sched_yield();
}

static void *interleave_thread(void *self)
{
    interleave_of.thread((int)(intptr_t)self);
    return NULL;
}

static void interleave(struct interleaving of)
{
    enum { RUNS = 300 };
    interleave_of = of;
    for (int run = 0; run < RUNS; run++) {
        pthread_t thread[INTERLEAVE_THREADS];
        of.begin();
        for (int t = 0; t < of.threads; t++)
            ck_assert_int_eq(pthread_create(&thread[t], NULL, interleave_thread, (void *)(intptr_t)t), 0);
        for (int t = 0; t < of.threads; t++) pthread_join(thread[t], NULL);
        of.end();
    }
}

#endif

/* The waiting loop of a rank: its polls, and then it is another one's turn. */
static int interleave_turn(tr_context *tr)
{
    int did = 0;
    for (size_t i = 0; i < tr->poll_count; i++) TR_TRY(tr->polls[i].poll(tr->polls[i].what, &did));
    interleave_wait();
    return TR_OK;
}
#define tr_waiting_turn(tr, waiting, ...) ((void)(waiting), interleave_turn(tr))

#endif
