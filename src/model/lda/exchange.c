#include "exchange.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- blocks ---- */

struct pull {
    struct tr_lda *m;
    void *block;
    tr_key *again; /* words whose rows came in parts that do not fit together */
    size_t n_again;
};

/* Rows have just the room that their word needs. Without BSP a row may come in parts, and others' tokens may have
 * changed topics between two of them, so that more are found than there are. */
static bool is_torn(const struct tr_lda *m, tr_key word, uint64_t tokens)
{
    return !tr_in_lockstep(m->tr) && tokens > m->tokens_of[word];
}

static int take_row(void *state, const tr_row *row)
{
    struct pull *p = state;
    struct tr_lda *m = p->m;
    const int32_t *value = row->value;
    uint64_t tokens = 0;
    size_t n = 0;
    for (size_t i = 0; i < row->n; i++) {
        if (value[i] <= 0) continue; /* torn in the other direction: below 0 is no count */
        m->counts[0][n++] = (struct tr_lda_count){row->column[i], (uint32_t)value[i]};
        tokens += (uint64_t)value[i];
    }
    if (is_torn(m, row->key, tokens)) {
        p->again[p->n_again++] = row->key;
        return TR_OK;
    }
    return tr_lda_row_write(&m->layout, p->block, m->layout.place[row->key], m->counts[0], n);
}

/* A row that is asked for alone comes whole, once what is being added to it is. */
static int take_torn_rows(struct pull *p)
{
    enum { TRIES = 10000 };
    for (int i = 0; p->n_again > 0; i++) {
        tr_key key = p->again[--p->n_again];
        if (i == TRIES)
            return tr_fail(TR_ERR_INTERNAL, "word %" PRIu64 " has more tokens than there are", key + 1);
        TR_TRY(tr_rows_pull(p->m->table, &key, 1, take_row, p));
    }
    return TR_OK;
}

static int by_key(const void *x, const void *y)
{
    tr_key a = *(const tr_key *)x, b = *(const tr_key *)y;
    return (a > b) - (a < b);
}

int tr_lda_list_words(struct tr_lda *m, int number)
{
    const struct tr_lda_layout *l = &m->layout;
    if (m->first_words) return TR_OK;
    TR_TRY(TR_NEW(&m->first_words, l->first[number + 1] - l->first[number]));
    for (uint64_t p = l->first[number]; p < l->first[number + 1]; p++)
        if (l->kind[p] != TR_LDA_EMPTY) m->first_words[m->n_first_words++] = l->word[p];
    if (m->n_first_words > 0) qsort(m->first_words, m->n_first_words, sizeof(tr_key), by_key);
    return TR_OK;
}

int tr_lda_pull_block(struct tr_lda *m, const tr_block *block, bool copy)
{
    struct pull p = {.m = m, .block = block->memory};
    TR_TRY(tr_lda_list_words(m, block->number));
    TR_TRY(TR_NEW(&p.again, m->n_first_words));
    int status = tr_rows_pull(m->table, m->first_words, m->n_first_words, take_row, &p);
    if (status == TR_OK) status = take_torn_rows(&p);
    size_t bytes = m->layout.bytes[block->number];
    if (status == TR_OK && copy) memcpy((char *)block->memory + bytes, block->memory, bytes);
    free(p.again);
    return status;
}

/* now - before, of two ascending lists. Returns how many differ. */
static size_t subtract(struct tr_lda *m, size_t n_now, size_t n_before)
{
    const struct tr_lda_count *now = m->counts[0], *before = m->counts[1];
    size_t n = 0;
    for (size_t i = 0, j = 0; i < n_now || j < n_before;) {
        uint32_t k = i == n_now                       ? before[j].topic
                     : j == n_before                  ? now[i].topic
                     : now[i].topic < before[j].topic ? now[i].topic
                                                      : before[j].topic;
        int64_t by = 0;
        if (i < n_now && now[i].topic == k) by += now[i++].count;
        if (j < n_before && before[j].topic == k) by -= before[j++].count;
        m->column[n] = k;
        m->value[n] = (int32_t)by;
        n += by != 0;
    }
    return n;
}

