/* Basic services: status codes and error messages, memory, text, time, random numbers, searching and sorting.
 *
 * Example:
 *
 *     float *value;
 *     TR_TRY(TR_NEW(&value, n));                 // n zeros, or an error with a text
 *     struct tr_rng rng;
 *     tr_rng_seed(&rng, seed, worker, pass);     // the same numbers on any schedule
 *     for (size_t i = 0; i < n; i++) value[i] = (float)tr_rng_normal(&rng);
 *     free(value);
 *
 * All functions may be called on any rank, alone, without a context.
 */
#ifndef TRIREME_BASE_H
#define TRIREME_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ================ status codes and errors ================ */

/* Status codes and error messages.
 *
 * A function that can fail returns an int: TR_OK or one of the codes below. The codes are those of sysexits.h, so
 * that the status of a job is also the exit code of its process. The function that detects an error describes it
 * once with tr_fail(): cause, place, expectation. Its callers propagate the code with TR_TRY(). The text is stored
 * per thread, as errno is, until tr_error_text() reads it. Outputs are set on success only.
 *
 * Example:
 *
 *     static int check_rank(const tr_job *job, uint64_t rank)
 *     {
 *         if (rank > 1024)
 *             return tr_fail(TR_ERR_CONFIG, "%s: model.rank: expected at most 1024, found %llu",
 *                            tr_job_where(job, "model.rank"), (unsigned long long)rank);
 *         return TR_OK;
 *     }
 */

enum tr_status {
    TR_OK = 0,
    TR_ERR_USAGE = 64,     /* command line: unknown command, missing argument */
    TR_ERR_DATA = 65,      /* a record, model or checkpoint is malformed */
    TR_ERR_NO_INPUT = 66,  /* an input file is missing, empty or unreadable */
    TR_ERR_PEER = 69,      /* another rank failed or does not answer */
    TR_ERR_INTERNAL = 70,  /* a bug in Trireme, or calls in the wrong order */
    TR_ERR_SYSTEM = 71,    /* memory is exhausted, or MPI or the operating system failed */
    TR_ERR_NO_OUTPUT = 73, /* an output file or folder cannot be created */
    TR_ERR_IO = 74,        /* reading or writing failed (disk full) */
    TR_ERR_STOPPED = 75,   /* stopped early on request: the same command resumes */
    TR_ERR_DIVERGED = 76,  /* the objective is no longer finite */
    TR_ERR_NO_PERM = 77,   /* a file that another user could have written is not used */
    TR_ERR_CONFIG = 78     /* job file: unknown key, wrong type, impossible value */
};

/* Records the description of an error and returns its code.
 *
 * @param [in] status  one of the codes above, not TR_OK
 * @param [in] format  as for printf; one line without a final full stop, cut at 1 KiB
 * @return status, so that a function can end with: return tr_fail(...);
 */
int tr_fail(int status, const char *format, ...) __attribute__((format(printf, 2, 3), cold));

/* Returns the text of this thread's last tr_fail(), or "" if there was none. Owned by the library. */
const char *tr_error_text(void);

/* TR_TRY(f(x)) returns from the calling function if f(x) fails, with the status of f(x). */
#define TR_TRY(call)                                                                                         \
    do {                                                                                                     \
        int tr_try_status_ = (call);                                                                         \
        if (tr_try_status_ != TR_OK) return tr_try_status_;                                                  \
    } while (0)

/* ================ memory, text, time, numbers ================ */

/* ---- memory ---- */

/* Allocates an array of zeros.
 *
 * @param [out] pointer  address of a pointer; receives the array. Free it with free().
 * @param [in]  n        number of elements; may be 0
 * @return TR_OK, or TR_ERR_SYSTEM if memory is exhausted
 */
#define TR_NEW(pointer, n) tr_new((void **)(pointer), (n), sizeof **(pointer), #pointer)
int tr_new(void **pointer, size_t n, size_t size, const char *what);

/* Allocates an array aligned to a cache line, in huge pages if it is large and they are available.
 *
 * @param [in] zeros  fill it with zeros; otherwise it is uninitialised
 */
