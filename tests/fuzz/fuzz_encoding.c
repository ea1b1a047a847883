/* Feeds the decoder of messages any bytes. The first eight say what both ends know: element type, 12 bits of units,
 * 3 of width; the others are the message.
 *
 * Besides crashes it looks for errors without a text, for lists of units that do not ascend or do not say what the
 * packed values say, and for values that are others after they have been encoded again.
 */

#include "table/codec.h"
#include "fuzz.h"

enum { HEAD = 8 };

/* Exactly as much as is said, so that sanitizers see more being used. */
static void *get_memory(size_t bytes)
{
    void *memory = malloc(bytes ? bytes : 1);
    if (!memory) abort();
    return memory;
}

struct room {
    uint32_t *unit;
    char *packed, *listed;
};

static struct room room_for(const struct tr_slice *s, uint32_t count)
{
    size_t bytes = s->width * tr_dtype_size(s->dtype);
    return (struct room){get_memory(count * sizeof(uint32_t)), get_memory(s->n * bytes),
                         get_memory(count * bytes)};
}

static void free_room(struct room *r)
{
    TR_FREE_ALL(r->unit, r->packed, r->listed);
}

/* Equal except for the signs of zeros. */
static bool same(const struct tr_slice *s, size_t n, const char *a, const char *b)
{
    size_t size = tr_dtype_size(s->dtype);
    for (size_t i = 0; i < n * s->width; i++) {
        uint64_t x = 0, y = 0, sign = s->dtype < TR_I32 ? UINT64_C(1) << (8 * size - 1) : 0;
        memcpy(&x, a + i * size, size);
        memcpy(&y, b + i * size, size);
        if (x != y && ((x | y) & ~sign)) return false;
    }
    return true;
}

/* Listed units ascend and have their packed values; the others are zero. */
static void check_list(const struct tr_slice *s, const struct room *r, uint32_t n)
{
    size_t bytes = s->width * tr_dtype_size(s->dtype);
    char *zeros = calloc(1, bytes);
    for (uint32_t i = 0, k = 0; i < s->n || k < n; i++) {
        expect(k >= n || (r->unit[k] >= i && r->unit[k] < s->n), "the list does not ascend");
        if (k < n && r->unit[k] == i)
            expect(memcmp(r->listed + bytes * k++, r->packed + i * bytes, bytes) == 0, "another value");
        else expect(same(s, 1, r->packed + i * bytes, zeros), "a unit is not listed");
    }
    free(zeros);
}

static void check_again(const struct tr_slice *s, const char *packed)
{
    size_t bytes = s->n * s->width * tr_dtype_size(s->dtype);
    for (int encoding = TR_ENCODING_AUTO; encoding <= TR_ENCODING_BITMAP; encoding++) {
        struct tr_wire wire = {encoding, TR_PRECISION_FULL};
        struct tr_encoded e;
        char *message = get_memory(tr_encode_room(s, wire)), *back = get_memory(bytes);
        size_t size = tr_encode(s, wire, packed, NULL, message);
        expect(tr_encoded_open(message, size, s, &e) == TR_OK, "own message not opened");
        expect(tr_decode_packed(&e, back) == TR_OK, "own message not decoded");
        expect(same(s, s->n, packed, back), "encoded again it is another");
        TR_FREE_ALL(message, back);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < HEAD) return 0;
    struct tr_slice s = {.dtype = (enum tr_dtype)(data[0] % 4),
                         .n = data[1] + 256u * (data[2] % 16),
                         .width = 1u + data[3] % 8};
    void *message = get_memory(size - HEAD);
    memcpy(message, data + HEAD, size - HEAD);
    struct tr_encoded e;
    int status = tr_encoded_open(message, size - HEAD, &s, &e);
    if (status == TR_OK) {
        expect(e.count <= s.n, "too many units");
        struct room r = room_for(&s, e.count);
        uint32_t n = UINT32_MAX;
        status = tr_decode_packed(&e, r.packed);
        expect(tr_decode_units(&e, r.unit, r.listed, &n) == status, "only one of two decoders fails");
        if (status == TR_OK) {
            expect(n <= e.count, "more units than said");
            check_list(&s, &r, n);
            check_again(&s, r.packed);
        }
        free_room(&r);
    }
    expect(status == TR_OK || (status == TR_ERR_PEER && strncmp(tr_error_text(), "a message of ", 13) == 0),
           "odd error");
    free(message);
    return 0;
}
