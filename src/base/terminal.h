/* The terminal that shows the output of this process, directly or through mpirun. */
#ifndef TR_TERMINAL_H
#define TR_TERMINAL_H

#include <stdbool.h>
#include <stdio.h>

/* Returns whether a terminal shows a stream: it is a terminal, or a pipe to an mpirun of this host whose output is a terminal. */
bool tr_terminal_shows(FILE *out);

/* Returns the width of the terminal: COLUMNS in the environment, else the width that the terminal reports, else 80. Without a
 * terminal: `otherwise`. */
int tr_terminal_columns(FILE *out, int otherwise);

/* Makes stderr line-buffered, so that lines of several processes do not mix. By default each fprintf() writes separately, in pieces
 * of 128 bytes since glibc 2.37. */
void tr_stderr_by_lines(void);

/* Prints a line, wrapped between words to the width of the terminal. Continuation lines start with `indent` blanks. */
void tr_put_wrapped(FILE *out, const char *line, int indent);

/* Prints text from the current column on, wrapped between words to `width` columns, and a newline. Continuation lines start in the
 * same column.
 *
 * @param [in] column  current column
 */
void tr_put_paragraph(FILE *out, const char *text, int column, int width);

/* ---- formatted numbers ---- */

struct tr_number_text {
    char text[32];
};

/* "0.82 s", "12:07 min", "3:05:00 h"; "-" if the number is not finite, as below. */
struct tr_number_text tr_duration(double seconds);

/* "640 B", "45.1 MB", "1.21 GB" */
struct tr_number_text tr_bytes(double bytes);

/* "640", "45.1M": rows/s, for example. */
struct tr_number_text tr_rate(double per_second);

/* ---- progress line ---- */

/* Shows the progress line «what [####....] 45 % more», truncated to the width of the terminal, instead of the one before. Call
 * tr_live_end(), which removes it, before other output. One thread.
 *
 * @param [in] part  0 to 1; the bar fills the width
 */
void tr_live_bar(FILE *out, const char *what, double part, const char *more);
void tr_live_end(void);

/* Shows the progress of a secondary activity of a command: a bar on stderr with the remaining time, if a terminal shows stderr,
 * starting two seconds after the first call with the same pointer `what`. */
void tr_show_part(const char *what, double part);

#endif
