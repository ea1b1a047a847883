#define _GNU_SOURCE
#include "cli/generate_file.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zlib.h>

#include "base/base.h"
#include "monitor/display.h"
#include "monitor/output.h"

/* One of the processes that make the units between them, in memory that they share with the one that waits. Gzip files may
 * follow each other as text files may. */
struct part {
    const struct tr_generate_job *job;
    uint64_t begin, end; /* units */
    bool compresses;
    int fd; /* -1: lines are only counted. Part 0 writes to where the file shall be, the others to nameless files beside it,
             * which vanish whatever happens */
    pid_t pid;
    gzFile gzip;
    atomic_ullong lines; /* written, without those of the header */
    int status;
    char error[1024];
};

enum { PARTS = 64, PART_LINES = 20000 };

/* ---- one part ---- */

static ssize_t write_text(void *cookie, const char *text, size_t length)
{
    struct part *part = cookie;
    int error = 0;
    errno = 0;
    if (part->gzip)
        error = gzwrite(part->gzip, text, (unsigned)length) == (int)length ? 0 : errno ? errno : EIO;
    else if (part->fd >= 0) error = tr_output_write(part->fd, text, length);
    if (error) {
        errno = error;
        return 0;
    }
    unsigned long long lines = 0;
    for (const char *at = text; (at = memchr(at, '\n', (size_t)(text + length - at))); at++) lines++;
    atomic_fetch_add_explicit(&part->lines, lines, memory_order_relaxed);
    return (ssize_t)length;
}

static int write_failed(void)
{
    return tr_fail(TR_ERR_IO, "writing generated rows: %s", strerror(errno ? errno : EIO));
}

static int write_units(struct part *part)
{
    const struct tr_generate_job *job = part->job;
    if (part->compresses && !(part->gzip = gzdopen(dup(part->fd), "wb6")))
        return tr_fail(TR_ERR_SYSTEM, "out of memory: zlib");
    FILE *out = fopencookie(part, "w", (cookie_io_functions_t){.write = write_text});
    if (!out) return tr_fail(TR_ERR_SYSTEM, "out of memory: a stream");
    setvbuf(out, NULL, _IONBF, 0); /* lines come in large pieces already */
    int status = part->begin == 0 && job->header && fputs(job->header, out) < 0 ? write_failed() : TR_OK;
    atomic_store(&part->lines, 0);
    if (status == TR_OK) status = job->write(job->state, part->begin, part->end, out);
    fclose(out);
    errno = 0;
    if (part->gzip && gzclose(part->gzip) != Z_OK && status == TR_OK) status = write_failed();
    return status;
}

static void run_part(struct part *part)
{
    part->status = write_units(part);
    bool io = part->status == TR_ERR_IO;
    if (part->status != TR_OK)
        snprintf(part->error, sizeof part->error, "%s%s%s", io ? part->job->file : "", io ? ": " : "",
                 tr_error_text());
}

static int start_part(struct part *part)
{
    pid_t parent = getpid(), child = fork();
    if (child < 0) return tr_fail(TR_ERR_SYSTEM, "no process for a part of the rows: %s", strerror(errno));
    if (child > 0) part->pid = child; /* the child sees it, too: it must not write there */
    if (child > 0) return TR_OK;
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* nobody would miss the rows of an orphan */
    if (getppid() == parent) run_part(part);
    _exit(0);
}

/* ---- all parts ---- */

static uint64_t lines_of(const struct part *part, int n)
{
    uint64_t lines = 0;
    for (int i = 0; i < n; i++) lines += atomic_load(&part[i].lines);
    return lines;
}

static void show_meter(const struct part *part, int n, double begin)
{
    const struct tr_generate_job *job = part->job;
    double lines = (double)lines_of(part, n), total = (double)job->lines;
    double left = lines > 0 ? (tr_now() - begin) * (total - lines) / lines : NAN;
    fprintf(stderr, "\rgenerate: %3.0f %% of %.0f %s, %s left \033[K", fmin(100 * lines / total, 100), total,
            job->what, tr_duration(fmax(left, 0)).text);
}

/* The failure of the first that failed is ours. */
static int wait_for_parts(struct part *part, int n, bool shows)
{
    int status = TR_OK;
    double begin = tr_now();
    for (int i = 0, how = 0; i < n; i++) {
        while (part[i].pid > 0 && waitpid(part[i].pid, &how, shows ? WNOHANG : 0) == 0) {
            show_meter(part, n, begin);
            tr_sleep(0.1);
        }
        if (status != TR_OK) continue;
        if (part[i].pid > 0 && WIFSIGNALED(how))
            status = tr_fail(TR_ERR_SYSTEM, "a process that made rows was ended by signal %d", WTERMSIG(how));
        else if (part[i].status != TR_OK) status = tr_fail(part[i].status, "%s", part[i].error);
    }
    if (shows) fputs("\r\033[K", stderr);
    return status;
}

static int open_nameless(const char *beside, int *fd)
{
    char *path;
    TR_TRY(tr_format(&path, "%s.XXXXXX", beside));
    *fd = mkostemp(path, O_CLOEXEC);
    int status = *fd >= 0 ? TR_OK : tr_output_failed(path, "created", errno);
    if (*fd >= 0) unlink(path);
    free(path);
    return status;
}

