/* The commands predict, evaluate and inspect for models of any class. */
#define _GNU_SOURCE
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/escape.h"
#include "class/class.h"
#include "data/reader.h"
#include "ranks/ranks.h"
#include "trireme/collective.h"

struct output {
    char *name;
    int digits; /* see query_print_number() */
};

struct figure {
    char *name;
    double value;
    char *text;     /* the value as it is printed; NULL: the figure is for --json only */
    bool text_only; /* the figure is not for --json */
};

struct tr_query {
    const struct tr_ask *ask;
    const struct tr_model *model;
    tr_read_options rows; /* how rows are read */
    struct output *output;
    struct figure *figure;
    struct tr_curve *curve;
    size_t outputs, output_capacity, figures, figure_capacity, curves, curve_capacity;
    tr_read_counts counts;
    float *offset; /* the numbers of ask->offset */
    size_t offsets, offset_capacity;
    double *out; /* outputs of the current rows, one row after the other */
    size_t out_capacity;
    uint64_t n, unknown; /* number of rows, and of non-zeros in columns that the model does not have */
};

/* ---- interface for models ---- */

enum tr_asked tr_query_command(const tr_query *q)
{
    return q->ask->command;
}

const char *tr_query_text(const tr_query *q, const char *flag)
{
    for (size_t i = 0; i < q->ask->n_given; i++)
        if (!strcmp(q->ask->given[i].name, flag)) return q->ask->given[i].value ? q->ask->given[i].value : "";
    return NULL;
}

bool tr_query_given(const tr_query *q, const char *flag)
{
    return tr_query_text(q, flag) != NULL;
}

const char *tr_query_id(const tr_query *q)
{
    return q->ask->id;
}

long tr_query_number(const tr_query *q, const char *flag, long otherwise)
{
    const char *text = tr_query_text(q, flag);
    return text ? strtol(text, NULL, 10) : otherwise;
}

char *const *tr_query_files(const tr_query *q, size_t *n)
{
    *n = q->ask->files;
    return q->ask->file;
}

int tr_query_ratings(const tr_query *q, bool labelled, tr_rating_fn *rating, void *state)
{
    const tr_job *job = q->model->job;
    tr_read_options options = {
        .labelled = labelled, .job = job, .max_record = job ? job->data.max_record : 0};
    return tr_read_ratings(q->ask->file, q->ask->files, &options, rating, state);
}

void tr_query_rows(tr_query *q, enum tr_row_form form, uint64_t columns, uint64_t first_index)
{
    q->rows.form = form;
    q->rows.columns = columns;
    q->rows.first_index = (uint32_t)first_index;
}

void tr_query_label(tr_query *q, int label)
{
    q->rows.label = label;
}

int tr_query_output(tr_query *q, const char *name, int digits)
{
    TR_TRY(TR_GROW(&q->output, &q->output_capacity, q->outputs + 1));
    q->output[q->outputs] = (struct output){.digits = digits};
    TR_TRY(tr_copy_string(name, &q->output[q->outputs].name));
    q->outputs++;
    return TR_OK;
}

static int query_cannot_write(const tr_query *q)
{
    return tr_fail(TR_ERR_IO, "%s: cannot be written: %s", q->ask->output, strerror(errno));
}

int tr_print_id(tr_query *q, const char *text, size_t n)
{
    tr_put_visible(q->ask->out, text, n);
    return putc('\t', q->ask->out) < 0 ? query_cannot_write(q) : TR_OK;
}

int tr_print(tr_query *q, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int n = tr_vprintf(q->ask->out, format, arguments);
    va_end(arguments);
    return n < 0 ? query_cannot_write(q) : TR_OK;
}

static int query_add_figure(tr_query *q, const char *name, const struct figure *figure, const char *format,
                            va_list arguments)
{
    TR_TRY(TR_GROW(&q->figure, &q->figure_capacity, q->figures + 1));
    struct figure *f = &q->figure[q->figures];
    *f = *figure;
    TR_TRY(tr_copy_string(name, &f->name));
    q->figures++;
    if (format && vasprintf(&f->text, format, arguments) < 0) return tr_fail(TR_ERR_SYSTEM, "out of memory");
    return TR_OK;
}

