#include "lda.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- blocks ---- */

struct pull {
    struct tr_lda *m;
    tr_key *again; /* words whose rows arrived in inconsistent parts */
    size_t n_again;
};

/* Stores a row in its block, which has room for the tokens of the word only. Without BSP a row may arrive in parts, and
 * tokens of other workers may have changed their topic in between, so that it has too many: it is pulled again. */
static int store_row(void *state, const tr_row *row)
{
    struct pull *p = state;
    struct tr_lda *m = p->m;
    const int32_t *value = row->value;
    uint64_t tokens = 0;
    size_t n = 0;
    for (size_t i = 0; i < row->n; i++) {
        if (value[i] <= 0) continue; /* inconsistent parts may also give negative counts */
        m->counts[0][n++] = (struct tr_lda_count){row->column[i], (uint32_t)value[i]};
        tokens += (uint64_t)value[i];
    }
    uint64_t place = m->layout.place[row->key];
    if (tr_in_lockstep(m->tr) || tokens <= m->layout.tokens[row->key])
        return tr_lda_row_write(&m->layout, tr_lda_memory_of(m, place), place, m->counts[0], n);
    p->again[p->n_again++] = row->key;
    return TR_OK;
}

void *tr_lda_memory_of(const struct tr_lda *m, uint64_t place)
{
    int d = 0;
    while (place >= m->layout.first[m->block[d].number + 1]) d++;
    return m->block[d].memory;
}

int tr_lda_list_words(struct tr_lda *m)
{
    const struct tr_lda_layout *l = &m->layout;
    uint64_t first = l->first[m->block[0].number], end = l->first[m->block[0].number + m->depth];
    if (m->first_words) return TR_OK;
    TR_TRY(TR_NEW(&m->first_words, end - first));
    for (uint64_t w = 0; w < l->words; w++)
        if (l->place[w] >= first && l->place[w] < end && l->tokens[w] > 0)
            m->first_words[m->n_first_words++] = w;
    return TR_OK;
}

int tr_lda_pull_blocks(struct tr_lda *m, bool copy)
{
    enum { TRIES = 10000 };
    TR_FREED tr_key *again = NULL;
    TR_TRY(tr_lda_list_words(m));
    TR_TRY(TR_NEW(&again, m->n_first_words));
    struct pull p = {.m = m, .again = again};
    TR_TRY(tr_rows_pull(m->table, m->first_words, m->n_first_words, store_row, &p));
    for (int i = 0; p.n_again > 0; i++) {
        tr_key key = again[--p.n_again]; /* a single row arrives complete once its update is */
        if (i == TRIES)
            return tr_fail(TR_ERR_INTERNAL, "word %" PRIu64 " has more tokens than there are", key + 1);
        TR_TRY(tr_rows_pull(m->table, &key, 1, store_row, &p));
    }
    for (int d = 0; copy && d < m->depth; d++) {
        size_t bytes = m->layout.bytes[m->block[d].number];
        memcpy((char *)m->block[d].memory + bytes, m->block[d].memory, bytes);
    }
    return TR_OK;
}

int tr_lda_push_block(struct tr_lda *m, const tr_block *block, bool copied)
{
    const struct tr_lda_layout *l = &m->layout;
    const char *now = block->memory, *before = now + l->bytes[block->number];
    for (uint64_t p = l->first[block->number]; p < l->first[block->number + 1]; p++) {
        if (l->kind[p] == TR_LDA_EMPTY) continue;
        size_t n_now = tr_lda_collect(tr_lda_row(l, now, p), m->counts[0]);
        size_t n_before = copied ? tr_lda_collect(tr_lda_row(l, before, p), m->counts[1]) : 0;
        tr_row row = {.key = l->word[p], .column = m->column, .value = m->value};
        /* the difference of two lists in ascending order of topics */
        const struct tr_lda_count *x = m->counts[0], *y = m->counts[1];
        for (size_t i = 0, j = 0; i < n_now || j < n_before;) {
            uint32_t a = i < n_now ? x[i].topic : UINT32_MAX, b = j < n_before ? y[j].topic : UINT32_MAX,
                     k = a < b ? a : b;
            int64_t by = (a == k ? (int64_t)x[i++].count : 0) - (b == k ? (int64_t)y[j++].count : 0);
            m->column[row.n] = k;
            m->value[row.n] = (int32_t)by;
            row.n += by != 0;
        }
        if (row.n > 0) TR_TRY(tr_rows_push(m->table, &row, 1));
    }
    return TR_OK;
}

