/* Data: all workers read a file that is written here; together they must have exactly its rows. */
#include "mpi_unit.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <zlib.h>

#include "data/dataset.h"

enum { ROWS = 203, COLUMNS = 97, OWN = 8 };

/* Row r has OWN features (fewer in every seventh row); the first of them identifies the row. */
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
    const char *path;
    uint64_t nonzeros;
    uint32_t highest;
};

/* Rank 0 writes into a file that all ranks read; NULL on others. */
static FILE *open_text(struct text_file *f)
{
    f->path = mpi_path("data");
    return mpi_test.rank == 0 ? fopen(f->path, "w") : NULL;
}

static void close_text(FILE *file)
{
    if (file) fclose(file);
    MPI_Barrier(MPI_COMM_WORLD);
}

/* kinds: 2 is ±1, 1 is 0/1, 3 is three. */
static struct text_file write_rows(uint32_t base, bool binary, int kinds, uint32_t shift)
{
    struct text_file f = {.path = NULL};
    FILE *file = open_text(&f);
    for (int r = 0; r < ROWS; r++) {
        uint32_t column[OWN];
        int n = row_features(r, column);
        if (file) fprintf(file, "%g", (double)row_label(r, kinds));
        for (int i = 0; i < n; i++) {
            float value = row_value(r, column[i], binary);
            if (file) fprintf(file, " %u:%g", column[i] + base + shift, (double)value);
            if (column[i] > f.highest) f.highest = column[i];
        }
        if (file) fputc('\n', file);
        f.nonzeros += (uint64_t)n;
    }
    close_text(file);
    return f;
}

/* Opens data of the settings; NULL (noted) if that fails. */
static tr_data *open_data(tr_context *tr, enum tr_data_part part, const tr_data *like)
{
    tr_data *data = NULL;
    mpi_ok(tr_data_open(tr, part, like, &data));
    return data;
}

static void close_data(tr_context *tr, tr_data **data)
{
    tr_data_close(data);
    mpi_ok(tr_close(tr));
}

static void sum_over_ranks(void *numbers, int n)
{
    MPI_Allreduce(MPI_IN_PLACE, numbers, n, MPI_UINT32_T, MPI_SUM, MPI_COMM_WORLD);
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
            mpi_equal(data->keys[b->column[k]], column);
            mpi_check(b->label[i] == row_label(row, 2), "row %d has label %g", row, (double)b->label[i]);
            if (row >= 0 && row < ROWS) seen[row * COLUMNS + (int)column]++;
        }
}

static void read_back(const char *settings, bool vertical)
{
    struct text_file f = write_rows(1, false, 2, 0);
    tr_context *tr = mpi_context(mpi_text("%s data.train=%s data.partition=%s", settings, f.path,
                                          vertical ? "vertical" : "horizontal"));
    tr_data *data = NULL;
    int status = tr_data_open(tr, TR_DATA_TRAIN, NULL, &data);
    mpi_ok(status);
    if (status != TR_OK) return;
    mpi_check(data->total_rows == ROWS && data->total_nonzeros == f.nonzeros, "%lu rows, %lu non-zeros",
              data->total_rows, data->total_nonzeros);
    mpi_check(data->columns == f.highest + 1 && data->first_index == 1, "%lu columns from %u", data->columns,
              data->first_index);
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
                          "key %lu belongs to another member", data->keys[i]);
            MPI_Allreduce(&n, &least, 1, MPI_UINT64_T, MPI_MIN, tr->group);
            MPI_Allreduce(&n, &most, 1, MPI_UINT64_T, MPI_MAX, tr->group);
            if (!vertical) mpi_equal(least, most);
            MPI_Bcast(&first, 1, MPI_UINT64_T, 0, tr->group);
            if (vertical) mpi_equal(first, rows);
        }
        if (vertical && tr->me.member > 0) rows = 0; /* counted at member 0 */
    }
    MPI_Allreduce(MPI_IN_PLACE, seen, ROWS * COLUMNS, MPI_UINT32_T, MPI_SUM, tr->world);
    MPI_Allreduce(MPI_IN_PLACE, &rows, 1, MPI_UINT64_T, MPI_SUM, tr->world);
    mpi_equal(rows, ROWS);
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
    close_data(tr, &data);
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
    for (size_t i = 0; i < COUNT(all); i++) {
        struct text_file f = write_rows(all[i].base, all[i].binary, all[i].kinds, 0);
        tr_context *tr = mpi_context(mpi_text("data.train=%s", f.path));
        tr_data *data = open_data(tr, TR_DATA_TRAIN, NULL);
        if (!data) return;
        mpi_equal(data->first_index, all[i].base);
        mpi_check(!data->rows.value == all[i].binary, "values are%s stored", data->rows.value ? "" : " not");
        mpi_equal(data->labels, all[i].labels);
        for (size_t k = 0; k < data->labels && k < all[i].labels; k++)
            mpi_check(data->label[k] == all[i].label[k], "label %zu is %g", k, (double)data->label[k]);
        bool third = strstr(tr_data_third_label(data), "third kind") != NULL;
        mpi_check(third == (all[i].kinds == 3) || mpi_test.rank != 0, "third label: %s",
                  tr_data_third_label(data));
        close_data(tr, &data);
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
    tr_context *tr = mpi_context(mpi_text("data.train=%s data.test=%s", kept, test.path));
    tr_data *data = NULL, *more = NULL;
    mpi_ok(tr_data_open(tr, TR_DATA_TRAIN, NULL, &data));
    mpi_ok(tr_data_open(tr, TR_DATA_TEST, data, &more));
    if (!data || !more) return;
    mpi_equal(more->columns, data->columns);
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
    mpi_equal(found, wanted);
    tr_data_close(&data);
    tr_data_close(&more);
    mpi_ok(tr_close(tr));
}

/* The label of row r is 0 in the first half of the rows and 1 in the second. */
enum { SORTED_ROWS = 20000 };

static struct text_file write_sorted(void)
{
    struct text_file f = {.nonzeros = 3 * SORTED_ROWS, .highest = SORTED_ROWS + 1};
    FILE *file = open_text(&f);
    for (int r = 0; file && r < SORTED_ROWS; r++)
        fprintf(file, "%d 1:0.25 2:%06d %d:1e-3\n", 2 * r / SORTED_ROWS, r, r + 3);
    close_text(file);
    return f;
}

/* Minimum and maximum over all workers of the fraction of rows with label 1. */
static void shares_of_label_1(const char *settings, const char *order, double *least, double *most)
{
    struct text_file f = write_sorted();
    tr_context *tr = mpi_context(mpi_text("%s data.train=%s data.order=%s", settings, f.path, order));
    tr_data *data = open_data(tr, TR_DATA_TRAIN, NULL);
    if (!data) return;
    mpi_check(data->total_rows == SORTED_ROWS && data->total_nonzeros == f.nonzeros,
              "%lu rows, %lu non-zeros", data->total_rows, data->total_nonzeros);
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
    close_data(tr, &data);
}

