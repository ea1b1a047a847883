/* Counts what a program asks of MPI, from outside: loaded before it (LD_PRELOAD), each process writes lines "CALL N" into
 * $TR_CALLS.RANK when it ends. test_explain.sh does that. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { RGET, RACCUMULATE, CALLS };
static const char *const name[CALLS] = {"MPI_Rget", "MPI_Raccumulate"};
static long calls[CALLS];

int MPI_Rget(void *to, int n, MPI_Datatype type, int rank, MPI_Aint at, int count, MPI_Datatype there,
             MPI_Win win, MPI_Request *request)
{
    calls[RGET]++;
    return PMPI_Rget(to, n, type, rank, at, count, there, win, request);
}

int MPI_Raccumulate(const void *from, int n, MPI_Datatype type, int rank, MPI_Aint at, int count,
                    MPI_Datatype there, MPI_Op op, MPI_Win win, MPI_Request *request)
{
    calls[RACCUMULATE]++;
    return PMPI_Raccumulate(from, n, type, rank, at, count, there, op, win, request);
}

int MPI_Finalize(void)
{
    char path[4096];
    int rank;
    PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    snprintf(path, sizeof path, "%s.%d", getenv("TR_CALLS"), rank);
    FILE *file = fopen(path, "w");
    for (int i = 0; file && i < CALLS; i++) fprintf(file, "%s %ld\n", name[i], calls[i]);
    if (file) fclose(file);
    return PMPI_Finalize();
}
