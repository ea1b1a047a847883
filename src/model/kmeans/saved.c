/* The model file of clusters, and predict, evaluate and inspect.
 *
 * model.h5 has /centres (clusters × columns, f32) and /sizes (rows per centre), and the attributes clusters, columns,
 * first_index (1 for csv), rows and inertia.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kmeans.h"

/* Number of columns up to which rows are read as dense ones. */
enum { DENSE_COLUMNS = 4096 };

/* Maximum number of distinct labels that are compared with centres. */
enum { MOST_KINDS = 1000 };

/* Bytes of columns that are read from the table at a time. */
enum { PIECE_BYTES = 1 << 24 };

/* ================ the file ================ */

/* Reads the number of rows per centre, on the rank that writes. */
static int read_counts(struct tr_kmeans *m)
{
    TR_TRY(TR_NEW(&m->saved_count, m->parts * m->width));
    return tr_table_read(m->sums, m->columns * m->parts, m->parts, m->saved_count);
}

static int fill_sizes(void *model, uint64_t first, size_t n, void *values)
{
    struct tr_kmeans *m = model;
    uint64_t *size = values;
    if (!m->saved_count) TR_TRY(read_counts(m));
    for (size_t j = 0; j < n; j++) size[j] = (uint64_t)m->saved_count[first + j];
    return TR_OK;
}

/* Writes the initial position of a centre that has no rows. */
static void copy_start(const struct tr_kmeans *m, size_t centre, float *to)
{
    const tr_batch *start = &m->start.rows;
    if (start->dense) memcpy(to, start->dense + centre * m->columns, (size_t)m->columns * sizeof *to);
    else
        for (uint64_t i = start->begin[centre]; i < start->begin[centre + 1]; i++)
            to[start->column[i]] = start->value[i];
}

/* Writes the centres first .. first + n - 1. Each call reads all columns of the table once. */
static int fill_centres(void *model, uint64_t first, size_t n, void *values)
{
    struct tr_kmeans *m = model;
    const double *count = m->saved_count;
    size_t row = m->parts * m->width, columns = (size_t)m->columns, last = (size_t)first + n;
    size_t piece = tr_min_size(columns, tr_max_size(1, PIECE_BYTES / (row * sizeof(double))));
    float *centre = values;
    double *sum;
    TR_TRY(TR_NEW(&sum, piece * row));
    memset(centre, 0, n * columns * sizeof *centre);
    for (size_t p = 0; p < columns; p += piece) {
        size_t some = tr_min_size(piece, columns - p);
        int status = tr_table_read(m->sums, p * m->parts, some * m->parts, sum);
        for (size_t j = (size_t)first; j < last && status == TR_OK; j++)
            for (size_t i = 0; i < some && count[j] > 0; i++)
                centre[(j - (size_t)first) * columns + p + i] = (float)(sum[i * row + j] / count[j]);
        if (status != TR_OK) {
            free(sum);
            return status;
        }
    }
    free(sum);
    for (size_t j = (size_t)first; j < last; j++)
        if (!(count[j] > 0)) copy_start(m, j, centre + (j - (size_t)first) * columns);
    return TR_OK;
}

static int check_shape(const struct tr_kmeans *m)
{
    if (m->clusters > 0 && m->clusters < UINT32_MAX && m->columns > 0 && m->columns <= UINT32_MAX)
        return TR_OK;
    return tr_fail(TR_ERR_DATA, "model.h5: %llu clusters of %llu columns: expected some of each",
                   (unsigned long long)m->clusters, (unsigned long long)m->columns);
}

int tr_kmeans_fields(void *model, tr_fields *f)
{
    struct tr_kmeans *m = model;
    static char name[] = "kmeans";
    char *type = name;
    m->objective = m->last.objective;
    if (!tr_fields_read(f)) TR_TRY(tr_model_tell(m->tr, 1, &m->objective));
    TR_TRY(tr_field_text(f, "model", &type));
    if (type != name) free(type);
    TR_TRY(tr_field_count(f, "clusters", &m->clusters));
    TR_TRY(tr_field_count(f, "columns", &m->columns));
    TR_TRY(tr_field_count(f, "first_index", &m->first_index));
    TR_TRY(tr_field_count(f, "rows", &m->total_rows));
    TR_TRY(tr_field_real(f, "inertia", &m->objective));
    TR_TRY(check_shape(m));
    TR_TRY(tr_field_filled(f, "sizes", TR_FIELD_U64, m->clusters, 0,
                           m->batches ? "rows per centre, over all passes" : "rows per centre", fill_sizes,
                           &m->size));
    return tr_field_filled(f, "centres", TR_FIELD_F32, m->clusters, m->columns,
                           "a row per centre, a column per feature", fill_centres, &m->centre);
}