MPI_CASE(sorted_files_are_dealt)
{
    static const char *const partition[] = {"horizontal", "vertical"};
    double least = 0, most = 0;
    for (int i = 0; mpi_layout(i); i++)
        for (int k = 0; k < 2; k++) {
            shares_of_label_1(mpi_text("%s data.partition=%s", mpi_layout(i), partition[k]), "dealt", &least,
                              &most);
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
    uint64_t sum[2] = {0};
    const char *settings = mpi_text("data.train=%s", f.path);
    for (int k = 0; k < 2; k++) {
        tr_context *tr = mpi_context(settings);
        tr_data *data = open_data(tr, TR_DATA_TRAIN, NULL);
        if (!data) return;
        for (size_t i = 0; i < data->rows.n; i++) { /* the last column tells the row */
            uint64_t key = data->keys[data->rows.column[data->rows.begin[i + 1] - 1]];
            sum[k] = tr_mix(sum[k] + key);
        }
        close_data(tr, &data);
    }
    mpi_check(sum[0] == sum[1], "other rows, or in another order");
}

/* Writes a text, packed if the name ends with .gz; returns its path. */
static const char *write_text(const char *name, const char *text, size_t n)
{
    if (!strstr(name, ".gz")) return mpi_write(name, text, n);
    const char *path = mpi_path(name);
    gzFile file = mpi_test.rank == 0 ? gzopen(path, "wb") : NULL;
    bool written = file && gzwrite(file, text, (unsigned)n) == (int)n;
    if (file) mpi_check(gzclose(file) == Z_OK && written, "%s was not written", path);
    MPI_Barrier(MPI_COMM_WORLD);
    return path;
}

/* Makes the order of n things another one, the same on all ranks. */
static void shuffle(int *order, int n)
{
    struct tr_rng rng;
    tr_rng_seed(&rng, 7, 0, 0);
    for (int i = 0; i < n; i++) order[i] = i;
    for (int i = n - 1; i > 0; i--) {
        int k = (int)tr_rng_below(&rng, (uint64_t)i + 1), kept = order[i];
        order[i] = order[k];
        order[k] = kept;
    }
}

/* ---- ratings ---- */

enum { USERS = 151, ITEMS = 67 };

/* User u has rated item i. All users and all items occur. */
static bool is_rated(int u, int i)
{
    return i == u % ITEMS || tr_mix((uint64_t)(u * ITEMS + i)) % 5 == 0;
}

static bool is_twice(int u, int i)
{
    return (u + i) % 3 == 0;
}

static void print_user(char *to, int u, bool text)
{
    if (text) snprintf(to, 32, "user %c%04d", 'A' + u / 100, u);
    else snprintf(to, 32, "%llu", u < USERS - 1 ? 10 + 3 * (unsigned long long)u : 18446744073709551615ull);
}

struct ratings {
    char text[1 << 20];
    size_t n;
    uint32_t pairs;
    double sum; /* of all values, the last of two counting */
};

/* All ratings in some order. A pair that occurs twice has the right value last: u × 100 + i. The first value is 10000 less. */
static struct ratings *print_ratings(bool text)
{
    static int order[2 * USERS * ITEMS];
    struct ratings *r = calloc(1, sizeof *r);
    if (!r) abort();
    shuffle(order, USERS * ITEMS);
    for (int lap = 0; lap < 2; lap++)
        for (int k = 0; k < USERS * ITEMS; k++) {
            int u = order[k] / ITEMS, i = order[k] % ITEMS;
            if (!is_rated(u, i) || (lap == 0 && !is_twice(u, i))) continue;
            char user[32];
            print_user(user, u, text);
            r->n += (size_t)snprintf(r->text + r->n, 64, "%s\t%d\t%d\t8712340\n", user, 1000 + i,
                                     u * 100 + i - (lap == 0 ? 10000 : 0));
            r->pairs += (uint32_t)lap;
            r->sum += lap ? u * 100 + i : 0;
        }
    return r;
}

/* What this rank holds: each pair in its place, each row in order. */
static void check_ratings(const tr_data *data, uint32_t *seen, uint32_t *rows, double right)
{
    const tr_batch *b = &data->rows;
    for (size_t k = 0; k < b->n; k++) {
        mpi_check(data->row[k] < USERS, "row %lu", data->row[k]);
        if (data->row[k] >= USERS) return;
        rows[data->row[k]]++;
        for (uint64_t j = b->begin[k]; j < b->begin[k + 1]; j++) {
            tr_key item = data->keys[b->column[j]];
            mpi_check(j == b->begin[k] || b->column[j - 1] < b->column[j], "columns do not ascend");
            mpi_check(item < ITEMS, "item %lu", item);
            if (item >= ITEMS) return;
            int u = (int)data->row[k], i = (int)item;
            double wanted = u * 100 + i - (is_twice(u, i) ? right : 0);
            mpi_check(fabs((double)b->value[j] - wanted) < 0.01, "user %d item %d is %g", u, i,
                      (double)b->value[j]);
            seen[u * ITEMS + i]++;
        }
    }
}

struct listed {
    uint64_t n;
    bool right;
};

static int check_names(void *state, const tr_names_piece *p)
{
    struct listed *l = state;
    for (size_t k = 0; k < p->n; k++) {
        char user[32];
        print_user(user, (int)l->n, p->text != NULL);
        size_t n = strlen(user);
        if (p->text)
            l->right &= p->begin[k + 1] - p->begin[k] == n && memcmp(p->text + p->begin[k], user, n) == 0;
        else l->right &= p->number[k] == strtoull(user, NULL, 10);
        l->right &= p->first + k == l->n++;
    }
    return TR_OK;
}

/* right: the difference to the right value of a pair that occurs twice. */
static void read_ratings(const char *settings, bool text, double right)
{
    tr_context *tr = mpi_context(mpi_text("%s model.type=mf", settings));
    tr_data *data = open_data(tr, TR_DATA_TRAIN, NULL);
    if (!data) return;
    struct ratings *r = print_ratings(text);
    mpi_check(data->total_rows == USERS && data->row_numbers == USERS && data->columns == ITEMS &&
                  data->total_nonzeros == r->pairs,
              "%lu users, %lu items, %lu ratings", data->total_rows, data->columns, data->total_nonzeros);
    if (right == 0) mpi_equal(data->total_values, r->sum);
    static uint32_t seen[USERS * ITEMS], rows[USERS];
    memset(seen, 0, sizeof seen);
    memset(rows, 0, sizeof rows);
    check_ratings(data, seen, rows, right);
    sum_over_ranks(seen, USERS * ITEMS);
    sum_over_ranks(rows, USERS);
    uint32_t times = strstr(settings, "replicated") ? (uint32_t)tr->layout.group_size : 1;
    for (int u = 0; u < USERS; u++) {
        mpi_check(rows[u] == times, "user %d is at %u workers", u, rows[u]);
        for (int i = 0; i < ITEMS; i++)
            mpi_check(seen[u * ITEMS + i] == (is_rated(u, i) ? times : 0), "user %d item %d: %u times", u, i,
                      seen[u * ITEMS + i]);
    }
    struct listed listed = {.right = true};
    mpi_check(tr_names_are_numbers(data->row_names) != text && tr_names_are_numbers(data->column_names),
              "the kind of names");
    mpi_ok(tr_names_each(data->row_names, check_names, &listed));
    mpi_check(mpi_test.rank > 0 || (listed.n == USERS && listed.right), "%lu names", listed.n);
    free(r);
    close_data(tr, &data);
}

MPI_CASE(ratings_are_numbered_and_dealt)
{
    static const char *const ways[] = {"data.order=dealt", "data.order=file data.partition=replicated",
                                       "table.prune=no"};
    for (int text = 0; text < 2; text++)
        for (int packed = 0; packed < 2; packed++) {
            struct ratings *r = print_ratings(text);
            const char *path = write_text(packed ? "ratings.gz" : "ratings", r->text, r->n);
            for (int i = 0; mpi_layout(i); i++) {
                if (!mpi_chosen(i, text + 2 * packed, 2)) continue;
                read_ratings(
                    mpi_text("%s %s data.train=%s", mpi_layout(i), ways[(i + text + packed) % 3], path), text,
                    0);
            }
            read_ratings(mpi_text("data.duplicates=mean data.train=%s", path), text, 5000);
            free(r);
        }
}

/* Training knows users 10 and 30, and items b and d. */
MPI_CASE(users_and_items_that_training_has_not_seen_are_numbered_behind)
{
    static const char train_text[] = "user,item,rating\n30,d,1\n10,b,2\n30,b,3\n",
                      test_text[] = "30,b,4\n5,d,5\n99,a,6\n20,c,7\n10,d,8\n";
    static const struct {
        uint64_t row, column;
        float value;
    } wanted[] = {{1, 0, 4}, {2, 1, 5}, {4, 2, 6}, {3, 3, 7}, {0, 1, 8}};
    const char *train = write_text("train", train_text, sizeof train_text - 1),
               *test = write_text("test", test_text, sizeof test_text - 1);
    tr_context *tr = mpi_context(mpi_text("model.type=mf data.train=%s data.test=%s", train, test));
    tr_data *data = open_data(tr, TR_DATA_TRAIN, NULL),
            *more = data ? open_data(tr, TR_DATA_TEST, data) : NULL;
    if (!more) return;
    mpi_check(more->row_numbers == 5 && more->columns == 4 && more->total_rows == 5 &&
                  more->total_nonzeros == 5,
              "%lu users, %lu items", more->row_numbers, more->columns);
    mpi_check(tr_names_first(more->row_names) == 2 && tr_names_count(more->row_names) == 3 &&
                  tr_names_count(data->row_names) == 2,
              "new names from %lu", tr_names_first(more->row_names));
    uint32_t found = 0;
    for (size_t k = 0; k < more->rows.n; k++)
        for (uint64_t j = more->rows.begin[k]; j < more->rows.begin[k + 1]; j++)
            for (size_t w = 0; w < 5; w++)
                found += more->row[k] == wanted[w].row &&
                         more->keys[more->rows.column[j]] == wanted[w].column &&
                         more->rows.value[j] == wanted[w].value;
    sum_over_ranks(&found, 1);
    mpi_equal(found, 5);
    tr_data_close(&data);
    tr_data_close(&more);
    mpi_ok(tr_close(tr));
}

/* ---- bags of words ---- */

enum { DOCUMENTS = 97, WORDS = 53, EMPTY = 13 };

static uint32_t words_of(int d, int w)
{
    if (d == EMPTY) return 0;
    return w == d % WORDS ? 3 : tr_mix((uint64_t)(d * 1009 + w)) % 6 == 0 ? 1 + (uint32_t)(d + w) % 9 : 0;
}

/* Documents first .. end - 1 as one file, in any order of records; a word of several is split into two records. */
static size_t print_words(char *text, size_t room, int first, int end, int *records)
{
    static int order[DOCUMENTS * WORDS];
    size_t n = 0;
    int k = 0;
    *records = 0;
    shuffle(order, DOCUMENTS * WORDS);
    for (int lap = 0; lap < 2; lap++) /* count first, for the header */
        for (k = 0, n = lap ? (size_t)snprintf(text, room, "%d\n%d\n%d\n", end - first, WORDS, *records) : 0;
             k < DOCUMENTS * WORDS; k++) {
            int d = order[k] / WORDS, w = order[k] % WORDS;
            uint32_t count = words_of(d, w);
            if (d < first || d >= end || count == 0) continue;
            *records += lap ? 0 : 1 + (count > 5);
            if (lap == 0) continue;
            if (count > 5) n += (size_t)snprintf(text + n, room - n, "%d %d 5\n", d - first + 1, w + 1);
            n += (size_t)snprintf(text + n, room - n, "%d %d %u\n", d - first + 1, w + 1,
                                  count > 5 ? count - 5 : count);
        }
    return n;
}

/* Returns both paths, as for data.train. */
static const char *write_words(void)
{
    static char text[1 << 18], paths[MPI_NOTE];
    int records;
    size_t n = print_words(text, sizeof text, 0, 40, &records);
    const char *first = write_text("words-a", text, n);
    n = print_words(text, sizeof text, 40, DOCUMENTS, &records);
    snprintf(paths, sizeof paths, "%s,%s", first, write_text("words-b.gz", text, n));
    return paths;
}

static void check_words(const tr_data *data, uint32_t *seen)
{
    const tr_batch *b = &data->rows;
    mpi_check(b->label == NULL && !data->row_names, "labels or names");
    for (size_t k = 0; k < b->n; k++)
        for (uint64_t j = b->begin[k]; j < b->begin[k + 1]; j++) {
            uint64_t d = data->row[k], w = data->keys[b->column[j]];
            bool right = d < DOCUMENTS && w < WORDS;
            mpi_check(right, "document %lu word %lu", d, w);
            if (!right) return;
            mpi_check(b->value[j] == (float)words_of((int)d, (int)w), "document %lu word %lu: %g", d, w,
                      (double)b->value[j]);
            seen[d * WORDS + w]++;
        }
}

MPI_CASE(documents_of_several_files_are_joined)
{
    const char *layout, *paths = write_words();
    static uint32_t seen[DOCUMENTS * WORDS];
    for (int i = 0; (layout = mpi_layout(i)); i++) {
        tr_context *tr = mpi_context(mpi_text("%s model.type=lda data.order=%s data.train=%s", layout,
                                              i % 2 ? "file" : "dealt", paths));
        tr_data *data = open_data(tr, TR_DATA_TRAIN, NULL);
        if (!data) return;
        mpi_check(data->row_numbers == DOCUMENTS && data->total_rows == DOCUMENTS - 1 &&
                      data->columns == WORDS,
                  "%lu documents of %lu", data->total_rows, data->row_numbers);
        memset(seen, 0, sizeof seen);
        check_words(data, seen);
        sum_over_ranks(seen, DOCUMENTS * WORDS);
        double tokens = 0;
        for (int k = 0; k < DOCUMENTS * WORDS; k++) {
            uint32_t count = words_of(k / WORDS, k % WORDS);
            tokens += count;
            mpi_check(seen[k] == (count > 0), "document %d word %d: %u times", k / WORDS, k % WORDS, seen[k]);
        }
        mpi_equal(data->total_values, tokens);
        close_data(tr, &data);
    }
}

/* In the order of the files each worker has consecutive documents, with about the same number of words. */
MPI_CASE(rows_in_the_order_of_the_files_are_neighbours)
{
    tr_context *tr = mpi_context(
        mpi_text("model.type=lda data.order=file ranks.group_size=1 data.train=%s", write_words()));
    tr_data *data = open_data(tr, TR_DATA_TRAIN, NULL);
    if (!data) return;
    uint64_t last = data->rows.n ? data->row[data->rows.n - 1] : 0, before = 0;
    uint64_t mine = data->rows.n ? data->rows.begin[data->rows.n] : 0,
             fair = data->total_nonzeros / (uint64_t)tr_workers(tr);
    for (size_t k = 1; k < data->rows.n; k++)
        mpi_check(data->row[k - 1] < data->row[k], "rows do not ascend");
    MPI_Exscan(&last, &before, 1, MPI_UINT64_T, MPI_MAX, tr->workers);
    if (tr->rank > 0 && data->rows.n > 0)
        mpi_check(data->row[0] > before, "row %lu after row %lu", data->row[0], before);
    mpi_check(mine + 60 > fair && mine < fair + 60, "%lu non-zeros, not about %lu", mine, fair);
    close_data(tr, &data);
}

static void refuses(const char *text, const char *settings, int status, const char *words)
{
    tr_context *tr =
        mpi_context(mpi_text("%s data.train=%s", settings, write_text("bad", text, strlen(text))));
    tr_data *data = NULL;
    int said_to = dup(STDERR_FILENO), nowhere = open("/dev/null", O_WRONLY);
    dup2(nowhere, STDERR_FILENO); /* what rank 0 says is not for the log */
    int got = tr_data_open(tr, TR_DATA_TRAIN, NULL, &data);
    mpi_check(got == status && !data, "status %d: %s", got, tr_error_text());
    int said = strstr(tr_error_text(), words) != NULL;
    MPI_Allreduce(MPI_IN_PLACE, &said, 1, MPI_INT, MPI_LOR, MPI_COMM_WORLD);
    mpi_check(said, "«%s» lacks «%s»", tr_error_text(), words);
    tr_close(tr);
    dup2(said_to, STDERR_FILENO);
    close(said_to);
    close(nowhere);
}

MPI_CASE(errors_are_agreed_on)
{
    refuses("2\n2\n3\n1 1 1\n2 2 2\n", "model.type=lda", TR_ERR_DATA, "2 records, expected 3");
    refuses("2\n2\n0\n", "model.type=lda", TR_ERR_NO_INPUT, "no record");
    refuses("1 2 3\n1 2 x\n", "model.type=mf", TR_ERR_DATA, ":2: 'x': the rating");
    refuses("1,2\n1,2,3\n", "model.type=kmeans", TR_ERR_DATA, ":2: more than 2 columns");
    refuses("1\n2\n", "model.type=kmeans data.label=first", TR_ERR_DATA, "no column besides");
    refuses("a,b\n", "model.type=kmeans", TR_ERR_NO_INPUT, "no record");
}

/* ---- dense rows ---- */

enum { DENSE_ROWS = 301, DENSE_COLUMNS = 3 };

static const char *write_table(bool packed)
{
    static char text[1 << 16];
    size_t n = (size_t)sprintf(text, "label,a,b,c\n");
    for (int r = 0; r < DENSE_ROWS; r++) /* each row twice, with different labels */
        n += (size_t)sprintf(text + n, "%d,%d,%d.5,%d\n", r % 3, r / 2, r / 2, -(r / 2));
    return write_text(packed ? "table.gz" : "table", text, n);
}

static void check_table(const tr_data *data, uint32_t *seen)
{
    const tr_batch *b = &data->rows;
    for (size_t i = 0; i < b->n; i++) {
        const float *x = b->dense + i * DENSE_COLUMNS;
        mpi_check(x[1] == x[0] + 0.5f && x[2] == -x[0], "row of %g %g %g", (double)x[0], (double)x[1],
                  (double)x[2]);
        if (x[0] >= 0 && x[0] < DENSE_ROWS) seen[3 * (int)x[0] + (int)b->label[i]]++;
    }
}

MPI_CASE(dense_rows_are_read_once)
{
    for (int i = 0; mpi_layout(i); i++) {
        bool replicated = i % 3 == 0;
        const char *all =
            mpi_text("%s model.type=kmeans data.label=first data.train=%s data.partition=%s", mpi_layout(i),
                     write_table(i % 2), replicated ? "replicated" : "horizontal");
        tr_context *tr = mpi_context(all);
        tr_data *data = open_data(tr, TR_DATA_TRAIN, NULL);
        if (!data) return;
        mpi_check(data->total_rows == DENSE_ROWS && data->columns == DENSE_COLUMNS && data->labels == 3,
                  "%lu rows of %lu", data->total_rows, data->columns);
        static uint32_t seen[3 * DENSE_ROWS];
        memset(seen, 0, sizeof seen);
        check_table(data, seen);
        sum_over_ranks(seen, 3 * DENSE_ROWS);
        uint32_t times = replicated ? (uint32_t)tr->layout.group_size : 1;
        for (int r = 0; r < DENSE_ROWS; r++) {
            uint32_t *count = &seen[3 * (r / 2) + r % 3];
            mpi_check(*count == times, "row %d is there %u times", r, *count);
        }
        tr_batch *first = NULL;
        mpi_ok(tr_data_first_rows(data, 5, true, &first));
        mpi_check(first && first->n == 5, "not 5 first rows");
        for (size_t k = 0; first && k < first->n; k++)
            mpi_check(first->dense[k * DENSE_COLUMNS] == (float)k && first->label[k] == (float)(2 * k % 3),
                      "first row %zu is %g", k, (double)first->dense[k * DENSE_COLUMNS]);
        tr_batch_free(&first);
        mpi_ok(tr_data_first_rows(data, 2 * DENSE_ROWS, true, &first));
        mpi_check(first && first->n == (DENSE_ROWS + 1) / 2, "not all distinct rows");
        tr_batch_free(&first);
        close_data(tr, &data);
    }
}

/* Of sparse rows: all of the group at each member, and the first ones at all ranks. */
/* What row i holds, dense or sparse. */
static double sum_row(const tr_data *data, const tr_batch *b, size_t i)
{
    double sum = b->label ? 1000 * (double)b->label[i] : 0;
    for (size_t c = 0; b->dense && c < data->columns; c++)
        sum += (double)b->dense[i * data->columns + c] * (double)(c + 1);
    for (uint64_t k = b->begin ? b->begin[i] : 0; b->begin && k < b->begin[i + 1]; k++)
        sum += (b->value ? (double)b->value[k] : 1) * (double)(data->keys[b->column[k]] + 1);
    return sum;
}

/* One pass over this worker's rows: their sum and their order. */
static double pass_over(tr_data *data, const tr_worker *me, size_t size, uint64_t pass, uint64_t *order)
{
    tr_batch b;
    size_t rows = 0;
    double sum = 0;
    *order = 0;
    mpi_ok(tr_data_shuffle(data, me, size, pass));
    while (tr_data_next(data, &b)) {
        mpi_check(b.n > 0 && b.n <= size, "a batch of %zu rows", b.n);
        for (size_t i = 0; i < b.n; i++) {
            sum += sum_row(data, &b, i);
            *order = tr_mix(*order ^ (uint64_t)(sum_row(data, &b, i) * 64));
        }
        rows += b.n;
    }
    mpi_equal(rows, tr_data_part_end(data, me) - tr_data_part_begin(data, me));
    return sum;
}

MPI_CASE(rows_come_in_shuffled_mini_batches)
{
    const char *path = write_table(false);
    double total[2] = {0};
    for (int sparse = 0; sparse < 2; sparse++) {
        tr_context *tr = mpi_context(mpi_text("model.type=kmeans data.label=first data.train=%s", path));
        tr_data *data = open_data(tr, sparse ? TR_DATA_TRAIN | TR_DATA_SPARSE : TR_DATA_TRAIN, NULL);
        if (!data) return;
        mpi_check(data->labels == 3 && data->label[2] == 2, "%zu labels", data->labels);
        mpi_check((data->rows.dense == NULL) == (sparse == 1) || data->rows.n == 0,
                  "rows are of the other kind");
        if (tr_is(tr, TR_SLAVE)) {
            tr_worker me = {.worker = tr->me.group * tr->layout.group_size + tr->me.member,
                            .group = tr->me.group,
                            .member = tr->me.member,
                            .group_size = tr->layout.group_size};
            uint64_t order[3];
            double sum = 0;
            for (size_t i = 0; i < data->rows.n; i++) sum += sum_row(data, &data->rows, i);
            for (uint64_t pass = 0; pass < 3; pass++)
                mpi_check(fabs(pass_over(data, &me, 7, pass / 2, &order[pass]) - sum) < 1e-3, "other rows");
            mpi_check(order[0] == order[1], "the same pass has another order");
            mpi_check(order[0] != order[2] || data->rows.n < 10, "another pass has the same order");
            total[sparse] = sum;
        }
        MPI_Allreduce(MPI_IN_PLACE, &total[sparse], 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        close_data(tr, &data);
    }
    mpi_check(fabs(total[0] - total[1]) < 1e-3, "sparse rows hold %g, dense ones %g", total[1], total[0]);
}

MPI_CASE(sparse_rows_are_replicated)
{
    for (int i = 0; mpi_layout(i); i++) {
        struct text_file f = write_rows(1, false, 2, 0);
        tr_context *tr =
            mpi_context(mpi_text("%s data.partition=replicated data.train=%s", mpi_layout(i), f.path));
        tr_data *data = open_data(tr, TR_DATA_TRAIN, NULL);
        if (!data) return;
        static uint32_t seen[ROWS * COLUMNS];
        memset(seen, 0, sizeof seen);
        count_values(data, seen);
        sum_over_ranks(seen, ROWS * COLUMNS);
        for (int r = 0; r < ROWS; r++) {
            uint32_t column[OWN];
            for (int n = row_features(r, column); n-- > 0;)
                mpi_check(seen[r * COLUMNS + (int)column[n]] == (uint32_t)tr->layout.group_size,
                          "row %d: %u times", r, seen[r * COLUMNS + (int)column[n]]);
        }
        tr_batch *first = NULL;
        mpi_ok(tr_data_first_rows(data, 4, false, &first));
        for (int r = 0; first && r < 4; r++) {
            uint32_t column[OWN];
            int n = row_features(r, column);
            mpi_check(first->begin[r + 1] - first->begin[r] == (uint64_t)n, "first row %d", r);
            for (int k = 0; k < n; k++)
                mpi_check(first->column[first->begin[r] + (uint64_t)k] == column[k], "first row %d", r);
        }
        tr_batch_free(&first);
        close_data(tr, &data);
    }
}

/* ---- the rows of a group in one place ---- */

/* What is in each row, as one number; to be freed. */
static uint64_t *hash_rows(const tr_data *data)
{
    const tr_batch *b = &data->rows;
    uint64_t *hash = calloc(b->n + 1, sizeof *hash);
    if (!hash) abort();
    for (size_t i = 0; i < b->n; i++) {
        uint64_t h = data->row ? data->row[i] : b->label ? (uint64_t)(b->label[i] * 16) : 7;
        for (uint64_t k = 0; b->dense && k < data->columns; k++)
            h = tr_mix(h + (uint64_t)(int64_t)(b->dense[i * data->columns + k] * 16));
        for (uint64_t k = b->begin ? b->begin[i] : 0; b->begin && k < b->begin[i + 1]; k++)
            h = tr_mix(h + data->keys[b->column[k]] * 1000003 +
                       (uint64_t)(int64_t)((b->value ? b->value[k] : 1) * 16));
        hash[i] = h;
    }
    return hash;
}

static bool are_rows(const tr_data *data, const uint64_t *hash, uint64_t n)
{
    uint64_t *mine = hash_rows(data);
    bool equal = data->rows.n == n && memcmp(mine, hash, (size_t)n * sizeof *hash) == 0;
    free(mine);
    return equal;
}

/* What all members of each group have read, each its own rows, one member after the other. */
static void read_by_members(const char *settings, uint64_t **hash, uint64_t *n)
{
    tr_context *tr = mpi_context(mpi_text("%s data.partition=horizontal", settings));
    tr_data *data = open_data(tr, TR_DATA_TRAIN, NULL);
    *hash = NULL;
    *n = 0;
    if (data && tr_is(tr, TR_SLAVE)) {
        uint64_t *mine = hash_rows(data);
        mpi_ok(tr_gather_to_all(tr, TR_SET_GROUP, mine, data->rows.n, sizeof *mine, (void **)hash, n));
        free(mine);
    }
    close_data(tr, &data);
}

/* A file that is mapped into this process. */
struct mapping {
    uint64_t device, inode, bytes;
    char path[256];
};

static struct mapping find_mapping(const void *p)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    char text[512];
    struct mapping found = {0};
    while (maps && fgets(text, sizeof text, maps)) {
        unsigned long begin, end, major, minor, inode;
        char path[256] = "";
        if (sscanf(text, "%lx-%lx %*s %*s %lx:%lx %lu %255s", &begin, &end, &major, &minor, &inode, path) < 5)
            continue;
        if ((uintptr_t)p < begin || (uintptr_t)p >= end) continue;
        found = (struct mapping){major << 32 | minor, inode, end - begin, ""};
        memcpy(found.path, path, sizeof path);
    }
    if (maps) fclose(maps);
    return found;
}

/* Bytes of the arrays, and whether each lies in the mapping. */
static uint64_t find_arrays(const tr_data *data, const struct mapping *m, bool *all_in)
{
    const tr_batch *b = &data->rows;
    uint64_t nonzeros = b->begin ? b->begin[b->n] : 0;
    const struct {
        const void *memory;
        uint64_t bytes;
    } array[] = {{b->begin, (b->n + 1) * sizeof *b->begin},
                 {b->column, nonzeros * sizeof *b->column},
                 {b->value, nonzeros * sizeof *b->value},
                 {b->label, b->n * sizeof *b->label},
                 {b->dense, b->n * data->columns * sizeof *b->dense},
                 {data->row, b->n * sizeof *data->row},
                 {data->keys, data->n_keys * sizeof *data->keys}};
    uint64_t sum = 0;
    *all_in = true;
    for (size_t i = 0; i < COUNT(array); i++) {
        if (!array[i].memory || array[i].bytes == 0) continue;
        struct mapping its = find_mapping(array[i].memory);
        *all_in &= its.inode == m->inode && its.device == m->device;
        sum += array[i].bytes;
    }
    return sum;
}

static bool group_is_near(const tr_context *tr)
{
    int nodes[2] = {tr->node_of[tr->rank], -tr->node_of[tr->rank]};
    MPI_Allreduce(MPI_IN_PLACE, nodes, 2, MPI_INT, MPI_MAX, tr->group);
    return nodes[0] == -nodes[1] && tr->layout.group_size > 1;
}

/* What member 0 writes the others see if there is one memory, and only then. */
static void check_marker(const tr_context *tr, const tr_data *data, bool near)
{
    const void *place = data->rows.dense ? (const void *)data->rows.dense : (const void *)data->rows.column;
    volatile unsigned char *p = (volatile unsigned char *)(uintptr_t)place;
    unsigned char before = *p;
    MPI_Barrier(tr->group);
    if (tr->me.member == 0) *p = (unsigned char)~before;
    MPI_Barrier(tr->group);
    unsigned char seen = *p;
    MPI_Barrier(tr->group);
    if (tr->me.member == 0) *p = before;
    MPI_Barrier(tr->group);
    if (tr->layout.group_size > 1 && tr->me.member > 0)
        mpi_check((seen != before) == near, "member 0's memory is%s seen", seen != before ? "" : " not");
}

/* One mapping of the group has everything, and is no larger than it must be. */
static struct mapping check_memory(const tr_context *tr, const tr_data *data, bool near)
{
    enum { MORE = 256 << 10 }; /* of MPI, and where pages begin */
    struct mapping m = find_mapping(data->keys);
    bool all_in;
    uint64_t bytes = find_arrays(data, &m, &all_in), same[4] = {m.inode, ~m.inode, m.device, ~m.device};
    MPI_Allreduce(MPI_IN_PLACE, same, 4, MPI_UINT64_T, MPI_MIN, tr->group);
    bool one = m.inode && same[0] == ~same[1] && same[2] == ~same[3];
    mpi_check(one == near, "the group has%s one memory", one ? "" : " not");
    mpi_check(!near || all_in, "not all lies there");
    mpi_check(!near || m.bytes < bytes + MORE, "%lu bytes are mapped for %lu", m.bytes, bytes);
    uint64_t shared = data->state->file ? tr_row_file_bytes(data->state->file) : 0;
    mpi_check(near ? shared >= bytes && shared <= m.bytes : shared == 0, "%lu bytes are shared", shared);
    return m;
}

static void check_gone(const struct mapping *m)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    char text[512];
    while (maps && fgets(text, sizeof text, maps)) {
        unsigned long major, minor, inode;
        if (sscanf(text, "%*s %*s %*s %lx:%lx %lu", &major, &minor, &inode) == 3)
            mpi_check(inode != m->inode || (major << 32 | minor) != m->device, "still mapped: %s", m->path);
    }
    if (maps) fclose(maps);
    struct stat about;
    mpi_check(stat(m->path, &about) != 0 || about.st_ino != m->inode, "left behind: %s", m->path);
}

