/* Gradient boosted trees (M36; Friedman 2001; Chen and Guestrin 2016; Ke et al. 2017): declarations of the class.
 *
 *   trees      options, data and training; each clock grows one tree per output; predict, evaluate and inspect
 *   bins       columns divided into bins; rows stored by bins
 *   gradients  gradients of the loss, rounded to small integers (Shi et al. 2022); row weights; sampling; quantiles
 *   grow       growth of one tree: splits, histograms, the rows of each leaf, and leaf values
 *   parallel   communication of the workers while a tree grows; solve.parallel feature and voting
 *   forest     finished trees, prediction, contributions of features
 *   saved      the model in files: model.h5, checkpoints, model.txt and model.json
 *
 * Words: a bin is a range of the numbers of a column; rows are stored as the indices of their bins. A bundle is a set of columns
 * that share one byte of a row. The pair of a row is its rounded gradient and second derivative in one integer. Curvature is a sum
 * of second derivatives. The share of a worker is the set of columns whose splits it finds. A round grows one tree per output. The
 * members of a group are its workers; with solve.parallel feature each stores its own columns of all rows of the group.
 *
 * Rows are distributed over the workers. In each round every worker computes the gradients of its rows and rounds them at
 * random to a few bits; the random bits depend on the number of the row only. Sums of integers do not depend on their order, so
 * any number of ranks grows the same trees bit by bit.
 *
 * For each split the workers sum the histogram of the smaller child with a reduce-scatter; the histogram of the larger child is
 * the parent's minus that of the smaller child. Each worker receives the sums of its share of the columns, finds the best split
 * among these columns, and sends it to the other workers (Jiang et al., DimBoost, SIGMOD 2018). No worker stores a complete
 * histogram of all rows. If workers are on several machines, several leaves that will probably be split are examined together: a
 * tree of 31 leaves then waits for messages half as often. */
#ifndef TR_TREES_H
#define TR_TREES_H

#include "../loss.h"
#include "../labels.h"
#include "../metrics.h"
#include "trireme/trireme.h"

/* ---- bins (bins.c) ---- */

enum { TR_BINS = 256 }; /* maximum number of bins of a column in bytes, including that of missing numbers */
enum { TR_MOST_VALUES = 65535 }; /* maximum number of values of a category that have bins of their own */
enum { TR_BLOCK = 32 }; /* number of bundles in a block; the bytes of a row in a block are adjacent */

/* The bins of a column. Numeric column: bin b contains cut[b - 1] < x <= cut[b]. Category: bin v contains value v. If
 * `missing` is set, the last bin contains the rows without a number, and values of a category that have no bin. */
struct tr_column_bins {
    size_t offset; /* index of the column's first bin among the bins of all columns */
    uint32_t bins; /* number of bins, with the bin of missing numbers; 1: the column is constant */
    uint32_t zero; /* index of the bin that contains 0 */
    bool missing, category;
    float most;       /* larger numbers count as missing; INFINITY: numeric column */
    const float *cut; /* bins - 1 - missing numbers, ascending */
};

/* Returns whether bins of the column need more than a byte: the bin of numbers that the column does not have is c->bins. */
static inline bool tr_bins_are_wide(const struct tr_column_bins *c)
{
    return c->bins + !c->missing > TR_BINS;
}

struct tr_bins {
    size_t columns, total; /* total: number of bins of all columns */
    struct tr_column_bins *column;
    float *cuts; /* memory of the `cut` lists of all columns */
    bool sparse; /* whether any worker has sparse rows */
};

/* Position of a column in its bundle. */
struct tr_bundled {
    uint32_t bundle; /* index of the bundle */
    uint32_t first; /* byte value of the column's first bin that does not contain 0; 0: the byte is the bin */
};

/* The rows of a worker in one of two forms. Bytes: one per row and bundle. Lists: for each row the ascending indices, among the
 * bins of all columns, of its bins that do not contain 0. */