int tr_figure(tr_query *q, const char *name, double value, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int status = query_add_figure(q, name, &(struct figure){.value = value}, format, arguments);
    va_end(arguments);
    return status;
}

int tr_figure_text(tr_query *q, const char *name, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int status = query_add_figure(q, name, &(struct figure){.text_only = true}, format, arguments);
    va_end(arguments);
    return status;
}

int tr_figure_curve(tr_query *q, const char *name, const char *x, const char *y, size_t n, double (*point)[2])
{
    TR_TRY(TR_GROW(&q->curve, &q->curve_capacity, q->curves + 1));
    struct tr_curve *c = &q->curve[q->curves++];
    *c = (struct tr_curve){.n = n};
    TR_TRY(TR_NEW(&c->point, n));
    if (n > 0) memcpy(c->point, point, n * sizeof *point);
    TR_TRY(tr_copy_string(name, &c->name));
    TR_TRY(tr_copy_string(x, &c->x));
    return tr_copy_string(y, &c->y);
}

void tr_line(tr_query *q, const char *name, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    tr_printf(q->ask->out, "%-13s ", name);
    tr_vprintf(q->ask->out, format, arguments);
    putc('\n', q->ask->out);
    va_end(arguments);
}

/* ---- names ---- */

void tr_query_label_text(const tr_query *q, float label, char text[TR_LABEL_TEXT])
{
    tr_schema_label_text(q->model->schema, label, text);
}

void tr_query_key_text(const tr_query *q, uint64_t key, uint64_t first_index, char text[TR_LABEL_TEXT])
{
    const struct tr_schema *s = q->model->schema;
    if (s && key < s->keys) tr_schema_key_text(s, key, text);
    else snprintf(text, TR_LABEL_TEXT, "%" PRIu64, key + first_index);
}

void tr_query_value_text(const tr_query *q, uint64_t column, uint64_t value, char text[TR_LABEL_TEXT])
{
    const struct tr_schema *s = q->model->schema;
    if (s && column < s->keys) tr_schema_value_text(s, column, value, text);
    else snprintf(text, TR_LABEL_TEXT, "%" PRIu64, value);
}

/* ---- rows ---- */

static bool class_reads_format(const tr_model_class *class, const char *format)
{
    for (size_t i = 0; class->data_formats[i]; i++)
        if (!strcmp(class->data_formats[i], format)) return true;
    return false;
}

/* Prints a number with `digits` digits. TR_SHORTEST: with the digits that identify a float; TR_AS_LABEL: as a label's name. */
static bool query_print_number(const tr_query *q, double value, int digits)
{
    FILE *file = q->ask->out;
    char text[TR_NUMBER_ROOM];
    bool names = q->model->schema && q->model->schema->labels.n > 0;
    if (digits == TR_AS_LABEL && (names || value != rint(value))) {
        char name[TR_LABEL_TEXT];
        tr_query_label_text(q, (float)value, name);
        return tr_printf(file, "%s", name) >= 0;
    }
    if (digits >= 0) return fprintf(file, "%.*g", digits > 0 ? digits : 17, value) >= 0;
    size_t n = (size_t)(tr_put_f32(text, (float)value) - text);
    return fwrite(text, 1, n, file) == n;
}

/* ---- offsets of rows in files ---- */

static int query_add_offset(void *state, const struct tr_extra_line *line)
{
    tr_query *q = state;
    if (line->end) return TR_OK;
    TR_TRY(TR_GROW(&q->offset, &q->offset_capacity, q->offsets + 1));
    q->offset[q->offsets++] = line->number;
    return TR_OK;
}

static int query_fail_offsets(const tr_query *q)
{
    return tr_fail(TR_ERR_DATA, "%s: %zu offsets, but the data have %s%" PRIu64 " rows",
                   tr_shown(q->ask->offset).text, q->offsets, q->n > q->offsets ? "at least " : "", q->n);
}