static void check_parts(const tr_context *tr, const tr_data *data, bool replicated)
{
    for (int size = 1; size <= tr->layout.group_size; size++) {
        size_t next = 0;
        for (int m = 0; m < size; m++) {
            tr_worker me = {.member = m, .group_size = size};
            size_t begin = tr_data_part_begin(data, &me), end = tr_data_part_end(data, &me);
            mpi_check(begin == next && end >= begin && end <= data->rows.n, "part %zu .. %zu", begin, end);
            if (replicated && tr->layout.group_size > 1) {
                next = end;
                mpi_check(end - begin <= data->rows.n / (size_t)size + 1, "part %zu .. %zu", begin, end);
            } else {
                mpi_check(end == data->rows.n, "part %zu .. %zu of own rows", begin, end);
            }
        }
        mpi_equal(next, (replicated && tr->layout.group_size > 1 ? data->rows.n : 0));
    }
}

static void share_rows(const char *settings)
{
    uint64_t *wanted, n;
    struct mapping m = {0};
    read_by_members(settings, &wanted, &n);
    tr_context *tr = mpi_context(mpi_text("%s data.partition=replicated", settings));
    tr_data *data = open_data(tr, TR_DATA_TRAIN, NULL);
    if (data && tr_is(tr, TR_SLAVE)) {
        bool near = group_is_near(tr);
        mpi_check(are_rows(data, wanted, n), "other rows than the members have read");
        check_marker(tr, data, near);
        m = check_memory(tr, data, near);
        mpi_check(are_rows(data, wanted, n), "rows have changed");
        check_parts(tr, data, true);
    }
    tr_data_close(&data);
    if (m.inode) check_gone(&m);
    mpi_ok(tr_close(tr));
    free(wanted);
}

