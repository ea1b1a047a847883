/* Data: a file written here is read by all workers; together they must hold just what is in it. */
#include "mpi_unit.h"

#include "data/dataset.h"

enum { ROWS = 203, COLUMNS = 97, OWN = 8 };

/* What stands in row r: OWN features (fewer in every seventh row), the first of which tells the row. */
static int row_features(int r, uint32_t *column)
{
    int n = 0, most = r % 7 == 3 ? 0 : OWN;
    for (uint32_t c = 0; c < COLUMNS && n < most; c++)
        if (tr_mix((uint64_t)r * 1000 + c) % 10 == 0) column[n++] = c;
    return n;
}

static float row_value(int r, uint32_t column, bool binary)
{
    return binary ? 1 : (float)(r * 100 + (int)column);
}

static float row_label(int r, int kinds)
{
    return kinds == 3 ? (float)(r % 3) : kinds == 1 ? (float)(r % 2) : r % 2 ? 1.0f : -1.0f;
}

struct text_file {
    char path[64];
    uint64_t nonzeros;
    uint32_t highest;
};

/* kinds: 2 is ±1, 1 is 0/1, 3 is three. All ranks learn the path; rank 0 writes. */
static struct text_file write_rows(uint32_t base, bool binary, int kinds, uint32_t shift)
{
    struct text_file f = {.path = ""};
    FILE *file = NULL;
    if (mpi_test.rank == 0) {
        snprintf(f.path, sizeof f.path, "/tmp/trireme-test-data-%d", (int)getpid());
        file = fopen(f.path, "w");
    }
    for (int r = 0; r < ROWS; r++) {
        uint32_t column[OWN];
        int n = row_features(r, column);
        if (file) fprintf(file, "%g", (double)row_label(r, kinds));
        for (int i = 0; i < n; i++) {
            if (file)
                fprintf(file, " %u:%g", column[i] + base + shift, (double)row_value(r, column[i], binary));
            if (column[i] > f.highest) f.highest = column[i];
        }
        if (file) fputc('\n', file);
        f.nonzeros += (uint64_t)n;
    }
    if (file) fclose(file);
    MPI_Bcast(f.path, sizeof f.path, MPI_CHAR, 0, MPI_COMM_WORLD);
    return f;
}

/* Opens the data and counts every (row, column) that this rank holds in seen, by value. */
static void count_values(const tr_data *data, uint32_t *seen)
{
    const tr_batch *b = &data->rows;
    for (size_t i = 0; i + 1 < data->n_keys; i++)
        mpi_check(data->keys[i] < data->keys[i + 1], "keys do not ascend");
    for (size_t i = 0; i < b->n; i++)
        for (uint64_t k = b->begin[i]; k < b->begin[i + 1]; k++) {
            mpi_check(b->column[k] < data->n_keys, "column %u of %zu keys", b->column[k], data->n_keys);
            mpi_check(k == b->begin[i] || b->column[k - 1] < b->column[k], "columns of row %zu do not ascend",
                      i);
            int number = (int)b->value[k], row = number / 100;
            uint32_t column = (uint32_t)(number % 100);
            mpi_check(data->keys[b->column[k]] == column, "key %llu in the place of %u",
                      (unsigned long long)data->keys[b->column[k]], column);
            mpi_check(b->label[i] == row_label(row, 2), "row %d has label %g", row, (double)b->label[i]);
            if (row >= 0 && row < ROWS) seen[row * COLUMNS + (int)column]++;
        }
}

