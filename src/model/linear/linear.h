/* Linear models: a table "w" with a weight per feature and output, and one for the bias.
 *
 *   linear      the class: options, checks, weights of rows, opening, views; the method that chooses among the others
 *   evaluate    objective, metric of the test data, gap, area under the ROC curve
 *   pass        passes over rows, sparse or dense; products with vectors in f64; vectors divided among workers
 *   saved       model.txt, model.h5, scaling back, model.init; predict, evaluate, inspect
 *   dual/       dual coordinate descent
 *   newton/     Newton's method
 *   descent/    coordinate descent for penalties with |w|₁, with paths of penalties and cross-validation; step: its steps
 *   sgd/        mini-batch gradient descent, also with growing batches; variance: variance reduction; steps: its steps
 */
#ifndef TR_LINEAR_H
#define TR_LINEAR_H

#include "../loss.h"
#include "../metrics.h"
#include "pass.h"
#include "trireme/model.h"
#include "trireme/trireme.h"

struct tr_linear_options {
    double l2; /* below 0: 1/n */
    double l1; /* below 0: a path */
    bool bias, bias_l2;
    int classes; /* TR_CLASSES_AUTO, _SOFTMAX or _REST */
    char *init;
    char *class_weights;
    double delta; /* below 0: the scale of the targets */
    double quantile;
    int dtype; /* TR_F32, TR_F64 */
    double target_gap, rate, decay, sigma;
    uint64_t batch, phases, path, folds;
    int optimizer, optimizer_at;
    double momentum, memory, epsilon, inner, growth;
};

/* model.classes, for more than two labels. */
enum { TR_CLASSES_AUTO, TR_CLASSES_SOFTMAX, TR_CLASSES_REST };

/* Maximum number of labels. */
enum { TR_LINEAR_CLASSES = 65535 };

/* solve.optimizer sgd: plain steps. */
enum { TR_PLAIN_SGD };

/* A saved model, read from model.h5 or model.txt. */
struct tr_linear_model {
    const struct tr_loss *loss;
    enum tr_dtype dtype;   /* of the weights */
    uint64_t features;     /* weight i belongs to index first_index + i of the data */
    uint64_t first_index;  /* 0 or 1 */
    uint64_t label_column; /* csv: place of the label; TR_LABEL_AUTO if the file does not contain it */
    size_t outputs;        /* weights of a feature: 1, or the number of labels */
    bool softmax;          /* one softmax turns the margins of all outputs into probabilities */
    bool biased;
    double *bias;  /* of each output */
    size_t labels; /* classifiers: of one output two, the positive one first; otherwise one of each output */
    float *label;
    double shape; /* of the loss */
    double scale; /* of the targets, which model.delta and model.l2 follow by default; 0: they do not */
    double l2, objective; /* NaN if the file does not contain them */
    uint64_t rows;        /* of the training data; 0 if the file does not contain it */
    void *weight;
};

struct tr_linear;

/* Properties of a loss that a method needs. */
enum tr_linear_property {
    TR_LOSS_SLOPE = 1,          /* of one margin */
    TR_LOSS_STEP = 2,           /* a step of the dual */
    TR_LOSS_CURVED = 4,         /* a curvature, or a corner that can be rounded */
    TR_LOSS_BOUNDED_CURVE = 8,  /* a bound of the curvature. It supports no shape parameters */
    TR_LOSS_BOUNDED_SLOPE = 16, /* a bound of the slope */
    TR_LOSS_QUADRATIC_MODEL =
        32, /* a quadratic model and a proven gap: bounded curvature, conjugate, no shape parameter */
};

