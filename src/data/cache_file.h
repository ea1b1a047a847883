/* Arrays in a file of the node's memory, which are used where they lie and outlive the process. No MPI here.
 *
 * It is a checked file (store/checked.h) without HDF5 inside: a header, then one area of all arrays, each of which begins a
 * page, with a sum of each MiB. The directory in the header has a key, which is what the arrays were made from, and where
 * they are. A file that is being written has no digest yet: whoever finds it then refuses it.
 */
#ifndef TR_DATA_CACHE_FILE_H
#define TR_DATA_CACHE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tr_cache_key {
    uint64_t part[2];
};

/* Of some bytes: xxh3 of 128 bits. */
struct tr_cache_key tr_cache_key_of(const void *bytes, size_t n);

struct tr_cache_file;

/* Makes a file for n arrays of so many bytes; an older one of that name goes. Nothing is in it yet, and there may be no
 * room for it. TR_ERR_NO_OUTPUT, TR_ERR_IO. */
int tr_cache_file_create(const char *path, struct tr_cache_key key, const uint64_t *bytes, size_t n,
                         struct tr_cache_file **file);

/* Opens one that somebody is writing, to help him. */
int tr_cache_file_join(const char *path, struct tr_cache_file **file);

/* Takes the memory of one of several equal shares of each array, near this process; all of them, before anything is
 * written. TR_ERR_IO: there is not enough. */
int tr_cache_file_reserve(struct tr_cache_file *file, size_t share, size_t shares);

/* Array i, page by page: to be written until the file is summed, then to be read. */
void *tr_cache_file_at(const struct tr_cache_file *file, size_t i, uint64_t *bytes);

/* Sums one of several equal shares of the area. Nothing may be written any more. The second sums all of a file on a disk,
 * of which hardly anything stays in memory. */
void tr_cache_file_sum(struct tr_cache_file *file, size_t share, size_t shares);
int tr_cache_file_sum_on_disk(struct tr_cache_file *file);

/* When all is summed: makes the file one that can be found. By one of those who write it. */
void tr_cache_file_seal(struct tr_cache_file *file);

/* Opens one that is whole, to be read, and checks one of several equal shares of the area; of no share (0 shares) nothing is
 * read yet, and nothing checked. TR_ERR_NO_INPUT: it is not there; TR_ERR_DATA: it is made from something else, or damaged. */
int tr_cache_file_open(const char *path, struct tr_cache_key key, size_t n, size_t share, size_t shares,
                       struct tr_cache_file **file);

/* Takes the name away from a file that several processes have open, who all call this: it goes with the last of them. */
void tr_cache_file_hide(struct tr_cache_file *file);
bool tr_cache_file_is_hidden(const struct tr_cache_file *file);

/* Bytes of memory or of the disk that it takes. */
uint64_t tr_cache_file_bytes(const struct tr_cache_file *file);

/* Nobody here needs the arrays first .. last any more: they stay in the file, but of one without a name the last who needs them no
 * more gives back their memory. */
void tr_cache_file_forget(struct tr_cache_file *file, size_t first, size_t last);

/* ---- of files on a disk: which parts of them are in memory; bytes first .. first + n - 1 of the file ---- */

/* Where array i begins in the file. */
uint64_t tr_cache_file_place(const struct tr_cache_file *file, size_t i);
const char *tr_cache_file_path(const struct tr_cache_file *file);

/* The system is asked to read this soon; all of it is read when the second returns: 0 or an error number. */
void tr_cache_file_ask(const struct tr_cache_file *file, uint64_t first, uint64_t n);
int tr_cache_file_fetch(const struct tr_cache_file *file, uint64_t first, uint64_t n);

/* It is to go out of memory, where it was only read. follows: what is before it has gone already, but for pages that the system
 * held together with these; where others are still wanted there, they would be read twice. */
void tr_cache_file_drop(const struct tr_cache_file *file, uint64_t first, uint64_t n, bool follows);

/* Whether what is dropped may stay in the system's cache (no, until it is set): then only this process lets go of it, and who
 * fetches it again need not wait for the disk, unless the system has needed its memory since. */
void tr_cache_file_set_stays(struct tr_cache_file *file, bool stays);
bool tr_cache_file_stays(const struct tr_cache_file *file);

/* It is to go to the disk; and it is there when the second returns, and out of memory. */
void tr_cache_file_send(const struct tr_cache_file *file, uint64_t first, uint64_t n);
void tr_cache_file_settle(const struct tr_cache_file *file, uint64_t first, uint64_t n);

/* Whether it is what was written. Any thread, but one at a time. */
bool tr_cache_file_is_whole(struct tr_cache_file *file, uint64_t first, uint64_t n);

/* Removes it, so that nobody finds it again; who has it open keeps it. */
void tr_cache_file_spoil(const struct tr_cache_file *file);

/* *file may be NULL. The file stays. */
void tr_cache_file_close(struct tr_cache_file **file);

/* Of a file that several processes use, whichever made it: it is used by this one from now on, if it is still there; and no more,
 * when it goes with the last of them. */
bool tr_cache_file_use(const struct tr_cache_file *file, const char *path);
void tr_cache_file_leave(const struct tr_cache_file *file, const char *path);

#endif
