#define _GNU_SOURCE
#include "data/hdf5.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- what HDF5 says ---- */

/* The innermost of its errors, which says most. */
static herr_t note_error(unsigned n, const H5E_error2_t *error, void *table)
{
    struct tr_hdf5 *t = table;
    if (n == 0) snprintf(t->why, sizeof t->why, "%s", error->desc);
    return 0;
}

/* Whether the call before has succeeded; the next call of HDF5 forgets why not. */
static bool done(struct tr_hdf5 *t, bool ok)
{
    if (!ok) H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, note_error, t);
    return ok;
}

static int cannot_read(const struct tr_hdf5 *t, const char *name)
{
    return tr_fail(TR_ERR_DATA, "%s%s%s: HDF5 cannot read it%s%s", t->path, *name ? ":" : "", name,
                   *t->why ? ": " : "", t->why);
}

static int wrong(const struct tr_hdf5 *t, const struct tr_hdf5_array *a, const char *what)
{
    return tr_fail(TR_ERR_DATA, "%s:%s: %s", t->path, a->name, what);
}

/* ---- arrays ---- */

static const struct {
    const hid_t *type;
    size_t size;
} natives[TR_HDF5_NUMBERS] = {
    [TR_HDF5_F32] = {&H5T_NATIVE_FLOAT_g, 4}, [TR_HDF5_F64] = {&H5T_NATIVE_DOUBLE_g, 8},
    [TR_HDF5_I8] = {&H5T_NATIVE_INT8_g, 1},   [TR_HDF5_U8] = {&H5T_NATIVE_UINT8_g, 1},
    [TR_HDF5_I16] = {&H5T_NATIVE_INT16_g, 2}, [TR_HDF5_U16] = {&H5T_NATIVE_UINT16_g, 2},
    [TR_HDF5_I32] = {&H5T_NATIVE_INT32_g, 4}, [TR_HDF5_U32] = {&H5T_NATIVE_UINT32_g, 4},
    [TR_HDF5_I64] = {&H5T_NATIVE_INT64_g, 8}, [TR_HDF5_U64] = {&H5T_NATIVE_UINT64_g, 8},
};

/* The type in memory nearest to that of the file. h5py writes truth values as an enumeration of small numbers. */
static int find_type(const struct tr_hdf5 *t, struct tr_hdf5_array *a, hid_t stored)
{
    H5T_class_t class = H5Tget_class(stored);
    if (class != H5T_INTEGER && class != H5T_FLOAT && class != H5T_ENUM)
        return wrong(t, a,
                     class == H5T_STRING     ? "texts, expected numbers"
                     : class == H5T_COMPOUND ? "records of several fields (a compound type), expected numbers"
                                             : "neither integers nor reals, expected numbers");
    a->type = H5Tget_native_type(stored, H5T_DIR_ASCEND);
    hid_t base = class == H5T_ENUM ? H5Tget_super(a->type) : H5Tcopy(a->type);
    int number = 0;
    while (number < TR_HDF5_NUMBERS && (base < 0 || H5Tequal(base, *natives[number].type) <= 0)) number++;
    if (base >= 0) H5Tclose(base);
    if (number == TR_HDF5_NUMBERS) {
        if (a->type >= 0) H5Tclose(a->type);
        a->type = H5Tcopy(H5T_NATIVE_DOUBLE);
        number = TR_HDF5_F64;
    }
    a->number = (enum tr_hdf5_number)number;
    a->size = natives[number].size;
    return TR_OK;
}

static int find_shape(const struct tr_hdf5 *t, struct tr_hdf5_array *a)
{
    hsize_t extent[2] = {0, 1};
    hid_t space = H5Dget_space(a->set);
    a->dimensions = H5Sget_simple_extent_ndims(space);
    bool known = a->dimensions == 1 || a->dimensions == 2;
    if (known) H5Sget_simple_extent_dims(space, extent, NULL);
    H5Sclose(space);
    if (!known) return wrong(t, a, "not of one or two dimensions");
    a->rows = extent[0];
    a->columns = extent[1];
    uint64_t bytes;
    if (__builtin_mul_overflow(a->rows, a->columns, &bytes) || __builtin_mul_overflow(bytes, 16, &bytes))
        return wrong(t, a, "damaged: its shape is too large");
    return TR_OK;
}

