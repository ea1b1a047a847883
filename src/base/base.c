#define _GNU_SOURCE
#include "base/base.h"
#include "base/escape.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "trireme/cpu.h"

/* ---- errors ---- */

static _Thread_local char error_text[1024];

int tr_fail(int status, const char *format, ...)
{
    char text[sizeof error_text]; /* not error_text, which may be an argument */
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

int tr_new_aligned(void **pointer, size_t n, size_t size, bool zeros)
{
    const size_t line = 64, huge = (size_t)2 << 20;
    size_t bytes;
    if (__builtin_mul_overflow(n, size, &bytes) || bytes > SIZE_MAX - huge)
        return out_of_memory(n, size, "aligned memory");
    size_t align = bytes >= huge ? huge : line, room = (bytes + align) / align * align;
    void *memory = aligned_alloc(align, room);
    if (!memory) return out_of_memory(n, size, "aligned memory");
    if (align == huge) (void)madvise(memory, room, MADV_HUGEPAGE);
    *pointer = zeros ? memset(memory, 0, room) : memory;
    return TR_OK;
}

void tr_free_all(void *const *array, size_t n)
{
    for (size_t i = 0; i < n; i++) free(array[i]);
}

/* The first allocation of an array gets huge pages if it is large: they save page faults. Later allocations do not: realloc() moves
 * the array, which is slow with huge pages. */
int tr_grow(void **pointer, size_t *capacity, size_t n, size_t size, const char *what)
{
    const uintptr_t huge = (uintptr_t)2 << 20;
    if (n <= *capacity) return TR_OK;
    size_t wanted = tr_max_size(n, tr_max_size(*capacity + *capacity / 2, 64)), bytes;
    if (__builtin_mul_overflow(wanted, size, &bytes)) return out_of_memory(wanted, size, what);
    void *memory = realloc(*pointer, bytes);
    if (!memory) return out_of_memory(wanted, size, what);
    uintptr_t at = (uintptr_t)memory, begin = (at + huge - 1) / huge * huge, end = (at + bytes) / huge * huge;
    if (*capacity == 0 && bytes >= 4 * huge && begin < end)
        (void)madvise((char *)memory + (begin - at), end - begin, MADV_HUGEPAGE);
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

/* Reads field 22 of /proc/self/stat. Field 2 is a name in parentheses that may contain any character, so counting starts at the
 * last `)`. */
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

/* ---- available memory ---- */

/* Returns the number in a file; UINT64_MAX if the file is missing or contains no number («max»: no limit). */
static uint64_t group_read_number(const char *path)
{
    uint64_t number = UINT64_MAX;
    FILE *file = fopen(path, "re");
    if (file && fscanf(file, "%" SCNu64, &number) != 1) number = UINT64_MAX;
    if (file) fclose(file);
    return number;
}

/* Returns the minimum of the unused memory over the control group `name` and its ancestors. The file cache (a line of memory.stat)
 * counts as unused. In a container the loop ends at the root of the container. */
static uint64_t group_memory_left(const char *root, char *name, const char *limit_name, const char *used_name,
                                  const char *cached)
{
    uint64_t least = UINT64_MAX;
    for (char *slash;; *slash = '\0') {
        char path[4096], line[256];
        snprintf(path, sizeof path, "%s%s/%s", root, name, limit_name);
        uint64_t limit = group_read_number(path), files = 0;
        snprintf(path, sizeof path, "%s%s/%s", root, name, used_name);
        uint64_t used = group_read_number(path);
        snprintf(path, sizeof path, "%s%s/memory.stat", root, name);
        FILE *stat = fopen(path, "re");
        while (stat && fgets(line, sizeof line, stat))
            if (!strncmp(line, cached, strlen(cached)))
                (void)sscanf(line + strlen(cached), "%" SCNu64, &files);
        if (stat) fclose(stat);
        used = used == UINT64_MAX || used < files ? 0 : used - files;
        uint64_t left = limit > (uint64_t)1 << 60 ? UINT64_MAX : limit > used ? limit - used : 0;
        if (left < least) least = left;
        slash = strrchr(name, '/');
        if (!slash) return least;
    }
}

uint64_t tr_memory_free(void)
{
    char line[1024];
    uint64_t kilobytes, least = UINT64_MAX;
    FILE *file = fopen("/proc/meminfo", "re");
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "MemAvailable: %" SCNu64, &kilobytes) == 1) least = kilobytes * 1024;
    if (file) fclose(file);
    file = fopen("/proc/self/cgroup", "re");
    while (file && fgets(line, sizeof line, file)) {
        char *name = strstr(line, ":memory:");
        uint64_t left = UINT64_MAX;
        line[strcspn(line, "\n")] = '\0';
        if (!strncmp(line, "0::", 3))
            left = group_memory_left("/sys/fs/cgroup", line + 3, "memory.max", "memory.current", "file ");
        else if (name)
            left = group_memory_left("/sys/fs/cgroup/memory", name + strlen(":memory:"),
                                     "memory.limit_in_bytes", "memory.usage_in_bytes", "total_cache ");
        if (left < least) least = left;
    }
    if (file) fclose(file);
    return least;
}

/* ---- pages (base.h) ---- */

size_t tr_page_bytes(void)
{
    long n = sysconf(_SC_PAGESIZE);
    return n > 0 ? (size_t)n : 4096;
}

