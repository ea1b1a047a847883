/* Finished trees: storage, prediction, and contributions of features. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "trees.h"

int tr_forest_add(struct tr_forest *f, const struct tr_node *node, const struct tr_node_note *note,
                  size_t nodes)
{
    TR_TRY(TR_GROW(&f->begin, &f->begin_capacity, f->trees + 2));
    TR_TRY(TR_GROW(&f->node, &f->node_capacity, f->nodes + nodes));
    TR_TRY(TR_GROW(&f->note, &f->note_capacity, f->nodes + nodes));
    if (f->trees == 0) f->begin[0] = 0;
    memcpy(f->node + f->nodes, node, nodes * sizeof *node);
    memcpy(f->note + f->nodes, note, nodes * sizeof *note);
    f->nodes += nodes;
    f->begin[++f->trees] = f->nodes;
    return TR_OK;
}

int tr_forest_add_set(struct tr_forest *f, const uint32_t *value, size_t n, struct tr_node *node)
{
    uint32_t words = 0;
    for (size_t i = 0; i < n; i++) words = value[i] / 32 >= words ? value[i] / 32 + 1 : words;
    TR_TRY(TR_GROW(&f->set, &f->set_capacity, f->set_words + words));
    memset(f->set + f->set_words, 0, words * sizeof *f->set);
    for (size_t i = 0; i < n; i++) f->set[f->set_words + value[i] / 32] |= 1u << value[i] % 32;
    node->set = (uint32_t)f->set_words;
    node->flags = TR_NODE_CATEGORY | words << TR_NODE_SET_WORDS;
    f->set_words += words;
    return TR_OK;
}

void tr_forest_free(struct tr_forest *f)
{
    TR_FREE_ALL(f->begin, f->node, f->note, f->set);
    *f = (struct tr_forest){0};
}

/* ================ prediction ================ */

/* A scorer processes TR_SIDE rows together. It stores their numbers column by column, for the columns that trees use. In a small
 * tree all nodes are evaluated: if a row goes right at a node, the leaves below the left child are removed from the row's set of
 * leaves. The first leaf that remains is the result (Lucchese et al., QuickScorer, SIGIR 2015). In a larger tree, each row follows
 * its path from the root. */
enum { MOST_NODES = 63 }; /* maximum number of nodes of a small tree, with 32 leaves */
enum { NONE = -1 };

/* A node as the scorer needs it. */
struct question {
    uint32_t at;   /* index of the column's numbers in tr_scorer.number */
    uint32_t stay; /* a bit per leaf that remains if a row goes right; at first: number of leaves below */
    uint32_t leaf; /* in the i-th question of a tree: the node of the tree's i-th leaf */
};

struct tr_scorer {
    const struct tr_forest *forest;
    size_t first;              /* index of the first tree that is scored */
    struct question *question; /* per node */
    size_t n_used;
    uint32_t *used;         /* columns that the trees use, ascending */
    uint32_t *place;        /* per column: its index in `used`, or NONE */
    uint32_t *offset;       /* sparse binned rows: index of the first bin of each used column */
    float *number;          /* number[k * TR_SIDE + i] is the number of row i in column used[k] */
    uint32_t leaf[TR_SIDE]; /* result of tr_scorer_leaves() */
};

/* ---- opening ---- */

int tr_scorer_open(const struct tr_forest *f, size_t first, size_t columns, struct tr_scorer **scorer)
{
    struct tr_scorer *s;
    TR_TRY(TR_NEW(scorer, 1));
    s = *scorer;
    *s = (struct tr_scorer){.forest = f, .first = first};
    if (first == f->trees) return TR_OK;
    uint32_t n = 0;
    TR_TRY(TR_NEW(&s->place, columns));
    for (size_t i = f->begin[first]; i < f->nodes; i++)
        if (f->node[i].feature != TR_LEAF) s->place[f->node[i].feature] = 1;
    for (size_t c = 0; c < columns; c++) s->n_used += s->place[c];
    TR_TRY(TR_NEW(&s->used, s->n_used));
    TR_TRY(TR_NEW(&s->offset, s->n_used));
    TR_TRY(TR_NEW(&s->number, s->n_used * TR_SIDE));
    for (uint32_t c = 0; c < columns; c++) {
        if (s->place[c]) s->used[n] = c;
        s->place[c] = s->place[c] ? n++ : (uint32_t)NONE;
    }
    TR_TRY(TR_NEW(&s->question, f->nodes - (size_t)f->begin[first]));
    for (size_t t = first; t < f->trees; t++) {
        const struct tr_node *node = f->node + f->begin[t];
        struct question *q = s->question + (f->begin[t] - f->begin[first]);
        size_t nodes = (size_t)(f->begin[t + 1] - f->begin[t]);
        uint32_t first_leaf[MOST_NODES] = {0}; /* per node: index of the first leaf below it */
        for (size_t i = nodes; i-- > 0;) {
            bool leaf = node[i].feature == TR_LEAF;
            q[i].at = leaf ? 0 : s->place[node[i].feature] * TR_SIDE;
            q[i].stay = leaf ? 1 : q[node[i].child].stay + q[node[i].child + 1].stay;
        }
        for (size_t i = 0; i < nodes && nodes <= MOST_NODES; i++) {
            uint32_t child = node[i].child;
            if (node[i].feature == TR_LEAF) {
                q[first_leaf[i]].leaf = (uint32_t)i;
                continue;
            }
            first_leaf[child] = first_leaf[i];
            first_leaf[child + 1] = first_leaf[i] + q[child].stay;
            q[i].stay = ~((((uint32_t)1 << q[child].stay) - 1) << first_leaf[i]);
        }
    }
    return TR_OK;
}

