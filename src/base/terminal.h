/* The terminal that shows what this process writes, if there is one: also at the other end of mpirun's pipe. */
#ifndef TR_TERMINAL_H
#define TR_TERMINAL_H

#include <stdbool.h>
#include <stdio.h>

/* Whether a person watches: true if the stream is a terminal; or a pipe to an mpirun on this host that writes to one,
 * which is where it copies what its ranks write. */
bool tr_terminal_shows(FILE *out);

/* How wide that is: as COLUMNS in the environment says it, or the terminal; 80 if it does not; otherwise: where there is
 * none. */
int tr_terminal_columns(FILE *out, int otherwise);

/* From now on stderr is written line by line: lines of several processes never mix within one. Else each fprintf() writes by
 * itself, and glibc 2.37 and later in pieces of 128 bytes. */
void tr_stderr_by_lines(void);

/* Puts a line that may be longer than the terminal is wide: broken between words, what follows behind so many blanks. */
void tr_put_wrapped(FILE *out, const char *line, int indent);

/* Puts text at this column, where the cursor is, and breaks it between words, so that lines are no wider than `width` unless
 * a word is. Ends with a newline. */
void tr_put_paragraph(FILE *out, const char *text, int column, int width);

/* ---- numbers for people ---- */

struct tr_number_text {
    char text[32];
};

/* "0.82 s", "12:07 min", "3:05:00 h"; "-" if the number is not finite, as below. */
struct tr_number_text tr_duration(double seconds);

/* "640 B", "45.1 MB", "1.21 GB" */
struct tr_number_text tr_bytes(double bytes);

/* "640", "45.1M": rows/s, for example. */
struct tr_number_text tr_rate(double per_second);

/* ---- a line that is written over ---- */

/* Shows it in place of the one shown before, cut to what the terminal has room for. All others who print call
 * tr_live_end(), which takes it away. One thread. */
void tr_live_show(FILE *out, const char *line);
void tr_live_end(void);

/* The same of «what [####....] 45 % more», where the bar has the room that is left. part: 0 to 1. */
void tr_live_bar(FILE *out, const char *what, double part, const char *more);

/* For what a command does besides: a bar on stderr with the time left, where a terminal shows it and two seconds have gone by
 * since the first call with this `what`, the same pointer. */
void tr_show_part(const char *what, double part);

#endif
