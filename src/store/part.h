/* An array of a checkpoint, or what one rank has of it: some rows, and of these some columns. */
#ifndef TR_STORE_PART_H
#define TR_STORE_PART_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "trireme/table.h"

/* enum tr_dtype, and bytes. */
enum tr_part_type { TR_PART_F32, TR_PART_F64, TR_PART_I32, TR_PART_I64, TR_PART_U8, TR_PART_TYPES };

enum tr_part_kind {
    TR_PART_ROWS,   /* of a matrix that is spread over ranks */
    TR_PART_LISTS,  /* … whose rows differ in length */
    TR_PART_COMMON, /* one rank's for all */
    TR_PART_OWN,    /* one rank's for the same rank of the same layout */
    TR_PART_KINDS
};

/* Rows first .. first + n - 1. */
struct tr_row_run {
    uint64_t first, n;
};

struct tr_part {
    char name[96]; /* groups and own name, as "tables/w": letters, digits, _ and / */
    enum tr_part_kind kind;
    enum tr_part_type type;
    uint64_t total_rows, total_columns; /* of the whole; total_columns 0: lists */
    uint64_t first_column, columns; /* what is here of every row; parts of one name differ in first_column */
    size_t runs;                    /* ascending, without gaps between neighbours that could be one run */
    struct tr_row_run *run;
    uint64_t rows;   /* the sum of their n */
    uint64_t *begin; /* lists: rows + 1, the first 0; else NULL */
    void *data;      /* rows × columns elements in the order of the runs; NULL in what was only listed */
};

static inline size_t tr_part_type_size(enum tr_part_type type)
{
    return type == TR_PART_U8 ? 1 : type == TR_PART_F32 || type == TR_PART_I32 ? 4 : 8;
}

/* Elements of all rows. */
static inline uint64_t tr_part_elements(const struct tr_part *p)
{
    return p->begin ? p->begin[p->rows] : p->rows * p->columns;
}

/* Frees what it points to. */
static inline void tr_part_free(struct tr_part *part)
{
    free(part->run);
    free(part->begin);
    free(part->data);
    part->run = NULL;
    part->begin = NULL;
    part->data = NULL;
}

#endif
