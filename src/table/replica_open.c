#define _GNU_SOURCE
#include "table/replica_parts.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What the job may leave open where there is none. */
enum { CHUNK = 1024 };
/* Bytes of a chunk, if it has more keys than one. */
enum { LARGEST = 1 << 27 };
/* Bytes that travel at once: worth a round trip. */
enum { SPARE = 1 << 22 };

/* Lays it out from `at` on (NULL: only to see how much it takes). */
static size_t lay_out(struct tr_replica *l, char *at)
{
    struct tr_arrays arrays = {.memory = at};
    size_t heaped = l->limited ? l->frames : 0;
    l->head = tr_arrays_take(&arrays, sizeof *l->head);
    l->line = tr_arrays_take(&arrays, (size_t)l->tr->node_size * sizeof *l->line);
    l->chunk = tr_arrays_take(&arrays, l->chunks * sizeof *l->chunk);
    l->heap_stamp = tr_arrays_take(&arrays, heaped * sizeof *l->heap_stamp);
    l->heap = tr_arrays_take(&arrays, heaped * sizeof *l->heap);
    l->owner = tr_arrays_take(&arrays, heaped * sizeof *l->owner);
    l->value = tr_arrays_take(&arrays, l->frames * l->frame_bytes);
    l->base = tr_arrays_take(&arrays, l->frames * l->frame_bytes);
    return arrays.bytes;
}

static int check_table(const struct tr_table *t)
{
    if (t->hash || t->sparse || t->use)
        return tr_fail(TR_ERR_CONFIG, "table %s: a local model needs dense storage and no server function",
                       t->name);
    return TR_OK;
}

/* How many chunks there are, and how many are held at once. */
static int choose_sizes(struct tr_replica *l)
{
    const struct tr_table *t = l->table;
    const tr_job *job = l->tr->job;
    uint64_t keys = tr_min_size(job ? job->local.chunk : CHUNK, t->keys),
             memory = job ? job->local.memory : 0;
    l->key_bytes = t->width * tr_dtype_size(t->dtype);
    while ((UINT64_C(1) << l->shift) < keys && ((uint64_t)l->key_bytes << l->shift) < LARGEST) l->shift++;
    l->chunks = (size_t)((t->keys - 1) >> l->shift) + 1;
    if (l->chunks >= TR_LOCAL_ALONE)
        return tr_fail(TR_ERR_CONFIG, "table %s: %zu chunks of a local model are too many: raise local.chunk",
                       t->name, l->chunks);
    l->frame_bytes = ((size_t)1 << l->shift) * l->key_bytes;
    uint64_t fit = memory / (2 * l->frame_bytes);
    l->limited = memory > 0 && fit < l->chunks;
    l->frames = l->limited ? (size_t)fit : l->chunks;
    if (l->limited && l->model == TR_LOCAL_INTEGRAL)
        return tr_fail(
            TR_ERR_CONFIG,
            "%s: local.memory is %llu bytes, but the whole of table %s takes %zu: expected local.model "
            "demand",
            tr_job_where(job, "local.memory"), (unsigned long long)memory, t->name,
            2 * l->chunks * l->frame_bytes);
    if (l->frames == 0)
        return tr_fail(
            TR_ERR_CONFIG,
            "%s: local.memory is %llu bytes, but one chunk of table %s takes %zu: raise it, or lower "
            "local.chunk",
            tr_job_where(job, "local.memory"), (unsigned long long)memory, t->name, 2 * l->frame_bytes);
    return TR_OK;
}

/* ---- the file ---- */

static int make_file(struct tr_replica *l, char *path, size_t size)
{
    if ((size_t)snprintf(path, size, "%s/trireme-local-XXXXXX", l->folder) >= size) *path = '\0';
    l->file = *path ? mkostemp(path, O_CLOEXEC) : -1;
    if (l->file >= 0) return TR_OK;
    int status = tr_fail(TR_ERR_NO_OUTPUT, "%s: a file for the local model of table %s cannot be made: %s",
                         l->folder, l->table->name, strerror(errno));
    *path = '\0';
    return status;
}

