/* Fuzzing the reader of tables with words: quotes, missing values, labels that are names, what a job says about columns. Any bytes
 * must be read or be said to be wrong in one line; and by several readers in tiny chunks there are the same rows, with the same
 * values of categories, as by one. So there are in the HDF5 file that the table is converted to.
 *
 * The first byte of an input chooses what the job says, the rest is the file.
 */
#define _GNU_SOURCE
#include <math.h>

#include "data/convert.h"
#include "data/reader.h"
#include "data/schema.h"
#include "fuzz_files.h"

static char *const jobs[][3] = {
    {"data.train=x", "model.type=logistic", "data.header=auto"},
    {"data.train=x", "model.type=logistic", "data.label=last"},
    {"data.train=x", "model.type=linear", "data.label=y"},
    {"data.train=x", "data.label=1", "data.columns=a: number,b: category,c: ignore"},
    {"data.train=x", "data.label=y", "data.columns=*: category"},
    {"data.label=last", "data.missing=none,0", "data.positive=1"},
    {"data.train=x", "data.columns=a: id,b: weight", "data.header=yes"},
    {"data.train=x", "model.type=kmeans", "data.label=none"},
};
enum { JOBS = sizeof jobs / sizeof *jobs };

struct table {
    struct tr_schema *schema;
    struct tr_bindings bindings;
    struct tr_column_seen *seen;
    struct tr_matrix rows;
    struct tr_read_report report;
};

static void forget_rows(struct table *t)
{
    tr_schema_seen_free(&t->seen, t->schema);
    tr_ids_free(&t->report.labels.bits);
    tr_matrix_free(&t->rows);
}

static int read_rows(const struct tr_files *files, const struct tr_head *head, struct table *t, bool skip,
                     size_t reader, size_t readers, float **weight)
{
    t->seen = tr_schema_seen(t->schema);
    DEMAND(t->seen);
    struct tr_reader_options options = {.format = TR_FORMAT_CSV,
                                        .heads = head,
                                        .skip_errors = skip,
                                        .schema = t->schema,
                                        .bindings = &t->bindings,
                                        .seen = t->seen,
                                        .chunk_bytes = readers > 1 ? readers : 0};
    if (tr_schema_has_extra(t->schema, TR_EXTRA_WEIGHT)) options.extra[TR_EXTRA_WEIGHT] = weight;
    return tr_read_matrix(files, reader, readers, &options, &t->rows, &t->report);
}

/* A word in a column of numbers makes it one of categories: as tr_schema_change() does it on all ranks. */
static bool change(struct table *t)
{
    bool again = false;
    for (size_t c = 0; c < t->schema->n; c++) {
        struct tr_column *column = &t->schema->column[c];
        if (!t->seen[c].word) continue;
        DEMAND(!column->fixed && (column->type == TR_COLUMN_NUMBER || column->type == TR_COLUMN_LABEL));
        column->type = column->type == TR_COLUMN_LABEL ? TR_COLUMN_NAMED_LABEL : TR_COLUMN_CATEGORY;
        again = true;
    }
    return again;
}

static int read_table(const struct tr_files *files, const struct tr_head *head, struct table *t, bool skip)
{
    for (;;) {
        float *weight = NULL;
        int status = read_rows(files, head, t, skip, 0, 1, &weight);
        free(weight);
        if (status != TR_OK || !change(t)) return status;
        forget_rows(t);
        TR_TRY(tr_schema_number(t->schema));
    }
}

/* What stands in a slot: a number, or the text of a category's value. */
static void check_slot(const struct table *a, size_t i, const struct table *b, size_t k,
                       const struct tr_column *column, size_t c)
{
    float x = a->rows.value[i * a->rows.columns + column->slot],
          y = b->rows.value[k * b->rows.columns + column->slot];
    size_t n, m;
    if (column->type == TR_COLUMN_NUMBER) {
        DEMAND(same_bits(x, y) && !isinf(x));
        return;
    }
    DEMAND(tr_slot_place(x) < a->seen[c].values.n && tr_slot_place(y) < b->seen[c].values.n);
    const char *of_x = tr_ids_text(&a->seen[c].values, tr_slot_place(x), &n),
               *of_y = tr_ids_text(&b->seen[c].values, tr_slot_place(y), &m);
    DEMAND(n == m && memcmp(of_x, of_y, n) == 0);
}

static void check_division(const struct tr_files *files, const struct tr_head *head,
                           const struct table *whole, bool skip, size_t readers)
{
    size_t row = 0;
    for (size_t k = 0; k < readers; k++) {
        struct table part = {.schema = whole->schema, .bindings = whole->bindings};
        float *weight = NULL;
        DEMAND(read_rows(files, head, &part, skip, k, readers, &weight) == TR_OK);
        DEMAND(row + part.rows.rows <= whole->rows.rows);
        for (size_t i = 0; i < part.rows.rows; i++, row++)
            for (size_t c = 0; c < part.schema->n; c++)
                if (part.schema->column[c].type <= TR_COLUMN_CATEGORY)
                    check_slot(whole, row, &part, i, &part.schema->column[c], c);
        forget_rows(&part);
        free(weight);
    }
    DEMAND(row == whole->rows.rows);
}

