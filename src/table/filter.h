/* Filters: which units of an update stay behind on the worker (PS: user-defined filters; Li et al. 2014b, "Communication
 * efficient distributed machine learning with the parameter server").
 *
 * A unit is sent or held as a whole; |u| is the largest of its elements, |w| that of its value as last pulled.
 *
 *   threshold    held if |u| < limit. DynSGD drops these (section 5.3: 1e-6); they are not lost here
 *   significant  held if |u| < limit |w|: a parameter that is 0 moves at once
 *   kkt          for problems with α |w|₁: dropped if w = 0 and its gradient lies inside (-α + limit, α - limit), where
 *                a proximal step leaves w at 0. Dropping is its definition: the gradient is computed anew next time,
 *                and the sum of old ones would say nothing
 *   skip         held with probability `skip`, by a hash of seed, clock and unit: in whatever order and pieces an
 *                update is filtered, the same units go
 *
 * What is held lies in `kept` and is added to the next update first: besides what kkt drops, nothing is lost. A last
 * update without a filter (and at full precision) brings all of it. What is not finite is always sent.
 *
 * An update is sent in this order: tr_filter_apply() adds kept and holds back; tr_encode() (encoding.h) takes kept as
 * its residual and adds what rounding took. Both want packed slices, so kept lies in the order of packed values.
 */
#ifndef TR_TABLE_FILTER_H
#define TR_TABLE_FILTER_H

#include "table/encoding.h"

struct tr_filter {
    int kind;     /* TR_FILTER_… of job/job.h */
    double limit; /* threshold: absolute; significant: relative to |w|; kkt: δ, how far inside α */
    double skip;  /* skip: a probability; 1 holds all, for ever */
    /* kkt: the factor of |w|₁ in what u is the gradient of: the part of the pusher alone, where many push parts of a
     * sum */
    double alpha;
    double scale;  /* kkt: u = scale × gradient, of any sign: the rate, where updates are steps */
    uint64_t seed; /* skip: of this pusher, another one for each */
};

/* Units that were not zero, added up over calls. */
struct tr_filter_counts {
    uint64_t seen, held, dropped; /* held and dropped are parts of seen; the others were sent */
};

/* Whether tr_filter_apply() reads value. */
static inline bool tr_filter_reads_value(const struct tr_filter *filter)
{
    return filter->kind == TR_FILTER_SIGNIFICANT || filter->kind == TR_FILTER_KKT;
}

/* Filters a slice of n × width elements in place.
 *   first   number of its first unit among those of the pusher
 *   clock   of the update
 *   value   the parameters, n × width; NULL where they are not read
 *   delta   comes with the update, leaves with what is to be sent, zeros elsewhere
 *   kept    n × width, zeros at first; comes with what was held back so far, leaves with what is now */
void tr_filter_apply(const struct tr_filter *filter, const struct tr_slice *slice, uint64_t first,
                     int64_t clock, const void *value, void *delta, void *kept,
                     struct tr_filter_counts *counts);

#endif
