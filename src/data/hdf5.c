#define _GNU_SOURCE
#include "data/hdf5.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- errors ---- */

/* Copies the innermost error of the HDF5 library, which is the most specific one. */
static herr_t hdf5_note_error(unsigned n, const H5E_error2_t *error, void *table)
{
    struct tr_hdf5 *t = table;
    if (n == 0) snprintf(t->why, sizeof t->why, "%s", error->desc);
    return 0;
}

/* Returns `ok`, whether the last call of HDF5 was successful. If not, saves its error, which the next call overwrites. */
static bool hdf5_done(struct tr_hdf5 *t, bool ok)
{
    if (!ok) H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, hdf5_note_error, t);
    return ok;
}

static int hdf5_fail_read(const struct tr_hdf5 *t, const char *name)
{
    return tr_fail(TR_ERR_DATA, "%s%s%s: HDF5 cannot read it%s%s", t->path, *name ? ":" : "", name,
                   *t->why ? ": " : "", t->why);
}

static int hdf5_fail(const struct tr_hdf5 *t, const struct tr_hdf5_array *a, const char *what)
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

/* Finds the type of numbers in memory that is nearest to the type in the file, or the type of strings. h5py writes booleans as an
 * enumeration. */
static int array_find_type(const struct tr_hdf5 *t, struct tr_hdf5_array *a, hid_t stored)
{
    H5T_class_t class = H5Tget_class(stored);
    a->texts = class == H5T_STRING;
    if (a->texts) {
        a->type = H5Tcopy(stored);
        a->size = H5Tget_size(stored);
        return TR_OK;
    }
    if (class != H5T_INTEGER && class != H5T_FLOAT && class != H5T_ENUM)
        return hdf5_fail(t, a,
                         class == H5T_COMPOUND
                             ? "records of several fields (a compound type), expected numbers"
                             : "values of another type, expected integers or reals");
    a->type = H5Tget_native_type(stored, H5T_DIR_ASCEND);
    TR_HID base = class == H5T_ENUM ? H5Tget_super(a->type) : H5Tcopy(a->type);
    int number = 0;
    while (number < TR_HDF5_NUMBERS && (base < 0 || H5Tequal(base, *natives[number].type) <= 0)) number++;
    if (number == TR_HDF5_NUMBERS) {
        if (a->type >= 0) H5Tclose(a->type);
        a->type = H5Tcopy(H5T_NATIVE_DOUBLE);
        number = TR_HDF5_F64;
    }
    a->number = (enum tr_hdf5_number)number;
    a->size = natives[number].size;
    return TR_OK;
}

/* Finds shape and storage of an array. Fails if the HDF5 library does not have a filter of the array. */
static int array_find_layout(const struct tr_hdf5 *t, struct tr_hdf5_array *a)
{
    const uint64_t most = 1 << 20;
    hsize_t extent[2] = {0, 1}, chunk[2] = {0, 1};
    TR_HID space = H5Dget_space(a->set), how = H5Dget_create_plist(a->set);
    a->dimensions = H5Sget_simple_extent_ndims(space);
    if (a->dimensions != 1 && a->dimensions != 2) return hdf5_fail(t, a, "not of one or two dimensions");
    H5Sget_simple_extent_dims(space, extent, NULL);
    a->rows = extent[0];
    a->columns = extent[1];
    uint64_t bytes;
    if (__builtin_mul_overflow(a->rows, a->columns, &bytes) || __builtin_mul_overflow(bytes, 16, &bytes))
        return hdf5_fail(t, a, "damaged: its shape is too large");
    H5D_layout_t layout = H5Pget_layout(how);
    a->transposed = a->dimensions == 2 && H5Aexists(a->set, "MATLAB_class") > 0;
    if (a->transposed) {
        a->rows = extent[1];
        a->columns = extent[0];
    }
    if (layout == H5D_CHUNKED && H5Pget_chunk(how, 2, chunk) == a->dimensions)
        a->chunk_rows = chunk[a->transposed];
    char name[64] = "";
    H5Z_filter_t lacks = 0;
    for (int i = 0; i < H5Pget_nfilters(how) && lacks == 0; i++) {
        unsigned flags = 0;
        size_t none = 0;
        H5Z_filter_t filter = H5Pget_filter2(how, (unsigned)i, &flags, &none, NULL, sizeof name, name, NULL);
        if (H5Zfilter_avail(filter) <= 0) lacks = filter;
    }
    /* a small file may claim to have any number of rows, which would be read as zeros; other layouts have their values elsewhere */
    if ((layout == H5D_CHUNKED || layout == H5D_CONTIGUOUS) && a->rows * a->columns > most &&
        H5Dget_storage_size(a->set) == 0)
        return hdf5_fail(t, a, "nothing was ever written into it, expected numbers");
    if (lacks == 0) return TR_OK;
    name[sizeof name - 1] = '\0';
    return tr_fail(
        TR_ERR_DATA,
        "%s:%s: packed by the filter %s (number %d), which HDF5 does not have here: set HDF5_PLUGIN_PATH "
        "to the folder of the filter, or use h5repack -f GZIP=4 where HDF5 has it",
        t->path, a->name, *name ? name : "without a name", (int)lacks);
}

/* Opens a dataset. If all chunks of one row fit into `most` bytes, the cache is enlarged, so that chunks are decompressed only once
 * even if two reads need them. */
static hid_t array_open_set(hid_t where, const char *name)
{
    const size_t most = (size_t)64 << 20;
    hid_t set = H5Dopen2(where, name, H5P_DEFAULT);
    if (set < 0) return set;
    TR_HID how = H5Dget_create_plist(set), space = H5Dget_space(set), type = H5Dget_type(set);
    hsize_t chunk[2] = {1, 1}, extent[2] = {1, 1};
    int dimensions = H5Sget_simple_extent_ndims(space);
    bool chunked = H5Pget_layout(how) == H5D_CHUNKED && dimensions >= 1 && dimensions <= 2;
    if (chunked) {
        H5Pget_chunk(how, 2, chunk);
        H5Sget_simple_extent_dims(space, extent, NULL);
    }
    double row = (double)chunk[0] * (double)(extent[1] + chunk[1]) * (double)H5Tget_size(type);
    if (!chunked || row < 1 << 20 || row > (double)most) return set;
    TR_HID access = H5Pcreate(H5P_DATASET_ACCESS);
    H5Pset_chunk_cache(access, H5D_CHUNK_CACHE_NSLOTS_DEFAULT, (size_t)row, 1);
    H5Dclose(set);
    return H5Dopen2(where, name, access);
}

/* Opens an array of numbers, or of strings if that is permitted. */
static int array_open_any(struct tr_hdf5 *t, hid_t where, const char *name, bool texts,
                          struct tr_hdf5_array *a)
{
    a->set = array_open_set(where, name);
    if (!hdf5_done(t, a->set >= 0)) return hdf5_fail_read(t, name);
    H5Iget_name(a->set, a->name, sizeof a->name);
    TR_HID stored = H5Dget_type(a->set);
    if (stored < 0) return hdf5_fail_read(t, a->name);
    TR_TRY(array_find_type(t, a, stored));
    if (a->texts && !texts) return hdf5_fail(t, a, "texts, expected numbers");
    TR_TRY(array_find_layout(t, a));
    haddr_t at = t->checked.fd >= 0 ? H5Dget_offset(a->set) : 0;
    a->at = at == HADDR_UNDEF ? 0 : at;
    return TR_OK;
}

static int array_open(struct tr_hdf5 *t, hid_t where, const char *name, struct tr_hdf5_array *a)
{
    return array_open_any(t, where, name, false, a);
}

/* Opens an array of one number per row, or one string if that is permitted. */
static int array_open_list_of(struct tr_hdf5 *t, hid_t where, const char *name, bool texts,
                              struct tr_hdf5_array *a)
{
    TR_TRY(array_open_any(t, where, name, texts, a));
    if (a->transposed && a->rows == 1) { /* MATLAB: a vector of one row */
        a->transposed = false;
        a->rows = a->columns;
        a->columns = 1;
    }
    if (a->columns == 1 || a->rows == 0) return TR_OK;
    return hdf5_fail(t, a, "several columns, expected one number for each row");
}

static int array_open_list(struct tr_hdf5 *t, hid_t where, const char *name, struct tr_hdf5_array *a)
{
    return array_open_list_of(t, where, name, false, a);
}

/* ---- the arrays of a table ---- */

static bool object_exists(hid_t where, const char *name)
{
    return H5Lexists(where, name, H5P_DEFAULT) > 0 && H5Oexists_by_name(where, name, H5P_DEFAULT) > 0;
}

