/* ranks/: MPI ranks and their roles. Start of MPI with settings that suit the machine, nodes (ranks that share memory),
 * communicators of the roles, and the waiting loop.
 *
 * Roles are scheduler (rank 0), server and worker. Workers form groups; the members of a group are numbered from 0, and member 0 is
 * its leader. A team is a set of ranks with a context of its own, which runs one of several tasks of a job.
 *
 * A rank uses one thread for MPI. While it waits, it calls poll functions (a server answers pulls, the scheduler publishes clocks),
 * so that no role blocks another role of the same rank. Only blocking.c calls blocking MPI functions.
 *
 * In comments on functions, «All ranks» means that all ranks of the context must call the function, and «agreed on» that it returns
 * the same status on all ranks (tr_agree()).
 */
#ifndef TR_RANKS_H
#define TR_RANKS_H

#include <mpi.h>

#include "base/base.h"
#include "job/job.h"
#include "ranks/lifeline.h"
#include "trireme/table.h"

/* ---- layout: the roles of the ranks, a pure function of the options of the job and the nodes of the ranks ---- */

enum tr_layout_kind { TR_ROLES_AUTO, TR_ROLES_DEDICATED, TR_ROLES_COLOCATED, TR_ROLES_ALONE };

/* Default groups of colocated ranks. With more than 64 ranks, groups per node replace a group of all workers, in which messages
 * would take longer than computing. If nodes have different numbers of ranks, single workers replace groups per node. */
enum tr_grouping {
    TR_GROUP_OF_ONE,    /* each worker alone */
    TR_GROUP_OF_NODE,   /* the workers of each node */
    TR_GROUP_OF_SPREAD, /* the workers of each node if there are several nodes, otherwise each worker alone */
    TR_GROUP_OF_ALL,    /* all workers */
    TR_GROUP_OF_NODE_OR_ALL /* as TR_GROUP_OF_NODE if nodes have several ranks, otherwise all workers */
};

/* Options of the job. A number that is 0 is chosen by tr_layout_choose(). */
struct tr_layout_options {
    enum tr_layout_kind kind;
    int servers, groups, group_size;
    enum tr_grouping grouping;
};

struct tr_place {   /* the roles of one rank */
    unsigned roles; /* set of enum tr_role; 0: the rank is not used */
    int server;     /* number of this server; -1: the rank is no server */
    int group;      /* group of this worker; -1: the rank is no worker */
    int member;     /* number of this worker within its group, or -1 */
};

struct tr_layout {
    enum tr_layout_kind kind; /* dedicated, colocated or alone */
    int ranks, nodes;
    int servers, groups, group_size;
    struct tr_place *place; /* roles of each rank */
    int *server_rank;       /* rank of each server */
    int *worker_rank;       /* rank of each worker, by group * group_size + member */
};

/* Computes a layout.
 *   alone      one rank has all roles
 *   colocated  all ranks are servers, groups × group_size of them are workers; default: groups of one worker (if the number of
 *              groups is given: the largest possible groups)
 *   dedicated  rank 0 is the scheduler, `servers` ranks (default: a quarter) are servers, the rest are workers; if one server
 *              is requested and no rank is left for it, rank 0 is the server too
 * The default is colocated, which was faster in measurements as long as servers compute little; dedicated if a number of servers
 * is given and enough ranks remain for the groups. Servers are distributed over the nodes; a group lies within one node if
 * possible.
 *
 * @param [in]  node_of  `ranks` numbers of nodes, from 0
 * @param [out] layout   free it with tr_layout_free()
 * @return TR_OK, or TR_ERR_CONFIG if there are too few ranks
 */
int tr_layout_choose(const struct tr_layout_options *wish, int ranks, const int *node_of,
                     struct tr_layout *layout);
void tr_layout_free(struct tr_layout *layout);

/* Returns whether every rank has the same roles in both layouts. */
bool tr_layout_equal(const struct tr_layout *a, const struct tr_layout *b);

