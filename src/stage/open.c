#include "stage/timeline.h"
#include "stage/turns.h"

#include <stdlib.h>
#include <string.h>

#include "trireme/collective.h"

/* Rank 0 reads the file, all others get its text: a thousand ranks need not open it. */
static int read_job(tr_context *tr, const struct tr_model_class *own, const char *path, int n,
                    char *const overrides[], tr_job **job)
{
    char *text = NULL;
    size_t length = 0;
    int status = tr->rank == 0 ? tr_job_read_text(path, &text, &length) : TR_OK;
    if (status == TR_OK && tr->rank == 0)
        status = tr_job_parse_as(TR_JOB_STRICT, own, text, length, path, n, overrides, job);
    int outcome = tr_agree(tr, status);
    if (outcome != TR_OK) {
        free(text);
        return outcome;
    }
    uint64_t bytes = length;
    TR_TRY(tr_broadcast(tr, TR_SET_ALL, 0, &bytes, sizeof bytes));
    if (tr->rank != 0) status = TR_NEW(&text, (size_t)bytes + 1);
    TR_TRY(tr_agree(tr, status));
    TR_TRY(tr_broadcast(tr, TR_SET_ALL, 0, text, (size_t)bytes));
    if (tr->rank != 0)
        status = tr_job_parse_as(TR_JOB_STRICT, own, text, (size_t)bytes, path, n, overrides, job);
    free(text);
    return tr_agree(tr, status);
}

int tr_context_assign(tr_context *tr, tr_job *job)
{
    tr->job = job;
    tr->staleness = job->sync.mode == TR_SYNC_SSP   ? (int64_t)job->sync.staleness
                    : job->sync.mode == TR_SYNC_ASP ? INT64_MAX
                                                    : 0;
    TR_TRY(tr_agree(tr, tr_ranks_assign(tr)));
    TR_TRY(tr_agree(tr, tr_tables_open(tr)));
    TR_TRY(tr_agree(tr, tr_sync_open(tr)));
    TR_TRY(tr_agree(tr, tr_timeline_open(tr)));
    return tr_agree(tr, tr_turns_open(tr));
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
    status = tr_agree(tr, status);
    if (status == TR_OK) {
        const char *word = (*argv)[1]; /* an option that is not known is said to be one */
        int file = !tr_job_is_setting(word) && (word[0] != '-' || !word[1]);
        const char *path = !file ? TR_NO_JOB_FILE : strcmp(word, "-") == 0 ? TR_STANDARD_INPUT : word;
        status = read_job(tr, own, path, *argc - 1 - file, *argv + 1 + file, &tr->job);
    }
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
