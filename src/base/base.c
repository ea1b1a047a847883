#define _GNU_SOURCE
#include "base/base.h"
#include "base/escape.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>

#include "trireme/cpu.h"

/* ---- errors ---- */

static _Thread_local char error_text[1024];

int tr_fail(int status, const char *format, ...)
{
    char text[sizeof error_text]; /* the previous error text may be an argument */
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    tr_escape(error_text, sizeof error_text, text, strlen(text));
    return status;
}

const char *tr_error_text(void)
{
    return error_text;
}

/* ---- memory ---- */

static int out_of_memory(size_t n, size_t size, const char *what)
{
    return tr_fail(TR_ERR_SYSTEM, "out of memory: %zu elements of %zu bytes for %s", n, size, what);
}

int tr_new(void **pointer, size_t n, size_t size, const char *what)
{
    size_t bytes;
    if (__builtin_mul_overflow(n, size, &bytes)) return out_of_memory(n, size, what);
    void *memory = calloc(1, bytes ? bytes : 1);
    if (!memory) return out_of_memory(n, size, what);
    *pointer = memory;
    return TR_OK;
}

/* Requests large pages for large arrays that are filled once, which saves page faults. Arrays that grow are moved instead, which is
 * slow with large pages. */
static void ask_for_large_pages(void *memory, size_t bytes)
{
    const uintptr_t huge = (uintptr_t)2 << 20, at = (uintptr_t)memory;
    const uintptr_t begin = (at + huge - 1) / huge * huge, end = (at + bytes) / huge * huge;
    if (bytes >= 4 * huge && begin < end)
        (void)madvise((char *)memory + (begin - at), end - begin, MADV_HUGEPAGE);
}

int tr_grow(void **pointer, size_t *capacity, size_t n, size_t size, const char *what)
{
    if (n <= *capacity) return TR_OK;
    size_t wanted = tr_max_size(n, tr_max_size(*capacity + *capacity / 2, 64)), bytes;
    if (__builtin_mul_overflow(wanted, size, &bytes)) return out_of_memory(wanted, size, what);
    void *memory = realloc(*pointer, bytes);
    if (!memory) return out_of_memory(wanted, size, what);
    if (*capacity == 0) ask_for_large_pages(memory, bytes);
    *pointer = memory;
    *capacity = wanted;
    return TR_OK;
}

void tr_shrink(void **pointer, size_t n, size_t size)
{
    void *memory = realloc(*pointer, n ? n * size : 1);
    if (memory) *pointer = memory;
}

void tr_free_at(void *pointer)
{
    void *memory;
    memcpy(&memory, pointer, sizeof memory);
    free(memory);
}

int tr_copy_string(const char *from, char **copy)
{
    char *memory = strdup(from);
    if (!memory) return out_of_memory(strlen(from) + 1, 1, "a string");
    *copy = memory;
    return TR_OK;
}

int tr_format(char **text, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int length = vasprintf(text, format, arguments);
    va_end(arguments);
    return length < 0 ? out_of_memory(strlen(format), 1, "a string") : TR_OK;
}

/* ---- this process ---- */

uint64_t tr_peak_rss(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (uint64_t)usage.ru_maxrss * 1024;
}

/* Field 22 of /proc/self/stat. The second field is a name in parentheses that may contain any character. */
uint64_t tr_start_ticks(void)
{
    char text[1024];
    FILE *file = fopen("/proc/self/stat", "re");
    if (!file) return 0;
    size_t n = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[n] = '\0';
    const char *at = strrchr(text, ')');
    for (int field = 2; at && field < 22; field++) at = strchr(at + 1, ' ');
    return at ? strtoull(at, NULL, 10) : 0;
}

long tr_number_in(const char *variable, long otherwise)
{
    const char *text = getenv(variable);
    return text ? atol(text) : otherwise;
}

/* ---- instruction sets (trireme/cpu.h) ---- */

static const char *const cpu_names[] = {"plain", "avx2", "avx512"};

static enum tr_cpu cpu_best(void)
{
#ifdef TR_CPU_LEVELS
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") || !__builtin_cpu_supports("bmi2"))
        return TR_CPU_PLAIN;
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
        return TR_CPU_AVX512;
    return TR_CPU_AVX2;
#else
    return TR_CPU_PLAIN;
#endif
}

