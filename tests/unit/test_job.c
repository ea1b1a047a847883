#include "unit.h"

#include <stdarg.h>

#include "job/schema.h"

/* ---- helpers ---- */

/* All jobs and texts of a case stay until its process ends. */
static void *keep(void *memory)
{
    static void **kept;
    static size_t n, capacity;
    ck_ok(TR_GROW(&kept, &capacity, n + 1));
    return kept[n++] = memory;
}

__attribute__((format(printf, 1, 2))) static char *text_of(const char *format, ...)
{
    char *text;
    va_list values;
    va_start(values, format);
    ck_assert_int_ge(vasprintf(&text, format, values), 0);
    va_end(values);
    return keep(text);
}

/* Reads the text with n overrides. */
static int parse_with(const char *text, int n, const char *const overrides[], struct tr_job **job)
{
    char *arguments[8] = {0};
    for (int i = 0; i < n; i++) arguments[i] = (char *)(uintptr_t)overrides[i];
    int status = tr_job_parse(text, strlen(text), "jobs/x.yaml", n, arguments, job);
    if (status == TR_OK) keep(*job);
    return status;
}

static int parse(const char *text, struct tr_job **job)
{
    return parse_with(text, 0, NULL, job);
}

/* An empty job and one override. */
static int override(const char *argument, struct tr_job **job)
{
    return parse_with("{}", 1, &argument, job);
}

static struct tr_job *parsed(const char *text)
{
    struct tr_job *job;
    ck_ok(parse(text, &job));
    return job;
}

static struct tr_job *overridden(const char *argument)
{
    struct tr_job *job;
    ck_ok(override(argument, &job));
    return job;
}

#define ck_refused(text, contains)                                                                           \
    do {                                                                                                     \
        struct tr_job *job_ = NULL;                                                                          \
        ck_fails(parse(text, &job_), TR_ERR_CONFIG, contains);                                               \
        ck_assert_ptr_null(job_);                                                                            \
    } while (0)

enum form { AS_YAML, AS_JSON, AS_HELP };

static char *written(const struct tr_job *job, enum form form, const char *filter)
{
    char *text = NULL;
    size_t length;
    FILE *file = open_memstream(&text, &length);
    if (form == AS_YAML) ck_ok(tr_job_write_yaml(job, file));
    if (form == AS_JSON) ck_ok(tr_job_write_json(job, file, 0));
    if (form == AS_HELP) tr_job_help(file, filter);
    fclose(file);
    return keep(text);
}

/* As it is written and read again. */
static struct tr_job *read_back(const struct tr_job *job)
{
    return parsed(written(job, AS_YAML, NULL));
}

/* ---- values ---- */

UNIT_CASE(defaults_are_those_of_the_table)
{
    struct tr_job *job = parsed("{}");
    ck_assert_str_eq(job->name, "x");
    ck_assert_str_eq(job->output, "runs/x");
    ck_assert_uint_eq(job->seed, 1);
    ck_assert(tr_job_is(job, "model.type", "auto"));
    ck_assert(tr_job_number(job, "model.l2") == TR_JOB_AUTO && tr_job_number(job, "model.bias") == 1 &&
              !tr_job_number(job, "model.bias_l2"));
    ck_assert(tr_job_is(job, "model.dtype", "f32"));
    ck_assert(tr_job_is(job, "solve.method", "auto"));
    ck_assert_uint_eq(job->solve.epochs, 1000);
    ck_assert(job->solve.target == TR_JOB_AUTO && job->experiment.clock == 0);
    ck_assert(tr_job_number(job, "solve.target_gap") == 1e-3 && tr_job_number(job, "solve.rate") == 0.1 &&
              tr_job_number(job, "solve.decay") == TR_JOB_AUTO);
    ck_assert(tr_job_number(job, "solve.batch") == 0 && tr_job_number(job, "solve.sigma") == TR_JOB_AUTO);
    ck_assert(job->data.train.n == 0 && job->data.test.n == 0 && job->data.features == 0);
    ck_assert_int_eq(job->data.index_base, TR_INDEX_AUTO);
    ck_assert_int_eq(job->data.on_error, TR_ON_ERROR_STOP);
    ck_assert_int_eq(job->data.partition, TR_DATA_REPLICATED); /* of the method */
    ck_assert_int_eq(job->ranks.layout, TR_LAYOUT_AUTO);
    ck_assert(job->ranks.servers == 0 && job->ranks.groups == 0 && job->ranks.group_size == 0);
    ck_assert(job->ranks.patience == 60);
    ck_assert_int_eq(job->table.partition, TR_TABLE_RANGE_HASH);
    ck_assert(job->table.block == 0 && job->table.route == TR_ROUTE_AUTO && job->table.push == TR_PUSH_AUTO);
    ck_assert_int_eq(job->sync.mode, TR_SYNC_BSP);
    ck_assert(job->sync.staleness == 3 && job->sync.push.n == 1 && job->report.every == 1);
    ck_assert_int_eq(job->report.progress, TR_PROGRESS_AUTO);
    ck_assert(tr_job_number(job, "solve.inner") == 2 && tr_job_number(job, "solve.growth") == 10 &&
              tr_job_number(job, "solve.phases") == 3);
    ck_assert(job->sync.race == TR_RACE_CHUNK && job->local.model == TR_LOCAL_INTEGRAL);
    ck_assert(job->local.chunk == 1024 && job->local.memory == 0 && job->local.replace == TR_REPLACE_LRU);
    ck_assert(job->stages == 0 && job->tasks == 0);
}

UNIT_CASE(the_rate_of_variance_reduction_may_stay_auto)
{
    static const struct {
        const char *text;
        const char *method;
        double rate;
    } cases[] = {{"solve: {method: svrg}", "svrg", TR_JOB_AUTO},
                 {"solve: {method: svrg++}", "svrg++", TR_JOB_AUTO},
                 {"solve: {method: katyusha}", "katyusha", TR_JOB_AUTO},
                 {"solve: {method: growing}", "growing", TR_JOB_AUTO},
                 {"solve: {method: growing, rate: 2}", "growing", 2},
                 {"solve: {method: sgd}", "sgd", TR_JOB_AUTO}};
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct tr_job *job = parsed(cases[i].text);
        ck_assert(tr_job_is(job, "solve.method", cases[i].method));
        ck_assert_double_eq(tr_job_number(job, "solve.rate"), cases[i].rate);
    }
    struct tr_job *job = parsed("model: {type: mf}");
    ck_assert(tr_job_is(job, "solve.method", "sgd") && tr_job_number(job, "solve.rate") == TR_JOB_AUTO);
    ck_refused("solve: {inner: 0}", "expected a number above 0 to 1000000");
    ck_refused("solve: {growth: 0.5}", "expected a number >= 1");
    ck_refused("solve: {phases: 0}", "expected an integer >= 1");
    ck_refused("sync: {race: lock}", "expected chunk, atomic or none");
    ck_refused("local: {chunk: 0}", "expected an integer from 1 to 1073741824");
    ck_refused("local: {replace: mru}", "expected lru, fifo or random");
}

UNIT_CASE(how_often_is_read_and_written)
{
    static const struct {
        const char *text;
        int unit;
        uint64_t n;
    } good[] = {{"auto", TR_OFTEN_AUTO, 0},
                {"every 20", TR_OFTEN_EVERY, 20},
                {"10 per epoch", TR_OFTEN_PER_EPOCH, 10},
                {"every 1e3", TR_OFTEN_EVERY, 1000}};
    for (size_t i = 0; i < COUNT(good); i++) {
        struct tr_job *job = parsed(text_of("sync: {push: %s}\n", good[i].text));
        ck_assert(job->sync.push.unit == good[i].unit && job->sync.push.n == good[i].n);
        struct tr_job *second = read_back(job);
        ck_assert(second->sync.push.unit == good[i].unit && second->sync.push.n == good[i].n);
    }
    static const char *const bad[] = {"every 0",      "every",     "every -1",     "5 per",
                                      "5 per epochs", "every 1 2", "1.5 per epoch"};
    for (size_t i = 0; i < COUNT(bad); i++) {
        ck_refused(text_of("sync: {push: %s}\n", bad[i]), "expected auto, «every N» or «N per epoch»");
    }
}