/* The i-th layout to test: no groups, one group on one node and on two nodes, and the layouts with groups that all tests
 * use. */
static const char *group_layout(int i)
{
    const char *layout;
    if (i == 0) return "ranks.layout=auto ranks.group_size=1";
    if (i < 3)
        return mpi_text("ranks.layout=colocated ranks.group_size=%d ranks.node_size=%d", mpi_test.size,
                        i == 1 ? 0 : (mpi_test.size + 1) / 2);
    for (int k = 0; (layout = mpi_layout(k)); k++)
        if (strstr(layout, "group_size") && i-- == 3) return layout;
    return NULL;
}

MPI_CASE(rows_of_a_group_lie_in_memory_once)
{
    struct ratings *r = print_ratings(true);
    struct text_file f = write_rows(1, false, 2, 0);
    const char *layout, *table = write_table(true), *ratings = write_text("ratings", r->text, r->n),
                        *words = write_words();
    free(r);
    for (int i = 0; (layout = group_layout(i)); i++) {
        const char *prune = i % 2 ? "table.prune=no" : "data.order=file";
        share_rows(mpi_text("%s %s data.train=%s", layout, prune, f.path));
        share_rows(mpi_text("%s model.type=kmeans data.label=first data.train=%s", layout, table));
        share_rows(mpi_text("%s %s model.type=mf data.train=%s", layout, prune, ratings));
        share_rows(mpi_text("%s model.type=lda data.train=%s", layout, words));
    }
    f = write_sorted(); /* in the place of the first file, and larger */
    share_rows(mpi_text("%s data.train=%s", group_layout(0), f.path));
    share_rows(mpi_text("ranks.layout=colocated ranks.group_size=%d data.train=%s", mpi_test.size, f.path));
}

