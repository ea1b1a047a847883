/* Priors against a direct maximisation, folding in against plain arithmetic, and files of words. */
#include "unit.h"

#include "model/lda/lda.h"

/* ---- histograms ---- */

static void open_histogram(struct tr_lda_histogram *h, size_t rows, const uint32_t (*counts)[2], size_t n)
{
    ck_ok(tr_lda_histogram_open(rows, h));
    for (size_t i = 0; i < n; i++) ck_ok(tr_lda_histogram_add(h, counts[i][0], counts[i][1], 1));
    ck_ok(tr_lda_histogram_sort(h));
}

UNIT_CASE(a_histogram_says_how_often_each_count_was_added)
{
    static const uint32_t counts[][2] = {{2, 5},    {0, 1000}, {2, 31},         {2, 32}, {0, 3},    {2, 5},
                                         {0, 1000}, {2, 0},    {0, 4000000000}, {2, 32}, {0, 1000}, {2, 33}};
    static const struct tr_lda_bin bins[] = {{0, 3, 1},  {0, 1000, 3}, {0, 4000000000, 1}, {2, 5, 2},
                                             {2, 31, 1}, {2, 32, 2},   {2, 33, 1}};
    struct tr_lda_histogram h;
    open_histogram(&h, 3, counts, COUNT(counts));
    ck_assert_uint_eq(h.rows, 3);
    ck_assert_uint_eq(h.begin[0], 0);
    ck_assert_uint_eq(h.begin[1], 3);
    ck_assert_uint_eq(h.begin[2], 3);
    ck_assert_uint_eq(h.begin[3], 7);
    for (size_t i = 0; i < 7; i++) {
        ck_assert_uint_eq(h.bin[i].row, bins[i].row);
        ck_assert_uint_eq(h.bin[i].count, bins[i].count);
        ck_assert_uint_eq(h.bin[i].times, bins[i].times);
    }
    tr_lda_histogram_close(&h);
}

UNIT_CASE(the_slope_is_that_of_log_gamma)
{
    static const uint32_t counts[][2] = {{0, 1}, {0, 1}, {0, 7}, {0, 40}, {0, 5000}, {0, 5003}};
    static const double priors[] = {1e-4, 0.01, 0.3, 1, 25, 3000};
    struct tr_lda_histogram h;
    open_histogram(&h, 1, counts, 6);
    for (size_t i = 0; i < COUNT(priors); i++) {
        double a = priors[i], step = 1e-5 * a, difference = 0;
        for (size_t c = 0; c < 6; c++)
            difference += lgamma(counts[c][1] + a + step) - lgamma(a + step) -
                          (lgamma(counts[c][1] + a - step) - lgamma(a - step));
        difference /= 2 * step;
        double slope = tr_lda_histogram_slope(&h, 0, a);
        ck_assert_msg(fabs(slope - difference) <= 1e-4 * slope, "a = %g: %.12g, expected %.12g", a, slope,
                      difference);
    }
    tr_lda_histogram_close(&h);
}

/* ---- fits ---- */

enum { TOPICS = 4, DOCUMENTS = 400 };

/* Documents whose topics follow a Dirichlet prior of 0.2, 0.6, 1 and 2, as in Pólya's urn. */
static void draw_documents(uint32_t counts[DOCUMENTS][TOPICS], uint32_t *length)
{
    static const double alpha[TOPICS] = {0.2, 0.6, 1, 2};
    struct tr_rng rng;
    tr_rng_seed(&rng, 5, 0, 0);
    memset(counts, 0, DOCUMENTS * sizeof *counts);
    for (int d = 0; d < DOCUMENTS; d++) {
        length[d] = 5 + (uint32_t)tr_rng_below(&rng, 80);
        for (uint32_t i = 0; i < length[d]; i++) {
            double at = tr_rng_uniform(&rng) * (3.8 + i);
            int k = 0;
            while (k < TOPICS - 1 && (at -= alpha[k] + counts[d][k]) >= 0) k++;
            counts[d][k]++;
        }
    }
}

