/* model.init: the trees of another model come first, and new ones learn what they leave. Rank 0 reads it for all. */
#include <stdlib.h>
#include <string.h>

#include "trees.h"

static int unfit(const struct tr_trees *m, const char *what)
{
    return tr_fail(TR_ERR_DATA, "%s: model.init %s: %s", tr_job_where(m->job, "model.init"), m->o->init,
                   what);
}

static int check_fit(const struct tr_trees *m, const struct tr_trees *from)
{
    if (from->columns != m->columns || from->first_index != m->first_index)
        return unfit(m, "it has other columns than the training data");
    if (from->loss != m->loss || from->outputs != m->outputs)
        return unfit(m, "it has another model.objective");
    if (from->labels != m->labels ||
        (m->labels > 0 &&
         memcmp(from->label_name, m->label_name, (size_t)m->labels * sizeof *m->label_name) != 0))
        return unfit(m, "its labels are not those of the training data");
    return TR_OK;
}

/* Values that go left at a node have other numbers here. */
static int renumber(const struct tr_forest *from, const tr_saved_values *values, struct tr_node *node,
                    struct tr_forest *to)
{
    const struct tr_node old = *node;
    uint32_t *number = NULL;
    size_t n = 0, capacity = 0;
    int status = TR_OK;
    for (uint32_t value = 0; value < old.flags >> TR_NODE_SET_WORDS << 5 && status == TR_OK; value++) {
        if (!tr_node_has(from, &old, value)) continue;
        status = TR_GROW(&number, &capacity, n + 1);
        if (status == TR_OK) status = tr_saved_value_number(values, old.feature, value, &number[n++]);
    }
    if (status == TR_OK) status = tr_forest_add_set(to, number, n, node);
    free(number);
    return status;
}

static int take_trees(struct tr_trees *m, const struct tr_trees *from, const tr_saved_values *values)
{
    struct tr_forest *f = &m->forest;
    TR_TRY(check_fit(m, from));
    for (size_t t = 0; t < from->forest.trees; t++) {
        size_t first = (size_t)from->forest.begin[t];
        TR_TRY(tr_forest_add(f, from->forest.node + first, from->forest.note + first,
                             (size_t)from->forest.begin[t + 1] - first));
    }
    for (size_t i = 0; i < f->nodes; i++)
        if (f->node[i].flags & TR_NODE_CATEGORY) TR_TRY(renumber(&from->forest, values, &f->node[i], f));
    memcpy(m->base, from->base, (size_t)m->outputs * sizeof *m->base);
    return TR_OK;
}

static int spread(struct tr_trees *m)
{
    struct tr_forest *f = &m->forest;
    uint64_t size[3] = {f->trees, f->nodes, f->set_words};
    TR_TRY(tr_broadcast(m->tr, TR_SET_ALL, 0, size, sizeof size));
    f->trees = (size_t)size[0];
    f->nodes = (size_t)size[1];
    f->set_words = (size_t)size[2];
    int status = TR_GROW(&f->begin, &f->begin_capacity, f->trees + 1);
    if (status == TR_OK) status = TR_GROW(&f->node, &f->node_capacity, f->nodes);
    if (status == TR_OK) status = TR_GROW(&f->note, &f->note_capacity, f->nodes);
    if (status == TR_OK) status = TR_GROW(&f->set, &f->set_capacity, f->set_words);
    TR_TRY(tr_agree(m->tr, status));
    if (f->trees == 0) f->begin[0] = 0;
    TR_TRY(tr_broadcast(m->tr, TR_SET_ALL, 0, f->begin, (f->trees + 1) * sizeof *f->begin));
    TR_TRY(tr_broadcast(m->tr, TR_SET_ALL, 0, f->node, f->nodes * sizeof *f->node));
    TR_TRY(tr_broadcast(m->tr, TR_SET_ALL, 0, f->note, f->nodes * sizeof *f->note));
    if (f->set_words > 0) TR_TRY(tr_broadcast(m->tr, TR_SET_ALL, 0, f->set, f->set_words * sizeof *f->set));
    TR_TRY(tr_broadcast(m->tr, TR_SET_ALL, 0, m->base, (size_t)m->outputs * sizeof *m->base));
    m->initial = f->trees;
    return TR_OK;
}

int tr_trees_begin_with(struct tr_trees *m)
{
    void *model = NULL;
    tr_saved_values *values = NULL;
    if (!*m->o->init) return TR_OK;
    TR_TRY(tr_agree(m->tr, TR_NEW(&m->base, (size_t)m->outputs)));
    TR_TRY(tr_model_load_coded(m->tr, m->o->init, &model, &values));
    int status = tr_agree(m->tr, model ? take_trees(m, model, values) : TR_OK);
    if (status == TR_OK) status = spread(m);
    tr_saved_values_close(&values);
    tr_model_unload(m->tr, &model);
    if (status == TR_OK) tr_say(m->tr, "begins with:   %zu trees of %s", m->initial, m->o->init);
    return status;
}

int tr_trees_add_initial(const struct tr_trees *m, const tr_data *data, float *score)
{
    struct tr_scorer *s = NULL;
    size_t rows = data->rows.n;
    if (m->initial == 0) return TR_OK;
    int status = tr_scorer_open(&m->forest, 0, (size_t)m->columns, &s);
    for (size_t i = 0, n; status == TR_OK && (n = tr_data_ready(data, i, tr_min_size(TR_SIDE, rows - i))) > 0;
         i += n) {
        tr_scorer_take(s, &data->rows, data->keys, (size_t)m->columns, i, n);
        tr_scorer_add(s, (size_t)m->outputs, n, score + i, rows);
    }
    tr_scorer_close(&s);
    return status;
}
