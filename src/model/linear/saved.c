/* A model as it is kept: what it holds, and the fields of its model.h5. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "linear.h"

void tr_linear_model_free(struct tr_linear_model *model)
{
    free(model->weight);
    free(model->bias);
    free(model->label);
    model->weight = NULL;
    model->bias = NULL;
    model->label = NULL;
}

uint64_t tr_linear_model_next(const struct tr_linear_model *m, uint64_t from)
{
    static const char zeros[1 << 14];
    uint64_t n = m->features * m->outputs, size = m->dtype == TR_F32 ? sizeof(float) : sizeof(double),
             block = sizeof zeros / size;
    const char *weight = m->weight;
    for (uint64_t i = from; i < n;) {
        if (n - i >= block && memcmp(weight + i * size, zeros, sizeof zeros) == 0) {
            i += block;
            continue;
        }
        for (uint64_t end = n - i < block ? n : i + block; i < end; i++)
            if (tr_linear_model_weight(m, i) != 0) return i;
    }
    return n;
}

int tr_linear_model_check(const struct tr_linear_model *m, const char *path)
{
    uint64_t weights = m->features * m->outputs;
    for (uint64_t i = tr_linear_model_next(m, 0); i < weights; i = tr_linear_model_next(m, i + 1))
        if (!isfinite(tr_linear_model_weight(m, i)))
            return tr_fail(TR_ERR_DATA, "%s: weight %llu is not a finite number", path,
                           (unsigned long long)i);
    for (size_t k = 0; k < m->outputs; k++)
        if (!isfinite(m->bias[k])) return tr_fail(TR_ERR_DATA, "%s: the bias is not a finite number", path);
    return TR_OK;
}

static int by_size(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* Whether the labels are numbers that differ. */
int tr_linear_model_check_labels(const struct tr_linear_model *m, bool *fine)
{
    float *sorted;
    *fine = true;
    TR_TRY(TR_NEW(&sorted, m->labels));
    memcpy(sorted, m->label, m->labels * sizeof *sorted);
    for (size_t i = 0; i < m->labels; i++) *fine = *fine && isfinite(sorted[i]);
    if (*fine) qsort(sorted, m->labels, sizeof *sorted, by_size);
    for (size_t i = 1; i < m->labels; i++) *fine = *fine && sorted[i] != sorted[i - 1];
    free(sorted);
    return TR_OK;
}
/* ---- model.h5 ---- */

/* Of two kinds the positive one is the larger, as in training. Where the data had only one, the other needs a name. */
static int name_labels(const tr_data *train, struct tr_linear_model *s)
{
    if (!tr_linear_model_classifies(s)) return TR_OK;
    s->labels = s->outputs > 1 ? s->outputs : 2;
    TR_TRY(TR_NEW(&s->label, s->labels));
    if (s->outputs > 1) {
        memcpy(s->label, train->label, s->labels * sizeof *s->label);
        return TR_OK;
    }
    s->label[0] = train->labels > 0 ? train->label[train->labels - 1] : 0;
    s->label[1] = train->labels > 1 ? train->label[0] : s->label[0] > 0 ? -s->label[0] : s->label[0] - 1;
    return TR_OK;
}

static int describe(struct tr_linear *m)
{
    tr_linear_model_free(&m->saved);
    m->saved = (struct tr_linear_model){.loss = m->loss,
                                        .dtype = m->train->scaling ? TR_F64 : (enum tr_dtype)m->o->dtype,
                                        .features = m->train->columns,
                                        .first_index = m->train->first_index,
                                        .label_column = (uint64_t)m->train->label_column,
                                        .outputs = m->outputs,
                                        .softmax = m->softmax,
                                        .biased = m->o->bias,
                                        .shape = tr_linear_shape(m),
                                        .l2 = m->l2,
                                        .objective = m->last.objective,
                                        .rows = m->train->total_rows};
    TR_TRY(tr_agree(m->tr, name_labels(m->train, &m->saved)));
    return tr_model_tell(m->tr, 1, &m->saved.objective);
}