static inline int tr_layout_workers(const struct tr_layout *layout)
{
    return layout->groups * layout->group_size;
}

/* Describes the layout: "colocated: 4 ranks on 1 node: 4 servers, 4 groups of 1" */
void tr_layout_describe(const struct tr_layout *layout, char *text, size_t size);

/* ---- the context ---- */

/* Tags of point-to-point messages on context->wire. */
enum tr_tag {
    TR_TAG_SERVER = 1, /* request to a server, starts with struct tr_message */
    TR_TAG_COMMAND,    /* leader -> member: command of the next round of a stage (tr_stage.schedule) */
    TR_TAG_DONE,       /* member -> leader: the round is complete */
    TR_TAG_REPORT,     /* worker -> scheduler: sums of an evaluation */
    TR_TAG_BLOCK,      /* member -> previous member: block of parameters that rotates through the group */
    TR_TAG_ERROR,      /* failed rank -> rank 0: text of its error */
    TR_TAG_LOADING,    /* worker 0 -> rank 0, if rank 0 is not a worker: progress of reading data */
    TR_TAG_ORDER,      /* rank 0 -> others: the scheduler starts a stage or a task */
    TR_TAG_TURN,       /* worker -> worker, if few workers run at a time: run now; or: all have run */
    TR_TAG_OUTCOME,    /* rank -> rank 0: the stage or task of a TR_TAG_ORDER has ended */
    TR_TAG_NAMES,      /* worker -> rank 0: names of its rows or columns */
    TR_TAG_FIELD,      /* rank -> rank 0: its part of an array for model.h5 */
    TR_TAG_SHARD,      /* others -> rank 0: status of writing a shard of a checkpoint */
    TR_TAG_SIGNAL,     /* others -> rank 0: signals received by this process */
    TR_TAG_COPY,       /* rank -> rank: block of a file of an in-memory checkpoint */
    TR_TAG_FETCH,      /* rank -> owner: request for a shard of an in-memory checkpoint */
    TR_TAG_MEET,       /* rank of a team -> its first rank: I have arrived; and back: all have arrived */
    TR_TAG_SET,        /* collectives implemented by messages (collective.c) */
    TR_TAG_NONE,       /* never sent: a probe for it gives MPI a chance to progress */
    TR_TAG_REPLY = 256 /* server -> client: reply to request i has the tag TR_TAG_REPLY + i */
};

/* A poll function performs pending work without blocking. It increments *did if there was work, so that the waiting loop does not
 * sleep. */
typedef int tr_poll_fn(void *what, int *did);

struct tr_poll {
    tr_poll_fn *poll;
    void *what;
};

/* A subset of the workers: members 0 .. group_size - 1 of the groups first_group .. first_group + groups - 1. */
struct tr_worker_choice {
    int first_group, groups, group_size;
};

/* The workers of a stage (FlexPS, section 4.1), numbered by group and member. The participants are all ranks that are active while
 * the stage runs: its workers, the servers that the workers need, and rank 0 as the scheduler. Other ranks are free. */
struct tr_worker_set {
    struct tr_worker_choice of;
    int worker, group, member; /* numbers of this rank in the set, or -1 */
    MPI_Comm members;          /* group of this worker, by member; MPI_COMM_NULL on ranks outside the set */
    MPI_Comm participants;     /* all participants, by rank; MPI_COMM_NULL on other ranks */
    bool *participates;        /* whether each rank participates; NULL: all ranks do */
    bool owned;                /* tr_worker_set_close() frees the communicators */
};

struct tr_loading;
struct tr_stages;
struct tr_stores;
struct tr_checkpoints;
struct tr_monitor;
struct tr_cache;
struct tr_node_rows;

