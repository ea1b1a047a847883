/* Where the rows of a data set are while they are used: data.storage, data.memory, data.scratch. */
#ifndef TR_DATA_STORAGE_H
#define TR_DATA_STORAGE_H

#include "data/dataset.h"

/* Before anything is read: decides, data->state->on_disk and memory. All ranks; TR_ERR_CONFIG where the model, or what else the
 * job says, does not suit it. */
int tr_storage_choose(tr_data *data);

/* When their file is there: whether the system's cache may keep it. */
void tr_storage_use_cache(const struct tr_data_state *state);

/* When the rows are there: begins to read ahead of passes over those on a disk. found: an earlier start has written them. */
int tr_storage_open(tr_data *data, bool found);

/* Figures for summary.json, of all that lies on disks. All ranks. */
int tr_storage_report(tr_context *tr);

#endif
