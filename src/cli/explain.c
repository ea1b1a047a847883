/* Before training: an estimate of the memory that a job needs, and train --explain. */
#define _GNU_SOURCE
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "base/terminal.h"
#include "cli/cli.h"
#include "data/dataset.h"
#include "table/view.h"
#include "trireme/collective.h"
#include "trireme/cpu.h"

/* ---- estimate of memory ---- */

struct memory {
    tr_memory role;    /* estimate of the model class: bytes per worker, server, group and node */
    double rank, node; /* bytes of the rank, and of the node, that need most */
};

/* Numbers of ranks of a node. */
struct ranks {
    int all, workers, servers; /* a rank may be worker and server */
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

/* Returns the memory of all ranks of a node; shared memory counts once. Updates m->rank, the maximum memory of a rank, in which all
 * shared memory that the rank uses counts, as it does in the output of ps and top. */
static double estimate_node(const tr_context *tr, int node, struct memory *m)
{
    const double program = 32e6, libraries = 20e6; /* a process without data; its part that processes share */
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
        tr->job->data.scale != TR_SCALE_NONE) /* sums and factors of scaled columns */
        m.role.worker += 3 * sizeof(double) * size->features / fmax(1, size->workers);
    for (int node = 0; node < l->nodes; node++) m.node = fmax(m.node, estimate_node(tr, node, &m));
    return m;
}

/* Returns data.partition for rows on disk. The default is horizontal, because workers cannot share rows on disk. */
static int partition_on_disk(const tr_job *job)
{
    return tr_job_given(job, "data.partition") ? job->data.partition : TR_DATA_HORIZONTAL;
}

/* Sets tr->storage to data.storage; if that is auto, to memory if the rows fit, otherwise to disk if data.scratch is set and the
 * model can read rows from disk. */
