#define _GNU_SOURCE
#include "data/libsvm_each.h"

#include "base/base.h"
#include "data/libsvm.h"
#include "data/number.h"
#include "data/text.h"
#include "data/token.h"

struct reader {
    const struct tr_files *files;
    const struct tr_libsvm_each_options *options;
    int (*row)(void *state, const struct tr_libsvm_row *row);
    void *state;
    size_t file;
    uint32_t *index;
    float *value;
    size_t index_capacity, value_capacity;
    bool unlabelled; /* such a line has been met */
};

static bool at_line_end(const char *p)
{
    return tr_at_line_end(p) || *p == '#';
}

static bool ends_number(const char *p)
{
    return tr_is_blank(*p) || *p == '\r' || at_line_end(p);
}

/* ---- saying what is wrong ---- */

static int fail_at(const struct tr_files *files, size_t file, uint64_t offset, const char *what)
{
    uint64_t line;
    TR_TRY(tr_files_line(files, file, offset, &line));
    return tr_fail(TR_ERR_DATA, "%s:%llu: %s", files->file[file].path, (unsigned long long)line, what);
}

int tr_libsvm_row_fail(const struct tr_libsvm_row *row, const char *what)
{
    return fail_at(row->files, row->file, row->offset, what);
}

/* The parser of training data says exactly what is wrong; it is let loose on one piece of this file after
 * the other, so that it never holds much. It does not know of lines without labels. */
static int describe(const struct reader *r, uint64_t offset)
{
    struct tr_files one = {.file = &r->files->file[r->file], .n = 1, .total = r->files->file[r->file].size};
    struct tr_libsvm_options options = {.lowest_index = r->options->lowest_index};
    size_t readers = (size_t)(one.total >> 24) + 1;
    for (size_t k = 0; k < readers && !r->unlabelled; k++) {
        struct tr_csr csr;
        struct tr_read_report report;
        TR_TRY(tr_libsvm_read(&one, k, readers, &options, &csr, &report));
        tr_csr_free(&csr);
    }
    return fail_at(r->files, r->file, offset, "expected index:value … with ascending indices");
}

/* ---- one line ---- */

/* The pairs of a line; false if something is wrong. *at: behind them. */
static bool parse_pairs(struct reader *r, const char *p, const char **at, size_t *pairs)
{
    uint64_t least = r->options->lowest_index;
    size_t n = 0;
    for (;;) {
        while (tr_is_blank(*p)) p++;
        *at = p;
        *pairs = n;
        if (at_line_end(p)) return true;
        uint64_t index;
        const char *digits = p;
        p = tr_read_whole(p, &index);
        if (p == digits || *p != ':' || index < least || index > TR_LIBSVM_MAX_INDEX) return false;
        p = tr_read_float(p + 1, &r->value[n]);
        if (!p || !ends_number(p) || !isfinite(r->value[n])) return false;
        r->index[n++] = (uint32_t)index;
        least = index + 1;
    }
}

/* The label, or none where the first word is index:value already. */
static const char *parse_label(struct reader *r, const char *p, struct tr_libsvm_row *row)
{
    const char *end = tr_read_float(p, &row->label);
    row->labelled = !(end && *end == ':' && r->options->unlabelled);
    if (row->labelled) return end && ends_number(end) && isfinite(row->label) ? end : NULL;
    r->unlabelled = true;
    row->label = NAN;
    return p;
}

static int parse_line(struct reader *r, const char **p, uint64_t offset)
{
    struct tr_libsvm_row row = {.files = r->files, .file = r->file, .offset = offset};
    const char *at = *p;
    while (tr_is_blank(*at)) at++;
    if (!at_line_end(at)) {
        const char *pairs = parse_label(r, at, &row);
        if (!pairs || !parse_pairs(r, pairs, &at, &row.n)) return describe(r, offset);
        row.index = r->index;
        row.value = r->value;
        TR_TRY(r->row(r->state, &row));
    }
    *p = (const char *)rawmemchr(at, '\n') + 1;
    return TR_OK;
}

/* ---- all lines ---- */

static int parse_chunk(struct reader *r, const struct tr_chunk *chunk)
{
    if (chunk->too_long) return describe(r, chunk->offset);
    size_t most = (size_t)(chunk->end - chunk->begin) / 4 + 1; /* a pair takes four bytes or more */
    TR_TRY(TR_GROW(&r->index, &r->index_capacity, most));
    TR_TRY(TR_GROW(&r->value, &r->value_capacity, most));
    for (const char *p = chunk->begin; p < chunk->end;)
        TR_TRY(parse_line(r, &p, chunk->offset + (uint64_t)(p - chunk->begin)));
    return TR_OK;
}

static int read_text(struct reader *r, struct tr_text *text)
{
    for (;;) {
        struct tr_chunk chunk;
        TR_TRY(tr_text_next(text, &chunk));
        if (chunk.begin == chunk.end && !chunk.too_long) return TR_OK;
        TR_TRY(parse_chunk(r, &chunk));
    }
}

static int read_file(struct reader *r, size_t file)
{
    struct tr_file_part part;
    struct tr_text *text;
    r->file = file;
    if (!tr_files_part(r->files, file, 0, 1, &part)) return TR_OK;
    TR_TRY(tr_text_open(r->files, &part, TR_TEXT_CHUNK, &text));
    int status = read_text(r, text);
    tr_text_close(text);
    return status;
}

int tr_libsvm_each(const struct tr_files *files, const struct tr_libsvm_each_options *options,
                   int (*row)(void *state, const struct tr_libsvm_row *row), void *state)
{
    struct reader r = {.files = files, .options = options, .row = row, .state = state};
    int status = TR_OK;
    for (size_t file = 0; file < files->n && status == TR_OK; file++) status = read_file(&r, file);
    free(r.index);
    free(r.value);
    return status;
}
