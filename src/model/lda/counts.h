/* How often each word has each topic, n_wk, in blocks of words.
 *
 * Words are spread over blocks, a block being what one slave works on in a round of the rotation. The rows of a block
 * lie in one piece of memory whose size never changes, so that it can be shared by the ranks of a node or travel as one
 * message: a row has room for every topic that its word can ever have. A word with few tokens (T_w, in all documents)
 * has a list of at most T_w pairs of topic and count, another one a count for each topic.
 *
 * The memory of a block is zeros at first, and belongs to the caller; it needs an alignment of 64 bytes.
 */
#ifndef TR_MODEL_LDA_COUNTS_H
#define TR_MODEL_LDA_COUNTS_H

#include "trireme/base.h"

enum { TR_LDA_TOPICS = 65535 }; /* at most */

/* What stands in a row. */
enum tr_lda_row {
    TR_LDA_EMPTY, /* nothing: the word does not occur */
    TR_LDA_LIST,  /* uint32_t length, then pairs, topic | count << 16, without order, counts above 0 */
    TR_LDA_DENSE, /* uint16_t count[topics] */
    TR_LDA_WIDE   /* uint32_t count[topics]: T_w > 65535 */
};

/* Which block has which word, and where in it: the same on every rank. */
struct tr_lda_layout {
    uint32_t topics;
    uint64_t words;
    int blocks;
    uint64_t *first;  /* blocks + 1: places of each block */
    uint64_t *word;   /* by place: words lie in the order of blocks, in each of them frequent ones first */
    uint64_t *place;  /* by word */
    uint64_t *row;    /* by place: where its row begins in the memory of its block, in bytes */
    uint8_t *kind;    /* by place: TR_LDA_LIST … */
    uint64_t *bytes;  /* by block */
    uint32_t *tokens; /* by word: T_w */
};

/* Spreads words 0 .. words - 1 over blocks of about as many tokens each; tokens[w] is T_w. TR_ERR_CONFIG if there are
 * no topics or more than TR_LDA_TOPICS, TR_ERR_DATA if a word has 2³¹ tokens or more. Free with tr_lda_layout_close(). */
int tr_lda_layout_open(const uint64_t *tokens, uint64_t words, uint32_t topics, int blocks,
                       struct tr_lda_layout *layout);
void tr_lda_layout_close(struct tr_lda_layout *layout);

/* Cuts the words into parts of about as many tokens, each from few blocks, as neighbours in the order of blocks have
 * neighbouring parts: to which of them the word at this place belongs. */
uint32_t tr_lda_layout_part(const struct tr_lda_layout *layout, uint64_t place, uint32_t parts);

/* One (topic, count) of a row or of a document. */
struct tr_lda_count {
    uint32_t topic;
    uint32_t count;
};

/* Goes through what stands in a row, or in what is kept of a document in the same form, as it lies, counts above 0:
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

/* The row of the word at this place, in the memory of its block. */
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

/* All of them, topics in ascending order: writes at most `topics` counts and returns how many. */
size_t tr_lda_collect(struct tr_lda_cursor cursor, struct tr_lda_count *counts);

/* n_wk += 1. TR_ERR_INTERNAL if the row has no room for it. */
int tr_lda_row_add(const struct tr_lda_layout *layout, void *block, uint64_t place, uint32_t topic);

/* Makes the row what these counts say (any order, each topic once, zeros allowed). TR_ERR_INTERNAL if there is no room
 * for them. */
int tr_lda_row_write(const struct tr_lda_layout *layout, void *block, uint64_t place,
                     const struct tr_lda_count *counts, size_t n);

/* total[k] += Σ_w n_wk over the words of this block: n_k when all blocks are through. */
void tr_lda_block_totals(const struct tr_lda_layout *layout, int number, const void *block, int64_t *total);

#endif
