#define _GNU_SOURCE
#include "cli/cli.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include "data/dataset.h"
#include "data/files.h"
#include "model/linear.h"
#include "model/auc.h"
#include "model/save.h"
#include "monitor/monitor.h"

extern char **environ;

/* ---- how much memory it will take ---- */

/* What is known of the data before they are read. */
struct size {
    double text;     /* bytes, compressed files as they will be */
    double features; /* the highest index of a sample: most data have popular features, but rare ones too,
                        early */
};

/* The highest index among the first lines of a file, compressed or not; 0 if there is none. */
static double sample_features(const char *path)
{
    enum { SAMPLE = 1 << 18 };
    double highest = 0;
    char *text = malloc(SAMPLE + 1);
    gzFile file = text ? gzopen(path, "rb") : NULL;
    int n = file ? gzread(file, text, SAMPLE) : 0;
    if (n > 0) {
        text[n] = '\0';
        for (char *colon = text; (colon = strchr(colon, ':')); colon++) {
            char *digit = colon;
            while (digit > text && digit[-1] >= '0' && digit[-1] <= '9') digit--;
            highest = fmax(highest, strtod(digit, NULL));
        }
    }
    if (file) gzclose(file);
    free(text);
    return highest;
}

static int add_size(const struct tr_job *job, const struct tr_job_list *patterns, struct size *size)
{
    struct tr_files files = {0};
    if (patterns->n == 0) return TR_OK;
    TR_TRY(tr_data_files(job, patterns, &files));
    for (size_t i = 0; i < files.n; i++)
        size->text += (files.file[i].gzip ? 4.0 : 1.0) * (double)files.file[i].size;
    size->features = fmax(size->features, sample_features(files.file[0].path));
    tr_files_close(&files);
    return TR_OK;
}

struct memory {
    double worker, server; /* bytes of one rank in each role */
    double rank, node;     /* of the fullest */
};

/* The arithmetic, for W workers and S servers:
 *   a worker  0.6 × text / W for its rows: a non-zero takes 9 bytes or more as text and 8 in memory, but 4
 * when all values are 1, which is the usual case of wide data; what is kept for each row is in it
 *             + 3 × element for each key of its view (values, deltas, and messages on their way), of which
 * there are no more than features, and than non-zeros in its text a server  element × features / S for its
 * share; half as much again where SGD counts rows a rank    40 MB for the program and MPI, and its roles Good
 * to a factor of about one and a half: enough to see that a job cannot fit. */
static struct memory estimate(const tr_context *tr, const struct size *size)
{
    const struct tr_layout *l = &tr->layout;
    double element = tr->job->model.dtype == TR_DTYPE_F32 ? 4 : 8;
    double text = size->text / tr_layout_workers(l), keys = fmin(size->features, text / 9);
    double counts = tr->job->solve.method == TR_SOLVE_SGD ? 1.5 : 1;
    struct memory m = {.worker = 0.6 * text + 3 * element * keys,
                       .server = counts * element * size->features / l->servers};
    for (int node = 0; node < l->nodes; node++) {
        double sum = 0;
        for (int r = 0; r < l->ranks; r++) {
            if (tr->node_of[r] != node) continue;
            unsigned roles = l->place[r].roles;
            double rank = 40e6 + (roles & TR_SLAVE ? m.worker : 0) + (roles & TR_SERVER ? m.server : 0);
            m.rank = fmax(m.rank, rank);
            sum += rank;
        }
        m.node = fmax(m.node, sum);
    }
    return m;
}

/* One line before anything large is allocated. Rank 0 looks at the files for all. */
static int say_estimate(tr_context *tr)
{
    if (tr->rank != 0) return TR_OK;
    const tr_job *job = tr->job;
    if (job->data.train.n == 0)
        return tr_fail(TR_ERR_CONFIG, "%s: data.train is missing: the files to learn from",
                       tr_job_where(job, "data.train"));
    struct size size = {0};
    TR_TRY(add_size(job, &job->data.train, &size));
    TR_TRY(add_size(job, &job->data.test, &size));
    if (job->data.features > 0) size.features = (double)job->data.features;
    struct memory m = estimate(tr, &size);
    double present = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
    tr_say(tr, "memory: about %.3g GB a rank, %.3g GB a node of %.3g GB", m.rank * 1e-9, m.node * 1e-9,
           present * 1e-9);
    if (m.node > present)
        tr_say(tr, "memory: this may not fit: use more nodes, or fewer files in data.train");
    return TR_OK;
}

/* ---- --explain ---- */

/* What tr_mpi_environment() adds to the environment, seen by comparing; before MPI adds what it needs itself.
 */
