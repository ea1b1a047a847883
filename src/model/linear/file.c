#define _GNU_SOURCE
#include "model/linear/file.h"

#include <errno.h>
#include <fcntl.h>
#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "trireme/base.h"
#include "store/h5.h"

static const char *const names[] = {[TR_MODEL_LOGISTIC] = "logistic",
                                    [TR_MODEL_LINEAR] = "linear",
                                    [TR_MODEL_SVM] = "svm",
                                    [TR_MODEL_L2SVM] = "l2svm"};

const char *tr_linear_model_name(int type)
{
    return names[type];
}

/* -1 if it is none. */
static int type_named(const char *name)
{
    for (int i = 0; i < (int)(sizeof names / sizeof *names); i++)
        if (strcmp(names[i], name) == 0) return i;
    return -1;
}

void tr_linear_model_free(struct tr_linear_model *model)
{
    free(model->version);
    free(model->job);
    free(model->weight);
    model->version = model->job = model->weight = NULL;
}

static int check_weights(const struct tr_linear_model *m, const char *path)
{
    for (uint64_t i = 0; i < m->features; i++)
        if (!isfinite(tr_linear_model_weight(m, i)))
            return tr_fail(TR_ERR_DATA, "%s: weight %llu is not a finite number", path,
                           (unsigned long long)i);
    if (!isfinite(m->bias)) return tr_fail(TR_ERR_DATA, "%s: the bias is not a finite number", path);
    return TR_OK;
}

/* ---- model.txt ---- */

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

/* The next word of this line; empty at its end. */
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
    } solvers[] = {{"L2R_LR", TR_MODEL_LOGISTIC},
                   {"L2R_LR_DUAL", TR_MODEL_LOGISTIC},
                   {"L1R_LR", TR_MODEL_LOGISTIC},
                   {"L2R_L1LOSS_SVC_DUAL", TR_MODEL_SVM},
                   {"L2R_L2LOSS_SVC", TR_MODEL_L2SVM},
                   {"L2R_L2LOSS_SVC_DUAL", TR_MODEL_L2SVM},
                   {"L1R_L2LOSS_SVC", TR_MODEL_L2SVM},
                   {"L2R_L2LOSS_SVR", TR_MODEL_LINEAR},
                   {"L2R_L2LOSS_SVR_DUAL", TR_MODEL_LINEAR},
                   {"L2R_L1LOSS_SVR_DUAL", TR_MODEL_LINEAR}};
    for (size_t i = 0; i < sizeof solvers / sizeof *solvers; i++)
        if (strcmp(solvers[i].name, word) == 0) {
            *type = solvers[i].type;
            return TR_OK;
        }
    return bad_text(s, "this solver_type is none of a linear model of two classes or of regression");
}

struct head {
    bool solver, labels, features;
    double bias; /* its feature's value; not above 0: none */
};

