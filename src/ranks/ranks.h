/* ranks/ — MPI ranks as roles: how MPI is started so that it works on this machine, which ranks share memory,
 * the communicators of the roles, and the loop in which everybody waits without burning a core.
 *
 * No rank is multi-threaded. A rank that waits for anything polls everything it is responsible for (a server
 * answers pulls, the scheduler publishes clocks), so no role can starve another one of the same rank. Each
 * room that has such work adds a poll function with tr_poll_add(); nobody calls a blocking MPI function while
 * others may need him.
 */
#ifndef TR_RANKS_H
#define TR_RANKS_H

#include <mpi.h>

#include "base/base.h"
#include "job/job.h"
#include "ranks/layout.h"
#include "ranks/lifeline.h"
#include "trireme/context.h"

/* Every tag of point-to-point messages on context->wire. */
enum tr_tag {
    TR_TAG_SERVER = 1, /* anything that a server answers: struct tr_message in front */
    TR_TAG_COMMAND,    /* leader -> slave: a round's command */
    TR_TAG_DONE,       /* slave -> leader: the round is done */
    TR_TAG_REPORT,     /* worker -> scheduler: sums of an evaluation */
    TR_TAG_BLOCK,      /* slave -> slave before it in the group: a block of a rotation */
    TR_TAG_ERROR,      /* failed rank -> rank 0: its error text */
    TR_TAG_LOADING,    /* worker 0 -> rank 0, if that is no worker: how much of its data it has read */
    TR_TAG_ORDER,      /* rank 0 -> others: work to do, of the scheduler */
    TR_TAG_TURN,       /* worker -> worker: it may begin, or all have ended */
    TR_TAG_OUTCOME,    /* a rank -> rank 0: an order of the scheduler has been carried out */
    TR_TAG_NAMES,      /* worker -> rank 0: what its rows or columns are called */
    TR_TAG_FIELD,      /* rank -> rank 0: its part of an array for model.h5 */
    TR_TAG_SHARD,      /* others -> rank 0: how the writing of a shard ended */
    TR_TAG_SIGNAL,     /* others -> rank 0: signals that this process has got */
    TR_TAG_COPY,       /* rank -> rank: a piece of a file of a checkpoint in memory */
    TR_TAG_FETCH,      /* rank -> one that has it: a shard of such a checkpoint is wanted */
    TR_TAG_MEET,       /* rank of a team <-> its first: it is here, so are all */
    TR_TAG_SET,        /* collectives that are made of messages (collective.c) */
    TR_TAG_NONE,       /* never sent: who probes for it lets MPI work */
    TR_TAG_REPLY = 256 /* server -> client: + the request's number */
};

/* Looks after one responsibility without waiting. Adds to *did when something moved (so that the waiting
 * loop does not go to sleep). */
typedef int tr_poll_fn(void *what, int *did);

struct tr_poll {
    tr_poll_fn *poll;
    void *what;
};

/* Some of the workers: of the groups first_group .. first_group + groups - 1, members 0 .. group_size - 1 of each. */
struct tr_worker_choice {
    int first_group, groups, group_size;
};

/* The workers that compute in a stage (FlexPS, section 4.1: a stage runs on workers of its own), numbered by group and
 * member. Its participants are all ranks that act while the stage runs: the workers, the servers that are needed, and
 * rank 0, which schedules. All others may do something else meanwhile. */
struct tr_worker_set {
    struct tr_worker_choice of;
    int worker, group, member; /* this rank's numbers in it, or -1 */
    MPI_Comm members;          /* of this rank's group in it, by member; MPI_COMM_NULL elsewhere */
    MPI_Comm participants;     /* by rank; MPI_COMM_NULL where this rank is none */
    bool *participates;        /* by rank; NULL: all do */
    bool owned;                /* the communicators are its own */
};

