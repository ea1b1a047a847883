/* Gradient optimizers, as server functions (tr_table_use) and for local use by workers (M32).
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

/* The argument of the server functions of these names. */
typedef struct tr_optimizer {
    enum tr_optimizer_kind kind;
    double rate, decay; /* the rate of clock c is rate / sqrt(decay c + 1) */
    double momentum;
    double memory;
    double epsilon;
    double l1, l2; /* ftrl */
} tr_optimizer;

/* Arrays of the parameters' size that the optimizer keeps as its state: 0 to 3. */
size_t tr_optimizer_arrays(enum tr_optimizer_kind kind);

/* One step on n units of `width` elements (TR_F32 or TR_F64): gradient is packed, value and state are indexed by
 * unit (NULL: 0 .. n-1); state is [array][units][width], zeros at first. clock counts from 0. */
void tr_optimizer_step(const tr_optimizer *optimizer, enum tr_dtype dtype, int64_t clock, size_t n,
                       size_t width, const uint32_t *unit, const void *gradient, void *value, size_t units,
                       void *state);

#ifdef __cplusplus
}
#endif
#endif
