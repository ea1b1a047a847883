#include "table/squeeze.h"

#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "base/base.h"

enum { FLAG = 3, SIZE = sizeof(uint32_t), BEGIN = TR_ENCODING_HEADER + SIZE };

struct tr_squeezer {
    z_stream deflate, inflate;
    bool deflates, inflates;
    char *memory;
    size_t room;
};

static int open_squeezer(struct tr_squeezer **s)
{
    enum { RAW = -9, BLOCK = 8 }; /* no window to speak of; 16 K bytes have a code of their own */
    if (*s) return TR_OK;
    TR_TRY(TR_NEW(s, 1));
    (*s)->deflates = deflateInit2(&(*s)->deflate, 1, Z_DEFLATED, RAW, BLOCK, Z_HUFFMAN_ONLY) == Z_OK;
    (*s)->inflates = inflateInit2(&(*s)->inflate, RAW) == Z_OK;
    if ((*s)->deflates && (*s)->inflates) return TR_OK;
    tr_squeezer_free(s);
    return tr_fail(TR_ERR_SYSTEM, "out of memory: zlib's");
}

void tr_squeezer_free(struct tr_squeezer **s)
{
    if (!*s) return;
    if ((*s)->deflates) deflateEnd(&(*s)->deflate);
    if ((*s)->inflates) inflateEnd(&(*s)->inflate);
    free((*s)->memory);
    free(*s);
    *s = NULL;
}

int tr_squeeze(struct tr_squeezer **squeezer, void *message, size_t *bytes)
{
    unsigned char *at = message;
    if (*bytes <= BEGIN) return TR_OK;
    TR_TRY(open_squeezer(squeezer));
    struct tr_squeezer *s = *squeezer;
    uint32_t size = (uint32_t)(*bytes - TR_ENCODING_HEADER);
    TR_TRY(TR_GROW(&s->memory, &s->room, size));
    deflateReset(&s->deflate);
    s->deflate.next_in = at + TR_ENCODING_HEADER;
    s->deflate.avail_in = size;
    s->deflate.next_out = (unsigned char *)s->memory;
    s->deflate.avail_out = size - SIZE;
    if (deflate(&s->deflate, Z_FINISH) != Z_STREAM_END || s->deflate.avail_out == 0) return TR_OK;
    at[FLAG] = 1;
    memcpy(at + TR_ENCODING_HEADER, &size, SIZE);
    memcpy(at + BEGIN, s->memory, s->deflate.total_out);
    *bytes = BEGIN + s->deflate.total_out;
    return TR_OK;
}

static int malformed(const struct tr_slice *s, const char *what)
{
    return tr_fail(TR_ERR_PEER, "a message of %u units of %zu elements is damaged: %s", s->n, s->width, what);
}

int tr_unsqueeze(struct tr_squeezer **squeezer, const struct tr_slice *slice, const void **message,
                 size_t *bytes)
{
    const unsigned char *at = *message;
    uint32_t size;
    if (*bytes < BEGIN || at[FLAG] != 1) return TR_OK;
    memcpy(&size, at + TR_ENCODING_HEADER, SIZE);
    struct tr_wire longest = {TR_ENCODING_SPARSE, TR_PRECISION_FULL};
    if (size > tr_encode_room(slice, longest)) return malformed(slice, "it says that it is longer than any");
    TR_TRY(open_squeezer(squeezer));
    struct tr_squeezer *s = *squeezer;
    TR_TRY(TR_GROW(&s->memory, &s->room, TR_ENCODING_HEADER + (size_t)size));
    memcpy(s->memory, at, TR_ENCODING_HEADER);
    s->memory[FLAG] = 0;
    inflateReset(&s->inflate);
    s->inflate.next_in = (unsigned char *)(uintptr_t)(at + BEGIN);
    s->inflate.avail_in = (unsigned)(*bytes - BEGIN);
    s->inflate.next_out = (unsigned char *)s->memory + TR_ENCODING_HEADER;
    s->inflate.avail_out = size;
    if (inflate(&s->inflate, Z_FINISH) != Z_STREAM_END || s->inflate.avail_out > 0 || s->inflate.avail_in > 0)
        return malformed(slice, "it cannot be inflated");
    *message = s->memory;
    *bytes = TR_ENCODING_HEADER + (size_t)size;
    return TR_OK;
}
