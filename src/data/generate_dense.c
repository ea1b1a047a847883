/* Dense rows: clusters, and events of particles. */
#include "data/generate.h"

#include <math.h>

#include "data/draw.h"

#define FIELD_BYTES 40 /* a column's number, a colon, a value up to 1e15, and some to spare */

struct clusters {
    struct tr_generate_dense options;
    struct tr_lines lines;
    uint64_t centre_seed;
};

static char *print_cluster(char *p, uint64_t cluster, char separator)
{
    p = tr_print_whole(p, cluster);
    *p++ = separator;
    return p;
}

static char *print_values(const struct clusters *g, char *p, uint64_t cluster, struct tr_rng *rng)
{
    const struct tr_generate_dense *o = &g->options;
    uint64_t base = tr_mix(g->centre_seed ^ cluster), hash = 0;
    for (uint32_t j = 0; j < o->columns; j++) {
        if (j % 4 == 0) hash = tr_mix(base + j / 4);
        double value = o->spread * tr_hidden_piece(hash, j % 4) + o->noise * tr_rng_normal(rng);
        if (o->format == TR_DENSE_LIBSVM) p = print_cluster(p, (uint64_t)j + 1, ':');
        p = tr_print_decimal(p, llround(value * 1e4), 4);
        *p++ = o->format == TR_DENSE_LIBSVM ? ' ' : ',';
    }
    return p;
}

static int write_row(struct clusters *g, uint64_t row)
{
    const struct tr_generate_dense *o = &g->options;
    struct tr_rng rng;
    char *p = g->lines.at;
    tr_rng_seed(&rng, o->seed, row, TR_MADE_DENSE);
    uint64_t cluster = tr_rng_below(&rng, o->clusters);
    if (o->format == TR_DENSE_LIBSVM) p = print_cluster(p, cluster, ' ');
    else if (o->label == TR_DENSE_FIRST) p = print_cluster(p, cluster, ',');
    p = print_values(g, p, cluster, &rng);
    if (o->format == TR_DENSE_CSV && o->label == TR_DENSE_LAST) p = print_cluster(p, cluster, ',');
    p[-1] = '\n';
    return tr_lines_add(&g->lines, p);
}

static int check_dense(const struct tr_generate_dense *o)
{
    TR_TRY(TR_CHECK_RANGES({"rows", (double)o->rows, 1, INFINITY}, {"columns", o->columns, 1, INFINITY},
                           {"clusters", o->clusters, 1, INFINITY}, {"spread", o->spread, 0, 1e12},
                           {"noise", o->noise, 0, 1e12}));
    if (o->format == TR_DENSE_LIBSVM && o->label != TR_DENSE_NONE)
        return tr_fail(TR_ERR_CONFIG,
                       "label: LIBSVM text always begins with it, expected with format=csv only");
    return TR_OK;
}

int tr_generate_dense(const struct tr_generate_dense *options, FILE *out)
{
    struct clusters g = {.options = *options, .centre_seed = tr_mix(options->seed ^ ((uint64_t)1 << 62))};
    TR_TRY(check_dense(options));
    TR_TRY(tr_lines_open(&g.lines, ((size_t)options->columns + 2) * FIELD_BYTES, out));
    int status = TR_OK;
    for (uint64_t i = 0; i < options->rows && status == TR_OK; i++)
        status = write_row(&g, options->first_row + i);
    return tr_lines_close(&g.lines, status);
}

enum { EVENT_NUMBERS = 28, EVENT_TAILS = 8 };

static double event_margin(const double *x)
{
    double step = x[20] > 1 ? x[3] : 0;
    return x[0] * x[1] + sin(2 * x[2]) + 0.7 * step - 0.5 * x[21] + 0.4 * x[4] * x[4] +
           0.3 * x[5] * x[6] * x[7] - 0.2;
}

static int write_event(struct tr_lines *lines, const struct tr_generate_events *o, uint64_t row)
{
    struct tr_rng rng;
    double x[EVENT_NUMBERS];
    char *p = lines->at;
    tr_rng_seed(&rng, o->seed, row, TR_MADE_EVENTS);
    for (int j = 0; j < EVENT_NUMBERS; j++) {
        int tail = j - (EVENT_NUMBERS - EVENT_TAILS);
        x[j] = tr_rng_normal(&rng);
        if (tail >= 0) x[j] = fabs(x[j]) * exp(0.3 * x[tail]);
        p = tr_print_decimal(p, llround(x[j] * 1e4), 4);
        *p++ = ',';
    }
    p = tr_print_whole(p, tr_rng_uniform(&rng) < tr_logistic(event_margin(x)));
    *p++ = '\n';
    return tr_lines_add(lines, p);
}

int tr_generate_events(const struct tr_generate_events *options, FILE *out)
{
    struct tr_lines lines;
    TR_TRY(TR_CHECK_RANGES({"rows", (double)options->rows, 1, INFINITY}));
    TR_TRY(tr_lines_open(&lines, (EVENT_NUMBERS + 1) * FIELD_BYTES, out));
    int status = TR_OK;
    for (uint64_t i = 0; i < options->rows && status == TR_OK; i++)
        status = write_event(&lines, options, options->first_row + i);
    return tr_lines_close(&lines, status);
}
