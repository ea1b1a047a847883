#define _GNU_SOURCE
#include "cli/kinds.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "cli/printout.h"
#include "trireme/records.h"
#include "model/lda/file.h"
#include "model/lda/infer.h"

/* Without --top: words of a topic, and the least share of a topic in a document that is worth a word. */
enum { TOP = 10 };
static const double least_share = 0.01;

/* ================ documents ================ */

/* Documents of files, one after the other, as a model sees them. */
struct reading {
    struct tr_lda_model model;
    struct tr_lda_phi phi;
    const struct tr_options *options;
    uint32_t *word; /* of this document, those that the model knows */
    float *count, *halves;
    size_t n, word_room, count_room, halves_room;
    uint64_t unknown; /* tokens of others */
    int (*document)(struct reading *r, uint64_t number);
    void *state;
};

static void say_unknown(uint64_t unknown)
{
    if (unknown > 0)
        fprintf(stderr,
                "trireme: note: %" PRIu64 " words are beyond the model's vocabulary and were ignored\n",
                unknown);
}

static int read_documents_of(void *state, const tr_records *records)
{
    struct reading *r = state;
    const tr_batch *d = &records->rows;
    for (size_t row = 0; row < d->n; row++) {
        size_t n = (size_t)(d->begin[row + 1] - d->begin[row]);
        TR_TRY(TR_GROW(&r->word, &r->word_room, n + 1));
        TR_TRY(TR_GROW(&r->count, &r->count_room, n + 1));
        r->n = 0;
        for (uint64_t i = d->begin[row]; i < d->begin[row + 1]; i++) {
            if (d->column[i] >= r->model.words) {
                r->unknown += (uint64_t)d->value[i];
                continue;
            }
            r->word[r->n] = d->column[i];
            r->count[r->n++] = d->value[i];
        }
        TR_TRY(r->document(r, records->first + row));
    }
    return TR_OK;
}

static int open_model(struct reading *r)
{
    const struct tr_options *o = r->options;
    if (o->format && strcmp(o->format, "docword") != 0)
        return tr_fail(TR_ERR_USAGE, "--format %s: a model of topics reads docword", o->format);
    TR_TRY(tr_lda_model_read(o->word[0], &r->model));
    struct tr_lda_model *m = &r->model;
    return tr_lda_phi_open(m->topics, m->words, m->total, m->alpha, m->beta, m->begin, m->topic, m->count,
                           &r->phi);
}

static void close_reading(struct reading *r)
{
    tr_lda_phi_close(&r->phi);
    tr_lda_model_close(&r->model);
    free(r->word);
    free(r->count);
    free(r->halves);
}

static int read_documents(struct reading *r)
{
    tr_read_options options = {.format = TR_FORMAT_DOCWORD};
    return tr_read_rows(r->options->word + 1, r->options->words - 1, &options, read_documents_of, r);
}

/* ================ predict ================ */

struct share {
    uint32_t topic;
    double part;
};

struct prediction {
    struct tr_printout out;
    double *theta;
    struct share *share;
};

static int largest_first(const void *x, const void *y)
{
    const struct share *a = x, *b = y;
    if (a->part != b->part) return a->part > b->part ? -1 : 1;
    return a->topic < b->topic ? -1 : a->topic > b->topic;
}

/* The largest share is always shown. */
static size_t shown(const struct reading *r, const struct share *share)
{
    size_t n = 1, topics = r->model.topics;
    if (tr_given(r->options, TR_OPTION_TOP)) return tr_min_size((size_t)r->options->top, topics);
    while (n < topics && share[n].part >= least_share) n++;
    return n;
}

static int predict_document(struct reading *r, uint64_t number)
{
    struct prediction *p = r->state;
    uint32_t topics = r->model.topics;
    (void)number;
    tr_lda_infer(&r->phi, r->n, r->word, r->count, p->theta);
    for (uint32_t k = 0; k < topics; k++) p->share[k] = (struct share){k, p->theta[k]};
    qsort(p->share, topics, sizeof *p->share, largest_first);
    size_t n = shown(r, p->share);
    for (size_t i = 0; i < n; i++)
        if (fprintf(p->out.file, "%s%" PRIu32 ":%.4f", i ? " " : "", p->share[i].topic, p->share[i].part) < 0)
            return tr_printout_failed(&p->out);
    return putc('\n', p->out.file) < 0 ? tr_printout_failed(&p->out) : TR_OK;
}

