#include <math.h>
#include <stdlib.h>

#include "data/dataset.h"
#include "model/mf/sgd.h"
#include "ranks/ranks.h"

/* ---- as part of loading ---- */

/* Groups that share items should meet often in an epoch: what they do to a row is added. (MovieLens 100K, four groups,
 * 12 epochs, held-out RMSE with 1, 4, 8 and 16 clocks an epoch: 1.14, 0.960, 0.932, 0.920, and one group 0.920; with
 * sync.weight con 0.937 and 0.939 for 1 and 8.) */
static size_t clocks_of_epoch(const struct tr_mf *m)
{
    enum { USUAL = 16 };
    const struct tr_job_often *push = &m->job->sync.push;
    if (push->unit == TR_OFTEN_PER_EPOCH) return (size_t)push->n;
    return m->tr->layout.groups > 1 ? USUAL : 1;
}

static int open_here(struct tr_mf *m)
{
    struct tr_mf_sgd *s;
    TR_TRY(TR_NEW(&s, 1));
    m->sgd = s;
    s->m = m;
    s->adagrad = m->job->solve.optimizer == TR_OPTIMIZER_ADAGRAD;
    s->plain_l2 = !m->job->model.l2_weighted;
    s->con = m->job->sync.weight == TR_WEIGHT_CON;
    s->parts = clocks_of_epoch(m);
    s->pad = (m->rank + TR_MF_ALIGN - 1) / TR_MF_ALIGN * TR_MF_ALIGN;
    s->factor = sqrt(m->spread);
    s->bias = m->spread;
    return TR_OK;
}

int tr_mf_sgd_open(struct tr_mf *m)
{
    TR_TRY(tr_agree(m->tr, open_here(m)));
    bool has_tests = m->test && tr_is(m->tr, TR_SLAVE);
    return tr_agree(m->tr, has_tests ? tr_mf_meet(m, &m->sgd->test) : TR_OK);
}

/* ---- before the first clock ---- */

/* Of a key: its ratings in the group, and their sum. */
struct key_sum {
    double n, sum;
};

/* Rotations of a clock, each on some of the users. In the first, members learn factors of their own that have to be
 * reconciled afterwards, so it should be short; but a round should take longer than passing on the blocks. (Generated
 * ratings, 9M of rank 32, two workers, 3 epochs, held-out RMSE with 1, 2, 4, 8 and 16 rotations an epoch: 0.772, 0.767,
 * 0.764, 0.762, 0.762.) */
static size_t choose_turns(const struct tr_mf_sgd *s, double ratings)
{
    enum { LEAST_ROUND = 16384, MOST_TURNS = 8 };
    double rounds = (double)s->parts * (double)s->blocks * (double)s->blocks;
    return (size_t)fmax(1, fmin(MOST_TURNS, ratings / rounds / LEAST_ROUND));
}

/* Block borders, so that the group's ratings are divided evenly: by how often each of its keys is rated. */
static int plan_blocks(struct tr_mf_sgd *s, const struct key_sum *key)
{
    const tr_data *train = s->m->train;
    double all = 0, so_far = 0;
    size_t b = 1;
    TR_TRY(TR_NEW(&s->first_item, s->blocks + 1));
    for (size_t j = 0; j < train->n_keys; j++) all += key[j].n;
    s->turns = choose_turns(s, all);
    for (size_t j = 0; j < train->n_keys; j++) {
        so_far += key[j].n;
        while (b < s->blocks && so_far >= all * (double)b / (double)s->blocks)
            s->first_item[b++] = train->keys[j] + 1;
    }
    while (b <= s->blocks) s->first_item[b++] = s->m->items;
    return TR_OK;
}

/* Biases begin where they would be without factors: an item's at the mean of its ratings, a user's at that of what is
 * left of them, of so many ratings more, which are average. Steps take an epoch and more to get there. */
static const double doubt = 5;

/* What is known of something after n ratings that differ from the average by `sum` in all. */
static float start_of(const struct tr_mf_sgd *s, double n, double sum)
{
    return (float)(sum / s->m->spread / (n + doubt));
}

static double value_of(const tr_batch *rows, uint64_t k)
{
    return rows->value ? (double)rows->value[k] : 1;
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
        s->user_start[u] = start_of(s, n, ratings - n * s->m->average - known * s->m->spread);
    }
    return TR_OK;
}

/* Of all items of the group, to know the users'; of those of this worker's first block to keep. */
static int start_biases(struct tr_mf_sgd *s, size_t block, const struct key_sum *key)
{
    const tr_data *train = s->m->train;
    float *start;
    TR_TRY(TR_NEW(&start, train->n_keys));
    int status = TR_NEW(&s->item_start, (size_t)(s->first_item[block + 1] - s->first_item[block]));
    for (size_t j = 0; j < train->n_keys && status == TR_OK; j++) {
        start[j] = start_of(s, key[j].n, key[j].sum - key[j].n * s->m->average);
        if (train->keys[j] >= s->first_item[block] && train->keys[j] < s->first_item[block + 1])
            s->item_start[train->keys[j] - s->first_item[block]] = start[j];
    }
    if (status == TR_OK) status = start_users(s, start);
    free(start);
    return status;
}

/* Over all members of the group, which number the same keys. */
static int sum_ratings(const struct tr_mf_sgd *s, tr_worker *me, struct key_sum *key)
{
    enum { PIECE = 1 << 28 };
    const tr_data *train = s->m->train;
    const tr_batch *rows = &train->rows;
    for (uint64_t k = 0; rows->n > 0 && k < rows->begin[rows->n]; k++) {
        key[rows->column[k]].n++;
        key[rows->column[k]].sum += value_of(rows, k);
    }
    for (size_t at = 0; at < train->n_keys; at += PIECE)
        TR_TRY(tr_group_sum(me, &key[at].n, 2 * tr_min_size(train->n_keys - at, PIECE)));
    return TR_OK;
}

int tr_mf_sgd_plan(struct tr_mf_sgd *s, tr_worker *me)
{
    struct key_sum *key;
    TR_TRY(TR_NEW(&key, s->m->train->n_keys));
    s->blocks = (size_t)me->group_size;
    int status = sum_ratings(s, me, key);
    if (status == TR_OK) status = plan_blocks(s, key);
    if (status == TR_OK && s->m->bias) status = start_biases(s, (size_t)me->member, key);
    free(key);
    return status;
}
