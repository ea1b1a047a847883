/* Tables of the keys of job files, and conversion of their values from and to text: interface between the files of job/. */
#ifndef TR_JOB_SCHEMA_H
#define TR_JOB_SCHEMA_H

#include <stdio.h>

#include "job/job.h"
#include "trireme/model.h"

/* ---- keys (schema.c) ---- */

struct tr_job_section {
    const char *name;
    const char *help;
    const char *short_for; /* key that `section: value` sets, or NULL */
    bool named;            /* the keys are in subsections, whose names the job chooses */
};

/* Tables of keys: those of the engine for a job, a stage and a task; then one for each of the tr_model_class_count classes. */
enum tr_job_table { TR_TABLE_JOB, TR_TABLE_STAGE, TR_TABLE_TASK, TR_JOB_TABLES };
struct tr_job_keys {
    const tr_option *key;
    size_t n;
    const struct tr_model_class *class; /* NULL: the engine */
};
extern const struct tr_job_keys tr_job_tables[TR_JOB_TABLES];
struct tr_job_keys tr_job_table(size_t table);
enum { TR_JOB_SECTIONS = 12 };
extern const struct tr_job_section tr_job_sections[TR_JOB_SECTIONS];

size_t tr_job_options(const struct tr_model_class *class); /* returns the number of options of a class */
const struct tr_job_section *tr_job_find_section(const char *name); /* returns NULL if there is none */

/* tr_job_own_name() returns the last part of a full name: "key" of "stages.NAME.key". tr_job_in_section() returns whether a key is in
 * this section; section "": whether it is in no section. */
const char *tr_job_own_name(const char *name);
bool tr_job_in_section(const char *name, const char *section);

/* The full name of a key, "solve.rate" or "tasks.NAME.solve.rate", cut to a length that no key has. */
enum { TR_JOB_LONGEST_NAME = 128 };
struct tr_job_name {
    char text[TR_JOB_LONGEST_NAME];
};
struct tr_job_name tr_job_join(const char *prefix, const char *name);
struct tr_job_name tr_job_task_prefix(const struct tr_job_task *task); /* returns "tasks.NAME." */

/* Returns the n-th key of that name, since several classes may have one, and sets *class to its class (NULL: the engine). Returns
 * NULL if there are no more. */
const tr_option *tr_job_known_key(const char *name, size_t n, const struct tr_model_class **class);

/* Return the most similar name: tr_job_suggest_key() among the keys of the engine, of the built-in classes and of `class` (may be
 * NULL). They return an empty text or NULL if no name is similar. */
struct tr_job_name tr_job_suggest_key(const struct tr_model_class *class, const char *name);
const char *tr_job_suggest_section(const char *name);

/* ---- names of parameters in other programs (foreign.c) ---- */

/* Returns the key that means the same as a parameter of LightGBM, XGBoost, scikit-learn, LIBLINEAR or Vowpal Wabbit, or NULL. A
 * section before the name is ignored. Names of one letter are not considered. */
const char *tr_job_foreign_key(const char *name);

/* Prints the parameters of a program with the keys that mean the same. Returns false if there is no program of this name. */
bool tr_job_foreign_help(FILE *file, const char *tool);

/* Returns the names of the n programs. */
const char *const *tr_job_foreign_tools(size_t *n);
const char *tr_job_suggest(const char *name, const char *const *names, size_t n);

/* Names of stages and tasks: [a-z][a-z0-9-]*, up to this length. */
enum { TR_JOB_LONGEST_WORD = 32 };
bool tr_job_is_word(const char *text);

/* Returns whether a list of words separated by blanks contains a word. The list NULL contains all words. */
bool tr_job_among(const char *words, const char *word);

/* ---- values (value.c) ---- */

/* Parses a number with a unit, "90s" or "1.5 h", as seconds. */
bool tr_job_duration(const char *text, double *seconds);

/* Returns TR_ERR_CONFIG with the message «where: text». */
int tr_job_fail(const char *where, const char *format, ...) __attribute__((format(printf, 2, 3), cold));

/* Returns TR_ERR_CONFIG with «where: unknown <what> <name>: did you mean <suggestion>?». The suggestion may be NULL or empty. */
int tr_job_fail_unknown(const char *where, const char *what, const char *name, const char *suggestion);