static int end_text(struct tr_linear *m)
{
    const struct tr_linear_model *s = &m->saved;
    float *f32;
    TR_TRY(TR_NEW(&f32, s->outputs));
    for (size_t k = 0; k < s->outputs; k++) f32[k] = (float)s->bias[k];
    const void *bias = s->dtype == TR_F32 ? (const void *)f32 : s->bias;
    int status = s->biased ? tr_linear_text_append(m->text, s->dtype, bias, 1) : TR_OK;
    free(f32);
    if (status == TR_OK) status = tr_linear_text_finish(m->text);
    tr_linear_text_close(&m->text);
    return status;
}

/* Numbers of n keys of w, as f64. */
static int read_wide(struct tr_linear *m, uint64_t first, size_t n, double *values)
{
    float *narrow;
    n *= m->outputs;
    if (m->o->dtype == TR_F64) return tr_table_read(m->w, first, n / m->outputs, values);
    TR_TRY(TR_NEW(&narrow, n));
    int status = tr_table_read(m->w, first, n / m->outputs, narrow);
    for (size_t i = 0; i < n; i++) values[i] = (double)narrow[i];
    free(narrow);
    return status;
}

/* Weights of scaled rows may be far apart in the files' numbers: they are written as f64. */
static int read_scaled(struct tr_linear *m, uint64_t first, size_t n, double *values)
{
    TR_TRY(read_wide(m, first, n, values));
    return tr_linear_unscale(m, first, n, m->outputs, values, m->saved.bias);
}

/* A line for each of more features than that is left out. */
enum { MOST_LINES = 100000000 };

/* Weights for model.h5 go into model.txt on their way. */
static int fill_weights(void *model, uint64_t first, size_t n, void *values)
{
    struct tr_linear *m = model;
    const char *folder;
    TR_TRY(m->scale ? read_scaled(m, first, n, values) : tr_table_read(m->w, first, n, values));
    TR_TRY(tr_job_string(m->job, "output", &folder));
    bool is_short = m->saved.features <= MOST_LINES;
    if (first == 0 && !is_short)
        tr_say(m->tr, "note:          model.txt is left out: it would have %llu lines",
               (unsigned long long)m->saved.features);
    if (!is_short) return TR_OK;
    struct tr_linear_model head = m->saved;
    if (m->train->format == TR_FORMAT_CSV)
        head.first_index = 1; /* its columns have no numbers: LIBLINEAR's will do */
    if (first == 0) TR_TRY(tr_linear_text_create(folder, &head, &m->text));
    TR_TRY(tr_linear_text_append(m->text, m->saved.dtype, values, n));
    return first + n == m->saved.features ? end_text(m) : TR_OK;
}

static int read_type(struct tr_linear_model *s, char *name)
{
    s->loss = tr_loss_of_type(name);
    int status =
        s->loss ? TR_OK : tr_fail(TR_ERR_DATA, "model.h5: the model is of the unknown kind %.40s", name);
    free(name);
    return status;
}

static int head_fields(struct tr_linear_model *s, tr_fields *f)
{
    char *name = s->loss ? (char *)(uintptr_t)s->loss->type : NULL;
    TR_TRY(tr_field_text(f, "model", &name));
    if (tr_fields_read(f)) TR_TRY(read_type(s, name));
    TR_TRY(tr_field_count(f, "features", &s->features));
    TR_TRY(tr_field_count(f, "first_index", &s->first_index));
    if (s->loss->shape != TR_SHAPE_NONE) TR_TRY(tr_field_real(f, tr_shape_name[s->loss->shape], &s->shape));
    TR_TRY(tr_field_real(f, "l2", &s->l2));
    TR_TRY(tr_field_real(f, "objective", &s->objective));
    TR_TRY(tr_field_count(f, "rows", &s->rows));
    s->label_column = tr_fields_read(f) ? TR_LABEL_AUTO : s->label_column;
    if (!tr_fields_read(f) || tr_fields_have(f, "label_column"))
        TR_TRY(tr_field_count(f, "label_column", &s->label_column));
    return s->first_index <= 1 ? TR_OK : tr_fail(TR_ERR_DATA, "model.h5: damaged: first_index is not 0 or 1");
}

