/* The labels of a classifier: which there are, what they weigh. */
#include <stdlib.h>

#include "../labels.h"
#include "linear.h"

size_t tr_linear_label(const tr_data *train, float label)
{
    return tr_label_place(train->label, train->labels, label);
}

static bool has_weights(const struct tr_linear_options *o)
{
    return *o->class_weights != '\0';
}

/* This worker's part of the rows; of rows that several have, each is in one part. */
static void find_part(const struct tr_linear *m, size_t *first, size_t *end)
{
    tr_worker me = tr_linear_self(m->tr);
    bool mine = m->train->rows.n > 0 && !(m->vertical && me.member > 0);
    *first = mine ? tr_data_part_begin(m->train, &me) : 0;
    *end = mine ? tr_data_part_end(m->train, &me) : 0;
}

/* The weight of the rows with each label. */
static int count_labels(const struct tr_linear *m, double *count)
{
    const tr_data *train = m->train;
    size_t i, end;
    for (find_part(m, &i, &end); i < end; i++)
        count[tr_linear_label(train, train->rows.label[i])] +=
            train->rows.weight ? (double)train->rows.weight[i] : 1;
    return tr_all_reduce(m->tr, TR_SET_ALL, TR_SUM, TR_F64, count, train->labels);
}

static int weigh_classes(struct tr_linear *m, double *count)
{
    TR_TRY(count_labels(m, count));
    return tr_class_weights_find(m->job, m->o->class_weights, m->train->label, count, m->train->labels,
                                 m->class_weight);
}

double tr_linear_weight(const struct tr_linear *m, size_t i)
{
    const tr_batch *rows = &m->train->rows;
    double own = rows->weight ? (double)rows->weight[i] : 1;
    return m->class_weight ? own * m->class_weight[tr_linear_label(m->train, rows->label[i])] : own;
}

/* The number of copies of rows that the weights stand for, which is the n of 1/n too. */
static int sum_weights(struct tr_linear *m)
{
    double sum = 0;
    size_t i, end;
    for (find_part(m, &i, &end); i < end; i++) sum += tr_linear_weight(m, i);
    TR_TRY(tr_all_reduce(m->tr, TR_SET_ALL, TR_SUM, TR_F64, &sum, 1));
    const char *key = m->class_weight ? "model.class_weights" : "data.weight";
    if (!(sum > 0))
        return tr_fail(TR_ERR_CONFIG, "%s: %s leaves no row a weight above 0", tr_job_where(m->job, key),
                       key);
    m->total_weight = sum;
    if (m->o->l2 < 0) m->l2 = 1 / sum;
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
