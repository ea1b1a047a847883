/* Whole pages of memory: sizes in them, and pages given back before what they are part of can be freed. */
#ifndef TR_PAGES_H
#define TR_PAGES_H

#include <stddef.h>
#include <stdint.h>

size_t tr_page_bytes(void);

/* Rounded up to whole pages. */
uint64_t tr_to_pages(uint64_t bytes);

/* Gives back the whole pages among some bytes whose contents nobody needs any more. The memory (NULL is fine) can
 * still be freed. */
void tr_pages_give_back(void *memory, uint64_t bytes);

/* Copies n units elsewhere and frees *array (from malloc, perhaps NULL), which becomes NULL: piece by piece, so that together they
 * take hardly more memory than one of them. */
void tr_pages_move(void *to, void **array, uint64_t n, size_t unit);

#endif
