/* A class of models: one description, from which all follows that is the same for every model.
 *
 * `trireme train` knows models only by this: job keys with their help and checks, model.h5, continuing, progress, metrics,
 * checkpoints, summary; `trireme predict`, `evaluate` and `inspect` too. A class is a constant. Those of Trireme itself are
 * in src/model; another is a shared object that defines
 *
 *     const tr_model_class tr_plugin = {.abi = TR_MODEL_ABI, .name = "fm", …};
 *
 * and is named by the job: model.plugin: ./libfm.so, relative to the job file; or by --plugin FILE. Models contain its name and
 * checksum, but only the user says which file is loaded.
 */
#ifndef TRIREME_MODEL_H
#define TRIREME_MODEL_H

#include "trireme/context.h"
#include "trireme/data.h"
#include "trireme/job.h"
#include "trireme/records.h"
#include "trireme/table.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Changes with this header. */
enum { TR_MODEL_ABI = 6 };

/* A value of solve.method. */
typedef struct tr_method {
    const char *name;
    const char *help;
    /* That the job may speak of under stages.NAME, ended by NULL; an empty list: check() says which; NULL: there are none */
    const char *const *stages;
    bool in_groups; /* workers of a group share parameters or rows: by default a group is a node's workers */
    bool in_step;   /* … under sync.mode bsp and auto alone */
    bool rotates;   /* parameters go round the workers of a group: under bsp by default one over all nodes */
    bool by_node;   /* … or one of each node, if all have several: such groups learn as much from passes */
} tr_method;

/* What a class, or some of its methods, makes of a key that is not its own: another default, or no use at all, and then a
 * job that says it is refused. */
typedef struct tr_rule {
    const char *key;     /* "sync.weight", or "local.*" for a section */
    const char *methods; /* NULL: all */
    const char *value;   /* the default; NULL: as it is */
    bool unused;
} tr_rule;

/* ---- what a model consists of ---- */

typedef struct tr_fields tr_fields;

enum tr_field_type {
    TR_FIELD_F32,
    TR_FIELD_F64,
    TR_FIELD_I32,
    TR_FIELD_I64,
    TR_FIELD_U8,
    TR_FIELD_U16,
    TR_FIELD_U32,
    TR_FIELD_U64
};

/* Whether the fields are read from a file, on one process without a context; otherwise all ranks write them. */
bool tr_fields_read(const tr_fields *fields);

/* Attributes of the file. Written is what the ranks have who write: what only the scheduler knows must have been told to
 * all (tr_model_tell()). A text that was read is to be freed by close(). */
int tr_field_count(tr_fields *fields, const char *name, uint64_t *value);
int tr_field_real(tr_fields *fields, const char *name, double *value);
int tr_field_text(tr_fields *fields, const char *name, char **value);

/* What is read may be missing in older files. */
bool tr_fields_have(const tr_fields *fields, const char *name);

/* The type of an array of reals that is read: TR_F32, or else TR_F64. TR_ERR_DATA where it is none. */
int tr_fields_dtype(const tr_fields *fields, const char *name, enum tr_dtype *dtype);

/* An array of rows × columns numbers (columns 0: of rows numbers), with what its rows and columns are. fill() gives rows
 * first .. first + n - 1: it is called by the rank that writes, piece by piece in ascending order, and by no other. Read
 * it becomes *values, to be freed by close(); values is not looked at when it is written. */
typedef int tr_fill_fn(void *model, uint64_t first, size_t n, void *values);
int tr_field_filled(tr_fields *fields, const char *name, enum tr_field_type type, uint64_t rows,
                    uint64_t columns, const char *meaning, tr_fill_fn *fill, void *values);

/* The same of an array that all ranks have, or that rank which writes. */
int tr_field_array(tr_fields *fields, const char *name, enum tr_field_type type, uint64_t rows,
                   uint64_t columns, const char *meaning, void *values);

/* The same of an array whose parts lie with the ranks: n rows here, first .. first + n - 1 of all; the parts of the ranks
 * follow each other in the order of ranks. */
