/* A model of trees in files: model.h5, checkpoints, model.txt and model.json. */
#define _GNU_SOURCE
#include <errno.h>
#include <float.h>
#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "trees.h"

/* ================ text ================ */

/* LightGBM can load model.txt, and XGBoost model.json. They then predict the same scores as Trireme: the initial score of an output
 * is added to the leaves of its first tree. */

/* A tree to be written. */
struct tree {
    const struct tr_forest *forest;
    const struct tr_node *node;
    const struct tr_node_note *note;
    size_t n, leaves;
    double base;            /* added to the value of each leaf */
    uint64_t shift;         /* result of text_shift() */
    bool sparse;            /* whether entries that a row lacks are 0, not missing */
    size_t categories;      /* number of nodes that split by a category */
    uint64_t columns;       /* number of columns in the file, with `shift` unused ones at the beginning */
    const int64_t *number;  /* per node: index of the inner node, or -1 - index of the leaf, as in LightGBM */
    const uint32_t *parent; /* per node: its parent; UINT32_MAX: the root */
};

/* ---- one tree ---- */

/* Returns the index that LightGBM and XGBoost give to our column 0: for LIBSVM data its index in the data, which may be 1. */
static uint64_t text_shift(const struct tr_trees *m)
{
    return m->train->format == TR_FORMAT_LIBSVM ? m->first_index : 0;
}

/* Calls put() for each tree. */
static int text_put_trees(const struct tr_trees *m, FILE *file,
                          void (*put)(FILE *file, const struct tree *t, size_t which))
{
    const struct tr_forest *f = &m->forest;
    for (size_t k = 0; k < f->trees; k++) {
        size_t first = (size_t)f->begin[k];
        struct tree t = {.forest = f,
                         .node = f->node + first,
                         .note = f->note + first,
                         .n = (size_t)f->begin[k + 1] - first,
                         .base = k < m->outputs ? m->base[k] : 0,
                         .columns = m->columns + text_shift(m),
                         .shift = text_shift(m),
                         .sparse = m->bins.sparse || m->train->format == TR_FORMAT_LIBSVM};
        TR_FREED int64_t *number = NULL;
        TR_FREED uint32_t *parent = NULL;
        TR_TRY(TR_NEW(&number, t.n));
        TR_TRY(TR_NEW(&parent, t.n));
        parent[0] = UINT32_MAX;
        for (size_t i = 0, inner = 0; i < t.n; i++) {
            bool leaf = t.node[i].feature == TR_LEAF;
            number[i] = leaf ? -1 - (int64_t)t.leaves++ : (int64_t)inner++;
            t.categories += t.node[i].flags & TR_NODE_CATEGORY ? 1 : 0;
            if (!leaf) parent[t.node[i].child] = parent[t.node[i].child + 1] = (uint32_t)i;
        }
        t.number = number;
        t.parent = parent;
        put(file, &t, k);
    }
    return TR_OK;
}

static bool text_is_leaf(const struct tree *t, size_t i)
{
    return t->node[i].feature == TR_LEAF;
}

static bool text_is_category(const struct tree *t, size_t i)
{
    return t->node[i].flags & TR_NODE_CATEGORY;
}

static uint32_t text_words(const struct tree *t, size_t i)
{
    return text_is_category(t, i) ? t->node[i].flags >> TR_NODE_SET_WORDS : 0;
}

/* The properties of a node that text_number() returns. */
enum text_number {
    FEATURE,
    GAIN,
    WEIGHT,
    VALUE,
    LIGHTGBM_THRESHOLD,
    LIGHTGBM_DECISION,
    LIGHTGBM_LEFT,
    LIGHTGBM_RIGHT,
    XGBOOST_LEFT,
    XGBOOST_RIGHT,
    XGBOOST_PARENT,
    XGBOOST_CONDITION,
    XGBOOST_MISSING_LEFT,
    XGBOOST_TYPE
};