/* A value of solve.method. The functions check, open and train have the same contract as those of a class. */
struct tr_linear_method {
    /* Checks that the settings fit the method, before data are read. */
    int (*check)(const tr_job *job, const struct tr_linear_options *o);
    /* Returns the number of servers of w; 0 or NULL: as in the job. */
    uint32_t (*servers)(const struct tr_linear *m);
    /* All ranks, after the data are read and the table w is made: sets clocks_per_epoch, unless it is 1. */
    int (*open)(struct tr_linear *m);
    /* All ranks: runs the stages. NULL: runs tr_linear_stage(). */
    int (*train)(struct tr_linear *m);
    /* Functions of tr_linear_stage(), whose state is the model. evaluate, summarize: NULL: those of the class. */
    int (*prepare)(tr_worker *me, void *linear);
    int (*compute)(tr_worker *me, void *linear);
    int (*evaluate)(tr_worker *me, void *linear, tr_report *report);
    int (*summarize)(void *linear, const tr_report *report, tr_evaluation *evaluation);
    int (*snapshot)(tr_worker *me, void *linear, tr_snapshot *snapshot);
    /* Frees the memory of the method. It is also called if open() failed or was not called. */
    void (*close)(struct tr_linear *m);
    bool many_outputs;                         /* learns more than two classes */
    const struct tr_linear_method *of_classes; /* replaces it for more than two classes */
    bool weighs_rows;                          /* supports data.weight and model.class_weights */
    unsigned minimises;   /* losses with one of these properties, enum tr_linear_property */
    bool passes;          /* passes over rows in order, so they need not be in memory */
    bool sparse_rows;     /* steps on single non-zeros, so dense rows are converted to sparse ones */
    bool counts_rows;     /* makes a second table, of the number of rows of each feature */
    bool counts_passes;   /* counts epochs in m->passes, not by clocks */
    bool weighs_updates;  /* supports sync.weight */
    const char *diverged; /* advice after divergence, besides less staleness and other weights */
};

extern const struct tr_linear_method tr_linear_auto, tr_linear_dual, tr_linear_dual_classes, tr_linear_sgd,
    tr_linear_variance, tr_linear_growing, tr_linear_newton, tr_linear_descent;

/* Mini-batches of sgd and growing. */
struct tr_linear_batches {
    int64_t n;                 /* of an epoch */
    size_t first_row, end_row; /* rows of the problem that this worker processes */
    uint32_t *order;           /* of the mini-batches in this epoch */
    tr_table *count;           /* number of rows of each feature */
    tr_view *count_view;
    float *reg; /* by feature: λ n / (number of its rows), per row of a mini-batch that has it */
};

struct tr_linear {
    tr_context *tr;
    const tr_job *job;
    const struct tr_linear_options *o;
    const struct tr_linear_method *solver;
    const struct tr_loss *loss;
    int method;
    uint64_t seed;
    bool sums;             /* sync.weight sum: updates are added with weight 1 */
    bool vertical;         /* the members of a group have different features of the same rows */
    tr_data *train, *test; /* test: NULL without data.test */
    tr_table *w;
    double *initial;      /* model.init: initial weights, followed by the bias; NULL: zeros */
    size_t outputs;       /* weights of a feature: 1, or the number of classes if there are more than two */
    bool softmax;         /* one softmax over the outputs; otherwise each has a loss of its own */
    double *class_weight; /* by label; NULL: all 1 */
    double total_weight;  /* sum of the weights of all rows */
    double l2, rate;
    double shape; /* of the loss */
    double start; /* of a regression: margin of the best constant */
    double unit;  /* of a regression: scale of the targets */
    int64_t epochs, report_every;
    int64_t clocks_per_epoch;

    /* worker */
    struct tr_problem problem, test_problem;
    float *target, *test_target;
    tr_view *view, *test_view;
    struct tr_area *area; /* of the test data, while it is computed */
    tr_view *fresh_view;  /* sync.pull stale: for evaluation */
    double *margin;       /* of some rows */
    struct tr_linear_batches batches;

    /* Set by a method that uses the margins of the training rows that are evaluated. */
    void (*see)(struct tr_linear *m, size_t row, double margin);

    /* state of the methods */
    struct tr_linear_dual *dual;
    struct tr_linear_dual_classes *dual_classes;
    struct tr_linear_sgd *sgd;
    struct tr_linear_variance *variance;
    struct tr_linear_growing *growing;
    struct tr_linear_newton *newton;
    struct tr_linear_auto *chooser;
    struct tr_linear_descent *descent;

