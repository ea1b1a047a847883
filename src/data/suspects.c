/* Suspicious columns and rows of a table: identifiers, constants, copies, columns that tell the label, classes of one row, and
 * test rows that are training rows. Everything follows from a sample of rows from all parts of the files, which one process reads. */
#include "data/suspects.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "data/reader.h"

enum {
    PARTS = 8, /* of the files, from which rows are read */
    PART_ROWS =
        500, /* rows that are read from the beginning of each part, fewer if they have more than 100 numbers */
    PART_CELLS = 100 * PART_ROWS,
    LEAST_ROWS = 20, /* a smaller sample shows nothing */
    LEAST_LEAK = 100 /* and a smaller one does not show that a column tells the label */
};

/* ---- the sample ---- */

struct sample {
    size_t rows, columns; /* columns: numbers per row (tr_schema.slots) */
    float *value, *label; /* categories: places of values; label: NULL if there are none */
    bool whole;           /* the sample has all rows of the files */
};

static void sample_free(struct sample *s)
{
    free(s->value);
    free(s->label);
}

static int sample_add(struct sample *s, const struct tr_matrix *m)
{
    size_t values = s->rows * s->columns, labels = s->rows;
    s->columns = m->columns;
    TR_TRY(TR_GROW(&s->value, &values, (s->rows + m->rows) * m->columns));
    memcpy(s->value + s->rows * m->columns, m->value, m->rows * m->columns * sizeof *m->value);
    if (m->label) {
        TR_TRY(TR_GROW(&s->label, &labels, s->rows + m->rows));
        memcpy(s->label + s->rows, m->label, m->rows * sizeof *m->label);
    }
    s->rows += m->rows;
    return TR_OK;
}

/* Reads the first rows of each part of the files, of files that can only be read from their beginning the first part. seen: the values of categories. */
static int sample_read(const struct tr_suspect_table *t, struct tr_column_seen *seen, struct sample *s)
{
    size_t parts = PARTS, rows = PART_CELLS / (t->schema->slots + 1) + 5;
    for (size_t i = 0; i < t->files->n; i++)
        if (tr_file_is_stream(&t->files->file[i])) parts = 1;
    struct tr_reader_options options = {.format = TR_FORMAT_CSV,
                                        .heads = t->heads,
                                        .schema = t->schema,
                                        .bindings = t->bindings,
                                        .seen = seen,
                                        .settled = true,
                                        .skip_errors = true,
                                        .most_rows = tr_min_size(rows, PART_ROWS) * PARTS / parts};
    s->whole = true;
    for (size_t part = 0; part < parts; part++) {
        struct tr_matrix m = {0};
        struct tr_read_report report;
        TR_TRY(tr_read_matrix(t->files, part, parts, &options, &m, &report));
        s->whole = s->whole && m.rows < options.most_rows;
        tr_ids_free(&report.labels.bits);
        int status = m.rows > 0 ? sample_add(s, &m) : TR_OK;
        tr_matrix_free(&m);
        TR_TRY(status);
    }
    return TR_OK;
}

/* ---- one column ---- */

/* A value of a column, in the order of values, with its label. */
struct cell {
    uint32_t bits;
    float value, label;
};

static int cell_compare(const void *a, const void *b)
{
    const struct cell *x = a, *y = b;
    if (x->value != y->value && !isnan(x->value) && !isnan(y->value)) return x->value < y->value ? -1 : 1;
    return (x->bits > y->bits) - (x->bits < y->bits);
}

struct column_facts {
    size_t different; /* number of different values */
    bool counts;      /* the values are integers without gaps, in the order of the rows */
    bool tells_label; /* each value has one label, and each of several labels has one value */
    uint64_t hash;    /* of all values in the order of the rows */
};

