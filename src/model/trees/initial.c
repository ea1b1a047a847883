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
    if (from->values || m->values)
        return unfit(m, "expected columns of numbers: numbers of categories change");
    if (from->objective != m->objective || from->outputs != m->outputs)
        return unfit(m, "it has another model.objective");
    if (from->labels != m->labels ||
        (m->labels > 0 &&
         memcmp(from->label_name, m->label_name, (size_t)m->labels * sizeof *m->label_name) != 0))
        return unfit(m, "its labels are not those of the training data");
    return TR_OK;
}

static int read_model(const struct tr_trees *m, void **model)
{
    TR_TRY(tr_model_load(m->tr, m->o->init, model));
    return check_fit(m, *model);
}

static int spread(struct tr_trees *m, const struct tr_trees *from)
{
    struct tr_forest *f = &m->forest;
    uint64_t size[2] = {from ? from->forest.trees : 0, from ? from->forest.nodes : 0};
    TR_TRY(tr_broadcast(m->tr, TR_SET_ALL, 0, size, sizeof size));
    f->trees = (size_t)size[0];
    f->nodes = (size_t)size[1];
    int status = TR_GROW(&f->begin, &f->begin_capacity, f->trees + 1);
    if (status == TR_OK) status = TR_GROW(&f->node, &f->node_capacity, f->nodes);
    if (status == TR_OK) status = TR_GROW(&f->note, &f->note_capacity, f->nodes);
    if (status == TR_OK) status = TR_NEW(&m->base, (size_t)m->outputs);
    TR_TRY(tr_agree(m->tr, status));
    if (from) {
        memcpy(f->begin, from->forest.begin, (f->trees + 1) * sizeof *f->begin);
        memcpy(f->node, from->forest.node, f->nodes * sizeof *f->node);
        memcpy(f->note, from->forest.note, f->nodes * sizeof *f->note);
        memcpy(m->base, from->base, (size_t)m->outputs * sizeof *m->base);
    }
    TR_TRY(tr_broadcast(m->tr, TR_SET_ALL, 0, f->begin, (f->trees + 1) * sizeof *f->begin));
    TR_TRY(tr_broadcast(m->tr, TR_SET_ALL, 0, f->node, f->nodes * sizeof *f->node));
    TR_TRY(tr_broadcast(m->tr, TR_SET_ALL, 0, f->note, f->nodes * sizeof *f->note));
    TR_TRY(tr_broadcast(m->tr, TR_SET_ALL, 0, m->base, (size_t)m->outputs * sizeof *m->base));
    m->initial = f->trees;
    return TR_OK;
}

int tr_trees_begin_with(struct tr_trees *m)
{
    void *model = NULL;
    if (!*m->o->init) return TR_OK;
    int status = tr_agree(m->tr, tr_rank(m->tr) == 0 ? read_model(m, &model) : TR_OK);
    if (status == TR_OK) status = spread(m, model);
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
    for (size_t i = 0; i < rows && status == TR_OK; i += TR_SIDE) {
        size_t n = tr_min_size(TR_SIDE, rows - i);
        tr_scorer_take(s, &data->rows, data->keys, (size_t)m->columns, i, n);
        tr_scorer_add(s, (size_t)m->outputs, n, score + i, rows);
    }
    tr_scorer_close(&s);
    return status;
}
