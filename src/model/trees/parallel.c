/* Communication of the workers while a tree grows. */
#include <stdlib.h>
#include <string.h>

#include "trees.h"

/* ================ sums of histograms ================ */

enum { LINE = 64 }; /* bytes of a cache line */

/* Divides columns so that workers have about the same number of bins. Workers with the same index in their groups get
 * adjacent columns.
 *
 * @param [in]  column  the columns to divide, ascending; NULL: all columns
 * @param [out] share   per worker; `first` and `last` are indices into the list `column` */
static void merge_divide(const struct tr_trees_merge *g, const struct tr_bins *bins, const uint32_t *column,
                         size_t columns, struct tr_trees_share *share)
{
    size_t total = 0, offset = 0;
    for (size_t c = 0; c < columns; c++) total += bins->column[column ? column[c] : c].bins;
    for (size_t i = 0, c = 0; i < g->workers; i++) {
        size_t until = total * (i + 1) / g->workers;
        struct tr_trees_share *s = &share[i % g->groups * g->members + i / g->groups];
        *s = (struct tr_trees_share){.first = c, .offset = offset};
        for (; c < columns && (offset < until || i + 1 == g->workers); c++)
            offset += bins->column[column ? column[c] : c].bins;
        s->last = c;
        s->bins = offset - s->offset;
    }
}

static char *merge_memory_of(const struct tr_trees_merge *g, size_t worker)
{
    return (char *)tr_set_memory_at(g->memory) + worker * g->apart;
}

static char *merge_message_of(const struct tr_trees_merge *g, size_t worker)
{
    return merge_memory_of(g, worker) + g->message_at + (g->second ? g->most_sent : 0);
}

int tr_trees_merge_open(tr_context *tr, const struct tr_bins *bins, size_t members, size_t most_sent,
                        size_t together, struct tr_trees_merge **merge)
{
    struct tr_trees_merge *g;
    TR_TRY(TR_NEW(merge, 1));
    g = *merge;
    *g = (struct tr_trees_merge){.tr = tr,
                                 .workers = (size_t)tr_workers(tr),
                                 .me = (size_t)tr_set_rank(tr, TR_SET_WORKERS),
                                 .members = members,
                                 .together = 1,
                                 .bins = bins->total,
                                 .message_at = bins->total * sizeof *g->local,
                                 .most_sent = most_sent};
    g->groups = g->workers / members;
    TR_TRY(TR_NEW(&g->share, g->workers));
    merge_divide(g, bins, NULL, bins->columns, g->share);
    if (g->workers == 1) return TR_OK;
    /* Open shared memory if all ranks are on one machine. The barrier waits until all workers reach this point. */
    if (tr_set_size(g->tr, TR_SET_NODE) >= tr_set_size(g->tr, TR_SET_ALL)) {
        TR_TRY(tr_barrier_of(g->tr, TR_SET_WORKERS));
        g->apart = ((g->message_at + 2 * most_sent) + LINE - 1) / LINE * LINE;
        int status = tr_set_memory_open(g->tr, TR_SET_WORKERS, g->workers * g->apart, &g->memory);
        if (status != TR_OK) tr_set_memory_close(&g->memory);
        if (status != TR_ERR_SYSTEM) TR_TRY(status);
    }
    if (g->memory) {
        g->local = (void *)merge_memory_of(g, g->me);
        return TR_OK;
    }
    if (members == 1 && g->message_at > 0)
        g->together = tr_max_size(1, tr_min_size(together, TR_BYTES_TOGETHER / g->message_at));
    if (g->together > 1) TR_TRY(TR_NEW(&g->packed, g->together * bins->total));
    TR_TRY(TR_NEW(&g->local, g->together * bins->total));
    size_t most = 0;
    for (size_t c = 0; c < bins->columns; c++) most = tr_max_size(most, bins->column[c].bins);
    if (members > 1) TR_TRY(TR_NEW(&g->arrived, g->groups * (bins->total / g->workers + most + 1)));
    TR_TRY(TR_NEW(&g->bytes, 2 * g->workers));
    return TR_NEW(&g->messages, g->workers * g->together * most_sent);
}

void tr_trees_merge_close(struct tr_trees_merge **merge)
{
    struct tr_trees_merge *g = *merge;
    if (!g) return;
    if (!g->memory) free(g->local);
    tr_set_memory_close(&g->memory);
    TR_FREE_ALL(g->share, g->packed, g->arrived, g->bytes, g->messages, g);
    *merge = NULL;
}

