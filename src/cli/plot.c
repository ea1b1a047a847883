/* Drawings by gnuplot, and trireme plot: draws curves of one or several runs, from their metrics.csv. */
#define _GNU_SOURCE
#include "cli/cli.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "base/escape.h"
#include "base/terminal.h"
#include "monitor/monitor.h"

/* ---- gnuplot ---- */

/* Colours and lines as on the page of trireme watch. */
static const char style[] =
    "set linetype 1 linewidth 2 linecolor rgb '#14706a'\nset linetype 2 linewidth 2 linecolor rgb '#c05621'\n"
    "set linetype 3 linewidth 2 linecolor rgb '#4c6fb5'\nset linetype 4 linewidth 2 linecolor rgb '#a0457f'\n"
    "set linetype 5 linewidth 2 linecolor rgb '#7a8b1f'\nset linetype 6 linewidth 2 linecolor rgb '#6b5bb0'\n"
    "set linetype 7 linewidth 2 linecolor rgb '#2f9bb5'\nset linetype 8 linewidth 2 linecolor rgb '#9b7653'\n"
    "set linetype cycle 8\nset border 3 linecolor rgb '#8a949b'\nset tics nomirror\nset grid linetype 1 "
    "linewidth 1 linecolor rgb '#dfe2df'\n";

/* Writes the commands that select the output to the terminal: pixels if the terminal supports them; otherwise characters, Braille
 * dots if this gnuplot supports them (version 6). */
static void drawing_put_screen(FILE *script, int columns, int diagrams)
{
    const char *term = isatty(STDOUT_FILENO) ? getenv("TERM") : NULL;
    const char *pixels = !term                   ? "none"
                         : strstr(term, "kitty") ? "kittycairo"
                         : strstr(term, "sixel") || strstr(term, "mlterm") || strncmp(term, "foot", 4) == 0
                             ? "sixelgd"
                             : "none";
    fprintf(script,
            "if (strstrt(GPVAL_TERMINALS, '%s')) { set term %s size %d,%d\n%s} else {\n"
            "if (strstrt(GPVAL_TERMINALS, 'block ')) { set term block braille %s size %d,%d\n%s} else {\n"
            "set term dumb %d %d\n} }\nset termoption noenhanced\n",
            pixels, pixels, columns * 8, 400 * diagrams, style, term ? "ansi" : "mono", columns,
            22 * diagrams, style, columns, 22 * diagrams);
}

int tr_drawing_open(struct tr_drawing *d, const char *command, const char *output, int diagrams)
{
    static const char *const kinds[][2] = {{".svg", "svg noenhanced size 900,%d"},
                                           {".png", "pngcairo noenhanced size 900,%d"},
                                           {".pdf", "pdfcairo noenhanced size 9,%d.0"}};
    *d = (struct tr_drawing){.command = command, .output = output};
    d->script = open_memstream(&d->text, &d->length);
    if (!d->script) return tr_fail(TR_ERR_SYSTEM, "out of memory");
    if (!output) {
        drawing_put_screen(d->script, tr_terminal_columns(stdout, 80) - 1, diagrams);
        return TR_OK;
    }
    fputs(style, d->script);
    const char *ends = strrchr(output, '.');
    for (int i = 0; i < 3; i++) {
        if (!ends || strcmp(ends, kinds[i][0]) != 0) continue;
        TR_TRY(tr_target_open(&d->target, TR_TARGET_NAMED, "%s", output));
        fputs("set term ", d->script);
        fprintf(d->script, kinds[i][1], (i == 2 ? 5 : 450) * diagrams);
        fputc('\n', d->script);
        return TR_OK;
    }
    return tr_fail(TR_ERR_USAGE, "%s: %s: expected a name that ends in .svg, .png or .pdf", command, output);
}

/* Runs gnuplot with the complete script, so that an error in writing the script leaves no partial drawing. The script contains no
 * file name, because gnuplot runs a command if a name starts with < or |: gnuplot writes the drawing to its standard output. */