int tr_field_parts(tr_fields *fields, const char *name, enum tr_field_type type, uint64_t rows,
                   uint64_t columns, uint64_t first, uint64_t n, const char *meaning, void *values);

/* The same of a table's rows first .. first + rows - 1, in the table's type. The columns are the width of its keys. */
int tr_field_table(tr_fields *fields, const char *name, enum tr_field_type type, tr_table *table,
                   uint64_t first, uint64_t rows, uint64_t columns, const char *meaning, void *values);

/* A list of texts, each in `length` bytes of the file, which fill() pads with zeros; read it is one piece, to be freed, where
 * text i begins at i × *width. */
int tr_field_texts(tr_fields *fields, const char *name, uint64_t n, size_t length, tr_fill_fn *fill,
                   char **texts, size_t *width);

/* n names of users or items, as numbers (u64) if all are whole numbers, as texts otherwise: `names` when they are written;
 * read they become *list, to be freed with tr_name_list_free(). */
int tr_field_names(tr_fields *fields, const char *name, const tr_names *names, uint64_t n,
                   const char *meaning, struct tr_name_list *list);
void tr_name_list_free(struct tr_name_list *list);

/* For fill functions: values of keys first .. first + n - 1 of a table, as they are after the stages; called by one rank,
 * outside tr_run(). */
int tr_table_read(tr_table *table, tr_key first, size_t n, void *values);

/* Tells all ranks numbers that the scheduler knows, its last evaluation say. All ranks, outside tr_run(). */
int tr_model_tell(tr_context *tr, size_t n, double *values);

/* For snapshot functions: the scheduler's latest evaluation; and n numbers of each worker that only their sums over all
 * workers matter of. */
int tr_model_keep_evaluation(tr_snapshot *snapshot, tr_evaluation *evaluation);
int tr_model_keep_sums(const tr_worker *me, tr_snapshot *snapshot, const char *name, size_t n, double *sums);

/* Reads a model of the job's class, from a run's folder or a file: on this process alone. */
int tr_model_load(tr_context *tr, const char *path, void **model);
void tr_model_unload(tr_context *tr, void **model); /* NULL inside is fine */

/* The same on rank 0, which works, of a model whose columns are those of the job's training data, categories among them
 * (TR_DATA_CODES): and what is known of their values. All ranks; agreed on. On other ranks both are NULL. */
typedef struct tr_saved_values tr_saved_values;
int tr_model_load_coded(tr_context *tr, const char *path, void **model, tr_saved_values **values);
void tr_saved_values_close(tr_saved_values **values); /* NULL inside is fine */

/* The number that a value of a category of the model has in the training data. TR_ERR_DATA: it does not occur there. */
int tr_saved_value_number(const tr_saved_values *values, uint64_t column, uint64_t value, uint32_t *number);

/* Rows that rows of data lie around; of column j the files say first_index + j. */
typedef struct {
    uint64_t n, columns, first_index;
    float *value; /* n × columns */
} tr_saved_centres;

/* The same of a model of any class that has centres; centres->value is to be freed. */
int tr_model_load_centres(tr_context *tr, const char *path, tr_saved_centres *centres);

/* A number of the outcome for summary.json, 16 at most; the scheduler's count. The name is kept, not copied: "test_auc" and
 * the others that are always there, or one more. */
int tr_report_figure(tr_context *tr, const char *name, double value);

/* ---- what is asked of a model that has been read ---- */

typedef struct tr_query tr_query;

enum tr_asked { TR_PREDICT = 1, TR_EVALUATE = 2, TR_INSPECT = 4 };
enum { TR_ALONE = 8 }; /* of a flag of inspect: nothing but what it asks for is shown */

/* A word of the command line that means something to the class. */
typedef struct tr_flag {
    const char *name; /* "--distance" */
    const char
        *value; /* what stands behind it, for help: "N" is a number from least to most; NULL: nothing */
    unsigned commands; /* that know it: TR_PREDICT | TR_EVALUATE | TR_INSPECT; or TR_ALONE, too */
    long least, most;
    const char *help;
} tr_flag;