    /* scheduler */
    tr_evaluation last; /* the latest evaluation */
    double epoch;       /* of that evaluation */
    bool stuck;         /* rounding prevents any further decrease */
    double passes;      /* passes over the data so far, of methods whose clocks are not parts of epochs */
    struct tr_test_metrics metrics;
    double usual; /* objective of the first evaluation, or of zero weights if that is larger; 0 before */

    /* saved models */
    struct tr_linear_model saved;
    struct tr_linear_text *text;
    tr_table *scale; /* while a model of scaled rows is written */
    struct tr_linear_evaluation *evaluation;
    enum { TR_OUT_LABEL, TR_OUT_MARGIN, TR_OUT_PROBABILITY, TR_OUT_MEAN } output;
};

extern const tr_model_class tr_linear_class;

/* ---- data and views ---- */

static inline bool tr_linear_classifies(const struct tr_linear *m)
{
    return tr_loss_classifies(m->loss);
}

/* Opens a view of w, or of a table with the same keys: of the keys of these data; of a range of keys. */
int tr_linear_open_view(struct tr_linear *m, tr_worker *me, const tr_data *data, tr_table *table,
                        enum tr_view_use use, tr_view **view);
int tr_linear_open_range(tr_table *table, tr_key first, size_t n, enum tr_view_use use, tr_view **view);

/* Returns whether the rows of this worker have the bias. */
bool tr_linear_has_bias(const struct tr_linear *m, const tr_worker *me);

/* Views of a worker in a stage of a task, in me->kept: of w, of another table, of w for the test data. Released by
 * tr_linear_release_views(). */
struct tr_linear_views {
    tr_view *w, *other, *test;
    double loss; /* of the rows of this worker */
};
void tr_linear_release_views(void *kept);

/* Prepares a stage of all workers: the problem, a view of w and one for the test data, and memory for this number of margins. The
 * second function does not open the view of w. */
int tr_linear_prepare(tr_worker *me, struct tr_linear *m, size_t margins);
int tr_linear_prepare_rows(tr_worker *me, struct tr_linear *m, size_t margins);

/* Use the delta of a view as this worker's copy of w during a clock, which saves an array: the first function copies w, the second
 * one replaces the copy by its difference from w, divided. */
void tr_linear_copy_to_delta(tr_view *view, enum tr_dtype dtype);
void tr_linear_keep_difference(tr_view *view, enum tr_dtype dtype, double divisor);

/* Returns this rank as a worker of its group, for work outside of stages. */
tr_worker tr_linear_self(tr_context *tr);

/* Finds the training rows that this rank counts: a row that several workers have is counted by one of them. */
void tr_linear_own_rows(const struct tr_linear *m, size_t *first, size_t *end);

/* Returns the loss of model.type; for auto, which depends on the labels, that of classifiers. */
const struct tr_loss *tr_linear_loss(const tr_job *job);

/* Fills the description of rows for passes over them.
 *
 * @param [out] target  memory of the problem; free it with free()
 */
int tr_linear_set_problem(const struct tr_linear *m, bool bias, const tr_data *data,
                          struct tr_problem *problem, float **target);

/* Reads the weights of model.init; puts them into m->w. All ranks. */
int tr_linear_read_initial(struct tr_linear *m);
int tr_linear_put_initial(struct tr_linear *m);

/* Makes a table for weights; fallback as in tr_table_options. All ranks. */
int tr_linear_make_table(struct tr_linear *m, const char *name, const char *fallback, tr_table **table);

/* After dual coordinate descent: moves the bias to its optimum at these weights, if the loss is smooth and the bias is not
 * regularised, and proves the gap. All ranks. */
int tr_linear_dual_prove(struct tr_linear *m);

/* Returns the dual variables of a row of the training data as slopes dφ/dm, for each output, within the domain of φ*,
 * which rounding to single precision may have left; 0 for classes of other workers. Those of a softmax sum to 0.
 * Returns false if they belong to another worker or are not known. */
