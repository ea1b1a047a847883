/* The only file that calls blocking MPI functions. Before each such call, its ranks meet: they wait for each other in a loop that
 * prints a message, so that a missing rank is reported and the call itself is short. During the call the thread of the lifeline
 * reports a long wait. */
#include "ranks/ranks.h"

#include "base/fault.h"

void tr_wait_alone(tr_context *tr, MPI_Request *request, const char *what)
{
    struct tr_waiting waiting = tr_waiting_begin();
    bool polling = tr->polling;
    tr->polling = true;
    while (!tr_request_done(request)) (void)tr_waiting_turn(tr, &waiting, "%s", what);
    tr->polling = polling;
}

void tr_meet(tr_context *tr, MPI_Comm comm, const char *what)
{
    MPI_Request request;
    if (TR_FAULT("meet") == TR_FAULT_HANG) {
        MPI_Irecv(NULL, 0, MPI_BYTE, MPI_ANY_SOURCE, TR_TAG_NONE, comm, &request);
        tr_wait_alone(tr, &request, "nothing, as TRIREME_FAULT wants it");
    }
    MPI_Ibarrier(comm, &request);
    tr_wait_alone(tr, &request, what);
}

/* ---- communicators ---- */

void tr_comm_dup(tr_context *tr, MPI_Comm of, const char *what, MPI_Comm *comm)
{
    tr_meet(tr, of, what);
    tr_lifeline_enter(tr->lifeline, tr_patience(tr));
    MPI_Comm_dup(of, comm);
    tr_lifeline_through(tr->lifeline);
}

void tr_comm_split(tr_context *tr, MPI_Comm of, int color, int key, const char *what, MPI_Comm *comm)
{
    tr_meet(tr, of, what);
    tr_lifeline_enter(tr->lifeline, tr_patience(tr));
    MPI_Comm_split(of, color, key, comm);
    tr_lifeline_through(tr->lifeline);
}

void tr_comm_split_hosts(tr_context *tr, const char *what, MPI_Comm *host)
{
    tr_meet(tr, tr->world, what);
    tr_lifeline_enter(tr->lifeline, tr_patience(tr));
    MPI_Comm_split_type(tr->world, MPI_COMM_TYPE_SHARED, tr->rank, MPI_INFO_NULL, host);
    tr_lifeline_through(tr->lifeline);
}

/* The ranks of the team have no communicator for tr_meet() yet. Instead, each sends a message to the first one, which replies. */
void tr_comm_of_team(tr_context *of, const int *rank, int n, int number, const char *what, MPI_Comm *comm)
{
    MPI_Group all, some;
    MPI_Request request;
    bool leads = rank[0] == of->rank;
    for (int turn = 0; turn < 2; turn++)
        for (int i = leads ? 1 : 0; i < (leads ? n : 1); i++) {
            if (leads == (turn == 0)) MPI_Irecv(NULL, 0, MPI_BYTE, rank[i], TR_TAG_MEET, of->wire, &request);
            else MPI_Isend(NULL, 0, MPI_BYTE, rank[i], TR_TAG_MEET, of->wire, &request);
            tr_wait_alone(of, &request, what);
        }
    MPI_Comm_group(of->world, &all);
    MPI_Group_incl(all, n, rank, &some);
    tr_lifeline_enter(of->lifeline, tr_patience(of));
    MPI_Comm_create_group(of->world, some, number, comm);
    tr_lifeline_through(of->lifeline);
    MPI_Group_free(&some);
    MPI_Group_free(&all);
}

/* ---- windows ---- */

/* Sets the error handler of the communicator to MPI_ERRORS_RETURN. Returns the previous handler. */
static MPI_Errhandler comm_return_errors(MPI_Comm comm)
{
    MPI_Errhandler before;
    MPI_Comm_get_errhandler(comm, &before);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    return before;
}

static void comm_restore_errors(MPI_Comm comm, MPI_Errhandler before)
{
    MPI_Comm_set_errhandler(comm, before);
    MPI_Errhandler_free(&before);
}

int tr_window_open(tr_context *tr, void *memory, size_t bytes, int unit, const char *what, MPI_Win *window)
{
    tr_meet(tr, tr->world, what);
    MPI_Errhandler before = comm_return_errors(tr->world);
    tr_lifeline_enter(tr->lifeline, tr_patience(tr));
    int failed = MPI_Win_create(memory, (MPI_Aint)bytes, unit, MPI_INFO_NULL, tr->world, window);
    tr_lifeline_through(tr->lifeline);
    comm_restore_errors(tr->world, before);
    int status =
        failed == MPI_SUCCESS
            ? TR_OK
            : tr_fail(TR_ERR_SYSTEM,
                      "MPI cannot open an RMA window over %d nodes: with Open MPI 4 set OMPI_MCA_osc=^ucx",
                      tr->layout.nodes);
    status = tr_agree(tr, status);
    if (status == TR_OK) MPI_Win_lock_all(MPI_MODE_NOCHECK, *window);
    else *window = MPI_WIN_NULL;
    return status;
}

int tr_window_share(tr_context *tr, MPI_Comm comm, size_t bytes, MPI_Win *window)
{
    int failed = TR_FAULT("window") != TR_FAULT_NONE; /* can fail on one rank only, as with Open MPI */
    MPI_Info info;
    void *own;
    MPI_Info_create(&info);
    MPI_Info_set(info, "alloc_shared_noncontig", "true"); /* each part on its own pages, local to its rank */
    MPI_Errhandler before = comm_return_errors(comm);
    tr_lifeline_enter(tr->lifeline, tr_patience(tr));
    if (!failed)
        failed = MPI_Win_allocate_shared((MPI_Aint)bytes, 1, info, comm, &own, window) != MPI_SUCCESS;
    tr_lifeline_through(tr->lifeline);
    comm_restore_errors(comm, before);
    MPI_Info_free(&info);
    if (failed) return tr_fail(TR_ERR_SYSTEM, "MPI cannot allocate %zu bytes of shared memory", bytes);
    MPI_Win_lock_all(MPI_MODE_NOCHECK, *window);
    return TR_OK;
}

void tr_window_close(tr_context *tr, MPI_Comm comm, const char *what, MPI_Win *window)
{
    if (*window == MPI_WIN_NULL) return;
    tr_meet(tr, comm, what);
    MPI_Win_unlock_all(*window);
    tr_lifeline_enter(tr->lifeline, tr_patience(tr));
    MPI_Win_free(window);
    tr_lifeline_through(tr->lifeline);
}
