/* The stage of alternating least squares: an even clock solves for users, an odd one for items (als_half.c), and
 * pushes what has changed. With implicit ratings Σ v vᵀ over all rows of a side goes through a table of its own beside
 * them. An evaluation takes the loss from the rows as they were solved, and pulls what test ratings need.
 */
#include "model/mf/als_parts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "model/model.h"
#include "ranks/ranks.h"
#include "trireme/rows.h"

enum { WORTH = 32 /* ratings for which it pays to fetch a row's sums from memory */ };

static const struct tr_als_limits usual_limits = {
    .arena_bytes = (size_t)256 << 20, .sums_bytes = (size_t)256 << 20, .worth = WORTH};
static const uint32_t COLD = UINT32_MAX; /* a user of the test data that training has not */

/* ---- implicit ratings: Σ v vᵀ over all rows ---- */

/* Over this worker's rows of a side. */
static void add_rows(struct tr_mf_als *als, const struct tr_als_side *side, double *gram)
{
    const float *value = side->view->value;
    memset(gram, 0, tr_solver_gram(als->solver) * sizeof *gram);
    for (size_t i = 0, now; i < side->n; i += now) {
        now = tr_min_size(side->n - i, TR_ALS_CHUNK);
        for (size_t k = 0; k < now; k++) als->other[k] = value + (i + k) * als->m->width;
        tr_gram_add(als->solver, now, als->other, gram);
    }
}

/* … and the change since it was pushed last. */
static void sum_gram(struct tr_mf_als *als, struct tr_als_side *side)
{
    size_t n = tr_solver_gram(als->solver);
    add_rows(als, side, als->gram);
    double *delta = side->gram->delta;
    for (size_t k = 0; k < n; k++) {
        delta[k] = als->gram[k] - side->gram_mine[k];
        side->gram_mine[k] = als->gram[k];
    }
}

/* Of the items' first values, each worker for the items of its own: all workers together. */
static int sum_first_gram(struct tr_mf_als *als)
{
    struct tr_mf *m = als->m;
    size_t n = tr_solver_gram(als->solver);
    float *row = als->x;
    const float *one = row;
    for (size_t i = 0; i < als->by_item.n; i++) {
        tr_mf_first_row(m, TR_MF_ITEM, als->by_item.first + i, row);
        tr_gram_add(als->solver, 1, &one, als->gram);
    }
    MPI_Request request;
    MPI_Iallreduce(MPI_IN_PLACE, als->gram, (int)n, MPI_DOUBLE, MPI_SUM, m->tr->workers, &request);
    return tr_wait_request(m->tr, &request, "all workers to sum up the items");
}

static int set_gram(struct tr_mf_als *als, const struct tr_als_side *other, bool first_clock)
{
    if (!first_clock) TR_TRY(tr_view_pull(other->gram));
    tr_gram_set(als->solver, first_clock ? als->gram : other->gram->value);
    return TR_OK;
}

/* ---- test ratings ---- */

struct tr_als_test {
    size_t users, items; /* known ones */
    tr_key *user, *item; /* their numbers */
    float *user_row;     /* rows of the users, as pulled for this evaluation */
    uint32_t *row_user;  /* of each row of the data: which of the users, or COLD */
    uint64_t *begin;     /* ratings of each item, those of cold ones behind … */
    uint32_t *row;       /* … by rating: the row of the data … */
    float *value;        /* … and the rating */
    double squares, absolutes;
};

static void test_free(struct tr_als_test **test)
{
    struct tr_als_test *t = *test;
    if (!t) return;
    void *parts[] = {t->user, t->item, t->user_row, t->row_user, t->begin, t->row, t->value, t};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) free(parts[i]);
    *test = NULL;
}

/* Which of the items, in their order, each key is: those that do not occur none, cold ones all the one behind. */
static void number_test_items(const struct tr_mf *m, struct tr_als_test *t, uint32_t *item_of)
{
    const tr_data *d = m->test;
    const tr_batch *b = &d->rows;
    for (uint64_t k = 0; b->n > 0 && k < b->begin[b->n]; k++) item_of[b->column[k]] = 1;
    for (size_t key = 0; key < d->n_keys; key++) {
        if (!item_of[key] || d->keys[key] >= m->items) continue;
        t->item[t->items] = d->keys[key];
        item_of[key] = (uint32_t)t->items++;
    }
    for (size_t key = 0; key < d->n_keys; key++)
        if (d->keys[key] >= m->items) item_of[key] = (uint32_t)t->items;
}

static void sort_test_ratings(const struct tr_mf *m, struct tr_als_test *t, const uint32_t *item_of)
{
    const tr_batch *b = &m->test->rows;
    uint64_t *next = t->begin + 1; /* moves each item's beginning to its end, where the next one begins */
    for (uint64_t k = 0; b->n > 0 && k < b->begin[b->n]; k++) next[item_of[b->column[k]] + 1]++;
    for (size_t i = 0; i <= t->items; i++) next[i + 1] += next[i];
    for (size_t r = 0; r < b->n; r++)
        for (uint64_t k = b->begin[r]; k < b->begin[r + 1]; k++) {
            uint64_t at = next[item_of[b->column[k]]]++;
            t->row[at] = (uint32_t)r;
            t->value[at] = b->value ? b->value[k] : 1;
        }
}

