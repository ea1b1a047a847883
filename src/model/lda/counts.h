/* Counts of topics per word, n_wk, in blocks of words.
 *
 * Words are divided into blocks; a member works on one block per round of the rotation. The rows of a block are in one piece
 * of memory of fixed size, which the ranks of a node can share or send as one message. A row has room for every topic that
 * its word can have: a word with few tokens (T_w over all documents) has a list of at most T_w pairs of topic and count, the
 * others have one count per topic.
 *
 * The caller owns the memory of a block. It must be zero at first and aligned to 64 bytes.
 */
#ifndef TR_MODEL_LDA_COUNTS_H
#define TR_MODEL_LDA_COUNTS_H

#include "trireme/base.h"

enum { TR_LDA_TOPICS = 65535 }; /* maximum number of topics */

/* Form of a row. */
enum tr_lda_row {
    TR_LDA_EMPTY, /* no memory: the word has no tokens */
    TR_LDA_LIST,  /* uint32_t length, then pairs topic | count << 16 in any order, counts above 0 */
    TR_LDA_DENSE, /* uint16_t count[topics] */
    TR_LDA_WIDE   /* uint32_t count[topics]: T_w > 65535 */
};

/* Assignment of words to blocks, the same on all ranks. The place of a word is its position in the order of blocks. */
struct tr_lda_layout {
    uint32_t topics;
    uint64_t words;
    int blocks;
    uint64_t *first;  /* block b has the places first[b] .. first[b + 1] - 1 */
    uint64_t *word;   /* by place; in a block in descending order of frequency */
    uint64_t *place;  /* by word */
    uint64_t *row;    /* by place: offset of the row in the memory of its block, in bytes */
    uint8_t *kind;    /* by place: enum tr_lda_row */
    uint64_t *bytes;  /* by block */
    uint32_t *tokens; /* by word: T_w */
};

/* Divides the words 0 .. words - 1 into blocks with similar numbers of tokens.
 *
 * @param [in]  tokens  T_w of each word
 * @param [out] layout  free it with tr_lda_layout_close()
 * @return TR_ERR_CONFIG if topics is not in 1 .. TR_LDA_TOPICS, TR_ERR_DATA if a word has 2³¹ tokens or more
 */
int tr_lda_layout_open(const uint64_t *tokens, uint64_t words, uint32_t topics, int blocks,
                       struct tr_lda_layout *layout);
void tr_lda_layout_close(struct tr_lda_layout *layout);

/* Returns the part of the word at this place, if the words are divided into parts with similar numbers of tokens that each
 * consist of words of few blocks. */
uint32_t tr_lda_layout_part(const struct tr_lda_layout *layout, uint64_t place, uint32_t parts);

/* One entry of a row or of a document. */
struct tr_lda_count {
    uint32_t topic;
    uint32_t count;
};

/* Iterator over the entries with counts above 0 of a row, or of a document in the same form:
 *
 *   for (struct tr_lda_cursor c = tr_lda_row(layout, block, place); tr_lda_next(&c);) … c.topic, c.count … */
struct tr_lda_cursor {
    enum tr_lda_row kind;
    uint32_t at, end;
    uint32_t topic, count;
    const void *row;
};

static inline struct tr_lda_cursor tr_lda_cursor(enum tr_lda_row kind, const void *row, uint32_t topics)
{
    uint32_t end = kind == TR_LDA_EMPTY ? 0 : kind == TR_LDA_LIST ? *(const uint32_t *)row : topics;
    return (struct tr_lda_cursor){.kind = kind, .end = end, .row = row};
}

/* Returns an iterator over the row of the word at this place. block: memory of its block. */
static inline struct tr_lda_cursor tr_lda_row(const struct tr_lda_layout *l, const void *block,
                                              uint64_t place)
{
    return tr_lda_cursor((enum tr_lda_row)l->kind[place], (const char *)block + l->row[place], l->topics);
}

static inline bool tr_lda_next(struct tr_lda_cursor *c)
{
    while (c->at < c->end) {
        uint32_t i = c->at++;
        if (c->kind == TR_LDA_LIST) {
            uint32_t pair = ((const uint32_t *)c->row)[1 + i];
            c->topic = pair & 0xffff;
            c->count = pair >> 16;
        } else {
            c->topic = i;
            c->count =
                c->kind == TR_LDA_DENSE ? ((const uint16_t *)c->row)[i] : ((const uint32_t *)c->row)[i];
        }
        if (c->count) return true;
    }
    return false;
}

/* Writes all entries in ascending order of topics (at most `topics`) and returns their number. */
size_t tr_lda_collect(struct tr_lda_cursor cursor, struct tr_lda_count *counts);

/* Adds 1 to n_wk. TR_ERR_INTERNAL if the row is full. */
int tr_lda_row_add(const struct tr_lda_layout *layout, void *block, uint64_t place, uint32_t topic);

/* Replaces a row by n counts of distinct topics in any order; zeros are skipped. TR_ERR_INTERNAL if they do not fit. */
int tr_lda_row_write(const struct tr_lda_layout *layout, void *block, uint64_t place,
                     const struct tr_lda_count *counts, size_t n);

/* Adds n_wk of the words of this block to total[k]. */
void tr_lda_block_totals(const struct tr_lda_layout *layout, int number, const void *block, int64_t *total);

#endif