#define TR_NEW_ALIGNED(pointer, n, zeros) tr_new_aligned((void **)(pointer), (n), sizeof **(pointer), (zeros))
int tr_new_aligned(void **pointer, size_t n, size_t size, bool zeros);

/* Frees several arrays; each may be NULL. */
#define TR_FREE_ALL(...)                                                                                     \
    tr_free_all((void *[]){__VA_ARGS__}, sizeof((void *[]){__VA_ARGS__}) / sizeof(void *))
void tr_free_all(void *const *array, size_t n);

/* Enlarges an array to at least n elements. Existing elements are preserved; new ones are uninitialised. The
 * capacity grows by half, so that n appends take O(n) time.
 *
 * @param [in,out] pointer   address of the array; *pointer may be NULL if *capacity is 0
 * @param [in,out] capacity  number of elements that are allocated
 * @param [in]     n         number of elements that are needed
 * @return TR_OK, or TR_ERR_SYSTEM if memory is exhausted; the array is unchanged then
 */
#define TR_GROW(pointer, capacity, n)                                                                        \
    tr_grow((void **)(pointer), (capacity), (n), sizeof **(pointer), #pointer)
int tr_grow(void **pointer, size_t *capacity, size_t n, size_t size, const char *what);

/* Reduces the allocation of an array to n elements. If this fails, the array is unchanged. */
#define TR_SHRINK(pointer, n) tr_shrink((void **)(pointer), (n), sizeof **(pointer))
void tr_shrink(void **pointer, size_t n, size_t size);

/* Declares a local pointer whose array is freed when its scope ends, also if TR_TRY() returns an error:
 *
 *     TR_FREED double *sum = NULL;
 *     TR_TRY(TR_NEW(&sum, n));
 */
#define TR_FREED __attribute__((cleanup(tr_free_at)))
void tr_free_at(void *pointer); /* address of a pointer from malloc() or NULL */

/* Declares a local variable for whose address `close` is called when its scope ends. */
#define TR_CLOSED_BY(close) __attribute__((cleanup(close)))

/* Copies a string.
 *
 * @param [out] copy  receives the copy. Free it with free().
 * @return TR_OK, or TR_ERR_SYSTEM if memory is exhausted
 */
int tr_copy_string(const char *from, char **copy);

/* Formats a string as printf does.
 *
 * @param [out] text  receives the string. Free it with free().
 * @return TR_OK, or TR_ERR_SYSTEM if memory is exhausted
 */
int tr_format(char **text, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* ---- printing ---- */

/* Prints like fprintf, but text in the arguments cannot act on a terminal: control characters, bytes that are not UTF-8 and
 * characters that reverse text become visible (\x1b, \u202e); of line feeds only those of the format remain.
 * tr_fail() and tr_say() escape their text in the same way.
 *
 * @return a negative number on failure
 */
int tr_printf(FILE *file, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* ---- output files ---- */

/* An output file. It is written under the temporary name <path>.part, and renamed to <path> when it is complete. */
struct tr_target {
    FILE *file;        /* the caller writes to this stream */
    char *path, *part; /* the final name and the temporary name */
    int how;           /* flags of enum tr_target_how that were passed to tr_target_open() */
    bool in_place;     /* the file is written under its final name */
};

enum tr_target_how {
    TR_TARGET_DURABLE = 1, /* fsync before the file is renamed */
    /* the user chose the name: a symbolic link is followed; a device or pipe is written in place */
    TR_TARGET_NAMED = 2,
    TR_TARGET_IN_PLACE = 4 /* write the file under its final name */
};

/* Creates an output file. In a folder that all users can write to, links and files of other users are refused, and the new file
 * has mode 0600; elsewhere the mode is 0666 minus the umask.
 *
 * @param [in]  how     sum of tr_target_how
 * @param [out] target  close it with tr_target_close(), also if this function fails
 * @param [in]  format  format of the path, as for printf
 * @return TR_OK, TR_ERR_NO_OUTPUT, TR_ERR_NO_PERM (a part of the path belongs to another user), TR_ERR_IO
 */
int tr_target_open(struct tr_target *target, int how, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Renames the file if status is TR_OK and all writes succeeded; removes it otherwise. Frees the members of the target.
 *
 * @param [in] status  status of the functions that wrote to the file
 * @return status if it is not TR_OK; otherwise TR_OK or TR_ERR_IO
 */
int tr_target_close(struct tr_target *target, int status);

/* ---- numbers as text ---- */

enum { TR_NUMBER_ROOM = 32 }; /* size in bytes of a buffer for one number */

/* Writes a number with the fewest digits that read back as the same number (at most 9 for f32, 17 for f64).
 *
 * @param [out] at  buffer of TR_NUMBER_ROOM bytes; no terminating zero is written
 * @return the address after the last character
 *
 * tr_put_f64() uses the C library and therefore the decimal point of the current locale.
 */
char *tr_put_f32(char *at, float x);
char *tr_put_f64(char *at, double x);

/* ---- time ---- */

double tr_now(void);           /* seconds on a monotonic clock */
void tr_sleep(double seconds); /* suspends the thread */

/* Lets a long computation serve other ranks. Inside compute() and evaluate() of a stage it answers requests of other ranks and
 * advances this rank's own messages, at most once in 100 µs; all other calls cost about 30 ns. Call it every few microseconds.
 * Outside a stage it does nothing. Server functions must not call it, because they change memory from which it answers.
 */
void tr_seam(void);

/* ---- random numbers ---- */

/* A xoshiro256** generator. Each triple (seed, who, what) has its own stream of random numbers, so that results do not depend on
 * the order in which ranks run. */
struct tr_rng {
    uint64_t s[4];
};

/* Starts the stream (seed, who, what), for example (seed of the job, worker, pass). */
void tr_rng_seed(struct tr_rng *rng, uint64_t seed, uint64_t who, uint64_t what);
uint64_t tr_rng_next(struct tr_rng *rng);              /* 64 uniform bits */
uint64_t tr_rng_below(struct tr_rng *rng, uint64_t n); /* uniform in 0 .. n - 1; requires n > 0 */
double tr_rng_uniform(struct tr_rng *rng);             /* uniform in [0, 1) with 53 bits */
double tr_rng_normal(struct tr_rng *rng);              /* mean 0, variance 1 */

/* Fills order with a uniformly distributed permutation of 0 .. n - 1. */
void tr_rng_permutation(struct tr_rng *rng, uint32_t *order, size_t n);

/* Mixes the bits of one number (finaliser of splitmix64): a hash of keys and seeds. */
static inline uint64_t tr_mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* ---- minimum, maximum, searching, sorting ---- */

static inline int tr_min_int(int a, int b)
{
    return a < b ? a : b;
}

static inline int tr_max_int(int a, int b)
{
    return a > b ? a : b;
}

static inline size_t tr_min_size(size_t a, size_t b)
{
    return a < b ? a : b;
}

static inline size_t tr_max_size(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* Return the smallest i with ascending[i] >= x, or n if all n numbers are below x. */
static inline size_t tr_place_u64(const uint64_t *ascending, size_t n, uint64_t x)
{
    size_t low = 0;
    while (low < n) {
        size_t middle = low + (n - low) / 2;
        if (ascending[middle] < x) low = middle + 1;
        else n = middle;
    }
    return low;
}

static inline size_t tr_place_u32(const uint32_t *ascending, size_t n, uint32_t x)
{
    size_t low = 0;
    while (low < n) {
        size_t middle = low + (n - low) / 2;
        if (ascending[middle] < x) low = middle + 1;
        else n = middle;
    }
    return low;
}

/* Compares two uint64_t for qsort(), ascending. */
int tr_compare_u64(const void *a, const void *b);

/* Sorts n numbers in ascending order by radix sort, in O(n).
 *
 * @param [in,out] number  the n numbers
 * @param [out]    other   scratch memory of n numbers
 */
void tr_sort_u32(uint32_t *number, uint32_t *other, size_t n);

#ifdef __cplusplus
}
#endif
#endif
