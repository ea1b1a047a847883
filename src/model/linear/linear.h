/* Linear models (M31): one table "w" of a weight per feature, and one for the bias where there is one.
 *
 *   linear      the class: options, data, views
 *   classes     labels and their weights
 *   evaluate    evaluation: objective, test data, gap, and the area under the ROC curve
 *   initial     weights to begin with, of another model
 *   pass        passes over rows; row: rows of both forms, and the arithmetic of dense ones
 *   columns     vectors over all columns, divided among workers
 *   scale       … of scaled rows, turned back to the files' numbers
 *   saved       models in files; text: LIBLINEAR's; answers: what they are asked there
 *   auto        a method: what chooses among the others
 *   dual/       a method: dual coordinate descent; classes: for more than two classes
 *   newton/     a method: Newton's; solver: its steps; rows: products of rows and vectors
 *   descent/    a method: coordinate descent for penalties with |w|₁, with paths of penalties and cross-validation; step: its
 *               steps; blocks: blocks of columns, and the minimum over one
 *   sgd/        methods: mini-batch gradient descent, also with batches that grow; variance: variance reduction; steps: its
 *               steps
 */
#ifndef TR_LINEAR_H
#define TR_LINEAR_H

#include "../auc.h"
#include "../loss.h"
#include "pass.h"
#include "trireme/model.h"
#include "trireme/trireme.h"

struct tr_linear_options {
    double l2; /* below 0: 1/n */
    double l1; /* below 0: a path */
    bool bias, bias_l2;
    int classes; /* TR_CLASSES_… */
    char *init;
    char *class_weights;
    double delta, quantile;
    int dtype; /* TR_F32, TR_F64 */
    double target_gap, rate, decay, sigma;
    uint64_t batch, phases, path, folds;
    int optimizer, optimizer_at;
    double momentum, memory, epsilon, inner, growth;
};

/* model.classes, of more than two labels. */
enum { TR_CLASSES_AUTO, TR_CLASSES_SOFTMAX, TR_CLASSES_REST };

/* So many labels at most; beyond them they are rather numbers to be learnt. */
enum { TR_LINEAR_CLASSES = 65535 };

/* solve.optimizer sgd: plain steps. */
enum { TR_PLAIN_SGD };

/* A trained model as one process holds it: read back from model.h5 or model.txt. */
struct tr_linear_model {
    const struct tr_loss *loss;
    enum tr_dtype dtype;   /* of the weights: TR_F32 or TR_F64 */
    uint64_t features;     /* weight i belongs to index first_index + i of the data */
    uint64_t first_index;  /* 0 or 1, as in a model.txt that does not say */
    uint64_t label_column; /* csv: TR_LABEL_…; AUTO where the file does not say */
    size_t outputs;        /* weights of a feature: 1, or as many as there are labels … */
    bool softmax;          /* … whose margins one softmax makes probabilities of */
    bool biased;
    double *bias;  /* of each output, added to its margins */
    size_t labels; /* classifiers: one for each output; of one output two, the positive one first */
    float *label;
    double shape; /* of the loss: model.delta, model.quantile; 0 where it has none */
    double l2;    /* this and the rest: NaN or 0 where the file does not say */
    double objective;
    uint64_t rows; /* of the training data */
    void *weight;
};

struct tr_linear;

/* What a value of solve.method is. Outcomes of check, open and train are as those of a class's. */
struct tr_linear_method {
    /* Whether the settings suit it; before data are read. */
    int (*check)(const tr_job *job, const struct tr_linear_options *o);
    /* Servers for w, 0 for as many as the job says; NULL: that. */
    uint32_t (*servers)(const struct tr_linear *m);
    /* All ranks, after the data are read and the table w is made: sets clocks_per_epoch. */
    int (*open)(struct tr_linear *m);
    /* All ranks: runs the stages. */
    int (*train)(struct tr_linear *m);
    /* Gives back what the others have made; where open has not been called there is nothing. */
    void (*close)(struct tr_linear *m);
    bool many_outputs;                         /* it learns more than two classes */
    const struct tr_linear_method *of_classes; /* takes its place for more than two classes */
    bool weighs_rows;                          /* it knows model.class_weights */
    bool (*minimises)(const struct tr_loss *loss);
    bool passes;      /* it only passes over rows, which need not be in memory then */
    bool sparse_rows; /* it steps on single non-zeros: dense rows would gain nothing, and are made sparse */
    bool counts_rows; /* it makes a second table, of the rows that have a feature */
    bool weighs_updates;  /* it knows sync.weight */
    const char *diverged; /* what to try then, besides less staleness and other weights */
};

