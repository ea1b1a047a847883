/* Factorization by stochastic gradient descent.
 *
 * A clock is a full rotation on one part of the users. In each round a member has a block of items and trains on the ratings
 * of these items by its users of the part: no two members change the same row at the same time, and every rating is used
 * once per epoch. Factors of users stay with their worker until the end. With several groups, a block is read from the table
 * "items" at the begin of a clock and its change is added at the end; with one group the block is authoritative and the table
 * follows. A clock may have several rotations, each on some of the users of the part: information between users and items
 * then spreads faster, at the price of shorter rounds.
 *
 * Ratings are standardised to (r - average) / spread, so that the same rates fit all scales. Biases start at shrunk means.
 * Rates decrease to 0 as (1 - fraction of completed clocks)^0.7, which needs at most half the epochs of any constant rate for
 * the same error. With adagrad the rate of a row is also divided by the square root of the sum of its mean squared gradients
 * (Chin et al., A learning-rate schedule for stochastic gradient methods to matrix factorization, 2015; here one sum per
 * row).
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "mf.h"

struct tr_mf_sgd {
    struct tr_mf *m;
    bool adagrad, plain_l2;         /* plain_l2: model.l2_weighted no */
    size_t depth, blocks;           /* blocks per worker between two clocks; blocks of the group */
    size_t parts;                   /* clocks per epoch */
    size_t turns;                   /* rotations per clock */
    size_t pad;                     /* floats per row */
    float factor, bias;             /* units of factors and biases: value in the table / value here */
    uint64_t *first_item;           /* blocks + 1 numbers: first item of each block */
    float *user_start, *item_start; /* initial biases of users, and of items of this worker's first blocks */
    float *item_share;              /* model.l2_weighted no: of these items, as in struct tr_mf_rows */
    tr_rotation *rotation;
    struct tr_mf_tiling tiling;
    float *memory, *spare; /* rows of users; scratch memory for one row */
    struct tr_mf_rows user;
    /* View of the blocks in a clock's last rounds, NULL if nobody reads the table during training; after training of the
     * current blocks. */
    tr_view *items;
    tr_view *users; /* after training */
    tr_key *keys;   /* items of the blocks in a clock's first rounds */

    double squares, ratings; /* sum of squared errors in this epoch, and their number */

    /* After a restart: the first clock, and the number of groups in the checkpoint. With one group the blocks are newer than
     * the table; with several the table contains the items. */
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
    void *arrays[] = {s->first_item, s->user_start, s->item_start, s->item_share,
                      s->memory,     s->spare,      s->keys,       s};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) free(arrays[i]);
    *sgd = NULL;
}

/* ---- rows in memory ---- */

static size_t padded(size_t n)
{
    return (n + TR_MF_ALIGN - 1) / TR_MF_ALIGN * TR_MF_ALIGN;
}

/* Floats for n rows with biases, sums and shares. before: also for a copy of the rows at the begin of the clock, in blocks of
 * several groups. */
static size_t floats_of(const struct tr_mf_sgd *s, size_t n, bool before)
{
    size_t numbers = padded(n) * ((size_t)s->m->bias + s->adagrad + s->plain_l2);
    return n * s->pad + numbers + (before ? n * s->m->width : 0);
}

static struct tr_mf_rows rows_in(const struct tr_mf_sgd *s, float *memory, size_t n, float **before)
{
    struct tr_mf_rows rows = {.row = memory};
    float *at = memory + n * s->pad;
    if (s->m->bias) rows.bias = at, at += padded(n);
    if (s->adagrad) rows.sum = at, at += padded(n);
    if (s->plain_l2) rows.share = at, at += padded(n);
    if (before) *before = at;
    return rows;
}

/* Convert row i to the units of the tables, and back. */
static void row_out(const struct tr_mf_sgd *s, const struct tr_mf_rows *rows, size_t i, float *out)
{
    for (size_t k = 0; k < s->m->rank; k++) out[k] = rows->row[i * s->pad + k] * s->factor;
    if (s->m->bias) out[s->m->rank] = rows->bias[i] * s->bias;
}

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

/* Number of items of the `depth` blocks that start with this one. */
static size_t items_from(const struct tr_mf_sgd *s, size_t block)
{
    return (size_t)(s->first_item[block + s->depth] - s->first_item[block]);
}

