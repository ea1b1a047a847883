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

#include "trireme/cpu.h"
#include "trireme/trireme.h"

/* ================ assignment of rows (assign.c) ================ */

/* Rows are assigned to the nearest of k centres. K-means spends most of its time here.
 *
 * The nearest centre c of a row x has the smallest score h - x·c with h = |c|²/2. Scores are computed in f32; the two
 * smallest and the index of the smallest are kept. If they are closer than the rounding error of scores, squared distances
 * are summed in f64 column by column, and ties go to the lower index. Labels therefore equal those of f64 and do not depend
 * on the instruction level or on the distribution of rows.
 *
 * Dense rows are processed in tiles by a kernel (trireme/cpu.h) that keeps sums in registers and stores no matrix of
 * products. Compared with cblas_sgemm() on tiles of rows and a search for the two smallest scores (50,000 rows,
 * tests/bench/bench_kmeans, one core with AVX-512): 64 columns and 256 centres 92 against 57 GFLOP/s, 256 and 1000: 94
 * against 65, 784 and 10: 23 against 13, 8 and 12: 23 against 1. For sparse rows the centres are stored by columns, and a
 * row sums the columns that it has.
 *
 * Bounds (Hamerly, Making k-means even faster, SDM 2010): each row has an upper bound of the distance to its own centre and
 * a lower bound of the distance to all others. A row is skipped while the movement of the centres is smaller than the gap
 * between the two.
 */
/* Centres per panel, maximum number of rows per tile, and the granularity of the width of centres stored by columns. */
enum { TR_PANEL = 8, TR_TILE_MOST = 48, TR_WIDTH_STEP = 16 };

/* Label of a row without a centre. */
#define TR_NO_CENTRE UINT32_MAX

struct tr_centres {
    size_t k, columns;
    bool sparse;  /* for sparse rows */
    size_t width; /* k, rounded up */
    /* Set by the caller: k × columns by rows; for sparse rows columns × width by columns. */
    float *value;
    /* |c|². For sparse rows set by the caller, because a centre may have columns that this rank does not have. */
    double *norm;
    float *packed;     /* dense: value in panels by columns; zeros after the last centre */
    float *half;       /* |c|²/2; FLT_MAX after the last centre */
    float longest;     /* largest |c|, rounded up */
    float *before;     /* value of the previous pass */
    double *rest;      /* sparse: length of the columns that are not here, in the previous pass */
    float *moved;      /* distance that each centre has moved since the previous pass, rounded up */
    float most[2];     /* largest and second largest of moved */
    uint32_t mover;    /* centre of the largest */
    enum tr_cpu level; /* tr_cpu(); tests lower it */
    float *scratch;
};

int tr_centres_open(size_t k, size_t columns, bool sparse, struct tr_centres *centres);
void tr_centres_close(struct tr_centres *centres);

/* Prepares the centres in value (and norm) for tr_assign() and measures their movement since the last call. */
int tr_centres_ready(struct tr_centres *centres);

/* Labels and bounds of rows. */
struct tr_assigned {
    size_t n;
    uint32_t *label;      /* TR_NO_CENTRE at first */
    float *square;        /* |x|² */
    size_t most;          /* largest number of non-zeros in a row */
    float *upper, *lower; /* bounds of distances; NULL: disabled */
    uint64_t computed;    /* rows whose scores were computed, over all passes */
    uint64_t doubtful;    /* rows that f64 decided, over all passes */
    bool tighten;         /* computing the distance to the own centre first was worth its cost */
};

int tr_assigned_open(const struct tr_centres *centres, const tr_batch *rows, bool bounds,
                     struct tr_assigned *to);
void tr_assigned_close(struct tr_assigned *to);

/* Sets the label of a row and invalidates its bounds. */
void tr_assigned_set(struct tr_assigned *to, size_t row, uint32_t label);

/* Called for each row whose label changes, in the order of rows. */
typedef void tr_changed_fn(void *who, size_t row, uint32_t from, uint32_t to);

/* Assigns the rows first .. last - 1 to the prepared centres.
 *
 * @param [in,out] to       labels and bounds. With bounds, every row must be assigned exactly once between two calls of
 *                          tr_centres_ready()
 * @param [in]     changed  may be NULL
 */
void tr_assign(const struct tr_centres *centres, const tr_batch *rows, size_t first, size_t last,
               struct tr_assigned *to, tr_changed_fn *changed, void *who);

/* Returns the squared distance between a row and a centre, in f64; for sparse rows as |c|² - 2 x·c + |x|². */
double tr_distance(const struct tr_centres *centres, const tr_batch *rows, size_t row, uint32_t centre);

/* Returns the sum of the squared distances of rows to their own centres; for dense rows each in f32 precision. */
double tr_inertia(const struct tr_centres *centres, const tr_batch *rows, size_t first, size_t last,
                  const struct tr_assigned *assigned);

/* Adds a centre to the search for the nearest centre of n dense rows, in f32 precision.
 *
 * @param [in,out] least  smallest squared distance of each row
 * @param [in,out] which  index of that centre; set to `number` where the new centre is nearer
 */
void tr_lower(const float *rows, size_t n, size_t columns, const float *centre, uint32_t number,
              double *least, uint32_t *which);

/* ================ the model ================ */

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
    double epochs;
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

    /* state of the scheduler, and from the file: objective is the inertia of the training rows */
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

extern const tr_model_class tr_kmeans_class;

#endif
