#include "cli/cli.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "cli/generate_file.h"
#include "data/generate.h"
#include "job/text.h"

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

/* A key=value: what the value is, and where in the request it goes. */
struct option {
    const char *key;
    enum { COUNT, COUNT32, REAL, WORD } type;
    size_t offset;
    const char *words[4]; /* WORD: the values of its enum, in their order */
};

/* Data are made of units (users, documents, rows), any range of which can be written alone. */
struct kind {
    const char *name, *lines; /* what a line is */
    int (*write)(const void *state, uint64_t begin, uint64_t end, FILE *out);
    struct option options[10]; /* ended by one without a key */
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

static const struct kind kinds[] = {{"ctr",
                                     "rows",
                                     write_ctr,
                                     {{"rows", COUNT, AT(ctr.rows), {NULL}},
                                      {"features", COUNT32, AT(ctr.features), {NULL}},
                                      {"nonzeros", COUNT32, AT(ctr.nonzeros), {NULL}},
                                      {"power", REAL, AT(ctr.power), {NULL}},
                                      {"noise", REAL, AT(ctr.noise), {NULL}},
                                      {"seed", COUNT, AT(ctr.seed), {NULL}},
                                      {"first_row", COUNT, AT(ctr.first_row), {NULL}},
                                      {"values", WORD, AT(ctr.values), {"unit", "binary", "real", NULL}}}},
                                    {"ratings",
                                     "ratings",
                                     write_ratings,
                                     {{"users", COUNT32, AT(ratings.users), {NULL}},
                                      {"items", COUNT32, AT(ratings.items), {NULL}},
                                      {"ratings", COUNT, AT(ratings.ratings), {NULL}},
                                      {"rank", COUNT32, AT(ratings.rank), {NULL}},
                                      {"power", REAL, AT(ratings.power), {NULL}},
                                      {"noise", REAL, AT(ratings.noise), {NULL}},
                                      {"test", REAL, AT(ratings.test), {NULL}},
                                      {"seed", COUNT, AT(ratings.seed), {NULL}},
                                      {"values", WORD, AT(ratings.values), {"whole", "real", NULL}}}},
                                    {"docword",
                                     "counts",
                                     write_docword,
                                     {{"documents", COUNT32, AT(docword.documents), {NULL}},
                                      {"words", COUNT32, AT(docword.words), {NULL}},
                                      {"tokens", COUNT, AT(docword.tokens), {NULL}},
                                      {"topics", COUNT32, AT(docword.topics), {NULL}},
                                      {"alpha", REAL, AT(docword.alpha), {NULL}},
                                      {"beta", REAL, AT(docword.beta), {NULL}},
                                      {"power", REAL, AT(docword.power), {NULL}},
                                      {"seed", COUNT, AT(docword.seed), {NULL}}}},
                                    {"dense",
                                     "rows",
                                     write_dense,
                                     {{"rows", COUNT, AT(dense.rows), {NULL}},
                                      {"columns", COUNT32, AT(dense.columns), {NULL}},
                                      {"clusters", COUNT32, AT(dense.clusters), {NULL}},
                                      {"spread", REAL, AT(dense.spread), {NULL}},
                                      {"noise", REAL, AT(dense.noise), {NULL}},
                                      {"seed", COUNT, AT(dense.seed), {NULL}},
                                      {"first_row", COUNT, AT(dense.first_row), {NULL}},
                                      {"format", WORD, AT(dense.format), {"csv", "libsvm", NULL}},
                                      {"label", WORD, AT(dense.label), {"none", "first", "last", NULL}}}},
                                    {"events",
                                     "rows",
                                     write_events,
                                     {{"rows", COUNT, AT(events.rows), {NULL}},
                                      {"seed", COUNT, AT(events.seed), {NULL}},
                                      {"first_row", COUNT, AT(events.first_row), {NULL}}}}};
enum { CTR, RATINGS, DOCWORD, DENSE, EVENTS, KINDS };

/* ---- options ---- */

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

/* One of the option's words: its place among them is the value of an enum. */
static int read_word(const struct option *option, const char *text, int *value)
{
    const char *const *words = option->words;
    char expected[80] = "";
    for (int i = 0; words[i]; i++) {
        if (strcmp(text, words[i]) == 0) {
            *value = i;
            return TR_OK;
        }
        size_t used = strlen(expected);
        const char *between = i == 0 ? "" : words[i + 1] ? ", " : " or ";
        snprintf(expected + used, sizeof expected - used, "%s%s", between, words[i]);
    }
    return bad_value(option->key, text, expected);
}

static int unknown(const char *what, const char *word, const char *const words[])
{
    const char *meant = tr_suggest(word, words);
    return tr_fail(TR_ERR_USAGE, "unknown %s %s: %s%s%s", what, tr_shown(word).text,
                   meant ? "did you mean " : "see ", meant ? meant : "trireme help generate",
                   meant ? "?" : "");
}

static int set_value(struct request *request, const struct option *option, const char *value)
{
    void *place = (char *)request + option->offset;
    uint64_t wide;
    switch (option->type) {
    case COUNT: return read_count(option->key, value, 0x1p53, place);
    case COUNT32:
        TR_TRY(read_count(option->key, value, 4294967294.0, &wide));
        *(uint32_t *)place = (uint32_t)wide;
        return TR_OK;
    case REAL: {
        char *end;
        double number = strtod(value, &end);
        if (end == value || *end) return bad_value(option->key, value, "a number");
        *(double *)place = number;
        return TR_OK;
    }
    default: return read_word(option, value, place);
    }
}

static int set_option(struct request *request, const char *word)
{
    char key[32];
    const char *keys[10] = {NULL};
    size_t length = strcspn(word, "=");
    bool sets = word[length] == '=' && *word != '-';
    snprintf(key, sizeof key, "%.*s", (int)tr_min_size(length, sizeof key - 1), word);
    const struct option *option = request->kind->options;
    for (int i = 0; option[i].key; i++) {
        keys[i] = option[i].key;
        if (sets && strcmp(key, keys[i]) == 0) return set_value(request, &option[i], word + length + 1);
    }
    return unknown("option", key, keys);
}

static int find_kind(const char *name, const struct kind **kind)
{
    const char *names[KINDS + 1] = {NULL};
    for (int i = 0; i < KINDS; i++) {
        names[i] = kinds[i].name;
        *kind = &kinds[i];
        if (strcmp(name, names[i]) == 0) return TR_OK;
    }
    return unknown("kind of data", name, names);
}

/* Where a word such as -o puts the name of a file, or NULL. */
static const char **file_option(struct request *request, const char *word)
{
    if (strcmp(word, "-o") == 0) return &request->file;
    if (strcmp(word, "-t") == 0 && request->kind == &kinds[RATINGS]) return &request->test;
    if (strcmp(word, "-v") == 0 && request->kind == &kinds[DOCWORD]) return &request->vocabulary;
    return NULL;
}

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

static int read_request(int argc, char **argv, struct request *request)
{
    if (argc < 1)
        return tr_fail(TR_ERR_USAGE,
                       "usage: trireme generate ctr|ratings|docword|dense|events -o FILE [rows=1M ...]: "
                       "see trireme help generate");
    *request = (struct request){.ctr = TR_GENERATE_DEFAULTS,
                                .ratings = TR_GENERATE_RATINGS,
                                .docword = TR_GENERATE_DOCWORD,
                                .dense = TR_GENERATE_DENSE,
                                .events = TR_GENERATE_EVENTS};
    TR_TRY(find_kind(argv[0], &request->kind));
    for (int i = 1; i < argc; i++) {
        const char **file = file_option(request, argv[i]);
        if (!file) TR_TRY(set_option(request, argv[i]));
        else if (++i < argc) *file = argv[i];
        else return tr_fail(TR_ERR_USAGE, "%s: expected the name of a file behind it", argv[i - 1]);
    }
    return check_request(request);
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
