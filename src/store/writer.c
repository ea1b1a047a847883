#define _GNU_SOURCE
#include "store/writer.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/fault.h"

static int write_shard(struct tr_writer *w)
{
    char *path;
    TR_TRY(tr_shard_path(w->folder, w->head.number, w->head.shard, &path));
    int status = tr_shard_write(path, &w->head, w->snapshot->part, w->snapshot->parts, w->durable, &w->seal);
    free(path);
    (void)TR_FAULT("checkpoint.shard");
    return status;
}

/* Old checkpoints go only once the new one is whole. */
static int write_manifest(struct tr_writer *w)
{
    char *path;
    TR_TRY(tr_checkpoint_path(w->folder, w->manifest.number, &path));
    int status = tr_manifest_write(path, &w->manifest, w->durable);
    free(path);
    return status == TR_OK && w->remain > 0 ? tr_checkpoints_prune(w->folder, w->remain) : status;
}

static void *run(void *what)
{
    struct tr_writer *w = what;
    double begin = tr_now();
    if (w->before) w->before(w->who);
    w->status = w->snapshot ? write_shard(w) : write_manifest(w);
    if (w->status != TR_OK) snprintf(w->error, sizeof w->error, "%s", tr_error_text());
    w->seconds = tr_now() - begin;
    atomic_store(&w->done, true);
    return NULL;
}

static void clean(struct tr_writer *w)
{
    tr_snapshot_close(&w->snapshot);
    tr_manifest_free(&w->manifest);
    free(w->folder);
    w->folder = NULL;
}

/* Signals are for the thread that knows what to do with them. */
static int start(struct tr_writer *w, const char *folder)
{
    w->status = TR_OK;
    atomic_store(&w->done, false);
    int status = tr_copy_string(folder, &w->folder);
    if (status == TR_OK) {
        tr_lifeline_work(w->lifeline, true);
        sigset_t all, before;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        int error = pthread_create(&w->thread, NULL, run, w);
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        if (error) {
            tr_lifeline_work(w->lifeline, false);
            status = tr_fail(TR_ERR_SYSTEM, "no thread for a checkpoint: %s", strerror(error));
        }
    }
    if (status == TR_OK) w->busy = true;
    else clean(w);
    return status;
}

int tr_writer_shard(struct tr_writer *w, const char *folder, const struct tr_shard_head *head,
                    tr_snapshot *snapshot)
{
    w->snapshot = snapshot;
    w->head = *head;
    return start(w, folder);
}

int tr_writer_manifest(struct tr_writer *w, const char *folder, const struct tr_manifest *manifest,
                       size_t remain)
{
    w->snapshot = NULL;
    w->manifest = *manifest;
    w->remain = remain;
    return start(w, folder);
}

void tr_writer_wait(struct tr_writer *w)
{
    if (!w->busy) return;
    pthread_join(w->thread, NULL);
    tr_lifeline_work(w->lifeline, false);
    w->busy = false;
    clean(w);
}

bool tr_writer_ended(struct tr_writer *w)
{
    if (!w->busy || !atomic_load(&w->done)) return false;
    tr_writer_wait(w);
    return true;
}
