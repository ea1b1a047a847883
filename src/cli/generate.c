/* trireme generate: artificial data, written by several threads; the file appears when it is complete. */
#define _GNU_SOURCE
#include "cli/cli.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "base/base.h"
#include "base/terminal.h"
#include "data/generate.h"

/* ---- kinds of data ---- */

struct request {
    const struct kind *kind;
    struct tr_generate_options ctr;
    struct tr_generate_ratings ratings;
    struct tr_generate_docword docword;
    struct tr_generate_dense dense;
    struct tr_generate_table table; /* events, claims */
    const char *file;               /* value of -o */
    const char *test;               /* value of -t; may be NULL */
    const char *vocabulary;         /* value of -v; may be NULL */
};

/* A kind of data. It consists of units (users, documents or rows); each thread can write a range of units. */
struct kind {
    const char *lines; /* plural noun for lines: "rows", "ratings" */
    /* Writes units begin .. end - 1. */
    int (*write)(const void *state, uint64_t begin, uint64_t end, FILE *out);
};

#define AT(member) offsetof(struct request, member)

static int write_ctr(const void *state, uint64_t begin, uint64_t end, FILE *out)
{
    struct tr_generate_options options = ((const struct request *)state)->ctr;
    options.first_row += begin;
    options.rows = end - begin;
    return tr_generate_ctr(&options, out);
}

static int write_ratings(const void *state, uint64_t begin, uint64_t end, FILE *out)
{
    return tr_generate_ratings(&((const struct request *)state)->ratings, begin, end, out);
}

static int write_docword(const void *state, uint64_t begin, uint64_t end, FILE *out)
{
    return tr_generate_docword(&((const struct request *)state)->docword, begin, end, out);
}

static int write_dense(const void *state, uint64_t begin, uint64_t end, FILE *out)
{
    struct tr_generate_dense options = ((const struct request *)state)->dense;
    options.first_row += begin;
    options.rows = end - begin;
    return tr_generate_dense(&options, out);
}

static int write_events(const void *state, uint64_t begin, uint64_t end, FILE *out)
{
    struct tr_generate_table options = ((const struct request *)state)->table;
    options.first_row += begin;
    options.rows = end - begin;
    return tr_generate_events(&options, out);
}

static int write_claims(const void *state, uint64_t begin, uint64_t end, FILE *out)
{
    struct tr_generate_table options = ((const struct request *)state)->table;
    options.first_row += begin;
    options.rows = end - begin;
    return tr_generate_claims(&options, out);
}

enum { CTR, RATINGS, DOCWORD, DENSE, EVENTS, CLAIMS, KINDS };
static const struct kind kinds[KINDS] = {
    [CTR] = {"rows", write_ctr},           [RATINGS] = {"ratings", write_ratings},
    [DOCWORD] = {"counts", write_docword}, [DENSE] = {"rows", write_dense},
    [EVENTS] = {"rows", write_events},     [CLAIMS] = {"rows", write_claims}};

static const struct tr_argument generate_arguments[] = {
    {"-o", TR_ARG_TEXT, AT(file), .value = "FILE",
     .help = "the file to write; - is standard output, and a name that ends in .gz compresses it"},
    {0}};

static const struct tr_argument ctr_arguments[] = {
    {"rows", TR_ARG_COUNT, AT(ctr.rows), .help = "number of rows"},
    {"features", TR_ARG_COUNT32, AT(ctr.features), .help = "number of features"},
    {"nonzeros", TR_ARG_COUNT32, AT(ctr.nonzeros), .help = "features of each row"},
    {"power", TR_ARG_REAL, AT(ctr.power),
     .help = "the k-th most popular feature is drawn in proportion to k^-power"},
    {"noise", TR_ARG_REAL, AT(ctr.noise), .help = "part of the labels that are flipped"},
    {"seed", TR_ARG_COUNT, AT(ctr.seed), .help = "the same seed makes the same data"},
    {"first_row", TR_ARG_COUNT, AT(ctr.first_row),
     .help = "number of the first row: later rows of the same seed make test data"},
    {"values", TR_ARG_CHOICE, AT(ctr.values), .words = TR_WORDS("unit", "binary", "real"),
     .help = "equal in a row, which has length 1; all 1; or between 0 and 1"},
    {0}};

