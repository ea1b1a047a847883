#define _GNU_SOURCE
#include "store/h5.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "base/file.h"
#include "store/checked.h"

#define CHECKED "trireme-model" /* format of the header; the attribute `format` names the model class */
enum { VERSION = 1, MOST_ARRAYS = 96 };

static hid_t h5_memory_type(enum tr_h5_type type)
{
    const hid_t types[] = {H5T_NATIVE_FLOAT, H5T_NATIVE_DOUBLE, H5T_NATIVE_INT32,  H5T_NATIVE_INT64,
                           H5T_NATIVE_UINT8, H5T_NATIVE_UINT16, H5T_NATIVE_UINT32, H5T_NATIVE_UINT64};
    return types[type];
}

/* ---- writing ---- */

struct tr_h5_writer {
    struct tr_checked_writer file;
    uint64_t rows, row_bytes; /* rows of the current array; bytes of a row */
};

int tr_h5_put_count(struct tr_h5_writer *w, const char *name, uint64_t value)
{
    return tr_attribute_count(w->file.file, name, value);
}

int tr_h5_put_real(struct tr_h5_writer *w, const char *name, double value)
{
    return tr_attribute(w->file.file, name, H5T_NATIVE_DOUBLE, &value);
}

int tr_h5_put_text(struct tr_h5_writer *w, const char *name, const char *text)
{
    return tr_attribute_text(w->file.file, name, text);
}

static int h5_begin(struct tr_h5_writer *w, const char *name, hid_t type, int dimensions, uint64_t rows,
                    uint64_t columns)
{
    const uint64_t shape[2] = {rows, columns};
    w->rows = dimensions > 0 ? rows : 1;
    w->row_bytes = H5Tget_size(type) * (dimensions > 1 ? columns : 1);
    return tr_checked_begin(&w->file, w->file.file, name, type, dimensions, shape, 0, NULL);
}

int tr_h5_begin(struct tr_h5_writer *w, const char *name, enum tr_h5_type type, uint64_t rows,
                uint64_t columns)
{
    return h5_begin(w, name, h5_memory_type(type), columns > 0 ? 2 : rows > 0 ? 1 : 0, rows, columns);
}

int tr_h5_begin_texts(struct tr_h5_writer *w, const char *name, uint64_t n, size_t length)
{
    TR_HID type = tr_text_type(length);
    return h5_begin(w, name, type, 1, n, 0);
}

int tr_h5_append(struct tr_h5_writer *w, const void *values, size_t rows)
{
    return tr_checked_append(&w->file, values, rows * w->row_bytes);
}

int tr_h5_put(struct tr_h5_writer *w, const char *name, enum tr_h5_type type, uint64_t rows, uint64_t columns,
              const void *values)
{
    TR_TRY(tr_h5_begin(w, name, type, rows, columns));
    return tr_h5_append(w, values, (size_t)w->rows);
}

int tr_h5_describe(struct tr_h5_writer *w, const char *name, const char *text)
{
    if (w->file.array < 0)
        return tr_fail(TR_ERR_INTERNAL, "%s: there is no array to describe", w->file.target.path);
    return tr_attribute_text(w->file.array, name, text);
}

int tr_h5_create(const char *folder, const char *format, int format_version, const char *job,
                 const char *version, struct tr_h5_writer **writer)
{
    struct tr_h5_writer *w TR_CLOSED_BY(tr_h5_abandon) = NULL;
    TR_FREED char *path = NULL;
    TR_TRY(TR_NEW(&w, 1));
    w->file = (struct tr_checked_writer){.fd = -1, .layout = -1, .file = -1, .array = -1};
    TR_TRY(tr_make_folder(folder, true));
    TR_TRY(tr_format(&path, "%s/model.h5", folder));
    TR_TRY(tr_checked_create(&w->file, path, CHECKED, VERSION,
                             tr_checked_header_bytes(MOST_ARRAYS, MOST_ARRAYS, 0), TR_TARGET_DURABLE,
                             "model.write", "model.name"));
    TR_TRY(tr_attributes_of_format(w->file.file, format, format_version, version ? version : TR_VERSION));
    if (job) {
        TR_HID type = tr_text_type(strlen(job) + 1);
        TR_TRY(h5_begin(w, "job", type, 0, 1, 0));
        TR_TRY(tr_h5_append(w, job, 1));
    }
    *writer = w;
    w = NULL;
    return TR_OK;
}

