/* The saved model: model.h5, inference for new documents, predict, evaluate and inspect. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "lda.h"

/* ================ model.h5 ================ */

/* The counts n_wk are stored sparse, in the form of scipy's csr_matrix: entries row_begin[w] .. row_begin[w + 1] - 1 of
 * `topic` and `count` belong to word w. Together with alpha, topic_tokens and the attribute beta they are the whole model: the
 * probability of a word in a topic is (n_wk + beta) / (topic_tokens[k] + words × beta). Topics and words are numbered from 0. */

/* Writes n words of the vocabulary. In the file all words have the length of the longest word, without a terminating zero. */
static int fill_words(void *lda, uint64_t first, size_t n, void *values)
{
    const struct tr_lda_vocabulary *v = &((struct tr_lda *)lda)->vocabulary;
    size_t length = tr_max_size(v->stride - 1, 1);
    for (size_t i = 0; i < n; i++)
        memcpy((char *)values + i * length, v->text + (first + i) * v->stride,
               tr_min_size(length, v->stride));
    return TR_OK;
}

static int saved_damaged(const char *what)
{
    return tr_fail(TR_ERR_DATA, "model.h5 is damaged: %s", what);
}

int tr_lda_fields(void *lda, tr_fields *f)
{
    struct tr_lda *m = lda;
    struct tr_lda_saved *s = &m->saved;
    struct tr_lda_vocabulary *v = &m->vocabulary;
    bool reads = tr_fields_read(f);
    if (!reads) { /* workers have alpha and beta (other ranks 0); rank 0, which writes, reads the tables */
        if (!m->alpha) TR_TRY(TR_NEW(&m->alpha, m->topics));
        TR_TRY(tr_all_reduce(m->tr, TR_SET_ALL, TR_MAX, TR_F64, m->alpha, m->topics));
        TR_TRY(tr_all_reduce(m->tr, TR_SET_ALL, TR_MAX, TR_F64, &m->beta, 1));
        if (tr_rank(m->tr) == 0) TR_TRY(tr_lda_read_tables(m, NULL, m->words, s));
    }
    const tr_member numbers[] = {
        {"topics", TR_FIELD_U64, .value = &m->topics},
        {"words", TR_FIELD_U64, .value = &m->words},
        {"documents", TR_FIELD_U64, .value = &m->documents},
        {"tokens", TR_FIELD_U64, .value = &m->tokens},
        {"beta", TR_FIELD_F64, .value = &m->beta},
        {"log_likelihood_per_token", TR_FIELD_F64, &m->last.objective, .of_scheduler = true}};
    TR_TRY(tr_field_members(f, numbers, sizeof numbers / sizeof *numbers));
    if (m->topics < 1 || m->topics > UINT16_MAX) return saved_damaged("the number of topics is impossible");
    if (m->words < 1 || m->words > SIZE_MAX / 16) return saved_damaged("the number of words is impossible");
    const tr_member by_topic[] = {
        {"alpha", TR_FIELD_F64, &m->alpha, "prior of each topic in a document", .rows = m->topics},
        {"topic_tokens", TR_FIELD_I64, &s->total, "tokens of each topic", .rows = m->topics},
        {"row_begin", TR_FIELD_U64, &s->begin, "first entry of each word in topic and count",
         .rows = m->words + 1}};
    TR_TRY(tr_field_members(f, by_topic, sizeof by_topic / sizeof *by_topic));
    if (reads) {
        bool good = m->beta > 0 && isfinite(m->beta);
        for (uint64_t k = 0; k < m->topics; k++)
            good = good && m->alpha[k] > 0 && isfinite(m->alpha[k]) && s->total[k] >= 0;
        if (!good) return saved_damaged("a prior or total of a topic is not above 0");
        if (s->begin[0] != 0) return saved_damaged("row_begin does not start with 0");
        for (uint64_t w = 0; w < m->words; w++)
            if (s->begin[w + 1] < s->begin[w]) return saved_damaged("row_begin does not ascend");
        if (s->begin[m->words] > m->words * m->topics) return saved_damaged("there are too many entries");
    }
    uint64_t n = s->begin ? s->begin[m->words] : 0;
    const tr_member entries[] = {
        {"topic", TR_FIELD_U16, &s->topic, "topics of each word, ascending", .rows = n},
        {"count", TR_FIELD_U32, &s->count, "tokens of the word with this topic", .rows = n}};
    TR_TRY(tr_field_members(f, entries, sizeof entries / sizeof *entries));
    if (reads) {
        TR_FREED int64_t *total = NULL;
        TR_TRY(TR_NEW(&total, m->topics));
        for (uint64_t i = 0; i < n; i++) {
            if (s->topic[i] >= m->topics) return saved_damaged("a topic is too high");
            total[s->topic[i]] += s->count[i];
        }
        if (memcmp(total, s->total, m->topics * sizeof *total) != 0)
            return saved_damaged("topic_tokens is not the sum of the counts");
    }
    if (reads ? !tr_fields_have(f, "vocabulary") : v->words == 0) return TR_OK;
    v->words = m->words;
    return tr_field_texts(f, "vocabulary", m->words, tr_max_size(v->stride, 2) - 1, fill_words, &v->text,
                          &v->stride);
}

