#define _GNU_SOURCE
#include "data_files.h"

#include <math.h>

#include "data/dataset.h"
#include "data/schema.h"

/* Writes the text, looks at it, and reads it by one reader. */
static int read_text(const char *text, size_t n, int header, struct tr_reader_options options,
                     struct tr_matrix *dense, struct tr_read_report *report)
{
    struct tr_head *shape = NULL;
    write_file("text", text, n);
    struct tr_files files = open_files("text");
    int status = tr_heads_read(&files, TR_FORMAT_CSV, header, &shape);
    options.heads = shape;
    if (status == TR_OK) status = tr_read_matrix(&files, 0, 1, &options, dense, report);
    free(shape);
    tr_files_close(&files);
    return status;
}

static const struct tr_reader_options plain = {.format = TR_FORMAT_CSV, .label = TR_LABEL_NONE};

/* ---- reading ---- */

static const struct {
    const char *text;
    int header, label;
    size_t rows, columns;
    float first[3], label_of_last;
} accepted[] = {
    {"1,2,3\n4,5,6\n", TR_HEADER_AUTO, TR_LABEL_NONE, 2, 3, {1, 2, 3}, 0},
    {"1;2.5;-3e2\r\n\r\n4;5;6", TR_HEADER_AUTO, TR_LABEL_NONE, 2, 3, {1, 2.5f, -300}, 0},
    {"1\t2\t3\n4\t5\t6\n", TR_HEADER_AUTO, TR_LABEL_LAST, 2, 2, {1, 2}, 6},
    {"1\t2\t3\n4\t5\t6\n", TR_HEADER_AUTO, TR_LABEL_FIRST, 2, 2, {2, 3}, 4},
    {"1 2  3\n 4\t5 6 \n\n", TR_HEADER_AUTO, TR_LABEL_NONE, 2, 3, {1, 2, 3}, 0},
    {"a,b,c\n1,2,3\n", TR_HEADER_AUTO, TR_LABEL_NONE, 1, 3, {1, 2, 3}, 0},
    {"\"x, y\";\"b\"\n1;2\n", TR_HEADER_AUTO, TR_LABEL_NONE, 1, 2, {1, 2}, 0},
    {"#RMSD,F1\n17.284,13558.30\n", TR_HEADER_AUTO, TR_LABEL_FIRST, 1, 1, {13558.3f}, 17.284f},
    {"1,2\n3,4\n", TR_HEADER_YES, TR_LABEL_NONE, 1, 2, {3, 4}, 0},
    {"\xef\xbb\xbf"
     "7,8\n",
     TR_HEADER_AUTO,
     TR_LABEL_NONE,
     1,
     2,
     {7, 8},
     0},
    {" \"1\" , \" 2 \",3\n4, 5 ,\"6\"\n", TR_HEADER_AUTO, TR_LABEL_NONE, 2, 3, {1, 2, 3}, 0},
    {"1\n2\n3\n", TR_HEADER_AUTO, TR_LABEL_NONE, 3, 1, {1}, 0},
    {"\n \n1;2", TR_HEADER_AUTO, TR_LABEL_NONE, 1, 2, {1, 2}, 0},
    {"+.5,1.,-0\n", TR_HEADER_AUTO, TR_LABEL_NONE, 1, 3, {.5f, 1, -0.0f}, 0},
};

START_TEST(tables_of_all_kinds_are_read)
{
    for (size_t i = 0; i < sizeof accepted / sizeof *accepted; i++) {
        struct tr_matrix d;
        struct tr_read_report report;
        struct tr_reader_options options = {.format = TR_FORMAT_CSV, .label = accepted[i].label};
        ck_ok(
            read_text(accepted[i].text, strlen(accepted[i].text), accepted[i].header, options, &d, &report));
        ck_assert_msg(d.rows == accepted[i].rows && d.columns == accepted[i].columns, "%zu: %zu × %zu", i,
                      d.rows, d.columns);
        for (size_t k = 0; k < d.columns && k < 3; k++)
            ck_assert_msg(d.value[k] == accepted[i].first[k], "%zu: value %zu is %g", i, k,
                          (double)d.value[k]);
        ck_assert(!d.label == (accepted[i].label == TR_LABEL_NONE));
        if (d.label) ck_assert_float_eq(d.label[d.rows - 1], accepted[i].label_of_last);
        ck_assert_uint_eq(report.rows, d.rows);
        ck_assert_uint_eq(report.nonzeros, d.rows * d.columns);
        tr_ids_free(&report.labels.bits);
        tr_matrix_free(&d);
    }
}
END_TEST

