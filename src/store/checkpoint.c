#define _GNU_SOURCE
#include "store/checkpoint.h"

#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/file.h"
#include "store/folder.h"
#include "store/state.h"

/* ---- the thread that writes ---- */

static void *write_in_thread(void *what)
{
    struct tr_checkpoints *c = what;
    struct tr_writer *w = &c->writer;
    double begin = tr_now();
    w->status = w->write(c);
    snprintf(w->error, sizeof w->error, "%s", w->status == TR_OK ? "" : tr_error_text());
    w->seconds = tr_now() - begin;
    atomic_store(&w->done, true);
    return NULL;
}

/* Signals are for the thread that knows what to do with them. The supervisor is to know that there is work. */
static int start_writing(struct tr_checkpoints *c, int (*write)(struct tr_checkpoints *c))
{
    struct tr_writer *w = &c->writer;
    sigset_t all, before;
    w->write = write;
    atomic_store(&w->done, false);
    tr_lifeline_work(c->tr->lifeline, true);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&w->thread, NULL, write_in_thread, c);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    w->busy = error == 0;
    if (w->busy) return TR_OK;
    tr_lifeline_work(c->tr->lifeline, false);
    return tr_fail(TR_ERR_SYSTEM, "no thread for a checkpoint: %s", strerror(error));
}

static void join_writer(struct tr_checkpoints *c)
{
    if (!c->writer.busy) return;
    pthread_join(c->writer.thread, NULL);
    tr_lifeline_work(c->tr->lifeline, false);
    c->writer.busy = false;
    tr_snapshot_close(&c->now.snapshot);
}

/* What is older in memory goes before the new one comes. */
static int write_shard(struct tr_checkpoints *c)
{
    struct tr_being_written *now = &c->now;
    uint32_t shard = (uint32_t)c->tr->rank;
    struct tr_shard_head head = tr_manifest_head(&now->manifest, shard);
    char *path;
    if (now->in_memory) tr_memory_tidy(c->memory);
    TR_TRY(tr_shard_path(now->in_memory ? c->memory->folder : c->to, now->number, shard, &path));
    (void)TR_FAULT("checkpoint.shard");
    int status =
        tr_shard_write(path, &head, now->snapshot->part, now->snapshot->parts, !now->in_memory, &now->seal);
    free(path);
    return status;
}

/* Old checkpoints go only once the new one is whole; that they cannot be removed is no loss, but is said. */
static int write_manifest(struct tr_checkpoints *c)
{
    size_t keep = c->tr->job->checkpoint.keep;
    char *path;
    TR_TRY(tr_checkpoint_path(c->to, c->now.number, &path));
    int status = tr_manifest_write(path, &c->now.manifest, true);
    free(path);
    if (status == TR_OK && keep > 0 && tr_checkpoints_prune(c->to, keep) != TR_OK)
        snprintf(c->now.error, sizeof c->now.error, "%s", tr_error_text());
    return status;
}

/* ---- rank 0: how it went ---- */

/* In memory they are taken so often that it is said once. */
static void warn(struct tr_checkpoints *c, const char *why)
{
    if (c->now.in_memory) {
        c->counts.not_in_memory++;
        if (!c->memory->warned)
            tr_warn(c->tr, "warning:       checkpoint %" PRIu64 " is not in memory: %s", c->now.number, why);
        c->memory->warned = true;
        return;
    }
    c->counts.failed++;
    c->failure = TR_ERR_IO;
    snprintf(c->why, sizeof c->why, "%s", why);
    tr_warn(c->tr, "warning:       checkpoint %" PRIu64 " is not written: %s", c->now.number, why);
}

