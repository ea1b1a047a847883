#include "job/schema.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"

#define AT(field)       offsetof(struct tr_job, field)
#define AT_STAGE(field) offsetof(struct tr_job_stage, field)
#define AT_TASK(field)  offsetof(struct tr_job_task, field)
#define ANY_INT         2147483647.0
#define ANY_COUNT       1000000000.0 /* maximum of epochs: epochs × clocks per epoch fit into 64 bits */

const struct tr_job_section tr_job_sections[TR_JOB_SECTIONS] = {
    {"model", "the model", NULL, false},
    {"solve", "the training method", NULL, false},
    {"data", "the records to train on", NULL, false},
    {"ranks", "roles of ranks; `ranks: colocated` is short for ranks.layout", "ranks.layout", false},
    {"table", "storage and transfer of parameters", NULL, false},
    {"sync", "consistency between workers", NULL, false},
    {"local", "the copy of a model that the workers of one node share", NULL, false},
    {"experiment", "workers that are slowed down, for experiments", NULL, false},
    {"report", "progress and evaluation", NULL, false},
    {"checkpoint", "checkpoints, from which a stopped run resumes; they are written during training", NULL,
     false},
    {"stages", "stages of a method, by name, here NAME", NULL, true},
    {"tasks",
     "several tasks in one job, each with a name of lower-case letters, digits and -, here NAME; "
     "tasks.NAME.section.key sets any key for this task only",
     NULL, true},
};

