/* model.txt, LIBLINEAR's format. */
#define _GNU_SOURCE
#include <errno.h>
#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "linear.h"

/* ---- reading ---- */

struct scanner {
    const char *at, *end, *path;
    uint64_t line;
    locale_t locale; /* with a decimal point in every language of the user */
};

static int text_refuse(const struct scanner *s, const char *what)
{
    return tr_fail(TR_ERR_DATA, "%s:%llu: %s", s->path, (unsigned long long)s->line, what);
}

static void text_skip_blanks(struct scanner *s)
{
    while (s->at < s->end && (*s->at == ' ' || *s->at == '\t' || *s->at == '\r')) s->at++;
}

/* Reads the next word of this line, at most 63 characters of it; an empty one at the end of the line. */
static void text_read_word(struct scanner *s, char word[64])
{
    size_t n = 0;
    text_skip_blanks(s);
    for (; s->at < s->end && !strchr(" \t\r\n", *s->at); s->at++)
        if (n < 63) word[n++] = *s->at;
    word[n] = '\0';
}

/* Reads the next word of this line or a later one; an empty one at the end of the text. */
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

/* Reads the lines up to «w».
 *
 * bias: value of the feature of the bias; no bias if it is not above 0
 */
static int text_read_head(struct scanner *s, struct tr_linear_model *m, double *bias)
{
    char word[64];
    bool joint = false, fine = true; /* joint: one margin per class, even of two classes */
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
                    if (strncmp(at, word, length) == 0 && (!at[length] || at[length] == ' '))
                        m->loss = tr_losses[i];
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
            }
            TR_TRY(tr_linear_model_check_labels(m, &fine));
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
    uint64_t most = (uint64_t)(s->end - s->at) / 2; /* a digit and a blank each */
    if (m->features + m->biased <= most / m->outputs) return TR_OK;
    return tr_fail(TR_ERR_DATA, "%s: the model is cut off: there cannot be %llu weights in it", s->path,
                   (unsigned long long)((m->features + m->biased) * m->outputs));
}

/* Returns whether the number was written as a float, so that reading it as a float gives the same bits. */
static bool text_is_float(double x, const char *text, const char *end)
{
    char again[TR_NUMBER_ROOM];
    return fabs(x) < 3.4e38 && tr_put_f32(again, (float)x) - again == end - text &&
           memcmp(again, text, (size_t)(end - text)) == 0;
}

/* Reads a line for each feature and for the bias, and the lines behind them, which LIBLINEAR ignores: members for which it has no
 * word. */
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
            if (m->dtype == TR_F32 && !text_is_float(*weight, begin, s->at)) m->dtype = TR_F64;
        }
        TR_TRY(text_end_line(s));
    }
    weight -= m->outputs;
    for (size_t k = 0; m->biased && k < m->outputs; k++) m->bias[k] = weight[k] * bias;
    text_read_word_below(s, word);
    m->softmax = m->outputs > 1 && strcmp(word, "softmax") == 0;
    const struct tr_loss *other = m->loss == &tr_loss_linear ? tr_loss_of_type(word) : NULL;
    if (other && !other->liblinear) m->loss = other;
    m->shape = m->loss->shape == TR_SHAPE_DELTA; /* older models of logcosh have none: 1 */
    while (s->at < s->end && *s->at == ' ') s->at++;
    if (m->loss->shape != TR_SHAPE_NONE && s->at < s->end && *s->at != '\n')
        TR_TRY(text_read_number(s, &m->shape));
    if (m->softmax || !m->loss->liblinear) text_read_word_below(s, word);
    if (strcmp(word, "first_index") == 0) {
        TR_TRY(text_read_count(s, 0, 1, &m->first_index));
        text_read_word_below(s, word);
    }
    return s->at == s->end && !*word
               ? TR_OK
               : text_refuse(s, "expected the end, found more weights than nr_feature says");
}

struct text_output {
    float label;
    size_t at; /* in the file */
};

/* LIBLINEAR lists labels in the order in which the training data had them. Here they are as in a trained model: of one output
 * the larger label is the first, the positive one; several outputs ascend by their labels. */
static int text_sort_labels(struct tr_linear_model *m)
{
    double *weight = m->weight, *line;
    struct text_output *output;
    size_t n = m->outputs;
    if (n == 1 && m->label[0] < m->label[1]) {
        float negative = m->label[0];
        m->label[0] = m->label[1];
        m->label[1] = negative;
        for (uint64_t i = 0; i < m->features; i++) weight[i] = 0 - weight[i]; /* 0 stays 0, not -0 */
        *m->bias = 0 - *m->bias;
    }
    if (n == 1) return TR_OK;
    TR_TRY(TR_NEW(&output, n));
    int status = TR_NEW(&line, n);
    for (size_t k = 0; k < n; k++) output[k] = (struct text_output){m->label[k], k};
    qsort(output, n, sizeof *output, tr_linear_compare_labels);
    for (size_t k = 0; k < n; k++) m->label[k] = output[k].label;
    for (uint64_t i = 0; i <= m->features && status == TR_OK; i++) {
        double *to = i < m->features ? weight + i * n : m->bias;
        for (size_t k = 0; k < n; k++) line[k] = to[output[k].at];
        memcpy(to, line, n * sizeof *to);
    }
    free(output);
    free(line);
    return status;
}

static int text_parse(struct scanner *s, struct tr_linear_model *m)
{
    double bias = -1;
    TR_TRY(text_read_head(s, m, &bias));
    TR_TRY(text_read_weights(s, m, bias));
    if (!m->label) m->labels = 0;
    if (tr_linear_model_classifies(m)) TR_TRY(text_sort_labels(m));
    for (uint64_t i = 0; m->dtype == TR_F32 && i < m->features * m->outputs; i++) {
        float x =
            (float)((double *)m->weight)[i]; /* in place: a float ends before the double it comes from */
        memcpy((float *)m->weight + i, &x, sizeof x);
    }
    for (size_t k = 0; m->dtype == TR_F32 && k < m->outputs; k++) m->bias[k] = (double)(float)m->bias[k];
    return tr_linear_model_check(m, s->path);
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
    ssize_t n =
        getdelim(&text, &capacity, '\0', file); /* up to the end: there are no zero bytes in a model.txt */
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

/* ---- writing ---- */

struct tr_linear_text {
    struct tr_target target;
    size_t outputs;      /* weights of a line */
    enum tr_dtype dtype; /* of the weights */
    char end[96];        /* the lines behind the weights */
    locale_t c;
};

int tr_linear_text_create(const char *folder, const struct tr_linear_model *head,
                          struct tr_linear_text **text)
{
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
    for (size_t i = 0; classifies && i < head->labels; i++)
        fprintf(t->target.file, "%s %.9g", i == 0 ? "label" : "", (double)head->label[i]);
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
