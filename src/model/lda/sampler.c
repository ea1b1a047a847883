/* Blocks of word counts, and the sampler. lda.h explains both. */
#include "lda.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    LINE = 64,
    LANES = TR_LDA_LANES,
    AHEAD = 16,         /* distance of prefetching, in tokens */
    DENSE_TOPICS = 256, /* maximum number of topics for which records are dense */
    LONGEST = 65535     /* maximum value of a 16-bit count */
};

/* ================ counts of words ================ */

/* ---- the layout ---- */

struct word {
    uint64_t tokens, number;
};

static int frequent_first(const void *x, const void *y)
{
    const struct word *a = x, *b = y;
    if (a->tokens != b->tokens) return a->tokens > b->tokens ? -1 : 1;
    return a->number < b->number ? -1 : 1;
}

/* Returns the size of a row. Rows with a count per topic occupy whole cache lines, because vector instructions read them. */
static uint64_t row_bytes(enum tr_lda_row kind, uint64_t tokens, uint32_t topics)
{
    if (kind == TR_LDA_EMPTY) return 0;
    if (kind == TR_LDA_LIST) return 4 + 4 * tokens;
    return ((uint64_t)topics * (kind == TR_LDA_DENSE ? 2 : 4) + LINE - 1) / LINE * LINE;
}

int tr_lda_layout_open(const uint64_t *tokens, uint64_t words, uint32_t topics, int blocks,
                       struct tr_lda_layout *layout)
{
    struct tr_lda_layout *l = layout;
    *l = (struct tr_lda_layout){.topics = topics, .words = words, .blocks = blocks};
    if (topics < 1 || topics > TR_LDA_TOPICS)
        return tr_fail(TR_ERR_CONFIG, "model.topics: %" PRIu32 " topics: expected 1 to %d", topics,
                       TR_LDA_TOPICS);
    if (blocks < 1) return tr_fail(TR_ERR_INTERNAL, "words in %d blocks", blocks);
    for (uint64_t w = 0; w < words; w++)
        if (tokens[w] > INT32_MAX)
            return tr_fail(TR_ERR_DATA, "word %" PRIu64 ": %" PRIu64 " tokens: expected below 2^31", w + 1,
                           tokens[w]);
    TR_FREED struct word *order = NULL;
    TR_FREED int *block = NULL;
    TR_FREED uint64_t *heap = NULL; /* per block: its number of tokens × blocks + its index; smallest first */
    TR_TRY(TR_NEW(&l->first, (size_t)blocks + 1));
    TR_TRY(TR_NEW(&l->bytes, (size_t)blocks));
    TR_TRY(TR_NEW(&l->word, words));
    TR_TRY(TR_NEW(&l->place, words));
    TR_TRY(TR_NEW(&l->row, words));
    TR_TRY(TR_NEW(&l->kind, words));
    TR_TRY(TR_NEW(&l->tokens, words));
    TR_TRY(TR_NEW(&order, words));
    TR_TRY(TR_NEW(&block, words));
    TR_TRY(TR_NEW(&heap, (size_t)blocks));
    for (uint64_t w = 0; w < words; w++) {
        order[w] = (struct word){tokens[w], w};
        l->tokens[w] = (uint32_t)tokens[w];
    }
    qsort(order, words, sizeof *order, frequent_first);

    /* Put each word, in descending order of frequency, into the block with the fewest tokens so far. A word without tokens counts
     * as one token, so that such words are distributed too. */
    uint64_t n = (uint64_t)blocks, *next = l->bytes; /* until `bytes` is set: next place of each block */
    for (uint64_t b = 0; b < n; b++) heap[b] = b;
    for (uint64_t i = 0; i < words; i++) {
        block[i] = (int)(heap[0] % n);
        l->first[block[i] + 1]++;
        uint64_t top = heap[0] + (order[i].tokens + !order[i].tokens) * n, at = 0;
        for (uint64_t child = 1; child < n; child = 2 * at + 1) { /* restore the heap */
            if (child + 1 < n && heap[child + 1] < heap[child]) child++;
            if (heap[child] > top) break;
            heap[at] = heap[child];
            at = child;
        }
        heap[at] = top;
    }
    for (uint64_t b = 0; b < n; b++) {
        l->first[b + 1] += l->first[b];
        next[b] = l->first[b];
    }
    for (uint64_t i = 0; i < words; i++) {
        uint64_t at = next[block[i]]++;
        l->word[at] = order[i].number;
        l->place[order[i].number] = at;
    }

