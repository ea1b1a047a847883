#define _GNU_SOURCE
#include "data/schema_all.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "data/dictionary.h"
#include "data/value.h"

/* ---- what a worker meets ---- */

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

/* ---- at first ---- */

static int look(tr_data *data, const tr_data *like, char **bytes, size_t *n)
{
    struct tr_data_state *s = data->state;
    if (!like) TR_TRY(tr_schema_make(s->tr->job, &s->files, s->heads, &s->schema));
    for (size_t c = 0; c < s->schema->n && !like; c++) s->schema->column[c].raw = s->form & TR_DATA_CODES;
    TR_TRY(tr_schema_bind(s->schema, &s->files, s->heads, true, &s->bindings));
    return tr_schema_pack(s->schema, &s->bindings, bytes, n);
}

int tr_schema_open(tr_data *data, const tr_data *like)
{
    struct tr_data_state *s = data->state;
    tr_context *tr = s->tr;
    char *bytes = NULL;
    size_t n = 0;
    if (like) tr_schema_keep(s->schema = like->state->schema);
    TR_TRY(tr_agree(tr, tr->rank == 0 ? look(data, like, &bytes, &n) : TR_OK));
    TR_TRY(tr_broadcast(tr, TR_SET_ALL, 0, s->heads, s->files.n * sizeof *s->heads));
    TR_TRY(tr_broadcast(tr, TR_SET_ALL, 0, &n, sizeof n));
    TR_TRY(tr_agree(tr, tr->rank == 0 ? TR_OK : TR_NEW(&bytes, n)));
    int status = tr_broadcast(tr, TR_SET_ALL, 0, bytes, n);
    struct tr_schema *schema = NULL;
    if (status == TR_OK && tr->rank != 0) status = tr_schema_unpack(bytes, n, &schema, &s->bindings);
    if (!like && tr->rank != 0) s->schema = schema;
    else tr_schema_release(&schema);
    free(bytes);
    return tr_agree(tr, status);
}

/* ---- types ---- */

/* Where the first word in a column stands. */
struct word {
    uint64_t column, file, offset; /* column UINT64_MAX: none */
    char text[TR_TOKEN_ROOM];
};

/* The first in the files, of the first of the columns that have changed. */
static int say_change(tr_data *data, const struct tr_column_seen *seen, size_t column)
{
    struct tr_data_state *s = data->state;
    tr_context *tr = s->tr;
    struct word mine = {.column = UINT64_MAX}, *all, *first = NULL;
    char name[TR_SHOWN_NAME];
    if (seen && seen[column].word) {
        mine = (struct word){column, seen[column].place.file, seen[column].place.offset, ""};
        memcpy(mine.text, seen[column].text, sizeof mine.text);
    }
    TR_TRY(TR_NEW(&all, (size_t)tr->size));
    int status = tr_all_gather(tr, TR_SET_ALL, &mine, sizeof mine, all);
    for (int i = 0; i < tr->size && status == TR_OK; i++)
        if (all[i].column == column && (!first || all[i].file < first->file ||
                                        (all[i].file == first->file && all[i].offset < first->offset)))
            first = &all[i];
    if (status == TR_OK && first && tr->rank == 0) {
        uint64_t line = 0;
        status = tr_files_line(&s->files, (size_t)first->file, first->offset, &line);
        tr_schema_column_text(s->schema, column, name);
        tr_say(tr,
               "note:          column %s is %s, as %s:%llu has '%s' (data.columns: {%s: number} refuses it)",
               name, column == s->schema->label ? "of names" : "a category", s->files.file[first->file].path,
               (unsigned long long)line, first->text, name);
    }
    free(all);
    return status;
}

static void take_word(struct tr_column *c)
{
    c->type = c->type == TR_COLUMN_LABEL ? TR_COLUMN_NAMED_LABEL : TR_COLUMN_CATEGORY;
}

bool tr_schema_take_words(struct tr_schema *s, const struct tr_column_seen *seen)
{
    bool any = false;
    for (size_t c = 0; c < s->n; c++) {
        if (!seen[c].word) continue;
        take_word(&s->column[c]);
        any = true;
    }
    return any;
}

