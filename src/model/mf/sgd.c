/* Factorization by stochastic gradient descent.
 *
 * A clock trains on one part of the users: it is one or more rotations of the blocks of items through the group. In each round a
 * member has a block and trains on the ratings of its items by its own users in the part. No two members change the same row at
 * the same time, and every rating is used once per epoch. Factors of users stay with their worker until the end. With several
 * groups, a block is read from the table "items" at the start of a clock, and its change is added to the table at the end; with
 * one group, blocks have the current values, and the table is updated from them. If a clock has several rotations, each uses some
 * of the part's users: information then spreads faster between users and items, at the price of shorter rounds.
 *
 * Ratings are standardised to (r - average) / spread, so that the same rates fit all scales. Biases start at shrunk means.
 * Rates decrease to 0 as (1 - fraction of completed clocks)^0.7; any constant rate needs at least twice the epochs for the same
 * error. With adagrad the rate of a row is also divided by the square root of the sum of its mean squared gradients
 * (Chin et al., A learning-rate schedule for stochastic gradient methods to matrix factorization, 2015; here one sum per
 * row). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "mf.h"

enum { TR_MF_BATCH = 16 }; /* maximum number of ratings in a batch */

/* GCC warns that passing wide vectors depends on the ABI. Here only inlined functions have such arguments. */
#pragma GCC diagnostic ignored "-Wpsabi"
#define TR_KERNEL "mf/sgd_kernel.h"
#include "../levels.h"

double tr_mf_tile_pass(const struct tr_mf_pass *pass, const struct tr_mf_tile *tile,
                       const struct tr_mf_rows *users, const struct tr_mf_rows *items)
{
    return TR_BY_LEVEL(pass->level, tile)(pass, tile, users, items);
}

struct tr_mf_sgd {
    struct tr_mf *m;
    bool adagrad, plain_l2;         /* solve.optimizer adagrad; model.l2_weighted no */
    size_t depth, blocks;           /* numbers of blocks of a worker between two clocks, and of the group */
    size_t parts;                   /* number of parts of the users, and of clocks per epoch */
    size_t turns;                   /* number of rotations per clock */
    size_t pad;                     /* number of floats per row in memory */
    float factor, bias;             /* value in a table / value in memory, for factors and for biases */
    uint64_t *first_item;           /* blocks + 1 numbers: first item of each block */
    float *user_start, *item_start; /* initial biases: of this worker's users; of the items in `keys` */
    float *item_share;              /* plain_l2: tr_mf_rows.share of the items in `keys` */
    tr_rotation *rotation;
    struct tr_mf_tiling tiling;
    float *memory, *spare;  /* memory of `user`; scratch memory for one row */
    struct tr_mf_rows user; /* rows of this worker's users */
    /* During training: view of the blocks that this worker has in the last rounds of a clock; NULL: no rank reads the table. After
     * training with one group: view of the items in `keys`. */
    tr_view *items;
    tr_view *users; /* after training: view of this worker's users */
    tr_key *keys;   /* items of the blocks that this worker has in the first rounds of a clock */

    double squares, ratings; /* sum of squared errors in this epoch, and number of ratings in it */

    /* After a restart: the first clock, and the number of groups in the checkpoint (0: no restart). A checkpoint of one group
     * contains the blocks, because they are newer than the table; with several groups the table contains the items. */
    int64_t first_clock, groups_before;
};

void tr_mf_sgd_free(struct tr_mf_sgd **sgd)
{
    struct tr_mf_sgd *s = *sgd;
    if (!s) return;
    tr_rotation_close(&s->rotation);
    tr_view_close(&s->items);
    tr_view_close(&s->users);
    tr_mf_tiling_free(&s->tiling);
    TR_FREE_ALL(s->first_item, s->user_start, s->item_start, s->item_share, s->memory, s->spare, s->keys, s);
    *sgd = NULL;
}

/* ---- rows in memory ---- */

static size_t sgd_padded(size_t n)
{
    return (n + TR_MF_ALIGN - 1) / TR_MF_ALIGN * TR_MF_ALIGN;
}