struct tr_binned {
    size_t n, bundles, columns; /* numbers of rows, bundles, and columns of the data */
    size_t first, end; /* range of the columns that are stored: all, or those of a member of a group */
    struct tr_bundled *bundled; /* per column */
    uint32_t *column; /* bundle b consists of column[column_begin[b]] .. column[column_begin[b + 1] - 1] */
    uint32_t *column_begin; /* constant columns and those of `wide` are in no bundle */
    uint8_t *block;     /* bytes: block k contains the bundles 32 k .. 32 k + 31, row by row; NULL: lists */
    uint8_t *of_bundle; /* a copy of the bytes of `block`, sorted by bundle; NULL: no copy */
    uint16_t **wide;    /* per column with more than TR_BINS bins: the bin of each row; its byte is unused */
    uint64_t *begin;    /* lists: row i has place[begin[i]] .. place[begin[i + 1] - 1] */
    uint32_t *place;    /* lists: index of a bin among the bins of all columns */
};

/* Makes the bins of all columns from a sample of the rows. The sample does not depend on the distribution of the rows. All
 * workers, in a stage.
 *
 * @param [in]  number  global number of each row
 * @param [in]  weight  weight of each row; NULL: every row has weight 1
 * @param [in]  values  per column: number of values of a category, 0 for a numeric column; NULL: all are numeric
 * @param [in]  most    maximum number of bins of a column
 * @param [in]  least   a column gets one bin if fewer rows than this differ from its most frequent number
 * @param [out] bins    to be freed by tr_bins_free(), also after an error */
int tr_bins_make(tr_context *tr, const tr_data *data, const uint32_t *number, const float *weight,
                 const uint32_t *values, size_t most, uint64_t least, uint64_t seed, struct tr_bins *bins);
void tr_bins_free(struct tr_bins *bins);

/* Stores the bin of each number of the rows. The numbers in `data` are freed gradually meanwhile.
 *
 * @param [in]  bundle  combine columns of sparse rows into bundles, if bundles need no more memory than lists
 * @param [out] rows    to be freed by tr_binned_free(), also after an error */
int tr_bins_apply(const struct tr_bins *bins, const tr_data *data, bool bundle, struct tr_binned *rows);
void tr_binned_free(struct tr_binned *rows);

/* Fills rows->of_bundle, a copy of the bytes that is sorted by bundle. It makes the division of a leaf's rows faster. */
int tr_bins_by_column(struct tr_binned *rows);

/* Allocates rows->bundled and the bytes of `bundles` bundles. */
int tr_binned_open(const struct tr_bins *bins, struct tr_binned *rows, size_t bundles);

/* Fills rows->column and rows->column_begin, which list the columns of each bundle, from rows->bundled. */
int tr_binned_list(const struct tr_bins *bins, struct tr_binned *rows);

/* Replaces the lists of the rows by bundles, if bundles need no more memory. */
int tr_binned_bundle(const struct tr_bins *bins, struct tr_binned *rows);

/* Asks the kernel to use huge pages for memory that has been allocated and not yet touched. */
void tr_trees_huge(void *memory, size_t bytes);

/* Returns the bin of the number x: the index of the first cut that is not below x, or `cuts` if all cuts are below x. */
static inline uint32_t tr_bin_among(const float *cut, size_t cuts, float x)
{
    size_t low = 0;
    while (low < cuts) {
        size_t middle = (low + cuts) / 2;
        if (cut[middle] < x) low = middle + 1;
        else cuts = middle;
    }
    return (uint32_t)low;
}

/* Returns the number of bytes that a row occupies in a block, a multiple of four. */
static inline size_t tr_block_width(const struct tr_binned *rows, size_t block)
{
    size_t left = rows->bundles - block * TR_BLOCK;
    return left >= TR_BLOCK ? TR_BLOCK : (left + 3) / 4 * 4;
}

static inline uint8_t *tr_byte_of(const struct tr_binned *rows, size_t row, size_t bundle)
{
    size_t block = bundle / TR_BLOCK;
    return rows->block + block * TR_BLOCK * rows->n + row * tr_block_width(rows, block) + bundle % TR_BLOCK;
}

/* Returns the bin of a column, given the byte of its bundle. */
static inline uint32_t tr_bin_of_byte(const struct tr_column_bins *c, uint32_t first, uint32_t byte)
{
    if (first == 0) return byte;
    uint32_t bin = byte - first;
    return bin >= c->bins - 1u ? c->zero : bin + (bin >= c->zero);
}

