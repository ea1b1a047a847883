/* Checked files: HDF5 files with checksums. A damaged file is refused. No MPI here.
 *
 * HDF5 fails badly on full disks (a file that cannot be closed stays open, and fails again at exit) and on some damaged
 * files. Therefore HDF5 lays a file out in memory, without the values of its arrays, and plain writes bring layout and values
 * to the disk. Before HDF5 reads a file, its bytes have been compared with checksums. These are in a header in front of the
 * HDF5 file, in the user block, which h5dump and h5py skip:
 *
 *   struct tr_checked_header, `areas` of struct tr_checked_area, ascending, `sums` numbers of 64 bits, and the directory,
 *   which belongs to the format; padded with zeros to 4096 bytes or a higher power of two
 *
 * An area is an array of the file. Each of its pieces has a sum. The digest covers the header and all bytes outside the
 * areas. Both are xxh3 of 64 bits. Numbers have the byte order of the machine.
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

enum { TR_CHECKED_LEAST = 1 << 12 }; /* smallest header, and alignment of large arrays, in bytes */

struct tr_checked_header {
    char format[24]; /* such as "trireme-shard", padded with zeros */
    uint32_t version, order;
    uint64_t bytes;                  /* of the file */
    uint64_t digest;                 /* computed with zeros in its place */
    uint64_t header;                 /* bytes of the header */
    uint64_t areas, sums, directory; /* numbers of areas and sums; bytes of the directory */
};

struct tr_checked_area {
    uint64_t first, bytes; /* in the file */
    uint64_t piece;        /* bytes per sum; the last piece may be shorter */
    uint64_t sum;          /* number of its first sum */
};

/* Returns the size of a header in bytes. */
uint64_t tr_checked_header_bytes(uint64_t areas, uint64_t sums, uint64_t directory);

/* ---- writing ---- */

/* Progress of writing an area. */
struct tr_checked_progress {
    uint64_t at;         /* bytes that are written */
    XXH3_state_t *state; /* of the current piece; NULL: the area is complete */
};

struct tr_checked_writer {
    struct tr_target target;
    char format[24];
    uint32_t version;
    const char *fault_write, *fault_name; /* fault points of writing and of renaming */
    bool is_special;                      /* a device or pipe, such as /dev/null */
    int fd, layout;                       /* the file; the memory in which HDF5 lays it out */
    hid_t file, array;                    /* of the layout; the current array, or -1 */
    uint64_t header, laid;                /* bytes of the header and of all arrays */
    struct tr_checked_area *area;
    struct tr_checked_progress *progress; /* by area */
    uint64_t *sum;
    size_t areas, sums, area_capacity, progress_capacity, sum_capacity;
    XXH3_state_t *state;
    uint64_t bytes, digest; /* set by tr_checked_seal() */
};

/* Creates a file.
 *
 * @param [in] header       bytes of the header (tr_checked_header_bytes())
 * @param [in] how          as of tr_target_open()
 * @param [in] fault_write  fault point (base/fault.h) of writing
 * @param [in] fault_name   fault point of renaming; NULL: the file is not renamed
 * @param [out] w           close it with tr_checked_abandon(), also if this fails
 * @return TR_OK, TR_ERR_NO_OUTPUT, TR_ERR_NO_PERM, or TR_ERR_IO if the file would exceed the limit of this process
 */
int tr_checked_create(struct tr_checked_writer *w, const char *path, const char *format, uint32_t version,
                      uint64_t header, int how, const char *fault_write, const char *fault_name);

/* Starts an array in the group or file `where`. w->array is its dataset until the next array starts.
 *
 * @param [in]  type, dimensions, shape  of HDF5; 0 to 2 dimensions
 * @param [in]  piece                    bytes per sum; 0: one sum for the array
 * @param [out] at                       position in the file, 0 if the array is empty; may be NULL
 */
int tr_checked_begin(struct tr_checked_writer *w, hid_t where, const char *name, hid_t type, int dimensions,
                     const uint64_t *shape, uint64_t piece, uint64_t *at);

/* Append the next bytes of the current array, or of the array `area` (value of w->areas before that array started). All arrays
 * must be complete before tr_checked_seal(). */
