#define _GNU_SOURCE
#include "cli/cli.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zlib.h>

#include "base/base.h"
#include "data/generate.h"
#include "job/text.h"
#include "monitor/display.h"
#include "monitor/output.h"

/* ---- options ---- */

struct request {
    struct tr_generate_options options;
    const char *file;
};

static const char *const keys[] = {"rows", "features",  "nonzeros", "power", "noise",
                                   "seed", "first_row", "values",   NULL};

static int bad_value(const char *key, const char *value, const char *expected)
{
    return tr_fail(TR_ERR_USAGE, "%s: %s, expected %s", key, tr_shown(value).text, expected);
}

/* "500000", "500k", "1.5M", "1e6" */
static int read_count(const char *key, const char *text, double most, uint64_t *count)
{
    static const char *const expected = "a whole number such as 500000, 500k or 1M";
    char *end;
    double number = strtod(text, &end);
    if (end == text || !isfinite(number)) return bad_value(key, text, expected);
    double unit = *end == 'k' || *end == 'K' ? 1e3 : *end == 'M' ? 1e6 : *end == 'G' ? 1e9 : 1;
    number = round(number * unit * 1e3) / 1e3; /* 4.1M is not 4099999.9999999995 */
    if (unit > 1) end++;
    if (*end || number < 0 || number > most || number != floor(number)) return bad_value(key, text, expected);
    *count = (uint64_t)number;
    return TR_OK;
}

static int read_real(const char *key, const char *text, double *number)
{
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end) return bad_value(key, text, "a number");
    *number = value;
    return TR_OK;
}

static int read_count32(const char *key, const char *text, uint32_t *count)
{
    uint64_t wide;
    TR_TRY(read_count(key, text, 4294967294.0, &wide));
    *count = (uint32_t)wide;
    return TR_OK;
}

static int read_values(const char *text, enum tr_values *values)
{
    static const char *const names[] = {"unit", "binary", "real"};
    for (int i = 0; i < 3; i++) {
        if (strcmp(text, names[i]) != 0) continue;
        *values = (enum tr_values)i;
        return TR_OK;
    }
    return bad_value("values", text, "unit, binary or real");
}

static int unknown(const char *what, const char *word, const char *const words[])
{
    const char *meant = tr_suggest(word, words);
    return tr_fail(TR_ERR_USAGE, "unknown %s %s: %s%s%s", what, tr_shown(word).text,
                   meant ? "did you mean " : "see ", meant ? meant : "trireme help generate",
                   meant ? "?" : "");
}

static int set_option(struct tr_generate_options *o, const char *word)
{
    char key[32];
    size_t length = strcspn(word, "=");
    snprintf(key, sizeof key, "%.*s", (int)tr_min_size(length, sizeof key - 1), word);
    if (word[length] != '=' || *word == '-') return unknown("option", key, keys);
    const char *value = word + length + 1;
    if (!strcmp(key, "rows")) return read_count(key, value, 1e15, &o->rows);
    if (!strcmp(key, "first_row")) return read_count(key, value, 1e15, &o->first_row);
    if (!strcmp(key, "seed")) return read_count(key, value, 0x1p53, &o->seed);
    if (!strcmp(key, "features")) return read_count32(key, value, &o->features);
    if (!strcmp(key, "nonzeros")) return read_count32(key, value, &o->nonzeros);
    if (!strcmp(key, "power")) return read_real(key, value, &o->power);
    if (!strcmp(key, "noise")) return read_real(key, value, &o->noise);
    if (!strcmp(key, "values")) return read_values(value, &o->values);
    return unknown("option", key, keys);
}

