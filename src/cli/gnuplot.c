#define _GNU_SOURCE
#include "cli/gnuplot.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "base/terminal.h"

void tr_drawing_quote(FILE *script, const char *text, const char *behind)
{
    fputc('\'', script);
    for (; *text; text++) fprintf(script, *text == '\'' ? "''" : "%c", *text);
    fprintf(script, "%s'", behind);
}

static int put_terminal(const struct tr_drawing *d, int diagrams)
{
    static const char *const kinds[][2] = {{".svg", "svg noenhanced size 900,%d"},
                                           {".png", "pngcairo noenhanced size 900,%d"},
                                           {".pdf", "pdfcairo noenhanced size 9,%d.0"}};
    FILE *script = d->script;
    if (!d->output) {
        fprintf(script, "set term dumb noenhanced %d %d\n", tr_terminal_columns(stdout, 80) - 1,
                22 * diagrams);
        return TR_OK;
    }
    const char *ends = strrchr(d->output, '.');
    for (int i = 0; i < 3; i++) {
        if (!ends || strcmp(ends, kinds[i][0]) != 0) continue;
        fputs("set term ", script);
        fprintf(script, kinds[i][1], (i == 2 ? 5 : 450) * diagrams);
        fputs("\nset output ", script);
        tr_drawing_quote(script, d->output, ".part");
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

/* The script is whole before gnuplot sees it, so that no error leaves half a drawing. */
static int run_gnuplot(const struct tr_drawing *d)
{
    char *part = NULL;
    if (system("command -v gnuplot >/dev/null") != 0)
        return tr_fail(TR_ERR_SYSTEM, "%s: gnuplot is not installed here (Debian: gnuplot-nox)", d->command);
    fflush(stdout);
    FILE *gnuplot = popen("exec gnuplot", "w");
    if (!gnuplot) return tr_fail(TR_ERR_SYSTEM, "%s: gnuplot cannot be started", d->command);
    fputs(d->text, gnuplot);
    int status = pclose(gnuplot) == 0 ? TR_OK : tr_fail(TR_ERR_SYSTEM, "%s: gnuplot failed", d->command);
    if (!d->output) return status;
    TR_TRY(tr_format(&part, "%s.part", d->output));
    if (status == TR_OK && rename(part, d->output) < 0)
        status = tr_fail(TR_ERR_NO_OUTPUT, "%s: cannot be written", d->output);
    if (status != TR_OK) unlink(part);
    free(part);
    return status;
}

int tr_drawing_close(struct tr_drawing *d, int status)
{
    if (d->script) fclose(d->script);
    if (status == TR_OK) status = run_gnuplot(d);
    free(d->text);
    return status;
}
