/* Model classes.
 *
 * A class is a constant struct tr_model_class, which describes a kind of model. From it follow job keys with their help and checks,
 * model.h5, continued training, progress, metrics, checkpoints and summary of `trireme train`, and `trireme predict`, `evaluate`
 * and `inspect`. The classes of Trireme are in src/model. A plugin is a shared object that defines another class, tr_plugin. The
 * job names the plugin by model.plugin: ./libfm.so (relative to the job file), the command line by --plugin FILE. A model file
 * contains the name and the checksum of its plugin, but the user must always name the file to load.
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
enum { TR_MODEL_ABI = 8 };

/* A value of solve.method. */
typedef struct tr_method {
    const char *name;
    const char *help;
    /* Names of the stages that the job may configure under stages.NAME, ended by NULL. If the list is empty, check() of the class
     * verifies the names. NULL: the method has no stages. */
    const char *const *stages;
    /* The members below select the default groups of workers. */
    bool in_groups; /* workers of a group share parameters or rows: the workers of a node form a group */
    bool in_step;   /* in_groups applies to sync.mode bsp and auto only */
    bool rotates;   /* parameters rotate in a group: under bsp one group spans all nodes */
    bool by_node;   /* with rotates: one group per node instead, if all nodes have several workers */
} tr_method;

/* A rule that applies to a key of the engine for a class or some of its methods: the key has another default, or is not used. A job
 * that sets an unused key is refused. */
typedef struct tr_rule {
    const char *key;     /* for example "sync.weight", or "local.*" for a section */
    const char *methods; /* methods to which the rule applies; NULL: all methods */
    const char *value;   /* default value; NULL: the default is unchanged */
    bool unused;         /* the key is not used */
} tr_rule;

/* ---- members of a model ----
 *
 * The functions tr_field_*() write a member to model.h5, or read it if tr_fields_read() returns true. tr_model_class.fields() calls
 * them, in the same order in both cases. To write, all ranks call it; to read, one process without a context. `name` is the name of
 * the member in the file. A function that reads a value allocates its memory; tr_model_class.close() frees it. Errors: TR_ERR_DATA
 * if a member is missing in the file or has another type or shape; TR_ERR_IO, TR_ERR_SYSTEM.
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
 * @param [in,out] value  must be equal on all ranks when it is written: use tr_model_tell() if only the scheduler has it
 */
int tr_field_count(tr_fields *fields, const char *name, uint64_t *value);
int tr_field_real(tr_fields *fields, const char *name, double *value);
int tr_field_text(tr_fields *fields, const char *name, char **value);

/* Returns whether the file that is read contains a member. Use it for members that were added in a later version of the format. */
bool tr_fields_have(const tr_fields *fields, const char *name);

/* Returns the element type of an array of reals that is read.
 *
 * @param [out] dtype  TR_F32 or TR_F64
 * @return TR_OK, or TR_ERR_DATA if it is not an array of reals
 */
int tr_fields_dtype(const tr_fields *fields, const char *name, enum tr_dtype *dtype);

/* A function that produces rows first .. first + n - 1 of an array that is written. It is called on the writing rank only, for
 * ascending rows.
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

/* A member of a model, as an entry of a list that tr_field_members(), tr_members_keep() and tr_members_send() use.
 *
 *     const tr_member list[] = {{"clusters", TR_FIELD_U64, .value = &m->clusters},
 *                               {"inertia", TR_FIELD_F64, &m->last.objective, .of_scheduler = true},
 *                               {"centres", TR_FIELD_F32, &m->centre, "a row per centre", m->clusters, .columns = m->columns}};
 *     TR_TRY(tr_field_members(fields, list, sizeof list / sizeof *list));
 */
typedef struct tr_member {
    const char *name;
    enum tr_field_type type; /* for an attribute TR_FIELD_U64 or TR_FIELD_F64 */
    void *value;             /* address of an attribute; for an array, address of the pointer to the array */
    const char *meaning;     /* array: description of rows and columns; NULL: the member is an attribute */
    uint64_t rows, columns;  /* array: its shape; columns = 0: one dimension */
    tr_fill_fn *fill;        /* array: produces the rows; NULL: *value is the array in memory */
    bool absent;             /* this model does not have the member */
    bool of_scheduler;       /* attribute: the value of rank 0 is sent to all ranks before it is written */
} tr_member;

