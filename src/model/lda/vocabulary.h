/* What the words of a vocabulary are called. */
#ifndef TR_MODEL_LDA_VOCABULARY_H
#define TR_MODEL_LDA_VOCABULARY_H

#include "trireme/base.h"

enum { TR_LDA_LONGEST_WORD = 255 };

/* Text i begins at text + i × stride and ends with a zero byte. */
struct tr_lda_vocabulary {
    uint64_t words; /* 0: none is known */
    size_t stride;
    char *text;
};

/* Reads a file of one word a line, plain or gzip. TR_ERR_NO_INPUT; TR_ERR_DATA if it has not so many lines (0: any
 * number), or one that is longer than TR_LDA_LONGEST_WORD bytes. Free with tr_lda_vocabulary_close(). */
int tr_lda_vocabulary_read(const char *path, uint64_t words, struct tr_lda_vocabulary *vocabulary);
void tr_lda_vocabulary_close(struct tr_lda_vocabulary *vocabulary); /* zeros inside are fine */

/* The word's name, or its number (written into `number`, 24 bytes) where names are not known. */
const char *tr_lda_word(const struct tr_lda_vocabulary *vocabulary, uint64_t word, char *number);

#endif
