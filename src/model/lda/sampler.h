/* Collapsed Gibbs sampling of latent Dirichlet allocation, in one process, over the tokens of this worker's documents in
 * one block of words at a time.
 *
 * A token's topic is drawn from p(z = k | all others) ∝ (n_dk + α_k) (n_wk + β) / (n_k + Vβ). Documents and their counts
 * n_dk stay with the worker, and so do its tokens; the rows n_wk of a block are lent for the call (counts.h); the totals
 * n_k are the worker's own copy, which it changes as it goes, and others learn of its changes when the caller sums them.
 * So one worker alone samples exactly; several with disjoint blocks differ from that only in n_k being a little old.
 *
 * Source: Griffiths and Steyvers, Finding scientific topics, PNAS 2004, eq. 5 (the conditional) and 2 (the likelihood);
 * Yao, Mimno and McCallum, KDD 2009 (the split of the mass by what is zero); Yu et al., A scalable asynchronous
 * distributed algorithm for topic modeling, WWW 2015 (word by word, blocks of words that rotate).
 *
 * A sampler is used by one thread; nothing here knows of MPI.
 */
#ifndef TR_MODEL_LDA_SAMPLER_H
#define TR_MODEL_LDA_SAMPLER_H

#include "trireme/cpu.h"
#include "counts.h"
#include "trireme/data.h"

/* How counts of documents are kept; all but the first for tests. */
enum tr_lda_records {
    TR_LDA_FASTEST, /* as suits the topics and documents */
    TR_LDA_LISTS,   /* in lists, even where topics are few */
    TR_LDA_WIDES    /* with 32 bits for each topic, as documents of more than 65535 tokens have them */
};

struct tr_lda_options {
    uint64_t seed;   /* of the job: what topics tokens begin with depends on nothing else */
    uint64_t stream; /* of this worker: its draws */
    enum tr_cpu cpu; /* instructions to use: tr_cpu() */
    enum tr_lda_records records;
};

enum { TR_LDA_LANES = 16 /* weights in a vector */ };

/* What a draw is made from: see sampler_kernel.h. */
struct tr_lda_draw {
    float lanes[2 * TR_LDA_LANES] __attribute__((aligned(64))); /* zeros, then prefix sums over the lanes */
    float *sums;                                                /* vectors × TR_LDA_LANES */
    size_t vectors;
    float sum;  /* of all */
    bool ready; /* made for the document of the next token, and still right */
};

struct tr_lda_random {
    uint64_t a, b;
};

/* Told now and then how many bytes from the beginning of the block at hand no draw will change any more. */
typedef void tr_lda_done_fn(void *who, uint64_t bytes);

/* To be changed by sampler.c alone, but for `done` and `who`; rng is kept by snapshots. */
struct tr_lda_sampler {
    tr_lda_done_fn *done; /* NULL, at first: nobody is told */
    void *who;
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
    int64_t *total; /* n_k, which follows each draw */

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
    struct tr_lda_draw draw, prior_draw;
    struct tr_lda_random rng;
};

/* Takes the documents of this worker: row d holds (column, count) for the words it has, keys[column] being the word's
 * number in the layout (keys NULL: column is that number), and number[d] is the document's number among those of all
 * workers (NULL: d). Counts are whole and above 0. Nothing of these is needed afterwards but the layout, which must
 * stay. Tokens have no topic yet.
 *
 * Memory: z of 1 byte a token (2 if topics > 256) and 4 bytes a token for its document, and what documents and words
 * need: about 8 bytes × min(tokens, topics) a document. TR_ERR_DATA if a count is not whole or a document has 2³² tokens
 * or more, TR_ERR_SYSTEM without memory. */
int tr_lda_open(const struct tr_lda_options *options, const struct tr_lda_layout *layout,
                const tr_batch *documents, const tr_key *keys, const uint64_t *number,
                struct tr_lda_sampler **sampler);
void tr_lda_close(struct tr_lda_sampler **sampler);

/* The priors: α_k > 0 of each topic, and β > 0, all finite. Copied. Before the first draw, and as often as they change;
 * they may change between any two calls. */
void tr_lda_priors(struct tr_lda_sampler *sampler, const double *alpha, double beta);

/* Gives all tokens of a document one topic, drawn from (seed, document number): the same for any number of workers and
 * blocks; and counts n_dk. From here topics are told apart in fewer sweeps than from a topic of its own for each token:
 * on news, held-out tokens are as likely after 20 sweeps as they are then after 30. */
void tr_lda_start(struct tr_lda_sampler *sampler);

/* Adds this worker's tokens to the rows of the block, n_wk. Not to the totals: see tr_lda_block_totals(). */
int tr_lda_count_block(const struct tr_lda_sampler *sampler, int number, void *block);

/* Sets the totals n_k, over all workers. By how much this worker has changed them since is seen in sampler->total. */
void tr_lda_set_totals(struct tr_lda_sampler *sampler, const int64_t *total);

/* Draws a new topic for each of this worker's tokens in the block. Totals, rows and documents follow each draw. */
void tr_lda_sample(struct tr_lda_sampler *sampler, int number, void *block);

/* The topics of a document and how many of its tokens have them, n_dk. */
struct tr_lda_cursor tr_lda_document(const struct tr_lda_sampler *sampler, uint64_t document);

/* The topics of all tokens by document, each document's in the order of its words' numbers: what does not depend on
 * blocks. They are as many bytes as topic_bytes says, those of document d from the 32-bit number begin[d] on. They are
 * copied, or, with restore, put back; tr_lda_recount() is to follow. */
int tr_lda_topics(struct tr_lda_sampler *sampler, const uint64_t *begin, void *topics, bool restore);

/* The order in which the topics of a document lie in its list, on which draws depend: written as above (topics NULL:
 * only counted). Returns how many they are, 0 where there is no list. */
uint32_t tr_lda_order(const struct tr_lda_sampler *sampler, uint64_t document, uint64_t begin, void *topics);

/* Makes n_dk agree with the topics of the tokens, with the lists in these orders, n[d] topics each; or, where that is 0,
 * in that of the tokens. TR_ERR_DATA if a topic is too high or a document has others. */
int tr_lda_recount(struct tr_lda_sampler *sampler, const uint32_t *n, const uint64_t *begin,
                   const void *order);

/* Begins another stream of draws. */
void tr_lda_reseed(struct tr_lda_sampler *sampler, uint64_t stream, uint64_t time);

/* ln Γ(n + a) - ln Γ(a), with a table for small n. */
enum { TR_LDA_RISES = 1024 };
struct tr_lda_rises {
    double a, log_gamma, of[TR_LDA_RISES];
};
void tr_lda_rises_make(double a, struct tr_lda_rises *rises);
double tr_lda_rise(const struct tr_lda_rises *rises, uint32_t n);

/* log p(w, z | α, β) in three parts: of this worker's documents; of the words of a block; of the totals. Their sum, the
 * first over workers, the second over blocks, the third once, is that of the corpus. */
double tr_lda_log_documents(const struct tr_lda_sampler *sampler);
double tr_lda_log_block(const struct tr_lda_layout *layout, int number, const void *block, double beta);
double tr_lda_log_totals(const struct tr_lda_layout *layout, const int64_t *total, double beta);

#endif