static const struct tr_argument ratings_arguments[] = {
    {"-t", TR_ARG_TEXT, AT(test), .value = "TEST", .help = "another file, for the ratings of the test data"},
    {"users", TR_ARG_COUNT32, AT(ratings.users), .help = "number of users"},
    {"items", TR_ARG_COUNT32, AT(ratings.items), .help = "number of items"},
    {"ratings", TR_ARG_COUNT, AT(ratings.ratings), .help = "number of ratings"},
    {"rank", TR_ARG_COUNT32, AT(ratings.rank), .help = "number of hidden factors"},
    {"power", TR_ARG_REAL, AT(ratings.power),
     .help = "the k-th most popular item is drawn in proportion to k^-power"},
    {"noise", TR_ARG_REAL, AT(ratings.noise), .help = "standard deviation of the noise"},
    {"test", TR_ARG_REAL, AT(ratings.test), .value = "0.1", .help = "part of the ratings that goes to TEST"},
    {"seed", TR_ARG_COUNT, AT(ratings.seed), .help = "the same seed makes the same data"},
    {"values", TR_ARG_CHOICE, AT(ratings.values), .words = TR_WORDS("whole", "real"),
     .help = "whole numbers, or two decimals"},
    {0}};

static const struct tr_argument docword_arguments[] = {
    {"-v", TR_ARG_TEXT, AT(vocabulary), .value = "VOCABULARY", .help = "a file for the words, one a line"},
    {"documents", TR_ARG_COUNT32, AT(docword.documents), .help = "number of documents"},
    {"words", TR_ARG_COUNT32, AT(docword.words), .help = "number of words in the vocabulary"},
    {"tokens", TR_ARG_COUNT, AT(docword.tokens), .help = "length of all documents together"},
    {"topics", TR_ARG_COUNT32, AT(docword.topics), .help = "number of hidden topics"},
    {"alpha", TR_ARG_REAL, AT(docword.alpha), .help = "a small value gives each document few topics"},
    {"beta", TR_ARG_REAL, AT(docword.beta), .help = "a small value gives each topic few words"},
    {"power", TR_ARG_REAL, AT(docword.power),
     .help = "the k-th most frequent word occurs in proportion to k^-power"},
    {"seed", TR_ARG_COUNT, AT(docword.seed), .help = "the same seed makes the same data"},
    {0}};

static const struct tr_argument dense_arguments[] = {
    {"rows", TR_ARG_COUNT, AT(dense.rows), .help = "number of rows"},
    {"columns", TR_ARG_COUNT32, AT(dense.columns), .help = "number of columns"},
    {"clusters", TR_ARG_COUNT32, AT(dense.clusters), .help = "number of clusters"},
    {"spread", TR_ARG_REAL, AT(dense.spread), .help = "standard deviation of the centres"},
    {"noise", TR_ARG_REAL, AT(dense.noise), .help = "standard deviation of the rows around their centres"},
    {"seed", TR_ARG_COUNT, AT(dense.seed), .help = "the same seed makes the same data"},
    {"first_row", TR_ARG_COUNT, AT(dense.first_row),
     .help = "later rows of the same seed have the same centres"},
    {"format", TR_ARG_CHOICE, AT(dense.format), .words = TR_WORDS("csv", "libsvm"),
     .help = "format of the file"},
    {"label", TR_ARG_CHOICE, AT(dense.label), .words = TR_WORDS("none", "first", "last"),
     .help = "column of csv with the number of the cluster, with which LIBSVM text always begins"},
    {0}};

static const struct tr_argument table_arguments[] = {
    {"rows", TR_ARG_COUNT, AT(table.rows), .help = "number of rows"},
    {"seed", TR_ARG_COUNT, AT(table.seed), .help = "the same seed makes the same data"},
    {"first_row", TR_ARG_COUNT, AT(table.first_row),
     .help = "later rows of the same seed follow the same model"},
    {0}};

static const struct tr_variant variants[KINDS + 1] = {
    [CTR] = {"ctr",
             "LIBSVM text that resembles clicks on advertisements: sparse rows of few popular and many rare "
             "features, with labels from a hidden logistic model.",
             ctr_arguments},
    [RATINGS] = {"ratings", "lines of user, item and rating, 1 to 5, from hidden factors of users and items.",
                 ratings_arguments},
    [DOCWORD] = {"docword", "a bag of words in UCI's format, from hidden topics.", docword_arguments},
    [DENSE] = {"dense", "rows of numbers in clusters.", dense_arguments},
    [EVENTS] =
        {"events",
         "a table for trees: csv of 28 numbers and a label, 0 or 1, that no linear model of them predicts.",
         table_arguments},
    [CLAIMS] = {
        "claims",
        "insurance policies with their exposures and claims: csv, whose numbers of claims and amounts have "
        "means that are products of factors.",
        table_arguments}};

/* ---- files ---- */

/* A file to write. */
struct output {
    const char *file; /* name of the file; - is standard output, and a file that ends in .gz is compressed */
    const char *header; /* text before the lines; may be NULL */
    const char *what;   /* plural noun for lines, for messages: see struct kind */
    uint64_t units;     /* number of units */
    uint64_t lines;     /* approximate number of lines */
    int (*write)(const void *state, uint64_t begin, uint64_t end, FILE *out); /* see struct kind */
    const void *state;                                                        /* argument of write() */
};