/* Returns the number of floats for n rows with biases, sums and shares. before: also for a copy of the rows at the start of a
 * clock, which blocks have if there are several groups. */
static size_t floats_of(const struct tr_mf_sgd *s, size_t n, bool before)
{
    size_t numbers = sgd_padded(n) * ((size_t)s->m->bias + s->adagrad + s->plain_l2);
    return n * s->pad + numbers + (before ? n * s->m->width : 0);
}

/* Returns the n rows in `memory`. *before: their copy (see floats_of()); before may be NULL. */
static struct tr_mf_rows rows_in(const struct tr_mf_sgd *s, float *memory, size_t n, float **before)
{
    struct tr_mf_rows rows = {.row = memory};
    float *at = memory + n * s->pad;
    if (s->m->bias) rows.bias = at, at += sgd_padded(n);
    if (s->adagrad) rows.sum = at, at += sgd_padded(n);
    if (s->plain_l2) rows.share = at, at += sgd_padded(n);
    if (before) *before = at;
    return rows;
}

/* Converts row i in memory to a row of a table. */
static void row_out(const struct tr_mf_sgd *s, const struct tr_mf_rows *rows, size_t i, float *out)
{
    for (size_t k = 0; k < s->m->rank; k++) out[k] = rows->row[i * s->pad + k] * s->factor;
    if (s->m->bias) out[s->m->rank] = rows->bias[i] * s->bias;
}

/* Converts a row of a table to row i in memory. */
static void row_in(const struct tr_mf_sgd *s, const float *in, const struct tr_mf_rows *rows, size_t i)
{
    for (size_t k = 0; k < s->m->rank; k++) rows->row[i * s->pad + k] = in[k] / s->factor;
    if (s->m->bias) rows->bias[i] = in[s->m->rank] / s->bias;
}

static void first_row(const struct tr_mf_sgd *s, enum tr_mf_side side, uint64_t number,
                      const struct tr_mf_rows *rows, size_t i)
{
    tr_mf_first_row(s->m, side, number, s->spare);
    row_in(s, s->spare, rows, i);
    if (rows->sum) rows->sum[i] = 1;
}

static size_t items_of(const struct tr_mf_sgd *s, size_t block)
{
    return (size_t)(s->first_item[block + 1] - s->first_item[block]);
}

/* Returns the number of items in `depth` consecutive blocks, the first of which is `block`. */
static size_t items_from(const struct tr_mf_sgd *s, size_t block)
{
    return (size_t)(s->first_item[block + s->depth] - s->first_item[block]);
}

/* Returns the first of the `depth` consecutive blocks that this worker has in the first rounds of a clock; last_block(): in the
 * last rounds. */
static size_t first_block(const struct tr_mf_sgd *s, const tr_worker *me)
{
    return (size_t)me->member * s->depth;
}

static size_t last_block(const struct tr_mf_sgd *s, const tr_worker *me)
{
    return (first_block(s, me) + s->blocks - s->depth) % s->blocks;
}

/* ---- preparation: blocks and initial biases ---- */

/* Returns the number of rotations per clock. In the first rotation members fit different factors, which must be reconciled later,
 * so it should be short; but a round should take longer than the transfer of a block. (Generated ratings, 9M of rank 32, two
 * workers, 3 epochs, held-out RMSE with 1, 2, 4, 8 and 16 rotations per epoch: 0.772, 0.767, 0.764, 0.762, 0.762.) At 1 Gbit/s the
 * transfer of an item's row takes as long as the steps on about 60 of its ratings, for any rank. Between machines, an item must
 * therefore have at least LEAST_VISIT ratings per round and member on average. Public data do not need more rotations: with 8
 * instead of the number chosen here, the held-out RMSE of Jester and of MovieLens 100K after 8 epochs is equal within 0.0002, but a
 * rank sends 3 to 8 times as much per epoch (Jester on 2 machines 117 instead of 31 kB, MovieLens 1833 instead of 274 kB). */
