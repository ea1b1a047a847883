#define _GNU_SOURCE
#include "monitor/record.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/escape.h"
#include "base/file.h"
#include "model/metrics.h"
#include "stage/scheduler.h"

/* ---- JSON ---- */

void tr_json_text(FILE *file, const char *text)
{
    if (text) tr_put_quoted(file, text);
    else fputs("null", file);
}

void tr_json_real(FILE *file, double number)
{
    if (isfinite(number)) tr_put_real(file, number);
    else fputs("null", file);
}

static void json_put_name(FILE *file, const char *before, const char *name)
{
    fputs(before, file);
    tr_put_quoted(file, name);
    fputs(": ", file);
}

/* These three functions write «  "name": value,» on a separate line. */
static void json_put_text(FILE *file, const char *name, const char *text)
{
    json_put_name(file, "  ", name);
    tr_json_text(file, text);
    fputs(",\n", file);
}

static void json_put_real(FILE *file, const char *name, double number)
{
    json_put_name(file, "  ", name);
    tr_json_real(file, number);
    fputs(",\n", file);
}

static void json_put_count(FILE *file, const char *name, uint64_t number)
{
    json_put_name(file, "  ", name);
    fprintf(file, "%" PRIu64 ",\n", number);
}

/* Rounds seconds to three decimals. */
static double milliseconds(double seconds)
{
    return round(seconds * 1000) / 1000;
}

static void json_put_seconds(FILE *file, const char *name, double seconds)
{
    json_put_real(file, name, milliseconds(seconds));
}

void tr_json_text_behind(FILE *file, const char *name, const char *text)
{
    json_put_name(file, ", ", name);
    tr_json_text(file, text);
}

void tr_json_real_behind(FILE *file, const char *name, double number)
{
    json_put_name(file, ", ", name);
    tr_json_real(file, number);
}

/* A function that writes the content of a JSON file. */
typedef int json_writer(FILE *file, const void *what);

/* Writes JSON to *text. Free it. */
static int json_render(json_writer *write, const void *what, char **text, size_t *length)
{
    *text = NULL;
    FILE *file = open_memstream(text, length);
    int status = file ? write(file, what) : TR_OK;
    if (!file || fclose(file) != 0) status = tr_fail(TR_ERR_SYSTEM, "out of memory: a JSON file");
    return status;
}

/* Writes the file folder/name by tr_replace_file(). */
static int json_replace(const char *folder, const char *name, bool durable, json_writer *write,
                        const void *what)
{
    TR_FREED char *text = NULL;
    size_t length;
    TR_TRY(json_render(write, what, &text, &length));
    return tr_replace_file(folder, name, text, length, durable);
}

/* ---- tasks of a job, in its status.json and summary.json ---- */

static void tasks_write(FILE *file, const struct tr_record *r)
{
    static const char *const name[] = {[TR_TASK_WAITING] = "waiting",
                                       [TR_TASK_RUNNING] = "running",
                                       [TR_TASK_DONE] = "done",
                                       [TR_TASK_FAILED] = "failed",
                                       [TR_TASK_DROPPED] = "not run"};
    fputs("  \"tasks\": [", file);
    for (size_t i = 0; i < r->tasks; i++) {
        const struct tr_task_row *row = &r->task[i];
        const struct tr_scheduled *t = row->scheduled;
        bool ended = t->state == TR_TASK_DONE || t->state == TR_TASK_FAILED;
        double end = t->state == TR_TASK_RUNNING ? tr_now() : t->end;
        fputs(i ? ",\n    {\"name\": " : "\n    {\"name\": ", file);
        tr_json_text(file, row->name);
        bool stopped = t->state == TR_TASK_FAILED && row->status == TR_ERR_STOPPED;
        tr_json_text_behind(file, "state", stopped ? "stopped" : name[t->state]);
        tr_json_real_behind(file, "ranks", t->ranks > 0 ? t->ranks : (double)NAN);
        tr_json_real_behind(file, "waited", milliseconds(t->begin - t->since));
        tr_json_real_behind(file, "seconds", milliseconds(end - t->begin));
        tr_json_real_behind(file, "objective", row->objective);
        tr_json_real_behind(file, "status", ended ? row->status : (double)NAN);
        tr_json_text_behind(file, "error", *row->error ? row->error : NULL);
        tr_json_text_behind(file, "output", row->output);
        fputc('}', file);
    }
    fputs("\n  ],\n", file);
}