/* Describe kind and range of a key: tr_job_expected() for errors, «a number > 0»; tr_job_kind_words() for help, «number > 0». */
struct tr_job_words {
    char text[200];
};
struct tr_job_words tr_job_expected(const tr_option *key);
struct tr_job_words tr_job_kind_words(const tr_option *key);
bool tr_job_is_list(const tr_option *key);

/* A slot: the member of a job, a stage or a task that has the value of a key. */
struct tr_job_slot {
    const tr_option *key;
    void *field;        /* address of the value; key->kind determines its type */
    const char **where; /* address of the place of its setting */
};

/* Set the value of a slot. name: full name for messages, "tasks.one.after". */
int tr_job_set(const struct tr_job_slot *slot, const struct tr_job_setting *setting, const char *name);
int tr_job_set_default(const struct tr_job_slot *slot, const char *text);
void tr_job_free_value(const struct tr_job_slot *slot);

/* tr_job_put_text() and tr_job_put_value() write a text or a value as a job file has it, or as JSON. tr_job_value_text() returns the
 * former in *text (to be freed), or false if there is no memory. tr_job_same() compares two values. */
void tr_job_put_text(FILE *file, const char *text, bool json);
void tr_job_put_value(FILE *file, const struct tr_job_slot *slot, bool json);
bool tr_job_value_text(const struct tr_job_slot *slot, char **text);
bool tr_job_same(const struct tr_job_slot *a, const struct tr_job_slot *b);

/* ---- jobs, stages and tasks (job.c) ---- */

/* The values of all keys of one table. */
struct tr_job_values {
    enum tr_job_table table;
    size_t n;           /* number of keys, with the options of the class */
    void *base;         /* the struct tr_job, tr_job_stage or tr_job_task that has them */
    const char **where; /* places of their settings */
};
struct tr_job_values tr_job_values(const struct tr_job *job);
struct tr_job_values tr_job_stage_values(const struct tr_job_stage *stage);
struct tr_job_values tr_job_task_values(const struct tr_job_task *task);
struct tr_job_slot tr_job_slot(const struct tr_job_values *values, size_t i);

/* tr_job_append() appends a copy of a text to a list; tr_job_list_free() frees all items. */
int tr_job_append(struct tr_job_list *list, const char *text);
void tr_job_list_free(struct tr_job_list *list);

/* tr_job_new() creates an empty job. tr_job_add_stage() adds a stage of a new name with default values; line: its line in the job
 * file, or 0 for the command line. */
int tr_job_new(const char *path, struct tr_job **job);
int tr_job_add_stage(struct tr_job *job, const char *name, size_t line);
void tr_job_free_stages(struct tr_job_stage *stage, size_t n);
const char *tr_job_suggest_task(const struct tr_job *job, const char *name); /* NULL: no name is similar */

#define TR_COMMAND_LINE "command line" /* place of settings in messages */

/* Adds the settings, stages and tasks of a YAML text to an empty job. */
int tr_job_read_yaml(struct tr_job *job, const char *text, size_t length);

/* Reads the items of «[a, b]» or «{a: b}» with the YAML parser. Free them in any case. */
int tr_job_read_list(const char *where, const char *name, const char *text, struct tr_job_setting *items);

/* Find a slot: tr_job_find() by a full name in a job; tr_job_find_in() by a key in one table; tr_job_find_of() by a key in a task
 * (may be NULL) or else in its job. Return false if there is none. */
bool tr_job_find(const struct tr_job *job, const char *name, struct tr_job_slot *slot);
bool tr_job_find_in(struct tr_job_values values, const char *key, struct tr_job_slot *slot);
bool tr_job_find_of(const struct tr_job *job, const struct tr_job_task *task, const char *key,
                    struct tr_job_slot *slot);

/* Adds the setting «key=value» of the command line. */
int tr_job_add_override(struct tr_job *job, const char *argument);

/* ---- values of a whole job (resolve.c) ---- */

const tr_method *tr_job_chosen_method(const struct tr_job *job);

/* tr_job_uses() returns whether class and method of the job use a key. tr_job_is_own() returns whether `where` (may be NULL) is the
 * place of a setting of this job, not of a setting that a task inherits. */
bool tr_job_uses(const struct tr_job *job, const tr_option *key);
bool tr_job_is_own(const struct tr_job *job, const char *where);

#endif
