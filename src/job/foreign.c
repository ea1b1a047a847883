#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "base/escape.h"
#include "job/schema.h"

/* Names of parameters in other programs, and the keys that mean the same. A cell has the names in one program, separated by
 * blanks; NULL: it has none. */

enum { TOOLS = 5 };
static const char *const tools[TOOLS] = {"lightgbm", "xgboost", "scikit-learn", "liblinear", "vw"};

/* clang-format off */
static const struct {
    const char *key; /* section.key, with a value if the name stands for one */
    const char *names[TOOLS];
} foreign[] = {
    {"data.train",           {"data train train_data", "data", NULL, NULL, "data"}},
    {"data.test",            {"valid test valid_data test_data eval", "evals eval_set", "validation_fraction", NULL, "t testonly"}},
    {"data.label",           {"label label_column", "label_column", NULL, NULL, NULL}},
    {"data.weight",          {"weight weight_column", "weight", "sample_weight", NULL, NULL}},
    {"data.offset",          {"init_score initscore_filename init_score_file", "base_margin", NULL, NULL, NULL}},
    {"data.columns",         {"categorical_feature cat_feature ignore_column", "enable_categorical", NULL, NULL, NULL}},
    {"data.header",          {"header has_header", NULL, NULL, NULL, NULL}},
    {"data.hash",            {NULL, NULL, "n_features", NULL, "b bit_precision"}},
    {"data.scale",           {NULL, NULL, "normalize", NULL, "normalized"}},
    {"data.storage",         {"two_round", "external_memory", NULL, NULL, "cache_file"}},
    {"output",               {"output_model model_output", "model_out model_dir", NULL, NULL, "f final_regressor"}},
    {"seed",                 {"seed random_seed random_state", "seed random_state", "random_state", NULL, "random_seed"}},
    {"model.type",           {"boosting boosting_type", "booster", "loss", "s", "loss_function"}},
    {"model.objective",      {"objective application", "objective", NULL, NULL, NULL}},
    {"model.init",           {"input_model model_input init_model", "model_in xgb_model", "warm_start", "i", "i initial_regressor"}},
    {"model.l2",             {"lambda_l2 reg_lambda lambda", "lambda reg_lambda", "alpha C", "c", "l2"}},
    {"model.l1",             {NULL, NULL, "l1_ratio penalty", NULL, "l1"}},
    {"model.bias",           {NULL, NULL, "fit_intercept intercept_scaling", "B", "noconstant"}},
    {"model.classes",        {NULL, NULL, "multi_class", NULL, "oaa"}},
    {"model.class_weights",  {"scale_pos_weight is_unbalance", "scale_pos_weight", "class_weight", "wi", NULL}},
    {"model.delta",          {NULL, "huber_slope", "epsilon", NULL, NULL}},
    {"model.quantile",       {"alpha", "quantile_alpha", "quantile", NULL, "quantile_tau"}},
    {"model.power",          {"tweedie_variance_power", "tweedie_variance_power", "power", NULL, NULL}},
    {"model.leaves",         {"num_leaves num_leaf max_leaves", "max_leaves", "max_leaf_nodes", NULL, NULL}},
    {"model.depth",          {"max_depth", "max_depth", "max_depth", NULL, NULL}},
    {"model.bins",           {"max_bin max_bins", "max_bin", "max_bins", NULL, NULL}},
    {"model.min_rows",       {"min_data_in_leaf min_data min_child_samples", NULL, "min_samples_leaf", NULL, NULL}},
    {"model.min_weight",     {"min_sum_hessian_in_leaf min_sum_hessian min_child_weight", "min_child_weight", NULL, NULL, NULL}},
    {"model.gamma",          {"min_gain_to_split min_split_gain", "gamma min_split_loss", "min_impurity_decrease", NULL, NULL}},
    {"model.monotone",       {"monotone_constraints mc", "monotone_constraints", "monotonic_cst", NULL, NULL}},
    {"model.category_l2",    {"cat_l2", NULL, NULL, NULL, NULL}},
    {"model.clusters",       {NULL, NULL, "n_clusters", NULL, NULL}},
    {"model.topics",         {NULL, NULL, "n_components n_topics", NULL, "lda"}},
    {"model.rank",           {NULL, NULL, "n_factors factors", NULL, "rank q"}},
    {"solve.method",         {NULL, NULL, "solver algorithm", NULL, "bfgs ftrl sgd"}},
    {"solve.epochs",         {"num_iterations num_iteration num_trees num_round num_rounds n_estimators n_iter", "num_round num_boost_round n_estimators",
                              "max_iter n_estimators", NULL, "passes"}},
    {"solve.rate",           {"learning_rate shrinkage_rate eta", "eta learning_rate", "learning_rate eta0", NULL, "l learning_rate"}},
    {"solve.decay",          {NULL, NULL, "power_t", NULL, "decay_learning_rate power_t"}},
    {"solve.optimizer",      {NULL, NULL, NULL, NULL, "adaptive"}},
    {"solve.target_gap",     {NULL, NULL, "tol", "e", "termination"}},
    {"solve.patience",       {"early_stopping_round early_stopping_rounds early_stopping n_iter_no_change", "early_stopping_rounds",
                              "n_iter_no_change early_stopping", NULL, "early_terminate"}},
    {"solve.row_share",      {"bagging_fraction subsample sub_row bagging", "subsample", "subsample", NULL, NULL}},
    {"solve.top_share",      {"top_rate data_sample_strategy", "sampling_method", NULL, NULL, NULL}},
    {"solve.column_share",   {"feature_fraction sub_feature colsample_bytree", "colsample_bytree", "max_features", NULL, NULL}},
    {"solve.parallel",       {"tree_learner", NULL, NULL, NULL, NULL}},
    {"report.metric",        {"metric metrics metric_types eval_metric", "eval_metric", "scoring", NULL, NULL}},
    {"report.every",         {"metric_freq output_freq", "verbose_eval", "validation_scores", NULL, "P progress"}},
    {"report.progress",      {"verbosity verbose", "verbosity silent", "verbose", "q", "quiet"}},
};
/* clang-format on */
enum { FOREIGN = sizeof foreign / sizeof *foreign };

