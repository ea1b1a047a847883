#include "unit.h"

#include <limits.h>

#include "ranks/ranks.h"
#include "trireme/context.h"

static const int one_node[16] = {0};

/* Chooses, and checks what holds for every layout: places and lists say the same. */
static struct tr_layout choose(struct tr_layout_options wish, int ranks, const int *node_of)
{
    struct tr_layout l;
    ck_ok(tr_layout_choose(&wish, ranks, node_of, &l));
    int servers = 0, workers = 0, leaders = 0;
    for (int rank = 0; rank < ranks; rank++) {
        const struct tr_place *p = &l.place[rank];
        ck_assert_int_eq((p->roles & TR_SCHEDULER) != 0, rank == 0);
        ck_assert_int_eq((p->roles & TR_SERVER) != 0, p->server >= 0);
        ck_assert_int_eq((p->roles & TR_SLAVE) != 0, p->group >= 0);
        ck_assert_int_eq((p->roles & TR_LEADER) != 0, p->group >= 0 && p->member == 0);
        if (p->server >= 0) ck_assert_int_eq(l.server_rank[p->server], rank);
        if (p->group >= 0) ck_assert_int_eq(l.worker_rank[p->group * l.group_size + p->member], rank);
        servers += p->server >= 0;
        workers += p->group >= 0;
        leaders += (p->roles & TR_LEADER) != 0;
    }
    ck_assert_int_eq(servers, l.servers);
    ck_assert_int_eq(workers, tr_layout_workers(&l));
    ck_assert_int_eq(leaders, l.groups);
    return l;
}

static void expect(struct tr_layout_options wish, int ranks, enum tr_layout_kind kind, int servers,
                   int groups, int size)
{
    struct tr_layout l = choose(wish, ranks, one_node);
    ck_assert_int_eq(l.kind, kind);
    ck_assert_int_eq(l.servers, servers);
    ck_assert_int_eq(l.groups, groups);
    ck_assert_int_eq(l.group_size, size);
    tr_layout_free(&l);
}

UNIT_CASE(what_is_left_open_is_chosen)
{
    expect((struct tr_layout_options){.kind = TR_ROLES_AUTO}, 1, TR_ROLES_ALONE, 1, 1, 1);
    expect((struct tr_layout_options){.kind = TR_ROLES_AUTO}, 4, TR_ROLES_COLOCATED, 4, 4, 1);
    expect((struct tr_layout_options){.servers = 2}, 7, TR_ROLES_DEDICATED, 2, 4, 1);
    expect((struct tr_layout_options){.servers = 2}, 3, TR_ROLES_COLOCATED, 2, 3, 1);
    expect((struct tr_layout_options){.servers = 1, .groups = 3}, 5, TR_ROLES_DEDICATED, 1, 3, 1);
    expect((struct tr_layout_options){.servers = 1, .groups = 3}, 4, TR_ROLES_COLOCATED, 1, 3, 1);
    expect((struct tr_layout_options){.servers = 2, .group_size = 2}, 4, TR_ROLES_COLOCATED, 2, 2, 2);
    expect((struct tr_layout_options){.kind = TR_ROLES_DEDICATED}, 7, TR_ROLES_DEDICATED, 2, 4, 1);
    expect((struct tr_layout_options){.kind = TR_ROLES_DEDICATED}, 3, TR_ROLES_DEDICATED, 1, 1, 1);
    expect((struct tr_layout_options){.kind = TR_ROLES_DEDICATED, .group_size = 2}, 7, TR_ROLES_DEDICATED, 2,
           2, 2);
    expect((struct tr_layout_options){.kind = TR_ROLES_DEDICATED, .groups = 2, .group_size = 2}, 7,
           TR_ROLES_DEDICATED, 2, 2, 2);
    expect((struct tr_layout_options){.kind = TR_ROLES_COLOCATED, .group_size = 2}, 7, TR_ROLES_COLOCATED, 7,
           3, 2);
    expect((struct tr_layout_options){.groups = 1}, 4, TR_ROLES_COLOCATED, 4, 1, 4);
    expect((struct tr_layout_options){.groups = 3}, 7, TR_ROLES_COLOCATED, 7, 3, 2);
    expect((struct tr_layout_options){.servers = 2, .groups = 1}, 7, TR_ROLES_DEDICATED, 2, 1, 4);
    expect((struct tr_layout_options){.servers = 1, .groups = 1}, 2, TR_ROLES_COLOCATED, 1, 1, 2);
    expect((struct tr_layout_options){.kind = TR_ROLES_DEDICATED, .groups = 1}, 7, TR_ROLES_DEDICATED, 2, 1,
           4);
    expect((struct tr_layout_options){.kind = TR_ROLES_DEDICATED, .groups = 3}, 7, TR_ROLES_DEDICATED, 3, 3,
           1);
}

