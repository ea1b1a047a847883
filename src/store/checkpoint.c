#include "store/checkpoint.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "store/folder.h"
#include "store/state.h"
#include "store/taking.h"

/* ---- what is being written ---- */

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

static void drop(struct tr_checkpoints *c)
{
    tr_manifest_free(&c->now.manifest);
    c->now.any = c->now.commits = c->now.in_memory;
    /* those who wait for a manifest hear that there will be none; what there is in memory goes with the next one */
    if (c->now.in_memory) tr_memory_send_manifest(c->memory, TR_ERR_IO);
    else (void)tr_checkpoint_remove(c->to, c->now.number);
}

/* Those who copy it to slower memory than was meant say why; it is said once. */
static void say_note(struct tr_checkpoints *c, const char *note)
{
    if (!*note || c->memory->strange) return;
    tr_warn(c->tr, "warning:       checkpoints in memory: %s", note);
    c->memory->strange = true;
}

static int start_manifest(struct tr_checkpoints *c)
{
    struct tr_manifest manifest = c->now.manifest;
    bool in_memory = c->now.in_memory;
    c->now.manifest = (struct tr_manifest){.shards = 0};
    manifest.plain = in_memory;
    c->writer.durable = !in_memory;
    c->writer.before = NULL;
    return tr_writer_manifest(&c->writer, in_memory ? c->memory->folder : c->to, &manifest,
                              in_memory ? 0 : c->tr->job->checkpoint.keep);
}

/* Rank 0 hears of a shard, its own or another's. */
static int hear(struct tr_checkpoints *c, int from, const struct tr_shard_report *r)
{
    struct tr_being_written *now = &c->now;
    if (!now->any || (uint64_t)r->number != now->number) return TR_OK;
    now->manifest.seal[from] = r->seal;
    c->counts.writing += r->seconds;
    if (r->status == TR_OK) say_note(c, r->error);
    if (r->status != TR_OK && now->status == TR_OK) {
        now->status = (int)r->status;
        snprintf(now->error, sizeof now->error, "%s", r->error);
    }
    if (++now->arrived < now->manifest.shards) return TR_OK;
    int status = now->status;
    if (status == TR_OK) {
        status = start_manifest(c);
        if (status == TR_OK) return TR_OK;
        snprintf(now->error, sizeof now->error, "%s", tr_error_text());
    }
    warn(c, now->error);
    drop(c);
    return TR_OK;
}

/* The manifest has been written, or not; that old checkpoints could not be removed is no loss. */
static void end_manifest(struct tr_checkpoints *c)
{
    struct tr_writer *w = &c->writer;
    if (w->status == TR_OK && c->now.in_memory) {
        c->counts.in_memory++;
        c->counts.last_in_memory = c->memory->committed = c->now.number;
        tr_lifeline_kept(c->tr->lifeline, c->when.last_memory_clock);
        c->when.memory_cost = tr_now() - c->now.begin;
        tr_memory_send_manifest(c->memory, TR_OK);
        c->now.commits = true;
        return;
    }
    if (w->status == TR_OK) {
        c->failure = TR_OK;
        c->counts.written++;
        c->counts.last = c->now.number;
        c->counts.clock = c->when.last_clock;
        tr_lifeline_kept(c->tr->lifeline, c->counts.clock);
        c->when.cost = tr_now() - c->now.begin;
        c->now.any = false;
        return;
    }
    warn(c, w->error);
    drop(c);
}

/* Tells rank 0 how it went. */
static int report(struct tr_checkpoints *c, int status, const char *text)
{
    const struct tr_writer *w = &c->writer;
    c->report = (struct tr_shard_report){
        .number = (int64_t)c->now.number, .status = status, .seal = w->seal, .seconds = w->seconds};
    snprintf(c->report.error, sizeof c->report.error, "%s", text);
    if (c->tr->rank == 0) return hear(c, 0, &c->report);
    MPI_Isend(&c->report, sizeof c->report, MPI_BYTE, 0, TR_TAG_SHARD, c->tr->wire, &c->sending);
    if (!c->now.in_memory) c->now.any = false;
    return TR_OK;
}