extern const struct tr_linear_method tr_linear_auto, tr_linear_dual, tr_linear_dual_classes, tr_linear_sgd,
    tr_linear_variance, tr_linear_growing, tr_linear_newton, tr_linear_descent;

/* Mini-batches, of sgd and growing. */
struct tr_linear_batches {
    int64_t n;                 /* of an epoch */
    size_t first_row, end_row; /* rows of the problem that are this worker's part */
    uint32_t *order;           /* of the mini-batches, in this epoch */
    tr_table *count;           /* rows that have a feature */
    tr_view *count_view;
    float *reg; /* λ n / rows that have the feature, over a mini-batch's rows */
};

struct tr_linear {
    tr_context *tr;
    const tr_job *job;
    const struct tr_linear_options *o;
    const struct tr_linear_method *solver;
    const struct tr_loss *loss;
    int method;
    uint64_t seed;
    bool sums;             /* sync.weight is sum: updates are added as they are */
    bool vertical;         /* members of a group hold features of the same rows */
    tr_data *train, *test; /* test: NULL without data.test */
    tr_table *w;
    double *initial; /* model.init: what weights begin with, and behind them the bias; NULL: zeros */
    size_t
        outputs; /* weights of a feature: one, or as many as there are classes if these are more than two … */
    bool softmax;         /* … which one softmax makes probabilities of, and not each a loss of its own */
    double *class_weight; /* by label: what its rows weigh; NULL: all rows the same */
    double total_weight;  /* of all rows; their number where all are the same */
    double l2, rate;
    int64_t epochs, report_every;
    int64_t clocks_per_epoch;

    /* a worker's */
    struct tr_problem problem, test_problem;
    float *target, *test_target;
    tr_view *view, *test_view;
    struct tr_area *area; /* of the test data */
    tr_view *fresh_view;  /* sync.pull stale: what is evaluated */
    double *margin;       /* of some rows */
    struct tr_linear_batches batches;

    /* A method's, if it wants to know: each training row's margin, when it is evaluated. */
    void (*see)(struct tr_linear *m, size_t row, double margin);

    /* of one method each */
    struct tr_linear_dual *dual;
    struct tr_linear_dual_classes *dual_classes;
    struct tr_linear_sgd *sgd;
    struct tr_linear_variance *variance;
    struct tr_linear_growing *growing;
    struct tr_linear_newton *newton;
    struct tr_linear_auto *chooser;
    struct tr_linear_descent *descent;

    /* the scheduler's */
    tr_evaluation last; /* the latest evaluation */
    double epoch;       /* … and when it was */
    char figure[32];    /* name of the test figure in summary.json, which keeps the pointer */
    double usual;       /* objective of the first, or of weights of zero if that is higher; 0 before */

    /* written, or read back */
    struct tr_linear_model saved;
    struct tr_linear_text *text;
    tr_table *scale; /* while a model of scaled rows is written */
    tr_view *scale_view;
    struct tr_linear_evaluation *evaluation;
    enum { TR_OUT_LABEL, TR_OUT_MARGIN, TR_OUT_PROBABILITY, TR_OUT_MEAN } output;
};

extern const tr_model_class tr_linear_class;

/* ---- data and views ---- */

/* Whether the model learns two kinds, and not numbers. */
static inline bool tr_linear_classifies(const struct tr_linear *m)
{
    return tr_loss_classifies(m->loss);
}

static inline double tr_linear_shape(const struct tr_linear *m)
{
    return tr_loss_shape(m->loss, m->o->delta, m->o->quantile);
}

/* Opens a view of w, or of a table like it, by the keys of these data; or of a range of keys. */
int tr_linear_open_view(struct tr_linear *m, tr_worker *me, const tr_data *data, tr_table *table,
                        enum tr_view_use use, tr_view **view);
int tr_linear_open_range(tr_table *table, tr_key first, size_t n, enum tr_view_use use, tr_view **view);

/* Whether this worker's rows have the bias. */
bool tr_linear_has_bias(const struct tr_linear *m, const tr_worker *me);

/* What a stage of all workers needs first: the problem, a view of w and one for the test data, and room for so many margins;
 * the second without the first of these views. */
int tr_linear_prepare(tr_worker *me, struct tr_linear *m, size_t margins);
int tr_linear_prepare_rows(tr_worker *me, struct tr_linear *m, size_t margins);

/* A view's delta may serve as the worker's own copy of w while it computes, which is one array fewer to keep in cache:
 * begins so, and makes the difference of it, divided, in the end. */
void tr_linear_copy_to_delta(tr_view *view, enum tr_dtype dtype);
void tr_linear_keep_difference(tr_view *view, enum tr_dtype dtype, double divisor);

/* A worker as a stage of all workers would see it, for work outside of stages: the set of its group. */
tr_worker tr_linear_self(tr_context *tr);

