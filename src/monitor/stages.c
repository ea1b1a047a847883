#include "monitor/stages.h"

#include <math.h>
#include <string.h>

#include "monitor/json.h"

static size_t widest(const tr_task *task)
{
    size_t most = strlen("stage");
    for (size_t i = 0; i < task->n; i++) most = tr_max_size(most, strlen(task->stage[i].name));
    return most;
}

static void show_workers(FILE *out, const struct tr_stage_sum *s)
{
    char text[32];
    if (s->fewest == s->most) snprintf(text, sizeof text, "%d", s->most);
    else snprintf(text, sizeof text, "%d to %d", s->fewest, s->most);
    fprintf(out, "  %9s", text);
}

/* A line begins with the name of the job's task that all this is one of, if it has several. */
static void begin_line(FILE *out, const char *of)
{
    if (of) fprintf(out, "%s: ", of);
}

void tr_write_stages(FILE *file, const struct tr_stage_sum *sums, size_t n)
{
    fputs("  \"stages\": [", file);
    for (size_t i = 0; i < n; i++) {
        const struct tr_stage_sum *s = &sums[i];
        fputs(i ? ",\n    {\"name\": " : "\n    {\"name\": ", file);
        tr_json_text(file, s->name);
        fprintf(
            file,
            ", \"runs\": %d, \"fewest_workers\": %d, \"most_workers\": %d, \"clocks\": %lld, \"seconds\": ",
            s->runs, s->fewest, s->most, (long long)s->clocks);
        tr_json_real(file, s->seconds);
        fputs(", \"worker_seconds\": ", file);
        tr_json_real(file, s->worker_seconds);
        fputs(", \"transition_seconds\": ", file);
        tr_json_real(file, s->transition);
        fputs(", \"search\": ", file);
        tr_json_text(file, s->degree);
        fputs("}", file);
    }
    fputs("\n  ],\n", file);
}

void tr_show_stages(FILE *out, const char *of, const tr_task *task, const struct tr_stage_sum *sums)
{
    int width = (int)widest(task);
    begin_line(out, of);
    fprintf(out, "%-*s  %6s  %9s  %8s  %9s  %14s  %10s\n", width, "stage", "runs", "workers", "clocks",
            "seconds", "worker seconds", "going over");
    for (size_t i = 0; i < task->n; i++) {
        const struct tr_stage_sum *s = &sums[i];
        if (s->runs == 0) continue;
        begin_line(out, of);
        fprintf(out, "%-*s  %6d", width, s->name, s->runs);
        show_workers(out, s);
        fprintf(out, "  %8lld  %9.3f  %14.3f", (long long)s->clocks, s->seconds, s->worker_seconds);
        if (isfinite(s->transition)) fprintf(out, "  %7.3f ms\n", 1e3 * s->transition);
        else fprintf(out, "  %10s\n", "-");
        if (!*s->degree) continue;
        begin_line(out, of);
        fprintf(out, "%-*s  %s\n", width, "", s->degree);
    }
}
