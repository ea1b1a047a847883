/* Collapsed Gibbs sampling of latent Dirichlet allocation in one process: the tokens of this worker's documents, one block
 * of words at a time.
 *
 * A token's topic is drawn from p(z = k | all others) ∝ (n_dk + α_k) (n_wk + β) / (n_k + Vβ). The sampler owns the documents,
 * their counts n_dk and their tokens. The caller passes the rows n_wk of a block. The totals n_k are a copy that
 * every draw updates; the caller sums the changes of all workers. One worker alone samples exactly. Several workers with
 * disjoint blocks differ from that only because their n_k is not the newest.
 *
 * Source: Griffiths and Steyvers, Finding scientific topics, PNAS 2004, eq. 5 (the conditional) and 2 (the likelihood);
 * Yao, Mimno and McCallum, KDD 2009 (the split of the mass into parts); Yu et al., A scalable asynchronous
 * distributed algorithm for topic modeling, WWW 2015 (word by word, blocks of words that rotate).
 *
 * A sampler is used by one thread and does not use MPI.
 */
#ifndef TR_MODEL_LDA_SAMPLER_H
#define TR_MODEL_LDA_SAMPLER_H

#include "trireme/base.h"
#include "trireme/cpu.h"
#include "trireme/data.h"

/* ================ counts of words (counts.c) ================ */

/* Counts of topics per word, n_wk, in blocks of words.
 *
 * Words are divided into blocks; a member works on one block per round of the rotation. The rows of a block are in one piece
 * of memory of fixed size, which the ranks of a node can share or send as one message. A row has room for every topic that
 * its word can have: a word with few tokens (T_w over all documents) has a list of at most T_w pairs of topic and count, the
 * others have one count per topic.
 *
 * The caller owns the memory of a block. It must be zero at first and aligned to 64 bytes.
 */

enum { TR_LDA_TOPICS = 65535 }; /* maximum number of topics */

/* Form of a row. */
enum tr_lda_row {
    TR_LDA_EMPTY, /* no memory: the word has no tokens */
    TR_LDA_LIST,  /* uint32_t length, then pairs topic | count << 16 in any order, counts above 0 */
    TR_LDA_DENSE, /* uint16_t count[topics] */
    TR_LDA_WIDE   /* uint32_t count[topics]: T_w > 65535 */
};

/* Assignment of words to blocks, the same on all ranks. The place of a word is its position in the order of blocks. */
struct tr_lda_layout {
    uint32_t topics;
    uint64_t words;
    int blocks;
    uint64_t *first;  /* block b has the places first[b] .. first[b + 1] - 1 */
    uint64_t *word;   /* by place; in a block in descending order of frequency */
    uint64_t *place;  /* by word */
    uint64_t *row;    /* by place: offset of the row in the memory of its block, in bytes */
    uint8_t *kind;    /* by place: enum tr_lda_row */
    uint64_t *bytes;  /* by block */
    uint32_t *tokens; /* by word: T_w */
};

/* Divides the words 0 .. words - 1 into blocks with similar numbers of tokens.
 *
 * @param [in]  tokens  T_w of each word
 * @param [out] layout  free it with tr_lda_layout_close(), also after an error
 * @return TR_ERR_CONFIG if topics is not in 1 .. TR_LDA_TOPICS, TR_ERR_DATA if a word has 2³¹ tokens or more
 */
int tr_lda_layout_open(const uint64_t *tokens, uint64_t words, uint32_t topics, int blocks,
                       struct tr_lda_layout *layout);
void tr_lda_layout_close(struct tr_lda_layout *layout);

/* Returns the part of the word at this place, if the words are divided into parts with similar numbers of tokens that each
 * consist of words of few blocks. */
uint32_t tr_lda_layout_part(const struct tr_lda_layout *layout, uint64_t place, uint32_t parts);

/* One entry of a row or of a document. */
struct tr_lda_count {
    uint32_t topic;
    uint32_t count;
};

/* Iterator over the entries with counts above 0 of a row, or of a document in the same form:
 *
 *   for (struct tr_lda_cursor c = tr_lda_row(layout, block, place); tr_lda_next(&c);) use(c.topic, c.count); */
struct tr_lda_cursor {
    enum tr_lda_row kind;
    uint32_t at, end;
    uint32_t topic, count;
    const void *row;
};

static inline struct tr_lda_cursor tr_lda_cursor(enum tr_lda_row kind, const void *row, uint32_t topics)
{
    uint32_t end = kind == TR_LDA_EMPTY ? 0 : kind == TR_LDA_LIST ? *(const uint32_t *)row : topics;
    return (struct tr_lda_cursor){.kind = kind, .end = end, .row = row};
}

