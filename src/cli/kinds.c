#include "cli/kinds.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "cli/printout.h"

static int ask_into(struct tr_model *model, const struct tr_options *o, struct tr_ask *ask)
{
    struct tr_printout out;
    if (ask->command != TR_PREDICT) return tr_model_ask(model, ask);
    TR_TRY(tr_printout_open(o->output, &out));
    ask->out = out.file;
    ask->output = o->output ? o->output : "standard output";
    return tr_printout_close(&out, tr_model_ask(model, ask));
}

int tr_ask_model(const char *path, const struct tr_options *o, enum tr_asked command)
{
    struct tr_ask ask = {.command = command,
                         .file = o->word + 1,
                         .files = o->words - 1,
                         .given = o->flag,
                         .n_given = o->flags,
                         .format = o->format,
                         .out = stdout,
                         .output = "standard output",
                         .json = tr_given(o, TR_OPTION_JSON)};
    struct tr_model model;
    TR_TRY(tr_model_open(path, o->plugin, &model));
    int status = ask_into(&model, o, &ask);
    tr_model_close(&model);
    return status;
}

void tr_show(const char *name, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    printf("%-13s ", name);
    vprintf(format, arguments);
    putchar('\n');
    va_end(arguments);
}
