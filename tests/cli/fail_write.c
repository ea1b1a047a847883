/* Loaded before a program, it makes one step of writing fail: the $TR_FAIL_AT-th of all system calls that open, write, truncate,
 * rename or sync a file under the folder $TR_FAIL_UNDER. $TR_FAIL is the fault: enospc (for all later calls, too), eio (for this
 * call alone) or kill. The number of calls is written to $TR_FAIL_COUNT. test_writes.sh uses it.
 *
 * Calls inside the C library cannot be intercepted by the linker, so the kernel intercepts the system calls
 * (SECCOMP_RET_TRAP), except those with our own sixth argument. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

enum { OURS = 0x7472 };
static _Atomic long calls;
static long fails_at;
static const char *how, *under;

static long repeat(long call, const greg_t *r)
{
    long result = syscall(call, r[REG_RDI], r[REG_RSI], r[REG_RDX], r[REG_R10], r[REG_R8], OURS);
    return result < 0 ? -errno : result;
}

/* Whether it changes a file that is watched. */
static bool counts(long call, const greg_t *r)
{
    char link[64], path[4096] = "";
    size_t n = strlen(under);
    if (call == SYS_openat && !(r[REG_RDX] & (O_WRONLY | O_RDWR | O_CREAT))) return false;
    if (call == SYS_openat || call == SYS_rename) {
        const char *name = (const char *)r[REG_RSI];
        return name[0] != '/' || strncmp(name, under, n) == 0;
    }
    snprintf(link, sizeof link, "/proc/self/fd/%d", (int)r[REG_RDI]);
    return readlink(link, path, sizeof path - 1) > 0 && strncmp(path, under, n) == 0;
}

static void on_call(int number, siginfo_t *info, void *where)
{
    (void)number;
    int before = errno;
    greg_t *r = ((ucontext_t *)where)->uc_mcontext.gregs;
    long visit = counts(info->si_syscall, r) ? atomic_fetch_add(&calls, 1) + 1 : 0;
    bool full = strcmp(how, "enospc") == 0,
         fails = visit > 0 && fails_at > 0 && (full ? visit >= fails_at : visit == fails_at);
    if (fails && strcmp(how, "kill") == 0) raise(SIGKILL);
    r[REG_RAX] = fails ? (full ? -ENOSPC : -EIO) : repeat(info->si_syscall, r);
    errno = before;
}

/* Threads that block all signals must not block this one: the kernel would kill them. */
int pthread_sigmask(int what, const sigset_t *set, sigset_t *old)
{
    static int (*next)(int, const sigset_t *, sigset_t *);
    sigset_t most;
    if (!next) *(void **)&next = dlsym(RTLD_NEXT, "pthread_sigmask");
    if (!set) return next(what, set, old);
    most = *set;
    sigdelset(&most, SIGSYS);
    return next(what, &most, old);
}

#define LOAD(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
#define TRAPS(call)                                                                                          \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_##call, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP)

__attribute__((constructor)) static void begin(void)
{
    struct sock_filter filter[] = {LOAD(args[5]),
                                   BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, OURS, 0, 1),
                                   BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
                                   LOAD(nr),
                                   TRAPS(write),
                                   TRAPS(writev),
                                   TRAPS(pwrite64),
                                   TRAPS(openat),
                                   TRAPS(ftruncate),
                                   TRAPS(rename),
                                   TRAPS(fsync),
                                   TRAPS(fdatasync),
                                   BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    struct sigaction action = {.sa_sigaction = on_call, .sa_flags = SA_SIGINFO | SA_NODEFER};
    how = getenv("TR_FAIL");
    under = getenv("TR_FAIL_UNDER");
    if (!how || !under) return;
    if (getenv("TR_FAIL_AT")) fails_at = atol(getenv("TR_FAIL_AT"));
    sigaction(SIGSYS, &action, NULL);
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) < 0)
        _exit(77);
}

__attribute__((destructor)) static void end(void)
{
    const char *path = getenv("TR_FAIL_COUNT");
    long all = atomic_load(&calls);
    FILE *file = path ? fopen(path, "w") : NULL;
    if (file) fprintf(file, "%ld\n", all);
    if (file) fclose(file);
}
