#define _GNU_SOURCE
#include "stage/timeline.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "trireme/collective.h"

enum { MOST = 256, MOST_OF_ALL = 1 << 16 };

struct tr_timeline {
    size_t most, n; /* kept at most, and how many there were: the i-th is in span[i % most] */
    double before;  /* what tr_now() lacks to the time since 1970 */
    struct tr_span span[];
};

static double since_1970(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

int tr_timeline_open(tr_context *tr)
{
    size_t most = tr_max_size(16, tr_min_size(MOST, MOST_OF_ALL / (size_t)tr->size));
    tr_timeline_close(tr);
    TR_TRY(tr_new((void **)&tr->timeline, 1, sizeof(struct tr_timeline) + most * sizeof(struct tr_span),
                  "the timeline"));
    tr->timeline->most = most;
    tr->timeline->before = since_1970() - tr_now();
    return TR_OK;
}

void tr_timeline_close(tr_context *tr)
{
    free(tr->timeline);
    tr->timeline = NULL;
}

void tr_timeline_add(tr_context *tr, const char *stage, double from, double until)
{
    struct tr_timeline *t = tr->timeline;
    if (!t) return;
    struct tr_span *span = &t->span[t->n++ % t->most];
    *span = (struct tr_span){.rank = tr->rank, .begin = from + t->before, .end = until + t->before};
    snprintf(span->stage, sizeof span->stage, "%s", stage);
}

/* The oldest first. */
static size_t put_in_order(const struct tr_timeline *t, struct tr_span *span)
{
    size_t kept = tr_min_size(t->n, t->most);
    for (size_t i = 0; i < kept; i++) span[i] = t->span[(t->n - kept + i) % t->most];
    return kept;
}

int tr_timeline_gather(tr_context *tr, struct tr_span **all, size_t *n)
{
    struct tr_span *mine = NULL;
    size_t *bytes = NULL, sum = 0;
    *all = NULL;
    *n = 0;
    int status = TR_NEW(&mine, tr->timeline->most);
    if (status == TR_OK) status = TR_NEW(&bytes, (size_t)tr->size);
    status = tr_agree(tr, status);
    size_t own = status == TR_OK ? put_in_order(tr->timeline, mine) * sizeof *mine : 0;
    if (status == TR_OK) status = tr_all_gather(tr, TR_SET_ALL, &own, sizeof own, bytes);
    for (int r = 0; status == TR_OK && r < tr->size; r++) sum += bytes[r];
    if (status == TR_OK) status = tr_agree(tr, tr_new((void **)all, 1, sum, "the timeline"));
    if (status == TR_OK) status = tr_all_gather_lists(tr, TR_SET_ALL, mine, bytes, *all);
    *n = sum / sizeof *mine;
    free(mine);
    free(bytes);
    return status;
}
