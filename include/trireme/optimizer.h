/* Gradient optimizers: as server functions (tr_table_use), where updates are gradients and the servers keep the
 * state, and for workers that keep it themselves.
 *
 * One step changes every element w by its gradient g; c is the clock, counted from 0, and r = rate / sqrt(decay c
 * + 1), or rate (1 - c / horizon), the rate of that clock. Beside w each keeps arrays of its size, zeros at first:
 *
 *   sgd             w -= r g
 *   momentum     m  m = μ m + r g;  w -= m                                (Polyak 1964; FlexPs-lite, 3.2.1)
 *   nesterov     m  m = μ m + r g;  w -= μ m + r g                        (Nesterov 1983; FlexPs-lite, 3.2.2)
 *   adagrad      s  s += g²;  w -= r g / (√s + ε)                         (Duchi, Hazan and Singer 2011, figure 1)
 *   adadelta   s d  s = ρ s + (1-ρ) g²;  u = g √(d + ε) / √(s + ε);
 *                   d = ρ d + (1-ρ) u²;  w -= r u                         (Zeiler 2012, algorithm 1, where r is 1)
 *   rmsprop      s  s = ρ s + (1-ρ) g²;  w -= r g / (√s + ε)              (Tieleman and Hinton 2012)
 *   adam       m s  m = μ m + (1-μ) g;  s = ρ s + (1-ρ) g²;
 *                   w -= r m' / (√s' + ε),  m' = m / (1 - μ^(c+1)),
 *                                           s' = s / (1 - ρ^(c+1))        (Kingma and Ba 2015, algorithm 1)
 *   ftrl       z s  z += g - w (√(s + g²) - √s) / rate;  s += g²;
 *                   w = 0 where |z| ≤ l1, else
 *                   w = -(z - sign(z) l1) / ((ε + √s) / rate + l2)        (McMahan et al. 2013, algorithm 1)
 *
 * μ is momentum, ρ memory, ε epsilon. Under nesterov w is the point ahead, θ - μ m in the paper's terms: what
 * workers read and compute their gradients at, so that the method is exact although a table has but one value a
 * key. ftrl has no decay: its rates fall by themselves, and z is right only for one rate; its ε is the paper's β,
 * and l1 and l2 weigh against the sum of all gradients so far, not against each. With both 0 it steps as adagrad
 * does. A w that its gradients have not led to, because it began so or others have changed it, is taken as it is.
 *
 * Sparse updates: a step changes the elements it names, their state included, and no others. What a local step names
 * is up to the caller, and an element named with a gradient of 0 has made a step; servers name the units (keys, or
 * pieces of wide rows) whose gradient is not all zeros. For sgd, adagrad and ftrl that makes no difference but for weight
 * decay. The others are the usual lazy variants: m and s of an element stand still while it is not named, so that they
 * are means over the steps that named it, and w does not drift by momentum between them; to make up for the steps
 * between would take another array, and a look at it in every read. Adam's correction goes by the clock, as published,
 * not by a count for each element, which would be a third array: for keys that are named every clock that is exact,
 * while a key named for the first time late begins with a step of (1-μ)/√(1-ρ) times the rate (3.2 with μ = 0.9 and the
 * default ρ).
 */
#ifndef TRIREME_OPTIMIZER_H
#define TRIREME_OPTIMIZER_H

#include <stddef.h>
#include <stdint.h>

#include "trireme/table.h"

#ifdef __cplusplus
extern "C" {
#endif

enum tr_optimizer_kind {
    TR_SGD,
    TR_MOMENTUM,
    TR_NESTEROV,
    TR_ADAGRAD,
    TR_ADADELTA,
    TR_RMSPROP,
    TR_ADAM,
    TR_FTRL
};

/* The argument of the server functions sgd, momentum, nesterov, adagrad, adadelta, rmsprop, adam and ftrl, whose
 * name must agree with the kind. */
typedef struct tr_optimizer {
    enum tr_optimizer_kind kind;
    double rate, decay; /* the rate of clock c is rate / sqrt(decay c + 1); ftrl's is always `rate` */
    double horizon;     /* above 0: that rate falls on a line besides, to 0 at this clock; ftrl's too */
    double momentum;    /* μ in [0, 1): momentum, nesterov, adam */
    double memory;      /* ρ in (0, 1): adadelta, rmsprop, adam. 0 or less: 0.99, 0.99, 0.999 */
    double epsilon;     /* ε: all that divide. 0 or less: 1e-8, for adadelta 1e-6 */
    double l1;          /* ftrl */
    double l2; /* 0 or more; ftrl: as above; all others: weight decay, which makes each gradient g + l2 w.
                           Elements that are not named do not decay */
} tr_optimizer;

/* "sgd", "momentum", …: the name of the server function, too. NULL for what is no kind. */
const char *tr_optimizer_name(enum tr_optimizer_kind kind);

/* Arrays of the parameters' size that the optimizer keeps as its state: 0 to 2. */
size_t tr_optimizer_arrays(enum tr_optimizer_kind kind);

/* A copy of the optimizer with its defaults filled in, checked: TR_ERR_CONFIG for a kind that does not exist and
 * for numbers outside their range, which may not be used below. */
int tr_optimizer_resolve(const tr_optimizer *optimizer, tr_optimizer *resolved);

/* The rate of a clock. */
double tr_optimizer_rate(const tr_optimizer *optimizer, int64_t clock);

/* One step on n units of `width` elements (TR_F32 or TR_F64; others are left alone), without or with
 * tr_optimizer_resolve() before it. No communication; anybody may call it on memory of its own.
 *   clock     from 0
 *   unit      which units, in any order, each at most once; NULL: 0 .. n-1
 *   gradient  n × width, packed
 *   value     indexed by unit: units × width
 *   state     tr_optimizer_arrays() arrays like value, zeros at first; NULL for sgd
 * gradient, value and the arrays of the state do not overlap. */
void tr_optimizer_step(const tr_optimizer *optimizer, enum tr_dtype dtype, int64_t clock, size_t n,
                       size_t width, const uint32_t *unit, const void *gradient, void *value,
                       void *const state[]);

#ifdef __cplusplus
}
#endif
#endif
