/* Monotone constraints: what is predicted does not fall (up) or rise (down) with a column's numbers. A split by such a column has
 * children in that order, and no leaf below either may pass the middle between them (LightGBM's basic method). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "trees.h"

/* «name: up» */
static int take(struct tr_trees *m, const char *pair)
{
    const char *colon = strrchr(pair, ':'), *word = colon ? colon + 1 + strspn(colon + 1, " ") : "";
    char *name;
    uint64_t column;
    int direction = strcmp(word, "up") == 0 ? 1 : strcmp(word, "down") == 0 ? -1 : 0;
    if (direction == 0)
        return tr_fail(TR_ERR_CONFIG, "%s: model.monotone: «%s»: expected «column: up» or «column: down»",
                       tr_job_where(m->job, "model.monotone"), pair);
    pair += strspn(pair, " ");
    TR_TRY(tr_format(&name, "%.*s", (int)(colon - pair), pair));
    bool found = tr_data_column(m->train, name, &column);
    free(name);
    if (!found)
        return tr_fail(TR_ERR_CONFIG, "%s: model.monotone: «%s»: the training data have no such column",
                       tr_job_where(m->job, "model.monotone"), pair);
    if (m->values && m->values[column] > 0)
        return tr_fail(TR_ERR_CONFIG, "%s: model.monotone: «%s»: a category has no order",
                       tr_job_where(m->job, "model.monotone"), pair);
    m->direction[column] = (int8_t)direction;
    return TR_OK;
}

int tr_trees_find_directions(struct tr_trees *m)
{
    const struct tr_job_list *list = &m->o->monotone;
    double part;
    if (list->n == 0) return TR_OK;
    if (m->outputs > 1 || tr_trees_is_quantile(m, &part))
        return tr_fail(TR_ERR_CONFIG, "%s: model.monotone is not for model.objective %s",
                       tr_job_where(m->job, "model.monotone"), m->loss->objective);
    TR_TRY(TR_NEW(&m->direction, (size_t)m->columns));
    for (size_t i = 0; i < list->n; i++) TR_TRY(take(m, list->item[i]));
    return TR_OK;
}

void tr_scan_bounded(const struct tr_scan *s, int direction, const tr_pair *hist, size_t n, tr_pair before,
                     struct tr_split *best, uint32_t column, bool missing_left)
{
    tr_pair left = before;
    for (size_t t = 0; t < n; t++) {
        left += hist[t];
        float g = (float)tr_pair_gradient(left) * s->gradient,
              h = (float)tr_pair_curvature(left) * s->curvature, other_g = s->all_gradient - g,
              other_h = s->all_curvature - h, value, other;
        if (h < s->least || other_h < s->least) continue;
        float gain = tr_child_gain(s, g, h, s->l2, &value) +
                     tr_child_gain(s, other_g, other_h, s->l2, &other) - s->parent;
        if (!(gain > best->gain) || (float)direction * (other - value) < 0) continue;
        *best = (struct tr_split){
            .gain = gain, .column = column, .bin = (uint32_t)t, .missing_left = missing_left, .left = left};
    }
}
