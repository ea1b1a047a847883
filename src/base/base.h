/* base/ — what every other room stands on and nothing of machine learning: errors, memory, random numbers,
 * time, growing text (all public: trireme/base.h), and facts about this process. Nothing here knows of MPI.
 */
#ifndef TR_BASE_H
#define TR_BASE_H

#include <stdio.h>

#include "trireme/base.h"

/* What seams do from now on, until this is called with NULL. */
typedef void tr_seam_fn(void *what);
void tr_seam_set(tr_seam_fn *work, void *what);

/* ---- this process ---- */

/* Highest resident memory of this process so far, in bytes. */
uint64_t tr_peak_rss(void);

/* Bytes of memory that this process and others may still take: of the machine, and of the control groups that this process is
 * in; UINT64_MAX where the system does not tell. */
uint64_t tr_memory_free(void);

/* When this process started, in clock ticks since the machine did, as /proc says it; 0: not known. */
uint64_t tr_start_ticks(void);

/* The number in this variable of its environment; otherwise: where there is none. */
long tr_number_in(const char *variable, long otherwise);

/* Before the first call of BLIS: it does not know processors with generic names, as virtual machines have them, and would
 * use AVX2 kernels where AVX-512 is there. Sets BLIS_ARCH_TYPE where the user has not set it. */
void tr_blis_environment(void);

/* From now on tr_cpu() is that level at most, and BLIS uses AVX2 where it was to use AVX-512: before its first call. */
void tr_cpu_lower(int level);

#endif
