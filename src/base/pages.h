/* Pages of memory: rounding to pages, and returning pages to the system before their allocation can be freed. */
#ifndef TR_PAGES_H
#define TR_PAGES_H

#include <stddef.h>
#include <stdint.h>

size_t tr_page_bytes(void);

/* Rounds up to whole pages. */
uint64_t tr_to_pages(uint64_t bytes);

/* Returns the whole pages within a range of bytes to the system; their content is lost. The allocation must still be freed. memory
 * may be NULL. */
void tr_pages_give_back(void *memory, uint64_t bytes);

/* Moves n units to another place and frees *array (from malloc(), may be NULL), which becomes NULL. It proceeds in pieces, so that
 * both together need little more memory than one. */
void tr_pages_move(void *to, void **array, uint64_t n, size_t unit);

#endif
