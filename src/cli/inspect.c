#define _GNU_SOURCE
#include "cli/cli.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "job/job.h"
#include "model/linear/file.h"
#include "model/rows.h"
#include "monitor/display.h"
#include "table/partition.h"

#define USAGE      "trireme inspect FILE [--top N | --servers N]"
#define PARTITIONS "range|hash|range-hash|ring"

static const char help[] =
    "usage: " USAGE "\n\n"
    "Shows what is in a model (model.h5 or model.txt), a LIBSVM data file, or the folder of a run.\n\n"
    "  --top N      show the N largest positive and negative weights of a model (0 to 1000, usually 10)\n"
    "  --servers N  show how a model's keys lie on N servers, and how many would move with one server more;\n"
    "               as the model's own job says, unless one of these says otherwise:\n"
    "  --partition " PARTITIONS "\n"
    "  table.block=KEYS, table.virtual_nodes=POINTS (see trireme help job table)\n";

enum { TOP = 10, MOST_TOP = 1000, KINDS = 32, MOST_SERVERS = 65536 };

/* The command line. */
struct request {
    char *path;
    long top, servers; /* servers 0: not asked for */
    char **setting;    /* of the job, «section.key=value» … */
    char *partition;   /* … the one that --partition means */
    int settings;
};

static void show(const char *name, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void show(const char *name, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    printf("%-13s ", name);
    vprintf(format, arguments);
    putchar('\n');
    va_end(arguments);
}

/* ---- a model ---- */

/* The n best features by sign · weight, best first. */
struct top {
    uint64_t *feature;
    size_t n, most;
};

static void offer(struct top *top, const struct tr_linear_model *m, uint64_t i, double sign)
{
    double w = sign * tr_linear_model_weight(m, i);
    size_t at = top->n;
    if (w <= 0 || (at == top->most && (at == 0 || w <= sign * tr_linear_model_weight(m, top->feature[at - 1]))))
        return;
    if (top->n < top->most) top->n++;
    else at--;
    for (; at > 0 && sign * tr_linear_model_weight(m, top->feature[at - 1]) < w; at--)
        top->feature[at] = top->feature[at - 1];
    top->feature[at] = i;
}

static int show_top(const struct tr_linear_model *m, size_t most, double sign)
{
    struct top top = {.most = most};
    TR_TRY(TR_NEW(&top.feature, most));
    for (uint64_t i = 0; i < m->features; i++) offer(&top, m, i, sign);
    if (top.n > 0)
        printf("\nlargest %s weights\n%12s  weight\n", sign > 0 ? "positive" : "negative", "feature");
    for (size_t i = 0; i < top.n; i++)
        printf("%12llu  %+.6g\n", (unsigned long long)(top.feature[i] + m->first_index),
               tr_linear_model_weight(m, top.feature[i]));
    free(top.feature);
    return TR_OK;
}

static void show_weights(const struct tr_linear_model *m)
{
    uint64_t nonzero = 0;
    double squares = 0, least = INFINITY, most = -INFINITY;
    for (uint64_t i = 0; i < m->features; i++) {
        double w = tr_linear_model_weight(m, i);
        nonzero += w != 0;
        squares += w * w;
        least = fmin(least, w);
        most = fmax(most, w);
    }
    show("features", "%llu, the first has index %u", (unsigned long long)m->features, m->first_index);
    show("weights", "%llu not zero (%.3g %%), %s", (unsigned long long)nonzero,
         100 * (double)nonzero / (double)m->features, m->dtype == TR_F32 ? "f32" : "f64");
    show("range", "%.6g to %.6g", least, most);
    show("norm", "%.6g", sqrt(squares));
    if (m->biased) show("bias", "%.6g", m->bias);
    else show("bias", "none");
}

static void show_training(const struct tr_linear_model *m)
{
    if (m->rows > 0) show("trained on", "%llu rows", (unsigned long long)m->rows);
    if (!isnan(m->l2)) show("l2", "%.6g", m->l2);
    if (!isnan(m->objective)) show("objective", "%.9g", m->objective);
    if (m->version) show("trireme", "%s", m->version);
}

static int show_model(const char *path, size_t top)
{
    struct tr_linear_model m;
    TR_TRY(tr_linear_model_read(path, &m));
    show("model", "%s", tr_linear_model_name(m.type));
    if (tr_linear_model_classifies(&m))
        show("labels", "%.9g (positive), %.9g", (double)m.label[0], (double)m.label[1]);
    show_weights(&m);
    show_training(&m);
    int status = show_top(&m, top, 1);
    if (status == TR_OK) status = show_top(&m, top, -1);
    if (m.job) printf("\njob\n%s", m.job);
    tr_linear_model_free(&m);
    return status;
}

/* ---- a model on servers ---- */

static int make_partition(const struct request *r, const struct tr_linear_model *m, long servers,
                          struct tr_partition *partition)
{
    static const char none[] = "{}";
    struct tr_job *job;
    const char *text = m->job ? m->job : none;
    TR_TRY(tr_job_parse(text, strlen(text), r->path, r->settings, r->setting, &job));
    struct tr_partition_wish wish = {.kind = (enum tr_partition_kind)job->table.partition,
                                     .block = job->table.block,
                                     .points = (uint32_t)job->table.virtual_nodes,
                                     .unbounded = job->table.storage == TR_STORAGE_HASH,
                                     .table = r->path};
    tr_job_free(job);
    return tr_partition_make(&wish, m->features + m->biased, (uint32_t)servers, partition);
}

static uint64_t end_of_block(const struct tr_partition *p, uint64_t unit)
{
    uint64_t end = (unit / p->block + 1) * p->block;
    return end < p->units ? end : p->units;
}

/* Units that lie on another server under one than under the other. */
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

static int by_count(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static int show_loads(const struct tr_partition *p, double key_bytes)
{
    uint64_t *keys;
    TR_TRY(TR_NEW(&keys, p->servers));
    tr_partition_count(p, keys);
    qsort(keys, p->servers, sizeof *keys, by_count);
    uint64_t least = keys[0], median = keys[p->servers / 2], most = keys[p->servers - 1];
    show("each server", "keys %llu / %llu / %llu, %s / %s / %s (min / median / max)",
         (unsigned long long)least, (unsigned long long)median, (unsigned long long)most,
         tr_bytes((double)least * key_bytes).text, tr_bytes((double)median * key_bytes).text,
         tr_bytes((double)most * key_bytes).text);
    show("max / mean", "%.3f", (double)most * p->servers / (double)p->units);
    free(keys);
    return TR_OK;
}

static int show_servers(const struct tr_partition *p, double key_bytes)
{
    uint64_t *keys;
    TR_TRY(TR_NEW(&keys, p->servers));
    tr_partition_count(p, keys);
    printf("\n%12s  %12s  bytes\n", "server", "keys");
    for (uint32_t s = 0; s < p->servers; s++)
        printf("%12u  %12llu  %.0f\n", s, (unsigned long long)keys[s], (double)keys[s] * key_bytes);
    free(keys);
    return TR_OK;
}

static void show_partition(const struct tr_partition *p)
{
    char points[48] = "";
    if (p->kind == TR_PARTITION_RING) snprintf(points, sizeof points, ", %u points a server", p->points);
    show("partition", "%s, %llu blocks of %llu%s", tr_partition_name(p->kind), (unsigned long long)p->blocks,
         (unsigned long long)p->block, points);
}

static int show_on_servers(const struct request *r)
{
    struct tr_linear_model m;
    struct tr_partition now = {0}, then = {0};
    TR_TRY(tr_linear_model_read(r->path, &m));
    double key_bytes = m.dtype == TR_F32 ? 4 : 8;
    int status = make_partition(r, &m, r->servers, &now);
    if (status == TR_OK) status = make_partition(r, &m, r->servers + 1, &then);
    if (status == TR_OK) {
        show("keys", "%llu of %s%s, %s", (unsigned long long)now.units, m.dtype == TR_F32 ? "f32" : "f64",
             m.biased ? " with the bias" : "", tr_bytes((double)now.units * key_bytes).text);
        show_partition(&now);
        status = show_loads(&now, key_bytes);
    }
    if (status == TR_OK) {
        show("one more", "%.2f %% of the keys would move with %ld servers (an even share is %.2f %%)",
             100 * (double)count_moved(&now, &then) / (double)now.units, r->servers + 1,
             100 / (double)(r->servers + 1));
        status = show_servers(&now, key_bytes);
    }
    tr_partition_free(&now);
    tr_partition_free(&then);
    tr_linear_model_free(&m);
    return status;
}

/* ---- data ---- */

struct data {
    uint64_t rows, nonzeros, empty, longest;
    uint32_t lowest, highest;
    float least, most; /* values */
    bool binary;
    struct {
        float label;
        uint64_t rows;
    } kind[KINDS]; /* ascending */
    size_t kinds;  /* more than KINDS: too many to count */
    float least_label, most_label;
};

static void count_label(struct data *d, float label)
{
    d->least_label = fminf(d->least_label, label);
    d->most_label = fmaxf(d->most_label, label);
    if (d->kinds > KINDS) return;
    size_t at = 0;
    while (at < d->kinds && d->kind[at].label < label) at++;
    if (at < d->kinds && d->kind[at].label == label) {
        d->kind[at].rows++;
        return;
    }
    if (d->kinds++ == KINDS) return;
    memmove(&d->kind[at + 1], &d->kind[at], (d->kinds - 1 - at) * sizeof *d->kind);
    d->kind[at].label = label;
    d->kind[at].rows = 1;
}

static int count_row(void *state, const struct tr_row *row)
{
    struct data *d = state;
    d->rows++;
    d->nonzeros += row->n;
    d->empty += row->n == 0;
    if (row->n > d->longest) d->longest = row->n;
    count_label(d, row->label);
    for (size_t k = 0; k < row->n; k++) {
        d->least = fminf(d->least, row->value[k]);
        d->most = fmaxf(d->most, row->value[k]);
        d->binary = d->binary && row->value[k] == 1;
    }
    if (row->n == 0) return TR_OK;
    if (row->index[0] < d->lowest) d->lowest = row->index[0];
    if (row->index[row->n - 1] > d->highest) d->highest = row->index[row->n - 1];
    return TR_OK;
}

static void show_labels(const struct data *d)
{
    if (d->kinds > KINDS) {
        show("labels", "more than %d kinds, from %.9g to %.9g", KINDS, (double)d->least_label,
             (double)d->most_label);
        return;
    }
    for (size_t i = 0; i < d->kinds; i++)
        show(i == 0 ? "labels" : "", "%.9g: %llu rows (%.2f %%)", (double)d->kind[i].label,
             (unsigned long long)d->kind[i].rows, 100 * (double)d->kind[i].rows / (double)d->rows);
}

static void show_counts(const struct data *d)
{
    show("rows", "%llu", (unsigned long long)d->rows);
    if (d->nonzeros > 0) {
        show("features", "%llu", (unsigned long long)d->highest + 1 - (d->lowest > 0));
        show("index base", "%d (indices %u to %u)", d->lowest > 0, d->lowest, d->highest);
    }
    show("non-zeros", "%llu, %.4g in a row, %llu at most", (unsigned long long)d->nonzeros,
         (double)d->nonzeros / (double)d->rows, (unsigned long long)d->longest);
    if (d->empty > 0) show("empty rows", "%llu", (unsigned long long)d->empty);
    if (d->nonzeros > 0 && d->binary) show("values", "all 1");
    else if (d->nonzeros > 0) show("values", "%.6g to %.6g", (double)d->least, (double)d->most);
    show_labels(d);
}

static int show_data(char *path)
{
    struct tr_files files;
    struct data *d;
    TR_TRY(tr_files_open(&path, 1, &files));
    int status = TR_NEW(&d, 1);
    if (status == TR_OK) {
        d->lowest = UINT32_MAX;
        d->binary = true;
        d->least = d->least_label = INFINITY;
        d->most = d->most_label = -INFINITY;
        struct tr_rows_options options = {.lowest_index = 0};
        status = tr_rows_each(&files, &options, count_row, d);
        if (status == TR_OK && d->rows == 0)
            status = tr_fail(TR_ERR_NO_INPUT, "%s: there is no record in it", path);
    }
    if (status == TR_OK) {
        show("data", "LIBSVM%s", files.file[0].gzip ? ", gzip" : "");
        show_counts(d);
    }
    free(d);
    tr_files_close(&files);
    return status;
}

/* ---- the folder of a run ---- */

static int show_file(const char *folder, const char *name)
{
    char *path, buffer[4096], last = '\n';
    TR_TRY(tr_format(&path, "%s/%s", folder, name));
    FILE *file = fopen(path, "re");
    free(path);
    if (!file) return TR_OK; /* not every run has each */
    printf("\n%s\n", name);
    for (size_t n; (n = fread(buffer, 1, sizeof buffer, file)) > 0;) {
        fwrite(buffer, 1, n, stdout);
        last = buffer[n - 1];
    }
    if (last != '\n') putchar('\n');
    fclose(file);
    return TR_OK;
}

static int not_hidden(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

static int show_folder(const char *folder, size_t top)
{
    struct dirent **entries;
    int n = scandir(folder, &entries, not_hidden, alphasort);
    if (n < 0) return tr_fail(TR_ERR_NO_INPUT, "%s: %s", folder, strerror(errno));
    bool model = false;
    show("folder", "%d files", n);
    for (int i = 0; i < n; i++) {
        struct stat status;
        char *path;
        if (tr_format(&path, "%s/%s", folder, entries[i]->d_name) == TR_OK) {
            if (stat(path, &status) == 0)
                printf("%12lld  %s\n", (long long)status.st_size, entries[i]->d_name);
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
    return show_model(folder, top);
}

/* ---- the command line ---- */

static int inspect(const struct request *r)
{
    enum tr_file_kind kind = TR_FILE_OTHER;
    bool there = access(r->path, F_OK) == 0; /* else perhaps a glob, of data */
    if (there) TR_TRY(tr_file_kind(r->path, &kind));
    if (r->servers > 0) {
        if (there && kind == TR_FILE_OTHER)
            return tr_fail(TR_ERR_USAGE, "inspect: --servers is for models, but %s is none", r->path);
        return show_on_servers(r);
    }
    switch (kind) {
    case TR_FILE_FOLDER: return show_folder(r->path, (size_t)r->top);
    case TR_FILE_MODEL_H5:
    case TR_FILE_MODEL_TEXT: return show_model(r->path, (size_t)r->top);
    default: return show_data(r->path);
    }
}

static int parse_number(const char *option, const char *text, long least, long most, long *number)
{
    char *end;
    long n = text ? strtol(text, &end, 10) : -1;
    if (!text || end == text || *end || n < least || n > most)
        return tr_fail(TR_ERR_USAGE, "inspect: expected a number from %ld to %ld behind %s", least, most,
                       option);
    *number = n;
    return TR_OK;
}

static int parse_partition(const char *kind, struct request *r)
{
    if (!kind || r->partition)
        return tr_fail(TR_ERR_USAGE, "inspect: expected one partition behind --partition: " PARTITIONS);
    TR_TRY(tr_format(&r->partition, "table.partition=%s", kind));
    r->setting[r->settings++] = r->partition;
    return TR_OK;
}

static int parse(int argc, char **argv, struct request *r)
{
    bool options = true;
    for (int i = 0; i < argc; i++) {
        char *word = argv[i], *next = i + 1 < argc ? argv[i + 1] : NULL;
        bool option = options && word[0] == '-' && word[1];
        if (option && strcmp(word, "--") == 0) options = false;
        else if (option && strcmp(word, "--top") == 0) {
            TR_TRY(parse_number(word, next, 0, MOST_TOP, &r->top));
            i++;
        } else if (option && strcmp(word, "--servers") == 0) {
            TR_TRY(parse_number(word, next, 1, MOST_SERVERS, &r->servers));
            i++;
        } else if (option && strcmp(word, "--partition") == 0) {
            TR_TRY(parse_partition(next, r));
            i++;
        } else if (options && strncmp(word, "table.", 6) == 0 && strchr(word, '=')) {
            r->setting[r->settings++] = word;
        } else if (option || r->path)
            return tr_fail(TR_ERR_USAGE, "inspect: unexpected %s, expected " USAGE, word);
        else r->path = word;
    }
    if (!r->path) return tr_fail(TR_ERR_USAGE, "inspect: expected " USAGE);
    if (r->settings > 0 && r->servers == 0)
        return tr_fail(TR_ERR_USAGE, "inspect: %s means something with --servers only", r->setting[0]);
    return TR_OK;
}

int tr_inspect_command(int argc, char **argv)
{
    for (int i = 0; i < argc; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) return fputs(help, stdout), TR_OK;
    struct request r = {.top = TOP};
    int status = TR_NEW(&r.setting, (size_t)argc);
    if (status == TR_OK) status = parse(argc, argv, &r);
    if (status == TR_OK) status = inspect(&r);
    if (status == TR_OK && (fflush(stdout) != 0 || ferror(stdout)))
        status = tr_fail(TR_ERR_IO, "standard output: cannot be written");
    free(r.setting);
    free(r.partition);
    return tr_complain(status);
}
