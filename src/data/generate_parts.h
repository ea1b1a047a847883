/* What all made-up data are made of: popularity, uneven shares, hidden numbers, and text written fast. */
#ifndef TR_DATA_GENERATE_PARTS_H
#define TR_DATA_GENERATE_PARTS_H

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"

/* ---- popularity: n things, the k-th most popular one drawn in proportion to k^-power ---- */

struct tr_popular {
    uint32_t n;
    double exponent, span; /* of the inverse of the power law's distribution */
    unsigned bits;         /* 2^bits >= n */
};

void tr_popular_init(struct tr_popular *p, uint32_t n, double power); /* n > 0 */

/* The rank, 0 .. n - 1, that belongs to u in [0, 1): the inverse of the distribution of the continuous power
 * law on [1, n + 1). */
uint32_t tr_popular_rank(const struct tr_popular *p, double u);

/* Spreads ranks over 0 .. n - 1, so that what is popular does not lie together. One to one. */
uint32_t tr_popular_spread(const struct tr_popular *p, uint32_t rank);

/* ---- ranks that differ within a row, in an open hash table that never has to be cleared ---- */

struct tr_distinct {
    struct tr_taken *taken;
    size_t slots;
    uint64_t row; /* rows begun so far, to tell old entries from new */
};

/* Room for rows of so many; slots may become more. Free taken with tr_distinct_free(). */
int tr_distinct_reserve(struct tr_distinct *d, size_t most);
void tr_distinct_free(struct tr_distinct *d);

/* Draws a popular rank that this row does not have yet: tried a few times, then the next free one. A row
 * begins with d->row++. */
uint32_t tr_distinct_draw(struct tr_distinct *d, const struct tr_popular *p, struct tr_rng *rng);

/* ---- uneven shares: n owners, who get 0.4 to 4 times the mean ---- */

#define TR_SHARE_MOST 4 /* times the mean, at most */

struct tr_split {
    uint64_t n, whole, seed, next;
    double sum, total; /* of the weights of those before next, and of all */
};

/* Ready to tell the share of owner begin and of those behind it. Passes over all owners. */
void tr_split_init(struct tr_split *s, uint64_t n, uint64_t whole, uint64_t seed, uint64_t begin);
uint64_t tr_split_next(struct tr_split *s); /* all n shares together are the whole */

/* ---- hidden numbers: known from what they belong to, never stored ---- */

/* A uniform number with mean 0 and variance 1 from 16 bits of the hash. */
static inline double tr_hidden_piece(uint64_t hash, unsigned piece)
{
    return ((double)(hash >> (16 * piece) & 0xffff) - 32767.5) * (3.4641016151377544 / 65536);
}

/* ---- text ---- */

/* Lines gathered into large pieces. The next line is written at `at`, where there is room for it. */
struct tr_lines {
    FILE *out;
    char *text, *at;
    size_t room, longest;
};

int tr_lines_open(struct tr_lines *l, size_t longest, FILE *out); /* longest line, in bytes */
int tr_lines_add(struct tr_lines *l, char *end);                  /* the line at `at` ends before end */
int tr_lines_close(struct tr_lines *l, int status); /* writes the rest unless status is an error; frees */

char *tr_print_whole(char *p, uint64_t number);

/* A number in units of 10^-decimals, without the zeros behind the last other digit. */
char *tr_print_decimal(char *p, int64_t number, int decimals);

#endif