/* It is whole, or not, and over; what there is in memory goes with the next one. */
static void end_checkpoint(struct tr_checkpoints *c, int status, const char *why)
{
    struct tr_being_written *now = &c->now;
    bool in_memory = now->in_memory;
    struct tr_pace *pace = in_memory ? &c->policy.memory : &c->policy.disk;
    now->any = false;
    tr_manifest_free(&now->manifest);
    if (status != TR_OK) {
        warn(c, why);
        if (!in_memory) (void)tr_checkpoint_remove(c->to, now->number);
        return;
    }
    if (*now->error) tr_warn(c->tr, "warning:       %s", now->error);
    pace->cost = tr_now() - now->begin;
    tr_lifeline_kept(c->tr->lifeline, pace->last_clock);
    if (in_memory) {
        c->counts.in_memory++;
        c->counts.last_in_memory = c->memory->committed = now->number;
        return;
    }
    c->failure = TR_OK;
    c->counts.written++;
    c->counts.last = now->number;
    c->counts.clock = pace->last_clock;
}

/* Rank 0 learns of a shard, its own or another's. Those who copy it to slower memory than was meant say why. */
static void take_report(struct tr_checkpoints *c, int from, const struct tr_shard_report *r)
{
    struct tr_being_written *now = &c->now;
    if (!now->any || (uint64_t)r->number != now->number) return;
    now->manifest.seal[from] = r->seal;
    c->counts.writing += r->seconds;
    if (r->status == TR_OK && *r->error && !c->memory->strange) {
        tr_warn(c->tr, "warning:       checkpoints in memory: %s", r->error);
        c->memory->strange = true;
    }
    if (r->status != TR_OK && now->status == TR_OK) {
        now->status = (int)r->status;
        snprintf(now->error, sizeof now->error, "%s", r->error);
    }
    if (++now->arrived < now->manifest.shards) return;
    if (now->status == TR_OK && !now->in_memory) {
        now->status = start_writing(c, write_manifest);
        if (now->status == TR_OK) return;
        snprintf(now->error, sizeof now->error, "%s", tr_error_text());
    }
    end_checkpoint(c, now->status, now->error);
}

/* Tells rank 0 how it went. */
static void report(struct tr_checkpoints *c, int status, const char *text)
{
    c->report = (struct tr_shard_report){.number = (int64_t)c->now.number,
                                         .status = status,
                                         .seal = c->now.seal,
                                         .seconds = c->writer.seconds};
    snprintf(c->report.error, sizeof c->report.error, "%s", text);
    if (c->tr->rank == 0) {
        take_report(c, 0, &c->report);
        return;
    }
    MPI_Isend(&c->report, sizeof c->report, MPI_BYTE, 0, TR_TAG_SHARD, c->tr->wire, &c->sending);
    c->now.any = false;
}

static void end_shard(struct tr_checkpoints *c)
{
    if (c->now.in_memory) tr_memory_send(c->memory, c->writer.status, c->writer.error);
    else report(c, c->writer.status, c->writer.error);
}

/* Copies on their way. */
static void move_memory(struct tr_checkpoints *c, int *did)
{
    struct tr_memory *m = c->memory;
    int status;
    bool over;
    const char *error = m->note;
    if (c->now.told) return;
    if (tr_memory_turn(m, &over, &status, &error)) ++*did;
    if (!over || c->writer.busy) return;
    ++*did;
    c->now.told = true;
    if (c->writer.status != TR_OK) report(c, c->writer.status, c->writer.error);
    else report(c, status, error);
    tr_memory_end(m);
}

/* ---- signals that other ranks get ---- */

static void pass_signals(struct tr_checkpoints *c)
{
    int64_t now[2] = {tr_signals_stop(), tr_policy_asked(&c->policy)};
    if (!memcmp(now, c->passed, sizeof now) || !tr_request_done(&c->passing)) return;
    memcpy(c->passed, now, sizeof now);
    MPI_Isend(c->passed, 2, MPI_INT64_T, 0, TR_TAG_SIGNAL, c->tr->wire, &c->passing);
}

