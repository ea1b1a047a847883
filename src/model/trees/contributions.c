/* What each feature contributes to the margin of a row: Shapley values of the expectation that the trees give when only some
 * features are known (Lundberg, Erion and Lee, Consistent individualized feature attribution for tree ensembles, 2018,
 * algorithm 2). Where a feature is not known, a row goes both ways, in proportion to the weight of training rows that did. */
#include <stdlib.h>

#include "trees.h"

/* A feature on the way from the root: the part of rows that go on where it is not known, whether this row does where it is, and
 * the weight of sets of as many known features. */
struct tr_known {
    uint32_t feature;
    double unknown, is, weight;
};

struct explainer {
    const struct tr_forest *forest;
    const struct tr_node *tree;
    const double *weight; /* of the tree's nodes */
    const float *row;
    double *to;
};

static void extend(struct tr_known *path, size_t n, uint32_t feature, double unknown, double is)
{
    path[n] = (struct tr_known){feature, unknown, is, n == 0};
    for (size_t i = n; i-- > 0;) {
        path[i + 1].weight += is * path[i].weight * (double)(i + 1) / (double)(n + 1);
        path[i].weight *= unknown * (double)(n - i) / (double)(n + 1);
    }
}

/* Sum of the weights if feature `at` of n + 1 were not among them; leaves them so, if it is to go. */
static double without(struct tr_known *path, size_t n, size_t at, bool go)
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

/* above: the features on the way to the node's parent, n of them; those to the node are put behind them. */
static void descend(const struct explainer *e, size_t at, struct tr_known *above, size_t n,
                    struct tr_known branch)
{
    const struct tr_node *node = e->tree + at;
    struct tr_known *path = above + n;
    if (branch.unknown == 0 && branch.is == 0) return; /* nothing comes here */
    for (size_t i = 0; i < n; i++) path[i] = above[i];
    extend(path, n, branch.feature, branch.unknown, branch.is);
    if (node->feature == (uint32_t)TR_LEAF) {
        for (size_t i = 1; i <= n; i++)
            e->to[path[i].feature] +=
                without(path, n, i, false) * (path[i].is - path[i].unknown) * (double)node->number;
        return;
    }
    struct tr_known same = {.unknown = 1, .is = 1};
    for (size_t i = 1; i <= n; i++)
        if (path[i].feature == node->feature) {
            same = path[i];
            (void)without(path, n--, i, true);
            break;
        }
    double left = e->weight[node->child], both = left + e->weight[node->child + 1],
           part = both > 0 ? left / both : 0.5;
    bool goes_left = tr_goes_left(e->forest, node, e->row[node->feature]);
    for (uint32_t side = 0; side < 2; side++)
        descend(e, node->child + side, path, n + 1,
                (struct tr_known){.feature = node->feature,
                                  .unknown = same.unknown * (side ? 1 - part : part),
                                  .is = goes_left == !side ? same.is : 0});
}

/* The weights of a tree's nodes from those of its leaves, and what it adds where nothing is known; its depth. */
static size_t weigh(const struct tr_forest *f, size_t t, double *weight, double *mean, size_t *depth)
{
    size_t first = (size_t)f->begin[t], n = (size_t)f->begin[t + 1] - first, deepest = 0;
    const struct tr_node *node = f->node + first;
    depth[0] = 0;
    for (size_t i = 0; i < n; i++) {
        if (node[i].feature == (uint32_t)TR_LEAF) continue;
        depth[node[i].child] = depth[node[i].child + 1] = depth[i] + 1;
        deepest = tr_max_size(deepest, depth[i] + 1);
    }
    for (size_t i = n; i-- > 0;) {
        weight[i] = (double)f->note[first + i].weight;
        mean[i] = (double)node[i].number;
        if (node[i].feature == (uint32_t)TR_LEAF) continue;
        double left = weight[node[i].child], right = weight[node[i].child + 1],
               part = left + right > 0 ? left / (left + right) : 0.5;
        weight[i] = left + right;
        mean[i] = part * mean[node[i].child] + (1 - part) * mean[node[i].child + 1];
    }
    return deepest;
}

int tr_contributions_open(const struct tr_forest *f, struct tr_contributions *c)
{
    size_t most = 0, *depth;
    for (size_t t = 0; t < f->trees; t++) most = tr_max_size(most, (size_t)(f->begin[t + 1] - f->begin[t]));
    TR_TRY(TR_NEW(&depth, most));
    int status = TR_NEW(&c->weight, f->nodes);
    if (status == TR_OK) status = TR_NEW(&c->mean, f->nodes);
    for (size_t t = 0; t < f->trees && status == TR_OK; t++)
        c->depth = tr_max_size(c->depth, weigh(f, t, c->weight + f->begin[t], c->mean + f->begin[t], depth));
    free(depth);
    if (status == TR_OK) status = TR_NEW(&c->path, (c->depth + 2) * (c->depth + 3) / 2 + 1);
    return status;
}

void tr_contributions_close(struct tr_contributions *c)
{
    free(c->weight);
    free(c->mean);
    free(c->path);
}

void tr_contributions_add(const struct tr_contributions *c, const struct tr_forest *f, size_t outputs,
                          size_t columns, const float *row, double *to)
{
    for (size_t t = 0; t < f->trees; t++) {
        struct explainer e = {f, f->node + f->begin[t], c->weight + f->begin[t], row,
                              to + t % outputs * (columns + 1)};
        e.to[columns] += c->mean[f->begin[t]];
        descend(&e, 0, c->path, 0, (struct tr_known){.feature = (uint32_t)TR_LEAF, .unknown = 1, .is = 1});
    }
}