/* Predicts or evaluates a block of rows. */
static int query_use_rows(void *state, const tr_records *records)
{
    tr_query *q = state;
    const tr_model_class *class = q->model->class;
    FILE *file = q->ask->out;
    size_t n = records->rows.n;
    q->n += n;
    q->unknown += records->unknown;
    TR_TRY(TR_GROW(&q->out, &q->out_capacity, n * q->outputs));
    tr_records with = *records;
    if (q->ask->offset && q->n > q->offsets) return query_fail_offsets(q);
    if (q->ask->offset) with.rows.offset = q->offset + (q->n - n);
    TR_TRY(class->predict(q->model->model, q, &with, q->out));
    if (q->ask->command != TR_PREDICT) return class->evaluate(q->model->model, q, records, q->out);
    for (size_t i = 0; i < n; i++) {
        if (q->rows.id) {
            const char *id = tr_records_id(records, i);
            TR_TRY(tr_print_id(q, id, strlen(id)));
        }
        if (tr_records_malformed(records, i)) {
            if (fputs("nan\n", file) < 0) return query_cannot_write(q);
            continue;
        }
        for (size_t k = 0; k < q->outputs; k++)
            if (!query_print_number(q, q->out[i * q->outputs + k], q->output[k].digits) ||
                putc(k + 1 < q->outputs ? ' ' : '\n', file) < 0)
                return query_cannot_write(q);
    }
    return TR_OK;
}

static void query_note_unknown(const tr_query *q)
{
    const tr_read_counts *c = &q->counts;
    if (c->unlabelled > 0)
        fprintf(stderr, "trireme: note: %" PRIu64 " rows without a label were left out\n", c->unlabelled);
    if (c->malformed > 0)
        tr_printf(stderr, "trireme: note: %" PRIu64 " malformed rows %s\n", c->malformed,
                  q->rows.every_row ? "have the prediction nan" : "were left out");
    if (c->empty > 0)
        fprintf(stderr,
                "trireme: note: %" PRIu64 " empty lines between rows are no rows: they have no prediction\n",
                c->empty);
    if (q->unknown == 0) return;
    if (q->rows.schema)
        fprintf(stderr,
                "trireme: note: %" PRIu64 " values of categories are not among those of the training data\n",
                q->unknown);
    else
        tr_printf(
            stderr,
            "trireme: note: %" PRIu64 " values belong to %s that the model does not know and were ignored\n",
            q->unknown, strcmp(q->model->class->data_formats[0], "libsvm") == 0 ? "features" : "columns");
}

/* Reads the files, which are searched in data.folders of the job that trained the model. */
static int query_read_files(tr_query *q)
{
    TR_FREED char **path = NULL;
    size_t n = q->ask->files;
    int status = TR_OK;
    if (!q->model->job) return tr_read_rows(q->ask->file, n, &q->rows, query_use_rows, q);
    TR_TRY(TR_NEW(&path, n));
    for (size_t i = 0; i < n && status == TR_OK; i++)
        status = tr_data_find(q->model->job, q->ask->file[i], &path[i]);
    if (status == TR_OK) status = tr_read_rows(path, n, &q->rows, query_use_rows, q);
    for (size_t i = 0; i < n; i++) free(path[i]);
    return status;
}

