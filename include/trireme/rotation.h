/* Rotation: K blocks go round the K slaves of a group, so that no two slaves hold the same block at once and each has
 * had all of them after K rounds (Angel, section 4.2: the schedule of LDA, and of matrix factorization).
 *
 * In round r slave i has block (i + r) mod K. A block is memory of a fixed size whose meaning is the model's: rows of a
 * table, counts, anything. Between groups, a model takes what blocks hold from its tables before the rounds of a clock
 * and brings back to them what has changed afterwards.
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
    int number;   /* 0 .. K-1 */
    void *memory; /* at a multiple of 64 */
    size_t bytes;
} tr_block;

/* Makes a rotation of as many blocks as the group has members; block b has bytes[b] bytes, zeros at first. All members,
 * in a stage's prepare function or later, with the same sizes. table.rotate says how blocks get round: in memory that
 * the members share, where their node has room for it, or from each to the one before. Memory of a member: one block,
 * or where they travel two of the largest. Free with tr_rotation_close(). */
int tr_rotation_open(tr_worker *me, const size_t *bytes, tr_rotation **rotation);

/* All members, after the stage; NULL inside is fine. */
void tr_rotation_close(tr_rotation **rotation);

/* For a stage's schedule function: gives every member its block for this round, in command.word[0], and the number of
 * full rotations of this clock that are complete, in command.word[1]. False, and no command, once a clock has had so
 * many rotations. */
bool tr_rotation_schedule(const tr_worker *me, int64_t rotations, tr_command *commands);

/* For compute functions: waits for this round's block, which is this member's until it gives it on. Every round that has
 * been scheduled takes and gives once. */
int tr_rotation_take(tr_rotation *rotation, const tr_worker *me, tr_block *block);
int tr_rotation_give(tr_rotation *rotation);

/* For snapshot functions: the block that this member will have in the next clock's first round, which stays with it. */
int tr_rotation_look(tr_rotation *rotation, tr_block *block);

/* How blocks get round, for reports: "share", "travel"; "alone" in a group of one. */
const char *tr_rotation_way(const tr_rotation *rotation);

#ifdef __cplusplus
}
#endif
#endif
