#include "stage/schedule_nodes.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

/* ---- sets of nodes ---- */

static int least(int a, int b)
{
    return a < b ? a : b;
}

static void count_leaf(const struct tr_nodes *n, struct tr_node_set *set, int place)
{
    int node = set->node[place], free = n->free[node];
    set->count[set->leaves + place] =
        (struct tr_free_count){.most = free, .least = n->capacity[node] ? free : INT_MAX, .all = free};
}

static void count_branch(struct tr_node_set *set, int at)
{
    const struct tr_free_count *a = &set->count[2 * at], *b = &set->count[2 * at + 1];
    set->count[at] = (struct tr_free_count){
        .most = tr_max_int(a->most, b->most), .least = least(a->least, b->least), .all = a->all + b->all};
}

static void count_capacity(const struct tr_nodes *n, struct tr_node_set *set)
{
    set->all_capacity = set->most_capacity = set->peopled = 0;
    for (int i = 0; i < set->nodes; i++) {
        int capacity = n->capacity[set->node[i]];
        set->all_capacity += capacity;
        set->most_capacity = tr_max_int(set->most_capacity, capacity);
        set->peopled += capacity > 0;
    }
}

static void count_all(const struct tr_nodes *n, struct tr_node_set *set)
{
    for (int i = 0; i < set->leaves; i++)
        if (i < set->nodes) count_leaf(n, set, i);
        else set->count[set->leaves + i] = (struct tr_free_count){.least = INT_MAX};
    for (int at = set->leaves - 1; at > 0; at--) count_branch(set, at);
    count_capacity(n, set);
}

static void recount(struct tr_nodes *n, int node)
{
    for (int i = 0; i < n->sets_of_count[node]; i++) {
        struct tr_node_set *set = n->sets[n->sets_of[node][i]];
        count_leaf(n, set, set->place[node]);
        for (int at = (set->leaves + set->place[node]) / 2; at > 0; at /= 2) count_branch(set, at);
    }
}

int tr_set_first(const struct tr_node_set *set, int free)
{
    int at = 1;
    if (set->count[at].most < free) return -1;
    while (at < set->leaves) at = 2 * at + (set->count[2 * at].most < free);
    return set->node[at - set->leaves];
}

int tr_set_fullest(const struct tr_node_set *set)
{
    int most = set->count[1].most;
    return most > 0 ? tr_set_first(set, most) : -1;
}

static void free_set(struct tr_node_set *set)
{
    if (!set) return;
    free(set->node);
    free(set->place);
    free(set->count);
    free(set);
}

static int make_set(const struct tr_nodes *n, const int *node, int count, struct tr_node_set *set)
{
    set->leaves = 1;
    while (set->leaves < count) set->leaves *= 2;
    TR_TRY(TR_NEW(&set->node, (size_t)count));
    TR_TRY(TR_NEW(&set->place, (size_t)n->nodes));
    TR_TRY(TR_NEW(&set->count, 2 * (size_t)set->leaves));
    set->nodes = count;
    memcpy(set->node, node, (size_t)count * sizeof *node);
    for (int i = 0; i < n->nodes; i++) set->place[i] = -1;
    for (int i = 0; i < count; i++) set->place[node[i]] = i;
    count_all(n, set);
    return TR_OK;
}

/* Makes room in all lists first, so that nothing is half done without memory. */
static int add_set(struct tr_nodes *n, const int *node, int count, int *number)
{
    TR_TRY(TR_GROW(&n->sets, &n->set_capacity, n->set_count + 1));
    for (int i = 0; i < count; i++)
        TR_TRY(TR_GROW(&n->sets_of[node[i]], &n->sets_of_capacity[node[i]],
                       (size_t)n->sets_of_count[node[i]] + 1));
    struct tr_node_set *set;
    TR_TRY(TR_NEW(&set, 1));
    int status = make_set(n, node, count, set);
    if (status) {
        free_set(set);
        return status;
    }
    *number = (int)n->set_count;
    n->sets[n->set_count++] = set;
    for (int i = 0; i < count; i++) n->sets_of[node[i]][n->sets_of_count[node[i]]++] = *number;
    return TR_OK;
}

static int find_or_add(struct tr_nodes *n, const int *node, int count, int *number)
{
    for (size_t i = 0; i < n->set_count; i++) {
        const struct tr_node_set *set = n->sets[i];
        if (set->nodes != count || memcmp(set->node, node, (size_t)count * sizeof *node)) continue;
        *number = (int)i;
        return TR_OK;
    }
    return add_set(n, node, count, number);
}

static int compare(const void *a, const void *b)
{
    int x = *(const int *)a, y = *(const int *)b;
    return (x > y) - (x < y);
}

int tr_nodes_set(struct tr_nodes *n, const int *node, int count, int *set)
{
    *set = 0;
    if (count <= 0) return TR_OK;
    for (int i = 0; i < count; i++)
        if (node[i] < 0 || node[i] >= n->nodes)
            return tr_fail(TR_ERR_INTERNAL, "node %d: there are %d", node[i], n->nodes);
    int *sorted, unique = 0;
    TR_TRY(TR_NEW(&sorted, (size_t)count));
    memcpy(sorted, node, (size_t)count * sizeof *node);
    qsort(sorted, (size_t)count, sizeof *sorted, compare);
    for (int i = 0; i < count; i++)
        if (!i || sorted[i] != sorted[i - 1]) sorted[unique++] = sorted[i];
    int status = find_or_add(n, sorted, unique, set);
    free(sorted);
    return status;
}

