#include "table/elements.h"

#include <string.h>

#include "table/hashmap.h"

/* ---- copies: only the size of a unit matters; 4 and 8 bytes are the common ones ---- */

#define COPY(TYPE)                                                                                           \
    static void share_to_view_##TYPE(const struct tr_segment *s, const TYPE *restrict share,                 \
                                     TYPE *restrict view)                                                    \
    {                                                                                                        \
        const uint32_t *local = s->local, *position = s->position;                                           \
        for (uint32_t i = 0; i < s->n; i++) view[local[i]] = share[position[i]];                             \
    }                                                                                                        \
    static void share_to_packed_##TYPE(const uint32_t *position, size_t n, const TYPE *restrict share,       \
                                       TYPE *restrict packed)                                                \
    {                                                                                                        \
        for (size_t i = 0; i < n; i++) packed[i] = share[position[i]];                                       \
    }                                                                                                        \
    static void slots_to_packed_##TYPE(const uint32_t *slot, size_t n, const TYPE *restrict slots,           \
                                       TYPE *restrict packed)                                                \
    {                                                                                                        \
        for (size_t i = 0; i < n; i++) packed[i] = slot[i] == TR_NO_SLOT ? 0 : slots[slot[i]];               \
    }                                                                                                        \
    static uint32_t leave_out_##TYPE(uint32_t n, uint32_t *unit, const TYPE *from, TYPE *to)                 \
    {                                                                                                        \
        uint32_t left = 0;                                                                                   \
        for (uint32_t i = 0; i < n; i++) {                                                                   \
            TYPE value = from[i];                                                                            \
            unit[left] = unit[i];                                                                            \
            to[left] = value;                                                                                \
            left += value != 0;                                                                              \
        }                                                                                                    \
        return left;                                                                                         \
    }                                                                                                        \
    static void packed_to_view_##TYPE(const uint32_t *local, uint32_t n, const TYPE *restrict packed,        \
                                      TYPE *restrict view)                                                   \
    {                                                                                                        \
        for (uint32_t i = 0; i < n; i++) view[local[i]] = packed[i];                                         \
    }                                                                                                        \
    static void view_to_packed_##TYPE(const uint32_t *local, uint32_t n, const TYPE *restrict view,          \
                                      TYPE *restrict packed)                                                 \
    {                                                                                                        \
        for (uint32_t i = 0; i < n; i++) packed[i] = view[local[i]];                                         \
    }

COPY(uint32_t)
COPY(uint64_t)

static char *at(void *base, size_t unit, size_t bytes)
{
    return (char *)base + unit * bytes;
}

static const char *from(const void *base, size_t unit, size_t bytes)
{
    return (const char *)base + unit * bytes;
}

void tr_copy_share_to_view(const struct tr_segment *s, size_t bytes, const void *share, void *view)
{
    if (s->runs)
        for (uint32_t r = 0; r < s->runs; r++)
            memcpy(at(view, s->run[r].local, bytes), from(share, s->run[r].position, bytes),
                   s->run[r].length * bytes);
    else if (bytes == 4) share_to_view_uint32_t(s, share, view);
    else if (bytes == 8) share_to_view_uint64_t(s, share, view);
    else
        for (uint32_t i = 0; i < s->n; i++)
            memcpy(at(view, s->local[i], bytes), from(share, s->position[i], bytes), bytes);
}

void tr_copy_share_to_packed(const uint32_t *position, size_t n, size_t bytes, const void *share,
                             void *packed)
{
    if (!position) memcpy(packed, share, n * bytes);
    else if (bytes == 4) share_to_packed_uint32_t(position, n, share, packed);
    else if (bytes == 8) share_to_packed_uint64_t(position, n, share, packed);
    else
        for (size_t i = 0; i < n; i++) memcpy(at(packed, i, bytes), from(share, position[i], bytes), bytes);
}

void tr_copy_slots_to_packed(const uint32_t *slot, size_t n, size_t bytes, const void *slots, void *packed)
{
    if (bytes == 4) slots_to_packed_uint32_t(slot, n, slots, packed);
    else if (bytes == 8) slots_to_packed_uint64_t(slot, n, slots, packed);
    else
        for (size_t i = 0; i < n; i++) {
            if (slot[i] == TR_NO_SLOT) memset(at(packed, i, bytes), 0, bytes);
            else memcpy(at(packed, i, bytes), from(slots, slot[i], bytes), bytes);
        }
}

uint32_t tr_leave_zeros_out(uint32_t n, size_t bytes, uint32_t *unit, const void *values, void *to)
{
    if (bytes == 4) return leave_out_uint32_t(n, unit, values, to);
    if (bytes == 8) return leave_out_uint64_t(n, unit, values, to);
    uint32_t left = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (tr_is_zero(from(values, i, bytes), bytes)) continue;
        unit[left] = unit[i];
        memmove(at(to, left++, bytes), from(values, i, bytes), bytes);
    }
    return left;
}