struct tr_context {
    /* ---- members that a team keeps when it gets another task ---- */
    MPI_Comm world; /* all ranks, for collectives */
    MPI_Comm wire;  /* all ranks, for point-to-point messages */
    MPI_Comm node;  /* ranks that share memory with this rank */
    MPI_Comm host;  /* ranks of this host: equal to `node`, unless ranks.node_size divides the host */
    /* Communicators of roles: MPI_COMM_NULL if this rank does not have the role. If all ranks have the role, in the order of ranks,
     * the communicator is `wire` (collectives do not interfere with its messages); if only this rank has it, MPI_COMM_SELF. */
    MPI_Comm workers; /* all workers, by group and member */
    MPI_Comm group;   /* group of this rank, by member */
    MPI_Comm leaders; /* first members of groups, by group */
    MPI_Comm servers; /* all servers, by rank */
    int rank, size;
    int node_rank, node_size; /* number of this rank on its node; number of ranks there */
    int *node_of;             /* node of every rank */
    struct tr_layout layout;
    struct tr_place me;
    struct tr_lifeline *lifeline; /* connection to the supervisor; NULL: none */
    struct tr_shm_slots *slots;   /* window of small shared memory (collective.c); NULL: not allocated yet */
    struct tr_stores *stores;     /* open data sets; NULL: none yet */
    struct tr_node_rows *node_rows; /* rows of files that several tasks of this node share; NULL: none */
    /* called before the communicators of roles are freed, to close data that use them; may be NULL */
    void (*let_go)(tr_context *tr);
    double began; /* time of the start of MPI (tr_now()) */
    bool
        crowded; /* more ranks than cores on this node: a rank that spins takes the core from ranks that it waits for */

    /* ---- members of a job or task: from here on, tr_ranks_rest() sets them to zero ---- */
    tr_job *job;
    bool lent; /* the job belongs to another context, which frees it */
    FILE *
        log; /* rank 0: all messages, in memory until tr_log_open(); NULL on other ranks, or if out of memory */
    char *said; /* the messages while `log` is in memory, from open_memstream() */
    size_t said_bytes;
    const char *team; /* name of the task of this team; NULL: the context is not that of a team */
    struct {
        const char *name;
        double value;
    } figure[16]; /* results for summary.json: see tr_report_figure() */
    size_t figures;
    struct tr_worker_set all;           /* all workers */
    const struct tr_worker_set *active; /* workers of the current or next stage; &all between stages */
    int64_t staleness;                  /* sync.staleness; 0 for BSP, INT64_MAX for ASP */
    int status;       /* status of the first failure that all ranks agreed on (tr_agree()) */
    int failed;       /* failure of this rank, until all ranks have agreed on it */
    int broken;       /* failure in a function that returns no status; the stage that runs fails with it */
    bool quiet;       /* tr_agree() prints no errors */
    bool started_mpi; /* tr_ranks_start() has called MPI_Init, so tr_ranks_stop() calls MPI_Finalize */
    struct tr_tables *tables;
    struct tr_stages *stages; /* observers, parallelism and timeline of stages */
    struct tr_sync *sync;
    int storage;       /* where rows are stored, instead of data.storage; TR_LEVEL_AUTO: data.storage */
    uint64_t readings; /* number of times that training data were read from their files */
    struct tr_checkpoints *checkpoints; /* NULL: no checkpoints */
    struct tr_monitor *monitor;         /* NULL: no output */
    struct {
        uint64_t rows, columns, nonzeros;
        bool dense;
        const char *rate;   /* unit of the speed of training: "rows/s", "ratings/s" or "tokens/s" */
        double units;       /* number of rows, ratings or tokens */
    } trained_on;           /* size of the training data, once they are read */
    uint64_t data_digest;   /* rank 0: digest of the training files, known before they are read; 0: unknown */
    struct tr_cache *cache; /* folders that cache data for the next start; NULL before data are read */
    void (*at_end)(tr_context *tr); /* called before the job ends; may be NULL */
    int (*before_push)(void *who);  /* called before a view is pushed; may be NULL */
    void *before_push_state;
    int (*loading)(void *who, const struct tr_loading *progress); /* see tr_on_loading(); may be NULL */
    void *loading_state;
    struct tr_poll *polls;
    size_t poll_count, poll_capacity;
    bool polling; /* poll functions are being called: a wait in one of them does not call them again */
};

