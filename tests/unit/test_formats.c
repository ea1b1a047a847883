/* Formats of text, LIBSVM, CSV, ratings and bags of words: what is read, what is refused with which words, and which format a
 * file has. tests/cli/test_bad_data.sh tries the same through the program. */
#include "reading.h"

#include "data/dataset.h"
#include "data/field.h"
#include "data/schema.h"

static const struct tr_reader_options libsvm = {.format = TR_FORMAT_LIBSVM, .lowest_index = 1},
                                      csv = {.format = TR_FORMAT_CSV, .label = TR_LABEL_NONE},
                                      ratings = {.format = TR_FORMAT_RATINGS},
                                      docword = {.format = TR_FORMAT_DOCWORD};

/* ---- ratings and bags of words ---- */

static struct tr_triples triples;
static uint64_t records[8];

/* Writes the text and reads it as `triples`; again, as text, if ids are no numbers. */
static int read_triples(const char *text, size_t n, struct tr_reader_options options)
{
    struct tr_head *heads = NULL;
    unit_write("text", text, n);
    open_files("text");
    int status = tr_heads_read(&files, options.format, TR_HEADER_AUTO, &heads);
    options.heads = heads;
    options.records = records;
    while (status == TR_OK) {
        tr_triples_free(&triples);
        status = tr_read_triples(&files, 0, 1, &options, &triples, &report);
        if (status != TR_OK || !(report.text_rows || report.text_columns)) break;
        options.text_rows |= report.text_rows;
        options.text_columns |= report.text_columns;
    }
    if (status != TR_OK) triples = (struct tr_triples){0};
    free(heads);
    return status;
}

static int print_id(char *to, const struct tr_ids *ids, uint32_t place)
{
    if (!ids->are_text) return sprintf(to, "%lu,", ids->number[place]);
    return sprintf(to, "%.*s,", (int)(ids->begin[place + 1] - ids->begin[place]),
                   ids->text + ids->begin[place]);
}

/* All records as user,item,rating; */
static const char *shown(void)
{
    static char text[512];
    char *to = text;
    *to = '\0';
    for (size_t i = 0; i < triples.n; i++) {
        to += print_id(to, &triples.rows, triples.triple[i].row);
        to += print_id(to, &triples.columns, triples.triple[i].column);
        to += sprintf(to, "%g;", (double)triples.triple[i].value);
    }
    return text;
}

UNIT_CASE(ratings_of_all_kinds_are_read)
{
    static const char *const accepted[][2] = {
        {"1\t2\t3\n4\t5\t0.5\n", "1,2,3;4,5,0.5;"},
        {"1\t2\t3\t874965758\n4\t5\t1\t874965758", "1,2,3;4,5,1;"},
        {"1::2::3::978300760\r\n4::5::2\r\n", "1,2,3;4,5,2;"},
        {"userId,movieId,rating,timestamp\n1,2,3.5,99\n", "1,2,3.5;"},
        {"1;2;3\n", "1,2,3;"},
        {"1 2 3\n  4   5\t 1e1  \n\n \n", "1,2,3;4,5,10;"},
        {"\"1\",\"2\",\"3\"\n4,5,6\n", "1,2,3;4,5,6;"},
        {" 1 , 2 , 3 , x\n", "1,2,3;"},
        {"18446744073709551615,123456789012,-1\n", "18446744073709551615,123456789012,-1;"},
        {"18446744073709551616,2,1\n3,2,1\n", "18446744073709551616,2,1;3,2,1;"},
        {"ann,2,1\n3,2,1\n", "ann,2,1;3,2,1;"},
        {"1,x y,1\n2,3,1\n", "1,x y,1;2,3,1;"},
        {"007,1,5\n7,1,4\n", "007,1,5;7,1,4;"},
        {"-1,1,5\n", "-1,1,5;"},
        {"\"a, \"b\"\" , \"it\"\"em\",5\n", "a, \"b\",it\"\"em,5;"},
        {"Ann Lee\tThe \"Matrix\", 1999\t5\n", "Ann Lee,The \"Matrix\", 1999,5;"},
        {"\xc3\xa4::b::5\n", "\xc3\xa4,b,5;"},
        {"\xef\xbb\xbf\061,2,3\n", "1,2,3;"},
    };
    for (size_t i = 0; i < COUNT(accepted); i++) {
        ck_ok(read_triples(accepted[i][0], strlen(accepted[i][0]), ratings));
        ck_assert_str_eq(shown(), accepted[i][1]);
        ck_assert_uint_eq(report.rows, triples.n);
    }
}

UNIT_CASE(bags_of_words_are_read)
{
    static const char text[] = "3\n10\n4\n2 1 5\n1 10 1\r\n\n3 9 1000000\n 2  1\t1 ";
    static const struct tr_triple wanted[] = {{1, 0, 5}, {0, 9, 1}, {2, 8, 1000000}, {1, 0, 1}};
    ck_ok(read_triples(text, sizeof text - 1, docword));
    ck_assert_uint_eq(triples.n, 4);
    ck_assert_uint_eq(records[0], 4);
    ck_assert_mem_eq(triples.triple, wanted, sizeof wanted);
}

