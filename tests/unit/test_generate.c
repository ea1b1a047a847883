#define _GNU_SOURCE
#include "unit.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "data/generate.h"
#include "data/reader.h"

static char *generate(struct tr_generate_options options, size_t *bytes)
{
    char *text;
    FILE *out = open_memstream(&text, bytes);
    ck_assert_ptr_nonnull(out);
    ck_ok(tr_generate_ctr(&options, out));
    fclose(out);
    return text;
}

/* Generates rows and reads them again. */
static void generate_rows(struct tr_generate_options options, struct tr_matrix *csr,
                          struct tr_read_report *report)
{
    char path[] = "/tmp/test_generate_XXXXXX";
    struct tr_files files;
    struct tr_reader_options reading = {.lowest_index = 1};
    FILE *out = fdopen(mkstemp(path), "w");
    ck_assert_ptr_nonnull(out);
    int status = tr_generate_ctr(&options, out);
    fclose(out);
    if (status == TR_OK) status = tr_files_open((char *[]){path}, 1, &files);
    if (status == TR_OK) status = tr_read_matrix(&files, 0, 1, &reading, csr, report);
    unlink(path);
    ck_ok(status);
    tr_files_close(&files);
}

START_TEST(any_slice_is_that_part_of_the_whole)
{
    struct tr_generate_options options = TR_GENERATE_DEFAULTS;
    options.rows = 500;
    size_t whole_bytes, bytes, at = 0;
    char *whole = generate(options, &whole_bytes);
    for (uint64_t first = 0; first < 500; first += 125) {
        options.first_row = first;
        options.rows = 125;
        char *slice = generate(options, &bytes);
        ck_assert_uint_le(at + bytes, whole_bytes);
        ck_assert_mem_eq(whole + at, slice, bytes);
        at += bytes;
        free(slice);
    }
    ck_assert_uint_eq(at, whole_bytes);
    free(whole);
}
END_TEST

START_TEST(another_seed_is_other_data)
{
    struct tr_generate_options options = TR_GENERATE_DEFAULTS;
    options.rows = 10;
    size_t n, m;
    char *a = generate(options, &n);
    options.seed = 2;
    char *b = generate(options, &m);
    ck_assert_str_ne(a, b);
    free(a);
    free(b);
}
END_TEST

START_TEST(rows_are_as_asked_for)
{
    struct tr_generate_options options = TR_GENERATE_DEFAULTS;
    struct tr_matrix csr;
    struct tr_read_report report;
    options.rows = 20000;
    options.features = 5000;
    options.noise = 0;
    generate_rows(options, &csr, &report);
    ck_assert_uint_eq(report.rows, 20000);
    ck_assert_uint_eq(report.nonzeros, 20000 * 40);
    ck_assert_uint_ge(report.lowest, 1);
    ck_assert_uint_le(report.highest, 5000);
    ck_assert_uint_eq(report.labels.bits.n, 2);
    ck_assert_ptr_nonnull(csr.value);
    ck_assert_float_eq_tol(csr.value[0], 0.1581f, 1e-6f); /* 1 / sqrt(40), of 4 digits */
    size_t positive = 0;
    for (size_t i = 0; i < csr.rows; i++) positive += csr.label[i] > 0;
    ck_assert_double_eq_tol((double)positive / (double)csr.rows, 0.3, 0.02);
    tr_ids_free(&report.labels.bits);
    tr_matrix_free(&csr);
}
END_TEST

START_TEST(real_values_lie_between_0_and_1)
{
    struct tr_generate_options options = TR_GENERATE_DEFAULTS;
    struct tr_matrix csr;
    struct tr_read_report report;
    options.rows = 2000;
    options.values = TR_VALUES_REAL;
    generate_rows(options, &csr, &report);
    ck_assert_ptr_nonnull(csr.value);
    for (size_t i = 0; i < report.nonzeros; i++) ck_assert(csr.value[i] > 0 && csr.value[i] <= 1);
    tr_ids_free(&report.labels.bits);
    tr_matrix_free(&csr);
}
END_TEST

static int descending(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x < y) - (x > y);
}

START_TEST(popularity_follows_the_power)
{
    struct tr_generate_options options = TR_GENERATE_DEFAULTS;
    struct tr_matrix csr;
    struct tr_read_report report;
    uint32_t counts[10001] = {0};
    options.rows = 200000;
    options.nonzeros = 1;
    options.features = 10000;
    generate_rows(options, &csr, &report);
    for (size_t i = 0; i < report.nonzeros; i++) counts[csr.column[i]]++;
    qsort(counts, 10001, sizeof *counts, descending);
    /* the continuous law lies half a step beside the discrete one: wide tolerance */
    ck_assert_double_eq_tol((double)counts[10] / counts[100], 11.5, 3);
    tr_ids_free(&report.labels.bits);
    tr_matrix_free(&csr);
}
END_TEST

