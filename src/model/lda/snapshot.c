/* What checkpoints keep of topics: those of all tokens, by document; in which order documents and words have theirs in
 * lists, on which draws and the last bits of sums depend; with one group n_wk, which several have in the table; priors;
 * and the state of the draws. With another layout all of that goes on but the draws, which are other ones.
 */
#include <stdlib.h>
#include <string.h>

#include "exchange.h"
#include "lda.h"

/* ---- topics of a row, packed into numbers of 32 bits ---- */

struct packed {
    uint64_t *begin; /* of each row's numbers */
    int32_t *number;
};

static void free_packed(struct packed *p)
{
    free(p->begin);
    free(p->number);
}

/* Room for rows that have the topics from begin[i] to begin[i + 1] - 1, in bytes each. */
static int open_packed(const uint64_t *begin, uint64_t rows, size_t bytes, struct packed *p)
{
    *p = (struct packed){0};
    TR_TRY(TR_NEW(&p->begin, rows + 1));
    for (uint64_t i = 0; i < rows; i++)
        p->begin[i + 1] = p->begin[i] + ((begin[i + 1] - begin[i]) * bytes + 3) / 4;
    return TR_NEW(&p->number, p->begin[rows]);
}

static void pack(const uint64_t *begin, uint64_t rows, size_t bytes, const uint16_t *topic, struct packed *p)
{
    for (uint64_t i = 0; i < rows; i++) {
        uint8_t *to = (uint8_t *)(p->number + p->begin[i]);
        size_t n = (size_t)(begin[i + 1] - begin[i]);
        const uint16_t *from = topic + begin[i];
        if (bytes == 2) memcpy(to, from, n * sizeof *from);
        for (size_t k = 0; k < n && bytes == 1; k++) to[k] = (uint8_t)from[k];
    }
}

static void unpack(const uint64_t *begin, uint64_t rows, size_t bytes, const struct packed *p,
                   uint16_t *topic)
{
    for (uint64_t i = 0; i < rows; i++) {
        const uint8_t *from = (const uint8_t *)(p->number + p->begin[i]);
        size_t n = (size_t)(begin[i + 1] - begin[i]);
        uint16_t *to = topic + begin[i];
        if (bytes == 2) memcpy(to, from, n * sizeof *to);
        for (size_t k = 0; k < n && bytes == 1; k++) to[k] = from[k];
    }
}

static int keep_packed(struct tr_lda *m, tr_snapshot *snapshot, const char *name, const uint64_t *begin,
                       uint16_t *topic)
{
    struct packed p;
    uint64_t rows = tr_lda_documents(m->sampler);
    size_t bytes = m->layout.topics <= 256 ? 1 : 2;
    int status = open_packed(begin, rows, bytes, &p);
    if (status == TR_OK && !tr_snapshot_restores(snapshot)) pack(begin, rows, bytes, topic, &p);
    if (status == TR_OK)
        status = tr_snapshot_lists(snapshot, name, TR_I32, m->numbers_of_documents,
                                   tr_lda_numbers(m->sampler), 0, rows, p.begin, p.number);
    if (status == TR_OK && tr_snapshot_restores(snapshot)) unpack(begin, rows, bytes, &p, topic);
    free_packed(&p);
    return status;
}

/* ---- documents ---- */

/* What is kept of this worker's documents, as it travels. */
struct documents {
    uint64_t *token, *pair; /* where each document's tokens, and topics in order, begin */
    uint16_t *topic, *order;
    int32_t *topics; /* in order, of each */
};

static void free_documents(struct documents *d)
{
    void *arrays[] = {d->token, d->pair, d->topic, d->order, d->topics};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) free(arrays[i]);
}

static int open_documents(struct tr_lda *m, struct documents *d)
{
    uint64_t n = tr_lda_documents(m->sampler);
    TR_TRY(TR_NEW(&d->token, n + 1));
    TR_TRY(TR_NEW(&d->pair, n + 1));
    TR_TRY(TR_NEW(&d->topics, n));
    for (uint64_t i = 0; i < n; i++) d->token[i + 1] = d->token[i] + tr_lda_length(m->sampler, i);
    return TR_NEW(&d->topic, d->token[n]);
}

static int open_order(uint64_t n, struct documents *d)
{
    for (uint64_t i = 0; i < n; i++) d->pair[i + 1] = d->pair[i] + (uint64_t)d->topics[i];
    return TR_NEW(&d->order, d->pair[n]);
}

