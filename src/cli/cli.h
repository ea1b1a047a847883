/* cli/ — the commands of the program: a file each, named for its command.
 *
 * Adding a command: a file with a struct tr_cli_command, and its name in the list in meson.build. */
#ifndef TR_CLI_H
#define TR_CLI_H

#include "cli/commands.h" /* from the list in meson.build */
#include "job/arguments.h"
#include "trireme/context.h"
#include "trireme/status.h"

struct tr_cli_command {
    struct tr_syntax syntax; /* with the name of the command */
    const char *brief;       /* one line in the list of commands */
    const char *usage;       /* lines */
    /* Paragraphs of help before the options and behind them, each one line, and items «  term  text»: help breaks lines. */
    const char *about, *notes;
    const void *defaults; /* a struct of options; NULL: all zero */
    size_t options_size;
    bool
        on_ranks; /* every rank of mpirun runs it, and it prints its errors; else only rank 0 runs it, and main() prints them */
    int (*run)(struct tr_arguments *arguments, void *options); /* returns the exit code */
};

#define TR_COMMAND(name) extern const struct tr_cli_command tr_##name##_command;
TR_COMMANDS
#undef TR_COMMAND
extern const struct tr_cli_command *const tr_commands[];      /* in the order of help; ends with NULL */
const struct tr_cli_command *tr_command_of(const char *name); /* or NULL */

/* `trireme help WORD…`, with a pager on a terminal. Returns the exit code. */
int tr_help(int argc, char **argv);

/* Prints the error that tr_fail() has described as one line on stderr, and returns its status. For commands
 * that run without ranks; elsewhere tr_agree() prints. */
int tr_complain(int status);

#endif
