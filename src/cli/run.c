/* trireme run: training under a supervisor (src/supervisor). */
#define _GNU_SOURCE
#include "cli/cli.h"

#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "data/dataset.h"
#include "job/job.h"
#include "job/schema.h"
#include "store/memory.h"
#include "supervisor/supervisor.h"

struct run_options {
    struct tr_run_options train;
    const char *hosts, *hostfile, *log;
    long ranks, max_restarts; /* ranks = 0: mpirun decides */
    double heartbeat, limit;  /* seconds */
};

/* The words of the command line. */
struct run_words {
    const struct run_options *o;
    const char *job;     /* the job file; may be NULL */
    const char *program; /* a program of the user; NULL: trireme train */
    char **setting;
    int settings;
    char **mpirun; /* options of mpirun, ended by NULL */
};

/* Sorts the words of the command line. If there is a job before --, the words after -- are options of mpirun; otherwise they are a
 * program, its job and its settings. */
static int read_words(struct tr_arguments *arguments, struct run_options *o, struct run_words *w)
{
    static char *none[] = {NULL};
    if (arguments->rest && arguments->words == 0 && arguments->settings == 0 && *arguments->rest) {
        char **words = arguments->rest + 1;
        int n = 0;
        while (words[n]) n++;
        w->program = words[-1];
        TR_TRY(tr_arguments_read(&tr_run_command.syntax, n, words, o, arguments));
    }
    w->job = arguments->words > 0 ? arguments->word[0] : NULL;
    w->setting = arguments->setting;
    w->settings = arguments->settings;
    w->mpirun = arguments->rest ? arguments->rest : none;
    if (!w->job && w->settings == 0)
        return tr_fail(TR_ERR_USAGE, "run: expected JOB.yaml%s: see trireme help run",
                       w->program ? " behind the program" : "");
    /* Refuse words that are not options or their values: mpirun would start them as the program. Options have one value, those with
     * «mca» two. */
    int values = 0;
    for (char **word = w->mpirun; *word; word++) {
        struct tr_job_name name = {""};
        const struct tr_model_class *class;
        if (strchr(*word, '='))
            snprintf(name.text, sizeof name.text, "%.*s", (int)strcspn(*word, "="), *word);
        if (**word == '-') values = strstr(*word, "mca") ? 2 : 1;
        else if (--values < 0 || tr_job_known_key(name.text, 0, &class))
            return tr_fail(TR_ERR_USAGE,
                           "run: unexpected %s behind --: expected options of mpirun and their values",
                           tr_shown(*word).text);
    }
    if (o->limit < 2 * o->heartbeat)
        return tr_fail(
            TR_ERR_USAGE,
            "run: expected --limit of at least twice --heartbeat, since a sign of life may come late");
    return TR_OK;
}

/* Returns whether ranks may run on other hosts: the command line names hosts, or a batch system has allocated them. */
static bool is_everywhere(const struct run_words *w)
{
    static const char *const allocations[] = {"PBS_NODEFILE",
                                              "PE_HOSTFILE",
                                              "LSB_HOSTS",
                                              "LSB_DJOB_HOSTFILE",
                                              "OMPI_MCA_orte_default_hostfile",
                                              "PRTE_MCA_prte_default_hostfile"};
    if (w->o->hosts || w->o->hostfile) return true;
    for (char **word = w->mpirun; *word; word++)
        if (strstr(*word, "host") || strcmp(*word, "-H") == 0 || strstr(*word, "machinefile")) return true;
    for (size_t i = 0; i < sizeof allocations / sizeof *allocations; i++)
        if (getenv(allocations[i])) return true;
    return tr_number_in("SLURM_JOB_NUM_NODES", 1) > 1;
}

/* Writes the words of the command that the supervisor starts: mpirun and its options, the program (or trireme train), job and
 * settings. Sets members of `supervision` to the command and to the indices of some of its words. */
static void write_command(const struct run_words *w, const char *self, const char *ranks,
                          const char **command, struct tr_supervision *supervision)
{
    const char **to = command;
    const struct run_options *o = w->o;
    const char *const given[][2] = {
        {"-n", o->ranks > 0 ? ranks : NULL}, {"--host", o->hosts}, {"--hostfile", o->hostfile}};
    *to++ = "mpirun";
    for (size_t i = 0; i < sizeof given / sizeof *given; i++) {
        if (!given[i][1]) continue;
        *to++ = given[i][0];
        *to++ = given[i][1];
    }
    /* mpirun needs this option if there are more ranks than cores on this host */
    bool crowded = o->ranks > tr_supervisor_cores() && !is_everywhere(w);
    for (char **word = w->mpirun; *word; word++) crowded = crowded && !strcasestr(*word, "oversubscribe");
    if (crowded) *to++ = "--oversubscribe";
    for (char **word = w->mpirun; *word; word++) *to++ = *word;
    supervision->options = (size_t)(to - command);
    *to++ = w->program ? w->program : self;
    if (!w->program) *to++ = "train";
    if (w->job) *to++ = w->job;
    supervision->fresh = o->train.fresh ? (size_t)(to - command) : 0;
    if (o->train.fresh) *to++ = "--fresh";
    if (o->train.explain) *to++ = "--explain";
    for (int i = 0; i < w->settings; i++) *to++ = w->setting[i];
    *to = NULL;
    supervision->command = command;
}

