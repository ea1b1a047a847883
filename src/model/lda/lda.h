/* Topic models (latent Dirichlet allocation) on many workers.
 *
 * Documents, the topics of their tokens and the counts n_dk stay with their worker. Words are divided into blocks
 * (sampler.h), which rotate through the group. In each round a member samples its tokens of the words in its current block.
 * At most SUMS times per sweep the group sums the changes of the totals n_k. Across nodes a sum is waited for when the
 * next one begins. A clock is one rotation, which is one sweep over all tokens.
 *
 * With one group the table `words` is written at the end only. With several groups it contains n_wk of all groups. The
 * member that has a block in the first rounds of a clock reads it from the table and makes a copy. The member that has it
 * in the last rounds adds the difference from that copy, which is the change made by the group, to the table. Each update
 * thus counts once. A group reads its own updates in the next clock: under BSP together with all others, otherwise because
 * a group waits until its own have arrived. The counts of each group are never negative, hence no sum of them is, and a
 * worker finds all of its own tokens in the block even if updates of other groups are missing.
 *
 * Source: Newman et al., Distributed algorithms for topic models, JMLR 2009; Yu et al., Angel, section 5 (LDA by
 * rotation); Wang et al., STRADS (totals that are a round old).
 */
#ifndef TR_MODEL_LDA_H
#define TR_MODEL_LDA_H

#include "sampler.h"
#include "trireme/table.h"
#include "trireme/trireme.h"

/* ================ priors (priors.c) ================ */

/* Maximum-likelihood fit of the priors of topics: α, one number per topic, and β, one for all words.
 *
 * Given the topics of all tokens, documents are draws from a Dirichlet-multinomial with parameters α, and topics with the
 * parameter β for every word. The likelihood has one maximum, and Minka's fixed-point iteration increases it:
 *
 *   α_k ← α_k Σ_d (Ψ(n_dk + α_k) - Ψ(α_k)) / Σ_d (Ψ(n_d + Σα) - Ψ(Σα))
 *   β   ← β Σ_wk (Ψ(n_wk + β) - Ψ(β)) / (V Σ_k (Ψ(n_k + Vβ) - Ψ(Vβ)))
 *
 * Only the frequency of each count matters, so the counts are stored as histograms. Histograms may be distributed over
 * workers: a callback sums the terms of a step over all of them.
 *
 * Source: Minka, Estimating a Dirichlet distribution, 2000, section 4, eq. 65; Wallach, Structured topic models for
 * language, PhD thesis 2008, section 2.3 (histograms).
 */

/* Minimum of a prior, so that a topic without tokens keeps a positive prior. */
#define TR_LDA_LEAST_PRIOR 1e-5

/* In row `row` the count (above 0) occurs `times` times. */
struct tr_lda_bin {
    uint32_t row, count, times;
};

/* One histogram per row. Before tr_lda_histogram_sort(), large counts are bins in any order and small counts are in `few`.
 * Afterwards row r has the bins begin[r] .. begin[r + 1] - 1, in ascending order of counts. */
struct tr_lda_histogram {
    size_t rows, n, capacity;
    uint32_t *few;
    uint64_t *begin;
    struct tr_lda_bin *bin;
};

/* Create, fill, sort (once, after the last addition), free. Counts of 0 are ignored. */
int tr_lda_histogram_open(size_t rows, struct tr_lda_histogram *histogram);
int tr_lda_histogram_add(struct tr_lda_histogram *histogram, size_t row, uint32_t count, uint32_t times);
int tr_lda_histogram_sort(struct tr_lda_histogram *histogram);
void tr_lda_histogram_close(struct tr_lda_histogram *histogram);

/* Returns the sum of times × (Ψ(count + a) - Ψ(a)) over the bins of a row, a > 0. */
double tr_lda_histogram_slope(const struct tr_lda_histogram *histogram, size_t row, double a);

/* Sums n numbers over all participants, in place, with equal results. The array has one more element that the callback may
 * overwrite. */
typedef int tr_lda_sum_fn(void *who, double *numbers, size_t n);

/* Fits α, one number per topic.
 *
 * @param [in]     documents  topics + 1 rows: the frequency of each count of a topic in a document; the last row: the
 *                            frequency of each length of a document
 * @param [in]     most       maximum factor by which an alpha may change: rows may be of different times, and with more
 *                            tokens in topics than in documents alpha would increase without bound
 * @param          numbers    scratch memory of 2 topics + 3 numbers
 * @param [in,out] alpha      initial values above 0; the result
 * @return the status of sum()
 */
int tr_lda_fit_alpha(const struct tr_lda_histogram *documents, double most, tr_lda_sum_fn *sum, void *who,
                     double *numbers, double *alpha);

