#include "stage/schedule_queue.h"

#include "base/base.h"

static int least_need(const struct tr_queue_entry *entries, int root)
{
    return root < 0 ? INT32_MAX : entries[root].least_need;
}

static int least(int a, int b)
{
    return a < b ? a : b;
}

static int updated(struct tr_queue_entry *entries, int root)
{
    struct tr_queue_entry *e = &entries[root];
    e->least_need = least(e->need, least(least_need(entries, e->left), least_need(entries, e->right)));
    return root;
}

/* Cuts a tree into what goes before an entry and what goes behind it. */
static void split(struct tr_queue_entry *entries, int root, int entry, int *before, int *behind)
{
    if (root < 0) {
        *before = *behind = -1;
    } else if (tr_queue_before(&entries[root], &entries[entry])) {
        split(entries, entries[root].right, entry, &entries[root].right, behind);
        *before = updated(entries, root);
    } else {
        split(entries, entries[root].left, entry, before, &entries[root].left);
        *behind = updated(entries, root);
    }
}

/* One tree of two, of which the first goes before the second. */
static int joined(struct tr_queue_entry *entries, int before, int behind)
{
    if (before < 0) return behind;
    if (behind < 0) return before;
    if (entries[before].weight > entries[behind].weight) {
        entries[before].right = joined(entries, entries[before].right, behind);
        return updated(entries, before);
    }
    entries[behind].left = joined(entries, before, entries[behind].left);
    return updated(entries, behind);
}

int tr_queue_add(struct tr_queue_entry *entries, int root, int entry)
{
    struct tr_queue_entry *e = &entries[entry];
    int before, behind;
    split(entries, root, entry, &before, &behind);
    e->weight = tr_mix((uint64_t)e->number); /* as good as drawn, and the same in every run */
    e->left = e->right = -1;
    e->least_need = e->need;
    return joined(entries, joined(entries, before, entry), behind);
}

int tr_queue_remove(struct tr_queue_entry *entries, int root, int entry)
{
    struct tr_queue_entry *e = &entries[root];
    if (root == entry) return joined(entries, e->left, e->right);
    if (tr_queue_before(&entries[entry], e)) e->left = tr_queue_remove(entries, e->left, entry);
    else e->right = tr_queue_remove(entries, e->right, entry);
    return updated(entries, root);
}

int tr_queue_head(const struct tr_queue_entry *entries, int root)
{
    while (root >= 0 && entries[root].left >= 0) root = entries[root].left;
    return root;
}

int tr_queue_first(const struct tr_queue_entry *entries, int root, int most, tr_queue_test *test,
                   const void *who)
{
    if (least_need(entries, root) > most) return -1;
    if (root < 0) return -1;
    const struct tr_queue_entry *e = &entries[root];
    int first = tr_queue_first(entries, e->left, most, test, who);
    if (first >= 0) return first;
    if (e->need <= most && (!test || test(who, root))) return root;
    return tr_queue_first(entries, e->right, most, test, who);
}
