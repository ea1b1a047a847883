/* Members of a model of trees in files: model.h5, checkpoints, model.txt and model.json. */
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

/* Trees for others: model.txt, which LightGBM loads, and model.json, which XGBoost does. Both predict the same margins: what
 * trees are added to is in the leaves of each output's first tree there. */
struct text {
    FILE *file;
    char *path, *part; /* its name, and the one it has until it is complete */
};

/* One tree as others count it: its nodes or leaves in an order of their own. */
struct tree {
    const struct tr_forest *forest;
    const struct tr_node *node;
    const struct tr_node_note *note;
    size_t n, leaves;
    double base;       /* that its leaves have besides */
    uint64_t shift;    /* the number that its first column has */
    bool sparse;       /* what rows do not name is 0 */
    size_t categories; /* nodes that split by one */
    int64_t *number;   /* of each node: among those with children, or -1 - number among leaves */
    uint32_t *parent;  /* UINT32_MAX: none */
};

typedef double tr_of_node(const struct tree *t, size_t i);

/* ---- one tree ---- */

/* Others number the columns of LIBSVM lines as these do, from 0: of lines that count from 1 no row has the first. */
static uint64_t text_shift(const struct tr_trees *m)
{
    return m->train->format == TR_FORMAT_LIBSVM ? m->first_index : 0;
}

static int text_open_tree(const struct tr_trees *m, size_t which, struct tree *t)
{
    size_t first = (size_t)m->forest.begin[which];
    *t = (struct tree){.forest = &m->forest,
                       .node = m->forest.node + first,
                       .note = m->forest.note + first,
                       .n = (size_t)m->forest.begin[which + 1] - first,
                       .base = which < m->outputs ? m->base[which] : 0,
                       .shift = text_shift(m),
                       .sparse = m->bins.sparse || m->train->format == TR_FORMAT_LIBSVM};
    TR_TRY(TR_NEW(&t->number, t->n));
    TR_TRY(TR_NEW(&t->parent, t->n));
    t->parent[0] = UINT32_MAX;
    for (size_t i = 0, inner = 0; i < t->n; i++) {
        bool leaf = t->node[i].feature == (uint32_t)TR_LEAF;
        t->number[i] = leaf ? -1 - (int64_t)t->leaves++ : (int64_t)inner++;
        t->categories += t->node[i].flags & TR_NODE_CATEGORY ? 1 : 0;
        if (!leaf) t->parent[t->node[i].child] = t->parent[t->node[i].child + 1] = (uint32_t)i;
    }
    return TR_OK;
}

static void text_close_tree(struct tree *t)
{
    free(t->number);
    free(t->parent);
}

static bool text_is_leaf(const struct tree *t, size_t i)
{
    return t->node[i].feature == (uint32_t)TR_LEAF;
}

static bool text_is_category(const struct tree *t, size_t i)
{
    return t->node[i].flags & TR_NODE_CATEGORY;
}

static uint32_t text_words(const struct tree *t, size_t i)
{
    return text_is_category(t, i) ? t->node[i].flags >> TR_NODE_SET_WORDS : 0;
}

static double text_feature(const struct tree *t, size_t i)
{
    return text_is_leaf(t, i) ? 0 : (double)(t->node[i].feature + t->shift);
}

static double text_gain(const struct tree *t, size_t i)
{
    return (double)t->note[i].gain;
}

static double text_weight(const struct tree *t, size_t i)
{
    return (double)t->note[i].weight;
}

static double text_value(const struct tree *t, size_t i)
{
    return text_is_leaf(t, i) ? (double)t->node[i].number + t->base : 0;
}

/* ---- model.txt ---- */

/* LightGBM compares reals of 64 bits: those up to here are rounded to a float that goes left. Of a category, its number among the
 * sets. */
static double lightgbm_threshold(const struct tree *t, size_t i)
{
    size_t before = 0;
    for (size_t k = 0; k < i; k++) before += text_is_category(t, k);
    if (text_is_category(t, i)) return (double)before;
    float number = t->node[i].number;
    return fmin(((double)number + (double)nextafterf(number, INFINITY)) / 2, DBL_MAX);
}

/* That a missing number is NaN, and whether it goes left; whether the number is a category. */
static double lightgbm_decision(const struct tree *t, size_t i)
{
    return 8 + text_is_category(t, i) + (t->node[i].flags & TR_NODE_MISSING_LEFT ? 2 : 0);
}