/* ---- status.json ---- */

static void time_format(char text[32])
{
    time_t now = time(NULL);
    struct tm parts;
    gmtime_r(&now, &parts);
    strftime(text, 32, "%Y-%m-%dT%H:%M:%SZ", &parts);
}

void tr_record_open(tr_context *tr, struct tr_record *r)
{
    *r = (struct tr_record){.tr = tr, .begin = tr_now(), .entered = tr_now(), .loaded = NAN, .left = NAN};
    r->account.last.evaluation =
        (tr_evaluation){.objective = NAN, .gap = NAN, .metric = {NAN, NAN, NAN, NAN}, .epoch = NAN};
    r->account.target.seconds = NAN;
    if (gethostname(r->host, sizeof r->host - 1) < 0) strcpy(r->host, "unknown");
    time_format(r->started);
}

/* Writes the members gap (null if the gap is only estimated) and, for an estimated gap, estimated_gap. */
static void write_gap(FILE *file, const tr_evaluation *e)
{
    json_put_real(file, "gap", e->estimated ? (double)NAN : e->gap);
    if (e->estimated) json_put_real(file, "estimated_gap", e->gap);
}

/* Writes the name of the metric on data.test that decides which model is best; metrics.csv contains its values as test_metric. */
static void write_metric_name(FILE *file, const struct tr_account *a)
{
    json_put_text(file, "metric", *a->metric[0].text ? a->metric[0].text : NULL);
}

static int status_write_file(FILE *file, const void *what)
{
    static const char *const state_name[] = {"starting", "loading", "training", "writing",
                                             "done",     "failed",  "stopped"};
    static_assert(sizeof state_name / sizeof *state_name == TR_MONITOR_STATES, "a name for each state");
    const struct tr_record *r = what;
    const struct tr_progress_row *last = &r->account.last;
    bool ended = r->state == TR_DONE || r->state == TR_FAILED || r->state == TR_STOPPED;
    char now[32];
    time_format(now);
    fputs("{\n", file);
    json_put_text(file, "state", state_name[r->state]);
    json_put_text(file, "name", r->tr->job->name);
    json_put_real(file, "epoch", tr_record_is_evaluated(r) ? last->epoch : (double)NAN);
    json_put_count(file, "clock", (uint64_t)last->clock);
    json_put_real(file, "objective", last->evaluation.objective);
    write_gap(file, &last->evaluation);
    write_metric_name(file, &r->account);
    json_put_real(file, "loaded", milliseconds(r->loaded));
    json_put_real(file, "seconds", milliseconds(tr_now() - r->begin));
    json_put_real(file, "left", ended ? (double)NAN : milliseconds(r->left));
    json_put_count(file, "rows", r->tr->trained_on.rows);
    json_put_real(file, "status", ended ? (double)r->code : (double)NAN);
    json_put_text(file, "error", ended ? r->error : NULL);
    json_put_count(file, "pid", (uint64_t)getpid());
    json_put_text(file, "host", r->host);
    json_put_text(file, "started", r->started);
    json_put_count(file, "continued", r->account.restarts);
    if (r->tasks > 0) tasks_write(file, r);
    fprintf(file, "  \"updated\": \"%s\"\n}\n", now);
    return TR_OK;
}

/* A signal handler must not call printf(), so its text is prepared in advance. There are two copies: the handler uses the one in
 * `current`, while tr_status_write() prepares the other. `current` is global, because signal handlers are. */
static const int signals[] = {SIGTERM, SIGINT};
enum { GUARDS = 2 };

static _Atomic(const struct tr_last_words *) current[GUARDS];

static void on_signal(int number)
{
    int i = number != signals[0];
    for (int guard = 0; guard < GUARDS; guard++) {
        const struct tr_last_words *w = atomic_load(&current[guard]);
        int fd = w && w->text[i] ? tr_create_file(w->temporary) : -1;
        if (fd < 0) continue;
        bool whole = write(fd, w->text[i], w->length[i]) == (ssize_t)w->length[i];
        close(fd);
        if (whole) rename(w->temporary, w->path);
        else unlink(w->temporary);
    }
    raise(number); /* the default action (SA_RESETHAND) ends the process when this handler returns */
}

