/* For tests of readers: the files that are open, and what was read from them last. Both stay until the next call. */
#ifndef TR_TESTS_READING_H
#define TR_TESTS_READING_H

#include "unit.h"

#include <zlib.h>

#include "data/input.h"
#include "data/reader.h"

static struct tr_files files;
static struct tr_matrix matrix;
static struct tr_read_report report;

static inline void write_gzip(const char *name, const char *mode, const char *text, size_t n)
{
    gzFile file = gzopen(unit_path(name), mode);
    ck_assert_ptr_nonnull(file);
    ck_assert_int_eq(gzwrite(file, text, (unsigned)n), (int)n);
    ck_assert_int_eq(gzclose(file), Z_OK);
}

/* Files of the folder that match, or an absolute path. */
static inline int try_files(const char *pattern)
{
    tr_files_close(&files);
    return tr_files_open((char *[]){*pattern == '/' ? (char *)(uintptr_t)pattern : unit_path(pattern)}, 1,
                         &files);
}

static inline void open_files(const char *pattern)
{
    ck_ok(try_files(pattern));
}

/* Reads the share of a reader as `matrix`. */
static inline int read_share(size_t reader, size_t readers, struct tr_reader_options options)
{
    struct tr_head *heads = NULL;
    tr_matrix_free(&matrix);
    tr_ids_free(&report.labels.bits);
    if (options.format != TR_FORMAT_LIBSVM)
        TR_TRY(tr_heads_read(&files, options.format, TR_HEADER_AUTO, &heads));
    options.heads = heads;
    int status = tr_read_matrix(&files, reader, readers, &options, &matrix, &report);
    if (status != TR_OK) {
        matrix = (struct tr_matrix){0};
        report = (struct tr_read_report){0};
    }
    free(heads);
    return status;
}

/* Writes the text and reads all of it. */
static inline int read_text(const char *text, size_t n, struct tr_reader_options options)
{
    unit_write("text", text, n);
    open_files("text");
    return read_share(0, 1, options);
}

#endif