UNIT_CASE(rank_0_serves_where_only_the_workers_leave_it_alone)
{
    static const int turns[9] = {0, 1, 0, 1, 0, 1, 0, 1, 0};
    struct tr_layout l = choose((struct tr_layout_options){TR_ROLES_DEDICATED, 1, 8, 1, 0}, 9, turns);
    ck_assert_uint_eq(l.place[0].roles, TR_SCHEDULER | TR_SERVER);
    ck_assert_int_eq(tr_layout_workers(&l), 8);
    tr_layout_free(&l);
    l = choose((struct tr_layout_options){TR_ROLES_DEDICATED, 0, 2, 2, 0}, 5, one_node);
    ck_assert_uint_eq(l.place[0].roles, TR_SCHEDULER | TR_SERVER);
    tr_layout_free(&l);
    l = choose((struct tr_layout_options){TR_ROLES_DEDICATED, 1, 7, 1, 0}, 9, one_node); /* enough for all */
    ck_assert_uint_eq(l.place[0].roles, TR_SCHEDULER);
    tr_layout_free(&l);
}

UNIT_CASE(servers_are_spread_and_groups_stay_inside_a_node)
{
    static const int nodes[8] = {0, 0, 0, 0, 1, 1, 1, 1};
    struct tr_layout l = choose((struct tr_layout_options){TR_ROLES_DEDICATED, 2, 2, 2, 0}, 8, nodes);
    ck_assert_int_eq(l.nodes, 2);
    ck_assert_int_ne(nodes[l.server_rank[0]], nodes[l.server_rank[1]]);
    for (int g = 0; g < 2; g++)
        ck_assert_int_eq(nodes[l.worker_rank[2 * g]], nodes[l.worker_rank[2 * g + 1]]);
    tr_layout_free(&l);

    static const int turns[8] = {0, 1, 0, 1, 0, 1, 0, 1};
    l = choose((struct tr_layout_options){TR_ROLES_COLOCATED, 4, 4, 2, 0}, 8, turns);
    int on_first = 0;
    for (int s = 0; s < 4; s++) on_first += turns[l.server_rank[s]] == 0;
    ck_assert_int_eq(on_first, 2);
    for (int g = 0; g < 4; g++)
        ck_assert_int_eq(turns[l.worker_rank[2 * g]], turns[l.worker_rank[2 * g + 1]]);
    tr_layout_free(&l);

    static const int small[4] = {0, 0, 1, 1}; /* no node has room for three */
    l = choose((struct tr_layout_options){TR_ROLES_COLOCATED, 0, 1, 3, 0}, 4, small);
    ck_assert_int_eq(tr_layout_workers(&l), 3);
    tr_layout_free(&l);
}