/* clang-format off */
static const tr_option job_keys[] = {
    {"name", TR_KIND_TEXT, AT(name), "<job file>", .may_change = true,
     .help = "name of the run; by default the job file without folder and .yaml"},
    {"output", TR_KIND_TEXT, AT(output), "runs/<name>", .may_change = true,
     .help = "folder of the output files"},
    {"seed", TR_KIND_INTEGER, AT(seed), "1",
     .help = "seed of all random numbers"},

    {"model.type", TR_KIND_CHOICE, AT(model.type), "auto",
     .help = "model; auto = logistic if labels are words, two, at most 20 integers, or up to 100 integers that number classes from 0 or "
             "1; otherwise linear (least squares)"},
    {"model.plugin", TR_KIND_TEXT, AT(model.plugin), "",
     .help = "shared object with a model class, relative to the job file; it and its folder must belong to you or "
             "root, and no other user may be able to write to them"},

    {"solve.method", TR_KIND_CHOICE, AT(solve.word), "auto",
     .help = "training method; auto = the first one of the model"},
    {"solve.epochs", TR_KIND_INTEGER, AT(solve.epochs), "20", .least = 1, .most = ANY_COUNT, .may_change = true,
     .help = "maximum number of passes over the training data; in a pass each row is visited once on average "
             "(trees: rounds; als: updates of all users and items)"},
    {"solve.target", TR_KIND_REAL, AT(solve.target), "none", .words = TR_WORDS("none"), .may_change = true,
     .help = "stop when the objective (lda: its negative) is at most this"},
    {"solve.patience", TR_KIND_INTEGER, AT(solve.patience), "0", .may_change = true,
     .help = "stop after this number of consecutive evaluations without a better metric on data.test, and keep the best model; 0 = never"},

    {"data.train", TR_KIND_LIST, AT(data.train), "",
     .help = "training files, globs or folders; text may be compressed (gzip, bzip2, xz, zstd, lz4); required by train"},
    {"data.test", TR_KIND_LIST, AT(data.test), "",
     .help = "test files or globs; or a fraction such as 10% of the records of data.train (docword: documents; ratings: pairs), drawn at random by the "
             "seed and not trained on; or fold 2/5: the second of five such parts"},
    {"data.weight", TR_KIND_TEXT, AT(data.weight), "",
     .help = "weights of the rows of data.train: a csv column, by name or number; or files with one number >= 0 per row, "
             "one per line, in the order of the rows"},
    {"data.offset", TR_KIND_TEXT, AT(data.offset), "",
     .help = "numbers that are added to the margins of the rows, such as logarithms of exposures: a csv column, by name or number, "
             "which is no feature then; or files with one number per row of data.train, one per line"},
    {"data.group", TR_KIND_TEXT, AT(data.group), "",
     .help = "csv: column, by name or number; data.test and the folds of trireme sweep keep rows of equal value together, in the test "
             "data or in the training data; it is no feature (libsvm: rows of equal qid are kept together)"},
    {"data.time", TR_KIND_TEXT, AT(data.time), "",
     .help = "csv and ratings: column of numbers or of dates (2024-01-31, 2024-01-31T12:30:00), by name or number: data.test 10% holds out the "
             "last rows by time; fold K/N trains on the past, and tests on the next of N + 1 parts; it is no feature unless "
             "data.columns sets its type"},
    {"data.vocabulary", TR_KIND_LIST, AT(data.vocabulary), "", .may_change = true,
     .help = "lda: file with one word per line, stored with the model"},
    {"data.folders", TR_KIND_LIST, AT(data.folders), ".,datasets", .may_change = true,
     .help = "folders in which relative paths of data are searched, in this order; by default also the folders in the environment "
             "variable TRIREME_DATA (separated by :), and ../datasets beside the job file"},
    {"data.format", TR_KIND_CHOICE, AT(data.format), "auto", .words = TR_WORDS(TR_FORMAT_WORDS),
     .help = "format of the files: sparse rows, dense rows, lines «user item rating», bags of words in the format of UCI, or arrays X and "
             "y in HDF5 (data.train: d.h5:/train/X selects an object); auto = detected from the model and the files"},
    {"data.index_base", TR_KIND_CHOICE, AT(data.index_base), "auto", .words = TR_WORDS("auto", "0", "1"),
     .help = "index of the first feature"},
    {"data.on_error", TR_KIND_CHOICE, AT(data.on_error), "stop", .words = TR_WORDS("stop", "skip"),
     .help = "reaction to a malformed record"},
    {"data.max_record", TR_KIND_BYTES, AT(data.max_record), "64M", .least = 1048576, .most = 1099511627776.0,
     .help = "maximum size of one record (an uncompressed line); a longer one is an error, so that a small compressed file "
             "cannot exhaust memory"},
    {"data.partition", TR_KIND_CHOICE, AT(data.partition), "horizontal",
     .words = TR_WORDS("horizontal", "vertical", "replicated"),
     .help = "division of data inside a group: each worker has some of the rows, some of the features, or everything"},
    {"data.order", TR_KIND_CHOICE, AT(data.order), "dealt", .words = TR_WORDS("dealt", "file"),
     .help = "dealt: records are dealt to the workers in small chunks, so that each has a sample even of sorted files; "
             "file: each worker has consecutive records"},
    {"data.features", TR_KIND_INTEGER, AT(data.features), "0", .most = 4294967295.0,
     .help = "number of features; 0 = the largest index found"},
    {"data.header", TR_KIND_INTEGER, AT(data.header), "auto", .words = TR_WORDS("auto", "yes", "no"), .least = 1, .most = 16,
     .help = "csv and ratings: number of lines with the names of the columns, which are joined with a blank; yes = 1; auto = found in a "
             "sample of the text, as the next keys are"},
    {"data.delimiter", TR_KIND_TEXT, AT(data.delimiter), "",
     .help = "csv and ratings: character between fields, as «;» or «|», or one of the words tab, blank (any number of blanks and tabs) and ::"},
    {"data.quote", TR_KIND_TEXT, AT(data.quote), "",
     .help = "csv and ratings: double, single (and an apostrophe inside of a field is text) or none (quotes are text)"},
    {"data.escape", TR_KIND_TEXT, AT(data.escape), "",
     .help = "csv and ratings: character before a quote that is text, as backslash or double; none = a doubled quote is a quote"},
    {"data.newlines", TR_KIND_BOOL, AT(data.newlines), "no",
     .help = "csv and ratings: quoted fields contain line ends, also if the sample shows none"},
    {"data.comment", TR_KIND_TEXT, AT(data.comment), "",
     .help = "csv and ratings: lines that begin with this character are left out; none = there are none"},
    {"data.skip_lines", TR_KIND_INTEGER, AT(data.skip_lines), "auto", .words = TR_WORDS("none", "auto"), .most = ANY_COUNT,
     .help = "csv and ratings: number of lines above the header, or above the data, that are left out"},
    {"data.decimal", TR_KIND_TEXT, AT(data.decimal), "",
     .help = "csv and ratings: decimal mark, point or comma"},
    {"data.thousands", TR_KIND_TEXT, AT(data.thousands), "",
     .help = "csv and ratings: mark between groups of three digits: comma, point, blank, apostrophe or none"},
    {"data.encoding", TR_KIND_CHOICE, AT(data.encoding), "auto", .words = TR_WORDS("auto", "utf-8", "latin-1", "utf-16"),
     .help = "encoding of text; latin-1 is Windows-1252, which contains it"},
    {"data.label", TR_KIND_TEXT, AT(data.label), "none", .words = TR_WORDS("none", "first", "last", "auto"),
     .help = "csv: label column, by name or number from 1; hdf5: path of the labels, such as obs/cell_type; auto = the column named "
             "label, class, target or y, otherwise the last, but the first if its values are few whole numbers and those of the last are not"},
    {"data.positive", TR_KIND_TEXT, AT(data.positive), "",
     .help = "csv: rows with this label are one class, all others the other"},
    {"data.columns", TR_KIND_PAIRS, AT(data.columns), "",
     .help = "csv: types of columns, by name (or number from 1 for files without header) or pattern with * and ?: number, "
             "category, date, time, label, weight, offset, id or ignore, as in «{age: number, '*_id': category}», or «{price: {type: "
             "number, strip: $, decimal: comma, thousands: point}, day: {type: date, format: d/m/Y}}»; by default a column that contains a "
             "word is a category, and others are numbers. ratings: user, item, rating, time or ignore"},
    {"data.min_count", TR_KIND_INTEGER, AT(data.min_count), "1", .least = 1,
     .help = "csv: values of a category in fewer rows are combined into the value «other»"},
    {"data.most_values", TR_KIND_INTEGER, AT(data.most_values), "0", .most = 4294967294.0,
     .help = "csv: number of the most frequent values of a category that are kept; the rest is combined into «other»; 0 = all"},
    {"data.hash", TR_KIND_INTEGER, AT(data.hash), "0", .most = 4294967294.0,
     .help = "csv: number of features, such as 2^22, that all categories share; a hash of the value selects the feature, without "
             "dictionaries and counts, and values that occur only in test data are features too; 0 = dictionaries"},
    {"data.cross", TR_KIND_NAMES, AT(data.cross), "",
     .help = "csv: categories made from two to four columns, as «[city*device]»: each combination that occurs is a value"},
    {"data.missing", TR_KIND_NAMES, AT(data.missing), "",
     .help = "csv: additional values, numbers or words, that mean a missing value; an empty field always does, and NA, NaN, nan, null, NULL, ? and \\N do without quotes"},
    {"data.duplicates", TR_KIND_CHOICE, AT(data.duplicates), "last", .words = TR_WORDS("last", "mean", "sum"),
     .help = "ratings: which one of several ratings of a user and an item is used"},
    {"data.scale", TR_KIND_CHOICE, AT(data.scale), "auto",
     .words = TR_WORDS("auto", "none", "standard", "maxabs", "minmax"),
     .help = "libsvm and csv: scaling of columns during training; the model file is in the units of the files. standard: centred and "
             "divided by the standard deviation (rows with less than a fifth of non-zero cells: divided by the root mean square of the "
             "non-zeros); maxabs: divided by the largest absolute value; minmax: to 0 .. 1; auto = standard, for linear models whose columns "
             "differ more than tenfold in size, from each other or from 1; otherwise dense columns are centred if their mean exceeds their "
             "deviation and the bias is free. model.l2 applies to the weights of scaled columns"},
    {"data.cache", TR_KIND_CHOICE, AT(data.cache), "auto", .words = TR_WORDS("auto", "no", "memory"), .may_change = true,
     .help = "keep parsed data in the memory of the nodes (/dev/shm) until the job ends, so that a restart does not read them "
             "again; auto = under trireme run, if they fit twice"},
    {"data.storage", TR_KIND_CHOICE, AT(data.storage), "auto", .words = TR_WORDS("auto", "memory", "disk", "memory_disk"),
     .may_change = true,
     .help = "location of rows: memory; disk = files in data.scratch, read ahead of each pass; memory_disk = up to data.memory "
             "in memory, the rest on disk; auto = memory if the estimate from the beginning of the files fits, otherwise memory_disk if "
             "data.scratch is set"},
    {"data.memory", TR_KIND_BYTES, AT(data.memory), "0", .may_change = true,
     .help = "bytes of rows in memory per node; 0 = half of the free memory at the start of the job"},
    {"data.scratch", TR_KIND_TEXT, AT(data.scratch), "", .may_change = true,
     .help = "folder on a local disk of each node, for data.storage; its files are written when the data are first read; the next start "
             "with the same output, data and ranks uses them; they may be removed when no job runs"},

    {"ranks.layout", TR_KIND_CHOICE, AT(ranks.layout), "auto",
     .words = TR_WORDS("auto", "dedicated", "colocated", "alone"), .may_change = true,
     .help = "dedicated: servers on separate ranks; colocated: every rank is server and worker; alone: a single process"},
    {"ranks.servers", TR_KIND_INTEGER, AT(ranks.servers), "0", .most = ANY_INT, .may_change = true,
     .help = "number of ranks that store parameters; 0 = chosen from the ranks and nodes"},
    {"ranks.groups", TR_KIND_INTEGER, AT(ranks.groups), "0", .most = ANY_INT, .may_change = true,
     .help = "number of worker groups; 0 = chosen from the ranks and nodes"},
    {"ranks.group_size", TR_KIND_INTEGER, AT(ranks.group_size), "0", .most = ANY_INT, .may_change = true,
     .help = "workers per group; 0 = all workers divided by ranks.groups; without ranks.groups those of a node, or all (up to 64) "
             "if factors rotate under bsp or topics rotate over nodes of one rank, or 1 if workers have nothing to share"},
    {"ranks.node_size", TR_KIND_INTEGER, AT(ranks.node_size), "0", .most = ANY_INT, .may_change = true,
     .help = "number of ranks that form a node, for experiments; 0 = the ranks that share memory"},
    {"ranks.patience", TR_KIND_REAL, AT(ranks.patience), "60", .above = true, .may_change = true,
     .help = "seconds after which a waiting rank reports the reason; if all ranks wait, `trireme run` restarts the job"},

    {"table.partition", TR_KIND_CHOICE, AT(table.partition), "range-hash",
     .words = TR_WORDS("range", "hash", "range-hash", "ring"), .may_change = true,
     .help = "assignment of keys to servers: consecutive keys together, each key by hash, blocks by hash, or blocks on a "
             "consistent-hash ring"},
    {"table.block", TR_KIND_INTEGER, AT(table.block), "0", .may_change = true,
     .help = "keys per block of a range-hash or ring partition; 0 = chosen"},
    {"table.virtual_nodes", TR_KIND_INTEGER, AT(table.virtual_nodes), "128", .least = 1, .most = 65535,
     .may_change = true,
     .help = "points per server on the ring"},
    {"table.servers", TR_KIND_INTEGER, AT(table.servers), "0", .most = ANY_INT, .may_change = true,
     .help = "number of servers per table, different ones for different tables; 0 = all"},
    {"table.storage", TR_KIND_CHOICE, AT(table.storage), "dense", .words = TR_WORDS("dense", "hash"),
     .help = "dense: memory for every key; hash: only for keys that updates have changed"},
    {"table.route", TR_KIND_CHOICE, AT(table.route), "auto", .words = TR_WORDS("auto", "load", "get", "request"),
     .may_change = true,
     .help = "transfer of parameters: shared memory, one-sided, or by request; auto = shared memory on the node, one-sided for "
             "ranges of keys, by request for others, or with the merge of updates"},
    {"table.push", TR_KIND_CHOICE, AT(table.push), "auto",
     .words = TR_WORDS("auto", "merge", "accumulate", "message"), .may_change = true,
     .help = "transfer of updates: merged collectively, one-sided in order of arrival, or as messages"},
    {"table.merge", TR_KIND_CHOICE, AT(table.merge), "auto", .words = TR_WORDS("auto", "direct", "rounds"),
     .may_change = true,
     .help = "merge of updates between nodes: each rank to each server, or in rounds by halves of the ranks"},
    {"table.share_pulls", TR_KIND_BOOL, AT(table.share_pulls), "yes", .may_change = true,
     .help = "fetch values that all workers of a node need from other nodes once"},
    {"table.prune", TR_KIND_BOOL, AT(table.prune), "yes",
     .help = "fetch only the parameters that a worker's rows need; no = all, for comparison"},
    {"table.rotate", TR_KIND_CHOICE, AT(table.rotate), "auto", .words = TR_WORDS("auto", "share", "travel"),
     .may_change = true,
     .help = "rotation of blocks through a group: in shared memory, or as messages to the next worker"},
    {"table.ahead", TR_KIND_INTEGER, AT(table.ahead), "4", .most = 1024, .may_change = true,
     .help = "number of requests for rows in flight per server during computation; 0 = one at a time, without overlap"},
    {"table.row_bytes", TR_KIND_INTEGER, AT(table.row_bytes), "262144", .least = 1, .most = 1073741824,
     .may_change = true,
     .help = "maximum bytes of rows per request; at least one row"},
    {"table.encoding", TR_KIND_CHOICE, AT(table.encoding), "auto",
     .words = TR_WORDS("auto", "dense", "sparse", "bitmap"), .may_change = true,
     .help = "encoding of updates in messages; auto = the smallest for each message"},
    {"table.precision", TR_KIND_CHOICE, AT(table.precision), "full", .words = TR_WORDS("full", "f16", "bf16", "f8"),
     .help = "precision of values in messages; rounding errors are added to the next update; f8: updates only, values are read "
             "as f16"},
    {"table.filter", TR_KIND_CHOICE, AT(table.filter), "none",
     .words = TR_WORDS("none", "threshold", "significant", "kkt", "skip"),
     .help = "entries of an update that are delayed: small, small relative to their parameter, without effect under model.l1, "
             "or random"},
    {"table.filter_limit", TR_KIND_REAL, AT(table.filter_limit), "1e-6",
     .help = "threshold: absolute; significant: relative to the parameter; kkt: distance inside alpha"},
    {"table.filter_skip", TR_KIND_REAL, AT(table.filter_skip), "0.5", .most = 1,
     .help = "skip: fraction of the entries that is delayed"},

    {"sync.mode", TR_KIND_CHOICE, AT(sync.mode), "bsp", .words = TR_WORDS("bsp", "ssp", "asp"),
     .help = "bsp: synchronous; ssp: at most sync.staleness clocks apart; asp: unbounded"},
    {"sync.staleness", TR_KIND_INTEGER, AT(sync.staleness), "3",
     .help = "ssp: maximum number of clocks between the fastest and the slowest worker"},
    {"sync.push", TR_KIND_OFTEN, AT(sync.push), "every 1",
     .help = "length of a clock: «every N» mini-batches, «N per epoch», or auto = when the update is large enough"},
    {"sync.pull", TR_KIND_CHOICE, AT(sync.pull), "every", .words = TR_WORDS("every", "stale"),
     .help = "read parameters in every clock, or only when the local values are older than the staleness permits"},
    {"sync.weight", TR_KIND_CHOICE, AT(sync.weight), "sum", .words = TR_WORDS("sum", "con", "dyn", "auto"),
     .help = "weight of updates: 1 (sum), 1/groups (con), by staleness (dyn), or by the agreement of updates (auto)"},
    {"sync.global_rate", TR_KIND_REAL, AT(sync.global_rate), "1/groups", .above = true,
     .words = TR_WORDS("1/groups"), .may_change = true,
     .help = "con: factor of every update"},
    {"sync.stable", TR_KIND_BOOL, AT(sync.stable), "no",
     .help = "dyn: read the same version from all servers"},
    {"sync.race", TR_KIND_CHOICE, AT(sync.race), "chunk", .words = TR_WORDS("chunk", "atomic", "none"),
     .help = "how workers of a node change one local model: with a lock per chunk, each number atomically, or without "
             "synchronisation, which may lose updates"},

    {"local.model", TR_KIND_CHOICE, AT(local.model), "integral", .words = TR_WORDS("integral", "demand"),
     .may_change = true,
     .help = "integral: the whole model is fetched at the begin of a stage; demand: each chunk on its first use"},
    {"local.chunk", TR_KIND_INTEGER, AT(local.chunk), "1024", .least = 1, .most = 1073741824, .may_change = true,
     .help = "parameters per chunk"},
    {"local.memory", TR_KIND_BYTES, AT(local.memory), "0", .may_change = true,
     .help = "bytes of a node's local model in memory, the rest on its disk; 0 = unlimited"},
    {"local.replace", TR_KIND_CHOICE, AT(local.replace), "lru", .words = TR_WORDS("lru", "fifo", "random"),
     .may_change = true,
     .help = "chunk to evict when memory is full: the least recently used, the oldest, or a random one"},

    {"experiment.slow", TR_KIND_REAL, AT(experiment.slow), "0", .most = 1, .may_change = true,
     .help = "fraction of the workers that are slowed down"},
    {"experiment.level", TR_KIND_REAL, AT(experiment.level), "1", .least = 1, .may_change = true,
     .help = "factor by which their clocks are longer"},
    {"experiment.kind", TR_KIND_CHOICE, AT(experiment.kind), "compute", .words = TR_WORDS("compute", "network"),
     .may_change = true,
     .help = "they wait in proportion to their computation, or to their pulls and pushes"},
    {"experiment.clock", TR_KIND_REAL, AT(experiment.clock), "0", .may_change = true,
     .help = "minimum seconds per clock of every worker, times the level for slow ones, so that few cores can simulate many "
             "workers"},

    {"report.every", TR_KIND_INTEGER, AT(report.every), "1", .least = 1, .most = ANY_COUNT, .may_change = true,
     .help = "epochs between two evaluations"},
    {"report.metric", TR_KIND_NAMES, AT(report.metric), "", .may_change = true,
     .help = "metrics on data.test, of which the first decides which model is best, for solve.patience, sweeps and tasks: the "
             "metric of the model's loss (log_loss, hinge_loss, squared_hinge_loss, huber, logcosh, pinball, poisson_deviance, "
             "gamma_deviance or tweedie_deviance); accuracy, brier, and with two classes auc, pr_auc, f1; rmse, mae, mape or r2. "
             "Default: that of the loss, and accuracy or rmse"},
    {"report.progress", TR_KIND_CHOICE, AT(report.progress), "auto", .words = TR_WORDS("auto", "yes", "no"),
     .may_change = true,
     .help = "progress output; auto = a table on a terminal, otherwise plain lines; no = errors only"},

    {"checkpoint.every", TR_KIND_PACE, AT(checkpoint.every), "5min", .may_change = true,
     .help = "interval of checkpoints: a time with unit (ms, s, min, h, d), or a number of clocks"},
    {"checkpoint.keep", TR_KIND_INTEGER, AT(checkpoint.keep), "3", .least = 1, .may_change = true,
     .help = "number of checkpoints that are kept"},
    {"checkpoint.to", TR_KIND_TEXT, AT(checkpoint.to), "", .may_change = true,
     .help = "folder of checkpoints; empty = checkpoints in the output folder"},
    {"checkpoint.max_time", TR_KIND_TIME, AT(checkpoint.max_time), "no", .may_change = true,
     .help = "time limit from the start of the program: shortly before it a checkpoint is written and the run stops with exit "
             "code 75; a number without unit is minutes, and 1:30:00 and 1-12 (days-hours) are accepted as in Slurm; also set by "
             "trireme train --max-time"},
    {"checkpoint.memory", TR_KIND_PACE, AT(checkpoint.memory), "no", .may_change = true,
     .help = "interval of copies in the memory of this node and others, which do not use the disk"},
    {"checkpoint.copies", TR_KIND_INTEGER, AT(checkpoint.copies), "1", .least = 1, .most = ANY_INT, .may_change = true,
     .help = "number of other nodes with a copy of a node's state"},
};