static double lightgbm_left(const struct tree *t, size_t i)
{
    return (double)t->number[t->node[i].child];
}

static double lightgbm_right(const struct tree *t, size_t i)
{
    return (double)t->number[t->node[i].child + 1];
}

/* Numbers of the nodes that have children, or of the leaves. */
static void lightgbm_put_line(FILE *file, const char *name, const struct tree *t, bool leaves, tr_of_node *of)
{
    bool first = true;
    fprintf(file, "%s=", name);
    for (size_t i = 0; i < t->n; i++) {
        if (text_is_leaf(t, i) != leaves) continue;
        fprintf(file, "%s%.17g", first ? "" : " ", of(t, i));
        first = false;
    }
    fputc('\n', file);
}

/* A bit for each value that goes left, in words of 32. */
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
    lightgbm_put_line(file, "split_feature", t, false, text_feature);
    lightgbm_put_line(file, "split_gain", t, false, text_gain);
    lightgbm_put_line(file, "threshold", t, false, lightgbm_threshold);
    lightgbm_put_line(file, "decision_type", t, false, lightgbm_decision);
    lightgbm_put_line(file, "left_child", t, false, lightgbm_left);
    lightgbm_put_line(file, "right_child", t, false, lightgbm_right);
    lightgbm_put_sets(file, t);
    lightgbm_put_line(file, "leaf_value", t, true, text_value);
    lightgbm_put_line(file, "leaf_weight", t, true, text_weight);
    lightgbm_put_line(file, "internal_value", t, false, text_value);
    lightgbm_put_line(file, "internal_weight", t, false, text_weight);
    fputs("is_linear=0\nshrinkage=1\n\n\n", file);
}

static void lightgbm_begin(FILE *file, const struct tr_trees *m)
{
    unsigned long long outputs = m->outputs, shift = text_shift(m), columns = m->columns + shift;
    fprintf(
        file,
        "tree\nversion=v3\nnum_class=%llu\nnum_tree_per_iteration=%llu\nlabel_index=%llu\nmax_feature_idx=%"
        "llu\n",
        outputs, outputs, m->label_column == TR_LABEL_LAST ? columns : 0, columns - 1);
    fprintf(file, "objective=%s", m->loss->trees.lightgbm);
    if (m->loss->joint) fprintf(file, " num_class:%llu", outputs);
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
}

static int lightgbm_write(const struct tr_trees *m, FILE *file)
{
    lightgbm_begin(file, m);
    for (size_t k = 0; k < m->forest.trees; k++) {
        struct tree t;
        int status = text_open_tree(m, k, &t);
        if (status == TR_OK) lightgbm_put_tree(file, &t, k);
        text_close_tree(&t);
        TR_TRY(status);
    }
    fputs("end of trees\n", file);
    return TR_OK;
}

/* ---- model.json ---- */

/* XGBoost's sets go right, so children of categories change places. */
static double xgboost_child(const struct tree *t, size_t i)
{
    return text_is_leaf(t, i) ? -1 : (double)t->node[i].child + text_is_category(t, i);
}

static double xgboost_other_child(const struct tree *t, size_t i)
{
    return text_is_leaf(t, i) ? -1 : (double)t->node[i].child + !text_is_category(t, i);
}

static double xgboost_parent(const struct tree *t, size_t i)
{
    return t->parent[i] == UINT32_MAX ? INT32_MAX : (double)t->parent[i];
}

/* XGBoost goes left below its number: the next one up. */
static double xgboost_condition(const struct tree *t, size_t i)
{
    if (text_is_category(t, i)) return 0;
    return text_is_leaf(t, i) ? text_value(t, i)
                              : (double)fminf(nextafterf(t->node[i].number, INFINITY), FLT_MAX);
}

/* XGBoost takes what a sparse row does not name for missing, which here is 0. */
static double xgboost_missing_left(const struct tree *t, size_t i)
{
    if (t->sparse) return t->node[i].number >= 0;
    return t->node[i].flags & (TR_NODE_MISSING_LEFT | TR_NODE_CATEGORY) ? 1 : 0;
}

static double xgboost_type(const struct tree *t, size_t i)
{
    return text_is_category(t, i);
}

