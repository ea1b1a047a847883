#define _GNU_SOURCE
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "data/dataset.h"
#include "data/names.h"

/* ---- results of reading on one worker ---- */

struct tr_column_seen *tr_schema_seen(const struct tr_schema *s)
{
    struct tr_column_seen *seen;
    if (TR_NEW(&seen, s->n) != TR_OK) return NULL;
    for (size_t c = 0; c < s->n; c++) seen[c].values.are_text = true;
    return seen;
}

void tr_schema_seen_free(struct tr_column_seen **seen, const struct tr_schema *s)
{
    for (size_t c = 0; *seen && c < s->n; c++) tr_ids_free(&(*seen)[c].values);
    free(*seen);
    *seen = NULL;
}

/* ---- agreement ---- */

int tr_schema_open(tr_data *data, const tr_data *like)
{
    struct tr_data_state *s = data->state;
    tr_context *tr = s->tr;
    TR_CLOSED_BY(tr_archive_free) struct tr_archive a = {.writes = tr->rank == 0};
    TR_CLOSED_BY(tr_schema_release)
    struct tr_schema *other = NULL; /* unused: test data share the schema of the training data */
    int status = TR_OK;
    if (like) {
        s->schema = like->state->schema;
        s->schema->users++;
    }
    if (tr->rank == 0) {
        if (!like) status = tr_schema_make(tr->job, &s->files, s->heads, &s->schema);
        for (size_t c = 0; status == TR_OK && !like && c < s->schema->n; c++)
            s->schema->column[c].raw = s->form & TR_DATA_CODES;
        int how = TR_BIND_LABEL | (like ? TR_BIND_KNOWN : 0);
        if (status == TR_OK) status = tr_schema_bind(s->schema, &s->files, s->heads, how, &s->bindings);
        if (status == TR_OK && *s->bindings.unknown)
            tr_say(tr, "note:          columns of data.test that data.train does not have are ignored: %s",
                   s->bindings.unknown);
        if (status == TR_OK) status = tr_schema_archive(&a, &s->schema, &s->bindings);
    }
    TR_TRY(tr_agree(tr, status));
    TR_TRY(tr_broadcast(tr, TR_SET_ALL, 0, s->heads, s->files.n * sizeof *s->heads));
    TR_TRY(tr_broadcast(tr, TR_SET_ALL, 0, &a.n, sizeof a.n));
    TR_TRY(tr_agree(tr, tr->rank == 0 ? TR_OK : TR_NEW(&a.bytes, a.n)));
    status = tr_broadcast(tr, TR_SET_ALL, 0, a.bytes, a.n);
    if (status == TR_OK && tr->rank != 0)
        status = tr_schema_archive(&a, like ? &other : &s->schema, &s->bindings);
    return tr_agree(tr, status);
}

/* The first word that a rank has found in a column of numbers. */
struct first_word {
    uint64_t column, file, offset; /* place of the word; column UINT64_MAX: no word was found */
    char text[TR_TOKEN_ROOM];
};

/* Prints the first word, in the order of the files, because of which the type of a column has changed. */
static int schema_say_change(tr_data *data, const struct tr_column_seen *seen, size_t column)
{
    struct tr_data_state *s = data->state;
    tr_context *tr = s->tr;
    struct first_word mine = {.column = UINT64_MAX}, *first = NULL;
    TR_FREED struct first_word *all = NULL;
    uint64_t line = 0;
    if (seen && seen[column].word) {
        mine = (struct first_word){column, seen[column].place.file, seen[column].place.offset, ""};
        memcpy(mine.text, seen[column].text, sizeof mine.text);
    }
    TR_TRY(TR_NEW(&all, (size_t)tr->size));
    TR_TRY(tr_all_gather(tr, TR_SET_ALL, &mine, sizeof mine, all));
    for (int i = 0; i < tr->size; i++)
        if (all[i].column == column && (!first || all[i].file < first->file ||
                                        (all[i].file == first->file && all[i].offset < first->offset)))
            first = &all[i];
    if (!first || tr->rank != 0) return TR_OK;
    char name[TR_SHOWN_NAME];
    int status = tr_files_line(&s->files, (size_t)first->file, first->offset, &line);
    tr_schema_column_text(s->schema, column, name);
    tr_say(tr, "note:          column %s is %s, as %s:%llu has '%s' (data.columns: {%s: number} refuses it)",
           name, column == s->schema->label ? "of names" : "a category", s->files.file[first->file].path,
           (unsigned long long)line, first->text, name);
    return status;
}