/* Sets the action `to` for SIGTERM and SIGINT, each only if its handler is `from`. */
static void last_words_change_handlers(void (*from)(int), struct sigaction to)
{
    for (int i = 0; i < TR_LAST_WORDS; i++) {
        struct sigaction old;
        if (sigaction(signals[i], NULL, &old) == 0 && old.sa_handler == from)
            sigaction(signals[i], &to, NULL);
    }
}

void tr_status_guard(struct tr_status_file *s)
{
    int guard = 0;
    while (guard < GUARDS && atomic_load(&current[guard])) guard++;
    if (guard == GUARDS) return;
    s->guard = guard + 1;
    for (int copy = 0; copy < 2; copy++)
        s->words[copy] = (struct tr_last_words){.path = s->path, .temporary = s->temporary};
    atomic_store(&current[guard], &s->words[0]);
    last_words_change_handlers(SIG_DFL,
                               (struct sigaction){.sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND});
}

int tr_status_open(struct tr_status_file *s, const struct tr_record *record)
{
    *s = (struct tr_status_file){.record = record};
    TR_TRY(tr_format(&s->path, "%s/status.json", record->tr->job->output));
    /* another name than that of tr_replace_file(), which the signal may interrupt */
    return tr_format(&s->temporary, "%s.end", s->path);
}

void tr_status_close(struct tr_status_file *s)
{
    bool others = false;
    if (s->guard) atomic_store(&current[s->guard - 1], NULL);
    for (int guard = 0; guard < GUARDS; guard++) others = others || atomic_load(&current[guard]);
    if (s->guard && !others) last_words_change_handlers(on_signal, (struct sigaction){.sa_handler = SIG_DFL});
    for (int i = 0; i < 2 * TR_LAST_WORDS; i++) free(s->words[i / TR_LAST_WORDS].text[i % TR_LAST_WORDS]);
    TR_FREE_ALL(s->path, s->temporary);
    *s = (struct tr_status_file){0};
}

int tr_status_write(struct tr_status_file *s)
{
    s->written = tr_now();
    s->stale = true;
    int status = json_replace(s->record->tr->job->output, "status.json", false, status_write_file, s->record);
    if (status == TR_OK && s->guard) { /* prepares the copy that is not in `current`, then exchanges them */
        struct tr_last_words *w = &s->words[atomic_load(&current[s->guard - 1]) == &s->words[0]];
        for (int i = 0; i < TR_LAST_WORDS && status == TR_OK; i++) {
            struct tr_record end = *s->record;
            end.state = TR_FAILED;
            end.code = 128 + signals[i];
            end.error = signals[i] == SIGTERM ? "ended by SIGTERM" : "ended by SIGINT";
            free(w->text[i]);
            w->text[i] = NULL;
            status = json_render(status_write_file, &end, &w->text[i], &w->length[i]);
        }
        if (status == TR_OK) atomic_store(&current[s->guard - 1], w);
    }
    s->stale = status != TR_OK;
    s->took = tr_now() - s->written;
    return status;
}

bool tr_status_due(const struct tr_status_file *s, bool changed)
{
    double apart = !changed ? 1 : s->took > 1e-3 ? fmin(1, 9 * s->took) : 0;
    return s->stale || tr_now() - s->written >= apart;
}

/* ---- reading the files of other runs ---- */

/* Returns the value of a member that is on a separate line, as json_put_real() writes it; "" if there is no such member. */
static struct tr_number_text seen_member(const char *text, const char *name)
{
    struct tr_number_text sought, value = {""};
    snprintf(sought.text, sizeof sought.text, "\n  \"%s\": ", name);
    const char *at = text ? strstr(text, sought.text) : NULL;
    if (at) at += strlen(sought.text);
    if (at) snprintf(value.text, sizeof value.text, "%.*s", (int)tr_min_size(strcspn(at, ",\n"), 31), at);
    return value;
}

static double seen_real(const char *text, const char *name)
{
    struct tr_number_text value = seen_member(text, name);
    return *value.text && strcmp(value.text, "null") != 0 ? strtod(value.text, NULL) : (double)NAN;
}

/* Returns the content of a file; NULL if it is missing or empty. Free it. */
static char *seen_read(const char *folder, const char *name)
{
    TR_FREED char *path = NULL;
    char *text = NULL;
    size_t capacity = 0;
    FILE *file = tr_format(&path, "%s/%s", folder, name) == TR_OK ? fopen(path, "re") : NULL;
    if (file && getdelim(&text, &capacity, '\0', file) < 0) { /* the file is empty */
        free(text);
        text = NULL;
    }
    if (file) fclose(file);
    return text;
}

