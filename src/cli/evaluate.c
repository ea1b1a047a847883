#include "cli/cli.h"

#include <stdio.h>

#include "cli/kinds.h"

#define USAGE "trireme evaluate MODEL DATA… [--json] [--format F]"

static const char help[] =
    "usage: " USAGE "\n\n"
    "Says how good a model is on the files DATA (globs and .gz are fine). MODEL is a model.h5, a model.txt, "
    "or a folder "
    "with\n"
    "one; DATA is of the format that it was trained on.\n\n"
    "  linear models   accuracy, area under the ROC curve and mean log-loss of a classifier; root mean "
    "squared error "
    "and R²\n"
    "                  of regression\n"
    "  clusters        inertia: the sum of squared distances to the nearest centres, and how clusters meet "
    "labels\n"
    "  factorization   root mean squared and mean absolute error of the ratings\n"
    "  topics          log-likelihood of a word, and perplexity\n\n"
    "  --json          write one object\n"
    "  --format F      of DATA: libsvm, csv, ratings, docword, if it is another than in training\n"
    "  --plugin FILE   the shared object of a model of one's own, if it is elsewhere than in training\n";

static int evaluate(const struct tr_options *o)
{
    TR_TRY(tr_ask_model(o->word[0], o, TR_EVALUATE));
    return fflush(stdout) == 0 && !ferror(stdout) ? TR_OK
                                                  : tr_fail(TR_ERR_IO, "standard output: cannot be written");
}

int tr_evaluate_command(int argc, char **argv)
{
    if (tr_wants_help(argc, argv)) return fputs(help, stdout), TR_OK;
    struct tr_options o;
    int status = tr_options_parse(argc, argv, "evaluate", USAGE,
                                  TR_OPTION_JSON | TR_OPTION_FORMAT | TR_OPTION_PLUGIN, 2, &o);
    if (status == TR_OK) status = evaluate(&o);
    tr_options_free(&o);
    return tr_complain(status);
}
