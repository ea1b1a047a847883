/* Columns brought to one size: the same numbers on every layout, and what comes out is what scaling promises. */
#include "mpi_unit.h"

#include "data/dataset.h"
#include "trireme/data.h"

enum { ROWS = 61, COLUMNS = 5 };

/* Far from 0, small, constant, all zeros, and 0 to 255. Rows 0 .. ROWS - 1 are for training, the next ROWS for test. */
static float cell(int r, int c)
{
    switch (c) {
    case 0: return 1000000.0f + (float)(r % 17);
    case 1: return (float)(r * r % 31) / 1024;
    case 2: return 5;
    case 3: return 0;
    default: return (float)(r * 37 % 256);
    }
}

static void write_file(const char *path, int first, bool csv, bool every)
{
    FILE *file = mpi_test.rank == 0 ? fopen(path, "w") : NULL;
    for (int r = first; r < first + ROWS && file; r++) {
        fprintf(file, "%d", r);
        for (int c = 0; c < COLUMNS; c++)
            if (csv) fprintf(file, ",%.9g", (double)cell(r, c));
            else if (every || (r + c) % 4 == 0) fprintf(file, " %d:%.9g", c + 1, (double)cell(r, c));
        putc('\n', file);
    }
    if (file) fclose(file);
    MPI_Barrier(MPI_COMM_WORLD);
}

/* What becomes of cell (r, c), to 0.1 %: in double, from the definition. */
static double wanted(const char *how, bool centred, int r, int c)
{
    double mean = 0, apart = 0, squares = 0, n = 0, least = INFINITY, most = -INFINITY;
    for (int i = 0; i < ROWS; i++) mean += (double)cell(i, c) / ROWS;
    for (int i = 0; i < ROWS; i++) {
        double x = (double)cell(i, c);
        apart += (x - mean) * (x - mean) / ROWS;
        squares += x * x;
        n += x != 0;
        least = fmin(least, x);
        most = fmax(most, x);
    }
    double x = (double)cell(r, c), size = fmax(fabs(least), fabs(most));
    if (!strcmp(how, "maxabs") || (!strcmp(how, "minmax") && !centred)) return size > 0 ? x / size : x;
    if (!strcmp(how, "minmax")) return most > least ? (x - least) / (most - least) : 0;
    if (centred) return most > least ? (x - mean) / sqrt(apart) : 0;
    return n > 0 ? x / sqrt(squares / n) : x;
}

/* Rows tell by their labels which they are. */
static void check_rows(const tr_batch *b, const char *how, bool centred, float seen[2 * ROWS][COLUMNS])
{
    for (size_t i = 0; i < b->n && b->dense; i++) {
        int r = (int)b->label[i];
        for (int c = 0; c < COLUMNS; c++) {
            float x = b->dense[i * COLUMNS + (size_t)c];
            double w = wanted(how, centred, r, c);
            mpi_check(fabs((double)x - w) <= 2e-3 * fmax(1, fabs(w)), "%s: row %d column %d is %g, not %g",
                      how, r, c, (double)x, w);
            seen[r][c] = x;
        }
    }
}

static void check_layout(const char *layout, const char *how, int form, bool csv, const char *path,
                         float seen[2 * ROWS][COLUMNS])
{
    const char *all =
        mpi_text("%s data.scale=%s data.train=%s-train data.test=%s-test data.format=%s data.label=first",
                 layout, how, path, path, csv ? "csv" : "libsvm");
    tr_context *tr = mpi_context(all);
    tr_data *data = NULL, *test = NULL;
    tr_batch *first = NULL;
    bool centred = !(form & TR_DATA_UNCENTRED) && strcmp(how, "maxabs") != 0;
    mpi_ok(tr_data_open(tr, (enum tr_data_part)(TR_DATA_TRAIN | form), NULL, &data));
    mpi_ok(tr_data_open(tr, (enum tr_data_part)(TR_DATA_TEST | form), data, &test));
    if (!data || !test) return;
    mpi_check(data->scaling && data->scaling->centred == centred, "%s: not scaled so", how);
    if (data->rows.n > 0) mpi_check(data->rows.dense != NULL, "rows are not dense");
    check_rows(&data->rows, how, centred, seen);
    check_rows(&test->rows, how, centred, seen);
    mpi_ok(tr_data_first_rows(data, 3, false, &first));
    mpi_check(first && first->n == 3 && (int)first->label[2] == 2, "not the first rows");
    if (first) check_rows(first, how, centred, seen);
    tr_batch_free(&first);
    tr_data_close(&test);
    tr_data_close(&data);
    mpi_ok(tr_close(tr));
}

