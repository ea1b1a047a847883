#include "model/mf/sgd.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "data/dataset.h"
#include "ranks/ranks.h"
#include "trireme/function.h"
#include "trireme/rows.h"

/* Items' rows of a tile: half of a usual L2 cache; but where rows are long, rather more of them than shorter visits. */
enum { TILE_BYTES = 640 << 10, LEAST_TILE_ITEMS = 2048, MOST_TILE_ITEMS = 1 << 16 };

void tr_mf_sgd_free(struct tr_mf_sgd **sgd)
{
    struct tr_mf_sgd *s = *sgd;
    if (!s) return;
    tr_rotation_close(&s->rotation);
    tr_view_close(&s->items);
    tr_view_close(&s->users);
    tr_view_close(&s->test_items);
    tr_mf_cut_free(&s->cut);
    tr_mf_met_free(&s->test);
    void *arrays[] = {s->first_item, s->user_start, s->item_start, s->memory, s->spare, s->keys};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) free(arrays[i]);
    free(s);
    *sgd = NULL;
}

/* ---- rows in memory ---- */

static size_t padded(size_t n)
{
    return (n + TR_MF_ALIGN - 1) / TR_MF_ALIGN * TR_MF_ALIGN;
}

/* Floats that n rows take with what belongs to them; in blocks of several groups, what they were before the clock,
 * too. */
static size_t floats_of(const struct tr_mf_sgd *s, size_t n, bool before)
{
    size_t numbers = padded(n) * ((size_t)s->m->bias + s->adagrad + s->plain_l2);
    return n * s->pad + numbers + (before ? n * s->m->width : 0);
}

struct tr_mf_rows tr_mf_sgd_rows_in(const struct tr_mf_sgd *s, float *memory, size_t n, float **before)
{
    struct tr_mf_rows rows = {.row = memory};
    float *at = memory + n * s->pad;
    if (s->m->bias) rows.bias = at, at += padded(n);
    if (s->adagrad) rows.sum = at, at += padded(n);
    if (s->plain_l2) rows.share = at, at += padded(n);
    if (before) *before = at;
    return rows;
}

/* Row i as it is in a table, and the other way round. */
static void row_out(const struct tr_mf_sgd *s, const struct tr_mf_rows *rows, size_t i, float *out)
{
    for (size_t k = 0; k < s->m->rank; k++) out[k] = rows->row[i * s->pad + k] * (float)s->factor;
    if (s->m->bias) out[s->m->rank] = rows->bias[i] * (float)s->bias;
}

static void row_in(const struct tr_mf_sgd *s, const float *in, const struct tr_mf_rows *rows, size_t i)
{
    for (size_t k = 0; k < s->m->rank; k++) rows->row[i * s->pad + k] = in[k] / (float)s->factor;
    if (s->m->bias) rows->bias[i] = in[s->m->rank] / (float)s->bias;
}

static void first_row(const struct tr_mf_sgd *s, enum tr_mf_side side, uint64_t number,
                      const struct tr_mf_rows *rows, size_t i)
{
    tr_mf_first_row(s->m, side, number, s->spare);
    row_in(s, s->spare, rows, i);
    if (rows->sum) rows->sum[i] = 1;
}

/* ---- before the first clock ---- */

size_t tr_mf_sgd_items_of(const struct tr_mf_sgd *s, size_t block)
{
    return (size_t)(s->first_item[block + 1] - s->first_item[block]);
}

static int open_rotation(struct tr_mf_sgd *s, tr_worker *me)
{
    size_t *bytes;
    TR_TRY(TR_NEW(&bytes, s->blocks));
    for (size_t b = 0; b < s->blocks; b++)
        bytes[b] = floats_of(s, tr_mf_sgd_items_of(s, b), me->groups > 1) * sizeof(float);
    int status = tr_rotation_open(me, bytes, &s->rotation);
    free(bytes);
    return status;
}

static int aligned_floats(size_t n, float **memory)
{
    TR_TRY(tr_mf_memory((void **)memory, n, sizeof **memory));
    memset(*memory, 0, n * sizeof **memory);
    return TR_OK;
}

static int make_users(struct tr_mf_sgd *s)
{
    const tr_data *train = s->m->train;
    size_t n = train->rows.n;
    TR_TRY(aligned_floats(floats_of(s, n, false), &s->memory));
    s->user = tr_mf_sgd_rows_in(s, s->memory, n, NULL);
    for (size_t i = 0; i < n; i++) {
        first_row(s, TR_MF_USER, train->row[i], &s->user, i);
        if (s->user_start) s->user.bias[i] = s->user_start[i];
        if (s->plain_l2) s->user.share[i] = 1 / (float)(train->rows.begin[i + 1] - train->rows.begin[i]);
    }
    return TR_OK;
}