/* Fills *facts from the values at `slot`, or from the labels (slot = columns). cell: memory for all rows. */
static void column_look(const struct sample *s, size_t slot, struct cell *cell, struct column_facts *facts)
{
    size_t labels = 0;
    *facts = (struct column_facts){.counts = true, .tells_label = s->label != NULL};
    for (size_t i = 0; i < s->rows; i++) {
        float x = slot < s->columns ? s->value[i * s->columns + slot] : s->label[i];
        cell[i] = (struct cell){.value = x, .label = s->label ? s->label[i] : 0};
        memcpy(&cell[i].bits, &x, sizeof x);
        facts->hash = tr_mix(facts->hash ^ cell[i].bits);
        facts->counts = facts->counts && x == rintf(x) && (i == 0 || x == cell[i - 1].value + 1);
    }
    qsort(cell, s->rows, sizeof *cell, cell_compare);
    for (size_t i = 0; i < s->rows; i++) {
        bool first = i == 0 || cell_compare(&cell[i - 1], &cell[i]) != 0;
        facts->different += first;
        if (!first && cell[i].label != cell[i - 1].label) facts->tells_label = false;
    }
    if (!facts->tells_label) return;
    struct cell before = {.value = 0};
    for (size_t i = 0; i < s->rows; i++) { /* leaves the label of each value */
        struct cell here = cell[i];
        if (i == 0 || cell_compare(&before, &here) != 0) cell[labels++] = (struct cell){.value = here.label};
        before = here;
    }
    for (size_t i = 0; i < labels; i++) memcpy(&cell[i].bits, &cell[i].value, sizeof cell[i].bits);
    qsort(cell, labels, sizeof *cell, cell_compare);
    for (size_t i = 1; i < labels; i++)
        if (cell_compare(&cell[i - 1], &cell[i]) == 0) facts->tells_label = false;
    facts->tells_label = facts->tells_label && labels > 1;
}

/* ---- all columns ---- */

struct suspects {
    const struct tr_suspect_table *table;
    tr_suspect_fn *say;
    void *state;
    size_t rows;
    const struct tr_column_seen *seen;
};

static void suspect_say(const struct suspects *s, size_t column, const char *what, const char *key)
{
    char name[TR_SHOWN_NAME], text[3 * TR_SHOWN_NAME + 300];
    tr_schema_column_text(s->table->schema, column, name);
    int n = snprintf(text, sizeof text, "column %s: %s", name, what);
    if (key && n > 0 && (size_t)n < sizeof text)
        snprintf(text + n, sizeof text - (size_t)n, ": data.columns={%s: %s}", name, key);
    s->say(s->state, text);
}

/* Looks for labels that are an identifier, and for classes of one row. */
static void label_look(const struct suspects *s, const struct sample *sample, struct cell *cell)
{
    struct column_facts facts;
    char text[300], label[TR_SHOWN_NAME];
    size_t column = s->table->schema->label, single = 0;
    column_look(sample, sample->columns, cell, &facts);
    if (facts.different == s->rows) {
        suspect_say(s, column,
                    "no two rows have one label, as in an identifier: data.label names another column", NULL);
        return;
    }
    column_look(&(struct sample){.rows = s->rows, .value = sample->label, .columns = 1}, 0, cell, &facts);
    for (size_t i = 0; i < s->rows && sample->whole; i++) {
        bool alone = (i == 0 || cell_compare(&cell[i - 1], &cell[i]) != 0) &&
                     (i + 1 == s->rows || cell_compare(&cell[i], &cell[i + 1]) != 0);
        if (!alone || single++ > 0) continue;
        tr_schema_label_text(s->table->schema, cell[i].value, label);
        if (s->table->schema->column[column].type != TR_COLUMN_NAMED_LABEL || s->table->schema->labels.n > 0)
            continue;
        size_t n; /* the names have no numbers yet */
        const char *name = tr_ids_text(&s->seen[column].values, (size_t)cell[i].value, &n);
        tr_escape(label, sizeof label, name, n);
    }
    if (single == 0) return;
    snprintf(text, sizeof text, "%zu label%s in one row only, the first is %s: leave such rows out, or %s",
             single, single == 1 ? " is" : "s are", label, "combine such labels");
    suspect_say(s, column, text, NULL);
}