static double text_number(const struct tree *t, size_t i, enum text_number which)
{
    const struct tr_node *node = &t->node[i];
    bool leaf = text_is_leaf(t, i), category = text_is_category(t, i);
    size_t sets = 0;
    switch (which) {
    case FEATURE: return leaf ? 0 : (double)(node->feature + t->shift);
    case GAIN: return (double)t->note[i].gain;
    case WEIGHT: return (double)t->note[i].weight;
    case VALUE: return leaf ? (double)node->number + t->base : 0;
    case LIGHTGBM_THRESHOLD:
        /* LightGBM compares doubles: the largest double that rounds to a float that goes left. Category: the index of the set. */
        for (size_t k = 0; k < i; k++) sets += text_is_category(t, k);
        return category
                   ? (double)sets
                   : fmin(((double)node->number + (double)nextafterf(node->number, INFINITY)) / 2, DBL_MAX);
    /* Bits: 8 = missing numbers are NaN; 2 = missing numbers go left; 1 = the column is a category. */
    case LIGHTGBM_DECISION: return 8 + category + (node->flags & TR_NODE_MISSING_LEFT ? 2 : 0);
    case LIGHTGBM_LEFT: return (double)t->number[node->child];
    case LIGHTGBM_RIGHT: return (double)t->number[node->child + 1];
    /* In XGBoost the values in the set of a category go right, so the children of the node are swapped. */
    case XGBOOST_LEFT: return leaf ? -1 : (double)node->child + category;
    case XGBOOST_RIGHT: return leaf ? -1 : (double)node->child + !category;
    case XGBOOST_PARENT: return t->parent[i] == UINT32_MAX ? INT32_MAX : (double)t->parent[i];
    case XGBOOST_CONDITION: /* XGBoost goes left if x < condition, not x <= number: the next larger float is used */
        if (leaf || category) return leaf ? (double)node->number + t->base : 0;
        return (double)fminf(nextafterf(node->number, INFINITY), FLT_MAX);
    case XGBOOST_MISSING_LEFT: /* in XGBoost, entries that a sparse row lacks are missing: send them where 0 goes */
        if (t->sparse) return node->number >= 0;
        return node->flags & (TR_NODE_MISSING_LEFT | TR_NODE_CATEGORY) ? 1 : 0;
    case XGBOOST_TYPE: return category;
    }
    return NAN;
}

/* ---- model.txt ---- */

/* Writes a line «name=» with a number per inner node or per leaf. */
static void lightgbm_put_line(FILE *file, const char *name, const struct tree *t, bool leaves,
                              enum text_number which)
{
    bool first = true;
    fprintf(file, "%s=", name);
    for (size_t i = 0; i < t->n; i++) {
        if (text_is_leaf(t, i) != leaves) continue;
        fprintf(file, "%s%.17g", first ? "" : " ", text_number(t, i, which));
        first = false;
    }
    fputc('\n', file);
}

/* Writes the sets of categories: 32-bit words with a bit per value that goes left. */
static void lightgbm_put_sets(FILE *file, const struct tree *t)
{
    size_t n = 0;
    if (t->categories == 0) return;
    fputs("cat_boundaries=0", file);
    for (size_t i = 0; i < t->n; i++)
        if (text_is_category(t, i)) fprintf(file, " %zu", n += text_words(t, i));
    const char *before = "\ncat_threshold=";
    for (size_t i = 0; i < t->n; i++)
        for (uint32_t w = 0; w < text_words(t, i); w++) {
            fprintf(file, "%s%lu", before, (unsigned long)t->forest->set[t->node[i].set + w]);
            before = " ";
        }
    fputc('\n', file);
}

static void lightgbm_put_tree(FILE *file, const struct tree *t, size_t which)
{
    fprintf(file, "Tree=%zu\nnum_leaves=%zu\nnum_cat=%zu\n", which, t->leaves, t->categories);
    lightgbm_put_line(file, "split_feature", t, false, FEATURE);
    lightgbm_put_line(file, "split_gain", t, false, GAIN);
    lightgbm_put_line(file, "threshold", t, false, LIGHTGBM_THRESHOLD);
    lightgbm_put_line(file, "decision_type", t, false, LIGHTGBM_DECISION);
    lightgbm_put_line(file, "left_child", t, false, LIGHTGBM_LEFT);
    lightgbm_put_line(file, "right_child", t, false, LIGHTGBM_RIGHT);
    lightgbm_put_sets(file, t);
    lightgbm_put_line(file, "leaf_value", t, true, VALUE);
    lightgbm_put_line(file, "leaf_weight", t, true, WEIGHT);
    lightgbm_put_line(file, "internal_value", t, false, VALUE);
    lightgbm_put_line(file, "internal_weight", t, false, WEIGHT);
    fputs("is_linear=0\nshrinkage=1\n\n\n", file);
}

