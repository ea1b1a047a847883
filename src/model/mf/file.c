#include "model/mf/file.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "trireme/base.h"
#include "trireme/rows.h"

/* Rows that are written at once. */
enum { PIECE = 4096 };

/* ---- names ---- */

struct name_writer {
    struct tr_h5_writer *h5;
    size_t longest;
    char *text; /* some, padded */
    size_t room;
};

static int measure(void *state, const tr_names_piece *piece)
{
    struct name_writer *w = state;
    for (size_t i = 0; piece->begin && i < piece->n; i++)
        w->longest = tr_max_size(w->longest, (size_t)(piece->begin[i + 1] - piece->begin[i]));
    return TR_OK;
}

static int write_piece(void *state, const tr_names_piece *piece)
{
    struct name_writer *w = state;
    if (piece->number) return tr_h5_append(w->h5, piece->number, piece->n);
    TR_TRY(TR_GROW(&w->text, &w->room, piece->n * w->longest + 1));
    memset(w->text, 0, piece->n * w->longest);
    for (size_t i = 0; i < piece->n; i++)
        memcpy(w->text + i * w->longest, piece->text + piece->begin[i],
               (size_t)(piece->begin[i + 1] - piece->begin[i]));
    return tr_h5_append(w->h5, w->text, piece->n);
}

/* All ranks; h5 on rank 0. */
static int write_names(const struct tr_mf *m, const char *name, const tr_names *names,
                       struct tr_h5_writer *h5)
{
    struct name_writer w = {.h5 = h5, .longest = 1};
    bool numbers = tr_names_are_numbers(names);
    int status = TR_OK;
    if (!numbers) TR_TRY(tr_names_each(names, measure, &w));
    if (h5 && numbers) status = tr_h5_begin(h5, name, TR_H5_U64, tr_names_count(names), 0);
    else if (h5) status = tr_h5_begin_texts(h5, name, tr_names_count(names), w.longest);
    if (h5 && status == TR_OK) status = tr_h5_describe(h5, "rows", "what the rows are called in the data");
    TR_TRY(tr_agree(m->tr, status));
    status = tr_names_each(names, write_piece, &w);
    free(w.text);
    return status;
}

/* ---- rows ---- */

struct row_writer {
    const struct tr_mf *m;
    size_t from, columns; /* of a row of the table, these */
    float *piece;
};

static int place_row(void *state, const tr_row *row)
{
    struct row_writer *w = state;
    float *to = w->piece + row->place * w->columns;
    memcpy(to, (const float *)row->value + w->from, w->columns * sizeof(float));
    if (w->from == 0) tr_mf_clip(w->m, to);
    return TR_OK;
}

static int append_rows(tr_table *table, uint64_t n, struct row_writer *w, tr_key *keys,
                       struct tr_h5_writer *h5)
{
    for (uint64_t first = 0; first < n; first += PIECE) {
        size_t some = tr_min_size(PIECE, (size_t)(n - first));
        for (size_t i = 0; i < some; i++) keys[i] = first + i;
        TR_TRY(tr_rows_pull(table, keys, some, place_row, w));
        TR_TRY(tr_h5_append(h5, w->piece, some));
    }
    return TR_OK;
}

/* Columns of all rows of a table: as a matrix, or as a list where there is one. */
static int write_rows(const struct tr_mf *m, tr_table *table, uint64_t n, const char *name, size_t from,
                      size_t columns, bool list, struct tr_h5_writer *h5)
{
    struct row_writer w = {.m = m, .from = from, .columns = columns};
    tr_key *keys = NULL;
    int status = TR_NEW(&w.piece, PIECE * columns);
    if (status == TR_OK) status = TR_NEW(&keys, PIECE);
    if (status == TR_OK) status = tr_h5_begin(h5, name, TR_H5_F32, n, list ? 0 : columns);
    if (status == TR_OK) status = append_rows(table, n, &w, keys, h5);
    free(w.piece);
    free(keys);
    return status;
}

