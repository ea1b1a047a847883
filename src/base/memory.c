#define _GNU_SOURCE
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/base.h"
#include "base/pages.h"

/* ---- available memory ---- */

/* Returns the number in a file; UINT64_MAX if there is none, as for a control group without a limit. */
static uint64_t read_number(const char *path)
{
    uint64_t number = UINT64_MAX;
    FILE *file = fopen(path, "re");
    if (file && fscanf(file, "%" SCNu64, &number) != 1) number = UINT64_MAX;
    if (file) fclose(file);
    return number;
}

/* Returns the unused memory of a control group. The file cache (a line of memory.stat) counts as unused. */
static uint64_t left_of(const char *group, const char *limit_name, const char *used_name, const char *cached)
{
    char path[4096], line[256];
    snprintf(path, sizeof path, "%s/%s", group, limit_name);
    uint64_t limit = read_number(path), used, files = 0;
    if (limit > (uint64_t)1 << 60) return UINT64_MAX;
    snprintf(path, sizeof path, "%s/%s", group, used_name);
    used = read_number(path);
    snprintf(path, sizeof path, "%s/memory.stat", group);
    FILE *stat = fopen(path, "re");
    while (stat && fgets(line, sizeof line, stat))
        if (!strncmp(line, cached, strlen(cached))) (void)sscanf(line + strlen(cached), "%" SCNu64, &files);
    if (stat) fclose(stat);
    used = used == UINT64_MAX || used < files ? 0 : used - files;
    return limit > used ? limit - used : 0;
}

/* Returns the minimum over the groups that contain this process. In a container the names of outer groups do not exist; the root of
 * the container is the last one. */
static uint64_t left_of_groups(const char *root, char *name, const char *limit, const char *used,
                               const char *cached)
{
    uint64_t least = UINT64_MAX;
    for (;;) {
        char group[2048];
        snprintf(group, sizeof group, "%s%s", root, name);
        uint64_t left = left_of(group, limit, used, cached);
        if (left < least) least = left;
        char *slash = strrchr(name, '/');
        if (!slash) return least;
        *slash = '\0';
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
            left = left_of_groups("/sys/fs/cgroup", line + 3, "memory.max", "memory.current", "file ");
        else if (name)
            left = left_of_groups("/sys/fs/cgroup/memory", name + strlen(":memory:"), "memory.limit_in_bytes",
                                  "memory.usage_in_bytes", "total_cache ");
        if (left < least) least = left;
    }
    if (file) fclose(file);
    return least;
}

/* ---- pages (pages.h) ---- */

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
