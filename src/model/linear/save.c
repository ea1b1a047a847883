#define _GNU_SOURCE
#include "model/linear/save.h"

#include <errno.h>
#include <fcntl.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "trireme/base.h"
#include "store/h5.h"
#include "model/model.h"
#include "table/view.h"

/* Keys that travel at once, and text that is written at once. */
enum { PIECE = 1 << 20, TEXT_BYTES = 1 << 20 };

struct tr_linear_writer {
    struct tr_linear_model head;
    struct tr_h5_writer *h5;
    char *text, *text_part; /* names of the text, and before it is complete */
    int fd;                 /* of the text */
    char *buffer;
    size_t used;
    uint64_t written; /* weights */
};

/* ---- model.txt ---- */

static int failed(int status, const char *path)
{
    return tr_fail(status, "%s: cannot be written: %s", path, strerror(errno));
}

static int flush_text(struct tr_linear_writer *w)
{
    const char *at = w->buffer, *end = at + w->used;
    while (at < end) {
        ssize_t n = write(w->fd, at, (size_t)(end - at));
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return failed(TR_ERR_IO, w->text);
        at += n;
    }
    w->used = 0;
    return TR_OK;
}

static int append_text(struct tr_linear_writer *w, const void *weights, size_t n)
{
    const float *f32 = weights;
    const double *f64 = weights;
    for (size_t i = 0; i < n; i++) {
        if (w->used + TR_NUMBER_ROOM >= TEXT_BYTES) TR_TRY(flush_text(w));
        char *at = w->buffer + w->used;
        at = w->head.dtype == TR_F32 ? tr_put_f32(at, f32[i]) : tr_put_f64(at, f64[i]);
        *at++ = '\n';
        w->used = (size_t)(at - w->buffer);
    }
    return TR_OK;
}

static int append_bias(struct tr_linear_writer *w)
{
    float f32 = (float)w->head.bias;
    return w->head.biased ? append_text(w, w->head.dtype == TR_F32 ? (void *)&f32 : (void *)&w->head.bias, 1)
                          : TR_OK;
}

/* LIBLINEAR's solver that minimises the same, in whose hands the model then is. */
static const char *solver_name(int type)
{
    switch (type) {
    case TR_MODEL_LOGISTIC: return "L2R_LR";
    case TR_MODEL_SVM: return "L2R_L1LOSS_SVC_DUAL";
    case TR_MODEL_L2SVM: return "L2R_L2LOSS_SVC";
    default: return "L2R_L2LOSS_SVR";
    }
}