/* ================ rows with their centres ================ */

struct pair {
    float label;
    uint32_t centre;
};

struct tr_kmeans_evaluation {
    uint64_t rows;
    double inertia, distance; /* sums of squared distances, and of distances */
    bool labelled;            /* all rows have a label */
    struct pair *pair;
    size_t capacity;
};

static int open_centres(struct tr_kmeans *m)
{
    struct tr_centres *c = &m->asked;
    size_t k = (size_t)m->clusters, columns = (size_t)m->columns;
    bool sparse = columns > DENSE_COLUMNS;
    TR_TRY(tr_centres_open(k, columns, sparse, c));
    for (size_t j = 0; j < k && sparse; j++)
        for (size_t p = 0; p < columns; p++) {
            double v = (double)m->centre[j * columns + p];
            c->norm[j] += v * v;
            c->value[p * c->width + j] = m->centre[j * columns + p];
        }
    if (!sparse) memcpy(c->value, m->centre, k * columns * sizeof(float));
    return tr_centres_ready(c);
}

static bool wants_distance(const tr_query *q)
{
    return tr_query_command(q) == TR_EVALUATE || tr_query_given(q, "--distance");
}

int tr_kmeans_ready(void *model, tr_query *q)
{
    struct tr_kmeans *m = model;
    TR_TRY(open_centres(m));
    TR_TRY(TR_NEW(&m->evaluation, 1));
    m->evaluation->labelled = true;
    tr_query_rows(q, m->asked.sparse ? TR_ROWS_SPARSE : TR_ROWS_DENSE, m->columns, m->first_index);
    TR_TRY(tr_query_output(q, "centre", 0));
    return wants_distance(q) ? tr_query_output(q, "distance", 9) : TR_OK;
}

int tr_kmeans_predict(void *model, tr_query *q, const tr_records *records, double *out)
{
    struct tr_kmeans *m = model;
    const tr_batch *rows = &records->rows;
    struct tr_assigned to;
    bool distance = wants_distance(q);
    int status = tr_assigned_open(&m->asked, rows, false, &to);
    if (status == TR_OK) tr_assign(&m->asked, rows, 0, rows->n, &to, NULL, NULL);
    for (size_t i = 0; i < rows->n && status == TR_OK; i++) {
        *out++ = to.label[i];
        if (distance) *out++ = sqrt(tr_distance(&m->asked, rows, i, to.label[i]));
    }
    tr_assigned_close(&to);
    return status;
}

/* ================ evaluate ================ */

/* Agreement of centres and labels; NaN if rows have no labels, one label, or too many. */
struct agreement {
    size_t kinds;
    double purity, rand, information;
};

