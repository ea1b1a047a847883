/* Dual coordinate descent. Each row has a dual variable. The worker of the row sets the variable to its minimum, row by row in
 * random order, and updates w = Σ α x / (λ n) immediately (Hsieh et al. 2008; Yu, Huang and Lin 2011). The method needs no step
 * size, and the dual value bounds the distance from the optimum.
 *
 * With more than two classes each row has one variable per class, and w has one weight per feature and class:
 *   one-against-rest   the classes are separate problems that share the passes over the rows
 *   softmax            the variables of a row are e_y - q with probabilities q, all of which change in one step (Yu, Huang and Lin
 *                      2011, section 5; here by Newton steps on log q and the multiplier of Σ q = 1)
 *
 * Each worker has a copy of w, and in every clock the workers merge: they add their changes of w. If the members of a group have
 * the same rows in shared memory, they merge their copies there, in several rounds per clock.
 *
 * A free bias (without penalty) is no function of the dual variables. It is learnt as anchor + b'. b' = c² Σ α / (λ n) has a
 * penalty, as the weight of a feature that is c in all rows. The anchor moves towards the bias: steps add a part of b' to it. This
 * is the proximal point method, whose dual is the method of multipliers (Rockafellar 1976). At the end b' and its penalty are
 * nearly 0. The anchor moves in many small steps, because the rows after a large step would have to compensate for it.
 *
 * c is small compared to |x|. With a large c, steps of different rows on the bias undo each other (20 newsgroups, svm: 17 passes to
 * a gap of 1e-3 with c² = |x|² = 1, 8 with c² = 0.03). But if c² is small compared to λ n, the bias changes too slowly (4000
 * clicks, logistic: 4 passes for c² = 400 λ, 8 for 120 λ). */
#include "../linear.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trireme/collective.h"

/* Number of steps of the anchor in an epoch; one per row if there are fewer rows. */
enum { ANCHOR_STEPS = 64 };

static bool dual_has_free_bias(const struct tr_linear *m)
{
    return m->problem.bias && !m->o->bias_l2;
}

/* Returns whether the members of a group have the same rows. */
static bool dual_has_common_rows(const struct tr_linear *m)
{
    return tr_group_size(m->tr) > 1 && tr_job_is(m->job, "data.partition", "replicated");
}

static int dual_check(const tr_job *job, const struct tr_linear_options *o)
{
    const struct tr_refusal list[] = {
        {!tr_job_is(job, "sync.weight", "sum"), "sync.weight",
         "sync.weight is for solve.method sgd: the dual needs whole updates"},
        {o->optimizer != TR_PLAIN_SGD, "solve.optimizer", "solve.optimizer is for solve.method sgd"},
        {o->l1 > 0, "model.l1", "model.l1 needs solve.method descent, or sgd with solve.optimizer ftrl"},
        {o->l2 == 0, "model.l2", "solve.method dual needs model.l2 > 0, or use solve.method sgd"},
        {tr_job_is(job, "data.partition", "vertical"), "data.partition",
         "data.partition vertical needs solve.method sgd: a dual step needs whole rows"},
        {.key = NULL}};
    return tr_linear_refuse_any(job, list);
}

/* ---- turns ---- */

/* An epoch of a worker is divided into n turns of equal numbers of rows. A clock, at whose end workers merge, has `every` turns. */
struct turns {
    int64_t n, every;
};

/* Sets turns and m->clocks_per_epoch from solve.batch and sync.push. workers: number of copies of w, which determines the default.
 *
 * On several nodes, more merges per pass reduce the number of passes, at best to the number that one node needs (passes of two
 * nodes to a gap of 1e-3 with 1, 4 and 16 turns in a pass: amazon-access 172, 41 and 15, rcv1 15, 4 and 4). But each merge costs a
 * pull and a push of the whole view: more than four turns are worth it only if a turn processes several non-zeros per key and takes
 * longer than a message. */
static struct turns turns_open(struct tr_linear *m, int workers)
{
    double rows = (double)m->train->total_rows, batch = (double)m->o->batch,
           nonzeros = (double)m->train->total_nonzeros / workers;
    double most = fmin(64, fmin(nonzeros / 1e4, nonzeros / (4 * (double)m->train->columns)));
    int64_t usual = workers == 1 ? 1 : (int64_t)fmax(tr_nodes(m->tr) > 1 ? 4 : 1, most);
    struct tr_job_often push;
    struct turns turns = {.n = batch > 0 ? (int64_t)fmax(1, round(rows / batch)) : usual};
    if (tr_job_often(m->job, "sync.push", &push) == TR_OK && push.unit == TR_OFTEN_PER_EPOCH)
        turns.n = (int64_t)fmax((double)turns.n, (double)push.n);
    turns.every = tr_linear_batches_of_clock(m, turns.n, 1);
    m->clocks_per_epoch = (turns.n + turns.every - 1) / turns.every;
    return turns;
}

/* Finds the range *begin .. *end - 1 of this clock in the order of the `rows` rows of an epoch. */
static void turns_of_clock(const struct tr_linear *m, const tr_worker *me, const struct turns *turns,
                           size_t rows, size_t *begin, size_t *end)
{
    int64_t first = me->clock % m->clocks_per_epoch * turns->every,
            last = first + turns->every < turns->n ? first + turns->every : turns->n;
    *begin = (size_t)((double)rows * (double)first / (double)turns->n);
    *end = (size_t)((double)rows * (double)last / (double)turns->n);
}

/* Sets `order` to a random order for this epoch, which depends on seed, stream and epoch only, so that a run can resume at any
 * clock. *ordered: number of the epoch of the current order + 1; 0: there is no order yet. */
static void turns_shuffle(const struct tr_linear *m, int64_t epoch, int64_t *ordered, uint64_t stream,
                          size_t first, size_t n, uint32_t *order)
{
    struct tr_rng rng;
    if (*ordered == epoch + 1) return;
    *ordered = epoch + 1;
    tr_rng_seed(&rng, m->seed, stream, (uint64_t)epoch);
    tr_data_permute(m->train, &rng, first, n, order);
}

/* ---- the free bias ---- */