/* First of the blocks that this worker has in the first rounds of a clock, and in the last rounds. */
static size_t first_block(const struct tr_mf_sgd *s, const tr_worker *me)
{
    return (size_t)me->member * s->depth;
}

static size_t last_block(const struct tr_mf_sgd *s, const tr_worker *me)
{
    return (first_block(s, me) + s->blocks - s->depth) % s->blocks;
}

/* ---- preparation: blocks and initial biases ---- */

static double value_of(const tr_batch *rows, uint64_t k)
{
    return rows->value ? (double)rows->value[k] : 1;
}

/* Counts and sums the ratings of each key over the group. All members have the same keys. */
static int sum_ratings(const struct tr_mf_sgd *s, tr_worker *me, double *count, double *sum)
{
    const tr_batch *rows = &s->m->train->rows;
    for (uint64_t k = 0; rows->n > 0 && k < rows->begin[rows->n]; k++) {
        count[rows->column[k]]++;
        sum[rows->column[k]] += value_of(rows, k);
    }
    TR_TRY(tr_group_sum(me, count, s->m->train->n_keys));
    return tr_group_sum(me, sum, s->m->train->n_keys);
}

/* Chooses the number of rotations per clock. In the first rotation members fit different factors, which must be reconciled
 * later, so it should be short; but a round should take longer than the transfer of a block. (Generated ratings, 9M of rank
 * 32, two workers, 3 epochs, held-out RMSE with 1, 2, 4, 8 and 16 rotations per epoch: 0.772, 0.767, 0.764, 0.762, 0.762.)
 * At 1 Gbit/s the transfer of an item's row takes as long as the steps on about 60 of its ratings, for any rank: between
 * hosts each visit must have at least LEAST_VISIT. More rotations do not improve public data: Jester sends 31 kB per rank and
 * pass on 2 hosts, 49 on 16, 22 on 32, and MovieLens 100K 274 on 2 and 275 on 16; with 8 rotations (MovieLens on 16 hosts: 2)
 * 117, 137 and 169, 1833 and 468, and the held-out RMSE after 8 epochs is the same within 0.0002. */
static size_t choose_turns(const struct tr_mf_sgd *s, const tr_worker *me, double ratings)
{
    enum { LEAST_ROUND = 16384, LEAST_VISIT = 150, MOST_TURNS = 8 };
    double members = me->group_size, rounds = (double)s->parts * members * (double)s->blocks;
    double visits = (double)s->parts * members * (double)s->m->items;
    double turns = fmin(MOST_TURNS, ratings / rounds / LEAST_ROUND);
    if (s->depth > 1) turns = fmin(turns, ratings / visits / LEAST_VISIT);
    return (size_t)fmax(1, turns);
}

/* Divides the items into blocks with similar numbers of the group's ratings. */
static int plan_blocks(struct tr_mf_sgd *s, const tr_worker *me, const double *count)
{
    const tr_data *train = s->m->train;
    size_t *bound;
    double all = 0;
    TR_TRY(TR_NEW(&s->first_item, s->blocks + 1));
    TR_TRY(TR_NEW(&bound, s->blocks + 1));
    for (size_t j = 0; j < train->n_keys; j++) all += count[j];
    s->turns = choose_turns(s, me, all);
    TR_TRY(tr_report_figure(s->m->tr, "rotations_per_clock", (double)s->turns));
    tr_mf_divide(train->n_keys, count, s->blocks, bound);
    for (size_t b = 1; b < s->blocks; b++)
        s->first_item[b] =
            bound[b] > 0 && bound[b] < train->n_keys ? train->keys[bound[b] - 1] + 1 : s->m->items;
    s->first_item[s->blocks] = s->m->items;
    free(bound);
    return TR_OK;
}

/* Initial biases are those of a model without factors: means of an item's ratings, and means of a user's residuals, shrunk by
 * this number of additional average ratings. Gradient steps would need more than an epoch to reach them. */
static const double prior_ratings = 5;

/* Returns the shrunk mean of n ratings whose differences from the average sum up to `sum`. */
static float shrunk_mean(const struct tr_mf_sgd *s, double n, double sum)
{
    return (float)(sum / s->m->spread / (n + prior_ratings));
}