static size_t choose_turns(const struct tr_mf_sgd *s, const tr_worker *me, double ratings)
{
    enum { LEAST_ROUND = 16384, LEAST_VISIT = 150, MOST_TURNS = 8 };
    double members = me->group_size, rounds = (double)s->parts * members * (double)s->blocks;
    double visits = (double)s->parts * members * (double)s->m->items;
    double turns = fmin(MOST_TURNS, ratings / rounds / LEAST_ROUND);
    if (s->depth > 1) turns = fmin(turns, ratings / visits / LEAST_VISIT);
    return (size_t)fmax(1, turns);
}

/* Initial biases are those of a model without factors: means of an item's ratings, and means of a user's residuals. They are shrunk
 * as if each row had this number of additional average ratings. Gradient steps would need more than an epoch to reach them. */
static const double prior_ratings = 5;

/* Returns the shrunk mean of n ratings whose differences from the average sum up to `sum`. */
static float shrunk_mean(const struct tr_mf_sgd *s, double n, double sum)
{
    return (float)(sum / s->m->spread / (n + prior_ratings));
}

/* ---- state of a worker ---- */

/* Lists the items of `depth` consecutive blocks, the first of which is `block`. */
static int sgd_list_keys(const struct tr_mf_sgd *s, size_t block, tr_key **keys)
{
    size_t n = items_from(s, block);
    TR_TRY(TR_NEW(keys, n));
    for (size_t i = 0; i < n; i++) (*keys)[i] = s->first_item[block] + i;
    return TR_OK;
}

/* Divides the items into blocks, and computes initial biases and shares of λ. */
static int sgd_plan(struct tr_mf_sgd *s, tr_worker *me)
{
    const struct tr_mf *m = s->m;
    const tr_data *train = m->train;
    const tr_batch *rows = &train->rows;
    size_t keys = train->n_keys;
    double all = 0;
    TR_FREED double *count = NULL;
    TR_FREED double *sum = NULL;
    TR_FREED size_t *bound = NULL;
    s->depth = (size_t)tr_rotation_depth(me->tr);
    s->blocks = (size_t)me->group_size * s->depth;
    TR_TRY(TR_NEW(&count, keys));
    TR_TRY(TR_NEW(&sum, keys));

    /* Count and sum the ratings of each item over the group, whose members have the same keys. */
    for (uint64_t k = 0; rows->n > 0 && k < rows->begin[rows->n]; k++) {
        count[rows->column[k]]++;
        sum[rows->column[k]] += (double)tr_value_at(rows, k);
    }
    TR_TRY(tr_group_sum(me, count, keys));
    TR_TRY(tr_group_sum(me, sum, keys));

    /* Divide the items into blocks with similar numbers of the group's ratings. */
    TR_TRY(TR_NEW(&s->first_item, s->blocks + 1));
    TR_TRY(TR_NEW(&bound, s->blocks + 1));
    for (size_t j = 0; j < keys; j++) all += count[j];
    s->turns = choose_turns(s, me, all);
    TR_TRY(tr_report_figure(m->tr, "rotations_per_clock", (double)s->turns));
    tr_mf_divide(keys, count, s->blocks, bound);
    for (size_t b = 1; b < s->blocks; b++)
        s->first_item[b] = bound[b] > 0 && bound[b] < keys ? train->keys[bound[b] - 1] + 1 : m->items;
    s->first_item[s->blocks] = m->items;
    size_t block = first_block(s, me), n = items_from(s, block);
    uint64_t first = s->first_item[block];
    if (m->bias) { /* set user_start and item_start */
        TR_FREED float *start = NULL;
        TR_TRY(TR_NEW(&start, keys));
        TR_TRY(TR_NEW(&s->item_start, n));
        for (size_t j = 0; j < keys; j++) {
            start[j] = shrunk_mean(s, count[j], sum[j] - count[j] * m->average);
            if (train->keys[j] >= first && train->keys[j] - first < n)
                s->item_start[train->keys[j] - first] = start[j];
        }
        TR_TRY(TR_NEW(&s->user_start, rows->n));
        for (size_t u = 0; u < rows->n; u++) {
            double rated = (double)(rows->begin[u + 1] - rows->begin[u]), ratings = 0, known = 0;
            for (uint64_t k = rows->begin[u]; k < rows->begin[u + 1]; k++) {
                ratings += (double)tr_value_at(rows, k);
                known += (double)start[rows->column[k]];
            }
            s->user_start[u] = shrunk_mean(s, rated, ratings - rated * m->average - known * m->spread);
        }
    }
    if (!s->plain_l2) return TR_OK;
    /* λ of a row applies once per epoch, so each rating of the row has a fraction of λ. Each group counts only its own ratings; if
     * the steps of groups are added, λ is also divided by the number of groups. */
    double groups = m->averages ? 1 : me->groups;
    TR_TRY(TR_NEW(&s->item_share, n));
    for (size_t j = 0; j < keys; j++)
        if (train->keys[j] >= first && train->keys[j] - first < n && count[j] > 0)
            s->item_share[train->keys[j] - first] = (float)(1 / (count[j] * groups));
    return TR_OK;
}

