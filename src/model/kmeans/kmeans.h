/* K-means (M33): k centres, each the mean of the rows that are nearest to it.
 *
 * Words: the label of a row is the index of its nearest centre. The inertia is the sum of the squared distances of all rows to
 * their nearest centres. An empty centre is nearest to no row.
 *
 * The table "sums" has one key per column. Its value has one element per centre: the sum of that column over the rows of the
 * centre. One more key has the number of these rows, the count. A centre is sum / count. The layout by columns supports sparse
 * rows: a worker pulls only the columns that its rows have, and the servers compute the norms of whole centres. A worker pushes
 * only the changes that its rows with a new label cause. All values are rounded to a step that makes sums in f64 exact: they do
 * not depend on the order of additions, and any number of ranks gets the same centres bit by bit.
 *
 * With data.partition replicated, all members of a group have the group's rows. Each member is then responsible for some of the
 * centres, and the group finds the nearest centre of a row by comparing the distances that its members computed.
 *
 * With mini-batches (Sculley, Web-scale k-means clustering, WWW 2010) rows are never subtracted from sums: a centre is the mean
 * of the rows of all its mini-batches, which is equivalent to Sculley's per-centre rates. */
#ifndef TR_KMEANS_H
#define TR_KMEANS_H

#include "trireme/cpu.h"
#include "trireme/trireme.h"

/* ================ assignment of rows (assign.c) ================ */

/* Rows are assigned to the nearest of k centres. K-means spends most of its time here.
 *
 * The nearest centre c of a row x has the smallest score h - x·c with h = |c|²/2. Scores are computed in f32. If the two
 * smallest scores differ by less than their rounding error, squared distances are summed in f64 column by column, and ties go to
 * the lower index. Labels therefore equal those of f64 and do not depend on the instruction level or the distribution of rows.
 *
 * Dense rows are processed in tiles by a kernel (trireme/cpu.h) that keeps sums in registers and stores no matrix of
 * products. It is faster than cblas_sgemm() on tiles of rows and a search for the two smallest scores (50,000 rows,
 * tests/bench/bench_kmeans, one core with AVX-512): with 64 columns and 256 centres 92 against 57 GFLOP/s, with 256 and 1000: 94
 * against 65, with 784 and 10: 23 against 13, with 8 and 12: 23 against 1. For sparse rows the centres are stored by columns, and
 * the kernel reads only the columns in which the row has numbers.
 *
 * Bounds (Hamerly, Making k-means even faster, SDM 2010): each row has an upper bound of the distance to its own centre and
 * a lower bound of the distance to all other centres. The row is skipped while the upper bound is below the lower bound. */

/* A panel is TR_PANEL centres, a tile is at most TR_TILE_MOST rows. The width of centres is a multiple of TR_WIDTH_STEP. */
enum { TR_PANEL = 8, TR_TILE_MOST = 48, TR_WIDTH_STEP = 16 };

/* Label of a row without a centre. */
#define TR_NO_CENTRE UINT32_MAX

struct tr_centres {
    size_t k, columns;
    bool sparse;  /* the rows that will be assigned are sparse; otherwise dense */
    size_t width; /* k, rounded up to a multiple of TR_WIDTH_STEP */
    /* The caller sets value[j * columns + p], number p of centre j; for sparse rows value[p * width + j]. */
    float *value;
    /* |c|² per centre. The caller sets it for sparse rows, because centres may have columns that this rank does not store. */
    double *norm;
    float *packed;     /* dense: `value` sorted by panel, then by column; zeros after the last centre */
    float *half;       /* |c|²/2 per centre; FLT_MAX after the last centre */
    float longest;     /* largest |c|, rounded up */
    float *before;     /* `value` at the previous call of tr_centres_ready() */
    double *rest;      /* sparse: length of each centre in the columns that this rank lacks, at that call */
    float *moved;      /* distance that each centre has moved since that call, rounded up */
    float most[2];     /* largest and second largest element of `moved` */
    uint32_t mover;    /* index of the centre that moved most */
    enum tr_cpu level; /* instruction level of the kernels: tr_cpu(), or a lower one in tests */
    float *scratch;
};

int tr_centres_open(size_t k, size_t columns, bool sparse, struct tr_centres *centres);
void tr_centres_close(struct tr_centres *centres);

/* Prepares tr_assign() after the caller has set `value` (and `norm`), and measures the movement of centres since the last call. */
int tr_centres_ready(struct tr_centres *centres);

/* Labels and bounds of rows. */
struct tr_assigned {
    size_t n;
    uint32_t *label;      /* per row; TR_NO_CENTRE at first */
    float *square;        /* |x|² per row */
    size_t most;          /* sparse: largest number of entries of a row */
    float *upper, *lower; /* bounds per row; NULL: bounds are not used */
    uint64_t computed;    /* number of rows whose scores were computed, over all passes */
    uint64_t doubtful;    /* number of rows whose label f64 decided, over all passes */
    bool tighten;         /* whether assign_tighten() has excluded enough rows to be worth its cost */
};

int tr_assigned_open(const struct tr_centres *centres, const tr_batch *rows, bool bounds,
                     struct tr_assigned *to);
void tr_assigned_close(struct tr_assigned *to);

/* Sets the label of a row and invalidates its bounds. */
void tr_assigned_set(struct tr_assigned *to, size_t row, uint32_t label);

/* A function that tr_assign() calls for each row whose label changes, in the order of rows. */
typedef void tr_changed_fn(void *who, size_t row, uint32_t from, uint32_t to);