    /* Choose the form of each row. Frequent words are first in a block: dense rows precede lists, and each starts at a cache
     * line. */
    for (int b = 0; b < blocks; b++) {
        uint64_t at = 0;
        for (uint64_t p = l->first[b]; p < l->first[b + 1]; p++) {
            uint64_t of_word = l->tokens[l->word[p]];
            enum tr_lda_row kind = of_word == 0           ? TR_LDA_EMPTY
                                   : of_word > LONGEST    ? TR_LDA_WIDE
                                   : 2 * of_word < topics ? TR_LDA_LIST
                                                          : TR_LDA_DENSE;
            l->kind[p] = (uint8_t)kind;
            l->row[p] = at;
            at += row_bytes(kind, of_word, topics);
        }
        l->bytes[b] = (at + LINE - 1) / LINE * LINE;
    }
    return TR_OK;
}

void tr_lda_layout_close(struct tr_lda_layout *l)
{
    TR_FREE_ALL(l->first, l->bytes, l->word, l->place, l->row, l->kind, l->tokens);
    *l = (struct tr_lda_layout){0};
}

/* The words of a block, in descending order of frequency, are assigned to the block's parts in turn. */
uint32_t tr_lda_layout_part(const struct tr_lda_layout *l, uint64_t place, uint32_t parts)
{
    uint64_t block = 0, blocks = (uint64_t)l->blocks;
    for (uint64_t end = blocks; end - block > 1;) {
        uint64_t middle = block + (end - block) / 2;
        if (place < l->first[middle]) end = middle;
        else block = middle;
    }
    uint64_t first = block * parts / blocks, n = (block + 1) * parts / blocks - first;
    return (uint32_t)(first + (place - l->first[block]) % (n + !n));
}

/* ---- rows ---- */

static int counts_by_topic(const void *x, const void *y)
{
    const struct tr_lda_count *a = x, *b = y;
    return a->topic < b->topic ? -1 : a->topic > b->topic;
}

size_t tr_lda_collect(struct tr_lda_cursor cursor, struct tr_lda_count *counts)
{
    size_t n = 0;
    while (tr_lda_next(&cursor)) counts[n++] = (struct tr_lda_count){cursor.topic, cursor.count};
    if (cursor.kind == TR_LDA_LIST) qsort(counts, n, sizeof *counts, counts_by_topic);
    return n;
}

/* Sets the count of a topic in a row. at: index of the pair, if the row is a list. */
static int write_count(const struct tr_lda_layout *l, uint64_t place, void *row, uint32_t at, uint32_t topic,
                       uint64_t count)
{
    enum tr_lda_row kind = (enum tr_lda_row)l->kind[place];
    uint64_t word = l->word[place];
    if (kind == TR_LDA_EMPTY || (kind == TR_LDA_LIST && at >= l->tokens[word]))
        return tr_fail(TR_ERR_INTERNAL, "word %" PRIu64 ": more topics than it has tokens", word + 1);
    if (topic >= l->topics || count > (kind == TR_LDA_WIDE ? UINT32_MAX : LONGEST))
        return tr_fail(TR_ERR_INTERNAL, "word %" PRIu64 ", topic %" PRIu32 ": a count outside its range",
                       word + 1, topic);
    if (kind == TR_LDA_LIST) ((uint32_t *)row)[1 + at] = topic | (uint32_t)count << 16;
    else if (kind == TR_LDA_DENSE) ((uint16_t *)row)[topic] = (uint16_t)count;
    else ((uint32_t *)row)[topic] = (uint32_t)count;
    return TR_OK;
}