static double log_documents(uint32_t counts[DOCUMENTS][TOPICS], const uint32_t *length, const double *alpha)
{
    double sum = 0, all = 0;
    for (int k = 0; k < TOPICS; k++) all += alpha[k];
    for (int d = 0; d < DOCUMENTS; d++) {
        sum += lgamma(all) - lgamma(length[d] + all);
        for (int k = 0; k < TOPICS; k++) sum += lgamma(counts[d][k] + alpha[k]) - lgamma(alpha[k]);
    }
    return sum;
}

static int alone(void *who, double *numbers, size_t n)
{
    ++*(int *)who;
    return TR_OK;
}

static void count_documents(uint32_t counts[DOCUMENTS][TOPICS], const uint32_t *length,
                            struct tr_lda_histogram *h)
{
    ck_ok(tr_lda_histogram_open(TOPICS + 1, h));
    for (size_t d = 0; d < DOCUMENTS; d++) {
        for (size_t k = 0; k < TOPICS; k++) ck_ok(tr_lda_histogram_add(h, k, counts[d][k], 1));
        ck_ok(tr_lda_histogram_add(h, TOPICS, length[d], 1));
    }
    ck_ok(tr_lda_histogram_sort(h));
}

/* Coordinate ascent with steps that shrink: slow, and nothing to get wrong. */
static void climb(uint32_t counts[DOCUMENTS][TOPICS], const uint32_t *length, double *alpha)
{
    double best = log_documents(counts, length, alpha);
    for (double step = 0.5; step > 1e-5; step /= 2)
        for (int k = 0; k < TOPICS; k++)
            for (int sign = -1; sign <= 1; sign += 2)
                for (;;) {
                    double old = alpha[k];
                    alpha[k] *= exp(sign * step);
                    double now = log_documents(counts, length, alpha);
                    if (now > best) {
                        best = now;
                        k = 0; /* the others may move again */
                        continue;
                    }
                    alpha[k] = old;
                    break;
                }
}

UNIT_CASE(alpha_is_where_the_likelihood_is_highest)
{
    static uint32_t counts[DOCUMENTS][TOPICS], length[DOCUMENTS];
    struct tr_lda_histogram documents;
    double fitted[TOPICS] = {0.1, 0.1, 0.1, 0.1}, climbed[TOPICS] = {1, 1, 1, 1}, numbers[2 * TOPICS + 3];
    int calls = 0;
    draw_documents(counts, length);
    count_documents(counts, length, &documents);
    for (int i = 0; i < 3; i++) /* one fit comes near, and the next continues from it */
        ck_ok(tr_lda_fit_alpha(&documents, INFINITY, alone, &calls, numbers, fitted));
    climb(counts, length, climbed);
    for (int k = 0; k < TOPICS; k++)
        ck_assert_msg(fabs(fitted[k] / climbed[k] - 1) < 0.01, "alpha %d: %g, expected %g", k, fitted[k],
                      climbed[k]);
    ck_assert_int_gt(calls, 3);
    tr_lda_histogram_close(&documents);
}

/* The same documents, half of them here and half of them elsewhere. */
static int twice(void *who, double *numbers, size_t n)
{
    for (size_t i = 0; i < n; i++) numbers[i] *= 2;
    return TR_OK;
}

UNIT_CASE(what_others_have_counts_as_well)
{
    static uint32_t counts[DOCUMENTS][TOPICS], length[DOCUMENTS];
    struct tr_lda_histogram documents;
    double once[TOPICS] = {0.1, 0.1, 0.1, 0.1}, both[TOPICS] = {0.1, 0.1, 0.1, 0.1}, numbers[2 * TOPICS + 3];
    int calls = 0;
    draw_documents(counts, length);
    count_documents(counts, length, &documents);
    ck_ok(tr_lda_fit_alpha(&documents, INFINITY, alone, &calls, numbers, once));
    ck_ok(tr_lda_fit_alpha(&documents, INFINITY, twice, NULL, numbers, both));
    for (int k = 0; k < TOPICS; k++) ck_assert_msg(fabs(once[k] - both[k]) < 1e-9, "%g %g", once[k], both[k]);
    tr_lda_histogram_close(&documents);
}