static void explain_environment(void)
{
    char **before = environ;
    size_t n = 0;
    while (before[n]) n++;
    char **copy = malloc((n + 1) * sizeof *copy);
    if (copy) memcpy(copy, before, (n + 1) * sizeof *copy);
    tr_mpi_environment();
    const char *rank = getenv("OMPI_COMM_WORLD_RANK");
    for (char **now = environ; copy && *now && (!rank || atoi(rank) == 0); now++) {
        bool old = false;
        for (size_t i = 0; i < n; i++) old = old || copy[i] == *now;
        if (!old) fprintf(stderr, "explain: MPI setting %s made by trireme, as it was not set\n", *now);
    }
    free(copy);
}

static const char *const partition_name[] = {"range", "hash", "range-hash"};
static const char *const route_name[] = {"auto", "load", "get", "request"};
static const char *const push_name[] = {"auto", "merge", "accumulate", "message"};
static const char *const dtype_name[] = {"f32", "f64", "i32", "i64"};

/* What is decided for a table, as rank 0 sees it. */
static void explain_table(const tr_context *tr, const struct tr_table *t)
{
    int near = 0;
    for (uint32_t s = 0; s < t->partition.servers; s++) near += t->share[s] != NULL;
    tr_say(
        tr,
        "explain: table %s: %llu keys of %zu %s, partition %s over %u servers, %d of them in shared memory%s",
        t->name, (unsigned long long)t->keys, t->width, dtype_name[t->dtype],
        partition_name[t->partition.kind], t->partition.servers, near,
        t->window == MPI_WIN_NULL ? "" : ", an RMA window for the others");
    tr_say(tr, "explain: table %s: table.route %s, table.push %s, updates %s", t->name, route_name[t->route],
           push_name[t->push],
           t->merge      ? "merged clock by clock"
           : t->lockstep ? "in lockstep, by message or in place"
                         : "as they come");
}

int tr_explain(tr_context *tr)
{
    for (size_t i = 0; i < tr->tables->count; i++) explain_table(tr, tr->tables->table[i]);
    return TR_OK;
}

/* Takes --explain out of the words, wherever it stands. */
static bool take_explain(int *argc, char **argv)
{
    int kept = 0, found = 0;
    for (int i = 0; i < *argc; i++)
        if (strcmp(argv[i], "--explain") == 0)
            found++;
        else
            argv[kept++] = argv[i];
    if (found) argv[kept] = NULL;
    *argc = kept;
    return found > 0;
}

/* ---- the story ---- */

static int save(struct tr_linear *linear, struct tr_monitor *monitor)
{
    struct tr_summary summary = {.rows = linear->train->total_rows,
                                 .features = linear->train->columns,
                                 .nonzeros = linear->train->total_nonzeros,
                                 .test_auc = NAN};
    TR_TRY(tr_linear_save(linear, linear->job->output));
    if (linear->test && linear->job->model.type != TR_MODEL_LINEAR)
        TR_TRY(tr_linear_auc(linear, &summary.test_auc));
    return tr_monitor_summary(monitor, &summary);
}

static int train(tr_context *tr, bool explain, struct tr_monitor *monitor, struct tr_linear **linear)
{
    TR_TRY(tr_monitor_enter(monitor, TR_LOADING));
    TR_TRY(tr_agree(tr, say_estimate(tr)));
    TR_TRY(tr_linear_open(tr, linear));
    TR_TRY(tr_data_describe((*linear)->train, "training data"));
    if ((*linear)->test) TR_TRY(tr_data_describe((*linear)->test, "test data"));
    tr_monitor_count_rows(monitor, (*linear)->train->total_rows);
    TR_TRY(tr_monitor_enter(monitor, TR_TRAINING));
    TR_TRY(tr_linear_train(*linear));
    TR_TRY(tr_monitor_enter(monitor, TR_WRITING));
    if (explain) TR_TRY(tr_explain(tr));
    return save(*linear, monitor);
}

int tr_train_command(int argc, char **argv)
{
    static char name[] = "trireme train";
    argc++; /* tr_open() expects a name in front */
    argv--;
    argv[0] = name;
    if (argc == 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0))
        return tr_help_command(1, (char *[]){"train", NULL});
    bool explain = take_explain(&argc, argv);
    if (explain) explain_environment();
    tr_context *tr;
    TR_TRY(tr_open(&argc, &argv, &tr));
    struct tr_monitor *monitor = NULL;
    struct tr_linear *linear = NULL;
    int status = tr_monitor_open(tr, &monitor);
    if (status == TR_OK) status = train(tr, explain, monitor, &linear);
    if (status == TR_OK) tr_say(tr, "output: %s", tr_context_job(tr)->output);
    tr_linear_close(&linear);
    status = tr_monitor_close(&monitor, status);
    int outcome = tr_close(tr);
    return status != TR_OK ? status : outcome;
}
