/* A reader's share of all files, chunk by chunk: what readers of lines of text have in common. */
#ifndef TR_DATA_SHARE_H
#define TR_DATA_SHARE_H

#include <stdbool.h>
#include <stdint.h>

#include "data/text.h"

struct tr_file_place {
    size_t file;     /* in tr_files; tr_files_line() says which line it is */
    uint64_t offset; /* of the line's first byte in the file's text */
};

/* What a reader of rows has seen in its share. */
struct tr_read_report {
    uint64_t rows, nonzeros;
    uint32_t lowest, highest; /* indices seen; lowest > highest if there was none */
    uint64_t text_bytes;      /* of this reader's lines */
    bool binary;              /* every value is 1, so none are stored */
    size_t labels;            /* distinct labels seen, but no more than 3 are kept */
    struct {
        float value;
        struct tr_file_place place;
    } label[3];
    uint64_t skipped; /* records dropped because of skip_errors */
    struct tr_file_place first_skipped;
};

/* A chunk of lines, and where it comes from. */
struct tr_text_share_chunk {
    struct tr_chunk lines;
    size_t file;
    /* of a gzip file that several readers unpack: which piece of its text; they have it in turns */
    uint64_t piece;
};

/* Rows of a reader that follow each other, of lines that follow each other in a file. */
struct tr_read_run {
    uint64_t file, offset; /* where the first line begins, in the file's text … */
    uint64_t end;          /* … and the last one ends */
    uint64_t rows;
};

struct tr_read_runs {
    struct tr_read_run *run; /* in the order of reading; to be freed */
    size_t n, room;
};

/* Notes that so many rows came from a chunk; runs NULL: nobody wants to know. */
int tr_read_runs_add(struct tr_read_runs *runs, const struct tr_text_share_chunk *chunk, uint64_t rows);

struct tr_text_share {
    const struct tr_files *files;
    size_t reader, readers;
    uint64_t deal;      /* bytes of the chunks of tr_files_deal(); 0: a contiguous share for each reader */
    size_t chunk_bytes; /* handed out at once, for tests of their borders; 0: the usual size */
    /* Called now and then with the stored bytes that this reader has done; over all readers they sum up to
     * about the files' total. Anything but TR_OK ends the reading with that status. May be NULL. */
    int (*progress)(void *state, uint64_t bytes);
    void *progress_state;
    bool enough;   /* set by the chunk function: no more chunks, please */
    uint64_t done; /* stored bytes of earlier files */
};

/* Calls chunk() for each chunk of lines of the share until one fails or there is enough. */
int tr_text_share_each(struct tr_text_share *share,
                       int (*chunk)(void *state, const struct tr_text_share_chunk *chunk), void *state);

#endif
