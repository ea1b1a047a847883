/* K-means (M33): k centres, each the mean of the rows that are nearest to it.
 *
 * The table "sums" has one key per column, as wide as the number of centres: the sum of that column over the rows of each
 * centre. One more key counts these rows. A centre is sum / count. The layout by columns supports sparse rows: a worker
 * pulls only the columns that its rows have (pruned pull), and the servers compute the norms of whole centres. A worker
 * pushes the changes of its rows' labels, so rows that keep their label cost nothing. All values are rounded to a step that
 * makes sums in f64 exact: they do not depend on the order of additions, and any number of ranks gets the same centres bit
 * by bit.
 *
 * If the members of a group all have its rows (data.partition: replicated), each is responsible for some of the centres, a
 * part of every column's key, and the group selects the nearest of all.
 *
 * With mini-batches (Sculley, Web-scale k-means clustering, WWW 2010) rows are never subtracted: a centre is the mean of all
 * rows that it has ever received, which is equivalent to his per-centre rates.
 */
#ifndef TR_KMEANS_H
#define TR_KMEANS_H

#include "assign.h"
#include "trireme/trireme.h"

/* Initial centres: rows over all columns, the same on all ranks; dense or sparse as the data. */
struct tr_start {
    size_t n;
    tr_batch rows;
    float *dense, *value;
    uint64_t *begin;
    uint32_t *column;
    size_t dense_room, value_room, begin_room, column_room;
};

/* Rows of training or test data, the columns of the centres that they need, and their labels. */
struct tr_kmeans_side {
    tr_data *data;
    tr_batch rows;
    const tr_key *keys; /* keys of the columns of sparse rows; NULL: all columns */
    size_t n_keys;
    tr_view *view;
    struct tr_centres centres;
    struct tr_assigned assigned;
    uint32_t *label;        /* index of the centre, over all members of the group */
    struct tr_least *least; /* replicated: distance to the nearest centre */
};

/* Settings of the job. */
struct tr_kmeans_options {
    uint64_t clusters;
    uint64_t batch;
    int start;
    int bounds;
    double tolerance;
    char *init; /* "": none */
};
enum { TR_LLOYD, TR_MINIBATCH }; /* methods */
enum { TR_START_PLUSPLUS, TR_START_PARALLEL, TR_START_RANDOM, TR_START_FIRST };
enum { TR_BOUNDS_AUTO, TR_BOUNDS_NO, TR_BOUNDS_YES };

struct tr_kmeans_evaluation;

struct tr_kmeans {
    /* content of model.h5 */
    uint64_t clusters, columns;
    uint64_t first_index; /* index of the first column in the files; 1 for csv */
    uint64_t total_rows;  /* number of training rows */
    double objective;     /* their inertia */
    float *centre;        /* clusters × columns; NULL during training */
    uint64_t *size;       /* rows per centre */

    /* predict and evaluate */
    struct tr_centres asked;
    struct tr_kmeans_evaluation *evaluation;

    /* training */
    tr_context *tr;
    const tr_job *job;
    const struct tr_kmeans_options *o;
    tr_table *sums;
    size_t k; /* clusters */
    bool sparse, batches, replicated;
    uint64_t seed;
    double epochs, target;
    int group_size, member; /* member: -1 on ranks that do not compute */
    int64_t clocks_per_epoch;
    struct tr_start start; /* initial centres */

    /* Layout of the table: a column has `parts` keys, each `width` centres wide. */
    size_t parts, width;
    size_t my_parts, first_part; /* parts of this worker */
    size_t span;                 /* elements per column in its view */
    size_t first, mine;          /* its centres: first .. first + mine - 1 */

    /* state of a worker */
    struct tr_kmeans_side train, test;
    double *round; /* rounding constant of each column, see tr_kmeans_round(); sparse: one for all columns */
    double norm_round, norm_round_rest; /* sparse: the same for squares in norms, and for their remainders */
    double *shift;                      /* dense: mean of all rows */
    double spread;                      /* dense: sum of |x - shift|² over this worker's rows */
    double *total;                      /* dense: sums of its rows by centre, mine × columns */
    double *total_count;                /* dense: number of its rows by centre */
    double *sent, *sent_count;          /* the values of total and total_count that were pushed */
    uint32_t *pushed;                   /* labels of the rows in the pushed sums */
    bool fresh;                         /* labels belong to the centres pulled for this clock */
    double inertia;                     /* this worker's part of the inertia of these labels */
    uint64_t moved;                     /* number of rows whose label the last pass changed */
    int64_t *order;                     /* order of the mini-batches of an epoch */
    int64_t ordered;                    /* that epoch + 1 */

    /* state of the scheduler */
    tr_evaluation last;
    double before; /* inertia of the previous evaluation; NaN: none */

    double *saved_count; /* rows per centre, on the rank that writes the model */
};

/* ---- initial centres (start.c) ---- */

/* Selects m->k rows of m->train as m->start. All ranks, outside tr_run(). TR_ERR_CONFIG if the data have fewer distinct
 * rows. */
int tr_kmeans_choose(struct tr_kmeans *m);
void tr_start_free(struct tr_start *start);

/* Lists the initial centres in a snapshot. */
int tr_start_keep(struct tr_start *start, tr_snapshot *snapshot, size_t k, uint64_t columns, bool sparse);

/* Hash of the values of a row, independent of its distribution. */
uint64_t tr_kmeans_hash(const struct tr_kmeans_side *side, uint64_t columns, size_t row);

/* Copies the initial centres to side->centres. */
void tr_kmeans_start_at(struct tr_kmeans *m, struct tr_kmeans_side *side);

/* ---- sums (sums.c) ---- */

/* Rounds x to a multiple of the step that belongs to the constant. */
static inline double tr_kmeans_round(double x, double by)
{
    return (x + by) - by;
}

/* Create the table, and compute the rounding constants. All ranks. */
int tr_kmeans_make_table(struct tr_kmeans *m);
int tr_kmeans_make_steps(struct tr_kmeans *m);

int tr_kmeans_open_view(struct tr_kmeans *m, struct tr_kmeans_side *side, bool pushes);

/* Pulls the centres and prepares them for tr_assign(). */
int tr_kmeans_pull(struct tr_kmeans *m, struct tr_kmeans_side *side);

/* Moves a row from one centre to another in the sums. */
void tr_kmeans_change(struct tr_kmeans *m, size_t row, uint32_t from, uint32_t to);
int tr_kmeans_push(struct tr_kmeans *m);

/* Dense rows: the inertia of this worker's rows, from the sums; and the sums of the pushed labels, from m->pushed. */
double tr_kmeans_inertia(const struct tr_kmeans *m);
void tr_kmeans_recount(struct tr_kmeans *m);

/* ---- model file, predict, evaluate, inspect (saved.c) ---- */

int tr_kmeans_fields(void *kmeans, tr_fields *fields);
int tr_kmeans_ready(void *kmeans, tr_query *query);
int tr_kmeans_predict(void *kmeans, tr_query *query, const tr_records *records, double *out);
int tr_kmeans_evaluate(void *kmeans, tr_query *query, const tr_records *records, const double *out);
int tr_kmeans_figures(void *kmeans, tr_query *query, uint64_t rows);
int tr_kmeans_inspect(void *kmeans, tr_query *query);
int tr_kmeans_centres(const void *kmeans, tr_saved_centres *centres);
void tr_kmeans_saved_close(struct tr_kmeans *m);

extern const tr_model_class tr_kmeans_class;

#endif
