#include "job/schema.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "job/text.h"

#define AT(field)       offsetof(struct tr_job, field)
#define AT_STAGE(field) offsetof(struct tr_job_stage, field)
#define AT_TASK(field)  offsetof(struct tr_job_task, field)
#define ANY_INT         2147483647.0
#define ANY_COUNT                                                                                            \
    1000000000.0 /* of passes over the data: times their clocks it is still a number of 64 bits */

const struct tr_job_section tr_job_sections[TR_JOB_SECTIONS] = {
    {"model", "what is learnt", NULL, false},
    {"solve", "how it is learnt", NULL, false},
    {"data", "from which records", NULL, false},
    {"ranks", "who does what; `ranks: colocated` is short for ranks.layout", "ranks.layout", false},
    {"table", "how the servers hold and exchange the parameters", NULL, false},
    {"sync", "how far workers may run ahead of each other", NULL, false},
    {"local", "the copy of a model on which the workers of one node work together", NULL, false},
    {"experiment", "workers slowed down on purpose, to see what that does", NULL, false},
    {"report", "what is printed and when", NULL, false},
    {"checkpoint", "what lets a run that was stopped go on; it is written while the run goes on", NULL,
     false},
    {"stages", "the stages of a method that has several, each by its name, here NAME", NULL, true},
    {"tasks",
     "several tasks in one job, each under a name of lower-case letters, digits and -, here NAME; any key "
     "can stand "
     "there, too, as tasks.NAME.section.key, for this task alone",
     NULL, true},
};

