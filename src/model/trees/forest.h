/* Finished trees: storage, prediction, and the contributions of features. */
#ifndef TR_TREES_FOREST_H
#define TR_TREES_FOREST_H

#include "trireme/trireme.h"

/* A node of a tree. Children are counted from the first node of their tree, and a child has a larger index than its parent.
 *
 * An inner node sends a row to `child` (left) or to child + 1 (right). Numeric column: left if x <= number; a missing x goes
 * left if TR_NODE_MISSING_LEFT is set. Category: left if x is in the set; every other value, known or not, goes right. */
struct tr_node {
    uint32_t feature; /* column; TR_LEAF (as uint32_t): this is a leaf */
    uint32_t child;
    union {
        float number; /* threshold; leaf: value that is added to the score */
        uint32_t set; /* category: index of the first word of the set in tr_forest.set */
    };
    uint32_t flags;
};
enum { TR_LEAF = -1 };
enum {
    TR_NODE_MISSING_LEFT = 1,
    TR_NODE_CATEGORY = 2,
    TR_NODE_SET_WORDS = 8 /* the bits of flags from this one on contain the number of words of the set */
};

/* Information about a node that predictions do not need. */
struct tr_node_note {
    float gain;   /* of the split; 0 for leaves */
    float weight; /* sum of the second derivatives of the training rows */
};

/* Tree t has the nodes begin[t] .. begin[t + 1] - 1. */
struct tr_forest {
    size_t trees, nodes;
    uint64_t *begin;
    struct tr_node *node;
    struct tr_node_note *note;
    uint32_t *set; /* sets of all nodes: bit v % 32 of word v / 32 is value v */
    size_t set_words;
    size_t begin_capacity, node_capacity, note_capacity, set_capacity;
};

/* Appends a tree. */
int tr_forest_add(struct tr_forest *forest, const struct tr_node *node, const struct tr_node_note *note,
                  size_t nodes);

/* Makes `node` split a category: the n values go left. */
int tr_forest_add_set(struct tr_forest *forest, const uint32_t *value, size_t n, struct tr_node *node);

void tr_forest_free(struct tr_forest *forest);

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

/* Opens a scorer for the trees first .. forest->trees - 1. The forest must not change until the scorer is closed.
 *
 * @param [in]  columns  number of columns of the model
 * @param [out] scorer   to be closed, also after an error
 */
int tr_scorer_open(const struct tr_forest *forest, size_t first, size_t columns, struct tr_scorer **scorer);
void tr_scorer_close(struct tr_scorer **scorer); /* *scorer may be NULL */

/* Reads the rows first .. first + n - 1, n <= TR_SIDE.
 *
 * @param [in] keys     sparse rows: maps the column indices of the rows to columns of the model; NULL: they are equal
 * @param [in] columns  dense rows: number of columns
 */
void tr_scorer_read(struct tr_scorer *s, const tr_batch *rows, const tr_key *keys, size_t columns,
                    size_t first, size_t n);

/* Returns for each of the TR_SIDE rows the leaf that it reaches in a tree, counted from the tree's first node. The array is
 * valid until the next call. */
const uint32_t *tr_scorer_leaves(struct tr_scorer *s, size_t tree);

/* Adds the values of all trees to the scores of the first n rows.
 *
 * @param [in,out] score  score[k * apart + i]: output k of row i
 */
void tr_scorer_add(struct tr_scorer *s, size_t outputs, size_t n, float *score, size_t apart);

/* ---- contributions of features ---- */

struct tr_contributions {
    double *weight, *mean; /* per node: weight of the training rows; mean value of the leaves below */
    size_t depth;          /* of the deepest tree */
    struct tr_known *path; /* scratch: the features on the path to a node, one copy per level */
};
int tr_contributions_open(const struct tr_forest *forest, struct tr_contributions *c);
void tr_contributions_close(struct tr_contributions *c);

/* Adds the contributions of the columns to one row, without the base of the model.
 *
 * @param [in]     row  dense, `columns` numbers
 * @param [in,out] to   outputs × (columns + 1): the contribution of each column, then the mean of the trees
 */
void tr_contributions_add(const struct tr_contributions *c, const struct tr_forest *forest, size_t outputs,
                          size_t columns, const float *row, double *to);

#endif