int tr_schema_change(tr_data *data, const struct tr_column_seen *seen, bool *again)
{
    struct tr_schema *s = data->state->schema;
    tr_context *tr = data->state->tr;
    int32_t *word;
    size_t first = s->n;
    *again = false;
    TR_TRY(tr_agree(tr, TR_NEW(&word, s->n)));
    for (size_t c = 0; seen && c < s->n; c++) word[c] = seen[c].word;
    int status = tr_all_reduce(tr, TR_SET_ALL, TR_MAX, TR_I32, word, s->n);
    for (size_t c = 0; c < s->n && status == TR_OK; c++) {
        if (!word[c]) continue;
        take_word(&s->column[c]);
        *again = true;
        if (first == s->n) first = c;
    }
    free(word);
    bool says = *again && !(data->state->form & TR_DATA_NODE);
    if (status == TR_OK && says) status = say_change(data, seen, first);
    if (status == TR_OK && *again) status = tr_schema_number(s);
    return tr_agree(tr, status);
}

/* ---- means ---- */

static double mean_of(double sum, double apart, double n)
{
    if (n == 0) return 0;
    double mean = sum / n, spread = sqrt(apart / n);
    if (!(spread > 0) || !isfinite(1 / spread)) return mean;
    double unit =
        exp2(floor(log2(spread)) - 10); /* rounding in another order, on other ranks, leads to the same */
    return unit * round(mean / unit);
}

/* Of the columns in which a number is missing anywhere: Σ w x, and then Σ w (x - mean)², with the weights w of rows. Rows on a disk
 * were noted as they were read. */
static int find_means(tr_data *data, const int32_t *missing, const struct tr_disk_column *noted)
{
    struct tr_schema *s = data->state->schema;
    tr_context *tr = data->state->tr;
    struct tr_disk_column *mine;
    double *sum, *count, *apart;
    TR_TRY(TR_NEW(&mine, s->n));
    TR_TRY(TR_NEW(&sum, 3 * s->n));
    count = sum + s->n;
    apart = count + s->n;
    for (size_t c = 0; c < s->n; c++) {
        if (!missing[c]) continue;
        if (noted) mine[c] = noted[c];
        else if (!data->state->on_disk)
            (void)tr_disk_note_numbers(&mine[c], &data->state->rows, data->state->own_weight,
                                       s->column[c].slot);
        sum[c] = mine[c].sum;
        count[c] = mine[c].n;
    }
    int status = tr_all_reduce(tr, TR_SET_ALL, TR_SUM, TR_F64, sum, 2 * s->n);
    for (size_t c = 0; c < s->n; c++) {
        double from_all = count[c] > 0 ? mine[c].mean - sum[c] / count[c] : 0;
        apart[c] = mine[c].apart + mine[c].n * from_all * from_all;
    }
    if (status == TR_OK) status = tr_all_reduce(tr, TR_SET_ALL, TR_SUM, TR_F64, apart, s->n);
    for (size_t c = 0; c < s->n; c++)
        if (missing[c]) s->column[c].mean = mean_of(sum[c], apart[c], count[c]);
    free(mine);
    free(sum);
    return status;
}

static int settle_missing(tr_data *data, const struct tr_reading *in)
{
    const struct tr_column_seen *seen = in->seen;
    struct tr_schema *s = data->state->schema;
    tr_context *tr = data->state->tr;
    int32_t *missing, any = 0;
    TR_TRY(tr_agree(tr, TR_NEW(&missing, s->n)));
    for (size_t c = 0; seen && c < s->n; c++) missing[c] = seen[c].missing;
    int status = tr_all_reduce(tr, TR_SET_ALL, TR_MAX, TR_I32, missing, s->n);
    for (size_t c = 0; c < s->n; c++) {
        s->column[c].missing = missing[c] && s->column[c].type == TR_COLUMN_NUMBER;
        missing[c] = s->column[c].missing && !s->column[c].raw;
        any |= missing[c];
    }
    if (status == TR_OK && any) status = find_means(data, missing, in->writer.column);
    free(missing);
    return status;
}