/* Sets norm[i] to |x|² + c² for the rows first .. first + n - 1, and problem.of_bias to c². All workers, which get the same c². */
static int bias_norms(struct tr_linear *m, size_t first, size_t n, float *norm)
{
    struct tr_problem *p = &m->problem;
    double sum[2] = {0, (double)n};
    bool is_free = dual_has_free_bias(m);
    if (is_free) p->of_bias = 0;
    tr_row_norms(p, NULL, first, n, norm);
    if (!is_free) return TR_OK;
    for (size_t i = first; i < first + n; i++) sum[0] += (double)norm[i];
    TR_TRY(tr_all_reduce(m->tr, TR_SET_WORKERS, TR_SUM, TR_F64, sum, 2));
    p->of_bias = fmin(1, fmax(0.03 * sum[0] / fmax(sum[1], 1), 400 * m->l2));
    for (size_t i = first; i < first + n; i++) norm[i] += (float)p->of_bias;
    return TR_OK;
}

/* Returns a term to add to TR_LINEAR_CONJUGATE for a free bias that is not at its optimum. own: b' of this bias.
 *
 * The dual value is a lower bound only for weights with exactly this bias. The term estimates how much the objective could decrease
 * with another bias: its slope along the bias, Σ α / n, times the distance to the optimal bias. |bias| + 1 is a rough estimate of
 * the distance, but the slope is nearly 0 when the gap is small. */
static double bias_cost(const struct tr_linear *m, double bias, double own)
{
    return m->problem.n * m->l2 / m->problem.of_bias * (own * bias + fabs(own) * (1 + fabs(bias)));
}

/* ---- state ---- */

/* State in memory that the members of a group share. */
struct tr_linear_dual_group {
    _Atomic uint64_t resting; /* number of rows that rest in this clock */
};

struct tr_linear_dual {
    struct turns turns;
    float *a, *norm;   /* for each row of the problem: its dual variables, one per output; |x|² + c² */
    uint32_t *order;   /* order of the rows in the current epoch */
    int64_t ordered;   /* number of the current epoch + 1; 0: there is no order yet */
    size_t first, end; /* this worker owns the dual variables of the rows first .. end - 1 of the problem */
    int32_t *rests;    /* rests[i]: 1 if row i of the problem rests (see below); NULL: no row rests */
    double mean;       /* initial value of a free bias: margin of the best constant; 0 for classifiers */
    /* for each output: anchor of the bias, known to worker 0 and to its group if that shares w; sum of the anchor's steps in this
     * clock; sum of its steps in this round, if the group shares w */
    double *anchor, *moved, *moved_now;

    tr_table *table; /* table of w if the model m->w is the mean of w (below); NULL: m->w is w */
    tr_view *view;   /* view of w for training */
    size_t adds;     /* number of times per clock that w is added to the mean */
    void *average;   /* sum of values of w in this clock, then their mean; NULL if table is NULL */
    size_t added;    /* number of values in the sum */

    tr_set_memory *memory; /* memory of the arrays, if a group whose members have the same rows shares it */
    char *own;             /* memory of the arrays if this worker shares no rows; otherwise NULL */
    struct tr_linear_dual_group *group; /* state that the group shares; NULL: each worker has a copy of w */
    void *w;                            /* the w that the members of the group merge; NULL if group is NULL */
    tr_set_memory *of_copies;           /* memory of the copies */
    void *copies;                       /* copies of w: that of member k begins at element k × stride */
    size_t stride;
    size_t key,
        keys; /* keys key .. key + keys - 1 of w, which this member pulls, merges and pushes: its range */
    size_t working;                /* number of parts into which the rows of a round are divided */
    size_t class_parts;            /* number of parts into which the classes are divided */
    size_t part, class_part;       /* part of the rows, and of the classes, of this member */
    struct tr_class_block classes; /* its classes; none if it takes no steps */
    int64_t rounds;                /* number of rounds per clock */
    /* Factors of the keys. A step moves the copy of w by the factors `spread` times its change of w, and by sigma. The members of a
     * group divide by the factors `merge` when they merge. The rest is divided in the push. NULL codes: all factors are 1. */
    struct tr_spread merge, spread;
    double sigma;
    uint8_t *of_members; /* codes of `merge` */
    uint8_t *of_keys;    /* codes of `spread`, if there are more copies of w than the group merges */
};

/* Returns the index of the first element of the key `key` of w. */
static size_t dual_element(const struct tr_linear *m, size_t key)
{
    return key * m->outputs;
}

/* Moves the anchors of the outputs `own` by the fraction `part` of b', and their biases in w by the same amount, because b' follows
 * from the dual variables. Adds the steps to `sum` and, if it is not NULL, to the biases in `also`. */
static void bias_move_anchors(struct tr_linear *m, struct tr_class_block own, double part, double *sum,
                              void *w, void *also)
{
    double *anchor = m->dual->anchor;
    enum tr_dtype dtype = m->problem.dtype;
    for (size_t k = own.first; k < own.first + own.n; k++) {
        size_t bias = dual_element(m, m->problem.keys) + k;
        double by = part * (tr_real_get(dtype, w, bias) - anchor[k]);
        anchor[k] += by;
        sum[k] += by;
        tr_real_add(dtype, w, bias, by);
        if (also) tr_real_add(dtype, also, bias, by);
    }
}

/* Adds factor × by[k] to the biases of all outputs in w, whose first element is that of the key `first`. */
static void bias_add(const struct tr_linear *m, double factor, const double *by, size_t first, void *w)
{
    size_t bias = dual_element(m, m->problem.keys - first);
    for (size_t k = 0; k < m->outputs; k++)
        if (by[k] != 0) tr_real_add(m->problem.dtype, w, bias + k, factor * by[k]);
}

/* ---- the mean of w ---- */

/* If one worker or one group trains, the model is the mean of w over the last quarter of the steps of a clock.
 *
 * Each step fits one row, so that w oscillates around the optimum, more so if the rows are similar. (Simulated, passes to 1.001
 * times the optimum with w and with the mean: a9a, svm, 100 and 26; clicks 8 and 7.) Shalev-Shwartz and Zhang 2013 prove bounds of
 * the gap for such means. The objective of any weights is an upper bound of the optimum, so the mean of w and the current dual
 * variables prove a gap.
 *
 * If several groups merge their changes, the model is w. The table "w" always stores w itself, from which steps continue, because a
 * resumed job may have another number of groups. The mean is in a second table, "mean". */

static void mean_axpy(enum tr_dtype dtype, size_t n, const void *from, double scale, void *to)
{
    if (dtype == TR_F32)
        for (size_t i = 0; i < n; i++) ((float *)to)[i] += (float)scale * ((const float *)from)[i];
    else
        for (size_t i = 0; i < n; i++) ((double *)to)[i] += scale * ((const double *)from)[i];
}

