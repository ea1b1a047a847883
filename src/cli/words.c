#define _GNU_SOURCE
#include "cli/words.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "base/escape.h"
#include "base/file.h"
#include "cli/cli.h"
#include "cli/gnuplot.h"
#include "data/dataset.h"
#include "data/files.h"
#include "ranks/ranks.h"

static const char *const command_name[] = {
    [TR_PREDICT] = "predict", [TR_EVALUATE] = "evaluate", [TR_INSPECT] = "inspect"};

/* ---- flags ---- */

#define AT(field) offsetof(struct tr_words, field)

/* Flags of the commands themselves, and where their values go. */
static const struct own {
    tr_flag flag;
    size_t at;
} own_flags[] = {
    {{"-o", "a file", TR_PREDICT | TR_EVALUATE, 0, 0, NULL}, AT(output)},
    {{"--id", "a column", TR_PREDICT, 0, 0, NULL}, AT(id)},
    {{"--plot", NULL, TR_EVALUATE, 0, 0, NULL}, AT(plot)},
    {{"--json", NULL, TR_EVALUATE, 0, 0, NULL}, AT(json)},
    {{"--format", "a format of data", TR_PREDICT | TR_EVALUATE, 0, 0, NULL}, AT(format)},
    {{"--plugin", "a shared object", TR_PREDICT | TR_EVALUATE | TR_INSPECT, 0, 0, NULL}, AT(plugin)},
    {{"--servers", "a number", TR_INSPECT, 1, 65536, NULL}, AT(servers)},
    {{"--partition", "one partition", TR_INSPECT, 0, 0, NULL}, AT(partition)}};

static const struct own *find_own(const struct tr_words *w, const char *word)
{
    for (size_t i = 0; i < sizeof own_flags / sizeof *own_flags; i++)
        if ((own_flags[i].flag.commands & w->command) && !strcmp(own_flags[i].flag.name, word))
            return &own_flags[i];
    return NULL;
}

static const tr_flag *find_in(const tr_model_class *class, const struct tr_words *w, const char *word)
{
    for (const tr_flag *flag = class->flags; flag && flag->name; flag++)
        if ((flag->commands & w->command) && !strcmp(flag->name, word)) return flag;
    return NULL;
}

/* Of any class, or of the plugin of the model that stands before it. */
static const tr_flag *find_flag(const struct tr_words *w, const char *word)
{
    const tr_flag *flag = NULL;
    struct tr_model model;
    for (size_t i = 0; i < tr_model_class_count && !flag; i++) flag = find_in(tr_model_classes[i], w, word);
    if (flag || w->words == 0 || tr_model_open(w->word[0], w->plugin, &model) != TR_OK) return flag;
    flag = find_in(model.class, w, word);
    tr_model_close(&model);
    return flag;
}

static int check_value(const struct tr_words *w, const tr_flag *flag, const char *value, bool twice)
{
    char *end = NULL;
    long n = value ? strtol(value, &end, 10) : 0;
    if (flag->most > 0 && (!value || end == value || *end || n < flag->least || n > flag->most))
        return tr_fail(TR_ERR_USAGE, "%s: expected a number from %ld to %ld behind %s",
                       command_name[w->command], flag->least, flag->most, flag->name);
    if (value && !twice) return TR_OK;
    return tr_fail(TR_ERR_USAGE, "%s: expected %s behind %s%s", command_name[w->command], flag->value,
                   flag->name, twice ? ", and once" : "");
}

static int take_own(struct tr_words *w, const struct own *own, const char *value)
{
    void *to = (char *)w + own->at;
    if (!own->flag.value) return *(bool *)to = true, TR_OK;
    TR_TRY(check_value(w, &own->flag, value, own->flag.most == 0 && *(const char **)to));
    if (own->flag.most > 0) *(long *)to = strtol(value, NULL, 10);
    else *(const char **)to = value;
    return TR_OK;
}

static int take_flag(struct tr_words *w, const tr_flag *flag, const char *value)
{
    bool twice = false;
    for (size_t i = 0; i < w->flags; i++)
        twice = twice || (flag->most == 0 && !strcmp(w->flag[i].name, flag->name));
    if (flag->value) TR_TRY(check_value(w, flag, value, twice));
    w->flag[w->flags++] = (struct tr_given){flag->name, flag->value ? value : NULL};
    return TR_OK;
}

