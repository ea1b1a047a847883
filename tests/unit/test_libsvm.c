#define _GNU_SOURCE
#include "unit.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include "base/base.h"
#include "data/reader.h"
#include "data/field.h"
#include "data/input.h"

/* ---- files to read ---- */

static char folder[] = "/tmp/test_libsvm_XXXXXX";

/* Check runs every test in a process of its own: so each makes its folder and removes it at its exit. */
static void remove_files(void)
{
    char *command;
    if (tr_format(&command, "rm -rf %s", folder) != TR_OK || system(command) != 0) perror(folder);
    free(command);
}

static char *path_of(const char *name)
{
    char *path;
    if (strstr(folder, "XXXXXX")) {
        ck_assert_ptr_nonnull(mkdtemp(folder));
        atexit(remove_files);
    }
    ck_ok(tr_format(&path, "%s/%s", folder, name));
    return path;
}

static void write_file(const char *name, const char *text, size_t n)
{
    char *path = path_of(name);
    FILE *file = fopen(path, "wb");
    ck_assert_ptr_nonnull(file);
    ck_assert_uint_eq(fwrite(text, 1, n, file), n);
    ck_assert_int_eq(fclose(file), 0);
    free(path);
}

/* mode "wb" begins a file, "ab" adds a member to it. */
static void write_gzip(const char *name, const char *mode, const char *text, size_t n)
{
    char *path = path_of(name);
    gzFile file = gzopen(path, mode);
    ck_assert_ptr_nonnull(file);
    ck_assert_int_eq(gzwrite(file, text, (unsigned)n), (int)n);
    ck_assert_int_eq(gzclose(file), Z_OK);
    free(path);
}

static int open_file(const char *name, struct tr_files *files)
{
    char *path = path_of(name);
    int status = tr_files_open((char *[]){path}, 1, files);
    free(path);
    return status;
}

/* Writes the text and reads it by one reader. */
static int read_text(const char *text, size_t n, struct tr_reader_options options, struct tr_matrix *csr,
                     struct tr_read_report *report)
{
    struct tr_files files;
    write_file("text", text, n);
    ck_ok(open_file("text", &files));
    int status = tr_read_matrix(&files, 0, 1, &options, csr, report);
    tr_files_close(&files);
    return status;
}

static const struct tr_reader_options from_one = {.format = TR_FORMAT_LIBSVM, .lowest_index = 1};

/* ---- reading ---- */

START_TEST(rows_are_read_as_they_stand)
{
    const char text[] = "+1 1:0.5 7:1 4294967294:-2e-3\r\n\n  # a comment\n-1.5\t2:.5\t 3:1.  # more\n"
                        "0 \n1 5:+3 6:-0#x\n2 1:1e-60 2:1e-40";
    struct tr_matrix csr;
    struct tr_read_report report;
    ck_ok(read_text(text, sizeof text - 1, from_one, &csr, &report));
    const uint64_t begin[] = {0, 3, 5, 5, 7, 9};
    const uint32_t column[] = {1, 7, 4294967294u, 2, 3, 5, 6, 1, 2};
    const float value[] = {0.5f, 1, -2e-3f, .5f, 1, 3, -0.0f, 0, 1e-40f}, label[] = {1, -1.5f, 0, 1, 2};
    ck_assert_uint_eq(csr.rows, 5);
    ck_assert_mem_eq(csr.begin, begin, sizeof begin);
    ck_assert_mem_eq(csr.column, column, sizeof column);
    ck_assert_mem_eq(csr.value, value, sizeof value);
    ck_assert_mem_eq(csr.label, label, sizeof label);
    ck_assert_uint_eq(report.rows, 5);
    ck_assert_uint_eq(report.nonzeros, 9);
    ck_assert_uint_eq(report.lowest, 1);
    ck_assert_uint_eq(report.highest, 4294967294u);
    ck_assert_ptr_nonnull(csr.value);
    tr_ids_free(&report.labels.bits);
    tr_matrix_free(&csr);
}
END_TEST

START_TEST(values_are_kept_only_if_one_is_not_1)
{
    struct tr_matrix csr;
    struct tr_read_report report;
    ck_ok(read_text("1 1:1 2:1\n0 3:1.0\n", 18, from_one, &csr, &report));
    ck_assert_ptr_null(csr.value);
    tr_ids_free(&report.labels.bits);
    tr_matrix_free(&csr);
    ck_ok(read_text("1 1:1 2:1\n0 3:2 4:1\n", 20, from_one, &csr, &report));
    ck_assert_mem_eq(csr.value, ((float[]){1, 1, 2, 1}), 16);
    tr_ids_free(&report.labels.bits);
    tr_matrix_free(&csr);
}
END_TEST

START_TEST(the_first_three_labels_have_places)
{
    struct tr_matrix csr;
    struct tr_read_report report;
    struct tr_files files;
    uint64_t line;
    ck_ok(read_text("1 1:1\n-1 1:1\n1 1:1\n\n7 1:1\n8 1:1\n", 32, from_one, &csr, &report));
    ck_assert_uint_eq(report.labels.bits.n, 4);
    ck_assert_float_eq(tr_labels_value(&report.labels, 2), 7);
    ck_ok(open_file("text", &files));
    ck_ok(tr_files_line(&files, report.labels.place[2].file, report.labels.place[2].offset, &line));
    ck_assert_uint_eq(line, 5);
    tr_files_close(&files);
    tr_ids_free(&report.labels.bits);
    tr_matrix_free(&csr);
}
END_TEST

