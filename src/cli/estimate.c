#define _GNU_SOURCE
#include "cli/estimate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "data/dataset.h"
#include "trireme/collective.h"
#include "trireme/model.h"
#include "base/terminal.h"

struct memory {
    tr_memory role;    /* bytes of one rank in each */
    double rank, node; /* of the fullest */
};

struct ranks {
    int all, workers, servers; /* a rank may be both */
};

static struct ranks count_node(const tr_context *tr, int node)
{
    struct ranks n = {0};
    for (int r = 0; r < tr->layout.ranks; r++) {
        if (tr->node_of[r] != node) continue;
        n.all++;
        n.workers += (tr->layout.place[r].roles & TR_SLAVE) != 0;
        n.servers += (tr->layout.place[r].roles & TR_SERVER) != 0;
    }
    return n;
}

/* What the ranks of one node take together, where what they share counts once. In what one of them takes all counts that it
 * uses, as the system has it; m->rank grows to the fullest of them. */
static double add_up_node(const tr_context *tr, int node, struct memory *m)
{
    const double program = 32e6,
                 libraries = 20e6; /* the program itself and MPI, and what processes share of it */
    bool replicated = tr->job->data.partition == TR_DATA_REPLICATED,
         once = replicated && tr_data_is_shared(tr);
    struct ranks n = count_node(tr, node);
    int size = tr->layout.group_size, groups = (n.workers + size - 1) / size;
    double read = m->role.rows * (replicated ? tr->layout.group_size : 1), held = once ? m->role.rows : read,
           shared = n.servers * m->role.server + (n.workers > 0 ? m->role.node : 0),
           rank = n.workers > 0   ? read + m->role.worker + m->role.group + shared
                  : n.servers > 0 ? m->role.server
                                  : 0;
    m->rank = fmax(m->rank, program + rank);
    return libraries + n.all * (program - libraries) + n.workers * (held + m->role.worker) +
           groups * m->role.group + shared;
}

static struct memory estimate(const tr_context *tr, const tr_data_size *size)
{
    const struct tr_layout *l = &tr->layout;
    struct memory m = {0};
    if (tr->job->class->memory) tr->job->class->memory(tr->job, tr->job->options, size, &m.role);
    if (tr->job->data.hash > 0 &&
        tr->job->data.scale != TR_SCALE_NONE) /* sums of its columns, and their factors */
        m.role.worker += 3 * sizeof(double) * size->features / fmax(1, size->workers);
    for (int node = 0; node < l->nodes; node++) m.node = fmax(m.node, add_up_node(tr, node, &m));
    return m;
}

/* Rows on a disk are one worker's: each of a group has its own, unless the job says otherwise. */
static int partition_on_disk(const tr_job *job)
{
    bool open = strcmp(tr_job_where(job, "data.partition"), "default") == 0;
    return open ? TR_DATA_HORIZONTAL : job->data.partition;
}

/* As if the job said so. */
static struct memory estimate_on_disk(const tr_context *tr, const tr_data_size *size)
{
    tr_job *job = tr->job;
    int storage = job->data.storage, partition = job->data.partition;
    job->data.storage = TR_LEVEL_DISK;
    job->data.partition = partition_on_disk(job);
    struct memory m = estimate(tr, size);
    job->data.storage = storage;
    job->data.partition = partition;
    return m;
}

static int no_room(const tr_context *tr, const struct memory *m, double left, bool on_disk)
{
    const char *advice =
        tr->job->data.hash > 0 ? "set a smaller data.hash; or "
        : !on_disk             ? ""
        : *tr->job->data.scratch
            ? "set data.partition: horizontal, so that rows may lie in data.scratch; or "
            : "set data.storage: disk and data.scratch: FOLDER, a folder on a disk of each node; or ";
    return tr_fail(
        TR_ERR_CONFIG,
        "this needs about %s of memory on a node, which has %s: %suse more nodes, or fewer files in "
        "data.train (data.storage: memory tries it all the same)",
        tr_bytes(m->node).text, tr_bytes(left).text, advice);
}

/* Where the job leaves it open: in memory, if there is room; else on a disk, if there is one and the model can. */
static int decide_storage(tr_context *tr, const struct memory *m, const tr_data_size *size)
{
    const tr_job *job = tr->job;
    double left = (double)tr_memory_free();
    bool fits = m->node <= left;
    if (job->data.storage == TR_LEVEL_MEMORY && !fits)
        tr_say(tr, "memory:        this may not fit, as only %s are free", tr_bytes(left).text);
    tr->storage = job->data.storage;
    if (job->data.storage != TR_LEVEL_AUTO) return TR_OK;
    tr->storage = TR_LEVEL_MEMORY;
    if (fits) return TR_OK;
    bool on_disk = estimate_on_disk(tr, size).node < 0.9 * m->node,
         can = partition_on_disk(job) == TR_DATA_HORIZONTAL || tr->layout.group_size == 1;
    if (!on_disk || !can || !*job->data.scratch) return no_room(tr, m, left, on_disk);
    tr->storage = TR_LEVEL_MEMORY_DISK;
    tr_say(tr, "storage:       memory_disk, in %s, as %s are free", job->data.scratch, tr_bytes(left).text);
    return TR_OK;
}

static int say_estimate(tr_context *tr)
{
    if (tr->rank != 0) return TR_OK;
    const tr_job *job = tr->job;
    if (job->data.train.n == 0)
        return tr_fail(TR_ERR_CONFIG, "%s: data.train is missing: the files to learn from",
                       tr_job_where(job, "data.train"));
    tr_data_size size = {.workers = tr_layout_workers(&tr->layout),
                         .servers = tr->layout.servers,
                         .group_workers = tr->layout.group_size};
    for (int node = 0; node < tr->layout.nodes; node++)
        size.node_workers = tr_max_int(size.node_workers, count_node(tr, node).workers);
    TR_TRY(tr_data_guess(job, &size));
    struct memory m = estimate(tr, &size);
    double present = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
    tr_say(tr, "memory:        about %s a rank, %s a node of %s", tr_bytes(m.rank).text,
           tr_bytes(m.node).text, tr_bytes(present).text);
    return decide_storage(tr, &m, &size);
}

int tr_say_estimate(tr_context *tr)
{
    TR_TRY(tr_agree(tr, say_estimate(tr)));
    TR_TRY(tr_broadcast(tr, TR_SET_ALL, 0, &tr->storage, sizeof tr->storage));
    if (tr->storage != TR_LEVEL_MEMORY) tr->job->data.partition = partition_on_disk(tr->job);
    return TR_OK;
}
