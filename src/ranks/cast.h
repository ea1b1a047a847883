/* The cast of a stage: which workers compute in it, and who else is needed (FlexPS, section 4.1: a stage runs on a set of
 * workers of its own). Workers are those of some neighbouring groups, of each group as many of its first members: so a
 * cast is three numbers, and its workers are numbered by group and member as those of the layout are.
 *
 * The crew of a cast is all ranks that act while its stage runs: the workers, the servers that are needed, and rank 0, which
 * schedules. Everybody else may be anywhere.
 */
#ifndef TR_RANKS_CAST_H
#define TR_RANKS_CAST_H

#include <mpi.h>
#include <stdbool.h>

struct tr_context;

/* Which workers: of the groups first_group .. first_group + groups - 1, members 0 .. group_size - 1 of each. */
struct tr_cast_choice {
    int first_group, groups, group_size;
};

struct tr_cast {
    struct tr_cast_choice of;
    int worker, group, member; /* this rank's numbers in it, or -1 */
    MPI_Comm members;          /* of this rank's group in it, by member; MPI_COMM_NULL elsewhere */
    MPI_Comm crew;             /* by rank; MPI_COMM_NULL where this rank is none of it */
    bool *in_crew;             /* by rank; NULL: all */
    bool owned;                /* the communicators are its own */
};

/* All workers of the layout, all ranks as the crew: no communicators of its own. */
void tr_cast_all(struct tr_context *tr, struct tr_cast *cast);

/* Some of the workers, and for the time being all ranks as the crew. All ranks. */
int tr_cast_open(struct tr_context *tr, struct tr_cast_choice choice, struct tr_cast *cast);

/* Says whether this rank is needed: from now on the crew is those who are, the workers and rank 0. All ranks. */
int tr_cast_set_crew(struct tr_context *tr, struct tr_cast *cast, bool needed);

void tr_cast_close(struct tr_cast *cast); /* all ranks; zeros are fine */

static inline int tr_cast_workers(const struct tr_cast *cast)
{
    return cast->of.groups * cast->of.group_size;
}

static inline bool tr_cast_needs(const struct tr_cast *cast, int rank)
{
    return !cast->in_crew || cast->in_crew[rank];
}

/* The rank of a worker of the cast; whether a rank is one. */
int tr_cast_rank(const struct tr_context *tr, const struct tr_cast *cast, int worker);
bool tr_cast_has(const struct tr_context *tr, const struct tr_cast *cast, int rank);

#endif
