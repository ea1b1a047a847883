/* The reader of records: one driver for all formats.
 *
 * It goes through the chunks of lines that are one reader's share of the files (files.h, text.h), passes headers and empty
 * lines, has each line parsed by the function of its format (libsvm.c, csv.c, triples.c), and turns what is wrong with a line
 * into an error `path:line: …` or one more record skipped. Rows are kept, or handed out chunk by chunk. Tables in HDF5 have no
 * lines: hdf5.h.
 */
#ifndef TR_DATA_READER_H
#define TR_DATA_READER_H

#include <string.h>

#include "base/base.h"
#include "data/head.h"
#include "data/ids.h"
#include "data/matrix.h"
#include "data/schema.h"
#include "data/text.h"
#include "data/token.h"
#include "trireme/records.h"

#define TR_LIBSVM_MAX_INDEX   4294967294u /* 2^32 - 2: numbers of columns stay below 2^32 */
#define TR_DOCWORD_MOST_COUNT 1000000u    /* of a word in a document */
#define TR_LABELS_MOST        65536       /* distinct labels that are told apart */

struct tr_file_place {
    size_t file;     /* in tr_files; tr_files_line() says which line it is */
    uint64_t offset; /* of the line's first byte in the file's text; hdf5: the number of the row */
};

/* Distinct labels, in the order in which they were met: the first TR_LABELS_MOST. */
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

/* What a reader has seen in its share. */
struct tr_read_report {
    uint64_t rows, nonzeros;  /* ratings, docword: records, both */
    uint32_t lowest, highest; /* columns; lowest > highest if there was none */
    uint64_t text_bytes;      /* of this reader's lines */
    struct tr_labels labels;  /* to be freed by tr_ids_free(&labels.bits) */
    char long_label
        [TR_TOKEN_ROOM]; /* libsvm, csv: the first integer label that is not a float; empty: none … */
    struct tr_file_place long_label_at; /* … and its line */
    bool queries;                       /* libsvm: some rows have a qid, which is ignored */
    uint64_t skipped;                   /* records dropped because of skip_errors */
    uint64_t unlabelled;                /* csv: rows left out as their label is missing */
    struct tr_file_place first_skipped;
    bool text_rows,
        text_columns; /* ratings: an id was no number: nothing counts, all readers must read again, as text */
};

/* One record of ratings or docword: numbers of the document and the word, or places of user and item in the ids that the
 * reader has met. */
struct tr_triple {
    uint32_t row, column;
    float value;
};

/* Records first .. (of the next run) - 1 come from one piece of one file: see tr_share_chunk. */
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

/* Rows of a reader that follow each other, of lines that follow each other in a file. */
struct tr_read_run {
    uint64_t file,
        offset;   /* where the first line begins, in the file's text … (hdf5: rows instead of bytes) */
    uint64_t end; /* … and the last one ends */
    uint64_t rows;
};

struct tr_read_runs {
    struct tr_read_run *run; /* in the order of reading; to be freed */
    size_t n, room;
};

struct tr_reader;

/* What a reader of csv has met in one column of its share. */
struct tr_column_seen {
    struct tr_ids values; /* of categories, and names of labels, in the order in which they were met */
    bool missing;
    bool
        word; /* in a column of numbers that may be a category: nothing counts, all readers must read again, as such */
    struct tr_file_place place;
    char text[TR_TOKEN_ROOM]; /* the first word */
};