static int predict_all(struct reading *r, struct prediction *p)
{
    TR_TRY(open_model(r));
    TR_TRY(TR_NEW(&p->theta, r->model.topics));
    TR_TRY(TR_NEW(&p->share, r->model.topics));
    TR_TRY(tr_printout_open(r->options->output, &p->out));
    return tr_printout_close(&p->out, read_documents(r));
}

static int predict(const struct tr_options *o)
{
    struct prediction p = {0};
    struct reading r = {.options = o, .document = predict_document, .state = &p};
    int status = predict_all(&r, &p);
    if (status == TR_OK) say_unknown(r.unknown);
    free(p.theta);
    free(p.share);
    close_reading(&r);
    return status;
}

/* ================ evaluate ================ */

struct evaluation {
    struct tr_lda_completion sum;
    uint64_t documents;
};

static int evaluate_document(struct reading *r, uint64_t number)
{
    struct evaluation *e = r->state;
    TR_TRY(TR_GROW(&r->halves, &r->halves_room, 2 * r->n + 1));
    tr_lda_complete(&r->phi, 1, number, r->n, r->word, r->count, r->halves, r->halves + r->n, &e->sum);
    e->documents += r->n > 0;
    return TR_OK;
}

static void show_evaluation(const struct evaluation *e)
{
    printf("%-14s  %" PRIu64 "\n", "documents", e->documents);
    printf("%-14s  %" PRIu64 "  (a random half of each document, given the other half)\n", "words",
           e->sum.tokens);
    printf("%-14s  %.6f  (of a word)\n", "log_likelihood", e->sum.log_p / (double)e->sum.tokens);
    printf("%-14s  %.6f\n", "perplexity", tr_lda_perplexity(&e->sum));
}

static void show_json(const struct evaluation *e, uint64_t unknown)
{
    printf("{\"model\": \"lda\", \"documents\": %" PRIu64 ", \"words\": %" PRIu64
           ", \"log_likelihood\": %.17g, \"perplexity\": %.17g, \"unknown_words\": %" PRIu64 "}\n",
           e->documents, e->sum.tokens, e->sum.log_p / (double)e->sum.tokens, tr_lda_perplexity(&e->sum),
           unknown);
}

static int evaluate(const struct tr_options *o)
{
    struct evaluation e = {0};
    struct reading r = {.options = o, .document = evaluate_document, .state = &e};
    int status = open_model(&r);
    if (status == TR_OK) status = read_documents(&r);
    if (status == TR_OK && e.sum.tokens == 0)
        status = tr_fail(TR_ERR_NO_INPUT, "%s: there is no document with two words that the model knows",
                         o->word[1]);
    if (status == TR_OK && tr_given(o, TR_OPTION_JSON)) {
        show_json(&e, r.unknown);
    } else if (status == TR_OK) {
        show_evaluation(&e);
        say_unknown(r.unknown);
    }
    close_reading(&r);
    return status;
}

/* ================ inspect ================ */

/* The most relevant words of each topic, `most` places a topic: λ log p(w|k) + (1 - λ) log (p(w|k) / p(w)), so that words
 * which are everywhere do not crowd out those that tell a topic. Sievert and Shirley, LDAvis, 2014, whose λ is 0.6. */
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

static void offer_word(const struct tr_lda_model *m, uint64_t w, struct top *top)
{
    double all = 0, tokens = (double)m->tokens;
    for (uint64_t i = m->begin[w]; i < m->begin[w + 1]; i++) all += m->count[i];
    for (uint64_t i = m->begin[w]; i < m->begin[w + 1]; i++) {
        double in_topic = m->count[i] / (double)m->total[m->topic[i]];
        offer(top, m->topic[i], w, log(in_topic) - (1 - lambda) * log(all / tokens));
    }
}

static int find_top(const struct tr_lda_model *m, size_t most, struct top *top)
{
    top->most = most;
    TR_TRY(TR_NEW(&top->word, m->topics * most));
    for (size_t i = 0; i < m->topics * most; i++) top->word[i].relevance = -INFINITY;
    for (uint64_t w = 0; w < m->words; w++) offer_word(m, w, top);
    return TR_OK;
}

