/* Scores are sorted as runs: one score with the numbers of its positive and negative rows. Equal scores of a
 * rank make one run, so even when all scores are equal no rank gets more than a run from each. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "auc.h"

struct run {
    uint32_t key; /* orders as the score does */
    uint32_t positive, negative;
};

/* What has been counted; areas in halves, so that all is whole. Overflows beyond 9e18 pairs. */
struct counts {
    uint64_t positive, negative, halves, odd; /* odd: scores that are NaN */
};

enum { SAMPLES = 64 }; /* of each rank: shares differ by about an eighth */

/* ---- runs ---- */

static uint32_t key_of(float score)
{
    uint32_t bits;
    score += 0.0f; /* -0 is 0 */
    memcpy(&bits, &score, sizeof bits);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

static struct run run_of(float score, bool positive)
{
    return (struct run){key_of(score), positive, !positive};
}

/* Sorts by key, a byte at a time from the lowest. `other` is as large; an even number of passes ends in runs.
 */
static void sort_runs(struct run *runs, struct run *other, size_t n)
{
    for (unsigned shift = 0; shift < 32; shift += 8) {
        size_t begin[257] = {0};
        for (size_t i = 0; i < n; i++) begin[((runs[i].key >> shift) & 255) + 1]++;
        for (int b = 0; b < 256; b++) begin[b + 1] += begin[b];
        for (size_t i = 0; i < n; i++) other[begin[(runs[i].key >> shift) & 255]++] = runs[i];
        struct run *old = runs;
        runs = other;
        other = old;
    }
}

static size_t join_equal(struct run *runs, size_t n)
{
    size_t kept = 0;
    for (size_t i = 0; i < n; i++) {
        if (kept > 0 && runs[kept - 1].key == runs[i].key) {
            runs[kept - 1].positive += runs[i].positive;
            runs[kept - 1].negative += runs[i].negative;
        } else {
            runs[kept++] = runs[i];
        }
    }
    return kept;
}

/* Sorted runs into counts, with so many negative ones in front of them all. */
static void count_runs(const struct run *runs, size_t n, uint64_t negative, struct counts *counts)
{
    for (size_t i = 0; i < n;) {
        uint64_t positive = 0, tied = 0;
        for (uint32_t key = runs[i].key; i < n && runs[i].key == key; i++) {
            positive += runs[i].positive;
            tied += runs[i].negative;
        }
        counts->halves += positive * (2 * negative + tied);
        counts->positive += positive;
        counts->negative += tied;
        negative += tied;
    }
}

static double area(const struct counts *c)
{
    if (c->odd > 0 || c->positive == 0 || c->negative == 0) return NAN;
    return (double)c->halves / (2 * (double)c->positive * (double)c->negative);
}

double tr_auc(const float *score, const signed char *positive, size_t n)
{
    struct run *runs = NULL, *other = NULL;
    struct counts counts = {0};
    if (TR_NEW(&runs, n) == TR_OK && TR_NEW(&other, n) == TR_OK) {
        for (size_t i = 0; i < n; i++) {
            runs[i] = run_of(score[i], positive[i] > 0);
            counts.odd += isnan(score[i]) != 0;
        }
        sort_runs(runs, other, n);
        count_runs(runs, n, 0, &counts);
    }
    free(runs);
    free(other);
    return area(&counts);
}

int tr_score_counts(const float *score, const signed char *positive, size_t n, uint64_t (**counts)[2],
                    size_t *points)
{
    struct run *runs = NULL, *other = NULL;
    int status = TR_NEW(&runs, n);
    if (status == TR_OK) status = TR_NEW(&other, n);
    if (status == TR_OK) status = TR_NEW(counts, n);
    *points = 0;
    if (status == TR_OK) {
        uint64_t above[2] = {0, 0};
        for (size_t i = 0; i < n; i++) runs[i] = run_of(score[i], positive[i] > 0);
        sort_runs(runs, other, n);
        for (size_t i = join_equal(runs, n); i-- > 0; ++*points) {
            (*counts)[*points][0] = above[0] += runs[i].positive;
            (*counts)[*points][1] = above[1] += runs[i].negative;
        }
    }
    free(runs);
    free(other);
    return status;
}

/* ---- on all ranks ---- */

struct tr_area {
    struct run *runs, *other; /* this rank's sorted runs, and as much room; then those that it is sent */
    size_t n;
    struct counts counts;
};

int tr_area_open(size_t rows, struct tr_area **area)
{
    TR_TRY(TR_NEW(area, 1));
    TR_TRY(TR_NEW(&(*area)->runs, rows));
    return TR_NEW(&(*area)->other, rows);
}

void tr_area_add(struct tr_area *a, float score, bool positive)
{
    a->runs[a->n++] = run_of(score, positive);
    a->counts.odd += isnan(score) != 0;
}

void tr_area_close(struct tr_area **area)
{
    if (!*area) return;
    free((*area)->runs);
    free((*area)->other);
    free(*area);
    *area = NULL;
}

static int by_key(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* Evenly spaced runs of all ranks, every one of which stands for as many rows of its rank: so ranks with more rows give
 * more samples. Rank r gets the keys from splitter r - 1 to below splitter r. */
static int choose_splitters(tr_context *tr, const struct tr_area *a, uint32_t *samples, uint32_t *splitters)
{
    size_t ranks = (size_t)tr_size(tr), total = 0;
    uint64_t most = a->n;
    uint32_t sample[SAMPLES + 2] = {0}; /* how many follow */
    TR_TRY(tr_all_reduce(tr, TR_SET_ALL, TR_MAX, TR_I64, &most, 1));
    uint64_t step = most / SAMPLES + 1;
    for (uint64_t i = step / 2; i < a->n; i += step) sample[++sample[0]] = a->runs[i].key;
    TR_TRY(tr_all_gather(tr, TR_SET_ALL, sample, sizeof sample, samples));
    for (size_t r = 0; r < ranks; r++) {
        const uint32_t *from = samples + r * (SAMPLES + 2);
        uint32_t n = *from;
        memmove(samples + total, from + 1, n * sizeof *samples);
        total += n;
    }
    qsort(samples, total, sizeof *samples, by_key);
    for (size_t r = 1; r < ranks; r++) splitters[r - 1] = total > 0 ? samples[r * total / ranks] : 0;
    return TR_OK;
}

/* Every rank gets all runs of its range of keys. send and receive: bytes to and from each rank. */
static int exchange_runs(tr_context *tr, struct tr_area *a, const uint32_t *splitters, size_t *send,
                         size_t *receive)
{
    size_t ranks = (size_t)tr_size(tr), i = 0, bytes = 0;
    struct run *incoming = NULL;
    for (size_t r = 0; r < ranks; r++) {
        size_t first = i;
        while (i < a->n && (r + 1 == ranks || a->runs[i].key < splitters[r])) i++;
        send[r] = (i - first) * sizeof *a->runs;
    }
    TR_TRY(tr_exchange_counts(tr, TR_SET_ALL, send, receive));
    for (size_t r = 0; r < ranks; r++) bytes += receive[r];
    free(a->other);
    a->other = NULL;
    a->n = bytes / sizeof *incoming;
    int status = TR_NEW(&incoming, a->n);
    if (status == TR_OK) status = TR_NEW(&a->other, a->n);
    status = tr_agree(tr, status);
    if (status == TR_OK) status = tr_exchange(tr, TR_SET_ALL, a->runs, send, incoming, receive);
    free(a->runs);
    a->runs = incoming;
    return status;
}

static int divide_runs(tr_context *tr, struct tr_area *a)
{
    size_t ranks = (size_t)tr_size(tr), *bytes = NULL;
    uint32_t *samples;
    int status = TR_NEW(&samples, ranks * (SAMPLES + 3));
    if (status == TR_OK) status = TR_NEW(&bytes, 2 * ranks);
    status = tr_agree(tr, status);
    uint32_t *splitters = samples + ranks * (SAMPLES + 2);
    if (status == TR_OK) status = choose_splitters(tr, a, samples, splitters);
    if (status == TR_OK) status = exchange_runs(tr, a, splitters, bytes, bytes + ranks);
    free(samples);
    free(bytes);
    return status;
}

/* Adds up what each rank counts of its range of keys. */
int tr_area_find(tr_context *tr, struct tr_area *a, double *auc)
{
    uint64_t mine = 0, before;
    sort_runs(a->runs, a->other, a->n);
    a->n = join_equal(a->runs, a->n);
    TR_TRY(divide_runs(tr, a));
    sort_runs(a->runs, a->other, a->n);
    for (size_t i = 0; i < a->n; i++) mine += a->runs[i].negative;
    TR_TRY(tr_sum_before(tr, TR_SET_ALL, mine, &before));
    count_runs(a->runs, a->n, before, &a->counts);
    TR_TRY(tr_all_reduce(tr, TR_SET_ALL, TR_SUM, TR_I64, &a->counts, sizeof a->counts / sizeof(uint64_t)));
    *auc = area(&a->counts);
    return TR_OK;
}
