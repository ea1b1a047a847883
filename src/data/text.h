/* Lines of text out of a part of a file, plain or packed (source.h), in chunks that stay in the processor's cache. */
#ifndef TR_DATA_TEXT_H
#define TR_DATA_TEXT_H

#include "data/files.h"

#define TR_TEXT_CHUNK        ((size_t)192 << 10) /* a chunk and what is made of it fit in 1 MiB of L2 */
#define TR_TEXT_LONGEST_LINE ((size_t)64 << 20)  /* without a data.max_record */
#define TR_TEXT_SLACK        64                  /* bytes behind a chunk that may be read, but mean nothing */

struct tr_text;

/* Whole lines. The last byte is always a newline (one is added to a file that ends without), so a parser
 * that stops at newlines needs no other bound. */
struct tr_chunk {
    const char *begin, *end; /* begin == end: there is no more */
    uint64_t offset;         /* of begin in the text of the file */
    bool too_long;           /* no lines, but one line was longer than files->max_record and dropped */
};

/* chunk_bytes: TR_TEXT_CHUNK, or something small to test the borders. */
int tr_text_open(const struct tr_files *files, const struct tr_file_part *part, size_t chunk_bytes,
                 struct tr_text **text);

/* The next lines of the part, valid until the next call. TR_ERR_DATA for a corrupt packed file. */
int tr_text_next(struct tr_text *text, struct tr_chunk *chunk);

/* Stored (compressed) bytes done; over all readers these sum up to about the size of the file. */
uint64_t tr_text_done(const struct tr_text *text);

void tr_text_close(struct tr_text *text); /* may be NULL */

/* The error of a line that is too long, without its place, and with it: TR_ERR_DATA. */
struct tr_text_problem {
    char text[96];
};
struct tr_text_problem tr_text_too_long(const struct tr_files *files);
int tr_text_fail_too_long(const struct tr_files *files, size_t file, uint64_t offset);

/* The number of the line, from 1, of a byte of the file's text. Reads the file up to there. */
int tr_files_line(const struct tr_files *files, size_t file, uint64_t offset, uint64_t *line);

#endif
