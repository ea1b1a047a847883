/* Messages of 8-bit values, shorter by Huffman codes: exponents, signs and gaps are far from evenly spread, and a third of a
 * message goes. It is done by zlib, which does not look for repeats: there are none.
 *
 * A squeezed message begins with the head of encoding.h, of which the fourth byte is 1; then come the bytes behind the head
 * as it was (uint32), and these as a raw stream of deflate. */
#ifndef TR_TABLE_SQUEEZE_H
#define TR_TABLE_SQUEEZE_H

#include "table/encoding.h"

/* What zlib needs, and memory for one message; NULL: not needed yet. */
struct tr_squeezer;
void tr_squeezer_free(struct tr_squeezer **squeezer);

/* Squeezes an encoded message where it lies, if that makes it shorter. */
int tr_squeeze(struct tr_squeezer **squeezer, void *message, size_t *bytes);

/* The message as it was, where it lies or in memory that the next call uses again. TR_ERR_PEER: it is damaged, or longer than
 * any of this slice. */
int tr_unsqueeze(struct tr_squeezer **squeezer, const struct tr_slice *slice, const void **message,
                 size_t *bytes);

#endif
