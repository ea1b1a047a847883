/* Formats of data files: detection, heads, and reading of rows.
 *
 * The functions of each text format are a struct tr_text_format, in libsvm.c, csv.c or triples.c (ratings, docword), and
 * TR_TEXT_FORMATS lists them. One driver, reader.c, reads the share of one reader (input.h) in chunks of lines. It skips headers
 * and empty lines and calls the format's function for each line. A malformed line is an error `path:line: ...`, or is counted as
 * skipped. Rows are stored, or passed to a function chunk by chunk. HDF5 has no lines: hdf5.h. A triple is a record of ratings or
 * docword: row, column, value.
 */
#ifndef TR_DATA_READER_H
#define TR_DATA_READER_H

#include <string.h>

#include "base/base.h"
#include "data/field.h"
#include "data/names.h"
#include "data/input.h"
#include "data/matrix.h"
#include "data/split.h"
#include "data/schema.h"
#include "trireme/model.h"
#include "trireme/records.h"

/* ---- heads: what the first lines of files show ---- */

#define TR_NO_FIELD UINT32_MAX
enum { TR_RATING_USER, TR_RATING_ITEM, TR_RATING_VALUE, TR_RATING_TIME, TR_RATING_PARTS };

struct tr_head {
    uint64_t begin;  /* offset in the text of the first byte after a header */
    uint64_t fields; /* csv, ratings: number of fields of the first record; hdf5: of columns */
    uint64_t documents, words, nonzeros; /* docword: the three numbers of the header; hdf5: nonzeros only */
    uint64_t rows, chunk_rows;           /* hdf5: number of rows; rows per HDF5 chunk, 0: no chunks */
    /* hdf5. sparse: the file has lists of non-zeros; full: rows are dense in memory; labelled: rows have labels */
    bool sparse, full, labelled;
    bool from_one; /* hdf5: column 0 has index 1 in files of text */
    bool named;    /* hdf5: columns have names, so the file is read as csv: see hdf5.h */
    uint64_t
        label_column; /* hdf5 with named columns: index of the label column; equal to `fields` if there is none */
    bool text_labels;             /* hdf5: labels are texts */
    bool queries;                 /* libsvm: the first row has a qid */
    bool bare;                    /* libsvm: the first row has no label */
    bool text_rows, text_columns; /* ratings: the user or the item of the first record is no number */
    int label;                    /* csv: probable label column, TR_LABEL_* */
    bool header;                  /* csv: the first line has the names of the columns */
    /* csv: index of the file's binding in tr_bindings.binding, see tr_schema_bind() */
    uint32_t binding;
    char separator; /* csv, ratings: separator of fields, see field.h */
    /* ratings: index of the field with the user, item, rating and time; TR_NO_FIELD: no field has it */
    uint32_t rating[TR_RATING_PARTS];
    bool plain;                /* ratings: fields 0, 1 and 2 are user, item and rating */
    struct tr_dialect dialect; /* of the file, for the other ranks */
};

/* tr_format_word() returns the name of a format in a job; tr_format_named() the format of a name, or TR_FORMAT_AUTO if unknown. */
const char *tr_format_word(enum tr_format format);
enum tr_format tr_format_named(const char *word);

/* Detects the format of the first file that is not empty: TR_FORMAT_HDF5, TR_FORMAT_LIBSVM or TR_FORMAT_DOCWORD; TR_FORMAT_CSV for
 * any other table, also for ratings; TR_FORMAT_AUTO: unknown. */
int tr_format_detect(const struct tr_files *files, enum tr_format *format);

/* Reads the heads of all files of a format.
 *
 * @param [in]  header  TR_HEADER_*
 * @param [out] heads   one per file, to be freed
 * @return TR_ERR_DATA if files do not fit together (columns, kinds of HDF5 tables, vocabularies, text and HDF5), or a docword header
 *         is malformed
 */
int tr_heads_read(const struct tr_files *files, enum tr_format format, int header, struct tr_head **heads);

