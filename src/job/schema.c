#include "job/schema.h"

#include <stddef.h>
#include <string.h>

#include "job/text.h"

#define AT(field) offsetof(struct tr_job, field)
#define WORDS(...)                                                                                           \
    (const char *const[])                                                                                    \
    {                                                                                                        \
        __VA_ARGS__, NULL                                                                                    \
    }
#define ANY_INT 2147483647.0

const struct tr_job_section tr_job_sections[TR_JOB_SECTIONS] = {
    {"model", "what is learnt", NULL},
    {"solve", "how it is learnt", NULL},
    {"data", "from which records", NULL},
    {"ranks", "who does what; `ranks: colocated` is short for ranks.layout", "ranks.layout"},
    {"table", "how the servers hold and exchange the parameters", NULL},
    {"sync", "how far workers may run ahead of each other", NULL},
    {"report", "what is printed and when", NULL},
};

/* clang-format off */
const struct tr_job_key tr_job_keys[TR_JOB_KEYS] = {
    {"name", TR_KIND_TEXT, AT(name), "<job file>",
     .help = "names the run; by default the job file without folder and .yaml"},
    {"output", TR_KIND_TEXT, AT(output), "runs/<name>",
     .help = "folder for everything the run writes"},
    {"seed", TR_KIND_INTEGER, AT(seed), "1",
     .help = "of all random choices"},

    {"model.type", TR_KIND_CHOICE, AT(model.type), "logistic",
     .words = WORDS("logistic", "linear", "svm", "l2svm"),
     .help = "logistic regression, least squares, or support vectors with hinge (svm) or squared hinge loss"},
    {"model.l2", TR_KIND_REAL, AT(model.l2), "1/n", .words = WORDS("1/n"),
     .help = "lambda in F(w) = mean loss + lambda/2 |w|^2; LIBLINEAR's C is 1/(lambda n)"},
    {"model.bias", TR_KIND_BOOL, AT(model.bias), "no",
     .help = "whether a constant is learnt besides the weights"},
    {"model.bias_l2", TR_KIND_BOOL, AT(model.bias_l2), "no",
     .help = "whether the bias is regularised (as LIBLINEAR does)"},
    {"model.dtype", TR_KIND_CHOICE, AT(model.dtype), "f32", .words = WORDS("f32", "f64"),
     .help = "numbers of the model: single or double precision"},

    {"solve.method", TR_KIND_CHOICE, AT(solve.method), "dual", .words = WORDS("dual", "sgd"),
     .help = "dual coordinate descent merged as CoCoA, or mini-batch gradient descent"},
    {"solve.epochs", TR_KIND_INTEGER, AT(solve.epochs), "20", .least = 1,
     .help = "passes over the data at most"},
    {"solve.target_gap", TR_KIND_REAL, AT(solve.target_gap), "0",
     .help = "stop when the objective is proven within this relative distance of the optimum; 0 = off"},
    {"solve.rate", TR_KIND_REAL, AT(solve.rate), "0.1", .above = true,
     .help = "sgd: size of the first step"},
    {"solve.decay", TR_KIND_REAL, AT(solve.decay), "0",
     .help = "sgd: the rate of clock c is rate/sqrt(decay*c+1)"},
    {"solve.batch", TR_KIND_INTEGER, AT(solve.batch), "0",
     .help = "rows over all groups of one mini-batch (sgd) or one turn (dual); 0 = chosen from the data"},
    {"solve.sigma", TR_KIND_REAL, AT(solve.sigma), "auto", .least = 1, .words = WORDS("auto"),
     .help = "dual: how much each worker damps its steps for the others; auto = their number, which is safe"},

    {"data.train", TR_KIND_LIST, AT(data.train), "",
     .help = "files to learn from, globs allowed; train needs them"},
    {"data.test", TR_KIND_LIST, AT(data.test), "",
     .help = "files to evaluate the model on, globs allowed"},
    {"data.folders", TR_KIND_LIST, AT(data.folders), ".,datasets,../shared/data",
     .help = "where relative paths of data are looked for, in this order"},
    {"data.format", TR_KIND_CHOICE, AT(data.format), "libsvm", .words = WORDS("libsvm"),
     .help = "of these files"},
    {"data.index_base", TR_KIND_CHOICE, AT(data.index_base), "auto", .words = WORDS("auto", "0", "1"),
     .help = "index of the first feature"},
    {"data.on_error", TR_KIND_CHOICE, AT(data.on_error), "stop", .words = WORDS("stop", "skip"),
     .help = "what to do with a malformed record"},
    {"data.partition", TR_KIND_CHOICE, AT(data.partition), "horizontal",
     .words = WORDS("horizontal", "vertical"),
     .help = "inside a group, each worker holds some of the rows or some of the features"},
    {"data.features", TR_KIND_INTEGER, AT(data.features), "0", .most = 4294967295.0,
     .help = "number of features; 0 = the largest index found"},

    {"ranks.layout", TR_KIND_CHOICE, AT(ranks.layout), "auto",
     .words = WORDS("auto", "dedicated", "colocated", "alone"),
     .help = "servers on ranks of their own, on the workers' ranks, or one rank for all"},
    {"ranks.servers", TR_KIND_INTEGER, AT(ranks.servers), "0", .most = ANY_INT,
     .help = "ranks that hold parameters; 0 = chosen from the ranks and nodes"},
    {"ranks.groups", TR_KIND_INTEGER, AT(ranks.groups), "0", .most = ANY_INT,
     .help = "groups of workers; 0 = chosen from the ranks and nodes"},
    {"ranks.group_size", TR_KIND_INTEGER, AT(ranks.group_size), "0", .most = ANY_INT,
     .help = "workers in a group; 0 = chosen from the ranks and nodes"},
    {"ranks.node_size", TR_KIND_INTEGER, AT(ranks.node_size), "0", .most = ANY_INT,
     .help = "ranks to be taken for one node, for experiments; 0 = those that share memory"},
    {"ranks.patience", TR_KIND_REAL, AT(ranks.patience), "60", .above = true,
     .help = "seconds after which a rank that waits says for what and for whom"},

    {"table.partition", TR_KIND_CHOICE, AT(table.partition), "range-hash",
     .words = WORDS("range", "hash", "range-hash"),
     .help = "how keys are spread over the servers: neighbours together, each alone, or hashed blocks"},
    {"table.block", TR_KIND_INTEGER, AT(table.block), "0",
     .help = "keys in one block of a range-hash partition; 0 = chosen"},
    {"table.route", TR_KIND_CHOICE, AT(table.route), "auto", .words = WORDS("auto", "load", "get", "request"),
     .help = "how parameters are fetched: shared memory, one-sided, or asked of the server"},
    {"table.push", TR_KIND_CHOICE, AT(table.push), "auto",
     .words = WORDS("auto", "merge", "accumulate", "message"),
     .help = "how updates reach the servers: merged collectively, one-sided, or as messages"},
    {"table.merge", TR_KIND_CHOICE, AT(table.merge), "auto", .words = WORDS("auto", "sparse", "dense"),
     .help = "how updates are merged: registered keys all-to-all, or whole shares in a tree"},

    {"sync.mode", TR_KIND_CHOICE, AT(sync.mode), "bsp", .words = WORDS("bsp", "ssp", "asp"),
     .help = "in step, stale by a bounded number of clocks, or unbounded"},
    {"sync.staleness", TR_KIND_INTEGER, AT(sync.staleness), "3",
     .help = "ssp: clocks the fastest may be ahead of the slowest"},
    {"sync.every", TR_KIND_INTEGER, AT(sync.every), "1", .least = 1,
     .help = "mini-batches in a clock"},

    {"report.every", TR_KIND_INTEGER, AT(report.every), "1", .least = 1,
     .help = "epochs between two evaluations"},
    {"report.progress", TR_KIND_CHOICE, AT(report.progress), "auto", .words = WORDS("auto", "yes", "no"),
     .help = "a table as the run goes; auto = a table on a terminal, else plain lines; no = only errors"},
};
/* clang-format on */

