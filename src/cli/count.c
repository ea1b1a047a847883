/* trireme count: statistics of the columns of tables. */
#define _GNU_SOURCE
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/terminal.h"
#include "cli/cli.h"
#include "data/suspects.h"
#include "data/names.h"
#include "data/exchange.h"
#include "data/matrix.h"
#include "data/reader.h"
#include "data/dataset.h"
#include "job/job.h"
#include "ranks/ranks.h"

/* A value of a category. */
struct value {
    uint64_t count;   /* number of rows with this value */
    const char *text; /* not terminated */
    size_t length;
};

struct values {
    struct value *value;
    size_t n;
};

/* The statistics of one column. */
struct sum {
    uint64_t n;         /* number of rows with a number; for a category, number of distinct values */
    uint64_t missing;   /* number of rows in which the value is missing */
    double mean, apart; /* running mean, and Σ (x - mean)² (Welford) */
    float least, most;
    struct tr_quantiles quantiles;
    uint64_t *count;   /* category: number of rows of each value, by its code */
    size_t capacity;   /* number of elements that are allocated for count */
    struct values top; /* category: the most frequent values */
};

struct count {
    char **file;
    size_t files, top; /* top: number of values of a category that are printed */
    tr_job *job;
    struct tr_schema *schema;
    struct tr_column_seen *seen; /* values that were found in each column */
    struct sum *sum;             /* statistics of each column */
    uint64_t rows;
    tr_context *tr;      /* the rows are divided among the ranks of tr; NULL: this process reads all rows */
    struct tr_ids texts; /* if tr is set: texts of the most frequent values of all columns */
};

/* ---- reading ---- */

/* Enlarges s->count to at least this number of values. */
static int count_reserve(struct sum *s, size_t values)
{
    size_t before = s->capacity;
    if (values <= before) return TR_OK;
    TR_TRY(TR_GROW(&s->count, &s->capacity, values));
    memset(s->count + before, 0, (s->capacity - before) * sizeof *s->count);
    return TR_OK;
}

static int count_rows(void *state, struct tr_reader *r)
{
    struct count *c = state;
    const struct tr_matrix *m = &r->matrix;
    for (size_t k = 0; k < c->schema->n; k++) {
        const struct tr_column *column = &c->schema->column[k];
        struct sum *s = &c->sum[k];
        if (column->type == TR_COLUMN_CATEGORY) {
            TR_TRY(count_reserve(s, c->seen[k].values.n));
            for (size_t i = 0; i < m->rows; i++)
                s->count[tr_slot_place(m->value[i * m->columns + column->slot])]++;
        }
        if (column->type != TR_COLUMN_NUMBER) continue;
        for (size_t i = 0; i < m->rows; i++) {
            float x = m->value[i * m->columns + column->slot];
            if (isnan(x)) {
                s->missing++;
                continue;
            }
            double from_old = (double)x - s->mean;
            s->least = s->n == 0 ? x : fminf(s->least, x);
            s->most = s->n == 0 ? x : fmaxf(s->most, x);
            s->mean += from_old / (double)++s->n;
            s->apart += from_old * ((double)x - s->mean);
            TR_TRY(tr_quantiles_add(&s->quantiles, x));
        }
    }
    c->rows += m->rows;
    return TR_OK;
}

static void count_free(struct count *c)
{
    for (size_t k = 0; c->sum && k < c->schema->n; k++) {
        free(c->sum[k].top.value);
        free(c->sum[k].count);
        tr_quantiles_free(&c->sum[k].quantiles);
    }
    free(c->sum);
    tr_ids_free(&c->texts);
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
                                        .piece = count_rows,
                                        .piece_state = c};
    count_free(c);
    TR_TRY(TR_NEW(&c->sum, c->schema->n));
    c->seen = options.seen = tr_schema_seen(c->schema);
    if (!c->seen) return TR_ERR_SYSTEM;
    size_t rank = c->tr ? (size_t)c->tr->rank : 0, ranks = c->tr ? (size_t)c->tr->size : 1;
    if (rank > 0) options.progress = NULL;
    int status = tr_read_matrix(files, rank, ranks, &options, &none, &report);
    tr_live_end();
    TR_TRY(status);
    tr_matrix_free(&none);
    tr_ids_free(&report.labels.bits);
    return TR_OK;
}

static int count_agree(const struct count *c, int status)
{
    return c->tr ? tr_agree(c->tr, status) : status;
}

