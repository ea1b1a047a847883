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
#ifndef TR_MODEL_LDA_INFER_H
#define TR_MODEL_LDA_INFER_H

#include "trireme/base.h"

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

#endif
