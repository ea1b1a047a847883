/* Checked files: HDF5 files with checksums. A damaged file is refused. No MPI here.
 *
 * HDF5 fails badly on full disks (a file that cannot be closed stays open, and fails again at exit) and on some damaged
 * files. Therefore HDF5 writes only to memory, a file without the values of arrays (the layout); write() brings the layout and
 * the values to the disk. A file is compared with its checksums before HDF5 reads it. The checksums are in a header in front of
 * the HDF5 file, in the user block, which h5dump and h5py skip:
 *
 *   struct tr_checked_header; `areas` elements struct tr_checked_area, ascending; `sums` numbers of 64 bits; the directory, which
 *   each format defines for its use. Zeros extend the header to 4096 bytes or a higher power of two
 *
 * An area is the range of bytes of an array in the file, divided into pieces of equal size. Each piece has a checksum (sum). The
 * digest is the checksum of the header and of all bytes outside the areas. Checksums are xxh3 of 64 bits. Numbers have the byte
 * order of the machine.
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
    char format[24];         /* such as "trireme-shard", padded with zeros */
    uint32_t version, order; /* version of the format; TR_CHECKED_ORDER, shows the byte order */
    uint64_t bytes;          /* size of the file */
    /* checksum of the header (with this member set to 0) and of all bytes outside the areas */
    uint64_t digest;
    uint64_t header;                 /* size of the header in bytes */
    uint64_t areas, sums, directory; /* number of areas; number of sums; bytes of the directory */
};

struct tr_checked_area {
    uint64_t first, bytes; /* offset of the area in the file, and its size in bytes */
    uint64_t piece;        /* bytes of a piece; the last piece may be shorter */
    uint64_t sum;          /* index of the checksum of the first piece among all sums */
};

/* Returns the size in bytes of a header with these numbers of areas and sums, and a directory of `directory` bytes. */
uint64_t tr_checked_header_bytes(uint64_t areas, uint64_t sums, uint64_t directory);

/* ---- writing ---- */

/* Progress of writing an area. */
struct tr_checked_progress {
    uint64_t at;         /* number of bytes written so far */
    XXH3_state_t *state; /* checksum of the current piece so far; NULL: the area is complete */
};

struct tr_checked_writer {
    struct tr_target target;
    char format[24];
    uint32_t version;
    const char *fault_write, *fault_name; /* fault points of writing and of renaming */
    bool is_special;                      /* the target is a device or pipe, such as /dev/null */
    int fd, layout;                       /* descriptors of the file and of the layout in memory */
    hid_t file, array;                    /* HDF5 identifiers of the layout, and of the current array or -1 */
    uint64_t header, laid;                /* size of the header; size of all arrays so far */
    struct tr_checked_area *area;
    struct tr_checked_progress *progress; /* progress of each area */
    uint64_t *sum;
    size_t areas, sums, area_capacity, progress_capacity, sum_capacity;
    XXH3_state_t *state;    /* state of the digest's computation */
    uint64_t bytes, digest; /* size and digest of the file, set by tr_checked_seal() */
};

/* Creates a file.
 *
 * @param [in] header       bytes of the header (tr_checked_header_bytes())
 * @param [in] how          see tr_target_open()
 * @param [in] fault_write  fault point (base/fault.h) of writing
 * @param [in] fault_name   fault point of renaming; NULL: the file is not renamed
 * @param [out] w           close it with tr_checked_abandon(), also if this fails
 * @return TR_OK, TR_ERR_NO_OUTPUT, TR_ERR_NO_PERM, or TR_ERR_IO if the file would exceed the limit of this process
 */
int tr_checked_create(struct tr_checked_writer *w, const char *path, const char *format, uint32_t version,
                      uint64_t header, int how, const char *fault_write, const char *fault_name);

/* Starts an array in the group or file `where`. w->array is its dataset until the next array starts.
 *
 * @param [in]  type, dimensions, shape  HDF5 type of elements; 0 to 2 dimensions; size in each dimension
 * @param [in]  piece                    bytes of a piece; 0: the array is one piece
 * @param [out] at                       offset in the file, 0 if the array is empty; may be NULL
 */
