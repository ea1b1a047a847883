/* class/ — what every class of models gets for its description (trireme/model.h).
 *
 *   fields    model.h5, written and read
 *   query     predict, evaluate and inspect
 *   saved_schema   the columns of tables in model.h5
 *   saved_values   values of categories of a model, as the training data number them
 */
#ifndef TR_CLASS_H
#define TR_CLASS_H

#include <stdio.h>

#include "job/arguments.h"
#include "job/job.h"
#include "trireme/model.h"

/* ---- a model in a file (fields.c) ---- */

/* Writes <folder>/model.h5: all ranks, after the stages; agreed on. */
int tr_model_write(tr_context *tr, const tr_model_class *class, void *model, const char *folder);

/* Whether no two fields have one name; the model is open. All ranks; to be agreed on. TR_ERR_CONFIG. */
int tr_model_check_fields(tr_context *tr, const tr_model_class *class, void *model);

/* A model of any class, as one process holds it. */
struct tr_model {
    const tr_model_class *class;
    char *path;  /* of the file */
    tr_job *job; /* it was trained by; NULL: it says none, or none that can be read any more */
    char *text;  /* … as the file has it; NULL */
    struct tr_schema
        *schema; /* the columns of the tables it was trained on; NULL: not known. Once it is read */
    void *model;
    const char *type;  /* of model.type; once it is read */
    bool other_plugin; /* the file of the plugin is not the one that trained it */
};

/* What kind of file it is, by its first bytes. TR_ERR_NO_INPUT. */
enum tr_file_kind { TR_FILE_OTHER, TR_FILE_MODEL_H5, TR_FILE_MODEL_TEXT, TR_FILE_FOLDER };
int tr_file_kind(const char *path, enum tr_file_kind *kind);

/* Finds the class of the model in a file or a folder. plugin: the shared object that the user names; NULL or "": none, then
 * the class is built in or of a plugin that is loaded. TR_ERR_USAGE: the model needs a plugin. */
int tr_model_open(const char *path, const char *plugin, struct tr_model *model);

/* The same, of the job's class. */
int tr_model_open_own(const tr_context *tr, const char *path, struct tr_model *model);

/* Reads the fields. */
int tr_model_read(struct tr_model *model);

/* Prints what the file of a class consists of, a line for each field: attributes with their values, arrays with their
 * shapes. */
int tr_model_list_fields(const struct tr_model *model, tr_query *query);
void tr_model_close(struct tr_model *model);

/* ---- asking it (query.c) ---- */

/* A curve that evaluate can draw: n points between 0 and 1. */
struct tr_curve {
    char *name, *x, *y;
    size_t n;
    double (*point)[2];
};

struct tr_ask {
    enum tr_asked command;
    char *const *file;
    size_t files;
    const struct tr_given *given;
    size_t n_given;
    const char *format; /* of the files; NULL: as the job has it, or as they look */
    FILE *out;
    const char *output; /* its name */
    const char *id;     /* predict: the column of a table that stands before each prediction; NULL: none */
    bool json;
    /* Called with the curves of evaluate; NULL: they are not asked for. */
    int (*draw)(void *state, const struct tr_curve *curve, size_t n);
    void *draw_state;
    /* Ranks that share the rows to be predicted, and rank 0 prints all in order; NULL: one process. */
    tr_context *tr;
};

/* Reads the model and does what is asked. Outcomes of evaluate and inspect are printed. All ranks of `tr`; not agreed on. */
int tr_model_ask(struct tr_model *model, const struct tr_ask *ask);

/* For those who have the rows already: reads the model and makes it ready for its functions predict, evaluate and figures. */
int tr_query_open(struct tr_model *model, const struct tr_ask *ask, tr_query **query);
void tr_query_close(tr_query **query); /* NULL is fine */

/* Which rows it wants, what comes out for each, and what is known of all in the end: NULL behind the last. */
const tr_read_options *tr_query_form(const tr_query *query);
const char *tr_query_output_name(const tr_query *query, size_t i);
const char *tr_query_figure(const tr_query *query, size_t i, double *value);

#endif
