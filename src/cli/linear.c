#define _GNU_SOURCE
#include "cli/kinds.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "cli/printout.h"
#include "trireme/base.h"
#include "model/linear/auc.h"
#include "model/linear/file.h"
#include "trireme/records.h"
#include "monitor/display.h"
#include "model/linear/loss.h"
#include "table/partition.h"

enum { TOP = 10 };

/* w · row i of these, and the bias. */
static double margin_of(const struct tr_linear_model *m, const tr_records *records, size_t i)
{
    const tr_batch *rows = &records->rows;
    double sum = m->bias;
    for (uint64_t k = rows->begin[i]; k < rows->begin[i + 1]; k++)
        sum += (rows->value ? (double)rows->value[k] : 1) * tr_linear_model_weight(m, rows->column[k]);
    return sum;
}

static tr_read_options manner_of(const struct tr_linear_model *m, bool labelled)
{
    return (tr_read_options){.format = TR_FORMAT_LIBSVM,
                             .columns = m->features,
                             .first_index = m->first_index,
                             .labelled = labelled};
}

/* ================ predict ================ */

struct prediction {
    struct tr_linear_model model;
    const struct tr_options *options;
    struct tr_printout output;
    char label[2][TR_NUMBER_ROOM];
    uint64_t unknown;
};

static int predict_row(struct prediction *p, double margin)
{
    char number[TR_NUMBER_ROOM + 1];
    const char *text = number;
    bool wants_number = tr_given(p->options, TR_OPTION_PROBABILITY | TR_OPTION_MARGIN);
    if (!wants_number && tr_linear_model_classifies(&p->model)) {
        text = p->label[margin > 0 ? 0 : 1];
    } else {
        double shown = tr_given(p->options, TR_OPTION_PROBABILITY) ? 1 / (1 + exp(-margin)) : margin;
        *tr_put_f32(number, (float)shown) = '\0';
    }
    if (fputs(text, p->output.file) < 0 || putc('\n', p->output.file) < 0)
        return tr_printout_failed(&p->output);
    return TR_OK;
}

static int predict_rows(void *state, const tr_records *records)
{
    struct prediction *p = state;
    p->unknown += records->unknown;
    for (size_t i = 0; i < records->rows.n; i++) TR_TRY(predict_row(p, margin_of(&p->model, records, i)));
    return TR_OK;
}

static int predict_files(struct prediction *p)
{
    const struct tr_options *o = p->options;
    for (int i = 0; i < 2; i++) *tr_put_f32(p->label[i], p->model.label[i]) = '\0';
    tr_read_options manner = manner_of(&p->model, false);
    TR_TRY(tr_printout_open(o->output, &p->output));
    return tr_printout_close(&p->output, tr_read_rows(o->word + 1, o->words - 1, &manner, predict_rows, p));
}

static int check_wish(const struct prediction *p)
{
    const struct tr_options *o = p->options;
    if (tr_given(o, TR_OPTION_PROBABILITY) && tr_given(o, TR_OPTION_MARGIN))
        return tr_fail(TR_ERR_USAGE, "predict: unexpected --margin beside --probability, expected %s",
                       o->usage);
    if (tr_given(o, TR_OPTION_PROBABILITY) && p->model.type != TR_MODEL_LOGISTIC)
        return tr_fail(TR_ERR_USAGE, "--probability expects a logistic model, and %s is of type %s",
                       o->word[0], tr_linear_model_name(p->model.type));
    return TR_OK;
}

static int predict(const struct tr_options *o)
{
    struct prediction p = {.options = o};
    TR_TRY(tr_linear_model_read(o->word[0], &p.model));
    int status = check_wish(&p);
    if (status == TR_OK) status = predict_files(&p);
    if (status == TR_OK) tr_note_unknown("features", p.unknown);
    tr_linear_model_free(&p.model);
    return status;
}

/* ================ evaluate ================ */

struct evaluation {
    struct tr_linear_model model;
    uint64_t rows, right, unknown;
    double loss;         /* classifiers: log-loss; regression: squares of the errors */
    double mean, spread; /* of the labels: running mean, and Σ (y - mean)² (Welford) */
    float *score;        /* classifiers: for the area, which needs all of them */
    signed char *positive;
    size_t score_capacity, positive_capacity;
};

/* One result; NaN where it is not defined. */
struct line {
    const char *name;
    double value;
};

/* ---- rows ---- */

static int unknown_label(const struct evaluation *e, const tr_records *records, size_t i)
{
    char text[160];
    snprintf(text, sizeof text, "label %.9g, expected %.9g or %.9g as in training",
             (double)records->rows.label[i], (double)e->model.label[1], (double)e->model.label[0]);
    return tr_records_fail(records, i, text);
}