/* ---- dictionaries ---- */

static void counted_free(struct tr_counted **counted, size_t n)
{
    for (size_t c = 0; *counted && c < n; c++) free((void *)(uintptr_t)(*counted)[c].count);
    free(*counted);
    *counted = NULL;
}

/* How many rows have each value of each category; of rows on a disk that was noted. */
static int count_values(const struct tr_schema *s, const struct tr_column_seen *seen,
                        const struct tr_matrix *m, const struct tr_disk_column *noted,
                        struct tr_counted **counted)
{
    static const struct tr_ids none = {.are_text = true};
    TR_TRY(TR_NEW(counted, s->n));
    for (size_t c = 0; c < s->n; c++) {
        uint64_t *count;
        bool category = s->column[c].type == TR_COLUMN_CATEGORY && seen;
        (*counted)[c].values = category ? &seen[c].values : &none;
        TR_TRY(TR_NEW(&count, category ? seen[c].values.n : 0));
        (*counted)[c].count = count;
        if (category && noted && seen[c].values.n > 0)
            memcpy(count, noted[c].count, seen[c].values.n * sizeof *count);
        for (size_t i = 0; category && !noted && m && i < m->rows; i++)
            count[tr_slot_place(m->value[i * m->columns + s->column[c].slot])]++;
    }
    return TR_OK;
}

static void numbers_free(uint32_t ***number, size_t n)
{
    for (size_t c = 0; *number && c < n; c++) free((*number)[c]);
    free(*number);
    *number = NULL;
}

/* Numbers for the values that this worker has met; of training data they are found out. Agreed on. */
static int number_values(tr_data *data, bool makes, const struct tr_column_seen *seen,
                         const struct tr_matrix *m, const struct tr_disk_column *noted, uint32_t ***number)
{
    struct tr_schema *s = data->state->schema;
    tr_context *tr = data->state->tr;
    const tr_job *job = tr->job;
    struct tr_counted *counted = NULL;
    struct tr_dictionary_column *column = NULL;
    int status = TR_NEW(number, s->n);
    if (status == TR_OK) status = TR_NEW(&column, s->n);
    if (status == TR_OK) status = count_values(s, seen, m, noted, &counted);
    status = tr_agree(tr, status); /* as what follows is */
    if (status == TR_OK && makes)
        status = tr_dictionary_make(tr, counted, s->n, job->data.min_count, job->data.most_values,
                                    &s->dictionary, column, *number);
    else if (status == TR_OK) status = tr_dictionary_find(tr, s->dictionary, counted, s->n, *number);
    for (size_t c = 0; c < s->n && makes && status == TR_OK; c++) {
        s->column[c].values = (uint32_t)column[c].values;
        s->column[c].others = column[c].others;
    }
    counted_free(&counted, s->n);
    free(column);
    return status;
}

/* ---- labels ---- */

struct label_name {
    const char *text;
    size_t n;
};

static int label_compare(const void *a, const void *b)
{
    const struct label_name *x = a, *y = b;
    return tr_value_compare(x->text, x->n, y->text, y->n);
}

