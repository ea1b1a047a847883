/* Topic models (latent Dirichlet allocation) on many workers.
 *
 * A token is one occurrence of a word in a document; it has one topic. n_dk is the number of tokens of document d with topic k,
 * n_wk that of word w, and n_k, the total, that of all documents. V is the number of words, T_w the number of tokens of word w.
 * K is the number of topics, α_k and β are the priors.
 *
 * Documents, the topics of their tokens and the counts n_dk stay with their worker. Words are divided into blocks (see below),
 * which rotate through the group. In each round a member samples its tokens of the words in its current block. At most SUMS times
 * per sweep the group sums the changes of the totals n_k. Between machines, the group waits for a sum only when it starts the next
 * one. A clock is one rotation, which is one sweep over all tokens.
 *
 * With one group the table `words` is written at the end only. With several groups it contains n_wk of all groups. The
 * member that has a block in the first rounds of a clock reads it from the table and makes a copy. The member that has it
 * in the last rounds subtracts this copy from the block, and adds the difference, the change made by the group, to the table. Each
 * change thus counts once. A group reads its own changes in the next clock: under BSP the changes of all groups have arrived then,
 * otherwise the group waits for its own. Each group's counts, and thus their sums, are never negative. A worker finds all of its
 * own tokens in a block even if changes of other groups are missing.
 *
 * Sources: Newman et al., Distributed algorithms for topic models, JMLR 2009; Yu et al., Angel, section 5 (LDA by
 * rotation); Wang et al., STRADS (totals that are a round old). */
#ifndef TR_MODEL_LDA_H
#define TR_MODEL_LDA_H

#include "trireme/trireme.h"

/* ================ counts of words (sampler.c) ================ */

/* A block contains the counts n_wk of some words; the counts of one word are a row.
 *
 * A member works on one block per round of the rotation. The rows of a block are adjacent in memory of fixed size, which the ranks
 * of a machine can share or send as one message. A row has room for every topic that its word can have: if a word has few tokens,
 * its row is a list of at most T_w pairs of topic and count, otherwise an array with one count per topic.
 *
 * The caller owns the memory of a block. It must be zero at first and aligned to 64 bytes. */

enum { TR_LDA_TOPICS = 65535 }; /* maximum number of topics */

/* Form of a row. */
enum tr_lda_row {
    TR_LDA_EMPTY, /* no memory: the word has no tokens */
    TR_LDA_LIST,  /* uint32_t length, then pairs topic | count << 16 in any order, counts above 0 */
    TR_LDA_DENSE, /* uint16_t count[topics] */
    TR_LDA_WIDE   /* uint32_t count[topics], if T_w > 65535 */
};

/* Assignment of words to blocks, the same on all ranks. The place of a word is its index in the list of all words sorted by block,
 * and in a block by descending frequency. */
struct tr_lda_layout {
    uint32_t topics;
    uint64_t words;
    int blocks;
    uint64_t *first;  /* block b has the words at the places first[b] .. first[b + 1] - 1 */
    uint64_t *word;   /* word[p] is the word at place p */
    uint64_t *place;  /* place[w] is the place of word w */
    uint64_t *row;    /* per place: offset of the row in the memory of its block, in bytes */
    uint8_t *kind;    /* per place: enum tr_lda_row */
    uint64_t *bytes;  /* per block: size of its memory */
    uint32_t *tokens; /* per word: T_w */
};

/* Divides the words 0 .. words - 1 into blocks with similar numbers of tokens.
 *
 * @param [in]  tokens  T_w of each word
 * @param [out] layout  free it with tr_lda_layout_close(), also after an error
 * @return TR_ERR_CONFIG if topics is not in 1 .. TR_LDA_TOPICS, TR_ERR_DATA if a word has 2³¹ tokens or more */
int tr_lda_layout_open(const uint64_t *tokens, uint64_t words, uint32_t topics, int blocks,
                       struct tr_lda_layout *layout);
void tr_lda_layout_close(struct tr_lda_layout *layout);