static const tr_option stage_keys[] = {
    {"stages.NAME.parallelism", TR_KIND_INTEGER, AT_STAGE(parallelism), "all", .least = 1, .most = ANY_INT,
     .words = TR_WORDS("all", "auto"), .may_change = true,
     .help = "number of workers of the stage: all, auto = the best number found by measurement, or a number"},
    {"stages.NAME.clocks", TR_KIND_INTEGER, AT_STAGE(clocks), "0",
     .help = "iterations per run of the stage; 0 = chosen by the method"},
    {"stages.NAME.servers", TR_KIND_INTEGER, AT_STAGE(servers), "0", .most = ANY_INT, .may_change = true,
     .help = "number of servers that the tables move to before the stage; 0 = unchanged"},
};

static const tr_option task_keys[] = {
    {"tasks.NAME.after", TR_KIND_NAMES, AT_TASK(after), "",
     .help = "tasks that must be complete before this one starts"},
    {"tasks.NAME.priority", TR_KIND_REAL, AT_TASK(priority), "0", .least = -INFINITY, .may_change = true,
     .help = "of tasks that can start, the one with the highest priority starts first"},
    {"tasks.NAME.ranks", TR_KIND_INTEGER, AT_TASK(ranks), "0", .most = ANY_INT, .may_change = true,
     .help = "number of ranks; 0 = all that are free when it starts"},
    {"tasks.NAME.run", TR_KIND_CHOICE, AT_TASK(run), "train", .words = TR_WORDS("train", "average", "best"),
     .help = "train: train a model; average: evaluate the mean prediction of the models of the tasks in `after` on data.test; "
             "best: train, but only if the tasks in `after` are better than those of the other tasks with run best"},
    {"tasks.NAME.best", TR_KIND_INTEGER, AT_TASK(best), "0", .most = ANY_INT,
     .help = "number of best tasks: run only if the task in `after` is one of them, by data.test, among the tasks that tasks with best "
             "depend on; otherwise skip"},
};
/* clang-format on */

