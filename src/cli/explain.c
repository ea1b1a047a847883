#define _GNU_SOURCE
#include "cli/explain.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "table/merge.h"
#include "table/view.h"
#include "trireme/cpu.h"

extern char **environ;

/* ---- MPI ---- */

static bool is_in(char *const *list, size_t n, const char *entry)
{
    for (size_t i = 0; i < n; i++)
        if (list[i] == entry) return true;
    return false;
}

/* What tr_mpi_environment() adds is seen by comparing. */
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
        if (is_in(before, n, *now)) continue;
        tr_printf(stderr, "explain: MPI setting %s made by trireme, as it was not set\n", *now);
        made++;
    }
    if (speaks && made == 0) fprintf(stderr, "explain: no MPI setting made by trireme, as all were set\n");
    free(before);
}

/* ---- layout ---- */

enum { HOST = 64 };

/* Without the difference between leaders and others, which the groups tell. */
static unsigned roles_of(const tr_context *tr, int rank)
{
    return tr->layout.place[rank].roles & ~(unsigned)TR_LEADER;
}

static bool alike(const tr_context *tr, int a, int b)
{
    return roles_of(tr, a) == roles_of(tr, b) && tr->node_of[a] == tr->node_of[b];
}

static void add_role(char *text, size_t size, const char *role, bool several)
{
    size_t length = strlen(text);
    snprintf(text + length, size - length, "%s%s%s", length ? ", " : "", role, several ? "s" : "");
}

static void add_groups(const tr_context *tr, int first, int last, char *text, size_t size)
{
    int lowest = tr->layout.groups, highest = 0;
    for (int rank = first; rank <= last; rank++) {
        int group = tr->layout.place[rank].group;
        if (group < lowest) lowest = group;
        highest = tr_max_int(highest, group);
    }
    size_t length = strlen(text);
    if (lowest == highest) snprintf(text + length, size - length, " of group %d", lowest);
    else snprintf(text + length, size - length, " of groups %d-%d", lowest, highest);
}

/* Ranks first .. last, which are alike. */
static void explain_ranks(const tr_context *tr, int first, int last, const char *host)
{
    char ranks[64], text[256] = "";
    bool several = last > first;
    unsigned roles = roles_of(tr, first);
    if (several) snprintf(ranks, sizeof ranks, "ranks %d-%d", first, last);
    else snprintf(ranks, sizeof ranks, "rank %d", first);
    if (roles & TR_SCHEDULER) add_role(text, sizeof text, "scheduler", several);
    if (roles & TR_SERVER) add_role(text, sizeof text, "server", several);
    if (roles & TR_SLAVE) {
        add_role(text, sizeof text, "worker", several);
        add_groups(tr, first, last, text, sizeof text);
    }
    tr_printf(stderr, "explain: %s on node %d (%s): %s\n", ranks, tr->node_of[first], host,
              *text ? text : "not used");
}

int tr_explain_layout(tr_context *tr)
{
    char host[HOST] = "", *hosts = NULL;
    gethostname(host, sizeof host - 1);
    TR_TRY(tr_agree(tr, TR_NEW(&hosts, (size_t)tr->size * HOST)));
    MPI_Request request;
    MPI_Igather(host, HOST, MPI_CHAR, hosts, HOST, MPI_CHAR, 0, tr->world, &request);
    int status = tr_wait_request(tr, &request, "all ranks to say their host");
    for (int first = 0, last; status == TR_OK && tr->rank == 0 && first < tr->size; first = last + 1) {
        last = first;
        while (last + 1 < tr->size && alike(tr, first, last + 1)) last++;
        explain_ranks(tr, first, last, hosts + (size_t)first * HOST);
    }
    if (tr->rank == 0)
        tr_printf(stderr, "explain: kernels of %s, as all ranks can use them\n", tr_cpu_name(tr_cpu()));
    free(hosts);
    return status;
}

/* ---- tables ---- */

static const char *const dtype_name[] = {"f32", "f64", "i32", "i64"};