UNIT_CASE(values_are_read_and_know_their_line)
{
    struct tr_job *job = parsed("# a job\n"
                                "name: ads\n"
                                "model:\n"
                                "  type: l2svm   # squared hinge\n"
                                "  l2: 1e-4\n"
                                "  bias: On\n"
                                "data:\n"
                                "  train:\n"
                                "  - a.svm\n"
                                "  - 'b*.svm'\n"
                                "  test: c.svm\n"
                                "  index_base: \"0\"\n"
                                "ranks: colocated\n"
                                "solve: {sigma: auto, rate: .5}\n");
    ck_assert_str_eq(job->output, "runs/ads");
    ck_assert(tr_job_is(job, "model.type", "l2svm"));
    ck_assert(tr_job_number(job, "model.l2") == 1e-4 && tr_job_number(job, "model.bias"));
    ck_assert_uint_eq(job->data.train.n, 2);
    ck_assert_str_eq(job->data.train.item[1], "b*.svm");
    ck_assert_uint_eq(job->data.test.n, 1);
    ck_assert_str_eq(job->data.test.item[0], "c.svm");
    ck_assert_int_eq(job->data.index_base, TR_INDEX_ZERO);
    ck_assert_int_eq(job->ranks.layout, TR_LAYOUT_COLOCATED);
    ck_assert(tr_job_number(job, "solve.sigma") == TR_JOB_AUTO && tr_job_number(job, "solve.rate") == 0.5);
    ck_assert_str_eq(tr_job_where(job, "model.l2"), "jobs/x.yaml:5");
    ck_assert_str_eq(tr_job_where(job, "ranks.layout"), "jobs/x.yaml:13");
    ck_assert_str_eq(tr_job_where(job, "solve.epochs"), "default");
}

UNIT_CASE(the_name_is_that_of_the_file)
{
    static const char *const names[][2] = {
        {"x.yaml", "x"}, {"a.b/c.yml", "c"}, {"/j/.yaml", ".yaml"}, {"j/plain", "plain"}, {"v1.2", "v1.2"}};
    for (size_t i = 0; i < COUNT(names); i++) {
        struct tr_job *job;
        ck_ok(tr_job_parse("{}", 2, names[i][0], 0, NULL, &job));
        keep(job);
        ck_assert_str_eq(job->name, names[i][1]);
    }
}

UNIT_CASE(integers_are_exact)
{
    static const struct {
        const char *text;
        uint64_t value;
    } good[] = {{"0", 0},
                {"+7", 7},
                {"1e6", 1000000},
                {"1000000", 1000000},
                {"1.5e1", 15},
                {"20.0", 20},
                {"1200e-2", 12},
                {"0e999999999999999999999", 0},
                {"0.00000000000000000000000001e26", 1},
                {"10000000000000000000000000e-25", 1},
                {"18446744073709551615", UINT64_MAX}};
    static const char *const bad[] = {"18446744073709551616",
                                      "1e20",
                                      "1.5",
                                      "1e-1",
                                      "0x10",
                                      "1_000",
                                      "-1",
                                      "one",
                                      "1e",
                                      "e5",
                                      ".",
                                      "1 2",
                                      "nan",
                                      "1e999999999999999999999",
                                      "1e-99999999999999999999"};
    for (size_t i = 0; i < COUNT(good); i++) {
        struct tr_job *job = parsed(text_of("seed: %s", good[i].text));
        ck_assert_uint_eq(job->seed, good[i].value);
    }
    for (size_t i = 0; i < COUNT(bad); i++)
        ck_refused(text_of("seed: %s", bad[i]), "expected an integer >= 0");
    ck_refused("data: {features: 4294967296}", "expected an integer from 0 to 4294967295");
    ck_refused("solve: {epochs: 0}",
               "jobs/x.yaml:1: solve.epochs is «0»: expected an integer from 1 to 1000000000");
}

UNIT_CASE(numbers_are_whole_finite_and_in_range)
{
    static const char *const bad[] = {"fast",  "0",      "-1",    ".inf", "inf", "nan", ".nan",
                                      "1e999", "1e-999", "0x1p3", "1e5x", "1,5", "[1]", "\"0.1\""};
    for (size_t i = 0; i < COUNT(bad); i++) {
        ck_refused(text_of("seed: 1\nsolve:\n  rate: %s\n", bad[i]), "expected a number > 0");
        ck_contains(tr_error_text(), "jobs/x.yaml:3: solve.rate is ");
    }
    ck_refused("seed: 1\nsolve:\n  rate: fast", "jobs/x.yaml:3: solve.rate is «fast»: expected a number > 0");
    ck_refused("solve: {sigma: 0.5}", "expected a number >= 1 or auto");
    ck_refused("model: {l2: 2/n}", "model.l2 is «2/n»: expected a number >= 0, auto or 1/n");
    ck_refused("model: {l2: -1}", "model.l2 is «-1»");
    ck_refused("solve: {rate: \"0.1\"}", "without quotes");
}

UNIT_CASE(choices_and_yes_or_no)
{
    static const char *const words[] = {"no", "yes", "false", "true", "off", "on", "False", "TRUE"};
    for (size_t i = 0; i < COUNT(words); i++) {
        struct tr_job *job = parsed(text_of("model: {bias: %s}", words[i]));
        ck_assert_double_eq(tr_job_number(job, "model.bias"), (double)(i % 2));
    }
    ck_refused("model: {bias: 1}", "model.bias is «1»: expected yes or no");
    ck_refused("model: {bias: 'yes'}", "expected yes or no without quotes");
    ck_refused("model: {type: forest}",
               "model.type is «forest»: expected logistic, linear, svm, l2svm, "
               "huber, quantile, poisson, logcosh, gamma, tweedie, auto, kmeans, mf, lda "
               "or trees");
}

UNIT_CASE(nothing_is_not_a_value)
{
    ck_refused("seed: 1\nsolve:\n  rate:\n  decay: 1\n", "jobs/x.yaml:3: solve.rate has no value");
    ck_refused("solve: {rate: ~}", "solve.rate has no value");
    ck_refused("solve: {rate: null}", "solve.rate has no value");
    ck_refused("name:", "name has no value");
    ck_refused("name: ''", "name is «»: expected text");
    ck_refused("data:\n  train:\n  - a\n  -\n", "jobs/x.yaml:4: data.train: an item has no value");
    ck_refused("seed: 1\nsolve:\nsync:\n  every: 1\n", "jobs/x.yaml:2: section solve is empty");
    struct tr_job *job = parsed("name: 'null'");
    ck_assert_str_eq(job->name, "null");
}

/* ---- structure ---- */

UNIT_CASE(unknown_keys_get_a_suggestion)
{
    ck_refused("seed: 1\nsolve:\n  epoch: 3\n",
               "jobs/x.yaml:3: unknown key solve.epoch: did you mean solve.epochs?");
    ck_refused("sed: 1", "jobs/x.yaml:1: unknown key sed: did you mean seed?");
    ck_refused("epochs: 1", "unknown key epochs: did you mean solve.epochs?");
    ck_refused("data: {staleness: 1}", "unknown key data.staleness: did you mean sync.staleness?");
    ck_refused("solve: {zzzzzz: 1}", "unknown key solve.zzzzzz");
    ck_lacks(tr_error_text(), "did you mean");
    ck_refused("seed: 1\n\nslove:\n  rate: 1\n", "jobs/x.yaml:3: unknown section slove: did you mean solve?");
}

UNIT_CASE(a_key_is_given_once)
{
    ck_refused("seed: 1\nname: x\nseed: 1\n", "jobs/x.yaml:3: seed is given twice: first at jobs/x.yaml:1");
    ck_refused("sync:\n  staleness: 1\nseed: 1\nsync:\n  mode: bsp\n",
               "jobs/x.yaml:4: sync is given twice: first at jobs/x.yaml:1");
    ck_refused("ranks.layout: alone\nranks: alone\n", "ranks.layout is given twice");
}

UNIT_CASE(shapes_must_fit)
{
    ck_refused("solve: fast", "solve is a section");
    ck_refused("model: [a]", "model is a section");
    ck_refused("seed: {a: 1}", "seed is a section: expected an integer");
    ck_refused("seed: [1]", "seed is a list: expected an integer");
    ck_refused("data: {train: [[a]]}", "expected text in the list");
    ck_refused("data: {train: {a: b}}", "data.train is a section: expected a path or a list of paths");
    ck_refused("[a]: 1", "expected a key");
    ck_refused("- a", "jobs/x.yaml:1: expected sections and keys");
    ck_refused("just text", "expected sections and keys");
    struct tr_job *job = parsed("data: {train: [], test: [a,b]}");
    ck_assert(job->data.train.n == 0 && job->data.test.n == 2);
}

