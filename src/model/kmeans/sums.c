#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kmeans.h"

/* Maximum number of centres per key: rows of tables up to this width are stored in one piece. */
enum { WIDEST = 2048 };

static size_t divide_up(size_t a, size_t b)
{
    return (a + b - 1) / b;
}

/* ---- norms, computed by the servers ---- */

/* A query for the norms of the centres in parts first_part .. first_part + parts - 1, followed by the count of each centre.
 * The answer has two exact sums per centre; the second contains the remainders of the first. */
struct question {
    uint64_t all_parts, first_part, parts, width, columns;
    double round, round_rest;
};

static int get_norms(const tr_share *share, const void *question, size_t question_bytes, void *result,
                     size_t *bytes)
{
    struct question q;
    memcpy(&q, question, sizeof q);
    size_t span = (size_t)(q.parts * q.width);
    if (question_bytes != sizeof q + span * sizeof(double) || *bytes < 2 * span * sizeof(double))
        return tr_fail(TR_ERR_INTERNAL, "answer norms: a question of %zu bytes", question_bytes);
    double *count, *sum;
    TR_TRY(TR_NEW(&count, span));
    TR_TRY(TR_NEW(&sum, 2 * span));
    memcpy(count, (const char *)question + sizeof q, span * sizeof *count);
    for (size_t unit = 0; unit < share->units; unit++) {
        tr_key key = tr_share_key(share, unit);
        uint64_t part = key % q.all_parts - q.first_part;
        if (key / q.all_parts >= q.columns || part >= q.parts) continue;
        const double *value = (const double *)share->value + unit * share->width;
        for (size_t i = 0; i < q.width; i++) {
            size_t j = (size_t)part * q.width + i;
            if (value[i] == 0 || !(count[j] > 0)) continue;
            double c = (double)(float)(value[i] / count[j]), square = c * c;
            double much = tr_kmeans_round(square, q.round);
            sum[2 * j] += much;
            sum[2 * j + 1] += tr_kmeans_round(square - much, q.round_rest);
        }
    }
    *bytes = 2 * span * sizeof *sum;
    memcpy(result, sum, *bytes);
    free(count);
    free(sum);
    return TR_OK;
}

static const tr_answer norms = {"kmeans-norms", true, get_norms, tr_answer_add_doubles};

/* ---- the table ---- */

int tr_kmeans_make_table(struct tr_kmeans *m)
{
    tr_context *tr = m->tr;
    size_t shares = m->replicated ? (size_t)m->group_size : 1;
    m->parts = shares * divide_up(divide_up(m->k, shares), WIDEST);
    m->width = divide_up(m->k, m->parts);
    m->my_parts = m->parts / shares;
    m->first_part = m->replicated && m->member >= 0 ? (size_t)m->member * m->my_parts : 0;
    m->span = m->my_parts * m->width;
    m->first = tr_min_size(m->first_part * m->width, m->k);
    m->mine = tr_min_size(m->span, m->k - m->first);
    if (m->sparse) TR_TRY(tr_answer_register(tr, &norms));
    return tr_table_create(tr, "sums", TR_F64, (m->columns + 1) * m->parts, m->width, &m->sums);
}

int tr_kmeans_open_view(struct tr_kmeans *m, struct tr_kmeans_side *side, bool pushes)
{
    tr_key *keys;
    size_t n = 0;
    TR_TRY(TR_NEW(&keys, (side->n_keys + 1) * m->my_parts));
    for (size_t i = 0; i <= side->n_keys; i++) {
        tr_key column = i == side->n_keys ? m->columns : side->keys ? side->keys[i] : i;
        for (size_t p = 0; p < m->my_parts; p++) keys[n++] = column * m->parts + m->first_part + p;
    }
    enum tr_view_use use = !pushes ? TR_VIEW_READ : m->replicated ? TR_VIEW_UPDATE : TR_VIEW_GROUP;
    int status = tr_view_open(m->sums, keys, n, use, &side->view);
    free(keys);
    return status;
}

/* ---- steps ---- */

static double value_at(const tr_batch *rows, size_t i)
{
    return rows->value ? (double)rows->value[i] : 1;
}

static void find_largest(const struct tr_kmeans *m, double *largest)
{
    const tr_batch *rows = &m->train.rows;
    if (!m->sparse) {
        for (size_t i = 0; i < rows->n; i++)
            for (size_t p = 0; p < m->columns; p++) {
                double v = fabs((double)rows->dense[i * m->columns + p]);
                if (v > largest[p]) largest[p] = v;
            }
    } else if (rows->n > 0) {
        for (uint64_t i = 0; i < rows->begin[rows->n]; i++)
            largest[0] = fmax(largest[0], fabs(value_at(rows, i)));
    }
}