/* A few bytes may claim to be any number of rows, which would all be read as zeros. */
static bool claims_too_much(const struct tr_hdf5_array *a, H5D_layout_t layout)
{
    const uint64_t most = 1 << 20;
    bool stores = layout == H5D_CHUNKED || layout == H5D_CONTIGUOUS; /* others have their values elsewhere */
    return stores && a->rows * a->columns > most && H5Dget_storage_size(a->set) == 0;
}

/* How it is stored; compressed only in a way that this HDF5 knows. */
static int find_layout(const struct tr_hdf5 *t, struct tr_hdf5_array *a)
{
    hid_t how = H5Dget_create_plist(a->set);
    hsize_t chunk[2] = {0, 1};
    if (claims_too_much(a, H5Pget_layout(how))) {
        H5Pclose(how);
        return wrong(t, a, "nothing was ever written into it, expected numbers");
    }
    if (H5Pget_layout(how) == H5D_CHUNKED && H5Pget_chunk(how, 2, chunk) == a->dimensions)
        a->chunk_rows = chunk[0];
    char name[64] = "";
    H5Z_filter_t lacks = 0;
    for (int i = 0; i < H5Pget_nfilters(how) && lacks == 0; i++) {
        unsigned flags = 0;
        size_t none = 0;
        H5Z_filter_t filter = H5Pget_filter2(how, (unsigned)i, &flags, &none, NULL, sizeof name, name, NULL);
        if (H5Zfilter_avail(filter) <= 0) lacks = filter;
    }
    H5Pclose(how);
    if (lacks == 0) return TR_OK;
    name[sizeof name - 1] = '\0';
    return tr_fail(
        TR_ERR_DATA,
        "%s:%s: packed by the filter %s (number %d), which HDF5 does not have here: set HDF5_PLUGIN_PATH "
        "to the folder of the filter, or use h5repack -f GZIP=4 where HDF5 has it",
        t->path, a->name, *name ? name : "without a name", (int)lacks);
}

/* Chunks that two reads share are unpacked once if one row of them fits in the cache. */
static hid_t access_to(hid_t where, const char *name)
{
    const size_t most = (size_t)64 << 20;
    hid_t set = H5Dopen2(where, name, H5P_DEFAULT);
    if (set < 0) return set;
    hid_t how = H5Dget_create_plist(set), space = H5Dget_space(set), type = H5Dget_type(set);
    hsize_t chunk[2] = {1, 1}, extent[2] = {1, 1};
    int dimensions = H5Sget_simple_extent_ndims(space);
    bool chunked = H5Pget_layout(how) == H5D_CHUNKED && dimensions >= 1 && dimensions <= 2;
    if (chunked) {
        H5Pget_chunk(how, 2, chunk);
        H5Sget_simple_extent_dims(space, extent, NULL);
    }
    double row = (double)chunk[0] * (double)(extent[1] + chunk[1]) * (double)H5Tget_size(type);
    H5Tclose(type);
    H5Sclose(space);
    H5Pclose(how);
    if (!chunked || row < 1 << 20 || row > (double)most) return set;
    hid_t access = H5Pcreate(H5P_DATASET_ACCESS);
    H5Pset_chunk_cache(access, H5D_CHUNK_CACHE_NSLOTS_DEFAULT, (size_t)row, 1);
    H5Dclose(set);
    set = H5Dopen2(where, name, access);
    H5Pclose(access);
    return set;
}

static int open_array(struct tr_hdf5 *t, hid_t where, const char *name, struct tr_hdf5_array *a)
{
    a->set = access_to(where, name);
    if (!done(t, a->set >= 0)) return cannot_read(t, name);
    H5Iget_name(a->set, a->name, sizeof a->name);
    hid_t stored = H5Dget_type(a->set);
    int status = stored >= 0 ? find_type(t, a, stored) : cannot_read(t, a->name);
    if (stored >= 0) H5Tclose(stored);
    if (status == TR_OK) status = find_shape(t, a);
    if (status == TR_OK) status = find_layout(t, a);
    haddr_t at = t->checked.fd >= 0 && status == TR_OK ? H5Dget_offset(a->set) : 0;
    a->at = at == HADDR_UNDEF ? 0 : at;
    return status;
}

