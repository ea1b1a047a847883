/* Tables of keys, and conversion of values from and to text: interface between the files of job/. */
#ifndef TR_JOB_SCHEMA_H
#define TR_JOB_SCHEMA_H

#include "job/job.h"
#include "trireme/model.h"

/* ---- keys (schema.c) ---- */

struct tr_job_section {
    const char *name;
    const char *help;
    const char *short_for; /* key that `section: value` sets, or NULL */
    bool named; /* the section has subsections with names that the job chooses, and the keys are in these */
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

size_t tr_job_options(const struct tr_model_class *class);          /* number of options */
const struct tr_job_section *tr_job_find_section(const char *name); /* or NULL */

/* "key" of "stages.NAME.key"; whether a key is in a section ("": in none) */
const char *tr_job_own_name(const char *name);
bool tr_job_in_section(const char *name, const char *section);

/* A full name, truncated to this length, which no key reaches. */
enum { TR_JOB_LONGEST_NAME = 128 };
struct tr_job_name {
    char text[TR_JOB_LONGEST_NAME];
};
struct tr_job_name tr_job_join(const char *prefix, const char *name);
struct tr_job_name tr_job_task_prefix(const struct tr_job_task *task); /* "tasks.NAME." */

/* Returns the n-th key of that name, because several classes may define one each, and its class (NULL: the engine); NULL if
 * there are no more. */
const tr_option *tr_job_known_key(const char *name, size_t n, const struct tr_model_class **class);

/* Return the name that was probably meant, among keys of the engine, of the built-in classes and of `class` (may be NULL);
 * empty or NULL if there is no similar one. */
struct tr_job_name tr_job_suggest_key(const struct tr_model_class *class, const char *name);
const char *tr_job_suggest_section(const char *name);
const char *tr_job_suggest(const char *name, const char *const *names, size_t n);

/* Names of stages and tasks: [a-z][a-z0-9-]*, up to this length. */
enum { TR_JOB_LONGEST_WORD = 32 };
bool tr_job_is_word(const char *text);

/* Returns whether a list of words separated by blanks contains a word; NULL contains all. */
bool tr_job_among(const char *words, const char *word);

/* ---- values (value.c) ---- */

/* Parses a number with a unit, "90s" or "1.5 h", as seconds. */
bool tr_job_duration(const char *text, double *seconds);

/* Fails with TR_ERR_CONFIG and «where: text». */
int tr_job_fail(const char *where, const char *format, ...) __attribute__((format(printf, 2, 3), cold));

/* Fails with «unknown key x: did you mean y?». The suggestion may be NULL or empty. */
int tr_job_fail_unknown(const char *where, const char *what, const char *name, const char *suggestion);

/* Describe kind and range of a key: «a number > 0» for errors, «number > 0» for help. */
struct tr_job_words {
    char text[200];
};
struct tr_job_words tr_job_expected(const tr_option *key);
struct tr_job_words tr_job_kind_words(const tr_option *key);
bool tr_job_is_list(const tr_option *key);

/* One value of a job, a stage or a task. */
struct tr_job_slot {
    const tr_option *key;
    void *field; /* uint64_t, double or another type, by kind */
    const char **where;
};

/* Set a value. name: full name for messages, "tasks.one.after". */
int tr_job_set(const struct tr_job_slot *slot, const struct tr_job_setting *setting, const char *name);
int tr_job_set_default(const struct tr_job_slot *slot, const char *text);
void tr_job_free_value(const struct tr_job_slot *slot);

/* Write values in the form of a job file, or of JSON. *text must be freed. */
void tr_job_put_text(FILE *file, const char *text, bool json);
void tr_job_put_value(FILE *file, const struct tr_job_slot *slot, bool json);
bool tr_job_value_text(const struct tr_job_slot *slot, char **text);
bool tr_job_same(const struct tr_job_slot *a, const struct tr_job_slot *b);

/* Returns the word that a number or choice stands for, or NULL if it is a number. */
const char *tr_job_word(const struct tr_job_slot *slot);

/* ---- jobs, stages and tasks (job.c) ---- */

/* All values of one table. */
struct tr_job_values {
    enum tr_job_table table;
    size_t n;
    void *base;
    const char **where;
};
struct tr_job_values tr_job_values(const struct tr_job *job);
struct tr_job_values tr_job_stage_values(const struct tr_job_stage *stage);
struct tr_job_values tr_job_task_values(const struct tr_job_task *task);
struct tr_job_slot tr_job_slot(const struct tr_job_values *values, size_t i);

/* Append a copy of a text to a list; free the items of a list. */
int tr_job_append(struct tr_job_list *list, const char *text);
void tr_job_list_free(struct tr_job_list *list);

/* Create an empty job; add a stage with default values under a new name. line 0: the command line. */
int tr_job_new(const char *path, struct tr_job **job);
int tr_job_add_stage(struct tr_job *job, const char *name, size_t line);
void tr_job_free_stages(struct tr_job_stage *stage, size_t n);
const char *tr_job_suggest_task(const struct tr_job *job, const char *name); /* or NULL */

#define TR_COMMAND_LINE "command line" /* place of settings in messages */

/* Adds the settings, stages and tasks of a YAML text to an empty job. */
int tr_job_read_yaml(struct tr_job *job, const char *text, size_t length);

/* Reads the items of «[a, b]» or «{a: b}» as a job file has them. Free them in any case. */
int tr_job_read_list(const char *where, const char *name, const char *text, struct tr_job_setting *items);

/* Find the value of a name in a job, in the values of one table, or in a task and its job. Return false if there is none. */
bool tr_job_find(const struct tr_job *job, const char *name, struct tr_job_slot *slot);
bool tr_job_find_in(struct tr_job_values values, const char *key, struct tr_job_slot *slot);
bool tr_job_find_of(const struct tr_job *job, const struct tr_job_task *task, const char *key,
                    struct tr_job_slot *slot);

/* Adds «key=value» of the command line. */
int tr_job_add_override(struct tr_job *job, const char *argument);

/* ---- values of a whole job (resolve.c) ---- */

const tr_method *tr_job_chosen_method(const struct tr_job *job);

/* Returns whether class and method of the job use the key; and whether `where` (may be NULL) is the place of one of the job's
 * own settings, not of one that a task inherits from the job. */
bool tr_job_uses(const struct tr_job *job, const tr_option *key);
bool tr_job_is_own(const struct tr_job *job, const char *where);

#endif
