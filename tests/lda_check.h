/* Whether a sampler's counts n_dk are those of the topics of its tokens, for tests of topics. */
#ifndef TESTS_LDA_CHECK_H
#define TESTS_LDA_CHECK_H

#include <stdlib.h>

#include "model/lda/lda.h"

static inline bool lda_document_agrees(const struct tr_lda_sampler *s, uint64_t document, uint32_t *count)
{
    uint64_t tokens = 0;
    for (uint64_t i = 0; i < s->tokens; i++) {
        if (s->at[i] != s->line[document]) continue;
        count[s->topic_bytes == 1 ? ((const uint8_t *)s->topic)[i] : ((const uint16_t *)s->topic)[i]]++;
        tokens++;
    }
    bool agrees = tokens == s->length[document];
    for (struct tr_lda_cursor c = tr_lda_document(s, document); tr_lda_next(&c);) {
        agrees = agrees && count[c.topic] == c.count;
        count[c.topic] = 0;
        tokens -= c.count;
    }
    return agrees && tokens == 0;
}

static inline bool lda_counts_agree(const struct tr_lda_sampler *s)
{
    uint32_t *count = calloc(65536, sizeof *count);
    bool agree = count != NULL;
    for (uint64_t d = 0; d < s->documents && agree; d++) agree = lda_document_agrees(s, d, count);
    free(count);
    return agree;
}

#endif
