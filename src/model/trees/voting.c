/* Columns that workers vote for (solve.parallel voting): each names those that would split its own rows best, and only of the columns with
 * most votes, twice as many as each has named, are sums over all rows found (Meng et al., A communication-efficient parallel algorithm
 * for decision trees, NIPS 2016). For wide tables: what travels does not grow with their columns. */
#include <stdlib.h>
#include <string.h>

#include "trees.h"

struct vote {
    float gain;
    uint32_t column, votes;
};

struct tr_voting {
    size_t votes, most;           /* of a worker; columns that are looked at, at most */
    struct vote *mine, *all;      /* of each column */
    struct tr_trees_share *share; /* of each worker: of the columns that are looked at */
    uint32_t *chosen;
    tr_pair *sum;
};

int tr_voting_open(struct tr_trees *m)
{
    struct tr_voting *v;
    size_t columns = m->bins.columns;
    if (m->o->parallel != TR_PARALLEL_VOTING || tr_workers(m->tr) == 1) return TR_OK;
    TR_TRY(TR_NEW(&m->voting, 1));
    v = m->voting;
    v->votes = tr_min_size((size_t)m->o->votes, columns);
    v->most = tr_min_size(2 * v->votes, columns);
    TR_TRY(TR_NEW(&v->mine, columns));
    TR_TRY(TR_NEW(&v->all, columns));
    TR_TRY(TR_NEW(&v->share, (size_t)tr_workers(m->tr)));
    TR_TRY(TR_NEW(&v->chosen, v->most));
    return TR_NEW(&v->sum, m->bins.total);
}

void tr_voting_close(struct tr_voting **voting)
{
    struct tr_voting *v = *voting;
    if (!v) return;
    void *arrays[] = {v->mine, v->all, v->share, v->chosen, v->sum, v};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) free(arrays[i]);
    *voting = NULL;
}

size_t tr_votes_bytes(const struct tr_trees_options *o, size_t columns)
{
    return tr_min_size((size_t)o->votes, columns) * sizeof(struct vote);
}

/* Many votes first, then large gains, then by number. */
static int by_votes(const void *a, const void *b)
{
    const struct vote *x = a, *y = b;
    if (x->votes != y->votes) return x->votes > y->votes ? -1 : 1;
    if (x->gain != y->gain) return x->gain > y->gain ? -1 : 1;
    return (x->column > y->column) - (x->column < y->column);
}

static int by_column(const void *a, const void *b)
{
    const uint32_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* By what they gain for this worker's rows; that a child must have so many rows, in proportion. */
static void order_own(const struct tr_trees *m, const tr_pair *hist, const struct tr_leaf_sums *own)
{
    struct vote *mine = m->voting->mine;
    struct tr_scan s;
    bool splits = tr_scan_begin(m, own, 1.0 / tr_workers(m->tr), &s);
    for (uint32_t c = 0; c < m->bins.columns; c++) {
        struct tr_split best = {.gain = s.nothing};
        if (splits) tr_scan_column(m, &s, hist + m->bins.column[c].offset, c, &best);
        mine[c] = (struct vote){best.gain > s.nothing ? best.gain : 0, c, 0};
    }
    qsort(mine, m->bins.columns, sizeof *mine, by_votes);
}

/* All come to the same choice: they add up the same numbers in the same order. */
static void count_votes(const struct tr_trees *m)
{
    struct tr_voting *v = m->voting;
    for (uint32_t c = 0; c < m->bins.columns; c++) v->all[c] = (struct vote){0, c, 0};
    for (size_t w = 0; w < (size_t)tr_workers(m->tr); w++) {
        const struct vote *told = tr_trees_merge_told(m->merge, w);
        for (size_t i = 0; i < v->votes; i++) {
            v->all[told[i].column].votes++;
            v->all[told[i].column].gain += told[i].gain;
        }
    }
    qsort(v->all, m->bins.columns, sizeof *v->all, by_votes);
    for (size_t i = 0; i < v->most; i++) v->chosen[i] = v->all[i].column;
    qsort(v->chosen, v->most, sizeof *v->chosen, by_column);
}

/* Sums of the chosen columns over all rows come to their owners. */
static int add_chosen(struct tr_trees *m, const tr_pair *hist)
{
    struct tr_voting *v = m->voting;
    tr_pair *local = tr_trees_merge_local(m->merge);
    for (size_t i = 0, at = 0; i < v->most; i++) {
        const struct tr_column_bins *column = &m->bins.column[v->chosen[i]];
        memcpy(local + at, hist + column->offset, column->bins * sizeof *hist);
        at += column->bins;
    }
    tr_trees_merge_divide(m->merge, &m->bins, v->chosen, v->most, v->share);
    return tr_trees_merge_add(m->merge, v->share, 1, v->sum);
}

int tr_vote(struct tr_trees *m, const tr_pair *hist, const struct tr_leaf_sums *own,
            const struct tr_leaf_sums *leaf, struct tr_split *best)
{
    struct tr_voting *v = m->voting;
    const struct tr_trees_share *share = &v->share[tr_set_rank(m->tr, TR_SET_WORKERS)];
    struct tr_scan s;
    *best = (struct tr_split){0};
    if (!tr_scan_begin(m, leaf, 1, &s)) return TR_OK;
    order_own(m, hist, own);
    TR_TRY(tr_trees_merge_tell(m->merge, v->mine, v->votes * sizeof *v->mine));
    count_votes(m);
    TR_TRY(add_chosen(m, hist));
    best->gain = s.nothing;
    const tr_pair *sum = v->sum;
    for (size_t i = share->first; i < share->last; i++) {
        tr_scan_column(m, &s, sum, v->chosen[i], best);
        sum += m->bins.column[v->chosen[i]].bins;
    }
    if (best->gain <= s.nothing) best->gain = 0;
    return TR_OK;
}
