/* The meaning of text fields of csv tables: which values are equal, which are missing; names and types of columns, their slots in
 * rows as they are read, and the keys (features of the model) that they become.
 *
 * A value is compared, hashed, stored and shown in one form, tr_value_text(). A number is its exact value: 1, 1.0, +1, 01 and 1e0
 * are equal, 0.1 and .10 too, and long numbers differ in their last digit. Any other text, and a number of more than
 * TR_VALUE_DIGITS characters, is a word, and its form is its bytes. Categories, labels, data.positive and data.missing use this. A
 * row is read as one float per column, its slot. A number column has the number, or NaN if it is missing. A category has the place
 * (names.h) of its value in the reader's list of values, as the bits of the float. After reading, keys are made of slots:
 *   number     one key, which holds the mean if the number is missing; if numbers are missing in the training data, a second key is
 *              1 in the rows that lack it
 *   category   one key per value of its dictionary, the most frequent first, which is 1 in rows with this value; and possibly one
 *              for all other values
 * A raw column, a number or a category, is one key: it has the number, or NaN if that is missing; or the number of the value in the
 * dictionary, or NaN if it has none. With data.hash all categories share that number of keys, which follow all other keys. The hash
 * of a value selects its key, and several values may have the same key. A slot of a category then contains the number of the key,
 * from 0. Crossed categories (data.cross) are columns after those of the files. Their values are the values of their columns with *
 * between them; * and \ inside of a value get a \ before them. Labels, identifiers and extras have no keys.
 *
 *   schema.c       values; slots and keys; texts for users; rows of keys
 *   schema_make.c  the columns of a job, from the first lines of its files and the job; the columns of each file
 *   schema_all.c   agreement of all ranks: types, means, dictionaries, labels
 */
#ifndef TR_DATA_SCHEMA_H
#define TR_DATA_SCHEMA_H

#include <math.h>
#include <string.h>

#include "data/dialect.h"
#include "data/names.h"
#include "data/input.h"
#include "data/matrix.h"
#include "job/job.h"
#include "trireme/records.h"

struct tr_column_seen;
struct tr_context;
struct tr_data;
struct tr_dictionary;
struct tr_head;
struct tr_labels;
struct tr_read_report;
struct tr_reading;

/* ---- values ---- */

enum { TR_VALUE_DIGITS = 64, TR_VALUE_ROOM = TR_VALUE_DIGITS + 32 };

/* A part of tr_value_text(), for texts that start like a number. Do not call it elsewhere. */
const char *tr_value_number(const char *text, size_t *n, char room[TR_VALUE_ROOM]);

/* Returns the form of a text of *n bytes, and sets *n to its length. The form of a number has no redundant signs and zeros, and an
 * exponent only below 1e-6 and from 1e21 on: 1, 0.05, 1500, 1.5e21. If the text differs from its form, the form is in `room`;
 * otherwise the text itself is returned. */
static inline const char *tr_value_text(const char *text, size_t *n, char room[TR_VALUE_ROOM])
{
    bool may_be_number = *n > 0 && *n <= TR_VALUE_DIGITS && *text <= '9' && *text >= '+';
    return may_be_number ? tr_value_number(text, n, room) : text;
}

/* Compares the forms of labels: numbers by value, words by bytes, and numbers before words. Returns less than, equal to, or greater
 * than 0. */
int tr_value_compare(const char *a, size_t n_a, const char *b, size_t n_b);

/* Returns whether a form is a number; then sets *number to the nearest double. */
bool tr_value_is_number(const char *text, size_t n, double *number);

/* ---- columns ---- */

/* If a column of numbers has a word, its type changes: from number to category, or from label to named label. */
enum tr_column_type {
    TR_COLUMN_NUMBER,
    TR_COLUMN_CATEGORY,
    TR_COLUMN_LABEL,
    TR_COLUMN_NAMED_LABEL,
    TR_COLUMN_ID,
    TR_COLUMN_IGNORE,
    TR_COLUMN_WEIGHT,
    TR_COLUMN_OFFSET,
    TR_COLUMN_TYPES
};