static int sgd_prepare(tr_worker *me, void *state)
{
    struct tr_mf *m = state;
    struct tr_mf_sgd *s = m->sgd;
    const tr_data *train = m->train;
    size_t users = train->rows.n;
    TR_FREED size_t *bytes = NULL;
    TR_TRY(TR_NEW_ALIGNED(&s->spare, sgd_padded(m->width), true));
    TR_TRY(sgd_plan(s, me));
    TR_TRY(TR_NEW(&bytes, s->blocks));
    for (size_t b = 0; b < s->blocks; b++)
        bytes[b] = floats_of(s, items_of(s, b), me->groups > 1) * sizeof(float);
    TR_TRY(tr_rotation_open(me, bytes, 1, &s->rotation));
    /* A tile occupies half of a typical L2 cache. It has a minimum number of items even if rows are long, so that visits are
     * long. */
    enum { TILE_BYTES = 640 << 10, LEAST_TILE_ITEMS = 2048, MOST_TILE_ITEMS = 1 << 16 };
    size_t fit = tr_min_size(TILE_BYTES / (s->pad * sizeof(float)), MOST_TILE_ITEMS);
    TR_TRY(tr_mf_tile_ratings(train, s->parts * s->turns, s->blocks, s->first_item,
                              tr_max_size(fit, LEAST_TILE_ITEMS), m->average, 1 / m->spread, &s->tiling));
    TR_TRY(TR_NEW_ALIGNED(&s->memory, floats_of(s, users, false), true));
    s->user = rows_in(s, s->memory, users, NULL);
    for (size_t i = 0; i < users; i++) {
        first_row(s, TR_MF_USER, train->row[i], &s->user, i);
        if (s->user_start) s->user.bias[i] = s->user_start[i];
        if (s->plain_l2) s->user.share[i] = 1 / (float)(train->rows.begin[i + 1] - train->rows.begin[i]);
    }
    tr_data_forget(m->train); /* the tiles replace the ratings */
    TR_TRY(sgd_list_keys(s, first_block(s, me), &s->keys));
    /* During training the table is read by other groups, by evaluations on test data, and after a restart. */
    if (me->groups > 1 || m->test || tr_context_continues(m->tr)) {
        TR_FREED tr_key *last = NULL;
        TR_TRY(sgd_list_keys(s, last_block(s, me), &last));
        TR_TRY(
            tr_view_open(m->item_table, last, items_from(s, last_block(s, me)), TR_VIEW_UPDATE, &s->items));
    }
    return tr_mf_open_tests(m);
}

/* ---- a block ---- */

struct arriving {
    const struct tr_mf_sgd *s;
    const struct tr_mf_rows *rows; /* destination of pulled rows */
};

static int sgd_store_row(void *state, const tr_row *row)
{
    const struct arriving *a = state;
    memcpy(a->s->spare, row->value, a->s->m->width * sizeof(float));
    tr_mf_clip(a->s->m, a->s->spare);
    row_in(a->s, a->s->spare, a->rows, row->place);
    return TR_OK;
}

/* ---- a clock ---- */

