/* What every program needs and C does not bring: memory that fails in order, text, time, random numbers. */
#ifndef TRIREME_BASE_H
#define TRIREME_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "trireme/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- memory ---- */

/* TR_TRY(TR_NEW(&array, n)): allocates n zeroed elements of array's type (n may be 0). Free with free(). */
#define TR_NEW(pointer, n) tr_new((void **)(pointer), (n), sizeof **(pointer), #pointer)
int tr_new(void **pointer, size_t n, size_t size, const char *what);

/* TR_TRY(TR_GROW(&array, &capacity, n)): makes room for at least n elements, keeping the old ones; the new
 * ones are not initialised. Grows by half, so that appending is linear. */
#define TR_GROW(pointer, capacity, n)                                                                        \
    tr_grow((void **)(pointer), (capacity), (n), sizeof **(pointer), #pointer)
int tr_grow(void **pointer, size_t *capacity, size_t n, size_t size, const char *what);

/* Gives back what TR_GROW took too much; keeps the array as it is when that fails. */
#define TR_SHRINK(pointer, n) tr_shrink((void **)(pointer), (n), sizeof **(pointer))
void tr_shrink(void **pointer, size_t n, size_t size);

/* A copy of the string (to be freed), or NULL without memory. */
int tr_copy_string(const char *from, char **copy);

/* printf into fresh memory (to be freed). */
int tr_format(char **text, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* ---- numbers as text, with as few digits as it takes to read them back exactly: 9 and 17 at most ---- */

enum { TR_NUMBER_ROOM = 32 };

/* Writes the number at `at` and returns the end; no zero byte follows. f64 goes through the C library and so
 * writes what the user's language has for a point. */
char *tr_put_f32(char *at, float x);
char *tr_put_f64(char *at, double x);

/* ---- time ---- */

double tr_now(void);           /* seconds on a monotonic clock */
void tr_sleep(double seconds); /* gives the core away */

/* A seam of a long computation. In compute() and evaluate() of a stage whoever asks this rank for what it serves is answered
 * here, and what it has sent and asked for itself moves on, once in 100 us; a call costs 30 ns otherwise, so there should be
 * one every few microseconds. Elsewhere it does nothing. The computation must not be changing what servers read: tables are
 * only changed by pushes, so that holds by itself. */
void tr_seam(void);

/* ---- random numbers: xoshiro256**, one stream per (seed, who, what), independent of scheduling ---- */

struct tr_rng {
    uint64_t s[4];
};

void tr_rng_seed(struct tr_rng *rng, uint64_t seed, uint64_t who, uint64_t what);
uint64_t tr_rng_next(struct tr_rng *rng);                               /* 64 uniform bits */
uint64_t tr_rng_below(struct tr_rng *rng, uint64_t n);                  /* uniform in 0..n-1, n > 0 */
double tr_rng_uniform(struct tr_rng *rng);                              /* uniform in [0, 1) with 53 bits */
void tr_rng_permutation(struct tr_rng *rng, uint32_t *order, size_t n); /* of 0..n-1, all equally probable */
double tr_rng_normal(struct tr_rng *rng);                               /* mean 0, variance 1 */

/* A good 64-bit mix of one number (splitmix64's finaliser): hashing keys and seeds. */
static inline uint64_t tr_mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static inline int tr_min_int(int a, int b)
{
    return a < b ? a : b;
}

static inline int tr_max_int(int a, int b)
{
    return a > b ? a : b;
}
/* The place of the first of n ascending numbers that is not below x; n if there is none. */
static inline size_t tr_place_u64(const uint64_t *ascending, size_t n, uint64_t x)
{
    size_t low = 0;
    while (low < n) {
        size_t middle = low + (n - low) / 2;
        if (ascending[middle] < x) low = middle + 1;
        else n = middle;
    }
    return low;
}
static inline size_t tr_place_u32(const uint32_t *ascending, size_t n, uint32_t x)
{
    size_t low = 0;
    while (low < n) {
        size_t middle = low + (n - low) / 2;
        if (ascending[middle] < x) low = middle + 1;
        else n = middle;
    }
    return low;
}

/* Sorts n numbers, ascending, in time that goes with n; other: room for as many. */
void tr_sort_u32(uint32_t *number, uint32_t *other, size_t n);

static inline size_t tr_min_size(size_t a, size_t b)
{
    return a < b ? a : b;
}
static inline size_t tr_max_size(size_t a, size_t b)
{
    return a > b ? a : b;
}

#ifdef __cplusplus
}
#endif
#endif