UNIT_CASE(headers_of_bags_are_checked)
{
    struct tr_head *heads;
    static const char *const bad[] = {"3\n10\n", "x\n10\n2\n1 1 1\n", "3 10\n2\n1 1 1\n", "1 1 1\n1 2 3\n"};
    for (size_t i = 0; i < COUNT(bad); i++)
        ck_fails(read_triples(bad[i], strlen(bad[i]), docword), TR_ERR_DATA, "/text: expected three lines");
    ck_fails(read_triples("1\n5000000000\n1\n1 1 1\n", 21, docword), TR_ERR_DATA, "more than 2^32 - 2");
    unit_write_text("bag-a", "2\n5\n2\n1 1 1\n2 2 1\n");
    unit_write_text("bag-b", "1\n5\n2\n1 1 1\n");
    open_files("bag-*");
    ck_ok(tr_heads_read(&files, TR_FORMAT_DOCWORD, TR_HEADER_AUTO, &heads));
    ck_assert_uint_eq(tr_docword_base(&files, heads, 1), 2);
    ck_assert_uint_eq(tr_docword_base(&files, heads, 2), 3);
    ck_ok(tr_docword_check(&files, heads, (uint64_t[]){2, 2}));
    ck_fails(tr_docword_check(&files, heads, (uint64_t[]){2, 1}), TR_ERR_DATA,
             "bag-b: 1 records, expected 2");
    free(heads);
    unit_write_text("bag-b", "1\n6\n1\n1 1 1\n");
    ck_fails(tr_heads_read(&files, TR_FORMAT_DOCWORD, TR_HEADER_AUTO, &heads), TR_ERR_DATA, "one vocabulary");
}

UNIT_CASE(public_data_are_read_whole)
{
    static const struct {
        const char *name;
        enum tr_format format;
        uint64_t records, rows, columns;
    } all[] = {{"a9a/a9a.gz", TR_FORMAT_LIBSVM, 32561, 451592, 123},
               {"ml-100k/u1.base.gz", TR_FORMAT_RATINGS, 80000, 943, 1650},
               {"anime/anime_ratings.dat.gz", TR_FORMAT_RATINGS, 419943, 4714, 7157},
               {"reuters395/docword.reuters.txt", TR_FORMAT_DOCWORD, 60114, 0, 0}};
    for (size_t i = 0; i < COUNT(all); i++) {
        struct tr_head *heads = NULL;
        const char *path = unit_public_data(all[i].name);
        if (!path) continue;
        open_files(path);
        if (all[i].format == TR_FORMAT_LIBSVM) {
            ck_ok(read_share(0, 1, libsvm));
            ck_assert(report.rows == all[i].records && report.nonzeros == all[i].rows);
            ck_assert(report.lowest == 1 && report.highest == all[i].columns && report.labels.bits.n == 2 &&
                      !matrix.value);
            continue;
        }
        ck_ok(tr_heads_read(&files, all[i].format, TR_HEADER_AUTO, &heads));
        struct tr_reader_options options = {.format = all[i].format, .heads = heads, .records = records};
        tr_ids_free(&report.labels.bits);
        ck_ok(tr_read_triples(&files, 0, 1, &options, &triples, &report));
        ck_assert_uint_eq(triples.n, all[i].records);
        ck_assert_uint_eq(triples.rows.n, all[i].rows);
        ck_assert_uint_eq(triples.columns.n, all[i].columns);
        if (all[i].format == TR_FORMAT_DOCWORD) ck_ok(tr_docword_check(&files, heads, records));
        tr_triples_free(&triples);
        free(heads);
    }
}

/* ---- rows ---- */

UNIT_CASE(libsvm_rows_are_read_as_they_stand)
{
    const char text[] = "+1 1:0.5 7:1 4294967294:-2e-3\r\n\n  # a comment\n-1.5\t2:.5\t 3:1.  # more\n"
                        "0 \n1 5:+3 6:-0#x\n2 1:1e-60 2:1e-40";
    ck_ok(read_text(text, sizeof text - 1, libsvm));
    const uint64_t begin[] = {0, 3, 5, 5, 7, 9};
    const uint32_t column[] = {1, 7, 4294967294u, 2, 3, 5, 6, 1, 2};
    const float value[] = {0.5f, 1, -2e-3f, .5f, 1, 3, -0.0f, 0, 1e-40f}, label[] = {1, -1.5f, 0, 1, 2};
    ck_assert_uint_eq(matrix.rows, 5);
    ck_assert_mem_eq(matrix.begin, begin, sizeof begin);
    ck_assert_mem_eq(matrix.column, column, sizeof column);
    ck_assert_mem_eq(matrix.value, value, sizeof value);
    ck_assert_mem_eq(matrix.label, label, sizeof label);
    ck_assert(report.rows == 5 && report.nonzeros == 9);
    ck_assert(report.lowest == 1 && report.highest == 4294967294u);
}