/* Writes or reads all members of a list: see tr_field_count(), tr_field_real(), tr_field_array(), tr_field_filled(). */
int tr_field_members(tr_fields *fields, const tr_member *list, size_t n);

/* For snapshot functions: lists the members as tr_snapshot_common() does. When the run resumes, arrays are allocated again. The
 * memory of an array must be a multiple of 4 bytes. */
int tr_members_keep(tr_snapshot *snapshot, const tr_member *list, size_t n);

/* Sends the members of rank 0 to all ranks. Arrays that are NULL are allocated. All ranks must call it.
 *
 * @return the agreed status
 */
int tr_members_send(tr_context *tr, const tr_member *list, size_t n);

/* Reads the final values of keys first .. first + n - 1 of a table, for use in fill functions (tr_fill_fn). Any rank may call it
 * alone, outside tr_run().
 *
 * @param [out] values  n × width elements of the type of the table
 */
int tr_table_read(tr_table *table, tr_key first, size_t n, void *values);

/* Sends numbers of the scheduler to all ranks, for example its last evaluation. All ranks must call it, outside tr_run().
 *
 * @param [in,out] values  n numbers; those of rank 0 replace those of the other ranks
 */
int tr_model_tell(tr_context *tr, size_t n, double *values);

/* For snapshot functions: lists the latest evaluation of the scheduler. All ranks that take part must call it.
 *
 * @param [in,out] evaluation  copied from, or restored to, rank 0
 */
int tr_model_keep_evaluation(tr_snapshot *snapshot, tr_evaluation *evaluation);

/* For snapshot functions: lists n numbers of each worker, of which the model uses only the sums over all workers. If the run
 * resumes on another number of workers, the sums are restored. All ranks that take part must call it.
 *
 * @param [in,out] sums  n numbers of this worker
 */
int tr_model_keep_sums(const tr_worker *me, tr_snapshot *snapshot, const char *name, size_t n, double *sums);

/* ---- models of earlier runs ---- */

/* Reads a model of the class of the job, on the calling process only. Any rank may call it.
 *
 * @param [in]  path   folder of a run, or a file
 * @param [out] model  a struct of the class; free it with tr_model_unload()
 * @return TR_OK; TR_ERR_NO_INPUT if the file cannot be opened; TR_ERR_DATA if it has another class
 */
int tr_model_load(tr_context *tr, const char *path, void **model);
void tr_model_unload(tr_context *tr, void **model); /* *model may be NULL */

/* Categories of a saved model, mapped to the categories of the training data. */
typedef struct tr_saved_values tr_saved_values;

/* Reads a model whose columns are those of the training data, with categories as codes (TR_DATA_CODES). All ranks must call it;
 * rank 0 must be a worker and receives the model.
 *
 * @param [out] model, values  NULL on other ranks
 * @return the agreed status
 */
int tr_model_load_coded(tr_context *tr, const char *path, void **model, tr_saved_values **values);
void tr_saved_values_close(tr_saved_values **values); /* *values may be NULL */

/* Maps a category of the model to the training data. Only rank 0 may call it.
 *
 * @param [in]  column, value  column and code of the category in the model
 * @param [out] number         its code in the training data
 * @return TR_OK, or TR_ERR_DATA if the category does not occur in the training data
 */
int tr_saved_value_number(const tr_saved_values *values, uint64_t column, uint64_t value, uint32_t *number);

/* Centres of clusters in a model file. Column j has the index first_index + j in data files. */
typedef struct {
    uint64_t n, columns, first_index;
    float *value; /* n × columns numbers, a row per centre */
} tr_saved_centres;

/* Reads the centres of a model whose class has the function `centres`, on the calling process only. Any rank may call it.
 *
 * @param [out] centres  free centres->value with free()
 */
int tr_model_load_centres(tr_context *tr, const char *path, tr_saved_centres *centres);

/* Adds a number to summary.json, at most 16 numbers. The value of the scheduler is written; other ranks may call it, without
 * effect.
 *
 * @param [in] name  a standard name ("test_auc", ...) or another one; not copied, must remain valid
 */
int tr_report_figure(tr_context *tr, const char *name, double value);

/* ---- queries: predict, evaluate and inspect, on one process ---- */

typedef struct tr_query tr_query;

