#define _GNU_SOURCE
#include "model/save.h"

#include <errno.h>
#include <fcntl.h>
#include <hdf5.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "model/digits.h"
#include "table/table.h"

/* Keys that travel at once, and text that is written at once. */
enum { PIECE = 1 << 20, TEXT_BYTES = 1 << 20 };

struct tr_model_writer {
    struct tr_model head;
    char *folder;
    char *h5, *h5_part, *text, *text_part; /* names of the files, and before they are complete */
    hid_t file, weights;
    int fd; /* of the text */
    char *buffer;
    size_t used;
    uint64_t written; /* weights */
};

/* ---- errors ---- */

/* HDF5 knows why the system refused; it says so in the innermost entry of its stack, which the next call
 * clears. */
static herr_t find_reason(unsigned n, const H5E_error2_t *error, void *reason)
{
    static const char mark[] = "error message = '";
    const char *begin = strstr(error->desc, mark);
    if (n == 0) snprintf(reason, 128, "%s", error->desc);
    if (!begin) return 0;
    begin += sizeof mark - 1;
    snprintf(reason, 128, "%.*s", (int)strcspn(begin, "'"), begin);
    return 1;
}

static int h5_failed(const struct tr_model_writer *w)
{
    char reason[128];
    snprintf(reason, sizeof reason, "%s", errno ? strerror(errno) : "HDF5 failed");
    H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, find_reason, reason);
    return tr_fail(TR_ERR_IO, "%s: cannot be written: %s", w->h5, reason);
}

static int failed(int status, const char *path)
{
    return tr_fail(status, "%s: cannot be written: %s", path, strerror(errno));
}

/* ---- model.txt ---- */

static int flush_text(struct tr_model_writer *w)
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

static int append_text(struct tr_model_writer *w, const void *weights, size_t n)
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

static int append_bias(struct tr_model_writer *w)
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

