#include "reading.h"

#include <hdf5.h>

#include "data/hdf5.h"

/* ---- files ---- */

static hid_t make(const char *name)
{
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
    hid_t file = H5Fcreate(unit_path(name), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    ck_assert(file >= 0);
    return file;
}

/* An array of a type of the file, from one of the memory; chunk[0] 0: in one piece. */
struct layout {
    int dimensions;
    hsize_t shape[2], chunk[2];
    bool packed;
};

static void put(hid_t where, const char *name, hid_t stored, hid_t memory, struct layout l,
                const void *values)
{
    hid_t space = H5Screate_simple(l.dimensions, l.shape, NULL), how = H5Pcreate(H5P_DATASET_CREATE);
    if (l.chunk[0] > 0) H5Pset_chunk(how, l.dimensions, l.chunk);
    if (l.packed) {
        H5Pset_shuffle(how);
        H5Pset_deflate(how, 4);
    }
    hid_t set = H5Dcreate2(where, name, stored, space, H5P_DEFAULT, how, H5P_DEFAULT);
    ck_assert(set >= 0);
    if (values) ck_assert(H5Dwrite(set, memory, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0);
    H5Dclose(set);
    H5Pclose(how);
    H5Sclose(space);
}

static void put_reals(hid_t where, const char *name, hid_t stored, size_t n, const double *values)
{
    put(where, name, stored, H5T_NATIVE_DOUBLE, (struct layout){.dimensions = 1, .shape = {n}}, values);
}

static void put_wholes(hid_t where, const char *name, hid_t stored, size_t n, const int64_t *values)
{
    put(where, name, stored, H5T_NATIVE_INT64, (struct layout){.dimensions = 1, .shape = {n}}, values);
}

static void put_shape(hid_t where, const char *name, int64_t rows, int64_t columns)
{
    hsize_t two = 2;
    hid_t space = H5Screate_simple(1, &two, NULL);
    hid_t a = H5Acreate2(where, name, H5T_STD_I64LE, space, H5P_DEFAULT, H5P_DEFAULT);
    ck_assert(H5Awrite(a, H5T_NATIVE_INT64, (int64_t[]){rows, columns}) >= 0);
    H5Aclose(a);
    H5Sclose(space);
}

static hid_t add_group(hid_t where, const char *name)
{
    hid_t group = H5Gcreate2(where, name, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    ck_assert(group >= 0);
    return group;
}

/* ---- reading ---- */

static const struct tr_reader_options plain = {.format = TR_FORMAT_HDF5};

/* inside: the path of an array in the file. */
static void open_at(const char *name, const char *inside)
{
    char both[UNIT_PATH];
    snprintf(both, sizeof both, "%s%s", name, inside);
    open_files(both);
}

/* The dense rows of all `readers` readers, in the order of their numbers. */
struct table {
    size_t rows, columns;
    float value[4096], label[512];
    bool there[512];
};

static void add_rows(struct table *t, const struct tr_read_runs *runs, size_t columns)
{
    size_t row = 0;
    for (size_t i = 0; i < runs->n; i++) {
        ck_assert_uint_eq(runs->run[i].end - runs->run[i].offset, runs->run[i].rows);
        for (uint64_t to = runs->run[i].offset; to < runs->run[i].end; to++, row++) {
            ck_assert(!t->there[to]);
            t->there[to] = true;
            t->rows++;
            if (matrix.label) t->label[to] = matrix.label[row];
            for (size_t c = 0; c < columns && !matrix.begin; c++)
                t->value[to * columns + c] = matrix.value[row * columns + c];
            for (uint64_t k = matrix.begin ? matrix.begin[row] : 0; matrix.begin && k < matrix.begin[row + 1];
                 k++)
                t->value[to * columns + matrix.column[k]] = matrix.value ? matrix.value[k] : 1;
        }
    }
    ck_assert_uint_eq(row, matrix.rows);
}

static void read_all(const char *name, const char *inside, size_t readers, uint64_t deal, size_t columns,
                     struct table *t)
{
    open_at(name, inside);
    *t = (struct table){.columns = columns};
    for (size_t reader = 0; reader < readers; reader++) {
        struct tr_read_runs runs = {0};
        struct tr_reader_options o = plain;
        o.runs = &runs;
        o.deal = deal;
        ck_ok(read_share(reader, readers, o));
        add_rows(t, &runs, columns);
        free(runs.run);
    }
}

enum { ROWS = 300, COLUMNS = 5 };
static double cell[ROWS * COLUMNS];
static int64_t class[ROWS];

static void check_table(const struct table *t, const int64_t *label)
{
    ck_assert_uint_eq(t->rows, ROWS);
    for (size_t i = 0; i < ROWS * COLUMNS; i++) ck_assert_float_eq(t->value[i], (float)cell[i]);
    for (size_t i = 0; i < ROWS; i++) ck_assert_float_eq(t->label[i], (float)label[i]);
}

static void read_by_all(const char *name, const char *inside, const int64_t *label)
{
    static const size_t readers[] = {1, 2, 7};
    static struct table t;
    for (size_t i = 0; i < COUNT(readers); i++)
        for (uint64_t deal = 0; deal < 2; deal++) {
            read_all(name, inside, readers[i], deal, COLUMNS, &t);
            check_table(&t, label);
        }
}

static void make_up(void)
{
    for (size_t i = 0; i < ROWS * COLUMNS; i++) cell[i] = (double)(i * i * 31 % 101);
    for (size_t i = 0; i < ROWS; i++) class[i] = (int64_t)(i % 3);
}

UNIT_CASE(dense_arrays_of_all_types_and_layouts_are_read)
{
    const hid_t types[] = {H5T_IEEE_F32LE, H5T_IEEE_F64LE, H5T_IEEE_F64BE, H5T_STD_I8LE,
                           H5T_STD_U8LE,   H5T_STD_I16LE,  H5T_STD_U16BE,  H5T_STD_I32LE,
                           H5T_STD_U32LE,  H5T_STD_I32BE,  H5T_STD_I64LE,  H5T_STD_U64LE};
    const struct layout layouts[] = {{2, {ROWS, COLUMNS}, {0, 0}, false},
                                     {2, {ROWS, COLUMNS}, {7, COLUMNS}, false},
                                     {2, {ROWS, COLUMNS}, {64, 2}, true},
                                     {2, {ROWS, COLUMNS}, {ROWS, 1}, true}};
    make_up();
    for (size_t i = 0; i < COUNT(types); i++)
        for (size_t k = 0; k < COUNT(layouts); k++) {
            hid_t file = make("dense.h5");
            put(file, "X", types[i], H5T_NATIVE_DOUBLE, layouts[k], cell);
            put_wholes(file, "y", types[i], ROWS, class);
            H5Fclose(file);
            read_by_all("dense.h5", "", class);
        }
}

/* Some of the readers have nothing. */
UNIT_CASE(there_may_be_more_readers_than_rows)
{
    static struct table t;
    make_up();
    hid_t file = make("few.h5");
    put(file, "X", H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, (struct layout){2, {ROWS, COLUMNS}, {64, 2}, true},
        cell);
    put_wholes(file, "y", H5T_STD_I8LE, ROWS, class);
    H5Fclose(file);
    for (uint64_t deal = 0; deal < 2; deal++) {
        read_all("few.h5", "", ROWS + 100, deal, COLUMNS, &t);
        check_table(&t, class);
    }
}

UNIT_CASE(names_of_arrays_are_found_or_chosen)
{
    static const char *const names[] = {"X", "data", "features"}, *const labels[] = {"y", "label", "labels",
                                                                                     "target"};
    const struct layout table = {2, {ROWS, COLUMNS}, {0, 0}, false};
    make_up();
    for (size_t i = 0; i < 3; i++) {
        hid_t file = make("named.h5"), outer = add_group(file, "outer");
        hid_t group = add_group(outer, "train");
        put(group, names[i], H5T_IEEE_F32LE, H5T_NATIVE_DOUBLE, table, cell);
        put(group, labels[i + 1], H5T_STD_I32LE, H5T_NATIVE_INT64, (struct layout){2, {ROWS, 1}, {0}, false},
            class);
        put(group, "other", H5T_IEEE_F32LE, H5T_NATIVE_DOUBLE, table, cell);
        H5Gclose(group);
        H5Gclose(outer);
        H5Fclose(file);
        read_by_all("named.h5", ":/outer/train", class);
        read_by_all("named.h5", ":/outer/train/other", class);
        read_by_all("named*.h5", ":/outer/train/", class);
    }
}

/* Truth values are an enumeration where h5py writes them. */
UNIT_CASE(truth_values_are_numbers)
{
    int8_t value[] = {1, 0, 1, 1}, no = 0, yes = 1;
    hid_t file = make("truth.h5"), type = H5Tenum_create(H5T_STD_I8LE);
    H5Tenum_insert(type, "FALSE", &no);
    H5Tenum_insert(type, "TRUE", &yes);
    put(file, "X", type, type, (struct layout){2, {4, 1}, {0}, false}, value);
    put(file, "y", type, type, (struct layout){1, {4}, {0}, false}, value);
    H5Tclose(type);
    H5Fclose(file);
    struct table t;
    read_all("truth.h5", "", 2, 0, 1, &t);
    for (size_t i = 0; i < 4; i++) ck_assert(t.value[i] == value[i] && t.label[i] == value[i]);
}

/* ---- sparse rows ---- */

/* The values of make_up() that are not 0, as lists; at most half of them: columns descend where the row's number is odd. */
struct lists {
    size_t n;
    double value[ROWS * COLUMNS];
    int64_t index[ROWS * COLUMNS], begin[ROWS + 1];
};

static void make_lists(struct lists *l)
{
    l->n = 0;
    for (size_t i = 0; i < ROWS; i++) {
        l->begin[i] = (int64_t)l->n;
        for (size_t c = 0; c < COLUMNS; c++) {
            size_t column = i % 2 ? COLUMNS - 1 - c : c, at = i * COLUMNS + column;
            if (i % 10 == 3 || at % 3 == 0) cell[at] = 0;
            if (cell[at] == 0) continue;
            l->value[l->n] = cell[at];
            l->index[l->n++] = (int64_t)column;
        }
    }
    l->begin[ROWS] = (int64_t)l->n;
}

static void put_lists(hid_t group, const struct lists *l, hid_t reals, hid_t wholes)
{
    put_reals(group, "data", reals, l->n, l->value);
    put_wholes(group, "indices", wholes, l->n, l->index);
    put_wholes(group, "indptr", wholes, ROWS + 1, l->begin);
}

static void put_text(hid_t where, const char *name, const char *text)
{
    hid_t type = H5Tcopy(H5T_C_S1), space = H5Screate(H5S_SCALAR);
    H5Tset_size(type, H5T_VARIABLE);
    hid_t a = H5Acreate2(where, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
    ck_assert(H5Awrite(a, type, &text) >= 0);
    H5Aclose(a);
    H5Sclose(space);
    H5Tclose(type);
}

UNIT_CASE(sparse_rows_are_read_as_scipy_anndata_and_10x_have_them)
{
    static struct lists l;
    make_up();
    make_lists(&l);
    hid_t file = make("scipy.h5");
    put_lists(file, &l, H5T_IEEE_F64LE, H5T_STD_I32LE);
    put_wholes(file, "shape", H5T_STD_I64LE, 2, (int64_t[]){ROWS, COLUMNS});
    put_wholes(file, "y", H5T_STD_I8LE, ROWS, class);
    H5Fclose(file);
    read_by_all("scipy.h5", "", class);

    file = make("anndata.h5ad");
    hid_t group = add_group(file, "X");
    put_text(group, "encoding-type", "csr_matrix");
    put_shape(group, "shape", ROWS, COLUMNS);
    put_lists(group, &l, H5T_IEEE_F32LE, H5T_STD_I64LE);
    put_wholes(file, "label", H5T_STD_I8LE, ROWS, class);
    H5Gclose(group);
    H5Fclose(file);
    read_by_all("anndata.h5ad", "", class);
    read_by_all("anndata.h5ad", ":/X", class);

    file = make("10x.h5");
    group = add_group(file, "matrix");
    put_lists(group, &l, H5T_STD_I32LE, H5T_STD_I64LE);
    put_wholes(group, "shape", H5T_STD_I32LE, 2, (int64_t[]){COLUMNS, ROWS});
    put_wholes(group, "barcodes", H5T_STD_I8LE, 1, class);
    H5Gclose(group);
    H5Fclose(file);
    read_by_all("10x.h5", "", (int64_t[ROWS]){0});
}

/* Rows of ones alone have no values, as those of LIBSVM files; ones before another value are kept. */
UNIT_CASE(ones_take_no_memory)
{
    for (int last = 1; last <= 2; last++) {
        hid_t file = make("ones.h5");
        put_reals(file, "data", H5T_IEEE_F32LE, 4, (double[]){1, 1, 1, last});
        put_wholes(file, "indices", H5T_STD_I32LE, 4, (int64_t[]){0, 2, 1, 2});
        put_wholes(file, "indptr", H5T_STD_I32LE, 4, (int64_t[]){0, 2, 2, 4});
        put_shape(file, "h5sparse_shape", 3, 3);
        H5Fclose(file);
        open_at("ones.h5", "");
        ck_ok(read_share(0, 1, plain));
        const uint64_t *begin = matrix.begin;
        const float *value = matrix.value;
        ck_assert(matrix.rows == 3 && begin[1] == 2 && begin[2] == 2 && begin[3] == 4 && !matrix.label);
        ck_assert(last == 1 ? !value : value[0] == 1 && value[2] == 1 && value[3] == 2);
    }
}

UNIT_CASE(a_share_is_held_out_by_row)
{
    make_up();
    hid_t file = make("held.h5");
    put(file, "X", H5T_IEEE_F32LE, H5T_NATIVE_DOUBLE, (struct layout){2, {ROWS, COLUMNS}, {0}, false}, cell);
    H5Fclose(file);
    open_at("held.h5", "");
    size_t counts[2][2] = {{0}};
    for (size_t readers = 1; readers <= 4; readers += 3)
        for (int held = 0; held < 2; held++)
            for (size_t reader = 0; reader < readers; reader++) {
                struct tr_reader_options o = plain;
                o.split = tr_split_of_share(0, 0.2, 5);
                o.reads_held_out = held;
                ck_ok(read_share(reader, readers, o));
                counts[readers > 1][held] += matrix.rows;
            }
    ck_assert_uint_eq(counts[0][0] + counts[0][1], ROWS);
    ck_assert(counts[0][1] > 30 && counts[0][1] < 90);
    ck_assert(counts[0][0] == counts[1][0] && counts[0][1] == counts[1][1]);
}

/* ---- refusals ---- */

static int read_file(const char *name, const char *inside, bool skips)
{
    struct tr_reader_options o = plain;
    o.skip_errors = skips;
    open_at(name, inside);
    return read_share(0, 1, o);
}

static void refused(const char *name, const char *inside, const char *words)
{
    ck_fails(read_file(name, inside, false), TR_ERR_DATA, words);
}

static void skips(const char *name, uint64_t expected)
{
    ck_ok(read_file(name, "", true));
    ck_assert_uint_eq(matrix.rows, expected);
    ck_assert_uint_eq(report.skipped, 1);
}

static void put_odd_lists(const int64_t *begin, const int64_t *index, const double *value, int64_t rows,
                          int64_t columns)
{
    hid_t file = make("odd.h5");
    put_reals(file, "data", H5T_IEEE_F64LE, 4, value);
    put_wholes(file, "indices", H5T_STD_I64LE, 4, index);
    put_wholes(file, "indptr", H5T_STD_I64LE, 4, begin);
    put_shape(file, "shape", rows, columns);
    H5Fclose(file);
}

UNIT_CASE(lists_that_are_none_are_refused)
{
    const int64_t begin[] = {0, 2, 3, 4}, index[] = {0, 2, 1, 1};
    const double value[] = {1, 2, 3, 4};
    put_odd_lists((int64_t[]){0, 3, 2, 4}, index, value, 3, 3);
    refused("odd.h5", "", ":/indptr[2]: 2 is less than the number before it");
    put_odd_lists((int64_t[]){0, 2, 3, 5}, index, value, 3, 3);
    refused("odd.h5", "", ":/indptr[3]: 5 is beyond the end of the non-zeros");
    put_odd_lists((int64_t[]){0, -2, 3, 4}, index, value, 3, 3);
    refused("odd.h5", "", ":/indptr[1]: -2 is beyond");
    put_odd_lists((int64_t[]){1, 2, 3, 4}, index, value, 3, 3);
    refused("odd.h5", "", ":/indptr[0]: 1 is not 0");
    put_odd_lists(begin, index, value, 3, 2);
    refused("odd.h5", "", ":/indices[1]: is negative, or beyond the columns of shape");
    skips("odd.h5", 2);
    put_odd_lists(begin, (int64_t[]){0, 2, -1, 1}, value, 3, 3);
    refused("odd.h5", "", ":/indices[2]: is negative, or beyond the columns of shape");
    put_odd_lists(begin, (int64_t[]){2, 2, 1, 1}, value, 3, 3);
    refused("odd.h5", "", ":/indices[0]: begins a row that has a column twice");
    skips("odd.h5", 2);
    put_odd_lists(begin, index, (double[]){1, 2, 3, NAN}, 3, 3);
    refused("odd.h5", "", ":/data[3]: is not a number (NaN)");
    skips("odd.h5", 2);
    put_odd_lists(begin, index, (double[]){1, 1e300, 3, 4}, 3, 3);
    refused("odd.h5", "", ":/data[1]: is too large for a 32-bit float");
    put_odd_lists(begin, index, value, 4, 3);
    refused("odd.h5", "", ":/indptr: 4 numbers, expected one more than the 4 rows of shape");
    put_odd_lists(begin, index, value, 3, 5000000000);
    refused("odd.h5", "", "more than 2^32 - 2 columns");
    hid_t file = make("csc.h5"), group = add_group(file, "X");
    put_text(group, "encoding-type", "csc_matrix");
    put_reals(group, "data", H5T_IEEE_F64LE, 4, value);
    put_wholes(group, "indices", H5T_STD_I64LE, 4, index);
    put_wholes(group, "indptr", H5T_STD_I64LE, 4, begin);
    put_shape(group, "shape", 3, 3);
    H5Gclose(group);
    H5Fclose(file);
    refused("csc.h5", "", "lists the rows of each column (csc)");
}

UNIT_CASE(arrays_that_are_none_are_refused)
{
    const double value[] = {1, 2, NAN, 4, 5, INFINITY};
    const struct layout table = {2, {3, 2}, {0}, false};
    hid_t file = make("odd.h5");
    put(file, "X", H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, table, value);
    put_wholes(file, "y", H5T_STD_I8LE, 2, (int64_t[]){1, 0});
    put_reals(file, "short", H5T_IEEE_F32LE, 3, value);
    hid_t texts = H5Tcopy(H5T_C_S1), record = H5Tcreate(H5T_COMPOUND, 16);
    H5Tset_size(texts, 8);
    H5Tinsert(record, "a", 0, H5T_NATIVE_DOUBLE);
    H5Tinsert(record, "b", 8, H5T_NATIVE_DOUBLE);
    put(file, "words", texts, texts, table, NULL);
    put(file, "records", record, record, table, NULL);
    H5Tclose(texts);
    H5Tclose(record);
    hsize_t cube[] = {2, 2, 2};
    hid_t space = H5Screate_simple(3, cube, NULL);
    H5Dclose(H5Dcreate2(file, "cube", H5T_IEEE_F32LE, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
    H5Sclose(space);
    H5Gclose(add_group(file, "empty"));
    H5Fclose(file);
    refused("odd.h5", "", ":/y: 2 labels, but there are 3 rows in /X");
    refused("odd.h5", ":/words", ":/words: texts, expected numbers");
    refused("odd.h5", ":/records", "a compound type");
    refused("odd.h5", ":/cube", ":/cube: not of one or two dimensions");
    refused("odd.h5", ":/empty", "has no X, data, features or matrix; there is: nothing");
    refused("odd.h5", ":/test/X", ":/ has no test; there is: X, cube, empty/, records, short, words, y");
    refused("odd.h5", ":/X/y", "HDF5 cannot read it");

    file = make("odd.h5");
    put(file, "X", H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, table, value);
    put_reals(file, "y", H5T_IEEE_F32LE, 3, value);
    H5Fclose(file);
    refused("odd.h5", "", ":/X[1,0]: is not a number (NaN), expected an ordinary number");
    file = make("odd.h5");
    put(file, "X", H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, (struct layout){2, {2, 1}, {0}, false}, value);
    put_reals(file, "y", H5T_IEEE_F32LE, 2, (double[]){1, NAN});
    H5Fclose(file);
    refused("odd.h5", "", ":/y[1]: is not a number (NaN)");
    skips("odd.h5", 1);

    const uint64_t many = (uint64_t)1 << 40;
    const struct layout whole = {2, {many, 5}, {0}, false}, chunks = {2, {many, 5}, {1024, 5}, false};
    file = make("odd.h5");
    put(file, "X", H5T_IEEE_F32LE, H5T_NATIVE_DOUBLE, whole, NULL);
    put(file, "features", H5T_IEEE_F32LE, H5T_NATIVE_DOUBLE, chunks, NULL);
    H5Fclose(file);
    refused("odd.h5", "", ":/X: nothing was ever written into it");
    refused("odd.h5", ":/features", ":/features: nothing was ever written into it");
}

/* A filter that nobody has. */
static size_t filter(unsigned flags, size_t n, const unsigned values[], size_t bytes, size_t *size,
                     void **buffer)
{
    return bytes;
}

UNIT_CASE(files_that_hdf5_cannot_read_are_refused)
{
    const double value[] = {1, 2, 3, 4, 5, 6};
    const H5Z_class2_t odd = {H5Z_CLASS_T_VERS, 30123, 1, 1, "nobody's", NULL, NULL, filter};
    H5open();
    H5Zregister(&odd);
    hid_t file = make("filter.h5"), how = H5Pcreate(H5P_DATASET_CREATE);
    hsize_t shape[] = {3, 2};
    hid_t space = H5Screate_simple(2, shape, NULL);
    H5Pset_chunk(how, 2, shape);
    H5Pset_filter(how, 30123, 0, 0, NULL);
    hid_t set = H5Dcreate2(file, "X", H5T_IEEE_F64LE, space, H5P_DEFAULT, how, H5P_DEFAULT);
    H5Dwrite(set, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, value);
    H5Dclose(set);
    H5Sclose(space);
    H5Pclose(how);
    H5Fclose(file);
    H5Zunregister(30123);
    refused("filter.h5", "",
            "/X: packed by the filter nobody's (number 30123), which HDF5 does not have here");

    static double many[5000];
    file = make("short.h5");
    put(file, "X", H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, (struct layout){2, {1000, 5}, {0}, false}, many);
    H5Fclose(file);
    ck_assert_int_eq(truncate(unit_path("short.h5"), 9000), 0);
    refused("short.h5", "", "HDF5 cannot read it: truncated file");

    unit_write_text("text", "1,2\n");
    open_at("text", "");
    struct tr_head *heads;
    ck_fails(tr_heads_read(&files, TR_FORMAT_HDF5, TR_HEADER_AUTO, &heads), TR_ERR_DATA, "not an HDF5 file");
    ck_fails(try_files("text:/X"), TR_ERR_NO_INPUT, "not an HDF5 file, in which something could be chosen");
}

/* Other files than this one are refused: see tests/cli/test_untrusted.sh. */
UNIT_CASE(virtual_datasets_within_the_file_are_read)
{
    const hsize_t shape[] = {ROWS, COLUMNS};
    make_up();
    hid_t file = make("virtual.h5"), group = add_group(file, "inner");
    put(group, "values", H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE,
        (struct layout){2, {ROWS, COLUMNS}, {0, 0}, false}, cell);
    put_wholes(file, "y", H5T_STD_I8LE, ROWS, class);
    hid_t space = H5Screate_simple(2, shape, NULL), how = H5Pcreate(H5P_DATASET_CREATE);
    ck_assert(H5Pset_virtual(how, space, ".", "/inner/values", space) >= 0);
    hid_t set = H5Dcreate2(file, "X", H5T_IEEE_F64LE, space, H5P_DEFAULT, how, H5P_DEFAULT);
    ck_assert(set >= 0);
    H5Dclose(set);
    H5Pclose(how);
    H5Sclose(space);
    H5Gclose(group);
    H5Fclose(file);
    read_by_all("virtual.h5", ":/X", class);
}

static void put_deep(const char *name, int groups)
{
    hid_t file = make(name), group = file;
    for (int i = 0; i < groups; i++) {
        hid_t inner = add_group(group, "g");
        if (group != file) H5Gclose(group);
        group = inner;
    }
    H5Gclose(group);
    put(file, "X", H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, (struct layout){2, {ROWS, COLUMNS}, {0, 0}, false},
        cell);
    H5Fclose(file);
}

UNIT_CASE(groups_that_are_too_deep_are_refused)
{
    put_deep("deep.h5", 65);
    ck_ok(read_file("deep.h5", ":/X", false));
    put_deep("deeper.h5", 66);
    refused("deeper.h5", ":/X", "more than 64 groups inside one another");
}