static int lightgbm_write(const struct tr_trees *m, FILE *file)
{
    unsigned long long outputs = m->outputs, shift = text_shift(m), columns = m->columns + shift;
    fprintf(
        file,
        "tree\nversion=v3\nnum_class=%llu\nnum_tree_per_iteration=%llu\nlabel_index=%llu\nmax_feature_idx=%"
        "llu\n",
        outputs, outputs, m->label_column == TR_LABEL_LAST ? columns : 0, columns - 1);
    fprintf(file, "objective=%s", m->loss->trees.lightgbm);
    if (m->loss->joint) fprintf(file, " num_class:%llu", outputs);
    if (m->loss->shape == TR_SHAPE_POWER) fprintf(file, " tweedie_variance_power:%.9g", m->shape);
    fputs("\nfeature_names=", file);
    for (uint64_t c = 0; c < columns; c++)
        fprintf(file, "%sColumn_%llu", c > 0 ? " " : "", (unsigned long long)(c + m->first_index - shift));
    fputs("\nfeature_infos=", file);
    for (uint64_t c = 0; c < shift; c++) fputs("none ", file);
    for (uint64_t c = 0; c < m->columns; c++) {
        uint32_t values = m->values ? m->values[c] : 0;
        fputs(c > 0 ? " " : "", file);
        if (values == 0) fputs("[-inf:inf]", file);
        for (uint32_t v = 0; v < values; v++) fprintf(file, "%s%lu", v > 0 ? ":" : "", (unsigned long)v);
    }
    fputs("\n\n", file);
    TR_TRY(text_put_trees(m, file, lightgbm_put_tree));
    fputs("end of trees\n", file);
    return TR_OK;
}

/* ---- model.json ---- */

/* Writes a JSON list «name» with a number per node. XGBoost expects an exponent in reals. */
static void xgboost_put_list(FILE *file, const char *name, const struct tree *t, bool real,
                             enum text_number which)
{
    fprintf(file, ",\"%s\":[", name);
    for (size_t i = 0; i < t->n; i++)
        fprintf(file, real ? "%s%.8E" : "%s%.0f", i > 0 ? "," : "", text_number(t, i, which));
    fputc(']', file);
}

/* Writes the nodes that split by a category, and the values of their sets. */
static void xgboost_put_sets(FILE *file, const struct tree *t)
{
    static const char *const lists[] = {"categories", "categories_nodes", "categories_segments",
                                        "categories_sizes"};
    for (int which = 0; which < 4; which++) {
        size_t all = 0, sets = 0;
        fprintf(file, "\"%s\":[", lists[which]);
        for (size_t i = 0; i < t->n; i++) {
            size_t first = all;
            for (uint32_t v = 0; v < 32 * text_words(t, i); v++) {
                if (!tr_node_has(t->forest, &t->node[i], v)) continue;
                if (which == 0) fprintf(file, "%s%lu", all > 0 ? "," : "", (unsigned long)v);
                all++;
            }
            if (!text_is_category(t, i)) continue;
            if (which > 0)
                fprintf(file, "%s%zu", sets > 0 ? "," : "",
                        which == 1   ? i
                        : which == 2 ? first
                                     : all - first);
            sets++;
        }
        fputs("],", file);
    }
}

