/* trireme predict and trireme evaluate. */
#define _GNU_SOURCE
#include "cli/cli.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "base/escape.h"
#include "base/file.h"
#include "data/dataset.h"
#include "data/input.h"
#include "ranks/ranks.h"

/* Checks that the output file is not the model or one of the data files. */
static int check_inputs(const struct tr_ask *ask, const struct tr_model *model, const char *output)
{
    int status = tr_check_not_input(output, model->path);
    for (size_t i = 0; i < ask->files && status == TR_OK; i++) {
        char *found = NULL;
        struct tr_files files = {.file = NULL};
        if (model->job) status = tr_data_find(model->job, ask->file[i], &found);
        /* ignore files that cannot be opened: the error is reported when they are read */
        if (status == TR_OK && tr_files_open(found ? &found : (char **)&ask->file[i], 1, &files) == TR_OK)
            for (size_t k = 0; k < files.n && status == TR_OK; k++)
                status = tr_check_not_input(output, files.file[k].path);
        tr_files_close(&files);
        free(found);
    }
    return status;
}

/* Draws curves below each other, with x and y from 0 to 1. A dashed line shows random guessing, or perfect calibration. */
static int draw_curves(void *state, const struct tr_curve *curve, size_t n)
{
    const char *const *output = state;
    struct tr_drawing drawing;
    if (n == 0)
        return tr_fail(TR_ERR_USAGE,
                       "evaluate: there are no curves to plot of such a model, or of such rows");
    int status = tr_drawing_open(&drawing, "evaluate", *output, (int)n);
    FILE *script = drawing.script;
    if (status == TR_OK)
        fprintf(script,
                "unset key\nset xrange [0:1]\nset yrange [0:1]\nset grid\nset multiplot layout %zu,1\n", n);
    for (const struct tr_curve *c = curve; c < curve + n && status == TR_OK; c++) {
        fputs("$curve << end\n", script);
        for (size_t i = 0; i < c->n; i++) fprintf(script, "%.6g %.6g\n", c->point[i][0], c->point[i][1]);
        fputs("end\nset title ", script);
        tr_put_gnuplot(script, c->name);
        fputs("\nset xlabel ", script);
        tr_put_gnuplot(script, c->x);
        fputs("\nset ylabel ", script);
        tr_put_gnuplot(script, c->y);
        tr_printf(script, "\nplot $curve with %s%s\n", c->n > 20 ? "lines" : "linespoints",
                  strcmp(c->x, "recall") != 0 ? ", x with lines dashtype 2" : "");
    }
    if (status == TR_OK) fputs("unset multiplot\n", script);
    return tr_drawing_close(&drawing, status);
}

int tr_ask_model(enum tr_asked command, const struct tr_arguments *a, const struct tr_ask_options *o,
                 tr_context *tr)
{
    struct tr_model model;
    struct tr_target target = {.part = NULL};
    struct tr_ask ask = {.command = command,
                         .file = a->word + 1,
                         .files = a->words - 1,
                         .given = a->flag,
                         .n_given = a->flags,
                         .format = o->format,
                         .out = stdout,
                         .output = "standard output",
                         .json = o->json,
                         .strict = o->strict,
                         .id = o->id,
                         .offset = o->offset,
                         .on_error = o->on_error,
                         .draw = o->plot ? draw_curves : NULL,
                         .draw_state = (void *)(uintptr_t)&o->output,
                         .tr = tr};
    int status = tr_model_open(a->word[0], o->plugin, &model);
    bool opened = status == TR_OK;
    if (opened && tr && tr->rank > 0) { /* a temporary file, whose content is sent to rank 0 */
        ask.out = tmpfile();
        if (!ask.out) status = tr_fail(TR_ERR_IO, "no file for predictions: %s", strerror(errno));
    } else if (opened && command == TR_PREDICT && o->output) {
        status = check_inputs(&ask, &model, o->output);
        if (status == TR_OK)
            status = tr_target_open(&target, TR_TARGET_NAMED | TR_TARGET_DURABLE, "%s", o->output);
        if (status == TR_OK) ask.out = target.file;
        if (status == TR_OK) ask.output = o->output;
    }
    if (tr) status = tr_agree(tr, status);
    if (status == TR_OK) status = tr_model_ask(&model, &ask);
    if (!opened) return status;
    if (ask.out == stdout) status = tr_flush_output(status);
    else if (ask.out && !target.file) fclose(ask.out);
    status = tr_target_close(&target, status);
    tr_model_close(&model);
    return status;
}

