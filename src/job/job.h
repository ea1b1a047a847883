/* job/ — the job file: what to train on what, with how many ranks, and how.
 *
 * A job is a YAML file of sections and keys. The table in schema.c says for each key of the engine its kind, default, range
 * and meaning; the class of the job's model brings more keys of sections model and solve, in a table of the same form.
 * Reading, `section.key=value` from the command line, help, suggestions for misspelt keys, comparison between the parts of a
 * run and writing the resolved job all follow these tables.
 *
 * Besides, a job can speak of the stages of its method and of several tasks, each under a name that it gives. All that a
 * job can say may be said of one task alone.
 *
 * A file is first read into settings (read.c): names and texts with their lines. When all are known, and with them the
 * class of the model, they get their values (resolve.c), and are checked against each other (check.c, tasks.c).
 *
 * Here each value is checked alone, and how tasks depend on each other; whether the values suit each other, the
 * data and the ranks is checked by those who use them, with tr_job_where() to point at the line to blame.
 */
#ifndef TR_JOB_H
#define TR_JOB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "trireme/records.h" /* TR_FORMAT_, TR_LABEL_ and TR_HEADER_ */
#include "trireme/job.h"

/* Choices, in the order of their words in schema.c. */
enum { TR_DUPLICATES_LAST, TR_DUPLICATES_MEAN, TR_DUPLICATES_SUM };
enum { TR_INDEX_AUTO, TR_INDEX_ZERO, TR_INDEX_ONE };
enum { TR_ON_ERROR_STOP, TR_ON_ERROR_SKIP };
enum { TR_DATA_HORIZONTAL, TR_DATA_VERTICAL, TR_DATA_REPLICATED };
enum { TR_CACHE_AUTO, TR_CACHE_NO, TR_CACHE_MEMORY };
enum { TR_LEVEL_AUTO, TR_LEVEL_MEMORY, TR_LEVEL_DISK, TR_LEVEL_MEMORY_DISK };
/* The last is no word of a job, but auto's own. */
enum { TR_SCALE_AUTO, TR_SCALE_NONE, TR_SCALE_STANDARD, TR_SCALE_MAXABS, TR_SCALE_MINMAX, TR_SCALE_CENTRE };
enum { TR_ORDER_DEALT, TR_ORDER_FILE };
enum { TR_LAYOUT_AUTO, TR_LAYOUT_DEDICATED, TR_LAYOUT_COLOCATED, TR_LAYOUT_ALONE };
enum { TR_TABLE_RANGE, TR_TABLE_HASH, TR_TABLE_RANGE_HASH, TR_TABLE_RING };
enum { TR_STORAGE_DENSE, TR_STORAGE_HASH };
enum { TR_ENCODING_AUTO, TR_ENCODING_DENSE, TR_ENCODING_SPARSE, TR_ENCODING_BITMAP };
enum { TR_PRECISION_FULL, TR_PRECISION_F16, TR_PRECISION_BF16, TR_PRECISION_F8 };
enum { TR_FILTER_NONE, TR_FILTER_THRESHOLD, TR_FILTER_SIGNIFICANT, TR_FILTER_KKT, TR_FILTER_SKIP };
enum { TR_ROUTE_AUTO, TR_ROUTE_LOAD, TR_ROUTE_GET, TR_ROUTE_REQUEST };
enum { TR_PUSH_AUTO, TR_PUSH_MERGE, TR_PUSH_ACCUMULATE, TR_PUSH_MESSAGE };
enum { TR_MERGE_AUTO, TR_MERGE_DIRECT, TR_MERGE_ROUNDS };
enum { TR_ROTATE_AUTO, TR_ROTATE_SHARE, TR_ROTATE_TRAVEL };
enum { TR_SYNC_BSP, TR_SYNC_SSP, TR_SYNC_ASP, TR_SYNC_AUTO };
enum { TR_WEIGHT_SUM, TR_WEIGHT_CON, TR_WEIGHT_DYN, TR_WEIGHT_AUTO };
enum { TR_PULL_EVERY, TR_PULL_STALE };
enum { TR_RACE_CHUNK, TR_RACE_ATOMIC, TR_RACE_NONE };
enum { TR_LOCAL_INTEGRAL, TR_LOCAL_DEMAND };
enum { TR_REPLACE_LRU, TR_REPLACE_FIFO, TR_REPLACE_RANDOM };
enum { TR_SLOW_COMPUTE, TR_SLOW_NETWORK };
enum { TR_PROGRESS_AUTO, TR_PROGRESS_YES, TR_PROGRESS_NO };

/* How often: after so many seconds or so many clocks; both 0: never. */
struct tr_job_pace {
    double seconds;
    uint64_t clocks;
};

/* Degrees of a stage that are no count of workers. */
#define TR_ALL         UINT64_C(0)
#define TR_AUTO_DEGREE UINT64_MAX
enum { TR_RUN_TRAIN, TR_RUN_AVERAGE, TR_RUN_BEST };