/* Reads the rows; reads them again if a column of numbers contains words on any rank. */
static int read_table(struct count *c, const struct tr_files *files, struct tr_head *heads)
{
    struct tr_bindings bindings = {.n = 0};
    int32_t *word = NULL;
    int status = tr_schema_make(c->job, files, heads, &c->schema);
    if (status == TR_OK) c->schema->hash = 0; /* ignore data.hash: values are counted, not keys */
    if (status == TR_OK) status = tr_schema_bind(c->schema, files, heads, TR_BIND_LABEL, &bindings);
    if (status == TR_OK) status = TR_NEW(&word, c->schema->n);
    status = count_agree(c, status);
    for (bool again = true; again && status == TR_OK;) {
        size_t n = c->schema->n;
        status = count_agree(c, read_once(c, files, heads, &bindings));
        if (status != TR_OK) break;
        for (size_t k = 0; k < n; k++) word[k] = c->seen[k].word;
        if (c->tr) status = tr_all_reduce(c->tr, TR_SET_ALL, TR_MAX, TR_I32, word, n);
        for (size_t k = 0; k < n; k++) c->seen[k].word = word[k];
        again = tr_schema_take_words(c->schema, c->seen);
    }
    free(word);
    tr_bindings_free(&bindings);
    return status;
}

/* ---- values, most frequent first ---- */

static int by_count(const void *a, const void *b)
{
    const struct value *x = a, *y = b;
    if (x->count != y->count) return x->count > y->count ? -1 : 1;
    int order = memcmp(x->text, y->text, tr_min_size(x->length, y->length));
    return order ? order : (x->length > y->length) - (x->length < y->length);
}

/* Without ranks: finds the most frequent values of a column. */
static int find_top(const struct count *c, struct sum *s, const struct tr_ids *values)
{
    TR_TRY(TR_NEW(&s->top.value, values->n));
    for (size_t i = 0; i < values->n; i++) {
        struct value value = {.count = s->count[i]};
        value.text = tr_ids_text(values, i, &value.length);
        if (value.count > 0) s->top.value[s->n++] = value;
    }
    if (s->n > 0) qsort(s->top.value, s->n, sizeof *s->top.value, by_count);
    s->top.n = tr_min_size(s->n, c->top);
    return TR_OK;
}

/* With ranks: finds the most frequent values of all columns. tr_dictionary_make() numbers the values of a column over all ranks,
 * the most frequent first. */
static int find_top_together(struct count *c)
{
    static const struct tr_ids none = {.are_text = true};
    size_t n = c->schema->n, at = 0; /* at: index in c->texts of the first value of column k */
    TR_FREED struct tr_counted *met = NULL;
    TR_FREED struct tr_dictionary_column *column = NULL;
    TR_FREED uint32_t **number = NULL;
    struct tr_dictionary *dictionary = NULL;
    TR_TRY(TR_NEW(&met, n));
    TR_TRY(TR_NEW(&column, n));
    TR_TRY(TR_NEW(&number, n));
    for (size_t k = 0; k < n; k++) {
        bool category = c->schema->column[k].type == TR_COLUMN_CATEGORY;
        met[k] = (struct tr_counted){category ? &c->seen[k].values : &none, c->sum[k].count};
    }
    int status = tr_dictionary_make(c->tr, met, n, 1, tr_max_size(c->top, 1), &dictionary, column, number);
    if (status == TR_OK) status = tr_names_gather(tr_dictionary_names(dictionary), &c->texts);
    for (size_t k = 0; k < n && status == TR_OK; at += (size_t)column[k++].values) {
        struct sum *s = &c->sum[k];
        size_t values = (size_t)column[k].values;
        uint64_t *count;
        if (c->schema->column[k].type != TR_COLUMN_CATEGORY) continue;
        TR_TRY(TR_NEW(&count, values));
        TR_TRY(TR_NEW(&s->top.value, values));
        for (size_t i = 0; i < met[k].values->n; i++)
            if (number[k][i] < values) count[number[k][i]] += s->count[i];
        status = tr_all_reduce(c->tr, TR_SET_ALL, TR_SUM, TR_I64, count, values);
        for (size_t i = 0; i < values; i++) {
            s->top.value[i].count = count[i];
            s->top.value[i].text = tr_ids_text(&c->texts, at + i, &s->top.value[i].length);
        }
        s->n = column[k].met;
        s->top.n = tr_min_size(values, c->top);
        free(count);
    }
    for (size_t k = 0; k < n; k++) free(number[k]);
    tr_dictionary_free(&dictionary);
    return status;
}

/* ---- numbers ---- */

