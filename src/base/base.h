/* base/: errors, memory, random numbers, time, text buffers (public: trireme/base.h), and information about this process. All other
 * folders of src use it. It does not use MPI. */
#ifndef TR_BASE_H
#define TR_BASE_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "trireme/base.h"

/* Sets the function that tr_seam() calls with `what`; NULL: tr_seam() does nothing. */
typedef void tr_seam_fn(void *what);
void tr_seam_set(tr_seam_fn *work, void *what);

/* ---- this process ---- */

/* Returns the highest resident memory of this process so far, in bytes. */
uint64_t tr_peak_rss(void);

/* Returns the available memory in bytes, limited by the machine and by the control groups of this process; UINT64_MAX: unknown. */
uint64_t tr_memory_free(void);

/* Returns the start time of this process in clock ticks since the start of the machine (/proc); 0: unknown. */
uint64_t tr_start_ticks(void);

/* Returns the number in an environment variable, or `otherwise` if the variable is not set. */
long tr_number_in(const char *variable, long otherwise);

/* Sets BLIS_ARCH_TYPE unless the user has set it. Call it before the first call of BLIS, which does not recognize processors with
 * generic names (virtual machines) and would use AVX2 kernels on processors with AVX-512. */
void tr_blis_environment(void);

/* Limits tr_cpu() to this level, and BLIS to AVX2 if the level is below AVX-512. Call it before the first call of BLIS. */
void tr_cpu_lower(int level);

/* ---- pages of memory ---- */

size_t tr_page_bytes(void);

/* Rounds up to whole pages. */
uint64_t tr_to_pages(uint64_t bytes);

/* Returns the whole pages within a range of bytes to the system; their content is lost. The caller must still free the allocation.
 * memory may be NULL. */
void tr_pages_give_back(void *memory, uint64_t bytes);

/* Copies *array, n elements of `unit` bytes from malloc(), to `to`, frees it and sets *array to NULL; *array may be NULL. Pages
 * that are copied are returned to the system at intervals, so that both arrays together need little more memory than one. */
void tr_pages_move(void *to, void **array, uint64_t n, size_t unit);

#endif
