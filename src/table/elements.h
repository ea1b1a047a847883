/* Moving and adding elements: the inner loops of pulling and pushing, and how any loop is made for all element types.
 *
 * "packed" is a buffer in which the units of a segment follow each other; "share" is a server's memory, "view" a view's.
 * Loops take a slice [first, first + n) of a segment; `width` is elements of one unit.
 */
#ifndef TR_TABLE_ELEMENTS_H
#define TR_TABLE_ELEMENTS_H

#include <string.h>

#include "table/keyset.h"

/* TR_FOR_TYPE(dtype, { … }): compiles the block for every element type, and runs that of dtype; T is the type in it. */
#define TR_FOR_TYPE(dtype, ...)                                                                              \
    switch (dtype) {                                                                                         \
        TR_CASE_TYPE(TR_F32, float, __VA_ARGS__)                                                             \
        TR_CASE_TYPE(TR_F64, double, __VA_ARGS__)                                                            \
        TR_CASE_TYPE(TR_I32, int32_t, __VA_ARGS__)                                                           \
        TR_CASE_TYPE(TR_I64, int64_t, __VA_ARGS__)                                                           \
    }

/* The same where there can only be TR_F32 and TR_F64; other types do nothing. */
#define TR_FOR_REAL(dtype, ...)                                                                              \
    switch (dtype) {                                                                                         \
        TR_CASE_TYPE(TR_F32, float, __VA_ARGS__)                                                             \
        TR_CASE_TYPE(TR_F64, double, __VA_ARGS__)                                                            \
    default: break;                                                                                          \
    }

#define TR_CASE_TYPE(DTYPE, TYPE, ...)                                                                       \
    case DTYPE: {                                                                                            \
        typedef TYPE T;                                                                                      \
        __VA_ARGS__                                                                                          \
    } break;

/* TR_FOR_SIZE(bytes, { … }): compiles the block for units of any SIZE, and for those of 1, 2, 4 and 8 bytes, which are
 * moved by one instruction. */
#define TR_FOR_SIZE(bytes, ...)                                                                              \
    switch (bytes) {                                                                                         \
        TR_CASE_SIZE(case 1, 1, __VA_ARGS__)                                                                 \
        TR_CASE_SIZE(case 2, 2, __VA_ARGS__)                                                                 \
        TR_CASE_SIZE(case 4, 4, __VA_ARGS__)                                                                 \
        TR_CASE_SIZE(case 8, 8, __VA_ARGS__)                                                                 \
        TR_CASE_SIZE(default, bytes, __VA_ARGS__)                                                            \
    }

#define TR_CASE_SIZE(CASE, BYTES, ...)                                                                       \
    CASE : {                                                                                                 \
        const size_t SIZE = (BYTES);                                                                         \
        __VA_ARGS__                                                                                          \
    } break;

static inline size_t tr_dtype_size(enum tr_dtype dtype)
{
    return dtype == TR_F32 || dtype == TR_I32 ? 4 : 8;
}

/* Whether a unit is all zeros: -0 counts as something, and does no harm. */
static inline bool tr_is_zero(const char *unit, size_t bytes)
{
    uint64_t both;
    uint32_t word;
    if (bytes == sizeof both) return memcpy(&both, unit, sizeof both), both == 0;
    for (size_t i = 0; i < bytes; i += sizeof word) {
        memcpy(&word, unit + i, sizeof word);
        if (word) return false;
    }
    return true;
}

/* view[local] = share[position]: a pull from memory that can be read directly. */
void tr_copy_share_to_view(const struct tr_segment *s, size_t unit_bytes, const void *share, void *view);

/* to[i] = from[at[i]], and to[at[i]] = from[i], for n units. tr_gather() with at NULL: to[i] = from[i]. */
void tr_gather(const uint32_t *at, size_t n, size_t unit_bytes, const void *from, void *to);
void tr_scatter(const uint32_t *at, size_t n, size_t unit_bytes, const void *from, void *to);

/* packed[i] = slots[slot[i]] of hash storage, zeros for TR_NO_SLOT. */
void tr_copy_slots_to_packed(const uint32_t *slot, size_t n, size_t unit_bytes, const void *slots,
                             void *packed);

/* Copies what is not all zeros of n packed units, and the numbers in `unit` with it. What is left of n. to may be
 * from. */
uint32_t tr_leave_zeros_out(uint32_t n, size_t unit_bytes, uint32_t *unit, const void *from, void *to);

/* Sorts n entries by their upper halves; equal ones keep their order. spare has as much room. */
void tr_sort_by_upper_half(uint64_t *entry, uint64_t *spare, size_t n);

/* share[position[i]] += packed[i]: an update arrives. position NULL: the identity. */
void tr_add_packed_to_share(enum tr_dtype dtype, const uint32_t *position, size_t n, size_t width,
                            const void *packed, void *share);

/* share[position] += view[local] for the slice: an update by direct access. */
void tr_add_view_to_share(enum tr_dtype dtype, const struct tr_segment *s, uint32_t first, uint32_t n,
                          size_t width, const void *view, void *share);

/* share[position] += view[local] for the whole segment, by runs where it has them. */
void tr_add_segment_to_share(enum tr_dtype dtype, const struct tr_segment *s, size_t width, const void *view,
                             void *share);

/* to[i] += from[i], and to[i] -= from[i], for n elements. */
void tr_add_elements(enum tr_dtype dtype, size_t n, const void *from, void *to);
void tr_subtract_elements(enum tr_dtype dtype, size_t n, const void *from, void *to);

#endif