UNIT_CASE(values_are_kept_only_if_one_is_not_1)
{
    ck_ok(read_text("1 1:1 2:1\n0 3:1.0\n", 18, libsvm));
    ck_assert_ptr_null(matrix.value);
    ck_ok(read_text("1 1:1 2:1\n0 3:2 4:1\n", 20, libsvm));
    ck_assert_mem_eq(matrix.value, ((float[]){1, 1, 2, 1}), 16);
}

UNIT_CASE(tables_of_all_kinds_are_read)
{
    static const struct {
        const char *text;
        int label;
        size_t rows, columns;
        float first[3], label_of_last;
    } accepted[] = {
        {"1,2,3\n4,5,6\n", TR_LABEL_NONE, 2, 3, {1, 2, 3}, 0},
        {"1;2.5;-3e2\r\n\r\n4;5;6", TR_LABEL_NONE, 2, 3, {1, 2.5f, -300}, 0},
        {"1\t2\t3\n4\t5\t6\n", TR_LABEL_LAST, 2, 2, {1, 2}, 6},
        {"1\t2\t3\n4\t5\t6\n", TR_LABEL_FIRST, 2, 2, {2, 3}, 4},
        {"1 2  3\n 4\t5 6 \n\n", TR_LABEL_NONE, 2, 3, {1, 2, 3}, 0},
        {"a,b,c\n1,2,3\n", TR_LABEL_NONE, 1, 3, {1, 2, 3}, 0},
        {"\"x, y\";\"b\"\n1;2\n", TR_LABEL_NONE, 1, 2, {1, 2}, 0},
        {"#RMSD,F1\n17.284,13558.30\n", TR_LABEL_FIRST, 1, 1, {13558.3f}, 17.284f},
        {"\xef\xbb\xbf\067,8\n", TR_LABEL_NONE, 1, 2, {7, 8}, 0},
        {" \"1\" , \" 2 \",3\n4, 5 ,\"6\"\n", TR_LABEL_NONE, 2, 3, {1, 2, 3}, 0},
        {"1\n2\n3\n", TR_LABEL_NONE, 3, 1, {1}, 0},
        {"\n \n1;2", TR_LABEL_NONE, 1, 2, {1, 2}, 0},
        {"+.5,1.,-0\n", TR_LABEL_NONE, 1, 3, {.5f, 1, -0.0f}, 0},
    };
    for (size_t i = 0; i < COUNT(accepted); i++) {
        struct tr_reader_options options = {.format = TR_FORMAT_CSV, .label = accepted[i].label};
        ck_ok(read_text(accepted[i].text, strlen(accepted[i].text), options));
        ck_assert_msg(matrix.rows == accepted[i].rows && matrix.columns == accepted[i].columns,
                      "%zu: %zu × %zu", i, matrix.rows, matrix.columns);
        for (size_t k = 0; k < matrix.columns && k < 3; k++)
            ck_assert_float_eq(matrix.value[k], accepted[i].first[k]);
        ck_assert(!matrix.label == (accepted[i].label == TR_LABEL_NONE));
        if (matrix.label) ck_assert_float_eq(matrix.label[matrix.rows - 1], accepted[i].label_of_last);
        ck_assert(report.rows == matrix.rows && report.nonzeros == matrix.rows * matrix.columns);
    }
    struct tr_head *heads; /* data.header: yes */
    unit_write_text("text", "1,2\n3,4\n");
    open_files("text");
    ck_ok(tr_heads_read(&files, TR_FORMAT_CSV, TR_HEADER_YES, &heads));
    struct tr_reader_options options = csv;
    options.heads = heads;
    tr_matrix_free(&matrix);
    tr_ids_free(&report.labels.bits);
    ck_ok(tr_read_matrix(&files, 0, 1, &options, &matrix, &report));
    ck_assert(matrix.rows == 1 && matrix.value[0] == 3);
    free(heads);
}

UNIT_CASE(reading_stops_at_as_many_rows_as_are_wanted)
{
    ck_ok(read_text("1,2\n3,4\n5,x\n", 12,
                    (struct tr_reader_options){.format = TR_FORMAT_CSV, .most_rows = 2}));
    ck_assert(matrix.rows == 2 && matrix.value[3] == 4);
}

/* ---- labels ---- */

