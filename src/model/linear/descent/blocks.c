#include "blocks.h"

#include <stdlib.h>
#include <string.h>

#include "trireme/base.h"

/* ---- layout ---- */

/* Where a block is filled up to: entries, and the last row that has some, from 1. */
struct position {
    uint64_t entries;
    size_t row;
};

/* Of all columns, which ones the blocks have (a bit each: most entries are of others, and bits stay in the caches), and at what
 * place. */
struct places {
    uint64_t *has;
    uint32_t *of;
};

static void fill(const struct tr_descent_rows *rows, const struct places *place,
                 struct tr_column_block *blocks, struct position *at)
{
    for (size_t i = 0; i < rows->n; i++)
        for (uint64_t k = rows->begin[i]; k < rows->begin[i + 1]; k++) {
            uint32_t column = rows->column[k];
            if (!(place->has[column / 64] >> column % 64 & 1)) continue;
            uint32_t to = place->of[column];
            struct tr_column_block *block = &blocks[to / TR_BLOCK_COLUMNS];
            struct position *p = &at[to / TR_BLOCK_COLUMNS];
            if (p->row != i + 1) {
                p->row = i + 1;
                block->begin[block->rows] = p->entries;
                block->row[block->rows++] = (uint32_t)i;
            }
            block->column[p->entries] = (uint8_t)(to % TR_BLOCK_COLUMNS);
            block->value[p->entries++] = rows->value[k];
        }
}

/* Room for as many rows as there are entries: what is not used is not touched either. */
static int open_block(struct tr_column_block *block, size_t columns, size_t rows, uint64_t entries)
{
    block->n = columns;
    TR_TRY(TR_NEW(&block->row, tr_min_size(rows, entries)));
    TR_TRY(TR_NEW(&block->begin, tr_min_size(rows, entries) + 1));
    TR_TRY(TR_NEW(&block->column, entries));
    TR_TRY(TR_NEW(&block->value, entries));
    return TR_NEW(&block->gram, (columns + 1) * (columns + 1));
}

static int lay_out(const struct tr_descent_rows *rows, const uint32_t *columns, size_t n,
                   struct tr_column_block *blocks, const struct places *place, struct position *at)
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
        TR_TRY(open_block(&blocks[b], end - first, rows->n, entries));
    }
    fill(rows, place, blocks, at);
    for (size_t b = 0; b * TR_BLOCK_COLUMNS < n; b++) blocks[b].begin[blocks[b].rows] = at[b].entries;
    return TR_OK;
}

int tr_blocks_make(const struct tr_descent_rows *rows, const uint32_t *columns, size_t n,
                   struct tr_column_block *blocks)
{
    struct places place = {NULL, NULL};
    struct position *at = NULL;
    int status = TR_NEW(&place.has, rows->columns / 64 + 1);
    if (status == TR_OK) status = TR_NEW(&place.of, rows->columns);
    if (status == TR_OK) status = TR_NEW(&at, n / TR_BLOCK_COLUMNS + 1);
    if (status == TR_OK) status = lay_out(rows, columns, n, blocks, &place, at);
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

/* A row's products, with every pair of its columns once: in the half of the square where its order in the row puts it. */
static void add_products(const uint8_t *column, const float *value, size_t n, float curve, float *square,
                         size_t width)
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
        add_products(block->column + first, block->value + first, n, curve, square, width);
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