static void close_array(struct tr_hdf5_array *a)
{
    if (a->type >= 0) H5Tclose(a->type);
    if (a->set >= 0) H5Dclose(a->set);
}

/* One number a row. */
static int open_list(struct tr_hdf5 *t, hid_t where, const char *name, struct tr_hdf5_array *a)
{
    TR_TRY(open_array(t, where, name, a));
    return a->columns == 1 || a->rows == 0 ? TR_OK
                                           : wrong(t, a, "several columns, expected one number for each row");
}

/* ---- which arrays ---- */

static bool is_there(hid_t where, const char *name)
{
    return H5Lexists(where, name, H5P_DEFAULT) > 0 && H5Oexists_by_name(where, name, H5P_DEFAULT) > 0;
}

static H5I_type_t kind_of(hid_t where, const char *name)
{
    hid_t object = H5Oopen(where, name, H5P_DEFAULT);
    H5I_type_t type = object >= 0 ? H5Iget_type(object) : H5I_BADID;
    if (object >= 0) H5Oclose(object);
    return type;
}

static const char *first_there(hid_t where, const char *const *names)
{
    for (; *names; names++)
        if (is_there(where, *names)) return *names;
    return NULL;
}

/* Names of what is in a group, some of them. */
static herr_t note_name(hid_t group, const char *name, const H5L_info_t *info, void *list)
{
    char *text = list;
    size_t n = strlen(text);
    (void)info;
    if (n > 160) {
        snprintf(text + n, 240 - n, ", …");
        return 1;
    }
    snprintf(text + n, 240 - n, "%s%.40s%s", n > 0 ? ", " : "", name,
             kind_of(group, name) == H5I_GROUP ? "/" : "");
    return 0;
}

static int not_there(const struct tr_hdf5 *t, hid_t group, const char *lacks)
{
    char name[128] = "/", list[240] = "";
    H5Iget_name(group, name, sizeof name);
    H5Literate(group, H5_INDEX_NAME, H5_ITER_NATIVE, NULL, note_name, list);
    return tr_fail(TR_ERR_DATA, "%s:%s has no %s; there is: %s (:/NAME behind the path chooses one)", t->path,
                   name, lacks, *list ? list : "nothing");
}

static int find_labels(struct tr_hdf5 *t, hid_t group)
{
    static const char *const names[] = {"y", "label", "labels", "target", NULL};
    const char *name = first_there(group, names);
    if (!name || kind_of(group, name) != H5I_DATASET) return TR_OK;
    TR_TRY(open_list(t, group, name, &t->y));
    t->labelled = true;
    if (t->y.rows == t->rows) return TR_OK;
    return tr_fail(TR_ERR_DATA, "%s:%s: %llu labels, but there are %llu rows in %s", t->path, t->y.name,
                   (unsigned long long)t->y.rows, (unsigned long long)t->rows, t->x.name);
}

static int take_dense(struct tr_hdf5 *t, hid_t group, const char *name)
{
    TR_TRY(open_array(t, group, name, &t->x));
    t->rows = t->x.rows;
    t->columns = t->x.columns;
    t->nonzeros = t->rows * t->columns;
    t->full = true;
    if (t->columns == 0 || t->columns > TR_LIBSVM_MAX_INDEX)
        return wrong(t, &t->x, t->columns == 0 ? "no columns" : "more than 2^32 - 2 columns");
    return TR_OK;
}

/* The text of an attribute, or an empty one. */
static void text_of(hid_t object, const char *name, char *text, size_t n)
{
    *text = '\0';
    if (H5Aexists(object, name) <= 0) return;
    hid_t attribute = H5Aopen(object, name, H5P_DEFAULT), stored = H5Aget_type(attribute);
    if (H5Tget_class(stored) == H5T_STRING && H5Aget_storage_size(attribute) < 4096) {
        hid_t type = H5Tcopy(H5T_C_S1);
        char *pointer = NULL;
        if (H5Tis_variable_str(stored) > 0) {
            H5Tset_size(type, H5T_VARIABLE);
            H5Tset_cset(type, H5Tget_cset(stored));
            if (H5Aread(attribute, type, &pointer) >= 0 && pointer) snprintf(text, n, "%s", pointer);
            if (pointer) H5free_memory(pointer);
        } else {
            H5Tset_size(type, n);
            H5Tset_cset(type, H5Tget_cset(stored));
            if (H5Aget_storage_size(attribute) >= n || H5Aread(attribute, type, text) < 0) *text = '\0';
        }
        H5Tclose(type);
    }
    H5Tclose(stored);
    H5Aclose(attribute);
}

