/* job/: job files, which describe model, method, data and ranks.
 *
 * A job is a YAML file of sections and keys. The table in schema.c has kind, default, range and meaning of each key of the
 * engine. The class of the model adds keys to the sections model and solve, in a table of the same form. Reading, settings on the
 * command line (section.key=value), help, suggestions for misspelt keys, comparison of jobs, and writing the resolved job are derived
 * from these tables. The place of a setting is where users have written it: "jobs/x.yaml:12" or "command line".
 *
 * A job may also have named stages of its method and named tasks. Each task runs a job: all keys may be set for one task only.
 *
 * job.c parses a file into settings: names and texts with their lines. When all settings, and with them the class of the model, are
 * known, resolve.c converts them to values, and checks that they fit together. The parts of the program that use values check them against data and ranks, and report the place of
 * a setting by tr_job_where().
 */
#ifndef TR_JOB_H
#define TR_JOB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/escape.h"
#include "trireme/records.h" /* TR_FORMAT_, TR_LABEL_ and TR_HEADER_ */
#include "trireme/job.h"

/* Values of choices, in the order of their words in schema.c. */
enum { TR_DUPLICATES_LAST, TR_DUPLICATES_MEAN, TR_DUPLICATES_SUM };
enum { TR_INDEX_AUTO, TR_INDEX_ZERO, TR_INDEX_ONE };
enum { TR_ON_ERROR_STOP, TR_ON_ERROR_SKIP };
enum { TR_DATA_HORIZONTAL, TR_DATA_VERTICAL, TR_DATA_REPLICATED };
enum { TR_CACHE_AUTO, TR_CACHE_NO, TR_CACHE_MEMORY };
enum { TR_LEVEL_AUTO, TR_LEVEL_MEMORY, TR_LEVEL_DISK, TR_LEVEL_MEMORY_DISK };
/* TR_SCALE_CENTRE is not a word of data.scale, but auto may choose it. */
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
enum { TR_SYNC_BSP, TR_SYNC_SSP, TR_SYNC_ASP };
enum { TR_WEIGHT_SUM, TR_WEIGHT_CON, TR_WEIGHT_DYN, TR_WEIGHT_AUTO };
enum { TR_PULL_EVERY, TR_PULL_STALE };
enum { TR_RACE_CHUNK, TR_RACE_ATOMIC, TR_RACE_NONE };
enum { TR_LOCAL_INTEGRAL, TR_LOCAL_DEMAND };
enum { TR_REPLACE_LRU, TR_REPLACE_FIFO, TR_REPLACE_RANDOM };
enum { TR_SLOW_COMPUTE, TR_SLOW_NETWORK };
enum { TR_PROGRESS_AUTO, TR_PROGRESS_YES, TR_PROGRESS_NO };

/* An interval in seconds or in clocks; both 0: never. */
struct tr_job_pace {
    double seconds;
    uint64_t clocks;
};

/* Values of parallelism that are not a number of workers: all workers; a number that the engine finds by measuring. */
#define TR_ALL         UINT64_C(0)
#define TR_AUTO_DEGREE UINT64_MAX
enum { TR_RUN_TRAIN, TR_RUN_AVERAGE, TR_RUN_BEST };

/* Settings of one stage of the method: stages.NAME. */
struct tr_job_stage {
    char *name;
    char *first;          /* place where the name first occurs */
    const char **where;   /* places of the settings, as in struct tr_job */
    uint64_t parallelism; /* number of workers, TR_ALL or TR_AUTO_DEGREE */
    uint64_t clocks;      /* number of clocks of one run of the stage; 0: the method chooses it */
    uint64_t servers;     /* number of servers of the tables while the stage runs; 0: unchanged */
};

/* One task of a job: tasks.NAME. */
struct tr_job_task {
    char *name;
    char *first;              /* place where the name first occurs */
    const char **where;       /* places of the settings, as in struct tr_job */
    struct tr_job_list after; /* distinct names of the tasks that run before this one */
    double priority;
    uint64_t ranks; /* number of ranks, fits an int; 0: all free ranks */
    uint64_t
        best; /* run only if the task in `after` is one of the `best` best tasks; 0: always; fits an int */
    int run;
    struct tr_job *job; /* the job that the task runs, with settings of the whole job and of the task */
};

