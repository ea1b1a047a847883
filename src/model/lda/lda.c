/* Topic models: settings, data, exchange of counts between groups, training, checkpoints. lda.h explains the method and defines
 * n_dk, n_wk, n_k, block, row and place. */
#include "lda.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Indices into tr_report.sum: terms of the objective, and of the stage "test". */
enum { LOG_DOCUMENTS, LOG_WORDS, LOG_TOTALS, TEST_LOG_P = 0, TEST_TOKENS };

/* Maximum number of token counts per reduction over all workers. */
enum { PIECE = 1 << 16 };

/* A block is sent in PARTS parts while the rest of the block is sampled, so that the receiver waits for the last part only. */
enum { PARTS = 16 };

/* Maximum number of sums of the totals per sweep. More sums do not improve the topics, and each sum of K numbers costs several
 * messages per rank and a wait for the slowest member. */
enum { SUMS = 16 };

static const double default_alpha = 0.1;

/* ---- before the first clock ---- */

static int lda_check(const tr_job *job, const void *settings)
{
    const char *const *files;
    (void)settings;
    if (!tr_job_is(job, "data.partition", "horizontal"))
        return tr_fail(
            TR_ERR_CONFIG,
            "%s: model.type lda needs data.partition horizontal: each worker has its own documents",
            tr_job_where(job, "data.partition"));
    if (tr_job_files(job, "data.vocabulary", &files) > 1)
        return tr_fail(TR_ERR_CONFIG, "%s: data.vocabulary is one file, found %zu",
                       tr_job_where(job, "data.vocabulary"), tr_job_files(job, "data.vocabulary", &files));
    return TR_OK;
}

/* Returns whether there are several groups, which exchange blocks through the table. */
static bool lda_exchanges(const tr_worker *me)
{
    return me->groups > 1;
}

static bool lda_works(const struct tr_lda *m)
{
    return tr_roles(m->tr) & TR_SLAVE;
}

static int read_vocabulary(struct tr_lda *m)
{
    const char *const *files;
    TR_FREED char *path = NULL;
    if (tr_job_files(m->job, "data.vocabulary", &files) == 0) return TR_OK;
    TR_TRY(tr_data_find(m->job, files[0], &path));
    return tr_lda_vocabulary_read(path, m->words, &m->vocabulary);
}

/* Returns whether the words of a block are placed on few servers. This is useful for several groups, which pull and push whole
 * blocks in every sweep, unless the vocabulary is too large for a list on every rank or the job sets the placement. */
static bool places_by_block(const tr_job *job, bool several, double words)
{
    return several && words <= 1 << 24 && !tr_job_given(job, "table.partition") &&
           !tr_job_given(job, "table.block");
}

/* Returns the server of a word if places_by_block() is true. */
static uint32_t server_of(void *who, uint64_t word, uint64_t words, uint32_t servers)
{
    const struct tr_lda *m = who;
    (void)words;
    return tr_lda_layout_part(&m->layout, m->layout.place[word], servers);
}

/* Sends the rows of the current block that sampling has finished: its first `bytes` bytes. */
static void pass_words(void *who, uint64_t bytes)
{
    struct tr_lda *m = who;
    tr_rotation_pass(m->rotation, bytes);
}

static int open_sampler(struct tr_lda *m)
{
    const tr_data *train = m->train;
    size_t topics = m->layout.topics;
    struct tr_lda_options options = {.stream = (uint64_t)tr_set_rank(m->tr, TR_SET_WORKERS), .cpu = tr_cpu()};
    TR_TRY(tr_job_integer(m->job, "seed", &options.seed));
    TR_TRY(tr_lda_open(&options, &m->layout, &train->rows, train->keys, train->row, &m->sampler));
    m->sampler->done = pass_words;
    m->sampler->who = m;
    TR_TRY(TR_NEW(&m->total, topics));
    TR_TRY(TR_NEW(&m->known, topics));
    TR_TRY(TR_NEW(&m->numbers, 2 * topics + 3));
    TR_TRY(TR_NEW(&m->counts[0], topics));
    TR_TRY(TR_NEW(&m->counts[1], topics));
    TR_TRY(TR_NEW(&m->column, topics));
    TR_TRY(TR_NEW(&m->value, topics));
    TR_TRY(TR_NEW(&m->alpha, topics));
    for (size_t k = 0; k < topics; k++)
        m->alpha[k] = m->o->alpha == TR_JOB_AUTO ? default_alpha : m->o->alpha;
    m->beta = m->o->beta;
    tr_lda_priors(m->sampler, m->alpha, m->beta);
    tr_lda_start(m->sampler);
    return TR_OK;
}