static int drawing_run_gnuplot(const struct tr_drawing *d)
{
    if (system("command -v gnuplot >/dev/null") != 0)
        return tr_fail(TR_ERR_SYSTEM, "%s: gnuplot is not installed here (Debian: gnuplot-nox)", d->command);
    fflush(stdout);
    if (d->target.part) setenv("TRIREME_DRAWING", d->target.part, true);
    FILE *gnuplot = popen(d->target.part ? "exec gnuplot >\"$TRIREME_DRAWING\"" : "exec gnuplot", "w");
    if (!gnuplot) return tr_fail(TR_ERR_SYSTEM, "%s: gnuplot cannot be started", d->command);
    fputs(d->text, gnuplot);
    return pclose(gnuplot) == 0 ? TR_OK : tr_fail(TR_ERR_SYSTEM, "%s: gnuplot failed", d->command);
}

int tr_drawing_close(struct tr_drawing *d, int status)
{
    if (d->script) fclose(d->script);
    if (status == TR_OK) status = drawing_run_gnuplot(d);
    free(d->text);
    return tr_target_close(&d->target, status);
}

/* ---- curves of runs ---- */

/* A value of a curve is the sum of the columns `top` of a line in metrics.csv, divided by the sum of the columns `bottom`. */
struct columns {
    int first, last; /* numbers of the first and last column, from 1 */
};
enum { COLUMNS = 14 };
static const char *const curve_names[] = {"objective", "metric", "gap",   "speed", "rows",
                                          "bytes",     "scale",  "waits", NULL};
static const struct curve {
    const char *label;
    struct columns top, bottom; /* no columns in bottom: the divisor is 1 */
    double unit;                /* the value is also divided by this; 0: by 1 */
    bool by_rows;               /* the value is multiplied by the number of rows of the run */
    bool logarithmic;           /* logarithmic y axis */
} curves[] = {{"objective", .top = {4, 4}},
              {"test metric", .top = {6, 6}},
              {"gap", .top = {5, 5}, .logarithmic = true},
              {"epochs per second", .top = {2, 2}, .bottom = {1, 1}},
              {"rows per second", .top = {2, 2}, .bottom = {1, 1}, .by_rows = true},
              {"MB pulled and pushed", .top = {7, 8}, .unit = 1e6},
              {"seconds of training", .top = {0}},
              {"part of time waited", .top = {12, 14}, .bottom = {11, 14}}};
enum { OBJECTIVE, METRIC };
_Static_assert(sizeof curve_names / sizeof *curve_names == sizeof curves / sizeof *curves + 1,
               "a name for each");

struct plot {
    char **run;
    int runs;
    bool *has; /* for each run: it has points on the current curve */
    const char *output;
    int what; /* index in curves; -1: the objective and, if there is one, the metric */
    enum { TIME, EPOCH } over;
};

struct range {
    double least, most;
};

/* Draws events of a run in the colour of its curve: a restart is a line of full height, a checkpoint a short line at the bottom. */
static void plot_marks(FILE *script, const struct plot *p, int run)
{
    TR_FREED char *path = NULL;
    char line[4096];
    if (tr_format(&path, "%s/events.csv", p->run[run]) != TR_OK) return;
    FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof line, file)) {
        char *rest = line, *field[6] = {""};
        for (int i = 0; i < 6 && rest; i++) field[i] = strsep(&rest, ",");
        const char *at = field[p->over == EPOCH ? 2 : 1];
        double x = strtod(at ? at : "", NULL);
        bool restart = field[5] && strcmp(field[5], "restart") == 0;
        if (!field[5] || !at || !*at || (!restart && strcmp(field[5], "checkpoint") != 0)) continue;
        fprintf(script,
                "set arrow from %.9g, graph 0 to %.9g, graph %s nohead linetype %d linewidth 1 dashtype %d\n",
                x, x, restart ? "1" : "0.05", run + 1, restart ? 2 : 1);
    }
    if (file) fclose(file);
}