START_TEST(labels_are_noted_with_their_places)
{
    struct tr_matrix d;
    struct tr_read_report report;
    struct tr_reader_options options = {.format = TR_FORMAT_CSV, .label = TR_LABEL_LAST};
    ck_ok(read_text("1,2\n1,3\n1,2\n1,7\n1,8\n", 20, TR_HEADER_AUTO, options, &d, &report));
    ck_assert_uint_eq(report.labels.bits.n, 4);
    ck_assert_float_eq(tr_labels_value(&report.labels, 2), 7);
    ck_assert_float_eq(tr_labels_value(&report.labels, 3), 8);
    ck_assert_uint_eq(report.labels.place[2].offset, 12);
    tr_ids_free(&report.labels.bits);
    tr_matrix_free(&d);
}
END_TEST

START_TEST(reading_stops_at_as_many_rows_as_are_wanted)
{
    struct tr_matrix d;
    struct tr_read_report report;
    struct tr_reader_options options = {.format = TR_FORMAT_CSV, .most_rows = 2};
    ck_ok(read_text("1,2\n3,4\n5,x\n", 12, TR_HEADER_AUTO, options, &d, &report));
    ck_assert_uint_eq(d.rows, 2);
    ck_assert_float_eq(d.value[3], 4);
    tr_matrix_free(&d);
}
END_TEST

/* ---- refusals ---- */

static const struct {
    const char *record, *message;
} refused[] = {
    {"1,2", "/text:3: 2 columns, expected 3 as in the first line"},
    {"1", "/text:3: 1 column, expected 3"},
    {"1,2,3,4", "/text:3: more than 3 columns, expected 3"},
    {"1,2,3,", "/text:3: more than 3 columns"},
    {"1,,3", "/text:3: column 2: is empty, expected a number"},
    {"1, ,3", "column 2: is empty"},
    {",2,3", "column 1: is empty"},
    {"1,2,", "column 3: is empty"},
    {"1,\"\",3", "column 2: is empty"},
    {"1,NaN,3", "column 2: 'NaN' is not finite"},
    {"1,2,-inf", "column 3: '-inf' is not finite"},
    {"1,2,1e39", "column 3: '1e39' is too large for a 32-bit float"},
    {"1,x,3", "column 2: 'x' is not a number"},
    {"1,2 2,3", "column 2: '2 2' is not a number"},
    {"1,0x1,3", "column 2: '0x1' is not a number"},
    {"1,\"2,3", "column 2: '\"2' is not a number"},
    {"1,2\x01,3", "column 2: '2\\x01' found bytes that are not text"},
    {"1;2;3", "column 1: '1;2;3' is not a number"},
};

START_TEST(a_bad_record_is_named_with_line_and_column)
{
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        struct tr_matrix d;
        struct tr_read_report report;
        char text[256];
        int n = snprintf(text, sizeof text, "1,2,3\n\n%s\n", refused[i].record);
        ck_fails(read_text(text, (size_t)n, TR_HEADER_AUTO, plain, &d, &report), TR_ERR_DATA,
                 refused[i].message);
    }
}
END_TEST

START_TEST(bad_records_can_be_skipped)
{
    static const char text[] = "1,2\n1\n3,x\n4,5\n1,2,3\n";
    struct tr_reader_options options = {.format = TR_FORMAT_CSV, .skip_errors = true};
    struct tr_matrix d;
    struct tr_read_report report;
    ck_ok(read_text(text, sizeof text - 1, TR_HEADER_AUTO, options, &d, &report));
    ck_assert_uint_eq(d.rows, 2);
    ck_assert_mem_eq(d.value, ((float[]){1, 2, 4, 5}), 16);
    ck_assert_uint_eq(report.skipped, 3);
    ck_assert_uint_eq(report.first_skipped.offset, 4);
    tr_matrix_free(&d);
}
END_TEST

