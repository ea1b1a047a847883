/* What all made-up data are drawn from, and written with. */
#ifndef TR_DATA_DRAW_H
#define TR_DATA_DRAW_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/base.h"

/* What a random stream is for. */
enum tr_made_stream {
    TR_MADE_ROWS = 1,
    TR_MADE_PILOT,
    TR_MADE_RATINGS,
    TR_MADE_TOKENS,
    TR_MADE_DENSE,
    TR_MADE_EVENTS
};

/* An option, and what it may be. */
struct tr_range {
    const char *key;
    double value, least, most;
};

int tr_check_ranges(const struct tr_range *range, size_t n);

#define TR_CHECK_RANGES(...)                                                                                 \
    tr_check_ranges((const struct tr_range[]){__VA_ARGS__},                                                  \
                    sizeof((const struct tr_range[]){__VA_ARGS__}) / sizeof(struct tr_range))

/* ---- popularity: n things, the k-th most popular one drawn in proportion to k^-power ---- */

struct tr_popular {
    uint32_t n;
    double exponent, span; /* of the inverse of the power law's distribution */
    unsigned bits;         /* 2^bits >= n */
};

/* n > 0 */
void tr_popular_init(struct tr_popular *p, uint32_t n, double power);

/* The rank, 0 .. n - 1, that belongs to u in [0, 1): the inverse of the distribution of the continuous power law on
 * [1, n + 1). */
uint32_t tr_popular_rank(const struct tr_popular *p, double u);

/* Spreads ranks over 0 .. n - 1, one to one, so that what is popular does not lie together: a fixed permutation of
 * 0 .. 2^bits - 1, walked until it lands inside. */
uint32_t tr_popular_spread(const struct tr_popular *p, uint32_t rank);

/* ---- ranks that differ within a row ---- */

/* An open hash table that never has to be cleared: entries know the row that they were taken for, counted from 1. */
struct tr_distinct {
    struct tr_taken {
        uint64_t row;
        uint32_t rank;
    } * taken;
    size_t slots;
    uint64_t row; /* in work */
};

/* Begins a row of at most so many. */
int tr_distinct_begin(struct tr_distinct *d, size_t most);

/* Draws a popular rank that this row does not have yet: tried a few times, then the next free one. */
uint32_t tr_distinct_draw(struct tr_distinct *d, const struct tr_popular *p, struct tr_rng *rng);

/* ---- uneven shares: n owners, who get 0.4 to 4 times the mean ---- */

enum { TR_SHARE_MOST = 4 };

struct tr_split {
    uint64_t n, whole, seed, next;
    double sum, total; /* of the weights of those before next, and of all */
};

/* Ready to tell the share of owner begin and of those behind it. Sums are taken in the same order whatever begin is, so all slices see the same numbers. */
void tr_split_begin(struct tr_split *s, uint64_t n, uint64_t whole, uint64_t seed, uint64_t begin);

/* All n shares together are the whole. */
uint64_t tr_split_next(struct tr_split *s);

/* ---- hidden numbers: known from what they belong to, never stored ---- */

/* A uniform number with mean 0 and variance 1 from 16 bits of the hash. */
static inline double tr_hidden_piece(uint64_t hash, unsigned piece)
{
    return ((double)(hash >> (16 * piece) & 0xffff) - 32767.5) * (3.4641016151377544 / 65536);
}

static inline double tr_logistic(double x)
{
    return 1 / (1 + exp(-x));
}

/* ---- text: lines gathered into large pieces ---- */

/* The next line is written at `at`, where there is room for it. */
struct tr_lines {
    FILE *out;
    char *text, *at;
    size_t room, longest;
};

int tr_lines_open(struct tr_lines *l, size_t longest, FILE *out);

int tr_lines_flush(struct tr_lines *l);

/* The line at `at` ends before end. */
static inline int tr_lines_add(struct tr_lines *l, char *end)
{
    l->at = end;
    return (size_t)(end - l->text) + l->longest <= l->room ? TR_OK : tr_lines_flush(l);
}

/* Writes the rest unless status is an error; frees. */
int tr_lines_close(struct tr_lines *l, int status);

static inline char *tr_print_whole(char *p, uint64_t number)
{
    char digits[20];
    size_t n = 0;
    do digits[n++] = (char)('0' + number % 10);
    while (number /= 10);
    while (n > 0) *p++ = digits[--n];
    return p;
}

/* A number in units of 10^-decimals, without the zeros behind the last other digit. */
char *tr_print_decimal(char *p, int64_t number, int decimals);

#endif