static int query_ask_by_rows(tr_query *q)
{
    const tr_model_class *class = q->model->class;
    bool evaluates = q->ask->command == TR_EVALUATE;
    if (!class->predict || (evaluates && (!class->evaluate || !class->figures)))
        return tr_fail(TR_ERR_USAGE, "%s: there is no %s", class->noun,
                       evaluates ? "evaluating" : "predicting");
    if (class->ready) TR_TRY(class->ready(q->model->model, q));
    /* reads the files of data.offset, which a model needs if its training data had such files, too. */
    const tr_job *job = q->model->job;
    const char *trained = job ? job->data.offset : "", *given = q->ask->offset;
    bool column = tr_schema_has_extra(q->rows.schema, TR_EXTRA_OFFSET);
    if (column && given)
        return tr_fail(TR_ERR_USAGE, "data.offset=%s: the offsets are in column %s of the data",
                       tr_shown(given).text, *trained ? tr_shown(trained).text : "of type offset");
    if (!column && *trained && !given)
        return tr_fail(TR_ERR_USAGE,
                       "the model was trained with data.offset %s: expected data.offset=FILE with one number "
                       "for each row of the data",
                       tr_shown(trained).text);
    if (job && !*trained && given)
        return tr_fail(TR_ERR_USAGE, "data.offset=%s: the model was trained without data.offset",
                       tr_shown(given).text);
    TR_TRY(given ? tr_extra_each(job, given, TR_EXTRA_OFFSET, query_add_offset, q) : TR_OK);
    TR_TRY(query_read_files(q));
    if (q->ask->offset && q->n != q->offsets) return query_fail_offsets(q);
    if (!evaluates) return TR_OK;
    if (q->n == 0) return tr_fail(TR_ERR_NO_INPUT, "%s: there is no record in it", q->ask->file[0]);
    return class->figures(q->model->model, q, q->n);
}

/* ---- results ---- */

static void query_show_figures(const tr_query *q)
{
    FILE *file = q->ask->out;
    int width = 8;
    if (q->ask->json) {
        fputs("{\"model\": ", file);
        tr_put_quoted(file, q->model->type);
        for (size_t i = 0; i < q->figures; i++) {
            const struct figure *f = &q->figure[i];
            if (f->text_only) continue;
            fputs(", ", file);
            tr_put_quoted(file, f->name);
            if (isfinite(f->value)) fprintf(file, ": %.17g", f->value);
            else fputs(": null", file);
        }
        if (!q->model->class->answer) fprintf(file, ", \"unknown_values\": %" PRIu64, q->unknown);
        fputs("}\n", file);
        return;
    }
    for (size_t i = 0; i < q->figures; i++)
        if (q->figure[i].text) width = tr_max_int(width, (int)strlen(q->figure[i].name));
    for (size_t i = 0; i < q->figures; i++) {
        const struct figure *f = &q->figure[i];
        if (f->text) tr_printf(file, "%-*s  %s\n", width, f->name, isnan(f->value) ? "not defined" : f->text);
    }
    query_note_unknown(q);
}

static int query_inspect(tr_query *q)
{
    const struct tr_model *m = q->model;
    bool whole = true; /* false: a flag with TR_ALONE is given, so only its result is printed */
    for (const tr_flag *flag = m->class->flags; flag && flag->name; flag++)
        if (flag->commands & TR_ALONE && tr_query_given(q, flag->name)) whole = false;
    if (whole) tr_line(q, "model", "%s", m->type);
    TR_TRY(m->class->inspect ? m->class->inspect(m->model, q) : tr_model_list_fields(m, q));
    if (m->text && whole) {
        fputs("\njob\n", q->ask->out);
        tr_put_lines(q->ask->out, m->text);
    }
    return TR_OK;
}

/* ---- execution ---- */

/* Checks that the class has the flag for this command, and the range of its number. */
static int query_check_flag(const struct tr_model *m, const struct tr_ask *ask, const struct tr_given *given)
{
    const char *command = ask->command == TR_PREDICT    ? "predict"
                          : ask->command == TR_EVALUATE ? "evaluate"
                                                        : "inspect";
    const tr_flag *flag = m->class->flags;
    while (flag && flag->name && (strcmp(flag->name, given->name) != 0 || !(flag->commands & ask->command)))
        flag++;
    if (!flag || !flag->name)
        return tr_fail(TR_ERR_USAGE, "%s: %s is not for %s", command, given->name, m->class->noun);
    char *end = NULL;
    long n = flag->most > 0 && given->value ? strtol(given->value, &end, 10) : 0;
    if (flag->most == 0 || (end && end != given->value && !*end && n >= flag->least && n <= flag->most))
        return TR_OK;
    return tr_fail(TR_ERR_USAGE, "%s: expected a number from %ld to %ld behind %s", command, flag->least,
                   flag->most, flag->name);
}