START_TEST(rows_may_hold_every_feature)
{
    struct tr_generate_options options = TR_GENERATE_DEFAULTS;
    struct tr_matrix csr;
    struct tr_read_report report;
    options.rows = 50;
    for (uint32_t features = 1; features <= 100; features += 9) {
        options.features = options.nonzeros = features;
        generate_rows(options, &csr, &report);
        for (size_t i = 0; i < report.nonzeros; i++) ck_assert_uint_eq(csr.column[i], 1 + i % features);
        tr_ids_free(&report.labels.bits);
        tr_matrix_free(&csr);
    }
}
END_TEST

/* ---- ratings ---- */

static char *ratings_text(struct tr_generate_ratings options, uint64_t begin, uint64_t end, size_t *bytes)
{
    char *text;
    FILE *out = open_memstream(&text, bytes);
    ck_assert_ptr_nonnull(out);
    ck_ok(tr_generate_ratings(&options, begin, end, out));
    fclose(out);
    return text;
}

static struct tr_generate_ratings small_ratings(void)
{
    struct tr_generate_ratings options = TR_GENERATE_RATINGS;
    options.users = 300;
    options.items = 400;
    options.ratings = 20000;
    return options;
}

struct rating {
    unsigned user, item;
    double value;
};

/* Reads `user item rating` lines; *n of them. To be freed. */
static struct rating *ratings_of(struct tr_generate_ratings options, size_t *n)
{
    size_t bytes, length;
    char *text = ratings_text(options, 0, options.users, &bytes), *at = text;
    struct rating *ratings = malloc((options.ratings + 1) * sizeof *ratings);
    for (*n = 0; *at; at += length) {
        struct rating *r = &ratings[(*n)++];
        ck_assert_uint_le(*n, options.ratings);
        ck_assert_int_eq(sscanf(at, "%u\t%u\t%lf", &r->user, &r->item, &r->value), 3);
        length = strcspn(at, "\n") + 1;
    }
    free(text);
    return ratings;
}

START_TEST(ratings_of_some_users_are_those_of_all)
{
    size_t whole_bytes, bytes, at = 0;
    char *whole = ratings_text(small_ratings(), 0, 300, &whole_bytes);
    for (uint64_t begin = 0; begin < 300; begin += 100) {
        char *slice = ratings_text(small_ratings(), begin, begin + 100, &bytes);
        ck_assert_uint_le(at + bytes, whole_bytes);
        ck_assert_mem_eq(whole + at, slice, bytes);
        at += bytes;
        free(slice);
    }
    ck_assert_uint_eq(at, whole_bytes);
    free(whole);
}
END_TEST

START_TEST(users_rate_different_items)
{
    static bool rated[301][401];
    size_t n, items = 0;
    struct rating *ratings = ratings_of(small_ratings(), &n);
    ck_assert_uint_eq(n, 20000);
    memset(rated, 0, sizeof rated);
    for (size_t i = 0; i < n; i++) {
        struct rating r = ratings[i];
        ck_assert(r.user >= 1 && r.user <= 300 && r.item >= 1 && r.item <= 400);
        ck_assert(r.value == 1 || r.value == 2 || r.value == 3 || r.value == 4 || r.value == 5);
        ck_assert_msg(!rated[r.user][r.item], "user %u has item %u twice", r.user, r.item);
        ck_assert(i == 0 || r.user >= ratings[i - 1].user);
        rated[r.user][r.item] = true;
    }
    for (int item = 1; item <= 400; item++) items += rated[1][item];
    ck_assert(items >= 20 && items <= 270); /* 0.4 to 4 times the mean */
    free(ratings);
}
END_TEST

START_TEST(train_and_test_together_are_all_ratings)
{
    struct tr_generate_ratings options = small_ratings();
    size_t n, a, b, i = 0, j = 0;
    options.test = 0.25;
    struct rating *all = ratings_of(options, &n);
    options.part = TR_RATING_TRAIN;
    struct rating *train = ratings_of(options, &a);
    options.part = TR_RATING_TEST;
    struct rating *test = ratings_of(options, &b);
    ck_assert_uint_eq(a + b, n);
    ck_assert_double_eq_tol((double)b / (double)n, 0.25, 0.02);
    for (size_t k = 0; k < n; k++) {
        bool first = i < a && train[i].user == all[k].user && train[i].item == all[k].item;
        struct rating r = first ? train[i++] : test[j++];
        ck_assert(r.user == all[k].user && r.item == all[k].item && r.value == all[k].value);
    }
    free(all);
    free(train);
    free(test);
}
END_TEST

