/* The meaning of text fields: which values are equal, which are missing, and what the columns of a csv table are: their names,
 * types, slots in rows, and the keys that they become.
 *
 * A value is compared, hashed, stored and shown in one form, tr_value_text(). A number is its exact value: 1, 1.0, +1, 01 and 1e0
 * are equal, 0.1 and .10 too, and long numbers differ in their last digit. Any other text, and a number of more than
 * TR_VALUE_DIGITS characters, is a word, and its form is its bytes. Categories, labels, data.positive and data.missing use this.
 *
 * A row is read into one number per column, its slot: the number of a number column, NaN if missing; for a category the place
 * of its value in the list of values that the reader has found, as bits. After reading, keys are made of slots:
 *   number     one key, which holds the mean if the number is missing; if numbers are missing, a second key is 1 in these rows
 *   category   one key per value of its dictionary, the most frequent first, which is 1 in rows with this value; and possibly one
 *              for all other values
 * A raw column is one key, of either type: numbers with NaN if they are missing; or the numbers of values in the dictionary, and
 * NaN for values that it does not contain.
 * With data.hash all categories share that number of keys, after all other keys. The hash of a value selects its key, which other
 * values may share. Slots contain the numbers of these keys.
 * Crossed categories (data.cross) are columns after those of the files. Their values are the values of their columns with *
 * between them; * and \ inside of a value get a \ before them. Labels, identifiers and weights have no keys.
 *
 *   schema.c       values; slots and keys; texts for users; rows of keys
 *   schema_make.c  the columns of a job, from the first lines of its files and the job; the columns of each file
 *   schema_all.c   agreement of all ranks: types, means, dictionaries, labels
 */
#ifndef TR_DATA_SCHEMA_H
#define TR_DATA_SCHEMA_H

#include <string.h>

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

/* Do not call it: a part of tr_value_text(). Returns the form of a text of *n bytes that starts like a number. */
const char *tr_value_number(const char *text, size_t *n, char room[TR_VALUE_ROOM]);

/* Returns the form of a text of *n bytes, and its length in *n: the text itself, or in `room` the form of a number that is written
 * in another way: decimal without an exponent from 1e-6 to 1e21 (1, 0.05, 1500), otherwise as 1.5e21; without redundant signs and
 * zeros. */
static inline const char *tr_value_text(const char *text, size_t *n, char room[TR_VALUE_ROOM])
{
    bool may_be_number = *n > 0 && *n <= TR_VALUE_DIGITS && *text <= '9' && *text >= '+';
    return may_be_number ? tr_value_number(text, n, room) : text;
}

/* Compares the forms of labels: numbers by value, then words by bytes. Less than, equal to, or greater than 0. */
int tr_value_compare(const char *a, size_t n_a, const char *b, size_t n_b);

/* Whether a form is a number, and the nearest double. */
bool tr_value_is_number(const char *text, size_t n, double *number);

/* ---- columns ---- */

/* A word in a column of numbers changes its type to the next one: to a category, or to labels with names. */
enum tr_column_type {
    TR_COLUMN_NUMBER,
    TR_COLUMN_CATEGORY,
    TR_COLUMN_LABEL,
    TR_COLUMN_NAMED_LABEL,
    TR_COLUMN_ID,
    TR_COLUMN_IGNORE,
    TR_COLUMN_WEIGHT,
    TR_COLUMN_TYPES
};

enum { TR_VALUE_LONGEST = 65535 }; /* bytes of a category's value */
enum { TR_NAME_LONGEST = 1000 };   /* of the name of a column, or of a label */

#define TR_NO_VALUE UINT32_MAX /* the number of a value that is not in the dictionary */

