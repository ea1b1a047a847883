#define _GNU_SOURCE
#include "stage/scheduler.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

static const double tolerance = 0.05; /* times as near as this are the same */
static const double clearly_faster = 0.8, clearly_slower = 2.0;
static const double near_best = 1.25; /* of those, all clocks are looked at before the choice */
static const double widest_gap = 1.5; /* between neighbours of the best that is left untried */
static const double drift = 1.5;

enum {
    FIRST_CLOCKS = 3, /* of a degree, before it is clear whether it needs more */
    MOST_GAPS = 4,
    /* Parts of all clocks: what a degree may take in full and to begin with, and what the first degree may cost at the
     * highest, where every worker counts. */
    FULL_SHARE = 30,
    FIRST_SHARE = 100,
    START_SHARE = 30
};

/* ---- degrees: multiples of the unit ---- */

static int clamp(int64_t value, int least, int most)
{
    return value < least ? least : value > most ? most : (int)value;
}

static int rounded(const struct tr_degree *d, double parallelism)
{
    int64_t units = llround(parallelism / d->unit);
    return clamp(units * d->unit, d->least, d->most);
}

static int doubled(const struct tr_degree *d, int parallelism)
{
    return clamp(2 * (int64_t)parallelism, d->least, d->most);
}

static int halved(const struct tr_degree *d, int parallelism)
{
    return clamp(parallelism / 2 / d->unit * d->unit, d->least, d->most);
}

/* ---- measurements ---- */

