/* The terminal that shows the output of this process, directly or through mpirun. */
#ifndef TR_TERMINAL_H
#define TR_TERMINAL_H

#include <stdbool.h>
#include <stdio.h>

/* Returns whether a terminal shows a stream: the stream is a terminal, or a pipe to a supervisor, or to an mpirun of this host,
 * whose output is a terminal. */
bool tr_terminal_shows(FILE *out);

/* Returns the width of the terminal: COLUMNS in the environment, else the width that the terminal reports, else 80. Without a
 * terminal: `otherwise`. */
int tr_terminal_columns(FILE *out, int otherwise);

/* Makes stderr line-buffered, so that lines of several processes do not mix. By default stderr is not buffered, and since glibc
 * 2.37 one fprintf() calls write() for every 128 bytes. */
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

/* Formats a duration: "0.82 s", "12:07 min", "3:05:00 h". Like the next two functions, it returns "-" for NaN and infinities. */
struct tr_number_text tr_duration(double seconds);

/* Formats bytes: "640 B", "45.1 MB", "1.21 GB". */
struct tr_number_text tr_bytes(double bytes);

/* Formats a rate, such as rows/s: "640", "45.1M". */
struct tr_number_text tr_rate(double per_second);

/* ---- progress line ---- */

/* Replaces the progress line by «what [####....] 45 % more», truncated to the width of the terminal. tr_live_end()
 * removes the line; call it before other output. Only one thread may call these functions.
 *
 * @param [in] part  fraction of the work that is done, 0 to 1
 */
void tr_live_bar(FILE *out, const char *what, double part, const char *more);
void tr_live_end(void);

/* Shows the progress of a part of a command: a bar on stderr with the remaining time, if a terminal shows stderr. The bar appears
 * two seconds after the first call with the same pointer `what`. */
void tr_show_part(const char *what, double part);

#endif
