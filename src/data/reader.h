/* Formats of data files: detection, heads, and reading of rows.
 *
 * Each format of text is a struct tr_text_format in a file of its own, libsvm.c, csv.c, triples.c (ratings, docword), and a line in
 * TR_TEXT_FORMATS. One driver,
 * reader.c, reads the chunks of lines that are one reader's share of the files (input.h), skips headers and empty lines, calls the
 * format's function for each line, and converts a malformed line to the error `path:line: ...` or to one more skipped record. Rows
 * are stored, or passed on chunk by chunk. HDF5 has no lines: hdf5.h.
 */
#ifndef TR_DATA_READER_H
#define TR_DATA_READER_H

#include <string.h>

#include "base/base.h"
#include "data/field.h"
#include "data/names.h"
#include "data/input.h"
#include "data/matrix.h"
#include "data/schema.h"
#include "trireme/model.h"
#include "trireme/records.h"

/* ---- heads: what the first lines of files show ---- */

struct tr_head {
    uint64_t begin;                      /* first byte of the text after a header */
    uint64_t fields;                     /* csv, ratings: of the first record; hdf5: columns of rows */
    uint64_t documents, words, nonzeros; /* docword: the header; hdf5: nonzeros */
    uint64_t rows, chunk_rows;           /* hdf5; rows per chunk, 0: any */
    bool sparse, full, labelled;         /* hdf5: rows are lists of non-zeros; should be dense; have labels */
    bool from_one;                       /* hdf5: column 0 is number 1 in files of text */
    bool named;                          /* hdf5: columns have names, so this is a csv table: see hdf5.h */
    uint64_t label_column;               /* hdf5 with names: the label column; `fields`: none */
    bool text_rows, text_columns;        /* ratings: an id of the first record is not a number */
    int label;                           /* csv: probable label column, TR_LABEL_* */
    bool header;                         /* csv: the file has names of columns */
    uint32_t binding;                    /* csv: see tr_schema_bind() */
    char separator;                      /* csv, ratings: a character, or TR_SEPARATOR_* */
};

/* The name of a format in a job, and the format of a name; TR_FORMAT_AUTO: none. */
const char *tr_format_word(enum tr_format format);
enum tr_format tr_format_named(const char *word);

/* Detects the format of the first file that is not empty: TR_FORMAT_HDF5, TR_FORMAT_LIBSVM, TR_FORMAT_DOCWORD, TR_FORMAT_CSV for
 * other tables, which may be ratings; TR_FORMAT_AUTO: unknown. */
int tr_format_detect(const struct tr_files *files, enum tr_format *format);

/* Reads the heads of all files of a format.
 *
 * @param [in]  header  TR_HEADER_*
 * @param [out] heads   one per file, to be freed
 * @return TR_ERR_DATA if files do not fit together (columns, kinds of HDF5 tables, vocabularies, text and HDF5), or a docword header
 *         is malformed
 */
int tr_heads_read(const struct tr_files *files, enum tr_format format, int header, struct tr_head **heads);

/* Returns the first file with records; 0: none. */
size_t tr_heads_first(const struct tr_head *heads, size_t n);

/* csv: calls read() for all fields of a file's header (line 0) and of some lines after it (1, 2, ...), without quotes and padding,
 * until it returns anything but TR_OK. HDF5: only the names. */
typedef int tr_field_fn(void *state, size_t line, size_t field, const char *text, size_t n);
int tr_head_fields(const struct tr_files *files, size_t file, const struct tr_head *head, tr_field_fn *read,
                   void *state);

/* csv: numbers per row without the label, by the first file with records; 0: there is only a label. */
size_t tr_csv_columns(const struct tr_files *files, const struct tr_head *heads, int label);

/* docword: number of documents in the files before `file`. */
uint64_t tr_docword_base(const struct tr_files *files, const struct tr_head *heads, size_t file);

/* docword: checks the number of records of each file against its header. TR_ERR_DATA names the first that differs. */
int tr_docword_check(const struct tr_files *files, const struct tr_head *heads, const uint64_t *records);

/* ---- results of reading ---- */