/* Two numbers: an attribute shape or h5sparse_shape, or a dataset shape. */
static bool read_shape(hid_t group, uint64_t shape[2])
{
    hid_t object = -1, space = -1;
    bool ok = false, attribute = true;
    if (H5Aexists(group, "shape") > 0) object = H5Aopen(group, "shape", H5P_DEFAULT);
    else if (H5Aexists(group, "h5sparse_shape") > 0) object = H5Aopen(group, "h5sparse_shape", H5P_DEFAULT);
    else if (is_there(group, "shape") && kind_of(group, "shape") == H5I_DATASET) {
        object = H5Dopen2(group, "shape", H5P_DEFAULT);
        attribute = false;
    }
    if (object < 0) return false;
    space = attribute ? H5Aget_space(object) : H5Dget_space(object);
    if (H5Sget_simple_extent_npoints(space) == 2)
        ok = (attribute ? H5Aread(object, H5T_NATIVE_UINT64, shape)
                        : H5Dread(object, H5T_NATIVE_UINT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, shape)) >= 0;
    H5Sclose(space);
    if (attribute) H5Aclose(object);
    else H5Dclose(object);
    return ok;
}

/* Rows and columns of lists of non-zeros. 10x names features first, whose columns are lists: the cells are our rows. */
static int find_sparse_shape(struct tr_hdf5 *t, hid_t group)
{
    uint64_t shape[2];
    char type[64], old[64];
    bool cells = is_there(group, "barcodes");
    text_of(group, "encoding-type", type, sizeof type);
    text_of(group, "h5sparse_format", old, sizeof old);
    t->rows = t->indptr.rows - 1;
    if (!cells && (strcmp(type, "csc_matrix") == 0 || strcmp(old, "csc") == 0))
        return wrong(
            t, &t->indptr,
            "lists the rows of each column (csc), expected the columns of each row: store .tocsr() instead");
    if (!read_shape(group, shape))
        return not_there(t, group, "shape (two numbers, an attribute or a dataset)");
    uint64_t rows = shape[cells ? 1 : 0];
    t->columns = shape[cells ? 0 : 1];
    if (rows != t->rows)
        return tr_fail(TR_ERR_DATA, "%s:%s: %llu numbers, expected one more than the %llu rows of shape",
                       t->path, t->indptr.name, (unsigned long long)t->indptr.rows, (unsigned long long)rows);
    if (t->columns > TR_LIBSVM_MAX_INDEX) return wrong(t, &t->x, "more than 2^32 - 2 columns");
    return TR_OK;
}

static int take_sparse(struct tr_hdf5 *t, hid_t group)
{
    t->sparse = true;
    TR_TRY(open_list(t, group, "data", &t->x));
    TR_TRY(open_list(t, group, "indices", &t->indices));
    TR_TRY(open_list(t, group, "indptr", &t->indptr));
    const struct tr_hdf5_array *whole[] = {&t->indices, &t->indptr};
    for (int i = 0; i < 2; i++)
        if (whole[i]->number <= TR_HDF5_F64) return wrong(t, whole[i], "reals, expected whole numbers");
    if (t->indptr.rows == 0) return wrong(t, &t->indptr, "empty, expected a number more than there are rows");
    t->nonzeros = t->x.rows;
    if (t->indices.rows != t->nonzeros)
        return tr_fail(TR_ERR_DATA, "%s:%s: %llu numbers, but %s has %llu", t->path, t->indices.name,
                       (unsigned long long)t->indices.rows, t->x.name, (unsigned long long)t->nonzeros);
    return find_sparse_shape(t, group);
}

static bool is_sparse(hid_t group)
{
    return is_there(group, "data") && is_there(group, "indices") && is_there(group, "indptr");
}

