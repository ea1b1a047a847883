/* What a worker has read of data, on its way to the rows that it works with. */
#ifndef TR_DATA_PART_H
#define TR_DATA_PART_H

#include "data/dataset.h"
#include "data/spill.h"

static inline bool tr_data_is_triples(const tr_data *data)
{
    return data->format == TR_FORMAT_RATINGS || data->format == TR_FORMAT_DOCWORD;
}

static inline bool tr_data_is_dense(const tr_data *data)
{
    return data->state->full && !(data->state->form & TR_DATA_SPARSE);
}

/* There are groups, which have rows in this way (data.partition). */
static inline bool tr_data_is_partitioned(const tr_context *tr, int partition)
{
    return tr->layout.group_size > 1 && tr->job->data.partition == partition;
}

/* Whether this rank's group has its rows once, in memory that its members share. */
bool tr_data_shares(const tr_context *tr);

/* All rows of the group, in this member's own memory. */
static inline bool tr_data_has_copy(const tr_context *tr)
{
    return tr_data_is_partitioned(tr, TR_DATA_REPLICATED) && !tr_data_shares(tr);
}

static inline const struct tr_head *tr_data_hdf5_head(const tr_data *data)
{
    const struct tr_data_state *s = data->state;
    return &s->heads[tr_heads_first(s->heads, s->files.n)];
}

/* What a worker has read. */
struct tr_part {
    struct tr_read_report report;
    struct tr_read_runs runs;
    struct tr_triples triples;
    uint64_t *records; /* of each file: ratings, docword */
    bool text_rows, text_columns;
    size_t columns;              /* of triples: what they have are less than this */
    struct tr_column_seen *seen; /* csv: of each column */
    float *weight;               /* csv: of each row, where a column has them */
    uint32_t *keys;        /* of rows that a group is to have once: the columns that occur, ascending, … */
    size_t n_keys;         /* … which the rows number */
    struct tr_spill spill; /* of rows that are to lie on a disk */
    bool again;            /* they are read for the second time */
};

/* What all ranks learn of all parts. */
struct tr_totals {
    uint64_t rows, nonzeros, skipped, unlabelled;
    int64_t lowest, highest, queries;
};

/* Reads the worker's part of the files into part->triples or data->state->rows; rank 0 tells how far it is. All ranks; each
 * returns its own status. */
int tr_part_read(tr_data *data, const tr_data *like, struct tr_part *part);

/* The same by one worker, without telling. */
int tr_part_read_silently(tr_data *data, const tr_data *like, struct tr_part *part);

/* Sums over all ranks of what they report. */
int tr_part_totals(tr_context *tr, const struct tr_read_report *report, struct tr_totals *totals);

/* What to say of data without any record. */
int tr_part_no_record(const tr_data *data);

/* ---- keys ---- */

/* The union of the keys of the group's members, ascending, in place of *keys; and the numbers in it of this member's (to be
 * freed). */
int tr_part_unite_keys(tr_context *tr, uint32_t **keys, size_t *n, uint32_t **numbers);

/* Keys are all columns (NULL), or those of the list. */
int tr_part_take_keys(tr_data *data, const uint32_t *columns, size_t n);

/* Columns of sparse rows become numbers of this worker's keys. Of rows that a group has once: of the columns that it has
 * read itself, until all are together. */
int tr_part_number_keys(tr_data *data, struct tr_part *part);

/* ---- rows of what was read (fill_rows.c, fill_triples.c) ---- */

/* Reads libsvm, csv or hdf5; ratings or bags of words. All ranks; errors are agreed on. */
int tr_fill_rows(tr_data *data, const tr_data *like, struct tr_part *part);
int tr_fill_triples(tr_data *data, const tr_data *like, struct tr_part *part);

/* ---- one copy in a group (share.c) ---- */

/* Moves the rows of each such group to one place: those of member 0 first, and so on. Of each member: its rows in
 * data->state, columns counted by `keys` (its own distinct ones, ascending, n_keys of them) or, if all is true, by all
 * columns. Then data->state and data->keys point to shared memory, and columns count the keys of the group. All ranks
 * (with nothing, where tr_data_shares() is false); errors are agreed on: no room in shared memory, above all. */
int tr_data_share(tr_data *data, const uint32_t *keys, size_t n_keys, bool all);

#endif
