/* Rows come scaled (data.scale); models are written for the numbers of the files.
 *
 * A model of scaled rows has margins Σ w_j (x_j - shift_j) factor_j + b = Σ (w_j factor_j) x_j + (b - Σ w_j factor_j
 * shift_j). Each worker knows the scale of some columns. For the one rank that writes the model they all put it into a table,
 * bit by bit as integers, which are neither rounded nor filtered on their way.
 */
#include <stdlib.h>
#include <string.h>

#include "linear.h"

/* Numbers in the table of each column: the factor, and the shift if there are any. */
static size_t numbers_of(const struct tr_linear *m)
{
    return m->train->scaling->centred ? 2 : 1;
}

static int prepare(tr_worker *me, void *state)
{
    (void)me;
    struct tr_linear *m = state;
    const tr_scaling *s = m->train->scaling;
    size_t each = numbers_of(m);
    return tr_linear_open_range(m->scale, s->first * each, s->n * each, TR_VIEW_UPDATE, &m->scale_view);
}

static int put(tr_worker *me, void *state)
{
    (void)me;
    struct tr_linear *m = state;
    const tr_scaling *s = m->train->scaling;
    size_t each = numbers_of(m);
    int64_t *to = m->scale_view->delta;
    for (size_t j = 0; j < s->n; j++) {
        memcpy(&to[each * j], &s->factor[j], sizeof *to);
        if (each > 1) memcpy(&to[each * j + 1], &s->shift[j], sizeof *to);
    }
    return tr_view_push(m->scale_view);
}

int tr_linear_open_scale(struct tr_linear *m)
{
    if (!m->train->scaling) return TR_OK;
    TR_TRY(tr_table_create(m->tr, "scale", TR_I64, 1, m->train->columns * numbers_of(m), &m->scale));
    tr_stage stage = {.name = "scale", .state = m, .clocks = 1, .prepare = prepare, .compute = put};
    TR_TRY(tr_run(m->tr, &stage));
    tr_view_close(&m->scale_view);
    return TR_OK;
}

int tr_linear_close_scale(struct tr_linear *m)
{
    return m->scale ? tr_table_drop(&m->scale) : TR_OK;
}

int tr_linear_unscale(struct tr_linear *m, uint64_t first, size_t n, size_t outputs, double *w, double *bias)
{
    size_t each = numbers_of(m);
    double *scale;
    TR_TRY(TR_NEW(&scale, n * each));
    int status = tr_table_read(m->scale, first * each, n * each, scale); /* as it was put there */
    for (size_t j = 0; j < n && status == TR_OK; j++)
        for (size_t o = 0; o < outputs; o++) {
            w[j * outputs + o] *= scale[each * j];
            if (each > 1) bias[o] -= w[j * outputs + o] * scale[each * j + 1];
        }
    free(scale);
    return status;
}
