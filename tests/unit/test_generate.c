/* Generators: any part of the rows is that part of the whole, and rows follow the laws that the options describe.
 * tests/cli/test_generate.sh has the command with its errors. */
#include "reading.h"

#include "data/generate.h"

/* What was generated last. */
static char *text;
static size_t bytes;

#define GENERATE(function, ...)                                                                              \
    do {                                                                                                     \
        free(text);                                                                                          \
        FILE *out_ = open_memstream(&text, &bytes);                                                          \
        ck_ok(function(__VA_ARGS__, out_));                                                                  \
        fclose(out_);                                                                                        \
    } while (0)

static struct tr_generate_ratings small_ratings(void)
{
    struct tr_generate_ratings options = TR_GENERATE_RATINGS;
    options.users = 300;
    options.items = 400;
    options.ratings = 20000;
    return options;
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

/* ---- parts ---- */

enum kind { CTR, RATINGS, DOCWORD, DENSE, KINDS };

/* Rows from .. end - 1. */
static void generate(enum kind kind, uint64_t from, uint64_t end)
{
    struct tr_generate_options ctr = TR_GENERATE_DEFAULTS;
    struct tr_generate_dense dense = TR_GENERATE_DENSE;
    struct tr_generate_ratings ratings = small_ratings();
    struct tr_generate_docword docword = small_docword();
    ctr.first_row = dense.first_row = from;
    ctr.rows = dense.rows = end - from;
    switch (kind) {
    case CTR: GENERATE(tr_generate_ctr, &ctr); break;
    case RATINGS: GENERATE(tr_generate_ratings, &ratings, from, end); break;
    case DOCWORD: GENERATE(tr_generate_docword, &docword, from, end); break;
    default: GENERATE(tr_generate_dense, &dense);
    }
}

UNIT_LOOP(any_part_is_that_part_of_the_whole, KINDS)
{
    enum { ROWS = 200, PART = 50 };
    generate((enum kind)_i, 0, ROWS);
    char *whole = text;
    size_t at = 0, all = bytes;
    text = NULL;
    for (uint64_t from = 0; from < ROWS; from += PART, at += bytes) {
        generate((enum kind)_i, from, from + PART);
        ck_assert_uint_le(at + bytes, all);
        ck_assert_mem_eq(whole + at, text, bytes);
    }
    ck_assert_uint_eq(at, all);
    free(whole);
}

UNIT_CASE(another_seed_is_other_data)
{
    struct tr_generate_options options = TR_GENERATE_DEFAULTS;
    options.rows = 10;
    GENERATE(tr_generate_ctr, &options);
    char *first = text;
    text = NULL;
    options.seed = 2;
    GENERATE(tr_generate_ctr, &options);
    ck_assert_str_ne(first, text);
    free(first);
}

/* ---- rows of clicks ---- */

/* Generates rows and reads them again. */
static void generate_rows(struct tr_generate_options options)
{
    GENERATE(tr_generate_ctr, &options);
    ck_ok(read_text(text, bytes, (struct tr_reader_options){.format = TR_FORMAT_LIBSVM, .lowest_index = 1}));
}

UNIT_CASE(rows_are_as_asked_for)
{
    struct tr_generate_options options = TR_GENERATE_DEFAULTS;
    options.rows = 20000;
    options.features = 5000;
    options.noise = 0;
    generate_rows(options);
    ck_assert_uint_eq(report.rows, 20000);
    ck_assert_uint_eq(report.nonzeros, 20000 * 40);
    ck_assert_uint_ge(report.lowest, 1);
    ck_assert_uint_le(report.highest, 5000);
    ck_assert_uint_eq(report.labels.bits.n, 2);
    ck_assert_ptr_nonnull(matrix.value);
    ck_assert_float_eq_tol(matrix.value[0], 0.1581f, 1e-6f); /* 1 / sqrt(40), of 4 digits */
    size_t positive = 0;
    for (size_t i = 0; i < matrix.rows; i++) positive += matrix.label[i] > 0;
    ck_assert_double_eq_tol((double)positive / (double)matrix.rows, 0.3, 0.02);
}

UNIT_CASE(real_values_lie_between_0_and_1)
{
    struct tr_generate_options options = TR_GENERATE_DEFAULTS;
    options.rows = 2000;
    options.values = TR_VALUES_REAL;
    generate_rows(options);
    ck_assert_ptr_nonnull(matrix.value);
    for (size_t i = 0; i < report.nonzeros; i++) ck_assert(matrix.value[i] > 0 && matrix.value[i] <= 1);
}

static int descending(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x < y) - (x > y);
}

UNIT_CASE(popularity_follows_the_power)
{
    struct tr_generate_options options = TR_GENERATE_DEFAULTS;
    uint32_t counts[10001] = {0};
    options.rows = 200000;
    options.nonzeros = 1;
    options.features = 10000;
    generate_rows(options);
    for (size_t i = 0; i < report.nonzeros; i++) counts[matrix.column[i]]++;
    qsort(counts, 10001, sizeof *counts, descending);
    /* the continuous law lies half a step beside the discrete one: wide tolerance */
    ck_assert_double_eq_tol((double)counts[10] / counts[100], 11.5, 3);
}

UNIT_CASE(rows_may_hold_every_feature)
{
    struct tr_generate_options options = TR_GENERATE_DEFAULTS;
    options.rows = 50;
    for (uint32_t features = 1; features <= 100; features += 9) {
        options.features = options.nonzeros = features;
        generate_rows(options);
        for (size_t i = 0; i < report.nonzeros; i++) ck_assert_uint_eq(matrix.column[i], 1 + i % features);
    }
}

