#define _GNU_SOURCE
#include "store/h5_parts.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"

static hid_t stored_type(enum tr_h5_type type)
{
    switch (type) {
    case TR_H5_F32: return H5T_IEEE_F32LE;
    case TR_H5_F64: return H5T_IEEE_F64LE;
    case TR_H5_I32: return H5T_STD_I32LE;
    case TR_H5_I64: return H5T_STD_I64LE;
    case TR_H5_U8: return H5T_STD_U8LE;
    case TR_H5_U16: return H5T_STD_U16LE;
    case TR_H5_U32: return H5T_STD_U32LE;
    default: return H5T_STD_U64LE;
    }
}

struct tr_h5_writer {
    char *folder, *path, *part; /* names of the folder, of the file, and before it is complete */
    hid_t file;
    hid_t array, type;          /* begun last; -1: none */
    uint64_t rows, columns, at; /* of it, and rows written */
};

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

static int h5_failed(const struct tr_h5_writer *w)
{
    char reason[128];
    snprintf(reason, sizeof reason, "%s", errno ? strerror(errno) : "HDF5 failed");
    H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, find_reason, reason);
    return tr_fail(TR_ERR_IO, "%s: cannot be written: %s", w->path, reason);
}

static int failed(int status, const char *path)
{
    return tr_fail(status, "%s: cannot be written: %s", path, strerror(errno));
}

/* ---- attributes ---- */

static int put_attribute(struct tr_h5_writer *w, hid_t of, const char *name, hid_t type, const void *value)
{
    errno = 0;
    hid_t space = H5Screate(H5S_SCALAR), attribute = -1;
    bool ok = space >= 0;
    ok = ok && (attribute = H5Acreate2(of, name, type, space, H5P_DEFAULT, H5P_DEFAULT)) >= 0;
    ok = ok && H5Awrite(attribute, type, value) >= 0;
    if (attribute >= 0) ok = H5Aclose(attribute) >= 0 && ok;
    int status = ok ? TR_OK : h5_failed(w);
    if (space >= 0) H5Sclose(space);
    return status;
}

static int put_text_attribute(struct tr_h5_writer *w, hid_t of, const char *name, const char *text)
{
    hid_t type = tr_h5_text_type(strlen(text) + 1);
    int status = put_attribute(w, of, name, type, text);
    H5Tclose(type);
    return status;
}

int tr_h5_put_count(struct tr_h5_writer *w, const char *name, uint64_t value)
{
    return put_attribute(w, w->file, name, H5T_NATIVE_UINT64, &value);
}

int tr_h5_put_real(struct tr_h5_writer *w, const char *name, double value)
{
    return put_attribute(w, w->file, name, H5T_NATIVE_DOUBLE, &value);
}

int tr_h5_put_text(struct tr_h5_writer *w, const char *name, const char *text)
{
    return put_text_attribute(w, w->file, name, text);
}

/* ---- arrays ---- */

static int end_array(struct tr_h5_writer *w)
{
    if (w->array < 0) return TR_OK;
    if (w->at != w->rows) return tr_fail(TR_ERR_INTERNAL, "%s: an array has too few rows", w->path);
    errno = 0;
    herr_t closed = H5Dclose(w->array);
    H5Tclose(w->type);
    w->array = -1;
    return closed < 0 ? h5_failed(w) : TR_OK;
}

/* All of it will be written, so it is not filled with zeros first. */
static int begin_array(struct tr_h5_writer *w, const char *name, hid_t stored, hid_t type, int dimensions)
{
    hsize_t shape[2] = {w->rows, w->columns};
    errno = 0;
    hid_t space = dimensions > 0 ? H5Screate_simple(dimensions, shape, NULL) : H5Screate(H5S_SCALAR);
    hid_t how = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_fill_time(how, H5D_FILL_TIME_NEVER);
    H5Pset_obj_track_times(how, false); /* equal models are equal files */
    w->array = H5Dcreate2(w->file, name, stored, space, H5P_DEFAULT, how, H5P_DEFAULT);
    w->type = type;
    w->at = 0;
    int status = w->array < 0 ? h5_failed(w) : TR_OK;
    if (status != TR_OK) H5Tclose(type);
    H5Pclose(how);
    H5Sclose(space);
    return status;
}

int tr_h5_begin(struct tr_h5_writer *w, const char *name, enum tr_h5_type type, uint64_t rows,
                uint64_t columns)
{
    TR_TRY(end_array(w));
    int dimensions = columns > 0 ? 2 : rows > 0 ? 1 : 0;
    w->rows = dimensions > 0 ? rows : 1;
    w->columns = columns;
    return begin_array(w, name, stored_type(type), H5Tcopy(tr_h5_memory_type(type)), dimensions);
}

int tr_h5_begin_texts(struct tr_h5_writer *w, const char *name, uint64_t n, size_t length)
{
    TR_TRY(end_array(w));
    hid_t type = tr_h5_text_type(length);
    w->rows = n;
    w->columns = 0;
    return begin_array(w, name, type, type, 1);
}

