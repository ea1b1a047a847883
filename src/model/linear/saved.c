/* Saved models: model.txt, model.h5, predict, evaluate and inspect; model.init; undoing data.scale in weights.
 *
 * A model that was trained on scaled rows has the margins Σ w_j (x_j - shift_j) factor_j + b. A saved model computes the same
 * margins from unscaled x: Σ (w_j factor_j) x_j + (b - Σ w_j factor_j shift_j). Each worker knows shift and factor of some columns.
 * All workers write these numbers into a table, which the rank that writes the model reads. The table stores the bits of the
 * numbers as integers, because updates of integers are not rounded or filtered. */
#define _GNU_SOURCE
#include <errno.h>
#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../labels.h"
#include "../metrics.h"
#include "linear.h"

void tr_linear_model_free(struct tr_linear_model *model)
{
    TR_FREE_ALL(model->weight, model->bias, model->label);
    model->weight = NULL;
    model->bias = NULL;
    model->label = NULL;
}

/* Returns the index of the first weight from `from` on that is not zero, or features * outputs if all are zero. Blocks of zeros,
 * frequent in models with hash storage, are skipped by memcmp(). */
static uint64_t model_next_weight(const struct tr_linear_model *m, uint64_t from)
{
    static const char zeros[1 << 14];
    uint64_t n = m->features * m->outputs, size = tr_real_size(m->dtype), block = sizeof zeros / size;
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

/* Checks that all weights are finite; TR_ERR_DATA if not. `path` is used in messages. */
static int model_check(const struct tr_linear_model *m, const char *path)
{
    uint64_t weights = m->features * m->outputs;
    for (uint64_t i = model_next_weight(m, 0); i < weights; i = model_next_weight(m, i + 1))
        if (!isfinite(tr_linear_model_weight(m, i)))
            return tr_fail(TR_ERR_DATA, "%s: weight %llu is not a finite number", path,
                           (unsigned long long)i);
    for (size_t k = 0; k < m->outputs; k++)
        if (!isfinite(m->bias[k])) return tr_fail(TR_ERR_DATA, "%s: the bias is not a finite number", path);
    return TR_OK;
}

/* For qsort(): compares floats, or structs whose first member is a float. */
static int model_compare_labels(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* Sets *fine to whether the labels are finite and all different. */
static int model_check_labels(const struct tr_linear_model *m, bool *fine)
{
    TR_FREED float *sorted = NULL;
    *fine = true;
    TR_TRY(TR_NEW(&sorted, m->labels));
    memcpy(sorted, m->label, m->labels * sizeof *sorted);
    for (size_t i = 0; i < m->labels; i++) *fine = *fine && isfinite(sorted[i]);
    if (*fine) qsort(sorted, m->labels, sizeof *sorted, model_compare_labels);
    for (size_t i = 1; i < m->labels; i++) *fine = *fine && sorted[i] != sorted[i - 1];
    return TR_OK;
}

/* ---- model.txt, LIBLINEAR's format: reading ---- */

struct scanner {
    const char *at, *end, *path;
    uint64_t line;
    locale_t locale; /* the locale "C", in which strtod_l() expects a decimal point */
};

static int text_refuse(const struct scanner *s, const char *what)
{
    return tr_fail(TR_ERR_DATA, "%s:%llu: %s", s->path, (unsigned long long)s->line, what);
}

static void text_skip_blanks(struct scanner *s)
{
    while (s->at < s->end && (*s->at == ' ' || *s->at == '\t' || *s->at == '\r')) s->at++;
}

/* Reads the next word of this line, truncated to 63 characters; sets it to "" at the end of the line. */
static void text_read_word(struct scanner *s, char word[64])
{
    size_t n = 0;
    text_skip_blanks(s);
    for (; s->at < s->end && !strchr(" \t\r\n", *s->at); s->at++)
        if (n < 63) word[n++] = *s->at;
    word[n] = '\0';
}

/* Reads the next word of this line or of a later line; sets it to "" at the end of the text. */
static void text_read_word_below(struct scanner *s, char word[64])
{
    for (; s->at < s->end && *s->at && strchr(" \t\r\n", *s->at); s->at++) s->line += *s->at == '\n';
    text_read_word(s, word);
}

static int text_end_line(struct scanner *s)
{
    text_skip_blanks(s);
    if (s->at == s->end) return text_refuse(s, "the model is cut off here");
    if (*s->at != '\n') return text_refuse(s, "found more than one expects in this line");
    s->at++;
    s->line++;
    return TR_OK;
}

static int text_read_number(struct scanner *s, double *number)
{
    text_skip_blanks(s);
    if (s->at == s->end) return text_refuse(s, "the model is cut off here");
    if (*s->at == '\n') return text_refuse(s, "expected a number, found the end of the line");
    char *behind;
    *number = strtod_l(s->at, &behind, s->locale);
    if (behind == s->at || !strchr(" \t\r\n", *behind)) return text_refuse(s, "expected a number");
    s->at = behind;
    return TR_OK;
}

static int text_read_count(struct scanner *s, double least, double most, uint64_t *count)
{
    double number = 0;
    TR_TRY(text_read_number(s, &number));
    if (!(number >= least && number <= most) || number != floor(number))
        return text_refuse(s, "this count is impossible");
    *count = (uint64_t)number;
    return TR_OK;
}

/* Reads the lines up to «w». *bias: value that the bias feature has in all rows; the model has no bias if it is ≤ 0. */
static int text_read_head(struct scanner *s, struct tr_linear_model *m, double *bias)
{
    char word[64];
    bool joint = false, fine = true; /* joint: the model has one output per class even for two classes */
    for (bool more = true; more;) {
        text_read_word(s, word);
        if (strcmp(word, "w") == 0) {
            more = false;
        } else if (strcmp(word, "solver_type") == 0) {
            text_read_word(s, word);
            size_t length = strlen(word);
            m->loss = NULL;
            for (size_t i = 0; length > 0 && tr_losses[i] && !m->loss; i++)
                for (const char *at = tr_losses[i]->liblinear; at; at = strchr(at, ' ')) {
                    at += *at == ' ';
                    bool same = strncmp(at, word, length) == 0 && (!at[length] || at[length] == ' ');
                    if (same) m->loss = tr_losses[i];
                }
            if (!m->loss)
                return text_refuse(s,
                                   "this solver_type is none of a linear model of classes or of regression");
            joint = strcmp(word, "MCSVM_CS") == 0;
        } else if (strcmp(word, "nr_class") == 0) {
            uint64_t classes = 0;
            TR_TRY(text_read_count(s, 1, 1e9, &classes));
            if (classes < 2 || classes > TR_LINEAR_CLASSES)
                return text_refuse(s, "expected a model of two classes or more");
            if (m->label) return text_refuse(s, "expected nr_class before label");
            m->labels = classes;
        } else if (strcmp(word, "label") == 0) {
            if (m->label) return text_refuse(s, "label stands here a second time");
            TR_TRY(TR_NEW(&m->label, m->labels));
            for (size_t i = 0; i < m->labels; i++) {
                double label;
                TR_TRY(text_read_number(s, &label));
                m->label[i] = (float)label;
                if (label == rint(label) && (double)m->label[i] != label)
                    return text_refuse(s, "a label is not exact in a 32-bit float: expected model.h5");
            }
            TR_TRY(model_check_labels(m, &fine));
            if (!fine)
                return text_refuse(s, m->labels == 2 ? "expected two labels that differ"
                                                     : "expected labels that differ");
        } else if (strcmp(word, "nr_feature") == 0) {
            TR_TRY(text_read_count(s, 1, 9e15, &m->features));
        } else if (strcmp(word, "bias") == 0) {
            TR_TRY(text_read_number(s, bias));
            if (!isfinite(*bias)) return text_refuse(s, "the bias is not finite");
        } else {
            return text_refuse(s, s->line == 1      ? "not a model"
                                  : s->at == s->end ? "the model is cut off here"
                                                    : "unknown word");
        }
        TR_TRY(text_end_line(s));
    }
    m->biased = *bias > 0;
    if (!m->loss || m->features == 0 || (tr_linear_model_classifies(m) && !m->label))
        return text_refuse(s, "expected solver_type, label and nr_feature before the weights");
    m->outputs = tr_linear_model_classifies(m) && (m->labels > 2 || joint) ? m->labels : 1;
    uint64_t most = (uint64_t)(s->end - s->at) / 2; /* a weight takes at least a digit and a blank */
    if (m->features + m->biased <= most / m->outputs) return TR_OK;
    return tr_fail(TR_ERR_DATA, "%s: the model is cut off: there cannot be %llu weights in it", s->path,
                   (unsigned long long)((m->features + m->biased) * m->outputs));
}

/* Reads a line of weights for each feature and for the bias, and then the lines that Trireme adds and LIBLINEAR ignores: softmax or
 * the type of the loss, first_index, and offset. */
static int text_read_weights(struct scanner *s, struct tr_linear_model *m, double bias)
{
    double *weight;
    char word[64];
    TR_TRY(TR_NEW(&weight, (m->features + m->biased) * m->outputs));
    m->weight = weight;
    m->dtype = TR_F32;
    TR_TRY(TR_NEW(&m->bias, m->outputs));
    for (uint64_t i = 0; i < m->features + m->biased; i++) {
        for (size_t k = 0; k < m->outputs; k++, weight++) {
            text_skip_blanks(s);
            const char *begin = s->at;
            if (begin + 1 < s->end && begin[0] == '0' && (begin[1] == '\n' || begin[1] == ' ')) {
                s->at++;
                continue;
            }
            TR_TRY(text_read_number(s, weight));
            /* the weights are f32 if each number is the shortest text of a float; then no bits are lost */
            char again[TR_NUMBER_ROOM];
            if (m->dtype == TR_F32 &&
                !(fabs(*weight) < 3.4e38 && tr_put_f32(again, (float)*weight) - again == s->at - begin &&
                  memcmp(again, begin, (size_t)(s->at - begin)) == 0))
                m->dtype = TR_F64;
        }
        TR_TRY(text_end_line(s));
    }
    weight -= m->outputs;
    for (size_t k = 0; m->biased && k < m->outputs; k++) m->bias[k] = weight[k] * bias;
    text_read_word_below(s, word);
    m->softmax = m->outputs > 1 && strcmp(word, "softmax") == 0;
    const struct tr_loss *other = m->loss == &tr_loss_linear ? tr_loss_of_type(word) : NULL;
    if (other && !other->liblinear) m->loss = other;
    m->shape = m->loss->shape == TR_SHAPE_DELTA; /* older models of logcosh have no shape: it was 1 */
    while (s->at < s->end && *s->at == ' ') s->at++;
    if (m->loss->shape != TR_SHAPE_NONE && s->at < s->end && *s->at != '\n')
        TR_TRY(text_read_number(s, &m->shape));
    if (m->softmax || !m->loss->liblinear) text_read_word_below(s, word);
    if (strcmp(word, "first_index") == 0) {
        TR_TRY(text_read_count(s, 0, 1, &m->first_index));
        text_read_word_below(s, word);
    }
    m->offsets = strcmp(word, "offset") == 0;
    if (m->offsets) text_read_word_below(s, word);
    return s->at == s->end && !*word
               ? TR_OK
               : text_refuse(s, "expected the end, found more weights than nr_feature says");
}

struct text_output {
    float label;
    size_t at; /* index of the label in the file, before sorting */
};

/* Changes the order of labels, weights and biases. A file of LIBLINEAR has labels in the order of their first training rows. A
 * trained model with one output has the larger label first, as the positive label; several outputs ascend by their labels. */
static int text_sort_labels(struct tr_linear_model *m)
{
    double *weight = m->weight;
    TR_FREED struct text_output *output = NULL;
    TR_FREED double *line = NULL;
    size_t n = m->outputs;
    if (n == 1 && m->label[0] < m->label[1]) {
        float negative = m->label[0];
        m->label[0] = m->label[1];
        m->label[1] = negative;
        /* 0 - x and not -x, so that 0 does not become -0 */
        for (uint64_t i = 0; i < m->features; i++) weight[i] = 0 - weight[i];
        *m->bias = 0 - *m->bias;
    }
    if (n == 1) return TR_OK;
    TR_TRY(TR_NEW(&output, n));
    TR_TRY(TR_NEW(&line, n));
    for (size_t k = 0; k < n; k++) output[k] = (struct text_output){m->label[k], k};
    qsort(output, n, sizeof *output, model_compare_labels);
    for (size_t k = 0; k < n; k++) m->label[k] = output[k].label;
    for (uint64_t i = 0; i <= m->features; i++) {
        double *to = i < m->features ? weight + i * n : m->bias;
        for (size_t k = 0; k < n; k++) line[k] = to[output[k].at];
        memcpy(to, line, n * sizeof *to);
    }
    return TR_OK;
}

static int text_parse(struct scanner *s, struct tr_linear_model *m)
{
    double bias = -1;
    TR_TRY(text_read_head(s, m, &bias));
    TR_TRY(text_read_weights(s, m, bias));
    if (!m->label) m->labels = 0;
    if (tr_linear_model_classifies(m)) TR_TRY(text_sort_labels(m));
    if (m->dtype == TR_F64) return model_check(m, s->path);
    /* converts in place, from the first on: float i ends before double i + 1 begins */
    for (uint64_t i = 0; i < m->features * m->outputs; i++) {
        float x = (float)((double *)m->weight)[i];
        memcpy((float *)m->weight + i, &x, sizeof x);
    }
    for (size_t k = 0; k < m->outputs; k++) m->bias[k] = (double)(float)m->bias[k];
    return model_check(m, s->path);
}

int tr_linear_model_parse_text(const char *text, size_t length, const char *path,
                               struct tr_linear_model *model)
{
    struct tr_linear_model m = {.first_index = 1, .labels = 2, .l2 = NAN, .objective = NAN};
    struct scanner s = {.at = text, .end = text + length, .path = path, .line = 1};
    s.locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    int status = text_parse(&s, &m);
    freelocale(s.locale);
    if (status == TR_OK) *model = m;
    else tr_linear_model_free(&m);
    return status;
}

int tr_linear_read_text(void *model, const char *path, const char **type)
{
    struct tr_linear_model *saved = &((struct tr_linear *)model)->saved;
    char *text = NULL;
    size_t capacity = 0;
    FILE *file = fopen(path, "re");
    if (!file) return tr_fail(TR_ERR_NO_INPUT, "%s: %s", path, strerror(errno));
    ssize_t n = getdelim(&text, &capacity, '\0', file); /* the whole file: a model.txt has no zero bytes */
    int status = ferror(file)
                     ? tr_fail(TR_ERR_IO, "%s: cannot be read", path)
                     : tr_linear_model_parse_text(n > 0 ? text : "", n > 0 ? (size_t)n : 0, path, saved);
    fclose(file);
    free(text);
    TR_TRY(status);
    saved->label_column = TR_LABEL_AUTO;
    *type = saved->loss->type;
    return TR_OK;
}

/* ---- model.txt: writing ---- */

struct tr_linear_text {
    struct tr_target target;
    size_t outputs;      /* number of weights in a line */
    enum tr_dtype dtype; /* weights are written with the digits that identify a number of this type */
    char end[96];        /* the lines behind the weights */
    locale_t c;          /* the locale "C", in which numbers have a decimal point */
};

int tr_linear_text_create(const char *folder, const struct tr_linear_model *head, const tr_data *train,
                          struct tr_linear_text **text)
{
    char name[TR_LABEL_TEXT];
    struct tr_linear_text *t;
    TR_TRY(TR_NEW(&t, 1));
    *text = t;
    t->c = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    TR_TRY(tr_target_open(&t->target, TR_TARGET_DURABLE, "%s/model.txt", folder));
    t->outputs = head->outputs;
    t->dtype = head->dtype;
    bool classifies = tr_linear_model_classifies(head);
    const char *solver = head->loss->liblinear ? head->loss->liblinear : tr_loss_linear.liblinear;
    fprintf(t->target.file, "solver_type %.*s\nnr_class %zu\n", (int)strcspn(solver, " "), solver,
            classifies ? head->labels : 2);
    locale_t old = uselocale(t->c);
    if (head->softmax) snprintf(t->end, sizeof t->end, "softmax\n");
    else if (!head->loss->liblinear && head->loss->shape != TR_SHAPE_NONE)
        snprintf(t->end, sizeof t->end, "%s %.17g\n", head->loss->type, head->shape);
    else if (!head->loss->liblinear) snprintf(t->end, sizeof t->end, "%s\n", head->loss->type);
    if (head->first_index == 0)
        snprintf(t->end + strlen(t->end), sizeof t->end - strlen(t->end), "first_index 0\n");
    if (head->offsets) snprintf(t->end + strlen(t->end), sizeof t->end - strlen(t->end), "offset\n");
    bool whole = classifies;
    for (size_t i = 0; whole && i < head->labels; i++) {
        tr_data_label_text(train, head->label[i], name);
        whole = name[strspn(name, "-0123456789")] == '\0';
    }
    for (size_t i = 0; classifies && i < head->labels; i++) {
        tr_data_label_text(train, head->label[i], name);
        if (whole) fprintf(t->target.file, "%s %s", i == 0 ? "label" : "", name);
        else fprintf(t->target.file, "%s %.9g", i == 0 ? "label" : "", (double)head->label[i]);
    }
    uselocale(old);
    fprintf(t->target.file, "%snr_feature %llu\nbias %d\nw\n", classifies ? "\n" : "",
            (unsigned long long)head->features, head->biased ? 1 : -1);
    return TR_OK;
}

int tr_linear_text_append(struct tr_linear_text *t, enum tr_dtype dtype, const void *weights, size_t n)
{
    char number[TR_NUMBER_ROOM + 1];
    locale_t old = uselocale(t->c);
    for (size_t i = 0; i < n * t->outputs; i++) {
        double x = tr_real_get(dtype, weights, i);
        char *end = t->dtype == TR_F32 ? tr_put_f32(number, (float)x) : tr_put_f64(number, x);
        *end++ = (i + 1) % t->outputs == 0 ? '\n' : ' ';
        fwrite_unlocked(number, 1, (size_t)(end - number), t->target.file);
    }
    uselocale(old);
    return ferror(t->target.file)
               ? tr_fail(TR_ERR_IO, "%s: cannot be written: %s", t->target.path, strerror(errno))
               : TR_OK;
}

int tr_linear_text_close(struct tr_linear_text **text, int status)
{
    struct tr_linear_text *t = *text;
    if (!t) return status;
    if (status == TR_OK) fputs(t->end, t->target.file);
    status = tr_target_close(&t->target, status);
    if (t->c) freelocale(t->c);
    free(t);
    *text = NULL;
    return status;
}

/* ---- writing numbers of columns into tables ---- */

/* A stage in which each worker pushes numbers of its columns first .. first + n - 1, once. */
struct put_stage {
    struct tr_linear *m;
    tr_table *table;
    size_t each;    /* keys per column; 0: the bias only */
    bool bias;      /* the view also has the key of the bias, as its last */
    uint64_t first; /* columns whose scale this worker knows, or an equal part if rows are not scaled */
    size_t n;
    tr_view *view;
};

static int put_prepare(tr_worker *me, void *state)
{
    struct put_stage *p = state;
    const tr_scaling *s = p->m->train->scaling;
    uint64_t columns = p->m->train->columns, worker = (uint64_t)me->worker, workers = (uint64_t)me->workers;
    p->first = s ? s->first : columns * worker / workers;
    p->n = p->each == 0 ? 0 : s ? s->n : (size_t)(columns * (worker + 1) / workers - p->first);
    TR_FREED tr_key *keys = NULL;
    size_t n = p->n * p->each;
    TR_TRY(TR_NEW(&keys, n + 1));
    for (size_t j = 0; j < n; j++) keys[j] = p->first * p->each + j;
    keys[n] = columns;
    return tr_view_open(p->table, keys, n + p->bias, TR_VIEW_UPDATE, &p->view);
}

static int put_run(struct put_stage *p, const char *name, int (*compute)(tr_worker *me, void *state))
{
    tr_stage stage = {.name = name, .state = p, .clocks = 1, .prepare = put_prepare, .compute = compute};
    int status = tr_run(p->m->tr, &stage);
    tr_view_close(&p->view);
    return status;
}

/* Returns how many numbers the table m->scale has per column: the factor, and the shift if columns are centred. */
static size_t scale_numbers(const struct tr_linear *m)
{
    return m->train->scaling->centred ? 2 : 1;
}

static int scale_put(tr_worker *me, void *state)
{
    (void)me;
    struct put_stage *p = state;
    const tr_scaling *s = p->m->train->scaling;
    int64_t *to = p->view->delta;
    for (size_t j = 0; j < p->n; j++) {
        memcpy(&to[p->each * j], &s->factor[j], sizeof *to);
        if (p->each > 1) memcpy(&to[p->each * j + 1], &s->shift[j], sizeof *to);
    }
    return tr_view_push(p->view);
}

/* ---- model.h5 ---- */

/* Reads the weights of the keys first .. first + n - 1, converted to f64. */
static int saved_read_wide(struct tr_linear *m, uint64_t first, size_t n, double *values)
{
    TR_FREED float *narrow = NULL;
    if (m->o->dtype == TR_F64) return tr_table_read(m->w, first, n, values);
    TR_TRY(TR_NEW(&narrow, n * m->outputs));
    TR_TRY(tr_table_read(m->w, first, n, narrow));
    for (size_t i = 0; i < n * m->outputs; i++) values[i] = (double)narrow[i];
    return TR_OK;
}

/* Fills m->saved for writing, except for the weights, and m->scale. All ranks; only rank 0 receives the biases. */
static int saved_describe(struct tr_linear *m)
{
    struct tr_linear_model *s = &m->saved;
    const tr_data *train = m->train;
    tr_linear_model_free(s);
    *s = (struct tr_linear_model){.loss = m->loss,
                                  .dtype = train->scaling ? TR_F64 : (enum tr_dtype)m->o->dtype,
                                  .features = train->columns,
                                  .first_index = train->first_index,
                                  .label_column = (uint64_t)train->label_column,
                                  .outputs = m->outputs,
                                  .softmax = m->softmax,
                                  .biased = m->o->bias,
                                  .offsets = train->has_offsets,
                                  .shape = m->shape,
                                  .scale = m->loss->constant ? 0 : m->unit,
                                  .l2 = m->l2,
                                  .objective = m->last.objective,
                                  .rows = train->total_rows};
    s->labels = tr_linear_classifies(m) ? tr_max_size(m->outputs, 2) : 0;
    TR_TRY(tr_agree(m->tr, TR_NEW(&s->label, s->labels)));
    for (size_t k = 0; k < s->labels && m->outputs > 1; k++) s->label[k] = train->label[k];
    if (s->labels > 0 &&
        m->outputs ==
            1) { /* the larger label is positive; if rows have only one label, the other one is invented */
        s->label[0] = train->labels > 0 ? train->label[train->labels - 1] : 0;
        s->label[1] = train->labels > 1 ? train->label[0] : s->label[0] > 0 ? -s->label[0] : s->label[0] - 1;
    }
    TR_TRY(tr_model_tell(m->tr, 1, &s->objective));
    if (train->scaling) {
        TR_TRY(tr_table_create(m->tr, "scale", TR_I64, 1, train->columns * scale_numbers(m), &m->scale));
        struct put_stage put = {.m = m, .table = m->scale, .each = scale_numbers(m)};
        TR_TRY(put_run(&put, "scale", scale_put));
    }
    int status = TR_NEW(&s->bias, s->outputs);
    if (status == TR_OK && s->biased && tr_rank(m->tr) == 0)
        status = saved_read_wide(m, s->features, 1, s->bias);
    return tr_agree(m->tr, status);
}

/* Fills `values` with the weights of n features for model.h5, and writes them to model.txt. Weights of scaled rows are multiplied
 * by the factors, and the products with the shifts are subtracted from the biases. If a model has more than MOST_LINES features, no
 * model.txt is written, because it has a line per feature. */
static int saved_fill_weights(void *model, uint64_t first, size_t n, void *values)
{
    enum { MOST_LINES = 100000000 };
    struct tr_linear *m = model;
    const struct tr_linear_model *s = &m->saved;
    const char *folder;
    if (m->scale) { /* in f64, because weights that are scaled back may have very different sizes */
        size_t each = scale_numbers(m);
        double *w = values;
        TR_FREED double *scale = NULL;
        TR_TRY(saved_read_wide(m, first, n, values));
        TR_TRY(TR_NEW(&scale, n * each));
        TR_TRY(tr_table_read(m->scale, first * each, n * each, scale));
        for (size_t i = 0; i < n * s->outputs; i++) {
            const double *of = scale + i / s->outputs * each;
            w[i] *= of[0];
            if (each > 1) s->bias[i % s->outputs] -= w[i] * of[1];
        }
    } else {
        TR_TRY(tr_table_read(m->w, first, n, values));
    }
    if (s->features > MOST_LINES) {
        if (first == 0)
            tr_say(m->tr, "note:          model.txt is left out: it would have %llu lines",
                   (unsigned long long)s->features);
        return TR_OK;
    }
    TR_TRY(tr_job_string(m->job, "output", &folder));
    struct tr_linear_model head = *s;
    if (m->train->format == TR_FORMAT_CSV)
        head.first_index = 1; /* columns of csv files have no numbers; 1 is the convention of LIBLINEAR */
    if (first == 0) TR_TRY(tr_linear_text_create(folder, &head, m->train, &m->text));
    TR_TRY(tr_linear_text_append(m->text, s->dtype, values, n));
    if (first + n < s->features) return TR_OK;
    if (s->biased) TR_TRY(tr_linear_text_append(m->text, TR_F64, s->bias, 1));
    return tr_linear_text_close(&m->text, TR_OK);
}

/* Reads or writes the scalar members and the labels. */
static int saved_head(struct tr_linear_model *s, tr_fields *f)
{
    bool reads = tr_fields_read(f), fine = true;
    char *name = s->loss ? (char *)(uintptr_t)s->loss->type : NULL;
    char *kind = s->softmax ? "softmax" : "one-against-rest";
    uint64_t classes = s->outputs;
    TR_TRY(tr_field_text(f, "model", &name));
    if (reads) {
        s->loss = tr_loss_of_type(name);
        int status =
            s->loss ? TR_OK : tr_fail(TR_ERR_DATA, "model.h5: the model is of the unknown kind %.40s", name);
        free(name);
        TR_TRY(status);
        s->outputs = 1;
        s->labels = tr_linear_model_classifies(s) ? 2 : 0;
        s->label_column = TR_LABEL_AUTO;
    }
    TR_TRY(tr_field_count(f, "features", &s->features));
    TR_TRY(tr_field_count(f, "first_index", &s->first_index));
    const char *shape = tr_shape_name[s->loss->shape];
    if (tr_fields_read(f))
        s->shape = s->loss->shape == TR_SHAPE_DELTA; /* older models of logcosh have no shape: it was 1 */
    if (shape && (!tr_fields_read(f) || tr_fields_have(f, shape))) TR_TRY(tr_field_real(f, shape, &s->shape));
    bool has_scale = tr_fields_read(f) ? tr_fields_have(f, "scale") : s->scale > 0;
    if (has_scale) TR_TRY(tr_field_real(f, "scale", &s->scale));
    TR_TRY(tr_field_real(f, "l2", &s->l2));
    TR_TRY(tr_field_real(f, "objective", &s->objective));
    TR_TRY(tr_field_count(f, "rows", &s->rows));
    if (tr_fields_have(f, "label_column")) TR_TRY(tr_field_count(f, "label_column", &s->label_column));
    if (s->first_index > 1) return tr_fail(TR_ERR_DATA, "model.h5: damaged: first_index is not 0 or 1");
    if (s->labels == 0) return TR_OK;
    if (reads ? tr_fields_have(f, "classes") : s->outputs > 1) {
        TR_TRY(tr_field_count(f, "classes", &classes));
        TR_TRY(tr_field_text(f, "probabilities", &kind));
        if (reads) {
            s->outputs = s->labels = classes;
            s->softmax = strcmp(kind, "softmax") == 0;
            free(kind);
            if (classes < 2 || classes > TR_LINEAR_CLASSES)
                return tr_fail(TR_ERR_DATA, "model.h5: damaged: the number of classes");
        }
    }
    TR_TRY(tr_field_array(f, "labels", TR_FIELD_F32, s->labels, 0,
                          s->outputs > 1 ? "of each output" : "the positive one first", &s->label));
    if (reads) TR_TRY(model_check_labels(s, &fine));
    return fine ? TR_OK : tr_fail(TR_ERR_DATA, "model.h5: damaged: the labels are not numbers that differ");
}

int tr_linear_fields(void *model, tr_fields *f)
{
    struct tr_linear *m = model;
    struct tr_linear_model *s = &m->saved;
    bool reads = tr_fields_read(f);
    if (!reads) TR_TRY(saved_describe(m));
    TR_TRY(saved_head(s, f));
    if (reads) TR_TRY(tr_fields_dtype(f, "weights", &s->dtype));
    int status =
        tr_field_filled(f, "weights", s->dtype == TR_F32 ? TR_FIELD_F32 : TR_FIELD_F64, s->features,
                        s->outputs > 1 ? s->outputs : 0, "weight i is of index first_index + i of the data",
                        saved_fill_weights, &s->weight);
    (void)tr_linear_text_close(&m->text, TR_ERR_IO); /* deletes model.txt if it is not complete */
    TR_TRY(status);
    /* the bias follows the weights, because scaling back changes it. It has the type of the weights, but is read as f64 */
    size_t rows = s->outputs > 1 ? s->outputs : 0;
    if (reads) s->biased = tr_fields_have(f, "bias");
    if (reads && !s->biased) {
        TR_TRY(TR_NEW(&s->bias, s->outputs));
    } else if (s->biased && (reads || s->dtype == TR_F64)) {
        TR_TRY(tr_field_array(f, "bias", TR_FIELD_F64, rows, 0, NULL, &s->bias));
    } else if (s->biased) {
        TR_FREED float *f32 = NULL;
        TR_TRY(TR_NEW(&f32, s->outputs));
        for (size_t k = 0; k < s->outputs; k++) f32[k] = (float)s->bias[k];
        TR_TRY(tr_field_array(f, "bias", TR_FIELD_F32, rows, 0, NULL, &f32));
    }
    if (m->scale) TR_TRY(tr_table_drop(&m->scale));
    return reads ? model_check(s, "model.h5") : TR_OK;
}

/* ---- model.init ---- */

/* Copies the weights of s, which was read from `path`, to m->initial. Outputs need no reordering: both models ascend by labels. */
static int initial_copy(struct tr_linear *m, const struct tr_linear_model *s, const char *path)
{
    const char *where = tr_job_where(m->job, "model.init");
    size_t outputs = m->outputs;
    bool classifies = tr_linear_classifies(m) || tr_linear_model_classifies(s),
         same = !classifies || (tr_linear_classifies(m) && tr_linear_model_classifies(s) &&
                                s->labels == m->train->labels && s->outputs == outputs);
    for (size_t i = 0; classifies && same && i < s->labels; i++)
        same = tr_label_place(m->train->label, m->train->labels, s->label[i]) < m->train->labels;
    if (!same)
        return tr_fail(
            TR_ERR_DATA,
            "%s: model.init %s: its labels are not those of the training data: expected a model of %s", where,
            path, tr_linear_classifies(m) ? "the same labels" : "regression");
    /* the columns of csv files have no numbers, and are assumed to have the same order */
    bool table = m->train->format == TR_FORMAT_CSV;
    uint64_t columns = m->train->columns, from_zero = table ? s->first_index : m->train->first_index;
    for (uint64_t i = 0; i < s->features; i++)
        for (size_t o = 0; o < outputs; o++) {
            double w = tr_linear_model_weight(s, i * outputs + o);
            uint64_t index = s->first_index + i; /* index of the feature in data files */
            if (w == 0) continue;
            if (index < from_zero || index - from_zero >= columns)
                return tr_fail(
                    TR_ERR_DATA,
                    "%s: model.init %s has a weight for feature %llu, the training data end before it: "
                    "expected data.features to say how many there are",
                    where, path, (unsigned long long)index);
            m->initial[(index - from_zero) * outputs + o] = w;
        }
    for (size_t o = 0; s->biased && o < outputs; o++) {
        m->initial[columns * outputs + o] = s->bias[o];
        if (s->bias[o] != 0 && !m->o->bias)
            return tr_fail(TR_ERR_DATA, "%s: model.init %s has a bias: expected model.bias: yes", where,
                           path);
    }
    return TR_OK;
}

int tr_linear_read_initial(struct tr_linear *m)
{
    size_t n = ((size_t)m->train->columns + 1) * m->outputs;
    int status = TR_OK;
    if (!*m->o->init) return TR_OK;
    TR_TRY(tr_agree(m->tr, TR_NEW(&m->initial, n)));
    if (tr_rank(m->tr) == 0) {
        void *model = NULL;
        status = tr_model_load(m->tr, m->o->init, &model);
        if (status == TR_OK) status = initial_copy(m, &((const struct tr_linear *)model)->saved, m->o->init);
        tr_model_unload(m->tr, &model);
    }
    TR_TRY(tr_agree(m->tr, status));
    tr_say(m->tr, "begins with:   the weights of %s", m->o->init);
    return tr_broadcast(m->tr, TR_SET_ALL, 0, m->initial, n * sizeof *m->initial);
}

/* Pushes the initial weights. If rows are scaled, w_j becomes w_j / factor_j, and Σ w_j shift_j is added to the bias. Without
 * model.init, the initial bias is the best constant. */
static int initial_put(tr_worker *me, void *state)
{
    struct put_stage *p = state;
    const struct tr_linear *m = p->m;
    const tr_scaling *s = m->train->scaling;
    enum tr_dtype dtype = (enum tr_dtype)m->o->dtype;
    size_t outputs = m->outputs;
    for (size_t o = 0; o < outputs; o++) {
        double start = m->initial ? m->initial[m->train->columns * outputs + o] : m->start;
        double bias = me->worker == 0 ? start : 0;
        for (size_t j = 0; j < p->n; j++) {
            double w = m->initial[(p->first + j) * outputs + o];
            tr_real_set(dtype, p->view->delta, j * outputs + o,
                        s && s->factor[j] != 0 ? w / s->factor[j] : w);
            if (s && s->centred) bias += w * s->shift[j];
        }
        if (m->o->bias) tr_real_set(dtype, p->view->delta, p->n * outputs + o, bias);
    }
    return tr_view_push(p->view);
}

int tr_linear_put_initial(struct tr_linear *m)
{
    struct put_stage put = {.m = m, .table = m->w, .each = m->initial != NULL, .bias = m->o->bias};
    bool starts = m->solver->from_w && m->o->bias && !m->o->bias_l2 && m->start != 0;
    return m->initial || starts ? put_run(&put, "initial", initial_put) : TR_OK;
}

/* ---- predict and evaluate ---- */

static bool has_probabilities(const struct tr_loss *loss)
{
    return loss->mean && tr_loss_classifies(loss);
}

int tr_linear_ready(void *model, tr_query *q)
{
    struct tr_linear *m = model;
    const struct tr_linear_model *s = &m->saved;
    bool probability = tr_query_given(q, "--probability"), margin = tr_query_given(q, "--margin");
    if (probability && margin)
        return tr_fail(TR_ERR_USAGE, "predict: unexpected --margin beside --probability");
    if (probability && !has_probabilities(s->loss))
        return tr_fail(TR_ERR_USAGE, "--probability expects a logistic model, and this one is of type %s",
                       s->loss->type);
    bool margins =
        (tr_query_command(q) == TR_EVALUATE && !probability) || margin || !tr_linear_model_classifies(s);
    const struct tr_test_metrics metrics = {
        .loss = s->loss, .shape = s->shape, .outputs = s->outputs, .joint = s->softmax};
    TR_TRY(tr_evaluated_open(&metrics, s->labels, &m->evaluated));
    m->output = probability ? TR_OUT_PROBABILITY : margins ? TR_OUT_MARGIN : TR_OUT_LABEL;
    tr_query_rows(q, TR_ROWS_SPARSE, s->features, s->first_index);
    bool mean = s->loss->mean && !tr_linear_model_classifies(s);
    if (mean && tr_query_command(q) == TR_PREDICT && !margin) m->output = TR_OUT_MEAN;
    if (s->label_column < TR_LABEL_AUTO) tr_query_label(q, (int)s->label_column);
    const char *what = probability ? "probability" : margins ? "margin" : "label";
    size_t columns = m->output == TR_OUT_LABEL ? 1 : s->outputs;
    for (size_t k = 0; k < columns; k++) {
        char name[2 * TR_LABEL_TEXT + 64], label[2][TR_LABEL_TEXT] = {"", ""};
        if (s->label) tr_query_label_text(q, s->label[k], label[0]);
        if (s->label && s->labels == 2) tr_query_label_text(q, s->label[1], label[1]);
        /* ensembles average columns of several models by name: equal names must mean equal quantities */
        snprintf(name, sizeof name, "%s", what);
        if (columns > 1) snprintf(name, sizeof name, "%s of label %s", what, label[0]);
        else if (s->label && s->labels == 2 && m->output != TR_OUT_LABEL)
            snprintf(name, sizeof name, "%s of label %s, not %s", what, label[0], label[1]);
        TR_TRY(tr_query_output(q, name, m->output == TR_OUT_LABEL ? TR_AS_LABEL : TR_SHORTEST));
    }
    return TR_OK;
}

/* Selects the quantity whose mean an ensemble predicts: probabilities if all models are logistic, otherwise margins of classifiers,
 * or values that regressions predict. */
int tr_linear_mean(const tr_job *const *jobs, size_t n, const char **flag, size_t *by)
{
    size_t logistic = 0, regression = 0;
    for (size_t i = 0; i < n; i++) {
        const struct tr_loss *loss = tr_linear_loss(jobs[i]);
        if (loss->mean && !tr_loss_classifies(loss))
            return tr_fail(TR_ERR_CONFIG, "models of type %s predict no margins, which have a mean",
                           loss->type);
        logistic += has_probabilities(loss);
        regression += !tr_loss_classifies(loss);
        if (!has_probabilities(loss)) *by = i; /* model i evaluates the mean, because it has no log loss */
    }
    *flag = logistic == n ? "--probability" : NULL;
    return regression == 0 || regression == n
               ? TR_OK
               : tr_fail(TR_ERR_CONFIG, "classifiers and regression have no mean");
}

int tr_linear_predict(void *model, tr_query *q, const tr_records *records, double *out)
{
    const struct tr_linear *m = model;
    const struct tr_linear_model *s = &m->saved;
    const tr_batch *rows = &records->rows;
    size_t width = s->outputs, n = m->output == TR_OUT_LABEL ? 1 : width;
    TR_FREED double *margin = NULL;
    (void)q;
    TR_TRY(TR_NEW(&margin, width));
    if (s->offsets && !rows->offset)
        return tr_fail(TR_ERR_USAGE,
                       "the model was trained with data.offset: expected data.offset=FILE with one "
                       "number for each row of the data");
    for (size_t i = 0; i < rows->n; i++, out += n) {
        memcpy(margin, s->bias, width * sizeof *margin);
        for (uint64_t k = rows->begin[i]; k < rows->begin[i + 1]; k++) {
            double value = rows->value ? (double)rows->value[k] : 1;
            uint64_t first = rows->column[k] * width;
            for (size_t o = 0; o < width; o++) margin[o] += value * tr_linear_model_weight(s, first + o);
        }
        if (rows->offset) *margin += (double)rows->offset[i]; /* models with offsets have one output */
        if (m->output == TR_OUT_LABEL) { /* with one output, the positive label (class 1) is the first */
            size_t class = tr_predicted_class(margin, width);
            *out = (double)s->label[width > 1 ? class : 1 - class];
            continue;
        }
        if (m->output == TR_OUT_PROBABILITY && width > 1)
            tr_margins_to_probabilities(s->loss, s->softmax, width, margin);
        else if (m->output == TR_OUT_PROBABILITY || m->output == TR_OUT_MEAN)
            *margin = s->loss->mean(*margin);
        memcpy(out, margin, n * sizeof *out);
    }
    return TR_OK;
}

int tr_linear_evaluate_rows(void *model, tr_query *q, const tr_records *records, const double *out)
{
    struct tr_linear *m = model;
    const struct tr_linear_model *s = &m->saved;
    const tr_batch *rows = &records->rows;
    size_t width = s->outputs;
    TR_FREED double *margin = NULL;
    (void)q;
    TR_TRY(TR_NEW(&margin, width));
    for (size_t i = 0; i < rows->n; i++) {
        double weight = rows->weight ? (double)rows->weight[i] : 1;
        for (size_t k = 0; k < width; k++) {
            double x = margin[k] = out[i * width + k];
            /* the mean is one of probabilities: converts them back to margins */
            if (m->output == TR_OUT_PROBABILITY)
                margin[k] = fmin(fmax(s->softmax ? log(fmax(x, 1e-300)) : log(x) - log1p(-x), -700), 700);
        }
        if (!rows->label || isnan(rows->label[i])) return tr_records_fail(records, i, "expected a label");
        double target = (double)rows->label[i];
        if (tr_linear_model_classifies(s)) { /* with one output, the positive label (class 1) is the first */
            size_t is = 0;
            while (is < s->labels && s->label[is] != rows->label[i]) is++;
            target = is == s->labels ? (double)NAN : (double)(width == 1 ? is == 0 : is);
        }
        TR_TRY(tr_evaluated_add(m->evaluated, margin, target, weight));
    }
    return TR_OK;
}

int tr_linear_figures(void *model, tr_query *q, uint64_t rows)
{
    const struct tr_linear *m = model;
    const struct tr_linear_model *s = &m->saved;
    bool reversed = tr_linear_model_classifies(s) && s->outputs == 1;
    return tr_evaluated_figures(m->evaluated, q, rows,
                                reversed ? (float[]){s->label[1], s->label[0]} : s->label);
}

/* ---- inspect ---- */

/* Prints the weights of an output with the largest sign × weight, above 0. */
static int inspect_top(const struct tr_linear_model *m, tr_query *q, size_t output, double sign)
{
    size_t n = 0, most = (size_t)tr_query_number(q, "--top", 10);
    char of[TR_LABEL_TEXT + 16] = "", label[TR_LABEL_TEXT];
    uint64_t weights = m->features * m->outputs;
    TR_FREED uint64_t *top = NULL; /* indices of the n largest so far, in descending order */
    if (m->outputs > 1) {
        tr_query_label_text(q, m->label[output], label);
        snprintf(of, sizeof of, " for label %s", label);
    }
    TR_TRY(TR_NEW(&top, most));
    for (uint64_t i = model_next_weight(m, 0); i < weights; i = model_next_weight(m, i + 1)) {
        double w = sign * tr_linear_model_weight(m, i);
        if (i % m->outputs != output || w <= 0) continue;
        size_t at = n;
        if (n < most) n++;
        else if (w > sign * tr_linear_model_weight(m, top[n - 1])) at--;
        else continue;
        for (; at > 0 && sign * tr_linear_model_weight(m, top[at - 1]) < w; at--) top[at] = top[at - 1];
        top[at] = i;
    }
    const char *kind = sign > 0 ? "positive" : "negative";
    if (n > 0) TR_TRY(tr_print(q, "\nlargest %s weights%s\n%12s  weight\n", kind, of, "feature"));
    for (size_t i = 0; i < n; i++) {
        char name[TR_LABEL_TEXT];
        tr_query_key_text(q, top[i] / m->outputs, m->first_index, name);
        TR_TRY(tr_print(q, "%12s  %+.6g\n", name, tr_linear_model_weight(m, top[i])));
    }
    return TR_OK;
}

int tr_linear_inspect(void *model, tr_query *q)
{
    const struct tr_linear_model *m = &((struct tr_linear *)model)->saved;
    enum { MOST_LABELS = 100 };
    uint64_t nonzero = 0;
    double squares = 0, least = INFINITY, most = -INFINITY;
    uint64_t weights = m->features * m->outputs;
    for (uint64_t i = model_next_weight(m, 0); i < weights; i = model_next_weight(m, i + 1)) {
        double w = tr_linear_model_weight(m, i);
        nonzero++;
        squares += w * w;
        least = fmin(least, w);
        most = fmax(most, w);
    }
    if (nonzero < weights) {
        least = fmin(least, 0);
        most = fmax(most, 0);
    }
    char label[TR_LABEL_TEXT], other[TR_LABEL_TEXT];
    if (tr_linear_model_classifies(m) && m->outputs == 1) {
        tr_query_label_text(q, m->label[0], label);
        tr_query_label_text(q, m->label[1], other);
        tr_line(q, "labels", "%s (positive), %s", label, other);
    } else if (tr_linear_model_classifies(m)) {
        const char *kind = m->softmax ? "softmax" : "each against the rest";
        TR_TRY(tr_print(q, "%-13s %zu, %s:", "labels", m->labels, kind));
        for (size_t i = 0; i < m->labels && i < MOST_LABELS; i++) {
            tr_query_label_text(q, m->label[i], label);
            TR_TRY(tr_print(q, " %s", label));
        }
        TR_TRY(tr_print(q, "%s\n", m->labels > MOST_LABELS ? " ..." : ""));
    }
    tr_line(q, "features", "%llu, the first has index %llu", (unsigned long long)m->features,
            (unsigned long long)m->first_index);
    tr_line(q, "weights", "%llu not zero (%.3g %%), %s", (unsigned long long)nonzero,
            100 * (double)nonzero / (double)weights, m->dtype == TR_F32 ? "f32" : "f64");
    tr_line(q, "range", "%.6g to %.6g", least, most);
    tr_line(q, "norm", "%.6g", sqrt(squares));
    if (m->biased && m->outputs == 1) tr_line(q, "bias", "%.6g", *m->bias);
    else if (m->biased) tr_line(q, "bias", "%.6g for label %.9g, ...", *m->bias, (double)*m->label);
    else tr_line(q, "bias", "none");
    if (m->loss->shape != TR_SHAPE_NONE) tr_line(q, tr_shape_name[m->loss->shape], "%.6g", m->shape);
    if (m->rows > 0) tr_line(q, "trained on", "%llu rows", (unsigned long long)m->rows);
    if (!isnan(m->l2)) tr_line(q, "l2", "%.6g", m->l2);
    if (!isnan(m->objective)) tr_line(q, "objective", "%.9g", m->objective);
    for (size_t k = 0; k < m->outputs; k++) TR_TRY(inspect_top(m, q, k, 1));
    return m->outputs > 1 ? TR_OK : inspect_top(m, q, 0, -1);
}

uint64_t tr_linear_keys(const void *model, enum tr_dtype *dtype, const char **with)
{
    const struct tr_linear_model *s = &((const struct tr_linear *)model)->saved;
    *dtype = s->dtype;
    *with = s->biased ? "the bias" : NULL;
    return s->features + s->biased;
}

void tr_linear_saved_close(struct tr_linear *m)
{
    tr_linear_model_free(&m->saved);
    (void)tr_linear_text_close(&m->text, TR_ERR_IO);
    tr_evaluated_close(&m->evaluated);
}