static void column_make_words(struct tr_column *c)
{
    c->type = c->type == TR_COLUMN_LABEL ? TR_COLUMN_NAMED_LABEL : TR_COLUMN_CATEGORY;
}

bool tr_schema_take_words(struct tr_schema *s, const struct tr_column_seen *seen)
{
    bool any = false;
    for (size_t c = 0; c < s->n; c++) {
        any |= seen[c].word;
        if (seen[c].word) column_make_words(&s->column[c]);
    }
    return any;
}

int tr_schema_change(tr_data *data, const struct tr_column_seen *seen, bool *again)
{
    struct tr_schema *s = data->state->schema;
    tr_context *tr = data->state->tr;
    TR_FREED int32_t *word = NULL;
    size_t first = s->n;
    *again = false;
    TR_TRY(tr_agree(tr, TR_NEW(&word, s->n)));
    for (size_t c = 0; seen && c < s->n; c++) word[c] = seen[c].word;
    TR_TRY(tr_all_reduce(tr, TR_SET_ALL, TR_MAX, TR_I32, word, s->n));
    for (size_t c = 0; c < s->n; c++) {
        if (!word[c]) continue;
        column_make_words(&s->column[c]);
        *again = true;
        first = tr_min_size(first, c);
    }
    int status = TR_OK;
    if (*again && !(data->state->form & TR_DATA_NODE)) status = schema_say_change(data, seen, first);
    if (status == TR_OK && *again) status = tr_schema_number(s);
    return tr_agree(tr, status);
}

/* ---- means ---- */

/* Sets the means of all columns of numbers, also of those in which no number is missing: one may be missing in rows to predict. Rows
 * have weights w: Σ w x gives the mean, and Σ w (x - mean)² its precision. noted: the sums of rows on a disk, from the first pass. */
static int schema_find_means(tr_data *data, const struct tr_disk_column *noted)
{
    struct tr_schema *s = data->state->schema;
    tr_context *tr = data->state->tr;
    TR_FREED struct tr_disk_column *mine = NULL;
    TR_FREED double *sum = NULL;
    double *count, *apart;
    int status = TR_NEW(&mine, s->n);
    if (status == TR_OK) status = TR_NEW(&sum, 3 * s->n);
    if (status == TR_OK && noted) memcpy(mine, noted, s->n * sizeof *mine);
    else if (status == TR_OK && data->state->rows.rows > 0 && !data->state->on_disk)
        status = tr_disk_note_numbers(s, &data->state->rows, data->state->own_weight, mine);
    TR_TRY(tr_agree(tr, status));
    count = sum + s->n;
    apart = count + s->n;
    for (size_t c = 0; c < s->n; c++) {
        sum[c] = mine[c].n * mine[c].mean;
        count[c] = mine[c].n;
    }
    TR_TRY(tr_all_reduce(tr, TR_SET_ALL, TR_SUM, TR_F64, sum, 2 * s->n));
    for (size_t c = 0; c < s->n; c++) {
        double from_all = count[c] > 0 ? mine[c].mean - sum[c] / count[c] : 0;
        apart[c] = mine[c].apart + mine[c].n * from_all * from_all;
    }
    TR_TRY(tr_all_reduce(tr, TR_SET_ALL, TR_SUM, TR_F64, apart, s->n));
    for (size_t c = 0; c < s->n; c++) {
        if (s->column[c].type != TR_COLUMN_NUMBER) continue;
        double mean = count[c] > 0 ? sum[c] / count[c] : 0, spread = sqrt(apart[c] / count[c]);
        /* the order of the sums depends on the number of ranks: rounding makes the result independent of it */
        double unit = count[c] > 0 && spread > 0 ? exp2(floor(log2(spread)) - 10) : 0;
        s->column[c].mean = unit > 0 && isfinite(1 / spread) ? unit * round(mean / unit) : mean;
        s->column[c].averaged = true;
    }
    return TR_OK;
}

