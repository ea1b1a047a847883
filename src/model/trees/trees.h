/* Trees (M36): gradient boosting (Friedman 2001; Chen and Guestrin 2016; Ke et al. 2017).
 *
 *   trees       the class: options, data, the stage, one clock a round of trees
 *   bins        columns cut into at most 255 ranges of equally many rows; binned: rows as numbers of these
 *   histogram   sums of gradients by bin, of the rows of one leaf
 *   gradients   what the objective asks of the next tree, as small integers (Shi et al. 2022)
 *   draw        what rows weigh, and which of them a tree is grown on; quantiles: of rows of all workers
 *   grow        one tree: leaves, their rows, the best splits, found by the owners of columns
 *   splits      the best split by a column; categories: by one of these; voting: only columns that workers vote for are looked at
 *   columns     columns divided over the members of a group, which all have its rows
 *   merge       what workers tell each other while it grows: histograms, and the best splits
 *   monotone    constraints on what trees predict; initial: trees of another model, which come first
 *   forest      trees as they are kept; score: rows go down them
 *   contributions  of each feature to the margin of a row
 *   saved       trees in files, and what they are asked there; text: as LightGBM and XGBoost have them
 *
 * Rows are divided over workers. A round: every worker computes gradients of its rows and rounds them at random to a few bits,
 * the same for a row wherever it is; sums of integers do not depend on their order, so any number of ranks grows the same
 * trees, bit for bit. For each split the workers add up the histogram of the smaller child by a reduce-scatter (the other is
 * the parent's less that), each gets the sums of its share of the columns, finds the best split there, and tells the others
 * (split finding where the sums lie: Jiang et al., DimBoost, SIGMOD 2018). No histogram is ever whole. Over a network the children of
 * leaves that will most likely be divided are looked at together, so that a tree of 31 leaves waits for messages half as often.
 */
#ifndef TR_TREES_H
#define TR_TREES_H

#include "../loss.h"
#include "trireme/trireme.h"

/* ---- trees as they are kept ---- */

/* Of a leaf the feature is TR_LEAF. A row goes to the node `child` if its number is at most `number`, to child + 1 if not;
 * one without a number goes where `flags` says. Of a category the row goes to `child` if its value is in the set, and otherwise,
 * whatever it is, to child + 1. */
struct tr_node {
    uint32_t feature, child;
    union {
        float number; /* … ; of a leaf: what it adds */
        uint32_t set; /* of a category: a bit for each value, from this word of the forest's on … */
    };
    uint32_t flags;
};
enum { TR_LEAF = -1 }; /* as a uint32_t */
enum {
    TR_NODE_MISSING_LEFT = 1,
    TR_NODE_CATEGORY = 2,
    TR_NODE_SET_WORDS = 8
}; /* flags; … so many words, from bit 8 on */

/* What is told of a node. */
struct tr_node_note {
    float gain, weight; /* of the split; the sum of second derivatives of its rows */
};

/* Tree t has the nodes begin[t] .. begin[t + 1] - 1, and children are counted from begin[t]. */
struct tr_forest {
    size_t trees, nodes;
    uint64_t *begin;
    struct tr_node *node;
    struct tr_node_note *note;
    uint32_t *set; /* of all nodes */
    size_t set_words;
    size_t begin_capacity, node_capacity, note_capacity, set_capacity;
};

/* Appends a tree. */
int tr_forest_add(struct tr_forest *forest, const struct tr_node *node, const struct tr_node_note *note,
                  size_t nodes);
void tr_forest_free(struct tr_forest *forest);

/* Makes the node one of a category, and so many values go left. */
int tr_forest_add_set(struct tr_forest *forest, const uint32_t *value, size_t n, struct tr_node *node);

static inline bool tr_node_has(const struct tr_forest *forest, const struct tr_node *node, uint32_t value)
{
    return value / 32 < node->flags >> TR_NODE_SET_WORDS &&
           forest->set[node->set + value / 32] >> value % 32 & 1;
}

/* Whether a row goes left that has the number x in the node's column. */
static inline bool tr_goes_left(const struct tr_forest *forest, const struct tr_node *node, float x)
{
    if (node->flags & TR_NODE_CATEGORY)
        return x >= 0 && x < 0x1p24f && tr_node_has(forest, node, (uint32_t)x);
    return x == x ? x <= node->number : node->flags & TR_NODE_MISSING_LEFT;
}