int tr_lda_push_block(struct tr_lda *m, const tr_block *block, bool copied)
{
    const struct tr_lda_layout *l = &m->layout;
    const char *now = block->memory, *before = now + l->bytes[block->number];
    for (uint64_t p = l->first[block->number]; p < l->first[block->number + 1]; p++) {
        if (l->kind[p] == TR_LDA_EMPTY) continue;
        size_t n_now = tr_lda_row_read(l, now, p, m->counts[0]);
        size_t n_before = copied ? tr_lda_row_read(l, before, p, m->counts[1]) : 0;
        tr_row row = {.key = l->word[p], .column = m->column, .value = m->value};
        row.n = subtract(m, n_now, n_before);
        if (row.n > 0) TR_TRY(tr_rows_push(m->table, &row, 1));
    }
    return TR_OK;
}

/* ---- histograms ---- */

static int tally_topics(struct tr_lda *m, struct tr_lda_tally *tally)
{
    uint64_t documents = tr_lda_documents(m->sampler);
    for (uint64_t d = 0; d < documents; d++) {
        size_t n = tr_lda_document(m->sampler, d, m->counts[0]);
        for (size_t i = 0; i < n; i++)
            TR_TRY(tr_lda_tally_add(tally, m->counts[0][i].topic, m->counts[0][i].count));
    }
    return TR_OK;
}

static int tally_lengths(struct tr_lda *m, struct tr_lda_tally *tally)
{
    uint64_t documents = tr_lda_documents(m->sampler);
    for (uint64_t d = 0; d < documents; d++)
        TR_TRY(tr_lda_tally_add(tally, 0, (uint32_t)tr_lda_length(m->sampler, d)));
    return TR_OK;
}

static int count(struct tr_lda *m, size_t rows, int (*add)(struct tr_lda *m, struct tr_lda_tally *tally),
                 struct tr_lda_histogram *histogram)
{
    struct tr_lda_tally tally;
    TR_TRY(tr_lda_tally_open(rows, &tally));
    int status = add(m, &tally);
    if (status == TR_OK) status = tr_lda_tally_take(&tally, histogram);
    tr_lda_tally_close(&tally);
    return status;
}

int tr_lda_count_documents(struct tr_lda *m, struct tr_lda_histogram *topics,
                           struct tr_lda_histogram *lengths)
{
    TR_TRY(count(m, m->layout.topics, tally_topics, topics));
    return count(m, 1, tally_lengths, lengths);
}

/* ---- … of all workers ---- */

/* Adds bins to a row of the table, or takes them away. */
static int push_bins(struct tr_lda *m, size_t to, const struct tr_lda_histogram *h, size_t row, int sign)
{
    enum { BINS = 256 };
    uint32_t column[BINS];
    int32_t value[BINS];
    tr_row update = {.key = to, .column = column, .value = value};
    for (uint64_t i = h->begin[row]; i < h->begin[row + 1];) {
        for (update.n = 0; i < h->begin[row + 1] && update.n < BINS; i++, update.n++) {
            column[update.n] = h->bin[i].count;
            value[update.n] = sign * (int32_t)h->bin[i].times;
        }
        TR_TRY(tr_rows_push(m->histograms, &update, 1));
    }
    return TR_OK;
}

/* The lengths never change: they are told once. */
int tr_lda_tell_documents(struct tr_lda *m)
{
    struct tr_lda_histogram topics = {0}, lengths = {0};
    bool first = m->told.rows == 0;
    int status = tr_lda_count_documents(m, &topics, &lengths);
    if (status == TR_OK && first) status = push_bins(m, topics.rows, &lengths, 0, 1);
    for (size_t k = 0; k < topics.rows && status == TR_OK; k++) {
        status = push_bins(m, k, &topics, k, 1);
        if (status == TR_OK && !first) status = push_bins(m, k, &m->told, k, -1);
    }
    tr_lda_histogram_close(&lengths);
    tr_lda_histogram_close(&m->told);
    m->told = topics;
    return status;
}

