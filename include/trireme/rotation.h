/* Rotation: blocks move through the K members of a group, so that no two members hold the same block at the same time
 * and each member has had every block after a full rotation (Angel, section 4.2: the schedule of LDA and of matrix
 * factorization).
 *
 * Each member has D blocks: in round r member i holds block (D i + r) mod (D K), and a rotation has D K rounds. D is 1 if
 * the members of a group are on one node. Across nodes D is 2, so that a block is transferred while its receiver works on
 * the previous one (Teflioudi et al., Distributed matrix completion, ICDM 2012: DSGD++). Members wait for their blocks
 * only: one may be some rounds ahead of another.
 *
 * A block is memory of a fixed size. The model defines its content: rows of a table, counts, anything. A model fills
 * blocks from its tables before the rounds of a clock and writes changes back to the tables afterwards.
 *
 * Example: one clock of a member.
 *
 *     for (int r = 0; r < tr_rotation_depth(me->tr) * me->group_size; r++) {
 *         tr_block block;
 *         TR_TRY(tr_rotation_take(rotation, &block));
 *         if (!block.memory) break;                          // a member has failed
 *         sample_words(model, block.number, block.memory);
 *         TR_TRY(tr_rotation_give(rotation));
 *     }
 */
#ifndef TRIREME_ROTATION_H
#define TRIREME_ROTATION_H

#include <stdbool.h>
#include <stddef.h>

#include "trireme/stage.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tr_rotation tr_rotation;

typedef struct tr_block {
    int number;   /* 0 .. D K - 1 */
    void *memory; /* aligned to 64 bytes */
    size_t bytes;
} tr_block;

/* Returns D, equal on all ranks. Between two rotations a member holds D consecutive blocks. */
int tr_rotation_depth(const tr_context *tr);

/* Creates a rotation of D blocks per member. All members of the group must call it with the same sizes, in a stage's
 * prepare function or later.
 *
 * @param [in]  bytes     sizes of the D K blocks, which contain zeros at first
 * @param [in]  parts     maximum number of parts in which tr_rotation_pass() sends a block; 1 if it is not called
 * @param [out] rotation  free it with tr_rotation_close(), on all members
 *
 * table.rotate selects how blocks move: through memory that the members share, if their node has enough, or as messages
 * from each member to the previous one. Memory per member: D blocks, or D + 1 of the largest if blocks are sent.
 */
int tr_rotation_open(tr_worker *me, const size_t *bytes, int parts, tr_rotation **rotation);

/* Frees a rotation after the stage and sets *rotation to NULL. All members. *rotation may be NULL. */
void tr_rotation_close(tr_rotation **rotation);

/* Waits for the block of this member's next round; the member owns it until tr_rotation_give(). For compute functions of
 * stages with tr_stage.rotates. Every clock must take and give a multiple of D K blocks.
 *
 * @param [out] block  block->memory is NULL if a member has failed: the compute function should return
 */
int tr_rotation_take(tr_rotation *rotation, tr_block *block);
int tr_rotation_give(tr_rotation *rotation);

/* Declares, between take and give, that the first `bytes` bytes of the block will not change further. If blocks are sent,
 * these bytes may leave while the member works on the rest; the member still has to give the block. Cheap enough to be
 * called often. */
void tr_rotation_pass(tr_rotation *rotation, size_t bytes);

/* Waits, between two clocks or before the first round of one, for the block that this member will hold in the round after
 * `rounds` more, 0 .. D - 1. The block remains with the member. */
int tr_rotation_look(tr_rotation *rotation, int rounds, tr_block *block);

/* Returns how blocks move, for reports: "share", "travel", or "alone" in a group of one. */
const char *tr_rotation_way(const tr_rotation *rotation);

#ifdef __cplusplus
}
#endif
#endif