/* Returns the part that contains the word at a place. The words are divided into `parts` parts with similar numbers of tokens; each
 * part consists of words of few blocks. */
uint32_t tr_lda_layout_part(const struct tr_lda_layout *layout, uint64_t place, uint32_t parts);

/* An entry of a row or of a document's counts. */
struct tr_lda_count {
    uint32_t topic;
    uint32_t count;
};

/* Iterator over the entries with counts above 0 of a row, or of the counts n_dk of a document:
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

/* Returns an iterator over the row of the word at a place. block: the memory of the word's block. */
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

/* Writes all entries of an iterator to `counts` in ascending order of topics, and returns their number, at most K. */
size_t tr_lda_collect(struct tr_lda_cursor cursor, struct tr_lda_count *counts);

/* Adds 1 to the count of a topic in a row. Fails with TR_ERR_INTERNAL if the row is full. */
int tr_lda_row_add(const struct tr_lda_layout *layout, void *block, uint64_t place, uint32_t topic);

/* Replaces a row by n counts of distinct topics in any order. Skips zeros. Fails with TR_ERR_INTERNAL if the row has no room. */
int tr_lda_row_write(const struct tr_lda_layout *layout, void *block, uint64_t place,
                     const struct tr_lda_count *counts, size_t n);

/* Adds the sum of n_wk over the words of a block to total[k], for each topic k. */
void tr_lda_block_totals(const struct tr_lda_layout *layout, int number, const void *block, int64_t *total);

/* ================ the sampler (sampler.c) ================ */

/* The sampler is collapsed Gibbs sampling of the tokens of this worker's documents, one block of words at a time. It is used by one
 * thread and does not use MPI.
 *
 * The topic z of a token is drawn from p(z = k | topics of all other tokens) ∝ (n_dk + α_k) (n_wk + β) / (n_k + Vβ). The sampler
 * owns the documents, their counts n_dk and their tokens. The caller passes the rows n_wk of a block. The sampler has a copy of the
 * totals n_k, which every draw updates; the caller sums the changes of all workers. One worker alone samples exactly. The draws of
 * several workers with disjoint blocks are inexact only because n_k lacks the latest changes by other workers.
 *
 * The counts n_dk of a document are its record (sampler.c explains the forms of records).
 *
 * Sources: Griffiths and Steyvers, Finding scientific topics, PNAS 2004, eq. 5 (the conditional) and 2 (the likelihood);
 * Yao, Mimno and McCallum, KDD 2009 (the split of the sum of weights into parts); Yu et al., A scalable asynchronous
 * distributed algorithm for topic modeling, WWW 2015 (word by word, blocks of words that rotate). */

/* Form of records. Only tests use other values than TR_LDA_FASTEST. */
enum tr_lda_records {
    TR_LDA_FASTEST, /* the number of topics and the lengths of documents decide */
    TR_LDA_LISTS,   /* lists, even for few topics */
    TR_LDA_WIDES    /* wide, as for documents of more than 65535 tokens */
};

struct tr_lda_options {
    uint64_t seed;   /* seed of the job; determines the initial topics */
    uint64_t stream; /* number of this worker; determines its draws together with the seed */
    enum tr_cpu cpu; /* instruction level: tr_cpu() */
    enum tr_lda_records records;
};

enum { TR_LDA_LANES = 16 /* number of weights in a vector */ };

/* Prefix sums of the weights of a draw: see sampler_kernel.h. */
struct tr_lda_draw {
    float lanes[2 * TR_LDA_LANES] __attribute__((aligned(64))); /* zeros, then prefix sums over the lanes */
    float *sums;                                                /* vectors × TR_LDA_LANES */
    size_t vectors;
    float sum;  /* sum of all weights */
    bool ready; /* whether the sums are valid for the next token, because it has the same document */
};

struct tr_lda_random {
    uint64_t a, b;
};

/* A function that the sampler calls every few words: the first `bytes` bytes of the current block will not change further. */
typedef void tr_lda_done_fn(void *who, uint64_t bytes);