START_TEST(files_must_have_as_many_columns)
{
    struct tr_head *shape;
    write_file("part-a", "1,2\n", 4);
    write_file("part-b", "1,2,3\n", 6);
    struct tr_files files = open_files("part-*");
    ck_fails(tr_heads_read(&files, TR_FORMAT_CSV, TR_HEADER_AUTO, &shape), TR_ERR_DATA,
             "part-b: 3 columns, but ");
    tr_files_close(&files);
}
END_TEST

/* ---- by several readers ---- */

/* All shares together, by number of rows and a sum that tells each value and its column. */
static void sum_shares(const char *name, size_t readers, uint64_t deal, size_t chunk, size_t *rows,
                       double *sum)
{
    struct tr_files files = open_files(name);
    struct tr_head *shape;
    ck_ok(tr_heads_read(&files, TR_FORMAT_CSV, TR_HEADER_AUTO, &shape));
    struct tr_reader_options options = {
        .format = TR_FORMAT_CSV, .heads = shape, .deal = deal, .chunk_bytes = chunk};
    *rows = 0;
    *sum = 0;
    for (size_t k = 0; k < readers; k++) {
        struct tr_matrix d;
        struct tr_read_report report;
        ck_ok(tr_read_matrix(&files, k, readers, &options, &d, &report));
        *rows += d.rows;
        for (size_t i = 0; i < d.rows * d.columns; i++)
            *sum += (double)d.value[i] * (double)(1 + i % d.columns);
        tr_matrix_free(&d);
    }
    free(shape);
    tr_files_close(&files);
}

START_TEST(readers_share_the_rows_of_all_files)
{
    static char text[40000];
    size_t n = 0, rows = 0;
    double sum = 0, wanted = 0;
    n += (size_t)sprintf(text, "one,two,three\n");
    for (; n < sizeof text - 64; rows++) {
        n += (size_t)sprintf(text + n, "%zu,%zu.25,-%zu\n", rows, rows % 7, rows % 11);
        wanted += (double)rows + 2 * ((double)(rows % 7) + 0.25) - 3 * (double)(rows % 11);
    }
    write_file("share-1.csv", text, n);
    write_packed("share-2.csv.gz", text, n);
    write_file("share-3.csv", text, n - 1);
    for (size_t readers = 1; readers < 9; readers += 2)
        for (uint64_t deal = 0; deal < 10000; deal += 4096)
            for (size_t chunk = 0; chunk < 200; chunk += 67) {
                size_t found;
                sum_shares("share-*", readers, deal, chunk, &found, &sum);
                ck_assert_uint_eq(found, 3 * rows);
                ck_assert_double_eq(sum, 3 * wanted);
            }
}
END_TEST

/* ---- rows handed out ---- */

struct sum {
    size_t rows;
    double value, label;
};

/* Of rows of two columns, dense or sparse. */
static int add_rows(void *state, const tr_records *records)
{
    struct sum *sum = state;
    const tr_batch *b = &records->rows;
    ck_assert_uint_eq(records->first, sum->rows % 2);
    for (size_t i = 0; i < b->n; i++) {
        for (size_t k = 0; b->dense && k < 2; k++)
            sum->value += (double)b->dense[2 * i + k] * (double)(k + 1);
        for (size_t k = 0; b->begin && k < b->begin[i + 1] - b->begin[i]; k++)
            sum->value += (double)b->value[b->begin[i] + k] * (double)(b->column[b->begin[i] + k] + 1);
        sum->label += b->label ? (double)b->label[i] : 0;
    }
    sum->rows += b->n;
    return sum->rows > 5 ? tr_records_fail(records, 1, "enough") : TR_OK;
}

