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

static int fill_sizes(void *model, uint64_t first, size_t n, void *values)
{
    struct tr_kmeans *m = model;
    uint64_t *size = values;
    if (!m->saved_count) {
        TR_TRY(TR_NEW(&m->saved_count, m->parts * m->width));
        TR_TRY(tr_table_read(m->sums, m->columns * m->parts, m->parts, m->saved_count));
    }
    for (size_t j = 0; j < n; j++) size[j] = (uint64_t)m->saved_count[first + j];
    return TR_OK;
}

/* Writes the centres first .. first + n - 1. Each call reads all columns of the table once. */
static int fill_centres(void *model, uint64_t first, size_t n, void *values)
{
    struct tr_kmeans *m = model;
    const double *count = m->saved_count;
    size_t row = m->parts * m->width, columns = (size_t)m->columns, last = (size_t)first + n;
    size_t piece = tr_min_size(columns, tr_max_size(1, PIECE_BYTES / (row * sizeof(double))));
    float *centre = values;
    TR_FREED double *sum = NULL;
    TR_TRY(TR_NEW(&sum, piece * row));
    memset(centre, 0, n * columns * sizeof *centre);
    for (size_t p = 0; p < columns; p += piece) {
        size_t some = tr_min_size(piece, columns - p);
        TR_TRY(tr_table_read(m->sums, p * m->parts, some * m->parts, sum));
        for (size_t j = (size_t)first; j < last; j++)
            for (size_t i = 0; i < some && count[j] > 0; i++)
                centre[(j - (size_t)first) * columns + p + i] = (float)(sum[i * row + j] / count[j]);
    }
    const tr_batch *start = &m->start.rows;
    for (size_t j = (size_t)first; j < last;
         j++, centre += columns) { /* a centre without rows has its initial position */
        if (count[j] > 0) continue;
        if (start->dense) memcpy(centre, start->dense + j * columns, columns * sizeof *centre);
        for (uint64_t i = start->dense ? 0 : start->begin[j]; !start->dense && i < start->begin[j + 1]; i++)
            centre[start->column[i]] = start->value[i];
    }
    return TR_OK;
}