const struct tr_job_keys tr_job_tables[TR_JOB_TABLES] = {
    [TR_TABLE_JOB] = {job_keys, sizeof job_keys / sizeof *job_keys, NULL},
    [TR_TABLE_STAGE] = {stage_keys, sizeof stage_keys / sizeof *stage_keys, NULL},
    [TR_TABLE_TASK] = {task_keys, sizeof task_keys / sizeof *task_keys, NULL}};

/* ---- looking up ---- */

size_t tr_job_options(const struct tr_model_class *class)
{
    size_t n = 0;
    while (class && class->options && class->options[n].name) n++;
    return n;
}

struct tr_job_keys tr_job_table(size_t table)
{
    if (table < TR_JOB_TABLES) return tr_job_tables[table];
    const tr_model_class *class = tr_model_classes[table - TR_JOB_TABLES];
    return (struct tr_job_keys){class->options, tr_job_options(class), class};
}

const char *tr_job_own_name(const char *name)
{
    const char *dot = strrchr(name, '.');
    return dot ? dot + 1 : name;
}

bool tr_job_in_section(const char *name, const char *section)
{
    size_t length = strlen(section);
    return *section ? !strncmp(name, section, length) && name[length] == '.' : !strchr(name, '.');
}

const struct tr_job_section *tr_job_find_section(const char *name)
{
    for (const struct tr_job_section *s = tr_job_sections; s < tr_job_sections + TR_JOB_SECTIONS; s++)
        if (!strcmp(s->name, name)) return s;
    return NULL;
}