static H5I_type_t object_kind(hid_t where, const char *name)
{
    TR_HID object = H5Oopen(where, name, H5P_DEFAULT);
    return object >= 0 ? H5Iget_type(object) : H5I_BADID;
}

static const char *object_first(hid_t where, const char *const *names)
{
    while (*names && !object_exists(where, *names)) names++;
    return *names;
}

/* Appends a name to the list of a group's objects, which ends after about 160 bytes. */
static herr_t group_list_name(hid_t group, const char *name, const H5L_info_t *info, void *list)
{
    char *text = list;
    size_t n = strlen(text);
    (void)info;
    if (n > 160) snprintf(text + n, 240 - n, ", …");
    else
        snprintf(text + n, 240 - n, "%s%.40s%s", n > 0 ? ", " : "", name,
                 object_kind(group, name) == H5I_GROUP ? "/" : "");
    return n > 160;
}

static bool object_has_attribute(hid_t group, const char *name, const char *attribute)
{
    return H5Aexists_by_name(group, name, attribute, H5P_DEFAULT) > 0;
}

static herr_t group_find_pandas(hid_t group, const char *name, const H5L_info_t *info, void *none)
{
    (void)info;
    (void)none;
    return object_kind(group, name) == H5I_GROUP && object_has_attribute(group, name, "pandas_type");
}

static int group_fail_lacks(const struct tr_hdf5 *t, hid_t group, const char *lacks)
{
    char name[128] = "/", list[240] = "";
    H5Iget_name(group, name, sizeof name);
    if (object_has_attribute(group, ".", "pandas_type") ||
        H5Literate(group, H5_INDEX_NAME, H5_ITER_NATIVE, NULL, group_find_pandas, NULL) > 0)
        return tr_fail(
            TR_ERR_DATA,
            "%s:%s has tables of pandas (HDFStore), which are not read: python3 -c \"import pandas; "
            "pandas.read_hdf('%s').to_csv('%s.csv', index=False)\"",
            t->path, name, t->path, t->path);
    H5Literate(group, H5_INDEX_NAME, H5_ITER_NATIVE, NULL, group_list_name, list);
    return tr_fail(TR_ERR_DATA, "%s:%s has no %s; there is: %s (:/NAME behind the path chooses one)", t->path,
                   name, lacks, *list ? list : "nothing");
}

typedef int hdf5_text_fn(void *state, size_t i, const char *text, size_t n);
static int array_read_texts(struct tr_hdf5 *t, const struct tr_hdf5_array *a, uint64_t first, size_t n,
                            hdf5_text_fn *each, void *state);

static int category_add(void *state, size_t i, const char *text, size_t n)
{
    uint32_t place;
    (void)i;
    return tr_ids_append_text(state, text, n, &place);
}

/* Finds the labels. If the job sets their path, it is one in the group, in the file, or in the group obs. */
static int table_find_labels(struct tr_hdf5 *t, hid_t group)
{
    static const char *const names[] = {"y", "label", "labels", "target", NULL};
    TR_FREED char *in_obs = NULL;
    const char *name = t->label ? t->label : object_first(group, names);
    if (t->label && !object_exists(group, name)) {
        TR_TRY(tr_format(&in_obs, "obs/%s", name));
        group = t->file;
        if (!object_exists(group, name) && object_exists(group, in_obs)) name = in_obs;
        if (!object_exists(group, name)) return t->label_may_miss ? TR_OK : group_fail_lacks(t, group, name);
    }
    H5I_type_t kind = name ? object_kind(group, name) : H5I_BADID;
    if (t->label && kind == H5I_GROUP) {
        TR_HID column = H5Gopen2(group, name, H5P_DEFAULT);
        if (!object_exists(column, "codes") || !object_exists(column, "categories"))
            return group_fail_lacks(t, column, "codes and categories, as labels of AnnData have");
        TR_TRY(array_open_list(t, column, "codes", &t->y));
        TR_TRY(array_open_list_of(t, column, "categories", true, &t->categories));
        t->category.are_text = true;
        TR_TRY(
            array_read_texts(t, &t->categories, 0, (size_t)t->categories.rows, category_add, &t->category));
        t->coded = t->y.texts = true;
    } else if (kind == H5I_DATASET) {
        TR_TRY(array_open_list_of(t, group, name, true, &t->y));
    } else {
        return TR_OK;
    }
    t->labelled = true;
    if (t->y.rows == t->rows) return TR_OK;
    return tr_fail(TR_ERR_DATA, "%s:%s: %llu labels, but there are %llu rows in %s", t->path, t->y.name,
                   (unsigned long long)t->y.rows, (unsigned long long)t->rows, t->x.name);
}

/* Reads the text of an attribute; `text` becomes empty if there is none. */
static void attribute_text(hid_t object, const char *name, char *text, size_t n)
{
    *text = '\0';
    if (H5Aexists(object, name) <= 0) return;
    TR_HID attribute = H5Aopen(object, name, H5P_DEFAULT), stored = H5Aget_type(attribute),
           type = H5Tcopy(H5T_C_S1);
    if (H5Tget_class(stored) != H5T_STRING || H5Aget_storage_size(attribute) >= 4096) return;
    bool variable = H5Tis_variable_str(stored) > 0;
    char *pointer = NULL;
    H5Tset_size(type, variable ? H5T_VARIABLE : n);
    H5Tset_cset(type, H5Tget_cset(stored));
    if (variable) {
        if (H5Aread(attribute, type, &pointer) >= 0 && pointer) snprintf(text, n, "%s", pointer);
        if (pointer) H5free_memory(pointer);
    } else if (H5Aget_storage_size(attribute) >= n || H5Aread(attribute, type, text) < 0) {
        *text = '\0';
    }
}

/* Reads the shape of sparse rows: an attribute shape or h5sparse_shape, or a dataset shape. Returns whether there is one. */
static bool group_read_shape(hid_t group, uint64_t shape[2])
{
    static const char *const names[] = {"shape", "h5sparse_shape"};
    for (int i = 0; i < 2; i++) {
        if (H5Aexists(group, names[i]) <= 0) continue;
        TR_HID attribute = H5Aopen(group, names[i], H5P_DEFAULT), space = H5Aget_space(attribute);
        return H5Sget_simple_extent_npoints(space) == 2 && H5Aread(attribute, H5T_NATIVE_UINT64, shape) >= 0;
    }
    if (!object_exists(group, "shape") || object_kind(group, "shape") != H5I_DATASET) return false;
    TR_HID set = H5Dopen2(group, "shape", H5P_DEFAULT), space = H5Dget_space(set);
    return H5Sget_simple_extent_npoints(space) == 2 &&
           H5Dread(set, H5T_NATIVE_UINT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, shape) >= 0;
}

/* Finds a table that consists of lists of non-zeros. */
static int table_find_sparse(struct tr_hdf5 *t, hid_t group)
{
    uint64_t shape[2];
    char type[64], old[64];
    t->sparse = true;
    TR_TRY(array_open_list(t, group, "data", &t->x));
    TR_TRY(array_open_list(t, group, "indices", &t->indices));
    TR_TRY(array_open_list(t, group, "indptr", &t->indptr));
    const struct tr_hdf5_array *whole[] = {&t->indices, &t->indptr};
    for (int i = 0; i < 2; i++)
        if (whole[i]->number <= TR_HDF5_F64) return hdf5_fail(t, whole[i], "reals, expected whole numbers");
    if (t->indptr.rows == 0)
        return hdf5_fail(t, &t->indptr, "empty, expected a number more than there are rows");
    t->nonzeros = t->x.rows;
    if (t->indices.rows != t->nonzeros)
        return tr_fail(TR_ERR_DATA, "%s:%s: %llu numbers, but %s has %llu", t->path, t->indices.name,
                       (unsigned long long)t->indices.rows, t->x.name, (unsigned long long)t->nonzeros);
    /* the shape of 10x is features × cells, but its lists are cells, which are the rows */
    bool cells = object_exists(group, "barcodes");
    attribute_text(group, "encoding-type", type, sizeof type);
    attribute_text(group, "h5sparse_format", old, sizeof old);
    t->rows = t->indptr.rows - 1;
    if (!cells && (strcmp(type, "csc_matrix") == 0 || strcmp(old, "csc") == 0))
        return hdf5_fail(
            t, &t->indptr,
            "lists the rows of each column (csc), expected the columns of each row: store .tocsr() instead");
    if (!group_read_shape(group, shape))
        return group_fail_lacks(t, group, "shape (two numbers, an attribute or a dataset)");
    uint64_t rows = shape[cells ? 1 : 0];
    t->columns = shape[cells ? 0 : 1];
    if (rows != t->rows)
        return tr_fail(TR_ERR_DATA, "%s:%s: %llu numbers, expected one more than the %llu rows of shape",
                       t->path, t->indptr.name, (unsigned long long)t->indptr.rows, (unsigned long long)rows);
    if (t->columns > TR_LIBSVM_MAX_INDEX) return hdf5_fail(t, &t->x, "more than 2^32 - 2 columns");
    return table_find_labels(t, group);
}