/* Returns a centre per topic for model.init of kmeans: the expected counts of a document of mean length with this topic only. Data
 * files number words from 1, hence first_index 1. */
int tr_lda_centres(const void *lda, tr_saved_centres *c)
{
    const struct tr_lda *m = lda;
    const struct tr_lda_saved *s = &m->saved;
    double length = (double)m->tokens / fmax(1, (double)m->documents);
    *c = (tr_saved_centres){m->topics, m->words, 1, NULL};
    TR_TRY(TR_NEW(&c->value, c->n * c->columns));
    for (uint64_t w = 0; w < m->words; w++)
        for (uint64_t i = s->begin[w]; i < s->begin[w + 1]; i++)
            c->value[s->topic[i] * m->words + w] =
                (float)(length * s->count[i] / (double)s->total[s->topic[i]]);
    return TR_OK;
}

int tr_lda_saved_phi(const struct tr_lda *m, struct tr_lda_saved *s)
{
    return tr_lda_phi_open((uint32_t)m->topics, m->words, s->total, m->alpha, m->beta, s->begin, s->topic,
                           s->count, &s->phi);
}

void tr_lda_saved_close(struct tr_lda_saved *s)
{
    tr_lda_phi_close(&s->phi);
    TR_FREE_ALL(s->begin, s->topic, s->count, s->total);
    *s = (struct tr_lda_saved){0};
}

/* ================ inference ================ */

enum { STEPS = 200 };             /* maximum number of steps of an inference */
static const double still = 1e-4; /* the iteration ends when the sum of the changes of θ is at most this */

int tr_lda_phi_open(uint32_t topics, uint64_t words, const int64_t *total, const double *alpha, double beta,
                    const uint64_t *begin, const uint16_t *topic, const uint32_t *count,
                    struct tr_lda_phi *phi)
{
    struct tr_lda_phi p = {topics, begin, topic, count, alpha, 0, beta, NULL, NULL, NULL, NULL, NULL};
    TR_TRY(TR_NEW(&p.weight, 5 * (size_t)topics));
    p.now = p.weight + topics;
    p.next = p.now + topics;
    p.share = p.next + topics;
    p.theta = p.share + topics;
    for (uint32_t k = 0; k < topics; k++) {
        p.weight[k] = 1 / ((double)total[k] + (double)words * beta);
        p.alpha_sum += alpha[k];
    }
    *phi = p;
    return TR_OK;
}

void tr_lda_phi_close(struct tr_lda_phi *phi)
{
    free(phi->weight);
    *phi = (struct tr_lda_phi){0};
}

/* Computes share_k = θ_k / (n_k + Vβ), so that p(word) = β Σ share_k + Σ n_wk share_k. Returns the first term, equal for all
 * words. */
