#include "unit.h"

#include "table/codec.h"
#include "../elements.h"

enum { N = 1000, CLOCKS = 20 };

static const enum tr_dtype dtypes[] = {TR_F32, TR_F64, TR_I32, TR_I64};

/* Arrays of N units, large enough for any type and width here. */
struct trial {
    struct tr_slice slice;
    double value[N * 3], delta[N * 3], kept[N * 3];
    struct tr_filter_counts counts;
};

static struct trial *begin(enum tr_dtype dtype, size_t width)
{
    struct trial *t;
    ck_ok(TR_NEW(&t, 1));
    t->slice = (struct tr_slice){dtype, N, width};
    return t;
}

static void apply(struct trial *t, const struct tr_filter *f, int64_t clock)
{
    tr_filter_apply(f, &t->slice, 0, clock, tr_filter_reads_value(f) ? t->value : NULL, t->delta, t->kept,
                    &t->counts);
}

/* ---- what each holds ---- */

/* Filters one f64 unit with these values: whether it was sent whole. */
static bool sends(const struct tr_filter *f, size_t width, const double *w, const double *u)
{
    struct tr_slice slice = {TR_F64, 1, width};
    struct tr_filter_counts counts = {0};
    double delta[3], kept[3] = {0};
    memcpy(delta, u, width * sizeof *u);
    tr_filter_apply(f, &slice, 0, 0, tr_filter_reads_value(f) ? w : NULL, delta, kept, &counts);
    bool sent = memcmp(delta, u, width * sizeof *u) == 0;
    static const double zeros[3];
    bool dropped = f->kind == TR_FILTER_KKT;
    ck_assert_uint_eq(counts.seen, 1);
    ck_assert_uint_eq(counts.held, !sent && !dropped);
    ck_assert_uint_eq(counts.dropped, !sent && dropped);
    ck_assert(sent || memcmp(delta, zeros, width * sizeof *u) == 0);
    ck_assert(memcmp(kept, sent || dropped ? zeros : u, width * sizeof *u) == 0);
    return sent;
}

#define SENDS(f, w, u)    sends(&(f), 1, (const double[]){w}, (const double[]){u})
#define SENDS3(f, w, ...) sends(&(f), 3, (const double[])w, (const double[]){__VA_ARGS__})
#define THREE(a, b, c)                                                                                       \
    {                                                                                                        \
        a, b, c                                                                                              \
    }

UNIT_CASE(threshold_holds_small_ones)
{
    struct tr_filter f = {.kind = TR_FILTER_THRESHOLD, .limit = 0.5};
    ck_assert(!SENDS(f, 0, 0.4999));
    ck_assert(!SENDS(f, 0, -0.4999));
    ck_assert(SENDS(f, 0, 0.5));
    ck_assert(SENDS(f, 0, -0.5));
    ck_assert(SENDS(f, 0, NAN));
    ck_assert(SENDS(f, 0, -INFINITY));
    ck_assert(!SENDS3(f, THREE(0, 0, 0), 0.4, -0.4, 0.1));
    ck_assert(SENDS3(f, THREE(0, 0, 0), 0.1, -0.6, 0)); /* a row goes whole */
    f.limit = 0;
    ck_assert(SENDS(f, 0, 1e-300));
}

UNIT_CASE(significant_is_relative_to_the_value)
{
    struct tr_filter f = {.kind = TR_FILTER_SIGNIFICANT, .limit = 0.25};
    ck_assert(!SENDS(f, 4, 0.99));
    ck_assert(!SENDS(f, -4, 0.99));
    ck_assert(SENDS(f, 4, -1));
    ck_assert(SENDS(f, 0, 1e-30));
    ck_assert(SENDS(f, NAN, 1));
    ck_assert(!SENDS3(f, THREE(0, -4, 1), 0.9, 0.9, 0.9)); /* beside the row's largest */
    ck_assert(SENDS3(f, THREE(0, -4, 1), 0, 0, 1.1));
}

UNIT_CASE(kkt_drops_what_stays_at_zero)
{
    struct tr_filter f = {.kind = TR_FILTER_KKT, .limit = 0.25, .alpha = 1, .scale = -0.5};
    ck_assert(!SENDS(f, 0, 0.37)); /* a gradient of -0.74 */
    ck_assert(!SENDS(f, -0.0, -0.37));
    ck_assert(SENDS(f, 0, 0.375));
    ck_assert(SENDS(f, 1e-9, 0.37));
    ck_assert(SENDS(f, 0, NAN));
    ck_assert(SENDS3(f, THREE(0, 0, 0.1), 0.1, 0.1, 0.1));
    ck_assert(!SENDS3(f, THREE(0, 0, 0), 0.1, 0.1, 0.1));
    f.limit = 1.5; /* nothing is that far inside */
    ck_assert(SENDS(f, 0, 1e-9));
}