static int table_find_in_group(struct tr_hdf5 *t, hid_t group);

/* Finds a table by the name of an array, or of a group with its arrays; labels may be in the group or beside it. */
static int table_find_named(struct tr_hdf5 *t, hid_t group, const char *name)
{
    H5I_type_t kind = object_kind(group, name);
    if (kind != H5I_GROUP && kind != H5I_DATASET) return hdf5_fail_read(t, name);
    if (kind == H5I_DATASET) {
        TR_TRY(array_open(t, group, name, &t->x));
        t->rows = t->x.rows;
        t->columns = t->x.columns;
        t->nonzeros = t->rows * t->columns;
        t->full = true;
        if (t->columns == 0 || t->columns > TR_LIBSVM_MAX_INDEX)
            return hdf5_fail(t, &t->x, t->columns == 0 ? "no columns" : "more than 2^32 - 2 columns");
        return table_find_labels(t, group);
    }
    TR_HID inner = H5Gopen2(group, name, H5P_DEFAULT);
    if (inner < 0) return hdf5_fail_read(t, name);
    if (object_has_attribute(group, name, "MATLAB_sparse"))
        return tr_fail(TR_ERR_DATA, "%s:%s: a sparse matrix of MATLAB, expected a full one: %s = full(%s)",
                       t->path, name, name, name);
    TR_TRY(table_find_in_group(t, inner));
    return t->labelled ? TR_OK : table_find_labels(t, group);
}

static int table_find_in_group(struct tr_hdf5 *t, hid_t group)
{
    static const char *const names[] = {"X", "data", "features", "matrix", NULL};
    if (object_exists(group, "data") && object_exists(group, "indices") && object_exists(group, "indptr"))
        return table_find_sparse(t, group);
    const char *name = object_first(group, names);
    return name ? table_find_named(t, group, name)
                : group_fail_lacks(t, group, "X, data, features or matrix");
}

static int table_find_path(struct tr_hdf5 *t, const char *inside)
{
    TR_FREED char *path = NULL;
    TR_TRY(tr_copy_string(inside, &path));
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/') path[--n] = '\0';
    TR_HID group = H5Gopen2(t->file, "/", H5P_DEFAULT);
    char *name = path + 1;
    for (char *slash; (slash = strchr(name, '/')); name = slash + 1) {
        *slash = '\0';
        if (!*name) continue;
        if (!object_exists(group, name)) return group_fail_lacks(t, group, name);
        hid_t inner = H5Gopen2(group, name, H5P_DEFAULT);
        if (inner < 0) return hdf5_fail_read(t, name);
        H5Gclose(group);
        group = inner;
    }
    if (!*name) return table_find_in_group(t, group);
    return object_exists(group, name) ? table_find_named(t, group, name) : group_fail_lacks(t, group, name);
}

/* ---- files ---- */

/* Returns the number in an attribute, or `otherwise` if there is none. */
static uint64_t attribute_count(hid_t object, const char *name, uint64_t otherwise)
{
    uint64_t value;
    if (H5Aexists(object, name) <= 0) return otherwise;
    TR_HID attribute = H5Aopen(object, name, H5P_DEFAULT), space = H5Aget_space(attribute);
    bool one = H5Sget_simple_extent_npoints(space) == 1;
    return one && H5Aread(attribute, H5T_NATIVE_UINT64, &value) >= 0 ? value : otherwise;
}

int tr_hdf5_table_open(const struct tr_file *file, struct tr_hdf5 *t)
{
    static const struct tr_hdf5_array none = {.set = -1, .type = -1};
    char begin[sizeof TR_HDF5_DATA] = "";
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
                          .categories = none,
                          .id = none,
                          .origin = none};
    FILE *bytes = fopen(t->path, "re");
    size_t n = bytes ? fread(begin, 1, sizeof begin, bytes) : 0;
    if (bytes) fclose(bytes);
    bool converted = n == sizeof begin && memcmp(begin, TR_HDF5_DATA, sizeof begin) == 0;
    if (converted) TR_TRY(tr_checked_open(&t->checked, t->path, TR_HDF5_DATA, TR_HDF5_DATA_VERSION));
    int status = tr_hdf5_open(t->path, t->checked.fd, &t->file);
    if (!hdf5_done(t, t->file >= 0)) return hdf5_fail_read(t, "");
    TR_TRY(status);
    /* data.label of a table with named columns is one of them */
    t->label = converted && object_exists(t->file, "columns") ? NULL : file->label;
    t->label_may_miss = file->label_may_miss;
    TR_TRY(table_find_path(t, file->inside ? file->inside : "/"));
    t->named = converted && !t->sparse && object_exists(t->file, "columns");
    if (t->named) {
        TR_TRY(array_open_list(t, t->file, "columns/strings", &t->strings));
        TR_TRY(array_open_list(t, t->file, "columns/string_begin", &t->string_begin));
        TR_TRY(array_open_list(t, t->file, "columns/texts", &t->texts));
        bool right = t->strings.size == 1 && t->string_begin.number == TR_HDF5_U64 &&
                     t->texts.number == TR_HDF5_U64 && t->texts.rows == t->columns &&
                     t->string_begin.rows > t->columns && t->x.number == TR_HDF5_F32;
        if (!right) return hdf5_fail(t, &t->texts, "damaged: the columns of X are others");
    }
    if (converted && object_exists(t->file, "origin"))
        TR_TRY(array_open_list(t, t->file, "origin", &t->origin));
    if (t->origin.set >= 0 && (t->origin.rows != t->rows || t->origin.number != TR_HDF5_U64))
        return hdf5_fail(t, &t->origin, "damaged: not one for each row");
    t->first_index = attribute_count(t->file, "first_index", 0) > 0;
    t->full = t->full || attribute_count(t->file, "dense", 0) > 0;
    return TR_OK;
}

void tr_hdf5_table_close(struct tr_hdf5 *t)
{
    struct tr_hdf5_array *all[] = {&t->x,       &t->indices,      &t->indptr, &t->y,
                                   &t->strings, &t->string_begin, &t->texts,  &t->origin,
                                   &t->id,      &t->categories};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (all[i]->type >= 0) H5Tclose(all[i]->type);
        if (all[i]->set >= 0) H5Dclose(all[i]->set);
    }
    if (t->file >= 0) H5Fclose(t->file);
    tr_checked_close(&t->checked);
    free(t->raw);
    tr_ids_free(&t->category);
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
    head->text_labels = t.labelled && t.y.texts;
    head->from_one = t.first_index == 1;
    head->named = t.named;
    head->header = t.named && attribute_count(t.file, "header", 0) > 0;
    head->label_column = t.named ? attribute_count(t.file, "label", t.columns) : 0;
    if (head->label_column > t.columns) head->label_column = t.columns;
    tr_hdf5_table_close(&t);
    return status;
}

/* ---- reading ---- */

static int array_read_raw(struct tr_hdf5 *t, const struct tr_hdf5_array *a, uint64_t first, size_t n,
                          void *to)
{
    if (n == 0 || a->columns == 0) return TR_OK;
    if (t->checked.fd >= 0 && a->at > 0) {
        struct tr_checked_array all = {a->name, a->at, a->rows * a->columns, a->size};
        return tr_checked_read(&t->checked, &all, first * a->columns, n * a->columns, to);
    }
    const hsize_t start[2] = {first, 0}, count[2] = {n, a->columns}, flat = n * a->columns;
    const hsize_t start_columns[2] = {0, first}, count_columns[2] = {a->columns, n};
    TR_HID stored = H5Dget_space(a->set), memory = H5Screate_simple(1, &flat, NULL);
    TR_FREED char *columns = NULL; /* the rows, column by column */
    if (a->transposed) TR_TRY(TR_NEW(&columns, (size_t)flat * a->size));
    bool ok =
        H5Sselect_hyperslab(stored, H5S_SELECT_SET, columns ? start_columns : start, NULL,
                            columns ? count_columns : count, NULL) >= 0 &&
        hdf5_done(t, H5Dread(a->set, a->type, memory, stored, H5P_DEFAULT, columns ? columns : to) >= 0);
    if (!ok) return hdf5_fail_read(t, a->name);
    for (size_t i = 0; columns && i < n; i++)
        for (size_t c = 0; c < a->columns; c++)
            memcpy((char *)to + (i * a->columns + c) * a->size, columns + (c * n + i) * a->size, a->size);
    return TR_OK;
}

