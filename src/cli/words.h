/* The words behind predict, evaluate and inspect: one reader for all of them. Besides those of the commands, a word that
 * begins with -- is a flag of some class of models (trireme/model.h). */
#ifndef TR_CLI_WORDS_H
#define TR_CLI_WORDS_H

#include "class/class.h"

struct tr_words {
    enum tr_asked command;
    const char *usage;
    char **word; /* what is no flag: files */
    size_t words;
    struct tr_given *flag; /* of classes */
    size_t flags;
    const char *output, *format, *plugin, *partition, *id;
    long servers; /* 0: not given */
    bool json, plot, helps;
    char **setting; /* table.key=value */
    int settings;
};

/* At least so many words must be no flags, unless --user or --help is given. Free with tr_words_free(). TR_ERR_USAGE. */
int tr_words_read(int argc, char **argv, enum tr_asked command, const char *usage, size_t least,
                  struct tr_words *words);
void tr_words_free(struct tr_words *words);

/* Lists the flags that classes have for this command. */
void tr_words_help(enum tr_asked command);

/* Whether --help or -h stands among the words. */
bool tr_wants_help(int argc, char **argv);

/* Does with the model in this file what the words say; tr: ranks that share the rows, which all call it, NULL: none. To be
 * agreed on. */
int tr_ask_model(const char *path, const struct tr_words *words, tr_context *tr);

/* One line of inspect: a name, padded, and what is printed. */
void tr_show(const char *name, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