static int query_run(tr_query *q)
{
    const tr_model_class *class = q->model->class;
    if (q->ask->command == TR_INSPECT) return query_inspect(q);
    if (q->ask->id && class->answer && !class_reads_format(class, "ratings"))
        return tr_fail(TR_ERR_USAGE, "predict: --id is not for %s", class->noun);
    /* determines the format of the rows from the command line, or from the job of the model. */
    static const char *const words[] = {TR_FORMAT_WORDS};
    static const char *const labels[] = {"none", "first", "last"};
    const tr_job *job = q->model->job;
    const char *format = q->ask->format, *by_job = job ? "auto" : class->data_formats[0],
               *only = class->data_formats[1] ? NULL : class->data_formats[0];
    if (format && !class_reads_format(class, format))
        return tr_fail(TR_ERR_USAGE, "unexpected --format %s: %s reads %s", format, class->noun,
                       tr_shown_words(class->data_formats).text);
    if (job) {
        q->rows.label = TR_LABEL_AUTO; /* for models that do not store the columns of their training data */
        for (int i = 0; i < 3; i++)
            if (!strcmp(labels[i], job->data.label)) q->rows.label = i;
        q->rows.job = job;
        q->rows.max_record = job->data.max_record;
        q->rows.skip_errors = job->data.on_error == TR_ON_ERROR_SKIP;
        TR_TRY(tr_job_string(job, "data.format", &by_job));
    }
    const struct tr_schema *schema = q->model->schema;
    if (!format && schema && schema->n > 0) format = "csv";
    q->rows.schema = format && !strcmp(format, "csv") && schema && schema->n > 0 ? schema : NULL;
    q->rows.names = schema;
    if (q->ask->command == TR_EVALUATE && q->rows.schema) q->rows.labelled = true;
    q->rows.every_row = q->ask->command == TR_PREDICT;
    q->rows.counts = &q->counts;
    if (q->ask->on_error) q->rows.skip_errors = strcmp(q->ask->on_error, "skip") == 0;
    if (q->ask->on_error && !q->rows.skip_errors && strcmp(q->ask->on_error, "stop") != 0)
        return tr_fail(TR_ERR_USAGE, "data.on_error=%s: expected stop or skip",
                       tr_shown(q->ask->on_error).text);
    if (!format)
        format = strcmp(by_job, "auto") != 0 && class_reads_format(class, by_job) ? by_job
                 : only                                                           ? only
                                                                                  : "auto";
    for (int i = 0; i < 6; i++)
        if (!strcmp(words[i], format)) q->rows.format = (enum tr_format)i;
    q->rows.id = q->ask->id;
    q->rows.strict = q->ask->strict;
    TR_TRY(class->answer ? class->answer(q->model->model, q) : query_ask_by_rows(q));
    if (q->ask->command == TR_PREDICT) return TR_OK;
    query_show_figures(q);
    return q->ask->draw ? q->ask->draw(q->ask->draw_state, q->curve, q->curves) : TR_OK;
}

static void query_free(tr_query *q)
{
    for (size_t i = 0; i < q->outputs; i++) free(q->output[i].name);
    for (size_t i = 0; i < q->figures; i++) {
        TR_FREE_ALL(q->figure[i].name, q->figure[i].text);
    }
    for (size_t i = 0; i < q->curves; i++) {
        TR_FREE_ALL(q->curve[i].name, q->curve[i].x, q->curve[i].y, q->curve[i].point);
    }
    TR_FREE_ALL(q->curve, q->output, q->figure, q->out, q->offset);
}

/* ---- several ranks ---- */

enum { PIECE = 1 << 20 }; /* maximum bytes of a message with predictions */

static bool query_message_is_here(const tr_context *tr, int rank, MPI_Message *message, int *bytes)
{
    int here = 0;
    MPI_Status status;
    MPI_Improbe(rank, TR_TAG_FIELD, tr->world, &here, message, &status);
    if (here) MPI_Get_count(&status, MPI_BYTE, bytes);
    return here;
}