UNIT_CASE(what_yaml_adds_is_refused)
{
    ck_refused("seed: 1\nname: &a x\n", "jobs/x.yaml:2: anchors (&) and aliases (*)");
    ck_refused("name: x\noutput: *x\n", "jobs/x.yaml:2: anchors (&) and aliases (*)");
    ck_refused("seed: !!str 1", "jobs/x.yaml:1: tags (!) are not allowed");
    ck_refused("data: {train: &a [x]}", "anchors");
    ck_refused("seed: 1\n---\nseed: 2\n", "jobs/x.yaml:2: a second YAML document");
    ck_refused("seed: 1\n...\n---\n", "jobs/x.yaml:3: a second YAML document");
    ck_refused("name: \"a\\0b\"", "jobs/x.yaml:1: a NUL character in «a»");
    struct tr_job *job;
    ck_fails(tr_job_parse("seed: 1\nname\0: x", 16, "x.yaml", 0, NULL, &job), TR_ERR_CONFIG,
             "x.yaml:2: not YAML");
}

UNIT_CASE(broken_yaml_names_its_line)
{
    ck_refused("seed: 1\n\ndata: {train: [a\n", "jobs/x.yaml:4: not YAML: ");
    ck_refused("seed: 1\nname: \"a\n", "jobs/x.yaml:3: not YAML: found unexpected end of stream");
    ck_refused("seed: 1\nname: a: b\n", "jobs/x.yaml:2: not YAML: mapping values are not allowed");
    ck_refused("seed: 1\nsolve:\n\trate: 1\n", "jobs/x.yaml:3: not YAML: a tab indents this line");
    ck_refused("solve:\n  rate: 1\n\tdecay: 1\n", "not YAML: a tab indents this line");
    ck_refused("seed: 1\n\nname: \xff\n", "jobs/x.yaml:3: not YAML: ");
    ck_refused("seed: 1\nname: \x01\n", "jobs/x.yaml:2: not YAML: control characters");
}

UNIT_CASE(deep_and_large_files_are_refused_quickly)
{
    size_t n = 1 << 20;
    char *text;
    ck_ok(TR_NEW(&text, n + 2));
    static const char *const openings[] = {"[", "{", "- ", "? ", "a: [", "- - "};
    for (size_t i = 0; i < COUNT(openings); i++) {
        size_t length = strlen(openings[i]);
        for (size_t at = 0; at + length <= n; at += length) memcpy(text + at, openings[i], length);
        struct tr_job *job;
        double start = tr_now();
        ck_fails(tr_job_parse(text, n, "x.yaml", 0, NULL, &job), TR_ERR_CONFIG, "x.yaml:1: ");
        ck_assert_double_lt(tr_now() - start, 5);
    }
    memset(text, '\n', n + 1);
    struct tr_job *job;
    ck_fails(tr_job_parse(text, n + 1, "x.yaml", 0, NULL, &job), TR_ERR_CONFIG, "x.yaml: larger than 1 MiB");
    free(text);
}

UNIT_CASE(errors_are_one_short_line)
{
    ck_refused("seed: \"a\\nb\\tc\\e\"", "seed is «a\\x0ab\\x09c\\x1b»");
    ck_refused(text_of("seed: %01500d.5\n", 1), "…»: expected an integer >= 0");
    ck_assert_uint_lt(strlen(tr_error_text()), 256);
}

/* ---- the command line ---- */

UNIT_CASE(the_command_line_wins)
{
    const char *text = "seed: 2\ndata: {train: [a, b]}\nsolve: {rate: 1}\n";
    char *arguments[] = {(char[]){"solve.rate=0.25"}, (char[]){"data.train=c,d,e=f"},
                         (char[]){"ranks=alone"},     (char[]){"name=n"},
                         (char[]){"seed=3"},          (char[]){"seed=4"}};
    struct tr_job *job;
    ck_ok(tr_job_parse(text, strlen(text), "x.yaml", 6, arguments, &job));
    keep(job);
    ck_assert(tr_job_number(job, "solve.rate") == 0.25 && job->seed == 4 && job->data.train.n == 3);
    ck_assert_str_eq(job->data.train.item[2], "e=f");
    ck_assert_int_eq(job->ranks.layout, TR_LAYOUT_ALONE);
    ck_assert_str_eq(job->output, "runs/n");
    ck_assert_str_eq(tr_job_where(job, "solve.rate"), "command line");
    ck_assert_str_eq(tr_job_where(job, "no such key"), "x.yaml");

    job = overridden("data.test=*.svm");
    ck_assert_str_eq(job->data.test.item[0], "*.svm");
}

/* Each form of a list, as an override and behind the key in a file. */
UNIT_CASE(lists_have_one_syntax)
{
    static const char *const forms[] = {"[a, b c]", "a,b c", "a, b c", "[\"a\", 'b c']", "[ a , b c ]"};
    for (size_t i = 0; i < COUNT(forms); i++) {
        char argument[64], file[64];
        snprintf(argument, sizeof argument, "data.missing=%s", forms[i]);
        snprintf(file, sizeof file, "data:\n  missing: %s\n", forms[i]);
        struct tr_job *jobs[] = {overridden(argument), parsed(file)};
        for (int k = 0; k < 2; k++) {
            const struct tr_job_list *list = &jobs[k]->data.missing;
            ck_assert_msg(list->n == 2, "«%s» has %zu items", forms[i], list->n);
            ck_assert_str_eq(list->item[0], "a");
            ck_assert_str_eq(list->item[1], "b c");
        }
    }
    static const char *const pairs[] = {"{a: number, 'b': id}", "a: number,b: id",
                                        "[\"a: number\", \"b: id\"]"};
    for (size_t i = 0; i < COUNT(pairs); i++) {
        char argument[64];
        snprintf(argument, sizeof argument, "data.columns=%s", pairs[i]);
        struct tr_job *job = overridden(argument);
        ck_assert_uint_eq(job->data.columns.n, 2);
        ck_assert_str_eq(job->data.columns.item[1], "b: id");
    }
    struct tr_job *job = parsed("data: {train: ['a,b']}"); /* quotes keep a comma */
    ck_assert_str_eq(job->data.train.item[0], "a,b");
    job = parsed("data: {train: \"a,b\"}");
    ck_assert_uint_eq(job->data.train.n, 1);
    job = overridden("data.train=[ab]*.[cd]"); /* a glob */
    ck_assert_str_eq(job->data.train.item[0], "[ab]*.[cd]");
    ck_fails(override("data.train=[a, [b]]", &job), TR_ERR_CONFIG,
             "command line: data.train: expected text in the list");
    job = overridden("data.train=[]");
    ck_assert_uint_eq(job->data.train.n, 0);
}

UNIT_CASE(mistakes_on_the_command_line)
{
    struct tr_job *job;
    ck_fails(override("slove.rate=1", &job), TR_ERR_CONFIG,
             "command line: slove.rate=1: unknown key slove.rate: did you mean solve.rate?");
    ck_fails(override("solve.rate=fast", &job), TR_ERR_CONFIG,
             "command line: solve.rate is «fast»: expected a number > 0");
    ck_fails(override("solve.rate=", &job), TR_ERR_CONFIG, "command line: solve.rate has no value");
    ck_fails(override("data.train=a,,b", &job), TR_ERR_CONFIG,
             "command line: data.train is «»: expected a path");
    ck_fails(override("solve=1", &job), TR_ERR_CONFIG, "unknown key solve");
    ck_fails(override("solve.rate", &job), TR_ERR_USAGE, "«solve.rate»: expected section.key=value");
    ck_fails(override("name=\xff", &job), TR_ERR_CONFIG, "name is «\\xff»: expected text (UTF-8)");
}

/* ---- files ---- */

static struct tr_job *file_job;

static int read_file(const char *path)
{
    TR_FREED char *text = NULL;
    size_t length = 0;
    TR_TRY(tr_job_read_text(path, &text, &length));
    return tr_job_parse(text, length, path, 0, NULL, &file_job);
}

static int read_job(const char *text)
{
    unit_write_text("ads.yaml", text);
    return read_file(unit_path("ads.yaml"));
}

UNIT_CASE(files_are_read_or_refused)
{
    ck_fails(read_file(unit_path("ads.yaml")), TR_ERR_NO_INPUT, "No such file");
    ck_fails(read_file(unit_folder), TR_ERR_NO_INPUT, "Is a directory");
    ck_fails(read_job(""), TR_ERR_NO_INPUT, "ads.yaml: the job file is empty");
    ck_fails(read_job("# nothing yet\n"), TR_ERR_NO_INPUT, "ads.yaml: the job file is empty");
    ck_ok(read_job("seed: 5\n"));
    ck_assert_str_eq(file_job->name, "ads");
    ck_assert_uint_eq(file_job->seed, 5);
    ck_fails(read_job(text_of("#%*s", 1 << 20, "x")), TR_ERR_CONFIG, "larger than 1 MiB");
}

/* ---- writing ---- */

