/* predict, evaluate and inspect for a saved model. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../metrics.h"
#include "linear.h"

struct tr_linear_evaluation {
    struct tr_classified *classified; /* classifiers */
    struct tr_errors errors;          /* regression */
    double weight;                    /* of all rows */
};

static bool has_probabilities(const struct tr_loss *loss)
{
    return loss->mean && tr_loss_classifies(loss);
}

int tr_linear_ready(void *model, tr_query *q)
{
    struct tr_linear *m = model;
    const struct tr_linear_model *s = &m->saved;
    bool probability = tr_query_given(q, "--probability"), margin = tr_query_given(q, "--margin");
    if (probability && margin)
        return tr_fail(TR_ERR_USAGE, "predict: unexpected --margin beside --probability");
    if (probability && !has_probabilities(s->loss))
        return tr_fail(TR_ERR_USAGE, "--probability expects a logistic model, and this one is of type %s",
                       s->loss->type);
    bool margins =
        (tr_query_command(q) == TR_EVALUATE && !probability) || margin || !tr_linear_model_classifies(s);
    TR_TRY(TR_NEW(&m->evaluation, 1));
    if (tr_linear_model_classifies(s)) TR_TRY(tr_classified_open(s->labels, &m->evaluation->classified));
    m->output = probability ? TR_OUT_PROBABILITY : margins ? TR_OUT_MARGIN : TR_OUT_LABEL;
    tr_query_rows(q, TR_ROWS_SPARSE, s->features, s->first_index);
    bool mean = s->loss->mean && !tr_linear_model_classifies(s);
    if (mean && tr_query_command(q) == TR_PREDICT && !margin) m->output = TR_OUT_MEAN;
    if (s->label_column < TR_LABEL_AUTO) tr_query_label(q, (int)s->label_column);
    const char *what = probability ? "probability" : margins ? "margin" : "label";
    size_t columns = m->output == TR_OUT_LABEL ? 1 : s->outputs;
    for (size_t k = 0; k < columns; k++) {
        char name[2 * TR_LABEL_TEXT + 64], label[2][TR_LABEL_TEXT] = {"", ""};
        if (s->label) tr_query_label_text(q, s->label[k], label[0]);
        if (s->label && s->labels == 2) tr_query_label_text(q, s->label[1], label[1]);
        /* outputs of two models that have the same names have the same meaning */
        snprintf(name, sizeof name, "%s", what);
        if (columns > 1) snprintf(name, sizeof name, "%s of label %s", what, label[0]);
        else if (s->label && s->labels == 2 && m->output != TR_OUT_LABEL)
            snprintf(name, sizeof name, "%s of label %s, not %s", what, label[0], label[1]);
        TR_TRY(tr_query_output(q, name, m->output == TR_OUT_LABEL ? TR_AS_LABEL : TR_SHORTEST));
    }
    return TR_OK;
}

/* The mean is that of probabilities if all models are logistic, of the margins of other classifiers, or of the values that regression
 * predicts. */
int tr_linear_mean(const tr_job *const *jobs, size_t n, const char **flag, size_t *by)
{
    size_t logistic = 0, regression = 0;
    for (size_t i = 0; i < n; i++) {
        const struct tr_loss *loss = tr_linear_loss(jobs[i]);
        if (loss->mean && !tr_loss_classifies(loss))
            return tr_fail(TR_ERR_CONFIG, "models of type %s predict no margins, which have a mean",
                           loss->type);
        logistic += has_probabilities(loss);
        regression += !tr_loss_classifies(loss);
        if (!has_probabilities(loss)) *by = i; /* it has no log loss */
    }
    *flag = logistic == n ? "--probability" : NULL;
    return regression == 0 || regression == n
               ? TR_OK
               : tr_fail(TR_ERR_CONFIG, "classifiers and regression have no mean");
}

/* Margins of several outputs become probabilities: by their softmax, or as in LIBLINEAR, those of each class against the rest
 * divided by their sum. */
static void margins_to_probabilities(const struct tr_linear_model *s, double *margin)
{
    double sum = 0, most = margin[tr_predicted_class(margin, s->outputs)];
    for (size_t k = 0; k < s->outputs; k++)
        sum += margin[k] = s->softmax ? exp(margin[k] - most) : tr_loss_logistic.mean(margin[k]);
    for (size_t k = 0; k < s->outputs; k++) margin[k] /= sum;
}