/* ---- free workers ---- */

static void sift_down(int *heap, int n, int at)
{
    for (int child; (child = 2 * at + 1) < n; at = child) {
        if (child + 1 < n && heap[child + 1] < heap[child]) child++;
        if (heap[at] <= heap[child]) return;
        int swap = heap[at];
        heap[at] = heap[child];
        heap[child] = swap;
    }
}

static void sift_up(int *heap, int at)
{
    for (; at > 0 && heap[at] < heap[(at - 1) / 2]; at = (at - 1) / 2) {
        int swap = heap[at];
        heap[at] = heap[(at - 1) / 2];
        heap[(at - 1) / 2] = swap;
    }
}

void tr_nodes_take(struct tr_nodes *n, int node, int count, int *slot)
{
    int *heap = n->heap + n->first[node], *free = &n->free[node];
    for (int i = 0; i < count; i++) {
        slot[i] = heap[0];
        heap[0] = heap[--*free];
        sift_down(heap, *free, 0);
    }
    recount(n, node);
}

void tr_nodes_give(struct tr_nodes *n, int node, int count, const int *slot)
{
    int *heap = n->heap + n->first[node];
    for (int i = 0; i < count; i++) {
        heap[n->free[node]] = slot[i];
        sift_up(heap, n->free[node]++);
    }
    recount(n, node);
}

void tr_nodes_lose(struct tr_nodes *n, int slot, bool is_free)
{
    int node = n->node_of[slot], *heap = n->heap + n->first[node];
    n->capacity[node]--;
    if (is_free) {
        int at = 0;
        while (heap[at] != slot) at++;
        heap[at] = heap[--n->free[node]];
        for (int i = n->free[node] / 2; i >= 0; i--) sift_down(heap, n->free[node], i);
    }
    recount(n, node);
    for (int i = 0; i < n->sets_of_count[node]; i++) count_capacity(n, n->sets[n->sets_of[node][i]]);
}

/* ---- from workers to slots ---- */

static void number_slots(struct tr_nodes *n, const int *node_of)
{
    for (int w = 0; w < n->workers; w++) n->first[node_of[w] + 1]++;
    for (int i = 0; i < n->nodes; i++) {
        n->capacity[i] = n->first[i + 1];
        n->first[i + 1] += n->first[i];
    }
    for (int w = 0; w < n->workers; w++) {
        int node = node_of[w], slot = n->first[node] + n->free[node]++;
        n->worker_of[slot] = w;
        n->slot_of[w] = slot;
        n->node_of[slot] = node;
        n->heap[slot] = slot;
    }
}

static int count_nodes(int workers, const int *node_of, int *nodes)
{
    *nodes = 1;
    for (int w = 0; w < workers; w++) {
        if (node_of[w] < 0 || node_of[w] == INT_MAX)
            return tr_fail(TR_ERR_INTERNAL, "worker %d is on node %d", w, node_of[w]);
        *nodes = tr_max_int(*nodes, node_of[w] + 1);
    }
    return TR_OK;
}

static int open_nodes(int workers, const int *node_of, struct tr_nodes *n)
{
    TR_TRY(count_nodes(workers, node_of, &n->nodes));
    n->workers = workers;
    size_t slots = (size_t)workers, nodes = (size_t)n->nodes;
    TR_TRY(TR_NEW(&n->first, nodes + 1));
    TR_TRY(TR_NEW(&n->worker_of, slots));
    TR_TRY(TR_NEW(&n->slot_of, slots));
    TR_TRY(TR_NEW(&n->node_of, slots));
    TR_TRY(TR_NEW(&n->capacity, nodes));
    TR_TRY(TR_NEW(&n->free, nodes));
    TR_TRY(TR_NEW(&n->heap, slots));
    TR_TRY(TR_NEW(&n->sets_of, nodes));
    TR_TRY(TR_NEW(&n->sets_of_count, nodes));
    TR_TRY(TR_NEW(&n->sets_of_capacity, nodes));
    number_slots(n, node_of);
    int *all, set;
    TR_TRY(TR_NEW(&all, nodes));
    for (int i = 0; i < n->nodes; i++) all[i] = i;
    int status = tr_nodes_set(n, all, n->nodes, &set);
    free(all);
    return status;
}

int tr_nodes_open(int workers, const int *node_of, struct tr_nodes *nodes)
{
    *nodes = (struct tr_nodes){0};
    int status = open_nodes(workers, node_of, nodes);
    if (status) tr_nodes_close(nodes);
    return status;
}

void tr_nodes_close(struct tr_nodes *n)
{
    for (size_t i = 0; i < n->set_count; i++) free_set(n->sets[i]);
    for (int i = 0; i < n->nodes && n->sets_of; i++) free(n->sets_of[i]);
    free(n->sets);
    free(n->sets_of);
    free(n->sets_of_count);
    free(n->sets_of_capacity);
    free(n->first);
    free(n->worker_of);
    free(n->slot_of);
    free(n->node_of);
    free(n->capacity);
    free(n->free);
    free(n->heap);
    *n = (struct tr_nodes){0};
}