struct tr_column {
    uint8_t type;
    bool fixed;      /* set by the job: a word in a column of numbers is an error */
    bool rounded;    /* number, label: most numbers of the first rows are equal in single precision only */
    bool missing;    /* number: there is a key for rows without the number */
    bool others;     /* category: there is a key for values that are not in the dictionary */
    bool raw;        /* number, category: see above; without a key for missing or others */
    uint32_t slot;   /* number, category: index of the number in a row as it is read */
    uint32_t first;  /* number, category: the first key */
    uint32_t keys;   /* number, category: number of keys */
    uint32_t values; /* category: values in the dictionary */
    double mean;     /* number: replaces a missing one */
    uint64_t seed;   /* category: of the hashes of its values */
};

/* The columns that a crossed category consists of. */
enum { TR_CROSS_MOST = 4 };
struct tr_cross {
    uint32_t n, column[TR_CROSS_MOST];
};

struct tr_schema {
    size_t users;
    size_t n;
    struct tr_column *column;
    struct tr_ids names; /* of columns; numbers from 1 if the files have no header */
    bool named;          /* the files have a header */
    size_t label;        /* the label column; n: none */
    size_t slots;
    uint64_t keys;
    uint64_t hash, hashed;  /* number of keys that all categories share (0: none do), and the first of them */
    struct tr_cross *cross; /* of the last columns */
    size_t crosses;
    struct tr_ids missing; /* data.missing, in the form of tr_value_text() */
    float *missing_number; /* the numbers among them */
    size_t missing_numbers;
    char *positive; /* the second of two classes; the first is all other labels. NULL: labels are unchanged */
    struct tr_ids labels; /* names of classes, ascending by tr_value_compare(); empty: labels are numbers */
    struct tr_ids
        *values; /* a model that was read: of each column, all values of its dictionary; otherwise NULL */
    struct tr_dictionary
        *dictionary; /* training: the same, distributed over the workers; NULL: no categories */
};

/* The columns of the fields of a file, which may have the columns in any order. */
struct tr_binding {
    size_t fields;
    uint32_t *column; /* of each field; the schema's n: the field is ignored */
    bool labelled;
};

struct tr_bindings {
    size_t n;
    struct tr_binding *binding; /* tr_head.binding is an index */
};

int tr_schema_new(struct tr_schema **s);
void tr_schema_release(struct tr_schema **s); /* *s may be NULL */
void tr_bindings_free(struct tr_bindings *b);

/* Makes the schema of a job's training files, on one process, from their first lines and the job. TR_ERR_DATA, TR_ERR_CONFIG. */
int tr_schema_make(const tr_job *job, const struct tr_files *files, const struct tr_head *heads,
                   struct tr_schema **schema);

/* Finds the columns of the schema in all files, and sets heads' bindings: by name if schema and file have names, otherwise by
 * order. The label (unless label_needed), identifiers and weights may be absent. TR_ERR_DATA names an absent or unknown column. */
int tr_schema_bind(const struct tr_schema *s, const struct tr_files *files, struct tr_head *heads,
                   bool label_needed, struct tr_bindings *bindings);

/* Assigns slots and keys, also after a change of columns' type, missing, others or values. TR_ERR_DATA for more than 2^32 - 2
 * keys. */
int tr_schema_number(struct tr_schema *s);

bool tr_schema_has_categories(const struct tr_schema *s);

/* Finds a column by name or by number from 1; s->n: not found. */
size_t tr_schema_find(const struct tr_schema *s, const char *name);

/* Whether rows of keys are dense. */
bool tr_schema_is_dense(const struct tr_schema *s);

static inline bool tr_schema_has_dictionaries(const struct tr_schema *s)
{
    return s->hash == 0 && tr_schema_has_categories(s);
}

/* Number of columns read from files; crossed columns follow them. */
static inline size_t tr_schema_fields(const struct tr_schema *s)
{
    return s->n - s->crosses;
}

/* Whether rows of one schema are rows of the other: all columns are numbers, labels have no names, and the keys that both have
 * are the same columns. NULL: data whose columns have no names. */
bool tr_schema_agrees(const struct tr_schema *a, const struct tr_schema *b);

