/* Checked files: HDF5 files that are whole or refused. No MPI here.
 *
 * HDF5 neither survives a disk that fails under it (a file that cannot be closed stays open, and fails again at exit) nor
 * every damaged file. So it meets neither: HDF5 lays a file out in memory, without the contents of its arrays, and plain
 * writes bring all of it to the disk; and before HDF5 reads a file, its bytes have been checked against sums. These stand
 * in a header in front of the HDF5 file, in what HDF5 calls the user block, which h5dump and h5py pass over:
 *
 *   struct tr_checked_header, then `areas` of struct tr_checked_area, ascending, then `sums` numbers of 64 bits, then the
 *   directory, whose meaning is up to the format; zeros fill it up to 4096 bytes or a higher power of two
 *
 * An area is an array of the file; each of its pieces has a sum. The digest covers the header and all bytes outside the
 * areas. Both are xxh3 of 64 bits. Numbers are those of the machine.
 */
#ifndef TR_STORE_CHECKED_H
#define TR_STORE_CHECKED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <hdf5.h>
#include <xxhash.h>

#include "trireme/base.h"

#define TR_CHECKED_ORDER 0x01020304u

enum { TR_CHECKED_LEAST = 1 << 12 }; /* bytes of a header; also what large arrays are aligned to */

struct tr_checked_header {
    char format[24]; /* as "trireme-shard", padded with zeros */
    uint32_t version, order;
    uint64_t bytes;                  /* of the file */
    uint64_t digest;                 /* computed with zeros in its place */
    uint64_t header;                 /* bytes of the header */
    uint64_t areas, sums, directory; /* how many; bytes of the directory */
};

struct tr_checked_area {
    uint64_t first, bytes; /* in the file */
    uint64_t piece;        /* bytes that have a sum each; the last ones may be fewer */
    uint64_t sum;          /* number of its first sum */
};

/* The bytes of a header with so many areas, sums and bytes of directory. */
uint64_t tr_checked_header_bytes(uint64_t areas, uint64_t sums, uint64_t directory);

/* ---- writing ---- */

/* How far an area is written. */
struct tr_checked_progress {
    uint64_t at;         /* bytes of it */
    XXH3_state_t *state; /* of its piece at hand; NULL: it is complete */
};

struct tr_checked_writer {
    struct tr_target target;
    char format[24];
    uint32_t version;
    const char *fault_write, *fault_name; /* fault points: of its writes, of giving it its name */
    bool is_special;                      /* a device or pipe, such as /dev/null */
    int fd, layout;                       /* the file; memory in which HDF5 lays it out */
    hid_t file, array;                    /* of the layout; the array begun last, -1: none */
    uint64_t header, laid;                /* bytes of the header, of all arrays */
    struct tr_checked_area *area;
    struct tr_checked_progress *progress; /* of each area */
    uint64_t *sum;
    size_t areas, sums, area_capacity, progress_capacity, sum_capacity;
    XXH3_state_t *state;
    uint64_t bytes, digest; /* once it is sealed */
};

/* Creates a file (how: see tr_target_open()) with a header of so many bytes (tr_checked_header_bytes()). fault_write: the fault
 * point (base/fault.h) of writing; fault_name: that of renaming, NULL if the file is not renamed. TR_ERR_NO_OUTPUT,
 * TR_ERR_NO_PERM; TR_ERR_IO: this process may not write that much. Close with tr_checked_abandon() also if this fails. */
int tr_checked_create(struct tr_checked_writer *w, const char *path, const char *format, uint32_t version,
                      uint64_t header, int how, const char *fault_write, const char *fault_name);

/* Begins an array in the group or file `where`, of an HDF5 type and a shape of 0 to 2 dimensions, with a sum of each `piece`
 * bytes (0: one of all). *at (NULL: never mind): where it is in the file, 0 if it is empty. w->array is its dataset until
 * the next one begins. Then append its bytes, in order; all of them, before the file is sealed. */
