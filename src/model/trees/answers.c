/* predict, evaluate and inspect for trees. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../metrics.h"
#include "trees.h"

/* Values of tr_trees.output. */
enum {
    PREDICT_LABEL,
    PREDICT_PROBABILITY,
    PREDICT_MARGIN,
    PREDICT_MEAN,
    PREDICT_LEAVES,
    PREDICT_CONTRIBUTIONS
};

/* Number of columns up to which rows are read as dense ones. */
enum { DENSE_COLUMNS = 4096 };

/* ================ predict ================ */

struct tr_trees_evaluation {
    struct tr_classified *classified; /* classes */
    struct tr_errors errors;          /* numbers */
    double weight;                    /* of all rows */
};

int tr_trees_ready(void *model, tr_query *q)
{
    struct tr_trees *m = model;
    static const char *const flag[] = {
        [PREDICT_PROBABILITY] = "--probability",
        [PREDICT_MARGIN] = "--margin",
        [PREDICT_LEAVES] = "--leaves",
        [PREDICT_CONTRIBUTIONS] = "--contributions",
    };
    m->output = tr_query_command(q) == TR_EVALUATE ? PREDICT_MARGIN
                : tr_trees_classify(m)             ? PREDICT_LABEL
                                                   : PREDICT_MEAN;
    const char *given = NULL;
    for (int k = 0; k <= PREDICT_CONTRIBUTIONS; k++) {
        if (!flag[k] || !tr_query_given(q, flag[k])) continue;
        if (given) return tr_fail(TR_ERR_USAGE, "predict: unexpected %s beside %s", flag[k], given);
        given = flag[k];
        m->output = k;
    }
    if (m->output == PREDICT_PROBABILITY && !tr_trees_classify(m))
        return tr_fail(TR_ERR_USAGE, "--probability requires classes, but the model has objective %s",
                       m->loss->objective);
    if (m->output == PREDICT_CONTRIBUTIONS && m->columns > DENSE_COLUMNS)
        return tr_fail(TR_ERR_USAGE, "--contributions requires at most %d features, but the model has %llu",
                       DENSE_COLUMNS, (unsigned long long)m->columns);
    TR_TRY(TR_NEW(&m->evaluation, 1));
    if (tr_trees_classify(m)) TR_TRY(tr_classified_open((size_t)m->labels, &m->evaluation->classified));
    if (m->output != PREDICT_CONTRIBUTIONS)
        TR_TRY(tr_scorer_open(&m->forest, 0, (size_t)m->columns, &m->scorer));
    tr_query_rows(q, m->columns <= DENSE_COLUMNS ? TR_ROWS_DENSE : TR_ROWS_SPARSE, m->columns,
                  m->first_index);
    if (m->label_column < TR_LABEL_AUTO) tr_query_label(q, (int)m->label_column);
    if (m->output == PREDICT_LEAVES) {
        /* Numbers the leaves of each tree from 0 in the order of nodes, as in model.txt. */
        const struct tr_forest *f = &m->forest;
        TR_TRY(TR_NEW(&m->leaf_number, f->nodes));
        for (size_t t = 0; t < f->trees; t++) {
            char name[64];
            uint32_t leaves = 0;
            snprintf(name, sizeof name, "leaf of tree %zu", t);
            TR_TRY(tr_query_output(q, name, 0));
            for (size_t i = (size_t)f->begin[t]; i < f->begin[t + 1]; i++)
                m->leaf_number[i] = f->node[i].feature == (uint32_t)TR_LEAF ? leaves++ : 0;
        }
        return TR_OK;
    }
    if (m->output == PREDICT_CONTRIBUTIONS) TR_TRY(tr_contributions_open(&m->forest, &m->contributions));
    /* Names the outputs: one per output of the model, or per output and feature. */
    static const char *const what[] = {"label", "probability", "margin", "mean"};
    bool by_feature = m->output == PREDICT_CONTRIBUTIONS;
    size_t outputs = m->output == PREDICT_LABEL ? 1 : (size_t)m->outputs,
           each = by_feature ? (size_t)m->columns + 1 : 1;
    for (size_t k = 0; k < outputs * each; k++) {
        char name[2 * TR_LABEL_TEXT + 64], text[TR_LABEL_TEXT] = "base";
        if (by_feature && k % each < m->columns) tr_query_key_text(q, k % each, m->first_index, text);
        int n = snprintf(name, sizeof name, "%s", by_feature ? text : what[m->output]);
        if (outputs > 1) {
            tr_query_label_text(q, m->label_name[k / each], text);
            snprintf(name + n, sizeof name - (size_t)n, " of label %s", text);
        }
        TR_TRY(tr_query_output(q, name, m->output == PREDICT_LABEL ? TR_AS_LABEL : TR_SHORTEST));
    }
    return TR_OK;
}