static int create_text(struct tr_linear_writer *w)
{
    const struct tr_linear_model *head = &w->head;
    w->fd = open(w->text_part, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (w->fd < 0) return failed(TR_ERR_NO_OUTPUT, w->text);
    char *at = w->buffer;
    at += sprintf(at, "solver_type %s\nnr_class 2\n", solver_name(head->type));
    if (tr_linear_model_classifies(head))
        at += sprintf(at, "label %.9g %.9g\n", (double)head->label[0], (double)head->label[1]);
    at += sprintf(at, "nr_feature %llu\nbias %d\nw\n", (unsigned long long)head->features,
                  head->biased ? 1 : -1);
    w->used = (size_t)(at - w->buffer);
    return TR_OK;
}

/* ---- model.h5 ---- */

static enum tr_h5_type stored_type(const struct tr_linear_model *head)
{
    return head->dtype == TR_F32 ? TR_H5_F32 : TR_H5_F64;
}

static int put_attributes(struct tr_h5_writer *h5, const struct tr_linear_model *head)
{
    TR_TRY(tr_h5_put_text(h5, "model", tr_linear_model_name(head->type)));
    TR_TRY(tr_h5_put_count(h5, "features", head->features));
    TR_TRY(tr_h5_put_count(h5, "first_index", head->first_index));
    TR_TRY(tr_h5_put_real(h5, "l2", head->l2));
    TR_TRY(tr_h5_put_real(h5, "objective", head->objective));
    return tr_h5_put_count(h5, "rows", head->rows);
}

static int create_h5(struct tr_linear_writer *w, const char *folder)
{
    const struct tr_linear_model *head = &w->head;
    TR_TRY(
        tr_h5_create(folder, TR_LINEAR_FORMAT, TR_LINEAR_FORMAT_VERSION, head->job, head->version, &w->h5));
    TR_TRY(put_attributes(w->h5, head));
    if (tr_linear_model_classifies(head)) TR_TRY(tr_h5_put(w->h5, "labels", TR_H5_F32, 2, 0, head->label));
    if (head->biased) {
        float f32 = (float)head->bias;
        const void *bias = head->dtype == TR_F32 ? (const void *)&f32 : &head->bias;
        TR_TRY(tr_h5_put(w->h5, "bias", stored_type(head), 0, 0, bias));
    }
    return tr_h5_begin(w->h5, "weights", stored_type(head), head->features, 0);
}

/* ---- both files ---- */

static int name_text(struct tr_linear_writer *w, const char *folder)
{
    TR_TRY(tr_format(&w->text, "%s/model.txt", folder));
    TR_TRY(tr_format(&w->text_part, "%s/model.txt.part", folder));
    return TR_NEW(&w->buffer, TEXT_BYTES);
}

/* Numbers with a point for a point, whatever the user's language. */
static locale_t speak_c(void)
{
    return uselocale(newlocale(LC_ALL_MASK, "C", (locale_t)0));
}

static void speak_again(locale_t old)
{
    locale_t c = uselocale(old);
    if (c != LC_GLOBAL_LOCALE) freelocale(c);
}

static int start_files(struct tr_linear_writer *w, const char *folder)
{
    TR_TRY(name_text(w, folder));
    TR_TRY(tr_make_folder(folder));
    TR_TRY(create_text(w));
    return create_h5(w, folder);
}

int tr_linear_writer_create(const char *folder, const struct tr_linear_model *head,
                            struct tr_linear_writer **writer)
{
    struct tr_linear_writer *w;
    TR_TRY(TR_NEW(&w, 1));
    w->head = *head;
    w->fd = -1;
    locale_t old = speak_c();
    int status = start_files(w, folder);
    speak_again(old);
    *writer = w;
    if (status != TR_OK) tr_linear_writer_abandon(writer);
    return status;
}

int tr_linear_writer_append(struct tr_linear_writer *w, const void *weights, size_t n)
{
    if (w->written + n > w->head.features) return tr_fail(TR_ERR_INTERNAL, "%s: too many weights", w->text);
    locale_t old = speak_c();
    int status = tr_h5_append(w->h5, weights, n);
    if (status == TR_OK) status = append_text(w, weights, n);
    speak_again(old);
    w->written += n;
    return status;
}

static void free_writer(struct tr_linear_writer **writer)
{
    struct tr_linear_writer *w = *writer;
    char *names[] = {w->text, w->text_part, w->buffer};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) free(names[i]);
    free(w);
    *writer = NULL;
}

static int finish_text(struct tr_linear_writer *w)
{
    locale_t old = speak_c();
    int status = append_bias(w);
    speak_again(old);
    if (status == TR_OK) status = flush_text(w);
    if (status == TR_OK && fsync(w->fd) < 0) status = failed(TR_ERR_IO, w->text);
    int closed = close(w->fd);
    w->fd = -1;
    return status == TR_OK && closed < 0 ? failed(TR_ERR_IO, w->text) : status;
}

/* Both are on the disk before one of them gets its name. */
static int finish_files(struct tr_linear_writer *w)
{
    if (w->written != w->head.features) return tr_fail(TR_ERR_INTERNAL, "%s: too few weights", w->text);
    TR_TRY(finish_text(w));
    TR_TRY(tr_h5_seal(w->h5));
    if (rename(w->text_part, w->text) < 0) return failed(TR_ERR_IO, w->text);
    return tr_h5_finish(&w->h5);
}

