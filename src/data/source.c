#define _GNU_SOURCE
#include "data/source.h"

#include <archive.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"

#define PACKED_BYTES ((size_t)64 << 10)

const char *tr_packing_word(enum tr_packing packing)
{
    static const char *const words[] = {
        [TR_GZIP] = "gzip", [TR_BZIP2] = "bzip2", [TR_XZ] = "xz", [TR_ZSTD] = "zstd", [TR_LZ4] = "lz4"};
    return words[packing];
}

/* Up to n bytes as they are stored; 0 at the end of the file. */
static int read_stored(struct tr_source *source, void *to, size_t n, size_t *got)
{
    ssize_t bytes;
    do bytes = pread(source->fd, to, n, (off_t)source->stored);
    while (bytes < 0 && errno == EINTR);
    if (bytes < 0) return tr_fail(TR_ERR_IO, "%s: %s", source->file->path, strerror(errno));
    if (bytes == 0 && source->stored < source->file->size)
        return tr_fail(TR_ERR_IO, "%s: has become shorter while it was read", source->file->path);
    source->stored += (uint64_t)bytes;
    *got = (size_t)bytes;
    return TR_OK;
}

/* ---- gzip ---- */

static int corrupt(const struct tr_source *source)
{
    return tr_fail(TR_ERR_DATA, "%s: corrupt gzip data near byte %llu (%s)", source->file->path,
                   (unsigned long long)(source->stored - source->gzip.avail_in),
                   source->gzip.msg ? source->gzip.msg : "unknown cause");
}

static int truncated(const struct tr_source *source)
{
    return tr_fail(TR_ERR_DATA, "%s: truncated %s file: ends at byte %llu in the middle of its data",
                   source->file->path, tr_packing_word(source->file->packing),
                   (unsigned long long)source->stored);
}

/* Gzip files may be several laid end to end, and padded with zeros; anything else behind is corruption. */
static void next_member(struct tr_source *source)
{
    z_stream *gzip = &source->gzip;
    while (gzip->avail_in > 0 && *gzip->next_in == 0 && gzip->total_in > 0) gzip->next_in++, gzip->avail_in--;
    if (gzip->avail_in == 0) return;
    if (gzip->total_in > 0) inflateReset(gzip);
    source->in_member = true;
}

static int more_packed(struct tr_source *source)
{
    size_t got = 0;
    TR_TRY(read_stored(source, source->packed, PACKED_BYTES, &got));
    source->gzip.next_in = source->packed;
    source->gzip.avail_in = (uInt)got;
    return got == 0 && source->in_member ? truncated(source) : TR_OK;
}

static int read_gzip(struct tr_source *source, char *to, size_t n, size_t *got)
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

/* ---- the others ---- */

static la_ssize_t give_packed(struct archive *archive, void *state, const void **bytes)
{
    struct tr_source *source = state;
    size_t got = 0;
    source->status = read_stored(source, source->packed, PACKED_BYTES, &got);
    *bytes = source->packed;
    if (source->status == TR_OK) return (la_ssize_t)got;
    archive_set_error(archive, EIO, "cannot be read");
    return -1;
}

static int archive_failed(const struct tr_source *source)
{
    const char *why = archive_error_string(source->archive);
    if (source->status != TR_OK) return source->status;
    if (archive_errno(source->archive) == ENOMEM)
        return tr_fail(TR_ERR_SYSTEM, "out of memory for unpacking %s", source->file->path);
    bool cut =
        why && (strcasestr(why, "truncated") || strcasestr(why, "no progress")); /* xz says the latter */
    if (source->stored == source->file->size && cut) return truncated(source);
    return tr_fail(TR_ERR_DATA, "%s: corrupt %s data near byte %llu (%s)", source->file->path,
                   tr_packing_word(source->file->packing), (unsigned long long)source->stored,
                   why ? why : "unknown cause");
}

static int open_archive(struct tr_source *source)
{
    struct archive_entry *entry;
    source->archive = archive_read_new();
    if (!source->archive) return tr_fail(TR_ERR_SYSTEM, "out of memory for unpacking %s", source->file->path);
    switch (source->file->packing) {
    case TR_BZIP2: archive_read_support_filter_bzip2(source->archive); break;
    case TR_XZ: archive_read_support_filter_xz(source->archive); break;
    case TR_ZSTD: archive_read_support_filter_zstd(source->archive); break;
    default: archive_read_support_filter_lz4(source->archive); break;
    }
    archive_read_support_format_raw(source->archive);
    archive_read_support_format_empty(source->archive);
    int code = archive_read_open(source->archive, source, NULL, give_packed, NULL);
    if (code == ARCHIVE_OK) code = archive_read_next_header(source->archive, &entry);
    source->ended = code == ARCHIVE_EOF;
    if (code != ARCHIVE_OK && !source->ended) return archive_failed(source);
    /* what is too short to be known is no packed file to it */
    return archive_filter_code(source->archive, 0) == ARCHIVE_FILTER_NONE ? truncated(source) : TR_OK;
}

static int read_archive(struct tr_source *source, char *to, size_t n, size_t *got)
{
    la_ssize_t bytes = 0;
    do bytes = source->ended ? 0 : archive_read_data(source->archive, to, n);
    while (bytes == ARCHIVE_RETRY);
    if (bytes < 0) return archive_failed(source);
    source->ended = bytes == 0;
    *got = (size_t)bytes;
    return TR_OK;
}

/* ---- all of them ---- */

int tr_source_open(struct tr_source *source, const struct tr_file *file, uint64_t offset)
{
    *source = (struct tr_source){.file = file};
    source->fd = open(file->path, O_RDONLY | O_CLOEXEC);
    if (source->fd < 0) return tr_fail(TR_ERR_NO_INPUT, "%s: %s", file->path, strerror(errno));
    source->stored = offset;
    if (!file->packing) return TR_OK;
    TR_TRY(TR_NEW(&source->packed, PACKED_BYTES));
    if (file->packing != TR_GZIP) return open_archive(source);
    if (inflateInit2(&source->gzip, 15 + 16) != Z_OK) /* the largest window, gzip headers only */
        return tr_fail(TR_ERR_SYSTEM, "out of memory for unpacking %s", file->path);
    return TR_OK;
}

void tr_source_close(struct tr_source *source)
{
    if (source->archive) archive_read_free(source->archive);
    else if (source->packed) inflateEnd(&source->gzip);
    free(source->packed);
    if (source->fd >= 0) close(source->fd);
}

int tr_source_read(struct tr_source *source, char *to, size_t n, size_t *got)
{
    if (!source->file->packing) return read_stored(source, to, n, got);
    return source->archive ? read_archive(source, to, n, got) : read_gzip(source, to, n, got);
}