/* Commands that read a model. */
enum tr_asked { TR_PREDICT = 1, TR_EVALUATE = 2, TR_INSPECT = 4 };
enum { TR_ALONE = 8 }; /* for flags of inspect: with this flag, inspect prints nothing else */

/* A command-line option of the class. */
typedef struct tr_flag {
    const char *name;  /* for example "--distance" */
    const char *value; /* name of its value in the help; "N": a number; NULL: the flag has no value */
    unsigned commands; /* commands that accept the flag: a set of enum tr_asked, and TR_ALONE */
    long least, most;  /* range of a number */
    const char *help;
} tr_flag;

/* Return the command; whether a flag was given; the text of its value, NULL if it was not given; and the number of its value,
 * `otherwise` if it was not given. */
enum tr_asked tr_query_command(const tr_query *query);
bool tr_query_given(const tr_query *query, const char *flag);
const char *tr_query_text(const tr_query *query, const char *flag);
long tr_query_number(const tr_query *query, const char *flag, long otherwise);

/* Returns the data files of the command line.
 *
 * @param [out] n  their number
 */
char *const *tr_query_files(const tr_query *query, size_t *n);

/* For classes that read ratings: tr_query_id() returns the text of --id of predict; NULL: it is not given. tr_print_id() prints an
 * identifier, whose unprintable bytes are escaped, and a tab. */
const char *tr_query_id(const tr_query *query);
int tr_print_id(tr_query *query, const char *text, size_t n);

/* Reads the ratings of these files as the job that trained the model has read its data.
 *
 * @param [in] labelled  a line without a rating is an error
 */
int tr_query_ratings(const tr_query *query, bool labelled, tr_rating_fn *rating, void *state);

/* Special values of `digits` below. TR_SHORTEST: the fewest digits that identify an f32. TR_AS_LABEL: the name of the label, or
 * TR_SHORTEST if labels have no names. */
enum { TR_SHORTEST = -1, TR_AS_LABEL = -2 };

/* Sets the form of the rows that predict() and evaluate() receive. Call it in ready().
 *
 * @param [in] columns      number of columns
 * @param [in] first_index  index of the first column in the files, 0 or 1
 */
void tr_query_rows(tr_query *query, enum tr_row_form form, uint64_t columns, uint64_t first_index);

/* Sets the label column of csv files (TR_LABEL_...), instead of the column that the job of the model names. Call it in ready(). */
void tr_query_label(tr_query *query, int label);

/* Adds a column to the output of predict. Call it in ready().
 *
 * @param [in] digits  significant digits; 0: whole numbers; TR_SHORTEST; TR_AS_LABEL
 */
int tr_query_output(tr_query *query, const char *name, int digits);

/* Return the name of a label, and the name of a feature («age», «city=Berlin»). If the data have no names, they return the number
 * of the label, and the number of the column, counted from first_index.
 *
 * @param [out] text  a terminated string, truncated if necessary
 */
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
 * @param [in] value   the number for --json; NaN means that the metric is not defined
 * @param [in] format  text for the terminal, as for printf; NULL: the result is printed with --json only
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