/* clang-format off */
static const tr_option job_keys[] = {
    {"name", TR_KIND_TEXT, AT(name), "<job file>", .may_change = true,
     .help = "names the run; by default the job file without folder and .yaml"},
    {"output", TR_KIND_TEXT, AT(output), "runs/<name>", .may_change = true,
     .help = "folder for everything the run writes"},
    {"seed", TR_KIND_INTEGER, AT(seed), "1",
     .help = "of all random choices"},

    {"model.type", TR_KIND_CHOICE, AT(model.type), "auto",
     .help = "what is learnt; auto = logistic regression of labels that are two or whole numbers, least squares of others"},
    {"model.plugin", TR_KIND_TEXT, AT(model.plugin), "",
     .help = "a shared object with a class of models of one's own, relative to the job file; it and its folder must belong to you or "
             "root, and no other user may be able to write to them"},

    {"solve.method", TR_KIND_CHOICE, AT(solve.word), "auto",
     .help = "how it is learnt; auto = the first that the model has"},
    {"solve.epochs", TR_KIND_INTEGER, AT(solve.epochs), "20", .least = 1, .most = ANY_COUNT, .may_change = true,
     .help = "maximum number of passes over the training data; in a pass each row is visited once on average "
             "(trees: rounds; als: updates of all users and items)"},
    {"solve.target", TR_KIND_REAL, AT(solve.target), "none", .words = TR_WORDS("none"), .may_change = true,
     .help = "stop when the objective (lda: its negative) is not above this"},
    {"solve.patience", TR_KIND_INTEGER, AT(solve.patience), "0", .may_change = true,
     .help = "stop after so many evaluations in a row without a better metric on data.test, and keep the best model; 0 = never"},

    {"data.train", TR_KIND_LIST, AT(data.train), "",
     .help = "files to learn from; globs and folders, which mean their files, are fine, and text packed by gzip, bzip2, xz, zstd or "
             "lz4; train needs them"},
    {"data.test", TR_KIND_LIST, AT(data.test), "",
     .help = "files to evaluate the model on, globs allowed; or a share, as 10%, of the records of data.train (docword: of the "
             "documents), chosen at random by the seed, which are not learnt from then; or fold 2/5: the second of five such shares"},
    {"data.weight", TR_KIND_TEXT, AT(data.weight), "",
     .help = "what each row of data.train counts: csv: a column, by its name or its number; or files with as many numbers, none "
             "below 0, one a line, in the order of the rows"},
    {"data.vocabulary", TR_KIND_LIST, AT(data.vocabulary), "", .may_change = true,
     .help = "lda: file of the words, one a line, to be kept with the model"},
    {"data.folders", TR_KIND_LIST, AT(data.folders), ".,datasets", .may_change = true,
     .help = "where relative paths of data are looked for, in this order; where the job does not say it, also in the folders "
             "that the environment variable TRIREME_DATA names (a list with :), and in ../datasets beside the job file"},
    {"data.format", TR_KIND_CHOICE, AT(data.format), "auto",
     .words = TR_WORDS("auto", "libsvm", "csv", "ratings", "docword", "hdf5"),
     .help = "of these files: sparse rows, dense rows, «user item rating» lines, bags of words as UCI has them, or arrays X and "
             "y in HDF5 (data.train: d.h5:/train/X chooses); auto = as the model needs it, and the files look"},
    {"data.index_base", TR_KIND_CHOICE, AT(data.index_base), "auto", .words = TR_WORDS("auto", "0", "1"),
     .help = "index of the first feature"},
    {"data.on_error", TR_KIND_CHOICE, AT(data.on_error), "stop", .words = TR_WORDS("stop", "skip"),
     .help = "what to do with a malformed record"},
    {"data.max_record", TR_KIND_BYTES, AT(data.max_record), "64M", .least = 1048576, .most = 1099511627776.0,
     .help = "bytes of one record (a line, unpacked) at most: reading stops at a longer one, so that a small packed file cannot "
             "fill the memory"},
    {"data.partition", TR_KIND_CHOICE, AT(data.partition), "horizontal",
     .words = TR_WORDS("horizontal", "vertical", "replicated"),
     .help = "inside a group, each worker holds some of the rows, some of the features, or all of it"},
    {"data.order", TR_KIND_CHOICE, AT(data.order), "dealt", .words = TR_WORDS("dealt", "file"),
     .help = "records are dealt to the workers in small chunks, so that each has a sample even of sorted files, or "
             "each has one stretch of the files"},
    {"data.features", TR_KIND_INTEGER, AT(data.features), "0", .most = 4294967295.0,
     .help = "number of features; 0 = the largest index found"},
    {"data.header", TR_KIND_CHOICE, AT(data.header), "auto", .words = TR_WORDS("auto", "yes", "no"),
     .help = "csv and ratings: whether the first line names the columns; auto = if it holds no numbers"},
    {"data.label", TR_KIND_TEXT, AT(data.label), "none", .words = TR_WORDS("none", "first", "last", "auto"),
     .help = "csv: which column is a label, by its name or its number from 1 on; auto = the one that is called label, class, target "
             "or y, otherwise the last, but the first if its values are few whole numbers and the last's are not"},
    {"data.positive", TR_KIND_TEXT, AT(data.positive), "",
     .help = "csv: rows with this label are one class, all others the other"},
    {"data.columns", TR_KIND_PAIRS, AT(data.columns), "",
     .help = "csv: types of columns, by names (or numbers from 1 on, of files without a header) or patterns with * and ?: number, "
             "category, label, weight, id or ignore, as «{age: number, '*_id': category}»; of others they follow from the data: a column "
             "with a word in it is a category"},
    {"data.min_count", TR_KIND_INTEGER, AT(data.min_count), "1", .least = 1,
     .help = "csv: values of categories that fewer rows have are one value, «other»"},
    {"data.most_values", TR_KIND_INTEGER, AT(data.most_values), "0", .most = 4294967294.0,
     .help = "csv: so many values of a category, the most frequent, are told apart, the rest is one value, «other»; 0 = all"},
    {"data.hash", TR_KIND_INTEGER, AT(data.hash), "0", .most = 4294967294.0,
     .help = "csv: categories are no dictionaries, but so many features, as 2^22, of which each value has one by its hash, perhaps "
             "with others; nothing is counted, and values that only test data have are features too; 0 = dictionaries"},
    {"data.cross", TR_KIND_NAMES, AT(data.cross), "",
     .help = "csv: categories made of two to four columns, as «[city*device]»: each pair of values that occurs is a value"},
    {"data.missing", TR_KIND_NAMES, AT(data.missing), "",
     .help = "csv: further values, numbers or words, that mean a missing value; an empty field, NA, NaN, nan, null, NULL, ? and \\N always do"},
    {"data.duplicates", TR_KIND_CHOICE, AT(data.duplicates), "last", .words = TR_WORDS("last", "mean", "sum"),
     .help = "ratings: what becomes of several of one user and item"},
    {"data.scale", TR_KIND_CHOICE, AT(data.scale), "auto",
     .words = TR_WORDS("auto", "none", "standard", "maxabs", "minmax"),
     .help = "libsvm and csv: columns are brought to one size before training, and the model is written for the files' numbers: "
             "centred and divided by their standard deviation (standard; rows with less than a fifth of the cells are only divided, "
             "by the root mean square of a column's non-zeros), divided by their largest value, or brought to 0 .. 1; auto = standard, for linear "
             "models, where sizes of columns differ more than tenfold, or from 1, that of the bias; where they do not, dense columns are centred if their means are larger than their deviations and the bias is free. What model.l2 shrinks are the weights of scaled columns"},
    {"data.cache", TR_KIND_CHOICE, AT(data.cache), "auto", .words = TR_WORDS("auto", "no", "memory"), .may_change = true,
     .help = "data that were read stay in the nodes' memory (/dev/shm) until the job ends, so that it need not read them "
             "again after a failure; auto = under trireme run; not where they do not fit twice"},
    {"data.storage", TR_KIND_CHOICE, AT(data.storage), "auto", .words = TR_WORDS("auto", "memory", "disk", "memory_disk"),
     .may_change = true,
     .help = "where rows are while they are used: in memory; in files in data.scratch, read ahead of each pass; or there, with as "
             "many in memory as data.memory has room for; auto = in memory, if they fit by what the beginnings of the files show, "
             "else memory_disk, if there is a data.scratch"},
    {"data.memory", TR_KIND_BYTES, AT(data.memory), "0", .may_change = true,
     .help = "bytes of rows that a node holds in memory; 0 = half of what is free when the job begins"},
    {"data.scratch", TR_KIND_TEXT, AT(data.scratch), "", .may_change = true,
     .help = "a folder on a disk of each node, for data.storage: the files there are made when the data are read for the first "
             "time; the next start with the same output, data and ranks finds them; they may be removed when no job runs"},

    {"ranks.layout", TR_KIND_CHOICE, AT(ranks.layout), "auto",
     .words = TR_WORDS("auto", "dedicated", "colocated", "alone"), .may_change = true,
     .help = "servers on ranks of their own, on the workers' ranks, or one rank for all"},
    {"ranks.servers", TR_KIND_INTEGER, AT(ranks.servers), "0", .most = ANY_INT, .may_change = true,
     .help = "ranks that hold parameters; 0 = chosen from the ranks and nodes"},
    {"ranks.groups", TR_KIND_INTEGER, AT(ranks.groups), "0", .most = ANY_INT, .may_change = true,
     .help = "groups of workers; 0 = chosen from the ranks and nodes"},
    {"ranks.group_size", TR_KIND_INTEGER, AT(ranks.group_size), "0", .most = ANY_INT, .may_change = true,
     .help = "workers in a group; 0 = all that there are, divided by ranks.groups; without that those of a node, or all (up to 64) "
             "where factors rotate under bsp, and topics over nodes of one rank, or one where workers have nothing to share"},
    {"ranks.node_size", TR_KIND_INTEGER, AT(ranks.node_size), "0", .most = ANY_INT, .may_change = true,
     .help = "ranks to be taken for one node, for experiments; 0 = those that share memory"},
    {"ranks.patience", TR_KIND_REAL, AT(ranks.patience), "60", .above = true, .may_change = true,
     .help = "seconds after which a rank that waits says for what; if all do, `trireme run` starts them again"},

    {"table.partition", TR_KIND_CHOICE, AT(table.partition), "range-hash",
     .words = TR_WORDS("range", "hash", "range-hash", "ring"), .may_change = true,
     .help = "how keys are spread over the servers: neighbours together, each alone, hashed blocks, or blocks on a "
             "consistent-hash ring"},
    {"table.block", TR_KIND_INTEGER, AT(table.block), "0", .may_change = true,
     .help = "keys in one block of a range-hash or ring partition; 0 = chosen"},
    {"table.virtual_nodes", TR_KIND_INTEGER, AT(table.virtual_nodes), "128", .least = 1, .most = 65535,
     .may_change = true,
     .help = "points that each server has on the ring"},
    {"table.servers", TR_KIND_INTEGER, AT(table.servers), "0", .most = ANY_INT, .may_change = true,
     .help = "servers that hold a table, others each; 0 = all"},
    {"table.storage", TR_KIND_CHOICE, AT(table.storage), "dense", .words = TR_WORDS("dense", "hash"),
     .help = "room for every key, or a map of the keys that were ever updated"},
    {"table.route", TR_KIND_CHOICE, AT(table.route), "auto", .words = TR_WORDS("auto", "load", "get", "request"),
     .may_change = true,
     .help = "how parameters are fetched: shared memory, one-sided, or asked of the server; auto = what is faster, or "
             "behind the merge of updates, unasked"},
    {"table.push", TR_KIND_CHOICE, AT(table.push), "auto",
     .words = TR_WORDS("auto", "merge", "accumulate", "message"), .may_change = true,
     .help = "how updates reach the servers: merged collectively, one-sided in whatever order they come, or as messages"},
    {"table.merge", TR_KIND_CHOICE, AT(table.merge), "auto", .words = TR_WORDS("auto", "direct", "rounds"),
     .may_change = true,
     .help = "how updates are merged between nodes: each rank's to each server, or in rounds by halves of the ranks"},
    {"table.share_pulls", TR_KIND_BOOL, AT(table.share_pulls), "yes", .may_change = true,
     .help = "workers of a node fetch what they all need from other nodes once"},
    {"table.prune", TR_KIND_BOOL, AT(table.prune), "yes",
     .help = "workers fetch the parameters that their rows need; no = all of them, for comparison"},
    {"table.rotate", TR_KIND_CHOICE, AT(table.rotate), "auto", .words = TR_WORDS("auto", "share", "travel"),
     .may_change = true,
     .help = "how blocks get round the workers of a group: in memory that they share, or from one to the next"},
    {"table.ahead", TR_KIND_INTEGER, AT(table.ahead), "4", .most = 1024, .may_change = true,
     .help = "requests for rows that are under way to a server while others are computed on; 0 = one after another"},
    {"table.row_bytes", TR_KIND_INTEGER, AT(table.row_bytes), "262144", .least = 1, .most = 1073741824,
     .may_change = true,
     .help = "bytes of rows in one of these requests at most; one row at least"},
    {"table.encoding", TR_KIND_CHOICE, AT(table.encoding), "auto",
     .words = TR_WORDS("auto", "dense", "sparse", "bitmap"), .may_change = true,
     .help = "of updates sent as messages; auto = the smallest for each message"},
    {"table.precision", TR_KIND_CHOICE, AT(table.precision), "full", .words = TR_WORDS("full", "f16", "bf16", "f8"),
     .help = "of values in messages; what rounding takes from an update is sent with the next; f8: of what "
             "is read, differences from what was read before, and rows are f16"},
    {"table.filter", TR_KIND_CHOICE, AT(table.filter), "none",
     .words = TR_WORDS("none", "threshold", "significant", "kkt", "skip"),
     .help = "which entries of an update stay behind: small, small beside their parameter, without effect "
             "under model.l1, or some at random"},
    {"table.filter_limit", TR_KIND_REAL, AT(table.filter_limit), "1e-6",
     .help = "threshold: absolute, significant: relative to the parameter, kkt: how far inside alpha"},
    {"table.filter_skip", TR_KIND_REAL, AT(table.filter_skip), "0.5", .most = 1,
     .help = "skip: which part of the entries waits"},

    {"sync.mode", TR_KIND_CHOICE, AT(sync.mode), "bsp", .words = TR_WORDS("bsp", "ssp", "asp", "auto"),
     .help = "in step, stale by a bounded number of clocks, or unbounded; auto: in step, but workers of a node may change "
             "one model at the same time, so that no run repeats another bit for bit"},
    {"sync.staleness", TR_KIND_INTEGER, AT(sync.staleness), "3",
     .help = "ssp: clocks the fastest may be ahead of the slowest"},
    {"sync.push", TR_KIND_OFTEN, AT(sync.push), "every 1",
     .help = "length of a clock: «every N» mini-batches, «N per epoch», or auto = when enough has gathered"},
    {"sync.pull", TR_KIND_CHOICE, AT(sync.pull), "every", .words = TR_WORDS("every", "stale"),
     .help = "parameters are read every clock, or only when those at hand are older than the staleness allows"},
    {"sync.weight", TR_KIND_CHOICE, AT(sync.weight), "sum", .words = TR_WORDS("sum", "con", "dyn", "auto"),
     .help = "what updates count: all fully, all 1/groups (con), by their staleness (dyn), or by how much they "
             "agree (auto)"},
    {"sync.global_rate", TR_KIND_REAL, AT(sync.global_rate), "1/groups", .above = true,
     .words = TR_WORDS("1/groups"), .may_change = true,
     .help = "con: factor on every update"},
    {"sync.stable", TR_KIND_BOOL, AT(sync.stable), "no",
     .help = "dyn: read the same version from all servers"},
    {"sync.race", TR_KIND_CHOICE, AT(sync.race), "chunk", .words = TR_WORDS("chunk", "atomic", "none"),
     .help = "how workers of a node change one local model: with a lock for each chunk, each number atomically, or "
             "without regard for each other, so that updates can be lost"},

    {"local.model", TR_KIND_CHOICE, AT(local.model), "integral", .words = TR_WORDS("integral", "demand"),
     .may_change = true,
     .help = "the whole model is fetched at once, or each chunk when it is first needed"},
    {"local.chunk", TR_KIND_INTEGER, AT(local.chunk), "1024", .least = 1, .most = 1073741824, .may_change = true,
     .help = "parameters in one chunk"},
    {"local.memory", TR_KIND_BYTES, AT(local.memory), "0", .may_change = true,
     .help = "bytes of a node's local model that are held in memory, the rest on its disk; 0 = no limit"},
    {"local.replace", TR_KIND_CHOICE, AT(local.replace), "lru", .words = TR_WORDS("lru", "fifo", "random"),
     .may_change = true,
     .help = "which chunk makes room when memory is full: the one longest unused, the oldest, or any"},

    {"experiment.slow", TR_KIND_REAL, AT(experiment.slow), "0", .most = 1, .may_change = true,
     .help = "part of the workers that are slowed down"},
    {"experiment.level", TR_KIND_REAL, AT(experiment.level), "1", .least = 1, .may_change = true,
     .help = "how many times longer a clock takes them"},
    {"experiment.kind", TR_KIND_CHOICE, AT(experiment.kind), "compute", .words = TR_WORDS("compute", "network"),
     .may_change = true,
     .help = "they wait in proportion to their computing, or to their pulling and pushing"},
    {"experiment.clock", TR_KIND_REAL, AT(experiment.clock), "0", .may_change = true,
     .help = "seconds that a clock takes every worker at least, the slow ones level times that; so that a few cores "
             "do for many workers"},

    {"report.every", TR_KIND_INTEGER, AT(report.every), "1", .least = 1, .most = ANY_COUNT, .may_change = true,
     .help = "epochs between two evaluations"},
    {"report.progress", TR_KIND_CHOICE, AT(report.progress), "auto", .words = TR_WORDS("auto", "yes", "no"),
     .may_change = true,
     .help = "a table as the run goes; auto = a table on a terminal, else plain lines; no = only errors"},

    {"checkpoint.every", TR_KIND_PACE, AT(checkpoint.every), "5min", .may_change = true,
     .help = "how often one is written: a time with its unit (ms, s, min, h, d), or a number of clocks"},
    {"checkpoint.keep", TR_KIND_INTEGER, AT(checkpoint.keep), "3", .least = 1, .may_change = true,
     .help = "how many are kept, the newest"},
    {"checkpoint.to", TR_KIND_TEXT, AT(checkpoint.to), "", .may_change = true,
     .help = "folder for them; empty = checkpoints in the output"},
    {"checkpoint.max_time", TR_KIND_TIME, AT(checkpoint.max_time), "no", .may_change = true,
     .help = "time from the start of the program until the run must have ended: shortly before, a checkpoint is written "
             "and the run stops with exit code 75; a number alone counts minutes, and 1:30:00 or 1-12 (days-hours) is as "
             "Slurm has it; trireme train --max-time sets it"},
    {"checkpoint.memory", TR_KIND_PACE, AT(checkpoint.memory), "no", .may_change = true,
     .help = "how often one is taken into memory of this node and others, which costs no disk"},
    {"checkpoint.copies", TR_KIND_INTEGER, AT(checkpoint.copies), "1", .least = 1, .most = ANY_INT, .may_change = true,
     .help = "other nodes that have a copy of what a node has in memory"},
};

