/* Suspicious columns and rows of a table, which are probably mistakes. Any single process may call the
 * functions. They read a sample of rows again, so the results do not depend on the number of ranks. */
#ifndef TR_DATA_SUSPECTS_H
#define TR_DATA_SUSPECTS_H

#include "data/schema.h"

struct tr_suspect_table {
    const struct tr_files *files;
    const struct tr_head *heads;
    const struct tr_schema *schema; /* with settled types of columns */
    const struct tr_bindings *bindings;
    bool classes; /* labels are classes */
};

/* text: «column NAME: fact: the key that helps». */
typedef void tr_suspect_fn(void *state, const char *text);

/* Calls say() for each suspicious column: a constant; a copy of another column; nearly every row has another word;
 * a count of the rows; a column that tells the label; labels that are an identifier, or occur once. */
int tr_suspects_find(const struct tr_suspect_table *table, tr_suspect_fn *say, void *state);

/* Sets *both to the number of rows in a sample of the test data that are also in a sample of the training data, and *rows to the
 * size of the former sample. The tables have the same schema. */
int tr_suspects_overlap(const struct tr_suspect_table *train, const struct tr_suspect_table *test,
                        size_t *both, size_t *rows);

#endif