/* Only sampler.c changes the members, except `done`, `who` and `log_weights`. Checkpoints contain `rng`. */
struct tr_lda_sampler {
    tr_lda_done_fn *done; /* NULL: nothing is called */
    void *who;            /* argument of done() */
    const struct tr_lda_layout *layout;
    enum tr_cpu cpu;
    uint64_t seed;

    /* documents */
    uint64_t documents, tokens;
    uint64_t *number;      /* per document: its number among the documents of all workers */
    uint32_t *length;      /* per document: number of tokens */
    uint32_t *line;        /* per document: index of the first cache line of its record */
    char *records;         /* records of all documents; each starts at a cache line */
    uint64_t lines;        /* number of cache lines of all records */
    bool lists;            /* whether records are lists or wide, not dense */
    uint64_t record_lines; /* number of cache lines of a dense record */
    uint32_t longest;      /* maximum length of a document whose record is a list; longer ones are wide */

    /* tokens, sorted by block, word and document */
    uint64_t *begin; /* words + 1 elements; begin[p] is the first token of the word at place p */
    uint32_t *at;    /* per token: index of the first cache line of its document's record */
    void *topic;     /* per token: its topic, in topic_bytes bytes */
    int topic_bytes;

    /* priors and totals; arrays of floats are padded with zeros to `room` elements */
    size_t room;
    double *alpha_exact, *alpha_log /* ln Γ(α_k) */, alpha_sum, beta, words_beta /* Vβ */;
    float *alpha;
    int64_t *total; /* n_k, updated by each draw */

    /* the current word */
    uint32_t *count;   /* n_wk */
    float *g, *q;      /* g_k = 1 / (n_k + Vβ); q_k = (n_wk + β) g_k */
    bool q_empty;      /* whether q_k = β g_k, except for the topics in `touched` */
    uint8_t *marked;   /* per topic: whether it is in `touched` */
    uint32_t *touched; /* topics that the word has or had in this round */
    size_t n_touched;
    double *part, prior; /* sums of α_k q_k: over a part, 2^part_shift consecutive topics; over all topics */
    size_t parts, part_vectors;
    int part_shift; /* at least 4, so that parts are whole vectors */

    size_t vectors; /* number of vectors of K elements */
    struct tr_lda_draw draw, prior_draw;
    struct tr_lda_random rng;

    /* Sum over the draws of log Σ_k (n_dk + α_k) (n_wk + β) / (n_k + Vβ), with the counts before the draw; the caller sets it to 0.
     * The weights of the current block are multiplied first: `product` has those that are not yet in the sum. */
    double log_weights, product;
};

/* Creates a sampler for documents. tr_lda_start() must assign topics to the tokens before they are used.
 *
 * @param [in]  layout     must outlive the sampler
 * @param [in]  documents  a row per document: columns are words, values are counts (whole numbers above 0)
 * @param [in]  keys       word of each column; NULL: column w is word w
 * @param [in]  number     global numbers of the documents; NULL: from 0
 * @param [out] sampler    free it with tr_lda_close()
 * @return TR_ERR_DATA if a count is not a whole number or a document has 2³² tokens or more, TR_ERR_SYSTEM if memory is exhausted
 *
 * Memory per token: 1 byte for its topic (2 if topics > 256) and 4 bytes for its document. Memory per document: about
 * 8 bytes × min(tokens, topics). */
int tr_lda_open(const struct tr_lda_options *options, const struct tr_lda_layout *layout,
                const tr_batch *documents, const tr_key *keys, const uint64_t *number,
                struct tr_lda_sampler **sampler);
void tr_lda_close(struct tr_lda_sampler **sampler);

/* Sets the priors: copies α_k > 0 of each topic and β > 0, all finite. Required before the first draw. */
void tr_lda_priors(struct tr_lda_sampler *sampler, const double *alpha, double beta);

/* Assigns the same random topic to all tokens of a document, and counts n_dk. The topic depends only on the seed and the document's
 * number. Fewer sweeps are needed than with a random topic per token: on 20 newsgroups, held-out tokens are equally likely after
 * 20 sweeps and after 30. */