/* Returns the bin of a row in a column that has more than one bin. If the row has no number and the column has no bin for missing
 * numbers, the result is the column's number of bins if rows are stored as bytes, and the bin of 0 if they are stored as lists. */
uint32_t tr_bin_of_sparse(const struct tr_bins *bins, const struct tr_binned *rows, size_t row,
                          size_t column);
static inline uint32_t tr_bin_of(const struct tr_bins *bins, const struct tr_binned *rows, size_t row,
                                 size_t column)
{
    if (!rows->block) return tr_bin_of_sparse(bins, rows, row, column);
    if (rows->wide && rows->wide[column]) return rows->wide[column][row];
    struct tr_bundled at = rows->bundled[column];
    return tr_bin_of_byte(&bins->column[column], at.first, *tr_byte_of(rows, row, at.bundle));
}

/* ---- finished trees (forest.c) ---- */

/* A node of a tree. Children are counted from the first node of their tree, and a child has a larger index than its parent.
 *
 * An inner node sends a row to `child` (left) or to child + 1 (right). Numeric column: left if x <= number; a missing x goes
 * left if TR_NODE_MISSING_LEFT is set. Category: left if x is in the set; every other value, known or not, goes right. */
struct tr_node {
    uint32_t feature; /* column by which the node splits; TR_LEAF: the node is a leaf */
    uint32_t child;
    union {
        float number; /* inner node: threshold; leaf: value that is added to the score */
        uint32_t set; /* category: index of the first word of the set in tr_forest.set */
    };
    uint32_t flags;
};
#define TR_LEAF UINT32_MAX
enum {
    TR_NODE_MISSING_LEFT = 1,
    TR_NODE_CATEGORY = 2,
    TR_NODE_SET_WORDS = 8 /* flags >> TR_NODE_SET_WORDS is the number of words of the set */
};

/* Information about a node that predictions do not need. */
struct tr_node_note {
    float gain;   /* reduction of the loss by the node's split; 0 for leaves */
    float weight; /* sum of the second derivatives of the training rows */
};

/* Tree t has the nodes begin[t] .. begin[t + 1] - 1. */
struct tr_forest {
    size_t trees, nodes;
    uint64_t *begin;
    struct tr_node *node;
    struct tr_node_note *note;
    uint32_t *set; /* sets of all nodes; bit v % 32 of word v / 32 of a set is 1 if it contains value v */
    size_t set_words;
    size_t begin_capacity, node_capacity, note_capacity, set_capacity;
};

/* Appends a tree of `nodes` nodes. */
int tr_forest_add(struct tr_forest *forest, const struct tr_node *node, const struct tr_node_note *note,
                  size_t nodes);

/* Makes `node` split by a category: rows with one of the n values go left. */
int tr_forest_add_set(struct tr_forest *forest, const uint32_t *value, size_t n, struct tr_node *node);

void tr_forest_free(struct tr_forest *forest);

/* Returns whether the set of a node contains a value of its category. */
static inline bool tr_node_has(const struct tr_forest *forest, const struct tr_node *node, uint32_t value)
{
    return value / 32 < node->flags >> TR_NODE_SET_WORDS &&
           forest->set[node->set + value / 32] >> value % 32 & 1;
}

/* Returns whether an inner node sends a row with the value x in the node's column to the left. */
static inline bool tr_goes_left(const struct tr_forest *forest, const struct tr_node *node, float x)
{
    if (node->flags & TR_NODE_CATEGORY)
        return x >= 0 && x < 0x1p24f && tr_node_has(forest, node, (uint32_t)x);
    return x == x ? x <= node->number : node->flags & TR_NODE_MISSING_LEFT;
}

/* ---- prediction ---- */

enum { TR_SIDE = 64 }; /* number of rows that a scorer processes together */

struct tr_scorer;

/* Opens a scorer, which computes the scores of rows by the trees first .. forest->trees - 1. The forest must not change until the
 * scorer is closed.
 *
 * @param [in]  columns  number of columns of the model
 * @param [out] scorer   to be closed, also after an error */