static int add_classified(struct evaluation *e, const tr_records *records, size_t i, double margin)
{
    float label = records->rows.label[i];
    bool positive = label == e->model.label[0];
    if (!positive && label != e->model.label[1]) return unknown_label(e, records, i);
    TR_TRY(TR_GROW(&e->score, &e->score_capacity, e->rows + 1));
    TR_TRY(TR_GROW(&e->positive, &e->positive_capacity, e->rows + 1));
    e->score[e->rows] = (float)margin;
    e->positive[e->rows] = positive;
    e->right += (margin > 0) == positive;
    e->loss += tr_loss(TR_MODEL_LOGISTIC, margin, positive ? 1 : -1);
    e->rows++;
    return TR_OK;
}

static void add_regressed(struct evaluation *e, double y, double margin)
{
    double from_old = y - e->mean;
    e->loss += (margin - y) * (margin - y);
    e->mean += from_old / (double)++e->rows;
    e->spread += from_old * (y - e->mean);
}

static int evaluate_rows(void *state, const tr_records *records)
{
    struct evaluation *e = state;
    bool classifies = tr_linear_model_classifies(&e->model);
    e->unknown += records->unknown;
    for (size_t i = 0; i < records->rows.n; i++) {
        double margin = margin_of(&e->model, records, i);
        if (classifies) TR_TRY(add_classified(e, records, i, margin));
        else add_regressed(e, (double)records->rows.label[i], margin);
    }
    return TR_OK;
}

/* ---- results ---- */

static size_t results(const struct evaluation *e, struct line lines[4])
{
    double n = (double)e->rows;
    size_t count = 0;
    if (tr_linear_model_classifies(&e->model)) {
        lines[count++] = (struct line){"accuracy", (double)e->right / n};
        lines[count++] = (struct line){"auc", tr_auc(e->score, e->positive, e->rows)};
        if (e->model.type == TR_MODEL_LOGISTIC) lines[count++] = (struct line){"log_loss", e->loss / n};
    } else {
        lines[count++] = (struct line){"rmse", sqrt(e->loss / n)};
        lines[count++] = (struct line){"r2", e->spread > 0 ? 1 - e->loss / e->spread : (double)NAN};
    }
    return count;
}

static void show_lines(const struct evaluation *e, const struct line *lines, size_t n)
{
    printf("%-8s  %llu\n", "rows", (unsigned long long)e->rows);
    for (size_t i = 0; i < n; i++) {
        if (isnan(lines[i].value)) printf("%-8s  not defined", lines[i].name);
        else printf("%-8s  %.6f", lines[i].name, lines[i].value);
        if (strcmp(lines[i].name, "accuracy") == 0)
            printf("  (%llu right, %llu wrong)", (unsigned long long)e->right,
                   (unsigned long long)(e->rows - e->right));
        putchar('\n');
    }
}

static void show_json(const struct evaluation *e, const struct line *lines, size_t n)
{
    printf("{\"model\": \"%s\", \"rows\": %llu", tr_linear_model_name(e->model.type),
           (unsigned long long)e->rows);
    if (tr_linear_model_classifies(&e->model)) printf(", \"right\": %llu", (unsigned long long)e->right);
    for (size_t i = 0; i < n; i++) {
        if (isfinite(lines[i].value)) printf(", \"%s\": %.17g", lines[i].name, lines[i].value);
        else printf(", \"%s\": null", lines[i].name);
    }
    printf(", \"unknown_values\": %llu}\n", (unsigned long long)e->unknown);
}

static int evaluate_files(struct evaluation *e, const struct tr_options *o)
{
    TR_TRY(tr_linear_model_read(o->word[0], &e->model));
    tr_read_options manner = manner_of(&e->model, true);
    int status = tr_read_rows(o->word + 1, o->words - 1, &manner, evaluate_rows, e);
    if (status == TR_OK && e->rows == 0)
        status = tr_fail(TR_ERR_NO_INPUT, "%s: there is no record in it", o->word[1]);
    return status;
}

static int evaluate(const struct tr_options *o)
{
    struct evaluation e = {0};
    struct line lines[4];
    int status = evaluate_files(&e, o);
    size_t n = status == TR_OK ? results(&e, lines) : 0;
    if (status == TR_OK && tr_given(o, TR_OPTION_JSON)) {
        show_json(&e, lines, n);
    } else if (status == TR_OK) {
        show_lines(&e, lines, n);
        tr_note_unknown("features", e.unknown);
    }
    tr_linear_model_free(&e.model);
    free(e.score);
    free(e.positive);
    return status;
}

