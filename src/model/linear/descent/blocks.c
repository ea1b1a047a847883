#include "blocks.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "trireme/base.h"

/* ---- layout ---- */

/* Fill state of a block: number of entries, and the last row with an entry, counted from 1. */
struct block_position {
    uint64_t entries;
    size_t row;
};

/* The columns of the blocks: a bit for each column of the rows, because most entries belong to other columns and a
 * bitmap stays in the caches; and the index in the blocks. */
struct block_places {
    uint64_t *has;
    uint32_t *of;
};

static void block_fill(const struct tr_descent_rows *rows, const struct block_places *place,
                       struct tr_column_block *blocks, struct block_position *at)
{
    for (size_t i = 0; i < rows->n; i++)
        for (uint64_t k = rows->begin[i]; k < rows->begin[i + 1]; k++) {
            uint32_t column = rows->column[k];
            if (!(place->has[column / 64] >> column % 64 & 1)) continue;
            uint32_t to = place->of[column];
            struct tr_column_block *block = &blocks[to / TR_BLOCK_COLUMNS];
            struct block_position *p = &at[to / TR_BLOCK_COLUMNS];
            if (p->row != i + 1) {
                p->row = i + 1;
                block->begin[block->rows] = p->entries;
                block->row[block->rows++] = (uint32_t)i;
            }
            block->column[p->entries] = (uint8_t)(to % TR_BLOCK_COLUMNS);
            block->value[p->entries++] = rows->value[k];
        }
}

/* Allocates one row per entry. Unused pages are not touched. */
static int block_open(struct tr_column_block *block, size_t columns, size_t rows, uint64_t entries)
{
    block->n = columns;
    TR_TRY(TR_NEW(&block->row, tr_min_size(rows, entries)));
    TR_TRY(TR_NEW(&block->begin, tr_min_size(rows, entries) + 1));
    TR_TRY(TR_NEW(&block->column, entries));
    TR_TRY(TR_NEW(&block->value, entries));
    return TR_NEW(&block->gram, (columns + 1) * (columns + 1));
}

static int block_lay_out(const struct tr_descent_rows *rows, const uint32_t *columns, size_t n,
                         struct tr_column_block *blocks, const struct block_places *place,
                         struct block_position *at)
{
    for (size_t first = 0, b = 0; first < n; first += TR_BLOCK_COLUMNS, b++) {
        size_t end = tr_min_size(first + TR_BLOCK_COLUMNS, n);
        uint64_t entries = 0;
        for (size_t k = first; k < end; k++) {
            uint32_t column = columns[k];
            if (column == UINT32_MAX) continue;
            place->has[column / 64] |= (uint64_t)1 << column % 64;
            place->of[column] = (uint32_t)k;
            entries += rows->entries[column];
        }
        blocks[b] = (struct tr_column_block){.n = 0};
        TR_TRY(block_open(&blocks[b], end - first, rows->n, entries));
    }
    block_fill(rows, place, blocks, at);
    for (size_t b = 0; b * TR_BLOCK_COLUMNS < n; b++) blocks[b].begin[blocks[b].rows] = at[b].entries;
    return TR_OK;
}

int tr_blocks_make(const struct tr_descent_rows *rows, const uint32_t *columns, size_t n,
                   struct tr_column_block *blocks)
{
    struct block_places place = {NULL, NULL};
    struct block_position *at = NULL;
    int status = TR_NEW(&place.has, rows->columns / 64 + 1);
    if (status == TR_OK) status = TR_NEW(&place.of, rows->columns);
    if (status == TR_OK) status = TR_NEW(&at, n / TR_BLOCK_COLUMNS + 1);
    if (status == TR_OK) status = block_lay_out(rows, columns, n, blocks, &place, at);
    free(place.has);
    free(place.of);
    free(at);
    return status;
}

void tr_block_free(struct tr_column_block *block)
{
    free(block->row);
    free(block->begin);
    free(block->column);
    free(block->value);
    free(block->gram);
    *block = (struct tr_column_block){.n = 0};
}

