#define _GNU_SOURCE
#include "data_files.h"

#include <math.h>

#include "data/reader.h"

struct outcome {
    struct tr_triples t;
    struct tr_read_report report;
    uint64_t records[8];
};

/* Writes the text, looks at it, and reads it by one reader; again, as text, if ids are no numbers. */
static int read_text(const char *text, size_t n, struct tr_reader_options options, struct outcome *out)
{
    struct tr_head *shape = NULL;
    write_file("text", text, n);
    struct tr_files files = open_files("text");
    int status = tr_heads_read(&files, options.format, TR_HEADER_AUTO, &shape);
    options.heads = shape;
    options.records = out->records;
    while (status == TR_OK) {
        status = tr_read_triples(&files, 0, 1, &options, &out->t, &out->report);
        if (status != TR_OK || !(out->report.text_rows || out->report.text_columns)) break;
        options.text_rows |= out->report.text_rows;
        options.text_columns |= out->report.text_columns;
        tr_triples_free(&out->t);
    }
    free(shape);
    tr_files_close(&files);
    return status;
}

static const struct tr_reader_options ratings = {.format = TR_FORMAT_RATINGS},
                                      docword = {.format = TR_FORMAT_DOCWORD};

/* The id of a place, as text. */
static void id_text(const struct tr_ids *ids, uint32_t place, char text[64])
{
    if (!ids->are_text) snprintf(text, 64, "%llu", (unsigned long long)ids->number[place]);
    else
        snprintf(text, 64, "%.*s", (int)(ids->begin[place + 1] - ids->begin[place]),
                 ids->text + ids->begin[place]);
}

/* All records as user,item,rating; */
static void show(const struct tr_triples *t, char shown[512])
{
    size_t n = 0;
    shown[0] = 0;
    for (size_t i = 0; i < t->n; i++) {
        char user[64], item[64];
        id_text(&t->rows, t->triple[i].row, user);
        id_text(&t->columns, t->triple[i].column, item);
        n += (size_t)snprintf(shown + n, 512 - n, "%s,%s,%g;", user, item, (double)t->triple[i].value);
    }
}

/* ---- ratings ---- */

static const struct {
    const char *text, *shown;
} accepted[] = {
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
    {"\xef\xbb\xbf"
     "1,2,3\n",
     "1,2,3;"},
};

START_TEST(ratings_of_all_kinds_are_read)
{
    for (size_t i = 0; i < sizeof accepted / sizeof *accepted; i++) {
        struct outcome out;
        char shown[512];
        ck_ok(read_text(accepted[i].text, strlen(accepted[i].text), ratings, &out));
        show(&out.t, shown);
        ck_assert_msg(strcmp(shown, accepted[i].shown) == 0, "%zu: %s", i, shown);
        ck_assert_uint_eq(out.report.rows, out.t.n);
        tr_triples_free(&out.t);
    }
}
END_TEST

static const struct {
    const char *record, *message;
} refused[] = {
    {"1,2", "/text:3: '1': expected three columns"},
    {"1", "/text:3: '1': expected three columns"},
    {"1,2,", "/text:3: '1': the rating is missing"},
    {"1,2,,5", "the rating is missing"},
    {",2,3", "the user is missing"},
    {"1,,3", "the item is missing"},
    {"\"\",2,3", "the user is missing"},
    {"1,2,x", "/text:3: 'x': the rating is not a number"},
    {"1,2,3x", "'3x': the rating is not a number"},
    {"1,2,nan", "'nan': the rating is not finite"},
    {"1,2,1e99", "'1e99': the rating is too large"},
    {"1,2\x01,3", "not text"},
};

START_TEST(a_bad_rating_is_named_with_its_line)
{
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        struct outcome out;
        char text[256];
        int n = snprintf(text, sizeof text, "1,2,3\n\n%s\n4,5,6\n", refused[i].record);
        ck_fails(read_text(text, (size_t)n, ratings, &out), TR_ERR_DATA, refused[i].message);
    }
}
END_TEST

START_TEST(text_where_training_has_numbers_is_refused)
{
    struct tr_reader_options known = {.format = TR_FORMAT_RATINGS, .settled = true};
    struct outcome out;
    ck_fails(read_text("1,2,3\nx,2,3\n", 12, known, &out), TR_ERR_DATA,
             ":2: 'x': the user is no whole number");
    ck_fails(read_text("1,2,3\n3,x,3\n", 12, known, &out), TR_ERR_DATA,
             ":2: 'x': the item is no whole number");
}
END_TEST