static void mean_begin(struct tr_linear *m, size_t first, size_t n)
{
    struct tr_linear_dual *d = m->dual;
    size_t element = tr_real_size(m->problem.dtype);
    if (!d->table) return;
    memset((char *)d->average + first * element, 0, n * element);
    d->added = 0;
}

/* Adds the elements first .. first + n - 1 of w to the sum if one of the `adds` points of the last quarter of a clock lies between
 * the fractions `from` and `to` of its steps. */
static void mean_add(struct tr_linear *m, const void *w, size_t first, size_t n, double from, double to)
{
    struct tr_linear_dual *d = m->dual;
    size_t element = tr_real_size(m->problem.dtype);
    double points = 4 * (double)d->adds;
    if (!d->table || floor(fmax(0, from - 0.75) * points) == floor(fmax(0, to - 0.75) * points)) return;
    mean_axpy(m->problem.dtype, n, (const char *)w + first * element, 1,
              (char *)d->average + first * element);
    d->added++;
}

/* Adds the final w, divides the sum by the number of additions, and pushes the elements first .. first + n - 1 of the mean. */
static int mean_push(struct tr_linear *m, const void *w, size_t first, size_t n)
{
    struct tr_linear_dual *d = m->dual;
    enum tr_dtype dtype = m->problem.dtype;
    size_t element = tr_real_size(dtype);
    if (!d->table) return TR_OK;
    char *mean = (char *)d->average + first * element;
    double all = (double)d->added + 1;
    mean_axpy(dtype, n, (const char *)w + first * element, 1, mean);
    mean_axpy(dtype, n, mean, 1 / all - 1, mean);
    TR_TRY(tr_view_pull(m->view));
    memcpy(m->view->delta, mean, n * element);
    tr_linear_keep_difference(m->view, dtype, 1);
    return tr_view_push(m->view);
}

/* ---- rows that rest ---- */

/* A row of a hinge loss rests if its dual variable is at a bound and the margin of the model indicates that the variable will stay
 * there. Steps skip resting rows until the next evaluation. An evaluation visits all rows, so the gap is still the gap of all rows.
 * The other rows get more steps instead. (LIBLINEAR's shrinking uses slopes seen in steps; margins of the mean of w are more
 * reliable. Simulated on w8a, svm, to a gap of 1e-3: 41 passes and 41 steps per row without resting rows, 7 and 2 with them.) */

static bool rest_is_enabled(const struct tr_linear *m)
{
    return m->dual->table && m->outputs == 1 && (m->loss == &tr_loss_svm || m->loss == &tr_loss_l2svm);
}

/* Decides whether a row rests until the next evaluation. Evaluations call it as tr_linear.see. */
static void rest_see(struct tr_linear *m, size_t row, double margin)
{
    static const double distance = 0.1; /* rows whose margin is closer to the hinge do not rest */
    struct tr_linear_dual *d = m->dual;
    double a = (double)d->a[row], z = margin * (double)m->problem.target[row];
    d->rests[row] = (a <= 0 && z > 1 + distance) || (m->loss == &tr_loss_svm && a >= 1 && z < 1 - distance);
}

static uint64_t rest_count(const struct tr_linear_dual *d)
{
    uint64_t n = 0;
    for (size_t i = d->first; d->rests && i < d->end; i++) n += d->rests[i] != 0;
    return n;
}

/* Returns how often an epoch visits the rows that do not rest, so that its number of steps is about the number of all rows. */
static uint64_t rest_sweeps(const struct tr_linear *m, uint64_t resting)
{
    enum { MOST_SWEEPS = 8 };
    uint64_t rows = m->problem.rows.n, left = rows - resting;
    if (m->dual->turns.n > 1 || left == 0) return 1;
    return rows / left < MOST_SWEEPS ? rows / left : MOST_SWEEPS;
}

static size_t rest_remove(const struct tr_linear_dual *d, uint32_t *rows, size_t n)
{
    if (!d->rests) return n;
    size_t left = 0;
    for (size_t i = 0; i < n; i++) {
        rows[left] = rows[i];
        left += !d->rests[rows[i]];
    }
    return left;
}

/* ---- factors of the keys ---- */

/* Returns the part of the expected changes of the other copies that steps of the members of a group allow for. */
static double factors_allowance(size_t copies)
{
    return copies == 2 ? 0.3 : 0.5;
}

/* The same for copies that are merged only once per clock: their changes are larger, and with less the first passes overshoot. */
static const double ALLOWANCE_OF_CLOCK = 0.75;

/* Returns the probability that a copy of w changes at a key, which n of all rows have, in `steps` steps. */
static double factors_chance(double n, double all, double steps)
{
    return -expm1(steps * log1p(-fmin(1, n / fmax(1, all))));
}

/* Sets count[j] to the number of rows of all workers that have key j, or the bias. All workers. */
static int factors_count(struct tr_linear *m, double *count)
{
    struct tr_linear_dual *d = m->dual;
    struct tr_problem *p = &m->problem;
    struct tr_columns columns;
    TR_FREED double *own = NULL;
    for (size_t i = d->first, some; (some = tr_ready_piece(p, i, d->end - i)) > 0;)
        for (size_t stop = i + some; i < stop; i++) {
            struct tr_data_row x = tr_row_of(p, i);
            for (size_t k = 0; k < x.n; k++) count[tr_row_key(&x, k)] += tr_row_value(&x, k) != 0;
        }
    int status = tr_columns_open(&columns, m->tr, m->train->keys, p->keys, m->train->columns, 1);
    if (status == TR_OK) status = TR_NEW(&own, columns.n);
    if (status == TR_OK) status = tr_columns_sum(&columns, count, own);
    if (status == TR_OK) status = tr_columns_fetch(&columns, own, count);
    tr_columns_close(&columns);
    count[p->keys] = (double)m->train->total_rows;
    return status;
}

/* Sets d->spread to the product of d->merge and of the factors between the copies of w that are merged once per clock: those of
 * groups, or of workers if d->group is NULL. The next section derives the factors. */
static void factors_set(struct tr_linear *m, const double *count)
{
    struct tr_linear_dual *d = m->dual;
    size_t copies = (size_t)(d->group ? tr_groups(m->tr) : tr_workers(m->tr));
    double others = ALLOWANCE_OF_CLOCK * (double)(copies - 1), all = (double)m->train->total_rows,
           steps = all / (double)m->clocks_per_epoch / (double)copies,
           most = (1 + UINT8_MAX * (double)d->merge.unit) * (1 + others);
    d->spread = d->merge;
    if (!d->of_keys) return;
    d->spread = (struct tr_spread){d->of_keys, (float)((most - 1) / UINT8_MAX)};
    for (size_t j = d->key; j < d->key + d->keys; j++) {
        double in_group = d->merge.code ? tr_spread_factor(&d->merge, j) : 1,
               factor = in_group * (1 + others * factors_chance(count[j], all, steps));
        d->of_keys[j] = (uint8_t)fmin(UINT8_MAX, ceil((factor - 1) / (double)d->spread.unit));
    }
}

