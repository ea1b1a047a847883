#include "vocabulary.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

struct lines {
    const char *path;
    uint64_t n;
    size_t longest;
    char *text; /* one after the other, each with a zero byte */
    size_t used, room;
};

static int append_line(struct lines *l, const char *line, size_t length)
{
    if (length > 0 && line[length - 1] == '\r') length--;
    if (length > TR_LDA_LONGEST_WORD)
        return tr_fail(TR_ERR_DATA, "%s:%" PRIu64 ": a word of more than %d bytes", l->path, l->n + 1,
                       TR_LDA_LONGEST_WORD);
    TR_TRY(TR_GROW(&l->text, &l->room, l->used + length + 1));
    memcpy(l->text + l->used, line, length);
    l->text[l->used + length] = '\0';
    l->used += length + 1;
    l->longest = tr_max_size(l->longest, length);
    l->n++;
    return TR_OK;
}

/* A line is longer than a word may be where it does not fit. */
static int read_lines(struct lines *l, gzFile file)
{
    char line[TR_LDA_LONGEST_WORD + 4];
    while (gzgets(file, line, sizeof line)) {
        size_t length = strlen(line);
        if (length > 0 && line[length - 1] == '\n') length--;
        TR_TRY(append_line(l, line, length));
    }
    int error;
    const char *text = gzerror(file, &error);
    return error == Z_OK || error == Z_STREAM_END ? TR_OK
                                                  : tr_fail(TR_ERR_DATA, "%s: damaged: %s", l->path, text);
}

static int lay_out(const struct lines *l, struct tr_lda_vocabulary *vocabulary)
{
    struct tr_lda_vocabulary v = {.words = l->n, .stride = l->longest + 1};
    TR_TRY(TR_NEW(&v.text, v.words * v.stride));
    const char *from = l->text;
    for (uint64_t i = 0; i < v.words; i++) {
        size_t length = strlen(from) + 1;
        memcpy(v.text + i * v.stride, from, length);
        from += length;
    }
    *vocabulary = v;
    return TR_OK;
}

int tr_lda_vocabulary_read(const char *path, uint64_t words, struct tr_lda_vocabulary *vocabulary)
{
    struct lines l = {.path = path};
    errno = 0;
    gzFile file = gzopen(path, "rb");
    if (!file) return tr_fail(TR_ERR_NO_INPUT, "%s: %s", path, strerror(errno ? errno : ENOMEM));
    int status = read_lines(&l, file);
    gzclose(file);
    if (status == TR_OK && words > 0 && l.n != words)
        status = tr_fail(TR_ERR_DATA,
                         "%s: a vocabulary of %" PRIu64 " lines, expected one for each of the data's %" PRIu64
                         " words",
                         path, l.n, words);
    if (status == TR_OK) status = lay_out(&l, vocabulary);
    free(l.text);
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
