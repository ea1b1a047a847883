#include "metrics.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "labels.h"

/* ---- the area under the ROC curve ---- */

/* A run: one row; after area_sort(), all rows with the same score. */
struct run {
    double weight[2]; /* weight of its negative rows, and of its positive rows */
    uint32_t key;     /* tr_key_of_float() of the score */
};

struct tr_area {
    struct run *run;
    size_t n, capacity;
    bool has_nan; /* a score is NaN */
};

/* Sums over runs: weights of negative and positive rows; HALVES: weight of the pairs with the higher score at the positive row,
 * twice, and of tied pairs, once; NANS: ranks with has_nan. If all weights are 1, sums are whole numbers, exact up to 2^53. */
enum { NEGATIVE, POSITIVE, HALVES, NANS, AREA_SUMS };

int tr_area_open(size_t rows, struct tr_area **area)
{
    TR_TRY(TR_NEW(area, 1));
    return TR_GROW(&(*area)->run, &(*area)->capacity, rows);
}

void tr_area_close(struct tr_area **area)
{
    if (!*area) return;
    free((*area)->run);
    free(*area);
    *area = NULL;
}

int tr_area_add(struct tr_area *a, float score, bool positive, double weight)
{
    TR_TRY(TR_GROW(&a->run, &a->capacity, a->n + 1));
    a->run[a->n] = (struct run){.key = tr_key_of_float(score)};
    a->run[a->n++].weight[positive] = weight;
    a->has_nan = a->has_nan || isnan(score);
    return TR_OK;
}

/* Sorts the runs by key (radix sort, a byte per pass from the lowest), and joins runs with the same key. */
static int area_sort(struct tr_area *a)
{
    struct run *from = a->run, *to;
    size_t kept = 0;
    TR_TRY(TR_NEW(&to, a->n));
    for (unsigned shift = 0; shift < 32; shift += 8) { /* four passes: the result is in a->run again */
        size_t begin[257] = {0};
        for (size_t i = 0; i < a->n; i++) begin[((from[i].key >> shift) & 255) + 1]++;
        for (int b = 0; b < 256; b++) begin[b + 1] += begin[b];
        for (size_t i = 0; i < a->n; i++) to[begin[(from[i].key >> shift) & 255]++] = from[i];
        struct run *old = from;
        from = to;
        to = old;
    }
    free(to);
    for (size_t i = 0; i < a->n; i++) {
        const struct run *run = &a->run[i];
        if (kept == 0 || a->run[kept - 1].key != run->key) {
            a->run[kept++] = *run;
            continue;
        }
        for (int k = 0; k < 2; k++) a->run[kept - 1].weight[k] += run->weight[k];
    }
    a->n = kept;
    return TR_OK;
}

/* Computes the sums over sorted runs. below: weight of the negative rows on other ranks with lower scores. */
static void area_sum(const struct tr_area *a, double below, double sum[AREA_SUMS])
{
    for (size_t i = 0; i < a->n; i++) {
        double negative = a->run[i].weight[0], positive = a->run[i].weight[1];
        sum[HALVES] += positive * (2 * below + negative);
        sum[POSITIVE] += positive;
        sum[NEGATIVE] += negative;
        below += negative;
    }
    sum[NANS] = a->has_nan;
}

static double area_of_sums(const double sum[AREA_SUMS])
{
    bool is_defined = sum[NANS] == 0 && sum[POSITIVE] > 0 && sum[NEGATIVE] > 0;
    return is_defined ? sum[HALVES] / (2 * sum[POSITIVE] * sum[NEGATIVE]) : (double)NAN;
}

int tr_area_here(struct tr_area *a, double *auc)
{
    double sum[AREA_SUMS] = {0};
    TR_TRY(area_sort(a));
    area_sum(a, 0, sum);
    *auc = area_of_sums(sum);
    return TR_OK;
}

/* Maximum number of runs that a rank contributes to the samples of a sample sort. The numbers of runs per rank after the sort then
 * differ by about 1/sqrt(64) = 1/8. */
enum { SAMPLES = 64 };

