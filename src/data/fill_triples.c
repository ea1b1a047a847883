/* Rows of ratings and of bags of words, as all workers have read them. */
#define _GNU_SOURCE
#include "data/part.h"

#include <stdlib.h>

#include "data/node_table.h"
#include "data/renumber.h"
#include "data/shuffle.h"

/* Reads again, as text, if somebody has found an id that is no number. */
static int read_ids(tr_data *data, const tr_data *like, struct tr_part *part)
{
    tr_context *tr = data->state->tr;
    for (size_t i = 0; i < data->state->files.n && !like;
         i++) { /* so that nothing is read twice, as a rule */
        part->text_rows |= data->state->heads[i].text_rows;
        part->text_columns |= data->state->heads[i].text_columns;
    }
    if (like && like->row_names) part->text_rows = !tr_names_are_numbers(like->row_names);
    if (like && like->column_names) part->text_columns = !tr_names_are_numbers(like->column_names);
    for (;;) {
        int32_t before = part->text_rows + part->text_columns, text[2];
        TR_TRY(tr_agree(tr, tr_part_read(data, like, part)));
        text[0] = part->text_rows || part->report.text_rows;
        text[1] = part->text_columns || part->report.text_columns;
        TR_TRY(tr_all_reduce(tr, TR_SET_ALL, TR_MAX, TR_I32, text, 2));
        part->text_rows = text[0];
        part->text_columns = text[1];
        if (text[0] + text[1] == before) return TR_OK;
        tr_triples_free(&part->triples);
        free(data->state->row_number);
        data->state->row_number = NULL;
        part->runs.n = 0;
    }
}

/* From places in what this worker has met to numbers of all workers. */
static int number_ids(tr_data *data, const tr_data *like, struct tr_part *part)
{
    struct tr_data_state *s = data->state;
    struct tr_triples *t = &part->triples;
    uint32_t *row = NULL, *column = NULL;
    t->rows.are_text = part->text_rows;
    t->columns.are_text = part->text_columns;
    TR_TRY(TR_NEW(&row, t->rows.n));
    TR_TRY(TR_NEW(&column, t->columns.n));
    size_t workers = (size_t)tr_layout_workers(&s->tr->layout);
    TR_TRY(tr_names_unite(s->tr, &t->rows, like ? like->row_names : NULL, workers, row, &s->row_names));
    TR_TRY(tr_names_unite(s->tr, &t->columns, like ? like->column_names : NULL, workers, column,
                          &s->column_names));
    tr_ids_free(&t->rows);
    tr_ids_free(&t->columns);
    for (size_t i = 0; i < t->n; i++) {
        t->triple[i].row = row[t->triple[i].row];
        t->triple[i].column = column[t->triple[i].column];
    }
    free(row);
    free(column);
    data->row_names = s->row_names;
    data->column_names = s->column_names;
    data->row_numbers = tr_names_first(s->row_names) + tr_names_count(s->row_names);
    data->columns = tr_names_first(s->column_names) + tr_names_count(s->column_names);
    part->columns = (size_t)data->columns;
    return TR_OK;
}

/* Whether pieces of a file's text have gone to several readers in turns. */
static bool is_in_turns(const struct tr_files *files, size_t readers)
{
    for (size_t i = 0; i < files->n; i++) {
        struct tr_file_part part = {.readers = 0};
        if (files->file[i].packing) tr_files_part(files, i, 0, readers, &part);
        if (part.readers > 1) return true;
    }
    return false;
}

/* Rows at their workers, columns ascending, pairs once. */
static int finish_triples(tr_data *data, struct tr_part *part)
{
    struct tr_data_state *s = data->state;
    tr_context *tr = s->tr;
    const tr_job *job = tr->job;
    struct tr_matrix *m = &s->rows;
    bool ratings = data->format == TR_FORMAT_RATINGS;
    bool in_turns = ratings && is_in_turns(&s->files, (size_t)tr_layout_workers(&tr->layout));
    TR_TRY(tr_shuffle_triples(tr, data->row_numbers, job->data.order == TR_ORDER_DEALT, s->files.n, in_turns,
                              &part->triples));
    TR_TRY(tr_triples_to_rows(&part->triples, data->row_numbers, part->columns, m, &s->row_number));
    if (!ratings) (void)tr_matrix_limit(m, 0, data->columns);
    tr_rows_merge(m, ratings ? job->data.duplicates : TR_DUPLICATES_SUM);
    for (size_t k = 0; k < tr_matrix_nonzeros(m); k++) data->total_values += (double)m->value[k];
    data->total_rows = m->rows;
    data->total_nonzeros = tr_matrix_nonzeros(m);
    if (tr_data_has_copy(tr)) TR_TRY(tr_replicate_rows(tr, TR_SET_GROUP, m, &s->row_number));
    return tr_part_number_keys(data, part);
}

/* What the headers say; test data have the words of training. */
static int number_documents(tr_data *data, const tr_data *like, struct tr_part *part)
{
    struct tr_data_state *s = data->state;
    size_t first = 0;
    while (first + 1 < s->files.n && s->files.file[first].size == 0) first++;
    part->columns = (size_t)s->heads[first].words;
    data->columns = like ? like->columns : part->columns;
    data->row_numbers = tr_docword_base(&s->files, s->heads, s->files.n);
    return tr_docword_check(&s->files, s->heads, part->records);
}

int tr_fill_triples(tr_data *data, const tr_data *like, struct tr_part *part)
{
    struct tr_data_state *s = data->state;
    tr_context *tr = s->tr;
    struct tr_totals totals;
    TR_TRY(tr_agree(tr, TR_NEW(&part->records, s->files.n)));
    TR_TRY(read_ids(data, like, part));
    TR_TRY(tr_part_totals(tr, &part->report, &totals));
    data->skipped = totals.skipped;
    TR_TRY(tr_all_reduce(tr, TR_SET_ALL, TR_SUM, TR_I64, part->records, s->files.n));
    int status = data->format == TR_FORMAT_DOCWORD ? number_documents(data, like, part) : TR_OK;
    if (status == TR_OK && totals.rows == 0) status = tr_part_no_record(data);
    TR_TRY(tr_agree(tr, status));
    if (s->form & TR_DATA_NODE) return tr_agree(tr, tr_node_triples_unite(data, part));
    if (data->format == TR_FORMAT_RATINGS) TR_TRY(number_ids(data, like, part));
    TR_TRY(tr_agree(tr, tr_is(tr, TR_SLAVE) ? finish_triples(data, part) : TR_OK));
    TR_TRY(tr_all_reduce(tr, TR_SET_ALL, TR_SUM, TR_I64, &data->total_rows, 1));
    TR_TRY(tr_all_reduce(tr, TR_SET_ALL, TR_SUM, TR_I64, &data->total_nonzeros, 1));
    return tr_all_reduce(tr, TR_SET_ALL, TR_SUM, TR_F64, &data->total_values, 1);
}