enum tr_asked tr_query_command(const tr_query *query);
bool tr_query_given(const tr_query *query, const char *flag);
const char *tr_query_text(const tr_query *query, const char *flag);            /* NULL: not given */
long tr_query_number(const tr_query *query, const char *flag, long otherwise); /* … otherwise */

/* The files behind the model's, so many. */
char *const *tr_query_files(const tr_query *query, size_t *n);

/* Ready functions say which rows they want, of so many columns, the first of which the files call first_index; and what
 * comes out for each row: a column of numbers, with so many significant digits (0: a whole number, TR_SHORTEST: as few as
 * tell an f32, TR_AS_LABEL: the same, or the name of the class if labels have names). */
enum { TR_SHORTEST = -1, TR_AS_LABEL = -2 };
void tr_query_rows(tr_query *query, enum tr_row_form form, uint64_t columns, uint64_t first_index);
void tr_query_label(tr_query *query,
                    int label); /* csv: TR_LABEL_…, in place of what the job of the model says */
int tr_query_output(tr_query *query, const char *name, int digits);

/* What a label is called, and a column of the data («age», «city=Berlin»): where the files have no names, the number of the label,
 * and of the column from first_index on. */
enum { TR_LABEL_TEXT = 96 };
void tr_query_label_text(const tr_query *query, float label, char text[TR_LABEL_TEXT]);
void tr_query_key_text(const tr_query *query, uint64_t key, uint64_t first_index, char text[TR_LABEL_TEXT]);

/* What a value of a column is called that was trained on by TR_DATA_CODES. */
void tr_query_value_text(const tr_query *query, uint64_t column, uint64_t value, char text[TR_LABEL_TEXT]);

