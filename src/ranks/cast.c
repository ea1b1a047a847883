#include "ranks/cast.h"

#include <stdlib.h>

#include "ranks/ranks.h"

bool tr_cast_has(const tr_context *tr, const struct tr_cast *cast, int rank)
{
    const struct tr_place *place = &tr->layout.place[rank];
    int group = place->group - cast->of.first_group;
    return (place->roles & TR_SLAVE) && group >= 0 && group < cast->of.groups &&
           place->member < cast->of.group_size;
}

int tr_cast_rank(const tr_context *tr, const struct tr_cast *cast, int worker)
{
    int group = cast->of.first_group + worker / cast->of.group_size, member = worker % cast->of.group_size;
    return tr->layout.worker_rank[group * tr->layout.group_size + member];
}

static void find_place(const tr_context *tr, struct tr_cast *cast)
{
    bool works = tr_cast_has(tr, cast, tr->rank);
    cast->group = works ? tr->me.group - cast->of.first_group : -1;
    cast->member = works ? tr->me.member : -1;
    cast->worker = works ? cast->group * cast->of.group_size + cast->member : -1;
}

void tr_cast_all(tr_context *tr, struct tr_cast *cast)
{
    *cast = (struct tr_cast){
        .of = {0, tr->layout.groups, tr->layout.group_size}, .members = tr->group, .crew = tr->world};
    find_place(tr, cast);
}

int tr_cast_open(tr_context *tr, struct tr_cast_choice choice, struct tr_cast *cast)
{
    *cast = (struct tr_cast){.of = choice, .members = MPI_COMM_NULL, .crew = tr->world, .owned = true};
    find_place(tr, cast);
    MPI_Comm_split(tr->world, cast->worker < 0 ? MPI_UNDEFINED : cast->group, cast->member, &cast->members);
    return TR_OK;
}

int tr_cast_set_crew(tr_context *tr, struct tr_cast *cast, bool needed)
{
    needed = needed || cast->worker >= 0 || tr->rank == 0;
    TR_TRY(TR_NEW(&cast->in_crew, (size_t)tr->size));
    MPI_Allgather(&needed, 1, MPI_C_BOOL, cast->in_crew, 1, MPI_C_BOOL, tr->world);
    MPI_Comm_split(tr->world, needed ? 0 : MPI_UNDEFINED, tr->rank, &cast->crew);
    return TR_OK;
}

void tr_cast_close(struct tr_cast *cast)
{
    if (!cast->owned) return;
    if (cast->in_crew && cast->crew != MPI_COMM_NULL) MPI_Comm_free(&cast->crew);
    if (cast->members != MPI_COMM_NULL) MPI_Comm_free(&cast->members);
    free(cast->in_crew);
    *cast = (struct tr_cast){.worker = -1};
}
