#include "unit.h"

#include "model/lda/lda.h"
#include "../lda_check.h"

/* ---- a corpus, and samplers over it ---- */

struct corpus {
    size_t documents, words;
    uint64_t begin[512];
    uint32_t word[8192];
    float count[8192];
};

/* Adds a document of these words, each with this many tokens. */
static void add_document(struct corpus *c, size_t n, const uint32_t *word, const float *count)
{
    uint64_t at = c->begin[c->documents];
    for (size_t i = 0; i < n; i++) {
        c->word[at + i] = word[i];
        c->count[at + i] = count ? count[i] : 1;
    }
    c->begin[++c->documents] = at + n;
}

struct model {
    struct tr_lda_layout layout;
    struct tr_lda_sampler *sampler;
    double *alpha, beta;
    void **block;
    int64_t *total;
};

static void *zeros(size_t bytes)
{
    size_t room = (bytes + 63) / 64 * 64 + 64;
    void *memory = aligned_alloc(64, room);
    ck_assert_ptr_nonnull(memory);
    memset(memory, 0, room);
    return memory;
}

static void count_all(struct model *m)
{
    memset(m->total, 0, m->layout.topics * sizeof *m->total);
    for (int b = 0; b < m->layout.blocks; b++) {
        memset(m->block[b], 0, m->layout.bytes[b]);
        ck_ok(tr_lda_count_block(m->sampler, b, m->block[b]));
        tr_lda_block_totals(&m->layout, b, m->block[b], m->total);
    }
    tr_lda_set_totals(m->sampler, m->total);
}

/* The layout gets the count of each word plus `pretend`: the count decides the form of its row. */
static void open_model(struct model *m, const struct corpus *c, uint32_t topics, int blocks, uint64_t pretend,
                       const struct tr_lda_options *options)
{
    tr_batch rows = {.n = c->documents, .begin = c->begin, .column = c->word, .value = c->count};
    uint64_t tokens[512] = {0};
    for (uint64_t i = 0; i < c->begin[c->documents]; i++) tokens[c->word[i]] += (uint64_t)c->count[i];
    for (size_t w = 0; w < c->words; w++) tokens[w] += tokens[w] ? pretend : 0;
    *m = (struct model){.beta = 0.3};
    ck_ok(tr_lda_layout_open(tokens, c->words, topics, blocks, &m->layout));
    ck_ok(tr_lda_open(options, &m->layout, &rows, NULL, NULL, &m->sampler));
    m->alpha = zeros(topics * sizeof *m->alpha);
    m->total = zeros(topics * sizeof *m->total);
    m->block = zeros((size_t)blocks * sizeof *m->block);
    for (uint32_t k = 0; k < topics; k++) m->alpha[k] = 0.2 + 0.1 * (k % 7);
    for (int b = 0; b < blocks; b++) m->block[b] = zeros(m->layout.bytes[b]);
    tr_lda_priors(m->sampler, m->alpha, m->beta);
    tr_lda_start(m->sampler);
    count_all(m);
}

static void close_model(struct model *m)
{
    for (int b = 0; b < m->layout.blocks; b++) free(m->block[b]);
    TR_FREE_ALL(m->block, m->alpha, m->total);
    tr_lda_close(&m->sampler);
    tr_lda_layout_close(&m->layout);
}

static void sweep(struct model *m)
{
    for (int b = 0; b < m->layout.blocks; b++) tr_lda_sample(m->sampler, b, m->block[b]);
}

/* Whether two copies of a block say the same; lists may be in another order. */
static bool same_block(const struct tr_lda_layout *l, int number, const void *a, const void *b)
{
    bool same = true;
    struct tr_lda_count *of_a = zeros(l->topics * sizeof *of_a), *of_b = zeros(l->topics * sizeof *of_b);
    for (uint64_t p = l->first[number]; p < l->first[number + 1]; p++) {
        size_t n = tr_lda_collect(tr_lda_row(l, a, p), of_a);
        if (tr_lda_collect(tr_lda_row(l, b, p), of_b) != n) same = false;
        for (size_t i = 0; i < n && same; i++)
            same = of_a[i].topic == of_b[i].topic && of_a[i].count == of_b[i].count;
    }
    TR_FREE_ALL(of_a, of_b);
    return same;
}

