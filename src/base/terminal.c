#define _GNU_SOURCE
#include "base/terminal.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"

/* The program that a process runs is one that starts ranks and passes on what they write. */
static bool is_launcher(pid_t process)
{
    static const char *const names[] = {"mpirun", "mpiexec", "orterun", "prterun", "prun"};
    char path[64], name[64] = "";
    snprintf(path, sizeof path, "/proc/%ld/comm", (long)process);
    FILE *file = fopen(path, "re");
    if (!file) return false;
    bool read = fgets(name, sizeof name, file) != NULL;
    fclose(file);
    name[strcspn(name, ".\n")] = '\0'; /* mpirun.openmpi is one, too */
    for (size_t i = 0; read && i < sizeof names / sizeof *names; i++)
        if (strcmp(name, names[i]) == 0) return true;
    return false;
}

/* What the process has open as this: the terminal's name, or an empty text. */
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

/* What a supervisor says of its own output, into which it copies what we write to a pipe. */
static bool is_supervised(int fd)
{
    const char *terminals = getenv("TRIREME_TERMINAL");
    struct stat status;
    return terminals && fd >= 0 && fd < 10 && strchr(terminals, '0' + fd) && fstat(fd, &status) == 0 &&
           !S_ISREG(status.st_mode);
}

bool tr_terminal_shows(FILE *out)
{
    int fd = fileno(out);
    if (fd < 0 || isatty(fd)) return fd >= 0;
    if (is_supervised(fd)) return true;
    pid_t parent = getppid();
    return (fd == STDOUT_FILENO || fd == STDERR_FILENO) && is_launcher(parent) &&
           *terminal_of(parent, fd).name;
}

static int columns_of(int fd)
{
    struct winsize size;
    return ioctl(fd, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

int tr_terminal_columns(FILE *out, int otherwise)
{
    enum { LEAST = 20, MOST = 1000 };
    int fd = fileno(out);
    long columns = tr_number_in("COLUMNS", 0);
    if (columns <= 0 && fd >= 0) columns = columns_of(fd);
    if (columns <= 0 && tr_terminal_shows(out)) {
        int launcher = open(terminal_of(getppid(), fd).name, O_RDONLY | O_NOCTTY | O_CLOEXEC);
        if (launcher >= 0) columns = columns_of(launcher);
        if (launcher >= 0) close(launcher);
        otherwise = 80;
    }
    return columns < LEAST ? otherwise : columns > MOST ? MOST : (int)columns;
}
