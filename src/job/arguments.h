/* Command lines: options, settings of a job, and other words.
 *
 * Each command has one table of its options. Reading, help, completion and suggestions are derived from the table. */
#ifndef TR_JOB_ARGUMENTS_H
#define TR_JOB_ARGUMENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "trireme/model.h"

/* The type of an option's value and of the member that it sets. */
enum tr_argument_kind {
    TR_ARG_FLAG,    /* bool; no value */
    TR_ARG_TEXT,    /* const char *, which points into argv */
    TR_ARG_NUMBER,  /* long from least to most */
    TR_ARG_SECONDS, /* double: 500ms, 10s or 1min; a bare number is in seconds */
    TR_ARG_COUNT,   /* uint64_t up to 2^53: 500000, 500k, 1.5M or 1e6 */
    TR_ARG_COUNT32, /* uint32_t, as TR_ARG_COUNT */
    TR_ARG_REAL,    /* double */
    TR_ARG_CHOICE,  /* int: the index of one of the words */
    TR_ARG_SETTING, /* no member: adds the setting key=value */
    TR_ARG_KINDS
};

struct tr_argument {
    const char *name; /* "-o", "--top"; without a dash, as "rows", it is written rows=value */
    enum tr_argument_kind kind;
    size_t offset;     /* of the member in the struct of options */
    const char *value; /* the value in help and errors: "FILE"; NULL: derived from kind, words and default */
    const char *help;  /* NULL: another name of the option before it */
    long least, most;  /* of TR_ARG_NUMBER */
    const char *const *words; /* of TR_ARG_CHOICE, ends with NULL */
    const char *key;          /* of TR_ARG_SETTING */
};

/* The first word behind a command with variants selects one of them and its options. */
struct tr_variant {
    const char *name, *help;
    const struct tr_argument *options; /* ends with a name of NULL */
};

/* A flag of a class of models on the command line; value NULL: it has none. */
struct tr_given {
    const char *name, *value;
};

struct tr_arguments {
    char **word; /* not options, not settings */
    size_t words;
    char **setting; /* key=value, for a job */
    int settings;
    struct tr_given *flag; /* of classes of models */
    size_t flags;
    size_t variant; /* index */
    char **rest;    /* the words behind --, if syntax->divides; else NULL */
    /* private */
    char **made; /* settings that options made */
    size_t mades, made_capacity;
};

struct tr_syntax {
    const char *command;               /* in messages; NULL: a program of the user */
    const char *expected;              /* the words, in messages: "FILE..." */
    size_t least, most;                /* number of words; most 0: any number */
    const struct tr_argument *options; /* ends with a name of NULL; may be NULL */
    const struct tr_argument *shared;  /* more options, of the same struct; may be NULL */
    const struct tr_variant *variants; /* ends with a name of NULL; may be NULL */
    /* The keys or sections ("data.") of settings, ends with NULL; "" stands for all keys; NULL: no settings. */
    const char *const *keys;
    bool job;       /* the first word is a job file; all others are settings, of any form */
    bool divides;   /* reading stops at -- */
    unsigned asked; /* enum tr_asked: the classes' flags of this command are options too; 0: none */
    /* The flags of a class that the words read so far name, as of a plugin; NULL: none. */
    const tr_flag *(*more_flags)(const struct tr_arguments *arguments, const void *options);
    const char *hint; /* for unknown options; NULL: "see trireme help COMMAND" */
};

/* Reads the words behind the command into the struct of options, which has its defaults, and into `arguments`, which is zero
 * or continues an earlier call. The last value of an option counts. To be freed in any case. TR_ERR_USAGE. */
int tr_arguments_read(const struct tr_syntax *syntax, int argc, char **argv, void *options,
                      struct tr_arguments *arguments);
void tr_arguments_free(struct tr_arguments *arguments);

/* Writes the words and then the settings to argv[1] and the following elements, which must have room for them and a final NULL. Returns the new argc. */
int tr_arguments_join(const struct tr_arguments *arguments, char **argv);

/* The option number i of the command and of the variant (NULL: of none); NULL if there are no more. */
const struct tr_argument *tr_argument_at(const struct tr_syntax *syntax, const struct tr_variant *variant,
                                         size_t i);

/* Flag number i of the built-in classes for the command; NULL if there are no more. *class: whose flag it is. */
const tr_flag *tr_argument_flag(const struct tr_syntax *syntax, size_t i, const tr_model_class **class);

/* Writes the value of an option as help shows it, "N" or "time|epoch"; then the default, if there is one that help should
 * name, else an empty text. */
struct tr_argument_text {
    char text[80];
};
struct tr_argument_text tr_argument_value(const struct tr_argument *option);
struct tr_argument_text tr_argument_default(const struct tr_argument *option, const void *defaults);

/* Whether the command takes settings of this key. */
bool tr_argument_takes_key(const struct tr_syntax *syntax, const char *key);

#endif