static int schema_settle_missing(tr_data *data, const struct tr_reading *in)
{
    struct tr_schema *s = data->state->schema;
    tr_context *tr = data->state->tr;
    TR_FREED int32_t *missing = NULL;
    bool any = false;
    TR_TRY(tr_agree(tr, TR_NEW(&missing, s->n)));
    for (size_t c = 0; in->seen && c < s->n; c++) missing[c] = in->seen[c].missing;
    TR_TRY(tr_all_reduce(tr, TR_SET_ALL, TR_MAX, TR_I32, missing, s->n));
    for (size_t c = 0; c < s->n; c++) {
        bool number = s->column[c].type == TR_COLUMN_NUMBER;
        s->column[c].missing = missing[c] && number;
        any |= number && !s->column[c].raw;
    }
    return any ? schema_find_means(data, in->writer.column) : TR_OK;
}

/* ---- dictionaries ---- */

static const struct tr_ids no_values = {.are_text = true};

/* Counts the rows with each value of each category. noted: the counts of rows on a disk, from the first pass. */
static int schema_count_values(const struct tr_schema *s, const struct tr_column_seen *seen,
                               const struct tr_matrix *m, const struct tr_disk_column *noted,
                               struct tr_counted *counted)
{
    for (size_t c = 0; c < s->n; c++) {
        uint64_t *count;
        bool category = s->column[c].type == TR_COLUMN_CATEGORY && seen;
        counted[c].values = category ? &seen[c].values : &no_values;
        TR_TRY(TR_NEW(&count, counted[c].values->n));
        counted[c].count = count;
        if (category && noted && seen[c].values.n > 0)
            memcpy(count, noted[c].count, seen[c].values.n * sizeof *count);
        for (size_t i = 0; category && !noted && m && i < m->rows; i++)
            count[tr_slot_place(m->value[i * m->columns + s->column[c].slot])]++;
    }
    return TR_OK;
}

static void numbers_free(uint32_t **number, size_t n)
{
    for (size_t c = 0; number && c < n; c++) free(number[c]);
    free(number);
}

/* Sets (*number)[column][place] for the values that this worker has found: by a new dictionary (makes), or by the dictionary of the
 * schema. All ranks. */
static int schema_number_values(tr_data *data, bool makes, const struct tr_column_seen *seen,
                                const struct tr_matrix *m, const struct tr_disk_column *noted,
                                uint32_t ***number)
{
    struct tr_schema *s = data->state->schema;
    tr_context *tr = data->state->tr;
    struct tr_counted *counted = NULL;
    struct tr_dictionary_column *column = NULL;
    int status = TR_NEW(number, s->n);
    if (status == TR_OK) status = TR_NEW(&column, s->n);
    if (status == TR_OK) status = TR_NEW(&counted, s->n);
    if (status == TR_OK) status = schema_count_values(s, seen, m, noted, counted);
    status = tr_agree(tr, status);
    if (status == TR_OK && makes)
        status = tr_dictionary_make(tr, counted, s->n, tr->job->data.min_count, tr->job->data.most_values,
                                    &s->dictionary, column, *number);
    else if (status == TR_OK) status = tr_dictionary_find(tr, s->dictionary, counted, s->n, *number);
    for (size_t c = 0; c < s->n && makes && status == TR_OK; c++) {
        s->column[c].values = (uint32_t)column[c].values;
        s->column[c].others = column[c].others;
    }
    for (size_t c = 0; counted && c < s->n; c++) free((void *)(uintptr_t)counted[c].count);
    free(counted);
    free(column);
    return status;
}

/* ---- labels with names ---- */

struct label_name {
    const char *text;
    size_t n;
};

static int label_compare_names(const void *a, const void *b)
{
    const struct label_name *x = a, *y = b;
    return tr_value_compare(x->text, x->n, y->text, y->n);
}

/* Sorts the labels of all workers into s->labels. */
static int schema_sort_labels(struct tr_schema *s, const char *path, const struct tr_ids *all)
{
    TR_FREED struct label_name *sorted = NULL;
    uint32_t place;
    if (all->n >= TR_LABELS_MOST) {
        char name[TR_SHOWN_NAME];
        tr_schema_column_text(s, s->label, name);
        return tr_fail(TR_ERR_DATA, "%s: column %s has %llu different labels, expected at most %d classes",
                       path, name, (unsigned long long)all->n, TR_LABELS_MOST - 1);
    }
    TR_TRY(TR_NEW(&sorted, all->n));
    for (size_t i = 0; i < all->n; i++) sorted[i].text = tr_ids_text(all, i, &sorted[i].n);
    if (all->n > 0) qsort(sorted, all->n, sizeof *sorted, label_compare_names);
    for (size_t i = 0; i < all->n; i++)
        TR_TRY(tr_ids_add_text(&s->labels, sorted[i].text, sorted[i].n, &place));
    return TR_OK;
}