/* Returns the rounding constant of values up to `largest`, `numbers` of which are summed: 1.5 × 2^52 steps, where the sum
 * stays below 2^52 steps. Adding and subtracting it rounds a value to a multiple of the step. */
static double rounder(double largest, double numbers)
{
    int bits, more;
    frexp(largest, &bits);
    frexp(numbers, &more);
    return largest > 0 ? ldexp(1.5, bits + more) : 1;
}

/* Computes the mean of all rows and the squared distances of this worker's rows to it. */
static int find_spread(struct tr_kmeans *m)
{
    const tr_batch *rows = &m->train.rows;
    size_t columns = (size_t)m->columns;
    TR_TRY(TR_NEW(&m->shift, columns + 1));
    for (size_t i = 0; i < rows->n; i++)
        for (size_t p = 0; p < columns; p++)
            m->shift[p] += tr_kmeans_round((double)rows->dense[i * columns + p], m->round[p]);
    m->shift[columns] = (double)rows->n;
    TR_TRY(tr_all_reduce(m->tr, TR_SET_ALL, TR_SUM, TR_F64, m->shift, columns + 1));
    for (size_t p = 0; p < columns; p++) m->shift[p] /= m->shift[columns];
    for (size_t i = 0; i < rows->n; i++) {
        double sum = 0;
        for (size_t p = 0; p < columns; p++) {
            double d = (double)rows->dense[i * columns + p] - m->shift[p];
            sum += d * d;
        }
        m->spread += sum;
    }
    return TR_OK;
}

int tr_kmeans_make_steps(struct tr_kmeans *m)
{
    size_t n = m->sparse ? 1 : (size_t)m->columns;
    double numbers = (double)m->train.data->total_rows;
    if (m->batches) numbers *= m->epochs + 1;
    TR_TRY(TR_NEW(&m->round, n));
    find_largest(m, m->round);
    TR_TRY(tr_all_reduce(m->tr, TR_SET_ALL, TR_MAX, TR_F64, m->round, n));
    double most = m->sparse ? m->round[0] : 0;
    for (size_t p = 0; p < n; p++) m->round[p] = rounder(m->round[p], numbers);
    if (!m->sparse) return find_spread(m);
    m->norm_round = rounder(most * most, (double)m->columns);
    m->norm_round_rest = rounder(m->norm_round * 0x1p-53, (double)m->columns);
    return TR_OK;
}

/* ---- centres from sums ---- */

static const double *counts_of(const struct tr_kmeans *m, const struct tr_kmeans_side *side)
{
    return (const double *)side->view->value + side->n_keys * m->span;
}

/* A centre without rows keeps its position. */
static void copy_centres(struct tr_kmeans *m, struct tr_kmeans_side *side)
{
    const double *sum = side->view->value, *count = counts_of(m, side);
    struct tr_centres *c = &side->centres;
    size_t across = m->sparse ? 1 : c->columns, down = m->sparse ? c->width : 1;
    for (size_t p = 0; p < side->n_keys; p++)
        for (size_t j = 0; j < m->mine; j++)
            if (count[j] > 0) c->value[p * down + j * across] = (float)(sum[p * m->span + j] / count[j]);
}

static int ask_norms(struct tr_kmeans *m, struct tr_kmeans_side *side)
{
    const double *count = counts_of(m, side);
    struct question q = {m->parts,   m->first_part, m->my_parts,       m->width,
                         m->columns, m->norm_round, m->norm_round_rest};
    size_t bytes = sizeof q + m->span * sizeof *count, room = 2 * m->span * sizeof(double);
    char *question;
    double *sum;
    TR_TRY(TR_NEW(&question, bytes));
    TR_TRY(TR_NEW(&sum, 2 * m->span));
    memcpy(question, &q, sizeof q);
    memcpy(question + sizeof q, count, m->span * sizeof *count);
    int status = tr_table_ask(m->sums, norms.name, question, bytes, sum, &room);
    for (size_t j = 0; j < m->mine && status == TR_OK; j++)
        if (count[j] > 0) side->centres.norm[j] = sum[2 * j] + sum[2 * j + 1];
    free(question);
    free(sum);
    return status;
}

