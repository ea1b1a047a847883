/* Small files for tests of readers: in a folder of the test's own, removed at its exit (Check runs every test in a process
 * of its own). */
#ifndef TR_TESTS_DATA_FILES_H
#define TR_TESTS_DATA_FILES_H

#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include "base/base.h"
#include "data/input.h"
#include "unit.h"

static char folder[] = "/tmp/test_data_XXXXXX";

static inline void remove_files(void)
{
    char *command;
    if (tr_format(&command, "rm -rf %s", folder) != TR_OK || system(command) != 0) perror(folder);
    free(command);
}

static inline char *path_of(const char *name)
{
    char *path;
    if (strstr(folder, "XXXXXX")) {
        ck_assert_ptr_nonnull(mkdtemp(folder));
        atexit(remove_files);
    }
    ck_ok(tr_format(&path, "%s/%s", folder, name));
    return path;
}

static inline void write_file(const char *name, const char *text, size_t n)
{
    char *path = path_of(name);
    FILE *file = fopen(path, "wb");
    ck_assert_ptr_nonnull(file);
    ck_assert_uint_eq(fwrite(text, 1, n, file), n);
    ck_assert_int_eq(fclose(file), 0);
    free(path);
}

static inline void write_packed(const char *name, const char *text, size_t n)
{
    char *path = path_of(name);
    gzFile file = gzopen(path, "wb");
    ck_assert_ptr_nonnull(file);
    ck_assert_int_eq(gzwrite(file, text, (unsigned)n), (int)n);
    ck_assert_int_eq(gzclose(file), Z_OK);
    free(path);
}

/* Opens a file of the folder, or all that match. */
static inline struct tr_files open_files(const char *pattern)
{
    struct tr_files files;
    char *path = path_of(pattern);
    ck_ok(tr_files_open((char *[]){path}, 1, &files));
    free(path);
    return files;
}

#endif