void tr_lda_start(struct tr_lda_sampler *sampler);

/* Adds this worker's tokens to the rows n_wk of a block. Does not change the totals: see tr_lda_block_totals(). */
int tr_lda_count_block(const struct tr_lda_sampler *sampler, int number, void *block);

/* Sets sampler->total to the totals n_k of all workers. This worker's draws then change it. */
void tr_lda_set_totals(struct tr_lda_sampler *sampler, const int64_t *total);

/* Draws a new topic for each of this worker's tokens in the block. Each draw updates totals, rows and documents. */
void tr_lda_sample(struct tr_lda_sampler *sampler, int number, void *block);

/* Returns an iterator over the counts n_dk of a document. */
struct tr_lda_cursor tr_lda_document(const struct tr_lda_sampler *sampler, uint64_t document);

/* Copies the topics of all tokens, sorted by document and word. This order does not depend on blocks.
 *
 * @param [in]     begin    per document: offset of its first topic in `topics`, in units of 32 bits
 * @param [in,out] topics   topic_bytes bytes per token
 * @param [in]     restore  copy from `topics` to the sampler; tr_lda_recount() must follow */
int tr_lda_topics(struct tr_lda_sampler *sampler, const uint64_t *begin, void *topics, bool restore);

/* Writes the topics in the list of a document, in their order, because draws depend on it. Returns the length of the list; 0 if the
 * document's record is not a list.
 *
 * @param [in]  begin   offset of the first topic in `topics`, in units of 32 bits
 * @param [out] topics  topic_bytes bytes per topic; NULL: nothing is written */
uint32_t tr_lda_order(const struct tr_lda_sampler *sampler, uint64_t document, uint64_t begin, void *topics);

/* Computes n_dk from the topics of the tokens.
 *
 * @param [in] n      per document: number of topics in its list; 0: the list is built in the order of tokens
 * @param [in] order  the topics of each list, as tr_lda_order() has written them at begin[d]
 * @return TR_ERR_DATA if a topic is too high or an order does not have the topics of its document */
int tr_lda_recount(struct tr_lda_sampler *sampler, const uint32_t *n, const uint64_t *begin,
                   const void *order);

/* Starts another sequence of random numbers, which depends on the seed, `stream` and `time`. */
void tr_lda_reseed(struct tr_lda_sampler *sampler, uint64_t stream, uint64_t time);

/* tr_lda_rise() returns ln Γ(n + a) - ln Γ(a). tr_lda_rises_make() sets `a` and makes the table `of` for n < TR_LDA_RISES. */
enum { TR_LDA_RISES = 1024 };
struct tr_lda_rises {
    double a, log_gamma, of[TR_LDA_RISES];
};
void tr_lda_rises_make(double a, struct tr_lda_rises *rises);
double tr_lda_rise(const struct tr_lda_rises *rises, uint32_t n);

/* Returns the sum of n_d log (n_d + Σα) over the documents. If log_weights is the sum over one sweep, log_weights minus this value
 * is Σ log p(w | θ_d, φ) over the tokens, where θ_dk = (n_dk + α_k) / (n_d + Σα) and φ_kw = (n_wk + β) / (n_k + Vβ). */
double tr_lda_log_lengths(const struct tr_lda_sampler *sampler);

/* The three terms of log p(w, z | α, β), the joint probability of words and topics. The whole value is the sum of
 * tr_lda_log_documents() over all workers, of tr_lda_log_block() over all blocks, and of tr_lda_log_totals(). */
double tr_lda_log_documents(const struct tr_lda_sampler *sampler);
double tr_lda_log_block(const struct tr_lda_layout *layout, int number, const void *block, double beta);
double tr_lda_log_totals(const struct tr_lda_layout *layout, const int64_t *total, double beta);

/* ================ priors (priors.c) ================ */

