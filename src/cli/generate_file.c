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
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zlib.h>

#include "base/base.h"
#include "monitor/display.h"
#include "monitor/output.h"

/* ---- one part: some of the rows into a descriptor ---- */

/* What a part tells of itself, in memory that its process shares with the one that waits. */
struct part {
    atomic_ullong lines; /* written */
    int status;
    char error[1024];
};

/* A stream that counts lines and compresses, if that is asked for. */
struct sink {
    int fd; /* -1: counts only */
    gzFile gzip;
    struct part *part;
};

static ssize_t sink_write(void *cookie, const char *text, size_t length)
{
    struct sink *sink = cookie;
    int error = 0;
    errno = 0;
    if (!sink->gzip && sink->fd >= 0) error = tr_output_write(sink->fd, text, length);
    if (sink->gzip && gzwrite(sink->gzip, text, (unsigned)length) != (int)length) error = errno ? errno : EIO;
    if (error) {
        errno = error;
        return 0;
    }
    unsigned long long lines = 0;
    for (const char *at = text; (at = memchr(at, '\n', (size_t)(text + length - at))); at++) lines++;
    atomic_fetch_add_explicit(&sink->part->lines, lines, memory_order_relaxed);
    return (ssize_t)length;
}

/* The units begin to end - 1. The header is not counted. */
static int write_units(const struct tr_generate_job *job, uint64_t begin, uint64_t end, struct sink *sink)
{
    FILE *out = fopencookie(sink, "w", (cookie_io_functions_t){.write = sink_write});
    if (!out) return tr_fail(TR_ERR_SYSTEM, "out of memory: a stream");
    setvbuf(out, NULL, _IONBF, 0); /* lines come in large pieces already */
    bool fits = begin > 0 || !job->header || fputs(job->header, out) >= 0;
    int status = fits ? TR_OK : tr_fail(TR_ERR_IO, "writing generated rows: %s", strerror(errno));
    atomic_store(&sink->part->lines, 0);
    if (status == TR_OK) status = job->write(job->state, begin, end, out);
    fclose(out);
    return status;
}

static int write_part(const struct tr_generate_job *job, uint64_t begin, uint64_t end, struct sink *sink,
                      bool gzip)
{
    if (gzip && !(sink->gzip = gzdopen(dup(sink->fd), "wb6")))
        return tr_fail(TR_ERR_SYSTEM, "out of memory: zlib");
    int status = write_units(job, begin, end, sink);
    errno = 0;
    if (sink->gzip && gzclose(sink->gzip) != Z_OK && status == TR_OK)
        status = tr_fail(TR_ERR_IO, "writing generated rows: %s", strerror(errno ? errno : EIO));
    return status;
}

/* ---- all parts ---- */

/* Processes that each make some of the units; gzip files may follow each other as text files may. Part 0 goes
 * to where the file shall be, the others to nameless files beside it, which vanish whatever happens. */
enum { PARTS = 64, PART_LINES = 20000 };
struct parts {
    int n;
    int fd[PARTS]; /* all -1: lines are only counted */
    pid_t pid[PARTS];
    struct part *part;
};

static int count_parts(const struct tr_generate_job *job, bool seekable)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    uint64_t most = job->lines / PART_LINES;
    if (most > job->units) most = job->units;
    if (!seekable || most < 2 || cores < 2) return 1;
    if (cores > PARTS) cores = PARTS;
    return most < (uint64_t)cores ? (int)most : (int)cores;
}

static int open_nameless(const char *beside, int *fd)
{
    char *path;
    TR_TRY(tr_format(&path, "%s.XXXXXX", beside));
    *fd = mkostemp(path, O_CLOEXEC);
    int error = errno;
    if (*fd >= 0) unlink(path);
    int status = *fd >= 0 ? TR_OK : tr_output_failed(path, "created", error);
    free(path);
    return status;
}

static void run_part(const struct tr_generate_job *job, struct parts *parts, int i, bool gzip)
{
    uint64_t share = job->units / (uint64_t)parts->n, begin = share * (uint64_t)i;
    struct part *part = &parts->part[i];
    struct sink sink = {.fd = parts->fd[i], .part = part};
    part->status = write_part(job, begin, i + 1 == parts->n ? job->units : begin + share, &sink, gzip);
    bool io = part->status == TR_ERR_IO;
    if (part->status != TR_OK)
        snprintf(part->error, sizeof part->error, "%s%s%s", io ? job->file : "", io ? ": " : "",
                 tr_error_text());
}

/* Its failure is ours. */
static int part_status(const struct part *part)
{
    return part->status == TR_OK ? TR_OK : tr_fail(part->status, "%s", part->error);
}

static int start_parts(const struct tr_generate_job *job, struct parts *parts, bool gzip)
{
    pid_t parent = getpid();
    for (int i = 0; i < parts->n; i++) {
        parts->pid[i] = fork();
        if (parts->pid[i] < 0)
            return tr_fail(TR_ERR_SYSTEM, "no process for a part of the rows: %s", strerror(errno));
        if (parts->pid[i] > 0) continue;
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* nobody would miss the rows of an orphan */
        if (getppid() == parent) run_part(job, parts, i, gzip);
        _exit(0);
    }
    return TR_OK;
}