int tr_checked_append(struct tr_checked_writer *w, const void *data, uint64_t bytes);
int tr_checked_append_to(struct tr_checked_writer *w, size_t area, const void *data, uint64_t bytes);

/* Declares a local identifier of HDF5 (negative: none) that is closed when its scope ends. */
#define TR_HID __attribute__((cleanup(tr_hid_close))) hid_t
void tr_hid_close(const hid_t *id);

/* Set attributes of a file, group or dataset: one element of a type of HDF5, a count, a text. */
int tr_attribute(hid_t where, const char *name, hid_t type, const void *value);
int tr_attribute_count(hid_t where, const char *name, uint64_t value);
int tr_attribute_text(hid_t where, const char *name, const char *text);

/* Sets the attributes format, format_version and trireme (the version of the program). */
int tr_attributes_of_format(hid_t file, const char *format, int64_t version, const char *trireme);

/* Returns the type of a text of `length` bytes, padded with zeros. */
hid_t tr_text_type(size_t length);

/* Returns the creation properties of groups and datasets: without times, so that equal content gives equal files; no fill values. */
hid_t tr_creation(hid_t class);

/* Reports a failure of HDF5 in the layout. This is a bug, because the layout is in memory. */
int tr_layout_failed(const char *name);

/* Writes everything to the disk, the header with the directory (may be NULL) last. Sets bytes and digest. Only
 * tr_checked_finish() or tr_checked_abandon() may follow. TR_ERR_IO. */
int tr_checked_seal(struct tr_checked_writer *w, const void *directory, uint64_t directory_bytes);

/* Gives a sealed file its name and frees the writer; removes the file on failure. TR_ERR_IO. */
int tr_checked_finish(struct tr_checked_writer *w);

/* Removes the file, unless it is finished, and frees the writer. May be called twice. */
void tr_checked_abandon(struct tr_checked_writer *w);

/* ---- reading ---- */

struct tr_checked {
    char *path;
    int fd;
    struct tr_checked_header *header;
    const struct tr_checked_area *area;
    const uint64_t *sum;
    const void *directory;
    char *piece; /* the last piece that was read in part, with its area and number */
    size_t piece_capacity;
    const struct tr_checked_area *piece_area;
    uint64_t piece_number;
};

/* Opens a file and checks all bytes outside the areas. Close it with tr_checked_close(), also if this fails. TR_ERR_NO_INPUT: cannot
 * be read; TR_ERR_DATA: damaged, or of another format or version. */
int tr_checked_open(struct tr_checked *f, const char *path, const char *format, uint32_t version);
void tr_checked_close(struct tr_checked *f);

/* Checks the areas. TR_ERR_DATA. */
int tr_checked_verify(struct tr_checked *f);

/* Reads bytes of a verified file into memory that contains zeros. Holes of the file are skipped, so that no pages are allocated. */
int tr_checked_fill(const struct tr_checked *f, void *zeros, uint64_t first, uint64_t bytes);

/* An array of n elements of `size` bytes: the area that starts at `at`. The name is for messages. */
struct tr_checked_array {
    const char *name;
    uint64_t at, n;
    size_t size;
};

/* Reads and checks n elements from `first` on. TR_ERR_DATA: damaged, or there is no such array. */
int tr_checked_read(struct tr_checked *f, const struct tr_checked_array *a, uint64_t first, uint64_t n,
                    void *values);

/* Reads all elements into new memory. */
int tr_checked_get(struct tr_checked *f, const struct tr_checked_array *a, void *values_pointer);

/* Opens an HDF5 file for reading: all files that this process has not just written are opened here. Refuses a file that refers to
 * other files: external storage, external links, virtual datasets of other files; the error names the object. HDF5 loads filters
 * only from HDF5_PLUGIN_PATH.
 *
 * @param [in]  fd    the descriptor that was checked, so that the same file is read; -1: open the path
 * @param [out] file  close it, also if this fails; negative if HDF5 cannot open the file: its error stack says why
 * @return TR_OK or TR_ERR_DATA
 */
int tr_hdf5_open(const char *path, int fd, hid_t *file);

#endif
