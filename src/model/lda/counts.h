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
    uint64_t *first; /* blocks + 1: places of each block */
    uint64_t *word;  /* by place: words lie in the order of blocks, in each of them frequent ones first */
    uint64_t *place; /* by word */
    uint64_t *row;   /* by place: where its row begins in the memory of its block, in bytes */
    uint8_t *kind;   /* by place: TR_LDA_LIST … */
    uint64_t *bytes; /* by block */
};

/* Spreads words 0 .. words - 1 over blocks of about as many tokens each; tokens[w] is T_w. TR_ERR_CONFIG if there are
 * no topics or more than TR_LDA_TOPICS, TR_ERR_DATA if a word has 2³¹ tokens or more. Free with tr_lda_layout_close(). */
int tr_lda_layout_open(const uint64_t *tokens, uint64_t words, uint32_t topics, int blocks,
                       struct tr_lda_layout *layout);
void tr_lda_layout_close(struct tr_lda_layout *layout);

/* One (topic, count) of a row or of a document. */
struct tr_lda_count {
    uint32_t topic;
    uint32_t count;
};

/* The row of the word at this place, from the memory of its block: its topics in ascending order. Writes at most
 * `topics` counts and returns how many. */
size_t tr_lda_row_read(const struct tr_lda_layout *layout, const void *block, uint64_t place,
                       struct tr_lda_count *counts);

/* The same as they lie: lists in the order in which topics came. Which topic is drawn does not depend on it, but how sums
 * are rounded does. */
size_t tr_lda_row_pairs(const struct tr_lda_layout *layout, const void *block, uint64_t place,
                        struct tr_lda_count *counts);

/* n_wk += by. TR_ERR_INTERNAL if the count would fall below 0 or the row has no room for it. */
int tr_lda_row_add(const struct tr_lda_layout *layout, void *block, uint64_t place, uint32_t topic,
                   int64_t by);

/* Makes the row what these counts say (any order, each topic once, zeros allowed). TR_ERR_INTERNAL if there is no room
 * for them. */
int tr_lda_row_write(const struct tr_lda_layout *layout, void *block, uint64_t place,
                     const struct tr_lda_count *counts, size_t n);

/* total[k] += Σ_w n_wk over the words of this block: n_k when all blocks are through. */
void tr_lda_block_totals(const struct tr_lda_layout *layout, int number, const void *block, int64_t *total);

#endif
