/* Writes the same rows as LIBSVM text (rows.svm) and as programs store them in HDF5, for test_files.sh: MATLAB 7.3 (matlab.mat), AnnData
 * (cells.h5ad), and a table of pandas without content (pandas.h5). */
#include <hdf5.h>
#include <stdio.h>
#include <string.h>

enum { ROWS = 60, COLUMNS = 3 };

static void attribute(hid_t object, const char *name, const char *text)
{
    hid_t type = H5Tcopy(H5T_C_S1), space = H5Screate(H5S_SCALAR);
    H5Tset_size(type, strlen(text));
    hid_t a = H5Acreate2(object, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
    H5Awrite(a, type, text);
    H5Aclose(a);
}

static void put(hid_t group, const char *name, hid_t type, int dimensions, hsize_t n, hsize_t m,
                const void *values, const char *matlab)
{
    const hsize_t shape[2] = {n, m};
    hid_t space = H5Screate_simple(dimensions, shape, NULL),
          set = H5Dcreate2(group, name, type, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    H5Dwrite(set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values);
    if (matlab) attribute(set, "MATLAB_class", matlab);
    H5Dclose(set);
}

static hid_t group_in(hid_t file, const char *name)
{
    return H5Gcreate2(file, name, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
}

int main(void)
{
    double by_column[COLUMNS][ROWS], y[ROWS];
    float data[ROWS * COLUMNS];
    int indices[ROWS * COLUMNS], begin[ROWS + 1] = {0}, n = 0;
    signed char code[ROWS];
    FILE *text = fopen("rows.svm", "w");
    for (int i = 0; i < ROWS; i++) {
        y[i] = code[i] = i * 3 % 11 > i * 4 % 11;
        fprintf(text, "%d", code[i]);
        for (int c = 0; c < COLUMNS; c++) {
            by_column[c][i] = i * (c + 3) % 11;
            fprintf(text, " %d:%g", c + 1, by_column[c][i]);
            if (by_column[c][i] == 0) continue;
            data[n] = (float)by_column[c][i];
            indices[n++] = c;
        }
        fprintf(text, "\n");
        begin[i + 1] = n;
    }
    fclose(text);

    hid_t how = H5Pcreate(H5P_FILE_CREATE), string = H5Tcopy(H5T_C_S1);
    H5Tset_size(string, H5T_VARIABLE);
    H5Pset_userblock(how, 512);
    hid_t file = H5Fcreate("matlab.mat", H5F_ACC_TRUNC, how, H5P_DEFAULT);
    put(file, "X", H5T_NATIVE_DOUBLE, 2, COLUMNS, ROWS, by_column, "double");
    put(file, "y", H5T_NATIVE_DOUBLE, 2, 1, ROWS, y, "double");
    put(file, "across", H5T_NATIVE_DOUBLE, 2, ROWS, 1, y, "double"); /* 1 × ROWS */
    attribute(group_in(file, "S"), "MATLAB_sparse", "60");
    H5Fclose(file);
    text = fopen("matlab.mat", "r+");
    fprintf(text, "MATLAB 7.3 MAT-file, Platform: GLNXA64");
    fclose(text);

    const char *const kinds[] = {"B cell", "T cell"};
    const hsize_t two = 2;
    const unsigned long long shape[2] = {ROWS, COLUMNS};
    file = H5Fcreate("cells.h5ad", H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    hid_t x = group_in(file, "X"), obs = group_in(file, "obs"), kind = group_in(obs, "cell_type"),
          space = H5Screate_simple(1, &two, NULL),
          a = H5Acreate2(x, "shape", H5T_NATIVE_ULLONG, space, H5P_DEFAULT, H5P_DEFAULT);
    H5Awrite(a, H5T_NATIVE_ULLONG, shape);
    attribute(x, "encoding-type", "csr_matrix");
    put(x, "data", H5T_NATIVE_FLOAT, 1, (hsize_t)n, 1, data, NULL);
    put(x, "indices", H5T_NATIVE_INT, 1, (hsize_t)n, 1, indices, NULL);
    put(x, "indptr", H5T_NATIVE_INT, 1, ROWS + 1, 1, begin, NULL);
    put(kind, "codes", H5T_NATIVE_SCHAR, 1, ROWS, 1, code, NULL);
    put(kind, "categories", string, 1, 2, 1, kinds, NULL);
    put(obs, "score", H5T_NATIVE_DOUBLE, 1, ROWS, 1, y, NULL);
    H5Aclose(a);
    H5Fclose(file);

    file = H5Fcreate("pandas.h5", H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    attribute(group_in(file, "df"), "pandas_type", "frame");
    return H5Fclose(file) < 0;
}