/* Fits β.
 *
 * @param [in]     of_words  one row: the frequency of each count n_wk
 * @param [in]     total     n_k of all participants
 * @param [in]     words     size of the vocabulary
 * @param [in,out] beta      initial value; the result
 */
int tr_lda_fit_beta(const struct tr_lda_histogram *of_words, const int64_t *total, size_t topics,
                    uint64_t words, tr_lda_sum_fn *sum, void *who, double *beta);

/* ================ inference (answers.c) ================ */

/* Inference for new documents: their mixture of topics, and the probability of their words.
 *
 * The topics are fixed. The mixture θ is the mode of its posterior under a Dirichlet prior with parameters α + 1, computed
 * by expectation maximisation: θ ∝ α + expected tokens of each topic. With these parameters the result is as good as that of
 * sampling or variational inference. The mode is unique, so no random numbers are needed. A step costs the number of entries
 * of the document's words in the model, not words × topics.
 *
 * Source: Asuncion, Welling, Smyth and Teh, On smoothing and inference for topic models, UAI 2009, sections 3.4 and 4;
 * Wallach, Murray, Salakhutdinov and Mimno, Evaluation methods for topic models, ICML 2009, section 5 (document
 * completion).
 */

/* The topics of a model. Owns `weight` only. */
struct tr_lda_phi {
    uint32_t topics;
    const uint64_t *begin; /* row i has the entries begin[i] .. begin[i + 1] - 1 of topic and count */
    const uint16_t *topic;
    const uint32_t *count;
    const double *alpha;
    double alpha_sum, beta;
    double *weight;                     /* 1 / (n_k + words × β) */
    double *now, *next, *share, *theta; /* scratch memory */
};

/* Prepares the topics.
 *
 * @param [in]  words  size of the whole vocabulary, even if there are rows for some words only
 * @param [in]  total  n_k; this and the other arrays must outlive phi
 * @param [out] phi    free it with tr_lda_phi_close()
 */
int tr_lda_phi_open(uint32_t topics, uint64_t words, const int64_t *total, const double *alpha, double beta,
                    const uint64_t *begin, const uint16_t *topic, const uint32_t *count,
                    struct tr_lda_phi *phi);
void tr_lda_phi_close(struct tr_lda_phi *phi);

/* Computes the mixture of a document.
 *
 * @param [in]  word   n rows of the model
 * @param [in]  count  their counts; may be 0
 * @param [out] theta  topics shares with the sum 1; without words those of the prior
 */
void tr_lda_infer(const struct tr_lda_phi *phi, size_t n, const uint32_t *word, const float *count,
                  double *theta);

/* Returns the sum of count × log p(word | θ). */
double tr_lda_log_words(const struct tr_lda_phi *phi, const double *theta, size_t n, const uint32_t *word,
                        const float *count);

/* Document completion: a random half of the tokens determines the mixture, and the other half is evaluated. Adds its
 * log-probability and its number of tokens to *sum.
 *
 * @param [in] count       NULL: all are 1
 * @param      seen, held  scratch memory of n numbers each
 */
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
    uint64_t words; /* 0: names are unknown */
    size_t stride;
    char *text;
};

/* Reads a file with one word per line, plain or gzip.
 *
 * @param [in]  words       expected number of lines; 0: any
 * @param [out] vocabulary  free it with tr_lda_vocabulary_close()
 * @return TR_ERR_NO_INPUT, or TR_ERR_DATA if the number of lines differs or a word has more than TR_LDA_LONGEST_WORD bytes
 */
int tr_lda_vocabulary_read(const char *path, uint64_t words, struct tr_lda_vocabulary *vocabulary);
void tr_lda_vocabulary_close(struct tr_lda_vocabulary *vocabulary);

/* Returns the name of a word, or its number if names are unknown. number: scratch memory of 24 bytes. */
const char *tr_lda_word(const struct tr_lda_vocabulary *vocabulary, uint64_t word, char *number);

/* ================ the model ================ */

struct tr_lda_settings {
    uint64_t topics;
    double alpha; /* or TR_JOB_AUTO */
    double beta;
    bool optimize;
    uint64_t optimize_every;
};

