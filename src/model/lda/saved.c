/* The model file of topics, and predict, evaluate and inspect.
 *
 * The counts n_wk are stored sparse, in the form of scipy's csr_matrix: entries row_begin[w] .. row_begin[w + 1] - 1 of
 * `topic` and `count` belong to word w. Together with alpha, topic_tokens and the attribute beta they are the whole model: the
 * probability of a word in a topic is (n_wk + beta) / (topic_tokens[k] + words × beta). Topics and words are numbered from 0.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lda.h"

/* ================ the file ================ */

/* In the file all words have the length of the longest one, without a terminating zero. */
static int fill_words(void *lda, uint64_t first, size_t n, void *values)
{
    const struct tr_lda_vocabulary *v = &((struct tr_lda *)lda)->vocabulary;
    size_t length = tr_max_size(v->stride - 1, 1);
    for (size_t i = 0; i < n; i++)
        memcpy((char *)values + i * length, v->text + (first + i) * v->stride,
               tr_min_size(length, v->stride));
    return TR_OK;
}

static int damaged(const char *what)
{
    return tr_fail(TR_ERR_DATA, "model.h5 is damaged: %s", what);
}

static int check_sizes(const struct tr_lda *m)
{
    if (m->topics < 1 || m->topics > UINT16_MAX) return damaged("the number of topics is impossible");
    return m->words >= 1 && m->words <= SIZE_MAX / 16 ? TR_OK : damaged("the number of words is impossible");
}

static int check_priors(const struct tr_lda *m)
{
    bool good = m->beta > 0 && isfinite(m->beta);
    for (uint64_t k = 0; k < m->topics; k++)
        good = good && m->alpha[k] > 0 && isfinite(m->alpha[k]) && m->saved.total[k] >= 0;
    return good ? TR_OK : damaged("a prior or total of a topic is not above 0");
}

static int check_rows(const struct tr_lda *m)
{
    const uint64_t *begin = m->saved.begin;
    if (begin[0] != 0) return damaged("row_begin does not start with 0");
    for (uint64_t w = 0; w < m->words; w++)
        if (begin[w + 1] < begin[w]) return damaged("row_begin does not ascend");
    return begin[m->words] <= m->words * m->topics ? TR_OK : damaged("there are too many entries");
}

static int check_entries(const struct tr_lda *m)
{
    const struct tr_lda_saved *s = &m->saved;
    int64_t *total;
    uint64_t wrong = 0;
    for (uint64_t i = 0; i < s->begin[m->words]; i++)
        if (s->topic[i] >= m->topics) return damaged("a topic is too high");
    TR_TRY(TR_NEW(&total, m->topics));
    for (uint64_t i = 0; i < s->begin[m->words]; i++) total[s->topic[i]] += s->count[i];
    for (uint64_t k = 0; k < m->topics; k++) wrong += total[k] != s->total[k];
    free(total);
    return wrong ? damaged("topic_tokens is not the sum of the counts") : TR_OK;
}

/* ---- in both directions ---- */

/* Sends values of workers and of the scheduler to all ranks; the rank that writes reads the table. */
static int share_values(struct tr_lda *m)
{
    m->log_likelihood = m->last.objective;
    TR_TRY(tr_model_tell(m->tr, 1, &m->log_likelihood));
    if (!m->alpha) TR_TRY(TR_NEW(&m->alpha, m->topics));
    TR_TRY(tr_all_reduce(m->tr, TR_SET_ALL, TR_MAX, TR_F64, m->alpha, m->topics));
    TR_TRY(tr_all_reduce(m->tr, TR_SET_ALL, TR_MAX, TR_F64, &m->beta, 1));
    return tr_rank(m->tr) == 0 ? tr_lda_read_tables(m, NULL, m->words, &m->saved) : TR_OK;
}

static int list_vocabulary(struct tr_lda *m, tr_fields *f)
{
    struct tr_lda_vocabulary *v = &m->vocabulary;
    if (tr_fields_read(f) ? !tr_fields_have(f, "vocabulary") : v->words == 0) return TR_OK;
    TR_TRY(tr_field_texts(f, "vocabulary", m->words, tr_max_size(v->stride, 2) - 1, fill_words, &v->text,
                          &v->stride));
    v->words = m->words;
    return TR_OK;
}