/* By 11 bits at a time, the lowest first, which leaves out bits that are alike in all. */
void tr_sort_by_upper_half(uint64_t *entry, uint64_t *spare, size_t n)
{
    enum { BITS = 11, DIGITS = 1 << BITS };
    size_t first[DIGITS];
    uint64_t *to = spare, *now = entry;
    for (unsigned shift = 32; shift < 64; shift += BITS) {
        memset(first, 0, sizeof first);
        for (size_t i = 0; i < n; i++) first[now[i] >> shift & (DIGITS - 1)]++;
        if (n == 0 || first[now[0] >> shift & (DIGITS - 1)] == n) continue;
        size_t sum = 0, count;
        for (size_t d = 0; d < DIGITS; d++) count = first[d], first[d] = sum, sum += count;
        for (size_t i = 0; i < n; i++) to[first[now[i] >> shift & (DIGITS - 1)]++] = now[i];
        uint64_t *last = now;
        now = to;
        to = last;
    }
    if (now != entry) memcpy(entry, now, n * sizeof *entry);
}

void tr_copy_packed_to_view(const struct tr_segment *s, uint32_t first, uint32_t n, size_t bytes,
                            const void *packed, void *view)
{
    const uint32_t *local = s->local + first;
    if (bytes == 4) packed_to_view_uint32_t(local, n, packed, view);
    else if (bytes == 8) packed_to_view_uint64_t(local, n, packed, view);
    else
        for (uint32_t i = 0; i < n; i++) memcpy(at(view, local[i], bytes), from(packed, i, bytes), bytes);
}

void tr_copy_view_to_packed(const struct tr_segment *s, uint32_t first, uint32_t n, size_t bytes,
                            const void *view, void *packed)
{
    const uint32_t *local = s->local + first;
    if (bytes == 4) view_to_packed_uint32_t(local, n, view, packed);
    else if (bytes == 8) view_to_packed_uint64_t(local, n, view, packed);
    else
        for (uint32_t i = 0; i < n; i++) memcpy(at(packed, i, bytes), from(view, local[i], bytes), bytes);
}

/* ---- sums: the type matters ---- */

#define ADD(NAME, TYPE)                                                                                      \
    static void add_##NAME(size_t n, const TYPE *restrict a, TYPE *restrict b)                               \
    {                                                                                                        \
        for (size_t i = 0; i < n; i++) b[i] += a[i];                                                         \
    }                                                                                                        \
    static void packed_to_share_##NAME(const uint32_t *position, size_t n, size_t width,                     \
                                       const TYPE *restrict packed, TYPE *restrict share)                    \
    {                                                                                                        \
        if (!position) add_##NAME(n *width, packed, share);                                                  \
        else if (width == 1)                                                                                 \
            for (size_t i = 0; i < n; i++) share[position[i]] += packed[i];                                  \
        else                                                                                                 \
            for (size_t i = 0; i < n; i++)                                                                   \
                add_##NAME(width, packed + i * width, share + position[i] * width);                          \
    }                                                                                                        \
    static void view_to_share_##NAME(const uint32_t *local, const uint32_t *position, uint32_t n,            \
                                     size_t width, const TYPE *restrict view, TYPE *restrict share)          \
    {                                                                                                        \
        if (width == 1)                                                                                      \
            for (uint32_t i = 0; i < n; i++) share[position[i]] += view[local[i]];                           \
        else                                                                                                 \
            for (uint32_t i = 0; i < n; i++)                                                                 \
                add_##NAME(width, view + local[i] * width, share + position[i] * width);                     \
    }

ADD(f32, float)
ADD(f64, double)
ADD(i32, int32_t)
ADD(i64, int64_t)

void tr_add_packed_to_share(enum tr_dtype dtype, const uint32_t *position, size_t n, size_t width,
                            const void *packed, void *share)
{
    switch (dtype) {
    case TR_F32: packed_to_share_f32(position, n, width, packed, share); break;
    case TR_F64: packed_to_share_f64(position, n, width, packed, share); break;
    case TR_I32: packed_to_share_i32(position, n, width, packed, share); break;
    case TR_I64: packed_to_share_i64(position, n, width, packed, share); break;
    }
}

void tr_add_view_to_share(enum tr_dtype dtype, const struct tr_segment *s, uint32_t first, uint32_t n,
                          size_t width, const void *view, void *share)
{
    const uint32_t *local = s->local + first, *position = s->position + first;
    switch (dtype) {
    case TR_F32: view_to_share_f32(local, position, n, width, view, share); break;
    case TR_F64: view_to_share_f64(local, position, n, width, view, share); break;
    case TR_I32: view_to_share_i32(local, position, n, width, view, share); break;
    case TR_I64: view_to_share_i64(local, position, n, width, view, share); break;
    }
}

void tr_add_elements(enum tr_dtype dtype, size_t n, const void *a, void *b)
{
    switch (dtype) {
    case TR_F32: add_f32(n, a, b); break;
    case TR_F64: add_f64(n, a, b); break;
    case TR_I32: add_i32(n, a, b); break;
    case TR_I64: add_i64(n, a, b); break;
    }
}

void tr_add_segment_to_share(enum tr_dtype dtype, const struct tr_segment *s, size_t width, const void *view,
                             void *share)
{
    size_t bytes = width * tr_dtype_size(dtype);
    if (!s->runs) tr_add_view_to_share(dtype, s, 0, s->n, width, view, share);
    for (uint32_t r = 0; r < s->runs; r++)
        tr_add_elements(dtype, s->run[r].length * width, from(view, s->run[r].local, bytes),
                        at(share, s->run[r].position, bytes));
}
