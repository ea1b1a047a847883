#include <stdlib.h>

#include "base/base.h"
#include "stage/schedule.h"

/* A walk along what tasks come after, without recursion: a chain may be long. */
struct walk {
    const int *first, *after;
    int *next;  /* by task: which of those it comes after is looked at next; -1: not visited yet */
    int *path;  /* tasks from where the walk began to where it is */
    int *place; /* by task: its place on the path, or -1 */
    int length;
};

static void enter(struct walk *w, int task)
{
    w->next[task] = w->first[task];
    w->place[task] = w->length;
    w->path[w->length++] = task;
}

/* Walks on until all is seen or a task is met again that is on the path: returns that, otherwise -1. */
static int walk_from(struct walk *w, int task)
{
    for (enter(w, task); w->length;) {
        int here = w->path[w->length - 1];
        if (w->next[here] == w->first[here + 1]) {
            w->place[here] = -1;
            w->length--;
            continue;
        }
        int before = w->after[w->next[here]++];
        if (w->place[before] >= 0) return before;
        if (w->next[before] < 0) enter(w, before);
    }
    return -1;
}

static int describe_cycle(const struct walk *w, int from, const char *const *name)
{
    char text[600] = "";
    size_t at = 0;
    for (int i = w->place[from]; i < w->length && at < sizeof text; i++) {
        const char *other = name[i + 1 < w->length ? w->path[i + 1] : from];
        bool first = i == w->place[from];
        int written = snprintf(text + at, sizeof text - at, first ? "%s waits for %s" : ", %s for %s",
                               name[w->path[i]], other);
        at += (size_t)tr_max_int(0, written);
    }
    return tr_fail(TR_ERR_CONFIG, "these tasks could never begin: %s", text);
}

static int walk_all(struct walk *w, int tasks, const char *const *name)
{
    TR_TRY(TR_NEW(&w->next, (size_t)tasks));
    TR_TRY(TR_NEW(&w->path, (size_t)tasks));
    TR_TRY(TR_NEW(&w->place, (size_t)tasks));
    for (int i = w->first[0]; i < w->first[tasks]; i++)
        if (w->after[i] < 0 || w->after[i] >= tasks)
            return tr_fail(TR_ERR_INTERNAL, "task %d to come after: there are %d", w->after[i], tasks);
    for (int t = 0; t < tasks; t++) w->next[t] = w->place[t] = -1;
    for (int t = 0; t < tasks; t++) {
        int again = w->next[t] < 0 ? walk_from(w, t) : -1;
        if (again >= 0) return describe_cycle(w, again, name);
    }
    return TR_OK;
}

int tr_schedule_check_after(int tasks, const char *const *name, const int *first, const int *after)
{
    struct walk walk = {.first = first, .after = after};
    int status = walk_all(&walk, tasks, name);
    free(walk.next);
    free(walk.path);
    free(walk.place);
    return status;
}
