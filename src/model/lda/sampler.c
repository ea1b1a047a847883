#define _GNU_SOURCE
#include "sampler.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#ifdef __x86_64__
#include <immintrin.h>
#endif

/* How the counts of a document lie: in records of whole cache lines, of three kinds.
 *
 *   dense  uint16_t count[topics], if topics are few and no document is long: all of it is read for every token, and
 *          that is less work than to keep a list
 *   list   uint32_t: the number of pairs, then pairs topic | count << 16 without order, then zeros
 *   wide   a line that begins with WIDE, then uint32_t count[topics]: a document of more than 65535 tokens among lists
 */
enum {
    LINE = 64,
    LANES = 16,         /* weights in a vector */
    AHEAD = 16,         /* tokens between asking for a record and using it */
    DENSE_TOPICS = 256, /* at most, for dense records */
    LONGEST = 65535     /* tokens of a document whose counts fit in 16 bits */
};
#define WIDE   UINT32_MAX
#define INLINE static inline __attribute__((always_inline)) /* with sizes that are then known */

static const size_t huge_page = 2 << 20;

/* What a draw is made from: see sampler_kernel.h. */
struct draw {
    float lanes[2 * LANES] __attribute__((aligned(64))); /* zeros, then prefix sums over the lanes */
    float *sums;                                         /* vectors × LANES */
    size_t vectors;
    float sum;  /* of all */
    bool ready; /* made for the document of the next token, and still right */
};

struct random {
    uint64_t a, b;
};

struct tr_lda_sampler {
    const struct tr_lda_layout *layout;
    enum tr_cpu cpu;
    uint64_t seed;

    /* documents */
    uint64_t documents, tokens;
    uint64_t *number;      /* of each among those of all workers */
    uint32_t *length;      /* tokens */
    uint32_t *line;        /* where its record begins, in lines */
    char *records;         /* line by line */
    uint64_t lines;        /* of all records */
    bool lists;            /* records are lists and wide ones, not dense */
    uint64_t record_lines; /* of a dense record */
    uint32_t longest;      /* document with a list; longer ones are wide */

    /* tokens, in the order of blocks, words and documents */
    uint64_t *begin; /* by place: tokens of the word; words + 1 */
    uint32_t *at;    /* line of the document's record */
    void *topic;     /* one or two bytes */
    int topic_bytes;

    /* priors and totals; arrays of floats have zeros from `topics` to `room` */
    size_t room;
    double *alpha_exact, *alpha_log /* ln Γ(α_k) */, alpha_sum, beta, words_beta;
    float *alpha;
    int64_t *total, *before, *moved;

    /* the word at hand */
    uint32_t *count; /* n_wk */
    float *g, *q;    /* 1 / (n_k + Vβ); (n_wk + β) g_k */
    bool q_empty;    /* q is β g_k but for the topics touched */
    uint8_t *marked; /* topics that stand in touched */
    uint32_t *touched;
    size_t n_touched;
    double *part, prior; /* sums of α_k q_k over 2^part_shift topics each, and over all */
    size_t parts, part_vectors;
    int part_shift; /* at least 4: whole vectors */

    size_t vectors; /* of topics */
    struct draw draw, prior_draw;
    struct random rng;
};

/* ---- random numbers: xoroshiro128+ (Blackman and Vigna), inline because every token needs one ---- */

static inline uint64_t next(struct random *r)
{
    uint64_t a = r->a, b = r->b, sum = a + b;
    b ^= a;
    r->a = (a << 24 | a >> 40) ^ b ^ b << 16;
    r->b = b << 37 | b >> 27;
    return sum;
}

/* Two independent numbers in [0, 1) from the bits of one. */
static inline float uniform(uint64_t bits)
{
    return (float)(int32_t)(bits >> 40) * 0x1p-24f;
}

static inline float uniform_low(uint64_t bits)
{
    return (float)(int32_t)(bits >> 16 & 0xffffff) * 0x1p-24f;
}

/* ---- tokens and records ---- */

static inline uint32_t topic_of(const struct tr_lda_sampler *s, uint64_t token)
{
    return s->topic_bytes == 1 ? ((const uint8_t *)s->topic)[token] : ((const uint16_t *)s->topic)[token];
}