int tr_linear_writer_finish(struct tr_linear_writer **writer)
{
    int status = finish_files(*writer);
    if (status == TR_OK) free_writer(writer);
    else tr_linear_writer_abandon(writer);
    return status;
}

void tr_linear_writer_abandon(struct tr_linear_writer **writer)
{
    struct tr_linear_writer *w = *writer;
    if (!w) return;
    if (w->fd >= 0) close(w->fd);
    if (w->text_part) unlink(w->text_part);
    tr_h5_abandon(&w->h5);
    free_writer(writer);
}

/* ---- from the table ---- */

/* A range of keys, through a view of its own. */
static int pull_range(tr_table *table, tr_key first, size_t n, tr_view **view)
{
    tr_key *keys;
    TR_TRY(TR_NEW(&keys, n));
    for (size_t i = 0; i < n; i++) keys[i] = first + i;
    int status = tr_view_open(table, keys, n, TR_VIEW_READ, view);
    free(keys);
    TR_TRY(status);
    TR_TRY(tr_pull_start(*view, (*view)->value, -1));
    TR_WAIT_UNTIL(table->tr, !tr_pull_busy(*view), "the servers to hand out the model");
    return TR_OK;
}

static int pull_bias(const struct tr_linear *m, struct tr_linear_model *head)
{
    if (!head->biased) return TR_OK;
    tr_view *view = NULL;
    int status = pull_range(m->w, m->train->columns, 1, &view);
    if (status == TR_OK)
        head->bias = head->dtype == TR_F32 ? (double)*(float *)view->value : *(double *)view->value;
    tr_view_close(&view);
    return status;
}

static int append_range(const struct tr_linear *m, struct tr_linear_writer *w, tr_key first, size_t n)
{
    tr_view *view = NULL;
    int status = pull_range(m->w, first, n, &view);
    if (status == TR_OK) status = tr_linear_writer_append(w, view->value, n);
    tr_view_close(&view);
    return status;
}

/* The positive kind is the larger one, as in training. Where the data had only one, the other needs a name.
 */
static void name_labels(const tr_data *train, float label[2])
{
    label[0] = train->label[train->labels > 0 ? train->labels - 1 : 0];
    label[1] = train->labels > 1 ? train->label[0] : label[0] > 0 ? -label[0] : label[0] - 1;
}

static int write_model(const struct tr_linear *m, struct tr_linear_model *head, const char *folder)
{
    struct tr_linear_writer *w;
    TR_TRY(pull_bias(m, head));
    TR_TRY(tr_job_as_text(m->job, &head->job));
    TR_TRY(tr_linear_writer_create(folder, head, &w));
    int status = TR_OK;
    for (uint64_t first = 0; first < head->features && status == TR_OK; first += PIECE)
        status = append_range(m, w, first, tr_min_size(PIECE, head->features - first));
    if (status == TR_OK) return tr_linear_writer_finish(&w);
    tr_linear_writer_abandon(&w);
    return status;
}

int tr_linear_save(struct tr_linear *m, const char *folder)
{
    tr_context *tr = m->tr;
    double objective = m->last.objective;
    TR_TRY(tr_model_tell_objective(tr, &objective));
    int status = TR_OK;
    if (tr->rank == tr->layout.server_rank[0]) {
        struct tr_linear_model head = {.type = m->job->model.type,
                                       .dtype = m->w->dtype,
                                       .features = m->train->columns,
                                       .first_index = m->train->first_index,
                                       .biased = m->job->model.bias,
                                       .l2 = m->l2,
                                       .objective = objective,
                                       .rows = m->train->total_rows};
        name_labels(m->train, head.label);
        status = write_model(m, &head, folder);
        free(head.job);
    }
    return tr_agree(tr, status);
}