/* ---- what features contribute ---- */

struct tr_contributions {
    double *weight, *mean; /* of all nodes: of the training rows there; what they add */
    size_t depth;
    struct tr_known *path; /* the features on the way, once for each level */
};
int tr_contributions_open(const struct tr_forest *forest, struct tr_contributions *c);
void tr_contributions_close(struct tr_contributions *c);

/* Adds, for each output, what each column contributes to a row, and behind them what the trees add where nothing is known; without
 * the model's base. */
void tr_contributions_add(const struct tr_contributions *c, const struct tr_forest *forest, size_t outputs,
                          size_t columns, const float *row, double *to);

/* ---- bins ---- */

enum {
    TR_BINS = 256
}; /* of a column that has one in a byte, with that of rows without a number; others are categories */
enum { TR_MOST_VALUES = 65535 }; /* of a category that have bins of their own */
enum { TR_BLOCK = 32 };          /* bundles whose bytes of a row lie together */

/* A column: bin b has the numbers above cut[b - 1] up to cut[b], of a category that value; the last is of rows without one, if
 * there is one, and of values that have no bin. */
struct tr_column_bins {
    size_t offset; /* of its bins among those of all columns */
    uint32_t bins; /* with the last; 1: a constant column */
    uint32_t zero; /* which 0 is in */
    bool missing, category;
    float most;       /* above this there is no bin but the last */
    const float *cut; /* bins - 1 - missing of them */
};

struct tr_bins {
    size_t columns, total; /* bins of all columns */
    struct tr_column_bins *column;
    float *cuts;
    bool sparse; /* rows are, at all workers */
};

/* Where a row's bin of a column is: in the byte of a bundle of columns. */
struct tr_bundled {
    uint32_t bundle;
    uint32_t first; /* the byte in the first bin that is not of 0; 0: the byte is the bin */
};

/* The rows of a worker. As bytes, one for each bundle: block k has the bundles 32 k …, a row after the other; and,
 * where memory has room for them, once more, those of each bundle one after the other. Or as lists: places among the bins of all columns, ascending, of the numbers
 * that are not in the bin of 0. */
struct tr_binned {
    size_t n, bundles, columns;
    size_t first, end;          /* the columns that it has bins of: all, or those of a member of a group */
    struct tr_bundled *bundled; /* of each column */
    uint32_t *column, *column_begin; /* bundle b has column[column_begin[b]] ..; not those of one bin */
    uint8_t *block, *of_bundle;
    uint16_t *
        *wide; /* of each column of more bins than a byte can say, those of all rows; its byte says nothing */
    uint64_t *begin;
    uint32_t *place;
};

/* Makes the bins of all columns from a sample of the rows that does not depend on who has them; all workers together, in a
 * stage. values: of each column's category, 0 of numbers. least: columns of which fewer rows have another number than most of them
 * get one bin. */
int tr_bins_make(tr_context *tr, const tr_data *data, const uint32_t *number, const uint32_t *values,
                 size_t most, uint64_t least, uint64_t seed, struct tr_bins *bins);
int tr_bins_apply(const struct tr_bins *bins, const tr_data *data, bool bundle, struct tr_binned *rows);
int tr_bins_by_column(struct tr_binned *rows); /* once more, of rows to grow trees on */

/* Room for the bytes of so many bundles; with `bundled` filled in, the columns of each; of lists, bundles, where a row's bytes are no more
 * than its list. */
int tr_binned_open(const struct tr_bins *bins, struct tr_binned *rows, size_t bundles);
int tr_binned_list(const struct tr_bins *bins, struct tr_binned *rows);
int tr_binned_bundle(const struct tr_bins *bins, struct tr_binned *rows);
void tr_bins_free(struct tr_bins *bins);
void tr_binned_free(struct tr_binned *rows);

/* Asks for huge pages in memory that has been allocated and not yet touched. */
void tr_trees_huge(void *memory, size_t bytes);

/* The first bin of which the cut is not below x. */
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

/* Width of the rows in block k. */
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

