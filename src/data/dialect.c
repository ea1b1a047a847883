/* The settings of a job that describe dialects, and the search for the dialects of its files. */
#define _GNU_SOURCE
#include "data/dialect.h"

#include <ctype.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "data/field.h"
#include "data/input.h"
#include "data/reader.h"
#include "job/schema.h"

/* ---- characters ---- */

static const struct {
    const char *word;
    char c;
} words[] = {{"auto", '\0'},
             {"none", TR_DIALECT_NONE},
             {"tab", '\t'},
             {"\\t", '\t'},
             {"blank", ' '},
             {"space", ' '},
             {"comma", ','},
             {"semicolon", ';'},
             {"pipe", '|'},
             {"point", '.'},
             {"apostrophe", '\''},
             {"single", '\''},
             {"double", '"'},
             {"backslash", '\\'},
             {"::", TR_SEPARATOR_COLONS}};

/* The keys of a character. may_be: the characters that it may be, besides «to be found»; NULL: any but letters, digits and quotes. */
static const struct {
    const char *key;
    size_t in_job, in_dialect;
    const char *may_be, *expected;
} characters[] = {
    {"data.delimiter", offsetof(tr_job, data.delimiter), offsetof(struct tr_dialect, delimiter), NULL,
     "one character as , ; or |, or tab, blank or ::"},
    {"data.quote", offsetof(tr_job, data.quote), offsetof(struct tr_dialect, quote), "\"'\1",
     "double, single or none"},
    {"data.escape", offsetof(tr_job, data.escape), offsetof(struct tr_dialect, escape), "\\^/~\"\1",
     "backslash, double, none, or one of ^ / ~"},
    {"data.comment", offsetof(tr_job, data.comment), offsetof(struct tr_dialect, comment), "#%!;@/*\1",
     "none, or one of # % ! ; @ / *"},
    {"data.decimal", offsetof(tr_job, data.decimal), offsetof(struct tr_dialect, decimal), ".,",
     "point or comma"},
    {"data.thousands", offsetof(tr_job, data.thousands), offsetof(struct tr_dialect, thousands), ",. '\1",
     "comma, point, blank, apostrophe or none"},
};
enum { CHARACTERS = sizeof characters / sizeof *characters };

/* Reads the character that a text names. Returns false if the key does not accept it. */
static bool character_read(size_t key, const char *text, char *c)
{
    const char *may_be = characters[key].may_be;
    bool found = !*text;
    *c = '\0';
    for (size_t i = 0; i < sizeof words / sizeof *words && !found; i++)
        if ((found = strcmp(words[i].word, text) == 0)) *c = words[i].c;
    if (!found && strlen(text) == 1) {
        found = *text != TR_SEPARATOR_COLONS && *text != TR_DIALECT_NONE;
        *c = *text;
    }
    if (*c == '\0' || !found) return found;
    return may_be ? strchr(may_be, *c) != NULL
                  : !isalnum((unsigned char)*c) && *c != '"' && *c != '\'' && *c != TR_DIALECT_NONE && *c > 0;
}

static int fail_character(const char *where, size_t key, const char *text)
{
    return tr_fail(TR_ERR_CONFIG, "%s: %s is «%s»: expected %s", where, characters[key].key,
                   tr_shown(text).text, characters[key].expected);
}

/* ---- columns ---- */

void tr_column_form_free(struct tr_column_form *form)
{
    TR_FREE_ALL(form->name, form->type, form->strip, form->format);
    *form = (struct tr_column_form){.name = NULL};
}

static int fail_column(const tr_job *job, const char *pair, const char *expected)
{
    return tr_fail(TR_ERR_CONFIG, "%s: data.columns: «%s»: expected %s", tr_job_where(job, "data.columns"),
                   tr_shown(pair).text, expected);
}

/* Sets a member of a form from «key: value». */
static int form_set(const tr_job *job, const char *pair, const char *item, struct tr_column_form *form)
{
    const char *value = strchr(item, ':') + 2; /* tr_job_read_list() returns a colon and a blank */
    size_t n = (size_t)(value - 2 - item);
    char **text = n == 4 && strncmp(item, "type", n) == 0     ? &form->type
                  : n == 5 && strncmp(item, "strip", n) == 0  ? &form->strip
                  : n == 6 && strncmp(item, "format", n) == 0 ? &form->format
                                                              : NULL;
    if (text) return *text ? fail_column(job, pair, "each key once") : tr_copy_string(value, text);
    for (size_t key = 0; key < CHARACTERS; key++) {
        const char *name = characters[key].key + strlen("data.");
        char *c = strcmp(name, "decimal") == 0     ? &form->decimal
                  : strcmp(name, "thousands") == 0 ? &form->thousands
                                                   : NULL;
        if (!c || strncmp(name, item, n) != 0 || name[n]) continue;
        return character_read(key, value, c) ? TR_OK
                                             : fail_character(tr_job_where(job, "data.columns"), key, value);
    }
    return fail_column(job, pair, "the keys type, strip, decimal, thousands and format");
}

