#define _GNU_SOURCE
#include "monitor/record.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/terminal.h"

enum tr_display_style tr_display_choose(int setting, FILE *out)
{
    if (setting == TR_PROGRESS_NO) return TR_DISPLAY_SILENT;
    return setting == TR_PROGRESS_YES || tr_terminal_shows(out) ? TR_DISPLAY_TABLE : TR_DISPLAY_LINES;
}

/* The columns of a row as text. The rate is computed from the difference to the last row that was shown. An estimated gap, as under
 * SSP and ASP, starts with ~. */
struct shown {
    struct tr_number_text objective, gap, rate, time, left;
};

double tr_display_left(const struct tr_display *d, const struct tr_progress_row *row, bool *by_gap)
{
    *by_gap = false;
    if (row->evaluation.stop || row->clock >= d->clocks) return 0;
    double left = row->seconds * (double)(d->clocks - row->clock) / (double)row->clock;
    int64_t known = d->gaps < TR_DISPLAY_GAPS ? d->gaps : TR_DISPLAY_GAPS;
    double estimate = NAN;
    if (isfinite(row->evaluation.gap) && known >= 3 && d->gap_goal > 0) {
        /* assumes that the logarithm of the gap continues to fall as in the later half of the stored gaps */
        int64_t now = (d->gaps - 1) % TR_DISPLAY_GAPS, then = (d->gaps - 1 - known / 2) % TR_DISPLAY_GAPS;
        double fall = log(d->gap[then] / d->gap[now]), seconds = d->gap_seconds[now] - d->gap_seconds[then];
        if (fall > 0) estimate = fmax(0, seconds * log(d->gap[now] / d->gap_goal) / fall);
    }
    *by_gap = estimate < left;
    return *by_gap ? estimate : left;
}

static struct shown derive(const struct tr_display *d, const struct tr_progress_row *row)
{
    struct shown s = {.objective = {"-"}, .gap = {"-"}};
    const tr_evaluation *e = &row->evaluation;
    /* the last row shows the best model, which may be of an earlier epoch: then the difference is negative */
    double epochs = fmax(row->epoch - d->shown_epoch, 0) / (row->seconds - d->shown_seconds);
    bool over = e->stop || row->clock >= d->clocks;
    if (isfinite(e->objective)) snprintf(s.objective.text, sizeof s.objective.text, "%.8g", e->objective);
    if (isfinite(e->gap))
        snprintf(s.gap.text, sizeof s.gap.text, "%s%.2e", row->exact && !e->estimated ? "" : "~", e->gap);
    s.rate = tr_rate(d->units > 0 ? epochs * d->units : epochs);
    s.time = tr_duration(row->seconds);
    bool estimated;
    double most = tr_display_left(d, row, &estimated);
    bool bound = isfinite(e->gap) && !over && !estimated; /* training may end earlier by its gap */
    snprintf(s.left.text, sizeof s.left.text, "%s%.*s",
             bound       ? "<"
             : estimated ? "~"
                         : "",
             (int)sizeof s.left.text - 2, tr_duration(most).text);
    return s;
}

/* ---- a row ---- */

static const char *rate_unit(const struct tr_display *d)
{
    return d->units > 0 ? d->rate : "epochs/s";
}

static int rate_width(const struct tr_display *d)
{
    return tr_max_int(8, (int)strlen(rate_unit(d)));
}

/* A terminal with less than 76 columns shows no rate, with less than 66 no gap either. */
static bool has_rate(const struct tr_display *d)
{
    return tr_terminal_columns(d->out, 80) >= 76;
}

static bool has_gap(const struct tr_display *d)
{
    return d->with_gap && tr_terminal_columns(d->out, 80) >= 66;
}

static void display_show(struct tr_display *d, const struct tr_progress_row *row)
{
    struct shown s = derive(d, row);
    FILE *out = d->out;
    tr_live_end();
    if (d->style == TR_DISPLAY_TABLE && !d->begun) {
        tr_printf(out, "%7s  %9s  %12s", "epoch", "time", d->objective_name);
        if (has_gap(d)) tr_printf(out, "  %9s", "gap");
        for (int k = 0; k < d->metrics; k++) tr_printf(out, "  %8s", d->metric[k]);
        if (has_rate(d)) tr_printf(out, "  %*s", rate_width(d), rate_unit(d));
        tr_printf(out, "  %10s\n", "time left");
    }
    if (d->style == TR_DISPLAY_TABLE) {
        tr_printf(out, "%7.2f  %9s  %12s", row->epoch, s.time.text, s.objective.text);
        if (has_gap(d)) tr_printf(out, "  %9s", s.gap.text);
        for (int k = 0; k < d->metrics; k++)
            fprintf(out, "  %*.5f", tr_max_int(8, (int)strlen(d->metric[k])), row->evaluation.metric[k]);
        if (has_rate(d)) tr_printf(out, "  %*s", rate_width(d), s.rate.text);
        tr_printf(out, "  %10s\n", s.left.text);
    }
    if (d->style == TR_DISPLAY_LINES) {
        if (d->task) tr_printf(out, "%s: ", d->task);
        tr_printf(out, "epoch %.2f  time %s  %s %s", row->epoch, s.time.text, d->objective_name,
                  s.objective.text);
        if (d->with_gap)
            tr_printf(out, "  gap %s%s", s.gap.text, row->evaluation.estimated ? " (estimated)" : "");
        for (int k = 0; k < d->metrics; k++)
            tr_printf(out, "  %s %.5f", d->metric[k], row->evaluation.metric[k]);
        tr_printf(out, "  %s %s  left %s\n", rate_unit(d), s.rate.text, s.left.text);
    }
    fflush(out);
    d->begun = true;
    d->holds = false;
    d->shown = row->evaluation;
    d->shown_epoch = row->epoch;
    d->shown_seconds = row->seconds;
}

