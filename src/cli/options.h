/* What may stand behind predict, evaluate and inspect: one reader for all of them, and one list of options. Which of
 * these a command knows is in its usage; which of those a model has a use for, in its kind (kinds.h). */
#ifndef TR_CLI_OPTIONS_H
#define TR_CLI_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>

#include "class/class.h"

enum {
    TR_OPTION_OUTPUT = 1,
    TR_OPTION_PROBABILITY = 2,
    TR_OPTION_MARGIN = 4,
    TR_OPTION_DISTANCE = 8,
    TR_OPTION_JSON = 16,
    TR_OPTION_TOP = 32,
    TR_OPTION_USER = 64,
    TR_OPTION_VOCABULARY = 128,
    TR_OPTION_FORMAT = 256,
    TR_OPTION_SERVERS = 512,
    TR_OPTION_PARTITION = 1024,
    TR_OPTION_SETTING = 2048, /* section.key=value */
    TR_OPTION_PLUGIN = 4096
};

struct tr_options {
    const char *command, *usage;
    unsigned given; /* a set of the above */
    char **word;    /* what is no option: files */
    size_t words;
    const char *output, *user, *vocabulary, *format, *partition, *plugin;
    struct tr_given *flag; /* those that a class of models may know */
    size_t flags;
    long top, servers;
    char **setting;
    int settings;
};

/* Reads the words behind a command that knows some options; at least `least` words must be no options. Free with
 * tr_options_free(). TR_ERR_USAGE. */
int tr_options_parse(int argc, char **argv, const char *command, const char *usage, unsigned known,
                     size_t least, struct tr_options *options);
void tr_options_free(struct tr_options *options);

static inline bool tr_given(const struct tr_options *options, unsigned option)
{
    return (options->given & option) != 0;
}

/* TR_ERR_USAGE where an option is given that is not among these: «predict: --margin is not for topics». */
int tr_options_check(const struct tr_options *options, unsigned meaningful, const char *what);

/* Whether --help or -h stands among the words. */
bool tr_wants_help(int argc, char **argv);

#endif