int tr_kmeans_pull(struct tr_kmeans *m, struct tr_kmeans_side *side)
{
    TR_TRY(tr_view_pull(side->view));
    copy_centres(m, side);
    if (m->sparse) TR_TRY(ask_norms(m, side));
    return tr_centres_ready(&side->centres);
}

/* ---- sums from labels ---- */

static void add_dense(struct tr_kmeans *m, size_t row, uint32_t centre, double sign)
{
    size_t columns = (size_t)m->columns, j = centre - m->first;
    if (j >= m->mine) return; /* a centre of another member */
    const float *x = m->train.rows.dense + row * columns;
    double *total = m->total + j * columns;
    const double *by = m->round;
    for (size_t p = 0; p < columns; p++) total[p] += sign * tr_kmeans_round((double)x[p], by[p]);
    m->total_count[j] += sign;
}

static void add_sparse(struct tr_kmeans *m, size_t row, uint32_t centre, double sign)
{
    const tr_batch *rows = &m->train.rows;
    double *delta = m->train.view->delta, by = m->round[0];
    size_t j = centre - m->first;
    if (j >= m->mine) return;
    for (uint64_t i = rows->begin[row]; i < rows->begin[row + 1]; i++)
        delta[rows->column[i] * m->span + j] += sign * tr_kmeans_round(value_at(rows, i), by);
    delta[m->train.n_keys * m->span + j] += sign;
}

/* Sums of sparse rows are the update itself, which is written in tr_kmeans_push(). */
void tr_kmeans_change(struct tr_kmeans *m, size_t row, uint32_t from, uint32_t to)
{
    if (m->sparse) return;
    if (from != TR_NO_CENTRE) add_dense(m, row, from, -1);
    add_dense(m, row, to, 1);
}

void tr_kmeans_recount(struct tr_kmeans *m)
{
    size_t n = m->mine * (size_t)m->columns;
    memset(m->total, 0, n * sizeof *m->total);
    memset(m->total_count, 0, m->mine * sizeof *m->total_count);
    for (size_t i = 0; i < m->train.rows.n; i++)
        if (m->pushed[i] != TR_NO_CENTRE) add_dense(m, i, m->pushed[i], 1);
    memcpy(m->sent, m->total, n * sizeof *m->sent);
    memcpy(m->sent_count, m->total_count, m->mine * sizeof *m->sent_count);
}

static void write_dense(struct tr_kmeans *m)
{
    double *delta = m->train.view->delta;
    size_t columns = (size_t)m->columns;
    for (size_t j = 0; j < m->mine; j++) {
        for (size_t p = 0; p < columns; p++)
            delta[p * m->span + j] = m->total[j * columns + p] - m->sent[j * columns + p];
        delta[columns * m->span + j] = m->total_count[j] - m->sent_count[j];
    }
    memcpy(m->sent, m->total, m->mine * columns * sizeof *m->sent);
    memcpy(m->sent_count, m->total_count, m->mine * sizeof *m->sent_count);
}

static void write_sparse(struct tr_kmeans *m)
{
    const uint32_t *label = m->train.label;
    for (size_t i = 0, there = 0, end = m->train.rows.n; i < end; i++) {
        if (label[i] == m->pushed[i]) continue;
        if (i >= there) there = i + tr_data_ready(m->train.data, i, end - i);
        if (m->pushed[i] != TR_NO_CENTRE) add_sparse(m, i, m->pushed[i], -1);
        add_sparse(m, i, label[i], 1);
        m->pushed[i] = label[i];
    }
}

int tr_kmeans_push(struct tr_kmeans *m)
{
    if (m->sparse) write_sparse(m);
    else write_dense(m);
    return tr_view_push(m->train.view);
}

/* The sum of |x - c|² over the n rows of a centre with the sum s is Σ |x|² - 2 c·s + n |c|². All positions are relative to
 * the mean of all rows, which reduces cancellation. */
double tr_kmeans_inertia(const struct tr_kmeans *m)
{
    size_t columns = (size_t)m->columns;
    double sum = m->spread;
    for (size_t j = 0; j < m->mine; j++) {
        double n = m->total_count[j], dot = 0, square = 0;
        for (size_t p = 0; p < columns; p++) {
            double c = (double)m->train.centres.value[j * columns + p] - m->shift[p];
            dot += c * (m->total[j * columns + p] - n * m->shift[p]);
            square += c * c;
        }
        sum += n * square - 2 * dot;
    }
    return fmax(0, sum);
}