bool tr_linear_dual_variables(const struct tr_linear *m, size_t row, double *u);

/* ---- evaluation ---- */

/* Number of rows whose margins are computed together: least capacity of m->margin. */
enum { TR_LINEAR_MARGINS = 4096 };

/* Sums of an evaluation over the workers; from TR_LINEAR_OWN_SUMS on they belong to the method. */
enum {
    TR_LINEAR_LOSS,      /* of the training rows */
    TR_LINEAR_CONJUGATE, /* of their dual variables */
    TR_LINEAR_SQUARES,   /* of the weights, with the biases */
    TR_LINEAR_ABSOLUTES,
    TR_LINEAR_BIAS_SQUARE,
    TR_LINEAR_TEST, /* of the metrics on the test rows */
    TR_LINEAR_OWN_SUMS = TR_LINEAR_TEST + TR_METRIC_SUMS
};

/* Report the sums that tr_linear_summarize() needs: the loss of this worker's rows, the size of the weights w (worker 0 only), and
 * the metric of this worker's part of the test data. The penalty follows from the size. */
int tr_linear_report_size(tr_worker *me, struct tr_linear *m, const void *w, tr_report *report);
double tr_linear_penalty(const struct tr_linear *m, const tr_report *report);
int tr_linear_report_test(tr_worker *me, struct tr_linear *m, tr_view *view, tr_report *report);
int tr_linear_report(tr_worker *me, struct tr_linear *m, double loss, const void *w, tr_view *test,
                     tr_report *report);                                /* all three */
int tr_linear_evaluate(tr_worker *me, void *linear, tr_report *report); /* at m->view and m->test_view */
int tr_linear_evaluate_at(tr_worker *me, struct tr_linear *m, const void *w, tr_view *test,
                          tr_report *report);
int tr_linear_summarize(void *linear, const tr_report *report, tr_evaluation *evaluation);

/* The dual value is a lower bound of the objective. If w is the w(α) of the dual variables, it follows from the sum of
 * the conjugates of the rows and from the size of w. After tr_linear_summarize(), tr_linear_prove() sets the relative
 * gap, and stops at solve.target_gap. gap: F - D, with rounding errors if it is proven. Under SSP and ASP the parts of
 * the workers belong to different parameters, so the gap is an estimate. */
double tr_linear_dual_value(const struct tr_linear *m, const tr_report *report);
void tr_linear_prove(struct tr_linear *m, double gap, bool proven, tr_evaluation *evaluation);

/* solve.method auto: watches the gap of dual coordinate descent, and may stop it. tr_linear_epochs_before() returns the number of
 * epochs before Newton's method took over, or 0, on the scheduler. */
void tr_linear_watch(struct tr_linear *m, tr_evaluation *evaluation);
double tr_linear_epochs_before(const struct tr_linear *m);
int tr_linear_keep_watch(struct tr_linear *m, tr_snapshot *snapshot);

/* Checks that the last objective is better than that of the best constant, or, without a bias, of zero weights. All ranks, after
 * training. TR_ERR_DIVERGED; a warning with solve.patience, because the test data decide then. */
int tr_linear_check_worth(struct tr_linear *m);

/* Returns the stage «train» of the method m->solver, whose epochs are clocks. */
tr_stage tr_linear_stage(struct tr_linear *m);

/* For snapshot functions: the state of tr_linear_summarize(). */
int tr_linear_keep_summary(struct tr_linear *m, tr_snapshot *snapshot);

/* Adds the area under the ROC curve of the test data to summary.json. All ranks, after training. */
int tr_linear_report_figures(struct tr_linear *m);

/* ---- stages in the job ---- */

/* tr_turn_begin() and tr_turn_end(), except in vertical groups, whose members communicate in the turn. */
int tr_linear_turn_begin(const struct tr_linear *m, const char *stage);
int tr_linear_turn_end(const struct tr_linear *m, int status);

