/* What a saved model answers: predictions, figures over rows with labels, what inspect shows. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../classified.h"
#include "linear.h"

struct tr_linear_evaluation {
    struct tr_classified *classified; /* classifiers */
    uint64_t rows;
    double squares, absolutes, special; /* regression: of the errors; deviance, pinball loss */
    double mean, spread;                /* of the labels: running mean, and Σ (y - mean)² (Welford) */
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
        snprintf(name, sizeof name, "%s",
                 what); /* two models whose outputs have the same names mean the same */
        if (columns > 1) snprintf(name, sizeof name, "%s of label %s", what, label[0]);
        else if (s->label && s->labels == 2 && m->output != TR_OUT_LABEL)
            snprintf(name, sizeof name, "%s of label %s, not %s", what, label[0], label[1]);
        TR_TRY(tr_query_output(q, name, m->output == TR_OUT_LABEL ? TR_AS_LABEL : TR_SHORTEST));
    }
    return TR_OK;
}

/* Of probabilities if all are logistic, of margins of other classifiers, of what regression predicts. */
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

/* Back from a probability. */
static void to_margins(const struct tr_linear_model *s, double *p)
{
    for (size_t k = 0; k < s->outputs; k++)
        p[k] = s->softmax ? log(fmax(p[k], 1e-300)) : log(p[k]) - log1p(-p[k]);
    for (size_t k = 0; k < s->outputs; k++) p[k] = fmin(fmax(p[k], -700), 700);
}

/* Margins of several outputs become probabilities: by their softmax, or as LIBLINEAR does, those of each against the rest
 * divided by their sum. */
static void to_probabilities(const struct tr_linear_model *s, double *margin)
{
    double sum = 0, most = margin[tr_largest(margin, s->outputs)];
    for (size_t k = 0; k < s->outputs; k++)
        sum += margin[k] = s->softmax ? exp(margin[k] - most) : tr_loss_logistic.mean(margin[k]);
    for (size_t k = 0; k < s->outputs; k++) margin[k] /= sum;
}

static void find_margins(const struct tr_linear_model *s, const tr_batch *rows, size_t i, double *margin)
{
    size_t width = s->outputs;
    memcpy(margin, s->bias, width * sizeof *margin);
    for (uint64_t k = rows->begin[i]; k < rows->begin[i + 1]; k++) {
        double value = rows->value ? (double)rows->value[k] : 1;
        uint64_t first = rows->column[k] * width;
        for (size_t o = 0; o < width; o++) margin[o] += value * tr_linear_model_weight(s, first + o);
    }
}

int tr_linear_predict(void *model, tr_query *q, const tr_records *records, double *out)
{
    const struct tr_linear *m = model;
    const struct tr_linear_model *s = &m->saved;
    double *margin;
    (void)q;
    TR_TRY(TR_NEW(&margin, s->outputs));
    for (size_t i = 0, n = m->output == TR_OUT_LABEL ? 1 : s->outputs; i < records->rows.n; i++, out += n) {
        find_margins(s, &records->rows, i, margin);
        if (m->output == TR_OUT_LABEL) {
            size_t best = s->outputs > 1 ? tr_largest(margin, s->outputs) : margin[0] <= 0;
            *out = (double)s->label[best];
            continue;
        }
        if (m->output == TR_OUT_PROBABILITY && s->outputs > 1) to_probabilities(s, margin);
        else if (m->output == TR_OUT_PROBABILITY || m->output == TR_OUT_MEAN)
            *margin = s->loss->mean(*margin);
        memcpy(out, margin, n * sizeof *out);
    }
    free(margin);
    return TR_OK;
}

/* Of several outputs; margin has their margins, and is left as probabilities. */
static int add_one_of_several(struct tr_linear_evaluation *e, const struct tr_linear_model *s,
                              const tr_records *records, size_t i, double *margin)
{
    float label = records->rows.label[i];
    size_t is = 0, most = tr_largest(margin, s->outputs);
    while (is < s->labels && s->label[is] != label) is++;
    char text[160];
    snprintf(text, sizeof text, "label %.9g, expected one of the %zu of training", (double)label, s->labels);
    if (is == s->labels) return tr_records_fail(records, i, text);
    to_probabilities(s, margin);
    return tr_classified_add(e->classified, is, most, -log(fmax(margin[is], 1e-300)), 0);
}