/* ---- passes ---- */

/* Adds the products of a row. Each pair of columns is added once, in the triangle that their order in the row
 * selects. */
static void block_add_products(const uint8_t *column, const float *value, size_t n, float curve,
                               float *square, size_t width)
{
    float *bias = square + (width - 1) * width;
    for (size_t a = 0; a < n; a++) {
        float x = curve * value[a], *row = square + column[a] * width;
        bias[column[a]] += x;
        for (size_t b = 0; b <= a; b++) row[column[b]] += x * value[b];
    }
}

void tr_block_products(const struct tr_column_block *block, const struct tr_row_model *model, float *triangle)
{
    size_t width = block->n + 1;
    float *square = block->gram, all = 0;
    memset(square, 0, width * width * sizeof *square);
    for (size_t i = 0; i < block->rows; i++) {
        float curve = model[block->row[i]].curve;
        uint64_t first = block->begin[i], n = block->begin[i + 1] - first;
        all += curve;
        block_add_products(block->column + first, block->value + first, n, curve, square, width);
    }
    for (size_t a = 0, at = 0; a < width; a++)
        for (size_t b = 0; b <= a; b++)
            triangle[at++] = a == b ? square[a * width + a] : square[a * width + b] + square[b * width + a];
    triangle[tr_block_triangle(block) - 1] = all;
}

void tr_block_set_gram(struct tr_column_block *block, const float *triangle, double all_rows_curve,
                       double ridge)
{
    size_t width = block->n + 1;
    for (size_t a = 0, at = 0; a < width; a++)
        for (size_t b = 0; b <= a; b++)
            block->gram[a * width + b] = block->gram[b * width + a] = triangle[at++];
    for (size_t a = 0; a < block->n; a++) block->gram[a * width + a] += (float)ridge;
    block->gram[width * width - 1] = (float)all_rows_curve;
}

void tr_block_gradient(const struct tr_column_block *block, const struct tr_row_model *model,
                       double *gradient)
{
    memset(gradient, 0, block->n * sizeof *gradient);
    for (size_t i = 0; i < block->rows; i++) {
        const struct tr_row_model *row = &model[block->row[i]];
        double slope = row->slope + (double)row->curve * (double)row->move;
        for (uint64_t k = block->begin[i]; k < block->begin[i + 1]; k++)
            gradient[block->column[k]] += slope * (double)block->value[k];
    }
}

void tr_block_move(const struct tr_column_block *block, const double *change, struct tr_row_model *model)
{
    for (size_t i = 0; i < block->rows; i++) {
        double sum = 0;
        for (uint64_t k = block->begin[i]; k < block->begin[i + 1]; k++)
            sum += change[block->column[k]] * (double)block->value[k];
        model[block->row[i]].move += (float)sum;
    }
}

/* ---- the minimum over one block ---- */

static void quadratic_move(struct tr_quadratic *q, size_t j, double x)
{
    const float *row = q->gram + j * q->n;
    double change = x - q->x[j], *gradient = q->gradient;
    q->x[j] = x;
    for (size_t k = 0; k < q->n; k++) gradient[k] += change * (double)row[k];
}

/* Minimises over each coordinate in turn. Returns the largest change of a coordinate's own gradient. */
static double quadratic_sweep(struct tr_quadratic *q)
{
    double most = 0;
    for (size_t j = 0; j < q->n; j++) {
        double curve = (double)q->gram[j * q->n + j], old = q->x[j], x = old - q->gradient[j] / curve;
        if (j < q->penalised) x = tr_soft_threshold(x, q->alpha / curve);
        if (x == old) continue;
        most = fmax(most, fabs(x - old) * curve);
        quadratic_move(q, j, x);
    }
    return most;
}

/* ---- the coordinates that are not 0 ---- */

static int quadratic_is_free(const struct tr_quadratic *q, size_t j)
{
    return j >= q->penalised || q->x[j] != 0;
}

