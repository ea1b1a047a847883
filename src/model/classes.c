/* The classes of models that Trireme brings. */
#include "trireme/model.h"

#include <math.h>

#include "job/job.h"
#include "model/kmeans/kmeans.h"
#include "model/lda/lda.h"
#include "model/mf/mf.h"

#define AT(field) offsetof(struct tr_job, field)
#define ANY_INT   2147483647.0

/* clang-format off */
static const tr_option linear_options[] = {
    {"model.l2", TR_KIND_REAL, AT(model.l2), "auto", .words = TR_WORDS("auto", "1/n"),
     .help = "lambda in F(w) = mean loss + lambda/2 |w|^2, where auto = 1/n and LIBLINEAR's C is 1/(lambda n)"},
    {"model.l1", TR_KIND_REAL, AT(model.l1), "0",
     .help = "alpha in F(w) = mean loss + lambda/2 |w|^2 + alpha |w|_1; needs solve.optimizer ftrl"},
    {"model.bias", TR_KIND_BOOL, AT(model.bias), "no",
     .help = "whether a constant is learnt besides the weights"},
    {"model.bias_l2", TR_KIND_BOOL, AT(model.bias_l2), "no",
     .help = "whether the bias is regularised (as LIBLINEAR does)"},
    {"model.dtype", TR_KIND_CHOICE, AT(model.dtype), "f32", .words = TR_WORDS("f32", "f64"),
     .help = "single or double precision"},
    {"solve.target_gap", TR_KIND_REAL, AT(solve.target_gap), "0", .may_change = true,
     .help = "stop when the objective is proven within this relative distance of the optimum; 0 = off"},
    {"solve.rate", TR_KIND_REAL, AT(solve.rate), "auto", .above = true, .words = TR_WORDS("auto"), .may_change = true,
     .methods = "sgd svrg svrg++ katyusha growing",
     .help = "size of the first step; auto = 0.1 for sgd, for variance reduction and growing batches as the data's smoothness allows"},
    {"solve.decay", TR_KIND_REAL, AT(solve.decay), "0", .may_change = true,
     .methods = "sgd growing",
     .help = "the rate of clock c is rate/sqrt(decay*c+1)"},
    {"solve.batch", TR_KIND_INTEGER, AT(solve.batch), "0",
     .help = "rows over all groups of one mini-batch (sgd; growing: of the first phase) or one turn (dual); 0 = chosen "
             "from the data"},
    {"solve.sigma", TR_KIND_REAL, AT(solve.sigma), "auto", .least = 1, .words = TR_WORDS("auto"),
     .methods = "dual",
     .help = "how much each worker damps its steps for the others; auto = their number, which is safe"},
    {"solve.optimizer", TR_KIND_CHOICE, AT(solve.optimizer), "sgd",
     .words = TR_WORDS("sgd", "momentum", "nesterov", "adagrad", "adadelta", "rmsprop", "adam", "ftrl"),
     .help = "what becomes of a mini-batch's gradient"},
    {"solve.optimizer_at", TR_KIND_CHOICE, AT(solve.optimizer_at), "server", .words = TR_WORDS("server", "worker"),
     .help = "who keeps the optimizer's state: the servers, who get gradients, or each worker for itself"},
    {"solve.momentum", TR_KIND_REAL, AT(solve.momentum), "0.9", .most = 1,
     .help = "momentum, nesterov, adam: how much of the last step's direction is kept"},
    {"solve.memory", TR_KIND_REAL, AT(solve.memory), "auto", .most = 1, .words = TR_WORDS("auto"),
     .help = "adadelta, rmsprop, adam: how much is kept of the mean of squares; auto = 0.95, 0.9, 0.999"},
    {"solve.epsilon", TR_KIND_REAL, AT(solve.epsilon), "auto", .above = true, .words = TR_WORDS("auto"),
     .help = "adaptive optimizers: added to what is divided by; auto = 1e-8, for adadelta 1e-6"},
    {"solve.inner", TR_KIND_REAL, AT(solve.inner), "2", .above = true,
     .methods = "svrg svrg++ katyusha",
     .help = "passes of stochastic steps between two full gradients; svrg++: the first time"},
    {"solve.growth", TR_KIND_REAL, AT(solve.growth), "10", .least = 1,
     .methods = "growing",
     .help = "how many times larger the batches of each phase are than those of the phase before"},
    {"solve.phases", TR_KIND_INTEGER, AT(solve.phases), "3", .least = 1,
     .methods = "growing",
     .help = "how many phases there are"},
    {.name = NULL},
};

