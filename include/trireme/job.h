/* The job's settings by name, and settings of one's own.
 *
 * A name is "section.key", as in the job file and on the command line; `trireme help job` lists them all. Every
 * key has a value: what the job says, else the default. "stages.NAME.key" and "tasks.NAME.key" are keys when the
 * job speaks of a stage or a task of that name, "tasks.NAME.section.key" is what counts for that task.
 */
#ifndef TRIREME_JOB_H
#define TRIREME_JOB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "trireme/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tr_job tr_job; /* a job as read; see tr_context_job() */

/* What a key of kind number holds when the job has a word in place of the number. A stage's parallelism is an
 * integer: 0 for all, UINT64_MAX for auto. */
enum { TR_JOB_AUTO = -1 };

/* real takes numbers and integers; integer takes integers, yes/no and choices (their place in the list of help);
 * string takes text and the word of a choice, and belongs to the job. Other kinds, unknown keys: TR_ERR_CONFIG. */
int tr_job_real(const tr_job *job, const char *key, double *value);
int tr_job_integer(const tr_job *job, const char *key, uint64_t *value);
int tr_job_string(const tr_job *job, const char *key, const char **value);

/* The same for keys that surely exist: the number or yes/no (NAN, if there is no such key), and whether a choice is this
 * word. */
double tr_job_number(const tr_job *job, const char *key);
bool tr_job_is(const tr_job *job, const char *key, const char *word);

/* How often something happens, of keys like sync.push: chosen, once in n mini-batches, or n times an epoch. */
enum { TR_OFTEN_AUTO, TR_OFTEN_EVERY, TR_OFTEN_PER_EPOCH };
struct tr_job_often {
    int unit;
    uint64_t n; /* 0 for auto */
};
int tr_job_often(const tr_job *job, const char *key, struct tr_job_often *often);

/* The files that a key of kind list names, so many; they belong to the job. */
size_t tr_job_files(const tr_job *job, const char *key, const char *const **files);

/* Where the key's value came from: "jobs/x.yaml:12", "command line" or "default"; for stages.NAME and
 * tasks.NAME where they are first named; the job file's path for what is not a key. Belongs to the job. For errors:
 * tr_fail(TR_ERR_CONFIG, "%s: model.rank …", tr_job_where(job, "model.rank")). */
const char *tr_job_where(const tr_job *job, const char *key);

/* Whether the path is the folder of the job's output, or in there, by its name. An earlier run in it is moved away before anything
 * is read. */
bool tr_job_output_has(const tr_job *job, const char *path);

/* Whether the job speaks of stages of these names only. TR_ERR_CONFIG, which names what was meant. */
int tr_job_check_stages(const tr_job *job, const char *const *names, size_t n);

/* Whether the job says it, in its file or on the command line. */
bool tr_job_given(const tr_job *job, const char *key);

/* Whether rows have weights: data.weight, or a column of that type in data.columns. */
bool tr_job_weighs_rows(const tr_job *job);

/* Which of the methods of the class (trireme/model.h) the job's solve.method is, from 0, and which of its types model.type
 * is. */
int tr_job_method(const tr_job *job);
int tr_job_type(const tr_job *job);

/* The resolved job as YAML, with every key that is used; to be freed. It reads back as the same job. */
int tr_job_as_text(const tr_job *job, char **text);

/* ---- keys of a class of models ---- */

enum tr_option_kind {
    TR_KIND_NONE, /* forgotten: refused */
    TR_KIND_TEXT, /* char *, valid UTF-8; empty only if that is the default; with words: one of them or any other */
    TR_KIND_LIST,    /* struct tr_job_list of paths; empty by default */
    TR_KIND_NAMES,   /* the same of names */
    TR_KIND_INTEGER, /* uint64_t; the i-th of its words is stored as -i: 0, UINT64_MAX, … */
    TR_KIND_BYTES,   /* uint64_t; K, M, G or T behind the number, with a B or not, are powers of 1024 */
    TR_KIND_REAL,    /* double; the i-th of its words is stored as -(i + 1): TR_JOB_AUTO is the first */
    TR_KIND_BOOL,    /* bool */
    TR_KIND_OFTEN,   /* struct tr_job_often */
    TR_KIND_PACE,    /* struct tr_job_pace */
    TR_KIND_TIME,    /* double, seconds; 0: no */
    TR_KIND_CHOICE,  /* int, the place of one of its words */
    TR_KIND_PAIRS /* struct tr_job_list of «name: word», in a file a mapping of names to words; empty by default */
};

struct tr_job_list {
    size_t n;
    char **item;
};

/* A key of job files. A class has them in an array that ends with a name of NULL; theirs are called model.* or solve.*,
 * and two classes may have keys of the same name that differ in all else. */
typedef struct tr_option {
    const char *name; /* "model.clusters" */
    enum tr_option_kind kind;
    size_t offset;            /* of its field in the struct of options */
    const char *by_default;   /* as text */
    double least;             /* of a number; -INFINITY: unlimited */
    double most;              /* 0: unlimited */
    bool above;               /* more than least, not equal to it */
    const char *const *words; /* of a choice, or in place of a number; ended by NULL */
    bool may_change;          /* when a run goes on with a changed job */
    const char *methods;      /* of solve.method, with a blank between them, that use it; NULL: all */
    const char *help;
} tr_option;

/* A list of words: .words = TR_WORDS("auto", "no", "yes") */
#define TR_WORDS(...)                                                                                        \
    (const char *const[])                                                                                    \
    {                                                                                                        \
        __VA_ARGS__, NULL                                                                                    \
    }

#ifdef __cplusplus
}
#endif
#endif