/* Usually mpirun tells all ranks; so what each has got is taken for the same signal. */
static void take_signals(struct tr_checkpoints *c)
{
    int64_t got[2];
    int from;
    if (!tr_receive_here(c->tr, TR_TAG_SIGNAL, got, sizeof got, &from)) return;
    if (got[0] && !tr_signals_stop()) tr_signals_pass(true);
    while (got[1] > tr_policy_asked(&c->policy)) tr_signals_pass(false);
}

/* ---- looking after all that ---- */

static int poll(void *what, int *did)
{
    struct tr_checkpoints *c = what;
    struct tr_shard_report r;
    double now = tr_now();
    int from;
    if (now > c->probed + 0.005) { /* a probe costs more than the rest, and no signal is that urgent */
        c->probed = now;
        c->tr->rank == 0 ? take_signals(c) : pass_signals(c);
    }
    if (c->writer.busy && atomic_load(&c->writer.done)) {
        join_writer(c);
        ++*did;
        if (c->writer.write == write_shard) end_shard(c);
        else end_checkpoint(c, c->writer.status, c->writer.error);
    }
    if (c->now.any && c->now.in_memory) move_memory(c, did);
    tr_memory_serve(c->memory, did);
    if (c->sending != MPI_REQUEST_NULL) (void)tr_request_done(&c->sending);
    if (c->tr->rank != 0 || !c->now.any || !tr_receive_here(c->tr, TR_TAG_SHARD, &r, sizeof r, &from))
        return TR_OK;
    ++*did;
    take_report(c, from, &r);
    return TR_OK;
}

int tr_checkpoint_settle(tr_context *tr)
{
    struct tr_checkpoints *c = tr->checkpoints;
    if (!c) return TR_OK;
    TR_WAIT_UNTIL(tr, !c->now.any && !c->writer.busy && c->sending == MPI_REQUEST_NULL,
                  "a checkpoint to be written");
    return TR_OK;
}

/* ---- opening and closing ---- */

/* A folder that checkpoint.to names is one run's alone, as long as that lasts. One that is not there yet is nobody's. */
static int lock_folder(struct tr_checkpoints *c)
{
    char who[400];
    if (!c->locked || c->lock >= 0) return TR_OK;
    while (c->lock < 0) {
        if (!tr_lock_file(c->locked, &c->lock, who, sizeof who))
            return tr_fail(TR_ERR_NO_OUTPUT,
                           "checkpoint.to %s: another run is writing there now (%s): choose another folder",
                           c->to, who);
        if (c->lock < 0) return TR_OK;
        if (tr_is_still_at(c->lock, c->locked)) break;
        close(c->lock); /* that of a run that has just ended, and taken its file away */
        c->lock = -1;
    }
    tr_sign_lock(c->lock);
    return TR_OK;
}

static int make(tr_context *tr, struct tr_checkpoints **out)
{
    struct tr_checkpoints *c;
    TR_TRY(TR_NEW(&c, 1));
    *out = c;
    tr_signals_open();
    c->tr = tr;
    c->sending = c->passing = MPI_REQUEST_NULL;
    c->lock = -1;
    c->began = c->taken = tr_now();
    tr_policy_open(&c->policy, tr->job, tr->began);
    TR_TRY(tr_checkpoints_place(tr->job->checkpoint.to, tr->job->output, &c->to));
    if (tr->rank == 0 && *tr->job->checkpoint.to) TR_TRY(tr_format(&c->locked, "%s/.lock", c->to));
    TR_TRY(lock_folder(c));
    TR_TRY(tr_memory_open(tr, c->to, &c->memory));
    return tr_poll_add(tr, poll, c);
}

static void destroy(struct tr_checkpoints *c, bool forgets)
{
    if (!c) return;
    tr_poll_remove(c->tr, poll, c);
    join_writer(c);
    tr_memory_close(&c->memory, c->run, forgets);
    if (c->passing != MPI_REQUEST_NULL) MPI_Cancel(&c->passing), MPI_Request_free(&c->passing);
    tr_manifest_free(&c->found);
    tr_manifest_free(&c->now.manifest);
    tr_snapshot_close(&c->best);
    if (c->locked) tr_unlock_file(c->locked, c->lock);
    free(c->locked);
    free(c->lister);
    free(c->to);
    free(c);
    tr_signals_close();
}

