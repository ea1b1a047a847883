#define _GNU_SOURCE
#include "cli/cli.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "cli/kinds.h"
#include "model/linear/file.h"
#include "data/files.h"
#include "trireme/records.h"

#define USAGE "trireme inspect FILE [OPTION…]"

static const char help[] =
    "usage: " USAGE "\n\n"
    "Shows what is in a model (model.h5 or model.txt), a LIBSVM data file, or the folder of a run.\n\n"
    "  --top N            the N largest (0 to 1000, usually 10): weights of a linear model, columns of a "
    "centre, items of "
    "a\n"
    "                     user, words of a topic\n"
    "  --user ID          factorization: this user's best items\n"
    "  --vocabulary FILE  topics: the words, one a line, if the model has none\n"
    "  --servers N        linear: how the model's keys lie on N servers, and how many would move with one "
    "server more; as "
    "the\n"
    "                     model's own job says, unless one of these says otherwise:\n"
    "  --partition range|hash|range-hash|ring\n"
    "  table.block=KEYS, table.virtual_nodes=POINTS (see trireme help job table)\n";

enum {
    KINDS = 32,
    KNOWN = TR_OPTION_TOP | TR_OPTION_USER | TR_OPTION_VOCABULARY | TR_OPTION_SERVERS | TR_OPTION_PARTITION |
            TR_OPTION_SETTING | TR_OPTION_PLUGIN
};

static int show_model(const char *path, const struct tr_options *o)
{
    const struct tr_command_kind *kind;
    struct tr_model model;
    TR_TRY(tr_command_kind_of(path, o, &model, &kind));
    if (!kind) return tr_ask_model(&model, o, TR_INSPECT);
    TR_TRY(tr_options_check(o, kind->inspects_with | TR_OPTION_PLUGIN, kind->what));
    return kind->inspect(path, o);
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

static int count_rows(void *state, const tr_records *records)
{
    struct data *d = state;
    const tr_batch *rows = &records->rows;
    for (size_t i = 0; i < rows->n; i++) {
        uint64_t first = rows->begin[i], end = rows->begin[i + 1];
        d->empty += first == end;
        if (end - first > d->longest) d->longest = end - first;
        count_label(d, rows->label[i]);
        if (first == end) continue;
        if (rows->column[first] < d->lowest) d->lowest = rows->column[first];
        if (rows->column[end - 1] > d->highest) d->highest = rows->column[end - 1];
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

static void show_labels(const struct data *d)
{
    if (d->kinds > KINDS) {
        tr_show("labels", "more than %d kinds, from %.9g to %.9g", KINDS, (double)d->least_label,
                (double)d->most_label);
        return;
    }
    for (size_t i = 0; i < d->kinds; i++)
        tr_show(i == 0 ? "labels" : "", "%.9g: %llu rows (%.2f %%)", (double)d->kind[i].label,
                (unsigned long long)d->kind[i].rows, 100 * (double)d->kind[i].rows / (double)d->rows);
}

static void show_counts(const struct data *d)
{
    tr_show("rows", "%llu", (unsigned long long)d->rows);
    if (d->nonzeros > 0) {
        tr_show("features", "%llu", (unsigned long long)d->highest + 1 - (d->lowest > 0));
        tr_show("index base", "%d (indices %u to %u)", d->lowest > 0, d->lowest, d->highest);
    }
    tr_show("non-zeros", "%llu, %.4g in a row, %llu at most", (unsigned long long)d->nonzeros,
            (double)d->nonzeros / (double)d->rows, (unsigned long long)d->longest);
    if (d->empty > 0) tr_show("empty rows", "%llu", (unsigned long long)d->empty);
    if (d->nonzeros > 0 && d->binary) tr_show("values", "all 1");
    else if (d->nonzeros > 0) tr_show("values", "%.6g to %.6g", (double)d->least, (double)d->most);
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
        tr_read_options options = {.format = TR_FORMAT_LIBSVM, .labelled = true};
        status = tr_read_rows(&path, 1, &options, count_rows, d);
        if (status == TR_OK && d->rows == 0)
            status = tr_fail(TR_ERR_NO_INPUT, "%s: there is no record in it", path);
    }
    if (status == TR_OK) {
        tr_show("data", "LIBSVM%s", files.file[0].gzip ? ", gzip" : "");
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

static int show_folder(const char *folder, const struct tr_options *o)
{
    struct dirent **entries;
    int n = scandir(folder, &entries, not_hidden, alphasort);
    if (n < 0) return tr_fail(TR_ERR_NO_INPUT, "%s: %s", folder, strerror(errno));
    bool model = false;
    tr_show("folder", "%d files", n);
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
    return show_model(folder, o);
}

/* ---- the command line ---- */

static int inspect(const struct tr_options *o)
{
    char *path = o->word[0];
    enum tr_file_kind kind = TR_FILE_OTHER;
    bool there = access(path, F_OK) == 0; /* else perhaps a glob, of data */
    if (there) TR_TRY(tr_file_kind(path, &kind));
    bool on_servers = tr_given(o, TR_OPTION_SERVERS), model = kind != TR_FILE_OTHER;
    if (on_servers && there && !model)
        return tr_fail(TR_ERR_USAGE, "inspect: --servers is for models, but %s is none", path);
    if (!on_servers && tr_given(o, TR_OPTION_SETTING | TR_OPTION_PARTITION))
        return tr_fail(TR_ERR_USAGE, "inspect: %s means something with --servers only",
                       o->partition ? "--partition" : o->setting[0]);
    if (kind == TR_FILE_FOLDER && !on_servers) return show_folder(path, o);
    return model || on_servers ? show_model(path, o) : show_data(path);
}

int tr_inspect_command(int argc, char **argv)
{
    if (tr_wants_help(argc, argv)) return fputs(help, stdout), TR_OK;
    struct tr_options o;
    int status = tr_options_parse(argc, argv, "inspect", USAGE, KNOWN, 1, &o);
    if (status == TR_OK && o.words > 1)
        status = tr_fail(TR_ERR_USAGE, "inspect: unexpected %s, expected " USAGE, o.word[1]);
    if (status == TR_OK) status = inspect(&o);
    if (status == TR_OK && (fflush(stdout) != 0 || ferror(stdout)))
        status = tr_fail(TR_ERR_IO, "standard output: cannot be written");
    tr_options_free(&o);
    return tr_complain(status);
}