static void expect_round_trip(const struct tr_job *job)
{
    char *yaml = written(job, AS_YAML, NULL), *json = written(job, AS_JSON, NULL);
    struct tr_job *copy = parsed(yaml);
    char *copy_json = written(copy, AS_JSON, NULL);
    ck_assert_str_eq(json, copy_json);
    struct tr_job_values values = tr_job_values(copy);
    for (size_t i = 0; i < values.n; i++) { /* every key that is used is there */
        struct tr_job_slot slot = tr_job_slot(&values, i);
        if (tr_job_uses(copy, slot.key)) ck_assert_msg(*slot.where, "%s", slot.key->name);
    }
    for (size_t i = 0; i < job->tasks; i++) { /* a task has only its own keys */
        char *whole = written(job->task[i].job, AS_JSON, NULL);
        char *whole_copy = written(copy->task[i].job, AS_JSON, NULL);
        ck_assert_str_eq(whole, whole_copy);
    }
}

UNIT_CASE(a_job_reads_back_as_it_was_written)
{
    static const char *const jobs[] = {
        "{}",
        "name: \"q\\\" \\\\ \\n \\x7f é € 😀 \\u2028 \\ufeff #: x\"\noutput: 'null'",
        "data: {train: ['a b', '*.svm', '-', '~', 'a,b', \"#x\", 'x: y'], test: ['Null', '1', /a/b.svm]}",
        "model: {l2: 1e-300, bias: on, dtype: f64, type: svm}\nsolve: {sigma: auto, rate: "
        "0.30000000000000004}",
        "seed: 18446744073709551615\nsolve: {target_gap: 5e-324, decay: 1.7976931348623157e308, sigma: 12.5}",
        "ranks: dedicated\nreport: {progress: no}\ndata: {index_base: 1}\ntable: {partition: hash, push: "
        "merge}",
    };
    for (size_t i = 0; i < COUNT(jobs); i++) {
        struct tr_job *job = parsed(jobs[i]);
        expect_round_trip(job);
    }
}

UNIT_CASE(written_yaml_says_where_values_came_from)
{
    struct tr_job *job = overridden("solve.rate=0.5");
    char *yaml = written(job, AS_YAML, NULL);
    ck_contains(yaml, "\nsolve:\n  method: auto ");
    ck_contains(yaml, "\n  rate: 0.5                         # command line\n");
    ck_contains(yaml, "\n  l2: auto                          # default\n");
    ck_contains(yaml, "\nseed: 1 ");
}

UNIT_CASE(written_json_is_an_object_of_objects)
{
    struct tr_job *job = parsed("name: \"a\\\"\\n\\x01\"\ndata: {train: [x, y]}\nmodel: {bias: yes}");
    char *json = written(job, AS_JSON, NULL);
    ck_contains(json, "{\n  \"name\": \"a\\\"\\u000a\\u0001\",\n");
    ck_contains(json, ",\n  \"model\": {\n    \"type\": \"auto\",\n    \"plugin\": \"\",\n    \"l2\": "
                      "\"auto\",\n    \"l1\": "
                      "0,\n    \"bias\": true,\n");
    ck_contains(json, "\n  },\n  \"solve\": {\n");
    ck_contains(json, "\"train\": [\"x\", \"y\"],\n    \"test\": [],\n");
    ck_contains(json, "\"copies\": 1\n  }\n}");
}

UNIT_CASE(a_full_disk_is_noticed)
{
    struct tr_job *job = parsed("{}");
    FILE *full = fopen("/dev/full", "w");
    setvbuf(full, NULL, _IONBF, 0);
    ck_fails(tr_job_write_yaml(job, full), TR_ERR_IO, "cannot be written");
    ck_fails(tr_job_write_json(job, full, 0), TR_ERR_IO, "cannot be written");
    fclose(full);
}

UNIT_CASE(help_lists_every_key)
{
    char *help = written(NULL, AS_HELP, "all");
    for (size_t t = 0; t < TR_JOB_TABLES + tr_model_class_count; t++) {
        bool of_class = t >= TR_JOB_TABLES;
        const tr_model_class *class = of_class ? tr_model_classes[t - TR_JOB_TABLES] : NULL;
        const tr_option *key = of_class ? class->options : tr_job_tables[t].key;
        for (size_t i = 0; i < (of_class ? tr_job_options(class) : tr_job_tables[t].n); i++) {
            char line[64];
            snprintf(line, sizeof line, "\n  %s  ", key[i].name);
            line[strlen(line) - 1] = '\0'; /* at least one blank */
            ck_contains(help, line);
        }
    }
    for (char *line = strtok(help, "\n"); line; line = strtok(NULL, "\n"))
        ck_assert_uint_le(strlen(line), 110);
}

UNIT_CASE(help_shows_a_section_or_a_key)
{
    static const char *const cases[][3] = {{"solve", "solve.rate", "sync.mode"},
                                           {"solve.rate", "solve.rate", "solve.batch"},
                                           {"slove", "did you mean solve?", "solve.rate"},
                                           {"stages", "stages.NAME.parallelism", "tasks.NAME.after"},
                                           {"tasks", "tasks.NAME.after", "stages.NAME.parallelism"},
                                           {"tasks.NAME.run", "tasks.NAME.run", "tasks.NAME.after"},
                                           {"stages.full.clocks", "stages.NAME.clocks", "parallelism"},
                                           {"tasks.one.solve.rate", "solve.rate", "solve.batch"},
                                           {"tasks.one.afer", "did you mean tasks.one.after?", "NAME"},
                                           {"zzz", "the sections are model, solve", "solve.rate"}};
    for (size_t i = 0; i < COUNT(cases); i++) {
        char *help = written(NULL, AS_HELP, cases[i][0]);
        ck_contains(help, cases[i][1]);
        ck_assert_ptr_null(strstr(help, cases[i][2]));
    }
}

/* ---- stages ---- */

UNIT_CASE(stages_are_read_by_name)
{
    struct tr_job *job = parsed("stages:\n"
                                "  full: {parallelism: auto}\n"
                                "  inner-2:\n"
                                "    parallelism: 3\n"
                                "    clocks: 1e3\n"
                                "stages.last.clocks: 2\n");
    const struct tr_job_stage *full = tr_job_stage_of(job, "full"), *inner = tr_job_stage_of(job, "inner-2");
    ck_assert_uint_eq(job->stages, 3);
    ck_assert_ptr_eq(full, &job->stage[0]);
    ck_assert(full->parallelism == TR_AUTO_DEGREE && full->clocks == 0);
    ck_assert(inner->parallelism == 3 && inner->clocks == 1000);
    ck_assert_uint_eq(tr_job_stage_of(job, "last")->parallelism, TR_ALL);
    ck_assert_ptr_null(tr_job_stage_of(job, "inner"));
    ck_assert_str_eq(tr_job_where(job, "stages.full.parallelism"), "jobs/x.yaml:2");
    ck_assert_str_eq(tr_job_where(job, "stages.full.clocks"), "default");
    ck_assert_str_eq(tr_job_where(job, "stages.inner-2"), "jobs/x.yaml:3");
    ck_assert_str_eq(tr_job_where(job, "stages.inner-2.clocks"), "jobs/x.yaml:5");
    ck_assert_str_eq(tr_job_where(job, "stages.none.clocks"), "jobs/x.yaml");
    uint64_t value;
    ck_ok(tr_job_integer(job, "stages.inner-2.parallelism", &value));
    ck_assert_uint_eq(value, 3);
    ck_fails(tr_job_integer(job, "stages.none.clocks", &value), TR_ERR_CONFIG,
             "unknown key stages.none.clocks");
}

UNIT_CASE(the_command_line_changes_and_makes_stages)
{
    static const char *const arguments[] = {"stages.full.parallelism=auto", "stages.inner.clocks=7",
                                            "stages.full.clocks=4"};
    struct tr_job *job;
    ck_ok(parse_with("stages: {full: {parallelism: 2, clocks: 3}}", 3, arguments, &job));
    ck_assert_uint_eq(job->stages, 2);
    ck_assert(job->stage[0].parallelism == TR_AUTO_DEGREE && job->stage[0].clocks == 4);
    ck_assert(job->stage[1].parallelism == TR_ALL && job->stage[1].clocks == 7);
    ck_assert_str_eq(tr_job_where(job, "stages.full.parallelism"), "command line");
    ck_assert_str_eq(job->stage[0].first, "jobs/x.yaml:1");
    ck_assert_str_eq(job->stage[1].first, "command line");
}