static void check_packed(const struct table *t)
{
    struct tr_archive a = {.writes = true};
    struct tr_schema *copy = NULL;
    struct tr_bindings bindings = {0};
    DEMAND(tr_schema_archive(&a, (struct tr_schema **)(uintptr_t)&t->schema,
                             (struct tr_bindings *)(uintptr_t)&t->bindings) == TR_OK);
    a.writes = false;
    a.at = 0;
    DEMAND(tr_schema_archive(&a, &copy, &bindings) == TR_OK);
    DEMAND(copy->n == t->schema->n && copy->keys == t->schema->keys);
    tr_schema_release(&copy);
    tr_bindings_free(&bindings);
    tr_archive_free(&a);
}

/* The rows of the file that this one is converted to are the same. */
static void check_converted(const tr_job *job, const struct tr_file *file, const struct table *whole)
{
    char path[64];
    char *name = file->path;
    struct tr_files files;
    struct tr_head *head = NULL;
    struct table t = {.schema = NULL};
    float *weight = NULL;
    snprintf(path, sizeof path, "/dev/shm/fuzz-table-%d.h5", (int)getpid());
    struct tr_conversion c = {.job = job, .files = &name, .n = 1, .out = path};
    if (tr_convert(&c) != TR_OK) { /* the format is not given */
        DEMAND(strstr(tr_error_text(), "looks like"));
        return;
    }
    DEMAND(tr_files_open((char *[]){path}, 1, &files) == TR_OK);
    DEMAND(tr_heads_read(&files, TR_FORMAT_CSV, TR_HEADER_AUTO, &head) == TR_OK && head->named);
    DEMAND(tr_schema_make(job, &files, head, &t.schema) == TR_OK);
    DEMAND(tr_schema_bind(t.schema, &files, head, true, &t.bindings) == TR_OK);
    DEMAND(read_rows(&files, head, &t, false, 0, 1, &weight) == TR_OK);
    DEMAND(t.schema->n == whole->schema->n && t.schema->label == whole->schema->label);
    DEMAND(t.rows.rows == whole->rows.rows);
    for (size_t i = 0; i < t.rows.rows; i++)
        for (size_t k = 0; k < t.schema->n; k++) {
            DEMAND(t.schema->column[k].type == whole->schema->column[k].type);
            if (t.schema->column[k].type <= TR_COLUMN_CATEGORY)
                check_slot(whole, i, &t, i, &t.schema->column[k], k);
        }
    free(weight);
    forget_rows(&t);
    tr_schema_release(&t.schema);
    tr_bindings_free(&t.bindings);
    free(head);
    tr_files_close(&files);
    unlink(path);
}

/* Whether the file has all columns: those that a job leaves out are not converted. */
static bool is_kept(const struct tr_schema *s)
{
    for (size_t c = 0; c < s->n; c++)
        if (s->column[c].type == TR_COLUMN_ID || s->column[c].type == TR_COLUMN_IGNORE) return false;
    return true;
}

static int check_table(const tr_job *job, const struct tr_files *files, struct tr_head *head, uint8_t choice)
{
    struct table t = {.schema = NULL};
    int status = tr_schema_make(job, files, head, &t.schema);
    if (status == TR_OK) status = tr_schema_bind(t.schema, files, head, true, &t.bindings);
    if (status == TR_OK) status = read_table(files, head, &t, choice & 8);
    if (status == TR_OK) {
        check_division(files, head, &t, choice & 8, 1 + choice / 16);
        check_packed(&t);
        if (files->total % 8 == 0 && !(choice & 8) && t.rows.rows > 0 && is_kept(t.schema))
            check_converted(job, &files->file[0], &t);
    }
    if (t.schema) tr_schema_seen_free(&t.seen, t.schema);
    if (status == TR_OK) tr_ids_free(&t.report.labels.bits);
    tr_matrix_free(&t.rows);
    tr_bindings_free(&t.bindings);
    tr_schema_release(&t.schema);
    return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    if (n < 2) return 0;
    int fd;
    struct tr_files files;
    struct tr_head *head = NULL;
    struct tr_job *job;
    DEMAND(tr_job_parse("{}", 2, TR_NO_JOB_FILE, 3, jobs[data[0] % JOBS], &job) == TR_OK);
    open_bytes(data + 1, n - 1, &fd, &files);
    job->data.format = TR_FORMAT_CSV;
    if (!files.file[0].packing) {
        char said[TR_DIALECT_SAID];
        int status = tr_dialect_settings(job, &files);
        if (status == TR_OK) status = tr_dialects_find(&files, TR_FORMAT_CSV, said);
        if (status == TR_OK) status = tr_heads_read(&files, TR_FORMAT_CSV, TR_HEADER_AUTO, &head);
        if (status == TR_OK) status = check_table(job, &files, head, data[0]);
        if (status != TR_OK) expect_error(status, status == TR_ERR_CONFIG ? status : TR_ERR_NO_INPUT);
    }
    free(head);
    tr_files_close(&files);
    close(fd);
    tr_job_free(job);
    return 0;
}