static double set_shares(const struct tr_lda_phi *phi, const double *theta)
{
    double sum = 0;
    for (uint32_t k = 0; k < phi->topics; k++) {
        phi->share[k] = theta[k] * phi->weight[k];
        sum += phi->share[k];
    }
    return phi->beta * sum;
}

/* Returns the second term, Σ n_wk share_k. */
static double lda_counted(const struct tr_lda_phi *phi, uint32_t word)
{
    double sum = 0;
    for (uint64_t i = phi->begin[word]; i < phi->begin[word + 1]; i++)
        sum += phi->count[i] * phi->share[phi->topic[i]];
    return sum;
}

/* Performs a step of expectation maximisation: `next` gets the expected tokens of each topic for θ = `now`; then `now` ∝ α +
 * `next`. Returns the sum of the changes of `now`. */
static double lda_step(const struct tr_lda_phi *phi, double tokens, size_t n, const uint32_t *word,
                       const float *count)
{
    double flat = set_shares(phi, phi->now), smoothed = 0, change = 0;
    double *next = phi->next;
    memset(next, 0, phi->topics * sizeof *next);
    for (size_t i = 0; i < n; i++) {
        double each = (double)count[i] / (flat + lda_counted(phi, word[i]));
        smoothed += each;
        for (uint64_t e = phi->begin[word[i]]; e < phi->begin[word[i] + 1]; e++)
            next[phi->topic[e]] += each * phi->count[e];
    }
    for (uint32_t k = 0; k < phi->topics; k++) {
        double now =
            (phi->alpha[k] + (next[k] + smoothed * phi->beta) * phi->share[k]) / (phi->alpha_sum + tokens);
        change += fabs(now - phi->now[k]);
        phi->now[k] = now;
    }
    return change;
}

void tr_lda_infer(const struct tr_lda_phi *phi, size_t n, const uint32_t *word, const float *count,
                  double *theta)
{
    double tokens = 0;
    for (size_t i = 0; i < n; i++) tokens += (double)count[i];
    for (uint32_t k = 0; k < phi->topics; k++) phi->now[k] = phi->alpha[k] / phi->alpha_sum;
    int steps = tokens > 0 ? STEPS : 0;
    while (steps > 0 && lda_step(phi, tokens, n, word, count) > still) steps--;
    memcpy(theta, phi->now, phi->topics * sizeof *theta);
}

double tr_lda_log_words(const struct tr_lda_phi *phi, const double *theta, size_t n, const uint32_t *word,
                        const float *count)
{
    double flat = set_shares(phi, theta), sum = 0;
    for (size_t i = 0; i < n; i++)
        if (count[i] > 0) sum += (double)count[i] * log(flat + lda_counted(phi, word[i]));
    return sum;
}

void tr_lda_complete(const struct tr_lda_phi *phi, uint64_t seed, uint64_t document, size_t n,
                     const uint32_t *word, const float *count, float *seen, float *held,
                     struct tr_lda_completion *sum)
{
    struct tr_rng rng;
    tr_rng_seed(&rng, seed, document, 0xc0);
    uint64_t tokens = 0;
    for (size_t i = 0; i < n; i++) {
        seen[i] = 0;
        float all = count ? count[i] : 1;
        for (uint64_t t = 0; t < (uint64_t)all; t++) seen[i] += (float)(tr_rng_next(&rng) >> 63);
        held[i] = all - seen[i];
        tokens += (uint64_t)held[i];
    }
    if (tokens == 0) return;
    tr_lda_infer(phi, n, word, seen, phi->theta);
    sum->log_p += tr_lda_log_words(phi, phi->theta, n, word, held);
    sum->tokens += tokens;
}

double tr_lda_perplexity(const struct tr_lda_completion *sum)
{
    return sum->tokens > 0 ? exp(-sum->log_p / (double)sum->tokens) : (double)NAN;
}

/* ================ vocabulary ================ */

static void close_file(gzFile *file)
{
    if (*file) gzclose(*file);
}