/* What a job says of one stage of its method, under stages.NAME. */
struct tr_job_stage {
    char *name;
    char *first;          /* where it is first named */
    const char **where;   /* as that of the job */
    uint64_t parallelism; /* workers, TR_ALL or TR_AUTO_DEGREE */
    uint64_t clocks;      /* of one run; 0: what the method says */
    uint64_t servers;     /* of the tables while it runs; 0: as they are */
};

/* One of several tasks of a job, under tasks.NAME. */
struct tr_job_task {
    char *name;
    char *first;
    const char **where;
    struct tr_job_list after; /* names of tasks, none twice */
    double priority;
    uint64_t ranks; /* fits an int; 0: all that are free */
    uint64_t best;  /* 0, or: is done only if what it comes after is among so many best; fits an int */
    int run;
    struct tr_job *job; /* what it does: the whole job's settings and its own; without tasks */
};

/* What the file or the command line says of one key, before it has a value. */
struct tr_job_setting {
    char *key;         /* within the job or the task: "solve.rate", "stages.full.clocks", "after" */
    char *where;       /* "jobs/x.yaml:12", "command line" */
    bool commanded;    /* by the command line */
    bool quoted, list; /* one text in quotes; a list of any length */
    bool used;         /* by the job, or a task of it */
    size_t n;
    char **item;
};

/* Who reads a job: what it has no use for is an error, or means nothing. */
enum tr_job_reader {
    TR_JOB_STRICT,
    /* The text comes from a model or a checkpoint, perhaps of another user: it loads no plugin. Its class is one of the program or
     * of the plugins that are loaded. Older versions wrote keys that are not used. */
    TR_JOB_WRITTEN,
    TR_JOB_FOREIGN /* a program reads it, whose class this process does not know */
};

/* A resolved job: every key has its value. The meaning of each is in schema.c and in `trireme help job`.
 * Choices are int (the enums above); strings belong to the job. */
struct tr_job {
    char *path; /* of the job file */

    const struct tr_model_class *class; /* of its model */
    const struct tr_model_class
        *own; /* … which the program has brought; NULL: it is looked for by model.type */
    enum tr_job_reader reader;
    void *options; /* … as that declares them */
    /* One a key of the engine, and behind them one an option of the class; NULL: the default. See tr_job_where(). */
    const char **where;
    tr_option type_key, method_key; /* model.type and solve.method, with the words that there are */
    struct tr_job_setting *setting; /* its own; those of a whole job are also its tasks' */
    size_t settings, setting_capacity;

    char *name;
    char *output;
    uint64_t seed;
    struct {
        int type; /* among those of all classes */
        char *plugin;
    } model;
    struct {
        int word; /* the method's place behind "auto", from 1 on */
        uint64_t epochs;
        double target;     /* or TR_JOB_AUTO: none */
        uint64_t patience; /* evaluations; 0: no end of it */
    } solve;
    struct {
        struct tr_job_list train;
        struct tr_job_list test;
        struct tr_job_list vocabulary; /* one file at most */
        struct tr_job_list folders;
        char *weight; /* empty: all rows count the same */
        int format;
        int index_base;
        int on_error;
        uint64_t max_record;
        int partition;
        int order;
        uint64_t features;
        int header;
        char *label;    /* none, first, last, auto, or a column */
        char *positive; /* empty: labels are as they are */
        struct tr_job_list columns, missing;
        uint64_t min_count, most_values; /* 0: all */
        uint64_t hash;                   /* 0: categories have dictionaries */
        struct tr_job_list cross;
        int duplicates;
        int cache;
        int storage;
        uint64_t memory;
        char *scratch;
        int scale;
    } data;
    struct {
        int layout;
        uint64_t servers; /* these four fit an int */
        uint64_t groups;
        uint64_t group_size;
        uint64_t node_size;
        double patience;
    } ranks;
    struct {
        int partition;
        uint64_t block;
        uint64_t virtual_nodes;
        uint64_t servers;
        int storage;
        int route;
        int push;
        int merge;
        bool share_pulls;
        bool prune;
        int rotate;
        uint64_t ahead;
        uint64_t row_bytes;
        int encoding;
        int precision;
        int filter;
        double filter_limit;
        double filter_skip;
    } table;
    struct {
        int mode;
        uint64_t staleness;
        struct tr_job_often push;
        int pull;
        int weight;
        double global_rate; /* or TR_JOB_AUTO: 1/M */
        bool stable;
        int race;
    } sync;
    struct {
        int model;
        uint64_t chunk;
        uint64_t memory; /* 0: no limit */
        int replace;
    } local;
    struct {
        double slow;
        double level;
        int kind;
        double clock;
    } experiment;
    struct {
        uint64_t every;
        int progress;
    } report;
    struct {
        struct tr_job_pace every;
        uint64_t keep;
        char *to;        /* "": <output>/checkpoints */
        double max_time; /* seconds; 0: no limit */
        struct tr_job_pace memory;
        uint64_t copies; /* fits an int */
    } checkpoint;

    struct tr_job_stage *stage; /* those that the job says something of, in its order */
    size_t stages;
    struct tr_job_task *task;
    size_t tasks; /* 0: a plain job */
};