struct tr_trees_share tr_trees_merge_columns(const struct tr_trees_merge *g, size_t member)
{
    struct tr_trees_share s = g->share[member];
    for (size_t i = 1; i < g->groups; i++) {
        s.last = g->share[i * g->members + member].last;
        s.bins += g->share[i * g->members + member].bins;
    }
    return s;
}

TR_CPU_CLONES static void merge_add(tr_pair *restrict to, const tr_pair *restrict from, size_t n)
{
    for (size_t i = 0; i < n; i++) to[i] += from[i];
}

int tr_trees_merge_add(struct tr_trees_merge *g, const struct tr_trees_share *share, size_t n, tr_pair *sum)
{
    if (!share) share = g->share;
    const struct tr_trees_share *own = &share[g->me];
    g->done.merges++;
    g->done.histograms += (double)n;
    for (size_t i = 0; i < g->groups; i++)
        g->done.bins += (double)(n * share[i * g->members + g->me % g->members].bins);
    if (g->groups == 1) {
        memcpy(sum, g->local + own->offset, own->bins * sizeof *sum);
        return TR_OK;
    }
    if (!g->memory && g->members == 1) {
        /* All workers have all columns: a reduce-scatter sums the shares. */
        tr_pair *to = g->packed;
        for (size_t w = 0; w < g->workers; w++) {
            g->bytes[w] = n * share[w].bins;
            if (w != g->me) g->done.bytes += (double)(g->bytes[w] * sizeof *sum);
            for (size_t k = 0; k < n && n > 1; k++, to += share[w].bins)
                memcpy(to, g->local + k * g->bins + share[w].offset, share[w].bins * sizeof *to);
        }
        return tr_reduce_scatter(g->tr, TR_SET_WORKERS, TR_I64, n > 1 ? g->packed : g->local, g->bytes, sum);
    }
    if (g->memory) {
        TR_TRY(tr_set_memory_meet(g->memory));
    } else { /* columns are divided: exchange sums with the workers that have the same columns */
        for (size_t w = 0; w < g->workers; w++) {
            bool same = w % g->members == g->me % g->members;
            g->bytes[w] = same ? share[w].bins * sizeof *sum : 0;
            g->bytes[g->workers + w] = same ? own->bins * sizeof *sum : 0;
            if (w != g->me) g->done.bytes += (double)g->bytes[w];
        }
        TR_TRY(tr_exchange(g->tr, TR_SET_WORKERS, g->local + share[g->me % g->members].offset, g->bytes,
                           g->arrived, g->bytes + g->workers));
    }
    for (size_t i = 0; i < g->groups; i++) {
        const tr_pair *shared =
                          g->memory ? (void *)merge_memory_of(g, i * g->members + g->me % g->members) : NULL,
                      *from = shared ? shared + own->offset : g->arrived + i * own->bins;
        if (i == 0) memcpy(sum, from, own->bins * sizeof *sum);
        else merge_add(sum, from, own->bins);
    }
    return TR_OK;
}

int tr_trees_merge_send(struct tr_trees_merge *g, const void *mine, size_t bytes)
{
    if (!g->memory) {
        g->message_at = bytes;
        return tr_all_gather(g->tr, TR_SET_WORKERS, mine, bytes, g->messages);
    }
    g->second = !g->second;
    memcpy(merge_message_of(g, g->me), mine, bytes);
    return tr_set_memory_meet(g->memory);
}

const void *tr_trees_merge_sent(const struct tr_trees_merge *g, size_t worker)
{
    if (!g->memory) return g->messages + worker * g->message_at;
    return merge_message_of(g, worker);
}

/* ================ columns divided over a group ================ */

/* solve.parallel feature: each member of a group has all rows of the group, but only its share of the columns. No histograms are
 * sent inside a group. For each split, the member that has the column sends the side of each row of the leaf, one bit per row
 * (Abuzaid et al., Yggdrasil, NIPS 2016). Between groups rows are divided, and workers with the same columns sum their
 * histograms (Fu et al., VLDB 2019, compare both).
 *
 * At first each member reads some of the group's rows and converts them to bins. Then the members exchange the bins. */

/* ---- bins ---- */

/* Data that a member exchanges with the other members of its group. */
struct parcel {
    size_t *to, *from; /* per member: number of bytes to send to it, and to receive from it */
    char *sent, *arrived;
};

static size_t sum_of_sizes(const size_t *bytes, size_t n)
{
    size_t sum = 0;
    for (size_t i = 0; i < n; i++) sum += bytes[i];
    return sum;
}