int tr_lda_vocabulary_read(const char *path, uint64_t words, struct tr_lda_vocabulary *vocabulary)
{
    struct tr_lda_vocabulary v = {.stride = 1};
    TR_FREED char *text = NULL; /* all words, each with a terminating zero */
    size_t used = 0, capacity = 0;
    char line[TR_LDA_LONGEST_WORD + 4]; /* with room for one more letter, line end and terminating zero */
    errno = 0;
    TR_CLOSED_BY(close_file) gzFile file = gzopen(path, "rb");
    if (!file) return tr_fail(TR_ERR_NO_INPUT, "%s: %s", path, strerror(errno ? errno : ENOMEM));
    for (; gzgets(file, line, sizeof line); v.words++) {
        size_t length = strlen(line);
        if (length > 0 && line[length - 1] == '\n') length--;
        if (length > 0 && line[length - 1] == '\r') length--;
        if (length > TR_LDA_LONGEST_WORD)
            return tr_fail(TR_ERR_DATA, "%s:%" PRIu64 ": a word of more than %d bytes", path, v.words + 1,
                           TR_LDA_LONGEST_WORD);
        line[length++] = '\0';
        TR_TRY(TR_GROW(&text, &capacity, used + length));
        memcpy(text + used, line, length);
        used += length;
        v.stride = tr_max_size(v.stride, length);
    }
    int error;
    const char *why = gzerror(file, &error), *from = text;
    if (error != Z_OK && error != Z_STREAM_END) return tr_fail(TR_ERR_DATA, "%s: damaged: %s", path, why);
    if (words > 0 && v.words != words)
        return tr_fail(TR_ERR_DATA,
                       "%s: a vocabulary of %" PRIu64 " lines: expected %" PRIu64
                       ", one per word of the data",
                       path, v.words, words);
    TR_TRY(TR_NEW(&v.text, v.words * v.stride));
    for (uint64_t i = 0; i < v.words; i++, from += strlen(from) + 1) strcpy(v.text + i * v.stride, from);
    *vocabulary = v;
    return TR_OK;
}

void tr_lda_vocabulary_close(struct tr_lda_vocabulary *v)
{
    free(v->text);
    *v = (struct tr_lda_vocabulary){0};
}

const char *tr_lda_word(const struct tr_lda_vocabulary *v, uint64_t word, char *number)
{
    if (word < v->words) return v->text + word * v->stride;
    snprintf(number, 24, "%" PRIu64, word);
    return number;
}

/* ================ documents ================ */

/* State of a command that reads documents of files one by one. */
struct reading {
    struct tr_lda *m;
    tr_query *query;
    uint32_t *word; /* the n words of the current document that the model has */
    float *count;   /* counts of these words, followed by 2 × n numbers of scratch memory */
    size_t n, word_capacity, count_capacity;
    uint64_t unknown;             /* number of tokens of words that the model does not have */
    double *theta;                /* predict: the mixture */
    struct share *share;          /* predict: the mixture, sorted by descending share */
    struct tr_lda_completion sum; /* evaluate: sum over the documents so far */
    uint64_t documents;           /* evaluate: number of documents with words of the model */
    int (*document)(struct reading *r, uint64_t number); /* processes the current document */
};

static int read_documents(void *state, const tr_records *records)
{
    struct reading *r = state;
    const tr_batch *rows = &records->rows;
    for (size_t d = 0; d < rows->n; d++) {
        uint64_t first = rows->begin[d], n = rows->begin[d + 1] - first;
        TR_TRY(TR_GROW(&r->word, &r->word_capacity, n + 1));
        TR_TRY(TR_GROW(&r->count, &r->count_capacity, 3 * n + 1));
        r->n = 0;
        for (uint64_t i = first; i < first + n; i++) {
            float count = tr_value_at(rows, i);
            if (rows->column[i] >= r->m->words) {
                r->unknown += (uint64_t)count;
                continue;
            }
            r->word[r->n] = rows->column[i];
            r->count[r->n++] = count;
        }
        TR_TRY(r->document(r, records->first + d));
    }
    return TR_OK;
}

static int read_all(struct reading *r)
{
    size_t n;
    char *const *files = tr_query_files(r->query, &n);
    tr_read_options options = {.format = TR_FORMAT_DOCWORD};
    TR_TRY(tr_lda_saved_phi(r->m, &r->m->saved));
    return tr_read_rows(files, n, &options, read_documents, r);
}

