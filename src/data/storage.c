#include "data/storage.h"

#include <sys/stat.h>

#include "base/fault.h"
#include "data/cache.h"
#include "data/store.h"
#include "data/stream.h"
#include "trireme/collective.h"
#include "trireme/model.h"

/* ---- what the job says ---- */

static int level_of(const tr_context *tr)
{
    return tr->storage != TR_LEVEL_AUTO ? tr->storage : tr->job->data.storage;
}

static int refuse(const tr_context *tr, const char *why)
{
    static const char *const words[] = {"auto", "memory", "disk", "memory_disk"};
    return tr_fail(TR_ERR_CONFIG, "%s: data.storage: %s %s", tr_job_where(tr->job, "data.storage"),
                   words[level_of(tr)], why);
}

static int check(const tr_data *data)
{
    const struct tr_data_state *s = data->state;
    const tr_job *job = s->tr->job;
    struct stat about;
    if (!(s->form & TR_DATA_PASSES))
        return refuse(
            s->tr,
            "is for models that pass over rows, as kmeans, trees, and linear ones with solve.method newton, "
            "dual or sgd; this one needs memory");
    if (!*job->data.scratch) return refuse(s->tr, "needs data.scratch, a folder on a disk of each node");
    if (job->data.partition != TR_DATA_HORIZONTAL && s->tr->layout.group_size > 1)
        return refuse(s->tr, "needs data.partition: horizontal");
    if (job->data.scale != TR_SCALE_AUTO && job->data.scale != TR_SCALE_NONE)
        return refuse(s->tr, "leaves columns as they are: data.scale: none");
    if (stat(job->data.scratch, &about) < 0 || !S_ISDIR(about.st_mode))
        return tr_fail(TR_ERR_NO_OUTPUT, "%s: data.scratch: %s: there is no such folder",
                       tr_job_where(job, "data.scratch"), job->data.scratch);
    return TR_OK;
}

int tr_storage_choose(tr_data *data)
{
    struct tr_data_state *s = data->state;
    tr_context *tr = s->tr;
    const tr_job *job = tr->job;
    uint64_t workers = tr_is(tr, TR_SLAVE);
    s->on_disk = level_of(tr) == TR_LEVEL_DISK || level_of(tr) == TR_LEVEL_MEMORY_DISK;
    if (!s->on_disk) return TR_OK;
    TR_TRY(tr_agree(tr, check(data)));
    TR_TRY(tr_all_reduce(tr, TR_SET_NODE, TR_SUM, TR_I64, &workers, 1));
    uint64_t memory = job->data.memory ? job->data.memory : tr_memory_free() / 2;
    s->memory = workers > 0 ? memory / workers : 0;
    s->cacheable = workers > 0 ? tr_memory_free() / workers / 4 : 0;
    return TR_OK;
}

/* The system's cache is too small to be of use to passes over a file that it has not all of: what comes next is what it has just
 * given up. It is left a part of what is free where that is enough. */
void tr_storage_use_cache(const struct tr_data_state *s)
{
    bool full = TR_FAULT("data.room") == TR_FAULT_ENOSPC;
    tr_cache_file_set_stays(s->file, !full && tr_cache_file_bytes(s->file) <= s->cacheable);
}

/* ---- what is used ---- */

int tr_storage_open(tr_data *data, bool found)
{
    struct tr_data_state *s = data->state;
    bool stays = level_of(s->tr) == TR_LEVEL_MEMORY_DISK && !s->test;
    if (!s->on_disk) return TR_OK;
    if (s->file) tr_storage_use_cache(s);
    return tr_agree(s->tr, tr_is(s->tr, TR_SLAVE)
                               ? tr_row_stream_open(data, stays ? s->memory : 0, !found, &s->stream)
                               : TR_OK);
}

static void add_counts(struct tr_row_stream_counts *sum, const struct tr_row_stream *stream)
{
    struct tr_row_stream_counts c = tr_row_stream_count(stream);
    sum->disk_bytes += c.disk_bytes;
    sum->memory_bytes += c.memory_bytes;
    sum->read_bytes += c.read_bytes;
    sum->dropped_bytes += c.dropped_bytes;
    sum->ready += c.ready;
    sum->waited += c.waited;
    sum->read_seconds += c.read_seconds;
    sum->waited_seconds += c.waited_seconds;
}

int tr_storage_report(tr_context *tr)
{
    struct tr_row_stream_counts c = {.disk_bytes = 0};
    bool any = false;
    for (size_t i = 0; tr->stores && i < tr->stores->n; i++) {
        const struct tr_data_state *s = tr->stores->store[i]->data.state;
        any = any || s->on_disk;
        add_counts(&c, s->stream);
    }
    if (!any) return TR_OK;
    double sum[] = {(double)c.disk_bytes,    (double)c.memory_bytes, (double)c.read_bytes,
                    (double)c.dropped_bytes, (double)c.ready,        (double)c.waited,
                    c.read_seconds,          c.waited_seconds};
    static const char *const names[] = {"data_disk_bytes",    "data_memory_bytes",  "data_read_bytes",
                                        "data_dropped_bytes", "data_blocks_ready",  "data_blocks_waited",
                                        "data_read_seconds",  "data_waited_seconds"};
    enum { FIGURES = sizeof sum / sizeof *sum };
    TR_TRY(tr_all_reduce(tr, TR_SET_ALL, TR_SUM, TR_F64, sum, FIGURES));
    for (int i = 0; i < FIGURES; i++) TR_TRY(tr_context_report(tr, names[i], sum[i]));
    return TR_OK;
}
