/* model.txt, LIBLINEAR's format. */
#define _GNU_SOURCE
#include <errno.h>
#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "linear.h"

/* ---- read ---- */

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

static int read_solver_type(const struct scanner *s, const char *word, const struct tr_loss **loss)
{
    size_t length = strlen(word);
    for (size_t i = 0; length > 0 && tr_losses[i]; i++)
        for (const char *at = tr_losses[i]->liblinear; at; at = strchr(at, ' ')) {
            at += *at == ' ';
            if (strncmp(at, word, length) != 0 || (at[length] && at[length] != ' ')) continue;
            *loss = tr_losses[i];
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
    TR_TRY(tr_linear_model_check_labels(m, &fine));
    return fine ? TR_OK
                : bad_text(s, m->labels == 2 ? "expected two labels that differ"
                                             : "expected labels that differ");
}

static int read_count(struct scanner *s, double least, double most, uint64_t *count)
{
    double number = 0;
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
        TR_TRY(read_solver_type(s, word, &m->loss));
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

/* The next word of this line, or of one behind it; empty at the end of the text. */
static void next_word_of_any_line(struct scanner *s, char word[64])
{
    for (; s->at < s->end && *s->at && strchr(" \t\r\n", *s->at); s->at++) s->line += *s->at == '\n';
    next_word(s, word);
}

/* What LIBLINEAR has no word for stands behind the weights, where it does not look. */
static int read_end(struct scanner *s, struct tr_linear_model *m)
{
    char word[64];
    uint64_t first = 0;
    next_word_of_any_line(s, word);
    m->softmax = m->outputs > 1 && strcmp(word, "softmax") == 0;
    const struct tr_loss *other = m->loss == &tr_loss_linear ? tr_loss_of_type(word) : NULL;
    if (other && !other->liblinear) m->loss = other;
    if (m->loss->shape != TR_SHAPE_NONE) TR_TRY(next_number(s, &m->shape));
    if (m->softmax || !m->loss->liblinear) next_word_of_any_line(s, word);
    if (strcmp(word, "first_index") == 0) {
        TR_TRY(read_count(s, 0, 1, &first));
        m->first_index = first;
        next_word_of_any_line(s, word);
    }
    return s->at == s->end && !*word
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

struct text_output {
    float label;
    size_t at; /* in the file */
};

static int text_by_label(const void *a, const void *b)
{
    float x = ((const struct text_output *)a)->label, y = ((const struct text_output *)b)->label;
    return (x > y) - (x < y);
}

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
    qsort(output, n, sizeof *output, text_by_label);
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

static int parse_text(struct scanner *s, struct tr_linear_model *m)
{
    struct head head = {.bias = -1};
    TR_TRY(read_head(s, m, &head));
    TR_TRY(read_weights(s, m, &head));
    if (!m->label) m->labels = 0;
    if (tr_linear_model_classifies(m)) TR_TRY(text_sort_labels(m));
    if (m->dtype == TR_F32) weights_to_float(m);
    return tr_linear_model_check(m, s->path);
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
    if (status == TR_OK) *type = saved->loss->type;
    return status;
}

/* ---- written ---- */

struct tr_linear_text {
    struct tr_target target;
    size_t outputs; /* weights of a line */
    char end[96];   /* the lines after the weights */
    locale_t c;     /* numbers with a decimal point, in every language of the user */
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
        char *end = dtype == TR_F32 ? tr_put_f32(number, ((const float *)weights)[i])
                                    : tr_put_f64(number, ((const double *)weights)[i]);
        *end++ = (i + 1) % t->outputs == 0 ? '\n' : ' ';
        fwrite_unlocked(number, 1, (size_t)(end - number), t->target.file);
    }
    uselocale(old);
    return ferror(t->target.file)
               ? tr_fail(TR_ERR_IO, "%s: cannot be written: %s", t->target.path, strerror(errno))
               : TR_OK;
}

int tr_linear_text_finish(struct tr_linear_text *t)
{
    fputs(t->end, t->target.file);
    return tr_target_close(&t->target, TR_OK);
}

void tr_linear_text_close(struct tr_linear_text **text)
{
    struct tr_linear_text *t = *text;
    if (!t) return;
    (void)tr_target_close(&t->target, TR_ERR_IO); /* unless it is complete */
    if (t->c) freelocale(t->c);
    free(t);
    *text = NULL;
}