double tr_run_number(const char *folder, const char *name)
{
    TR_FREED char *summary = seen_read(folder, "summary.json"), *status = seen_read(folder, "status.json");
    double number = seen_real(summary, name);
    return isnan(number) ? seen_real(status, name) : number;
}

struct tr_outcome_seen tr_outcome_look(const char *folder, const char *wanted)
{
    TR_FREED char *text = seen_read(folder, "summary.json");
    struct tr_number_text metric = seen_member(text, "metric");
    struct tr_outcome_seen seen = {.name = "objective",
                                   .value = seen_real(text, "objective"),
                                   .ascends = !strcmp(seen_member(text, "metric_ascends").text, "true"),
                                   .seconds = seen_real(text, "total_seconds")};
    char member[64];
    if (!wanted && *metric.text != '"') return seen;
    if (wanted) seen.ascends = tr_metric_ascends(wanted);
    if (wanted) snprintf(seen.name, sizeof seen.name, "%s", wanted);
    else snprintf(seen.name, sizeof seen.name, "%.*s", (int)strcspn(metric.text + 1, "\""), metric.text + 1);
    snprintf(member, sizeof member, "test_%s", seen.name);
    seen.value = seen_real(text, member);
    return seen;
}

struct tr_status_seen tr_status_look(const char *folder)
{
    TR_FREED char *text = seen_read(folder, "status.json");
    struct tr_number_text state = seen_member(text, "state");
    return (struct tr_status_seen){.any = *state.text,
                                   .done = !strcmp(state.text, "\"done\""),
                                   .continued = strtoull(seen_member(text, "continued").text, NULL, 10),
                                   .pid = strtoull(seen_member(text, "pid").text, NULL, 10),
                                   .objective = seen_real(text, "objective"),
                                   .epoch = seen_real(text, "epoch")};
}

/* ---- metrics.csv: one line for each evaluation ---- */

static const char metrics_header[] =
    "time,epoch,clock,objective,gap,test_metric,bytes_pulled,bytes_pushed,pulls,pushes,"
    "compute_seconds,wait_seconds,pull_seconds,push_seconds,peak_rss_bytes,updates,training_time\n";

/* Appends text; on failure truncates the file to its previous length, so that it has whole lines only. */
static int metrics_append(struct tr_metrics *m, const char *text, size_t length)
{
    off_t end = lseek(m->fd, 0, SEEK_END);
    int error = tr_write_all(m->fd, text, length);
    if (!error) return TR_OK;
    if (end >= 0 && ftruncate(m->fd, end) < 0) error = errno;
    return tr_file_failed(m->path, "written", error);
}

int tr_metrics_open(const char *folder, bool continues, struct tr_metrics *m)
{
    *m = (struct tr_metrics){.fd = -1};
    TR_TRY(tr_format(&m->path, "%s/metrics.csv", folder));
    m->fd = tr_open_file(m->path, O_RDWR | O_APPEND);
    if (m->fd < 0) return tr_file_failed(m->path, "created", errno);
    if (continues && tr_metrics_length(m) > 0) return TR_OK;
    int status = ftruncate(m->fd, 0) < 0 ? tr_file_failed(m->path, "written", errno)
                                         : metrics_append(m, metrics_header, sizeof metrics_header - 1);
    if (status != TR_OK && !continues) unlink(m->path);
    return status;
}

int64_t tr_metrics_length(const struct tr_metrics *m)
{
    off_t end = lseek(m->fd, 0, SEEK_END);
    return end < 0 ? 0 : (int64_t)end;
}

int tr_metrics_cut(struct tr_metrics *m, int64_t length, bool *lacking)
{
    int64_t there = tr_metrics_length(m);
    *lacking = there < length;
    char last;
    if (*lacking) length = there;
    while (*lacking && length > 0 && pread(m->fd, &last, 1, (off_t)length - 1) == 1 && last != '\n') length--;
    if (ftruncate(m->fd, (off_t)length) < 0) return tr_file_failed(m->path, "written", errno);
    return length == 0 ? metrics_append(m, metrics_header, sizeof metrics_header - 1) : TR_OK;
}

