#define _GNU_SOURCE
#include <errno.h>
#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "linear.h"

static const char *const names[] = {
    [TR_LOSS_LOGISTIC] = "logistic", [TR_LOSS_LINEAR] = "linear", [TR_LOSS_SVM] = "svm",
    [TR_LOSS_L2SVM] = "l2svm",       [TR_LOSS_HUBER] = "huber",   [TR_LOSS_QUANTILE] = "quantile",
    [TR_LOSS_POISSON] = "poisson"};

const char *tr_linear_model_name(int type)
{
    return names[type];
}

void tr_linear_model_free(struct tr_linear_model *model)
{
    free(model->weight);
    free(model->bias);
    free(model->label);
    model->weight = NULL;
    model->bias = NULL;
    model->label = NULL;
}

static int check_weights(const struct tr_linear_model *m, const char *path)
{
    for (uint64_t i = 0; i < m->features * m->outputs; i++)
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
static int check_labels(const struct tr_linear_model *m, bool *fine)
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

/* ================ model.txt, read ================ */

struct scanner {
    const char *at, *end, *path;
    uint64_t line;
    locale_t locale; /* a point for a point, whatever the user's language */
};

static int bad_text(const struct scanner *s, const char *what)
{
    return tr_fail(TR_ERR_DATA, "%s:%llu: %s", s->path, (unsigned long long)s->line, what);
}

static void skip_blanks(struct scanner *s)
{
    while (s->at < s->end && (*s->at == ' ' || *s->at == '\t' || *s->at == '\r')) s->at++;
}

/* The next word of this line; empty at its end. A longer one is cut. */
static void next_word(struct scanner *s, char word[64])
{
    size_t n = 0;
    skip_blanks(s);
    for (; s->at < s->end && !strchr(" \t\r\n", *s->at); s->at++)
        if (n < 63) word[n++] = *s->at;
    word[n] = '\0';
}

static int end_line(struct scanner *s)
{
    skip_blanks(s);
    if (s->at == s->end) return bad_text(s, "the model is cut off here");
    if (*s->at != '\n') return bad_text(s, "found more than one expects in this line");
    s->at++;
    s->line++;
    return TR_OK;
}

static int next_number(struct scanner *s, double *number)
{
    skip_blanks(s);
    if (s->at == s->end) return bad_text(s, "the model is cut off here");
    if (*s->at == '\n') return bad_text(s, "expected a number, found the end of the line");
    char *behind;
    *number = strtod_l(s->at, &behind, s->locale);
    if (behind == s->at || !strchr(" \t\r\n", *behind)) return bad_text(s, "expected a number");
    s->at = behind;
    return TR_OK;
}

static int solver_type(const struct scanner *s, const char *word, int *type)
{
    static const struct {
        const char *name;
        int type;
    } solvers[] = {{"L2R_LR", TR_LOSS_LOGISTIC},           {"L2R_LR_DUAL", TR_LOSS_LOGISTIC},
                   {"L1R_LR", TR_LOSS_LOGISTIC},           {"L2R_L1LOSS_SVC_DUAL", TR_LOSS_SVM},
                   {"L2R_L2LOSS_SVC", TR_LOSS_L2SVM},      {"L2R_L2LOSS_SVC_DUAL", TR_LOSS_L2SVM},
                   {"L1R_L2LOSS_SVC", TR_LOSS_L2SVM},      {"MCSVM_CS", TR_LOSS_SVM},
                   {"L2R_L2LOSS_SVR", TR_LOSS_LINEAR},     {"L2R_L2LOSS_SVR_DUAL", TR_LOSS_LINEAR},
                   {"L2R_L1LOSS_SVR_DUAL", TR_LOSS_LINEAR}};
    for (size_t i = 0; i < sizeof solvers / sizeof *solvers; i++)
        if (strcmp(solvers[i].name, word) == 0) {
            *type = solvers[i].type;
            return TR_OK;
        }
    return bad_text(s, "this solver_type is none of a linear model of classes or of regression");
}

struct head {
    bool solver, features;
    bool joint;  /* a margin for each class even of two */
    double bias; /* its feature's value; not above 0: none */
};

static int read_labels(struct scanner *s, struct tr_linear_model *m)
{
    bool fine;
    TR_TRY(TR_NEW(&m->label, m->labels));
    for (size_t i = 0; i < m->labels; i++) {
        double label;
        TR_TRY(next_number(s, &label));
        m->label[i] = (float)label;
    }
    TR_TRY(check_labels(m, &fine));
    return fine ? TR_OK
                : bad_text(s, m->labels == 2 ? "expected two labels that differ"
                                             : "expected labels that differ");
}

static int read_count(struct scanner *s, double least, double most, uint64_t *count)
{
    double number;
    TR_TRY(next_number(s, &number));
    if (!(number >= least && number <= most) || number != floor(number))
        return bad_text(s, "this count is impossible");
    *count = (uint64_t)number;
    return TR_OK;
}

static int read_classes(struct scanner *s, struct tr_linear_model *m)
{
    uint64_t classes = 0;
    TR_TRY(read_count(s, 1, 1e9, &classes));
    if (classes < 2 || classes > TR_LINEAR_CLASSES)
        return bad_text(s, "expected a model of two classes or more");
    if (m->label) return bad_text(s, "expected nr_class before label");
    m->labels = classes;
    return TR_OK;
}

/* One line of the head; *more is false behind «w». */
static int read_head_line(struct scanner *s, struct tr_linear_model *m, struct head *head, bool *more)
{
    char word[64];
    next_word(s, word);
    if (strcmp(word, "w") == 0) {
        *more = false;
    } else if (strcmp(word, "solver_type") == 0) {
        next_word(s, word);
        TR_TRY(solver_type(s, word, &m->type));
        head->joint = strcmp(word, "MCSVM_CS") == 0;
        head->solver = true;
    } else if (strcmp(word, "nr_class") == 0) {
        TR_TRY(read_classes(s, m));
    } else if (strcmp(word, "label") == 0) {
        if (m->label) return bad_text(s, "label stands here a second time");
        TR_TRY(read_labels(s, m));
    } else if (strcmp(word, "nr_feature") == 0) {
        TR_TRY(read_count(s, 1, 9e15, &m->features));
        head->features = true;
    } else if (strcmp(word, "bias") == 0) {
        TR_TRY(next_number(s, &head->bias));
        if (!isfinite(head->bias)) return bad_text(s, "the bias is not finite");
    } else {
        return bad_text(s, s->line == 1      ? "not a model"
                           : s->at == s->end ? "the model is cut off here"
                                             : "unknown word");
    }
    return end_line(s);
}

static int read_head(struct scanner *s, struct tr_linear_model *m, struct head *head)
{
    for (bool more = true; more;) TR_TRY(read_head_line(s, m, head, &more));
    m->biased = head->bias > 0;
    if (!head->solver || !head->features || (tr_linear_model_classifies(m) && !m->label))
        return bad_text(s, "expected solver_type, label and nr_feature before the weights");
    m->outputs = tr_linear_model_classifies(m) && (m->labels > 2 || head->joint) ? m->labels : 1;
    uint64_t most = (uint64_t)(s->end - s->at) / 2; /* a digit and a blank each */
    if (m->features + m->biased <= most / m->outputs) return TR_OK;
    return tr_fail(TR_ERR_DATA, "%s: the model is cut off: there cannot be %llu weights in it", s->path,
                   (unsigned long long)((m->features + m->biased) * m->outputs));
}

/* Whether the number was a float when it was written, so that reading it as one gives the same bits. */
static bool is_float(double x, const char *text, const char *end)
{
    char again[TR_NUMBER_ROOM];
    return fabs(x) < 3.4e38 && tr_put_f32(again, (float)x) - again == end - text &&
           memcmp(again, text, (size_t)(end - text)) == 0;
}

/* Those of one feature, or of the bias: a line. */
static int read_line(struct scanner *s, struct tr_linear_model *m, double *weight)
{
    for (size_t k = 0; k < m->outputs; k++) {
        skip_blanks(s);
        const char *begin = s->at;
        if (begin + 1 < s->end && begin[0] == '0' && (begin[1] == '\n' || begin[1] == ' ')) {
            s->at++;
        } else {
            TR_TRY(next_number(s, &weight[k]));
            if (m->dtype == TR_F32 && !is_float(weight[k], begin, s->at)) m->dtype = TR_F64;
        }
    }
    return end_line(s);
}

/* What LIBLINEAR has no word for stands behind the weights, where it does not look. */
static int read_end(struct scanner *s, struct tr_linear_model *m)
{
    char word[64];
    bool known;
    next_word(s, word);
    m->softmax = m->outputs > 1 && strcmp(word, "softmax") == 0;
    for (int type = TR_LOSS_HUBER; type <= TR_LOSS_POISSON && m->type == TR_LOSS_LINEAR; type++)
        if (strcmp(word, names[type]) == 0) m->type = type;
    known = m->softmax || m->type >= TR_LOSS_HUBER;
    if (m->type == TR_LOSS_HUBER || m->type == TR_LOSS_QUANTILE) TR_TRY(next_number(s, &m->shape));
    while (s->at < s->end && strchr(" \t\r\n", *s->at) && *s->at) s->at++;
    return s->at == s->end && (known || !*word)
               ? TR_OK
               : bad_text(s, "expected the end, found more weights than nr_feature says");
}

static int read_weights(struct scanner *s, struct tr_linear_model *m, const struct head *head)
{
    double *weight;
    TR_TRY(TR_NEW(&weight, (m->features + m->biased) * m->outputs));
    m->weight = weight;
    m->dtype = TR_F32;
    TR_TRY(TR_NEW(&m->bias, m->outputs));
    for (uint64_t i = 0; i < m->features + m->biased; i++) TR_TRY(read_line(s, m, weight + i * m->outputs));
    for (size_t k = 0; m->biased && k < m->outputs; k++)
        m->bias[k] = weight[m->features * m->outputs + k] * head->bias;
    return read_end(s, m);
}

static void weights_to_float(struct tr_linear_model *m)
{
    double *from = m->weight;
    float *to = m->weight; /* in place: a float ends before the double it comes from */
    for (uint64_t i = 0; i < m->features * m->outputs; i++) {
        float x = (float)from[i];
        memcpy(&to[i], &x, sizeof x);
    }
    for (size_t k = 0; k < m->outputs; k++) m->bias[k] = (double)(float)m->bias[k];
}

static int parse_text(struct scanner *s, struct tr_linear_model *m)
{
    struct head head = {.bias = -1};
    TR_TRY(read_head(s, m, &head));
    TR_TRY(read_weights(s, m, &head));
    if (!m->label) m->labels = 0;
    if (m->dtype == TR_F32) weights_to_float(m);
    return check_weights(m, s->path);
}

int tr_linear_model_parse_text(const char *text, size_t length, const char *path,
                               struct tr_linear_model *model)
{
    struct tr_linear_model m = {.first_index = 1, .labels = 2, .l2 = NAN, .objective = NAN};
    struct scanner s = {.at = text, .end = text + length, .path = path, .line = 1};
    s.locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    int status = parse_text(&s, &m);
    freelocale(s.locale);
    if (status == TR_OK) *model = m;
    else tr_linear_model_free(&m);
    return status;
}

int tr_linear_read_text(void *model, const char *path, const char **type)
{
    struct tr_linear_model *saved = &((struct tr_linear *)model)->saved;
    char *text = NULL;
    size_t room = 0, length = 0, n;
    int status = TR_OK;
    FILE *file = fopen(path, "re");
    if (!file) return tr_fail(TR_ERR_NO_INPUT, "%s: %s", path, strerror(errno));
    do {
        status = TR_GROW(&text, &room, length + (1 << 16) + 1);
        n = status == TR_OK ? fread(text + length, 1, room - length - 1, file) : 0;
        length += n;
    } while (n > 0);
    if (status == TR_OK && ferror(file)) status = tr_fail(TR_ERR_IO, "%s: cannot be read", path);
    fclose(file);
    if (status == TR_OK) {
        text[length] = '\0';
        status = tr_linear_model_parse_text(text, length, path, saved);
        saved->label_column = TR_LABEL_AUTO;
    }
    free(text);
    if (status == TR_OK) *type = names[saved->type];
    return status;
}

/* ================ model.txt, written ================ */

struct tr_linear_text {
    char *path, *part; /* its name, and the one it has until it is complete */
    FILE *file;
    size_t outputs; /* weights of a line */
    char end[64];   /* what stands behind them */
    locale_t c;     /* numbers with a point for a point, whatever the user's language */
};

static int failed(int status, const char *path)
{
    return tr_fail(status, "%s: cannot be written: %s", path, strerror(errno));
}

/* LIBLINEAR's solver that minimises the same, in whose hands the model then is. */
static const char *solver_name(int type)
{
    switch (type) {
    case TR_LOSS_LOGISTIC: return "L2R_LR";
    case TR_LOSS_SVM: return "L2R_L1LOSS_SVC_DUAL";
    case TR_LOSS_L2SVM: return "L2R_L2LOSS_SVC";
    default: return "L2R_L2LOSS_SVR";
    }
}

int tr_linear_text_create(const char *folder, const struct tr_linear_model *head,
                          struct tr_linear_text **text)
{
    struct tr_linear_text *t;
    TR_TRY(TR_NEW(&t, 1));
    *text = t;
    TR_TRY(tr_format(&t->path, "%s/model.txt", folder));
    TR_TRY(tr_format(&t->part, "%s/model.txt.part", folder));
    t->c = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    t->file = fopen(t->part, "we");
    if (!t->file) return failed(TR_ERR_NO_OUTPUT, t->path);
    t->outputs = head->outputs;
    if (head->softmax) snprintf(t->end, sizeof t->end, "softmax\n");
    if (head->type == TR_LOSS_POISSON) snprintf(t->end, sizeof t->end, "poisson\n");
    bool classifies = tr_linear_model_classifies(head);
    fprintf(t->file, "solver_type %s\nnr_class %zu\n", solver_name(head->type),
            classifies ? head->labels : 2);
    locale_t old = uselocale(t->c);
    if (head->shape > 0) snprintf(t->end, sizeof t->end, "%s %.17g\n", names[head->type], head->shape);
    for (size_t i = 0; classifies && i < head->labels; i++)
        fprintf(t->file, "%s %.9g", i == 0 ? "label" : "", (double)head->label[i]);
    uselocale(old);
    fprintf(t->file, "%snr_feature %llu\nbias %d\nw\n", classifies ? "\n" : "",
            (unsigned long long)head->features, head->biased ? 1 : -1);
    return TR_OK;
}

int tr_linear_text_append(struct tr_linear_text *t, enum tr_dtype dtype, const void *weights, size_t n)
{
    char number[TR_NUMBER_ROOM + 1];
    locale_t old = uselocale(t->c);
    for (size_t i = 0; i < n * t->outputs; i++) {
        char *end = dtype == TR_F32 ? tr_put_f32(number, ((const float *)weights)[i])
                                    : tr_put_f64(number, ((const double *)weights)[i]);
        *end++ = (i + 1) % t->outputs == 0 ? '\n' : ' ';
        fwrite_unlocked(number, 1, (size_t)(end - number), t->file);
    }
    uselocale(old);
    return ferror(t->file) ? failed(TR_ERR_IO, t->path) : TR_OK;
}

/* It has its final name only when it is complete and on the disk. */
int tr_linear_text_finish(struct tr_linear_text *t)
{
    fputs(t->end, t->file);
    if (fflush(t->file) != 0 || fsync(fileno(t->file)) < 0) return failed(TR_ERR_IO, t->path);
    int closed = fclose(t->file);
    t->file = NULL;
    return closed != 0 || rename(t->part, t->path) < 0 ? failed(TR_ERR_IO, t->path) : TR_OK;
}

void tr_linear_text_close(struct tr_linear_text **text)
{
    struct tr_linear_text *t = *text;
    if (!t) return;
    if (t->file) {
        fclose(t->file);
        unlink(t->part);
    }
    if (t->c) freelocale(t->c);
    free(t->path);
    free(t->part);
    free(t);
    *text = NULL;
}

/* ================ model.h5 ================ */

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
    m->saved = (struct tr_linear_model){.type = m->type,
                                        .dtype = m->train->scaling ? TR_F64 : (enum tr_dtype)m->o->dtype,
                                        .features = m->train->columns,
                                        .first_index = m->train->first_index,
                                        .label_column = (uint64_t)m->train->label_column,
                                        .outputs = m->outputs,
                                        .softmax = m->softmax,
                                        .biased = m->o->bias,
                                        .shape = tr_linear_shape(m->o, m->type),
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

/* Weights for model.h5 go into model.txt on their way. */
static int fill_weights(void *model, uint64_t first, size_t n, void *values)
{
    struct tr_linear *m = model;
    const char *folder;
    TR_TRY(m->scale ? read_scaled(m, first, n, values) : tr_table_read(m->w, first, n, values));
    TR_TRY(tr_job_string(m->job, "output", &folder));
    if (first == 0) TR_TRY(tr_linear_text_create(folder, &m->saved, &m->text));
    TR_TRY(tr_linear_text_append(m->text, m->saved.dtype, values, n));
    return first + n == m->saved.features ? end_text(m) : TR_OK;
}

static int read_type(struct tr_linear_model *s, char *name)
{
    for (s->type = TR_LOSSES - 1; s->type >= 0; s->type--)
        if (strcmp(names[s->type], name) == 0) break;
    int status =
        s->type >= 0 ? TR_OK : tr_fail(TR_ERR_DATA, "model.h5: the model is of the unknown kind %.40s", name);
    free(name);
    return status;
}

static int head_fields(struct tr_linear_model *s, tr_fields *f)
{
    char *name = (char *)(uintptr_t)names[s->type];
    TR_TRY(tr_field_text(f, "model", &name));
    if (tr_fields_read(f)) TR_TRY(read_type(s, name));
    TR_TRY(tr_field_count(f, "features", &s->features));
    TR_TRY(tr_field_count(f, "first_index", &s->first_index));
    if (s->type == TR_LOSS_HUBER) TR_TRY(tr_field_real(f, "delta", &s->shape));
    if (s->type == TR_LOSS_QUANTILE) TR_TRY(tr_field_real(f, "quantile", &s->shape));
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
    TR_TRY(check_labels(s, &fine));
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
    if (status == TR_OK && tr_fields_read(f)) status = check_weights(s, "model.h5");
    return status;
}

/* ================ rows that are asked for ================ */

struct tr_linear_evaluation {
    uint64_t rows, right;
    double loss;                        /* classifiers: log-loss */
    double squares, absolutes, special; /* regression: of the errors; deviance, pinball loss */
    struct {
        uint64_t rows, predicted, right;
    } * of_class;        /* several outputs: by label */
    double mean, spread; /* of the labels: running mean, and Σ (y - mean)² (Welford) */
    float *score;        /* classifiers: for the area, which needs all of them */
    signed char *positive;
    size_t score_capacity, positive_capacity;
};

int tr_linear_ready(void *model, tr_query *q)
{
    struct tr_linear *m = model;
    const struct tr_linear_model *s = &m->saved;
    bool probability = tr_query_given(q, "--probability"), margin = tr_query_given(q, "--margin");
    if (probability && margin)
        return tr_fail(TR_ERR_USAGE, "predict: unexpected --margin beside --probability");
    if (probability && s->type != TR_LOSS_LOGISTIC)
        return tr_fail(TR_ERR_USAGE, "--probability expects a logistic model, and this one is of type %s",
                       names[s->type]);
    bool margins =
        (tr_query_command(q) == TR_EVALUATE && !probability) || margin || !tr_linear_model_classifies(s);
    TR_TRY(TR_NEW(&m->evaluation, 1));
    TR_TRY(TR_NEW(&m->evaluation->of_class, s->labels));
    m->output = probability ? TR_OUT_PROBABILITY : margins ? TR_OUT_MARGIN : TR_OUT_LABEL;
    tr_query_rows(q, TR_ROWS_SPARSE, s->features, s->first_index);
    if (s->type == TR_LOSS_POISSON && tr_query_command(q) == TR_PREDICT && !margin) m->output = TR_OUT_MEAN;
    if (s->label_column < TR_LABEL_AUTO) tr_query_label(q, (int)s->label_column);
    const char *what = probability ? "probability" : margins ? "margin" : "label";
    size_t columns = m->output == TR_OUT_LABEL ? 1 : s->outputs;
    for (size_t k = 0; k < columns; k++) {
        char name[64]; /* two models whose outputs have the same names mean the same */
        snprintf(name, sizeof name, "%s", what);
        if (columns > 1) snprintf(name, sizeof name, "%s of label %.9g", what, (double)s->label[k]);
        else if (s->label && s->labels == 2 && m->output != TR_OUT_LABEL)
            snprintf(name, sizeof name, "%s of label %.9g, not %.9g", what, (double)s->label[0],
                     (double)s->label[1]);
        TR_TRY(tr_query_output(q, name, TR_SHORTEST));
    }
    return TR_OK;
}

/* Of probabilities if all are logistic, of margins of other classifiers, of what regression predicts. */
int tr_linear_mean(const tr_job *const *jobs, size_t n, const char **flag, size_t *by)
{
    size_t logistic = 0, regression = 0;
    for (size_t i = 0; i < n; i++) {
        int type = tr_job_type(jobs[i]);
        if (type == TR_LOSS_AUTO) type = TR_LOSS_LOGISTIC; /* others are to be named, to have a mean */
        if (type == TR_LOSS_POISSON)
            return tr_fail(TR_ERR_CONFIG, "models of type poisson predict no margins, which have a mean");
        logistic += type == TR_LOSS_LOGISTIC;
        regression += !tr_loss_classifies(type);
        if (type != TR_LOSS_LOGISTIC) *by = i; /* which has no log loss */
    }
    *flag = logistic == n ? "--probability" : NULL;
    return regression == 0 || regression == n
               ? TR_OK
               : tr_fail(TR_ERR_CONFIG, "classifiers and regression have no mean");
}

/* Back from a probability. */
static void to_margins(const struct tr_linear_model *s, double *p)
{
    for (size_t k = 0; k < s->outputs; k++)
        p[k] = s->softmax ? log(fmax(p[k], 1e-300)) : log(p[k]) - log1p(-p[k]);
    for (size_t k = 0; k < s->outputs; k++) p[k] = fmin(fmax(p[k], -700), 700);
}

/* Margins of several outputs become probabilities: by their softmax, or as LIBLINEAR does, those of each against the rest
 * divided by their sum. */
static void to_probabilities(const struct tr_linear_model *s, double *margin)
{
    double sum = 0, most = margin[tr_largest(margin, s->outputs)];
    for (size_t k = 0; k < s->outputs; k++)
        sum += margin[k] = s->softmax ? exp(margin[k] - most) : 1 / (1 + exp(-margin[k]));
    for (size_t k = 0; k < s->outputs; k++) margin[k] /= sum;
}

static void find_margins(const struct tr_linear_model *s, const tr_batch *rows, size_t i, double *margin)
{
    size_t width = s->outputs;
    memcpy(margin, s->bias, width * sizeof *margin);
    for (uint64_t k = rows->begin[i]; k < rows->begin[i + 1]; k++) {
        double value = rows->value ? (double)rows->value[k] : 1;
        uint64_t first = rows->column[k] * width;
        for (size_t o = 0; o < width; o++) margin[o] += value * tr_linear_model_weight(s, first + o);
    }
}

int tr_linear_predict(void *model, tr_query *q, const tr_records *records, double *out)
{
    const struct tr_linear *m = model;
    const struct tr_linear_model *s = &m->saved;
    double *margin;
    (void)q;
    TR_TRY(TR_NEW(&margin, s->outputs));
    for (size_t i = 0, n = m->output == TR_OUT_LABEL ? 1 : s->outputs; i < records->rows.n; i++, out += n) {
        find_margins(s, &records->rows, i, margin);
        if (m->output == TR_OUT_LABEL) {
            size_t best = s->outputs > 1 ? tr_largest(margin, s->outputs) : margin[0] <= 0;
            *out = (double)s->label[best];
            continue;
        }
        if (m->output == TR_OUT_PROBABILITY && s->outputs > 1) to_probabilities(s, margin);
        else if (m->output == TR_OUT_MEAN) *margin = exp(*margin);
        else if (m->output == TR_OUT_PROBABILITY) *margin = 1 / (1 + exp(-*margin));
        memcpy(out, margin, n * sizeof *out);
    }
    free(margin);
    return TR_OK;
}

/* Of several outputs; margin has their margins, and is left as probabilities. */
static int add_one_of_several(struct tr_linear_evaluation *e, const struct tr_linear_model *s,
                              const tr_records *records, size_t i, double *margin)
{
    float label = records->rows.label[i];
    size_t is = 0, most = tr_largest(margin, s->outputs);
    while (is < s->labels && s->label[is] != label) is++;
    char text[160];
    snprintf(text, sizeof text, "label %.9g, expected one of the %zu of training", (double)label, s->labels);
    if (is == s->labels) return tr_records_fail(records, i, text);
    to_probabilities(s, margin);
    e->of_class[is].rows++;
    e->of_class[most].predicted++;
    e->of_class[is].right += is == most;
    e->right += is == most;
    e->loss -= log(fmax(margin[is], 1e-300));
    return TR_OK;
}

static int add_classified(struct tr_linear_evaluation *e, const struct tr_linear_model *s,
                          const tr_records *records, size_t i, double margin)
{
    float label = records->rows.label[i];
    bool positive = label == s->label[0];
    char text[160];
    snprintf(text, sizeof text, "label %.9g, expected %.9g or %.9g as in training", (double)label,
             (double)s->label[1], (double)s->label[0]);
    if (!positive && label != s->label[1]) return tr_records_fail(records, i, text);
    TR_TRY(TR_GROW(&e->score, &e->score_capacity, e->rows + 1));
    TR_TRY(TR_GROW(&e->positive, &e->positive_capacity, e->rows + 1));
    e->score[e->rows] = (float)margin;
    e->positive[e->rows] = positive;
    e->right += (margin > 0) == positive;
    e->loss += tr_loss(TR_LOSS_LOGISTIC, margin, positive ? 1 : -1);
    e->rows++;
    return TR_OK;
}

static void add_regressed(struct tr_linear_evaluation *e, const struct tr_linear_model *s, double y,
                          double margin)
{
    double from_old = y - e->mean, error = (s->type == TR_LOSS_POISSON ? exp(margin) : margin) - y;
    e->squares += error * error;
    e->absolutes += fabs(error);
    e->special += (s->type == TR_LOSS_POISSON ? 2 : 1) * tr_shaped_loss(s->type, s->shape, margin, y);
    e->mean += from_old / (double)++e->rows;
    e->spread += from_old * (y - e->mean);
}

static int regression_figures(const struct tr_linear_model *s, const struct tr_linear_evaluation *e,
                              tr_query *q)
{
    double n = (double)e->rows, r2 = e->spread > 0 ? 1 - e->squares / e->spread : (double)NAN;
    const char *special = s->type == TR_LOSS_POISSON    ? "deviance"
                          : s->type == TR_LOSS_QUANTILE ? "pinball"
                          : s->type == TR_LOSS_HUBER    ? "huber"
                                                        : NULL;
    TR_TRY(tr_figure(q, "rmse", sqrt(e->squares / n), "%.6f", sqrt(e->squares / n)));
    TR_TRY(tr_figure(q, "mae", e->absolutes / n, "%.6f", e->absolutes / n));
    if (special) TR_TRY(tr_figure(q, special, e->special / n, "%.6f", e->special / n));
    return tr_figure(q, "r2", r2, "%.6f", r2);
}

int tr_linear_evaluate_rows(void *model, tr_query *q, const tr_records *records, const double *out)
{
    struct tr_linear *m = model;
    const float *label = records->rows.label;
    size_t width = m->saved.outputs;
    double *margin;
    int status = TR_NEW(&margin, width);
    (void)q;
    for (size_t i = 0; i < records->rows.n && status == TR_OK; i++) {
        memcpy(margin, out + i * width, width * sizeof *margin);
        if (m->output == TR_OUT_PROBABILITY) to_margins(&m->saved, margin);
        if (!label || isnan(label[i])) status = tr_records_fail(records, i, "expected a label");
        else if (width > 1) status = add_one_of_several(m->evaluation, &m->saved, records, i, margin);
        else if (tr_linear_model_classifies(&m->saved))
            status = add_classified(m->evaluation, &m->saved, records, i, *margin);
        else add_regressed(m->evaluation, &m->saved, (double)label[i], *margin);
    }
    free(margin);
    return status;
}

/* A ratio, or NaN. */
static double part(uint64_t of, uint64_t all)
{
    return all > 0 ? (double)of / (double)all : (double)NAN;
}

static int class_figures(const struct tr_linear *m, tr_query *q)
{
    const struct tr_linear_evaluation *e = m->evaluation;
    for (size_t k = 0; k < m->saved.labels; k++) {
        static const char *const measures[] = {"rows", "precision", "recall"};
        double numbers[] = {(double)e->of_class[k].rows, part(e->of_class[k].right, e->of_class[k].predicted),
                            part(e->of_class[k].right, e->of_class[k].rows)};
        for (size_t i = 0; i < 3; i++) {
            char name[64];
            snprintf(name, sizeof name, "%s_%.9g", measures[i], (double)m->saved.label[k]);
            TR_TRY(tr_figure(q, name, numbers[i], i < 2 ? NULL : "%.6f  precision %.6f  rows %.0f",
                             numbers[2], numbers[1], numbers[0]));
        }
    }
    return TR_OK;
}

int tr_linear_figures(void *model, tr_query *q, uint64_t rows)
{
    const struct tr_linear *m = model;
    const struct tr_linear_evaluation *e = m->evaluation;
    double n = (double)rows, right = (double)e->right / n, auc;
    TR_TRY(tr_figure(q, "rows", n, "%llu", (unsigned long long)rows));
    if (!tr_linear_model_classifies(&m->saved)) return regression_figures(&m->saved, e, q);
    TR_TRY(tr_figure(q, "right", (double)e->right, NULL));
    TR_TRY(tr_figure(q, "accuracy", right, "%.6f  (%llu right, %llu wrong)", right,
                     (unsigned long long)e->right, (unsigned long long)(rows - e->right)));
    if (m->saved.outputs == 1) {
        auc = tr_auc(e->score, e->positive, e->rows);
        TR_TRY(tr_figure(q, "auc", auc, "%.6f", auc));
    }
    if (m->saved.type == TR_LOSS_LOGISTIC) TR_TRY(tr_figure(q, "log_loss", e->loss / n, "%.6f", e->loss / n));
    return m->saved.outputs > 1 ? class_figures(m, q) : TR_OK;
}

/* ================ inspect ================ */

/* The n best features of an output by sign · weight, best first. */
struct top {
    uint64_t *feature;
    size_t n, most, output;
};

static double weight_of(const struct tr_linear_model *m, const struct top *top, uint64_t feature)
{
    return tr_linear_model_weight(m, feature * m->outputs + top->output);
}

static void offer(struct top *top, const struct tr_linear_model *m, uint64_t i, double sign)
{
    double w = sign * weight_of(m, top, i);
    size_t at = top->n;
    if (w <= 0 || (at == top->most && (at == 0 || w <= sign * weight_of(m, top, top->feature[at - 1]))))
        return;
    if (top->n < top->most) top->n++;
    else at--;
    for (; at > 0 && sign * weight_of(m, top, top->feature[at - 1]) < w; at--)
        top->feature[at] = top->feature[at - 1];
    top->feature[at] = i;
}

static int show_top(const struct tr_linear_model *m, tr_query *q, size_t output, double sign)
{
    struct top top = {.most = (size_t)tr_query_number(q, "--top", 10), .output = output};
    char of[48] = "";
    if (m->outputs > 1) snprintf(of, sizeof of, " for label %.9g", (double)m->label[output]);
    TR_TRY(TR_NEW(&top.feature, top.most));
    for (uint64_t i = 0; i < m->features; i++) offer(&top, m, i, sign);
    int status = top.n == 0 ? TR_OK
                            : tr_print(q, "\nlargest %s weights%s\n%12s  weight\n",
                                       sign > 0 ? "positive" : "negative", of, "feature");
    for (size_t i = 0; i < top.n && status == TR_OK; i++)
        status = tr_print(q, "%12llu  %+.6g\n", (unsigned long long)(top.feature[i] + m->first_index),
                          weight_of(m, &top, top.feature[i]));
    free(top.feature);
    return status;
}

static int show_labels(const struct tr_linear_model *m, tr_query *q)
{
    char *text = NULL, *longer;
    TR_TRY(tr_format(&text, "%zu, %s:", m->labels, m->softmax ? "softmax" : "each against the rest"));
    int status = TR_OK;
    for (size_t i = 0; i < m->labels && status == TR_OK; i++) {
        status = tr_format(&longer, "%s %.9g%s", text, (double)m->label[i],
                           i == 99 && m->labels > 100 ? " …" : "");
        free(text);
        text = status == TR_OK ? longer : NULL;
        if (i == 99) break;
    }
    if (status == TR_OK) tr_line(q, "labels", "%s", text);
    free(text);
    return status;
}

int tr_linear_inspect(void *model, tr_query *q)
{
    const struct tr_linear_model *m = &((struct tr_linear *)model)->saved;
    uint64_t nonzero = 0;
    double squares = 0, least = INFINITY, most = -INFINITY;
    uint64_t weights = m->features * m->outputs;
    for (uint64_t i = 0; i < weights; i++) {
        double w = tr_linear_model_weight(m, i);
        nonzero += w != 0;
        squares += w * w;
        least = fmin(least, w);
        most = fmax(most, w);
    }
    if (m->outputs > 1) TR_TRY(show_labels(m, q));
    else if (tr_linear_model_classifies(m))
        tr_line(q, "labels", "%.9g (positive), %.9g", (double)m->label[0], (double)m->label[1]);
    tr_line(q, "features", "%llu, the first has index %llu", (unsigned long long)m->features,
            (unsigned long long)m->first_index);
    tr_line(q, "weights", "%llu not zero (%.3g %%), %s", (unsigned long long)nonzero,
            100 * (double)nonzero / (double)weights, m->dtype == TR_F32 ? "f32" : "f64");
    tr_line(q, "range", "%.6g to %.6g", least, most);
    tr_line(q, "norm", "%.6g", sqrt(squares));
    if (m->biased && m->outputs == 1) tr_line(q, "bias", "%.6g", *m->bias);
    else if (m->biased) tr_line(q, "bias", "%.6g for label %.9g, …", *m->bias, (double)*m->label);
    else tr_line(q, "bias", "none");
    if (m->shape > 0) tr_line(q, m->type == TR_LOSS_HUBER ? "delta" : "quantile", "%.6g", m->shape);
    if (m->rows > 0) tr_line(q, "trained on", "%llu rows", (unsigned long long)m->rows);
    if (!isnan(m->l2)) tr_line(q, "l2", "%.6g", m->l2);
    if (!isnan(m->objective)) tr_line(q, "objective", "%.9g", m->objective);
    for (size_t k = 0; k < m->outputs; k++) TR_TRY(show_top(m, q, k, 1));
    return m->outputs > 1 ? TR_OK : show_top(m, q, 0, -1);
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
    tr_linear_text_close(&m->text);
    if (m->evaluation) {
        free(m->evaluation->score);
        free(m->evaluation->positive);
        free(m->evaluation->of_class);
    }
    free(m->evaluation);
}
