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
    atomic_ullong rows; /* written */
    int status;
    char error[1024];
};

/* A stream that counts rows and compresses, if that is asked for. */
struct sink {
    int fd;
    gzFile gzip;
    struct part *part;
};

static ssize_t sink_write(void *cookie, const char *text, size_t length)
{
    struct sink *sink = cookie;
    int error = 0;
    errno = 0;
    if (!sink->gzip) error = tr_output_write(sink->fd, text, length);
    else if (gzwrite(sink->gzip, text, (unsigned)length) != (int)length) error = errno ? errno : EIO;
    if (error) {
        errno = error;
        return 0;
    }
    unsigned long long rows = 0;
    for (const char *at = text; (at = memchr(at, '\n', (size_t)(text + length - at))); at++) rows++;
    atomic_fetch_add_explicit(&sink->part->rows, rows, memory_order_relaxed);
    return (ssize_t)length;
}

static int write_part(const struct tr_generate_options *options, int fd, bool gzip, struct part *part)
{
    struct sink sink = {.fd = fd, .part = part};
    if (gzip && !(sink.gzip = gzdopen(dup(fd), "wb6"))) return tr_fail(TR_ERR_SYSTEM, "out of memory: zlib");
    FILE *out = fopencookie(&sink, "w", (cookie_io_functions_t){.write = sink_write});
    if (!out) return tr_fail(TR_ERR_SYSTEM, "out of memory: a stream");
    setvbuf(out, NULL, _IONBF, 0); /* rows come in large pieces already */
    int status = tr_generate_ctr(options, out);
    fclose(out);
    errno = 0;
    if (sink.gzip && gzclose(sink.gzip) != Z_OK && status == TR_OK)
        status = tr_fail(TR_ERR_IO, "writing generated rows: %s", strerror(errno ? errno : EIO));
    return status;
}

/* ---- all parts ---- */

/* Processes that each make some of the rows; gzip files may follow each other as text files may. Part 0 goes
 * to where the file shall be, the others to nameless files beside it, which vanish whatever happens. */
enum { PARTS = 64, PART_ROWS = 20000 };
struct parts {
    int n;
    int fd[PARTS];
    pid_t pid[PARTS];
    struct part *part;
};

static int count_parts(uint64_t rows, bool seekable)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    uint64_t most = rows / PART_ROWS;
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
    struct tr_generate_options options = request->options;
    uint64_t first = options.rows / (uint64_t)parts->n * (uint64_t)i,
             last = options.rows / (uint64_t)parts->n * (uint64_t)(i + 1);
    if (i + 1 == parts->n) last = options.rows;
    options.first_row += first;
    options.rows = last - first;
    struct part *part = &parts->part[i];
    part->status = write_part(&options, parts->fd[i], gzip, part);
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
        if (getppid() == parent) run_part(request, parts, i, gzip);
        _exit(0);
    }
    return TR_OK;
}

/* ---- progress ---- */

struct meter {
    bool shows;
    double begin;
    uint64_t total;
};

static void show_meter(const struct meter *meter, const struct parts *parts)
{
    if (!meter->shows) return;
    double rows = 0, total = (double)meter->total;
    for (int i = 0; i < parts->n; i++) rows += (double)atomic_load(&parts->part[i].rows);
    double left = rows > 0 ? (tr_now() - meter->begin) * (total - rows) / rows : NAN;
    fprintf(stderr, "\rgenerate: %3.0f %% of %.0f rows, %s left \033[K", 100 * rows / total, total,
            tr_duration(left).text);
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
    struct meter meter = {isatty(STDERR_FILENO) && strcmp(job->file, "-") != 0, tr_now(),
                          request->options.rows};
    if (parts->n == 1 && !meter.shows) {
        run_part(request, parts, 0, gzip);
        return part_status(&parts->part[0]);
    }
    for (int i = 1; i < parts->n; i++) TR_TRY(open_nameless(path, &parts->fd[i]));
    int status = start_parts(request, parts, gzip);
    for (int i = 0; status != TR_OK && i < parts->n; i++)
        if (parts->pid[i] > 0) kill(parts->pid[i], SIGKILL);
    if (status == TR_OK) status = wait_for_parts(parts, &meter);
    for (int i = 1; status == TR_OK && i < parts->n; i++)
        status = append_part(parts->fd[i], parts->fd[0], path);
    return status;
}

static int write_rows(const struct tr_generate_job *job, int fd, const char *path, bool seekable)
{
    size_t length = strlen(job->file);
    bool gzip = length > 3 && strcmp(job->file + length - 3, ".gz") == 0;
    struct parts parts = {.n = count_parts(request->options.rows, seekable), .fd = {fd}};
    parts.part = mmap(NULL, (size_t)parts.n * sizeof *parts.part, PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (parts.part == MAP_FAILED) return tr_fail(TR_ERR_SYSTEM, "out of memory: %s", strerror(errno));
    for (int i = 1; i < parts.n; i++) parts.fd[i] = -1;
    int status = run_parts(request, &parts, path, gzip);
    for (int i = 1; i < parts.n; i++)
        if (parts.fd[i] >= 0) close(parts.fd[i]);
    munmap(parts.part, (size_t)parts.n * sizeof *parts.part);
    return status;
}

/* ---- where to ---- */

/* Options that cannot be and files that cannot be written are found before a row is made. */
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
    int status = write_rows(request, fd, job->file, false);
    if (!standard) close(fd);
    return status;
}

/* A file gets its name when it is complete. */
static int write_and_rename(const struct tr_generate_job *job, const char *temporary)
{
    int fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0) return tr_output_failed(temporary, "created", errno);
    int status = write_rows(request, fd, temporary, true);
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
    TR_TRY(make_parent(job->file));
    TR_TRY(tr_format(&temporary, "%s.tmp", job->file));
    int status = write_and_rename(request, temporary);
    free(temporary);
    if (status == TR_OK && stat(job->file, &made) == 0)
        fprintf(stderr, "generate: %s: %llu rows, %.1f MB, %s\n", job->file,
                (unsigned long long)request->options.rows, (double)made.st_size * 1e-6,
                tr_duration(tr_now() - begin).text);
    return status;
}

static int generate(const struct tr_generate_job *job)
{
    struct stat status;
    bool there = stat(job->file, &status) == 0;
    if (there && S_ISDIR(status.st_mode))
        return tr_fail(TR_ERR_NO_OUTPUT, "%s: is a folder, expected the name of a file", job->file);
    if (strcmp(job->file, "-") == 0 || (there && !S_ISREG(status.st_mode)))
        return write_directly(request);
    return write_file(request);
}

