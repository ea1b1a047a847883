#define _GNU_SOURCE
#include "cli/cli.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "base/escape.h"
#include "base/terminal.h"
#include "data/input.h"
#include "table/plan.h"
#include "trireme/records.h"

struct inspect_options {
    struct tr_ask_options ask;
    long servers; /* number of servers; 0: --servers was not given */
};

static void show_line(const char *name, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void show_line(const char *name, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    tr_printf(stdout, "%-13s ", name);
    tr_vprintf(stdout, format, arguments);
    putchar('\n');
    va_end(arguments);
}

enum { KINDS = 32 }; /* maximum number of distinct labels that are counted */

/* ---- inspect --servers: distribution of the keys of a model over servers ---- */

/* Computes the partition of the model's keys, from the job of the model and settings of the command line. */
static int make_partition(const struct tr_model *m, const struct tr_arguments *a, uint64_t keys, long servers,
                          struct tr_partition *partition)
{
    static const char none[] = "{}";
    const char *text = m->text ? m->text : none;
    tr_job *job;
    TR_TRY(tr_job_parse_as(TR_JOB_WRITTEN, NULL, text, strlen(text), m->path, a->settings, a->setting, &job));
    struct tr_partition_options options = {.kind = (enum tr_partition_kind)job->table.partition,
                                           .block = job->table.block,
                                           .points = (uint32_t)job->table.virtual_nodes,
                                           .unbounded = job->table.storage == TR_STORAGE_HASH,
                                           .table = m->path};
    tr_job_free(job);
    return tr_partition_make(&options, keys, (uint32_t)servers, partition);
}

static uint64_t end_of_block(const struct tr_partition *p, uint64_t unit)
{
    uint64_t end = (unit / p->block + 1) * p->block;
    return end < p->units ? end : p->units;
}

/* Returns the number of units whose servers differ between the partitions. */
static uint64_t count_moved(const struct tr_partition *a, const struct tr_partition *b)
{
    uint64_t moved = 0;
    for (uint64_t unit = 0, next; unit < a->units; unit = next) {
        uint64_t end[2] = {end_of_block(a, unit), end_of_block(b, unit)};
        next = end[0] < end[1] ? end[0] : end[1];
        if (tr_partition_locate(a, unit).server != tr_partition_locate(b, unit).server) moved += next - unit;
    }
    return moved;
}

/* Prints the number of keys of each server, and the number of keys that move if a server is added (partition `then`). */
static int show_servers(const struct tr_partition *now, const struct tr_partition *then, double key_bytes)
{
    TR_FREED uint64_t *keys = NULL;
    uint32_t n = now->servers;
    char points[48] = "";
    TR_TRY(TR_NEW(&keys, 2 * (size_t)n));
    uint64_t *sorted = keys + n;
    tr_partition_count(now, keys);
    memcpy(sorted, keys, n * sizeof *keys);
    qsort(sorted, n, sizeof *sorted, tr_compare_u64);
    if (now->kind == TR_PARTITION_RING) snprintf(points, sizeof points, ", %u points a server", now->points);
    show_line("partition", "%s, %llu blocks of %llu%s", tr_partition_name(now->kind),
              (unsigned long long)now->blocks, (unsigned long long)now->block, points);
    uint64_t least = sorted[0], median = sorted[n / 2], most = sorted[n - 1];
    show_line("each server", "keys %llu / %llu / %llu, %s / %s / %s (min / median / max)",
              (unsigned long long)least, (unsigned long long)median, (unsigned long long)most,
              tr_bytes((double)least * key_bytes).text, tr_bytes((double)median * key_bytes).text,
              tr_bytes((double)most * key_bytes).text);
    show_line("max / mean", "%.3f", (double)most * n / (double)now->units);
    show_line("one more", "%.2f %% of the keys would move with %u servers (an even share is %.2f %%)",
              100 * (double)count_moved(now, then) / (double)now->units, n + 1, 100 / (double)(n + 1));
    tr_printf(stdout, "\n%12s  %12s  bytes\n", "server", "keys");
    for (uint32_t s = 0; s < n; s++)
        printf("%12u  %12llu  %.0f\n", s, (unsigned long long)keys[s], (double)keys[s] * key_bytes);
    return TR_OK;
}

static int show_keys(const struct tr_model *m, const struct tr_arguments *a, long servers)
{
    TR_CLOSED_BY(tr_partition_free) struct tr_partition now = {0}, then = {0};
    enum tr_dtype dtype;
    const char *with = NULL;
    if (!m->class->keys) return tr_fail(TR_ERR_USAGE, "inspect: --servers is not for %s", m->class->noun);
    uint64_t keys = m->class->keys(m->model, &dtype, &with);
    double key_bytes = dtype == TR_F32 ? 4 : 8;
    TR_TRY(make_partition(m, a, keys, servers, &now));
    TR_TRY(make_partition(m, a, keys, servers + 1, &then));
    show_line("keys", "%llu of %s%s%s, %s", (unsigned long long)keys, dtype == TR_F32 ? "f32" : "f64",
              with ? " with " : "", with ? with : "", tr_bytes((double)keys * key_bytes).text);
    return show_servers(&now, &then, key_bytes);
}

/* ---- data ---- */

struct data {
    uint64_t rows, nonzeros;
    uint64_t empty, longest;  /* number of rows without non-zeros; maximum number of non-zeros of a row */
    uint32_t lowest, highest; /* smallest and largest index of a feature */
    float least, most;        /* smallest and largest value */
    bool binary;              /* all values are 1 */
    struct {
        float label;
        uint64_t rows;
    } kind[KINDS]; /* distinct labels in ascending order, and their numbers of rows */
    size_t kinds;  /* number of distinct labels; KINDS + 1: there are more than KINDS */
    float least_label, most_label;
};

static int count_rows(void *state, const tr_records *records)
{
    struct data *d = state;
    const tr_batch *rows = &records->rows;
    for (size_t i = 0; i < rows->n; i++) {
        uint64_t first = rows->begin[i], end = rows->begin[i + 1];
        d->empty += first == end;
        if (end - first > d->longest) d->longest = end - first;
        if (first < end && rows->column[first] < d->lowest) d->lowest = rows->column[first];
        if (first < end && rows->column[end - 1] > d->highest) d->highest = rows->column[end - 1];
        float label = rows->label[i];
        size_t at = 0;
        d->least_label = fminf(d->least_label, label);
        d->most_label = fmaxf(d->most_label, label);
        if (d->kinds > KINDS) continue;
        while (at < d->kinds && d->kind[at].label < label) at++;
        if (at < d->kinds && d->kind[at].label == label) {
            d->kind[at].rows++;
        } else if (d->kinds++ < KINDS) {
            memmove(&d->kind[at + 1], &d->kind[at], (d->kinds - 1 - at) * sizeof *d->kind);
            d->kind[at].label = label;
            d->kind[at].rows = 1;
        }
    }
    for (uint64_t k = 0; k < rows->begin[rows->n]; k++) {
        float value = rows->value ? rows->value[k] : 1;
        d->least = fminf(d->least, value);
        d->most = fmaxf(d->most, value);
        d->binary = d->binary && value == 1;
    }
    d->rows += rows->n;
    d->nonzeros += rows->begin[rows->n];
    return TR_OK;
}

static int show_data(char *path)
{
    TR_CLOSED_BY(tr_files_close) struct tr_files files = {.n = 0};
    struct data data = {.lowest = UINT32_MAX,
                        .binary = true,
                        .least = INFINITY,
                        .least_label = INFINITY,
                        .most = -INFINITY,
                        .most_label = -INFINITY},
                *d = &data;
    tr_read_options options = {.format = TR_FORMAT_LIBSVM, .labelled = true};
    TR_TRY(tr_files_open(&path, 1, &files));
    TR_TRY(tr_read_rows(&path, 1, &options, count_rows, d));
    if (d->rows == 0) return tr_fail(TR_ERR_NO_INPUT, "%s: there is no record in it", path);
    const char *packing = tr_packing_word(files.file[0].packing);
    show_line("data", "LIBSVM%s%s", packing ? ", " : "", packing ? packing : "");
    show_line("rows", "%llu", (unsigned long long)d->rows);
    if (d->nonzeros > 0) {
        show_line("features", "%llu", (unsigned long long)d->highest + 1 - (d->lowest > 0));
        show_line("index base", "%d (indices %u to %u)", d->lowest > 0, d->lowest, d->highest);
    }
    show_line("non-zeros", "%llu, %.4g in a row, %llu at most", (unsigned long long)d->nonzeros,
              (double)d->nonzeros / (double)d->rows, (unsigned long long)d->longest);
    if (d->empty > 0) show_line("empty rows", "%llu", (unsigned long long)d->empty);
    if (d->nonzeros > 0 && d->binary) show_line("values", "all 1");
    else if (d->nonzeros > 0) show_line("values", "%.6g to %.6g", (double)d->least, (double)d->most);
    if (d->kinds > KINDS)
        show_line("labels", "more than %d kinds, from %.9g to %.9g", KINDS, (double)d->least_label,
                  (double)d->most_label);
    for (size_t i = 0; i < d->kinds && d->kinds <= KINDS; i++)
        show_line(i == 0 ? "labels" : "", "%.9g: %llu rows (%.2f %%)", (double)d->kind[i].label,
                  (unsigned long long)d->kind[i].rows, 100 * (double)d->kind[i].rows / (double)d->rows);
    return TR_OK;
}

/* ---- the folder of a run ---- */

static int show_file(const char *folder, const char *name)
{
    TR_FREED char *path = NULL, *line = NULL;
    size_t room = 0;
    TR_TRY(tr_format(&path, "%s/%s", folder, name));
    FILE *file = fopen(path, "re");
    if (!file) return TR_OK; /* a run may not have written this file yet */
    tr_printf(stdout, "\n%s\n", name);
    while (getline(&line, &room, file) > 0) {
        line[strcspn(line, "\n")] = '\0';
        tr_put_wrapped(stdout, line, 4);
    }
    fclose(file);
    return TR_OK;
}

static int show_folder(const struct tr_arguments *a, const struct inspect_options *o)
{
    const char *folder = a->word[0];
    struct dirent **entries;
    int n = scandir(folder, &entries, NULL, alphasort), files = 0;
    if (n < 0) return tr_fail(TR_ERR_NO_INPUT, "%s: %s", folder, strerror(errno));
    bool model = false;
    for (int i = 0; i < n; i++) files += entries[i]->d_name[0] != '.'; /* not hidden */
    show_line("folder", "%d files", files);
    for (int i = 0; i < n; i++) {
        struct stat status;
        char *path;
        if (entries[i]->d_name[0] != '.' && tr_format(&path, "%s/%s", folder, entries[i]->d_name) == TR_OK) {
            if (stat(path, &status) == 0)
                tr_printf(stdout, "%12lld  %s\n", (long long)status.st_size, entries[i]->d_name);
            free(path);
        }
        model = model || strcmp(entries[i]->d_name, "model.h5") == 0 ||
                strcmp(entries[i]->d_name, "model.txt") == 0;
        free(entries[i]);
    }
    free(entries);
    TR_TRY(show_file(folder, "status.json"));
    TR_TRY(show_file(folder, "summary.json"));
    if (!model) return TR_OK;
    putchar('\n');
    return tr_ask_model(TR_INSPECT, a, &o->ask, NULL);
}

/* ---- the command ---- */

static int inspect(const struct tr_arguments *a, const struct inspect_options *o)
{
    char *path = a->word[0];
    enum tr_file_kind kind = TR_FILE_OTHER;
    bool there = access(path, F_OK) == 0; /* false: path may be a glob of data files */
    if (there) TR_TRY(tr_file_kind(path, &kind));
    bool on_servers = o->servers > 0, is_model = kind != TR_FILE_OTHER;
    if (on_servers && there && !is_model)
        return tr_fail(TR_ERR_USAGE, "inspect: --servers is for models, but %s is none", path);
    if (!on_servers && a->settings > 0)
        return tr_fail(TR_ERR_USAGE, "inspect: %s has a meaning with --servers only", a->setting[0]);
    if (on_servers) {
        struct tr_model model;
        TR_TRY(tr_model_open(path, o->ask.plugin, &model));
        int status = tr_model_read(&model);
        if (status == TR_OK) status = show_keys(&model, a, o->servers);
        tr_model_close(&model);
        return status;
    }
    if (kind == TR_FILE_FOLDER && a->flags == 0) return show_folder(a, o); /* flags are for the model in it */
    return is_model ? tr_ask_model(TR_INSPECT, a, &o->ask, NULL) : show_data(path);
}

static int inspect_command(struct tr_arguments *arguments, void *options)
{
    return tr_flush_output(inspect(arguments, options));
}

static const struct tr_argument inspect_arguments[] = {
    TR_ASK_PLUGIN,
    {"--servers", TR_ARG_NUMBER, offsetof(struct inspect_options, servers), .least = 1, .most = 65536,
     .help = "show the distribution of the model's keys over N servers, and the number of keys that would "
             "move with one server more; as the model's own job says, unless the next options or "
             "table.block=KEYS, table.virtual_nodes=POINTS say otherwise (see trireme help job table)"},
    {"--partition", TR_ARG_SETTING, .value = "range|hash|range-hash|ring", .key = "table.partition",
     .help = "with --servers: the partition"},
    {0}};

const struct tr_cli_command tr_inspect_command = {
    .syntax = {.command = "inspect",
               .expected = "one FILE",
               .least = 1,
               .most = 1,
               .options = inspect_arguments,
               .keys = TR_WORDS("table."),
               .asked = TR_INSPECT,
               .more_flags = tr_plugin_flags},
    .brief = "show the content of a model, of data or of the folder of a run",
    .usage = "trireme inspect FILE [OPTION...]",
    .about = "Shows the content of a model (model.h5 or model.txt), of a LIBSVM data file, or of the folder "
             "of a run.",
    .options_size = sizeof(struct inspect_options),
    .run = inspect_command,
};
