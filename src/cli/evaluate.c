#define _GNU_SOURCE
#include "cli/cli.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "model/linear/auc.h"
#include "model/linear/file.h"
#include "model/rows.h"
#include "solve/loss.h"

#define USAGE "trireme evaluate MODEL DATA… [--json]"

static const char help[] = "usage: " USAGE "\n\n"
                           "Says how good a model is on the LIBSVM files DATA (globs and .gz are fine): "
                           "accuracy, area under the ROC curve and\n"
                           "mean log-loss of a classifier; root mean squared error and R² of regression. "
                           "MODEL is a model.h5, a model.txt,\n"
                           "or a folder with one.\n\n"
                           "  --json  write one object\n";

struct evaluation {
    struct tr_linear_model model;
    bool json;
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

static int unknown_label(const struct evaluation *e, const struct tr_row *row)
{
    char text[160];
    snprintf(text, sizeof text, "label %.9g, expected %.9g or %.9g as in training", (double)row->label,
             (double)e->model.label[1], (double)e->model.label[0]);
    return tr_row_fail(row, text);
}

static int add_classified(struct evaluation *e, const struct tr_row *row, double margin)
{
    bool positive = row->label == e->model.label[0];
    if (!positive && row->label != e->model.label[1]) return unknown_label(e, row);
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

static int evaluate_row(void *state, const struct tr_row *row)
{
    struct evaluation *e = state;
    double margin = tr_linear_model_margin(&e->model, row->index, row->value, row->n, &e->unknown);
    if (tr_linear_model_classifies(&e->model)) return add_classified(e, row, margin);
    add_regressed(e, (double)row->label, margin);
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
    printf("{\"model\": \"%s\", \"rows\": %llu", tr_linear_model_name(e->model.type), (unsigned long long)e->rows);
    if (tr_linear_model_classifies(&e->model)) printf(", \"right\": %llu", (unsigned long long)e->right);
    for (size_t i = 0; i < n; i++) {
        if (isfinite(lines[i].value)) printf(", \"%s\": %.17g", lines[i].name, lines[i].value);
        else printf(", \"%s\": null", lines[i].name);
    }
    printf(", \"unknown_values\": %llu}\n", (unsigned long long)e->unknown);
}

static int show(const struct evaluation *e)
{
    struct line lines[4];
    size_t n = results(e, lines);
    if (e->json) show_json(e, lines, n);
    else show_lines(e, lines, n);
    if (e->unknown > 0 && !e->json)
        fprintf(
            stderr,
            "trireme: note: %llu values belong to features that the model does not know and were ignored\n",
            (unsigned long long)e->unknown);
    return fflush(stdout) == 0 && !ferror(stdout) ? TR_OK
                                                  : tr_fail(TR_ERR_IO, "standard output: cannot be written");
}

static int evaluate(struct evaluation *e, char **words, size_t n)
{
    struct tr_files files;
    TR_TRY(tr_linear_model_read(words[0], &e->model));
    TR_TRY(tr_files_open(words + 1, n - 1, &files));
    struct tr_rows_options options = {.lowest_index = e->model.first_index};
    int status = tr_rows_each(&files, &options, evaluate_row, e);
    if (status == TR_OK && e->rows == 0)
        status = tr_fail(TR_ERR_NO_INPUT, "%s: there is no record in it", files.file[0].path);
    tr_files_close(&files);
    return status == TR_OK ? show(e) : status;
}

/* ---- the command line ---- */

static int parse(int argc, char **argv, struct evaluation *e, char **words, size_t *n)
{
    bool options = true;
    for (int i = 0; i < argc; i++) {
        const char *word = argv[i];
        if (!options || word[0] != '-' || !word[1]) words[(*n)++] = argv[i];
        else if (strcmp(word, "--") == 0) options = false;
        else if (strcmp(word, "--json") == 0) e->json = true;
        else return tr_fail(TR_ERR_USAGE, "evaluate: unexpected %s, expected " USAGE, word);
    }
    return *n >= 2 ? TR_OK : tr_fail(TR_ERR_USAGE, "evaluate: expected " USAGE);
}

int tr_evaluate_command(int argc, char **argv)
{
    for (int i = 0; i < argc; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) return fputs(help, stdout), TR_OK;
    struct evaluation e = {0};
    char **words = NULL;
    size_t n = 0;
    int status = TR_NEW(&words, (size_t)argc);
    if (status == TR_OK) status = parse(argc, argv, &e, words, &n);
    if (status == TR_OK) status = evaluate(&e, words, n);
    tr_linear_model_free(&e.model);
    free(e.score);
    free(e.positive);
    free(words);
    return tr_complain(status);
}
