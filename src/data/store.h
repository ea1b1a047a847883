/* The data store: rows in memory, loaded once for all tasks that use them, and once for all workers of a node.
 *
 * A store is what tr_data_open() has loaded. It counts its users, and goes when the last of them leaves. Whoever opens
 * the same files with the same settings while it is there gets it again (FlexPS, section 5.3: data that stay in memory
 * over the stages of a task).
 */
#ifndef TR_DATA_STORE_H
#define TR_DATA_STORE_H

#include "data/dataset.h"

struct tr_store {
    tr_data data;    /* as all users see it */
    char *key;       /* what it was loaded from, and how */
    uint64_t number; /* it is the number-th that was loaded: the same on all ranks, 1 at least */
    int opened;      /* so many times, so far */
    int users;
    int readers;       /* users that have not forgotten the non-zeros */
    bool forgotten;    /* they are gone, on this rank */
    bool held;         /* one of the users is the team, for tasks to come */
    const tr_job *job; /* the task that has opened it last */
};

/* All stores of a context; NULL while there is none. */
struct tr_stores {
    struct tr_store **store;
    size_t n, capacity;
    uint64_t loaded; /* so many, so far */
};

/* The store that was loaded from these files with what the job says of them, and for test data with the training data
 * `like`; a new one (*found false) to be loaded if there is none. It has one user more. All ranks; errors are agreed on.
 */
int tr_store_take(tr_context *tr, const struct tr_files *files, enum tr_data_part part, const tr_data *like,
                  struct tr_store **store, bool *found);

/* What rows depend on before anything is done with them: how they are read, and the files (NULL: as the job names those to train on);
 * to be freed. */
int tr_store_rows_key(const tr_job *job, const struct tr_files *files, char **key);

/* Data that a task's team has loaded stay for its next task, until that loads others or the team ends. All ranks. */
void tr_store_hold(struct tr_store *store);

/* The columns of the training data that were loaded last and are still there; NULL: none, or not of csv. */
const struct tr_schema *tr_store_schema(const tr_context *tr);

/* One user more, which keeps the rows for another to come. */
void tr_store_keep(struct tr_store *store);

/* One user less, who has forgotten the non-zeros or not; the last frees it. All ranks together, outside tr_run(). */
void tr_store_release(tr_context *tr, struct tr_store **store, bool forgot);

/* One reader less of a user that stays; when the last has gone, the memory of the non-zeros is given back. Any rank, alone:
 * shared memory goes when all members of the group have come so far. */
void tr_store_forget(struct tr_store *store);

/* What the first n rows have of memory that is only this reader's is given back; none may come after it. */
void tr_store_forget_rows(struct tr_store *store, size_t n);

/* Frees what a data set knows of its rows besides them: names, labels, heads, the scale. */
void tr_data_free_head(tr_data *data);

#endif