/* Sends the printed predictions of all ranks to rank 0, which prints them in the order of ranks, the order of the rows. A rank
 * sends them in pieces, and an empty piece at the end. */
static int query_move_printed(const tr_query *q, char *piece)
{
    tr_context *tr = q->ask->tr;
    FILE *file = q->ask->out;
    MPI_Request request;
    if (tr->rank > 0) rewind(file);
    for (size_t n = 1; n > 0 && tr->rank > 0;) {
        n = fread(piece, 1, PIECE, file);
        MPI_Isend(piece, (int)n, MPI_BYTE, 0, TR_TAG_FIELD, tr->world, &request);
        TR_TRY(tr_wait_request(tr, &request, "rank 0 to receive predictions"));
    }
    if (tr->rank > 0 && ferror(file))
        return tr_fail(TR_ERR_IO, "predictions cannot be read back: %s", strerror(errno));
    bool written = true;
    for (int rank = 1; rank < tr->size && tr->rank == 0; rank++)
        for (int n = 1; n > 0;) {
            MPI_Message message;
            TR_WAIT_UNTIL(tr, query_message_is_here(tr, rank, &message, &n),
                          "rank %d to send its predictions", rank);
            MPI_Imrecv(piece, n, MPI_BYTE, &message, &request);
            TR_TRY(tr_wait_request(tr, &request, "the remaining predictions"));
            written = written && fwrite(piece, 1, (size_t)n, file) == (size_t)n;
        }
    return written ? TR_OK : query_cannot_write(q);
}

int tr_model_ask(struct tr_model *model, const struct tr_ask *ask)
{
    tr_query q = {.ask = ask, .model = model};
    int status = TR_OK;
    for (size_t i = 0; i < ask->n_given && status == TR_OK; i++)
        status = query_check_flag(model, ask, &ask->given[i]);
    if (status == TR_OK) status = tr_model_read(model);
    int rank = ask->tr ? ask->tr->rank : 0;
    q.rows.reader = (size_t)rank;
    q.rows.readers = ask->tr && !ask->offset ? (size_t)ask->tr->size : 1;
    bool takes_part = rank == 0 || (!model->class->answer && !ask->offset);
    if (status == TR_OK && takes_part) status = query_run(&q);
    if (ask->tr) {
        TR_FREED char *piece = NULL;
        if (status == TR_OK) status = TR_NEW(&piece, PIECE);
        status = tr_agree(ask->tr, status);
        if (status == TR_OK) status = query_move_printed(&q, piece);
        uint64_t counts[] = {q.unknown, q.counts.unlabelled, q.counts.malformed, q.counts.empty};
        int counted = tr_all_reduce(ask->tr, TR_SET_ALL, TR_SUM, TR_I64, counts, 4);
        q.unknown = counts[0];
        q.counts = (tr_read_counts){counts[1], counts[2], counts[3]};
        if (status == TR_OK) status = counted;
    }
    if (status == TR_OK && rank == 0 && ask->command == TR_PREDICT) query_note_unknown(&q);
    query_free(&q);
    return status;
}

/* ---- rows in memory of the caller ---- */

int tr_query_open(struct tr_model *model, const struct tr_ask *ask, tr_query **query)
{
    TR_TRY(TR_NEW(query, 1));
    **query = (tr_query){.ask = ask, .model = model};
    TR_TRY(tr_model_read(model));
    return model->class->ready ? model->class->ready(model->model, *query) : TR_OK;
}

void tr_query_close(tr_query **query)
{
    if (*query) query_free(*query);
    free(*query);
    *query = NULL;
}

const tr_read_options *tr_query_form(const tr_query *q)
{
    return &q->rows;
}

const char *tr_query_output_name(const tr_query *q, size_t i)
{
    return i < q->outputs ? q->output[i].name : NULL;
}

const char *tr_query_figure(const tr_query *q, size_t i, double *value)
{
    for (size_t k = 0; k < q->figures; k++)
        if (!q->figure[k].text_only && i-- == 0) {
            *value = q->figure[k].value;
            return q->figure[k].name;
        }
    return NULL;
}
