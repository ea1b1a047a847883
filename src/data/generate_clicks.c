/* Clicks: sparse rows with labels. */
#include "data/generate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "data/draw.h"

#define PILOT_ROWS 2000 /* rows from which the bias is found */
#define POSITIVES  0.3
#define SIGNAL     3.0   /* standard deviation of the margin, roughly */
#define VALUE_UNIT 10000 /* real values are whole multiples of 1/VALUE_UNIT */
#define PAIR_BYTES 19    /* " 4294967294:0.1234" and one to spare */

struct entry {
    uint32_t feature; /* 1 .. features */
    uint32_t value;   /* in units of 1/VALUE_UNIT */
};

struct ctr {
    struct tr_generate_options options;
    struct tr_popular popular;
    struct tr_distinct distinct;
    struct tr_lines lines;
    uint64_t weight_seed;
    double bias;
    struct entry *entries; /* of the row in work */
};

/* ---- features ---- */

/* Small values are the common ones, as in term frequencies. */
static uint32_t draw_value(const struct ctr *g, struct tr_rng *rng)
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

static int draw_entries(struct ctr *g, struct tr_rng *rng)
{
    TR_TRY(tr_distinct_begin(&g->distinct, g->options.nonzeros));
    for (uint32_t i = 0; i < g->options.nonzeros; i++) {
        uint32_t rank = tr_distinct_draw(&g->distinct, &g->popular, rng);
        uint32_t feature = 1 + tr_popular_spread(&g->popular, rank);
        g->entries[i] = (struct entry){feature, draw_value(g, rng)};
    }
    sort_entries(g->entries, g->options.nonzeros);
    return TR_OK;
}

/* ---- labels ---- */

/* Hidden weights come from a hash: uniform, with mean 0 and variance 1. */
static double hidden_weight(const struct ctr *g, uint32_t feature)
{
    double u = (double)(tr_mix(g->weight_seed ^ feature) >> 11) * 0x1p-53;
    return (2 * u - 1) * 1.7320508075688772;
}

static double margin_of(const struct ctr *g)
{
    double sum = 0;
    uint32_t n = g->options.nonzeros;
    bool real = g->options.values == TR_VALUES_REAL; /* else scaled below, whatever the values */
    for (uint32_t i = 0; i < n; i++)
        sum +=
            hidden_weight(g, g->entries[i].feature) * (real ? (double)g->entries[i].value / VALUE_UNIT : 1);
    return SIGNAL * sum / sqrt(n);
}

/* The bias at which the mean probability of the margins is POSITIVES. */
static double find_bias(const double *margins, size_t n)
{
    double low = -1000, high = 1000;
    for (int step = 0; step < 50; step++) {
        double middle = (low + high) / 2, sum = 0;
        for (size_t i = 0; i < n; i++) sum += tr_logistic(margins[i] + middle);
        if (sum < POSITIVES * (double)n) low = middle;
        else high = middle;
    }
    return low;
}

static int calibrate(struct ctr *g)
{
    double *margins;
    TR_TRY(TR_NEW(&margins, PILOT_ROWS));
    for (size_t i = 0; i < PILOT_ROWS; i++) {
        struct tr_rng rng;
        tr_rng_seed(&rng, g->options.seed, i, TR_MADE_PILOT);
        TR_TRY(draw_entries(g, &rng));
        margins[i] = margin_of(g);
    }
    g->bias = find_bias(margins, PILOT_ROWS);
    free(margins);
    return TR_OK;
}

static bool draw_label(const struct ctr *g, struct tr_rng *rng)
{
    bool positive = tr_rng_uniform(rng) < tr_logistic(margin_of(g) + g->bias);
    bool flipped = tr_rng_uniform(rng) < g->options.noise;
    return positive != flipped;
}

/* ---- text ---- */

/* All four decimals, as these files have always had them. */
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

static char *print_row(const struct ctr *g, bool positive, char *p)
{
    memcpy(p, positive ? "+1" : "-1", 2);
    p += 2;
    for (uint32_t i = 0; i < g->options.nonzeros; i++) {
        *p++ = ' ';
        p = tr_print_whole(p, g->entries[i].feature);
        *p++ = ':';
        p = print_value(p, g->entries[i].value);
    }
    *p++ = '\n';
    return p;
}

static int write_rows(struct ctr *g)
{
    for (uint64_t i = 0; i < g->options.rows; i++) {
        struct tr_rng rng;
        tr_rng_seed(&rng, g->options.seed, g->options.first_row + i, TR_MADE_ROWS);
        TR_TRY(draw_entries(g, &rng));
        TR_TRY(tr_lines_add(&g->lines, print_row(g, draw_label(g, &rng), g->lines.at)));
    }
    return TR_OK;
}

static int check_ctr(const struct tr_generate_options *o)
{
    TR_TRY(TR_CHECK_RANGES({"features", o->features, 1, UINT32_MAX - 1}, {"power", o->power, 0, 10},
                           {"noise", o->noise, 0, 1}));
    if (o->nonzeros > 0 && o->nonzeros <= o->features) return TR_OK;
    return tr_fail(TR_ERR_CONFIG, "nonzeros: %u, expected 1 to %u, the number of features",
                   (unsigned)o->nonzeros, (unsigned)o->features);
}

static int prepare_ctr(struct ctr *g, FILE *out)
{
    const struct tr_generate_options *o = &g->options;
    g->weight_seed = tr_mix(o->seed);
    tr_popular_init(&g->popular, o->features, o->power);
    TR_TRY(TR_NEW(&g->entries, o->nonzeros));
    TR_TRY(tr_lines_open(&g->lines, 4 + (size_t)o->nonzeros * PAIR_BYTES, out));
    return calibrate(g);
}

int tr_generate_ctr(const struct tr_generate_options *options, FILE *out)
{
    struct ctr g = {.options = *options};
    TR_TRY(check_ctr(options));
    int status = prepare_ctr(&g, out);
    if (status == TR_OK) status = write_rows(&g);
    status = tr_lines_close(&g.lines, status);
    free(g.distinct.taken);
    free(g.entries);
    return status;
}
