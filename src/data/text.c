#define _GNU_SOURCE
#include "data/text.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include "base/base.h"

/* ---- a source: bytes of a file, unpacked if need be ---- */

#define PACKED_BYTES ((size_t)64 << 10)

struct source {
    const struct tr_file *file;
    int fd;
    uint64_t stored;       /* bytes read of the file as it is stored */
    z_stream gzip;         /* used if file->gzip, as are the next two */
    unsigned char *packed; /* what is to be unpacked next */
    bool in_member;        /* between the header and the trailer of one of the members of a gzip file */
};

static int source_open(struct source *source, const struct tr_file *file, uint64_t offset)
{
    *source = (struct source){.file = file};
    source->fd = open(file->path, O_RDONLY | O_CLOEXEC);
    if (source->fd < 0) return tr_fail(TR_ERR_NO_INPUT, "%s: %s", file->path, strerror(errno));
    if (!file->gzip) {
        if (lseek(source->fd, (off_t)offset, SEEK_SET) < 0)
            return tr_fail(TR_ERR_IO, "%s: %s", file->path, strerror(errno));
        source->stored = offset;
        return TR_OK;
    }
    TR_TRY(TR_NEW(&source->packed, PACKED_BYTES));
    if (inflateInit2(&source->gzip, 15 + 16) != Z_OK) /* the largest window, gzip headers only */
        return tr_fail(TR_ERR_SYSTEM, "out of memory for unpacking %s", file->path);
    return TR_OK;
}

static void source_close(struct source *source)
{
    if (source->packed) inflateEnd(&source->gzip);
    free(source->packed);
    if (source->fd >= 0) close(source->fd);
}

/* Up to n bytes as they are stored; 0 at the end of the file. */
static int read_stored(struct source *source, void *to, size_t n, size_t *got)
{
    ssize_t bytes;
    do bytes = read(source->fd, to, n);
    while (bytes < 0 && errno == EINTR);
    if (bytes < 0) return tr_fail(TR_ERR_IO, "%s: %s", source->file->path, strerror(errno));
    if (bytes == 0 && source->stored < source->file->size)
        return tr_fail(TR_ERR_IO, "%s: has become shorter while it was read", source->file->path);
    source->stored += (uint64_t)bytes;
    *got = (size_t)bytes;
    return TR_OK;
}

static int corrupt(const struct source *source)
{
    return tr_fail(TR_ERR_DATA, "%s: corrupt gzip data near byte %llu (%s)", source->file->path,
                   (unsigned long long)(source->stored - source->gzip.avail_in),
                   source->gzip.msg ? source->gzip.msg : "unknown cause");
}

/* Gzip files may be several laid end to end, and padded with zeros; anything else behind is corruption. */
static void next_member(struct source *source)
{
    z_stream *gzip = &source->gzip;
    while (gzip->avail_in > 0 && *gzip->next_in == 0 && gzip->total_in > 0) gzip->next_in++, gzip->avail_in--;
    if (gzip->avail_in == 0) return;
    if (gzip->total_in > 0) inflateReset(gzip);
    source->in_member = true;
}

static int more_packed(struct source *source)
{
    size_t got = 0;
    TR_TRY(read_stored(source, source->packed, PACKED_BYTES, &got));
    source->gzip.next_in = source->packed;
    source->gzip.avail_in = (uInt)got;
    if (got == 0 && source->in_member)
        return tr_fail(TR_ERR_DATA, "%s: truncated gzip file: ends at byte %llu in the middle of its data",
                       source->file->path, (unsigned long long)source->stored);
    return TR_OK;
}

static int read_unpacked(struct source *source, char *to, size_t n, size_t *got)
{
    z_stream *gzip = &source->gzip;
    gzip->next_out = (Bytef *)to;
    gzip->avail_out = (uInt)n;
    while (gzip->avail_out > 0) {
        if (gzip->avail_in == 0) TR_TRY(more_packed(source));
        if (gzip->avail_in == 0) break;
        if (!source->in_member) next_member(source);
        if (!source->in_member) continue;
        int code = inflate(gzip, Z_NO_FLUSH);
        if (code == Z_STREAM_END) source->in_member = false;
        else if (code == Z_MEM_ERROR)
            return tr_fail(TR_ERR_SYSTEM, "out of memory for unpacking %s", source->file->path);
        else if (code != Z_OK) return corrupt(source);
    }
    *got = n - gzip->avail_out;
    return TR_OK;
}