/* ---- histograms ---- */

int tr_lda_count_documents(struct tr_lda *m, struct tr_lda_histogram *h)
{
    size_t topics = m->layout.topics;
    TR_TRY(tr_lda_histogram_open(topics + 1, h));
    for (uint64_t d = 0; d < m->sampler->documents; d++) {
        for (struct tr_lda_cursor c = tr_lda_document(m->sampler, d); tr_lda_next(&c);)
            TR_TRY(tr_lda_histogram_add(h, c.topic, c.count, 1));
        TR_TRY(tr_lda_histogram_add(h, topics, m->sampler->length[d], 1));
    }
    return tr_lda_histogram_sort(h);
}

/* Adds the bins of a row to the table (sign 1) or subtracts them (sign -1). */
static int push_bins(struct tr_lda *m, const struct tr_lda_histogram *h, size_t row, int sign)
{
    enum { BINS = 256 };
    uint32_t column[BINS];
    int32_t value[BINS];
    tr_row update = {.key = row, .column = column, .value = value};
    for (uint64_t i = h->begin[row]; i < h->begin[row + 1];) {
        for (update.n = 0; i < h->begin[row + 1] && update.n < BINS; i++, update.n++) {
            column[update.n] = h->bin[i].count;
            value[update.n] = sign * (int32_t)h->bin[i].times;
        }
        TR_TRY(tr_rows_push(m->histograms, &update, 1));
    }
    return TR_OK;
}

/* The last row, lengths of documents, does not change and is pushed once. */
int tr_lda_push_documents(struct tr_lda *m)
{
    struct tr_lda_histogram now = {0};
    bool first = m->sent.rows == 0;
    int status = tr_lda_count_documents(m, &now);
    for (size_t k = 0; k < now.rows - !first && status == TR_OK; k++) {
        status = push_bins(m, &now, k, 1);
        if (status == TR_OK && !first) status = push_bins(m, &m->sent, k, -1);
    }
    tr_lda_histogram_close(&m->sent);
    m->sent = now;
    return status;
}

static int store_bins(void *state, const tr_row *row)
{
    const int32_t *value = row->value;
    for (size_t i = 0; i < row->n; i++) /* without BSP a part of an update may be missing */
        if (value[i] > 0) TR_TRY(tr_lda_histogram_add(state, row->key, row->column[i], (uint32_t)value[i]));
    return TR_OK;
}

int tr_lda_pull_documents(struct tr_lda *m, const tr_worker *me, struct tr_lda_histogram *h)
{
    size_t topics = m->layout.topics, n = 0;
    TR_FREED tr_key *keys = NULL;
    TR_TRY(tr_lda_histogram_open(topics + 1, h));
    TR_TRY(TR_NEW(&keys, topics + 1));
    for (size_t k = (size_t)me->member; k < topics; k += (size_t)me->group_size) keys[n++] = k;
    if (me->member == 0) keys[n++] = topics;
    TR_TRY(tr_rows_pull(m->histograms, keys, n, store_bins, h));
    return tr_lda_histogram_sort(h);
}

/* ---- evaluation ---- */

struct likelihood {
    struct tr_lda_rises rises;
    double *row; /* sum per row: rows arrive in any order, but the total must be reproducible */
};

static int add_row(void *state, const tr_row *row)
{
    struct likelihood *l = state;
    const int32_t *value = row->value;
    for (size_t i = 0; i < row->n; i++) /* without BSP a part of an update may be missing */
        if (value[i] > 0) l->row[row->place] += tr_lda_rise(&l->rises, (uint32_t)value[i]);
    return TR_OK;
}

