/* Gradient optimizers, as server functions (tr_table_use(); the servers keep the optimizer state) and as local steps for
 * workers that keep the state themselves.
 *
 * A step changes every element w by its gradient g. c is the clock, counted from 0. The rate of clock c is
 * r = rate / sqrt(decay c + 1), or rate (1 - c / horizon). State arrays have the size of w and start at zero:
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
 * μ is momentum, ρ is memory, ε is epsilon. With nesterov the table stores the look-ahead point θ - μ m: workers compute
 * gradients at the value that they read, so the method is exact with one stored value per key. ftrl has no decay: its
 * rates decrease by themselves and z is valid for one rate only; its ε is the paper's β, and l1 and l2 weigh against the
 * sum of all gradients. With l1 = l2 = 0 it steps as adagrad does. A w that does not result from its gradients, because
 * of an initial value or another writer, is accepted as it is.
 *
 * Sparse updates: a step changes the elements that it names, including their state, and no others. A local step names
 * the elements that the caller passes, even with a gradient of 0. A server step names the units (keys, or pieces of wide
 * rows) whose gradient is not all zeros. For sgd, adagrad and ftrl this changes nothing except weight decay. The others
 * become the usual lazy variants: m and s are averages over the steps that name the element, and momentum does not move
 * w between them. Adam's bias correction uses the clock, as published: exact for keys that are named in every clock. A
 * key that is first named late starts with a step of (1-μ)/√(1-ρ) times the rate (3.2 for μ = 0.9 and the default ρ).
 *
 * Example:
 *
 *     tr_optimizer adam = {.kind = TR_ADAM, .rate = 0.01, .momentum = 0.9};
 *     TR_TRY(tr_table_use(table, tr_optimizer_name(adam.kind), &adam));
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

/* Parameters of an optimizer; the argument of the server function of the same name as the kind. */
typedef struct tr_optimizer {
    enum tr_optimizer_kind kind;
    double rate, decay; /* rate of clock c: rate / sqrt(decay c + 1); ftrl ignores decay */
    double horizon;     /* above 0: the rate also decreases linearly to 0 at this clock (ftrl too) */
    double momentum;    /* μ in [0, 1): momentum, nesterov, adam */
    double memory;      /* ρ in (0, 1): adadelta, rmsprop, adam. 0 or less: 0.99, 0.99, 0.999 */
    double epsilon;     /* ε of the kinds that divide. 0 or less: 1e-8, for adadelta 1e-6 */
    double l1;          /* ftrl */
    /* 0 or more. ftrl: as above. Others: weight decay, the gradient becomes g + l2 w; elements that a step does not name
     * do not decay. */
    double l2;
} tr_optimizer;

/* Returns the name of a kind and of its server function ("sgd", "momentum", ...), or NULL for an unknown kind. */
const char *tr_optimizer_name(enum tr_optimizer_kind kind);

/* Returns the number of state arrays of a kind, 0 to 2. */
size_t tr_optimizer_arrays(enum tr_optimizer_kind kind);

/* Copies an optimizer, fills in defaults and checks it.
 *
 * @param [out] resolved  the copy
 * @return TR_OK, or TR_ERR_CONFIG for an unknown kind or a number outside its range; the functions below require
 *         valid parameters
 */
int tr_optimizer_resolve(const tr_optimizer *optimizer, tr_optimizer *resolved);

/* Returns the rate of a clock. */
double tr_optimizer_rate(const tr_optimizer *optimizer, int64_t clock);

/* Performs one step on n units of `width` elements. No communication; any rank, on its own memory.
 *
 * @param [in]     optimizer  resolved or not
 * @param [in]     dtype      TR_F32 or TR_F64; other types are left unchanged
 * @param [in]     clock      from 0
 * @param [in]     unit       n distinct units in any order; NULL: 0 .. n - 1
 * @param [in]     gradient   n × width elements, packed
 * @param [in,out] value      units × width elements, indexed by unit
 * @param [in,out] state      tr_optimizer_arrays() arrays of the shape of value, zeros at first; NULL for sgd
 *
 * gradient, value and the state arrays must not overlap.
 */
void tr_optimizer_step(const tr_optimizer *optimizer, enum tr_dtype dtype, int64_t clock, size_t n,
                       size_t width, const uint32_t *unit, const void *gradient, void *value,
                       void *const state[]);

#ifdef __cplusplus
}
#endif
#endif