UNIT_CASE(workers_are_grouped_by_nodes_or_all_together)
{
    static const struct {
        enum tr_grouping grouping;
        int ranks, nodes, groups, size;
    } all[] = {{TR_GROUP_OF_ONE, 4, 2, 4, 1},         {TR_GROUP_OF_NODE, 4, 1, 1, 4},
               {TR_GROUP_OF_NODE, 6, 2, 2, 3},        {TR_GROUP_OF_SPREAD, 4, 1, 4, 1},
               {TR_GROUP_OF_SPREAD, 6, 3, 3, 2},      {TR_GROUP_OF_ALL, 64, 2, 1, 64},
               {TR_GROUP_OF_ALL, 66, 2, 2, 33},       {TR_GROUP_OF_ALL, 65, 2, 65, 1}, /* 33 and 32: of one */
               {TR_GROUP_OF_ALL, 3, 2, 1, 3},         {TR_GROUP_OF_NODE_OR_ALL, 8, 2, 2, 4},
               {TR_GROUP_OF_NODE_OR_ALL, 8, 1, 1, 8}, {TR_GROUP_OF_NODE_OR_ALL, 4, 4, 1, 4},
               {TR_GROUP_OF_NODE_OR_ALL, 7, 2, 1, 7}}; /* 4 and 3 */
    for (size_t i = 0; i < COUNT(all); i++) {
        int node_of[66];
        for (int rank = 0; rank < all[i].ranks; rank++) node_of[rank] = rank % all[i].nodes;
        struct tr_layout l =
            choose((struct tr_layout_options){.grouping = all[i].grouping}, all[i].ranks, node_of);
        ck_assert_int_eq(l.groups, all[i].groups);
        ck_assert_int_eq(l.group_size, all[i].size);
        tr_layout_free(&l);
    }
    struct tr_layout_options wish = {.groups = 2, .grouping = TR_GROUP_OF_ALL}; /* who wishes is given it */
    struct tr_layout l = choose(wish, 8, one_node);
    ck_assert_int_eq(l.groups, 2);
    tr_layout_free(&l);
}

UNIT_CASE(impossible_wishes_are_refused)
{
    static const struct {
        struct tr_layout_options wish;
        int ranks;
        const char *text;
    } all[] = {{{.kind = TR_ROLES_ALONE}, 2, "start one process"},
               {{.kind = TR_ROLES_DEDICATED}, 2, "needs 3 ranks, but there are 2: start more ranks"},
               {{TR_ROLES_DEDICATED, 2, 2, 2, 0},
                6,
                "needs 7 ranks, but there are 6: start more ranks, or lower ranks.servers or ranks.groups or "
                "ranks.group_size"},
               {{TR_ROLES_COLOCATED, 5, 0, 0, 0}, 4, "5 servers"},
               {{TR_ROLES_COLOCATED, 0, 3, 2, 0}, 4, "needs 6 ranks, but there are 4"},
               {{TR_ROLES_COLOCATED, 0, 0, 5, 0},
                4,
                "needs 5 ranks, but there are 4: start more ranks, or lower ranks.group_size"},
               {{TR_ROLES_COLOCATED, 0, INT_MAX, 2, 0}, 4, "needs 4294967294 ranks"},
               {{TR_ROLES_DEDICATED, INT_MAX, INT_MAX, INT_MAX, 0}, 4, "but there are 4"},
               {{TR_ROLES_DEDICATED, 0, INT_MAX, INT_MAX, 0}, 4, "but there are 4"},
               {{.kind = TR_ROLES_AUTO, .servers = INT_MAX}, 4, "but there are 4"}};
    for (size_t i = 0; i < COUNT(all); i++) {
        struct tr_layout l;
        ck_fails(tr_layout_choose(&all[i].wish, all[i].ranks, one_node, &l), TR_ERR_CONFIG, all[i].text);
    }
}

UNIT_CASE(the_layout_is_described)
{
    char text[200];
    struct tr_layout l = choose((struct tr_layout_options){TR_ROLES_DEDICATED, 2, 1, 3, 0}, 8, one_node);
    tr_layout_describe(&l, text, sizeof text);
    ck_assert_str_eq(text, "dedicated: 8 ranks on 1 node: 2 servers, 1 group of 3, 2 not used");
    tr_layout_free(&l);
}
