/* trireme sweep: trains each combination of settings, and a model with the best one.
 *
 * A sweep is a job of many tasks, which this file writes as settings of the command line. Each combination has a task per fold, and
 * a task with `run: best` after these tasks (tasks.c). Resuming, order and folders are those of any job of several tasks. */
#define _GNU_SOURCE
#include "cli/cli.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "job/job.h"
#include "job/schema.h"
#include "ranks/ranks.h"

enum { MOST_TASKS = 1024 };

/* A setting that has several values. A combination has one value of each axis. */
struct axis {
    char *key; /* "": each value is a line of the file of --list, which contains several settings */
    struct tr_job_list values;
};

struct sweep_options {
    struct tr_run_options train;
    const char *list; /* file name of --list, or NULL */
    long folds;       /* number of folds; 0: compare results on data.test */
    long halving;     /* number of epochs of the first round; 0: train all combinations completely */
    long parallel;    /* number of tasks at the same time; 0: number of ranks */
};

struct sweep {
    struct axis *axis;
    size_t axes, capacity;
    struct tr_job_list settings;     /* settings of the job and of its tasks, for the command line */
    size_t folds, halving, parallel; /* see sweep_options */
};

__attribute__((format(printf, 2, 3))) static int sweep_add(struct sweep *s, const char *format, ...)
{
    TR_FREED char *text = NULL;
    va_list arguments;
    va_start(arguments, format);
    int n = vasprintf(&text, format, arguments);
    va_end(arguments);
    return n < 0 ? tr_fail(TR_ERR_SYSTEM, "out of memory") : tr_job_append(&s->settings, text);
}

/* ---- settings with several values ---- */

/* Appends the values of a range such as «1e-6..1e-2:log5». */
static int add_range(struct axis *a, const char *text)
{
    double from = NAN, to = NAN;
    char kind[4] = "", first[32] = "";
    const char *dots = strstr(text, "..");
    int n = 0, end = 0, begun = 0;
    snprintf(first, sizeof first, "%.*s", (int)(dots - text),
             text); /* sscanf() would read «1.» as a number */
    bool fits = sscanf(first, "%lf%n", &from, &begun) == 1 && !first[begun] &&
                sscanf(dots, "..%lf:%3[a-z]%d%n", &to, kind, &n, &end) == 3 && !dots[end];
    bool logarithmic = strcmp(kind, "log") == 0;
    fits = fits && (logarithmic || strcmp(kind, "lin") == 0) && n >= 2 && n <= MOST_TASKS && isfinite(from) &&
           isfinite(to) && (!logarithmic || (from > 0 && to > 0));
    if (!fits)
        return tr_fail(
            TR_ERR_USAGE,
            "sweep: %s=%s: expected FROM..TO:logN or FROM..TO:linN, of two values or more, above 0 for log",
            a->key, tr_shown(text).text);
    for (int i = 0; i < n; i++) {
        char value[32];
        double part = (double)i / (n - 1);
        double x = logarithmic ? from * pow(to / from, part) : from + (to - from) * part;
        snprintf(value, sizeof value, "%.9g", x);
        TR_TRY(tr_job_append(&a->values, value));
    }
    return TR_OK;
}

/* Appends the values of a list. Commas separate values, except inside brackets. */
static int add_list(struct axis *a, const char *text)
{
    int depth = 0;
    const char *begin = text;
    for (const char *c = text;; c++) {
        TR_FREED char *value = NULL;
        depth += (*c == '[' || *c == '{') - (*c == ']' || *c == '}');
        if (*c && (*c != ',' || depth > 0)) continue;
        if (c == begin)
            return tr_fail(TR_ERR_USAGE, "sweep: %s: a value is missing in «%s»", a->key,
                           tr_shown(text).text);
        TR_TRY(tr_format(&value, "%.*s", (int)(c - begin), begin));
        TR_TRY(tr_job_append(&a->values, value));
        if (!*c) return TR_OK;
        begin = c + 1;
    }
}

/* Appends an axis without values. */
static int add_axis(struct sweep *s, const char *key, int length, struct axis **axis)
{
    TR_TRY(TR_GROW(&s->axis, &s->capacity, s->axes + 1));
    *axis = &s->axis[s->axes++];
    **axis = (struct axis){.key = NULL};
    return tr_format(&(*axis)->key, "%.*s", length, key);
}

static void axis_free(struct axis *a)
{
    tr_job_list_free(&a->values);
    free(a->key);
}

/* Adds a setting: one with several values becomes an axis, any other applies to all tasks. */
static int add_setting(struct sweep *s, const char *text)
{
    const char *equals = strchr(text, '='), *value = equals + 1;
    const struct tr_model_class *class;
    struct axis *a;
    TR_TRY(add_axis(s, text, (int)(equals - text), &a));
    const tr_option *option = tr_job_known_key(a->key, 0, &class);
    bool is_list = option && tr_job_is_list(option); /* true: its commas do not separate values of an axis */
    if (is_list) TR_TRY(tr_job_append(&a->values, value));
    else TR_TRY(strstr(value, "..") && strchr(value, ':') ? add_range(a, value) : add_list(a, value));
    if (a->values.n > 1) return TR_OK;
    axis_free(a);
    s->axes--;
    return tr_job_append(&s->settings, text);
}

