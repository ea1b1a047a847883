/* The labels of a classifier: which there are, what they weigh. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "linear.h"

/* ---- labels ---- */

size_t tr_linear_label(const tr_data *train, float label)
{
    size_t first = 0, n = train->labels;
    while (n > 0) {
        size_t half = n / 2;
        if (train->label[first + half] < label) first += half + 1, n -= half + 1;
        else n = half;
    }
    return first < train->labels && train->label[first] == label ? first : train->labels;
}

/* ---- weights ---- */

static int bad_weights(const tr_job *job, const char *at)
{
    return tr_fail(
        TR_ERR_CONFIG,
        "%s: model.class_weights, at «%.40s»: expected balanced, or label:weight pairs with blanks "
        "between them, no weight below 0",
        tr_job_where(job, "model.class_weights"), at);
}

/* One «label:weight» of the list; *at moves behind it. */
static int next_pair(const tr_job *job, const char **at, float *label, double *weight)
{
    char *end, *behind;
    *label = strtof(*at, &end);
    if (end == *at || *end != ':' || !isfinite(*label)) return bad_weights(job, *at);
    *weight = strtod(end + 1, &behind);
    if (behind == end + 1 || (*behind && !strchr(" ,", *behind)) || !isfinite(*weight) || *weight < 0)
        return bad_weights(job, *at);
    *at = behind + strspn(behind, " ,");
    return TR_OK;
}

static bool has_weights(const struct tr_linear_options *o)
{
    return *o->class_weights != '\0';
}

static bool is_balanced(const struct tr_linear_options *o)
{
    return strcmp(o->class_weights, "balanced") == 0;
}

int tr_linear_check_weights(const tr_job *job, const struct tr_linear_options *o)
{
    const char *at = o->class_weights;
    float label;
    double weight;
    if (is_balanced(o)) return TR_OK;
    while (*at) TR_TRY(next_pair(job, &at, &label, &weight));
    return TR_OK;
}

/* This worker's part of the rows; of rows that several have, each is in one part. */
static void find_part(const struct tr_linear *m, size_t *first, size_t *end)
{
    tr_worker me = tr_linear_self(m->tr);
    bool mine = m->train->rows.n > 0 && !(m->vertical && me.member > 0);
    *first = mine ? tr_data_part_begin(m->train, &me) : 0;
    *end = mine ? tr_data_part_end(m->train, &me) : 0;
}

/* How many rows have each label. */
static int count_labels(const struct tr_linear *m, double *count)
{
    const tr_data *train = m->train;
    size_t i, end;
    for (find_part(m, &i, &end); i < end; i++) count[tr_linear_label(train, train->rows.label[i])] += 1;
    return tr_all_reduce(m->tr, TR_SET_ALL, TR_SUM, TR_F64, count, train->labels);
}

static int take_list(struct tr_linear *m)
{
    const char *at = m->o->class_weights;
    for (size_t k = 0; k < m->train->labels; k++) m->class_weight[k] = 1;
    while (*at) {
        float label;
        double weight = 0;
        TR_TRY(next_pair(m->job, &at, &label, &weight));
        size_t k = tr_linear_label(m->train, label);
        if (k == m->train->labels)
            return tr_fail(TR_ERR_CONFIG, "%s: model.class_weights has label %.9g, which no row has",
                           tr_job_where(m->job, "model.class_weights"), (double)label);
        m->class_weight[k] = weight;
    }
    return TR_OK;
}

static int weigh_classes(struct tr_linear *m, double *count)
{
    size_t labels = m->train->labels;
    TR_TRY(count_labels(m, count));
    if (!is_balanced(m->o)) return take_list(m);
    for (size_t k = 0; k < labels; k++)
        m->class_weight[k] = (double)m->train->total_rows / ((double)labels * fmax(count[k], 1));
    return TR_OK;
}

double tr_linear_weight(const struct tr_linear *m, size_t i)
{
    const tr_batch *rows = &m->train->rows;
    double own = rows->weight ? (double)rows->weight[i] : 1;
    return m->class_weight ? own * m->class_weight[tr_linear_label(m->train, rows->label[i])] : own;
}

/* As many copies of rows would have it: also what 1/n is. */
static int sum_weights(struct tr_linear *m)
{
    double sums[2] = {0, 0};
    size_t i, end;
    for (find_part(m, &i, &end); i < end; i++) {
        sums[0] += tr_linear_weight(m, i);
        sums[1] += m->train->rows.weight ? (double)m->train->rows.weight[i] : 1;
    }
    TR_TRY(tr_all_reduce(m->tr, TR_SET_ALL, TR_SUM, TR_F64, sums, 2));
    const char *key = m->class_weight ? "model.class_weights" : "data.weight";
    if (!(sums[0] > 0))
        return tr_fail(TR_ERR_CONFIG, "%s: %s leaves no row a weight above 0", tr_job_where(m->job, key),
                       key);
    m->total_weight = sums[0];
    if (m->train->weighted && m->o->l2 < 0) m->l2 = 1 / sums[1];
    return TR_OK;
}

int tr_linear_weigh(struct tr_linear *m)
{
    m->total_weight = (double)m->train->total_rows;
    if (has_weights(m->o)) {
        double *count = NULL;
        int status = TR_NEW(&m->class_weight, m->train->labels);
        if (status == TR_OK) status = TR_NEW(&count, m->train->labels);
        status = tr_agree(m->tr, status);
        if (status == TR_OK) status = tr_agree(m->tr, weigh_classes(m, count));
        free(count);
        TR_TRY(status);
    }
    return has_weights(m->o) || m->train->weighted ? tr_agree(m->tr, sum_weights(m)) : TR_OK;
}