UNIT_CASE(a_topic_without_tokens_keeps_a_little)
{
    static const uint32_t counts[][2] = {{0, 5}, {0, 3}, {0, 9}, {2, 5}, {2, 3}, {2, 9}};
    static const uint32_t of_two_moments[][2] = {{0, 10}, {0, 6}, {0, 18}, {2, 5}, {2, 3}, {2, 9}};
    struct tr_lda_histogram documents, none, twice_as_many;
    double alpha[2] = {0.1, 0.1}, numbers[7];
    int calls = 0;
    open_histogram(&documents, 3, counts, 6);
    open_histogram(&none, 3, counts, 3);
    open_histogram(&twice_as_many, 3, of_two_moments, 6);
    ck_ok(tr_lda_fit_alpha(&documents, INFINITY, alone, &calls, numbers, alpha));
    ck_assert(alpha[1] == TR_LDA_LEAST_PRIOR && alpha[0] > TR_LDA_LEAST_PRIOR && isfinite(alpha[0]));
    alpha[0] = alpha[1] = 0.3;
    ck_ok(tr_lda_fit_alpha(&twice_as_many, 2, alone, &calls, numbers, alpha));
    ck_assert(alpha[0] == 0.6 && alpha[1] == 0.15);
    alpha[0] = 0.3;
    ck_ok(tr_lda_fit_alpha(&none, INFINITY, alone, &calls, numbers, alpha)); /* no documents */
    ck_assert(alpha[0] == 0.3);
    tr_lda_histogram_close(&documents);
    tr_lda_histogram_close(&none);
    tr_lda_histogram_close(&twice_as_many);
}

enum { WORDS = 300 };

static double log_words(const uint32_t (*counts)[2], size_t n, const int64_t *total, double beta)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += lgamma(counts[i][1] + beta) - lgamma(beta);
    for (int k = 0; k < 2; k++) sum += lgamma(WORDS * beta) - lgamma((double)total[k] + WORDS * beta);
    return sum;
}

UNIT_CASE(beta_is_where_the_likelihood_is_highest)
{
    uint32_t counts[2 * WORDS][2] = {{0}};
    int64_t total[2] = {0};
    struct tr_lda_histogram h;
    struct tr_rng rng;
    int calls = 0;
    tr_rng_seed(&rng, 6, 0, 0);
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < 4000; i++) { /* an urn with 0.3 of each word */
            double at = tr_rng_uniform(&rng) * (WORDS * 0.3 + i);
            int w = 0;
            while (w < WORDS - 1 && (at -= 0.3 + counts[k * WORDS + w][1]) >= 0) w++;
            counts[k * WORDS + w][1]++;
            total[k]++;
        }
    open_histogram(&h, 1, (const uint32_t(*)[2])counts, 2 * WORDS);
    double beta = 0.01, best = 0.01;
    ck_ok(tr_lda_fit_beta(&h, total, 2, WORDS, alone, &calls, &beta));
    for (double b = 0.01; b < 2; b *= 1.002)
        if (log_words((const uint32_t(*)[2])counts, 2 * WORDS, total, b) >
            log_words((const uint32_t(*)[2])counts, 2 * WORDS, total, best))
            best = b;
    ck_assert_msg(fabs(beta / best - 1) < 0.01, "beta %g, expected %g", beta, best);
    tr_lda_histogram_close(&h);
}

/* ---- folding in ---- */

/* Three topics of four words; the last word occurs nowhere. */
static const uint64_t begin[] = {0, 1, 3, 5, 5};
static const uint16_t topic[] = {0, 0, 1, 1, 2};
static const uint32_t count[] = {90, 10, 40, 60, 50};
static const int64_t total[] = {100, 100, 50};
static const double alpha[] = {0.1, 0.2, 0.4}, beta = 0.05;

