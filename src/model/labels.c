#include "labels.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

size_t tr_label_place(const float *labels, size_t n, float label)
{
    size_t first = 0, all = n;
    while (n > 0) {
        size_t half = n / 2;
        if (labels[first + half] < label) first += half + 1, n -= half + 1;
        else n = half;
    }
    return first < all && labels[first] == label ? first : all;
}

int tr_labels_check_test(tr_context *tr, const tr_data *train, const tr_data *test)
{
    size_t unknown = 0;
    uint64_t rows = 0;
    for (size_t i = 0; i < test->labels; i++)
        unknown += tr_label_place(train->label, train->labels, test->label[i]) == train->labels;
    if (unknown == 0) return TR_OK;
    if (unknown == test->labels && test->label[0] == test->label[unknown - 1])
        return tr_fail(TR_ERR_DATA,
                       "data.test: its only label is %.9g, expected one of data.train, such as %.9g",
                       (double)test->label[0], (double)train->label[0]);
    if (unknown == test->labels)
        return tr_fail(TR_ERR_DATA,
                       "data.test: none of its labels (%.9g ... %.9g) occurs in data.train, expected some of "
                       "%.9g ... %.9g",
                       (double)test->label[0], (double)test->label[unknown - 1], (double)train->label[0],
                       (double)train->label[train->labels - 1]);
    tr_worker me = {.tr = tr, .member = tr_set_rank(tr, TR_SET_GROUP), .group_size = tr_group_size(tr)};
    bool again = me.member > 0 && tr_job_is(tr_context_job(tr), "data.partition", "vertical");
    if (test->rows.n > 0 && !again)
        for (size_t i = tr_data_part_begin(test, &me); i < tr_data_part_end(test, &me); i++)
            rows += tr_label_place(train->label, train->labels, test->rows.label[i]) == train->labels;
    TR_TRY(tr_all_reduce(tr, TR_SET_ALL, TR_SUM, TR_I64, &rows, 1));
    tr_say(tr, "note:          rows of data.test whose label no training row has: %llu, wrong in any case",
           (unsigned long long)rows);
    return TR_OK;
}

/* More integers, or real numbers, than FEW are classes only in special cases, more than TR_GUESSED_CLASSES never. */
enum { FEW = 20 };

static bool labels_are_integers(const tr_data *train)
{
    for (size_t i = 0; i < train->labels; i++)
        if (train->label[i] != rintf(train->label[i])) return false;
    return true;
}

/* Integers are classes if they are few, or if they number many classes from 0 or 1, none of which is rare: counts and ages have
 * gaps or rare values. */
static int labels_number_classes(tr_context *tr, const tr_data *train, bool *classes)
{
    enum { RARE = 5 };
    size_t n = train->labels;
    double count[TR_GUESSED_CLASSES] = {0}, sum = 0, least = INFINITY;
    *classes = n <= FEW;
    if (n <= FEW || !tr_labels_may_be_classes(n, true)) return TR_OK;
    bool consecutive = train->label[0] >= 0 && train->label[0] <= 1 &&
                       train->label[n - 1] - train->label[0] == (float)(n - 1);
    if (!consecutive) return TR_OK;
    for (size_t i = 0; i < train->rows.n; i++) count[(size_t)(train->rows.label[i] - train->label[0])]++;
    TR_TRY(tr_all_reduce(tr, TR_SET_ALL, TR_SUM, TR_F64, count, n));
    for (size_t k = 0; k < n; k++) {
        sum += count[k];
        least = fmin(least, count[k]);
    }
    *classes = least * RARE >= sum / (double)n;
    return TR_OK;
}

/* For messages: «3 names», «29 integers (1 ... 29)». */
static void labels_describe(const tr_data *train, char text[96])
{
    bool most = train->labels > 65535, one = train->labels == 1;
    const char *kind = tr_data_labels_are_names(train) ? "name"
                       : labels_are_integers(train)    ? "integer"
                                                       : "real number";
    int n = snprintf(text, 96, "%s%zu %s%s", most ? "more than " : "", train->labels - most, kind,
                     one ? "" : "s");
    if (!tr_data_labels_are_names(train) && train->labels > 0)
        snprintf(text + n, 96 - (size_t)n, " (%.6g ... %.6g)", (double)train->label[0],
                 (double)train->label[train->labels - 1]);
}

int tr_labels_decide(tr_context *tr, const tr_data *train, bool *classes)
{
    *classes = train->labels <= 2 || tr_data_labels_are_names(train);
    return *classes || !labels_are_integers(train) ? TR_OK : labels_number_classes(tr, train, classes);
}