int tr_h5_finish(struct tr_h5_writer **writer)
{
    struct tr_checked_writer *w = &(*writer)->file;
    int status = w->file < 0 ? TR_OK : tr_checked_seal(w, NULL, 0);
    if (status == TR_OK) status = tr_checked_finish(w);
    tr_h5_abandon(writer);
    return status;
}

void tr_h5_abandon(struct tr_h5_writer **writer)
{
    if (!*writer) return;
    tr_checked_abandon(&(*writer)->file);
    free(*writer);
    *writer = NULL;
}

/* ---- reading ---- */

struct tr_h5_reader {
    char *path, *format;
    struct tr_checked checked; /* only its descriptor is set if the file is not a checked file */
    hid_t file;
};

const char *tr_h5_format(const struct tr_h5_reader *r)
{
    return r->format;
}

bool tr_h5_has(struct tr_h5_reader *r, const char *name)
{
    return H5Lexists(r->file, name, H5P_DEFAULT) > 0 || H5Aexists(r->file, name) > 0;
}

static int h5_missing(const struct tr_h5_reader *r, const char *what)
{
    return tr_fail(TR_ERR_DATA, "%s: not a model of Trireme: %s is missing or of another kind", r->path,
                   what);
}

static int h5_unreadable(const struct tr_h5_reader *r, const char *name)
{
    return tr_fail(TR_ERR_DATA, "%s: damaged: %s cannot be read", r->path, name);
}

/* An attribute of the file, or a dataset: numbers or texts of one length, in at most two dimensions. */
struct item {
    hid_t attribute, set, type, space; /* HDF5 identifiers; a negative one is not open */
    /* is_known: the item exists, and its elements are numbers or texts; is_real: floats; is_text: texts */
    bool is_known, is_real, is_text;
    size_t size; /* bytes of an element */
    int dimensions;
    hsize_t extent[2];
};

static struct item item_open(const struct tr_h5_reader *r, const char *name, bool is_attribute)
{
    struct item i = {.attribute = -1, .set = -1, .type = -1, .space = -1, .extent = {1, 1}};
    if (is_attribute) i.attribute = H5Aopen(r->file, name, H5P_DEFAULT);
    else i.set = H5Dopen2(r->file, name, H5P_DEFAULT);
    if (i.attribute >= 0) i.type = H5Aget_type(i.attribute), i.space = H5Aget_space(i.attribute);
    if (i.set >= 0) i.type = H5Dget_type(i.set), i.space = H5Dget_space(i.set);
    if (i.type < 0 || i.space < 0) return i;
    H5T_class_t class = H5Tget_class(i.type);
    i.is_real = class == H5T_FLOAT;
    i.is_text = class == H5T_STRING && H5Tis_variable_str(i.type) == 0;
    i.size = H5Tget_size(i.type);
    i.dimensions = H5Sget_simple_extent_ndims(i.space);
    i.is_known = (i.is_real || i.is_text || class == H5T_INTEGER) && i.dimensions >= 0 && i.dimensions <= 2 &&
                 H5Sget_simple_extent_dims(i.space, i.extent, NULL) == i.dimensions;
    return i;
}

static void item_close(const struct item *i)
{
    tr_hid_close(&i->space);
    tr_hid_close(&i->type);
    tr_hid_close(&i->attribute);
    tr_hid_close(&i->set);
}

static int h5_get_number(struct tr_h5_reader *r, const char *name, hid_t type, void *value)
{
    struct item i TR_CLOSED_BY(item_close) = item_open(r, name, true);
    bool ok =
        i.is_known && !i.is_text && i.extent[0] * i.extent[1] == 1 && H5Aread(i.attribute, type, value) >= 0;
    return ok ? TR_OK : h5_missing(r, name);
}

int tr_h5_get_count(struct tr_h5_reader *r, const char *name, uint64_t *value)
{
    return h5_get_number(r, name, H5T_NATIVE_UINT64, value);
}

