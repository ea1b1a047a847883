#define _GNU_SOURCE
#include "cli/cli.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "base/file.h"
#include "base/terminal.h"
#include "job/job.h"
#include "job/schema.h"
#include "job/text.h"
#include "ranks/ranks.h"

struct topic {
    const char *name;
    const char *brief;
    const char *text;           /* or … */
    tr_command_fn *says_itself; /* … the command that has it, when it is given --help */
};

/* clang-format off */
static const struct topic topics[] = {
    {"train", "learn a model from data, as a job file says",
     "trireme train [JOB.yaml] [section.key=value ...] [--max-time T] [--plugin FILE] [--fresh]\n"
     "              [--explain]\n"
     "mpirun -n RANKS trireme train [JOB.yaml] ...\n"
     "\n"
     "Learns a model. Without mpirun, one process does everything; with it, the ranks share the work as\n"
     "ranks.layout says. A section.key=value wins over the job file, which may be left out, or be - for\n"
     "standard input: see trireme help job.\n"
     "Everything is written into the folder output (by default runs/<name>): see trireme help output.\n"
     "Checkpoints are written there as well: a run that was stopped or has failed goes on when the same command\n"
     "is given again, on any number of ranks: see trireme help job checkpoint. The signal USR1 (and TERM, INT)\n"
     "writes one and stops with exit code 75, USR2 writes one and goes on.\n"
     "  --max-time T  stop so early that a checkpoint is written when the program has run for this long: minutes,\n"
     "                minutes:seconds, hours:minutes:seconds, days-hours, or with a unit, as 90s or 2h\n"
     "  --plugin FILE the shared object of a model of one's own, as model.plugin; FILE and its folder must belong to\n"
     "                you or root, and no other user may be able to write to them\n"
     "  --fresh       begin anew; what an earlier run has left is kept aside\n"
     "  --explain     say all that was decided before training starts: settings of MPI, roles of the ranks,\n"
     "                where tables lie, and how parameters and updates travel\n", NULL},
    {"sweep", "train with each of several settings, and keep the best", NULL, tr_sweep_command},
    {"run", "train under a supervisor, which starts again what failed", NULL, tr_run_command},
    {"watch", "show running and finished jobs as a web page", NULL, tr_watch_command},
    {"plot", "draw curves of runs", NULL, tr_plot_command},
    {"predict", "apply a model to data", NULL, tr_predict_command},
    {"evaluate", "measure a model on labelled data", NULL, tr_evaluate_command},
    {"inspect", "show what is in a model, in data or in the folder of a run", NULL, tr_inspect_command},
    {"count", "count what is in the columns of tables", NULL, tr_count_command},
    {"generate", "make up data to try things with",
     "trireme generate ctr     -o FILE [rows=1M features=1M nonzeros=40 power=1.1 noise=0.1 values=unit|binary|real]\n"
     "trireme generate ratings -o FILE [-t TEST] [users=100k items=20k ratings=10M rank=10 power=0.8 noise=0.7\n"
     "                                 test=0.1 values=whole|real]\n"
     "trireme generate docword -o FILE [-v VOCABULARY] [documents=50k words=20k tokens=5M topics=100 alpha=0.1\n"
     "                                 beta=0.05 power=0.9]\n"
     "trireme generate dense   -o FILE [rows=1M columns=64 clusters=256 spread=1 noise=1 format=csv|libsvm\n"
     "                                 label=none|first|last]\n"
     "\n"
     "Makes up data, the same for the same seed=1, 2, ... FILE may be - for standard output, and is compressed\n"
     "if it ends in .gz. k, M and G behind a number mean thousands, millions and billions.\n"
     "\n"
     "ctr: LIBSVM text that looks like clicks on advertisements: sparse rows of few popular and many rare\n"
     "features, with labels from a hidden logistic model.\n"
     "  rows, features   how many\n"
     "  nonzeros         features of each row\n"
     "  power            the k-th most popular feature is drawn in proportion to k^-power\n"
     "  noise            part of the labels that are flipped\n"
     "  first_row        number of the first row, from 0: later rows of the same seed make test data\n"
     "  values           unit (equal, rows of length 1), binary (all are 1) or real (between 0 and 1)\n"
     "ratings: lines of user, item and rating, 1 to 5, from hidden factors of users and items.\n"
     "  -t TEST, test    another file, and which part of the ratings it gets instead of FILE\n"
     "  rank             how many factors are hidden\n"
     "  power            the k-th most popular item is drawn in proportion to k^-power\n"
     "  noise            standard deviation of what cannot be learnt\n"
     "  values           whole or real (two decimals)\n"
     "docword: a bag of words in UCI's format, from hidden topics.\n"
     "  -v VOCABULARY    a file for the words, one a line\n"
     "  tokens           length of all documents together\n"
     "  topics           how many are hidden; alpha: small ones give documents few topics each\n"
     "  beta             small ones give topics few words each\n"
     "  power            the k-th most frequent word occurs in proportion to k^-power\n"
     "dense: rows of numbers in clusters.\n"
     "  spread, noise    standard deviation of the centres, and of the rows around their centres\n"
     "  first_row        later rows of the same seed belong to the same centres\n"
     "  label            where a row has the number of its cluster: LIBSVM text always begins with it\n", NULL},
    {"convert", "write data as HDF5 that all ranks read at once",
     "trireme convert DATA... OUT.h5 [data.KEY=value ...]\n"
     "\n"
     "Writes the rows of all files DATA (globs are fine; looked for as those of jobs are) into one HDF5 file. It holds\n"
     "what training would make of them, so that a job that has it as data.train learns the same from it, but reads it\n"
     "in less than half the time: nothing is unpacked or parsed, each rank reads its own rows, and all bytes are checked.\n"
     "LIBSVM, csv and other HDF5 are converted. Mostly empty rows become lists of non-zeros, group X as AnnData and\n"
     "scipy have it; others an array X. Labels become y. Of csv all columns are in X, with their names, and what stands\n"
     "in those of words, in the group columns: jobs may say of it what they say of csv. h5py and h5dump read all of it.\n"
     "The keys are those of jobs: data.format, data.header, data.label, data.index_base, data.on_error, data.features,\n"
     "data.max_record, data.folders, data.missing, data.columns (whose columns id and ignore are left out). data.label is auto unless it is\n"
     "given; none: all columns are data.\n"
     "Files are read twice, in pieces: memory grows with the different words alone. OUT.h5 is there when it is complete.\n", NULL},
    {"help", "explain a command, a key of job files, or something else",
     "trireme help [TOPIC]\n"
     "trireme help job [SECTION|SECTION.KEY|CLASS|all]\n", NULL},
    {"job", "the job file: its sections and keys, or one of them", NULL, NULL},
    {"output", "the files that train writes",
     "A run writes into the folder output of the job; one that is there is renamed to <folder>.1, .2, ...,\n"
     "unless its run was stopped or has failed, and goes on from its last checkpoint.\n"
     "  job.yaml      the job with every key filled in; can be trained again as it is\n"
     "  status.json   what the job is doing now, or how it ended\n"
     "  metrics.csv   a line for every evaluation: objective, gap, times, bytes moved\n"
     "  summary.json  the outcome, flat, for scripts\n"
     "  model.h5      the model, for trireme and everything that reads HDF5\n"
     "  model.txt     the same as text in LIBLINEAR's format\n"
     "  log           what was said, with a line for each doubling of the epochs\n"
     "  ranks.json    what each rank does; events.csv: checkpoints, restarts and failures: see trireme watch\n"
     "  checkpoints   what a run needs to go on: see trireme help job checkpoint\n"
     "While it lasts it holds a lock there (.lock), and another run with this folder ends with 73.\n"
     "trireme inspect FOLDER shows them. report.progress=no keeps the run silent but for errors.\n", NULL},
    {"status", "the exit codes",
     "The exit code of every command, also in status.json:\n"
     "   0  all went well\n"
     "  64  command line: unknown command or option\n"
     "  65  a record or a model is malformed\n"
     "  66  an input file is missing, empty or unreadable\n"
     "  69  another rank failed or does not answer\n"
     "  70  a bug of Trireme\n"
     "  71  out of memory, or MPI or the operating system failed\n"
     "  73  an output file or folder cannot be created\n"
     "  74  reading or writing failed half way, as on a full disk\n"
     "  75  stopped early on request: start again to go on\n"
     "  76  the objective is not finite any more\n"
     "  77  a plugin, file or folder that other users can change is not used\n"
     "  78  job file: unknown key, wrong type, impossible value\n", NULL},
};
/* clang-format on */
enum { TOPICS = sizeof topics / sizeof *topics, COMMANDS = 11 };