/* The bin that a byte of its bundle says a row has in a column. */
static inline uint32_t tr_bin_of_byte(const struct tr_column_bins *c, uint32_t first, uint32_t byte)
{
    if (first == 0) return byte;
    uint32_t bin = byte - first;
    return bin >= c->bins - 1u ? c->zero : bin + (bin >= c->zero);
}

/* The bin of a row in a column of more than one; of bytes column->bins where it has no number, and no row of training was without. */
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

/* ---- rows go down trees ---- */

enum { TR_SIDE = 64 }; /* rows side by side */

/* For the trees of a forest from `first` on, which are to stay as they are meanwhile. Closing NULL is fine, and needed after an
 * error, too. */
struct tr_scorer;
int tr_scorer_open(const struct tr_forest *forest, size_t first, size_t columns, struct tr_scorer **scorer);
void tr_scorer_close(struct tr_scorer **scorer);

/* Takes n <= TR_SIDE rows. keys: the columns that sparse rows count; NULL: they count these themselves. */
void tr_scorer_take(struct tr_scorer *s, const tr_batch *rows, const tr_key *keys, size_t columns,
                    size_t first, size_t n);
void tr_scorer_take_binned(struct tr_scorer *s, const struct tr_bins *bins, const struct tr_binned *rows,
                           size_t first, size_t n);

/* The nodes of a tree that these rows come to, counted from the tree's first; TR_SIDE of them, valid until the next call. */
const uint32_t *tr_scorer_leaves(struct tr_scorer *s, size_t tree);

/* Adds what all trees give to the scores of the first n of the rows, those of an output so far `apart` from the next one's. */
void tr_scorer_add(struct tr_scorer *s, size_t outputs, size_t n, float *score, size_t apart);

/* ---- gradients ---- */

/* Two sums in one number: gradients in the upper half, second derivatives in the lower. Of a row they have some bits each, in
 * the halves of 32 bits. */
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

/* ---- quantiles ---- */

/* Numbers as unsigned ones in the same order; -0 is 0. */
static inline uint32_t tr_key_of_float(float x)
{
    union {
        float value;
        uint32_t bits;
    } u = {x + 0.0f};
    return u.bits & 0x80000000u ? ~u.bits : u.bits | 0x80000000u;
}

static inline float tr_float_of_key(uint32_t key)
{
    union {
        uint32_t bits;
        float value;
    } u = {key & 0x80000000u ? key & 0x7fffffffu : ~key};
    return u.value;
}

/* Some rows of a worker; row NULL: 0 .. n - 1. */
struct tr_row_set {
    const uint32_t *row;
    size_t n;
};

/* Of each of n sets of rows over all workers: the least of the numbers that this part of the set's weight does not exceed; of an
 * empty one 0. weight NULL: rows weigh the same. value, weight: of all rows of a worker. */
int tr_quantiles(tr_context *tr, const struct tr_row_set *set, size_t n, const float *value,
                 const float *weight, double part, float *quantile);

/* ---- the rows of leaves ---- */

/* Adds the gradients of `n` rows to hist, which has the bins of all columns. all: the rows are 0 .. n - 1. bits: that gradients
 * have. */
void tr_histogram_add(const struct tr_bins *bins, const struct tr_binned *rows, const uint32_t *row,
                      const uint32_t *pair, size_t n, bool all, unsigned bits, tr_pair *hist);

/* Sets a bit for each row of a leaf that goes left, and none behind the last; left: whether the rows of a bin do. */
void tr_find_sides(const struct tr_bins *bins, const struct tr_binned *rows, size_t column,
                   const uint8_t *left, const uint32_t *row, size_t n, uint64_t *side);

/* Moves the rows that go left before those that go right, and their gradients with them. Returns how many these are. */
size_t tr_divide_rows(const uint64_t *side, uint32_t *row, uint32_t *pair, size_t n);

/* ---- splits ---- */

enum { TR_SPLIT_VALUES = 64 }; /* of a category that may go left, at most */

/* The best split of a leaf among some columns. */
struct tr_split {
    float gain; /* 0: none */
    uint32_t column, bin;
    uint16_t missing_left, values; /* values > 0: of a category, these go left */
    tr_pair left;                  /* sums of the rows that go left */
    uint16_t value[TR_SPLIT_VALUES];
};

