#include "stage/turns.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/fault.h"
#include "job/schema.h"
#include "stage/degree.h"
#include "stage/timeline.h"
#include "trireme/collective.h"

/* Workers that one other tells that a turn is over: of few workers all hear it from worker 0. */
enum { FAN_OUT = 16 };

struct turns_stage {
    const char *name;
    uint64_t wished; /* workers at a time, TR_ALL or TR_AUTO_DEGREE */
    struct tr_degree degree;
    struct tr_stage_sum sum;
};

struct tr_turns {
    struct turns_stage *stage;
    size_t n;
    struct turns_stage *now; /* this worker is in a turn of it */
    int parallelism;         /* … of so many at a time; 0: all as they come */
    double called, began;    /* when it asked for its turn, and when it got it */
};

/* ---- opening ---- */

static int check_degree(const tr_context *tr, const struct tr_job_stage *stage)
{
    char key[96];
    int workers = tr_layout_workers(&tr->layout);
    uint64_t wished = stage->parallelism;
    if (wished == TR_ALL || wished == TR_AUTO_DEGREE || wished <= (uint64_t)workers) return TR_OK;
    snprintf(key, sizeof key, "stages.%s.parallelism", stage->name);
    return tr_fail(TR_ERR_CONFIG, "%s: %s is %llu, but there %s %d worker%s", tr_job_where(tr->job, key), key,
                   (unsigned long long)wished, workers == 1 ? "is" : "are", workers, workers == 1 ? "" : "s");
}

/* Of workers that do not wait for each other no turns can be taken. */
static int check_order(const tr_context *tr, const struct tr_job_stage *stage)
{
    if (stage->parallelism == TR_ALL || tr->staleness == 0) return TR_OK;
    return tr_fail(TR_ERR_CONFIG, "%s: workers take turns in stage %s: expected sync.mode bsp",
                   tr_job_where(tr->job, "sync.mode"), stage->name);
}

static void open_stage(const tr_context *tr, const char *name, struct turns_stage *s)
{
    const tr_job *job = tr->job;
    s->name = name;
    s->wished = TR_ALL;
    for (size_t i = 0; i < job->stages; i++)
        if (strcmp(job->stage[i].name, name) == 0) s->wished = job->stage[i].parallelism;
    snprintf(s->sum.name, sizeof s->sum.name, "%s", name);
    s->sum.transition = NAN;
    struct tr_degree_options options = {.most = tr_layout_workers(&tr->layout),
                                        .clocks = (int64_t)fmax(1, tr_job_number(job, "solve.epochs"))};
    tr_degree_begin(&s->degree, &options);
}

int tr_turns_open(tr_context *tr)
{
    const tr_job *job = tr->job;
    const char *const *names = tr_job_chosen_method(job)->stages;
    struct tr_turns *t;
    if (!names || !names[0]) return TR_OK;
    for (size_t i = 0; i < job->stages; i++) {
        TR_TRY(check_degree(tr, &job->stage[i]));
        TR_TRY(check_order(tr, &job->stage[i]));
    }
    TR_TRY(TR_NEW(&t, 1));
    tr->turns = t;
    while (names[t->n]) t->n++;
    TR_TRY(TR_NEW(&t->stage, t->n));
    for (size_t i = 0; i < t->n; i++) open_stage(tr, names[i], &t->stage[i]);
    return TR_OK;
}

void tr_turns_close(tr_context *tr)
{
    if (tr->turns) free(tr->turns->stage);
    free(tr->turns);
    tr->turns = NULL;
}

/* ---- messages between workers ---- */

/* Until it is here, or a worker has failed who will not send what it should. */
static int receive(tr_context *tr, int worker, double *number)
{
    MPI_Request received, *request = &received;
    MPI_Irecv(number, 1, MPI_DOUBLE, tr_worker_rank(tr, tr->active, worker), TR_TAG_TURN, tr->wire, request);
    enum tr_rank_state before = tr_clock_say(tr->sync->clock, TR_RANK_WAITS);
    TR_WAIT_UNTIL(tr, tr_request_done(request) || tr_clock_get(tr->sync->clock, TR_CLOCK_FAILED),
                  "another worker to end its turn");
    tr_clock_say(tr->sync->clock, before);
    if (*request == MPI_REQUEST_NULL) return TR_OK;
    MPI_Cancel(request);
    tr_wait_alone(tr, request, "a message that is wanted no more");
    return TR_OK;
}

static int send(tr_context *tr, int worker, double number)
{
    MPI_Request request;
    MPI_Isend(&number, 1, MPI_DOUBLE, tr_worker_rank(tr, tr->active, worker), TR_TAG_TURN, tr->wire,
              &request);
    return tr_wait_request(tr, &request, "another worker to take its turn");
}

/* *seconds becomes the largest of all workers', who know then that all have ended. Up a tree and down again. */
static int end_together(tr_context *tr, double *seconds)
{
    int me = tr->active->worker, workers = tr_worker_set_size(tr->active);
    int first = me * FAN_OUT + 1, last = tr_min_int(first + FAN_OUT, workers);
    for (int worker = first; worker < last; worker++) {
        double other = 0;
        TR_TRY(receive(tr, worker, &other));
        *seconds = fmax(*seconds, other);
    }
    if (me > 0) TR_TRY(send(tr, (me - 1) / FAN_OUT, *seconds));
    if (me > 0) TR_TRY(receive(tr, (me - 1) / FAN_OUT, seconds));
    for (int worker = first; worker < last; worker++) TR_TRY(send(tr, worker, *seconds));
    return TR_OK;
}