#define EACH_WHOLE(DO)                                                                                       \
    DO(TR_HDF5_I8, int8_t)                                                                                   \
    DO(TR_HDF5_U8, uint8_t)                                                                                  \
    DO(TR_HDF5_I16, int16_t)                                                                                 \
    DO(TR_HDF5_U16, uint16_t)                                                                                \
    DO(TR_HDF5_I32, int32_t)                                                                                 \
    DO(TR_HDF5_U32, uint32_t)                                                                                \
    DO(TR_HDF5_I64, int64_t)                                                                                 \
    DO(TR_HDF5_U64, uint64_t)

#define EACH_NUMBER(DO)                                                                                      \
    DO(TR_HDF5_F32, float)                                                                                   \
    DO(TR_HDF5_F64, double)                                                                                  \
    EACH_WHOLE(DO)

/* Reads the rows first .. first + n - 1 of an array to `real`; if that is NULL, as whole numbers to `whole`, where negative numbers
 * become large ones. */
static int array_read(struct tr_hdf5 *t, const struct tr_hdf5_array *a, uint64_t first, size_t n, float *real,
                      uint64_t *whole)
{
    size_t all = n * (size_t)a->columns;
    bool same = real ? a->number == TR_HDF5_F32 : a->number == TR_HDF5_U64 || a->number == TR_HDF5_I64;
    if (same) return array_read_raw(t, a, first, n, real ? (void *)real : whole);
    TR_TRY(TR_GROW(&t->raw, &t->raw_capacity, all * a->size));
    TR_TRY(array_read_raw(t, a, first, n, t->raw));
    const void *raw = t->raw;
    switch (a->number) {
#define CONVERT(NUMBER, TYPE)                                                                                \
    case NUMBER:                                                                                             \
        for (size_t i = 0; i < all && real; i++) real[i] = (float)((const TYPE *)raw)[i];                    \
        for (size_t i = 0; i < all && !real; i++) whole[i] = (uint64_t)((const TYPE *)raw)[i];               \
        break;
        EACH_NUMBER(CONVERT)
#undef CONVERT
    case TR_HDF5_NUMBERS: break;
    }
    return TR_OK;
}

static int array_read_strings(struct tr_hdf5 *t, const struct tr_hdf5_array *a, uint64_t first, size_t n,
                              hdf5_text_fn *each, void *state)
{
    bool variable = H5Tis_variable_str(a->type) > 0;
    TR_TRY(TR_GROW(&t->raw, &t->raw_capacity, n * (variable ? sizeof(char *) : a->size)));
    TR_TRY(array_read_raw(t, a, first, n, t->raw));
    int status = TR_OK;
    for (size_t i = 0; i < n && status == TR_OK; i++) {
        const char *text = t->raw + i * a->size;
        if (variable) memcpy(&text, t->raw + i * sizeof text, sizeof text);
        size_t length = !text ? 0 : variable ? strlen(text) : strnlen(text, a->size);
        while (!variable && length > 0 && text[length - 1] == ' ') length--;
        status = each(state, i, text ? text : "", length);
    }
    const hsize_t flat = n;
    TR_HID memory = H5Screate_simple(1, &flat, NULL);
    if (variable) H5Dvlen_reclaim(a->type, memory, H5P_DEFAULT, t->raw);
    return status;
}

/* Passes the rows first .. first + n - 1 of a list of numbers or strings to each(), as text. Missing reals are empty. */
static int array_read_texts(struct tr_hdf5 *t, const struct tr_hdf5_array *a, uint64_t first, size_t n,
                            hdf5_text_fn *each, void *state)
{
    if (n == 0) return TR_OK;
    if (a == &t->y && t->coded) { /* a negative code, which becomes a large number, is a missing category */
        TR_FREED uint64_t *code = NULL;
        TR_TRY(TR_NEW(&code, n));
        TR_TRY(array_read(t, a, first, n, NULL, code));
        for (size_t i = 0, length = 0; i < n; i++, length = 0) {
            const char *text = code[i] < t->category.n ? tr_ids_text(&t->category, code[i], &length) : "";
            TR_TRY(each(state, i, text, length));
        }
        return TR_OK;
    }
    if (a->texts) return array_read_strings(t, a, first, n, each, state);
    TR_TRY(TR_GROW(&t->raw, &t->raw_capacity, n * a->size));
    TR_TRY(array_read_raw(t, a, first, n, t->raw));
    const void *raw = t->raw;
    for (size_t i = 0; i < n; i++) {
        char text[TR_NUMBER_ROOM];
        size_t length = 0;
        double real = NAN;
        switch (a->number) {
        case TR_HDF5_F32: length = (size_t)(tr_put_f32(text, ((const float *)raw)[i]) - text); break;
        case TR_HDF5_F64: real = ((const double *)raw)[i]; break;
#define PRINT(NUMBER, TYPE)                                                                                  \
    case NUMBER:                                                                                             \
        length = (size_t)((TYPE)-1 < (TYPE)1                                                                 \
                              ? sprintf(text, "%lld", (long long)((const TYPE *)raw)[i])                     \
                              : sprintf(text, "%llu", (unsigned long long)((const TYPE *)raw)[i]));          \
        break;
            EACH_WHOLE(PRINT)
#undef PRINT
        case TR_HDF5_NUMBERS: break;
        }
        for (int digits = 15; length == 0 && !isnan(real) && digits <= 17; digits += 2) {
            int written = snprintf(text, sizeof text, "%.*g", digits, real);
            if (digits == 17 || strtod(text, NULL) == real) length = (size_t)written;
        }
        if (a->number == TR_HDF5_F32 && isnan(((const float *)raw)[i])) length = 0;
        TR_TRY(each(state, i, text, length));
    }
    return TR_OK;
}

/* Reads indices of columns. Negative and too large indices become UINT32_MAX. */
static int array_read_indices(struct tr_hdf5 *t, const struct tr_hdf5_array *a, uint64_t first, size_t n,
                              uint32_t *to)
{
    bool narrow = a->number == TR_HDF5_U32 || (a->number == TR_HDF5_I32 && t->columns <= INT32_MAX);
    if (narrow) return array_read_raw(t, a, first, n, to);
    TR_FREED uint64_t *wide = NULL;
    TR_TRY(TR_NEW(&wide, n));
    TR_TRY(array_read(t, a, first, n, NULL, wide));
    for (size_t i = 0; i < n; i++) to[i] = wide[i] < UINT32_MAX ? (uint32_t)wide[i] : UINT32_MAX;
    return TR_OK;
}

/* ---- origins of rows ---- */

int tr_hdf5_read_origins(struct tr_hdf5 *t, struct tr_reader *r, uint64_t first, size_t n)
{
    const struct tr_reader_options *o = r->options;
    r->first_origin = first;
    r->origins = t->origin.set >= 0 && (o->split.by != TR_SPLIT_NONE || o->piece);
    if (!r->origins) return TR_OK;
    TR_TRY(TR_GROW(&r->origin, &r->origin_capacity, n));
    return array_read(t, &t->origin, first, n, NULL, r->origin);
}

uint64_t tr_hdf5_origin_of(const struct tr_reader *r, uint64_t row)
{
    return tr_origin(r->file, 0) + (r->origins ? r->origin[row - r->first_origin] : row);
}

/* Sets *skips: options->split excludes the row, which has the mark r->mark. */
static int hdf5_choose(struct tr_reader *r, uint64_t row, bool *skips)
{
    *skips = false;
    if (r->options->split.by == TR_SPLIT_NONE) return TR_OK;
    uint64_t origin = tr_hdf5_origin_of(r, row), file = origin >> 48;
    return tr_reader_choose_row(r, file, origin - tr_origin(file, 0), skips);
}

/* ---- the rows of a reader ---- */

enum {
    BLOCK_BYTES = 4 << 20,
    LARGEST_BLOCK = 256 << 20,
    SPARSE_ROWS = 1 << 16,
    SPARSE_PAIRS = 1 << 19,
    AT_ONCE = 64
};

#define NOT_YET (TR_NO_VALUE - 1) /* marks a text whose place (names.h) was not looked up yet */

/* n columns of numbers that are consecutive in the file (from column `field` on) and in rows (from `slot` on). */
struct stretch {
    size_t field, slot, n;
};

/* The names of columns and the values of all columns. */
struct strings {
    struct tr_ids all; /* the names of all columns, then their values; this list cannot be searched */
    /* first[c]: index in `all` of the first value of column c; the last element is the end */
    uint64_t *first;
};