/* Which of the training data's labels that is, from 0; how many there are: none of them. */
size_t tr_linear_label(const tr_data *train, float label);

/* All ranks, once the training data are open: what rows weigh, by data.weight and their classes. Then that of row i of the
 * training data. */
int tr_linear_weigh(struct tr_linear *m);
double tr_linear_weight(const struct tr_linear *m, size_t i);

/* The loss of model.type; for auto, which follows from the labels, that of classifiers. */
const struct tr_loss *tr_linear_loss(const tr_job *job);

/* Fills what passes over these rows have to know; target (to be freed) is what it points to. */
int tr_linear_set_problem(const struct tr_linear *m, bool bias, const tr_data *data,
                          struct tr_problem *problem, float **target);

/* ---- model.init ---- */

/* Reads the weights that training begins with, and puts them into m->w. All ranks. */
int tr_linear_read_initial(struct tr_linear *m);
int tr_linear_put_initial(struct tr_linear *m);

/* ---- for sgd ---- */

/* Makes a table for weights; fallback as in tr_table_options. All ranks. */
int tr_linear_make_table(struct tr_linear *m, const char *name, const char *fallback, tr_table **table);

/* ---- behind dual coordinate descent ---- */

/* All ranks: the bias goes to its optimum at these weights, if it is one of a smooth loss and not regularised. */
int tr_linear_settle_bias(struct tr_linear *m);

/* ---- evaluation ---- */

/* Rows whose margins are computed at once: room of m->margin. */
enum { TR_LINEAR_MARGINS = 4096 };

/* The first of the sums of an evaluation that are a method's own, and how many there are. */
enum { TR_LINEAR_OWN_SUMS = 12 };

/* What summarize() needs of an evaluation: the loss of this worker's rows, the size of the weights (worker 0 alone; w:
 * its view of them), and how its part of the test data comes off. */
void tr_linear_report_loss(tr_report *report, double loss);
int tr_linear_report_size(tr_worker *me, struct tr_linear *m, const void *w, tr_report *report);
double tr_linear_penalty(const struct tr_linear *m, const tr_report *report); /* of that size */
int tr_linear_report_test(tr_worker *me, struct tr_linear *m, tr_view *view, tr_report *report);
int tr_linear_evaluate(tr_worker *me, void *linear, tr_report *report); /* at m->view and m->test_view */
int tr_linear_evaluate_at(tr_worker *me, struct tr_linear *m, const void *w, tr_report *report);
int tr_linear_summarize(void *linear, const tr_report *report, tr_evaluation *evaluation);

/* A dual value is a bound of the objective from below. Where w is the w(α) of the dual variables, it follows from the sum
 * of the rows' conjugates, which evaluate functions report, and from w's size. The gap that a dual value proves, and
 * whether to stop there, follow after summarize(). Under SSP and ASP the workers' parts are of different parameters: an
 * estimate, which may even be negative. */
void tr_linear_report_conjugate(tr_report *report, double conjugate);
double tr_linear_dual_value(const struct tr_linear *m, const tr_report *report);
void tr_linear_prove(struct tr_linear *m, double dual, tr_evaluation *evaluation);

/* solve.method auto looks at the gap that dual coordinate descent has proven, and may stop it. */
void tr_linear_watch(struct tr_linear *m, tr_evaluation *evaluation);
/* Epochs of the method that Newton's took over from; 0: from none. The scheduler. */
double tr_linear_epochs_before(const struct tr_linear *m);
int tr_linear_keep_watch(struct tr_linear *m, tr_snapshot *snapshot);

/* Whether newton, which is open, has so few columns that it factors the whole Hessian. All ranks come to the same. */
bool tr_linear_newton_is_exact(const struct tr_linear *m);

/* The number of passes that its first step takes, at least. */
int tr_linear_newton_least_passes(const struct tr_linear *m);

/* Whether the last objective is better than that of the best constant, or, without a bias, of weights of zero: all ranks,
 * after training. TR_ERR_DIVERGED; with solve.patience, where the test data judge, a warning. */
int tr_linear_check_worth(struct tr_linear *m);

/* The stage «train» of methods that count epochs in clocks; they add prepare, compute, snapshot and what they do otherwise. */
tr_stage tr_linear_stage(struct tr_linear *m);

/* For snapshot functions: what summarizing remembers. */
int tr_linear_keep_summary(struct tr_linear *m, tr_snapshot *snapshot);

/* What the test data show, or NULL; and how much, from the sums of all workers. */
const char *tr_linear_metric(const struct tr_linear *m);
double tr_linear_test_metric(const struct tr_linear *m, const tr_report *report);

/* ---- what the job says of stages ---- */