START_TEST(as_many_labels_are_told_apart_as_make_classes)
{
    enum { ROWS = TR_LABELS_MOST + 1000 };
    struct tr_matrix csr;
    struct tr_read_report report;
    char *text = malloc((size_t)ROWS * 16);
    size_t n = 0;
    for (int i = 0; i < ROWS; i++) n += (size_t)sprintf(text + n, "%d 1:1\n", i / 2 % 1000 - 500);
    ck_ok(read_text(text, n, from_one, &csr, &report));
    ck_assert_uint_eq(report.labels.bits.n, 1000);
    tr_ids_free(&report.labels.bits);
    tr_matrix_free(&csr);
    n = 0;
    for (int i = 0; i < ROWS; i++) n += (size_t)sprintf(text + n, "%d 1:1\n", i);
    ck_ok(read_text(text, n, from_one, &csr, &report));
    ck_assert_uint_eq(report.labels.bits.n, TR_LABELS_MOST);
    ck_assert_float_eq(tr_labels_value(&report.labels, 7), 7);
    tr_ids_free(&report.labels.bits);
    tr_matrix_free(&csr);
    free(text);
}
END_TEST

START_TEST(a_real_file_is_read_whole)
{
    const char *data = getenv("TRIREME_DATA");
    char *path;
    struct tr_files files;
    struct tr_matrix csr;
    struct tr_read_report report;
    ck_ok(tr_format(&path, "%s/a9a/a9a.gz", data ? data : "datasets"));
    if (access(path, R_OK) != 0) {
        fprintf(stderr, "skipped: no %s\n", path);
        free(path);
        return;
    }
    ck_ok(tr_files_open((char *[]){path}, 1, &files));
    ck_ok(tr_read_matrix(&files, 0, 1, &from_one, &csr, &report));
    ck_assert_uint_eq(report.rows, 32561);
    ck_assert_uint_eq(report.nonzeros, 451592);
    ck_assert_uint_eq(report.lowest, 1);
    ck_assert_uint_eq(report.highest, 123);
    ck_assert_uint_eq(report.labels.bits.n, 2);
    ck_assert_ptr_null(csr.value);
    tr_ids_free(&report.labels.bits);
    tr_matrix_free(&csr);
    tr_files_close(&files);
    free(path);
}
END_TEST

/* ---- refusals ---- */

static const struct {
    const char *record, *message;
} refused[] = {
    {"1 0:1", "'0:1': the index is 0, expected 1 or more"},
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
    {"\x7f"
     "ELF",
     "'\\x7fELF': found bytes that are not text"},
    {"\xef\xbb\xbf"
     "1 5:1",
     "'\\ufeff1': the label is not a number"},
    {"1 5:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "aaaaaa…': the value is not a number"},
};

START_TEST(a_bad_record_is_named_with_its_line)
{
    struct tr_reader_options options = {.format = TR_FORMAT_LIBSVM, .lowest_index = 1};
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        struct tr_matrix csr;
        struct tr_read_report report;
        char text[256];
        int n = snprintf(text, sizeof text, "1 1:1\n\n%s\n", refused[i].record);
        ck_fails(read_text(text, (size_t)n, options, &csr, &report), TR_ERR_DATA, refused[i].message);
        ck_assert_ptr_nonnull(strstr(tr_error_text(), "/text:3: "));
    }
}
END_TEST