static int lda_open(tr_context *tr, const void *settings, void *model)
{
    struct tr_lda *m = model;
    const char *const *files;
    m->tr = tr;
    m->job = tr_context_job(tr);
    m->o = settings;
    m->topics = m->o->topics;
    m->depth = tr_rotation_depth(tr);
    TR_TRY(tr_data_open(tr, TR_DATA_TRAIN, NULL, &m->train));
    m->documents = m->train->total_rows;
    m->words = m->train->columns;
    m->tokens = (uint64_t)m->train->total_values;
    m->numbers_of_documents = m->train->row_numbers;
    TR_TRY(tr_data_describe(m->train, "training data"));
    tr_job_files(m->job, "data.train", &files);
    if (m->tokens == 0 || m->words == 0)
        return tr_agree(tr, tr_fail(TR_ERR_NO_INPUT, "%s: no document contains a word", files[0]));
    if (tr_job_files(m->job, "data.test", &files) > 0) {
        TR_TRY(tr_data_open(tr, TR_DATA_TEST, m->train, &m->test));
        TR_TRY(tr_data_describe(m->test, "test data"));
    }
    TR_TRY(tr_agree(tr, read_vocabulary(m)));

    /* Count the tokens of each word over all workers. If words are placed by block, all ranks need these counts for the layout. */
    TR_FREED uint64_t *tokens = NULL;
    bool all = places_by_block(m->job, tr_groups(tr) > 1, (double)m->words), counts = all || lda_works(m);
    TR_TRY(tr_agree(tr, TR_NEW(&tokens, m->words)));
    const tr_batch *rows = &m->train->rows;
    for (uint64_t i = 0; counts && rows->n > 0 && i < rows->begin[rows->n]; i++)
        tokens[m->train->keys[rows->column[i]]] += (uint64_t)tr_value_at(rows, i);
    for (uint64_t at = 0; counts && at < m->words; at += PIECE)
        TR_TRY(tr_all_reduce(tr, all ? TR_SET_ALL : TR_SET_WORKERS, TR_SUM, TR_I64, tokens + at,
                             tr_min_size(PIECE, m->words - at)));
    int blocks = tr_group_size(tr) * m->depth;
    int status =
        counts ? tr_lda_layout_open(tokens, m->words, (uint32_t)m->topics, blocks, &m->layout) : TR_OK;
    if (lda_works(m) && status == TR_OK) status = open_sampler(m);
    TR_TRY(tr_agree(tr, status));
    if (!m->test) tr_data_close(&m->train); /* the sampler has copied the documents */
    tr_table_options sparse = {.sparse = true},
                     in_blocks = {.sparse = true, .block = 1, .place = server_of, .who = m};
    TR_TRY(tr_table_create_with(tr, "words", TR_I32, m->words, m->topics, all ? &in_blocks : &sparse,
                                &m->table));
    if (!lda_works(m)) tr_lda_layout_close(&m->layout);
    TR_TRY(tr_table_create(tr, "totals", TR_I64, 1, m->topics, &m->totals));
    if (!m->o->optimize) return TR_OK; /* one group does not use histograms, but may resume as several */
    return tr_table_create_with(tr, "histograms", TR_I32, m->topics + 1, (uint64_t)UINT32_MAX + 1, &sparse,
                                &m->histograms);
}

static void lda_close(void *model)
{
    struct tr_lda *m = model;
    tr_view_close(&m->totals_view);
    tr_rotation_close(&m->rotation);
    tr_lda_close(&m->sampler);
    tr_lda_layout_close(&m->layout);
    tr_lda_histogram_close(&m->sent);
    tr_lda_vocabulary_close(&m->vocabulary);
    tr_lda_saved_close(&m->saved);
    tr_data_close(&m->test);
    tr_data_close(&m->train);
    TR_FREE_ALL(m->alpha, m->total, m->known, m->numbers, m->counts[0], m->counts[1], m->column, m->value,
                m->first_words);
}

/* ================ exchange of counts through sparse tables ================ */

/* ---- blocks ---- */

/* Returns the memory of the block among m->block that contains the word at a place. */
static void *lda_memory_of(const struct tr_lda *m, uint64_t place)
{
    int d = 0;
    while (place >= m->layout.first[m->block[d].number + 1]) d++;
    return m->block[d].memory;
}

/* Sets m->first_words to the words of the blocks m->block that have tokens. */
static int lda_list_words(struct tr_lda *m)
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

struct pull {
    struct tr_lda *m;
    tr_key *again; /* words whose rows must be pulled again */
    size_t n_again;
};

/* Stores a row from the table in its block, which has room for T_w tokens. Without BSP a row may arrive in parts of different
 * times. If tokens changed their topics between these times, the row can have more than T_w tokens: it is then pulled again. */
static int lda_store_row(void *state, const tr_row *row)
{
    struct pull *p = state;
    struct tr_lda *m = p->m;
    const int32_t *value = row->value;
    uint64_t tokens = 0;
    size_t n = 0;
    for (size_t i = 0; i < row->n; i++) {
        if (value[i] <= 0) continue; /* parts of different times may also give negative counts */
        m->counts[0][n++] = (struct tr_lda_count){row->column[i], (uint32_t)value[i]};
        tokens += (uint64_t)value[i];
    }
    uint64_t place = m->layout.place[row->key];
    if (tr_in_lockstep(m->tr) || tokens <= m->layout.tokens[row->key])
        return tr_lda_row_write(&m->layout, lda_memory_of(m, place), place, m->counts[0], n);
    p->again[p->n_again++] = row->key;
    return TR_OK;
}

/* Reads the blocks m->block from the table. copy: also writes a copy of each block behind the block, for lda_push_block(). */
static int lda_pull_blocks(struct tr_lda *m, bool copy)
{
    enum { TRIES = 10000 };
    TR_FREED tr_key *again = NULL;
    TR_TRY(lda_list_words(m));
    TR_TRY(TR_NEW(&again, m->n_first_words));
    struct pull p = {.m = m, .again = again};
    TR_TRY(tr_rows_pull(m->table, m->first_words, m->n_first_words, lda_store_row, &p));
    for (int i = 0; p.n_again > 0; i++) {
        tr_key key = again[--p.n_again]; /* a row that is pulled alone arrives complete, soon or later */
        if (i == TRIES)
            return tr_fail(TR_ERR_INTERNAL, "word %" PRIu64 " has more tokens than there are", key + 1);
        TR_TRY(tr_rows_pull(m->table, &key, 1, lda_store_row, &p));
    }
    for (int d = 0; copy && d < m->depth; d++) {
        size_t bytes = m->layout.bytes[m->block[d].number];
        memcpy((char *)m->block[d].memory + bytes, m->block[d].memory, bytes);
    }
    return TR_OK;
}