/* Maximum-likelihood fit of the priors: α, one number per topic, and β, one number for all words.
 *
 * Given the topics of all tokens, each document is a draw from a Dirichlet-multinomial with parameters α, and each topic is a draw
 * from one with the parameter β for every word. The likelihood has one maximum, and Minka's fixed-point iteration increases it:
 *
 *   α_k ← α_k Σ_d (Ψ(n_dk + α_k) - Ψ(α_k)) / Σ_d (Ψ(n_d + Σα) - Ψ(Σα))
 *   β   ← β Σ_wk (Ψ(n_wk + β) - Ψ(β)) / (V Σ_k (Ψ(n_k + Vβ) - Ψ(Vβ)))
 *
 * Only the frequency of each count matters, so the counts are stored as histograms. Histograms may be distributed over
 * workers: a callback then sums the terms of a step over all workers.
 *
 * Source: Minka, Estimating a Dirichlet distribution, 2000, section 4, eq. 65; Wallach, Structured topic models for
 * language, PhD thesis 2008, section 2.3 (histograms). */

/* Minimum of a prior, so that a topic without tokens keeps a positive prior. */
#define TR_LDA_LEAST_PRIOR 1e-5

/* An element of a histogram: in row `row` the count `count` (above 0) occurs `times` times. */
struct tr_lda_bin {
    uint32_t row, count, times;
};

/* Histograms of counts, one per row. Before tr_lda_histogram_sort(), large counts are bins in any order, and few[r * FEW + c] is
 * the frequency of a small count c in row r. Afterwards row r has the bins begin[r] .. begin[r + 1] - 1, in ascending order of
 * counts. */
struct tr_lda_histogram {
    size_t rows, n, capacity;
    uint32_t *few;
    uint64_t *begin;
    struct tr_lda_bin *bin;
};

/* open() creates histograms, add() adds a count that occurs `times` times (0 is ignored), sort() is called once, after the last
 * addition, and close() frees. */
int tr_lda_histogram_open(size_t rows, struct tr_lda_histogram *histogram);
int tr_lda_histogram_add(struct tr_lda_histogram *histogram, size_t row, uint32_t count, uint32_t times);
int tr_lda_histogram_sort(struct tr_lda_histogram *histogram);
void tr_lda_histogram_close(struct tr_lda_histogram *histogram);

/* Returns the sum of times × (Ψ(count + a) - Ψ(a)) over the bins of a row, a > 0. */
double tr_lda_histogram_slope(const struct tr_lda_histogram *histogram, size_t row, double a);

/* A callback that replaces each of n numbers by its sum over all workers that take part in the fit. All of them get equal results.
 * The array has one more element, which the callback may overwrite. */
typedef int tr_lda_sum_fn(void *who, double *numbers, size_t n);

/* Fits α, one number per topic.
 *
 * @param [in]     documents  topics + 1 rows. Row k: the frequency of each count n_dk; last row: of each length of a document
 * @param [in]     most       maximum factor by which an α_k may change. Without BSP rows may be of different times: if they had
 *                            more tokens than the lengths, α would increase without bound
 * @param          numbers    scratch memory of 2 topics + 3 numbers
 * @param [in,out] alpha      initial values above 0; the result
 * @return the status of sum() */
int tr_lda_fit_alpha(const struct tr_lda_histogram *documents, double most, tr_lda_sum_fn *sum, void *who,
                     double *numbers, double *alpha);

/* Fits β.
 *
 * @param [in]     of_words  one row: the frequency of each count n_wk
 * @param [in]     total     n_k over all workers
 * @param [in]     words     size of the vocabulary
 * @param [in,out] beta      initial value; the result */
int tr_lda_fit_beta(const struct tr_lda_histogram *of_words, const int64_t *total, size_t topics,
                    uint64_t words, tr_lda_sum_fn *sum, void *who, double *beta);

/* ================ inference (answers.c) ================ */

