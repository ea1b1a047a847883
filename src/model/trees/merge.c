/* What workers tell each other while a tree grows. Each finds the splits of some columns, its share, and needs the sums of these over
 * the rows of all: where all workers are on one node they add up what the others have written into memory that they share,
 * otherwise each sends the others their shares, or sums of these of several workers. */
#include <stdlib.h>
#include <string.h>

#include "trees.h"

struct tr_trees_merge {
    tr_context *tr;
    size_t workers, me;
    size_t members, groups;       /* columns are divided over the one, and rows over the other */
    struct tr_trees_share *share; /* of each worker */
    tr_set_memory *memory; /* of each worker: sums of all bins, and what it tells; NULL: not on one node */
    size_t apart;          /* bytes from one worker's to the next one's */
    size_t together, bins; /* histograms that are added up at once, at most; bins of one */
    tr_pair *local;        /* … of this worker's rows, all bins */
    tr_pair *packed;       /* the same, by worker; NULL: of one */
    tr_pair *arrived;      /* without that memory: what others have sent; and the numbers of bytes */
    size_t *bytes;
    char *told;
    size_t told_at, most_told; /* what has been told stays while the next is: there are two places for it */
    bool second;
    struct tr_trees_merged done;
};

enum { LINE = 64 };

/* Those of the same number in their groups get neighbours. */
void tr_trees_merge_divide(const struct tr_trees_merge *g, const struct tr_bins *bins, const uint32_t *column,
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

static char *part_of(const struct tr_trees_merge *g, size_t worker)
{
    return (char *)tr_set_memory_at(g->memory) + worker * g->apart;
}

static char *told_by(const struct tr_trees_merge *g, size_t worker)
{
    return part_of(g, worker) + g->told_at + (g->second ? g->most_told : 0);
}

/* Memory that all share, if they can. Nothing keeps a worker from coming here once all have met. */
static int open_shared(struct tr_trees_merge *g, size_t bytes)
{
    if (tr_set_size(g->tr, TR_SET_NODE) < tr_set_size(g->tr, TR_SET_ALL)) return TR_OK;
    TR_TRY(tr_barrier_of(g->tr, TR_SET_WORKERS));
    g->apart = (bytes + LINE - 1) / LINE * LINE;
    int status = tr_set_memory_open(g->tr, TR_SET_WORKERS, g->workers * g->apart, &g->memory);
    if (status != TR_OK) tr_set_memory_close(&g->memory);
    return status == TR_ERR_SYSTEM ? TR_OK : status;
}

static size_t most_bins(const struct tr_bins *bins)
{
    size_t most = 0;
    for (size_t c = 0; c < bins->columns; c++) most = tr_max_size(most, bins->column[c].bins);
    return most;
}

int tr_trees_merge_open(tr_context *tr, const struct tr_bins *bins, size_t members, size_t most_told,
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
                                 .told_at = bins->total * sizeof *g->local,
                                 .most_told = most_told};
    g->groups = g->workers / members;
    TR_TRY(TR_NEW(&g->share, g->workers));
    tr_trees_merge_divide(g, bins, NULL, bins->columns, g->share);
    if (g->workers == 1) return TR_OK;
    TR_TRY(open_shared(g, g->told_at + 2 * most_told));
    if (g->memory) {
        g->local = (void *)part_of(g, g->me);
        return TR_OK;
    }
    if (members == 1 && g->told_at > 0)
        g->together = tr_max_size(1, tr_min_size(together, TR_BYTES_TOGETHER / g->told_at));
    if (g->together > 1) TR_TRY(TR_NEW(&g->packed, g->together * bins->total));
    TR_TRY(TR_NEW(&g->local, g->together * bins->total));
    if (members > 1)
        TR_TRY(TR_NEW(&g->arrived, g->groups * (bins->total / g->workers + most_bins(bins) + 1)));
    TR_TRY(TR_NEW(&g->bytes, 2 * g->workers));
    return TR_NEW(&g->told, g->workers * g->together * most_told);
}