static int parcel_exchange(const struct tr_trees *m, struct parcel *p)
{
    TR_TRY(tr_exchange_counts(m->tr, TR_SET_GROUP, p->to, p->from));
    TR_TRY(TR_NEW(&p->arrived, sum_of_sizes(p->from, m->members)));
    return tr_exchange(m->tr, TR_SET_GROUP, p->sent, p->to, p->arrived, p->from);
}

/* Sends to each member the bins of its columns, sorted by column, one or two bytes per row. `own` contains the rows that this
 * member read, with all columns; `all` receives all rows of the group, with this member's columns.
 *
 * @param [in] rows  per member: number of rows that it read */
static int columns_exchange_dense(const struct tr_trees *m, const struct tr_binned *own, const size_t *rows,
                                  struct parcel *p, struct tr_binned *all)
{
    size_t mine = all->end - all->first, at = 0;
    for (size_t k = 0; k < m->members; k++) {
        struct tr_trees_share s = tr_trees_merge_columns(m->merge, k);
        for (size_t c = s.first; c < s.last; c++)
            p->to[k] += own->n * (tr_bins_are_wide(&m->bins.column[c]) ? 2 : 1);
    }
    TR_TRY(TR_NEW(&p->sent, sum_of_sizes(p->to, m->members)));
    for (size_t c = 0; c < m->bins.columns; c++)
        for (size_t i = 0; i < own->n; i++) {
            uint32_t bin = tr_bin_of(&m->bins, own, i, c);
            p->sent[at++] = (char)bin;
            if (tr_bins_are_wide(&m->bins.column[c])) p->sent[at++] = (char)(bin >> 8);
        }
    TR_TRY(parcel_exchange(m, p));
    TR_TRY(tr_binned_open(&m->bins, all, mine));
    TR_TRY(TR_NEW(&all->wide, all->columns));
    for (size_t c = all->first; c < all->end; c++) {
        all->bundled[c] = (struct tr_bundled){.bundle = (uint32_t)(c - all->first)};
        if (tr_bins_are_wide(&m->bins.column[c])) TR_TRY(TR_NEW(&all->wide[c], all->n));
    }
    const uint8_t *from = (const void *)p->arrived;
    for (size_t k = 0, row = 0; k < m->members; row += rows[k++])
        for (size_t c = all->first; c < all->end; c++)
            for (size_t i = row; i < row + rows[k]; i++) {
                if (all->wide[c]) all->wide[c][i] = (uint16_t)(from[0] | from[1] << 8);
                else *tr_byte_of(all, i, c - all->first) = *from;
                from += all->wide[c] ? 2 : 1;
            }
    return tr_binned_list(&m->bins, all);
}

/* Does the same for sparse rows. The message to a member contains the number of its bins in each row, then these bins. */
static int columns_exchange_sparse(const struct tr_trees *m, const struct tr_binned *own, const size_t *rows,
                                   struct parcel *p, struct tr_binned *all)
{
    uint32_t *at;
    size_t places = own->n > 0 ? (size_t)own->begin[own->n] : 0;
    TR_TRY(TR_NEW(&p->sent, (own->n * m->members + places) * sizeof *at));
    at = (void *)p->sent;
    for (size_t k = 0; k < m->members; k++) {
        struct tr_trees_share s = tr_trees_merge_columns(m->merge, k);
        uint32_t *count = at, *begin = at;
        at += own->n;
        for (size_t i = 0; i < own->n; i++) {
            count[i] = 0;
            for (uint64_t j = own->begin[i]; j < own->begin[i + 1]; j++) {
                if (own->place[j] < s.offset || own->place[j] >= s.offset + s.bins) continue;
                *at++ = own->place[j];
                count[i]++;
            }
        }
        p->to[k] = (size_t)(at - begin) * sizeof *at;
    }
    TR_TRY(parcel_exchange(m, p));
    TR_TRY(TR_NEW(&all->begin, all->n + 1));
    TR_TRY(TR_NEW(&all->place, sum_of_sizes(p->from, m->members) / sizeof *all->place));
    const uint32_t *from = (const void *)p->arrived;
    uint64_t n = 0;
    for (size_t k = 0, row = 0; k < m->members; k++) {
        const uint32_t *count = from;
        from += rows[k];
        for (size_t i = 0; i < rows[k]; i++, row++) {
            memcpy(all->place + n, from, count[i] * sizeof *from);
            from += count[i];
            all->begin[row + 1] = n += count[i];
        }
    }
    return all->n > 0 ? tr_binned_bundle(&m->bins, all) : TR_OK;
}

/* ---- other data of rows ---- */