/* Replaces the copy of w in view->delta, which begins at d->key, by its change divided by the factors between copies. */
static void factors_keep_difference(struct tr_linear *m, tr_view *view)
{
    struct tr_linear_dual *d = m->dual;
    tr_linear_keep_difference(view, m->problem.dtype, d->sigma);
    for (size_t e = 0; d->of_keys && e < dual_element(m, d->keys); e++) {
        size_t j = d->key + e / m->outputs;
        double factor =
            tr_spread_factor(&d->spread, j) / (d->merge.code ? tr_spread_factor(&d->merge, j) : 1);
        tr_real_set(m->problem.dtype, view->delta, e, tr_real_get(m->problem.dtype, view->delta, e) / factor);
    }
}

/* ---- members of a group: private copies of w ---- */

/* The members of a group step on private copies of w, on different rows of a random order, and merge after each round: w changes by
 * the sum of their changes (SySCD, Ioannou, Mendler-Dünner and Parnell 2019). A shared w with atomic additions would need no merges,
 * but the cache lines of w would move between processors at each step.
 *
 * Steps of a member do not see those of the others in the round, which change the same w_j. If P members each changed w_j as if
 * they were alone, w_j would overshoot. It cannot if each member expects that the others do the same as it does, and moves w_j in
 * its copy s_j times its change, where s_j members change w_j in the round (Ma et al. 2015, lemma 4, for each key: the square of a
 * sum of s_j numbers is at most s_j times the sum of their squares). The expected number of other members that change w_j is
 * (P - 1) (1 - (1 - f_j)^m), where f_j is the fraction of rows with key j and m the number of rows of a member in a round. A part of
 * it is enough and takes fewer passes: half, or 0.3 of two members. (If each member takes one step and all rows have all keys,
 * s_j > P / 2 is enough.) Rare keys have s_j near 1, and their steps are as long as those of one worker.
 *
 * The classes of one-against-rest do not interact, so the members first divide the classes. The members with the same classes divide
 * the rows.
 *
 * Which rows a member takes depends on the number of members only, so runs on the same ranks are equal bit by bit.
 *
 * w is also in a table. In every clock each member pulls and pushes its range of w (d->key, d->keys), for other groups and for
 * checkpoints. */

/* Rows that a member takes between two polls. */
enum { TAKEN = 64 };

/* Returns the address of this member's range of w. */
static void *rounds_range(const struct tr_linear *m)
{
    return (char *)m->dual->w + dual_element(m, m->dual->key) * tr_real_size(m->problem.dtype);
}

/* Returns the first key of a member's range. Ranges are multiples of 16 keys, so that members share no cache lines. */
static size_t rounds_range_begin(const struct tr_linear *m, int member, int members)
{
    size_t n = m->problem.keys + m->problem.bias;
    return member == members ? n : n * (size_t)member / (size_t)members / 16 * 16;
}

/* Returns the number of rounds per clock if `working` members divide the rows. More rounds need fewer passes, but a merge visits all
 * keys of all copies, and the members wait for each other: a round is worth it if a member processes several non-zeros per key in it,
 * and takes longer than a message. One member needs rounds only for the mean of w. */
static int64_t rounds_choose(const struct tr_linear *m, size_t working)
{
    enum { LEAST = 4, MOST = 64, NONZEROS_OF_ROUND = 4096 };
    if (working == 1) return m->dual->table ? 4 * (int64_t)tr_min_size(LEAST, m->dual->adds) : 1;
    double clocks = (double)(m->clocks_per_epoch * tr_groups(m->tr)),
           nonzeros = (double)m->train->total_nonzeros / clocks / (double)working,
           keys = (double)m->problem.keys * (m->outputs > 1 ? 2 : 1), /* classes need no random access */
        rounds = fmin(nonzeros / keys, nonzeros * (double)m->outputs / NONZEROS_OF_ROUND);
    return (int64_t)fmin(MOST, fmax(LEAST, rounds));
}

/* Returns the number of rows that each of `working` members takes in a round. */
static double rounds_steps(const struct tr_linear *m, size_t working)
{
    return (double)m->problem.rows.n /
           (double)((size_t)(m->clocks_per_epoch * rounds_choose(m, working)) * working);
}

/* Sets d->class_parts and d->working. The number of passes grows with the mean of s_j over the non-zeros, and the time of a pass
 * falls with the number of members. If all rows have all keys, the mean is (P + 1) / 2, and many members are hardly faster than
 * three. Therefore the number of members that divide the rows is the largest with a mean of at most MOST_MEAN. */
static int rounds_choose_working(struct tr_linear *m, const double *count)
{
    enum { TRIED = 32, NONZEROS_OF_MEMBER = 32768 }; /* fewer take less time than the messages of a pass */
    static const double MOST_MEAN = 2;
    struct tr_linear_dual *d = m->dual;
    double all = (double)m->train->total_rows, sum[TRIED + 1] = {0};
    double nonzeros = (double)m->train->total_nonzeros / tr_groups(m->tr) * (double)m->outputs;
    size_t most = tr_min_size((size_t)tr_group_size(m->tr), (size_t)(nonzeros / NONZEROS_OF_MEMBER) + 1),
           tried[TRIED], n = 0;
    d->class_parts = m->softmax ? 1 : tr_min_size(most, m->outputs);
    most /= d->class_parts;
    for (size_t k = 1; k < most && n < TRIED - 1; k += k / 4 + 1) tried[n++] = k;
    tried[n++] = most;
    for (size_t j = d->key; j < d->key + d->keys && j < m->problem.keys; j++) {
        sum[TRIED] += count[j];
        for (size_t k = 1; k < n; k++)
            sum[k] += count[j] * factors_chance(count[j], all, rounds_steps(m, tried[k]));
    }
    TR_TRY(tr_all_reduce(m->tr, TR_SET_GROUP, TR_SUM, TR_F64, sum, TRIED + 1));
    d->working = 1;
    for (size_t k = 1; k < n; k++) {
        double mean = 1 + factors_allowance(tried[k]) * (double)(tried[k] - 1) * sum[k] / fmax(1, sum[TRIED]);
        if (mean <= MOST_MEAN) d->working = tried[k];
    }
    return TR_OK;
}

