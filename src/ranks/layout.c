#include "ranks/ranks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *layout_kind_name[] = {"auto", "dedicated", "colocated", "alone"};

/* Returns whether rank 0 is scheduler (which takes little time) and server: if one is requested and workers need all other
 * ranks. */
static bool layout_first_rank_serves(const struct tr_layout_options *options, int ranks,
                                     const struct tr_layout *l)
{
    return l->kind == TR_ROLES_DEDICATED && l->servers == 1 && options->groups > 0 &&
           1 + (int64_t)l->groups * l->group_size == ranks;
}

static int layout_count_nodes(int ranks, const int *node_of)
{
    int nodes = 0;
    for (int rank = 0; rank < ranks; rank++) nodes = tr_max_int(nodes, node_of[rank] + 1);
    return nodes;
}

/* Returns the default group size; 0: the job sets numbers or the layout, or groups have one worker.
 *
 * Measurements of one group of all workers against groups per node, on nodes with 4 ranks; MB: traffic between nodes per pass:
 *   MovieLens 100K, rank 32: one group 0.8 MB on 8 ranks, 1.8 MB on 16; per node 7.4 and 22.5 MB, and after 12 passes a loss
 *   that is higher by 1.5 %.
 *   20 newsgroups, 50 topics: one group 4.8 and 9.6 MB; per node 1.5 and 4.2 MB. After 150 passes log p differs by less than
 *   between two seeds, and the perplexity of new documents is lower by 0.5 %; but every node stores the whole model.
 * One group of P ranks needs 2 P messages of about 3 us: 0.4 ms on 64 ranks, equal to the computing time of a pass over a
 * million ratings with rank 32, which takes one rank 25 ms. On 128 ranks messages would take four times as long as computing. */
static int layout_usual_group_size(const struct tr_layout_options *options, int ranks, const int *node_of)
{
    enum { MOST_TOGETHER = 64 };
    bool open = options->groups == 0 && options->group_size == 0 && options->servers == 0 &&
                (options->kind == TR_ROLES_AUTO || options->kind == TR_ROLES_COLOCATED);
    int nodes = layout_count_nodes(ranks, node_of), most = 0;
    TR_FREED int *count = NULL;
    if (!open || options->grouping == TR_GROUP_OF_ONE || TR_NEW(&count, (size_t)nodes) != TR_OK) return 0;
    for (int rank = 0; rank < ranks; rank++) most = tr_max_int(most, ++count[node_of[rank]]);
    int of_node = nodes * most == ranks ? most : 0; /* 0: nodes have different numbers of ranks */
    bool all = options->grouping == TR_GROUP_OF_ALL ||
               (options->grouping == TR_GROUP_OF_NODE_OR_ALL && of_node <= 1);
    if (all && ranks <= MOST_TOGETHER) return ranks;
    if (options->grouping == TR_GROUP_OF_SPREAD && nodes == 1) return 0;
    return of_node;
}

/* Returns the group size that the job sets. By default, divides the `can_work` possible workers among the requested groups. */
static int layout_choose_group_size(const struct tr_layout_options *options, int can_work)
{
    if (options->group_size > 0) return options->group_size;
    return options->groups > 0 ? tr_max_int(can_work / options->groups, 1) : 1;
}

/* Sets the kind and the numbers of servers, groups and members. Numbers that the job does not set depend on `ranks`. */
static int layout_choose_numbers(const struct tr_layout_options *options, int ranks, struct tr_layout *l)
{
    l->kind = options->kind;
    if (l->kind == TR_ROLES_AUTO) {
        int64_t least = (int64_t)tr_max_int(options->groups, 1) * tr_max_int(options->group_size, 1);
        if (ranks == 1) l->kind = TR_ROLES_ALONE;
        else if (options->servers > 0 && 1 + least + options->servers <= ranks) l->kind = TR_ROLES_DEDICATED;
        else l->kind = TR_ROLES_COLOCATED;
    }
    if (l->kind == TR_ROLES_ALONE && ranks > 1)
        return tr_fail(TR_ERR_CONFIG,
                       "ranks.layout is alone, but there are %d ranks: start one process without mpirun",
                       ranks);
    bool dedicated = l->kind == TR_ROLES_DEDICATED;
    if (dedicated) {
        int left = ranks - 1, usual = options->servers > 0 ? options->servers : (left + 3) / 4;
        l->group_size = layout_choose_group_size(options, left - usual);
        int64_t workers =
            (int64_t)options->groups * l->group_size; /* 0 if the number of groups is not given */
        l->servers = options->servers > 0            ? options->servers
                     : workers > 0 && left > workers ? left - (int)workers
                     : workers > 0                   ? 1
                                                     : usual;
        l->groups = options->groups > 0 ? options->groups : (left - l->servers) / l->group_size;
    } else {
        l->group_size = layout_choose_group_size(options, ranks);
        l->servers = options->servers > 0 ? options->servers : ranks;
        l->groups = options->groups > 0 ? options->groups : ranks / l->group_size;
    }
    int64_t serving = tr_max_int(l->servers, 1);
    int64_t working = (int64_t)tr_max_int(l->groups, 1) * l->group_size;
    int64_t needed = layout_first_rank_serves(options, ranks, l) ? ranks
                     : dedicated                                 ? 1 + serving + working
                     : serving > working                         ? serving
                                                                 : working;
    if (needed <= ranks) return TR_OK;
    const struct {
        int set;
        const char *key;
    } keys[] = {{options->servers, "ranks.servers"},
                {options->groups, "ranks.groups"},
                {options->group_size, "ranks.group_size"}};
    char advice[80] = "";
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        size_t end = strlen(advice);
        if (keys[i].set > 0)
            snprintf(advice + end, sizeof advice - end, "%s%s", end ? " or " : ", or lower ", keys[i].key);
    }
    return tr_fail(TR_ERR_CONFIG,
                   "the %s layout with %d servers and %d groups of %d needs %lld ranks, but there are %d: "
                   "start more ranks%s",
                   layout_kind_name[l->kind], (int)serving, tr_max_int(l->groups, 1), l->group_size,
                   (long long)needed, ranks, advice);
}