static const tr_option stage_keys[] = {
    {"stages.NAME.parallelism", TR_KIND_INTEGER, AT_STAGE(parallelism), "all", .least = 1, .most = ANY_INT,
     .words = TR_WORDS("all", "auto"), .may_change = true,
     .help = "workers that run it: all, as many as are found to be best, or a number"},
    {"stages.NAME.clocks", TR_KIND_INTEGER, AT_STAGE(clocks), "0",
     .help = "iterations of one run of it; 0 = what the method says"},
    {"stages.NAME.servers", TR_KIND_INTEGER, AT_STAGE(servers), "0", .most = ANY_INT, .may_change = true,
     .help = "servers that the tables move to before it begins; 0 = they stay where they are"},
};

static const tr_option task_keys[] = {
    {"tasks.NAME.after", TR_KIND_NAMES, AT_TASK(after), "",
     .help = "tasks that must be done before it starts"},
    {"tasks.NAME.priority", TR_KIND_REAL, AT_TASK(priority), "0", .least = -INFINITY, .may_change = true,
     .help = "of tasks that could start, the one with the highest goes first"},
    {"tasks.NAME.ranks", TR_KIND_INTEGER, AT_TASK(ranks), "0", .most = ANY_INT, .may_change = true,
     .help = "ranks that it runs on; 0 = all that are free when it starts"},
    {"tasks.NAME.run", TR_KIND_CHOICE, AT_TASK(run), "train", .words = TR_WORDS("train", "average", "best"),
     .help = "train a model, or evaluate the mean of what the models of the tasks in `after` predict on data.test; or "
             "best: train, but only if the tasks in `after` have done better than those of the job's other tasks that run best"},
    {"tasks.NAME.best", TR_KIND_INTEGER, AT_TASK(best), "0", .most = ANY_INT,
     .help = "begins only if the one task that it comes after is among so many best, by data.test, of all that such tasks come "
             "after; otherwise it is not run"},
};
/* clang-format on */