UNIT_CASE(zeros_are_not_counted)
{
    for (int kind = TR_FILTER_NONE; kind <= TR_FILTER_SKIP; kind++) {
        struct trial *t = begin(TR_F32, 1);
        struct tr_filter f = {.kind = kind, .limit = 1, .skip = 0.5, .alpha = 2, .scale = 1};
        set_element(TR_F32, t->delta, 10, 5);
        apply(t, &f, 0);
        ck_assert_uint_eq(t->counts.seen, 1);
        free(t);
    }
}

/* ---- chance ---- */

static size_t held_by_chance(double skip, uint64_t seed, int64_t clock, bool *held)
{
    struct trial *t = begin(TR_F32, 1);
    struct tr_filter f = {.kind = TR_FILTER_SKIP, .skip = skip, .seed = seed};
    for (size_t i = 0; i < N; i++) set_element(TR_F32, t->delta, i, 1);
    apply(t, &f, clock);
    for (size_t i = 0; i < N; i++) held[i] = element(TR_F32, t->delta, i) == 0;
    size_t n = t->counts.held;
    free(t);
    return n;
}

UNIT_CASE(skip_is_random_but_repeats)
{
    bool a[N], b[N];
    ck_assert_uint_eq(held_by_chance(0, 1, 1, a), 0);
    ck_assert_uint_eq(held_by_chance(1, 1, 1, a), N);
    size_t n = held_by_chance(0.3, 1, 1, a);
    ck_assert_uint_gt(n, N * 2 / 10);
    ck_assert_uint_lt(n, N * 4 / 10);
    held_by_chance(0.3, 1, 1, b);
    ck_assert_int_eq(memcmp(a, b, sizeof a), 0);
    /* another clock, another worker: others wait, independently of the first */
    for (int other = 0; other < 2; other++) {
        size_t both = 0;
        held_by_chance(0.3, other ? 2 : 1, other ? 1 : 2, b);
        for (size_t i = 0; i < N; i++) both += a[i] && b[i];
        ck_assert_uint_gt(both, N * 5 / 100);
        ck_assert_uint_lt(both, N * 13 / 100);
    }
}

/* In one piece or in several, in any order: the same units wait. */
UNIT_CASE(skip_does_not_depend_on_pieces)
{
    struct tr_filter f = {.kind = TR_FILTER_SKIP, .skip = 0.5, .seed = 3};
    struct trial *whole = begin(TR_F32, 2), *pieces = begin(TR_F32, 2);
    for (size_t i = 0; i < 2 * N; i++) {
        set_element(TR_F32, whole->delta, i, 1 + (double)i);
        set_element(TR_F32, pieces->delta, i, 1 + (double)i);
    }
    apply(whole, &f, 7);
    static const uint32_t cut[] = {900, 300, 299, 0};
    for (uint32_t k = 0, end_of = N; k < 4; end_of = cut[k++]) {
        struct tr_slice piece = {TR_F32, end_of - cut[k], 2};
        tr_filter_apply(&f, &piece, cut[k], 7, NULL, (float *)pieces->delta + cut[k] * 2,
                        (float *)pieces->kept + cut[k] * 2, &pieces->counts);
    }
    ck_assert_int_eq(memcmp(whole->delta, pieces->delta, N * 2 * sizeof(float)), 0);
    ck_assert_int_eq(memcmp(whole->kept, pieces->kept, N * 2 * sizeof(float)), 0);
    ck_assert_uint_eq(whole->counts.held, pieces->counts.held);
    TR_FREE_ALL(whole, pieces);
}

/* ---- nothing is lost ---- */

/* Integers, so that sums are exact in every type: sent plus delayed values equal the updates, at every clock, whole
 * units only; an update without a filter sends the rest. */
