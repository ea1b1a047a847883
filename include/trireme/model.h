/* Classes of models.
 *
 * A class is one constant description of a kind of model. All commands use models through it: job keys with their help and
 * checks, model.h5, continued training, progress, metrics, checkpoints and summary of `trireme train`; `trireme predict`,
 * `evaluate` and `inspect`. The classes of Trireme are in src/model. Another class is a shared object that defines tr_plugin.
 * The job names it by model.plugin: ./libfm.so (relative to the job file), the command line by --plugin FILE. A model file
 * contains the name and the checksum of the plugin, but only the user determines which file is loaded.
 *
 * Example (docs/library.md describes a complete plugin):
 *
 *     static int fields(void *model, tr_fields *f)
 *     {
 *         struct fm *m = model;
 *         TR_TRY(tr_field_count(f, "columns", &m->columns));
 *         return tr_field_table(f, "weights", TR_FIELD_F32, m->table, 0, m->columns, 1, "weight of each feature", &m->weight);
 *     }
 *
 *     const tr_model_class tr_plugin = {.abi = TR_MODEL_ABI, .name = "fm", .fields = fields, ...};
 *
 * Unless stated otherwise, functions with a status return TR_OK, or an error whose text they have set (tr_fail()).
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

/* Version of this interface. It increases when a declaration of this header changes. */
enum { TR_MODEL_ABI = 6 };

/* A value of solve.method. */
typedef struct tr_method {
    const char *name;
    const char *help;
    /* names of the stages that the job may configure under stages.NAME, ended by NULL; an empty list: check() verifies the
     * names; NULL: the method has no stages */
    const char *const *stages;
    bool
        in_groups; /* workers of a group share parameters or rows: by default, the workers of a node are a group */
    bool in_step; /* in_groups applies to sync.mode bsp and auto only */
    bool rotates; /* parameters rotate in a group: under bsp, by default, one group spans all nodes */
    bool by_node; /* rotates: one group per node instead, if all nodes have several workers */
} tr_method;

/* How a class, or some of its methods, treats a key of the engine: another default, or not used. A job that sets an unused key
 * is refused. */
typedef struct tr_rule {
    const char *key;     /* "sync.weight", or "local.*" for a section */
    const char *methods; /* methods to which the rule applies; NULL: all */
    const char *value;   /* default; NULL: unchanged */
    bool unused;
} tr_rule;

/* ---- members of a model ----
 *
 * The functions tr_field_*() write a member to model.h5 or read it, see tr_fields_read(). fields() of the class calls them in
 * the same order in both directions. `name` is the name in the file. Writing: all ranks that call fields(). Reading: one
 * process without a context. Memory that is allocated for a value that is read belongs to the model: close() frees it.
 * Errors: TR_ERR_DATA if a member is missing in the file or has another type or shape; TR_ERR_IO, TR_ERR_SYSTEM.
 */

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

/* Returns true if the members are read from a file, false if all ranks write them. */
bool tr_fields_read(const tr_fields *fields);

/* Write or read an attribute of the file.
 *
 * @param [in,out] value  must be equal on all ranks when it is written; share values that only the scheduler has by
 *                        tr_model_tell() first
 */
int tr_field_count(tr_fields *fields, const char *name, uint64_t *value);
int tr_field_real(tr_fields *fields, const char *name, double *value);
int tr_field_text(tr_fields *fields, const char *name, char **value);

/* Returns whether the file that is read has a member. Use it for members that older files do not have. */
bool tr_fields_have(const tr_fields *fields, const char *name);

/* Returns the element type of an array of reals that is read.
 *
 * @param [out] dtype  TR_F32 or TR_F64
 * @return TR_OK, or TR_ERR_DATA if it is not an array of reals
 */
int tr_fields_dtype(const tr_fields *fields, const char *name, enum tr_dtype *dtype);

/* Produces rows first .. first + n - 1 of an array that is written. Called by the writing rank only, in ascending order.
 *
 * @param [out] values  n × columns numbers of the type of the field
 */
typedef int tr_fill_fn(void *model, uint64_t first, size_t n, void *values);

/* Writes or reads an array whose rows are produced by a function.
 *
 * @param [in]  type     element type in the file and in memory
 * @param [in]  rows     number of rows
 * @param [in]  columns  number of columns; 0: the array has one dimension
 * @param [in]  meaning  description of rows and columns, stored in the file
 * @param [in]  fill     used when the array is written
 * @param [out] values   address of a pointer to new memory, rows × columns numbers, when the array is read; otherwise ignored
 */
