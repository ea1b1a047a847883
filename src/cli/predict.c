#define _GNU_SOURCE
/* trireme predict and trireme evaluate. */
#include "cli/cli.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "cli/words.h"
#include "ranks/ranks.h"

#define PREDICT  "trireme predict MODEL DATA… [-o FILE] [OPTION…]"
#define EVALUATE "trireme evaluate MODEL DATA… [--json] [--plot [-o FILE]] [--format F]"

static const char predict_help[] =
    "usage: " PREDICT "\n\n"
    "Writes a line for each record of the files DATA (globs and packed files are fine), as the model "
    "predicts it. "
    "MODEL is a\n"
    "model.h5, a model.txt, or a folder with one; DATA is of the format that it was trained on. Labels and "
    "ratings in\n"
    "DATA mean nothing and may be missing; DATA may be - for standard input. Ranks under mpirun share the "
    "rows, and the\n"
    "first writes all in their order. What a line says depends on the class of the model:\n\n";

static const char evaluate_help[] =
    "usage: " EVALUATE "\n\n"
    "Says how good a model is on the files DATA (globs and packed files are fine). "
    "MODEL is a model.h5, a model.txt, or a folder\n"
    "with one; DATA is of the format that it was trained on. What is "
    "measured depends on the class of the model:\n\n";

static int show_help(enum tr_asked command)
{
    bool predicts = command == TR_PREDICT;
    fputs(predicts ? predict_help : evaluate_help, stdout);
    for (size_t i = 0; i < tr_model_class_count; i++) {
        const char *text = predicts ? tr_model_classes[i]->predicts : tr_model_classes[i]->evaluates;
        if (text) tr_printf(stdout, "  %-8s  %s\n", tr_model_classes[i]->name, text);
    }
    putchar('\n');
    if (predicts)
        puts("  -o FILE           write there instead of standard output; FILE appears when it is complete\n"
             "  --id COLUMN       of a table: what that column says, and a tab, before each prediction");
    else
        puts("  --json            write one object\n"
             "  --plot            draw curves of a classifier of two labels by gnuplot: ROC, precision over "
             "recall, "
             "calibration\n"
             "  -o FILE           … into FILE, which ends in .svg, .png or .pdf");
    tr_words_help(command);
    puts("  --format F        of DATA: libsvm, csv, ratings, docword, hdf5, if it is another than in "
         "training\n"
         "  --plugin FILE     the shared object of a model of one's own: it is never loaded because a model "
         "names it");
    return TR_OK;
}

/* What comes from standard input, as a file that can be read as others are, more than once. It stays until the end. */
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

static int ask_alone(struct tr_words *w)
{
    char *spool = NULL;
    int status = TR_OK;
    for (size_t i = 1; i < w->words && status == TR_OK; i++) {
        if (strcmp(w->word[i], "-") != 0) continue;
        if (!spool) status = spool_input(&spool);
        w->word[i] = spool;
    }
    if (status == TR_OK) status = tr_ask_model(w->word[0], w, NULL);
    free(spool);
    return tr_complain(status);
}

/* Ranks share the rows of predict; those of standard input, which the first rank alone has, and of evaluate are all its. */
static int ask_together(const struct tr_words *w)
{
    int none = 0;
    char **nothing = NULL;
    tr_context *tr;
    TR_TRY(tr_ranks_start(&none, &nothing, &tr));
    int status = tr_ask_model(w->word[0], w, tr);
    if (tr->status == TR_OK) status = tr_agree(tr, status); /* else it is what has been agreed on */
    int outcome = tr_ranks_stop(tr);
    return status != TR_OK ? status : outcome;
}

static int ask(int argc, char **argv, enum tr_asked command, const char *usage)
{
    struct tr_words words;
    bool input = false;
    int status = tr_words_read(argc, argv, command, usage, 2, &words);
    if (words.helps) return show_help(command);
    for (size_t i = 1; i < words.words; i++) input = input || !strcmp(words.word[i], "-");
    if (status == TR_OK && command == TR_PREDICT && !input && tr_started_ranks() > 1)
        status = ask_together(&words);
    else if (status == TR_OK && !tr_is_an_echo()) status = ask_alone(&words);
    else if (!tr_is_an_echo()) tr_complain(status);
    tr_words_free(&words);
    return status;
}

int tr_predict_command(int argc, char **argv)
{
    return ask(argc, argv, TR_PREDICT, PREDICT);
}

int tr_evaluate_command(int argc, char **argv)
{
    return ask(argc, argv, TR_EVALUATE, EVALUATE);
}