/* Returns the number of members that take steps, each on its copy of w. */
static size_t rounds_copies(const struct tr_linear_dual *d)
{
    return d->working * d->class_parts;
}

static struct tr_class_block rounds_classes(const struct tr_linear *m, size_t part)
{
    size_t parts = m->dual->class_parts, first = m->outputs * part / parts;
    return (struct tr_class_block){first, m->outputs * (part + 1) / parts - first};
}

/* Chooses how many members take steps, and sets the factors of the merges in the group. */
static int rounds_prepare(tr_worker *me, struct tr_linear *m, const double *count)
{
    struct tr_linear_dual *d = m->dual;
    struct tr_problem *p = &m->problem;
    size_t element = tr_real_size(p->dtype);
    if (me->member == 0) {
        struct tr_rng rng;
        tr_rng_seed(&rng, m->seed, (uint64_t)me->group, UINT64_MAX);
        tr_rng_permutation(&rng, d->order, p->rows.n);
    }
    TR_TRY(rounds_choose_working(m, count));
    d->rounds = rounds_choose(m, d->working);
    d->part = (size_t)me->member % d->working;
    d->class_part = (size_t)me->member / d->working;
    if (d->class_part < d->class_parts) d->classes = rounds_classes(m, d->class_part);
    d->stride = dual_element(m, (p->keys + 16) / 16 * 16);
    TR_TRY(tr_set_memory_open(m->tr, TR_SET_GROUP, rounds_copies(d) * d->stride * element, &d->of_copies));
    d->copies = tr_set_memory_at(d->of_copies);
    d->merge = (struct tr_spread){
        d->of_members, (float)(factors_allowance(d->working) * (double)(d->working - 1) / UINT8_MAX)};
    double steps = rounds_steps(m, d->working), all = (double)m->train->total_rows;
    for (size_t j = d->key; j < d->key + d->keys; j++)
        d->of_members[j] = (uint8_t)ceil(UINT8_MAX * factors_chance(count[j], all, steps));
    return TR_OK;
}

/* The order of an epoch follows from a fixed random order: position s has row order[(stride · s + start) mod n]. A new shuffle per
 * epoch would be serial work. */
struct rounds_order {
    uint64_t stride, start;
};

static struct rounds_order rounds_shuffle(const tr_worker *me, const struct tr_linear *m)
{
    uint64_t all = m->problem.rows.n;
    struct rounds_order order = {1, 0};
    struct tr_rng rng;
    if (all == 0) return order;
    tr_rng_seed(&rng, m->seed, (uint64_t)me->group, (uint64_t)(me->clock / m->clocks_per_epoch));
    order.start = tr_rng_below(&rng, all);
    for (uint64_t divisor = 0; divisor != 1;) { /* draws until stride and all have no common divisor but 1 */
        divisor = order.stride = tr_rng_below(&rng, all) + 1;
        for (uint64_t b = all, rest; b > 0; divisor = b, b = rest) rest = divisor % b;
    }
    return order;
}

/* Takes steps on this member's copy, for its classes: those at the positions begin .. end - 1 of the epoch's order. The members of
 * group 0 with part 0 of the rows move the anchors of the biases. */
static void rounds_take_steps(const tr_worker *me, struct tr_linear *m, struct rounds_order order,
                              uint64_t begin, uint64_t end)
{
    struct tr_linear_dual *d = m->dual;
    bool moves = dual_has_free_bias(m) && me->group == 0 && d->part == 0;
    uint64_t all = m->problem.rows.n, own = all / d->working + 1;
    size_t taken = moves ? tr_min_size(TAKEN, own / ANCHOR_STEPS + 1) : TAKEN;
    void *w = (char *)d->copies + (size_t)me->member * d->stride * tr_real_size(m->problem.dtype);
    uint32_t row[TAKEN];
    for (size_t k = 0; k < d->classes.n && moves; k++) d->moved_now[d->classes.first + k] = 0;
    for (uint64_t at = begin, n; at < end; at += n) {
        uint64_t place = (order.stride * (at % all) + order.start) % all;
        n = tr_min_size(taken, end - at);
        tr_seam();
        for (size_t i = 0; i < n; i++, place += order.stride) {
            if (place >= all) place -= all;
            row[i] = d->order[place];
        }
        tr_dual_pass(&m->problem, d->classes, row, rest_remove(d, row, n), d->sigma, &d->spread, d->norm,
                     d->a, m->margin, w);
        if (moves) bias_move_anchors(m, d->classes, (double)n / (double)own, d->moved_now, w, NULL);
    }
}

/* Returns whether the bias is free and in this member's range. */
static bool rounds_has_bias(const struct tr_linear *m)
{
    const struct tr_linear_dual *d = m->dual;
    return dual_has_free_bias(m) && d->key <= m->problem.keys && m->problem.keys < d->key + d->keys;
}

/* Adds the changes of all copies to this member's range of w. The steps of the anchor are added once. */
static void rounds_merge(struct tr_linear *m)
{
    struct tr_linear_dual *d = m->dual;
    size_t copies = rounds_copies(d), bytes = d->stride * tr_real_size(m->problem.dtype);
    bool has_bias = rounds_has_bias(m);
    for (size_t part = 0; part < d->class_parts; part++) {
        char *of_part = (char *)d->copies + part * d->working * bytes;
        struct tr_class_block own = rounds_classes(m, part);
        if (has_bias) bias_add(m, -1, d->moved_now, 0, of_part);
        tr_dual_merge(&m->problem, own, &d->merge, d->key, d->keys, of_part, d->stride, d->working, d->w);
    }
    if (!has_bias) return;
    bias_add(m, 1, d->moved_now, 0, d->w);
    for (size_t c = 0; c < copies; c++) bias_add(m, 1, d->moved_now, 0, (char *)d->copies + c * bytes);
    for (size_t k = 0; k < m->outputs; k++) d->moved[k] += d->moved_now[k];
}

/* Pulls this member's range of w into w. */
static int rounds_pull(struct tr_linear *m)
{
    struct tr_linear_dual *d = m->dual;
    TR_TRY(tr_view_pull(d->view));
    memcpy(rounds_range(m), d->view->value, dual_element(m, d->keys) * tr_real_size(m->problem.dtype));
    return TR_OK;
}