UNIT_CASE(mistakes_in_stages)
{
    ck_refused("stages:\n  full:\n    paralelism: 2\n",
               "jobs/x.yaml:3: unknown key stages.full.paralelism: did you mean stages.full.parallelism?");
    ck_refused("stages: {full: {rate: 1}}", "unknown key stages.full.rate");
    ck_refused("stages: {full: {parallelism: 0}}",
               "stages.full.parallelism is «0»: expected an integer from 1 to 2147483647, all or auto");
    ck_refused("stages: {full: {parallelism: most}}", "expected an integer from 1");
    ck_refused("stages: {full: {clocks: auto}}", "stages.full.clocks is «auto»: expected an integer >= 0");
    ck_refused("stages: {Full: {clocks: 1}}", "«Full» is no name for a stage");
    ck_refused("stages: {1st: {clocks: 1}}", "«1st» is no name for a stage");
    ck_refused("stages: {a.b: {clocks: 1}}", "«a.b» is no name for a stage");
    ck_refused("stages: {'': {clocks: 1}}", "«» is no name for a stage");
    ck_refused("stages: {abcdefghijklmnopqrstuvwxyzabcdefg: {clocks: 1}}", "32 at most");
    ck_refused("stages.abcdefghijklmnopqrstuvwxyzabcdefg.clocks: 1", "32 at most");
    ck_refused("stages..clocks: 1", "unknown key stages..clocks");
    ck_refused("stages: {full: 3}", "stages.full is a section: expected its keys");
    ck_refused("stages: {full: }", "section stages.full is empty");
    ck_refused("stages: full", "stages is a section");
    ck_refused("stages:\n  full: {clocks: 1}\n  inner: {clocks: 1}\n  full: {parallelism: 1}\n",
               "jobs/x.yaml:4: stages.full is given twice: first at jobs/x.yaml:2");
    ck_refused("stages: {full: {clocks: 1, clocks: 2}}", "stages.full.clocks is given twice");
    ck_refused("stage: {full: {clocks: 1}}", "unknown section stage: did you mean stages?");
    ck_refused("parallelism: 2", "did you mean stages.NAME.parallelism?");
    struct tr_job *job;
    ck_fails(
        override("stages.full.clock=1", &job), TR_ERR_CONFIG,
        "command line: stages.full.clock=1: unknown key stages.full.clock: did you mean stages.full.clocks?");
    ck_fails(override("stage.full.clock=1", &job), TR_ERR_CONFIG, "did you mean stages.full.clocks?");
    ck_fails(override("stages.Full.clocks=1", &job), TR_ERR_CONFIG, "command line: «Full» is no name");
    ck_fails(override("stages.full.clocks=", &job), TR_ERR_CONFIG, "stages.full.clocks has no value");
    char text[4096] = "stages:\n";
    for (int i = 0; i < 65; i++) snprintf(text + strlen(text), 32, "  s%d: {clocks: 1}\n", i);
    ck_refused(text, "jobs/x.yaml:66: more than 64 stages");
}

UNIT_CASE(stages_are_those_of_the_method)
{
    static const char *const names[] = {"full", "inner"};
    struct tr_job *job = parsed("seed: 1\nstages:\n  full: {clocks: 1}\n  iner: {clocks: 1}\n");
    ck_fails(tr_job_check_stages(job, names, 2), TR_ERR_CONFIG,
             "jobs/x.yaml:4: unknown stage iner: did you mean inner? the method has full, inner");
    ck_fails(tr_job_check_stages(job, names, 1), TR_ERR_CONFIG, "unknown stage iner: the method has full");
    ck_fails(tr_job_check_stages(job, NULL, 0), TR_ERR_CONFIG,
             "jobs/x.yaml:3: unknown stage full: this solve.method");
    job = parsed("stages: {inner: {clocks: 1}}");
    ck_ok(tr_job_check_stages(job, names, 2));
}

/* ---- tasks ---- */

static const char three_tasks[] = "model: {type: svm}\n"
                                  "solve: {epochs: 4, decay: 1}\n"
                                  "stages: {full: {parallelism: 2, clocks: 3}}\n"
                                  "tasks:\n"
                                  "  zero: {ranks: 2, priority: -1.5}\n"
                                  "  one:\n"
                                  "    after: zero\n"
                                  "    model:\n"
                                  "      type: mf\n"
                                  "    solve: {epochs: 5}\n"
                                  "    ranks: {layout: alone}\n"
                                  "    stages:\n"
                                  "      inner: {clocks: 9}\n"
                                  "      full: {clocks: 6}\n"
                                  "  mean:\n"
                                  "    after: [zero, one]\n"
                                  "    run: average\n"
                                  "    ranks: 3\n"
                                  "    output: elsewhere\n";

UNIT_CASE(a_task_has_the_settings_of_the_job_and_its_own)
{
    struct tr_job *job = parsed(three_tasks);
    ck_assert_uint_eq(job->tasks, 3);
    ck_assert(job->solve.epochs == 4 && tr_job_is(job, "model.type", "svm") &&
              job->ranks.layout == TR_LAYOUT_AUTO);
    const struct tr_job_task *zero = &job->task[0], *one = tr_job_task_of(job, "one"), *mean = &job->task[2];
    ck_assert_ptr_eq(one, &job->task[1]);
    ck_assert_ptr_null(tr_job_task_of(job, "two"));

    ck_assert(zero->after.n == 0 && zero->ranks == 2 && zero->priority == -1.5 && zero->run == TR_RUN_TRAIN);
    ck_assert(zero->job->solve.epochs == 4 && tr_job_is(zero->job, "model.type", "svm") &&
              zero->job->tasks == 0);
    ck_assert_str_eq(zero->job->name, "zero");
    ck_assert_str_eq(zero->job->output, "runs/x/zero");
    ck_assert_uint_eq(zero->job->stage[0].parallelism, 2);

    ck_assert(one->after.n == 1 && one->ranks == 0 && one->priority == 0);
    ck_assert_str_eq(one->after.item[0], "zero");
    ck_assert(one->job->solve.epochs == 5 && tr_job_number(one->job, "solve.decay") == 1);
    ck_assert_str_eq(one->job->class->name, "mf");
    ck_assert(tr_job_is(one->job, "solve.method", "sgd")); /* the default follows the model of the task */
    ck_assert(tr_job_is(one->job, "solve.optimizer", "adagrad"));
    ck_assert(tr_job_number(one->job, "solve.rate") == TR_JOB_AUTO &&
              tr_job_number(zero->job, "solve.rate") == 0.1);
    ck_assert_int_eq(one->job->ranks.layout, TR_LAYOUT_ALONE);
    ck_assert_uint_eq(one->job->stages, 2);
    ck_assert(one->job->stage[0].parallelism == 2 && one->job->stage[0].clocks == 6);
    ck_assert_str_eq(one->job->stage[1].name, "inner");
    ck_assert_uint_eq(job->stages, 1);

    ck_assert(mean->after.n == 2 && mean->run == TR_RUN_AVERAGE && mean->ranks == 3);
    ck_assert_str_eq(mean->job->output, "elsewhere");
}

UNIT_CASE(settings_of_tasks_know_their_line)
{
    struct tr_job *job = parsed(three_tasks);
    static const char *const where[][2] = {{"tasks.one", "6"},
                                           {"tasks.one.after", "7"},
                                           {"tasks.one.model.type", "9"},
                                           {"tasks.one.solve.epochs", "10"},
                                           {"tasks.one.solve.decay", "2"},
                                           {"tasks.one.ranks.layout", "11"},
                                           {"tasks.one.stages.inner", "13"},
                                           {"tasks.one.stages.full.clocks", "14"},
                                           {"tasks.one.stages.full.parallelism", "3"},
                                           {"tasks.mean.ranks", "18"}};
    for (size_t i = 0; i < COUNT(where); i++) {
        char expected[32];
        snprintf(expected, sizeof expected, "jobs/x.yaml:%s", where[i][1]);
        ck_assert_str_eq(tr_job_where(job, where[i][0]), expected);
    }
    ck_assert_str_eq(tr_job_where(job, "tasks.one.ranks"), "default");
    ck_assert_str_eq(tr_job_where(job, "tasks.two.ranks"), "jobs/x.yaml");
    ck_assert_str_eq(tr_job_where(job->task[1].job, "solve.epochs"), "jobs/x.yaml:10");
    double value;
    ck_ok(tr_job_real(job, "tasks.one.solve.epochs", &value));
    ck_assert(value == 5);
}