/* n_wk, n_k and n_dk are what the topics of the tokens say. */
static void check_counts(struct model *m)
{
    ck_assert(lda_counts_agree(m->sampler));
    int64_t *total = zeros(m->layout.topics * sizeof *total);
    for (int b = 0; b < m->layout.blocks; b++) {
        void *again = zeros(m->layout.bytes[b]);
        ck_ok(tr_lda_count_block(m->sampler, b, again));
        ck_assert(same_block(&m->layout, b, m->block[b], again));
        tr_lda_block_totals(&m->layout, b, again, total);
        free(again);
    }
    for (uint32_t k = 0; k < m->layout.topics; k++) ck_assert_int_eq(total[k], m->sampler->total[k]);
    free(total);
}

static double likelihood(struct model *m)
{
    double sum = tr_lda_log_documents(m->sampler);
    int64_t *total = zeros(m->layout.topics * sizeof *total);
    for (int b = 0; b < m->layout.blocks; b++) {
        sum += tr_lda_log_block(&m->layout, b, m->block[b], m->beta);
        tr_lda_block_totals(&m->layout, b, m->block[b], total);
    }
    sum += tr_lda_log_totals(&m->layout, total, m->beta);
    free(total);
    return sum;
}

/* ---- where the words lie ---- */

UNIT_CASE(a_layout_places_every_word_once_and_rows_apart)
{
    uint64_t tokens[100];
    for (size_t w = 0; w < 100; w++) tokens[w] = w % 10 == 3 ? 0 : w * w * w / 10;
    struct tr_lda_layout l;
    ck_ok(tr_lda_layout_open(tokens, 100, 50, 7, &l));
    bool seen[100] = {false};
    for (int b = 0; b < 7; b++) {
        uint64_t end = 0, sum = 0;
        for (uint64_t p = l.first[b]; p < l.first[b + 1]; p++) {
            uint64_t w = l.word[p], t = tokens[w];
            ck_assert(!seen[w]);
            seen[w] = true;
            ck_assert_uint_eq(l.place[w], p);
            ck_assert_int_eq(l.kind[p], !t           ? TR_LDA_EMPTY
                                        : t > 65535  ? TR_LDA_WIDE
                                        : 2 * t < 50 ? TR_LDA_LIST
                                                     : TR_LDA_DENSE);
            ck_assert_uint_ge(l.row[p], end);
            end = l.row[p] + (!t ? 0 : t > 65535 ? 200 : 2 * t < 50 ? 4 + 4 * t : 100);
            sum += t;
        }
        ck_assert_uint_le(end, l.bytes[b]);
        ck_assert_uint_gt(sum, 0);
    }
    for (size_t w = 0; w < 100; w++) ck_assert(seen[w]);
    tr_lda_layout_close(&l);
}

UNIT_CASE(blocks_have_about_as_many_tokens)
{
    uint64_t tokens[2000];
    for (size_t w = 0; w < 2000; w++) tokens[w] = 100000 / (w + 10);
    struct tr_lda_layout l;
    ck_ok(tr_lda_layout_open(tokens, 2000, 100, 8, &l));
    uint64_t least = UINT64_MAX, most = 0;
    for (int b = 0; b < 8; b++) {
        uint64_t sum = 0;
        for (uint64_t p = l.first[b]; p < l.first[b + 1]; p++) sum += tokens[l.word[p]];
        if (sum < least) least = sum;
        if (sum > most) most = sum;
    }
    ck_assert_uint_le(most - least, most / 50);
    tr_lda_layout_close(&l);
}

/* Fewer parts than blocks, more, and a number that nothing divides. */
UNIT_CASE(parts_are_of_few_blocks_and_have_about_as_many_tokens)
{
    enum { BLOCKS = 8 };
    static const uint32_t numbers[] = {1, 3, 8, 11, 24};
    uint64_t tokens[2000];
    for (size_t w = 0; w < 2000; w++) tokens[w] = 100000 / (w + 1000);
    struct tr_lda_layout l;
    ck_ok(tr_lda_layout_open(tokens, 2000, 100, BLOCKS, &l));
    for (size_t i = 0; i < COUNT(numbers); i++) {
        uint32_t parts = numbers[i];
        uint64_t sum[24] = {0}, of_block[24] = {0}, all = 0;
        for (int b = 0; b < BLOCKS; b++) {
            for (uint64_t p = l.first[b]; p < l.first[b + 1]; p++) {
                uint32_t part = tr_lda_layout_part(&l, p, parts);
                ck_assert_uint_lt(part, parts);
                sum[part] += tokens[l.word[p]];
                all += tokens[l.word[p]];
                of_block[part] |= UINT64_C(1) << b;
            }
        }
        for (uint32_t part = 0; part < parts; part++) {
            ck_assert_int_le(__builtin_popcountll(of_block[part]), 1 + BLOCKS / (int)parts);
            ck_assert_uint_le(sum[part], 2 * all / parts + 100);
            ck_assert_uint_gt(sum[part], 0);
        }
    }
    tr_lda_layout_close(&l);
}