/* Each way, on all layouts; twice the same layouts would have the same bits, and so have others. */
static void check_way(const char *how, int form, bool csv)
{
    char path[64], file[96];
    float seen[2][2 * ROWS][COLUMNS];
    snprintf(path, sizeof path, "/tmp/trireme-test-scale-%d", (int)getpid());
    MPI_Bcast(path, sizeof path, MPI_CHAR, 0, MPI_COMM_WORLD);
    for (int part = 0; part < 2; part++) {
        snprintf(file, sizeof file, "%s-%s", path, part ? "test" : "train");
        write_file(file, part * ROWS, csv, true);
    }
    for (int i = 0; mpi_layout(i); i++) {
        memset(seen[1], 0, sizeof seen[1]);
        check_layout(mpi_layout(i), how, form, csv, path, seen[1]);
        MPI_Allreduce(MPI_IN_PLACE, seen[1], 2 * ROWS * COLUMNS, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        /* the first three rows are at all ranks, and summed up */
        if (i > 0)
            mpi_check(memcmp(&seen[0][3], &seen[1][3], (2 * ROWS - 3) * sizeof seen[0][0]) == 0,
                      "%s: another layout has other numbers", how);
        memcpy(seen[0], seen[1], sizeof seen[0]);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    for (int part = 0; part < 2 && mpi_test.rank == 0; part++) {
        snprintf(file, sizeof file, "%s-%s", path, part ? "test" : "train");
        unlink(file);
    }
}

MPI_CASE(dense_columns_are_centred_and_divided)
{
    check_way("standard", 0, true);
    check_way("minmax", 0, true);
    check_way("maxabs", 0, true);
}

MPI_CASE(without_a_bias_columns_are_only_divided)
{
    check_way("standard", TR_DATA_UNCENTRED, true);
    check_way("minmax", TR_DATA_UNCENTRED, true);
}

/* Row 3 of all zeros is left out in the file, which is dense all the same. */
MPI_CALLS(libsvm_with_all_cells_is_dense, check_way("standard", TR_DATA_DENSE, false));

/* Opens one file that has these lines, and says whether it was scaled. */
static tr_data *open_lines(const char *lines, const char *settings, tr_context **tr)
{
    char path[64];
    tr_data *data = NULL;
    snprintf(path, sizeof path, "/tmp/trireme-test-scale-%d", (int)getpid());
    MPI_Bcast(path, sizeof path, MPI_CHAR, 0, MPI_COMM_WORLD);
    FILE *file = mpi_test.rank == 0 ? fopen(path, "w") : NULL;
    if (file) {
        for (int i = 0; i < 40; i++) fputs(lines, file);
        fclose(file);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    *tr = mpi_context(mpi_text("%s data.train=%s", settings, path));
    mpi_ok(tr_data_open(*tr, TR_DATA_TRAIN | TR_DATA_SCALED, NULL, &data));
    MPI_Barrier(MPI_COMM_WORLD);
    if (mpi_test.rank == 0) unlink(path);
    return data;
}

static const char sparse_lines[] = "1 7:1 1000:2000\n-1 3:1 1000:1000\n1 8:1\n-1 9:1 900:0.5 901:0.5\n";

MPI_CASE(sparse_columns_are_divided_by_their_size)
{
    tr_context *tr;
    tr_data *data = open_lines(sparse_lines, "data.scale=auto", &tr);
    if (!data) return;
    double size = sqrt((2000.0 * 2000 + 1000.0 * 1000) / 2);
    mpi_check(data->scaling && !data->scaling->centred, "not scaled");
    for (size_t k = 0; data->rows.n > 0 && k < data->rows.begin[data->rows.n]; k++) {
        tr_key key = data->keys[data->rows.column[k]];
        double x = (double)data->rows.value[k];
        bool right = key == 999 ? fabs(x - 1000 / size) < 1e-3 || fabs(x - 2000 / size) < 1e-3 : x == 1;
        mpi_check(right, "key %lu has %g", key, x);
    }
    double sum = 0;
    for (size_t j = 0; data->scaling && j < data->scaling->n; j++) sum += data->scaling->factor[j];
    MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    mpi_check(fabs(sum - (997 + 2 * 2 + 1 / size)) < 1e-3, "factors sum to %g", sum);
    tr_data_close(&data);
    mpi_ok(tr_close(tr));
}

/* Grey values, as of images, are alike, but far from the bias, which is 1. */
MPI_CASE(columns_that_are_all_large_are_scaled)
{
    tr_context *tr;
    tr_data *data = open_lines("1 1:200 5:250\n-1 2:210 9:50\n", "data.scale=auto", &tr);
    if (!data) return;
    mpi_check(data->scaling != NULL, "not scaled");
    tr_data_close(&data);
    mpi_ok(tr_close(tr));
}

/* Ones, values that are alike, rows of length 1: auto leaves them; and all where the job says so. */
MPI_CASE(columns_of_one_size_are_left)
{
    const char *lines[] = {"1 1:1 5:1\n-1 2:1 9:1\n", "1 1:0.5 5:1\n-1 2:2 9:1.5\n",
                           "1 1:0.6 5:0.8\n-1 2:0.01 9:0.99995\n", sparse_lines};
    for (int i = 0; i < 4; i++) {
        tr_context *tr;
        tr_data *data = open_lines(lines[i], i < 3 ? "data.scale=auto" : "data.scale=none", &tr);
        if (!data) return;
        mpi_check(!data->scaling, "lines %d are scaled", i);
        tr_data_close(&data);
        mpi_ok(tr_close(tr));
    }
}
