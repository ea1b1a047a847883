/* model.h5: HDF5 files of named arrays with attributes. One process writes or reads a file.
 *
 * Every model file has the attributes format ("trireme-mf"), format_version and trireme (the version of the program), and
 * the dataset /job, the resolved job as YAML. Arrays are contiguous and not compressed; matrices are stored by rows. All texts
 * of a list have the same length, padded with zero bytes. h5dump and h5py can read model files.
 *
 * Model files are checked files (checked.h): the whole file is checked before HDF5 reads it. A checked file that was modified
 * is refused; h5unjam removes its header. Files without this header, from other programs or earlier versions, are not checked.
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

/* Creates the folder and the file model.h5 in it, which is named model.h5.part until it is complete.
 *
 * @param [in] job      text of the job; may be NULL
 * @param [in] version  version of Trireme in the file; NULL: that of this program
 * @return TR_OK or TR_ERR_NO_OUTPUT
 */
int tr_h5_create(const char *folder, const char *format, int format_version, const char *job,
                 const char *version, struct tr_h5_writer **writer);

/* Set an attribute of the file. */
int tr_h5_put_count(struct tr_h5_writer *w, const char *name, uint64_t value);
int tr_h5_put_real(struct tr_h5_writer *w, const char *name, double value);
int tr_h5_put_text(struct tr_h5_writer *w, const char *name, const char *text);

/* Writes an array of rows × columns elements. columns 0: the array has one dimension; rows and columns 0: it is one number. */
int tr_h5_put(struct tr_h5_writer *w, const char *name, enum tr_h5_type type, uint64_t rows, uint64_t columns,
              const void *values);

/* Write an array step by step: tr_h5_begin() starts it, tr_h5_append() appends the next rows, until it has all rows. */
int tr_h5_begin(struct tr_h5_writer *w, const char *name, enum tr_h5_type type, uint64_t rows,
                uint64_t columns);
int tr_h5_append(struct tr_h5_writer *w, const void *values, size_t rows);

/* Starts a list of n texts of `length` > 0 bytes, padded with zeros. tr_h5_append() appends the texts. */
int tr_h5_begin_texts(struct tr_h5_writer *w, const char *name, uint64_t n, size_t length);

/* Sets an attribute of the current array, which describes its rows and columns. */
int tr_h5_describe(struct tr_h5_writer *w, const char *name, const char *text);

/* Writes the file to the disk, renames it to model.h5 and frees the writer; removes the file on failure. TR_ERR_IO. */
int tr_h5_finish(struct tr_h5_writer **writer);
void tr_h5_abandon(struct tr_h5_writer **writer); /* removes the file; *writer may be NULL */

/* ---- reading ---- */

struct tr_h5_reader;

/* Returns whether a file that begins with these bytes (16 are enough) may be a model.h5. */
bool tr_h5_begins(const char *begin, size_t n);

/* Opens a model.h5, or the model.h5 in a folder.
 *
 * @param [in] format          expected format; NULL: any
 * @param [in] format_version  expected version; 0: any
 * @return TR_OK; TR_ERR_NO_INPUT: missing or empty; TR_ERR_DATA: no HDF5 file, no model of Trireme, or another format or version
 */
int tr_h5_open(const char *path, const char *format, int format_version, struct tr_h5_reader **reader);
void tr_h5_close(struct tr_h5_reader **reader); /* *reader may be NULL */
const char *tr_h5_format(const struct tr_h5_reader *r);

/* Read an attribute of the file. The caller frees texts with free(). TR_ERR_DATA: the attribute is missing or of another kind. */
int tr_h5_get_count(struct tr_h5_reader *r, const char *name, uint64_t *value);
int tr_h5_get_real(struct tr_h5_reader *r, const char *name, double *value);
int tr_h5_get_text(struct tr_h5_reader *r, const char *name, char **text);

/* Reads the job as YAML; *text is NULL if the file contains none. Free *text. */
int tr_h5_get_job(struct tr_h5_reader *r, char **text);

bool tr_h5_has(struct tr_h5_reader *r, const char *name);

/* Sets *single to whether the elements of an array are float. TR_ERR_DATA: they are not real numbers. */
int tr_h5_is_f32(struct tr_h5_reader *r, const char *name, bool *single);

/* Reads an array into new memory, which the caller frees, and converts its elements to `type`. The array must have the shape rows ×
 * columns (see tr_h5_put()). */
int tr_h5_get(struct tr_h5_reader *r, const char *name, enum tr_h5_type type, uint64_t rows, uint64_t columns,
              void *values_pointer);

/* Reads a list of n texts into new memory, which the caller frees. Text i begins at i × *length and ends with a zero. */
int tr_h5_get_texts(struct tr_h5_reader *r, const char *name, uint64_t n, char **texts, size_t *length);

#endif