void tr_trees_merge_close(struct tr_trees_merge **merge)
{
    struct tr_trees_merge *g = *merge;
    if (!g) return;
    if (!g->memory) free(g->local);
    tr_set_memory_close(&g->memory);
    void *arrays[] = {g->share, g->packed, g->arrived, g->bytes, g->told, g};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) free(arrays[i]);
    *merge = NULL;
}

const struct tr_trees_share *tr_trees_merge_share(const struct tr_trees_merge *g)
{
    return &g->share[g->me];
}

size_t tr_trees_merge_together(const struct tr_trees_merge *g)
{
    return g->together;
}

tr_pair *tr_trees_merge_local(const struct tr_trees_merge *g)
{
    return g->local;
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

size_t tr_trees_merge_owner(const struct tr_trees_merge *g, size_t column)
{
    size_t k = 0;
    while (tr_trees_merge_columns(g, k).last <= column) k++;
    return k;
}

struct tr_trees_merged tr_trees_merge_done(const struct tr_trees_merge *g)
{
    return g->done;
}

TR_CPU_CLONES static void add(tr_pair *restrict to, const tr_pair *restrict from, size_t n)
{
    for (size_t i = 0; i < n; i++) to[i] += from[i];
}

/* To those who have the same columns. */
static int send_shares(struct tr_trees_merge *g, const struct tr_trees_share *share)
{
    size_t member = g->me % g->members;
    for (size_t w = 0; w < g->workers; w++) {
        bool same = w % g->members == member;
        g->bytes[w] = same ? share[w].bins * sizeof *g->local : 0;
        g->bytes[g->workers + w] = same ? share[g->me].bins * sizeof *g->local : 0;
        if (w != g->me) g->done.bytes += (double)g->bytes[w];
    }
    return tr_exchange(g->tr, TR_SET_WORKERS, g->local + share[member].offset, g->bytes, g->arrived,
                       g->bytes + g->workers);
}

/* The same where all have the same columns: sums are made on the way. */
static int scatter_sums(struct tr_trees_merge *g, const struct tr_trees_share *share, size_t n, tr_pair *sum)
{
    tr_pair *to = g->packed;
    for (size_t w = 0; w < g->workers; w++) {
        g->bytes[w] = n * share[w].bins;
        if (w != g->me) g->done.bytes += (double)(g->bytes[w] * sizeof *sum);
        for (size_t k = 0; k < n && n > 1; k++, to += share[w].bins)
            memcpy(to, g->local + k * g->bins + share[w].offset, share[w].bins * sizeof *to);
    }
    return tr_reduce_scatter(g->tr, TR_SET_WORKERS, TR_I64, n > 1 ? g->packed : g->local, g->bytes, sum);
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
    if (!g->memory && g->members == 1) return scatter_sums(g, share, n, sum);
    TR_TRY(g->memory ? tr_set_memory_meet(g->memory) : send_shares(g, share));
    for (size_t i = 0; i < g->groups; i++) {
        const tr_pair *shared = g->memory ? (void *)part_of(g, i * g->members + g->me % g->members) : NULL,
                      *from = shared ? shared + own->offset : g->arrived + i * own->bins;
        if (i == 0) memcpy(sum, from, own->bins * sizeof *sum);
        else add(sum, from, own->bins);
    }
    return TR_OK;
}

int tr_trees_merge_tell(struct tr_trees_merge *g, const void *mine, size_t bytes)
{
    if (!g->memory) {
        g->told_at = bytes;
        return tr_all_gather(g->tr, TR_SET_WORKERS, mine, bytes, g->told);
    }
    g->second = !g->second;
    memcpy(told_by(g, g->me), mine, bytes);
    return tr_set_memory_meet(g->memory);
}

const void *tr_trees_merge_told(const struct tr_trees_merge *g, size_t worker)
{
    if (!g->memory) return g->told + worker * g->told_at;
    return told_by(g, worker);
}