/* The centre of a topic is a document of mean length with this topic only. Files number words from 1. */
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

int tr_lda_fields(void *lda, tr_fields *f)
{
    struct tr_lda *m = lda;
    struct tr_lda_saved *s = &m->saved;
    bool reads = tr_fields_read(f);
    if (!reads) TR_TRY(share_values(m));
    TR_TRY(tr_field_count(f, "topics", &m->topics));
    TR_TRY(tr_field_count(f, "words", &m->words));
    TR_TRY(tr_field_count(f, "documents", &m->documents));
    TR_TRY(tr_field_count(f, "tokens", &m->tokens));
    TR_TRY(tr_field_real(f, "beta", &m->beta));
    TR_TRY(tr_field_real(f, "log_likelihood_per_token", &m->log_likelihood));
    TR_TRY(check_sizes(m));
    TR_TRY(tr_field_array(f, "alpha", TR_FIELD_F64, m->topics, 0, "prior of each topic in a document",
                          &m->alpha));
    TR_TRY(tr_field_array(f, "topic_tokens", TR_FIELD_I64, m->topics, 0, "tokens of each topic", &s->total));
    if (reads) TR_TRY(check_priors(m));
    TR_TRY(tr_field_array(f, "row_begin", TR_FIELD_U64, m->words + 1, 0,
                          "first entry of each word in topic and count", &s->begin));
    if (reads) TR_TRY(check_rows(m));
    uint64_t entries = s->begin ? s->begin[m->words] : 0;
    TR_TRY(tr_field_array(f, "topic", TR_FIELD_U16, entries, 0, "topics of each word, ascending", &s->topic));
    TR_TRY(tr_field_array(f, "count", TR_FIELD_U32, entries, 0, "tokens of the word with this topic",
                          &s->count));
    if (reads) TR_TRY(check_entries(m));
    return list_vocabulary(m, f);
}

int tr_lda_saved_phi(const struct tr_lda *m, struct tr_lda_saved *s)
{
    return tr_lda_phi_open((uint32_t)m->topics, m->words, s->total, m->alpha, m->beta, s->begin, s->topic,
                           s->count, &s->phi);
}

void tr_lda_saved_close(struct tr_lda_saved *s)
{
    tr_lda_phi_close(&s->phi);
    free(s->begin);
    free(s->topic);
    free(s->count);
    free(s->total);
    *s = (struct tr_lda_saved){0};
}

/* ================ documents ================ */

/* Reads documents of files one by one. */
struct reading {
    struct tr_lda *m;
    tr_query *query;
    uint32_t *word; /* n words of this document that the model has */
    float *count;   /* their counts, and 2 × n numbers of scratch memory */
    size_t n, word_capacity, count_capacity;
    uint64_t unknown;             /* tokens of words that the model does not have */
    double *theta;                /* predict: the mixture */
    struct share *share;          /* predict: the mixture in descending order */
    struct tr_lda_completion sum; /* evaluate */
    uint64_t documents;
    int (*document)(struct reading *r, uint64_t number);
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
            float count = rows->value ? rows->value[i] : 1;
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

/* Without --top: minimum share of a topic that is printed. */
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

static int predict(struct reading *r)
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

static int evaluate(struct reading *r)
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
    int status = tr_query_command(query) == TR_PREDICT ? predict(&r) : evaluate(&r);
    if (status == TR_OK && r.unknown > 0)
        fprintf(stderr,
                "trireme: note: %" PRIu64 " words are beyond the model's vocabulary and were ignored\n",
                r.unknown);
    void *arrays[] = {r.word, r.count, r.theta, r.share};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) free(arrays[i]);
    return status;
}

/* ================ inspect ================ */

/* The `most` most relevant words of each topic: relevance λ log p(w|k) + (1 - λ) log (p(w|k) / p(w)) prefers words that
 * distinguish topics to words that are frequent in all. Sievert and Shirley, LDAvis, 2014, with λ = 0.6. */
