/* Rotation: blocks go round the K slaves of a group, so that no two slaves hold the same block at once and each has had
 * all of them after a full rotation (Angel, section 4.2: the schedule of LDA, and of matrix factorization).
 *
 * There are D blocks for each slave: in round r slave i has block (D i + r) mod (D K), and a rotation has D K rounds. D is
 * 1 where the members of a group lie on one node. Across nodes it is 2, so that a block can travel while the slave that
 * gets it works on the one before (Teflioudi et al., Distributed matrix completion, ICDM 2012: DSGD++). Slaves wait for
 * nothing but their blocks: one may be ahead of another by some rounds.
 *
 * A block is memory of a fixed size whose meaning is the model's: rows of a table, counts, anything. Between groups, a
 * model takes what blocks hold from its tables before the rounds of a clock and brings back to them what has changed
 * afterwards.
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
    void *memory; /* at a multiple of 64 */
    size_t bytes;
} tr_block;

/* D, the same on all ranks. Between two rotations a slave has so many blocks, which follow each other. */
int tr_rotation_depth(const tr_context *tr);

/* Makes a rotation of D blocks for each member of the group; block b has bytes[b] bytes, zeros at first. All members, in a
 * stage's prepare function or later, with the same sizes. table.rotate says how blocks get round: in memory that the
 * members share, where their node has room for it, or from each to the one before. Memory of a member: D blocks, or where
 * they travel D + 1 of the largest. `parts`, 1 and more, is what tr_rotation_pass() sends a block in at most: 1 for who does
 * not call it. Free with tr_rotation_close(). */
int tr_rotation_open(tr_worker *me, const size_t *bytes, int parts, tr_rotation **rotation);

/* All members, after the stage; NULL inside is fine. */
void tr_rotation_close(tr_rotation **rotation);

/* For compute functions of stages that say so (tr_stage.rotates): waits for the block of this member's next round, which is
 * its own until it gives it on. Every clock takes and gives as often as there are rounds in its rotations. block->memory is
 * NULL where a member has failed, who gives nothing on: there is nothing more to do in this stage. */
int tr_rotation_take(tr_rotation *rotation, tr_block *block);
int tr_rotation_give(tr_rotation *rotation);

/* Between take and give: so many bytes from the block's beginning on will not be changed by this member any more. Where
 * blocks travel they may leave, in parts, while it works on the rest, which it still has to give. Costs nothing to speak
 * of when called often. */
void tr_rotation_pass(tr_rotation *rotation, size_t bytes);

/* Between two clocks, or before the first round of one: waits for the block that this member will have in the round after
 * `rounds` more, 0 .. D - 1. It stays with it. */
int tr_rotation_look(tr_rotation *rotation, int rounds, tr_block *block);

/* How blocks get round, for reports: "share", "travel"; "alone" in a group of one. */
const char *tr_rotation_way(const tr_rotation *rotation);

#ifdef __cplusplus
}
#endif
#endif