/* Assigns the rows first .. last - 1 to the prepared centres.
 *
 * @param [in,out] to       labels and bounds. With bounds, every row must be assigned exactly once between two calls of
 *                          tr_centres_ready()
 * @param [in]     changed  may be NULL */
void tr_assign(const struct tr_centres *centres, const tr_batch *rows, size_t first, size_t last,
               struct tr_assigned *to, tr_changed_fn *changed, void *who);

/* Returns the squared distance between a row and a centre, in f64; for sparse rows as |c|² - 2 x·c + |x|². */
double tr_distance(const struct tr_centres *centres, const tr_batch *rows, size_t row, uint32_t centre);

/* Returns the sum of the squared distances of rows to their own centres; for dense rows each in f32 precision. */
double tr_inertia(const struct tr_centres *centres, const tr_batch *rows, size_t first, size_t last,
                  const struct tr_assigned *assigned);

/* Continues the search for the nearest centre of n dense rows with one more centre, in f32 precision.
 *
 * @param [in]     number  index of the new centre
 * @param [in,out] least   per row: squared distance to the nearest centre so far
 * @param [in,out] which   per row: index of the nearest centre so far */
void tr_lower(const float *rows, size_t n, size_t columns, const float *centre, uint32_t number,
              double *least, uint32_t *which);

/* ================ the model ================ */

/* Initial centres. Every rank has all of them, with all columns. Rows are dense or sparse like those of the data. */
struct tr_start {
    size_t n;
    tr_batch rows; /* the n centres, in the arrays below */
    float *dense, *value;
    uint64_t *begin;
    uint32_t *column;
    size_t dense_room, value_room, begin_room, column_room;
};

/* A side is the training data or the test data: its rows on this rank, the columns of the centres that they need, and labels. */
struct tr_kmeans_side {
    tr_data *data;
    tr_batch rows;
    const tr_key *keys; /* sparse rows: column of the data for each column index of the rows; NULL: equal */
    size_t n_keys;      /* number of columns of the centres on this rank */
    tr_view *view;
    struct tr_centres centres;
    struct tr_assigned assigned; /* replicated: labels among the centres of this member */
    uint32_t *label;             /* labels among all centres; unless replicated, equal to assigned.label */
    struct tr_least *least;      /* replicated, per row: distance and index of the nearest centre */
};

/* Settings of the job. */
struct tr_kmeans_options {
    uint64_t clusters;
    uint64_t batch;
    int start;
    int bounds;
    double tolerance;
    char *init; /* model.init; "": not given */
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
    float *centre;        /* clusters × columns, by rows; NULL during training */
    uint64_t *size;       /* number of rows per centre */

    /* predict and evaluate */
    struct tr_centres asked; /* the centres of the file */
    struct tr_kmeans_evaluation *evaluation;

    /* training */
    tr_context *tr;
    const tr_job *job;
    const struct tr_kmeans_options *o;
    tr_table *sums;
    size_t k;                         /* equals clusters */
    bool sparse, batches, replicated; /* sparse rows; method minibatch; data.partition replicated */
    uint64_t seed;
    double epochs;
    int group_size, member; /* member: index of this worker in its group; -1 on ranks that do not compute */
    int64_t clocks_per_epoch;
    struct tr_start start; /* initial centres */

    /* Layout of the table: a column has `parts` keys; the value of each key has an element for `width` centres. */
    size_t parts, width;
    size_t my_parts, first_part; /* number and first of the parts that this worker is responsible for */
    size_t span;                 /* number of elements per column in this worker's view: my_parts * width */
    size_t first, mine;          /* this worker is responsible for the centres first .. first + mine - 1 */

    /* state of a worker */
    struct tr_kmeans_side train, test;
    double *round; /* rounding constant of each column, see kmeans_rounder(); sparse: one for all columns */
    double norm_round, norm_round_rest; /* sparse: rounding constants of squares in norms; of remainders */
    double *shift;                      /* dense: mean of all rows */
    double spread;                      /* dense: sum of |x - shift|² over this worker's rows */
    double *total;                      /* dense, mine × columns: sums of this worker's rows by centre */
    double *total_count;                /* dense: number of this worker's rows by centre */
    double *sent, *sent_count;          /* the values of `total` and `total_count` at the last push */
    uint32_t *pushed;                   /* per row: its label at the last push */
    bool fresh;                         /* whether labels belong to the centres pulled for this clock */
    double inertia;                     /* this worker's part of the inertia of these labels */
    uint64_t moved;                     /* number of rows whose label the last pass changed */
    int64_t *order;                     /* the mini-batches of an epoch in random order */
    int64_t ordered;                    /* 1 + the epoch that `order` belongs to; 0: no epoch yet */

    tr_evaluation last; /* last evaluation: on the scheduler in training, otherwise from the file */
    double before;      /* scheduler: inertia of the previous evaluation; NaN: there is none */

    double *saved_count; /* rows per centre, on the rank that writes the model; NULL: not read yet */
};

/* ---- initial centres (start.c) ---- */

/* Selects m->k training rows, and stores them in m->start. Fails with TR_ERR_CONFIG if fewer rows are distinct. All ranks, outside
 * tr_run(). */
int tr_kmeans_choose(struct tr_kmeans *m);
void tr_start_free(struct tr_start *start);

/* Writes the initial centres to a snapshot, or restores them. */
int tr_start_keep(struct tr_start *start, tr_snapshot *snapshot, size_t k, uint64_t columns, bool sparse);

/* Returns a hash of the values of a row. It does not depend on the rank that has the row. */
uint64_t tr_kmeans_hash(const struct tr_kmeans_side *side, uint64_t columns, size_t row);

extern const tr_model_class tr_kmeans_class;

#endif
