/* The stages of variance reduction for one element type. steps.c includes this file once per type, hence no guard; it defines REAL
 * (the type), SWAP (compare and swap of it) and NAME(x). Elements are REAL in memory; arithmetic is in doubles, because small
 * differences of slopes would be lost in f32. */

struct NAME(model) {
    const struct tr_variance *v;
    REAL *w, *z;
    double *sum;
    const REAL *snapshot, *mu;
    uint32_t *last;
    const tr_updates *updates;
};

ALWAYS struct NAME(model)
    NAME(model_of)(const struct tr_variance *v, const struct tr_variance_model *m, const tr_updates *updates)
{
    return (struct NAME(model)){.v = v,
                                .w = m->w,
                                .z = m->z,
                                .sum = m->sum,
                                .snapshot = m->snapshot,
                                .mu = m->mu,
                                .last = m->last,
                                .updates = updates};
}

/* ---- one coordinate, at place j of every array ---- */

/* Returns the constant f of the map of a coordinate. */
ALWAYS double NAME(force)(const struct NAME(model) * m, int shape, int side, size_t j)
{
    double f = (double)m->mu[j];
    return shape == KATYUSHA ? f + m->v->side[side].l2 * (double)m->snapshot[j] : f;
}

/* Returns the numbers of a coordinate, for katyusha relative to the snapshot. */
ALWAYS struct point NAME(point)(const struct NAME(model) * m, int shape, size_t j)
{
    if (shape == PLAIN) return (struct point){.y = (double)m->w[j]};
    if (shape == MEAN) return (struct point){.y = (double)m->w[j], .s = m->sum[j]};
    double at = (double)m->snapshot[j];
    return (struct point){.z = (double)m->z[j] - at, .y = (double)m->w[j] - at, .s = m->sum[j]};
}

/* Returns element j of the point at which step t computes its slopes (w; katyusha: x), without changing the model. */
ALWAYS double NAME(read)(const struct NAME(model) * m, int shape, int side, size_t j, uint32_t t)
{
    if (shape == SNAPSHOT) return (double)m->snapshot[j];
    const struct side *of = &m->v->side[side];
    uint32_t missed = steps_missed(t, m->last[j]);
    if (shape != KATYUSHA) {
        double f = NAME(force)(m, shape, side, j), w = (double)m->w[j];
        return shape == PLAIN ? after_plain(of, missed, w, f) : after_mean_w(of, missed, w, f);
    }
    struct point at = NAME(point)(m, shape, j);
    after(shape, of, missed, NAME(force)(m, shape, side, j), &at);
    return (double)m->snapshot[j] + m->v->tau1 * at.z + m->v->tau3 * at.y;
}

/* Applies the missed steps before step t, and adds dz to z and dy to the iterate. */
ALWAYS void NAME(change)(const struct NAME(model) * m, int shape, int side, size_t j, uint32_t t, double dz,
                         double dy)
{
    uint32_t seen = m->last[j], missed = steps_missed(t, seen);
    m->last[j] = seen + missed;
    struct point at = NAME(point)(m, shape, j);
    after(shape, &m->v->side[side], missed, NAME(force)(m, shape, side, j), &at);
    double from = shape == KATYUSHA ? (double)m->snapshot[j] : 0;
    if (shape == KATYUSHA) m->z[j] = (REAL)(at.z + dz + from);
    m->w[j] = (REAL)(at.y + dy + from);
    if (shape != PLAIN) m->sum[j] = at.s + dy;
}

/* As change(), if other processes change the coordinate at the same time. The process that increases last[j] applies the missed
 * steps. z, w and sum change by one atomic operation each. */