UNIT_CASE(impossible_topics_and_words_are_refused)
{
    uint64_t tokens[] = {3, UINT64_C(1) << 31};
    struct tr_lda_layout l;
    ck_fails(tr_lda_layout_open(tokens, 1, 0, 1, &l), TR_ERR_CONFIG, "0 topics");
    ck_fails(tr_lda_layout_open(tokens, 1, 65536, 1, &l), TR_ERR_CONFIG, "65536 topics: expected 1 to 65535");
    ck_fails(tr_lda_layout_open(tokens, 2, 10, 1, &l), TR_ERR_DATA, "word 2: 2147483648 tokens");
    ck_ok(tr_lda_layout_open(tokens, 1, 65535, 1, &l));
    tr_lda_layout_close(&l);
}

UNIT_CASE(counts_that_are_no_counts_are_refused)
{
    static const float bad[] = {0, -1, 1.5f, 1e9f, NAN};
    uint64_t tokens[] = {3};
    struct tr_lda_layout l;
    ck_ok(tr_lda_layout_open(tokens, 1, 10, 1, &l));
    for (size_t i = 0; i < COUNT(bad); i++) {
        uint64_t begin[] = {0, 1};
        uint32_t column[] = {0};
        tr_batch rows = {.n = 1, .begin = begin, .column = column, .value = &bad[i]};
        struct tr_lda_sampler *s = NULL;
        ck_fails(tr_lda_open(&(struct tr_lda_options){0}, &l, &rows, NULL, NULL, &s), TR_ERR_DATA,
                 "document 1: count");
        ck_assert_ptr_null(s);
    }
    tr_lda_layout_close(&l);
}

/* Rows of every kind store their counts, and refuse impossible counts. */
UNIT_CASE(rows_add_and_read_back)
{
    uint64_t tokens[] = {4, 40, 70000, 0};
    struct tr_lda_layout l;
    ck_ok(tr_lda_layout_open(tokens, 4, 20, 1, &l));
    void *block = zeros(l.bytes[0]);
    for (uint64_t w = 0; w < 3; w++) {
        uint64_t p = l.place[w];
        ck_ok(tr_lda_row_add(&l, block, p, 19));
        ck_ok(tr_lda_row_add(&l, block, p, 0));
        ck_ok(tr_lda_row_add(&l, block, p, 19));
        struct tr_lda_count c[20];
        ck_assert_uint_eq(tr_lda_collect(tr_lda_row(&l, block, p), c), 2);
        ck_assert_uint_eq(c[0].topic, 0);
        ck_assert_uint_eq(c[0].count, 1);
        ck_assert_uint_eq(c[1].topic, 19);
        ck_assert_uint_eq(c[1].count, 2);
        ck_fails(tr_lda_row_add(&l, block, p, 20), TR_ERR_INTERNAL, "topic 20");
        struct tr_lda_count large[] = {{5, 65536}};
        if (w < 2) ck_fails(tr_lda_row_write(&l, block, p, large, 1), TR_ERR_INTERNAL, "topic 5");
        struct tr_lda_count all[] = {{3, 1}, {4, 0}, {2, 3}};
        ck_ok(tr_lda_row_write(&l, block, p, all, 3));
        ck_assert_uint_eq(tr_lda_collect(tr_lda_row(&l, block, p), c), 2);
        ck_assert_uint_eq(c[0].topic, 2);
        ck_assert_uint_eq(c[0].count, 3);
    }
    ck_assert_uint_eq(tr_lda_collect(tr_lda_row(&l, block, l.place[3]), (struct tr_lda_count[1]){{0, 0}}), 0);
    ck_fails(tr_lda_row_add(&l, block, l.place[3], 1), TR_ERR_INTERNAL, "word 4");
    int64_t total[20] = {0};
    tr_lda_block_totals(&l, 0, block, total);
    for (int k = 0; k < 20; k++) ck_assert_int_eq(total[k], k == 2 ? 9 : k == 3 ? 3 : 0);
    free(block);
    tr_lda_layout_close(&l);
}

