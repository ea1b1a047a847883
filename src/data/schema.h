/* The columns of a csv table: what they are called and of which types, where they are in rows, and which keys they become.
 *
 * A row is read into one number a column (its slot): of a number column what stands there, NaN where nothing does; of a
 * category the place of its value, as bits, among those that the reader has met. Keys are made of that when all is read:
 *   number     a key, and behind it one that is 1 in rows where the number is missing, if there are such; the first holds the
 *              mean there
 *   category   a key for each value of its dictionary, the most frequent first, which is 1 in rows that have it, and perhaps one
 *              for all other values
 * A raw column is one key, of either type: numbers with NaN where they are missing; or the numbers of values in the dictionary,
 * and NaN for those that it leaves out.
 * With data.hash the keys of all categories lie behind all others: as many as it says, of which each value has one by its hash, and
 * perhaps others too; places are numbers of these keys then. Categories that are made of several columns (data.cross) are columns
 * behind those of the files, whose values are those of their columns with * between; in these * and \ have \ before them.
 * Labels, identifiers and weights are no keys.
 */
#ifndef TR_DATA_SCHEMA_H
#define TR_DATA_SCHEMA_H

#include <string.h>

#include "data/head.h"
#include "data/ids.h"
#include "data/matrix.h"
#include "job/job.h"
#include "trireme/records.h"

struct tr_dictionary;

/* A word in a column of numbers makes it what follows: categories, or labels that are names. */
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

#define TR_NO_VALUE UINT32_MAX /* the number of a value that no dictionary has */

struct tr_column {
    uint8_t type;
    bool fixed;     /* the job says it: a word in a column of numbers is an error */
    bool rounded;   /* number, label: most of the first rows' are alike in single precision alone */
    bool missing;   /* number: there is a key for rows where it is missing */
    bool others;    /* category: there is a key for values that the dictionary leaves out */
    bool raw;       /* number, category: see above; both have no key of their own then */
    uint32_t slot;  /* number, category: which number of a row as it is read */
    uint32_t first; /* … and its first key, and how many there are */
    uint32_t keys;
    uint32_t values; /* category: of its dictionary */
    double mean;     /* number: what stands for a missing one */
    uint64_t seed;   /* of hashes of its values */
};

/* Of which columns a crossed one is made. */
enum { TR_CROSS_MOST = 4 };
struct tr_cross {
    uint32_t n, column[TR_CROSS_MOST];
};

struct tr_schema {
    size_t users;
    size_t n;
    struct tr_column *column;
    struct tr_ids names; /* of columns; of files without a header, numbers from 1 on */
    bool named;          /* there is a header */
    size_t label;        /* which column; n: none */
    size_t slots;
    uint64_t keys;
    uint64_t hash,
        hashed; /* how many keys all categories share, and the first of them; 0: each has a dictionary */
    struct tr_cross *cross; /* the last columns are of these */
    size_t crosses;
    struct tr_ids missing; /* data.missing, in the form of tr_value_text() … */
    float *missing_number; /* … and the numbers among them */
    size_t missing_numbers;
    char *
        positive; /* the label of the second of two classes; the first is all others; NULL: labels are as they are */
    struct tr_ids labels; /* names of classes, ascending by tr_value_compare(); none: labels are numbers */
    struct tr_ids
        *values; /* of each column of a model that was read, all values of its dictionary; else NULL */
    struct tr_dictionary
        *dictionary; /* while training: the same, divided among all workers; NULL: there are no categories */
};

/* Which column of the schema each field of a file's lines is; files may have their columns in any order. */
struct tr_binding {
    size_t fields;
    uint32_t *column; /* the schema's n: the file has a field more that is ignored */
    bool labelled;
};

struct tr_bindings {
    size_t n;
    struct tr_binding *binding; /* tr_head.binding counts them */
};

int tr_schema_new(struct tr_schema **s);
void tr_schema_keep(struct tr_schema *s);
void tr_schema_release(struct tr_schema **s); /* NULL inside is fine */
void tr_bindings_free(struct tr_bindings *b);

