#include "vocabulary.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

/* Appends all lines to *text as strings. The buffer is large enough to detect a word that is too long. */
static int read_lines(gzFile file, const char *path, char **text, struct tr_lda_vocabulary *v)
{
    char line[TR_LDA_LONGEST_WORD + 4];
    size_t used = 0, capacity = 0;
    for (; gzgets(file, line, sizeof line); v->words++) {
        size_t length = strlen(line);
        if (length > 0 && line[length - 1] == '\n') length--;
        if (length > 0 && line[length - 1] == '\r') length--;
        if (length > TR_LDA_LONGEST_WORD)
            return tr_fail(TR_ERR_DATA, "%s:%" PRIu64 ": a word of more than %d bytes", path, v->words + 1,
                           TR_LDA_LONGEST_WORD);
        line[length++] = '\0';
        TR_TRY(TR_GROW(text, &capacity, used + length));
        memcpy(*text + used, line, length);
        used += length;
        v->stride = tr_max_size(v->stride, length);
    }
    int error;
    const char *why = gzerror(file, &error);
    return error == Z_OK || error == Z_STREAM_END ? TR_OK
                                                  : tr_fail(TR_ERR_DATA, "%s: damaged: %s", path, why);
}

int tr_lda_vocabulary_read(const char *path, uint64_t words, struct tr_lda_vocabulary *vocabulary)
{
    struct tr_lda_vocabulary v = {.stride = 1};
    char *text = NULL, *from;
    errno = 0;
    gzFile file = gzopen(path, "rb");
    if (!file) return tr_fail(TR_ERR_NO_INPUT, "%s: %s", path, strerror(errno ? errno : ENOMEM));
    int status = read_lines(file, path, &text, &v);
    gzclose(file);
    if (status == TR_OK && words > 0 && v.words != words)
        status =
            tr_fail(TR_ERR_DATA,
                    "%s: a vocabulary of %" PRIu64 " lines: expected %" PRIu64 ", one per word of the data",
                    path, v.words, words);
    if (status == TR_OK) status = TR_NEW(&v.text, v.words * v.stride);
    from = text;
    for (uint64_t i = 0; i < v.words && status == TR_OK; i++, from += strlen(from) + 1)
        strcpy(v.text + i * v.stride, from);
    free(text);
    if (status == TR_OK) *vocabulary = v;
    return status;
}

void tr_lda_vocabulary_close(struct tr_lda_vocabulary *v)
{
    free(v->text);
    *v = (struct tr_lda_vocabulary){0};
}

const char *tr_lda_word(const struct tr_lda_vocabulary *v, uint64_t word, char *number)
{
    if (word < v->words) return v->text + word * v->stride;
    snprintf(number, 24, "%" PRIu64, word);
    return number;
}
