/* The priors of topics: α, one number for each topic, and β, one for all words, fitted to the counts by maximum
 * likelihood.
 *
 * Given the topics of all tokens, documents are draws from a Dirichlet-multinomial with parameters α, topics such draws
 * with parameter β for every word. The likelihood has one maximum, and Minka's fixed point goes uphill to it:
 *
 *   α_k ← α_k Σ_d (Ψ(n_dk + α_k) - Ψ(α_k)) / Σ_d (Ψ(n_d + Σα) - Ψ(Σα))
 *   β   ← β Σ_wk (Ψ(n_wk + β) - Ψ(β)) / (V Σ_k (Ψ(n_k + Vβ) - Ψ(Vβ)))
 *
 * Only how often each count occurs matters, so the counts are kept as histograms. These may be spread over workers: the
 * sums of a step are handed to a function that adds those of all.
 *
 * Source: Minka, Estimating a Dirichlet distribution, 2000, section 4, eq. 65; Wallach, Structured topic models for
 * language, PhD thesis 2008, section 2.3 (histograms).
 */
#ifndef TR_MODEL_LDA_PRIORS_H
#define TR_MODEL_LDA_PRIORS_H

#include "trireme/base.h"

/* A prior never falls below this: a topic without tokens would have none at all. */
#define TR_LDA_LEAST_PRIOR 1e-5

/* In row `row` this count, above 0, occurs so many times. */
struct tr_lda_bin {
    uint32_t row, count, times;
};

/* A histogram for each row. While it is filled, the bins are of larger counts, in any order; small ones lie in `few`.
 * Once it is sorted, row r has bins begin[r] .. begin[r + 1] - 1, counts ascending. */
struct tr_lda_histogram {
    size_t rows, n, capacity;
    uint32_t *few;
    uint64_t *begin;
    struct tr_lda_bin *bin;
};

/* Add before sort. A count of 0 is not looked at. Free with tr_lda_histogram_close(); zeros inside are fine. */
int tr_lda_histogram_open(size_t rows, struct tr_lda_histogram *histogram);
int tr_lda_histogram_add(struct tr_lda_histogram *histogram, size_t row, uint32_t count, uint32_t times);
int tr_lda_histogram_sort(struct tr_lda_histogram *histogram);
void tr_lda_histogram_close(struct tr_lda_histogram *histogram);

/* Σ times × (Ψ(count + a) - Ψ(a)) over the bins of a row, a > 0. */
double tr_lda_histogram_slope(const struct tr_lda_histogram *histogram, size_t row, double a);

/* Adds up n numbers of all who take part, in place; the same for all of them. Behind the n is room for one more, which
 * means nothing. */
typedef int tr_lda_sum_fn(void *who, double *numbers, size_t n);

/* Fits α, one number for each topic.
 *   documents   topics + 1 rows: how often each topic has each count in a document; the last: how often documents have
 *               each number of tokens
 *   most        alpha ends no more than so many times as large or small as it was: the rows may not be of one moment,
 *               and with more tokens in topics than in documents it would grow without end
 *   numbers     2 topics + 3, for use here
 *   alpha       where it begins, all above 0, and ends
 * Fails only as sum() does. */
int tr_lda_fit_alpha(const struct tr_lda_histogram *documents, double most, tr_lda_sum_fn *sum, void *who,
                     double *numbers, double *alpha);

/* Fits β of `words` words; `of_words` has one row, of the counts n_wk. total: n_k, which are not summed. */
int tr_lda_fit_beta(const struct tr_lda_histogram *of_words, const int64_t *total, size_t topics,
                    uint64_t words, tr_lda_sum_fn *sum, void *who, double *beta);

#endif