struct tr_reader_options {
    enum tr_format format;       /* not auto */
    const struct tr_head *heads; /* of each file, from tr_heads_read(); libsvm: may be NULL */
    bool skip_errors;            /* drop malformed records and count them; otherwise the first is an error */
    uint32_t lowest_index;       /* libsvm: 0 or 1; 0 accepts both */
    uint32_t max_index;          /* libsvm; 0: TR_LIBSVM_MAX_INDEX */
    bool unlabelled;             /* libsvm: lines without a label are fine, it is NaN then */
    /* csv: what the columns are, and those of each file; NULL: all are numbers, but for the label of the next setting */
    const struct tr_schema *schema;
    const struct tr_bindings *bindings;
    struct tr_column_seen
        *seen;      /* … of each column; NULL: not asked for, the schema has all values of categories */
    bool settled;   /* … a word in a column of numbers is an error */
    const char *id; /* … the texts of this column are kept, of the rows of a piece; NULL: of none */
    bool rows_without_label; /* … those whose label is missing are kept, it is NaN then; otherwise left out */
    int label;               /* csv without schema: TR_LABEL_…: which field is one */
    bool text_rows,
        text_columns; /* ratings: ids are text; otherwise numbers, until one is found that is none */
    bool known_rows, known_columns; /* ratings: such an id is malformed, since others before were numbers */
    /* A share of the lines (docword: documents), chosen by the seed and where they stand, is held out: the same for any number
     * of readers. Either these are read, or the others. 0: there is none, all are read. */
    struct tr_job_held_out held_out;
    bool reads_held_out;
    uint64_t seed;
    uint64_t deal;      /* bytes of the chunks of tr_files_deal(); 0: a contiguous share for each reader */
    size_t chunk_bytes; /* parsed at once, for tests of their borders; 0: the usual size */
    size_t most_rows;   /* libsvm, csv: to be read of the share; 0: all */
    /* Called now and then with the stored bytes that this reader has done; over all readers they sum up to
     * about the files' total. Anything but TR_OK ends the reading with that status. May be NULL. */
    int (*progress)(void *state, uint64_t bytes);
    void *progress_state;
    float **
        weight; /* csv: gets those of all rows that were read, where the schema has them, to be freed; may be NULL */
    struct tr_read_runs *runs; /* libsvm, csv: where rows come from is noted there; may be NULL */
    uint64_t **places; /* gets where each row or record stands in its file, to be freed; may be NULL */
    uint64_t *records; /* ratings, docword: gets the number of records of each file; may be NULL */
    /* libsvm, csv: called with the rows of each chunk, which are not kept then; may be NULL */
    int (*piece)(void *state, struct tr_reader *reader);
    void *piece_state;
    tr_rating_fn *rating; /* ratings: called for each, none is kept; may be NULL */
    void *rating_state;
    bool third_may_miss; /* … and its value is NaN then */
};

/* Reads the share of one reader of libsvm or csv files: columns are as in the file; in the order of tr_files_deal().
 * TR_ERR_DATA describes a malformed record as `path:line: what was found, what was expected`. */
int tr_read_matrix(const struct tr_files *files, size_t reader, size_t readers,
                   const struct tr_reader_options *options, struct tr_matrix *matrix,
                   struct tr_read_report *report);

/* The same of ratings and docword. */
int tr_read_triples(const struct tr_files *files, size_t reader, size_t readers,
                    const struct tr_reader_options *options, struct tr_triples *triples,
                    struct tr_read_report *report);

/* csv: numbers in a row, without the label; what the first file that is not empty says. 0: only a label. */
size_t tr_csv_columns(const struct tr_files *files, const struct tr_head *heads, int label);

/* docword: documents before those of a file, and of all files. */
uint64_t tr_docword_base(const struct tr_files *files, const struct tr_head *heads, size_t file);

/* docword: whether each file has as many records as its header says; records of all readers. TR_ERR_DATA names the first
 * that has not. */
int tr_docword_check(const struct tr_files *files, const struct tr_head *heads, const uint64_t *records);

/* Fails with TR_ERR_DATA: `path:line: what`. */
int tr_place_fail(const struct tr_files *files, const struct tr_file_place *place, const char *what);

/* ---- for the functions of formats ---- */

/* csv: what a field is, in files whose columns are not just numbers in the order of the schema. */
struct tr_bound {
    uint8_t type;
    uint32_t slot, column;
};

/* csv: a value whose place is still to be found: what it needs of memory is on the way. */
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
    size_t file; /* the one being read */
    const struct tr_head *head;
    uint64_t offset; /* of the line in work */
    struct tr_matrix matrix;
    size_t nonzeros; /* sparse */
    size_t begin_capacity, column_capacity, value_capacity, label_capacity, place_capacity;
    uint64_t *place; /* of each row, where rows are handed out, or places are asked for */
    uint64_t *origin,
        first_origin; /* hdf5: of the rows at hand, from this one on, where they stood first … */
    bool origins;     /* … if that is known and asked for */
    size_t origin_capacity;
    float last_label;
    size_t fields;          /* csv: with the label */
    size_t labelled;        /* csv: which field is the label; `fields`: none */
    struct tr_bound *bound; /* csv: what each field is … */
    bool any; /* … if they are not all numbers in the order of the schema, but for the label */
    size_t bound_capacity;
    const char **at;  /* csv with crossed categories: where the field of each column begins in this line */
    size_t id_column; /* csv with options->id: its number … */
    char *id_text;    /* … and of each row of the piece where its text begins, ended by NUL */
    uint64_t *id;
    size_t id_length, id_text_capacity, id_capacity;
    float *weight; /* csv: of each row since the beginning, where they are asked for */
    size_t weight_capacity;
    struct tr_pending pending[TR_PENDING]; /* csv, in the order in which they were met */
    size_t pendings;
    char *scratch; /* csv: a field with doubled quotes */
    size_t scratch_capacity;
    uint64_t documents; /* docword: before this file's */
    struct tr_triples triples;
    struct tr_read_report report;
    bool enough; /* no more lines, please */
    int handed;  /* what the function says that the last rating was handed to */
    int status; /* of what went wrong with the line in work: TR_ERR_DATA means the record, others end the reading */
    char problem[256];
};