/* Returns the rate of a clock. With adagrad the initial rate is proportional to 1 / √epochs. With a rate proportional to 1 /
 * epochs, jobs of more epochs ended further from the minimum; with a constant initial rate 20 epochs overfit where 5 underfit.
 * (RMSE in training and held out after 5, 20 and 40 epochs, rank 32: MovieLens 100K .857 .922, .797 .911, .766 .910; Jester 3.55
 * 4.034, 3.20 4.028, 3.10 4.039; at 0.7 / epochs MovieLens .847 .919, .864 .931, .869 .934.) With solve.decay the rate does not
 * depend on the number of epochs, so that a job can continue with more epochs. */
static double rate_at(const struct tr_mf_sgd *s, int64_t clock)
{
    const struct tr_mf_options *o = s->m->o;
    double epochs = (double)s->m->epochs, first = o->rate;
    if (first == TR_JOB_AUTO)
        first = !s->adagrad ? 0.02 : o->decay > 0 ? 0.1 : fmin(0.16, 0.28 / sqrt(epochs));
    if (o->decay > 0) return first / sqrt(o->decay * (double)clock + 1);
    return first * pow(1 - (double)clock / (epochs * (double)s->parts), 0.7);
}

static struct tr_mf_rows rows_of(const struct tr_mf_sgd *s, const tr_block *block, float **before)
{
    return rows_in(s, block->memory, items_of(s, (size_t)block->number), before);
}

/* Fills the blocks that a worker has at the start of a clock. At clock 0 they get the initial values. Later, blocks of several
 * groups are pulled from the table, in the first clock after a restart also those of one group unless the checkpoint contained
 * them. In other clocks blocks of one group have their values, so nothing is done or waited for. */
static int sgd_fill_blocks(struct tr_mf_sgd *s, tr_worker *me)
{
    bool first_clock = me->clock == s->first_clock, kept = first_clock && s->groups_before == 1,
         pulls = me->clock > 0 && !kept && (me->groups > 1 || first_clock);
    if (me->groups == 1 && me->clock > 0 && !first_clock) return TR_OK;
    for (size_t d = 0; d < s->depth; d++) {
        tr_block block;
        float *before;
        TR_TRY(tr_rotation_look(s->rotation, (int)d, &block));
        if (!block.memory) return TR_OK;
        struct tr_mf_rows rows = rows_of(s, &block, &before);
        struct arriving arriving = {s, &rows};
        uint64_t first = s->first_item[block.number];
        size_t n = items_of(s, (size_t)block.number), skip = n > 0 ? (size_t)(first - s->keys[0]) : 0;
        for (size_t i = 0; i < n && me->clock == 0; i++) {
            first_row(s, TR_MF_ITEM, first + i, &rows, i);
            if (s->item_start) rows.bias[i] = s->item_start[skip + i];
        }
        if (s->plain_l2 && first_clock) memcpy(rows.share, s->item_share + skip, n * sizeof *rows.share);
        if (pulls) TR_TRY(tr_rows_pull(s->m->item_table, s->keys + skip, n, sgd_store_row, &arriving));
        for (size_t i = 0; i < n && me->groups > 1; i++) row_out(s, &rows, i, before + i * s->m->width);
    }
    return TR_OK;
}

/* Writes the change of a block to s->items->delta. In the first clock the table contains zeros, or, after a restart from a
 * checkpoint of one group, older values: the first group pushes the difference from these to its values; if updates are averaged,
 * all do. */
static void sgd_list_changes(struct tr_mf_sgd *s, const tr_worker *me, size_t block,
                             const struct tr_mf_rows *rows, const float *before)
{
    size_t width = s->m->width;
    size_t skip = (size_t)(s->first_item[block] - s->first_item[last_block(s, me)]) * width;
    bool alone = me->groups == 1, begins = me->clock == 0 || s->groups_before == 1;
    bool all = me->clock == s->first_clock && begins && (me->group == 0 || s->m->averages);
    float *delta = (float *)s->items->delta + skip, *known = (float *)s->items->value + skip;
    for (size_t i = 0; i < items_of(s, block); i++) {
        row_out(s, rows, i, s->spare);
        for (size_t k = 0; k < width; k++) {
            float old = alone || all ? known[i * width + k] : before[i * width + k];
            delta[i * width + k] = s->spare[k] - old;
            if (alone) known[i * width + k] = s->spare[k];
        }
    }
}