/* Prints a line «name value» in the output of inspect. */
void tr_line(tr_query *query, const char *name, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* ---- estimate of memory ---- */

/* Size of the data of a job, estimated from the beginnings of the files, accurate within a factor of two. */
typedef struct tr_data_size {
    const char *format;   /* word of data.format, for example "libsvm" */
    double text;          /* bytes of uncompressed text */
    double features;      /* libsvm, csv: number of features */
    double values;        /* libsvm: estimated number of distinct values in the file, at most 256 */
    double records;       /* number of rows of csv, or of lines of ratings and docword */
    double users, items;  /* ratings: number of users and of items */
    double words, tokens; /* docword: number of words in the vocabulary and of tokens */
    int workers, servers; /* number of workers and of servers of the job */
    int node_workers;     /* number of workers on the node with the most workers */
    int group_workers;    /* number of workers of each group */
    double occurring;     /* number of features that are not 0 in at least one row */
    double frequent;      /* number of features that are not 0 in at least TR_FREQUENT_ROWS rows */
} tr_data_size;
enum { TR_FREQUENT_ROWS = 20 };

/* Estimated memory of training in bytes. */
typedef struct tr_memory {
    double rows;           /* rows of one worker, and the state that the model stores per row */
    double worker, server; /* additional memory of one worker, and of one server (its shards of the tables) */
    double node;           /* additional memory that the workers of a node share */
    double group;          /* additional memory that the workers of a group within one node share */
} tr_memory;

/* ---- the class ---- */

typedef struct tr_model_class {
    int abi;                  /* TR_MODEL_ABI */
    const char *name;         /* "kmeans" */
    const char *const *types; /* its values of model.type, ended by NULL */
    const char *help;         /* one line for help: what the model learns */
    const char *noun;         /* name of a model of this class in messages: "clusters" */
    const char *format;       /* name of the format of model.h5: "trireme-kmeans" */
    int format_version;
    const char *text_begins; /* first bytes of text files that read_text() reads; NULL: no such files */
    const char *const *data_formats; /* values of data.format, ended by NULL; the first is the default */
    size_t options_size;             /* size of the struct of options */
    const tr_option *options;        /* job keys, ended by a name of NULL; may be NULL */
    const tr_method *methods; /* values of solve.method, ended by a name of NULL; the first is the default */
    const tr_rule *rules;     /* ended by a key of NULL; may be NULL */
    const char *predicts, *evaluates; /* for help: content of a line of predict, and metrics of evaluate */
    const tr_flag *flags;             /* options of commands, ended by a name of NULL; may be NULL */
    size_t model_size;                /* size of the struct of a model, which is zeroed before use */

    /* Training. The functions open(), train() and fields() are called on all ranks. open() may return a different status on each
     * rank: the engine passes it to tr_agree(). */

    /* Checks that the settings fit together, before data are read. NULL: no check. */
    int (*check)(const tr_job *job, const void *options);
    /* Reads the data and creates tables. */
    int (*open)(tr_context *tr, const void *options, void *model);
    /* Runs the stages. */
    int (*train)(void *model);
    /* Writes or reads the members of the model in model.h5, by calls of tr_field_*(). For plugins it is also called after open(),
     * to check the names of the members. */
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
    /* Checks whether the predictions of n models, given their jobs, may be averaged; returns TR_ERR_CONFIG with the reason
     * otherwise. Sets *by to the index of the model whose evaluate() is called with the means, and *flag to the flag with which
     * predict computes the numbers to average (NULL: no flag). evaluate() must then use labels and outputs only. NULL: not
     * supported. */
    int (*mean)(const tr_job *const *jobs, size_t n, const char **flag, size_t *by);
    /* Replaces ready(), predict(), evaluate() and figures() for models that do not predict row by row: reads the files itself, and
     * reports by tr_print() or tr_figure(). NULL: the model predicts row by row. */
    int (*answer)(void *model, tr_query *query);
    /* Returns the number of keys of the table of the model, for inspect --servers. Sets *dtype to the type of its elements, and
     * *with to the name of additional content («the bias») or NULL. NULL: not supported. */
    uint64_t (*keys)(const void *model, enum tr_dtype *dtype, const char **with);
    /* Prints a description of the model by tr_line() and tr_print(). NULL: inspect lists the members. */
    int (*inspect)(void *model, tr_query *query);
    /* Returns centres from which K-means can start (model.init). NULL: models of this class have no centres. */
    int (*centres)(const void *model, tr_saved_centres *centres);
} tr_model_class;

/* ---- programs with their own main() ---- */

/* As tr_open(), for a program that has its own class. Its jobs may contain keys of the engine and of this class only; other keys,
 * and keys that a rule marks as unused, are errors. The engine calls only check(), and fields() in tr_model_save(); main() itself
 * opens data, trains and frees the model. All ranks must call it.
 *
 * @param [in]  model_class  not copied, must remain valid
 * @param [out] tr           close it with tr_close()
 */
int tr_open_as(int *argc, char ***argv, const tr_model_class *model_class, tr_context **tr);

/* Returns the options of the class of the job, or NULL if the class has none. Any rank may call it. */
const void *tr_options(const tr_context *tr);

/* Writes the members that fields() lists to model.h5 in the folder of the run. All ranks must call it, after the stages. `trireme
 * predict`, `evaluate` and `inspect` read the file with --plugin and a shared object of the same class.
 *
 * @return the agreed status
 */
int tr_model_save(tr_context *tr, void *model);

#ifdef __cplusplus
}
#endif
#endif