/* Sets environment variables for Open MPI that the user has not set. Before MPI_Init. */
void tr_mpi_environment(void);

/* These three functions work before MPI_Init, so that a message of all ranks can be printed once. */
bool tr_started_by_launcher(void); /* whether mpirun or srun has started this process */
int tr_started_ranks(void);        /* number of ranks that mpirun or srun has started; 1 without them */
bool tr_is_an_echo(void);          /* whether another rank, the first one, prints the message */

/* Creates the context of all ranks, without roles (see tr_ranks_assign()). Calls MPI_Init unless MPI is initialized. Prints errors
 * itself, because tr_agree() is not available yet. */
int tr_ranks_start(int *argc, char ***argv, tr_context **tr);

/* Creates a team: a context for some ranks of the context `of`, numbered in the given order. Only these ranks call it; other ranks
 * may start other teams at the same time. Both contexts can be used alternately. Stop the team before the context `of`.
 *
 * @param [in] of      tr_ranks_find_nodes() must have been called; the team has the same nodes
 * @param [in] rank    n ranks in ascending order
 * @param [in] number  0 .. 32767, different for teams that start at the same time
 */
int tr_ranks_start_team(tr_context *of, const int *rank, int n, int number, tr_context **team);

/* Finds the ranks that share memory: sets node and node_of. node_size: see ranks.node_size. All ranks. */
int tr_ranks_find_nodes(tr_context *tr, uint64_t node_size);

/* Finds the nodes unless they are known. Assigns the roles that the job requests, and creates their communicators unless the roles
 * are those of the previous job. All ranks. */
int tr_ranks_assign(tr_context *tr);

/* Resets a team after its task, so that it can get another one. Its ranks, communicators and data remain. All ranks. */
void tr_ranks_rest(tr_context *team);

/* Copies all messages of rank 0, including earlier ones, to the file `log` in the folder. append: keeps the content of the file. */
int tr_log_open(tr_context *tr, const char *folder, bool append);

/* Frees the context, and calls MPI_Finalize if tr_ranks_start() called MPI_Init. All ranks. */
int tr_ranks_stop(tr_context *tr);

/* Returns the MPI type of elements. */
static inline MPI_Datatype tr_dtype_mpi(enum tr_dtype dtype)
{
    const MPI_Datatype type[] = {
        [TR_F32] = MPI_FLOAT, [TR_F64] = MPI_DOUBLE, [TR_I32] = MPI_INT32_T, [TR_I64] = MPI_INT64_T};
    return type[dtype];
}

/* Returns the size of an element in bytes. */
static inline size_t tr_dtype_size(enum tr_dtype dtype)
{
    return dtype == TR_F32 || dtype == TR_I32 ? 4 : 8;
}

/* Returns true if memory of the other rank can be read directly. */
static inline bool tr_same_node(const tr_context *tr, int rank)
{
    return tr->node_of[rank] == tr->node_of[tr->rank];
}

static inline bool tr_is(const tr_context *tr, unsigned role)
{
    return (tr->me.roles & role) != 0;
}

/* Returns whether this rank is a worker of the stage that runs. */
static inline bool tr_works(const tr_context *tr)
{
    return tr->active->worker >= 0;
}

/* ---- sets of workers ---- */

/* Creates a set of some workers; all ranks participate until tr_worker_set_restrict(). All ranks. */
int tr_worker_set_open(tr_context *tr, struct tr_worker_choice choice, struct tr_worker_set *set);

/* Restricts the participants to the workers, rank 0, and the ranks that pass needed = true. All ranks. */
int tr_worker_set_restrict(tr_context *tr, struct tr_worker_set *set, bool needed);

void tr_worker_set_close(struct tr_worker_set *set); /* all ranks; the set may be all zeros */

static inline int tr_worker_set_size(const struct tr_worker_set *set)
{
    return set->of.groups * set->of.group_size;
}

