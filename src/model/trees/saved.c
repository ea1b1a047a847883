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

/* model.txt is a model of LightGBM, model.json of XGBoost. Their margins are equal to ours: the base is added to the leaves of the
 * first tree of each output. */

/* A tree with the numbering of LightGBM, which counts inner nodes and leaves separately. */
struct tree {
    const struct tr_forest *forest;
    const struct tr_node *node;
    const struct tr_node_note *note;
    size_t n, leaves;
    double base;       /* added to its leaves */
    uint64_t shift;    /* index of its first column */
    bool sparse;       /* missing entries of rows are 0 */
    size_t categories; /* number of nodes that split by a category */
    int64_t *number;   /* per node: index among inner nodes, or -1 - index among leaves */
    uint32_t *parent;  /* per node; UINT32_MAX: none */
};

typedef double tr_of_node(const struct tree *t, size_t i);

/* ---- one tree ---- */

/* LightGBM and XGBoost number the columns of LIBSVM files from 0. In files that count from 1, column 0 is never used. */
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

/* Numeric column: LightGBM compares f64; this is the largest f64 that rounds to a float that goes left. Category: index of the set. */
static double lightgbm_threshold(const struct tree *t, size_t i)
{
    size_t before = 0;
    for (size_t k = 0; k < i; k++) before += text_is_category(t, k);
    if (text_is_category(t, i)) return (double)before;
    float number = t->node[i].number;
    return fmin(((double)number + (double)nextafterf(number, INFINITY)) / 2, DBL_MAX);
}

/* Bits: missing numbers are NaN (8), they go left (2), the column is a category (1). */
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

/* Writes a number per inner node or per leaf. */
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

/* Writes sets: a bit per value that goes left, in words of 32. */
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

/* In XGBoost the set of a category goes right: its children are swapped. */
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

/* XGBoost goes left if x < condition: the next float is used. */
static double xgboost_condition(const struct tree *t, size_t i)
{
    if (text_is_category(t, i)) return 0;
    return text_is_leaf(t, i) ? text_value(t, i)
                              : (double)fminf(nextafterf(t->node[i].number, INFINITY), FLT_MAX);
}

/* XGBoost treats entries that a sparse row lacks as missing; here they are 0. */
static double xgboost_missing_left(const struct tree *t, size_t i)
{
    if (t->sparse) return t->node[i].number >= 0;
    return t->node[i].flags & (TR_NODE_MISSING_LEFT | TR_NODE_CATEGORY) ? 1 : 0;
}

static double xgboost_type(const struct tree *t, size_t i)
{
    return text_is_category(t, i);
}

/* XGBoost expects reals with an exponent. */
static void xgboost_put_list(FILE *file, const char *name, const struct tree *t, bool real, tr_of_node *of)
{
    fprintf(file, ",\"%s\":[", name);
    for (size_t i = 0; i < t->n; i++) fprintf(file, real ? "%s%.8E" : "%s%.0f", i > 0 ? "," : "", of(t, i));
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

static int text_write(const struct tr_trees *m, const char *folder, const char *name,
                      int (*write)(const struct tr_trees *, FILE *))
{
    struct tr_target target;
    locale_t c = newlocale(LC_ALL_MASK, "C", (locale_t)0), old = uselocale(c); /* decimal points */
    int status = tr_target_open(&target, TR_TARGET_DURABLE, "%s/%s", folder, name);
    if (status == TR_OK) status = write(m, target.file);
    status = tr_target_close(&target, status);
    uselocale(old);
    if (c) freelocale(c);
    return status;
}

static int text_write_both(const struct tr_trees *m)
{
    const char *folder;
    TR_TRY(tr_job_string(m->job, "output", &folder));
    TR_TRY(text_write(m, folder, "model.txt", lightgbm_write));
    return text_write(m, folder, "model.json", xgboost_write);
}

/* ================ members ================ */

/* The nodes of all trees as arrays, one after the other, in the order of trees. The member list below explains them. */
struct node_arrays {
    uint64_t *begin;
    uint32_t *feature, *child;
    float *number, *gain, *weight;
    uint8_t *missing_left;
    bool categorical;    /* some columns are categories */
    uint64_t categories; /* length of category */
    uint64_t *category_begin;
    uint32_t *category;
};

static void arrays_free(struct node_arrays *a)
{
    void *arrays[] = {a->begin,  a->feature,      a->child,          a->number,  a->gain,
                      a->weight, a->missing_left, a->category_begin, a->category};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) free(arrays[i]);
}