int tr_lda_row_add(const struct tr_lda_layout *l, void *block, uint64_t place, uint32_t topic)
{
    void *row = (char *)block + l->row[place];
    uint32_t *list = row, at = 0;
    uint64_t count = 0;
    if (l->kind[place] == TR_LDA_LIST) {
        while (at < list[0] && (list[1 + at] & 0xffff) != topic) at++;
        if (at < list[0]) count = list[1 + at] >> 16;
    } else if (l->kind[place] != TR_LDA_EMPTY && topic < l->topics) {
        count = l->kind[place] == TR_LDA_DENSE ? ((uint16_t *)row)[topic] : list[topic];
    }
    TR_TRY(write_count(l, place, row, at, topic, count + 1));
    if (l->kind[place] == TR_LDA_LIST && at == list[0]) list[0]++;
    return TR_OK;
}

int tr_lda_row_write(const struct tr_lda_layout *l, void *block, uint64_t place,
                     const struct tr_lda_count *counts, size_t n)
{
    enum tr_lda_row kind = (enum tr_lda_row)l->kind[place];
    uint32_t *row = (void *)((char *)block + l->row[place]), length = 0;
    if (kind == TR_LDA_DENSE || kind == TR_LDA_WIDE) memset(row, 0, row_bytes(kind, 1, l->topics));
    for (size_t i = 0; i < n; i++)
        if (counts[i].count) TR_TRY(write_count(l, place, row, length++, counts[i].topic, counts[i].count));
    if (kind == TR_LDA_LIST) row[0] = length;
    return TR_OK;
}

void tr_lda_block_totals(const struct tr_lda_layout *l, int number, const void *block, int64_t *total)
{
    for (uint64_t p = l->first[number]; p < l->first[number + 1]; p++)
        for (struct tr_lda_cursor c = tr_lda_row(l, block, p); tr_lda_next(&c);) total[c.topic] += c.count;
}

/* ================ the sampler ================ */

/* The counts n_dk of a document are its record, which occupies whole cache lines and has one of three forms:
 *
 *   dense  uint16_t count[topics], for few topics if no document is long: reading all counts for every token costs less than
 *          maintaining a list
 *   list   uint32_t number of pairs, then pairs topic | count << 16 in any order, then zeros
 *   wide   a line that starts with WIDE, then uint32_t count[topics]: a document of more than 65535 tokens */
#define WIDE   UINT32_MAX
#define INLINE static inline __attribute__((always_inline)) /* callers pass constants for some arguments */

/* ---- random numbers: xoroshiro128+ (Blackman and Vigna), inline because every token needs a random number ---- */

static inline uint64_t next(struct tr_lda_random *r)
{
    uint64_t a = r->a, b = r->b, sum = a + b;
    b ^= a;
    r->a = (a << 24 | a >> 40) ^ b ^ b << 16;
    r->b = b << 37 | b >> 27;
    return sum;
}

/* uniform() and uniform_low() make two independent numbers in [0, 1) from different bits of the same random number. */
static inline float uniform(uint64_t bits)
{
    return (float)(int32_t)(bits >> 40) * 0x1p-24f;
}

static inline float uniform_low(uint64_t bits)
{
    return (float)(int32_t)(bits >> 16 & 0xffffff) * 0x1p-24f;
}

/* ---- tokens and records ---- */

static inline uint32_t get(const void *topics, int bytes, uint64_t i)
{
    return bytes == 1 ? ((const uint8_t *)topics)[i] : ((const uint16_t *)topics)[i];
}

static inline void set(void *topics, int bytes, uint64_t i, uint32_t topic)
{
    if (bytes == 1) ((uint8_t *)topics)[i] = (uint8_t)topic;
    else ((uint16_t *)topics)[i] = (uint16_t)topic;
}

static inline uint32_t topic_of(const struct tr_lda_sampler *s, uint64_t token)
{
    return get(s->topic, s->topic_bytes, token);
}

static inline void set_topic(struct tr_lda_sampler *s, uint64_t token, uint32_t topic)
{
    set(s->topic, s->topic_bytes, token, topic);
}

static inline void *record(const struct tr_lda_sampler *s, uint32_t line)
{
    return s->records + (size_t)line * LINE;
}

static inline void fetch(const struct tr_lda_sampler *s, uint32_t line, uint64_t lines)
{
    const char *r = record(s, line);
    for (uint64_t i = 0; i < lines; i++) __builtin_prefetch(r + i * LINE, 1);
}