int tr_h5_get_real(struct tr_h5_reader *r, const char *name, double *value)
{
    return h5_get_number(r, name, H5T_NATIVE_DOUBLE, value);
}

/* Reads one text. Free it. */
static int h5_get_text(struct tr_h5_reader *r, const char *name, bool is_attribute, char **text)
{
    struct item i TR_CLOSED_BY(item_close) = item_open(r, name, is_attribute);
    bool ok = i.is_known && i.is_text && i.extent[0] * i.extent[1] == 1 &&
              (is_attribute || H5Dget_storage_size(i.set) >= i.size);
    if (!ok) return h5_missing(r, name);
    TR_TRY(TR_NEW(text, i.size + 1));
    int failed = is_attribute ? H5Aread(i.attribute, i.type, *text)
                              : H5Dread(i.set, i.type, H5S_ALL, H5S_ALL, H5P_DEFAULT, *text);
    return failed < 0 ? h5_missing(r, name) : TR_OK;
}

int tr_h5_get_text(struct tr_h5_reader *r, const char *name, char **text)
{
    return h5_get_text(r, name, true, text);
}

int tr_h5_get_job(struct tr_h5_reader *r, char **text)
{
    *text = NULL;
    return tr_h5_has(r, "job") ? h5_get_text(r, "job", false, text) : TR_OK;
}

int tr_h5_is_f32(struct tr_h5_reader *r, const char *name, bool *single)
{
    struct item i TR_CLOSED_BY(item_close) = item_open(r, name, false);
    *single = i.size == 4;
    return i.is_known && i.is_real ? TR_OK : h5_missing(r, name);
}

static int h5_wrong_shape(const struct tr_h5_reader *r, const char *name, uint64_t found, uint64_t expected)
{
    return tr_fail(TR_ERR_DATA, "%s: there are %llu numbers in %s, expected %llu", r->path,
                   (unsigned long long)found, name, (unsigned long long)expected);
}

/* Checks the shape of an array, and that the file contains all its bytes: a damaged file must not cause a huge allocation. */
static int h5_check_shape(const struct tr_h5_reader *r, const struct item *i, const char *name, uint64_t rows,
                          uint64_t columns)
{
    if (!i->is_known || (i->dimensions == 2) != (columns > 0)) return h5_missing(r, name);
    if (columns > 0 && i->extent[1] != columns) return h5_wrong_shape(r, name, i->extent[1], columns);
    if (i->dimensions == 0 && rows == 0) rows = 1;
    if (i->extent[0] != rows) return h5_wrong_shape(r, name, i->extent[0], rows);
    uint64_t stored = H5Dget_storage_size(i->set) / i->size;
    if (columns > 0 ? stored / columns >= rows : stored >= rows) return TR_OK;
    return tr_fail(TR_ERR_DATA, "%s: damaged: %s is incomplete", r->path, name);
}

int tr_h5_get(struct tr_h5_reader *r, const char *name, enum tr_h5_type type, uint64_t rows, uint64_t columns,
              void *values_pointer)
{
    enum { LARGE = 1 << 26 };
    struct item i TR_CLOSED_BY(item_close) = item_open(r, name, false);
    TR_FREED char *values = NULL;
    hid_t memory = h5_memory_type(type);
    TR_TRY(h5_check_shape(r, &i, name, rows, columns));
    if (i.is_text) return h5_missing(r, name);
    uint64_t bytes = i.extent[0] * i.extent[1] * H5Tget_size(memory);
    TR_TRY(TR_NEW(&values, bytes));
    /* a large array that needs no conversion is read without HDF5, which would allocate memory for holes of the file */
    haddr_t at = bytes >= LARGE && H5Tequal(i.type, memory) > 0 ? H5Dget_offset(i.set) : HADDR_UNDEF;
    if (at != HADDR_UNDEF) TR_TRY(tr_checked_fill(&r->checked, values, at, bytes));
    else if (H5Dread(i.set, memory, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) < 0) return h5_unreadable(r, name);
    *(void **)values_pointer = values;
    values = NULL;
    return TR_OK;
}