int tr_scorer_open(const struct tr_forest *forest, size_t first, size_t columns, struct tr_scorer **scorer);
void tr_scorer_close(struct tr_scorer **scorer); /* *scorer may be NULL */

/* Reads the rows first .. first + n - 1, which the next calls process; n <= TR_SIDE.
 *
 * @param [in] keys     sparse rows: column of the model for each column index of the rows; NULL: the indices are equal
 * @param [in] columns  dense rows: number of columns */
void tr_scorer_read(struct tr_scorer *s, const tr_batch *rows, const tr_key *keys, size_t columns,
                    size_t first, size_t n);

/* Returns for each of the TR_SIDE rows the node of the leaf that the row reaches in a tree, counted from the tree's first node.
 * The array is valid until the next call. */
const uint32_t *tr_scorer_leaves(struct tr_scorer *s, size_t tree);

/* Adds the values of all trees to the scores of the first n rows.
 *
 * @param [in,out] score  score[k * apart + i]: output k of row i */
void tr_scorer_add(struct tr_scorer *s, size_t outputs, size_t n, float *score, size_t apart);

/* ---- contributions of features ---- */

struct tr_contributions {
    double *weight;        /* per node: weight of the training rows that reach it */
    double *mean;          /* per node: mean value of the leaves below it, weighted by training rows */
    size_t depth;          /* depth of the deepest tree */
    struct tr_known *path; /* scratch: per level of a tree, the features on the path to the node */
};
int tr_contributions_open(const struct tr_forest *forest, struct tr_contributions *c);
void tr_contributions_close(struct tr_contributions *c);

/* Adds the contribution of each column to the scores of one row. The initial scores of the model are not added.
 *
 * @param [in]     row  dense, `columns` numbers
 * @param [in,out] to   per output: the contributions of the columns, then the mean value of the output's trees */
void tr_contributions_add(const struct tr_contributions *c, const struct tr_forest *forest, size_t outputs,
                          size_t columns, const float *row, double *to);

/* ---- the model ---- */

enum { TR_PARALLEL_DATA, TR_PARALLEL_FEATURE, TR_PARALLEL_VOTING };

/* Settings of the job: the list `options` in trees.c names the key of each. */
struct tr_trees_options {
    int parallel;
    uint64_t votes;
    uint64_t leaves, depth, bins, min_rows, bits, category_values;
    double category_smoothing, category_l2, category_rows;
    double l2, gamma, min_weight, rate, decay, rows, top, columns, quantile, delta, power;
    char *class_weights, *init;
    struct tr_job_list monotone;
    int objective;
};

/* The gradient and the second derivative that a rounded value of 1 stands for. */
struct tr_units {
    double gradient, curvature;
};

struct tr_trees {
    tr_context *tr;
    const tr_job *job;
    const struct tr_trees_options *o;
    uint64_t seed;

    /* data */
    tr_data *train, *test;
    const float *label; /* labels of the rows: train->rows.label, from_base or group_label */
    float *from_base;   /* labels minus base[0]; then scores do not include it. NULL: of classes and counts */
    float *group_label; /* solve.parallel feature: labels of the rows of all members; otherwise NULL */
    uint32_t *number;   /* per row: its number among the rows of all workers */
    struct tr_bins bins;
    struct tr_binned rows, test_rows; /* training rows and test rows as bins */
    float *score;                     /* score[k * rows.n + i] is the score of training row i for output k */
    float *test_score;   /* test_score[k * test_rows.n + i] is the score of test row i for output k */
    size_t tested;       /* number of trees that test_score includes */
    float *weight;       /* weights of the training rows; NULL: every row has weight 1 */
    double weight_steps; /* weights are summed in integer steps of 1 / weight_steps: exact in any order */
    int8_t *direction;   /* model.monotone, per column: 1 up, -1 down, 0 free; NULL: no constraints */
    size_t initial;      /* number of trees of model.init */

    double rate, l2;   /* solve.rate and model.l2, or their automatic values */
    double least_gain; /* splits with a smaller gain are due to rounding */

    double shape;                   /* of the loss; NaN: an older model, which does not contain it */
    struct tr_test_metrics metrics; /* metrics of the test rows during training */