const char *tr_suggest(const char *written, const char *const words[])
{
    const char *best = NULL;
    size_t least = strlen(written) / 3 + 1; /* further away, a suggestion only puzzles */
    for (; *words; words++) {
        size_t edits = tr_edit_distance(written, *words);
        if (edits > least || (best && edits == least)) continue;
        best = *words;
        least = edits;
    }
    return best;
}

static int unknown_topic(const char *name)
{
    const char *names[TOPICS + 1] = {NULL};
    for (size_t i = 0; i < TOPICS; i++) names[i] = topics[i].name;
    const char *meant = tr_suggest(name, names);
    return tr_complain(tr_fail(TR_ERR_USAGE, "no help on %s: %s%s?", tr_shown(name).text,
                               meant ? "did you mean " : "see trireme help; or did you mean help job ",
                               meant ? meant : tr_shown(name).text));
}

static void show_overview(void)
{
    puts("Trireme trains models on many ranks of MPI.\n\n"
         "  trireme COMMAND ...\n"
         "  mpirun -n RANKS trireme COMMAND ...\n\n"
         "Commands:");
    for (size_t i = 0; i < COMMANDS; i++) tr_printf(stdout, "  %-10s %s\n", topics[i].name, topics[i].brief);
    puts("\nMore help, by trireme help TOPIC: the commands above, and");
    for (size_t i = COMMANDS; i < TOPICS; i++)
        tr_printf(stdout, "  %-10s %s\n", topics[i].name, topics[i].brief);
    puts("\nTo begin with:\n"
         "  trireme generate ctr -o datasets/ctr-small.svm rows=40k features=100k nonzeros=30\n"
         "  trireme train jobs/ctr-small.yaml");
}