void tr_scorer_close(struct tr_scorer **scorer)
{
    struct tr_scorer *s = *scorer;
    if (!s) return;
    TR_FREE_ALL(s->question, s->used, s->place, s->offset, s->number, s);
    *scorer = NULL;
}

/* ---- rows ---- */

void tr_scorer_read(struct tr_scorer *s, const tr_batch *rows, const tr_key *keys, size_t columns,
                    size_t first, size_t n)
{
    if (!rows->dense) memset(s->number, 0, s->n_used * TR_SIDE * sizeof *s->number);
    for (size_t i = 0; i < n && rows->dense; i++) {
        const float *row = rows->dense + (first + i) * columns;
        for (size_t k = 0; k < s->n_used; k++) s->number[k * TR_SIDE + i] = row[s->used[k]];
    }
    for (size_t i = 0; i < n && !rows->dense; i++)
        for (uint64_t k = rows->begin[first + i]; k < rows->begin[first + i + 1]; k++) {
            uint32_t column = rows->column[k], at = s->place[keys ? keys[column] : column];
            if (at != (uint32_t)NONE) s->number[at * TR_SIDE + i] = tr_value_at(rows, k);
        }
}

/* Returns any number that belongs to a bin. The scorer compares it in place of the original number of a row. */
static float scorer_number_of_bin(const struct tr_column_bins *c, uint32_t bin)
{
    uint32_t numbers = c->bins - (uint32_t)c->missing;
    if (bin >= numbers) return NAN;
    return c->category ? (float)bin : bin + 1 < numbers ? c->cut[bin] : FLT_MAX;
}

static void scorer_read_binned(struct tr_scorer *s, const struct tr_bins *bins, const struct tr_binned *rows,
                               size_t first, size_t n)
{
    for (size_t k = 0; k < s->n_used && rows->block; k++)
        for (size_t i = 0; i < n; i++)
            s->number[k * TR_SIDE + i] =
                scorer_number_of_bin(&bins->column[s->used[k]], tr_bin_of(bins, rows, first + i, s->used[k]));
    if (rows->block || s->n_used == 0) return; /* n_used is 0 if no tree has a split */
    for (size_t k = 0; k < s->n_used; k++) s->offset[k] = (uint32_t)bins->column[s->used[k]].offset;
    memset(s->number, 0, s->n_used * TR_SIDE * sizeof *s->number);
    for (size_t i = 0; i < n; i++)
        for (uint64_t p = rows->begin[first + i]; p < rows->begin[first + i + 1]; p++) {
            uint32_t place = rows->place[p];
            size_t k = tr_place_u32(s->offset, s->n_used, place + 1);
            if (k == 0) continue;
            const struct tr_column_bins *c = &bins->column[s->used[k - 1]];
            if (place < c->offset + c->bins)
                s->number[(k - 1) * TR_SIDE + i] = scorer_number_of_bin(c, place - (uint32_t)c->offset);
        }
}

/* ---- trees ---- */