static int end_shard(struct tr_checkpoints *c)
{
    const struct tr_writer *w = &c->writer;
    const char *error = w->status == TR_OK ? "" : w->error;
    if (!c->now.in_memory) return report(c, w->status, error);
    tr_memory_send(c->memory, w->status, error);
    return TR_OK;
}

/* Copies on their way, and then the manifest to those who keep it. */
static int move_memory(struct tr_checkpoints *c, int *did)
{
    struct tr_memory *m = c->memory;
    int status;
    bool over;
    const char *error = "";
    if (!c->now.told) {
        if (tr_memory_turn(m, &over, &status, &error)) ++*did;
        if (!over || (c->writer.busy && c->writer.snapshot)) return TR_OK;
        if (c->writer.status != TR_OK) {
            status = c->writer.status;
            error = c->writer.error;
        }
        c->now.told = true;
        ++*did;
        if (c->tr->rank != 0 && m->manifests) TR_TRY(tr_memory_receive_manifest(m));
        c->now.commits = c->tr->rank != 0;
        TR_TRY(report(c, status, status == TR_OK ? m->note : error));
    }
    if (!c->now.commits) return TR_OK;
    if (tr_memory_turn_manifest(m, &over)) ++*did;
    if (!over) return TR_OK;
    tr_memory_end(m);
    c->now.any = false;
    return TR_OK;
}

/* ---- signals that other ranks get ---- */

static void pass_signals(struct tr_checkpoints *c)
{
    int64_t now[2] = {tr_signals_stop(), tr_when_asked(&c->when)};
    if (!memcmp(now, c->passed, sizeof now) || !tr_request_done(&c->passing)) return;
    memcpy(c->passed, now, sizeof now);
    MPI_Isend(c->passed, 2, MPI_INT64_T, 0, TR_TAG_SIGNAL, c->tr->wire, &c->passing);
}

/* Usually mpirun tells all ranks; so what each has got is taken for the same signal. */
static void take_signals(struct tr_checkpoints *c)
{
    int here = 0;
    MPI_Status from;
    MPI_Iprobe(MPI_ANY_SOURCE, TR_TAG_SIGNAL, c->tr->wire, &here, &from);
    if (!here) return;
    int64_t got[2];
    MPI_Recv(got, 2, MPI_INT64_T, from.MPI_SOURCE, TR_TAG_SIGNAL, c->tr->wire, MPI_STATUS_IGNORE);
    if (got[0] && !tr_signals_stop()) tr_signals_pass(true);
    while (got[1] > tr_when_asked(&c->when)) tr_signals_pass(false);
}

/* ---- looking after all that ---- */