/* ---- the commands ---- */

const tr_flag *tr_plugin_flags(const struct tr_arguments *arguments, const void *options)
{
    struct tr_model model;
    const char *plugin = ((const struct tr_ask_options *)options)->plugin;
    if (arguments->words == 0 || tr_model_open(arguments->word[0], plugin, &model) != TR_OK) return NULL;
    const tr_flag *flags = model.class->flags; /* remain valid, because plugins are not unloaded */
    tr_model_close(&model);
    return flags;
}

/* Copies standard input to a temporary file, which can be read more than once and exists until the process ends. */
static int spool_input(char **path)
{
    char piece[1 << 14];
    FILE *file = tmpfile();
    size_t n;
    if (!file) return tr_fail(TR_ERR_IO, "no file for standard input: %s", strerror(errno));
    while ((n = fread(piece, 1, sizeof piece, stdin)) > 0)
        if (fwrite(piece, 1, n, file) != n) break;
    if (ferror(stdin) || ferror(file) || fflush(file) != 0)
        return tr_fail(TR_ERR_IO, "standard input: cannot be copied: %s", strerror(errno));
    return tr_format(path, "/dev/fd/%d", fileno(file));
}

static int ask_alone(enum tr_asked command, struct tr_arguments *a, const struct tr_ask_options *o)
{
    char *spool = NULL;
    int status = TR_OK;
    for (size_t i = 1; i < a->words && status == TR_OK; i++) {
        if (strcmp(a->word[i], "-") != 0) continue;
        if (!spool) status = spool_input(&spool);
        a->word[i] = spool;
    }
    if (status == TR_OK) status = tr_ask_model(command, a, o, NULL);
    free(spool);
    return status;
}

/* Checks that there are data files, or the flag --user, with which none are needed. */
static int check_data(const struct tr_arguments *a, const char *command)
{
    bool user = false;
    for (size_t i = 0; i < a->flags; i++) user = user || !strcmp(a->flag[i].name, "--user");
    if (a->words > 1 || user) return TR_OK;
    return tr_fail(TR_ERR_USAGE, "%s: expected MODEL DATA...: see trireme help %s", command, command);
}

/* The ranks divide the rows among them, unless the rows are read from standard input, which only rank 0 has. */
static int predict_command(struct tr_arguments *a, void *options)
{
    bool input = false;
    for (size_t i = 1; i < a->words; i++) input = input || !strcmp(a->word[i], "-");
    int status = check_data(a, "predict"), none = 0;
    if (status == TR_OK && !input && tr_started_ranks() > 1) {
        char **nothing = NULL;
        tr_context *tr;
        TR_TRY(tr_ranks_start(&none, &nothing, &tr));
        status = tr_ask_model(TR_PREDICT, a, options, tr);
        if (tr->status == TR_OK) status = tr_agree(tr, status); /* otherwise the ranks have agreed already */
        int outcome = tr_ranks_stop(tr);
        return status != TR_OK ? status : outcome;
    }
    if (tr_is_an_echo()) return TR_OK;
    if (status == TR_OK) status = ask_alone(TR_PREDICT, a, options);
    return tr_complain(status);
}

static int evaluate_command(struct tr_arguments *a, void *options)
{
    const struct tr_ask_options *o = options;
    TR_TRY(check_data(a, "evaluate"));
    if (o->output && !o->plot)
        return tr_fail(TR_ERR_USAGE, "evaluate: -o is the file of --plot, which is not given");
    return ask_alone(TR_EVALUATE, a, o);
}

#define AT(field) offsetof(struct tr_ask_options, field)