int tr_schema_settle_labels(tr_data *data, struct tr_schema *s, const struct tr_ids *seen,
                            struct tr_labels *labels)
{
    struct tr_matrix *m = &data->state->rows;
    tr_context *tr = data->state->tr;
    TR_CLOSED_BY(tr_dictionary_free) struct tr_dictionary *d = NULL;
    TR_CLOSED_BY(tr_ids_free) struct tr_ids all = {.are_text = true};
    TR_FREED uint64_t *count = NULL;
    TR_FREED uint32_t *number = NULL;
    struct tr_dictionary_column column;
    struct tr_counted mine = {.values = seen ? seen : &no_values};
    size_t n = mine.values->n, length;
    TR_TRY(tr_agree(tr, TR_NEW(&count, n)));
    for (size_t i = 0; i < n; i++) count[i] = 1;
    mine.count = count;
    TR_TRY(tr_dictionary_make(tr, &mine, 1, 1, 0, &d, &column, &number));
    TR_TRY(tr_names_gather(tr_dictionary_names(d), &all));
    TR_TRY(tr_agree(tr, schema_sort_labels(s, data->state->files.file[0].path, &all)));
    for (size_t i = 0; i < n; i++) {
        const char *text = tr_ids_text(mine.values, i, &length);
        number[i] = tr_ids_find_text(&s->labels, text, length);
    }
    for (size_t i = 0; seen && m->label && i < m->rows; i++) m->label[i] = (float)number[(size_t)m->label[i]];
    for (size_t i = 0; seen && i < labels->bits.n; i++) {
        float label = (float)number[(size_t)tr_labels_value(labels, i)];
        uint32_t bits;
        memcpy(&bits, &label, sizeof bits);
        labels->bits.number[i] = bits;
    }
    return TR_OK;
}

/* ---- rows of keys ---- */

int tr_schema_make_keys(tr_data *data, const tr_data *like, struct tr_reading *in)
{
    struct tr_data_state *state = data->state;
    struct tr_schema *s = state->schema;
    tr_context *tr = state->tr;
    uint32_t **number = NULL;
    state->unknown = 0;
    if (!like) TR_TRY(schema_settle_missing(data, in));
    bool named = s->label < s->n && s->column[s->label].type == TR_COLUMN_NAMED_LABEL && !s->positive;
    if (!like && named)
        TR_TRY(tr_schema_settle_labels(data, s, in->seen ? &in->seen[s->label].values : NULL,
                                       &in->report.labels));
    if (tr_schema_has_dictionaries(s))
        TR_TRY(schema_number_values(data, !like, in->seen, &state->rows, in->writer.column, &number));
    int status = like ? TR_OK : tr_schema_number(s);
    bool categories = tr_schema_has_categories(s), plain = s->keys == s->slots && !categories,
         converts = tr_is(tr, TR_SLAVE) && !plain;
    if (status == TR_OK && s->keys == 0)
        status = tr_fail(TR_ERR_DATA, "%s: there is no column besides that of data.label",
                         state->files.file[0].path);
    if (status == TR_OK && s->hash > 0 && !categories)
        status = tr_fail(TR_ERR_CONFIG, "%s: data.hash is for categories, and there are none",
                         tr_job_where(tr->job, "data.hash"));
    for (size_t c = 0; c < s->n && tr_is(tr, TR_SLAVE); c++)
        converts = converts || (s->column[c].type == TR_COLUMN_NUMBER && in->seen[c].missing);
    if (status == TR_OK && converts && state->on_disk) { /* the writer converts rows */
        in->writer.makes_keys = true;
        in->writer.columns = s->n;
        in->writer.number = number;
        number = NULL;
    } else if (status == TR_OK && converts) {
        status = tr_schema_expand(s, number, &state->rows, &state->unknown);
    }
    numbers_free(number, s->n);
    status = tr_agree(tr, status);
    data->columns = s->keys;
    if (state->on_disk && plain) return status; /* rows stay as they were read */
    data->total_nonzeros = state->on_disk ? in->writer.nonzeros : tr_matrix_nonzeros(&state->rows);
    if (status == TR_OK) status = tr_all_reduce(tr, TR_SET_ALL, TR_SUM, TR_I64, &data->total_nonzeros, 1);
    return status == TR_OK ? tr_all_reduce(tr, TR_SET_ALL, TR_SUM, TR_I64, &state->unknown, 1) : status;
}

