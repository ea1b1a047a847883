/* What the files of job/ share: the table of keys, and values going in and out of it as text. */
#ifndef TR_JOB_SCHEMA_H
#define TR_JOB_SCHEMA_H

#include "job/job.h"

enum tr_job_kind {
    /* char *, valid UTF-8; not empty, and its default depends on the job (see complete.c), but where the default is the
     * empty text */
    TR_KIND_TEXT,
    TR_KIND_LIST,    /* struct tr_job_list of such texts that are paths; empty by default */
    TR_KIND_NAMES,   /* the same of names */
    TR_KIND_INTEGER, /* uint64_t; the i-th of its words is stored as -i: 0, UINT64_MAX, … */
    TR_KIND_REAL,    /* double; the i-th of its words is stored as -(i + 1) */
    TR_KIND_BOOL,    /* bool */
    TR_KIND_OFTEN,   /* struct tr_job_often */
    TR_KIND_PACE,    /* struct tr_job_pace */
    TR_KIND_TIME,    /* double, seconds; 0: no */
    TR_KIND_CHOICE   /* int, the position of one of its words */
};

struct tr_job_key {
    /* "solve.rate", "seed" outside all sections, "tasks.NAME.after" where jobs give names */
    const char *name;
    enum tr_job_kind kind;
    size_t offset;            /* of the field in struct tr_job, tr_job_stage or tr_job_task */
    const char *by_default;   /* as text */
    double least;             /* of a number; -INFINITY: unlimited */
    double most;              /* 0: unlimited */
    bool above;               /* more than least, not equal to it */
    const char *const *words; /* ended by NULL */
    bool may_change; /* between the parts of a run, which goes on all the same: see tr_job_compare() */
    const char *help;
};

struct tr_job_table {
    const struct tr_job_key *key;
    size_t keys;
};

struct tr_job_section {
    const char *name;
    const char *help;
    const char *short_for; /* the key that `section: value` sets, or NULL */
    bool named;            /* its keys are one level lower, below names that the job gives */
};

enum { TR_JOB_KEYS = 101, TR_STAGE_KEYS = 3, TR_TASK_KEYS = 4, TR_JOB_SECTIONS = 12, TR_JOB_TABLES = 3 };
enum { TR_TABLE_JOB, TR_TABLE_STAGE, TR_TABLE_TASK };
extern const struct tr_job_key tr_job_keys[TR_JOB_KEYS];
extern const struct tr_job_table tr_job_tables[TR_JOB_TABLES];
extern const struct tr_job_section tr_job_sections[TR_JOB_SECTIONS];

const struct tr_job_key *tr_job_find_key(const char *name); /* of any table, as named there; or NULL */
const struct tr_job_section *tr_job_find_section(const char *name); /* or NULL */

/* The key of the table with this name behind its last dot, or NULL. */
const struct tr_job_key *tr_job_find_own(const struct tr_job_table *table, const char *own);
const char *tr_job_own_name(const char *name);

/* A whole name: what is longer is cut, for no key is so long. */
enum { TR_JOB_LONGEST_NAME = 128 };
struct tr_job_name {
    char text[TR_JOB_LONGEST_NAME];
};
struct tr_job_name tr_job_join(const char *prefix, const char *name);

/* The name that was probably meant; empty or NULL if none comes near. */
struct tr_job_name tr_job_suggest_key(const char *name);
const char *tr_job_suggest_section(const char *name);
const char *tr_job_suggest(const char *name, const char *const *names, size_t n);

/* Of stages and tasks: [a-z][a-z0-9-]*, not longer than that. */
enum { TR_JOB_LONGEST_WORD = 32 };
bool tr_job_is_word(const char *text);

/* Seconds from a number with a unit, "90s", "1.5 h"; or, as Slurm has them, from minutes, minutes:seconds,
 * hours:minutes:seconds, days-hours, days-hours:minutes and days-hours:minutes:seconds. */
bool tr_job_duration(const char *text, double *seconds);
bool tr_job_slurm_time(const char *text, double *seconds);

/* Where a setting stands: a line of a file, or only a name when the line is 0. */
struct tr_job_place {
    const char *name;
    size_t line;
};