/* An array of the model. */
struct member {
    const char *name;
    enum tr_field_type type;
    uint64_t n;   /* 0: the model does not have it */
    void *values; /* address of the pointer to the array */
    const char *meaning;
};
typedef int member_fn(void *to, const struct member *member);

static const struct {
    size_t bytes;
    enum tr_dtype dtype; /* in checkpoints; bytes are stored as words */
} member_types[] = {
    [TR_FIELD_F32] = {4, TR_F32}, [TR_FIELD_F64] = {8, TR_F64}, [TR_FIELD_U8] = {1, TR_I32},
    [TR_FIELD_U32] = {4, TR_I32}, [TR_FIELD_U64] = {8, TR_I64},
};

/* Calls visit() for each array of the model. model.h5, checkpoints and the broadcast of model.init follow from this list. The
 * sizes must be known. */
static int members_visit(struct tr_trees *m, struct node_arrays *a, member_fn *visit, void *to)
{
    uint64_t trees = m->forest.trees, nodes = m->forest.nodes;
    const struct member list[] = {
        {"base", TR_FIELD_F64, m->outputs, &m->base,
         "initial score of each output; tree t belongs to output t modulo outputs"},
        {"labels", TR_FIELD_F32, m->labels, &m->label_name, "labels of the classes"},
        {"tree_begin", TR_FIELD_U64, trees + 1, &a->begin,
         "tree t has the nodes tree_begin[t] .. tree_begin[t + 1] - 1"},
        {"feature", TR_FIELD_U32, nodes, &a->feature,
         "column by which a node splits, from 0; 4294967295: leaf"},
        {"child", TR_FIELD_U32, nodes, &a->child,
         "left child, counted from the first node of the tree; the right child follows"},
        {"number", TR_FIELD_F32, nodes, &a->number,
         "threshold: smaller or equal numbers go left; leaf: value that is added to the score"},
        {"missing_left", TR_FIELD_U8, nodes, &a->missing_left, "whether missing numbers go left"},
        {"gain", TR_FIELD_F32, nodes, &a->gain, "gain of the split"},
        {"weight", TR_FIELD_F32, nodes, &a->weight, "sum of the second derivatives of the training rows"},
        {"column_values", TR_FIELD_U32, a->categorical ? m->columns : 0, &m->values,
         "number of values of a category; 0: numeric column"},
        {"category_begin", TR_FIELD_U64, a->categorical ? nodes + 1 : 0, &a->category_begin,
         "node i has the values category_begin[i] .. category_begin[i + 1] - 1"},
        {"category", TR_FIELD_U32, a->categorical ? a->categories : 0, &a->category,
         "values of a category that go left; all others go right"},
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        if (list[i].n > 0) TR_TRY(visit(to, &list[i]));
    return TR_OK;
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
    TR_TRY(TR_NEW(&a->missing_left, n + 3)); /* to whole words */
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

/* ---- checkpoints ---- */

static int member_keep(void *to, const struct member *member)
{
    tr_snapshot *s = to;
    void **values = member->values;
    size_t bytes = member_types[member->type].bytes, n = (size_t)member->n;
    if (bytes == 1) n = (n + 3) / 4, bytes = 4;
    if (tr_snapshot_restores(s)) {
        free(*values);
        TR_TRY(tr_new(values, n, bytes, member->name));
    }
    return tr_snapshot_common(s, member->name, member_types[member->type].dtype, n, *values);
}

int tr_trees_keep(struct tr_trees *m, tr_snapshot *s)
{
    struct node_arrays a = {0};
    bool restores = tr_snapshot_restores(s);
    int status = restores ? TR_OK : arrays_from_forest(m, &a);
    int64_t size[3] = {(int64_t)m->forest.trees, (int64_t)m->forest.nodes, (int64_t)a.categories};
    if (status == TR_OK) status = tr_snapshot_common(s, "sizes", TR_I64, 3, size);
    a.categorical = m->values != NULL;
    m->forest.trees = (size_t)size[0];
    m->forest.nodes = (size_t)size[1];
    a.categories = (uint64_t)size[2];
    if (status == TR_OK) status = members_visit(m, &a, member_keep, s);
    if (status == TR_OK && restores) status = arrays_to_forest(m, &a);
    arrays_free(&a);
    return status;
}

/* ---- model.init ---- */

static int member_broadcast(void *to, const struct member *member)
{
    const struct tr_trees *m = to;
    void **values = member->values;
    size_t bytes = member_types[member->type].bytes, n = (size_t)member->n;
    TR_TRY(tr_agree(m->tr, *values ? TR_OK : tr_new(values, n, bytes, member->name)));
    return tr_broadcast(m->tr, TR_SET_ALL, 0, *values, n * bytes);
}

int tr_trees_broadcast(struct tr_trees *m)
{
    struct node_arrays a = {0};
    bool root = tr_rank(m->tr) == 0;
    int status = tr_agree(m->tr, root ? arrays_from_forest(m, &a) : TR_OK);
    uint64_t size[3] = {m->forest.trees, m->forest.nodes, a.categories};
    if (status == TR_OK) status = tr_broadcast(m->tr, TR_SET_ALL, 0, size, sizeof size);
    a.categorical = m->values != NULL;
    m->forest.trees = (size_t)size[0];
    m->forest.nodes = (size_t)size[1];
    a.categories = size[2];
    if (status == TR_OK) status = members_visit(m, &a, member_broadcast, m);
    if (status == TR_OK) status = tr_agree(m->tr, root ? TR_OK : arrays_to_forest(m, &a));
    arrays_free(&a);
    return status;
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
            if (node[i].feature == (uint32_t)TR_LEAF) continue;
            if (node[i].feature >= m->columns)
                return model_refuse("a node splits by a column that does not exist");
            if (node[i].child <= i || node[i].child + (size_t)1 >= n)
                return model_refuse("a child does not follow its parent");
        }
    }
    return TR_OK;
}