int tr_kmeans_fields(void *model, tr_fields *f)
{
    struct tr_kmeans *m = model;
    static char name[] = "kmeans";
    char *type = name;
    TR_TRY(tr_field_text(f, "model", &type));
    if (type != name) free(type);
    const tr_member numbers[] = {{"clusters", TR_FIELD_U64, .value = &m->clusters},
                                 {"columns", TR_FIELD_U64, .value = &m->columns},
                                 {"first_index", TR_FIELD_U64, .value = &m->first_index},
                                 {"rows", TR_FIELD_U64, .value = &m->total_rows},
                                 {"inertia", TR_FIELD_F64, &m->last.objective, .of_scheduler = true}};
    TR_TRY(tr_field_members(f, numbers, sizeof numbers / sizeof *numbers));
    if (m->clusters == 0 || m->clusters >= UINT32_MAX || m->columns == 0 || m->columns > UINT32_MAX)
        return tr_fail(TR_ERR_DATA, "model.h5: %llu clusters of %llu columns: expected some of each",
                       (unsigned long long)m->clusters, (unsigned long long)m->columns);
    const tr_member arrays[] = {
        {"sizes", TR_FIELD_U64, &m->size, m->batches ? "rows per centre, over all passes" : "rows per centre",
         m->clusters, .fill = fill_sizes},
        {"centres", TR_FIELD_F32, &m->centre, "a row per centre, a column per feature", m->clusters,
         m->columns, .fill = fill_centres}};
    return tr_field_members(f, arrays, sizeof arrays / sizeof *arrays);
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

static bool wants_distance(const tr_query *q)
{
    return tr_query_command(q) == TR_EVALUATE || tr_query_given(q, "--distance");
}

int tr_kmeans_ready(void *model, tr_query *q)
{
    struct tr_kmeans *m = model;
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
    TR_TRY(tr_centres_ready(c));
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

static int kmeans_by_label(const void *a, const void *b)
{
    const struct pair *x = a, *y = b;
    return (x->label > y->label) - (x->label < y->label);
}

static double kmeans_pairs(double n)
{
    return n * (n - 1) / 2;
}

/* Entropy of a partition of n rows, in nats. */
static double kmeans_entropy(const double *part, size_t parts, double n)
{
    double sum = 0;
    for (size_t i = 0; i < parts; i++)
        if (part[i] > 0) sum -= part[i] / n * log(part[i] / n);
    return sum;
}

static int compare_labels(struct tr_kmeans_evaluation *e, size_t k, struct agreement *a)
{
    *a = (struct agreement){.purity = NAN, .rand = NAN, .information = NAN};
    if (!e->labelled || e->rows < 2) return TR_OK;
    qsort(e->pair, (size_t)e->rows, sizeof *e->pair, kmeans_by_label);
    a->kinds = 1;
    for (size_t i = 1; i < e->rows; i++) a->kinds += e->pair[i].label > e->pair[i - 1].label;
    if (a->kinds < 2 || a->kinds > MOST_KINDS) return TR_OK;
    TR_FREED double *of_centre = NULL;
    TR_FREED double *of_kind = NULL;
    TR_FREED double *table = NULL;
    TR_TRY(TR_NEW(&table, a->kinds * k));
    TR_TRY(TR_NEW(&of_kind, a->kinds));
    TR_TRY(TR_NEW(&of_centre, k));
    for (size_t i = 0, kind = 0; i < e->rows; i++) {
        if (i > 0 && e->pair[i].label > e->pair[i - 1].label) kind++;
        table[kind * k + e->pair[i].centre]++;
        of_kind[kind]++;
        of_centre[e->pair[i].centre]++;
    }
    /* purity, the adjusted Rand index (Hubert and Arabie 1985), and mutual information relative to the mean of both entropies */
    double n = (double)e->rows, pure = 0, same = 0, same_kind = 0, same_centre = 0;
    for (size_t j = 0; j < k; j++) {
        double most = 0;
        for (size_t i = 0; i < a->kinds; i++) {
            double here = table[i * k + j];
            most = fmax(most, here);
            same += kmeans_pairs(here);
        }
        pure += most;
        same_centre += kmeans_pairs(of_centre[j]);
    }
    for (size_t i = 0; i < a->kinds; i++) same_kind += kmeans_pairs(of_kind[i]);
    double expected = same_kind * same_centre / kmeans_pairs(n), best = (same_kind + same_centre) / 2;
    double kinds = kmeans_entropy(of_kind, a->kinds, n), centres = kmeans_entropy(of_centre, k, n);
    double shared = kinds + centres - kmeans_entropy(table, a->kinds * k, n);
    a->purity = pure / n;
    a->rand = best == expected ? 1 : (same - expected) / (best - expected);
    a->information = kinds + centres > 0 ? 2 * shared / (kinds + centres) : 1;
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

static int kmeans_by_size(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

int tr_kmeans_inspect(void *model, tr_query *q)
{
    const struct tr_kmeans *m = model;
    tr_line(q, "clusters", "%llu", (unsigned long long)m->clusters);
    tr_line(q, "columns", "%llu, the first has index %llu", (unsigned long long)m->columns,
            (unsigned long long)m->first_index);
    tr_line(q, "trained on", "%llu rows", (unsigned long long)m->total_rows);
    tr_line(q, "inertia", "%.9g", m->last.objective);
    TR_FREED uint64_t *size = NULL;
    size_t k = (size_t)m->clusters;
    TR_TRY(TR_NEW(&size, k));
    memcpy(size, m->size, k * sizeof *size);
    qsort(size, k, sizeof *size, kmeans_by_size);
    tr_line(q, "sizes", "%llu / %llu / %llu (min / median / max)", (unsigned long long)size[0],
            (unsigned long long)size[k / 2], (unsigned long long)size[k - 1]);
    size_t most = (size_t)tr_query_number(q, "--top", 0);
    TR_FREED uint32_t *top = NULL;
    TR_TRY(TR_NEW(&top, most + 1));
    TR_TRY(tr_print(q, "\n%8s  %12s  %12s%s\n", "centre", "rows", "length",
                    most > 0 ? "  largest columns" : ""));
    for (size_t j = 0; j < m->clusters; j++) {
        double square = 0;
        for (size_t p = 0; p < m->columns; p++) {
            double c = (double)m->centre[j * m->columns + p];
            square += c * c;
        }
        TR_TRY(tr_print(q, "%8zu  %12llu  %12.6g", j, (unsigned long long)m->size[j], sqrt(square)));
        /* the columns with the largest absolute values, in descending order */
        const float *c = m->centre + j * m->columns;
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
        TR_TRY(tr_print(q, "\n"));
    }
    return TR_OK;
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
