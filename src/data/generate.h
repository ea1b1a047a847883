/* Artificial data for tests and examples: clicks, ratings, bags of words, dense clusters, events. Data depend on the seed and the options
 * only. Any slice can be generated without the rest, in memory that does not grow with the rows.
 *
 * All functions write text. TR_ERR_CONFIG: impossible options; TR_ERR_IO: writing fails. Start from the default options of each kind. */
#ifndef TR_DATA_GENERATE_H
#define TR_DATA_GENERATE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* ---- clicks: sparse rows, with few popular and many rare features ---- */

/* The values of features. */
enum tr_values {
    TR_VALUES_UNIT,   /* the same in a row, whose length is 1, as in public click data sets */
    TR_VALUES_BINARY, /* 1 */
    TR_VALUES_REAL    /* in (0, 1], of 4 digits; small ones are more frequent, as in term frequencies */
};

struct tr_generate_options {
    uint64_t rows;
    uint64_t first_row; /* rows a .. b - 1 of one call equal those of a call for these rows only */
    uint32_t features;  /* indices 1 .. features */
    uint32_t nonzeros;  /* in a row; at most `features` */
    double power;       /* the k-th most popular feature is drawn in proportion to k^-power */
    double noise;       /* probability that a label is flipped */
    enum tr_values values;
    uint64_t seed; /* also of the hidden weights: use later rows of the same seed as test data */
};

#define TR_GENERATE_DEFAULTS                                                                                 \
    {                                                                                                        \
        .rows = 1000000, .features = 1000000, .nonzeros = 40, .power = 1.1, .noise = 0.1, .seed = 1          \
    }

/* LIBSVM text. Labels are drawn from a logistic model of hidden weights, about 0.3 of them positive, and then flipped by noise. */
int tr_generate_ctr(const struct tr_generate_options *options, FILE *out);

/* ---- ratings of users for items ---- */

enum tr_rating_values { TR_RATING_WHOLE, TR_RATING_REAL }; /* 1 to 5, without or with two decimals */
enum tr_rating_part { TR_RATING_ALL, TR_RATING_TRAIN, TR_RATING_TEST };

struct tr_generate_ratings {
    uint32_t users, items;
    uint64_t ratings;         /* of all users, who have 0.4 to 4 times the mean each, of different items */
    uint32_t rank;            /* of the hidden matrix */
    double power;             /* the k-th most popular item is drawn in proportion to k^-power */
    double noise;             /* standard deviation of the noise, in stars */
    double test;              /* ratio of random ratings that are test data */
    enum tr_rating_part part; /* the ratings to write: train and test together are all */
    enum tr_rating_values values;
    uint64_t seed;
};

#define TR_GENERATE_RATINGS                                                                                  \
    {                                                                                                        \
        .users = 100000, .items = 20000, .ratings = 10000000, .rank = 10, .power = 0.8, .noise = 0.7,        \
        .seed = 1                                                                                            \
    }

/* Lines `user item rating` of the users begin to end - 1, counted from 0, in order; separated by tabs, numbers from 1. A rating is the
 * sum of a mean, biases of user and item, the product of their hidden factors, and noise, clipped to 1 to 5. */
int tr_generate_ratings(const struct tr_generate_ratings *options, uint64_t begin, uint64_t end, FILE *out);

/* ---- documents: bags of words with hidden topics ---- */

struct tr_generate_docword {
    uint32_t documents, words;
    uint64_t tokens; /* of all documents, whose lengths are 0.4 to 4 times the mean */
    uint32_t topics;
    double alpha; /* a document's topics have a symmetric Dirichlet distribution with this parameter */
    double beta;  /* a topic's words have one about Zipf's law, with beta × words in all: small is sharp */
    double power; /* the k-th most frequent word occurs in proportion to k^-power */
    uint64_t seed;
};

#define TR_GENERATE_DOCWORD                                                                                  \
    {                                                                                                        \
        .documents = 50000, .words = 20000, .tokens = 5000000, .topics = 100, .alpha = 0.1, .beta = 0.05,    \
        .power = 0.9, .seed = 1                                                                              \
    }

/* Lines `document word count` of the documents begin to end - 1, counted from 0; numbers from 1, words ascending. The caller writes the
 * three header lines of the format (UCI bag of words), which contain the number of lines. */
int tr_generate_docword(const struct tr_generate_docword *options, uint64_t begin, uint64_t end, FILE *out);

/* Artificial words begin to end - 1, counted from 0, one a line: all different, and pronounceable. */
int tr_generate_vocabulary(uint32_t begin, uint32_t end, FILE *out);

/* ---- dense rows: clusters of points ---- */

enum tr_dense_format { TR_DENSE_CSV, TR_DENSE_LIBSVM };
enum tr_dense_label { TR_DENSE_NONE, TR_DENSE_FIRST, TR_DENSE_LAST };

struct tr_generate_dense {
    uint64_t rows;
    uint64_t first_row; /* later rows of the same seed come from the same clusters */
    uint32_t columns, clusters;
    double spread; /* standard deviation of the centres, in each column, around 0 */
    double noise;  /* standard deviation of the rows of a cluster, in each column, around its centre */
    enum tr_dense_format format;
    enum tr_dense_label label; /* the column of CSV with the cluster of the row; LIBSVM text begins with it */
    uint64_t seed;
};

#define TR_GENERATE_DENSE                                                                                    \
    {                                                                                                        \
        .rows = 1000000, .columns = 64, .clusters = 256, .spread = 1, .noise = 1, .seed = 1                  \
    }

/* Rows of a mixture of normal distributions with equal weights, four decimals a value. */
int tr_generate_dense(const struct tr_generate_dense *options, FILE *out);

/* ---- events: a table for trees ---- */

struct tr_generate_events {
    uint64_t rows, first_row, seed; /* as above */
};

#define TR_GENERATE_EVENTS                                                                                   \
    {                                                                                                        \
        .rows = 500000, .seed = 1                                                                            \
    }

/* CSV of 28 numbers, 20 of a normal distribution and 8 positive ones with long tails, followed by 0 or 1. The probability of 1 depends on
 * products, squares, waves and steps of a dozen of them, so that no linear model fits it. */
int tr_generate_events(const struct tr_generate_events *options, FILE *out);

#endif