enum tr_cpu tr_cpu(void)
{
    enum tr_cpu level = cpu_best();
    const char *wish = getenv("TRIREME_CPU");
    for (int i = TR_CPU_PLAIN; wish && i < (int)level; i++)
        if (strcmp(wish, cpu_names[i]) == 0) return (enum tr_cpu)i;
    return level;
}

const char *tr_cpu_name(enum tr_cpu level)
{
    return cpu_names[level];
}

void tr_blis_environment(void)
{
    if (tr_cpu() == TR_CPU_AVX512) setenv("BLIS_ARCH_TYPE", "0", 0); /* skx */
}

void tr_cpu_lower(int level)
{
    const char *blis = getenv("BLIS_ARCH_TYPE");
    setenv("TRIREME_CPU", cpu_names[level], 1);
    if (level < TR_CPU_AVX512 && blis && strcmp(blis, "0") == 0)
        setenv("BLIS_ARCH_TYPE", "3", 1); /* haswell */
}

/* ---- time ---- */

double tr_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static struct {
    tr_seam_fn *work;
    void *what;
    double due;
} seam;

void tr_seam_set(tr_seam_fn *work, void *what)
{
    seam.work = work;
    seam.what = what;
    seam.due = tr_now() + 1e-4;
}

void tr_seam(void)
{
    if (!seam.work || tr_now() < seam.due) return;
    seam.work(seam.what);
    seam.due = tr_now() + 1e-4;
}

void tr_sleep(double seconds)
{
    struct timespec t = {.tv_sec = (time_t)seconds};
    t.tv_nsec = (long)((seconds - (double)t.tv_sec) * 1e9);
    nanosleep(&t, NULL);
}

/* ---- random numbers ---- */

void tr_rng_seed(struct tr_rng *rng, uint64_t seed, uint64_t who, uint64_t what)
{
    uint64_t x = tr_mix(tr_mix(tr_mix(seed) ^ who) ^ what);
    for (int i = 0; i < 4; i++) rng->s[i] = x = tr_mix(x);
}

static inline uint64_t rotate_left(uint64_t x, int k)
{
    return (x << k) | (x >> (64 - k));
}

uint64_t tr_rng_next(struct tr_rng *rng)
{
    uint64_t *s = rng->s, result = rotate_left(s[1] * 5, 7) * 9, t = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotate_left(s[3], 45);
    return result;
}

__extension__ typedef unsigned __int128 tr_uint128; /* not ISO C */

uint64_t tr_rng_below(struct tr_rng *rng, uint64_t n)
{
    /* multiply-shift: the bias is below n / 2^64, which is negligible */
    return (uint64_t)(((tr_uint128)tr_rng_next(rng) * n) >> 64);
}

double tr_rng_uniform(struct tr_rng *rng)
{
    return (double)(tr_rng_next(rng) >> 11) * 0x1p-53;
}

/* Fisher-Yates shuffle. */
void tr_rng_permutation(struct tr_rng *rng, uint32_t *order, size_t n)
{
    for (size_t i = 0; i < n; i++) order[i] = (uint32_t)i;
    for (size_t i = n; i > 1; i--) {
        size_t j = (size_t)tr_rng_below(rng, i);
        uint32_t old = order[i - 1];
        order[i - 1] = order[j];
        order[j] = old;
    }
}

double tr_rng_normal(struct tr_rng *rng)
{
    double u = 1.0 - tr_rng_uniform(rng), v = tr_rng_uniform(rng);
    return sqrt(-2.0 * log(u)) * cos(6.283185307179586 * v);
}

/* Radix sort by bytes, lowest first. The number of passes is even, so the result is in `number`. */
void tr_sort_u32(uint32_t *number, uint32_t *other, size_t n)
{
    for (unsigned shift = 0; shift < 32; shift += 8) {
        size_t begin[257] = {0};
        for (size_t i = 0; i < n; i++) begin[((number[i] >> shift) & 255) + 1]++;
        for (int b = 0; b < 256; b++) begin[b + 1] += begin[b];
        for (size_t i = 0; i < n; i++) other[begin[(number[i] >> shift) & 255]++] = number[i];
        uint32_t *old = number;
        number = other;
        other = old;
    }
}