/* Extras of a row: numbers besides its features and its label. A column of a csv file has them, or files with one number per row. */
enum tr_extra { TR_EXTRA_WEIGHT, TR_EXTRA_OFFSET, TR_EXTRAS };

struct tr_extra_kind {
    const char *noun; /* «weight»: the type in data.columns; the job key is data.weight */
    const char *
        bad; /* the text of an error message behind a bad number; bad_line: in a file with one number a line */
    const char *bad_line;
    float usual;   /* the number of a row in a file without this column */
    bool optional; /* files of other rows than data.train may lack the column */
};
extern const struct tr_extra_kind tr_extra_kinds[TR_EXTRAS];

/* Returns the extra that a column of this type has, or TR_EXTRAS. */
static inline enum tr_extra tr_column_extra(uint8_t type)
{
    return type == TR_COLUMN_WEIGHT   ? TR_EXTRA_WEIGHT
           : type == TR_COLUMN_OFFSET ? TR_EXTRA_OFFSET
                                      : TR_EXTRAS;
}

static inline bool tr_extra_takes(enum tr_extra extra, float x)
{
    return isfinite(x) && (x >= 0 || extra == TR_EXTRA_OFFSET);
}

/* Returns the value of data.weight or data.offset. */
static inline const char *tr_extra_in_job(const tr_job *job, enum tr_extra extra)
{
    return extra == TR_EXTRA_WEIGHT ? job->data.weight : job->data.offset;
}

enum { TR_VALUE_LONGEST = 65535 }; /* maximum bytes of a category's value */
enum { TR_NAME_LONGEST = 1000 };   /* maximum bytes of the name of a column or of a label */

#define TR_NO_VALUE UINT32_MAX /* the number of a value that is not in the dictionary */

struct tr_column {
    uint8_t type;
    bool fixed; /* set by the job: a word in a column of numbers is an error */
    /* number, label: most successive, different numbers of the first rows are equal as floats */
    bool rounded;
    bool missing;    /* number: there is a key for rows without the number */
    bool others;     /* category: there is a key for values that are not in the dictionary */
    bool raw;        /* number, category: the column is one key, see above */
    bool averaged;   /* number: `mean` was computed; models of older versions lack some means */
    uint32_t slot;   /* number, category: index of the column's float in a row as it is read */
    uint32_t first;  /* number, category: the first key */
    uint32_t keys;   /* number, category: number of keys */
    uint32_t values; /* category: number of values in the dictionary */
    double mean;     /* number: mean of the column, which replaces missing numbers */
    uint64_t seed;   /* category: seed of the hashes of its values with data.hash */
};

/* The columns that a crossed category consists of. */
enum { TR_CROSS_MOST = 4 };
struct tr_cross {
    uint32_t n, column[TR_CROSS_MOST];
};

struct tr_schema {
    size_t users; /* reference count */
    size_t n;     /* number of columns */
    struct tr_column *column;
    struct tr_ids names; /* names of the columns; if files have no header, their numbers from 1 */
    bool named;          /* the files have a header */
    size_t label;        /* index of the label column; equal to n: there is none */
    size_t slots;
    uint64_t keys;
    uint64_t hash, hashed;  /* data.hash: number of keys that categories share, 0: none; the first one */
    struct tr_cross *cross; /* parts of the crossed columns, which are the last `crosses` columns */
    size_t crosses;
    struct tr_ids missing; /* data.missing, in the form of tr_value_text() */
    float *missing_number; /* numbers among `missing` */
    size_t missing_numbers;
    struct tr_notation notation; /* of the first file */
    char *positive;       /* data.positive: the label of class 1; all others are class 0. NULL: not set */
    struct tr_ids labels; /* names of classes, ascending by tr_value_compare(); empty: labels are numbers */
    /* The values of categories. Of a model file: for each column all values of its dictionary; otherwise NULL */
    struct tr_ids *values;
    /* In training: the dictionaries of all columns, distributed over the workers; NULL: there are no categories */
    struct tr_dictionary *dictionary;
};