/* Adds an axis whose values are the lines of a file. */
static int add_lines(struct sweep *s, const char *path)
{
    TR_FREED char *line = NULL;
    char *rest;
    size_t room = 0;
    struct axis *a;
    TR_TRY(add_axis(s, "", 0, &a));
    FILE *file = fopen(path, "r");
    if (!file) return tr_fail(TR_ERR_NO_INPUT, "%s: %s", path, strerror(errno));
    int status = TR_OK;
    for (int number = 1; status == TR_OK && getline(&line, &room, file) >= 0; number++) {
        line[strcspn(line, "\r\n")] = '\0';
        size_t blanks = strspn(line, " \t");
        if (!line[blanks] || line[blanks] == '#') continue;
        status = tr_job_append(&a->values, line);
        for (char *word = strtok_r(line, " \t", &rest); word && status == TR_OK;
             word = strtok_r(NULL, " \t", &rest))
            if (!tr_job_is_setting(word))
                status = tr_fail(TR_ERR_USAGE, "%s:%d: «%s»: expected KEY=VALUE", path, number,
                                 tr_shown(word).text);
    }
    fclose(file);
    if (status == TR_OK && a->values.n == 0)
        status = tr_fail(TR_ERR_USAGE, "%s: there is no line of settings", path);
    return status;
}

/* ---- the tasks ---- */

/* Adds the settings of a combination to a task. Combinations are numbered from 0; the last axis varies fastest. */
static int add_task_settings(struct sweep *s, const char *task, size_t combination)
{
    size_t of_rest = 1; /* number of combinations of the axes after axis k */
    for (size_t k = 1; k < s->axes; k++) of_rest *= s->axis[k].values.n;
    for (size_t k = 0; k < s->axes; k++) {
        const struct axis *a = &s->axis[k];
        const char *value = a->values.item[combination / of_rest % a->values.n];
        if (*a->key) TR_TRY(sweep_add(s, "tasks.%s.%s=%s", task, a->key, value));
        else
            for (; *(value += strspn(value, " \t")); value += strcspn(value, " \t"))
                TR_TRY(sweep_add(s, "tasks.%s.%.*s", task, (int)strcspn(value, " \t"), value));
        if (k + 1 < s->axes) of_rest /= s->axis[k + 1].values.n;
    }
    return TR_OK;
}

/* Adds the task that trains the combination on all rows if it is the best. */
static int add_best(struct sweep *s, size_t combination, const char *after)
{
    char task[32];
    snprintf(task, sizeof task, "s%zu", combination + 1);
    TR_TRY(add_task_settings(s, task, combination));
    TR_TRY(sweep_add(s, "tasks.%s.run=best", task));
    return sweep_add(s, "tasks.%s.after=%s", task, after);
}

/* Adds the tasks of a combination for --halving, one per round. In each round the better half of the combinations is trained for
 * twice the number of epochs of the round before (Jamieson and Talwalkar, successive halving, AISTATS 2016). */
static int add_rounds(struct sweep *s, size_t combination, size_t combinations, size_t parallel)
{
    char task[32];
    size_t round = 1, ranks = (size_t)tr_started_ranks(), left = combinations;
    for (;; round++, left = (left + 1) / 2) {
        size_t at_once = tr_min_size(left, parallel);
        snprintf(task, sizeof task, "s%zu-%zu", combination + 1, round);
        TR_TRY(add_task_settings(s, task, combination));
        TR_TRY(sweep_add(s, "tasks.%s.ranks=%zu", task, tr_max_size(1, ranks / at_once)));
        TR_TRY(sweep_add(s, "tasks.%s.solve.epochs=%zu", task, s->halving << (round - 1)));
        if (s->folds > 0) TR_TRY(sweep_add(s, "tasks.%s.data.test=fold 1/%zu", task, s->folds));
        if (round > 1) TR_TRY(sweep_add(s, "tasks.%s.after=s%zu-%zu", task, combination + 1, round - 1));
        if (round > 1) TR_TRY(sweep_add(s, "tasks.%s.best=%zu", task, left));
        if (left <= 2) break;
    }
    return add_best(s, combination, task);
}

/* Adds the tasks of a combination: one per fold, on `ranks` ranks each. */
static int add_combination(struct sweep *s, size_t combination, size_t ranks)
{
    size_t folds = s->folds > 0 ? s->folds : 1;
    char task[32], after[MOST_TASKS * 24];
    size_t at = 0;
    for (size_t fold = 1; fold <= folds; fold++) {
        snprintf(task, sizeof task, "s%zu-%zu", combination + 1, fold);
        at += (size_t)snprintf(after + at, sizeof after - at, "%s%s", at > 0 ? "," : "", task);
        TR_TRY(add_task_settings(s, task, combination));
        TR_TRY(sweep_add(s, "tasks.%s.ranks=%zu", task, ranks));
        if (s->folds > 0) TR_TRY(sweep_add(s, "tasks.%s.data.test=fold %zu/%zu", task, fold, folds));
    }
    return add_best(s, combination, after);
}

