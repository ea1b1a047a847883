/* Folding in: which topics a document has that training has not seen, and how probable its words are.
 *
 * The topics' words stay as they are. Of the document's mixture θ, what is found is the most probable one given its
 * words, under a Dirichlet prior with parameters α + 1; it is θ ∝ α + expected tokens of each topic, by expectation
 * maximisation. With these parameters that is as good as sampling or variational inference; there is one maximum, so it
 * needs no random numbers. A step costs the entries that the document's words have in the model, not words × topics.
 *
 * Source: Asuncion, Welling, Smyth and Teh, On smoothing and inference for topic models, UAI 2009, sections 3.4 and 4;
 * Wallach, Murray, Salakhutdinov and Mimno, Evaluation methods for topic models, ICML 2009, section 5 (document
 * completion).
 */
#ifndef TR_MODEL_LDA_INFER_H
#define TR_MODEL_LDA_INFER_H

#include "trireme/base.h"

/* Words of a model; nothing is owned but `weight`. */
struct tr_lda_phi {
    uint32_t topics;
    const uint64_t *begin; /* entries of row i: begin[i] .. begin[i + 1] - 1 of … */
    const uint16_t *topic;
    const uint32_t *count;
    const double *alpha;
    double alpha_sum, beta;
    double *weight;                     /* 1 / (n_k + words × β) */
    double *now, *next, *share, *theta; /* for use here */
};

/* total: n_k; words: all of the vocabulary, also where rows are of some only. What is pointed to must stay. Free with
 * tr_lda_phi_close(). */
int tr_lda_phi_open(uint32_t topics, uint64_t words, const int64_t *total, const double *alpha, double beta,
                    const uint64_t *begin, const uint16_t *topic, const uint32_t *count,
                    struct tr_lda_phi *phi);
void tr_lda_phi_close(struct tr_lda_phi *phi); /* zeros inside are fine */

/* θ of a document of n words, given by their rows, with their counts (0 is fine): shares that sum to 1. Without words
 * they are those of the prior. */
void tr_lda_infer(const struct tr_lda_phi *phi, size_t n, const uint32_t *word, const float *count,
                  double *theta);

/* Σ count × log p(word | θ). */
double tr_lda_log_words(const struct tr_lda_phi *phi, const double *theta, size_t n, const uint32_t *word,
                        const float *count);

/* How well documents are completed: half of a document's tokens, drawn at random, say what its mixture is, the other
 * half what that is worth. Adds the log-probability and the number of the latter. count NULL: all are 1.
 * seen, held: room for n each. */
struct tr_lda_completion {
    double log_p;
    uint64_t tokens;
};
void tr_lda_complete(const struct tr_lda_phi *phi, uint64_t seed, uint64_t document, size_t n,
                     const uint32_t *word, const float *count, float *seen, float *held,
                     struct tr_lda_completion *sum);

/* exp(-log p per token); NaN without tokens. */
double tr_lda_perplexity(const struct tr_lda_completion *sum);

#endif
