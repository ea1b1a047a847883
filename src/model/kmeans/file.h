/* Models of kind kmeans in files: model.h5 with
 *
 *   /centres   k × columns, f32        /sizes   k: rows of each centre
 *   clusters, columns, first_index (of CSV's columns 1), rows, inertia   attributes
 */
#ifndef TR_KMEANS_FILE_H
#define TR_KMEANS_FILE_H

#include <stddef.h>
#include <stdint.h>

#include "model/kmeans/assign.h"

#define TR_KMEANS_FORMAT "trireme-kmeans"
enum { TR_KMEANS_VERSION = 1 };

struct tr_kmeans_model {
    uint64_t clusters, columns, first_index, rows;
    double inertia; /* of the training data */
    char *job;      /* NULL: none */
    float *centre;  /* clusters × columns */
    double *norm;   /* |c|² */
    uint64_t *size;
};

int tr_kmeans_model_read(const char *path, struct tr_kmeans_model *model);
void tr_kmeans_model_free(struct tr_kmeans_model *model);

#endif