/* Combines the statistics of a column of numbers over all ranks. Only rank 0 receives the quantiles. */
static int join_numbers(const struct count *c, struct sum *s)
{
    TR_FREED struct sum *all = NULL;
    struct tr_quantiles *q = &s->quantiles;
    int32_t levels = 0;
    TR_TRY(TR_NEW(&all, (size_t)c->tr->size));
    int status = tr_all_gather(c->tr, TR_SET_ALL, s, sizeof *s, all);
    s->n = 0;
    s->apart = 0;
    for (const struct sum *b = all; b < all + c->tr->size && status == TR_OK; b++) {
        double n = (double)(s->n + b->n), apart = b->mean - s->mean;
        if (b->n == 0) continue;
        s->least = s->n == 0 ? b->least : fminf(s->least, b->least);
        s->most = s->n == 0 ? b->most : fmaxf(s->most, b->most);
        s->apart += b->apart + apart * apart * (double)s->n * (double)b->n / n;
        s->mean += apart * (double)b->n / n;
        s->n += b->n;
    }
    TR_TRY(status);
    for (int32_t l = 0; l < TR_QUANTILES_LEVELS; l++)
        if (q->level[l].n > 0) levels = l + 1;
    TR_TRY(tr_all_reduce(c->tr, TR_SET_ALL, TR_MAX, TR_I32, &levels, 1));
    for (int32_t l = 0; l < levels; l++) {
        TR_FREED uint32_t *key = NULL;
        uint64_t n;
        size_t own = c->tr->rank == 0 ? q->level[l].n : 0;
        TR_TRY(tr_gather_to_all(c->tr, TR_SET_ALL, q->level[l].key, q->level[l].n, sizeof *key, (void **)&key,
                                &n));
        if (c->tr->rank == 0) TR_TRY(tr_quantiles_join(q, (size_t)l, key + own, (size_t)n - own));
    }
    return TR_OK;
}

/* Combines the statistics of all ranks, and finds the most frequent values. */
static int unite(struct count *c)
{
    for (size_t k = 0; k < c->schema->n; k++) {
        struct sum *s = &c->sum[k];
        int type = c->schema->column[k].type;
        if (type == TR_COLUMN_CATEGORY) { /* the empty value means that the value is missing */
            const struct tr_ids *values = &c->seen[k].values;
            TR_TRY(count_reserve(s, values->n));
            uint32_t empty = tr_ids_find_text(values, "", 0);
            if (empty != UINT32_MAX) s->missing = s->count[empty];
            if (empty != UINT32_MAX) s->count[empty] = 0;
            if (!c->tr) TR_TRY(find_top(c, s, values));
        }
        if (!c->tr || type > TR_COLUMN_CATEGORY) continue;
        if (type == TR_COLUMN_NUMBER) TR_TRY(join_numbers(c, s));
        TR_TRY(tr_all_reduce(c->tr, TR_SET_ALL, TR_SUM, TR_I64, &s->missing, 1));
    }
    if (!c->tr) return TR_OK;
    TR_TRY(find_top_together(c));
    return tr_all_reduce(c->tr, TR_SET_ALL, TR_SUM, TR_I64, &c->rows, 1);
}

/* ---- showing ---- */

static int show(const struct count *c)
{
    static const char *const others[] = {"", "", "label", "label", "id", "ignored", "weight", "offset"};
    static const double share[] = {0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99};
    enum { SHARES = sizeof share / sizeof *share };
    printf("%" PRIu64 " rows, %zu columns\n", c->rows, c->schema->n);
    for (size_t k = 0; k < c->schema->n; k++) {
        char name[TR_SHOWN_NAME];
        const struct sum *s = &c->sum[k];
        float x[SHARES];
        int type = c->schema->column[k].type;
        tr_schema_column_text(c->schema, k, name);
        if (type > TR_COLUMN_CATEGORY) tr_printf(stdout, "%-20s %s\n", name, others[type]);
        if (type == TR_COLUMN_CATEGORY) {
            tr_printf(stdout, "%-20s category  %" PRIu64 " different, %" PRIu64 " missing\n", name, s->n,
                      s->missing);
            for (size_t i = 0; i < s->top.n; i++)
                tr_printf(stdout, "%12" PRIu64 "  %.*s\n", s->top.value[i].count, (int)s->top.value[i].length,
                          s->top.value[i].text);
        }
        if (type != TR_COLUMN_NUMBER) continue;
        tr_printf(stdout, "%-20s number    %" PRIu64 " missing", name, s->missing);
        if (s->n == 0) {
            putchar('\n');
            continue;
        }
        tr_printf(stdout, ", mean %.9g, deviation %.9g, from %.9g to %.9g\n%12s", s->mean,
                  sqrt(s->apart / (double)s->n), (double)s->least, (double)s->most, "");
        TR_TRY(tr_quantiles_at(&s->quantiles, share, SHARES, x));
        for (int i = 0; i < SHARES; i++)
            printf("  %g %%: %.6g%c", 100 * share[i], (double)x[i], i + 1 < SHARES ? ',' : '\n');
    }
    return tr_flush_output(TR_OK);
}