/* Finds the leaves of TR_SIDE rows in a small tree of n nodes. */
TR_CPU_CLONES static void scorer_ask_all(const struct tr_forest *f, const struct tr_node *node, size_t n,
                                         const struct question *q, const float *number, uint32_t *leaf)
{
    uint32_t alive[TR_SIDE];
    for (size_t i = 0; i < TR_SIDE; i++) alive[i] = ~(uint32_t)0;
    for (size_t k = 0; k < n; k++) {
        const float *x = number + q[k].at, most = node[k].number;
        uint32_t stay = q[k].stay;
        if (node[k].feature == TR_LEAF) continue;
        if (node[k].flags & TR_NODE_CATEGORY)
            for (size_t i = 0; i < TR_SIDE; i++)
                alive[i] &= tr_goes_left(f, &node[k], x[i]) ? ~(uint32_t)0 : stay;
        else if (node[k].flags & TR_NODE_MISSING_LEFT)
            for (size_t i = 0; i < TR_SIDE; i++) alive[i] &= x[i] > most ? stay : ~(uint32_t)0;
        else
            for (size_t i = 0; i < TR_SIDE; i++) alive[i] &= x[i] <= most ? ~(uint32_t)0 : stay;
    }
    for (size_t i = 0; i < TR_SIDE; i++) leaf[i] = q[__builtin_ctz(alive[i])].leaf;
}

const uint32_t *tr_scorer_leaves(struct tr_scorer *s, size_t tree)
{
    const struct tr_forest *f = s->forest;
    const struct tr_node *node = f->node + f->begin[tree];
    const struct question *q = s->question + (f->begin[tree] - f->begin[s->first]);
    size_t n = (size_t)(f->begin[tree + 1] - f->begin[tree]);
    if (n <= MOST_NODES) scorer_ask_all(f, node, n, q, s->number, s->leaf);
    else {
        uint32_t moved;
        memset(s->leaf, 0, TR_SIDE * sizeof *s->leaf);
        do {
            moved = 0;
            for (size_t i = 0; i < TR_SIDE; i++) {
                const struct tr_node *at = &node[s->leaf[i]];
                if (at->feature == TR_LEAF) continue;
                moved = 1;
                s->leaf[i] = at->child + !tr_goes_left(f, at, s->number[q[s->leaf[i]].at + i]);
            }
        } while (moved);
    }
    return s->leaf;
}

void tr_scorer_add(struct tr_scorer *s, size_t outputs, size_t n, float *score, size_t apart)
{
    const struct tr_forest *f = s->forest;
    for (size_t t = s->first; t < f->trees; t++) {
        const struct tr_node *node = f->node + f->begin[t];
        const uint32_t *leaf = tr_scorer_leaves(s, t);
        for (size_t i = 0; i < n; i++) score[t % outputs * apart + i] += node[leaf[i]].number;
    }
}

int tr_trees_score(const struct tr_trees *m, const struct tr_binned *rows, size_t first, float *score)
{
    TR_CLOSED_BY(tr_scorer_close) struct tr_scorer *s = NULL;
    TR_TRY(tr_scorer_open(&m->forest, first, (size_t)m->columns, &s));
    for (size_t i = 0; i < rows->n; i += TR_SIDE) {
        size_t n = tr_min_size(TR_SIDE, rows->n - i);
        scorer_read_binned(s, &m->bins, rows, i, n);
        tr_scorer_add(s, (size_t)m->outputs, n, score + i, rows->n);
    }
    return TR_OK;
}

/* ================ contributions ================ */

/* The contribution of a feature is its Shapley value: the mean change of the expected value of the trees when the feature becomes
 * known, over all sets of other known features (Lundberg, Erion and Lee, Consistent individualized feature attribution for tree
 * ensembles, 2018, algorithm 2). At a split by an unknown feature, a row follows both branches, weighted by the training rows. */

/* A feature on the path from the root to a node. */
struct tr_known {
    uint32_t feature;
    double unknown; /* fraction of the training rows that follow the path at the splits by the feature */
    double is;      /* 1 if the explained row follows the path at these splits, otherwise 0 */
    double weight;  /* in the i-th element: weight of the sets with i known features of the path */
};

struct explainer {
    const struct tr_forest *forest;
    const struct tr_node *tree;
    const double *weight; /* tr_contributions.weight of the nodes of the tree */
    const float *row;
    double *to;
};

/* Returns the sum of the weights of a path of n + 1 features after the feature at index `at` is removed.
 *
 * @param [in] go  whether to remove the feature in `path`; otherwise `path` does not change */
static double path_without(struct tr_known *path, size_t n, size_t at, bool go)
{
    double next = path[n].weight, sum = 0, is = path[at].is, unknown = path[at].unknown;
    for (size_t i = n; i-- > 0;) {
        double weight = is != 0 ? next * (double)(n + 1) / ((double)(i + 1) * is)
                                : path[i].weight * (double)(n + 1) / (unknown * (double)(n - i));
        if (is != 0) next = path[i].weight - weight * unknown * (double)(n - i) / (double)(n + 1);
        if (go) path[i].weight = weight;
        sum += weight;
    }
    for (size_t i = at; go && i < n; i++) {
        path[i].feature = path[i + 1].feature;
        path[i].unknown = path[i + 1].unknown;
        path[i].is = path[i + 1].is;
    }
    return sum;
}