static inline bool tr_participates(const struct tr_worker_set *set, int rank)
{
    return !set->participates || set->participates[rank];
}

/* tr_worker_rank() returns the rank of a worker of the set, tr_worker_set_has() whether a rank is a worker of the set. */
int tr_worker_rank(const tr_context *tr, const struct tr_worker_set *set, int worker);
bool tr_worker_set_has(const tr_context *tr, const struct tr_worker_set *set, int rank);

/* ---- progress ---- */

/* Functions that tr_progress() calls. Each call passes `what`. */
int tr_poll_add(tr_context *tr, tr_poll_fn *poll, void *what);
void tr_poll_remove(tr_context *tr, tr_poll_fn *poll, void *what);

/* Calls all poll functions once. It does nothing while one of them runs. */
int tr_progress(tr_context *tr, int *did);

/* State of a waiting loop. */
struct tr_waiting {
    double since, next; /* times (tr_now()) of the start and of the next message; 0: not determined yet */
    unsigned idle;      /* number of turns without work */
    double looked;      /* time of the last check of the TCP traffic; 0: none yet */
    uint64_t moved;     /* bytes sent and received over TCP by then; the wait restarts while they increase */
};
struct tr_waiting tr_waiting_begin(void);

/* Performs one iteration (turn) of a waiting loop: calls the poll functions, then pauses for a time that grows from 0 to a few
 * milliseconds.
 *
 * @param [in] what  format as of printf: the event and the ranks that this rank waits for; NULL: no message
 */
int tr_waiting_turn(tr_context *tr, struct tr_waiting *waiting, const char *what, ...)
    __attribute__((format(printf, 3, 4)));

/* Waits until the condition holds and polls meanwhile. The other arguments are those of printf: the event and the ranks that this
 * rank waits for, a text that is printed after ranks.patience seconds. */
#define TR_WAIT_UNTIL(tr, condition, ...)                                                                    \
    do {                                                                                                     \
        struct tr_waiting tr_waiting_ = tr_waiting_begin();                                                  \
        while (!(condition)) TR_TRY(tr_waiting_turn((tr), &tr_waiting_, __VA_ARGS__));                       \
    } while (0)

/* Returns whether the request is complete; it is MPI_REQUEST_NULL then. */
bool tr_request_done(MPI_Request *request);

/* Waits for an MPI request, for example a nonblocking collective, and polls meanwhile.
 *
 * @param [in] what  the event that this rank waits for, for a message; NULL: no message
 */
int tr_wait_request(tr_context *tr, MPI_Request *request, const char *what);

/* Waits until all ranks of the communicator have called it, and polls meanwhile. */
int tr_barrier(tr_context *tr, MPI_Comm comm, const char *what);

/* Receives a pending message with this tag. Returns false if there is none. */
bool tr_receive_here(tr_context *tr, enum tr_tag tag, void *data, size_t bytes, int *from);

/* Returns ranks.patience: the seconds for which a rank waits before it prints a message. */
double tr_patience(const tr_context *tr);

/* ---- blocking calls (blocking.c) ---- */

/* Waits like tr_wait_request() but calls no poll functions, therefore it cannot fail. For transfers that are in progress, and
 * before the ranks have roles. */
void tr_wait_alone(tr_context *tr, MPI_Request *request, const char *what);

/* Waits like tr_barrier() but calls no poll functions. The functions below call it before blocking MPI functions. */
void tr_meet(tr_context *tr, MPI_Comm comm, const char *what);

void tr_comm_dup(tr_context *tr, MPI_Comm of, const char *what, MPI_Comm *comm);
void tr_comm_split(tr_context *tr, MPI_Comm of, int color, int key, const char *what, MPI_Comm *comm);
void tr_comm_split_hosts(tr_context *tr, const char *what, MPI_Comm *host);

