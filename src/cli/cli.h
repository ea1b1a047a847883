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
    struct tr_syntax syntax; /* name and options of the command */
    const char *brief;       /* one line for the list of commands */
    const char *usage;       /* one or more lines, for example "trireme inspect FILE [OPTION...]" */
    /* Text of help before and after the options. Each line is a paragraph, or an item «  term  text»; help wraps it. */
    const char *about, *notes;
    const void *defaults; /* a struct of options with the defaults; NULL: all members are zero */
    size_t options_size;  /* size of the struct of options */
    /* true: every rank runs the command, and it prints its errors. false: only rank 0 runs it, and main() prints errors. */
    bool on_ranks;
    int (*run)(struct tr_arguments *arguments, void *options); /* returns the exit code */
};

#define TR_COMMAND(name) extern const struct tr_cli_command tr_##name##_command;
TR_COMMANDS
#undef TR_COMMAND
extern const struct tr_cli_command *const tr_commands[];      /* in the order of help; ends with NULL */
const struct tr_cli_command *tr_command_of(const char *name); /* NULL if there is no such command */

/* Prints the help of `trireme help WORD...`, with a pager on a terminal. Returns the exit code. */
int tr_help(int argc, char **argv);

/* Prints the error text of tr_fail() as one line on stderr, unless status is TR_OK, and returns status. For commands that run
 * outside MPI; inside, tr_agree() prints errors. */
int tr_complain(int status);

/* Flushes standard output. Returns TR_ERR_IO if status is TR_OK but writing failed, otherwise status. */
int tr_flush_output(int status);

/* ---- predict, evaluate and inspect (predict.c) ---- */

/* Options of the three commands. Each command sets only the members for which it has options. */
struct tr_ask_options {
    const char *output, *format, *plugin, *id, *offset, *on_error;
    bool json, plot, strict;
};

/* The option --plugin, which all three commands have. */
#define TR_ASK_PLUGIN                                                                                        \
    {                                                                                                        \
        "--plugin", TR_ARG_TEXT, offsetof(struct tr_ask_options, plugin),                                    \
            .value = "FILE",                                                                                 \
            .help = "the shared object of the model's class: a model never loads one by itself"              \
    }

/* Runs the command with the model that the first word names, on the data files in the other words. If tr is not NULL, its ranks
 * divide the rows among them, and all must call it; the returned status may differ between ranks. */
int tr_ask_model(enum tr_asked command, const struct tr_arguments *arguments,
                 const struct tr_ask_options *options, tr_context *tr);

/* Returns the flags of the model class of the model that the first word names. `options` starts with a struct tr_ask_options. */
const tr_flag *tr_plugin_flags(const struct tr_arguments *arguments, const void *options);

/* ---- drawings by gnuplot (plot.c), in characters on the terminal or in a file ---- */

struct tr_drawing {
    FILE *script;        /* the caller writes commands of gnuplot to this stream */
    char *text;          /* the commands that were written */
    size_t length;       /* length of text */
    const char *command; /* name of the command of trireme, for error messages */
    const char *output;  /* file name that ends in .svg, .png or .pdf; NULL: the terminal */
    struct tr_target target;
};

/* Opens a drawing of this number of diagrams below each other. Returns TR_ERR_USAGE if the name does not end in one of these ways.
 * Call tr_drawing_close() also after a failure. */
int tr_drawing_open(struct tr_drawing *d, const char *command, const char *output, int diagrams);

/* Runs gnuplot if status is TR_OK, and renames the output file to its name when it is complete. */
int tr_drawing_close(struct tr_drawing *d, int status);

/* ---- training: one job (train.c) ---- */

/* Runs the job of the context: reads the data, trains, and writes the results to the output folder. Resumes from a checkpoint in
 * this folder. All ranks must call it.
 *
 * @param [in]  class      model class of the job, or tr_average_class
 * @param [in]  model      NULL, or a model to pass to open() of the class; this function closes and frees it
 * @param [out] objective  on rank 0: the last objective, or NaN if there was no evaluation
 * @return the agreed status; rank 0 has printed the error. TR_ERR_STOPPED: the run stopped, and has written only a checkpoint
 */
int tr_train_here(tr_context *tr, const tr_model_class *class, void *model,
                  const struct tr_run_options *options, double *objective);

/* Does the same as `trireme train` with these words and settings. Returns the exit code. */
int tr_train(const struct tr_arguments *arguments, const struct tr_run_options *options);

extern const char *const tr_all_keys[]; /* value of tr_syntax.keys for commands that accept all job keys */

/* ---- jobs of several tasks (tasks.c) ----
 *
 * Rank 0 schedules the tasks (stage/scheduler.h). The ranks of a task form a team: a separate context, in which the task runs like
 * a job without tasks. Rank 0 may also be a member of a team. While its team waits, it handles reports of other teams.
 *
 * If a run has not ended, it is resumed: tasks that are done are not run again. A task runs on tasks.NAME.ranks ranks, or on all
 * ranks if there are fewer; 0 means all ranks that are free when the task starts. If a task fails, the tasks that depend on it are
 * not run; all other tasks are run.
 */

/* Runs the tasks of the context's job (tr_context_read()). All ranks must call it. Returns the status of the first task that failed
 * on all ranks; rank 0 has printed it. */
int tr_tasks_run(tr_context *world, const struct tr_run_options *options);

/* ---- tasks with `run: average` (average.c) ----
 *
 * Such a task evaluates the mean of the predictions of several models, and each model alone, on data.test. The models have the same
 * class, whose function tr_model_class.mean permits the mean. Each worker has some of the rows and computes the predictions of all
 * models for them; rank 0 evaluates. Values in columns that a model does not have are ignored.
 */
struct tr_average;
extern const tr_model_class tr_average_class;

/* Checks whether the models of the task may be averaged, before any task runs. Returns TR_ERR_CONFIG otherwise. */
int tr_average_check(const tr_job *job, const struct tr_job_task *task);

/* Creates the model for tr_train_here(), which closes and frees it. All ranks of the team must call it. */
int tr_average_new(const tr_job *job, const struct tr_job_task *task, struct tr_average **average);

/* For tr_services_summary(): writes the member `models` of summary.json, an object for each model. */
void tr_average_members(FILE *file, void *average);

/* ---- before training (explain.c) ---- */

/* Prints an estimate of the memory that the job needs. If data.storage is auto, it sets tr->storage: whether rows are stored on
 * disk. All ranks must call it. Returns TR_ERR_CONFIG if there is not enough memory. */
int tr_say_estimate(tr_context *tr);

/* train --explain prints all decisions before training starts: rank 0 prints lines «explain: ...», even with report.progress=no. */

/* Sets the parameters of MPI in the environment and prints them. Call it before MPI starts, which adds other variables. */
void tr_explain_settings(void);

/* Prints the roles of all ranks and their hosts. All ranks must call it. */
int tr_explain_layout(tr_context *tr);

/* Prints which servers store each table, and how views are transferred. tr_observers() calls it when a stage is ready. */
int tr_explain_stage(void *tr, const tr_stage *stage);

#endif
