/* The losses, one struct each. The lists of losses for linear models and for trees are at the end of the file. */
#include "loss.h"

#include <string.h>

#include "trireme/cpu.h"

static const double tiny = 1e-12; /* smaller shares and means are raised to it, before a logarithm is taken */

/* ---- logistic: log(1 + exp(-y m)) ---- */

static double logistic_conjugate(double a, double y)
{
    (void)y;
    return (a > 0 ? a * log(a) : 0) + (a < 1 ? (1 - a) * log1p(-a) : 0);
}

static double logistic_mean(double margin)
{
    return 1 / (1 + exp(-margin));
}

static double logistic_constant(double share)
{
    share = fmin(fmax(share, tiny), 1 - tiny);
    return log(share / (1 - share));
}

TR_CPU_CLONES static void logistic_gradients(const float *score, const float *label, size_t n, float positive,
                                             float *g, float *h)
{
    for (size_t i = 0; i < n; i++) {
        float p = 1 / (1 + tr_fast_exp(-score[i]));
        g[i] = p - (label[i] == positive ? 1.0f : 0.0f);
        h[i] = p * (1 - p);
    }
}

const struct tr_loss tr_loss_logistic = {
    .type = "logistic",
    .objective = "logistic",
    .labels = TR_LABELS_CLASSES,
    .value = logistic_value,
    .slope = logistic_slope,
    .curvature = logistic_curvature,
    .conjugate = logistic_conjugate,
    .step = logistic_step,
    .most_curvature = 0.25,
    .bounded_slope = true,
    .rarely_curved = true,
    .mean = logistic_mean,
    .constant = logistic_constant,
    .metric = "log_loss",
    .metric_times = 1,
    .liblinear = "L2R_LR L2R_LR_DUAL L1R_LR",
    .trees = {.gradients = logistic_gradients,
              .lightgbm = "binary sigmoid:1",
              .xgboost = {"binary:logistic", "reg_loss_param", "scale_pos_weight", "1", "5E-1"}}};

/* ---- softmax: -log(exp(m_y) / Σ exp(m_k)), for trees. Linear models use it as `logistic` of more than two classes ---- */

static double softmax_constant(double share)
{
    return log(share);
}

const struct tr_loss tr_loss_softmax = {
    .objective = "softmax",
    .labels = TR_LABELS_CLASSES,
    .joint = true,
    .constant = softmax_constant,
    .metric = "log_loss",
    .metric_times = 1,
    .trees = {.lightgbm = "multiclass",
              .xgboost = {"multi:softprob", "softmax_multiclass_param", "num_class", NULL, "0"}}};

/* ---- svm, the hinge: max(0, 1 - y m) ---- */

static double svm_conjugate(double a, double y)
{
    (void)y;
    return -a;
}

static void svm_corner(double y, double s, double *low, double *high)
{
    (void)s;
    *low = fmin(-y, 0);
    *high = fmax(-y, 0);
}

static double svm_constant(double share)
{
    return share > 0.5 ? 1 : -1;
}

const struct tr_loss tr_loss_svm = {.type = "svm",
                                    .labels = TR_LABELS_CLASSES,
                                    .value = svm_value,
                                    .slope = svm_slope,
                                    .conjugate = svm_conjugate,
                                    .step = svm_step,
                                    .most_curvature = INFINITY,
                                    .bounded_slope = true,
                                    .corner = svm_corner,
                                    .constant = svm_constant,
                                    .metric = "hinge_loss",
                                    .metric_times = 1,
                                    .liblinear = "L2R_L1LOSS_SVC_DUAL MCSVM_CS"};

/* ---- l2svm, the squared hinge: max(0, 1 - y m)² ---- */

static double l2svm_conjugate(double a, double y)
{
    (void)y;
    return a * (a / 4 - 1);
}

static double l2svm_constant(double share)
{
    return 2 * fmin(fmax(share, tiny), 1 - tiny) - 1;
}

const struct tr_loss tr_loss_l2svm = {.type = "l2svm",
                                      .labels = TR_LABELS_CLASSES,
                                      .value = l2svm_value,
                                      .slope = l2svm_slope,
                                      .curvature = l2svm_curvature,
                                      .conjugate = l2svm_conjugate,
                                      .step = l2svm_step,
                                      .most_curvature = 2,
                                      .constant = l2svm_constant,
                                      .metric = "squared_hinge_loss",
                                      .metric_times = 1,
                                      .liblinear = "L2R_L2LOSS_SVC L2R_L2LOSS_SVC_DUAL L1R_L2LOSS_SVC"};

/* ---- linear, squares: (m - y)² / 2 ---- */

