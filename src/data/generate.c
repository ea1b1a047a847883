#define _GNU_SOURCE
#include "data/generate.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

#define PILOT_ROWS 2000 /* rows from which the bias is found */
#define POSITIVES  0.3
#define SIGNAL     3.0 /* standard deviation of the margin, roughly */
#define REDRAWS    8
#define VALUE_UNIT 10000 /* real values are whole multiples of 1/VALUE_UNIT */
#define PAIR_BYTES 19    /* " 4294967294:0.1234" and one to spare */
#define TEXT_BYTES ((size_t)64 << 10)

/* What a random stream is for. */
enum stream { ROWS = 1, PILOT = 2 };

struct entry {
    uint32_t feature; /* 1 .. features */
    uint32_t value;   /* in units of 1/VALUE_UNIT */
};

/* A feature already taken by this row, in an open hash table that never has to be cleared. */
struct taken {
    uint64_t row; /* which it was taken for, counted from 1 */
    uint32_t rank;
};

struct generator {
    struct tr_generate_options options;
    double exponent, span; /* of the inverse of the power law's distribution */
    unsigned bits;         /* 2^bits >= features */
    uint64_t weight_seed;
    double bias;
    struct entry *entries; /* of the row in work */
    struct taken *taken;
    size_t slots;
    uint64_t row_count; /* rows made so far, to tell old entries of taken from new */
};

/* ---- features ---- */

/* A rank 0 .. features - 1 with probability about (rank + 1)^-power: the inverse of the distribution of the
 * continuous power law on [1, features + 1). */
static uint32_t draw_rank(const struct generator *g, struct tr_rng *rng)
{
    double u = tr_rng_uniform(rng);
    double x = g->exponent == 0 ? exp(u * g->span) : pow(1 + u * g->span, 1 / g->exponent);
    uint32_t last = g->options.features - 1;
    return x - 1 < last ? (uint32_t)(x - 1) : last;
}

/* Marks the rank as taken by this row; false if it already was. */
static bool take(struct generator *g, uint32_t rank)
{
    size_t i = (size_t)tr_mix(rank) & (g->slots - 1);
    for (; g->taken[i].row == g->row_count; i = (i + 1) & (g->slots - 1))
        if (g->taken[i].rank == rank) return false;
    g->taken[i] = (struct taken){g->row_count, rank};
    return true;
}

/* A rank that the row does not have: drawn a few times, then the next free one. */
static uint32_t draw_new_rank(struct generator *g, struct tr_rng *rng)
{
    uint32_t rank = 0;
    for (int i = 0; i < REDRAWS; i++)
        if (take(g, rank = draw_rank(g, rng))) return rank;
    do rank = rank + 1 < g->options.features ? rank + 1 : 0;
    while (!take(g, rank));
    return rank;
}

/* Spreads ranks over the indices: a fixed permutation of 0 .. 2^bits - 1, walked until it lands inside. */
static uint32_t spread(const struct generator *g, uint32_t rank)
{
    uint64_t x = rank, mask = ((uint64_t)1 << g->bits) - 1;
    unsigned half = g->bits / 2 + 1;
    do {
        x = (x * 0x9e3779b97f4a7c15u + 0x7f4a7c15u) & mask;
        x ^= x >> half;
        x = (x * 0xbf58476d1ce4e5b9u) & mask;
        x ^= x >> half;
        x = (x * 0x94d049bb133111ebu) & mask;
        x ^= x >> half;
    } while (x >= g->options.features);
    return (uint32_t)x;
}

/* Small values are the common ones, as in term frequencies. */
static uint32_t draw_value(const struct generator *g, struct tr_rng *rng)
{
    if (g->options.values == TR_VALUES_BINARY) return VALUE_UNIT;
    if (g->options.values == TR_VALUES_UNIT) return (uint32_t)lround(VALUE_UNIT / sqrt(g->options.nonzeros));
    double u = tr_rng_uniform(rng);
    return 1 + (uint32_t)(u * u * VALUE_UNIT);
}

static int compare_entries(const void *a, const void *b)
{
    uint32_t x = ((const struct entry *)a)->feature, y = ((const struct entry *)b)->feature;
    return (x > y) - (x < y);
}

static void sort_entries(struct entry *entries, size_t n)
{
    if (n > 64) {
        qsort(entries, n, sizeof *entries, compare_entries);
        return;
    }
    for (size_t i = 1; i < n; i++) {
        struct entry entry = entries[i];
        size_t j = i;
        for (; j > 0 && entries[j - 1].feature > entry.feature; j--) entries[j] = entries[j - 1];
        entries[j] = entry;
    }
}

static void draw_entries(struct generator *g, struct tr_rng *rng)
{
    g->row_count++;
    for (uint32_t i = 0; i < g->options.nonzeros; i++) {
        uint32_t feature = 1 + spread(g, draw_new_rank(g, rng));
        g->entries[i] = (struct entry){feature, draw_value(g, rng)};
    }
    sort_entries(g->entries, g->options.nonzeros);
}

/* ---- labels ---- */

/* Hidden weights come from a hash: uniform, with mean 0 and variance 1. */
static double hidden_weight(const struct generator *g, uint32_t feature)
{
    double u = (double)(tr_mix(g->weight_seed ^ feature) >> 11) * 0x1p-53;
    return (2 * u - 1) * 1.7320508075688772;
}

static double margin(const struct generator *g)
{
    double sum = 0;
    uint32_t n = g->options.nonzeros;
    bool real = g->options.values == TR_VALUES_REAL; /* else scaled below, whatever the values */
    for (uint32_t i = 0; i < n; i++)
        sum +=
            hidden_weight(g, g->entries[i].feature) * (real ? (double)g->entries[i].value / VALUE_UNIT : 1);
    return SIGNAL * sum / sqrt(n);
}