/* ================ inspect ================ */

/* The n best features by sign · weight, best first. */
struct top {
    uint64_t *feature;
    size_t n, most;
};

static void offer(struct top *top, const struct tr_linear_model *m, uint64_t i, double sign)
{
    double w = sign * tr_linear_model_weight(m, i);
    size_t at = top->n;
    if (w <= 0 ||
        (at == top->most && (at == 0 || w <= sign * tr_linear_model_weight(m, top->feature[at - 1]))))
        return;
    if (top->n < top->most) top->n++;
    else at--;
    for (; at > 0 && sign * tr_linear_model_weight(m, top->feature[at - 1]) < w; at--)
        top->feature[at] = top->feature[at - 1];
    top->feature[at] = i;
}

static int show_top(const struct tr_linear_model *m, size_t most, double sign)
{
    struct top top = {.most = most};
    TR_TRY(TR_NEW(&top.feature, most));
    for (uint64_t i = 0; i < m->features; i++) offer(&top, m, i, sign);
    if (top.n > 0)
        printf("\nlargest %s weights\n%12s  weight\n", sign > 0 ? "positive" : "negative", "feature");
    for (size_t i = 0; i < top.n; i++)
        printf("%12llu  %+.6g\n", (unsigned long long)(top.feature[i] + m->first_index),
               tr_linear_model_weight(m, top.feature[i]));
    free(top.feature);
    return TR_OK;
}

static void show_weights(const struct tr_linear_model *m)
{
    uint64_t nonzero = 0;
    double squares = 0, least = INFINITY, most = -INFINITY;
    for (uint64_t i = 0; i < m->features; i++) {
        double w = tr_linear_model_weight(m, i);
        nonzero += w != 0;
        squares += w * w;
        least = fmin(least, w);
        most = fmax(most, w);
    }
    tr_show("features", "%llu, the first has index %u", (unsigned long long)m->features, m->first_index);
    tr_show("weights", "%llu not zero (%.3g %%), %s", (unsigned long long)nonzero,
            100 * (double)nonzero / (double)m->features, m->dtype == TR_F32 ? "f32" : "f64");
    tr_show("range", "%.6g to %.6g", least, most);
    tr_show("norm", "%.6g", sqrt(squares));
    if (m->biased) tr_show("bias", "%.6g", m->bias);
    else tr_show("bias", "none");
}

static void show_training(const struct tr_linear_model *m)
{
    if (m->rows > 0) tr_show("trained on", "%llu rows", (unsigned long long)m->rows);
    if (!isnan(m->l2)) tr_show("l2", "%.6g", m->l2);
    if (!isnan(m->objective)) tr_show("objective", "%.9g", m->objective);
    if (m->version) tr_show("trireme", "%s", m->version);
}

static int show_model(const char *path, size_t top)
{
    struct tr_linear_model m;
    TR_TRY(tr_linear_model_read(path, &m));
    tr_show("model", "%s", tr_linear_model_name(m.type));
    if (tr_linear_model_classifies(&m))
        tr_show("labels", "%.9g (positive), %.9g", (double)m.label[0], (double)m.label[1]);
    show_weights(&m);
    show_training(&m);
    int status = show_top(&m, top, 1);
    if (status == TR_OK) status = show_top(&m, top, -1);
    if (m.job) printf("\njob\n%s", m.job);
    tr_linear_model_free(&m);
    return status;
}

/* ---- a model on servers ---- */

/* As the model's own job says, unless the command line says otherwise. */
static int parse_settings(const char *path, const struct tr_linear_model *m, const struct tr_options *o,
                          tr_job **job)
{
    static const char none[] = "{}";
    const char *text = m->job ? m->job : none;
    char **setting, *partition = NULL;
    TR_TRY(TR_NEW(&setting, (size_t)o->settings + 1));
    if (o->settings > 0) memcpy(setting, o->setting, (size_t)o->settings * sizeof *setting);
    int n = o->settings;
    int status = o->partition ? tr_format(&partition, "table.partition=%s", o->partition) : TR_OK;
    if (partition) setting[n++] = partition;
    if (status == TR_OK) status = tr_job_parse_written(text, path, n, setting, job);
    free(partition);
    free(setting);
    return status;
}

static int make_partition(const char *path, const struct tr_linear_model *m, const struct tr_options *o,
                          long servers, struct tr_partition *partition)
{
    tr_job *job;
    TR_TRY(parse_settings(path, m, o, &job));
    struct tr_partition_options wish = {.kind = (enum tr_partition_kind)job->table.partition,
                                     .block = job->table.block,
                                     .points = (uint32_t)job->table.virtual_nodes,
                                     .unbounded = job->table.storage == TR_STORAGE_HASH,
                                     .table = path};
    tr_job_free(job);
    return tr_partition_make(&wish, m->features + m->biased, (uint32_t)servers, partition);
}

