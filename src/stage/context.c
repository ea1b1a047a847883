/* Observers and the timeline of a context; opening contexts and teams. */
#define _GNU_SOURCE
#include "stage/run.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "trireme/collective.h"

/* ---- observers ---- */

struct tr_observers *tr_observers(tr_context *tr)
{
    return &tr->stages->observers;
}

/* ---- timeline ---- */

enum { MOST_SPANS = 256, MOST_SPANS_OF_ALL = 1 << 16 };

struct tr_timeline {
    size_t most, n; /* capacity, and number of spans so far; the i-th is span[i % most] */
    double before;  /* difference of the time since 1970 and tr_now() */
    struct tr_span span[];
};

/* Sets *before to the difference of the time since 1970 and tr_now(). One rank of each host measures it for all: the system may pause a
 * process between two readings of clocks, and the spans of a host have to show which of two turns was first. All ranks. */
static int timeline_find_before(tr_context *tr, double *before)
{
    struct timespec now;
    MPI_Request request;
    clock_gettime(CLOCK_REALTIME, &now);
    *before = (double)now.tv_sec - tr_now() + 1e-9 * (double)now.tv_nsec;
    MPI_Ibcast(before, 1, MPI_DOUBLE, 0, tr->host, &request);
    return tr_wait_request(tr, &request, "the time of this host");
}

void tr_timeline_add(tr_context *tr, const char *stage, double from, double until)
{
    struct tr_timeline *t = tr->stages->timeline;
    if (!t) return;
    struct tr_span *span = &t->span[t->n++ % t->most];
    *span = (struct tr_span){.rank = tr->rank, .begin = from + t->before, .end = until + t->before};
    snprintf(span->stage, sizeof span->stage, "%s", stage);
}

int tr_timeline_gather(tr_context *tr, struct tr_span **all, size_t *n)
{
    const struct tr_timeline *t = tr->stages->timeline;
    TR_FREED struct tr_span *mine = NULL;
    TR_FREED size_t *bytes = NULL;
    size_t sum = 0, kept = tr_min_size(t->n, t->most), own = kept * sizeof *mine;
    *all = NULL;
    *n = 0;
    int status = TR_NEW(&mine, t->most);
    if (status == TR_OK) status = TR_NEW(&bytes, (size_t)tr->size);
    TR_TRY(tr_agree(tr, status));
    for (size_t i = 0; i < kept; i++) mine[i] = t->span[(t->n - kept + i) % t->most];
    TR_TRY(tr_all_gather(tr, TR_SET_ALL, &own, sizeof own, bytes));
    for (int r = 0; r < tr->size; r++) sum += bytes[r];
    TR_TRY(tr_agree(tr, tr_new((void **)all, 1, sum, "the timeline")));
    *n = sum / sizeof *mine;
    return tr_all_gather_lists(tr, TR_SET_ALL, mine, bytes, *all);
}

/* ---- the job ---- */

/* The first message: size of the job's text, and as much of the text as fits. */
struct job_message {
    uint64_t bytes;
    char text[4096 - sizeof(uint64_t)];
};

/* Reads the job. Rank 0 reads the file and broadcasts its text, so that thousands of ranks need not open it. status: the caller's
 * status so far, which the ranks agree on first. */
static int context_read_job(tr_context *tr, int status, const struct tr_model_class *own, const char *path,
                            int n, char *const overrides[], tr_job **job)
{
    struct job_message message = {.bytes = 0};
    TR_FREED char *text = NULL;
    size_t length = 0, most = sizeof message.text;
    bool reads = tr->rank == 0;
    if (status == TR_OK && reads) status = tr_job_read_text(path, &text, &length);
    if (status == TR_OK && reads)
        status = tr_job_parse_as(TR_JOB_STRICT, own, text, length, path, n, overrides, job);
    TR_TRY(tr_agree(tr, status));
    message.bytes = length;
    if (reads && length > 0) memcpy(message.text, text, tr_min_size(length, most));
    TR_TRY(tr_broadcast(tr, TR_SET_ALL, 0, &message, sizeof message));
    length = (size_t)message.bytes;
    if (!reads) status = TR_NEW(&text, length + 1);
    if (length > most) {
        TR_TRY(tr_agree(tr, status));
        TR_TRY(tr_broadcast(tr, TR_SET_ALL, 0, text, length));
    } else if (status == TR_OK && !reads) {
        memcpy(text, message.text, length);
    }
    if (status == TR_OK && !reads)
        status = tr_job_parse_as(TR_JOB_STRICT, own, text, length, path, n, overrides, job);
    return tr_agree(tr, status);
}

