/* Fuzzing the reader of HDF5 tables: the files are valid for HDF5 or truncated; types, shapes, storage and numbers of their
 * arrays follow from the bytes of an input. The reader must print one line that names the error, or have rows
 * whose columns and numbers are in bounds, the same for one reader and for several.
 *
 * An input's first byte chooses dense rows or lists of non-zeros.
 */
#define _GNU_SOURCE
#include <hdf5.h>
#include <math.h>

#include "data/reader.h"
#include "fuzz_files.h"

/* ---- files ---- */

/* A number, most often a small one. */
static double number(struct bytes *in)
{
    static const double odd[] = {-1, 0.5, 65536, 2147483648.0, 4294967295.0, 9.2e18, 1e300, NAN, INFINITY};
    unsigned byte = next_byte(in);
    return byte < 240 ? byte % 16 : odd[byte % (sizeof odd / sizeof *odd)];
}

/* What has no whole number, as 1e300 and NaN, is the least. */
static int64_t whole_number(struct bytes *in)
{
    double value = number(in);
    return value >= -0x1p63 && value < 0x1p63 ? (int64_t)value : INT64_MIN;
}

static hid_t make_type(unsigned byte)
{
    const hid_t plain[] = {H5T_IEEE_F32LE, H5T_IEEE_F64BE, H5T_STD_I8LE,  H5T_STD_U8LE,  H5T_STD_I16BE,
                           H5T_STD_I32LE,  H5T_STD_U32LE,  H5T_STD_I64LE, H5T_STD_U64BE, H5T_STD_U16LE};
    enum { PLAIN = sizeof plain / sizeof *plain };
    if (byte < 230) return H5Tcopy(plain[byte % PLAIN]);
    hid_t type = H5Tcreate(byte % 2 ? H5T_COMPOUND : H5T_OPAQUE, 8);
    if (byte % 2) H5Tinsert(type, "field", 0, H5T_STD_I32LE);
    if (byte % 3) return type;
    H5Tclose(type);
    type = H5Tcopy(H5T_C_S1);
    if (byte % 2) H5Tset_size(type, H5T_VARIABLE);
    return type;
}

/* In one piece, or in chunks, packed or not. */
static hid_t make_layout(struct bytes *in, int dimensions, hsize_t rows, hsize_t columns)
{
    hid_t how = H5Pcreate(H5P_DATASET_CREATE);
    unsigned byte = next_byte(in);
    if (byte % 4 == 0 || rows == 0 || columns == 0) return how;
    H5Pset_chunk(how, dimensions, (hsize_t[]){1 + byte % rows, 1 + byte % columns, 1});
    if (byte % 4 == 2) H5Pset_deflate(how, 1);
    return how;
}