ALWAYS void NAME(change_atomic)(const struct NAME(model) * m, int shape, int side, size_t j, uint32_t t,
                                double dz, double dy)
{
    uint32_t seen = __atomic_load_n(&m->last[j], __ATOMIC_RELAXED);
    while (seen < t &&
           !__atomic_compare_exchange_n(&m->last[j], &seen, t, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
    uint32_t missed = steps_missed(t, seen);
    const struct side *of = &m->v->side[side];
    double f = NAME(force)(m, shape, side, j), from = shape == KATYUSHA ? (double)m->snapshot[j] : 0;
    struct point was = NAME(point)(m, shape, j), at;
    if (shape == KATYUSHA) {
        REAL z = m->z[j];
        do {
            at = was;
            at.z = was.z = (double)z - from;
            after(shape, of, missed, f, &at);
        } while (!SWAP(&m->z[j], &z, (REAL)(at.z + dz + from)));
    }
    REAL w = m->w[j];
    do {
        at = was;
        at.y = was.y = (double)w - from;
        after(shape, of, missed, f, &at);
    } while (!SWAP(&m->w[j], &w, (REAL)(at.y + dy + from)));
    if (shape == PLAIN) return;
    do {
        at = was;
        after(shape, of, missed, f, &at);
    } while (!swap_f64(&m->sum[j], &was.s, at.s + dy));
}

/* ---- one row ---- */

/* The coordinates of a row are processed chunk by chunk. enter() locks or holds the chunk of coordinate j, if the kind of access
 * requires it; stays() tests whether j is in the same chunk; leave() releases the chunk. */
ALWAYS struct visit NAME(enter)(const struct NAME(model) * m, int kind, size_t j)
{
    const tr_updates *u = m->updates;
    if (kind != TR_UPDATE_LOCKED && kind != HELD) return (struct visit){0, 0};
    size_t chunk = j >> u->shift;
    if (kind == HELD) return (struct visit){chunk, tr_replica_hold(u->replica, chunk) - (chunk << u->shift)};
    steps_lock(&u->lock[chunk * TR_LOCK_STRIDE]);
    return (struct visit){chunk, 0};
}

ALWAYS bool NAME(stays)(const struct NAME(model) * m, int kind, struct visit at, size_t j)
{
    return (kind != TR_UPDATE_LOCKED && kind != HELD) || j >> m->updates->shift == at.chunk;
}

ALWAYS void NAME(leave)(const struct NAME(model) * m, int kind, struct visit at, bool changed)
{
    if (kind == TR_UPDATE_LOCKED)
        __atomic_store_n(&m->updates->lock[at.chunk * TR_LOCK_STRIDE], 0, __ATOMIC_RELEASE);
    if (kind == HELD) tr_replica_release(m->updates->replica, at.chunk, changed);
}

/* Returns the margin of row i at the point of step t, or at the snapshot. */
ALWAYS double NAME(margin)(const struct NAME(model) * m, int shape, int kind, size_t i, uint32_t t)
{
    const struct tr_problem *p = m->v->problem;
    const uint32_t *column = p->rows.column;
    const float *value = p->rows.value;
    uint64_t k = p->rows.begin[i], end = p->rows.begin[i + 1];
    double a = tr_row_offset(p, i), b = 0,
           c = 0; /* three sums in turn, so that the processor overlaps the additions */
    while (k < end) {
        struct visit at = NAME(enter)(m, kind, column[k]);
        do {
            double x = NAME(read)(m, shape, WEIGHT, column[k] + at.offset, t),
                   sum = value ? a + (double)value[k] * x : a + x;
            a = b;
            b = c;
            c = sum;
        } while (++k < end && NAME(stays)(m, kind, at, column[k]));
        NAME(leave)(m, kind, at, false);
    }
    if (!p->bias) return a + b + c;
    struct visit at = NAME(enter)(m, kind, p->keys);
    a += NAME(read)(m, shape, BIAS, p->keys + at.offset, t);
    NAME(leave)(m, kind, at, false);
    return a + b + c;
}

ALWAYS void NAME(move)(const struct NAME(model) * m, int shape, int kind, int side, size_t j, uint32_t t,
                       double dz, double dy)
{
    bool atomic = kind == TR_UPDATE_ATOMIC || (kind == HELD && m->updates->mode == TR_UPDATE_ATOMIC);
    if (atomic) NAME(change_atomic)(m, shape, side, j, t, dz, dy);
    else NAME(change)(m, shape, side, j, t, dz, dy);
}

/* Applies missed steps to the coordinates of row i, and adds -by x_i times the rates. */
ALWAYS void NAME(move_row)(const struct NAME(model) * m, int shape, int kind, size_t i, uint32_t t, double by)
{
    const struct tr_problem *p = m->v->problem;
    const uint32_t *column = p->rows.column;
    const float *value = p->rows.value;
    uint64_t k = p->rows.begin[i], end = p->rows.begin[i + 1];
    const struct side *side = &m->v->side[WEIGHT];
    double dz = -by * side->rate_z, dy = -by * side->rate_y;
    while (k < end) {
        struct visit at = NAME(enter)(m, kind, column[k]);
        do {
            double x = value ? (double)value[k] : 1;
            NAME(move)(m, shape, kind, WEIGHT, column[k] + at.offset, t, dz * x, dy * x);
        } while (++k < end && NAME(stays)(m, kind, at, column[k]));
        NAME(leave)(m, kind, at, true);
    }
    if (!p->bias) return;
    struct visit at = NAME(enter)(m, kind, p->keys);
    side = &m->v->side[BIAS];
    NAME(move)(m, shape, kind, BIAS, p->keys + at.offset, t, -by * side->rate_z, -by * side->rate_y);
    NAME(leave)(m, kind, at, true);
}

/* Returns x_i · w + offset for a vector that does not change, with the same bits as margin(). */
ALWAYS double NAME(dot)(const struct tr_problem *p, size_t i, const REAL *w)
{
    const uint32_t *column = p->rows.column;
    const float *value = p->rows.value;
    uint64_t end = p->rows.begin[i + 1];
    uint64_t k = p->rows.begin[i];
    double a = tr_row_offset(p, i), b = 0, c = 0;
    for (; k + 3 <= end && value; k += 3) {
        a += (double)value[k] * (double)w[column[k]];
        b += (double)value[k + 1] * (double)w[column[k + 1]];
        c += (double)value[k + 2] * (double)w[column[k + 2]];
    }
    for (; k + 3 <= end; k += 3) {
        a += (double)w[column[k]];
        b += (double)w[column[k + 1]];
        c += (double)w[column[k + 2]];
    }
    for (; k < end; k++) {
        double x = (double)w[column[k]], sum = value ? a + (double)value[k] * x : a + x;
        a = b;
        b = c;
        c = sum;
    }
    return (p->bias ? a + (double)w[p->keys] : a) + b + c;
}

/* ---- steps ---- */

/* Draws a row, some rows before it is used, and prefetches its data. */
ALWAYS void NAME(draw)(struct tr_variance *v, const struct tr_draw *from, const REAL *slope, uint64_t drawn)
{
    size_t i = from->first + (size_t)tr_rng_below(from->rng, from->n);
    v->row[drawn & v->mask] = i;
    __builtin_prefetch(&v->problem->rows.begin[i]);
    __builtin_prefetch(&v->problem->target[i]);
    if (slope) __builtin_prefetch(&slope[i]);
}

ALWAYS void NAME(fetch_row)(const struct tr_problem *p, size_t i)
{
    for (uint64_t k = p->rows.begin[i]; k < p->rows.begin[i + 1]; k += 16) {
        __builtin_prefetch(&p->rows.column[k]);
        if (p->rows.value) __builtin_prefetch(&p->rows.value[k]);
    }
}

ALWAYS void NAME(fetch_model)(const struct NAME(model) * m, int shape, size_t i)
{
    const struct tr_problem *p = m->v->problem;
    for (uint64_t k = p->rows.begin[i]; k < p->rows.begin[i + 1]; k++) {
        uint32_t j = p->rows.column[k];
        __builtin_prefetch(&m->w[j], 1);
        __builtin_prefetch(&m->last[j], 1);
        __builtin_prefetch(&m->mu[j]);
        if (shape != PLAIN) __builtin_prefetch(&m->sum[j], 1);
        if (shape != KATYUSHA) continue;
        __builtin_prefetch(&m->z[j], 1);
        __builtin_prefetch(&m->snapshot[j]);
    }
}

/* Returns φ' of row i at the point of step t minus φ' at the snapshot. */
ALWAYS double NAME(slope)(const struct NAME(model) * m, int shape, int kind, size_t i, const REAL *slope,
                          uint32_t t)
{
    const struct tr_problem *p = m->v->problem;
    double y = (double)p->target[i];
    double at = tr_loss_slope(p->loss, NAME(margin)(m, shape, kind, i, t), y, p->shape);
    if (slope) return at - (double)slope[i];
    /* rounded to REAL, as the full stage rounds slopes */
    return at - (double)(REAL)tr_loss_slope(p->loss, NAME(margin)(m, SNAPSHOT, kind, i, t), y, p->shape);
}

ALWAYS void NAME(steps)(struct tr_variance *v, const struct NAME(model) * m, int shape, int kind,
                        const struct tr_draw *from, const REAL *slope, uint64_t steps, _Atomic uint64_t *step)
{
    uint64_t rows = steps * v->batch, used = 0, drawn = 0, mine = 0, t = 0;
    while (drawn < rows && drawn < LEAD) NAME(draw)(v, from, slope, drawn++);
    for (uint64_t s = 0; s < steps; s++, t++, mine--) {
        if (!mine) {
            mine = steps - s < v->reserve ? steps - s : v->reserve;
            t = atomic_fetch_add_explicit(step, mine, memory_order_relaxed);
        }
        for (size_t r = 0; r < v->batch; r++) {
            if (drawn < rows) NAME(draw)(v, from, slope, drawn++);
            if (used + r + LEAD / 2 < drawn)
                NAME(fetch_row)(v->problem, v->row[(used + r + LEAD / 2) & v->mask]);
            if (v->is_large && kind != HELD && used + r + LEAD / 4 < drawn)
                NAME(fetch_model)(m, shape, v->row[(used + r + LEAD / 4) & v->mask]);
            v->slope[r] = NAME(slope)(m, shape, kind, v->row[(used + r) & v->mask], slope, (uint32_t)t);
        }
        for (size_t r = 0; r < v->batch; r++)
            if (v->slope[r] != 0)
                NAME(move_row)(m, shape, kind, v->row[(used + r) & v->mask], (uint32_t)t + 1, v->slope[r]);
        used += v->batch;
    }
}

#define STEPS(shape, kind) NAME(steps)(v, &m, shape, kind, from, slope, steps, model->step)
#define STEPS_OF(shape)                                                                                      \
    static __attribute__((noinline)) void NAME(shape##_steps)(                                               \
        struct tr_variance * v, const struct tr_draw *from, const void *slope, uint64_t steps,               \
        const struct tr_variance_model *model, const tr_updates *updates)                                    \
    {                                                                                                        \
        struct NAME(model) m = NAME(model_of)(v, model, updates);                                            \
        switch (!updates ? TR_UPDATE_HOGWILD : updates->replica ? HELD : (int)updates->mode) {               \
        case HELD: STEPS(shape, HELD); break;                                                                \
        case TR_UPDATE_LOCKED: STEPS(shape, TR_UPDATE_LOCKED); break;                                        \
        case TR_UPDATE_ATOMIC: STEPS(shape, TR_UPDATE_ATOMIC); break;                                        \
        default: STEPS(shape, TR_UPDATE_HOGWILD);                                                            \
        }                                                                                                    \
    }
STEPS_OF(PLAIN)
STEPS_OF(MEAN)
STEPS_OF(KATYUSHA)
#undef STEPS_OF
#undef STEPS

/* ---- all coordinates ---- */

static void NAME(settle)(const struct tr_variance *v, const struct tr_variance_model *model, size_t from,
                         size_t to, size_t place)
{
    struct NAME(model) m = NAME(model_of)(v, model, NULL);
    uint32_t t = (uint32_t)atomic_load(model->step);
    for (size_t j = from; j < to; j++) {
        int side = v->problem->bias && j == v->problem->keys ? BIAS : WEIGHT;
        size_t at = place + (j - from);
        switch (v->shape) {
        case PLAIN: NAME(change)(&m, PLAIN, side, at, t, 0, 0); break;
        case MEAN: NAME(change)(&m, MEAN, side, at, t, 0, 0); break;
        default: NAME(change)(&m, KATYUSHA, side, at, t, 0, 0);
        }
    }
}

static void NAME(snapshot)(const struct tr_variance *v, const struct tr_variance_model *m, size_t from,
                           size_t to, REAL *into)
{
    double part = 1 / steps_total_weight(v, atomic_load(m->step));
    const REAL *w = m->w, *old = m->snapshot;
    for (size_t j = from; j < to; j++)
        into[j] = v->shape == PLAIN  ? w[j]
                  : v->shape == MEAN ? (REAL)(part * m->sum[j])
                                     : (REAL)((double)old[j] + part * m->sum[j]);
}

/* ---- the full gradient ---- */

static inline void NAME(add_row)(const struct tr_problem *p, size_t i, double slope, double *gradient)
{
    const uint32_t *column = p->rows.column;
    const float *value = p->rows.value;
    uint64_t end = p->rows.begin[i + 1];
    if (value)
        for (uint64_t k = p->rows.begin[i]; k < end; k++) gradient[column[k]] += slope * (double)value[k];
    else
        for (uint64_t k = p->rows.begin[i]; k < end; k++) gradient[column[k]] += slope;
}

static void NAME(gradient)(const struct tr_problem *p, size_t first, size_t n, const REAL *w, double *loss,
                           REAL *slope, double *gradient)
{
    double margin[BLOCK], bias = 0, sum = 0;
    for (size_t at = 0; at < n; at += BLOCK) {
        size_t rows = tr_min_size(BLOCK, n - at);
        for (size_t r = 0; r < rows; r++) margin[r] = NAME(dot)(p, first + at + r, w);
        sum += full_slopes(p, rows, &p->target[first + at], margin, loss);
        for (size_t r = 0; r < rows; r++) {
            REAL kept = (REAL)margin[r];
            if (slope) margin[r] = (double)(slope[first + at + r] = kept);
            bias += margin[r];
            if (margin[r] != 0) NAME(add_row)(p, first + at + r, margin[r], gradient);
        }
    }
    if (p->bias) gradient[p->keys] += bias;
    if (loss) *loss += sum;
}

#undef REAL
#undef SWAP
#undef NAME