const struct tr_model_class *tr_model_class_of_format(const char *format)
{
    for (size_t i = 0; i < tr_model_class_count; i++)
        if (!strcmp(tr_model_classes[i]->format, format)) return tr_model_classes[i];
    return NULL;
}

/* Returns the part of a name after section.WORD., or the name itself. */
static const char *name_behind_word(const char *name, const char *section)
{
    const char *dot = tr_job_in_section(name, section) ? strchr(name + strlen(section) + 1, '.') : NULL;
    return dot ? dot + 1 : name;
}

const tr_option *tr_job_known_key(const char *name, size_t n, const struct tr_model_class **class)
{
    static const enum tr_job_table order[] = {TR_TABLE_TASK, TR_TABLE_STAGE, TR_TABLE_JOB};
    const char *in_task = name_behind_word(name, "tasks"), *in_stage = name_behind_word(in_task, "stages");
    bool own[] = {in_task != name, in_stage != in_task,
                  false}; /* by table: the name has tasks.NAME. or stages.NAME. */
    bool found = false;   /* a key was found: at most one key of the engine has the name */
    for (size_t t = 0; t < TR_JOB_TABLES + tr_model_class_count; t++) {
        struct tr_job_keys keys = tr_job_table(t < TR_JOB_TABLES ? order[t] : t);
        const char *sought = t == 1 ? in_stage : in_task;
        *class = keys.class;
        for (size_t i = 0; i < keys.n && !(found && t < TR_JOB_TABLES); i++) {
            const tr_option *key = &keys.key[i];
            bool is_own = t < TR_JOB_TABLES && own[t] && !strcmp(tr_job_own_name(key->name), sought);
            if (strcmp(key->name, sought) != 0 && !is_own) continue;
            found = true;
            if (n-- == 0) return key;
        }
    }
    return NULL;
}

