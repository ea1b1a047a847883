/* Teams: some ranks of a context in a context of their own. */
#include "mpi_unit.h"

#include <dirent.h>

enum { KEYS = 300, CLOCKS = 6, ROUNDS = 50, AT_ONCE = 5 };

/* ---- what a team computes ---- */

/* Steps that depend on who takes them, and on all that were taken before: under BSP always the same bits. */
struct sums {
    tr_table *table;
    tr_view *view;
    double result; /* rank 0: of all workers */
    int failing;   /* clock in which worker 0 fails, or -1 */
};

static int prepare(tr_worker *me, void *state)
{
    struct sums *s = state;
    return mpi_open_view(s->table, TR_VIEW_UPDATE, &s->view);
}

static int compute(tr_worker *me, void *state)
{
    struct sums *s = state;
    if (me->worker == 0 && me->clock == s->failing) return tr_fail(TR_ERR_DATA, "worker 0 does not like it");
    TR_TRY(tr_view_pull(s->view));
    const double *value = s->view->value;
    double *delta = s->view->delta;
    for (int i = 0; i < KEYS; i++)
        delta[i] = 1.0 / (3 + me->worker + i) + value[i] / (7.0 + (double)me->clock + value[(i + 1) % KEYS]);
    return tr_view_push(s->view);
}

static int report(tr_worker *me, void *state, tr_report *report)
{
    const struct sums *s = state;
    for (int i = 0; i < KEYS; i++)
        report->sum[0] += (me->worker + 1) * ((const double *)s->view->value)[i] / (1 + i);
    return TR_OK;
}

static int summarize(void *state, const tr_report *sums, tr_evaluation *evaluation)
{
    struct sums *s = state;
    s->result = evaluation->objective = sums->sum[0];
    return TR_OK;
}

/* The result, on rank 0 of the context. */
static int add_up(tr_context *tr, int failing, double *result)
{
    struct sums s = {.failing = failing};
    TR_TRY(tr_table_create(tr, "sums", TR_F64, 1, KEYS, &s.table));
    const tr_stage stage = {.name = "add",
                            .state = &s,
                            .clocks = CLOCKS,
                            .prepare = prepare,
                            .compute = compute,
                            .evaluate = report,
                            .summarize = summarize};
    int status = tr_run(tr, &stage);
    tr_view_close(&s.view);
    *result = s.result;
    return status;
}

/* ---- teams ---- */

/* Ranks first, first + step and so on of the world. */
static int choose(const tr_context *world, int first, int step, int *rank)
{
    int n = 0;
    for (int r = first; r < world->size; r += step) rank[n++] = r;
    return n;
}

static tr_job *job_of(const char *settings)
{
    static const char text[] = "data: {train: x}\n";
    char quiet[] = "report.progress=no", *overrides[MPI_SETTINGS], copy[MPI_NOTE], *rest = copy;
    int n = 0;
    tr_job *job = NULL;
    snprintf(copy, sizeof copy, "%s", settings);
    for (char *word; n < MPI_SETTINGS - 1 && (word = strtok_r(rest, " ", &rest));) overrides[n++] = word;
    overrides[n++] = quiet;
    mpi_ok(tr_job_parse(text, sizeof text - 1, "test", n, overrides, &job));
    return job;
}

/* Divides the world into teams; the ranks of each open their team, which they must close. Every rank is in one team, and
 * gets its number. */
static tr_context *open_team(tr_context *world, int teams, int number, const char *name, tr_job *job)
{
    int *rank = calloc((size_t)world->size, sizeof *rank);
    int n = choose(world, number, teams, rank);
    tr_context *team = NULL;
    mpi_ok(tr_team_open(world, rank, n, number, name, job, &team));
    free(rank);
    return team;
}