static int source_read(struct source *source, char *to, size_t n, size_t *got)
{
    return source->file->gzip ? read_unpacked(source, to, n, got) : read_stored(source, to, n, got);
}

/* ---- lines ---- */

/* The text wanted is a range begin .. end - 1, and for gzip files further ranges at equal distances, since
 * readers take turns. A line belongs to the range in which its first byte lies. */
struct tr_text {
    struct source source;
    uint64_t begin, end;
    uint64_t stride; /* from one range to the next; 0: there is only one */
    char *buffer;
    size_t capacity;       /* of the buffer without its slack */
    size_t used, filled;   /* bytes used .. filled - 1 of the buffer wait to be handed out */
    uint64_t offset;       /* of the first of them in the text; from begin on, a line starts there */
    uint64_t first, share; /* for tr_text_done(): where we began, and among how many the file is shared */
    bool ended;            /* the source has no more */
};

static void set_ranges(struct tr_text *text, const struct tr_part *part, bool gzip)
{
    text->begin = gzip ? part->turn * TR_TEXT_PIECE : part->begin;
    text->end = gzip ? text->begin + TR_TEXT_PIECE : part->end;
    text->stride = gzip ? part->turns * TR_TEXT_PIECE : 0;
    text->share = gzip ? part->turns : 1;
    /* Whether a line starts at begin shows in the byte before. */
    text->offset = gzip || text->begin == 0 ? 0 : text->begin - 1;
    text->first = text->offset;
}

int tr_text_open(const struct tr_files *files, const struct tr_part *part, size_t chunk_bytes,
                 struct tr_text **text)
{
    const struct tr_file *file = &files->file[part->file];
    struct tr_text *opened;
    TR_TRY(TR_NEW(&opened, 1));
    opened->source.fd = -1;
    opened->capacity = chunk_bytes;
    set_ranges(opened, part, file->gzip);
    int result = TR_NEW(&opened->buffer, chunk_bytes + TR_TEXT_SLACK);
    if (result == TR_OK) result = source_open(&opened->source, file, opened->offset);
    if (result == TR_OK) *text = opened;
    else tr_text_close(opened);
    return result;
}

void tr_text_close(struct tr_text *text)
{
    if (!text) return;
    source_close(&text->source);
    free(text->buffer);
    free(text);
}

uint64_t tr_text_done(const struct tr_text *text)
{
    return (text->source.stored - text->first) / text->share;
}

static size_t waiting(const struct tr_text *text)
{
    return text->filled - text->used;
}

static void advance(struct tr_text *text, size_t n)
{
    text->used += n;
    text->offset += n;
}

/* Doubles the buffer, up to one byte more than the longest line. */
static int enlarge(struct tr_text *text)
{
    size_t capacity = tr_min_size(2 * text->capacity, TR_TEXT_LONGEST_LINE + 1);
    char *buffer = realloc(text->buffer, capacity + TR_TEXT_SLACK);
    if (!buffer) return tr_fail(TR_ERR_SYSTEM, "out of memory: a line of %zu bytes", capacity);
    memset(buffer + text->capacity, 0, capacity - text->capacity + TR_TEXT_SLACK);
    text->buffer = buffer;
    text->capacity = capacity;
    return TR_OK;
}

/* Reads on. Of a plain file little more than our range, since the rest is for others; twice as much each time that
 * this did not end the line, which is searched anew. */
static int fill(struct tr_text *text)
{
    size_t rest = waiting(text), got = 0;
    if (text->used > 0) memmove(text->buffer, text->buffer + text->used, rest);
    text->used = 0;
    text->filled = rest;
    if (rest == text->capacity) TR_TRY(enlarge(text));
    uint64_t position = text->offset + rest, wanted = text->capacity - rest;
    uint64_t ahead = tr_max_size(16384, position > text->end ? position - text->end : 0);
    if (text->stride == 0 && position + wanted > text->end + ahead)
        wanted = tr_min_size(wanted, position < text->end ? text->end - position + ahead : ahead);
    TR_TRY(source_read(&text->source, text->buffer + rest, wanted, &got));
    text->filled += got;
    text->ended = got == 0;
    return TR_OK;
}