/* Returns whether a list of names separated by blanks contains a name. */
static bool list_has(const char *list, const char *name)
{
    size_t n = strlen(name);
    for (const char *at = list; at && *at; at += strcspn(at, " "), at += strspn(at, " "))
        if (strcspn(at, " ") == n && strncmp(at, name, n) == 0) return true;
    return false;
}

const char *tr_job_foreign_key(const char *name)
{
    const char *own = tr_job_own_name(name);
    for (size_t i = 0; i < FOREIGN && strlen(own) > 1; i++)
        for (size_t t = 0; t < TOOLS; t++)
            if (list_has(foreign[i].names[t], own)) return foreign[i].key;
    return NULL;
}

bool tr_job_foreign_help(FILE *file, const char *tool)
{
    size_t t = 0;
    while (t < TOOLS && strcmp(tools[t], tool) != 0) t++;
    if (t == TOOLS) return false;
    tr_printf(file, "Parameters of %s, and the keys that mean the same here:\n\n", tool);
    for (size_t i = 0; i < FOREIGN; i++) {
        if (!foreign[i].names[t]) continue;
        char names[128];
        snprintf(names, sizeof names, "%s", foreign[i].names[t]);
        for (char *name = names; *name;) {
            size_t n = strcspn(name, " ");
            tr_printf(file, "  %-28.*s %s\n", (int)n, name, foreign[i].key);
            name += n + strspn(name + n, " ");
        }
    }
    tr_printf(file, "\nValues and units can differ: trireme help job KEY explains a key.\n");
    return true;
}

const char *const *tr_job_foreign_tools(size_t *n)
{
    *n = TOOLS;
    return tools;
}
