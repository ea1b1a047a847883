#define _GNU_SOURCE
#include "monitor/display.h"

#include <math.h>
#include "monitor/terminal.h"

enum tr_display_style tr_display_choose(int wish, FILE *out)
{
    if (wish == TR_PROGRESS_NO) return TR_DISPLAY_SILENT;
    return wish == TR_PROGRESS_YES || tr_terminal_shows(out) ? TR_DISPLAY_TABLE : TR_DISPLAY_LINES;
}

/* ---- numbers as people read them ---- */

struct tr_duration tr_duration(double seconds)
{
    struct tr_duration d = {"-"};
    if (!isfinite(seconds)) return d;
    long s = lround(seconds);
    if (seconds < 59.5) snprintf(d.text, sizeof d.text, "%.2f s", seconds);
    else if (s < 3600) snprintf(d.text, sizeof d.text, "%ld:%02ld min", s / 60, s % 60);
    else snprintf(d.text, sizeof d.text, "%ld:%02ld:%02ld h", s / 3600, s / 60 % 60, s % 60);
    return d;
}

/* A number below 1000 and the letter that makes it whole. */
struct scaled {
    double number;
    const char *letter;
};

static struct scaled scale(double number)
{
    static const char *const letters[] = {"", "k", "M", "G", "T"};
    size_t i = 0;
    for (; number >= 999.5 && i + 1 < sizeof letters / sizeof *letters; i++) number /= 1000;
    return (struct scaled){number, letters[i]};
}

struct tr_size_text tr_bytes(double bytes)
{
    struct tr_size_text t = {"-"};
    struct scaled s = scale(bytes);
    if (isfinite(bytes)) snprintf(t.text, sizeof t.text, "%.3g %sB", s.number, s.letter);
    return t;
}

struct rate {
    char text[32];
};

static struct rate rate(double number)
{
    struct rate r = {"-"};
    struct scaled s = scale(number);
    if (isfinite(number)) snprintf(r.text, sizeof r.text, "%.3g%s", s.number, s.letter);
    return r;
}

/* "1.20e-02", or "~1.20e-02" for an estimate: under SSP and ASP workers see different parameters. */
struct gap {
    char text[32];
};

static struct gap gap(const struct tr_progress_row *row)
{
    struct gap g = {"-"};
    if (isfinite(row->evaluation.gap))
        snprintf(g.text, sizeof g.text, "%s%.2e", row->exact ? "" : "~", row->evaluation.gap);
    return g;
}

/* The objective, or "-" where it is no number any more. */
struct objective {
    char text[32];
};

static struct objective objective(const struct tr_progress_row *row)
{
    struct objective o = {"-"};
    if (isfinite(row->evaluation.objective))
        snprintf(o.text, sizeof o.text, "%.8g", row->evaluation.objective);
    return o;
}

/* ---- a row ---- */

/* What is derived from a row and the one shown before it. */
struct shown {
    struct rate rate;
    struct tr_duration time, left;
};

static struct shown derive(const struct tr_display *d, const struct tr_progress_row *row)
{
    double epochs = (row->epoch - d->shown_epoch) / (row->seconds - d->shown_seconds);
    double left = row->seconds * (double)(d->clocks - row->clock) / (double)row->clock;
    bool over = row->evaluation.stop || row->clock >= d->clocks;
    return (struct shown){rate(d->rows ? epochs * (double)d->rows : epochs), tr_duration(row->seconds),
                          tr_duration(over ? 0 : left)};
}

static const char *rate_unit(const struct tr_display *d)
{
    return d->rows ? "rows/s" : "epochs/s";
}

static void show_header(const struct tr_display *d)
{
    fprintf(d->out, "%8s  %11s  %12s", "epoch", "time", d->objective_name);
    if (d->with_gap) fprintf(d->out, "  %9s", "gap");
    if (d->metric_name) fprintf(d->out, "  %10s", d->metric_name);
    fprintf(d->out, "  %9s  %11s\n", rate_unit(d), "time left");
}

static void show_in_table(const struct tr_display *d, const struct tr_progress_row *row)
{
    struct shown s = derive(d, row);
    fprintf(d->out, "%8.2f  %11s  %12s", row->epoch, s.time.text, objective(row).text);
    if (d->with_gap) fprintf(d->out, "  %9s", gap(row).text);
    if (d->metric_name) fprintf(d->out, "  %10.5f", row->evaluation.metric);
    fprintf(d->out, "  %9s  %11s\n", s.rate.text, s.left.text);
}

static void show_as_line(const struct tr_display *d, const struct tr_progress_row *row)
{
    struct shown s = derive(d, row);
    if (d->task) fprintf(d->out, "%s: ", d->task);
    fprintf(d->out, "epoch %.2f  time %s  %s %s", row->epoch, s.time.text, d->objective_name,
            objective(row).text);
    if (d->with_gap) fprintf(d->out, "  gap %s", gap(row).text);
    if (d->metric_name) fprintf(d->out, "  %s %.5f", d->metric_name, row->evaluation.metric);
    fprintf(d->out, "  %s %s  left %s\n", rate_unit(d), s.rate.text, s.left.text);
}

static void show(struct tr_display *d, const struct tr_progress_row *row)
{
    if (d->style == TR_DISPLAY_TABLE && !d->begun) show_header(d);
    if (d->style == TR_DISPLAY_TABLE) show_in_table(d, row);
    if (d->style == TR_DISPLAY_LINES) show_as_line(d, row);
    fflush(d->out);
    d->begun = true;
    d->holds = false;
    d->shown_epoch = row->epoch;
    d->shown_seconds = row->seconds;
}

/* ---- loading ---- */

void tr_display_loading(struct tr_display *d, const struct tr_loading *l)
{
    if (l->seconds < d->loading_shown) d->loading_shown = 0; /* the next files */
    bool due = l->seconds >= 1 && l->seconds - d->loading_shown >= fmax(1, l->seconds / 6);
    if (d->style != TR_DISPLAY_TABLE || !due || l->done <= 0) return;
    d->loading_shown = l->seconds;
    double speed = l->done / l->seconds, left = (l->total - l->done) / speed;
    fprintf(d->out, "loading:       %s, about %s of %s (%.0f %%), %s/s, %s left\n", l->what,
            tr_bytes(l->done).text, tr_bytes(l->total).text, 100 * l->done / l->total, tr_bytes(speed).text,
            tr_duration(left).text);
    fflush(d->out);
}

/* ---- which rows ---- */

static bool is_due(const struct tr_display *d, const struct tr_progress_row *row)
{
    double pause = fmin(fmax(1, row->seconds / 20), 60);
    bool doubled = (d->seen & (d->seen - 1)) == 0;
    return doubled || row->seconds - d->shown_seconds >= pause || row->clock >= d->clocks;
}

void tr_display_row(struct tr_display *d, const tr_stage *stage, const struct tr_progress_row *row)
{
    if (d->style == TR_DISPLAY_SILENT) return;
    if (d->seen++ == 0) {
        d->clocks = stage->clocks;
        d->objective_name = stage->objective_name ? stage->objective_name : "objective";
        d->metric_name = stage->metric_name;
        d->with_gap = isfinite(row->evaluation.gap);
    }
    if (is_due(d, row)) {
        show(d, row);
    } else {
        d->held = *row;
        d->holds = true;
    }
}

void tr_display_end(struct tr_display *d)
{
    if (d->holds) show(d, &d->held);
}