int tr_field_filled(tr_fields *fields, const char *name, enum tr_field_type type, uint64_t rows,
                    uint64_t columns, const char *meaning, tr_fill_fn *fill, void *values);

/* As tr_field_filled(), for an array in memory.
 *
 * @param [in,out] values  address of a pointer to rows × columns numbers; used when writing on the writing rank (rank 0)
 */
int tr_field_array(tr_fields *fields, const char *name, enum tr_field_type type, uint64_t rows,
                   uint64_t columns, const char *meaning, void *values);

/* As tr_field_array(), for an array that is distributed over the ranks in the order of ranks.
 *
 * @param [in] first, n  this rank has the rows first .. first + n - 1
 */
int tr_field_parts(tr_fields *fields, const char *name, enum tr_field_type type, uint64_t rows,
                   uint64_t columns, uint64_t first, uint64_t n, const char *meaning, void *values);

/* As tr_field_filled(), for the keys first .. first + rows - 1 of a table.
 *
 * @param [in] type     element type of the table
 * @param [in] columns  width of the keys
 */
int tr_field_table(tr_fields *fields, const char *name, enum tr_field_type type, tr_table *table,
                   uint64_t first, uint64_t rows, uint64_t columns, const char *meaning, void *values);

/* Writes or reads a list of texts of fixed length.
 *
 * @param [in]  n       number of texts
 * @param [in]  length  bytes of each text in the file; fill() pads with zeros
 * @param [out] texts   when read: one block of memory, text i starts at byte i × *width
 * @param [out] width   when read: distance of two texts in bytes
 */
int tr_field_texts(tr_fields *fields, const char *name, uint64_t n, size_t length, tr_fill_fn *fill,
                   char **texts, size_t *width);

/* Writes or reads names of users or items: as numbers (u64) if all names are whole numbers, as texts otherwise.
 *
 * @param [in]  names  the names that are written; ignored when reading
 * @param [in]  n      number of names
 * @param [out] list   the names that were read; free them with tr_name_list_free()
 */
int tr_field_names(tr_fields *fields, const char *name, const tr_names *names, uint64_t n,
                   const char *meaning, struct tr_name_list *list);
void tr_name_list_free(struct tr_name_list *list);

/* A member in a list, from which model.h5, checkpoints and messages between ranks follow.
 *
 *     const tr_member list[] = {{"clusters", TR_FIELD_U64, .value = &m->clusters},
 *                               {"inertia", TR_FIELD_F64, &m->last.objective, .of_scheduler = true},
 *                               {"centres", TR_FIELD_F32, &m->centre, "a row per centre", m->clusters, .columns = m->columns}};
 *     TR_TRY(tr_field_members(fields, list, sizeof list / sizeof *list));
 */
typedef struct tr_member {
    const char *name;
    enum tr_field_type type; /* attributes: TR_FIELD_U64 or TR_FIELD_F64 */
    void *value;             /* address of an attribute; of an array, address of the pointer to it */
    const char *meaning;     /* of an array; NULL: an attribute */
    uint64_t rows, columns;  /* of an array; columns 0: it has one dimension */
    tr_fill_fn *fill;        /* array: NULL if it is in memory */
    bool absent;             /* this model does not have the member */
    bool of_scheduler;       /* attribute: the value of rank 0 is sent to all ranks before it is written */
} tr_member;

/* Writes or reads all members of a list: see tr_field_count(), tr_field_real(), tr_field_array(), tr_field_filled(). */
int tr_field_members(tr_fields *fields, const tr_member *list, size_t n);

/* For snapshot functions: lists the members as tr_snapshot_common() does. When the run resumes, arrays are replaced by new memory.
 * The memory of arrays of bytes must have a multiple of 4 bytes. */
int tr_members_keep(tr_snapshot *snapshot, const tr_member *list, size_t n);

/* Sends the members of rank 0 to all ranks. Arrays that are NULL are allocated. All ranks.
 *
 * @return the agreed status
 */
int tr_members_send(tr_context *tr, const tr_member *list, size_t n);

/* Reads the final values of keys first .. first + n - 1 of a table, for fill functions. One rank, outside tr_run().
 *
 * @param [out] values  n × width elements of the type of the table
 */
