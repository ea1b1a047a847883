/* trireme predict and trireme evaluate. */
#include "cli/cli.h"

#include <stdio.h>

#include "cli/words.h"

#define PREDICT  "trireme predict MODEL DATA… [-o FILE] [OPTION…]"
#define EVALUATE "trireme evaluate MODEL DATA… [--json] [--format F]"

static const char predict_help[] =
    "usage: " PREDICT "\n\n"
    "Writes a line for each record of the files DATA (globs and packed files are fine), as the model "
    "predicts it. "
    "MODEL is a\n"
    "model.h5, a model.txt, or a folder with one; DATA is of the format that it was trained on. Labels and "
    "ratings in\n"
    "DATA mean nothing and may be missing. What a line says depends on the class of the model:\n\n";

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
        if (text) printf("  %-8s  %s\n", tr_model_classes[i]->name, text);
    }
    putchar('\n');
    if (predicts)
        puts("  -o FILE           write there instead of standard output; FILE appears when it is complete");
    else puts("  --json            write one object");
    tr_words_help(command);
    puts(
        "  --format F        of DATA: libsvm, csv, ratings, docword, hdf5, if it is another than in "
        "training\n"
        "  --plugin FILE     the shared object of a model of one's own, if it is elsewhere than in training");
    return TR_OK;
}

static int ask(int argc, char **argv, enum tr_asked command, const char *usage)
{
    struct tr_words words;
    int status = tr_words_read(argc, argv, command, usage, 2, &words);
    if (words.helps) return show_help(command);
    if (status == TR_OK) status = tr_ask_model(words.word[0], &words);
    tr_words_free(&words);
    return tr_complain(status);
}

int tr_predict_command(int argc, char **argv)
{
    return ask(argc, argv, TR_PREDICT, PREDICT);
}

int tr_evaluate_command(int argc, char **argv)
{
    return ask(argc, argv, TR_EVALUATE, EVALUATE);
}
