/* Made-up data like that of click-through rates: sparse, with few popular and many rare features. */
#ifndef TR_DATA_GENERATE_H
#define TR_DATA_GENERATE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* What stands behind a feature. */
enum tr_values {
    TR_VALUES_UNIT, /* the same in a row, whose length is 1: as the public click data sets are distributed */
    TR_VALUES_BINARY, /* 1 */
    TR_VALUES_REAL    /* in (0, 1], of 4 digits, small ones more often: like frequencies of terms */
};

/* Start from TR_GENERATE_DEFAULTS. */
struct tr_generate_options {
    uint64_t rows;
    uint64_t first_row; /* rows a .. b - 1 of one call are those of a call that makes just these */
    uint32_t features;  /* indices 1 .. features */
    uint32_t nonzeros;  /* a row; at most as many as features */
    double power;       /* the k-th most popular feature is drawn in proportion to k^-power */
    double noise;       /* probability that a label is flipped */
    enum tr_values values;
    uint64_t seed; /* also of the hidden weights: use later rows of the same seed as test data */
};

#define TR_GENERATE_DEFAULTS                                                                                 \
    ((struct tr_generate_options){                                                                           \
        .rows = 1000000, .features = 1000000, .nonzeros = 40, .power = 1.1, .noise = 0.1, .seed = 1})

/* Writes LIBSVM text. Labels are drawn by a logistic model of hidden weights, about 0.3 of them positive, and
 * then flipped by noise. TR_ERR_CONFIG for impossible options, TR_ERR_IO when writing fails. */
int tr_generate_ctr(const struct tr_generate_options *options, FILE *out);

#endif