/* What was not understood goes to stderr. */
static int show_job(const char *filter)
{
    char *text = NULL;
    size_t length;
    FILE *memory = open_memstream(&text, &length);
    bool known = memory && tr_job_help(memory, filter);
    if (memory) fclose(memory);
    if (text) fputs(text, known ? stdout : stderr);
    free(text);
    return known ? TR_OK : TR_ERR_USAGE;
}

static bool is_of_job(const char *name)
{
    const struct tr_model_class *class;
    bool found = tr_job_find_section(name) || tr_job_known_key(name, 0, &class);
    for (size_t i = 0; i < tr_model_class_count; i++)
        found = found || !strcmp(tr_model_classes[i]->name, name);
    return found;
}

/* On a terminal help goes through less, or what PAGER names, which ends by itself where all fits; no line is wider than the
 * terminal. A rank has no keyboard, though Open MPI 5 gives it a terminal to write to, wherever that is copied to. */
static FILE *open_pager(int *terminal)
{
    char command[128];
    if (!isatty(STDOUT_FILENO) || tr_started_by_launcher()) return NULL;
    setenv("LESS", "FRX", 0);
    snprintf(command, sizeof command, "fold -s -w %d | ${PAGER:-$(command -v less || echo cat)}",
             tr_terminal_columns(stdout, 80));
    FILE *pager = popen(command, "w");
    *terminal = pager ? dup(STDOUT_FILENO) : -1;
    if (pager) dup2(fileno(pager), STDOUT_FILENO);
    return pager;
}

static void close_pager(FILE *pager, int terminal)
{
    signal(SIGPIPE, SIG_IGN); /* people leave before the end */
    fflush(stdout);
    if (terminal >= 0) dup2(terminal, STDOUT_FILENO);
    if (pager) pclose(pager);
}

int tr_say_help(int argc, char **argv)
{
    if (argc == 0) {
        show_overview();
        return TR_OK;
    }
    const char *name = argv[0];
    bool is_job = strcmp(name, "job") == 0;
    if (argc > 1 + is_job)
        return tr_complain(tr_fail(TR_ERR_USAGE, "too many words: trireme help %s",
                                   is_job ? "job [SECTION|KEY]" : "[TOPIC]"));
    if (is_job) return show_job(argc > 1 ? argv[1] : NULL);
    for (size_t i = 0; i < TOPICS; i++) {
        if (strcmp(topics[i].name, name) != 0) continue;
        if (topics[i].says_itself) return topics[i].says_itself(1, (char *[]){"--help", NULL});
        fputs(topics[i].text, stdout);
        return TR_OK;
    }
    if (is_of_job(name)) return show_job(name);
    return unknown_topic(name);
}

int tr_help_command(int argc, char **argv)
{
    int terminal = -1;
    if (argc > 0 && strcmp(argv[0], "--complete") == 0) return tr_complete_command(argc - 1, argv + 1);
    FILE *pager = open_pager(&terminal);
    int status = tr_say_help(argc, argv);
    if (pager) close_pager(pager, terminal);
    else if ((fflush(stdout) != 0 || ferror(stdout)) && status == TR_OK)
        status = tr_complain(tr_file_failed("standard output", "written", errno));
    return status;
}