/* Draws the seconds of training over the number of ranks, and the line of ideal scaling. */
static int plot_scale(FILE *script, const struct plot *p)
{
    double least = INFINITY, most = 0, work = 0;
    fputs("$runs << end\n", script);
    for (int i = 0; i < p->runs; i++) {
        double ranks = tr_run_number(p->run[i], "ranks"), seconds = tr_run_number(p->run[i], "train_seconds");
        if (!(ranks > 0) || !(seconds > 0))
            return tr_fail(TR_ERR_NO_INPUT, "%s: no ranks and train_seconds in a summary.json", p->run[i]);
        fprintf(script, "%.0f %.9g\n", ranks, seconds);
        if (ranks < least) least = ranks, work = ranks * seconds;
        most = fmax(most, ranks);
    }
    fprintf(script,
            "end\nset xlabel 'ranks'\nset logscale xy 2\nset title 'seconds of training'\n"
            "set xrange [%.9g:%.9g]\nplot $runs smooth unique with linespoints title 'these runs', %.17g/x "
            "with lines dashtype 2 title 'in proportion'\n",
            least / 1.2, most * 1.2, work);
    return TR_OK;
}

static double sum_columns(const double *column, struct columns of)
{
    double sum = 0;
    for (int i = of.first; i <= of.last; i++) sum += column[i];
    return sum;
}

/* Writes the points of a run on a curve to the script as a block of data, unless script is NULL, and extends the ranges x and y. */
static int plot_points(FILE *script, const struct plot *p, const struct curve *curve, int run,
                       struct range *x, struct range *y)
{
    TR_FREED char *path = NULL;
    char line[4096];
    double column[COLUMNS + 1], scale = curve->by_rows ? tr_run_number(p->run[run], "rows") : 1;
    bool header = true;
    TR_TRY(tr_format(&path, "%s/metrics.csv", p->run[run]));
    FILE *file = fopen(path, "re");
    if (!file) return tr_fail(TR_ERR_NO_INPUT, "%s: no run: there is no metrics.csv in it", p->run[run]);
    p->has[run] = false;
    if (script) fprintf(script, "$%s%d << end\n", curve_names[curve - curves], run);
    for (; fgets(line, sizeof line, file); header = false) {
        char *rest = line;
        for (int i = 1; i <= COLUMNS; i++) { /* an empty or missing field is NaN */
            char *field = strsep(&rest, ","), *end = field;
            double value = field ? strtod(field, &end) : NAN;
            column[i] = end == field ? NAN : value;
        }
        double across = column[p->over == EPOCH ? 2 : 1],
               up = scale * sum_columns(column, curve->top) / (curve->unit > 0 ? curve->unit : 1);
        if (curve->bottom.first > 0) up /= sum_columns(column, curve->bottom);
        if (header || !isfinite(across) || !isfinite(up) || (curve->logarithmic && up <= 0)) continue;
        if (script) fprintf(script, "%.9g %.9g\n", across, up);
        *x = (struct range){fmin(x->least, across), fmax(x->most, across)};
        *y = (struct range){fmin(y->least, up), fmax(y->most, up)};
        p->has[run] = true;
    }
    if (script) fputs("end\n", script);
    fclose(file);
    return TR_OK;
}

/* Sets the range of an axis. A range of a single value is widened, because gnuplot 6 prints a warning for it. */
static void plot_range(FILE *script, char axis, struct range range)
{
    double width = range.least == 0 ? 1 : 0.01 * fabs(range.least);
    if (range.most - range.least >= 1e-6 * width) fprintf(script, "set %crange [*:*]\n", axis);
    else fprintf(script, "set %crange [%.9g:%.9g]\n", axis, range.least - width, range.most + width);
}