static int start_users(struct tr_mf_sgd *s, const float *item)
{
    const tr_batch *rows = &s->m->train->rows;
    TR_TRY(TR_NEW(&s->user_start, rows->n));
    for (size_t u = 0; u < rows->n; u++) {
        double n = (double)(rows->begin[u + 1] - rows->begin[u]), ratings = 0, known = 0;
        for (uint64_t k = rows->begin[u]; k < rows->begin[u + 1]; k++) {
            ratings += value_of(rows, k);
            known += (double)item[rows->column[k]];
        }
        s->user_start[u] = shrunk_mean(s, n, ratings - n * s->m->average - known * s->m->spread);
    }
    return TR_OK;
}

/* Computes the initial biases of this worker's users, and of the items of its first blocks. */
static int start_biases(struct tr_mf_sgd *s, size_t block, const double *count, const double *sum)
{
    const tr_data *train = s->m->train;
    uint64_t first = s->first_item[block];
    float *start;
    TR_TRY(TR_NEW(&start, train->n_keys));
    int status = TR_NEW(&s->item_start, items_from(s, block));
    for (size_t j = 0; j < train->n_keys && status == TR_OK; j++) {
        start[j] = shrunk_mean(s, count[j], sum[j] - count[j] * s->m->average);
        if (train->keys[j] >= first && train->keys[j] - first < items_from(s, block))
            s->item_start[train->keys[j] - first] = start[j];
    }
    if (status == TR_OK) status = start_users(s, start);
    free(start);
    return status;
}

/* model.l2_weighted no: λ of a row counts once per epoch, so each of its ratings has a fraction of it. Each group counts its
 * own ratings, and the steps of groups are added. */
static int share_items(struct tr_mf_sgd *s, const tr_worker *me, const double *count)
{
    const tr_data *train = s->m->train;
    size_t block = first_block(s, me);
    uint64_t first = s->first_item[block], n = items_from(s, block);
    double groups = s->m->averages ? 1 : me->groups;
    TR_TRY(TR_NEW(&s->item_share, n));
    for (size_t j = 0; j < train->n_keys; j++)
        if (train->keys[j] >= first && train->keys[j] - first < n && count[j] > 0)
            s->item_share[train->keys[j] - first] = (float)(1 / (count[j] * groups));
    return TR_OK;
}

static int plan(struct tr_mf_sgd *s, tr_worker *me)
{
    size_t keys = s->m->train->n_keys;
    double *count = NULL, *sum = NULL;
    s->depth = (size_t)tr_rotation_depth(me->tr);
    s->blocks = (size_t)me->group_size * s->depth;
    int status = TR_NEW(&count, keys);
    if (status == TR_OK) status = TR_NEW(&sum, keys);
    if (status == TR_OK) status = sum_ratings(s, me, count, sum);
    if (status == TR_OK) status = plan_blocks(s, me, count);
    if (status == TR_OK && s->m->bias) status = start_biases(s, first_block(s, me), count, sum);
    if (status == TR_OK && s->plain_l2) status = share_items(s, me, count);
    free(count);
    free(sum);
    return status;
}

/* ---- state of a worker ---- */

static int open_rotation(struct tr_mf_sgd *s, tr_worker *me)
{
    size_t *bytes;
    TR_TRY(TR_NEW(&bytes, s->blocks));
    for (size_t b = 0; b < s->blocks; b++)
        bytes[b] = floats_of(s, items_of(s, b), me->groups > 1) * sizeof(float);
    int status = tr_rotation_open(me, bytes, 1, &s->rotation);
    free(bytes);
    return status;
}

static int zeros(size_t n, float **memory)
{
    TR_TRY(tr_mf_memory((void **)memory, n, sizeof **memory));
    memset(*memory, 0, n * sizeof **memory);
    return TR_OK;
}

static int make_users(struct tr_mf_sgd *s)
{
    const tr_data *train = s->m->train;
    size_t n = train->rows.n;
    TR_TRY(zeros(floats_of(s, n, false), &s->memory));
    s->user = rows_in(s, s->memory, n, NULL);
    for (size_t i = 0; i < n; i++) {
        first_row(s, TR_MF_USER, train->row[i], &s->user, i);
        if (s->user_start) s->user.bias[i] = s->user_start[i];
        if (s->plain_l2) s->user.share[i] = 1 / (float)(train->rows.begin[i + 1] - train->rows.begin[i]);
    }
    return TR_OK;
}