static void explain_share(const struct tr_table *t)
{
    if (t->sparse) {
        tr_printf(stderr, "explain: table %s: %llu rows of up to %zu %s, as lists of what is not zero\n",
                  t->name, (unsigned long long)t->keys, t->width, dtype_name[t->dtype]);
        return;
    }
    if (t->hash) {
        tr_printf(stderr,
                  "explain: table %s: %llu possible keys of %zu %s, in hash maps of those that are updated\n",
                  t->name, (unsigned long long)t->keys, t->width, dtype_name[t->dtype]);
        return;
    }
    uint64_t least = UINT64_MAX, most = 0;
    for (uint32_t s = 0; s < t->partition.servers; s++) {
        uint64_t bytes = tr_partition_share(&t->partition, s) * t->unit_bytes;
        if (bytes < least) least = bytes;
        if (bytes > most) most = bytes;
    }
    tr_printf(stderr, "explain: table %s: %llu keys of %zu %s, %llu to %llu bytes a server\n", t->name,
              (unsigned long long)t->keys, t->width, dtype_name[t->dtype], (unsigned long long)least,
              (unsigned long long)most);
}

static void explain_partition(const struct tr_table *t)
{
    const struct tr_partition *p = &t->partition;
    char pieces[64] = "";
    char servers[64] = "";
    if (p->servers < (uint32_t)t->tr->layout.servers)
        snprintf(servers, sizeof servers, " of %d, from server %u on", t->tr->layout.servers,
                 t->first_server);
    if (t->pieces > 1) snprintf(pieces, sizeof pieces, ", each key in %u pieces", t->pieces);
    tr_printf(stderr, "explain: table %s: partition %s, %llu blocks of size %llu (%s) over %u servers%s%s\n",
              t->name, tr_partition_name(p->kind), (unsigned long long)p->blocks,
              (unsigned long long)p->block, t->pieces > 1 ? "pieces" : "keys", p->servers, servers, pieces);
}

static void explain_messages(const struct tr_table *t)
{
    const char *encoding, *precision, *filter;
    if (tr_job_string(t->tr->job, "table.encoding", &encoding) != TR_OK ||
        tr_job_string(t->tr->job, "table.precision", &precision) != TR_OK ||
        tr_job_string(t->tr->job, "table.filter", &filter) != TR_OK)
        return;
    tr_printf(stderr, "explain: table %s: updates are %s%s; messages: encoding %s, precision %s, filter %s\n",
              t->name, t->use ? "taken by server function " : "added", t->use ? t->use->function.name : "",
              encoding, precision, filter);
}

/* Rank 0 may have no part in merging; server 0 always knows. */
static int explain_table(tr_context *tr, const struct tr_table *t)
{
    char merge[160];
    tr_merge_describe(t, merge, sizeof merge);
    MPI_Request request;
    MPI_Ibcast(merge, sizeof merge, MPI_CHAR, tr->layout.server_rank[0], tr->world, &request);
    TR_TRY(tr_wait_request(tr, &request, "server 0 to describe a table"));
    if (tr->rank != 0) return TR_OK;
    explain_share(t);
    explain_partition(t);
    explain_messages(t);
    tr_printf(stderr, "explain: table %s: updates %s; %s\n", t->name, merge,
              t->window == MPI_WIN_NULL ? "no RMA window" : "an RMA window");
    return TR_OK;
}

/* ---- views ---- */

/* One view of one worker. Those with the same words are counted together. */
struct described {
    uint64_t keys;
    char text[248];
};

static int by_text_and_keys(const void *a, const void *b)
{
    const struct described *x = a, *y = b;
    int order = strcmp(x->text, y->text);
    return order ? order : (x->keys > y->keys) - (x->keys < y->keys);
}

