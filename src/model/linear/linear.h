/* Linear models. A model has one output per class, or a single output for two classes or a regression. Key j of the table "w" is
 * feature j, the last key is the bias; a key has one weight per output. trireme/stage.h explains stages, clocks and groups.
 *
 *   linear      the class: options, checks, weights of rows, opening, views; solve.method auto, which chooses among the others
 *   evaluate    objective, metric of the test data, gap, area under the ROC curve
 *   pass        passes over sparse or dense rows; products of rows and f64 vectors; vectors that are distributed over workers
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

/* Values of the job keys model.NAME and solve.NAME, which linear.c lists. Negative numbers stand for words. */
struct tr_linear_options {
    double l2; /* model.l2; negative: auto, which is 1/n */
    double l1; /* model.l1; negative: path */
    bool bias, bias_l2;
    int classes; /* TR_CLASSES_AUTO, _SOFTMAX or _REST */
    char *init;
    char *class_weights;
    double delta; /* model.delta; negative: auto, which is the scale of the targets */
    double quantile;
    double power;
    int dtype; /* TR_F32, TR_F64 */
    double target_gap, rate, decay, sigma;
    uint64_t batch, phases, path, folds;
    int optimizer, optimizer_at;
    double momentum, memory, epsilon, inner, growth;
};

/* Values of model.classes, which applies to more than two labels. */
enum { TR_CLASSES_AUTO, TR_CLASSES_SOFTMAX, TR_CLASSES_REST };

/* Maximum number of distinct labels of a classifier. */
enum { TR_LINEAR_CLASSES = 65535 };

/* The index of «sgd» in solve.optimizer: plain steps without state. */
enum { TR_PLAIN_SGD };

/* A saved model, read from model.h5 or model.txt. */
struct tr_linear_model {
    const struct tr_loss *loss;
    enum tr_dtype dtype;   /* type of the elements of weight */
    uint64_t features;     /* number of features; feature i has the index first_index + i in data files */
    uint64_t first_index;  /* index of feature 0 in data files: 0 or 1 */
    uint64_t label_column; /* csv: position of the label; TR_LABEL_AUTO if the model file lacks it */
    size_t outputs;        /* number of outputs: 1, or the number of labels */
    bool softmax;          /* one softmax turns the margins of all outputs into probabilities */
    bool biased;           /* the model has a bias */
    bool offsets;          /* model.txt: the model needs offsets of rows (data.offset) */
    double *bias;          /* one bias per output */
    size_t labels;         /* number of labels of a classifier: 2 if it has one output, else one per output */
    float *label;          /* the labels; if there is one output, the positive label is the first */
    double shape;          /* shape of the loss */
    double scale;         /* scale of the targets, if defaults (model.delta, model.l2) depend on it; else 0 */
    double l2, objective; /* λ and the final objective; NaN if the file lacks them */
    uint64_t rows;        /* number of training rows; 0 if the file lacks it */
    void *weight;         /* features × outputs elements */
};

struct tr_linear;

/* Properties of a loss that methods require. */
enum tr_linear_property {
    TR_LOSS_SLOPE = 1,  /* the loss has slope() */
    TR_LOSS_STEP = 2,   /* the loss has step(), a step of the dual */
    TR_LOSS_CURVED = 4, /* the loss has curvature(), or corner(), whose corners Newton's method rounds */
    TR_LOSS_BOUNDED_CURVE = 8,    /* the curvature has a bound */
    TR_LOSS_BOUNDED_SLOPE = 16,   /* the slope has a bound */
    TR_LOSS_QUADRATIC_MODEL = 32, /* bounded curvature, conjugate(), no shape: descent can prove its gap */
};