/* Adds a block minus its copy to the table; if it was not copied, the whole block. */
static int lda_push_block(struct tr_lda *m, const tr_block *block, bool copied)
{
    const struct tr_lda_layout *l = &m->layout;
    const char *now = block->memory, *before = now + l->bytes[block->number];
    for (uint64_t p = l->first[block->number]; p < l->first[block->number + 1]; p++) {
        if (l->kind[p] == TR_LDA_EMPTY) continue;
        size_t n_now = tr_lda_collect(tr_lda_row(l, now, p), m->counts[0]);
        size_t n_before = copied ? tr_lda_collect(tr_lda_row(l, before, p), m->counts[1]) : 0;
        tr_row row = {.key = l->word[p], .column = m->column, .value = m->value};
        /* Subtract two lists in ascending order of topics. */
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

/* Makes the histograms of this worker's documents for tr_lda_fit_alpha(). */
static int lda_count_documents(struct tr_lda *m, struct tr_lda_histogram *h)
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
static int lda_push_bins(struct tr_lda *m, const struct tr_lda_histogram *h, size_t row, int sign)
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

/* Pushes the histograms of this worker instead of those pushed before. The last row, the lengths of documents, does not change and
 * is pushed once. */
static int lda_push_documents(struct tr_lda *m)
{
    struct tr_lda_histogram now = {0};
    bool first = m->sent.rows == 0;
    int status = lda_count_documents(m, &now);
    for (size_t k = 0; k < now.rows - !first && status == TR_OK; k++) {
        status = lda_push_bins(m, &now, k, 1);
        if (status == TR_OK && !first) status = lda_push_bins(m, &m->sent, k, -1);
    }
    tr_lda_histogram_close(&m->sent);
    m->sent = now;
    return status;
}

static int lda_store_bins(void *state, const tr_row *row)
{
    const int32_t *value = row->value;
    for (size_t i = 0; i < row->n; i++) /* without BSP counts may be negative: parts of updates are missing */
        if (value[i] > 0) TR_TRY(tr_lda_histogram_add(state, row->key, row->column[i], (uint32_t)value[i]));
    return TR_OK;
}

/* Pulls the histograms that all workers pushed in the previous clock. Each member pulls the rows of some topics and leaves the
 * other rows empty; member 0 also pulls the lengths. */
static int lda_pull_documents(struct tr_lda *m, const tr_worker *me, struct tr_lda_histogram *h)
{
    size_t topics = m->layout.topics, n = 0;
    TR_FREED tr_key *keys = NULL;
    TR_TRY(tr_lda_histogram_open(topics + 1, h));
    TR_TRY(TR_NEW(&keys, topics + 1));
    for (size_t k = (size_t)me->member; k < topics; k += (size_t)me->group_size) keys[n++] = k;
    if (me->member == 0) keys[n++] = topics;
    TR_TRY(tr_rows_pull(m->histograms, keys, n, lda_store_bins, h));
    return tr_lda_histogram_sort(h);
}

/* ---- evaluation ---- */

struct likelihood {
    struct tr_lda_rises rises;
    double *row; /* a sum per row: rows arrive in any order, and are added later in the order of keys */
};

static int lda_add_row(void *state, const tr_row *row)
{
    struct likelihood *l = state;
    const int32_t *value = row->value;
    for (size_t i = 0; i < row->n; i++) /* without BSP counts may be negative: parts of updates are missing */
        if (value[i] > 0) l->row[row->place] += tr_lda_rise(&l->rises, (uint32_t)value[i]);
    return TR_OK;
}

/* Adds the sum of log Γ(n_wk + β) - log Γ(β) over this worker's part of the words, from the table, to *sum. */
static int lda_log_table(struct tr_lda *m, const tr_worker *me, double *sum)
{
    struct likelihood l;
    TR_FREED tr_key *keys = NULL;
    TR_FREED double *row = NULL;
    size_t n = 0, capacity = 0;
    for (uint64_t p = 0; p < m->layout.words; p++) { /* list the words of this worker's part */
        if (tr_lda_layout_part(&m->layout, p, (uint32_t)me->workers) != (uint32_t)me->worker) continue;
        TR_TRY(TR_GROW(&keys, &capacity, n + 1));
        keys[n++] = m->layout.word[p];
    }
    TR_TRY(TR_NEW(&row, n));
    l.row = row;
    tr_lda_rises_make(m->beta, &l.rises);
    TR_TRY(tr_rows_pull(m->table, keys, n, lda_add_row, &l));
    for (size_t i = 0; i < n; i++) *sum += row[i];
    return TR_OK;
}

/* ---- outside of stages, while other ranks wait ---- */

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

/* ================ training ================ */

/* ---- operations of a group ---- */

/* A status in addition to TR_OK and errors: another member of the group has failed and reports the error; the stage ends. */
enum { LDA_HALTED = -1 };

/* Waits for the blocks that this worker has at the start of a clock, and sets m->block. */
static int lda_look(struct tr_lda *m)
{
    for (int d = 0; d < m->depth; d++) {
        TR_TRY(tr_rotation_look(m->rotation, d, &m->block[d]));
        if (!m->block[d].memory) return LDA_HALTED;
    }
    return TR_OK;
}

/* Converts LDA_HALTED to the status that the stage expects. */
static int lda_end_clock(int status)
{
    return status == LDA_HALTED ? TR_OK : status;
}

/* Sums n numbers over the group. A member that has failed (status) takes part, so that all members learn of the failure. It returns
 * its status, and the other members return LDA_HALTED. numbers has one more element for this. */
static int lda_sum_up(tr_worker *me, int status, double *numbers, size_t n)
{
    tr_sum *sum;
    numbers[n] = status != TR_OK;
    int sent = tr_group_sum_begin(me, numbers, n + 1, &sum);
    if (sent == TR_OK) sent = tr_group_sum_end(me, &sum, numbers);
    if (status != TR_OK) return status;
    TR_TRY(sent);
    return sum || numbers[n] > 0 ? LDA_HALTED : TR_OK;
}

/* Computes m->total, n_k, from the blocks of all members of the group. */
static int sum_totals(tr_worker *me, struct tr_lda *m, int status)
{
    size_t topics = m->layout.topics;
    memset(m->total, 0, topics * sizeof *m->total);
    for (int d = 0; d < m->depth && status == TR_OK; d++)
        tr_lda_block_totals(&m->layout, m->block[d].number, m->block[d].memory, m->total);
    for (size_t k = 0; k < topics; k++) m->numbers[k] = (double)m->total[k];
    TR_TRY(lda_sum_up(me, status, m->numbers, topics));
    for (size_t k = 0; k < topics; k++) m->total[k] = (int64_t)m->numbers[k];
    tr_lda_set_totals(m->sampler, m->total);
    return TR_OK;
}

/* ---- sums of the changes of n_k over the members, each for one or more rounds ---- */

/* Waits for a sum of changes and adds it to m->total. Sets *sum to NULL. */
static int end_sum(tr_worker *me, struct tr_lda *m, tr_sum **sum)
{
    size_t topics = m->layout.topics;
    if (!*sum) return TR_OK;
    TR_TRY(tr_group_sum_end(me, sum, m->numbers));
    if (*sum) return LDA_HALTED;
    for (size_t k = 0; k < topics; k++) m->total[k] += (int64_t)m->numbers[k];
    return m->numbers[topics] > 0 ? LDA_HALTED : TR_OK;
}

/* Sets m->known and the totals of the sampler for the next round: m->total; with_moves: plus this member's own changes, because
 * their sum is still in progress. */
static void set_totals(struct tr_lda *m, bool with_moves)
{
    for (size_t k = 0; k < m->layout.topics; k++) {
        int64_t moves = with_moves ? m->sampler->total[k] - m->known[k] : 0;
        m->known[k] = m->total[k] + moves;
    }
    tr_lda_set_totals(m->sampler, m->known);
}

/* Starts to sum the changes since the last call, and waits for the sum that the last call started. If a member has only one block
 * (all members on one machine), waits for the new sum too. All members learn of a failure in the same round. */
static int sum_moves(tr_worker *me, struct tr_lda *m, int failed, tr_sum **before)
{
    tr_sum *sum;
    size_t topics = m->layout.topics;
    int64_t *delta = lda_exchanges(me) ? m->totals_view->delta : NULL;
    for (size_t k = 0; k < topics; k++) {
        int64_t moves = m->sampler->total[k] - m->known[k];
        if (delta) delta[k] += moves;
        m->numbers[k] = (double)moves;
    }
    m->numbers[topics] = failed != TR_OK;
    TR_TRY(tr_group_sum_begin(me, m->numbers, topics + 1, &sum));
    int status = end_sum(me, m, before);
    if (m->depth == 1 || status != TR_OK) {
        int last = end_sum(me, m, &sum);
        if (status == TR_OK) status = last;
    }
    *before = sum;
    if (status == TR_OK) set_totals(m, sum != NULL);
    return status;
}

/* ---- counting the initial topics: one rotation ---- */

static int open_totals(tr_worker *me, void *state)
{
    struct tr_lda *m = state;
    TR_FREED tr_key *keys = NULL;
    (void)me;
    size_t topics = m->layout.topics;
    TR_TRY(TR_NEW(&keys, topics));
    for (size_t k = 0; k < topics; k++) keys[k] = k;
    return tr_view_open(m->totals, keys, topics, TR_VIEW_UPDATE, &m->totals_view);
}

static int prepare_count(tr_worker *me, void *state)
{
    struct tr_lda *m = state;
    size_t copies = lda_exchanges(me) ? 2 : 1;
    TR_FREED size_t *bytes = NULL;
    TR_TRY(TR_NEW(&bytes, (size_t)m->layout.blocks));
    for (int b = 0; b < m->layout.blocks; b++) bytes[b] = m->layout.bytes[b] * copies;
    TR_TRY(tr_rotation_open(me, bytes, PARTS, &m->rotation));
    return lda_exchanges(me) ? open_totals(me, m) : TR_OK;
}

/* Adds the rows of this worker's blocks, and the totals of these blocks, to the empty tables. */
static int push_blocks(struct tr_lda *m)
{
    for (int d = 0; d < m->depth; d++) {
        const tr_block *block = &m->block[d];
        TR_TRY(lda_push_block(m, block, false));
        tr_lda_block_totals(&m->layout, block->number, block->memory, m->totals_view->delta);
    }
    return tr_view_push(m->totals_view);
}

/* Counts the initial topics of this worker's tokens in each block. A resumed run does not count, because it restores the blocks
 * later. A member that has failed passes blocks on unchanged. */
static int count_rounds(struct tr_lda *m)
{
    int status = TR_OK;
    bool counts = !tr_context_continues(m->tr);
    for (int round = 0; round < m->layout.blocks; round++) {
        tr_block block;
        TR_TRY(tr_rotation_take(m->rotation, &block));
        if (!block.memory) return LDA_HALTED;
        if (counts && status == TR_OK) status = tr_lda_count_block(m->sampler, block.number, block.memory);
        TR_TRY(tr_rotation_give(m->rotation));
    }
    return status;
}

static int count_tokens(tr_worker *me, void *state)
{
    struct tr_lda *m = state;
    int status = count_rounds(m);
    if (status == LDA_HALTED) return TR_OK;
    int looked = lda_look(m);
    if (looked != TR_OK) return lda_end_clock(looked);
    status = sum_totals(me, m, status);
    if (status == TR_OK && lda_exchanges(me)) status = push_blocks(m);
    return lda_end_clock(status);
}

/* ---- the priors ---- */

/* Returns whether the priors are fitted before the sweep of this clock: every solve.optimize_every clocks, except in the first
 * clocks, when the topics are still too similar. */
static bool lda_fits_before(const struct tr_lda *m, int64_t clock)
{
    int64_t every = (int64_t)m->o->optimize_every;
    return m->o->optimize && clock % every == 0 && clock / every >= 2;
}

/* The tr_lda_sum_fn of fits: sums over the members of the group. Each step of a fit is measured as one turn of "priors". */
static int sum_steps(void *who, double *numbers, size_t n)
{
    tr_worker *me = who;
    int status = lda_sum_up(me, tr_turn_end(me->tr, TR_OK), numbers, n);
    return status == TR_OK ? tr_turn_begin(me->tr, "priors") : status;
}

/* Fits the priors. All members take part, each with the words of its own blocks and with some of the histograms of documents. */
static int fit_priors(tr_worker *me, struct tr_lda *m, int status)
{
    const struct tr_lda_layout *l = &m->layout;
    TR_CLOSED_BY(tr_lda_histogram_close) struct tr_lda_histogram documents = {0};
    TR_CLOSED_BY(tr_lda_histogram_close) struct tr_lda_histogram words = {0};
    TR_TRY(tr_turn_begin(m->tr, "priors"));
    if (status == TR_OK)
        status =
            lda_exchanges(me) ? lda_pull_documents(m, me, &documents) : lda_count_documents(m, &documents);
    if (status == TR_OK) status = tr_lda_histogram_open(1, &words);
    int first = m->block[0].number;
    for (uint64_t p = l->first[first]; p < l->first[first + m->depth]; p++)
        for (struct tr_lda_cursor c = tr_lda_row(l, lda_memory_of(m, p), p);
             status == TR_OK && tr_lda_next(&c);)
            status = tr_lda_histogram_add(&words, 0, c.count, 1);
    if (status == TR_OK) status = tr_lda_histogram_sort(&words);
    TR_TRY(lda_sum_up(me, tr_turn_end(m->tr, status), m->numbers, 0));
    /* Without BSP the histograms are of different times: see tr_lda_fit_alpha(). */
    double most = tr_in_lockstep(m->tr) ? INFINITY : 2;
    TR_TRY(tr_turn_begin(m->tr, "priors"));
    TR_TRY(tr_lda_fit_alpha(&documents, most, sum_steps, me, m->numbers, m->alpha));
    TR_TRY(tr_lda_fit_beta(&words, m->total, l->topics, m->words, sum_steps, me, &m->beta));
    TR_TRY(tr_turn_end(m->tr, TR_OK));
    tr_lda_priors(m->sampler, m->alpha, m->beta);
    return TR_OK;
}

/* ---- a sweep ---- */

/* Prepares the first round of a clock: with several groups, reads the counts of all groups; then fits the priors. Without BSP it
 * first waits until the updates of all members of the group have arrived, because another member pushed the blocks that it
 * reads. */
static int begin_sweep(tr_worker *me, struct tr_lda *m)
{
    int status = TR_OK;
    bool first = me->clock == m->first_clock && m->groups_before > 0;
    if (first && m->groups_before == 1) {
        /* The first clock after a restart from a checkpoint of one group: the blocks contain the counts, and the table is empty. If
         * there are several groups now, the first group adds the counts to the table: its copy is set to 0. */
        for (int d = 0; lda_exchanges(me) && d < m->depth; d++) {
            const tr_block *block = &m->block[d];
            size_t bytes = m->layout.bytes[block->number];
            char *copy = (char *)block->memory + bytes;
            if (me->group > 0) {
                memcpy(copy, block->memory, bytes);
                continue;
            }
            memset(copy, 0, bytes);
            tr_lda_block_totals(&m->layout, block->number, block->memory, m->totals_view->delta);
        }
        if (lda_exchanges(me)) TR_TRY(sum_totals(me, m, TR_OK));
    } else if (first || lda_exchanges(me)) {
        if (!tr_in_lockstep(m->tr)) {
            status = tr_rows_settle(m->table);
            TR_TRY(lda_sum_up(me, status, m->numbers, 0));
        }
        TR_TRY(sum_totals(me, m, lda_pull_blocks(m, lda_exchanges(me))));
    }
    return lda_fits_before(m, me->clock) ? fit_priors(me, m, status) : TR_OK;
}

/* Returns whether the joint log p is computed after this clock. Without BSP this is not known in advance, so true is returned. */
static bool needs_joint(const struct tr_lda *m, int64_t clock)
{
    int64_t ended = clock + 1;
    if (m->o->optimize) return false;
    return !tr_in_lockstep(m->tr) || ended % (int64_t)tr_job_number(m->job, "report.every") == 0 ||
           ended == (int64_t)tr_job_number(m->job, "solve.epochs");
}

/* Samples one block, the current one of the rotation, and does not pass it on.
 *
 * @param [in]     last    no other member samples the block in this clock: push it, or with one group evaluate its words
 * @param [in,out] failed  the first failure of this member, which then takes part in the round without work */
static int sample_block(const tr_worker *me, struct tr_lda *m, bool last, int *failed)
{
    tr_block block;
    TR_TRY(tr_rotation_take(m->rotation, &block));
    if (!block.memory) return LDA_HALTED;
    int status = tr_turn_begin(m->tr, "sample");
    if (status == TR_OK && *failed == TR_OK) tr_lda_sample(m->sampler, block.number, block.memory);
    if (status == TR_OK) status = tr_turn_end(m->tr, TR_OK);
    if (*failed != TR_OK) return TR_OK;
    if (status == TR_OK && last && lda_exchanges(me)) status = lda_push_block(m, &block, true);
    else if (status == TR_OK && last && needs_joint(m, me->clock))
        m->log_words += tr_lda_log_block(&m->layout, block.number, block.memory, m->beta);
    *failed = status;
    return TR_OK;
}

/* Runs all rounds of a clock. A member that has failed takes part in rounds, sums and turns until all other members know. The last
 * sum, which all members wait for, is sent before the rest of the last block, which no member waits for yet. */
static int sample_rounds(tr_worker *me, struct tr_lda *m)
{
    tr_sum *sum = NULL;
    int failed = TR_OK, blocks = m->layout.blocks, of_sum = (blocks + SUMS - 1) / SUMS; /* rounds per sum */
    memcpy(m->known, m->total, m->layout.topics * sizeof *m->known);
    for (int round = 0; round < blocks; round++) {
        bool last = round + 1 == blocks;
        int status = sample_block(me, m, round + m->depth >= blocks, &failed);
        if (status == TR_OK && !last) status = tr_rotation_give(m->rotation);
        if (status == TR_OK && (last || (round + 1) % of_sum == 0)) status = sum_moves(me, m, failed, &sum);
        if (status == TR_OK && last) status = end_sum(me, m, &sum);
        if (status != TR_OK) return failed != TR_OK ? failed : status;
    }
    set_totals(m, false);
    TR_TRY(tr_rotation_give(m->rotation));
    return failed;
}

static int lda_sweep(tr_worker *me, void *state)
{
    struct tr_lda *m = state;
    /* looks: all blocks of this worker must have arrived before the first round */
    bool continues = me->clock == m->first_clock && m->groups_before > 0,
         looks = continues || lda_exchanges(me) || lda_fits_before(m, me->clock);
    int status = looks ? lda_look(m) : TR_OK;
    if (status == TR_OK) status = begin_sweep(me, m);
    m->log_words = m->sampler->log_weights = 0;
    if (status == TR_OK) status = sample_rounds(me, m);
    if (m->o->optimize) m->log_words = m->sampler->log_weights;
    if (status != TR_OK || !lda_exchanges(me)) return lda_end_clock(status);
    if (lda_fits_before(m, me->clock + 1)) TR_TRY(lda_push_documents(m));
    return tr_view_push(m->totals_view);
}

/* ---- evaluation ---- */

static int add_likelihoods(tr_worker *me, struct tr_lda *m, tr_report *report)
{
    int64_t *total = m->total;
    report->sum[LOG_WORDS] = m->log_words;
    report->sum[LOG_DOCUMENTS] =
        m->o->optimize ? -tr_lda_log_lengths(m->sampler) : tr_lda_log_documents(m->sampler);
    if (m->o->optimize) return TR_OK;
    if (lda_exchanges(me)) {
        report->sum[LOG_WORDS] = 0;
        TR_TRY(lda_log_table(m, me, &report->sum[LOG_WORDS]));
        if (me->worker == 0) TR_TRY(tr_view_pull(m->totals_view));
        total = m->totals_view->value;
        /* Without BSP, updates that decrease a total may have arrived before those that increase it. */
        for (size_t k = 0; me->worker == 0 && k < m->topics; k++)
            if (total[k] < 0) total[k] = 0;
    }
    if (me->worker == 0) report->sum[LOG_TOTALS] = tr_lda_log_totals(&m->layout, total, m->beta);
    return TR_OK;
}

static int lda_evaluate(tr_worker *me, void *state, tr_report *report)
{
    struct tr_lda *m = state;
    TR_TRY(tr_turn_begin(m->tr, "evaluate"));
    return tr_turn_end(m->tr, add_likelihoods(me, m, report));
}

static int lda_summarize(void *state, const tr_report *report, tr_evaluation *evaluation)
{
    struct tr_lda *m = state;
    const double *sum = report->sum;
    evaluation->objective = (sum[LOG_DOCUMENTS] + sum[LOG_WORDS] + sum[LOG_TOTALS]) / (double)m->tokens;
    m->last = *evaluation;
    m->last.epoch = (double)report->clock;
    if (isfinite(evaluation->objective)) return TR_OK;
    return tr_fail(TR_ERR_DIVERGED, "sweep %lld: log p is not finite", (long long)report->clock);
}

/* ---- test data: half of each document is predicted from the other half ---- */

static int complete_documents(tr_worker *me, void *state)
{
    struct tr_lda *m = state;
    const tr_data *data = m->test;
    const tr_batch *b = &data->rows;
    TR_CLOSED_BY(tr_lda_saved_close) struct tr_lda_saved s = {0};
    uint64_t seed;
    TR_FREED float *half = NULL;
    (void)me;
    TR_TRY(tr_job_integer(m->job, "seed", &seed));
    TR_TRY(TR_NEW(&half, 2 * data->n_keys)); /* a document lists each word at most once */
    TR_TRY(tr_lda_read_tables(m, data->keys, data->n_keys, &s));
    TR_TRY(tr_lda_saved_phi(m, &s));
    for (size_t d = 0; d < b->n; d++) {
        uint64_t first = b->begin[d];
        tr_lda_complete(&s.phi, seed, data->row[d], b->begin[d + 1] - first, b->column + first,
                        b->value ? b->value + first : NULL, half, half + data->n_keys, &m->tested);
    }
    return TR_OK;
}

static int add_completions(tr_worker *me, void *state, tr_report *report)
{
    const struct tr_lda *m = state;
    (void)me;
    report->sum[TEST_LOG_P] = m->tested.log_p;
    report->sum[TEST_TOKENS] = (double)m->tested.tokens;
    return TR_OK;
}

static int test_summarize(void *state, const tr_report *report, tr_evaluation *evaluation)
{
    struct tr_lda *m = state;
    struct tr_lda_completion all = {report->sum[TEST_LOG_P], (uint64_t)report->sum[TEST_TOKENS]};
    m->last.metric[0] = tr_lda_perplexity(&all);
    *evaluation = m->last;
    tr_say(m->tr, "test data:     perplexity %.2f of half of each document, given the other half",
           m->last.metric[0]);
    return TR_OK;
}

/* ---- checkpoints ---- */

/* A checkpoint contains: the topics of all tokens, sorted by document; the order of topics in the lists of documents and words,
 * because draws and rounding errors of sums depend on it; with one group n_wk (several groups have it in the table); the priors;
 * and the state of the random numbers. A restart with another number of workers does not restore the random numbers. */

/* A list of 32-bit numbers per document or word; list i is number[begin[i]] .. number[begin[i + 1] - 1]. */
struct list {
    uint32_t *n; /* lengths of the lists, in elements of list_open() */
    uint64_t *begin;
    uint32_t *number;
};

static void list_free(struct list *l)
{
    TR_FREE_ALL(l->n, l->begin, l->number);
}

/* Allocates lists of n[i] elements of `bytes` bytes each, rounded up to whole 32-bit numbers. */
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

/* Writes n_wk to a checkpoint of one group, or restores it. In wide rows, an entry is two 32-bit numbers, topic and count; in other
 * rows it is one number, topic | count << 16. */
static int keep_words(struct tr_lda *m, tr_snapshot *snapshot)
{
    TR_TRY(lda_look(m));
    TR_TRY(lda_list_words(m));
    TR_CLOSED_BY(list_free) struct list w = {0};
    size_t n = m->n_first_words;
    const struct tr_lda_layout *l = &m->layout;
    const tr_key *words = m->first_words;
    bool restores = tr_snapshot_restores(snapshot);
    TR_TRY(TR_NEW(&w.n, n));
    for (size_t i = 0; i < n && !restores; i++) {
        uint64_t place = l->place[words[i]];
        for (struct tr_lda_cursor c = tr_lda_row(l, lda_memory_of(m, place), place); tr_lda_next(&c);)
            w.n[i] += l->kind[place] == TR_LDA_WIDE ? 2 : 1;
    }
    TR_TRY(tr_snapshot_rows(snapshot, "numbers_of_words", TR_I32, m->words, 1, words, 0, n, w.n));
    TR_TRY(list_open(n, w.n, 4, &w));
    for (size_t i = 0; i < n && !restores; i++) {
        uint64_t place = l->place[words[i]];
        uint32_t *number = w.number + w.begin[i];
        bool wide = l->kind[place] == TR_LDA_WIDE;
        for (struct tr_lda_cursor c = tr_lda_row(l, lda_memory_of(m, place), place); tr_lda_next(&c);) {
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
        TR_TRY(tr_lda_row_write(l, lda_memory_of(m, place), place, m->counts[0], pairs));
    }
    return TR_OK;
}

static int lda_snapshot(tr_worker *me, void *state, tr_snapshot *snapshot)
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
        /* These values are equal on all workers, so worker 0 stores them. Several groups do not need the totals: they sum them
         * before each sweep. */
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
    /* If the next clock fits the priors, the table contains the histograms of the restored documents: they are used and count as
     * pushed by this worker. Otherwise the table is cleared, and the next push starts from empty histograms. */
    if (!m->histograms || !tr_snapshot_restores(snapshot)) return TR_OK;
    bool used = m->groups_before > 1 && lda_fits_before(m, me->clock);
    if (!used) tr_table_clear(m->histograms);
    if (!used || me->worker < 0) return TR_OK;
    return lda_count_documents(m, &m->sent);
}

/* ---- one group: the table is written at the end ---- */

/* Clears the tables before the counts are written: the checkpoint of a resumed run may have tables of several groups. */
static int clear_tables(tr_context *tr, void *state)
{
    (void)tr;
    struct tr_lda *m = state;
    tr_table_clear(m->table);
    tr_table_clear(m->totals);
    return TR_OK;
}

static int store_counts(tr_worker *me, void *state)
{
    struct tr_lda *m = state;
    (void)me;
    int status = lda_look(m);
    return lda_end_clock(status == TR_OK ? push_blocks(m) : status);
}

/* Declares the tables as unused for the next stages if there is one group (alone), which has all counts in its blocks. A resumed
 * run still reads the table of words, because its checkpoint may be of several groups. */
static void rest_tables(const struct tr_lda *m, bool alone)
{
    tr_table_rest(m->table, alone && !tr_context_continues(m->tr));
    if (m->histograms) tr_table_rest(m->histograms, alone);
}

static int lda_train(void *model)
{
    struct tr_lda *m = model;
    tr_stage count = {.name = "count",
                      .state = m,
                      .clocks = 1,
                      .prepare = prepare_count,
                      .compute = count_tokens,
                      .rotates = true};
    tr_stage train = {.name = "train",
                      .state = m,
                      .clocks = (int64_t)tr_job_number(m->job, "solve.epochs"),
                      .evaluate_every = (int64_t)tr_job_number(m->job, "report.every"),
                      .epochs_per_clock = 1,
                      .objective_name = m->o->optimize ? "log p/token" : "joint log p",
                      .ascends = true,
                      .metric = {{m->test ? "test perplexity" : NULL, false}}, /* computed below */
                      .compute = lda_sweep,
                      .rotates = true,
                      .evaluate = lda_evaluate,
                      .summarize = lda_summarize,
                      .snapshot = lda_snapshot};
    tr_stage store = {.name = "store",
                      .state = m,
                      .clocks = 1,
                      .prepare = open_totals,
                      .begin = clear_tables,
                      .compute = store_counts};
    tr_stage test = {.name = "test",
                     .state = m,
                     .clocks = 1,
                     .objective_name = train.objective_name,
                     .ascends = true,
                     .metric = {{"perplexity", false}},
                     .compute = complete_documents,
                     .evaluate = add_completions,
                     .summarize = test_summarize};
    tr_say(m->tr, "%s",
           m->o->optimize ? "log p/token:   of the words, given the topics and each document's mixture"
                          : "joint log p:   per token, of words and topics");
    rest_tables(m, tr_groups(m->tr) == 1);
    TR_TRY(tr_run(m->tr, &count));
    TR_TRY(tr_run(m->tr, &train));
    rest_tables(m, false);
    if (tr_groups(m->tr) == 1) TR_TRY(tr_run(m->tr, &store));
    return m->test ? tr_run(m->tr, &test) : TR_OK;
}

/* Estimates memory. Rows: 12 bytes per word of a document while reading, or tokens with their topics. Layout: 80 bytes per
 * word on each worker while it is built, and 12 bytes more for the servers of words if groups exchange blocks. Table: per word the
 * smaller of 2 bytes per topic and 4 bytes per token. A group has all blocks, with several groups also a copy of each. On one
 * machine the members share them; otherwise each of P members has at most 3 of the 2 P blocks. */
static void lda_estimate(const tr_job *job, const void *settings, const tr_data_size *size, tr_memory *memory)
{
    const struct tr_lda_settings *o = settings;
    bool several = size->group_workers < size->workers;
    double table = 0.8 * fmin(2 * size->words * (double)o->topics, 4 * size->tokens),
           blocks = several ? 2 * table : table;
    memory->rows = fmax(12 * size->records, 7 * size->tokens) / size->workers;
    memory->worker = 80 * size->words;
    if (places_by_block(job, several, size->words)) memory->worker += 12 * size->words;
    memory->server = table / size->servers;
    if (size->group_workers <= size->node_workers) memory->group = blocks;
    else memory->worker += 1.5 * blocks / size->group_workers;
}

/* ---- the class ---- */

#define AT(field) offsetof(struct tr_lda_settings, field)

static const tr_option options[] = {
    {"model.topics", TR_KIND_INTEGER, AT(topics), "100", .least = 1, .most = 65535,
     .help = "number of topics"},
    {"model.alpha", TR_KIND_REAL, AT(alpha), "auto", .above = true, .most = 1e6, .words = TR_WORDS("auto"),
     .help = "prior of each topic in a document; auto = 0.1"},
    {"model.beta", TR_KIND_REAL, AT(beta), "0.01", .above = true, .most = 1e6,
     .help = "prior of each word in a topic"},
    {"model.optimize", TR_KIND_BOOL, AT(optimize), "yes",
     .help = "fit the priors to the data, with one alpha per topic"},
    {"solve.optimize_every", TR_KIND_INTEGER, AT(optimize_every), "10", .least = 1,
     .help = "epochs between two fits of the priors"},
    {.name = NULL},
};

static const tr_method methods[] = {
    {"gibbs", "collapsed Gibbs sampling with rotation of words",
     .stages = TR_WORDS("sample", "priors", "evaluate"), .in_groups = true, .rotates = true, .by_node = true},
    {.name = NULL},
};

/* Keys that topic models do not support. Updates are counts, so precision and filters would lose tokens. */
static const tr_rule rules[] = {
    {"table.precision", .unused = true},
    {"table.filter", .unused = true},
    {"sync.weight", .unused = true},
    {"sync.stable", .unused = true},
    {"sync.race", .unused = true},
    {"local.*", .unused = true},
    {"data.duplicates", .unused = true},
    {"data.scale", .unused = true},
    {"data.weight", .unused = true},
    {"data.offset", .unused = true},
    {"solve.patience", .unused = true},
    {"report.metric", .unused = true},
    {.key = NULL},
};

static const tr_flag flags[] = {
    {"--top", "N", TR_PREDICT | TR_INSPECT, 0, 1000,
     "print the N largest topics of a document, or N words of each topic"},
    {"--vocabulary", "FILE", TR_INSPECT, .help = "file with the names of the words, one per line"},
    {.name = NULL},
};

const tr_model_class tr_lda_class = {
    .abi = TR_MODEL_ABI,
    .name = "lda",
    .types = TR_WORDS("lda"),
    .help = "topics of documents (latent Dirichlet allocation)",
    .predicts = "the topics of each document, topic:share, largest first",
    .evaluates = "log-likelihood per word, and perplexity",
    .noun = "a model of topics",
    .format = "trireme-lda",
    .format_version = 1,
    .data_formats = TR_WORDS("docword"),
    .options_size = sizeof(struct tr_lda_settings),
    .options = options,
    .methods = methods,
    .rules = rules,
    .flags = flags,
    .model_size = sizeof(struct tr_lda),
    .check = lda_check,
    .open = lda_open,
    .train = lda_train,
    .fields = tr_lda_fields,
    .close = lda_close,
    .memory = lda_estimate,
    .answer = tr_lda_answer,
    .inspect = tr_lda_inspect,
    .centres = tr_lda_centres,
};