/* Collects `bytes` bytes per row from all members of the group in new memory, *all. */
static int group_gather_from(const struct tr_trees *m, const size_t *rows, size_t bytes, const void *own,
                             void **all)
{
    TR_FREED size_t *count = NULL;
    char *room = NULL;
    TR_TRY(TR_NEW(&count, m->members));
    for (size_t k = 0; k < m->members; k++) count[k] = rows[k] * bytes;
    TR_TRY(TR_NEW(&room, sum_of_sizes(count, m->members)));
    *all = room;
    return tr_all_gather_lists(m->tr, TR_SET_GROUP, own, count, room);
}

/* Replaces *numbers, an array with an element per row of this member, by an array for all rows of the group. */
static int group_gather(const struct tr_trees *m, const size_t *rows, size_t bytes, void **numbers)
{
    void *all = NULL;
    if (!*numbers) return TR_OK;
    int status = group_gather_from(m, rows, bytes, *numbers, &all);
    free(*numbers);
    *numbers = all;
    return status;
}

int tr_trees_gather_scores(struct tr_trees *m, float *own, size_t apart)
{
    TR_FREED size_t *count = NULL;
    TR_TRY(TR_NEW(&count, m->members));
    size_t mine = m->own_rows * sizeof *own;
    TR_TRY(tr_all_gather(m->tr, TR_SET_GROUP, &mine, sizeof mine, count));
    for (size_t k = 0; k < m->outputs; k++)
        TR_TRY(tr_all_gather_lists(m->tr, TR_SET_GROUP, own + k * apart, count, m->score + k * m->rows.n));
    return TR_OK;
}

static void parcel_free(struct parcel *p)
{
    TR_FREE_ALL(p->to, p->from, p->sent, p->arrived);
}

int tr_trees_divide_columns(struct tr_trees *m)
{
    if (m->members == 1) return TR_OK;
    TR_FREED size_t *rows = NULL; /* per member: number of rows that it read */
    TR_CLOSED_BY(parcel_free) struct parcel p = {0};
    struct tr_trees_share own = tr_trees_merge_columns(m->merge, m->member);
    TR_CLOSED_BY(tr_binned_free)
    struct tr_binned all = {.columns = m->bins.columns, .first = own.first, .end = own.last};
    TR_TRY(TR_NEW(&p.to, m->members));
    TR_TRY(TR_NEW(&p.from, m->members));
    TR_TRY(TR_NEW(&rows, m->members));
    TR_TRY(tr_all_gather(m->tr, TR_SET_GROUP, &m->rows.n, sizeof m->rows.n, rows));
    all.n = sum_of_sizes(rows, m->members);
    TR_TRY(m->bins.sparse ? columns_exchange_sparse(m, &m->rows, rows, &p, &all)
                          : columns_exchange_dense(m, &m->rows, rows, &p, &all));

    /* The rows of the group replace those of this member. */
    m->own_first = sum_of_sizes(rows, (size_t)tr_set_rank(m->tr, TR_SET_GROUP));
    tr_binned_free(&m->rows);
    m->rows = all;
    all = (struct tr_binned){0};
    TR_FREED float *score = m->score;
    m->score = NULL;
    TR_TRY(TR_NEW(&m->score, m->rows.n * (size_t)m->outputs));
    TR_TRY(tr_trees_gather_scores(m, score, m->own_rows));
    TR_TRY(group_gather_from(m, rows, sizeof *m->label, m->label, (void **)&m->group_label));
    m->label = m->group_label;
    TR_TRY(group_gather(m, rows, sizeof *m->weight, (void **)&m->weight));
    return group_gather(m, rows, sizeof *m->number, (void **)&m->number);
}

/* ---- splits ---- */

int tr_trees_send_sides(struct tr_trees *m, size_t column, size_t n)
{
    size_t bytes = (n + 63) / 64 * sizeof *m->side;
    m->side_bytes += bytes;
    m->sides++;
    if (bytes == 0) return TR_OK;
    size_t owner = 0; /* the member that has the column */
    while (tr_trees_merge_columns(m->merge, owner).last <= column) owner++;
    return tr_broadcast(m->tr, TR_SET_GROUP, (int)owner, m->side, bytes);
}

/* ================ votes for columns ================ */

/* solve.parallel voting: each worker votes for the solve.votes columns that split its own rows best. The 2 * solve.votes columns
 * with most votes are chosen, and only their bins are summed over all rows (Meng et al., A communication-efficient parallel
 * algorithm for decision trees, NIPS 2016). The traffic does not grow with the number of columns. */
