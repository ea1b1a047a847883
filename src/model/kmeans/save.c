#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "store/h5.h"
#include "model/kmeans/file.h"
#include "model/kmeans/kmeans.h"
#include "model/model.h"
#include "table/view.h"

/* Columns that travel at once, and bytes of centres that are put together at once: all columns travel once for each of
 * these bands. */
enum { BAND_BYTES = 1 << 28, PIECE_BYTES = 1 << 24 };

/* All keys of columns first .. first + n - 1, through a view of its own. */
static int pull_columns(const struct tr_kmeans *m, uint64_t first, size_t n, tr_view **view)
{
    tr_key *keys;
    size_t many = n * m->parts;
    TR_TRY(TR_NEW(&keys, many));
    for (size_t i = 0; i < many; i++) keys[i] = first * m->parts + i;
    int status = tr_view_open(m->sums, keys, many, TR_VIEW_READ, view);
    free(keys);
    TR_TRY(status);
    TR_TRY(tr_pull_start(*view, (*view)->value, -1));
    TR_WAIT_UNTIL(m->tr, !tr_pull_busy(*view), "the servers to hand out the centres");
    return TR_OK;
}

static int pull_counts(const struct tr_kmeans *m, double **count)
{
    tr_view *view = NULL;
    TR_TRY(TR_NEW(count, m->parts * m->width));
    int status = pull_columns(m, m->columns, 1, &view);
    if (status == TR_OK) memcpy(*count, view->value, m->parts * m->width * sizeof **count);
    tr_view_close(&view);
    return status;
}

/* A centre that has no rows: where it started. */
static void take_start(const struct tr_kmeans *m, size_t centre, float *to)
{
    const tr_batch *start = &m->start.rows;
    if (start->dense) memcpy(to, start->dense + centre * m->columns, (size_t)m->columns * sizeof *to);
    else
        for (uint64_t i = start->begin[centre]; i < start->begin[centre + 1]; i++)
            to[start->column[i]] = start->value[i];
}

/* Centres first .. last-1, whole. */
static int fill_band(const struct tr_kmeans *m, const double *count, size_t first, size_t last, float *band)
{
    size_t row = m->parts * m->width, columns = (size_t)m->columns;
    size_t piece = tr_max_size(1, PIECE_BYTES / (row * sizeof(double)));
    memset(band, 0, (last - first) * columns * sizeof *band);
    for (size_t p = 0; p < columns; p += piece) {
        tr_view *view = NULL;
        size_t n = tr_min_size(piece, columns - p);
        int status = pull_columns(m, p, n, &view);
        const double *value = status == TR_OK ? view->value : NULL;
        for (size_t j = first; j < last && value; j++)
            for (size_t i = 0; i < n && count[j] > 0; i++)
                band[(j - first) * columns + p + i] = (float)(value[i * row + j] / count[j]);
        tr_view_close(&view);
        TR_TRY(status);
    }
    for (size_t j = first; j < last; j++)
        if (!(count[j] > 0)) take_start(m, j, band + (j - first) * columns);
    return TR_OK;
}

static int write_centres(const struct tr_kmeans *m, const double *count, struct tr_h5_writer *w)
{
    float *band;
    size_t columns = (size_t)m->columns;
    size_t rows = tr_min_size(m->k, tr_max_size(1, BAND_BYTES / (columns * sizeof *band)));
    TR_TRY(TR_NEW(&band, rows * columns));
    int status = tr_h5_begin(w, "centres", TR_H5_F32, m->k, m->columns);
    for (size_t first = 0; first < m->k && status == TR_OK; first += rows) {
        size_t n = tr_min_size(rows, m->k - first);
        status = fill_band(m, count, first, first + n, band);
        if (status == TR_OK) status = tr_h5_append(w, band, n);
    }
    free(band);
    TR_TRY(status);
    return tr_h5_describe(w, "meaning", "a row is a centre, a column a feature of the data");
}

static int write_sizes(const struct tr_kmeans *m, const double *count, struct tr_h5_writer *w)
{
    uint64_t *size;
    TR_TRY(TR_NEW(&size, m->k));
    for (size_t j = 0; j < m->k; j++) size[j] = (uint64_t)count[j];
    int status = tr_h5_put(w, "sizes", TR_H5_U64, m->k, 0, size);
    free(size);
    TR_TRY(status);
    return tr_h5_describe(w, "meaning",
                          m->batches ? "rows that each centre is the mean of, over all passes"
                                     : "rows that each centre is the mean of");
}

static int write_head(const struct tr_kmeans *m, double inertia, struct tr_h5_writer *w)
{
    const tr_data *data = m->train.data;
    TR_TRY(tr_h5_put_text(w, "model", "kmeans"));
    TR_TRY(tr_h5_put_count(w, "clusters", m->k));
    TR_TRY(tr_h5_put_count(w, "columns", m->columns));
    TR_TRY(tr_h5_put_count(w, "first_index", m->counted_from));
    TR_TRY(tr_h5_put_count(w, "rows", data->total_rows));
    return tr_h5_put_real(w, "inertia", inertia);
}

static int write_model(const struct tr_kmeans *m, double inertia, const char *folder)
{
    struct tr_h5_writer *w = NULL;
    char *job = NULL;
    double *count = NULL;
    int status = tr_job_as_text(m->job, &job);
    if (status == TR_OK) status = pull_counts(m, &count);
    if (status == TR_OK) status = tr_h5_create(folder, TR_KMEANS_FORMAT, TR_KMEANS_VERSION, job, NULL, &w);
    if (status == TR_OK) status = write_head(m, inertia, w);
    if (status == TR_OK) status = write_sizes(m, count, w);
    if (status == TR_OK) status = write_centres(m, count, w);
    if (status == TR_OK) status = tr_h5_finish(&w);
    tr_h5_abandon(&w);
    free(job);
    free(count);
    return status;
}

int tr_kmeans_save(struct tr_kmeans *m, const char *folder)
{
    tr_context *tr = m->tr;
    double inertia = m->last.objective;
    TR_TRY(tr_model_tell_objective(tr, &inertia));
    int status = TR_OK;
    if (tr->rank == tr->layout.server_rank[0]) status = write_model(m, inertia, folder);
    return tr_agree(tr, status);
}
