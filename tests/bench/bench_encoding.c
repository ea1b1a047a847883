/* Times the writing, reading and filtering of messages: bench_encoding [UNITS [REPEATS]] prints, for slices of UNITS
 * f32 units (default 65536, the size of one message of a table), GB of the dense slice per second, with memcpy for
 * comparison. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "table/codec.h"

struct bench {
    struct tr_slice slice;
    int repeats;
    float *value, *back, *residual, *update;
    uint32_t *unit;
    void *message;
};

static int make(struct bench *b, uint32_t n)
{
    struct tr_wire longest = {TR_ENCODING_SPARSE, TR_PRECISION_FULL};
    b->slice = (struct tr_slice){.dtype = TR_F32, .n = n, .width = 1};
    TR_TRY(TR_NEW(&b->value, n));
    TR_TRY(TR_NEW(&b->back, n));
    TR_TRY(TR_NEW(&b->residual, n));
    TR_TRY(TR_NEW(&b->update, n));
    TR_TRY(TR_NEW(&b->unit, n));
    return TR_NEW((char **)&b->message, tr_encode_room(&b->slice, longest));
}

static void fill(struct bench *b, double density)
{
    struct tr_rng rng;
    tr_rng_seed(&rng, 1, 2, 3);
    for (uint32_t i = 0; i < b->slice.n; i++) {
        bool there = tr_rng_uniform(&rng) < density;
        b->value[i] = there ? (float)tr_rng_normal(&rng) : 0;
    }
}

/* The best of many short times: others may use the machine. */
#define BEST(b, seconds, work)                                                                               \
    double seconds = HUGE_VAL;                                                                               \
    for (int i_ = 0; i_ < (b)->repeats; i_++) {                                                              \
        double begin_ = tr_now();                                                                            \
        work;                                                                                                \
        seconds = fmin(seconds, tr_now() - begin_);                                                          \
    }

static double rate(const struct bench *b, double seconds)
{
    return (double)b->slice.n * sizeof(float) / seconds / 1e9;
}

static int measure(struct bench *b, const char *name, double density, struct tr_wire wire)
{
    fill(b, density);
    struct tr_encoded message;
    size_t size = 0;
    uint32_t n;
    void *residual = wire.precision == TR_PRECISION_FULL ? NULL : b->residual;
    BEST(b, encode, size = tr_encode(&b->slice, wire, b->value, residual, b->message));
    BEST(b, packed, {
        TR_TRY(tr_encoded_open(b->message, size, &b->slice, &message));
        TR_TRY(tr_decode_packed(&message, b->back));
    });
    BEST(b, units, {
        TR_TRY(tr_encoded_open(b->message, size, &b->slice, &message));
        TR_TRY(tr_decode_units(&message, b->unit, b->back, &n));
    });
    printf("%-24s %10zu bytes  encode %6.2f  decode %6.2f  list %6.2f GB/s\n", name, size, rate(b, encode),
           rate(b, packed), rate(b, units));
    return TR_OK;
}

/* An update of which about half is held each time. */
static void measure_filter(struct bench *b, const char *name, int kind)
{
    struct tr_filter filter = {.kind = kind, .limit = 0.7, .skip = 0.5, .alpha = 1.4, .scale = 1, .seed = 1};
    struct tr_filter_counts counts = {0};
    fill(b, 1);
    memset(b->residual, 0, b->slice.n * sizeof(float));
    for (uint32_t i = 0; i < b->slice.n; i++) b->back[i] = kind == TR_FILTER_SIGNIFICANT ? 1 : 0;
    BEST(b, seconds, {
        memcpy(b->update, b->value, b->slice.n * sizeof(float));
        tr_filter_apply(&filter, &b->slice, 0, i_, b->back, b->update, b->residual, &counts);
    });
    printf("%-24s holds %4.1f %%  %6.2f GB/s\n", name,
           100 * (double)(counts.held + counts.dropped) / (double)counts.seen, rate(b, seconds));
}

int main(int argc, char **argv)
{
    struct bench b = {.repeats = argc > 2 ? atoi(argv[2]) : 1000};
    TR_TRY(make(&b, argc > 1 ? (uint32_t)atoi(argv[1]) : 65536));
    fill(&b, 1);
    BEST(&b, copy, memcpy(b.back, b.value, b.slice.n * sizeof(float)));
    printf("%-24s %10zu bytes  %6.2f GB/s\n", "memcpy", b.slice.n * sizeof(float), rate(&b, copy));
    const struct tr_wire full = {TR_ENCODING_AUTO, TR_PRECISION_FULL};
    const struct tr_wire f16 = {TR_ENCODING_AUTO, TR_PRECISION_F16};
    const struct tr_wire bf16 = {TR_ENCODING_AUTO, TR_PRECISION_BF16};
    TR_TRY(measure(&b, "dense f32", 1, full));
    TR_TRY(measure(&b, "dense f16, kept", 1, f16));
    TR_TRY(measure(&b, "dense bf16, kept", 1, bf16));
    TR_TRY(measure(&b, "40 % f32", 0.4, full));
    TR_TRY(measure(&b, "40 % f16, kept", 0.4, f16));
    TR_TRY(measure(&b, "10 % f32", 0.1, full));
    TR_TRY(measure(&b, "10 % f16, kept", 0.1, f16));
    TR_TRY(measure(&b, "1 % f32", 0.01, full));
    TR_TRY(measure(&b, "1 % f16, kept", 0.01, f16));
    measure_filter(&b, "threshold", TR_FILTER_THRESHOLD);
    measure_filter(&b, "significant", TR_FILTER_SIGNIFICANT);
    measure_filter(&b, "kkt", TR_FILTER_KKT);
    measure_filter(&b, "skip", TR_FILTER_SKIP);
    free(b.value);
    free(b.back);
    free(b.residual);
    free(b.update);
    free(b.unit);
    free(b.message);
    return TR_OK;
}