/* XGBoost takes a number for a real one only if it looks like one. */
static void xgboost_put_list(FILE *file, const char *name, const struct tree *t, bool real, tr_of_node *of)
{
    fprintf(file, ",\"%s\":[", name);
    for (size_t i = 0; i < t->n; i++) fprintf(file, real ? "%s%.8E" : "%s%.0f", i > 0 ? "," : "", of(t, i));
    fputc(']', file);
}

/* Nodes of categories, where the values of each begin among all, and how many it has. */
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

static void xgboost_put_tree(FILE *file, const struct tr_trees *m, const struct tree *t, size_t which)
{
    fputs(which > 0 ? ",{" : "{", file);
    xgboost_put_sets(file, t);
    fprintf(file, "\"id\":%zu", which);
    xgboost_put_list(file, "base_weights", t, true, text_value);
    xgboost_put_list(file, "default_left", t, false, xgboost_missing_left);
    xgboost_put_list(file, "left_children", t, false, xgboost_child);
    xgboost_put_list(file, "right_children", t, false, xgboost_other_child);
    xgboost_put_list(file, "parents", t, false, xgboost_parent);
    xgboost_put_list(file, "loss_changes", t, true, text_gain);
    xgboost_put_list(file, "split_conditions", t, true, xgboost_condition);
    xgboost_put_list(file, "split_indices", t, false, text_feature);
    xgboost_put_list(file, "split_type", t, false, xgboost_type);
    xgboost_put_list(file, "sum_hessian", t, true, text_weight);
    fprintf(file,
            ",\"tree_param\":{\"num_deleted\":\"0\",\"num_feature\":\"%llu\",\"num_nodes\":\"%zu\",\"size_"
            "leaf_vector\":\"0\"}}",
            (unsigned long long)(m->columns + t->shift), t->n);
}

static void xgboost_end(FILE *file, const struct tr_trees *m)
{
    unsigned long long outputs = m->outputs;
    fputs("],\"tree_info\":[", file);
    for (size_t k = 0; k < m->forest.trees; k++) fprintf(file, "%s%llu", k > 0 ? "," : "", k % outputs);
    fprintf(file,
            "]},\"name\":\"gbtree\"},\"learner_model_param\":{\"base_score\":\"%s\",\"boost_from_average\":"
            "\"1\",\"num_class\":"
            "\"%llu\",\"num_feature\":\"%llu\",\"num_target\":\"1\"},\"objective\":",
            m->loss->trees.xgboost.base_score, outputs > 1 ? outputs : 0,
            (unsigned long long)(m->columns + text_shift(m)));
    char classes[32];
    snprintf(classes, sizeof classes, "%llu", outputs);
    fprintf(file, "{\"name\":\"%s\",\"%s\":{\"%s\":\"%s\"}}},\"version\":[1,7,0]}\n",
            m->loss->trees.xgboost.name, m->loss->trees.xgboost.group, m->loss->trees.xgboost.key,
            m->loss->trees.xgboost.value ? m->loss->trees.xgboost.value : classes);
}

static int xgboost_write(const struct tr_trees *m, FILE *file)
{
    fputs("{\"learner\":{\"attributes\":{},\"feature_names\":[],\"feature_types\":[", file);
    for (uint64_t c = 0; c < m->columns && m->values; c++)
        fprintf(file, "%s\"%s\"", c > 0 ? "," : "", m->values[c] > 0 ? "c" : "q");
    fprintf(file,
            "],\"gradient_booster\":{\"model\":{"
            "\"gbtree_model_param\":{\"num_parallel_tree\":\"1\",\"num_trees\":\"%zu\",\"size_leaf_vector\":"
            "\"0\"},\"trees\":[",
            m->forest.trees);
    for (size_t k = 0; k < m->forest.trees; k++) {
        struct tree t;
        int status = text_open_tree(m, k, &t);
        if (status == TR_OK) xgboost_put_tree(file, m, &t, k);
        text_close_tree(&t);
        TR_TRY(status);
    }
    xgboost_end(file, m);
    return TR_OK;
}

/* ---- files ---- */

static int text_fail(const struct text *text)
{
    return tr_fail(TR_ERR_IO, "%s: cannot be written: %s", text->path, strerror(errno));
}