/* A value of solve.method. The functions check, open and train have the same contract as those of a class. */
struct tr_linear_method {
    /* Checks that the settings fit the method, before data are read. */
    int (*check)(const tr_job *job, const struct tr_linear_options *o);
    /* Returns the number of servers of the table w; 0 or NULL: as in the job. */
    uint32_t (*servers)(const struct tr_linear *m);
    /* Prepares training; sets m->clocks_per_epoch if it is not 1. All ranks, when data and table w are open. */
    int (*open)(struct tr_linear *m);
    /* Runs the stages of the training. NULL: the stage tr_linear_stage() is run. All ranks. */
    int (*train)(struct tr_linear *m);
    /* Functions of tr_linear_stage(); `linear` is the struct tr_linear. evaluate NULL: tr_linear_evaluate(); summarize NULL:
     * tr_linear_summarize(). */
    int (*prepare)(tr_worker *me, void *linear);
    int (*compute)(tr_worker *me, void *linear);
    int (*evaluate)(tr_worker *me, void *linear, tr_report *report);
    int (*summarize)(void *linear, const tr_report *report, tr_evaluation *evaluation);
    int (*snapshot)(tr_worker *me, void *linear, tr_snapshot *snapshot);
    /* Frees the memory of the method. It is also called if open() failed or was not called. */
    void (*close)(struct tr_linear *m);
    bool
        from_w; /* training starts from the values of w; false: from zeros or model.init, and the best constant */
    bool many_outputs;    /* the method supports more than two classes */
    bool weighs_rows;     /* the method supports data.weight and model.class_weights */
    unsigned minimises;   /* set of enum tr_linear_property: supports losses with one of these properties */
    bool passes;          /* the method reads rows in order, in passes, so that they may be on disk */
    bool sparse_rows;     /* steps use single non-zeros, so dense rows are converted to sparse ones */
    bool counts_rows;     /* the method makes a second table with the number of rows of each feature */
    bool counts_passes;   /* the method counts epochs in m->passes; false: epochs follow from clocks */
    bool weighs_updates;  /* the method supports sync.weight */
    const char *diverged; /* advice in the message about divergence, next to advice about sync.* keys */
};

extern const struct tr_linear_method tr_linear_auto, tr_linear_dual, tr_linear_sgd, tr_linear_variance,
    tr_linear_growing, tr_linear_newton, tr_linear_descent;

/* Mini-batches of the methods sgd and growing. */
struct tr_linear_batches {
    int64_t n;                 /* number of mini-batches of an epoch */
    size_t first_row, end_row; /* this worker processes the rows first_row .. end_row - 1 of its problem */
    uint32_t *order;           /* indices of the n mini-batches in the order of this epoch */
    tr_table *count;           /* while rows are counted: number of rows of each feature; else NULL */
    tr_view *count_view;
    float *reg; /* [key]: λ n / (rows with this feature), the share of λ that a step on such a row applies */
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
    double *initial;      /* model.init: initial weights, followed by the biases; NULL: zeros */
    size_t outputs;       /* number of outputs: 1, or the number of classes if there are more than two */
    bool softmax;         /* one softmax over the outputs; otherwise each output has a loss of its own */
    double *class_weight; /* [index of the label]: factor from model.class_weights; NULL: all are 1 */
    double total_weight;  /* sum of the weights of all training rows: the n of 1/n */
    double l2, rate;
    double shape; /* shape of the loss */
    struct tr_test_metrics metrics;
    double start; /* regression: margin of the best constant */
    double unit;  /* regression: scale of the targets; 1 if no default depends on it */
    int64_t epochs, report_every;
    int64_t clocks_per_epoch;

    /* The following members are used on workers. */
    struct tr_problem problem, test_problem; /* training and test rows of this worker */
    float *target, *test_target;
    tr_view *view, *test_view; /* w at the keys of the training rows, and of the test rows */
    tr_view *fresh_view;       /* sync.pull stale: a second view of w, which evaluations pull */
    double *margin;            /* scratch for margins of some rows */
    struct tr_linear_batches batches;

    /* Receives the margin of each training row in an evaluation. Set by a method that uses the margins; else NULL. */
    void (*see)(struct tr_linear *m, size_t row, double margin);

    /* state of each method; NULL if the method is not used */
    struct tr_linear_dual *dual;
    struct tr_linear_sgd *sgd;
    struct tr_linear_variance *variance;
    struct tr_linear_growing *growing;
    struct tr_linear_newton *newton;
    struct tr_linear_auto *chooser;
    struct tr_linear_descent *descent;

    /* The following members are used on the scheduler. */
    tr_evaluation last; /* the latest evaluation */
    double epoch;       /* epoch of the latest evaluation */
    bool stuck;         /* rounding prevents any further decrease of the objective */
    double passes;      /* passes over the data so far, for methods that set counts_passes */
    double usual; /* maximum of the first objective and that of zero weights; 0 before the first evaluation */