static int open_test(const struct tr_mf *m, struct tr_als_test **test)
{
    const tr_data *d = m->test;
    size_t rows = d->rows.n;
    uint64_t ratings = rows ? d->rows.begin[rows] : 0;
    struct tr_als_test *t;
    uint32_t *item_of;
    TR_TRY(TR_NEW(&t, 1));
    *test = t;
    TR_TRY(TR_NEW(&t->user, rows));
    TR_TRY(TR_NEW(&t->row_user, rows));
    TR_TRY(TR_NEW(&t->user_row, rows * m->width));
    TR_TRY(TR_NEW(&t->item, d->n_keys));
    TR_TRY(TR_NEW(&t->begin, d->n_keys + 3));
    TR_TRY(TR_NEW(&t->row, ratings));
    TR_TRY(TR_NEW(&t->value, ratings));
    TR_TRY(TR_NEW(&item_of, d->n_keys));
    for (size_t r = 0; r < rows; r++) {
        bool cold = d->row[r] >= m->users;
        t->row_user[r] = cold ? COLD : (uint32_t)t->users;
        if (!cold) t->user[t->users++] = d->row[r];
    }
    number_test_items(m, t, item_of);
    sort_test_ratings(m, t, item_of);
    free(item_of);
    return TR_OK;
}

static int take_test_user(void *state, const tr_row *row)
{
    const struct tr_mf *m = state;
    memcpy(m->als->test->user_row + row->place * m->width, row->value, m->width * sizeof(float));
    return TR_OK;
}

/* The ratings of one item of the test data; NULL: of all cold ones. */
static void test_item(const struct tr_mf *m, size_t item, const float *value)
{
    struct tr_als_test *t = m->als->test;
    for (uint64_t k = t->begin[item]; k < t->begin[item + 1]; k++) {
        uint32_t u = t->row_user[t->row[k]];
        const float *user = u == COLD ? NULL : t->user_row + (size_t)u * m->width;
        double wanted = tr_als_implicit(m) ? t->value[k] > 0 : (double)t->value[k];
        double error = wanted - tr_mf_predict(m, user, value);
        t->squares += error * error;
        t->absolutes += fabs(error);
    }
}

static int take_test_item(void *state, const tr_row *row)
{
    test_item(state, row->place, row->value);
    return TR_OK;
}

static int evaluate_test(struct tr_mf *m, tr_report *report)
{
    struct tr_als_test *t = m->als->test;
    t->squares = t->absolutes = 0;
    TR_TRY(tr_rows_pull(m->user_table, t->user, t->users, take_test_user, m));
    TR_TRY(tr_rows_pull(m->item_table, t->item, t->items, take_test_item, m));
    test_item(m, t->items, NULL);
    report->sum[TR_MF_TEST_SQUARES] = t->squares;
    report->sum[TR_MF_TEST_ABSOLUTES] = t->absolutes;
    report->sum[TR_MF_TEST_RATINGS] = (double)t->begin[t->items + 1];
    return TR_OK;
}

/* ---- the stage ---- */

static int open_gram(struct tr_mf_als *als, struct tr_als_side *side)
{
    size_t n = tr_solver_gram(als->solver);
    tr_key *keys;
    TR_TRY(TR_NEW(&side->gram_mine, n));
    TR_TRY(TR_NEW(&keys, n));
    for (size_t k = 0; k < n; k++) keys[k] = k;
    int status = tr_view_open(side->gram_table, keys, n, TR_VIEW_UPDATE, &side->gram);
    free(keys);
    return status;
}

static int prepare(tr_worker *me, void *state)
{
    (void)me;
    struct tr_mf_als *als = ((struct tr_mf *)state)->als;
    for (int s = 0; s < 2; s++) {
        struct tr_als_side *side = &als->side[s];
        TR_TRY(tr_view_open(side->own, side->number, side->n, TR_VIEW_UPDATE, &side->view));
        if (tr_als_implicit(als->m)) TR_TRY(open_gram(als, side));
    }
    return TR_OK;
}

/* Everything that is read is read before anything is pushed. */
static int compute(tr_worker *me, void *state)
{
    struct tr_mf_als *als = ((struct tr_mf *)state)->als;
    struct tr_als_side *side = &als->side[me->clock % 2];
    als->now = side;
    if (tr_als_implicit(als->m)) TR_TRY(set_gram(als, &als->side[!(me->clock % 2)], me->clock == 0));
    TR_TRY(tr_als_solve_side(als, me->clock == 0));
    if (tr_als_implicit(als->m)) {
        sum_gram(als, side);
        TR_TRY(tr_view_push(side->gram));
    }
    return tr_view_push(side->view);
}