static int write_side(const struct tr_mf *m, tr_table *table, uint64_t n, const char *name, const char *bias,
                      struct tr_h5_writer *h5)
{
    TR_TRY(write_rows(m, table, n, name, 0, m->rank, false, h5));
    TR_TRY(tr_h5_describe(h5, "columns", "factors"));
    return m->bias ? write_rows(m, table, n, bias, m->rank, 1, true, h5) : TR_OK;
}

static int put_attributes(const struct tr_mf *m, struct tr_h5_writer *h5)
{
    TR_TRY(tr_h5_put_text(h5, "method", m->o.als ? "als" : "sgd"));
    TR_TRY(tr_h5_put_count(h5, "rank", m->rank));
    TR_TRY(tr_h5_put_count(h5, "users", m->users));
    TR_TRY(tr_h5_put_count(h5, "items", m->items));
    TR_TRY(tr_h5_put_count(h5, "ratings", m->train->total_nonzeros));
    TR_TRY(tr_h5_put_real(h5, "mean", m->average));
    TR_TRY(tr_h5_put_count(h5, "centred", m->centred));
    TR_TRY(tr_h5_put_count(h5, "bias", m->bias));
    TR_TRY(tr_h5_put_count(h5, "implicit", m->o.implicit));
    TR_TRY(tr_h5_put_real(h5, "l2", m->o.l2));
    TR_TRY(tr_h5_put_real(h5, "train_rmse", m->train_rmse));
    return tr_h5_put_real(h5, "test_rmse", m->test_rmse);
}

static int create(const struct tr_mf *m, const char *folder, struct tr_h5_writer **h5)
{
    char *job;
    TR_TRY(tr_job_as_text(tr_context_job(m->tr), &job));
    int status = tr_h5_create(folder, TR_MF_FORMAT, TR_MF_FORMAT_VERSION, job, NULL, h5);
    free(job);
    TR_TRY(status);
    TR_TRY(put_attributes(m, *h5));
    TR_TRY(write_side(m, m->user_table, m->users, "users", "user_bias", *h5));
    return write_side(m, m->item_table, m->items, "items", "item_bias", *h5);
}

int tr_mf_save(struct tr_mf *m, const char *folder)
{
    struct tr_h5_writer *h5 = NULL;
    int status = tr_rank(m->tr) == 0 ? create(m, folder, &h5) : TR_OK;
    status = tr_agree(m->tr, status);
    if (status == TR_OK) status = write_names(m, "user_ids", m->train->row_names, h5);
    if (status == TR_OK) status = write_names(m, "item_ids", m->train->column_names, h5);
    if (status != TR_OK) {
        tr_h5_abandon(&h5);
        return status;
    }
    return tr_agree(m->tr, h5 ? tr_h5_finish(&h5) : TR_OK);
}

/* ---- reading ---- */

static int load_texts(struct tr_h5_reader *h5, const char *name, struct tr_mf_saved_side *side)
{
    char *padded, *text;
    size_t length, at = 0;
    uint64_t *begin;
    TR_TRY(tr_h5_get_texts(h5, name, side->n, &padded, &length));
    side->name_memory[0] = text = padded; /* moved together where they are */
    TR_TRY(TR_NEW(&begin, side->n + 1));
    side->name_memory[1] = begin;
    for (size_t i = 0; i < side->n; i++) {
        size_t n = strlen(padded + i * length);
        memmove(text + at, padded + i * length, n);
        at += n;
        begin[i + 1] = at;
    }
    side->names = (struct tr_name_list){.n = side->n, .begin = begin, .text = text};
    return TR_OK;
}

static int load_names(struct tr_h5_reader *h5, const char *name, struct tr_mf_saved_side *side)
{
    uint64_t *number;
    int status = tr_h5_get(h5, name, TR_H5_U64, side->n, 0, &number);
    if (status != TR_OK) return load_texts(h5, name, side);
    side->name_memory[0] = number;
    side->names = (struct tr_name_list){.n = side->n, .number = number};
    return TR_OK;
}

static int load_side(struct tr_h5_reader *h5, const struct tr_mf_saved *m, const char *rows, const char *bias,
                     const char *ids, struct tr_mf_saved_side *side)
{
    TR_TRY(tr_h5_get_count(h5, rows, &side->n));
    TR_TRY(tr_h5_get(h5, rows, TR_H5_F32, side->n, m->rank, &side->row));
    if (m->bias) TR_TRY(tr_h5_get(h5, bias, TR_H5_F32, side->n, 0, &side->bias));
    return load_names(h5, ids, side);
}

