/* Made-up data to try models with: clicks, ratings, bags of words, dense clusters, events. All of it follows from the
 * seed alone, and any slice of it can be made without the rest, in memory that does not grow with the rows. */
#ifndef TR_DATA_GENERATE_H
#define TR_DATA_GENERATE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* All functions write text and return TR_ERR_CONFIG for impossible options, TR_ERR_IO when writing fails. */

/* ---- clicks: sparse, with few popular and many rare features ---- */

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
    {                                                                                                        \
        .rows = 1000000, .features = 1000000, .nonzeros = 40, .power = 1.1, .noise = 0.1, .seed = 1          \
    }

/* LIBSVM text. Labels are drawn by a logistic model of hidden weights, about 0.3 of them positive, and then
 * flipped by noise. */
int tr_generate_ctr(const struct tr_generate_options *options, FILE *out);

/* ---- ratings: users, items, and what the ones think of the others ---- */

enum tr_rating_values { TR_RATING_WHOLE, TR_RATING_REAL }; /* 1 to 5, without or with two decimals */
enum tr_rating_part { TR_RATING_ALL, TR_RATING_TRAIN, TR_RATING_TEST };

/* Start from TR_GENERATE_RATINGS. */
struct tr_generate_ratings {
    uint32_t users, items;
    uint64_t ratings;         /* of all users, who have 0.4 to 4 times the mean each, of different items */
    uint32_t rank;            /* of the hidden matrix */
    double power;             /* the k-th most popular item is drawn in proportion to k^-power */
    double noise;             /* standard deviation of what cannot be learnt, in stars */
    double test;              /* part of the ratings that is for test, drawn at random */
    enum tr_rating_part part; /* which of them to write: train and test together are all */
    enum tr_rating_values values;
    uint64_t seed;
};

#define TR_GENERATE_RATINGS                                                                                  \
    {                                                                                                        \
        .users = 100000, .items = 20000, .ratings = 10000000, .rank = 10, .power = 0.8, .noise = 0.7,        \
        .seed = 1                                                                                            \
    }

/* Lines `user item rating`, separated by tabs, numbers from 1, users in order: those from begin to end - 1,
 * counted from 0. A rating is a mean, a bias of the user, one of the item, the product of their hidden
 * factors and noise, cut to 1 to 5. */
int tr_generate_ratings(const struct tr_generate_ratings *options, uint64_t begin, uint64_t end, FILE *out);

/* ---- documents: bags of words with hidden topics ---- */

/* Start from TR_GENERATE_DOCWORD. */
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

/* Lines `document word count`, numbers from 1, words ascending, of documents begin to end - 1, counted from 0.
 * The file's three header lines, which say how many lines there are, are the caller's: UCI's bag of words. */
int tr_generate_docword(const struct tr_generate_docword *options, uint64_t begin, uint64_t end, FILE *out);

/* Made-up words begin to end - 1, counted from 0, one a line: all different, and speakable. */
int tr_generate_vocabulary(uint32_t begin, uint32_t end, FILE *out);

/* ---- dense rows: clusters of points ---- */

enum tr_dense_format { TR_DENSE_CSV, TR_DENSE_LIBSVM };
enum tr_dense_label { TR_DENSE_NONE, TR_DENSE_FIRST, TR_DENSE_LAST };

/* Start from TR_GENERATE_DENSE. */
struct tr_generate_dense {
    uint64_t rows;
    uint64_t first_row; /* later rows of the same seed come from the same clusters */
    uint32_t columns, clusters;
    double spread; /* standard deviation of the centres, in each column, around 0 */
    double noise;  /* standard deviation of a cluster's rows, in each column, around its centre */
    enum tr_dense_format format;
    enum tr_dense_label label; /* where CSV has the row's cluster; LIBSVM text always begins with it */
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
    uint64_t rows;
    uint64_t first_row; /* as above */
    uint64_t seed;
};

#define TR_GENERATE_EVENTS                                                                                   \
    {                                                                                                        \
        .rows = 500000, .seed = 1                                                                            \
    }

/* CSV of 28 numbers, 20 of a normal distribution and 8 positive ones with long tails, and behind them 0 or 1: drawn with a
 * probability that depends on products, squares, waves and steps of a dozen of them, so that no weights tell it. */
int tr_generate_events(const struct tr_generate_events *options, FILE *out);

#endif