static int text_write_file(const struct tr_trees *m, struct text *text,
                           int (*write)(const struct tr_trees *, FILE *))
{
    text->file = fopen(text->part, "we");
    if (!text->file) return text_fail(text);
    int status = write(m, text->file);
    bool fails = ferror(text->file) || fflush(text->file) != 0 || fsync(fileno(text->file)) < 0;
    if (status == TR_OK && fails) status = text_fail(text);
    if (fclose(text->file) != 0 && status == TR_OK) status = text_fail(text);
    if (status == TR_OK && rename(text->part, text->path) < 0) status = text_fail(text);
    if (status != TR_OK) unlink(text->part);
    return status;
}

static int text_write(const struct tr_trees *m, const char *folder, const char *name,
                      int (*write)(const struct tr_trees *, FILE *))
{
    struct text text = {0};
    int status = tr_format(&text.path, "%s/%s", folder, name);
    if (status == TR_OK) status = tr_format(&text.part, "%s/%s.part", folder, name);
    locale_t c = newlocale(LC_ALL_MASK, "C", (locale_t)0),
             old = uselocale(c); /* numbers with a point for a point */
    if (status == TR_OK) status = text_write_file(m, &text, write);
    uselocale(old);
    if (c) freelocale(c);
    free(text.path);
    free(text.part);
    return status;
}

static int text_write_all(const struct tr_trees *m, const char *folder)
{
    TR_TRY(text_write(m, folder, "model.txt", lightgbm_write));
    return text_write(m, folder, "model.json", xgboost_write);
}

/* ================ model.h5 ================ */

/* Trees in a file, and what they are asked there.
 *
 * model.h5 has a number for each node of all trees, one tree after the other: /feature (of a leaf 2^32 - 1), /child (the left one,
 * counted from the tree's first node; the right one follows), /number (rows of at most this go left; of a leaf what it adds),
 * /missing_left, /gain and /weight; where columns are categories, /column_values has how many values each has, 0 of numbers, and
 * values /category[category_begin[i]] .. go left at node i, all others right; /tree_begin says where trees begin, tree t being of output t modulo outputs; /base has what
 * the trees of each output are added to, /labels the labels of classes.
 */
static int model_refuse(const char *what)
{
    return tr_fail(TR_ERR_DATA, "model.h5: %s", what);
}

/* A child stands behind its parent, so there is an end to every way down. */
static int model_check_trees(const struct tr_trees *m)
{
    const struct tr_forest *f = &m->forest;
    if (f->begin[0] != 0 || f->begin[f->trees] != f->nodes)
        return model_refuse("tree_begin does not fit the nodes");
    for (size_t t = 0; t < f->trees; t++) {
        if (f->begin[t] >= f->begin[t + 1] || f->begin[t + 1] > f->nodes)
            return model_refuse("tree_begin does not ascend");
        const struct tr_node *node = f->node + f->begin[t];
        size_t n = (size_t)(f->begin[t + 1] - f->begin[t]);
        for (size_t i = 0; i < n; i++) {
            if (!(node[i].flags & TR_NODE_CATEGORY) && isnan(node[i].number))
                return model_refuse("a number of a node is not a number");
            if (node[i].feature == (uint32_t)TR_LEAF) continue;
            if (node[i].feature >= m->columns)
                return model_refuse("a node splits by a feature that there is not");
            if (node[i].child <= i || node[i].child + (size_t)1 >= n)
                return model_refuse("a child does not stand behind its parent");
        }
    }
    return TR_OK;
}

static int model_check_head(const struct tr_trees *m)
{
    bool classes = tr_trees_classify(m);
    if (m->columns == 0 || m->columns >= UINT32_MAX || m->outputs == 0 || m->outputs > 100000 ||
        m->forest.trees % m->outputs != 0 || m->forest.nodes >= UINT32_MAX)
        return model_refuse("its sizes do not fit each other");
    if (classes && m->labels != (m->outputs > 1 ? m->outputs : 2))
        return model_refuse("there are not as many labels as outputs");
    return TR_OK;
}

/* What the file has of nodes, as it has it. */
struct columns {
    uint32_t *feature, *child;
    float *number, *gain, *weight;
    uint8_t *missing_left;
    uint64_t *category_begin, categories; /* nodes + 1 of them, if columns are categories */
    uint32_t *category;
};