static double probability(uint32_t word, int k)
{
    double n = 0;
    for (uint64_t i = begin[word]; i < begin[word + 1]; i++)
        if (topic[i] == k) n = count[i];
    return (n + beta) / ((double)total[k] + 4 * beta);
}

/* log p(words | θ) + Σ α_k log θ_k: what θ maximises, a Dirichlet prior of parameters α + 1. */
static double posterior(const double *theta, size_t n, const uint32_t *word, const float *times)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        double p = 0;
        for (int k = 0; k < 3; k++) p += theta[k] * probability(word[i], k);
        sum += (double)times[i] * log(p);
    }
    for (int k = 0; k < 3; k++) sum += alpha[k] * log(theta[k]);
    return sum;
}

static void open_phi(struct tr_lda_phi *phi)
{
    ck_ok(tr_lda_phi_open(3, 4, total, alpha, beta, begin, topic, count, phi));
}

UNIT_CASE(the_mixture_is_the_most_probable_one)
{
    static const uint32_t word[] = {0, 1, 2, 3};
    static const float times[][4] = {
        {5, 1, 0, 0}, {1, 3, 9, 0}, {0, 0, 1, 1}, {0, 0, 0, 7}, {300, 2, 100, 1}};
    struct tr_lda_phi phi;
    open_phi(&phi);
    for (size_t d = 0; d < 5; d++) {
        double theta[3], sum = 0, best = -INFINITY, at[2] = {0};
        tr_lda_infer(&phi, 4, word, times[d], theta);
        for (int k = 0; k < 3; k++) sum += theta[k];
        ck_assert_msg(fabs(sum - 1) < 1e-9, "shares sum to %g", sum);
        for (int i = 1; i < 200; i++)
            for (int j = 1; i + j < 200; j++) {
                double p[3] = {i / 200.0, j / 200.0, 1 - (i + j) / 200.0},
                       value = posterior(p, 4, word, times[d]);
                if (value > best) best = value, at[0] = p[0], at[1] = p[1];
            }
        ck_assert_msg(fabs(theta[0] - at[0]) < 0.01 && fabs(theta[1] - at[1]) < 0.01,
                      "document %zu: %g %g, expected %g %g", d, theta[0], theta[1], at[0], at[1]);
        ck_assert_msg(posterior(theta, 4, word, times[d]) > best - 1e-3, "document %zu", d);
    }
    tr_lda_phi_close(&phi);
}

UNIT_CASE(without_words_the_prior_is_what_is_known)
{
    struct tr_lda_phi phi;
    double theta[3];
    open_phi(&phi);
    tr_lda_infer(&phi, 0, NULL, NULL, theta);
    for (int k = 0; k < 3; k++) ck_assert(fabs(theta[k] - alpha[k] / 0.7) < 1e-12);
    tr_lda_phi_close(&phi);
}

UNIT_CASE(a_document_of_one_topic_has_that_topic)
{
    static const uint32_t word[] = {0};
    static const float times[] = {50};
    struct tr_lda_phi phi;
    double theta[3];
    open_phi(&phi);
    tr_lda_infer(&phi, 1, word, times, theta);
    ck_assert_msg(theta[0] > 0.95, "%g", theta[0]);
    tr_lda_phi_close(&phi);
}

UNIT_CASE(words_are_as_probable_as_they_are)
{
    static const uint32_t word[] = {1, 3};
    static const float times[] = {2, 1};
    static const double theta[] = {0.5, 0.3, 0.2};
    struct tr_lda_phi phi;
    double expected = 0;
    open_phi(&phi);
    for (int i = 0; i < 2; i++) {
        double p = 0;
        for (int k = 0; k < 3; k++) p += theta[k] * probability(word[i], k);
        expected += (double)times[i] * log(p);
    }
    ck_assert(fabs(tr_lda_log_words(&phi, theta, 2, word, times) - expected) < 1e-12);
    tr_lda_phi_close(&phi);
}