struct heavy {
    int64_t tokens;
    uint32_t topic;
};

static int heaviest_first(const void *x, const void *y)
{
    const struct heavy *a = x, *b = y;
    if (a->tokens != b->tokens) return a->tokens > b->tokens ? -1 : 1;
    return a->topic < b->topic ? -1 : 1;
}

static void show_topic(const struct tr_lda_model *m, const struct tr_lda_vocabulary *v, const struct top *top,
                       uint32_t k)
{
    char number[24];
    double share = m->tokens > 0 ? 100 * (double)m->total[k] / (double)m->tokens : 0;
    printf("%6" PRIu32 "  %5.2f %%  %8.4f ", k, share, m->alpha[k]);
    const struct top_word *list = top->word + k * top->most;
    for (size_t i = 0; i < top->most && isfinite(list[i].relevance); i++)
        printf(" %s", tr_lda_word(v, list[i].word + (v->words == 0), number));
    putchar('\n');
}

static int show_topics(const struct tr_lda_model *m, const struct tr_lda_vocabulary *v, size_t most)
{
    struct top top = {0};
    struct heavy *order;
    TR_TRY(TR_NEW(&order, m->topics));
    for (uint32_t k = 0; k < m->topics; k++) order[k] = (struct heavy){m->total[k], k};
    qsort(order, m->topics, sizeof *order, heaviest_first);
    int status = find_top(m, most, &top);
    if (status == TR_OK) printf("\n%6s  %7s  %8s  most relevant words\n", "topic", "share", "alpha");
    for (uint32_t i = 0; i < m->topics && status == TR_OK; i++) show_topic(m, v, &top, order[i].topic);
    free(top.word);
    free(order);
    return status;
}

static void show_priors(const struct tr_lda_model *m)
{
    double least = INFINITY, most = 0, sum = 0;
    for (uint32_t k = 0; k < m->topics; k++) {
        least = fmin(least, m->alpha[k]);
        most = fmax(most, m->alpha[k]);
        sum += m->alpha[k];
    }
    tr_show("alpha", "%.4g to %.4g, sum %.4g", least, most, sum);
    tr_show("beta", "%.4g", m->beta);
}

static void show_head(const struct tr_lda_model *m)
{
    uint64_t occurring = 0;
    for (uint64_t w = 0; w < m->words; w++) occurring += m->begin[w + 1] > m->begin[w];
    tr_show("model", "lda");
    tr_show("topics", "%" PRIu32, m->topics);
    tr_show("words", "%" PRIu64 ", of which %" PRIu64 " occur, in %.1f topics in the mean", m->words,
            occurring, occurring > 0 ? (double)m->begin[m->words] / (double)occurring : 0);
    show_priors(m);
    tr_show("trained on", "%" PRIu64 " documents, %" PRIu64 " tokens", m->documents, m->tokens);
    if (isfinite(m->log_likelihood)) tr_show("log p(w, z)", "%.6g a token", m->log_likelihood);
    if (m->version) tr_show("trireme", "%s", m->version);
}

static int show_model(const struct tr_lda_model *m, const struct tr_options *o)
{
    struct tr_lda_vocabulary given = {0};
    size_t top = tr_given(o, TR_OPTION_TOP) ? (size_t)o->top : TOP;
    if (o->vocabulary) TR_TRY(tr_lda_vocabulary_read(o->vocabulary, m->words, &given));
    show_head(m);
    int status = show_topics(m, o->vocabulary ? &given : &m->vocabulary, top);
    if (status == TR_OK && m->job) printf("\njob\n%s", m->job);
    tr_lda_vocabulary_close(&given);
    return status;
}

static int inspect(const char *path, const struct tr_options *o)
{
    struct tr_lda_model m;
    TR_TRY(tr_lda_model_read(path, &m));
    int status = show_model(&m, o);
    tr_lda_model_close(&m);
    return status;
}

const struct tr_command_kind tr_lda_commands = {
    .format = TR_LDA_FORMAT,
    .what = "a model of topics",
    .predicts_with = TR_OPTION_TOP | TR_OPTION_FORMAT,
    .evaluates_with = TR_OPTION_FORMAT,
    .inspects_with = TR_OPTION_TOP | TR_OPTION_VOCABULARY,
    .predict = predict,
    .evaluate = evaluate,
    .inspect = inspect,
};
