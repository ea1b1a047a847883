/* Data sets that are open: each is loaded once for all tasks that use it.
 *
 * A store is a data set that tr_data_open() has loaded, with a reference count. While it exists, a task that opens the same files
 * with the same settings uses it, too (FlexPS, section 5.3: data stay in memory over the stages of a task). The last user frees it.
 */
#ifndef TR_DATA_STORE_H
#define TR_DATA_STORE_H

#include "data/dataset.h"

struct tr_store {
    tr_data data;
    char *key;         /* its files and settings, as text */
    uint64_t number;   /* counts the stores that were loaded, from 1; the same on all ranks */
    int opened;        /* number of times */
    int users;         /* the reference count */
    int readers;       /* users that still need the non-zeros */
    bool forgotten;    /* the non-zeros were freed on this rank */
    bool held;         /* one of the users is the team, for its next task */
    const tr_job *job; /* the task that opened it last */
};

/* All stores of a context; NULL if there is none. */
struct tr_stores {
    struct tr_store **store;
    size_t n, capacity;
    uint64_t loaded; /* number of stores that were loaded so far */
};

/* The store of these files and settings; of test data with the training data `like`. If there is none, a new one: *found = false, the
 * caller loads it. Counts one user more. All ranks; errors are agreed on. */
int tr_store_find(tr_context *tr, const struct tr_files *files, enum tr_data_part part, const tr_data *like,
                  struct tr_store **store, bool *found);

/* The files (NULL: the names of data.train in the job) and the settings of reading them, as text; to be freed. Equal keys: equal rows
 * before they are scaled or divided. */
int tr_store_rows_key(const tr_job *job, const struct tr_files *files, char **key);

/* Keeps data that a team of tasks has loaded for its next task, until that loads others or the team ends. All ranks. */
void tr_store_hold(struct tr_store *store);

/* The schema of the training data that were loaded last and are still open; NULL: there are none, or they are not csv. */
const struct tr_schema *tr_store_schema(const tr_context *tr);

/* Counts one user more. */
void tr_store_keep(struct tr_store *store);

/* Counts one user less; forgot: that user has called tr_store_forget(). The last user frees the store. All ranks together, outside
 * tr_run(). */
void tr_store_release(tr_context *tr, struct tr_store **store, bool forgot);

/* A user does not need the non-zeros any more: the last one frees their memory. Any rank, alone: memory that a group shares is freed
 * by its last member. */
void tr_store_forget(struct tr_store *store);

/* Frees the memory of the non-zeros of the first n rows, if nobody else uses it. No user may be added afterwards. */
void tr_store_forget_rows(struct tr_store *store, size_t n);

/* Reports the figures of all data on disks for summary.json. All ranks. */
int tr_store_report(tr_context *tr);

#endif