struct tr_job_name tr_job_join(const char *prefix, const char *name)
{
    struct tr_job_name joined = {""};
    size_t most = sizeof joined.text - 1, n = tr_min_size(strlen(prefix), most);
    memcpy(joined.text, prefix, n);
    memcpy(joined.text + n, name, tr_min_size(strlen(name), most - n));
    return joined;
}

struct tr_job_name tr_job_task_prefix(const struct tr_job_task *task)
{
    struct tr_job_name prefix;
    snprintf(prefix.text, sizeof prefix.text, "tasks.%s.", task->name);
    return prefix;
}

bool tr_job_is_word(const char *text)
{
    size_t length = strlen(text);
    return *text >= 'a' && *text <= 'z' && length <= TR_JOB_LONGEST_WORD &&
           strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789-") == length;
}

bool tr_job_among(const char *words, const char *word)
{
    size_t length = strlen(word);
    for (const char *at = words; at && (at = strstr(at, word)); at += length)
        if ((at == words || at[-1] == ' ') && (at[length] == ' ' || !at[length])) return true;
    return !words;
}

struct tr_shown tr_shown_words(const char *const *words)
{
    struct tr_shown shown = {""};
    for (size_t i = 0, n = 0; words[i] && n < sizeof shown.text; i++) {
        const char *between = i == 0 ? "" : words[i + 1] ? ", " : " or ";
        n += (size_t)snprintf(shown.text + n, sizeof shown.text - n, "%s%s", between, words[i]);
    }
    return shown;
}

