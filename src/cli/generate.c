#include "cli/cli.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/escape.h"
#include "cli/generate_file.h"
#include "data/generate.h"

/* ---- kinds of data ---- */

struct request {
    const struct kind *kind;
    struct tr_generate_options ctr;
    struct tr_generate_ratings ratings;
    struct tr_generate_docword docword;
    struct tr_generate_dense dense;
    struct tr_generate_events events;
    const char *file;       /* -o */
    const char *test;       /* -t, or NULL */
    const char *vocabulary; /* -v, or NULL */
};

/* Data are made of units (users, documents, rows), any range of which can be written alone. */
struct kind {
    const char *lines; /* what a line is */
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
    struct tr_generate_events options = ((const struct request *)state)->events;
    options.first_row += begin;
    options.rows = end - begin;
    return tr_generate_events(&options, out);
}

enum { CTR, RATINGS, DOCWORD, DENSE, EVENTS, KINDS };
static const struct kind kinds[KINDS] = {[CTR] = {"rows", write_ctr},
                                         [RATINGS] = {"ratings", write_ratings},
                                         [DOCWORD] = {"counts", write_docword},
                                         [DENSE] = {"rows", write_dense},
                                         [EVENTS] = {"rows", write_events}};

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

static const struct tr_argument events_arguments[] = {
    {"rows", TR_ARG_COUNT, AT(events.rows), .help = "number of rows"},
    {"seed", TR_ARG_COUNT, AT(events.seed), .help = "the same seed makes the same data"},
    {"first_row", TR_ARG_COUNT, AT(events.first_row),
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
    [EVENTS] = {
        "events",
        "a table for trees: csv of 28 numbers and a label, 0 or 1, that no linear model of them predicts.",
        events_arguments}};

static int check_request(struct request *request)
{
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
    return TR_OK;
}

/* ---- files ---- */

static int write_vocabulary(const void *state, uint64_t begin, uint64_t end, FILE *out)
{
    (void)state;
    return tr_generate_vocabulary((uint32_t)begin, (uint32_t)end, out);
}

/* A bag of words begins with how many documents, words and counts it has. */
static int generate_docword(struct request *request, struct tr_generate_job *job)
{
    char header[80];
    TR_TRY(tr_generate_count(job, &job->lines));
    snprintf(header, sizeof header, "%u\n%u\n%llu\n", (unsigned)request->docword.documents,
             (unsigned)request->docword.words, (unsigned long long)job->lines);
    job->header = header;
    TR_TRY(tr_generate_file(job));
    if (!request->vocabulary) return TR_OK;
    uint64_t words = request->docword.words;
    return tr_generate_file(&(struct tr_generate_job){.file = request->vocabulary,
                                                      .what = "words",
                                                      .units = words,
                                                      .lines = words,
                                                      .write = write_vocabulary});
}

/* How many units there are, and lines, about. */
static void size_up(const struct request *request, struct tr_generate_job *job)
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
    default: job->units = job->lines = request->events.rows;
    }
}

static int generate(struct request *request)
{
    struct tr_generate_job job = {
        .file = request->file, .what = request->kind->lines, .write = request->kind->write, .state = request};
    if (request->test) request->ratings.part = TR_RATING_TRAIN;
    size_up(request, &job);
    if (request->kind == &kinds[DOCWORD]) return generate_docword(request, &job);
    TR_TRY(tr_generate_file(&job));
    if (!request->test) return TR_OK;
    job.file = request->test;
    request->ratings.part = TR_RATING_TEST;
    size_up(request, &job);
    return tr_generate_file(&job);
}

static int generate_command(struct tr_arguments *arguments, void *options)
{
    struct request *request = options;
    request->kind = &kinds[arguments->variant];
    int status = check_request(request);
    if (status == TR_OK) status = generate(request);
    return status == TR_ERR_CONFIG ? TR_ERR_USAGE : status; /* impossible options are of no job file here */
}

const struct tr_cli_command tr_generate_command = {
    .syntax = {.command = "generate",
               .expected = "ctr, ratings, docword, dense or events",
               .options = generate_arguments,
               .variants = variants},
    .brief = "make artificial data to try things with",
    .usage = "trireme generate ctr|ratings|docword|dense|events -o FILE [KEY=value ...]",
    .about = "Writes artificial data. k, M and G behind a number mean thousands, millions and billions. The "
             "values "
             "of the keys below are the defaults.",
    .defaults = &(const struct request){.ctr = TR_GENERATE_DEFAULTS,
                                        .ratings = TR_GENERATE_RATINGS,
                                        .docword = TR_GENERATE_DOCWORD,
                                        .dense = TR_GENERATE_DENSE,
                                        .events = TR_GENERATE_EVENTS},
    .options_size = sizeof(struct request),
    .run = generate_command,
};