/* The loss is that of the items as they were solved, given the users: what both tables hold now. */
static int evaluate(tr_worker *me, void *state, tr_report *report)
{
    (void)me;
    struct tr_mf *m = state;
    const struct tr_als_side *side = m->als->side;
    report->sum[TR_MF_SQUARES] = side[TR_MF_ITEM].loss;
    report->sum[TR_MF_RATINGS] = side[TR_MF_ITEM].n ? (double)side[TR_MF_ITEM].begin[side[TR_MF_ITEM].n] : 0;
    report->sum[TR_MF_PENALTY] = side[TR_MF_USER].penalty + side[TR_MF_ITEM].penalty;
    return m->test ? evaluate_test(m, report) : TR_OK;
}

/* The table has what was told of a row, in steps: that is not what the row is, to the last bit. */
static int keep_side(tr_worker *me, struct tr_mf *m, struct tr_als_side *side, tr_snapshot *snapshot)
{
    bool users = side == &m->als->side[TR_MF_USER], works = me->worker >= 0;
    const char *rows = users ? "users" : "items", *losses = users ? "user_losses" : "item_losses";
    double sums[] = {side->loss, side->penalty};
    TR_TRY(tr_model_keep_sums(me, snapshot, losses, 2, sums));
    side->loss = sums[0];
    side->penalty = sums[1];
    TR_TRY(tr_snapshot_rows(snapshot, rows, TR_F32, users ? m->users : m->items, m->width, side->number, 0,
                            side->n, works ? side->view->value : NULL));
    if (works && tr_als_implicit(m) && tr_snapshot_restores(snapshot))
        add_rows(m->als, side, side->gram_mine);
    return TR_OK;
}

static int snapshot(tr_worker *me, void *state, tr_snapshot *snapshot)
{
    struct tr_mf *m = state;
    TR_TRY(tr_mf_keep_judged(m, snapshot));
    TR_TRY(keep_side(me, m, &m->als->side[TR_MF_USER], snapshot));
    return keep_side(me, m, &m->als->side[TR_MF_ITEM], snapshot);
}

static int open_here(struct tr_mf *m, const struct tr_als_limits *limits)
{
    struct tr_mf_als *als = m->als;
    if (!tr_is(m->tr, TR_SLAVE)) return TR_OK;
    als->m = m;
    als->limits = limits ? *limits : usual_limits;
    TR_TRY(tr_als_open_worker(als));
    if (m->test) TR_TRY(open_test(m, &als->test));
    return tr_als_implicit(m) ? sum_first_gram(als) : TR_OK;
}

/* What comes before the stage: all ranks; agreed on. */
static int open_als(struct tr_mf *m, const struct tr_als_limits *limits)
{
    static const char *const gram_name[] = {"users squared", "items squared"};
    int status = TR_NEW(&m->als, 1);
    TR_TRY(tr_agree(m->tr, status == TR_OK ? open_here(m, limits) : status));
    for (int s = 0; tr_als_implicit(m) && s < 2; s++)
        TR_TRY(
            tr_table_create(m->tr, gram_name[s], TR_F64, 1, m->rank * m->rank, &m->als->side[s].gram_table));
    return TR_OK;
}

int tr_als_train(struct tr_mf *m, const struct tr_als_limits *limits)
{
    TR_TRY(open_als(m, limits));
    tr_stage train = {.name = "train",
                      .state = m,
                      .clocks = 2 * (int64_t)m->job->solve.epochs,
                      .evaluate_every = 2 * (int64_t)m->job->report.every,
                      .epochs_per_clock = 0.5,
                      .metric_name = m->test ? "test rmse" : NULL,
                      .prepare = prepare,
                      .compute = compute,
                      .evaluate = evaluate,
                      .summarize = tr_mf_judge,
                      .snapshot = snapshot};
    return tr_run(m->tr, &train);
}

int tr_mf_als_train(struct tr_mf *m)
{
    return tr_als_train(m, NULL);
}

void tr_mf_als_free(struct tr_mf_als **als)
{
    struct tr_mf_als *a = *als;
    if (!a) return;
    for (int s = 0; s < 2; s++) {
        tr_view_close(&a->side[s].view);
        tr_view_close(&a->side[s].gram);
        tr_als_needs_free(&a->side[s].needs);
        free(a->side[s].turn);
        free(a->side[s].batch);
        free(a->side[s].gram_mine);
    }
    for (int i = 0; i < 2; i++) {
        tr_als_needs_free(&a->arena[i].own);
        free(a->arena[i].order);
        free(a->arena[i].row);
        free(a->arena[i].bias);
    }
    void *parts[] = {a->code,         a->x,      a->item_number, a->user_keys, (void *)a->other,
                     (void *)a->next, a->target, a->gram,        a->sums,      a->begun_at};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) free(parts[i]);
    tr_by_item_free(&a->by_item);
    test_free(&a->test);
    tr_solver_free(&a->solver);
    free(a);
    *als = NULL;
}
