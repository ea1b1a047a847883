/* trireme plot: curves of one or several runs, as their metrics.csv has them, drawn by gnuplot. */
#define _GNU_SOURCE
#include "cli/cli.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "cli/gnuplot.h"
#include "cli/words.h"
#include "job/text.h"

static const char usage[] = "trireme plot RUN... [-o FILE] [--what W] [--over time|epoch]\n"
                            "\n"
                            "Draws curves of the runs in these folders, by gnuplot: in characters on the "
                            "terminal, or into FILE, which ends in\n"
                            ".svg, .png or .pdf. Without --what the objective, and below it the metric on "
                            "the test data, if there is one. Lines\n"
                            "from top to bottom are restarts, short ones at the bottom checkpoints.\n"
                            "  -o FILE       appears when it is complete\n"
                            "  --what W      objective, metric, gap, speed (epochs a second), rows (a "
                            "second), bytes (pulled and pushed), "
                            "waits\n"
                            "                (the part of the workers' time that is not computing), or scale "
                            "(seconds of training of these "
                            "runs\n"
                            "                over their ranks)\n"
                            "  --over X      epoch, or time (the default)\n";

/* What can be drawn: columns of metrics.csv, which are counted from 1. */
static const struct curve {
    const char *name, *using, *label;
    int column; /* that must not be empty */
    bool logarithmic;
} curves[] = {{"objective", "4", "objective", 4, false},
              {"metric", "6", "test metric", 6, false},
              {"gap", "5", "gap", 5, true},
              {"speed", "($2/$1)", "epochs per second", 2, false},
              {"rows", "($2*%.17g/$1)", "rows per second", 2, false},
              {"bytes", "(($7+$8)/1e6)", "MB pulled and pushed", 7, false},
              {"scale", NULL, "seconds of training", 0, true},
              {"waits", "(($12+$13+$14)/($11+$12+$13+$14))", "part of time waited", 12, false}};
enum { CURVES = sizeof curves / sizeof *curves };

struct plot {
    char **run;
    int runs;
    const char *output, *what, *over;
};

/* Whether any line of the run's metrics.csv has a number in that column. */
static int look(const char *run, int column, bool *any)
{
    char *path, line[4096];
    TR_TRY(tr_format(&path, "%s/metrics.csv", run));
    FILE *file = fopen(path, "re");
    free(path);
    *any = false;
    if (!file) return tr_fail(TR_ERR_NO_INPUT, "%s: no run: there is no metrics.csv in it", run);
    bool header = true;
    for (; !*any && fgets(line, sizeof line, file); header = false) {
        const char *at = line;
        for (int i = 1; i < column && at; i++) at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL;
        *any = !header && at && strchr(",\n", *at) == NULL;
    }
    fclose(file);
    return TR_OK;
}

/* A number of the run's summary.json, or of status.json where there is none yet; NaN: none. */
static double number_of(const char *run, const char *name)
{
    static const char *const files[] = {"summary.json", "status.json"};
    char *path, line[4096], key[64];
    double value = NAN;
    snprintf(key, sizeof key, "  \"%s\": ", name);
    for (int i = 0; i < 2 && isnan(value); i++) {
        if (tr_format(&path, "%s/%s", run, files[i]) != TR_OK) return NAN;
        FILE *file = fopen(path, "re");
        free(path);
        while (file && fgets(line, sizeof line, file))
            if (strncmp(line, key, strlen(key)) == 0) sscanf(line + strlen(key), "%lf", &value);
        if (file) fclose(file);
    }
    return value;
}

/* What befell a run: restarts from top to bottom, checkpoints as short lines at the bottom, in the colour of its curve. */
static void draw_marks(FILE *script, const struct plot *p, int run)
{
    char *path, line[4096];
    if (tr_format(&path, "%s/events.csv", p->run[run]) != TR_OK) return;
    FILE *file = fopen(path, "re");
    free(path);
    while (file && fgets(line, sizeof line, file)) {
        char *rest = line, *field[6] = {""};
        for (int i = 0; i < 6 && rest; i++) field[i] = strsep(&rest, ",");
        const char *at = field[strcmp(p->over, "epoch") == 0 ? 2 : 1];
        double x = strtod(at ? at : "", NULL);
        bool restart = field[5] && strcmp(field[5], "restart") == 0;
        if (!field[5] || !at || !*at || (!restart && strcmp(field[5], "checkpoint") != 0)) continue;
        fprintf(script,
                "set arrow from %.9g, graph 0 to %.9g, graph %s nohead linetype %d linewidth 1 dashtype %d\n",
                x, x, restart ? "1" : "0.05", run + 1, restart ? 2 : 1);
    }
    if (file) fclose(file);
}