static int sgd_compute(tr_worker *me, void *state)
{
    const struct tr_mf *m = state;
    struct tr_mf_sgd *s = m->sgd;
    size_t rounds = s->turns * s->blocks;
    float l2 = (float)(m->l2 / m->spread);
    const struct tr_mf_pass pass = {
        .level = tr_cpu(),
        .width = s->pad,
        .rank = m->rank,
        .mean = m->centred ? 0 : (float)(-m->average / m->spread),
        .rate = (float)rate_at(s, me->clock),
        /* Biases start near their optimum; steps as large as those of factors would add noise. (MovieLens 100K, rank 32,
         * 6 epochs, held-out RMSE with bias_part 1, 0.3 and 0.1: 0.926, 0.920, 0.920.) */
        .bias_part = 0.1f,
        .l2 = l2,
        .bias_l2 = l2,
        .crowd = m->averages ? 1 : (float)me->groups,
        .nonnegative = m->o->nonnegative,
        .spare = s->spare};
    /* due: push the blocks in this clock. With one group only evaluations on test data read the table before the end of
     * training. */
    int64_t every = m->report_every * (int64_t)s->parts, now = me->clock + 1;
    bool due = me->groups > 1 || (m->test && (every == 0 || now % every == 0));
    if ((size_t)me->clock % s->parts == 0) s->squares = s->ratings = 0;
    TR_TRY(sgd_fill_blocks(s, me));
    if (me->groups == 1 && s->groups_before > 1) TR_TRY(tr_view_pull(s->items));
    if (me->groups == 1) s->groups_before = 1;
    for (size_t round = 0; round < rounds; round++) {
        tr_block block;
        float *before;
        TR_TRY(tr_rotation_take(s->rotation, &block));
        if (!block.memory) return TR_OK;
        struct tr_mf_rows rows = rows_of(s, &block, &before);
        TR_TRY(tr_turn_begin(m->tr, "rotate"));
        size_t tiles, part = (size_t)me->clock % s->parts * s->turns + round / s->blocks;
        const struct tr_mf_tile *tile = tr_mf_tiles_of(&s->tiling, part, (size_t)block.number, &tiles);
        for (size_t t = 0; t < tiles; t++) {
            tr_seam();
            struct tr_mf_rows items = tr_mf_rows_from(&rows, t * s->tiling.tile_items, s->pad);
            s->squares += tr_mf_tile_pass(&pass, &tile[t], &s->user, &items);
            s->ratings += (double)tile[t].ratings;
        }
        TR_TRY(tr_turn_end(m->tr, TR_OK));
        if (due && round + s->depth >= rounds) sgd_list_changes(s, me, (size_t)block.number, &rows, before);
        TR_TRY(tr_rotation_give(s->rotation));
    }
    return due ? tr_view_push(s->items) : TR_OK;
}

static const float *sgd_user_row(const struct tr_mf *m, size_t i)
{
    row_out(m->sgd, &m->sgd->user, i, m->sgd->spare);
    return m->sgd->spare;
}

static int sgd_evaluate(tr_worker *me, void *state, tr_report *report)
{
    (void)me;
    struct tr_mf *m = state;
    report->sum[TR_MF_SQUARES] += m->sgd->squares * m->spread * m->spread;
    report->sum[TR_MF_RATINGS] += m->sgd->ratings;
    return tr_mf_add_tests(m, sgd_user_row, report);
}

/* ---- checkpoints: users, and the blocks of items that are newer than the table ---- */

/* The arrays of a block in checkpoints: row, bias and sum of struct tr_mf_rows. */
enum part { FACTORS, BIASES, SQUARES };

static float *part_of(const struct tr_mf_rows *rows, enum part part)
{
    return part == FACTORS ? rows->row : part == BIASES ? rows->bias : rows->sum;
}

