/* cli/ — the commands of the program: one file each, named for its command. */
#ifndef TR_CLI_H
#define TR_CLI_H

#include "trireme/context.h"
#include "trireme/status.h"

/* A command gets the words behind its name and returns the exit code. */
typedef int tr_command_fn(int argc, char **argv);

tr_command_fn tr_train_command, tr_sweep_command, tr_run_command, tr_predict_command, tr_evaluate_command,
    tr_inspect_command, tr_generate_command, tr_convert_command, tr_count_command, tr_watch_command,
    tr_plot_command, tr_help_command, tr_complete_command,
    tr_say_help; /* the same as tr_help_command, without a pager */

/* Prints the error that tr_fail() has described as one line on stderr, and returns its status. For commands
 * that run without ranks; elsewhere tr_agree() prints. */
int tr_complain(int status);

/* The one of the words (ended by NULL) that was probably meant, or NULL. */
const char *tr_suggest(const char *written, const char *const words[]);

#endif
