/* Topics in model.h5 and in checkpoints.
 *
 * The counts n_wk are stored sparse, in the form of scipy's csr_matrix: entries row_begin[w] .. row_begin[w + 1] - 1 of
 * `topic` and `count` belong to word w. Together with alpha, topic_tokens and the attribute beta they are the whole model: the
 * probability of a word in a topic is (n_wk + beta) / (topic_tokens[k] + words × beta). Topics and words are numbered from 0.
 */
#include <inttypes.h>
#include <math.h>
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
    if (!reads) { /* alpha and beta are known to workers; the rank that writes reads the tables */
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

/* ================ checkpoints ================ */

/* State of topic models in checkpoints: the topics of all tokens by document; the order of topics in the lists of documents
 * and words, on which draws and the last bits of sums depend; with one group n_wk (several have them in the table); the
 * priors; and the state of the random numbers. With another layout everything except the random numbers is restored.
 */

/* A list of 32-bit numbers per document or word. */
struct list {
    uint32_t *n; /* lengths */
    uint64_t *begin;
    uint32_t *number;
};

static void list_free(struct list *l)
{
    free(l->n);
    free(l->begin);
    free(l->number);
}
/* Allocates lists of n[i] elements of `bytes` bytes. */
static int list_open(uint64_t rows, const uint32_t *n, int bytes, struct list *l)
{
    TR_TRY(TR_NEW(&l->begin, rows + 1));
    for (uint64_t i = 0; i < rows; i++)
        l->begin[i + 1] = l->begin[i] + ((uint64_t)n[i] * (uint64_t)bytes + 3) / 4;
    return TR_NEW(&l->number, l->begin[rows]);
}

static int keep_documents(struct tr_lda *m, tr_snapshot *snapshot)
{
    struct tr_lda_sampler *s = m->sampler;
    TR_CLOSED_BY(list_free) struct list z = {0};
    TR_CLOSED_BY(list_free) struct list order = {0};
    uint64_t all = m->numbers_of_documents, rows = s->documents;
    bool restores = tr_snapshot_restores(snapshot);
    TR_TRY(list_open(rows, s->length, s->topic_bytes, &z));
    if (!restores) TR_TRY(tr_lda_topics(s, z.begin, z.number, false));
    TR_TRY(tr_snapshot_lists(snapshot, "z", TR_I32, all, s->number, 0, rows, z.begin, z.number));
    TR_TRY(TR_NEW(&order.n, rows));
    for (uint64_t d = 0; d < rows && !restores; d++) order.n[d] = tr_lda_order(s, d, 0, NULL);
    TR_TRY(tr_snapshot_rows(snapshot, "topics_of_documents", TR_I32, all, 1, s->number, 0, rows, order.n));
    TR_TRY(list_open(rows, order.n, s->topic_bytes, &order));
    for (uint64_t d = 0; d < rows && !restores; d++) tr_lda_order(s, d, order.begin[d], order.number);
    TR_TRY(tr_snapshot_lists(snapshot, "order_in_documents", TR_I32, all, s->number, 0, rows, order.begin,
                             order.number));
    if (!restores) return TR_OK;
    TR_TRY(tr_lda_topics(s, z.begin, z.number, true));
    return tr_lda_recount(s, order.n, order.begin, order.number);
}

/* Lists the counts of words, with one group. A topic and its count are two 32-bit numbers for words with many tokens, otherwise
 * one. */
static int keep_words(struct tr_lda *m, tr_snapshot *snapshot)
{
    TR_TRY(tr_lda_look(m));
    TR_TRY(tr_lda_list_words(m));
    TR_CLOSED_BY(list_free) struct list w = {0};
    size_t n = m->n_first_words;
    const struct tr_lda_layout *l = &m->layout;
    const tr_key *words = m->first_words;
    bool restores = tr_snapshot_restores(snapshot);
    TR_TRY(TR_NEW(&w.n, n));
    for (size_t i = 0; i < n && !restores; i++) {
        uint64_t place = l->place[words[i]];
        for (struct tr_lda_cursor c = tr_lda_row(l, tr_lda_memory_of(m, place), place); tr_lda_next(&c);)
            w.n[i] += l->kind[place] == TR_LDA_WIDE ? 2 : 1;
    }
    TR_TRY(tr_snapshot_rows(snapshot, "numbers_of_words", TR_I32, m->words, 1, words, 0, n, w.n));
    TR_TRY(list_open(n, w.n, 4, &w));
    for (size_t i = 0; i < n && !restores; i++) {
        uint64_t place = l->place[words[i]];
        uint32_t *number = w.number + w.begin[i];
        bool wide = l->kind[place] == TR_LDA_WIDE;
        for (struct tr_lda_cursor c = tr_lda_row(l, tr_lda_memory_of(m, place), place); tr_lda_next(&c);) {
            *number++ = wide ? c.topic : c.topic | c.count << 16;
            if (wide) *number++ = c.count;
        }
    }
    TR_TRY(tr_snapshot_lists(snapshot, "counts_of_words", TR_I32, m->words, words, 0, n, w.begin, w.number));
    for (size_t i = 0; i < n && restores; i++) {
        uint64_t place = l->place[words[i]];
        uint32_t size = l->kind[place] == TR_LDA_WIDE ? 2 : 1, pairs = w.n[i] / size;
        const uint32_t *number = w.number + w.begin[i];
        if (pairs > l->topics)
            return tr_fail(TR_ERR_DATA, "word %llu has %u topics", (unsigned long long)words[i] + 1, pairs);
        for (uint32_t k = 0; k < pairs; k++, number += size)
            m->counts[0][k] = size == 2 ? (struct tr_lda_count){number[0], number[1]}
                                        : (struct tr_lda_count){number[0] & 0xffff, number[0] >> 16};
        TR_TRY(tr_lda_row_write(l, tr_lda_memory_of(m, place), place, m->counts[0], pairs));
    }
    return TR_OK;
}

int tr_lda_snapshot(tr_worker *me, void *state, tr_snapshot *snapshot)
{
    struct tr_lda *m = state;
    int64_t groups = me->groups;
    TR_TRY(tr_model_keep_evaluation(snapshot, &m->last));
    TR_TRY(tr_snapshot_common(snapshot, "groups", TR_I64, 1, &groups));
    TR_TRY(tr_model_keep_sums(me, snapshot, "log_words", 1, &m->log_words));
    if (tr_snapshot_restores(snapshot)) {
        m->first_clock = me->clock;
        m->groups_before = groups;
    }
    if (me->worker >= 0) {
        TR_TRY(keep_documents(m, snapshot));
        /* Values that are equal on all workers; the first worker stores them. Several groups sum totals before each sweep. */
        size_t topics = m->layout.topics;
        bool restores = tr_snapshot_restores(snapshot), mine = me->worker == 0 || restores;
        struct {
            const char *name;
            enum tr_dtype dtype;
            size_t n;
            void *values;
        } numbers[] = {{"alpha", TR_F64, topics, m->alpha},
                       {"beta", TR_F64, 1, &m->beta},
                       {"totals", TR_I64, topics, m->total}};
        for (size_t i = 0; i < (groups > 1 ? 2 : 3); i++)
            TR_TRY(tr_snapshot_rows(snapshot, numbers[i].name, numbers[i].dtype, numbers[i].n, 1, NULL, 0,
                                    mine ? numbers[i].n : 0, numbers[i].values));
        if (restores) {
            tr_lda_priors(m->sampler, m->alpha, m->beta);
            tr_lda_set_totals(m->sampler, m->total);
        }
        bool found;
        TR_TRY(tr_snapshot_own(snapshot, "draws", &m->sampler->rng, sizeof m->sampler->rng, &found));
        if (tr_snapshot_restores(snapshot) && !found)
            tr_lda_reseed(m->sampler, (uint64_t)me->worker, (uint64_t)me->clock + 1);
        if (groups == 1) TR_TRY(keep_words(m, snapshot));
    }
    /* The histograms in the table are used in the clock after they were pushed, if at all. In that clock they belong to the
     * restored documents. Otherwise the table is cleared and all workers push them again. */
    if (!m->histograms || !tr_snapshot_restores(snapshot)) return TR_OK;
    bool used = m->groups_before > 1 && tr_lda_fits_before(m, me->clock);
    if (!used) tr_table_clear(m->histograms);
    if (!used || me->worker < 0) return TR_OK;
    return tr_lda_count_documents(m, &m->sent);
}