/* Without noise a rating is the product of the hidden factors of user and item, independent of other ratings. */
START_TEST(ratings_follow_hidden_factors)
{
    static double value[301][401];
    struct tr_generate_ratings options = small_ratings();
    size_t n, m, same = 0;
    double sum = 0, squares = 0;
    options.noise = 0;
    options.values = TR_RATING_REAL;
    struct rating *all = ratings_of(options, &n);
    options.ratings = 10000;
    struct rating *fewer = ratings_of(options, &m);
    memset(value, 0, sizeof value);
    for (size_t i = 0; i < n; i++) {
        value[all[i].user][all[i].item] = all[i].value;
        sum += all[i].value;
        squares += all[i].value * all[i].value;
    }
    for (size_t i = 0; i < m; i++) {
        double other = value[fewer[i].user][fewer[i].item];
        if (other == 0) continue;
        ck_assert_double_eq(other, fewer[i].value);
        same++;
    }
    ck_assert_uint_gt(same, 1000);
    ck_assert_double_eq_tol(sum / (double)n, 3.6, 0.2);
    ck_assert_double_eq_tol(squares / (double)n - sum * sum / (double)(n * n), 0.7, 0.25);
    free(all);
    free(fewer);
}
END_TEST

/* ---- documents ---- */

static char *docword_text(struct tr_generate_docword options, uint64_t begin, uint64_t end, size_t *bytes)
{
    char *text;
    FILE *out = open_memstream(&text, bytes);
    ck_assert_ptr_nonnull(out);
    ck_ok(tr_generate_docword(&options, begin, end, out));
    fclose(out);
    return text;
}

static struct tr_generate_docword small_docword(void)
{
    struct tr_generate_docword options = TR_GENERATE_DOCWORD;
    options.documents = 200;
    options.words = 1000;
    options.tokens = 20000;
    options.topics = 10;
    return options;
}

START_TEST(some_documents_are_those_of_all)
{
    size_t whole_bytes, bytes, at = 0;
    char *whole = docword_text(small_docword(), 0, 200, &whole_bytes);
    for (uint64_t begin = 0; begin < 200; begin += 50) {
        char *slice = docword_text(small_docword(), begin, begin + 50, &bytes);
        ck_assert_uint_le(at + bytes, whole_bytes);
        ck_assert_mem_eq(whole + at, slice, bytes);
        at += bytes;
        free(slice);
    }
    ck_assert_uint_eq(at, whole_bytes);
    free(whole);
}
END_TEST

/* Counts of the documents, a row each of options.words + 1. To be freed. */
static unsigned *counts_of(struct tr_generate_docword options)
{
    size_t bytes, length;
    unsigned last_document = 0, last_word = 0, document, word, count;
    char *text = docword_text(options, 0, options.documents, &bytes), *at = text;
    unsigned *counts = calloc(((size_t)options.documents + 1) * (options.words + 1), sizeof *counts);
    for (; *at; at += length) {
        ck_assert_int_eq(sscanf(at, "%u %u %u", &document, &word, &count), 3);
        ck_assert(document >= 1 && document <= options.documents && word >= 1 && word <= options.words);
        ck_assert_uint_ge(count, 1);
        ck_assert_msg(document > last_document || (document == last_document && word > last_word),
                      "document %u, word %u is behind %u, %u", document, word, last_document, last_word);
        counts[(size_t)document * (options.words + 1) + word] = count;
        last_document = document;
        last_word = word;
        length = strcspn(at, "\n") + 1;
    }
    free(text);
    return counts;
}

START_TEST(documents_have_all_tokens)
{
    struct tr_generate_docword options = small_docword();
    unsigned *counts = counts_of(options);
    size_t tokens = 0, most = 0;
    for (size_t d = 0; d <= options.documents; d++) {
        size_t length = 0;
        for (size_t w = 0; w <= options.words; w++) length += counts[d * (options.words + 1) + w];
        ck_assert(d == 0 || length >= 30);
        if (length > most) most = length;
        tokens += length;
    }
    ck_assert_uint_eq(tokens, 20000);
    ck_assert(most >= 200 && most <= 400);
    free(counts);
}
END_TEST

/* With two sharp topics and documents of one each, the words of the first document are those of about half
 * of the documents, and hardly those of the others. */
