/* Counts what a program asks of MPI, from outside: loaded before it (LD_PRELOAD), each process writes lines "CALL N" into
 * $TR_CALLS.RANK when it ends. test_explain.sh and test_start.sh do that. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>

/* Communicators and windows that are made, collectives that are waited for, and by how many nanoseconds naps may be late
 * in MPI_Init and MPI_Finalize. */
enum { RGET, RACCUMULATE, COMMUNICATORS, WINDOWS, COLLECTIVES, LATE_IN_INIT, LATE_IN_FINALIZE, CALLS };
static const char *const name[CALLS] = {"MPI_Rget",    "MPI_Raccumulate", "communicators",   "windows",
                                        "collectives", "late_in_init",    "late_in_finalize"};
static long calls[CALLS];

int MPI_Init(int *argc, char ***argv)
{
    calls[LATE_IN_INIT] = prctl(PR_GET_TIMERSLACK);
    return PMPI_Init(argc, argv);
}

/* Counts one more call of this kind, and hands it on. */
#define COUNT(kind, call, parameters, ...)                                                                   \
    int MPI_##call parameters                                                                                \
    {                                                                                                        \
        calls[kind]++;                                                                                       \
        return PMPI_##call(__VA_ARGS__);                                                                     \
    }

/* clang-format off */
COUNT(RGET, Rget, (void *to, int n, MPI_Datatype type, int rank, MPI_Aint at, int count, MPI_Datatype there, MPI_Win win,
    MPI_Request *request), to, n, type, rank, at, count, there, win, request)
COUNT(RACCUMULATE, Raccumulate, (const void *from, int n, MPI_Datatype type, int rank, MPI_Aint at, int count, MPI_Datatype there,
    MPI_Op op, MPI_Win win, MPI_Request *request), from, n, type, rank, at, count, there, op, win, request)

/* what all ranks do together */
COUNT(COMMUNICATORS, Comm_dup, (MPI_Comm comm, MPI_Comm *out), comm, out)
COUNT(COMMUNICATORS, Comm_idup, (MPI_Comm comm, MPI_Comm *out, MPI_Request *request), comm, out, request)
COUNT(COMMUNICATORS, Comm_split, (MPI_Comm comm, int color, int key, MPI_Comm *out), comm, color, key, out)
COUNT(COMMUNICATORS, Comm_split_type, (MPI_Comm comm, int type, int key, MPI_Info info, MPI_Comm *out), comm, type, key, info, out)
COUNT(WINDOWS, Win_allocate_shared, (MPI_Aint bytes, int unit, MPI_Info info, MPI_Comm comm, void *memory, MPI_Win *win),
    bytes, unit, info, comm, memory, win)
COUNT(WINDOWS, Win_create, (void *memory, MPI_Aint bytes, int unit, MPI_Info info, MPI_Comm comm, MPI_Win *win),
    memory, bytes, unit, info, comm, win)
COUNT(COLLECTIVES, Ibarrier, (MPI_Comm comm, MPI_Request *request), comm, request)
COUNT(COLLECTIVES, Ibcast, (void *data, int n, MPI_Datatype type, int root, MPI_Comm comm, MPI_Request *request),
    data, n, type, root, comm, request)
COUNT(COLLECTIVES, Iallreduce, (const void *from, void *to, int n, MPI_Datatype type, MPI_Op op, MPI_Comm comm, MPI_Request *request),
    from, to, n, type, op, comm, request)
COUNT(COLLECTIVES, Ialltoall, (const void *from, int n, MPI_Datatype type, void *to, int m, MPI_Datatype there, MPI_Comm comm,
    MPI_Request *request), from, n, type, to, m, there, comm, request)
/* clang-format on */

int MPI_Finalize(void)
{
    char path[4096];
    int rank;
    calls[LATE_IN_FINALIZE] = prctl(PR_GET_TIMERSLACK);
    PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    snprintf(path, sizeof path, "%s.%d", getenv("TR_CALLS"), rank);
    FILE *file = fopen(path, "w");
    for (int i = 0; file && i < CALLS; i++) fprintf(file, "%s %ld\n", name[i], calls[i]);
    if (file) fclose(file);
    return PMPI_Finalize();
}
