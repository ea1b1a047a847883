/* 3. Views and clocks.
 *
 *   mpirun -n 4 ./3-clocks course.yaml
 *   mpirun -n 4 ./3-clocks course.yaml sync.mode=ssp sync.staleness=2
 *   mpirun -n 4 ./3-clocks course.yaml sync.mode=asp
 *
 * PageRank of a small web. A page distributes 85 % of its rank to the pages that it links to. Each worker has some of the pages
 * and opens a view of the keys that it reads or changes: its pages, and the pages that these link to. In each clock the worker
 * distributes the rank that its pages have gained since the previous clock; the table sums the contributions of all workers.
 *
 * The job determines which updates a pull returns. Under BSP these are all updates of the clocks before this one. Under SSP updates
 * of the last `staleness` clocks may be missing, and newer ones may be included. Under ASP a pull returns all updates that have
 * arrived. The same program runs in all modes. BSP and SSP give the same result. Under ASP the result may be smaller: a worker that
 * ends its last clock early does not distribute the rank that its pages gain later.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <trireme/trireme.h>

enum { PAGES = 1000, LINKS = 8, CLOCKS = 400 };
static const double damping = 0.85;

struct web {
    tr_table *table;
    tr_view *ranks;            /* the ranks of the pages that this worker reads or changes */
    size_t at[PAGES];          /* index of each page in the view */
    double distributed[PAGES]; /* rank of each page that this worker has distributed so far */
    double gained;             /* sum of the ranks that the pages of this worker gained in the last clock */
    double first;              /* on rank 0: rank of page 0 in the last evaluation */
};

/* Returns the pages that a page links to. They are random, but the same on all ranks. */
static void links_of(int page, int to[LINKS])
{
    for (int i = 0; i < LINKS; i++) {
        uint64_t random = tr_mix((uint64_t)(page * LINKS + i));
        to[i] = (int)(random % (uint64_t)(i % 2 ? PAGES : PAGES / 20)); /* some pages are popular */
    }
}

static int prepare(tr_worker *me, void *state)
{
    struct web *web = state;
    tr_key keys[PAGES];
    int to[LINKS];
    size_t n = 0;
    bool needed[PAGES] = {false};
    for (int page = me->worker; page < PAGES; page += me->workers) {
        needed[page] = true;
        links_of(page, to);
        for (int i = 0; i < LINKS; i++) needed[to[i]] = true;
    }
    for (int page = 0; page < PAGES; page++) {
        web->at[page] = n;
        if (needed[page]) keys[n++] = (tr_key)page; /* keys ascend */
    }
    return tr_view_open(web->table, keys, n, TR_VIEW_UPDATE, &web->ranks);
}

static int compute(tr_worker *me, void *state)
{
    struct web *web = state;
    int to[LINKS];
    TR_TRY(tr_view_pull(web->ranks)); /* waits for other workers if sync.mode requires it */
    const double *rank = web->ranks->value;
    double *delta = web->ranks->delta;
    web->gained = 0;
    for (int page = me->worker; page < PAGES; page += me->workers) {
        double gained = rank[web->at[page]] - web->distributed[page];
        web->distributed[page] += gained;
        web->gained += fabs(gained);
        links_of(page, to);
        for (int i = 0; i < LINKS; i++) delta[web->at[to[i]]] += damping * gained / LINKS;
    }
    return tr_view_push(web->ranks); /* the update is sent while the worker continues */
}

static int evaluate(tr_worker *me, void *state, tr_report *report)
{
    struct web *web = state;
    report->sum[0] = web->gained;
    if (me->worker == 0) {
        TR_TRY(tr_view_pull(web->ranks));
        report->sum[1] = ((const double *)web->ranks->value)[web->at[0]]; /* worker 0 has page 0 */
    }
    return TR_OK;
}

static int summarize(void *state, const tr_report *sums, tr_evaluation *evaluation)
{
    struct web *web = state;
    web->first = sums->sum[1];
    evaluation->objective = sums->sum[0];
    evaluation->stop = sums->sum[0] < 1e-9 * PAGES;
    return TR_OK;
}

int main(int argc, char **argv)
{
    static struct web web;
    tr_context *tr;
    TR_TRY(tr_open(&argc, &argv, &tr));
    tr_stage stage = {.name = "rank",
                      .state = &web,
                      .clocks = CLOCKS,
                      .evaluate_every = 10,
                      .prepare = prepare,
                      .compute = compute,
                      .evaluate = evaluate,
                      .summarize = summarize};
    /* the initial rank of each page is the part that does not come from other pages */
    tr_table_options options = {.initial = TR_INITIAL_CONSTANT, .scale = 1 - damping};
    int status = tr_table_create_with(tr, "ranks", TR_F64, 1, PAGES, &options, &web.table);
    if (status == TR_OK) status = tr_run(tr, &stage);
    if (status == TR_OK && web.first > 0) printf("page 0 has rank %.6f\n", web.first);
    tr_view_close(&web.ranks);
    return tr_close(tr);
}