/* Inference for new documents: their mixture of topics, and the probability of their words.
 *
 * The topics are fixed. The mixture θ has the share of each topic in a document. It is the mode of its posterior under a Dirichlet
 * prior with parameters α + 1, computed by expectation maximisation: θ ∝ α + expected tokens of each topic. Asuncion et al. found
 * such results equal to those of sampling or variational inference. The mode is unique, so no random numbers are needed. The time
 * of a step is proportional to the number of non-zero n_wk of the document's words, not to words × topics.
 *
 * Sources: Asuncion, Welling, Smyth and Teh, On smoothing and inference for topic models, UAI 2009, sections 3.4 and 4;
 * Wallach, Murray, Salakhutdinov and Mimno, Evaluation methods for topic models, ICML 2009, section 5 (document
 * completion). */

/* The word probabilities of the topics of a model, φ. Only `weight`, with the scratch memory, is freed with it. */
struct tr_lda_phi {
    uint32_t topics;
    const uint64_t *begin; /* word i has the entries begin[i] .. begin[i + 1] - 1 of `topic` and `count` */
    const uint16_t *topic;
    const uint32_t *count;
    const double *alpha;
    double alpha_sum, beta;
    double *weight;                     /* per topic: 1 / (n_k + Vβ) */
    double *now, *next, *share, *theta; /* scratch memory, a number per topic each */
};

/* Prepares inference with the topics of a model.
 *
 * @param [in]  words  size of the whole vocabulary, even if there are rows for some words only
 * @param [in]  total  n_k; this and the other arrays must outlive phi
 * @param [out] phi    free it with tr_lda_phi_close() */
int tr_lda_phi_open(uint32_t topics, uint64_t words, const int64_t *total, const double *alpha, double beta,
                    const uint64_t *begin, const uint16_t *topic, const uint32_t *count,
                    struct tr_lda_phi *phi);
void tr_lda_phi_close(struct tr_lda_phi *phi);

/* Computes the mixture of a document.
 *
 * @param [in]  word   the n words of the document, as rows of phi
 * @param [in]  count  per word: its count, 0 or more
 * @param [out] theta  share of each topic; without words, α_k / Σα */
void tr_lda_infer(const struct tr_lda_phi *phi, size_t n, const uint32_t *word, const float *count,
                  double *theta);

/* Returns the sum of count × log p(word | θ) over n words. */
double tr_lda_log_words(const struct tr_lda_phi *phi, const double *theta, size_t n, const uint32_t *word,
                        const float *count);

/* Document completion: infers the mixture from a random half of a document's tokens. Adds the log-probability of the other half and
 * its number of tokens to *sum.
 *
 * @param [in] count       per word; NULL: every count is 1
 * @param      seen, held  scratch memory of n numbers each */
struct tr_lda_completion {
    double log_p;
    uint64_t tokens;
};
void tr_lda_complete(const struct tr_lda_phi *phi, uint64_t seed, uint64_t document, size_t n,
                     const uint32_t *word, const float *count, float *seen, float *held,
                     struct tr_lda_completion *sum);

/* Returns exp(-log p per token), or NaN without tokens. */
double tr_lda_perplexity(const struct tr_lda_completion *sum);

/* ================ vocabulary (answers.c) ================ */

enum { TR_LDA_LONGEST_WORD = 255 };

/* Word i is the string at text + i × stride. */
struct tr_lda_vocabulary {
    uint64_t words; /* number of words; 0: there is no vocabulary */
    size_t stride;
    char *text;
};

/* Reads a file with one word per line, plain or gzip.
 *
 * @param [in]  words       expected number of lines; 0: any
 * @param [out] vocabulary  free it with tr_lda_vocabulary_close()
 * @return TR_ERR_NO_INPUT, or TR_ERR_DATA if the number of lines differs or a word has more than TR_LDA_LONGEST_WORD bytes */
int tr_lda_vocabulary_read(const char *path, uint64_t words, struct tr_lda_vocabulary *vocabulary);
void tr_lda_vocabulary_close(struct tr_lda_vocabulary *vocabulary);

/* Returns the name of a word, or, without a vocabulary, its number as text. number: scratch memory of 24 bytes. */
const char *tr_lda_word(const struct tr_lda_vocabulary *vocabulary, uint64_t word, char *number);

