#include "priors.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    FEW = 32,   /* smaller counts have a place of their own in a tally */
    STEPS = 200 /* at most: from one fit to the next the priors change little */
};
static const double still = 1e-5; /* relative change of a prior at which it has arrived */

/* ---- histograms ---- */

int tr_lda_tally_open(size_t rows, struct tr_lda_tally *tally)
{
    struct tr_lda_tally t = {.rows = rows};
    TR_TRY(TR_NEW(&t.few, rows * FEW));
    *tally = t;
    return TR_OK;
}

void tr_lda_tally_close(struct tr_lda_tally *t)
{
    free(t->few);
    free(t->many);
    *t = (struct tr_lda_tally){0};
}

int tr_lda_tally_add(struct tr_lda_tally *t, size_t row, uint32_t count)
{
    if (count == 0) return TR_OK;
    if (count < FEW) {
        t->few[row * FEW + count]++;
        return TR_OK;
    }
    TR_TRY(TR_GROW(&t->many, &t->many_room, t->n_many + 1));
    t->many[t->n_many++] = (uint64_t)row << 32 | count;
    return TR_OK;
}

static int ascending(const void *x, const void *y)
{
    uint64_t a = *(const uint64_t *)x, b = *(const uint64_t *)y;
    return (a > b) - (a < b);
}

static uint64_t most_bins(const struct tr_lda_tally *t)
{
    uint64_t n = 0;
    for (size_t i = 0; i < t->rows * FEW; i++) n += t->few[i] > 0;
    for (size_t i = 0; i < t->n_many; i++) n += i == 0 || t->many[i] != t->many[i - 1];
    return n;
}

int tr_lda_tally_take(struct tr_lda_tally *t, struct tr_lda_histogram *histogram)
{
    struct tr_lda_histogram h = {.rows = t->rows};
    if (t->n_many > 0) qsort(t->many, t->n_many, sizeof *t->many, ascending);
    TR_TRY(TR_NEW(&h.begin, t->rows + 1));
    int status = TR_NEW(&h.bin, most_bins(t));
    size_t at = 0;
    for (size_t row = 0; status == TR_OK && row < t->rows; row++) {
        uint64_t n = h.begin[row];
        for (uint32_t c = 1; c < FEW; c++)
            if (t->few[row * FEW + c]) h.bin[n++] = (struct tr_lda_bin){c, t->few[row * FEW + c]};
        for (uint64_t first = n; at < t->n_many && t->many[at] >> 32 == row; at++) {
            uint32_t c = (uint32_t)t->many[at];
            if (n > first && h.bin[n - 1].count == c) h.bin[n - 1].times++;
            else h.bin[n++] = (struct tr_lda_bin){c, 1};
        }
        h.begin[row + 1] = n;
    }
    memset(t->few, 0, t->rows * FEW * sizeof *t->few);
    t->n_many = 0;
    if (status == TR_OK) *histogram = h;
    else tr_lda_histogram_close(&h);
    return status;
}

void tr_lda_histogram_close(struct tr_lda_histogram *h)
{
    free(h->begin);
    free(h->bin);
    *h = (struct tr_lda_histogram){0};
}

/* ---- slopes ---- */

/* Ψ(x), x > 0: by the recurrence to where the asymptotic series is exact to double precision. */
static double digamma(double x)
{
    double below = 0;
    for (; x < 10; x += 1) below += 1 / x;
    double y = 1 / (x * x);
    double series = y * (1.0 / 12 - y * (1.0 / 120 - y * (1.0 / 252 - y * (1.0 / 240 - y * (1.0 / 132)))));
    return log(x) - 0.5 / x - series - below;
}

double tr_lda_histogram_slope(const struct tr_lda_histogram *h, size_t row, double a)
{
    enum { NEAR = 16 }; /* steps that cost less than two Ψ */
    double sum = 0, rise = 0;
    uint32_t at = 0;
    for (uint64_t i = h->begin[row]; i < h->begin[row + 1]; i++) {
        uint32_t count = h->bin[i].count;
        if (count - at > NEAR) {
            rise += digamma(count + a) - digamma(at + a);
            at = count;
        }
        for (; at < count; at++) rise += 1 / (at + a);
        sum += h->bin[i].times * rise;
    }
    return sum;
}

/* ---- fits ---- */

/* Where a prior goes in a step, and how far that is, in proportion. */
static double step(double *prior, double to)
{
    double old = *prior;
    *prior = fmax(to, TR_LDA_LEAST_PRIOR);
    return fabs(*prior - old) / old;
}

/* One step of all. *change is the largest, and on entry that of the step before: when nobody's prior has moved, all
 * learn it from the same sum, so that none goes on alone. */
static int step_alpha(const struct tr_lda_histogram *of_topics, const struct tr_lda_histogram *lengths,
                      tr_lda_sum_fn *sum, void *who, double *alpha, double *slope, double *change)
{
    size_t topics = of_topics->rows;
    double all = 0;
    for (size_t k = 0; k < topics; k++) all += alpha[k];
    for (size_t k = 0; k < topics; k++) slope[k] = tr_lda_histogram_slope(of_topics, k, alpha[k]);
    slope[topics] = tr_lda_histogram_slope(lengths, 0, all);
    slope[topics + 1] = *change > still;
    TR_TRY(sum(who, slope, topics + 2));
    double below = slope[topics];
    bool moves = slope[topics + 1] > 0 && below > 0; /* where there are no documents it does not */
    *change = 0;
    for (size_t k = 0; moves && k < topics; k++)
        *change = fmax(*change, step(&alpha[k], alpha[k] * slope[k] / below));
    if (!moves) *change = -1;
    return TR_OK;
}

int tr_lda_fit_alpha(const struct tr_lda_histogram *of_topics, const struct tr_lda_histogram *lengths,
                     double most, tr_lda_sum_fn *sum, void *who, double *numbers, double *alpha)
{
    size_t topics = of_topics->rows;
    double change = 1, *first = numbers + topics + 3;
    memcpy(first, alpha, topics * sizeof *first);
    for (int i = 0; i < STEPS && change >= 0; i++) {
        TR_TRY(step_alpha(of_topics, lengths, sum, who, alpha, numbers, &change));
        for (size_t k = 0; k < topics; k++) alpha[k] = fmin(fmax(alpha[k], first[k] / most), first[k] * most);
    }
    return TR_OK;
}

int tr_lda_fit_beta(const struct tr_lda_histogram *of_words, const int64_t *total, size_t topics,
                    uint64_t words, tr_lda_sum_fn *sum, void *who, double *beta)
{
    double change = 1, v = (double)words;
    for (int i = 0; i < STEPS; i++) {
        double slope[3] = {tr_lda_histogram_slope(of_words, 0, *beta), change > still}, below = 0;
        TR_TRY(sum(who, slope, 2));
        for (size_t k = 0; k < topics; k++) below += digamma((double)total[k] + v * *beta);
        below -= (double)topics * digamma(v * *beta);
        if (!(slope[1] > 0 && below > 0)) return TR_OK;
        change = step(beta, *beta * slope[0] / (v * below));
    }
    return TR_OK;
}