static int list_keys(const struct tr_mf_sgd *s, size_t block, tr_key **keys)
{
    size_t n = items_from(s, block);
    TR_TRY(TR_NEW(keys, n));
    for (size_t i = 0; i < n; i++) (*keys)[i] = s->first_item[block] + i;
    return TR_OK;
}

/* Returns whether the table is read during training: by other groups, for test data, or after a restart. */
static bool reads_table(const struct tr_mf_sgd *s, const tr_worker *me)
{
    return me->groups > 1 || s->m->test || tr_context_continues(s->m->tr);
}

static int open_items(struct tr_mf_sgd *s, const tr_worker *me)
{
    size_t last = last_block(s, me);
    tr_key *keys;
    TR_TRY(list_keys(s, last, &keys));
    int status = tr_view_open(s->m->item_table, keys, items_from(s, last), TR_VIEW_UPDATE, &s->items);
    free(keys);
    return status;
}

/* Number of items per tile: half of a typical L2 cache, but for long rows enough items to keep visits long. */
static size_t tile_items(const struct tr_mf_sgd *s)
{
    enum { TILE_BYTES = 640 << 10, LEAST_TILE_ITEMS = 2048, MOST_TILE_ITEMS = 1 << 16 };
    size_t fit = TILE_BYTES / (s->pad * sizeof(float));
    return tr_max_size(LEAST_TILE_ITEMS, tr_min_size(fit, MOST_TILE_ITEMS));
}

static int prepare(tr_worker *me, void *state)
{
    struct tr_mf *m = state;
    struct tr_mf_sgd *s = m->sgd;
    TR_TRY(zeros(padded(m->width), &s->spare));
    TR_TRY(plan(s, me));
    TR_TRY(open_rotation(s, me));
    TR_TRY(tr_mf_tile_ratings(m->train, s->parts * s->turns, s->blocks, s->first_item, tile_items(s),
                              m->average, 1 / m->spread, &s->tiling));
    TR_TRY(make_users(s));
    tr_data_forget(m->train); /* the tiles replace the ratings */
    TR_TRY(list_keys(s, first_block(s, me), &s->keys));
    if (reads_table(s, me)) TR_TRY(open_items(s, me));
    return tr_mf_open_tests(m);
}

/* ---- a block ---- */

/* Destination of pulled rows. */
struct arriving {
    const struct tr_mf_sgd *s;
    const struct tr_mf_rows *rows;
};

static int store_row(void *state, const tr_row *row)
{
    const struct arriving *a = state;
    memcpy(a->s->spare, row->value, a->s->m->width * sizeof(float));
    tr_mf_clip(a->s->m, a->s->spare);
    row_in(a->s, a->s->spare, a->rows, row->place);
    return TR_OK;
}

/* Fills a block at the begin of a clock. At clock 0 it receives the initial values. Blocks of one group then remain valid
 * (after a restart from the checkpoint); blocks of several groups are pulled. */
static int fill_block(struct tr_mf_sgd *s, tr_worker *me, size_t block, const struct tr_mf_rows *rows,
                      float *before)
{
    size_t n = items_of(s, block), skip = n > 0 ? (size_t)(s->first_item[block] - s->keys[0]) : 0;
    struct arriving arriving = {s, rows};
    bool kept = me->clock == s->first_clock && s->groups_before == 1;
    bool pulls = me->clock > 0 && !kept && (me->groups > 1 || me->clock == s->first_clock);
    for (size_t i = 0; i < n && me->clock == 0; i++) {
        first_row(s, TR_MF_ITEM, s->first_item[block] + i, rows, i);
        if (s->item_start) rows->bias[i] = s->item_start[skip + i];
    }
    if (s->plain_l2 && me->clock == s->first_clock)
        memcpy(rows->share, s->item_share + skip, n * sizeof *rows->share);
    if (pulls) TR_TRY(tr_rows_pull(s->m->item_table, s->keys + skip, n, store_row, &arriving));
    for (size_t i = 0; i < n && me->groups > 1; i++) row_out(s, rows, i, before + i * s->m->width);
    return TR_OK;
}

