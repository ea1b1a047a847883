/* Who does what: a pure function from what the job file asks for and the nodes of the ranks to roles. */
#ifndef TR_RANKS_LAYOUT_H
#define TR_RANKS_LAYOUT_H

#include <stdbool.h>
#include <stddef.h>

enum tr_layout_kind { TR_ROLES_AUTO, TR_ROLES_DEDICATED, TR_ROLES_COLOCATED, TR_ROLES_ALONE };

/* Who are a group where the job leaves that open and ranks are colocated: each worker for itself; those of a node; those of a
 * node if there are several nodes; all; those of a node if all nodes have several ranks, else all. Where all are more than 64
 * it is those of a node, as a round is then hardly longer than a message takes. Nodes do not make groups if some have more
 * ranks than others. */
enum tr_grouping {
    TR_GROUP_OF_ONE,
    TR_GROUP_OF_NODE,
    TR_GROUP_OF_SPREAD,
    TR_GROUP_OF_ALL,
    TR_GROUP_OF_NODE_OR_ALL
};

/* What the job file asks for; 0 leaves a number to be chosen. */
struct tr_layout_options {
    enum tr_layout_kind kind;
    int servers, groups, group_size;
    enum tr_grouping grouping;
};

struct tr_place {
    unsigned roles; /* set of enum tr_role; 0: a rank that is not used */
    int server;     /* which server it is, or -1 */
    int group;      /* which group it works in, or -1 */
    int member;     /* its number inside the group; 0 is the leader */
};

struct tr_layout {
    enum tr_layout_kind kind; /* dedicated, colocated or alone */
    int ranks, nodes;
    int servers, groups, group_size;
    struct tr_place *place; /* by rank */
    int *server_rank;       /* by server */
    int *worker_rank;       /* by group * group_size + member */
};

/* Fills the layout for ranks that lie on nodes node_of[0..ranks-1] (numbered 0..nodes-1).
 *   alone      one rank is everything
 *   colocated  all ranks are servers and work: groups × group_size of them, default groups of one
 *              (of as many as there are, where the number of groups is given)
 *   dedicated  rank 0 schedules, `servers` ranks serve (default a quarter), the rest works; if one server and so many
 *              workers are asked for that there is a rank too few, rank 0 serves as well
 * Without options a job is colocated: on the machines measured it wins as long as servers have little to
 * compute; a number of servers that leaves room for the groups makes it dedicated. Servers are spread over
 * the nodes, a group lies within one node where it fits. Fails with TR_ERR_CONFIG where that takes more
 * ranks than there are. Free with tr_layout_free(). */
int tr_layout_choose(const struct tr_layout_options *wish, int ranks, const int *node_of,
                     struct tr_layout *layout);
void tr_layout_free(struct tr_layout *layout);

/* Whether every rank has the same place in both. */
bool tr_layout_equal(const struct tr_layout *a, const struct tr_layout *b);

static inline int tr_layout_workers(const struct tr_layout *layout)
{
    return layout->groups * layout->group_size;
}

/* "colocated: 4 ranks on 1 node: 4 servers, 4 groups of 1" */
void tr_layout_describe(const struct tr_layout *layout, char *text, size_t size);

#endif