/* Frees the checkpoints in memory of a run that will not be restarted, and of its tasks. */
static void forget_memory(const tr_job *job)
{
    tr_memory_give_up(job->checkpoint.to, job->output);
    for (size_t i = 0; i < job->tasks; i++) forget_memory(job->task[i].job);
}

static int run_command(struct tr_arguments *arguments, void *options)
{
    struct run_words w = {.o = options};
    const struct run_options *o = options;
    tr_job *job;
    char self[PATH_MAX] = "", ranks[24];
    TR_FREED char *text = NULL;
    TR_FREED const char **command = NULL;
    size_t length = 0;
    if (tr_is_an_echo()) return TR_OK;
    if (tr_started_by_launcher())
        return tr_complain(tr_fail(TR_ERR_USAGE, "run: starts mpirun itself, and must not be started by it"));
    TR_TRY(tr_complain(read_words(arguments, options, &w)));
    /* Report errors in the job before mpirun starts. A program of the user may define a model class, so unknown keys are no errors
     * then. */
    const char *path = w.job ? w.job : TR_NO_JOB_FILE;
    int status = tr_job_read_text(path, &text, &length);
    if (status == TR_OK)
        status = tr_job_parse_as(w.program ? TR_JOB_FOREIGN : TR_JOB_STRICT, NULL, text, length, path,
                                 w.settings, w.setting, &job);
    TR_TRY(tr_complain(status));
    size_t words = 20 + (size_t)w.settings;
    for (char **word = w.mpirun; *word; word++) words++;
    status = TR_NEW(&command, words);
    if (status == TR_OK && readlink("/proc/self/exe", self, sizeof self - 1) < 0)
        status = tr_fail(TR_ERR_SYSTEM, "this program does not find itself");
    TR_TRY(tr_complain(status));
    struct tr_supervision supervision = {.output = job->output,
                                         .everywhere = is_everywhere(&w),
                                         .heartbeat = o->heartbeat,
                                         .limit = o->limit,
                                         .max_restarts = (int)o->max_restarts,
                                         .max_time = job->checkpoint.max_time,
                                         .log = o->log};
    snprintf(ranks, sizeof ranks, "%ld", o->ranks);
    write_command(&w, self, ranks, command, &supervision);
    status = tr_supervise(&supervision);
    if (status != TR_ERR_STOPPED) forget_memory(job);
    tr_cache_clean(job->output); /* the job will not be restarted and read the parsed data again */
    tr_job_free(job);
    return status;
}

#define AT(field) offsetof(struct run_options, field)
static const struct tr_argument run_arguments[] = {
    {"-n", TR_ARG_NUMBER, AT(ranks), .least = 1, .most = 1 << 20, .value = "RANKS",
     .help = "the number of ranks; by default mpirun decides"},
    {"-np", TR_ARG_NUMBER, AT(ranks), .least = 1, .most = 1 << 20},
    {"--hosts", TR_ARG_TEXT, AT(hosts), .value = "A,B", .help = "run on these hosts"},
    {"--hostfile", TR_ARG_TEXT, AT(hostfile), .value = "FILE", .help = "run on the hosts that FILE lists"},
    {"--max-restarts", TR_ARG_NUMBER, AT(max_restarts), .most = 1000000,
     .help = "give up after this number of restarts"},
    {"--heartbeat", TR_ARG_SECONDS, AT(heartbeat),
     .help = "the interval at which each rank reports that it is alive"},
    {"--limit", TR_ARG_SECONDS, AT(limit),
     .help = "a rank that has not reported for this time hangs, and so does one that is stopped"},
    {"--log", TR_ARG_TEXT, AT(log), .value = "FILE",
     .help = "add a line for every event: started, noticed, ended, ..."},
    {0}};

const struct tr_cli_command tr_run_command = {
    .syntax = {.command = "run",
               .expected = "JOB.yaml",
               .options = run_arguments,
               .shared = tr_run_arguments,
               .keys = tr_all_keys,
               .job = true,
               .divides = true,
               .hint = "see trireme help run; options of mpirun go behind --"},
    .brief = "train under a supervisor, which restarts a job that failed",
    .usage = "trireme run JOB.yaml [section.key=value ...] [OPTION...] [-- OPTIONS OF MPIRUN]\n"
             "trireme run [OPTION...] -- PROGRAM JOB.yaml [section.key=value ...]",
    .about =
        "Starts mpirun with trireme train, or with a program of the user, and starts it again when a rank "
        "dies or hangs: training continues from the newest checkpoint. One line reports what failed, where "
        "and how, and how many clocks are lost. --max-time is the time of all starts together.",
    .notes = "A failure that repeats three times in a row at the same clock, without a checkpoint in "
             "between, ends the job. So do errors that would occur again: exit codes 64, 65, 66, 73, 76, 77 "
             "and 78. SIGUSR1, SIGUSR2, SIGTERM and SIGINT are passed on to the ranks; a second SIGINT or "
             "SIGTERM kills them.",
    .defaults = &(const struct run_options){.max_restarts = 5, .heartbeat = 1, .limit = 10},
    .options_size = sizeof(struct run_options),
    .on_ranks = true,
    .run = run_command,
};
