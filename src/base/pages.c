#define _GNU_SOURCE
#include "base/pages.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

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
