/* What the files of job/ share: the table of keys, and values going in and out of it as text. */
#ifndef TR_JOB_SCHEMA_H
#define TR_JOB_SCHEMA_H

#include "job/job.h"

enum tr_job_kind {
    TR_KIND_TEXT,    /* char *, valid UTF-8, not empty; its default depends on the job: see parse.c */
    TR_KIND_LIST,    /* struct tr_job_list of such texts; empty by default */
    TR_KIND_INTEGER, /* uint64_t */
    TR_KIND_REAL,    /* double; the i-th of its words is stored as -(i + 1) */
    TR_KIND_BOOL,    /* bool */
    TR_KIND_OFTEN,   /* struct tr_job_often */
    TR_KIND_CHOICE   /* int, the position of one of its words */
};

struct tr_job_key {
    const char *name; /* "solve.rate", or "seed" outside all sections */
    enum tr_job_kind kind;
    size_t offset;            /* of the field in struct tr_job */
    const char *by_default;   /* as text */
    double least;             /* of a number */
    double most;              /* 0: unlimited */
    bool above;               /* more than least, not equal to it */
    const char *const *words; /* ended by NULL */
    const char *help;
};

struct tr_job_section {
    const char *name;
    const char *help;
    const char *short_for; /* the key that `section: value` sets, or NULL */
};

enum { TR_JOB_KEYS = 86, TR_JOB_SECTIONS = 8 };
extern const struct tr_job_key tr_job_keys[TR_JOB_KEYS];
extern const struct tr_job_section tr_job_sections[TR_JOB_SECTIONS];

const struct tr_job_key *tr_job_find_key(const char *name);         /* or NULL */
const struct tr_job_section *tr_job_find_section(const char *name); /* or NULL */

/* The name that was probably meant, or NULL. */
const char *tr_job_suggest_key(const char *name);
const char *tr_job_suggest_section(const char *name);

/* Where a setting stands: a line of a file, or only a name when the line is 0. */
struct tr_job_place {
    const char *name;
    size_t line;
};

/* Fails with TR_ERR_CONFIG and «place: text». */
int tr_job_fail(struct tr_job_place place, const char *format, ...)
    __attribute__((format(printf, 2, 3), cold));

/* Fails with «unknown key x: did you mean y?». The suggestion may be NULL. */
int tr_job_fail_unknown(struct tr_job_place place, const char *what, const char *name,
                        const char *suggestion);

/* The key's kind and range in words, «a number > 0», for errors; or shorter, «number > 0», for the help. */
struct tr_job_words {
    char text[160];
};
struct tr_job_words tr_job_expected(const struct tr_job_key *key);
struct tr_job_words tr_job_kind_words(const struct tr_job_key *key);

/* Sets a key from text. Quoted text is never a number or a yes or no. A list becomes a list of one. */
int tr_job_set(struct tr_job *job, const struct tr_job_key *key, const char *text, bool quoted,
               struct tr_job_place place);

/* Lists item by item: empty, then add. */
void tr_job_empty_list(struct tr_job *job, const struct tr_job_key *key);
int tr_job_add(struct tr_job *job, const struct tr_job_key *key, const char *text, struct tr_job_place place);

/* Remembers that the key was set there. */
int tr_job_mark(struct tr_job *job, const struct tr_job_key *key, struct tr_job_place place);

/* The field, for reading: uint64_t, double, … as the kind says. */
const void *tr_job_field(const struct tr_job *job, const struct tr_job_key *key);

/* The word a number or choice stands for, or NULL when the number is a number. */
const char *tr_job_word(const struct tr_job *job, const struct tr_job_key *key);

#endif