UNIT_CASE(labels_are_noted_with_their_places)
{
    uint64_t line;
    ck_ok(read_text("1 1:1\n-1 1:1\n1 1:1\n\n7 1:1\n8 1:1\n", 32, libsvm));
    ck_assert_uint_eq(report.labels.bits.n, 4);
    ck_assert_float_eq(tr_labels_value(&report.labels, 2), 7);
    ck_ok(tr_files_line(&files, report.labels.place[2].file, report.labels.place[2].offset, &line));
    ck_assert_uint_eq(line, 5);
    struct tr_reader_options last = {.format = TR_FORMAT_CSV, .label = TR_LABEL_LAST};
    ck_ok(read_text("1,2\n1,3\n1,2\n1,7\n1,8\n", 20, last));
    ck_assert_uint_eq(report.labels.bits.n, 4);
    ck_assert_float_eq(tr_labels_value(&report.labels, 3), 8);
    ck_assert_uint_eq(report.labels.place[2].offset, 12);
}

UNIT_CASE(as_many_labels_are_told_apart_as_make_classes)
{
    enum { ROWS = TR_LABELS_MOST + 1000 };
    char *text = malloc((size_t)ROWS * 16);
    for (int many = 0; many < 2; many++) {
        size_t n = 0;
        for (int i = 0; i < ROWS; i++)
            n += (size_t)sprintf(text + n, "%d 1:1\n", many ? i : i / 2 % 1000 - 500);
        ck_ok(read_text(text, n, libsvm));
        ck_assert_uint_eq(report.labels.bits.n, many ? TR_LABELS_MOST : 1000);
    }
    ck_assert_float_eq(tr_labels_value(&report.labels, 7), 7);
    free(text);
}

/* ---- refusals ---- */

/* A record that is malformed stands behind a sound one. */
static const struct tr_refusals {
    const struct tr_reader_options *options;
    const char *before, *after, *line;
    struct {
        const char *record, *message;
    } refused[40];
} refusals[] = {
    {&libsvm,
     "1 1:1\n\n",
     "",
     "/text:3: ",
     {{"1 0:1", "'0:1': the index is 0, expected 1 or more"},
      {"1 -3:1", "'-3:1': the index is negative"},
      {"1 x:1", "'x:1': the index is not a number"},
      {"1 1.5:1", "'1.5:1': the index is not a number"},
      {"1 +3:1", "'+3:1': the index is not a number"},
      {"1 4294967295:1", "the index is too large, expected at most 4294967294"},
      {"1 99999999999999999999999:1", "the index is too large"},
      {"1 5:1 5:1", "'5:1': the index is the same as the one before"},
      {"1 5:1 4:2", "'4:2': the index is smaller than the one before"},
      {"1 5", "'5': expected a colon and a value"},
      {"1 5 :1", "'5': expected a colon and a value"},
      {"1 5:", "'5:': the value is missing"},
      {"1 5: 1", "'5:': the value is missing"},
      {"1 5:a", "'5:a': the value is not a number"},
      {"1 5:1e", "'5:1e': the value is not a number"},
      {"1 5:0x10", "the value is not a number"},
      {"1 5:1:2", "the value is not a number"},
      {"1 5:.", "the value is not a number"},
      {"1 5:nan", "'5:nan': the value is not finite"},
      {"1 5:-Inf", "'5:-Inf': the value is not finite"},
      {"1 5:1e999", "'5:1e999': the value is too large"},
      {"1 5:1e39", "the value is too large"},
      {"1 5:-3.5e38", "the value is too large"},
      {"nan 5:1", "'nan': the label is not finite"},
      {"1e40 5:1", "'1e40': the label is too large"},
      {"x 5:1", "'x': the label is not a number"},
      {"5:1 6:1", "'5:1': expected a label"},
      {"1,2 5:1", "'1,2': several labels"},
      {"1 qid:x 5:1", "'qid:x': the query id (qid, of ranking data) is not a whole number behind the label"},
      {"1 5:1 qid:3", "'qid:3': the query id"},
      {"1 5:\x01", "'5:\\x01': found bytes that are not text"},
      {"\177ELF", "'\\x7fELF': found bytes that are not text"},
      {"\xef\xbb\xbf\061 5:1", "'\\ufeff1': the label is not a number"},
      {"1 5:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
       "aaaaaa…': the value is not a number"}}},
    {&csv,
     "1,2,3\n\n",
     "",
     "/text:3: ",
     {{"1,2", "2 columns, expected 3 as in the first line"},
      {"1", "1 column, expected 3"},
      {"1,2,3,4", "more than 3 columns, expected 3"},
      {"1,2,3,", "more than 3 columns"},
      {"1,,3", "column 2: is empty, expected a number"},
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
      {"1;2;3", "column 1: '1;2;3' is not a number"}}},
    {&ratings,
     "1,2,3\n\n",
     "4,5,6\n",
     "/text:3: ",
     {{"1,2", "'1': expected three columns"},
      {"1", "'1': expected three columns"},
      {"1,2,", "'1': the rating is missing"},
      {"1,2,,5", "the rating is missing"},
      {",2,3", "the user is missing"},
      {"1,,3", "the item is missing"},
      {"\"\",2,3", "the user is missing"},
      {"1,2,x", "'x': the rating is not a number"},
      {"1,2,3x", "'3x': the rating is not a number"},
      {"1,2,nan", "'nan': the rating is not finite"},
      {"1,2,1e99", "'1e99': the rating is too large"},
      {"1,2\x01,3", "not text"}}},
    {&docword,
     "3\n10\n2\n1 1 1\n",
     "",
     "/text:5: ",
     {{"4 1 1", "'4': no such document, expected 1 to 3"},
      {"0 1 1", "'0': no such document"},
      {"1 11 1", "'11': no such word, expected 1 to 10"},
      {"1 0 1", "'0': no such word"},
      {"1 1 0", "'0': the count is wrong, expected 1 to 1000000"},
      {"1 1 1000001", "'1000001': the count is wrong"},
      {"1 1 1000000000", "the count is wrong"},
      {"99999999999999999999 1 1", "no such document"},
      {"1 1", "expected three columns"},
      {"1", "expected three columns"},
      {"1 1 1 1", "expected no more than three columns"},
      {"1 x 1", "'x': the word is not a whole number"},
      {"x 1 1", "'x': the document is not a whole number"},
      {"1 1 x", "'x': the count is not a whole number"},
      {"1 1 1.5", "the count is not a whole number"},
      {"1 -1 1", "'-1': the word is not a whole number"},
      {"1,1,1", "the document is not a whole number"},
      {"1 1\x01 1", "not text"}}},
};

