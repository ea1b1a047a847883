/* Trees: a damaged file is refused with a line that says how; what features contribute is what the definition says. */
#include "unit.h"

#include "class/class.h"
#include "model/trees/trees.h"
#include "store/h5.h"

/* ---- files ---- */

UNIT_FIXTURE(unit_make_folder, NULL)

enum { NODES = 5, COLUMNS = 3 };
#define LEAF UINT32_MAX

struct file {
    uint64_t begin[2], columns, outputs;
    uint32_t feature[NODES], child[NODES];
    float number[NODES];
};

static const struct file sound = {{0, NODES},         COLUMNS, 1, {2, LEAF, 0, LEAF, LEAF}, {1, 0, 3, 0, 0},
                                  {0.5f, -1, 2, 3, 4}};

/* Writes it, and reads it as predict does. */
static int read_back(const struct file *f)
{
    struct tr_h5_writer *w;
    struct tr_model model;
    ck_ok(tr_h5_create(unit_folder, "trireme-trees", 1, "model:\n  type: trees\n", NULL, &w));
    ck_ok(tr_h5_put_text(w, "objective", "squared"));
    const struct {
        const char *name;
        uint64_t count;
    } counts[] = {{"trees", 1},       {"nodes", NODES},    {"outputs", f->outputs}, {"columns", f->columns},
                  {"first_index", 1}, {"label_column", 0}, {"rows", 100},           {"labels_known", 0}};
    for (size_t i = 0; i < COUNT(counts); i++) ck_ok(tr_h5_put_count(w, counts[i].name, counts[i].count));
    ck_ok(tr_h5_put_real(w, "best_objective", 0.1));
    ck_ok(tr_h5_put(w, "base", TR_H5_F64, 1, 0, (double[]){0}));
    ck_ok(tr_h5_put(w, "tree_begin", TR_H5_U64, 2, 0, f->begin));
    ck_ok(tr_h5_put(w, "feature", TR_H5_U32, NODES, 0, f->feature));
    ck_ok(tr_h5_put(w, "child", TR_H5_U32, NODES, 0, f->child));
    ck_ok(tr_h5_put(w, "number", TR_H5_F32, NODES, 0, f->number));
    ck_ok(tr_h5_put(w, "missing_left", TR_H5_U8, NODES, 0, (uint8_t[NODES]){0}));
    ck_ok(tr_h5_put(w, "gain", TR_H5_F32, NODES, 0, (float[NODES]){0}));
    ck_ok(tr_h5_put(w, "weight", TR_H5_F32, NODES, 0, (float[NODES]){9, 4, 5, 2, 3}));
    ck_ok(tr_h5_finish(&w));
    int status = tr_model_open(unit_path("model.h5"), NULL, &model);
    if (status == TR_OK) status = tr_model_read(&model);
    tr_model_close(&model);
    return status;
}

UNIT_CASE(a_damaged_forest_is_refused)
{
    struct file f = sound;
    ck_ok(read_back(&f));
    f.child[2] = 0;
    ck_fails(read_back(&f), TR_ERR_DATA, "a child does not follow its parent");
    f.child[2] = 2;
    ck_fails(read_back(&f), TR_ERR_DATA, "a child does not follow its parent");
    f.child[2] = NODES - 1;
    ck_fails(read_back(&f), TR_ERR_DATA, "a child does not follow its parent");
    f = sound;
    f.feature[0] = COLUMNS;
    ck_fails(read_back(&f), TR_ERR_DATA, "a column that does not exist");
    f = sound;
    f.number[0] = NAN;
    ck_fails(read_back(&f), TR_ERR_DATA, "NaN");
    f = sound;
    f.begin[1] = NODES - 1;
    ck_fails(read_back(&f), TR_ERR_DATA, "tree_begin");
    f = sound;
    f.columns = 0;
    ck_fails(read_back(&f), TR_ERR_DATA, "do not match");
    f = sound;
    f.outputs = 2;
    ck_fails(read_back(&f), TR_ERR_DATA, "do not match");
}

/* ---- contributions ---- */