struct tr_loading;
struct tr_stages;
struct tr_stores;
struct tr_checkpoints;
struct tr_monitor;
struct tr_cache;
struct tr_node_rows;

struct tr_context {
    tr_job *job;
    bool lent; /* the job belongs to somebody else */
    FILE
        *log; /* rank 0: all that is said, in memory until tr_log_open(); NULL elsewhere, or without memory */
    char *said; /* … there */
    size_t said_bytes;
    const char *team; /* the task that it is for, if other ranks may run other ones; else NULL */
    MPI_Comm world;   /* all ranks: collectives that everybody takes part in */
    MPI_Comm wire;    /* all ranks: point-to-point messages */
    MPI_Comm node;    /* ranks that share memory with this one */
    MPI_Comm host;    /* ranks of this host: `node`, unless ranks.node_size divides it */
    /* Of roles: MPI_COMM_NULL where this rank has another one. One of all ranks in order is `wire`, as collectives are
     * none of its messages; one of this rank alone is MPI_COMM_SELF. */
    MPI_Comm workers; /* all slaves, by group and member */
    MPI_Comm group;   /* this rank's group, by member */
    MPI_Comm leaders; /* first members of groups, by group */
    MPI_Comm servers; /* all servers, by rank */
    struct {
        const char *name;
        double value;
    } figure[16]; /* of the outcome, for summary.json: see tr_report_figure() */
    size_t figures;
    int rank, size;
    int node_rank, node_size; /* this rank's number on its node */
    int *node_of;             /* node of every rank */
    struct tr_layout layout;
    struct tr_place me;
    struct tr_worker_set all;           /* of all workers */
    const struct tr_worker_set *active; /* of the stage that runs, or is made ready; &all between stages */
    int64_t staleness;                  /* consistency of the job: 0 is BSP, INT64_MAX asynchronous */
    int status;                         /* first failure agreed on */
    int failed;                         /* what this rank's part ended with, until all have agreed on it */
    bool quiet;                         /* it is not said */
    int broken; /* what went wrong where no status could be returned: the stage that runs takes it for its own */
    bool started_mpi;             /* and so ends it */
    struct tr_lifeline *lifeline; /* to the supervisor; NULL: there is none */
    /* more ranks than cores on this node: spinning only steals the core from whom we wait for */
    bool crowded;
    struct tr_tables *tables; /* set by the rooms above */
    struct tr_stages *stages; /* of stage/: observers, turns, timeline */
    struct tr_sync *sync;
    int storage;              /* TR_LEVEL_… of this run; TR_LEVEL_AUTO: as the job says */
    struct tr_stores *stores; /* data that were read; NULL while there are none */
    struct tr_node_rows
        *node_rows;    /* what this node has of files that several tasks learn from; NULL: nothing */
    uint64_t readings; /* of training data, from their files */
    struct tr_checkpoints *checkpoints; /* NULL: nothing is kept */
    struct tr_monitor *monitor;         /* NULL: nothing is shown or written */
    struct {
        uint64_t rows, columns, nonzeros;
        bool dense;
    } trained_on;                   /* the training data, once they are read */
    uint64_t data_digest;           /* rank 0: of their files, before; 0: not known */
    struct tr_cache *cache;         /* data for the next start; NULL before data are read */
    void (*at_end)(tr_context *tr); /* before its job ends; NULL: nothing */
    void (*let_go)(
        tr_context *tr); /* before roles change or end: what uses their communicators; NULL: nothing */
    double began;        /* when MPI was started, as tr_now() */
    int (*before_push)(void *who); /* before a view is pushed; NULL: nothing */
    void *before_push_state;
    int (*loading)(void *who, const struct tr_loading *progress);
    void *loading_state;
    struct tr_shm_slots *slots; /* of small memory that the node shares (shm.h); NULL: none yet */
    struct tr_poll *polls;
    size_t poll_count, poll_capacity;
    bool polling; /* a poll that waits must not poll again */
};