START_TEST(nul_bytes_are_refused)
{
    struct tr_matrix csr;
    struct tr_read_report report;
    ck_fails(read_text("1 1:1\n1 2:\0 3:1\n", 16, from_one, &csr, &report), TR_ERR_DATA,
             ":2: '2:\\x00': found");
    ck_fails(read_text("\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 16, from_one, &csr, &report), TR_ERR_DATA,
             "not text");
}
END_TEST

START_TEST(bad_records_can_be_skipped)
{
    const char text[] = "1 1:1\nx 2:5\n1 2:3 2:1\n-1 3:1\n4 5:\n";
    struct tr_reader_options options = {.format = TR_FORMAT_LIBSVM, .lowest_index = 1, .skip_errors = true};
    struct tr_matrix csr;
    struct tr_read_report report;
    ck_ok(read_text(text, sizeof text - 1, options, &csr, &report));
    ck_assert_uint_eq(report.rows, 2);
    ck_assert_uint_eq(report.skipped, 3);
    ck_assert_uint_eq(report.first_skipped.offset, 6);
    ck_assert_uint_eq(report.nonzeros, 2);
    ck_assert_ptr_null(csr.value); /* the value 3 went with its record */
    ck_assert_mem_eq(csr.column, ((uint32_t[]){1, 3}), 8);
    tr_ids_free(&report.labels.bits);
    tr_matrix_free(&csr);
}
END_TEST

START_TEST(endless_lines_are_refused)
{
    size_t n = TR_TEXT_LONGEST_LINE + 16;
    char *text = malloc(n);
    struct tr_reader_options skip = {.format = TR_FORMAT_LIBSVM, .skip_errors = true};
    struct tr_matrix csr;
    struct tr_read_report report;
    ck_assert_ptr_nonnull(text);
    memset(text, '1', n);
    memcpy(text, "1 1:1\n", 6);
    memcpy(text + n - 7, "\n2 2:1\n", 7);
    ck_ok(read_text(text, n, skip, &csr, &report)); /* just short enough, but no number of this size */
    ck_assert_uint_eq(report.skipped, 1);
    tr_ids_free(&report.labels.bits);
    tr_matrix_free(&csr);
    n += 16;
    text = realloc(text, n);
    ck_assert_ptr_nonnull(text);
    memset(text + 6, '1', n - 6);
    memcpy(text + n - 7, "\n2 2:1\n", 7);
    ck_fails(read_text(text, n, from_one, &csr, &report), TR_ERR_DATA,
             "/text:2: record longer than 64 MiB: data.max_record");
    ck_ok(read_text(text, n, skip, &csr, &report));
    ck_assert_uint_eq(report.rows, 2);
    ck_assert_uint_eq(report.skipped, 1);
    tr_ids_free(&report.labels.bits);
    tr_matrix_free(&csr);
    struct tr_files files;
    size_t rows = 0, skipped = 0;
    ck_ok(open_file("text", &files));
    skip.deal = 1 << 20;
    for (size_t k = 0; k < 2; k++) {
        ck_ok(tr_read_matrix(&files, k, 2, &skip, &csr, &report));
        rows += report.rows;
        skipped += report.skipped;
        tr_ids_free(&report.labels.bits);
        tr_matrix_free(&csr);
    }
    ck_assert_uint_eq(rows, 2);
    ck_assert_uint_eq(skipped, 1);
    tr_files_close(&files);
    free(text);
}
END_TEST

/* ---- the input as files ---- */

START_TEST(input_that_is_not_there_is_named)
{
    struct tr_files files;
    write_file("empty", "", 0);
    ck_fails(open_file("missing", &files), TR_ERR_NO_INPUT, "/missing: no such file");
    ck_fails(open_file("none*", &files), TR_ERR_NO_INPUT, "/none*: no such file");
    ck_fails(open_file("", &files), TR_ERR_NO_INPUT, "/empty: empty"); /* the files in the folder */
    ck_fails(open_file("empty", &files), TR_ERR_NO_INPUT, "/empty: empty");
    ck_fails(tr_files_open(NULL, 0, &files), TR_ERR_NO_INPUT, "no input");
}
END_TEST

START_TEST(globs_are_sorted)
{
    struct tr_files files;
    write_file("part-b", "1 1:1\n", 6);
    write_file("part-a", "1 1:1\n1 1:1\n", 12);
    write_file("part-C", "1", 1);
    ck_ok(open_file("part-*", &files));
    ck_assert_uint_eq(files.n, 3);
    ck_assert_uint_eq(files.total, 19);
    ck_assert_uint_eq(files.file[0].size, 1);
    ck_assert_uint_eq(files.file[1].size, 12);
    tr_files_close(&files);
}
END_TEST

START_TEST(damaged_gzip_is_named)
{
    char text[60000];
    struct tr_files files;
    struct tr_matrix csr;
    struct tr_read_report report;
    for (size_t i = 0; i < sizeof text; i += 6) memcpy(text + i, "1 1:1\n", 6);
    for (size_t i = 0; i < sizeof text; i += 6) text[i] = (char)('0' + tr_mix(i) % 10);
    write_gzip("damaged", "wb", text, sizeof text);
    char *path = path_of("damaged");
    FILE *file = fopen(path, "r+b");
    ck_assert_ptr_nonnull(file);
    fseek(file, 300, SEEK_SET);
    fwrite("????????", 1, 8, file);
    fclose(file);
    ck_ok(open_file("damaged", &files));
    ck_fails(tr_read_matrix(&files, 0, 1, &from_one, &csr, &report), TR_ERR_DATA, "/damaged: corrupt gzip");
    tr_files_close(&files);
    write_gzip("damaged", "wb", text, sizeof text);
    ck_assert_int_eq(truncate(path, 1000), 0);
    ck_ok(open_file("damaged", &files));
    ck_fails(tr_read_matrix(&files, 0, 1, &from_one, &csr, &report), TR_ERR_DATA, "/damaged: truncated gzip");
    tr_files_close(&files);
    write_gzip("damaged", "wb", text, sizeof text);
    file = fopen(path, "ab");
    fwrite("\0\0garbage", 1, 9, file);
    fclose(file);
    ck_ok(open_file("damaged", &files));
    ck_fails(tr_read_matrix(&files, 0, 1, &from_one, &csr, &report), TR_ERR_DATA, "/damaged: corrupt gzip");
    tr_files_close(&files);
    free(path);
}
END_TEST

/* ---- division ---- */

/* Numbered lines of very different length; line i has label i. */
static size_t numbered_lines(char *text, size_t room, size_t first, size_t *lines)
{
    size_t n = 0, i = first;
    for (; n + 3000 < room; i++) {
        n += (size_t)sprintf(text + n, "%zu", i);
        size_t pairs = tr_mix(i) % 16 == 0 ? 200 : tr_mix(i) % 8;
        for (size_t k = 1; k <= pairs; k++) n += (size_t)sprintf(text + n, " %zu:1", k);
        n += (size_t)sprintf(text + n, "\n");
    }
    *lines = i - first;
    return n;
}

/* Every line goes to exactly one reader, and the lines of a reader ascend, in each of two laps if they are dealt.
 * deal: as in the options. */
static void check_dealing(const struct tr_files *files, size_t lines, size_t readers, uint64_t deal,
                          size_t chunk_bytes)
{
    struct tr_reader_options options = {
        .format = TR_FORMAT_LIBSVM, .lowest_index = 1, .deal = deal, .chunk_bytes = chunk_bytes};
    unsigned char *seen;
    ck_ok(TR_NEW(&seen, lines));
    for (size_t k = 0; k < readers; k++) {
        struct tr_matrix csr;
        struct tr_read_report report;
        size_t descents = 0;
        ck_ok(tr_read_matrix(files, k, readers, &options, &csr, &report));
        for (size_t i = 0; i < csr.rows; i++) {
            ck_assert_uint_lt((size_t)csr.label[i], lines);
            seen[(size_t)csr.label[i]]++;
            descents += i > 0 && csr.label[i - 1] >= csr.label[i];
        }
        ck_assert_uint_le(descents, deal > 0 && readers > 1);
        tr_ids_free(&report.labels.bits);
        tr_matrix_free(&csr);
    }
    for (size_t i = 0; i < lines; i++)
        ck_assert_msg(seen[i] == 1, "line %zu was read %d times by %zu readers, deal %llu, chunks of %zu", i,
                      seen[i], readers, (unsigned long long)deal, chunk_bytes);
    free(seen);
}

/* Contiguous shares, then chunks as they are chosen, then others. */
static void check_division(const struct tr_files *files, size_t lines, size_t readers, size_t chunk_bytes)
{
    const uint64_t deal[] = {0, tr_files_chunk(files, readers), 1000, 4099, files->total};
    for (size_t i = 0; i < sizeof deal / sizeof *deal; i++)
        check_dealing(files, lines, readers, deal[i], chunk_bytes);
}

START_TEST(plain_files_are_divided)
{
    static char text[100000];
    struct tr_files files;
    size_t lines, more;
    size_t n = numbered_lines(text, sizeof text, 0, &lines);
    write_file("plain-1", text, n - 1); /* no newline at the end */
    n = numbered_lines(text, 30000, lines, &more);
    write_file("plain-2", text, n);
    ck_ok(open_file("plain-*", &files));
    for (size_t readers = 1; readers <= 7; readers++) {
        check_division(&files, lines + more, readers, 0);
        check_division(&files, lines + more, readers, 1 + readers * 3);
    }
    tr_files_close(&files);
}
END_TEST

START_TEST(few_lines_are_divided_at_every_byte)
{
    struct tr_files files;
    const char text[] = "0 1:1\n1 1:1 2:1\n2\n3\n\n\n4 1:1";
    write_file("few", text, sizeof text - 1);
    ck_ok(open_file("few", &files));
    for (size_t readers = 1; readers <= 60; readers++) check_dealing(&files, 5, readers, 0, 1);
    tr_files_close(&files);
}
END_TEST

START_TEST(few_lines_are_dealt_at_every_byte)
{
    struct tr_files files;
    const char text[] = "# c\r\n0 1:1\r\n\r\n1 1:1 2:1 3:1 # 7 1:1\n2\n\n\n3\n #\n4 1:1\n", more[] = "5\n\n6";
    write_file("deal-1", text, sizeof text - 1);
    write_file("deal-2", "", 0);
    write_file("deal-3", "5", 1);
    write_file("deal-4", more + 2, sizeof more - 3);
    ck_ok(open_file("deal-*", &files));
    for (size_t readers = 1; readers <= 6; readers++)
        for (uint64_t deal = 1; deal <= files.total + 1; deal++) {
            check_dealing(&files, 7, readers, deal, 1);
            check_dealing(&files, 7, readers, deal, 5);
            check_dealing(&files, 7, readers, deal, 0);
        }
    tr_files_close(&files);
}
END_TEST

/* Numbered lines, most of them short, with all that may stand between records. */
static size_t mixed_lines(char *text, size_t room, uint64_t seed, size_t *lines)
{
    static const char *const between[] = {"\n",   "\n",          "\n",       "\r\n",
                                          "\n\n", "\n# 1 2:3\n", " # x\r\n", "\n \t\n"};
    struct tr_rng rng;
    size_t n = 0, i = 0;
    tr_rng_seed(&rng, seed, 0, 0);
    for (; n + 9000 < room; i++) {
        n += (size_t)sprintf(text + n, "%zu", i);
        size_t pairs = tr_rng_below(&rng, 50) == 0 ? tr_rng_below(&rng, 1000) : tr_rng_below(&rng, 4);
        for (size_t k = 1; k <= pairs; k++) n += (size_t)sprintf(text + n, " %zu:1", k);
        n += (size_t)sprintf(text + n, "%s", between[tr_rng_below(&rng, sizeof between / sizeof *between)]);
    }
    *lines = i;
    return n - (seed % 2 && text[n - 1] == '\n'); /* half of them without the last newline */
}

START_TEST(any_lines_are_dealt_in_chunks_of_any_size)
{
    static char text[30000];
    struct tr_files files;
    struct tr_rng rng;
    tr_rng_seed(&rng, 7, 0, 0);
    for (uint64_t seed = 0; seed < 60; seed++) {
        size_t lines, n = mixed_lines(text, 10000 + seed * 300, seed, &lines);
        write_file("mixed", text, n);
        write_gzip("mixed.gz", "wb", text, n);
        ck_ok(open_file("mixed", &files));
        size_t readers = 1 + (size_t)tr_rng_below(&rng, 9), parsed = (size_t)tr_rng_below(&rng, 300);
        check_dealing(&files, lines, readers, 1 + tr_rng_below(&rng, 100), parsed);
        check_dealing(&files, lines, readers, 1 + tr_rng_below(&rng, 6000), parsed);
        check_division(&files, lines, readers, 0);
        tr_files_close(&files);
        ck_ok(open_file("mixed.gz", &files));
        check_division(&files, lines, readers, parsed);
        tr_files_close(&files);
    }
}
END_TEST

/* ---- what dealing is for ---- */

START_TEST(chunks_suit_the_data_and_the_readers)
{
    const uint64_t K = 1024, M = K * K, G = K * M;
    static const size_t readers[] = {2, 3, 7, 64, 1000, 20000};
    const uint64_t totals[] = {1, 1000, 100 * K + 1, 3 * M + 7, 350 * M, 20 * G + 3, 9000 * G};
    for (size_t i = 0; i < sizeof totals / sizeof *totals; i++) {
        struct tr_files files = {.total = totals[i]};
        ck_assert_uint_eq(tr_files_chunk(&files, 1), totals[i]);
        for (size_t k = 0; k < sizeof readers / sizeof *readers; k++) {
            uint64_t chunk = tr_files_chunk(&files, readers[k]), share = totals[i] / readers[k];
            ck_assert_uint_ge(chunk, share < 4 * K ? 1 : 4 * K);
            ck_assert_uint_lt(chunk, share < 4 * K ? share + 2 : 4 * M + 64 * K);
            if (share >= 256 * K) ck_assert_uint_ge(share / chunk + 1, 64);
            /* The same number for all; the last ones have less because of rounding up. */
            uint64_t rounds = (totals[i] - 1) / chunk / readers[k] + 1;
            ck_assert_uint_lt(rounds * readers[k] * chunk - totals[i], rounds * readers[k]);
        }
    }
}
END_TEST

/* 10 labels one after the other, all lines of equal length. */
enum { SORTED_LABELS = 10, SORTED_ROWS = 80000 };

/* Adds how often each label stands in the first of a reader's rows, this part of them. */
static void add_labels(const struct tr_files *files, size_t reader, size_t readers, uint64_t deal,
                       double part, size_t count[SORTED_LABELS])
{
    struct tr_reader_options options = {.format = TR_FORMAT_LIBSVM, .lowest_index = 1, .deal = deal};
    struct tr_matrix csr;
    struct tr_read_report report;
    ck_ok(tr_read_matrix(files, reader, readers, &options, &csr, &report));
    for (size_t i = 0; i < (size_t)(part * (double)csr.rows); i++) count[(size_t)csr.label[i]]++;
    tr_ids_free(&report.labels.bits);
    tr_matrix_free(&csr);
}

static size_t sorted_lines(char *text)
{
    size_t n = 0;
    for (size_t i = 0; i < SORTED_ROWS; i++)
        n += (size_t)sprintf(text + n, "%zu 1:0.5 %06zu:2 \n", i / (SORTED_ROWS / SORTED_LABELS), 2 + i);
    return n;
}

START_TEST(of_sorted_files_every_reader_has_a_sample)
{
    size_t n, readers = 8, most = SORTED_ROWS / SORTED_LABELS, first[SORTED_LABELS] = {0};
    char *text = malloc(SORTED_ROWS * 32);
    struct tr_files files;
    ck_assert_ptr_nonnull(text);
    n = sorted_lines(text);
    write_file("sorted", text, n);
    write_gzip("sorted.gz", "wb", text, n);
    for (int gzip = 0; gzip < 2; gzip++) {
        ck_ok(open_file(gzip ? "sorted.gz" : "sorted", &files));
        uint64_t deal = tr_files_chunk(&files, readers);
        /* A label has a tenth of all chunks, so a reader 6 or 7 of 64 chunks: never far from its eighth. */
        for (size_t k = 0; k < readers; k++) {
            size_t count[SORTED_LABELS] = {0};
            add_labels(&files, k, readers, deal, 1, count);
            for (size_t label = 0; label < SORTED_LABELS; label++) {
                ck_assert_uint_gt(count[label], most / readers * 7 / 10);
                ck_assert_uint_lt(count[label], most / readers * 13 / 10);
            }
        }
        tr_files_close(&files);
    }
    ck_ok(open_file("sorted", &files));
    add_labels(&files, 0, readers, 0, 1, first);
    ck_assert_uint_eq(first[0], most);
    ck_assert_uint_eq(first[2], 0);
    tr_files_close(&files);
    free(text);
}
END_TEST

static int keep_progress(void *state, uint64_t bytes)
{
    ck_assert_uint_ge(bytes, *(uint64_t *)state);
    *(uint64_t *)state = bytes;
    return TR_OK;
}

START_TEST(readers_of_a_sorted_file_are_in_different_places)
{
    size_t count[SORTED_LABELS] = {0}, readers = SORTED_LABELS, tenth = SORTED_ROWS / readers / 10;
    char *text = malloc(SORTED_ROWS * 32);
    struct tr_files files;
    ck_assert_ptr_nonnull(text);
    write_file("sorted", text, sorted_lines(text));
    ck_ok(open_file("sorted", &files));
    for (size_t k = 0; k < readers; k++)
        add_labels(&files, k, readers, tr_files_chunk(&files, readers), 0.1, count);
    for (size_t label = 0; label < SORTED_LABELS; label++) {
        ck_assert_uint_gt(count[label], tenth * 7 / 10);
        ck_assert_uint_lt(count[label], tenth * 13 / 10);
    }
    tr_files_close(&files);
    free(text);
}
END_TEST

START_TEST(loads_are_equal_over_many_small_files)
{
    static char text[40000];
    struct tr_files files;
    size_t lines, readers = 7, total = 0, rows = 0;
    for (size_t i = 0; i < 60; i++) {
        char name[32];
        size_t n = numbered_lines(text, 4000 + tr_mix(i) % 30000, 0, &lines);
        snprintf(name, sizeof name, "small-%zu", i);
        write_file(name, text, n);
        total += n;
        rows += lines;
    }
    ck_ok(open_file("small-*", &files));
    ck_assert_uint_eq(files.total, total);
    for (int dealt = 0; dealt < 2; dealt++) {
        size_t bytes = 0, read = 0, done = 0;
        for (size_t k = 0; k < readers; k++) {
            uint64_t mine = 0;
            struct tr_reader_options options = {.format = TR_FORMAT_LIBSVM,
                                                .lowest_index = 1,
                                                .deal = dealt ? tr_files_chunk(&files, readers) : 0,
                                                .progress = keep_progress,
                                                .progress_state = &mine};
            struct tr_matrix csr;
            struct tr_read_report report;
            ck_ok(tr_read_matrix(&files, k, readers, &options, &csr, &report));
            ck_assert_uint_gt(report.text_bytes, total / readers * 9 / 10);
            ck_assert_uint_lt(report.text_bytes, total / readers * 11 / 10);
            bytes += report.text_bytes;
            read += report.rows;
            done += mine;
            tr_ids_free(&report.labels.bits);
            tr_matrix_free(&csr);
        }
        ck_assert_uint_eq(bytes, total);
        ck_assert_uint_eq(read, rows);
        ck_assert_uint_eq(done, total);
    }
    tr_files_close(&files);
}
END_TEST

/* The stored bytes of gzip files that a reader unpacks, and of how many files. */
static uint64_t unpacks(const struct tr_files *files, size_t reader, size_t readers, uint64_t chunk,
                        size_t *of)
{
    uint64_t bytes = 0;
    *of = 0;
    for (size_t i = 0; i < files->n; i++) {
        struct tr_file_part part;
        if (!tr_files_deal(files, i, reader, readers, chunk, 0, &part) &&
            !tr_files_deal(files, i, reader, readers, chunk, 1, &part))
            continue;
        bytes += files->file[i].size;
        ++*of;
    }
    return bytes;
}

/* Each gzip file is dealt to some readers, whose turns are all different. */
static void check_turns(const struct tr_files *files, size_t readers, uint64_t chunk)
{
    for (size_t i = 0; i < files->n; i++) {
        uint64_t sum = 0, turns = 0, sharers = 0;
        struct tr_file_part part;
        for (size_t k = 0; k < readers; k++) {
            for (int lap = 0; lap < 2; lap++) {
                if (!tr_files_deal(files, i, k, readers, chunk, lap, &part)) continue;
                ck_assert_uint_eq(part.stride, part.readers * part.bytes);
                sum += part.end / part.bytes;
                sharers = part.readers;
                turns++;
            }
        }
        ck_assert_uint_ge(turns, 1);
        ck_assert_uint_eq(turns, sharers);
        ck_assert_uint_eq(sum, turns * (turns + 1) / 2);
    }
}

START_TEST(readers_unpack_little_more_than_their_share_of_gzip_files)
{
    static const struct {
        size_t files, readers;
        uint64_t bytes;
        size_t least; /* files of which a reader has something */
    } all[] = {{24, 8, 500 << 20, 3}, {24, 8, 1 << 20, 24}, {1000, 100, 1 << 20, 35},
               {3, 16, 400 << 20, 1}, {1, 5, 3 << 20, 1},   {500, 4, 10000, 125}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        struct tr_files files = {.n = all[i].files, .total = all[i].files * all[i].bytes};
        ck_ok(TR_NEW(&files.file, files.n));
        for (size_t k = 0; k < files.n; k++)
            files.file[k] = (struct tr_file){.size = all[i].bytes, .packing = TR_GZIP};
        uint64_t chunk = tr_files_chunk(&files, all[i].readers), share = files.total / all[i].readers;
        check_turns(&files, all[i].readers, chunk);
        for (size_t k = 0; k < all[i].readers; k++) {
            size_t of;
            ck_assert_uint_le(unpacks(&files, k, all[i].readers, chunk, &of),
                              share + (36 << 20) + 2 * all[i].bytes);
            ck_assert_uint_ge(of, all[i].least);
        }
        free(files.file);
    }
}
END_TEST

START_TEST(dealt_bad_records_are_named_with_their_line)
{
    enum { READERS = 3, DEAL = 64, LINES = 400 };
    static char text[LINES * 32];
    struct tr_reader_options options = {.format = TR_FORMAT_LIBSVM, .lowest_index = 1, .deal = DEAL};
    for (size_t bad = 1; bad <= LINES; bad += 13) {
        struct tr_files files;
        char expected[64];
        size_t n = 0, failed = 0;
        for (size_t line = 1; line <= LINES; line++)
            n += (size_t)sprintf(text + n,
                                 line == bad ? "1 2:x%zu\n"
                                 : line % 5  ? "1 2:3 7:%zu\n"
                                             : "\n",
                                 line);
        write_file("bad-1", "1 1:1\n1 2:1\n", 12);
        write_file("bad-2", text, n);
        ck_ok(open_file("bad-*", &files));
        snprintf(expected, sizeof expected, "/bad-2:%zu: '2:x%zu': the value", bad, bad);
        for (size_t k = 0; k < READERS; k++) {
            struct tr_matrix csr;
            struct tr_read_report report;
            int status = tr_read_matrix(&files, k, READERS, &options, &csr, &report);
            if (status == TR_OK) {
                tr_ids_free(&report.labels.bits);
                tr_matrix_free(&csr);
                continue;
            }
            ck_assert_int_eq(status, TR_ERR_DATA);
            ck_assert_msg(strstr(tr_error_text(), expected), "«%s» lacks «%s»", tr_error_text(), expected);
            failed++;
        }
        ck_assert_uint_eq(failed, 1);
        tr_files_close(&files);
    }
}
END_TEST

START_TEST(gzip_files_are_dealt_in_pieces)
{
    static char text[5000000];
    struct tr_files files;
    size_t lines, n = numbered_lines(text, sizeof text, 0, &lines), half = n / 2 + 7;
    write_gzip("dealt", "wb", text, half); /* two members, the border inside a line */
    write_gzip("dealt", "ab", text + half, n - half);
    ck_ok(open_file("dealt", &files));
    ck_assert(files.file[0].packing == TR_GZIP);
    for (size_t readers = 1; readers <= 7; readers++)
        check_dealing(&files, lines, readers, readers % 2 ? tr_files_chunk(&files, readers) : 0, 0);
    check_dealing(&files, lines, 3, 1000, 100);
    tr_files_close(&files);
}
END_TEST

START_TEST(a_line_longer_than_pieces_goes_to_one_reader)
{
    size_t n = 3500000;
    char *text = malloc(n);
    struct tr_files files;
    ck_assert_ptr_nonnull(text);
    memset(text, ' ', n);
    memcpy(text, "0 1:1\n1", 7);
    memcpy(text + n - 12, "9:1\n2 1:1\n3\n", 12);
    write_gzip("long", "wb", text, n);
    write_file("long-plain", text, n);
    for (size_t readers = 1; readers <= 4; readers++) {
        ck_ok(open_file("long", &files));
        check_division(&files, 4, readers, 0);
        tr_files_close(&files);
        ck_ok(open_file("long-plain", &files));
        check_division(&files, 4, readers, 0);
        tr_files_close(&files);
    }
    free(text);
}
END_TEST

START_TEST(chunk_borders_do_not_matter)
{
    const char text[] = "1 1:0.25 22:1 333:12345678.5\r\n-1 4444:1\n\n# c\n2 1:1 2:1e-3 #\n3\n";
    struct tr_matrix whole, csr;
    struct tr_read_report report;
    ck_ok(read_text(text, sizeof text - 1, from_one, &whole, &report));
    tr_ids_free(&report.labels.bits);
    for (size_t bytes = 1; bytes < sizeof text + 2; bytes++) {
        struct tr_reader_options options = {
            .format = TR_FORMAT_LIBSVM, .lowest_index = 1, .chunk_bytes = bytes};
        ck_ok(read_text(text, sizeof text - 1, options, &csr, &report));
        ck_assert_uint_eq(csr.rows, whole.rows);
        ck_assert_uint_eq(report.text_bytes, sizeof text - 1);
        ck_assert_mem_eq(csr.begin, whole.begin, 8 * (whole.rows + 1));
        ck_assert_mem_eq(csr.column, whole.column, 4 * report.nonzeros);
        ck_assert_mem_eq(csr.value, whole.value, 4 * report.nonzeros);
        tr_ids_free(&report.labels.bits);
        tr_matrix_free(&csr);
    }
    tr_matrix_free(&whole);
}
END_TEST

static int note_progress(void *state, uint64_t bytes)
{
    *(uint64_t *)state = bytes;
    return bytes > 1000 ? TR_ERR_STOPPED : TR_OK;
}

START_TEST(progress_is_told_and_can_stop)
{
    uint64_t bytes = 0;
    struct tr_reader_options options = {
        .format = TR_FORMAT_LIBSVM, .chunk_bytes = 100, .progress = note_progress, .progress_state = &bytes};
    struct tr_matrix csr;
    struct tr_read_report report;
    static char text[6000];
    for (size_t i = 0; i < sizeof text; i += 6) memcpy(text + i, "1 1:1\n", 6);
    ck_ok(read_text(text, 600, options, &csr, &report));
    ck_assert_uint_eq(bytes, 600);
    tr_ids_free(&report.labels.bits);
    tr_matrix_free(&csr);
    ck_assert_int_eq(read_text(text, sizeof text, options, &csr, &report), TR_ERR_STOPPED);
}
END_TEST

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

START_TEST(known_difficult_numbers_are_read_right)
{
    static const char *const numbers[] = {
        "0",
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
        "0.00000000000000000000000000000000000000000000000001e50",
    };
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) check_number(numbers[i]);
}
END_TEST

