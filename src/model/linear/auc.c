/* Scores are sorted as runs: one score with the numbers of its positive and negative rows. Equal scores of a
 * rank make one run, so even when all scores are equal no rank gets more than a run from each. */
#include "model/linear/auc.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "table/view.h"

struct run {
    uint32_t key; /* orders as the score does */
    uint32_t positive, negative;
};

/* What has been counted; areas in halves, so that all is whole. Overflows beyond 9e18 pairs. */
struct counts {
    uint64_t positive, negative, halves, odd; /* odd: scores that are NaN */
};

enum { SAMPLES = 64 }; /* of each rank: shares differ by about an eighth */
enum { ROWS = 4096 };  /* whose margins are computed at once */

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

/* ---- on all ranks ---- */

struct sorter {
    tr_context *tr;
    struct run *runs, *other; /* this rank's sorted runs; then those it is sent */
    size_t n, capacity;
    uint32_t *samples, *splitters;
    int *send, *send_at, *receive, *receive_at; /* runs to and from each rank, and where */
    struct counts counts;
};

/* The scores of this worker's part of the test rows; in a vertical group, member 0 has those of the group. */
static int score_rows(struct tr_linear *m, struct sorter *s, double *margin)
{
    const struct tr_problem *p = &m->test_problem;
    tr_worker me = {.tr = m->tr, .member = m->tr->me.member, .group_size = m->tr->layout.group_size};
    bool vertical = me.group_size > 1 && m->job->data.partition == TR_DATA_VERTICAL;
    size_t end = tr_data_part_end(m->test, &me);
    for (size_t first = tr_data_part_begin(m->test, &me); first < end; first += ROWS) {
        size_t n = tr_min_size(ROWS, end - first);
        tr_margins(p, first, n, m->test_view->value, margin);
        if (vertical) TR_TRY(tr_group_sum(&me, margin, n));
        for (size_t i = 0; i < n && (!vertical || me.member == 0); i++) {
            s->runs[s->n++] = run_of((float)margin[i], p->target[first + i] > 0);
            s->counts.odd += isnan(margin[i]) != 0;
        }
    }
    return TR_OK;
}

static int make_runs(struct tr_linear *m, struct sorter *s)
{
    if (!m->test_view) return TR_OK; /* does not compute */
    TR_TRY(tr_pull_start(m->test_view, m->test_view->value, -1));
    TR_WAIT_UNTIL(m->tr, !tr_pull_busy(m->test_view), "the servers to hand out the model");
    double *margin;
    s->capacity = m->test_problem.rows.n;
    TR_TRY(TR_NEW(&s->runs, s->capacity));
    TR_TRY(TR_NEW(&s->other, s->capacity));
    TR_TRY(TR_NEW(&margin, ROWS));
    int status = score_rows(m, s, margin);
    free(margin);
    sort_runs(s->runs, s->other, s->n);
    s->n = join_equal(s->runs, s->n);
    return status;
}