int tr_kmeans_evaluate(void *model, tr_query *q, const tr_records *records, const double *out)
{
    struct tr_kmeans_evaluation *e = ((struct tr_kmeans *)model)->evaluation;
    const float *label = records->rows.label;
    (void)q;
    for (size_t i = 0; i < records->rows.n; i++, e->rows++, out += 2) {
        e->inertia += out[1] * out[1];
        e->distance += out[1];
        e->labelled = e->labelled && label && !isnan(label[i]);
        if (!e->labelled) continue;
        TR_TRY(TR_GROW(&e->pair, &e->capacity, e->rows + 1));
        e->pair[e->rows] = (struct pair){label[i], (uint32_t)out[0]};
    }
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

/* Entropy of a partition of n rows, in nats. */
static double entropy(const double *part, size_t parts, double n)
{
    double sum = 0;
    for (size_t i = 0; i < parts; i++)
        if (part[i] > 0) sum -= part[i] / n * log(part[i] / n);
    return sum;
}

/* Computes purity, the adjusted Rand index (Hubert and Arabie 1985) and the mutual information relative to the mean of
 * both entropies. table: kinds × k counts. */
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

static int compare_labels(struct tr_kmeans_evaluation *e, size_t k, struct agreement *a)
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

int tr_kmeans_figures(void *model, tr_query *q, uint64_t rows)
{
    struct tr_kmeans *m = model;
    struct tr_kmeans_evaluation *e = m->evaluation;
    struct agreement a;
    TR_TRY(compare_labels(e, (size_t)m->clusters, &a));
    double mean = e->distance / (double)rows;
    TR_TRY(tr_figure(q, "rows", (double)rows, "%llu", (unsigned long long)rows));
    TR_TRY(tr_figure(q, "inertia", e->inertia, "%.9g", e->inertia));
    TR_TRY(tr_figure(q, "mean_distance", mean, "%.6g", mean));
    bool compared = !isnan(a.purity);
    if (compared) TR_TRY(tr_figure(q, "labels", (double)a.kinds, "%zu", a.kinds));
    TR_TRY(tr_figure(q, "purity", a.purity, compared ? "%.6f" : NULL, a.purity));
    TR_TRY(tr_figure(q, "ari", a.rand, compared ? "%.6f" : NULL, a.rand));
    return tr_figure(q, "nmi", a.information, compared ? "%.6f" : NULL, a.information);
}

/* ================ inspect ================ */

static int by_size(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static int show_sizes(const struct tr_kmeans *m, tr_query *q)
{
    uint64_t *size;
    size_t k = (size_t)m->clusters;
    TR_TRY(TR_NEW(&size, k));
    memcpy(size, m->size, k * sizeof *size);
    qsort(size, k, sizeof *size, by_size);
    tr_line(q, "sizes", "%llu / %llu / %llu (min / median / max)", (unsigned long long)size[0],
            (unsigned long long)size[k / 2], (unsigned long long)size[k - 1]);
    free(size);
    return TR_OK;
}

/* Prints the columns of a centre with the largest absolute values, in descending order. top: scratch memory. */
static int show_columns(const struct tr_kmeans *m, tr_query *q, size_t centre, uint32_t *top, size_t most)
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
    for (size_t i = 0; i < n; i++) {
        char name[TR_LABEL_TEXT];
        tr_query_key_text(q, top[i], m->first_index, name);
        TR_TRY(tr_print(q, "  %s:%.4g", name, (double)c[top[i]]));
    }
    return tr_print(q, "\n");
}

static int show_centres(const struct tr_kmeans *m, tr_query *q, size_t most)
{
    uint32_t *top;
    TR_TRY(TR_NEW(&top, most + 1));
    int status =
        tr_print(q, "\n%8s  %12s  %12s%s\n", "centre", "rows", "length", most > 0 ? "  largest columns" : "");
    for (size_t j = 0; j < m->clusters && status == TR_OK; j++) {
        double square = 0;
        for (size_t p = 0; p < m->columns; p++) {
            double c = (double)m->centre[j * m->columns + p];
            square += c * c;
        }
        status = tr_print(q, "%8zu  %12llu  %12.6g", j, (unsigned long long)m->size[j], sqrt(square));
        if (status == TR_OK) status = show_columns(m, q, j, top, most);
    }
    free(top);
    return status;
}

int tr_kmeans_inspect(void *model, tr_query *q)
{
    const struct tr_kmeans *m = model;
    tr_line(q, "clusters", "%llu", (unsigned long long)m->clusters);
    tr_line(q, "columns", "%llu, the first has index %llu", (unsigned long long)m->columns,
            (unsigned long long)m->first_index);
    tr_line(q, "trained on", "%llu rows", (unsigned long long)m->total_rows);
    tr_line(q, "inertia", "%.9g", m->objective);
    TR_TRY(show_sizes(m, q));
    return show_centres(m, q, (size_t)tr_query_number(q, "--top", 0));
}

int tr_kmeans_centres(const void *model, tr_saved_centres *c)
{
    const struct tr_kmeans *m = model;
    *c = (tr_saved_centres){m->clusters, m->columns, m->first_index, NULL};
    TR_TRY(TR_NEW(&c->value, c->n * c->columns));
    memcpy(c->value, m->centre, (size_t)(c->n * c->columns) * sizeof *c->value);
    return TR_OK;
}

void tr_kmeans_saved_close(struct tr_kmeans *m)
{
    if (m->evaluation) free(m->evaluation->pair);
    free(m->evaluation);
    tr_centres_close(&m->asked);
    free(m->centre);
    free(m->size);
    free(m->saved_count);
}