/* ---- the stationary distribution ---- */

enum { TOKENS = 9, STATES = 78125 /* 3⁹ and 5⁷ are no more */, SWEEPS = 15000, APART = 2 };

/* Small corpora whose states can all be counted. */
struct tiny {
    uint32_t topics;
    int tokens, states;
    int document[TOKENS], word[TOKENS]; /* of each token, in the order of the sampler */
    int watched;                        /* the number of last tokens that identify a class of states */
    struct corpus corpus;
};

/* A token that comes twice, a document with but one token; rows with a count for each topic. */
static void make_dense(struct tiny *t)
{
    *t = (struct tiny){.topics = 3, .watched = 6, .corpus.words = 3};
    add_document(&t->corpus, 2, (uint32_t[]){0, 1}, (float[]){2, 1});
    add_document(&t->corpus, 2, (uint32_t[]){0, 2}, NULL);
    add_document(&t->corpus, 3, (uint32_t[]){0, 1, 2}, NULL);
    add_document(&t->corpus, 1, (uint32_t[]){0}, NULL);
}

/* Words so rare that their rows are lists, one of them with but one token. */
static void make_rare(struct tiny *t)
{
    *t = (struct tiny){.topics = 5, .watched = 4, .corpus.words = 4};
    add_document(&t->corpus, 3, (uint32_t[]){0, 1, 2}, NULL);
    add_document(&t->corpus, 1, (uint32_t[]){0}, (float[]){1});
    add_document(&t->corpus, 2, (uint32_t[]){1, 3}, (float[]){1, 2});
}

/* The tokens as the sampler orders them: words by place, then documents. */
static void order_tokens(struct tiny *t, const struct tr_lda_layout *l)
{
    const struct corpus *c = &t->corpus;
    t->tokens = 0;
    t->states = 1;
    for (uint64_t p = 0; p < c->words; p++)
        for (size_t d = 0; d < c->documents; d++)
            for (uint64_t i = c->begin[d]; i < c->begin[d + 1]; i++)
                for (int n = c->word[i] == l->word[p] ? (int)c->count[i] : 0; n; n--) {
                    t->document[t->tokens] = (int)d;
                    t->word[t->tokens++] = (int)c->word[i];
                    t->states *= (int)t->topics;
                }
}

/* ln p(w, z | α, β), straight from the definition. */
static double log_state(const struct tiny *t, const int *z, const double *alpha, double beta)
{
    enum { MOST = 5 };
    int dk[MOST][MOST] = {{0}}, wk[MOST][MOST] = {{0}}, nk[MOST] = {0}, length[MOST] = {0};
    for (int i = 0; i < t->tokens; i++) {
        dk[t->document[i]][z[i]]++;
        wk[t->word[i]][z[i]]++;
        nk[z[i]]++;
        length[t->document[i]]++;
    }
    double sum = 0, alphas = 0, all = beta * (double)t->corpus.words;
    for (uint32_t k = 0; k < t->topics; k++) {
        for (size_t d = 0; d < t->corpus.documents; d++)
            sum += lgamma(dk[d][k] + alpha[k]) - lgamma(alpha[k]);
        for (size_t w = 0; w < t->corpus.words; w++) sum += lgamma(wk[w][k] + beta) - lgamma(beta);
        sum += lgamma(all) - lgamma(nk[k] + all);
        alphas += alpha[k];
    }
    for (size_t d = 0; d < t->corpus.documents; d++) sum += lgamma(alphas) - lgamma(length[d] + alphas);
    return sum;
}

static void decode(const struct tiny *t, int state, int *z)
{
    for (int i = 0; i < t->tokens; i++, state /= (int)t->topics) z[i] = state % (int)t->topics;
}

static void enumerate(const struct tiny *t, const double *alpha, double beta, double *p)
{
    double all = 0;
    for (int state = 0; state < t->states; state++) {
        int z[TOKENS];
        decode(t, state, z);
        all += p[state] = exp(log_state(t, z, alpha, beta));
    }
    for (int state = 0; state < t->states; state++) p[state] /= all;
}

/* Σ (visits - expected)² / expected over classes of states that agree in the tokens watched, as a number of standard
 * deviations above what chance would give. */
