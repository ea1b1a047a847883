/* trireme count: what is in the columns of tables. */
#define _GNU_SOURCE
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/terminal.h"
#include "cli/cli.h"
#include "cli/words.h"
#include "data/quantiles.h"
#include "data/reader.h"
#include "data/schema_all.h"
#include "job/job.h"

static const char usage[] =
    "trireme count FILE... [data.key=value ...] [--top N]\n"
    "\n"
    "Reads tables (csv) and shows what their columns are: of numbers how many are "
    "missing, mean, standard deviation, smallest\n"
    "and largest, and quantiles (below which 1, 10, 25, … % of them lie: exact up to "
    "65536 numbers, then with an error of at\n"
    "most 1/2560 of the rows); of categories how many different values there are, and the most "
    "frequent with how many rows have them.\n"
    "Keys as data.columns, data.missing and data.header mean what they mean in a "
    "job: data.columns='*: category' counts all.\n"
    "  --top N       how many values of a category are shown, 5 without it\n";

/* Of one column. */
struct sum {
    uint64_t n, missing; /* numbers; rows without one */
    double mean, apart;  /* running mean, and Σ (x - mean)² (Welford) */
    float least, most;
    struct tr_quantiles quantiles;
    uint64_t *count; /* categories: by place */
    size_t capacity;
};

struct count {
    char **file;
    size_t files, top;
    char **setting;
    int settings;
    tr_job *job;
    struct tr_schema *schema;
    struct tr_column_seen *seen;
    struct sum *sum;
    uint64_t rows;
};

/* ---- reading ---- */

static int add_number(struct sum *s, float x)
{
    if (isnan(x)) return s->missing++, TR_OK;
    double from_old = (double)x - s->mean;
    s->least = s->n == 0 ? x : fminf(s->least, x);
    s->most = s->n == 0 ? x : fmaxf(s->most, x);
    s->mean += from_old / (double)++s->n;
    s->apart += from_old * ((double)x - s->mean);
    return tr_quantiles_add(&s->quantiles, x);
}

static int add_rows(void *state, struct tr_reader *r)
{
    struct count *c = state;
    const struct tr_matrix *m = &r->matrix;
    for (size_t k = 0; k < c->schema->n; k++) {
        const struct tr_column *column = &c->schema->column[k];
        struct sum *s = &c->sum[k];
        if (column->type > TR_COLUMN_CATEGORY) continue;
        bool number = column->type == TR_COLUMN_NUMBER;
        size_t values = c->seen[k].values.n, before = s->capacity;
        if (!number && values > before) {
            TR_TRY(TR_GROW(&s->count, &s->capacity, values));
            memset(s->count + before, 0, (s->capacity - before) * sizeof *s->count);
        }
        for (size_t i = 0; i < m->rows; i++) {
            float x = m->value[i * m->columns + column->slot];
            if (number) TR_TRY(add_number(s, x));
            else s->count[tr_slot_place(x)]++;
        }
    }
    c->rows += m->rows;
    return TR_OK;
}

static void forget(struct count *c)
{
    for (size_t k = 0; c->sum && k < c->schema->n; k++) {
        free(c->sum[k].count);
        tr_quantiles_free(&c->sum[k].quantiles);
    }
    free(c->sum);
    c->sum = NULL;
    c->rows = 0;
    if (c->schema) tr_schema_seen_free(&c->seen, c->schema);
}

static int show_progress(void *state, uint64_t bytes)
{
    const struct tr_files *files = state;
    tr_show_part("counting", (double)bytes / (double)files->total);
    return TR_OK;
}

static int read_once(struct count *c, const struct tr_files *files, struct tr_head *heads,
                     struct tr_bindings *bindings)
{
    struct tr_matrix none;
    struct tr_read_report report;
    struct tr_reader_options options = {.format = TR_FORMAT_CSV,
                                        .heads = heads,
                                        .schema = c->schema,
                                        .bindings = bindings,
                                        .skip_errors = c->job->data.on_error == TR_ON_ERROR_SKIP,
                                        .rows_without_label = true,
                                        .progress = show_progress,
                                        .progress_state = (void *)(uintptr_t)files,
                                        .piece = add_rows,
                                        .piece_state = c};
    forget(c);
    TR_TRY(TR_NEW(&c->sum, c->schema->n));
    c->seen = options.seen = tr_schema_seen(c->schema);
    if (!c->seen) return TR_ERR_SYSTEM;
    int status = tr_read_matrix(files, 0, 1, &options, &none, &report);
    tr_live_end();
    TR_TRY(status);
    tr_matrix_free(&none);
    tr_ids_free(&report.labels.bits);
    return TR_OK;
}

/* Again, where a column of numbers turns out to have words. */
static int read_table(struct count *c, const struct tr_files *files, struct tr_head *heads)
{
    struct tr_bindings bindings = {.n = 0};
    TR_TRY(tr_schema_make(c->job, files, heads, &c->schema));
    TR_TRY(tr_schema_bind(c->schema, files, heads, true, &bindings));
    int status = TR_OK;
    for (bool again = true; again && status == TR_OK;) {
        status = read_once(c, files, heads, &bindings);
        again = status == TR_OK && tr_schema_take_words(c->schema, c->seen);
    }
    tr_bindings_free(&bindings);
    return status;
}

/* ---- showing ---- */

struct value {
    uint64_t count;
    const char *text;
    size_t length;
};

