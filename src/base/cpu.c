#define _GNU_SOURCE
#include "trireme/cpu.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"

static const char *const names[] = {"plain", "avx2", "avx512"};

static enum tr_cpu best(void)
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
    enum tr_cpu level = best();
    const char *wish = getenv("TRIREME_CPU");
    for (int i = TR_CPU_PLAIN; wish && i < (int)level; i++)
        if (strcmp(wish, names[i]) == 0) return (enum tr_cpu)i;
    return level;
}

const char *tr_cpu_name(enum tr_cpu level)
{
    return names[level];
}

void tr_blis_environment(void)
{
    if (tr_cpu() == TR_CPU_AVX512) setenv("BLIS_ARCH_TYPE", "0", 0); /* skx */
}

void tr_cpu_lower(int level)
{
    const char *blis = getenv("BLIS_ARCH_TYPE");
    setenv("TRIREME_CPU", names[level], 1);
    if (level < TR_CPU_AVX512 && blis && strcmp(blis, "0") == 0) setenv("BLIS_ARCH_TYPE", "3", 1); /* haswell */
}
