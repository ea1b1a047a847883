#include "model/lda/file.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "store/h5.h"
#include "trireme/rows.h"

/* Words whose rows are asked for at once, and entries that are written at once. */
enum { PIECE_WORDS = 1 << 14, PIECE_ENTRIES = 1 << 20 };

/* ---- the words' names ---- */

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

/* ---- writing ---- */

struct writer {
    const struct tr_lda_model *model;
    tr_table *table;
    struct tr_h5_writer *h5;
    uint64_t *begin; /* words + 1 */
    int64_t *total;
    tr_key *keys;
    /* the piece that is being read */
    uint64_t first;
    uint16_t *topic; /* one of these two, or neither when entries are counted */
    uint32_t *count;
};

static int damaged_row(const tr_row *row)
{
    return tr_fail(TR_ERR_INTERNAL, "word %" PRIu64 " has a count below 0", row->key + 1);
}

static int count_entries(void *state, const tr_row *row)
{
    struct writer *w = state;
    const int32_t *value = row->value;
    w->begin[row->key + 1] = row->n;
    for (size_t i = 0; i < row->n; i++) {
        if (value[i] < 0) return damaged_row(row);
        w->total[row->column[i]] += value[i];
    }
    return TR_OK;
}

static int copy_entries(void *state, const tr_row *row)
{
    struct writer *w = state;
    const int32_t *value = row->value;
    uint64_t at = w->begin[row->key] - w->begin[w->first];
    if (row->n != w->begin[row->key + 1] - w->begin[row->key])
        return tr_fail(TR_ERR_INTERNAL, "word %" PRIu64 " has changed while the model is written",
                       row->key + 1);
    for (size_t i = 0; i < row->n; i++) {
        if (w->topic) w->topic[at + i] = (uint16_t)row->column[i];
        else w->count[at + i] = (uint32_t)value[i];
    }
    return TR_OK;
}

static int pull_words(struct writer *w, uint64_t first, uint64_t end, tr_row_fn *row)
{
    for (uint64_t i = first; i < end; i++) w->keys[i - first] = i;
    w->first = first;
    return tr_rows_pull(w->table, w->keys, end - first, row, w);
}

static int find_rows(struct writer *w)
{
    uint64_t words = w->model->words;
    for (uint64_t first = 0; first < words; first += PIECE_WORDS)
        TR_TRY(pull_words(w, first, tr_min_size(words, first + PIECE_WORDS), count_entries));
    for (uint64_t i = 0; i < words; i++) w->begin[i + 1] += w->begin[i];
    return TR_OK;
}

/* As many words as have so many entries together, at least one. */
static uint64_t end_of_piece(const struct writer *w, uint64_t first)
{
    uint64_t end = first + 1;
    while (end < w->model->words && end - first < PIECE_WORDS &&
           w->begin[end + 1] - w->begin[first] <= PIECE_ENTRIES)
        end++;
    return end;
}

static int write_entries(struct writer *w, const char *name, const char *meaning, bool topics)
{
    uint64_t words = w->model->words;
    TR_TRY(tr_h5_begin(w->h5, name, topics ? TR_H5_U16 : TR_H5_U32, w->begin[words], 0));
    TR_TRY(tr_h5_describe(w->h5, "meaning", meaning));
    for (uint64_t first = 0, end; first < words; first = end) {
        end = end_of_piece(w, first);
        size_t n = w->begin[end] - w->begin[first];
        void *piece = NULL;
        TR_TRY(tr_new(&piece, n, topics ? sizeof *w->topic : sizeof *w->count, "entries of a model"));
        w->topic = topics ? piece : NULL;
        w->count = topics ? NULL : piece;
        int status = pull_words(w, first, end, copy_entries);
        if (status == TR_OK && n > 0) status = tr_h5_append(w->h5, piece, n);
        free(piece);
        TR_TRY(status);
    }
    return TR_OK;
}

