/* State of topic models in checkpoints: the topics of all tokens by document; the order of topics in the lists of documents
 * and words, on which draws and the last bits of sums depend; with one group n_wk (several have them in the table); the
 * priors; and the state of the random numbers. With another layout everything except the random numbers is restored.
 */
#include <stdlib.h>

#include "lda.h"

/* A list of 32-bit numbers per document or word. */
struct list {
    uint32_t *n; /* lengths */
    uint64_t *begin;
    uint32_t *number;
};

static void free_list(struct list *l)
{
    free(l->n);
    free(l->begin);
    free(l->number);
}

/* Allocates lists of n[i] elements of `bytes` bytes. */
static int open_list(uint64_t rows, const uint32_t *n, int bytes, struct list *l)
{
    TR_TRY(TR_NEW(&l->begin, rows + 1));
    for (uint64_t i = 0; i < rows; i++)
        l->begin[i + 1] = l->begin[i] + ((uint64_t)n[i] * (uint64_t)bytes + 3) / 4;
    return TR_NEW(&l->number, l->begin[rows]);
}

/* ---- documents ---- */

static int list_documents(struct tr_lda *m, tr_snapshot *snapshot, struct list *z, struct list *order)
{
    struct tr_lda_sampler *s = m->sampler;
    uint64_t all = m->numbers_of_documents, rows = s->documents;
    bool restores = tr_snapshot_restores(snapshot);
    TR_TRY(open_list(rows, s->length, s->topic_bytes, z));
    if (!restores) TR_TRY(tr_lda_topics(s, z->begin, z->number, false));
    TR_TRY(tr_snapshot_lists(snapshot, "z", TR_I32, all, s->number, 0, rows, z->begin, z->number));
    TR_TRY(TR_NEW(&order->n, rows));
    for (uint64_t d = 0; d < rows && !restores; d++) order->n[d] = tr_lda_order(s, d, 0, NULL);
    TR_TRY(tr_snapshot_rows(snapshot, "topics_of_documents", TR_I32, all, 1, s->number, 0, rows, order->n));
    TR_TRY(open_list(rows, order->n, s->topic_bytes, order));
    for (uint64_t d = 0; d < rows && !restores; d++) tr_lda_order(s, d, order->begin[d], order->number);
    TR_TRY(tr_snapshot_lists(snapshot, "order_in_documents", TR_I32, all, s->number, 0, rows, order->begin,
                             order->number));
    if (!restores) return TR_OK;
    TR_TRY(tr_lda_topics(s, z->begin, z->number, true));
    return tr_lda_recount(s, order->n, order->begin, order->number);
}

static int keep_documents(struct tr_lda *m, tr_snapshot *snapshot)
{
    struct list z = {0}, order = {0};
    int status = list_documents(m, snapshot, &z, &order);
    free_list(&z);
    free_list(&order);
    return status;
}

/* ---- words: with one group ---- */

/* 32-bit numbers per topic and count: two for words with many tokens, otherwise one. */
static uint32_t pair_size(const struct tr_lda *m, uint64_t place)
{
    return m->layout.kind[place] == TR_LDA_WIDE ? 2 : 1;
}

static struct tr_lda_cursor counts_of(const struct tr_lda *m, uint64_t place)
{
    return tr_lda_row(&m->layout, tr_lda_memory_of(m, place), place);
}

static void copy_word(const struct tr_lda *m, uint64_t place, uint32_t *number)
{
    for (struct tr_lda_cursor c = counts_of(m, place); tr_lda_next(&c);) {
        *number++ = pair_size(m, place) == 2 ? c.topic : c.topic | c.count << 16;
        if (pair_size(m, place) == 2) *number++ = c.count;
    }
}

