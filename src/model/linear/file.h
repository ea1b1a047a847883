/* A trained linear model as one process holds it: read back from model.h5 or model.txt, for prediction.
 *
 * model.txt is LIBLINEAR's format, written by save.c or by LIBLINEAR itself (two classes or regression).
 */
#ifndef TR_LINEAR_FILE_H
#define TR_LINEAR_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "job/job.h" /* TR_MODEL_… */
#include "trireme/table.h"

#define TR_LINEAR_FORMAT         "trireme-linear"
#define TR_LINEAR_FORMAT_VERSION 1

struct tr_linear_model {
    int type;             /* TR_MODEL_… */
    enum tr_dtype dtype;  /* of the weights: TR_F32 or TR_F64 */
    uint64_t features;    /* weight i belongs to index first_index + i of the data */
    uint32_t first_index; /* 0 or 1; model.txt does not know it: 1 */
    bool biased;
    double bias;    /* added to every margin; 0 without one */
    float label[2]; /* classifiers: positive first */
    double l2;      /* this and the rest: NaN, 0 or NULL where the file does not say */
    double objective;
    uint64_t rows; /* of the training data */
    char *version; /* of the Trireme that trained it */
    char *job;     /* resolved, as YAML */
    void *weight;
};

/* Reads a model, whichever of the two formats the file has; of a folder, its model.h5 (or else model.txt).
 * The weights are finite. TR_ERR_NO_INPUT: missing, unreadable or empty; TR_ERR_DATA: anything wrong inside.
 */
int tr_linear_model_read(const char *path, struct tr_linear_model *model);

/* The same for the text of a model.txt, which a zero byte follows. The path serves messages. */
int tr_linear_model_parse_text(const char *text, size_t length, const char *path,
                               struct tr_linear_model *model);

/* Frees what the model holds, not the struct. */
void tr_linear_model_free(struct tr_linear_model *model);

static inline bool tr_linear_model_classifies(const struct tr_linear_model *model)
{
    return model->type != TR_MODEL_LINEAR;
}

static inline double tr_linear_model_weight(const struct tr_linear_model *model, uint64_t i)
{
    return model->dtype == TR_F32 ? (double)((const float *)model->weight)[i]
                                  : ((const double *)model->weight)[i];
}

/* w · x + bias for a row of n indices as they are in the file, none of them below first_index. Features that
 * the model does not know count nothing, and are counted in *unknown. */
double tr_linear_model_margin(const struct tr_linear_model *model, const uint32_t *index, const float *value,
                              size_t n, uint64_t *unknown);

/* "logistic", as model.type has it. */
const char *tr_linear_model_name(int type);

/* What kind of file it is, by its first bytes. */
enum tr_file_kind { TR_FILE_OTHER, TR_FILE_MODEL_H5, TR_FILE_MODEL_TEXT, TR_FILE_FOLDER };
int tr_file_kind(const char *path, enum tr_file_kind *kind);

#endif
