/* What rows weigh, and which of them a tree is grown on. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../labels.h"
#include "trees.h"

/* ---- weights ---- */

/* By model.class_weights, into `of` each of the labels. */
static int weigh_labels(const struct tr_trees *m, double *of)
{
    size_t labels = (size_t)m->labels;
    double *count;
    TR_TRY(TR_NEW(&count, labels));
    for (size_t i = 0; i < m->train->rows.n; i++) count[tr_trees_class_of(m, m->label[i])] += 1;
    int status = tr_all_reduce(m->tr, TR_SET_ALL, TR_SUM, TR_F64, count, labels);
    if (status == TR_OK)
        status = tr_class_weights_find(m->job, m->o->class_weights, m->label_name, count, labels, of);
    free(count);
    return status;
}

static int fill(struct tr_trees *m, const double *of)
{
    const tr_batch *rows = &m->train->rows;
    double most = 0;
    TR_TRY(TR_NEW(&m->weight, rows->n));
    for (size_t i = 0; i < rows->n; i++) {
        m->weight[i] = rows->weight ? rows->weight[i] : 1;
        if (of) m->weight[i] *= (float)of[tr_trees_class_of(m, m->label[i])];
        most = fmax(most, (double)m->weight[i]);
    }
    TR_TRY(tr_all_reduce(m->tr, TR_SET_ALL, TR_MAX, TR_F64, &most, 1));
    const char *key = *m->o->class_weights ? "model.class_weights" : "data.weight";
    if (!isfinite(most))
        return tr_fail(TR_ERR_CONFIG, "%s: %s gives a row a weight above 3e38", tr_job_where(m->job, key),
                       key);
    if (!(most > 0))
        return tr_fail(TR_ERR_CONFIG, "%s: %s leaves no row a weight above 0", tr_job_where(m->job, key),
                       key);
    return TR_OK;
}

int tr_trees_weigh(struct tr_trees *m)
{
    double *of = NULL;
    bool by_class = *m->o->class_weights;
    if (!by_class && !m->train->weighted) return TR_OK;
    int status = by_class ? TR_NEW(&of, (size_t)m->labels) : TR_OK;
    if (status == TR_OK && by_class) status = weigh_labels(m, of);
    if (status == TR_OK) status = fill(m, of);
    free(of);
    return status;
}

/* ---- rows of a tree ---- */

static inline bool is_drawn(const struct tr_trees *m, uint64_t salt, size_t i)
{
    return (double)(tr_mix(salt ^ m->number[i]) >> 11) < m->o->rows * 0x1p53;
}

/* Of all rows' gradients. */
static int find_sizes(struct tr_trees *m)
{
    float h[TR_GRADIENTS];
    if (!m->scratch) TR_TRY(TR_NEW(&m->scratch, m->rows.n));
    memset(m->drawn, 1, m->rows.n);
    m->tree.largest = 0;
    for (size_t i = 0, n; i < m->rows.n; i += n) {
        n = tr_min_size(TR_GRADIENTS, m->rows.n - i);
        tr_gradients_of(m, NULL, i, n, m->scratch + i, h);
        for (size_t k = i; k < i + n; k++) m->scratch[k] = fabsf(m->scratch[k]);
    }
    return TR_OK;
}

/* Gradient-based one-side sampling (Ke et al., LightGBM, NIPS 2017): rows with the largest gradients are in any case, others by
 * chance, and count so much more. */
int tr_draw_rows(struct tr_trees *m)
{
    uint64_t salt = tr_mix(tr_mix(m->seed + 1) ^ m->tree.round);
    size_t n = m->rows.n;
    struct tr_row_set own = {NULL, m->own_rows};
    if (m->o->rows >= 1) return TR_OK;
    if (!m->drawn) TR_TRY(TR_NEW(&m->drawn, n));
    if (m->o->top > 0) {
        TR_TRY(find_sizes(m));
        TR_TRY(
            tr_quantiles(m->tr, &own, 1, m->scratch + m->own_first, NULL, 1 - m->o->top, &m->tree.largest));
    }
    for (size_t i = 0; i < n; i++)
        m->drawn[i] = is_drawn(m, salt, i) || (m->o->top > 0 && m->scratch[i] > m->tree.largest);
    return TR_OK;
}