static int list_keys(uint64_t first, size_t n, tr_key **keys)
{
    TR_TRY(TR_NEW(keys, n));
    for (size_t i = 0; i < n; i++) (*keys)[i] = first + i;
    return TR_OK;
}

static int open_items(struct tr_mf_sgd *s, tr_worker *me)
{
    size_t last = ((size_t)me->member + s->blocks - 1) % s->blocks, first = (size_t)me->member;
    tr_key *keys;
    TR_TRY(list_keys(s->first_item[last], tr_mf_sgd_items_of(s, last), &keys));
    int status = tr_view_open(s->m->item_table, keys, tr_mf_sgd_items_of(s, last), TR_VIEW_UPDATE, &s->items);
    free(keys);
    TR_TRY(status);
    return list_keys(s->first_item[first], tr_mf_sgd_items_of(s, first), &s->keys);
}

static size_t tile_items(const struct tr_mf_sgd *s)
{
    size_t fit = TILE_BYTES / (s->pad * sizeof(float));
    return tr_max_size(LEAST_TILE_ITEMS, tr_min_size(fit, MOST_TILE_ITEMS));
}

static int prepare(tr_worker *me, void *state)
{
    struct tr_mf *m = state;
    struct tr_mf_sgd *s = m->sgd;
    TR_TRY(aligned_floats(padded(m->width), &s->spare));
    TR_TRY(tr_mf_sgd_plan(s, me));
    TR_TRY(open_rotation(s, me));
    TR_TRY(tr_mf_cut(m->train, s->parts * s->turns, s->blocks, s->first_item, tile_items(s), m->average,
                     1 / m->spread, &s->cut));
    TR_TRY(make_users(s));
    tr_data_forget(m->train); /* once cut, ratings as they were read would be as much again */
    TR_TRY(open_items(s, me));
    const struct tr_mf_met *test = &s->test;
    return m->test ? tr_view_open(m->item_table, test->item, test->items, TR_VIEW_READ, &s->test_items)
                   : TR_OK;
}

/* ---- a block ---- */

/* One group's blocks begin with the first values, or with those that were kept; with several, at later clocks, with what
 * all have made of them. */
struct arriving {
    const struct tr_mf_sgd *s;
    const struct tr_mf_rows *rows;
};

static int take_row(void *state, const tr_row *row)
{
    const struct arriving *a = state;
    memcpy(a->s->spare, row->value, a->s->m->width * sizeof(float));
    tr_mf_settle(a->s->m, a->s->spare);
    row_in(a->s, a->s->spare, a->rows, row->place);
    return TR_OK;
}

static void first_items(struct tr_mf_sgd *s, size_t block, const struct tr_mf_rows *rows)
{
    for (size_t i = 0; i < tr_mf_sgd_items_of(s, block); i++) {
        first_row(s, TR_MF_ITEM, s->first_item[block] + i, rows, i);
        if (s->item_start) rows->bias[i] = s->item_start[i];
    }
}

static int fill_block(struct tr_mf_sgd *s, tr_worker *me, size_t block, const struct tr_mf_rows *rows,
                      float *before)
{
    size_t n = tr_mf_sgd_items_of(s, block);
    struct arriving arriving = {s, rows};
    bool kept = me->clock == s->first_clock && s->groups_before == 1;
    bool pulls = me->groups > 1 || me->clock == s->first_clock;
    if (me->clock == 0) first_items(s, block, rows);
    else if (pulls && !kept) TR_TRY(tr_rows_pull(s->m->item_table, s->keys, n, take_row, &arriving));
    if (me->groups == 1) return TR_OK;
    for (size_t i = 0; i < n; i++) row_out(s, rows, i, before + i * s->m->width);
    return TR_OK;
}

/* Sends what has become of the block. The table begins with zeros, or with what one group has said of its blocks: from
 * there to the first values is pushed by one group, or by all where they are averaged. */
static int push_block(struct tr_mf_sgd *s, tr_worker *me, size_t block, const struct tr_mf_rows *rows,
                      const float *before)
{
    size_t n = tr_mf_sgd_items_of(s, block), width = s->m->width;
    bool alone = me->groups == 1, begins = me->clock == 0 || s->groups_before == 1;
    bool all = me->clock == s->first_clock && begins && (me->group == 0 || s->con);
    if (alone && s->groups_before > 1) TR_TRY(tr_view_pull(s->items));
    if (alone) s->groups_before = 1;
    float *delta = s->items->delta, *known = s->items->value;
    for (size_t i = 0; i < n; i++) {
        row_out(s, rows, i, s->spare);
        for (size_t k = 0; k < width; k++) {
            float old = alone || all ? known[i * width + k] : before[i * width + k];
            delta[i * width + k] = s->spare[k] - old;
            if (alone) known[i * width + k] = s->spare[k];
        }
    }
    return tr_view_push(s->items);
}