static int create_text(struct tr_model_writer *w)
{
    const struct tr_model *head = &w->head;
    w->fd = open(w->text_part, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (w->fd < 0) return failed(TR_ERR_NO_OUTPUT, w->text);
    char *at = w->buffer;
    at += sprintf(at, "solver_type %s\nnr_class 2\n", solver_name(head->type));
    if (tr_model_classifies(head))
        at += sprintf(at, "label %.9g %.9g\n", (double)head->label[0], (double)head->label[1]);
    at += sprintf(at, "nr_feature %llu\nbias %d\nw\n", (unsigned long long)head->features,
                  head->biased ? 1 : -1);
    w->used = (size_t)(at - w->buffer);
    return TR_OK;
}

/* ---- model.h5 ---- */

static bool put_attribute(hid_t file, const char *name, hid_t type, const void *value)
{
    hid_t space = H5Screate(H5S_SCALAR), attribute = -1;
    bool ok = space >= 0;
    ok = ok && (attribute = H5Acreate2(file, name, type, space, H5P_DEFAULT, H5P_DEFAULT)) >= 0;
    ok = ok && H5Awrite(attribute, type, value) >= 0;
    if (attribute >= 0) ok = H5Aclose(attribute) >= 0 && ok;
    if (space >= 0) H5Sclose(space);
    return ok;
}

static hid_t text_type(const char *text)
{
    hid_t type = H5Tcopy(H5T_C_S1);
    H5Tset_size(type, strlen(text) + 1);
    H5Tset_cset(type, H5T_CSET_UTF8);
    return type;
}

static bool put_text_attribute(hid_t file, const char *name, const char *text)
{
    hid_t type = text_type(text);
    bool ok = put_attribute(file, name, type, text);
    H5Tclose(type);
    return ok;
}

/* n values; n = 0: one that is no array. */
static bool put_dataset(hid_t file, const char *name, hid_t stored, hid_t type, hsize_t n, const void *value)
{
    hid_t space = n > 0 ? H5Screate_simple(1, &n, NULL) : H5Screate(H5S_SCALAR), dataset = -1;
    bool ok = space >= 0;
    ok = ok && (dataset = H5Dcreate2(file, name, stored, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT)) >= 0;
    ok = ok && H5Dwrite(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, value) >= 0;
    if (dataset >= 0) ok = H5Dclose(dataset) >= 0 && ok;
    if (space >= 0) H5Sclose(space);
    return ok;
}

static bool put_attributes(hid_t file, const struct tr_model *head)
{
    int version = TR_MODEL_FORMAT_VERSION;
    return put_text_attribute(file, "format", TR_MODEL_FORMAT) &&
           put_attribute(file, "format_version", H5T_NATIVE_INT, &version) &&
           put_text_attribute(file, "model", tr_model_name(head->type)) &&
           put_attribute(file, "features", H5T_NATIVE_UINT64, &head->features) &&
           put_attribute(file, "first_index", H5T_NATIVE_UINT32, &head->first_index) &&
           put_attribute(file, "l2", H5T_NATIVE_DOUBLE, &head->l2) &&
           put_attribute(file, "objective", H5T_NATIVE_DOUBLE, &head->objective) &&
           put_attribute(file, "rows", H5T_NATIVE_UINT64, &head->rows) &&
           put_text_attribute(file, "trireme", head->version ? head->version : TR_VERSION);
}

static bool put_job(hid_t file, const char *job)
{
    if (!job) return true;
    hid_t type = text_type(job);
    bool ok = put_dataset(file, "job", type, type, 0, job);
    H5Tclose(type);
    return ok;
}

static hid_t stored_type(const struct tr_model *head)
{
    return head->dtype == TR_F32 ? H5T_IEEE_F32LE : H5T_IEEE_F64LE;
}

static bool put_small_parts(struct tr_model_writer *w)
{
    const struct tr_model *head = &w->head;
    return put_attributes(w->file, head) && put_job(w->file, head->job) &&
           (!tr_model_classifies(head) ||
            put_dataset(w->file, "labels", H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, 2, head->label)) &&
           (!head->biased ||
            put_dataset(w->file, "bias", stored_type(head), H5T_NATIVE_DOUBLE, 0, &head->bias));
}

/* All of it will be written, so it is not filled with zeros first. */
static hid_t create_weights(struct tr_model_writer *w)
{
    hsize_t n = w->head.features;
    hid_t space = H5Screate_simple(1, &n, NULL), how = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_fill_time(how, H5D_FILL_TIME_NEVER);
    hid_t dataset =
        H5Dcreate2(w->file, "weights", stored_type(&w->head), space, H5P_DEFAULT, how, H5P_DEFAULT);
    H5Pclose(how);
    H5Sclose(space);
    return dataset;
}

static int create_h5(struct tr_model_writer *w)
{
    int fd = open(w->h5_part, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666); /* errno says more than HDF5 */
    if (fd < 0) return failed(TR_ERR_NO_OUTPUT, w->h5);
    close(fd);
    errno = 0;
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL); /* errors are ours to print */
    hid_t access = H5Pcreate(H5P_FILE_ACCESS);
    H5Pset_file_locking(access, false,
                        true); /* nobody else knows the name, and some file systems cannot lock */
    w->file = H5Fcreate(w->h5_part, H5F_ACC_TRUNC, H5P_DEFAULT, access);
    H5Pclose(access);
    if (w->file < 0 || !put_small_parts(w)) return h5_failed(w);
    w->weights = create_weights(w);
    return w->weights < 0 ? h5_failed(w) : TR_OK;
}

static int append_h5(struct tr_model_writer *w, const void *weights, size_t n)
{
    hsize_t first = w->written, count = n;
    errno = 0;
    hid_t type = w->head.dtype == TR_F32 ? H5T_NATIVE_FLOAT : H5T_NATIVE_DOUBLE;
    hid_t memory = H5Screate_simple(1, &count, NULL), where = H5Dget_space(w->weights);
    bool ok = memory >= 0 && where >= 0 &&
              H5Sselect_hyperslab(where, H5S_SELECT_SET, &first, NULL, &count, NULL) >= 0 &&
              H5Dwrite(w->weights, type, memory, where, H5P_DEFAULT, weights) >= 0;
    int status = ok ? TR_OK : h5_failed(w);
    if (memory >= 0) H5Sclose(memory);
    if (where >= 0) H5Sclose(where);
    return status;
}