/* Computes the margins of n rows, row by row. */
static void rows_find_margins(struct tr_trees *m, size_t n, double *margin)
{
    const struct tr_forest *f = &m->forest;
    size_t outputs = (size_t)m->outputs;
    for (size_t i = 0; i < n; i++) memcpy(margin + i * outputs, m->base, outputs * sizeof *margin);
    for (size_t t = 0; t < f->trees; t++) {
        const struct tr_node *tree = f->node + f->begin[t];
        const uint32_t *leaf = tr_scorer_leaves(m->scorer, t);
        double *to = margin + t % outputs;
        for (size_t i = 0; i < n; i++) to[i * outputs] += (double)tree[leaf[i]].number;
    }
}

static void rows_find_leaves(struct tr_trees *m, size_t n, double *out)
{
    const struct tr_forest *f = &m->forest;
    for (size_t t = 0; t < f->trees; t++) {
        const uint32_t *leaf = tr_scorer_leaves(m->scorer, t);
        for (size_t i = 0; i < n; i++) out[i * f->trees + t] = m->leaf_number[f->begin[t] + leaf[i]];
    }
}

/* Computes `each` numbers per row. */
typedef void find_of_rows(struct tr_trees *m, size_t n, double *out);
static void rows_for_all(struct tr_trees *m, const tr_batch *rows, find_of_rows *find, size_t each,
                         double *out)
{
    for (size_t i = 0; i < rows->n; i += TR_SIDE) {
        size_t n = tr_min_size(TR_SIDE, rows->n - i);
        tr_scorer_read(m->scorer, rows, NULL, (size_t)m->columns, i, n);
        find(m, n, out + i * each);
    }
}

int tr_trees_predict(void *model, tr_query *q, const tr_records *records, double *out)
{
    struct tr_trees *m = model;
    const tr_batch *rows = &records->rows;
    size_t n = rows->n, outputs = (size_t)m->outputs;
    TR_FREED double *margin = NULL;
    (void)q;
    if (m->output == PREDICT_LEAVES) rows_for_all(m, rows, rows_find_leaves, m->forest.trees, out);
    if (m->output == PREDICT_CONTRIBUTIONS) {
        const float *row = rows->dense;
        size_t columns = (size_t)m->columns;
        memset(out, 0, n * outputs * (columns + 1) * sizeof *out);
        for (size_t i = 0; i < n; i++, row += columns, out += outputs * (columns + 1)) {
            for (size_t k = 0; k < outputs; k++) out[k * (columns + 1) + columns] = m->base[k];
            tr_contributions_add(&m->contributions, &m->forest, outputs, columns, row, out);
        }
    }
    if (m->output == PREDICT_LEAVES || m->output == PREDICT_CONTRIBUTIONS) return TR_OK;
    TR_TRY(TR_NEW(&margin, n * outputs));
    rows_for_all(m, rows, rows_find_margins, outputs, margin);
    for (size_t i = 0; i < n; i++) {
        double *of = margin + i * outputs;
        if (m->output == PREDICT_PROBABILITY && outputs == 1) *of = 1 / (1 + exp(-*of));
        if (m->output == PREDICT_PROBABILITY && outputs > 1) {
            double sum = 0, most = -INFINITY;
            for (size_t k = 0; k < outputs; k++) most = fmax(most, of[k]);
            for (size_t k = 0; k < outputs; k++) sum += of[k] = exp(of[k] - most);
            for (size_t k = 0; k < outputs; k++) of[k] /= sum;
        }
        if (m->output == PREDICT_MEAN && m->loss->mean) *of = m->loss->mean(*of);
        if (m->output == PREDICT_LABEL) out[i] = (double)m->label_name[tr_predicted_class(of, outputs)];
    }
    if (m->output != PREDICT_LABEL) memcpy(out, margin, n * outputs * sizeof *out);
    return TR_OK;
}

