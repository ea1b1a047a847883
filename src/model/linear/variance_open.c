/* Before variance reduction: whether the job suits it, and the memory that the ranks of a node share for it. */
#include <stdlib.h>

#include "store/checkpoint.h"
#include "model/linear/parts.h"
#include "model/linear/variance.h"

const char *const tr_variance_stages[TR_VARIANCE_STAGES] = {"full", "inner"};

/* Of a small model: else its workers would wait for each other's locks. */
enum { LEAST_CHUNKS = 64 };

/* ---- checking ---- */

int tr_linear_variance_check(const tr_job *job)
{
    TR_TRY(tr_job_check_stages(job, tr_variance_stages, TR_VARIANCE_STAGES));
    const char *method = tr_job_where(job, "solve.method");
    if (job->model.type == TR_MODEL_SVM)
        return tr_fail(TR_ERR_CONFIG,
                       "%s: variance reduction needs a smooth loss: model.type svm has none, l2svm does",
                       method);
    if (job->sync.mode != TR_SYNC_BSP)
        return tr_fail(TR_ERR_CONFIG,
                       "%s: with variance reduction stages wait for each other: expected sync.mode bsp",
                       tr_job_where(job, "sync.mode"));
    if (job->data.partition != TR_DATA_REPLICATED)
        return tr_fail(TR_ERR_CONFIG,
                       "%s: variance reduction works on the rows of a node: expected data.partition "
                       "replicated",
                       tr_job_where(job, "data.partition"));
    if (job->sync.weight != TR_WEIGHT_SUM || job->solve.optimizer != TR_OPTIMIZER_SGD)
        return tr_fail(TR_ERR_CONFIG, "%s: sync.weight and solve.optimizer are for solve.method sgd", method);
    if (job->table.storage == TR_STORAGE_HASH || job->table.precision != TR_PRECISION_FULL ||
        job->table.filter != TR_FILTER_NONE || job->table.push == TR_PUSH_MESSAGE)
        return tr_fail(TR_ERR_CONFIG,
                       "%s: variance reduction needs dense tables, full precision and no filter", method);
    if (job->model.l1 > 0)
        return tr_fail(TR_ERR_CONFIG, "%s: model.l1 needs solve.method sgd and solve.optimizer ftrl",
                       tr_job_where(job, "model.l1"));
    return TR_OK;
}

/* ---- memory ---- */

/* Lays the model out from `at` on; NULL: only to see how much it takes. */
static size_t lay_out(const struct tr_linear *m, struct tr_linear_variance *v, char *at)
{
    struct tr_arrays arrays = {.memory = at};
    struct tr_variance_model *model = &v->model;
    size_t array = model->n * tr_variance_element(m);
    int method = m->job->solve.method;
    model->step = tr_arrays_take(&arrays, sizeof *model->step);
    model->snapshot = v->carried[TR_SNAPSHOT] = tr_arrays_take(&arrays, array);
    model->w = tr_arrays_take(&arrays, array);
    if (method != TR_SOLVE_SVRG) v->carried[TR_ITERATE] = model->w;
    if (method == TR_SOLVE_KATYUSHA) model->z = v->carried[TR_SECOND] = tr_arrays_take(&arrays, array);
    if (method != TR_SOLVE_SVRG) model->sum = tr_arrays_take(&arrays, model->n * sizeof *model->sum);
    model->mu = tr_arrays_take(&arrays, array);
    v->moving = arrays.bytes;
    v->held = tr_arrays_take(&arrays, sizeof *v->held);
    model->last = tr_arrays_take(&arrays, model->n * sizeof *model->last);
    v->slope = tr_arrays_take(&arrays, m->train->rows.n * tr_variance_element(m));
    size_t chunk = tr_min_size((size_t)m->job->local.chunk, model->n / LEAST_CHUNKS);
    v->race.kind = m->job->sync.race;
    v->race.shift = 0;
    while ((UINT64_C(1) << v->race.shift) < chunk) v->race.shift++;
    size_t words = v->race.kind == TR_RACE_CHUNK ? tr_race_words(model->n, v->race.shift) : 0;
    v->race.lock = tr_arrays_take(&arrays, words * sizeof *v->race.lock);
    return arrays.bytes;
}

