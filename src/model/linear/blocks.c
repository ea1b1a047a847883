#include "blocks.h"

#include <stdlib.h>
#include <string.h>

#include "trireme/base.h"

/* ---- layout ---- */

/* Counts rows and entries of each block; blocks are zeros at first. */
static void count(const struct tr_descent_rows *rows, const uint32_t *place, struct tr_column_block *blocks,
                  uint64_t *entries, size_t *last)
{
    for (size_t i = 0; i < rows->n; i++)
        for (uint64_t k = rows->begin[i]; k < rows->begin[i + 1]; k++) {
            uint32_t at = place[rows->column[k]];
            if (at == UINT32_MAX) continue;
            size_t b = at / TR_BLOCK_COLUMNS;
            entries[b]++;
            if (last[b] == i + 1) continue;
            last[b] = i + 1;
            blocks[b].rows++;
        }
}

static void fill(const struct tr_descent_rows *rows, const uint32_t *place, struct tr_column_block *blocks,
                 uint64_t *entries, size_t *last)
{
    for (size_t i = 0; i < rows->n; i++)
        for (uint64_t k = rows->begin[i]; k < rows->begin[i + 1]; k++) {
            uint32_t at = place[rows->column[k]];
            if (at == UINT32_MAX) continue;
            size_t b = at / TR_BLOCK_COLUMNS;
            struct tr_column_block *block = &blocks[b];
            if (last[b] != i + 1) {
                last[b] = i + 1;
                block->begin[block->rows] = entries[b];
                block->row[block->rows++] = (uint32_t)i;
            }
            block->column[entries[b]] = (uint8_t)(at % TR_BLOCK_COLUMNS);
            block->value[entries[b]++] = rows->value[k];
        }
}

static int open_block(struct tr_column_block *block, size_t columns, uint64_t entries)
{
    block->n = columns;
    TR_TRY(TR_NEW(&block->row, block->rows));
    TR_TRY(TR_NEW(&block->begin, block->rows + 1));
    TR_TRY(TR_NEW(&block->column, entries));
    TR_TRY(TR_NEW(&block->value, entries));
    TR_TRY(TR_NEW(&block->gram, (columns + 1) * (columns + 1)));
    block->begin[block->rows] = entries;
    block->rows = 0; /* filled next */
    return TR_OK;
}

static int lay_out(const struct tr_descent_rows *rows, const uint32_t *place, size_t n,
                   struct tr_column_block *blocks, uint64_t *entries, size_t *last)
{
    size_t n_blocks = (n + TR_BLOCK_COLUMNS - 1) / TR_BLOCK_COLUMNS;
    memset(blocks, 0, n_blocks * sizeof *blocks);
    count(rows, place, blocks, entries, last);
    for (size_t b = 0; b < n_blocks; b++)
        TR_TRY(open_block(&blocks[b], tr_min_size(n - b * TR_BLOCK_COLUMNS, TR_BLOCK_COLUMNS), entries[b]));
    memset(entries, 0, n_blocks * sizeof *entries);
    memset(last, 0, n_blocks * sizeof *last);
    fill(rows, place, blocks, entries, last);
    return TR_OK;
}

int tr_blocks_make(const struct tr_descent_rows *rows, const uint32_t *columns, size_t n,
                   struct tr_column_block *blocks)
{
    uint32_t *place = NULL;
    uint64_t *entries = NULL;
    size_t *last = NULL, n_blocks = (n + TR_BLOCK_COLUMNS - 1) / TR_BLOCK_COLUMNS;
    int status = TR_NEW(&place, rows->columns);
    if (status == TR_OK) status = TR_NEW(&entries, n_blocks);
    if (status == TR_OK) status = TR_NEW(&last, n_blocks);
    if (status == TR_OK) {
        memset(place, 0xff, rows->columns * sizeof *place);
        for (size_t k = 0; k < n; k++)
            if (columns[k] != UINT32_MAX) place[columns[k]] = (uint32_t)k;
        status = lay_out(rows, place, n, blocks, entries, last);
    }
    free(place);
    free(entries);
    free(last);
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