/* Returns the index of the first file with records; 0 also if no file has records. */
size_t tr_heads_first(const struct tr_head *heads, size_t n);

/* csv: calls read() for the fields of a file's header (line 0) and of some lines after it (lines 1, 2, ...), without quotes and
 * blanks around them. HDF5: only for the names. Stops when read() returns anything but TR_OK. */
typedef int tr_field_fn(void *state, size_t line, size_t field, const char *text, size_t n);
int tr_head_fields(const struct tr_files *files, size_t file, const struct tr_head *head, tr_field_fn *read,
                   void *state);

/* How the columns of ratings are found. */
struct tr_rating_columns {
    const tr_job *job; /* NULL: there is none */
    bool
        trains; /* the files are those of the job, which must have the columns of data.columns and data.time */
    bool rating_may_miss; /* the files may have no column of ratings */
    char ignored[160];    /* receives the names of columns that are not used, for messages */
};

/* ratings: finds the columns in each file. data.columns has precedence over the names of the header, which may be common names of
 * users, items, ratings and times. Without header, columns are found by position. TR_ERR_DATA: the header has no such names. */
int tr_ratings_find_columns(const struct tr_files *files, struct tr_rating_columns *wanted,
                            struct tr_head *heads);

/* csv: returns how many numbers besides the label the rows of the first file with records have. */
size_t tr_csv_columns(const struct tr_files *files, const struct tr_head *heads, int label);

/* docword: returns the number of documents in the files before `file`. */
uint64_t tr_docword_base(const struct tr_files *files, const struct tr_head *heads, size_t file);

/* docword: checks records[i], the number of records of file i, against its header. TR_ERR_DATA names the first wrong file. */
int tr_docword_check(const struct tr_files *files, const struct tr_head *heads, const uint64_t *records);

/* ---- results of reading ---- */

#define TR_LIBSVM_MAX_INDEX   4294967294u /* 2^32 - 2: columns stay below 2^32 */
#define TR_DOCWORD_MOST_COUNT 1000000u    /* maximum of the count of a word in a document */
#define TR_LABELS_MOST        65536       /* maximum of distinct labels that are stored */

/* The place of a record in the files. */
struct tr_file_place {
    size_t file; /* index of the file in tr_files.file */
    /* offset of the line in the text of the file (see tr_files_line()); hdf5: index of the row */
    uint64_t offset;
};

/* The first TR_LABELS_MOST distinct labels, in the order of reading. */
struct tr_labels {
    struct tr_ids bits;            /* the labels: the bits of each float as a number */
    struct tr_file_place place[3]; /* where each of the first three labels was first read */
};

