/* The best model so far, kept in memory by every rank: what a checkpoint has of tables and of the stage, to be filled from
 * again by the same process. Checkpoints have it, too, so that a run that goes on with the same layout finds it. */
#include <stdlib.h>
#include <string.h>

#include "store/state.h"

int tr_snapshot_model(tr_context *tr, tr_snapshot *snapshot, tr_lister_fn *list, void *who)
{
    snapshot->prefix = NULL;
    TR_TRY(tr_snapshot_tables(tr, snapshot));
    snapshot->prefix = "stage/";
    return list ? list(who, snapshot) : TR_OK;
}

/* ---- in memory ---- */

int tr_best_keep(tr_context *tr, tr_lister_fn *list, void *who)
{
    tr_snapshot **best = &tr->checkpoints->best;
    tr_snapshot_close(best);
    int status = tr_snapshot_open(tr, NULL, NULL, best);
    if (status == TR_OK) {
        (*best)->in_process = (*best)->same_layout = true;
        status = tr_snapshot_model(tr, *best, list, who);
    }
    return tr_agree(tr, status);
}

int tr_best_restore(tr_context *tr, tr_lister_fn *list, void *who)
{
    tr_snapshot *best = tr->checkpoints->best;
    if (!best) return tr_agree(tr, tr_fail(TR_ERR_INTERNAL, "no model was kept as the best"));
    best->fills = true;
    int status = tr_agree(tr, tr_snapshot_model(tr, best, list, who));
    best->fills = false;
    return status;
}

bool tr_snapshot_in_process(const tr_snapshot *snapshot)
{
    return snapshot->in_process;
}

/* ---- in checkpoints: as bytes of this rank, part by part, each behind its struct ---- */

struct bytes {
    char *at;
    size_t n, capacity;
};

static int append(struct bytes *b, const void *from, size_t n)
{
    TR_TRY(TR_GROW(&b->at, &b->capacity, b->n + n));
    if (n > 0) memcpy(b->at + b->n, from, n);
    b->n += n;
    return TR_OK;
}

static size_t begin_bytes(const struct tr_part *p)
{
    return p->begin ? ((size_t)p->rows + 1) * sizeof *p->begin : 0;
}

static int pack(const tr_snapshot *best, struct bytes *b)
{
    for (size_t i = 0; best && i < best->parts; i++) {
        const struct tr_part *p = &best->part[i];
        TR_TRY(append(b, p, sizeof *p));
        TR_TRY(append(b, p->run, p->runs * sizeof *p->run));
        TR_TRY(append(b, p->begin, begin_bytes(p)));
        TR_TRY(append(b, p->data, (size_t)tr_part_elements(p) * tr_part_type_size(p->type)));
    }
    return TR_OK;
}

/* A copy of the next n bytes; NULL for none. */
static int take(struct bytes *b, size_t n, void *copy)
{
    void **to = copy;
    *to = NULL;
    if (n == 0) return TR_OK;
    if (n > b->capacity - b->n) return tr_fail(TR_ERR_DATA, "checkpoint: the best model in it is not whole");
    TR_TRY(TR_NEW((char **)to, n));
    memcpy(*to, b->at + b->n, n);
    b->n += n;
    return TR_OK;
}

static int unpack_part(struct bytes *b, struct tr_part *p)
{
    bool lists = p->begin;
    p->run = NULL;
    p->begin = NULL;
    p->data = NULL;
    TR_TRY(take(b, p->runs * sizeof *p->run, &p->run));
    if (lists) TR_TRY(take(b, ((size_t)p->rows + 1) * sizeof *p->begin, &p->begin));
    return take(b, (size_t)tr_part_elements(p) * tr_part_type_size(p->type), &p->data);
}

/* capacity: all that there are. */
static int unpack(struct bytes *b, tr_snapshot *best)
{
    while (b->n < b->capacity) {
        struct tr_part *p;
        TR_TRY(take(b, sizeof *p, &p));
        int status = unpack_part(b, p);
        if (status == TR_OK) status = tr_snapshot_give(best, p);
        else tr_part_free(p);
        free(p);
        TR_TRY(status);
    }
    return TR_OK;
}

static int fill(tr_context *tr, tr_snapshot *snapshot, bool *found)
{
    tr_snapshot **best = &tr->checkpoints->best;
    struct bytes b = {.at = NULL};
    uint64_t about[2];
    TR_TRY(tr_snapshot_own(snapshot, "best_bytes", about, sizeof about, found));
    if (*found) *found = about[0] == sizeof(struct tr_part) && about[1] > 0;
    if (!*found) return TR_OK;
    TR_TRY(TR_NEW(&b.at, (size_t)about[1]));
    b.capacity = (size_t)about[1];
    int status = tr_snapshot_own(snapshot, "best", b.at, b.capacity, found);
    tr_snapshot_close(best);
    if (status == TR_OK && *found) status = tr_snapshot_open(tr, NULL, NULL, best);
    if (status == TR_OK && *found) {
        (*best)->in_process = (*best)->same_layout = true;
        status = unpack(&b, *best);
    }
    free(b.at);
    return status;
}

int tr_best_list(tr_context *tr, tr_snapshot *snapshot, bool *found)
{
    struct bytes b = {.at = NULL};
    *found = false;
    if (tr_snapshot_restores(snapshot)) return fill(tr, snapshot, found);
    int status = pack(tr->checkpoints->best, &b);
    uint64_t about[2] = {sizeof(struct tr_part), b.n};
    if (status == TR_OK) status = tr_snapshot_own(snapshot, "best_bytes", about, sizeof about, NULL);
    if (status == TR_OK) status = tr_snapshot_own(snapshot, "best", b.at, b.n, NULL);
    free(b.at);
    return status;
}
