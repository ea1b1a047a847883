/* Artificial data for tests and examples: clicks, ratings, bags of words, dense clusters, events, claims. Data depend only on the seed and
 * the options. Any range of rows can be generated without the others, in memory that does not grow with the rows.
 *
 * All functions write text. TR_ERR_CONFIG: invalid options; TR_ERR_IO: writing fails. TR_GENERATE_... are the default options. */
#ifndef TR_DATA_GENERATE_H
#define TR_DATA_GENERATE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* ---- clicks: sparse rows, with few popular and many rare features ---- */

/* The values of features. */
enum tr_values {
    TR_VALUES_UNIT, /* all values of a row are equal, and its Euclidean length is 1, as in public click data sets */
    TR_VALUES_BINARY, /* all values are 1 */
    TR_VALUES_REAL /* values are in (0, 1], with 4 digits; small values are more frequent, as in term frequencies */
};

struct tr_generate_options {
    uint64_t rows;
    uint64_t first_row; /* number of the first row. Row i is the same in every call that includes it */
    uint32_t features;  /* indices of features are 1 .. features */
    uint32_t nonzeros;  /* number of non-zeros of each row; at most `features` */
    double power;       /* the k-th most popular feature is drawn in proportion to k^-power */
    double noise;       /* probability that a label is flipped */
    enum tr_values values;
    uint64_t seed; /* also determines the hidden weights: for test data use later rows of the same seed */
};

#define TR_GENERATE_DEFAULTS                                                                                 \
    {                                                                                                        \
        .rows = 1000000, .features = 1000000, .nonzeros = 40, .power = 1.1, .noise = 0.1, .seed = 1          \
    }

/* Writes LIBSVM text. A logistic model with hidden weights draws the labels, about 30 % of them positive; then noise flips some. */
int tr_generate_ctr(const struct tr_generate_options *options, FILE *out);

/* ---- ratings of users for items ---- */

/* ratings are from 1 to 5: whole, or with two decimals */
enum tr_rating_values { TR_RATING_WHOLE, TR_RATING_REAL };
enum tr_rating_part { TR_RATING_ALL, TR_RATING_TRAIN, TR_RATING_TEST };

struct tr_generate_ratings {
    uint32_t users, items;
    uint64_t ratings; /* of all users together. A user rates 0.4 to 4 times the mean number of items */
    uint32_t rank;    /* rank of the hidden matrix */
    double power;     /* the k-th most popular item is drawn in proportion to k^-power */
    double noise;     /* standard deviation of the noise, in stars */
    double test;      /* fraction of the ratings, chosen at random, that are test data */
    enum tr_rating_part part; /* the ratings that are written: all, or those of training or test data */
    enum tr_rating_values values;
    uint64_t seed;
};

#define TR_GENERATE_RATINGS                                                                                  \
    {                                                                                                        \
        .users = 100000, .items = 20000, .ratings = 10000000, .rank = 10, .power = 0.8, .noise = 0.7,        \
        .seed = 1                                                                                            \
    }

/* Writes lines `user item rating`, separated by tabs, of the users begin .. end - 1 (counted from 0) in order; in the text, users
 * and items count from 1. A rating is the sum of a mean, biases of user and item, the product of their hidden factors, and noise,
 * clipped to 1 .. 5. */
int tr_generate_ratings(const struct tr_generate_ratings *options, uint64_t begin, uint64_t end, FILE *out);

/* ---- documents: bags of words with hidden topics ---- */

struct tr_generate_docword {
    uint32_t documents, words;
    uint64_t tokens; /* of all documents together. A document has 0.4 to 4 times the mean length */
    uint32_t topics;
    double alpha; /* a document's topics have a symmetric Dirichlet distribution with this parameter */
    double beta;  /* a topic's words: Dirichlet around Zipf's law, parameters of sum beta × words */
    double power; /* the k-th most frequent word occurs in proportion to k^-power */
    uint64_t seed;
};

#define TR_GENERATE_DOCWORD                                                                                  \
    {                                                                                                        \
        .documents = 50000, .words = 20000, .tokens = 5000000, .topics = 100, .alpha = 0.1, .beta = 0.05,    \
        .power = 0.9, .seed = 1                                                                              \
    }

/* Writes lines `document word count` of the documents begin .. end - 1 (counted from 0); in the text, documents and words count
 * from 1, and words ascend. The caller writes the three header lines of the format (UCI bag of words), which contain the number of
 * lines. */
int tr_generate_docword(const struct tr_generate_docword *options, uint64_t begin, uint64_t end, FILE *out);

/* Writes the artificial words begin .. end - 1 (counted from 0), one per line: all are different and pronounceable. */
int tr_generate_vocabulary(uint32_t begin, uint32_t end, FILE *out);

/* ---- dense rows: clusters of points ---- */

enum tr_dense_format { TR_DENSE_CSV, TR_DENSE_LIBSVM };
enum tr_dense_label { TR_DENSE_NONE, TR_DENSE_FIRST, TR_DENSE_LAST };

struct tr_generate_dense {
    uint64_t rows;
    uint64_t first_row; /* number of the first row. All rows of the same seed come from the same clusters */
    uint32_t columns, clusters;
    double spread; /* standard deviation of the centres, in each column, around 0 */
    double noise;  /* standard deviation of the rows of a cluster, in each column, around its centre */
    enum tr_dense_format format;
    enum tr_dense_label label; /* CSV: the column with the cluster. LIBSVM: NONE, lines begin with it */
    uint64_t seed;
};

#define TR_GENERATE_DENSE                                                                                    \
    {                                                                                                        \
        .rows = 1000000, .columns = 64, .clusters = 256, .spread = 1, .noise = 1, .seed = 1                  \
    }

/* Writes rows of a mixture of normal distributions with equal weights. Values have four decimals. */
int tr_generate_dense(const struct tr_generate_dense *options, FILE *out);

/* ---- events: a table for trees ---- */

/* Options of tables: number of rows, number of the first row, and seed, as in struct tr_generate_options. */
struct tr_generate_table {
    uint64_t rows, first_row, seed;
};

#define TR_GENERATE_TABLE                                                                                    \
    {                                                                                                        \
        .rows = 500000, .seed = 1                                                                            \
    }

/* Writes CSV of 29 columns: 20 normally distributed numbers, 8 positive numbers with long tails, and a label 0 or 1. The
 * probability of 1 depends on products, squares, sines and steps of 12 of the numbers, so that no linear model fits it. */
int tr_generate_events(const struct tr_generate_table *options, FILE *out);

/* ---- claims: insurance policies, for regression with a log link ---- */

/* The names of the columns. */
extern const char tr_generate_claims_header[];

/* Writes CSV, without tr_generate_claims_header; a row is a policy. exposure: its time in years, up to 1. claims: Poisson numbers
 * with the mean exposure × e^f. severity: mean amount of its claims, empty without claims; amounts have a gamma distribution of
 * shape 2 and mean e^s. premium: sum of amounts / exposure, with mean e^(f + s). Per factor:
 *
 *              (constant)  age young  age senior  region city  car old   power (in 100 kW)
 *          f      -0.7        0.8         0.4         0.7        -0.5          0.5
 *          s       7          0.5         0.3         0.3        -0.6          0.4
 */
int tr_generate_claims(const struct tr_generate_table *options, FILE *out);

#endif