/* Assigns the server role to a rank. */
static void layout_add_server(struct tr_layout *l, int rank, int server)
{
    l->place[rank].roles |= TR_SERVER;
    l->place[rank].server = server;
    l->server_rank[server] = rank;
}

int tr_layout_choose(const struct tr_layout_options *wish, int ranks, const int *node_of,
                     struct tr_layout *layout)
{
    struct tr_layout l TR_CLOSED_BY(tr_layout_free) = {.ranks = ranks,
                                                       .nodes = layout_count_nodes(ranks, node_of)};
    struct tr_layout_options options = *wish;
    int size = layout_usual_group_size(wish, ranks, node_of);
    if (size > 0) options.group_size = size;
    TR_TRY(layout_choose_numbers(&options, ranks, &l));
    TR_TRY(TR_NEW(&l.place, (size_t)ranks));
    TR_TRY(TR_NEW(&l.server_rank, (size_t)l.servers));
    TR_TRY(TR_NEW(&l.worker_rank, (size_t)tr_layout_workers(&l)));
    for (int rank = 0; rank < ranks; rank++) l.place[rank] = (struct tr_place){0, -1, -1, -1};
    bool dedicated = l.kind == TR_ROLES_DEDICATED;
    l.place[0].roles = TR_SCHEDULER;
    if (layout_first_rank_serves(&options, ranks, &l)) {
        layout_add_server(&l, 0, 0);
    } else { /* one server per node, then a second one per node, and so on: this distributes traffic over their networks */
        for (int server = 0, turn = 0; server < l.servers; turn++)
            for (int node = 0; node < l.nodes && server < l.servers; node++) {
                int rank = dedicated, seen = 0;
                while (rank < ranks && (node_of[rank] != node || seen++ < turn)) rank++;
                if (rank < ranks) layout_add_server(&l, rank, server++);
            }
    }
    /* fills each group with free ranks: of one node if a node has enough free ranks, else of several nodes */
    TR_FREED int *left = NULL;
    TR_TRY(TR_NEW(&left, (size_t)l.nodes));
    for (int rank = dedicated; rank < l.ranks; rank++)
        if (!dedicated || l.place[rank].server < 0) left[node_of[rank]]++;
    for (int group = 0; group < l.groups; group++) {
        int home = -1;
        for (int node = 0; node < l.nodes && home < 0; node++)
            if (left[node] >= l.group_size) home = node;
        for (int rank = dedicated, member = 0; rank < l.ranks && member < l.group_size; rank++) {
            struct tr_place *place = &l.place[rank];
            if (place->group >= 0 || (dedicated && place->server >= 0)) continue;
            if (home >= 0 && node_of[rank] != home) continue;
            place->roles |= TR_SLAVE | (member == 0 ? TR_LEADER : 0);
            place->group = group;
            place->member = member;
            l.worker_rank[group * l.group_size + member++] = rank;
            left[node_of[rank]]--;
        }
    }
    *layout = l;
    l = (struct tr_layout){0};
    return TR_OK;
}

bool tr_layout_equal(const struct tr_layout *a, const struct tr_layout *b)
{
    return a->kind == b->kind && a->ranks == b->ranks && a->group_size == b->group_size &&
           memcmp(a->place, b->place, (size_t)a->ranks * sizeof *a->place) == 0;
}

void tr_layout_free(struct tr_layout *layout)
{
    TR_FREE_ALL(layout->place, layout->server_rank, layout->worker_rank);
    *layout = (struct tr_layout){0};
}

void tr_layout_describe(const struct tr_layout *l, char *text, size_t size)
{
    if (l->kind == TR_ROLES_ALONE) {
        snprintf(text, size, "alone: one process is scheduler, server and worker");
        return;
    }
    int used = 0;
    for (int rank = 0; rank < l->ranks; rank++) used += l->place[rank].roles != 0;
    int length = snprintf(text, size, "%s: %d ranks on %d node%s: %d server%s, %d group%s of %d",
                          layout_kind_name[l->kind], l->ranks, l->nodes, l->nodes > 1 ? "s" : "", l->servers,
                          l->servers > 1 ? "s" : "", l->groups, l->groups > 1 ? "s" : "", l->group_size);
    if (used < l->ranks && length > 0 && (size_t)length < size)
        snprintf(text + length, size - (size_t)length, ", %d not used", l->ranks - used);
}