int tr_h5_get_texts(struct tr_h5_reader *r, const char *name, uint64_t n, char **texts, size_t *length)
{
    struct item i TR_CLOSED_BY(item_close) = item_open(r, name, false);
    TR_FREED char *read = NULL;
    TR_TRY(h5_check_shape(r, &i, name, n, 0));
    if (!i.is_text) return h5_missing(r, name);
    TR_TRY(TR_NEW(&read, n * (i.size + 1) + 1));
    TR_HID type = tr_text_type(i.size + 1);
    if (H5Dread(i.set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, read) < 0) return h5_unreadable(r, name);
    *length = i.size + 1;
    for (uint64_t k = 1; k <= n; k++) read[k * *length - 1] = '\0';
    *texts = read;
    read = NULL;
    return TR_OK;
}

/* ---- the file ---- */

bool tr_h5_begins(const char *begin, size_t n)
{
    static const char hdf5[8] = "\211HDF\r\n\032\n";
    return (n >= sizeof hdf5 && memcmp(begin, hdf5, sizeof hdf5) == 0) ||
           (n >= sizeof CHECKED && memcmp(begin, CHECKED, sizeof CHECKED) == 0);
}

int tr_h5_open(const char *path, const char *format, int format_version, struct tr_h5_reader **reader)
{
    struct tr_h5_reader *r TR_CLOSED_BY(tr_h5_close) = NULL;
    struct stat about;
    char begin[24];
    TR_TRY(TR_NEW(&r, 1));
    r->file = -1;
    r->checked.fd = -1;
    if (stat(path, &about) < 0) return tr_fail(TR_ERR_NO_INPUT, "%s: %s", path, strerror(errno));
    if (!S_ISDIR(about.st_mode)) TR_TRY(tr_copy_string(path, &r->path));
    else TR_TRY(tr_format(&r->path, "%s/model.h5", path));
    if (S_ISDIR(about.st_mode) && access(r->path, F_OK) < 0)
        return tr_fail(TR_ERR_NO_INPUT, "%s: there is no model.h5 in this folder", path);

    int fd = open(r->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    ssize_t n = fd < 0 ? -1 : pread(fd, begin, sizeof begin, 0);
    r->checked.fd = fd;
    if (n < 0) return tr_fail(TR_ERR_NO_INPUT, "%s: %s", r->path, strerror(errno));
    if (n == 0) return tr_fail(TR_ERR_NO_INPUT, "%s: empty", r->path);
    /* refuses other files here: HDF5 would search for a HDF5 file behind a damaged header */
    int status = tr_h5_begins(begin, (size_t)n) ? TR_OK : TR_ERR_DATA;
    if (status == TR_OK && *begin == *CHECKED) {
        close(fd);
        status = tr_checked_open(&r->checked, r->path, CHECKED, VERSION);
        if (status == TR_OK) status = tr_checked_verify(&r->checked);
    }
    if (status == TR_OK) status = tr_hdf5_open(r->path, r->checked.fd, &r->file);
    if (r->file < 0 && (status == TR_OK || status == TR_ERR_DATA))
        return tr_fail(TR_ERR_DATA, "%s: cut off or damaged", r->path);
    TR_TRY(status);

    int version = 0;
    TR_TRY(tr_h5_get_text(r, "format", &r->format));
    TR_TRY(h5_get_number(r, "format_version", H5T_NATIVE_INT, &version));
    if (format && strcmp(r->format, format) != 0) {
        char what[96];
        snprintf(what, sizeof what, "format %s", format);
        return h5_missing(r, what);
    }
    if (format_version != 0 && version != format_version)
        return tr_fail(TR_ERR_DATA,
                       "%s: format version %d, expected %d: it comes from another version of Trireme",
                       r->path, version, format_version);
    *reader = r;
    r = NULL;
    return TR_OK;
}

void tr_h5_close(struct tr_h5_reader **reader)
{
    struct tr_h5_reader *r = *reader;
    if (!r) return;
    if (r->file >= 0) H5Fclose(r->file);
    tr_checked_close(&r->checked);
    TR_FREE_ALL(r->path, r->format, r);
    *reader = NULL;
}