#define FORMAT                                                                                               \
    {                                                                                                        \
        "--format", TR_ARG_TEXT, AT(format),                                                                 \
            .value = "F",                                                                                    \
            .help = "the format of DATA if it differs from training: libsvm, csv, ratings, docword, hdf5"    \
    }

#define OFFSET                                                                                               \
    {                                                                                                        \
        "data.offset", TR_ARG_TEXT, AT(offset),                                                              \
            .value = "FILE",                                                                                 \
            .help =                                                                                          \
                "files with the offset of each row of DATA, for models that were trained with such files"    \
    }

#define ON_ERROR                                                                                             \
    {                                                                                                        \
        "data.on_error", TR_ARG_TEXT, AT(on_error),                                                          \
            .value = "stop|skip",                                                                            \
            .help = "end at the first malformed row of DATA, or skip such rows: predict writes nan for them" \
    }

#define STRICT                                                                                               \
    {                                                                                                        \
        "--strict", TR_ARG_FLAG, AT(strict),                                                                 \
            .help =                                                                                          \
                "of a table: refuse columns that the training data do not have, which are ignored otherwise" \
    }

static const struct tr_argument predict_arguments[] = {
    {"-o", TR_ARG_TEXT, AT(output), .value = "FILE",
     .help = "write to FILE instead of standard output; it appears when it is complete"},
    {"--id", TR_ARG_TEXT, AT(id), .value = "COLUMN",
     .help = "write the value of this column of a table and a tab before each prediction; libsvm: line, the "
             "number of the line; hdf5: row, the number of the row from 0, or the path of a dataset; "
             "ratings: user, "
             "item or pair"},
    FORMAT,
    OFFSET,
    ON_ERROR,
    STRICT,
    TR_ASK_PLUGIN,
    {0}};

const struct tr_cli_command tr_predict_command = {
    .syntax = {.command = "predict",
               .expected = "MODEL DATA...",
               .least = 1,
               .options = predict_arguments,
               .asked = TR_PREDICT,
               .more_flags = tr_plugin_flags},
    .brief = "apply a model to data",
    .usage = "trireme predict MODEL DATA... [OPTION...]",
    .about = "Writes a line for each row of the files DATA (globs and compressed files are allowed): the "
             "prediction of the model. MODEL is a model.h5, a model.txt, or a folder with one; DATA has the "
             "format that it was trained on. Labels and ratings in DATA are ignored and may be missing; DATA "
             "may be - for standard input. Ranks under mpirun share the rows, and the first writes all in "
             "their order. The content of a line depends on the class of the model:\n",
    .options_size = sizeof(struct tr_ask_options),
    .on_ranks = true,
    .run = predict_command,
};

static const struct tr_argument evaluate_arguments[] = {
    {"--json", TR_ARG_FLAG, AT(json), .help = "write one JSON object"},
    {"--plot", TR_ARG_FLAG, AT(plot),
     .help = "draw curves of a classifier of two labels by gnuplot: ROC, precision over recall, calibration"},
    {"-o", TR_ARG_TEXT, AT(output), .value = "FILE",
     .help = "draw to FILE, which ends in .svg, .png or .pdf"},
    FORMAT,
    OFFSET,
    ON_ERROR,
    STRICT,
    TR_ASK_PLUGIN,
    {0}};

const struct tr_cli_command tr_evaluate_command = {
    .syntax = {.command = "evaluate",
               .expected = "MODEL DATA...",
               .least = 1,
               .options = evaluate_arguments,
               .asked = TR_EVALUATE,
               .more_flags = tr_plugin_flags},
    .brief = "measure a model on labelled data",
    .usage = "trireme evaluate MODEL DATA... [OPTION...]",
    .about = "Measures the quality of a model on the files DATA (globs and compressed files are allowed). "
             "MODEL is a model.h5, a model.txt, or a folder with one; DATA has the format that it was "
             "trained on. The metrics depend on the class of the model:\n",
    .options_size = sizeof(struct tr_ask_options),
    .run = evaluate_command,
};