/* Drops bytes up to the first newline at or behind this offset of the text. */
static int drop_line(struct tr_text *text, uint64_t from)
{
    for (;;) {
        size_t n = waiting(text), skip = from > text->offset ? (size_t)(from - text->offset) : 0;
        const char *start = text->buffer + text->used;
        const char *newline = skip < n ? memchr(start + skip, '\n', n - skip) : NULL;
        advance(text, newline ? (size_t)(newline - start) + 1 : n);
        if (newline || text->ended) return TR_OK;
        TR_TRY(fill(text));
    }
}

/* How many of the bytes that wait are whole lines of the range. */
static size_t whole_lines(const struct tr_text *text)
{
    const char *start = text->buffer + text->used, *newline = NULL;
    size_t n = waiting(text);
    if (text->end - text->offset <= n) { /* the newline that ends the last line of the range may be here */
        size_t last = (size_t)(text->end - text->offset) - 1;
        newline = memchr(start + last, '\n', n - last);
    }
    if (!newline) newline = memrchr(start, '\n', n);
    return newline ? (size_t)(newline - start) + 1 : 0;
}

static int hand_out(struct tr_text *text, size_t n, struct tr_chunk *chunk)
{
    const char *start = text->buffer + text->used;
    *chunk = (struct tr_chunk){.begin = start, .end = start + n, .offset = text->offset};
    advance(text, n);
    return TR_OK;
}

static int too_long(struct tr_text *text, struct tr_chunk *chunk)
{
    *chunk = (struct tr_chunk){.offset = text->offset, .too_long = true};
    return drop_line(text, text->offset);
}

static int take_lines(struct tr_text *text, struct tr_chunk *chunk)
{
    for (;;) {
        size_t n = whole_lines(text);
        if (n > 0) return hand_out(text, n, chunk);
        if (waiting(text) > TR_TEXT_LONGEST_LINE) return too_long(text, chunk);
        if (text->ended && waiting(text) == 0) return hand_out(text, 0, chunk);
        if (text->ended) text->buffer[text->filled++] = '\n'; /* there is always the slack */
        else TR_TRY(fill(text));
    }
}

int tr_text_next(struct tr_text *text, struct tr_chunk *chunk)
{
    for (;;) {
        if (text->ended && waiting(text) == 0) return hand_out(text, 0, chunk);
        if (text->offset >= text->end) { /* also when one line covers several ranges */
            if (text->stride == 0) return hand_out(text, 0, chunk);
            text->begin += text->stride;
            text->end += text->stride;
        } else if (text->offset < text->begin) {
            TR_TRY(drop_line(text, text->begin - 1));
        } else {
            return take_lines(text, chunk);
        }
    }
}

/* ---- line numbers ---- */

static uint64_t count_newlines(const char *text, size_t n)
{
    uint64_t count = 0;
    for (size_t i = 0; i < n; i++) count += text[i] == '\n';
    return count;
}

static int count_lines(struct source *source, uint64_t offset, char *buffer, uint64_t *line)
{
    *line = 1;
    while (offset > 0) {
        size_t got = 0;
        TR_TRY(source_read(source, buffer, tr_min_size(offset, PACKED_BYTES), &got));
        if (got == 0) break;
        *line += count_newlines(buffer, got);
        offset -= got;
    }
    return TR_OK;
}

int tr_files_line(const struct tr_files *files, size_t file, uint64_t offset, uint64_t *line)
{
    struct source source;
    char *buffer;
    TR_TRY(TR_NEW(&buffer, PACKED_BYTES));
    int result = source_open(&source, &files->file[file], 0);
    if (result == TR_OK) result = count_lines(&source, offset, buffer, line);
    source_close(&source);
    free(buffer);
    return result;
}