static int gather_labels(tr_data *data, const struct tr_column_seen *seen)
{
    static const struct tr_ids none = {.are_text = true};
    struct tr_schema *s = data->state->schema;
    tr_context *tr = data->state->tr;
    struct tr_dictionary *d = NULL;
    struct tr_dictionary_column column;
    uint64_t *count;
    uint32_t *number = NULL;
    struct label_name *sorted = NULL;
    struct tr_ids all = {.are_text = true};
    struct tr_counted mine = {.values = seen ? &seen[s->label].values : &none};
    TR_TRY(tr_agree(tr, TR_NEW(&count, mine.values->n)));
    for (size_t i = 0; i < mine.values->n; i++) count[i] = 1;
    mine.count = count;
    int status = tr_dictionary_make(tr, &mine, 1, 1, 0, &d, &column, &number);
    free(count);
    free(number);
    TR_TRY(status);
    TR_TRY(tr_names_gather(tr_dictionary_names(d), &all));
    if (column.values >= TR_LABELS_MOST) {
        char name[TR_SHOWN_NAME];
        tr_schema_column_text(s, s->label, name);
        status = tr_fail(TR_ERR_DATA, "%s: column %s has %llu different labels, expected at most %d classes",
                         data->state->files.file[0].path, name, (unsigned long long)column.values,
                         TR_LABELS_MOST - 1);
    }
    if (status == TR_OK) status = TR_NEW(&sorted, all.n);
    for (size_t i = 0; i < all.n && status == TR_OK; i++) sorted[i].text = tr_ids_text(&all, i, &sorted[i].n);
    if (status == TR_OK && all.n > 0) qsort(sorted, all.n, sizeof *sorted, label_compare);
    for (size_t i = 0; i < all.n && status == TR_OK; i++) {
        uint32_t place;
        status = tr_ids_add_text(&s->labels, sorted[i].text, sorted[i].n, &place);
    }
    free(sorted);
    tr_ids_free(&all);
    tr_dictionary_free(&d);
    return tr_agree(tr, status);
}

/* From places in what this worker has met to numbers of classes, in the order of their names. */
static int number_labels(tr_data *data, const struct tr_column_seen *seen, struct tr_labels *labels)
{
    const struct tr_schema *s = data->state->schema;
    struct tr_matrix *m = &data->state->rows;
    uint32_t *class;
    if (!seen) return TR_OK;
    const struct tr_ids *values = &seen[s->label].values;
    TR_TRY(TR_NEW(&class, values->n));
    for (size_t i = 0; i < values->n; i++) {
        size_t n;
        const char *text = tr_ids_text(values, i, &n);
        class[i] = tr_ids_find_text(&s->labels, text, n);
    }
    for (size_t i = 0; m->label && i < m->rows; i++) m->label[i] = (float)class[(size_t)m->label[i]];
    for (size_t i = 0; i < labels->bits.n; i++) {
        float label = (float)class[(size_t)tr_labels_value(labels, i)];
        uint32_t bits;
        memcpy(&bits, &label, sizeof bits);
        labels->bits.number[i] = bits;
    }
    free(class);
    return TR_OK;
}

static int settle_labels(tr_data *data, const struct tr_column_seen *seen, struct tr_labels *labels)
{
    const struct tr_schema *s = data->state->schema;
    if (s->label == s->n || s->column[s->label].type != TR_COLUMN_NAMED_LABEL || s->positive) return TR_OK;
    TR_TRY(gather_labels(data, seen));
    return tr_agree(data->state->tr, number_labels(data, seen, labels));
}

/* ---- rows of keys ---- */

static bool any_missing(const struct tr_schema *s, const struct tr_column_seen *seen)
{
    for (size_t c = 0; c < s->n; c++)
        if (s->column[c].type == TR_COLUMN_NUMBER && seen[c].missing) return true;
    return false;
}

/* The rows become rows of keys now, or when they are written. */
static int make_rows(tr_data *data, struct tr_reading *in, uint32_t ***number)
{
    struct tr_data_state *state = data->state;
    struct tr_schema *s = state->schema;
    bool plain = s->keys == s->slots && !tr_schema_has_categories(s);
    if (!tr_is(state->tr, TR_SLAVE) || (plain && !any_missing(s, in->seen))) return TR_OK;
    if (!state->on_disk) return tr_schema_expand(s, *number, &state->rows, &state->unknown);
    in->writer.makes_keys = true;
    in->writer.columns = s->n;
    in->writer.number = *number;
    *number = NULL;
    return TR_OK;
}