/* Rows in the order in which they arrive. */
struct arriving {
    struct tr_lda_histogram *topics, *lengths;
    struct tr_lda_bin **row; /* topics + 1; each to be freed */
    size_t *n;
};

static int take_bins(void *state, const tr_row *row)
{
    struct arriving *a = state;
    const int32_t *value = row->value;
    struct tr_lda_bin *bin;
    TR_TRY(TR_NEW(&bin, row->n));
    a->row[row->key] = bin;
    for (size_t i = 0; i < row->n; i++) /* without BSP an update may be on its way in parts */
        if (value[i] > 0) bin[a->n[row->key]++] = (struct tr_lda_bin){row->column[i], (uint32_t)value[i]};
    return TR_OK;
}

/* One histogram of the rows first .. first + rows - 1. */
static int join(const struct arriving *a, size_t first, size_t rows, struct tr_lda_histogram *histogram)
{
    struct tr_lda_histogram h = {.rows = rows};
    TR_TRY(TR_NEW(&h.begin, rows + 1));
    for (size_t i = 0; i < rows; i++) h.begin[i + 1] = h.begin[i] + a->n[first + i];
    int status = TR_NEW(&h.bin, h.begin[rows]);
    for (size_t i = 0; i < rows && status == TR_OK; i++)
        if (a->n[first + i] > 0)
            memcpy(h.bin + h.begin[i], a->row[first + i], a->n[first + i] * sizeof *h.bin);
    if (status == TR_OK) *histogram = h;
    else tr_lda_histogram_close(&h);
    return status;
}

static int ask(struct tr_lda *m, const tr_worker *me, struct arriving *a, tr_key *keys)
{
    size_t topics = m->layout.topics, n = 0, members = (size_t)me->group_size;
    for (size_t k = (size_t)me->member; k < topics; k += members) keys[n++] = k;
    if (me->member == 0) keys[n++] = topics;
    TR_TRY(tr_rows_pull(m->histograms, keys, n, take_bins, a));
    TR_TRY(join(a, 0, topics, a->topics));
    return join(a, topics, 1, a->lengths);
}

int tr_lda_ask_documents(struct tr_lda *m, const tr_worker *me, struct tr_lda_histogram *topics,
                         struct tr_lda_histogram *lengths)
{
    struct arriving a = {.topics = topics, .lengths = lengths};
    size_t rows = (size_t)m->layout.topics + 1;
    tr_key *keys = NULL;
    int status = TR_NEW(&a.row, rows);
    if (status == TR_OK) status = TR_NEW(&a.n, rows);
    if (status == TR_OK) status = TR_NEW(&keys, rows);
    if (status == TR_OK) status = ask(m, me, &a, keys);
    for (size_t k = 0; a.row && k < rows; k++) free(a.row[k]);
    free(a.row);
    free(a.n);
    free(keys);
    return status;
}

/* ---- evaluation ---- */

enum { TABLED = 1024, AT_ONCE = 1 << 14 };

struct likelihood {
    double rise[TABLED]; /* log Γ(n + β) - log Γ(β) for small n */
    double beta, at_zero;
    double row[AT_ONCE]; /* of a piece: they arrive in any order, and sums are to repeat */
    tr_key key[AT_ONCE];
};

static int add_row(void *state, const tr_row *row)
{
    struct likelihood *l = state;
    const int32_t *value = row->value;
    double sum = 0;
    for (size_t i = 0; i < row->n; i++) {
        if (value[i] <= 0) continue; /* without BSP an update may be on its way in parts */
        sum += value[i] < TABLED ? l->rise[value[i]] : lgamma(value[i] + l->beta) - l->at_zero;
    }
    l->row[row->place] = sum;
    return TR_OK;
}

static int add_rows(struct tr_lda *m, struct likelihood *l, uint64_t first, uint64_t end, double *sum)
{
    l->beta = m->beta;
    l->at_zero = lgamma(m->beta);
    for (int n = 1; n < TABLED; n++) l->rise[n] = l->rise[n - 1] + log(n - 1 + m->beta);
    while (first < end) {
        size_t n = 0;
        for (; first < end && n < AT_ONCE; first++) l->key[n++] = first;
        TR_TRY(tr_rows_pull(m->table, l->key, n, add_row, l));
        for (size_t i = 0; i < n; i++) *sum += l->row[i];
    }
    return TR_OK;
}