/* Reads the keys of «{type: number, strip: $}». */
static int form_read_keys(const tr_job *job, const char *pair, const char *keys, struct tr_column_form *form)
{
    struct tr_job_setting items = {.list = true};
    int status = tr_job_read_list(tr_job_where(job, "data.columns"), "data.columns", keys, &items);
    for (size_t i = 0; i < items.value.n && status == TR_OK; i++)
        status = form_set(job, pair, items.value.item[i], form);
    tr_job_list_free(&items.value);
    TR_TRY(status);
    return form->type ? TR_OK : tr_copy_string("number", &form->type);
}

int tr_column_form_read(const tr_job *job, const char *pair, struct tr_column_form *form)
{
    const char *brace =
        pair[strcspn(pair, "{")] && pair[strlen(pair) - 1] == '}' ? strstr(pair, ": {") : NULL;
    const char *colon = brace ? brace : strrchr(pair, ':'), *begin = pair + strspn(pair, " "), *end = colon;
    *form = (struct tr_column_form){.name = NULL};
    while (end > begin && end[-1] == ' ') end--;
    if (!colon || end <= begin) return fail_column(job, pair, "«name: type»");
    TR_TRY(tr_format(&form->name, "%.*s", (int)(end - begin), begin));
    if (brace) TR_TRY(form_read_keys(job, pair, brace + 2, form));
    else TR_TRY(tr_copy_string(colon + 1 + strspn(colon + 1, " "), &form->type));
    form->date = strcmp(form->type, "date") == 0   ? TR_DATE_DAY
                 : strcmp(form->type, "time") == 0 ? TR_DATE_TIME
                                                   : TR_DATE_NONE;
    bool numeric = form->decimal || form->thousands;
    if (form->format && !form->date) return fail_column(job, pair, "type: date or time, which format is for");
    for (const char *const *no = (const char *const[]){"category", "id", "ignore", NULL}; *no; no++)
        if ((numeric || form->strip) && strcmp(*no, form->type) == 0)
            return fail_column(job, pair, "type: number, which strip, decimal and thousands are for");
    return form->date && numeric ? fail_column(job, pair, "type: number, which decimal and thousands are for")
                                 : TR_OK;
}

/* ---- settings ---- */

static int fail_no_effect(const tr_job *job, const char *key, const char *why)
{
    return tr_fail(TR_ERR_CONFIG, "%s: %s has no effect: %s", tr_job_where(job, key), key, why);
}

int tr_dialect_settings(const tr_job *job, struct tr_files *files)
{
    struct tr_dialect *d = &files->given;
    *d = (struct tr_dialect){.skip_lines = TR_DIALECT_COUNT, .header = TR_DIALECT_COUNT};
    if (!job) return TR_OK;
    for (size_t key = 0; key < CHARACTERS; key++) {
        const char *text = *(char *const *)(const void *)((const char *)job + characters[key].in_job);
        if (!character_read(key, text, (char *)d + characters[key].in_dialect))
            return fail_character(tr_job_where(job, characters[key].key), key, text);
    }
    if (d->escape > TR_DIALECT_NONE && d->quote == TR_DIALECT_NONE)
        return fail_no_effect(job, "data.escape", "data.quote is none");
    if (d->thousands && d->thousands == (d->decimal ? d->decimal : '.'))
        return tr_fail(TR_ERR_CONFIG, "%s: data.thousands is the decimal mark: expected another character",
                       tr_job_where(job, "data.thousands"));
    static const enum tr_encoding encodings[] = {TR_ENCODING_UNKNOWN, TR_UTF8, TR_LATIN1, TR_UTF16_LE};
    d->encoding = encodings[job->data.encoding];
    d->newlines = job->data.newlines;
    if (d->newlines && d->quote == TR_DIALECT_NONE)
        return fail_no_effect(job, "data.newlines", "data.quote is none");
    uint64_t header = job->data.header, skip = job->data.skip_lines;
    if (header) d->header = header + 1 == 0 ? 1 : header + 2 == 0 ? 0 : (uint32_t)header;
    if (skip + 1 != 0) d->skip_lines = (uint32_t)skip;
    enum tr_format format = (enum tr_format)job->data.format;
    if (format == TR_FORMAT_AUTO && job->class) format = tr_format_named(job->class->data_formats[0]);
    bool ratings = format == TR_FORMAT_RATINGS; /* whose times stay as they are */
    TR_TRY(TR_NEW(&files->form, job->data.columns.n));
    for (size_t i = 0; i < job->data.columns.n; i++) {
        struct tr_column_form *form = &files->form[files->forms++];
        TR_TRY(tr_column_form_read(job, job->data.columns.item[i], form));
        bool usual = !form->strip && !form->decimal && !form->thousands && (!form->date || ratings);
        if (usual) tr_column_form_free(&files->form[--files->forms]);
    }
    d->forms = files->forms > 0;
    return TR_OK;
}