int tr_suspects_find(const struct tr_suspect_table *table, tr_suspect_fn *say, void *state)
{
    TR_CLOSED_BY(sample_free) struct sample sample = {0};
    TR_FREED struct cell *cell = NULL;
    TR_FREED struct column_facts *facts = NULL;
    const struct tr_schema *schema = table->schema;
    struct tr_column_seen *seen = tr_schema_seen(schema);
    if (!seen) return TR_ERR_SYSTEM;
    int status = sample_read(table, seen, &sample);
    if (status == TR_OK) status = TR_NEW(&cell, sample.rows);
    if (status == TR_OK) status = TR_NEW(&facts, schema->n);
    struct suspects s = {table, say, state, sample.rows, seen};
    bool looks = status == TR_OK && s.rows >= LEAST_ROWS;
    if (looks && table->classes && sample.label) label_look(&s, &sample, cell);
    tr_schema_seen_free(&seen, schema);
    if (!looks) return status;
    char of_rows[48] = "all rows";
    if (!sample.whole) snprintf(of_rows, sizeof of_rows, "a sample of %zu rows", s.rows);
    for (size_t c = 0; c < tr_schema_fields(schema); c++) {
        const struct tr_column *column = &schema->column[c];
        char text[300], name[TR_SHOWN_NAME];
        if (column->type > TR_COLUMN_CATEGORY) continue;
        struct column_facts *f = &facts[c];
        column_look(&sample, column->slot, cell, f);
        bool category = column->type == TR_COLUMN_CATEGORY;
        size_t copy = 0;
        while (copy < c && (schema->column[copy].type != column->type || facts[copy].hash != f->hash)) copy++;
        if (f->different == 1) {
            snprintf(text, sizeof text, "%s have one value", of_rows);
            suspect_say(&s, c, text, "ignore");
        } else if (copy < c) {
            tr_schema_column_text(schema, copy, name);
            snprintf(text, sizeof text, "equals the column %s in %s", name, of_rows);
            suspect_say(&s, c, text, "ignore");
        } else if (category && f->different >= s.rows - s.rows / 10) {
            snprintf(text, sizeof text, "%zu of %zu rows have different words, as in an identifier",
                     f->different, s.rows);
            suspect_say(&s, c, text, "id");
        } else if (!category && f->counts && sample.whole) {
            suspect_say(&s, c, "counts the rows, as an index does", "id");
        } else if (f->tells_label && s.rows >= LEAST_LEAK) {
            snprintf(text, sizeof text,
                     "each of its values has one label and each label one value, in %s: if it is "
                     "known only with the label, leave it out",
                     of_rows);
            suspect_say(&s, c, text, "ignore");
        }
    }
    return TR_OK;
}

/* ---- rows of test data among those of the training data ---- */

static int hash_compare(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static uint64_t row_hash(const struct sample *s, size_t i)
{
    uint64_t hash = 0;
    for (size_t k = 0; k <= s->columns; k++) {
        float x = k < s->columns ? s->value[i * s->columns + k] : s->label ? s->label[i] : 0;
        uint32_t bits;
        memcpy(&bits, &x, sizeof bits);
        hash = tr_mix(hash ^ bits);
    }
    return hash;
}

int tr_suspects_overlap(const struct tr_suspect_table *train, const struct tr_suspect_table *test,
                        size_t *both, size_t *rows)
{
    TR_CLOSED_BY(sample_free) struct sample learnt = {0};
    TR_CLOSED_BY(sample_free) struct sample tested = {0};
    TR_FREED uint64_t *hash = NULL;
    struct tr_column_seen *seen = tr_schema_seen(train->schema);
    *both = *rows = 0;
    if (!seen) return TR_ERR_SYSTEM;
    int status = sample_read(train, seen, &learnt);
    if (status == TR_OK)
        status = sample_read(test, seen, &tested); /* the same value has the same place in both */
    tr_schema_seen_free(&seen, train->schema);
    TR_TRY(status);
    TR_TRY(TR_NEW(&hash, learnt.rows));
    for (size_t i = 0; i < learnt.rows; i++) hash[i] = row_hash(&learnt, i);
    if (learnt.rows > 0) qsort(hash, learnt.rows, sizeof *hash, hash_compare);
    *rows = tested.rows;
    for (size_t i = 0; i < tested.rows && learnt.rows > 0; i++) {
        uint64_t own = row_hash(&tested, i);
        *both += bsearch(&own, hash, learnt.rows, sizeof own, hash_compare) != NULL;
    }
    return TR_OK;
}
