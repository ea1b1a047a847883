/* HDF5 files that are whole or refused. No MPI here.
 *
 * HDF5 neither survives a disk that fails under it (a file that cannot be closed stays open, and fails again at exit) nor
 * every damaged file. So it meets neither: a file is laid out by HDF5 in memory, the arrays left out, and brought to the
 * disk by plain writes; and before HDF5 reads a file, all of its structure has been checked against a digest. That stands
 * in front of the HDF5 file, in what HDF5 calls the user block and h5dump and h5py pass over:
 *
 *   24 bytes  the format's name, as "trireme-shard", padded with zeros
 *   u32       the format's version
 *   u32       0x01020304, in the order of bytes of the machine, which is that of the values too
 *   u64       bytes of the file
 *   u64       digest: xxh3 of 64 bits, over all bytes but those of the areas, with zeros in these eight
 *   u64       bytes of all this, which zeros fill up to 4096 or a higher power of two
 *   u64       areas
 *   2 u64     where a directory is in it, in bytes: first, number; what that says is up to the format
 *   areas × 2 u64: where arrays are that have sums of their own, in bytes: first, number; ascending
 */
#ifndef TR_CHECKPOINT_SEALED_H
#define TR_CHECKPOINT_SEALED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <hdf5.h>

/* ---- writing ---- */

/* An array of the file. */
struct tr_area {
    uint64_t first, bytes; /* in the file */
    const void *data;      /* the caller's */
    uint64_t *sums;        /* to be set: of each `piece` bytes; NULL: the digest covers it */
    size_t piece;
};

/* A file in the making. */
struct tr_image {
    const char *path, *format; /* where it will be, and as what; the caller's */
    uint32_t version;
    hid_t file;
    int memory; /* what HDF5 takes for the file */
    uint64_t front, directory;
    size_t areas, most;
    struct tr_area *area;
};

/* Begins a file of at most `areas` arrays of `bytes` altogether, with a directory of so many bytes, and the attributes
 * format, format_version, and trireme (the version that writes it). TR_ERR_IO: more than this process may write. Close
 * with tr_image_close() also if this fails. */
int tr_image_create(struct tr_image *image, const char *path, const char *format, uint32_t version,
                    size_t areas, uint64_t bytes, uint64_t directory);

/* Adds an array at `where` of HDF5 type `type`; nothing is copied: data must stay, and may change, until the file is
 * written. sums as in struct tr_area. *at: where it is in the file (NULL: never mind). */
int tr_image_array(struct tr_image *image, hid_t where, const char *name, hid_t type, int dimensions,
                   const uint64_t *shape, const void *data, uint64_t *sums, size_t piece, uint64_t *at);

/* Attributes of a file, group or dataset. */
int tr_image_count(hid_t where, const char *name, uint64_t value);
int tr_image_int(hid_t where, const char *name, int64_t value);
int tr_image_real(hid_t where, const char *name, double value);
int tr_image_text(hid_t where, const char *name, const char *text);

/* A text of `length` bytes as a type. */
hid_t tr_text_type(size_t length);

/* How groups and datasets are made: without times, so that equal files are equal; datasets without filling. */
hid_t tr_image_how(hid_t class);

/* What to say when HDF5 fails at laying out: it has no disk to fail. */
int tr_image_failed(const char *name);

/* Brings it to the disk (durable: fsync) with its directory, and says how long it is and its digest. The file is not left
 * behind on failure: TR_ERR_NO_OUTPUT, TR_ERR_IO. */
int tr_image_write(struct tr_image *image, const void *directory, bool durable, uint64_t *bytes,
                   uint64_t *digest);
void tr_image_close(struct tr_image *image);

/* fsync of a folder, where there is such a thing. TR_ERR_IO. */
int tr_sync_folder(const char *path);

/* ---- reading ---- */

struct tr_sealed {
    const char *path; /* the caller's */
    int fd;
    hid_t file;
    uint64_t bytes, digest, front;
    size_t areas;
    uint64_t (*area)[2];
    const void *directory;
    uint64_t directory_bytes;
    void *memory; /* of the front */
};

/* Opens and checks all but the areas. TR_ERR_NO_INPUT: cannot be read; TR_ERR_DATA: damaged, or of another format or
 * version. Close with tr_sealed_close() also if this fails. */
int tr_sealed_open(struct tr_sealed *sealed, const char *path, const char *format, uint32_t version);

/* Lets HDF5 see it, for what follows. TR_ERR_DATA. */
int tr_sealed_structure(struct tr_sealed *sealed);

void tr_sealed_close(struct tr_sealed *sealed);

/* Reads so many bytes from there on. TR_ERR_IO. */
int tr_sealed_read(const struct tr_sealed *sealed, void *data, uint64_t first, uint64_t bytes);

/* Attributes of the file: TR_ERR_DATA where one is missing or of another kind; texts of up to `size` bytes, with the
 * zero. */
int tr_sealed_count(const struct tr_sealed *sealed, const char *name, uint64_t *value);
int tr_sealed_int(const struct tr_sealed *sealed, const char *name, int64_t *value);
int tr_sealed_real(const struct tr_sealed *sealed, const char *name, double *value);
int tr_sealed_text(const struct tr_sealed *sealed, const char *name, char *text, size_t size);

/* Where the elements of a dataset lie that has this type: *first, in bytes. *n: of how many, in one dimension; NULL: it
 * has none. */
int tr_sealed_find(const struct tr_sealed *sealed, const char *name, hid_t type, uint64_t *n,
                   uint64_t *first);

/* All elements of a dataset of one dimension, to be freed, and how many. */
int tr_sealed_get(const struct tr_sealed *sealed, const char *name, hid_t type, uint64_t *n,
                  void *values_pointer);

int tr_sealed_missing(const struct tr_sealed *sealed, const char *name);

#endif