/* One reader's pass over the rows of its share. */
struct hdf5_pass {
    struct tr_reader *r;
    struct tr_hdf5 table;
    uint64_t *begin; /* sparse: for each current row, the index of its first non-zero in the file */
    float *value;    /* sparse: values of the current rows, as long as all values before them are 1 */
    uint64_t *mark;  /* labels with names: marks (split.h) of the labels of the current rows */
    size_t begin_capacity, value_room, mark_room;
    struct tr_files rows; /* files with numbers of rows as sizes, from tr_hdf5_rows() */
    uint64_t done;        /* number of rows of all files read so far */
    /* The following members are used only if columns have names. */
    struct strings strings;
    uint32_t *place;         /* place[i]: place of text i among the reader's values, or NOT_YET */
    struct stretch *stretch; /* all columns of numbers */
    size_t *other;           /* indices of all other columns of the file */
    size_t stretches, others;
    float *raw; /* the current rows as they are in the file */
    size_t raw_capacity;
};

/* ---- names and texts of named columns ---- */

static void strings_free(struct strings *s)
{
    tr_ids_free(&s->all);
    free(s->first);
    s->first = NULL;
}

static int array_get(struct tr_hdf5 *t, const struct tr_hdf5_array *a, void *values)
{
    return tr_checked_get(&t->checked, &(struct tr_checked_array){a->name, a->at, a->rows, a->size}, values);
}

/* Reads names and texts of columns. Free them also after an error. */
static int strings_read(struct tr_hdf5 *t, struct strings *s)
{
    TR_FREED uint64_t *texts = NULL;
    uint64_t n = t->columns;
    struct tr_ids *all = &s->all;
    bool right = true;
    *s = (struct strings){.all = {.are_text = true, .n = (size_t)t->string_begin.rows - 1}};
    TR_TRY(TR_NEW(&s->first, (size_t)t->columns + 1));
    TR_TRY(array_get(t, &t->texts, &texts));
    TR_TRY(array_get(t, &t->string_begin, &all->begin));
    TR_TRY(array_get(t, &t->strings, &all->text));
    for (size_t c = 0; c < t->columns && right; c++) {
        s->first[c] = n;
        right = texts[c] <= all->n && n <= all->n;
        n += texts[c];
    }
    s->first[t->columns] = n;
    right = right && n == all->n && all->begin[0] == 0 && all->begin[all->n] <= t->strings.rows;
    for (size_t i = 0; i < all->n && right; i++) right = all->begin[i] <= all->begin[i + 1];
    if (right) return TR_OK;
    return tr_fail(TR_ERR_DATA, "%s:%s: damaged: not what the columns have", t->path, t->string_begin.name);
}

int tr_hdf5_read_names(const struct tr_file *file, tr_field_fn *read, void *state)
{
    TR_CLOSED_BY(tr_hdf5_table_close) struct tr_hdf5 t;
    TR_CLOSED_BY(strings_free) struct strings s = {.first = NULL};
    TR_TRY(tr_hdf5_table_open(file, &t));
    if (!t.named) return TR_OK;
    TR_TRY(strings_read(&t, &s));
    for (size_t c = 0; c < t.columns; c++) {
        size_t n;
        const char *name = tr_ids_text(&s.all, c, &n);
        TR_TRY(read(state, 0, c, name, n));
    }
    return TR_OK;
}

int tr_hdf5_read_kinds(const struct tr_file *file, size_t columns, bool *texts)
{
    TR_CLOSED_BY(tr_hdf5_table_close) struct tr_hdf5 t;
    TR_FREED uint64_t *n = NULL;
    TR_TRY(tr_hdf5_table_open(file, &t));
    if (t.named) TR_TRY(array_get(&t, &t.texts, &n));
    for (size_t c = 0; c < columns && c < t.columns && n; c++) texts[c] = n[c] > 0;
    return TR_OK;
}

/* ---- rows with named columns ---- */

static int named_open(struct hdf5_pass *p)
{
    const struct tr_reader *r = p->r;
    p->stretches = p->others = 0;
    TR_TRY(strings_read(&p->table, &p->strings));
    TR_TRY(TR_NEW(&p->place, p->strings.all.n));
    for (size_t i = 0; i < p->strings.all.n; i++) p->place[i] = NOT_YET;
    TR_TRY(TR_NEW(&p->stretch, r->fields));
    TR_TRY(TR_NEW(&p->other, r->fields));
    for (size_t field = 0; field < r->fields; field++) {
        const struct tr_bound *b = &r->bound[field];
        struct stretch *last = &p->stretch[p->stretches - (p->stretches > 0)];
        bool continues =
            p->stretches > 0 && last->field + last->n == field && last->slot + last->n == b->slot;
        if (b->type != TR_COLUMN_NUMBER) p->other[p->others++] = field;
        else if (continues) last->n++;
        else p->stretch[p->stretches++] = (struct stretch){field, b->slot, 1};
    }
    return TR_OK;
}

static void named_close(struct hdf5_pass *p)
{
    strings_free(&p->strings);
    free(p->place);
    free(p->stretch);
    free(p->other);
    p->place = NULL;
    p->stretch = NULL;
    p->other = NULL;
}

static bool named_bad(struct tr_reader *r, size_t field, const char *what)
{
    char name[TR_SHOWN_NAME];
    tr_schema_column_text(r->options->schema, r->bound[field].column, name);
    (void)tr_reader_bad(r, NULL, ' ', "column %s: %s", name, what);
    return false;
}

/* Finds the text of a field, and sets *string to its index in strings.all. The text of a number is its digits in `number`, and
 * *string is then the number of all texts. */
static bool named_text(const struct hdf5_pass *p, size_t field, float x, char number[32],
                       struct tr_field *text, size_t *string)
{
    const struct strings *s = &p->strings;
    uint64_t first = s->first[field], n = s->first[field + 1] - first;
    *text = (struct tr_field){.text = number};
    *string = s->all.n;
    if (n == 0) {
        if (!isnan(x)) text->n = (size_t)(tr_put_f32(number, x) - number);
        return true;
    }
    if (!(x >= 0 && x < (float)n)) return named_bad(p->r, field, "damaged: there is no such text");
    *string = (size_t)(first + (uint64_t)x);
    text->text = tr_ids_text(&s->all, *string, &text->n);
    return true;
}

/* Adds a category, or a label with a name, to a row. */
static bool named_value(struct hdf5_pass *p, size_t field, float x, float *row, float *label)
{
    struct tr_reader *r = p->r;
    const struct tr_bound *b = &r->bound[field];
    struct tr_field text;
    char number[32];
    size_t string;
    uint32_t place = NOT_YET;
    bool is_label = b->type == TR_COLUMN_NAMED_LABEL;
    if (!named_text(p, field, x, number, &text, &string)) return false;
    if (string < p->strings.all.n) place = p->place[string];
    if (place == NOT_YET) {
        if (text.n > (is_label ? (size_t)TR_NAME_LONGEST : (size_t)TR_VALUE_LONGEST))
            return named_bad(r, field, "a text is too long");
        if (tr_schema_is_missing(r->options->schema, text.text, text.n, false)) text.n = 0;
        r->status = tr_csv_find_value(r, b->column, text.text, text.n, &place);
        if (r->status != TR_OK) return false;
        if (string < p->strings.all.n) p->place[string] = place;
    }
    if (!is_label) row[b->slot] = tr_slot_of_place(place);
    else if (place != TR_NO_VALUE) *label = (float)place;
    return true;
}

static bool named_number(struct tr_reader *r, size_t field, float x, float *to)
{
    *to = x;
    if (isnan(x) || tr_schema_is_missing_number(r->options->schema, x))
        tr_csv_miss_number(r, r->bound[field].column, to);
    return !isinf(x) || named_bad(r, field, "is infinite, expected an ordinary number");
}

