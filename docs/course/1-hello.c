/* 1. Ranks and their roles.
 *
 *   mpirun -n 4 ./1-hello course.yaml
 *   mpirun -n 4 ./1-hello course.yaml ranks.layout=dedicated ranks.servers=1
 *
 * A program that uses Trireme is started like any MPI program, with a job file as its argument. tr_open() starts MPI, reads the
 * job file and assigns roles to each rank. A server stores a part of the parameters. A slave (a member of a group) computes. The
 * leader of a group gives its slaves commands. The scheduler, rank 0, decides when to stop. A rank may have several roles.
 */
#include <stdio.h>
#include <trireme/trireme.h>

enum { MOST_RANKS = 4096 };

static void print(const unsigned *roles, int ranks)
{
    static const char *const names[] = {"scheduler", "server", "leader", "slave"};
    for (int rank = 0; rank < ranks; rank++) {
        printf("rank %d:", rank);
        for (int i = 0; i < 4; i++)
            if (roles[rank] & (1U << i)) printf(" %s", names[i]);
        putchar('\n');
    }
}

int main(int argc, char **argv)
{
    tr_context *tr;
    static unsigned roles[MOST_RANKS];
    TR_TRY(tr_open(&argc, &argv, &tr));

    /* Functions return a status: TR_OK, or a code of sysexits.h. tr_agree() returns the first error of any rank to all ranks. */
    int status = tr_size(tr) <= MOST_RANKS ? TR_OK : tr_fail(TR_ERR_USAGE, "at most %d ranks", MOST_RANKS);
    status = tr_agree(tr, status);

    /* A collective call: all ranks of the set exchange a few bytes, here their roles. */
    unsigned mine = tr_roles(tr);
    if (status == TR_OK) status = tr_all_gather(tr, TR_SET_ALL, &mine, sizeof mine, roles);
    if (status == TR_OK && tr_rank(tr) == 0) print(roles, tr_size(tr));
    return tr_close(tr); /* returns the status of tr_agree(), which becomes the exit code */
}