void tr_metrics_close(struct tr_metrics *m)
{
    if (m->fd >= 0) close(m->fd);
    free(m->path);
    *m = (struct tr_metrics){.fd = -1};
}

/* Formats a value; returns "" if it is not finite. */
static struct tr_number_text metrics_number(double value)
{
    struct tr_number_text n = {""};
    if (isfinite(value)) snprintf(n.text, sizeof n.text, "%.15g", value);
    return n;
}

int tr_metrics_add(struct tr_metrics *m, const struct tr_progress_row *row)
{
    const struct tr_traffic *t = &row->traffic;
    const tr_evaluation *v = &row->evaluation;
    char line[512];
    int length =
        snprintf(line, sizeof line,
                 "%.6f,%s,%" PRId64 ",%s,%s,%s,%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64
                 ",%.6f,%.6f,%.6f,%.6f,%.0f,%" PRIu64 ",%.6f\n",
                 row->seconds, metrics_number(row->epoch).text, row->clock, metrics_number(v->objective).text,
                 metrics_number(v->gap).text, metrics_number(v->metric[0]).text, t->bytes_pulled,
                 t->bytes_pushed, t->pulls, t->pushes, row->compute_seconds, t->wait_seconds, t->pull_seconds,
                 t->push_seconds, row->peak_rss, row->updates, row->seconds - row->evaluate_seconds);
    return metrics_append(m, line, (size_t)length);
}

/* ---- summary.json: the result of a run in flat keys, for scripts ---- */

/* Members of every summary about data.test: the metric of the last evaluation, or a figure that the model has reported. */
static const char *const summary_figure[] = {"test_accuracy", "test_auc", "test_rmse", "test_perplexity"};
enum { SUMMARY_FIGURES = sizeof summary_figure / sizeof *summary_figure };

static bool is_summary_figure(const char *name)
{
    for (size_t k = 0; k < SUMMARY_FIGURES; k++)
        if (!strcmp(name, summary_figure[k])) return true;
    return false;
}

static void summary_write_stages(FILE *file, const struct tr_record *r)
{
    const struct tr_stage_sum *sums = r->stages;
    size_t n = r->stage_count;
    double first = INFINITY;
    for (size_t i = 0; i < n; i++)
        if (sums[i].clocks > 0) first = fmin(first, sums[i].began);
    fputs("  \"stages\": [", file);
    for (size_t i = 0; i < n; i++) {
        const struct tr_stage_sum *s = &sums[i];
        fputs(i ? ",\n    {\"name\": " : "\n    {\"name\": ", file);
        tr_json_text(file, s->name);
        fprintf(file, ", \"runs\": %d, \"fewest_workers\": %d, \"most_workers\": %d, \"clocks\": %lld",
                s->runs, s->fewest, s->most, (long long)s->clocks);
        tr_json_real_behind(file, "begin_seconds", s->clocks > 0 ? s->began - first : (double)NAN);
        tr_json_real_behind(file, "end_seconds", s->clocks > 0 ? s->ended - first : (double)NAN);
        tr_json_real_behind(file, "seconds", s->seconds);
        tr_json_real_behind(file, "worker_seconds", s->worker_seconds);
        tr_json_real_behind(file, "transition_seconds", s->transition);
        tr_json_text_behind(file, "search", s->degree);
        fputc('}', file);
    }
    fputs("\n  ],\n", file);
}

/* Writes the last members of a summary: ranks, version, host, and the whole resolved job. */
static int summary_write_end(FILE *file, const struct tr_record *r)
{
    json_put_count(file, "ranks", (uint64_t)r->tr->size);
    json_put_text(file, "version", TR_VERSION);
    json_put_text(file, "host", r->host);
    fputs("  \"job\": ", file);
    int status = tr_job_write_json(r->tr->job, file, 2);
    fputs("\n}\n", file);
    return status;
}

struct summary {
    const struct tr_record *record;
    const struct tr_outcome *outcome; /* NULL for a job of several tasks */
    uint64_t readings;                /* for a job of several tasks: see tr_summary_write_tasks() */
};

