/* What checkpoints keep of gradient descent: users, and what blocks of items are ahead of the table in which they are
 * put together. What is counted of ratings, and how they are cut, follows from the data.
 */
#include "model/mf/sgd.h"
#include "model/model.h"

static int keep_users(struct tr_mf_sgd *s, tr_snapshot *snapshot)
{
    const tr_data *train = s->m->train;
    uint64_t users = s->m->users;
    size_t n = train->rows.n;
    TR_TRY(tr_snapshot_rows(snapshot, "users", TR_F32, users, s->pad, train->row, 0, n, s->user.row));
    if (s->m->bias)
        TR_TRY(tr_snapshot_rows(snapshot, "user_biases", TR_F32, users, 1, train->row, 0, n, s->user.bias));
    return s->adagrad
               ? tr_snapshot_rows(snapshot, "user_squares", TR_F32, users, 1, train->row, 0, n, s->user.sum)
               : TR_OK;
}

/* The block at hand, and what the table has been told of the one that was there in the last round. */
static int keep_items(tr_worker *me, struct tr_mf_sgd *s, const struct tr_mf_rows *rows, size_t block,
                      tr_snapshot *snapshot)
{
    uint64_t items = s->m->items, first = s->first_item[block];
    size_t n = tr_mf_sgd_items_of(s, block), last = ((size_t)me->member + s->blocks - 1) % s->blocks;
    TR_TRY(tr_snapshot_rows(snapshot, "items", TR_F32, items, s->pad, NULL, first, n, rows->row));
    if (s->m->bias)
        TR_TRY(tr_snapshot_rows(snapshot, "item_biases", TR_F32, items, 1, NULL, first, n, rows->bias));
    return tr_snapshot_rows(snapshot, "items_told", TR_F32, items, s->m->width, NULL, s->first_item[last],
                            tr_mf_sgd_items_of(s, last), s->items->value);
}

/* Every group has squares of its own; a group that there was not has those of another one. */
static int keep_squares(const tr_worker *me, struct tr_mf_sgd *s, int64_t groups,
                        const struct tr_mf_rows *rows, size_t block, tr_snapshot *snapshot)
{
    uint64_t group = (uint64_t)(me->group % groups);
    return tr_snapshot_rows(snapshot, "item_squares", TR_F32, (uint64_t)groups * s->m->items, 1, NULL,
                            group * s->m->items + s->first_item[block], tr_mf_sgd_items_of(s, block),
                            rows->sum);
}

static int keep_block(tr_worker *me, struct tr_mf_sgd *s, int64_t groups, tr_snapshot *snapshot)
{
    tr_block block;
    float *before;
    TR_TRY(tr_rotation_look(s->rotation, &block));
    size_t number = (size_t)block.number;
    struct tr_mf_rows rows = tr_mf_sgd_rows_in(s, block.memory, tr_mf_sgd_items_of(s, number), &before);
    if (groups == 1) TR_TRY(keep_items(me, s, &rows, number, snapshot));
    return s->adagrad ? keep_squares(me, s, groups, &rows, number, snapshot) : TR_OK;
}

int tr_mf_sgd_keep(tr_worker *me, void *state, tr_snapshot *snapshot)
{
    struct tr_mf *m = state;
    struct tr_mf_sgd *s = m->sgd;
    int64_t groups = me->groups;
    double sums[] = {s->squares, s->ratings};
    TR_TRY(tr_mf_keep_judged(m, snapshot));
    TR_TRY(tr_snapshot_common(snapshot, "groups", TR_I64, 1, &groups));
    TR_TRY(tr_model_keep_sums(me, snapshot, "errors", 2, sums));
    s->squares = sums[0];
    s->ratings = sums[1];
    if (tr_snapshot_restores(snapshot)) {
        s->first_clock = me->clock;
        s->groups_before = groups;
    }
    TR_TRY(keep_users(s, snapshot));
    return me->worker < 0 ? TR_OK : keep_block(me, s, groups, snapshot);
}