static void xgboost_put_tree(FILE *file, const struct tree *t, size_t which)
{
    fputs(which > 0 ? ",{" : "{", file);
    xgboost_put_sets(file, t);
    fprintf(file, "\"id\":%zu", which);
    xgboost_put_list(file, "base_weights", t, true, VALUE);
    xgboost_put_list(file, "default_left", t, false, XGBOOST_MISSING_LEFT);
    xgboost_put_list(file, "left_children", t, false, XGBOOST_LEFT);
    xgboost_put_list(file, "right_children", t, false, XGBOOST_RIGHT);
    xgboost_put_list(file, "parents", t, false, XGBOOST_PARENT);
    xgboost_put_list(file, "loss_changes", t, true, GAIN);
    xgboost_put_list(file, "split_conditions", t, true, XGBOOST_CONDITION);
    xgboost_put_list(file, "split_indices", t, false, FEATURE);
    xgboost_put_list(file, "split_type", t, false, XGBOOST_TYPE);
    xgboost_put_list(file, "sum_hessian", t, true, WEIGHT);
    fprintf(file,
            ",\"tree_param\":{\"num_deleted\":\"0\",\"num_feature\":\"%llu\",\"num_nodes\":\"%zu\",\"size_"
            "leaf_vector\":\"0\"}}",
            (unsigned long long)t->columns, t->n);
}

static int xgboost_write(const struct tr_trees *m, FILE *file)
{
    unsigned long long outputs = m->outputs;
    fputs("{\"learner\":{\"attributes\":{},\"feature_names\":[],\"feature_types\":[", file);
    for (uint64_t c = 0; c < m->columns && m->values; c++)
        fprintf(file, "%s\"%s\"", c > 0 ? "," : "", m->values[c] > 0 ? "c" : "q");
    fprintf(file,
            "],\"gradient_booster\":{\"model\":{"
            "\"gbtree_model_param\":{\"num_parallel_tree\":\"1\",\"num_trees\":\"%zu\",\"size_leaf_vector\":"
            "\"0\"},\"trees\":[",
            m->forest.trees);
    TR_TRY(text_put_trees(m, file, xgboost_put_tree));
    fputs("],\"tree_info\":[", file);
    for (size_t k = 0; k < m->forest.trees; k++) fprintf(file, "%s%llu", k > 0 ? "," : "", k % outputs);
    fprintf(file,
            "]},\"name\":\"gbtree\"},\"learner_model_param\":{\"base_score\":\"%s\",\"boost_from_average\":"
            "\"1\",\"num_class\":"
            "\"%llu\",\"num_feature\":\"%llu\",\"num_target\":\"1\"},\"objective\":",
            m->loss->trees.xgboost.base_score, outputs > 1 ? outputs : 0,
            (unsigned long long)(m->columns + text_shift(m)));
    char classes[32];
    char power[32];
    snprintf(power, sizeof power, "%.9g", m->shape);
    snprintf(classes, sizeof classes, "%llu", outputs);
    fprintf(file, "{\"name\":\"%s\",\"%s\":{\"%s\":\"%s\"}}},\"version\":[1,7,0]}\n",
            m->loss->trees.xgboost.name, m->loss->trees.xgboost.group, m->loss->trees.xgboost.key,
            m->loss->shape == TR_SHAPE_POWER ? power
            : m->loss->trees.xgboost.value   ? m->loss->trees.xgboost.value
                                             : classes);
    return TR_OK;
}

/* ---- files ---- */

static int text_write(const struct tr_trees *m, const char *folder, const char *name,
                      int (*write)(const struct tr_trees *, FILE *))
{
    struct tr_target target;
    locale_t c = newlocale(LC_ALL_MASK, "C", (locale_t)0), old = uselocale(c); /* writes decimal points */
    int status = tr_target_open(&target, TR_TARGET_DURABLE, "%s/%s", folder, name);
    if (status == TR_OK) status = write(m, target.file);
    status = tr_target_close(&target, status);
    uselocale(old);
    if (c) freelocale(c);
    return status;
}

/* ================ model.h5 and checkpoints ================ */

/* The forest as arrays, in the form of model.h5. arrays_list() explains each array. */
struct node_arrays {
    uint64_t *begin;
    uint32_t *feature, *child;
    float *number, *gain, *weight;
    uint8_t *missing_left;
    bool categorical;    /* whether any column is a category */
    uint64_t categories; /* number of elements of `category` */
    uint64_t *category_begin;
    uint32_t *category;
};