/* Parses the line that stands at p, which is not empty, and adds what it holds to the reader. Returns any byte of the line
 * behind which its newline follows, or NULL if it is malformed: see tr_reader_bad(). */
typedef const char *tr_line_fn(struct tr_reader *r, const char *p);

struct tr_format_reader {
    int (*open)(struct tr_reader *r);               /* once; may be NULL */
    int (*enter)(struct tr_reader *r);              /* before another file; may be NULL */
    int (*room)(struct tr_reader *r, size_t bytes); /* for whatever a chunk of so many bytes can hold */
    int (*lines)(struct tr_reader *r,
                 const struct tr_chunk *lines); /* tr_each_line() with the line function */
};

extern const struct tr_format_reader tr_libsvm_reader, tr_csv_reader, tr_ratings_reader, tr_docword_reader;

/* csv, of text or in HDF5: room for some more rows. */
int tr_csv_make_room(struct tr_reader *r, size_t more);
/* … the place of a value among those that were met, or its number in a dictionary that is there, or among hashed keys. n: 0 where
 * it is missing. */
int tr_csv_find_value(struct tr_reader *r, size_t column, const char *text, size_t n, uint32_t *place);
/* … of a column of numbers, one that stands for a missing value is met. */
void tr_csv_miss_number(struct tr_reader *r, size_t column, float *to);
/* … the same of a crossed one, as a slot has it; NULL: see tr_reader_bad(). */
const char *tr_csv_cross_values(struct tr_reader *r, size_t column, const struct tr_cross *cross,
                                const struct tr_field *part, float *to);
/* … the row behind the last one is complete, unless its label is missing. Returns `end`, or NULL. */
const char *tr_csv_end_row(struct tr_reader *r, const char *end, float label);

/* Notes what is wrong with the line in work: `'token': text`, or the text alone if token is NULL. Returns NULL. */
const char *tr_reader_bad(struct tr_reader *r, const char *token, char separator, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Makes the noted problem the error, or counts the record as skipped. */
int tr_reader_reject(struct tr_reader *r);

int tr_reader_add_label(struct tr_reader *r, float label);

/* Notes a label if it is an integer that is not a float; token: its text, which ends at a separator. */
void tr_reader_note_long_label(struct tr_reader *r, const char *token, char separator);

/* Whether a label may be such an integer. */
static inline bool tr_label_is_long(float label)
{
    return label >= 0x1p24f || label <= -0x1p24f;
}

/* Whether what it reads lies in HDF5, where places are numbers of rows. */
bool tr_reader_is_hdf5(const struct tr_reader *r);

/* Triples come from this piece of the file now on. */
int tr_reader_note_triples(struct tr_reader *r, uint64_t piece);

/* Goes on with this file. */
int tr_reader_enter(struct tr_reader *r, size_t file);

/* So many rows of the file come from its bytes begin .. end - 1; those of neighbouring bytes are one run. */
int tr_reader_note_run(struct tr_reader *r, uint64_t begin, uint64_t end, uint64_t rows);

/* Hands out the rows at hand, and forgets them, where there is somebody to take them. */
int tr_reader_hand_out(struct tr_reader *r);

static inline int tr_reader_note_label(struct tr_reader *r, float label)
{
    return label == r->last_label ? TR_OK : tr_reader_add_label(r, label);
}

/* Whether what stands at this place of a file is not to be read: see tr_reader_options.held_out. */
static inline bool tr_reader_leaves_out(const struct tr_reader *r, uint64_t file, uint64_t place)
{
    const struct tr_reader_options *o = r->options;
    uint64_t random = tr_mix(tr_mix(tr_mix(o->seed) ^ file) ^ place) >> 11;
    double drawn = (double)random * 0x1p-53;
    return (drawn >= o->held_out.from && drawn < o->held_out.to) != o->reads_held_out;
}

/* The driver's inner loop: inlined, so that the line function is too. A tab may end an empty first field: such a line is
 * handed over from its beginning. */
static inline __attribute__((always_inline)) int tr_each_line(struct tr_reader *r,
                                                              const struct tr_chunk *lines, tr_line_fn *line)
{
    bool chooses = r->options->held_out.to > 0 && r->options->format != TR_FORMAT_DOCWORD;
    for (const char *p = lines->begin; p < lines->end && !r->enough;) {
        const char *at = p;
        while (tr_is_blank(*at)) at++;
        r->offset = lines->offset + (uint64_t)(p - lines->begin);
        if (!tr_at_line_end(at) && !(chooses && tr_reader_leaves_out(r, r->file, r->offset))) {
            size_t rows = r->matrix.rows + r->triples.n; /* of which there are either */
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