/* Adds a row. clean: its numbers are finite. */
static bool named_add_row(struct hdf5_pass *p, const float *x, bool clean)
{
    struct tr_reader *r = p->r;
    const struct tr_schema *schema = r->options->schema;
    struct tr_matrix *m = &r->matrix;
    float label = NAN, *row = m->value + m->rows * m->columns, *extras[TR_EXTRAS];
    tr_reader_begin_extras(r, extras);
    for (size_t i = 0; i < p->stretches; i++) {
        const struct stretch *s = &p->stretch[i];
        if (clean) memcpy(row + s->slot, x + s->field, s->n * sizeof *x);
        for (size_t field = s->field; field < s->field + s->n && !clean; field++)
            if (!named_number(r, field, x[field], row + r->bound[field].slot)) return false;
    }
    for (size_t i = 0; i < p->others; i++) {
        size_t field = p->other[i];
        uint8_t type = r->bound[field].type;
        if (type == TR_COLUMN_LABEL && !named_number(r, field, x[field], &label)) return false;
        if ((type == TR_COLUMN_CATEGORY || type == TR_COLUMN_NAMED_LABEL) &&
            !named_value(p, field, x[field], row, &label))
            return false;
        enum tr_extra extra = tr_column_extra(type);
        if (extra == TR_EXTRAS) continue;
        *extras[extra] = x[field];
        if (!tr_extra_takes(extra, x[field])) return named_bad(r, field, tr_extra_kinds[extra].bad);
    }
    for (size_t i = 0; i < schema->crosses; i++) {
        const struct tr_cross *cross = &schema->cross[i];
        struct tr_field part[TR_CROSS_MOST];
        char number[TR_CROSS_MOST][32];
        size_t column = tr_schema_fields(schema) + i, string;
        for (size_t field = 0; field < r->fields; field++)
            for (size_t k = 0; k < cross->n; k++)
                if (r->bound[field].column == cross->column[k] &&
                    !named_text(p, field, x[field], number[k], &part[k], &string))
                    return false;
        if (!tr_csv_cross_values(r, column, cross, part, &row[schema->column[column].slot])) return false;
    }
    for (size_t field = 0; field < r->fields && r->options->id; field++) {
        char number[32];
        struct tr_field text;
        size_t string;
        if (r->bound[field].column != r->id_column) continue;
        if (!named_text(p, field, x[field], number, &text, &string)) return false;
        r->status = tr_reader_add_id(r, m->rows, text.text, text.n);
        if (r->status != TR_OK) return false;
    }
    return tr_csv_end_row(r, "", label) != NULL;
}

/* Returns the mark of a row's label. */
static uint64_t named_mark(const struct hdf5_pass *p, const float *x)
{
    size_t field = p->r->mark_field, string;
    struct tr_field text;
    char number[32];
    if (!named_text(p, field, x[field], number, &text, &string)) return 0; /* reported when the row is read */
    return tr_csv_label_mark(p->r->options->schema, text.text, text.n);
}

/* Adds the rows first .. first + n - 1 of the file. */
static int named_add_rows(struct hdf5_pass *p, uint64_t first, size_t n)
{
    struct tr_reader *r = p->r;
    struct tr_hdf5 *t = &p->table;
    size_t columns = (size_t)t->columns;
    TR_TRY(tr_csv_make_room(r, n));
    if (r->options->piece || r->options->places)
        TR_TRY(TR_GROW(&r->place, &r->place_capacity, r->matrix.rows + n));
    TR_TRY(TR_GROW(&p->raw, &p->raw_capacity, n * columns));
    TR_TRY(array_read(t, &t->x, first, n, p->raw, NULL));
    bool any_missing = r->options->schema->missing_numbers > 0,
         clean = !any_missing && tr_are_finite(p->raw, n * columns);
    for (size_t i = 0; i < n && !r->enough; i++) {
        size_t rows = r->matrix.rows;
        const float *x = p->raw + i * columns;
        r->offset = first + i;
        bool skips;
        r->mark = r->options->split.by == TR_SPLIT_LABEL ? named_mark(p, x) : 0;
        TR_TRY(hdf5_choose(r, r->offset, &skips));
        if (skips) continue;
        if (!named_add_row(p, x, clean || (!any_missing && tr_are_finite(x, columns))))
            TR_TRY(tr_reader_reject(r));
        else if (r->place && r->matrix.rows > rows) r->place[rows] = r->offset;
    }
    return TR_OK;
}

/* ---- checks ---- */

/* Returns the error of an element of an array, or counts the row as skipped and returns TR_OK (options->skip_errors). */
static int hdf5_reject(struct hdf5_pass *p, const struct tr_hdf5_array *a, uint64_t row, uint64_t column,
                       const char *what)
{
    char place[64];
    if (a->dimensions > 1)
        snprintf(place, sizeof place, "%llu,%llu", (unsigned long long)row, (unsigned long long)column);
    else snprintf(place, sizeof place, "%llu", (unsigned long long)row);
    if (!p->r->options->skip_errors)
        return tr_fail(TR_ERR_DATA, "%s:%s[%s]: %s", p->table.path, a->name, place, what);
    tr_reader_bad(p->r, NULL, ' ', "%s", what);
    return tr_reader_reject(p->r);
}

static const char *not_finite(float value)
{
    return isnan(value)
               ? "is not a number (NaN), expected an ordinary number: fill it in; only csv and tables have "
                 "missing values"
               : "is too large for a 32-bit float, or infinite";
}

static uint32_t is_odd(float value)
{
    const uint32_t exponent = 0x7f800000;
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return (bits & exponent) == exponent;
}

/* The inner loop has a constant number of iterations, so that the compiler vectorizes it. */
bool tr_are_finite(const float *value, size_t n)
{
    uint32_t odd = 0;
    for (; n >= AT_ONCE; n -= AT_ONCE, value += AT_ONCE)
        for (int i = 0; i < AT_ONCE; i++) odd |= is_odd(value[i]);
    for (size_t i = 0; i < n; i++) odd |= is_odd(value[i]);
    return odd == 0;
}

/* Returns how many numbers are not larger than the number before them. */
static size_t count_falls(const uint32_t *index, size_t n)
{
    size_t falls = 0, k = 1;
    for (; k + AT_ONCE <= n; k += AT_ONCE) {
        uint32_t here = 0;
        for (int i = 0; i < AT_ONCE; i++) here += index[k + (size_t)i] <= index[k + (size_t)i - 1];
        falls += here;
    }
    for (; k < n; k++) falls += index[k] <= index[k - 1];
    return falls;
}

/* ---- rows without names of columns ---- */

/* Sets *wanted: row first + i, the i-th of the current rows, is not held out, and its label is finite. */
static int hdf5_check_label(struct hdf5_pass *p, uint64_t first, size_t i, float label, bool *wanted)
{
    struct tr_reader *r = p->r;
    uint64_t row = first + i;
    bool skips;
    r->offset = row;
    r->mark = p->mark ? p->mark[i] : tr_split_number_mark(label);
    TR_TRY(hdf5_choose(r, row, &skips));
    *wanted = !skips;
    if (!*wanted || !p->table.labelled || r->options->unlabelled || isfinite(label)) return TR_OK;
    *wanted = false;
    return hdf5_reject(p, &p->table.y, row, 0,
                       p->table.y.texts ? "is empty or longer than 1000 bytes, expected a label"
                                        : not_finite(label));
}

static int hdf5_add_row(struct tr_reader *r, float label)
{
    if (r->place) r->place[r->matrix.rows] = r->offset;
    return tr_reader_end_row(r, label);
}

/* The labels of the rows that are being read, and their marks. */
struct label_state {
    const struct tr_reader_options *options;
    float *label;
    uint64_t *mark;
};

static int hdf5_name_label(void *state, size_t i, const char *text, size_t n)
{
    const struct label_state *s = state;
    s->label[i] = NAN;
    s->mark[i] = tr_split_text_mark(text, n);
    if (!tr_reader_names_labels(s->options)) return TR_OK;
    return n == 0 || n > TR_NAME_LONGEST ? TR_OK : tr_reader_find_label(s->options, text, n, &s->label[i]);
}

/* Notes an integer label that no float equals. */
static int hdf5_note_label(void *state, size_t i, const char *text, size_t n)
{
    struct tr_reader *r = state;
    char line[TR_NUMBER_ROOM + TR_TEXT_SLACK] = "";
    memcpy(line, text, n);
    line[n] = '\n';
    (void)i;
    tr_reader_note_long_label(r, line, ' ');
    return TR_OK;
}

/* Reads the labels of the rows first .. first + n - 1 of the file. */
static int hdf5_read_labels(struct hdf5_pass *p, uint64_t first, size_t n, float *label)
{
    struct tr_reader *r = p->r;
    struct tr_hdf5 *t = &p->table;
    bool named = tr_reader_names_labels(r->options);
    if (t->y.texts && !named && !r->options->unlabelled && !r->options->marks_only)
        return hdf5_fail(t, &t->y, "texts, expected numbers");
    if (t->y.texts || named) {
        TR_TRY(TR_GROW(&p->mark, &p->mark_room, n));
        return array_read_texts(t, &t->y, first, n, hdf5_name_label,
                                &(struct label_state){r->options, label, p->mark});
    }
    TR_TRY(array_read(t, &t->y, first, n, label, NULL));
    for (size_t i = 0; i < n && t->y.size > 2 && t->y.number != TR_HDF5_F32 && !*r->report.long_label; i++) {
        if (!tr_label_is_long(label[i])) continue;
        r->offset = first + i;
        TR_TRY(array_read_texts(t, &t->y, first + i, 1, hdf5_note_label, r));
    }
    return TR_OK;
}

