#define _GNU_SOURCE
#include "monitor/tasks.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "monitor/display.h"
#include "monitor/json.h"
#include "monitor/output.h"
#include "monitor/status.h"
#include "monitor/summary.h"

struct tr_tasks_folder {
    tr_context *world;
    const struct tr_task_row *row;
    size_t n;
    uint64_t readings; /* for several tasks */
    int lock;
    struct tr_status_file status;
};

static const char *const state_name[] = {[TR_TASK_WAITING] = "waiting",
                                         [TR_TASK_RUNNING] = "running",
                                         [TR_TASK_DONE] = "done",
                                         [TR_TASK_FAILED] = "failed",
                                         [TR_TASK_DROPPED] = "not run"};

/* ---- as JSON ---- */

static bool is_stopped(const struct tr_task_row *row)
{
    return row->scheduled->state == TR_TASK_FAILED && row->status == TR_ERR_STOPPED;
}

static void put_task(FILE *file, const struct tr_task_row *row)
{
    const struct tr_scheduled *t = row->scheduled;
    bool ended = t->state == TR_TASK_DONE || t->state == TR_TASK_FAILED;
    double end = t->state == TR_TASK_RUNNING ? tr_now() : t->end;
    fputs("{\"name\": ", file);
    tr_json_text(file, row->name);
    tr_json_text_behind(file, "state", is_stopped(row) ? "stopped" : state_name[t->state]);
    tr_json_real_behind(file, "ranks", t->ranks > 0 ? t->ranks : (double)NAN);
    tr_json_real_behind(file, "waited", tr_milliseconds(t->begin - t->since));
    tr_json_real_behind(file, "seconds", tr_milliseconds(end - t->begin));
    tr_json_real_behind(file, "objective", row->objective);
    tr_json_real_behind(file, "status", ended ? row->status : (double)NAN);
    tr_json_text_behind(file, "error", *row->error ? row->error : NULL);
    tr_json_text_behind(file, "output", row->output);
    fputc('}', file);
}

static void put_tasks(FILE *file, void *who)
{
    const struct tr_tasks_folder *f = who;
    fputs("  \"tasks\": [", file);
    for (size_t i = 0; i < f->n; i++) {
        fputs(i ? ",\n    " : "\n    ", file);
        put_task(file, &f->row[i]);
    }
    fputs("\n  ],\n", file);
}

static int write_summary(FILE *file, const void *what)
{
    const struct tr_tasks_folder *f = what;
    uint64_t readings = f->readings;
    for (size_t i = 0; i < f->n; i++) readings += f->row[i].readings;
    fputs("{\n", file);
    put_tasks(file, (void *)(uintptr_t)f);
    tr_json_real_member(file, "total_seconds", tr_milliseconds(tr_process_seconds()));
    tr_json_count_member(file, "status", (uint64_t)f->status.code);
    tr_json_count_member(file, "readings", readings);
    return tr_summary_end(file, f->world->size, f->status.host, f->world->job);
}

/* ---- as a table ---- */

static void say_row(const struct tr_tasks_folder *f, const struct tr_task_row *row, int width)
{
    const struct tr_scheduled *t = row->scheduled;
    if (t->ranks == 0 && t->state == TR_TASK_DONE) {
        tr_say(f->world, "%-*s  %5s  %11s  %11s  done before", width, row->name, "-", "-", "-");
        return;
    }
    if (t->ranks == 0) {
        tr_say(f->world, "%-*s  %5s  %11s  %11s  not run%s%s", width, row->name, "-", "-", "-",
               t->because >= 0 ? ": it comes after " : "", t->because >= 0 ? f->row[t->because].name : "");
        return;
    }
    char outcome[64] = "done";
    if (is_stopped(row)) snprintf(outcome, sizeof outcome, "stopped");
    else if (t->state == TR_TASK_FAILED)
        snprintf(outcome, sizeof outcome, "failed, exit code %d", row->status);
    else if (isfinite(row->objective))
        snprintf(outcome, sizeof outcome, "done, objective %.8g", row->objective);
    tr_say(f->world, "%-*s  %5d  %11s  %11s  %s", width, row->name, t->ranks,
           tr_duration(t->begin - t->since).text, tr_duration(t->end - t->begin).text, outcome);
}