static int load_all(struct tr_h5_reader *h5, struct tr_mf_saved *m)
{
    uint64_t centred, bias, implicit;
    TR_TRY(tr_copy_string(tr_h5_path(h5), &m->path));
    TR_TRY(tr_h5_get_text(h5, "method", &m->method));
    TR_TRY(tr_h5_get_job(h5, &m->job));
    TR_TRY(tr_h5_get_count(h5, "rank", &m->rank));
    TR_TRY(tr_h5_get_count(h5, "ratings", &m->ratings));
    TR_TRY(tr_h5_get_count(h5, "centred", &centred));
    TR_TRY(tr_h5_get_count(h5, "bias", &bias));
    TR_TRY(tr_h5_get_count(h5, "implicit", &implicit));
    m->centred = centred != 0;
    m->bias = bias != 0;
    m->implicit = implicit != 0;
    TR_TRY(tr_h5_get_real(h5, "mean", &m->mean));
    TR_TRY(tr_h5_get_real(h5, "l2", &m->l2));
    TR_TRY(tr_h5_get_real(h5, "train_rmse", &m->train_rmse));
    TR_TRY(tr_h5_get_real(h5, "test_rmse", &m->test_rmse));
    TR_TRY(load_side(h5, m, "users", "user_bias", "user_ids", &m->user));
    return load_side(h5, m, "items", "item_bias", "item_ids", &m->item);
}

int tr_mf_load(const char *path, struct tr_mf_saved **model)
{
    struct tr_h5_reader *h5;
    TR_TRY(tr_h5_open(path, TR_MF_FORMAT, TR_MF_FORMAT_VERSION, &h5));
    int status = TR_NEW(model, 1);
    if (status == TR_OK) status = load_all(h5, *model);
    tr_h5_close(&h5);
    if (status != TR_OK) tr_mf_saved_free(model);
    return status;
}

static void free_side(struct tr_mf_saved_side *side)
{
    free(side->row);
    free(side->bias);
    free(side->name_memory[0]);
    free(side->name_memory[1]);
}

void tr_mf_saved_free(struct tr_mf_saved **model)
{
    struct tr_mf_saved *m = *model;
    if (!m) return;
    free(m->path);
    free(m->method);
    free(m->job);
    free_side(&m->user);
    free_side(&m->item);
    free(m);
    *model = NULL;
}

/* ---- using it ---- */

double tr_mf_saved_predict(const struct tr_mf_saved *m, uint64_t user, uint64_t item)
{
    bool has_user = user < m->user.n, has_item = item < m->item.n;
    if (!m->bias && (!has_user || !has_item)) return m->implicit ? 0 : m->mean;
    double sum = m->centred ? m->mean : 0;
    if (m->bias && has_user) sum += (double)m->user.bias[user];
    if (m->bias && has_item) sum += (double)m->item.bias[item];
    if (!has_user || !has_item) return sum;
    const float *u = m->user.row + user * m->rank, *v = m->item.row + item * m->rank;
    for (uint64_t k = 0; k < m->rank; k++) sum += (double)u[k] * (double)v[k];
    return sum;
}

struct candidate {
    double rating;
    uint64_t item;
};

static int by_rating(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;
    if (x->rating != y->rating) return x->rating > y->rating ? -1 : 1;
    return x->item < y->item ? -1 : x->item > y->item;
}

int tr_mf_saved_best(const struct tr_mf_saved *m, uint64_t user, size_t *n, uint64_t *item, double *rating)
{
    struct candidate *all;
    TR_TRY(TR_NEW(&all, m->item.n));
    for (uint64_t i = 0; i < m->item.n; i++) all[i] = (struct candidate){tr_mf_saved_predict(m, user, i), i};
    qsort(all, m->item.n, sizeof *all, by_rating);
    *n = tr_min_size(*n, m->item.n);
    for (size_t i = 0; i < *n; i++) item[i] = all[i].item, rating[i] = all[i].rating;
    free(all);
    return TR_OK;
}
