#define _GNU_SOURCE
#include "base/terminal.h"

#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "base/escape.h"

/* Name of a terminal; "": none. terminal_of() finds the terminal that a file descriptor of a process refers to. */
struct terminal {
    char name[64];
};
static struct terminal terminal_of(pid_t process, int fd)
{
    struct terminal t = {""};
    char path[64];
    snprintf(path, sizeof path, "/proc/%ld/fd/%d", (long)process, fd);
    ssize_t n = readlink(path, t.name, sizeof t.name - 1);
    if (n < 0) n = 0;
    t.name[n] = '\0';
    if (strncmp(t.name, "/dev/pts/", 9) != 0 && strncmp(t.name, "/dev/tty", 8) != 0) t.name[0] = '\0';
    return t;
}

bool tr_terminal_shows(FILE *out)
{
    static const char *const launchers[] = {"mpirun", "mpiexec", "orterun", "prterun", "prun"};
    int fd = fileno(out);
    if (fd < 0 || isatty(fd)) return fd >= 0;
    /* the supervisor copies the output of this process; it sets the variable to the descriptors that it copies to a terminal */
    const char *terminals = getenv("TRIREME_TERMINAL");
    struct stat status;
    if (terminals && fd < 10 && strchr(terminals, '0' + fd) && fstat(fd, &status) == 0 &&
        !S_ISREG(status.st_mode))
        return true;
    if (fd != STDOUT_FILENO && fd != STDERR_FILENO) return false;
    char path[64], name[64] = "";
    snprintf(path, sizeof path, "/proc/%ld/comm", (long)getppid());
    FILE *file = fopen(path, "re");
    bool read = file && fgets(name, sizeof name, file) != NULL;
    if (file) fclose(file);
    name[strcspn(name, ".\n")] = '\0'; /* Debian names the program mpirun.openmpi */
    for (size_t i = 0; read && i < sizeof launchers / sizeof *launchers; i++)
        if (strcmp(name, launchers[i]) == 0) return *terminal_of(getppid(), fd).name;
    return false;
}

