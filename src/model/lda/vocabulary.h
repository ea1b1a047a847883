/* Names of the words of a vocabulary. */
#ifndef TR_MODEL_LDA_VOCABULARY_H
#define TR_MODEL_LDA_VOCABULARY_H

#include "trireme/base.h"

enum { TR_LDA_LONGEST_WORD = 255 };

/* Word i is the string at text + i × stride. */
struct tr_lda_vocabulary {
    uint64_t words; /* 0: names are unknown */
    size_t stride;
    char *text;
};

/* Reads a file with one word per line, plain or gzip.
 *
 * @param [in]  words       expected number of lines; 0: any
 * @param [out] vocabulary  free it with tr_lda_vocabulary_close()
 * @return TR_ERR_NO_INPUT, or TR_ERR_DATA if the number of lines differs or a word has more than TR_LDA_LONGEST_WORD bytes
 */
int tr_lda_vocabulary_read(const char *path, uint64_t words, struct tr_lda_vocabulary *vocabulary);
void tr_lda_vocabulary_close(struct tr_lda_vocabulary *vocabulary);

/* Returns the name of a word, or its number if names are unknown. number: scratch memory of 24 bytes. */
const char *tr_lda_word(const struct tr_lda_vocabulary *vocabulary, uint64_t word, char *number);

#endif