/* Prefetches the second and further cache lines of a list. The first line has arrived. */
static inline void fetch_list(const struct tr_lda_sampler *s, uint32_t line)
{
    const uint32_t *list = record(s, line);
    if (list[0] == WIDE) return;
    for (uint32_t i = LANES; i <= list[0]; i += LANES) __builtin_prefetch(list + i, 1);
}

/* ---- changes of counts ---- */

/* Returns q_k after one token of the word is removed from topic k. */
static inline float without_one(const struct tr_lda_sampler *s, uint32_t k)
{
    return ((float)(int32_t)(s->count[k] - 1) + (float)s->beta) /
           ((float)(s->total[k] - 1) + (float)s->words_beta);
}

/* Sets q_k, and updates the sums of α_k q_k. */
static inline void set_q(struct tr_lda_sampler *s, uint32_t k, float q)
{
    if (s->lists) {
        double by = (double)s->alpha[k] * ((double)q - (double)s->q[k]);
        s->part[k >> s->part_shift] += by;
        s->prior += by;
    }
    s->q[k] = q;
}

/* Adds `by` to n_wk and n_k of topic k. */
static inline void shift(struct tr_lda_sampler *s, uint32_t k, int by)
{
    s->count[k] += (uint32_t)by;
    s->total[k] += by;
    float g = 1 / ((float)s->total[k] + (float)s->words_beta);
    s->g[k] = g;
    set_q(s, k, ((float)(int32_t)s->count[k] + (float)s->beta) * g);
}

/* Moves a token of the current word from topic k to topic z. */
static inline void move_word(struct tr_lda_sampler *s, uint32_t k, uint32_t z)
{
    shift(s, k, -1);
    shift(s, z, 1);
    if (s->q_empty && !s->marked[z]) {
        s->marked[z] = 1;
        s->touched[s->n_touched++] = z;
    }
}

/* Moves a token of a document from one pair of its list to another.
 *
 * @param [in] from, to  indices of the pairs; to = 0: a new pair for `topic` is added */
static inline void move_pair(uint32_t *list, size_t from, size_t to, uint32_t topic)
{
    const uint32_t one = 1 << 16;
    list[from] -= one;
    if (to) list[to] += one;
    if (list[from] < one) {
        uint32_t last = list[0];
        if (!to) {
            list[from] = topic | one;
        } else {
            list[from] = list[last];
            list[last] = 0;
            list[0] = last - 1;
        }
    } else if (!to) {
        list[++list[0]] = topic | one;
    }
}

/* Reads a row that is a list into s->count, `touched` and q. */
static void begin_list(struct tr_lda_sampler *s, const uint32_t *row)
{
    for (uint32_t i = 0; i < row[0]; i++) {
        uint32_t k = row[1 + i] & 0xffff;
        s->touched[i] = k;
        s->marked[k] = 1;
        s->count[k] = row[1 + i] >> 16;
        set_q(s, k, ((float)(int32_t)s->count[k] + (float)s->beta) * s->g[k]);
    }
    s->n_touched = row[0];
}

/* Writes the row back, and sets s->count and q to those of a word without tokens. */
static void end_list(struct tr_lda_sampler *s, uint32_t *row)
{
    uint32_t n = 0;
    for (size_t i = 0; i < s->n_touched; i++) {
        uint32_t k = s->touched[i];
        if (s->count[k]) row[1 + n++] = k | s->count[k] << 16;
        s->count[k] = 0;
        s->marked[k] = 0;
        set_q(s, k, (float)s->beta * s->g[k]);
    }
    row[0] = n;
    s->n_touched = 0;
}

/* Called every few words: the first `bytes` bytes of the block will not change further. */
static inline void between_words(const struct tr_lda_sampler *s, uint64_t bytes)
{
    if (s->done) s->done(s->who, bytes);
    tr_seam();
}

/* Adds the logarithm of the sum of the weights of a draw, a float, to s->log_weights: most calls only multiply. */
static inline void count_weight(struct tr_lda_sampler *s, double weight)
{
    s->product *= weight;
    if (s->product > 1e-200 && s->product < 1e200) return;
    s->log_weights += log(s->product);
    s->product = 1;
}

#define TR_KERNEL "lda/sampler_kernel.h"
#include "../levels.h"