START_TEST(bad_ratings_can_be_skipped)
{
    struct tr_reader_options skip = {.format = TR_FORMAT_RATINGS, .skip_errors = true};
    struct outcome out;
    char shown[512];
    ck_ok(read_text("1,2,3\n1,2\n4,5,6\n1,2,x\n", 22, skip, &out));
    show(&out.t, shown);
    ck_assert_str_eq(shown, "1,2,3;4,5,6;");
    ck_assert_uint_eq(out.report.skipped, 2);
    ck_assert_uint_eq(out.report.first_skipped.offset, 6);
    tr_triples_free(&out.t);
}
END_TEST

/* ---- bags of words ---- */

START_TEST(bags_of_words_are_read)
{
    static const char text[] = "3\n10\n4\n2 1 5\n1 10 1\r\n\n3 9 1000000\n 2  1\t1 ";
    struct outcome out;
    ck_ok(read_text(text, sizeof text - 1, docword, &out));
    const struct tr_triple wanted[] = {{1, 0, 5}, {0, 9, 1}, {2, 8, 1000000}, {1, 0, 1}};
    ck_assert_uint_eq(out.t.n, 4);
    ck_assert_uint_eq(out.records[0], 4);
    ck_assert_mem_eq(out.t.triple, wanted, sizeof wanted);
    tr_triples_free(&out.t);
}
END_TEST

static const struct {
    const char *record, *message;
} refused_words[] = {
    {"4 1 1", "/text:5: '4': no such document, expected 1 to 3"},
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
    {"1 1\x01 1", "not text"},
};

START_TEST(a_bad_word_is_named_with_its_line)
{
    for (size_t i = 0; i < sizeof refused_words / sizeof *refused_words; i++) {
        struct outcome out;
        char text[256];
        int n = snprintf(text, sizeof text, "3\n10\n2\n1 1 1\n%s\n", refused_words[i].record);
        ck_fails(read_text(text, (size_t)n, docword, &out), TR_ERR_DATA, refused_words[i].message);
    }
}
END_TEST

