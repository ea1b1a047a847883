/* A drawing by gnuplot: in characters on the terminal, or into a file. */
#ifndef TR_CLI_GNUPLOT_H
#define TR_CLI_GNUPLOT_H

#include <stdio.h>

#include "trireme/base.h"

struct tr_drawing {
    FILE *script; /* to be written by who draws */
    char *text;
    size_t length;
    const char *command, *output; /* a name that ends in .svg, .png or .pdf; NULL: the terminal */
    struct tr_target target;
};

/* Begins one of so many diagrams below each other. To be closed in any case. TR_ERR_USAGE. */
int tr_drawing_open(struct tr_drawing *d, const char *command, const char *output, int diagrams);

/* Has gnuplot draw it if all is well so far; the file appears when it is complete. */
int tr_drawing_close(struct tr_drawing *d, int status);

#endif