static void read_back(const char *settings, bool vertical)
{
    struct text_file f = write_rows(1, false, 2, 0);
    char all[MPI_NOTE];
    snprintf(all, sizeof all, "%s data.train=%s data.partition=%s", settings, f.path,
             vertical ? "vertical" : "horizontal");
    tr_context *tr = mpi_context(all);
    tr_data *data = NULL;
    int status = tr_data_open(tr, TR_DATA_TRAIN, NULL, &data);
    mpi_ok(status);
    if (status != TR_OK) return;
    mpi_check(data->total_rows == ROWS && data->total_nonzeros == f.nonzeros, "%llu rows, %llu non-zeros",
              (unsigned long long)data->total_rows, (unsigned long long)data->total_nonzeros);
    mpi_check(data->columns == f.highest + 1 && data->first_index == 1, "%llu columns from %u",
              (unsigned long long)data->columns, data->first_index);
    static uint32_t seen[ROWS * COLUMNS];
    memset(seen, 0, sizeof seen);
    uint64_t rows = 0;
    if (tr_is(tr, TR_SLAVE)) {
        count_values(data, seen);
        rows = data->rows.n;
        if (tr->layout.group_size > 1) {
            uint64_t n = data->n_keys, least, most, first = vertical || tr->me.member == 0 ? rows : 0;
            for (size_t i = 0; vertical && i < data->n_keys; i++)
                mpi_check(tr_column_member((uint32_t)data->keys[i], tr->layout.group_size) == tr->me.member,
                          "key %llu belongs to another member", (unsigned long long)data->keys[i]);
            MPI_Allreduce(&n, &least, 1, MPI_UINT64_T, MPI_MIN, tr->group);
            MPI_Allreduce(&n, &most, 1, MPI_UINT64_T, MPI_MAX, tr->group);
            if (!vertical)
                mpi_check(least == most, "members number %llu and %llu keys", (unsigned long long)least,
                          (unsigned long long)most);
            MPI_Bcast(&first, 1, MPI_UINT64_T, 0, tr->group);
            if (vertical)
                mpi_check(first == rows, "members hold %llu and %llu rows", (unsigned long long)first,
                          (unsigned long long)rows);
        }
        if (vertical && tr->me.member > 0) rows = 0; /* counted at member 0 */
    }
    MPI_Allreduce(MPI_IN_PLACE, seen, ROWS * COLUMNS, MPI_UINT32_T, MPI_SUM, tr->world);
    MPI_Allreduce(MPI_IN_PLACE, &rows, 1, MPI_UINT64_T, MPI_SUM, tr->world);
    mpi_check(rows == ROWS, "workers hold %llu rows", (unsigned long long)rows);
    for (int r = 0; r < ROWS; r++) {
        uint32_t column[OWN];
        int n = row_features(r, column);
        for (int i = 0; i < n; i++) {
            uint32_t *count = &seen[r * COLUMNS + (int)column[i]];
            mpi_check(*count == 1, "row %d column %u is held %u times", r, column[i], *count);
            *count = 0;
        }
    }
    for (int i = 0; i < ROWS * COLUMNS; i++)
        mpi_check(seen[i] == 0, "row %d column %d was not in the file", i / COLUMNS, i % COLUMNS);
    tr_data_close(&data);
    mpi_ok(tr_close(tr));
    if (mpi_test.rank == 0) unlink(f.path);
}

MPI_CASE(all_rows_are_read_once)
{
    const char *layout;
    for (int i = 0; (layout = mpi_layout(i)); i++) {
        read_back(layout, false);
        read_back(layout, true);
    }
}

MPI_CASE(labels_and_index_base_are_found)
{
    static const struct {
        uint32_t base;
        bool binary;
        int kinds;
        size_t labels;
        float label[3];
    } all[] = {{1, true, 2, 2, {-1, 1}},
               {0, true, 1, 2, {0, 1}},
               {0, false, 3, 3, {0, 1, 2}},
               {1, false, 1, 2, {0, 1}}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        struct text_file f = write_rows(all[i].base, all[i].binary, all[i].kinds, 0);
        char settings[MPI_NOTE];
        snprintf(settings, sizeof settings, "data.train=%s", f.path);
        tr_context *tr = mpi_context(settings);
        tr_data *data = NULL;
        mpi_ok(tr_data_open(tr, TR_DATA_TRAIN, NULL, &data));
        if (!data) return;
        mpi_check(data->first_index == all[i].base, "the first index is %u", data->first_index);
        mpi_check(!data->rows.value == all[i].binary, "values are%s stored", data->rows.value ? "" : " not");
        mpi_check(data->labels == all[i].labels, "%zu labels", data->labels);
        for (size_t k = 0; k < data->labels && k < all[i].labels; k++)
            mpi_check(data->label[k] == all[i].label[k], "label %zu is %g", k, (double)data->label[k]);
        bool third = strstr(tr_data_third_label(data), "third kind") != NULL;
        mpi_check(third == (all[i].kinds == 3) || mpi_test.rank != 0, "third label: %s",
                  tr_data_third_label(data));
        tr_data_close(&data);
        mpi_ok(tr_close(tr));
        if (mpi_test.rank == 0) unlink(f.path);
    }
}

/* Test data with columns that training has not: they are dropped, the others keep their numbers. */
MPI_CASE(unknown_columns_are_dropped)
{
    struct text_file train = write_rows(1, false, 2, 0);
    char kept[80];
    snprintf(kept, sizeof kept, "%s-train", train.path);
    if (mpi_test.rank == 0) mpi_check(rename(train.path, kept) == 0, "rename");
    enum { SHIFT = 40 };
    struct text_file test = write_rows(1, false, 2, SHIFT);
    char settings[MPI_NOTE];
    snprintf(settings, sizeof settings, "data.train=%s data.test=%s", kept, test.path);
    tr_context *tr = mpi_context(settings);
    tr_data *data = NULL, *more = NULL;
    mpi_ok(tr_data_open(tr, TR_DATA_TRAIN, NULL, &data));
    mpi_ok(tr_data_open(tr, TR_DATA_TEST, data, &more));
    if (!data || !more) return;
    mpi_check(more->columns == data->columns, "%llu columns", (unsigned long long)more->columns);
    uint64_t wanted = 0, found = more->rows.n ? more->rows.begin[more->rows.n] : 0;
    for (int r = 0; r < ROWS; r++) {
        uint32_t column[OWN];
        for (int n = row_features(r, column); n-- > 0;) wanted += column[n] + SHIFT < data->columns;
    }
    for (size_t i = 0; i < more->rows.n; i++)
        for (uint64_t k = more->rows.begin[i]; k < more->rows.begin[i + 1]; k++)
            mpi_check(more->keys[more->rows.column[k]] == (tr_key)((int)more->rows.value[k] % 100 + SHIFT),
                      "wrong key");
    MPI_Allreduce(MPI_IN_PLACE, &found, 1, MPI_UINT64_T, MPI_SUM, tr->world);
    mpi_check(found == wanted, "%llu non-zeros, not %llu", (unsigned long long)found,
              (unsigned long long)wanted);
    tr_data_close(&data);
    tr_data_close(&more);
    mpi_ok(tr_close(tr));
    if (mpi_test.rank == 0) unlink(kept), unlink(test.path);
}