#define KEYS(table)                                                                                          \
    {                                                                                                        \
        table, sizeof table / sizeof *table                                                                  \
    }
const struct tr_job_keys tr_job_tables[TR_JOB_TABLES] = {
    [TR_TABLE_JOB] = KEYS(job_keys), [TR_TABLE_STAGE] = KEYS(stage_keys), [TR_TABLE_TASK] = KEYS(task_keys)};

/* ---- looking up ---- */

size_t tr_job_options(const struct tr_model_class *class)
{
    size_t n = 0;
    while (class && class->options && class->options[n].name) n++;
    return n;
}

const char *tr_job_own_name(const char *name)
{
    const char *dot = strrchr(name, '.');
    return dot ? dot + 1 : name;
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

/* What stands behind section.WORD. in the name, or the name itself. */
static const char *behind_word(const char *name, const char *section)
{
    size_t length = strlen(section);
    if (strncmp(name, section, length) != 0 || name[length] != '.') return name;
    const char *dot = strchr(name + length + 1, '.');
    return dot ? dot + 1 : name;
}

static const tr_option *find_in(enum tr_job_table table, const char *name, bool own)
{
    for (size_t i = 0; i < tr_job_tables[table].n; i++) {
        const tr_option *key = &tr_job_tables[table].key[i];
        if (!strcmp(key->name, name) || (own && !strcmp(tr_job_own_name(key->name), name))) return key;
    }
    return NULL;
}

/* Of the engine's keys, as named in the tables or with names of tasks and stages. */
static const tr_option *find_of_engine(const char *name)
{
    const char *in_task = behind_word(name, "tasks"), *in_stage = behind_word(in_task, "stages");
    const tr_option *key = find_in(TR_TABLE_TASK, in_task, in_task != name);
    if (!key) key = find_in(TR_TABLE_STAGE, in_stage, in_stage != in_task);
    return key ? key : find_in(TR_TABLE_JOB, in_task, false);
}

const tr_option *tr_job_known_key(const char *name, size_t n, const struct tr_model_class **class)
{
    const tr_option *key = find_of_engine(name);
    const char *own = behind_word(name, "tasks");
    *class = NULL;
    if (key && n-- == 0) return key;
    for (size_t c = 0; c < tr_model_class_count; c++) {
        *class = tr_model_classes[c];
        for (size_t i = 0; i < tr_job_options(*class); i++)
            if (!strcmp((*class)->options[i].name, own) && n-- == 0) return &(*class)->options[i];
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
    size_t part = distance(without_section(written), tr_job_own_name(meant));
    return part < whole ? part + 1 : whole;
}

struct best {
    size_t distance;
    struct tr_job_name name;
};

static void consider(struct best *best, size_t d, const char *prefix, const char *name)
{
    if (d >= best->distance) return;
    best->distance = d;
    best->name = tr_job_join(prefix, name);
}

static void consider_keys(struct best *best, const tr_option *key, size_t n, const char *written,
                          const char *prefix)
{
    for (size_t i = 0; i < n; i++) consider(best, key_distance(written, key[i].name), prefix, key[i].name);
}

static void consider_table(struct best *best, enum tr_job_table table, const char *written,
                           const char *prefix)
{
    consider_keys(best, tr_job_tables[table].key, tr_job_tables[table].n, written, prefix);
}

/* Splits what looks like section.WORD.rest, and changes rest to begin with the section instead of its prefix:
 * «stage.full.clock» to «stages.full.» and «stages.clock». */
static bool split_named(const char *written, const char *section, struct tr_job_name *prefix,
                        struct tr_job_name *rest)
{
    char first[16], word[TR_JOB_LONGEST_WORD + 2];
    int end = 0;
    if (sscanf(written, "%15[^.].%33[^.].%n", first, word, &end) != 2 || end == 0) return false;
    if (distance(first, section) == SIZE_MAX || !tr_job_is_word(word)) return false;
    snprintf(prefix->text, sizeof prefix->text, "%s.%s.", section, word);
    snprintf(rest->text, sizeof rest->text, "%s.%s", section, written + end);
    return true;
}

/* The table's keys are called stages.NAME.key, to be compared as stages.key. */
static void consider_named(struct best *best, enum tr_job_table table, const char *written,
                           const char *prefix)
{
    for (size_t i = 0; i < tr_job_tables[table].n; i++) {
        const char *name = tr_job_tables[table].key[i].name, *own = tr_job_own_name(name);
        char meant[TR_JOB_LONGEST_NAME];
        snprintf(meant, sizeof meant, "%.*s.%s", (int)strcspn(name, "."), name, own);
        consider(best, distance(written, meant), prefix, own);
    }
}

/* What people look for in a stage, and the whole task has. */
static void consider_whole_task(struct best *best, const char *written, const char *prefix)
{
    if (!strcmp(written, "stages.priority"))
        consider(best, 0, prefix, *prefix ? "priority" : "tasks.NAME.priority");
    if (!strcmp(written, "stages.consistency")) consider(best, 0, prefix, "sync.mode");
}

/* Of keys that a task and the whole job have. */
static void consider_job(struct best *best, const struct tr_model_class *class, const char *written,
                         const char *prefix)
{
    struct tr_job_name stage, rest;
    consider_table(best, TR_TABLE_JOB, written, prefix);
    for (size_t c = 0; c < tr_model_class_count; c++)
        consider_keys(best, tr_model_classes[c]->options, tr_job_options(tr_model_classes[c]), written,
                      prefix);
    if (class) consider_keys(best, class->options, tr_job_options(class), written, prefix);
    if (!split_named(written, "stages", &stage, &rest)) {
        consider_table(best, TR_TABLE_STAGE, written, prefix);
        return;
    }
    consider_named(best, TR_TABLE_STAGE, rest.text, tr_job_join(prefix, stage.text).text);
    consider_whole_task(best, rest.text, prefix);
}

struct tr_job_name tr_job_suggest_key(const struct tr_model_class *class, const char *name)
{
    struct best best = {SIZE_MAX, {""}};
    struct tr_job_name prefix, rest;
    if (split_named(name, "tasks", &prefix, &rest)) {
        consider_named(&best, TR_TABLE_TASK, rest.text, prefix.text);
        consider_job(&best, class, without_section(rest.text), prefix.text);
    } else {
        consider_job(&best, class, name, "");
        consider_table(&best, TR_TABLE_TASK, name, "");
    }
    return best.name;
}

const char *tr_job_suggest(const char *name, const char *const *names, size_t n)
{
    const char *best = NULL;
    size_t least = SIZE_MAX;
    for (size_t i = 0; i < n; i++) {
        size_t d = distance(name, names[i]);
        if (d < least) least = d, best = names[i];
    }
    return best;
}

const char *tr_job_suggest_section(const char *name)
{
    const char *names[TR_JOB_SECTIONS];
    for (size_t i = 0; i < TR_JOB_SECTIONS; i++) names[i] = tr_job_sections[i].name;
    return tr_job_suggest(name, names, TR_JOB_SECTIONS);
}
