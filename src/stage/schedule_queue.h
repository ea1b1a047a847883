/* Waiting stages in the order of their priority: a balanced tree (a treap: Seidel and Aragon, Randomized Search Trees, 1996)
 * in which each branch knows the least need below it, so that the first stage that fits is found without looking at
 * those that do not. Many such trees share one array of entries, and are named by their root (-1: empty). */
#ifndef TR_STAGE_SCHEDULE_QUEUE_H
#define TR_STAGE_SCHEDULE_QUEUE_H

#include <stdbool.h>
#include <stdint.h>

struct tr_queue_entry {
    double key;     /* higher goes first, */
    int64_t number; /* then lower; no two the same */
    int need;

    uint64_t weight; /* the tree's, as all that follows: parents weigh more */
    int left, right; /* before, behind; -1: none */
    int least_need;
};

/* Whether a goes before b. */
static inline bool tr_queue_before(const struct tr_queue_entry *a, const struct tr_queue_entry *b)
{
    return a->key > b->key || (a->key == b->key && a->number < b->number);
}

/* Adds or takes out an entry, whose key, number and need are set; return the new root. */
int tr_queue_add(struct tr_queue_entry *entries, int root, int entry);
int tr_queue_remove(struct tr_queue_entry *entries, int root, int entry);

int tr_queue_head(const struct tr_queue_entry *entries, int root); /* -1: empty */

/* The first entry that needs no more than this and passes the test (NULL: all do), or -1. */
typedef bool tr_queue_test(const void *who, int entry);
int tr_queue_first(const struct tr_queue_entry *entries, int root, int most, tr_queue_test *test,
                   const void *who);

#endif