void tr_labels_say(tr_context *tr, const tr_data *train, const char *key, const char *chosen,
                   const char *other, bool classes)
{
    char text[96], head[32], more[96] = "";
    labels_describe(train, text);
    snprintf(head, sizeof head, "%s:", key);
    if (!tr_data_labels_are_names(train) && train->labels <= TR_GUESSED_CLASSES)
        snprintf(more, sizeof more, "; %s=%s takes them as %s", key, other, classes ? "numbers" : "classes");
    tr_say(tr, "%-14s %s: labels are %s%s", head, chosen, text, more);
}

int tr_labels_check(const tr_job *job, const tr_data *train, const char *key, const char *type,
                    const char *other, bool classes)
{
    char text[96];
    bool names = tr_data_labels_are_names(train), reals = train->labels > FEW && !labels_are_integers(train);
    if (classes ? !reals : !names) return TR_OK;
    labels_describe(train, text);
    return tr_fail(TR_ERR_DATA, "%s: labels are %s, but %s %s needs %s: expected %s %s",
                   tr_job_where(job, "data.train"), text, key, type, classes ? "classes" : "numbers", key,
                   other);
}

/* Reads one «label:weight» of the list and moves *at behind it. */
static int class_weights_next(const tr_job *job, const char **at, float *label, double *weight)
{
    char *end, *behind = NULL;
    *label = strtof(*at, &end);
    bool fine = end > *at && *end == ':' && isfinite(*label);
    *weight = fine ? strtod(end + 1, &behind) : 0;
    fine = fine && behind > end + 1 && (!*behind || strchr(" ,", *behind)) && *weight >= 0 && *weight <= 1e12;
    if (!fine)
        return tr_fail(
            TR_ERR_CONFIG,
            "%s: model.class_weights, at «%.40s»: expected balanced, or label:weight pairs with blanks "
            "between them, weights from 0 to 1e12",
            tr_job_where(job, "model.class_weights"), *at);
    *at = behind + strspn(behind, " ,");
    return TR_OK;
}

int tr_class_weights_check(const tr_job *job, const char *text)
{
    float label;
    double weight;
    if (strcmp(text, "balanced") == 0) return TR_OK;
    while (*text) TR_TRY(class_weights_next(job, &text, &label, &weight));
    return TR_OK;
}

int tr_class_weights_find(const tr_job *job, const char *text, const float *label, const double *count,
                          size_t n, double *weight)
{
    double total = 0, labels = 0;
    bool balanced = strcmp(text, "balanced") == 0;
    for (size_t k = 0; k < n; k++) {
        total += count[k];
        labels += count[k] > 0;
    }
    for (size_t k = 0; k < n; k++) weight[k] = balanced && count[k] > 0 ? total / (labels * count[k]) : 1;
    while (*text && !balanced) {
        float of;
        double w = 0;
        TR_TRY(class_weights_next(job, &text, &of, &w));
        size_t k = tr_label_place(label, n, of);
        if (k == n)
            return tr_fail(TR_ERR_CONFIG, "%s: model.class_weights has label %.9g, which no row has",
                           tr_job_where(job, "model.class_weights"), (double)of);
        weight[k] = w;
    }
    return TR_OK;
}

int tr_check_initial(const tr_job *job, const char *path)
{
    if (!tr_job_output_has(job, path)) return TR_OK;
    return tr_fail(TR_ERR_CONFIG, "%s: model.init is in the folder of this run: expected another output",
                   tr_job_where(job, "model.init"));
}

/* ---- weighted quantiles ---- */

/* The key (tr_key_of_float()) of a quantile is found in four rounds of eight bits each, the highest bits first. A round sums the
 * weights of the rows for each value of its bits. Weights are rounded to integers: their sums do not depend on the ranks. */
enum { COUNTERS = 256 };

struct quantile_search {
    uint32_t found;     /* the highest bits of the key of the quantile that earlier rounds have found */
    int64_t below, all; /* weight of the rows with smaller highest bits; weight of all rows of the set */
};