int tr_schema_make_keys(tr_data *data, const tr_data *like, struct tr_reading *in)
{
    struct tr_data_state *state = data->state;
    struct tr_schema *s = state->schema;
    tr_context *tr = state->tr;
    uint32_t **number = NULL;
    state->unknown = 0;
    if (!like) TR_TRY(settle_missing(data, in));
    if (!like) TR_TRY(settle_labels(data, in->seen, &in->report.labels));
    if (tr_schema_has_dictionaries(s))
        TR_TRY(number_values(data, !like, in->seen, &state->rows, in->writer.column, &number));
    int status = like ? TR_OK : tr_schema_number(s);
    if (status == TR_OK && s->keys == 0)
        status = tr_fail(TR_ERR_DATA, "%s: there is no column besides that of data.label",
                         state->files.file[0].path);
    if (status == TR_OK && s->hash > 0 && !tr_schema_has_categories(s))
        status = tr_fail(TR_ERR_CONFIG, "%s: data.hash is for categories, and there are none",
                         tr_job_where(tr->job, "data.hash"));
    if (status == TR_OK) status = make_rows(data, in, &number);
    numbers_free(&number, s->n);
    status = tr_agree(tr, status);
    data->columns = s->keys;
    if (state->on_disk && s->keys == s->slots && !tr_schema_has_categories(s))
        return status; /* as they were read */
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
        TR_TRY(number_values((tr_data *)(uintptr_t)data, false, seen, m, NULL, &number));
    int status = TR_OK;
    if (m) status = tr_schema_expand(s, number, m, &unknown);
    numbers_free(&number, s->n);
    return tr_agree(data->state->tr, status);
}

/* ---- said ---- */

struct line {
    char text[480];
    size_t n;
};

static void add(struct line *l, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void add(struct line *l, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int n = vsnprintf(l->text + l->n, sizeof l->text - l->n, format, arguments);
    va_end(arguments);
    l->n = tr_min_size(l->n + (size_t)n, sizeof l->text - 1);
}

/* The first few categories with how many values they have. */
static void add_categories(struct line *l, const struct tr_schema *s, size_t n)
{
    enum { SHOWN = 4 };
    size_t k = 0;
    add(l, "%s%zu categor%s (", l->n ? ", " : "", n, n == 1 ? "y" : "ies");
    for (size_t c = 0; c < s->n && k <= SHOWN; c++) {
        char name[TR_SHOWN_NAME];
        if (s->column[c].type != TR_COLUMN_CATEGORY) continue;
        tr_schema_column_text(s, c, name);
        if (k < SHOWN && s->hash > 0) add(l, "%s%.40s", k ? ", " : "", name);
        else if (k < SHOWN)
            add(l, "%s%.40s %u%s", k ? ", " : "", name, s->column[c].values, s->column[c].others ? "+" : "");
        else add(l, ", …");
        k++;
    }
    if (s->hash > 0) add(l, ", hashed to %llu keys", (unsigned long long)s->hash);
    add(l, ")");
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
    size_t numbers = 0, categories = 0, ignored = 0, missing = 0;
    struct line l = {.n = 0};
    char name[TR_SHOWN_NAME];
    for (size_t c = 0; c < s->n; c++) {
        numbers += s->column[c].type == TR_COLUMN_NUMBER;
        categories += s->column[c].type == TR_COLUMN_CATEGORY;
        ignored += s->column[c].type == TR_COLUMN_ID || s->column[c].type == TR_COLUMN_IGNORE;
        missing += s->column[c].missing;
    }
    if (numbers) add(&l, "%zu number%s", numbers, numbers == 1 ? "" : "s");
    if (categories) add_categories(&l, s, categories);
    if (ignored) add(&l, ", %zu ignored", ignored);
    if (missing) add(&l, ", missing values in %zu", missing);
    if (s->label < s->n) {
        tr_schema_column_text(s, s->label, name);
        add(&l, "; label %s%s", s->named ? "" : "column ", name);
        if (s->labels.n > 0) add(&l, " of %zu names", s->labels.n);
    }
    if (tr_schema_weight(s) < s->n) {
        tr_schema_column_text(s, tr_schema_weight(s), name);
        add(&l, "; weight %s%s", s->named ? "" : "column ", name);
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