    /* the tree that grows now */
    struct {
        struct tr_units units;
        double base; /* mean second derivative of a row */
        uint64_t round;
        size_t output; /* index of the output whose tree grows */
        float largest; /* solve.top_share: rows with a larger gradient are always drawn */
    } tree;
    float *most, *sum;    /* softmax, per row in this round: largest score, and Σ e^(score - largest) */
    float *scratch;       /* one number per row; NULL: not allocated yet */
    uint8_t *drawn;       /* per row: 1 if the tree is grown on it; NULL: on all rows */
    uint32_t *row, *pair; /* row indices and pairs, sorted by leaf: each leaf has a range of both lists */
    struct tr_trees_grower *grower;
    struct tr_category_value *categories; /* scratch of tr_scan_column() */

    /* solve.parallel */
    struct tr_trees_merge *merge;
    struct tr_voting *voting;   /* NULL unless solve.parallel is voting */
    size_t members, member;     /* feature: size of the group and this member's index; otherwise 1 and 0 */
    size_t own_first, own_rows; /* first index and number of the rows that this worker itself read */
    uint64_t *side;             /* a bit per row of the leaf that is being split: 1 if the row goes left */
    uint64_t sides, side_bytes; /* number of broadcasts of `side`, and their bytes */

    /* saved in model.h5 */
    tr_evaluation last; /* last evaluation; in training only the scheduler knows its objective */
    const struct tr_loss *loss;
    uint64_t outputs; /* trees per round: 1, or the number of classes */
    uint64_t columns, first_index, total_rows, labels;
    int64_t label_column;
    float *label_name; /* labels of the classes, ascending */
    double *base;      /* initial score of each output */
    /* Per column: number of values of a category, 0 for a numeric column; NULL: all columns are numeric. */
    uint32_t *values;
    struct tr_forest forest;

    /* predict and evaluate */
    struct tr_evaluated *evaluated;
    struct tr_scorer *scorer;
    struct tr_contributions contributions; /* --contributions */
    uint32_t *leaf_number;                 /* --leaves, per node: index among the leaves of its tree */
    int output;                            /* requested prediction: a PREDICT_ constant of trees.c */
};

static inline bool tr_trees_classify(const struct tr_trees *m)
{
    return tr_loss_classifies(m->loss);
}

/* Returns the class of a label. Of two classes, the larger label is class 1. */
size_t tr_trees_class_of(const struct tr_trees *m, float label);

/* ---- gradients ---- */

/* A sum of pairs: the sum of gradients in the upper 32 bits, the sum of second derivatives in the lower 32 bits. The pair of one
 * row has 16 bits for each (uint32_t). */
typedef int64_t tr_pair;

static inline tr_pair tr_pair_of_row(uint32_t packed)
{
    int32_t both = (int32_t)packed;
    return (tr_pair)((uint64_t)(int64_t)(both >> 16) << 32) + (both & 0xffff);
}

static inline int64_t tr_pair_gradient(tr_pair p)
{
    return p >> 32;
}

static inline uint32_t tr_pair_curvature(tr_pair p)
{
    return (uint32_t)p;
}

/* Computes m->weight from data.weight and model.class_weights. All ranks, after the labels are known. */
int tr_trees_weigh(struct tr_trees *m);

/* Computes m->most and m->sum, which the trees of all outputs of a round use. Called at the start of a round. */
void tr_gradients_begin(struct tr_trees *m);

/* Draws the rows of the next tree, and writes the pair of each row i to m->pair[i]. Sets m->tree.units. All workers. */
int tr_gradients(struct tr_trees *m);

/* Computes the weighted gradient and second derivative of n <= TR_GRADIENTS rows; rows that are not drawn get 0.
 *
 * @param [in] row  indices of the rows; NULL: the rows are first .. first + n - 1 */
enum { TR_GRADIENTS = 1024 };
void tr_gradients_of(const struct tr_trees *m, const uint32_t *row, size_t first, size_t n, float *g,
                     float *h);

/* Returns whether the values of leaves are quantiles of the residuals. *part: which quantile, 0 .. 1. */
bool tr_trees_is_quantile(const struct tr_trees *m, double *part);

/* ---- splits ---- */