static uint64_t end_of_block(const struct tr_partition *p, uint64_t unit)
{
    uint64_t end = (unit / p->block + 1) * p->block;
    return end < p->units ? end : p->units;
}

/* Units that lie on another server under one than under the other. */
static uint64_t count_moved(const struct tr_partition *a, const struct tr_partition *b)
{
    uint64_t moved = 0;
    for (uint64_t unit = 0, next; unit < a->units; unit = next) {
        uint64_t end[2] = {end_of_block(a, unit), end_of_block(b, unit)};
        next = end[0] < end[1] ? end[0] : end[1];
        if (tr_partition_locate(a, unit).server != tr_partition_locate(b, unit).server) moved += next - unit;
    }
    return moved;
}

static int by_count(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static int show_loads(const struct tr_partition *p, double key_bytes)
{
    uint64_t *keys;
    TR_TRY(TR_NEW(&keys, p->servers));
    tr_partition_count(p, keys);
    qsort(keys, p->servers, sizeof *keys, by_count);
    uint64_t least = keys[0], median = keys[p->servers / 2], most = keys[p->servers - 1];
    tr_show("each server", "keys %llu / %llu / %llu, %s / %s / %s (min / median / max)",
            (unsigned long long)least, (unsigned long long)median, (unsigned long long)most,
            tr_bytes((double)least * key_bytes).text, tr_bytes((double)median * key_bytes).text,
            tr_bytes((double)most * key_bytes).text);
    tr_show("max / mean", "%.3f", (double)most * p->servers / (double)p->units);
    free(keys);
    return TR_OK;
}

static int show_servers(const struct tr_partition *p, double key_bytes)
{
    uint64_t *keys;
    TR_TRY(TR_NEW(&keys, p->servers));
    tr_partition_count(p, keys);
    printf("\n%12s  %12s  bytes\n", "server", "keys");
    for (uint32_t s = 0; s < p->servers; s++)
        printf("%12u  %12llu  %.0f\n", s, (unsigned long long)keys[s], (double)keys[s] * key_bytes);
    free(keys);
    return TR_OK;
}

static void show_partition(const struct tr_partition *p)
{
    char points[48] = "";
    if (p->kind == TR_PARTITION_RING) snprintf(points, sizeof points, ", %u points a server", p->points);
    tr_show("partition", "%s, %llu blocks of %llu%s", tr_partition_name(p->kind),
            (unsigned long long)p->blocks, (unsigned long long)p->block, points);
}

static int show_on_servers(const char *path, const struct tr_options *o)
{
    struct tr_linear_model m;
    struct tr_partition now = {0}, then = {0};
    TR_TRY(tr_linear_model_read(path, &m));
    double key_bytes = m.dtype == TR_F32 ? 4 : 8;
    int status = make_partition(path, &m, o, o->servers, &now);
    if (status == TR_OK) status = make_partition(path, &m, o, o->servers + 1, &then);
    if (status == TR_OK) {
        tr_show("keys", "%llu of %s%s, %s", (unsigned long long)now.units, m.dtype == TR_F32 ? "f32" : "f64",
                m.biased ? " with the bias" : "", tr_bytes((double)now.units * key_bytes).text);
        show_partition(&now);
        status = show_loads(&now, key_bytes);
    }
    if (status == TR_OK) {
        tr_show("one more", "%.2f %% of the keys would move with %ld servers (an even share is %.2f %%)",
                100 * (double)count_moved(&now, &then) / (double)now.units, o->servers + 1,
                100 / (double)(o->servers + 1));
        status = show_servers(&now, key_bytes);
    }
    tr_partition_free(&now);
    tr_partition_free(&then);
    tr_linear_model_free(&m);
    return status;
}

static int inspect(const char *path, const struct tr_options *o)
{
    if (tr_given(o, TR_OPTION_SERVERS)) return show_on_servers(path, o);
    return show_model(path, tr_given(o, TR_OPTION_TOP) ? (size_t)o->top : TOP);
}

const struct tr_command_kind tr_linear_commands = {
    .format = TR_LINEAR_FORMAT,
    .what = "a linear model",
    .predicts_with = TR_OPTION_PROBABILITY | TR_OPTION_MARGIN,
    .inspects_with = TR_OPTION_TOP | TR_OPTION_SERVERS | TR_OPTION_PARTITION | TR_OPTION_SETTING,
    .predict = predict,
    .evaluate = evaluate,
    .inspect = inspect,
};