static int rounds_compute(tr_worker *me, struct tr_linear *m)
{
    struct tr_linear_dual *d = m->dual;
    struct tr_linear_dual_group *g = d->group;
    enum tr_dtype dtype = m->problem.dtype;
    size_t element = tr_real_size(dtype), begin, end, from = dual_element(m, d->key),
           n = dual_element(m, d->keys);
    bool has_bias = rounds_has_bias(m), starts_bias = me->clock == 0 && d->mean != 0;
    turns_of_clock(m, me, &d->turns, m->problem.rows.n, &begin, &end);
    TR_TRY(rounds_pull(m));
    if (!tr_in_lockstep(m->tr)) TR_TRY(tr_view_prefetch(d->view));
    /* a free bias starts at d->mean, in all groups; below, the group of worker 0 pushes d->mean */
    if (starts_bias && me->worker == 0) d->anchor[0] = d->mean;
    if (starts_bias && has_bias) {
        bias_add(m, 1, &d->mean, 0, d->w);
        bias_add(m, 1, &d->mean, d->key, d->view->value);
    }
    for (size_t c = 0; c < rounds_copies(d); c++)
        memcpy((char *)d->copies + (c * d->stride + from) * element, rounds_range(m), n * element);
    mean_begin(m, from, n);
    atomic_fetch_add(&g->resting, rest_count(d));
    if (has_bias) memset(d->moved, 0, m->outputs * sizeof *d->moved);
    TR_TRY(tr_barrier_of(me->tr, TR_SET_GROUP));

    struct rounds_order order = rounds_shuffle(me, m);
    /* members with other classes visit other rows, so that they share no cache lines of the dual variables */
    order.start = (order.start + m->problem.rows.n * d->class_part / d->class_parts) %
                  tr_max_size(1, m->problem.rows.n);
    int64_t sweeps = (int64_t)rest_sweeps(m, atomic_load(&g->resting)),
            rounds = d->rounds > sweeps ? d->rounds : sweeps; /* no row twice in a round */
    double steps = (double)(end - begin) * (double)sweeps / (double)rounds / (double)d->working;
    for (int64_t round = 0; round < rounds; round++) {
        double part = (double)((size_t)round * d->working + d->part);
        TR_TRY(tr_turn_begin(m->tr, "gradient"));
        if (d->classes.n > 0)
            rounds_take_steps(me, m, order, begin + (uint64_t)(part * steps),
                              begin + (uint64_t)((part + 1) * steps));
        TR_TRY(tr_turn_end(m->tr, TR_OK));
        TR_TRY(tr_barrier_of(me->tr, TR_SET_GROUP));
        rounds_merge(m);
        mean_add(m, d->w, from, n, (double)round / (double)rounds, (double)(round + 1) / (double)rounds);
        TR_TRY(tr_barrier_of(me->tr, TR_SET_GROUP));
    }
    if (me->member == 0) atomic_store(&g->resting, 0);
    TR_TRY(mean_push(m, d->w, from, n));
    /* pushes the changes of w divided by the factors, but the steps of the anchors undivided */
    if (has_bias) bias_add(m, -1, d->moved, 0, d->w);
    memcpy(d->view->delta, rounds_range(m), n * element);
    factors_keep_difference(m, d->view);
    if (has_bias && starts_bias && me->group == 0) d->moved[0] += d->mean;
    if (has_bias) bias_add(m, 1, d->moved, d->key, d->view->delta);
    return tr_view_push(d->view);
}

/* ---- opening ---- */

/* Returns whether the members share one w: they must have the same rows, and be in the same clock. */
static bool dual_shares_w(const struct tr_linear *m)
{
    return dual_has_common_rows(m) && tr_in_lockstep(m->tr);
}

/* Returns the number of copies of w that are merged once per clock. */
static int dual_copies(const struct tr_linear *m)
{
    return dual_shares_w(m) ? tr_groups(m->tr) : tr_workers(m->tr);
}

/* Returns whether these copies have a factor for each key. Otherwise the factor is solve.sigma. Without BSP a worker cannot expect
 * the changes of one clock only, so that it is the number of copies. */
static bool dual_has_factors(const struct tr_linear *m)
{
    return dual_copies(m) > 1 && tr_in_lockstep(m->tr) && m->o->sigma < 1;
}

/* Sets the pointers of the arrays to consecutive parts of `memory`, unless it is NULL. Returns the size of the memory. */
static size_t dual_lay_out(struct tr_linear *m, char *memory)
{
    struct tr_linear_dual *d = m->dual;
    size_t at = 0, rows = m->train->rows.n, keys = m->train->n_keys + 1, outputs = m->outputs,
           element = outputs * tr_real_size((enum tr_dtype)m->o->dtype);
    bool shares = dual_shares_w(m), has_mean = d->table != NULL;
    const struct {
        void **array;
        size_t bytes;
        bool exists;
    } list[] = {{(void **)&d->group, sizeof *d->group, shares},
                {(void **)&d->anchor, outputs * sizeof *d->anchor, true},
                {(void **)&d->moved, outputs * sizeof *d->moved, true},
                {(void **)&d->moved_now, outputs * sizeof *d->moved_now, shares},
                {(void **)&d->a, rows * outputs * sizeof *d->a, true},
                {(void **)&d->norm, rows * sizeof *d->norm, true},
                {(void **)&d->order, rows * sizeof *d->order, true},
                {&d->w, keys * element, shares},
                {(void **)&d->of_members, keys, shares},
                {(void **)&d->of_keys, keys, dual_has_factors(m)},
                {&d->average, keys * element, has_mean},
                {(void **)&d->rests, rows * sizeof *d->rests, rest_is_enabled(m)}};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        if (!list[i].exists) continue;
        if (memory) *list[i].array = memory + at;
        at += (list[i].bytes + 63) / 64 * 64;
    }
    return at;
}

