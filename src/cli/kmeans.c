#define _GNU_SOURCE
#include "cli/kinds.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "cli/printout.h"
#include "job/job.h"
#include "trireme/records.h"
#include "model/kmeans/file.h"

enum { DENSE_COLUMNS = 4096 }; /* up to which rows are taken as dense ones */

/* Kinds of labels that are compared with centres, at most: more are no classes. */
enum { MOST_KINDS = 1000 };

/* ================ rows with their centres ================ */

typedef int centre_fn(void *state, uint32_t centre, double distance, float label);

/* Hands each row on with its centre and the squared distance from it. */
struct collector {
    struct tr_kmeans_model model;
    struct tr_centres centres;
    uint64_t rows, unknown;
    centre_fn *each;
    void *state;
};

static void ignore_change(void *who, size_t row, uint32_t from, uint32_t to)
{
    (void)who;
    (void)row;
    (void)from;
    (void)to;
}

static int open_collector(const char *path, struct collector *c)
{
    TR_TRY(tr_kmeans_model_read(path, &c->model));
    size_t k = (size_t)c->model.clusters, columns = (size_t)c->model.columns;
    bool sparse = columns > DENSE_COLUMNS;
    TR_TRY(tr_centres_open(k, columns, sparse, &c->centres));
    for (size_t j = 0; j < k && sparse; j++) {
        c->centres.norm[j] = c->model.norm[j];
        for (size_t p = 0; p < columns; p++)
            c->centres.value[p * c->centres.width + j] = c->model.centre[j * columns + p];
    }
    if (!sparse) memcpy(c->centres.value, c->model.centre, k * columns * sizeof(float));
    return tr_centres_ready(&c->centres);
}

static void close_collector(struct collector *c)
{
    tr_kmeans_model_free(&c->model);
    tr_centres_close(&c->centres);
}

static int take_rows(void *state, const tr_records *records)
{
    struct collector *c = state;
    const tr_batch *rows = &records->rows;
    struct tr_assigned to;
    int status = tr_assigned_open(&c->centres, rows, false, &to);
    if (status == TR_OK) tr_assign(&c->centres, rows, 0, rows->n, &to, ignore_change, NULL);
    for (size_t i = 0; i < rows->n && status == TR_OK; i++)
        status = c->each(c->state, to.label[i], tr_distance(&c->centres, rows, i, to.label[i]),
                         rows->label ? rows->label[i] : NAN);
    tr_assigned_close(&to);
    c->rows += rows->n;
    c->unknown += records->unknown;
    return status;
}

/* What the job of the model says of its data, and the command. */
static int find_manner(const struct collector *c, const struct tr_options *o, tr_read_options *m)
{
    *m = (tr_read_options){.form = c->model.columns > DENSE_COLUMNS ? TR_ROWS_SPARSE : TR_ROWS_DENSE,
                           .columns = c->model.columns,
                           .first_index = (uint32_t)c->model.first_index};
    if (c->model.job) {
        tr_job *job;
        TR_TRY(tr_job_parse_written(c->model.job, o->word[0], 0, NULL, &job));
        m->format = (enum tr_format)job->data.format;
        m->label = job->data.label;
        m->header = job->data.header;
        tr_job_free(job);
    }
    if (tr_given(o, TR_OPTION_FORMAT)) {
        bool csv = strcmp(o->format, "csv") == 0;
        if (!csv && strcmp(o->format, "libsvm") != 0)
            return tr_fail(TR_ERR_USAGE, "%s: unexpected --format %s, expected libsvm or csv for clusters",
                           o->command, o->format);
        m->format = csv ? TR_FORMAT_CSV : TR_FORMAT_LIBSVM;
    }
    return TR_OK;
}

static int read_rows(struct collector *c, const struct tr_options *o)
{
    tr_read_options manner;
    TR_TRY(find_manner(c, o, &manner));
    return tr_read_rows(o->word + 1, o->words - 1, &manner, take_rows, c);
}

/* ================ predict ================ */

struct prediction {
    struct tr_printout output;
    bool distance;
};

static int print_row(void *state, uint32_t centre, double distance, float label)
{
    struct prediction *p = state;
    (void)label;
    int done = p->distance ? fprintf(p->output.file, "%u %.9g\n", centre, sqrt(distance))
                           : fprintf(p->output.file, "%u\n", centre);
    return done < 0 ? tr_printout_failed(&p->output) : TR_OK;
}

static int predict(const struct tr_options *o)
{
    struct prediction p = {.distance = tr_given(o, TR_OPTION_DISTANCE)};
    struct collector c = {.each = print_row, .state = &p};
    int status = open_collector(o->word[0], &c);
    if (status == TR_OK) status = tr_printout_open(o->output, &p.output);
    if (status == TR_OK) status = tr_printout_close(&p.output, read_rows(&c, o));
    if (status == TR_OK) tr_note_unknown("columns", c.unknown);
    close_collector(&c);
    return status;
}