static int describe_own_views(const tr_context *tr, struct described **views, int *n)
{
    *n = (int)tr->tables->view_count;
    TR_TRY(TR_NEW(views, (size_t)*n));
    for (int i = 0; i < *n; i++) {
        const tr_view *view = &tr->tables->views[i]->view;
        (*views)[i].keys = view->n;
        tr_view_describe(view, (*views)[i].text, sizeof(*views)[i].text);
    }
    return TR_OK;
}

/* Those of all ranks, on rank 0. */
static int gather_views(tr_context *tr, const struct described *mine, int n, struct described **all,
                        int *total)
{
    int bytes = n * (int)sizeof *mine, *count = NULL, *at = NULL;
    int status = TR_NEW(&count, (size_t)tr->size);
    if (status == TR_OK) status = TR_NEW(&at, (size_t)tr->size + 1);
    TR_TRY(tr_agree(tr, status));
    MPI_Request request;
    MPI_Iallgather(&bytes, 1, MPI_INT, count, 1, MPI_INT, tr->world, &request);
    TR_TRY(tr_wait_request(tr, &request, "all ranks to count their views"));
    for (int r = 0; r < tr->size; r++) at[r + 1] = at[r] + count[r];
    *total = at[tr->size] / (int)sizeof *mine;
    TR_TRY(tr_agree(tr, tr->rank == 0 ? TR_NEW(all, (size_t)*total) : TR_OK));
    MPI_Igatherv(mine, bytes, MPI_BYTE, *all, count, at, MPI_BYTE, 0, tr->world, &request);
    TR_TRY(tr_wait_request(tr, &request, "all ranks to describe their views"));
    free(count);
    free(at);
    return TR_OK;
}

static void explain_gathered(struct described *view, int n)
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
    struct described *mine = NULL, *all = NULL;
    int n, total;
    int status = tr_agree(tr, describe_own_views(tr, &mine, &n));
    if (status == TR_OK) status = gather_views(tr, mine, n, &all, &total);
    if (status == TR_OK && tr->rank == 0) explain_gathered(all, total);
    free(mine);
    free(all);
    return status;
}

/* ---- a stage ---- */

static int has_view(const struct tr_table *t)
{
    const struct tr_tables *tables = t->tr->tables;
    for (size_t i = 0; i < tables->view_count; i++)
        if (tables->views[i]->view.table == t) return 1;
    return 0;
}

/* Of how many tables the stage has views, and which: used is by table. */
static int count_used_tables(tr_context *tr, int *used, size_t *n)
{
    MPI_Request request;
    for (size_t i = 0; i < tr->tables->count; i++) used[i] = has_view(tr->tables->table[i]);
    MPI_Iallreduce(MPI_IN_PLACE, used, (int)tr->tables->count, MPI_INT, MPI_MAX, tr->world, &request);
    TR_TRY(tr_wait_request(tr, &request, "all ranks to name their tables"));
    *n = 0;
    for (size_t i = 0; i < tr->tables->count; i++) *n += (size_t)used[i];
    return TR_OK;
}

static void explain_clocks(const tr_stage *stage)
{
    if (stage->epochs_per_clock > 0)
        tr_printf(stderr, "explain: stage %s: %lld clocks, %.4g in an epoch\n", stage->name,
                  (long long)stage->clocks, 1 / stage->epochs_per_clock);
    else
        tr_printf(stderr, "explain: stage %s: %lld clock%s\n", stage->name, (long long)stage->clocks,
                  stage->clocks == 1 ? "" : "s");
}

int tr_explain_stage(void *who, const tr_stage *stage)
{
    tr_context *tr = who;
    const struct tr_tables *tables = tr->tables;
    int *used = NULL;
    size_t n = 0;
    TR_TRY(tr_agree(tr, TR_NEW(&used, tables->count)));
    int status = count_used_tables(tr, used, &n);
    if (status == TR_OK && n > 0 && tr->rank == 0) explain_clocks(stage);
    for (size_t i = 0; status == TR_OK && i < tables->count; i++)
        if (used[i]) status = explain_table(tr, tables->table[i]);
    free(used);
    return status != TR_OK || n == 0 ? status : explain_views(tr);
}
