/* 3. Views and clocks.
 *
 *   mpirun -n 4 ./3-clocks course.yaml
 *   mpirun -n 4 ./3-clocks course.yaml sync.mode=ssp sync.staleness=2
 *   mpirun -n 4 ./3-clocks course.yaml sync.mode=asp
 *
 * PageRank of a small web. A page hands 85 % of its rank on to the pages that it links to. Each worker has some of the pages
 * and opens a view of just those keys that it reads or changes: its pages, and those that they link to. In each clock it
 * hands on what its pages have gained since it handed on last; the table adds it all up.
 *
 * What a pull shows is up to the job: under BSP exactly what all had pushed before this clock, under SSP perhaps more, but
 * at most `staleness` clocks less, under ASP whatever is there. The program is the same, and under BSP and
 * SSP so is where it ends; under ASP a worker that is done early does not hand on what its pages gain later.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <trireme/trireme.h>

enum { PAGES = 1000, LINKS = 8, CLOCKS = 400 };
static const double handed_on = 0.85;

struct web {
    tr_table *table;
    tr_view *ranks;       /* of the pages that this worker has to do with */
    size_t at[PAGES];     /* where a page is in the view */
    double passed[PAGES]; /* by page: what it has handed on so far */
    double unpassed;      /* what this worker's pages have gained and not handed on */
    double first;         /* on rank 0: the rank of page 0 when all were last asked */
};

/* The pages that a page links to: made up, the same for everybody. */
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
    TR_TRY(tr_view_pull(web->ranks)); /* waits as the job's consistency demands */
    const double *rank = web->ranks->value;
    double *delta = web->ranks->delta;
    web->unpassed = 0;
    for (int page = me->worker; page < PAGES; page += me->workers) {
        double gained = rank[web->at[page]] - web->passed[page];
        web->passed[page] += gained;
        web->unpassed += fabs(gained);
        links_of(page, to);
        for (int i = 0; i < LINKS; i++) delta[web->at[to[i]]] += handed_on * gained / LINKS;
    }
    return tr_view_push(web->ranks); /* travels while the worker goes on */
}

static int evaluate(tr_worker *me, void *state, tr_report *report)
{
    struct web *web = state;
    report->sum[0] = web->unpassed;
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
    /* every page begins with what nobody hands on to it */
    tr_table_options options = {.initial = TR_INITIAL_CONSTANT, .scale = 1 - handed_on};
    int status = tr_table_create_with(tr, "ranks", TR_F64, 1, PAGES, &options, &web.table);
    if (status == TR_OK) status = tr_run(tr, &stage);
    if (status == TR_OK && web.first > 0) printf("page 0 has rank %.6f\n", web.first);
    tr_view_close(&web.ranks);
    return tr_close(tr);
}
