/* Parts of all shards as whole tables: virtual datasets in the manifest. No MPI here. */
#ifndef TR_CHECKPOINT_WHOLE_H
#define TR_CHECKPOINT_WHOLE_H

#include <hdf5.h>

#include "store/manifest.h"

/* Looks into the shards of a folder and shows their parts of kind rows and common in a manifest that is being laid out.
 * What HDF5 cannot show is left out. Fails where a shard cannot be opened. */
int tr_whole_put(hid_t file, const char *folder, const struct tr_manifest *manifest);

#endif
