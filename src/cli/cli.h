/* cli/: the commands of the program. Each command is a file with its name.
 *
 * To add a command, write a file with a struct tr_cli_command and add its name to the list in meson.build. */
#ifndef TR_CLI_H
#define TR_CLI_H

#include "base/file.h"
#include "class/class.h"
#include "cli/commands.h" /* from the list in meson.build */
#include "job/arguments.h"
#include "program/program.h"
#include "stage/stage.h"
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

/* ---- training: one job (train.c) ---- */

/* Runs the job of the context: reads the data, trains, and writes the results to its folder; resumes from the checkpoint of a run that
 * stopped there. All ranks; the status is agreed, and rank 0 has printed the error or that the run stopped (TR_ERR_STOPPED: only a
 * checkpoint has been written).
 *
 * @param [in]  class      class of the job's model, or another one that is trained in its place
 * @param [in]  model      NULL, or a model for open() of the class; it is closed and freed
 * @param [out] objective  on rank 0: the last objective, or NaN
 */
int tr_train_here(tr_context *tr, const tr_model_class *class, void *model,
                  const struct tr_run_options *options, double *objective);

/* `trireme train`, for commands that train. Words and settings are those of train. Returns the exit code. */
int tr_train(const struct tr_arguments *arguments, const struct tr_run_options *options);

extern const char *const tr_all_keys[]; /* of struct tr_syntax */

/* ---- jobs of several tasks (tasks.c) ----
 *
 * Rank 0 schedules the tasks (stage/scheduler.h). The ranks of a task form a team: a context of their own, in which the task runs as
 * a plain job runs on all ranks. Rank 0 can be a member of teams as well; it handles reports of other teams while its own team waits.
 *
 * A run that has not ended is resumed: tasks that are done are not run again. A task runs on tasks.NAME.ranks ranks, or on all ranks
 * if there are fewer; 0 means all ranks that are free when it starts. If a task fails, tasks after it are not run; all others are.
 */

/* Runs the tasks of the context's job (tr_context_read()). All ranks; all get the status of the first task that failed, and rank 0 has
 * printed it. */
int tr_tasks_run(tr_context *world, const struct tr_run_options *options);

/* ---- tasks that run `average` (average.c) ----
 *
 * They evaluate the mean of the predictions of several models, and each model alone, on data.test. The models are of one class, which
 * defines the mean of their predictions (tr_model_class.mean). Each worker takes whole rows and asks all models; rank 0 evaluates.
 * Values in columns that a model does not have are ignored.
 */
struct tr_average;
extern const tr_model_class tr_average_class;

/* Checks before anything runs that the mean is defined. TR_ERR_CONFIG. */
int tr_average_check(const tr_job *job, const struct tr_job_task *task);

/* Creates the model for tr_train_here(), which closes and frees it. All ranks of the team. */
int tr_average_new(const tr_job *job, const struct tr_job_task *task, struct tr_average **average);

/* Writes the member `models` of summary.json, for tr_services_summary(): an object for each model, with task, model, type and figures. */
void tr_average_members(FILE *file, void *average);

/* ---- before training (explain.c) ---- */

/* Prints an estimate of the memory that the job needs, and decides whether its rows are stored on disk (tr->storage) if the job leaves
 * that open. All ranks. TR_ERR_CONFIG: there is not enough memory. */
int tr_say_estimate(tr_context *tr);

/* train --explain prints all decisions before training starts: lines «explain: ...» on stderr of rank 0, even with report.progress=no. */

/* Makes the settings of MPI and prints them. Call it before MPI starts, which adds its own. */
void tr_explain_settings(void);

/* Prints the roles of all ranks and their hosts. All ranks. */
int tr_explain_layout(tr_context *tr);

/* Prints the location of tables and the transfer of views, when a stage is ready: for tr_observers(). */
int tr_explain_stage(void *tr, const tr_stage *stage);

#endif