/* ---- progress ---- */

struct meter {
    bool shows;
    double begin;
    const struct tr_generate_job *job;
};

static uint64_t lines_of(const struct parts *parts)
{
    uint64_t lines = 0;
    for (int i = 0; i < parts->n; i++) lines += atomic_load(&parts->part[i].lines);
    return lines;
}

static void show_meter(const struct meter *meter, const struct parts *parts)
{
    if (!meter->shows) return;
    double lines = (double)lines_of(parts), total = (double)meter->job->lines;
    double left = lines > 0 ? (tr_now() - meter->begin) * (total - lines) / lines : NAN;
    fprintf(stderr, "\rgenerate: %3.0f %% of %.0f %s, %s left \033[K", fmin(100 * lines / total, 100), total,
            meter->job->what, tr_duration(fmax(left, 0)).text);
}

static void clear_meter(const struct meter *meter)
{
    if (meter->shows) fputs("\r\033[K", stderr);
}

static int wait_for_parts(struct parts *parts, const struct meter *meter)
{
    int status = TR_OK;
    for (int i = 0; i < parts->n; i++) {
        int how = 0;
        while (waitpid(parts->pid[i], &how, meter->shows ? WNOHANG : 0) == 0) {
            show_meter(meter, parts);
            tr_sleep(0.1);
        }
        parts->pid[i] = 0;
        struct part *part = &parts->part[i];
        if (status != TR_OK) continue;
        if (WIFSIGNALED(how))
            status = tr_fail(TR_ERR_SYSTEM, "a process that made rows was ended by signal %d", WTERMSIG(how));
        else status = part_status(part);
    }
    clear_meter(meter);
    return status;
}

static int append_part(int from, int to, const char *path)
{
    char buffer[1 << 16];
    if (lseek(from, 0, SEEK_SET) < 0) return tr_output_failed(path, "written", errno);
    for (;;) {
        ssize_t n = read(from, buffer, sizeof buffer);
        if (n == 0) return TR_OK;
        int error = n < 0 ? errno : tr_output_write(to, buffer, (size_t)n);
        if (error) return tr_output_failed(path, "written", error);
    }
}

static int run_parts(const struct tr_generate_job *job, struct parts *parts, const char *path, bool gzip)
{
    struct meter meter = {isatty(STDERR_FILENO) && strcmp(job->file, "-") != 0, tr_now(), job};
    bool counts = parts->fd[0] < 0;
    if (parts->n == 1 && !meter.shows) {
        run_part(job, parts, 0, gzip);
        return part_status(&parts->part[0]);
    }
    for (int i = 1; i < parts->n && !counts; i++) TR_TRY(open_nameless(path, &parts->fd[i]));
    int status = start_parts(job, parts, gzip);
    for (int i = 0; status != TR_OK && i < parts->n; i++)
        if (parts->pid[i] > 0) kill(parts->pid[i], SIGKILL);
    if (status == TR_OK) status = wait_for_parts(parts, &meter);
    for (int i = 1; status == TR_OK && i < parts->n && !counts; i++)
        status = append_part(parts->fd[i], parts->fd[0], path);
    return status;
}

/* Writes into the descriptor, or counts if it is -1, and tells how many lines that were. */
static int write_lines(const struct tr_generate_job *job, int fd, const char *path, bool seekable,
                       uint64_t *lines)
{
    size_t length = strlen(job->file);
    bool gzip = fd >= 0 && length > 3 && strcmp(job->file + length - 3, ".gz") == 0;
    struct parts parts = {.n = count_parts(job, seekable), .fd = {fd}};
    parts.part = mmap(NULL, (size_t)parts.n * sizeof *parts.part, PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (parts.part == MAP_FAILED) return tr_fail(TR_ERR_SYSTEM, "out of memory: %s", strerror(errno));
    for (int i = 1; i < parts.n; i++) parts.fd[i] = -1;
    int status = run_parts(job, &parts, path, gzip);
    *lines = lines_of(&parts);
    for (int i = 1; i < parts.n; i++)
        if (parts.fd[i] >= 0) close(parts.fd[i]);
    munmap(parts.part, (size_t)parts.n * sizeof *parts.part);
    return status;
}

int tr_generate_count(const struct tr_generate_job *job, uint64_t *lines)
{
    return write_lines(job, -1, NULL, true, lines);
}

/* ---- where to ---- */

/* Files that cannot be written are found before a line is made. */
static int make_parent(const char *file)
{
    char *folder;
    TR_TRY(tr_copy_string(file, &folder));
    char *slash = strrchr(folder, '/');
    if (slash) *slash = '\0';
    int status = slash && *folder ? tr_output_make(folder) : TR_OK;
    free(folder);
    return status;
}

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

static int write_file(const struct tr_generate_job *job)
{
    double begin = tr_now();
    char *temporary;
    struct stat made;
    uint64_t lines = 0;
    TR_TRY(make_parent(job->file));
    TR_TRY(tr_format(&temporary, "%s.tmp", job->file));
    int status = write_and_rename(job, temporary, &lines);
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