/* Copies an array of this worker's current blocks to contiguous memory (out), or from there. */
static int sgd_copy_blocks(struct tr_mf_sgd *s, enum part part, size_t columns, float *memory, bool out)
{
    for (size_t d = 0; d < s->depth; d++) {
        tr_block block;
        TR_TRY(tr_rotation_look(s->rotation, (int)d, &block));
        if (!block.memory) return TR_OK;
        struct tr_mf_rows rows = rows_of(s, &block, NULL);
        size_t n = items_of(s, (size_t)block.number) * columns;
        if (out) memcpy(memory, part_of(&rows, part), n * sizeof *memory);
        else memcpy(part_of(&rows, part), memory, n * sizeof *memory);
        memory += n;
    }
    return TR_OK;
}

/* Writes an array of the current blocks to a checkpoint, or restores it. items: number of rows of the whole array; first, n: rows
 * of this worker. */
static int snapshot_items(struct tr_mf_sgd *s, tr_snapshot *snapshot, const char *name, uint64_t items,
                          uint64_t first, size_t n, size_t columns, enum part part)
{
    TR_FREED float *memory = NULL;
    TR_TRY(TR_NEW(&memory, n * columns));
    TR_TRY(sgd_copy_blocks(s, part, columns, memory, true));
    TR_TRY(tr_snapshot_rows(snapshot, name, TR_F32, items, columns, NULL, first, n, memory));
    if (tr_snapshot_restores(snapshot)) TR_TRY(sgd_copy_blocks(s, part, columns, memory, false));
    return TR_OK;
}

static int sgd_snapshot(tr_worker *me, void *state, tr_snapshot *list)
{
    struct tr_mf *m = state;
    struct tr_mf_sgd *s = m->sgd;
    int64_t groups = me->groups;
    double sums[] = {s->squares, s->ratings};
    TR_TRY(tr_model_keep_evaluation(list, &m->last));
    TR_TRY(tr_snapshot_common(list, "groups", TR_I64, 1, &groups));
    TR_TRY(tr_model_keep_sums(me, list, "errors", 2, sums));
    s->squares = sums[0];
    s->ratings = sums[1];
    if (tr_snapshot_restores(list)) {
        s->first_clock = me->clock;
        s->groups_before = groups;
    }
    const uint64_t *row = s->m->train->row, users = s->m->users;
    size_t n = s->m->train->rows.n;
    TR_TRY(tr_snapshot_rows(list, "users", TR_F32, users, s->pad, row, 0, n, s->user.row));
    if (s->m->bias) TR_TRY(tr_snapshot_rows(list, "user_biases", TR_F32, users, 1, row, 0, n, s->user.bias));
    if (s->adagrad) TR_TRY(tr_snapshot_rows(list, "user_squares", TR_F32, users, 1, row, 0, n, s->user.sum));
    if (me->worker < 0) return TR_OK;

    /* One group writes its current blocks, and the values last pushed for the blocks of the last rounds; with several groups the
     * table contains the items. Every group has its own squares; if a restart adds groups, they start with squares of another
     * group. */
    size_t number = first_block(s, me), mine = items_from(s, number), last = last_block(s, me);
    uint64_t items = s->m->items, first = s->first_item[number], group = (uint64_t)(me->group % groups);
    if (groups == 1) {
        TR_TRY(snapshot_items(s, list, "items", items, first, mine, s->pad, FACTORS));
        if (s->m->bias) TR_TRY(snapshot_items(s, list, "item_biases", items, first, mine, 1, BIASES));
        /* The pushed values are zeros if no rank reads the table during training. */
        size_t pushed = items_from(s, last), width = s->m->width;
        TR_FREED float *nothing = NULL;
        if (!s->items) TR_TRY(TR_NEW(&nothing, pushed * width));
        TR_TRY(tr_snapshot_rows(list, "items_told", TR_F32, items, width, NULL, s->first_item[last], pushed,
                                s->items ? s->items->value : nothing));
    }
    if (!s->adagrad) return TR_OK;
    return snapshot_items(s, list, "item_squares", (uint64_t)groups * items, group * items + first, mine, 1,
                          SQUARES);
}

/* ---- after training: users, and the items of one group ---- */