/* ---- loading ---- */

void tr_display_loading(struct tr_display *d, const struct tr_loading *l)
{
    if (l->seconds < d->loading_shown) d->loading_shown = 0; /* loading of the next files has started */
    bool due = l->seconds >= 1 && l->seconds - d->loading_shown >= 0.2;
    if (d->style != TR_DISPLAY_TABLE || !due || l->done <= 0) return;
    d->loading_shown = l->seconds;
    double speed = l->done / l->seconds;
    char more[96];
    snprintf(more, sizeof more, "%s/s, %s left", tr_bytes(speed).text,
             tr_duration((l->total - l->done) / speed).text);
    tr_live_bar(d->out, l->what, l->done / l->total, more);
}

/* ---- which rows ---- */

void tr_display_row(struct tr_display *d, const tr_stage *stage, const struct tr_progress_row *row)
{
    const tr_evaluation *e = &row->evaluation;
    if (d->stage != stage->name) d->gaps = 0;
    d->stage = stage->name;
    d->clocks = stage->clocks;
    d->gap_goal = stage->gap_goal;
    if (e->gap > 0) {
        d->gap[d->gaps % TR_DISPLAY_GAPS] = e->gap;
        d->gap_seconds[d->gaps++ % TR_DISPLAY_GAPS] = row->seconds;
    }
    if (d->style == TR_DISPLAY_SILENT) return;
    if (d->seen++ == 0) {
        d->objective_name = stage->objective_name ? stage->objective_name : "objective";
        int fitting = d->style == TR_DISPLAY_TABLE ? (tr_terminal_columns(d->out, 80) - 64) / 10 : TR_METRICS;
        bool any = false; /* LDA has its metric only at the end */
        for (int k = 0; k < TR_METRICS; k++) any = any || !isnan(e->metric[k]);
        for (d->metrics = 0; any && d->metrics < TR_METRICS && stage->metric[d->metrics].name; d->metrics++) {
            if (d->metrics > 0 && d->metrics >= fitting) break;
            d->metric[d->metrics] = stage->metric[d->metrics].name;
        }
        d->with_gap = !isnan(e->gap); /* an infinite gap is not yet proven but may be later */
    }
    /* omits a row that would equal the last one, as after a stage that changes none of these values */
    bool same_metric = d->metrics == 0 || e->metric[0] == d->shown.metric[0];
    if (d->begun && row->epoch == d->shown_epoch && same_metric && e->estimated == d->shown.estimated &&
        fabs(e->objective - d->shown.objective) < 1e-8 * fabs(e->objective))
        return;
    double pause = fmin(fmax(1, row->seconds / 20), 60);
    bool doubled = (d->seen & (d->seen - 1)) == 0;
    if (doubled || row->seconds - d->shown_seconds >= pause || row->clock >= d->clocks || e->stop) {
        display_show(d, row);
        return;
    }
    d->held = *row; /* the row is shown as a bar until the next row */
    d->holds = true;
    if (d->style != TR_DISPLAY_TABLE || row->seconds - d->live_seconds < 0.2) return;
    struct shown s = derive(d, row);
    char what[64], more[160];
    d->live_seconds = row->seconds;
    snprintf(what, sizeof what, "epoch %.2f", row->epoch);
    snprintf(more, sizeof more, "%s %s  %s  left %s", s.rate.text, rate_unit(d), s.objective.text,
             s.left.text);
    tr_live_bar(d->out, what, (double)row->clock / (double)d->clocks, more);
}

void tr_display_end(struct tr_display *d)
{
    if (d->holds) display_show(d, &d->held);
}

/* ---- stages ---- */

/* Starts a line with the name of the task; NULL: a job without tasks. */
static void begin_line(FILE *out, const char *of)
{
    if (of) tr_printf(out, "%s: ", of);
}

void tr_display_stages(FILE *out, const char *of, const struct tr_stage_sum *sums, size_t n)
{
    int width = (int)strlen("stage"), columns = tr_terminal_columns(out, 200);
    for (size_t i = 0; i < n; i++) width = tr_max_int(width, (int)strlen(sums[i].name));
    bool wide = columns >= width + 70; /* false: the last two columns are omitted */
    tr_live_end();
    begin_line(out, of);
    tr_printf(out, "%-*s  %6s  %9s  %8s  %9s", width, "stage", "runs", "workers", "clocks", "seconds");
    if (wide) tr_printf(out, "  %14s  %10s", "worker seconds", "going over");
    fputc('\n', out);
    for (size_t i = 0; i < n; i++) {
        const struct tr_stage_sum *s = &sums[i];
        char workers[32], transition[32] = "-";
        if (s->runs == 0) continue;
        if (s->fewest == s->most) snprintf(workers, sizeof workers, "%d", s->most);
        else snprintf(workers, sizeof workers, "%d to %d", s->fewest, s->most);
        if (isfinite(s->transition)) snprintf(transition, sizeof transition, "%7.3f ms", 1e3 * s->transition);
        begin_line(out, of);
        tr_printf(out, "%-*s  %6d  %9s  %8lld  %9.3f", width, s->name, s->runs, workers, (long long)s->clocks,
                  s->seconds);
        if (wide) tr_printf(out, "  %14.3f  %10s", s->worker_seconds, transition);
        fputc('\n', out);
        if (!*s->degree) continue;
        char line[512];
        begin_line(out, of);
        snprintf(line, sizeof line, "%-*s  %s", width, "", s->degree);
        tr_put_wrapped(out, line, width + 2);
    }
}
