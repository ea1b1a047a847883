#include "stage/timeline.h"
#include "stage/turns.h"

#include <stdlib.h>
#include <string.h>

#include "trireme/collective.h"

/* What rank 0 tells the others of the job's text: all of it at once, unless it is long. */
struct told {
    uint64_t bytes;
    char text[4096 - sizeof(uint64_t)];
};

/* All have the text that rank 0 has. */
static int tell_text(tr_context *tr, char **text, size_t *length)
{
    struct told told = {.bytes = *length};
    size_t at_once = tr_min_size(*length, sizeof told.text);
    if (tr->rank == 0 && at_once > 0) memcpy(told.text, *text, at_once);
    TR_TRY(tr_broadcast(tr, TR_SET_ALL, 0, &told, sizeof told));
    *length = (size_t)told.bytes;
    int status = tr->rank == 0 ? TR_OK : TR_NEW(text, *length + 1);
    if (*length > sizeof told.text) {
        TR_TRY(tr_agree(tr, status));
        return tr_broadcast(tr, TR_SET_ALL, 0, *text, *length);
    }
    if (status == TR_OK && tr->rank != 0) memcpy(*text, told.text, *length);
    return status;
}

/* Rank 0 reads the file, all others get its text: a thousand ranks need not open it. status: whether all is well so far. */
static int read_job(tr_context *tr, int status, const struct tr_model_class *own, const char *path, int n,
                    char *const overrides[], tr_job **job)
{
    char *text = NULL;
    size_t length = 0;
    if (status == TR_OK && tr->rank == 0) status = tr_job_read_text(path, &text, &length);
    if (status == TR_OK && tr->rank == 0)
        status = tr_job_parse_as(TR_JOB_STRICT, own, text, length, path, n, overrides, job);
    status = tr_agree(tr, status);
    if (status == TR_OK) {
        status = tell_text(tr, &text, &length);
        if (status == TR_OK && tr->rank != 0)
            status = tr_job_parse_as(TR_JOB_STRICT, own, text, length, path, n, overrides, job);
        status = tr_agree(tr, status);
    }
    free(text);
    return status;
}

int tr_context_assign(tr_context *tr, tr_job *job)
{
    tr->job = job;
    tr->staleness = job->sync.mode == TR_SYNC_SSP   ? (int64_t)job->sync.staleness
                    : job->sync.mode == TR_SYNC_ASP ? INT64_MAX
                                                    : 0;
    int status = tr_ranks_assign(tr);
    if (status == TR_OK) status = tr_tables_open(tr);
    TR_TRY(tr_agree(tr, status));
    status = tr_sync_open(tr);
    if (status == TR_OK) status = tr_timeline_open(tr);
    if (status == TR_OK) status = tr_turns_open(tr);
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
        status = tr_fail(TR_ERR_USAGE, "usage: %s [JOB.yaml] [section.key=value …]", (*argv)[0]);
    const char *word = status == TR_OK ? (*argv)[1] : "";
    int file = !tr_job_is_setting(word) &&
               (word[0] != '-' || !word[1]); /* an option that is not known is said to be one */
    const char *path = !file ? TR_NO_JOB_FILE : strcmp(word, "-") == 0 ? TR_STANDARD_INPUT : word;
    status = read_job(tr, status, own, path, *argc - 1 - file, *argv + 1 + file, &tr->job);
    if (status != TR_OK) {
        tr_context_close(tr);
        return status;
    }
    *out = tr;
    return TR_OK;
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

void tr_team_rest(tr_context *team)
{
    tr_turns_close(team);
    tr_timeline_close(team);
    tr_sync_close(team);
    tr_tables_close(team);
    tr_ranks_rest(team);
}

int tr_context_close(tr_context *tr)
{
    tr_turns_close(tr);
    tr_timeline_close(tr);
    tr_sync_close(tr);
    tr_tables_close(tr);
    return tr_ranks_stop(tr);
}
