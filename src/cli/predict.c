#define _GNU_SOURCE
#include "cli/cli.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "model/digits.h"
#include "model/linear/file.h"
#include "model/rows.h"

#define USAGE "trireme predict MODEL DATA… [-o FILE] [--probability | --margin]"

static const char help[] =
    "usage: " USAGE "\n\n"
    "Writes a line for each row of the LIBSVM files DATA (globs and .gz are fine): the label that the model "
    "predicts,\n"
    "or the value for regression. MODEL is a model.h5, a model.txt, or a folder with one. Labels in DATA "
    "mean nothing\n"
    "and may be missing.\n\n"
    "  -o FILE        write there instead of standard output; FILE appears when it is complete\n"
    "  --probability  write the probability of the positive label instead (logistic)\n"
    "  --margin       write w · x + bias instead\n";

enum what { LABEL, PROBABILITY, MARGIN };

struct prediction {
    struct tr_linear_model model;
    enum what what;
    FILE *file;
    const char *path; /* NULL: standard output */
    char *part;       /* its name until it is complete; NULL: written in place */
    char label[2][TR_NUMBER_ROOM];
    uint64_t unknown;
};

/* ---- the output ---- */

static int failed(const struct prediction *p, int status)
{
    return tr_fail(status, "%s: cannot be written: %s", p->path ? p->path : "standard output",
                   strerror(errno));
}

/* What is there and no regular file, /dev/null say, is written in place. */
static int open_output(struct prediction *p)
{
    struct stat status;
    p->file = stdout;
    if (!p->path) return TR_OK;
    bool in_place = stat(p->path, &status) == 0 && !S_ISREG(status.st_mode);
    if (!in_place) TR_TRY(tr_format(&p->part, "%s.part", p->path));
    p->file = fopen(p->part ? p->part : p->path, "we");
    return p->file ? TR_OK : failed(p, TR_ERR_NO_OUTPUT);
}

static int close_output(struct prediction *p)
{
    bool ok = fflush(p->file) == 0 && !ferror(p->file) && (!p->part || fsync(fileno(p->file)) == 0);
    int status = ok ? TR_OK : failed(p, TR_ERR_IO);
    if (p->file != stdout && fclose(p->file) != 0 && status == TR_OK) status = failed(p, TR_ERR_IO);
    p->file = NULL;
    if (status == TR_OK && p->part && rename(p->part, p->path) < 0) status = failed(p, TR_ERR_IO);
    return status;
}

static void drop_output(struct prediction *p)
{
    if (p->file && p->file != stdout) fclose(p->file);
    if (p->part) unlink(p->part);
}

/* ---- rows ---- */

static int predict_row(void *state, const struct tr_row *row)
{
    struct prediction *p = state;
    char number[TR_NUMBER_ROOM + 1];
    const char *text = number;
    double margin = tr_linear_model_margin(&p->model, row->index, row->value, row->n, &p->unknown);
    if (p->what == LABEL && tr_linear_model_classifies(&p->model)) {
        text = p->label[margin > 0 ? 0 : 1];
    } else {
        double shown = p->what == PROBABILITY ? 1 / (1 + exp(-margin)) : margin;
        *tr_put_f32(number, (float)shown) = '\0';
    }
    if (fputs(text, p->file) < 0 || putc('\n', p->file) < 0) return failed(p, TR_ERR_IO);
    return TR_OK;
}

static int predict_files(struct prediction *p, char **patterns, size_t n)
{
    struct tr_files files;
    for (int i = 0; i < 2; i++) *tr_put_f32(p->label[i], p->model.label[i]) = '\0';
    TR_TRY(tr_files_open(patterns, n, &files));
    int status = open_output(p);
    struct tr_rows_options options = {.lowest_index = p->model.first_index, .unlabelled = true};
    if (status == TR_OK) status = tr_rows_each(&files, &options, predict_row, p);
    if (status == TR_OK) status = close_output(p);
    if (status != TR_OK) drop_output(p);
    tr_files_close(&files);
    return status;
}

static int predict(struct prediction *p, char **words, size_t n)
{
    TR_TRY(tr_linear_model_read(words[0], &p->model));
    if (p->what == PROBABILITY && p->model.type != TR_MODEL_LOGISTIC)
        return tr_fail(TR_ERR_USAGE, "--probability expects a logistic model, and %s is of type %s", words[0],
                       tr_linear_model_name(p->model.type));
    TR_TRY(predict_files(p, words + 1, n - 1));
    if (p->unknown > 0)
        fprintf(
            stderr,
            "trireme: note: %llu values belong to features that the model does not know and were ignored\n",
            (unsigned long long)p->unknown);
    return TR_OK;
}

/* ---- the command line ---- */

static int parse(int argc, char **argv, struct prediction *p, char **words, size_t *n)
{
    bool options = true;
    for (int i = 0; i < argc; i++) {
        const char *word = argv[i];
        if (!options || word[0] != '-' || !word[1]) words[(*n)++] = argv[i];
        else if (strcmp(word, "--") == 0) options = false;
        else if (strcmp(word, "-o") == 0 && i + 1 < argc) p->path = argv[++i];
        else if (strcmp(word, "-o") == 0) return tr_fail(TR_ERR_USAGE, "predict: expected a file behind -o");
        else if (strcmp(word, "--probability") == 0 && p->what != MARGIN) p->what = PROBABILITY;
        else if (strcmp(word, "--margin") == 0 && p->what != PROBABILITY) p->what = MARGIN;
        else return tr_fail(TR_ERR_USAGE, "predict: unexpected %s, expected " USAGE, word);
    }
    return *n >= 2 ? TR_OK : tr_fail(TR_ERR_USAGE, "predict: expected " USAGE);
}

int tr_predict_command(int argc, char **argv)
{
    for (int i = 0; i < argc; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) return fputs(help, stdout), TR_OK;
    struct prediction p = {0};
    char **words = NULL;
    size_t n = 0;
    int status = TR_NEW(&words, (size_t)argc);
    if (status == TR_OK) status = parse(argc, argv, &p, words, &n);
    if (status == TR_OK) status = predict(&p, words, n);
    tr_linear_model_free(&p.model);
    free(p.part);
    free(words);
    return tr_complain(status);
}