START_TEST(random_numbers_are_read_as_by_the_library)
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
END_TEST

/* The rows that `readers` readers get together, of 1000 rows whose labels are their numbers. */
static void find_rows(const struct tr_files *files, struct tr_reader_options options, size_t readers,
                      bool found[1000])
{
    memset(found, 0, 1000 * sizeof *found);
    for (size_t reader = 0; reader < readers; reader++) {
        struct tr_matrix m;
        struct tr_read_report report;
        ck_ok(tr_read_matrix(files, reader, readers, &options, &m, &report));
        for (size_t i = 0; i < m.rows; i++) {
            ck_assert(!found[(size_t)m.label[i]]);
            found[(size_t)m.label[i]] = true;
        }
        tr_ids_free(&report.labels.bits);
        tr_matrix_free(&m);
    }
}

START_TEST(each_row_is_held_out_or_not_for_any_number_of_readers)
{
    char text[16000];
    size_t n = 0;
    for (int i = 0; i < 1000; i++) n += (size_t)sprintf(text + n, "%d 1:2\n", i);
    write_file("rows", text, n);
    write_gzip("packed", "wb", text, n);
    bool first[1000], others[1000], again[1000];
    for (int packed = 0; packed < 2; packed++) {
        struct tr_files files;
        ck_ok(open_file(packed ? "packed" : "rows", &files));
        for (size_t readers = 1; readers <= 5; readers += 2) {
            struct tr_reader_options o = {
                .format = TR_FORMAT_LIBSVM, .held_out = {0, 0.2}, .seed = 3, .deal = readers == 5 ? 512 : 0};
            find_rows(&files, o, readers, others);
            o.reads_held_out = true;
            find_rows(&files, o, readers, again);
            if (readers == 1 && !packed) memcpy(first, again, sizeof first);
            ck_assert_mem_eq(first, again, sizeof first);
            for (int i = 0; i < 1000; i++) ck_assert(first[i] != others[i]);
            o.seed = 4;
            find_rows(&files, o, readers, again);
            ck_assert_mem_ne(first, again, sizeof first);
        }
        tr_files_close(&files);
    }
    int held = 0;
    for (int i = 0; i < 1000; i++) held += first[i];
    ck_assert_int_gt(held, 150);
    ck_assert_int_lt(held, 250);
}
END_TEST