/* Reads the job file, then the n overrides («section.key=value»),
 * which win. A task has the whole job's settings, and before these count, from the strongest: its own of the
 * command line, the whole job's of the command line, its own of the file. Its name and output are its own.
 * Fails with TR_ERR_NO_INPUT (missing, unreadable or empty), TR_ERR_CONFIG (what it says),
 * TR_ERR_USAGE (an override without «=»). Give the job back with tr_job_free(). */
/* Whether a word of the command line is section.key=value, or the like, and not a job file. */
bool tr_job_is_setting(const char *word);

int tr_job_read(const char *path, int n, char *const overrides[], struct tr_job **job);

/* The same from memory. The path serves messages and the default name; it is not opened. */
int tr_job_parse(const char *text, size_t length, const char *path, int n, char *const overrides[],
                 struct tr_job **job);

/* The text of a job file, for those who send it on before it is parsed; to be freed. Of TR_NO_JOB_FILE, where all settings
 * are words of the command line: an empty job. TR_ERR_NO_INPUT, with the name that was meant if e.yaml is there in place
 * of e. */
#define TR_NO_JOB_FILE    "command line"
#define TR_STANDARD_INPUT "standard input" /* «-» on the command line */
int tr_job_read_text(const char *path, char **text, size_t *length);

void tr_job_free(struct tr_job *job); /* NULL is fine */

/* The same for this reader, of a program that brings a class of its own (NULL: it does not), which then is the only one. */
int tr_job_parse_as(enum tr_job_reader reader, const struct tr_model_class *own, const char *text,
                    size_t length, const char *path, int n, char *const overrides[], struct tr_job **job);

/* What the job says of the stage, or the task of this name; NULL if there is none. They belong to the job. */
const struct tr_job_stage *tr_job_stage_of(const struct tr_job *job, const char *name);
const struct tr_job_task *tr_job_task_of(const struct tr_job *job, const char *name);

/* Fails with TR_ERR_CONFIG when the job, or a task of it, says something that its model, or the method of this, has no use
 * for; and when it speaks of stages that the method does not have. */
int tr_job_check_use(const struct tr_job *job);

/* Of the training data, dealt at random from 0 to 1, those that are held out for testing; .to is 0: none are. */
struct tr_job_held_out {
    double from, to;
};

/* data.test: 10% is a share of the training data, and fold 2/5 the second of five; none where it names files.
 * TR_ERR_CONFIG: no such share. */
int tr_job_held_out(const struct tr_job *job, struct tr_job_held_out *held);

/* ---- classes of models ---- */

/* Those that Trireme brings; src/model defines them. */
extern const struct tr_model_class *const tr_model_classes[];
extern const size_t tr_model_class_count;

/* Whether a description is complete and does not contradict itself; what: "model.plugin ./libfm.so". trains_itself: the
 * program does what the class has no functions for. TR_ERR_CONFIG, with a text that begins with this place. */
int tr_class_check(const char *place, const char *what, const struct tr_model_class *class,
                   bool trains_itself);

/* Loads the plugin in this file, once for each file. Call it only for a path that the user names now, never for one that a model
 * or a checkpoint names. The file must pass tr_open_code(). TR_ERR_NO_INPUT, TR_ERR_NO_PERM, TR_ERR_CONFIG; the text of the error
 * begins with the place. */
int tr_plugin_load(const char *path, const char *place, const struct tr_model_class **class);

struct tr_plugin {
    char *name;                       /* of the file, without its folder */
    uint64_t checksum, device, inode; /* XXH3 of the file; where it is */
    const struct tr_model_class *class;
};

/* The i-th plugin that this process has loaded, and the one that brought the class; NULL: there is none. */
const struct tr_plugin *tr_plugin_number(size_t i);
const struct tr_plugin *tr_plugin_of(const struct tr_model_class *class);

/* The class of a name or the format of a model file; NULL. The plugin's is not among them. */
const struct tr_model_class *tr_model_class_of_format(const char *format);

/* Every key with its value, and a comment where it came from; of tasks, what differs from the whole job. Reads
 * back as an equal job. */
int tr_job_write_yaml(const struct tr_job *job, FILE *file);

/* One object of objects, to be put inside another: each line but the first starts with this many spaces,
 * and no newline follows the last brace. */
int tr_job_write_json(const struct tr_job *job, FILE *file, int indent);

/* Whether a run of the old job, as tr_job_write_yaml() wrote it, may go on as this one: the keys in which they differ
 * are such as may change between the parts of a run. *change (NULL: not asked for) tells the differences in a line, but
 * those of checkpoint.*, to be freed, or is NULL if there are none. TR_ERR_CONFIG: it may not, with the first key that is
 * in the way, what it was and is, and where; or the old job cannot be read any more. */
int tr_job_compare(const struct tr_job *now, const char *old_yaml, char **change);

/* Whether a run of the old job that is complete may go on as this one, which wants more epochs. */
bool tr_job_extends(const struct tr_job *now, const char *old_yaml);

/* Lists keys: kind, default, meaning. The filter is a section, a key, a class of models or «all»; NULL: names alone. False if
 * there is nothing of that name: then a suggestion is printed. */
bool tr_job_help(FILE *file, const char *filter);

#endif
