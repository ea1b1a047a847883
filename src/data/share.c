/* The rows of a group once, in memory that its members share (data.partition: replicated).
 *
 * Each member brings the rows that it has read, with its columns numbered by the keys of all, and gives back its own copy piece by
 * piece: while the rows move, the node needs hardly more memory than they take.
 */
#define _GNU_SOURCE
#include "data/part.h"

#include <stdlib.h>
#include <string.h>

#include "base/pages.h"
#include "data/cache.h"
#include "store/persistent.h"

/* ---- where everything goes ---- */

/* What a member brings, or several. */
struct sums {
    uint64_t rows, nonzeros, keys;
    uint64_t valued, labelled; /* members that have values, labels */
    uint64_t numbered;         /* members whose rows have numbers */
};
enum { SUMS = sizeof(struct sums) / sizeof(uint64_t) };

struct move {
    tr_context *tr;
    tr_data *data;
    bool all_columns;    /* are keys; otherwise … */
    const uint32_t *own; /* … those of this member are */
    size_t n_own;
    uint32_t *piece;  /* of the group's keys, as many as mine.keys */
    uint32_t *number; /* of each own key among the group's */
    struct sums before, mine, all;
    uint64_t size[TR_CACHE_ARRAYS]; /* bytes of each array, … */
    uint64_t bytes;                 /* … and of the file */
    bool kept;                      /* the next start of the job is to find them */
};

static bool is_dense(const struct move *m)
{
    return m->data->state->rows.columns > 0;
}

static int count_all(struct move *m)
{
    uint64_t *every, *before = (uint64_t *)&m->before, *all = (uint64_t *)&m->all;
    TR_TRY(TR_NEW(&every, (size_t)m->tr->layout.group_size * SUMS));
    int status = tr_all_gather(m->tr, TR_SET_GROUP, &m->mine, sizeof m->mine, every);
    for (int k = 0; k < m->tr->layout.group_size * SUMS && status == TR_OK; k++) {
        all[k % SUMS] += every[k];
        if (k / SUMS < m->tr->me.member) before[k % SUMS] += every[k];
    }
    free(every);
    return status;
}

/* Each member has a piece of the keys: of the union, or of all columns. */
static int plan(struct move *m)
{
    const struct tr_data_state *s = m->data->state;
    uint64_t members = (uint64_t)m->tr->layout.group_size, me = (uint64_t)m->tr->me.member;
    size_t n = (size_t)(m->data->columns * (me + 1) / members - m->data->columns * me / members);
    if (!m->all_columns) TR_TRY(tr_unite_keys(m->tr, m->own, m->n_own, &m->piece, &n));
    m->mine = (struct sums){.rows = s->rows.rows,
                            .nonzeros = tr_matrix_nonzeros(&s->rows),
                            .keys = n,
                            .valued = s->rows.value != NULL,
                            .labelled = s->rows.label != NULL,
                            .numbered = s->row_number != NULL};
    TR_TRY(count_all(m));
    struct tr_cache_shape shape = {.rows = m->all.rows,
                                   .nonzeros = m->all.nonzeros,
                                   .keys = m->all.keys,
                                   .dense = is_dense(m),
                                   .valued = m->all.valued,
                                   .labelled = m->all.labelled,
                                   .numbered = m->all.numbered};
    m->bytes = tr_cache_measure(&shape, m->size);
    return m->all_columns ? TR_OK : TR_NEW(&m->number, m->n_own);
}

/* All ranks of the node, each group's rows counted once. */
static int check_room(tr_context *tr, uint64_t bytes)
{
    struct tr_persistent_bases bases;
    tr_persistent_bases(&bases);
    uint64_t room = tr_persistent_free(bases.base[0]);
    TR_TRY(tr_all_reduce(tr, TR_SET_NODE, TR_SUM, TR_I64, &bytes, 1));
    if (bytes <= room) return TR_OK;
    return tr_fail(TR_ERR_SYSTEM,
                   "%s: data.partition: replicated rows need %.1f MB of shared memory on this node, "
                   "but %s has %.1f MB free",
                   tr_job_where(tr->job, "data.partition"), (double)bytes / 1e6, bases.base[0],
                   (double)room / 1e6);
}

static int open_memory(struct move *m)
{
    TR_TRY(tr_barrier(m->tr, m->tr->group, "the group to open its memory"));
    return tr_cache_share(m->data, m->size, m->kept);
}

static void *array_at(const struct move *m, size_t i)
{
    return tr_cache_file_at(m->data->state->file, i, NULL);
}

/* ---- each member's rows into their places ---- */