static void say_table(const struct tr_tasks_folder *f)
{
    int width = 4;
    for (size_t i = 0; i < f->n; i++) width = tr_max_int(width, (int)strlen(f->row[i].name));
    tr_say(f->world, "%-*s  %5s  %11s  %11s  outcome", width, "task", "ranks", "waited", "took");
    for (size_t i = 0; i < f->n; i++) say_row(f, &f->row[i], width);
}

/* ---- the folder ---- */

static size_t count_done(const struct tr_tasks_folder *f)
{
    size_t done = 0;
    for (size_t i = 0; i < f->n; i++) done += f->row[i].scheduled->state == TR_TASK_DONE;
    return done;
}

static int begin(struct tr_tasks_folder *f, bool goes_on)
{
    const struct tr_job *job = f->world->job;
    char *moved;
    int status = tr_monitor_folder(f->world, goes_on, &moved, &f->lock);
    free(moved);
    TR_TRY(status);
    uint64_t continued = goes_on ? tr_status_look(job->output).continued + 1 : 0;
    TR_TRY(tr_status_open(&f->status, job->output, job->name));
    f->status.state = TR_TRAINING;
    f->status.continued = continued;
    f->status.more = put_tasks;
    f->status.who = f;
    tr_status_guard(&f->status);
    if (goes_on) tr_say(f->world, "continues:     %zu of %zu tasks are done", count_done(f), f->n);
    return tr_status_write(&f->status);
}

static void forget(struct tr_tasks_folder **folder)
{
    struct tr_tasks_folder *f = *folder;
    tr_status_close(&f->status);
    tr_output_release(f->world->job->output, f->lock);
    free(f);
    *folder = NULL;
}

int tr_tasks_folder_open(tr_context *world, const struct tr_task_row *row, size_t n, bool goes_on,
                         struct tr_tasks_folder **folder)
{
    struct tr_tasks_folder *f;
    TR_TRY(TR_NEW(&f, 1));
    f->world = world;
    f->row = row;
    f->n = n;
    f->lock = -1;
    *folder = f;
    int status = begin(f, goes_on);
    if (status != TR_OK) forget(folder);
    return status;
}

void tr_tasks_folder_note_readings(struct tr_tasks_folder *f, uint64_t readings)
{
    f->readings = readings;
}

int tr_tasks_folder_renew(struct tr_tasks_folder *f, bool at_once)
{
    return at_once || tr_status_due(&f->status) ? tr_status_write(&f->status) : TR_OK;
}

/* The words for a job that failed are those of its task. */
static void say_error(const struct tr_tasks_folder *f, int status, char *text, size_t size)
{
    snprintf(text, size, "%s", tr_error_text());
    for (size_t i = f->n; i-- > 0;)
        if (f->row[i].scheduled->state == TR_TASK_FAILED && f->row[i].status == status)
            snprintf(text, size, "task %s: %s", f->row[i].name, f->row[i].error);
}

int tr_tasks_folder_close(struct tr_tasks_folder **folder, int status)
{
    struct tr_tasks_folder *f = *folder;
    if (!f) return status;
    char error[1024];
    say_error(f, status, error, sizeof error); /* writing may fail, too, and then says so */
    bool stopped = status == TR_ERR_STOPPED;
    f->status.state = status == TR_OK ? TR_DONE : stopped ? TR_STOPPED : TR_FAILED;
    f->status.code = status;
    f->status.error = status == TR_OK || stopped ? NULL : error;
    int outcome = tr_json_replace(f->world->job->output, "summary.json", true, write_summary, f);
    int last = tr_status_write(&f->status);
    if (outcome == TR_OK) outcome = last;
    say_table(f);
    if (stopped)
        tr_say(f->world, "stopped:       after %s, %zu of %zu tasks done; the same command continues",
               tr_duration(tr_process_seconds()).text, count_done(f), f->n);
    if (outcome == TR_OK) tr_say(f->world, "output:        %s", f->world->job->output);
    forget(folder);
    return status != TR_OK ? status : outcome;
}