static void arrays_free(struct node_arrays *a)
{
    TR_FREE_ALL(a->begin, a->feature, a->child, a->number, a->gain, a->weight, a->missing_left,
                a->category_begin, a->category);
}

/* Lists the arrays of the model for model.h5, checkpoints and the broadcast of model.init. The numbers of trees, nodes and category
 * values must be set before. */
enum { ARRAYS = 12 };
static void arrays_list(struct tr_trees *m, struct node_arrays *a, tr_member list[ARRAYS])
{
    uint64_t trees = m->forest.trees, nodes = m->forest.nodes;
    const tr_member all[ARRAYS] = {
        {"base", TR_FIELD_F64, &m->base,
         "initial score of each output; tree t belongs to output t modulo outputs", .rows = m->outputs},
        {"labels", TR_FIELD_F32, &m->label_name, "labels of the classes", .rows = m->labels},
        {"tree_begin", TR_FIELD_U64, &a->begin, "tree t has the nodes tree_begin[t] .. tree_begin[t + 1] - 1",
         .rows = trees + 1},
        {"feature", TR_FIELD_U32, &a->feature, "column by which a node splits, from 0; 4294967295: leaf",
         .rows = nodes},
        {"child", TR_FIELD_U32, &a->child,
         "left child, counted from the first node of the tree; the right child follows", .rows = nodes},
        {"number", TR_FIELD_F32, &a->number,
         "threshold: smaller or equal numbers go left; leaf: value that is added to the score",
         .rows = nodes},
        {"missing_left", TR_FIELD_U8, &a->missing_left, "whether missing numbers go left", .rows = nodes},
        {"gain", TR_FIELD_F32, &a->gain, "gain of the split", .rows = nodes},
        {"weight", TR_FIELD_F32, &a->weight, "sum of the second derivatives of the training rows",
         .rows = nodes},
        {"column_values", TR_FIELD_U32, &m->values, "number of values of a category; 0: numeric column",
         m->columns, .absent = !a->categorical},
        {"category_begin", TR_FIELD_U64, &a->category_begin,
         "node i has the values category_begin[i] .. category_begin[i + 1] - 1", nodes + 1,
         .absent = !a->categorical},
        {"category", TR_FIELD_U32, &a->category, "values of a category that go left; all others go right",
         a->categories, .absent = !a->categorical},
    };
    memcpy(list, all, sizeof all);
    for (size_t i = 0; i < ARRAYS; i++) list[i].absent = list[i].absent || list[i].rows == 0;
}

/* Copies the forest to arrays. */
static int arrays_from_forest(const struct tr_trees *m, struct node_arrays *a)
{
    const struct tr_forest *f = &m->forest;
    size_t n = f->nodes, capacity = 0;
    a->categorical = m->values != NULL;
    TR_TRY(TR_NEW(&a->begin, f->trees + 1));
    TR_TRY(TR_NEW(&a->feature, n));
    TR_TRY(TR_NEW(&a->child, n));
    TR_TRY(TR_NEW(&a->number, n));
    TR_TRY(TR_NEW(&a->gain, n));
    TR_TRY(TR_NEW(&a->weight, n));
    TR_TRY(TR_NEW(&a->missing_left, n + 3)); /* + 3: a checkpoint stores whole 32-bit words */
    TR_TRY(TR_NEW(&a->category_begin, n + 1));
    for (size_t t = 0; t < f->trees; t++) a->begin[t + 1] = f->begin[t + 1];
    for (size_t i = 0; i < n; i++) {
        const struct tr_node *node = &f->node[i];
        bool category = node->flags & TR_NODE_CATEGORY;
        a->feature[i] = node->feature;
        a->child[i] = node->child;
        a->number[i] = category ? 0 : node->number;
        a->missing_left[i] = node->flags & TR_NODE_MISSING_LEFT;
        a->gain[i] = f->note[i].gain;
        a->weight[i] = f->note[i].weight;
        for (uint32_t value = 0; category && value < 32 * (node->flags >> TR_NODE_SET_WORDS); value++) {
            if (!tr_node_has(f, node, value)) continue;
            TR_TRY(TR_GROW(&a->category, &capacity, (size_t)a->categories + 1));
            a->category[a->categories++] = value;
        }
        a->category_begin[i + 1] = a->categories;
    }
    return TR_OK;
}