/* Plain λ: a row's counts once an epoch, so each of its ratings has a part of it. Each group counts its own ratings,
 * and the groups' steps are added. */
static void count_items(struct tr_mf_sgd *s, size_t block, const struct tr_mf_rows *rows)
{
    for (size_t part = 0; part < s->parts * s->turns; part++) {
        size_t tiles;
        const struct tr_mf_tile *tile = tr_mf_tiles_of(&s->cut, part, block, &tiles);
        for (size_t t = 0; t < tiles; t++)
            for (size_t j = 0; j < tile[t].ratings; j++)
                rows->share[t * s->cut.tile_items + tile[t].item[j]]++;
    }
}

static void share_out(const struct tr_mf_sgd *s, const tr_worker *me, size_t block,
                      const struct tr_mf_rows *rows)
{
    float groups = s->con ? 1 : (float)me->groups;
    for (size_t i = 0; i < tr_mf_sgd_items_of(s, block); i++)
        rows->share[i] = rows->share[i] > 0 ? 1 / (rows->share[i] * groups) : 0;
}

/* ---- a clock ---- */

static double rate_at(const struct tr_mf_sgd *s, int64_t clock)
{
    const tr_job *job = s->m->job;
    double epochs = (double)job->solve.epochs, rate = job->solve.rate, all = epochs * (double)s->parts;
    if (rate == TR_JOB_AUTO) rate = s->adagrad ? fmax(0.02, fmin(0.16, 0.7 / epochs)) : 0.02;
    if (job->solve.decay > 0) return rate / sqrt(job->solve.decay * (double)clock + 1);
    return rate * pow(1 - (double)clock / all, 0.7);
}

/* Biases begin about where they end: steps as large as those of factors would only shake them. (MovieLens 100K, rank 32,
 * 6 epochs, held-out RMSE with 1, 0.3 and 0.1 of these: 0.926, 0.920, 0.920.) */
static const float BIAS_PART = 0.1f;

static struct tr_mf_pass pass_at(const struct tr_mf_sgd *s, int64_t clock)
{
    const struct tr_mf *m = s->m;
    float rate = (float)rate_at(s, clock), l2 = (float)(m->l2 / m->spread);
    return (struct tr_mf_pass){.level = tr_cpu(),
                               .width = s->pad,
                               .rank = m->rank,
                               .mean = m->centred ? 0 : (float)(-m->average / m->spread),
                               .rate = rate,
                               .l2 = l2,
                               .bias_rate = rate * BIAS_PART,
                               .bias_l2 = l2,
                               .crowd = s->con ? 1 : (float)m->tr->layout.groups,
                               .nonnegative = m->job->model.nonnegative,
                               .spare = s->spare};
}

static void train_block(struct tr_mf_sgd *s, const tr_worker *me, size_t turn, size_t block,
                        const struct tr_mf_rows *rows)
{
    size_t tiles, part = (size_t)me->clock % s->parts * s->turns + turn;
    const struct tr_mf_tile *tile = tr_mf_tiles_of(&s->cut, part, block, &tiles);
    struct tr_mf_pass pass = pass_at(s, me->clock);
    for (size_t t = 0; t < tiles; t++) {
        size_t first = t * s->cut.tile_items;
        struct tr_mf_rows items = {.row = rows->row + first * s->pad,
                                   .bias = rows->bias ? rows->bias + first : NULL,
                                   .sum = rows->sum ? rows->sum + first : NULL,
                                   .share = rows->share ? rows->share + first : NULL};
        s->squares += tr_mf_tile_pass(&pass, &tile[t], s->user, items);
        s->ratings += (double)tile[t].ratings;
    }
}

/* With plain λ the first clock of a run has a rotation in which ratings are only counted. */
static bool counts_first(const struct tr_mf_sgd *s, const tr_worker *me)
{
    return s->plain_l2 && me->clock == s->first_clock;
}

static int64_t rotations(const struct tr_mf_sgd *s, const tr_worker *me)
{
    return (int64_t)s->turns + counts_first(s, me);
}

/* One group's table is read in evaluations, and after the last clock. */
static bool table_is_due(const struct tr_mf_sgd *s, const tr_worker *me)
{
    const tr_job *job = s->m->job;
    int64_t every = (int64_t)job->report.every * (int64_t)s->parts, now = me->clock + 1;
    return me->groups > 1 || every == 0 || now % every == 0 ||
           now == (int64_t)job->solve.epochs * (int64_t)s->parts;
}

static int schedule(tr_worker *me, void *state, tr_command *commands, bool *again)
{
    *again = tr_rotation_schedule(me, rotations(((struct tr_mf *)state)->sgd, me), commands);
    return TR_OK;
}

