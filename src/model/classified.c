#include "classified.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "auc.h"

enum {
    MOST_TABLED = 100,
    MOST_SHOWN = 64
};                                     /* labels of a confusion matrix; characters of its lines, for people */
enum { BINS = 10, MOST_POINTS = 500 }; /* of the calibration, and of a curve, about */

struct tr_classified {
    size_t labels;
    uint64_t rows, right;
    uint64_t *is, *as, *both; /* rows of each label, predicted as it, and rightly so */
    uint64_t *confusion;      /* is × as; NULL: there are too many */
    double loss;
    float *score; /* two labels: of each row … */
    signed char *positive;
    size_t score_capacity, positive_capacity;
    struct {
        uint64_t rows, positive;
        double predicted; /* sum of probabilities */
    } bin[BINS];
};

int tr_classified_open(size_t labels, struct tr_classified **c)
{
    TR_TRY(TR_NEW(c, 1));
    (*c)->labels = labels;
    TR_TRY(TR_NEW(&(*c)->is, labels));
    TR_TRY(TR_NEW(&(*c)->as, labels));
    TR_TRY(TR_NEW(&(*c)->both, labels));
    return labels <= MOST_TABLED ? TR_NEW(&(*c)->confusion, labels * labels) : TR_OK;
}

void tr_classified_close(struct tr_classified **c)
{
    if (!*c) return;
    void *arrays[] = {(*c)->is, (*c)->as, (*c)->both, (*c)->confusion, (*c)->score, (*c)->positive, *c};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) free(arrays[i]);
    *c = NULL;
}

int tr_classified_add(struct tr_classified *c, size_t is, size_t as, double loss, double score)
{
    if (c->labels == 2) {
        TR_TRY(TR_GROW(&c->score, &c->score_capacity, c->rows + 1));
        TR_TRY(TR_GROW(&c->positive, &c->positive_capacity, c->rows + 1));
        c->score[c->rows] = (float)score;
        c->positive[c->rows] = is == 1;
        double p = 1 / (1 + exp(-score));
        size_t bin = p >= 0 ? (size_t)fmin(p * BINS, BINS - 1) : 0; /* not NaN */
        c->bin[bin].rows++;
        c->bin[bin].positive += is == 1;
        c->bin[bin].predicted += p;
    }
    if (c->confusion) c->confusion[is * c->labels + as]++;
    c->is[is]++;
    c->as[as]++;
    c->both[is] += is == as;
    c->right += is == as;
    c->loss += loss;
    c->rows++;
    return TR_OK;
}

/* A ratio, or NaN. */
static double part(uint64_t of, uint64_t all)
{
    return all > 0 ? (double)of / (double)all : (double)NAN;
}

/* ---- curves of two labels ---- */