int tr_checkpoints_open(tr_context *tr, enum tr_beginning beginning)
{
    struct tr_checkpoints *c = NULL;
    int status = tr_agree(tr, make(tr, &c));
    if (status == TR_OK) status = tr_checkpoints_find(c, beginning);
    if (status != TR_OK) {
        destroy(c, false);
        return status;
    }
    if (c->continues) c->before = c->found.facts.seconds;
    tr->checkpoints = c;
    return TR_OK;
}

/* Whether what is in memory is of no use any more: the run is complete, or all of it is on the disk, or it failed, and
 * nobody is there who starts it again at once. */
static bool is_forgotten(const struct tr_checkpoints *c, bool ended, int status)
{
    if (ended) return true;
    if (status == TR_ERR_STOPPED) return c->failure == TR_OK;
    return status != TR_OK && !c->tr->lifeline;
}

int tr_checkpoints_close(tr_context *tr, bool ended, int status)
{
    struct tr_checkpoints *c = tr->checkpoints;
    if (!c) return status;
    int outcome = tr_checkpoint_settle(tr);
    if (tr->rank == 0 && outcome == TR_OK && ended) outcome = tr_checkpoints_end(c);
    if (tr->rank == 0 && outcome == TR_OK && status == TR_OK && c->failure != TR_OK)
        outcome = tr_fail(TR_ERR_IO, "the last checkpoint could not be written: %s", c->why);
    bool forgets = is_forgotten(c, ended, status);
    if (status == TR_OK) status = tr_agree(tr, outcome);
    destroy(c, forgets);
    tr->checkpoints = NULL;
    return status;
}

void tr_checkpoints_leave(tr_context *tr)
{
    destroy(tr->checkpoints, false);
    tr->checkpoints = NULL;
}

const struct tr_manifest *tr_checkpoint_found(const tr_context *tr)
{
    return tr->checkpoints && tr->checkpoints->continues ? &tr->checkpoints->found : NULL;
}

bool tr_checkpoint_found_in_memory(const tr_context *tr)
{
    return tr_checkpoint_found(tr) && tr->checkpoints->found_in_memory;
}

bool tr_context_continues(const tr_context *tr)
{
    return tr->checkpoints && tr->checkpoints->continues && !tr->checkpoints->restored;
}

void tr_on_snapshot(tr_context *tr, tr_lister_fn *list, void *who)
{
    struct tr_checkpoints *c = tr->checkpoints;
    if (!c || TR_GROW(&c->lister, &c->lister_capacity, c->listers + 1) != TR_OK) return;
    c->lister[c->listers++] = (struct tr_lister){list, who};
}

void tr_checkpoint_count(const tr_context *tr, struct tr_checkpoint_counts *counts)
{
    const struct tr_checkpoints *c = tr->checkpoints;
    *counts = c ? c->counts : (struct tr_checkpoint_counts){0};
    if (c) counts->age = tr_now() - c->taken;
}

bool tr_checkpoints_are_on(const tr_context *tr)
{
    return tr->checkpoints != NULL;
}

/* ---- taking ---- */

enum tr_due tr_checkpoint_due(tr_context *tr, int64_t clock)
{
    struct tr_checkpoints *c = tr->checkpoints;
    enum tr_due due = tr_policy_due(&c->policy, clock);
    if (c->now.any) return due == TR_DUE_AND_STOP ? due : TR_NOT_DUE;
    c->wants_memory = due == TR_NOT_DUE && tr_policy_memory_due(&c->policy, clock);
    return c->wants_memory ? TR_DUE : due;
}

