/* trireme plot: curves of one or several runs, as their metrics.csv has them, drawn by gnuplot. */
#define _GNU_SOURCE
#include "cli/cli.h"

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
                            "the test data, if there is one.\n"
                            "  -o FILE       appears when it is complete\n"
                            "  --what W      objective, metric, gap, speed (epochs a second), bytes (pulled "
                            "and pushed), or waits (the part\n"
                            "                of the workers' time that is not computing)\n"
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
              {"bytes", "(($7+$8)/1e6)", "MB pulled and pushed", 7, false},
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

/* One diagram with a curve for each run that has it. */
static int draw(FILE *script, const struct plot *p, const struct curve *curve, bool *drawn)
{
    bool any = false;
    fprintf(script, "set title '%s'\n%sset logscale y\n", curve->label, curve->logarithmic ? "" : "un");
    for (int i = 0; i < p->runs; i++) {
        bool has;
        TR_TRY(look(p->run[i], curve->column, &has));
        if (!has) continue;
        fputs(any ? ", " : "plot ", script);
        tr_drawing_quote(script, p->run[i], "/metrics.csv");
        fprintf(script, " using %d:%s with lines title ", strcmp(p->over, "epoch") == 0 ? 2 : 1,
                curve->using);
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
        const char **value = strcmp(argv[i], "-o") == 0       ? &p->output
                             : strcmp(argv[i], "--what") == 0 ? &p->what
                             : strcmp(argv[i], "--over") == 0 ? &p->over
                                                              : NULL;
        if (value && i + 1 < argc) *value = argv[++i];
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
