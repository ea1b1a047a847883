/* What predict, evaluate and inspect share. */
#ifndef TR_CLI_KINDS_H
#define TR_CLI_KINDS_H

#include "cli/options.h"

/* Does with a model, which is a file or in a folder, what the options ask. TR_ERR_NO_INPUT, TR_ERR_DATA. */
int tr_ask_model(const char *path, const struct tr_options *options, enum tr_asked command);

/* One line of inspect: a name, padded, and what is printed. */
void tr_show(const char *name, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