static double chi_square(const struct tiny *t, const double *p, const int *visits)
{
    double expected[1024] = {0}, seen[1024] = {0}, sum = 0;
    int classes = 1, states = 1;
    for (int i = 0; i < t->watched; i++) classes *= (int)t->topics;
    states = t->states / classes;
    ck_assert_int_le(classes, 1024);
    for (int s = 0; s < t->states; s++) {
        expected[s / states] += SWEEPS * p[s];
        seen[s / states] += visits[s];
    }
    double few_expected = 0, few_seen = 0, freedom = -1;
    for (int c = 0; c < classes; c++) {
        if (expected[c] < 10) {
            few_expected += expected[c];
            few_seen += seen[c];
            continue;
        }
        sum += (seen[c] - expected[c]) * (seen[c] - expected[c]) / expected[c];
        freedom++;
    }
    if (few_expected > 10) {
        sum += (few_seen - few_expected) * (few_seen - few_expected) / few_expected;
        freedom++;
    }
    return (sum - freedom) / sqrt(2 * freedom);
}

/* Runs the sampler and compares with the truth; its α_0 can be made a wrong one. */
static double distance(void make(struct tiny *), const struct tr_lda_options *options, uint64_t pretend,
                       int blocks, double wrong)
{
    static double p[STATES];
    static int visits[STATES];
    static struct tiny t;
    struct model m;
    make(&t);
    open_model(&m, &t.corpus, t.topics, blocks, pretend, options);
    order_tokens(&t, &m.layout);
    enumerate(&t, m.alpha, m.beta, p);
    memset(visits, 0, sizeof visits);
    m.alpha[0] += wrong;
    tr_lda_priors(m.sampler, m.alpha, m.beta);
    const uint8_t *z = m.sampler->topic;
    ck_assert_int_eq(m.sampler->topic_bytes, 1);
    for (int i = 0; i < SWEEPS; i++) {
        for (int j = 0; j < APART; j++) sweep(&m);
        int state = 0;
        for (int n = t.tokens; n--;) state = state * (int)t.topics + z[n];
        visits[state]++;
    }
    check_counts(&m);
    close_model(&m);
    return chi_square(&t, p, visits);
}

/* In standard deviations: sweeps are not quite independent, so chance alone gives a little above 0; a prior that is wrong
 * by a tenth gives more than three times the bound. */
static const double bound = 6;

/* Every way to sample: instructions, records of documents, rows of words, blocks. */
UNIT_CASE(states_are_visited_as_often_as_they_are_probable)
{
    enum tr_cpu best = tr_cpu();
    for (int cpu = TR_CPU_PLAIN; cpu <= (int)best; cpu++)
        for (int records = TR_LDA_FASTEST; records <= TR_LDA_WIDES; records++)
            for (int rows = 0; rows < 3; rows++) {
                struct tr_lda_options options = {
                    .seed = 5, .cpu = (enum tr_cpu)cpu, .records = (enum tr_lda_records)records};
                double far = distance(rows == 2 ? make_rare : make_dense, &options, rows == 1 ? 70000 : 0,
                                      rows == 1 ? 2 : 1, 0);
                ck_assert_msg(far < bound, "%s, records %d, rows %d: %.1f standard deviations",
                              tr_cpu_name((enum tr_cpu)cpu), records, rows, far);
                if (getenv("VERBOSE")) fprintf(stderr, "%d %d %d %.2f\n", cpu, records, rows, far);
            }
}

/* The bound above would not hold for a sampler that draws from something else. */
UNIT_CASE(a_wrong_sampler_is_found_out)
{
    for (int records = TR_LDA_FASTEST; records <= TR_LDA_WIDES; records++) {
        struct tr_lda_options options = {.seed = 5, .cpu = tr_cpu(), .records = (enum tr_lda_records)records};
        double dense = distance(make_dense, &options, 0, 1, 0.1);
        double rare = distance(make_rare, &options, 0, 1, 0.1);
        if (getenv("VERBOSE")) fprintf(stderr, "wrong %d %.2f %.2f\n", records, dense, rare);
        ck_assert_double_gt(dense, 3 * bound);
        ck_assert_double_gt(rare, 3 * bound);
    }
}