/* The columns of the fields of a file, which may have the columns in any order. */
struct tr_binding {
    size_t fields;
    /* column[f]: index of the column of field f; equal to the schema's n: the field is ignored */
    uint32_t *column;
    bool labelled; /* one of the fields is the label */
};

struct tr_bindings {
    size_t n;
    struct tr_binding *binding; /* distinct bindings; tr_head.binding is the index of a file's binding */
    char unknown[160];          /* names of ignored columns that the schema does not have, for messages */
};

int tr_schema_new(struct tr_schema **s);
void tr_schema_release(struct tr_schema **s); /* *s may be NULL */
void tr_bindings_free(struct tr_bindings *b);

/* Makes the schema of a job's training files, on one process, from their first lines and the job. TR_ERR_DATA, TR_ERR_CONFIG. */
int tr_schema_make(const tr_job *job, const struct tr_files *files, const struct tr_head *heads,
                   struct tr_schema **schema);

/* Finds the columns of the schema in all files, and sets heads' bindings: by name if schema and file have names, otherwise by
 * order. Identifiers and weights may be absent, and the label without TR_BIND_LABEL. With TR_BIND_KNOWN named columns that the
 * schema does not have are ignored, and bindings->unknown has their names. TR_ERR_DATA names an absent or unknown column. */
enum { TR_BIND_LABEL = 1, TR_BIND_KNOWN = 2 };
int tr_schema_bind(const struct tr_schema *s, const struct tr_files *files, struct tr_head *heads, int how,
                   struct tr_bindings *bindings);

/* Assigns slots and keys. Call it again after a change of a column's type, missing, others or values. TR_ERR_DATA: there are more
 * than 2^32 - 2 keys. */
int tr_schema_number(struct tr_schema *s);

bool tr_schema_has_categories(const struct tr_schema *s);

/* Finds a column by its name, or by its number from 1. Returns its index, or s->n if there is none. */
size_t tr_schema_find(const struct tr_schema *s, const char *name);

/* Returns whether rows of keys are dense. */
bool tr_schema_is_dense(const struct tr_schema *s);

static inline bool tr_schema_has_dictionaries(const struct tr_schema *s)
{
    return s->hash == 0 && tr_schema_has_categories(s);
}

/* Returns the number of columns that are read from files; crossed columns follow them. */
static inline size_t tr_schema_fields(const struct tr_schema *s)
{
    return s->n - s->crosses;
}

/* Returns whether rows of schema a can be used as rows of schema b. This requires that all columns are numbers, that labels have the
 * same names, and that each key means the same column in both. NULL stands for data whose columns have no names. */
bool tr_schema_agrees(const struct tr_schema *a, const struct tr_schema *b);

/* Returns the index of the column with an extra of the rows, or s->n if there is none. s may be NULL. */
size_t tr_schema_extra(const struct tr_schema *s, enum tr_extra extra);
bool tr_schema_has_extra(const struct tr_schema *s, enum tr_extra extra);

/* Return whether the text of a field, or its number, stands for a missing value. quoted: only an empty text and those of data.missing
 * do, because programs that quote words, as R, write NA for a missing one, and "NA" for this word. */
bool tr_schema_is_missing(const struct tr_schema *s, const char *text, size_t n, bool quoted);
bool tr_schema_is_missing_number(const struct tr_schema *s, float number);

/* Write a text for users: the name of a column; a key («city=Berlin»); the value of a category's key (raw columns: the value with
 * this number); a label. Long texts are cut, and unprintable bytes are escaped. Values are shown only if s->values is set. */
enum { TR_SHOWN_NAME = 96 };
void tr_schema_column_text(const struct tr_schema *s, size_t column, char text[TR_SHOWN_NAME]);
void tr_schema_key_text(const struct tr_schema *s, uint64_t key, char text[TR_SHOWN_NAME]);
void tr_schema_value_text(const struct tr_schema *s, uint64_t key, uint64_t value, char text[TR_SHOWN_NAME]);
void tr_schema_label_text(const struct tr_schema *s, float label, char text[TR_SHOWN_NAME]);

