/* model.h5: HDF5 files of named arrays with attributes, written by one process and read by one.
 *
 * Every model file has the attributes format ("trireme-mf"), format_version and trireme (the version that wrote it),
 * and the dataset /job, the resolved job as YAML. Arrays are contiguous and not compressed; rows of a matrix follow
 * each other. Texts of a list have one length, padded with zero bytes. h5dump and h5py show all of it.
 *
 * They are checked files (checked.h): all of one is checked before HDF5 reads it. Files without a header, which other
 * programs or earlier versions wrote, are read unchecked. One that was changed in its place is refused; h5unjam takes away
 * the header.
 */
#ifndef TR_STORE_H5_H
#define TR_STORE_H5_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "job/job.h"

enum tr_h5_type { TR_H5_F32, TR_H5_F64, TR_H5_I32, TR_H5_I64, TR_H5_U8, TR_H5_U16, TR_H5_U32, TR_H5_U64 };

/* ---- writing ---- */

struct tr_h5_writer;

/* Begins <folder>/model.h5, under the name model.h5.part until it is complete. Makes the folder if it is missing. The
 * job's text is written as it is; NULL: none. version: of Trireme; NULL: this one. TR_ERR_NO_OUTPUT. */
int tr_h5_create(const char *folder, const char *format, int format_version, const char *job,
                 const char *version, struct tr_h5_writer **writer);

/* Attributes of the file. */
int tr_h5_put_count(struct tr_h5_writer *w, const char *name, uint64_t value);
int tr_h5_put_real(struct tr_h5_writer *w, const char *name, double value);
int tr_h5_put_text(struct tr_h5_writer *w, const char *name, const char *text);

/* A whole array: rows × columns; columns 0: one of rows numbers; both 0: one number. */
int tr_h5_put(struct tr_h5_writer *w, const char *name, enum tr_h5_type type, uint64_t rows, uint64_t columns,
              const void *values);

/* The same piece by piece: begin, then append rows until all are there, before anything else is written. */
int tr_h5_begin(struct tr_h5_writer *w, const char *name, enum tr_h5_type type, uint64_t rows,
                uint64_t columns);
int tr_h5_append(struct tr_h5_writer *w, const void *values, size_t rows);

/* A list of texts, each in `length` bytes (> 0), padded with zeros; appended like an array of so wide rows. */
int tr_h5_begin_texts(struct tr_h5_writer *w, const char *name, uint64_t n, size_t length);

/* An attribute of the array written last, or being written: what its rows and columns are. */
int tr_h5_describe(struct tr_h5_writer *w, const char *name, const char *text);

/* Everything is on the disk, under the name it has until finished. Only finish and abandon follow. */
int tr_h5_seal(struct tr_h5_writer *w);

/* Seals, gives the file its name, and forgets the writer: also where that fails, as abandon does. TR_ERR_IO. */
int tr_h5_finish(struct tr_h5_writer **writer);
void tr_h5_abandon(struct tr_h5_writer **writer); /* NULL inside is fine */

/* ---- reading ---- */

struct tr_h5_reader;

/* Whether a file that begins with these bytes (16 are enough) may be a model.h5. */
bool tr_h5_begins(const char *begin, size_t n);

/* Opens a model.h5, or that of a folder. TR_ERR_NO_INPUT: missing or empty; TR_ERR_DATA: no HDF5 file, not a model of
 * Trireme, of another format (NULL: any will do) or version (0: any). */
int tr_h5_open(const char *path, const char *format, int format_version, struct tr_h5_reader **reader);
void tr_h5_close(struct tr_h5_reader **reader); /* NULL inside is fine */
const char *tr_h5_format(const struct tr_h5_reader *r);

/* Attributes of the file. TR_ERR_DATA where one is missing or of another kind; texts are to be freed. */
int tr_h5_get_count(struct tr_h5_reader *r, const char *name, uint64_t *value);
int tr_h5_get_real(struct tr_h5_reader *r, const char *name, double *value);
int tr_h5_get_text(struct tr_h5_reader *r, const char *name, char **text);

/* The job's text, to be freed; NULL where there is none. */
int tr_h5_get_job(struct tr_h5_reader *r, char **text);

bool tr_h5_has(struct tr_h5_reader *r, const char *name);

/* Whether an array is of single precision; TR_ERR_DATA where it is none of reals. */
int tr_h5_is_f32(struct tr_h5_reader *r, const char *name, bool *single);

/* A whole array as this type, to be freed; its shape must be rows × columns as for tr_h5_put(). */
int tr_h5_get(struct tr_h5_reader *r, const char *name, enum tr_h5_type type, uint64_t rows, uint64_t columns,
              void *values_pointer);

/* A list of n texts, to be freed: text i begins at i × *length, which is one byte more than in the file: a zero. */
int tr_h5_get_texts(struct tr_h5_reader *r, const char *name, uint64_t n, char **texts, size_t *length);

#endif