START_TEST(topics_show_in_the_words)
{
    struct tr_generate_docword options = small_docword();
    options.topics = 2;
    options.alpha = 0;
    options.power = 0;
    options.words = 5000;
    options.beta = 0.002;
    unsigned *counts = counts_of(options), *first = counts + options.words + 1;
    size_t like = 0;
    for (size_t d = 1; d <= options.documents; d++) {
        size_t shared = 0, length = 0;
        for (size_t w = 0; w <= options.words; w++) {
            unsigned count = counts[d * (options.words + 1) + w];
            length += count;
            if (first[w]) shared += count;
        }
        ck_assert_msg(shared * 10 < length || shared * 10 > length * 6, "document %zu shares %zu of %zu", d,
                      shared, length);
        like += shared * 2 > length;
    }
    ck_assert(like > 60 && like < 140);
    free(counts);
}
END_TEST

static int compare_words(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

START_TEST(made_up_words_differ)
{
    enum { WORDS = 20500 };
    static char *words[WORDS];
    char *text;
    size_t bytes, n = 0;
    FILE *out = open_memstream(&text, &bytes);
    ck_ok(tr_generate_vocabulary(0, WORDS, out));
    fclose(out);
    for (char *word = strtok(text, "\n"); word && n < WORDS; word = strtok(NULL, "\n")) words[n++] = word;
    ck_assert_uint_eq(n, WORDS);
    qsort(words, n, sizeof *words, compare_words);
    for (size_t i = 1; i < n; i++) ck_assert_str_ne(words[i - 1], words[i]);
    free(text);
}
END_TEST

/* ---- dense rows ---- */

static char *dense_text(struct tr_generate_dense options, size_t *bytes)
{
    char *text;
    FILE *out = open_memstream(&text, bytes);
    ck_assert_ptr_nonnull(out);
    ck_ok(tr_generate_dense(&options, out));
    fclose(out);
    return text;
}

START_TEST(some_dense_rows_are_those_of_all)
{
    struct tr_generate_dense options = TR_GENERATE_DENSE;
    size_t whole_bytes, bytes;
    options.rows = 100;
    char *whole = dense_text(options, &whole_bytes);
    options.first_row = 60;
    options.rows = 40;
    char *slice = dense_text(options, &bytes);
    ck_assert_uint_le(bytes, whole_bytes);
    ck_assert_mem_eq(whole + whole_bytes - bytes, slice, bytes);
    free(whole);
    free(slice);
}
END_TEST

/* Without noise the rows of a cluster are all its centre, and the label says which that is. */
START_TEST(dense_rows_lie_around_their_centres)
{
    enum { ROWS = 1000, COLUMNS = 30 };
    static double rows[2][ROWS][COLUMNS + 1];
    static int example[5];
    struct tr_generate_dense options = {
        .rows = ROWS, .columns = COLUMNS, .clusters = 5, .spread = 2, .seed = 3};
    double squares = 0, noise = 0;
    options.label = TR_DENSE_LAST;
    for (int noisy = 0; noisy < 2; noisy++) {
        size_t bytes;
        options.noise = 0.5 * noisy;
        char *text = dense_text(options, &bytes), *at = text;
        for (int i = 0; i < ROWS; i++)
            for (int j = 0; j <= COLUMNS; j++) {
                rows[noisy][i][j] = strtod(at, &at);
                ck_assert_int_eq(*at++, j < COLUMNS ? ',' : '\n');
            }
        ck_assert_int_eq(*at, '\0');
        free(text);
    }
    for (int i = 0; i < ROWS; i++) {
        const double *row = rows[0][i];
        int cluster = (int)row[COLUMNS];
        ck_assert(cluster >= 0 && cluster < 5);
        if (!example[cluster]) example[cluster] = i + 1;
        ck_assert_mem_eq(row, rows[0][example[cluster] - 1], sizeof rows[0][0]);
        ck_assert_double_eq(row[COLUMNS], rows[1][i][COLUMNS]);
        for (int j = 0; j < COLUMNS; j++) {
            squares += row[j] * row[j];
            noise += (rows[1][i][j] - row[j]) * (rows[1][i][j] - row[j]);
        }
    }
    ck_assert_double_eq_tol(squares / (ROWS * COLUMNS), 4, 1);
    ck_assert_double_eq_tol(noise / (ROWS * COLUMNS), 0.25, 0.01);
    for (int k = 0; k < 5; k++) ck_assert_int_ne(example[k], 0);
}
END_TEST

START_TEST(dense_rows_are_the_same_in_both_formats)
{
    struct tr_generate_dense options = TR_GENERATE_DENSE;
    size_t bytes, more;
    options.rows = 50;
    options.columns = 5;
    options.label = TR_DENSE_FIRST;
    char *csv = dense_text(options, &bytes);
    options.label = TR_DENSE_NONE;
    options.format = TR_DENSE_LIBSVM;
    char *libsvm = dense_text(options, &more), *at = csv, *end = libsvm;
    for (int i = 0; i < 50; i++)
        for (unsigned long j = 0; j <= 5; j++) {
            if (j > 0) ck_assert_uint_eq(strtoul(end, &end, 10), j);
            if (j > 0) ck_assert_int_eq(*end++, ':');
            ck_assert_double_eq(strtod(at, &at), strtod(end, &end));
            ck_assert_int_eq(*at++, j < 5 ? ',' : '\n');
            ck_assert_int_eq(*end++, j < 5 ? ' ' : '\n');
        }
    ck_assert_int_eq(*end, '\0');
    free(csv);
    free(libsvm);
}
END_TEST

/* ---- errors ---- */

START_TEST(impossible_ratings_are_errors)
{
    struct tr_generate_ratings options = small_ratings();
    options.ratings = 30001;
    ck_fails(tr_generate_ratings(&options, 0, 1, stdout), TR_ERR_CONFIG,
             "ratings: 30001, expected at most 30000");
    options = small_ratings();
    options.rank = 0;
    ck_fails(tr_generate_ratings(&options, 0, 1, stdout), TR_ERR_CONFIG, "rank: 0, expected 1 to 4096");
    options = small_ratings();
    options.test = 1;
    ck_fails(tr_generate_ratings(&options, 0, 1, stdout), TR_ERR_CONFIG, "test: 1");
    options = small_ratings();
    options.noise = NAN;
    ck_fails(tr_generate_ratings(&options, 0, 1, stdout), TR_ERR_CONFIG, "noise: nan");
}
END_TEST

START_TEST(impossible_documents_are_errors)
{
    struct tr_generate_docword options = small_docword();
    options.beta = 0;
    ck_fails(tr_generate_docword(&options, 0, 1, stdout), TR_ERR_CONFIG, "beta: 0");
    options = small_docword();
    options.topics = 0;
    ck_fails(tr_generate_docword(&options, 0, 1, stdout), TR_ERR_CONFIG, "topics: 0");
}
END_TEST

START_TEST(impossible_dense_rows_are_errors)
{
    struct tr_generate_dense options = TR_GENERATE_DENSE;
    options.columns = 0;
    ck_fails(tr_generate_dense(&options, stdout), TR_ERR_CONFIG, "columns: 0");
    options = (struct tr_generate_dense)TR_GENERATE_DENSE;
    options.format = TR_DENSE_LIBSVM;
    options.label = TR_DENSE_LAST;
    ck_fails(tr_generate_dense(&options, stdout), TR_ERR_CONFIG, "label: ");
}
END_TEST

START_TEST(impossible_options_are_errors)
{
    struct tr_generate_options options = TR_GENERATE_DEFAULTS;
    options.nonzeros = options.features + 1;
    ck_fails(tr_generate_ctr(&options, stdout), TR_ERR_CONFIG, "nonzeros: 1000001, expected 1 to 1000000");
    options = (struct tr_generate_options)TR_GENERATE_DEFAULTS;
    options.noise = 2;
    ck_fails(tr_generate_ctr(&options, stdout), TR_ERR_CONFIG, "noise: 2");
}
END_TEST

START_TEST(a_full_disk_is_an_error)
{
    struct tr_generate_options options = TR_GENERATE_DEFAULTS;
    FILE *full = fopen("/dev/full", "w");
    if (!full) return;
    options.rows = 10;
    ck_fails(tr_generate_ctr(&options, full), TR_ERR_IO, "No space");
    fclose(full);
}
END_TEST

UNIT_MAIN("generate", any_slice_is_that_part_of_the_whole, another_seed_is_other_data, rows_are_as_asked_for,
          real_values_lie_between_0_and_1, popularity_follows_the_power, rows_may_hold_every_feature,
          ratings_of_some_users_are_those_of_all, users_rate_different_items,
          train_and_test_together_are_all_ratings, ratings_follow_hidden_factors,
          some_documents_are_those_of_all, documents_have_all_tokens, topics_show_in_the_words,
          made_up_words_differ, some_dense_rows_are_those_of_all, dense_rows_lie_around_their_centres,
          dense_rows_are_the_same_in_both_formats, impossible_options_are_errors,
          impossible_ratings_are_errors, impossible_documents_are_errors, impossible_dense_rows_are_errors,
          a_full_disk_is_an_error)