/* Returns an iterator over the row of the word at this place. block: memory of its block. */
static inline struct tr_lda_cursor tr_lda_row(const struct tr_lda_layout *l, const void *block,
                                              uint64_t place)
{
    return tr_lda_cursor((enum tr_lda_row)l->kind[place], (const char *)block + l->row[place], l->topics);
}

static inline bool tr_lda_next(struct tr_lda_cursor *c)
{
    while (c->at < c->end) {
        uint32_t i = c->at++;
        if (c->kind == TR_LDA_LIST) {
            uint32_t pair = ((const uint32_t *)c->row)[1 + i];
            c->topic = pair & 0xffff;
            c->count = pair >> 16;
        } else {
            c->topic = i;
            c->count =
                c->kind == TR_LDA_DENSE ? ((const uint16_t *)c->row)[i] : ((const uint32_t *)c->row)[i];
        }
        if (c->count) return true;
    }
    return false;
}

/* Writes all entries in ascending order of topics (at most `topics`) and returns their number. */
size_t tr_lda_collect(struct tr_lda_cursor cursor, struct tr_lda_count *counts);

/* Adds 1 to n_wk. TR_ERR_INTERNAL if the row is full. */
int tr_lda_row_add(const struct tr_lda_layout *layout, void *block, uint64_t place, uint32_t topic);

/* Replaces a row by n counts of distinct topics in any order; zeros are skipped. TR_ERR_INTERNAL if they do not fit. */
int tr_lda_row_write(const struct tr_lda_layout *layout, void *block, uint64_t place,
                     const struct tr_lda_count *counts, size_t n);

/* Adds n_wk of the words of this block to total[k]. */
void tr_lda_block_totals(const struct tr_lda_layout *layout, int number, const void *block, int64_t *total);

/* ================ the sampler ================ */

/* Form of the counts of documents; all except the first are for tests. */
enum tr_lda_records {
    TR_LDA_FASTEST, /* chosen by the number of topics and the lengths of documents */
    TR_LDA_LISTS,   /* lists, even for few topics */
    TR_LDA_WIDES    /* 32 bits per topic, as for documents of more than 65535 tokens */
};

struct tr_lda_options {
    uint64_t seed;   /* of the job; determines the initial topics */
    uint64_t stream; /* of this worker; determines its draws together with the seed */
    enum tr_cpu cpu; /* instruction level: tr_cpu() */
    enum tr_lda_records records;
};

enum { TR_LDA_LANES = 16 /* weights in a vector */ };

/* Prefix sums of the weights of a draw: see sampler_kernel.h. */
struct tr_lda_draw {
    float lanes[2 * TR_LDA_LANES] __attribute__((aligned(64))); /* zeros, then prefix sums over the lanes */
    float *sums;                                                /* vectors × TR_LDA_LANES */
    size_t vectors;
    float sum;  /* of all weights */
    bool ready; /* still valid for the document of the next token */
};

struct tr_lda_random {
    uint64_t a, b;
};

/* Called repeatedly with the number of bytes at the begin of the current block that will not change further. */
typedef void tr_lda_done_fn(void *who, uint64_t bytes);

/* Only sampler.c may change the members, except done and who. Snapshots contain rng. */
struct tr_lda_sampler {
    tr_lda_done_fn *done; /* NULL at first */
    void *who;
    const struct tr_lda_layout *layout;
    enum tr_cpu cpu;
    uint64_t seed;

    /* documents */
    uint64_t documents, tokens;
    uint64_t *number;      /* global numbers */
    uint32_t *length;      /* tokens per document */
    uint32_t *line;        /* first cache line of the document's record */
    char *records;         /* records in cache lines */
    uint64_t lines;        /* cache lines of all records */
    bool lists;            /* records are lists or wide, not dense */
    uint64_t record_lines; /* cache lines of a dense record */
    uint32_t longest;      /* maximum length of a document with a list; longer ones are wide */

    /* tokens in the order of blocks, words and documents */
    uint64_t *begin; /* by place, words + 1: first token of the word */
    uint32_t *at;    /* first cache line of the document's record */
    void *topic;     /* topic_bytes bytes each */
    int topic_bytes;

    /* priors and totals; arrays of floats are padded with zeros to `room` elements */
    size_t room;
    double *alpha_exact, *alpha_log /* ln Γ(α_k) */, alpha_sum, beta, words_beta;
    float *alpha;
    int64_t *total; /* n_k, updated by each draw */

    /* the current word */
    uint32_t *count; /* n_wk */
    float *g, *q;    /* 1 / (n_k + Vβ); (n_wk + β) g_k */
    bool q_empty;    /* q is β g_k except for the topics in touched */
    uint8_t *marked; /* whether a topic is in touched */
    uint32_t *touched;
    size_t n_touched;
    double *part, prior; /* sums of α_k q_k over 2^part_shift topics each, and over all */
    size_t parts, part_vectors;
    int part_shift; /* at least 4, so that parts are whole vectors */