static double linear_conjugate(double a, double y)
{
    return a * (a / 2 - y);
}

static double mean_constant(double mean)
{
    return mean;
}

TR_CPU_CLONES static void linear_gradients(const float *score, const float *label, size_t n, float shape,
                                           float *g, float *h)
{
    (void)shape;
    for (size_t i = 0; i < n; i++) {
        g[i] = score[i] - label[i];
        h[i] = 1;
    }
}

const struct tr_loss tr_loss_linear = {
    .type = "linear",
    .objective = "squared",
    .labels = TR_LABELS_NUMBERS,
    .value = linear_value,
    .slope = linear_slope,
    .curvature = linear_curvature,
    .conjugate = linear_conjugate,
    .step = linear_step,
    .most_curvature = 1,
    .quadratic = true,
    .constant = mean_constant,
    .metric = "rmse",
    .liblinear = "L2R_L2LOSS_SVR L2R_L2LOSS_SVR_DUAL L2R_L1LOSS_SVR_DUAL",
    .trees = {.gradients = linear_gradients,
              .unit_curvature = true,
              .lightgbm = "regression",
              .xgboost = {"reg:squarederror", "reg_loss_param", "scale_pos_weight", "1", "0"}}};

/* ---- huber (Huber 1964): r² / 2 where |r| ≤ s, s |r| - s² / 2 beyond, r = y - m ---- */

TR_CPU_CLONES static void huber_gradients(const float *score, const float *label, size_t n, float delta,
                                          float *g, float *h)
{
    for (size_t i = 0; i < n; i++) {
        float error = score[i] - label[i];
        g[i] = error > delta ? delta : error < -delta ? -delta : error;
        h[i] = 1;
    }
}

const struct tr_loss tr_loss_huber = {
    .type = "huber",
    .objective = "huber",
    .labels = TR_LABELS_NUMBERS,
    .shape = TR_SHAPE_DELTA,
    .value = huber_value,
    .slope = huber_slope,
    .curvature = huber_curvature,
    .conjugate = linear_conjugate,
    .step = huber_step,
    .most_curvature = 1,
    .bounded_slope = true,
    .metric = "huber",
    .metric_times = 1,
    .trees = {.gradients = huber_gradients,
              .unit_curvature = true,
              .median = true,
              .lightgbm = "huber",
              .xgboost = {"reg:squarederror", "reg_loss_param", "scale_pos_weight", "1", "0"}}};

/* ---- quantile (Koenker and Bassett 1978): s r where r > 0, (s - 1) r otherwise, r = y - m ---- */

static double quantile_conjugate(double a, double y)
{
    return -a * y;
}

static void quantile_corner(double y, double s, double *low, double *high)
{
    (void)y;
    *low = -s;
    *high = 1 - s;
}

TR_CPU_CLONES static void quantile_gradients(const float *score, const float *label, size_t n, float part,
                                             float *g, float *h)
{
    for (size_t i = 0; i < n; i++) {
        g[i] = score[i] > label[i] ? 1 - part : score[i] < label[i] ? -part : 0;
        h[i] = 1;
    }
}

const struct tr_loss tr_loss_quantile = {
    .type = "quantile",
    .objective = "quantile",
    .labels = TR_LABELS_NUMBERS,
    .shape = TR_SHAPE_QUANTILE,
    .value = quantile_value,
    .slope = quantile_slope,
    .conjugate = quantile_conjugate,
    .step = quantile_step,
    .most_curvature = INFINITY,
    .bounded_slope = true,
    .corner = quantile_corner,
    .metric = "pinball",
    .metric_times = 1,
    .trees = {.gradients = quantile_gradients,
              .unit_curvature = true,
              .quantile = true,
              .lightgbm = "quantile",
              .xgboost = {"reg:squarederror", "reg_loss_param", "scale_pos_weight", "1", "0"}}};

/* ---- absolute: |y - m|, for trees. They grow by the gradients of the quantile loss with s = 1/2, which is |y - m| / 2 ---- */

static double absolute_value(double m, double y, double s)
{
    (void)s;
    return fabs(m - y);
}

static double absolute_slope(double m, double y, double s)
{
    (void)s;
    return y > m ? -1 : y < m ? 1 : 0;
}

static void absolute_corner(double y, double s, double *low, double *high)
{
    (void)y, (void)s;
    *low = -1;
    *high = 1;
}

TR_CPU_CLONES static void absolute_gradients(const float *score, const float *label, size_t n, float shape,
                                             float *g, float *h)
{
    (void)shape;
    for (size_t i = 0; i < n; i++) {
        g[i] = score[i] > label[i] ? 0.5f : score[i] < label[i] ? -0.5f : 0;
        h[i] = 1;
    }
}