static int hdf5_make_room(struct tr_reader *r, size_t more)
{
    struct tr_matrix *m = &r->matrix;
    if (r->options->piece || r->options->places)
        TR_TRY(TR_GROW(&r->place, &r->place_capacity, m->rows + more));
    return r->head->labelled ? TR_GROW(&m->label, &r->label_capacity, m->rows + more) : TR_OK;
}

/* Adds the dense rows first .. first + n - 1 of the file. They are read to the end of the matrix; if some are left out, the others
 * move down. */
static int hdf5_add_dense(struct hdf5_pass *p, uint64_t first, size_t n)
{
    struct tr_reader *r = p->r;
    struct tr_matrix *m = &r->matrix;
    size_t columns = m->columns, old = m->rows;
    TR_TRY(hdf5_make_room(r, n));
    TR_TRY(TR_GROW(&m->value, &r->value_capacity, (old + n) * columns));
    float *value = m->value + old * columns, *label = m->label ? m->label + old : NULL;
    TR_TRY(array_read(&p->table, &p->table.x, first, n, value, NULL));
    if (label) TR_TRY(hdf5_read_labels(p, first, n, label));
    bool clean = tr_are_finite(value, n * columns);
    for (size_t i = 0; i < n && !r->enough; i++, value += columns) {
        bool wanted;
        size_t odd = clean ? columns : 0;
        TR_TRY(hdf5_check_label(p, first, i, label ? label[i] : 0, &wanted));
        if (!wanted) continue;
        while (odd < columns && isfinite(value[odd])) odd++;
        if (odd < columns) {
            TR_TRY(hdf5_reject(p, &p->table.x, first + i, odd, not_finite(value[odd])));
            continue;
        }
        if (m->rows < old + i) memcpy(m->value + m->rows * columns, value, columns * sizeof *value);
        TR_TRY(hdf5_add_row(r, label ? label[i] : 0));
    }
    return TR_OK;
}

struct pair {
    uint32_t index;
    float value;
};

static int pair_compare(const void *a, const void *b)
{
    const struct pair *x = a, *y = b;
    return x->index < y->index ? -1 : x->index > y->index;
}

/* Sorts the n non-zeros of a row by columns, and sets *right to whether they are correct. at: index of the first non-zero in the
 * file; clean: values are known to be finite; ascends: columns are known to ascend. */
static int hdf5_check_row(struct hdf5_pass *p, uint64_t at, uint32_t *index, float *value, size_t n,
                          bool clean, bool ascends, bool *right)
{
    const struct tr_hdf5 *t = &p->table;
    if (!ascends && !(ascends = count_falls(index, n) == 0)) {
        TR_FREED struct pair *pairs = NULL;
        TR_TRY(TR_NEW(&pairs, n));
        for (size_t k = 0; k < n; k++) pairs[k] = (struct pair){index[k], value[k]};
        qsort(pairs, n, sizeof *pairs, pair_compare);
        for (size_t k = 0; k < n; k++) {
            index[k] = pairs[k].index;
            value[k] = pairs[k].value;
        }
        ascends = count_falls(index, n) == 0;
    }
    *right = ascends && (n == 0 || index[n - 1] < t->columns) && (clean || tr_are_finite(value, n));
    if (*right) return TR_OK;
    for (size_t k = 0; k < n; k++) {
        if (index[k] >= t->columns)
            return hdf5_reject(p, &t->indices, at + k, 0, "is negative, or beyond the columns of shape");
        if (!isfinite(value[k])) return hdf5_reject(p, &t->x, at + k, 0, not_finite(value[k]));
    }
    return hdf5_reject(p, &t->indices, at, 0,
                       "begins a row that has a column twice, expected each once (scipy: .sum_duplicates())");
}

/* Adds the sparse rows first .. first + n - 1. The non-zeros of the i-th of them are begin[i] .. begin[i + 1] - 1 of the file. */
static int hdf5_add_lists(struct hdf5_pass *p, uint64_t first, const uint64_t *begin, size_t n)
{
    struct tr_reader *r = p->r;
    struct tr_matrix *m = &r->matrix;
    size_t pairs = (size_t)(begin[n] - begin[0]), old = m->rows;
    TR_TRY(hdf5_make_room(r, n));
    TR_TRY(TR_GROW(&m->begin, &r->begin_capacity, old + n + 1));
    TR_TRY(TR_GROW(&m->column, &r->column_capacity, r->nonzeros + pairs));
    if (m->value) TR_TRY(TR_GROW(&m->value, &r->value_capacity, r->nonzeros + pairs));
    /* values are stored here only until a value is not 1 */
    else TR_TRY(TR_GROW(&p->value, &p->value_room, pairs));
    uint32_t *index = m->column + r->nonzeros;
    float *value = m->value ? m->value + r->nonzeros : p->value, *label = m->label ? m->label + old : NULL;
    TR_TRY(array_read_indices(&p->table, &p->table.indices, begin[0], pairs, index));
    TR_TRY(array_read(&p->table, &p->table.x, begin[0], pairs, value, NULL));
    bool ones = !m->value;
    for (size_t k = 0; k < pairs && ones; k++) ones = value[k] == 1;
    if (!m->value && !ones) {
        TR_TRY(tr_reader_start_values(r, r->nonzeros));
        memcpy(m->value + r->nonzeros, value, pairs * sizeof *value);
        value = m->value + r->nonzeros;
    }
    bool clean = tr_are_finite(value, pairs);
    /* number of places where the column does not increase; places between two rows are subtracted: 0 if all rows ascend */
    size_t falls = count_falls(index, pairs);
    for (size_t i = 1; i < n; i++) {
        size_t at = (size_t)(begin[i] - begin[0]);
        if (begin[i + 1] > begin[i] && at > 0) falls -= index[at] <= index[at - 1];
    }
    if (label) TR_TRY(hdf5_read_labels(p, first, n, label));
    for (size_t i = 0; i < n && !r->enough; i++) {
        size_t at = (size_t)(begin[i] - begin[0]), length = (size_t)(begin[i + 1] - begin[i]);
        bool wanted;
        TR_TRY(hdf5_check_label(p, first, i, label ? label[i] : 0, &wanted));
        if (wanted)
            TR_TRY(hdf5_check_row(p, begin[i], index + at, value + at, length, clean, falls == 0, &wanted));
        if (!wanted) continue;
        if (index + at != m->column + r->nonzeros) {
            memmove(m->column + r->nonzeros, index + at, length * sizeof *index);
            if (m->value) memmove(m->value + r->nonzeros, value + at, length * sizeof *value);
        }
        if (length > 0) {
            const uint32_t *row = m->column + r->nonzeros;
            if (row[0] < r->report.lowest) r->report.lowest = row[0];
            if (row[length - 1] > r->report.highest) r->report.highest = row[length - 1];
        }
        r->nonzeros += length;
        m->begin[m->rows + 1] = r->nonzeros;
        TR_TRY(hdf5_add_row(r, label ? label[i] : 0));
    }
    return TR_OK;
}

/* Adds the sparse rows first .. first + n - 1, SPARSE_PAIRS non-zeros at a time. If indptr is malformed, this is an error even with
 * options->skip_errors, since no row can be found. */
static int hdf5_add_sparse(struct hdf5_pass *p, uint64_t first, size_t n)
{
    const struct tr_hdf5 *t = &p->table;
    TR_TRY(TR_GROW(&p->begin, &p->begin_capacity, n + 1));
    TR_TRY(array_read(&p->table, &t->indptr, first, n + 1, NULL, p->begin));
    for (size_t i = 0; i <= n; i++) {
        const char *what = NULL;
        unsigned long long number = p->begin[i], before = i > 0 ? p->begin[i - 1] : 0;
        if (number > t->nonzeros) what = "is beyond the end of the non-zeros";
        else if (number < before) what = "is less than the number before it, expected ascending ones";
        else if (first + i == 0 && number > 0) what = "is not 0, as the first is expected to be";
        if (what)
            return tr_fail(TR_ERR_DATA, "%s:%s[%llu]: %lld %s", t->path, t->indptr.name,
                           (unsigned long long)(first + i), (long long)number, what);
    }
    for (size_t at = 0, end; at < n && !p->r->enough; at = end) {
        for (end = at + 1; end < n && p->begin[end + 1] - p->begin[at] <= SPARSE_PAIRS;) end++;
        TR_TRY(hdf5_add_lists(p, first + at, p->begin + at, end - at));
    }
    return TR_OK;
}

