/* data/ — from files of text to the rows that a worker trains on.
 *
 *   files, text   which bytes of which file are whose, and whole lines out of them
 *   share, look   a reader's chunks of lines, and what the first lines say
 *   number, token what stands in a line
 *   libsvm, csv, triples   the formats, read fast
 *   csr           sparse rows
 *   ids, names    what users and items are called, numbered: of one reader, of all
 *   deal          records as whole rows at the workers that the rows belong to
 *   renumber      the columns that occur, numbered 0..n-1
 *   dataset       the parallel side: every worker reads its part, and all agree on what the whole is
 *   cache         what was read, for the next start of the same job, in files of the node's memory: cache_file, cache_folder
 *   store         what was read, kept for all who use it; the rows of a group once, in memory that its members share
 *   exchange      any amount of data between workers; rows by columns inside a group (vertical partition)
 *   first         the first rows of the files
 *   numbers       which rows of the files are whose, and what is kept of each
 *   documents, libsvm_each   one after the other, without keeping them, as csv and triples have it for rows and ratings
 *   generate…     data made up: clicks, ratings, documents, clusters
 */
#ifndef TR_DATA_DATASET_H
#define TR_DATA_DATASET_H

#include "data/csr.h"
#include "data/csv.h"
#include "data/names.h"
#include "data/triples.h"
#include "ranks/ranks.h"
#include "trireme/data.h"

struct tr_store;
struct tr_shared;
struct tr_cached;

/* Rows at .. at + n - 1 here have the numbers first, first + 1, … among all rows in the order of the files. */
struct tr_stretch {
    uint64_t first;
    size_t at, n;
};

struct tr_data_state {
    tr_context *tr;
    struct tr_store *store; /* which has all this */
    struct tr_files files;
    int format;             /* TR_FORMAT_…, not auto */
    struct tr_shape *shape; /* of each file: csv, ratings and docword */
    struct tr_csr csr;      /* this worker's rows, or */
    struct tr_dense dense;
    uint64_t *row_number;       /* as tr_data.row */
    struct tr_stretch *stretch; /* where these are NULL: the rows here, in the order of their numbers */
    size_t stretches;
    /* where these three and the keys lie, all the group's; NULL: this worker's own memory */
    struct tr_shared *shared;
    struct tr_cached *cached; /* … or where the next start of the job finds them; NULL: nowhere */
    tr_names *row_names, *column_names;
    double load_seconds;
    char *third_label; /* where and what it is, when there are more than two kinds */
};

/* How far loading is. One worker is asked for all, as all have equal parts: rank 0 where it works, else worker 0. So
 * it is an estimate. */
struct tr_loading {
    const char *what;   /* "training data" */
    double done, total; /* stored bytes of all workers */
    double seconds;     /* since it began */
};

/* Called on rank 0 while data are read; anything but TR_OK ends it. */
typedef int tr_loading_fn(void *who, const struct tr_loading *progress);
void tr_on_loading(tr_context *tr, tr_loading_fn *loading, void *who);

/* Opens the files of data.train or data.test, relative paths wherever data.folders has them. */
int tr_data_files(const tr_job *job, const struct tr_job_list *patterns, struct tr_files *files);

/* Hands each member of the group the columns that are its own of all the group's rows: rows of all members in
 * their order, columns of which tr_column_member() is this member. Members of the group only, together. */
int tr_exchange_columns(tr_context *tr, struct tr_csr *csr);
int tr_column_member(uint32_t column, int members);

/* Hands each member m of the communicator count[m] units of so many bytes, laid end to end by member in `from`, and gets
 * what it sends us: *to (to be freed) and to_count are alike. Any amount, in bounded pieces. All members together. */
int tr_ship(tr_context *tr, MPI_Comm comm, const void *from, const uint64_t *count, size_t unit, void **to,
            uint64_t *to_count);

/* Hands all members what each has: *all (to be freed) has the n units of member 0 first. *total units in all. */
int tr_spread(tr_context *tr, MPI_Comm comm, const void *from, uint64_t n, size_t unit, void **all,
              uint64_t *total);

/* The union of the ascending keys of all members, in ascending pieces of about equal size, one a member: *piece (to be
 * freed). Members of the group only, together. */
int tr_unite_keys(tr_context *tr, const uint32_t *keys, size_t n, uint32_t **piece, size_t *n_piece);

/* Makes each member's rows those of all members in their order, where they share no memory (M3, replicated). row_number
 * may be NULL. Members of the group only, together. */
int tr_replicate_rows(tr_context *tr, struct tr_csr *csr, uint64_t **row_number);
int tr_replicate_dense(tr_context *tr, struct tr_dense *dense);

/* Numbers the rows that workers hold from what each has read, as data->state->stretch has it. Workers only, together. */
int tr_number_rows(tr_data *data, const struct tr_read_runs *runs);

#endif