static const struct tr_loss tr_loss_absolute = {
    .objective = "absolute",
    .labels = TR_LABELS_NUMBERS,
    .value = absolute_value,
    .slope = absolute_slope,
    .most_curvature = INFINITY,
    .bounded_slope = true,
    .corner = absolute_corner,
    .metric = "mae",
    .trees = {.gradients = absolute_gradients,
              .unit_curvature = true,
              .quantile = true,
              .lightgbm = "regression_l1",
              .xgboost = {"reg:squarederror", "reg_loss_param", "scale_pos_weight", "1", "0"}}};

/* ---- losses with log link, whose margin is the logarithm of the mean ---- */

static double log_link_mean(double margin)
{
    return exp(margin);
}

static double log_link_constant(double mean)
{
    return log(fmax(mean, tiny));
}

#define LOG_LINK                                                                                             \
    .mean = log_link_mean, .constant = log_link_constant, .most_curvature = INFINITY, .metric_times = 2

/* ---- poisson: exp(m) - y m + y log y - y, half the deviance where exp(m) is the mean ---- */

static double poisson_value(double m, double y, double s)
{
    (void)s;
    return exp(m) - y * m + (y > 0 ? y * log(y) - y : 0);
}

static double poisson_slope(double m, double y, double s)
{
    (void)s;
    return exp(m) - y;
}

static double poisson_curvature(double m, double y, double slope, double s)
{
    (void)y, (void)slope, (void)s;
    return exp(m);
}

TR_CPU_CLONES static void poisson_gradients(const float *score, const float *label, size_t n, float shape,
                                            float *g, float *h)
{
    (void)shape;
    for (size_t i = 0; i < n; i++) {
        h[i] = tr_fast_exp(score[i]);
        g[i] = h[i] - label[i];
    }
}

const struct tr_loss tr_loss_poisson = {
    .type = "poisson",
    .objective = "poisson",
    .labels = TR_LABELS_COUNTS,
    .value = poisson_value,
    .slope = poisson_slope,
    .curvature = poisson_curvature,
    LOG_LINK,
    .metric = "poisson_deviance",
    .trees = {.gradients = poisson_gradients,
              .lightgbm = "poisson",
              .xgboost = {"count:poisson", "poisson_regression_param", "max_delta_step", "0", "1"}}};

/* ---- gamma: y / μ - log(y / μ) - 1, half the deviance, μ = exp(m) ---- */

static double gamma_value(double m, double y, double s)
{
    (void)s;
    return y * exp(-m) + m - log(y) - 1;
}

static double gamma_slope(double m, double y, double s)
{
    (void)s;
    return 1 - y * exp(-m);
}

static double gamma_curvature(double m, double y, double slope, double s)
{
    (void)m, (void)y, (void)s;
    return 1 - slope;
}

TR_CPU_CLONES static void gamma_gradients(const float *score, const float *label, size_t n, float shape,
                                          float *g, float *h)
{
    (void)shape;
    for (size_t i = 0; i < n; i++) {
        h[i] = label[i] * tr_fast_exp(-score[i]);
        g[i] = 1 - h[i];
    }
}

static const struct tr_loss tr_loss_gamma = {
    .type = "gamma",
    .objective = "gamma",
    .labels = TR_LABELS_POSITIVE,
    .value = gamma_value,
    .slope = gamma_slope,
    .curvature = gamma_curvature,
    LOG_LINK,
    .metric = "gamma_deviance",
    .trees = {.gradients = gamma_gradients,
              .lightgbm = "gamma",
              .xgboost = {"reg:gamma", "reg_loss_param", "scale_pos_weight", "1", "1"}}};

/* ---- tweedie of power s, 1 < s < 2, half the deviance: y^(2-s) / ((1-s) (2-s)) - y μ^(1-s) / (1-s) + μ^(2-s) / (2-s) ---- */

static double tweedie_value(double m, double y, double s)
{
    double a = 1 - s, b = 2 - s;
    return (y > 0 ? pow(y, b) / (a * b) : 0) - y * exp(a * m) / a + exp(b * m) / b;
}

static double tweedie_slope(double m, double y, double s)
{
    return exp((2 - s) * m) - y * exp((1 - s) * m);
}

static double tweedie_curvature(double m, double y, double slope, double s)
{
    (void)slope;
    return (2 - s) * exp((2 - s) * m) + (s - 1) * y * exp((1 - s) * m);
}