UNIT_CASE(of_the_command_line_the_nearer_setting_wins)
{
    static const char *const arguments[] = {"tasks.zero.solve.epochs=8",
                                            "solve.epochs=7",
                                            "stages.full.clocks=1",
                                            "tasks.one.stages.full.clocks=2",
                                            "tasks.one.stages.more.clocks=5",
                                            "tasks.mean.after=one",
                                            "name=n",
                                            "output=out"};
    struct tr_job *job;
    ck_ok(parse_with(three_tasks, 8, arguments, &job));
    ck_assert_uint_eq(job->solve.epochs, 7);
    ck_assert_uint_eq(job->task[0].job->solve.epochs, 8);
    ck_assert_uint_eq(job->task[1].job->solve.epochs, 7); /* the file says 5 for this task */
    ck_assert_uint_eq(job->task[2].job->solve.epochs, 7);
    ck_assert_uint_eq(job->task[0].job->stage[0].clocks, 1);
    ck_assert_uint_eq(job->task[1].job->stage[0].clocks, 2);
    ck_assert_uint_eq(tr_job_stage_of(job->task[1].job, "more")->clocks, 5);
    ck_assert_uint_eq(job->task[2].after.n, 1);
    ck_assert_str_eq(job->task[0].job->name, "zero");
    ck_assert_str_eq(job->task[0].job->output, "out/zero");
    ck_assert_str_eq(tr_job_where(job, "tasks.one.solve.epochs"), "command line");
}

UNIT_CASE(mistakes_in_tasks)
{
    ck_refused("tasks:\n  one:\n    solve:\n      epoch: 1\n",
               "jobs/x.yaml:4: unknown key tasks.one.solve.epoch: did you mean tasks.one.solve.epochs?");
    ck_refused("tasks:\n  one:\n    slove:\n      rate: 1\n",
               "jobs/x.yaml:3: unknown section tasks.one.slove: did you mean tasks.one.solve?");
    ck_refused("tasks: {one: {afer: [two]}}", "unknown key tasks.one.afer: did you mean tasks.one.after?");
    ck_refused("tasks: {one: {stages: {full: {clock: 1}}}}", "did you mean tasks.one.stages.full.clocks?");
    ck_refused("tasks: {one: {tasks: {two: {seed: 1}}}}", "unknown section tasks.one.tasks");
    ck_lacks(tr_error_text(), "did you mean");
    ck_refused("tasks: {one: {tasks.two.seed: 1}}", "unknown key tasks.one.tasks.two.seed");
    ck_refused("tasks..seed: 1", "unknown key tasks..seed");
    ck_refused("tasks: {one: {priority: high}}", "tasks.one.priority is «high»: expected a number");
    ck_refused("tasks: {one: {ranks: -1}}",
               "tasks.one.ranks is «-1»: expected an integer from 0 to 2147483647");
    ck_refused("tasks: {one: {ranks: }}", "section tasks.one.ranks is empty");
    ck_refused("tasks: {one: {run: test}}", "tasks.one.run is «test»: expected train, average or best");
    ck_refused("tasks: {one: {after: {two: 1}}}", "tasks.one.after is a section: expected a name or a list");
    ck_refused("tasks: {one: {solve: fast}}", "tasks.one.solve is a section");
    ck_refused("tasks: {one: }", "section tasks.one is empty");
    ck_refused("tasks: [one]", "tasks is a section");
    ck_refused("tasks: {One: {seed: 1}}", "«One» is no name for a task");
    ck_refused("tasks: {\"\\xe9\": {seed: 1}}", "«é» is no name for a task");
    ck_refused("tasks:\n  one: {seed: 1}\n  one: {seed: 2}\n",
               "jobs/x.yaml:3: tasks.one is given twice: first at jobs/x.yaml:2");
    ck_refused("tasks: {one: {seed: 1, solve: {rate: 1}, solve: {decay: 1}}}",
               "tasks.one.solve is given twice: first at jobs/x.yaml:1");
    ck_refused("tasks: {one: {seed: 1, seed: 2}}", "tasks.one.seed is given twice");
    ck_refused("task: {one: {seed: 1}}", "unknown section task: did you mean tasks?");
    char *text;
    ck_ok(TR_NEW(&text, 1 << 16));
    strcpy(text, "tasks:\n");
    for (int i = 0, at = 7; i < 1025; i++) at += sprintf(text + at, "  t%d: {seed: 1}\n", i);
    ck_refused(text, "jobs/x.yaml:1026: more than 1024 tasks");
    free(text);
}

