/* A short run of a fuzzer without clang, for the test suite: feeds LLVMFuzzerTestOneInput() of the harness it is linked
 * with, first the seeds as they are, then mutations of them, the same ones every time.
 *
 *   fuzz_job ROUNDS SEED…
 *
 * What makes the harness abort is kept in fuzz-crash, in the current folder, and can be given as the only seed, with 0
 * rounds. Sanitizers abort with ASAN_OPTIONS=abort_on_error=1. For a long search with feedback build the harness with
 * libFuzzer, as its head says, and give it the folder of seeds:
 *
 *   /tmp/fuzz_job -timeout=10 -max_total_time=600 /tmp/found tests/fuzz/seeds/job
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include "fuzz.h"

enum { MOST_BYTES = 1 << 14, MOST_SEEDS = 64, MOST_CHANGES = 6 };

struct input {
    size_t size;
    uint8_t bytes[MOST_BYTES];
};

static struct input seed[MOST_SEEDS], now; /* global for the sake of the signal handler and of size */
static size_t seeds;

/* What parsers stumble over. */
static const char *const token[] = {"0",
                                    "-1",
                                    "1e999",
                                    "1e-999",
                                    "nan",
                                    "-inf",
                                    "0x1p3",
                                    "1.5e",
                                    "4294967295",
                                    "4294967296",
                                    "18446744073709551616",
                                    "+",
                                    "-",
                                    ".",
                                    ":",
                                    ": ",
                                    "\n",
                                    "\r\n",
                                    "\r",
                                    "\t",
                                    "  ",
                                    "#",
                                    "[",
                                    "]",
                                    "{",
                                    "}",
                                    ",",
                                    "'",
                                    "\"",
                                    "&a",
                                    "*a",
                                    "<<",
                                    "|",
                                    "\1",
                                    "\x7f",
                                    "\xff",
                                    "\xc3",
                                    "ä",
                                    "~",
                                    "null",
                                    "yes",
                                    "1/n",
                                    "auto",
                                    "solve.rate=1",
                                    "w\n",
                                    "bias",
                                    "label",
                                    "qid:1",
                                    "1:1 ",
                                    "-1 ",
                                    "---\n",
                                    "...\n",
                                    "!!int",
                                    "\x1f\x8b\x08"};

static size_t below(struct tr_rng *rng, size_t n)
{
    return (size_t)tr_rng_below(rng, n);
}

/* Puts bytes in at a place, as many as there is room for. */
static void insert(struct input *in, size_t at, const void *bytes, size_t n)
{
    if (n > MOST_BYTES - in->size) n = MOST_BYTES - in->size;
    memmove(in->bytes + at + n, in->bytes + at, in->size - at);
    memmove(in->bytes + at, bytes, n);
    in->size += n;
}

static void cut(struct input *in, size_t at, size_t n)
{
    memmove(in->bytes + at, in->bytes + at + n, in->size - at - n);
    in->size -= n;
}

static size_t number_end(const struct input *in, size_t at)
{
    while (at < in->size && in->bytes[at] && strchr("0123456789.eE+-", in->bytes[at])) at++;
    return at;
}

static void change(struct input *in, struct tr_rng *rng)
{
    size_t at = below(rng, in->size + 1), rest = in->size - at;
    const char *word = token[below(rng, sizeof token / sizeof *token)];
    switch (below(rng, 7)) {
    case 0: /* a bit */
        if (rest) in->bytes[at] ^= (uint8_t)(1u << below(rng, 8));
        break;
    case 1: /* a byte */
        if (rest) in->bytes[at] = (uint8_t)below(rng, 256);
        break;
    case 2: /* a piece less, or all behind it */
        cut(in, at, below(rng, 4) ? below(rng, tr_min_size(rest, 16) + 1) : rest);
        break;
    case 3: /* a piece twice */
    {
        uint8_t piece[256];
        size_t n = below(rng, tr_min_size(rest, sizeof piece) + 1);
        memcpy(piece, in->bytes + at, n);
        insert(in, at, piece, n);
        break;
    }
    case 4: /* a piece of another seed */
    {
        const struct input *other = &seed[below(rng, seeds)];
        size_t from = below(rng, other->size + 1);
        insert(in, at, other->bytes + from, below(rng, tr_min_size(other->size - from, 256) + 1));
        break;
    }
    case 5: insert(in, at, word, strlen(word)); break;
    case 6: /* something else for a number */
        cut(in, at, number_end(in, at) - at);
        insert(in, at, word, strlen(word));
        break;
    }
}

static void snapshot(int number)
{
    static const char said[] = "mutate: the input is in fuzz-crash\n";
    int file = open("fuzz-crash", O_WRONLY | O_CREAT | O_TRUNC, 0666);
    if (file >= 0 && write(file, now.bytes, now.size) == (ssize_t)now.size &&
        write(2, said, sizeof said - 1) > 0)
        close(file);
    signal(number, SIG_DFL);
    raise(number);
}

/* The harness gets a copy of just the size, so that sanitizers see reading beyond it. */
static void feed(void)
{
    uint8_t *copy = malloc(now.size ? now.size : 1);
    if (!copy) abort();
    memcpy(copy, now.bytes, now.size);
    LLVMFuzzerTestOneInput(copy, now.size);
    free(copy);
}

static bool read_seed(const char *path)
{
    struct input *s = &seed[seeds++];
    FILE *file = fopen(path, "rb");
    if (!file) return false;
    s->size = fread(s->bytes, 1, MOST_BYTES, file);
    return fclose(file) == 0;
}

int main(int argc, char **argv)
{
    if (argc < 3 || argc - 2 > MOST_SEEDS) {
        fprintf(stderr, "usage: %s ROUNDS SEED…\n", argv[0]);
        return 64;
    }
    for (int i = 2; i < argc; i++)
        if (!read_seed(argv[i])) {
            perror(argv[i]);
            return 66;
        }
    signal(SIGABRT, snapshot);
    for (size_t i = 0; i < seeds; i++) {
        now = seed[i];
        feed();
    }
    uint64_t rounds = strtoull(argv[1], NULL, 10);
    for (uint64_t round = 0; round < rounds; round++) {
        struct tr_rng rng;
        tr_rng_seed(&rng, 1, round, 0);
        now = seed[round % seeds];
        for (size_t n = 1 + below(&rng, MOST_CHANGES); n > 0; n--) change(&now, &rng);
        feed();
    }
    printf("%llu inputs\n", (unsigned long long)(seeds + rounds));
    return 0;
}