/* The rows of a node's ranks lie once in its memory only if they are of one group. */
static int check_groups(const struct tr_linear *m)
{
    const tr_context *tr = m->tr;
    for (int rank = 0; rank < tr->size; rank++) {
        const struct tr_place *place = &tr->layout.place[rank];
        if (tr_same_node(tr, rank) && place->group >= 0 && tr->me.group >= 0 && place->group != tr->me.group)
            return tr_fail(
                TR_ERR_CONFIG,
                "%s: variance reduction needs the workers of a node in one group, and groups are of equal "
                "size: "
                "start as many ranks on each node, and leave ranks.groups and ranks.group_size out",
                tr_job_where(m->job, "solve.method"));
    }
    return TR_OK;
}

/* Where the run goes on from a checkpoint of one group, which has no such tables, they begin empty: the model is in the
 * nodes' memory then. */
static bool had_one_group(const struct tr_linear *m)
{
    const struct tr_manifest *found = tr_checkpoint_found(m->tr);
    return found && found->facts.groups == 1;
}

static int open_tables(struct tr_linear *m)
{
    struct tr_linear_variance *v = m->variance;
    enum tr_dtype dtype = tr_variance_element(m) == 4 ? TR_F32 : TR_F64;
    static const char *const names[TR_CARRIED] = {NULL, "iterate", "second"};
    tr_table_options options = {.servers = tr_linear_servers(m)};
    TR_TRY(tr_table_create_with(m->tr, "mu", dtype, 1, v->model.n, &options, &v->mu));
    v->table[TR_SNAPSHOT] = m->w;
    for (int i = TR_ITERATE; i < TR_CARRIED; i++) {
        if (!v->carried[i] || m->tr->layout.groups == 1) continue;
        TR_TRY(tr_table_create_with(m->tr, names[i], dtype, 1, v->model.n, &options, &v->table[i]));
        v->table[i]->left_out = had_one_group(m);
    }
    return TR_OK;
}

static int open_worker(struct tr_linear *m)
{
    if (!tr_is(m->tr, TR_SLAVE)) return TR_OK;
    TR_TRY(TR_NEW(&m->margin, TR_LINEAR_MARGINS));
    TR_TRY(TR_NEW(&m->variance->gradient, m->variance->model.n));
    if (m->test)
        TR_TRY(tr_linear_set_problem(m, m->job->model.bias, m->test, &m->test_problem, &m->test_target));
    return tr_linear_set_problem(m, m->job->model.bias, m->train, &m->problem, &m->target);
}

/* Each worker looks at its part of its group's rows. */
static int find_smoothness(struct tr_linear *m)
{
    tr_context *tr = m->tr;
    double largest = 0;
    if (tr_is(tr, TR_SLAVE)) {
        tr_worker me = {.tr = tr, .member = tr->me.member, .group_size = tr->layout.group_size};
        size_t first = tr_data_part_begin(m->train, &me), end = tr_data_part_end(m->train, &me);
        largest = tr_variance_largest_norm(&m->problem, first, end - first);
    }
    MPI_Request request;
    MPI_Iallreduce(MPI_IN_PLACE, &largest, 1, MPI_DOUBLE, MPI_MAX, tr->world, &request);
    TR_TRY(tr_wait_request(tr, &request, "all workers to look over their rows"));
    struct tr_problem p = m->problem; /* of rank 0 too, which may not work */
    p.model = m->job->model.type;
    p.l2 = m->l2;
    m->variance->smoothness = tr_variance_smoothness(&p, largest);
    return TR_OK;
}

int tr_linear_variance_open(struct tr_linear *m)
{
    struct tr_linear_variance *v;
    TR_TRY(tr_agree(m->tr, check_groups(m)));
    TR_TRY(tr_agree(m->tr, TR_NEW(&m->variance, 1)));
    v = m->variance;
    v->model.n = (size_t)m->train->columns + m->job->model.bias;
    uint64_t bytes = lay_out(m, v, NULL), most = 0;
    MPI_Allreduce(&bytes, &most, 1, MPI_UINT64_T, MPI_MAX, m->tr->node); /* rows are with workers alone */
    TR_TRY(tr_node_memory_open(m->tr, most, &v->memory));
    lay_out(m, v, v->memory.at);
    TR_TRY(tr_transfer_open(m->tr, &v->memory, &v->transfer));
    TR_TRY(open_tables(m));
    TR_TRY(tr_agree(m->tr, open_worker(m)));
    return find_smoothness(m);
}

void tr_linear_variance_close(struct tr_linear *m)
{
    struct tr_linear_variance *v = m->variance;
    if (!v) return;
    tr_transfer_close(&v->transfer);
    tr_node_memory_close(&v->memory);
    free(v->gradient);
    free(v);
    m->variance = NULL;
}