/* ================ evaluate ================ */

struct pair {
    float label;
    uint32_t centre;
};

struct evaluation {
    uint64_t rows;
    double inertia, distance; /* Σ of squares, and of distances */
    bool labelled;            /* all rows are */
    struct pair *pair;
    size_t room;
};

/* How well centres and labels tell the same; NaN where rows have none, all the same, or too many. */
struct agreement {
    size_t kinds;
    double purity, rand, information;
};

static int add_row(void *state, uint32_t centre, double distance, float label)
{
    struct evaluation *e = state;
    e->inertia += distance;
    e->distance += sqrt(distance);
    e->labelled = e->labelled && !isnan(label);
    if (e->labelled) {
        TR_TRY(TR_GROW(&e->pair, &e->room, e->rows + 1));
        e->pair[e->rows] = (struct pair){label, centre};
    }
    e->rows++;
    return TR_OK;
}

static int by_label(const void *a, const void *b)
{
    const struct pair *x = a, *y = b;
    return (x->label > y->label) - (x->label < y->label);
}

static double pairs(double n)
{
    return n * (n - 1) / 2;
}

/* Entropy of parts of n rows, in nats, less that of one part. */
static double entropy(const double *part, size_t parts, double n)
{
    double sum = 0;
    for (size_t i = 0; i < parts; i++)
        if (part[i] > 0) sum -= part[i] / n * log(part[i] / n);
    return sum;
}

/* table: kinds × k counts. Purity; the adjusted Rand index (Hubert and Arabie 1985); and mutual information, relative
 * to the mean of both entropies. */
static void measure(const double *table, const double *of_kind, const double *of_centre, size_t k, double n,
                    struct agreement *a)
{
    double pure = 0, same = 0, same_kind = 0, same_centre = 0;
    for (size_t j = 0; j < k; j++) {
        double most = 0;
        for (size_t i = 0; i < a->kinds; i++) {
            double here = table[i * k + j];
            most = fmax(most, here);
            same += pairs(here);
        }
        pure += most;
        same_centre += pairs(of_centre[j]);
    }
    for (size_t i = 0; i < a->kinds; i++) same_kind += pairs(of_kind[i]);
    double expected = same_kind * same_centre / pairs(n), best = (same_kind + same_centre) / 2;
    double kinds = entropy(of_kind, a->kinds, n), centres = entropy(of_centre, k, n);
    double shared = kinds + centres - entropy(table, a->kinds * k, n);
    a->purity = pure / n;
    a->rand = best == expected ? 1 : (same - expected) / (best - expected);
    a->information = kinds + centres > 0 ? 2 * shared / (kinds + centres) : 1;
}

static int compare_labels(struct evaluation *e, size_t k, struct agreement *a)
{
    *a = (struct agreement){.purity = NAN, .rand = NAN, .information = NAN};
    if (!e->labelled || e->rows < 2) return TR_OK;
    qsort(e->pair, (size_t)e->rows, sizeof *e->pair, by_label);
    a->kinds = 1;
    for (size_t i = 1; i < e->rows; i++) a->kinds += e->pair[i].label > e->pair[i - 1].label;
    if (a->kinds < 2 || a->kinds > MOST_KINDS) return TR_OK;
    double *table, *of_kind, *of_centre;
    TR_TRY(TR_NEW(&table, a->kinds * k));
    TR_TRY(TR_NEW(&of_kind, a->kinds));
    TR_TRY(TR_NEW(&of_centre, k));
    for (size_t i = 0, kind = 0; i < e->rows; i++) {
        if (i > 0 && e->pair[i].label > e->pair[i - 1].label) kind++;
        table[kind * k + e->pair[i].centre]++;
        of_kind[kind]++;
        of_centre[e->pair[i].centre]++;
    }
    measure(table, of_kind, of_centre, k, (double)e->rows, a);
    free(table);
    free(of_kind);
    free(of_centre);
    return TR_OK;
}

static void show_lines(const struct evaluation *e, const struct agreement *a)
{
    printf("%-13s  %llu\n", "rows", (unsigned long long)e->rows);
    printf("%-13s  %.9g\n", "inertia", e->inertia);
    printf("%-13s  %.6g\n", "mean_distance", e->distance / (double)e->rows);
    if (isnan(a->purity)) return;
    printf("%-13s  %zu\n", "labels", a->kinds);
    printf("%-13s  %.6f\n%-13s  %.6f\n%-13s  %.6f\n", "purity", a->purity, "ari", a->rand, "nmi",
           a->information);
}

