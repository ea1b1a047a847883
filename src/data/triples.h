/* Text of three columns, read at the speed of memory: ratings of items by users, and UCI's bags of words.
 *
 *   ratings   user, item, rating, and anything more; separated by tabs, ::, semicolons, commas or blanks. An id is a
 *             whole number of up to 64 bits without leading zeros, or any other text; quotes around a field are dropped
 *   docword   behind a header document, word, count: whole numbers from 1, separated by blanks
 *
 * Empty lines, CRLF and a last line without newline are fine.
 */
#ifndef TR_DATA_TRIPLES_H
#define TR_DATA_TRIPLES_H

#include "data/ids.h"
#include "data/libsvm.h"
#include "data/look.h"
#include "trireme/records.h"

#define TR_DOCWORD_MOST_COUNT 1000000u /* of a word in a document */

/* One record: numbers of the document and the word, or places of user and item in the ids that the reader has met. */
struct tr_triple {
    uint32_t row, column;
    float value;
};

/* Records first .. (of the next run) - 1 come from one piece of one file: see tr_text_share_chunk. */
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

struct tr_triples_options {
    int format;       /* TR_FORMAT_RATINGS or TR_FORMAT_DOCWORD */
    bool skip_errors; /* drop malformed records and count them; otherwise the first is an error */
    bool text_rows,
        text_columns; /* ratings: ids are text; otherwise numbers, until one is found that is none */
    bool known_rows, known_columns; /* ratings: such an id is malformed, since others before were numbers */
    const struct tr_shape *shape;   /* of each file, from tr_look_shapes() */
    int (*progress)(void *state, uint64_t bytes); /* as that of tr_text_share */
    void *progress_state;
    uint64_t deal;
    size_t chunk_bytes;
};

struct tr_triples_report {
    uint64_t rows, records;
    uint64_t text_bytes;
    uint64_t skipped;
    struct tr_file_place first_skipped;
    bool text_rows,
        text_columns; /* an id was no number: nothing counts, all readers must read again, as text */
};

/* Reads the share of one reader. records, of as many as there are files, gets the number in each. TR_ERR_DATA describes
 * a malformed record as `path:line: what was found, what was expected`. */
int tr_triples_read(const struct tr_files *files, size_t reader, size_t readers,
                    const struct tr_triples_options *options, struct tr_triples *triples, uint64_t *records,
                    struct tr_triples_report *report);

/* Documents before those of a file, and of all files. */
uint64_t tr_docword_base(const struct tr_files *files, const struct tr_shape *shapes, size_t file);

/* Whether each file has as many records as its header says; records as tr_triples_read() counts them, of all readers.
 * TR_ERR_DATA names the first that has not. */
int tr_docword_check(const struct tr_files *files, const struct tr_shape *shapes, const uint64_t *records);

/* ---- one record after the other, in one process, without keeping them ---- */

/* Calls rating() for each line of all files in their order, until it returns anything but TR_OK. The third column may
 * be missing if the options say so. Ids are whatever text stands there. */
int tr_ratings_each(const struct tr_files *files, const struct tr_shape *shapes, bool third_may_miss,
                    tr_rating_fn *rating, void *state);

#endif