static int by_key(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* Evenly spaced runs of all ranks, every one of which stands for as many rows of its rank: so ranks with more
 * rows give more samples. Rank r gets the keys from splitter r - 1 to below splitter r. */
static int choose_splitters(struct sorter *s)
{
    tr_context *tr = s->tr;
    size_t ranks = (size_t)tr->size;
    uint64_t mine = s->n, most;
    MPI_Request request;
    MPI_Iallreduce(&mine, &most, 1, MPI_UINT64_T, MPI_MAX, tr->world, &request);
    TR_TRY(tr_wait_request(tr, &request, "all ranks to score their rows"));
    uint64_t step = most / SAMPLES + 1;
    int n = 0;
    uint32_t sample[SAMPLES + 1];
    for (uint64_t i = step / 2; i < s->n; i += step) sample[n++] = s->runs[i].key;
    MPI_Iallgather(&n, 1, MPI_INT, s->receive, 1, MPI_INT, tr->world, &request);
    TR_TRY(tr_wait_request(tr, &request, "all ranks to sample their scores"));
    size_t total = 0;
    for (size_t r = 0; r < ranks; r++) {
        s->receive_at[r] = (int)total;
        total += (size_t)s->receive[r];
    }
    MPI_Iallgatherv(sample, n, MPI_UINT32_T, s->samples, s->receive, s->receive_at, MPI_UINT32_T, tr->world,
                    &request);
    TR_TRY(tr_wait_request(tr, &request, "all ranks to sample their scores"));
    qsort(s->samples, total, sizeof *s->samples, by_key);
    for (size_t r = 1; r < ranks; r++) s->splitters[r - 1] = total > 0 ? s->samples[r * total / ranks] : 0;
    return TR_OK;
}

static void divide_runs(struct sorter *s)
{
    size_t i = 0, ranks = (size_t)s->tr->size;
    for (size_t r = 0; r < ranks; r++) {
        s->send_at[r] = (int)i;
        while (i < s->n && (r + 1 == ranks || s->runs[i].key < s->splitters[r])) i++;
        s->send[r] = (int)i - s->send_at[r];
    }
}

/* How much comes from where, and room for it. */
static int expect_runs(struct sorter *s, struct run **incoming, size_t *total)
{
    tr_context *tr = s->tr;
    MPI_Request request;
    MPI_Ialltoall(s->send, 1, MPI_INT, s->receive, 1, MPI_INT, tr->world, &request);
    TR_TRY(tr_wait_request(tr, &request, "all ranks to divide their scores"));
    *total = 0;
    for (int r = 0; r < tr->size; r++) {
        s->receive_at[r] = (int)*total;
        *total += (size_t)s->receive[r];
    }
    return tr_agree(tr, TR_NEW(incoming, *total));
}

static int exchange_runs(struct sorter *s)
{
    tr_context *tr = s->tr;
    struct run *incoming = NULL;
    size_t total;
    int status = expect_runs(s, &incoming, &total);
    if (status != TR_OK) {
        free(incoming);
        return status;
    }
    MPI_Datatype type;
    MPI_Type_contiguous(3, MPI_UINT32_T, &type);
    MPI_Type_commit(&type);
    MPI_Request request;
    MPI_Ialltoallv(s->runs, s->send, s->send_at, type, incoming, s->receive, s->receive_at, type, tr->world,
                   &request);
    status = tr_wait_request(tr, &request, "all ranks to exchange their scores");
    MPI_Type_free(&type);
    free(s->runs);
    s->runs = incoming;
    s->n = total;
    free(s->other);
    s->other = NULL;
    return status;
}

/* Adds up what each rank counts of its range of keys. */
static int count_all(struct sorter *s)
{
    tr_context *tr = s->tr;
    uint64_t mine = 0, before = 0;
    MPI_Request request;
    for (size_t i = 0; i < s->n; i++) mine += s->runs[i].negative;
    MPI_Iexscan(&mine, &before, 1, MPI_UINT64_T, MPI_SUM, tr->world, &request);
    TR_TRY(tr_wait_request(tr, &request, "all ranks to count their scores"));
    count_runs(s->runs, s->n, tr->rank == 0 ? 0 : before, &s->counts);
    MPI_Iallreduce(MPI_IN_PLACE, &s->counts, 4, MPI_UINT64_T, MPI_SUM, tr->world, &request);
    return tr_wait_request(tr, &request, "all ranks to add up the area");
}

static int open_sorter(struct sorter *s)
{
    size_t ranks = (size_t)s->tr->size;
    TR_TRY(TR_NEW(&s->samples, ranks * (SAMPLES + 1)));
    TR_TRY(TR_NEW(&s->splitters, ranks));
    TR_TRY(TR_NEW(&s->send, ranks));
    TR_TRY(TR_NEW(&s->send_at, ranks));
    TR_TRY(TR_NEW(&s->receive, ranks));
    return TR_NEW(&s->receive_at, ranks);
}

static void close_sorter(struct sorter *s)
{
    void *arrays[] = {s->runs, s->other,   s->samples, s->splitters,
                      s->send, s->send_at, s->receive, s->receive_at};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) free(arrays[i]);
}

static int find_area(struct tr_linear *m, struct sorter *s)
{
    tr_context *tr = m->tr;
    TR_TRY(tr_agree(tr, open_sorter(s)));
    TR_TRY(tr_agree(tr, make_runs(m, s)));
    TR_TRY(choose_splitters(s));
    divide_runs(s);
    TR_TRY(exchange_runs(s));
    TR_TRY(tr_agree(tr, TR_NEW(&s->other, s->n)));
    sort_runs(s->runs, s->other, s->n);
    return count_all(s);
}

int tr_linear_auc(struct tr_linear *m, double *auc)
{
    double value = NAN;
    int status = TR_OK;
    if (m->test && m->job->model.type != TR_MODEL_LINEAR) {
        struct sorter s = {.tr = m->tr};
        status = find_area(m, &s);
        if (status == TR_OK) value = area(&s.counts);
        close_sorter(&s);
    }
    if (status == TR_OK) *auc = value;
    return status;
}