/* Prints to where predictions go. TR_ERR_IO. */
int tr_print(tr_query *query, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* One result of evaluate, as printf would write it, and as a number for --json. Without a format for --json only; a number
 * that is none is shown as not defined. */
int tr_figure(tr_query *query, const char *name, double value, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* A line of a table among these results, for people alone. */
int tr_figure_text(tr_query *query, const char *name, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* A curve through n points, x and y of each, for --plot: between 0 and 1. What is given is copied. */
int tr_figure_curve(tr_query *query, const char *name, const char *x, const char *y, size_t n,
                    double (*point)[2]);

/* One line of inspect. */
void tr_line(tr_query *query, const char *name, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* ---- memory ---- */

/* The data of a job before they are read, as the beginnings of the files show them: good to a factor of two. */
typedef struct tr_data_size {
    const char *format; /* "libsvm" */
    double text;        /* bytes, compressed files as they will be */
    double features;    /* libsvm, csv */
    double values;      /* libsvm: different numbers that features have, 256 at most */
    double records;     /* rows of csv, lines of ratings and docword */
    double users, items;
    double words, tokens;
    int workers, servers;
    int node_workers;  /* of the node that has most of them */
    int group_workers; /* of each group */
    double occurring;  /* features that are not 0 in some row */
    double frequent;   /* … in TR_FREQUENT_ROWS rows or more */
} tr_data_size;
enum { TR_FREQUENT_ROWS = 20 };

/* Bytes. What a server has lies in memory of its node, and the workers there read it where it is. */
typedef struct tr_memory {
    double rows;           /* of a worker's part of the data, and what is known of each of these rows */
    double worker, server; /* of one of each, besides */
    double node;           /* that the workers of a node share besides, and all come to use */
    double group;          /* the same of a group that lies on one node */
} tr_memory;

/* ---- the class ---- */

typedef struct tr_model_class {
    int abi;                  /* TR_MODEL_ABI */
    const char *name;         /* "kmeans" */
    const char *const *types; /* values of model.type that it serves, ended by NULL */
    const char *help;         /* what it learns, for help */
    const char *noun;         /* "clusters": a model of this class, in messages */
    const char *format;       /* of model.h5: "trireme-kmeans" */
    int format_version;
    const char *text_begins; /* how files of text begin that read_text() reads; NULL: there are none */
    const char *const
        *data_formats;   /* values of data.format that it reads, ended by NULL; the first is the default */
    size_t options_size; /* of the struct of options */
    const tr_option *options;         /* ends with a name of NULL; NULL: none */
    const tr_method *methods;         /* ends with a name of NULL; the first is the default */
    const tr_rule *rules;             /* ends with a key of NULL; NULL: none */
    const char *predicts, *evaluates; /* what a line of predict says, and what evaluate measures, for help */
    const tr_flag *flags;             /* ends with a name of NULL; NULL: none */
    size_t model_size;                /* of the struct of a model, which is zeros at first */

    /* Training. All ranks call open, train and fields. An outcome of open that is not agreed on (tr_agree()) becomes so
     * behind it. */

    /* Whether the settings suit each other; before data are read. NULL: they do. */
    int (*check)(const tr_job *job, const void *options);
    /* Reads the data and makes tables. */
    int (*open)(tr_context *tr, const void *options, void *model);
    /* Runs the stages. */
    int (*train)(void *model);
    /* Lists what model.h5 has of the model, to be written or read; of a plugin also behind open, for the names alone. */
    int (*fields)(void *model, tr_fields *fields);
    /* The same from a file of text; *type becomes one of the types. May be NULL. */
    int (*read_text)(void *model, const char *path, const char **type);
    /* Gives back what open, train and reading fields have made; a model of zeros is fine. */
    void (*close)(void *model);
    /* What training takes; NULL: nothing is said of it. */
    void (*memory)(const tr_job *job, const void *options, const tr_data_size *size, tr_memory *memory);

    /* A model that has been read, on one process. */

    /* Before predict and evaluate. */
    int (*ready)(void *model, tr_query *query);
    /* Numbers for some rows: rows.n × as many as there are outputs. */
    int (*predict)(void *model, tr_query *query, const tr_records *records, double *out);
    /* Adds rows, and what predict() has said of them, to what is known of them; in the end it all is told by tr_figure(). */
    int (*evaluate)(void *model, tr_query *query, const tr_records *records, const double *out);
    int (*figures)(void *model, tr_query *query, uint64_t rows);
    /* Whether the mean of what models of these jobs predict, with a flag of predict (*flag; NULL: none), is what the model of
     * job *by might have predicted; TR_ERR_CONFIG, which says why not. Then evaluate() looks at labels only. NULL: it is not. */
    int (*mean)(const tr_job *const *jobs, size_t n, const char **flag, size_t *by);
    /* In place of these four, for models that are not asked by rows: reads the files itself, and prints by tr_print() or
     * tells by tr_figure(). NULL: by rows. */
    int (*answer)(void *model, tr_query *query);
    /* The keys of its table, and their type, for inspect --servers; NULL: there is no such. with: "the bias", or NULL. */
    uint64_t (*keys)(const void *model, enum tr_dtype *dtype, const char **with);
    /* Tells by tr_line(), and prints, what is worth knowing; NULL: what the fields are. */
    int (*inspect)(void *model, tr_query *query);
    /* Rows that K-means may begin with: model.init. NULL: it has none. */
    int (*centres)(const void *model, tr_saved_centres *centres);
} tr_model_class;

/* ---- a program with a main of its own ---- */

/* As tr_open(), for a program that brings a class: the only one of its jobs, so that a key which is neither the engine's nor
 * the class's is an error, and so is one that the rules say is unused. Of the functions check() is called, and fields() by
 * tr_model_save(); those that are missing are what main() does. The class is not copied. */
int tr_open_as(int *argc, char ***argv, const tr_model_class *class, tr_context **tr);

/* The struct of options of the job's class, filled in; NULL if that has none. */
const void *tr_options(const tr_context *tr);

/* Writes the model, as the class's fields() lists it, into model.h5 of the run's folder. All ranks, behind the stages; agreed
 * on. `trireme predict --plugin` and its sisters read it where a shared object has the same class. */
int tr_model_save(tr_context *tr, void *model);

#ifdef __cplusplus
}
#endif
#endif