static const tr_method linear_methods[] = {
    {"dual", "dual coordinate descent, merged as CoCoA does; needs no step size and proves how far it is", NULL, false, TR_SOLVE_DUAL},
    {"sgd", "mini-batch gradient descent", NULL, false, TR_SOLVE_SGD},
    {"svrg", "variance reduction, for smooth losses", NULL, true, TR_SOLVE_SVRG},
    {"svrg++", "the same with ever longer epochs", NULL, true, TR_SOLVE_SVRGPP},
    {"katyusha", "variance reduction with momentum", NULL, true, TR_SOLVE_KATYUSHA},
    {"growing", "mini-batches that grow from phase to phase", NULL, true, TR_SOLVE_GROWING},
    {.name = NULL},
};

static const tr_rule linear_rules[] = {
    {"solve.rate", "sgd", "0.1", false},
    {"solve.rate", "dual", "0.1", true},
    {"solve.epochs", "growing", "1", false},
    {"data.partition", "svrg svrg++ katyusha growing", "replicated", false},
    {"table.prune", "svrg svrg++ katyusha", "no", true},
    {"local.*", "dual sgd", NULL, true},
    {"sync.race", "dual sgd", NULL, true},
    {"data.vocabulary", NULL, NULL, true},
    {"data.duplicates", NULL, NULL, true},
    {.key = NULL},
};
/* clang-format on */

/* ---- memory ---- */

/* Linear models: with W workers and S servers, good to a factor of about one and a half, enough to see that a job cannot
 * fit:
 *
 * A worker has its rows, 0.6 × text / W: a non-zero takes 9 bytes or more as text and 8 in memory, 4 if all
 * values are 1, which is usual for wide data; what is kept for each row is in it. And its view, 3 × element
 * for each key (values, deltas, messages on their way): no more keys than features, nor than non-zeros in its
 * text.
 *
 * A server has its share, element × features / S; half as much again where SGD counts rows. S is table.servers
 * where that is fewer.
 *
 * With hash storage it has only keys that are used, no more than there are in all the text, but about 20 bytes more for
 * each; and of each worker's view a list, 12 bytes a key. */
static double server_bytes(const tr_job *job, const tr_data_size *size, double element, double view_keys)
{
    double servers = job->table.servers > 0 ? (double)job->table.servers : size->servers;
    double tables = job->solve.method == TR_SOLVE_SGD ? 1.5 : 1;
    if (job->table.storage == TR_STORAGE_DENSE) return tables * element * size->features / servers;
    double used = fmin(size->features, size->text / 9), lists = 12 * view_keys * size->workers;
    return (tables * (element + 20) * used + lists) / servers;
}

static void estimate_linear(const tr_job *job, const void *options, const tr_data_size *size, tr_memory *m)
{
    (void)options;
    double element = job->model.dtype == TR_DTYPE_F32 ? 4 : 8;
    double text = size->text / size->workers, keys = fmin(size->features, text / 9);
    m->worker = 0.6 * text + 3 * element * keys;
    m->server = server_bytes(job, size, element, keys);
}

/* abi 0: not yet made of functions of its own; see model.h for those. */
static const tr_model_class linear = {
    .name = "linear",
    .types = TR_WORDS("logistic", "linear", "svm", "l2svm"),
    .help = "logistic regression, least squares, and support vectors with hinge (svm) or squared hinge loss "
            "(l2svm)",
    .noun = "a linear model",
    .format = "trireme-linear",
    .data_formats = TR_WORDS("libsvm"),
    .options = linear_options,
    .methods = linear_methods,
    .rules = linear_rules,
    .memory = estimate_linear,
};
const tr_model_class *const tr_model_classes[] = {&linear, &tr_kmeans_class, &tr_mf_class, &tr_lda_class};
const size_t tr_model_class_count = sizeof tr_model_classes / sizeof *tr_model_classes;