void tr_lda_sample(struct tr_lda_sampler *s, int number, void *block)
{
    s->product = 1;
    TR_BY_LEVEL(s->cpu, sample)(s, number, block);
    s->log_weights += log(s->product);
}

/* ---- opening ---- */

static uint64_t place_of(const struct tr_lda_sampler *s, const tr_key *keys, uint32_t column)
{
    return s->layout->place[keys ? keys[column] : column];
}

/* Returns the number of cache lines of the record of a document with `length` tokens. */
static uint64_t lines_of(const struct tr_lda_sampler *s, uint32_t length)
{
    uint64_t topics = s->layout->topics;
    if (!s->lists) return (s->vectors * LANES * 2 + LINE - 1) / LINE;
    if (length > s->longest) return 1 + (topics * 4 + LINE - 1) / LINE;
    return ((length < topics ? length : topics) * 4 + 4 + LINE - 1) / LINE;
}

void tr_lda_reseed(struct tr_lda_sampler *s, uint64_t stream, uint64_t time)
{
    struct tr_rng rng;
    tr_rng_seed(&rng, s->seed, stream, 0x1da + (time << 16));
    s->rng = (struct tr_lda_random){tr_rng_next(&rng), tr_rng_next(&rng) | 1};
}

static int fill(struct tr_lda_sampler *s, const struct tr_lda_options *options, const tr_batch *b,
                const tr_key *keys, const uint64_t *number)
{
    tr_lda_reseed(s, options->stream, 0);
    TR_TRY(TR_NEW(&s->number, s->documents));
    for (uint64_t d = 0; d < s->documents; d++) s->number[d] = number ? number[d] : d;
    TR_TRY(TR_NEW(&s->length, s->documents));
    TR_TRY(TR_NEW(&s->line, s->documents));
    TR_TRY(TR_NEW(&s->begin, s->layout->words + 1));
    uint32_t topics = s->layout->topics;
    s->vectors = (topics + LANES - 1) / LANES;
    /* draw_prior() searches all parts, then one part: about sqrt(topics) parts make its work smallest. */
    for (s->part_shift = 4; 1u << (2 * s->part_shift - 2) < topics;) s->part_shift++;
    s->parts = (s->vectors * LANES + (1u << s->part_shift) - 1) >> s->part_shift;
    s->part_vectors = (s->parts + LANES - 1) / LANES;
    s->room = s->parts << s->part_shift;
    TR_TRY(TR_NEW(&s->alpha_exact, topics));
    TR_TRY(TR_NEW(&s->alpha_log, topics));
    TR_TRY(TR_NEW(&s->total, topics));
    TR_TRY(TR_NEW(&s->marked, topics));
    TR_TRY(TR_NEW(&s->touched, topics));
    TR_TRY(TR_NEW_ALIGNED(&s->part, s->part_vectors * LANES, true));
    TR_TRY(TR_NEW(&s->count, s->room));
    TR_TRY(TR_NEW_ALIGNED(&s->alpha, s->room, true));
    TR_TRY(TR_NEW_ALIGNED(&s->g, s->room, true));
    TR_TRY(TR_NEW_ALIGNED(&s->q, s->room + LANES, true)); /* weigh_list() also reads q at index list[0] */
    TR_TRY(TR_NEW_ALIGNED(&s->draw.sums, (s->vectors + 1) * LANES, true));
    size_t run = (size_t)1 << s->part_shift, parts = s->part_vectors * LANES;
    TR_TRY(TR_NEW_ALIGNED(&s->prior_draw.sums, tr_max_size(run, parts), true));
    for (size_t d = 0; d < b->n; d++) {
        uint64_t length = 0;
        for (uint64_t i = b->begin[d]; i < b->begin[d + 1]; i++) {
            float c = tr_value_at(b, i);
            if (!(c >= 1 && c <= 0x1p24f && c == truncf(c)))
                return tr_fail(TR_ERR_DATA,
                               "document %" PRIu64 ": count %g: expected a whole number of 1 to 2^24",
                               s->number[d] + 1, (double)c);
            s->begin[place_of(s, keys, b->column[i]) + 1] += (uint64_t)c;
            length += (uint64_t)c;
        }
        if (length > UINT32_MAX)
            return tr_fail(TR_ERR_DATA, "document %" PRIu64 ": %" PRIu64 " tokens: expected below 2^32",
                           s->number[d] + 1, length);
        s->length[d] = (uint32_t)length;
        s->tokens += length;
    }
    for (uint64_t p = 0; p < s->layout->words; p++) s->begin[p + 1] += s->begin[p];
    uint32_t longest = 0;
    for (uint64_t d = 0; d < s->documents; d++)
        if (s->length[d] > longest) longest = s->length[d];
    s->lists = longest > LONGEST || options->records != TR_LDA_FASTEST || s->layout->topics > DENSE_TOPICS;
    s->longest = options->records == TR_LDA_WIDES ? 0 : LONGEST;
    s->record_lines = lines_of(s, 0);
    for (uint64_t d = 0; d < s->documents; d++) {
        s->line[d] = (uint32_t)s->lines;
        s->lines += lines_of(s, s->length[d]);
        if (s->lines > UINT32_MAX)
            return tr_fail(TR_ERR_SYSTEM, "documents need over 256 GiB for their topics: use more workers");
    }
    TR_TRY(TR_NEW_ALIGNED(&s->records, s->lines * LINE, true)); /* huge pages, because access is random */
    TR_TRY(TR_NEW(&s->at, s->tokens + AHEAD));
    TR_TRY(tr_new(&s->topic, s->tokens, (size_t)s->topic_bytes, "topics of tokens"));
    TR_FREED uint64_t *next_token = NULL;
    TR_TRY(TR_NEW(&next_token, s->layout->words));
    memcpy(next_token, s->begin, s->layout->words * sizeof *next_token);
    for (size_t d = 0; d < b->n; d++)
        for (uint64_t i = b->begin[d]; i < b->begin[d + 1]; i++) {
            uint64_t *at = &next_token[place_of(s, keys, b->column[i])];
            for (uint64_t c = (uint64_t)tr_value_at(b, i); c; c--) s->at[(*at)++] = s->line[d];
        }
    return TR_OK;
}