bool tr_checkpoint_due_at_end(const tr_context *tr)
{
    const struct tr_checkpoints *c = tr->checkpoints;
    return c->counts.written > 0 || c->continues;
}

/* All that a checkpoint has, in the same order in both directions. */
static int list_all(struct tr_checkpoints *c, tr_snapshot *snapshot, tr_lister_fn *list, void *who)
{
    TR_TRY(tr_snapshot_model(c->tr, snapshot, list, who));
    snapshot->prefix = "run/";
    for (size_t i = 0; i < c->listers; i++) TR_TRY(c->lister[i].list(c->lister[i].who, snapshot));
    return TR_OK;
}

static int make_manifest(struct tr_checkpoints *c, const struct tr_facts *facts)
{
    const struct tr_context *tr = c->tr;
    const struct tr_layout *l = &tr->layout;
    struct tr_manifest *m = &c->now.manifest;
    m->facts = *facts;
    m->facts.stage_number = c->entered - 1;
    m->facts.ranks = tr->size;
    m->facts.servers = l->servers;
    m->facts.groups = l->groups;
    m->facts.group_size = l->group_size;
    m->facts.data = tr->data_digest;
    m->facts.seconds = c->before + tr_now() - c->began;
    TR_TRY(TR_NEW(&m->seal, m->shards));
    return tr_job_as_text(tr->job, &m->job);
}

/* Rank 0 makes the folder and what it writes last, before anybody copies for it. All learn which is the last one in memory
 * that is whole: it stays there. */
static int begin(struct tr_checkpoints *c, const struct tr_facts *facts, bool in_memory)
{
    struct tr_being_written *now = &c->now;
    c->number++;
    *now = (struct tr_being_written){
        .any = true,
        .in_memory = in_memory,
        .number = c->number,
        .begin = tr_now(),
        .manifest = {
            .run = c->run, .number = c->number, .attempt = c->attempt, .shards = (uint32_t)c->tr->size}};
    int64_t well = 1;
    if (c->tr->rank == 0) {
        int status = make_manifest(c, facts);
        if (status == TR_OK)
            status = in_memory ? tr_memory_name(c->to, c->run) : tr_checkpoint_make(c->to, now->number);
        if (status == TR_OK && !in_memory) status = lock_folder(c);
        well = status == TR_OK;
        if (!well) {
            warn(c, tr_error_text());
            tr_manifest_free(&now->manifest);
        }
    }
    MPI_Request request;
    int64_t word[3] = {well, in_memory, (int64_t)c->memory->committed};
    MPI_Ibcast(word, 3, MPI_INT64_T, 0, c->tr->world, &request);
    TR_TRY(tr_wait_request(c->tr, &request, "rank 0 to begin a checkpoint"));
    now->any = word[0];
    now->in_memory = word[1];
    c->memory->committed = (uint64_t)word[2];
    return TR_OK;
}

/* In memory, shard 0 says what the manifest says on the disk. */
static int list_manifest(struct tr_checkpoints *c, tr_snapshot *snapshot)
{
    struct tr_part part = {.name = TR_MANIFEST_PART, .kind = TR_PART_OWN, .type = TR_PART_U8};
    size_t bytes;
    TR_TRY(tr_manifest_pack(&c->now.manifest, &part.data, &bytes));
    part.total_rows = part.rows = bytes;
    part.total_columns = part.columns = part.runs = 1;
    int status = TR_NEW(&part.run, 1);
    if (status != TR_OK) {
        tr_part_free(&part);
        return status;
    }
    part.run->n = bytes;
    return tr_snapshot_give(snapshot, &part);
}