static int take_group(struct tr_hdf5 *t, hid_t group);

/* What has a name in a group: an array, or a group of arrays, whose labels may stand beside the group. */
static int take_named(struct tr_hdf5 *t, hid_t group, const char *name)
{
    H5I_type_t kind = kind_of(group, name);
    if (kind != H5I_GROUP && kind != H5I_DATASET) return cannot_read(t, name);
    if (kind == H5I_DATASET) {
        TR_TRY(take_dense(t, group, name));
        return find_labels(t, group);
    }
    hid_t inner = H5Gopen2(group, name, H5P_DEFAULT);
    int status = inner < 0 ? cannot_read(t, name) : take_group(t, inner);
    if (status == TR_OK && !t->labelled) status = find_labels(t, group);
    if (inner >= 0) H5Gclose(inner);
    return status;
}

static int take_group(struct tr_hdf5 *t, hid_t group)
{
    static const char *const names[] = {"X", "data", "features", "matrix", NULL};
    if (is_sparse(group)) {
        TR_TRY(take_sparse(t, group));
        return find_labels(t, group);
    }
    const char *name = first_there(group, names);
    return name ? take_named(t, group, name) : not_there(t, group, "X, data, features or matrix");
}

/* What the path names, from its last group on. */
static int take_path(struct tr_hdf5 *t, const char *inside)
{
    char *path;
    TR_TRY(tr_copy_string(inside, &path));
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/') path[--n] = '\0';
    hid_t group = H5Gopen2(t->file, "/", H5P_DEFAULT);
    int status = TR_OK;
    char *name = path + 1, *slash;
    while (status == TR_OK && (slash = strchr(name, '/'))) {
        *slash = '\0';
        hid_t inner = *name && is_there(group, name) ? H5Gopen2(group, name, H5P_DEFAULT) : group;
        if (*name && inner == group) status = not_there(t, group, name);
        else if (inner < 0) status = cannot_read(t, name);
        if (inner >= 0 && inner != group) {
            H5Gclose(group);
            group = inner;
        }
        name = slash + 1;
    }
    if (status == TR_OK && *name && !is_there(group, name)) status = not_there(t, group, name);
    if (status == TR_OK) status = *name ? take_named(t, group, name) : take_group(t, group);
    H5Gclose(group);
    free(path);
    return status;
}

/* ---- files ---- */

/* Whether trireme convert has written it. */
static bool is_checked(const char *path)
{
    char begin[sizeof TR_HDF5_DATA] = "";
    FILE *file = fopen(path, "re");
    if (!file) return false;
    bool ours =
        fread(begin, 1, sizeof begin, file) == sizeof begin && memcmp(begin, TR_HDF5_DATA, sizeof begin) == 0;
    fclose(file);
    return ours;
}

static int open_file(struct tr_hdf5 *t)
{
    if (is_checked(t->path))
        TR_TRY(tr_checked_open(&t->checked, t->path, TR_HDF5_DATA, TR_HDF5_DATA_VERSION));
    int status = tr_hdf5_open(t->path, t->checked.fd, &t->file);
    return done(t, t->file >= 0) ? status : cannot_read(t, "");
}

/* An attribute of one number; otherwise: where there is none. */
static uint64_t count_of(hid_t object, const char *name, uint64_t otherwise)
{
    uint64_t value = otherwise;
    if (H5Aexists(object, name) <= 0) return value;
    hid_t attribute = H5Aopen(object, name, H5P_DEFAULT), space = H5Aget_space(attribute);
    if (H5Sget_simple_extent_npoints(space) != 1 || H5Aread(attribute, H5T_NATIVE_UINT64, &value) < 0)
        value = otherwise;
    H5Sclose(space);
    H5Aclose(attribute);
    return value;
}