enum { TR_SPLIT_VALUES = 64 }; /* maximum number of values of a category on the left side of a split */

/* The best split of a leaf found so far. */
struct tr_split {
    float gain; /* 0: no split */
    uint32_t column, bin;
    uint16_t missing_left; /* 1: missing numbers go left */
    uint16_t values; /* > 0: value[0 .. values - 1] of a category go left; 0: bins up to `bin` go left */
    tr_pair left;    /* sum of the pairs of the rows that go left */
    uint16_t value[TR_SPLIT_VALUES];
};

/* Sum of the pairs of a leaf's rows, and bounds of the leaf's value; -INFINITY and INFINITY: no bound. */
struct tr_leaf_sums {
    tr_pair sum;
    float low, high;
};

/* Constants of the search for the best split of a leaf. */
struct tr_scan {
    tr_pair sum;
    float nothing;             /* a split must gain more than this */
    float gradient, curvature; /* those of struct tr_units */
    float least;               /* minimum curvature of a child */
    float row;                 /* mean curvature of a row */
    float all_gradient, all_curvature, l2;
    float parent;    /* gain of the leaf if it is not split */
    float low, high; /* bounds of the values of both children */
};

/* Workspace of tr_scan_column(): a value of a category. */
struct tr_category_value {
    float order, gradient, curvature; /* values are sorted by `order`, the smoothed mean gradient */
    uint32_t bin;
};

/* Starts the search for a split of a leaf.
 *
 * @param [in] part  expected fraction of the leaf's rows that leaf->sum includes; 1: all rows
 * @return false if the leaf is too small to be split */
bool tr_scan_begin(const struct tr_trees *m, const struct tr_leaf_sums *leaf, double part, struct tr_scan *s);

/* Tries all splits of a leaf by one column. Replaces *best if a split gains more than *best.
 *
 * @param [in] hist  per bin of the column: sum of the pairs of the leaf's rows */
void tr_scan_column(const struct tr_trees *m, const struct tr_scan *s, const tr_pair *hist, size_t column,
                    struct tr_split *best);

/* Returns how many bytes of struct tr_split must be sent: without categories, the list of values is omitted. */
size_t tr_split_bytes(const struct tr_trees *m);

/* ---- communication while a tree grows (parallel.c) ---- */

/* The share of a worker: columns first .. last - 1. Their bins are offset .. offset + bins - 1 among the bins of all columns. */
struct tr_trees_share {
    size_t first, last;
    size_t offset, bins;
};

/* Each worker needs the sums of the bins of its share over all rows. If all workers are on one machine, each worker writes its
 * histogram to shared memory, and reads the bins of its share from the histograms of the others. Otherwise the bins are sent to
 * the owners of the shares with a reduce-scatter, or, if columns are divided over a group, with an exchange. */
enum { TR_MOST_TOGETHER = 32, TR_BYTES_TOGETHER = 1 << 20 }; /* maximum histograms and bytes of a reduction */
struct tr_trees_merge {
    tr_context *tr;
    size_t workers, me;
    size_t members, groups;       /* members of a group divide its columns; groups divide the rows */
    struct tr_trees_share *share; /* per worker */
    tr_set_memory *memory;        /* per worker: a histogram and two messages; NULL: several machines */
    size_t apart;                 /* bytes of `memory` per worker */
    /* Maximum number of histograms per reduction. It is above 1 only if short histograms are sent between machines: then the
     * latency of messages dominates. */
    size_t together;
    size_t bins;      /* number of bins of one histogram */
    tr_pair *local;   /* histograms of this worker's rows, which the caller fills; NULL: one worker */
    tr_pair *packed;  /* copy of `local`, sorted by the worker that receives it; NULL: together is 1 */
    tr_pair *arrived; /* members > 1, without shared memory: sums that other workers sent */
    size_t *bytes;
    char *messages;    /* without shared memory: the last message of each worker */
    size_t message_at; /* offset of the messages in a worker's part of `memory`; no memory: message size */
    size_t most_sent;  /* shared memory has two messages of this size, so that the last one stays readable */
    bool second;       /* whether the last message is the second of the two */
    struct {
        double histograms, merges, bins, bytes;
    } done; /* sums of the run: histograms, reductions, bins of the histograms, bytes sent */
};