/* ---- ratings ---- */

struct rating {
    unsigned user, item;
    double value;
};

/* Reads `user item rating` lines; *n of them. To be freed. */
static struct rating *ratings_of(struct tr_generate_ratings options, size_t *n)
{
    size_t length;
    GENERATE(tr_generate_ratings, &options, 0, options.users);
    const char *at = text;
    struct rating *ratings = malloc((options.ratings + 1) * sizeof *ratings);
    for (*n = 0; *at; at += length) {
        struct rating *r = &ratings[(*n)++];
        ck_assert_uint_le(*n, options.ratings);
        ck_assert_int_eq(sscanf(at, "%u\t%u\t%lf", &r->user, &r->item, &r->value), 3);
        length = strcspn(at, "\n") + 1;
    }
    return ratings;
}

UNIT_CASE(users_rate_different_items)
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

UNIT_CASE(train_and_test_together_are_all_ratings)
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
    TR_FREE_ALL(all, train, test);
}

/* Without noise a rating is the product of the hidden factors of user and item, independent of other ratings. */
UNIT_CASE(ratings_follow_hidden_factors)
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
    TR_FREE_ALL(all, fewer);
}

/* ---- documents ---- */

/* Counts of the documents, a row each of options.words + 1. To be freed. */
static unsigned *counts_of(struct tr_generate_docword options)
{
    size_t length;
    unsigned last_document = 0, last_word = 0, document, word, count;
    GENERATE(tr_generate_docword, &options, 0, options.documents);
    const char *at = text;
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
    return counts;
}

UNIT_CASE(documents_have_all_tokens)
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

/* With two sharp topics and documents of one each, the words of the first document are those of about half
 * of the documents, and hardly those of the others. */
UNIT_CASE(topics_show_in_the_words)
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

static int compare_words(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

UNIT_CASE(made_up_words_differ)
{
    enum { WORDS = 20500 };
    static char *words[WORDS];
    size_t n = 0;
    GENERATE(tr_generate_vocabulary, 0, WORDS);
    for (char *word = strtok(text, "\n"); word && n < WORDS; word = strtok(NULL, "\n")) words[n++] = word;
    ck_assert_uint_eq(n, WORDS);
    qsort(words, n, sizeof *words, compare_words);
    for (size_t i = 1; i < n; i++) ck_assert_str_ne(words[i - 1], words[i]);
}

/* ---- dense rows ---- */

/* Without noise the rows of a cluster are all its centre, and the label says which that is. */
UNIT_CASE(dense_rows_lie_around_their_centres)
{
    enum { ROWS = 1000, COLUMNS = 30 };
    static double rows[2][ROWS][COLUMNS + 1];
    static int example[5];
    struct tr_generate_dense options = {
        .rows = ROWS, .columns = COLUMNS, .clusters = 5, .spread = 2, .seed = 3};
    double squares = 0, noise = 0;
    options.label = TR_DENSE_LAST;
    for (int noisy = 0; noisy < 2; noisy++) {
        options.noise = 0.5 * noisy;
        GENERATE(tr_generate_dense, &options);
        char *at = text;
        for (int i = 0; i < ROWS; i++)
            for (int j = 0; j <= COLUMNS; j++) {
                rows[noisy][i][j] = strtod(at, &at);
                ck_assert_int_eq(*at++, j < COLUMNS ? ',' : '\n');
            }
        ck_assert_int_eq(*at, '\0');
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

UNIT_CASE(dense_rows_are_the_same_in_both_formats)
{
    struct tr_generate_dense options = TR_GENERATE_DENSE;
    options.rows = 50;
    options.columns = 5;
    options.label = TR_DENSE_FIRST;
    GENERATE(tr_generate_dense, &options);
    char *csv = text;
    text = NULL;
    options.label = TR_DENSE_NONE;
    options.format = TR_DENSE_LIBSVM;
    GENERATE(tr_generate_dense, &options);
    char *at = csv, *end = text;
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
}

/* ---- errors ---- */

#define REFUSED(options, field, wrong, words, ...)                                                           \
    do {                                                                                                     \
        options.field = wrong;                                                                               \
        ck_fails(__VA_ARGS__, TR_ERR_CONFIG, words);                                                         \
    } while (0)

UNIT_CASE(impossible_options_are_errors)
{
    struct tr_generate_options ctr = TR_GENERATE_DEFAULTS;
    REFUSED(ctr, noise, 2, "noise: 2", tr_generate_ctr(&ctr, stdout));
    struct tr_generate_ratings ratings = small_ratings();
    REFUSED(ratings, test, 1, "test: 1", tr_generate_ratings(&ratings, 0, 1, stdout));
    ratings = small_ratings();
    REFUSED(ratings, noise, NAN, "noise: nan", tr_generate_ratings(&ratings, 0, 1, stdout));
    ratings = small_ratings();
    REFUSED(ratings, rank, 0, "rank: 0, expected 1 to 4096", tr_generate_ratings(&ratings, 0, 1, stdout));
    struct tr_generate_docword docword = small_docword();
    REFUSED(docword, beta, 0, "beta: 0", tr_generate_docword(&docword, 0, 1, stdout));
    docword = small_docword();
    REFUSED(docword, topics, 0, "topics: 0", tr_generate_docword(&docword, 0, 1, stdout));
    struct tr_generate_dense dense = TR_GENERATE_DENSE;
    dense.format = TR_DENSE_LIBSVM;
    REFUSED(dense, label, TR_DENSE_LAST, "label: ", tr_generate_dense(&dense, stdout));
    REFUSED(dense, columns, 0, "columns: 0", tr_generate_dense(&dense, stdout));
}