int tr_table_read(tr_table *table, tr_key first, size_t n, void *values);

/* Sends numbers of the scheduler to all ranks, for example its last evaluation. All ranks, outside tr_run().
 *
 * @param [in,out] values  n numbers; those of rank 0 replace those of the other ranks
 */
int tr_model_tell(tr_context *tr, size_t n, double *values);

/* For snapshot functions: lists the latest evaluation of the scheduler. All ranks that take part.
 *
 * @param [in,out] evaluation  copied from, or restored to, rank 0
 */
int tr_model_keep_evaluation(tr_snapshot *snapshot, tr_evaluation *evaluation);

/* For snapshot functions: lists n numbers of each worker, for models that use only their sums over all workers. A run that
 * resumes on another number of workers keeps the sums. All ranks that take part.
 *
 * @param [in,out] sums  n numbers of this worker
 */
int tr_model_keep_sums(const tr_worker *me, tr_snapshot *snapshot, const char *name, size_t n, double *sums);

/* ---- models of earlier runs ---- */

/* Reads a model of the class of the job, on the calling process only. Any rank.
 *
 * @param [in]  path   folder of a run, or a file
 * @param [out] model  a struct of the class; free it with tr_model_unload()
 * @return TR_OK; TR_ERR_NO_INPUT if the file cannot be opened; TR_ERR_DATA if it has another class
 */
int tr_model_load(tr_context *tr, const char *path, void **model);
void tr_model_unload(tr_context *tr, void **model); /* *model may be NULL */

/* Categories of a saved model, mapped to the categories of the training data. */
typedef struct tr_saved_values tr_saved_values;

/* Reads a model whose columns are those of the training data, with categories as codes (TR_DATA_CODES). All ranks; rank 0 must
 * be a worker and receives the model.
 *
 * @param [out] model, values  NULL on other ranks
 * @return the agreed status
 */
int tr_model_load_coded(tr_context *tr, const char *path, void **model, tr_saved_values **values);
void tr_saved_values_close(tr_saved_values **values); /* *values may be NULL */

/* Maps a category of the model to the training data. Rank 0.
 *
 * @param [in]  column, value  column and code of the category in the model
 * @param [out] number         its code in the training data
 * @return TR_OK, or TR_ERR_DATA if the category does not occur in the training data
 */
int tr_saved_value_number(const tr_saved_values *values, uint64_t column, uint64_t value, uint32_t *number);

/* Centres of clusters. Column j has the index first_index + j in the files. */
typedef struct {
    uint64_t n, columns, first_index;
    float *value; /* n × columns */
} tr_saved_centres;

/* Reads the centres of a model of any class that has some, on the calling process only. Any rank.
 *
 * @param [out] centres  free centres->value with free()
 */
int tr_model_load_centres(tr_context *tr, const char *path, tr_saved_centres *centres);

/* Adds a number to summary.json. All ranks or the scheduler only; the values of the scheduler are used. At most 16 numbers.
 *
 * @param [in] name  a standard name ("test_auc", ...) or another one; not copied, must remain valid
 */
int tr_report_figure(tr_context *tr, const char *name, double value);

/* ---- queries: predict, evaluate and inspect, on one process ---- */

typedef struct tr_query tr_query;

/* Commands that ask a model. */
enum tr_asked { TR_PREDICT = 1, TR_EVALUATE = 2, TR_INSPECT = 4 };
enum { TR_ALONE = 8 }; /* for flags of inspect: show the output of this flag only */

/* A command-line option of the class. */
typedef struct tr_flag {
    const char *name; /* "--distance" */
    const char
        *value; /* placeholder of its value in the help: "N" is a number from least to most; NULL: no value */
    unsigned commands; /* commands that accept it: a set of enum tr_asked, and TR_ALONE */
    long least, most;
    const char *help;
} tr_flag;

/* Return the command, whether a flag was given, and its value: text or NULL if not given; number or `otherwise`. */
enum tr_asked tr_query_command(const tr_query *query);
bool tr_query_given(const tr_query *query, const char *flag);
const char *tr_query_text(const tr_query *query, const char *flag);
long tr_query_number(const tr_query *query, const char *flag, long otherwise);

/* Returns the data files of the command line.
 *
 * @param [out] n  their number
 */