/* ---- a turn ---- */

int tr_turns_wait(tr_context *tr, int parallelism)
{
    int before = parallelism > 0 ? tr->active->worker - parallelism : -1;
    double nothing, begin = tr_now();
    if (before < 0) return TR_OK;
    tr_wait_begin(tr->tables);
    int status = receive(tr, before, &nothing);
    tr_wait_end(tr->tables);
    tr->tables->traffic.wait_seconds += tr_now() - begin;
    return status;
}

int tr_turns_pass(tr_context *tr, int parallelism)
{
    int next = parallelism > 0 ? tr->active->worker + parallelism : INT_MAX;
    return next < tr_worker_set_size(tr->active) ? send(tr, next, 0) : TR_OK;
}

static int degree_of(const tr_context *tr, struct turns_stage *s)
{
    if (s->wished == TR_ALL || tr_clock_get(tr->sync->clock, TR_CLOCK_FAILED)) return 0;
    if (s->wished == TR_AUTO_DEGREE) return tr_degree_next(&s->degree, INT32_MAX).parallelism;
    return (int)s->wished;
}

int tr_turn_begin(tr_context *tr, const char *stage)
{
    struct tr_turns *t = tr ? tr->turns : NULL;
    if (!t || !tr_works(tr)) return TR_OK;
    for (size_t i = 0; i < t->n; i++)
        if (strcmp(t->stage[i].name, stage) == 0) t->now = &t->stage[i];
    if (!t->now) return TR_OK; /* a method that others use may name fewer stages */
    t->parallelism = degree_of(tr, t->now);
    t->called = t->began = tr_now();
    int status = tr_turns_wait(tr, t->parallelism);
    t->began = tr_now();
    (void)TR_FAULT("turn");
    return status;
}

static void count(const tr_context *tr, struct turns_stage *s, double seconds, double now)
{
    struct tr_stage_sum *sum = &s->sum;
    int workers = tr->turns->parallelism > 0 ? tr->turns->parallelism : tr_worker_set_size(tr->active);
    sum->fewest = sum->runs == 0 ? workers : tr_min_int(sum->fewest, workers);
    sum->most = tr_max_int(sum->most, workers);
    if (sum->runs == 0) sum->began = tr->turns->called;
    sum->ended = now;
    sum->runs++;
    sum->clocks++;
    sum->seconds += seconds;
    sum->worker_seconds += seconds * workers;
}

static int hand_on(tr_context *tr, struct turns_stage *s, double *seconds)
{
    TR_TRY(tr_turns_pass(tr, tr->turns->parallelism));
    double begin = tr_now();
    tr_wait_begin(tr->tables);
    TR_TRY(end_together(tr, seconds));
    tr_wait_end(tr->tables);
    tr->tables->traffic.wait_seconds += tr_now() - begin;
    if (s->wished == TR_AUTO_DEGREE) tr_degree_report(&s->degree, seconds, 1);
    return TR_OK;
}

int tr_turn_end(tr_context *tr, int status)
{
    struct tr_turns *t = tr ? tr->turns : NULL;
    struct turns_stage *s = t ? t->now : NULL;
    if (!s) return status;
    t->now = NULL;
    double now = tr_now(), seconds = now - t->called;
    tr_timeline_add(tr, s->name, t->began, now);
    int handed = t->parallelism > 0 ? hand_on(tr, s, &seconds) : TR_OK;
    count(tr, s, seconds, tr_now());
    return status != TR_OK ? status : handed;
}

void tr_turns_fail(tr_context *tr)
{
    tr_clock_raise(tr->sync->clock, TR_CLOCK_FAILED, 1);
}

/* ---- what they took ---- */

bool tr_turns_are_shown(const tr_context *tr)
{
    return !tr->turns || tr->job->stages > 0;
}

/* Rank 0, who need not work, gets worker 0's. */
int tr_turns_show(tr_context *tr)
{
    struct tr_turns *t = tr->turns;
    struct tr_stage_sum *sums;
    size_t n = 0;
    if (!t) return TR_OK;
    TR_TRY(tr_agree(tr, TR_NEW(&sums, t->n)));
    for (size_t i = 0; i < t->n; i++) {
        struct turns_stage *s = &t->stage[i];
        if (s->wished == TR_AUTO_DEGREE) tr_degree_describe(&s->degree, s->sum.degree, sizeof s->sum.degree);
        sums[i] = s->sum;
    }
    int status = tr_broadcast(tr, TR_SET_ALL, tr->layout.worker_rank[0], sums, t->n * sizeof *sums);
    for (size_t i = 0; i < t->n; i++)
        if (sums[i].runs > 0) sums[n++] = sums[i];
    if (status == TR_OK && tr->rank == 0 && tr->task_observer && n > 0)
        status = tr->task_observer(tr->task_observer_state, sums, n);
    free(sums);
    return status;
}