static int summary_write_run(FILE *file, const void *what)
{
    const struct summary *s = what;
    const struct tr_record *r = s->record;
    const struct tr_outcome *o = s->outcome;
    const tr_context *tr = r->tr;
    const struct tr_account *a = &r->account;
    const struct tr_evaluation *last = &a->last.evaluation;
    const struct tr_traffic *t = &a->last.traffic;
    const struct tr_progress_row *target = &a->target;
    const struct tr_heterogeneity *h = &a->last.heterogeneity;
    fputs("{\n", file);
    json_put_real(file, "objective", last->objective);
    write_gap(file, last);
    write_metric_name(file, a);
    fprintf(file, "  \"metric_ascends\": %s,\n", a->ascends ? "true" : "false");
    for (size_t k = 0; k < SUMMARY_FIGURES; k++) {
        double value = NAN;
        for (size_t i = 0; i < TR_METRICS; i++)
            if (!strcmp(a->metric[i].text, summary_figure[k] + strlen("test_"))) value = last->metric[i];
        for (size_t i = 0; i < tr->figures; i++)
            if (!strcmp(tr->figure[i].name, summary_figure[k])) value = tr->figure[i].value;
        json_put_real(file, summary_figure[k], value);
    }
    for (size_t i = 0; i < TR_METRICS && *a->metric[i].text; i++) {
        char name[64];
        snprintf(name, sizeof name, "test_%s", a->metric[i].text);
        if (!is_summary_figure(name)) json_put_real(file, name, last->metric[i]);
    }
    json_put_seconds(file, "load_seconds", a->spent[TR_LOADING]);
    json_put_seconds(file, "train_seconds", a->spent[TR_TRAINING]);
    json_put_seconds(file, "total_seconds", a->total);
    json_put_count(file, "bytes_pulled", t->bytes_pulled);
    json_put_count(file, "bytes_pushed", t->bytes_pushed);
    json_put_seconds(file, "way_seconds", t->way_seconds);
    /* fraction of the transfer time (way_seconds) in which workers computed */
    json_put_real(file, "hidden", t->way_seconds > 0 ? t->hidden_seconds / t->way_seconds : (double)NAN);
    json_put_count(file, "updates", a->last.updates);
    json_put_count(file, "filter_seen", t->filtered.seen);
    json_put_count(file, "filter_held", t->filtered.held);
    json_put_count(file, "filter_dropped", t->filtered.dropped);
    json_put_seconds(file, "serve_seconds", o->service.seconds);
    json_put_count(file, "served_while_computing", (uint64_t)o->service.at_seams);
    json_put_count(file, "updates_under_way", (uint64_t)o->service.under_way);
    json_put_count(file, "table_bytes", (uint64_t)o->service.share_bytes);
    json_put_count(file, "version_bytes", (uint64_t)o->service.version_bytes);
    const char *reached = tr->job->solve.target == TR_JOB_AUTO ? "null"
                          : a->reached_target                  ? "true"
                                                               : "false";
    fprintf(file, "  \"reached_target\": %s,\n", reached);
    json_put_seconds(file, "target_time", target->seconds);
    json_put_seconds(file, "target_training_time", target->seconds - target->evaluate_seconds);
    json_put_real(file, "target_updates", a->reached_target ? (double)target->updates : (double)NAN);
    json_put_real(file, "slowed_workers", h->slowed ? h->slowed : (double)NAN);
    json_put_real(file, "level_reached", h->slowed ? milliseconds(h->reached) : (double)NAN);
    json_put_count(file, "peak_rss_bytes", (uint64_t)o->peak_rss);
    json_put_real(file, "epochs", a->last.epoch);
    json_put_count(file, "rows", tr->trained_on.rows);
    json_put_count(file, "features", tr->trained_on.columns);
    json_put_count(file, "nonzeros", tr->trained_on.nonzeros);
    fprintf(file, "  \"dense\": %s,\n", tr->trained_on.dense ? "true" : "false");
    json_put_count(file, "restarts", a->restarts);
    json_put_count(file, "checkpoints", a->checkpoints);
    json_put_count(file, "checkpoints_failed", a->failed);
    json_put_seconds(file, "checkpoint_seconds", a->copying);
    for (size_t i = 0; i < tr->figures; i++) /* all other figures that the model has reported */
        if (!is_summary_figure(tr->figure[i].name))
            json_put_real(file, tr->figure[i].name, tr->figure[i].value);
    if (o->more) o->more(file, o->who);
    if (r->stages) summary_write_stages(file, r);
    const struct tr_span *span = o->spans;
    fputs("  \"timeline\": [", file); /* one line for each rank */
    for (size_t i = 0; i < o->span_count; i++) {
        bool begins = i == 0 || span[i].rank != span[i - 1].rank;
        fprintf(file, begins && i ? ",\n    " : begins ? "\n    " : ", ");
        fprintf(file, "{\"rank\": %lld, \"stage\": ", (long long)span[i].rank);
        tr_json_text(file, span[i].stage);
        fprintf(file, ", \"begin\": %.6f, \"end\": %.6f}", span[i].begin, span[i].end);
    }
    fputs(o->span_count > 0 ? "\n  ],\n" : "],\n", file);
    json_put_text(file, "layout", o->layout);
    return summary_write_end(file, r);
}