START_TEST(rows_are_handed_out)
{
    struct sum sum = {0};
    write_file("each", "l,a,b\n1,10,20\n\n2,30,40\n", 23);
    char *file = path_of("each");
    tr_read_options options = {.format = TR_FORMAT_CSV, .label = TR_LABEL_FIRST};
    ck_ok(tr_read_rows(&file, 1, &options, add_rows, &sum));
    ck_assert(sum.rows == 2 && sum.value == 50 + 110 && sum.label == 3);
    options.form = TR_ROWS_SPARSE;
    options.columns = 2;
    ck_ok(tr_read_rows(&file, 1, &options, add_rows, &sum));
    ck_assert(sum.rows == 4 && sum.value == 2 * (50 + 110) && sum.label == 6);
    ck_fails(tr_read_rows(&file, 1, &options, add_rows, &sum), TR_ERR_DATA, "/each:4: enough");
    options.columns = 4;
    ck_fails(tr_read_rows(&file, 1, &options, add_rows, &sum), TR_ERR_DATA, "3 columns, expected 4 as");
    write_file("each", "1 1:10 2:20 9:5\n2:40 4:1\n", 25);
    sum = (struct sum){0};
    options = (tr_read_options){.form = TR_ROWS_DENSE, .columns = 2, .first_index = 1};
    ck_fails(tr_read_rows(&file, 1, &options, add_rows, &(struct sum){.rows = 4}), TR_ERR_DATA,
             "/each:2: enough");
    ck_ok(tr_read_rows(&file, 1, &options, add_rows, &sum));
    ck_assert(sum.rows == 2 && sum.value == 50 + 80 && isnan(sum.label));
    free(file);
}
END_TEST

/* ---- looking ---- */

static const struct {
    const char *text;
    enum tr_format format;
} looks[] = {
    {"1 2:3\n", TR_FORMAT_LIBSVM},
    {"\n-1.5\t12:0.5 13:1\n", TR_FORMAT_LIBSVM},
    {"1\n2\n3\n1 2 3\n", TR_FORMAT_DOCWORD},
    {"1\n2\n0\n", TR_FORMAT_DOCWORD},
    {"1\n2\n3\n4\n", TR_FORMAT_AUTO},
    {"1:2 3:4\n", TR_FORMAT_LIBSVM},
    {"1\n-1\n1 7:3\n", TR_FORMAT_LIBSVM},
    {"# a comment\n1 7:3\n", TR_FORMAT_LIBSVM},
    {"a,b\n1,2\n", TR_FORMAT_CSV},
    {"1,2\n", TR_FORMAT_CSV},
    {"1::2::3\n", TR_FORMAT_CSV},
    {"a b c\n", TR_FORMAT_AUTO},
    {"1 2 3\n", TR_FORMAT_CSV},
    /* with something wrong in the first line, which LIBSVM's reader is to name */
    {"1 -1:1 2:3\n", TR_FORMAT_LIBSVM},
    {"1,3 1:1 2:1\n2,4 1:1 2:2\n", TR_FORMAT_LIBSVM},
    {"spam 1:1\n1 1:1\n", TR_FORMAT_LIBSVM},
    {"1 x:1 2:2\n1 1:1\n", TR_FORMAT_LIBSVM},
    /* times of day */
    {"1,12:30\n0,12:31\n", TR_FORMAT_CSV},
    {"1,3 12:30\n0,3 12:31\n", TR_FORMAT_CSV},
    {"y\ttime\n1\t12:30\n0\t12:31\n", TR_FORMAT_CSV},
    {"2020-01-01 12:30 1\n2020-01-01 12:31 0\n", TR_FORMAT_CSV},
    {"Mon 9:30 17:45 1\nTue 9:30 17:45 0\n", TR_FORMAT_CSV},
};

START_TEST(formats_are_told_by_their_first_lines)
{
    for (size_t i = 0; i < sizeof looks / sizeof *looks; i++) {
        enum tr_format format;
        write_file("looks", looks[i].text, strlen(looks[i].text));
        struct tr_files files = open_files("looks");
        ck_ok(tr_format_detect(&files, &format));
        ck_assert_msg(format == looks[i].format, "%zu: format %d", i, (int)format);
        tr_files_close(&files);
    }
}
END_TEST

START_TEST(another_format_is_named)
{
    static const struct {
        const char *text, *setting, *message;
    } all[] = {
        {"1 2:3\n", "data.format=csv", "looks like data.format: libsvm, expected csv"},
        {"1 2:3\n", "model.type=lda", "looks like data.format: libsvm, expected docword"},
        {"1\n2\n1\n1 1 1\n", "model.type=mf", "looks like data.format: docword, expected ratings"},
        {"1\n2\n1\n1 1 1\n", "model.type=kmeans", "looks like data.format: docword, expected csv"},
        {"1\n2\n1\n1 1 1\n", "model.type=logistic", "looks like data.format: docword, expected libsvm"}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        tr_job *job;
        enum tr_format format;
        ck_ok(tr_job_parse("data: {train: x}\n", 17, "test", 1, (char *[]){(char *)(uintptr_t)all[i].setting},
                           &job));
        write_file("looks", all[i].text, strlen(all[i].text));
        struct tr_files files = open_files("looks");
        ck_fails(tr_data_format(job, &files, &format), TR_ERR_DATA, all[i].message);
        tr_files_close(&files);
        tr_job_free(job);
    }
}
END_TEST