static int read_all(struct tr_words *w, int argc, char **argv)
{
    bool flags = true;
    for (int i = 0; i < argc; i++) {
        char *word = argv[i], *next = i + 1 < argc ? argv[i + 1] : NULL;
        const struct own *own = flags ? find_own(w, word) : NULL;
        const tr_flag *flag = flags && !own && word[0] == '-' && word[1] ? find_flag(w, word) : NULL;
        if (own) {
            TR_TRY(take_own(w, own, next));
            i += own->flag.value != NULL;
        } else if (flag) {
            TR_TRY(take_flag(w, flag, next));
            i += flag->value != NULL;
        } else if (flags && strcmp(word, "--") == 0) {
            flags = false;
        } else if (flags && word[0] == '-' && word[1]) {
            return tr_fail(TR_ERR_USAGE, "%s: unexpected %s, expected %s", command_name[w->command], word,
                           w->usage);
        } else if (flags && w->command == TR_INSPECT && strncmp(word, "table.", 6) == 0 &&
                   strchr(word, '=')) {
            w->setting[w->settings++] = word;
        } else {
            w->word[w->words++] = word;
        }
    }
    return TR_OK;
}

bool tr_wants_help(int argc, char **argv)
{
    for (int i = 0; i < argc; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) return true;
    return false;
}

int tr_words_read(int argc, char **argv, enum tr_asked command, const char *usage, size_t least,
                  struct tr_words *w)
{
    *w = (struct tr_words){.command = command, .usage = usage};
    w->helps = tr_wants_help(argc, argv);
    if (w->helps) return TR_OK;
    TR_TRY(TR_NEW(&w->word, (size_t)argc + 1));
    TR_TRY(TR_NEW(&w->setting, (size_t)argc + 1));
    TR_TRY(TR_NEW(&w->flag, (size_t)argc + 1));
    TR_TRY(read_all(w, argc, argv));
    for (size_t i = 0; i < w->flags && least > 1; i++)
        if (!strcmp(w->flag[i].name, "--user")) least = 1; /* in place of data */
    if (command == TR_EVALUATE && w->output && !w->plot)
        return tr_fail(TR_ERR_USAGE, "evaluate: -o is where --plot draws, which is not there");
    if (w->words >= least) return TR_OK;
    return tr_fail(TR_ERR_USAGE, "%s: expected %s", command_name[command], usage);
}

void tr_words_free(struct tr_words *w)
{
    free(w->word);
    free(w->setting);
    free(w->flag);
    *w = (struct tr_words){0};
}

void tr_words_help(enum tr_asked command)
{
    for (size_t i = 0; i < tr_model_class_count; i++)
        for (const tr_flag *flag = tr_model_classes[i]->flags; flag && flag->name; flag++) {
            char text[64];
            snprintf(text, sizeof text, "%s%s%s", flag->name, flag->value ? " " : "",
                     flag->value ? flag->value : "");
            if (flag->commands & command)
                tr_printf(stdout, "  %-17s %s: %s\n", text, tr_model_classes[i]->name, flag->help);
        }
}

/* ---- where predictions go ---- */

static int cannot_write(int status, const char *path)
{
    return tr_fail(status, "%s: cannot be written: %s", path, strerror(errno));
}

/* Neither the model nor what it is applied to may be where the predictions go. */
static int check_inputs(const struct tr_ask *ask, const struct tr_model *model, const char *output)
{
    int status = tr_check_not_input(output, model->path);
    for (size_t i = 0; i < ask->files && status == TR_OK; i++) {
        char *found = NULL;
        struct tr_files files = {.file = NULL};
        if (model->job) status = tr_data_find(model->job, ask->file[i], &found);
        /* whoever reads them says what is wrong with them */
        if (status == TR_OK && tr_files_open(found ? &found : (char **)&ask->file[i], 1, &files) == TR_OK)
            for (size_t k = 0; k < files.n && status == TR_OK; k++)
                status = tr_check_not_input(output, files.file[k].path);
        tr_files_close(&files);
        free(found);
    }
    return status;
}