/* Copies a schema, without values and dictionary, and bindings. Reading creates the schema. Free both also after an error. */
int tr_schema_archive(struct tr_archive *a, struct tr_schema **s, struct tr_bindings *b);

/* ---- rows as they are read, and rows of keys ---- */

static inline uint32_t tr_slot_place(float slot)
{
    uint32_t place;
    memcpy(&place, &slot, sizeof place);
    return place;
}

static inline float tr_slot_of_place(uint32_t place)
{
    float slot;
    memcpy(&slot, &place, sizeof slot);
    return slot;
}

/* Converts rows of slots to rows of keys. These are dense if each column is one key, and otherwise sparse.
 *
 * @param [in]  number   number[column][place]: number of the value in the dictionary, or TR_NO_VALUE; NULL: places are numbers
 * @param [out] unknown  the number of values without a key
 */
int tr_schema_expand(const struct tr_schema *s, uint32_t *const *number, struct tr_matrix *m,
                     uint64_t *unknown);

/* Does the same as tr_schema_expand(), but stores rows of keys in `keys` (free it also after an error) and does not change m. */
int tr_schema_keys_of(const struct tr_schema *s, uint32_t *const *number, const struct tr_matrix *m,
                      struct tr_matrix *keys, uint64_t *unknown);

/* ---- all ranks together; they return the same status ---- */

/* Rank 0, which has read the heads, makes the schema or, for test data, binds the files to the schema of the training data `like`.
 * All ranks receive the result. */
int tr_schema_open(struct tr_data *data, const struct tr_data *like);

/* Changes columns of numbers in which a worker has found a word to categories. *again: all workers must read again. */
int tr_schema_change(struct tr_data *data, const struct tr_column_seen *seen, bool *again);

/* Does the same as tr_schema_change() in one process. Returns whether a column has changed. */
bool tr_schema_take_words(struct tr_schema *s, const struct tr_column_seen *seen);

/* Finds means, dictionaries and names of labels, or uses those of the training data `like`. Converts the workers' rows to rows of
 * keys, immediately if they are in memory, otherwise when in->writer writes them. Updates the labels of in->report. */
int tr_schema_make_keys(struct tr_data *data, const struct tr_data *like, struct tr_reading *in);

/* Sorts the names of labels that the workers have seen into s->labels, and replaces the places of labels in rows and in `labels` by
 * their numbers there. seen: the names that this worker has seen; NULL: none. */
int tr_schema_settle_labels(struct tr_data *data, struct tr_schema *s, const struct tr_ids *seen,
                            struct tr_labels *labels);

/* Converts additional rows m of a worker (NULL: it has none) to rows of keys. seen: the values that it has found in them. */
int tr_schema_expand_more(const struct tr_data *data, const struct tr_column_seen *seen, struct tr_matrix *m);

/* Prints a line about the columns on rank 0. */
void tr_schema_say(const struct tr_data *data);

/* Allocates one element per column for the results of a reader; NULL: no memory. */
struct tr_column_seen *tr_schema_seen(const struct tr_schema *s);
void tr_schema_seen_free(struct tr_column_seen **seen, const struct tr_schema *s); /* *seen may be NULL */

/* Sets data->label to the distinct labels of all workers, ascending. */
int tr_labels_unite(struct tr_context *tr, const struct tr_labels *labels, struct tr_data *data);

/* Sets *names: labels must have names, because they are classes (TR_DATA_CLASSES, TR_DATA_FEW_CLASSES), and a worker has read an
 * integer that no float equals. */
int tr_labels_need_names(struct tr_context *tr, const struct tr_read_report *report,
                         const struct tr_data *data, bool *names);

/* Sets data->state->third_label, for the error message of binary models: the first three distinct labels in the order of ranks. */
int tr_labels_find_third(struct tr_context *tr, const struct tr_labels *labels, struct tr_data *data);

#endif