static void show_suspect(void *state, const char *text)
{
    (void)state;
    tr_printf(stdout, "note: %s\n", text);
}

/* Prints notes about suspicious columns of the table. */
static int show_suspects(const struct count *c, const struct tr_files *files, struct tr_head *heads)
{
    TR_CLOSED_BY(tr_bindings_free) struct tr_bindings bindings = {.n = 0};
    struct tr_suspect_table table = {files, heads, c->schema, &bindings, true};
    TR_TRY(tr_schema_bind(c->schema, files, heads, TR_BIND_LABEL, &bindings));
    return tr_suspects_find(&table, show_suspect, NULL);
}

/* ---- the command ---- */

static int open_files(struct count *c, struct tr_files *files, struct tr_head **heads)
{
    enum tr_format format;
    TR_TRY(tr_files_of(c->job, c->file, c->files, files));
    char said[TR_DIALECT_SAID];
    TR_TRY(tr_dialects_find(files, TR_FORMAT_AUTO, said));
    if (*said && (!c->tr || c->tr->rank == 0)) tr_printf(stderr, "trireme: note: %s\n", said);
    TR_TRY(tr_format_detect(files, &format));
    if (format == TR_FORMAT_LIBSVM || format == TR_FORMAT_DOCWORD)
        return tr_fail(TR_ERR_DATA, "%s: looks like data.format: %s, expected a table (csv)",
                       files->file[0].path, tr_format_word(format));
    return tr_heads_read(files, TR_FORMAT_CSV, TR_HEADER_AUTO, heads);
}

struct count_options {
    long top;
};

static int count_command(struct tr_arguments *arguments, void *options)
{
    static const char usual[] = "data: {format: csv, label: none}\nranks: {layout: colocated}\n";
    struct count c = {.file = arguments->word,
                      .files = arguments->words,
                      .top = (size_t)((const struct count_options *)options)->top};
    int status = tr_job_parse(usual, strlen(usual), "count", arguments->settings, arguments->setting, &c.job);
    int none = 0;
    char **nothing = NULL;
    bool together = status == TR_OK && tr_started_ranks() > 1;
    if (together) status = tr_ranks_start(&none, &nothing, &c.tr);
    if (status != TR_OK) c.tr = NULL;
    if (together && status == TR_OK) {
        c.tr->job = c.job;
        c.tr->lent = true; /* this function, not the context, frees the job */
        status = tr_agree(c.tr, tr_ranks_assign(c.tr));
    }
    struct tr_files files = {.n = 0};
    struct tr_head *heads = NULL;
    if (status == TR_OK) status = count_agree(&c, open_files(&c, &files, &heads));
    if (status == TR_OK) status = read_table(&c, &files, heads);
    if (status == TR_OK) status = count_agree(&c, unite(&c));
    bool shows = !c.tr || c.tr->rank == 0;
    if (status == TR_OK) {
        if (shows) status = show(&c);
        if (shows && status == TR_OK) status = show_suspects(&c, &files, heads);
        status = count_agree(&c, status);
    }
    free(heads);
    tr_files_close(&files);
    count_free(&c);
    int outcome = c.tr ? tr_ranks_stop(c.tr) : TR_OK;
    tr_schema_release(&c.schema);
    tr_job_free(c.job);
    if (status == TR_OK) status = outcome;
    return together || tr_is_an_echo() ? status : tr_complain(status);
}

static const struct tr_argument count_arguments[] = {
    {"--top", TR_ARG_NUMBER, offsetof(struct count_options, top), .most = LONG_MAX,
     .help = "the number of values of a category that are shown"},
    {0}};

const struct tr_cli_command tr_count_command = {
    .syntax = {.command = "count",
               .expected = "files",
               .least = 1,
               .options = count_arguments,
               .keys = TR_WORDS("data.")},
    .brief = "count the values in the columns of tables",
    .usage = "trireme count FILE... [data.KEY=value ...] [OPTION...]",
    .about = "Reads tables (csv) and describes their columns. Of numbers: how many are missing, mean, "
             "standard deviation, smallest and largest, and quantiles (the values below which 1, 10, 25, ... "
             "% of them lie: exact up to 65536 numbers, then with an error of at most 1/2560 of the rows). "
             "Of categories: how many different values there are, and the most frequent with the number of "
             "their rows. Ranks under mpirun share the rows. Notes name columns that are suspicious in a "
             "sample of 4000 "
             "rows: constants, copies, identifiers, and with data.label a column that tells the label.\n"
             "Keys such as data.columns, data.missing and data.header mean the same as in a job: "
             "data.columns='*: category' counts the values of all columns.",
    .defaults = &(const struct count_options){.top = 5},
    .options_size = sizeof(struct count_options),
    .on_ranks = true,
    .run = count_command,
};