/* The label of row r is 0 in the first half of the rows and 1 in the second. */
enum { SORTED_ROWS = 20000 };

static struct text_file write_sorted(void)
{
    struct text_file f = {.path = "", .nonzeros = 3 * SORTED_ROWS, .highest = SORTED_ROWS + 1};
    if (mpi_test.rank == 0) {
        snprintf(f.path, sizeof f.path, "/tmp/trireme-test-data-%d", (int)getpid());
        FILE *file = fopen(f.path, "w");
        for (int r = 0; file && r < SORTED_ROWS; r++)
            fprintf(file, "%d 1:0.25 2:%06d %d:1e-3\n", 2 * r / SORTED_ROWS, r, r + 3);
        if (file) fclose(file);
    }
    MPI_Bcast(f.path, sizeof f.path, MPI_CHAR, 0, MPI_COMM_WORLD);
    return f;
}

/* Of all workers: what part of its rows has label 1, at least and at most. */
static void shares_of_label_1(const char *settings, const char *order, double *least, double *most)
{
    struct text_file f = write_sorted();
    char all[MPI_NOTE];
    snprintf(all, sizeof all, "%s data.train=%s data.order=%s", settings, f.path, order);
    tr_context *tr = mpi_context(all);
    tr_data *data = NULL;
    mpi_ok(tr_data_open(tr, TR_DATA_TRAIN, NULL, &data));
    if (!data) return;
    mpi_check(data->total_rows == SORTED_ROWS && data->total_nonzeros == f.nonzeros,
              "%llu rows, %llu non-zeros", (unsigned long long)data->total_rows,
              (unsigned long long)data->total_nonzeros);
    double share[2] = {0, -1}; /* MPI_MAX: of label 1, and minus that */
    size_t ones = 0, n = data->rows.n;
    for (size_t i = 0; i < n; i++) ones += data->rows.label[i] == 1;
    if (tr_is(tr, TR_SLAVE) && n > 0) {
        share[0] = (double)ones / (double)n;
        share[1] = -share[0];
    }
    MPI_Allreduce(MPI_IN_PLACE, share, 2, MPI_DOUBLE, MPI_MAX, tr->world);
    *most = share[0];
    *least = -share[1];
    tr_data_close(&data);
    mpi_ok(tr_close(tr));
    if (mpi_test.rank == 0) unlink(f.path);
}

MPI_CASE(sorted_files_are_dealt)
{
    static const char *const partition[] = {"horizontal", "vertical"};
    const char *layout;
    char settings[MPI_NOTE / 2];
    double least = 0, most = 0;
    for (int i = 0; (layout = mpi_layout(i)); i++)
        for (int k = 0; k < 2; k++) {
            snprintf(settings, sizeof settings, "%s data.partition=%s", layout, partition[k]);
            shares_of_label_1(settings, "dealt", &least, &most);
            mpi_check(least > 0.45 && most < 0.55, "%g to %g of the rows have label 1", least, most);
        }
    if (mpi_test.size < 2) return;
    shares_of_label_1("ranks.layout=colocated", "file", &least, &most);
    mpi_check(least < 0.1 && most == 1, "in the order of the file %g to %g have label 1", least, most);
}

/* Every worker must find its rows where it found them before. */
MPI_CASE(the_same_layout_gives_the_same_rows)
{
    struct text_file f = write_sorted();
    char settings[MPI_NOTE];
    uint64_t sum[2] = {0};
    snprintf(settings, sizeof settings, "data.train=%s", f.path);
    for (int k = 0; k < 2; k++) {
        tr_context *tr = mpi_context(settings);
        tr_data *data = NULL;
        mpi_ok(tr_data_open(tr, TR_DATA_TRAIN, NULL, &data));
        if (!data) return;
        for (size_t i = 0; i < data->rows.n; i++) { /* the last column tells the row */
            uint64_t key = data->keys[data->rows.column[data->rows.begin[i + 1] - 1]];
            sum[k] = tr_mix(sum[k] + key);
        }
        tr_data_close(&data);
        mpi_ok(tr_close(tr));
    }
    mpi_check(sum[0] == sum[1], "other rows, or in another order");
    if (mpi_test.rank == 0) unlink(f.path);
}

MPI_MAIN(&all_rows_are_read_once, &labels_and_index_base_are_found, &unknown_columns_are_dropped,
         &sorted_files_are_dealt, &the_same_layout_gives_the_same_rows)