struct top {
    size_t most;
    struct top_word {
        uint64_t word;
        double relevance; /* -INFINITY: none */
    } * word;
};
static const double lambda = 0.6;

static void offer(struct top *top, uint32_t topic, uint64_t word, double relevance)
{
    struct top_word *list = top->word + topic * top->most;
    size_t at = top->most;
    while (at > 0 && list[at - 1].relevance < relevance) at--;
    if (at == top->most) return;
    memmove(list + at + 1, list + at, (top->most - 1 - at) * sizeof *list);
    list[at] = (struct top_word){word, relevance};
}

static void offer_word(const struct tr_lda *m, uint64_t w, struct top *top)
{
    double all = 0, tokens = (double)m->tokens;
    for (uint64_t i = m->saved.begin[w]; i < m->saved.begin[w + 1]; i++) all += m->saved.count[i];
    for (uint64_t i = m->saved.begin[w]; i < m->saved.begin[w + 1]; i++) {
        double in_topic = m->saved.count[i] / (double)m->saved.total[m->saved.topic[i]];
        offer(top, m->saved.topic[i], w, log(in_topic) - (1 - lambda) * log(all / tokens));
    }
}

static int find_top(const struct tr_lda *m, size_t most, struct top *top)
{
    top->most = most;
    TR_TRY(TR_NEW(&top->word, m->topics * most));
    for (size_t i = 0; i < m->topics * most; i++) top->word[i].relevance = -INFINITY;
    for (uint64_t w = 0; w < m->words; w++) offer_word(m, w, top);
    return TR_OK;
}

static int show_topic(const struct tr_lda *m, tr_query *query, const struct tr_lda_vocabulary *v,
                      const struct top *top, uint32_t k)
{
    char number[24];
    double share = m->tokens > 0 ? 100 * (double)m->saved.total[k] / (double)m->tokens : 0;
    TR_TRY(tr_print(query, "%6" PRIu32 "  %5.2f %%  %8.4f ", k, share, m->alpha[k]));
    const struct top_word *list = top->word + k * top->most;
    for (size_t i = 0; i < top->most && isfinite(list[i].relevance); i++)
        TR_TRY(tr_print(query, " %s", tr_lda_word(v, list[i].word + (v->words == 0), number)));
    return tr_print(query, "\n");
}

static int show_topics(const struct tr_lda *m, tr_query *query, const struct tr_lda_vocabulary *v,
                       size_t most)
{
    struct top top = {0};
    struct share *order;
    TR_TRY(TR_NEW(&order, m->topics));
    for (uint64_t k = 0; k < m->topics; k++)
        order[k] = (struct share){(uint32_t)k, (double)m->saved.total[k]};
    qsort(order, m->topics, sizeof *order, largest_first);
    int status = find_top(m, most, &top);
    if (status == TR_OK)
        status = tr_print(query, "\n%6s  %7s  %8s  most relevant words\n", "topic", "share", "alpha");
    for (uint64_t i = 0; i < m->topics && status == TR_OK; i++)
        status = show_topic(m, query, v, &top, order[i].topic);
    free(top.word);
    free(order);
    return status;
}

static void show_head(const struct tr_lda *m, tr_query *query)
{
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
    if (isfinite(m->log_likelihood)) tr_line(query, "log p(w, z)", "%.6g a token", m->log_likelihood);
}

int tr_lda_inspect(void *lda, tr_query *query)
{
    enum { TOP = 10 }; /* words per topic without --top */
    struct tr_lda *m = lda;
    struct tr_lda_vocabulary given = {0};
    const char *path = tr_query_text(query, "--vocabulary");
    if (path) TR_TRY(tr_lda_vocabulary_read(path, m->words, &given));
    show_head(m, query);
    int status =
        show_topics(m, query, path ? &given : &m->vocabulary, (size_t)tr_query_number(query, "--top", TOP));
    tr_lda_vocabulary_close(&given);
    return status;
}