static int append_part(int from, int to, const char *path)
{
    off_t at = 0, end = lseek(from, 0, SEEK_END);
    while (at < end)
        if (sendfile(to, from, &at, (size_t)(end - at)) <= 0) return tr_output_failed(path, "written", errno);
    return TR_OK;
}

static int run_parts(struct part *part, int n, const char *path)
{
    bool shows = isatty(STDERR_FILENO) && strcmp(part->job->file, "-") != 0, counts = part->fd < 0;
    int status = TR_OK;
    for (int i = 1; i < n && !counts && status == TR_OK; i++) status = open_nameless(path, &part[i].fd);
    if (n == 1 && !shows) run_part(part);
    else
        for (int i = 0; i < n && status == TR_OK; i++) status = start_part(&part[i]);
    for (int i = 0; status != TR_OK && i < n; i++)
        if (part[i].pid > 0) kill(part[i].pid, SIGKILL);
    int outcome = wait_for_parts(part, n, shows);
    if (status == TR_OK) status = outcome;
    for (int i = 1; i < n && !counts; i++) {
        if (status == TR_OK) status = append_part(part[i].fd, part->fd, path);
        if (part[i].fd >= 0) close(part[i].fd);
    }
    return status;
}

static int count_parts(const struct tr_generate_job *job, bool seekable)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    uint64_t most = job->lines / PART_LINES;
    if (most > job->units) most = job->units;
    if (most > PARTS) most = PARTS;
    if (!seekable || most < 2 || cores < 2) return 1;
    return most < (uint64_t)cores ? (int)most : (int)cores;
}

/* Writes into the descriptor, or counts if it is -1, and tells how many lines that were. */
static int write_lines(const struct tr_generate_job *job, int fd, const char *path, bool seekable,
                       uint64_t *lines)
{
    size_t length = strlen(job->file), n = (size_t)count_parts(job, seekable);
    bool gzip = fd >= 0 && length > 3 && strcmp(job->file + length - 3, ".gz") == 0;
    struct part *part =
        mmap(NULL, n * sizeof *part, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (part == MAP_FAILED) return tr_fail(TR_ERR_SYSTEM, "out of memory: %s", strerror(errno));
    for (size_t i = 0; i < n; i++) {
        part[i].job = job;
        part[i].begin = job->units / n * i;
        part[i].end = i + 1 == n ? job->units : job->units / n * (i + 1);
        part[i].compresses = gzip;
        part[i].fd = i == 0 ? fd : -1;
    }
    int status = run_parts(part, (int)n, path);
    *lines = lines_of(part, (int)n);
    munmap(part, n * sizeof *part);
    return status;
}

int tr_generate_count(const struct tr_generate_job *job, uint64_t *lines)
{
    return write_lines(job, -1, NULL, true, lines);
}

/* ---- where to ---- */

/* A device or a pipe is written as it is. */
static int write_directly(const struct tr_generate_job *job)
{
    bool standard = strcmp(job->file, "-") == 0;
    int fd = standard ? STDOUT_FILENO : open(job->file, O_WRONLY | O_CLOEXEC);
    if (fd < 0) return tr_output_failed(job->file, "created", errno);
    uint64_t lines;
    int status = write_lines(job, fd, job->file, false, &lines);
    if (!standard) close(fd);
    return status;
}

/* A file gets its name when it is complete. */
static int write_and_rename(const struct tr_generate_job *job, const char *temporary, uint64_t *lines)
{
    int fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0) return tr_output_failed(temporary, "created", errno);
    int status = write_lines(job, fd, temporary, true, lines);
    if (close(fd) < 0 && status == TR_OK) status = tr_output_failed(temporary, "written", errno);
    if (status == TR_OK && rename(temporary, job->file) < 0)
        status = tr_output_failed(job->file, "created", errno);
    if (status != TR_OK) unlink(temporary);
    return status;
}

/* Folders that cannot be written to are found before a line is made. */
static int write_file(const struct tr_generate_job *job)
{
    double begin = tr_now();
    char *temporary;
    struct stat made;
    uint64_t lines = 0;
    TR_TRY(tr_format(&temporary, "%s.tmp", job->file));
    char *slash = strrchr(temporary, '/');
    int status = TR_OK;
    if (slash && slash > temporary) {
        *slash = '\0';
        status = tr_output_make(temporary);
        *slash = '/';
    }
    if (status == TR_OK) status = write_and_rename(job, temporary, &lines);
    free(temporary);
    if (status == TR_OK && stat(job->file, &made) == 0)
        fprintf(stderr, "generate: %s: %llu %s, %.1f MB, %s\n", job->file, (unsigned long long)lines,
                job->what, (double)made.st_size * 1e-6, tr_duration(tr_now() - begin).text);
    return status;
}

int tr_generate_file(const struct tr_generate_job *job)
{
    struct stat status;
    bool there = stat(job->file, &status) == 0;
    if (there && S_ISDIR(status.st_mode))
        return tr_fail(TR_ERR_NO_OUTPUT, "%s: is a folder, expected the name of a file", job->file);
    if (strcmp(job->file, "-") == 0 || (there && !S_ISREG(status.st_mode))) return write_directly(job);
    return write_file(job);
}