static int by_count(const void *a, const void *b)
{
    const struct value *x = a, *y = b;
    if (x->count != y->count) return x->count > y->count ? -1 : 1;
    int order = memcmp(x->text, y->text, tr_min_size(x->length, y->length));
    return order ? order : (x->length > y->length) - (x->length < y->length);
}

static int show_values(const struct count *c, size_t k, const char *name)
{
    const struct tr_ids *values = &c->seen[k].values;
    struct value *value;
    uint64_t missing = 0;
    size_t n = 0;
    TR_TRY(TR_NEW(&value, values->n));
    for (size_t i = 0; i < values->n; i++) {
        struct value v = {.count = c->sum[k].count[i]};
        v.text = tr_ids_text(values, i, &v.length);
        if (v.length == 0) missing = v.count;
        else if (v.count > 0) value[n++] = v;
    }
    if (n > 0) qsort(value, n, sizeof *value, by_count);
    printf("%-20s category  %zu different, %" PRIu64 " missing\n", name, n, missing);
    for (size_t i = 0; i < n && i < c->top; i++)
        printf("%12" PRIu64 "  %.*s\n", value[i].count, (int)value[i].length, value[i].text);
    free(value);
    return TR_OK;
}

static int show_number(const struct sum *s, const char *name)
{
    static const double share[] = {0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99};
    enum { SHARES = sizeof share / sizeof *share };
    float x[SHARES];
    printf("%-20s number    %" PRIu64 " missing", name, s->missing);
    if (s->n == 0) return putchar('\n'), TR_OK;
    printf(", mean %.9g, deviation %.9g, from %.9g to %.9g\n%12s", s->mean, sqrt(s->apart / (double)s->n),
           (double)s->least, (double)s->most, "");
    TR_TRY(tr_quantiles_at(&s->quantiles, share, SHARES, x));
    for (int i = 0; i < SHARES; i++)
        printf("  %g %%: %.6g%s", 100 * share[i], (double)x[i], i + 1 < SHARES ? "," : "\n");
    return TR_OK;
}

static int show(const struct count *c)
{
    static const char *const others[] = {"", "", "label", "label", "id", "ignored", "weight"};
    printf("%" PRIu64 " rows, %zu columns\n", c->rows, c->schema->n);
    for (size_t k = 0; k < c->schema->n; k++) {
        char name[TR_SHOWN_NAME];
        const struct sum *s = &c->sum[k];
        int type = c->schema->column[k].type;
        tr_schema_column_text(c->schema, k, name);
        if (type == TR_COLUMN_CATEGORY) {
            TR_TRY(show_values(c, k, name));
        } else if (type > TR_COLUMN_CATEGORY) {
            printf("%-20s %s\n", name, others[type]);
        } else {
            TR_TRY(show_number(s, name));
        }
    }
    return fflush(stdout) == 0 && !ferror(stdout) ? TR_OK
                                                  : tr_fail(TR_ERR_IO, "standard output: cannot be written");
}

/* ---- the command ---- */

static int count_files(struct count *c)
{
    struct tr_files files;
    struct tr_head *heads = NULL;
    enum tr_format format;
    static const char usual[] = "data: {format: csv, label: none}\n";
    TR_TRY(tr_job_parse(usual, strlen(usual), "count", c->settings, c->setting, &c->job));
    TR_TRY(tr_files_of(c->job, c->file, c->files, &files));
    int status = tr_format_detect(&files, &format);
    if (status == TR_OK && (format == TR_FORMAT_LIBSVM || format == TR_FORMAT_DOCWORD))
        status = tr_fail(TR_ERR_DATA, "%s: looks like data.format: %s, expected a table (csv)",
                         files.file[0].path, tr_format_word(format));
    if (status == TR_OK) status = tr_heads_read(&files, TR_FORMAT_CSV, c->job->data.header, &heads);
    if (status == TR_OK) status = read_table(c, &files, heads);
    if (status == TR_OK) status = show(c);
    free(heads);
    tr_files_close(&files);
    return status;
}

static int take_words(struct count *c, int argc, char **argv)
{
    c->top = 5;
    TR_TRY(TR_NEW(&c->file, (size_t)argc));
    TR_TRY(TR_NEW(&c->setting, (size_t)argc));
    for (int i = 0; i < argc; i++) {
        char *end;
        if (!strcmp(argv[i], "--top")) {
            long n = i + 1 < argc ? strtol(argv[++i], &end, 10) : -1;
            if (n < 0 || *end) return tr_fail(TR_ERR_USAGE, "count: expected a number behind --top");
            c->top = (size_t)n;
        } else if (!strncmp(argv[i], "data.", 5) && strchr(argv[i], '=')) {
            c->setting[c->settings++] = argv[i];
        } else if (argv[i][0] == '-') {
            return tr_fail(TR_ERR_USAGE, "count: unexpected %.40s: see trireme help count", argv[i]);
        } else {
            c->file[c->files++] = argv[i];
        }
    }
    return c->files > 0 ? TR_OK : tr_fail(TR_ERR_USAGE, "count: expected files: see trireme help count");
}

int tr_count_command(int argc, char **argv)
{
    struct count c = {.file = NULL};
    if (tr_wants_help(argc, argv)) {
        fputs(usage, stdout);
        return TR_OK;
    }
    int status = take_words(&c, argc, argv);
    if (status == TR_OK && !tr_is_an_echo()) status = count_files(&c); /* the first rank alone */
    forget(&c);
    tr_schema_release(&c.schema);
    tr_job_free(c.job);
    free(c.file);
    free(c.setting);
    return tr_complain(status);
}