static int read_any(const char *text, size_t n, struct tr_reader_options options)
{
    bool are_triples = options.format == TR_FORMAT_RATINGS || options.format == TR_FORMAT_DOCWORD;
    return are_triples ? read_triples(text, n, options) : read_text(text, n, options);
}

UNIT_CASE(a_bad_record_is_named_with_its_line)
{
    for (const struct tr_refusals *r = refusals; r < refusals + COUNT(refusals); r++)
        for (size_t i = 0; i < COUNT(r->refused) && r->refused[i].record; i++) {
            char text[256];
            int n = snprintf(text, sizeof text, "%s%s\n%s", r->before, r->refused[i].record, r->after);
            ck_fails(read_any(text, (size_t)n, *r->options), TR_ERR_DATA, r->refused[i].message);
            ck_contains(tr_error_text(), r->line);
        }
}

UNIT_CASE(bad_records_can_be_skipped)
{
    static const struct {
        const struct tr_reader_options *options;
        const char *text;
        size_t rows, skipped, first; /* first: the offset of the first one skipped */
    } all[] = {{&libsvm, "1 1:1\nx 2:5\n1 2:3 2:1\n-1 3:1\n4 5:\n", 2, 3, 6},
               {&csv, "1,2\n1\n3,x\n4,5\n1,2,3\n", 2, 3, 4},
               {&ratings, "1,2,3\n1,2\n4,5,6\n1,2,x\n", 2, 2, 6}};
    for (size_t i = 0; i < COUNT(all); i++) {
        struct tr_reader_options options = *all[i].options;
        options.skip_errors = true;
        ck_ok(read_any(all[i].text, strlen(all[i].text), options));
        ck_assert_uint_eq(report.rows, all[i].rows);
        ck_assert_uint_eq(report.skipped, all[i].skipped);
        ck_assert_uint_eq(report.first_skipped.offset, all[i].first);
        if (i == 0)
            ck_assert(!matrix.value && matrix.column[0] == 1 &&
                      matrix.column[1] == 3); /* the value 3 is skipped */
        if (i == 1) ck_assert_mem_eq(matrix.value, ((float[]){1, 2, 4, 5}), 16);
        if (i == 2) ck_assert_str_eq(shown(), "1,2,3;4,5,6;");
    }
}