int tr_summary_write(const struct tr_record *record, const struct tr_outcome *outcome, const char *folder)
{
    return json_replace(folder, "summary.json", true, summary_write_run,
                        &(struct summary){record, outcome, 0});
}

static int summary_write_job(FILE *file, const void *what)
{
    const struct summary *s = what;
    const struct tr_record *r = s->record;
    uint64_t readings = s->readings;
    for (size_t i = 0; i < r->tasks; i++) readings += r->task[i].readings;
    fputs("{\n", file);
    tasks_write(file, r);
    json_put_seconds(file, "total_seconds", r->account.total);
    json_put_count(file, "status", (uint64_t)r->code);
    json_put_count(file, "readings", readings);
    return summary_write_end(file, r);
}

int tr_summary_write_tasks(const struct tr_record *record, uint64_t readings, const char *folder)
{
    return json_replace(folder, "summary.json", true, summary_write_job,
                        &(struct summary){record, NULL, readings});
}

/* ---- ranks.json ---- */

struct ranks_file {
    const tr_context *tr;
    struct tr_rank_seen *seen;
};

static int ranks_write_file(FILE *file, const void *what)
{
    static const char letter[] = "-cepuws?"; /* letter of each enum tr_rank_state */
    static const char *const name[] = {"node", "clock", "compute", "serving", "held"};
    const struct ranks_file *f = what;
    fputs("{\n  \"does\": \"", file);
    for (int rank = 0; rank < f->tr->size; rank++) fputc(letter[f->seen[rank].state], file);
    fputs("\"", file);
    for (int k = 0; k < 5; k++) {
        fprintf(file, ",\n  \"%s\": [", name[k]);
        for (int rank = 0; rank < f->tr->size; rank++) {
            const struct tr_rank_seen *seen = &f->seen[rank];
            const double value[] = {f->tr->node_of[rank], (double)seen->clock, seen->seconds, seen->serving,
                                    seen->held};
            fprintf(file, "%s%.*f", rank ? "," : "", k == 2 || k == 3 ? 3 : 0, value[k]);
        }
        fputc(']', file);
    }
    fprintf(file, ",\n  \"updated\": %lld\n}\n", (long long)time(NULL));
    return TR_OK;
}

int tr_ranks_write(const tr_context *tr, const char *folder)
{
    TR_FREED struct tr_rank_seen *seen = NULL;
    TR_TRY(TR_NEW(&seen, (size_t)tr->size));
    tr_clock_see(tr->sync->clock, seen);
    return json_replace(folder, "ranks.json", false, ranks_write_file, &(struct ranks_file){tr, seen});
}

/* ---- events.csv ---- */

void tr_event_add(const char *folder, const char *event, struct tr_event_place place, long rank,
                  const char *text)
{
    const double number[] = {place.seconds, place.epoch, place.updates,
                             rank < 0 ? (double)NAN : (double)rank};
    TR_FREED char *path = NULL, *line = NULL;
    size_t length = 0;
    if (tr_format(&path, "%s/events.csv", folder) != TR_OK) return;
    int fd = tr_open_file(path, O_WRONLY | O_APPEND);
    if (fd < 0) return;
    FILE *file = open_memstream(&line, &length);
    if (file) {
        if (lseek(fd, 0, SEEK_END) == 0) fputs("when,time,epoch,updates,rank,event,text\n", file);
        fprintf(file, "%lld,", (long long)time(NULL));
        for (int i = 0; i < 4; i++) fprintf(file, isnan(number[i]) ? "," : "%.9g,", number[i]);
        fprintf(file, "%s,", event);
        tr_put_csv(file, text);
        fputc('\n', file);
        if (fclose(file) == 0) (void)tr_write_all(fd, line, length);
    }
    close(fd);
}