static int read_labels(struct scanner *s, struct tr_linear_model *m, struct head *head)
{
    for (int i = 0; i < 2; i++) {
        double label;
        TR_TRY(next_number(s, &label));
        m->label[i] = (float)label;
        if (!isfinite(m->label[i])) return bad_text(s, "the label is not finite");
    }
    if (m->label[0] == m->label[1]) return bad_text(s, "expected two labels that differ");
    head->labels = true;
    return TR_OK;
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

static int read_classes(struct scanner *s)
{
    uint64_t classes = 0;
    TR_TRY(read_count(s, 1, 1e9, &classes));
    return classes == 2 ? TR_OK : bad_text(s, "expected a model of two classes");
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
        head->solver = true;
    } else if (strcmp(word, "nr_class") == 0) {
        TR_TRY(read_classes(s));
    } else if (strcmp(word, "label") == 0) {
        TR_TRY(read_labels(s, m, head));
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
    if (!head->solver || !head->features || (tr_linear_model_classifies(m) && !head->labels))
        return bad_text(s, "expected solver_type, label and nr_feature before the weights");
    uint64_t most = (uint64_t)(s->end - s->at) / 2; /* a digit and a newline each */
    if (m->features + m->biased <= most) return TR_OK;
    return tr_fail(TR_ERR_DATA, "%s: the model is cut off: there cannot be %llu weights in it", s->path,
                   (unsigned long long)m->features + m->biased);
}

/* Whether the number was a float when it was written, so that reading it as one gives the same bits. */
static bool is_float(double x, const char *text, const char *end)
{
    char again[TR_NUMBER_ROOM];
    return fabs(x) < 3.4e38 && tr_put_f32(again, (float)x) - again == end - text &&
           memcmp(again, text, (size_t)(end - text)) == 0;
}

static int read_weights(struct scanner *s, struct tr_linear_model *m, const struct head *head)
{
    double *weight;
    TR_TRY(TR_NEW(&weight, m->features + m->biased));
    m->weight = weight;
    m->dtype = TR_F32;
    for (uint64_t i = 0; i < m->features + m->biased; i++) {
        skip_blanks(s);
        const char *begin = s->at;
        if (begin + 1 < s->end && begin[0] == '0' && begin[1] == '\n') {
            s->at++;
        } else {
            TR_TRY(next_number(s, &weight[i]));
            if (m->dtype == TR_F32 && !is_float(weight[i], begin, s->at)) m->dtype = TR_F64;
        }
        TR_TRY(end_line(s));
    }
    if (m->biased) m->bias = weight[m->features] * head->bias;
    while (s->at < s->end && strchr(" \t\r\n", *s->at) && *s->at) s->at++;
    return s->at == s->end ? TR_OK : bad_text(s, "expected the end, found more weights than nr_feature says");
}

static void weights_to_float(struct tr_linear_model *m)
{
    double *from = m->weight;
    float *to = m->weight; /* in place: a float ends before the double it comes from */
    for (uint64_t i = 0; i < m->features; i++) {
        float x = (float)from[i];
        memcpy(&to[i], &x, sizeof x);
    }
    m->bias = (double)(float)m->bias;
}

static int parse_text(struct scanner *s, struct tr_linear_model *m)
{
    struct head head = {.bias = -1};
    TR_TRY(read_head(s, m, &head));
    TR_TRY(read_weights(s, m, &head));
    if (m->dtype == TR_F32) weights_to_float(m);
    return check_weights(m, s->path);
}

int tr_linear_model_parse_text(const char *text, size_t length, const char *path,
                               struct tr_linear_model *model)
{
    struct tr_linear_model m = {.first_index = 1, .l2 = NAN, .objective = NAN};
    struct scanner s = {.at = text, .end = text + length, .path = path, .line = 1};
    s.locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    int status = parse_text(&s, &m);
    freelocale(s.locale);
    if (status == TR_OK) *model = m;
    else tr_linear_model_free(&m);
    return status;
}

static int read_all(int fd, const char *path, size_t size, char **text, size_t *length)
{
    TR_TRY(TR_NEW(text, size + 1));
    *length = 0;
    while (*length < size) {
        ssize_t n = read(fd, *text + *length, size - *length);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return tr_fail(TR_ERR_IO, "%s: %s", path, strerror(errno));
        if (n == 0) break;
        *length += (size_t)n;
    }
    (*text)[*length] = '\0';
    return TR_OK;
}

static int read_text(const char *path, struct tr_linear_model *model)
{
    struct stat status;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &status) < 0) {
        int why = errno;
        if (fd >= 0) close(fd);
        return tr_fail(TR_ERR_NO_INPUT, "%s: %s", path, strerror(why));
    }
    char *text = NULL;
    size_t length;
    int result = read_all(fd, path, (size_t)status.st_size, &text, &length);
    close(fd);
    if (result == TR_OK) result = tr_linear_model_parse_text(text, length, path, model);
    free(text);
    return result;
}

/* ---- model.h5 ---- */

static int get_type(struct tr_h5_reader *r, int *type)
{
    char *name = NULL;
    int status = tr_h5_get_text(r, "model", &name);
    if (status == TR_OK && (*type = type_named(name)) < 0)
        status = tr_fail(TR_ERR_DATA, "%s: the model is of the unknown kind %.40s", tr_h5_path(r), name);
    free(name);
    return status;
}

static int get_labels(struct tr_h5_reader *r, struct tr_linear_model *m)
{
    double *label;
    if (!tr_linear_model_classifies(m)) return TR_OK;
    TR_TRY(tr_h5_get(r, "labels", TR_H5_F64, 2, 0, &label));
    for (int i = 0; i < 2; i++) m->label[i] = (float)label[i];
    bool good = isfinite(label[0]) && isfinite(label[1]) && label[0] != label[1];
    free(label);
    if (good) return TR_OK;
    return tr_fail(TR_ERR_DATA, "%s: damaged: the labels are not two numbers", tr_h5_path(r));
}

static int get_bias(struct tr_h5_reader *r, struct tr_linear_model *m)
{
    double *bias;
    m->biased = tr_h5_has(r, "bias");
    if (!m->biased) return TR_OK;
    TR_TRY(tr_h5_get(r, "bias", TR_H5_F64, 0, 0, &bias));
    m->bias = *bias;
    free(bias);
    return TR_OK;
}