int tr_linear_predict(void *model, tr_query *q, const tr_records *records, double *out)
{
    const struct tr_linear *m = model;
    const struct tr_linear_model *s = &m->saved;
    const tr_batch *rows = &records->rows;
    size_t width = s->outputs, n = m->output == TR_OUT_LABEL ? 1 : width;
    TR_FREED double *margin = NULL;
    (void)q;
    TR_TRY(TR_NEW(&margin, width));
    for (size_t i = 0; i < rows->n; i++, out += n) {
        memcpy(margin, s->bias, width * sizeof *margin);
        for (uint64_t k = rows->begin[i]; k < rows->begin[i + 1]; k++) {
            double value = rows->value ? (double)rows->value[k] : 1;
            uint64_t first = rows->column[k] * width;
            for (size_t o = 0; o < width; o++) margin[o] += value * tr_linear_model_weight(s, first + o);
        }
        if (m->output == TR_OUT_LABEL) { /* of a single output the positive label is the first */
            size_t class = tr_predicted_class(margin, width);
            *out = (double)s->label[width > 1 ? class : 1 - class];
            continue;
        }
        if (m->output == TR_OUT_PROBABILITY && width > 1) margins_to_probabilities(s, margin);
        else if (m->output == TR_OUT_PROBABILITY || m->output == TR_OUT_MEAN)
            *margin = s->loss->mean(*margin);
        memcpy(out, margin, n * sizeof *out);
    }
    return TR_OK;
}

int tr_linear_evaluate_rows(void *model, tr_query *q, const tr_records *records, const double *out)
{
    struct tr_linear *m = model;
    const struct tr_linear_model *s = &m->saved;
    struct tr_classified *c = m->evaluation->classified;
    const tr_batch *rows = &records->rows;
    size_t width = s->outputs;
    TR_FREED double *margin = NULL;
    (void)q;
    TR_TRY(TR_NEW(&margin, width));
    for (size_t i = 0; i < rows->n; i++) {
        double weight = rows->weight ? (double)rows->weight[i] : 1;
        m->evaluation->weight += weight;
        for (size_t k = 0; k < width; k++) {
            double x = margin[k] = out[i * width + k];
            if (m->output == TR_OUT_PROBABILITY) /* back to margins */
                margin[k] = fmin(fmax(s->softmax ? log(fmax(x, 1e-300)) : log(x) - log1p(-x), -700), 700);
        }
        if (!rows->label || isnan(rows->label[i])) return tr_records_fail(records, i, "expected a label");
        float label = rows->label[i];
        if (!tr_linear_model_classifies(s)) {
            tr_errors_add(&m->evaluation->errors, s->loss, s->shape, *margin, (double)label, weight);
            continue;
        }
        size_t is = 0, as = tr_predicted_class(margin, width);
        while (is < s->labels && s->label[is] != label) is++;
        if (is == s->labels) {
            char text[160];
            if (width > 1)
                snprintf(text, sizeof text, "label %.9g, expected one of the %zu of training", (double)label,
                         s->labels);
            else
                snprintf(text, sizeof text, "label %.9g, expected %.9g or %.9g as in training", (double)label,
                         (double)s->label[1], (double)s->label[0]);
            return tr_records_fail(records, i, text);
        }
        if (width == 1) {
            double loss = tr_loss_logistic.value(*margin, is == 0 ? 1 : -1, 0);
            TR_TRY(tr_classified_add(c, is == 0, as, loss, *margin, weight));
        } else {
            margins_to_probabilities(s, margin);
            TR_TRY(tr_classified_add(c, is, as, -log(fmax(margin[is], 1e-300)), 0, weight));
        }
    }
    return TR_OK;
}

int tr_linear_figures(void *model, tr_query *q, uint64_t rows)
{
    const struct tr_linear *m = model;
    const struct tr_linear_model *s = &m->saved;
    TR_TRY(tr_rows_figure(q, rows, m->evaluation->weight));
    if (!tr_linear_model_classifies(s)) return tr_errors_figures(&m->evaluation->errors, q, s->loss->figure);
    return tr_classified_figures(m->evaluation->classified, q,
                                 s->outputs == 1 ? (float[]){s->label[1], s->label[0]} : s->label,
                                 has_probabilities(s->loss));
}

/* ---- inspect ---- */