/* The settings of a stage: its workers, as in tr_next, `usual` if not set; its servers or clocks (key), 0 if not set. */
int tr_linear_stage_workers(const struct tr_linear *m, const char *stage, int usual);
int64_t tr_linear_stage_number(const struct tr_linear *m, const char *stage, const char *key);

/* Refuses settings of a stage that are impossible: more workers (one_group: of a group) or servers than there are, or clocks for a
 * stage with one clock. All ranks. */
int tr_linear_check_stage(const struct tr_linear *m, const char *stage, bool one_group, bool has_clocks);

/* Return TR_ERR_CONFIG with the place of a setting and the reason; for the first of a list that applies. */
int tr_linear_refuse(const tr_job *job, const char *key, const char *why);
struct tr_refusal {
    bool applies;
    const char *key, *why; /* key NULL ends a list */
};
int tr_linear_refuse_any(const tr_job *job, const struct tr_refusal *list);

/* Returns a number of servers for w that gives each share some thousand keys, or 0 for the number of the job: sync.weight auto
 * compares the directions of updates of each share (simulated on a9a: with one share 11 clocks to the target, with 4 shares 18,
 * with 16 shares 21), and all servers of a table take part in the short stages of variance reduction. */
uint32_t tr_linear_few_servers(const struct tr_linear *m);

/* Returns the number of mini-batches of a clock: from sync.push, or the usual number. */
int64_t tr_linear_batches_of_clock(const struct tr_linear *m, int64_t batches, int64_t usual);

/* Maximum of solve.phases; the batches of the tenth phase are as large as data can be. */
enum { TR_GROWING_PHASES = 64 };

/* ---- models in files ---- */

static inline bool tr_linear_model_classifies(const struct tr_linear_model *model)
{
    return tr_loss_classifies(model->loss);
}

/* Returns weight i: of feature i / outputs for output i % outputs. */
static inline double tr_linear_model_weight(const struct tr_linear_model *model, uint64_t i)
{
    return tr_real_get(model->dtype, model->weight, i);
}

/* Parses a model.txt. A zero byte must follow the text. The path is for messages. TR_ERR_DATA. */
int tr_linear_model_parse_text(const char *text, size_t length, const char *path,
                               struct tr_linear_model *model);
void tr_linear_model_free(struct tr_linear_model *model); /* its arrays, not the struct */

/* Writes a model.txt for liblinear-predict. LIBLINEAR numbers features from 1: line i (from 1) behind «w» is weight i - 1, of index
 * i - 1 + first_index of the data. So for data that start at index 0, 1 must be added to each index; a last line «first_index 0»,
 * which LIBLINEAR ignores, marks these models. LIBLINEAR reads only labels that are whole numbers; Trireme reads all. It knows
 * outputs that are each against the rest; of a softmax, which another line marks, it predicts the same labels.
 *
 * One process: create; append the weights of n features at a time, and then the bias; close, which discards the file if the status
 * is not TR_OK, and returns the status. */
struct tr_linear_text;
int tr_linear_text_create(const char *folder, const struct tr_linear_model *head,
                          struct tr_linear_text **text);
int tr_linear_text_append(struct tr_linear_text *text, enum tr_dtype dtype, const void *weights, size_t n);
int tr_linear_text_close(struct tr_linear_text **text, int status); /* *text may be NULL */

/* Functions of the class. */
int tr_linear_fields(void *model, tr_fields *fields);
int tr_linear_read_text(void *model, const char *path, const char **type);
int tr_linear_ready(void *model, tr_query *query);
int tr_linear_predict(void *model, tr_query *query, const tr_records *records, double *out);
int tr_linear_evaluate_rows(void *model, tr_query *query, const tr_records *records, const double *out);
int tr_linear_figures(void *model, tr_query *query, uint64_t rows);
int tr_linear_mean(const tr_job *const *jobs, size_t n, const char **flag, size_t *by);
int tr_linear_inspect(void *model, tr_query *query);
uint64_t tr_linear_keys(const void *model, enum tr_dtype *dtype, const char **with);
void tr_linear_saved_close(struct tr_linear *m);

#endif