/* Of a row of which only some features are known: the rest goes both ways. */
static double expected(const struct tr_forest *f, size_t at, const float *row, unsigned known)
{
    const struct tr_node *node = f->node + at;
    if (node->feature == LEAF) return (double)node->number;
    double left = expected(f, node->child, row, known), right = expected(f, node->child + 1, row, known);
    if (known >> node->feature & 1) return tr_goes_left(f, node, row[node->feature]) ? left : right;
    double a = (double)f->note[node->child].weight, b = (double)f->note[node->child + 1].weight;
    return (a * left + b * right) / (a + b);
}

/* Over all sets of features without c: what c adds to them, weighed by n! (columns - n - 1)! / columns!. */
static double shapley(const struct tr_forest *f, const float *row, unsigned columns, unsigned c)
{
    double sum = 0;
    for (unsigned set = 0; set < 1u << columns; set++) {
        if (set >> c & 1) continue;
        double n = __builtin_popcount(set),
               weight = exp(lgamma(n + 1) + lgamma(columns - n) - lgamma(columns + 1.0));
        sum += weight * (expected(f, 0, row, set | 1u << c) - expected(f, 0, row, set));
    }
    return sum;
}

/* Splits leaves until there are `leaves`; a feature may split more than once on a path. */
static void grow(struct tr_forest *f, struct tr_rng *rng, size_t nodes, unsigned columns)
{
    f->node[0].feature = LEAF;
    for (f->nodes = 1; f->nodes < nodes; f->nodes += 2) {
        size_t at;
        do at = tr_rng_below(rng, f->nodes);
        while (f->node[at].feature != LEAF);
        f->node[at] = (struct tr_node){.feature = (uint32_t)tr_rng_below(rng, columns),
                                       .child = (uint32_t)f->nodes,
                                       .number = (float)tr_rng_normal(rng),
                                       .flags = (uint32_t)tr_rng_below(rng, 2)};
        f->node[f->nodes].feature = f->node[f->nodes + 1].feature = LEAF;
    }
    for (size_t i = nodes; i-- > 0;) {
        bool leaf = f->node[i].feature == LEAF;
        if (leaf) f->node[i].number = (float)tr_rng_normal(rng);
        f->note[i].weight = leaf ? 1 + (float)tr_rng_below(rng, 20)
                                 : f->note[f->node[i].child].weight + f->note[f->node[i].child + 1].weight;
    }
    f->begin[1] = nodes;
}

UNIT_CASE(contributions_are_shapley_values)
{
    enum { MOST = 141, FEATURES = 5 };
    struct tr_node node[MOST];
    struct tr_node_note note[MOST];
    uint64_t begin[2] = {0};
    struct tr_forest f = {.trees = 1, .begin = begin, .node = node, .note = note};
    struct tr_rng rng;
    tr_rng_seed(&rng, 1, 2, 3);
    for (int round = 0; round < 100; round++) {
        struct tr_contributions c = {0};
        float row[FEATURES];
        double to[FEATURES + 1] = {0}, sum = 0;
        grow(&f, &rng, 1 + 2 * tr_rng_below(&rng, MOST / 2 + 1), FEATURES);
        for (size_t k = 0; k < FEATURES; k++)
            row[k] = tr_rng_below(&rng, 8) ? (float)tr_rng_normal(&rng) : NAN;
        ck_ok(tr_contributions_open(&f, &c));
        tr_contributions_add(&c, &f, 1, FEATURES, row, to);
        for (unsigned k = 0; k < FEATURES; k++)
            ck_assert_double_eq_tol(to[k], shapley(&f, row, FEATURES, k), 1e-9);
        ck_assert_double_eq_tol(to[FEATURES], expected(&f, 0, row, 0), 1e-9);
        for (size_t k = 0; k <= FEATURES; k++) sum += to[k];
        struct tr_scorer *s = NULL;
        ck_ok(tr_scorer_open(&f, 0, FEATURES, &s));
        tr_scorer_read(s, &(tr_batch){.n = 1, .dense = row}, NULL, FEATURES, 0, 1);
        ck_assert_double_eq_tol(sum, (double)node[*tr_scorer_leaves(s, 0)].number, 1e-9);
        tr_scorer_close(&s);
        tr_contributions_close(&c);
    }
}
