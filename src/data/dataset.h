/* data/ — from files of text to the rows that a worker trains on.
 *
 *   files, text   which bytes of which file are whose, and whole lines out of them
 *   libsvm        the format, read fast
 *   csr           sparse rows
 *   renumber      the columns that occur, numbered 0..n-1
 *   dataset       the parallel side: every worker reads its part, and all agree on what the whole is
 *   exchange      rows by columns inside a group (vertical partition)
 *   generate      data that looks like clicks
 */
#ifndef TR_DATA_DATASET_H
#define TR_DATA_DATASET_H

#include "data/csr.h"
#include "data/files.h"
#include "ranks/ranks.h"
#include "trireme/data.h"

struct tr_data_state {
    tr_context *tr;
    struct tr_csr csr; /* this worker's rows */
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

/* What was read, and how rows and non-zeros lie over the workers: smallest, median, largest. All ranks; rank 0
 * says it. */
int tr_data_describe(const tr_data *data, const char *what);

#endif