int tr_lda_open(const struct tr_lda_options *options, const struct tr_lda_layout *layout,
                const tr_batch *documents, const tr_key *keys, const uint64_t *number,
                struct tr_lda_sampler **sampler)
{
    struct tr_lda_sampler *s = NULL;
    TR_TRY(TR_NEW_ALIGNED(&s, 1, true));
    s->layout = layout;
    s->cpu = options->cpu;
    s->seed = options->seed;
    s->documents = documents->n;
    s->topic_bytes = layout->topics <= 256 ? 1 : 2;
    int status = fill(s, options, documents, keys, number);
    if (status == TR_OK) *sampler = s;
    else tr_lda_close(&s);
    return status;
}

void tr_lda_close(struct tr_lda_sampler **sampler)
{
    struct tr_lda_sampler *s = *sampler;
    *sampler = NULL;
    if (!s) return;
    TR_FREE_ALL(s->number, s->length, s->line, s->records, s->begin, s->at, s->topic, s->alpha_exact,
                s->alpha_log, s->alpha, s->total, s->count, s->g, s->q, s->marked, s->touched, s->part,
                s->draw.sums, s->prior_draw.sums, s);
}

/* ---- priors and totals ---- */

void tr_lda_priors(struct tr_lda_sampler *s, const double *alpha, double beta)
{
    s->alpha_sum = 0;
    for (uint32_t k = 0; k < s->layout->topics; k++) {
        s->alpha_exact[k] = alpha[k];
        s->alpha[k] = alpha[k] > 1e-20 ? (float)alpha[k] : 1e-20f; /* keeps sums of weights above 0 */
        s->alpha_log[k] = lgamma(alpha[k]);
        s->alpha_sum += alpha[k];
    }
    s->beta = beta;
    s->words_beta = beta * (double)s->layout->words;
}

void tr_lda_set_totals(struct tr_lda_sampler *s, const int64_t *total)
{
    memcpy(s->total, total, s->layout->topics * sizeof *total);
}

/* ---- topics of tokens, and counts of documents ---- */

static void clear_records(struct tr_lda_sampler *s)
{
    memset(s->records, 0, s->lines * LINE);
    for (uint64_t d = 0; s->lists && d < s->documents; d++)
        if (s->length[d] > s->longest) *(uint32_t *)record(s, s->line[d]) = WIDE;
}

