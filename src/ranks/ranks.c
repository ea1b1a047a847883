#define _GNU_SOURCE
#include "ranks/ranks.h"

#include "trireme/collective.h"
#include "trireme/cpu.h"
#include "trireme/model.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/escape.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/terminal.h"

/* ---- starting MPI ---- */

bool tr_started_by_launcher(void)
{
    return getenv("OMPI_COMM_WORLD_SIZE") || getenv("PMIX_RANK") || getenv("PMI_RANK");
}

static int online_cores(void)
{
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n > 0 ? (int)n : 1;
}

/* Returns the number of ranks on this host from the environment of mpirun or srun (which lists the ranks); 0: unknown. */
static int ranks_here(void)
{
    const char *local = getenv("OMPI_COMM_WORLD_LOCAL_SIZE"), *listed = getenv("SLURM_GTIDS");
    if (local) return atoi(local);
    if (!getenv("PMIX_RANK") || !listed) return 0;
    int n = 1;
    for (; *listed; listed++) n += *listed == ',';
    return n;
}

int tr_started_ranks(void)
{
    static const char *const told[] = {"OMPI_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS", "PMI_SIZE"};
    for (size_t i = 0; i < sizeof told / sizeof *told; i++)
        if (getenv(told[i])) return tr_max_int(1, atoi(getenv(told[i])));
    return 1;
}