static double median_of(const double *seconds, int n)
{
    double sorted[TR_DEGREE_CLOCKS];
    for (int i = 0; i < n; i++) {
        int at = i;
        for (; at > 0 && sorted[at - 1] > seconds[i]; at--) sorted[at] = sorted[at - 1];
        sorted[at] = seconds[i];
    }
    return n % 2 ? sorted[n / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2;
}

static void add_sample(struct tr_degree_point *point, double seconds)
{
    if (point->samples == TR_DEGREE_CLOCKS) {
        memmove(point->seconds, point->seconds + 1, (TR_DEGREE_CLOCKS - 1) * sizeof *point->seconds);
        point->samples--;
    }
    point->seconds[point->samples++] = seconds;
}

/* The first point that is not below this degree: where it stands, or would. */
static int place_of(const struct tr_degree *d, int parallelism)
{
    int at = 0;
    while (at < d->points && d->point[at].parallelism < parallelism) at++;
    return at;
}

static bool tried(const struct tr_degree *d, int parallelism)
{
    int at = place_of(d, parallelism);
    return at < d->points && d->point[at].parallelism == parallelism;
}

static struct tr_degree_point *point_of(struct tr_degree *d, int parallelism)
{
    int at = place_of(d, parallelism);
    if (!tried(d, parallelism)) {
        memmove(&d->point[at + 1], &d->point[at], (size_t)(d->points - at) * sizeof *d->point);
        d->point[at] = (struct tr_degree_point){.parallelism = parallelism, .median = HUGE_VAL};
        d->points++;
    }
    return &d->point[at];
}

/* Least time a clock of all degrees but this one; infinite if there is no other. */
static double fastest_but(const struct tr_degree *d, int parallelism)
{
    double least = HUGE_VAL;
    for (int i = 0; i < d->points; i++)
        if (d->point[i].parallelism != parallelism) least = fmin(least, d->point[i].median);
    return least;
}

/* The smallest of the degrees that are as fast as the fastest. */
static int best_point(const struct tr_degree *d)
{
    double most = (1 + tolerance) * fastest_but(d, -1);
    int i = 0;
    while (d->point[i].median > most) i++;
    return i;
}

/* ---- the search ---- */

static void measure(struct tr_degree *d, int parallelism, int clocks)
{
    d->parallelism = parallelism;
    d->wanted = clocks;
}

static void found(struct tr_degree *d)
{
    const struct tr_degree_point *best = &d->point[best_point(d)];
    d->phase = TR_DEGREE_FOUND;
    d->parallelism = best->parallelism;
    d->recent = (struct tr_degree_point){.parallelism = best->parallelism};
}

/* Degrees that may turn out to be the best are looked at in full, and the one below the best in any case: if a few slow
 * clocks made it look bad, the search has gone the wrong way. */
static bool confirm(struct tr_degree *d)
{
    double most = near_best * fastest_but(d, -1);
    int best = best_point(d);
    for (int i = 0; i < d->points; i++) {
        const struct tr_degree_point *point = &d->point[i];
        if (point->samples >= d->full || (point->median > most && i != best - 1)) continue;
        measure(d, point->parallelism, d->full);
        return true;
    }
    return false;
}

/* A degree between two neighbours that were tried, if they are far apart; otherwise 0. */
static int between(const struct tr_degree *d, int low, int high)
{
    if (low < 0 || high >= d->points) return 0;
    int a = d->point[low].parallelism, b = d->point[high].parallelism;
    int middle = rounded(d, sqrt((double)a * b));
    return b > widest_gap * a && middle > a && middle < b ? middle : 0;
}

/* Below the best: not where even workers that all count in full would not make it as fast as the best. */
static int gap_below(const struct tr_degree *d, int best)
{
    int middle = between(d, best - 1, best);
    if (!middle) return 0;
    const struct tr_degree_point *low = &d->point[best - 1];
    double hoped = low->median * low->parallelism / middle;
    return hoped <= (1 + tolerance) * fastest_but(d, -1) ? middle : 0;
}

/* Beyond the best, where that is the lowest or the highest that was tried; otherwise 0. */
static int beyond(const struct tr_degree *d, int best)
{
    int parallelism = d->point[best].parallelism;
    int next = best == 0 ? halved(d, parallelism) : parallelism;
    if (next == parallelism && best == d->points - 1) next = doubled(d, parallelism);
    return next == parallelism ? 0 : next;
}

static int in_a_gap(struct tr_degree *d, int best)
{
    if (d->gaps == MOST_GAPS) return 0;
    int below = gap_below(d, best), above = between(d, best, best + 1);
    bool take_below = below && (!above || d->point[best - 1].median <= d->point[best + 1].median);
    d->gaps += below || above;
    return take_below ? below : above;
}

static void search_around(struct tr_degree *d)
{
    d->phase = TR_DEGREE_AROUND;
    if (confirm(d)) return;
    int best = best_point(d), next = beyond(d, best);
    if (!next) next = in_a_gap(d, best);
    if (!next || d->points == TR_DEGREE_POINTS) found(d);
    else measure(d, next, d->first);
}

/* Ends at the second degree in turn that is no faster, and at the first that is slower. */
static void search_up(struct tr_degree *d)
{
    double time = point_of(d, d->parallelism)->median, fastest = fastest_but(d, d->parallelism);
    bool first = d->points == 1;
    d->level = first || time < (1 - tolerance) * fastest ? 0 : d->level + 1;
    bool slower = !first && time > (1 + tolerance) * fastest;
    int next = doubled(d, d->parallelism);
    if (!slower && d->level < 2 && next > d->parallelism) measure(d, next, d->first);
    else search_around(d);
}

/* Whether the degree that is being measured needs more clocks than it has had so far. */
static bool unclear(const struct tr_degree *d, const struct tr_degree_point *point)
{
    double fastest = fastest_but(d, point->parallelism);
    return isfinite(fastest) && point->median >= clearly_faster * fastest &&
           point->median <= clearly_slower * fastest;
}

static void step(struct tr_degree *d)
{
    struct tr_degree_point *point = point_of(d, d->parallelism);
    point->median = median_of(point->seconds, point->samples);
    if (point->samples < d->wanted) return;
    if (d->wanted < d->full && unclear(d, point)) {
        d->wanted = d->full;
        return;
    }
    if (d->phase == TR_DEGREE_UP) search_up(d);
    else search_around(d);
}

static void search_from(struct tr_degree *d, int start)
{
    d->phase = TR_DEGREE_UP;
    d->points = d->level = d->gaps = 0;
    d->searches++;
    measure(d, start, d->first);
}

/* Where the first degree's clocks would cost too large a part of all: higher, up to the geometric middle. */
static int first_degree(const struct tr_degree *d)
{
    double affordable = (double)START_SHARE * d->most / (double)d->clocks;
    return rounded(d, fmin(affordable, sqrt((double)d->least * d->most)));
}

static void set_clocks(struct tr_degree *d, int64_t clocks)
{
    d->clocks = clocks;
    d->full = clamp(clocks / FULL_SHARE, 1, TR_DEGREE_CLOCKS);
    d->first = clamp(clocks / FIRST_SHARE, 1, FIRST_CLOCKS);
    search_from(d, first_degree(d));
}

/* ---- interface ---- */

void tr_degree_begin(struct tr_degree *d, const struct tr_degree_options *options)
{
    *d = (struct tr_degree){.unit = tr_max_int(1, options->unit)};
    int64_t units = (tr_max_int(1, options->least) + (int64_t)d->unit - 1) / d->unit;
    d->most = tr_max_int(1, options->most / d->unit) * d->unit;
    d->least = clamp(units * d->unit, d->unit, d->most);
    if (options->clocks > 0) set_clocks(d, options->clocks);
}

struct tr_substage tr_degree_next(struct tr_degree *d, int64_t clocks_left)
{
    if (!d->searches) set_clocks(d, clocks_left > 0 ? clocks_left : 1);
    struct tr_substage sub = {.parallelism = d->parallelism, .clocks = clocks_left, .searching = true};
    sub.searching = d->phase != TR_DEGREE_FOUND && d->least < d->most;
    int missing = d->wanted - (tried(d, d->parallelism) ? d->point[place_of(d, d->parallelism)].samples : 0);
    if (sub.searching && missing < sub.clocks) sub.clocks = missing;
    return sub;
}

/* Starts the search again from the degree that was found if the time of its clocks has changed. */
static void look_for_drift(struct tr_degree *d)
{
    if (d->recent.samples < TR_DEGREE_CLOCKS || d->least == d->most) return;
    double now = median_of(d->recent.seconds, d->recent.samples);
    double then = d->point[place_of(d, d->parallelism)].median;
    if (now > drift * then || now * drift < then) search_from(d, d->parallelism);
}

void tr_degree_report(struct tr_degree *d, const double *seconds, size_t n)
{
    bool searching = d->phase != TR_DEGREE_FOUND;
    struct tr_degree_point *point = searching ? point_of(d, d->parallelism) : &d->recent;
    for (size_t i = 0; i < n; i++)
        if (isfinite(seconds[i]) && seconds[i] >= 0) add_sample(point, seconds[i]);
    if (!searching) look_for_drift(d);
    else if (point->samples) step(d);
}

/* ---- words ---- */

static void write_time(FILE *file, double seconds)
{
    if (seconds >= 1) fprintf(file, "%.3g s", seconds);
    else if (seconds >= 1e-3) fprintf(file, "%.3g ms", 1e3 * seconds);
    else fprintf(file, "%.3g us", 1e6 * seconds);
}

void tr_degree_describe(const struct tr_degree *d, char *text, size_t size)
{
    char *all = NULL;
    size_t length = 0;
    bool any = false;
    FILE *file = open_memstream(&all, &length);
    if (size) *text = '\0';
    if (!file) return;
    fputs("auto: ", file);
    for (int i = 0; i < d->points; i++) {
        if (!d->point[i].samples) continue;
        fprintf(file, "%s%d: ", any ? ", " : "", d->point[i].parallelism);
        write_time(file, d->point[i].median);
        any = true;
    }
    fputs(any ? " -> " : "-> ", file);
    if (d->phase == TR_DEGREE_FOUND) fprintf(file, "%d", d->parallelism);
    else fputs("…", file);
    if (d->searches > 1) fprintf(file, " (search %d)", d->searches);
    fclose(file);
    snprintf(text, size, "%s", all ? all : "");
    free(all);
}
