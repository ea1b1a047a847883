/* One clock of dual coordinate descent. */
#include "model/linear/linear.h"
#include "model/linear/parts.h"

/* A new order every epoch, from a stream of its own: a run can be taken up at any clock. */
static void shuffle(struct tr_linear *m, const tr_worker *me, int64_t epoch)
{
    struct tr_rng rng;
    if (m->ordered == epoch + 1) return;
    m->ordered = epoch + 1;
    tr_rng_seed(&rng, m->job->seed, (uint64_t)me->worker, (uint64_t)epoch);
    tr_rng_permutation(&rng, m->order, m->problem.rows.n);
}

/* Each worker minimises the dual over its rows against its view; adding up all their changes is safe when each
 * counts its own sigma times, sigma being the number of workers (CoCoA+, Ma et al. 2015, lemma 4). Measuring
 * what the last merge would have allowed, as sigma for the next, was tried: it saves nothing at 2 to 8 workers
 * and swings when the estimate falls behind. */
int tr_linear_dual_clock(tr_worker *me, void *state)
{
    struct tr_linear *m = state;
    shuffle(m, me, me->clock / m->clocks_per_epoch);
    TR_TRY(tr_view_pull(m->view));
    if (!tr_in_lockstep(m->tr)) TR_TRY(tr_view_prefetch(m->view));
    int64_t first, last;
    tr_linear_batches(m, me->clock, &first, &last);
    size_t begin = tr_linear_batch_begin(m, first), end = tr_linear_batch_begin(m, last);
    double sigma = m->job->solve.sigma >= 1 ? m->job->solve.sigma : (double)me->workers;
    tr_copy_to_delta(m->view, m->problem.dtype);
    tr_dual_pass(&m->problem, m->order + begin, end - begin, sigma, m->norm, m->dual, m->view->delta);
    tr_keep_difference(m->view, m->problem.dtype, sigma);
    return tr_view_push(m->view);
}