static int restore_word(struct tr_lda *m, uint64_t place, const uint32_t *number, uint32_t n)
{
    uint32_t size = pair_size(m, place);
    if (n / size > m->layout.topics)
        return tr_fail(TR_ERR_DATA, "word %llu has %u topics", (unsigned long long)m->layout.word[place] + 1,
                       n / size);
    for (uint32_t i = 0; i < n / size; i++, number += size)
        m->counts[0][i] = size == 2 ? (struct tr_lda_count){number[0], number[1]}
                                    : (struct tr_lda_count){number[0] & 0xffff, number[0] >> 16};
    return tr_lda_row_write(&m->layout, tr_lda_memory_of(m, place), place, m->counts[0], n / size);
}

static int list_words(struct tr_lda *m, tr_snapshot *snapshot, struct list *w)
{
    size_t n = m->n_first_words;
    const tr_key *words = m->first_words;
    const uint64_t *place = m->layout.place;
    bool restores = tr_snapshot_restores(snapshot);
    TR_TRY(TR_NEW(&w->n, n));
    for (size_t i = 0; i < n && !restores; i++)
        for (struct tr_lda_cursor c = counts_of(m, place[words[i]]); tr_lda_next(&c);)
            w->n[i] += pair_size(m, place[words[i]]);
    TR_TRY(tr_snapshot_rows(snapshot, "numbers_of_words", TR_I32, m->words, 1, words, 0, n, w->n));
    TR_TRY(open_list(n, w->n, 4, w));
    for (size_t i = 0; i < n && !restores; i++) copy_word(m, place[words[i]], w->number + w->begin[i]);
    TR_TRY(
        tr_snapshot_lists(snapshot, "counts_of_words", TR_I32, m->words, words, 0, n, w->begin, w->number));
    for (size_t i = 0; i < n && restores; i++)
        TR_TRY(restore_word(m, place[words[i]], w->number + w->begin[i], w->n[i]));
    return TR_OK;
}

static int keep_words(struct tr_lda *m, tr_snapshot *snapshot)
{
    struct list words = {0};
    TR_TRY(tr_lda_look(m));
    TR_TRY(tr_lda_list_words(m));
    int status = list_words(m, snapshot, &words);
    free_list(&words);
    return status;
}

/* ---- values of all workers ---- */

/* Values that are equal on all workers; the first worker stores them. Several groups sum totals before each sweep. */
static int keep_numbers(const tr_worker *me, struct tr_lda *m, int64_t groups, tr_snapshot *snapshot)
{
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
    if (!restores) return TR_OK;
    tr_lda_priors(m->sampler, m->alpha, m->beta);
    tr_lda_set_totals(m->sampler, m->total);
    return TR_OK;
}

static int keep_draws(const tr_worker *me, struct tr_lda *m, tr_snapshot *snapshot)
{
    bool found;
    TR_TRY(tr_snapshot_own(snapshot, "draws", &m->sampler->rng, sizeof m->sampler->rng, &found));
    if (tr_snapshot_restores(snapshot) && !found)
        tr_lda_reseed(m->sampler, (uint64_t)me->worker, (uint64_t)me->clock + 1);
    return TR_OK;
}

/* The histograms in the table are used in the clock after they were pushed, if at all. In that clock they belong to the
 * restored documents. Otherwise the table is cleared and all workers push them again. */
static int keep_histograms(const tr_worker *me, struct tr_lda *m, tr_snapshot *snapshot)
{
    if (!m->histograms || !tr_snapshot_restores(snapshot)) return TR_OK;
    bool used = m->groups_before > 1 && tr_lda_fits_before(m, me->clock);
    if (!used) tr_table_clear(m->histograms);
    if (!used || me->worker < 0) return TR_OK;
    return tr_lda_count_documents(m, &m->sent);
}

static int keep_of_worker(tr_worker *me, struct tr_lda *m, int64_t groups, tr_snapshot *snapshot)
{
    TR_TRY(keep_documents(m, snapshot));
    TR_TRY(keep_numbers(me, m, groups, snapshot));
    TR_TRY(keep_draws(me, m, snapshot));
    return groups > 1 ? TR_OK : keep_words(m, snapshot);
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
    if (me->worker >= 0) TR_TRY(keep_of_worker(me, m, groups, snapshot));
    return keep_histograms(me, m, snapshot);
}