static int prepare_end(tr_worker *me, void *state)
{
    struct tr_mf *m = state;
    struct tr_mf_sgd *s = m->sgd;
    TR_TRY(tr_view_open(m->user_table, m->train->row, m->train->rows.n, TR_VIEW_UPDATE, &s->users));
    if (me->groups > 1) return TR_OK;
    tr_view_close(&s->items);
    return tr_view_open(m->item_table, s->keys, items_from(s, first_block(s, me)), TR_VIEW_UPDATE, &s->items);
}

/* Pushes the blocks of one group. Does nothing if several groups had completed the training before a restart: then the table is
 * complete and the blocks are empty. */
static int push_items(tr_worker *me, struct tr_mf_sgd *s)
{
    if (me->groups > 1 || s->groups_before != 1) return TR_OK;
    TR_TRY(tr_view_pull(s->items));
    float *delta = s->items->delta;
    const float *value = s->items->value;
    for (size_t d = 0; d < s->depth; d++) {
        tr_block block;
        TR_TRY(tr_rotation_look(s->rotation, (int)d, &block));
        if (!block.memory) return TR_OK;
        struct tr_mf_rows rows = rows_of(s, &block, NULL);
        for (size_t i = 0; i < items_of(s, (size_t)block.number); i++) {
            row_out(s, &rows, i, s->spare);
            for (size_t k = 0; k < s->m->width; k++) *delta++ = s->spare[k] - *value++;
        }
    }
    return tr_view_push(s->items);
}

static int push_end(tr_worker *me, void *state)
{
    const struct tr_mf *m = state;
    tr_view *users = m->sgd->users;
    TR_TRY(push_items(me, m->sgd));
    for (size_t i = 0; i < users->n; i++)
        row_out(m->sgd, &m->sgd->user, i, (float *)users->delta + i * m->width);
    return tr_view_push(users);
}

/* ---- the stages ---- */

static int open_sgd(struct tr_mf *m)
{
    struct tr_mf_sgd *s;
    TR_TRY(TR_NEW(&s, 1));
    m->sgd = s;
    s->m = m;
    s->adagrad = m->o->optimizer == TR_MF_ADAGRAD;
    s->plain_l2 = !m->o->l2_weighted;
    /* Groups add their changes of a row and should therefore exchange items often. (MovieLens 100K, four groups, 12 epochs,
     * held-out RMSE with 1, 4, 8 and 16 clocks per epoch: 1.14, 0.960, 0.932, 0.920, and one group 0.920; with sync.weight
     * con 0.937 and 0.939 for 1 and 8.) */
    struct tr_job_often push;
    TR_TRY(tr_job_often(tr_context_job(m->tr), "sync.push", &push));
    s->parts = push.unit == TR_OFTEN_PER_EPOCH ? (size_t)push.n : tr_groups(m->tr) > 1 ? 16 : 1;
    s->pad = sgd_padded(m->rank);
    s->factor = (float)sqrt(m->spread);
    s->bias = (float)m->spread;
    double rate = tr_job_number(tr_context_job(m->tr), "sync.global_rate");
    if (rate == TR_JOB_AUTO) rate = 1.0 / tr_groups(m->tr);
    return m->averages ? tr_table_use(m->item_table, "scale", &rate) : TR_OK;
}

int tr_mf_sgd_train(struct tr_mf *m)
{
    TR_TRY(tr_agree(m->tr, open_sgd(m)));
    int64_t parts = (int64_t)m->sgd->parts;
    tr_stage train = {.name = "train",
                      .state = m,
                      .clocks = (int64_t)m->epochs * parts,
                      .evaluate_every = (int64_t)m->report_every * parts,
                      .epochs_per_clock = 1 / (double)parts,
                      .objective_name = "train rmse",
                      .metric = {{m->test ? "test rmse" : NULL, false}},
                      .prepare = sgd_prepare,
                      .compute = sgd_compute,
                      .rotates = true,
                      .evaluate = sgd_evaluate,
                      .summarize = tr_mf_summarize,
                      .snapshot = sgd_snapshot};
    tr_table_leave_out(m->user_table); /* the table contains zeros until the end of training */
    TR_TRY(tr_run(m->tr, &train));
    tr_stage end = {.name = "end", .state = m, .clocks = 1, .prepare = prepare_end, .compute = push_end};
    return tr_run(m->tr, &end);
}