static int get_model(struct tr_h5_reader *r, struct tr_linear_model *m)
{
    uint64_t first_index;
    bool single;
    TR_TRY(get_type(r, &m->type));
    TR_TRY(tr_h5_get_count(r, "features", &m->features));
    TR_TRY(tr_h5_get_count(r, "first_index", &first_index));
    TR_TRY(tr_h5_get_real(r, "l2", &m->l2));
    TR_TRY(tr_h5_get_real(r, "objective", &m->objective));
    TR_TRY(tr_h5_get_count(r, "rows", &m->rows));
    TR_TRY(tr_h5_get_text(r, "trireme", &m->version));
    if (first_index > 1) return tr_fail(TR_ERR_DATA, "%s: damaged: first_index is not 0 or 1", tr_h5_path(r));
    m->first_index = (uint32_t)first_index;
    TR_TRY(get_labels(r, m));
    TR_TRY(tr_h5_get_job(r, &m->job));
    TR_TRY(get_bias(r, m));
    TR_TRY(tr_h5_is_f32(r, "weights", &single));
    m->dtype = single ? TR_F32 : TR_F64;
    TR_TRY(tr_h5_get(r, "weights", single ? TR_H5_F32 : TR_H5_F64, m->features, 0, &m->weight));
    return check_weights(m, tr_h5_path(r));
}

static int read_h5(const char *path, struct tr_linear_model *model)
{
    struct tr_h5_reader *r;
    struct tr_linear_model m = {0};
    TR_TRY(tr_h5_open(path, TR_LINEAR_FORMAT, TR_LINEAR_FORMAT_VERSION, &r));
    int status = get_model(r, &m);
    tr_h5_close(&r);
    if (status == TR_OK) *model = m;
    else tr_linear_model_free(&m);
    return status;
}

/* ---- either ---- */

int tr_file_kind(const char *path, enum tr_file_kind *kind)
{
    static const char text[] = "solver_type";
    char first[16] = "";
    struct stat status;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe must not make us wait */
    if (fd < 0 || fstat(fd, &status) < 0) {
        int why = errno;
        if (fd >= 0) close(fd);
        return tr_fail(TR_ERR_NO_INPUT, "%s: %s", path, strerror(why));
    }
    *kind = TR_FILE_OTHER;
    if (S_ISDIR(status.st_mode)) *kind = TR_FILE_FOLDER;
    ssize_t n = S_ISREG(status.st_mode) ? pread(fd, first, sizeof first, 0) : 0;
    close(fd);
    if (n > 0 && tr_h5_begins(first, (size_t)n)) *kind = TR_FILE_MODEL_H5;
    if (n >= 11 && memcmp(first, text, 11) == 0) *kind = TR_FILE_MODEL_TEXT;
    if (S_ISREG(status.st_mode) && status.st_size == 0) return tr_fail(TR_ERR_NO_INPUT, "%s: empty", path);
    return TR_OK;
}

static int read_folder(const char *path, struct tr_linear_model *model)
{
    static const char *const inside[] = {"model.h5", "model.txt"};
    for (int i = 0; i < 2; i++) {
        char *file;
        TR_TRY(tr_format(&file, "%s/%s", path, inside[i]));
        bool there = access(file, F_OK) == 0;
        int status = there ? tr_linear_model_read(file, model) : TR_OK;
        free(file);
        if (there) return status;
    }
    return tr_fail(TR_ERR_NO_INPUT, "%s: there is no model.h5 in this folder", path);
}

int tr_linear_model_read(const char *path, struct tr_linear_model *model)
{
    enum tr_file_kind kind;
    TR_TRY(tr_file_kind(path, &kind));
    switch (kind) {
    case TR_FILE_FOLDER: return read_folder(path, model);
    case TR_FILE_MODEL_H5: return read_h5(path, model);
    case TR_FILE_MODEL_TEXT: return read_text(path, model);
    default: return tr_fail(TR_ERR_DATA, "%s: not a model: expected a model.h5 or model.txt", path);
    }
}

/* ---- use ---- */

double tr_linear_model_margin(const struct tr_linear_model *m, const uint32_t *index, const float *value,
                              size_t n, uint64_t *unknown)
{
    const float *f32 = m->weight;
    const double *f64 = m->weight;
    double sum = m->bias;
    for (size_t k = 0; k < n; k++) {
        uint64_t i = index[k] - m->first_index;
        if (i >= m->features) ++*unknown;
        else sum += (double)value[k] * (m->dtype == TR_F32 ? (double)f32[i] : f64[i]);
    }
    return sum;
}