/* Seconds of training over ranks, and what they would be if twice the ranks took half. */
static int draw_scale(FILE *script, const struct plot *p)
{
    double least = INFINITY, most = 0, work = 0;
    fputs("$runs << end\n", script);
    for (int i = 0; i < p->runs; i++) {
        double ranks = number_of(p->run[i], "ranks"), seconds = number_of(p->run[i], "train_seconds");
        if (!(ranks > 0) || !(seconds > 0))
            return tr_fail(TR_ERR_NO_INPUT, "%s: no ranks and train_seconds in a summary.json", p->run[i]);
        fprintf(script, "%.0f %.9g\n", ranks, seconds);
        if (ranks < least) least = ranks, work = ranks * seconds;
        most = fmax(most, ranks);
    }
    fprintf(script,
            "end\nset xlabel 'ranks'\nset logscale xy 2\nset title 'seconds of training'\n"
            "set xrange [%.9g:%.9g]\nplot $runs smooth unique with linespoints title 'these runs', "
            "%.17g/x with lines dashtype 2 title 'in proportion'\n",
            least / 1.2, most * 1.2, work);
    return TR_OK;
}

static int column_over(const struct plot *p)
{
    return strcmp(p->over, "epoch") == 0 ? 2 : 1;
}

static void put_file(FILE *script, const struct plot *p, int run)
{
    tr_drawing_quote(script, p->run[run], "/metrics.csv");
    fputs(" using ", script);
}

/* Of a run's point on that curve, in the words of gnuplot. */
static void put_height(FILE *script, const struct plot *p, const struct curve *curve, int run)
{
    /* which only rows a second has a place for */
    fprintf(script, curve->using, number_of(p->run[run], "rows"));
}

static int has_curve(const struct plot *p, const struct curve *curve, int run, bool *has)
{
    TR_TRY(look(p->run[run], curve->column, has));
    if (strchr(curve->using, '%') && isnan(number_of(p->run[run], "rows"))) *has = false;
    return TR_OK;
}

/* Takes what gnuplot has found of a run into the range of the curve. */
static void put_widening(FILE *script, const char *name, char of)
{
    fprintf(script,
            " nooutput\nif (STATS_min < %s_min_%c) { %s_min_%c = STATS_min }\n"
            "if (STATS_max > %s_max_%c) { %s_max_%c = STATS_max }\n",
            name, of, name, of, name, of, name, of);
}

/* Has gnuplot find the curve's least and greatest values, which it cannot in the middle of a multiplot. */
static int find_range(FILE *script, const struct plot *p, const struct curve *curve)
{
    const char *name = curve->name;
    for (const char *of = "xy"; *of; of++)
        fprintf(script, "%s_min_%c = 1e300\n%s_max_%c = -1e300\n", name, *of, name, *of);
    for (int i = 0; i < p->runs; i++) {
        bool has;
        TR_TRY(has_curve(p, curve, i, &has));
        if (!has) continue;
        fputs("stats ", script);
        put_file(script, p, i);
        fprintf(script, "(valid(%d) ? column(%d) : NaN)", curve->column, column_over(p));
        put_widening(script, name, 'x');
        fputs("stats ", script);
        put_file(script, p, i);
        put_height(script, p, curve, i);
        put_widening(script, name, 'y');
    }
    return TR_OK;
}

/* A range that is empty, of one point or a level line, is widened; gnuplot 6 would warn of it. */
static void set_ranges(FILE *script, const char *name)
{
    for (const char *of = "xy"; *of; of++)
        fprintf(script,
                "set autoscale %c\nwidth = %s_min_%c == 0 ? 1 : 0.01 * abs(%s_min_%c)\n"
                "if (%s_max_%c - %s_min_%c < 1e-6 * width) { set %crange [%s_min_%c - width:%s_max_%c + "
                "width] }\n",
                *of, name, *of, name, *of, name, *of, name, *of, *of, name, *of, name, *of);
}