static int terminal_columns_of(int fd)
{
    struct winsize size;
    return ioctl(fd, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

int tr_terminal_columns(FILE *out, int otherwise)
{
    enum { LEAST = 20, MOST = 1000 };
    int fd = fileno(out);
    long columns = tr_number_in("COLUMNS", 0);
    if (columns <= 0 && fd >= 0) columns = terminal_columns_of(fd);
    if (columns <= 0 && tr_terminal_shows(out)) {
        int launcher = open(terminal_of(getppid(), fd).name, O_RDONLY | O_NOCTTY | O_CLOEXEC);
        if (launcher >= 0) columns = terminal_columns_of(launcher);
        if (launcher >= 0) close(launcher);
        otherwise = 80;
    }
    return columns < LEAST ? otherwise : columns > MOST ? MOST : (int)columns;
}

void tr_stderr_by_lines(void)
{
    static char line[BUFSIZ]; /* an unbuffered stream needs an explicit buffer */
    static bool done;         /* a second call would lose an incomplete line */
    if (!done) setvbuf(stderr, line, _IOLBF, sizeof line);
    done = true;
}

/* Returns the largest length up to n that does not split a character. */
static int wrap_whole_characters(const char *text, int n)
{
    while (n > 1 && (text[n] & 0xc0) == 0x80) n--;
    return n;
}

void tr_put_wrapped(FILE *out, const char *line, int indent)
{
    int columns = tr_terminal_columns(out, 0), length = (int)strlen(line);
    bool first = true;
    while (columns > 2 * indent && length + (first ? 0 : indent) > columns) {
        int room = columns - (first ? 0 : indent), end = room;
        while (end > room / 2 && line[end] != ' ') end--;
        if (line[end] != ' ') end = wrap_whole_characters(line, room);
        tr_printf(out, "%*s%.*s\n", first ? 0 : indent, "", end, line);
        for (line += end; *line == ' ';) line++;
        length = (int)strlen(line);
        first = false;
    }
    tr_printf(out, "%*s%s\n", first ? 0 : indent, "", line);
}

void tr_put_paragraph(FILE *out, const char *text, int column, int width)
{
    int at = column;
    while (*text) {
        int length = (int)strcspn(text, " ");
        if (at > column && at + 1 + length > width) {
            tr_printf(out, "\n%*s", column, "");
            at = column;
        }
        at += tr_printf(out, "%s%.*s", at > column ? " " : "", length, text);
        text += length;
        text += strspn(text, " ");
    }
    fputc('\n', out);
}

/* ---- progress line ---- */

static struct {
    FILE *out;  /* stream that shows the progress line; NULL: no line is shown */
    int length; /* bytes of the line */
} live;

void tr_live_end(void)
{
    if (!live.out) return;
    fprintf(live.out, "\r%*c", live.length, '\r');
    fflush(live.out);
    live.out = NULL;
}

void tr_live_bar(FILE *out, const char *what, double part, const char *more)
{
    enum { LEAST = 5, MOST = 40 };
    static const char full[] = "########################################",
                      empty[] = "........................................";
    char line[512];
    if (!(part >= 0)) part = 0;
    if (part > 1) part = 1;
    int width = tr_terminal_columns(out, 80) - (int)strlen(what) - (int)strlen(more) - 13;
    if (width > MOST) width = MOST;
    int done = (int)(part * width);
    if (width < LEAST) snprintf(line, sizeof line, "%s  %.0f %%  %s", what, 100 * part, more);
    else
        snprintf(line, sizeof line, "%.200s  [%.*s%.*s] %3.0f %%  %.200s", what, done, full, width - done,
                 empty, 100 * part, more);
    int most = tr_terminal_columns(out, 80) - 1, length = (int)strlen(line);
    if (length > most) length = wrap_whole_characters(line, most);
    fputc('\r', out);
    tr_printf(out, "%.*s%*s", length, line, live.out && live.length > length ? live.length - length : 0, "");
    fflush(out);
    live.out = out;
    live.length = length;
}

void tr_show_part(const char *what, double part)
{
    static const char *shown;
    static double begun, last;
    static bool watched;
    double now = tr_now();
    if (what != shown) {
        shown = what;
        begun = now;
        last = 0;
        watched = tr_terminal_shows(stderr);
    }
    if (!watched || now - begun < 2 || now - last < 0.2 || !(part > 0)) return;
    last = now;
    char more[64];
    long left = (long)((now - begun) * (1 - part) / part);
    snprintf(more, sizeof more, "%ld:%02ld left", left / 60, left % 60);
    tr_live_bar(stderr, what, part, more);
}

/* ---- formatted numbers ---- */

struct tr_number_text tr_duration(double seconds)
{
    struct tr_number_text d = {"-"};
    if (!isfinite(seconds)) return d;
    long s = lround(seconds);
    if (seconds < 59.5) snprintf(d.text, sizeof d.text, "%.2f s", seconds);
    else if (s < 3600) snprintf(d.text, sizeof d.text, "%ld:%02ld min", s / 60, s % 60);
    else snprintf(d.text, sizeof d.text, "%ld:%02ld:%02ld h", s / 3600, s / 60 % 60, s % 60);
    return d;
}

/* Formats a number with three digits and a decimal prefix: "10k", or "10 kB" if a space and a unit are given. */
static struct tr_number_text number_with_prefix(double number, const char *space, const char *unit)
{
    static const char *const prefix[] = {"", "k", "M", "G", "T"};
    struct tr_number_text t = {"-"};
    size_t i = 0;
    if (!isfinite(number)) return t;
    for (; number >= 999.5 && i + 1 < sizeof prefix / sizeof *prefix; i++) number /= 1000;
    snprintf(t.text, sizeof t.text, "%.3g%s%s%s", number, space, prefix[i], unit);
    return t;
}

struct tr_number_text tr_bytes(double bytes)
{
    return number_with_prefix(bytes, " ", "B");
}

struct tr_number_text tr_rate(double per_second)
{
    return number_with_prefix(per_second, "", "");
}