static int list_documents(struct tr_lda *m, tr_snapshot *snapshot, struct documents *d)
{
    uint64_t n = tr_lda_documents(m->sampler);
    bool restores = tr_snapshot_restores(snapshot);
    TR_TRY(open_documents(m, d));
    if (!restores) TR_TRY(tr_lda_take_topics(m->sampler, d->token, d->topic));
    TR_TRY(keep_packed(m, snapshot, "z", d->token, d->topic));
    for (uint64_t i = 0; i < n && !restores; i++) d->topics[i] = (int32_t)tr_lda_order(m->sampler, i, NULL);
    TR_TRY(tr_snapshot_rows(snapshot, "topics_of_documents", TR_I32, m->numbers_of_documents, 1,
                            tr_lda_numbers(m->sampler), 0, n, d->topics));
    TR_TRY(open_order(n, d));
    for (uint64_t i = 0; i < n && !restores; i++) tr_lda_order(m->sampler, i, d->order + d->pair[i]);
    TR_TRY(keep_packed(m, snapshot, "order_in_documents", d->pair, d->order));
    if (!restores) return TR_OK;
    TR_TRY(tr_lda_give_topics(m->sampler, d->token, d->topic));
    return tr_lda_recount_in_order(m->sampler, d->pair, d->order);
}

static int keep_documents(struct tr_lda *m, tr_snapshot *snapshot)
{
    struct documents d = {0};
    int status = list_documents(m, snapshot, &d);
    free_documents(&d);
    return status;
}

/* ---- words: with one group ---- */

/* A topic and a count take a number, or two where a word has many tokens. */
static size_t numbers_of(const struct tr_lda *m, uint64_t place, int32_t pairs)
{
    return (size_t)pairs * (m->layout.kind[place] == TR_LDA_WIDE ? 2 : 1);
}

struct words {
    int32_t *pairs; /* of each word */
    uint64_t *begin;
    uint32_t *number;
};

static void write_pairs(const struct tr_lda_count *count, size_t n, bool wide, uint32_t *number)
{
    for (size_t i = 0; i < n; i++) {
        if (!wide) number[i] = count[i].topic | count[i].count << 16;
        else number[2 * i] = count[i].topic, number[2 * i + 1] = count[i].count;
    }
}

static void read_pairs(const uint32_t *number, size_t n, bool wide, struct tr_lda_count *count)
{
    for (size_t i = 0; i < n; i++)
        count[i] = wide ? (struct tr_lda_count){number[2 * i], number[2 * i + 1]}
                        : (struct tr_lda_count){number[i] & 0xffff, number[i] >> 16};
}

static int open_words(const struct tr_lda *m, struct words *w)
{
    TR_TRY(TR_NEW(&w->begin, m->n_first_words + 1));
    for (size_t i = 0; i < m->n_first_words; i++) {
        if (w->pairs[i] < 0 || (uint32_t)w->pairs[i] > m->layout.topics)
            return tr_fail(TR_ERR_DATA, "word %llu has %d topics", (unsigned long long)m->first_words[i] + 1,
                           w->pairs[i]);
        w->begin[i + 1] = w->begin[i] + numbers_of(m, m->layout.place[m->first_words[i]], w->pairs[i]);
    }
    return TR_NEW(&w->number, w->begin[m->n_first_words]);
}

static int take_words(struct tr_lda *m, const tr_block *block, struct words *w)
{
    const struct tr_lda_layout *l = &m->layout;
    for (size_t i = 0; i < m->n_first_words; i++)
        w->pairs[i] = (int32_t)tr_lda_row_pairs(l, block->memory, l->place[m->first_words[i]], m->counts[0]);
    TR_TRY(open_words(m, w));
    for (size_t i = 0; i < m->n_first_words; i++) {
        uint64_t place = l->place[m->first_words[i]];
        size_t n = tr_lda_row_pairs(l, block->memory, place, m->counts[0]);
        write_pairs(m->counts[0], n, l->kind[place] == TR_LDA_WIDE, w->number + w->begin[i]);
    }
    return TR_OK;
}

static int give_words(struct tr_lda *m, const tr_block *block, const struct words *w)
{
    const struct tr_lda_layout *l = &m->layout;
    for (size_t i = 0; i < m->n_first_words; i++) {
        uint64_t place = l->place[m->first_words[i]];
        read_pairs(w->number + w->begin[i], (size_t)w->pairs[i], l->kind[place] == TR_LDA_WIDE, m->counts[0]);
        TR_TRY(tr_lda_row_write(l, block->memory, place, m->counts[0], (size_t)w->pairs[i]));
    }
    return TR_OK;
}