static int dual_open(struct tr_linear *m)
{
    TR_TRY(tr_agree(m->tr, TR_NEW(&m->dual, 1)));
    struct tr_linear_dual *d = m->dual;
    d->turns = turns_open(m, dual_copies(m));
    d->sigma = m->o->sigma >= 1 ? m->o->sigma : dual_has_factors(m) ? 1 : dual_copies(m);
    if (dual_copies(m) == 1) {
        /* an addition to the mean is a pass over all keys, so a clock with few non-zeros per key has few additions */
        enum { LEAST_ADDED = 2, MOST_ADDED = 32, NONZEROS_FOR_KEY = 32 };
        double nonzeros = (double)m->train->total_nonzeros / (double)m->clocks_per_epoch,
               adds = nonzeros / (NONZEROS_FOR_KEY * (double)m->train->columns);
        d->adds = (size_t)fmax(LEAST_ADDED, fmin(MOST_ADDED, adds));
        d->table = m->w;
        TR_TRY(tr_linear_make_table(m, "mean", "w", &m->w));
    }
    if (!m->o->bias_l2) d->mean = m->start;
    int status = TR_OK;
    if (tr_roles(m->tr) & TR_SLAVE && dual_has_common_rows(m)) {
        status = tr_set_memory_open(m->tr, TR_SET_GROUP, dual_lay_out(m, NULL), &d->memory);
        if (status == TR_OK) dual_lay_out(m, tr_set_memory_at(d->memory));
    } else if (tr_roles(m->tr) & TR_SLAVE) {
        status = TR_NEW(&d->own, dual_lay_out(m, NULL));
        if (status == TR_OK) dual_lay_out(m, d->own);
    }
    return tr_agree(m->tr, status);
}

static void dual_close(struct tr_linear *m)
{
    struct tr_linear_dual *d = m->dual;
    if (!d) return;
    if (d->table) tr_view_close(&d->view);
    free(d->own);
    tr_set_memory_close(&d->of_copies);
    tr_set_memory_close(&d->memory);
    free(d);
    m->dual = NULL;
}

/* ---- the stage ---- */

static int dual_prepare(tr_worker *me, void *state)
{
    struct tr_linear *m = state;
    struct tr_linear_dual *d = m->dual;
    if (rest_is_enabled(m)) m->see = rest_see;
    TR_TRY((d->group ? tr_linear_prepare_rows : tr_linear_prepare)(me, m, 0));
    d->first = tr_data_part_begin(m->train, me);
    d->end = tr_data_part_end(m->train, me);
    TR_TRY(bias_norms(m, d->first, d->end - d->first, d->norm));
    /* softmax: α = e_y - q starts at 0 */
    for (size_t i = d->first; m->softmax && i < d->end; i++)
        d->a[i * m->outputs + (size_t)m->problem.target[i]] = 1;
    if (d->group) { /* opens views of this member's range of w */
        TR_FREED tr_key *keys = NULL;
        d->key = rounds_range_begin(m, me->member, me->group_size);
        d->keys = rounds_range_begin(m, me->member + 1, me->group_size) - d->key;
        TR_TRY(TR_NEW(&keys, d->keys));
        for (size_t i = 0; i < d->keys; i++)
            keys[i] = d->key + i < m->train->n_keys ? m->train->keys[d->key + i] : m->train->columns;
        TR_TRY(tr_view_open(m->w, keys, d->keys, TR_VIEW_UPDATE, &m->view));
        if (d->table) TR_TRY(tr_view_open(d->table, keys, d->keys, TR_VIEW_UPDATE, &d->view));
    } else if (d->table) {
        TR_TRY(tr_linear_open_view(m, me, m->train, d->table, TR_VIEW_UPDATE, &d->view));
    }
    if (!d->table) d->view = m->view;
    if (!d->group && !d->of_keys) return TR_OK;
    TR_FREED double *count = NULL;
    TR_TRY(TR_NEW(&count, m->problem.keys + 1));
    TR_TRY(factors_count(m, count));
    if (d->group) TR_TRY(rounds_prepare(me, m, count));
    else d->keys = m->problem.keys + m->problem.bias;
    factors_set(m, count);
    TR_TRY(tr_barrier_of(me->tr, TR_SET_GROUP));
    tr_row_norms(&m->problem, &d->spread, d->first, d->end - d->first, d->norm);
    return tr_barrier_of(me->tr, TR_SET_GROUP);
}

/* Each worker minimises the dual over its rows, starting from its copy of w, and applies the factors of the keys or sigma to its own
 * changes (CoCoA+, Ma et al. 2015). Worker 0 moves the anchors. If values of other workers are stale, it moves them by a slightly
 * different amount, which does no harm. */
static int dual_compute(tr_worker *me, void *state)
{
    enum { LISTED = 256 };
    struct tr_linear *m = state;
    struct tr_linear_dual *d = m->dual;
    enum tr_dtype dtype = m->problem.dtype;
    struct tr_class_block all_classes = {0, m->outputs};
    size_t begin, end, rows = d->end - d->first;
    uint32_t list[LISTED];
    if (d->group) return rounds_compute(me, m);
    turns_shuffle(m, me->clock / m->clocks_per_epoch, &d->ordered, (uint64_t)me->worker, d->first, rows,
                  d->order + d->first);
    TR_TRY(tr_view_pull(d->view));
    if (!tr_in_lockstep(m->tr)) TR_TRY(tr_view_prefetch(d->view));
    bool moves = dual_has_free_bias(m) && me->worker == 0;
    if (moves) memset(d->moved, 0, m->outputs * sizeof *d->moved);
    if (me->clock == 0 && d->mean != 0) { /* all workers start at d->mean; worker 0 pushes it */
        bias_add(m, 1, &d->mean, 0, d->view->value);
        if (me->worker == 0) d->anchor[0] = d->moved[0] = d->mean;
    }
    tr_linear_copy_to_delta(d->view, dtype);
    size_t elements = dual_element(m, d->view->n);
    mean_begin(m, 0, elements);
    turns_of_clock(m, me, &d->turns, rows, &begin, &end);

    size_t part = end - begin, all = part * rest_sweeps(m, rest_count(d));
    size_t step = moves ? rows / ANCHOR_STEPS + 1 : part;
    if (d->table) step = tr_min_size(step, part / (4 * d->adds) + 1); /* at most one addition to the mean */
    TR_TRY(tr_turn_begin(m->tr, "gradient"));
    for (size_t at = 0, n; at < all; at += n) {
        size_t place = begin + at % part;
        n = tr_data_ready_in(m->train, d->order + d->first, place, tr_min_size(step, end - place));
        if (n == 0) break;
        for (size_t stop = place + n, listed; place < stop; place += listed) {
            listed = tr_min_size(LISTED, stop - place);
            tr_seam();
            memcpy(list, d->order + d->first + place, listed * sizeof *list);
            tr_dual_pass(&m->problem, all_classes, list, rest_remove(d, list, listed), d->sigma,
                         d->of_keys ? &d->spread : NULL, d->norm, d->a, m->margin, d->view->delta);
        }
        if (moves)
            bias_move_anchors(m, all_classes, (double)n / (double)rows, d->moved, d->view->delta,
                              d->view->value);
        mean_add(m, d->view->delta, 0, elements, (double)at / (double)all, (double)(at + n) / (double)all);
    }
    TR_TRY(tr_turn_end(m->tr, TR_OK));

    TR_TRY(mean_push(m, d->view->delta, 0, elements));
    factors_keep_difference(m, d->view);
    if (moves) bias_add(m, 1, d->moved, 0, d->view->delta);
    return tr_view_push(d->view);
}