/* ---- which texts are equal ---- */

START_TEST(a_number_is_its_value_and_a_word_its_bytes)
{
    static const char *const form[][2] = {
        {"1", "1"},
        {"1.0", "1"},
        {"+1", "1"},
        {"1e0", "1"},
        {"01", "1"},
        {"10E-1", "1"},
        {"0", "0"},
        {"-0.0", "0"},
        {".50", "0.5"},
        {"-5e-3", "-0.005"},
        {"1500.", "1500"},
        {"15e2", "1500"},
        {"1e21", "1e21"},
        {"1e20", "100000000000000000000"},
        {"1e-6", "0.000001"},
        {"1e-7", "1e-7"},
        {"1.25E30", "1.25e30"},
        {"20240103", "20240103"},
        {"12345678901234567891.0", "12345678901234567891"}, /* more than a double tells apart */
        {"1e999", "1e999"},
        {"", ""},
        {"+", "+"},
        {"1.2.3", "1.2.3"},
        {"1e", "1e"},
        {"1e+", "1e+"},
        {"0x10", "0x10"},
        {"12a", "12a"},
        {"-", "-"},
        {"1,5", "1,5"},
        {"nan", "nan"},
        {" 1", " 1"},
        {"1e123456", "1e123456"}, /* too long for an exponent */
    };
    char room[TR_VALUE_ROOM], longest[TR_VALUE_DIGITS + 2];
    for (size_t i = 0; i < sizeof form / sizeof *form; i++) {
        size_t n = strlen(form[i][0]);
        const char *is = tr_value_text(form[i][0], &n, room);
        ck_assert_msg(n == strlen(form[i][1]) && memcmp(is, form[i][1], n) == 0, "%s is %.*s, not %s",
                      form[i][0], (int)n, is, form[i][1]);
        char again[TR_VALUE_ROOM], copy[TR_VALUE_ROOM];
        memcpy(copy, is, n);
        size_t m = n;
        ck_assert_ptr_eq(tr_value_text(copy, &m, again), copy); /* a form is its own form */
    }
    for (size_t digits = 1; digits <= TR_VALUE_DIGITS + 1; digits++) {
        memset(longest, '7', digits);
        longest[0] = '0';
        size_t n = digits;
        ck_assert_uint_eq(tr_value_text(longest, &n, room) == longest,
                          digits == 1 || digits > TR_VALUE_DIGITS);
    }
}
END_TEST

START_TEST(labels_ascend_by_value_and_then_by_bytes)
{
    static const char *const label[] = {"-1e30", "-20",      "-3",       "-0.5", "0",   "0.25", "3", "20",
                                        "100",   "16777216", "16777217", "1e30", "10a", "B",    "a", "ab"};
    enum { N = sizeof label / sizeof *label };
    for (int i = 0; i < N; i++)
        for (int k = 0; k < N; k++) {
            int order = tr_value_compare(label[i], strlen(label[i]), label[k], strlen(label[k]));
            ck_assert_msg((order > 0) - (order < 0) == (i > k) - (i < k), "%s, %s: %d", label[i], label[k],
                          order);
        }
}
END_TEST

UNIT_MAIN("csv", tables_of_all_kinds_are_read, labels_are_noted_with_their_places,
          reading_stops_at_as_many_rows_as_are_wanted, a_bad_record_is_named_with_line_and_column,
          bad_records_can_be_skipped, files_must_have_as_many_columns, readers_share_the_rows_of_all_files,
          rows_are_handed_out, formats_are_told_by_their_first_lines, another_format_is_named,
          a_number_is_its_value_and_a_word_its_bytes, labels_ascend_by_value_and_then_by_bytes)