struct vote {
    float gain; /* gain of the column's best split; in sums of votes: total over the voters */
    uint32_t column, votes;
};

struct tr_voting {
    size_t votes, most;           /* number of votes of a worker; number of chosen columns */
    struct vote *mine, *all;      /* per column: this worker's vote; sum of the votes of all workers */
    struct tr_trees_share *share; /* per worker: its share of the chosen columns */
    uint32_t *chosen;             /* the chosen columns, ascending, followed by scratch memory for sorting */
    tr_pair *sum;                 /* histogram of this worker's share of the chosen columns */
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
    TR_TRY(TR_NEW(&v->chosen, 2 * v->most));
    return TR_NEW(&v->sum, m->bins.total);
}

void tr_voting_close(struct tr_voting **voting)
{
    struct tr_voting *v = *voting;
    if (!v) return;
    TR_FREE_ALL(v->mine, v->all, v->share, v->chosen, v->sum, v);
    *voting = NULL;
}

size_t tr_votes_bytes(const struct tr_trees_options *o, size_t columns)
{
    return tr_min_size((size_t)o->votes, columns) * sizeof(struct vote);
}

/* Orders votes descending by `votes`, then descending by gain, then ascending by column. */
static int voting_compare_votes(const void *a, const void *b)
{
    const struct vote *x = a, *y = b;
    if (x->votes != y->votes) return x->votes > y->votes ? -1 : 1;
    if (x->gain != y->gain) return x->gain > y->gain ? -1 : 1;
    return (x->column > y->column) - (x->column < y->column);
}

int tr_vote(struct tr_trees *m, const tr_pair *hist, const struct tr_leaf_sums *own,
            const struct tr_leaf_sums *leaf, struct tr_split *best)
{
    struct tr_voting *v = m->voting;
    const struct tr_trees_share *share = &v->share[tr_set_rank(m->tr, TR_SET_WORKERS)];
    struct tr_scan s;
    *best = (struct tr_split){0};
    if (!tr_scan_begin(m, leaf, 1, &s)) return TR_OK;
    /* Order columns by their gain for this worker's rows. A child needs fewer rows, in proportion to the number of workers. */
    struct tr_scan here;
    bool splits = tr_scan_begin(m, own, 1.0 / tr_workers(m->tr), &here);
    for (uint32_t c = 0; c < m->bins.columns; c++) {
        struct tr_split split = {.gain = here.nothing};
        if (splits) tr_scan_column(m, &here, hist + m->bins.column[c].offset, c, &split);
        v->mine[c] = (struct vote){split.gain > here.nothing ? split.gain : 0, c, 0};
    }
    qsort(v->mine, m->bins.columns, sizeof *v->mine, voting_compare_votes);
    TR_TRY(tr_trees_merge_send(m->merge, v->mine, v->votes * sizeof *v->mine));
    /* Choose columns from all votes. Every worker adds the same numbers in the same order, so all choose the same columns. */
    for (uint32_t c = 0; c < m->bins.columns; c++) v->all[c] = (struct vote){0, c, 0};
    for (size_t w = 0; w < (size_t)tr_workers(m->tr); w++) {
        const struct vote *sent = tr_trees_merge_sent(m->merge, w);
        for (size_t i = 0; i < v->votes; i++) {
            v->all[sent[i].column].votes++;
            v->all[sent[i].column].gain += sent[i].gain;
        }
    }
    qsort(v->all, m->bins.columns, sizeof *v->all, voting_compare_votes);
    for (size_t i = 0; i < v->most; i++) v->chosen[i] = v->all[i].column;
    tr_sort_u32(v->chosen, v->chosen + v->most, v->most);
    /* Sum the bins of the chosen columns over all rows. */
    tr_pair *local = m->merge->local;
    for (size_t i = 0, at = 0; i < v->most; i++) {
        const struct tr_column_bins *column = &m->bins.column[v->chosen[i]];
        memcpy(local + at, hist + column->offset, column->bins * sizeof *hist);
        at += column->bins;
    }
    merge_divide(m->merge, &m->bins, v->chosen, v->most, v->share);
    TR_TRY(tr_trees_merge_add(m->merge, v->share, 1, v->sum));
    best->gain = s.nothing;
    const tr_pair *sum = v->sum;
    for (size_t i = share->first; i < share->last; i++) {
        tr_scan_column(m, &s, sum, v->chosen[i], best);
        sum += m->bins.column[v->chosen[i]].bins;
    }
    if (best->gain <= s.nothing) best->gain = 0;
    return TR_OK;
}