int tr_lda_log_table(struct tr_lda *m, const tr_worker *me, double *sum)
{
    struct likelihood l;
    TR_FREED tr_key *keys = NULL;
    TR_FREED double *row = NULL;
    size_t n = 0, capacity = 0;
    for (uint64_t p = 0; p < m->layout.words; p++) { /* this worker's part, which is on few servers */
        if (tr_lda_layout_part(&m->layout, p, (uint32_t)me->workers) != (uint32_t)me->worker) continue;
        TR_TRY(TR_GROW(&keys, &capacity, n + 1));
        keys[n++] = m->layout.word[p];
    }
    TR_TRY(TR_NEW(&row, n));
    l.row = row;
    tr_lda_rises_make(m->beta, &l.rises);
    TR_TRY(tr_rows_pull(m->table, keys, n, add_row, &l));
    for (size_t i = 0; i < n; i++) *sum += row[i];
    return TR_OK;
}

/* ---- outside of stages ---- */

static int read_length(void *state, const tr_row *row)
{
    ((struct tr_lda_saved *)state)->begin[row->place + 1] = row->n;
    return TR_OK;
}

static int read_row(void *state, const tr_row *row)
{
    struct tr_lda_saved *s = state;
    const int32_t *value = row->value;
    uint64_t at = s->begin[row->place];
    if (row->n != s->begin[row->place + 1] - at)
        return tr_fail(TR_ERR_INTERNAL, "word %" PRIu64 " changed while the model was read", row->key + 1);
    for (size_t i = 0; i < row->n; i++) {
        if (value[i] < 0)
            return tr_fail(TR_ERR_INTERNAL, "word %" PRIu64 " has a count below 0", row->key + 1);
        s->topic[at + i] = (uint16_t)row->column[i];
        s->count[at + i] = (uint32_t)value[i];
    }
    return TR_OK;
}

static int read_total(void *state, const tr_row *row)
{
    memcpy(&((struct tr_lda_saved *)state)->total[row->key], row->value, sizeof(int64_t));
    return TR_OK;
}

int tr_lda_read_tables(struct tr_lda *m, const tr_key *words, size_t n, struct tr_lda_saved *s)
{
    TR_FREED tr_key *keys = NULL;
    size_t most = tr_max_size(m->words, m->topics);
    tr_lda_saved_close(s);
    TR_TRY(TR_NEW(&keys, most));
    for (size_t i = 0; i < most; i++) keys[i] = i;
    if (!words) words = keys;
    TR_TRY(TR_NEW(&s->begin, n + 1));
    TR_TRY(tr_rows_pull(m->table, words, n, read_length, s));
    for (size_t i = 0; i < n; i++) s->begin[i + 1] += s->begin[i];
    TR_TRY(TR_NEW(&s->topic, s->begin[n]));
    TR_TRY(TR_NEW(&s->count, s->begin[n]));
    TR_TRY(tr_rows_pull(m->table, words, n, read_row, s));
    TR_TRY(TR_NEW(&s->total, m->topics));
    return tr_rows_pull(m->totals, keys, m->topics, read_total, s);
}

int tr_lda_complete_data(struct tr_lda *m, const tr_data *data, struct tr_lda_completion *sum)
{
    const tr_batch *b = &data->rows;
    struct tr_lda_saved s = {0};
    uint64_t seed;
    TR_FREED float *half = NULL;
    TR_TRY(tr_job_integer(m->job, "seed", &seed));
    TR_TRY(TR_NEW(&half, 2 * data->n_keys)); /* a document lists each word at most once */
    int status = tr_lda_read_tables(m, data->keys, data->n_keys, &s);
    if (status == TR_OK) status = tr_lda_saved_phi(m, &s);
    for (size_t d = 0; d < b->n && status == TR_OK; d++) {
        uint64_t first = b->begin[d];
        tr_lda_complete(&s.phi, seed, data->row[d], b->begin[d + 1] - first, b->column + first,
                        b->value ? b->value + first : NULL, half, half + data->n_keys, sum);
    }
    tr_lda_saved_close(&s);
    return status;
}
