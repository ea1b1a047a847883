/* Topics as a file, model.h5 of the format trireme-lda, and as one process holds them when it has read that.
 *
 * The counts n_wk are written sparse, as scipy's csr_matrix has them: entries row_begin[w] .. row_begin[w + 1] - 1 of
 * `topic` and `count` belong to word w. With alpha, topic_tokens and the attribute beta, that is the whole model: a word's
 * probability in a topic is (n_wk + beta) / (topic_tokens[k] + words × beta). Topics and words are numbered from 0.
 */
#ifndef TR_MODEL_LDA_FILE_H
#define TR_MODEL_LDA_FILE_H

#include "trireme/base.h"
#include "trireme/table.h"

#define TR_LDA_FORMAT         "trireme-lda"
#define TR_LDA_FORMAT_VERSION 1

/* ---- the words' names ---- */

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

/* ---- the model ---- */

struct tr_lda_model {
    uint32_t topics;
    uint64_t words, documents, tokens; /* the latter of the training data */
    uint64_t *begin;                   /* words + 1 */
    uint16_t *topic;
    uint32_t *count;
    int64_t *total; /* n_k */
    double *alpha, beta;
    double log_likelihood; /* log p(w, z | α, β) per token; NaN: not known */
    char *version, *job;   /* as in tr_linear_model */
    struct tr_lda_vocabulary vocabulary;
};

/* Writes model.h5 into the folder, the counts from a table of words × topics, which is read twice, in pieces: outside of
 * tr_run(), by one rank, while the others wait in tr_agree(). model: all but the counts and totals. TR_ERR_NO_OUTPUT,
 * TR_ERR_IO. */
int tr_lda_model_write(const char *folder, const struct tr_lda_model *model, tr_table *words);

/* Reads a model.h5, or that of a folder. TR_ERR_NO_INPUT: missing or empty; TR_ERR_DATA: anything wrong inside. Free with
 * tr_lda_model_close(). */
int tr_lda_model_read(const char *path, struct tr_lda_model *model);
void tr_lda_model_close(struct tr_lda_model *model); /* frees what it holds, not the struct */

#endif