/* tr_turn_begin() and tr_turn_end(), but where members of a group have columns each and sum up row by row. */
int tr_linear_turn_begin(const struct tr_linear *m, const char *stage);
int tr_linear_turn_end(const struct tr_linear *m, int status);

int tr_linear_stage_workers(const struct tr_linear *m, const char *stage, int usual); /* as in tr_next */
int tr_linear_stage_servers(const struct tr_linear *m, const char *stage);
int64_t tr_linear_stage_clocks(const struct tr_linear *m, const char *stage); /* 0: it does not say */

/* All ranks: more workers (one_group: of a group) or servers than there are cannot be, nor clocks where it has one. */
int tr_linear_check_stage(const struct tr_linear *m, const char *stage, bool one_group, bool has_clocks);

/* ---- for methods ---- */

/* The error that a setting cannot be, and why. */
int tr_linear_refuse(const tr_job *job, const char *key, const char *why);

/* Servers for w where each share should have some thousand keys, as sync.weight auto judges by the directions of updates
 * of each share (simulated on a9a: as one share 11 clocks to the target, in 4 parts 18, in 16 parts 21), and every server
 * of a table takes part in the short stages of variance reduction. */
uint32_t tr_linear_few_servers(const struct tr_linear *m);

/* Mini-batches of a clock, of so many in an epoch: as sync.push says, or the usual number. */
int64_t tr_linear_batches_of_clock(const struct tr_linear *m, int64_t batches, int64_t usual);

/* solve.phases: so many at most, batches of the tenth are as large as data get. */
enum { TR_GROWING_PHASES = 64 };

/* The area under the ROC curve of the test data, under the model as it is in the table now: all ranks, outside tr_run(); all
 * get the result. NaN without test data and for regression. */
int tr_linear_auc(struct tr_linear *m, double *auc);

/* ---- models in files ---- */

static inline bool tr_linear_model_classifies(const struct tr_linear_model *model)
{
    return tr_loss_classifies(model->loss);
}

/* Weight i of all: that of feature i / outputs for output i % outputs. */
static inline double tr_linear_model_weight(const struct tr_linear_model *model, uint64_t i)
{
    return model->dtype == TR_F32 ? (double)((const float *)model->weight)[i]
                                  : ((const double *)model->weight)[i];
}

/* The next weight from `from` on that is not zero; features * outputs: there is none. Most features of a model with hash storage
 * have none, whose memory is looked at and never filled. */
uint64_t tr_linear_model_next(const struct tr_linear_model *model, uint64_t from);

/* Reads the text of a model.txt, LIBLINEAR's format, which a zero byte follows. The path
 * serves messages. The weights are finite. TR_ERR_DATA. */
int tr_linear_model_parse_text(const char *text, size_t length, const char *path,
                               struct tr_linear_model *model);
void tr_linear_model_free(struct tr_linear_model *model); /* what it holds, not the struct */

/* TR_ERR_DATA with the path if a weight is not finite; whether the labels are numbers that differ. */
int tr_linear_model_check(const struct tr_linear_model *model, const char *path);
int tr_linear_model_check_labels(const struct tr_linear_model *model, bool *fine);

/* Writes a model.txt, which can be used with liblinear-predict: its features are numbered from 1, so its line i (from 1)
 * behind «w» is weight i - 1, of index i - 1 + first_index of the data. For data that begin at index 1, as nearly all do,
 * these are the same; for data that begin at 0, add 1 to each index before using LIBLINEAR: a last line, at which it does
 * not look, says «first_index 0». LIBLINEAR's labels are whole numbers: others are written as they are, which it does not
 * read (Trireme does). Of several outputs it knows those that are each against the rest; a softmax is told by such a line,
 * too, and predicts the same labels.
 * One process: create, append the weights of n features at a time and then the bias, finish; close in any case. */
struct tr_linear_text;
int tr_linear_text_create(const char *folder, const struct tr_linear_model *head,
                          struct tr_linear_text **text);
int tr_linear_text_append(struct tr_linear_text *text, enum tr_dtype dtype, const void *weights, size_t n);
int tr_linear_text_finish(struct tr_linear_text *text);
void tr_linear_text_close(struct tr_linear_text **text); /* NULL inside is fine */

/* Between these two, which all ranks call, where m->train->scaling is not NULL: one rank can turn the weights of columns
 * first .. first + n - 1, `outputs` of each, to those for the files' numbers; what goes with shifts is added to the biases. */
int tr_linear_open_scale(struct tr_linear *m);
int tr_linear_unscale(struct tr_linear *m, uint64_t first, size_t n, size_t outputs, double *w, double *bias);
int tr_linear_close_scale(struct tr_linear *m);

/* Of the class. */
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
