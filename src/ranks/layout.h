/* Assignment of roles to ranks, a pure function of the options of the job and the nodes of the ranks. */
#ifndef TR_RANKS_LAYOUT_H
#define TR_RANKS_LAYOUT_H

#include <stdbool.h>
#include <stddef.h>

enum tr_layout_kind { TR_ROLES_AUTO, TR_ROLES_DEDICATED, TR_ROLES_COLOCATED, TR_ROLES_ALONE };

/* Default groups of colocated ranks: single workers; the workers of a node; the workers of a node if there are several nodes; all
 * workers; the workers of a node if all nodes have several ranks, otherwise all workers. Groups of all workers need at most 64
 * ranks (a step of a rotation would be shorter than a message); with more ranks, nodes are used. Groups of nodes require the
 * same number of ranks on all nodes. */
enum tr_grouping {
    TR_GROUP_OF_ONE,
    TR_GROUP_OF_NODE,
    TR_GROUP_OF_SPREAD,
    TR_GROUP_OF_ALL,
    TR_GROUP_OF_NODE_OR_ALL
};

/* Options of the job; 0: choose the number. */
struct tr_layout_options {
    enum tr_layout_kind kind;
    int servers, groups, group_size;
    enum tr_grouping grouping;
};

struct tr_place {
    unsigned roles; /* set of enum tr_role; 0: the rank is not used */
    int server;     /* number of the server, or -1 */
    int group;      /* group of the worker, or -1 */
    int member;     /* number within the group; 0 is the leader */
};

struct tr_layout {
    enum tr_layout_kind kind; /* dedicated, colocated or alone */
    int ranks, nodes;
    int servers, groups, group_size;
    struct tr_place *place; /* by rank */
    int *server_rank;       /* by server */
    int *worker_rank;       /* by group * group_size + member */
};

/* Computes a layout.
 *   alone      one rank has all roles
 *   colocated  all ranks are servers, groups × group_size of them are workers; default: groups of one worker (if the number of
 *              groups is given: the largest possible groups)
 *   dedicated  rank 0 is the scheduler, `servers` ranks (default: a quarter) are servers, the rest are workers; rank 0 is also
 *              the server if one server is requested and one rank is missing
 * The default is colocated, which was faster in measurements as long as servers compute little; dedicated if a number of servers
 * is given and enough ranks remain for the groups. Servers are distributed over the nodes; a group lies within one node if
 * possible.
 *
 * @param [in]  node_of  `ranks` numbers of nodes, from 0
 * @param [out] layout   free it with tr_layout_free()
 * @return TR_OK, or TR_ERR_CONFIG if there are too few ranks
 */
int tr_layout_choose(const struct tr_layout_options *wish, int ranks, const int *node_of,
                     struct tr_layout *layout);
void tr_layout_free(struct tr_layout *layout);

/* Returns whether every rank has the same place in both. */
bool tr_layout_equal(const struct tr_layout *a, const struct tr_layout *b);

static inline int tr_layout_workers(const struct tr_layout *layout)
{
    return layout->groups * layout->group_size;
}

/* Describes the layout: "colocated: 4 ranks on 1 node: 4 servers, 4 groups of 1" */
void tr_layout_describe(const struct tr_layout *layout, char *text, size_t size);

#endif