/* Adds the contributions of the leaves below a node.
 *
 * @param [in] above   n features on the path to the parent; the path to the node is written behind them
 * @param [in] branch  feature of the parent's split, for the branch to the node */
static void contributions_descend(const struct explainer *e, size_t at, struct tr_known *above, size_t n,
                                  struct tr_known branch)
{
    const struct tr_node *node = e->tree + at;
    struct tr_known *path = above + n;
    if (branch.unknown == 0 && branch.is == 0) return; /* no row reaches the node */
    for (size_t i = 0; i < n; i++) path[i] = above[i];
    path[n] = (struct tr_known){branch.feature, branch.unknown, branch.is, n == 0};
    for (size_t i = n; i-- > 0;) {
        path[i + 1].weight += branch.is * path[i].weight * (double)(i + 1) / (double)(n + 1);
        path[i].weight *= branch.unknown * (double)(n - i) / (double)(n + 1);
    }
    if (node->feature == TR_LEAF) {
        for (size_t i = 1; i <= n; i++)
            e->to[path[i].feature] +=
                path_without(path, n, i, false) * (path[i].is - path[i].unknown) * (double)node->number;
        return;
    }
    struct tr_known same = {.unknown = 1, .is = 1};
    for (size_t i = 1; i <= n; i++)
        if (path[i].feature == node->feature) {
            same = path[i];
            (void)path_without(path, n--, i, true);
            break;
        }
    double left = e->weight[node->child], both = left + e->weight[node->child + 1],
           part = both > 0 ? left / both : 0.5;
    bool goes_left = tr_goes_left(e->forest, node, e->row[node->feature]);
    for (uint32_t side = 0; side < 2; side++)
        contributions_descend(e, node->child + side, path, n + 1,
                              (struct tr_known){.feature = node->feature,
                                                .unknown = same.unknown * (side ? 1 - part : part),
                                                .is = goes_left == !side ? same.is : 0});
}

int tr_contributions_open(const struct tr_forest *f, struct tr_contributions *c)
{
    TR_FREED size_t *depth = NULL;
    TR_TRY(TR_NEW(&depth, f->nodes));
    TR_TRY(TR_NEW(&c->weight, f->nodes));
    TR_TRY(TR_NEW(&c->mean, f->nodes));
    for (size_t t = 0; t < f->trees; t++) {
        /* Compute the weight and mean value of each inner node from its children, which have larger indices. */
        size_t first = (size_t)f->begin[t], n = (size_t)f->begin[t + 1] - first;
        const struct tr_node *node = f->node + first;
        double *weight = c->weight + first, *mean = c->mean + first;
        depth[0] = 0;
        for (size_t i = 0; i < n; i++) {
            if (node[i].feature == TR_LEAF) continue;
            depth[node[i].child] = depth[node[i].child + 1] = depth[i] + 1;
            c->depth = tr_max_size(c->depth, depth[i] + 1);
        }
        for (size_t i = n; i-- > 0;) {
            weight[i] = (double)f->note[first + i].weight;
            mean[i] = (double)node[i].number;
            if (node[i].feature == TR_LEAF) continue;
            double left = weight[node[i].child], right = weight[node[i].child + 1],
                   part = left + right > 0 ? left / (left + right) : 0.5;
            weight[i] = left + right;
            mean[i] = part * mean[node[i].child] + (1 - part) * mean[node[i].child + 1];
        }
    }
    return TR_NEW(&c->path, (c->depth + 2) * (c->depth + 3) / 2 + 1);
}

void tr_contributions_close(struct tr_contributions *c)
{
    TR_FREE_ALL(c->weight, c->mean, c->path);
}

void tr_contributions_add(const struct tr_contributions *c, const struct tr_forest *f, size_t outputs,
                          size_t columns, const float *row, double *to)
{
    for (size_t t = 0; t < f->trees; t++) {
        struct explainer e = {f, f->node + f->begin[t], c->weight + f->begin[t], row,
                              to + t % outputs * (columns + 1)};
        e.to[columns] += c->mean[f->begin[t]];
        contributions_descend(&e, 0, c->path, 0,
                              (struct tr_known){.feature = TR_LEAF, .unknown = 1, .is = 1});
    }
}