    size_t vectors; /* of topics */
    struct tr_lda_draw draw, prior_draw;
    struct tr_lda_random rng;
};

/* Creates a sampler for documents. Tokens have no topic yet: see tr_lda_start().
 *
 * @param [in]  layout     must outlive the sampler
 * @param [in]  documents  a row per document: columns are words, values are counts (whole numbers above 0)
 * @param [in]  keys       words of the columns; NULL: columns are words
 * @param [in]  number     global numbers of the documents; NULL: from 0
 * @param [out] sampler    free it with tr_lda_close()
 * @return TR_ERR_DATA if a count is not a whole number or a document has 2³² tokens or more, TR_ERR_SYSTEM if memory is
 *         exhausted
 *
 * Memory per token: 1 byte for its topic (2 if topics > 256) and 4 bytes for its document. Memory per document: about
 * 8 bytes × min(tokens, topics).
 */
int tr_lda_open(const struct tr_lda_options *options, const struct tr_lda_layout *layout,
                const tr_batch *documents, const tr_key *keys, const uint64_t *number,
                struct tr_lda_sampler **sampler);
void tr_lda_close(struct tr_lda_sampler **sampler);

/* Sets the priors, α_k > 0 of each topic and β > 0, all finite; copied. Required before the first draw. */
void tr_lda_priors(struct tr_lda_sampler *sampler, const double *alpha, double beta);

/* Assigns one topic to all tokens of a document, a function of seed and document number, and counts n_dk. Topics separate in
 * fewer sweeps than with one random topic per token: on 20 newsgroups, held-out tokens are as likely after 20 sweeps as
 * after 30. */
void tr_lda_start(struct tr_lda_sampler *sampler);

/* Adds this worker's tokens to the rows n_wk of the block, not to the totals (tr_lda_block_totals()). */
int tr_lda_count_block(const struct tr_lda_sampler *sampler, int number, void *block);

/* Sets the totals n_k over all workers. sampler->total then contains them with this worker's later changes. */
void tr_lda_set_totals(struct tr_lda_sampler *sampler, const int64_t *total);

/* Draws a new topic for each of this worker's tokens in the block. Each draw updates totals, rows and documents. */
void tr_lda_sample(struct tr_lda_sampler *sampler, int number, void *block);

/* Returns an iterator over the counts n_dk of a document. */
struct tr_lda_cursor tr_lda_document(const struct tr_lda_sampler *sampler, uint64_t document);

/* Copies the topics of all tokens by document, in the order of words, which does not depend on blocks.
 *
 * @param [in]     begin    position of document d in topics, in units of 32 bits
 * @param [in,out] topics   topic_bytes bytes per token
 * @param [in]     restore  copy from topics; tr_lda_recount() must follow
 */
int tr_lda_topics(struct tr_lda_sampler *sampler, const uint64_t *begin, void *topics, bool restore);

/* Writes the order of topics in the list of a document, on which draws depend, in the form above (topics NULL: nothing is
 * written). Returns the length of the list; 0 if the document has none. */
uint32_t tr_lda_order(const struct tr_lda_sampler *sampler, uint64_t document, uint64_t begin, void *topics);

/* Computes n_dk from the topics of the tokens.
 *
 * @param [in] n      number of topics of document d in order; 0: the list is built in the order of tokens
 * @param [in] order  order of topics in the lists, in the form above
 * @return TR_ERR_DATA if a topic is too high or an order does not have the topics of its document
 */
int tr_lda_recount(struct tr_lda_sampler *sampler, const uint32_t *n, const uint64_t *begin,
                   const void *order);

/* Starts another stream of random numbers. */
void tr_lda_reseed(struct tr_lda_sampler *sampler, uint64_t stream, uint64_t time);

/* ln Γ(n + a) - ln Γ(a), with a table for small n. */
enum { TR_LDA_RISES = 1024 };
struct tr_lda_rises {
    double a, log_gamma, of[TR_LDA_RISES];
};
void tr_lda_rises_make(double a, struct tr_lda_rises *rises);
double tr_lda_rise(const struct tr_lda_rises *rises, uint32_t n);

/* log p(w, z | α, β) in three terms: of this worker's documents, of the words of a block, and of the totals. The value of the
 * corpus is the sum of the first over workers, of the second over blocks, and of the third. */
double tr_lda_log_documents(const struct tr_lda_sampler *sampler);
double tr_lda_log_block(const struct tr_lda_layout *layout, int number, const void *block, double beta);
double tr_lda_log_totals(const struct tr_lda_layout *layout, const int64_t *total, double beta);

#endif