/* Tells a curve through about so many of the n points, all of those that are far from the one before. */
static int tell_curve(tr_query *q, const char *name, const char *x, const char *y, size_t n,
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

static int tell_roc(const struct tr_classified *c, tr_query *q, size_t n, uint64_t (*count)[2],
                    double (*point)[2])
{
    for (size_t i = 0; i < n; i++) {
        point[i + 1][0] = part(count[i][1], c->is[0]);
        point[i + 1][1] = part(count[i][0], c->is[1]);
    }
    return tell_curve(q, "ROC", "false positive rate", "true positive rate (recall)", n + 1, point);
}

/* Precision over recall, and the area below its steps: the mean of the precision at each positive row (no straight lines between
 * points, which would be too good: Davis and Goadrich, ICML 2006). */
static int tell_precision(const struct tr_classified *c, tr_query *q, size_t n, uint64_t (*count)[2],
                          double (*point)[2])
{
    double area = 0;
    for (size_t i = 0; i < n; i++) {
        point[i][0] = part(count[i][0], c->is[1]);
        point[i][1] = part(count[i][0], count[i][0] + count[i][1]);
        area += (point[i][0] - (i > 0 ? point[i - 1][0] : 0)) * point[i][1];
    }
    TR_TRY(tr_figure(q, "pr_auc", area, "%.6f", area));
    return tell_curve(q, "precision and recall", "recall", "precision", n, point);
}

static int tell_scores(const struct tr_classified *c, tr_query *q)
{
    uint64_t(*count)[2] = NULL;
    double(*point)[2] = NULL;
    size_t n = 0;
    int status = tr_score_counts(c->score, c->positive, (size_t)c->rows, &count, &n);
    if (status == TR_OK) status = TR_NEW(&point, n + 1);
    if (status == TR_OK) status = tell_roc(c, q, n, count, point);
    if (status == TR_OK) status = tell_precision(c, q, n, count, point);
    free(count);
    free(point);
    return status;
}

/* How often label 1 is where its probability is said to be about so much. */
static int tell_calibration(const struct tr_classified *c, tr_query *q)
{
    double point[BINS][2];
    size_t n = 0;
    TR_TRY(tr_figure_text(q, "calibration", "predicted   observed        rows"));
    for (size_t i = 0; i < BINS; i++) {
        char name[64];
        double predicted = c->bin[i].predicted / (double)c->bin[i].rows,
               observed = part(c->bin[i].positive, c->bin[i].rows);
        snprintf(name, sizeof name, "calibration_%zu_rows", i);
        TR_TRY(tr_figure(q, name, (double)c->bin[i].rows, NULL));
        if (c->bin[i].rows == 0) continue;
        snprintf(name, sizeof name, "calibration_%zu_predicted", i);
        TR_TRY(tr_figure(q, name, predicted, NULL));
        snprintf(name, sizeof name, "calibration_%zu_observed", i);
        TR_TRY(tr_figure(q, name, observed, NULL));
        snprintf(name, sizeof name, "%.1f to %.1f", (double)i / BINS, (double)(i + 1) / BINS);
        TR_TRY(tr_figure_text(q, name, "%9.6f  %9.6f  %10llu", predicted, observed,
                              (unsigned long long)c->bin[i].rows));
        point[n][0] = predicted;
        point[n++][1] = observed;
    }
    return tr_figure_curve(q, "calibration", "predicted probability", "observed share", n, point);
}

/* ---- labels ---- */

/* Characters for a column of the matrix. */
static int find_width(const struct tr_classified *c, tr_query *q, const float *label)
{
    enum { LEAST = 4, MOST = 10 };
    char text[TR_LABEL_TEXT];
    int width = LEAST;
    for (size_t k = 0; k < c->labels; k++) {
        tr_query_label_text(q, label[k], text);
        while (width < MOST && strlen(text) > (size_t)width) width++;
        while (width < MOST && (double)c->is[k] >= pow(10, width)) width++;
    }
    return width;
}

/* For people only where it fits 80 columns. */
static int show_confusion(const struct tr_classified *c, tr_query *q, const float *label)
{
    char text[TR_LABEL_TEXT], name[TR_LABEL_TEXT + 8], line[MOST_SHOWN + 64];
    int width = find_width(c, q, label);
    if ((width + 2) * (int)c->labels > MOST_SHOWN) return TR_OK;
    for (size_t i = 0; i <= c->labels; i++) { /* line 0 is the heading */
        size_t at = 0;
        for (size_t k = 0; k < c->labels; k++) {
            tr_query_label_text(q, label[k], text);
            if (i > 0)
                snprintf(text, sizeof text, "%llu",
                         (unsigned long long)c->confusion[(i - 1) * c->labels + k]);
            at +=
                (size_t)snprintf(line + at, sizeof line - at, "%*s%*.*s", k ? 2 : 0, "", width, width, text);
        }
        if (i > 0) tr_query_label_text(q, label[i - 1], text);
        snprintf(name, sizeof name, i > 0 ? "%s is" : "predicted", text);
        TR_TRY(tr_figure_text(q, name, "%s", line));
    }
    return TR_OK;
}

static int tell_confusion(const struct tr_classified *c, tr_query *q, const float *label)
{
    char is[TR_LABEL_TEXT], as[TR_LABEL_TEXT], name[2 * TR_LABEL_TEXT + 32];
    for (size_t i = 0; i < c->labels * c->labels; i++) {
        tr_query_label_text(q, label[i / c->labels], is);
        tr_query_label_text(q, label[i % c->labels], as);
        snprintf(name, sizeof name, "confusion_%s_as_%s", is, as);
        TR_TRY(tr_figure(q, name, (double)c->confusion[i], NULL));
    }
    return show_confusion(c, q, label);
}

/* Precision, recall, and their harmonic mean, of one label. */
static void find_figures(const struct tr_classified *c, size_t k, double figure[3])
{
    figure[0] = part(c->both[k], c->as[k]);
    figure[1] = part(c->both[k], c->is[k]);
    figure[2] = part(2 * c->both[k], c->is[k] + c->as[k]);
}

/* Of each of several labels, and their means. */
static int tell_labels(const struct tr_classified *c, tr_query *q, const float *label)
{
    double mean = 0;
    for (size_t k = 0; k < c->labels; k++) {
        static const char *const measures[] = {"rows", "precision", "f1", "recall"};
        double f[3];
        find_figures(c, k, f);
        mean += (isnan(f[2]) ? 0 : f[2]) / (double)c->labels;
        double numbers[] = {(double)c->is[k], f[0], f[2], f[1]};
        for (size_t i = 0; i < 4; i++) {
            char name[TR_LABEL_TEXT + 32], text[TR_LABEL_TEXT];
            tr_query_label_text(q, label[k], text);
            snprintf(name, sizeof name, "%s_%s", measures[i], text);
            TR_TRY(tr_figure(q, name, numbers[i], i < 3 ? NULL : "%.6f  precision %.6f  f1 %.6f  rows %.0f",
                             f[1], f[0], f[2], numbers[0]));
        }
    }
    return tr_figure(q, "f1_macro", mean, "%.6f", mean);
}

static int tell_positive(const struct tr_classified *c, tr_query *q, const float *label)
{
    static const char *const names[] = {"precision", "recall", "f1"};
    double f[3];
    char text[TR_LABEL_TEXT];
    find_figures(c, 1, f);
    tr_query_label_text(q, label[1], text);
    for (int i = 0; i < 3; i++)
        TR_TRY(tr_figure(q, names[i], f[i], i ? "%.6f" : "%.6f  (of label %s)", f[i], text));
    return TR_OK;
}

int tr_classified_figures(const struct tr_classified *c, tr_query *q, const float *label, bool probabilities)
{
    double n = (double)c->rows, right = (double)c->right / n, loss = c->loss / n;
    bool two = c->labels == 2;
    TR_TRY(tr_figure(q, "right", (double)c->right, NULL));
    TR_TRY(tr_figure(q, "accuracy", right, "%.6f  (%llu right, %llu wrong)", right,
                     (unsigned long long)c->right, (unsigned long long)(c->rows - c->right)));
    double auc = two ? tr_auc(c->score, c->positive, (size_t)c->rows) : (double)NAN;
    if (two) TR_TRY(tr_figure(q, "auc", auc, "%.6f", auc));
    if (probabilities) TR_TRY(tr_figure(q, "log_loss", loss, "%.6f", loss));
    if (two && !isnan(auc)) TR_TRY(tell_scores(c, q));
    if (two) TR_TRY(tell_positive(c, q, label));
    if (!two) TR_TRY(tell_labels(c, q, label));
    if (c->confusion) TR_TRY(tell_confusion(c, q, label));
    return two && probabilities ? tell_calibration(c, q) : TR_OK;
}
