#define _GNU_SOURCE
#include "data/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "data/source.h"

#define AT_ONCE ((size_t)64 << 10)

/* ---- lines ---- */

/* The text wanted is the lines that begin in the range begin .. end - 1, then in further ranges at equal
 * distances. What lies between is skipped unread in plain files, and unpacked and dropped in packed files. */
struct tr_text {
    struct tr_source source;
    uint64_t begin, end;
    struct tr_file_part part; /* part.end is the next range's */
    char *buffer;
    size_t longest;      /* bytes of a line at most */
    size_t capacity;     /* of the buffer without its slack */
    size_t used, filled; /* bytes used .. filled - 1 of the buffer wait to be handed out */
    uint64_t offset;     /* of the first of them in the text */
    bool inside;         /* a line may go on there; otherwise one begins */
    bool ended;          /* the source has no more */
    uint64_t done;       /* bytes of a plain file in ranges before this one */
};

static bool is_packed(const struct tr_text *text)
{
    return text->source.file->packing;
}

/* False if a plain file has no more of them. */
static bool next_range(struct tr_text *text)
{
    struct tr_file_part *part = &text->part;
    text->done += text->end - text->begin;
    text->begin = part->end > part->bytes ? part->end - part->bytes : 0;
    text->end = part->end;
    part->end += part->stride;
    if (is_packed(text)) return true;
    if (text->begin > part->limit) text->begin = part->limit;
    if (text->end > part->limit) text->end = part->limit;
    return text->begin < text->end;
}

/* Whether a line begins at this byte shows in the byte before. */
static uint64_t before(uint64_t byte)
{
    return byte > 0 ? byte - 1 : 0;
}

static size_t longest_line(const struct tr_files *files)
{
    return files->max_record ? (size_t)files->max_record : TR_TEXT_LONGEST_LINE;
}

int tr_text_open(const struct tr_files *files, const struct tr_file_part *part, size_t chunk_bytes,
                 struct tr_text **text)
{
    const struct tr_file *file = &files->file[part->file];
    struct tr_text *opened;
    TR_TRY(TR_NEW(&opened, 1));
    *opened = (struct tr_text){.source = {.file = file, .fd = -1},
                               .part = *part,
                               .longest = longest_line(files),
                               .capacity = chunk_bytes};
    next_range(opened);
    if (!file->packing) opened->offset = before(opened->begin);
    int result = TR_NEW(&opened->buffer, chunk_bytes + TR_TEXT_SLACK);
    if (result == TR_OK) result = tr_source_open(&opened->source, file, opened->offset);
    if (result == TR_OK) *text = opened;
    else tr_text_close(opened);
    return result;
}

void tr_text_close(struct tr_text *text)
{
    if (!text) return;
    tr_source_close(&text->source);
    free(text->buffer);
    free(text);
}

uint64_t tr_text_done(const struct tr_text *text)
{
    if (is_packed(text)) return text->source.stored / text->part.readers;
    uint64_t end = text->offset < text->end ? text->offset : text->end;
    return text->done + (end > text->begin ? end - text->begin : 0);
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
    size_t capacity = tr_min_size(2 * text->capacity, text->longest + 1);
    char *buffer = realloc(text->buffer, capacity + TR_TEXT_SLACK);
    if (!buffer) return tr_fail(TR_ERR_SYSTEM, "out of memory: a line of %zu bytes", capacity);
    memset(buffer + text->capacity, 0, capacity - text->capacity + TR_TEXT_SLACK);
    text->buffer = buffer;
    text->capacity = capacity;
    return TR_OK;
}

/* How far to read behind a range for the end of its last line: not much more than is read anyway. */
static uint64_t read_ahead(const struct tr_text *text)
{
    const uint64_t least = 1 << 10, most = 16 << 10;
    uint64_t ahead = text->part.bytes / 16;
    return ahead < least ? least : ahead > most ? most : ahead;
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
    uint64_t ahead = tr_max_size(read_ahead(text), position > text->end ? position - text->end : 0);
    if (!is_packed(text) && position + wanted > text->end + ahead)
        wanted = tr_min_size(wanted, position < text->end ? text->end - position + ahead : ahead);
    TR_TRY(tr_source_read(&text->source, text->buffer + rest, wanted, &got));
    text->filled += got;
    text->ended = got == 0;
    return TR_OK;
}

