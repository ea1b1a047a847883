/* class/: services for classes of models. A class implements one kind of model (struct tr_model_class in trireme/model.h).
 *
 *   fields         writing and reading model.h5
 *   query          predict, evaluate and inspect
 *   saved_values   categories of a saved model, mapped to the codes of the training data
 */
#ifndef TR_CLASS_H
#define TR_CLASS_H

#include <stdio.h>

#include "job/arguments.h"
#include "job/job.h"
#include "trireme/model.h"

/* ---- model files (fields.c) ---- */

/* Writes <folder>/model.h5. All ranks, after training.
 *
 * @return the agreed status
 */
int tr_model_write(tr_context *tr, const tr_model_class *class, void *model, const char *folder);

/* Checks that the names of the fields of an open model are distinct. All ranks; the caller calls tr_agree(). TR_ERR_CONFIG. */
int tr_model_check_fields(tr_context *tr, const tr_model_class *class, void *model);

/* A model of any class on one process. */
struct tr_model {
    const tr_model_class *class;
    char *path;               /* path of the model file */
    tr_job *job;              /* the job that trained it; NULL: not in the file, or invalid in this version */
    char *text;               /* text of this job in the file; NULL: none */
    struct tr_schema *schema; /* columns of the training data; NULL: unknown. Set by tr_model_read() */
    void *model;
    const char *type;  /* model.type; set by tr_model_read() */
    bool other_plugin; /* the loaded plugin has another checksum than the plugin that trained the model */
};

/* Determines the kind of a file from its first bytes. TR_ERR_NO_INPUT. */
enum tr_file_kind { TR_FILE_OTHER, TR_FILE_MODEL_H5, TR_FILE_MODEL_TEXT, TR_FILE_FOLDER };
int tr_file_kind(const char *path, enum tr_file_kind *kind);

/* Opens a model file and determines its class.
 *
 * @param [in] path    file or folder
 * @param [in] plugin  shared object that the user names; NULL or "": built-in classes and loaded plugins only
 * @return TR_OK, or TR_ERR_USAGE if the model needs a plugin
 */
int tr_model_open(const char *path, const char *plugin, struct tr_model *model);

/* Does the same as tr_model_open(), and fails unless the model has the class of the job. */
int tr_model_open_own(const tr_context *tr, const char *path, struct tr_model *model);

/* Reads the members of an open model: sets model->model, type and schema. */
int tr_model_read(struct tr_model *model);

/* Prints one line per field: attributes with their values, arrays with their shapes. Reads the fields again. */
int tr_model_list_fields(const struct tr_model *model, tr_query *query);

/* Reads the columns of the training data with all values of their dictionaries.
 *
 * @param [out] schema  NULL if the file has none
 */
struct tr_h5_reader;
int tr_saved_schema_read(struct tr_h5_reader *r, struct tr_schema **schema);

void tr_model_close(struct tr_model *model);

/* ---- queries (query.c) ---- */

/* A curve of evaluate --plot: n points with coordinates between 0 and 1. */
struct tr_curve {
    char *name, *x, *y; /* titles of the curve and of the axes */
    size_t n;
    double (*point)[2];
};

/* A call of predict, evaluate or inspect. */
struct tr_ask {
    enum tr_asked command;
    char *const *file;
    size_t files;
    const struct tr_given *given;
    size_t n_given;
    const char *format; /* format of the files; NULL: that of the job, or detected */
    FILE *out;
    const char *output;   /* name of `out` in messages */
    const char *offset;   /* files with the offset of each row (data.offset); NULL: none
                         */
    const char *id;       /* predict: column whose text is printed before each prediction; NULL: none */
    const char *on_error; /* stop or skip: overrides data.on_error of the job; NULL: as in the job */
    bool json;
    bool strict; /* columns that the training data do not have are an error */
    /* Called with the n curves of evaluate; may be NULL. */
    int (*draw)(void *state, const struct tr_curve *curve, size_t n);
    void *draw_state;
    /* The ranks that divide the rows among themselves; rank 0 prints all predictions in the order of rows. NULL: one process. */
    tr_context *tr;
};

/* Reads the model, executes the command and prints its results. All ranks of `tr`; the status is not agreed. */
int tr_model_ask(struct tr_model *model, const struct tr_ask *ask);

/* For callers that have rows in memory: reads the model and calls ready() of its class. The caller then calls predict(), evaluate()
 * and figures() of the class. */
int tr_query_open(struct tr_model *model, const struct tr_ask *ask, tr_query **query);
void tr_query_close(tr_query **query); /* *query may be NULL */

/* tr_query_form() returns how rows must be read. The others return the name of output i, and name and value of figure i; NULL:
 * there is no such output or figure. */
const tr_read_options *tr_query_form(const tr_query *query);
const char *tr_query_output_name(const tr_query *query, size_t i);
const char *tr_query_figure(const tr_query *query, size_t i, double *value);

#endif