int tr_h5_append(struct tr_h5_writer *w, const void *values, size_t rows)
{
    if (w->array < 0 || rows > w->rows - w->at) return tr_fail(TR_ERR_INTERNAL, "%s: too many rows", w->path);
    if (rows == 0) return TR_OK;
    hsize_t first[2] = {w->at, 0}, count[2] = {rows, w->columns};
    errno = 0;
    hid_t where = H5Dget_space(w->array);
    int dimensions = where < 0 ? -1 : H5Sget_simple_extent_ndims(where);
    hid_t memory = dimensions > 0 ? H5Screate_simple(dimensions, count, NULL) : H5Screate(H5S_SCALAR);
    bool ok = where >= 0 && memory >= 0;
    if (dimensions > 0) ok = ok && H5Sselect_hyperslab(where, H5S_SELECT_SET, first, NULL, count, NULL) >= 0;
    ok = ok && H5Dwrite(w->array, w->type, memory, where, H5P_DEFAULT, values) >= 0;
    int status = ok ? TR_OK : h5_failed(w);
    if (memory >= 0) H5Sclose(memory);
    if (where >= 0) H5Sclose(where);
    w->at += rows;
    return status;
}

int tr_h5_put(struct tr_h5_writer *w, const char *name, enum tr_h5_type type, uint64_t rows, uint64_t columns,
              const void *values)
{
    TR_TRY(tr_h5_begin(w, name, type, rows, columns));
    return tr_h5_append(w, values, (size_t)w->rows);
}

int tr_h5_describe(struct tr_h5_writer *w, const char *name, const char *text)
{
    if (w->array < 0) return tr_fail(TR_ERR_INTERNAL, "%s: there is no array to describe", w->path);
    return put_text_attribute(w, w->array, name, text);
}

/* ---- the file ---- */

int tr_make_folder(const char *folder)
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

static int put_job(struct tr_h5_writer *w, const char *job)
{
    if (!job) return TR_OK;
    hid_t type = tr_h5_text_type(strlen(job) + 1);
    w->rows = 1;
    w->columns = 0;
    TR_TRY(begin_array(w, "job", type, type, 0));
    return tr_h5_append(w, job, 1);
}

static int create_file(struct tr_h5_writer *w)
{
    int fd = open(w->part, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666); /* errno says more than HDF5 */
    if (fd < 0) return failed(TR_ERR_NO_OUTPUT, w->path);
    close(fd);
    errno = 0;
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL); /* errors are ours to print */
    hid_t access = tr_h5_without_locks();
    w->file = H5Fcreate(w->part, H5F_ACC_TRUNC, H5P_DEFAULT, access);
    int status = w->file < 0 ? h5_failed(w) : TR_OK;
    H5Pclose(access);
    return status;
}

static int start(struct tr_h5_writer *w, const char *folder)
{
    TR_TRY(tr_copy_string(folder, &w->folder));
    TR_TRY(tr_format(&w->path, "%s/model.h5", folder));
    TR_TRY(tr_format(&w->part, "%s/model.h5.part", folder));
    TR_TRY(tr_make_folder(folder));
    return create_file(w);
}

int tr_h5_create(const char *folder, const char *format, int format_version, const char *job,
                 const char *version, struct tr_h5_writer **writer)
{
    struct tr_h5_writer *w;
    TR_TRY(TR_NEW(&w, 1));
    w->file = w->array = -1;
    int status = start(w, folder);
    if (status == TR_OK) status = tr_h5_put_text(w, "format", format);
    if (status == TR_OK)
        status = put_attribute(w, w->file, "format_version", H5T_NATIVE_INT, &format_version);
    if (status == TR_OK) status = tr_h5_put_text(w, "trireme", version ? version : TR_VERSION);
    if (status == TR_OK) status = put_job(w, job);
    *writer = w;
    if (status != TR_OK) tr_h5_abandon(writer);
    return status;
}

int tr_h5_seal(struct tr_h5_writer *w)
{
    if (w->file < 0) return TR_OK;
    TR_TRY(end_array(w));
    errno = 0;
    if (H5Fflush(w->file, H5F_SCOPE_LOCAL) < 0) return h5_failed(w);
    herr_t closed = H5Fclose(w->file);
    w->file = -1;
    if (closed < 0) return h5_failed(w);
    int fd = open(w->part, O_RDONLY | O_CLOEXEC);
    int status = fd < 0 || fsync(fd) < 0 ? failed(TR_ERR_IO, w->path) : TR_OK;
    if (fd >= 0) close(fd);
    return status;
}

static int sync_folder(const struct tr_h5_writer *w)
{
    int fd = open(w->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    /* some file systems cannot sync a folder and say EINVAL: the names are as safe as they can be there */
    int status = fd < 0 || (fsync(fd) < 0 && errno != EINVAL) ? failed(TR_ERR_IO, w->folder) : TR_OK;
    if (fd >= 0) close(fd);
    return status;
}

static void free_writer(struct tr_h5_writer **writer)
{
    struct tr_h5_writer *w = *writer;
    free(w->folder);
    free(w->path);
    free(w->part);
    free(w);
    *writer = NULL;
}

int tr_h5_finish(struct tr_h5_writer **writer)
{
    struct tr_h5_writer *w = *writer;
    int status = tr_h5_seal(w);
    if (status == TR_OK && rename(w->part, w->path) < 0) status = failed(TR_ERR_IO, w->path);
    if (status == TR_OK) status = sync_folder(w);
    if (status == TR_OK) free_writer(writer);
    else tr_h5_abandon(writer);
    return status;
}

void tr_h5_abandon(struct tr_h5_writer **writer)
{
    struct tr_h5_writer *w = *writer;
    if (!w) return;
    /* HDF5 insists on writing what it has buffered before it lets go of a file: give it the room */
    if (w->file >= 0 && truncate(w->part, 0) < 0) errno = 0;
    if (w->array >= 0) {
        H5Dclose(w->array);
        H5Tclose(w->type);
    }
    if (w->file >= 0) H5Fclose(w->file);
    if (w->part) unlink(w->part);
    free_writer(writer);
}
