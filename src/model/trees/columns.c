/* Columns divided over the members of a group (solve.parallel feature): all have all rows of the group, but each only its columns of
 * them, so that no histogram travels inside a group; of each split the member that has the column tells the others where the rows of
 * the leaf go, a bit for each (Abuzaid et al., Yggdrasil, NIPS 2016). Between groups rows are divided, and histograms added up by
 * workers that have the same columns (Fu et al., VLDB 2019, have both, and when which is better).
 *
 * Each member reads and bins some of the rows. Then bins change hands, once. */
#include <stdlib.h>
#include <string.h>

#include "trees.h"

/* ---- bins ---- */

/* What a member sends to the others, and gets from them. */
struct parcel {
    size_t *to, *from; /* bytes for each member, of each */
    char *sent, *arrived;
};

static int open_parcel(struct parcel *p, size_t members)
{
    *p = (struct parcel){0};
    TR_TRY(TR_NEW(&p->to, members));
    return TR_NEW(&p->from, members);
}

static void close_parcel(struct parcel *p)
{
    void *arrays[] = {p->to, p->from, p->sent, p->arrived};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) free(arrays[i]);
}

static size_t sum_of(const size_t *bytes, size_t n)
{
    size_t sum = 0;
    for (size_t i = 0; i < n; i++) sum += bytes[i];
    return sum;
}

static int send_parcel(const struct tr_trees *m, struct parcel *p)
{
    TR_TRY(tr_exchange_counts(m->tr, TR_SET_GROUP, p->to, p->from));
    TR_TRY(TR_NEW(&p->arrived, sum_of(p->from, m->members)));
    return tr_exchange(m->tr, TR_SET_GROUP, p->sent, p->to, p->arrived, p->from);
}

static size_t bytes_of_row(const struct tr_bins *bins, size_t first, size_t end)
{
    size_t bytes = 0;
    for (size_t c = first; c < end; c++) bytes += bins->column[c].bins > TR_BINS ? 2 : 1;
    return bytes;
}