/* Readies the node's folder for about as much as the parts of all ranks take: also those that could not copy. */
static int begin_memory(struct tr_checkpoints *c, const tr_snapshot *snapshot, int status)
{
    char error[512];
    uint64_t bytes = 1 << 16;
    for (size_t i = 0; snapshot && i < snapshot->parts; i++)
        bytes += tr_part_elements(&snapshot->part[i]) * tr_part_type_size(snapshot->part[i].type) +
                 snapshot->part[i].runs * sizeof *snapshot->part[i].run;
    snprintf(error, sizeof error, "%s", status == TR_OK ? "" : tr_error_text());
    int outcome = tr_memory_begin(c->memory, c->run, c->now.number, bytes);
    return status == TR_OK ? outcome : tr_fail(status, "%s", error);
}

/* What cannot be copied, the others learn as what cannot be written. */
static int copy_and_write(struct tr_checkpoints *c, tr_lister_fn *list, void *who)
{
    bool in_memory = c->now.in_memory;
    tr_snapshot **snapshot = &c->now.snapshot;
    int status = tr_snapshot_open(c->tr, NULL, NULL, snapshot);
    if (status == TR_OK) status = list_all(c, *snapshot, list, who);
    if (status == TR_OK && in_memory && c->tr->rank == 0) status = list_manifest(c, *snapshot);
    if (in_memory) status = begin_memory(c, *snapshot, status);
    if (status == TR_OK) status = start_writing(c, write_shard);
    if (status == TR_OK) return TR_OK;
    tr_snapshot_close(snapshot);
    c->writer.status = status;
    c->writer.seconds = 0;
    snprintf(c->writer.error, sizeof c->writer.error, "%s", tr_error_text());
    end_shard(c);
    return TR_OK;
}

int tr_checkpoint_take(tr_context *tr, const struct tr_facts *facts, bool stops, tr_lister_fn *list,
                       void *who)
{
    struct tr_checkpoints *c = tr->checkpoints;
    double start = tr_now();
    TR_TRY(tr_checkpoint_settle(tr)); /* the one before */
    TR_TRY(begin(c, facts, c->wants_memory && !stops));
    if (c->now.any) TR_TRY(copy_and_write(c, list, who));
    c->taken = tr_now();
    c->counts.epoch = facts->epoch;
    tr_policy_taken(&c->policy, facts->clock, c->now.in_memory);
    c->wants_memory = false;
    TR_TRY(tr_barrier(tr, tr->world, "all ranks to copy what they keep"));
    if (stops) TR_TRY(tr_checkpoint_settle(tr));
    c->counts.copying += tr_now() - start;
    return stops ? tr_barrier(tr, tr->world, "the checkpoint to be whole") : TR_OK;
}

/* ---- going on ---- */

int tr_checkpoint_enter(tr_context *tr, const char *name, bool *restores)
{
    struct tr_checkpoints *c = tr->checkpoints;
    *restores = false;
    if (!c) return TR_OK;
    int64_t number = c->entered++;
    tr_policy_enter(&c->policy);
    if (!c->continues || c->restored || number != c->found.facts.stage_number) return TR_OK;
    *restores = true;
    if (!strcmp(name, c->found.facts.stage)) return TR_OK;
    return tr_fail(TR_ERR_DATA,
                   "checkpoint %" PRIu64 " was taken in stage %s, number %" PRId64 ", which is %s now",
                   c->found.number, c->found.facts.stage, number, name);
}

int tr_checkpoint_restore(tr_context *tr, tr_lister_fn *list, void *who, struct tr_facts *facts)
{
    struct tr_checkpoints *c = tr->checkpoints;
    tr_snapshot *snapshot = NULL;
    int status = tr_snapshot_open(tr, c->to, &c->found, &snapshot);
    if (status == TR_OK && c->found_in_memory) tr_snapshot_from_memory(snapshot, c->memory);
    if (status == TR_OK) status = list_all(c, snapshot, list, who);
    tr_snapshot_close(&snapshot);
    *facts = c->found.facts;
    c->restored = true;
    tr_policy_taken(&c->policy, facts->clock, false);
    tr_lifeline_kept(tr->lifeline, facts->clock);
    c->taken = tr_now();
    status = tr_agree(tr, status);
    tr_memory_found_end(c->memory);
    return status;
}