static double logistic(double x)
{
    return 1 / (1 + exp(-x));
}

/* The bias at which the mean probability of the margins is POSITIVES. */
static double find_bias(const double *margins, size_t n)
{
    double low = -1000, high = 1000;
    for (int step = 0; step < 50; step++) {
        double middle = (low + high) / 2, sum = 0;
        for (size_t i = 0; i < n; i++) sum += logistic(margins[i] + middle);
        if (sum < POSITIVES * (double)n) low = middle;
        else high = middle;
    }
    return low;
}

static int calibrate(struct generator *g)
{
    double *margins;
    TR_TRY(TR_NEW(&margins, PILOT_ROWS));
    for (size_t i = 0; i < PILOT_ROWS; i++) {
        struct tr_rng rng;
        tr_rng_seed(&rng, g->options.seed, i, PILOT);
        draw_entries(g, &rng);
        margins[i] = margin(g);
    }
    g->bias = find_bias(margins, PILOT_ROWS);
    free(margins);
    return TR_OK;
}

static bool draw_label(const struct generator *g, struct tr_rng *rng)
{
    bool positive = tr_rng_uniform(rng) < logistic(margin(g) + g->bias);
    bool flipped = tr_rng_uniform(rng) < g->options.noise;
    return positive != flipped;
}

/* ---- text ---- */

static char *print_whole(char *p, uint32_t number)
{
    char digits[10];
    size_t n = 0;
    do digits[n++] = (char)('0' + number % 10);
    while (number /= 10);
    while (n > 0) *p++ = digits[--n];
    return p;
}

static char *print_value(char *p, uint32_t value)
{
    if (value == VALUE_UNIT) {
        *p++ = '1';
        return p;
    }
    memcpy(p, "0.", 2);
    for (int i = 5; i >= 2; i--, value /= 10) p[i] = (char)('0' + value % 10);
    return p + 6;
}

static char *print_row(const struct generator *g, bool positive, char *p)
{
    memcpy(p, positive ? "+1" : "-1", 2);
    p += 2;
    for (uint32_t i = 0; i < g->options.nonzeros; i++) {
        *p++ = ' ';
        p = print_whole(p, g->entries[i].feature);
        *p++ = ':';
        p = print_value(p, g->entries[i].value);
    }
    *p++ = '\n';
    return p;
}

static int write_failed(void)
{
    return tr_fail(TR_ERR_IO, "writing generated rows: %s", strerror(errno));
}

static int write_rows(struct generator *g, char *text, size_t row_bytes, FILE *out)
{
    char *p = text;
    for (uint64_t i = 0; i < g->options.rows; i++) {
        struct tr_rng rng;
        tr_rng_seed(&rng, g->options.seed, g->options.first_row + i, ROWS);
        draw_entries(g, &rng);
        p = print_row(g, draw_label(g, &rng), p);
        size_t n = (size_t)(p - text);
        if (n + row_bytes <= TEXT_BYTES && i + 1 < g->options.rows) continue;
        if (fwrite(text, 1, n, out) != n) return write_failed();
        p = text;
    }
    return fflush(out) == 0 && !ferror(out) ? TR_OK : write_failed();
}

/* ---- all of it ---- */

static int check_options(const struct tr_generate_options *o)
{
    if (o->features == 0 || o->features > UINT32_MAX - 1)
        return tr_fail(TR_ERR_CONFIG, "features: %u, expected 1 to 4294967294", (unsigned)o->features);
    if (o->nonzeros == 0 || o->nonzeros > o->features)
        return tr_fail(TR_ERR_CONFIG, "nonzeros: %u, expected 1 to %u, the number of features",
                       (unsigned)o->nonzeros, (unsigned)o->features);
    if (!(o->power >= 0 && o->power <= 10))
        return tr_fail(TR_ERR_CONFIG, "power: %g, expected 0 to 10", o->power);
    if (!(o->noise >= 0 && o->noise <= 1))
        return tr_fail(TR_ERR_CONFIG, "noise: %g, expected 0 to 1", o->noise);
    return TR_OK;
}

static int prepare(struct generator *g, const struct tr_generate_options *options)
{
    double end = (double)options->features + 1;
    *g =
        (struct generator){.options = *options, .weight_seed = tr_mix(options->seed), .slots = 16, .bits = 1};
    g->exponent = fabs(1 - options->power) < 1e-9 ? 0 : 1 - options->power;
    g->span = g->exponent == 0 ? log(end) : pow(end, g->exponent) - 1;
    while (((uint64_t)1 << g->bits) < options->features) g->bits++;
    while (g->slots < 2 * (size_t)options->nonzeros) g->slots *= 2;
    TR_TRY(TR_NEW(&g->entries, options->nonzeros));
    TR_TRY(TR_NEW(&g->taken, g->slots));
    return calibrate(g);
}

int tr_generate_ctr(const struct tr_generate_options *options, FILE *out)
{
    struct generator g = {0};
    char *text = NULL;
    TR_TRY(check_options(options));
    size_t row_bytes = 4 + (size_t)options->nonzeros * PAIR_BYTES;
    int result = prepare(&g, options);
    if (result == TR_OK) result = TR_NEW(&text, tr_max_size(TEXT_BYTES, row_bytes));
    if (result == TR_OK) result = write_rows(&g, text, row_bytes, out);
    free(text);
    free(g.entries);
    free(g.taken);
    return result;
}