/* The part of a file that one thread writes. Part 0 is written to the file itself, each other part to a temporary file, which is
 * appended later; compressed parts can be concatenated, too. */
struct part {
    const struct output *job;
    uint64_t begin, end; /* units of this part */
    int fd;              /* file of this part; -1: lines are only counted */
    bool compresses;     /* the part is written in gzip format */
    gzFile gzip;
    uint64_t lines; /* number of lines that have been written, without those of the header */
    pthread_t thread;
    int status;
    char error[1024]; /* error text of the thread */
};

enum { PARTS = 64, PART_LINES = 20000 };

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
    if (part->begin == 0 && part->fd >= 0) /* assume that the other threads have written the same fraction */
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
    const struct output *job = part->job;
    if (part->compresses && !(part->gzip = gzdopen(dup(part->fd), "wb6")))
        return tr_fail(TR_ERR_SYSTEM, "out of memory: zlib");
    FILE *out = fopencookie(part, "w", (cookie_io_functions_t){.write = write_text});
    if (!out) return tr_fail(TR_ERR_SYSTEM, "out of memory: a stream");
    setvbuf(out, NULL, _IONBF, 0); /* no buffer: job->write() writes many lines at a time */
    int status = part->begin == 0 && job->header && fputs(job->header, out) < 0 ? write_failed() : TR_OK;
    part->lines = 0;
    if (status == TR_OK) status = job->write(job->state, part->begin, part->end, out);
    fclose(out);
    errno = 0;
    if (part->gzip && gzclose(part->gzip) != Z_OK && status == TR_OK) status = write_failed();
    return status;
}

/* The function of a thread. It copies the error text, which tr_fail() stores per thread. */
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

static int run_parts(struct part *part, int n, const char *path)
{
    bool counts = part->fd < 0;
    int status = TR_OK, started = 1;
    for (int i = 1; i < n && !counts && status == TR_OK; i++) {
        TR_FREED char *name = NULL;
        status = tr_format(&name, "%s.XXXXXX", path);
        if (status != TR_OK) break;
        part[i].fd = mkostemp(name, O_CLOEXEC);
        if (part[i].fd >= 0) unlink(name);
        else status = tr_file_failed(name, "created", errno);
    }
    for (; status == TR_OK && started < n; started++)
        if (pthread_create(&part[started].thread, NULL, run_part, &part[started]) != 0) break;
    if (status == TR_OK && started < n) status = tr_fail(TR_ERR_SYSTEM, "no thread for a part of the rows");
    if (status == TR_OK) run_part(part);
    tr_live_end();
    for (int i = 1; i < started; i++) pthread_join(part[i].thread, NULL);
    for (int i = 0; i < n && status == TR_OK; i++) /* report the first failure */
        if (part[i].status != TR_OK) status = tr_fail(part[i].status, "%s", part[i].error);
    for (int i = 1; i < n && !counts; i++) {
        off_t at = 0, end = status == TR_OK ? lseek(part[i].fd, 0, SEEK_END) : 0;
        while (status == TR_OK && at < end)
            if (sendfile(part->fd, part[i].fd, &at, (size_t)(end - at)) <= 0)
                status = tr_file_failed(path, "written", errno);
        if (part[i].fd >= 0) close(part[i].fd);
    }
    return status;
}

/* Writes all lines to the descriptor fd; -1: only counts them. Sets *lines to their number. */
static int write_lines(const struct output *job, int fd, const char *path, bool seekable, uint64_t *lines)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    uint64_t most = job->lines / PART_LINES;
    if (most > job->units) most = job->units;
    if (most > PARTS) most = PARTS;
    if (most > (uint64_t)cores) most = (uint64_t)cores;
    size_t length = strlen(job->file), n = seekable && most > 1 ? (size_t)most : 1;
    bool gzip = fd >= 0 && length > 3 && strcmp(job->file + length - 3, ".gz") == 0;
    TR_FREED struct part *part = NULL;
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
    return status;
}