/* What trireme convert has made of csv. */
static int find_columns(struct tr_hdf5 *t)
{
    if (t->checked.fd < 0 || t->sparse || !is_there(t->file, "columns")) return TR_OK;
    TR_TRY(open_list(t, t->file, "columns/strings", &t->strings));
    TR_TRY(open_list(t, t->file, "columns/string_begin", &t->string_begin));
    TR_TRY(open_list(t, t->file, "columns/texts", &t->texts));
    t->named = true;
    bool right = t->strings.size == 1 && t->string_begin.number == TR_HDF5_U64 &&
                 t->texts.number == TR_HDF5_U64 && t->texts.rows == t->columns &&
                 t->string_begin.rows > t->columns && t->x.number == TR_HDF5_F32;
    return right ? TR_OK : wrong(t, &t->texts, "damaged: the columns of X are others");
}

int tr_hdf5_table_open(const struct tr_file *file, struct tr_hdf5 *t)
{
    static const struct tr_hdf5_array none = {.set = -1, .type = -1};
    *t = (struct tr_hdf5){.path = file->path,
                          .checked = {.fd = -1},
                          .file = -1,
                          .strings = none,
                          .string_begin = none,
                          .texts = none,
                          .x = none,
                          .indices = none,
                          .indptr = none,
                          .y = none,
                          .origin = none};
    TR_TRY(open_file(t));
    TR_TRY(take_path(t, file->inside ? file->inside : "/"));
    TR_TRY(find_columns(t));
    if (t->checked.fd >= 0 && is_there(t->file, "origin"))
        TR_TRY(open_list(t, t->file, "origin", &t->origin));
    if (t->origin.set >= 0 && (t->origin.rows != t->rows || t->origin.number != TR_HDF5_U64))
        return wrong(t, &t->origin, "damaged: not one for each row");
    t->first_index = count_of(t->file, "first_index", 0) > 0;
    t->full = t->full || count_of(t->file, "dense", 0) > 0;
    return TR_OK;
}

void tr_hdf5_table_close(struct tr_hdf5 *t)
{
    struct tr_hdf5_array *all[] = {&t->x,       &t->indices,      &t->indptr, &t->y,
                                   &t->strings, &t->string_begin, &t->texts,  &t->origin};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) close_array(all[i]);
    if (t->file >= 0) H5Fclose(t->file);
    tr_checked_close(&t->checked);
    free(t->raw);
    *t = (struct tr_hdf5){.file = -1};
}

int tr_hdf5_look(const struct tr_file *file, struct tr_head *head)
{
    struct tr_hdf5 t;
    int status = tr_hdf5_table_open(file, &t);
    head->rows = t.rows;
    head->fields = t.columns;
    head->nonzeros = t.nonzeros;
    head->chunk_rows = t.sparse ? 0 : t.x.chunk_rows;
    head->sparse = t.sparse;
    head->full = t.full;
    head->labelled = t.labelled;
    head->from_one = t.first_index == 1;
    head->named = t.named;
    head->header = t.named && count_of(t.file, "header", 0) > 0;
    head->label_column = t.named ? count_of(t.file, "label", t.columns) : 0;
    if (head->label_column > t.columns) head->label_column = t.columns;
    tr_hdf5_table_close(&t);
    return status;
}

/* ---- reading ---- */

static int read_raw(struct tr_hdf5 *t, const struct tr_hdf5_array *a, uint64_t first, size_t n, void *to)
{
    if (n == 0 || a->columns == 0) return TR_OK;
    if (t->checked.fd >= 0 && a->at > 0) {
        struct tr_checked_array all = {a->name, a->at, a->rows * a->columns, a->size};
        return tr_checked_read(&t->checked, &all, first * a->columns, n * a->columns, to);
    }
    const hsize_t start[2] = {first, 0}, count[2] = {n, a->columns}, flat = n * a->columns;
    hid_t stored = H5Dget_space(a->set), memory = H5Screate_simple(1, &flat, NULL);
    bool ok = H5Sselect_hyperslab(stored, H5S_SELECT_SET, start, NULL, count, NULL) >= 0 &&
              done(t, H5Dread(a->set, a->type, memory, stored, H5P_DEFAULT, to) >= 0);
    H5Sclose(memory);
    H5Sclose(stored);
    return ok ? TR_OK : cannot_read(t, a->name);
}

static int read_into_raw(struct tr_hdf5 *t, const struct tr_hdf5_array *a, uint64_t first, size_t n)
{
    size_t bytes = n * (size_t)a->columns * a->size;
    char *raw = t->raw;
    int status = TR_GROW(&raw, &t->raw_capacity, bytes);
    t->raw = raw;
    TR_TRY(status);
    return read_raw(t, a, first, n, t->raw);
}