static int open_file(struct tr_replica *l, const char *path)
{
    if (!*path) return TR_OK; /* the first rank says why */
    l->file = open(path, O_RDWR | O_CLOEXEC);
    if (l->file >= 0) return TR_OK;
    return tr_fail(TR_ERR_NO_OUTPUT, "%s: the file of a local model cannot be opened: %s", path,
                   strerror(errno));
}

/* Without a name, once all have it open: so it goes with the last of them. */
static int share_file(struct tr_replica *l)
{
    char path[PATH_MAX];
    bool makes = l->tr->node_rank == 0;
    int status = makes ? make_file(l, path, sizeof path) : TR_OK;
    MPI_Bcast(path, sizeof path, MPI_CHAR, 0, l->tr->node);
    if (!makes) status = open_file(l, path);
    status = tr_agree(l->tr, status);
    if (makes && *path) unlink(path);
    return status;
}

/* ---- opening ---- */

static int open_local(struct tr_replica *l)
{
    TR_TRY(tr_agree(l->tr, check_table(l->table)));
    TR_TRY(tr_agree(l->tr, choose_sizes(l)));
    TR_TRY(tr_node_memory_open(l->tr, lay_out(l, NULL), &l->memory));
    lay_out(l, l->memory.at);
    if (l->limited) {
        if (l->tr->node_rank == 0) tr_rng_seed(&l->head->random, l->tr->job->seed, (uint64_t)l->tr->rank, 0);
        TR_TRY(share_file(l));
    }
    l->spares = tr_min_size(l->chunks, tr_max_size(SPARE / l->frame_bytes, 1));
    int status = TR_NEW(&l->spare, (l->spares + 2) * l->frame_bytes);
    if (status == TR_OK) status = TR_NEW(&l->list, l->spares);
    return tr_agree(l->tr, status);
}

int tr_replica_make(struct tr_table *table, struct tr_replica **local)
{
    struct tr_replica *l = NULL;
    tr_context *tr = table->tr;
    int status = tr_agree(tr, TR_NEW(&l, 1));
    if (status != TR_OK) return free(l), status;
    l->table = table;
    l->tr = tr;
    l->model = tr->job ? tr->job->local.model : TR_LOCAL_INTEGRAL;
    l->race = tr->job ? tr->job->sync.race : TR_RACE_CHUNK;
    l->replace = tr->job ? tr->job->local.replace : TR_REPLACE_LRU;
    l->file = -1;
    l->folder = getenv("TMPDIR");
    if (!l->folder || !*l->folder) l->folder = "/tmp";
    status = open_local(l);
    if (status != TR_OK) tr_replica_free(&l);
    else *local = l;
    return status;
}

void tr_replica_free(struct tr_replica **local)
{
    struct tr_replica *l = *local;
    tr_node_memory_close(&l->memory);
    if (l->file >= 0) close(l->file);
    free(l->spare);
    free(l->list);
    free(l);
    *local = NULL;
}

void tr_replica_count(const tr_replica *l, tr_replica_counts *counts)
{
    *counts = (tr_replica_counts){0};
    for (int r = 0; r < l->tr->node_size; r++) {
        const tr_replica_counts *of = &l->line[r].counts;
        counts->hits += of->hits;
        counts->misses += of->misses;
        counts->fetched += of->fetched;
        counts->given += of->given;
        counts->evicted += of->evicted;
        counts->written += of->written;
        counts->read_back += of->read_back;
        counts->bytes_fetched += of->bytes_fetched;
        counts->bytes_given += of->bytes_given;
        counts->bytes_written += of->bytes_written;
    }
}

void *tr_replica_values(tr_replica *l)
{
    if (l->model != TR_LOCAL_INTEGRAL || !l->taken) return NULL;
    atomic_store_explicit(&l->head->all_changed, 1, memory_order_relaxed);
    return l->value;
}