/* Opens the communication of the workers. All workers, in a stage.
 *
 * @param [in] members    number of members of a group; 1: columns are not divided
 * @param [in] most_sent  maximum number of bytes that tr_trees_merge_send() sends
 * @param [in] together   maximum number of histograms that are summed together */
int tr_trees_merge_open(tr_context *tr, const struct tr_bins *bins, size_t members, size_t most_sent,
                        size_t together, struct tr_trees_merge **merge);
void tr_trees_merge_close(struct tr_trees_merge **merge); /* *merge may be NULL */

/* Returns the columns that the workers with this index in their groups have. */
struct tr_trees_share tr_trees_merge_columns(const struct tr_trees_merge *merge, size_t member);

/* Sums n histograms over all workers. The caller must call tr_trees_merge_send() before it fills histograms again. All
 * workers.
 *
 * @param [in]  share  per worker: its columns and bins in the histograms; NULL: merge->share
 * @param [out] sum    the sums of this worker's share, one histogram after the other */
int tr_trees_merge_add(struct tr_trees_merge *merge, const struct tr_trees_share *share, size_t n,
                       tr_pair *sum);

/* Sends a message of the same size from each worker to all workers. tr_trees_merge_sent() returns the message of a worker until
 * the next tr_trees_merge_add(). All workers. */
int tr_trees_merge_send(struct tr_trees_merge *merge, const void *mine, size_t bytes);
const void *tr_trees_merge_sent(const struct tr_trees_merge *merge, size_t worker);

/* solve.parallel feature: exchanges bins in the group, so that each member has its own columns of all rows of the group. All
 * workers, after tr_bins_apply() and the initial scores. */
int tr_trees_divide_columns(struct tr_trees *m);

/* Fills m->score with the scores of all rows of the group. Each member contributes the scores of the rows that it read.
 *
 * @param [in] own  own[k * apart + i]: output k of row i of this member */
int tr_trees_gather_scores(struct tr_trees *m, float *own, size_t apart);

/* Sends m->side, the sides of a leaf's n rows, from the member that has the column to the other members of the group. */
int tr_trees_send_sides(struct tr_trees *m, size_t column, size_t n);

/* solve.parallel voting: the columns with most votes are divided over the workers; tr_vote() finds the best split of a leaf by
 * the columns that this worker gets. All workers.
 *
 * @param [in] hist  histogram of this worker's rows, all columns
 * @param [in] own   sums of this worker's rows in the leaf
 * @param [in] leaf  sums of all rows in the leaf */
int tr_voting_open(struct tr_trees *m);
void tr_voting_close(struct tr_voting **voting);                         /* *voting may be NULL */
size_t tr_votes_bytes(const struct tr_trees_options *o, size_t columns); /* bytes that a worker sends */
int tr_vote(struct tr_trees *m, const tr_pair *hist, const struct tr_leaf_sums *own,
            const struct tr_leaf_sums *leaf, struct tr_split *best);

/* ---- growing ---- */

/* Allocates m->grower and the lists that the growth of a tree needs. */
int tr_grower_open(struct tr_trees *m);
void tr_grower_close(struct tr_trees *m);

/* Grows a tree, appends it to the forest, and adds it to the scores of the training rows. All workers. */
int tr_trees_grow(struct tr_trees *m, size_t output, uint64_t round);

/* Adds the values of the trees first .. m->forest.trees - 1 to the scores of binned rows. */
int tr_trees_score(const struct tr_trees *m, const struct tr_binned *rows, size_t first, float *score);

/* ---- the model in files (saved.c) ---- */

/* Writes the trees and initial scores to a checkpoint, or restores them from it. */
int tr_trees_keep(struct tr_trees *m, tr_snapshot *snapshot);

/* Sends the trees and initial scores of rank 0 to all ranks. m->base must be allocated. All ranks. */
int tr_trees_broadcast(struct tr_trees *m);

/* Writes the model to model.h5, model.txt and model.json, or reads it from model.h5. */
int tr_trees_fields(void *model, tr_fields *fields);

extern const tr_model_class tr_trees_class;

#endif
