/* What the files of job/ share: the tables of keys, and values going in and out of them as text. */
#ifndef TR_JOB_SCHEMA_H
#define TR_JOB_SCHEMA_H

#include "job/job.h"
#include "trireme/model.h"

/* ---- keys (schema.c) ---- */

struct tr_job_section {
    const char *name;
    const char *help;
    const char *short_for; /* the key that `section: value` sets, or NULL */
    bool named;            /* its keys are one level lower, below names that the job gives */
};

/* Keys of the engine, of a stage and of a task. */
enum tr_job_table { TR_TABLE_JOB, TR_TABLE_STAGE, TR_TABLE_TASK, TR_JOB_TABLES };
struct tr_job_keys {
    const tr_option *key;
    size_t n;
};
extern const struct tr_job_keys tr_job_tables[TR_JOB_TABLES];
enum { TR_JOB_SECTIONS = 12 };
extern const struct tr_job_section tr_job_sections[TR_JOB_SECTIONS];

size_t tr_job_options(const struct tr_model_class *class);          /* how many it has */
const struct tr_job_section *tr_job_find_section(const char *name); /* or NULL */

/* "key" of "stages.NAME.key" */
const char *tr_job_own_name(const char *name);

/* A whole name: what is longer is cut, for no key is so long. */
enum { TR_JOB_LONGEST_NAME = 128 };
struct tr_job_name {
    char text[TR_JOB_LONGEST_NAME];
};
struct tr_job_name tr_job_join(const char *prefix, const char *name);

/* The n-th of the keys of that name, where several classes may have one each, and the class (NULL: the engine's); NULL if
 * there are no more. */
const tr_option *tr_job_known_key(const char *name, size_t n, const struct tr_model_class **class);

/* The name that was probably meant, by the engine or any class and this one (NULL: none more); empty or NULL if none comes
 * near. */
struct tr_job_name tr_job_suggest_key(const struct tr_model_class *class, const char *name);
const char *tr_job_suggest_section(const char *name);
const char *tr_job_suggest(const char *name, const char *const *names, size_t n);

/* Of stages and tasks: [a-z][a-z0-9-]*, not longer than that. */
enum { TR_JOB_LONGEST_WORD = 32 };
bool tr_job_is_word(const char *text);

/* Whether a list of words with blanks between them holds this one; NULL holds all. */
bool tr_job_among(const char *words, const char *word);

/* ---- values (value.c) ---- */

/* Seconds from a number with a unit, "90s", "1.5 h". */
bool tr_job_duration(const char *text, double *seconds);

/* Fails with TR_ERR_CONFIG and «where: text». */
int tr_job_fail(const char *where, const char *format, ...) __attribute__((format(printf, 2, 3), cold));

/* Fails with «unknown key x: did you mean y?». The suggestion may be NULL or empty. */
int tr_job_fail_unknown(const char *where, const char *what, const char *name, const char *suggestion);

/* The key's kind and range in words, «a number > 0», for errors; or shorter, «number > 0», for the help. */
struct tr_job_words {
    char text[200];
};
struct tr_job_words tr_job_expected(const tr_option *key);
struct tr_job_words tr_job_kind_words(const tr_option *key);
bool tr_job_is_list(const tr_option *key);

/* One value of a job, a stage or a task: what a key leads to. */
struct tr_job_slot {
    const tr_option *key;
    void *field; /* uint64_t, double, … as the kind says */
    const char **where;
};

/* Sets it; the name is whole, for messages: "tasks.one.after". */
int tr_job_set(const struct tr_job_slot *slot, const struct tr_job_setting *setting, const char *name);
int tr_job_set_default(const struct tr_job_slot *slot, const char *text);
void tr_job_free_value(const struct tr_job_slot *slot);

/* As it is written in a job file, or in JSON. The text is to be freed. */
void tr_job_put_text(FILE *file, const char *text, bool json);
void tr_job_put_value(FILE *file, const struct tr_job_slot *slot, bool json);
bool tr_job_value_text(const struct tr_job_slot *slot, char **text);
bool tr_job_same(const struct tr_job_slot *a, const struct tr_job_slot *b);

/* The word a number or choice stands for, or NULL when the number is a number. */
const char *tr_job_word(const struct tr_job_slot *slot);

/* ---- reading (read.c) ---- */

/* Adds the settings of a file's text to a job without any, with its stages and tasks. */
int tr_job_read_yaml(struct tr_job *job, const char *text, size_t length);

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

/* A job without any values; one more stage with defaults, or task, under a name that is not there yet. */
int tr_job_new(const char *path, struct tr_job **job);
int tr_job_add_stage(struct tr_job *job, const char *name, size_t line);
int tr_job_add_task(struct tr_job *job, const char *name, size_t line);
void tr_job_free_stages(struct tr_job_stage *stage, size_t n);
const char *tr_job_suggest_task(const struct tr_job *job, const char *name); /* or NULL */

/* What messages say of a line of the job file, "jobs/x.yaml:12"; 0: the command line. To be freed. */
#define TR_COMMAND_LINE "command line"
int tr_job_place(const struct tr_job *job, size_t line, char **where);

/* ---- names (names.c) ---- */

/* Where the name leads, in a job, in the values of one table, or in a task and its job: false if nowhere. */
bool tr_job_find(const struct tr_job *job, const char *name, struct tr_job_slot *slot);
bool tr_job_find_in(struct tr_job_values values, const char *key, struct tr_job_slot *slot);
bool tr_job_find_of(const struct tr_job *job, const struct tr_job_task *task, const char *key,
                    struct tr_job_slot *slot);

/* Adds one setting; the name may begin with tasks.TASK. and stages.STAGE. The item is copied. line 0: of the command line,
 * which makes no tasks. *setting (NULL: not asked for) may get more items. */
int tr_job_add(struct tr_job *job, const char *name, size_t line, const char *item,
               struct tr_job_setting **setting);

/* «key=value» of the command line; next: the word behind it, or NULL. */
int tr_job_add_override(struct tr_job *job, const char *argument, const char *next);

/* ---- values of a whole job (resolve.c, check.c, tasks.c) ---- */

/* Gives a job all its values, and its tasks theirs. */
int tr_job_resolve(struct tr_job *job);

const tr_method *tr_job_chosen_method(const struct tr_job *job);

/* Whether the job's class and method have a use for the key; and whether one of its own settings stands there (where NULL:
 * false), not one that a task has from the whole job. */
bool tr_job_uses(const struct tr_job *job, const tr_option *key);
bool tr_job_is_own(const struct tr_job *job, const char *where);

/* «task a» as a task's model.init becomes the folder of a, after which the task runs. */
int tr_job_link_tasks(struct tr_job *job);

/* Whether tasks suit each other: their order, outputs and checkpoints. */
int tr_job_check_tasks(const struct tr_job *job);

#endif