/* ================ the model ================ */

struct tr_lda_settings {
    uint64_t topics;
    double alpha; /* TR_JOB_AUTO: default_alpha of lda.c */
    double beta;
    bool optimize;
    uint64_t optimize_every;
};

/* Counts of all or some words, in the form of the model file (answers.c). */
struct tr_lda_saved {
    uint64_t *begin;
    uint16_t *topic;
    uint32_t *count;
    int64_t *total;
    struct tr_lda_phi phi;
};

struct tr_lda {
    tr_context *tr;
    const tr_job *job;
    const struct tr_lda_settings *o;
    uint64_t topics, documents, words, tokens; /* numbers, over the training data of all workers */
    double *alpha, beta;                       /* set on workers, or from the file */
    struct tr_lda_saved saved;
    tr_data *test;                       /* NULL: data.test is not given */
    struct tr_lda_vocabulary vocabulary; /* on all ranks */
    tr_table *table;                     /* "words", sparse: a row n_wk per word */
    tr_table *totals;                    /* n_k */
    /* Element c of row k is the number of documents with n_dk = c; of the last row, the number of documents with c tokens. */
    tr_table *histograms;
    /* Last evaluation, on the scheduler or from the file. objective: if the priors are fitted, log p(w | θ, φ), otherwise
     * log p(w, z | α, β), per token; NaN: unknown. */
    tr_evaluation last;

    /* state of a worker */
    tr_data *train; /* closed after preparation unless there are test data */
    struct tr_lda_layout layout;
    struct tr_lda_sampler *sampler;
    tr_rotation *rotation;
    int depth;         /* number of blocks that this worker has between two clocks, 1 or 2 */
    tr_block block[2]; /* these blocks; set by lda_look() */
    tr_view *totals_view;
    int64_t *total;                 /* n_k as last summed by the group */
    int64_t *known;                 /* totals last set in the sampler: `total` plus own changes not summed */
    double *numbers;                /* scratch for sums: 2 topics + 3 elements */
    struct tr_lda_count *counts[2]; /* scratch for two rows: K elements each */
    uint32_t *column;               /* scratch for a row of the table: K columns */
    int32_t *value;                 /* scratch for a row of the table: K values */
    tr_key *first_words;            /* words, ascending, of the blocks at the start of a clock */
    size_t n_first_words;
    struct tr_lda_histogram sent; /* several groups: the histograms that this worker has pushed last */
    /* Of the last sweep: log_weights of the sampler if the priors are fitted, otherwise, with one group, the sum of
     * tr_lda_log_block() over the blocks of the last rounds. */
    double log_words;
    struct tr_lda_completion tested; /* document completion of this worker's test data */
    uint64_t numbers_of_documents;   /* upper bound of the numbers of documents */
    /* After a restart: the first clock, and the number of groups in the checkpoint (0: no restart). A checkpoint of one group
     * has the counts of words in its own lists, that of several groups in the table. */
    int64_t first_clock, groups_before;
};

/* ---- model file, predict, evaluate, inspect (answers.c) ---- */

int tr_lda_fields(void *lda, tr_fields *fields);
int tr_lda_answer(void *lda, tr_query *query);
int tr_lda_inspect(void *lda, tr_query *query);
int tr_lda_centres(const void *lda, tr_saved_centres *centres);
int tr_lda_saved_phi(const struct tr_lda *lda, struct tr_lda_saved *saved); /* sets saved->phi */
void tr_lda_saved_close(struct tr_lda_saved *saved);

/* ---- reading the tables (lda.c) ---- */

/* Reads the rows of n words (NULL: the words 0 .. n - 1) and all totals from the tables, while no rank writes them.
 *
 * @param [in,out] saved  freed first; free it with tr_lda_saved_close(), also after an error */
int tr_lda_read_tables(struct tr_lda *lda, const tr_key *words, size_t n, struct tr_lda_saved *saved);

extern const tr_model_class tr_lda_class;

#endif