/* ---- suggesting ---- */

/* Returns the number of insertions, deletions, substitutions or swaps of neighbours that change one name to the other. Returns
 * SIZE_MAX for long names, and if more than a third of the written name would change: then a suggestion is not useful. */
static size_t suggest_distance(const char *written, const char *meant)
{
    enum { LONGEST = 48 };
    size_t n = strlen(written), m = strlen(meant), cost[LONGEST + 1][LONGEST + 1];
    if (n > LONGEST || m > LONGEST) return SIZE_MAX;
    for (size_t j = 0; j <= m; j++) cost[0][j] = j;
    for (size_t i = 1; i <= n; i++) {
        cost[i][0] = i;
        for (size_t j = 1; j <= m; j++) {
            size_t change = cost[i - 1][j - 1] + (written[i - 1] != meant[j - 1]);
            cost[i][j] = tr_min_size(change, 1 + tr_min_size(cost[i - 1][j], cost[i][j - 1]));
            if (i > 1 && j > 1 && written[i - 1] == meant[j - 2] && written[i - 2] == meant[j - 1])
                cost[i][j] = tr_min_size(cost[i][j], cost[i - 2][j - 2] + 1);
        }
    }
    return cost[n][m] <= n / 3 ? cost[n][m] : SIZE_MAX;
}