/* A leaf's rows, and the bounds of its value and of all below it; none: ∓INFINITY. */
struct tr_leaf_sums {
    tr_pair sum;
    float low, high;
};

/* What splits of a leaf are measured by. */
struct tr_scan {
    tr_pair sum;
    float nothing;             /* what a split must gain more than */
    float gradient, curvature; /* units */
    float least;               /* curvature of a child */
    float row;                 /* … of a row, on average */
    float all_gradient, all_curvature, l2, parent;
    float low, high; /* bounds of the values of leaves; ∓INFINITY: none */
};

/* What a child gains whose gradients sum up to g, and second derivatives to h; *value: of such a leaf, within the bounds. */
static inline float tr_child_gain(const struct tr_scan *s, float g, float h, float l2, float *value)
{
    float v = -g / (h + l2);
    *value = v < s->low ? s->low : v > s->high ? s->high : v;
    return -*value * (2 * g + (h + l2) * *value);
}

struct tr_trees;
struct tr_trees_options;

/* part: of the leaf's rows, in the mean, that the sums are of. false: it is too small to be split. */
bool tr_scan_begin(const struct tr_trees *m, const struct tr_leaf_sums *leaf, double part, struct tr_scan *s);

/* Tries the splits by a column, of which hist has the sums: if one gains more than *best, it becomes that. */
void tr_scan_column(const struct tr_trees *m, const struct tr_scan *s, const tr_pair *hist, size_t column,
                    struct tr_split *best);
bool tr_split_is_better(const struct tr_split *a, const struct tr_split *b); /* of different columns */
size_t tr_split_bytes(const struct tr_trees *m);                             /* that tell all of one */

/* Bins 0 .. t go left, for each t below n, `before` too: where children lie in this direction (0: any) and within the bounds. */
void tr_scan_bounded(const struct tr_scan *s, int direction, const tr_pair *hist, size_t n, tr_pair before,
                     struct tr_split *best, uint32_t column, bool missing_left);

/* The best split of a category of n values, of which hist has the sums. */
struct tr_category_scan;
int tr_category_scan_open(size_t most_values, struct tr_category_scan **scan);
void tr_category_scan_close(struct tr_category_scan **scan); /* NULL inside is fine */
void tr_scan_category(struct tr_category_scan *scan, const struct tr_scan *s,
                      const struct tr_trees_options *o, const tr_pair *hist, size_t n, uint32_t column,
                      struct tr_split *best);

/* ---- what workers tell each other (merge) ---- */

/* The columns whose splits a worker finds. */
struct tr_trees_share {
    size_t first, last;
    size_t offset, bins; /* of them */
};

/* Takes part in a stage; all workers. members: of a group, that its columns are divided over; most_told: bytes that a worker tells of
 * a histogram at once; together: histograms that would be added up at once. Closing NULL is fine. */
struct tr_trees_merge;
int tr_trees_merge_open(tr_context *tr, const struct tr_bins *bins, size_t members, size_t most_told,
                        size_t together, struct tr_trees_merge **merge);
void tr_trees_merge_close(struct tr_trees_merge **merge);

const struct tr_trees_share *tr_trees_merge_share(const struct tr_trees_merge *merge); /* this worker's */

/* The columns of a member of each group, and whose a column is. */
struct tr_trees_share tr_trees_merge_columns(const struct tr_trees_merge *merge, size_t member);
size_t tr_trees_merge_owner(const struct tr_trees_merge *merge, size_t column);

/* How many histograms are added up at once, at most: 1, but where they go from node to node; then it is messages that they wait for,
 * unless they are long. */
enum { TR_MOST_TOGETHER = 32, TR_BYTES_TOGETHER = 1 << 20 };
size_t tr_trees_merge_together(const struct tr_trees_merge *merge);

/* This worker's histograms of all bins, one after the other, to be filled; NULL: there is no other worker. */
tr_pair *tr_trees_merge_local(const struct tr_trees_merge *merge);

/* Divides columns (NULL: all), of which the local sums hold one after the other, so that each worker has about equally many bins; first
 * and last count these columns. */
void tr_trees_merge_divide(const struct tr_trees_merge *merge, const struct tr_bins *bins,
                           const uint32_t *column, size_t columns, struct tr_trees_share *share);