/* Prints the largest weights of an output by sign · weight. */
static int inspect_top(const struct tr_linear_model *m, tr_query *q, size_t output, double sign)
{
    size_t n = 0, most = (size_t)tr_query_number(q, "--top", 10);
    char of[TR_LABEL_TEXT + 16] = "", label[TR_LABEL_TEXT];
    uint64_t weights = m->features * m->outputs;
    TR_FREED uint64_t *top = NULL; /* indices of weights, the best first */
    if (m->outputs > 1) {
        tr_query_label_text(q, m->label[output], label);
        snprintf(of, sizeof of, " for label %s", label);
    }
    TR_TRY(TR_NEW(&top, most));
    for (uint64_t i = tr_linear_model_next(m, 0); i < weights; i = tr_linear_model_next(m, i + 1)) {
        double w = sign * tr_linear_model_weight(m, i);
        if (i % m->outputs != output || w <= 0) continue;
        size_t at = n;
        if (n < most) n++;
        else if (w > sign * tr_linear_model_weight(m, top[n - 1])) at--;
        else continue;
        for (; at > 0 && sign * tr_linear_model_weight(m, top[at - 1]) < w; at--) top[at] = top[at - 1];
        top[at] = i;
    }
    const char *kind = sign > 0 ? "positive" : "negative";
    if (n > 0) TR_TRY(tr_print(q, "\nlargest %s weights%s\n%12s  weight\n", kind, of, "feature"));
    for (size_t i = 0; i < n; i++) {
        char name[TR_LABEL_TEXT];
        tr_query_key_text(q, top[i] / m->outputs, m->first_index, name);
        TR_TRY(tr_print(q, "%12s  %+.6g\n", name, tr_linear_model_weight(m, top[i])));
    }
    return TR_OK;
}

int tr_linear_inspect(void *model, tr_query *q)
{
    const struct tr_linear_model *m = &((struct tr_linear *)model)->saved;
    enum { MOST_LABELS = 100 };
    uint64_t nonzero = 0;
    double squares = 0, least = INFINITY, most = -INFINITY;
    uint64_t weights = m->features * m->outputs;
    for (uint64_t i = tr_linear_model_next(m, 0); i < weights; i = tr_linear_model_next(m, i + 1)) {
        double w = tr_linear_model_weight(m, i);
        nonzero++;
        squares += w * w;
        least = fmin(least, w);
        most = fmax(most, w);
    }
    if (nonzero < weights) {
        least = fmin(least, 0);
        most = fmax(most, 0);
    }
    char label[TR_LABEL_TEXT], other[TR_LABEL_TEXT];
    if (tr_linear_model_classifies(m) && m->outputs == 1) {
        tr_query_label_text(q, m->label[0], label);
        tr_query_label_text(q, m->label[1], other);
        tr_line(q, "labels", "%s (positive), %s", label, other);
    } else if (tr_linear_model_classifies(m)) {
        const char *kind = m->softmax ? "softmax" : "each against the rest";
        TR_TRY(tr_print(q, "%-13s %zu, %s:", "labels", m->labels, kind));
        for (size_t i = 0; i < m->labels && i < MOST_LABELS; i++) {
            tr_query_label_text(q, m->label[i], label);
            TR_TRY(tr_print(q, " %s", label));
        }
        TR_TRY(tr_print(q, "%s\n", m->labels > MOST_LABELS ? " ..." : ""));
    }
    tr_line(q, "features", "%llu, the first has index %llu", (unsigned long long)m->features,
            (unsigned long long)m->first_index);
    tr_line(q, "weights", "%llu not zero (%.3g %%), %s", (unsigned long long)nonzero,
            100 * (double)nonzero / (double)weights, m->dtype == TR_F32 ? "f32" : "f64");
    tr_line(q, "range", "%.6g to %.6g", least, most);
    tr_line(q, "norm", "%.6g", sqrt(squares));
    if (m->biased && m->outputs == 1) tr_line(q, "bias", "%.6g", *m->bias);
    else if (m->biased) tr_line(q, "bias", "%.6g for label %.9g, ...", *m->bias, (double)*m->label);
    else tr_line(q, "bias", "none");
    if (m->loss->shape != TR_SHAPE_NONE) tr_line(q, tr_shape_name[m->loss->shape], "%.6g", m->shape);
    if (m->rows > 0) tr_line(q, "trained on", "%llu rows", (unsigned long long)m->rows);
    if (!isnan(m->l2)) tr_line(q, "l2", "%.6g", m->l2);
    if (!isnan(m->objective)) tr_line(q, "objective", "%.9g", m->objective);
    for (size_t k = 0; k < m->outputs; k++) TR_TRY(inspect_top(m, q, k, 1));
    return m->outputs > 1 ? TR_OK : inspect_top(m, q, 0, -1);
}

uint64_t tr_linear_keys(const void *model, enum tr_dtype *dtype, const char **with)
{
    const struct tr_linear_model *s = &((const struct tr_linear *)model)->saved;
    *dtype = s->dtype;
    *with = s->biased ? "the bias" : NULL;
    return s->features + s->biased;
}

void tr_linear_saved_close(struct tr_linear *m)
{
    tr_linear_model_free(&m->saved);
    (void)tr_linear_text_close(&m->text, TR_ERR_IO);
    if (m->evaluation) tr_classified_close(&m->evaluation->classified);
    free(m->evaluation);
}