static int add_classified(struct tr_linear_evaluation *e, const struct tr_linear_model *s,
                          const tr_records *records, size_t i, double margin)
{
    float label = records->rows.label[i];
    bool positive = label == s->label[0];
    char text[160];
    snprintf(text, sizeof text, "label %.9g, expected %.9g or %.9g as in training", (double)label,
             (double)s->label[1], (double)s->label[0]);
    if (!positive && label != s->label[1]) return tr_records_fail(records, i, text);
    return tr_classified_add(e->classified, positive, margin > 0,
                             tr_loss_logistic.value(margin, positive ? 1 : -1, 0), margin);
}

static void add_regressed(struct tr_linear_evaluation *e, const struct tr_linear_model *s, double y,
                          double margin)
{
    double from_old = y - e->mean, error = (s->loss->mean ? s->loss->mean(margin) : margin) - y;
    e->squares += error * error;
    e->absolutes += fabs(error);
    e->special += s->loss->figure_times * s->loss->value(margin, y, s->shape);
    e->mean += from_old / (double)++e->rows;
    e->spread += from_old * (y - e->mean);
}

static int regression_figures(const struct tr_linear_model *s, const struct tr_linear_evaluation *e,
                              tr_query *q)
{
    double n = (double)e->rows, r2 = e->spread > 0 ? 1 - e->squares / e->spread : (double)NAN;
    const char *special = s->loss->figure;
    TR_TRY(tr_figure(q, "rmse", sqrt(e->squares / n), "%.6f", sqrt(e->squares / n)));
    TR_TRY(tr_figure(q, "mae", e->absolutes / n, "%.6f", e->absolutes / n));
    if (special) TR_TRY(tr_figure(q, special, e->special / n, "%.6f", e->special / n));
    return tr_figure(q, "r2", r2, "%.6f", r2);
}

int tr_linear_evaluate_rows(void *model, tr_query *q, const tr_records *records, const double *out)
{
    struct tr_linear *m = model;
    const float *label = records->rows.label;
    size_t width = m->saved.outputs;
    double *margin;
    int status = TR_NEW(&margin, width);
    (void)q;
    for (size_t i = 0; i < records->rows.n && status == TR_OK; i++) {
        memcpy(margin, out + i * width, width * sizeof *margin);
        if (m->output == TR_OUT_PROBABILITY) to_margins(&m->saved, margin);
        if (!label || isnan(label[i])) status = tr_records_fail(records, i, "expected a label");
        else if (width > 1) status = add_one_of_several(m->evaluation, &m->saved, records, i, margin);
        else if (tr_linear_model_classifies(&m->saved))
            status = add_classified(m->evaluation, &m->saved, records, i, *margin);
        else add_regressed(m->evaluation, &m->saved, (double)label[i], *margin);
    }
    free(margin);
    return status;
}

int tr_linear_figures(void *model, tr_query *q, uint64_t rows)
{
    const struct tr_linear *m = model;
    const struct tr_linear_model *s = &m->saved;
    TR_TRY(tr_figure(q, "rows", (double)rows, "%llu", (unsigned long long)rows));
    if (!tr_linear_model_classifies(s)) return regression_figures(s, m->evaluation, q);
    bool two = s->outputs == 1; /* whose first label is the positive one */
    return tr_classified_figures(m->evaluation->classified, q,
                                 two ? (float[]){s->label[1], s->label[0]} : s->label,
                                 has_probabilities(s->loss));
}

/* ---- inspect ---- */

/* The n best features of an output by sign · weight, best first. */
struct top {
    uint64_t *feature;
    size_t n, most, output;
};

static double weight_of(const struct tr_linear_model *m, const struct top *top, uint64_t feature)
{
    return tr_linear_model_weight(m, feature * m->outputs + top->output);
}

static void offer(struct top *top, const struct tr_linear_model *m, uint64_t i, double sign)
{
    double w = sign * weight_of(m, top, i);
    size_t at = top->n;
    if (w <= 0 || (at == top->most && (at == 0 || w <= sign * weight_of(m, top, top->feature[at - 1]))))
        return;
    if (top->n < top->most) top->n++;
    else at--;
    for (; at > 0 && sign * weight_of(m, top, top->feature[at - 1]) < w; at--)
        top->feature[at] = top->feature[at - 1];
    top->feature[at] = i;
}