static int model_refuse(const char *what)
{
    return tr_fail(TR_ERR_DATA, "model.h5: %s", what);
}

/* Replaces the forest by the arrays. */
static int arrays_to_forest(struct tr_trees *m, const struct node_arrays *a)
{
    struct tr_forest *f = &m->forest;
    size_t n = f->nodes;
    f->set_words = 0;
    TR_TRY(TR_GROW(&f->begin, &f->begin_capacity, f->trees + 1));
    TR_TRY(TR_GROW(&f->node, &f->node_capacity, n));
    TR_TRY(TR_GROW(&f->note, &f->note_capacity, n));
    memcpy(f->begin, a->begin, (f->trees + 1) * sizeof *f->begin);
    for (size_t i = 0; i < n; i++) {
        f->node[i] = (struct tr_node){.feature = a->feature[i],
                                      .child = a->child[i],
                                      .number = a->number[i],
                                      .flags = a->missing_left[i] ? TR_NODE_MISSING_LEFT : 0};
        f->note[i] = (struct tr_node_note){a->gain[i], a->weight[i]};
    }
    for (size_t i = 0; i < n && a->categorical; i++) {
        uint64_t begin = a->category_begin[i], end = a->category_begin[i + 1];
        if (begin > end || end > a->categories) return model_refuse("category_begin is not ascending");
        if (begin == end) continue;
        if (f->node[i].feature >= m->columns) return model_refuse("a leaf has values of a category");
        for (uint64_t k = begin; k < end; k++)
            if (a->category[k] >= m->values[f->node[i].feature])
                return model_refuse("a node splits by a value that its column does not have");
        TR_TRY(tr_forest_add_set(f, a->category + begin, (size_t)(end - begin), &f->node[i]));
    }
    return TR_OK;
}

/* ---- checkpoints and model.init ---- */

/* Sets the numbers of trees, nodes and category values of arrays that another rank or run made. */
static void arrays_resize(struct tr_trees *m, struct node_arrays *a, const uint64_t size[3])
{
    m->forest.trees = (size_t)size[0];
    m->forest.nodes = (size_t)size[1];
    a->categories = size[2];
    a->categorical = m->values != NULL;
}

int tr_trees_keep(struct tr_trees *m, tr_snapshot *s)
{
    TR_CLOSED_BY(arrays_free) struct node_arrays a = {0};
    tr_member list[ARRAYS];
    bool restores = tr_snapshot_restores(s);
    if (!restores) TR_TRY(arrays_from_forest(m, &a));
    uint64_t size[3] = {m->forest.trees, m->forest.nodes, a.categories};
    TR_TRY(tr_snapshot_common(s, "sizes", TR_I64, 3, size));
    arrays_resize(m, &a, size);
    arrays_list(m, &a, list);
    TR_TRY(tr_members_keep(s, list, ARRAYS));
    return restores ? arrays_to_forest(m, &a) : TR_OK;
}

int tr_trees_broadcast(struct tr_trees *m)
{
    TR_CLOSED_BY(arrays_free) struct node_arrays a = {0};
    tr_member list[ARRAYS];
    bool root = tr_rank(m->tr) == 0;
    TR_TRY(tr_agree(m->tr, root ? arrays_from_forest(m, &a) : TR_OK));
    uint64_t size[3] = {m->forest.trees, m->forest.nodes, a.categories};
    TR_TRY(tr_broadcast(m->tr, TR_SET_ALL, 0, size, sizeof size));
    arrays_resize(m, &a, size);
    arrays_list(m, &a, list);
    TR_TRY(tr_members_send(m->tr, list, ARRAYS));
    return tr_agree(m->tr, root ? TR_OK : arrays_to_forest(m, &a));
}

/* ---- model.h5 ---- */

