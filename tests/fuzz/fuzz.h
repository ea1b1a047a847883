/* What the fuzzing programs share: how they report a failure, and inputs that are read byte by byte. */
#ifndef TR_FUZZ_H
#define TR_FUZZ_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

/* What each program is: called with one input after the other, by mutate.c or by libFuzzer. Returns 0. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Aborts unless it is so, which is how a fuzzer learns that the input is a find; tells the last error, too. */
static inline void expect(bool good, const char *what)
{
    if (good) return;
    fprintf(stderr, "fuzz: %s: %s\n", what, tr_error_text());
    abort();
}

/* The same where the condition says enough. */
#define DEMAND(condition)        expect(condition, TR_FUZZ_AT(__FILE__, __LINE__) #condition)
#define TR_FUZZ_AT(file, line)   TR_FUZZ_TEXT(file, line)
#define TR_FUZZ_TEXT(file, line) file ":" #line ": not true: "

static inline bool same_bits(float a, float b)
{
    return memcmp(&a, &b, sizeof a) == 0;
}

/* The status is that of bad data, or `other`, and its text is one line. Returns the status. */
static inline int expect_error(int status, int other)
{
    expect(status == TR_ERR_DATA || status == other, "odd status");
    expect(*tr_error_text() && !strchr(tr_error_text(), '\n'), "not one line");
    return status;
}

struct bytes {
    const uint8_t *data;
    size_t n;
};

/* The next byte of the input; 0 after the last. */
static inline unsigned next_byte(struct bytes *in)
{
    if (in->n == 0) return 0;
    in->n--;
    return *in->data++;
}

#endif