static void columns_free(struct columns *c)
{
    void *arrays[] = {c->feature, c->child,        c->number,         c->gain,
                      c->weight,  c->missing_left, c->category_begin, c->category};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) free(arrays[i]);
}

/* The values that go left, node by node. */
static int columns_from_sets(const struct tr_forest *f, struct columns *c)
{
    size_t capacity = 0;
    TR_TRY(TR_NEW(&c->category_begin, f->nodes + 1));
    for (size_t i = 0; i < f->nodes; i++) {
        const struct tr_node *node = &f->node[i];
        uint32_t words = node->flags & TR_NODE_CATEGORY ? node->flags >> TR_NODE_SET_WORDS : 0;
        for (uint32_t value = 0; value < 32 * words; value++) {
            if (!tr_node_has(f, node, value)) continue;
            TR_TRY(TR_GROW(&c->category, &capacity, (size_t)c->categories + 1));
            c->category[c->categories++] = value;
        }
        c->category_begin[i + 1] = c->categories;
    }
    return TR_OK;
}

static int columns_to_sets(const struct tr_trees *m, const struct columns *c, struct tr_forest *f)
{
    for (size_t i = 0; i < f->nodes; i++) {
        uint64_t begin = c->category_begin[i], end = c->category_begin[i + 1];
        if (begin > end || end > c->categories) return model_refuse("category_begin does not ascend");
        if (begin == end) continue;
        if (f->node[i].feature >= m->columns) return model_refuse("a leaf has values of a category");
        for (uint64_t k = begin; k < end; k++)
            if (c->category[k] >= m->values[f->node[i].feature])
                return model_refuse("a node splits by a value that its column does not have");
        TR_TRY(tr_forest_add_set(f, c->category + begin, (size_t)(end - begin), &f->node[i]));
    }
    return TR_OK;
}

static int columns_from_forest(const struct tr_forest *f, struct columns *c)
{
    size_t n = f->nodes;
    TR_TRY(TR_NEW(&c->feature, n));
    TR_TRY(TR_NEW(&c->child, n));
    TR_TRY(TR_NEW(&c->number, n));
    TR_TRY(TR_NEW(&c->gain, n));
    TR_TRY(TR_NEW(&c->weight, n));
    TR_TRY(TR_NEW(&c->missing_left, n));
    for (size_t i = 0; i < n; i++) {
        c->feature[i] = f->node[i].feature;
        c->child[i] = f->node[i].child;
        c->number[i] = f->node[i].flags & TR_NODE_CATEGORY ? 0 : f->node[i].number;
        c->missing_left[i] = f->node[i].flags & TR_NODE_MISSING_LEFT;
        c->gain[i] = f->note[i].gain;
        c->weight[i] = f->note[i].weight;
    }
    return TR_OK;
}

static int columns_to_forest(const struct columns *c, struct tr_forest *f)
{
    TR_TRY(TR_NEW(&f->node, f->nodes));
    TR_TRY(TR_NEW(&f->note, f->nodes));
    for (size_t i = 0; i < f->nodes; i++) {
        f->node[i] = (struct tr_node){.feature = c->feature[i],
                                      .child = c->child[i],
                                      .number = c->number[i],
                                      .flags = c->missing_left[i] ? TR_NODE_MISSING_LEFT : 0};
        f->note[i] = (struct tr_node_note){c->gain[i], c->weight[i]};
    }
    return TR_OK;
}

static int fields_of_nodes(struct tr_trees *m, tr_fields *f, struct columns *c)
{
    uint64_t nodes = m->forest.nodes;
    TR_TRY(tr_field_array(f, "tree_begin", TR_FIELD_U64, m->forest.trees + 1, 0,
                          "tree t has the nodes from here to the next", &m->forest.begin));
    TR_TRY(tr_field_array(f, "feature", TR_FIELD_U32, nodes, 0,
                          "that a node splits by, from 0; 4294967295: it is a leaf", &c->feature));
    TR_TRY(tr_field_array(f, "child", TR_FIELD_U32, nodes, 0,
                          "the left one, counted from the tree's first node; the right one follows it",
                          &c->child));
    TR_TRY(tr_field_array(f, "number", TR_FIELD_F32, nodes, 0,
                          "rows of at most this go left; of a leaf: what it adds", &c->number));
    TR_TRY(tr_field_array(f, "missing_left", TR_FIELD_U8, nodes, 0, "whether rows without a number go left",
                          &c->missing_left));
    TR_TRY(tr_field_array(f, "gain", TR_FIELD_F32, nodes, 0, "of the split", &c->gain));
    return tr_field_array(f, "weight", TR_FIELD_F32, nodes, 0,
                          "the sum of the second derivatives of the node's rows", &c->weight);
}