/* Writes the change of a block to the update. The table starts with zeros, or with the last state pushed by one group; the
 * difference from there to the initial values is pushed by the first group, or by all if updates are averaged. */
static void list_changes(struct tr_mf_sgd *s, const tr_worker *me, size_t block,
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

/* ---- a clock ---- */

/* Initial rate. With adagrad it is proportional to 1 / √epochs. With 1 / epochs, more epochs ended further from the minimum;
 * with a constant rate 20 epochs overfit where 5 underfit. (RMSE in training and held out after 5, 20 and 40 epochs, rank 32:
 * MovieLens 100K .857 .922, .797 .911, .766 .910; Jester 3.55 4.034, 3.20 4.028, 3.10 4.039; at 0.7 / epochs MovieLens .847
 * .919, .864 .931, .869 .934.) With solve.decay the rate does not depend on the number of epochs, which may be raised
 * later. */
static double first_rate(const struct tr_mf_sgd *s)
{
    const struct tr_mf_options *o = s->m->o;
    if (o->rate != TR_JOB_AUTO) return o->rate;
    if (!s->adagrad) return 0.02;
    return o->decay > 0 ? 0.1 : fmin(0.16, 0.28 / sqrt((double)s->m->epochs));
}

static double rate_at(const struct tr_mf_sgd *s, int64_t clock)
{
    double decay = s->m->o->decay, all = (double)s->m->epochs * (double)s->parts;
    if (decay > 0) return first_rate(s) / sqrt(decay * (double)clock + 1);
    return first_rate(s) * pow(1 - (double)clock / all, 0.7);
}

static struct tr_mf_pass pass_at(const struct tr_mf_sgd *s, const tr_worker *me)
{
    const struct tr_mf *m = s->m;
    float l2 = (float)(m->l2 / m->spread);
    return (struct tr_mf_pass){
        .level = tr_cpu(),
        .width = s->pad,
        .rank = m->rank,
        .mean = m->centred ? 0 : (float)(-m->average / m->spread),
        .rate = (float)rate_at(s, me->clock),
        /* Biases start near their optimum; steps as large as those of factors would add noise. (MovieLens 100K, rank 32,
         * 6 epochs, held-out RMSE with factors of 1, 0.3 and 0.1: 0.926, 0.920, 0.920.) */
        .bias_part = 0.1f,
        .l2 = l2,
        .bias_l2 = l2,
        .crowd = m->averages ? 1 : (float)me->groups,
        .nonnegative = m->o->nonnegative,
        .spare = s->spare};
}

static void train_block(struct tr_mf_sgd *s, const tr_worker *me, size_t turn, size_t block,
                        const struct tr_mf_rows *rows)
{
    size_t tiles, part = (size_t)me->clock % s->parts * s->turns + turn;
    const struct tr_mf_tile *tile = tr_mf_tiles_of(&s->tiling, part, block, &tiles);
    struct tr_mf_pass pass = pass_at(s, me);
    for (size_t t = 0; t < tiles; t++) {
        tr_seam();
        struct tr_mf_rows items = tr_mf_rows_from(rows, t * s->tiling.tile_items, s->pad);
        s->squares += tr_mf_tile_pass(&pass, &tile[t], &s->user, &items);
        s->ratings += (double)tile[t].ratings;
    }
}

/* Returns whether the table is updated after this clock. The table of one group is read only in evaluations on test data, and
 * updated completely after training. */
static bool table_is_due(const struct tr_mf_sgd *s, const tr_worker *me)
{
    int64_t every = (int64_t)s->m->report_every * (int64_t)s->parts, now = me->clock + 1;
    return me->groups > 1 || (s->m->test && (every == 0 || now % every == 0));
}

static struct tr_mf_rows rows_of(const struct tr_mf_sgd *s, const tr_block *block, float **before)
{
    return rows_in(s, block->memory, items_of(s, (size_t)block->number), before);
}

/* Fills the blocks that a worker has at the begin of a clock. Blocks of one group are complete after the first clock: there is
 * no need to wait for blocks in transfer. */
static int fill_blocks(struct tr_mf_sgd *s, tr_worker *me)
{
    if (me->groups == 1 && me->clock > 0 && me->clock != s->first_clock) return TR_OK;
    for (size_t d = 0; d < s->depth; d++) {
        tr_block block;
        float *before;
        TR_TRY(tr_rotation_look(s->rotation, (int)d, &block));
        if (!block.memory) return TR_OK;
        struct tr_mf_rows rows = rows_of(s, &block, &before);
        TR_TRY(fill_block(s, me, (size_t)block.number, &rows, before));
    }
    return TR_OK;
}

/* Trains on one block in one rotation. last: also writes its changes to the update. */
static int work_on(struct tr_mf_sgd *s, const tr_worker *me, size_t turn, const tr_block *block, bool last)
{
    float *before;
    struct tr_mf_rows rows = rows_of(s, block, &before);
    TR_TRY(tr_turn_begin(s->m->tr, "rotate"));
    train_block(s, me, turn, (size_t)block->number, &rows);
    TR_TRY(tr_turn_end(s->m->tr, TR_OK));
    if (last) list_changes(s, me, (size_t)block->number, &rows, before);
    return TR_OK;
}

static int compute(tr_worker *me, void *state)
{
    struct tr_mf_sgd *s = ((struct tr_mf *)state)->sgd;
    size_t rounds = s->turns * s->blocks;
    bool due = table_is_due(s, me);
    if ((size_t)me->clock % s->parts == 0) s->squares = s->ratings = 0;
    TR_TRY(fill_blocks(s, me));
    if (me->groups == 1 && s->groups_before > 1) TR_TRY(tr_view_pull(s->items));
    if (me->groups == 1) s->groups_before = 1;
    for (size_t round = 0; round < rounds; round++) {
        tr_block block;
        TR_TRY(tr_rotation_take(s->rotation, &block));
        if (!block.memory) return TR_OK;
        TR_TRY(work_on(s, me, round / s->blocks, &block, due && round + s->depth >= rounds));
        TR_TRY(tr_rotation_give(s->rotation));
    }
    return due ? tr_view_push(s->items) : TR_OK;
}

static const float *user_row(const struct tr_mf *m, size_t i)
{
    row_out(m->sgd, &m->sgd->user, i, m->sgd->spare);
    return m->sgd->spare;
}

static int evaluate(tr_worker *me, void *state, tr_report *report)
{
    (void)me;
    struct tr_mf *m = state;
    report->sum[TR_MF_SQUARES] += m->sgd->squares * m->spread * m->spread;
    report->sum[TR_MF_RATINGS] += m->sgd->ratings;
    return tr_mf_add_tests(m, user_row, report);
}

/* ---- checkpoints: users, and the blocks of items that are newer than the table ---- */

static int snapshot_users(struct tr_mf_sgd *s, tr_snapshot *snapshot)
{
    const uint64_t *row = s->m->train->row, users = s->m->users;
    size_t n = s->m->train->rows.n;
    TR_TRY(tr_snapshot_rows(snapshot, "users", TR_F32, users, s->pad, row, 0, n, s->user.row));
    if (s->m->bias)
        TR_TRY(tr_snapshot_rows(snapshot, "user_biases", TR_F32, users, 1, row, 0, n, s->user.bias));
    if (!s->adagrad) return TR_OK;
    return tr_snapshot_rows(snapshot, "user_squares", TR_F32, users, 1, row, 0, n, s->user.sum);
}

/* Selects one array of a block: factors, biases or squares. */
typedef float *part_fn(const struct tr_mf_rows *rows);

static float *factors_of(const struct tr_mf_rows *rows)
{
    return rows->row;
}

static float *biases_of(const struct tr_mf_rows *rows)
{
    return rows->bias;
}

static float *squares_of(const struct tr_mf_rows *rows)
{
    return rows->sum;
}

/* Copies an array of the current blocks to contiguous memory (out), or back. */
static int copy_blocks(struct tr_mf_sgd *s, part_fn *part, size_t columns, float *memory, bool out)
{
    for (size_t d = 0; d < s->depth; d++) {
        tr_block block;
        TR_TRY(tr_rotation_look(s->rotation, (int)d, &block));
        if (!block.memory) return TR_OK;
        struct tr_mf_rows rows = rows_of(s, &block, NULL);
        size_t n = items_of(s, (size_t)block.number) * columns;
        if (out) memcpy(memory, part(&rows), n * sizeof *memory);
        else memcpy(part(&rows), memory, n * sizeof *memory);
        memory += n;
    }
    return TR_OK;
}

/* items: total number; first: index of this worker's first item. */
static int snapshot_items(struct tr_mf_sgd *s, tr_snapshot *snapshot, const char *name, uint64_t items,
                          uint64_t first, size_t n, size_t columns, part_fn *part)
{
    float *memory;
    TR_TRY(TR_NEW(&memory, n * columns));
    int status = copy_blocks(s, part, columns, memory, true);
    if (status == TR_OK)
        status = tr_snapshot_rows(snapshot, name, TR_F32, items, columns, NULL, first, n, memory);
    if (status == TR_OK && tr_snapshot_restores(snapshot))
        status = copy_blocks(s, part, columns, memory, false);
    free(memory);
    return status;
}

/* Lists the values that were pushed to the table; zeros if nobody reads it. */
static int snapshot_pushed(const struct tr_mf_sgd *s, tr_snapshot *snapshot, size_t last)
{
    size_t n = items_from(s, last), width = s->m->width;
    float *nothing = NULL;
    if (!s->items) TR_TRY(TR_NEW(&nothing, n * width));
    int status = tr_snapshot_rows(snapshot, "items_told", TR_F32, s->m->items, width, NULL,
                                  s->first_item[last], n, s->items ? s->items->value : nothing);
    free(nothing);
    return status;
}

/* Lists the current blocks, and the pushed values of the blocks of the last rounds. With several groups the table contains the
 * items. Every group has its own squares; an additional group after a restart starts with those of another. */
static int snapshot_blocks(tr_worker *me, struct tr_mf_sgd *s, int64_t groups, tr_snapshot *snapshot)
{
    size_t number = first_block(s, me), n = items_from(s, number), last = last_block(s, me);
    uint64_t items = s->m->items, first = s->first_item[number], group = (uint64_t)(me->group % groups);
    if (groups == 1) {
        TR_TRY(snapshot_items(s, snapshot, "items", items, first, n, s->pad, factors_of));
        if (s->m->bias) TR_TRY(snapshot_items(s, snapshot, "item_biases", items, first, n, 1, biases_of));
        TR_TRY(snapshot_pushed(s, snapshot, last));
    }
    if (!s->adagrad) return TR_OK;
    return snapshot_items(s, snapshot, "item_squares", (uint64_t)groups * items, group * items + first, n, 1,
                          squares_of);
}

static int snapshot(tr_worker *me, void *state, tr_snapshot *list)
{
    struct tr_mf *m = state;
    struct tr_mf_sgd *s = m->sgd;
    int64_t groups = me->groups;
    double sums[] = {s->squares, s->ratings};
    TR_TRY(tr_mf_snapshot_evaluation(m, list));
    TR_TRY(tr_snapshot_common(list, "groups", TR_I64, 1, &groups));
    TR_TRY(tr_model_keep_sums(me, list, "errors", 2, sums));
    s->squares = sums[0];
    s->ratings = sums[1];
    if (tr_snapshot_restores(list)) {
        s->first_clock = me->clock;
        s->groups_before = groups;
    }
    TR_TRY(snapshot_users(s, list));
    return me->worker < 0 ? TR_OK : snapshot_blocks(me, s, groups, list);
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

/* Pushes the blocks of one group. If several groups had completed the training before a restart, the table is complete and
 * the blocks are empty. */
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
    s->pad = padded(m->rank);
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
                      .metric_name = m->test ? "test rmse" : NULL,
                      .prepare = prepare,
                      .compute = compute,
                      .rotates = true,
                      .evaluate = evaluate,
                      .summarize = tr_mf_summarize,
                      .snapshot = snapshot};
    tr_table_leave_out(m->user_table); /* zeros until the end of training */
    TR_TRY(tr_run(m->tr, &train));
    tr_stage end = {.name = "end", .state = m, .clocks = 1, .prepare = prepare_end, .compute = push_end};
    return tr_run(m->tr, &end);
}
