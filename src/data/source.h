/* Bytes of a file from its beginning, unpacked if need be: gzip by zlib; bzip2, xz, zstd and lz4 by libarchive. */
#ifndef TR_DATA_SOURCE_H
#define TR_DATA_SOURCE_H

#include <zlib.h>

#include "data/files.h"

struct archive;

struct tr_source {
    const struct tr_file *file;
    int fd;
    uint64_t stored;         /* where reading goes on in the file as it is stored */
    unsigned char *packed;   /* what is to be unpacked next */
    z_stream gzip;           /* used if the file is gzip, as is the next */
    bool in_member;          /* between the header and the trailer of one of the members of a gzip file */
    struct archive *archive; /* of the other packings, as are the next two */
    bool ended;
    int status; /* of the last read of the file */
};

/* The offset is 0 for packed files. Close it also if this fails. */
int tr_source_open(struct tr_source *source, const struct tr_file *file, uint64_t offset);
void tr_source_close(struct tr_source *source);

/* Up to n bytes; 0 at the end. TR_ERR_DATA for what is damaged or cut off. */
int tr_source_read(struct tr_source *source, char *to, size_t n, size_t *got);

/* What a packing is called; NULL for plain files. */
const char *tr_packing_word(enum tr_packing packing);

#endif