/* Makes the schema of a job's training files, on one process, from their first lines and what the job says. TR_ERR_DATA,
 * TR_ERR_CONFIG. */
int tr_schema_make(const tr_job *job, const struct tr_files *files, const struct tr_head *heads,
                   struct tr_schema **schema);

/* Adds the names of the columns that a file's header has. TR_ERR_DATA: one is empty, too long, or there twice. */
int tr_schema_read_names(const struct tr_files *files, size_t file, const struct tr_head *head,
                         struct tr_ids *names);

/* Finds the columns of the schema in all files, and sets heads' bindings. By name where both have names, otherwise by their
 * order; a label (unless it is needed), an identifier or a weight may be missing. TR_ERR_DATA names what is missing or unknown. */
int tr_schema_bind(const struct tr_schema *s, const struct tr_files *files, struct tr_head *heads,
                   bool label_needed, struct tr_bindings *bindings);

/* Numbers slots and keys anew, after types, missing, others or values of columns have changed. TR_ERR_DATA if there are more
 * than 2^32 - 2 keys, or none. */
int tr_schema_number(struct tr_schema *s);

bool tr_schema_has_categories(const struct tr_schema *s);

/* The column of that name, or of that number, from 1; s->n: there is none. */
size_t tr_schema_find(const struct tr_schema *s, const char *name);

/* Whether rows of keys are lists of all keys' numbers. */
bool tr_schema_is_dense(const struct tr_schema *s);

static inline bool tr_schema_has_dictionaries(const struct tr_schema *s)
{
    return s->hash == 0 && tr_schema_has_categories(s);
}

/* Columns that files have, the first of all. */
static inline size_t tr_schema_fields(const struct tr_schema *s)
{
    return s->n - s->crosses;
}

/* Whether the keys that both have stand for the same columns, which are of numbers alone, and labels for themselves: then rows of
 * the one are rows of the other. NULL: of data whose columns have no names. */
bool tr_schema_agrees(const struct tr_schema *a, const struct tr_schema *b);

/* The column of weights of rows; s->n: there is none. */
size_t tr_schema_weight(const struct tr_schema *s);

/* Whether the text of a field, or the number in it, stands for nothing. */
bool tr_schema_is_missing(const struct tr_schema *s, const char *text, size_t n);
bool tr_schema_is_missing_number(const struct tr_schema *s, float number);

/* What users see: of a column, of a key («city=Berlin»), of a label. Cut where they are too long, and what cannot be printed is
 * escaped. The value of a category's key, or that of a raw column which has that number: only where the schema has all values. */
enum { TR_SHOWN_NAME = 96 };
void tr_schema_column_text(const struct tr_schema *s, size_t column, char text[TR_SHOWN_NAME]);
void tr_schema_key_text(const struct tr_schema *s, uint64_t key, char text[TR_SHOWN_NAME]);
void tr_schema_value_text(const struct tr_schema *s, uint64_t key, uint64_t value, char text[TR_SHOWN_NAME]);
void tr_schema_label_text(const struct tr_schema *s, float label, char text[TR_SHOWN_NAME]);

/* As bytes, for other ranks and the next start; without values and dictionary. */
int tr_schema_pack(const struct tr_schema *s, const struct tr_bindings *b, char **bytes, size_t *n);
int tr_schema_unpack(const char *bytes, size_t n, struct tr_schema **s, struct tr_bindings *b);

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

/* Makes rows of keys of dense rows as they are read: sparse rows; or the same rows, with means in place of missing numbers, or codes
 * in place of categories, if each column is one key. number: of each column's places, the numbers in its dictionary or TR_NO_VALUE; NULL: places are
 * numbers. *unknown gets how many values no key stands for. */
int tr_schema_expand(const struct tr_schema *s, uint32_t *const *number, struct tr_matrix *m,
                     uint64_t *unknown);

#endif