/* Sets what Open MPI needs to work well here and the user has not set; before MPI_Init. */
void tr_mpi_environment(void);

/* Whether mpirun or srun has started this process; the ranks that it has started together, and whether this is one but the
 * first of them: before MPI_Init. What all would say alike is said once so. */
bool tr_started_by_launcher(void);
int tr_started_ranks(void);
bool tr_is_an_echo(void);

/* MPI_Init where nobody did it yet; the rest comes with tr_ranks_assign(). An error is printed: there is no tr_agree() yet. */
int tr_ranks_start(int *argc, char ***argv, tr_context **tr);

/* A team: some ranks of a context, rank[0 .. n-1], ascending, in a context of their own, where they are numbered in this
 * order. They call it together, and nobody else takes part: others may be anywhere, and start teams of their own with
 * another number (0 .. 32767). Both contexts can be used in turn; the team is stopped first. The nodes are those of `of`,
 * where tr_ranks_find_nodes() has been called. */
int tr_ranks_start_team(tr_context *of, const int *rank, int n, int number, tr_context **team);

/* Finds which ranks share memory: node and node_of. node_size as ranks.node_size. All ranks. */
int tr_ranks_find_nodes(tr_context *tr, uint64_t node_size);

/* Finds the nodes if nobody did, gives out the roles that the job asks for, and makes the communicators, where those of
 * the job before do not serve. All ranks. */
int tr_ranks_assign(tr_context *tr);

/* The team has done its task, and may get another: only its ranks, communicators and data stay. All ranks. */
void tr_ranks_rest(tr_context *team);

/* What rank 0 says, and has said, goes into the file `log` of the folder as well; behind what is there if append is true. */
int tr_log_open(tr_context *tr, const char *folder, bool append);

/* Freeing, and MPI_Finalize where tr_ranks_start() started MPI; all ranks. */
int tr_ranks_stop(tr_context *tr);

/* True where memory of the other rank can be read directly. */
static inline bool tr_same_node(const tr_context *tr, int rank)
{
    return tr->node_of[rank] == tr->node_of[tr->rank];
}

static inline bool tr_is(const tr_context *tr, unsigned role)
{
    return (tr->me.roles & role) != 0;
}

/* Computes in the stage that runs. */
static inline bool tr_works(const tr_context *tr)
{
    return tr->active->worker >= 0;
}

/* ---- sets of workers ---- */

/* All workers of the layout, with all ranks as participants: it has no communicators of its own. */
void tr_worker_set_all(tr_context *tr, struct tr_worker_set *set);

/* Some of the workers, and for the time being all ranks as participants. All ranks. */
int tr_worker_set_open(tr_context *tr, struct tr_worker_choice choice, struct tr_worker_set *set);

/* Says whether this rank is needed. From now on those who are, the workers and rank 0 are the participants. All ranks. */
int tr_worker_set_restrict(tr_context *tr, struct tr_worker_set *set, bool needed);

void tr_worker_set_close(struct tr_worker_set *set); /* all ranks; zeros are fine */

static inline int tr_worker_set_size(const struct tr_worker_set *set)
{
    return set->of.groups * set->of.group_size;
}

static inline bool tr_participates(const struct tr_worker_set *set, int rank)
{
    return !set->participates || set->participates[rank];
}

/* The rank of a worker of the set; whether a rank is one. */
int tr_worker_rank(const tr_context *tr, const struct tr_worker_set *set, int worker);
bool tr_worker_set_has(const tr_context *tr, const struct tr_worker_set *set, int rank);

/* ---- progress ---- */

int tr_poll_add(tr_context *tr, tr_poll_fn *poll, void *what);
void tr_poll_remove(tr_context *tr, tr_poll_fn *poll, void *what);

/* Polls everything once. */
int tr_progress(tr_context *tr, int *did);

