/* Histograms of counts, and the fit of the priors to histograms. */
#include "lda.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    FEW = 32,   /* frequencies of counts below this are stored in the array `few` */
    STEPS = 200 /* maximum number of steps of a fit: between two fits the priors change little */
};
static const double still = 1e-5; /* the iteration ends when no prior changes by a larger fraction */

/* ---- histograms ---- */

int tr_lda_histogram_open(size_t rows, struct tr_lda_histogram *h)
{
    *h = (struct tr_lda_histogram){.rows = rows};
    TR_TRY(TR_NEW(&h->begin, rows + 1));
    return TR_NEW(&h->few, rows * FEW);
}

void tr_lda_histogram_close(struct tr_lda_histogram *h)
{
    TR_FREE_ALL(h->few, h->begin, h->bin);
    *h = (struct tr_lda_histogram){0};
}

static int histogram_append(struct tr_lda_histogram *h, size_t row, uint32_t count, uint32_t times)
{
    TR_TRY(TR_GROW(&h->bin, &h->capacity, h->n + 1));
    h->bin[h->n++] = (struct tr_lda_bin){(uint32_t)row, count, times};
    return TR_OK;
}

int tr_lda_histogram_add(struct tr_lda_histogram *h, size_t row, uint32_t count, uint32_t times)
{
    if (count >= FEW) return histogram_append(h, row, count, times);
    h->few[row * FEW + count] += times;
    return TR_OK;
}

static int priors_by_row_and_count(const void *x, const void *y)
{
    const struct tr_lda_bin *a = x, *b = y;
    if (a->row != b->row) return a->row < b->row ? -1 : 1;
    return (a->count > b->count) - (a->count < b->count);
}

int tr_lda_histogram_sort(struct tr_lda_histogram *h)
{
    for (size_t i = 0; i < h->rows * FEW; i++)
        if (i % FEW > 0 && h->few[i] > 0)
            TR_TRY(histogram_append(h, i / FEW, (uint32_t)(i % FEW), h->few[i]));
    if (h->n > 0) qsort(h->bin, h->n, sizeof *h->bin, priors_by_row_and_count);
    size_t n = 0;
    for (size_t i = 0; i < h->n; i++) {
        struct tr_lda_bin bin = h->bin[i];
        if (n > 0 && priors_by_row_and_count(&h->bin[n - 1], &bin) == 0) h->bin[n - 1].times += bin.times;
        else h->bin[n++] = bin, h->begin[bin.row + 1]++;
    }
    h->n = n;
    for (size_t row = 0; row < h->rows; row++) h->begin[row + 1] += h->begin[row];
    return TR_OK;
}

/* ---- slopes ---- */

/* Returns Ψ(x), x > 0: recurrence from x to at least 10, where the asymptotic series has double precision. */
static double priors_digamma(double x)
{
    double below = 0;
    for (; x < 10; x += 1) below += 1 / x;
    double y = 1 / (x * x);
    double series = y * (1.0 / 12 - y * (1.0 / 120 - y * (1.0 / 252 - y * (1.0 / 240 - y * (1.0 / 132)))));
    return log(x) - 0.5 / x - series - below;
}

double tr_lda_histogram_slope(const struct tr_lda_histogram *h, size_t row, double a)
{
    enum { NEAR = 16 }; /* number of terms 1 / (n + a) that cost less than two evaluations of Ψ */
    double sum = 0, rise = 0;
    uint32_t at = 0;
    for (uint64_t i = h->begin[row]; i < h->begin[row + 1]; i++) {
        uint32_t count = h->bin[i].count;
        if (count - at > NEAR) {
            rise += priors_digamma(count + a) - priors_digamma(at + a);
            at = count;
        }
        for (; at < count; at++) rise += 1 / (at + a);
        sum += h->bin[i].times * rise;
    }
    return sum;
}

/* ---- fits ---- */

/* Sets a prior and returns its relative change. */
static double prior_step(double *prior, double to)
{
    double old = *prior;
    *prior = fmax(to, TR_LDA_LEAST_PRIOR);
    return fabs(*prior - old) / old;
}

int tr_lda_fit_alpha(const struct tr_lda_histogram *documents, double most, tr_lda_sum_fn *sum, void *who,
                     double *numbers, double *alpha)
{
    size_t topics = documents->rows - 1;
    double change = 1, *first = numbers + topics + 3;
    memcpy(first, alpha, topics * sizeof *first);
    for (int i = 0; i < STEPS; i++) {
        /* The last number tells all workers whether a prior of any worker still changes, so that all stop in the same step. */
        double all = 0;
        for (size_t k = 0; k < topics; k++) all += alpha[k];
        for (size_t k = 0; k < topics; k++) numbers[k] = tr_lda_histogram_slope(documents, k, alpha[k]);
        numbers[topics] = tr_lda_histogram_slope(documents, topics, all);
        numbers[topics + 1] = change > still;
        TR_TRY(sum(who, numbers, topics + 2));
        double below = numbers[topics];
        if (!(numbers[topics + 1] > 0 && below > 0)) return TR_OK; /* `below` is 0 without documents */
        change = 0;
        for (size_t k = 0; k < topics; k++) {
            change = fmax(change, prior_step(&alpha[k], alpha[k] * numbers[k] / below));
            alpha[k] = fmin(fmax(alpha[k], first[k] / most), first[k] * most);
        }
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
        for (size_t k = 0; k < topics; k++) below += priors_digamma((double)total[k] + v * *beta);
        below -= (double)topics * priors_digamma(v * *beta);
        if (!(slope[1] > 0 && below > 0)) return TR_OK;
        change = prior_step(beta, *beta * slope[0] / (v * below));
    }
    return TR_OK;
}