/* ---- predict ---- */

/* Topics with a smaller share are not printed unless --top is given. */
static const double least_share = 0.01;

struct share {
    uint32_t topic;
    double part;
};

static int largest_first(const void *x, const void *y)
{
    const struct share *a = x, *b = y;
    if (a->part != b->part) return a->part > b->part ? -1 : 1;
    return a->topic < b->topic ? -1 : a->topic > b->topic;
}

static int predict_document(struct reading *r, uint64_t number)
{
    size_t topics = (size_t)r->m->topics, n = 1; /* the largest share is always printed */
    (void)number;
    tr_lda_infer(&r->m->saved.phi, r->n, r->word, r->count, r->theta);
    for (uint32_t k = 0; k < topics; k++) r->share[k] = (struct share){k, r->theta[k]};
    qsort(r->share, topics, sizeof *r->share, largest_first);
    if (tr_query_given(r->query, "--top"))
        n = tr_min_size((size_t)tr_query_number(r->query, "--top", 0), topics);
    else
        while (n < topics && r->share[n].part >= least_share) n++;
    for (size_t i = 0; i < n; i++)
        TR_TRY(tr_print(r->query, "%s%" PRIu32 ":%.4f", i ? " " : "", r->share[i].topic, r->share[i].part));
    return tr_print(r->query, "\n");
}

static int lda_predict(struct reading *r)
{
    r->document = predict_document;
    TR_TRY(TR_NEW(&r->theta, r->m->topics));
    TR_TRY(TR_NEW(&r->share, r->m->topics));
    return read_all(r);
}

/* ---- evaluate ---- */

static int evaluate_document(struct reading *r, uint64_t number)
{
    tr_lda_complete(&r->m->saved.phi, 1, number, r->n, r->word, r->count, r->count + r->n,
                    r->count + 2 * r->n, &r->sum);
    r->documents += r->n > 0;
    return TR_OK;
}

static int lda_evaluate(struct reading *r)
{
    size_t files;
    r->document = evaluate_document;
    TR_TRY(read_all(r));
    if (r->sum.tokens == 0)
        return tr_fail(TR_ERR_NO_INPUT, "%s: no document has two words of the model's vocabulary",
                       tr_query_files(r->query, &files)[0]);
    double likelihood = r->sum.log_p / (double)r->sum.tokens, perplexity = tr_lda_perplexity(&r->sum);
    TR_TRY(tr_figure(r->query, "documents", (double)r->documents, "%" PRIu64, r->documents));
    TR_TRY(tr_figure(r->query, "words", (double)r->sum.tokens,
                     "%" PRIu64 "  (a random half of each document, given the other half)", r->sum.tokens));
    TR_TRY(tr_figure(r->query, "log_likelihood", likelihood, "%.6f  (of a word)", likelihood));
    TR_TRY(tr_figure(r->query, "perplexity", perplexity, "%.6f", perplexity));
    return tr_figure(r->query, "unknown_words", (double)r->unknown, NULL);
}

int tr_lda_answer(void *lda, tr_query *query)
{
    struct reading r = {.m = lda, .query = query};
    int status = tr_query_command(query) == TR_PREDICT ? lda_predict(&r) : lda_evaluate(&r);
    if (status == TR_OK && r.unknown > 0)
        fprintf(stderr,
                "trireme: note: %" PRIu64 " words are beyond the model's vocabulary and were ignored\n",
                r.unknown);
    TR_FREE_ALL(r.word, r.count, r.theta, r.share);
    return status;
}

/* ================ inspect ================ */

/* A word in the list of the most relevant words of a topic. Relevance, λ log p(w|k) + (1 - λ) log (p(w|k) / p(w)), prefers words
 * that distinguish topics to words that are frequent in every topic (Sievert and Shirley, LDAvis, 2014, with λ = 0.6). */
struct top_word {
    uint64_t word;
    double relevance; /* -INFINITY: unused element of the list */
};
static const double lambda = 0.6;