    /* The following members are used to read or write saved models. */
    struct tr_linear_model saved;
    struct tr_linear_text *text;
    tr_table *scale; /* while a model of scaled rows is written: the scaling of each column; else NULL */
    struct tr_evaluated *evaluated;
    enum { TR_OUT_LABEL, TR_OUT_MARGIN, TR_OUT_PROBABILITY, TR_OUT_MEAN } output;
};

extern const tr_model_class tr_linear_class;

/* ---- data and views ---- */

static inline bool tr_linear_classifies(const struct tr_linear *m)
{
    return tr_loss_classifies(m->loss);
}

/* Opens a view of w, or of a table with the same keys, at the keys of these data and the bias. */
int tr_linear_open_view(struct tr_linear *m, tr_worker *me, const tr_data *data, tr_table *table,
                        enum tr_view_use use, tr_view **view);

/* Opens a view of the keys first .. first + n - 1 of a table. */
int tr_linear_open_range(tr_table *table, tr_key first, size_t n, enum tr_view_use use, tr_view **view);

/* Views of a worker in a stage of a task; me->kept points to the struct. NULL: not used in this stage. */
struct tr_linear_views {
    tr_view *w;     /* w at the keys of the training rows */
    tr_view *other; /* view of another table */
    tr_view *test;  /* w at the keys of the test rows */
    double loss;    /* Σ loss over the rows of this worker */
};
void tr_linear_release_views(void *kept);

/* Prepares a stage of all workers: opens m->view, and calls tr_linear_prepare_rows(). */
int tr_linear_prepare(tr_worker *me, struct tr_linear *m, size_t margins);

/* Sets m->problem, m->test_problem and m->test_view, and allocates m->margin for the margins of `margins` rows. */
int tr_linear_prepare_rows(tr_worker *me, struct tr_linear *m, size_t margins);

/* Copies view->value to view->delta. During a clock delta is then the worker's own copy of w, which saves an array. */
void tr_linear_copy_to_delta(tr_view *view, enum tr_dtype dtype);

/* Before the push: replaces that copy in view->delta by (copy - view->value) / divisor. */
void tr_linear_keep_difference(tr_view *view, enum tr_dtype dtype, double divisor);

/* Returns a tr_worker for this rank with its place in its group, for calls outside stages. */
tr_worker tr_linear_self(tr_context *tr);

/* Finds the rows first .. end - 1 that this rank counts in sums over all training rows: a row of several workers counts once. */
void tr_linear_own_rows(const struct tr_linear *m, size_t *first, size_t *end);

/* Returns the loss of model.type; for auto, whose loss depends on the labels, the logistic loss. */
const struct tr_loss *tr_linear_loss(const tr_job *job);

/* Fills *problem, which describes the rows of `data` for passes over them.
 *
 * @param [out] target  memory that *problem points to; free it with free()
 */
int tr_linear_set_problem(const struct tr_linear *m, const tr_data *data, struct tr_problem *problem,
                          float **target);

/* tr_linear_read_initial() reads the weights of model.init. tr_linear_put_initial() writes them into m->w, or the best constant into
 * a free bias of a method that starts from w. All ranks. */
int tr_linear_read_initial(struct tr_linear *m);
int tr_linear_put_initial(struct tr_linear *m);

/* Makes a table with the shape of w. fallback: see tr_table_options. All ranks. */
int tr_linear_make_table(struct tr_linear *m, const char *name, const char *fallback, tr_table **table);

/* After dual coordinate descent: moves the bias to its optimum for the final weights, if the loss is smooth and the bias is not
 * regularised, and proves the gap. All ranks. */
int tr_linear_dual_prove(struct tr_linear *m);

/* Sets u to the dual variables of a training row, one per output, as slopes dφ/dm; 0 for outputs of other workers. Values that
 * rounding moved out of the domain of φ* are moved back; those of a softmax sum to 0. Returns false if this worker does not have
 * the variables of the row. */
bool tr_linear_dual_variables(const struct tr_linear *m, size_t row, double *u);

/* ---- evaluation ---- */

/* Minimum number of elements of m->margin. Evaluations compute at most this number of margins together. */
enum { TR_LINEAR_MARGINS = 4096 };

