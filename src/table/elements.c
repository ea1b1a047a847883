#include "table/elements.h"

#include "table/hashmap.h"

/* ---- copies: only the size of a unit matters ---- */

void tr_copy_share_to_view(const struct tr_segment *s, size_t bytes, const void *share, void *view)
{
    const uint32_t *local = s->local, *position = s->position;
    const char *from = share;
    char *to = view;
    for (uint32_t r = 0; r < s->runs; r++)
        memcpy(to + s->run[r].local * bytes, from + s->run[r].position * bytes, s->run[r].length * bytes);
    if (s->runs) return;
    TR_FOR_SIZE(bytes, {
        for (size_t i = 0, n = s->n; i < n; i++)
            memcpy(to + local[i] * SIZE, from + position[i] * SIZE, SIZE);
    })
}

void tr_gather(const uint32_t *at, size_t n, size_t bytes, const void *from, void *to)
{
    if (n == 0) return; /* nor need there be memory */
    if (!at) memcpy(to, from, n * bytes);
    else
        TR_FOR_SIZE(bytes, {
            for (size_t i = 0; i < n; i++)
                memcpy((char *)to + i * SIZE, (const char *)from + at[i] * SIZE, SIZE);
        })
}

void tr_scatter(const uint32_t *at, size_t n, size_t bytes, const void *from, void *to)
{
    TR_FOR_SIZE(bytes, {
        for (size_t i = 0; i < n; i++) memcpy((char *)to + at[i] * SIZE, (const char *)from + i * SIZE, SIZE);
    })
}

void tr_copy_slots_to_packed(const uint32_t *slot, size_t n, size_t bytes, const void *slots, void *packed)
{
    const char *from = slots;
    char *to = packed;
    TR_FOR_SIZE(bytes, {
        for (size_t i = 0; i < n; i++) {
            if (slot[i] == TR_NO_SLOT) memset(to + i * SIZE, 0, SIZE);
            else memcpy(to + i * SIZE, from + slot[i] * SIZE, SIZE);
        }
    })
}

uint32_t tr_leave_zeros_out(uint32_t n, size_t bytes, uint32_t *unit, const void *values, void *to)
{
    uint32_t left = 0;
    const char *from = values;
    TR_FOR_SIZE(bytes, {
        for (uint32_t i = 0; i < n; i++) { /* written in any case: a branch would be mispredicted */
            bool any = !tr_is_zero(from + i * SIZE, SIZE);
            unit[left] = unit[i];
            memmove((char *)to + left * SIZE, from + i * SIZE, SIZE);
            left += any;
        }
    })
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

/* ---- sums: the type matters ---- */

void tr_add_elements(enum tr_dtype dtype, size_t n, const void *a, void *b)
{
    TR_FOR_TYPE(dtype, {
        const T *restrict from = a;
        T *restrict to = b;
        for (size_t i = 0; i < n; i++) to[i] += from[i];
    })
}

void tr_subtract_elements(enum tr_dtype dtype, size_t n, const void *a, void *b)
{
    TR_FOR_TYPE(dtype, {
        const T *restrict from = a;
        T *restrict to = b;
        for (size_t i = 0; i < n; i++) to[i] -= from[i];
    })
}

void tr_add_packed_to_share(enum tr_dtype dtype, const uint32_t *position, size_t n, size_t width,
                            const void *packed, void *share)
{
    if (!position) tr_add_elements(dtype, n * width, packed, share);
    else
        TR_FOR_TYPE(dtype, {
            const T *from = packed;
            T *to = share;
            if (width == 1)
                for (size_t i = 0; i < n; i++) to[position[i]] += from[i];
            else
                for (size_t i = 0; i < n; i++)
                    tr_add_elements(dtype, width, from + i * width, to + position[i] * width);
        })
}

void tr_add_view_to_share(enum tr_dtype dtype, const struct tr_segment *s, uint32_t first, uint32_t n,
                          size_t width, const void *view, void *share)
{
    const uint32_t *local = s->local + first, *position = s->position + first;
    TR_FOR_TYPE(dtype, {
        const T *from = view;
        T *to = share;
        if (width == 1)
            for (uint32_t i = 0; i < n; i++) to[position[i]] += from[local[i]];
        else
            for (uint32_t i = 0; i < n; i++)
                for (size_t k = 0; k < width; k++) to[position[i] * width + k] += from[local[i] * width + k];
    })
}

void tr_add_segment_to_share(enum tr_dtype dtype, const struct tr_segment *s, size_t width, const void *view,
                             void *share)
{
    size_t bytes = width * tr_dtype_size(dtype);
    if (!s->runs) tr_add_view_to_share(dtype, s, 0, s->n, width, view, share);
    for (uint32_t r = 0; r < s->runs; r++)
        tr_add_elements(dtype, s->run[r].length * width, (const char *)view + s->run[r].local * bytes,
                        (char *)share + s->run[r].position * bytes);
}