char *const *tr_query_files(const tr_query *query, size_t *n);

/* Values of `digits`: the fewest digits that identify an f32; the same, or the name of the label if labels have names. */
enum { TR_SHORTEST = -1, TR_AS_LABEL = -2 };

/* Sets the form of the rows that predict() and evaluate() receive. For ready().
 *
 * @param [in] columns      number of columns
 * @param [in] first_index  index of the first column in the files, 0 or 1
 */
void tr_query_rows(tr_query *query, enum tr_row_form form, uint64_t columns, uint64_t first_index);

/* Sets the label column of csv files (TR_LABEL_...), instead of the column that the job of the model names. For ready(). */
void tr_query_label(tr_query *query, int label);

/* Adds a column to the output of predict. For ready().
 *
 * @param [in] digits  significant digits; 0: whole numbers; TR_SHORTEST; TR_AS_LABEL
 */
int tr_query_output(tr_query *query, const char *name, int digits);

/* Return the name of a label and of a column of the data («age», «city=Berlin»). Without names in the files: the number of
 * the label, and the number of the column counted from first_index.
 *
 * @param [out] text  a terminated string, truncated if necessary
 */
enum { TR_LABEL_TEXT = 96 };
void tr_query_label_text(const tr_query *query, float label, char text[TR_LABEL_TEXT]);
void tr_query_key_text(const tr_query *query, uint64_t key, uint64_t first_index, char text[TR_LABEL_TEXT]);

/* Returns the name of a category of a column that was trained with TR_DATA_CODES. */
void tr_query_value_text(const tr_query *query, uint64_t column, uint64_t value, char text[TR_LABEL_TEXT]);

/* Prints to the output of the command (--output or stdout).
 *
 * @return TR_OK, or TR_ERR_IO if the output cannot be written
 */