struct best {
    size_t distance;
    struct tr_job_name name;
};

static void suggest_consider(struct best *best, size_t distance, const char *prefix, const char *name)
{
    if (distance < best->distance) *best = (struct best){distance, tr_job_join(prefix, name)};
}

/* Compares the written name with the keys of a table, with and without their sections: a wrong section counts as one edit. named:
 * the table has keys stages.NAME.key or tasks.NAME.key, which are compared as stages.key or tasks.key. */
static void suggest_keys(struct best *best, struct tr_job_keys keys, const char *written, const char *prefix,
                         bool named)
{
    const char *dot = strchr(written, '.'), *without_section = dot ? dot + 1 : written;
    for (size_t i = 0; i < keys.n; i++) {
        const char *name = keys.key[i].name, *own = tr_job_own_name(name);
        if (named) {
            char meant[TR_JOB_LONGEST_NAME];
            snprintf(meant, sizeof meant, "%.*s.%s", (int)strcspn(name, "."), name, own);
            suggest_consider(best, suggest_distance(written, meant), prefix, own);
        } else {
            size_t whole = suggest_distance(written, name), part = suggest_distance(without_section, own);
            suggest_consider(best, part < whole ? part + 1 : whole, prefix, name);
        }
    }
}

/* Splits a name that resembles section.WORD.rest into a prefix and the section with the rest: «stage.full.clock» into
 * «stages.full.» and «stages.clock». */
static bool suggest_split(const char *written, const char *section, struct tr_job_name *prefix,
                          struct tr_job_name *rest)
{
    char first[16], word[TR_JOB_LONGEST_WORD + 2];
    int end = 0;
    if (sscanf(written, "%15[^.].%33[^.].%n", first, word, &end) != 2 || end == 0) return false;
    if (suggest_distance(first, section) == SIZE_MAX || !tr_job_is_word(word)) return false;
    snprintf(prefix->text, sizeof prefix->text, "%s.%s.", section, word);
    snprintf(rest->text, sizeof rest->text, "%s.%s", section, written + end);
    return true;
}

struct tr_job_name tr_job_suggest_key(const struct tr_model_class *class, const char *name)
{
    struct best best = {SIZE_MAX, {""}};
    struct tr_job_name task = {""}, stage, rest;
    bool in_task = suggest_split(name, "tasks", &task, &rest);
    const char *prefix = task.text;
    if (in_task) suggest_keys(&best, tr_job_tables[TR_TABLE_TASK], rest.text, prefix, true);
    if (in_task) name = strchr(rest.text, '.') + 1;
    const char *foreign = tr_job_foreign_key(name);
    if (foreign) suggest_consider(&best, 0, prefix, foreign);
    suggest_keys(&best, tr_job_tables[TR_TABLE_JOB], name, prefix, false);
    for (size_t c = 0; c < tr_model_class_count; c++)
        suggest_keys(&best, tr_job_table(TR_JOB_TABLES + c), name, prefix, false);
    if (class)
        suggest_keys(&best, (struct tr_job_keys){class->options, tr_job_options(class), class}, name, prefix,
                     false);
    struct tr_job_name stage_rest;
    if (!suggest_split(name, "stages", &stage, &stage_rest)) {
        suggest_keys(&best, tr_job_tables[TR_TABLE_STAGE], name, prefix, false);
    } else {
        suggest_keys(&best, tr_job_tables[TR_TABLE_STAGE], stage_rest.text,
                     tr_job_join(prefix, stage.text).text, true);
        /* keys of a task that users write in a stage */
        if (!strcmp(stage_rest.text, "stages.priority"))
            suggest_consider(&best, 0, prefix, in_task ? "priority" : "tasks.NAME.priority");
        if (!strcmp(stage_rest.text, "stages.consistency")) suggest_consider(&best, 0, prefix, "sync.mode");
    }
    if (!in_task) suggest_keys(&best, tr_job_tables[TR_TABLE_TASK], name, "", false);
    return best.name;
}

const char *tr_job_suggest(const char *name, const char *const *names, size_t n)
{
    const char *best = NULL;
    size_t least = SIZE_MAX;
    for (size_t i = 0; i < n; i++) {
        size_t distance = suggest_distance(name, names[i]);
        if (distance < least) least = distance, best = names[i];
    }
    return best;
}

const char *tr_job_suggest_section(const char *name)
{
    const char *names[TR_JOB_SECTIONS];
    for (size_t i = 0; i < TR_JOB_SECTIONS; i++) names[i] = tr_job_sections[i].name;
    return tr_job_suggest(name, names, TR_JOB_SECTIONS);
}