int tr_lda_log_table(struct tr_lda *m, const tr_worker *me, double *sum)
{
    struct likelihood *l;
    uint64_t parts = (uint64_t)me->workers, part = (uint64_t)me->worker;
    uint64_t first = m->words / parts * part + tr_min_size(part, m->words % parts);
    uint64_t end = first + m->words / parts + (part < m->words % parts);
    TR_TRY(TR_NEW(&l, 1));
    int status = add_rows(m, l, first, end, sum);
    free(l);
    return status;
}

/* ---- outside of stages ---- */

struct gathering {
    uint64_t *begin;
    uint16_t *topic; /* NULL: lengths are wanted */
    uint32_t *count;
    int64_t *total;
};

static int gather_row(void *state, const tr_row *row)
{
    struct gathering *g = state;
    const int32_t *value = row->value;
    uint64_t at = g->begin[row->place];
    if (!g->topic) g->begin[row->place + 1] = row->n;
    for (size_t i = 0; g->topic && i < row->n; i++) {
        g->topic[at + i] = (uint16_t)row->column[i];
        g->count[at + i] = (uint32_t)value[i];
    }
    return TR_OK;
}

static int gather_total(void *state, const tr_row *row)
{
    struct gathering *g = state;
    memcpy(&g->total[row->key], row->value, sizeof *g->total);
    return TR_OK;
}

static int gather_rows(struct tr_lda *m, const tr_key *keys, size_t n, struct gathering *g)
{
    TR_TRY(TR_NEW(&g->begin, n + 1));
    TR_TRY(tr_rows_pull(m->table, keys, n, gather_row, g));
    for (size_t i = 0; i < n; i++) g->begin[i + 1] += g->begin[i];
    TR_TRY(TR_NEW(&g->topic, g->begin[n]));
    TR_TRY(TR_NEW(&g->count, g->begin[n]));
    return tr_rows_pull(m->table, keys, n, gather_row, g);
}

static int gather_totals(struct tr_lda *m, struct gathering *g)
{
    tr_key *keys;
    size_t topics = m->layout.topics;
    TR_TRY(TR_NEW(&keys, topics));
    for (size_t k = 0; k < topics; k++) keys[k] = k;
    int status = TR_NEW(&g->total, topics);
    if (status == TR_OK) status = tr_rows_pull(m->totals, keys, topics, gather_total, g);
    free(keys);
    return status;
}

static int complete_rows(struct tr_lda *m, const tr_data *data, const struct gathering *g,
                         struct tr_lda_completion *sum)
{
    struct tr_lda_phi phi;
    const tr_batch *b = &data->rows;
    float *half;
    TR_TRY(tr_lda_phi_open(m->layout.topics, m->words, g->total, m->alpha, m->beta, g->begin, g->topic,
                           g->count, &phi));
    int status = TR_NEW(&half, 2 * data->n_keys); /* a document has each word once at most */
    for (size_t d = 0; d < b->n && status == TR_OK; d++) {
        uint64_t first = b->begin[d];
        tr_lda_complete(&phi, (uint64_t)tr_job_number(m->job, "seed"), data->row[d], b->begin[d + 1] - first,
                        b->column + first, b->value ? b->value + first : NULL, half, half + data->n_keys,
                        sum);
    }
    free(half);
    tr_lda_phi_close(&phi);
    return status;
}

int tr_lda_complete_data(struct tr_lda *m, const tr_data *data, struct tr_lda_completion *sum)
{
    struct gathering g = {0};
    int status = gather_rows(m, data->keys, data->n_keys, &g);
    if (status == TR_OK) status = gather_totals(m, &g);
    if (status == TR_OK) status = complete_rows(m, data, &g, sum);
    free(g.begin);
    free(g.topic);
    free(g.count);
    free(g.total);
    return status;
}