/* Fails with TR_ERR_CONFIG and «place: text». */
int tr_job_fail(struct tr_job_place place, const char *format, ...)
    __attribute__((format(printf, 2, 3), cold));

/* Fails with «unknown key x: did you mean y?». The suggestion may be NULL or empty. */
int tr_job_fail_unknown(struct tr_job_place place, const char *what, const char *name,
                        const char *suggestion);

/* The key's kind and range in words, «a number > 0», for errors; or shorter, «number > 0», for the help. */
struct tr_job_words {
    char text[160];
};
struct tr_job_words tr_job_expected(const struct tr_job_key *key);
struct tr_job_words tr_job_kind_words(const struct tr_job_key *key);

/* ---- values (value.c) ---- */

/* One value of a job, a stage or a task: what a key leads to. */
struct tr_job_slot {
    const struct tr_job_key *key;
    void *field;             /* uint64_t, double, … as the kind says */
    char **where;            /* see struct tr_job */
    struct tr_job_name name; /* whole, for messages: "tasks.one.after" */
};

/* Sets it from text. Quoted text is never a number or a yes or no. A list becomes a list of one. */
int tr_job_set(struct tr_job_slot *slot, const char *text, bool quoted, struct tr_job_place place);

/* Lists item by item: empty, then add. */
bool tr_job_is_list(const struct tr_job_key *key);
void tr_job_empty_list(struct tr_job_slot *slot);
int tr_job_add(struct tr_job_slot *slot, const char *text, struct tr_job_place place);

/* Sets it from items with commas between them, which are cut up. */
int tr_job_split_list(struct tr_job_slot *slot, char *items, struct tr_job_place place);

/* Remembers that it was set there. */
int tr_job_mark(struct tr_job_slot *slot, struct tr_job_place place);
int tr_job_place_text(struct tr_job_place place, char **text);

/* The value and where it came from, from a slot of the same key. */
int tr_job_copy(struct tr_job_slot *to, const struct tr_job_slot *from);
bool tr_job_same(const struct tr_job_slot *a, const struct tr_job_slot *b);

/* The value as it is written in a job file. */
void tr_job_put_value(FILE *file, const struct tr_job_slot *slot);

/* The word a number or choice stands for, or NULL when the number is a number. */
const char *tr_job_word(const struct tr_job_slot *slot);

/* ---- what belongs to one name (named.c) ---- */

/* All values of one table. */
struct tr_job_values {
    const struct tr_job_table *table;
    void *base;
    char **where;
};
struct tr_job_values tr_job_values(const struct tr_job *job);
struct tr_job_values tr_job_stage_values(const struct tr_job_stage *stage);
struct tr_job_values tr_job_task_values(const struct tr_job_task *task);
struct tr_job_slot tr_job_slot(const struct tr_job_values *values, size_t i);
int tr_job_set_defaults(struct tr_job_values values);

/* A job without any values, only to be freed. */
int tr_job_new(const char *path, struct tr_job **job);

/* Adds one under a name that is not there yet, with defaults; a task's job has no values. */
int tr_job_add_stage(struct tr_job *job, const char *name, struct tr_job_place place);
int tr_job_add_task(struct tr_job *job, const char *name, struct tr_job_place place);

const char *tr_job_suggest_task(const struct tr_job *job, const char *name); /* or NULL */

/* Where the name leads: false if nowhere. locate() adds a stage that is not there yet, and a task if the place has
 * a line; the slot's key is NULL if the name leads nowhere all the same. */
bool tr_job_find(const struct tr_job *job, const char *name, struct tr_job_slot *slot);
int tr_job_locate(struct tr_job *job, const char *name, struct tr_job_place place, struct tr_job_slot *slot);

/* ---- tasks (tasks.c) ---- */

/* Where values of the command line stand, which are stronger than those of the file. */
#define TR_JOB_COMMAND_LINE "command line"

/* Puts each task's whole job in the place of its own settings. */
int tr_job_fill_tasks(struct tr_job *job);

/* Whether tasks suit each other: their order, outputs and checkpoints. The job is complete. */
int tr_job_check_tasks(const struct tr_job *job);

/* ---- the whole (complete.c) ---- */

/* When all is read: defaults that follow from other values, each task's whole job, and whether tasks suit each
 * other. */
int tr_job_complete(struct tr_job *job);

#endif