/* Checks the trees of a file. Every child must have a larger index than its parent, so that each path ends. */
static int model_check_trees(const struct tr_trees *m)
{
    const struct tr_forest *f = &m->forest;
    if (f->begin[0] != 0 || f->begin[f->trees] != f->nodes)
        return model_refuse("tree_begin does not match the number of nodes");
    for (size_t t = 0; t < f->trees; t++) {
        if (f->begin[t] >= f->begin[t + 1] || f->begin[t + 1] > f->nodes)
            return model_refuse("tree_begin is not ascending");
        const struct tr_node *node = f->node + f->begin[t];
        size_t n = (size_t)(f->begin[t + 1] - f->begin[t]);
        for (size_t i = 0; i < n; i++) {
            if (!(node[i].flags & TR_NODE_CATEGORY) && isnan(node[i].number))
                return model_refuse("the number of a node is NaN");
            if (node[i].feature == TR_LEAF) continue;
            if (node[i].feature >= m->columns)
                return model_refuse("a node splits by a column that does not exist");
            if (node[i].child <= i || node[i].child + (size_t)1 >= n)
                return model_refuse("a child does not follow its parent");
        }
    }
    return TR_OK;
}

int tr_trees_fields(void *model, tr_fields *f)
{
    struct tr_trees *m = model;
    TR_CLOSED_BY(arrays_free) struct node_arrays a = {0};
    tr_member list[ARRAYS];
    bool reads = tr_fields_read(f);
    uint64_t trees = m->forest.trees, nodes = m->forest.nodes, label_column = (uint64_t)m->label_column;
    char *objective = m->loss ? (char *)(uintptr_t)m->loss->objective : NULL;
    TR_TRY(tr_field_text(f, "objective", &objective));
    if (reads) {
        m->loss = tr_loss_of_objective(objective);
        free(objective);
        if (!m->loss) return model_refuse("unknown objective");
        m->shape = m->loss->shape == TR_SHAPE_NONE ? 0 : (double)NAN;
    }
    const char *shape = m->loss ? tr_shape_name[m->loss->shape] : NULL;
    if (shape && (!reads || tr_fields_have(f, shape))) TR_TRY(tr_field_real(f, shape, &m->shape));
    const tr_member numbers[] = {{"trees", TR_FIELD_U64, .value = &trees},
                                 {"nodes", TR_FIELD_U64, .value = &nodes},
                                 {"outputs", TR_FIELD_U64, .value = &m->outputs},
                                 {"columns", TR_FIELD_U64, .value = &m->columns},
                                 {"first_index", TR_FIELD_U64, .value = &m->first_index},
                                 {"label_column", TR_FIELD_U64, .value = &label_column},
                                 {"rows", TR_FIELD_U64, .value = &m->total_rows},
                                 {"labels_known", TR_FIELD_U64, .value = &m->labels},
                                 {"best_objective", TR_FIELD_F64, &m->last.objective, .of_scheduler = true}};
    TR_TRY(tr_field_members(f, numbers, sizeof numbers / sizeof *numbers));
    m->forest.trees = (size_t)trees;
    m->forest.nodes = (size_t)nodes;
    m->label_column = (int64_t)label_column;
    if (m->columns == 0 || m->columns >= UINT32_MAX || m->outputs == 0 || m->outputs > 100000 ||
        trees % m->outputs != 0 || nodes >= UINT32_MAX)
        return model_refuse("trees, nodes, outputs and columns do not match");
    if (tr_trees_classify(m) && m->labels != (m->outputs > 1 ? m->outputs : 2))
        return model_refuse("labels_known does not match outputs");
    if (reads) a.categorical = tr_fields_have(f, "categories");
    else TR_TRY(arrays_from_forest(m, &a));
    if (a.categorical) TR_TRY(tr_field_count(f, "categories", &a.categories));
    arrays_list(m, &a, list);
    TR_TRY(tr_field_members(f, list, ARRAYS));
    if (reads) TR_TRY(arrays_to_forest(m, &a));
    if (reads) return model_check_trees(m);
    if (tr_rank(m->tr) > 0) return TR_OK;
    const char *folder;
    TR_TRY(tr_job_string(m->job, "output", &folder));
    TR_TRY(text_write(m, folder, "model.txt", lightgbm_write));
    return text_write(m, folder, "model.json", xgboost_write);
}
