/* Data that were read, in files of the node's memory, for the next start of the same job: it need not read them again.
 *
 * What a worker trains on lies in such a file until the job ends (data.cache): once read, it is moved there, which takes
 * twice the memory for a moment, and used where it lies. When a job that failed starts again, every rank finds its file by
 * the same name, and the rows are where they were: if all ranks find theirs whole, made at the same time from the same
 * files, in the same way, for the same ranks. Otherwise all read. Files go when the job ends, and those of runs that did
 * not come to that when another begins (cache_folder.h).
 */
#ifndef TR_DATA_CACHE_H
#define TR_DATA_CACHE_H

#include "data/cache_file.h"
#include "data/cache_folder.h"
#include "data/dataset.h"

/* The arrays of a file of rows, in their order; what is forgotten comes first. */
enum {
    TR_CACHE_BEGIN,
    TR_CACHE_COLUMN,
    TR_CACHE_VALUE,
    TR_CACHE_LABEL,
    TR_CACHE_ROW,
    TR_CACHE_KEYS,
    TR_CACHE_ARRAYS
};

/* What rows consist of. */
struct tr_cache_shape {
    uint64_t rows, nonzeros, keys; /* nonzeros of dense rows: all numbers */
    bool dense, valued, labelled, numbered;
};

/* Bytes of each array of such rows. Returns how many they take in a file, in whole pages. */
uint64_t tr_cache_measure(const struct tr_cache_shape *shape, uint64_t bytes[TR_CACHE_ARRAYS]);

/* Of a data set that is kept, or is to be. */
struct tr_cached {
    char *head, *rows_path;              /* files: of this rank; of its rows, which may be all the group's */
    struct tr_cache_key key, generation; /* what it is made from; when */
    bool found;                          /* it was there */
    bool pooled;                         /* there are no files but that of rows, which other teams use, too */
};

/* Looks for what an earlier start has kept of the data that `key` describes; what: "training data" or "test data". *found:
 * they are there, but for data->rows. All ranks together; agreed on. */
int tr_cache_find(tr_data *data, const char *what, const char *key, bool *found);

/* Moves what was read to where the next start finds it, unless it is not to be, or cannot be. All ranks together. */
int tr_cache_keep(tr_data *data);

/* Whether there is room for rows of so many bytes of this rank, twice over, on all nodes: false if they are not to be kept.
 * All ranks together. */
int tr_cache_has_room(tr_data *data, uint64_t bytes, bool *enough);

/* Makes a file in the node's memory for the rows that a group shares, of TR_CACHE_ARRAYS arrays: data->state->file. kept: the next
 * start is to find it, if that can be; otherwise it has no name and goes with its users. All members together. */
int tr_cache_share(tr_data *data, const uint64_t *bytes, bool kept);

/* Has the rows of this rank lie in the folder, a node's, where other teams use the same file that have the same rows, by the key.
 * They stay where they are if that cannot be. Any rank, alone. */
int tr_cache_pool(tr_data *data, const char *folder, const char *key);

/* Closes the file of the rows, and gives back memory: files stay, but those of a pool go with the last who uses them. */
void tr_cache_close(struct tr_data_state *state);

#endif