static int write_attributes(struct writer *w)
{
    const struct tr_lda_model *m = w->model;
    TR_TRY(tr_h5_put_count(w->h5, "topics", m->topics));
    TR_TRY(tr_h5_put_count(w->h5, "words", m->words));
    TR_TRY(tr_h5_put_count(w->h5, "documents", m->documents));
    TR_TRY(tr_h5_put_count(w->h5, "tokens", m->tokens));
    TR_TRY(tr_h5_put_real(w->h5, "beta", m->beta));
    return tr_h5_put_real(w->h5, "log_likelihood_per_token", m->log_likelihood);
}

/* In the file a text is as long as the longest word, without the zero byte. */
static int write_vocabulary(struct writer *w)
{
    const struct tr_lda_vocabulary *v = &w->model->vocabulary;
    size_t length = tr_max_size(v->stride - 1, 1);
    char *piece;
    TR_TRY(tr_h5_begin_texts(w->h5, "vocabulary", v->words, length));
    TR_TRY(TR_NEW(&piece, (size_t)PIECE_WORDS * length));
    int status = TR_OK;
    for (uint64_t first = 0; first < v->words && status == TR_OK; first += PIECE_WORDS) {
        size_t n = tr_min_size(PIECE_WORDS, v->words - first);
        for (size_t i = 0; i < n; i++)
            memcpy(piece + i * length, v->text + (first + i) * v->stride, tr_min_size(length, v->stride));
        status = tr_h5_append(w->h5, piece, n);
    }
    free(piece);
    return status;
}

static int write_all(struct writer *w)
{
    const struct tr_lda_model *m = w->model;
    TR_TRY(find_rows(w));
    TR_TRY(write_attributes(w));
    TR_TRY(tr_h5_put(w->h5, "alpha", TR_H5_F64, m->topics, 0, m->alpha));
    TR_TRY(tr_h5_describe(w->h5, "meaning", "prior of each topic in a document"));
    TR_TRY(tr_h5_put(w->h5, "topic_tokens", TR_H5_I64, m->topics, 0, w->total));
    TR_TRY(tr_h5_describe(w->h5, "meaning", "tokens of each topic"));
    TR_TRY(tr_h5_put(w->h5, "row_begin", TR_H5_U64, m->words + 1, 0, w->begin));
    TR_TRY(tr_h5_describe(w->h5, "meaning", "where each word's entries begin in topic and count"));
    TR_TRY(write_entries(w, "topic", "topics of words, ascending in each", true));
    TR_TRY(write_entries(w, "count", "tokens of the word that have this topic", false));
    return m->vocabulary.words > 0 ? write_vocabulary(w) : TR_OK;
}

static int open_writer(struct writer *w, const char *folder)
{
    const struct tr_lda_model *m = w->model;
    TR_TRY(TR_NEW(&w->begin, m->words + 1));
    TR_TRY(TR_NEW(&w->total, m->topics));
    TR_TRY(TR_NEW(&w->keys, PIECE_WORDS));
    return tr_h5_create(folder, TR_LDA_FORMAT, TR_LDA_FORMAT_VERSION, m->job, m->version, &w->h5);
}

int tr_lda_model_write(const char *folder, const struct tr_lda_model *model, tr_table *words)
{
    struct writer w = {.model = model, .table = words};
    int status = open_writer(&w, folder);
    if (status == TR_OK) status = write_all(&w);
    if (status == TR_OK) status = tr_h5_finish(&w.h5);
    else tr_h5_abandon(&w.h5);
    free(w.begin);
    free(w.total);
    free(w.keys);
    return status;
}

/* ---- reading ---- */

static int damaged(struct tr_h5_reader *r, const char *what)
{
    return tr_fail(TR_ERR_DATA, "%s: damaged: %s", tr_h5_path(r), what);
}

static int read_attributes(struct tr_h5_reader *r, struct tr_lda_model *m)
{
    uint64_t topics;
    TR_TRY(tr_h5_get_count(r, "topics", &topics));
    TR_TRY(tr_h5_get_count(r, "words", &m->words));
    TR_TRY(tr_h5_get_count(r, "documents", &m->documents));
    TR_TRY(tr_h5_get_count(r, "tokens", &m->tokens));
    TR_TRY(tr_h5_get_real(r, "beta", &m->beta));
    TR_TRY(tr_h5_get_real(r, "log_likelihood_per_token", &m->log_likelihood));
    TR_TRY(tr_h5_get_text(r, "trireme", &m->version));
    if (topics < 1 || topics > UINT16_MAX) return damaged(r, "the number of topics is impossible");
    if (m->words < 1 || m->words > SIZE_MAX / 16) return damaged(r, "the number of words is impossible");
    m->topics = (uint32_t)topics;
    return TR_OK;
}