static inline void set_topic(struct tr_lda_sampler *s, uint64_t token, uint32_t topic)
{
    if (s->topic_bytes == 1) ((uint8_t *)s->topic)[token] = (uint8_t)topic;
    else ((uint16_t *)s->topic)[token] = (uint16_t)topic;
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

/* The lines of a list behind its first, which has come by now. */
static inline void fetch_list(const struct tr_lda_sampler *s, uint32_t line)
{
    const uint32_t *list = record(s, line);
    if (list[0] == WIDE) return;
    for (uint32_t i = LANES; i <= list[0]; i += LANES) __builtin_prefetch(list + i, 1);
}

/* ---- changes of counts ---- */

/* q_k as it would be without one token of the word. */
static inline float without_one(const struct tr_lda_sampler *s, uint32_t k)
{
    return ((float)(int32_t)(s->count[k] - 1) + (float)s->beta) /
           ((float)(s->total[k] - 1) + (float)s->words_beta);
}

static inline void set_q(struct tr_lda_sampler *s, uint32_t k, float q)
{
    if (s->lists) {
        double by = (double)s->alpha[k] * ((double)q - (double)s->q[k]);
        s->part[k >> s->part_shift] += by;
        s->prior += by;
    }
    s->q[k] = q;
}

static inline void shift(struct tr_lda_sampler *s, uint32_t k, int by)
{
    s->count[k] += (uint32_t)by;
    s->total[k] += by;
    float g = 1 / ((float)s->total[k] + (float)s->words_beta);
    s->g[k] = g;
    set_q(s, k, ((float)(int32_t)s->count[k] + (float)s->beta) * g);
}

/* A token of the word goes from topic k to z. */
static inline void move_word(struct tr_lda_sampler *s, uint32_t k, uint32_t z)
{
    shift(s, k, -1);
    shift(s, z, 1);
    if (s->q_empty && !s->marked[z]) {
        s->marked[z] = 1;
        s->touched[s->n_touched++] = z;
    }
}

/* A token of the document goes from the pair at one place to that at another, or, if this is 0, to a new one. */
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

#define NAME(f) f##_plain
#include "sampler_kernel.h"
#ifdef TR_CPU_LEVELS
#pragma GCC push_options
#pragma GCC target("avx2,fma,bmi,bmi2,lzcnt,popcnt,f16c")
#define NAME(f) f##_avx2
#include "sampler_kernel.h"
#pragma GCC pop_options
#pragma GCC push_options
#pragma GCC target("avx2,fma,bmi,bmi2,lzcnt,popcnt,f16c,avx512f,avx512bw,avx512dq,avx512vl")
#define NAME(f) f##_avx512
#include "sampler_kernel.h"
#pragma GCC pop_options
#endif

void tr_lda_sample(struct tr_lda_sampler *s, int number, void *block)
{
#ifdef TR_CPU_LEVELS
    if (s->cpu == TR_CPU_AVX512) sample_avx512(s, number, block);
    else if (s->cpu == TR_CPU_AVX2) sample_avx2(s, number, block);
    else
#endif
        sample_plain(s, number, block);
}

/* ---- opening ---- */

/* Zeroed memory in huge pages where the system gives them: tokens go to documents that lie anywhere. */
static int big(size_t bytes, char **memory)
{
    size_t room = (bytes + huge_page - 1) / huge_page * huge_page;
    *memory = aligned_alloc(huge_page, room ? room : huge_page);
    if (!*memory) return tr_fail(TR_ERR_SYSTEM, "out of memory: %zu bytes for topics of documents", bytes);
    madvise(*memory, room, MADV_HUGEPAGE);
    memset(*memory, 0, room);
    return TR_OK;
}

static int floats(size_t n, float **array)
{
    *array = aligned_alloc(LINE, n * sizeof **array);
    if (!*array) return tr_fail(TR_ERR_SYSTEM, "out of memory: %zu floats", n);
    memset(*array, 0, n * sizeof **array);
    return TR_OK;
}

static int doubles(size_t n, double **array)
{
    *array = aligned_alloc(LINE, n * sizeof **array);
    if (!*array) return tr_fail(TR_ERR_SYSTEM, "out of memory: %zu doubles", n);
    memset(*array, 0, n * sizeof **array);
    return TR_OK;
}

static uint64_t place_of(const struct tr_lda_sampler *s, const tr_key *keys, uint32_t column)
{
    return s->layout->place[keys ? keys[column] : column];
}

static int count_tokens(struct tr_lda_sampler *s, const tr_batch *b, const tr_key *keys)
{
    for (size_t d = 0; d < b->n; d++) {
        uint64_t length = 0;
        for (uint64_t i = b->begin[d]; i < b->begin[d + 1]; i++) {
            float c = b->value ? b->value[i] : 1;
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
    return TR_OK;
}

static uint64_t lines_of(const struct tr_lda_sampler *s, uint32_t length)
{
    uint64_t topics = s->layout->topics;
    if (!s->lists) return (s->vectors * LANES * 2 + LINE - 1) / LINE;
    if (length > s->longest) return 1 + (topics * 4 + LINE - 1) / LINE;
    return ((length < topics ? length : topics) * 4 + 4 + LINE - 1) / LINE;
}

static int lay_documents(struct tr_lda_sampler *s, enum tr_lda_records records)
{
    uint32_t longest = 0;
    for (uint64_t d = 0; d < s->documents; d++)
        if (s->length[d] > longest) longest = s->length[d];
    s->lists = longest > LONGEST || records != TR_LDA_FASTEST || s->layout->topics > DENSE_TOPICS;
    s->longest = records == TR_LDA_WIDES ? 0 : LONGEST;
    s->record_lines = lines_of(s, 0);
    for (uint64_t d = 0; d < s->documents; d++) {
        s->line[d] = (uint32_t)s->lines;
        s->lines += lines_of(s, s->length[d]);
        if (s->lines > UINT32_MAX)
            return tr_fail(TR_ERR_SYSTEM, "documents need over 256 GiB for their topics: use more workers");
    }
    return big(s->lines * LINE, &s->records);
}

static int lay_tokens(struct tr_lda_sampler *s, const tr_batch *b, const tr_key *keys)
{
    uint64_t *next_token;
    TR_TRY(TR_NEW(&next_token, s->layout->words));
    memcpy(next_token, s->begin, s->layout->words * sizeof *next_token);
    for (size_t d = 0; d < b->n; d++)
        for (uint64_t i = b->begin[d]; i < b->begin[d + 1]; i++) {
            uint64_t *at = &next_token[place_of(s, keys, b->column[i])];
            for (uint64_t c = b->value ? (uint64_t)b->value[i] : 1; c; c--) s->at[(*at)++] = s->line[d];
        }
    free(next_token);
    return TR_OK;
}

static int make_arrays(struct tr_lda_sampler *s)
{
    uint32_t topics = s->layout->topics;
    s->vectors = (topics + LANES - 1) / LANES;
    /* A draw from the prior looks through the parts, then through one of them. */
    for (s->part_shift = 4; 1u << (2 * s->part_shift - 2) < topics;) s->part_shift++;
    s->parts = (s->vectors * LANES + (1u << s->part_shift) - 1) >> s->part_shift;
    s->part_vectors = (s->parts + LANES - 1) / LANES;
    s->room = s->parts << s->part_shift;
    TR_TRY(TR_NEW(&s->alpha_exact, topics));
    TR_TRY(TR_NEW(&s->alpha_log, topics));
    TR_TRY(TR_NEW(&s->total, topics));
    TR_TRY(TR_NEW(&s->before, topics));
    TR_TRY(TR_NEW(&s->moved, topics));
    TR_TRY(TR_NEW(&s->marked, topics));
    TR_TRY(TR_NEW(&s->touched, topics));
    TR_TRY(doubles(s->part_vectors * LANES, &s->part));
    TR_TRY(TR_NEW(&s->count, s->room));
    TR_TRY(floats(s->room, &s->alpha));
    TR_TRY(floats(s->room, &s->g));
    TR_TRY(floats(s->room + LANES, &s->q)); /* a list's header is looked up, too */
    TR_TRY(floats((s->vectors + 1) * LANES, &s->draw.sums));
    size_t run = (size_t)1 << s->part_shift, parts = s->part_vectors * LANES;
    return floats(run > parts ? run : parts, &s->prior_draw.sums);
}

void tr_lda_reseed(struct tr_lda_sampler *s, uint64_t stream, uint64_t time)
{
    struct tr_rng rng;
    tr_rng_seed(&rng, s->seed, stream, 0x1da + (time << 16));
    s->rng = (struct random){tr_rng_next(&rng), tr_rng_next(&rng) | 1};
}

void *tr_lda_random(struct tr_lda_sampler *s, size_t *bytes)
{
    *bytes = sizeof s->rng;
    return &s->rng;
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
    TR_TRY(make_arrays(s));
    TR_TRY(count_tokens(s, b, keys));
    TR_TRY(lay_documents(s, options->records));
    TR_TRY(TR_NEW(&s->at, s->tokens + AHEAD));
    TR_TRY(tr_new(&s->topic, s->tokens, (size_t)s->topic_bytes, "topics of tokens"));
    return lay_tokens(s, b, keys);
}

int tr_lda_open(const struct tr_lda_options *options, const struct tr_lda_layout *layout,
                const tr_batch *documents, const tr_key *keys, const uint64_t *number,
                struct tr_lda_sampler **sampler)
{
    struct tr_lda_sampler *s = aligned_alloc(LINE, sizeof *s);
    if (!s) return tr_fail(TR_ERR_SYSTEM, "out of memory: a sampler");
    memset(s, 0, sizeof *s);
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
    void *memory[] = {s->number,          s->length,  s->line,  s->records,
                      s->begin,           s->at,      s->topic, s->alpha_exact,
                      s->alpha_log,       s->alpha,   s->total, s->before,
                      s->moved,           s->count,   s->g,     s->q,
                      s->marked,          s->touched, s->part,  s->draw.sums,
                      s->prior_draw.sums, s};
    for (size_t i = 0; i < sizeof memory / sizeof *memory; i++) free(memory[i]);
}

/* ---- priors and totals ---- */

void tr_lda_priors(struct tr_lda_sampler *s, const double *alpha, double beta)
{
    s->alpha_sum = 0;
    for (uint32_t k = 0; k < s->layout->topics; k++) {
        s->alpha_exact[k] = alpha[k];
        s->alpha[k] =
            alpha[k] > 1e-20 ? (float)alpha[k] : 1e-20f; /* so that there is always something to draw */
        s->alpha_log[k] = lgamma(alpha[k]);
        s->alpha_sum += alpha[k];
    }
    s->beta = beta;
    s->words_beta = beta * (double)s->layout->words;
}

void tr_lda_set_totals(struct tr_lda_sampler *s, const int64_t *total)
{
    memcpy(s->total, total, s->layout->topics * sizeof *total);
    memcpy(s->before, total, s->layout->topics * sizeof *total);
}

const int64_t *tr_lda_moved(struct tr_lda_sampler *s)
{
    for (uint32_t k = 0; k < s->layout->topics; k++) s->moved[k] = s->total[k] - s->before[k];
    return s->moved;
}

/* ---- topics at the start, and counts of documents from topics ---- */

static void clear_records(const struct tr_lda_sampler *s, char *records)
{
    memset(records, 0, s->lines * LINE);
    for (uint64_t d = 0; s->lists && d < s->documents; d++)
        if (s->length[d] > s->longest) *(uint32_t *)(void *)(records + (size_t)s->line[d] * LINE) = WIDE;
}

static void add_topic(const struct tr_lda_sampler *s, char *records, uint64_t token, uint32_t k)
{
    void *memory = records + (size_t)s->at[token] * LINE;
    uint32_t *list = memory;
    if (!s->lists) {
        ((uint16_t *)memory)[k]++;
    } else if (list[0] == WIDE) {
        list[LANES + k]++;
    } else {
        uint32_t i = 1;
        while (i <= list[0] && (list[i] & 0xffff) != k) i++;
        if (i > list[0]) list[list[0] = i] = k;
        list[i] += 1 << 16;
    }
}

void tr_lda_start(struct tr_lda_sampler *s)
{
    for (uint64_t d = 0; d < s->documents; d++) { /* the topic stands where the counts will be, for now */
        uint64_t bits = tr_mix(s->seed ^ tr_mix(s->number[d]));
        *(uint32_t *)record(s, s->line[d]) = (uint32_t)((bits >> 32) * s->layout->topics >> 32);
    }
    for (uint64_t i = 0; i < s->tokens; i++) set_topic(s, i, *(const uint32_t *)record(s, s->at[i]));
    clear_records(s, s->records);
    for (uint64_t i = 0; i < s->tokens; i++) add_topic(s, s->records, i, topic_of(s, i));
}

int tr_lda_recount(struct tr_lda_sampler *s)
{
    for (uint64_t i = 0; i < s->tokens; i++)
        if (topic_of(s, i) >= s->layout->topics)
            return tr_fail(TR_ERR_DATA, "token %" PRIu64 " has topic %" PRIu32 ": expected below %" PRIu32, i,
                           topic_of(s, i), s->layout->topics);
    clear_records(s, s->records);
    for (uint64_t i = 0; i < s->tokens; i++) add_topic(s, s->records, i, topic_of(s, i));
    return TR_OK;
}

/* ---- … and put back ---- */

/* Calls for each token, word by word in the order of their numbers, with its place in its document. The places come from
 * the array `next` by line, which begins with where each document does. */
static void each_by_document(const struct tr_lda_sampler *s, const uint64_t *begin, uint64_t *next,
                             void (*visit)(void *who, uint64_t token, uint64_t place), void *who)
{
    for (uint64_t d = 0; d < s->documents; d++) next[s->line[d]] = begin[d];
    for (uint64_t w = 0; w < s->layout->words; w++) {
        uint64_t p = s->layout->place[w];
        for (uint64_t i = s->begin[p]; i < s->begin[p + 1]; i++) visit(who, i, next[s->at[i]]++);
    }
}

struct exchange {
    struct tr_lda_sampler *to;
    const struct tr_lda_sampler *from;
    uint16_t *out;
    const uint16_t *in;
};

static void take_topic(void *who, uint64_t token, uint64_t place)
{
    struct exchange *e = who;
    e->out[place] = (uint16_t)topic_of(e->from, token);
}

static void give_topic(void *who, uint64_t token, uint64_t place)
{
    struct exchange *e = who;
    set_topic(e->to, token, e->in[place]);
}

int tr_lda_take_topics(const struct tr_lda_sampler *s, const uint64_t *begin, uint16_t *topics)
{
    uint64_t *next;
    TR_TRY(TR_NEW(&next, s->lines));
    each_by_document(s, begin, next, take_topic, &(struct exchange){.from = s, .out = topics});
    free(next);
    return TR_OK;
}

int tr_lda_give_topics(struct tr_lda_sampler *s, const uint64_t *begin, const uint16_t *topics)
{
    uint64_t *next;
    TR_TRY(TR_NEW(&next, s->lines));
    each_by_document(s, begin, next, give_topic, &(struct exchange){.to = s, .in = topics});
    free(next);
    return TR_OK;
}

/* The list of a document; NULL: it has none. */
static uint32_t *list_of(const struct tr_lda_sampler *s, uint64_t document)
{
    uint32_t *list = record(s, s->line[document]);
    return s->lists && list[0] != WIDE ? list : NULL;
}

size_t tr_lda_order(const struct tr_lda_sampler *s, uint64_t document, uint16_t *topics)
{
    const uint32_t *list = list_of(s, document);
    size_t n = list ? list[0] : 0;
    for (size_t i = 0; i < n && topics; i++) topics[i] = (uint16_t)(list[1 + i] & 0xffff);
    return n;
}

int tr_lda_recount_in_order(struct tr_lda_sampler *s, const uint64_t *begin, const uint16_t *order)
{
    clear_records(s, s->records);
    for (uint64_t d = 0; d < s->documents; d++) {
        uint64_t n = begin[d + 1] - begin[d],
                 room = s->length[d] < s->layout->topics ? s->length[d] : s->layout->topics;
        uint32_t *list = list_of(s, d);
        if (!list) continue;
        if (n > room) return tr_fail(TR_ERR_DATA, "document %" PRIu64 " has other topics", s->number[d] + 1);
        for (uint64_t i = 0; i < n; i++) list[1 + i] = order[begin[d] + i];
        list[0] = (uint32_t)n;
    }
    for (uint64_t i = 0; i < s->tokens; i++) {
        if (topic_of(s, i) >= s->layout->topics)
            return tr_fail(TR_ERR_DATA, "token %" PRIu64 " has topic %" PRIu32 ": expected below %" PRIu32, i,
                           topic_of(s, i), s->layout->topics);
        add_topic(s, s->records, i, topic_of(s, i));
    }
    for (uint64_t d = 0; d < s->documents; d++) {
        const uint32_t *list = list_of(s, d);
        uint64_t n = begin[d + 1] - begin[d];
        if (n == 0) continue; /* where it was before, it had no list */
        bool right = !list || list[0] == n;
        for (uint32_t i = 0; list && i < list[0]; i++) right = right && list[1 + i] >> 16 > 0;
        if (!right) return tr_fail(TR_ERR_DATA, "document %" PRIu64 " has other topics", s->number[d] + 1);
    }
    return TR_OK;
}

int tr_lda_count_block(const struct tr_lda_sampler *s, int number, void *block)
{
    const struct tr_lda_layout *l = s->layout;
    for (uint64_t p = l->first[number]; p < l->first[number + 1]; p++)
        for (uint64_t i = s->begin[p]; i < s->begin[p + 1]; i++)
            TR_TRY(tr_lda_row_add(l, block, p, topic_of(s, i), 1));
    return TR_OK;
}

void *tr_lda_topics(struct tr_lda_sampler *s, int *bytes)
{
    *bytes = s->topic_bytes;
    return s->topic;
}

/* ---- reading documents ---- */

uint64_t tr_lda_documents(const struct tr_lda_sampler *s)
{
    return s->documents;
}

const uint64_t *tr_lda_numbers(const struct tr_lda_sampler *s)
{
    return s->number;
}

uint64_t tr_lda_tokens(const struct tr_lda_sampler *s)
{
    return s->tokens;
}

uint64_t tr_lda_length(const struct tr_lda_sampler *s, uint64_t document)
{
    return s->length[document];
}

/* The counts of a record, lists as they lie. */
static size_t read_record(const struct tr_lda_sampler *s, const void *memory, struct tr_lda_count *counts)
{
    const uint32_t *list = memory;
    size_t n = 0;
    if (s->lists && list[0] != WIDE) {
        for (; n < list[0]; n++) counts[n] = (struct tr_lda_count){list[1 + n] & 0xffff, list[1 + n] >> 16};
        return n;
    }
    for (uint32_t k = 0; k < s->layout->topics; k++) {
        uint32_t c = s->lists ? list[LANES + k] : ((const uint16_t *)memory)[k];
        if (c) counts[n++] = (struct tr_lda_count){k, c};
    }
    return n;
}

static int by_topic(const void *x, const void *y)
{
    const struct tr_lda_count *a = x, *b = y;
    return a->topic < b->topic ? -1 : a->topic > b->topic;
}

size_t tr_lda_document(const struct tr_lda_sampler *s, uint64_t document, struct tr_lda_count *counts)
{
    size_t n = read_record(s, record(s, s->line[document]), counts);
    qsort(counts, n, sizeof *counts, by_topic);
    return n;
}

static int compare(const struct tr_lda_sampler *s, char *records, struct tr_lda_count *counted,
                   struct tr_lda_count *kept)
{
    clear_records(s, records);
    for (uint64_t i = 0; i < s->tokens; i++) add_topic(s, records, i, topic_of(s, i));
    for (uint64_t d = 0; d < s->documents; d++) {
        size_t n = read_record(s, records + (size_t)s->line[d] * LINE, counted);
        size_t m = tr_lda_document(s, d, kept);
        qsort(counted, n, sizeof *counted, by_topic);
        if (n != m || memcmp(counted, kept, n * sizeof *kept) != 0)
            return tr_fail(TR_ERR_INTERNAL, "document %" PRIu64 ": counts are not those of its topics",
                           s->number[d] + 1);
    }
    return TR_OK;
}

int tr_lda_check(const struct tr_lda_sampler *s)
{
    struct tr_lda_count *counts;
    char *records;
    TR_TRY(TR_NEW(&counts, 2 * (size_t)s->layout->topics));
    int status = big(s->lines * LINE, &records);
    if (status == TR_OK) {
        status = compare(s, records, counts, counts + s->layout->topics);
        free(records);
    }
    free(counts);
    return status;
}

/* ---- the likelihood ---- */

enum { TABLED = 1024 };

/* ln Γ(n + a) - ln Γ(a): from a table for many calls with one a … */
static void make_table(double a, double *table)
{
    table[0] = 0;
    for (int n = 1; n < TABLED; n++) table[n] = table[n - 1] + log(n - 1 + a);
}

static double look_up(const double *table, uint32_t n, double a)
{
    return n < TABLED ? table[n] : lgamma(n + a) - lgamma(a);
}

/* … and for few. */
static double rise(uint32_t n, double a, double log_gamma_a)
{
    if (n > 8) return lgamma(n + a) - log_gamma_a;
    double product = 1;
    for (uint32_t i = 0; i < n; i++) product *= a + i;
    return log(product);
}

struct sums {
    const struct tr_lda_sampler *s;
    bool symmetric;
    double table[TABLED];
};

static double log_count(const struct sums *c, uint32_t k, uint32_t n)
{
    if (c->symmetric) return look_up(c->table, n, c->s->alpha_exact[k]);
    return rise(n, c->s->alpha_exact[k], c->s->alpha_log[k]);
}

static double log_record(const struct sums *c, const void *memory)
{
    const struct tr_lda_sampler *s = c->s;
    const uint32_t *list = memory;
    double sum = 0;
    if (s->lists && list[0] != WIDE) {
        for (uint32_t i = 1; i <= list[0]; i++) sum += log_count(c, list[i] & 0xffff, list[i] >> 16);
        return sum;
    }
    for (uint32_t k = 0; k < s->layout->topics; k++) {
        uint32_t n = s->lists ? list[LANES + k] : ((const uint16_t *)memory)[k];
        if (n) sum += log_count(c, k, n);
    }
    return sum;
}

double tr_lda_log_documents(const struct tr_lda_sampler *s)
{
    struct sums c = {.s = s, .symmetric = true};
    for (uint32_t k = 1; k < s->layout->topics; k++) c.symmetric &= s->alpha_exact[k] == s->alpha_exact[0];
    if (c.symmetric) make_table(s->alpha_exact[0], c.table);
    double sum = 0, log_gamma_all = lgamma(s->alpha_sum);
    for (uint64_t d = 0; d < s->documents; d++)
        sum += log_record(&c, record(s, s->line[d])) - rise(s->length[d], s->alpha_sum, log_gamma_all);
    return sum;
}

double tr_lda_log_block(const struct tr_lda_layout *l, int number, const void *block, double beta)
{
    double sum = 0, table[TABLED];
    make_table(beta, table);
    for (uint64_t p = l->first[number]; p < l->first[number + 1]; p++) {
        const void *row = (const char *)block + l->row[p];
        switch ((enum tr_lda_row)l->kind[p]) {
        case TR_LDA_EMPTY: break;
        case TR_LDA_LIST:
            for (uint32_t i = 1; i <= ((const uint32_t *)row)[0]; i++)
                sum += look_up(table, ((const uint32_t *)row)[i] >> 16, beta);
            break;
        case TR_LDA_DENSE:
            for (uint32_t k = 0; k < l->topics; k++) sum += look_up(table, ((const uint16_t *)row)[k], beta);
            break;
        case TR_LDA_WIDE:
            for (uint32_t k = 0; k < l->topics; k++) sum += look_up(table, ((const uint32_t *)row)[k], beta);
            break;
        }
    }
    return sum;
}

double tr_lda_log_totals(const struct tr_lda_layout *l, const int64_t *total, double beta)
{
    double sum = 0, all = beta * (double)l->words;
    for (uint32_t k = 0; k < l->topics; k++) sum += lgamma(all) - lgamma((double)total[k] + all);
    return sum;
}

uint64_t tr_lda_bytes(const struct tr_lda_sampler *s)
{
    return s->lines * LINE + s->tokens * (sizeof *s->at + (uint64_t)s->topic_bytes) +
           s->documents * (sizeof *s->number + sizeof *s->length + sizeof *s->line) +
           (s->layout->words + 1) * sizeof *s->begin + s->room * 80;
}