/* ================ evaluate ================ */

int tr_trees_evaluate(void *model, tr_query *q, const tr_records *records, const double *out)
{
    struct tr_trees *m = model;
    struct tr_trees_evaluation *e = m->evaluation;
    const float *label = records->rows.label;
    (void)q;
    for (size_t i = 0; i < records->rows.n; i++, out += m->outputs) {
        double weight = records->rows.weight ? (double)records->rows.weight[i] : 1;
        if (!label || isnan(label[i])) return tr_records_fail(records, i, "expected a label");
        struct tr_trees_judged row = tr_trees_judge(m, label[i], out, 0);
        if (!tr_trees_classify(m)) {
            tr_errors_add(&e->errors, m->loss, 0, *out, (double)label[i], weight);
        } else if (row.is < m->labels) {
            double score = m->outputs == 1 ? *out : 0;
            TR_TRY(tr_classified_add(e->classified, row.is, row.as, row.loss, score, weight));
        } else {
            char text[160];
            snprintf(text, sizeof text, "label %.9g, expected one of the %llu of training", (double)label[i],
                     (unsigned long long)m->labels);
            return tr_records_fail(records, i, text);
        }
        e->weight += weight;
    }
    return TR_OK;
}

int tr_trees_figures(void *model, tr_query *q, uint64_t rows)
{
    const struct tr_trees *m = model;
    const struct tr_trees_evaluation *e = m->evaluation;
    TR_TRY(tr_rows_figure(q, rows, e->weight));
    if (tr_trees_classify(m)) return tr_classified_figures(e->classified, q, m->label_name, true);
    return tr_errors_figures(&e->errors, q, NULL);
}

/* ================ inspect ================ */

/* Prints a name; quoted: inside the quotes of Graphviz. */
static int inspect_name(tr_query *q, const char *name, bool quoted)
{
    for (size_t n; quoted && *name; name += n) {
        bool special = *name == '"' || *name == '\\';
        n = special ? 1 : strcspn(name, "\"\\");
        TR_TRY(tr_print(q, "%s%.*s", special ? "\\" : "", (int)n, name));
    }
    return tr_print(q, "%s", name);
}

/* Prints the condition of a node. Rows that meet it go left. */
static int inspect_question(const struct tr_trees *m, tr_query *q, const struct tr_node *node, bool quoted)
{
    char text[TR_LABEL_TEXT];
    const char *before = "";
    tr_query_key_text(q, node->feature, m->first_index, text);
    TR_TRY(tr_print(q, "feature "));
    TR_TRY(inspect_name(q, text, quoted));
    if (!(node->flags & TR_NODE_CATEGORY))
        return tr_print(q, " <= %.6g%s", (double)node->number,
                        node->flags & TR_NODE_MISSING_LEFT ? " or missing" : "");
    TR_TRY(tr_print(q, " in {"));
    for (uint32_t value = 0; value < node->flags >> TR_NODE_SET_WORDS << 5; value++) {
        if (!tr_node_has(&m->forest, node, value)) continue;
        tr_query_value_text(q, node->feature, value, text);
        TR_TRY(tr_print(q, "%s", before));
        TR_TRY(inspect_name(q, text, quoted));
        before = ", ";
    }
    return tr_print(q, "}");
}

static int inspect_node(const struct tr_trees *m, tr_query *q, const struct tr_node *tree, size_t at,
                        int depth)
{
    const struct tr_node *node = &tree[at];
    if (node->feature == (uint32_t)TR_LEAF)
        return tr_print(q, "%*sleaf %.6g\n", 2 * depth, "", (double)node->number);
    TR_TRY(tr_print(q, "%*s", 2 * depth, ""));
    TR_TRY(inspect_question(m, q, node, false));
    TR_TRY(tr_print(q, "\n"));
    TR_TRY(inspect_node(m, q, tree, node->child, depth + 1));
    return inspect_node(m, q, tree, node->child + (size_t)1, depth + 1);
}

struct importance {
    uint64_t feature, splits;
    double gain;
};

static int importance_compare(const void *a, const void *b)
{
    const struct importance *x = a, *y = b;
    if (x->gain != y->gain) return x->gain > y->gain ? -1 : 1;
    return (x->feature > y->feature) - (x->feature < y->feature);
}