UNIT_CASE(what_is_held_is_not_lost)
{
    for (size_t d = 0; d < 8; d++)
        for (int kind = TR_FILTER_NONE; kind <= TR_FILTER_SKIP; kind++) {
            enum tr_dtype dtype = dtypes[d % 4];
            size_t width = d < 4 ? 1 : 3;
            struct trial *t = begin(dtype, width);
            struct tr_filter f = {.kind = kind, .limit = 6, .skip = 0.7, .alpha = 10, .scale = 1, .seed = 9};
            if (kind == TR_FILTER_SIGNIFICANT) f.limit = 2;
            static double given[N * 3], sent[N * 3];
            memset(given, 0, sizeof given);
            memset(sent, 0, sizeof sent);
            struct tr_rng rng;
            tr_rng_seed(&rng, d, (uint64_t)kind, 0);
            for (int64_t clock = 0; clock <= CLOCKS; clock++) {
                if (clock == CLOCKS) f.kind = TR_FILTER_NONE;
                for (size_t i = 0; i < N * width; i++) {
                    double u = tr_rng_below(&rng, 3) ? (double)tr_rng_below(&rng, 9) - 4 : 0;
                    set_element(dtype, t->value, i, (double)(i / width % 5));
                    if (kind == TR_FILTER_KKT && i / width % 5 == 0) continue; /* would be dropped */
                    set_element(dtype, t->delta, i, u);
                    given[i] += u;
                }
                struct tr_filter_counts before = t->counts;
                apply(t, &f, clock);
                uint64_t not_zero = 0, kept = 0;
                for (size_t i = 0; i < N; i++) {
                    bool any_sent = false, any_kept = false;
                    for (size_t j = i * width; j < (i + 1) * width; j++) {
                        any_sent |= element(dtype, t->delta, j) != 0;
                        any_kept |= element(dtype, t->kept, j) != 0;
                        sent[j] += element(dtype, t->delta, j);
                        ck_assert(sent[j] + element(dtype, t->kept, j) == given[j]);
                        set_element(dtype, t->delta, j, 0);
                    }
                    ck_assert(!(any_sent && any_kept));
                    not_zero += any_sent || any_kept;
                    kept += any_kept;
                }
                ck_assert_uint_eq(t->counts.seen - before.seen, not_zero);
                ck_assert_uint_eq(t->counts.held - before.held, kept);
                if (clock > 5 && clock < CLOCKS && kind != TR_FILTER_NONE && kind != TR_FILTER_KKT) {
                    ck_assert_uint_gt(kept, 0);
                    ck_assert_uint_lt(kept, not_zero);
                }
            }
            ck_assert_uint_eq(t->counts.dropped, 0);
            for (size_t i = 0; i < N * width; i++) ck_assert(sent[i] == given[i]);
            free(t);
        }
}

/* With rounding behind it, as an update goes: filtered, then encoded with kept as the residual. */
UNIT_CASE(filter_and_rounding_share_what_is_kept)
{
    for (int kind = TR_FILTER_NONE; kind <= TR_FILTER_SKIP; kind++) {
        if (kind == TR_FILTER_KKT) continue;
        struct trial *t = begin(TR_F64, 1);
        struct tr_filter f = {.kind = kind, .limit = 0.1, .skip = 0.5};
        struct tr_wire wire = {TR_ENCODING_AUTO, TR_PRECISION_F16};
        void *room;
        ck_ok(TR_NEW((char **)&room, tr_encode_room(&t->slice, (struct tr_wire){0, TR_PRECISION_FULL})));
        double given[N] = {0}, arrived[N] = {0}, packed[N];
        struct tr_rng rng;
        tr_rng_seed(&rng, 5, (uint64_t)kind, 0);
        for (int64_t clock = 0; clock <= CLOCKS; clock++) {
            if (clock == CLOCKS) {
                f.kind = TR_FILTER_NONE;
                wire.precision = TR_PRECISION_FULL;
            }
            for (size_t i = 0; i < N; i++) {
                t->value[i] = 1;
                t->delta[i] = clock < CLOCKS ? 0.1 * tr_rng_normal(&rng) : 0;
                given[i] += t->delta[i];
            }
            apply(t, &f, clock);
            size_t size = tr_encode(&t->slice, wire, t->delta, t->kept, room);
            struct tr_encoded message;
            ck_ok(tr_encoded_open(room, size, &t->slice, &message));
            ck_ok(tr_decode_packed(&message, packed));
            for (size_t i = 0; i < N; i++) arrived[i] += packed[i];
        }
        for (size_t i = 0; i < N; i++) ck_assert(fabs(arrived[i] - given[i]) <= 1e-14 && t->kept[i] == 0);
        TR_FREE_ALL(room, t);
    }
}
