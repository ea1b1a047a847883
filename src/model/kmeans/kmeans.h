/* K-means (M33): k centres, each the mean of the rows that are nearer to it than to any other.
 *
 * One table, "sums", has for every column a key as wide as there are centres: Σ of that column over the rows of each
 * centre; and one key more that counts these rows. Lying by columns, it serves sparse rows too: a worker pulls the
 * columns that its rows have, and nothing else (pruned pulls), and norms of whole centres are answered by the servers. Each
 * worker's part of the sums is of its rows' present labels: it pushes what has changed, so rows that stay cost
 * nothing, and a centre is sum / count. All numbers are rounded to a step that makes f64's sums exact: they do not depend
 * on their order, and any number of ranks gets the same centres, bit by bit.
 *
 * Where a group's members all hold its rows (data.partition: replicated), each looks after a share of the centres, a
 * part of every column's key, and the group takes the nearest of all.
 *
 * Mini-batches (Sculley, Web-scale k-means clustering, WWW 2010) add rows to sums for good: a centre is the mean of all
 * rows that it ever got, which is what his per-centre rates come to.
 */
#ifndef TR_KMEANS_H
#define TR_KMEANS_H

#include "assign.h"
#include "trireme/trireme.h"

/* Rows over all columns, the same on all ranks; dense or sparse as the data. */
struct tr_start {
    size_t n;
    tr_batch rows;
    float *dense, *value;
    uint64_t *begin;
    uint32_t *column;
    size_t dense_room, value_room, begin_room, column_room;
};

/* The rows of training or of test data, what they need of the centres, and their labels. */
struct tr_kmeans_side {
    tr_data *data;
    tr_batch rows;
    const tr_key *keys; /* that the columns of sparse rows number; NULL: all columns */
    size_t n_keys;
    tr_view *view;
    struct tr_centres centres;
    struct tr_assigned assigned;
    uint32_t *label;        /* numbers of centres, over all members of the group */
    struct tr_least *least; /* replicated: distance from the nearest centre */
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
    /* what model.h5 has */
    uint64_t clusters, columns;
    uint64_t first_index; /* number of the first column: in the files, or 1 for those of CSV */
    uint64_t total_rows;  /* it was trained on */
    double objective;     /* inertia of these */
    float *centre;        /* clusters × columns; NULL while it is trained */
    uint64_t *size;       /* rows of each */

    /* asked for rows */
    struct tr_centres asked;
    struct tr_kmeans_evaluation *evaluation;

    /* in training */
    tr_context *tr;
    const tr_job *job;
    const struct tr_kmeans_options *o;
    tr_table *sums;
    size_t k; /* clusters */
    bool sparse, batches, replicated;
    uint64_t seed;
    double epochs, target;
    int group_size, member; /* member: -1 on ranks that do not work */
    int64_t clocks_per_epoch;
    struct tr_start start; /* first centres */

    /* how centres lie in the table: parts of every column's key … */
    size_t parts, width;         /* … so many keys a column, each so many centres wide */
    size_t my_parts, first_part; /* this worker's … */
    size_t span, first,
        mine; /* … elements of a column in its view; its centres: so many from number first on */

    /* a worker's */
    struct tr_kmeans_side train, test;
    double *round; /* what rounds the numbers of a column: see tr_kmeans_round(); sparse: one for all */
    double norm_round, norm_round_rest; /* sparse: the same for squares in norms, and for what that leaves */
    double *shift;                      /* dense: mean of all rows … */
    double spread;                      /* … and Σ |x - shift|² over this worker's */
    double *total;                      /* dense: Σ of its rows by centre, mine × columns */
    double *total_count;
    double *sent; /* … as it has been pushed */
    double *sent_count;
    uint32_t *pushed; /* the labels by which rows have been pushed; dense: while others may be fresh */
    bool fresh;       /* labels are of the centres pulled for this clock */
    double inertia;   /* … and this is their worker's part of it */
    uint64_t moved;   /* rows whose label the last pass changed */
    int64_t *order;   /* mini-batches of an epoch, … */
    int64_t ordered;  /* … one more than its number */

    /* the scheduler's */
    tr_evaluation last;
    double before; /* inertia of the evaluation before; NaN: none */

    double *saved_count; /* rows of each centre: of the rank that writes the model */
};

/* start.c: chooses m->k rows of m->train into m->start: all ranks, outside tr_run(). TR_ERR_CONFIG where the data have fewer
 * distinct rows. For snapshot functions: these rows. */
int tr_kmeans_choose(struct tr_kmeans *m);
void tr_start_free(struct tr_start *start);
int tr_start_keep(struct tr_start *start, tr_snapshot *snapshot, size_t k, uint64_t columns, bool sparse);
uint64_t tr_kmeans_hash(const struct tr_kmeans_side *side, uint64_t columns,
                        size_t row); /* of a row's numbers */

/* Centres where they start. */
void tr_kmeans_start_at(struct tr_kmeans *m, struct tr_kmeans_side *side);

/* x as a multiple of the step. */
static inline double tr_kmeans_round(double x, double by)
{
    return (x + by) - by;
}

/* sums.c */
int tr_kmeans_make_table(struct tr_kmeans *m);
int tr_kmeans_make_steps(struct tr_kmeans *m); /* all ranks: what numbers are rounded to */
int tr_kmeans_open_view(struct tr_kmeans *m, struct tr_kmeans_side *side, bool pushes);
int tr_kmeans_pull(struct tr_kmeans *m, struct tr_kmeans_side *side); /* centres, ready for tr_assign() */
void tr_kmeans_change(struct tr_kmeans *m, size_t row, uint32_t from, uint32_t to);
int tr_kmeans_push(struct tr_kmeans *m);
double tr_kmeans_inertia(const struct tr_kmeans *m); /* of dense rows, from sums */
void tr_kmeans_recount(struct tr_kmeans *m); /* of dense rows: sums of what has been pushed, from `pushed` */

/* saved.c */
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