uint64_t tr_to_pages(uint64_t bytes)
{
    uint64_t page = tr_page_bytes();
    return (bytes + page - 1) / page * page;
}

void tr_pages_give_back(void *memory, uint64_t bytes)
{
    uintptr_t page = tr_page_bytes(), at = (uintptr_t)memory, begin = (at + page - 1) / page * page,
              end = (at + bytes) / page * page;
    if (memory && end > begin) (void)madvise((char *)memory + (begin - at), end - begin, MADV_DONTNEED);
}

void tr_pages_move(void *to, void **array, uint64_t n, size_t unit)
{
    const uint64_t most = (uint64_t)4 << 20;
    char *from = *array;
    for (uint64_t at = 0; from && at < n * unit; at += most) {
        uint64_t bytes = n * unit - at < most ? n * unit - at : most;
        memcpy((char *)to + at, from + at, (size_t)bytes);
        tr_pages_give_back(from + at, bytes);
    }
    free(from);
    *array = NULL;
}

/* ---- instruction sets (trireme/cpu.h) ---- */

static const char *const cpu_names[] = {"plain", "avx2", "avx512"};

enum tr_cpu tr_cpu(void)
{
    enum tr_cpu level = TR_CPU_PLAIN;
    const char *wish = getenv("TRIREME_CPU");
#ifdef TR_CPU_LEVELS
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2"))
        level = TR_CPU_AVX2;
    if (level == TR_CPU_AVX2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
        level = TR_CPU_AVX512;
#endif
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
    if (tr_cpu() == TR_CPU_AVX512) setenv("BLIS_ARCH_TYPE", "0", 0); /* kernels for AVX-512 (skx) */
}

void tr_cpu_lower(int level)
{
    const char *blis = getenv("BLIS_ARCH_TYPE");
    setenv("TRIREME_CPU", cpu_names[level], 1);
    if (level < TR_CPU_AVX512 && blis && strcmp(blis, "0") == 0)
        setenv("BLIS_ARCH_TYPE", "3", 1); /* kernels for AVX2 (haswell) */
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
    double due; /* tr_now() from which on tr_seam() calls work() again */
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

__extension__ typedef unsigned __int128 tr_uint128; /* ISO C has no integer of 128 bits */

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

int tr_compare_u64(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Radix sort by bytes, lowest first. Each of the four passes copies from one array to the other, so the result is in `number`. */
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

/* ---- numbers as text ---- */

static double power_of_ten(int exponent)
{
    static const double ten[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22, 1e23,
                                 1e24, 1e25, 1e26, 1e27, 1e28, 1e29, 1e30, 1e31, 1e32, 1e33, 1e34, 1e35,
                                 1e36, 1e37, 1e38, 1e39, 1e40, 1e41, 1e42, 1e43, 1e44, 1e45, 1e46, 1e47,
                                 1e48, 1e49, 1e50, 1e51, 1e52, 1e53, 1e54, 1e55};
    return ten[exponent];
}

/* Formats x_ as %.9g does: as m · 10^(exponent - 8), where m has 9 digits. The error is at most half a unit of the ninth digit;
 * rounding of doubles adds ten million times less. Neighbouring floats differ by at least six times this error, so the digits read
 * back as x_. */
char *tr_put_f32(char *at, float x_)
{
    if (signbit(x_)) *at++ = '-';
    if (x_ == 0) {
        *at++ = '0';
        return at;
    }
    if (!isfinite(x_)) return memcpy(at, isnan(x_) ? "nan" : "inf", 3), at + 3;
    int two, n = 9;
    double x = fabs((double)x_);
    frexp(x, &two);
    int exponent = (int)floor((two - 1) * 0.30102999566398120); /* decimal exponent of x, or one less */
    double scaled = exponent <= 8 ? x * power_of_ten(8 - exponent) : x / power_of_ten(exponent - 8);
    if (scaled >= 999999999.5) {
        scaled /= 10;
        exponent++;
    }
    uint32_t m = (uint32_t)(scaled + 0.5);
    char digit[9];
    for (int i = 8; i >= 0; i--, m /= 10) digit[i] = (char)('0' + m % 10);
    while (n > 1 && digit[n - 1] == '0') n--;
    bool scientific = exponent < -5 || exponent > 8;
    int before = scientific ? 1 : exponent + 1; /* digits before the point */
    if (before <= 0) {
        *at++ = '0';
        *at++ = '.';
        for (int i = before; i < 0; i++) *at++ = '0';
    }
    for (int i = 0; i < n || i < before; i++) {
        if (i == before && i > 0) *at++ = '.';
        *at++ = i < n ? digit[i] : '0';
    }
    if (!scientific) return at;
    *at++ = 'e';
    *at++ = exponent < 0 ? '-' : '+';
    *at++ = (char)('0' + abs(exponent) / 10);
    *at++ = (char)('0' + abs(exponent) % 10);
    return at;
}

/* Always writes up to 17 digits: a search for the fewest digits that read back as x would take three times as long. */
char *tr_put_f64(char *at, double x)
{
    if (x == 0 && !signbit(x)) {
        *at++ = '0';
        return at;
    }
    return at + snprintf(at, TR_NUMBER_ROOM, "%.17g", x);
}