UNIT_CASE(the_likelihood_is_that_of_the_definition)
{
    for (int asymmetric = 0; asymmetric < 2; asymmetric++) {
        static struct tiny t;
        struct model m;
        make_dense(&t);
        open_model(&m, &t.corpus, t.topics, 2, 0, &(struct tr_lda_options){.seed = 3, .cpu = tr_cpu()});
        order_tokens(&t, &m.layout);
        if (!asymmetric)
            for (uint32_t k = 0; k < t.topics; k++) m.alpha[k] = 0.4;
        tr_lda_priors(m.sampler, m.alpha, m.beta);
        int z[TOKENS];
        const uint8_t *topics = m.sampler->topic;
        for (int i = 0; i < 5; i++) {
            for (int n = 0; n < t.tokens; n++) z[n] = topics[n];
            ck_assert_double_eq_tol(likelihood(&m), log_state(&t, z, m.alpha, m.beta), 1e-9);
            sweep(&m);
        }
        close_model(&m);
    }
}

/* Returns log p(word | θ_d, φ) of token 0 of the word at a place, from the topics of all tokens. */
static double log_of_token(const struct model *m, uint64_t place)
{
    const struct tr_lda_sampler *s = m->sampler;
    const uint8_t *z = s->topic;
    uint32_t line = s->at[s->begin[place]];
    double in_document[8] = {0}, of_word[8] = {0}, in_all[8] = {0}, p = 0, length = 0, alpha = 0;
    for (uint64_t q = 0; q < m->layout.words; q++)
        for (uint64_t i = s->begin[q]; i < s->begin[q + 1]; i++) {
            in_document[z[i]] += s->at[i] == line;
            length += s->at[i] == line;
            of_word[z[i]] += q == place;
            in_all[z[i]]++;
        }
    for (uint32_t k = 0; k < m->layout.topics; k++) alpha += m->alpha[k];
    for (uint32_t k = 0; k < m->layout.topics; k++)
        p += (in_document[k] + m->alpha[k]) / (length + alpha) * (of_word[k] + m->beta) /
             (in_all[k] + m->beta * (double)m->layout.words);
    return log(p);
}

/* Each block has one word and each word one token, so that the counts of a draw are known before the block is sampled. */
UNIT_CASE(a_sweep_sums_the_log_p_of_the_tokens)
{
    enum { BLOCKS = 24 };
    for (int records = TR_LDA_FASTEST; records <= TR_LDA_WIDES; records++) {
        static struct corpus c;
        struct model m;
        struct tr_lda_options options = {.seed = 3, .cpu = tr_cpu(), .records = (enum tr_lda_records)records};
        c = (struct corpus){.words = BLOCKS};
        for (uint32_t d = 0; d < 3; d++) {
            uint32_t word[BLOCKS / 3];
            for (uint32_t i = 0; i < BLOCKS / 3; i++) word[i] = 3 * i + d;
            add_document(&c, BLOCKS / 3, word, NULL);
        }
        open_model(&m, &c, 5, BLOCKS, 0, &options);
        for (int i = 0; i < 4; i++) {
            double sum = 0;
            m.sampler->log_weights = 0;
            for (int b = 0; b < BLOCKS; b++) {
                sum += log_of_token(&m, m.layout.first[b]);
                tr_lda_sample(m.sampler, b, m.block[b]);
            }
            double found = m.sampler->log_weights - tr_lda_log_lengths(m.sampler);
            ck_assert_double_eq_tol(found, sum, 1e-5 * fabs(sum));
        }
        close_model(&m);
    }
}

/* ---- larger corpora ---- */

/* Documents about few of `topics` groups of ten words each, words of a group as likely; one word is in all documents,
 * and the last word and the last document have one token. */
static void make_grouped(struct corpus *c, uint32_t topics, size_t documents)
{
    *c = (struct corpus){.words = topics * 10 + 2};
    struct tr_rng rng;
    tr_rng_seed(&rng, 9, 9, 9);
    for (size_t d = 0; d + 1 < documents; d++) {
        uint32_t group = (uint32_t)(d % topics), other = (uint32_t)tr_rng_below(&rng, topics), word[22];
        float count[22];
        size_t n = 0;
        for (uint32_t i = 0; i < 10; i++, n++) word[n] = group * 10 + i;
        for (uint32_t i = 0; other != group && i < 10; i += 2, n++) word[n] = other * 10 + i;
        word[n++] = topics * 10;
        for (size_t i = 0; i < n; i++) count[i] = (float)(1 + tr_rng_below(&rng, 3));
        if (d == 0) word[n++] = topics * 10 + 1, count[n - 1] = 1;
        add_document(c, n, word, count);
    }
    add_document(c, 1, (uint32_t[]){0}, (float[]){1});
}