/* Counts of all or some words, in the form of the model file (saved.c). */
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
    uint64_t topics, documents, words, tokens; /* of all training data */
    double *alpha, beta;                       /* on workers, or from the file */
    struct tr_lda_saved saved;
    tr_data *test;                       /* NULL: none */
    struct tr_lda_vocabulary vocabulary; /* on all ranks */
    tr_table *table;                     /* n_wk: words × topics, sparse */
    tr_table *totals;                    /* n_k */
    /* Row k: the number of documents with n_dk = column; the last row: lengths of documents. */
    tr_table *histograms;
    tr_evaluation
        last; /* on the scheduler, and from the file; objective: log p(w, z | α, β) per token; NaN: unknown */

    /* state of a worker */
    tr_data *train; /* closed after preparation unless there are test data */
    struct tr_lda_layout layout;
    struct tr_lda_sampler *sampler;
    tr_rotation *rotation;
    int depth;         /* number of blocks that this worker has between two clocks */
    tr_block block[2]; /* these blocks, after tr_lda_look() */
    tr_view *totals_view;
    int64_t *total;                 /* n_k as summed by the group */
    int64_t *known;                 /* total and this worker's own changes, at the begin of the round */
    double *numbers;                /* 2 topics + 3, for sums */
    struct tr_lda_count *counts[2]; /* topics elements each, for rows */
    uint32_t *column;               /* topics elements, for rows */
    int32_t *value;
    tr_key *first_words; /* words of the blocks in a clock's first rounds, ascending */
    size_t n_first_words;
    struct tr_lda_histogram sent;  /* several groups: the histograms that this worker has pushed */
    double log_words;              /* one group: log p of the blocks of the last rounds */
    uint64_t numbers_of_documents; /* upper bound of the numbers of documents */
    /* After a restart: the first clock, and the number of groups in the checkpoint. With one group the counts were stored
     * with the blocks, with several in the table. */
    int64_t first_clock, groups_before;
};

/* ---- model file and checkpoints (saved.c); predict, evaluate, inspect (answers.c) ---- */

int tr_lda_fields(void *lda, tr_fields *fields);
int tr_lda_answer(void *lda, tr_query *query);
int tr_lda_inspect(void *lda, tr_query *query);
int tr_lda_centres(const void *lda, tr_saved_centres *centres);
int tr_lda_saved_phi(const struct tr_lda *lda, struct tr_lda_saved *saved); /* opens saved->phi */
void tr_lda_saved_close(struct tr_lda_saved *saved);

/* ---- exchange of counts between groups through sparse tables, and reading of these tables (exchange.c) ---- */

/* Lists the words with tokens of m->block, the blocks of a clock's first rounds, in m->first_words. */
int tr_lda_list_words(struct tr_lda *lda);

/* Returns the memory of the block in m->block that has the word at this place. */
void *tr_lda_memory_of(const struct tr_lda *lda, uint64_t place);

/* Reads the blocks m->block from the table. With copy, a second copy is written behind each block. */
int tr_lda_pull_blocks(struct tr_lda *lda, bool copy);

/* Adds the difference between the block and its copy to the table; without a copy, the whole block. */
int tr_lda_push_block(struct tr_lda *lda, const tr_block *block, bool copied);

/* Counts this worker's documents for tr_lda_fit_alpha(). */
int tr_lda_count_documents(struct tr_lda *lda, struct tr_lda_histogram *documents);

/* The same over all workers: each worker pushes its histograms; a clock later each member pulls the rows of its part of the
 * topics (other rows are empty), and member 0 the lengths. */
int tr_lda_push_documents(struct tr_lda *lda);
int tr_lda_pull_documents(struct tr_lda *lda, const tr_worker *me, struct tr_lda_histogram *documents);

/* Adds log Γ(n_wk + β) - log Γ(β) over this worker's part of the words in the table to *sum. */
int tr_lda_log_table(struct tr_lda *lda, const tr_worker *me, double *sum);

/* Reads n words (NULL: all, from 0) and all totals from the tables. Outside tr_run(), while other ranks wait.
 *
 * @param [in,out] saved  freed first; free it with tr_lda_saved_close(), also after an error
 */
int tr_lda_read_tables(struct tr_lda *lda, const tr_key *words, size_t n, struct tr_lda_saved *saved);

/* Adds the result of document completion on this worker's documents. Outside tr_run(). */
int tr_lda_complete_data(struct tr_lda *lda, const tr_data *data, struct tr_lda_completion *sum);

/* Status: another member of the group has failed and reports the error; the stage ends. */
enum { TR_LDA_HALTED = -1 };

/* Waits, between two clocks, for the blocks of this worker and stores them in m->block. */
int tr_lda_look(struct tr_lda *lda);

/* Lists the state in checkpoints. */
int tr_lda_snapshot(tr_worker *me, void *lda, tr_snapshot *snapshot);

/* Returns whether the priors are fitted before the sweep of this clock. */
bool tr_lda_fits_before(const struct tr_lda *lda, int64_t clock);

/* Returns whether there are several groups, which exchange blocks through the table. */
static inline bool tr_lda_exchanges(const tr_worker *me)
{
    return me->groups > 1;
}

extern const tr_model_class tr_lda_class;

#endif