/* ---- looking up ---- */

const struct tr_job_key *tr_job_find_key(const char *name)
{
    for (const struct tr_job_key *key = tr_job_keys; key < tr_job_keys + TR_JOB_KEYS; key++)
        if (!strcmp(key->name, name)) return key;
    return NULL;
}

const struct tr_job_section *tr_job_find_section(const char *name)
{
    for (const struct tr_job_section *s = tr_job_sections; s < tr_job_sections + TR_JOB_SECTIONS; s++)
        if (!strcmp(s->name, name)) return s;
    return NULL;
}

/* ---- suggesting ---- */

/* How far apart, or SIZE_MAX when more than a third of what was written would have to change: further
 * away, a suggestion only puzzles. */
static size_t distance(const char *written, const char *meant)
{
    size_t edits = tr_edit_distance(written, meant);
    return edits <= strlen(written) / 3 ? edits : SIZE_MAX;
}

static const char *without_section(const char *name)
{
    const char *dot = strchr(name, '.');
    return dot ? dot + 1 : name;
}

/* The right key in the wrong section, or in none, is a mistake like any other. */
static size_t key_distance(const char *written, const char *meant)
{
    size_t whole = distance(written, meant);
    size_t part = distance(without_section(written), without_section(meant));
    return part < whole ? part + 1 : whole;
}

const char *tr_job_suggest_key(const char *name)
{
    const char *best = NULL;
    size_t least = SIZE_MAX;
    for (const struct tr_job_key *key = tr_job_keys; key < tr_job_keys + TR_JOB_KEYS; key++) {
        size_t d = key_distance(name, key->name);
        if (d < least) least = d, best = key->name;
    }
    return best;
}

const char *tr_job_suggest_section(const char *name)
{
    const char *best = NULL;
    size_t least = SIZE_MAX;
    for (const struct tr_job_section *s = tr_job_sections; s < tr_job_sections + TR_JOB_SECTIONS; s++) {
        size_t d = distance(name, s->name);
        if (d < least) least = d, best = s->name;
    }
    return best;
}