int tr_checked_begin(struct tr_checked_writer *w, hid_t where, const char *name, hid_t type, int dimensions,
                     const uint64_t *shape, uint64_t piece, uint64_t *at);

/* tr_checked_append() appends bytes to the current array, tr_checked_append_to() to the array whose area has the index `area`
 * (w->areas before tr_checked_begin()). All arrays must be complete before tr_checked_seal(). */
int tr_checked_append(struct tr_checked_writer *w, const void *data, uint64_t bytes);
int tr_checked_append_to(struct tr_checked_writer *w, size_t area, const void *data, uint64_t bytes);

/* Declares a local identifier of HDF5 (negative: none) that is closed when its scope ends. */
#define TR_HID __attribute__((cleanup(tr_hid_close))) hid_t
void tr_hid_close(const hid_t *id);

/* Set an attribute of a file, group or dataset: to one element of an HDF5 type, to a count, or to a text. */
int tr_attribute(hid_t where, const char *name, hid_t type, const void *value);
int tr_attribute_count(hid_t where, const char *name, uint64_t value);
int tr_attribute_text(hid_t where, const char *name, const char *text);

/* Sets the attributes format, format_version and trireme (the version of the program). */
int tr_attributes_of_format(hid_t file, const char *format, int64_t version, const char *trireme);

/* Returns the type of a text of `length` bytes, padded with zeros. */
hid_t tr_text_type(size_t length);

/* Returns the creation properties of groups or datasets: no times, so that equal content gives equal files, and no fill values. */
hid_t tr_creation(hid_t class);

/* Fails with TR_ERR_INTERNAL: HDF5 has failed to write the layout, which is a bug, because the layout is in memory. */
int tr_layout_failed(const char *name);

/* Writes the layout to the disk, then the header, which contains the directory (may be NULL). Sets bytes and digest. Only
 * tr_checked_finish() or tr_checked_abandon() may follow. TR_ERR_IO. */
int tr_checked_seal(struct tr_checked_writer *w, const void *directory, uint64_t directory_bytes);

/* Renames a sealed file to its final name and frees the writer; removes the file on failure. TR_ERR_IO. */
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
    char *piece; /* a piece of which tr_checked_read() needed only a part: stored for the next call */
    size_t piece_capacity;
    const struct tr_checked_area *piece_area; /* area of that piece; NULL: no piece is stored */
    uint64_t piece_number;                    /* number of that piece in its area */
};

/* Opens a file and checks all bytes outside the areas. Close it with tr_checked_close(), also if this fails. TR_ERR_NO_INPUT: the
 * file cannot be read; TR_ERR_DATA: it is damaged, or has another format or version. */
int tr_checked_open(struct tr_checked *f, const char *path, const char *format, uint32_t version);
void tr_checked_close(struct tr_checked *f);

/* Compares all areas with their sums. TR_ERR_DATA. */
int tr_checked_verify(struct tr_checked *f);

/* Reads bytes of a verified file into memory that contains zeros. It skips holes of the file, so that no memory is allocated for
 * their pages. */
int tr_checked_fill(const struct tr_checked *f, void *zeros, uint64_t first, uint64_t bytes);

/* An array of n elements of `size` bytes: the area that starts at the offset `at`. The name is for messages. */
struct tr_checked_array {
    const char *name;
    uint64_t at, n;
    size_t size;
};

/* Reads n elements from `first` on, and compares their pieces with the sums. TR_ERR_DATA: they are damaged, or the array is
 * missing. */
int tr_checked_read(struct tr_checked *f, const struct tr_checked_array *a, uint64_t first, uint64_t n,
                    void *values);

/* Reads all elements into new memory. */
int tr_checked_get(struct tr_checked *f, const struct tr_checked_array *a, void *values_pointer);

/* Opens an HDF5 file for reading. Refuses a file that refers to other files: external storage, external links, virtual datasets of
 * other files; the error names the object. HDF5 loads filter plugins only if HDF5_PLUGIN_PATH is set.
 *
 * @param [in]  fd    the descriptor that was checked, so that the same file is read; -1: open the path
 * @param [out] file  close it, also if this fails; negative if HDF5 cannot open the file: its error stack has the reason
 * @return TR_OK or TR_ERR_DATA
 */
int tr_hdf5_open(const char *path, int fd, hid_t *file);

#endif