/* ---- the share of a reader ---- */

static int hdf5_open_ids(struct hdf5_pass *p)
{
    struct tr_hdf5 *t = &p->table;
    const char *id = p->r->options->id;
    if (!id || p->r->options->schema || strcmp(id, "row") == 0) return TR_OK;
    TR_HID root = H5Gopen2(t->file, "/", H5P_DEFAULT);
    if (H5Lexists(root, id, H5P_DEFAULT) <= 0 || object_kind(root, id) != H5I_DATASET)
        return group_fail_lacks(t, root, id);
    TR_TRY(array_open_any(t, root, id, true, &t->id));
    if (t->id.rows == t->rows && t->id.columns == 1) return TR_OK;
    return hdf5_fail(t, &t->id, "not one text or number for each row, which --id expects");
}

/* The identifiers of the rows from `row` of the matrix on. The first of the identifiers is that of row `first` of the file. */
struct id_state {
    struct tr_reader *r;
    size_t row;
    uint64_t first;
};

static int hdf5_add_id(void *state, size_t i, const char *text, size_t n)
{
    struct id_state *s = state;
    struct tr_reader *r = s->r;
    if (s->row == r->matrix.rows || (r->place[s->row] & ~TR_PLACE_MALFORMED) != s->first + i) return TR_OK;
    return tr_reader_add_id(r, s->row++, text, n);
}

/* Adds the identifiers of the rows that were read from the rows first .. first + n - 1 of the file. */
static int hdf5_add_ids(struct hdf5_pass *p, uint64_t first, size_t n, size_t row)
{
    struct id_state state = {p->r, row, first};
    if (!p->r->options->id || p->r->options->schema) return TR_OK;
    if (p->table.id.set >= 0) return array_read_texts(&p->table, &p->table.id, first, n, hdf5_add_id, &state);
    for (size_t i = 0; i < n; i++) {
        char number[24];
        int length = snprintf(number, sizeof number, "%llu", (unsigned long long)(first + i));
        TR_TRY(hdf5_add_id(&state, i, number, (size_t)length));
    }
    return TR_OK;
}

/* Adds the rows begin .. end - 1 of a file, some at a time: whole HDF5 chunks if rows are dense. */
static int hdf5_add_rows(struct hdf5_pass *p, uint64_t begin, uint64_t end)
{
    struct tr_reader *r = p->r;
    const struct tr_reader_options *o = r->options;
    const struct tr_hdf5 *t = &p->table;
    uint64_t block = SPARSE_ROWS;
    if (!t->sparse) {
        uint64_t bytes = t->x.columns * t->x.size, chunk = t->x.chunk_rows;
        block = BLOCK_BYTES / bytes + 1;
        if (chunk > 0 && chunk * bytes <= LARGEST_BLOCK) block = (block + chunk - 1) / chunk * chunk;
    }
    for (uint64_t at = begin, n; at < end && !r->enough; at += n) {
        n = block - (t->sparse ? 0 : at % block);
        if (n > end - at) n = end - at;
        if (o->most_rows > 0 && n > o->most_rows) n = o->most_rows;
        size_t before = r->matrix.rows;
        TR_TRY(tr_hdf5_read_origins(&p->table, r, at, (size_t)n));
        TR_TRY(o->schema   ? named_add_rows(p, at, (size_t)n)
               : t->sparse ? hdf5_add_sparse(p, at, (size_t)n)
                           : hdf5_add_dense(p, at, (size_t)n));
        TR_TRY(hdf5_add_ids(p, at, (size_t)n, before));
        TR_TRY(tr_reader_note_run(r, at, at + n, r->matrix.rows - before));
        p->done += n;
        r->report.text_bytes += n * r->files->total / (p->rows.total + 1);
        double share = (double)p->done / (double)p->rows.total;
        if (o->progress) TR_TRY(o->progress(o->progress_state, (uint64_t)(share * (double)r->files->total)));
        TR_TRY(tr_reader_hand_out(r));
    }
    return TR_OK;
}

static void pass_close(struct hdf5_pass *p)
{
    void *arrays[] = {p->rows.file, p->begin, p->value, p->raw, p->mark};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) free(arrays[i]);
}

static int hdf5_read_part(void *state, const struct tr_file_part *part)
{
    struct hdf5_pass *p = state;
    struct tr_reader *r = p->r;
    const struct tr_hdf5 *t = &p->table;
    if (r->enough) return TR_OK;
    TR_TRY(tr_reader_enter(r, part->file));
    const struct tr_head *h = r->head;
    int status = tr_hdf5_table_open(&r->files->file[part->file], &p->table);
    if (status == TR_OK && r->options->schema) status = named_open(p);
    if (status == TR_OK) status = hdf5_open_ids(p);
    if (status == TR_OK && (t->rows != h->rows || t->columns != h->fields || t->sparse != h->sparse ||
                            t->labelled != h->labelled))
        status = tr_fail(TR_ERR_IO, "%s: has become another while it was read", t->path);
    for (uint64_t end = part->end; end < part->limit + part->bytes && !r->enough && status == TR_OK;
         end += part->stride)
        status = hdf5_add_rows(p, end > part->bytes ? end - part->bytes : 0,
                               end < part->limit ? end : part->limit);
    named_close(p);
    tr_hdf5_table_close(&p->table);
    return status;
}

int tr_hdf5_rows(const struct tr_reader *r, size_t readers, struct tr_files *rows, uint64_t *chunk)
{
    const struct tr_head *heads = r->options->heads;
    uint64_t nonzeros = 0, file_chunk = r->head->chunk_rows;
    *rows = (struct tr_files){.n = r->files->n};
    *chunk = 0;
    TR_TRY(TR_NEW(&rows->file, rows->n));
    for (size_t i = 0; i < rows->n; i++) {
        rows->file[i].size = heads[i].rows;
        rows->total += heads[i].rows;
        nonzeros += heads[i].nonzeros;
    }
    if (rows->total == 0) return TR_OK;
    *chunk = (rows->total + readers - 1) / readers;
    if (r->options->deal > 0 && readers > 1) { /* chunks are chosen by the bytes that rows take in memory */
        uint64_t bytes = r->head->sparse ? 8 * (nonzeros / rows->total + 1) : 4 * r->head->fields;
        struct tr_files all = {.total = rows->total * bytes};
        *chunk = tr_max_size(tr_files_chunk(&all, readers) / bytes, 1);
    }
    /* use whole HDF5 chunks, unless these are so large that some readers would have none */
    if (file_chunk >= 2 && file_chunk * readers * 4 <= rows->total)
        *chunk = (*chunk + file_chunk - 1) / file_chunk * file_chunk;
    return TR_OK;
}

/* Allocates memory for all rows of the share, or little memory if they are not stored. */
static int hdf5_reserve(struct tr_reader *r, const struct tr_files *rows, size_t readers)
{
    const struct tr_reader_options *o = r->options;
    struct tr_matrix *m = &r->matrix;
    bool all = !o->piece && o->most_rows == 0 && !o->reads_held_out && !o->marks_only;
    size_t share = all ? (size_t)(rows->total / readers) + 1 : 1;
    uint64_t nonzeros = 0;
    if (o->schema) return tr_csv_make_room(r, share);
    TR_TRY(hdf5_make_room(r, share));
    if (!r->head->sparse) return TR_GROW(&m->value, &r->value_capacity, share * m->columns);
    for (size_t i = 0; i < rows->n && all; i++) nonzeros += o->heads[i].nonzeros;
    TR_TRY(TR_GROW(&m->begin, &r->begin_capacity, share + 1));
    m->begin[0] = 0;
    return TR_GROW(&m->column, &r->column_capacity, (size_t)(nonzeros / readers) + 1);
}

int tr_hdf5_read_share(struct tr_reader *r, size_t reader, size_t readers)
{
    TR_CLOSED_BY(pass_close) struct hdf5_pass p = {.r = r};
    uint64_t chunk;
    const struct tr_schema *schema = r->options->schema;
    TR_TRY(tr_reader_enter(r, tr_heads_first(r->options->heads, r->files->n)));
    TR_TRY(tr_hdf5_rows(r, readers, &p.rows, &chunk));
    r->matrix.columns = schema ? schema->slots : r->head->sparse ? 0 : (size_t)r->head->fields;
    TR_TRY(hdf5_reserve(r, &p.rows, readers));
    return tr_files_each_part(&p.rows, reader, readers, chunk, hdf5_read_part, &p);
}