/* number: of each column read here; NULL: columns stay. In pieces whose memory is given back at once. */
static void move_columns(uint32_t *to, uint32_t **array, uint64_t n, const uint32_t *number)
{
    uint32_t *from = *array;
    const uint64_t most = ((uint64_t)4 << 20) / sizeof *from;
    if (!number) {
        tr_pages_move(to, (void **)array, n, sizeof *from);
        return;
    }
    for (uint64_t at = 0; at < n; at += most) {
        uint64_t end = at + (n - at < most ? n - at : most);
        for (uint64_t k = at; k < end; k++) to[k] = number[from[k]];
        tr_pages_give_back(from + at, (end - at) * sizeof *from);
    }
    free(from);
    *array = NULL;
}

static void move_begins(const struct move *m, uint64_t *to, uint64_t **array)
{
    const uint64_t *from = *array;
    if (m->tr->me.member == 0) to[0] = 0;
    for (uint64_t i = 0; i < m->mine.rows; i++) to[m->before.rows + i + 1] = m->before.nonzeros + from[i + 1];
    free(*array);
    *array = NULL;
}

/* Of values, no array stands for all 1. */
static void move_rows(struct move *m)
{
    struct tr_data_state *s = m->data->state;
    struct tr_matrix *r = &s->rows;
    const struct sums *n = &m->mine, *before = &m->before;
    struct tr_matrix all = {.rows = (size_t)m->all.rows, .columns = r->columns};
    uint64_t *row = m->all.numbered ? array_at(m, TR_CACHE_ROW) : NULL;
    if (!is_dense(m)) {
        all.begin = array_at(m, TR_CACHE_BEGIN);
        all.column = array_at(m, TR_CACHE_COLUMN);
        move_begins(m, all.begin, &r->begin);
        move_columns(all.column + before->nonzeros, &r->column, n->nonzeros,
                     m->all_columns ? NULL : m->number);
    }
    if (m->all.valued) {
        all.value = array_at(m, TR_CACHE_VALUE);
        float *to = all.value + before->nonzeros;
        for (uint64_t k = 0; !r->value && k < n->nonzeros; k++) to[k] = 1;
        tr_pages_move(to, (void **)&r->value, n->nonzeros, sizeof *to);
    }
    if (m->all.labelled) {
        all.label = array_at(m, TR_CACHE_LABEL);
        tr_pages_move(all.label + before->rows, (void **)&r->label, n->rows, sizeof *all.label);
    }
    if (row) tr_pages_move(row + before->rows, (void **)&s->row_number, n->rows, sizeof *row);
    tr_matrix_free(r);
    *r = all;
    s->row_number = row;
}

/* Every member writes its piece of the keys, for all to find theirs among. */
static int move_all(struct move *m)
{
    tr_data *data = m->data;
    tr_key *keys = array_at(m, TR_CACHE_KEYS);
    size_t u = 0;
    for (uint64_t i = 0; i < m->mine.keys; i++)
        keys[m->before.keys + i] = m->all_columns ? m->before.keys + i : m->piece[i];
    TR_TRY(tr_barrier(m->tr, m->tr->group, "the group to unite keys"));
    for (size_t i = 0; !m->all_columns && i < m->n_own; i++) {
        while (keys[u] < m->own[i]) u++;
        m->number[i] = (uint32_t)u;
    }
    move_rows(m);
    data->keys = keys;
    data->n_keys = (size_t)m->all.keys;
    return tr_barrier(m->tr, m->tr->group, "the group to share rows");
}

int tr_data_share(tr_data *data, const uint32_t *keys, size_t n_keys, bool all)
{
    tr_context *tr = data->state->tr;
    bool takes_part = tr_data_shares(tr);
    struct move m = {.tr = tr, .data = data, .all_columns = all, .own = keys, .n_own = n_keys};
    int status = tr_agree(tr, takes_part ? plan(&m) : TR_OK);
    bool first = takes_part && tr->me.member == 0;
    if (status == TR_OK) status = tr_agree(tr, check_room(tr, first ? m.bytes : 0));
    if (status == TR_OK) status = tr_cache_has_room(data, first ? m.bytes : 0, &m.kept);
    if (status == TR_OK) status = tr_agree(tr, takes_part ? open_memory(&m) : TR_OK);
    if (status != TR_OK) tr_cache_file_close(&data->state->file); /* rows are still elsewhere */
    if (status == TR_OK) status = tr_agree(tr, takes_part ? move_all(&m) : TR_OK);
    free(m.piece);
    free(m.number);
    return status;
}