static void quadratic_multiply(const struct tr_quadratic *q, const double *vector, double *product)
{
    memset(product, 0, q->n * sizeof *product);
    for (size_t j = 0; j < q->n; j++) {
        const float *row = q->gram + j * q->n;
        double factor = vector[j];
        if (factor == 0) continue;
        for (size_t k = 0; k < q->n; k++) product[k] += factor * (double)row[k];
    }
}

static double quadratic_dot(const double *a, const double *b, size_t n)
{
    double sum = 0;
    for (size_t k = 0; k < n; k++) sum += a[k] * b[k];
    return sum;
}

/* Σ r²/G_jj: norm of the residual, preconditioned by the diagonal. */
static double quadratic_norm(const struct tr_quadratic *q, const double *residual)
{
    double sum = 0;
    for (size_t j = 0; j < q->n; j++) sum += residual[j] * residual[j] / (double)q->gram[j * q->n + j];
    return sum;
}

/* Finds the step from x to the minimum over the free coordinates without sign changes, by conjugate gradients with
 * diagonal preconditioning. */
static void quadratic_find_step(const struct tr_quadratic *q, double *step)
{
    size_t n = q->n;
    double *residual = step + n, *direction = residual + n, *product = direction + n;
    for (size_t j = 0; j < n; j++) {
        double sign = j < q->penalised ? (q->x[j] > 0) - (q->x[j] < 0) : 0;
        step[j] = 0;
        residual[j] = quadratic_is_free(q, j) ? -(q->gradient[j] + q->alpha * sign) : 0;
        direction[j] = residual[j] / (double)q->gram[j * n + j];
    }
    double size = quadratic_norm(q, residual), enough = 1e-10 * size;
    for (size_t i = 0; i < n && size > enough; i++) {
        quadratic_multiply(q, direction, product);
        double curve = quadratic_dot(direction, product, n);
        if (!(curve > 0)) return;
        double t = size / curve, last = size;
        for (size_t j = 0; j < n; j++) {
            step[j] += t * direction[j];
            residual[j] = quadratic_is_free(q, j) ? residual[j] - t * product[j] : 0;
        }
        size = quadratic_norm(q, residual);
        for (size_t j = 0; j < n; j++)
            direction[j] = residual[j] / (double)q->gram[j * n + j] + size / last * direction[j];
    }
}

/* Returns the change of the objective from x to x + t step. Coordinates that would change their sign become 0. */
static double quadratic_change_to(const struct tr_quadratic *q, const double *step, double t, double *change,
                                  double *product)
{
    double absolutes = 0;
    for (size_t j = 0; j < q->n; j++) {
        double x = q->x[j] + t * step[j];
        if (j < q->penalised && x * q->x[j] < 0) x = 0;
        if (j < q->penalised) absolutes += fabs(x) - fabs(q->x[j]);
        change[j] = x - q->x[j];
    }
    quadratic_multiply(q, change, product);
    return quadratic_dot(q->gradient, change, q->n) + 0.5 * quadratic_dot(change, product, q->n) +
           q->alpha * absolutes;
}

/* Halves the step until it lowers the objective, and takes it. */
static void quadratic_take_step(struct tr_quadratic *q, const double *step)
{
    double *change = q->work + q->n, *product = change + q->n;
    for (double t = 1; t > 1e-3; t /= 2) {
        if (!(quadratic_change_to(q, step, t, change, product) < 0)) continue;
        for (size_t j = 0; j < q->n; j++) {
            q->x[j] += change[j];
            q->gradient[j] += product[j];
        }
        return;
    }
}

double tr_quadratic_minimise(struct tr_quadratic *q, double tolerance, int sweeps)
{
    enum { SWEEPS_BETWEEN = 4 };
    double first = 0;
    for (int i = 0; i < sweeps; i++) {
        double most = quadratic_sweep(q);
        if (i == 0) first = most;
        if (most <= tolerance) break;
        if (i % SWEEPS_BETWEEN != SWEEPS_BETWEEN - 1) continue;
        quadratic_find_step(q, q->work);
        quadratic_take_step(q, q->work);
    }
    return first;
}
