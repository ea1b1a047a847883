/* What stands in front of a sealed file: see sealed.h. */
#ifndef TR_CHECKPOINT_FRONT_H
#define TR_CHECKPOINT_FRONT_H

#include <stdint.h>

#define TR_FRONT_ORDER 0x01020304u

enum { TR_FRONT_LEAST = 1 << 12 }; /* also what large arrays are aligned to: HDF5 allows for no less */

struct tr_front {
    char format[24];
    uint32_t version, order;
    uint64_t bytes, digest, front, areas;
    uint64_t directory_at, directory_bytes;
    uint64_t area[][2];
};

#endif