/* Whether most tokens of each group's words have one topic, that of no other group. */
static bool groups_are_told_apart(const struct model *m)
{
    uint32_t groups = m->layout.topics;
    bool taken[64] = {false};
    for (uint32_t g = 0; g < groups; g++) {
        uint32_t of_topic[64] = {0}, best = 0, all = 0;
        for (uint32_t w = g * 10; w < g * 10 + 10; w++) {
            struct tr_lda_count counts[64];
            uint64_t p = m->layout.place[w];
            int b = 0;
            while (p >= m->layout.first[b + 1]) b++;
            size_t n = tr_lda_collect(tr_lda_row(&m->layout, m->block[b], p), counts);
            for (size_t i = 0; i < n; i++) {
                of_topic[counts[i].topic] += counts[i].count;
                all += counts[i].count;
            }
        }
        for (uint32_t k = 1; k < groups; k++)
            if (of_topic[k] > of_topic[best]) best = k;
        if (of_topic[best] * 10 < all * 8 || taken[best]) return false;
        taken[best] = true;
    }
    return true;
}

/* A start can lead to where two groups share a topic: of some, the likeliest end is the right one. */
UNIT_CASE(topics_behind_a_corpus_are_found)
{
    static struct corpus c;
    enum { GROUPS = 6, STARTS = 5 };
    make_grouped(&c, GROUPS, 240);
    for (int records = TR_LDA_FASTEST; records <= TR_LDA_LISTS; records++) {
        double best = -INFINITY;
        bool found = false;
        for (uint64_t seed = 1; seed <= STARTS; seed++) {
            struct model m;
            struct tr_lda_options options = {
                .seed = seed, .cpu = tr_cpu(), .records = (enum tr_lda_records)records};
            open_model(&m, &c, GROUPS, 3, 0, &options);
            double before = likelihood(&m);
            for (int i = 0; i < 100; i++) sweep(&m);
            double after = likelihood(&m);
            ck_assert_double_gt(after, before + 500);
            if (after > best) found = groups_are_told_apart(&m);
            if (after > best) best = after;
            close_model(&m);
        }
        ck_assert(found);
    }
}

/* One topic; topics that fill vectors or do not; two bytes for each; more than words or documents have tokens. */
UNIT_CASE(counts_agree_with_topics_after_every_sweep)
{
    static struct corpus c;
    static const uint32_t topics[] = {1, 2, 16, 17, 100, 129, 256, 257, 300, 1000, 65535};
    make_grouped(&c, 5, 60);
    for (size_t i = 0; i < COUNT(topics); i++)
        for (int cpu = TR_CPU_PLAIN; cpu <= (int)tr_cpu(); cpu++)
            for (int records = TR_LDA_FASTEST; records <= TR_LDA_WIDES; records++) {
                struct model m;
                struct tr_lda_options options = {
                    .seed = i, .cpu = (enum tr_cpu)cpu, .records = (enum tr_lda_records)records};
                open_model(&m, &c, topics[i], 1 + (int)i % 4, 0, &options);
                int rounds = topics[i] > 1000 ? 1 : 4;
                ck_assert_int_eq(m.sampler->topic_bytes, topics[i] <= 256 ? 1 : 2);
                for (int s = 0; s < rounds; s++) {
                    sweep(&m);
                    check_counts(&m);
                }
                close_model(&m);
            }
}