UNIT_CASE(nul_bytes_are_refused)
{
    ck_fails(read_text("1 1:1\n1 2:\0 3:1\n", 16, libsvm), TR_ERR_DATA, ":2: '2:\\x00': found");
    ck_fails(read_text("\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 16, libsvm), TR_ERR_DATA, "not text");
}

UNIT_CASE(text_where_training_has_numbers_is_refused)
{
    struct tr_reader_options known = {.format = TR_FORMAT_RATINGS, .settled = true};
    ck_fails(read_triples("1,2,3\nx,2,3\n", 12, known), TR_ERR_DATA, ":2: 'x': the user is no whole number");
    ck_fails(read_triples("1,2,3\n3,x,3\n", 12, known), TR_ERR_DATA, ":2: 'x': the item is no whole number");
}

UNIT_CASE(endless_lines_are_refused)
{
    struct tr_reader_options skip = {.format = TR_FORMAT_LIBSVM, .skip_errors = true};
    size_t n = TR_TEXT_LONGEST_LINE + 16, rows = 0, skipped = 0;
    char *text = malloc(n + 16);
    for (int endless = 0; endless < 2; endless++, n += 16) {
        memset(text, '1', n);
        memcpy(text, "1 1:1\n", 6);
        memcpy(text + n - 7, "\n2 2:1\n", 7);
        /* at first just short enough, but no number of this size */
        if (endless)
            ck_fails(read_text(text, n, libsvm), TR_ERR_DATA,
                     "/text:2: record longer than 64 MiB: data.max_record");
        ck_ok(read_text(text, n, skip));
        ck_assert_uint_eq(report.skipped, 1);
        ck_assert_uint_eq(report.rows, 2);
    }
    skip.deal = 1 << 20;
    for (size_t k = 0; k < 2; k++) {
        ck_ok(read_share(k, 2, skip));
        rows += report.rows;
        skipped += report.skipped;
    }
    ck_assert(rows == 2 && skipped == 1);
    free(text);
}

UNIT_CASE(input_that_is_not_there_is_named)
{
    unit_write("empty", "", 0);
    ck_fails(try_files("missing"), TR_ERR_NO_INPUT, "/missing: no such file");
    ck_fails(try_files("none*"), TR_ERR_NO_INPUT, "/none*: no such file");
    ck_fails(try_files(""), TR_ERR_NO_INPUT, "/empty: empty"); /* the files in the folder */
    ck_fails(try_files("empty"), TR_ERR_NO_INPUT, "/empty: empty");
    ck_fails(tr_files_open(NULL, 0, &files), TR_ERR_NO_INPUT, "no input");
}

UNIT_CASE(globs_are_sorted)
{
    unit_write("part-b", "1 1:1\n", 6);
    unit_write("part-a", "1 1:1\n1 1:1\n", 12);
    unit_write("part-C", "1", 1);
    open_files("part-*");
    ck_assert(files.n == 3 && files.total == 19);
    ck_assert(files.file[0].size == 1 && files.file[1].size == 12);
}

/* ---- chunks ---- */

/* Of every size, however it cuts lines. */
UNIT_CASE(chunk_borders_do_not_matter)
{
    static const char *const texts[] = {
        "1 1:0.25 22:1 333:12345678.5\r\n-1 4444:1\n\n# c\n2 1:1 2:1e-3 #\n3\n",
        "a,b\n1,2\n\n 3.5,\"4\"\r\n-1e3,0.25\n5,6"};
    for (int form = 0; form < 2; form++) {
        struct tr_reader_options options = form ? csv : libsvm;
        size_t n = strlen(texts[form]);
        ck_ok(read_text(texts[form], n, options));
        struct tr_matrix whole = matrix;
        matrix = (struct tr_matrix){0};
        for (options.chunk_bytes = 1; options.chunk_bytes < n + 3; options.chunk_bytes++) {
            ck_ok(read_share(0, 1, options));
            ck_assert_uint_eq(matrix.rows, whole.rows);
            ck_assert_mem_eq(matrix.value, whole.value, 4 * report.nonzeros);
            if (form) continue;
            ck_assert_uint_eq(report.text_bytes, n);
            ck_assert_mem_eq(matrix.begin, whole.begin, 8 * (whole.rows + 1));
            ck_assert_mem_eq(matrix.column, whole.column, 4 * report.nonzeros);
        }
        tr_matrix_free(&whole);
    }
}

static int note_progress(void *state, uint64_t bytes)
{
    *(uint64_t *)state = bytes;
    return bytes > 1000 ? TR_ERR_STOPPED : TR_OK;
}

UNIT_CASE(progress_is_told_and_can_stop)
{
    uint64_t bytes = 0;
    struct tr_reader_options options = {
        .format = TR_FORMAT_LIBSVM, .chunk_bytes = 100, .progress = note_progress, .progress_state = &bytes};
    static char text[6000];
    for (size_t i = 0; i < sizeof text; i += 6) memcpy(text + i, "1 1:1\n", 6);
    ck_ok(read_text(text, 600, options));
    ck_assert_uint_eq(bytes, 600);
    ck_assert_int_eq(read_text(text, sizeof text, options), TR_ERR_STOPPED);
}

/* ---- numbers ---- */

static void check_number(const char *number)
{
    char text[128] = {0}, *expected_end;
    float value;
    snprintf(text, 100, "%s\n", number);
    const char *end = tr_read_float(text, &value);
    float expected = strtof(text, &expected_end);
    ck_assert_msg(end == expected_end, "%s: read %td characters", number, end - text);
    ck_assert_msg(memcmp(&value, &expected, 4) == 0, "%s: %.9g, expected %.9g", number, (double)value,
                  (double)expected);
}

UNIT_CASE(known_difficult_numbers_are_read_right)
{
    static const char *const numbers[] = {"0",
                                          "-0",
                                          "1.",
                                          ".5",
                                          "1e0",
                                          "16777217",
                                          "16777219",
                                          "33554433.5",
                                          "1.00000005960464477539062500001",
                                          "1.000000059604644775390625",
                                          "1.17549435e-38",
                                          "1.17549428e-38",
                                          "1e-45",
                                          "7e-46",
                                          "7.1e-46",
                                          "1e-999",
                                          "3.4028234e38",
                                          "3.4028235e38",
                                          "3.40282356e38",
                                          "3.4028236e38",
                                          "1e39",
                                          "1e999",
                                          "0.000000000000000000001",
                                          "99999999.99999999",
                                          "12345678901234567890123",
                                          "1e-80",
                                          "123456789e-50",
                                          "1e",
                                          "1e+",
                                          "1E5",
                                          "1.5e+3",
                                          "00000000000000000000000000000000000000000000000000000000001e10",
                                          "1e99999999999999999999",
                                          "0e99999999999",
                                          "1e-99999999999999999999",
                                          "0.00000000000000000000000000000000000000000000000001e50"};
    for (size_t i = 0; i < COUNT(numbers); i++) check_number(numbers[i]);
}

UNIT_CASE(random_numbers_are_read_as_by_the_library)
{
    struct tr_rng rng;
    char number[64];
    tr_rng_seed(&rng, 5, 0, 0);
    for (int i = 0; i < 300000; i++) {
        uint32_t bits = (uint32_t)tr_rng_next(&rng);
        float value;
        memcpy(&value, &bits, sizeof value);
        if (!isfinite(value)) continue;
        int digits = 1 + (int)tr_rng_below(&rng, 20);
        double middle = (double)value * (1 + 0x1p-24); /* about half way to the next float */
        switch (tr_rng_below(&rng, 4)) {
        case 0: snprintf(number, sizeof number, "%.*g", digits, (double)value); break;
        case 1: snprintf(number, sizeof number, "%.*g", digits, middle); break;
        case 2: snprintf(number, sizeof number, "%.*f", digits, tr_rng_uniform(&rng) * 100 - 50); break;
        default:
            snprintf(number, sizeof number, "%d.%0*d", (int)tr_rng_below(&rng, 99999999),
                     1 + (int)tr_rng_below(&rng, 9), (int)tr_rng_below(&rng, 999));
            break;
        }
        check_number(number);
    }
}

/* ---- rows and records handed out ---- */

struct sum {
    size_t rows;
    double value, label;
};

/* Of rows of two columns, dense or sparse. */
static int add_rows(void *state, const tr_records *r)
{
    struct sum *sum = state;
    const tr_batch *b = &r->rows;
    ck_assert_uint_eq(r->first, sum->rows % 2);
    for (size_t i = 0; i < b->n; i++) {
        for (size_t k = 0; b->dense && k < 2; k++)
            sum->value += (double)b->dense[2 * i + k] * (double)(k + 1);
        for (size_t k = 0; b->begin && k < b->begin[i + 1] - b->begin[i]; k++)
            sum->value += (double)b->value[b->begin[i] + k] * (double)(b->column[b->begin[i] + k] + 1);
        sum->label += b->label ? (double)b->label[i] : 0;
    }
    sum->rows += b->n;
    return sum->rows > 5 ? tr_records_fail(r, 1, "enough") : TR_OK;
}

UNIT_CASE(rows_are_handed_out)
{
    struct sum sum = {0};
    unit_write_text("each", "l,a,b\n1,10,20\n\n2,30,40\n");
    char *file = unit_path("each");
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
    unit_write_text("each", "1 1:10 2:20 9:5\n2:40 4:1\n");
    sum = (struct sum){0};
    options = (tr_read_options){.form = TR_ROWS_DENSE, .columns = 2, .first_index = 1};
    ck_fails(tr_read_rows(&file, 1, &options, add_rows, &(struct sum){.rows = 4}), TR_ERR_DATA,
             "/each:2: enough");
    ck_ok(tr_read_rows(&file, 1, &options, add_rows, &sum));
    ck_assert(sum.rows == 2 && sum.value == 50 + 80 && isnan(sum.label));
}

static int append_rating(void *state, const struct tr_rating *r)
{
    char *shown = state;
    size_t n = strlen(shown);
    snprintf(shown + n, 512 - n, "%.*s,%.*s,%g;", (int)r->user_length, r->user, (int)r->item_length, r->item,
             (double)r->value);
    return r->user_length == 3 ? tr_fail(TR_ERR_DATA, "enough") : TR_OK;
}

UNIT_CASE(ratings_are_handed_out_one_by_one)
{
    char shown[512] = "";
    static const char text[] = "user,item,rating\n1,2,3\n\n\"a b\",x,\nann,y,5\n2,2,2\n";
    unit_write_text("each", text);
    char *file = unit_path("each");
    ck_fails(tr_read_ratings(&file, 1, &(tr_read_options){0}, append_rating, shown), TR_ERR_DATA, "enough");
    ck_assert_str_eq(shown, "1,2,3;a b,x,nan;");
    ck_fails(tr_read_ratings(&file, 1, &(tr_read_options){.labelled = true}, append_rating, shown),
             TR_ERR_DATA, "/each:4: '\"a b\"': the rating");
}

static int append_document(void *state, const tr_records *r)
{
    char *shown = state;
    size_t n = strlen(shown);
    const tr_batch *d = &r->rows;
    for (size_t row = 0; row < d->n; row++) {
        n += (size_t)snprintf(shown + n, 512 - n, "%lu:", r->first + row);
        for (uint64_t i = d->begin[row]; i < d->begin[row + 1]; i++)
            n += (size_t)snprintf(shown + n, 512 - n, " %u*%g", d->column[i], (double)d->value[i]);
        n += (size_t)snprintf(shown + n, 512 - n, ";");
    }
    return TR_OK;
}

UNIT_CASE(documents_are_handed_out_whole)
{
    static const char a[] = "3\n9\n4\n3 9 1\n1 5 2\n3 2 7\n1 5 1\n", b[] = "1\n9\n1\n1 1 1\n";
    char shown[512] = "";
    unit_write_text("bag-a", a);
    unit_write_text("bag-b", b);
    char *bags = unit_path("bag-*");
    tr_read_options options = {.format = TR_FORMAT_AUTO};
    ck_ok(tr_read_rows(&bags, 1, &options, append_document, shown));
    ck_assert_str_eq(shown, "0: 4*3;1:;2: 1*7 8*1;3: 0*1;");
    unit_write_text("bag-b", "1\n9\n3\n1 1 1\n");
    ck_fails(tr_read_rows(&bags, 1, &options, append_document, shown), TR_ERR_DATA,
             "bag-b: 1 records, expected 3");
}

/* ---- detection ---- */

static const struct {
    const char *text;
    enum tr_format format;
} looks[] = {{"1 2:3\n", TR_FORMAT_LIBSVM},
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
             {"Mon 9:30 17:45 1\nTue 9:30 17:45 0\n", TR_FORMAT_CSV}};

UNIT_CASE(formats_are_told_by_their_first_lines)
{
    for (size_t i = 0; i < COUNT(looks); i++) {
        enum tr_format format;
        unit_write_text("looks", looks[i].text);
        open_files("looks");
        ck_ok(tr_format_detect(&files, &format));
        ck_assert_msg(format == looks[i].format, "%zu: format %d", i, (int)format);
    }
}

UNIT_CASE(another_format_is_named)
{
    static const struct {
        const char *text, *setting, *message;
    } all[] = {
        {"1 2:3\n", "data.format=csv", "looks like data.format: libsvm, expected csv"},
        {"1 2:3\n", "model.type=lda", "looks like data.format: libsvm, expected docword"},
        {"1\n2\n1\n1 1 1\n", "model.type=mf", "looks like data.format: docword, expected ratings"},
        {"1\n2\n1\n1 1 1\n", "model.type=kmeans", "looks like data.format: docword, expected csv"},
        {"1\n2\n1\n1 1 1\n", "model.type=logistic", "looks like data.format: docword, expected libsvm"}};
    for (size_t i = 0; i < COUNT(all); i++) {
        tr_job *job;
        enum tr_format format;
        ck_ok(tr_job_parse("data: {train: x}\n", 17, "test", 1, (char *[]){(char *)(uintptr_t)all[i].setting},
                           &job));
        unit_write_text("looks", all[i].text);
        open_files("looks");
        ck_fails(tr_data_format(job, &files, &format), TR_ERR_DATA, all[i].message);
        tr_job_free(job);
    }
}

/* ---- which texts are equal ---- */

UNIT_CASE(a_number_is_its_value_and_a_word_its_bytes)
{
    static const char *const form[][2] = {{"1", "1"},
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
                                          {"12345678901234567891.0", "12345678901234567891"},
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
                                          {"1e123456", "1e123456"}};
    char room[TR_VALUE_ROOM], longest[TR_VALUE_DIGITS + 2];
    for (size_t i = 0; i < COUNT(form); i++) {
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

UNIT_CASE(labels_ascend_by_value_and_then_by_bytes)
{
    static const char *const label[] = {"-1e30", "-20",      "-3",       "-0.5", "0",   "0.25", "3", "20",
                                        "100",   "16777216", "16777217", "1e30", "10a", "B",    "a", "ab"};
    enum { N = COUNT(label) };
    for (int i = 0; i < N; i++)
        for (int k = 0; k < N; k++) {
            int order = tr_value_compare(label[i], strlen(label[i]), label[k], strlen(label[k]));
            ck_assert_msg((order > 0) - (order < 0) == (i > k) - (i < k), "%s, %s: %d", label[i], label[k],
                          order);
        }
}