static int show_topics(const struct tr_lda *m, tr_query *query, const struct tr_lda_vocabulary *v,
                       size_t most)
{
    TR_FREED struct top_word *top = NULL;
    TR_FREED struct share *order = NULL;
    TR_TRY(TR_NEW(&order, m->topics));
    for (uint64_t k = 0; k < m->topics; k++)
        order[k] = (struct share){(uint32_t)k, (double)m->saved.total[k]};
    qsort(order, m->topics, sizeof *order, largest_first);
    TR_TRY(TR_NEW(&top, m->topics * most));
    for (size_t i = 0; i < m->topics * most; i++) top[i].relevance = -INFINITY;
    for (uint64_t w = 0; w < m->words; w++) {
        double all = 0, tokens = (double)m->tokens;
        for (uint64_t i = m->saved.begin[w]; i < m->saved.begin[w + 1]; i++) all += m->saved.count[i];
        for (uint64_t i = m->saved.begin[w]; i < m->saved.begin[w + 1]; i++) {
            double in_topic = m->saved.count[i] / (double)m->saved.total[m->saved.topic[i]];
            double relevance = log(in_topic) - (1 - lambda) * log(all / tokens);
            struct top_word *list = top + m->saved.topic[i] * most;
            size_t at = most;
            while (at > 0 && list[at - 1].relevance < relevance) at--;
            if (at != most) {
                memmove(list + at + 1, list + at, (most - 1 - at) * sizeof *list);
                list[at] = (struct top_word){w, relevance};
            }
        }
    }
    TR_TRY(tr_print(query, "\n%6s  %7s  %8s  most relevant words\n", "topic", "share", "alpha"));
    for (uint64_t i = 0; i < m->topics; i++) {
        char number[24];
        uint32_t k = order[i].topic;
        double share = m->tokens > 0 ? 100 * (double)m->saved.total[k] / (double)m->tokens : 0;
        TR_TRY(tr_print(query, "%6" PRIu32 "  %5.2f %%  %8.4f ", k, share, m->alpha[k]));
        const struct top_word *list = top + k * most;
        for (size_t w = 0; w < most && isfinite(list[w].relevance); w++)
            TR_TRY(tr_print(query, " %s", tr_lda_word(v, list[w].word + (v->words == 0), number)));
        TR_TRY(tr_print(query, "\n"));
    }
    return TR_OK;
}

int tr_lda_inspect(void *lda, tr_query *query)
{
    enum { TOP = 10 }; /* words per topic without --top */
    struct tr_lda *m = lda;
    TR_CLOSED_BY(tr_lda_vocabulary_close) struct tr_lda_vocabulary given = {0};
    const char *path = tr_query_text(query, "--vocabulary");
    if (path) TR_TRY(tr_lda_vocabulary_read(path, m->words, &given));
    uint64_t occurring = 0;
    double least = INFINITY, most = 0, sum = 0;
    for (uint64_t w = 0; w < m->words; w++) occurring += m->saved.begin[w + 1] > m->saved.begin[w];
    for (uint64_t k = 0; k < m->topics; k++) {
        least = fmin(least, m->alpha[k]);
        most = fmax(most, m->alpha[k]);
        sum += m->alpha[k];
    }
    tr_line(query, "topics", "%" PRIu64, m->topics);
    tr_line(query, "words", "%" PRIu64 ", %" PRIu64 " with tokens, in %.1f topics on average", m->words,
            occurring, occurring > 0 ? (double)m->saved.begin[m->words] / (double)occurring : 0);
    tr_line(query, "alpha", "%.4g to %.4g, sum %.4g", least, most, sum);
    tr_line(query, "beta", "%.4g", m->beta);
    tr_line(query, "trained on", "%" PRIu64 " documents, %" PRIu64 " tokens", m->documents, m->tokens);
    if (isfinite(m->last.objective)) tr_line(query, "log p", "%.6g a token", m->last.objective);
    return show_topics(m, query, path ? &given : &m->vocabulary,
                       (size_t)tr_query_number(query, "--top", TOP));
}