START_TEST(headers_are_checked)
{
    struct outcome out;
    static const char *const bad[] = {"3\n10\n", "x\n10\n2\n1 1 1\n", "3 10\n2\n1 1 1\n", "1 1 1\n1 2 3\n"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        ck_fails(read_text(bad[i], strlen(bad[i]), docword, &out), TR_ERR_DATA,
                 "/text: expected three lines");
    ck_fails(read_text("1\n5000000000\n1\n1 1 1\n", 21, docword, &out), TR_ERR_DATA, "more than 2^32 - 2");
    write_file("bag-a", "2\n5\n2\n1 1 1\n2 2 1\n", 18);
    write_file("bag-b", "1\n5\n2\n1 1 1\n", 12);
    struct tr_files files = open_files("bag-*");
    struct tr_head *shape;
    ck_ok(tr_heads_read(&files, TR_FORMAT_DOCWORD, TR_HEADER_AUTO, &shape));
    ck_assert_uint_eq(tr_docword_base(&files, shape, 1), 2);
    ck_assert_uint_eq(tr_docword_base(&files, shape, 2), 3);
    ck_ok(tr_docword_check(&files, shape, (uint64_t[]){2, 2}));
    ck_fails(tr_docword_check(&files, shape, (uint64_t[]){2, 1}), TR_ERR_DATA,
             "bag-b: 1 records, expected 2");
    tr_files_close(&files);
    free(shape);
    write_file("bag-b", "1\n6\n1\n1 1 1\n", 12);
    files = open_files("bag-*");
    ck_fails(tr_heads_read(&files, TR_FORMAT_DOCWORD, TR_HEADER_AUTO, &shape), TR_ERR_DATA, "one vocabulary");
    tr_files_close(&files);
}
END_TEST

/* ---- by several readers ---- */

static void sum_shares(const char *pattern, size_t readers, size_t chunk, uint64_t *n, uint64_t *hash)
{
    struct tr_files files = open_files(pattern);
    struct tr_head *shape;
    ck_ok(tr_heads_read(&files, TR_FORMAT_RATINGS, TR_HEADER_AUTO, &shape));
    *n = *hash = 0;
    for (size_t k = 0; k < readers; k++) {
        struct tr_reader_options options = {
            .format = TR_FORMAT_RATINGS, .heads = shape, .chunk_bytes = chunk};
        struct outcome out;
        ck_ok(tr_read_triples(&files, k, readers, &options, &out.t, &out.report));
        *n += out.t.n;
        for (size_t i = 0; i < out.t.n; i++)
            *hash +=
                tr_mix(out.t.rows.number[out.t.triple[i].row] * 1000003 +
                       out.t.columns.number[out.t.triple[i].column] * 101 + (uint64_t)out.t.triple[i].value);
        for (size_t i = 1; i < out.t.runs; i++) ck_assert(out.t.run[i - 1].first <= out.t.run[i].first);
        tr_triples_free(&out.t);
    }
    free(shape);
    tr_files_close(&files);
}

START_TEST(readers_share_the_records_of_all_files)
{
    static char text[60000];
    size_t n = 0, records = 0;
    uint64_t hash = 0;
    for (; n < sizeof text - 64; records++) {
        uint64_t user = tr_mix(records) >> (records % 60), item = records % 77;
        n += (size_t)sprintf(text + n, "%llu\t%llu\t%zu\t%zu\n", (unsigned long long)user,
                             (unsigned long long)item, records % 6, records);
        hash += tr_mix(user * 1000003 + item * 101 + records % 6);
    }
    write_file("share-1", text, n);
    write_packed("share-2.gz", text, n);
    write_file("share-3", text, n - 1);
    for (size_t readers = 1; readers < 9; readers += 2)
        for (size_t chunk = 0; chunk < 200; chunk += 67) {
            uint64_t found, sum;
            sum_shares("share-*", readers, chunk, &found, &sum);
            ck_assert_uint_eq(found, 3 * records);
            ck_assert_uint_eq(sum, 3 * hash);
        }
}
END_TEST

/* ---- one record after the other ---- */

static int append(void *state, const struct tr_rating *r)
{
    char *shown = state;
    size_t n = strlen(shown);
    snprintf(shown + n, 512 - n, "%.*s,%.*s,%g;", (int)r->user_length, r->user, (int)r->item_length, r->item,
             (double)r->value);
    return r->user_length == 3 ? tr_fail(TR_ERR_DATA, "enough") : TR_OK;
}

START_TEST(ratings_are_handed_out_one_by_one)
{
    char shown[512] = "";
    static const char text[] = "user,item,rating\n1,2,3\n\n\"a b\",x,\nann,y,5\n2,2,2\n";
    write_file("each", text, sizeof text - 1);
    char *file = path_of("each");
    ck_fails(tr_read_ratings(&file, 1, true, append, shown), TR_ERR_DATA, "enough");
    ck_assert_str_eq(shown, "1,2,3;a b,x,nan;");
    ck_fails(tr_read_ratings(&file, 1, false, append, shown), TR_ERR_DATA, "/each:4: '\"a b\"': the rating");
    free(file);
}
END_TEST

/* ---- public data ---- */

static void read_public(const char *name, int format, uint64_t records, size_t users, size_t items)
{
    const char *data = getenv("TRIREME_DATA");
    char *path;
    ck_ok(tr_format(&path, "%s/%s", data ? data : "datasets", name));
    if (access(path, R_OK) != 0) {
        fprintf(stderr, "skipped: no %s\n", path);
        free(path);
        return;
    }
    struct tr_files files;
    struct tr_head *shape;
    struct outcome out;
    ck_ok(tr_files_open((char *[]){path}, 1, &files));
    ck_ok(tr_heads_read(&files, format, TR_HEADER_AUTO, &shape));
    struct tr_reader_options options = {.format = format, .heads = shape, .records = out.records};
    ck_ok(tr_read_triples(&files, 0, 1, &options, &out.t, &out.report));
    ck_assert_uint_eq(out.t.n, records);
    ck_assert_uint_eq(out.t.rows.n, users);
    ck_assert_uint_eq(out.t.columns.n, items);
    if (format == TR_FORMAT_DOCWORD) ck_ok(tr_docword_check(&files, shape, out.records));
    tr_triples_free(&out.t);
    free(shape);
    tr_files_close(&files);
    free(path);
}

START_TEST(public_data_are_read_whole)
{
    read_public("ml-100k/u1.base.gz", TR_FORMAT_RATINGS, 80000, 943, 1650);
    read_public("anime/anime_ratings.dat.gz", TR_FORMAT_RATINGS, 419943, 4714, 7157);
    read_public("reuters395/docword.reuters.txt", TR_FORMAT_DOCWORD, 60114, 0, 0);
}
END_TEST

UNIT_MAIN("triples", public_data_are_read_whole, ratings_of_all_kinds_are_read,
          a_bad_rating_is_named_with_its_line, text_where_training_has_numbers_is_refused,
          bad_ratings_can_be_skipped, bags_of_words_are_read, a_bad_word_is_named_with_its_line,
          headers_are_checked, readers_share_the_records_of_all_files, ratings_are_handed_out_one_by_one)
