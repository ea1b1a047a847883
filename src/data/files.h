/* The input of a job: a list of files and its fair division over readers.
 *
 * All bytes of all files are laid end to end (compressed bytes for gzip), T in total, and reader k of W owns
 * the bytes k*T/W .. (k+1)*T/W - 1. What a reader finds in a file is its part of it: a byte range of a plain
 * file, every m-th piece of the text of a gzip file. text.h turns parts into lines.
 */
#ifndef TR_DATA_FILES_H
#define TR_DATA_FILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tr_file {
    char *path;
    uint64_t size; /* as stored, so compressed for gzip */
    bool gzip;     /* by its first bytes, not by its name */
};

struct tr_files {
    struct tr_file *file;
    size_t n;
    uint64_t total; /* sum of the sizes */
};

/* Expands patterns (shell globs; the matches of each sorted by bytes) and looks at every file once.
 * TR_ERR_NO_INPUT names the first that is missing, not a file, unreadable, or says that all are empty. */
int tr_files_open(char *const patterns[], size_t n, struct tr_files *files);
void tr_files_close(struct tr_files *files);

/* Puts before a relative pattern the first of the folders in which it matches something; an absolute one, and
 * one that matches nowhere, is copied as it is. *found is to be freed. */
int tr_files_find(const char *pattern, char *const folders[], size_t n, char **found);

/* What one reader has to do with one file. */
struct tr_part {
    size_t file;
    uint64_t begin, end; /* plain: the bytes begin .. end - 1; a line belongs where its first byte lies */
    size_t turn, turns;  /* gzip: pieces turn, turn + turns, turn + 2*turns, … of the text */
};

/* False if this reader has nothing of that file. */
bool tr_files_part(const struct tr_files *files, size_t file, size_t reader, size_t readers,
                   struct tr_part *part);

#endif