static int check_priors(struct tr_h5_reader *r, const struct tr_lda_model *m)
{
    bool good = m->beta > 0 && isfinite(m->beta);
    for (uint32_t k = 0; k < m->topics; k++)
        good = good && m->alpha[k] > 0 && isfinite(m->alpha[k]) && m->total[k] >= 0;
    return good ? TR_OK : damaged(r, "priors and totals of topics are not all above 0");
}

static int check_rows(struct tr_h5_reader *r, const struct tr_lda_model *m)
{
    if (m->begin[0] != 0) return damaged(r, "row_begin does not begin with 0");
    for (uint64_t w = 0; w < m->words; w++)
        if (m->begin[w + 1] < m->begin[w]) return damaged(r, "row_begin does not ascend");
    return m->begin[m->words] <= m->words * m->topics ? TR_OK : damaged(r, "there are too many entries");
}

static int check_entries(struct tr_h5_reader *r, const struct tr_lda_model *m)
{
    int64_t *total;
    TR_TRY(TR_NEW(&total, m->topics));
    bool known = true, same = true;
    for (uint64_t i = 0; known && i < m->begin[m->words]; i++) {
        known = m->topic[i] < m->topics;
        if (known) total[m->topic[i]] += m->count[i];
    }
    for (uint32_t k = 0; k < m->topics; k++) same = same && total[k] == m->total[k];
    free(total);
    if (!known) return damaged(r, "a topic is too high");
    return same ? TR_OK : damaged(r, "topic_tokens is not the sum of the counts");
}

static int read_arrays(struct tr_h5_reader *r, struct tr_lda_model *m)
{
    TR_TRY(tr_h5_get(r, "alpha", TR_H5_F64, m->topics, 0, &m->alpha));
    TR_TRY(tr_h5_get(r, "topic_tokens", TR_H5_I64, m->topics, 0, &m->total));
    TR_TRY(check_priors(r, m));
    TR_TRY(tr_h5_get(r, "row_begin", TR_H5_U64, m->words + 1, 0, &m->begin));
    TR_TRY(check_rows(r, m));
    TR_TRY(tr_h5_get(r, "topic", TR_H5_U16, m->begin[m->words], 0, &m->topic));
    TR_TRY(tr_h5_get(r, "count", TR_H5_U32, m->begin[m->words], 0, &m->count));
    return check_entries(r, m);
}

static int read_vocabulary(struct tr_h5_reader *r, struct tr_lda_model *m)
{
    struct tr_lda_vocabulary *v = &m->vocabulary;
    if (!tr_h5_has(r, "vocabulary")) return TR_OK;
    TR_TRY(tr_h5_get_texts(r, "vocabulary", m->words, &v->text, &v->stride));
    v->words = m->words;
    return TR_OK;
}

int tr_lda_model_read(const char *path, struct tr_lda_model *model)
{
    struct tr_h5_reader *r;
    struct tr_lda_model m = {0};
    TR_TRY(tr_h5_open(path, TR_LDA_FORMAT, TR_LDA_FORMAT_VERSION, &r));
    int status = read_attributes(r, &m);
    if (status == TR_OK) status = tr_h5_get_job(r, &m.job);
    if (status == TR_OK) status = read_arrays(r, &m);
    if (status == TR_OK) status = read_vocabulary(r, &m);
    tr_h5_close(&r);
    if (status == TR_OK) *model = m;
    else tr_lda_model_close(&m);
    return status;
}

void tr_lda_model_close(struct tr_lda_model *m)
{
    void *memory[] = {m->begin, m->topic, m->count, m->total, m->alpha, m->version, m->job};
    for (size_t i = 0; i < sizeof memory / sizeof *memory; i++) free(memory[i]);
    tr_lda_vocabulary_close(&m->vocabulary);
    *m = (struct tr_lda_model){0};
}
