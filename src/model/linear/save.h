/* Writing a trained linear model: model.h5, which holds everything, and model.txt, LIBLINEAR's text format.
 *
 * model.h5 (serial HDF5): datasets /weights (f32 or f64, one a feature), /bias (where there is one), /labels
 * (classifiers; the positive kind first), /job (the resolved job as YAML); attributes of the root: format,
 * format_version, model, features, first_index, l2, objective, rows, trireme.
 *
 * model.txt can be used with liblinear-predict. Its features are numbered from 1, so its line i (from 1)
 * behind «w» is weight i - 1 of model.h5, and belongs to index i - 1 + first_index of the data. For data that
 * begin at index 1, as nearly all do, these are the same; for data that begin at 0, add 1 to each index
 * before using LIBLINEAR. LIBLINEAR's labels are whole numbers: others are written as they are, which
 * it does not read (Trireme does).
 */
#ifndef TR_LINEAR_SAVE_H
#define TR_LINEAR_SAVE_H

#include "model/linear/file.h"
#include "model/linear/linear.h"

/* Writes the model as it is in the table now: all ranks, outside tr_run(). The first server writes, in
 * pieces; no rank holds the whole table. The folder is made if it is missing. A file has its final name only
 * when it is complete and on the disk. TR_ERR_NO_OUTPUT, TR_ERR_IO. The outcome is agreed on. */
int tr_linear_save(struct tr_linear *model, const char *folder);

/* The writing itself, for one process: create, append weights in pieces until there are as many as features,
 * then finish. The head's weight is not used; its strings are, until the end. After a failure, and instead of
 * finishing: abandon. */
struct tr_linear_writer;
int tr_linear_writer_create(const char *folder, const struct tr_linear_model *head,
                            struct tr_linear_writer **writer);
int tr_linear_writer_append(struct tr_linear_writer *writer, const void *weights, size_t n);
int tr_linear_writer_finish(struct tr_linear_writer **writer);
void tr_linear_writer_abandon(struct tr_linear_writer **writer); /* NULL inside is fine */

#endif
