#include "infer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 200 };
static const double still = 1e-4; /* sum of the changes of θ at which the iteration ends */

int tr_lda_phi_open(uint32_t topics, uint64_t words, const int64_t *total, const double *alpha, double beta,
                    const uint64_t *begin, const uint16_t *topic, const uint32_t *count,
                    struct tr_lda_phi *phi)
{
    struct tr_lda_phi p = {topics, begin, topic, count, alpha, 0, beta, NULL, NULL, NULL, NULL, NULL};
    TR_TRY(TR_NEW(&p.weight, 5 * (size_t)topics));
    p.now = p.weight + topics;
    p.next = p.now + topics;
    p.share = p.next + topics;
    p.theta = p.share + topics;
    for (uint32_t k = 0; k < topics; k++) {
        p.weight[k] = 1 / ((double)total[k] + (double)words * beta);
        p.alpha_sum += alpha[k];
    }
    *phi = p;
    return TR_OK;
}

void tr_lda_phi_close(struct tr_lda_phi *phi)
{
    free(phi->weight);
    *phi = (struct tr_lda_phi){0};
}

/* Computes share_k = θ_k / (n_k + Vβ), so that p(word) = β Σ share + Σ n_wk share_k. Returns the first term. */
static double set_shares(const struct tr_lda_phi *phi, const double *theta)
{
    double sum = 0;
    for (uint32_t k = 0; k < phi->topics; k++) {
        phi->share[k] = theta[k] * phi->weight[k];
        sum += phi->share[k];
    }
    return phi->beta * sum;
}

static double counted(const struct tr_lda_phi *phi, uint32_t word)
{
    double sum = 0;
    for (uint64_t i = phi->begin[word]; i < phi->begin[word + 1]; i++)
        sum += phi->count[i] * phi->share[phi->topic[i]];
    return sum;
}

/* One step of expectation maximisation: next = expected tokens of each topic given θ = now, then now ∝ α + next. Returns the
 * change of now. */
static double step(const struct tr_lda_phi *phi, double tokens, size_t n, const uint32_t *word,
                   const float *count)
{
    double flat = set_shares(phi, phi->now), smoothed = 0, change = 0;
    double *next = phi->next;
    memset(next, 0, phi->topics * sizeof *next);
    for (size_t i = 0; i < n; i++) {
        double each = (double)count[i] / (flat + counted(phi, word[i]));
        smoothed += each;
        for (uint64_t e = phi->begin[word[i]]; e < phi->begin[word[i] + 1]; e++)
            next[phi->topic[e]] += each * phi->count[e];
    }
    for (uint32_t k = 0; k < phi->topics; k++) {
        double now =
            (phi->alpha[k] + (next[k] + smoothed * phi->beta) * phi->share[k]) / (phi->alpha_sum + tokens);
        change += fabs(now - phi->now[k]);
        phi->now[k] = now;
    }
    return change;
}

void tr_lda_infer(const struct tr_lda_phi *phi, size_t n, const uint32_t *word, const float *count,
                  double *theta)
{
    double tokens = 0;
    for (size_t i = 0; i < n; i++) tokens += (double)count[i];
    for (uint32_t k = 0; k < phi->topics; k++) phi->now[k] = phi->alpha[k] / phi->alpha_sum;
    int steps = tokens > 0 ? STEPS : 0;
    while (steps > 0 && step(phi, tokens, n, word, count) > still) steps--;
    memcpy(theta, phi->now, phi->topics * sizeof *theta);
}

double tr_lda_log_words(const struct tr_lda_phi *phi, const double *theta, size_t n, const uint32_t *word,
                        const float *count)
{
    double flat = set_shares(phi, theta), sum = 0;
    for (size_t i = 0; i < n; i++)
        if (count[i] > 0) sum += (double)count[i] * log(flat + counted(phi, word[i]));
    return sum;
}

void tr_lda_complete(const struct tr_lda_phi *phi, uint64_t seed, uint64_t document, size_t n,
                     const uint32_t *word, const float *count, float *seen, float *held,
                     struct tr_lda_completion *sum)
{
    struct tr_rng rng;
    tr_rng_seed(&rng, seed, document, 0xc0);
    uint64_t tokens = 0;
    for (size_t i = 0; i < n; i++) {
        seen[i] = 0;
        float all = count ? count[i] : 1;
        for (uint64_t t = 0; t < (uint64_t)all; t++) seen[i] += (float)(tr_rng_next(&rng) >> 63);
        held[i] = all - seen[i];
        tokens += (uint64_t)held[i];
    }
    if (tokens == 0) return;
    tr_lda_infer(phi, n, word, seen, phi->theta);
    sum->log_p += tr_lda_log_words(phi, phi->theta, n, word, held);
    sum->tokens += tokens;
}

double tr_lda_perplexity(const struct tr_lda_completion *sum)
{
    return sum->tokens > 0 ? exp(-sum->log_p / (double)sum->tokens) : (double)NAN;
}
