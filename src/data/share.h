/* A reader's share of all files, chunk by chunk: what readers of lines of text have in common. */
#ifndef TR_DATA_SHARE_H
#define TR_DATA_SHARE_H

#include <stdbool.h>
#include <stdint.h>

#include "data/text.h"

/* A chunk of lines, and where it comes from. */
struct tr_share_chunk {
    struct tr_chunk lines;
    size_t file;
    uint64_t
        piece; /* of a gzip file that several readers unpack: which piece of its text; they have it in turns */
};

struct tr_share {
    const struct tr_files *files;
    size_t reader, readers;
    uint64_t deal;      /* bytes of the chunks of tr_files_deal(); 0: a contiguous share for each reader */
    size_t chunk_bytes; /* handed out at once, for tests of their borders; 0: the usual size */
    /* Called now and then with the stored bytes that this reader has done; over all readers they sum up to
     * about the files' total. Anything but TR_OK ends the reading with that status. May be NULL. */
    int (*progress)(void *state, uint64_t bytes);
    void *progress_state;
    bool enough;   /* set by the chunk function: no more chunks, please */
    uint64_t done; /* stored bytes of earlier files */
};

/* Calls chunk() for each chunk of lines of the share until one fails or there is enough. */
int tr_share_each(struct tr_share *share, int (*chunk)(void *state, const struct tr_share_chunk *chunk),
                  void *state);

#endif
