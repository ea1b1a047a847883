/* model.init: training begins from the weights of another model, which the rank that reads the file tells to all. They are
 * for the numbers of the files: with scaled rows (scale.c) weight w_j becomes w_j / factor_j, and Σ w_j shift_j is added to
 * the bias. Each worker puts some columns into the table, by pushing them once. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "linear.h"

/* ---- reading ---- */

static int check_labels(const struct tr_linear *m, const struct tr_linear_model *s, const char *path)
{
    if (!tr_linear_classifies(m) && !tr_linear_model_classifies(s)) return TR_OK;
    bool same = tr_linear_classifies(m) && tr_linear_model_classifies(s) && s->labels == m->train->labels &&
                s->outputs == m->outputs;
    for (size_t i = 0; same && i < s->labels; i++)
        same = tr_linear_label(m->train, s->label[i]) < m->train->labels;
    if (same) return TR_OK;
    return tr_fail(TR_ERR_DATA,
                   "%s: model.init %s: its labels are not those of the training data: expected a model of %s",
                   tr_job_where(m->job, "model.init"), path,
                   tr_linear_classifies(m) ? "the same labels" : "regression");
}

/* The model's classes are in the order of its own list of labels, as the data's are. */
static int take_weights(struct tr_linear *m, const struct tr_linear_model *s, const char *path)
{
    size_t outputs = m->outputs;
    bool table =
        m->train->format == TR_FORMAT_CSV; /* whose columns have no numbers, and are in the same order */
    uint64_t columns = m->train->columns, from_zero = table ? s->first_index : m->train->first_index;
    for (uint64_t i = 0; i < s->features; i++)
        for (size_t o = 0; o < outputs; o++) {
            double w = tr_linear_model_weight(s, i * outputs + o);
            uint64_t index = s->first_index + i; /* as files have it */
            if (w == 0) continue;
            if (index < from_zero || index - from_zero >= columns)
                return tr_fail(
                    TR_ERR_DATA,
                    "%s: model.init %s has a weight for feature %llu, the training data end before it: "
                    "expected data.features to say how many there are",
                    tr_job_where(m->job, "model.init"), path, (unsigned long long)index);
            m->initial[(index - from_zero) * outputs + o] = w;
        }
    for (size_t o = 0; s->biased && o < outputs; o++) {
        m->initial[columns * outputs + o] = s->bias[o];
        if (s->bias[o] != 0 && !m->o->bias)
            return tr_fail(TR_ERR_DATA, "%s: model.init %s has a bias: expected model.bias: yes",
                           tr_job_where(m->job, "model.init"), path);
    }
    return TR_OK;
}

static int read_initial(struct tr_linear *m, const char *path)
{
    void *model = NULL;
    TR_TRY(tr_model_load(m->tr, path, &model));
    const struct tr_linear_model *s = &((const struct tr_linear *)model)->saved;
    int status = check_labels(m, s, path);
    if (status == TR_OK) status = take_weights(m, s, path);
    tr_model_unload(m->tr, &model);
    return status;
}

int tr_linear_read_initial(struct tr_linear *m)
{
    size_t n = ((size_t)m->train->columns + 1) * m->outputs;
    if (!*m->o->init) return TR_OK;
    TR_TRY(tr_agree(m->tr, TR_NEW(&m->initial, n)));
    TR_TRY(tr_agree(m->tr, tr_rank(m->tr) == 0 ? read_initial(m, m->o->init) : TR_OK));
    tr_say(m->tr, "begins with:   the weights of %s", m->o->init);
    return tr_broadcast(m->tr, TR_SET_ALL, 0, m->initial, n * sizeof *m->initial);
}

/* ---- into the table ---- */

struct put {
    struct tr_linear *m;
    uint64_t first; /* this worker's columns */
    size_t n;
    tr_view *view; /* of them, and the bias */
};

static int prepare(tr_worker *me, void *state)
{
    struct put *p = state;
    struct tr_linear *m = p->m;
    const tr_scaling *s = m->train->scaling;
    uint64_t columns = m->train->columns, worker = (uint64_t)me->worker, workers = (uint64_t)me->workers;
    p->first = s ? s->first : columns * worker / workers;
    p->n = s ? s->n : (size_t)(columns * (worker + 1) / workers - p->first);
    tr_key *keys;
    TR_TRY(TR_NEW(&keys, p->n + 1));
    for (size_t j = 0; j < p->n; j++) keys[j] = p->first + j;
    keys[p->n] = columns;
    int status = tr_view_open(m->w, keys, p->n + m->o->bias, TR_VIEW_UPDATE, &p->view);
    free(keys);
    return status;
}

static void set(void *values, enum tr_dtype dtype, size_t i, double value)
{
    if (dtype == TR_F32) ((float *)values)[i] = (float)value;
    else ((double *)values)[i] = value;
}

static int put(tr_worker *me, void *state)
{
    struct put *p = state;
    struct tr_linear *m = p->m;
    const tr_scaling *s = m->train->scaling;
    enum tr_dtype dtype = (enum tr_dtype)m->o->dtype;
    size_t outputs = m->outputs;
    for (size_t o = 0; o < outputs; o++) {
        double bias = me->worker == 0 ? m->initial[m->train->columns * outputs + o] : 0;
        for (size_t j = 0; j < p->n; j++) {
            double w = m->initial[(p->first + j) * outputs + o];
            set(p->view->delta, dtype, j * outputs + o, s && s->factor[j] != 0 ? w / s->factor[j] : w);
            if (s && s->centred) bias += w * s->shift[j];
        }
        if (m->o->bias) set(p->view->delta, dtype, p->n * outputs + o, bias);
    }
    return tr_view_push(p->view);
}

int tr_linear_put_initial(struct tr_linear *m)
{
    struct put p = {.m = m};
    if (!m->initial) return TR_OK;
    tr_stage stage = {.name = "initial", .state = &p, .clocks = 1, .prepare = prepare, .compute = put};
    int status = tr_run(m->tr, &stage);
    tr_view_close(&p.view);
    return status;
}