static int fields_of_categories(struct tr_trees *m, tr_fields *f, struct columns *c)
{
    if (tr_fields_read(f) ? !tr_fields_have(f, "categories") : !m->values) return TR_OK;
    TR_TRY(tr_field_count(f, "categories", &c->categories));
    TR_TRY(tr_field_array(f, "column_values", TR_FIELD_U32, m->columns, 0,
                          "how many values the category of a column has, 0 of numbers", &m->values));
    TR_TRY(tr_field_array(f, "category_begin", TR_FIELD_U64, m->forest.nodes + 1, 0,
                          "node i has the values from here to the next", &c->category_begin));
    if (c->categories == 0) return TR_OK; /* none is good for a split */
    return tr_field_array(f, "category", TR_FIELD_U32, c->categories, 0,
                          "values of the column that go left at a node; all others go right", &c->category);
}

static int fields_of_head(struct tr_trees *m, tr_fields *f)
{
    uint64_t trees = m->forest.trees, nodes = m->forest.nodes, label_column = (uint64_t)m->label_column;
    char *objective = m->loss ? (char *)(uintptr_t)m->loss->objective : NULL;
    TR_TRY(tr_field_text(f, "objective", &objective));
    if (tr_fields_read(f)) {
        m->loss = tr_loss_of_objective(objective);
        free(objective);
        if (!m->loss) return model_refuse("its objective is unknown");
    }
    TR_TRY(tr_field_count(f, "trees", &trees));
    TR_TRY(tr_field_count(f, "nodes", &nodes));
    TR_TRY(tr_field_count(f, "outputs", &m->outputs));
    TR_TRY(tr_field_count(f, "columns", &m->columns));
    TR_TRY(tr_field_count(f, "first_index", &m->first_index));
    TR_TRY(tr_field_count(f, "label_column", &label_column));
    TR_TRY(tr_field_count(f, "rows", &m->total_rows));
    TR_TRY(tr_field_count(f, "labels_known", &m->labels));
    TR_TRY(tr_field_real(f, "best_objective", &m->best));
    m->forest.trees = (size_t)trees;
    m->forest.nodes = (size_t)nodes;
    m->label_column = (int64_t)label_column;
    return model_check_head(m);
}

static int text_write_both(const struct tr_trees *m)
{
    const char *folder;
    if (tr_rank(m->tr) != 0) return TR_OK;
    TR_TRY(tr_job_string(m->job, "output", &folder));
    return text_write_all(m, folder);
}

int tr_trees_fields(void *model, tr_fields *f)
{
    struct tr_trees *m = model;
    struct columns c = {0};
    m->best = m->last.objective;
    if (!tr_fields_read(f)) TR_TRY(tr_model_tell(m->tr, 1, &m->best));
    TR_TRY(fields_of_head(m, f));
    TR_TRY(tr_field_array(f, "base", TR_FIELD_F64, m->outputs, 0, "what the trees of an output are added to",
                          &m->base));
    if (m->labels > 0)
        TR_TRY(tr_field_array(f, "labels", TR_FIELD_F32, m->labels, 0, "of classes", &m->label_name));
    int status = tr_fields_read(f) ? TR_OK : columns_from_forest(&m->forest, &c);
    if (status == TR_OK && !tr_fields_read(f) && m->values) status = columns_from_sets(&m->forest, &c);
    if (status == TR_OK) status = fields_of_nodes(m, f, &c);
    if (status == TR_OK) status = fields_of_categories(m, f, &c);
    if (status == TR_OK && tr_fields_read(f)) status = columns_to_forest(&c, &m->forest);
    if (status == TR_OK && tr_fields_read(f) && m->values) status = columns_to_sets(m, &c, &m->forest);
    if (status == TR_OK && tr_fields_read(f)) status = model_check_trees(m);
    if (status == TR_OK && !tr_fields_read(f)) status = text_write_both(m);
    columns_free(&c);
    return status;
}
