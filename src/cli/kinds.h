/* What predict, evaluate and inspect do with a model depends on its kind: a file here for each. */
#ifndef TR_CLI_KINDS_H
#define TR_CLI_KINDS_H

#include "cli/options.h"

/* The model is word[0] of the options, or path; the data the words behind it. */
struct tr_command_kind {
    const char *format;                                    /* of model.h5 */
    const char *what;                                      /* "a linear model", for messages */
    unsigned predicts_with, evaluates_with, inspects_with; /* options that mean something */
    int (*predict)(const struct tr_options *options);
    int (*evaluate)(const struct tr_options *options);
    int (*inspect)(const char *path, const struct tr_options *options);
};

extern const struct tr_command_kind tr_linear_commands;

/* Which kind of model a file is, or the one in a folder: *kind is NULL where it is of a class with functions of its own, and
 * then the model is open, to be asked. TR_ERR_NO_INPUT, TR_ERR_DATA. */
int tr_command_kind_of(const char *path, const struct tr_options *options, struct tr_model *model,
                       const struct tr_command_kind **kind);

/* Does what the options ask, and closes the model. */
int tr_ask_model(struct tr_model *model, const struct tr_options *options, enum tr_asked command);

/* One line of inspect: a name, padded, and what is printed. */
void tr_show(const char *name, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