static inline float tr_labels_value(const struct tr_labels *labels, size_t i)
{
    uint32_t bits = (uint32_t)labels->bits.number[i];
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

struct tr_read_report {
    /* numbers of rows and of non-zeros; ratings, docword: each is the number of records */
    uint64_t rows, nonzeros;
    uint32_t lowest, highest; /* lowest and highest index of a column; lowest > highest: there is none */
    uint64_t text_bytes;      /* bytes of all lines of this reader */
    struct tr_labels labels;  /* the caller frees labels.bits */
    char long_label[TR_TOKEN_ROOM]; /* the first integer label that is no float; empty: none */
    struct tr_file_place long_label_at;
    bool queries;                 /* libsvm: some rows have a qid, which is ignored */
    uint64_t skipped, unlabelled; /* skipped: malformed records; unlabelled: csv rows without a label */
    uint64_t empty;               /* with every_row: empty lines between rows that are no rows */
    struct tr_file_place first_skipped;
    bool text_rows, text_columns; /* ratings: an id is no number, so all readers must read again, as text */
};

/* A record. docword: numbers of document and word; ratings: places of user and item in tr_triples.rows and columns. */
struct tr_triple {
    uint32_t row, column;
    float value;
};

/* A run: the records from index `first` up to the next run come from one piece of text. Several readers divide the text of a
 * compressed file into pieces, numbered from 0. */
struct tr_triple_run {
    uint64_t file, piece;
    size_t first;
};

struct tr_triples {
    size_t n;
    struct tr_triple *triple;
    struct tr_ids rows, columns; /* ratings: the distinct users and items */
    struct tr_triple_run *run;
    size_t runs;
    size_t triple_capacity, run_capacity;
};

void tr_triples_free(struct tr_triples *triples);

/* Replaces the row (k = 0) or column (k = 1) i of each record by number[i]. */
static inline void tr_triples_map(struct tr_triples *t, int k, const uint32_t *number)
{
    for (size_t i = 0; i < t->n; i++) {
        uint32_t *id = k == 0 ? &t->triple[i].row : &t->triple[i].column;
        *id = number[*id];
    }
}

/* A run of rows: consecutive rows of a reader, from the bytes offset .. end - 1 of a file's text (hdf5: rows offset .. end - 1). */
struct tr_read_run {
    uint64_t file, offset, end;
    uint64_t rows;
};

struct tr_read_runs {
    struct tr_read_run *run; /* the runs in the order of reading; the caller frees them */
    size_t n, room;
};

/* What a reader of csv finds in one column. */
struct tr_column_seen {
    struct tr_ids values; /* distinct values of a category, or names of labels, in the order of reading */
    bool missing;         /* a number is missing */
    bool word;            /* a number is a word: all readers must read the column again, as a category */
    struct tr_file_place place; /* place of the first such word */
    char text[TR_TOKEN_ROOM];   /* the first such word */
};

/* ---- reading ---- */

struct tr_reader;

/* How files are read. Pointers may be NULL. */
struct tr_reader_options {
    enum tr_format format;       /* format of the files, which is not TR_FORMAT_AUTO */
    const struct tr_head *heads; /* heads of the files from tr_heads_read(); libsvm: may be NULL */
    bool skip_errors;            /* count and drop malformed records; otherwise the first is an error */
    bool settled; /* the training data determine all types. Malformed is then, csv: a word in a column of
                                  * numbers; ratings: an id that is no number, unless ids are text */
    uint32_t lowest_index; /* libsvm: lowest index that is accepted, 0 or 1 */
    bool unlabelled; /* libsvm: accept lines without a label; their label is NaN. hdf5: do not check labels */
    bool every_row;  /* see tr_read_options.every_row; requires piece */
    bool line_ids;   /* text: the identifiers of the rows for piece() are the numbers of their lines */
    /* libsvm, hdf5: the names of labels, which are then the numbers of their names, or the number of names if a label is not among
     * them; or receives the names, if these are not known yet. Both NULL: labels are numbers */
    const struct tr_ids *label_names;
    struct tr_ids *label_seen;
    /* csv: the columns, and which of them each file has. schema NULL: all are numbers; label: the label column */
    const struct tr_schema *schema;
    const struct tr_bindings *bindings;
    int label;
    /* csv: receives the results for each column; NULL: the schema has all values already */
    struct tr_column_seen *seen;
    /* csv: tr_reader.id_text receives this column's texts of the rows for piece(); hdf5: those of this dataset, or of «row» */
    const char *id;
    bool rows_without_label;      /* csv: keep rows without a label, with label NaN; false: drop them */
    bool text_rows, text_columns; /* ratings: ids of users or items are text; false: whole numbers */
    struct tr_split split;        /* the lines (docword: documents) that are held out */
    bool reads_held_out;          /* only held-out lines are read; false: only the others */
    struct tr_marks
        *marks;         /* libsvm, csv, ratings: receives the marks of the lines that are read; NULL: none */
    bool marks_only;    /* reads no line, and receives the marks of all lines */
    uint64_t deal;      /* chunk size of tr_files_deal(); 0: each reader has one contiguous share */
    size_t chunk_bytes; /* bytes of text that are parsed together, for tests; 0: TR_TEXT_CHUNK */
    size_t most_rows;   /* libsvm, csv: stop after this number of rows; 0: read all */
    /* Called repeatedly with the stored bytes that this reader has read; the sum over all readers is about the total of the files.
     * Anything but TR_OK ends the reading with that status */
    int (*progress)(void *state, uint64_t bytes);
    void *progress_state;
    float **extra[TR_EXTRAS];  /* csv: receive the extras of each row; to be freed. NULL: not read */
    struct tr_read_runs *runs; /* libsvm, csv: receives where the rows come from */
    uint64_t **places; /* receives the offset (hdf5: row) of each row or record in its file; to be freed */
    uint64_t *records; /* ratings, docword: receives the number of records of each file */
    /* libsvm, csv: called with the rows of each chunk, which are not stored */
    int (*piece)(void *state, struct tr_reader *reader);
    void *piece_state;
    tr_rating_fn *rating; /* ratings: called for each record; no record is stored */
    void *rating_state;
    bool third_may_miss; /* ratings: accept lines of only user and item, with value NaN */
};

/* Reads the share of one reader of libsvm, csv or hdf5 files, in the order of tr_files_deal(). Columns are as in the file.
 * TR_ERR_DATA describes a malformed record as `path:line: found, expected`. */
int tr_read_matrix(const struct tr_files *files, size_t reader, size_t readers,
                   const struct tr_reader_options *options, struct tr_matrix *matrix,
                   struct tr_read_report *report);

/* Does the same as tr_read_matrix() for the records of ratings or docword. */
int tr_read_triples(const struct tr_files *files, size_t reader, size_t readers,
                    const struct tr_reader_options *options, struct tr_triples *triples,
                    struct tr_read_report *report);

/* Returns TR_ERR_DATA with the message `path:line: what`. */
int tr_place_fail(const struct tr_files *files, const struct tr_file_place *place, const char *what);

/* A line of a file with one extra of a row per line. */
struct tr_extra_line {
    const char *path; /* the file; valid during the call */
    uint64_t line;    /* number of the line, from 1 */
    float number;
    bool end; /* this is no line: the last file ends here */
};

/* Calls each() for the lines of the files of data.weight or data.offset and for their end, until it returns anything but TR_OK.
 *
 * @param [in] job   folders and limits; NULL: the current folder
 * @param [in] name  files, as in the job
 */
int tr_extra_each(const tr_job *job, const char *name, enum tr_extra extra,
                  int (*each)(void *state, const struct tr_extra_line *line), void *state);

/* ---- for the formats ---- */

/* csv: the column to which a field belongs. */
struct tr_bound {
    uint8_t type;
    uint32_t slot, column;
};

/* csv: a category's value whose place is looked up later, when the prefetched part of the hash table is in the cache. */
struct tr_pending {
    uint64_t hash;
    const char *text;
    uint32_t length, column;
    float *to; /* the cell of the row that receives the place */
};

enum { TR_PENDING = 32 };

struct tr_reader {
    const struct tr_files *files;
    const struct tr_reader_options *options;
    size_t file; /* index of the current file */
    const struct tr_head *head;
    uint64_t offset; /* offset of the current line in the text of the file */
    struct tr_matrix matrix;
    size_t nonzeros; /* sparse rows: number of non-zeros in `matrix` */
    size_t begin_capacity, column_capacity, value_capacity, label_capacity, place_capacity;
    /* offset (hdf5: row) of each row in its file, with options->piece or ->places; TR_PLACE_MALFORMED is added if it is malformed */
    uint64_t *place;
    bool blank_rows;     /* in this file, an empty line is a row */
    uint64_t empty;      /* number of empty lines that are no rows since the last row */
    uint64_t line, next; /* with options->line_ids: the number of the line at the offset `next` of the file */
    uint64_t mark;       /* mark of the current line */
    size_t mark_field;   /* csv: index of the field with the mark */
    uint64_t *origin, first_origin; /* hdf5: origins (hdf5.h) of rows from row first_origin on */
    bool origins;                   /* origin is valid: the file has origins, and they are needed */
    size_t origin_capacity;
    float last_label;       /* label of the last row, which is noted in the report already */
    size_t fields;          /* csv: number of fields of a line, with the label */
    size_t labelled;        /* csv: index of the field with the label; `fields`: none */
    struct tr_bound *bound; /* csv: the column of each field; used only if `any` is set */
    bool any; /* csv: fields besides the label are not only numbers in the order of the schema */
    size_t bound_capacity;
    const char **at;  /* csv with crossed categories: for each column, the begin of its field in this line */
    size_t id_column; /* csv with options->id: index of the column with identifiers */
    char *id_text;    /* identifiers of the rows of this chunk, each with a NUL at the end */
    uint64_t *id;     /* id[i]: offset in id_text of the identifier of row i of this chunk */
    size_t id_length, id_text_capacity, id_capacity;
    float *extra[TR_EXTRAS]; /* csv with options->extra: extras of all rows read so far; else NULL */
    size_t extra_capacity[TR_EXTRAS];
    struct tr_pending pending[TR_PENDING]; /* csv: `pendings` values in the order of reading */
    size_t pendings;
    char *scratch; /* csv: text of a field without doubled quotes, or of a crossed value */
    size_t scratch_capacity;
    uint64_t documents; /* docword: number of documents in the files before this one */
    struct tr_triples triples;
    struct tr_read_report report;
    bool enough; /* no more rows are needed: reading stops */
    int handed;  /* status of the last call of options->rating */
    int status;  /* error of the current line. TR_ERR_DATA: it is malformed; other errors end the reading */
    char problem[256];
};

#define TR_PLACE_MALFORMED ((uint64_t)1 << 63)

/* Sets the extras of the next row to their usual numbers. extra[e]: where this row's is stored; NULL: it is not read. */
static inline void tr_reader_begin_extras(struct tr_reader *r, float *extra[TR_EXTRAS])
{
    for (int e = 0; e < TR_EXTRAS; e++) {
        extra[e] = r->extra[e] ? &r->extra[e][r->report.rows + r->matrix.rows] : NULL;
        if (extra[e]) *extra[e] = tr_extra_kinds[e].usual;
    }
}

/* The first lines of a file, from the first line that is not empty on. begin == end: all lines are empty. */
struct tr_first_lines {
    char *begin, *end; /* the lines; the caller frees begin */
    uint64_t offset;   /* offset of `begin` in the text of the file */
    size_t capacity;
    char separator;   /* of the fields of a table; '\0': unknown, the sniffer finds it */
    const char *text; /* begin, or the byte behind a UTF-8 byte order mark */
    const char *path;
};

/* Returns the first character that is no blank of the first line from p on that is not empty; NULL: all lines are empty. */
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

/* Whole lines from the beginning of a file and, if the file is not compressed, from its middle. */
struct tr_sample {
    char *text; /* the lines; a newline and a NUL are at the end */
    size_t n;
    double packing;             /* bytes of text per stored byte */
    double end;                 /* offset in the file's text of the end of the last line of the sample */
    const struct tr_head *head; /* ratings: the head of the file */
};

/* Parses the non-empty line at p, and adds it to the reader. Returns any byte of the line up to its newline, or NULL after
 * tr_reader_bad() if the line is malformed. */
typedef const char *tr_line_fn(struct tr_reader *r, const char *p);

/* A format of text. Functions may be NULL, except room and lines. */
struct tr_text_format {
    bool certain; /* sniff() makes no mistakes: this format is tried before those with certain = false */
    bool (*sniff)(const char *p,
                  const char *end); /* whether the first lines p .. end seem to be of this format */
    int (*head)(const struct tr_first_lines *first, int header, struct tr_head *head);
    /* allocates the format's members of the reader; called once */
    int (*open)(struct tr_reader *r);
    /* prepares reading of file r->file; called before each file */
    int (*enter)(struct tr_reader *r);
    int (*room)(struct tr_reader *r, size_t bytes); /* allocates memory for a chunk of text of this size */
    /* parses these lines by a call of tr_each_line() */
    int (*lines)(struct tr_reader *r, const struct tr_chunk *lines);
    /* sets r->mark of the line at p. Returns false for a comment, or after tr_reader_bad() */
    bool (*mark)(struct tr_reader *r, const char *p);
    /* Adds to *size an estimate for `files` similar files, of which one has `text` bytes of text and this sample */
    int (*estimate)(const struct tr_sample *sample, double text, double files, tr_data_size *size);
};

#define TR_FORMAT_STRUCT(NAME, name) extern const struct tr_text_format tr_##name##_format;
TR_TEXT_FORMATS(TR_FORMAT_STRUCT)
/* returns the functions of a format; for HDF5 those of libsvm */
const struct tr_text_format *tr_text_format(enum tr_format format);

/* csv, ratings: finds the head of a table. rates: the table has ratings. */
int tr_table_head(const struct tr_first_lines *first, bool rates, int header, struct tr_head *head);

/* csv: describes a line with another number of fields than the first line. */
#define TR_BAD_COUNT                                                                                         \
    "%s%zu column%s, expected %zu as in the first line: see data.delimiter, data.quote and "                 \
    "data.skip_lines, or "                                                                                   \
    "data.on_error=skip"

/* csv, text or HDF5: allocates memory for more rows. */
int tr_csv_make_room(struct tr_reader *r, size_t more);
/* csv: finds the place of a value in options->seen, or its number in the schema's dictionary, or its hashed key. n = 0: missing. */
int tr_csv_find_value(struct tr_reader *r, size_t column, const char *text, size_t n, uint32_t *place);
/* csv: notes a missing number and sets its cell to NaN. */
void tr_csv_miss_number(struct tr_reader *r, size_t column, float *to);
/* csv: stores the place of a crossed value in *to. part: the fields that it consists of. Returns NULL after tr_reader_bad(). */
const char *tr_csv_cross_values(struct tr_reader *r, size_t column, const struct tr_cross *cross,
                                const struct tr_field *part, float *to);
/* csv: returns the mark of a label (split.h); 0: the label is missing. */
uint64_t tr_csv_label_mark(const struct tr_schema *s, const char *text, size_t n);
/* csv: counts the row that was just parsed behind the last one, unless its label is missing. Returns `end`; NULL after an error. */
const char *tr_csv_end_row(struct tr_reader *r, const char *end, float label);

/* Sets the error of the current line: `'token': text`, or the text alone if token is NULL. Returns NULL. */
const char *tr_reader_bad(struct tr_reader *r, const char *token, char separator, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Returns the error of the current line; or counts the line as skipped (options->skip_errors), adds a row without values in its
 * place (options->every_row), and returns TR_OK. */
int tr_reader_reject(struct tr_reader *r);

/* Adds the identifier of row `row` of the matrix, which follows the row of the last call. */
int tr_reader_add_id(struct tr_reader *r, size_t row, const char *text, size_t n);

int tr_reader_add_label(struct tr_reader *r, float label);

/* Notes an integer label that no float equals, if it is the first one; token: its text, which ends at a separator. */
void tr_reader_note_long_label(struct tr_reader *r, const char *token, char separator);

/* Returns whether labels have names (options->label_names, label_seen), and finds the label with a name. */
static inline bool tr_reader_names_labels(const struct tr_reader_options *o)
{
    return o->label_names || o->label_seen;
}
int tr_reader_find_label(const struct tr_reader_options *o, const char *text, size_t n, float *label);

/* Returns whether a label may have been rounded from such an integer. */
static inline bool tr_label_is_long(float label)
{
    return label >= 0x1p24f || label <= -0x1p24f;
}

/* Returns whether the files are HDF5, so that positions in files are indices of rows. */
bool tr_reader_is_hdf5(const struct tr_reader *r);

/* Notes that the triples that are read from now on come from this piece of the file's text. */
int tr_reader_note_triples(struct tr_reader *r, uint64_t piece);

/* Makes `file` the current file. */
int tr_reader_enter(struct tr_reader *r, size_t file);

/* Notes that the last `rows` rows come from begin .. end - 1 of the current file (struct tr_read_run). Adjacent runs are joined. */
int tr_reader_note_run(struct tr_reader *r, uint64_t begin, uint64_t end, uint64_t rows);

/* If options->piece is set: passes the rows to it and removes them from the matrix. */
int tr_reader_hand_out(struct tr_reader *r);

/* Allocates the values of sparse rows when the first value that is not 1 is found. Sets the n values before it to 1. */
int tr_reader_start_values(struct tr_reader *r, size_t n);

static inline int tr_reader_note_label(struct tr_reader *r, float label)
{
    return label == r->last_label ? TR_OK : tr_reader_add_label(r, label);
}

/* Counts the row that was just parsed behind the last one, and stores its label. */
static inline int tr_reader_end_row(struct tr_reader *r, float label)
{
    struct tr_matrix *m = &r->matrix;
    if (m->label) {
        TR_TRY(tr_reader_note_label(r, label));
        m->label[m->rows] = label;
    }
    r->enough = ++m->rows == r->options->most_rows; /* never true if most_rows is 0 */
    return TR_OK;
}

/* Sets *skips: options->split excludes the line at p, or only its mark is needed. */
int tr_reader_choose(struct tr_reader *r, const char *p, bool *skips);

/* Does the same for a row at this place with the mark r->mark. */
int tr_reader_choose_row(struct tr_reader *r, uint64_t file, uint64_t place, bool *skips);

/* Appends r->mark to options->marks, which may be NULL. */
int tr_reader_note_mark(struct tr_reader *r);

/* Returns whether an empty line p .. at - 1 is a row. Counts empty lines between rows that are none. */
static inline bool tr_reader_has_row(struct tr_reader *r, const char *p, const char *at)
{
    bool row = r->blank_rows || (r->head->separator == '\t' && memchr(p, '\t', (size_t)(at - p)));
    r->empty += !row && !r->head->dialect.comment;
    return row;
}

/* The inner loop of the driver, which is inlined together with the line function. If tabs separate fields, a leading tab ends an
 * empty first field, so the line function gets the line from its beginning. */
static inline __attribute__((always_inline)) int tr_each_line(struct tr_reader *r,
                                                              const struct tr_chunk *lines, tr_line_fn *line)
{
    bool chooses = r->options->split.by != TR_SPLIT_NONE && r->options->split.by != TR_SPLIT_PAIR &&
                   r->options->format != TR_FORMAT_DOCWORD;
    for (const char *p = lines->begin; p < lines->end && !r->enough;) {
        const char *at = p;
        while (tr_is_blank(*at)) at++;
        r->offset = lines->offset + (uint64_t)(p - lines->begin);
        const char *begin = r->head->separator == '\t' ? p : at;
        bool skips = tr_at_line_end(at) && !tr_reader_has_row(r, p, at);
        if (chooses && !skips) TR_TRY(tr_reader_choose(r, begin, &skips));
        if (!skips) {
            size_t rows = r->matrix.rows + r->triples.n; /* one of the summands is 0 */
            at = line(r, begin);
            if (!at) {
                TR_TRY(tr_reader_reject(r));
                at = p;
            } else if (r->place && r->matrix.rows + r->triples.n > rows) {
                r->place[rows] = r->offset;
                r->report.empty += r->empty;
                r->empty = 0;
                if (chooses) TR_TRY(tr_reader_note_mark(r));
            }
        }
        p = *at == '\n' ? at + 1 : (const char *)memchr(at, '\n', (size_t)(lines->end - at)) + 1;
    }
    return TR_OK;
}

#endif
