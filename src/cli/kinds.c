#include "cli/kinds.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "cli/printout.h"
#include "model/linear/file.h"

static const struct tr_command_kind *const kinds[] = {&tr_linear_commands};

static int kind_of_h5(const char *path, const struct tr_options *o, struct tr_model *model,
                      const struct tr_command_kind **kind)
{
    TR_TRY(tr_model_open(path, o->plugin, model));
    if (model->class->abi) return TR_OK;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(kinds[i]->format, model->class->format) == 0) *kind = kinds[i];
    tr_model_close(model);
    return TR_OK;
}

int tr_command_kind_of(const char *path, const struct tr_options *o, struct tr_model *model,
                       const struct tr_command_kind **kind)
{
    enum tr_file_kind file;
    *kind = NULL;
    *model = (struct tr_model){0};
    TR_TRY(tr_file_kind(path, &file));
    if (file == TR_FILE_FOLDER) {
        char *inside;
        TR_TRY(tr_format(&inside, "%s/model.h5", path));
        bool there = access(inside, F_OK) == 0;
        free(inside);
        if (there) return kind_of_h5(path, o, model, kind);
    } else if (file == TR_FILE_MODEL_H5) {
        return kind_of_h5(path, o, model, kind);
    }
    *kind =
        &tr_linear_commands; /* the only kind with a text format, and the one that says what was expected */
    return TR_OK;
}

static int ask_into(struct tr_model *model, const struct tr_options *o, struct tr_ask *ask)
{
    struct tr_printout out;
    if (ask->command != TR_PREDICT) return tr_model_ask(model, ask);
    TR_TRY(tr_printout_open(o->output, &out));
    ask->out = out.file;
    ask->output = o->output ? o->output : "standard output";
    return tr_printout_close(&out, tr_model_ask(model, ask));
}

int tr_ask_model(struct tr_model *model, const struct tr_options *o, enum tr_asked command)
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
    int status = ask_into(model, o, &ask);
    tr_model_close(model);
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