UNIT_CASE(completion_asks_for_what_it_has_not_seen)
{
    static const uint32_t word[] = {0, 1, 2};
    static const float times[] = {1000, 1, 200};
    struct tr_lda_phi phi;
    struct tr_lda_completion sum = {0}, again = {0}, other = {0};
    float seen[3], held[3];
    open_phi(&phi);
    ck_assert(isnan(tr_lda_perplexity(&sum)));
    tr_lda_complete(&phi, 1, 17, 3, word, times, seen, held, &sum);
    for (int i = 0; i < 3; i++) ck_assert(seen[i] + held[i] == times[i] && seen[i] >= 0 && held[i] >= 0);
    ck_assert(held[0] > 400 && held[0] < 600 && held[2] > 60 && held[2] < 140);
    ck_assert_uint_eq(sum.tokens, (uint64_t)(held[0] + held[1] + held[2]));
    double perplexity = tr_lda_perplexity(&sum); /* two words, of 5/6 and 1/6: 1.57 */
    ck_assert_msg(perplexity > 1.4 && perplexity < 2, "%g", perplexity);
    tr_lda_complete(&phi, 1, 17, 3, word, times, seen, held, &again);
    ck_assert(again.tokens == sum.tokens && again.log_p == sum.log_p);
    tr_lda_complete(&phi, 1, 18, 3, word, times, seen, held, &other);
    ck_assert(other.log_p != sum.log_p);
    tr_lda_complete(&phi, 1, 19, 3, word, NULL, seen, held, &other); /* each once */
    for (int i = 0; i < 3; i++) ck_assert(seen[i] + held[i] == 1);
    tr_lda_phi_close(&phi);
}

/* ---- words ---- */

static void write_file(char path[32], const char *text, size_t length)
{
    strcpy(path, "/tmp/trireme-words-XXXXXX");
    int fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, text, length), (ssize_t)length);
    close(fd);
}

UNIT_CASE(a_vocabulary_is_one_word_a_line)
{
    static const char text[] = "the\r\n\nstra\xc3\x9f"
                               "e\nlast";
    char path[32], number[24];
    struct tr_lda_vocabulary v = {0};
    ck_assert_str_eq(tr_lda_word(&v, 7, number), "7");
    write_file(path, text, sizeof text - 1);
    ck_ok(tr_lda_vocabulary_read(path, 4, &v));
    ck_assert_uint_eq(v.words, 4);
    ck_assert_str_eq(tr_lda_word(&v, 0, number), "the");
    ck_assert_str_eq(tr_lda_word(&v, 1, number), "");
    ck_assert_str_eq(tr_lda_word(&v, 2, number), "stra\xc3\x9f"
                                                 "e");
    ck_assert_str_eq(tr_lda_word(&v, 3, number), "last");
    tr_lda_vocabulary_close(&v);
    ck_fails(tr_lda_vocabulary_read(path, 5, &v), TR_ERR_DATA,
             "a vocabulary of 4 lines: expected 5, one per word");
    unlink(path);
    ck_fails(tr_lda_vocabulary_read(path, 4, &v), TR_ERR_NO_INPUT, path);
}

UNIT_CASE(words_have_an_end)
{
    char text[300], path[32];
    struct tr_lda_vocabulary v;
    memset(text, 'x', sizeof text);
    text[2] = '\n';
    text[3 + TR_LDA_LONGEST_WORD] = '\n';
    write_file(path, text, 4 + TR_LDA_LONGEST_WORD);
    ck_ok(tr_lda_vocabulary_read(path, 2, &v));
    ck_assert_uint_eq(strlen(v.text + v.stride), TR_LDA_LONGEST_WORD);
    tr_lda_vocabulary_close(&v);
    unlink(path);
    text[3 + TR_LDA_LONGEST_WORD] = 'x';
    write_file(path, text, sizeof text);
    ck_fails(tr_lda_vocabulary_read(path, 2, &v), TR_ERR_DATA, ":2: a word of more than 255 bytes");
    unlink(path);
}