/* ---- samples ---- */

enum { PIECES = 16, PIECE = 64 << 10 };

/* Reads a sample of a file: pieces from all its parts, or of a compressed file its beginning. */
static int sample_read(const struct tr_file *file, size_t most, char *text, struct tr_sample_text *piece,
                       size_t *pieces)
{
    uint64_t whole = most * PIECE;
    bool one = file->packing || file->size <= whole;
    *pieces = one ? 1 : most;
    for (size_t i = 0; i < *pieces; i++) {
        TR_CLOSED_BY(tr_source_close) struct tr_source source;
        size_t n = one ? (size_t)whole : PIECE, got = 1;
        uint64_t offset =
            i > 0 ? (file->size - PIECE) / (most - 1) * i / 4 * 4 : 0; /* 4: whole characters of UTF-16 */
        piece[i] = (struct tr_sample_text){.text = text + i * PIECE, .from_begin = i == 0};
        TR_TRY(tr_source_open(&source, file, offset));
        while (piece[i].n < n && got > 0) {
            TR_TRY(tr_source_read(&source, text + i * PIECE + piece[i].n, n - piece[i].n, &got));
            piece[i].n += got;
        }
    }
    return TR_OK;
}

void tr_file_set_dialect(struct tr_files *files, size_t file, const struct tr_dialect *d)
{
    struct tr_file *f = &files->file[file];
    f->form = files->form;
    f->forms = d->delimiter ? files->forms : 0;
    f->dialect = *d;
    f->rewritten = !f->hdf5 && !tr_dialect_is_usual(d, f->forms);
}

int tr_dialects_find(struct tr_files *files, enum tr_format format, char said[TR_DIALECT_SAID])
{
    TR_FREED char *text = NULL;
    TR_FREED struct tr_dialect *found = NULL;
    size_t most = tr_max_size(PIECES / files->n, 1), pieces;
    struct tr_sample_text piece[PIECES];
    struct tr_dialect given = files->given;
    bool rare = given.escape > TR_DIALECT_NONE && given.escape != '\\'; /* no candidate of the sniffer */
    if (rare) given.escape = TR_DIALECT_NONE;
    *said = '\0';
    TR_TRY(TR_NEW(&text, most * PIECE));
    TR_TRY(TR_NEW(&found, files->n));
    for (size_t i = 0; i < files->n; i++) {
        struct tr_file *f = &files->file[i];
        char line[200];
        if (f->hdf5 || f->size == 0) continue;
        TR_TRY(sample_read(f, most, text, piece, &pieces));
        int status = tr_dialect_sniff(piece, pieces, &given, &found[i], line);
        if (status != TR_OK) return tr_fail(status, "%s: %s", f->path, line);
        if (rare) found[i].escape = files->given.escape;
        found[i].newlines |= files->given.newlines;
        found[i].apostrophes = files->given.quote == '\'';
        const struct tr_notation *like = &files->notation;
        bool plain = found[i].decimal != ',' && !found[i].thousands && !files->given.decimal;
        if (like->decimal && plain && found[i].delimiter == like->delimiter) { /* too few rows may show it */
            found[i].decimal = like->decimal;
            if (!files->given.thousands) found[i].thousands = like->thousands;
        }
        bool big = piece->n >= 2 && memcmp(piece->text, "\xfe\xff", 2) == 0;
        if (files->given.encoding == TR_UTF16_LE && big) found[i].encoding = TR_UTF16_BE;
        if (*line && !*said) snprintf(said, TR_DIALECT_SAID, "%s: %s", tr_shown(f->path).text, line);
        tr_file_set_dialect(files, i,
                            &(struct tr_dialect){.encoding = found[i].encoding,
                                                 .cr = found[i].cr,
                                                 .header = TR_DIALECT_COUNT});
    }
    if (format == TR_FORMAT_AUTO) TR_TRY(tr_format_detect(files, &format));
    bool fields = format == TR_FORMAT_AUTO || format == TR_FORMAT_CSV || format == TR_FORMAT_RATINGS;
    if (!fields && *said) *said = '\0';
    for (size_t i = 0; i < files->n && fields; i++) {
        const struct tr_dialect *d = &found[i];
        /* the parser of ratings in the usual form finds separators and names by itself */
        bool ratings =
            format == TR_FORMAT_RATINGS && tr_dialect_is_usual(d, files->forms) && !files->given.delimiter;
        if (d->encoding && !ratings) tr_file_set_dialect(files, i, d);
    }
    return TR_OK;
}