int tr_schema_expand_more(const tr_data *data, const struct tr_column_seen *seen, struct tr_matrix *m)
{
    const struct tr_schema *s = data->state->schema;
    uint32_t **number = NULL;
    uint64_t unknown;
    if (tr_schema_has_dictionaries(s))
        TR_TRY(schema_number_values((tr_data *)(uintptr_t)data, false, seen, m, NULL, &number));
    int status = m ? tr_schema_expand(s, number, m, &unknown) : TR_OK;
    numbers_free(number, s->n);
    return tr_agree(data->state->tr, status);
}

/* ---- distinct labels ---- */

static int label_compare(const void *a, const void *b)
{
    const float *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* If workers have found TR_LABELS_MOST labels, one of them, that with the highest rank, sends its labels: these are enough. */
int tr_labels_unite(tr_context *tr, const struct tr_labels *labels, tr_data *data)
{
    uint64_t most = (uint64_t)labels->bits.n << 32 | (uint64_t)tr->rank, n = 0;
    TR_FREED float *mine = NULL;
    float *all;
    size_t kept = 0;
    TR_TRY(TR_NEW(&mine, labels->bits.n));
    for (size_t i = 0; i < labels->bits.n; i++) mine[i] = tr_labels_value(labels, i);
    TR_TRY(tr_all_reduce(tr, TR_SET_ALL, TR_MAX, TR_I64, &most, 1));
    bool counts = most >> 32 < TR_LABELS_MOST || (int)(most & UINT32_MAX) == tr->rank;
    TR_TRY(
        tr_gather_to_all(tr, TR_SET_ALL, mine, counts ? labels->bits.n : 0, sizeof *mine, (void **)&all, &n));
    if (n > 0) qsort(all, (size_t)n, sizeof *all, label_compare);
    for (size_t i = 0; i < n && kept < TR_LABELS_MOST; i++)
        if (i == 0 || all[i] != all[i - 1]) all[kept++] = all[i];
    data->labels = kept;
    data->label = all;
    return TR_OK;
}

int tr_labels_need_names(tr_context *tr, const struct tr_read_report *report, const tr_data *data,
                         bool *names)
{
    int form = data->state->form;
    int32_t any = *report->long_label != '\0';
    tr_data all = {.labels = 0};
    TR_TRY(tr_all_reduce(tr, TR_SET_ALL, TR_MAX, TR_I32, &any, 1));
    *names = any && form & (TR_DATA_CLASSES | TR_DATA_NODE);
    if (!any || *names || !(form & TR_DATA_FEW_CLASSES)) return TR_OK;
    TR_TRY(tr_labels_unite(tr, &report->labels, &all));
    bool integers = true;
    for (size_t i = 0; i < all.labels; i++) integers = integers && all.label[i] == rintf(all.label[i]);
    *names = tr_labels_may_be_classes(all.labels, integers);
    free((void *)(uintptr_t)all.label);
    return TR_OK;
}

int tr_labels_find_third(tr_context *tr, const struct tr_labels *labels, tr_data *data)
{
    struct seen {
        float value;
        bool there;
        struct tr_file_place place;
    } mine[3] = {{0}}, *first[3];
    TR_FREED struct seen *all = NULL;
    char text[3][TR_SHOWN_NAME];
    for (size_t i = 0; i < 3 && i < labels->bits.n; i++)
        mine[i] = (struct seen){tr_labels_value(labels, i), true, labels->place[i]};
    TR_TRY(TR_NEW(&all, (size_t)tr->size * 3));
    TR_TRY(tr_all_gather(tr, TR_SET_ALL, mine, sizeof mine, all));
    size_t kinds = 0;
    for (size_t i = 0; i < (size_t)tr->size * 3 && kinds < 3; i++) {
        bool known = !all[i].there;
        for (size_t k = 0; k < kinds; k++) known = known || first[k]->value == all[i].value;
        if (!known) first[kinds++] = &all[i];
    }
    const struct tr_files *files = &data->state->files;
    const struct tr_file_place *third = &first[2]->place;
    const struct tr_file *file = &files->file[third->file];
    uint64_t line = third->offset;
    for (int i = 0; i < 3; i++) tr_schema_label_text(tr_data_schema(data), first[i]->value, text[i]);
    if (tr->rank == 0 && !file->hdf5) TR_TRY(tr_files_line(files, third->file, third->offset, &line));
    return tr_format(&data->state->third_label, "%s:%s%llu: label %s is the third kind after %s and %s",
                     file->path, file->hdf5 ? " row " : "", (unsigned long long)line, text[2], text[0],
                     text[1]);
}

/* ---- description of the columns ---- */

struct line {
    char text[480];
    size_t n;
};

static void line_add(struct line *l, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void line_add(struct line *l, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int n = vsnprintf(l->text + l->n, sizeof l->text - l->n, format, arguments);
    va_end(arguments);
    l->n = tr_min_size(l->n + (size_t)n, sizeof l->text - 1);
}

void tr_data_values(const tr_data *data, uint32_t *values)
{
    const struct tr_schema *s = data->state->schema;
    memset(values, 0, (size_t)data->columns * sizeof *values);
    for (size_t c = 0; s && c < s->n; c++)
        if (s->column[c].raw && s->column[c].type == TR_COLUMN_CATEGORY)
            values[s->column[c].first] = s->column[c].values;
}

bool tr_data_column(const tr_data *data, const char *name, uint64_t *column)
{
    const struct tr_schema *s = data->state->schema;
    if (s) {
        size_t c = tr_schema_find(s, name);
        if (c < s->n && s->column[c].keys == 1) *column = s->column[c].first;
        return c < s->n && s->column[c].keys == 1;
    }
    bool number = tr_id_number(name, strlen(name), column) && *column >= data->first_index;
    *column -= number ? data->first_index : 0;
    return number && *column < data->columns;
}

void tr_schema_say(const tr_data *data)
{
    const struct tr_schema *s = data->state->schema;
    tr_context *tr = data->state->tr;
    enum { SHOWN = 4 };
    size_t numbers = 0, categories = 0, ignored = 0, missing = 0;
    struct line l = {.n = 0};
    char name[TR_SHOWN_NAME];
    for (size_t c = 0; c < s->n; c++) {
        numbers += s->column[c].type == TR_COLUMN_NUMBER;
        categories += s->column[c].type == TR_COLUMN_CATEGORY;
        ignored += s->column[c].type == TR_COLUMN_ID || s->column[c].type == TR_COLUMN_IGNORE;
        missing += s->column[c].missing;
    }
    if (numbers) line_add(&l, "%zu number%s", numbers, numbers == 1 ? "" : "s");
    if (categories)
        line_add(&l, "%s%zu categor%s (", l.n ? ", " : "", categories, categories == 1 ? "y" : "ies");
    size_t shown = 0;
    for (size_t c = 0; c < s->n && shown <= SHOWN; c++) { /* SHOWN categories with their number of values */
        if (s->column[c].type != TR_COLUMN_CATEGORY) continue;
        tr_schema_column_text(s, c, name);
        if (shown == SHOWN) line_add(&l, ", …");
        else line_add(&l, "%s%.40s", shown ? ", " : "", name);
        if (shown++ < SHOWN && s->hash == 0)
            line_add(&l, " %u%s", s->column[c].values, s->column[c].others ? "+" : "");
    }
    if (categories && s->hash > 0) line_add(&l, ", hashed to %llu keys", (unsigned long long)s->hash);
    if (categories) line_add(&l, ")");
    if (ignored) line_add(&l, ", %zu ignored", ignored);
    if (missing) line_add(&l, ", missing values in %zu", missing);
    if (s->label < s->n) {
        tr_schema_column_text(s, s->label, name);
        line_add(&l, "; label %s%s", s->named ? "" : "column ", name);
        if (s->labels.n > 0) line_add(&l, " of %zu names", s->labels.n);
    }
    for (int e = 0; e < TR_EXTRAS; e++) {
        size_t c = tr_schema_extra(s, (enum tr_extra)e);
        if (c == s->n) continue;
        tr_schema_column_text(s, c, name);
        line_add(&l, "; %s %s%s", tr_extra_kinds[e].noun, s->named ? "" : "column ", name);
    }
    tr_say(tr, "columns:       %s", l.text);
    for (size_t c = 0; c < s->n; c++) {
        if (!s->column[c].rounded || (s->column[c].type != TR_COLUMN_NUMBER && c != s->label)) continue;
        tr_schema_column_text(s, c, name);
        tr_say(tr,
               "note:          column %s: its numbers differ behind the 24 bits that are kept of them: "
               "subtract an offset",
               name);
    }
}