static int area_compare_keys(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* Divides the range of keys among the ranks: rank r receives the keys from splitter r - 1 to below splitter r. The splitters are
 * evenly spaced in the sorted samples of all ranks. Each rank contributes every step-th of its runs, so ranks with more runs
 * contribute more samples. */
int tr_area_find(tr_context *tr, struct tr_area *a, double *auc)
{
    size_t ranks = (size_t)tr_size(tr), total = 0, bytes = 0;
    TR_FREED size_t *count = NULL; /* bytes to each rank, followed by bytes from each rank */
    TR_FREED uint32_t *samples = NULL;
    TR_FREED double *negative = NULL;
    uint32_t own[SAMPLES + 2] = {0}; /* number of samples of this rank, followed by their keys */
    double below = 0, mine = 0, sum[AREA_SUMS] = {0};
    struct run *incoming = NULL;
    int status = area_sort(a);
    if (status == TR_OK) status = TR_NEW(&samples, ranks * (SAMPLES + 3));
    if (status == TR_OK) status = TR_NEW(&count, 2 * ranks);
    if (status == TR_OK) status = TR_NEW(&negative, ranks);
    TR_TRY(tr_agree(tr, status));
    uint64_t most = a->n;
    TR_TRY(tr_all_reduce(tr, TR_SET_ALL, TR_MAX, TR_I64, &most, 1));
    uint64_t step = most / SAMPLES + 1;
    for (uint64_t i = step / 2; i < a->n; i += step) own[++own[0]] = a->run[i].key;
    TR_TRY(tr_all_gather(tr, TR_SET_ALL, own, sizeof own, samples));
    for (size_t r = 0; r < ranks; r++) {
        const uint32_t *from = samples + r * (SAMPLES + 2);
        uint32_t n = *from;
        memmove(samples + total, from + 1, n * sizeof *samples);
        total += n;
    }
    qsort(samples, total, sizeof *samples, area_compare_keys);
    for (size_t r = 0, i = 0; r < ranks; r++) {
        size_t first = i;
        uint32_t splitter = total > 0 ? samples[(r + 1) * total / ranks - (r + 1 == ranks)] : 0;
        while (i < a->n && (r + 1 == ranks || a->run[i].key < splitter)) i++;
        count[r] = (i - first) * sizeof *a->run;
    }
    TR_TRY(tr_exchange_counts(tr, TR_SET_ALL, count, count + ranks));
    for (size_t r = 0; r < ranks; r++) bytes += count[ranks + r];
    status = tr_agree(tr, TR_NEW(&incoming, bytes / sizeof *incoming));
    if (status == TR_OK) status = tr_exchange(tr, TR_SET_ALL, a->run, count, incoming, count + ranks);
    free(a->run);
    a->run = incoming;
    a->n = a->capacity = bytes / sizeof *incoming;
    TR_TRY(status);
    TR_TRY(tr_agree(tr, area_sort(a)));
    for (size_t i = 0; i < a->n; i++) mine += a->run[i].weight[0];
    TR_TRY(tr_all_gather(tr, TR_SET_ALL, &mine, sizeof mine, negative));
    for (int r = 0; r < tr_rank(tr); r++) below += negative[r];
    area_sum(a, below, sum);
    TR_TRY(tr_all_reduce(tr, TR_SET_ALL, TR_SUM, TR_F64, sum, AREA_SUMS));
    *auc = area_of_sums(sum);
    return TR_OK;
}

/* ---- errors of numbers ---- */

void tr_errors_add(struct tr_errors *e, const struct tr_loss *loss, double shape, double margin, double y,
                   double weight)
{
    double error = (loss->mean ? loss->mean(margin) : margin) - y, from_old = y - e->mean;
    e->weight += weight;
    e->squares += weight * error * error;
    e->absolutes += weight * fabs(error);
    if (y != 0) {
        e->parts += weight * fabs(error / y);
        e->nonzero += weight;
    }
    if (loss->metric_times > 0) e->loss += weight * loss->metric_times * loss->value(margin, y, shape);
    if (weight > 0) e->mean += weight * from_old / e->weight;
    e->spread += weight * from_old * (y - e->mean);
}

int tr_errors_figures(const struct tr_errors *e, tr_query *q, const struct tr_loss *loss)
{
    double n = e->weight, r2 = e->spread > 0 ? 1 - e->squares / e->spread : (double)NAN;
    TR_TRY(tr_figure(q, "rmse", sqrt(e->squares / n), "%.6f", sqrt(e->squares / n)));
    TR_TRY(tr_figure(q, "mae", e->absolutes / n, "%.6f", e->absolutes / n));
    if (e->nonzero > 0) TR_TRY(tr_figure(q, "mape", e->parts / e->nonzero, "%.6f", e->parts / e->nonzero));
    if (loss && loss->metric_times > 0) TR_TRY(tr_figure(q, loss->metric, e->loss / n, "%.6f", e->loss / n));
    return tr_figure(q, "r2", r2, "%.6f", r2);
}

int tr_rows_figure(tr_query *q, uint64_t rows, double weight)
{
    TR_TRY(tr_figure(q, "rows", (double)rows, "%llu", (unsigned long long)rows));
    return weight == (double)rows
               ? TR_OK
               : tr_figure(q, "weight", weight, "%.10g  (sum of the weights of rows)", weight);
}

/* ---- classes ---- */

/* Maximum number of labels of a confusion matrix; maximum length of its lines in the terminal, in characters. */
enum { MOST_TABLED = 100, MOST_SHOWN = 64 };
enum { BINS = 10, MOST_POINTS = 500 }; /* bins of the calibration; approximate maximum of points of a curve */

struct tr_classified {
    size_t labels;
    double weight, right, loss; /* Σ weight of all rows; of those predicted correctly; Σ weight × loss */
    double unknown;             /* Σ weight of the rows with labels that training does not have */
    /* One element per label: weight of the rows with it, of the rows predicted as it, and of the rows with both properties. */
    double *is, *as, *both;
    double *confusion;    /* [is × labels + as]: weight; NULL: more than MOST_TABLED labels */
    struct tr_area *area; /* NULL unless there are two labels */
    struct {              /* rows with a predicted probability of label 1 in the i-th tenth of [0, 1] */
        double weight, positive, predicted; /* Σ weight; Σ weight of label 1; Σ weight × probability */
    } bin[BINS];
};

size_t tr_predicted_class(const double *margin, size_t n)
{
    size_t best = 0;
    if (n == 1) return *margin > 0;
    for (size_t k = 1; k < n; k++)
        if (margin[k] > margin[best]) best = k;
    return best;
}

int tr_classified_open(size_t labels, struct tr_classified **c)
{
    TR_TRY(TR_NEW(c, 1));
    (*c)->labels = labels;
    TR_TRY(TR_NEW(&(*c)->is, 3 * labels));
    (*c)->as = (*c)->is + labels;
    (*c)->both = (*c)->as + labels;
    if (labels == 2) TR_TRY(tr_area_open(0, &(*c)->area));
    return labels <= MOST_TABLED ? TR_NEW(&(*c)->confusion, labels * labels) : TR_OK;
}

void tr_classified_close(struct tr_classified **c)
{
    if (!*c) return;
    tr_area_close(&(*c)->area);
    free((*c)->is);
    free((*c)->confusion);
    free(*c);
    *c = NULL;
}

int tr_classified_add(struct tr_classified *c, size_t is, size_t as, double loss, double score, double weight)
{
    c->weight += weight;
    if (is == c->labels) {
        c->unknown += weight;
        return TR_OK;
    }
    if (c->labels == 2) {
        TR_TRY(tr_area_add(c->area, (float)score, is == 1, weight));
        double p = 1 / (1 + exp(-score));
        size_t bin = p >= 0 ? (size_t)fmin(p * BINS, BINS - 1) : 0; /* p may be NaN */
        c->bin[bin].weight += weight;
        c->bin[bin].positive += weight * (is == 1);
        c->bin[bin].predicted += weight * p;
    }
    if (c->confusion) c->confusion[is * c->labels + as] += weight;
    c->is[is] += weight;
    c->as[as] += weight;
    if (is == as) c->both[is] += weight, c->right += weight;
    c->loss += weight * loss;
    return TR_OK;
}

/* Returns of / all; NaN if all is 0. */
static double ratio(double of, double all)
{
    return all > 0 ? of / all : (double)NAN;
}

/* Reports a curve. Of its n points, keeps the last and each that is at least 1 / MOST_POINTS away from the previous kept point. */
static int curve_report(tr_query *q, const char *name, const char *x, const char *y, size_t n,
                        double (*point)[2])
{
    size_t kept = 0;
    for (size_t i = 0; i < n; i++) {
        bool far = kept == 0 || fabs(point[i][0] - point[kept - 1][0]) > 1.0 / MOST_POINTS ||
                   fabs(point[i][1] - point[kept - 1][1]) > 1.0 / MOST_POINTS;
        if (!far && i + 1 < n) continue;
        point[kept][0] = point[i][0];
        point[kept++][1] = point[i][1];
    }
    return tr_figure_curve(q, name, x, y, kept, point);
}

/* Reports the ROC curve, the curve of precision over recall, and the area below the latter: the mean precision at positive rows.
 * The area has steps between points, because straight lines would be too optimistic (Davis and Goadrich, ICML 2006). */
static int curves_report(const struct tr_classified *c, tr_query *q)
{
    const struct tr_area *a = c->area; /* its runs are sorted */
    double area = 0, above[2] = {0, 0};
    TR_FREED double(*roc)[2] = NULL;
    TR_FREED double(*precision)[2] = NULL;
    TR_TRY(TR_NEW(&roc, a->n + 1));
    TR_TRY(TR_NEW(&precision, a->n));
    for (size_t i = 0; i < a->n; i++) {
        const struct run *run = &a->run[a->n - 1 - i];
        for (int k = 0; k < 2; k++) above[k] += run->weight[k];
        roc[i + 1][0] = ratio(above[0], c->is[0]);
        roc[i + 1][1] = precision[i][0] = ratio(above[1], c->is[1]);
        precision[i][1] = ratio(above[1], above[0] + above[1]);
        area += (precision[i][0] - (i > 0 ? precision[i - 1][0] : 0)) * precision[i][1];
    }
    TR_TRY(curve_report(q, "ROC", "false positive rate", "true positive rate (recall)", a->n + 1, roc));
    TR_TRY(tr_figure(q, "pr_auc", area, "%.6f", area));
    return curve_report(q, "precision and recall", "recall", "precision", a->n, precision);
}

/* Reports how often label 1 occurs among the rows whose predicted probability lies in each tenth of [0, 1]. */
static int calibration_report(const struct tr_classified *c, tr_query *q)
{
    double point[BINS][2];
    size_t n = 0;
    TR_TRY(tr_figure_text(q, "calibration", "predicted   observed        rows"));
    for (size_t i = 0; i < BINS; i++) {
        char name[64];
        double weight = c->bin[i].weight, predicted = c->bin[i].predicted / weight,
               observed = ratio(c->bin[i].positive, weight);
        snprintf(name, sizeof name, "calibration_%zu_rows", i);
        TR_TRY(tr_figure(q, name, weight, NULL));
        if (weight == 0) continue;
        snprintf(name, sizeof name, "calibration_%zu_predicted", i);
        TR_TRY(tr_figure(q, name, predicted, NULL));
        snprintf(name, sizeof name, "calibration_%zu_observed", i);
        TR_TRY(tr_figure(q, name, observed, NULL));
        snprintf(name, sizeof name, "%.1f to %.1f", (double)i / BINS, (double)(i + 1) / BINS);
        TR_TRY(tr_figure_text(q, name, "%9.6f  %9.6f  %10.10g", predicted, observed, weight));
        point[n][0] = predicted;
        point[n++][1] = observed;
    }
    return tr_figure_curve(q, "calibration", "predicted probability", "observed share", n, point);
}

/* Reports the confusion matrix. The terminal shows it only if its lines fit into 80 columns. */
static int confusion_report(const struct tr_classified *c, tr_query *q, const float *label)
{
    enum { LEAST = 4, MOST = 10 };
    char text[TR_LABEL_TEXT], is[TR_LABEL_TEXT], name[2 * TR_LABEL_TEXT + 32], line[MOST_SHOWN + 64];
    int width = LEAST;
    for (size_t i = 0; i < c->labels * c->labels; i++) {
        tr_query_label_text(q, label[i / c->labels], is);
        tr_query_label_text(q, label[i % c->labels], text);
        snprintf(name, sizeof name, "confusion_%s_as_%s", is, text);
        TR_TRY(tr_figure(q, name, c->confusion[i], NULL));
    }
    for (size_t k = 0; k < c->labels; k++) {
        tr_query_label_text(q, label[k], text);
        while (width < MOST && (strlen(text) > (size_t)width || c->is[k] >= pow(10, width))) width++;
    }
    if ((width + 2) * (int)c->labels > MOST_SHOWN) return TR_OK;
    for (size_t i = 0; i <= c->labels; i++) { /* line 0 is the heading */
        size_t at = 0;
        for (size_t k = 0; k < c->labels; k++) {
            double weight = i > 0 ? c->confusion[(i - 1) * c->labels + k] : 0;
            tr_query_label_text(q, label[k], text);
            int digits = i > 0 ? snprintf(text, sizeof text, "%.0f", weight) : width;
            if (weight != rint(weight) && digits + 2 <= width)
                snprintf(text, sizeof text, "%.*f", width - digits - 1, weight);
            at +=
                (size_t)snprintf(line + at, sizeof line - at, "%*s%*.*s", k ? 2 : 0, "", width, width, text);
        }
        if (i > 0) tr_query_label_text(q, label[i - 1], text);
        snprintf(name, sizeof name, i > 0 ? "%s is" : "predicted", text);
        TR_TRY(tr_figure_text(q, name, "%s", line));
    }
    return TR_OK;
}

/* Reports precision, recall and their harmonic mean f1: for label 1 if there are two labels, else for each, and the mean f1. */
static int labels_report(const struct tr_classified *c, tr_query *q, const float *label)
{
    static const char *const measures[] = {"precision", "recall", "f1"};
    double mean = 0;
    for (size_t k = c->labels == 2; k < c->labels; k++) {
        double f[] = {ratio(c->both[k], c->as[k]), ratio(c->both[k], c->is[k]),
                      ratio(2 * c->both[k], c->is[k] + c->as[k])};
        char name[TR_LABEL_TEXT + 32], text[TR_LABEL_TEXT];
        tr_query_label_text(q, label[k], text);
        for (int i = 0; i < 3 && c->labels == 2; i++)
            TR_TRY(tr_figure(q, measures[i], f[i], i ? "%.6f" : "%.6f  (of label %s)", f[i], text));
        if (c->labels == 2) return TR_OK;
        snprintf(name, sizeof name, "rows_%s", text);
        TR_TRY(tr_figure(q, name, c->is[k], NULL));
        for (int i = 0; i < 3; i++) { /* recall is reported last, with a text that shows all three */
            static const int order[] = {0, 2, 1};
            snprintf(name, sizeof name, "%s_%s", measures[order[i]], text);
            TR_TRY(tr_figure(q, name, f[order[i]], i < 2 ? NULL : "%.6f  precision %.6f  f1 %.6f  rows %.10g",
                             f[1], f[0], f[2], c->is[k]));
        }
        mean += (isnan(f[2]) ? 0 : f[2]) / (double)c->labels;
    }
    return tr_figure(q, "f1_macro", mean, "%.6f", mean);
}

int tr_classified_figures(const struct tr_classified *c, tr_query *q, const float *label, bool probabilities)
{
    double right = c->right / c->weight, loss = c->loss / (c->weight - c->unknown), auc = NAN;
    bool two = c->labels == 2;
    if (c->unknown > 0 && c->unknown == c->weight)
        return tr_fail(TR_ERR_DATA, "none of the rows has a label that training has");
    TR_TRY(tr_figure(q, "right", c->right, NULL));
    TR_TRY(tr_figure(q, "accuracy", right, "%.6f  (%.10g right, %.10g wrong)", right, c->right,
                     c->weight - c->right));
    if (c->unknown > 0)
        TR_TRY(tr_figure(q, "unknown_labels", c->unknown,
                         "%.10g  (rows with a label that training does not have: wrong)", c->unknown));
    if (two) TR_TRY(tr_area_here(c->area, &auc));
    if (two) TR_TRY(tr_figure(q, "auc", auc, "%.6f", auc));
    if (probabilities) TR_TRY(tr_figure(q, "log_loss", loss, "%.6f", loss));
    if (two && !isnan(auc)) TR_TRY(curves_report(c, q));
    TR_TRY(labels_report(c, q, label));
    if (c->confusion) TR_TRY(confusion_report(c, q, label));
    return two && probabilities ? calibration_report(c, q) : TR_OK;
}

void tr_margins_to_probabilities(const struct tr_loss *loss, bool joint, size_t n, double *margin)
{
    double sum = 0, most = margin[tr_predicted_class(margin, n)];
    for (size_t k = 0; k < n; k++) sum += margin[k] = joint ? exp(margin[k] - most) : loss->mean(margin[k]);
    for (size_t k = 0; k < n; k++) margin[k] /= sum;
}

/* ---- metrics on data.test during training ---- */

/* metric_of: models that have the metric: all, classifiers, classifiers with probabilities, of two classes, regressions. */
enum metric_kind { LOSS, ACCURACY, BRIER, F1, RMSE, MAE, MAPE, R2, METRIC_KINDS };
enum metric_of { OF_ALL, OF_CLASSES, OF_PROBABILITIES, OF_TWO_CLASSES, OF_NUMBERS };
static const struct {
    const char *name; /* name in report.metric; NULL: tr_loss.metric */
    enum metric_of of;
    bool ascends; /* a higher value is better */
} metric_kinds[METRIC_KINDS] = {[LOSS] = {NULL, OF_ALL, false},
                                [ACCURACY] = {"accuracy", OF_CLASSES, true},
                                [BRIER] = {"brier", OF_PROBABILITIES, false},
                                [F1] = {"f1", OF_TWO_CLASSES, true},
                                [RMSE] = {"rmse", OF_NUMBERS, false},
                                [MAE] = {"mae", OF_NUMBERS, false},
                                [MAPE] = {"mape", OF_NUMBERS, false},
                                [R2] = {"r2", OF_NUMBERS, true}};

/* Returns whether this model has the metric. */
static bool metric_suits(const struct tr_test_metrics *m, int kind)
{
    bool classes = tr_loss_classifies(m->loss);
    switch (metric_kinds[kind].of) {
    case OF_ALL: return m->loss->metric_times > 0; /* if 0, the metric of the loss is RMSE or MAE */
    case OF_CLASSES: return classes;
    case OF_PROBABILITIES: return classes && (m->joint || m->loss->mean);
    case OF_TWO_CLASSES: return classes && m->outputs == 1;
    case OF_NUMBERS: return !classes;
    }
    return false;
}

static const char *metric_name(const struct tr_test_metrics *m, int kind)
{
    return kind == LOSS ? m->loss->metric : metric_kinds[kind].name;
}

/* Returns the kind of the metric with this name; METRIC_KINDS if the model does not have it. */
static int metric_of_name(const struct tr_test_metrics *m, const char *name)
{
    int kind = 0;
    while (kind < METRIC_KINDS && !(metric_suits(m, kind) && !strcmp(metric_name(m, kind), name))) kind++;
    return kind;
}

int tr_test_metrics_choose(const tr_job *job, struct tr_test_metrics *m)
{
    const char *const *name;
    size_t n = tr_job_files(job, "report.metric", &name);
    const char *where = tr_job_where(job, "report.metric");
    m->n = 0;
    if (n > TR_METRICS)
        return tr_fail(TR_ERR_CONFIG, "%s: report.metric: %zu metrics, expected at most %d", where, n,
                       TR_METRICS);
    for (size_t i = 0; i < n; i++) {
        int kind = metric_of_name(m, name[i]);
        m->kind[m->n++] = kind;
        if (kind < METRIC_KINDS) continue;
        char names[160] = "";
        for (int k = 0; k < METRIC_KINDS; k++)
            if (metric_suits(m, k)) strcat(strcat(names, *names ? ", " : ""), metric_name(m, k));
        return tr_fail(
            TR_ERR_CONFIG, "%s: report.metric: this model has no %s during training, expected of %s%s", where,
            name[i], names, strstr(name[i], "auc") ? "; summary.json and trireme evaluate contain auc" : "");
    }
    if (n > 0) return TR_OK;
    int second = tr_loss_classifies(m->loss) ? ACCURACY : RMSE, first = metric_of_name(m, m->loss->metric);
    m->kind[m->n++] = first;
    if (second != first) m->kind[m->n++] = second;
    return TR_OK;
}

const char *tr_test_metrics_first(const struct tr_test_metrics *m)
{
    return metric_name(m, m->kind[0]);
}

void tr_test_metrics_name(const struct tr_test_metrics *m, bool tests, tr_stage *stage)
{
    for (size_t i = 0; i < m->n && tests; i++)
        stage->metric[i] = (tr_stage_metric){metric_name(m, m->kind[i]), metric_kinds[m->kind[i]].ascends};
}

/* The numbers of a row from which metrics are summed. */
struct judged {
    size_t is, as; /* classifiers: index of the class of the row (SIZE_MAX: NaN); of the predicted class */
    double loss, brier, error; /* loss; Brier score, for probabilities; regression: prediction - target */
};

static struct judged judge(const struct tr_test_metrics *m, const double *margin, double target)
{
    const struct tr_loss *loss = m->loss;
    struct judged row = {.is = SIZE_MAX};
    if (!tr_loss_classifies(loss)) {
        row.loss = loss->value(*margin, target, m->shape);
        row.error = (loss->mean ? loss->mean(*margin) : *margin) - target;
        return row;
    }
    row.as = tr_predicted_class(margin, m->outputs);
    if (isnan(target)) return row;
    row.is = (size_t)target;
    if (m->outputs == 1) {
        row.loss = loss->value(*margin, row.is ? 1 : -1, m->shape);
        row.brier = loss->mean ? pow(loss->mean(*margin) - (double)row.is, 2) : 0;
        return row;
    }
    double most = margin[row.as], sum = 0;
    bool probable = m->joint || loss->mean;
    for (size_t k = 0; k < m->outputs; k++) {
        if (probable) sum += m->joint ? exp(margin[k] - most) : loss->mean(margin[k]);
        else row.loss += loss->value(margin[k], k == row.is ? 1 : -1, m->shape);
    }
    for (size_t k = 0; k < m->outputs && probable; k++) {
        double probability = (m->joint ? exp(margin[k] - most) : loss->mean(margin[k])) / sum;
        row.brier += pow(probability - (k == row.is), 2);
        if (k == row.is) row.loss = -log(fmax(probability, 1e-300)); /* the log loss that `evaluate` shows */
    }
    return row;
}

void tr_test_metrics_add(const struct tr_test_metrics *m, const double *margin, double target, double weight,
                         double *sum)
{
    struct judged row = judge(m, margin, target);
    double from = target - m->origin;
    for (size_t i = 0; i < m->n; i++, sum += TR_METRIC_SUMS / TR_METRICS) {
        if (isnan(target) && m->kind[i] != ACCURACY && m->kind[i] != F1) continue;
        sum[0] += weight;
        switch ((enum metric_kind)m->kind[i]) {
        case LOSS: sum[1] += weight * m->loss->metric_times * row.loss; break;
        case ACCURACY: sum[1] += weight * (row.as == row.is); break;
        case BRIER: sum[1] += weight * row.brier; break;
        case F1:
            sum[1] += weight * (row.as == 1 && row.is == 1);
            sum[2] += weight * (row.as == 1);
            sum[3] += weight * (row.is == 1);
            break;
        case RMSE: sum[1] += weight * row.error * row.error; break;
        case MAE: sum[1] += weight * fabs(row.error); break;
        case MAPE:
            if (target != 0) sum[1] += weight * fabs(row.error / target);
            else sum[0] -= weight; /* the relative error of target 0 is not defined: omits the row */
            break;
        case R2:
            sum[1] += weight * row.error * row.error;
            sum[2] += weight * from;
            sum[3] += weight * from * from;
            break;
        case METRIC_KINDS: break;
        }
    }
}

void tr_test_metrics_find(const struct tr_test_metrics *m, const double *sum, tr_evaluation *evaluation)
{
    for (size_t i = 0; i < TR_METRICS; i++, sum += TR_METRIC_SUMS / TR_METRICS) {
        double mean = sum[1] / sum[0], spread = sum[3] - sum[2] * sum[2] / sum[0];
        double *value = &evaluation->metric[i];
        if (i >= m->n) *value = NAN;
        else if (m->kind[i] == RMSE) *value = sqrt(mean);
        else if (m->kind[i] == F1) *value = 2 * sum[1] / (sum[2] + sum[3]);
        else if (m->kind[i] == R2) *value = 1 - sum[1] / spread;
        else *value = mean;
    }
}

bool tr_test_metrics_better(const struct tr_test_metrics *m, double value, double than)
{
    return metric_kinds[m->kind[0]].ascends ? value > than : value < than;
}