#define TR_LIBSVM_MAX_INDEX   4294967294u /* 2^32 - 2: columns stay below 2^32 */
#define TR_DOCWORD_MOST_COUNT 1000000u    /* of a word in a document */
#define TR_LABELS_MOST        65536       /* maximum of distinct labels that are stored */

struct tr_file_place {
    size_t file;     /* in tr_files; tr_files_line() finds the line */
    uint64_t offset; /* of the line in the text of the file; hdf5: the row */
};

/* The first TR_LABELS_MOST distinct labels, in the order of reading. */
struct tr_labels {
    struct tr_ids bits;            /* of the floats */
    struct tr_file_place place[3]; /* of the first three */
};

static inline float tr_labels_value(const struct tr_labels *labels, size_t i)
{
    uint32_t bits = (uint32_t)labels->bits.number[i];
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

struct tr_read_report {
    uint64_t rows, nonzeros;        /* ratings, docword: both the number of records */
    uint32_t lowest, highest;       /* columns; lowest > highest: none */
    uint64_t text_bytes;            /* of this reader's lines */
    struct tr_labels labels;        /* free labels.bits */
    char long_label[TR_TOKEN_ROOM]; /* libsvm, csv: the first integer label that is no float; empty: none */
    struct tr_file_place long_label_at;
    bool queries;                 /* libsvm: some rows have a qid, which is ignored */
    uint64_t skipped, unlabelled; /* malformed records (skip_errors); csv: rows without a label */
    struct tr_file_place first_skipped;
    bool text_rows, text_columns; /* ratings: an id is not a number. All readers must read again, as text */
};

/* A record of ratings or docword: numbers of document and word, or places of user and item in the reader's ids. */
struct tr_triple {
    uint32_t row, column;
    float value;
};

/* Records from `first` to that of the next run come from one piece of the text of a compressed file that several readers read. */
struct tr_triple_run {
    uint64_t file, piece;
    size_t first;
};

struct tr_triples {
    size_t n;
    struct tr_triple *triple;
    struct tr_ids rows, columns; /* ratings */
    struct tr_triple_run *run;
    size_t runs;
    size_t triple_capacity, run_capacity;
};

void tr_triples_free(struct tr_triples *triples);

/* Replaces the rows (k = 0) or columns (k = 1) of all records by their numbers. */
static inline void tr_triples_map(struct tr_triples *t, int k, const uint32_t *number)
{
    for (size_t i = 0; i < t->n; i++) {
        uint32_t *id = k == 0 ? &t->triple[i].row : &t->triple[i].column;
        *id = number[*id];
    }
}

/* Consecutive rows of a reader from consecutive lines begin .. end - 1 of a file, as offsets (hdf5: rows). */
struct tr_read_run {
    uint64_t file, offset, end;
    uint64_t rows;
};

struct tr_read_runs {
    struct tr_read_run *run; /* in the order of reading; to be freed */
    size_t n, room;
};

/* What a reader of csv finds in one column. */
struct tr_column_seen {
    struct tr_ids values; /* of categories and label names, in the order of reading */
    bool missing;
    bool word; /* in a column of numbers that may be a category. All readers must read again, as a category */
    struct tr_file_place place;
    char text[TR_TOKEN_ROOM]; /* the first word */
};

/* ---- reading ---- */

struct tr_reader;

/* Pointers may be NULL. */
struct tr_reader_options {
    enum tr_format format;       /* not auto */
    const struct tr_head *heads; /* from tr_heads_read(); libsvm: may be NULL */
    bool skip_errors;            /* count and drop malformed records; otherwise the first is an error */
    bool settled; /* types are final, by training data: csv: a word in a column of numbers is malformed;
                                  * ratings: an id that is not a number, unless ids are text */
    uint32_t lowest_index; /* libsvm: 0 or 1; 0 accepts both */
    bool unlabelled;       /* libsvm: accept lines without a label, which is NaN then */
    /* csv: the columns, and those of each file; without schema all columns are numbers except `label` (TR_LABEL_*) */
    const struct tr_schema *schema;
    const struct tr_bindings *bindings;
    int label;
    struct tr_column_seen *seen;  /* csv: results for each column; NULL: the schema has all values */
    const char *id;               /* csv: store the texts of this column for the rows of a piece */
    bool rows_without_label;      /* csv: keep them, with label NaN; otherwise drop them */
    bool text_rows, text_columns; /* ratings: ids are text; otherwise numbers */
    /* A share of the lines (docword: documents), selected by seed and position for any number of readers, is held out. Either
     * these are read, or all others. held_out.to = 0: none */
    struct tr_job_held_out held_out;
    bool reads_held_out;
    uint64_t seed;
    uint64_t deal;      /* chunk size of tr_files_deal(); 0: a contiguous share per reader */
    size_t chunk_bytes; /* size of the chunks that are parsed, to test their borders; 0: the usual size */
    size_t most_rows;   /* libsvm, csv: maximum of rows; 0: all */
    /* Called repeatedly with the stored bytes that this reader has read; the sum over all readers is about the total of the files.
     * Anything but TR_OK ends the reading with that status */
    int (*progress)(void *state, uint64_t bytes);
    void *progress_state;
    float **weight;            /* csv: receives the weights of all rows if the schema has them, to be freed */
    struct tr_read_runs *runs; /* libsvm, csv: receives the positions of rows */
    uint64_t **places;         /* receives the position of each row or record in its file, to be freed */
    uint64_t *records;         /* ratings, docword: receives the number of records of each file */
    int (*piece)(void *state,
                 struct tr_reader *reader); /* libsvm, csv: called with the rows of each chunk, not stored */
    void *piece_state;
    tr_rating_fn *rating; /* ratings: called for each, none is stored */
    void *rating_state;
    bool third_may_miss; /* for `rating`: accept lines of two fields, with value NaN */
};

/* Reads the share of one reader of libsvm, csv or hdf5 files, in the order of tr_files_deal(). Columns are as in the file.
 * TR_ERR_DATA describes a malformed record as `path:line: found, expected`. */
int tr_read_matrix(const struct tr_files *files, size_t reader, size_t readers,
                   const struct tr_reader_options *options, struct tr_matrix *matrix,
                   struct tr_read_report *report);

/* The same for ratings and docword. */
int tr_read_triples(const struct tr_files *files, size_t reader, size_t readers,
                    const struct tr_reader_options *options, struct tr_triples *triples,
                    struct tr_read_report *report);

/* Fails with TR_ERR_DATA: `path:line: what`. */
int tr_place_fail(const struct tr_files *files, const struct tr_file_place *place, const char *what);

/* ---- for the formats ---- */

/* csv: the column of a field, in files that are not only numbers in the order of the schema. */
struct tr_bound {
    uint8_t type;
    uint32_t slot, column;
};

/* csv: a value whose place is looked up later, when the memory it needs is in the cache. */
struct tr_pending {
    uint64_t hash;
    const char *text;
    uint32_t length, column;
    float *to; /* the slot */
};

enum { TR_PENDING = 32 };

struct tr_reader {
    const struct tr_files *files;
    const struct tr_reader_options *options;
    size_t file; /* current file */
    const struct tr_head *head;
    uint64_t offset; /* of the current line */
    struct tr_matrix matrix;
    size_t nonzeros; /* sparse */
    size_t begin_capacity, column_capacity, value_capacity, label_capacity, place_capacity;
    uint64_t *place; /* of each row, if rows are passed on or places are requested */
    uint64_t *origin,
        first_origin; /* hdf5: positions of the current rows in the converted text; the first row */
    bool origins;     /* these are valid: the file has them, and they are needed */
    size_t origin_capacity;
    float last_label;
    size_t fields;          /* csv: per line, with the label */
    size_t labelled;        /* csv: the field with the label; `fields`: none */
    struct tr_bound *bound; /* csv: of each field; */
    bool any;               /* used: fields are not only numbers in the order of the schema and the label */
    size_t bound_capacity;
    const char **at;  /* csv with crossed categories: where the field of each column begins in this line */
    size_t id_column; /* csv with options->id: its column; */
    char *id_text;    /* for the rows of the piece, its texts, terminated, */
    uint64_t *id;     /* and where they begin */
    size_t id_length, id_text_capacity, id_capacity;
    float *weight; /* csv: of each row from the beginning, if requested */
    size_t weight_capacity;
    struct tr_pending pending[TR_PENDING]; /* csv, in the order of reading */
    size_t pendings;
    char *scratch; /* csv: a field without doubled quotes, a crossed value */
    size_t scratch_capacity;
    uint64_t documents; /* docword: before this file */
    struct tr_triples triples;
    struct tr_read_report report;
    bool enough; /* stop reading */
    int handed;  /* status of the last call of options->rating */
    int status;  /* error of the current line: TR_ERR_DATA: malformed; others end the reading */
    char problem[256];
};

/* The first lines of a file, from the first that is not empty; begin == end: none. */
struct tr_first_lines {
    char *begin, *end; /* begin: to be freed */
    uint64_t offset;   /* of begin in the text of the file */
    size_t capacity;
    const char *text; /* begin, after a UTF-8 byte order mark */
    const char *path;
};

/* Returns the first line from p on that is not empty, without leading blanks; NULL: none. */
static inline const char *tr_next_text(const char *p, const char *end)
{
    while (p && p < end) {
        p = tr_skip_blanks(p);
        if (!tr_at_line_end(p)) return p;
        p = (const char *)memchr(p, '\n', (size_t)(end - p)) + 1;
    }
    return NULL;
}

/* Returns the end of the line, after its newline. */
static inline const char *tr_behind_line(const char *p, const char *end)
{
    return (const char *)memchr(p, '\n', (size_t)(end - p)) + 1;
}

/* The beginning of a file, and its middle if that can be read directly: whole lines. */
struct tr_sample {
    char *text; /* ends with a newline and NUL */
    size_t n;
    double packing; /* bytes of text per stored byte */
    double end;     /* bytes of the file's text up to the end of the last line of the sample */
};

/* Parses the non-empty line at p, and adds it to the reader. Returns any byte of the line before its newline, or NULL if it is
 * malformed: see tr_reader_bad(). */
typedef const char *tr_line_fn(struct tr_reader *r, const char *p);

/* A format of text. Functions may be NULL, except room and lines. */
struct tr_text_format {
    bool certain; /* it is detected before formats that are only probable */
    bool (*sniff)(const char *p,
                  const char *end); /* whether the first lines p .. end seem to be of this format */
    int (*head)(const struct tr_first_lines *first, int header, struct tr_head *head);
    int (*open)(struct tr_reader *r);               /* once */
    int (*enter)(struct tr_reader *r);              /* before each file */
    int (*room)(struct tr_reader *r, size_t bytes); /* allocates memory for a chunk of text of this size */
    int (*lines)(struct tr_reader *r, const struct tr_chunk *lines); /* calls tr_each_line() */
    /* Adds to an estimate of the size of a job's data, from a sample of a file with `text` bytes, one of `files` similar ones */
    int (*estimate)(const struct tr_sample *sample, double text, double files, tr_data_size *size);
};

#define TR_FORMAT_STRUCT(NAME, name) extern const struct tr_text_format tr_##name##_format;
TR_TEXT_FORMATS(TR_FORMAT_STRUCT)
const struct tr_text_format *tr_text_format(enum tr_format format); /* of HDF5: libsvm */

/* csv, ratings: the head of a table. */
int tr_table_head(const struct tr_first_lines *first, bool rates, int header, struct tr_head *head);

/* csv, text or HDF5: allocates memory for more rows. */
int tr_csv_make_room(struct tr_reader *r, size_t more);
/* csv: finds the place of a value in the list of known values, its number in the dictionary of the schema, or its number
 * among hashed keys. n = 0: missing. */
int tr_csv_find_value(struct tr_reader *r, size_t column, const char *text, size_t n, uint32_t *place);
/* csv: a missing number. */
void tr_csv_miss_number(struct tr_reader *r, size_t column, float *to);
/* csv: finds the slot of a crossed value; NULL: see tr_reader_bad(). */
const char *tr_csv_cross_values(struct tr_reader *r, size_t column, const struct tr_cross *cross,
                                const struct tr_field *part, float *to);
/* csv: adds the row behind the last one, unless its label is missing. Returns `end`, or NULL. */
const char *tr_csv_end_row(struct tr_reader *r, const char *end, float label);

/* Sets the error of the current line: `'token': text`, or the text alone if token is NULL. Returns NULL. */
const char *tr_reader_bad(struct tr_reader *r, const char *token, char separator, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Fails with the error of the current line, or counts it as skipped. */
int tr_reader_reject(struct tr_reader *r);

int tr_reader_add_label(struct tr_reader *r, float label);

/* Stores an integer label that is not a float; token: its text, which ends at a separator. */
void tr_reader_note_long_label(struct tr_reader *r, const char *token, char separator);

/* Whether a label may be such an integer. */
static inline bool tr_label_is_long(float label)
{
    return label >= 0x1p24f || label <= -0x1p24f;
}

/* Whether the files are HDF5, so positions are rows. */
bool tr_reader_is_hdf5(const struct tr_reader *r);

/* The following triples come from this piece of the file. */
int tr_reader_note_triples(struct tr_reader *r, uint64_t piece);

/* Makes this file the current one. */
int tr_reader_enter(struct tr_reader *r, size_t file);

/* Notes that the last rows come from begin .. end - 1 of the file. Adjacent runs are joined. */
int tr_reader_note_run(struct tr_reader *r, uint64_t begin, uint64_t end, uint64_t rows);

/* Passes the rows to options->piece, if set, and drops them. */
int tr_reader_hand_out(struct tr_reader *r);

/* Allocates values when the first one that is not 1 is found, and sets the n values before it to 1. */
int tr_reader_start_values(struct tr_reader *r, size_t n);

static inline int tr_reader_note_label(struct tr_reader *r, float label)
{
    return label == r->last_label ? TR_OK : tr_reader_add_label(r, label);
}

/* Adds the row behind the last one. */
static inline int tr_reader_end_row(struct tr_reader *r, float label)
{
    struct tr_matrix *m = &r->matrix;
    if (m->label) {
        TR_TRY(tr_reader_note_label(r, label));
        m->label[m->rows] = label;
    }
    r->enough = ++m->rows == r->options->most_rows; /* 0 is never reached here */
    return TR_OK;
}

/* Whether options->held_out excludes a position of a file. */
static inline bool tr_reader_leaves_out(const struct tr_reader *r, uint64_t file, uint64_t place)
{
    const struct tr_reader_options *o = r->options;
    uint64_t random = tr_mix(tr_mix(tr_mix(o->seed) ^ file) ^ place) >> 11;
    double drawn = (double)random * 0x1p-53;
    return (drawn >= o->held_out.from && drawn < o->held_out.to) != o->reads_held_out;
}

/* The inner loop of the driver: inlined together with the line function. A tab may end an empty first field: then the line
 * function gets the line from its beginning. */
static inline __attribute__((always_inline)) int tr_each_line(struct tr_reader *r,
                                                              const struct tr_chunk *lines, tr_line_fn *line)
{
    bool chooses = r->options->held_out.to > 0 && r->options->format != TR_FORMAT_DOCWORD;
    for (const char *p = lines->begin; p < lines->end && !r->enough;) {
        const char *at = p;
        while (tr_is_blank(*at)) at++;
        r->offset = lines->offset + (uint64_t)(p - lines->begin);
        if (!tr_at_line_end(at) && !(chooses && tr_reader_leaves_out(r, r->file, r->offset))) {
            size_t rows = r->matrix.rows + r->triples.n; /* one of them is 0 */
            at = line(r, r->head->separator == '\t' ? p : at);
            if (!at) {
                TR_TRY(tr_reader_reject(r));
                at = p;
            }
            if (r->place && r->matrix.rows + r->triples.n > rows) r->place[rows] = r->offset;
        }
        p = *at == '\n' ? at + 1 : (const char *)memchr(at, '\n', (size_t)(lines->end - at)) + 1;
    }
    return TR_OK;
}

#endif
