/* Reading the settings of a job by name, and defining job keys of a model class.
 *
 * A key is named section.key, as in the job file and on the command line; `trireme help job` lists all keys. Every key has
 * a value: the value in the job, or the default. stages.NAME.key and tasks.NAME.key exist if the job contains a stage or a
 * task of that name; tasks.NAME.section.key returns the value of section.key for that task.
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

/* tr_job_real() returns this value if the job has the word `auto` instead of a number. For the parallelism of a stage, which is an
 * integer, tr_job_integer() returns 0 for `all` and UINT64_MAX for `auto`. */
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

/* Shorter forms for keys that are known to exist. tr_job_number() returns the number, 0 or 1 for yes/no, or NAN if the key does not
 * exist. tr_job_is() returns whether the value of a choice is this word. */
double tr_job_number(const tr_job *job, const char *key);
bool tr_job_is(const tr_job *job, const char *key, const char *word);

/* The value of keys such as sync.push: the frequency of an event. TR_OFTEN_AUTO: chosen automatically; TR_OFTEN_EVERY: once in n
 * mini-batches; TR_OFTEN_PER_EPOCH: n times per epoch. */
enum { TR_OFTEN_AUTO, TR_OFTEN_EVERY, TR_OFTEN_PER_EPOCH };
struct tr_job_often {
    int unit;   /* one of the constants above */
    uint64_t n; /* 0 for TR_OFTEN_AUTO */
};
int tr_job_often(const tr_job *job, const char *key, struct tr_job_often *often);

/* Returns the number of files that a key of kind list names.
 *
 * @param [out] files  their names; owned by the job
 */
size_t tr_job_files(const tr_job *job, const char *key, const char *const **files);

/* Returns the source of a value, for error messages: "jobs/x.yaml:12", "command line" or "default". For stages.NAME and
 * tasks.NAME it is where the name first occurs; for an unknown key it is the path of the job file. The job owns the string. */
const char *tr_job_where(const tr_job *job, const char *key);

/* Returns whether a path is the output folder of the job or inside it. An earlier run in that folder is renamed before
 * anything is read. */
bool tr_job_output_has(const tr_job *job, const char *path);

/* Checks that all stages in the job have one of these n names. Returns TR_ERR_CONFIG, with a suggestion, otherwise. */
int tr_job_check_stages(const tr_job *job, const char *const *names, size_t n);

/* Returns whether the job file or the command line sets the key. */
bool tr_job_given(const tr_job *job, const char *key);

/* Returns whether rows have an extra number, «weight» or «offset»: data.weight (data.offset) is set, or a column in data.columns has
 * this type. */
bool tr_job_has_extra(const tr_job *job, const char *extra);

/* Return the index of solve.method among the methods of the class (trireme/model.h), and of model.type among its types. */
int tr_job_method(const tr_job *job);
int tr_job_type(const tr_job *job);

/* Writes the job as YAML, with the values of all keys in use, including defaults. The text can be read as a job file.
 *
 * @param [out] text  free it with free()
 */
int tr_job_as_text(const tr_job *job, char **text);

/* ---- job keys of a model class ---- */

enum tr_option_kind {
    TR_KIND_NONE,    /* an error: the kind is missing */
    TR_KIND_TEXT,    /* char *, valid UTF-8; may be empty if the default is; may also be one of the words */
    TR_KIND_LIST,    /* struct tr_job_list of paths; empty by default */
    TR_KIND_NAMES,   /* struct tr_job_list of names; empty by default */
    TR_KIND_INTEGER, /* uint64_t; the i-th word, from 0, is stored as -i: 0, UINT64_MAX, ... */
    TR_KIND_BYTES,   /* uint64_t; the suffixes K, M, G, T, with or without B, are powers of 1024 */
    TR_KIND_REAL,    /* double; the i-th word is stored as -(i + 1), so that the first is TR_JOB_AUTO */
    TR_KIND_BOOL,    /* bool */
    TR_KIND_OFTEN,   /* struct tr_job_often */
    TR_KIND_PACE,    /* struct tr_job_pace, of the engine only */
    TR_KIND_TIME,    /* double, seconds; 0 for the value «no» */
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
    size_t offset;            /* offset of the value in the struct of options of the class */
    const char *by_default;   /* default value, as text */
    double least;             /* minimum of a number; -INFINITY: no minimum */
    double most;              /* maximum of a number; 0: no maximum */
    bool above;               /* the value must be larger than the minimum */
    const char *const *words; /* values of a choice, or words that replace a number; ends with NULL */
    bool may_change;          /* the value may change when a run resumes */
    const char *methods;      /* values of solve.method that use the key, separated by blanks; NULL: all */
    const char *help;         /* description of the key */
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