bool tr_is_an_echo(void)
{
    static const char *const names[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"};
    const char *rank = NULL;
    for (size_t i = 0; i < sizeof names / sizeof *names && !rank; i++) rank = getenv(names[i]);
    return rank && atoi(rank) > 0;
}

/* Accuracy of sleeps in nanoseconds. Waiting ranks sleep for microseconds, to which the system would add up to 50 us by default. */
static const unsigned long prompt = 1000;

/* In MPI_Init and MPI_Finalize each waiting rank wakes every 100 us. With 64 ranks on two cores this would take the cores from the
 * ranks that are awaited. Therefore the interval grows with the number of ranks of the host. */
static void set_timer_slack_by_ranks(void)
{
    const unsigned long nap = 100000;
    int here = ranks_here();
    prctl(PR_SET_TIMERSLACK, here > online_cores() ? (unsigned long)here * nap : prompt);
}

void tr_mpi_environment(void)
{
    static const char *const devices[] = {"/sys/class/infiniband", "/sys/class/hfi1", "/sys/class/cxi",
                                          "/dev/xpmem"};
    const char *all = getenv("OMPI_COMM_WORLD_SIZE"), *step = getenv("SLURM_STEP_NUM_TASKS");
    const char *session = getenv("OMPI_FILE_LOCATION");
    char folder[PATH_MAX];
    bool network = false;
    for (size_t i = 0; i < sizeof devices / sizeof *devices; i++)
        network = network || access(devices[i], F_OK) == 0;
    /* Debian sets osc=^ucx,pt2pt. Without pt2pt, no component can open windows over TCP (MPI_ERR_WIN). */
    setenv("OMPI_MCA_osc", "^ucx", 0);
    /* Without a cluster interconnect only TCP and shared memory remain (ob1). The search for a network would take 0.2 s. */
    if (!network) setenv("OMPI_MCA_pml", "ob1", 0);
    /* A single process needs no daemon of Open MPI, and no shared memory, whose file Open MPI 5 would not remove. */
    if (!tr_started_by_launcher()) {
        setenv("OMPI_MCA_ess_singleton_isolated", "1", 0);
        setenv("OMPI_MCA_btl", "self", 0);
    }
    /* By default, messages above 64 kB use RDMA put over TCP. The reply of the receiver with the address queues behind its own
     * messages on the same connection, so of two ranks that send to each other one waits until the other has finished. */
    setenv("OMPI_MCA_btl_tcp_flags", "send,inplace", 0);
    int here = ranks_here(), everywhere = all ? atoi(all) : getenv("PMIX_RANK") && step ? atoi(step) : 0;
    if (here > online_cores()) setenv("OMPI_MCA_mpi_yield_when_idle", "1", 0);
    /* A single host needs no TCP. With other interfaces than lo, Open MPI 5 may warn that no two of them match. */
    if (here > 0 && here == everywhere && !getenv("OMPI_MCA_btl_tcp_if_exclude"))
        setenv("OMPI_MCA_btl_tcp_if_include", "lo", 0);
    tr_blis_environment();
    /* Each rank has its own folder for the files of windows, inside the session folder of mpirun. Open MPI 4 names these files
     * by host and communicator. Communicators of two teams may have the same number, and would then use the same files on a
     * common host. */
    if (session &&
        (size_t)snprintf(folder, sizeof folder, "%s/windows.%ld", session, (long)getpid()) < sizeof folder &&
        mkdir(folder, 0700) == 0)
        setenv("OMPI_MCA_osc_rdma_backing_directory", folder, 0);
    set_timer_slack_by_ranks();
}

/* Numbers the nodes in the order of their lowest ranks: sets node_rank, node_size and node_of. */
static int ranks_number_nodes(tr_context *tr)
{
    TR_FREED int *number = NULL;
    int head = tr->rank, nodes = 0;
    MPI_Comm_rank(tr->node, &tr->node_rank);
    MPI_Comm_size(tr->node, &tr->node_size);
    TR_TRY(tr_broadcast(tr, TR_SET_NODE, 0, &head, sizeof head));
    TR_TRY(TR_NEW(&tr->node_of, (size_t)tr->size));
    TR_TRY(tr_all_gather(tr, TR_SET_ALL, &head, sizeof head, tr->node_of));
    TR_TRY(TR_NEW(&number, (size_t)tr->size));
    for (int rank = 0; rank < tr->size; rank++) {
        int its_head = tr->node_of[rank];
        if (its_head == rank) number[rank] = nodes++;
        tr->node_of[rank] = number[its_head];
    }
    return TR_OK;
}

int tr_ranks_find_nodes(tr_context *tr, uint64_t node_size)
{
    tr_comm_split_hosts(tr, "all ranks to find their nodes", &tr->host);
    tr->node = tr->host;
    if (node_size > 0)
        tr_comm_split(tr, tr->host, (int)((uint64_t)tr->rank / node_size), tr->rank,
                      "the ranks of this host to divide it", &tr->node);
    return ranks_number_nodes(tr);
}

/* ---- log ---- */

static void log_close(tr_context *tr)
{
    if (tr->log) fclose(tr->log);
    tr->log = NULL;
    free(tr->said);
    tr->said = NULL;
}

int tr_log_open(tr_context *tr, const char *folder, bool append)
{
    TR_FREED char *path = NULL;
    if (!tr->log) return TR_OK;
    TR_TRY(tr_format(&path, "%s/log", folder));
    fflush(tr->log);
    int fd = tr_open_file(path, O_WRONLY | O_APPEND), status = TR_OK;
    FILE *log = fd >= 0 ? fdopen(fd, "a") : NULL;
    if (!log) status = tr_file_failed(path, "created", errno);
    else if ((!append && ftruncate(fd, 0) < 0) ||
             fwrite(tr->said, 1, tr->said_bytes, log) != tr->said_bytes ||
             setvbuf(log, NULL, _IOLBF, BUFSIZ) != 0)
        status = tr_file_failed(path, "written", errno);
    log_close(tr);
    tr->log = log;
    return status;
}

/* Creates a context without ranks. */
static int context_new(struct tr_lifeline *lifeline, double began, tr_context **tr)
{
    TR_TRY(TR_NEW(tr, 1));
    (*tr)->world = (*tr)->wire = (*tr)->node = (*tr)->host = MPI_COMM_NULL;
    (*tr)->workers = (*tr)->group = (*tr)->leaders = (*tr)->servers = MPI_COMM_NULL;
    (*tr)->lifeline = lifeline;
    (*tr)->began = began;
    return TR_OK;
}

/* Sets rank and size from `world`, creates `wire`, and starts the log, which stays in memory until the output folder exists. */
static void context_join_world(tr_context *tr)
{
    MPI_Comm_rank(tr->world, &tr->rank);
    MPI_Comm_size(tr->world, &tr->size);
    tr_comm_dup(tr, tr->world, "all ranks to open their wire", &tr->wire);
    if (tr->rank == 0) tr->log = open_memstream(&tr->said, &tr->said_bytes);
}

static int context_start(int *argc, char ***argv, tr_context **tr)
{
    double began = tr_now();
    tr_mpi_environment();
    int running = 0;
    MPI_Initialized(&running);
    if (!running) tr_stderr_by_lines();
    struct tr_lifeline *lifeline = NULL;
    const char *folder = getenv("PMIX_SERVER_TMPDIR");
    if (!folder) folder = getenv("TMPDIR");
    const char *comma = folder ? strchr(folder, ',') : NULL;
    /* Open MPI 4 treats a name with commas as a list of folders, and would remove the folder before the comma when it ends */
    if (!running && comma)
        return tr_fail(TR_ERR_CONFIG,
                       "TMPDIR, %s, has a comma in its name: Open MPI would remove %.*s when the job ends",
                       folder, (int)(comma - folder), folder);
    if (!running) TR_TRY(tr_lifeline_start(&lifeline));
    /* MPI_Init() instead of MPI_THREAD_FUNNELED, although there are other threads: these never call MPI. FUNNELED enables locks
     * in Open MPI 4: a round trip of 8 bytes within a node would take 1.1 us instead of 0.8. */
    tr_lifeline_enter(lifeline, 0);
    while (!running && TR_FAULT("enter") == TR_FAULT_HANG) tr_sleep(1);
    if (!running && MPI_Init(argc, argv) != MPI_SUCCESS)
        return tr_fail(TR_ERR_SYSTEM, "MPI cannot be started");
    tr_lifeline_through(lifeline);
    prctl(PR_SET_TIMERSLACK, prompt);
    TR_TRY(context_new(lifeline, began, tr));
    int here = ranks_here();
    MPI_Comm_rank(MPI_COMM_WORLD, &(*tr)->rank);
    MPI_Comm_size(MPI_COMM_WORLD, &(*tr)->size);
    (*tr)->crowded = (here > 0 ? here : (*tr)->size) > online_cores();
    (*tr)->started_mpi = !running;
    tr_comm_dup(*tr, MPI_COMM_WORLD, "all ranks to start", &(*tr)->world);
    context_join_world(*tr);
    if ((*tr)->size == 1 && tr_started_ranks() > 1) {
        int told = tr_started_ranks();
        tr_ranks_stop(*tr);
        return tr_fail(
            TR_ERR_USAGE,
            "%d processes were started, but each is alone: the launcher and Open MPI have no PMIx in "
            "common, expected srun --mpi=pmix, or mpirun",
            told);
    }
    /* All ranks use the best instruction set that the processors of all of them support. Then sums are rounded equally on all
     * hosts, and a job under BSP gives the same model on any assignment of ranks to hosts. */
    int least = (int)tr_cpu();
    MPI_Request request;
    MPI_Iallreduce(MPI_IN_PLACE, &least, 1, MPI_INT, MPI_MIN, (*tr)->world, &request);
    tr_wait_alone(*tr, &request, "all ranks to say which instructions they have");
    if (least < (int)tr_cpu()) tr_cpu_lower(least);
    return TR_OK;
}

int tr_ranks_start(int *argc, char ***argv, tr_context **tr)
{
    int status = context_start(argc, argv, tr);
    if (status != TR_OK && !tr_is_an_echo()) tr_printf(stderr, "trireme: error: %s\n", tr_error_text());
    return status;
}

int tr_ranks_start_team(tr_context *of, const int *rank, int n, int number, tr_context **team)
{
    TR_TRY(context_new(of->lifeline, of->began, team));
    tr_comm_of_team(of, rank, n, number, "the ranks of a task to form a team", &(*team)->world);
    (*team)->crowded = of->crowded; /* teams share the cores */
    context_join_world(*team);
    (*team)->node_rows = of->node_rows;
    if (!of->node_of) return TR_OK;
    tr_comm_split(*team, (*team)->world, of->node_of[of->rank], (*team)->rank, "the team to find its nodes",
                  &(*team)->node);
    (*team)->host = (*team)->node;
    if (of->host != of->node) tr_comm_split_hosts(*team, "the team to find its hosts", &(*team)->host);
    return ranks_number_nodes(*team);
}

/* ---- sets of workers ---- */

bool tr_worker_set_has(const tr_context *tr, const struct tr_worker_set *set, int rank)
{
    const struct tr_place *place = &tr->layout.place[rank];
    int group = place->group - set->of.first_group;
    return (place->roles & TR_SLAVE) && group >= 0 && group < set->of.groups &&
           place->member < set->of.group_size;
}

int tr_worker_rank(const tr_context *tr, const struct tr_worker_set *set, int worker)
{
    int group = set->of.first_group + worker / set->of.group_size, member = worker % set->of.group_size;
    return tr->layout.worker_rank[group * tr->layout.group_size + member];
}

static void worker_set_find_self(const tr_context *tr, struct tr_worker_set *set)
{
    bool works = tr_worker_set_has(tr, set, tr->rank);
    set->group = works ? tr->me.group - set->of.first_group : -1;
    set->member = works ? tr->me.member : -1;
    set->worker = works ? set->group * set->of.group_size + set->member : -1;
}

int tr_worker_set_open(tr_context *tr, struct tr_worker_choice choice, struct tr_worker_set *set)
{
    *set = (struct tr_worker_set){
        .of = choice, .members = MPI_COMM_NULL, .participants = tr->world, .owned = true};
    worker_set_find_self(tr, set);
    tr_comm_split(tr, tr->world, set->worker < 0 ? MPI_UNDEFINED : set->group, set->member,
                  "all ranks to make groups of workers", &set->members);
    return TR_OK;
}

int tr_worker_set_restrict(tr_context *tr, struct tr_worker_set *set, bool needed)
{
    needed = needed || set->worker >= 0 || tr->rank == 0;
    TR_TRY(TR_NEW(&set->participates, (size_t)tr->size));
    TR_TRY(tr_all_gather(tr, TR_SET_ALL, &needed, sizeof needed, set->participates));
    tr_comm_split(tr, tr->world, needed ? 0 : MPI_UNDEFINED, tr->rank,
                  "all ranks to say whether a stage needs them", &set->participants);
    return TR_OK;
}

void tr_worker_set_close(struct tr_worker_set *set)
{
    if (!set->owned) return;
    if (set->participates && set->participants != MPI_COMM_NULL) MPI_Comm_free(&set->participants);
    if (set->members != MPI_COMM_NULL) MPI_Comm_free(&set->members);
    free(set->participates);
    *set = (struct tr_worker_set){.worker = -1};
}

/* ---- roles ---- */

static void comms_free(MPI_Comm *const *comms, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (*comms[i] != MPI_COMM_NULL) MPI_Comm_free(comms[i]);
}

static void roles_free(tr_context *tr)
{
    MPI_Comm *comms[] = {&tr->servers, &tr->leaders, &tr->group, &tr->workers};
    if (tr->let_go) tr->let_go(tr);
    for (size_t i = 0; i < sizeof comms / sizeof *comms; i++)
        if (*comms[i] == tr->wire || *comms[i] == MPI_COMM_SELF) *comms[i] = MPI_COMM_NULL;
    if (tr->group == tr->workers) tr->group = MPI_COMM_NULL;
    comms_free(comms, sizeof comms / sizeof *comms);
    tr_layout_free(&tr->layout);
}

/* Returns the number by which a rank is ordered in the communicator of a role; -1: the rank does not have the role. */
static int role_order(const struct tr_layout *layout, int rank, unsigned role)
{
    const struct tr_place *place = &layout->place[rank];
    if (!(place->roles & role)) return -1;
    return role == TR_SERVER   ? rank
           : role == TR_LEADER ? place->group
                               : place->group * layout->group_size + place->member;
}

/* Creates the communicator of a role, or uses `wire` or MPI_COMM_SELF if it has the same ranks in the same order. All ranks. */
static void role_make_comm(tr_context *tr, unsigned role, MPI_Comm *comm)
{
    int mine = role_order(&tr->layout, tr->rank, role), members = 0, in_order = 0;
    for (int rank = 0; rank < tr->size; rank++) {
        int order = role_order(&tr->layout, rank, role);
        members += order >= 0;
        in_order += order == rank;
    }
    if (in_order == tr->size) *comm = tr->wire;
    else if (members == 1) *comm = mine < 0 ? MPI_COMM_NULL : MPI_COMM_SELF;
    else
        tr_comm_split(tr, tr->world, mine < 0 ? MPI_UNDEFINED : 0, mine, "all ranks to take their roles",
                      comm);
}

/* By default, the workers of a node form a group in two cases:
 *   if blocks of parameters rotate through the members, which then never change the same parameters at the same time;
 *   under BSP on several nodes, where an update leaves the node once and a value enters it once. (Under SSP and ASP the
 *   members would wait for each other.)
 * Under BSP, all workers are one group if parameters rotate, since only blocks are sent, and during computation. Exceptions are
 * methods that converge equally well with groups per node, which send fewer bytes. */
int tr_ranks_assign(tr_context *tr)
{
    const tr_job *job = tr->job;
    struct tr_layout layout;
    struct tr_layout_options options = {.kind = TR_ROLES_AUTO};
    if (job) {
        const tr_method *method = &job->class->methods[tr_job_method(job)];
        bool bsp = tr->staleness == 0, spreads = bsp && job->data.partition == TR_DATA_HORIZONTAL;
        options = (struct tr_layout_options){(enum tr_layout_kind)job->ranks.layout, (int)job->ranks.servers,
                                             (int)job->ranks.groups, (int)job->ranks.group_size,
                                             spreads ? TR_GROUP_OF_SPREAD : TR_GROUP_OF_ONE};
        if (method->rotates && bsp)
            options.grouping = method->by_node ? TR_GROUP_OF_NODE_OR_ALL : TR_GROUP_OF_ALL;
        else if (method->in_groups && (!method->in_step || bsp)) options.grouping = TR_GROUP_OF_NODE;
    }
    if (!tr->node_of) TR_TRY(tr_ranks_find_nodes(tr, job ? job->ranks.node_size : 0));
    TR_TRY(tr_layout_choose(&options, tr->size, tr->node_of, &layout));
    if (tr_layout_equal(&layout, &tr->layout)) {
        tr_layout_free(&layout);
    } else {
        roles_free(tr);
        tr->layout = layout;
        tr->me = layout.place[tr->rank];
        role_make_comm(tr, TR_SLAVE, &tr->workers);
        role_make_comm(tr, TR_LEADER, &tr->leaders);
        role_make_comm(tr, TR_SERVER, &tr->servers);
        bool works = tr_is(tr, TR_SLAVE);
        if (layout.group_size == 1) tr->group = works ? MPI_COMM_SELF : MPI_COMM_NULL;
        else if (layout.groups == 1) tr->group = tr->workers;
        else
            tr_comm_split(tr, tr->world, works ? tr->me.group : MPI_UNDEFINED, tr->me.member,
                          "all ranks to take their roles", &tr->group);
    }
    tr->all = (struct tr_worker_set){
        .of = {0, tr->layout.groups, tr->layout.group_size}, .members = tr->group, .participants = tr->world};
    worker_set_find_self(tr, &tr->all);
    tr->active = &tr->all;
    return TR_OK;
}

void tr_ranks_rest(tr_context *team)
{
    const size_t lasting = offsetof(struct tr_context, job);
    if (team->at_end) team->at_end(team);
    free(team->polls);
    log_close(team);
    memset((char *)team + lasting, 0, sizeof *team - lasting);
    team->lent = true;
    if (team->rank == 0) team->log = open_memstream(&team->said, &team->said_bytes);
}

int tr_ranks_stop(tr_context *tr)
{
    int status = tr->status;
    log_close(tr);
    if (tr->at_end) tr->at_end(tr);
    roles_free(tr);
    tr_shm_end(tr);
    if (tr->started_mpi) tr_meet(tr, tr->world, "all ranks to end");
    MPI_Comm *comms[] = {&tr->node, &tr->host, &tr->wire, &tr->world};
    if (tr->host == tr->node) tr->host = MPI_COMM_NULL;
    comms_free(comms, sizeof comms / sizeof *comms);
    if (tr->started_mpi) tr_lifeline_enter(tr->lifeline, tr_patience(tr));
    if (!tr->lent) tr_job_free(tr->job);
    TR_FREE_ALL(tr->polls, tr->node_of);
    if (tr->started_mpi) {
        while (TR_FAULT("leave") == TR_FAULT_HANG) tr_sleep(1);
        set_timer_slack_by_ranks();
        MPI_Finalize();
        tr_lifeline_stop(&tr->lifeline, status);
        (void)TR_FAULT("left");
    }
    free(tr);
    return status;
}

/* ---- agreed status ---- */

void tr_say_error(const tr_context *tr, const char *text)
{
    tr_live_end();
    tr_printf(stderr, "trireme: error: %s%s%s%s\n", tr->team ? "task " : "", tr->team ? tr->team : "",
              tr->team ? ": " : "", text);
    if (tr->log) tr_printf(tr->log, "error: %s\n", text);
}

int tr_agree(tr_context *tr, int status)
{
    return tr_agree_among(tr, tr->world, status);
}

int tr_agree_among(tr_context *tr, MPI_Comm comm, int status)
{
    /* the status of the lowest failed rank counts: MPI_MIN finds it, as the rank is in the upper half of the number */
    int64_t mine = status == TR_OK ? INT64_MAX : ((int64_t)tr->rank << 32) | status, first;
    MPI_Request request;
    MPI_Iallreduce(&mine, &first, 1, MPI_INT64_T, MPI_MIN, comm, &request);
    TR_TRY(tr_wait_request(tr, &request, "all ranks to agree that all is well"));
    tr->failed = TR_OK;
    if (first == INT64_MAX) return TR_OK;
    int agreed = (int)(first & INT32_MAX), failed = (int)(first >> 32);
    /* rank 0 prints the error, in order with its other messages */
    char text[1024] = "";
    if (failed == tr->rank) snprintf(text, sizeof text, "%s", tr_error_text());
    if (failed != 0) {
        MPI_Request move = MPI_REQUEST_NULL;
        if (tr->rank == failed) MPI_Isend(text, sizeof text, MPI_CHAR, 0, TR_TAG_ERROR, tr->wire, &move);
        if (tr->rank == 0) MPI_Irecv(text, sizeof text, MPI_CHAR, failed, TR_TAG_ERROR, tr->wire, &move);
        TR_TRY(tr_wait_request(tr, &move, "the text of an error"));
    }
    if (tr->rank == 0 && !tr->quiet) tr_say_error(tr, text);
    if (tr->rank == 0) tr_fail(agreed, "%s", text);
    else if (failed != tr->rank) tr_fail(agreed, "rank %d failed", failed);
    if (tr->status == TR_OK) tr->status = agreed;
    return agreed;
}

/* Writes a line to the log and, if `shown`, to stderr, where continuation lines are indented to column 15. */
static void log_write_line(const tr_context *tr, bool shown, const char *format, va_list arguments)
{
    char raw[2048], text[sizeof raw];
    int n = tr->team ? snprintf(text, sizeof text, "%s: ", tr->team) : 0;
    vsnprintf(raw, sizeof raw, format, arguments);
    tr_escape(text + n, sizeof text - (size_t)n, raw, strlen(raw));
    if (tr->log) tr_printf(tr->log, "%s\n", text + n);
    if (!shown) return;
    tr_live_end();
    tr_put_wrapped(stderr, text, 15);
}

int tr_context_report(tr_context *tr, const char *name, double value)
{
    size_t i = 0;
    while (i < tr->figures && strcmp(tr->figure[i].name, name) != 0) i++;
    if (i == sizeof tr->figure / sizeof *tr->figure)
        return tr_fail(TR_ERR_INTERNAL, "too many figures: %s", name);
    tr->figure[i].name = name;
    tr->figure[i].value = value;
    tr->figures += i == tr->figures;
    return TR_OK;
}

void tr_say(const tr_context *tr, const char *format, ...)
{
    if (tr->rank != 0) return;
    va_list arguments;
    va_start(arguments, format);
    log_write_line(tr, !tr->job || tr->job->report.progress != TR_PROGRESS_NO, format, arguments);
    va_end(arguments);
}

void tr_warn(const tr_context *tr, const char *format, ...)
{
    if (tr->rank != 0) return;
    va_list arguments;
    va_start(arguments, format);
    log_write_line(tr, true, format, arguments);
    va_end(arguments);
}

int tr_rank(const tr_context *tr)
{
    return tr->rank;
}

int tr_size(const tr_context *tr)
{
    return tr->size;
}

int tr_workers(const tr_context *tr)
{
    return tr_layout_workers(&tr->layout);
}

int tr_servers(const tr_context *tr)
{
    return tr->layout.servers;
}

int tr_groups(const tr_context *tr)
{
    return tr->layout.groups;
}

int tr_group_size(const tr_context *tr)
{
    return tr->layout.group_size;
}

int tr_nodes(const tr_context *tr)
{
    return tr->layout.nodes;
}

bool tr_in_lockstep(const tr_context *tr)
{
    return tr->staleness == 0;
}

unsigned tr_roles(const tr_context *tr)
{
    return tr->me.roles;
}

const tr_job *tr_context_job(const tr_context *tr)
{
    return tr->job;
}
