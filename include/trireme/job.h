/* Settings of the job by name, and job keys of a model class.
 *
 * A key is named section.key, as in the job file and on the command line; `trireme help job` lists all keys. Every key has
 * a value: the value in the job, or the default. stages.NAME.key and tasks.NAME.key exist if the job contains a stage or a
 * task of that name; tasks.NAME.section.key returns the value that applies to that task.
 *
 * Example:
 *
 *     uint64_t rank;
 *     TR_TRY(tr_job_integer(job, "model.rank", &rank));
 *     if (tr_job_is(job, "sync.mode", "bsp")) ...
 */
#ifndef TRIREME_JOB_H
#define TRIREME_JOB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "trireme/base.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tr_job tr_job; /* a job that has been read; see tr_context_job() */

/* Value of a numeric key if the job has a word in place of the number. The parallelism of a stage is an integer: 0 means
 * all, UINT64_MAX means auto. */
enum { TR_JOB_AUTO = -1 };

/* Read the value of a key.
 *
 * @param [out] value  tr_job_real(): a number. tr_job_integer(): an integer, 0 or 1 for yes/no, or the index of a choice in
 *                     the list that help prints. tr_job_string(): text, or the word of a choice; owned by the job
 * @return TR_ERR_CONFIG for an unknown key or a key of another kind
 */
int tr_job_real(const tr_job *job, const char *key, double *value);
int tr_job_integer(const tr_job *job, const char *key, uint64_t *value);
int tr_job_string(const tr_job *job, const char *key, const char **value);

/* The same for keys that are known to exist: the number, or 0 or 1 for yes/no (NAN if the key does not exist); and whether
 * a choice has this word. */
double tr_job_number(const tr_job *job, const char *key);
bool tr_job_is(const tr_job *job, const char *key, const char *word);

/* Frequency of an event, the value of keys such as sync.push: chosen automatically, once in n mini-batches, or n times per
 * epoch. */
enum { TR_OFTEN_AUTO, TR_OFTEN_EVERY, TR_OFTEN_PER_EPOCH };
struct tr_job_often {
    int unit;
    uint64_t n; /* 0 for auto */
};
int tr_job_often(const tr_job *job, const char *key, struct tr_job_often *often);

/* Returns the number of files that a key of kind list names.
 *
 * @param [out] files  their names; owned by the job
 */
size_t tr_job_files(const tr_job *job, const char *key, const char *const **files);

/* Returns the source of a value, for error messages: "jobs/x.yaml:12", "command line" or "default". For stages.NAME and
 * tasks.NAME the place where they are first named; for an unknown key the path of the job file. Owned by the job. */
const char *tr_job_where(const tr_job *job, const char *key);

/* Returns whether a path is the output folder of the job or inside it. An earlier run in that folder is renamed before
 * anything is read. */
bool tr_job_output_has(const tr_job *job, const char *path);

/* Checks that the job contains no stages except these n names. TR_ERR_CONFIG with a suggestion otherwise. */
int tr_job_check_stages(const tr_job *job, const char *const *names, size_t n);

/* Returns whether the job file or the command line sets the key. */
bool tr_job_given(const tr_job *job, const char *key);

/* Returns whether rows have weights: data.weight is set, or a column in data.columns has the type weight. */
bool tr_job_weighs_rows(const tr_job *job);

/* Return the index of solve.method among the methods of the class (trireme/model.h), and of model.type among its types. */
int tr_job_method(const tr_job *job);
int tr_job_type(const tr_job *job);

/* Writes the resolved job as YAML, with every key in use. It reads back as the same job.
 *
 * @param [out] text  free it with free()
 */
int tr_job_as_text(const tr_job *job, char **text);

/* ---- job keys of a model class ---- */

enum tr_option_kind {
    TR_KIND_NONE, /* not set: refused */
    TR_KIND_TEXT, /* char *, valid UTF-8; empty only if the default is; with words: one of them, or other text */
    TR_KIND_LIST,    /* struct tr_job_list of paths; empty by default */
    TR_KIND_NAMES,   /* struct tr_job_list of names; empty by default */
    TR_KIND_INTEGER, /* uint64_t; word i is stored as -i: 0, UINT64_MAX, ... */
    TR_KIND_BYTES,   /* uint64_t; the suffixes K, M, G, T, with or without B, are powers of 1024 */
    TR_KIND_REAL,    /* double; word i is stored as -(i + 1): TR_JOB_AUTO is the first */
    TR_KIND_BOOL,    /* bool */
    TR_KIND_OFTEN,   /* struct tr_job_often */
    TR_KIND_PACE,    /* struct tr_job_pace */
    TR_KIND_TIME,    /* double, seconds; 0: no */
    TR_KIND_CHOICE,  /* int, the index of one of its words */
    TR_KIND_PAIRS    /* struct tr_job_list of «name: word», in YAML a mapping; empty by default */
};

struct tr_job_list {
    size_t n;
    char **item;
};

/* A job key of a model class. A class lists its keys in an array that ends with a name of NULL. Their names start with
 * model. or solve.; two classes may define different keys of the same name. */
typedef struct tr_option {
    const char *name; /* for example "model.clusters" */
    enum tr_option_kind kind;
    size_t offset;            /* of the member in the struct of options */
    const char *by_default;   /* as text */
    double least;             /* minimum of a number; -INFINITY: none */
    double most;              /* maximum of a number; 0: none */
    bool above;               /* the minimum itself is excluded */
    const char *const *words; /* words of a choice, or words in place of a number; ends with NULL */
    bool may_change;          /* a resumed run may have another value */
    const char *methods;      /* values of solve.method that use the key, separated by blanks; NULL: all */
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