/* A key and its text in the file or on the command line, before conversion to a value. */
struct tr_job_setting {
    char *key;         /* name within the job or the task: "solve.rate", "stages.full.clocks", "after" */
    char *where;       /* place of the setting */
    bool commanded;    /* set on the command line */
    bool quoted, list; /* the value is a text in quotes; is a list */
    bool used;         /* the job or one of its tasks has this key */
    struct tr_job_list value; /* one item unless it is a list */
};

/* How a job is read. */
enum tr_job_reader {
    TR_JOB_STRICT, /* unknown keys are errors */
    /* The text is from a model or a checkpoint, perhaps of another user or an older version: unknown keys are ignored, and no plugin
     * is loaded. The class is one of the program or of a plugin that is already loaded. */
    TR_JOB_WRITTEN,
    TR_JOB_FOREIGN /* as TR_JOB_WRITTEN, but this process does not have the class: its keys are ignored */
};

/* A resolved job with the values of all keys. schema.c and `trireme help job` describe them. Choices are int (the enums above);
 * strings belong to the job. */
struct tr_job {
    char *path; /* path of the job file */

    const struct tr_model_class *class; /* class of the model */
    const struct tr_model_class *own;   /* class of a program of the user; NULL: model.type selects one */
    enum tr_job_reader reader;
    void *options; /* values of the options of the class: a struct that the class defines */
    /* For each key of the engine, and then each option of the class, the place of its setting; NULL: default. See tr_job_where(). */
    const char **where;
    tr_option type_key, method_key; /* model.type and solve.method, with their possible words */
    struct tr_job_setting *setting; /* its settings; those of the whole job also apply to its tasks */
    size_t settings, setting_capacity;

    char *name;
    char *output;
    uint64_t seed;
    struct {
        int type; /* index among the types of all classes */
        char *plugin;
    } model;
    struct {
        int word; /* number of the method, from 1; 0 is "auto" */
        uint64_t epochs;
        double target;     /* TR_JOB_AUTO: none */
        uint64_t patience; /* number of evaluations; 0: unlimited */
    } solve;
    struct {
        struct tr_job_list train;
        struct tr_job_list test;
        struct tr_job_list vocabulary; /* at most one file */
        struct tr_job_list folders;
        char *weight;       /* empty: equal weights */
        char *offset;       /* empty: offsets of 0 */
        char *group, *time; /* columns that decide which rows are held out together; empty: none */
        int format;
        int index_base;
        int on_error;
        uint64_t max_record;
        int partition;
        int order;
        uint64_t features;
        uint64_t header; /* number of lines of names; words auto, yes, no */
        char *delimiter, *quote, *escape, *comment, *decimal, *thousands; /* empty: to be found */
        uint64_t skip_lines;                                              /* words none, auto */
        int encoding;
        bool newlines;
        char *label;    /* none, first, last, auto, or a column */
        char *positive; /* empty: labels are unchanged */
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
        uint64_t servers; /* this and the next three numbers fit an int */
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
        double global_rate; /* TR_JOB_AUTO: 1/M, for M workers */
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
        struct tr_job_list metric;
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