static int add_tasks(struct sweep *s)
{
    size_t combinations = 1, ranks = (size_t)tr_started_ranks();
    for (size_t k = 0; k < s->axes; k++) combinations *= s->axis[k].values.n;
    size_t each = s->folds > 0 ? s->folds : 1, parallel = s->parallel > 0 ? s->parallel : ranks;
    if (s->halving > 0)
        for (size_t left = combinations, round = each = 1; left > 2; left = (left + 1) / 2) each = ++round;
    size_t tasks = combinations * each;
    if (tasks + combinations > MOST_TASKS)
        return tr_fail(TR_ERR_USAGE, "sweep: %zu combinations %zu times are more than %d tasks", combinations,
                       each, MOST_TASKS);
    for (size_t i = 0; i < combinations && s->halving > 0; i++)
        TR_TRY(add_rounds(s, i, combinations, parallel));
    parallel = tr_min_size(parallel, tasks);
    for (size_t i = 0; i < combinations && s->halving == 0; i++)
        TR_TRY(add_combination(s, i, tr_max_size(1, ranks / parallel)));
    return TR_OK;
}

static int sweep_command(struct tr_arguments *arguments, void *given)
{
    const struct sweep_options *options = given;
    struct sweep s = {.folds = (size_t)options->folds,
                      .halving = (size_t)options->halving,
                      .parallel = (size_t)options->parallel};
    int status = TR_OK;
    for (int i = 0; i < arguments->settings && status == TR_OK; i++) {
        const char *word = arguments->setting[i];
        status = tr_job_is_setting(word) ? add_setting(&s, word) : tr_job_append(&s.settings, word);
    }
    if (status == TR_OK && options->list) status = add_lines(&s, options->list);
    if (status == TR_OK && s.folds == 1)
        status = tr_fail(TR_ERR_USAGE, "sweep: one fold leaves nothing to learn from: expected 2 or more");
    if (status == TR_OK && s.axes == 0)
        status = tr_fail(TR_ERR_USAGE, "sweep: no setting has several values: see trireme help sweep");
    if (status == TR_OK) status = add_tasks(&s);
    if (status == TR_OK) {
        struct tr_arguments job = {.word = arguments->word,
                                   .words = arguments->words,
                                   .setting = s.settings.item,
                                   .settings = (int)s.settings.n};
        status = tr_train(&job, &options->train);
    } else {
        status = tr_is_an_echo() ? TR_OK : tr_complain(status); /* all ranks found this error */
    }
    for (size_t k = 0; k < s.axes; k++) axis_free(&s.axis[k]);
    free(s.axis);
    tr_job_list_free(&s.settings);
    return status;
}

static const struct tr_argument sweep_arguments[] = {
    {"--folds", TR_ARG_NUMBER, offsetof(struct sweep_options, folds), .most = MOST_TASKS, .value = "K",
     .help = "test each combination on K parts of the rows in turn, and train on the others; 0: test on "
             "data.test"},
    {"--halving", TR_ARG_NUMBER, offsetof(struct sweep_options, halving), .least = 1, .most = MOST_TASKS,
     .value = "E",
     .help = "train all for E epochs and test them on the first fold only; then train the better half for "
             "double the number of epochs, each on more ranks, and so on, until two are left"},
    {"--list", TR_ARG_TEXT, offsetof(struct sweep_options, list), .value = "FILE",
     .help = "a file with a combination per line, KEY=VALUE KEY=VALUE ...; empty lines and lines with # in "
             "front are left out"},
    {"--parallel", TR_ARG_NUMBER, offsetof(struct sweep_options, parallel), .least = 1, .most = MOST_TASKS,
     .help = "the number of tasks at the same time; by default the number of ranks"},
    {0}};

const struct tr_cli_command tr_sweep_command = {
    .syntax = {.command = "sweep",
               .options = sweep_arguments,
               .shared = tr_run_arguments,
               .keys = tr_all_keys,
               .job = true,
               .hint = "settings are section.key=value"},
    .brief = "train with each of several settings, and keep the best",
    .usage = "trireme sweep [JOB.yaml] KEY=VALUES... [section.key=value ...] [OPTION...]\n"
             "mpirun -n RANKS trireme sweep [JOB.yaml] ...",
    .about = "Trains with each combination of the settings that have several VALUES, and tests them on rows "
             "that were held out; then trains with the best combination on all rows. That model is in the "
             "folder best of the job's output, beside the results that led to it. After a stop or a failure "
             "the same command continues.\n"
             "VALUES are 0.1,0.01 or 1e-6..1e-2:log5 (five values in constant ratio) or 2..10:lin5.",
    .defaults = &(const struct sweep_options){.folds = 3},
    .options_size = sizeof(struct sweep_options),
    .on_ranks = true,
    .run = sweep_command,
};
