#include "cli/cli.h"

#include <stdio.h>

#include "cli/kinds.h"

#define USAGE "trireme predict MODEL DATA… [-o FILE] [OPTION…]"

static const char help[] =
    "usage: " USAGE "\n\n"
    "Writes a line for each record of the files DATA (globs and .gz are fine), as the model predicts it. "
    "MODEL is a "
    "model.h5,\n"
    "a model.txt, or a folder with one; DATA is of the format that it was trained on. Labels and ratings in "
    "DATA mean\n"
    "nothing and may be missing.\n\n"
    "  linear models   the label, or the value for regression\n"
    "  clusters        the number of the nearest centre, from 0\n"
    "  factorization   the rating of each «user item» line\n"
    "  topics          the topics of each document, topic:share, largest first\n\n"
    "  -o FILE         write there instead of standard output; FILE appears when it is complete\n"
    "  --probability   linear, logistic: the probability of the positive label instead\n"
    "  --margin        linear: w · x + bias instead\n"
    "  --distance      clusters: the distance to the centre behind its number\n"
    "  --top N         factorization: the N best items of a user instead, «user item rating» lines; topics: "
    "the N "
    "largest\n"
    "  --user ID       factorization, with --top: of this user; without DATA\n"
    "  --format F      of DATA: libsvm, csv, ratings, docword, if it is another than in training\n"
    "  --plugin FILE   the shared object of a model of one's own, if it is elsewhere than in training\n";

enum {
    KNOWN = TR_OPTION_OUTPUT | TR_OPTION_PROBABILITY | TR_OPTION_MARGIN | TR_OPTION_DISTANCE | TR_OPTION_TOP |
            TR_OPTION_USER | TR_OPTION_FORMAT | TR_OPTION_PLUGIN
};

static int predict(const struct tr_options *o)
{
    if (o->words < 2 && !tr_given(o, TR_OPTION_USER))
        return tr_fail(TR_ERR_USAGE, "predict: expected %s", o->usage);
    return tr_ask_model(o->word[0], o, TR_PREDICT);
}

int tr_predict_command(int argc, char **argv)
{
    if (tr_wants_help(argc, argv)) return fputs(help, stdout), TR_OK;
    struct tr_options o;
    int status = tr_options_parse(argc, argv, "predict", USAGE, KNOWN, 1, &o);
    if (status == TR_OK) status = predict(&o);
    tr_options_free(&o);
    return tr_complain(status);
}
