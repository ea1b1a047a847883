/* Loaded before a program, it makes the program's wall clock jump: by the number of seconds that is in the file $TR_CLOCK at that
 * moment. The file is an array of 64-bit integers: the first is for processes that are no rank, the second for rank 0, and so
 * on. Monotonic clocks do not change, as when an administrator sets the clock of a computer. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static _Atomic int64_t *jump; /* of this process; NULL: none */

__attribute__((constructor)) static void begin(void)
{
    const char *path = getenv("TR_CLOCK"), *rank = getenv("OMPI_COMM_WORLD_RANK");
    size_t slot = rank ? 1 + strtoul(rank, NULL, 10) : 0;
    struct stat about;
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) return;
    if (fstat(file, &about) == 0 && (size_t)about.st_size >= (slot + 1) * sizeof *jump) {
        void *all = mmap(NULL, (size_t)about.st_size, PROT_READ, MAP_SHARED, file, 0);
        if (all != MAP_FAILED) jump = (_Atomic int64_t *)all + slot;
    }
    close(file);
}

int clock_gettime(clockid_t which, struct timespec *now)
{
    static int (*next)(clockid_t, struct timespec *);
    if (!next) *(void **)&next = dlsym(RTLD_NEXT, "clock_gettime");
    int result = next(which, now);
    if (result == 0 && jump && (which == CLOCK_REALTIME || which == CLOCK_REALTIME_COARSE))
        now->tv_sec += atomic_load(jump);
    return result;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
    struct timespec exact;
    (void)zone;
    int result = clock_gettime(CLOCK_REALTIME, &exact);
    *now = (struct timeval){exact.tv_sec, exact.tv_nsec / 1000};
    return result;
}

time_t time(time_t *where)
{
    struct timespec exact;
    clock_gettime(CLOCK_REALTIME, &exact);
    if (where) *where = exact.tv_sec;
    return exact.tv_sec;
}
