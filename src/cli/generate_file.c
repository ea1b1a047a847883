#define _GNU_SOURCE
#include "cli/generate_file.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "base/base.h"
#include "base/terminal.h"
#include "base/file.h"

/* What one of several threads writes. Gzip files may follow each other as text files may. */
struct part {
    const struct tr_generate_job *job;
    uint64_t begin, end; /* units */
    int fd; /* -1: lines are only counted. Part 0 writes to where the file shall be, the others to nameless files beside it,
             * which vanish whatever happens */
    bool compresses;
    gzFile gzip;
    uint64_t lines; /* written, without those of the header */
    pthread_t thread;
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
    else if (part->fd >= 0) error = tr_write_all(part->fd, text, length);
    if (error) {
        errno = error;
        return 0;
    }
    for (const char *at = text; (at = memchr(at, '\n', (size_t)(text + length - at))); at++) part->lines++;
    if (part->begin == 0 && part->fd >= 0) /* the others are about as far */
        tr_show_part("generating", (double)part->lines / (double)part->job->lines * (double)part->job->units /
                                       (double)(part->end - part->begin));
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
    part->lines = 0;
    if (status == TR_OK) status = job->write(job->state, part->begin, part->end, out);
    fclose(out);
    errno = 0;
    if (part->gzip && gzclose(part->gzip) != Z_OK && status == TR_OK) status = write_failed();
    return status;
}

/* Error texts are the thread's own. */
static void *run_part(void *which)
{
    struct part *part = which;
    part->status = write_units(part);
    bool io = part->status == TR_ERR_IO;
    if (part->status != TR_OK)
        snprintf(part->error, sizeof part->error, "%s%s%s", io ? part->job->file : "", io ? ": " : "",
                 tr_error_text());
    return NULL;
}

/* ---- all parts ---- */

static int open_nameless(const char *beside, int *fd)
{
    char *path;
    TR_TRY(tr_format(&path, "%s.XXXXXX", beside));
    *fd = mkostemp(path, O_CLOEXEC);
    int status = *fd >= 0 ? TR_OK : tr_file_failed(path, "created", errno);
    if (*fd >= 0) unlink(path);
    free(path);
    return status;
}

static int append_part(int from, int to, const char *path)
{
    off_t at = 0, end = lseek(from, 0, SEEK_END);
    while (at < end)
        if (sendfile(to, from, &at, (size_t)(end - at)) <= 0) return tr_file_failed(path, "written", errno);
    return TR_OK;
}

static int run_parts(struct part *part, int n, const char *path)
{
    bool counts = part->fd < 0;
    int status = TR_OK, started = 1;
    for (int i = 1; i < n && !counts && status == TR_OK; i++) status = open_nameless(path, &part[i].fd);
    for (; status == TR_OK && started < n; started++)
        if (pthread_create(&part[started].thread, NULL, run_part, &part[started]) != 0) break;
    if (status == TR_OK && started < n) status = tr_fail(TR_ERR_SYSTEM, "no thread for a part of the rows");
    if (status == TR_OK) run_part(part);
    tr_live_end();
    for (int i = 1; i < started; i++) pthread_join(part[i].thread, NULL);
    for (int i = 0; i < n && status == TR_OK; i++) /* the failure of the first that failed is ours */
        if (part[i].status != TR_OK) status = tr_fail(part[i].status, "%s", part[i].error);
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
    struct part *part;
    TR_TRY(TR_NEW(&part, n));
    for (size_t i = 0; i < n; i++) {
        part[i].job = job;
        part[i].begin = job->units / n * i;
        part[i].end = i + 1 == n ? job->units : job->units / n * (i + 1);
        part[i].compresses = gzip;
        part[i].fd = i == 0 ? fd : -1;
    }
    int status = run_parts(part, (int)n, path);
    *lines = 0;
    for (size_t i = 0; i < n; i++) *lines += part[i].lines;
    free(part);
    return status;
}

int tr_generate_count(const struct tr_generate_job *job, uint64_t *lines)
{
    return write_lines(job, -1, NULL, true, lines);
}

/* ---- where to ---- */

int tr_generate_file(const struct tr_generate_job *job)
{
    double begin = tr_now();
    struct stat there, made;
    struct tr_target target;
    char *folder;
    uint64_t lines = 0;
    if (stat(job->file, &there) == 0 && S_ISDIR(there.st_mode))
        return tr_fail(TR_ERR_NO_OUTPUT, "%s: is a folder, expected the name of a file", job->file);
    if (strcmp(job->file, "-") == 0) return write_lines(job, STDOUT_FILENO, job->file, false, &lines);
    const char *slash = strrchr(job->file, '/');
    TR_TRY(tr_format(&folder, "%.*s", slash ? (int)(slash - job->file) + 1 : 1, slash ? job->file : "."));
    int status = tr_make_folder(folder, false);
    free(folder);
    TR_TRY(status);
    status = tr_target_open(&target, TR_TARGET_NAMED, "%s", job->file);
    bool directly = target.in_place;
    if (status == TR_OK) status = write_lines(job, fileno(target.file), job->file, !directly, &lines);
    status = tr_target_close(&target, status);
    if (status == TR_OK && !directly && stat(job->file, &made) == 0)
        tr_printf(stderr, "generate: %s: %llu %s, %.1f MB, %s\n", job->file, (unsigned long long)lines,
                  job->what, (double)made.st_size * 1e-6, tr_duration(tr_now() - begin).text);
    return status;
}