static int dual_evaluate(tr_worker *me, void *state, tr_report *report)
{
    struct tr_linear *m = state;
    struct tr_linear_dual *d = m->dual;
    size_t element = tr_real_size(m->problem.dtype);
    if (d->group) { /* each member pulls its range of w and of the mean into the shared memory */
        TR_TRY(rounds_pull(m));
        if (d->table) {
            TR_TRY(tr_view_pull(m->view));
            memcpy((char *)d->average + dual_element(m, d->key) * element, m->view->value,
                   dual_element(m, d->keys) * element);
        }
        TR_TRY(tr_barrier_of(me->tr, TR_SET_GROUP));
        TR_TRY(tr_linear_evaluate_at(me, m, d->table ? d->average : d->w, m->test_view, report));
    } else {
        TR_TRY(tr_linear_evaluate(me, state, report));
        if (d->table) TR_TRY(tr_view_pull(d->view));
    }
    if (me->worker == 0) { /* adds the terms of |w|² and of the bias in the dual value to CONJUGATE */
        const void *w = d->group ? d->w : m->fresh_view && !d->table ? m->fresh_view->value : d->view->value;
        double squares, costs = 0;
        TR_TRY(tr_table_squares(d->table ? d->table : m->w, &squares));
        for (size_t k = 0; k < m->outputs && dual_has_free_bias(m); k++) {
            double bias = tr_real_get(m->problem.dtype, w, dual_element(m, m->problem.keys) + k);
            squares -= bias * bias;
            costs += bias_cost(m, bias, bias - d->anchor[k]);
        }
        report->sum[TR_LINEAR_CONJUGATE] += m->problem.n * 0.5 * m->l2 * squares + costs;
    }
    report->sum[TR_LINEAR_CONJUGATE] += tr_dual_sum(&m->problem, d->first, d->end - d->first, d->a);
    return TR_OK;
}

static int dual_summarize(void *state, const tr_report *report, tr_evaluation *evaluation)
{
    struct tr_linear *m = state;
    TR_TRY(tr_linear_summarize(m, report, evaluation));
    /* of the mean; CONJUGATE contains the penalty of w instead */
    double dual = tr_linear_dual_value(m, report) + tr_linear_penalty(m, report);
    tr_linear_prove(m, evaluation->objective - dual, false, evaluation);
    return TR_OK;
}

/* Lists the anchors: worker 0 lists them, the others list zeros. */
static int bias_keep_anchors(tr_worker *me, struct tr_linear *m, tr_snapshot *snapshot)
{
    TR_FREED double *anchor = NULL;
    size_t bytes = m->outputs * sizeof *anchor;
    TR_TRY(TR_NEW(&anchor, m->outputs));
    if (me->worker == 0) memcpy(anchor, m->dual->anchor, bytes);
    TR_TRY(tr_model_keep_sums(me, snapshot, "anchor", m->outputs, anchor));
    if (me->worker == 0) memcpy(m->dual->anchor, anchor, bytes);
    return TR_OK;
}

/* The order of rows follows from the seed and the epoch, so that it is not listed. */
static int dual_snapshot(tr_worker *me, void *state, tr_snapshot *snapshot)
{
    struct tr_linear *m = state;
    struct tr_linear_dual *d = m->dual;
    size_t rows = m->train->rows.n, outputs = m->outputs;
    TR_FREED float *of_class = NULL;
    TR_TRY(tr_linear_keep_summary(m, snapshot));
    TR_TRY(bias_keep_anchors(me, m, snapshot));
    int32_t rests = rest_is_enabled(m);
    TR_TRY(tr_snapshot_common(snapshot, "rows_rest", TR_I32, 1, &rests));
    if (rests && rest_is_enabled(m)) /* the run that wrote the checkpoint and this run both let rows rest */
        TR_TRY(tr_data_keep(m->train, snapshot, "rests", TR_I32, d->rests));
    if (outputs == 1) return tr_data_keep(m->train, snapshot, "dual", TR_F32, d->a);
    TR_TRY(TR_NEW(&of_class, rows));
    for (size_t k = 0; k < outputs; k++) {
        char name[32];
        snprintf(name, sizeof name, "dual_%zu", k);
        for (size_t i = 0; i < rows && d->a; i++) of_class[i] = d->a[i * outputs + k];
        TR_TRY(tr_data_keep(m->train, snapshot, name, TR_F32, of_class));
        for (size_t i = 0; i < rows && d->a && tr_snapshot_restores(snapshot); i++)
            d->a[i * outputs + k] = of_class[i];
    }
    return TR_OK;
}

bool tr_linear_dual_variables(const struct tr_linear *m, size_t row, double *u)
{
    const struct tr_problem *p = &m->problem;
    const struct tr_linear_dual *d = m->dual;
    double sum = 0, low = -INFINITY, high = INFINITY;
    if (!d || !d->a || row < d->first || row >= d->end) return false;
    const float *a = d->a + row * m->outputs;
    for (size_t k = 0; k < m->outputs; k++) sum += (double)a[k];
    for (size_t k = 0; k < m->outputs; k++) {
        double y = tr_row_target(p, row, k), sign = tr_linear_classifies(m) ? y : 1;
        u[k] = m->softmax ? (double)a[k] / sum - (y > 0) : -sign * (double)a[k];
        if (m->softmax) continue;
        if (p->loss->corner) p->loss->corner(y, p->shape, &low, &high);
        else if (p->loss->shape == TR_SHAPE_DELTA) low = -p->shape, high = p->shape;
        u[k] = fmin(fmax(u[k], low), high);
    }
    return true;
}

const struct tr_linear_method tr_linear_dual = {.check = dual_check,
                                                .open = dual_open,
                                                .prepare = dual_prepare,
                                                .compute = dual_compute,
                                                .evaluate = dual_evaluate,
                                                .summarize = dual_summarize,
                                                .snapshot = dual_snapshot,
                                                .close = dual_close,
                                                .many_outputs = true,
                                                .weighs_rows = true,
                                                .passes = true,
                                                .minimises = TR_LOSS_STEP,
                                                .diverged = "raise solve.sigma"};