/* One diagram with a curve for each run that has it. */
static int draw(FILE *script, const struct plot *p, const struct curve *curve, bool *drawn)
{
    bool any = false;
    fprintf(script, "set title '%s'\n%sset logscale y\n", curve->label, curve->logarithmic ? "" : "un");
    for (int i = 0; i < p->runs; i++) {
        bool has;
        TR_TRY(has_curve(p, curve, i, &has));
        if (!has) continue;
        if (!any) {
            set_ranges(script, curve->name);
            fputs("unset arrow\n", script);
            for (int k = 0; k < p->runs; k++) draw_marks(script, p, k);
        }
        fputs(any ? ", " : "plot ", script);
        put_file(script, p, i);
        fprintf(script, "%d:", column_over(p));
        put_height(script, p, curve, i);
        fprintf(script, " with lines linetype %d title ", i + 1);
        tr_drawing_quote(script, p->run[i], "");
        any = true;
    }
    fputc('\n', script);
    *drawn = *drawn || any;
    return TR_OK;
}

static int write_script(struct tr_drawing *d, const struct plot *p)
{
    const struct curve *chosen = NULL;
    bool metric = false, drawn = false;
    for (int i = 0; i < CURVES && p->what; i++)
        if (strcmp(p->what, curves[i].name) == 0) chosen = &curves[i];
    for (int i = 0; i < p->runs && !metric && !chosen; i++) TR_TRY(look(p->run[i], 6, &metric));
    TR_TRY(tr_drawing_open(d, "plot", p->output, metric ? 2 : 1));
    FILE *script = d->script;
    fprintf(script, "set datafile separator ','\nset key below autotitle columnhead\nset xlabel '%s'\n",
            strcmp(p->over, "epoch") == 0 ? "epoch" : "seconds");
    if (chosen && !chosen->using) return draw_scale(script, p);
    TR_TRY(find_range(script, p, chosen ? chosen : &curves[0]));
    if (metric) TR_TRY(find_range(script, p, &curves[1]));
    if (metric) fputs("set multiplot layout 2,1\n", script);
    TR_TRY(draw(script, p, chosen ? chosen : &curves[0], &drawn));
    if (metric) TR_TRY(draw(script, p, &curves[1], &drawn));
    if (metric) fputs("unset multiplot\n", script);
    if (drawn) return TR_OK;
    return tr_fail(TR_ERR_NO_INPUT, "%s: nothing of that has been evaluated%s", p->run[0],
                   p->runs > 1 ? ", nor in the other runs" : " yet");
}

static int take_words(struct plot *p, int argc, char **argv)
{
    static const char *const overs[] = {"time", "epoch", NULL};
    const char *names[CURVES + 1] = {NULL};
    for (int i = 0; i < CURVES; i++) names[i] = curves[i].name;
    p->over = "time";
    for (int i = 0; i < argc; i++) {
        size_t name = argv[i][0] == '-' ? strcspn(argv[i], "=") : strlen(argv[i]); /* --what=W is fine, too */
        const char **value = strcmp(argv[i], "-o") == 0                           ? &p->output
                             : strncmp(argv[i], "--what", name) == 0 && name == 6 ? &p->what
                             : strncmp(argv[i], "--over", name) == 0 && name == 6 ? &p->over
                                                                                  : NULL;
        if (value && argv[i][name] == '=') *value = argv[i] + name + 1;
        else if (value && i + 1 < argc) *value = argv[++i];
        else if (argv[i][0] == '-')
            return tr_fail(TR_ERR_USAGE, "plot: %s %s: see trireme help plot",
                           value ? "no value behind" : "unexpected", tr_shown(argv[i]).text);
        else p->run[p->runs++] = argv[i];
    }
    bool over = false, what = !p->what;
    for (int i = 0; overs[i]; i++) over = over || strcmp(overs[i], p->over) == 0;
    for (int i = 0; names[i]; i++) what = what || strcmp(names[i], p->what) == 0;
    if (!over || !what)
        return tr_fail(TR_ERR_USAGE, "plot: --%s: expected %s", over ? "what" : "over",
                       tr_shown_words(over ? names : overs).text);
    return p->runs > 0 ? TR_OK
                       : tr_fail(TR_ERR_USAGE, "plot: expected folders of runs: see trireme help plot");
}

int tr_plot_command(int argc, char **argv)
{
    struct plot p = {.run = NULL};
    struct tr_drawing drawing = {.script = NULL};
    if (tr_wants_help(argc, argv)) return fputs(usage, stdout), TR_OK;
    int status = TR_NEW(&p.run, (size_t)argc + 1);
    if (status == TR_OK) status = take_words(&p, argc, argv);
    if (status == TR_OK) status = tr_drawing_close(&drawing, write_script(&drawing, &p));
    free(p.run);
    return tr_complain(status);
}