/* Returns the column with the weights of rows; s->n: none. */
size_t tr_schema_weight(const struct tr_schema *s);

/* Whether the text of a field, or its number, is a missing value. */
bool tr_schema_is_missing(const struct tr_schema *s, const char *text, size_t n);
bool tr_schema_is_missing_number(const struct tr_schema *s, float number);

/* Texts for users of a column, a key («city=Berlin»), the value of a category's key (in a raw column: the value with that number)
 * and a label. Long texts are cut, unprintable bytes are escaped. Values need s->values. */
enum { TR_SHOWN_NAME = 96 };
void tr_schema_column_text(const struct tr_schema *s, size_t column, char text[TR_SHOWN_NAME]);
void tr_schema_key_text(const struct tr_schema *s, uint64_t key, char text[TR_SHOWN_NAME]);
void tr_schema_value_text(const struct tr_schema *s, uint64_t key, uint64_t value, char text[TR_SHOWN_NAME]);
void tr_schema_label_text(const struct tr_schema *s, float label, char text[TR_SHOWN_NAME]);

/* Copies a schema, without values and dictionary, and the bindings of files. Reading creates it; free both also after an error. */
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

/* Converts dense rows of slots to rows of keys: sparse rows; or dense rows with means for missing numbers and numbers for
 * categories, if each column is one key.
 *
 * @param [in]  number   for each column the numbers of its places in its dictionary, or TR_NO_VALUE; NULL: places are numbers
 * @param [out] unknown  the number of values without a key
 */
int tr_schema_expand(const struct tr_schema *s, uint32_t *const *number, struct tr_matrix *m,
                     uint64_t *unknown);

/* The same in memory of its own, since a reader uses its rows for the next ones. Free `keys` also after an error. */
int tr_schema_keys_of(const struct tr_schema *s, uint32_t *const *number, const struct tr_matrix *m,
                      struct tr_matrix *keys, uint64_t *unknown);

/* ---- all ranks together; they return the same status ---- */

/* Rank 0, which has read the heads, makes the schema, or binds the files of test data to that of the training data (like); all
 * ranks receive it. */
int tr_schema_open(struct tr_data *data, const struct tr_data *like);

/* Changes columns of numbers in which a worker has found a word to categories. *again: all workers must read again. */
int tr_schema_change(struct tr_data *data, const struct tr_column_seen *seen, bool *again);

/* The same for one process; returns whether a column has changed. */
bool tr_schema_take_words(struct tr_schema *s, const struct tr_column_seen *seen);

/* Finds means, dictionaries and names of labels, or uses those of the training data, and converts the workers' rows to keys: in
 * memory, or when in->writer writes them. Updates the labels of in->report. */
int tr_schema_make_keys(struct tr_data *data, const struct tr_data *like, struct tr_reading *in);

/* The same for additional rows m that workers have read; NULL: none. */
int tr_schema_expand_more(const struct tr_data *data, const struct tr_column_seen *seen, struct tr_matrix *m);

/* Prints a line about the columns. Rank 0. */
void tr_schema_say(const struct tr_data *data);

struct tr_column_seen *tr_schema_seen(const struct tr_schema *s);
void tr_schema_seen_free(struct tr_column_seen **seen, const struct tr_schema *s); /* *seen may be NULL */

/* Sets data->label to the distinct labels of all workers, ascending. */
int tr_labels_unite(struct tr_context *tr, const struct tr_labels *labels, struct tr_data *data);

/* Whether labels must have names: they are classes (TR_DATA_CLASSES, TR_DATA_FEW_CLASSES), and a worker has read an integer that
 * is not a float. */
int tr_labels_need_names(struct tr_context *tr, const struct tr_read_report *report,
                         const struct tr_data *data, bool *names);

/* Sets data->state->third_label, the error of binary models, from the first three labels, by rank. */
int tr_labels_find_third(struct tr_context *tr, const struct tr_labels *labels, struct tr_data *data);

#endif