static int show_top(const struct tr_linear_model *m, tr_query *q, size_t output, double sign)
{
    struct top top = {.most = (size_t)tr_query_number(q, "--top", 10), .output = output};
    char of[TR_LABEL_TEXT + 16] = "", label[TR_LABEL_TEXT];
    if (m->outputs > 1) {
        tr_query_label_text(q, m->label[output], label);
        snprintf(of, sizeof of, " for label %s", label);
    }
    TR_TRY(TR_NEW(&top.feature, top.most));
    uint64_t weights = m->features * m->outputs;
    for (uint64_t i = tr_linear_model_next(m, 0); i < weights; i = tr_linear_model_next(m, i + 1))
        if (i % m->outputs == output) offer(&top, m, i / m->outputs, sign);
    int status = top.n == 0 ? TR_OK
                            : tr_print(q, "\nlargest %s weights%s\n%12s  weight\n",
                                       sign > 0 ? "positive" : "negative", of, "feature");
    for (size_t i = 0; i < top.n && status == TR_OK; i++) {
        char name[TR_LABEL_TEXT];
        tr_query_key_text(q, top.feature[i], m->first_index, name);
        status = tr_print(q, "%12s  %+.6g\n", name, weight_of(m, &top, top.feature[i]));
    }
    free(top.feature);
    return status;
}

static int show_labels(const struct tr_linear_model *m, tr_query *q)
{
    char *text = NULL, *longer;
    TR_TRY(tr_format(&text, "%zu, %s:", m->labels, m->softmax ? "softmax" : "each against the rest"));
    int status = TR_OK;
    for (size_t i = 0; i < m->labels && status == TR_OK; i++) {
        char label[TR_LABEL_TEXT];
        tr_query_label_text(q, m->label[i], label);
        status = tr_format(&longer, "%s %s%s", text, label, i == 99 && m->labels > 100 ? " …" : "");
        free(text);
        text = status == TR_OK ? longer : NULL;
        if (i == 99) break;
    }
    if (status == TR_OK) tr_line(q, "labels", "%s", text);
    free(text);
    return status;
}

int tr_linear_inspect(void *model, tr_query *q)
{
    const struct tr_linear_model *m = &((struct tr_linear *)model)->saved;
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
    if (m->outputs > 1) TR_TRY(show_labels(m, q));
    else if (tr_linear_model_classifies(m)) {
        char label[2][TR_LABEL_TEXT];
        for (int i = 0; i < 2; i++) tr_query_label_text(q, m->label[i], label[i]);
        tr_line(q, "labels", "%s (positive), %s", label[0], label[1]);
    }
    tr_line(q, "features", "%llu, the first has index %llu", (unsigned long long)m->features,
            (unsigned long long)m->first_index);
    tr_line(q, "weights", "%llu not zero (%.3g %%), %s", (unsigned long long)nonzero,
            100 * (double)nonzero / (double)weights, m->dtype == TR_F32 ? "f32" : "f64");
    tr_line(q, "range", "%.6g to %.6g", least, most);
    tr_line(q, "norm", "%.6g", sqrt(squares));
    if (m->biased && m->outputs == 1) tr_line(q, "bias", "%.6g", *m->bias);
    else if (m->biased) tr_line(q, "bias", "%.6g for label %.9g, …", *m->bias, (double)*m->label);
    else tr_line(q, "bias", "none");
    if (m->loss->shape != TR_SHAPE_NONE) tr_line(q, tr_shape_name[m->loss->shape], "%.6g", m->shape);
    if (m->rows > 0) tr_line(q, "trained on", "%llu rows", (unsigned long long)m->rows);
    if (!isnan(m->l2)) tr_line(q, "l2", "%.6g", m->l2);
    if (!isnan(m->objective)) tr_line(q, "objective", "%.9g", m->objective);
    for (size_t k = 0; k < m->outputs; k++) TR_TRY(show_top(m, q, k, 1));
    return m->outputs > 1 ? TR_OK : show_top(m, q, 0, -1);
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
    tr_linear_text_close(&m->text);
    if (m->evaluation) tr_classified_close(&m->evaluation->classified);
    free(m->evaluation);
}
