#define _GNU_SOURCE
#include "monitor/summary.h"

#include <math.h>
#include <time.h>
#include <unistd.h>

#include "monitor/json.h"

double tr_process_seconds(void)
{
    uint64_t ticks = tr_start_ticks();
    struct timespec now;
    if (ticks == 0 || clock_gettime(CLOCK_BOOTTIME, &now) < 0) return NAN;
    double started = (double)ticks / (double)sysconf(_SC_CLK_TCK);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9 - started;
}

struct file {
    const struct tr_outcome *outcome;
    const struct tr_job *job;
};

static void write_seconds(FILE *file, const char *name, double seconds)
{
    tr_json_real_member(file, name, tr_milliseconds(seconds));
}

static void write_quality(FILE *file, const struct tr_outcome *o)
{
    const struct tr_evaluation *last = &o->account->last.evaluation;
    enum tr_test_metric metric = (enum tr_test_metric)o->account->metric;
    tr_json_real_member(file, "objective", last->objective);
    tr_json_real_member(file, "gap", last->gap);
    tr_json_real_member(file, "test_accuracy",
                        metric == TR_ACCURACY ? last->metric : o->model->test_accuracy);
    tr_json_real_member(file, "test_auc", o->model->test_auc);
    tr_json_real_member(file, "test_rmse", metric == TR_RMSE ? last->metric : o->model->test_rmse);
    tr_json_real_member(file, "test_perplexity", o->model->test_perplexity);
}

/* The share of the time that pulls and pushes are on their way in which workers computed. */
static double hidden(const struct tr_traffic *t)
{
    return t->way_seconds > 0 ? t->hidden_seconds / t->way_seconds : (double)NAN;
}

static void write_cost(FILE *file, const struct tr_outcome *o)
{
    const struct tr_account *a = o->account;
    const struct tr_traffic *t = &a->last.traffic;
    write_seconds(file, "load_seconds", a->spent[TR_LOADING]);
    write_seconds(file, "train_seconds", a->spent[TR_TRAINING]);
    write_seconds(file, "total_seconds", a->total);
    tr_json_count_member(file, "bytes_pulled", t->bytes_pulled);
    tr_json_count_member(file, "bytes_pushed", t->bytes_pushed);
    write_seconds(file, "way_seconds", t->way_seconds);
    tr_json_real_member(file, "hidden", hidden(t));
    tr_json_count_member(file, "updates", a->last.updates);
    tr_json_count_member(file, "filter_seen", t->filtered.seen);
    tr_json_count_member(file, "filter_held", t->filtered.held);
    tr_json_count_member(file, "filter_dropped", t->filtered.dropped);
    write_seconds(file, "serve_seconds", o->service.seconds);
    tr_json_count_member(file, "served_while_computing", (uint64_t)o->service.at_seams);
    tr_json_count_member(file, "updates_under_way", (uint64_t)o->service.under_way);
    tr_json_count_member(file, "table_bytes", (uint64_t)o->service.share_bytes);
    tr_json_count_member(file, "version_bytes", (uint64_t)o->service.version_bytes);
}

static void write_target(FILE *file, const struct tr_outcome *o, const struct tr_job *job)
{
    const struct tr_account *a = o->account;
    const struct tr_progress_row *target = &a->target;
    const char *reached = !tr_has_target(job) ? "null" : a->reached_target ? "true" : "false";
    fprintf(file, "  \"reached_target\": %s,\n", reached);
    write_seconds(file, "target_time", target->seconds);
    write_seconds(file, "target_training_time", target->seconds - target->evaluate_seconds);
    tr_json_real_member(file, "target_updates", a->reached_target ? (double)target->updates : (double)NAN);
}

static void write_sizes(FILE *file, const struct tr_outcome *o)
{
    const struct tr_account *a = o->account;
    const struct tr_heterogeneity *h = &a->last.heterogeneity;
    tr_json_real_member(file, "slowed_workers", h->slowed ? h->slowed : (double)NAN);
    tr_json_real_member(file, "level_reached", h->slowed ? tr_milliseconds(h->reached) : (double)NAN);
    tr_json_count_member(file, "peak_rss_bytes", (uint64_t)o->peak_rss);
    tr_json_real_member(file, "epochs", a->last.epoch);
    tr_json_count_member(file, "rows", o->model->rows);
    tr_json_count_member(file, "features", o->model->features);
    tr_json_count_member(file, "nonzeros", o->model->nonzeros);
    fprintf(file, "  \"dense\": %s,\n", o->model->dense ? "true" : "false");
    tr_json_count_member(file, "restarts", a->restarts);
    tr_json_count_member(file, "checkpoints", a->checkpoints);
    tr_json_count_member(file, "checkpoints_failed", a->failed);
    write_seconds(file, "checkpoint_seconds", a->copying);
}

static void write_stages(FILE *file, const struct tr_stage_sum *sums, size_t n)
{
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

/* A line for each rank. */
static void write_timeline(FILE *file, const struct tr_span *span, size_t n)
{
    fputs("  \"timeline\": [", file);
    for (size_t i = 0; i < n; i++) {
        bool begins = i == 0 || span[i].rank != span[i - 1].rank;
        fprintf(file, begins && i ? ",\n    " : begins ? "\n    " : ", ");
        fprintf(file, "{\"rank\": %lld, \"stage\": ", (long long)span[i].rank);
        tr_json_text(file, span[i].stage);
        fprintf(file, ", \"begin\": %.6f, \"end\": %.6f}", span[i].begin, span[i].end);
    }
    fputs(n > 0 ? "\n  ],\n" : "],\n", file);
}

int tr_summary_end(FILE *file, int ranks, const char *host, const struct tr_job *job)
{
    tr_json_count_member(file, "ranks", (uint64_t)ranks);
    tr_json_text_member(file, "version", TR_VERSION);
    tr_json_text_member(file, "host", host);
    fputs("  \"job\": ", file);
    int status = tr_job_write_json(job, file, 2);
    fputs("\n}\n", file);
    return status;
}

static int write_file(FILE *file, const void *what)
{
    const struct file *f = what;
    const struct tr_outcome *o = f->outcome;
    fputs("{\n", file);
    write_quality(file, o);
    write_cost(file, o);
    write_target(file, o, f->job);
    write_sizes(file, o);
    if (o->model->more) o->model->more(file, o->model->who);
    if (o->stages) write_stages(file, o->stages, o->stage_count);
    write_timeline(file, o->spans, o->span_count);
    tr_json_text_member(file, "layout", o->layout);
    return tr_summary_end(file, o->ranks, o->host, f->job);
}

int tr_outcome_write(const struct tr_outcome *outcome, const struct tr_job *job, const char *folder)
{
    return tr_json_replace(folder, "summary.json", true, write_file, &(struct file){outcome, job});
}