static int work_on(struct tr_mf_sgd *s, tr_worker *me, const tr_block *block)
{
    size_t number = (size_t)block->number;
    float *before;
    struct tr_mf_rows rows = tr_mf_sgd_rows_in(s, block->memory, tr_mf_sgd_items_of(s, number), &before);
    int64_t turn = me->command.word[1] - counts_first(s, me);
    if (me->round == 0) TR_TRY(fill_block(s, me, number, &rows, before));
    if (turn < 0) {
        count_items(s, number, &rows);
        return TR_OK;
    }
    if (counts_first(s, me) && me->round == me->group_size) share_out(s, me, number, &rows);
    train_block(s, me, (size_t)turn, number, &rows);
    bool last = me->round == rotations(s, me) * me->group_size - 1;
    return last && table_is_due(s, me) ? push_block(s, me, number, &rows, before) : TR_OK;
}

static int compute(tr_worker *me, void *state)
{
    struct tr_mf_sgd *s = ((struct tr_mf *)state)->sgd;
    if (me->round == 0 && (size_t)me->clock % s->parts == 0) s->squares = s->ratings = 0;
    tr_block block;
    TR_TRY(tr_rotation_take(s->rotation, me, &block));
    TR_TRY(work_on(s, me, &block));
    return tr_rotation_give(s->rotation);
}

/* ---- evaluation ---- */

static int evaluate(tr_worker *me, void *state, tr_report *report)
{
    (void)me;
    struct tr_mf *m = state;
    struct tr_mf_sgd *s = m->sgd;
    double *sum = report->sum;
    sum[TR_MF_SQUARES] += s->squares * m->spread * m->spread;
    sum[TR_MF_RATINGS] += s->ratings;
    if (!m->test) return TR_OK;
    TR_TRY(tr_view_pull(s->test_items));
    float *items = s->test_items->value;
    for (size_t i = 0; i < s->test_items->n; i++) tr_mf_settle(m, items + i * m->width);
    float *user = s->spare;
    for (size_t i = 0; i < s->test.n; i++) {
        const struct tr_mf_rating *r = &s->test.rating[i];
        bool known = r->row != UINT32_MAX;
        if (known && (i == 0 || r->row != r[-1].row)) row_out(s, &s->user, r->row, user);
        const float *item = r->item == UINT32_MAX ? NULL : items + r->item * m->width;
        double error = (double)r->value - tr_mf_predict(m, known ? user : NULL, item);
        sum[TR_MF_TEST_SQUARES] += error * error;
        sum[TR_MF_TEST_ABSOLUTES] += fabs(error);
    }
    sum[TR_MF_TEST_RATINGS] += (double)s->test.n;
    return TR_OK;
}

/* ---- users, once they are trained ---- */

static int prepare_users(tr_worker *me, void *state)
{
    (void)me;
    struct tr_mf *m = state;
    return tr_view_open(m->user_table, m->train->row, m->train->rows.n, TR_VIEW_UPDATE, &m->sgd->users);
}

static int push_users(tr_worker *me, void *state)
{
    (void)me;
    const struct tr_mf *m = state;
    tr_view *users = m->sgd->users;
    for (size_t i = 0; i < users->n; i++)
        row_out(m->sgd, &m->sgd->user, i, (float *)users->delta + i * m->width);
    return tr_view_push(users);
}

/* ---- the stages ---- */

/* What groups push is averaged, or added. */
static int scale_pushes(const struct tr_mf *m)
{
    double rate = m->job->sync.global_rate;
    if (!m->sgd->con) return TR_OK;
    if (rate == TR_JOB_AUTO) rate = 1.0 / m->tr->layout.groups;
    return tr_table_use(m->item_table, "scale", &rate);
}

int tr_mf_sgd_train(struct tr_mf *m)
{
    TR_TRY(tr_agree(m->tr, scale_pushes(m)));
    int64_t parts = (int64_t)m->sgd->parts;
    tr_stage train = {.name = "train",
                      .state = m,
                      .clocks = (int64_t)m->job->solve.epochs * parts,
                      .evaluate_every = (int64_t)m->job->report.every * parts,
                      .epochs_per_clock = 1 / (double)parts,
                      .objective_name = "train rmse",
                      .metric_name = m->test ? "test rmse" : NULL,
                      .prepare = prepare,
                      .compute = compute,
                      .schedule = schedule,
                      .evaluate = evaluate,
                      .summarize = tr_mf_judge,
                      .snapshot = tr_mf_sgd_keep};
    tr_table_leave_out(m->user_table); /* zeros until users are pushed */
    TR_TRY(tr_run(m->tr, &train));
    tr_stage snapshot = {
        .name = "users", .state = m, .clocks = 1, .prepare = prepare_users, .compute = push_users};
    return tr_run(m->tr, &snapshot);
}