/* One turn of a waiting loop: progress, then a pause that grows from nothing to a millisecond. */
struct tr_waiting {
    double since, next; /* seconds: when it began, when patience ends; 0 before the first look at the clock */
    unsigned idle;
    double looked;  /* when the bytes were last looked at that have moved over TCP … */
    uint64_t moved; /* … and how many they were; as long as they move, waiting begins anew */
};
struct tr_waiting tr_waiting_begin(void);
int tr_waiting_turn(tr_context *tr, struct tr_waiting *waiting, const char *what, ...)
    __attribute__((format(printf, 3, 4))); /* what NULL: is silent however long it takes */

/* Waits until the condition holds, looking after all roles meanwhile. The words behind it are printf's and
 * say what is waited for and from whom; they are printed when patience (ranks.patience) ends. */
#define TR_WAIT_UNTIL(tr, condition, ...)                                                                    \
    do {                                                                                                     \
        struct tr_waiting tr_waiting_ = tr_waiting_begin();                                                  \
        while (!(condition)) TR_TRY(tr_waiting_turn((tr), &tr_waiting_, __VA_ARGS__));                       \
    } while (0)

/* True once the request is complete (it is MPI_REQUEST_NULL then). */
bool tr_request_done(MPI_Request *request);

/* Waits for an MPI request (a nonblocking collective, say), looking after all roles meanwhile. what: for whom it
 * waits; NULL: it never says a word. */
int tr_wait_request(tr_context *tr, MPI_Request *request, const char *what);

/* Waits until all ranks of the communicator are here. */
int tr_barrier(tr_context *tr, MPI_Comm comm, const char *what);

/* A message of that kind that is here is received; false: there is none. */
bool tr_receive_here(tr_context *tr, enum tr_tag tag, void *data, size_t bytes, int *from);

/* Bytes that this process has sent or received over TCP. */
uint64_t tr_bytes_moved(void);

/* Seconds for which a rank waits for others before it says so: ranks.patience. */
double tr_patience(const tr_context *tr);

/* ---- what blocks (blocking.c) ---- */

/* As tr_wait_request(), but looks after no role meanwhile, and so cannot fail: for what is under way already, and where roles
 * are not ready to be looked after. */
void tr_wait_alone(tr_context *tr, MPI_Request *request, const char *what);

/* Waits so until all ranks of the communicator are here. Before all that MPI has no nonblocking form of: */
void tr_meet(tr_context *tr, MPI_Comm comm, const char *what);

void tr_comm_dup(tr_context *tr, MPI_Comm of, const char *what, MPI_Comm *comm);
void tr_comm_split(tr_context *tr, MPI_Comm of, int color, int key, const char *what, MPI_Comm *comm);
void tr_comm_split_hosts(tr_context *tr, const char *what, MPI_Comm *host);

/* Of some ranks, rank[0 .. n-1], which alone call it; number as for tr_ranks_start_team(). */
void tr_comm_of_team(tr_context *of, const int *rank, int n, int number, const char *what, MPI_Comm *comm);

/* A window of all ranks, locked for all. TR_ERR_SYSTEM, on all ranks, where MPI cannot open one. */
int tr_window_open(tr_context *tr, void *memory, size_t bytes, int unit, const char *what, MPI_Win *window);

/* A locked window of memory that the ranks of a node share; they have just met. */
bool tr_window_share(tr_context *tr, MPI_Comm comm, size_t bytes, MPI_Win *window);

/* comm has the ranks of the window; MPI_WIN_NULL is fine. */
void tr_window_close(tr_context *tr, MPI_Comm comm, const char *what, MPI_Win *window);

/* As tr_report_figure(). */
int tr_context_report(tr_context *tr, const char *name, double value);

/* tr_agree() among the ranks of a communicator that rank 0 is one of. */
int tr_agree_among(tr_context *tr, MPI_Comm comm, int status);

/* What ended the job, to the user: one rank says it. */
void tr_say_error(const tr_context *tr, const char *text);

#endif