static int read_request(int argc, char **argv, struct request *request)
{
    static const char *const kinds[] = {"ctr", NULL};
    if (argc < 1)
        return tr_fail(TR_ERR_USAGE,
                       "usage: trireme generate ctr -o FILE [rows=1M ...]: see trireme help generate");
    if (strcmp(argv[0], "ctr") != 0) return unknown("kind of data", argv[0], kinds);
    *request = (struct request){.options = TR_GENERATE_DEFAULTS};
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "-o") != 0) TR_TRY(set_option(&request->options, argv[i]));
        else if (++i < argc) request->file = argv[i];
    }
    if (!request->file)
        return tr_fail(TR_ERR_USAGE, "no file to write to: add -o FILE, or -o - for standard output");
    if (request->options.rows == 0) return tr_fail(TR_ERR_USAGE, "rows: 0, expected at least 1");
    return TR_OK;
}

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

static void run_part(const struct request *request, struct parts *parts, int i, bool gzip)
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
        snprintf(part->error, sizeof part->error, "%s%s%s", io ? request->file : "", io ? ": " : "",
                 tr_error_text());
}

/* Its failure is ours. */
static int part_status(const struct part *part)
{
    return part->status == TR_OK ? TR_OK : tr_fail(part->status, "%s", part->error);
}

static int start_parts(const struct request *request, struct parts *parts, bool gzip)
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

static int run_parts(const struct request *request, struct parts *parts, const char *path, bool gzip)
{
    struct meter meter = {isatty(STDERR_FILENO) && strcmp(request->file, "-") != 0, tr_now(),
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

static int write_rows(const struct request *request, int fd, const char *path, bool seekable)
{
    size_t length = strlen(request->file);
    bool gzip = length > 3 && strcmp(request->file + length - 3, ".gz") == 0;
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
static int write_directly(const struct request *request)
{
    bool standard = strcmp(request->file, "-") == 0;
    int fd = standard ? STDOUT_FILENO : open(request->file, O_WRONLY | O_CLOEXEC);
    if (fd < 0) return tr_output_failed(request->file, "created", errno);
    int status = write_rows(request, fd, request->file, false);
    if (!standard) close(fd);
    return status;
}

/* A file gets its name when it is complete. */
static int write_and_rename(const struct request *request, const char *temporary)
{
    int fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0) return tr_output_failed(temporary, "created", errno);
    int status = write_rows(request, fd, temporary, true);
    if (close(fd) < 0 && status == TR_OK) status = tr_output_failed(temporary, "written", errno);
    if (status == TR_OK && rename(temporary, request->file) < 0)
        status = tr_output_failed(request->file, "created", errno);
    if (status != TR_OK) unlink(temporary);
    return status;
}

static int write_file(const struct request *request)
{
    double begin = tr_now();
    char *temporary;
    struct stat made;
    TR_TRY(make_parent(request->file));
    TR_TRY(tr_format(&temporary, "%s.tmp", request->file));
    int status = write_and_rename(request, temporary);
    free(temporary);
    if (status == TR_OK && stat(request->file, &made) == 0)
        fprintf(stderr, "generate: %s: %llu rows, %.1f MB, %s\n", request->file,
                (unsigned long long)request->options.rows, (double)made.st_size * 1e-6,
                tr_duration(tr_now() - begin).text);
    return status;
}

static int generate(const struct request *request)
{
    struct stat status;
    bool there = stat(request->file, &status) == 0;
    if (there && S_ISDIR(status.st_mode))
        return tr_fail(TR_ERR_NO_OUTPUT, "%s: is a folder, expected the name of a file", request->file);
    if (strcmp(request->file, "-") == 0 || (there && !S_ISREG(status.st_mode)))
        return write_directly(request);
    return write_file(request);
}

int tr_generate_command(int argc, char **argv)
{
    struct request request;
    if (argc == 1 && (strcmp(argv[0], "--help") == 0 || strcmp(argv[0], "-h") == 0))
        return tr_help_command(1, (char *[]){"generate", NULL});
    int status = read_request(argc, argv, &request);
    if (status == TR_OK) status = generate(&request);
    if (status == TR_ERR_CONFIG) status = TR_ERR_USAGE; /* impossible options are of no job file here */
    return tr_complain(status);
}
