#define _GNU_SOURCE
#include "cli/gnuplot.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "base/terminal.h"

/* Colours and lines as on the page of trireme watch. */
static const char style[] =
    "set linetype 1 linewidth 2 linecolor rgb '#14706a'\nset linetype 2 linewidth 2 linecolor rgb '#c05621'\n"
    "set linetype 3 linewidth 2 linecolor rgb '#4c6fb5'\nset linetype 4 linewidth 2 linecolor rgb '#a0457f'\n"
    "set linetype 5 linewidth 2 linecolor rgb '#7a8b1f'\nset linetype 6 linewidth 2 linecolor rgb '#6b5bb0'\n"
    "set linetype 7 linewidth 2 linecolor rgb '#2f9bb5'\nset linetype 8 linewidth 2 linecolor rgb '#9b7653'\n"
    "set linetype cycle 8\nset border 3 linecolor rgb '#8a949b'\nset tics nomirror\nset grid linetype 1 "
    "linewidth 1 linecolor rgb "
    "'#dfe2df'\n";

/* Pixels where the terminal takes them, else characters: dots of Braille if this gnuplot knows them (6). */
static void put_screen(FILE *script, int columns, int diagrams)
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

static int put_terminal(struct tr_drawing *d, int diagrams)
{
    static const char *const kinds[][2] = {{".svg", "svg noenhanced size 900,%d"},
                                           {".png", "pngcairo noenhanced size 900,%d"},
                                           {".pdf", "pdfcairo noenhanced size 9,%d.0"}};
    FILE *script = d->script;
    if (!d->output) {
        put_screen(script, tr_terminal_columns(stdout, 80) - 1, diagrams);
        return TR_OK;
    }
    fputs(style, script);
    const char *ends = strrchr(d->output, '.');
    for (int i = 0; i < 3; i++) {
        if (!ends || strcmp(ends, kinds[i][0]) != 0) continue;
        TR_TRY(tr_target_open(&d->target, TR_TARGET_NAMED, "%s", d->output));
        fputs("set term ", script);
        fprintf(script, kinds[i][1], (i == 2 ? 5 : 450) * diagrams);
        fputc('\n', script);
        return TR_OK;
    }
    return tr_fail(TR_ERR_USAGE, "%s: %s: expected a name that ends in .svg, .png or .pdf", d->command,
                   d->output);
}

int tr_drawing_open(struct tr_drawing *d, const char *command, const char *output, int diagrams)
{
    *d = (struct tr_drawing){.command = command, .output = output};
    d->script = open_memstream(&d->text, &d->length);
    if (!d->script) return tr_fail(TR_ERR_SYSTEM, "out of memory");
    return put_terminal(d, diagrams);
}

/* The script is whole before gnuplot sees it, so that no error leaves half a drawing. It contains no name of a file: gnuplot
 * starts a command if such a name begins with < or |. The drawing comes from its standard output. */
static int run_gnuplot(const struct tr_drawing *d)
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
    if (status == TR_OK) status = run_gnuplot(d);
    free(d->text);
    return tr_target_close(&d->target, status);
}