static void show_number(const char *name, double value)
{
    if (isfinite(value)) printf(", \"%s\": %.17g", name, value);
    else printf(", \"%s\": null", name);
}

static void show_json(const struct evaluation *e, const struct agreement *a, uint64_t unknown)
{
    printf("{\"model\": \"kmeans\", \"rows\": %llu", (unsigned long long)e->rows);
    show_number("inertia", e->inertia);
    show_number("mean_distance", e->distance / (double)e->rows);
    show_number("purity", a->purity);
    show_number("ari", a->rand);
    show_number("nmi", a->information);
    printf(", \"unknown_values\": %llu}\n", (unsigned long long)unknown);
}

static int evaluate(const struct tr_options *o)
{
    struct evaluation e = {.labelled = true};
    struct collector c = {.each = add_row, .state = &e};
    struct agreement a;
    int status = open_collector(o->word[0], &c);
    if (status == TR_OK) status = read_rows(&c, o);
    if (status == TR_OK && e.rows == 0)
        status = tr_fail(TR_ERR_NO_INPUT, "%s: there is no record in it", o->word[1]);
    if (status == TR_OK) status = compare_labels(&e, (size_t)c.model.clusters, &a);
    if (status == TR_OK && tr_given(o, TR_OPTION_JSON)) {
        show_json(&e, &a, c.unknown);
    } else if (status == TR_OK) {
        show_lines(&e, &a);
        tr_note_unknown("columns", c.unknown);
    }
    close_collector(&c);
    free(e.pair);
    return status;
}

/* ================ inspect ================ */

static int by_size(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static int show_sizes(const struct tr_kmeans_model *m)
{
    uint64_t *size;
    size_t k = (size_t)m->clusters;
    TR_TRY(TR_NEW(&size, k));
    memcpy(size, m->size, k * sizeof *size);
    qsort(size, k, sizeof *size, by_size);
    tr_show("sizes", "%llu / %llu / %llu (min / median / max)", (unsigned long long)size[0],
            (unsigned long long)size[k / 2], (unsigned long long)size[k - 1]);
    free(size);
    return TR_OK;
}

/* The columns of a centre with the largest numbers, largest first. */
static void show_columns(const struct tr_kmeans_model *m, size_t centre, uint32_t *top, size_t most)
{
    const float *c = m->centre + centre * m->columns;
    size_t n = 0;
    for (uint32_t p = 0; p < m->columns; p++) {
        size_t at = n;
        if (c[p] == 0 || (n == most && (n == 0 || fabsf(c[p]) <= fabsf(c[top[n - 1]])))) continue;
        if (n < most) n++;
        else at--;
        for (; at > 0 && fabsf(c[top[at - 1]]) < fabsf(c[p]); at--) top[at] = top[at - 1];
        top[at] = p;
    }
    for (size_t i = 0; i < n; i++)
        printf("  %llu:%.4g", (unsigned long long)(top[i] + m->first_index), (double)c[top[i]]);
}

static int show_centres(const struct tr_kmeans_model *m, size_t most)
{
    uint32_t *top;
    TR_TRY(TR_NEW(&top, most + 1));
    printf("\n%8s  %12s  %12s%s\n", "centre", "rows", "length", most > 0 ? "  largest columns" : "");
    for (size_t j = 0; j < m->clusters; j++) {
        printf("%8zu  %12llu  %12.6g", j, (unsigned long long)m->size[j], sqrt(m->norm[j]));
        show_columns(m, j, top, most);
        putchar('\n');
    }
    free(top);
    return TR_OK;
}

static int inspect(const char *path, const struct tr_options *o)
{
    struct tr_kmeans_model m;
    TR_TRY(tr_kmeans_model_read(path, &m));
    tr_show("model", "kmeans");
    tr_show("clusters", "%llu", (unsigned long long)m.clusters);
    tr_show("columns", "%llu, the first has index %llu", (unsigned long long)m.columns,
            (unsigned long long)m.first_index);
    tr_show("trained on", "%llu rows", (unsigned long long)m.rows);
    tr_show("inertia", "%.9g", m.inertia);
    int status = show_sizes(&m);
    if (status == TR_OK) status = show_centres(&m, tr_given(o, TR_OPTION_TOP) ? (size_t)o->top : 0);
    if (status == TR_OK && m.job) printf("\njob\n%s", m.job);
    tr_kmeans_model_free(&m);
    return status;
}

const struct tr_command_kind tr_kmeans_commands = {
    .format = TR_KMEANS_FORMAT,
    .what = "clusters",
    .predicts_with = TR_OPTION_DISTANCE | TR_OPTION_FORMAT,
    .evaluates_with = TR_OPTION_FORMAT,
    .inspects_with = TR_OPTION_TOP,
    .predict = predict,
    .evaluate = evaluate,
    .inspect = inspect,
};