/* What the team's rank 0 has, for the world's rank 0. */
static double tell(const tr_context *world, int from, double mine)
{
    double told = mine;
    if (from == 0) return mine;
    if (world->rank == from) MPI_Send(&mine, 1, MPI_DOUBLE, 0, 1, MPI_COMM_WORLD);
    if (world->rank == 0) MPI_Recv(&told, 1, MPI_DOUBLE, from, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    return told;
}

/* ---- cases ---- */

/* A team that rests computes the same again, also when it had other roles meanwhile. */
static void take_other_tasks(tr_context *team, tr_job *job, double expected)
{
    tr_job *other = job_of("ranks.layout=colocated ranks.group_size=1"), *next[] = {job, other, job};
    for (int i = 0; i < 3; i++) {
        double again = 0;
        tr_team_rest(team);
        mpi_ok(tr_team_again(team, "again", next[i]));
        mpi_ok(add_up(team, -1, &again));
        mpi_check(next[i] == other || again == expected, "%.17g by a new team, %.17g again", expected, again);
    }
    tr_job_free(other);
}

MPI_CASE(a_team_of_all_ranks_computes_what_a_plain_context_does)
{
    const char *settings;
    for (int i = 0; (settings = mpi_layout(i)); i++) {
        double alone = 0, together = 0;
        tr_context *plain = mpi_context(settings);
        mpi_ok(add_up(plain, -1, &alone));
        tr_job *job = job_of(settings);
        tr_context *team = open_team(plain, 1, 0, "all", job);
        mpi_ok(add_up(team, -1, &together));
        mpi_check(team->rank == plain->rank && team->size == plain->size, "rank %d of %d", team->rank,
                  team->size);
        mpi_equal(tr_nodes(team), tr_nodes(plain));
        mpi_equal(alone, together);
        mpi_check(plain->rank != 0 || alone > 0, "nothing was added");
        take_other_tasks(team, job, alone);
        tr_close(team);
        tr_job_free(job);
        mpi_ok(tr_close(plain));
    }
}

static double add_in_team(tr_context *world, const char *name, tr_job *job)
{
    double result = 0;
    tr_context *team = open_team(world, 2, world->rank % 2, name, job);
    mpi_equal(team->rank, world->rank / 2);
    mpi_ok(add_up(team, -1, &result));
    tr_close(team);
    return result;
}

/* Two teams compute the same result concurrently and one after the other. */
static void compare(const char *settings)
{
    tr_context *world = mpi_context(settings);
    tr_job *job = job_of("");
    double in_turn = 0;
    for (int turn = 0; turn < 2; turn++) {
        if (turn == world->rank % 2) in_turn = add_in_team(world, "alone", job);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    for (int round = 0; round < AT_ONCE; round++) {
        double together = add_in_team(world, "one of two", job);
        mpi_equal(together, in_turn);
        mpi_check(world->rank > 1 || together > 0, "nothing was added");
        MPI_Barrier(MPI_COMM_WORLD);
    }
    tr_job_free(job);
    mpi_ok(tr_close(world));
}

MPI_CASE(two_teams_at_once_do_not_disturb_each_other)
{
    if (mpi_test.size < 2) return;
    compare("ranks.layout=colocated");
    compare("ranks.node_size=1");
    compare("ranks.node_size=3");
}

/* Both teams have the same number of ranks, and so the same results. */
MPI_CASE(teams_of_the_same_size_compute_the_same)
{
    if (mpi_test.size % 2) return;
    tr_context *world = mpi_context("ranks.layout=colocated");
    double result = 0;
    tr_job *job = job_of("");
    tr_context *team = open_team(world, 2, world->rank % 2, "half", job);
    mpi_ok(add_up(team, -1, &result));
    tr_close(team);
    double other = tell(world, 1, result);
    mpi_check(world->rank != 0 || other == result, "%.17g and %.17g", result, other);
    tr_job_free(job);
    mpi_ok(tr_close(world));
}

/* The nodes of a team are those of the whole. */
MPI_CASE(a_team_lies_on_the_nodes_of_its_ranks)
{
    tr_context *world = mpi_context("ranks.node_size=2");
    tr_job *job = job_of("");
    tr_context *team = open_team(world, 2, world->rank % 2, "across", job);
    if (!mpi_test.hosts && team) mpi_equal(tr_nodes(team), team->size);
    if (team) tr_close(team);
    tr_job_free(job);
    mpi_ok(tr_close(world));
}

MPI_CASE(a_team_that_fails_fails_alone)
{
    if (mpi_test.size < 2) return;
    tr_context *world = mpi_context("ranks.layout=colocated");
    double result = 0;
    tr_job *job = job_of("");
    bool fails = world->rank % 2;
    tr_context *team = open_team(world, 2, fails, fails ? "expected to fail" : "all is well", job);
    int status = add_up(team, fails ? 2 : -1, &result);
    mpi_equal(status, (fails ? TR_ERR_DATA : TR_OK));
    int last = tr_close(team);
    mpi_equal(last, (fails ? TR_ERR_DATA : TR_OK));
    tr_job_free(job);
    mpi_ok(tr_agree(world, TR_OK));
    mpi_ok(tr_close(world));
}

/* ---- state after the teams ---- */

/* Shared memory that this process still has, and names of it that its job has left: other programs come and go. */
static int count_mapped(void)
{
    char line[512];
    int n = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    if (!maps) return 0;
    while (fgets(line, sizeof line, maps)) n += strstr(line, "/dev/shm/") != NULL;
    fclose(maps);
    return n;
}

static int count_named(void)
{
    char ours[32], *end = NULL;
    int n = 0;
    const char *job = getenv("PMIX_NAMESPACE");
    unsigned long number = job ? strtoul(job, &end, 10) : 0;
    DIR *folder = number > 0 && !*end ? opendir("/dev/shm") : NULL; /* Open MPI 5 does not number jobs */
    if (!folder) return 0;
    snprintf(ours, sizeof ours, ".%lx.", number); /* as Open MPI 4 names them */
    for (struct dirent *entry; (entry = readdir(folder));)
        n += strncmp(entry->d_name, "osc_", 4) == 0 && strstr(entry->d_name, ours);
    closedir(folder);
    return n;
}

static int newest_communicator(void)
{
    MPI_Comm comm;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    int number = (int)MPI_Comm_c2f(comm);
    MPI_Comm_free(&comm);
    return number;
}

MPI_CASE(teams_that_were_closed_leave_nothing)
{
    tr_context *world = mpi_context("ranks.layout=colocated");
    tr_job *job = job_of("");
    int mapped = 0, named = 0, newest = 0;
    for (int round = 0; round <= ROUNDS; round++) {
        int teams = 1 + round % 3, mine = world->rank % teams;
        double result = 0;
        tr_context *team = open_team(world, teams, mine, "round", job);
        if (round % 5 == 0) mpi_ok(add_up(team, -1, &result));
        tr_close(team);
        if (round % 25) continue;
        MPI_Barrier(MPI_COMM_WORLD);
        if (round == 0) {
            mapped = count_mapped();
            named = count_named();
            newest = newest_communicator();
        }
        MPI_Barrier(MPI_COMM_WORLD);
        mpi_check(count_mapped() <= mapped, "%d pieces of shared memory, not %d", count_mapped(), mapped);
        mpi_check(count_named() <= named, "%d names in /dev/shm, not %d", count_named(), named);
        int now = newest_communicator();
        mpi_check(now <= newest, "communicator %d, not %d", now, newest);
    }
    tr_job_free(job);
    mpi_ok(tr_close(world));
}