/* Two labels have one output, and no name for what several are. */
static int class_fields(struct tr_linear_model *s, tr_fields *f)
{
    uint64_t classes = s->outputs;
    char *kind = s->softmax ? "softmax" : "one-against-rest";
    if (tr_fields_read(f) ? !tr_fields_have(f, "classes") : s->outputs == 1) {
        s->labels = 2;
        return TR_OK;
    }
    TR_TRY(tr_field_count(f, "classes", &classes));
    TR_TRY(tr_field_text(f, "probabilities", &kind));
    if (!tr_fields_read(f)) return TR_OK;
    s->outputs = s->labels = classes;
    s->softmax = strcmp(kind, "softmax") == 0;
    free(kind);
    return classes > 1 && classes <= TR_LINEAR_CLASSES
               ? TR_OK
               : tr_fail(TR_ERR_DATA, "model.h5: damaged: the number of classes");
}

static int label_fields(struct tr_linear_model *s, tr_fields *f)
{
    bool fine;
    if (tr_fields_read(f)) s->outputs = 1;
    if (!tr_linear_model_classifies(s)) return TR_OK;
    TR_TRY(class_fields(s, f));
    TR_TRY(tr_field_array(f, "labels", TR_FIELD_F32, s->labels, 0,
                          s->outputs > 1 ? "of each output" : "the positive one first", &s->label));
    if (!tr_fields_read(f)) return TR_OK;
    TR_TRY(tr_linear_model_check_labels(s, &fine));
    return fine ? TR_OK : tr_fail(TR_ERR_DATA, "model.h5: damaged: the labels are not numbers that differ");
}

/* Those of the table, at the rank that writes. */
static int read_bias(struct tr_linear *m)
{
    struct tr_linear_model *s = &m->saved;
    TR_TRY(TR_NEW(&s->bias, s->outputs));
    return s->biased && tr_rank(m->tr) == 0 ? read_wide(m, s->features, 1, s->bias) : TR_OK;
}

/* Behind the weights, from which a part of them may come. */
static int bias_fields(struct tr_linear *m, tr_fields *f)
{
    struct tr_linear_model *s = &m->saved;
    size_t rows = s->outputs > 1 ? s->outputs : 0;
    if (tr_fields_read(f)) {
        s->biased = tr_fields_have(f, "bias");
        return s->biased ? tr_field_array(f, "bias", TR_FIELD_F64, rows, 0, NULL, &s->bias)
                         : TR_NEW(&s->bias, s->outputs);
    }
    if (!s->biased) return TR_OK;
    if (s->dtype == TR_F64) return tr_field_array(f, "bias", TR_FIELD_F64, rows, 0, NULL, &s->bias);
    float *f32;
    TR_TRY(TR_NEW(&f32, s->outputs));
    for (size_t k = 0; k < s->outputs; k++) f32[k] = (float)s->bias[k];
    int status = tr_field_array(f, "bias", TR_FIELD_F32, rows, 0, NULL, &f32);
    free(f32);
    return status;
}

int tr_linear_fields(void *model, tr_fields *f)
{
    struct tr_linear *m = model;
    struct tr_linear_model *s = &m->saved;
    if (!tr_fields_read(f)) {
        TR_TRY(describe(m));
        TR_TRY(tr_linear_open_scale(m));
        TR_TRY(tr_agree(m->tr, read_bias(m)));
    }
    TR_TRY(head_fields(s, f));
    TR_TRY(label_fields(s, f));
    if (tr_fields_read(f)) TR_TRY(tr_fields_dtype(f, "weights", &s->dtype));
    int status =
        tr_field_filled(f, "weights", s->dtype == TR_F32 ? TR_FIELD_F32 : TR_FIELD_F64, s->features,
                        s->outputs > 1 ? s->outputs : 0, "weight i is of index first_index + i of the data",
                        fill_weights, &s->weight);
    tr_linear_text_close(&m->text);
    if (status == TR_OK) status = bias_fields(m, f);
    if (status == TR_OK) status = tr_linear_close_scale(m);
    if (status == TR_OK && tr_fields_read(f)) status = tr_linear_model_check(s, "model.h5");
    return status;
}