static int finish_h5(struct tr_model_writer *w)
{
    errno = 0;
    herr_t closed = H5Dclose(w->weights);
    w->weights = -1;
    if (closed < 0 || H5Fflush(w->file, H5F_SCOPE_LOCAL) < 0) return h5_failed(w);
    closed = H5Fclose(w->file);
    w->file = -1;
    if (closed < 0) return h5_failed(w);
    int fd = open(w->h5_part, O_RDONLY | O_CLOEXEC);
    int status = fd < 0 || fsync(fd) < 0 ? failed(TR_ERR_IO, w->h5) : TR_OK;
    if (fd >= 0) close(fd);
    return status;
}

/* ---- both files ---- */

static int make_folder(const char *folder)
{
    char *path;
    TR_TRY(tr_copy_string(folder, &path));
    int status = TR_OK;
    for (char *at = path + 1; status == TR_OK; at++) {
        char c = *at;
        if (c != '/' && c != '\0') continue;
        *at = '\0';
        if (mkdir(path, 0777) < 0 && errno != EEXIST && errno != EISDIR && errno != EROFS)
            status = tr_fail(TR_ERR_NO_OUTPUT, "%s: cannot be made: %s", path, strerror(errno));
        *at = c;
        if (c == '\0') break;
    }
    free(path);
    return status;
}

static int name_files(struct tr_model_writer *w, const char *folder)
{
    TR_TRY(tr_copy_string(folder, &w->folder));
    TR_TRY(tr_format(&w->h5, "%s/model.h5", folder));
    TR_TRY(tr_format(&w->text, "%s/model.txt", folder));
    TR_TRY(tr_format(&w->h5_part, "%s/model.h5.part", folder));
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

static int start_files(struct tr_model_writer *w, const char *folder)
{
    TR_TRY(name_files(w, folder));
    TR_TRY(make_folder(folder));
    TR_TRY(create_text(w));
    return create_h5(w);
}

int tr_model_create(const char *folder, const struct tr_model *head, struct tr_model_writer **writer)
{
    struct tr_model_writer *w;
    TR_TRY(TR_NEW(&w, 1));
    w->head = *head;
    w->file = w->weights = -1;
    w->fd = -1;
    locale_t old = speak_c();
    int status = start_files(w, folder);
    speak_again(old);
    *writer = w;
    if (status != TR_OK) tr_model_abandon(writer);
    return status;
}

int tr_model_append(struct tr_model_writer *w, const void *weights, size_t n)
{
    if (w->written + n > w->head.features) return tr_fail(TR_ERR_INTERNAL, "%s: too many weights", w->h5);
    locale_t old = speak_c();
    int status = append_h5(w, weights, n);
    if (status == TR_OK) status = append_text(w, weights, n);
    speak_again(old);
    w->written += n;
    return status;
}

static void free_writer(struct tr_model_writer **writer)
{
    struct tr_model_writer *w = *writer;
    char *names[] = {w->folder, w->h5, w->h5_part, w->text, w->text_part, w->buffer};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) free(names[i]);
    free(w);
    *writer = NULL;
}

static int finish_text(struct tr_model_writer *w)
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