/* Where one member has only ones as values, and not even all have rows. */
MPI_CASE(members_bring_different_things)
{
    static const char *const texts[] = {"1 3:1 9:1\n-1 3:1 4:1\n1 9:1\n-1 2:1 3:2.5\n", "1 5:1\n",
                                        "1\n-1\n1 7:3\n"};
    for (size_t k = 0; k < COUNT(texts); k++) {
        const char *path = write_text("few", texts[k], strlen(texts[k]));
        for (int i = 1; i < 4 && group_layout(i); i++) {
            uint64_t *wanted, n;
            const char *all = mpi_text("%s data.order=file data.train=%s", group_layout(i), path);
            read_by_members(all, &wanted, &n);
            tr_context *tr = mpi_context(mpi_text("%s data.partition=replicated", all));
            tr_data *data = open_data(tr, TR_DATA_TRAIN, NULL);
            if (data && tr_is(tr, TR_SLAVE))
                mpi_check(are_rows(data, wanted, n), "other rows than the members have read");
            close_data(tr, &data);
            free(wanted);
        }
    }
}

/* ---- data for several users ---- */

static void append_text(const char *path, const char *text)
{
    MPI_Barrier(MPI_COMM_WORLD);
    FILE *file = mpi_test.rank == 0 ? fopen(path, "a") : NULL;
    if (file) {
        fputs(text, file);
        fclose(file);
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

/* Bytes of memory that the file takes which is mapped there; it has no name, but this process has it open. */
static size_t memory_of(const struct mapping *m)
{
    struct stat about;
    for (int fd = 3; fd < 1024; fd++)
        if (fstat(fd, &about) == 0 && about.st_ino == m->inode) return (size_t)about.st_blocks * 512;
    return 0;
}

/* a and b are the same, and so are their test data; what one forgets the other has. */
static void use_twice(tr_context *tr, const char *path)
{
    tr_data *a = open_data(tr, TR_DATA_TRAIN, NULL), *b = open_data(tr, TR_DATA_TRAIN, NULL);
    if (!a || !b) return;
    uint64_t *wanted = hash_rows(a), n = a->rows.n;
    mpi_check(a != b && a->state->store == b->state->store && a->rows.column == b->rows.column &&
                  a->keys == b->keys && tr->stores->loaded == 1,
              "%lu were loaded", tr->stores->loaded);
    tr_data *test[2] = {open_data(tr, TR_DATA_TEST, a), open_data(tr, TR_DATA_TEST, b)};
    mpi_check(test[0] && test[1] && test[0]->rows.column == test[1]->rows.column && tr->stores->loaded == 2,
              "%lu were loaded", tr->stores->loaded);
    tr_data_close(&a);
    mpi_check(are_rows(b, wanted, n), "rows went with the first user");
    tr_data *c = open_data(tr, TR_DATA_TRAIN, NULL);
    tr_data_forget(b);
    tr_data_forget(b);
    MPI_Barrier(MPI_COMM_WORLD);
    mpi_check(c && !b->rows.column && are_rows(c, wanted, n), "rows went with one of two that needed them");

    struct mapping m = {0};
    const uint32_t *column = c->rows.column;
    size_t bytes = column ? (size_t)c->rows.begin[n] * sizeof *column : 0, before = 0;
    if (tr_is(tr, TR_SLAVE) && c->state->file) m = find_mapping(c->keys);
    if (m.inode) before = memory_of(&m);
    mpi_check(!m.inode || before >= bytes, "%zu bytes of memory for %zu", before, bytes);
    MPI_Barrier(MPI_COMM_WORLD);
    tr_data_forget(c);
    MPI_Barrier(MPI_COMM_WORLD);
    mpi_check(!m.inode || memory_of(&m) + bytes <= before,
              "%zu of %zu bytes of memory are left, of which %zu are columns", memory_of(&m), before, bytes);

    tr_data *again = open_data(tr, TR_DATA_TRAIN, NULL);
    mpi_check(again && tr->stores->loaded == 3 && are_rows(again, wanted, n),
              "forgotten data are not loaded again");
    append_text(path, "-1 1:99\n");
    tr_data *more = open_data(tr, TR_DATA_TRAIN, NULL);
    mpi_check(more && tr->stores->loaded == 4 && more->total_rows == again->total_rows + 1,
              "a file that has grown is the same");
    tr_data **all[] = {&more, &again, &b, &c, &test[0], &test[1]};
    for (size_t i = 0; i < COUNT(all); i++) tr_data_close(all[i]);
    mpi_check(tr->stores == NULL, "a store is left");
    if (m.inode) check_gone(&m);
    free(wanted);
}

MPI_CASE(the_same_data_are_loaded_once)
{
    for (int i = 0; group_layout(i); i++) {
        struct text_file f = write_sorted();
        tr_context *tr =
            mpi_context(mpi_text("%s data.partition=%s data.train=%s data.test=%s", group_layout(i),
                                 i % 3 == 1 ? "horizontal" : "replicated", f.path, f.path));
        use_twice(tr, f.path);
        mpi_ok(tr_close(tr));
    }
}

/* One that holds data for users to come. */
MPI_CASE(data_are_kept)
{
    struct text_file f = write_rows(1, false, 2, 0);
    const char *settings =
        mpi_text("ranks.group_size=%d data.partition=replicated data.train=%s", mpi_test.size, f.path);
    tr_context *tr = mpi_context(settings);
    tr_data *data = open_data(tr, TR_DATA_TRAIN, NULL);
    if (!data) return;
    uint64_t *wanted = hash_rows(data), n = data->rows.n;
    tr_data *holder = open_data(tr, TR_DATA_TRAIN, NULL);
    tr_data_forget(data);
    tr_data_close(&data);
    data = open_data(tr, TR_DATA_TRAIN, NULL);
    mpi_check(data && tr->stores->loaded == 1 && are_rows(data, wanted, n), "they were not kept");
    tr_data_close(&holder);
    mpi_check(data && are_rows(data, wanted, n), "they went too early");
    tr_data_close(&data);
    mpi_check(tr->stores == NULL, "a store is left");
    free(wanted);
    mpi_ok(tr_close(tr));
}

/* ---- kept for the next start ---- */

static uint64_t hash_bytes(uint64_t hash, const void *bytes, size_t n)
{
    const unsigned char *b = bytes;
    for (size_t i = 0; b && i < n; i++) hash = tr_mix(hash + b[i]);
    return tr_mix(hash + n + (b != NULL));
}

static int hash_names(void *state, const tr_names_piece *p)
{
    uint64_t *hash = state;
    *hash = hash_bytes(*hash, &p->first, sizeof p->first);
    *hash = hash_bytes(*hash, p->number, p->number ? p->n * sizeof *p->number : 0);
    *hash = hash_bytes(*hash, p->begin, p->begin ? (p->n + 1) * sizeof *p->begin : 0);
    *hash = hash_bytes(*hash, p->text, p->text ? p->begin[p->n] : 0);
    return TR_OK;
}

/* Over all rows of this rank. */
static uint64_t hash_data(const tr_data *d)
{
    const tr_batch *b = &d->rows;
    const struct tr_data_state *s = d->state;
    uint64_t nonzeros = b->begin ? b->begin[b->n] : 0, hash = 0;
    uint64_t counts[] = {d->total_rows, d->total_nonzeros,   d->columns,     d->first_index,
                         d->labels,     d->skipped,          d->row_numbers, d->n_keys,
                         b->n,          (uint64_t)d->format, s->stretches};
    hash = hash_bytes(hash, counts, sizeof counts);
    hash = hash_bytes(hash, d->label, d->labels * sizeof *d->label);
    hash = hash_bytes(hash, &d->total_values, sizeof d->total_values);
    hash = hash_bytes(hash, b->begin, b->begin ? (b->n + 1) * sizeof *b->begin : 0);
    hash = hash_bytes(hash, b->column, nonzeros * sizeof *b->column);
    hash = hash_bytes(hash, b->value, nonzeros * sizeof *b->value);
    hash = hash_bytes(hash, b->label, b->n * sizeof *b->label);
    hash = hash_bytes(hash, b->dense, b->n * d->columns * sizeof *b->dense);
    hash = hash_bytes(hash, d->row, b->n * sizeof *d->row);
    hash = hash_bytes(hash, d->keys, d->n_keys * sizeof *d->keys);
    hash = hash_bytes(hash, s->stretch, s->stretches * sizeof *s->stretch);
    hash = hash_bytes(hash, s->heads, s->files.n * sizeof *s->heads);
    hash = hash_bytes(hash, tr_data_third_label(d), strlen(tr_data_third_label(d)));
    if (d->row_names) mpi_ok(tr_names_each(d->row_names, hash_names, &hash));
    if (d->column_names) mpi_ok(tr_names_each(d->column_names, hash_names, &hash));
    return hash;
}

/* Both parts of a job. */
struct both {
    tr_context *tr;
    tr_data *train, *test;
    uint64_t hash; /* of the rows of this rank */
    bool found;    /* not read */
};

static bool is_found(const tr_data *data)
{
    return data->state->cached && data->state->cached->found;
}

static struct both open_both(const char *settings)
{
    struct both b = {.tr = mpi_context(settings)};
    b.train = open_data(b.tr, TR_DATA_TRAIN, NULL);
    if (b.train) b.test = open_data(b.tr, TR_DATA_TEST, b.train);
    if (!b.test) MPI_Abort(MPI_COMM_WORLD, 1);
    mpi_check(b.train->state->cached && b.test->state->cached, "data are not kept");
    b.hash = hash_data(b.train) * 3 + hash_data(b.test);
    b.found = is_found(b.train);
    mpi_check(is_found(b.test) == b.found, "training data are%s found, test data are%s",
              b.found ? "" : " not", b.found ? " not" : "");
    return b;
}

static void close_both(struct both *b)
{
    tr_data_close(&b->test);
    tr_data_close(&b->train);
    mpi_ok(tr_close(b->tr));
}

/* The folder of the context on this host; whether it is this rank that looks after it. */
static bool folder_of(const tr_context *tr, char **path)
{
    MPI_Comm near;
    int rank;
    mpi_ok(tr_cache_folder_path(NULL, tr->job->output, path));
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &near);
    MPI_Comm_rank(near, &rank);
    MPI_Comm_free(&near);
    return rank == 0;
}

/* As if all processes were killed: the rows they stored remain. */
static void die(struct both *b)
{
    char *path, other[256];
    bool leads = folder_of(b->tr, &path);
    snprintf(other, sizeof other, "%s-aside", path);
    MPI_Barrier(MPI_COMM_WORLD);
    if (leads) mpi_check(rename(path, other) == 0, "%s is not there", path);
    MPI_Barrier(MPI_COMM_WORLD);
    close_both(b);
    MPI_Barrier(MPI_COMM_WORLD);
    if (leads) mpi_check(rename(other, path) == 0, "%s is not there", other);
    MPI_Barrier(MPI_COMM_WORLD);
    free(path);
}

static void end_well(struct both *b)
{
    char *path;
    folder_of(b->tr, &path);
    MPI_Barrier(MPI_COMM_WORLD);
    mpi_check(access(path, F_OK) == 0, "%s is not there", path);
    MPI_Barrier(MPI_COMM_WORLD);
    close_both(b);
    MPI_Barrier(MPI_COMM_WORLD);
    mpi_check(access(path, F_OK) != 0, "%s is left behind", path);
    free(path);
}

/* A folder of output whose status says that its run has not ended: otherwise any job that starts on this machine meanwhile
 * considers the stored rows unused, and removes them. */
static void make_output(char folder[64], bool make)
{
    char status[96], host[256] = "";
    int pid = (int)getpid();
    MPI_Bcast(&pid, 1, MPI_INT, 0, MPI_COMM_WORLD);
    snprintf(folder, 64, "/tmp/trireme-test-kept-%d", pid);
    snprintf(status, sizeof status, "%s/status.json", folder);
    if (mpi_test.rank == 0 && make) {
        mpi_check(mkdir(folder, 0700) == 0, "%s cannot be made", folder);
        FILE *file = fopen(status, "w");
        gethostname(host, sizeof host - 1);
        mpi_check(file &&
                      fprintf(file, "{\"state\": \"running\", \"pid\": %d, \"host\": \"%s\"}\n", pid, host) >
                          0 &&
                      fclose(file) == 0,
                  "%s", status);
    } else if (mpi_test.rank == 0) {
        unlink(status);
        rmdir(folder);
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

static void keep_and_find(const char *settings)
{
    char output[64];
    make_output(output, true);
    const char *all = mpi_text("%.400s data.cache=memory report.progress=no output=%s", settings, output);
    struct both first = open_both(all);
    uint64_t hash = first.hash;
    mpi_check(!first.found, "data were found before they were read");
    die(&first);
    for (int turn = 0; turn < 2; turn++) {
        struct both next = open_both(all);
        mpi_check(next.found, "data are not found, turn %d", turn);
        mpi_check(next.hash == hash, "other data are found, turn %d", turn);
        tr_data_forget(next.train);
        if (turn == 0) die(&next);
        else end_well(&next);
    }
    make_output(output, false);
}

MPI_CASE(the_next_start_finds_data)
{
    static const char *const ways[] = {"",
                                       "data.partition=vertical",
                                       "data.partition=replicated",
                                       "data.partition=replicated table.prune=no",
                                       "model.type=kmeans data.label=first",
                                       "model.type=kmeans data.label=first data.partition=replicated",
                                       "model.type=mf",
                                       "model.type=mf data.partition=replicated",
                                       "model.type=lda"};
    enum { WAYS = COUNT(ways) };
    struct text_file rows = write_rows(0, false, 3, 0);
    struct ratings *r = print_ratings(true);
    const char *layout, *table = write_table(false), *ratings = write_text("ratings", r->text, r->n),
                        *words = write_words();
    free(r);
    for (int way = 0; way < WAYS; way++)
        for (int i = 0; (layout = mpi_layout(i)); i++) {
            const char *file = way < 4 ? rows.path : way < 6 ? table : way < 8 ? ratings : words;
            if (!mpi_chosen(i, way, 4)) continue;
            keep_and_find(mpi_text("%s %s data.train=%s data.test=%s", layout, ways[way], file, file));
        }
}

enum damage {
    CUT,
    FLIPPED,
    FLIPPED_HEAD,
    NO_ROWS,
    NO_HEAD,
    UNSEALED,
    OF_ANOTHER_START,
    FILE_TOUCHED,
    ORDER_CHANGED,
    LAYOUT_CHANGED,
    DAMAGES
};

static void flip(const char *path, off_t at)
{
    int fd = open(path, O_RDWR);
    struct stat about = {.st_size = 0};
    unsigned char byte = 0;
    if (fd < 0 || fstat(fd, &about) != 0) abort();
    if (at < 0) at += about.st_size;
    mpi_check(pread(fd, &byte, 1, at) == 1, "%s is shorter", path);
    byte ^= 4;
    mpi_check(pwrite(fd, &byte, 1, at) == 1, "%s cannot be written", path);
    close(fd);
}

static void copy_file(const char *from, const char *to)
{
    static char bytes[1 << 20];
    FILE *in = fopen(from, "r"), *out = fopen(to, "w");
    size_t n = in ? fread(bytes, 1, sizeof bytes, in) : 0;
    mpi_check(out && n > 0 && n < sizeof bytes && fwrite(bytes, 1, n, out) == n, "%s is not copied", from);
    if (in) fclose(in);
    if (out) fclose(out);
}

/* To the files of the last rank, by that rank; old: the file of rows of an earlier start. */
static void do_damage(enum damage damage, const char *head, const char *rows, const char *old)
{
    char zeros[32] = {0};
    int fd;
    switch (damage) {
    case CUT: mpi_check(truncate(rows, 4096 + 100) == 0, "truncate"); break;
    case FLIPPED: flip(rows, 4096 + 8); break;
    case FLIPPED_HEAD: flip(head, -4096 + 1); break;
    case NO_ROWS: unlink(rows); break;
    case NO_HEAD: unlink(head); break;
    case UNSEALED: /* as it is while it is written */
        fd = open(rows, O_RDWR);
        mpi_check(fd >= 0 && pwrite(fd, zeros, sizeof zeros, 24) == (ssize_t)sizeof zeros, "no file of rows");
        close(fd);
        break;
    case OF_ANOTHER_START: copy_file(old, rows); break;
    default: break;
    }
}

static void damage_and_read(enum damage damage, const struct text_file *f)
{
    char group[64], head[256], rows[256], output[64];
    const char *old = mpi_path("rows");
    bool last = mpi_test.rank == mpi_test.size - 1;
    make_output(output, true);
    const char *settings = mpi_text(
        "data.train=%s data.test=%s data.cache=memory report.progress=no ranks.group_size=1 output=%s",
        f->path, f->path, output);
    snprintf(group, sizeof group, " ranks.layout=colocated ranks.group_size=%d", mpi_test.size);
    const char *other = mpi_text("%.400s%s%s", settings, damage == ORDER_CHANGED ? " data.order=file" : "",
                                 damage == LAYOUT_CHANGED ? group : "");
    struct both b = open_both(settings);
    uint64_t hash = b.hash;
    snprintf(head, sizeof head, "%s", b.train->state->cached->head);
    snprintf(rows, sizeof rows, "%s", b.train->state->cached->rows);
    if (last) copy_file(rows, old);
    if (damage == OF_ANOTHER_START) {
        end_well(&b);
        b = open_both(settings);
    }
    die(&b);
    if (last) do_damage(damage, head, rows, old);
    if (damage == FILE_TOUCHED && mpi_test.rank == 0)
        mpi_check(utimensat(AT_FDCWD, f->path, NULL, 0) == 0, "the file cannot be touched");
    MPI_Barrier(MPI_COMM_WORLD);
    b.tr = mpi_context(other);
    b.train = open_data(b.tr, TR_DATA_TRAIN, NULL);
    b.test = open_data(b.tr, TR_DATA_TEST, b.train);
    mpi_check(!is_found(b.train), "damage %d: data are found", damage);
    if (damage < ORDER_CHANGED)
        mpi_check(hash_data(b.train) * 3 + hash_data(b.test) == hash, "damage %d: other data", damage);
    hash = hash_data(b.train) * 3 + hash_data(b.test);
    die(&b);
    b = open_both(other);
    mpi_check(b.found && b.hash == hash, "damage %d: data are not found later", damage);
    end_well(&b);
    if (last) unlink(old);
    make_output(output, false);
}

MPI_CASE(what_is_not_as_it_was_is_read_again)
{
    struct text_file f = write_rows(1, false, 2, 0);
    for (int damage = 0; damage < DAMAGES; damage++)
        if (damage != LAYOUT_CHANGED || mpi_test.size > 1) damage_and_read((enum damage)damage, &f);
}

/* ---- dictionaries ---- */

enum { ALL_WORDS = 40000 };
static uint64_t sent; /* messages from one to one by this rank */

/* In place of MPI's, which is called by its other name. */
int MPI_Isend(const void *buffer, int n, MPI_Datatype type, int to, int tag, MPI_Comm comm,
              MPI_Request *request)
{
    sent++;
    return PMPI_Isend(buffer, n, type, to, tag, comm, request);
}

/* Number of messages of all ranks while a table is opened that has a column with `words` different words. */
static uint64_t messages_for(int words, const char *settings)
{
    const char *path = mpi_path("words");
    FILE *file = mpi_test.rank == 0 ? fopen(path, "w") : NULL;
    if (file) fprintf(file, "word,y\n");
    for (int i = 0; file && i < ALL_WORDS; i++) fprintf(file, "%064d,%d\n", i % words, i % 2);
    close_text(file);
    tr_context *tr =
        mpi_context(mpi_text("%s data.train=%s data.label=y data.columns=word:category", settings, path));
    tr_data *data = NULL;
    sent = 0;
    mpi_ok(tr_data_open(tr, TR_DATA_TRAIN, NULL, &data));
    uint64_t messages = sent;
    if (data) mpi_equal(data->total_rows, ALL_WORDS);
    MPI_Allreduce(MPI_IN_PLACE, &messages, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
    if (data) close_data(tr, &data);
    return messages;
}

/* Of few values all are one worker's, with whom each other one exchanges four messages at most, besides two gatherings by all
 * in rounds; of many, each worker has some. */
MPI_CASE(messages_of_a_dictionary_follow_its_bytes)
{
    enum { FEW = 100, MANY = ALL_WORDS / 2 };
    uint64_t others = (uint64_t)mpi_test.size - 1, gathering = 0;
    while (1 << gathering < mpi_test.size) gathering++;
    gathering *= 2 * (others + 1);
    uint64_t few = messages_for(FEW, "") - messages_for(FEW, "data.hash=64");
    uint64_t many = messages_for(MANY, "") - messages_for(MANY, "data.hash=64");
    mpi_check(few <= 4 * others + gathering, "%lu messages for few values", few);
    mpi_check(others == 0 || many >= others * (others + 1) + gathering, "%lu messages for many values", many);
}
