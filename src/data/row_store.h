/* The row store: the arrays of a worker's rows, and files that hold them.
 *
 * The rows of a worker are a few arrays (enum tr_row_array). They lie in the heap of the process, or in one file that is
 * mapped as a whole: in the memory of the node, where the members of a group use one copy (cache.h), or on a disk (disk.h).
 * Code that measures, moves, maps, reads or frees rows loops over the arrays.
 *
 * A row file is a checked file (store/checked.h) without HDF5 inside: a header, then one area of all arrays, each of which
 * begins a page, with a sum of each MiB. The directory in the header has a key, which identifies the source of the arrays,
 * and their places. The digest is written last, so that a file that is not complete is refused. No MPI in this file.
 */
#ifndef TR_DATA_ROW_STORE_H
#define TR_DATA_ROW_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "trireme/data.h"

/* ---- arrays ---- */

/* In the order in which they lie in a file. tr_data_forget() frees the first three. */
enum tr_row_array {
    TR_ROWS_BEGIN,
    TR_ROWS_COLUMN,
    TR_ROWS_VALUE,
    TR_ROWS_LABEL,
    TR_ROWS_NUMBER,
    TR_ROWS_KEYS,
    TR_ROW_ARRAYS
};

/* Bytes of one element of each array. */
extern const size_t tr_row_unit[TR_ROW_ARRAYS];

/* The size of a block of rows. */
struct tr_row_shape {
    uint64_t rows, values, keys; /* values: non-zeros of sparse rows, all numbers of dense rows */
    uint64_t arrays;             /* bit i: there is array i of enum tr_row_array */
};

/* The shape of data->state->rows and what belongs to them. */
struct tr_row_shape tr_row_store_shape(const tr_data *data);

/* Bytes of each array of such rows. Returns the bytes of all of them in a file, each in whole pages. */
uint64_t tr_row_store_measure(const struct tr_row_shape *shape, uint64_t bytes[TR_ROW_ARRAYS]);

/* Where the pointer to array i is. */
void **tr_row_store_array(tr_data *data, size_t i);

/* The arrays of the bit mask lie in data->state->file from now on. */
void tr_row_store_attach(tr_data *data, uint64_t arrays);

/* Frees the first n arrays, which lie in the heap; NULL pointers are skipped. */
void tr_row_store_free(tr_data *data, size_t n);

/* ---- files ---- */

struct tr_row_key {
    uint64_t word[2];
};

/* xxh3, 128 bits, of n bytes. */
struct tr_row_key tr_row_key_of(const void *bytes, size_t n);

struct tr_checked_header;
struct tr_checked_area;

/* A file of arrays, mapped as a whole. */
struct tr_row_file {
    char *path;
    int fd;
    struct tr_checked_header *header; /* the address of the mapping */
    struct tr_checked_area *area;
    uint64_t *sum;
    struct tr_row_directory *directory;
    bool unnamed;  /* the file has no name: its memory is freed when the last process closes it */
    bool stays;    /* pages that are dropped may stay in the page cache of the system */
    bool *checked; /* of each MiB: its sum has been compared and is right; NULL: none has */
};

/* Makes a file for n arrays of bytes[i] bytes; an older file of that name is removed. Its memory is not yet reserved.
 * TR_ERR_NO_OUTPUT, TR_ERR_IO. */
int tr_row_file_create(const char *path, struct tr_row_key key, const uint64_t *bytes, size_t n,
                       struct tr_row_file **file);

/* Opens a file that another process has created, to write to it as well. */
int tr_row_file_join(const char *path, struct tr_row_file **file);

/* Reserves one of `members` equal ranges of each array, near this process; all ranges, before anything is written.
 * TR_ERR_IO: no space is left. */
int tr_row_file_reserve(struct tr_row_file *file, size_t member, size_t members);

/* The address of array i; *bytes (may be NULL): its size. */
void *tr_row_file_at(const struct tr_row_file *file, size_t i, uint64_t *bytes);

/* Computes the sums of one of `members` equal ranges of the area, which is read-only afterwards. */
void tr_row_file_sum(struct tr_row_file *file, size_t member, size_t members);

/* The same of a whole file on a disk, which is written to the disk and dropped from memory at the same time. */
int tr_row_file_sum_on_disk(struct tr_row_file *file);

/* Writes the digest: the file can be opened from now on. One process calls it, after all ranges are summed. */
void tr_row_file_seal(struct tr_row_file *file);

/* Makes a file, moves n arrays from the heap into it, sums and seals it. Each *array[i] is freed, and NULL afterwards. If this
 * fails, nothing was moved. */
int tr_row_file_move(const char *path, struct tr_row_key key, void **const array[], const uint64_t *bytes,
                     size_t n, struct tr_row_file **file);

/* Opens a sealed file for reading, and checks one of `members` equal ranges of the area; members = 0: nothing is read and checked
 * yet. TR_ERR_NO_INPUT: there is no such file; TR_ERR_DATA: it has another key, or is damaged. */
int tr_row_file_open(const char *path, struct tr_row_key key, size_t n, size_t member, size_t members,
                     struct tr_row_file **file);

/* *file may be NULL. The file stays. */
void tr_row_file_close(struct tr_row_file **file);

/* Bytes of memory or disk that it takes. */
uint64_t tr_row_file_bytes(const struct tr_row_file *file);

/* Removes the name of a file. All processes that have opened it call this. */
void tr_row_file_unname(struct tr_row_file *file);

/* This process does not need the first n arrays any more. Of a file without a name, their memory is freed by the last process
 * that calls this. */
void tr_row_file_forget(struct tr_row_file *file, size_t n);

/* Several processes use a file, whichever made it. The first function registers this process (false: the file was removed); the
 * second removes the file if no other process uses it. */
bool tr_row_file_use(const struct tr_row_file *file, const char *path);
void tr_row_file_leave(const struct tr_row_file *file, const char *path);

/* ---- n bytes at an address in a file on a disk ---- */

/* Asks the system to read them soon. */
void tr_row_file_ask(const struct tr_row_file *file, const void *at, uint64_t n);

/* Reads them now. Returns 0 or an error number. */
int tr_row_file_fetch(const struct tr_row_file *file, const void *at, uint64_t n);

/* Drops them from memory after reading. sequential: the bytes before them are not needed either, so pages that they share with the
 * system's read-ahead are dropped too. */
void tr_row_file_drop(const struct tr_row_file *file, const void *at, uint64_t n, bool sequential);

/* Starts to write them to the disk; waits until they are there, and drops them from memory. */
void tr_row_file_send(const struct tr_row_file *file, const void *at, uint64_t n);
void tr_row_file_settle(const struct tr_row_file *file, const void *at, uint64_t n);

/* Whether their sums are right. One thread at a time. */
bool tr_row_file_is_whole(struct tr_row_file *file, const void *at, uint64_t n);

#endif