UNIT_CASE(a_start_does_not_depend_on_blocks_or_workers)
{
    static struct corpus c, half;
    make_grouped(&c, 5, 60);
    struct model one, many, part;
    struct tr_lda_options options = {.seed = 77, .cpu = tr_cpu()};
    open_model(&one, &c, 40, 1, 0, &options);
    open_model(&many, &c, 40, 5, 0, &options);
    half = (struct corpus){.words = c.words};
    uint64_t number[30];
    for (size_t d = 0; d < 30; d++) {
        number[d] = 2 * d;
        uint64_t at = c.begin[2 * d];
        add_document(&half, c.begin[2 * d + 1] - at, c.word + at, c.count + at);
    }
    open_model(&part, &half, 40, 2, 0, &options);
    tr_batch rows = {.n = 30, .begin = half.begin, .column = half.word, .value = half.count};
    tr_lda_close(&part.sampler);
    ck_ok(tr_lda_open(&options, &part.layout, &rows, NULL, number, &part.sampler));
    tr_lda_start(part.sampler);
    for (uint64_t d = 0; d < 60; d++) {
        struct tr_lda_count a[40], b[40];
        size_t n = tr_lda_collect(tr_lda_document(one.sampler, d), a);
        ck_assert_uint_eq(tr_lda_collect(tr_lda_document(many.sampler, d), b), n);
        ck_assert_mem_eq(a, b, n * sizeof *a);
        if (d % 2) continue;
        ck_assert_uint_eq(tr_lda_collect(tr_lda_document(part.sampler, d / 2), b), n);
        ck_assert_mem_eq(a, b, n * sizeof *a);
    }
    close_model(&one);
    close_model(&many);
    close_model(&part);
}

/* Topics put back make the counts that they had. */
UNIT_CASE(counts_come_back_from_topics)
{
    static struct corpus c;
    make_grouped(&c, 5, 60);
    for (uint32_t topics = 20; topics <= 300; topics += 280) {
        struct model m, again;
        struct tr_lda_options options = {.seed = 4, .cpu = tr_cpu()};
        open_model(&m, &c, topics, 2, 0, &options);
        open_model(&again, &c, topics, 2, 0, &options);
        for (int i = 0; i < 3; i++) sweep(&m);
        uint64_t documents = m.sampler->documents;
        uint32_t *none = zeros(documents * sizeof *none), *topics_of = zeros(documents * sizeof *topics_of);
        uint64_t *begin = zeros((documents + 1) * sizeof *begin);
        for (uint64_t d = 0; d < documents; d++) begin[d + 1] = begin[d] + m.sampler->length[d];
        void *z = zeros(4 * begin[documents]), *order = zeros(4 * begin[documents]);
        ck_ok(tr_lda_topics(m.sampler, begin, z, false));
        ck_ok(tr_lda_topics(again.sampler, begin, z, true));
        ck_ok(tr_lda_recount(again.sampler, none, begin, NULL));
        count_all(&again);
        ck_assert_double_eq_tol(likelihood(&m), likelihood(&again), 1e-6);
        ck_assert(lda_counts_agree(again.sampler));
        ck_assert_mem_eq(again.sampler->topic, m.sampler->topic,
                         m.sampler->tokens * (size_t)m.sampler->topic_bytes);
        for (uint64_t d = 0; d < documents; d++) topics_of[d] = tr_lda_order(m.sampler, d, begin[d], order);
        ck_ok(tr_lda_recount(again.sampler, topics_of, begin, order));
        ck_assert_mem_eq(again.sampler->records, m.sampler->records, m.sampler->lines * 64);
        if (topics == 300) {
            topics_of[3]--;
            ck_fails(tr_lda_recount(again.sampler, topics_of, begin, order), TR_ERR_DATA,
                     "document 4 has other");
        }
        memset(again.sampler->topic, 0xff, (size_t)m.sampler->topic_bytes);
        ck_fails(tr_lda_recount(again.sampler, none, begin, NULL), TR_ERR_DATA, "token 0 has topic");
        TR_FREE_ALL(none, topics_of, begin, z, order);
        close_model(&m);
        close_model(&again);
    }
}

/* A document of more tokens than 16 bits count, beside short ones. */
UNIT_CASE(a_very_long_document_is_sampled)
{
    static struct corpus c;
    make_grouped(&c, 5, 60);
    add_document(&c, 2, (uint32_t[]){0, 51}, (float[]){70000, 3});
    struct model m;
    open_model(&m, &c, 8, 2, 0, &(struct tr_lda_options){.seed = 2, .cpu = tr_cpu()});
    ck_assert_uint_eq(m.sampler->length[60], 70003);
    for (int i = 0; i < 3; i++) {
        sweep(&m);
        check_counts(&m);
    }
    close_model(&m);
}

UNIT_CASE(a_worker_may_have_no_documents)
{
    static struct corpus c;
    struct model m;
    c = (struct corpus){.words = 3};
    open_model(&m, &c, 300, 2, 5, &(struct tr_lda_options){.seed = 2, .cpu = tr_cpu()});
    sweep(&m);
    check_counts(&m);
    ck_assert_double_eq(tr_lda_log_documents(m.sampler), 0);
    close_model(&m);
}