static int member_field(void *to, const struct member *member)
{
    return tr_field_array(to, member->name, member->type, member->n, 0, member->meaning, member->values);
}

int tr_trees_fields(void *model, tr_fields *f)
{
    struct tr_trees *m = model;
    struct node_arrays a = {0};
    bool reads = tr_fields_read(f);
    uint64_t trees = m->forest.trees, nodes = m->forest.nodes, label_column = (uint64_t)m->label_column;
    char *objective = m->loss ? (char *)(uintptr_t)m->loss->objective : NULL;
    m->best = m->last.objective;
    if (!reads) TR_TRY(tr_model_tell(m->tr, 1, &m->best));
    TR_TRY(tr_field_text(f, "objective", &objective));
    if (reads) {
        m->loss = tr_loss_of_objective(objective);
        free(objective);
        if (!m->loss) return model_refuse("unknown objective");
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
    if (m->columns == 0 || m->columns >= UINT32_MAX || m->outputs == 0 || m->outputs > 100000 ||
        trees % m->outputs != 0 || nodes >= UINT32_MAX)
        return model_refuse("trees, nodes, outputs and columns do not match");
    if (tr_trees_classify(m) && m->labels != (m->outputs > 1 ? m->outputs : 2))
        return model_refuse("labels_known does not match outputs");
    int status = reads ? TR_OK : arrays_from_forest(m, &a);
    if (reads) a.categorical = tr_fields_have(f, "categories");
    if (status == TR_OK && a.categorical) status = tr_field_count(f, "categories", &a.categories);
    if (status == TR_OK) status = members_visit(m, &a, member_field, f);
    if (status == TR_OK && reads) status = arrays_to_forest(m, &a);
    if (status == TR_OK && reads) status = model_check_trees(m);
    arrays_free(&a);
    return status == TR_OK && !reads && tr_rank(m->tr) == 0 ? text_write_both(m) : status;
}
