#include "store/h5_parts.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"

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
    return H5Tget_size(tr_h5_memory_type(type));
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
    if (status == TR_OK && H5Dread(set, tr_h5_memory_type(type), H5S_ALL, H5S_ALL, H5P_DEFAULT, values) < 0)
        status = tr_fail(TR_ERR_DATA, "%s: damaged: %s cannot be read", r->path, name);
    if (set >= 0) H5Dclose(set);
    if (status == TR_OK) *(void **)values_pointer = values;
    else free(values);
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
        type = tr_h5_text_type(shape.size + 1);
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
    hid_t how = tr_h5_without_locks();
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