/* Lets a plain file be read from there, unless that has been read already. */
static void jump(struct tr_text *text, uint64_t offset)
{
    if (is_packed(text) || offset <= text->offset + waiting(text)) return;
    text->used = text->filled = 0;
    text->offset = text->source.stored = offset;
}

/* Drops bytes until a line begins in the range. The newline before it stands before the range's last byte: if there is
 * none, we stop at that byte, inside. */
static int find_line(struct tr_text *text)
{
    uint64_t from = text->offset < text->begin ? before(text->begin) : text->offset;
    jump(text, from);
    text->inside = true;
    for (;;) {
        const char *start = text->buffer + text->used, *newline = NULL;
        size_t n = tr_min_size(waiting(text), before(text->end) - text->offset);
        size_t skip = from > text->offset ? (size_t)(from - text->offset) : 0;
        if (skip < n) newline = memchr(start + skip, '\n', n - skip);
        text->inside = !newline;
        advance(text, newline ? (size_t)(newline - start) + 1 : n);
        if (newline || text->ended || text->offset + 1 >= text->end) return TR_OK;
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
    advance(text, waiting(text));
    text->inside = true;
    return TR_OK;
}

static int take_lines(struct tr_text *text, struct tr_chunk *chunk)
{
    for (;;) {
        size_t n = whole_lines(text);
        if (n > 0) return hand_out(text, n, chunk);
        if (waiting(text) > text->longest) return too_long(text, chunk);
        if (text->ended && waiting(text) == 0) return hand_out(text, 0, chunk);
        if (text->ended) text->buffer[text->filled++] = '\n'; /* there is always the slack */
        else TR_TRY(fill(text));
    }
}

int tr_text_next(struct tr_text *text, struct tr_chunk *chunk)
{
    for (;;) {
        if (text->ended && waiting(text) == 0) return hand_out(text, 0, chunk);
        if (text->offset + text->inside >= text->end) { /* also when one line covers several ranges */
            if (!next_range(text)) return hand_out(text, 0, chunk);
        } else if (text->offset < text->begin || text->inside) {
            TR_TRY(find_line(text));
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

static int count_lines(struct tr_source *source, uint64_t offset, char *buffer, uint64_t *line)
{
    *line = 1;
    while (offset > 0) {
        size_t got = 0;
        TR_TRY(tr_source_read(source, buffer, tr_min_size(offset, AT_ONCE), &got));
        if (got == 0) break;
        *line += count_newlines(buffer, got);
        offset -= got;
    }
    return TR_OK;
}

int tr_files_line(const struct tr_files *files, size_t file, uint64_t offset, uint64_t *line)
{
    struct tr_source source;
    char *buffer;
    TR_TRY(TR_NEW(&buffer, AT_ONCE));
    int result = tr_source_open(&source, &files->file[file], 0);
    if (result == TR_OK) result = count_lines(&source, offset, buffer, line);
    tr_source_close(&source);
    free(buffer);
    return result;
}

struct tr_text_problem tr_text_too_long(const struct tr_files *files)
{
    struct tr_text_problem problem;
    size_t longest = longest_line(files), mib = (size_t)1 << 20;
    bool whole = longest % mib == 0;
    snprintf(problem.text, sizeof problem.text,
             "record longer than %zu %s: data.max_record=SIZE sets the limit",
             whole ? longest / mib : longest, whole ? "MiB" : "bytes");
    return problem;
}

int tr_text_fail_too_long(const struct tr_files *files, size_t file, uint64_t offset)
{
    uint64_t line;
    TR_TRY(tr_files_line(files, file, offset, &line));
    return tr_fail(TR_ERR_DATA, "%s:%llu: %s", files->file[file].path, (unsigned long long)line,
                   tr_text_too_long(files).text);
}
