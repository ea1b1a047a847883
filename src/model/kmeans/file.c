#include "model/kmeans/file.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "store/h5.h"

static int read_head(struct tr_h5_reader *r, struct tr_kmeans_model *m)
{
    TR_TRY(tr_h5_get_count(r, "clusters", &m->clusters));
    TR_TRY(tr_h5_get_count(r, "columns", &m->columns));
    TR_TRY(tr_h5_get_count(r, "first_index", &m->first_index));
    TR_TRY(tr_h5_get_count(r, "rows", &m->rows));
    TR_TRY(tr_h5_get_real(r, "inertia", &m->inertia));
    if (m->clusters > 0 && m->clusters < UINT32_MAX && m->columns > 0 && m->columns <= UINT32_MAX)
        return TR_OK;
    return tr_fail(TR_ERR_DATA, "%s: %llu clusters of %llu columns: expected some of each", tr_h5_path(r),
                   (unsigned long long)m->clusters, (unsigned long long)m->columns);
}

static int read_arrays(struct tr_h5_reader *r, struct tr_kmeans_model *m)
{
    TR_TRY(read_head(r, m));
    TR_TRY(tr_h5_get_job(r, &m->job));
    TR_TRY(tr_h5_get(r, "centres", TR_H5_F32, m->clusters, m->columns, &m->centre));
    TR_TRY(tr_h5_get(r, "sizes", TR_H5_U64, m->clusters, 0, &m->size));
    TR_TRY(TR_NEW(&m->norm, (size_t)m->clusters));
    for (size_t j = 0; j < m->clusters; j++)
        for (size_t p = 0; p < m->columns; p++) {
            double c = (double)m->centre[j * m->columns + p];
            m->norm[j] += c * c;
        }
    return TR_OK;
}

int tr_kmeans_model_read(const char *path, struct tr_kmeans_model *m)
{
    struct tr_h5_reader *r = NULL;
    *m = (struct tr_kmeans_model){0};
    TR_TRY(tr_h5_open(path, TR_KMEANS_FORMAT, TR_KMEANS_VERSION, &r));
    int status = read_arrays(r, m);
    tr_h5_close(&r);
    if (status != TR_OK) tr_kmeans_model_free(m);
    return status;
}

void tr_kmeans_model_free(struct tr_kmeans_model *m)
{
    free(m->job);
    free(m->centre);
    free(m->norm);
    free(m->size);
    *m = (struct tr_kmeans_model){0};
}