static int poll(void *what, int *did)
{
    struct tr_checkpoints *c = what;
    double now = tr_now();
    if (now > c->probed + 0.005) { /* a probe costs more than the rest, and no signal is that urgent */
        c->probed = now;
        c->tr->rank == 0 ? take_signals(c) : pass_signals(c);
    }
    if (c->writer.busy) {
        bool shard = c->writer.snapshot != NULL;
        if (tr_writer_ended(&c->writer)) {
            ++*did;
            if (shard) TR_TRY(end_shard(c));
            else end_manifest(c);
        }
    }
    if (c->now.any && c->now.in_memory) TR_TRY(move_memory(c, did));
    tr_memory_serve(c->memory, did);
    if (c->sending != MPI_REQUEST_NULL) (void)tr_request_done(&c->sending);
    if (c->tr->rank != 0 || !c->now.any) return TR_OK;
    int here = 0;
    MPI_Status from;
    MPI_Iprobe(MPI_ANY_SOURCE, TR_TAG_SHARD, c->tr->wire, &here, &from);
    if (!here) return TR_OK;
    struct tr_shard_report r;
    MPI_Recv(&r, sizeof r, MPI_BYTE, from.MPI_SOURCE, TR_TAG_SHARD, c->tr->wire, MPI_STATUS_IGNORE);
    ++*did;
    return hear(c, from.MPI_SOURCE, &r);
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

static int make(tr_context *tr, struct tr_checkpoints **out)
{
    struct tr_checkpoints *c;
    TR_TRY(TR_NEW(&c, 1));
    *out = c;
    tr_signals_hear();
    c->tr = tr;
    c->sending = c->passing = MPI_REQUEST_NULL;
    c->writer.lifeline = tr->lifeline;
    c->began = c->taken = tr_now();
    tr_when_open(&c->when, tr->job, tr->began);
    TR_TRY(tr_checkpoints_place(tr->job->checkpoint.to, tr->job->output, &c->to));
    TR_TRY(tr_memory_open(tr, c->to, &c->memory));
    return tr_poll_add(tr, poll, c);
}

static void destroy(struct tr_checkpoints *c, bool forgets)
{
    if (!c) return;
    tr_poll_remove(c->tr, poll, c);
    tr_writer_wait(&c->writer);
    tr_memory_close(&c->memory, c->run, forgets);
    if (c->passing != MPI_REQUEST_NULL) MPI_Cancel(&c->passing), MPI_Request_free(&c->passing);
    tr_manifest_free(&c->found);
    tr_manifest_free(&c->now.manifest);
    free(c->lister);
    free(c->to);
    free(c);
    tr_signals_unhear();
}

int tr_checkpoints_open(tr_context *tr, bool fresh)
{
    struct tr_checkpoints *c = NULL;
    int status = tr_agree(tr, make(tr, &c));
    if (status == TR_OK) status = tr_checkpoints_find(c, fresh);
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

void tr_on_keep(tr_context *tr, tr_lister_fn *list, void *who)
{
    struct tr_checkpoints *c = tr->checkpoints;
    if (!c || TR_GROW(&c->lister, &c->lister_room, c->listers + 1) != TR_OK) return;
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
    enum tr_due due = tr_when_due(&c->when, clock);
    if (c->now.any) return due == TR_DUE_AND_STOP ? due : TR_NOT_DUE;
    c->wants_memory = due == TR_NOT_DUE && tr_when_memory_due(&c->when, clock);
    return c->wants_memory ? TR_DUE : due;
}

bool tr_checkpoint_due_at_end(const tr_context *tr)
{
    const struct tr_checkpoints *c = tr->checkpoints;
    return c->counts.written > 0 || c->continues;
}

/* Everything that is kept, in the same order in both directions. */
static int list_all(struct tr_checkpoints *c, tr_snapshot *snapshot, tr_lister_fn *list, void *who)
{
    snapshot->room = NULL;
    TR_TRY(tr_snapshot_tables(c->tr, snapshot));
    snapshot->room = "stage";
    if (list) TR_TRY(list(who, snapshot));
    snapshot->room = "run";
    for (size_t i = 0; i < c->listers; i++) TR_TRY(c->lister[i].list(c->lister[i].who, snapshot));
    return TR_OK;
}

static int make_manifest(struct tr_checkpoints *c, const struct tr_facts *facts, struct tr_manifest *m)
{
    const struct tr_context *tr = c->tr;
    const struct tr_layout *l = &tr->layout;
    *m = (struct tr_manifest){
        .run = c->run, .number = c->now.number, .facts = *facts, .shards = (uint32_t)tr->size};
    m->facts.stage_number = c->entered - 1;
    m->facts.ranks = tr->size;
    m->facts.servers = l->servers;
    m->facts.groups = l->groups;
    m->facts.group_size = l->group_size;
    m->facts.seconds = c->before + tr_now() - c->began;
    TR_TRY(TR_NEW(&m->seal, m->shards));
    return tr_job_as_text(tr->job, &m->job);
}

/* Rank 0 makes the folder and what it writes last, before anybody copies for it. *kept: the last one in memory, which
 * stays there. */
static int begin(struct tr_checkpoints *c, const struct tr_facts *facts, bool in_memory, uint64_t *kept)
{
    struct tr_being_written *now = &c->now;
    *now = (struct tr_being_written){
        .any = true, .in_memory = in_memory, .number = ++c->number, .begin = tr_now()};
    int64_t well = 1;
    if (c->tr->rank == 0) {
        int status = make_manifest(c, facts, &now->manifest);
        if (status == TR_OK)
            status = in_memory ? tr_memory_name(c->to, c->run) : tr_checkpoint_make(c->to, now->number);
        well = status == TR_OK;
        if (!well) {
            now->status = status;
            snprintf(now->error, sizeof now->error, "%s", tr_error_text());
            warn(c, now->error);
            tr_manifest_free(&now->manifest);
        }
    }
    MPI_Request request;
    int64_t word[3] = {well, in_memory, (int64_t)c->memory->committed};
    MPI_Ibcast(word, 3, MPI_INT64_T, 0, c->tr->world, &request);
    TR_TRY(tr_wait_request(c->tr, &request, "rank 0 to begin a checkpoint"));
    now->any = word[0];
    now->in_memory = word[1];
    *kept = (uint64_t)word[2];
    return TR_OK;
}

/* About what a shard of these parts takes. */
static uint64_t bytes_of(const tr_snapshot *snapshot)
{
    uint64_t bytes = 1 << 16;
    for (size_t i = 0; snapshot && i < snapshot->parts; i++)
        bytes += tr_part_elements(&snapshot->part[i]) * tr_part_type_size(snapshot->part[i].type) +
                 snapshot->part[i].runs * sizeof *snapshot->part[i].run;
    return bytes;
}

/* Readies the node's folder: all of its ranks together, also those that could not copy. */
static int begin_memory(struct tr_checkpoints *c, const tr_snapshot *snapshot, uint64_t kept, int status)
{
    char error[512];
    snprintf(error, sizeof error, "%s", status == TR_OK ? "" : tr_error_text());
    int outcome = tr_memory_begin(c->memory, c->run, c->now.number, kept, bytes_of(snapshot));
    return status == TR_OK ? outcome : tr_fail(status, "%s", error);
}

/* What cannot be copied, the others learn as what cannot be written. */
static int copy_and_write(struct tr_checkpoints *c, uint64_t kept, tr_lister_fn *list, void *who)
{
    tr_context *tr = c->tr;
    tr_snapshot *snapshot = NULL;
    struct tr_shard_head head = {c->run, c->now.number, (uint32_t)tr->rank, (uint32_t)tr->size};
    int status = tr_snapshot_open(tr, NULL, NULL, &snapshot);
    if (status == TR_OK) status = list_all(c, snapshot, list, who);
    bool in_memory = c->now.in_memory;
    if (in_memory) status = begin_memory(c, snapshot, kept, status);
    c->writer.durable = !in_memory;
    c->writer.before = in_memory ? tr_memory_tidy : NULL;
    c->writer.who = c->memory;
    if (status == TR_OK)
        status = tr_writer_shard(&c->writer, in_memory ? c->memory->folder : c->to, &head, snapshot);
    else tr_snapshot_close(&snapshot);
    if (status == TR_OK) return TR_OK;
    c->writer.status = status;
    c->writer.seconds = 0;
    snprintf(c->writer.error, sizeof c->writer.error, "%s", tr_error_text());
    return end_shard(c);
}

int tr_checkpoint_take(tr_context *tr, const struct tr_facts *facts, bool stops, tr_lister_fn *list,
                       void *who)
{
    struct tr_checkpoints *c = tr->checkpoints;
    double start = tr_now();
    uint64_t kept;
    TR_TRY(tr_checkpoint_settle(tr)); /* the one before */
    TR_TRY(begin(c, facts, c->wants_memory && !stops, &kept));
    if (c->now.any) TR_TRY(copy_and_write(c, kept, list, who));
    c->taken = tr_now();
    c->counts.epoch = facts->epoch;
    (c->now.in_memory ? tr_when_memory_taken : tr_when_taken)(&c->when, facts->clock);
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
    tr_when_enter(&c->when);
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
    tr_when_taken(&c->when, facts->clock);
    tr_lifeline_kept(tr->lifeline, facts->clock);
    c->taken = tr_now();
    status = tr_agree(tr, status);
    tr_memory_found_end(c->memory);
    return status;
}