static int inspect_importance(const struct tr_trees *m, tr_query *q, size_t top)
{
    TR_FREED struct importance *of = NULL;
    double all = 0;
    TR_TRY(TR_NEW(&of, (size_t)m->columns));
    for (size_t c = 0; c < m->columns; c++) of[c].feature = c;
    for (size_t i = 0; i < m->forest.nodes; i++) {
        if (m->forest.node[i].feature == (uint32_t)TR_LEAF) continue;
        of[m->forest.node[i].feature].splits++;
        of[m->forest.node[i].feature].gain += (double)m->forest.note[i].gain;
        all += (double)m->forest.note[i].gain;
    }
    qsort(of, (size_t)m->columns, sizeof *of, importance_compare);
    TR_TRY(tr_print(q, "%12s  %10s  %10s  %8s\n", "feature", "share", "gain", "splits"));
    for (size_t c = 0; c < tr_min_size(top, (size_t)m->columns) && of[c].splits > 0; c++) {
        char name[TR_LABEL_TEXT];
        tr_query_key_text(q, of[c].feature, m->first_index, name);
        TR_TRY(tr_print(q, "%12s  %10.6f  %10.6g  %8llu\n", name, of[c].gain / all, of[c].gain,
                        (unsigned long long)of[c].splits));
    }
    return TR_OK;
}

int tr_trees_inspect(void *model, tr_query *q)
{
    const struct tr_trees *m = model;
    const struct tr_forest *f = &m->forest;
    long tree = tr_query_number(q, "--tree", -1);
    if (tree >= 0 && (size_t)tree >= f->trees)
        return tr_fail(TR_ERR_USAGE, "--tree %ld: the model has %zu trees, numbered from 0", tree, f->trees);
    bool graph = tr_query_given(q, "--graphviz"), all = tr_query_given(q, "--importance");
    if (graph && tree < 0) return tr_fail(TR_ERR_USAGE, "--graphviz requires --tree N");
    if (graph) {
        TR_TRY(tr_print(q, "digraph tree {\n    node [shape=box]\n"));
        for (size_t i = 0; i < ((size_t)(f->begin[tree + 1] - f->begin[tree])); i++) {
            const struct tr_node *node = &(f->node + f->begin[tree])[i];
            bool leaf = node->feature == (uint32_t)TR_LEAF;
            TR_TRY(tr_print(q, "    %zu [label=\"", i));
            TR_TRY(leaf ? tr_print(q, "%.6g", (double)node->number) : inspect_question(m, q, node, true));
            TR_TRY(tr_print(q, leaf ? "\", shape=ellipse]\n" : "\"]\n"));
            if (leaf) continue;
            TR_TRY(tr_print(q, "    %zu -> %lu [label=yes]\n", i, (unsigned long)node->child));
            TR_TRY(tr_print(q, "    %zu -> %lu [label=no]\n", i, (unsigned long)node->child + 1));
        }
        return tr_print(q, "}\n");
    }
    if (tree >= 0) return inspect_node(m, q, f->node + f->begin[tree], 0, 0);
    if (all) return inspect_importance(m, q, (size_t)m->columns);
    tr_line(q, "objective", "%s, %.9g", m->loss->objective, m->last.objective);
    tr_line(q, "trees", "%zu, of %.1f leaves on average", f->trees,
            ((double)f->nodes / fmax(1, (double)f->trees) + 1) / 2);
    if (m->outputs > 1) tr_line(q, "outputs", "%llu, one for each label", (unsigned long long)m->outputs);
    tr_line(q, "features", "%llu, the first has index %llu", (unsigned long long)m->columns,
            (unsigned long long)m->first_index);
    tr_line(q, "trained on", "%llu rows", (unsigned long long)m->total_rows);
    TR_TRY(tr_print(q, "\n"));
    return inspect_importance(m, q, (size_t)tr_query_number(q, "--top", 10));
}

void tr_trees_answers_close(struct tr_trees *m)
{
    if (m->evaluation) tr_classified_close(&m->evaluation->classified);
    free(m->evaluation);
    free(m->leaf_number);
    tr_contributions_close(&m->contributions);
    tr_scorer_close(&m->scorer);
    free(m->label_name);
    free(m->base);
    free(m->direction);
    free(m->values);
    tr_forest_free(&m->forest);
}