TR_CPU_CLONES static void tweedie_gradients(const float *score, const float *label, size_t n, float s,
                                            float *g, float *h)
{
    for (size_t i = 0; i < n; i++) {
        float up = tr_fast_exp((2 - s) * score[i]), down = label[i] * tr_fast_exp((1 - s) * score[i]);
        g[i] = up - down;
        h[i] = (2 - s) * up + (s - 1) * down;
    }
}

static const struct tr_loss tr_loss_tweedie = {
    .type = "tweedie",
    .objective = "tweedie",
    .labels = TR_LABELS_COUNTS,
    .shape = TR_SHAPE_POWER,
    .value = tweedie_value,
    .slope = tweedie_slope,
    .curvature = tweedie_curvature,
    LOG_LINK,
    .metric = "tweedie_deviance",
    .trees = {.gradients = tweedie_gradients,
              .lightgbm = "tweedie",
              .xgboost = {"reg:tweedie", "tweedie_regression_param", "tweedie_variance_power", NULL, "1"}}};

/* ---- logcosh: s² log(cosh(r / s)), r = m - y: near r² / 2 for small errors and s |r| - s² log 2 for large ones ---- */

static double logcosh_value(double m, double y, double s)
{
    double size = fabs(m - y) / s;
    return s * s * (size + log1p(exp(-2 * size)) - log(2));
}

static double logcosh_slope(double m, double y, double s)
{
    return s * tanh((m - y) / s);
}

static double logcosh_curvature(double m, double y, double slope, double s)
{
    (void)m, (void)y;
    return 1 - slope / s * (slope / s);
}

static const struct tr_loss tr_loss_logcosh = {.type = "logcosh",
                                               .labels = TR_LABELS_NUMBERS,
                                               .shape = TR_SHAPE_DELTA,
                                               .value = logcosh_value,
                                               .slope = logcosh_slope,
                                               .curvature = logcosh_curvature,
                                               .most_curvature = 1,
                                               .bounded_slope = true,
                                               .metric = "logcosh",
                                               .metric_times = 1};

/* ---- the lists ---- */

/* LINEAR_LOSSES: the values of model.type. TREE_LOSSES: the values of model.objective, each with the name of its struct. */
#define LINEAR_LOSSES(X)                                                                                     \
    X(logistic) X(linear) X(svm) X(l2svm) X(huber) X(quantile) X(poisson) X(logcosh) X(gamma) X(tweedie)
#define TREE_LOSSES(X)                                                                                       \
    X(logistic, logistic)                                                                                    \
    X(squared, linear)                                                                                       \
    X(poisson, poisson)                                                                                      \
    X(softmax, softmax)                                                                                      \
    X(absolute, absolute)                                                                                    \
    X(quantile, quantile)                                                                                    \
    X(huber, huber)                                                                                          \
    X(gamma, gamma)                                                                                          \
    X(tweedie, tweedie)

#define TYPE(name)                 #name,
#define TYPE_LOSS(name)            &tr_loss_##name,
#define OBJECTIVE(name, loss)      #name,
#define OBJECTIVE_LOSS(name, loss) &tr_loss_##loss,

const char *const tr_loss_types[] = {LINEAR_LOSSES(TYPE) "auto", NULL};
const struct tr_loss *const tr_losses[] = {LINEAR_LOSSES(TYPE_LOSS) NULL};
const char *const tr_loss_objectives[] = {"auto", TREE_LOSSES(OBJECTIVE) NULL};
const struct tr_loss *const tr_objective_losses[] = {NULL, TREE_LOSSES(OBJECTIVE_LOSS) NULL};
const char *const tr_shape_name[TR_SHAPES] = {NULL, "delta", "quantile", "power"};

_Static_assert(sizeof tr_loss_types / sizeof *tr_loss_types == sizeof tr_losses / sizeof *tr_losses + 1,
               "each value of model.type but auto has a loss");
_Static_assert(sizeof tr_loss_objectives == sizeof tr_objective_losses,
               "each value of model.objective but auto has a loss");

const struct tr_loss *tr_loss_of_type(const char *type)
{
    const struct tr_loss *const *loss = tr_losses;
    while (*loss && strcmp((*loss)->type, type) != 0) loss++;
    return *loss;
}

const struct tr_loss *tr_loss_of_objective(const char *objective)
{
    const struct tr_loss *const *loss = tr_objective_losses + 1;
    while (*loss && strcmp((*loss)->objective, objective) != 0) loss++;
    return *loss;
}

double tr_loss_shape(const struct tr_loss *loss, double delta, double quantile, double power)
{
    const double shape[TR_SHAPES] = {
        [TR_SHAPE_DELTA] = delta, [TR_SHAPE_QUANTILE] = quantile, [TR_SHAPE_POWER] = power};
    return shape[loss->shape];
}