    struct tr_job_stage *stage; /* stages that the job configures, in its order */
    size_t stages;
    struct tr_job_task *task;
    size_t tasks; /* 0: a plain job */
};

/* Formats a list of words for messages: «a, b or c». */
struct tr_shown tr_shown_words(const char *const *words);

/* Returns whether a word of the command line has the form section.key=value, otherwise it is a job file. */
bool tr_job_is_setting(const char *word);

/* Parses the text of a job file and n settings («section.key=value»), which override it. A task inherits the settings of the whole
 * job. Priority for a task, from the highest: settings of the task on the command line, of the whole job on the command line, of
 * the task in the file, of the whole job in the file. Name and output are not inherited.
 *
 * @param [in]  path  for messages and for the default name; it is not opened
 * @param [out] job   free it with tr_job_free()
 * @return TR_OK; TR_ERR_NO_INPUT: empty; TR_ERR_CONFIG: invalid; TR_ERR_USAGE: a setting without «=»
 */
int tr_job_parse(const char *text, size_t length, const char *path, int n, char *const overrides[],
                 struct tr_job **job);

/* Reads the text of a job file without parsing it; free it with free(). The text of TR_NO_JOB_FILE (all settings are on the command
 * line) is an empty job. TR_ERR_NO_INPUT; the message suggests e.yaml for e if it exists. */
#define TR_NO_JOB_FILE    "command line"
#define TR_STANDARD_INPUT "standard input" /* «-» on the command line */
int tr_job_read_text(const char *path, char **text, size_t *length);

void tr_job_free(struct tr_job *job); /* job may be NULL */

/* Does the same as tr_job_parse(), for any way of reading.
 *
 * @param [in] own  class that the program provides, which is the only possible class then; NULL: there is none
 */
int tr_job_parse_as(enum tr_job_reader reader, const struct tr_model_class *own, const char *text,
                    size_t length, const char *path, int n, char *const overrides[], struct tr_job **job);

/* Return the stage or the task of this name, which belong to the job; NULL if there is none. */
const struct tr_job_stage *tr_job_stage_of(const struct tr_job *job, const char *name);
const struct tr_job_task *tr_job_task_of(const struct tr_job *job, const char *name);

/* Checks that the class and the method use all settings of the job and of its tasks, and that the method has the stages.
 * TR_ERR_CONFIG otherwise. */
int tr_job_check_use(const struct tr_job *job);

/* The share of the training data that is held out for testing, between two fractions: data/split.h. to = 0: no record is held out.
 * For a fold of several, `fold` is its number from 1; folds = 0: it is no fold. */
struct tr_job_held_out {
    double from, to;
    int fold, folds;
};

/* Parses data.test: with «10%» a tenth of the training data is held out, with «fold 2/5» the second of five parts; nothing if it
 * names files. TR_ERR_CONFIG if the part does not exist. */
int tr_job_held_out(const struct tr_job *job, struct tr_job_held_out *held);

/* ---- classes of models ---- */

/* Built-in classes, defined in src/model. */
extern const struct tr_model_class *const tr_model_classes[];
extern const size_t tr_model_class_count;

/* Checks that the description of a class is complete and consistent.
 *
 * @param [in] place          start of the message of an error
 * @param [in] what           name in messages: "model.plugin ./libfm.so"
 * @param [in] trains_itself  the program replaces missing functions of the class
 * @return TR_OK or TR_ERR_CONFIG
 */
int tr_class_check(const char *place, const char *what, const struct tr_model_class *class,
                   bool trains_itself);

struct tr_plugin {
    char *name;                       /* name of the file, without its folder */
    uint64_t checksum, device, inode; /* XXH3 of the file; device and inode of the file */
    const struct tr_model_class *class;
};

/* Returns the plugin of a class; NULL if there is none. */
const struct tr_plugin *tr_plugin_of(const struct tr_model_class *class);

/* Returns the built-in class with this format of model files, or NULL. */
const struct tr_model_class *tr_model_class_of_format(const char *format);

/* Writes all keys with their values, and their places as comments; for tasks, the differences from the whole job. Reading it gives
 * an equal job. */
int tr_job_write_yaml(const struct tr_job *job, FILE *file);

/* Writes the job as a JSON object, for embedding: all lines except the first start with `indent` spaces; no newline after the last
 * brace. */
int tr_job_write_json(const struct tr_job *job, FILE *file, int indent);

/* Checks whether a run of an old job may resume with this job: only keys that may change during a run differ.
 *
 * @param [in]  old_yaml  the old job as written by tr_job_write_yaml()
 * @param [out] change    one line with the differences, except checkpoint.*; free it with free(); NULL if there are none. May be
 *                        NULL
 * @return TR_OK, or TR_ERR_CONFIG: another key differs (the message has the key, its old and new value, and its place), or the
 *         old job cannot be read any more
 */
int tr_job_compare(const struct tr_job *now, const char *old_yaml, char **change);

/* Returns whether a complete run of the old job may resume with this job, which has more epochs. */
bool tr_job_extends(const struct tr_job *now, const char *old_yaml);

/* Prints keys with kind, default and meaning.
 *
 * @param [in] filter  a section, a key, a class of models or «all»; NULL: names only
 * @return false if nothing has this name; then a suggestion is printed
 */
bool tr_job_help(FILE *file, const char *filter);

#endif