/* Of dense rows: for each member its columns, one after the other. */
static int swap_dense(const struct tr_trees *m, const struct tr_binned *own, const size_t *rows,
                      struct parcel *p, struct tr_binned *all)
{
    size_t mine = all->end - all->first, at = 0;
    for (size_t k = 0; k < m->members; k++) {
        struct tr_trees_share s = tr_trees_merge_columns(m->merge, k);
        p->to[k] = own->n * bytes_of_row(&m->bins, s.first, s.last);
    }
    TR_TRY(TR_NEW(&p->sent, sum_of(p->to, m->members)));
    for (size_t c = 0; c < m->bins.columns; c++)
        for (size_t i = 0; i < own->n; i++) {
            uint32_t bin = tr_bin_of(&m->bins, own, i, c);
            p->sent[at++] = (char)bin;
            if (m->bins.column[c].bins > TR_BINS) p->sent[at++] = (char)(bin >> 8);
        }
    TR_TRY(send_parcel(m, p));
    TR_TRY(tr_binned_open(&m->bins, all, mine));
    TR_TRY(TR_NEW(&all->wide, all->columns));
    for (size_t c = all->first; c < all->end; c++) {
        all->bundled[c] = (struct tr_bundled){.bundle = (uint32_t)(c - all->first)};
        if (m->bins.column[c].bins > TR_BINS) TR_TRY(TR_NEW(&all->wide[c], all->n));
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

/* Of sparse rows: for each member how many of its places each row has, and these. */
static int pack_sparse(const struct tr_trees *m, const struct tr_binned *own, struct parcel *p)
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
    return TR_OK;
}

static int swap_sparse(const struct tr_trees *m, const struct tr_binned *own, const size_t *rows,
                       struct parcel *p, struct tr_binned *all)
{
    TR_TRY(pack_sparse(m, own, p));
    TR_TRY(send_parcel(m, p));
    TR_TRY(TR_NEW(&all->begin, all->n + 1));
    TR_TRY(TR_NEW(&all->place, sum_of(p->from, m->members) / sizeof *all->place));
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

/* ---- what else is known of rows ---- */

/* Numbers, of so many bytes, of the rows of all members. */
static int gather_from(const struct tr_trees *m, const size_t *rows, size_t bytes, const void *own,
                       void **all)
{
    size_t *count;
    char *room = NULL;
    TR_TRY(TR_NEW(&count, m->members));
    for (size_t k = 0; k < m->members; k++) count[k] = rows[k] * bytes;
    int status = TR_NEW(&room, sum_of(count, m->members));
    if (status == TR_OK) status = tr_all_gather_lists(m->tr, TR_SET_GROUP, own, count, room);
    free(count);
    *all = room;
    return status;
}

/* … in place of this member's. */
static int gather(const struct tr_trees *m, const size_t *rows, size_t bytes, void **numbers)
{
    void *all = NULL;
    if (!*numbers) return TR_OK;
    int status = gather_from(m, rows, bytes, *numbers, &all);
    free(*numbers);
    *numbers = all;
    return status;
}

/* The scores of an output follow those of the one before it. */
int tr_trees_gather_scores(struct tr_trees *m, float *own, size_t apart)
{
    size_t *count;
    TR_TRY(TR_NEW(&count, m->members));
    size_t mine = m->own_rows * sizeof *own;
    int status = tr_all_gather(m->tr, TR_SET_GROUP, &mine, sizeof mine, count);
    for (size_t k = 0; k < m->outputs && status == TR_OK; k++)
        status = tr_all_gather_lists(m->tr, TR_SET_GROUP, own + k * apart, count, m->score + k * m->rows.n);
    free(count);
    return status;
}

static int take_rows(struct tr_trees *m, const size_t *rows, struct tr_binned *all)
{
    float *score = m->score;
    void *label = NULL, *weight = m->weight, *number = m->number;
    m->own_first = sum_of(rows, (size_t)tr_set_rank(m->tr, TR_SET_GROUP));
    tr_binned_free(&m->rows);
    m->rows = *all;
    *all = (struct tr_binned){0};
    m->score = NULL;
    int status = TR_NEW(&m->score, m->rows.n * (size_t)m->outputs);
    if (status == TR_OK) status = tr_trees_gather_scores(m, score, m->own_rows);
    free(score);
    if (status == TR_OK) status = gather_from(m, rows, sizeof *m->label, m->label, &label);
    if (status == TR_OK) status = gather(m, rows, sizeof *m->weight, &weight);
    if (status == TR_OK) status = gather(m, rows, sizeof *m->number, &number);
    m->label = m->group_label = label;
    m->weight = weight;
    m->number = number;
    return status;
}

int tr_trees_divide_columns(struct tr_trees *m)
{
    size_t *rows = NULL;
    struct parcel p;
    if (m->members == 1) return TR_OK;
    struct tr_trees_share own = tr_trees_merge_columns(m->merge, m->member);
    struct tr_binned all = {.columns = m->bins.columns, .first = own.first, .end = own.last};
    int status = open_parcel(&p, m->members);
    if (status == TR_OK) status = TR_NEW(&rows, m->members);
    if (status == TR_OK) status = tr_all_gather(m->tr, TR_SET_GROUP, &m->rows.n, sizeof m->rows.n, rows);
    if (status == TR_OK) all.n = sum_of(rows, m->members);
    if (status == TR_OK)
        status = m->bins.sparse ? swap_sparse(m, &m->rows, rows, &p, &all)
                                : swap_dense(m, &m->rows, rows, &p, &all);
    close_parcel(&p);
    if (status == TR_OK) status = take_rows(m, rows, &all);
    tr_binned_free(&all);
    free(rows);
    return status;
}

/* ---- splits ---- */

int tr_trees_tell_sides(struct tr_trees *m, size_t column, size_t n)
{
    size_t bytes = (n + 63) / 64 * sizeof *m->side;
    m->side_bytes += bytes;
    m->sides++;
    if (bytes == 0) return TR_OK;
    return tr_broadcast(m->tr, TR_SET_GROUP, (int)tr_trees_merge_owner(m->merge, column), m->side, bytes);
}