/* Indices of tr_report.sum, the sums of an evaluation over all workers. The method defines those from TR_LINEAR_OWN_SUMS on. */
enum {
    TR_LINEAR_LOSS,        /* Σ weight × loss over the training rows */
    TR_LINEAR_CONJUGATE,   /* Σ weight × φ*(-α) over the training rows */
    TR_LINEAR_SQUARES,     /* |w|² with the biases */
    TR_LINEAR_ABSOLUTES,   /* |w|₁ without the biases; 0 without model.l1 */
    TR_LINEAR_BIAS_SQUARE, /* Σ bias² */
    TR_LINEAR_TEST,        /* the first of TR_METRIC_SUMS sums over the test rows: tr_test_metrics_add() */
    TR_LINEAR_OWN_SUMS = TR_LINEAR_TEST + TR_METRIC_SUMS
};

/* Adds to the sums the size of w: SQUARES, ABSOLUTES, BIAS_SQUARE. Only worker 0 does so. */
int tr_linear_report_size(tr_worker *me, struct tr_linear *m, const void *w, tr_report *report);

/* Returns the penalty of the objective, from the size of w in the sums. */
double tr_linear_penalty(const struct tr_linear *m, const tr_report *report);

/* Adds the sums from TR_LINEAR_TEST on over this worker's test rows. `view` is a view of w at the keys of these rows. */
int tr_linear_report_test(tr_worker *me, struct tr_linear *m, tr_view *view, tr_report *report);

/* Adds all sums that tr_linear_summarize() needs. loss: Σ weight × loss over this worker's training rows. */
int tr_linear_report(tr_worker *me, struct tr_linear *m, double loss, const void *w, tr_view *test,
                     tr_report *report);

/* tr_linear_evaluate_at() computes the loss at w, and then does the same as tr_linear_report(). tr_linear_evaluate() does this with
 * m->view and m->test_view. */
int tr_linear_evaluate(tr_worker *me, void *linear, tr_report *report);
int tr_linear_evaluate_at(tr_worker *me, struct tr_linear *m, const void *w, tr_view *test,
                          tr_report *report);

/* The summarize function of a stage: computes objective and metric from the sums; TR_ERR_DIVERGED if the objective explodes. */
int tr_linear_summarize(void *linear, const tr_report *report, tr_evaluation *evaluation);

/* Returns the dual value D(α), a lower bound of the objective, from the sums CONJUGATE and the size of w, where w = w(α). */
double tr_linear_dual_value(const struct tr_linear *m, const tr_report *report);

/* After tr_linear_summarize(): sets the relative gap, and stops the stage at solve.target_gap.
 * gap: F - D, increased by possible rounding errors if it is proven. proven: false if the gap is an estimate, for example because
 * workers evaluated different parameters (SSP, ASP). */
void tr_linear_prove(struct tr_linear *m, double gap, bool proven, tr_evaluation *evaluation);

/* solve.method auto, on the scheduler: tr_linear_watch() stops dual coordinate descent if its gap falls too slowly.
 * tr_linear_epochs_before() returns the number of its epochs if Newton's method took over, else 0. tr_linear_keep_watch() is for
 * snapshot functions. */
void tr_linear_watch(struct tr_linear *m, tr_evaluation *evaluation);
double tr_linear_epochs_before(const struct tr_linear *m);
int tr_linear_keep_watch(struct tr_linear *m, tr_snapshot *snapshot);

/* Checks that the last objective is better than the objective of the best constant, or, without a bias, of zero weights. All ranks,
 * after training. TR_ERR_DIVERGED if not; only a warning with solve.patience, because the test data then select the model. */
int tr_linear_check_worth(struct tr_linear *m);

/* Returns the stage «train» of m->solver: m->clocks_per_epoch clocks per epoch, and an evaluation every m->report_every epochs. */
tr_stage tr_linear_stage(struct tr_linear *m);

/* For snapshot functions: lists the state of tr_linear_summarize() and tr_linear_watch(). */
int tr_linear_keep_summary(struct tr_linear *m, tr_snapshot *snapshot);

/* Adds the area under the ROC curve of the test data to summary.json. All ranks, after training. */
int tr_linear_report_figures(struct tr_linear *m);