int tr_print(tr_query *query, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Adds a result to the output of evaluate.
 *
 * @param [in] name    name of the metric
 * @param [in] value   for --json; NaN is shown as not defined
 * @param [in] format  text for the terminal, as of printf; NULL: --json only
 */
int tr_figure(tr_query *query, const char *name, double value, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Adds a line of text to the results of evaluate; --json does not contain it. */
int tr_figure_text(tr_query *query, const char *name, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Adds a curve to the results of evaluate, for --plot.
 *
 * @param [in] name, x, y  name of the curve and of the axes; copied
 * @param [in] point       n points (x, y), between 0 and 1; copied
 */
int tr_figure_curve(tr_query *query, const char *name, const char *x, const char *y, size_t n,
                    double (*point)[2]);

/* Prints a line «name value» of inspect. */
void tr_line(tr_query *query, const char *name, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* ---- estimate of memory ---- */

/* Size of the data of a job, estimated from the beginnings of the files, accurate within a factor of two. */
typedef struct tr_data_size {
    const char *format; /* "libsvm" */
    double text;        /* bytes; of compressed files the uncompressed size */
    double features;    /* libsvm, csv */
    double values;      /* libsvm: distinct values of a feature, at most 256 */
    double records;     /* rows of csv, lines of ratings and docword */
    double users, items;
    double words, tokens;
    int workers, servers;
    int node_workers;  /* of the node with the most workers */
    int group_workers; /* of each group */
    double occurring;  /* features that are not 0 in at least one row */
    double frequent;   /* features that are not 0 in TR_FREQUENT_ROWS rows or more */
} tr_data_size;
enum { TR_FREQUENT_ROWS = 20 };

/* Memory in bytes. The parameters of a server are in shared memory of its node, where its workers read them directly. */
typedef struct tr_memory {
    double rows;           /* rows of a worker, and the state that the model has for each row */
    double worker, server; /* additional memory of one worker, of one server */
    double node;           /* additional memory that the workers of a node share and use completely */
    double group;          /* the same for a group within one node */
} tr_memory;

/* ---- the class ---- */

typedef struct tr_model_class {
    int abi;                  /* TR_MODEL_ABI */
    const char *name;         /* "kmeans" */
    const char *const *types; /* its values of model.type, ended by NULL */
    const char *help;         /* one line for help: what the model learns */
    const char *noun;         /* name of a model of this class in messages: "clusters" */
    const char *format;       /* of model.h5: "trireme-kmeans" */
    int format_version;
    const char *text_begins; /* first bytes of the text files that read_text() reads; NULL: none */
    const char *const
        *data_formats;        /* supported values of data.format, ended by NULL; the first is the default */
    size_t options_size;      /* of the struct of options */
    const tr_option *options; /* ends with a name of NULL; NULL: none */
    const tr_method *methods; /* ends with a name of NULL; the first is the default */
    const tr_rule *rules;     /* ends with a key of NULL; NULL: none */
    const char *predicts, *evaluates; /* for help: content of a line of predict, metrics of evaluate */
    const tr_flag *flags;             /* ends with a name of NULL; NULL: none */
    size_t model_size;                /* of the struct of a model, which is zeroed before use */

    /* Training. All ranks call open(), train() and fields(). The engine calls tr_agree() with the status of open(). */

    /* Checks that the settings fit together, before data are read. NULL: no check. */
    int (*check)(const tr_job *job, const void *options);
    /* Reads the data and creates tables. */
    int (*open)(tr_context *tr, const void *options, void *model);
    /* Runs the stages. */
    int (*train)(void *model);
    /* Lists the members of the model in model.h5, to write or to read them. For plugins it is also called after open(), to
     * check the names. */
    int (*fields)(void *model, tr_fields *fields);
    /* Reads a model from a text file and sets *type to one of `types`. May be NULL. */
    int (*read_text)(void *model, const char *path, const char **type);
    /* Frees everything that open(), train() and fields() have allocated; the model may be all zeros. */
    void (*close)(void *model);
    /* Estimates the memory of training. NULL: no estimate. */
    void (*memory)(const tr_job *job, const void *options, const tr_data_size *size, tr_memory *memory);

    /* Queries of a model that has been read, on one process. */

    /* Prepares predict() and evaluate(): calls tr_query_rows() and tr_query_output(). */
    int (*ready)(void *model, tr_query *query);
    /* Computes the outputs of some rows: out has rows.n × outputs numbers. */
    int (*predict)(void *model, tr_query *query, const tr_records *records, double *out);
    /* Adds rows and their outputs to the statistics of the evaluation. */
    int (*evaluate)(void *model, tr_query *query, const tr_records *records, const double *out);
    /* Reports the results of the evaluation by tr_figure(). */
    int (*figures)(void *model, tr_query *query, uint64_t rows);
    /* Checks that the mean of the predictions of n models, given their jobs, is a valid prediction: of the model of job *by,
     * with the flag *flag of predict (NULL: none). TR_ERR_CONFIG with the reason otherwise. evaluate() must then use labels
     * and outputs only. NULL: means are not supported. */
    int (*mean)(const tr_job *const *jobs, size_t n, const char **flag, size_t *by);
    /* Replaces these four for models that do not predict row by row: reads the files itself, and reports by tr_print() or
     * tr_figure(). NULL: row by row. */
    int (*answer)(void *model, tr_query *query);
    /* Returns the number of keys of its table, for inspect --servers; *dtype: their type; *with: additional content ("the
     * bias") or NULL. NULL: not supported. */
    uint64_t (*keys)(const void *model, enum tr_dtype *dtype, const char **with);
    /* Prints a description of the model by tr_line() and tr_print(). NULL: inspect lists the members. */
    int (*inspect)(void *model, tr_query *query);
    /* Returns centres from which K-means can start (model.init). NULL: the class has none. */
    int (*centres)(const void *model, tr_saved_centres *centres);
} tr_model_class;

/* ---- programs with their own main() ---- */

/* As tr_open(), for a program that has its own class. Its jobs may contain keys of the engine and of this class only; other
 * keys, and keys that a rule marks as unused, are errors. The engine calls check(), and fields() in tr_model_save(); main()
 * does the rest. All ranks.
 *
 * @param [in]  model_class  not copied, must remain valid
 * @param [out] tr           close it with tr_close()
 */
int tr_open_as(int *argc, char ***argv, const tr_model_class *model_class, tr_context **tr);

/* Returns the options of the class of the job, or NULL if the class has none. Any rank. */
const void *tr_options(const tr_context *tr);

/* Writes the members that fields() lists to model.h5 in the folder of the run. All ranks, after the stages. `trireme predict`,
 * `evaluate` and `inspect` read the file with --plugin and a shared object of the same class.
 *
 * @return the agreed status
 */
int tr_model_save(tr_context *tr, void *model);

#ifdef __cplusplus
}
#endif
#endif