/* Sums of this worker's share of n histograms, one after the other, over what all workers have filled in; share: of each worker, NULL: as
 * they have all columns. All workers, who call tr_trees_merge_tell() before they fill in anything again. */
int tr_trees_merge_add(struct tr_trees_merge *merge, const struct tr_trees_share *share, size_t n,
                       tr_pair *sum);

/* Tells all workers some bytes, as many each; what one has told stays until the next tr_trees_merge_add(). All workers. */
int tr_trees_merge_tell(struct tr_trees_merge *merge, const void *mine, size_t bytes);
const void *tr_trees_merge_told(const struct tr_trees_merge *merge, size_t worker);

/* What this worker has added up with others so far: histograms, in so many merges, their bins, and bytes that it has sent. */
struct tr_trees_merged {
    double histograms, merges, bins, bytes;
};
struct tr_trees_merged tr_trees_merge_done(const struct tr_trees_merge *merge);

/* ---- the model ---- */

enum { TR_PARALLEL_DATA, TR_PARALLEL_FEATURE, TR_PARALLEL_VOTING };

struct tr_trees_options {
    int parallel;
    uint64_t votes;
    uint64_t leaves, depth, bins, min_rows, bits, category_values;
    double category_smoothing, category_l2, category_rows;
    double l2, gamma, min_weight, rate, decay, rows, top, columns, quantile, delta;
    char *class_weights, *init;
    struct tr_job_list monotone;
    int objective;
};

struct tr_units {
    double gradient, curvature;
};

struct tr_trees_grower;
struct tr_trees_evaluation;

struct tr_trees {
    tr_context *tr;
    const tr_job *job;
    const struct tr_trees_options *o;
    uint64_t seed;
    tr_data *train, *test;
    const float *label; /* of rows, as the data have them … */
    float *group_label; /* … or, where columns are divided, of those of a group */
    uint32_t *number;   /* of rows */
    struct tr_bins bins;
    struct tr_binned rows, test_rows;
    float *score, *test_score; /* of each output, one after the other */
    size_t tested;             /* trees that test_score knows of */
    float *most,
        *sum;      /* softmax: of each row, this round: the largest score, and the sum of e^(score - that) */
    float *weight; /* of rows; NULL: all 1 */
    int8_t *direction; /* of each column: 1 up, -1 down; NULL: no constraints */
    size_t initial;    /* trees of model.init */
    float *scratch;    /* a number of each row, where something needs it for a while; NULL: nothing has yet */
    uint8_t *drawn;    /* rows that the next tree is grown on; NULL: all */
    uint32_t *row, *pair; /* rows and their rounded gradients: a leaf's are a part of these lists */
    struct tr_trees_grower *grower;
    struct { /* the tree that grows */
        struct tr_units units;
        double base; /* second derivative of a row, in the mean */
        uint64_t round;
        size_t output;
        float largest; /* solve.top_share: rows whose gradient is larger are in any case */
    } tree;
    struct tr_category_scan *categories;
    struct tr_voting *voting; /* NULL: but for solve.parallel voting */
    struct tr_trees_merge *merge;
    size_t members,
        member; /* of a group, that columns are divided over, and this one's number: 1 and 0, but for solve.parallel feature */
    size_t own_first,
        own_rows;        /* of the rows, those that this worker has read; others of its group the rest */
    uint64_t *side;      /* of the rows of the leaf that is divided: a bit for each */
    uint64_t histograms; /* that workers have added up */
    uint64_t sides, side_bytes; /* splits that members have told each other; of rows */
    tr_evaluation last;

    /* what is kept */
    const struct tr_loss *loss;
    uint64_t outputs; /* trees of a round */
    uint64_t columns, first_index, total_rows, labels;
    int64_t label_column;
    double best;       /* the objective */
    float *label_name; /* of classes */
    double *base;      /* of each output: what its trees are added to */
    uint32_t *values;  /* of each column's category, 0 of numbers; NULL: all are numbers */
    struct tr_forest forest;

    struct tr_trees_evaluation *evaluation;
    struct tr_scorer *scorer;              /* predict and evaluate */
    struct tr_contributions contributions; /* predict --contributions */
    uint32_t *leaf_number;                 /* predict --leaves: of all nodes */
    int output;                            /* of predict: TR_TREES_… */
};

