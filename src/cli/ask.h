/* Questions to a model, which predict, evaluate and inspect share. */
#ifndef TR_CLI_ASK_H
#define TR_CLI_ASK_H

#include "class/class.h"
#include "job/arguments.h"

/* Each command sets those for which it has options. */
struct tr_ask_options {
    const char *output, *format, *plugin, *id;
    bool json, plot;
};

/* The option of all three commands. */
#define TR_ASK_PLUGIN                                                                                        \
    {                                                                                                        \
        "--plugin", TR_ARG_TEXT, offsetof(struct tr_ask_options, plugin),                                    \
            .value = "FILE",                                                                                 \
            .help = "the shared object of the model's class: a model never loads one by itself"              \
    }

/* Asks the model in the first word about the files in the others; tr: ranks that share the rows, which all call it, NULL:
 * none. To be agreed on. */
int tr_ask_model(enum tr_asked command, const struct tr_arguments *arguments,
                 const struct tr_ask_options *options, tr_context *tr);

/* The flags of the class of that model, for struct tr_syntax. `options` begins with a struct tr_ask_options. */
const tr_flag *tr_plugin_flags(const struct tr_arguments *arguments, const void *options);

#endif