/* Adds all tokens to the records of their documents. */
static void count_topics(struct tr_lda_sampler *s)
{
    for (uint64_t token = 0; token < s->tokens; token++) {
        uint32_t k = topic_of(s, token), *list = record(s, s->at[token]);
        if (!s->lists) {
            ((uint16_t *)(void *)list)[k]++;
        } else if (list[0] == WIDE) {
            list[LANES + k]++;
        } else {
            uint32_t i = 1;
            while (i <= list[0] && (list[i] & 0xffff) != k) i++;
            if (i > list[0]) list[list[0] = i] = k;
            list[i] += 1 << 16;
        }
    }
}

void tr_lda_start(struct tr_lda_sampler *s)
{
    for (uint64_t d = 0; d < s->documents; d++) { /* store the topic of each document in its record for now */
        uint64_t bits = tr_mix(s->seed ^ tr_mix(s->number[d]));
        *(uint32_t *)record(s, s->line[d]) = (uint32_t)((bits >> 32) * s->layout->topics >> 32);
    }
    for (uint64_t i = 0; i < s->tokens; i++) set_topic(s, i, *(const uint32_t *)record(s, s->at[i]));
    clear_records(s);
    count_topics(s);
}

int tr_lda_topics(struct tr_lda_sampler *s, const uint64_t *begin, void *topics, bool restore)
{
    int bytes = s->topic_bytes;
    /* next[l], where the record of a document begins at line l: index in `topics` of the document's next topic */
    TR_FREED uint64_t *next = NULL;
    TR_TRY(TR_NEW(&next, s->lines));
    for (uint64_t d = 0; d < s->documents; d++) next[s->line[d]] = begin[d] * (4 / (uint64_t)bytes);
    for (uint64_t w = 0; w < s->layout->words; w++) {
        uint64_t p = s->layout->place[w];
        for (uint64_t i = s->begin[p]; i < s->begin[p + 1]; i++) {
            uint64_t at = next[s->at[i]]++;
            if (restore) set_topic(s, i, get(topics, bytes, at));
            else set(topics, bytes, at, topic_of(s, i));
        }
    }
    return TR_OK;
}

/* Returns the list of a document, or NULL if its record has another form. */
static uint32_t *list_of(const struct tr_lda_sampler *s, uint64_t document)
{
    uint32_t *list = record(s, s->line[document]);
    return s->lists && list[0] != WIDE ? list : NULL;
}

uint32_t tr_lda_order(const struct tr_lda_sampler *s, uint64_t document, uint64_t begin, void *topics)
{
    const uint32_t *list = list_of(s, document);
    uint32_t n = list ? list[0] : 0;
    uint64_t first = begin * (4 / (uint64_t)s->topic_bytes);
    for (uint32_t i = 0; i < n && topics; i++) set(topics, s->topic_bytes, first + i, list[1 + i] & 0xffff);
    return n;
}

static int wrong_topics(const struct tr_lda_sampler *s, uint64_t document)
{
    return tr_fail(TR_ERR_DATA, "document %" PRIu64 " has other topics", s->number[document] + 1);
}

int tr_lda_recount(struct tr_lda_sampler *s, const uint32_t *n, const uint64_t *begin, const void *order)
{
    uint32_t topics = s->layout->topics;
    for (uint64_t i = 0; i < s->tokens; i++)
        if (topic_of(s, i) >= topics)
            return tr_fail(TR_ERR_DATA, "token %" PRIu64 " has topic %" PRIu32 ": expected below %" PRIu32, i,
                           topic_of(s, i), topics);
    clear_records(s);
    for (uint64_t d = 0; d < s->documents; d++) {
        uint32_t *list = list_of(s, d);
        uint64_t first = begin[d] * (4 / (uint64_t)s->topic_bytes);
        if (!list) continue;
        if (n[d] > s->length[d] || n[d] > topics) return wrong_topics(s, d);
        list[0] = n[d];
        for (uint32_t i = 0; i < n[d]; i++) list[1 + i] = get(order, s->topic_bytes, first + i);
    }
    count_topics(s);
    for (uint64_t d = 0; d < s->documents; d++) {
        const uint32_t *list = list_of(s, d);
        if (n[d] == 0 || !list) continue; /* the document has no list, here or in the checkpoint */
        if (list[0] != n[d]) return wrong_topics(s, d);
        for (uint32_t i = 1; i <= n[d]; i++)
            if (!(list[i] >> 16)) return wrong_topics(s, d);
    }
    return TR_OK;
}