/* Creates a communicator of rank[0 .. n-1]. Only these ranks call it. number: see tr_ranks_start_team(). */
void tr_comm_of_team(tr_context *of, const int *rank, int n, int number, const char *what, MPI_Comm *comm);

/* Creates a window of all ranks, locked for all. TR_ERR_SYSTEM on all ranks if MPI cannot create one. */
int tr_window_open(tr_context *tr, void *memory, size_t bytes, int unit, const char *what, MPI_Win *window);

/* Allocates a locked window of shared memory of a node. Call tr_meet() directly before it. */
int tr_window_share(tr_context *tr, MPI_Comm comm, size_t bytes, MPI_Win *window);

/* Frees a window. comm: the ranks of the window. *window may be MPI_WIN_NULL. */
void tr_window_close(tr_context *tr, MPI_Comm comm, const char *what, MPI_Win *window);

/* ---- shared memory (collective.c) ---- */

/* Shared memory of the ranks of a node: tables, rows, clocks, blocks that rotate. Each rank has its own part. MPI allocates the
 * memory (MPI_Win_allocate_shared), so that it is removed when the processes end.
 *
 * Opening and closing a window takes about a dozen synchronizations of all ranks of the node. Therefore memory of at most 16 kB
 * per rank is a slot of one common window, which is opened when it is first needed. */

/* The part of one member, as mapped in this process. */
struct tr_shm_part {
    char *at; /* a multiple of 64 */
    size_t bytes;
};

struct tr_shm {
    tr_context *tr;
    MPI_Comm comm;  /* the ranks that share the memory (members) */
    MPI_Win window; /* locked for all; MPI_WIN_NULL: closed */
    int slot;       /* slot in the common window; -1: separate window */
    int members;
    struct tr_shm_part *part; /* part of each member */
};

#define TR_SHM_CLOSED ((struct tr_shm){.window = MPI_WIN_NULL, .slot = -1})

/* Allocates shared memory whose bytes are zero. All ranks of the communicator must call it; it waits for them without polling.
 *
 * @param [in]  comm    ranks of one node; must exist until tr_shm_close()
 * @param [in]  bytes   size of the part of this rank, may be 0; the parts of two ranks share no page
 * @param [in]  zeroed  touch all pages now, so that no page faults occur later
 * @param [out] shm     close it with tr_shm_close() on all ranks of the communicator
 * @return TR_OK, or TR_ERR_SYSTEM on all ranks if /dev/shm is too small (writing to the memory would kill the process)
 */
int tr_shm_open(tr_context *tr, MPI_Comm comm, size_t bytes, bool zeroed, struct tr_shm *shm);
void tr_shm_close(struct tr_shm *shm); /* shm may be closed already */

/* Closes the window of slots; no slot may be in use. All ranks of the node, before the communicator `node` is freed. */
void tr_shm_end(tr_context *tr);

/* Returns the free shared memory of this node in bytes; UINT64_MAX: unknown. If the file system /dev/shm is full, the first
 * write to allocated memory kills the process. */
uint64_t tr_shm_free(void);

/* ---- long messages ---- */

/* Pending messages of at most 64 MiB. Counts of MPI are limited to 2 GiB - 1, and short messages keep the buffers of MPI small. */
struct tr_messages {
    MPI_Request *request;
    size_t n, capacity;
};

/* Starts to send memory to a member of a communicator, or to receive memory from it (sends = false), in several messages. */
int tr_messages_start(struct tr_messages *messages, void *memory, size_t bytes, int member, bool sends,
                      MPI_Comm comm);
void tr_messages_free(struct tr_messages *messages); /* after all requests are complete */

/* ---- messages to the user ---- */

/* Does the same as tr_report_figure(). */
int tr_context_report(tr_context *tr, const char *name, double value);

/* Does the same as tr_agree(), but only for the ranks of `comm`, which contains rank 0. */
int tr_agree_among(tr_context *tr, MPI_Comm comm, int status);

/* Prints the error that ends the job. Only one rank calls it. */
void tr_say_error(const tr_context *tr, const char *text);

#endif
