/* Which workers are free, by node, and how many there are on the nodes of a set (those that hold a task's data): the most
 * on one, the fewest, and all together, kept in a tree over the set's nodes. */
#ifndef TR_STAGE_SCHEDULE_NODES_H
#define TR_STAGE_SCHEDULE_NODES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tr_free_count {
    int most, least, all; /* nodes without workers are left out of the least */
};

struct tr_node_set {
    int nodes, *node;                         /* rising */
    int *place;                               /* by node: its place in that list; -1: not in the set */
    int leaves;                               /* of the tree: a power of two; place p is at leaves + p */
    struct tr_free_count *count;              /* node 1 of the tree is its root */
    int all_capacity, most_capacity, peopled; /* peopled: nodes with workers */
};

/* Workers are numbered by slots here: by node, rising on each. */
struct tr_nodes {
    int workers, nodes;
    int *first;                /* slot, by node; and their end */
    int *worker_of, *slot_of;  /* slot -> worker, worker -> slot */
    int *node_of;              /* by slot */
    int *capacity, *free;      /* by node: workers that are not lost; free ones */
    int *heap;                 /* free slots of a node, the lowest in front: from first[node] */
    struct tr_node_set **sets; /* all that were asked for; 0: all nodes */
    size_t set_count, set_capacity;
    int **sets_of, *sets_of_count; /* by node: those that hold it */
    size_t *sets_of_capacity;
};

int tr_nodes_open(int workers, const int *node_of, struct tr_nodes *nodes);
void tr_nodes_close(struct tr_nodes *nodes);

/* The number of the set of these nodes (in any order, repeated or not); n = 0: of all. */
int tr_nodes_set(struct tr_nodes *nodes, const int *node, int n, int *set);

static inline const struct tr_free_count *tr_set_free(const struct tr_node_set *set)
{
    return &set->count[1];
}

/* The first node of the set with so many free workers, and one with the most; -1: none has any. */
int tr_set_first(const struct tr_node_set *set, int free);
int tr_set_fullest(const struct tr_node_set *set);

/* Takes n of the node's free workers, the lowest ones; gives back n workers of the node; takes a free one out for good,
 * or one that is not free. */
void tr_nodes_take(struct tr_nodes *nodes, int node, int n, int *slot);
void tr_nodes_give(struct tr_nodes *nodes, int node, int n, const int *slot);
void tr_nodes_lose(struct tr_nodes *nodes, int slot, bool free);

#endif
