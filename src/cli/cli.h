/* cli/: the commands of the program. Each command is a file with its name.
 *
 * To add a command, write a file with a struct tr_cli_command and add its name to the list in meson.build. */
#ifndef TR_CLI_H
#define TR_CLI_H

#include "base/file.h"
#include "class/class.h"
#include "cli/commands.h" /* from the list in meson.build */
#include "job/arguments.h"
#include "trireme/context.h"
#include "trireme/base.h"

struct tr_cli_command {
    struct tr_syntax syntax; /* with the name of the command */
    const char *brief;       /* one line in the list of commands */
    const char *usage;       /* lines */
    /* Paragraphs of help before the options and behind them, each one line, and items «  term  text»: help breaks lines. */
    const char *about, *notes;
    const void *defaults; /* a struct of options; NULL: all zero */
    size_t options_size;
    /* Every rank of mpirun runs it, and it prints its errors; otherwise rank 0 runs it, and main() prints the errors. */
    bool on_ranks;
    int (*run)(struct tr_arguments *arguments, void *options); /* returns the exit code */
};

#define TR_COMMAND(name) extern const struct tr_cli_command tr_##name##_command;
TR_COMMANDS
#undef TR_COMMAND
extern const struct tr_cli_command *const tr_commands[];      /* in the order of help; ends with NULL */
const struct tr_cli_command *tr_command_of(const char *name); /* or NULL */

/* `trireme help WORD...`, with a pager on a terminal. Returns the exit code. */
int tr_help(int argc, char **argv);

/* Prints the error that tr_fail() has described as one line on stderr, and returns its status. For commands that run without ranks;
 * elsewhere tr_agree() prints. */
int tr_complain(int status);

/* Flushes standard output; `status`, or TR_ERR_IO if something could not be written. */
int tr_flush_output(int status);

/* ---- questions to a model: predict, evaluate and inspect (predict.c) ---- */

/* Each command sets the members for which it has options. */
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

/* Asks the model in the first word about the files in the others. tr: ranks that share the rows, which all call this function; NULL:
 * none. The status is not agreed. */
int tr_ask_model(enum tr_asked command, const struct tr_arguments *arguments,
                 const struct tr_ask_options *options, tr_context *tr);

/* Returns the flags of the class of that model, for struct tr_syntax. `options` starts with a struct tr_ask_options. */
const tr_flag *tr_plugin_flags(const struct tr_arguments *arguments, const void *options);

/* ---- drawings by gnuplot (plot.c), in characters on the terminal or in a file ---- */

struct tr_drawing {
    FILE *script; /* the caller writes it */
    char *text;
    size_t length;
    const char *command, *output; /* a name that ends in .svg, .png or .pdf; NULL: the terminal */
    struct tr_target target;
};

/* Opens a drawing of this number of diagrams below each other. Close it in any case. TR_ERR_USAGE. */
int tr_drawing_open(struct tr_drawing *d, const char *command, const char *output, int diagrams);

/* Runs gnuplot if status is TR_OK; the file appears when it is complete. */
int tr_drawing_close(struct tr_drawing *d, int status);

#endif