/* Ranks but the first write into a file that has no name. */
static int open_target(struct tr_target *t, const struct tr_words *w, const struct tr_model *model,
                       struct tr_ask *ask)
{
    if (ask->tr && ask->tr->rank > 0) {
        ask->out = tmpfile();
        return ask->out ? TR_OK : tr_fail(TR_ERR_IO, "no file for predictions: %s", strerror(errno));
    }
    if (w->command != TR_PREDICT || !w->output) return TR_OK;
    TR_TRY(check_inputs(ask, model, w->output));
    TR_TRY(tr_target_of(w->output, t));
    ask->out = fopen(t->part, "we");
    ask->output = w->output;
    return ask->out ? TR_OK : cannot_write(TR_ERR_NO_OUTPUT, w->output);
}

static int close_target(struct tr_target *t, const struct tr_ask *ask, int status)
{
    if (!ask->out) return tr_target_finish(t, status);
    if (ask->out == stdout) {
        bool failed = fflush(stdout) != 0 || ferror(stdout);
        return status == TR_OK && failed ? cannot_write(TR_ERR_IO, "standard output") : status;
    }
    if (!t->part) return fclose(ask->out), status;
    bool fails = ferror(ask->out) || fflush(ask->out) != 0 || (!t->in_place && fsync(fileno(ask->out)) != 0);
    if (status == TR_OK && fails) status = cannot_write(TR_ERR_IO, ask->output);
    if (fclose(ask->out) != 0 && status == TR_OK) status = cannot_write(TR_ERR_IO, ask->output);
    return tr_target_finish(t, status);
}

/* ---- curves of evaluate ---- */

static void draw_curve(FILE *script, const struct tr_curve *c, bool own_line)
{
    fputs("$curve << end\n", script);
    for (size_t i = 0; i < c->n; i++) fprintf(script, "%.6g %.6g\n", c->point[i][0], c->point[i][1]);
    fputs("end\nset title ", script);
    tr_put_gnuplot(script, c->name);
    fputs("\nset xlabel ", script);
    tr_put_gnuplot(script, c->x);
    fputs("\nset ylabel ", script);
    tr_put_gnuplot(script, c->y);
    tr_printf(script, "\nplot $curve with %s%s\n", c->n > 20 ? "lines" : "linespoints",
              own_line ? ", x with lines dashtype 2" : "");
}

/* One below the other, each in a square; dashed is what guessing would be, or where all is as predicted. */
static int draw_curves(void *state, const struct tr_curve *curve, size_t n)
{
    const struct tr_words *w = state;
    struct tr_drawing drawing;
    if (n == 0)
        return tr_fail(TR_ERR_USAGE,
                       "evaluate: there are no curves to plot of such a model, or of such rows");
    int status = tr_drawing_open(&drawing, "evaluate", w->output, (int)n);
    if (status == TR_OK)
        fprintf(drawing.script,
                "unset key\nset xrange [0:1]\nset yrange [0:1]\nset grid\nset multiplot layout %zu,1\n", n);
    for (size_t i = 0; i < n && status == TR_OK; i++)
        draw_curve(drawing.script, &curve[i], strcmp(curve[i].x, "recall") != 0);
    if (status == TR_OK) fputs("unset multiplot\n", drawing.script);
    return tr_drawing_close(&drawing, status);
}

int tr_ask_model(const char *path, const struct tr_words *w, tr_context *tr)
{
    struct tr_model model;
    struct tr_target target = {.part = NULL};
    struct tr_ask ask = {.command = w->command,
                         .file = w->word + 1,
                         .files = w->words - 1,
                         .given = w->flag,
                         .n_given = w->flags,
                         .format = w->format,
                         .out = stdout,
                         .output = "standard output",
                         .json = w->json,
                         .id = w->id,
                         .draw = w->plot ? draw_curves : NULL,
                         .draw_state = (void *)w,
                         .tr = tr};
    int status = tr_model_open(path, w->plugin, &model);
    bool opened = status == TR_OK;
    if (opened) status = open_target(&target, w, &model, &ask);
    if (tr) status = tr_agree(tr, status);
    if (status == TR_OK) status = tr_model_ask(&model, &ask);
    if (opened) status = close_target(&target, &ask, status);
    if (opened) tr_model_close(&model);
    return status;
}

void tr_show(const char *name, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    tr_printf(stdout, "%-13s ", name);
    tr_vprintf(stdout, format, arguments);
    putchar('\n');
    va_end(arguments);
}
