#define _GNU_SOURCE
#include "model/h5.h"

#include <errno.h>
#include <fcntl.h>
#include <hdf5.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"

static hid_t memory_type(enum tr_h5_type type)
{
    switch (type) {
    case TR_H5_F32: return H5T_NATIVE_FLOAT;
    case TR_H5_F64: return H5T_NATIVE_DOUBLE;
    case TR_H5_I32: return H5T_NATIVE_INT32;
    case TR_H5_I64: return H5T_NATIVE_INT64;
    case TR_H5_U8: return H5T_NATIVE_UINT8;
    case TR_H5_U16: return H5T_NATIVE_UINT16;
    case TR_H5_U32: return H5T_NATIVE_UINT32;
    default: return H5T_NATIVE_UINT64;
    }
}

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

static hid_t text_type(size_t length)
{
    hid_t type = H5Tcopy(H5T_C_S1);
    H5Tset_size(type, length);
    H5Tset_strpad(type, H5T_STR_NULLPAD);
    H5Tset_cset(type, H5T_CSET_UTF8);
    return type;
}

/* The file itself is opened by its name: nobody else knows it, or changes it, and some file systems cannot lock. */
static hid_t without_locks(void)
{
    hid_t access = H5Pcreate(H5P_FILE_ACCESS);
    H5Pset_file_locking(access, false, true);
    return access;
}

/* ================ writing ================ */

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
    hid_t type = text_type(strlen(text) + 1);
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
    return begin_array(w, name, stored_type(type), H5Tcopy(memory_type(type)), dimensions);
}

