#define _GNU_SOURCE
#include "supervisor/process.h"

#include <ftw.h>
#include <glob.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/base.h"

/* ---- /proc/PID/stat ---- */

struct facts {
    char state;
    tr_start_time start;
    long exit_code; /* -1: not told */
};

/* The second field is a name in brackets and may hold anything; the others are divided by blanks. */
static bool look_at(long pid, struct facts *facts)
{
    enum { STATE = 3, START = 22, EXIT_CODE = 52 };
    char path[64], text[2048];
    snprintf(path, sizeof path, "/proc/%ld/stat", pid);
    FILE *file = fopen(path, "re");
    if (!file) return false;
    size_t n = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[n] = '\0';
    char *at = strrchr(text, ')');
    *facts = (struct facts){.exit_code = -1};
    for (int field = STATE; at && (at = strchr(at, ' ')) != NULL; field++) {
        at++;
        if (field == STATE) facts->state = *at;
        if (field == START) facts->start = strtoull(at, NULL, 10);
        if (field == EXIT_CODE) facts->exit_code = strtol(at, NULL, 10);
    }
    return facts->start != 0;
}

static bool look_at_that(long pid, tr_start_time start, struct facts *facts)
{
    return pid > 0 && start != 0 && look_at(pid, facts) && facts->start == start;
}

static bool has_ended(const struct facts *facts)
{
    return facts->state == 'Z' || facts->state == 'X';
}

bool tr_process_is_there(long pid, tr_start_time start)
{
    struct facts facts;
    return look_at_that(pid, start, &facts);
}

bool tr_process_lives(long pid, tr_start_time start)
{
    struct facts facts;
    return look_at_that(pid, start, &facts) && !has_ended(&facts);
}

bool tr_process_is_stopped(long pid, tr_start_time start)
{
    struct facts facts;
    return look_at_that(pid, start, &facts) && (facts.state == 'T' || facts.state == 't');
}

/* The kernel notes the code before it closes files; 0 may also mean that there is none yet. */
bool tr_process_end(long pid, tr_start_time start, int *wait_status)
{
    struct facts facts;
    if (!look_at_that(pid, start, &facts) || facts.exit_code < 0) return false;
    if (facts.exit_code == 0 && !has_ended(&facts)) return false;
    *wait_status = (int)facts.exit_code;
    return true;
}

/* Looked at between taking hold of it and the signal, it cannot become another one meanwhile. */
void tr_process_kill(long pid, tr_start_time start)
{
    int held = (int)syscall(SYS_pidfd_open, (pid_t)pid, 0);
    if (!tr_process_lives(pid, start)) {
        if (held >= 0) close(held);
        return;
    }
    if (held >= 0) {
        syscall(SYS_pidfd_send_signal, held, SIGKILL, NULL, 0);
        close(held);
    } else {
        kill((pid_t)pid, SIGKILL); /* a kernel before 5.3 */
    }
}

/* ---- segments ---- */

static bool is_of_open_mpi(const char *path)
{
    static const char *const begins[] = {"/dev/shm/vader_segment.", "/dev/shm/sm_segment.",
                                         "/dev/shm/osc_rdma."};
    for (size_t i = 0; i < sizeof begins / sizeof *begins; i++)
        if (strncmp(path, begins[i], strlen(begins[i])) == 0) return true;
    return false;
}

static bool is_among(const char *path, char *const paths[], size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(path, paths[i]) == 0) return true;
    return false;
}

int tr_process_segments(long pid, char ***paths, size_t *n)
{
    char name[64], line[PATH_MAX + 128];
    size_t capacity = 0;
    int status = TR_OK;
    *paths = NULL;
    *n = 0;
    snprintf(name, sizeof name, "/proc/%ld/maps", pid);
    FILE *file = fopen(name, "re");
    while (file && status == TR_OK && fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = '\0';
        const char *path = strstr(line, "/dev/shm/");
        if (!path || !is_of_open_mpi(path) || is_among(path, *paths, *n)) continue;
        status = TR_GROW(paths, &capacity, *n + 1);
        if (status == TR_OK) status = tr_copy_string(path, &(*paths)[*n]);
        *n += status == TR_OK;
    }
    if (file) fclose(file);
    return status;
}

static void remove_file(const char *path)
{
    struct stat status;
    if (lstat(path, &status) == 0 && S_ISREG(status.st_mode) && status.st_uid == getuid()) unlink(path);
}

/* PLACE_segment.HOST.USER.JOB.RANK: a rank that is still starting has not mapped those of all others. */
static void remove_of_the_same_job(const char *path)
{
    const char *rank = strrchr(path, '.');
    char pattern[PATH_MAX];
    glob_t found;
    if (!strstr(path, "_segment.") || !rank) return;
    snprintf(pattern, sizeof pattern, "%.*s.*", (int)(rank - path), path);
    if (glob(pattern, GLOB_NOSORT, NULL, &found) != 0) return;
    for (size_t i = 0; i < found.gl_pathc; i++) remove_file(found.gl_pathv[i]);
    globfree(&found);
}

void tr_segments_remove(char *const paths[], size_t n)
{
    for (size_t i = 0; i < n; i++) {
        remove_file(paths[i]);
        remove_of_the_same_job(paths[i]);
    }
}

void tr_segments_free(char ***paths, size_t *n)
{
    for (size_t i = 0; i < *n; i++) free((*paths)[i]);
    free(*paths);
    *paths = NULL;
    *n = 0;
}

/* ---- sessions ---- */

static int remove_one(const char *path, const struct stat *status, int kind, struct FTW *at)
{
    (void)status;
    (void)at;
    (void)(kind == FTW_DP || kind == FTW_DNR ? rmdir(path) : unlink(path));
    return 0;
}

static void remove_tree(const char *folder)
{
    struct stat status;
    if (lstat(folder, &status) != 0 || !S_ISDIR(status.st_mode) || status.st_uid != getuid()) return;
    nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
}

static void remove_what_matches(const char *pattern)
{
    glob_t found;
    if (glob(pattern, GLOB_NOSORT, NULL, &found) != 0) return;
    for (size_t i = 0; i < found.gl_pathc; i++) remove_tree(found.gl_pathv[i]);
    globfree(&found);
}

void tr_session_remove(long mpirun)
{
    const char *set = getenv("TMPDIR"), *temporary = set ? set : "/tmp";
    char pattern[PATH_MAX];
    snprintf(pattern, sizeof pattern, "%s/ompi.*.%ld/pid.%ld", temporary, (long)getuid(), mpirun);
    remove_what_matches(pattern);
    snprintf(pattern, sizeof pattern, "%s/prte.*.%ld/dvm.%ld", temporary, (long)getuid(), mpirun);
    remove_what_matches(pattern);
}