/* Draws the rows of the tree that begins, and rounds down or up at random what it is to learn: fills the list, in the order of rows,
 * and tells what 1 stands for. All workers. */
int tr_gradients(struct tr_trees *m);

/* What the tree is to learn of at most TR_GRADIENTS rows: gradients and second derivatives, weighed, 0 of rows that are not drawn. row NULL:
 * first .. first + n - 1. */
enum { TR_GRADIENTS = 1024 };
void tr_gradients_of(const struct tr_trees *m, const uint32_t *row, size_t first, size_t n, float *g,
                     float *h);

/* Begins a round: what all outputs need. */
void tr_gradients_begin(struct tr_trees *m);

/* All ranks, once labels are known: what rows weigh. And which rows the next tree is grown on: others than those with the largest
 * gradients then count more. */
int tr_trees_weigh(struct tr_trees *m);
int tr_draw_rows(struct tr_trees *m);

/* All ranks, once columns and labels are known: the trees of model.init, and what they add to the scores of rows; and columns of
 * model.monotone. */
int tr_trees_begin_with(struct tr_trees *m);
int tr_trees_add_initial(const struct tr_trees *m, const tr_data *data, float *score);
int tr_trees_find_directions(struct tr_trees *m);

/* Where workers vote for columns (NULL inside is fine): the best split of a leaf among this worker's share of those that are chosen. hist,
 * own: sums of this worker's rows of the leaf, of all columns. All workers. */
int tr_voting_open(struct tr_trees *m);
void tr_voting_close(struct tr_voting **voting);
size_t tr_votes_bytes(const struct tr_trees_options *o, size_t columns); /* that a worker tells */
int tr_vote(struct tr_trees *m, const tr_pair *hist, const struct tr_leaf_sums *own,
            const struct tr_leaf_sums *leaf, struct tr_split *best);

/* Where columns are divided over the members of a group: rows change hands once bins and scores are there; scores that a member knows of
 * the rows that it has read come to all others; and of a split the side of each row of a leaf comes from who has the column into
 * m->side. All workers. */
int tr_trees_divide_columns(struct tr_trees *m);
int tr_trees_gather_scores(struct tr_trees *m, float *own, size_t apart);
int tr_trees_tell_sides(struct tr_trees *m, size_t column, size_t n);

/* Whether leaves are renewed as quantiles of what the trees before leave, and of which part. */
bool tr_trees_is_quantile(const struct tr_trees *m, double *part);

/* Σ over rows of the loss, times weight (NULL: 1), of scores that are so far apart for two outputs. */
double tr_trees_loss(const struct tr_trees *m, const float *label, const float *weight, const float *score,
                     size_t n, size_t apart);

static inline bool tr_trees_classify(const struct tr_trees *m)
{
    return tr_loss_classifies(m->loss);
}

static inline double tr_trees_shape(const struct tr_trees *m)
{
    return tr_loss_shape(m->loss, m->o->delta, m->o->quantile);
}

/* The class of a label: of two classes, the larger label is class 1. */
size_t tr_trees_class_of(const struct tr_trees *m, float label);

/* Adds the trees from `first` on to the scores of binned rows. */
int tr_trees_score(const struct tr_trees *m, const struct tr_binned *rows, size_t first, float *score);

/* Grows a tree, and adds it to the forest and to the scores of training rows. All workers. */
int tr_grower_open(struct tr_trees *m);
int tr_trees_grow(struct tr_trees *m, size_t output, uint64_t round);
void tr_grower_close(struct tr_trees *m);

/* Writes model.txt and model.json: one rank. */
int tr_trees_write_texts(const struct tr_trees *m, const char *folder);

void tr_trees_saved_close(struct tr_trees *m);
int tr_trees_fields(void *model, tr_fields *fields);
int tr_trees_ready(void *model, tr_query *query);
int tr_trees_predict(void *model, tr_query *query, const tr_records *records, double *out);
int tr_trees_evaluate(void *model, tr_query *query, const tr_records *records, const double *out);
int tr_trees_figures(void *model, tr_query *query, uint64_t rows);
int tr_trees_inspect(void *model, tr_query *query);

extern const tr_model_class tr_trees_class;

#endif