int tr_weighted_quantiles(tr_context *tr, enum tr_set ranks, const struct tr_row_set *set, size_t n,
                          const float *value, const float *weight, double part, float *quantile)
{
    TR_FREED struct quantile_search *search = NULL;
    TR_FREED int64_t *counters = NULL;
    double most = 0;
    TR_TRY(TR_NEW(&search, n));
    TR_TRY(TR_NEW(&counters, n * COUNTERS));
    for (size_t k = 0; k < n && weight; k++)
        for (size_t i = 0; i < set[k].n; i++)
            most = fmax(most, (double)weight[set[k].row ? set[k].row[i] : i]);
    TR_TRY(tr_all_reduce(tr, ranks, TR_MAX, TR_F64, &most, 1));
    float scale = most > 0 ? (float)(0x1p20 / most) : 0;
    for (unsigned shift = 32; shift > 0;) {
        shift -= 8;
        memset(counters, 0, n * COUNTERS * sizeof *counters);
        for (size_t k = 0; k < n; k++)
            for (size_t i = 0; i < set[k].n; i++) {
                size_t r = set[k].row ? set[k].row[i] : i;
                uint32_t key = tr_key_of_float(value[r]);
                if ((uint64_t)key >> (shift + 8) != search[k].found) continue;
                counters[k * COUNTERS + (key >> shift & 255)] += weight ? llrintf(weight[r] * scale) : 1;
            }
        TR_TRY(tr_all_reduce(tr, ranks, TR_SUM, TR_I64, counters, n * COUNTERS));
        for (size_t k = 0; k < n; k++) {
            /* the next eight bits: index of the first counter at which the running sum reaches `part` of the weight */
            struct quantile_search *s = &search[k];
            const int64_t *counter = counters + k * COUNTERS;
            size_t bits = 0;
            for (size_t c = 0; c < COUNTERS && shift == 24; c++) s->all += counter[c];
            int64_t least = (int64_t)ceil(part * (double)s->all);
            least = least > 1 ? least : 1;
            while (bits + 1 < COUNTERS && s->below + counter[bits] < least) s->below += counter[bits++];
            s->found = s->found << 8 | (uint32_t)bits;
        }
    }
    for (size_t k = 0; k < n; k++) quantile[k] = search[k].all > 0 ? tr_float_of_key(search[k].found) : 0;
    return TR_OK;
}

int tr_targets_measure(tr_context *tr, enum tr_set ranks, const float *target, const float *weight, size_t n,
                       double mean, double *median, double *scale, const char **name)
{
    struct tr_row_set rows = {NULL, n};
    float middle, deviation;
    double sum[2] = {0}; /* Σ weight, Σ weight × (target - mean)² */
    TR_FREED float *size = NULL;
    TR_TRY(TR_NEW(&size, n));
    TR_TRY(tr_weighted_quantiles(tr, ranks, &rows, 1, target, weight, 0.5, &middle));
    for (size_t i = 0; i < n; i++) {
        double off = (double)target[i] - mean, c = weight ? (double)weight[i] : 1;
        sum[0] += c;
        sum[1] += off * off * c;
        size[i] = fabsf(target[i] - middle);
    }
    TR_TRY(tr_weighted_quantiles(tr, ranks, &rows, 1, size, weight, 0.5, &deviation));
    TR_TRY(tr_all_reduce(tr, ranks, TR_SUM, TR_F64, sum, 2));
    *median = (double)middle;
    *scale = deviation > 0 ? (double)deviation : sqrt(sum[1] / sum[0]);
    *name = deviation > 0 ? "the median absolute deviation" : "the standard deviation";
    if (!(*scale > 0)) *scale = 1, *name = "as for lack of a deviation";
    return TR_OK;
}

/* ---- the best constant beside offsets ---- */

/* Takes Newton steps inside a bracket, and bisects it where a step leaves it or the loss has no curvature. */
int tr_constant_beside_offsets(tr_context *tr, enum tr_set ranks, const struct tr_loss *loss, double shape,
                               size_t first, size_t end, const float *target, const float *weight,
                               const float *offset, double *constant)
{
    enum { TURNS = 100 };
    const double least_log = -28, most_log = 89; /* logarithms of 1e-12, and of the largest float */
    double most = 0, sums[3]; /* Σ weight × slope, Σ weight × |slope|, Σ weight × curvature */
    for (size_t i = first; i < end; i++) most = fmax(most, fabs((double)offset[i]));
    TR_TRY(tr_all_reduce(tr, ranks, TR_MAX, TR_F64, &most, 1));
    double low = least_log - most, high = most_log + most, at = 0;
    for (int turn = 0; turn < TURNS; turn++) {
        memset(sums, 0, sizeof sums);
        for (size_t i = first; i < end; i++) {
            double c = weight ? (double)weight[i] : 1, m = at + (double)offset[i], y = (double)target[i];
            double slope = loss->slope(m, y, shape);
            sums[0] += c * slope;
            sums[1] += c * fabs(slope);
            if (loss->curvature) sums[2] += c * loss->curvature(m, y, slope, shape);
        }
        TR_TRY(tr_all_reduce(tr, ranks, TR_SUM, TR_F64, sums, 3));
        if (fabs(sums[0]) <= 1e-14 * sums[1]) break;
        *(sums[0] > 0 ? &high : &low) = at;
        double next = at - sums[0] / sums[2];
        if (!(next > low && next < high)) next = low + (high - low) / 2;
        if (fabs(next - at) <= 4e-16 * fabs(at)) break;
        at = next;
    }
    *constant = at;
    return TR_OK;
}