static int write_file(const struct output *job)
{
    double begin = tr_now();
    struct stat there, made;
    struct tr_target target;
    TR_FREED char *folder = NULL;
    uint64_t lines = 0;
    if (stat(job->file, &there) == 0 && S_ISDIR(there.st_mode))
        return tr_fail(TR_ERR_NO_OUTPUT, "%s: is a folder, expected the name of a file", job->file);
    if (strcmp(job->file, "-") == 0) return write_lines(job, STDOUT_FILENO, job->file, false, &lines);
    const char *slash = strrchr(job->file, '/');
    TR_TRY(tr_format(&folder, "%.*s", slash ? (int)(slash - job->file) + 1 : 1, slash ? job->file : "."));
    TR_TRY(tr_make_folder(folder, false));
    int status = tr_target_open(&target, TR_TARGET_NAMED, "%s", job->file);
    bool directly = target.in_place;
    if (status == TR_OK) status = write_lines(job, fileno(target.file), job->file, !directly, &lines);
    status = tr_target_close(&target, status);
    if (status == TR_OK && !directly && stat(job->file, &made) == 0)
        tr_printf(stderr, "generate: %s: %llu %s, %.1f MB, %s\n", job->file, (unsigned long long)lines,
                  job->what, (double)made.st_size * 1e-6, tr_duration(tr_now() - begin).text);
    return status;
}

/* ---- the command ---- */

static int write_vocabulary(const void *state, uint64_t begin, uint64_t end, FILE *out)
{
    (void)state;
    return tr_generate_vocabulary((uint32_t)begin, (uint32_t)end, out);
}

/* Sets job->units and job->lines. */
static void output_measure(const struct request *request, struct output *job)
{
    const struct tr_generate_ratings *r = &request->ratings;
    switch ((int)(request->kind - kinds)) {
    case CTR: job->units = job->lines = request->ctr.rows; break;
    case RATINGS:
        job->units = r->users;
        job->lines = (uint64_t)((double)r->ratings * (r->part == TR_RATING_TEST ? r->test : 1 - r->test));
        break;
    case DOCWORD:
        job->units = request->docword.documents;
        job->lines = request->docword.tokens;
        break;
    case DENSE: job->units = job->lines = request->dense.rows; break;
    case EVENTS:
    case CLAIMS: job->units = job->lines = request->table.rows; break;
    }
}

static int generate(struct request *request)
{
    struct output job = {
        .file = request->file, .what = request->kind->lines, .write = request->kind->write, .state = request};
    char header[80];
    if (!request->file)
        return tr_fail(TR_ERR_USAGE, "no file to write to: add -o FILE, or -o - for standard output");
    if (request->kind == &kinds[CTR] && request->ctr.rows == 0)
        return tr_fail(TR_ERR_USAGE, "rows: 0, expected at least 1");
    if (request->ratings.test != 0 && !request->test)
        return tr_fail(TR_ERR_USAGE, "test: no file for these ratings: add -t FILE");
    const char *second = request->test ? request->test : request->vocabulary;
    if (second && strcmp(second, request->file) == 0 && strcmp(second, "-") != 0)
        return tr_fail(TR_ERR_USAGE, "%s: expected two different files", tr_shown(second).text);
    if (request->test && request->ratings.test == 0) request->ratings.test = 0.1;
    if (request->test) request->ratings.part = TR_RATING_TRAIN;
    output_measure(request, &job);
    if (request->kind == &kinds[DOCWORD]) { /* the header contains the number of lines: count them first */
        TR_TRY(write_lines(&job, -1, NULL, true, &job.lines));
        snprintf(header, sizeof header, "%u\n%u\n%llu\n", (unsigned)request->docword.documents,
                 (unsigned)request->docword.words, (unsigned long long)job.lines);
        job.header = header;
    }
    if (request->kind == &kinds[CLAIMS]) job.header = tr_generate_claims_header;
    TR_TRY(write_file(&job));
    if (!second) return TR_OK;
    if (request->vocabulary)
        job = (struct output){.what = "words", .write = write_vocabulary, .units = request->docword.words};
    job.file = second;
    job.lines = job.units;
    request->ratings.part = TR_RATING_TEST;
    if (request->test) output_measure(request, &job);
    return write_file(&job);
}

static int generate_command(struct tr_arguments *arguments, void *options)
{
    struct request *request = options;
    request->kind = &kinds[arguments->variant];
    int status = generate(request);
    return status == TR_ERR_CONFIG ? TR_ERR_USAGE : status; /* the options are words of the command line */
}

const struct tr_cli_command tr_generate_command = {
    .syntax = {.command = "generate",
               .expected = "ctr, ratings, docword, dense, events or claims",
               .options = generate_arguments,
               .variants = variants},
    .brief = "make artificial data to try things with",
    .usage = "trireme generate ctr|ratings|docword|dense|events|claims -o FILE [KEY=value ...]",
    .about = "Writes artificial data. k, M and G behind a number mean thousands, millions and billions. The "
             "values of the keys below are the defaults.",
    .defaults = &(const struct request){.ctr = TR_GENERATE_DEFAULTS,
                                        .ratings = TR_GENERATE_RATINGS,
                                        .docword = TR_GENERATE_DOCWORD,
                                        .dense = TR_GENERATE_DENSE,
                                        .table = TR_GENERATE_TABLE},
    .options_size = sizeof(struct request),
    .run = generate_command,
};