int tr_lda_count_block(const struct tr_lda_sampler *s, int number, void *block)
{
    const struct tr_lda_layout *l = s->layout;
    for (uint64_t p = l->first[number]; p < l->first[number + 1]; p++) {
        if (p % 16 == 0) tr_seam();
        for (uint64_t i = s->begin[p]; i < s->begin[p + 1]; i++)
            TR_TRY(tr_lda_row_add(l, block, p, topic_of(s, i)));
    }
    return TR_OK;
}

struct tr_lda_cursor tr_lda_document(const struct tr_lda_sampler *s, uint64_t document)
{
    const uint32_t *list = record(s, s->line[document]);
    if (!s->lists) return tr_lda_cursor(TR_LDA_DENSE, list, s->layout->topics);
    if (list[0] == WIDE) return tr_lda_cursor(TR_LDA_WIDE, list + LANES, s->layout->topics);
    return tr_lda_cursor(TR_LDA_LIST, list, s->layout->topics);
}

/* ---- the likelihood ---- */

double tr_lda_log_lengths(const struct tr_lda_sampler *s)
{
    double sum = 0;
    for (uint64_t d = 0; d < s->documents; d++) sum += s->length[d] * log(s->length[d] + s->alpha_sum);
    return sum;
}

void tr_lda_rises_make(double a, struct tr_lda_rises *r)
{
    r->a = a;
    r->log_gamma = lgamma(a);
    r->of[0] = 0;
    for (int n = 1; n < TR_LDA_RISES; n++) r->of[n] = r->of[n - 1] + log(n - 1 + a);
}

double tr_lda_rise(const struct tr_lda_rises *r, uint32_t n)
{
    return n < TR_LDA_RISES ? r->of[n] : lgamma(n + r->a) - r->log_gamma;
}

/* Returns ln Γ(n + a) - ln Γ(a) without a table, for varying a. */
static double rise(uint32_t n, double a, double log_gamma_a)
{
    if (n > 8) return lgamma(n + a) - log_gamma_a;
    double product = 1;
    for (uint32_t i = 0; i < n; i++) product *= a + i;
    return log(product);
}

double tr_lda_log_documents(const struct tr_lda_sampler *s)
{
    struct tr_lda_rises rises;
    const double *alpha = s->alpha_exact;
    bool symmetric = true;
    double sum = 0, log_gamma_all = lgamma(s->alpha_sum);
    for (uint32_t k = 1; k < s->layout->topics; k++) symmetric &= alpha[k] == alpha[0];
    if (symmetric) tr_lda_rises_make(alpha[0], &rises);
    for (uint64_t d = 0; d < s->documents; d++) {
        double own = 0;
        if (d % 64 == 0) tr_seam();
        for (struct tr_lda_cursor c = tr_lda_document(s, d); tr_lda_next(&c);)
            own += symmetric ? tr_lda_rise(&rises, c.count)
                             : rise(c.count, alpha[c.topic], s->alpha_log[c.topic]);
        sum += own - rise(s->length[d], s->alpha_sum, log_gamma_all);
    }
    return sum;
}

double tr_lda_log_block(const struct tr_lda_layout *l, int number, const void *block, double beta)
{
    double sum = 0;
    struct tr_lda_rises rises;
    tr_lda_rises_make(beta, &rises);
    for (uint64_t p = l->first[number]; p < l->first[number + 1]; p++) {
        if (p % 64 == 0) tr_seam();
        for (struct tr_lda_cursor c = tr_lda_row(l, block, p); tr_lda_next(&c);)
            sum += tr_lda_rise(&rises, c.count);
    }
    return sum;
}

double tr_lda_log_totals(const struct tr_lda_layout *l, const int64_t *total, double beta)
{
    double sum = 0, all = beta * (double)l->words;
    for (uint32_t k = 0; k < l->topics; k++) sum += lgamma(all) - lgamma((double)total[k] + all);
    return sum;
}