UNIT_CASE(mistakes_in_tasks_on_the_command_line)
{
    static const struct {
        const char *argument, *text;
    } cases[] = {
        {"tasks.oen.seed=1", "command line: unknown task oen: did you mean one?"},
        {"tasks.one.sed=1",
         "command line: tasks.one.sed=1: unknown key tasks.one.sed: did you mean tasks.one.seed?"},
        {"tasks.one=1", "unknown key tasks.one"},
        {"tasks.one.ranks=alone", "tasks.one.ranks is «alone»: expected an integer"},
        {"tasks.one.after=", "tasks.one.after has no value"},
        {"tasks.one.after=zer",
         "command line: task one is to run after zer, which is no task: did you mean zero?"},
        {"tasks.zero.after=mean", "command line: tasks wait for each other: zero -> mean -> zero"},
        {"tasks.zero.output=elsewhere",
         "jobs/x.yaml:19: tasks zero and mean write the same output: elsewhere"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct tr_job *job = NULL;
        ck_fails(parse_with(three_tasks, 1, &cases[i].argument, &job), TR_ERR_CONFIG, cases[i].text);
        ck_assert_ptr_null(job);
    }
}

UNIT_CASE(tasks_wait_for_tasks_that_are_there_and_not_for_each_other)
{
    ck_refused("tasks:\n  a:\n    after: [b]\n  b:\n    seed: 1\n    after: [a]\n",
               "jobs/x.yaml:3: tasks wait for each other: a -> b -> a");
    ck_refused("tasks: {a: {after: b}, b: {after: c}, c: {after: d}, d: {after: [e, b]}, e: {seed: 1}}",
               "tasks wait for each other: b -> c -> d -> b");
    ck_refused("tasks:\n  a:\n    after: a\n", "jobs/x.yaml:3: task a is to run after itself");
    ck_refused("tasks:\n  first: {seed: 1}\n  b:\n    after: [first, fist]\n",
               "jobs/x.yaml:4: task b is to run after fist, which is no task: did you mean first?");
    ck_refused("tasks: {a: {after: zzz}}", "task a is to run after zzz, which is no task");
    ck_refused("tasks: {a: {seed: 1}, b: {after: [a, a]}}", "tasks.b.after names a twice");
    ck_refused("tasks:\n  a:\n    run: average\n",
               "jobs/x.yaml:3: tasks.a.run is average: expected the names of tasks");
    struct tr_job *job = parsed("tasks: {d: {after: [b, c]}, b: {after: a}, c: {after: a}, a: {seed: 1}}");
    ck_assert_uint_eq(job->tasks, 4);
}

/* As many as there may be, the last of which waits for the first, or not. */
static int parse_chain(bool closed, struct tr_job **job)
{
    enum { N = 1024, SIZE = 1 << 17 };
    char *text;
    ck_ok(TR_NEW(&text, SIZE));
    strcpy(text, "tasks:\n");
    for (int i = 0, at = 7; i < N; i++) {
        const char *key = i + 1 < N || closed ? "after" : "name";
        at += sprintf(text + at, "  a-rather-long-name-of-one-%d: {%s: a-rather-long-name-of-one-%d}\n", i,
                      key, (i + 1) % N);
    }
    int status = parse(text, job);
    free(text);
    return status;
}

UNIT_CASE(long_chains_of_tasks_are_fine_and_long_cycles_told_shortly)
{
    struct tr_job *job = NULL;
    ck_ok(parse_chain(false, &job));
    ck_assert_uint_eq(job->tasks, 1024);
    ck_fails(parse_chain(true, &job), TR_ERR_CONFIG,
             "a-rather-long-name-of-one-1 -> a-rather-long-name-of-one-2 -> ");
    ck_contains(tr_error_text(), " -> ... -> a-rather-long-name-of-one-0");
}

UNIT_CASE(tasks_write_to_folders_of_their_own)
{
    static const char *const same[] = {"out", "./out", "out/", "out//", ".//./out/.", "out/."};
    for (size_t i = 0; i < COUNT(same); i++) {
        ck_refused(text_of("tasks:\n  a: {output: out}\n  b:\n    output: %s\n", same[i]),
                   "jobs/x.yaml:4: tasks a and b write the same output: ");
    }
    ck_refused("tasks:\n  b:\n    output: runs/x/a\n  a: {seed: 1}\n",
               "jobs/x.yaml:4: tasks b and a write the same output: runs/x/a");
    ck_refused("output: here\ntasks: {a: {output: ./here/}}",
               "task a writes the output of the whole job: ./here/");
    parsed("output: /o\ntasks: {a: {output: out}, b: {output: /out}, c: {output: out/c}, d: {output: o}}");
}

UNIT_CASE(stages_and_tasks_read_back_as_they_were_written)
{
    static const char *const jobs[] = {
        three_tasks,
        "stages: {full: {parallelism: auto}, null: {clocks: 3}, inner: {parallelism: 1}}",
        "tasks: {one: {seed: 1}}",
        "name: n\ntasks: {one: {name: n}}",
        "tasks: {}\nstages: {}",
        "model: {type: mf}\ntasks: {a: {model: {type: lda}}, b: {model: {type: svm}}, c: {solve: {rate: 1}}}",
        "solve: {method: svrg}\ntasks: {a: {solve: {method: sgd}}, b: {model: {type: kmeans}, solve: "
        "{method: auto}}}",
        "sync: {push: every 2}\ndata: {test: [a, b]}\ntasks: {a: {data: {test: []}, name: 'é: x', output: ' "
        "'}, "
        "b: {sync: {push: 3 per epoch}, stages: {z: {clocks: 1}}}, yes: {after: [b, a], run: average}}"};
    static const char *const arguments[] = {"solve.epochs=9"};
    for (size_t i = 0; i < 2 * COUNT(jobs); i++) {
        struct tr_job *job;
        ck_ok(parse_with(jobs[i / 2], i % 2, arguments, &job));
        expect_round_trip(job);
    }
}

UNIT_CASE(written_tasks_say_what_is_their_own)
{
    struct tr_job *job = parsed(three_tasks);
    char *yaml = written(job, AS_YAML, NULL), *json = written(job, AS_JSON, NULL);
    ck_contains(yaml,
                "\nstages:\n  full:\n    parallelism: 2                  # jobs/x.yaml:3\n    clocks: 3 ");
    ck_contains(yaml, "\ntasks:\n  zero:\n    after: [] ");
    ck_contains(yaml, "\n  one:\n    after: [zero]                   # jobs/x.yaml:7\n    priority: 0 ");
    ck_contains(yaml, "\n    solve.epochs: 5                 # jobs/x.yaml:10\n");
    ck_contains(yaml, "\n    stages.full.clocks: 6           # jobs/x.yaml:14\n");
    ck_contains(yaml, "\n    output: elsewhere               # jobs/x.yaml:19\n");
    ck_lacks(yaml, "solve.decay");
    ck_contains(json,
                "\n  },\n  \"stages\": {\n    \"full\": {\n      \"parallelism\": 2,\n      \"clocks\": 3,\n"
                "      \"servers\": 0\n    }\n  },\n  \"tasks\": {\n    \"zero\": {\n      \"after\": [],\n");
    ck_contains(json, "\"stages.inner.parallelism\": \"all\",\n      \"stages.inner.clocks\": 9,\n      "
                      "\"stages.inner.servers\": 0\n    },\n");
    ck_contains(json, "\"output\": \"elsewhere\"\n    }\n  }\n}");
}

/* ---- by name ---- */

UNIT_CASE(values_by_name)
{
    struct tr_job *job = parsed("solve: {rate: 0.5, epochs: 7}\nmodel: {bias: yes, type: svm}\nname: n");
    double real;
    uint64_t integer;
    const char *string;
    ck_ok(tr_job_real(job, "solve.rate", &real));
    ck_assert(real == 0.5);
    ck_ok(tr_job_real(job, "solve.epochs", &real));
    ck_assert(real == 7);
    ck_ok(tr_job_real(job, "model.l2", &real));
    ck_assert(real == TR_JOB_AUTO);
    ck_ok(tr_job_integer(job, "solve.epochs", &integer));
    ck_assert_uint_eq(integer, 7);
    ck_ok(tr_job_integer(job, "model.bias", &integer));
    ck_assert_uint_eq(integer, 1);
    ck_ok(tr_job_integer(job, "model.type", &integer));
    ck_assert_uint_eq(integer, 2);
    ck_ok(tr_job_string(job, "model.type", &string));
    ck_assert_str_eq(string, "svm");
    ck_ok(tr_job_string(job, "name", &string));
    ck_assert_str_eq(string, "n");
    ck_fails(tr_job_real(job, "name", &real), TR_ERR_CONFIG, "name was asked for as a number");
    ck_fails(tr_job_integer(job, "solve.rate", &integer), TR_ERR_CONFIG, "asked for as an integer");
    ck_fails(tr_job_string(job, "data.train", &string), TR_ERR_CONFIG, "asked for as text");
    ck_fails(tr_job_real(job, "solve.rat", &real), TR_ERR_CONFIG, "did you mean solve.rate?");
}

UNIT_CASE(paces_and_times_are_read_and_written)
{
    static const struct {
        const char *text, *again;
        double seconds;
        uint64_t clocks;
    } paces[] = {{"no", "no", 0, 0},
                 {"30s", "30s", 30, 0},
                 {"5min", "5min", 300, 0},
                 {"120 s", "2min", 120, 0},
                 {"1.5h", "90min", 5400, 0},
                 {"48h", "2d", 172800, 0},
                 {"250ms", "0.25s", 0.25, 0},
                 {"0.1s", "0.1s", 0.1, 0},
                 {"'2h'", "2h", 7200, 0},
                 {"1 clock", "1 clock", 0, 1},
                 {"1e2 clocks", "100 clocks", 0, 100}};
    for (size_t i = 0; i < COUNT(paces); i++) {
        struct tr_job *job =
            parsed(text_of("checkpoint: {every: %s, memory: %s}\n", paces[i].text, paces[i].text));
        const struct tr_job_pace *every = &job->checkpoint.every, *memory = &job->checkpoint.memory;
        ck_assert(every->seconds == paces[i].seconds && every->clocks == paces[i].clocks);
        ck_assert(memory->seconds == paces[i].seconds && memory->clocks == paces[i].clocks);
        char *yaml = written(job, AS_YAML, NULL), *json = written(job, AS_JSON, NULL);
        ck_contains(json, text_of("\"every\": \"%s\"", paces[i].again));
        struct tr_job *second = parsed(yaml);
        ck_assert(second->checkpoint.every.seconds == paces[i].seconds);
        ck_assert(second->checkpoint.every.clocks == paces[i].clocks);
    }
    static const char *const bad[] = {"5",      "0",          "0s",        "-1s",    "s",
                                      "5 m",    "1e3s",       "5mins",     "5:00",   "0 clocks",
                                      "clocks", "1.5 clocks", "5 clockss", "nans",   "1e-9 clocks",
                                      "0.1ms",  "99999d",     "yes",       "5min 3s"};
    for (size_t i = 0; i < COUNT(bad); i++) {
        ck_refused(text_of("checkpoint:\n  every: %s\n", bad[i]), "jobs/x.yaml:2: checkpoint.every is «");
        ck_contains(tr_error_text(), "expected no, a time as 30s, 5min or 2h, or «N clocks»");
    }
}

UNIT_CASE(a_time_limit_may_be_written_as_for_slurm)
{
    static const struct {
        const char *text;
        double seconds;
    } good[] = {{"no", 0},         {"90", 5400},     {"0:05", 5},     {"90:30", 5430},
                {"1:30:00", 5400}, {"1-12", 129600}, {"0-0:01", 60},  {"2-01:02:03", 176523},
                {"\"1:30\"", 90},  {"90min", 5400},  {"1.5 h", 5400}, {"0.5s", 0.5}};
    for (size_t i = 0; i < COUNT(good); i++) {
        double real;
        struct tr_job *job = parsed(text_of("checkpoint: {max_time: %s}\n", good[i].text));
        ck_assert_double_eq(job->checkpoint.max_time, good[i].seconds);
        ck_ok(tr_job_real(job, "checkpoint.max_time", &real));
        ck_assert_double_eq(real, good[i].seconds);
        struct tr_job *second = read_back(job);
        ck_assert_double_eq(second->checkpoint.max_time, good[i].seconds);
    }
    static const char *const bad[] = {"0",  "0:00", "1:2:3:4", "1-2:3:4:5", "-5",    "5-",
                                      "1:", ":5",   "1.5",     "1:x",       "1-2-3", "9999999999999999:0",
                                      "x",  "1 : 2"};
    for (size_t i = 0; i < COUNT(bad); i++)
        ck_refused(text_of("checkpoint:\n  max_time: \"%s\"\n", bad[i]),
                   "expected no, or a time as 90 or 1:30:00");
}

UNIT_CASE(checkpoints_have_defaults_and_limits)
{
    struct tr_job *job = parsed("{}");
    ck_assert(job->checkpoint.every.seconds == 300 && job->checkpoint.every.clocks == 0);
    ck_assert(job->checkpoint.keep == 3 && job->checkpoint.copies == 1 && job->checkpoint.max_time == 0);
    ck_assert(job->checkpoint.memory.seconds == 0 && job->checkpoint.memory.clocks == 0);
    ck_assert_str_eq(job->checkpoint.to, "");
    job = parsed("checkpoint: {to: \"\", keep: 1}");
    ck_assert(job->checkpoint.keep == 1 && !*job->checkpoint.to);
    ck_refused("checkpoint: {keep: 0}", "expected an integer >= 1");
    ck_refused("checkpoint: {to: }", "checkpoint.to has no value");
    ck_refused("checkpoint: {copies: 0}", "expected an integer from 1 to 2147483647");
    ck_refused("checkpoint: 5min", "checkpoint is a section");
    ck_refused("checkpoint: {evry: 5min}", "did you mean checkpoint.every?");
}

UNIT_CASE(checkpoints_of_tasks_lie_apart)
{
    struct tr_job *job = parsed("checkpoint: {to: /fast}\n"
                                "tasks:\n"
                                "  one: {priority: 1}\n"
                                "  two: {checkpoint.to: /slow}\n"
                                "  three: {checkpoint.to: \"\"}\n");
    for (int round = 0; round < 2; round++) {
        ck_assert_str_eq(job->checkpoint.to, "/fast");
        ck_assert_str_eq(job->task[0].job->checkpoint.to, "/fast/one");
        ck_assert_str_eq(job->task[1].job->checkpoint.to, "/slow");
        ck_assert_str_eq(job->task[2].job->checkpoint.to, "");
        char *again = written(job, AS_YAML, NULL);
        job = parsed(again);
    }
    ck_refused("tasks: {one: {checkpoint.to: a/b}, two: {checkpoint.to: a//b}}",
               "tasks one and two have the same checkpoint.to");
}

/* ---- may a run resume with another job ---- */

/* What tr_job_compare() says of a job as it was, and as it is with these settings. */
static int compare(const char *was, const char *is, int n, const char *const overrides[], char **change)
{
    struct tr_job *old = parsed(was), *now;
    ck_ok(parse_with(is, n, overrides, &now));
    char *yaml = written(old, AS_YAML, NULL);
    int status = tr_job_compare(now, yaml, change);
    return status;
}

UNIT_CASE(a_job_may_go_on_as_one_that_differs_where_it_may)
{
    char *change = NULL;
    ck_ok(compare("model: {l2: 0.01}", "model: {l2: 1e-2}", 0, NULL, &change));
    ck_assert_ptr_null(change);
    static const char *const settings[] = {"solve.epochs=7", "ranks.servers=3", "output=elsewhere",
                                           "checkpoint.every=1s", "report.every=2"};
    ck_ok(compare("{}", "name: other", 5, settings, &change));
    ck_assert_str_eq(change,
                     "name x -> other, output runs/x -> elsewhere, solve.epochs 1000 -> 7, ranks.servers 0 "
                     "-> 3, report.every 1 -> 2");
    free(change);
    ck_ok(compare("{}", "solve: {epochs: 3}", 0, NULL, NULL));
}

UNIT_CASE(a_job_that_has_become_another_is_refused)
{
    static const struct {
        const char *was, *is, *words;
    } cases[] = {
        {"model: {l2: 0.01}", "model:\n  l2: 0.1",
         "model.l2 was 0.01, is 0.1 (jobs/x.yaml:2); --fresh starts over"},
        {"model: {l2: 0.01}", "solve: {epochs: 3}",
         "model.l2 was 0.01, is auto (default); --fresh starts over"},
        {"seed: 1", "seed: 2\nmodel: {type: svm}\n",
         "seed was 1, is 2 (jobs/x.yaml:1), and 1 more differs; --fresh"},
        {"seed: 1", "seed: 2\nmodel: {type: svm, bias: no}\n", "and 2 more differ; --fresh"},
        {"data: {train: a}", "data: {train: [a, b]}", "data.train was [a], is [a, b] (jobs/x.yaml:1)"},
        {"solve: {method: svrg}\nstages: {full: {clocks: 2}}", "solve: {method: svrg}",
         "stages.full.clocks was 2, is 0 (default)"},
        {"tasks: {a: {run: train}}", "tasks: {a: {run: train}, b: {run: train}}",
         "task b is new (jobs/x.yaml:1)"},
        {"tasks: {a: {run: train}, b: {run: train}}", "tasks: {a: {run: train}}",
         "task b is gone (jobs/x.yaml)"},
        {"tasks: {a: {seed: 2}}", "tasks: {a: {seed: 3}}",
         "tasks.a.seed was 2, is 3 (jobs/x.yaml:1); --fresh"},
        {"tasks: {a: {run: train}}", "seed: 3\ntasks: {a: {run: train}}",
         "seed was 1, is 3 (jobs/x.yaml:1); --fresh"},
        {"tasks: {a: {run: train}, b: {run: train}}", "tasks: {a: {run: train}, b: {after: a}}",
         "tasks.b.after was [], is [a] (jobs/x.yaml:1)"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        char *change = NULL;
        ck_fails(compare(cases[i].was, cases[i].is, 0, NULL, &change), TR_ERR_CONFIG, cases[i].words);
        ck_assert_ptr_null(change);
    }
    struct tr_job *job = parsed("{}");
    ck_fails(tr_job_compare(job, "modle: {}", NULL), TR_ERR_CONFIG,
             "cannot be read (job.yaml:1: unknown section modle");
}

/* A job of this type in which the key has another value than by default; NULL if none of these is one. */
static struct tr_job *changed(const struct tr_job *old, const char *base, const tr_option *key)
{
    static const char *const values[] = {"3",   "5",     "0.5",         "yes", "no", "0.25",
                                         "1.2", "other", "2 per epoch", "7s",  "2M"};
    enum { VALUES = COUNT(values) };
    for (size_t v = 0; v < VALUES + 3; v++) {
        if (v >= VALUES && (!key->words || (v > VALUES && !key->words[v - VALUES]))) break;
        const char *argument = text_of("%s=%s", key->name, v < VALUES ? values[v] : key->words[v - VALUES]);
        struct tr_job *now = NULL;
        struct tr_job_slot a, b;
        if (parse_with(base, 1, &argument, &now) != TR_OK) continue;
        if (tr_job_find(old, key->name, &a) && tr_job_find(now, key->name, &b) && !tr_job_same(&a, &b))
            return now;
    }
    return NULL;
}

/* Each key alone, changed on the command line, is told or refused as the table says. */
static void expect_changes(const char *base)
{
    size_t refused = 0, told = 0;
    struct tr_job *old = parsed(base);
    struct tr_job_values keys = tr_job_values(old);
    char *yaml = written(old, AS_YAML, NULL);
    for (size_t i = 0; i < keys.n; i++) {
        const tr_option *key = tr_job_slot(&keys, i).key;
        if (strcmp(key->name, "model.plugin") == 0) continue;
        struct tr_job *now = changed(old, base, key);
        if (!now && strcmp(key->name, "solve.method") == 0 && !key->words[2])
            continue; /* there is one only */
        ck_assert_msg(now, "no other value is known for %s", key->name);
        char *change = NULL;
        int status = tr_job_compare(now, yaml, &change);
        const char *said = status == TR_OK ? change : tr_error_text();
        ck_assert_msg((status == TR_OK) == key->may_change, "%s: %s", key->name, said);
        if (!strncmp(key->name, "ranks.", 6) || !strncmp(key->name, "checkpoint.", 11))
            ck_assert(status == TR_OK);
        if (!strncmp(key->name, "model.", 6) || !strncmp(key->name, "sync.m", 6)) ck_assert(status != TR_OK);
        if (!strncmp(key->name, "checkpoint.", 11)) ck_assert_ptr_null(change);
        else ck_contains(said, key->name);
        *(status == TR_OK ? &told : &refused) += 1;
        free(change);
    }
    ck_assert(refused > 20 && told > 20);
}

UNIT_CASE(every_key_says_whether_it_may_change)
{
    static const char *const bases[] = {"{}", "model: {type: kmeans}", "model: {type: mf}",
                                        "model: {type: lda}"};
    for (size_t i = 0; i < COUNT(bases); i++) expect_changes(bases[i]);
}

UNIT_CASE(utf8_is_checked)
{
    static const char *const good[] = {"", "abc", "é", "€", "😀"};
    static const char *const bad[] = {"\xff",         "\xc3",         "\xc0\x80",
                                      "\xe0\x80\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80"};
    for (size_t i = 0; i < COUNT(good); i++) ck_assert(tr_utf8_valid(good[i]));
    for (size_t i = 0; i < COUNT(bad); i++) ck_assert(!tr_utf8_valid(bad[i]));
}