int tr_h5_begin_texts(struct tr_h5_writer *w, const char *name, uint64_t n, size_t length)
{
    TR_TRY(end_array(w));
    hid_t type = text_type(length);
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

int tr_job_as_text(const tr_job *job, char **text)
{
    size_t length;
    FILE *file = open_memstream(text, &length);
    if (!file) return tr_fail(TR_ERR_SYSTEM, "no memory for the text of the job");
    int status = tr_job_write_yaml(job, file);
    if (fclose(file) != 0 && status == TR_OK)
        status = tr_fail(TR_ERR_SYSTEM, "no memory for the text of the job");
    return status;
}

static int put_job(struct tr_h5_writer *w, const char *job)
{
    if (!job) return TR_OK;
    hid_t type = text_type(strlen(job) + 1);
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
    hid_t access = without_locks();
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

/* ================ reading ================ */

struct tr_h5_reader {
    char *path, *format;
    hid_t file;
};

static int missing(const struct tr_h5_reader *r, const char *what)
{
    return tr_fail(TR_ERR_DATA, "%s: not a model of Trireme: %s is missing or of another kind", r->path,
                   what);
}

const char *tr_h5_path(const struct tr_h5_reader *r)
{
    return r->path;
}

const char *tr_h5_format(const struct tr_h5_reader *r)
{
    return r->format;
}

bool tr_h5_has(struct tr_h5_reader *r, const char *name)
{
    return H5Lexists(r->file, name, H5P_DEFAULT) > 0;
}

/* ---- attributes ---- */

static int get_number(struct tr_h5_reader *r, const char *name, hid_t type, void *value)
{
    bool is_number = false;
    hid_t attribute = H5Aopen(r->file, name, H5P_DEFAULT), stored = -1, space = -1;
    if (attribute >= 0 && (stored = H5Aget_type(attribute)) >= 0 && (space = H5Aget_space(attribute)) >= 0) {
        H5T_class_t class = H5Tget_class(stored);
        is_number = (class == H5T_INTEGER || class == H5T_FLOAT) && H5Sget_simple_extent_npoints(space) == 1;
    }
    bool ok = is_number && H5Aread(attribute, type, value) >= 0;
    if (space >= 0) H5Sclose(space);
    if (stored >= 0) H5Tclose(stored);
    if (attribute >= 0) H5Aclose(attribute);
    return ok ? TR_OK : missing(r, name);
}

int tr_h5_get_count(struct tr_h5_reader *r, const char *name, uint64_t *value)
{
    return get_number(r, name, H5T_NATIVE_UINT64, value);
}

int tr_h5_get_real(struct tr_h5_reader *r, const char *name, double *value)
{
    return get_number(r, name, H5T_NATIVE_DOUBLE, value);
}

static bool is_plain_text(hid_t type)
{
    return type >= 0 && H5Tget_class(type) == H5T_STRING && H5Tis_variable_str(type) == 0;
}

int tr_h5_get_text(struct tr_h5_reader *r, const char *name, char **text)
{
    hid_t attribute = H5Aopen(r->file, name, H5P_DEFAULT), type = attribute < 0 ? -1 : H5Aget_type(attribute);
    hid_t space = attribute < 0 ? -1 : H5Aget_space(attribute);
    bool ok = is_plain_text(type) && space >= 0 && H5Sget_simple_extent_npoints(space) == 1;
    int status = ok ? TR_NEW(text, H5Tget_size(type) + 1) : TR_OK;
    ok = ok && status == TR_OK && H5Aread(attribute, type, *text) >= 0;
    if (space >= 0) H5Sclose(space);
    if (type >= 0) H5Tclose(type);
    if (attribute >= 0) H5Aclose(attribute);
    return status != TR_OK ? status : ok ? TR_OK : missing(r, name);
}

int tr_h5_get_job(struct tr_h5_reader *r, char **text)
{
    *text = NULL;
    if (!tr_h5_has(r, "job")) return TR_OK;
    hid_t set = H5Dopen2(r->file, "job", H5P_DEFAULT), type = set < 0 ? -1 : H5Dget_type(set);
    hid_t space = set < 0 ? -1 : H5Dget_space(set);
    bool ok = is_plain_text(type) && space >= 0 && H5Sget_simple_extent_npoints(space) == 1 &&
              H5Dget_storage_size(set) >= H5Tget_size(type);
    int status = ok ? TR_NEW(text, H5Tget_size(type) + 1) : TR_OK;
    ok = ok && status == TR_OK && H5Dread(set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, *text) >= 0;
    if (space >= 0) H5Sclose(space);
    if (type >= 0) H5Tclose(type);
    if (set >= 0) H5Dclose(set);
    return status != TR_OK ? status : ok ? TR_OK : missing(r, "job");
}

/* ---- arrays ---- */

struct shape {
    size_t size; /* bytes of an element in the file */
    bool is_real, is_text;
};

/* Nothing is compressed, so that what is not there in full shows before memory is taken for what a damaged head
 * promises. */
static int check_storage(struct tr_h5_reader *r, hid_t set, const char *name, size_t size, uint64_t rows,
                         uint64_t columns)
{
    uint64_t stored = H5Dget_storage_size(set) / size;
    if (columns > 0 ? stored / columns < rows : stored < rows)
        return tr_fail(TR_ERR_DATA, "%s: damaged: %s is not there in full", r->path, name);
    return TR_OK;
}

static int wrong_shape(struct tr_h5_reader *r, const char *name, uint64_t found, uint64_t expected)
{
    return tr_fail(TR_ERR_DATA, "%s: there are %llu numbers in %s, expected %llu", r->path,
                   (unsigned long long)found, name, (unsigned long long)expected);
}

static int check_shape(struct tr_h5_reader *r, hid_t set, const char *name, uint64_t rows, uint64_t columns,
                       struct shape *shape)
{
    hid_t type = set < 0 ? -1 : H5Dget_type(set), space = set < 0 ? -1 : H5Dget_space(set);
    hsize_t found[2] = {1, 0};
    int dimensions = space < 0 ? -1 : H5Sget_simple_extent_ndims(space);
    bool ok = type >= 0 && dimensions >= 0 && dimensions <= 2;
    if (ok) {
        H5T_class_t class = H5Tget_class(type);
        *shape = (struct shape){H5Tget_size(type), class == H5T_FLOAT, is_plain_text(type)};
        ok = (class == H5T_FLOAT || class == H5T_INTEGER || shape->is_text) &&
             H5Sget_simple_extent_dims(space, found, NULL) == dimensions;
    }
    if (type >= 0) H5Tclose(type);
    if (space >= 0) H5Sclose(space);
    if (!ok || (dimensions == 2) != (columns > 0)) return missing(r, name);
    if (columns > 0 && found[1] != columns) return wrong_shape(r, name, found[1], columns);
    if (dimensions == 0 && rows == 0) rows = 1;
    if (found[0] != rows) return wrong_shape(r, name, found[0], rows);
    return check_storage(r, set, name, shape->size, rows, columns);
}

int tr_h5_is_f32(struct tr_h5_reader *r, const char *name, bool *single)
{
    hid_t set = H5Dopen2(r->file, name, H5P_DEFAULT), type = set < 0 ? -1 : H5Dget_type(set);
    bool ok = type >= 0 && H5Tget_class(type) == H5T_FLOAT;
    if (ok) *single = H5Tget_size(type) == 4;
    if (type >= 0) H5Tclose(type);
    if (set >= 0) H5Dclose(set);
    return ok ? TR_OK : missing(r, name);
}

static size_t bytes_of(enum tr_h5_type type)
{
    return H5Tget_size(memory_type(type));
}

int tr_h5_get(struct tr_h5_reader *r, const char *name, enum tr_h5_type type, uint64_t rows, uint64_t columns,
              void *values_pointer)
{
    hid_t set = H5Dopen2(r->file, name, H5P_DEFAULT);
    struct shape shape;
    char *values = NULL;
    int status = check_shape(r, set, name, rows, columns, &shape);
    if (status == TR_OK && shape.is_text) status = missing(r, name);
    uint64_t n = (columns > 0 ? columns : 1) * (rows > 0 || columns > 0 ? rows : 1);
    if (status == TR_OK) status = TR_NEW(&values, n * bytes_of(type));
    if (status == TR_OK && H5Dread(set, memory_type(type), H5S_ALL, H5S_ALL, H5P_DEFAULT, values) < 0)
        status = tr_fail(TR_ERR_DATA, "%s: damaged: %s cannot be read", r->path, name);
    if (set >= 0) H5Dclose(set);
    if (status == TR_OK) *(void **)values_pointer = values;
    else free(values);
    return status;
}

int tr_h5_get_rows(struct tr_h5_reader *r, const char *name, enum tr_h5_type type, uint64_t rows,
                   uint64_t columns, uint64_t first, size_t n, void *values)
{
    if (first > rows || n > rows - first) return tr_fail(TR_ERR_INTERNAL, "%s: no such rows", r->path);
    if (n == 0) return TR_OK;
    hid_t set = H5Dopen2(r->file, name, H5P_DEFAULT);
    struct shape shape;
    int status = check_shape(r, set, name, rows, columns, &shape);
    if (status == TR_OK && shape.is_text) status = missing(r, name);
    if (status == TR_OK) {
        hsize_t begin[2] = {first, 0}, count[2] = {n, columns};
        hid_t where = H5Dget_space(set), memory = H5Screate_simple(columns > 0 ? 2 : 1, count, NULL);
        bool ok = where >= 0 && memory >= 0 &&
                  H5Sselect_hyperslab(where, H5S_SELECT_SET, begin, NULL, count, NULL) >= 0 &&
                  H5Dread(set, memory_type(type), memory, where, H5P_DEFAULT, values) >= 0;
        if (!ok) status = tr_fail(TR_ERR_DATA, "%s: damaged: %s cannot be read", r->path, name);
        if (memory >= 0) H5Sclose(memory);
        if (where >= 0) H5Sclose(where);
    }
    if (set >= 0) H5Dclose(set);
    return status;
}

int tr_h5_get_texts(struct tr_h5_reader *r, const char *name, uint64_t n, char **texts, size_t *length)
{
    hid_t set = H5Dopen2(r->file, name, H5P_DEFAULT), type = -1;
    struct shape shape = {.size = 1};
    char *read = NULL;
    int status = check_shape(r, set, name, n, 0, &shape);
    if (status == TR_OK && !shape.is_text) status = missing(r, name);
    if (status == TR_OK) status = TR_NEW(&read, n * (shape.size + 1) + 1);
    if (status == TR_OK) {
        type = text_type(shape.size + 1);
        if (H5Dread(set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, read) < 0)
            status = tr_fail(TR_ERR_DATA, "%s: damaged: %s cannot be read", r->path, name);
        H5Tclose(type);
    }
    for (uint64_t i = 0; status == TR_OK && i < n; i++) read[i * (shape.size + 1) + shape.size] = '\0';
    if (set >= 0) H5Dclose(set);
    if (status == TR_OK) {
        *texts = read;
        *length = shape.size + 1;
    } else {
        free(read);
    }
    return status;
}

/* ---- the file ---- */

static int check_format(struct tr_h5_reader *r, const char *format, int expected)
{
    int version = 0;
    TR_TRY(tr_h5_get_text(r, "format", &r->format));
    TR_TRY(get_number(r, "format_version", H5T_NATIVE_INT, &version));
    if (format && strcmp(r->format, format) != 0) {
        char what[96];
        snprintf(what, sizeof what, "format %s", format);
        return missing(r, what);
    }
    if (expected == 0 || version == expected) return TR_OK;
    return tr_fail(TR_ERR_DATA,
                   "%s: format version %d, expected %d: it comes from another version of Trireme", r->path,
                   version, expected);
}

/* The file that is meant: of a folder, its model.h5. */
static int find_file(const char *path, char **file)
{
    struct stat status;
    if (stat(path, &status) < 0) return tr_fail(TR_ERR_NO_INPUT, "%s: %s", path, strerror(errno));
    if (!S_ISDIR(status.st_mode)) return tr_copy_string(path, file);
    TR_TRY(tr_format(file, "%s/model.h5", path));
    if (access(*file, F_OK) == 0) return TR_OK;
    return tr_fail(TR_ERR_NO_INPUT, "%s: there is no model.h5 in this folder", path);
}

static int open_file(struct tr_h5_reader *r)
{
    struct stat status;
    if (stat(r->path, &status) < 0) return tr_fail(TR_ERR_NO_INPUT, "%s: %s", r->path, strerror(errno));
    if (status.st_size == 0) return tr_fail(TR_ERR_NO_INPUT, "%s: empty", r->path);
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL); /* errors are ours to print */
    hid_t how = without_locks();
    r->file = H5Fopen(r->path, H5F_ACC_RDONLY, how);
    H5Pclose(how);
    if (r->file >= 0) return TR_OK;
    return tr_fail(TR_ERR_DATA, "%s: cut off or damaged: not a complete HDF5 file", r->path);
}

int tr_h5_open(const char *path, const char *format, int format_version, struct tr_h5_reader **reader)
{
    struct tr_h5_reader *r;
    TR_TRY(TR_NEW(&r, 1));
    r->file = -1;
    int status = find_file(path, &r->path);
    if (status == TR_OK) status = open_file(r);
    if (status == TR_OK) status = check_format(r, format, format_version);
    if (status == TR_OK) *reader = r;
    else tr_h5_close(&r);
    return status;
}

void tr_h5_close(struct tr_h5_reader **reader)
{
    struct tr_h5_reader *r = *reader;
    if (!r) return;
    if (r->file >= 0) H5Fclose(r->file);
    free(r->path);
    free(r->format);
    free(r);
    *reader = NULL;
}
