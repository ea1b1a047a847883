/* How parts lie in a shard: what shards and manifests share. */
#ifndef TR_CHECKPOINT_STORED_H
#define TR_CHECKPOINT_STORED_H

#include <stddef.h>
#include <stdint.h>

#include <hdf5.h>

#include "store/part.h"

enum { TR_PART_PATH_BYTES = sizeof((struct tr_part *)NULL)->name + 24 };

hid_t tr_part_h5_type(enum tr_part_type type);

/* "tables/w", "tables/w@64" */
void tr_part_path(const struct tr_part *part, char *path, size_t size);

/* The shape of so many rows of a part as an array: rows × columns, or one dimension where there is one column, or lists,
 * of `elements` altogether. Returns the dimensions. */
int tr_part_shape(const struct tr_part *part, uint64_t rows, uint64_t columns, uint64_t elements,
                  uint64_t *shape);

#endif
