#define _GNU_SOURCE
#include "monitor/terminal.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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

static bool writes_to_terminal(pid_t process, int fd)
{
    char path[64], target[64];
    snprintf(path, sizeof path, "/proc/%ld/fd/%d", (long)process, fd);
    ssize_t n = readlink(path, target, sizeof target - 1);
    if (n < 0) return false;
    target[n] = '\0';
    return strncmp(target, "/dev/pts/", 9) == 0 || strncmp(target, "/dev/tty", 8) == 0;
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
           writes_to_terminal(parent, fd);
}