#define EACH_NUMBER(DO)                                                                                      \
    DO(TR_HDF5_F32, float)                                                                                   \
    DO(TR_HDF5_F64, double)                                                                                  \
    DO(TR_HDF5_I8, int8_t)                                                                                   \
    DO(TR_HDF5_U8, uint8_t)                                                                                  \
    DO(TR_HDF5_I16, int16_t)                                                                                 \
    DO(TR_HDF5_U16, uint16_t)                                                                                \
    DO(TR_HDF5_I32, int32_t)                                                                                 \
    DO(TR_HDF5_U32, uint32_t)                                                                                \
    DO(TR_HDF5_I64, int64_t)                                                                                 \
    DO(TR_HDF5_U64, uint64_t)

int tr_hdf5_read_reals(struct tr_hdf5 *t, const struct tr_hdf5_array *a, uint64_t first, size_t n, float *to)
{
    if (a->number == TR_HDF5_F32) return read_raw(t, a, first, n, to);
    TR_TRY(read_into_raw(t, a, first, n));
    size_t all = n * (size_t)a->columns;
    switch (a->number) {
#define CONVERT(NUMBER, TYPE)                                                                                \
    case NUMBER:                                                                                             \
        for (size_t i = 0; i < all; i++) to[i] = (float)((const TYPE *)t->raw)[i];                           \
        break;
        EACH_NUMBER(CONVERT)
#undef CONVERT
    default: break;
    }
    return TR_OK;
}

int tr_hdf5_read_wholes(struct tr_hdf5 *t, const struct tr_hdf5_array *a, uint64_t first, size_t n,
                        uint64_t *to)
{
    if (a->number == TR_HDF5_U64 || a->number == TR_HDF5_I64) return read_raw(t, a, first, n, to);
    TR_TRY(read_into_raw(t, a, first, n));
    switch (a->number) {
#define CONVERT(NUMBER, TYPE)                                                                                \
    case NUMBER:                                                                                             \
        for (size_t i = 0; i < n; i++) to[i] = (uint64_t)((const TYPE *)t->raw)[i];                          \
        break;
        EACH_NUMBER(CONVERT)
#undef CONVERT
    default: break;
    }
    return TR_OK;
}

int tr_hdf5_read_indices(struct tr_hdf5 *t, const struct tr_hdf5_array *a, uint64_t first, size_t n,
                         uint32_t *to)
{
    bool narrow = a->number == TR_HDF5_U32 || (a->number == TR_HDF5_I32 && t->columns <= INT32_MAX);
    if (narrow) return read_raw(t, a, first, n, to);
    uint64_t *wide;
    TR_TRY(TR_NEW(&wide, n));
    int status = tr_hdf5_read_wholes(t, a, first, n, wide);
    for (size_t i = 0; i < n && status == TR_OK; i++)
        to[i] = wide[i] < UINT32_MAX ? (uint32_t)wide[i] : UINT32_MAX;
    free(wide);
    return status;
}

/* ---- where rows stood first ---- */

int tr_hdf5_read_origins(struct tr_hdf5 *t, struct tr_reader *r, uint64_t first, size_t n)
{
    const struct tr_reader_options *o = r->options;
    r->first_origin = first;
    r->origins = t->origin.set >= 0 && (o->held_out.to > 0 || o->piece);
    if (!r->origins) return TR_OK;
    TR_TRY(TR_GROW(&r->origin, &r->origin_capacity, n));
    return tr_hdf5_read_wholes(t, &t->origin, first, n, r->origin);
}

uint64_t tr_hdf5_origin_of(const struct tr_reader *r, uint64_t row)
{
    return tr_origin(r->file, 0) + (r->origins ? r->origin[row - r->first_origin] : row);
}

bool tr_hdf5_leaves_out(const struct tr_reader *r, uint64_t row)
{
    if (r->options->held_out.to == 0) return false;
    uint64_t origin = tr_hdf5_origin_of(r, row), file = origin >> 48;
    return tr_reader_leaves_out(r, file, origin - tr_origin(file, 0));
}