int tr_checked_begin(struct tr_checked_writer *w, hid_t where, const char *name, hid_t type, int dimensions,
                     const uint64_t *shape, uint64_t piece, uint64_t *at);
int tr_checked_append(struct tr_checked_writer *w, const void *data, uint64_t bytes);

/* The same for an array that is not the last: area is the number of areas (w->areas) before it began. */
int tr_checked_append_to(struct tr_checked_writer *w, size_t area, const void *data, uint64_t bytes);

/* Attributes of a file, group or dataset. */
int tr_attribute_count(hid_t where, const char *name, uint64_t value);
int tr_attribute_int(hid_t where, const char *name, int64_t value);
int tr_attribute_real(hid_t where, const char *name, double value);
int tr_attribute_text(hid_t where, const char *name, const char *text);

/* The attributes format, format_version and trireme (the version that writes it). */
int tr_attributes_of_format(hid_t file, const char *format, int64_t version, const char *trireme);

/* A text of `length` bytes, padded with zeros, as a type. */
hid_t tr_text_type(size_t length);

/* How groups and datasets are made: without times, so that equal files are equal; datasets without filling. */
hid_t tr_creation(hid_t class);

/* What to say when HDF5 fails at laying out: it has no disk to fail. */
int tr_layout_failed(const char *name);

/* Brings everything to the disk; the header with the directory (NULL: none) last. Sets bytes and digest. Nothing but finish
 * and abandon follows. TR_ERR_IO. */
int tr_checked_seal(struct tr_checked_writer *w, const void *directory, uint64_t directory_bytes);

/* Gives a sealed file its name, and frees the writer; on failure, removes the file as abandon does. TR_ERR_IO. */
int tr_checked_finish(struct tr_checked_writer *w);
void tr_checked_abandon(struct tr_checked_writer *w); /* a finished one is fine */

/* ---- reading ---- */

struct tr_checked {
    char *path;
    int fd;
    struct tr_checked_header *header;
    const struct tr_checked_area *area;
    const uint64_t *sum;
    const void *directory;
    char *piece; /* of which only some was wanted last; NULL: none so far */
    size_t piece_capacity;
    const struct tr_checked_area *piece_area;
    uint64_t piece_number;
};

/* Opens a file and checks all but the areas. TR_ERR_NO_INPUT: cannot be read; TR_ERR_DATA: damaged, or of another format or
 * version. Close with tr_checked_close() also if this fails. */
int tr_checked_open(struct tr_checked *f, const char *path, const char *format, uint32_t version);
void tr_checked_close(struct tr_checked *f);

/* Checks the areas, too. TR_ERR_DATA. */
int tr_checked_verify(struct tr_checked *f);

/* Bytes of a file that has been verified, into memory of zeros: of what was never written no page of that memory is touched. */
int tr_checked_fill(const struct tr_checked *f, void *zeros, uint64_t first, uint64_t bytes);

/* n elements of `size` bytes that are the whole area which begins there. The name is for messages. */
struct tr_checked_array {
    const char *name;
    uint64_t at, n;
    size_t size;
};

/* Reads n elements from `first` on, checked. TR_ERR_DATA: they are not what was written, or not there. */
int tr_checked_read(struct tr_checked *f, const struct tr_checked_array *a, uint64_t first, uint64_t n,
                    void *values);

/* Reads all of them into fresh memory, to be freed. */
int tr_checked_get(struct tr_checked *f, const struct tr_checked_array *a, void *values_pointer);

/* Opens an HDF5 file for reading: all files that this process has not just written are opened here. Refuses a file that refers to
 * other files: external storage, external links, virtual datasets of other files; the error names the object. HDF5 loads filters
 * only from HDF5_PLUGIN_PATH. fd: the descriptor that was checked, so that the same file is read, or -1: open the path.
 * TR_ERR_DATA; *file is negative if HDF5 cannot open it: its error stack says why. Close *file also if this fails. */
int tr_hdf5_open(const char *path, int fd, hid_t *file);

#endif