/* ---- stages in the job ---- */

/* tr_turn_begin() and tr_turn_end() of stage.h, which limit the number of workers that compute at the same time. They do nothing in
 * vertical groups, whose members must communicate between the two calls. */
int tr_linear_turn_begin(const struct tr_linear *m, const char *stage);
int tr_linear_turn_end(const struct tr_linear *m, int status);

/* Returns stages.STAGE.parallelism in the form of tr_next.workers; `usual` if the job does not set it. */
int tr_linear_stage_workers(const struct tr_linear *m, const char *stage, int usual);

/* Returns stages.STAGE.KEY, where KEY is servers or clocks; 0 if the job does not set it. */
int64_t tr_linear_stage_number(const struct tr_linear *m, const char *stage, const char *key);

/* Refuses impossible settings of a stage: more workers (one_group: than a group has) or servers than there are, or clocks for a
 * stage with one clock. All ranks. */
int tr_linear_check_stage(const struct tr_linear *m, const char *stage, bool one_group, bool has_clocks);

/* Returns TR_ERR_CONFIG; sets a message with the position of the key in the job file and the reason `why`. */
int tr_linear_refuse(const tr_job *job, const char *key, const char *why);

/* Calls tr_linear_refuse() for the first element of a list that applies; TR_OK if none does. */
struct tr_refusal {
    bool applies;
    const char *key, *why; /* key NULL ends a list */
};
int tr_linear_refuse_any(const tr_job *job, const struct tr_refusal *list);

/* Returns a number of servers for w that gives each server some thousand keys, or 0 for the number in the job. Few servers are
 * better for two reasons: with sync.weight auto each server compares the directions of updates on its keys only (simulated on a9a:
 * 11 clocks to the target with one server, 18 with 4, 21 with 16); and all servers take part in the short stages of svrg. */
uint32_t tr_linear_few_servers(const struct tr_linear *m);

/* Returns the number of mini-batches per clock: from sync.push, or `usual` if that is auto. batches: number per epoch. */
int64_t tr_linear_batches_of_clock(const struct tr_linear *m, int64_t batches, int64_t usual);

/* Maximum of solve.phases. With the default solve.growth, batches exceed any data set after about ten phases. */
enum { TR_GROWING_PHASES = 64 };

/* ---- models in files ---- */

static inline bool tr_linear_model_classifies(const struct tr_linear_model *model)
{
    return tr_loss_classifies(model->loss);
}

/* Returns element i of the weights: feature i / outputs, output i % outputs. */
static inline double tr_linear_model_weight(const struct tr_linear_model *model, uint64_t i)
{
    return tr_real_get(model->dtype, model->weight, i);
}

/* Parses a model.txt. A zero byte must follow the text. `path` is used in messages only. TR_ERR_DATA if the text is malformed. */
int tr_linear_model_parse_text(const char *text, size_t length, const char *path,
                               struct tr_linear_model *model);
void tr_linear_model_free(struct tr_linear_model *model); /* frees the arrays, not the struct */

/* Writes a model.txt that liblinear-predict can read. The i-th line (from 1) behind the line «w» has the weights of the feature
 * with index i - 1 + first_index, whereas LIBLINEAR uses it for index i. If first_index is 0, users of LIBLINEAR must add 1 to each
 * index of their data; a last line «first_index 0», which LIBLINEAR ignores, marks such models. LIBLINEAR reads only labels that
 * are whole numbers: if labels have names that are none, the numbers of the names stand here; train: the data with the names, or NULL. It knows no softmax, which another line marks, but predicts the same labels from the margins.
 *
 * One process calls tr_linear_text_create(), then tr_linear_text_append() with the weights of n features each time and at last with
 * the bias, then tr_linear_text_close(), which deletes the file if the status is not TR_OK, and returns the status. */
struct tr_linear_text;
int tr_linear_text_create(const char *folder, const struct tr_linear_model *head, const tr_data *train,
                          struct tr_linear_text **text);
int tr_linear_text_append(struct tr_linear_text *text, enum tr_dtype dtype, const void *weights, size_t n);
int tr_linear_text_close(struct tr_linear_text **text, int status); /* *text may be NULL */

/* Members of tr_linear_class; see tr_model_class. */
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
