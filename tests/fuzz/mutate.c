/* A fuzzer for compilers without libFuzzer, and for the test suite: feeds LLVMFuzzerTestOneInput() of the harness it is linked with,
 * and takes the words of libFuzzer that tools/fuzz uses.
 *
 *   fuzz_job [-runs=N] [-max_total_time=SECONDS] [-seed=N] [-timeout=SECONDS] [-artifact_prefix=TEXT] FOLDER... | FILE...
 *
 * Files are used unchanged. The files in folders are seeds: they are used first, then mutations of them, for N runs or SECONDS
 * seconds, the same ones every time for the same -seed. What makes the harness abort, or takes longer than -timeout, is kept in
 * TEXTcrash-SEED-RUN or TEXTtimeout-SEED-RUN and can be given as the only file. Sanitizers are to abort (abort_on_error=1).
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "fuzz.h"

enum { MOST_BYTES = 1 << 14, MOST_SEEDS = 1024, MOST_CHANGES = 6 };

struct input {
    size_t size;
    uint8_t bytes[MOST_BYTES];
};

/* Global for the sake of the signal handler and of size. */
static struct input seed[MOST_SEEDS], now;
static size_t seeds;
static uint64_t fed;

static struct {
    uint64_t runs, seconds, seed;
    unsigned timeout;
    const char *prefix;
} wish = {.runs = UINT64_MAX, .seconds = UINT64_MAX, .seed = 1, .prefix = ""};

/* Texts that parsers may fail on. */
/* clang-format off */
static const char *const token[] = {
    "0", "-1", "1e999", "1e-999", "nan", "-inf", "0x1p3", "1.5e", "4294967295", "4294967296",
    "18446744073709551616", "+", "-", ".", ":", ": ", "\n", "\r\n", "\r", "\t", "  ", "#", "[", "]", "{",
    "}", ",", "'", "\"", "&a", "*a", "<<", "|", "\1", "\x7f", "\xff", "\xc3", "ä", "~", "null", "yes",
    "1/n", "auto", "solve.rate=1", "w\n", "bias", "label", "qid:1", "1:1 ", "-1 ", "---\n", "...\n",
    "!!int", "\x1f\x8b\x08",
};
/* clang-format on */

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

/* The handler of signals: keeps the input, and lets the signal end the program. */
static void keep(int number)
{
    char name[4096], text[4200];
    snprintf(name, sizeof name, "%s%s-%llu-%llu", wish.prefix, number == SIGPROF ? "timeout" : "crash",
             (unsigned long long)wish.seed, (unsigned long long)fed);
    int said = snprintf(text, sizeof text, "mutate: the input is in %s\n", name);
    int file = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    if (file >= 0 && write(file, now.bytes, now.size) == (ssize_t)now.size &&
        write(2, text, (size_t)said) > 0)
        close(file);
    signal(number, SIG_DFL);
    raise(number);
}

/* Of CPU time, so that no other load on the machine counts; 0 for none. */
static void limit_cpu(unsigned seconds)
{
    struct itimerval limit = {.it_value.tv_sec = seconds};
    setitimer(ITIMER_PROF, &limit, NULL);
}

/* The harness gets a copy of just the size, so that sanitizers see reading beyond it. */
static void feed(void)
{
    uint8_t *copy = malloc(now.size ? now.size : 1);
    if (!copy) abort();
    memcpy(copy, now.bytes, now.size);
    fed++;
    limit_cpu(wish.timeout);
    LLVMFuzzerTestOneInput(copy, now.size);
    limit_cpu(0);
    free(copy);
}

static void read_file(const char *path)
{
    struct input *s = &seed[seeds++];
    FILE *file = seeds <= MOST_SEEDS ? fopen(path, "rb") : NULL;
    if (!file) {
        perror(path);
        exit(66);
    }
    s->size = fread(s->bytes, 1, MOST_BYTES, file);
    fclose(file);
}

static int is_file(const struct dirent *entry)
{
    return *entry->d_name != '.';
}

/* Whether it is a folder; in order, so that mutations are the same everywhere. */
static bool read_folder(const char *path)
{
    struct dirent **entry;
    int n = scandir(path, &entry, is_file, alphasort);
    for (int i = 0; i < n; i++) {
        char name[4096];
        snprintf(name, sizeof name, "%s/%s", path, entry[i]->d_name);
        if (seeds < MOST_SEEDS) read_file(name);
        free(entry[i]);
    }
    if (n >= 0) free(entry);
    return n >= 0;
}

/* Whether the word is an option; others of libFuzzer mean nothing here. */
static bool is_option(const char *word)
{
    if (*word != '-') return false;
    const char *value = strchr(word, '=');
    uint64_t number = value ? strtoull(value + 1, NULL, 10) : 0;
    if (!strncmp(word, "-runs=", 6)) wish.runs = number;
    if (!strncmp(word, "-max_total_time=", 16)) wish.seconds = number;
    if (!strncmp(word, "-seed=", 6)) wish.seed = number;
    if (!strncmp(word, "-timeout=", 9)) wish.timeout = (unsigned)number;
    if (!strncmp(word, "-artifact_prefix=", 17)) wish.prefix = value + 1;
    return true;
}

/* Sanitizers have handlers of their own for some. */
static void catch (int number)
{
    void (*before)(int) = signal(number, keep);
    if (before != SIG_DFL) signal(number, before);
}

int main(int argc, char **argv)
{
    bool folders = false;
    for (int i = 1; i < argc; i++)
        if (!is_option(argv[i])) {
            if (read_folder(argv[i])) folders = true;
            else read_file(argv[i]);
        }
    if (seeds == 0) {
        fprintf(stderr,
                "usage: %s [-runs=N] [-max_total_time=SECONDS] [-seed=N] [-timeout=SECONDS] FOLDER... | "
                "FILE...\n",
                argv[0]);
        return 64;
    }
    catch (SIGABRT), catch (SIGSEGV), catch (SIGBUS), catch (SIGFPE), catch (SIGPROF);
    time_t begun = time(NULL);
    for (size_t i = 0; i < seeds; i++) {
        now = seed[i];
        feed();
    }
    for (uint64_t run = 0; folders && run < wish.runs && (uint64_t)(time(NULL) - begun) < wish.seconds;
         run++) {
        struct tr_rng rng;
        tr_rng_seed(&rng, wish.seed, run, 0);
        now = seed[run % seeds];
        for (size_t n = 1 + below(&rng, MOST_CHANGES); n > 0; n--) change(&now, &rng);
        feed();
    }
    printf("stat::number_of_executed_units: %llu\n", (unsigned long long)fed);
    return 0;
}
