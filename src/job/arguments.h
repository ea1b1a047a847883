/* Command lines: options, settings of a job («section.key=value»), flags, and other words. A flag is an option that a class of models adds.
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
    TR_ARG_SETTING, /* sets no member, but adds the setting key=value */
    TR_ARG_KINDS
};

struct tr_argument {
    const char *name; /* "-o", "--top"; if it has no dash, as "rows", users write rows=value */
    enum tr_argument_kind kind;
    size_t offset;     /* offset of the member in the struct of options */
    const char *value; /* name of the value in help and errors: "FILE"; NULL: derived from kind and words */
    const char *help;  /* NULL: this is another name of the option before it */
    long least, most;  /* TR_ARG_NUMBER: the range */
    const char *const *words; /* TR_ARG_CHOICE: the possible values; ends with NULL */
    const char *key;          /* TR_ARG_SETTING: the key */
};

/* A variant of a command has its own options. The first word behind the command selects it. */
struct tr_variant {
    const char *name, *help;
    const struct tr_argument *options; /* the last element has the name NULL */
};

/* A flag on the command line. value: NULL if the flag has no value. */
struct tr_given {
    const char *name, *value;
};

struct tr_arguments {
    char **word; /* the words that are no options and no settings */
    size_t words;
    char **setting; /* key=value */
    int settings;
    struct tr_given *flag;
    size_t flags;
    size_t variant; /* index of the selected variant */
    char **rest;    /* the words behind --, if syntax->divides; otherwise NULL */
    /* private */
    char **made; /* settings that options with TR_ARG_SETTING have made */
    size_t mades, made_capacity;
};

struct tr_syntax {
    const char *command;               /* name in messages; NULL: this is a program of the user */
    const char *expected;              /* description of the words in messages: "FILE..." */
    size_t least, most;                /* minimum and maximum number of words; most = 0: any number */
    const struct tr_argument *options; /* the last element has the name NULL; may be NULL */
    const struct tr_argument *shared;  /* more options, which set members of the same struct; may be NULL */
    const struct tr_variant *variants; /* the last element has the name NULL; may be NULL */
    /* The keys or sections ("data.") of accepted settings; "" stands for all keys; ends with NULL. NULL: no settings. */
    const char *const *keys;
    bool job;       /* the first word is a job file, and all other words are settings */
    bool divides;   /* reading stops at -- */
    unsigned asked; /* enum tr_asked: flags for this command are accepted; 0: no flags */
    /* Returns more flags: those of a class that the words read so far determine, such as a plugin. NULL: there are none. */
    const tr_flag *(*more_flags)(const struct tr_arguments *arguments, const void *options);
    const char *hint; /* for unknown options; NULL: "see trireme help COMMAND" */
};

/* Reads the words behind the command. Sets members of the struct `options`, which has the defaults, and adds to `arguments`, which
 * is zero before the first call. If an option is repeated, its last value counts. Free `arguments` in any case. TR_ERR_USAGE. */
int tr_arguments_read(const struct tr_syntax *syntax, int argc, char **argv, void *options,
                      struct tr_arguments *arguments);
void tr_arguments_free(struct tr_arguments *arguments);

/* Writes the words and then the settings to argv[1] and the next elements, and NULL behind them. Returns the new argc. */
int tr_arguments_join(const struct tr_arguments *arguments, char **argv);

/* Returns option number i of the command and of the variant (may be NULL); NULL if there are no more. */
const struct tr_argument *tr_argument_at(const struct tr_syntax *syntax, const struct tr_variant *variant,
                                         size_t i);

/* Returns flag number i of the built-in classes for the command, and sets *class to the class that has it. NULL: no more. */
const tr_flag *tr_argument_flag(const struct tr_syntax *syntax, size_t i, const tr_model_class **class);

/* tr_argument_value() returns the value of an option as help shows it: "N" or "time|epoch". tr_argument_default() returns the
 * default that help shows, or an empty text. */
struct tr_argument_text {
    char text[80];
};
struct tr_argument_text tr_argument_value(const struct tr_argument *option);
struct tr_argument_text tr_argument_default(const struct tr_argument *option, const void *defaults);

/* Returns whether the command takes settings of this key. */
bool tr_argument_takes_key(const struct tr_syntax *syntax, const char *key);

#endif