/* ---- contexts and teams ---- */

int tr_context_assign(tr_context *tr, tr_job *job)
{
    double before;
    size_t most = tr_max_size(16, tr_min_size(MOST_SPANS, MOST_SPANS_OF_ALL / (size_t)tr->size));
    tr->job = job;
    tr->staleness = job->sync.mode == TR_SYNC_SSP   ? (int64_t)job->sync.staleness
                    : job->sync.mode == TR_SYNC_ASP ? INT64_MAX
                                                    : 0;
    int status = tr_ranks_assign(tr);
    if (status == TR_OK) status = tr_tables_open(tr);
    TR_TRY(tr_agree(tr, status));
    TR_TRY(timeline_find_before(tr, &before));
    status = tr_sync_open(tr);
    if (status == TR_OK) status = TR_NEW(&tr->stages, 1);
    if (status == TR_OK)
        status = tr_new((void **)&tr->stages->timeline, 1,
                        sizeof(struct tr_timeline) + most * sizeof(struct tr_span), "the timeline");
    if (status == TR_OK) {
        tr->stages->timeline->most = most;
        tr->stages->timeline->before = before;
        status = tr_turns_open(tr);
    }
    return tr_agree(tr, status);
}

void tr_context_describe(const tr_context *tr)
{
    char text[256];
    tr_layout_describe(&tr->layout, text, sizeof text);
    tr_say(tr, "layout:        %s", text);
}

int tr_context_read(int *argc, char ***argv, const struct tr_model_class *own, tr_context **out)
{
    tr_context *tr;
    TR_TRY(tr_ranks_start(argc, argv, &tr));
    int status = own ? tr_class_check((*argv)[0], "its class of models", own, true) : TR_OK;
    if (status == TR_OK && *argc < 2)
        status = tr_fail(TR_ERR_USAGE, "usage: %s [JOB.yaml] [section.key=value \u2026]", (*argv)[0]);
    const char *word = status == TR_OK ? (*argv)[1] : "";
    int file = !tr_job_is_setting(word) && (word[0] != '-' || !word[1]); /* 1: the word names a job file */
    const char *path = !file ? TR_NO_JOB_FILE : strcmp(word, "-") == 0 ? TR_STANDARD_INPUT : word;
    status = context_read_job(tr, status, own, path, *argc - 1 - file, *argv + 1 + file, &tr->job);
    if (status == TR_OK) *out = tr;
    else tr_context_close(tr);
    return status;
}

int tr_team_again(tr_context *team, const char *name, tr_job *job)
{
    team->team = name;
    team->lent = true;
    TR_TRY(tr_context_assign(team, job));
    tr_context_describe(team);
    return TR_OK;
}

int tr_team_open(tr_context *of, const int *rank, int n, int number, const char *name, tr_job *job,
                 tr_context **out)
{
    tr_context *tr;
    TR_TRY(tr_ranks_start_team(of, rank, n, number, &tr));
    int status = tr_team_again(tr, name, job);
    if (status == TR_OK) *out = tr;
    else tr_context_close(tr);
    return status;
}

/* Closes all that tr_context_assign() has opened, except roles. */
static void context_end_job(tr_context *tr)
{
    if (tr->stages) {
        tr_turns_close(tr);
        TR_FREE_ALL(tr->stages->timeline, tr->stages);
        tr->stages = NULL;
    }
    tr_sync_close(tr);
    tr_tables_close(tr);
}

void tr_team_rest(tr_context *team)
{
    context_end_job(team);
    tr_ranks_rest(team);
}

int tr_context_close(tr_context *tr)
{
    context_end_job(tr);
    return tr_ranks_stop(tr);
}