static void put(struct bytes *in, hid_t where, const char *name, int dimensions, hsize_t rows,
                hsize_t columns)
{
    double values[32 * 8 * 2] = {0};
    hid_t type = make_type(next_byte(in)), how = make_layout(in, dimensions, rows, columns);
    hid_t space = H5Screate_simple(dimensions, (hsize_t[]){rows, columns, 2}, NULL);
    hid_t set = H5Dcreate2(where, name, type, space, H5P_DEFAULT, how, H5P_DEFAULT);
    DEMAND(set >= 0);
    for (size_t i = 0; i < rows * (dimensions > 1 ? columns : 1); i++) values[i] = number(in);
    H5T_class_t class = H5Tget_class(type);
    if (class == H5T_INTEGER || class == H5T_FLOAT)
        DEMAND(H5Dwrite(set, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0);
    H5Dclose(set);
    H5Sclose(space);
    H5Pclose(how);
    H5Tclose(type);
}

/* An ascending list most often. */
static void put_indptr(struct bytes *in, hid_t where, hsize_t n, hsize_t nonzeros)
{
    int64_t at[33] = {0};
    for (hsize_t i = 1; i < n; i++) at[i] = at[i - 1] + next_byte(in) % 3;
    unsigned byte = next_byte(in);
    if (n > 0 && byte >= 200) at[byte % n] = whole_number(in);
    else if (n > 0) at[n - 1] = (int64_t)nonzeros;
    hid_t space = H5Screate_simple(1, &n, NULL);
    hid_t set = H5Dcreate2(where, "indptr", H5T_STD_I64LE, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    DEMAND(set >= 0 && H5Dwrite(set, H5T_NATIVE_INT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, at) >= 0);
    H5Dclose(set);
    H5Sclose(space);
}

static void put_shape(struct bytes *in, hid_t where, hsize_t rows)
{
    unsigned byte = next_byte(in);
    hsize_t n = byte % 16 == 15 ? 3 : 2;
    int64_t shape[3] = {byte < 220 ? (int64_t)rows : whole_number(in), whole_number(in), 1};
    if (byte % 8 == 7) return;
    hid_t space = H5Screate_simple(1, &n, NULL);
    hid_t a = H5Acreate2(where, byte % 2 ? "shape" : "h5sparse_shape", H5T_STD_I64LE, space, H5P_DEFAULT,
                         H5P_DEFAULT);
    DEMAND(a >= 0 && H5Awrite(a, H5T_NATIVE_INT64, shape) >= 0);
    H5Aclose(a);
    H5Sclose(space);
}

static void make_file(struct bytes *in, const char *path)
{
    unsigned kind = next_byte(in);
    hsize_t rows = next_byte(in) % 32, columns = next_byte(in) % 8, nonzeros = next_byte(in) % 32;
    hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    DEMAND(file >= 0);
    if (kind % 2) {
        hid_t group = H5Gcreate2(file, "X", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
        put(in, group, "data", 1, nonzeros, 1);
        put(in, group, "indices", 1, kind / 4 % 16 ? nonzeros : columns, 1);
        put_indptr(in, group, rows + 1, nonzeros);
        put_shape(in, group, rows);
        H5Gclose(group);
    } else {
        put(in, file, "X", kind >= 250 ? 3 : kind >= 230 ? 1 : 2, rows, columns);
    }
    if (kind / 2 % 2) put(in, file, "y", 1, kind >= 240 ? columns : rows, 1);
    H5Fclose(file);
}

/* ---- reading ---- */

static void check_rows(const struct tr_matrix *m, const struct tr_head *head)
{
    for (size_t i = 0; i < m->rows && m->label; i++) DEMAND(isfinite(m->label[i]));
    for (size_t i = 0; i < m->rows && m->begin; i++) DEMAND(m->begin[i] <= m->begin[i + 1]);
    size_t n = tr_matrix_nonzeros(m);
    for (size_t k = 0; k < n; k++) {
        DEMAND(!m->column || m->column[k] < head->fields);
        DEMAND(!m->value || isfinite(m->value[k]));
    }
}

/* Rows, and all their numbers summed up, of all readers together. */
static int read_by(const struct tr_files *files, const struct tr_head *head, size_t readers, uint8_t choice,
                   double sum[2])
{
    for (size_t k = 0; k < readers; k++) {
        struct tr_reader_options options = {
            .format = TR_FORMAT_HDF5, .heads = head, .skip_errors = choice & 1, .deal = choice % 5};
        struct tr_matrix m;
        struct tr_read_report report;
        TR_TRY(tr_read_matrix(files, k, readers, &options, &m, &report));
        check_rows(&m, head);
        sum[0] += (double)m.rows;
        for (size_t i = 0, n = m.value || m.begin ? tr_matrix_nonzeros(&m) : 0; i < n; i++)
            sum[1] += m.value ? fmod((double)m.value[i], 1024) : 1; /* without values all are 1 */
        tr_matrix_free(&m);
        tr_ids_free(&report.labels.bits);
    }
    return TR_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    if (n < 4) return 0;
    char path[] = "/tmp/fuzz-hdf5-XXXXXX"; /* HDF5 wants a name that leads to the file */
    struct tr_files files;
    struct tr_head *head = NULL;
    enum tr_format format = TR_FORMAT_AUTO;
    struct bytes in = {data + 1, n - 1};
    double one[2] = {0}, many[2] = {0};
    int fd = mkstemp(path);
    DEMAND(fd >= 0);
    make_file(&in, path);
    if (data[0] >= 250) DEMAND(ftruncate(fd, lseek(fd, 0, SEEK_END) - 1 - data[n - 1]) == 0);
    DEMAND(tr_files_open((char *[]){path}, 1, &files) == TR_OK);
    int status = tr_format_detect(&files, &format);
    if (status == TR_OK) DEMAND(format == TR_FORMAT_HDF5);
    if (status == TR_OK) status = tr_heads_read(&files, TR_FORMAT_HDF5, TR_HEADER_AUTO, &head);
    if (status == TR_OK) status = read_by(&files, head, 1, data[0], one);
    if (status != TR_OK) {
        expect_error(status, TR_ERR_NO_INPUT);
    } else {
        DEMAND(read_by(&files, head, 2 + data[0] % 3, data[0], many) == TR_OK);
        DEMAND(one[0] == many[0] && fabs(one[1] - many[1]) < 1e-6);
    }
    free(head);
    tr_files_close(&files);
    close(fd);
    unlink(path);
    return 0;
}
