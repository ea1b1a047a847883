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
#ifndef TR_MODEL_LDA_PRIORS_H
#define TR_MODEL_LDA_PRIORS_H

#include "trireme/base.h"

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

#endif