UNIT_MAIN("libsvm", rows_are_read_as_they_stand, values_are_kept_only_if_one_is_not_1,
          the_first_three_labels_have_places, as_many_labels_are_told_apart_as_make_classes,
          a_real_file_is_read_whole, a_bad_record_is_named_with_its_line, nul_bytes_are_refused,
          bad_records_can_be_skipped, endless_lines_are_refused, input_that_is_not_there_is_named,
          globs_are_sorted, damaged_gzip_is_named, plain_files_are_divided,
          few_lines_are_divided_at_every_byte, few_lines_are_dealt_at_every_byte,
          any_lines_are_dealt_in_chunks_of_any_size, chunks_suit_the_data_and_the_readers,
          of_sorted_files_every_reader_has_a_sample, readers_of_a_sorted_file_are_in_different_places,
          loads_are_equal_over_many_small_files, readers_unpack_little_more_than_their_share_of_gzip_files,
          dealt_bad_records_are_named_with_their_line, gzip_files_are_dealt_in_pieces,
          a_line_longer_than_pieces_goes_to_one_reader, chunk_borders_do_not_matter,
          progress_is_told_and_can_stop, known_difficult_numbers_are_read_right,
          random_numbers_are_read_as_by_the_library, each_row_is_held_out_or_not_for_any_number_of_readers)
