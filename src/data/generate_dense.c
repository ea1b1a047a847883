#include "data/generate.h"

#include <math.h>

#include "base/base.h"
#include "data/generate_parts.h"

#define DECIMALS    4
#define VALUE_UNIT  1e4  /* 10^DECIMALS */
#define FIELD_BYTES 40   /* a column's number, a colon, a value up to 1e15, and some to spare */
#define SIZE_MOST   1e12 /* of spread and noise */

enum stream { DENSE = 5 };

struct generator {
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

static char *print_values(const struct generator *g, char *p, uint64_t cluster, struct tr_rng *rng)
{
    const struct tr_generate_dense *o = &g->options;
    uint64_t base = tr_mix(g->centre_seed ^ cluster), hash = 0;
    for (uint32_t j = 0; j < o->columns; j++) {
        if (j % 4 == 0) hash = tr_mix(base + j / 4);
        double value = o->spread * tr_hidden_piece(hash, j % 4) + o->noise * tr_rng_normal(rng);
        if (o->format == TR_DENSE_LIBSVM) p = print_cluster(p, (uint64_t)j + 1, ':');
        p = tr_print_decimal(p, llround(value * VALUE_UNIT), DECIMALS);
        *p++ = o->format == TR_DENSE_LIBSVM ? ' ' : ',';
    }
    return p;
}

static int write_row(struct generator *g, uint64_t row)
{
    const struct tr_generate_dense *o = &g->options;
    struct tr_rng rng;
    char *p = g->lines.at;
    tr_rng_seed(&rng, o->seed, row, DENSE);
    uint64_t cluster = tr_rng_below(&rng, o->clusters);
    if (o->format == TR_DENSE_LIBSVM) p = print_cluster(p, cluster, ' ');
    else if (o->label == TR_DENSE_FIRST) p = print_cluster(p, cluster, ',');
    p = print_values(g, p, cluster, &rng);
    if (o->format == TR_DENSE_CSV && o->label == TR_DENSE_LAST) p = print_cluster(p, cluster, ',');
    p[-1] = '\n';
    return tr_lines_add(&g->lines, p);
}

static int check_options(const struct tr_generate_dense *o)
{
    if (o->rows == 0) return tr_fail(TR_ERR_CONFIG, "rows: 0, expected at least 1");
    if (o->columns == 0) return tr_fail(TR_ERR_CONFIG, "columns: 0, expected at least 1");
    if (o->clusters == 0) return tr_fail(TR_ERR_CONFIG, "clusters: 0, expected at least 1");
    if (!(o->spread >= 0 && o->spread <= SIZE_MOST))
        return tr_fail(TR_ERR_CONFIG, "spread: %g, expected 0 to %g", o->spread, SIZE_MOST);
    if (!(o->noise >= 0 && o->noise <= SIZE_MOST))
        return tr_fail(TR_ERR_CONFIG, "noise: %g, expected 0 to %g", o->noise, SIZE_MOST);
    if (o->format == TR_DENSE_LIBSVM && o->label != TR_DENSE_NONE)
        return tr_fail(TR_ERR_CONFIG,
                       "label: LIBSVM text always begins with it, expected with format=csv only");
    return TR_OK;
}

int tr_generate_dense(const struct tr_generate_dense *options, FILE *out)
{
    struct generator g = {.options = *options, .centre_seed = tr_mix(options->seed ^ ((uint64_t)1 << 62))};
    TR_TRY(check_options(options));
    TR_TRY(tr_lines_open(&g.lines, ((size_t)options->columns + 2) * FIELD_BYTES, out));
    int status = TR_OK;
    for (uint64_t i = 0; i < options->rows && status == TR_OK; i++)
        status = write_row(&g, options->first_row + i);
    return tr_lines_close(&g.lines, status);
}