static int sync_folder(const struct tr_model_writer *w)
{
    int fd = open(w->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    /* some file systems cannot sync a folder and say EINVAL: the names are as safe as they can be there */
    int status = fd < 0 || (fsync(fd) < 0 && errno != EINVAL) ? failed(TR_ERR_IO, w->folder) : TR_OK;
    if (fd >= 0) close(fd);
    return status;
}

static int finish_files(struct tr_model_writer *w)
{
    if (w->written != w->head.features) return tr_fail(TR_ERR_INTERNAL, "%s: too few weights", w->h5);
    TR_TRY(finish_text(w));
    TR_TRY(finish_h5(w));
    if (rename(w->text_part, w->text) < 0) return failed(TR_ERR_IO, w->text);
    if (rename(w->h5_part, w->h5) < 0) return failed(TR_ERR_IO, w->h5);
    return sync_folder(w);
}

int tr_model_finish(struct tr_model_writer **writer)
{
    int status = finish_files(*writer);
    if (status == TR_OK) free_writer(writer);
    else tr_model_abandon(writer);
    return status;
}

void tr_model_abandon(struct tr_model_writer **writer)
{
    struct tr_model_writer *w = *writer;
    if (!w) return;
    if (w->fd >= 0) close(w->fd);
    if (w->text_part) unlink(w->text_part);
    /* HDF5 insists on writing what it has buffered before it lets go of a file: give it the room */
    if (w->file >= 0 && truncate(w->h5_part, 0) < 0) errno = 0;
    if (w->weights >= 0) H5Dclose(w->weights);
    if (w->file >= 0) H5Fclose(w->file);
    if (w->h5_part) unlink(w->h5_part);
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

static int pull_bias(const struct tr_linear *m, struct tr_model *head)
{
    if (!head->biased) return TR_OK;
    tr_view *view = NULL;
    int status = pull_range(m->w, m->train->columns, 1, &view);
    if (status == TR_OK)
        head->bias = head->dtype == TR_F32 ? (double)*(float *)view->value : *(double *)view->value;
    tr_view_close(&view);
    return status;
}

static int append_range(const struct tr_linear *m, struct tr_model_writer *w, tr_key first, size_t n)
{
    tr_view *view = NULL;
    int status = pull_range(m->w, first, n, &view);
    if (status == TR_OK) status = tr_model_append(w, view->value, n);
    tr_view_close(&view);
    return status;
}

static int job_text(const tr_job *job, char **text)
{
    size_t length;
    FILE *file = open_memstream(text, &length);
    if (!file) return tr_fail(TR_ERR_SYSTEM, "no memory for the text of the job");
    int status = tr_job_write_yaml(job, file);
    if (fclose(file) != 0 && status == TR_OK)
        status = tr_fail(TR_ERR_SYSTEM, "no memory for the text of the job");
    return status;
}

/* The positive kind is the larger one, as in training. Where the data had only one, the other needs a name.
 */
static void name_labels(const tr_data *train, float label[2])
{
    label[0] = train->label[train->labels > 0 ? train->labels - 1 : 0];
    label[1] = train->labels > 1 ? train->label[0] : label[0] > 0 ? -label[0] : label[0] - 1;
}

static int write_model(const struct tr_linear *m, struct tr_model *head, const char *folder)
{
    struct tr_model_writer *w;
    TR_TRY(pull_bias(m, head));
    TR_TRY(job_text(m->job, &head->job));
    TR_TRY(tr_model_create(folder, head, &w));
    int status = TR_OK;
    for (uint64_t first = 0; first < head->features && status == TR_OK; first += PIECE)
        status = append_range(m, w, first, tr_min_size(PIECE, head->features - first));
    if (status == TR_OK) return tr_model_finish(&w);
    tr_model_abandon(&w);
    return status;
}

int tr_linear_save(struct tr_linear *m, const char *folder)
{
    tr_context *tr = m->tr;
    double objective = m->last.objective; /* known to the scheduler alone */
    MPI_Request request;
    MPI_Ibcast(&objective, 1, MPI_DOUBLE, 0, tr->world, &request);
    TR_TRY(tr_wait_request(tr, &request, "the scheduler to tell the objective"));
    int status = TR_OK;
    if (tr->rank == tr->layout.server_rank[0]) {
        struct tr_model head = {.type = m->job->model.type,
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