/* Draws a diagram with a curve for each run that has points. Sets *drawn to true if there is such a run. */
static int plot_diagram(FILE *script, const struct plot *p, const struct curve *curve, bool *drawn)
{
    struct range x = {INFINITY, -INFINITY}, y = x;
    const char *before = "plot ";
    for (int i = 0; i < p->runs; i++) TR_TRY(plot_points(script, p, curve, i, &x, &y));
    if (x.least > x.most) return TR_OK;
    *drawn = true;
    fprintf(script, "set title '%s'\n%sset logscale y\nunset arrow\n", curve->label,
            curve->logarithmic ? "" : "un");
    plot_range(script, 'x', x);
    plot_range(script, 'y', y);
    for (int i = 0; i < p->runs; i++) plot_marks(script, p, i);
    for (int i = 0; i < p->runs; i++) {
        if (!p->has[i]) continue;
        fprintf(script, "%s$%s%d with lines linetype %d title ", before, curve_names[curve - curves], i,
                i + 1);
        tr_put_gnuplot(script, p->run[i]);
        before = ", ";
    }
    fputc('\n', script);
    return TR_OK;
}

static int plot_write(struct tr_drawing *d, const struct plot *p)
{
    const struct curve *chosen = p->what >= 0 ? &curves[p->what] : NULL;
    bool metric = false, drawn = false;
    for (int i = 0; i < p->runs && !metric && !chosen; i++) {
        TR_TRY(plot_points(NULL, p, &curves[METRIC], i, &(struct range){0}, &(struct range){0}));
        metric = p->has[i];
    }
    TR_TRY(tr_drawing_open(d, "plot", p->output, metric ? 2 : 1));
    FILE *script = d->script;
    fprintf(script, "set key below\nset xlabel '%s'\n", p->over == EPOCH ? "epoch" : "seconds");
    if (chosen && chosen->top.first == 0) return plot_scale(script, p);
    if (metric) fputs("set multiplot layout 2,1\n", script);
    TR_TRY(plot_diagram(script, p, chosen ? chosen : &curves[OBJECTIVE], &drawn));
    if (metric) TR_TRY(plot_diagram(script, p, &curves[METRIC], &drawn));
    if (metric) fputs("unset multiplot\n", script);
    if (drawn) return TR_OK;
    return tr_fail(TR_ERR_NO_INPUT, "%s: nothing of that has been evaluated%s", p->run[0],
                   p->runs > 1 ? " or in the other runs" : " yet");
}

static int plot_command(struct tr_arguments *arguments, void *given)
{
    struct plot *p = given;
    struct tr_drawing drawing = {.script = NULL};
    p->run = arguments->word;
    p->runs = (int)arguments->words;
    TR_FREED bool *has = NULL;
    TR_TRY(TR_NEW(&has, arguments->words));
    p->has = has;
    return tr_drawing_close(&drawing, plot_write(&drawing, p));
}

static const struct tr_argument plot_arguments[] = {
    {"-o", TR_ARG_TEXT, offsetof(struct plot, output), .value = "FILE",
     .help = "write to FILE, which ends in .svg, .png or .pdf; it appears when it is complete"},
    {"--what", TR_ARG_CHOICE, offsetof(struct plot, what), .value = "W", .words = curve_names,
     .help = "objective, metric, gap, speed (epochs per second), rows (per second), bytes (pulled and "
             "pushed), waits (the part of the workers' time that is not computing), or scale (seconds of "
             "training of these runs over their ranks)"},
    {"--over", TR_ARG_CHOICE, offsetof(struct plot, over), .words = TR_WORDS("time", "epoch"),
     .help = "the horizontal axis"},
    {0}};

const struct tr_cli_command tr_plot_command = {
    .syntax = {.command = "plot", .expected = "folders of runs", .least = 1, .options = plot_arguments},
    .brief = "draw curves of runs",
    .usage = "trireme plot RUN... [OPTION...]",
    .about = "Draws curves of the runs in these folders by gnuplot: in characters on the terminal, or to a "
             "file. By default it draws the objective and, if there are test data, the metric below it. "
             "Lines from top to bottom are restarts, short ones at the bottom checkpoints.",
    .defaults = &(const struct plot){.what = -1},
    .options_size = sizeof(struct plot),
    .run = plot_command,
};