static int list_words(struct tr_lda *m, tr_snapshot *snapshot, const tr_block *block, struct words *w)
{
    size_t n = m->n_first_words;
    bool restores = tr_snapshot_restores(snapshot);
    TR_TRY(TR_NEW(&w->pairs, n));
    if (!restores) TR_TRY(take_words(m, block, w));
    TR_TRY(
        tr_snapshot_rows(snapshot, "topics_of_words", TR_I32, m->words, 1, m->first_words, 0, n, w->pairs));
    if (restores) TR_TRY(open_words(m, w));
    TR_TRY(tr_snapshot_lists(snapshot, "counts_of_words", TR_I32, m->words, m->first_words, 0, n, w->begin,
                             w->number));
    return restores ? give_words(m, block, w) : TR_OK;
}

static int keep_words(struct tr_lda *m, tr_snapshot *snapshot)
{
    struct words w = {0};
    tr_block block;
    TR_TRY(tr_rotation_look(m->rotation, &block));
    TR_TRY(tr_lda_list_words(m, block.number));
    int status = list_words(m, snapshot, &block, &w);
    free(w.pairs);
    free(w.begin);
    free(w.number);
    return status;
}

/* ---- what is one for all ---- */

/* All members have the same totals; with several groups they are summed before each sweep. */
static int keep_totals(const tr_worker *me, struct tr_lda *m, tr_snapshot *snapshot)
{
    size_t topics = m->layout.topics, n = me->worker == 0 || tr_snapshot_restores(snapshot) ? topics : 0;
    TR_TRY(tr_snapshot_rows(snapshot, "totals", TR_I64, topics, 1, NULL, 0, n, m->total));
    if (tr_snapshot_restores(snapshot)) tr_lda_set_totals(m->sampler, m->total);
    return TR_OK;
}

static int keep_priors(const tr_worker *me, struct tr_lda *m, tr_snapshot *snapshot)
{
    size_t topics = m->layout.topics, n = me->worker == 0 || tr_snapshot_restores(snapshot);
    TR_TRY(tr_snapshot_rows(snapshot, "alpha", TR_F64, topics, 1, NULL, 0, n * topics, m->alpha));
    TR_TRY(tr_snapshot_rows(snapshot, "beta", TR_F64, 1, 1, NULL, 0, n, &m->beta));
    if (tr_snapshot_restores(snapshot)) tr_lda_priors(m->sampler, m->alpha, m->beta);
    return TR_OK;
}

static int keep_draws(const tr_worker *me, struct tr_lda *m, tr_snapshot *snapshot)
{
    size_t bytes;
    bool found;
    void *state = tr_lda_random(m->sampler, &bytes);
    TR_TRY(tr_snapshot_own(snapshot, "draws", state, bytes, &found));
    if (tr_snapshot_restores(snapshot) && !found)
        tr_lda_reseed(m->sampler, (uint64_t)me->worker, (uint64_t)me->clock + 1);
    return TR_OK;
}

/* Histograms of documents in the table are used at the clock after they were told, if at all: then they are those of the
 * documents as they are. Otherwise all tell theirs anew. */
static int keep_histograms(const tr_worker *me, struct tr_lda *m, tr_snapshot *snapshot)
{
    struct tr_lda_histogram lengths = {0};
    if (!m->histograms || !tr_snapshot_restores(snapshot)) return TR_OK;
    bool used = m->groups_before > 1 && tr_lda_fits_before(m, me->clock);
    if (!used) tr_table_clear(m->histograms);
    if (!used || me->worker < 0) return TR_OK;
    int status = tr_lda_count_documents(m, &m->told, &lengths);
    tr_lda_histogram_close(&lengths);
    return status;
}

static int keep_of_worker(tr_worker *me, struct tr_lda *m, int64_t groups, tr_snapshot *snapshot)
{
    TR_TRY(keep_documents(m, snapshot));
    TR_TRY(keep_priors(me, m, snapshot));
    TR_TRY(keep_draws(me, m, snapshot));
    if (groups > 1) return TR_OK;
    TR_TRY(keep_words(m, snapshot));
    return keep_totals(me, m, snapshot);
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
