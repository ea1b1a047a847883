#include "data/matrix.h"

#include "base/base.h"

uint64_t tr_matrix_limit(struct tr_matrix *m, uint32_t first_index, uint64_t columns)
{
    uint64_t kept = 0, k = 0, all = tr_matrix_nonzeros(m);
    if (first_index == 0 && columns == 0) return 0;
    if (columns == 0) columns = UINT64_MAX;
    for (size_t i = 0; i < m->rows; i++) {
        for (uint64_t end = m->begin[i + 1]; k < end; k++) {
            uint32_t column = m->column[k] - first_index;
            if (column >= columns) continue;
            m->column[kept] = column;
            if (m->value) m->value[kept] = m->value[k];
            kept++;
        }
        m->begin[i + 1] = kept;
    }
    return all - kept;
}

void tr_lists_fill(const uint64_t *begin, size_t n, const uint32_t *column, const float *value,
                   size_t columns, float *dense)
{
    for (size_t i = 0; i < n; i++, dense += columns)
        for (uint64_t k = begin[i]; k < begin[i + 1]; k++) dense[column[k]] = value ? value[k] : 1;
}

int tr_matrix_to_sparse(const struct tr_matrix *dense, struct tr_matrix *sparse)
{
    size_t n = tr_matrix_nonzeros(dense), kept = 0;
    *sparse = (struct tr_matrix){.rows = dense->rows};
    for (size_t k = 0; k < n; k++) kept += dense->value[k] != 0;
    TR_TRY(TR_NEW(&sparse->begin, dense->rows + 1));
    TR_TRY(TR_NEW(&sparse->column, kept));
    TR_TRY(TR_NEW(&sparse->value, kept));
    kept = 0;
    for (size_t i = 0; i < dense->rows; i++) {
        const float *row = dense->value + i * dense->columns;
        for (size_t c = 0; c < dense->columns; c++) {
            if (row[c] == 0) continue;
            sparse->column[kept] = (uint32_t)c;
            sparse->value[kept++] = row[c];
        }
        sparse->begin[i + 1] = kept;
    }
    return TR_OK;
}

int tr_matrix_make_sparse(struct tr_matrix *m)
{
    struct tr_matrix sparse;
    int status = tr_matrix_to_sparse(m, &sparse);
    if (status != TR_OK) {
        tr_matrix_free(&sparse);
        return status;
    }
    free(m->value);
    sparse.label = m->label;
    *m = sparse;
    return TR_OK;
}

int tr_matrix_make_dense(struct tr_matrix *m, size_t columns)
{
    float *value;
    if (!m->begin) return TR_OK; /* it is, or has no rows */
    TR_TRY(TR_NEW(&value, m->rows * columns));
    tr_lists_fill(m->begin, m->rows, m->column, m->value, columns, value);
    free(m->begin);
    free(m->column);
    free(m->value);
    *m = (struct tr_matrix){.rows = m->rows, .columns = columns, .value = value, .label = m->label};
    return TR_OK;
}
