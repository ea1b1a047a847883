/* Trees for others: model.txt, which LightGBM loads, and model.json, which XGBoost does. Both predict the same margins: what
 * trees are added to is in the leaves of each output's first tree there. */
#define _GNU_SOURCE
#include <errno.h>
#include <float.h>
#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "trees.h"

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
static uint64_t shift_of(const struct tr_trees *m)
{
    return m->train->format == TR_FORMAT_LIBSVM ? m->first_index : 0;
}

static int open_tree(const struct tr_trees *m, size_t which, struct tree *t)
{
    size_t first = (size_t)m->forest.begin[which];
    *t = (struct tree){.forest = &m->forest,
                       .node = m->forest.node + first,
                       .note = m->forest.note + first,
                       .n = (size_t)m->forest.begin[which + 1] - first,
                       .base = which < m->outputs ? m->base[which] : 0,
                       .shift = shift_of(m),
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

static void close_tree(struct tree *t)
{
    free(t->number);
    free(t->parent);
}

static bool is_leaf(const struct tree *t, size_t i)
{
    return t->node[i].feature == (uint32_t)TR_LEAF;
}

static bool is_category(const struct tree *t, size_t i)
{
    return t->node[i].flags & TR_NODE_CATEGORY;
}

static uint32_t words(const struct tree *t, size_t i)
{
    return is_category(t, i) ? t->node[i].flags >> TR_NODE_SET_WORDS : 0;
}

static double feature(const struct tree *t, size_t i)
{
    return is_leaf(t, i) ? 0 : (double)(t->node[i].feature + t->shift);
}

static double gain(const struct tree *t, size_t i)
{
    return (double)t->note[i].gain;
}

static double weight(const struct tree *t, size_t i)
{
    return (double)t->note[i].weight;
}

static double value(const struct tree *t, size_t i)
{
    return is_leaf(t, i) ? (double)t->node[i].number + t->base : 0;
}

/* ---- model.txt ---- */

/* LightGBM compares reals of 64 bits: those up to here are rounded to a float that goes left. Of a category, its number among the
 * sets. */
static double threshold(const struct tree *t, size_t i)
{
    size_t before = 0;
    for (size_t k = 0; k < i; k++) before += is_category(t, k);
    if (is_category(t, i)) return (double)before;
    float number = t->node[i].number;
    return fmin(((double)number + (double)nextafterf(number, INFINITY)) / 2, DBL_MAX);
}

/* That a missing number is NaN, and whether it goes left; whether the number is a category. */
static double decision(const struct tree *t, size_t i)
{
    return 8 + is_category(t, i) + (t->node[i].flags & TR_NODE_MISSING_LEFT ? 2 : 0);
}

static double left(const struct tree *t, size_t i)
{
    return (double)t->number[t->node[i].child];
}

static double right(const struct tree *t, size_t i)
{
    return (double)t->number[t->node[i].child + 1];
}

/* Numbers of the nodes that have children, or of the leaves. */
static void put_line(FILE *file, const char *name, const struct tree *t, bool leaves, tr_of_node *of)
{
    bool first = true;
    fprintf(file, "%s=", name);
    for (size_t i = 0; i < t->n; i++) {
        if (is_leaf(t, i) != leaves) continue;
        fprintf(file, "%s%.17g", first ? "" : " ", of(t, i));
        first = false;
    }
    fputc('\n', file);
}

/* A bit for each value that goes left, in words of 32. */
static void put_sets(FILE *file, const struct tree *t)
{
    size_t n = 0;
    if (t->categories == 0) return;
    fputs("cat_boundaries=0", file);
    for (size_t i = 0; i < t->n; i++)
        if (is_category(t, i)) fprintf(file, " %zu", n += words(t, i));
    const char *before = "\ncat_threshold=";
    for (size_t i = 0; i < t->n; i++)
        for (uint32_t w = 0; w < words(t, i); w++) {
            fprintf(file, "%s%lu", before, (unsigned long)t->forest->set[t->node[i].set + w]);
            before = " ";
        }
    fputc('\n', file);
}

static void put_tree(FILE *file, const struct tree *t, size_t which)
{
    fprintf(file, "Tree=%zu\nnum_leaves=%zu\nnum_cat=%zu\n", which, t->leaves, t->categories);
    put_line(file, "split_feature", t, false, feature);
    put_line(file, "split_gain", t, false, gain);
    put_line(file, "threshold", t, false, threshold);
    put_line(file, "decision_type", t, false, decision);
    put_line(file, "left_child", t, false, left);
    put_line(file, "right_child", t, false, right);
    put_sets(file, t);
    put_line(file, "leaf_value", t, true, value);
    put_line(file, "leaf_weight", t, true, weight);
    put_line(file, "internal_value", t, false, value);
    put_line(file, "internal_weight", t, false, weight);
    fputs("is_linear=0\nshrinkage=1\n\n\n", file);
}

static void begin_lightgbm(FILE *file, const struct tr_trees *m)
{
    unsigned long long outputs = m->outputs, shift = shift_of(m), columns = m->columns + shift;
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

static int write_lightgbm(const struct tr_trees *m, FILE *file)
{
    begin_lightgbm(file, m);
    for (size_t k = 0; k < m->forest.trees; k++) {
        struct tree t;
        int status = open_tree(m, k, &t);
        if (status == TR_OK) put_tree(file, &t, k);
        close_tree(&t);
        TR_TRY(status);
    }
    fputs("end of trees\n", file);
    return TR_OK;
}

/* ---- model.json ---- */

/* XGBoost's sets go right, so children of categories change places. */
static double child(const struct tree *t, size_t i)
{
    return is_leaf(t, i) ? -1 : (double)t->node[i].child + is_category(t, i);
}

static double other_child(const struct tree *t, size_t i)
{
    return is_leaf(t, i) ? -1 : (double)t->node[i].child + !is_category(t, i);
}

static double parent(const struct tree *t, size_t i)
{
    return t->parent[i] == UINT32_MAX ? INT32_MAX : (double)t->parent[i];
}

/* XGBoost goes left below its number: the next one up. */
static double condition(const struct tree *t, size_t i)
{
    if (is_category(t, i)) return 0;
    return is_leaf(t, i) ? value(t, i) : (double)fminf(nextafterf(t->node[i].number, INFINITY), FLT_MAX);
}

/* XGBoost takes what a sparse row does not name for missing, which here is 0. */
static double missing_left(const struct tree *t, size_t i)
{
    if (t->sparse) return t->node[i].number >= 0;
    return t->node[i].flags & (TR_NODE_MISSING_LEFT | TR_NODE_CATEGORY) ? 1 : 0;
}

static double type(const struct tree *t, size_t i)
{
    return is_category(t, i);
}

/* XGBoost takes a number for a real one only if it looks like one. */
static void put_list(FILE *file, const char *name, const struct tree *t, bool real, tr_of_node *of)
{
    fprintf(file, ",\"%s\":[", name);
    for (size_t i = 0; i < t->n; i++) fprintf(file, real ? "%s%.8E" : "%s%.0f", i > 0 ? "," : "", of(t, i));
    fputc(']', file);
}

/* Nodes of categories, where the values of each begin among all, and how many it has. */
static void put_json_sets(FILE *file, const struct tree *t)
{
    static const char *const lists[] = {"categories", "categories_nodes", "categories_segments",
                                        "categories_sizes"};
    for (int which = 0; which < 4; which++) {
        size_t all = 0, sets = 0;
        fprintf(file, "\"%s\":[", lists[which]);
        for (size_t i = 0; i < t->n; i++) {
            size_t first = all;
            for (uint32_t v = 0; v < 32 * words(t, i); v++) {
                if (!tr_node_has(t->forest, &t->node[i], v)) continue;
                if (which == 0) fprintf(file, "%s%lu", all > 0 ? "," : "", (unsigned long)v);
                all++;
            }
            if (!is_category(t, i)) continue;
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

static void put_json_tree(FILE *file, const struct tr_trees *m, const struct tree *t, size_t which)
{
    fputs(which > 0 ? ",{" : "{", file);
    put_json_sets(file, t);
    fprintf(file, "\"id\":%zu", which);
    put_list(file, "base_weights", t, true, value);
    put_list(file, "default_left", t, false, missing_left);
    put_list(file, "left_children", t, false, child);
    put_list(file, "right_children", t, false, other_child);
    put_list(file, "parents", t, false, parent);
    put_list(file, "loss_changes", t, true, gain);
    put_list(file, "split_conditions", t, true, condition);
    put_list(file, "split_indices", t, false, feature);
    put_list(file, "split_type", t, false, type);
    put_list(file, "sum_hessian", t, true, weight);
    fprintf(file,
            ",\"tree_param\":{\"num_deleted\":\"0\",\"num_feature\":\"%llu\",\"num_nodes\":\"%zu\",\"size_"
            "leaf_vector\":\"0\"}}",
            (unsigned long long)(m->columns + t->shift), t->n);
}

static void end_json(FILE *file, const struct tr_trees *m)
{
    unsigned long long outputs = m->outputs;
    fputs("],\"tree_info\":[", file);
    for (size_t k = 0; k < m->forest.trees; k++) fprintf(file, "%s%llu", k > 0 ? "," : "", k % outputs);
    fprintf(file,
            "]},\"name\":\"gbtree\"},\"learner_model_param\":{\"base_score\":\"%s\",\"boost_from_average\":"
            "\"1\",\"num_class\":"
            "\"%llu\",\"num_feature\":\"%llu\",\"num_target\":\"1\"},\"objective\":",
            m->loss->trees.xgboost.base_score, outputs > 1 ? outputs : 0,
            (unsigned long long)(m->columns + shift_of(m)));
    char classes[32];
    snprintf(classes, sizeof classes, "%llu", outputs);
    fprintf(file, "{\"name\":\"%s\",\"%s\":{\"%s\":\"%s\"}}},\"version\":[1,7,0]}\n",
            m->loss->trees.xgboost.name, m->loss->trees.xgboost.group, m->loss->trees.xgboost.key,
            m->loss->trees.xgboost.value ? m->loss->trees.xgboost.value : classes);
}

static int write_xgboost(const struct tr_trees *m, FILE *file)
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
        int status = open_tree(m, k, &t);
        if (status == TR_OK) put_json_tree(file, m, &t, k);
        close_tree(&t);
        TR_TRY(status);
    }
    end_json(file, m);
    return TR_OK;
}

/* ---- files ---- */

static int failed(const struct text *text)
{
    return tr_fail(TR_ERR_IO, "%s: cannot be written: %s", text->path, strerror(errno));
}

static int write_text(const struct tr_trees *m, struct text *text,
                      int (*write)(const struct tr_trees *, FILE *))
{
    text->file = fopen(text->part, "we");
    if (!text->file) return failed(text);
    int status = write(m, text->file);
    bool fails = ferror(text->file) || fflush(text->file) != 0 || fsync(fileno(text->file)) < 0;
    if (status == TR_OK && fails) status = failed(text);
    if (fclose(text->file) != 0 && status == TR_OK) status = failed(text);
    if (status == TR_OK && rename(text->part, text->path) < 0) status = failed(text);
    if (status != TR_OK) unlink(text->part);
    return status;
}

static int put(const struct tr_trees *m, const char *folder, const char *name,
               int (*write)(const struct tr_trees *, FILE *))
{
    struct text text = {0};
    int status = tr_format(&text.path, "%s/%s", folder, name);
    if (status == TR_OK) status = tr_format(&text.part, "%s/%s.part", folder, name);
    locale_t c = newlocale(LC_ALL_MASK, "C", (locale_t)0),
             old = uselocale(c); /* numbers with a point for a point */
    if (status == TR_OK) status = write_text(m, &text, write);
    uselocale(old);
    if (c) freelocale(c);
    free(text.path);
    free(text.part);
    return status;
}

int tr_trees_write_texts(const struct tr_trees *m, const char *folder)
{
    TR_TRY(put(m, folder, "model.txt", write_lightgbm));
    return put(m, folder, "model.json", write_xgboost);
}