static int decide_storage(tr_context *tr, const struct memory *m, const tr_data_size *size)
{
    tr_job *job = tr->job;
    double left = (double)tr_memory_free();
    bool fits = m->node <= left;
    int storage = job->data.storage, partition = job->data.partition, wanted = partition_on_disk(job);
    if (storage == TR_LEVEL_MEMORY && !fits)
        tr_say(tr, "memory:        this may not fit, as only %s are free", tr_bytes(left).text);
    tr->storage = storage;
    if (storage != TR_LEVEL_AUTO) return TR_OK;
    tr->storage = TR_LEVEL_MEMORY;
    if (fits) return TR_OK;
    job->data.storage = TR_LEVEL_DISK;
    job->data.partition = wanted;
    bool on_disk = estimate(tr, size).node < 0.9 * m->node;
    job->data.storage = storage;
    job->data.partition = partition;
    bool can = wanted == TR_DATA_HORIZONTAL || tr->layout.group_size == 1;
    if (on_disk && can && *job->data.scratch) {
        tr->storage = TR_LEVEL_MEMORY_DISK;
        tr_say(tr, "storage:       memory_disk, in %s, as %s are free", job->data.scratch,
               tr_bytes(left).text);
        return TR_OK;
    }
    const char *advice =
        job->data.hash > 0 ? "set a smaller data.hash; or "
        : !on_disk         ? ""
        : *job->data.scratch
            ? "set data.partition: horizontal, so that rows may lie in data.scratch; or "
            : "set data.storage: disk and data.scratch: FOLDER, a folder on a disk of each node; or ";
    return tr_fail(TR_ERR_CONFIG,
                   "this needs about %s of memory on a node, which has %s: %suse more nodes, or fewer files "
                   "in data.train (data.storage: memory tries it all the same)",
                   tr_bytes(m->node).text, tr_bytes(left).text, advice);
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

/* ---- train --explain ---- */

extern char **environ;

/* ---- settings and layout ---- */

/* Compares the environment before and after tr_mpi_environment() to find the parameters that it sets. */
void tr_explain_settings(void)
{
    size_t n = 0;
    while (environ[n]) n++;
    char **before = malloc((n + 1) * sizeof *before);
    if (before) memcpy(before, environ, n * sizeof *before);
    tr_mpi_environment();
    const char *rank = getenv("OMPI_COMM_WORLD_RANK");
    bool speaks = before && (!rank || atoi(rank) == 0);
    int made = 0;
    for (char **now = environ; speaks && *now; now++) {
        bool old = false;
        for (size_t i = 0; i < n && !old; i++) old = before[i] == *now;
        if (old) continue;
        tr_printf(stderr, "explain: MPI setting %s made by trireme, as it was not set\n", *now);
        made++;
    }
    if (speaks && made == 0) fprintf(stderr, "explain: no MPI setting made by trireme, as all were set\n");
    free(before);
}

/* Returns the roles of a rank without TR_LEADER, so that ranks are printed together whether they lead a group or not. */
static unsigned roles_of(const tr_context *tr, int rank)
{
    return tr->layout.place[rank].roles & ~(unsigned)TR_LEADER;
}

static void explain_add_role(char *text, size_t size, const char *role, bool several)
{
    size_t length = strlen(text);
    snprintf(text + length, size - length, "%s%s%s", length ? ", " : "", role, several ? "s" : "");
}

/* Prints the roles of ranks first .. last, which have the same roles and are on the same node. */
static void explain_ranks(const tr_context *tr, int first, int last, const char *host)
{
    char ranks[64], text[256] = "";
    bool several = last > first;
    unsigned roles = roles_of(tr, first);
    if (several) snprintf(ranks, sizeof ranks, "ranks %d-%d", first, last);
    else snprintf(ranks, sizeof ranks, "rank %d", first);
    if (roles & TR_SCHEDULER) explain_add_role(text, sizeof text, "scheduler", several);
    if (roles & TR_SERVER) explain_add_role(text, sizeof text, "server", several);
    if (roles & TR_SLAVE) {
        explain_add_role(text, sizeof text, "worker", several);
        int lowest = tr->layout.groups, highest = 0;
        for (int rank = first; rank <= last; rank++) {
            lowest = tr_min_int(lowest, tr->layout.place[rank].group);
            highest = tr_max_int(highest, tr->layout.place[rank].group);
        }
        size_t length = strlen(text);
        if (lowest == highest) snprintf(text + length, sizeof text - length, " of group %d", lowest);
        else snprintf(text + length, sizeof text - length, " of groups %d-%d", lowest, highest);
    }
    tr_printf(stderr, "explain: %s on node %d (%s): %s\n", ranks, tr->node_of[first], host,
              *text ? text : "not used");
}

int tr_explain_layout(tr_context *tr)
{
    enum { HOST = 64 };
    char host[HOST] = "";
    TR_FREED char *hosts = NULL;
    gethostname(host, sizeof host - 1);
    TR_TRY(tr_agree(tr, TR_NEW(&hosts, (size_t)tr->size * HOST)));
    MPI_Request request;
    MPI_Igather(host, HOST, MPI_CHAR, hosts, HOST, MPI_CHAR, 0, tr->world, &request);
    TR_TRY(tr_wait_request(tr, &request, "all ranks to say their host"));
    for (int first = 0, end; tr->rank == 0 && first < tr->size; first = end) {
        for (end = first + 1; end < tr->size; end++)
            if (roles_of(tr, first) != roles_of(tr, end) || tr->node_of[first] != tr->node_of[end]) break;
        explain_ranks(tr, first, end - 1, hosts + (size_t)first * HOST);
    }
    if (tr->rank == 0)
        tr_printf(stderr, "explain: kernels of %s, as all ranks can use them\n", tr_cpu_name(tr_cpu()));
    return TR_OK;
}

/* ---- tables ---- */

/* Prints the properties of a table. The description of merging comes from server 0, because rank 0 may not take part in merging. */
static int explain_table(tr_context *tr, const struct tr_table *t)
{
    static const char *const dtype_name[] = {"f32", "f64", "i32", "i64"};
    const struct tr_partition *p = &t->partition;
    unsigned long long keys = t->keys;
    char merge[160], pieces[64] = "", servers[64] = "";
    tr_merge_describe(t, merge, sizeof merge);
    MPI_Request request;
    MPI_Ibcast(merge, sizeof merge, MPI_CHAR, tr->layout.server_rank[0], tr->world, &request);
    TR_TRY(tr_wait_request(tr, &request, "server 0 to describe a table"));
    if (tr->rank != 0) return TR_OK;
    if (t->sparse) {
        tr_printf(stderr, "explain: table %s: %llu rows of up to %zu %s, as lists of non-zeros\n", t->name,
                  keys, t->width, dtype_name[t->dtype]);
    } else if (t->hash) {
        tr_printf(stderr,
                  "explain: table %s: %llu possible keys of %zu %s, in hash maps of the updated keys\n",
                  t->name, keys, t->width, dtype_name[t->dtype]);
    } else {
        uint64_t least = UINT64_MAX, most = 0;
        for (uint32_t s = 0; s < p->servers; s++) {
            uint64_t bytes = tr_partition_share(p, s) * t->unit_bytes;
            if (bytes < least) least = bytes;
            if (bytes > most) most = bytes;
        }
        tr_printf(stderr, "explain: table %s: %llu keys of %zu %s, %llu to %llu bytes a server\n", t->name,
                  keys, t->width, dtype_name[t->dtype], (unsigned long long)least, (unsigned long long)most);
    }
    if (p->servers < (uint32_t)t->tr->layout.servers)
        snprintf(servers, sizeof servers, " of %d, from server %u on", t->tr->layout.servers,
                 t->first_server);
    if (t->pieces > 1) snprintf(pieces, sizeof pieces, ", each key in %u pieces", t->pieces);
    tr_printf(stderr, "explain: table %s: partition %s, %llu blocks of size %llu (%s) over %u servers%s%s\n",
              t->name, tr_partition_name(p->kind), (unsigned long long)p->blocks,
              (unsigned long long)p->block, t->pieces > 1 ? "pieces" : "keys", p->servers, servers, pieces);
    const char *encoding = "", *precision = "", *filter = "";
    TR_TRY(tr_job_string(tr->job, "table.encoding", &encoding));
    TR_TRY(tr_job_string(tr->job, "table.precision", &precision));
    TR_TRY(tr_job_string(tr->job, "table.filter", &filter));
    tr_printf(stderr, "explain: table %s: updates are %s%s; messages: encoding %s, precision %s, filter %s\n",
              t->name, t->use ? "taken by server function " : "added", t->use ? t->use->function.name : "",
              encoding, precision, filter);
    tr_printf(stderr, "explain: table %s: updates %s; %s\n", t->name, merge,
              t->window == MPI_WIN_NULL ? "no RMA window" : "an RMA window");
    return TR_OK;
}

/* ---- views ---- */

/* The description of one view of one worker. Views with the same text are printed in one line. */
struct described {
    uint64_t keys;  /* number of keys of the view */
    char text[248]; /* see tr_view_describe() */
};

static int by_text_and_keys(const void *a, const void *b)
{
    const struct described *x = a, *y = b;
    int order = strcmp(x->text, y->text);
    return order ? order : (x->keys > y->keys) - (x->keys < y->keys);
}

static void explain_views_of_all(struct described *view, int n)
{
    if (n > 0) qsort(view, (size_t)n, sizeof *view, by_text_and_keys);
    for (int first = 0, end; first < n; first = end) {
        end = first + 1;
        while (end < n && strcmp(view[first].text, view[end].text) == 0) end++;
        int several = end - first;
        if (several == 1)
            tr_printf(stderr, "explain: view of %s; 1 worker, %llu keys\n", view[first].text,
                      (unsigned long long)view[first].keys);
        else
            tr_printf(
                stderr, "explain: view of %s; %d workers, keys (min / median / max) %llu / %llu / %llu\n",
                view[first].text, several, (unsigned long long)view[first].keys,
                (unsigned long long)view[first + several / 2].keys, (unsigned long long)view[end - 1].keys);
    }
}

static int explain_views(tr_context *tr)
{
    TR_FREED struct described *mine = NULL, *all = NULL;
    TR_FREED int *count = NULL, *at = NULL;
    int n = (int)tr->tables->view_count, bytes = n * (int)sizeof *mine;
    MPI_Request request;
    int status = TR_NEW(&mine, (size_t)n);
    if (status == TR_OK) status = TR_NEW(&count, (size_t)tr->size);
    if (status == TR_OK) status = TR_NEW(&at, (size_t)tr->size + 1);
    for (int i = 0; i < n && status == TR_OK; i++) {
        const tr_view *view = &tr->tables->views[i]->view;
        mine[i].keys = view->n;
        tr_view_describe(view, mine[i].text, sizeof mine[i].text);
    }
    TR_TRY(tr_agree(tr, status));
    MPI_Iallgather(&bytes, 1, MPI_INT, count, 1, MPI_INT, tr->world, &request);
    TR_TRY(tr_wait_request(tr, &request, "all ranks to count their views"));
    for (int r = 0; r < tr->size; r++) at[r + 1] = at[r] + count[r];
    int total = at[tr->size] / (int)sizeof *mine;
    TR_TRY(tr_agree(tr, tr->rank == 0 ? TR_NEW(&all, (size_t)total) : TR_OK));
    MPI_Igatherv(mine, bytes, MPI_BYTE, all, count, at, MPI_BYTE, 0, tr->world, &request);
    TR_TRY(tr_wait_request(tr, &request, "all ranks to describe their views"));
    if (tr->rank == 0) explain_views_of_all(all, total);
    return TR_OK;
}

int tr_explain_stage(void *who, const tr_stage *stage)
{
    tr_context *tr = who;
    const struct tr_tables *tables = tr->tables;
    TR_FREED int *used = NULL; /* for each table: 1 if a worker has a view of it in this stage */
    size_t n = 0;
    MPI_Request request;
    TR_TRY(tr_agree(tr, TR_NEW(&used, tables->count)));
    for (size_t i = 0; i < tables->count; i++)
        for (size_t k = 0; k < tables->view_count; k++)
            used[i] |= tables->views[k]->view.table == tables->table[i];
    MPI_Iallreduce(MPI_IN_PLACE, used, (int)tables->count, MPI_INT, MPI_MAX, tr->world, &request);
    TR_TRY(tr_wait_request(tr, &request, "all ranks to name their tables"));
    for (size_t i = 0; i < tables->count; i++) n += used[i] != 0;
    if (n > 0 && tr->rank == 0 && stage->epochs_per_clock > 0)
        tr_printf(stderr, "explain: stage %s: %lld clocks, %.4g in an epoch\n", stage->name,
                  (long long)stage->clocks, 1 / stage->epochs_per_clock);
    else if (n > 0 && tr->rank == 0)
        tr_printf(stderr, "explain: stage %s: %lld clock%s\n", stage->name, (long long)stage->clocks,
                  stage->clocks == 1 ? "" : "s");
    for (size_t i = 0; i < tables->count; i++)
        if (used[i]) TR_TRY(explain_table(tr, tables->table[i]));
    return n == 0 ? TR_OK : explain_views(tr);
}
