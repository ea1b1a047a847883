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
#include "store/memory_folder.h"
#include "cli/words.h"
#include "data/cache.h"
#include "job/job.h"
#include "job/schema.h"
#include "supervisor/supervisor.h"

static const char usage[] =
    "trireme run JOB.yaml [-n RANKS] [section.key=value ...] [options] [-- options of mpirun]\n"
    "trireme run [-n RANKS] [options] -- PROGRAM JOB.yaml [section.key=value ...]    a program of one's own\n"
    "\n"
    "Starts mpirun with trireme train, and starts it again when a rank dies or hangs: training goes on from "
    "the\n"
    "newest checkpoint. Says in one line what failed, where and how, and how many clocks are lost.\n"
    "  -n RANKS          how many; without it mpirun decides\n"
    "  --hosts A,B       run on these hosts; or --hostfile FILE\n"
    "  --max-restarts N  give up after so many (5)\n"
    "  --heartbeat TIME  each rank says so often that it is alive (1s)\n"
    "  --limit TIME      one that was not heard of for so long hangs, as one that is stopped does (10s)\n"
    "  --log FILE        add a line for every event: started, noticed, ended, ...\n"
    "  --fresh, --max-time TIME, --plugin FILE, --explain   as of trireme train; the time is that of all "
    "starts together\n"
    "A failure that repeats three times in a row at the same clock, without a checkpoint in between, ends "
    "the job.\n"
    "So do errors that would come again: exit codes 64, 65, 66, 73, 76, 77 and 78. SIGUSR1, SIGUSR2, SIGTERM "
    "and\n"
    "SIGINT are passed on to the ranks; a second SIGINT or SIGTERM ends them at once.\n";

struct run_options {
    const char *job, *program; /* program: of one's own; NULL: trireme train */
    const char *ranks, *hosts, *hostfile, *log, *restarts, *max_time, *plugin;
    double heartbeat, limit; /* seconds */
    bool fresh, explain;
    char **setting;
    int settings;
    char **mpirun; /* what is behind --, ended by NULL */
};

/* An option with a value: text, text that is a number from least to most, or a time, which is stored as seconds. */
struct option {
    const char *name;
    enum { TEXT, ONCE, NUMBER, TIME } kind;
    size_t at; /* of the value in struct run_options */
    long least, most;
};

#define AT(field) offsetof(struct run_options, field)

static const struct option known_options[] = {
    {"-n", NUMBER, AT(ranks), 1, 1 << 20},
    {"-np", NUMBER, AT(ranks), 1, 1 << 20},
    {"--max-restarts", NUMBER, AT(restarts), 0, 1000000},
    {"--heartbeat", TIME, AT(heartbeat), 0, 0},
    {"--limit", TIME, AT(limit), 0, 0},
    {"--hosts", TEXT, AT(hosts), 0, 0},
    {"--hostfile", TEXT, AT(hostfile), 0, 0},
    {"--log", TEXT, AT(log), 0, 0},
    {"--max-time", ONCE, AT(max_time), 0, 0},
    {"--plugin", ONCE, AT(plugin), 0, 0},
};

static const struct option *find_option(const char *word)
{
    for (size_t i = 0; i < sizeof known_options / sizeof *known_options; i++)
        if (strcmp(known_options[i].name, word) == 0) return &known_options[i];
    return NULL;
}

/* 500ms, 1s, 2min; a bare number counts seconds. */
static bool read_time(const char *text, double *seconds)
{
    const double least = 0.01, most = 86400;
    char *end;
    *seconds = strtod(text, &end);
    bool bare = end != text && *end == '\0';
    return (bare || tr_job_duration(text, seconds)) && *seconds >= least && *seconds <= most;
}

static int take_value(const struct option *option, const char *text, struct run_options *o)
{
    static const char *const expected[] = {"a word", "a value, and once", "a number",
                                           "a time such as 500ms, 10s or 1min"};
    void *at = (char *)o + option->at;
    bool fits = text != NULL;
    char range[64] = "", *end;
    double seconds = 0;
    if (option->kind == ONCE) fits = fits && !*(const char **)at;
    if (option->kind == TIME) fits = fits && read_time(text, &seconds);
    if (option->kind == NUMBER) {
        long n = text ? strtol(text, &end, 10) : 0;
        fits = text && end != text && !*end && n >= option->least && n <= option->most;
        snprintf(range, sizeof range, " from %ld to %ld", option->least, option->most);
    }
    if (!fits)
        return tr_fail(TR_ERR_USAGE, "run: expected %s%s behind %s", expected[option->kind], range,
                       option->name);
    if (option->kind == TIME) *(double *)at = seconds;
    else *(const char **)at = text;
    return TR_OK;
}

/* The first of mpirun's words that is neither an option nor its value, which it would take for the program; NULL. Options
 * have one value at most, those of MCA parameters two. */
static const char *stray_word(char *const *word)
{
    int values = 0;
    for (; *word; word++) {
        const char *equals = strchr(*word, '=');
        struct tr_job_name name = {""};
        const struct tr_model_class *class;
        if (equals) snprintf(name.text, sizeof name.text, "%.*s", (int)(equals - *word), *word);
        if (**word == '-') values = strstr(*word, "mca") ? 2 : 1;
        else if (--values < 0 || tr_job_known_key(name.text, 0, &class)) return *word;
    }
    return NULL;
}

/* What is behind -- is for mpirun where there is a job already, else a program, its job and its settings. */
static int read_words(int argc, char **argv, struct run_options *o)
{
    o->mpirun = argv + argc;
    for (int i = 0; i < argc; i++) {
        char *word = argv[i];
        const struct option *option = find_option(word);
        bool divides = strcmp(word, "--") == 0;
        if (divides && (o->job || o->settings > 0)) {
            o->mpirun = argv + i + 1;
            break;
        }
        if (divides && !o->program && i + 1 < argc) {
            o->program = argv[++i];
        } else if (option) {
            i++;
            TR_TRY(take_value(option, argv[i], o)); /* argv is ended by NULL */
        } else if (strcmp(word, "--fresh") == 0) {
            o->fresh = true;
        } else if (strcmp(word, "--explain") == 0) {
            o->explain = true;
        } else if (*word == '-') {
            return tr_fail(TR_ERR_USAGE,
                           "run: unexpected %s: see trireme help run; options of mpirun go behind --", word);
        } else if (!o->job && o->settings == 0 && !tr_job_is_setting(word)) {
            o->job = word;
        } else {
            o->setting[o->settings++] = word;
        }
    }
    if (!o->job && o->settings == 0)
        return tr_fail(TR_ERR_USAGE, "run: expected JOB.yaml%s: see trireme help run",
                       o->program ? " behind the program" : "");
    const char *stray = stray_word(o->mpirun);
    if (stray)
        return tr_fail(TR_ERR_USAGE,
                       "run: unexpected %s behind --: what is there are options of mpirun and their values",
                       stray);
    if (o->limit < 2 * o->heartbeat)
        return tr_fail(TR_ERR_USAGE,
                       "run: --limit is to be at least twice --heartbeat: a beat may come late");
    return TR_OK;
}

/* Whether ranks are on other hosts, too: hosts are given, or an allocation of several. */
static bool is_everywhere(const struct run_options *o)
{
    static const char *const allocations[] = {"PBS_NODEFILE",
                                              "PE_HOSTFILE",
                                              "LSB_HOSTS",
                                              "LSB_DJOB_HOSTFILE",
                                              "OMPI_MCA_orte_default_hostfile",
                                              "PRTE_MCA_prte_default_hostfile"};
    if (o->hosts || o->hostfile) return true;
    for (char **word = o->mpirun; *word; word++)
        if (strstr(*word, "host") || strcmp(*word, "-H") == 0 || strstr(*word, "machinefile")) return true;
    for (size_t i = 0; i < sizeof allocations / sizeof *allocations; i++)
        if (getenv(allocations[i])) return true;
    return tr_number_in("SLURM_JOB_NUM_NODES", 1) > 1;
}

/* More ranks than cores on this host, which mpirun has to be told to allow. */
static bool is_crowded(const struct run_options *o)
{
    if (!o->ranks || atoi(o->ranks) <= tr_supervisor_cores() || is_everywhere(o)) return false;
    for (char **word = o->mpirun; *word; word++)
        if (strcasestr(*word, "oversubscribe")) return false;
    return true;
}

/* mpirun's name and options, the program, and train with its words: fills in what supervision says of them. */
static void write_command(const struct run_options *o, const char *self, const char **command,
                          struct tr_supervision *supervision)
{
    const char **to = command;
    const char *const given[][2] = {{"-n", o->ranks}, {"--host", o->hosts}, {"--hostfile", o->hostfile}};
    *to++ = "mpirun";
    for (size_t i = 0; i < sizeof given / sizeof *given; i++) {
        if (!given[i][1]) continue;
        *to++ = given[i][0];
        *to++ = given[i][1];
    }
    if (is_crowded(o)) *to++ = "--oversubscribe";
    for (char **word = o->mpirun; *word; word++) *to++ = *word;
    supervision->options = (size_t)(to - command);
    *to++ = o->program ? o->program : self;
    if (!o->program) *to++ = "train";
    if (o->job) *to++ = o->job;
    supervision->fresh = o->fresh ? (size_t)(to - command) : 0;
    if (o->fresh) *to++ = "--fresh";
    if (o->explain) *to++ = "--explain";
    for (int i = 0; i < o->settings; i++) *to++ = o->setting[i];
    *to = NULL;
    supervision->command = command;
}

/* A program of one's own may have a class of models of its own, whose keys only it knows. */
static int read_job(const struct run_options *o, tr_job **job)
{
    char *text = NULL;
    size_t length = 0;
    const char *path = o->job ? o->job : TR_NO_JOB_FILE;
    int status = tr_job_read_text(path, &text, &length);
    if (status == TR_OK)
        status = tr_job_parse_as(o->program ? TR_JOB_FOREIGN : TR_JOB_STRICT, NULL, text, length, path,
                                 o->settings, o->setting, job);
    free(text);
    return status;
}

/* What a run that is not started again has in memory. */
static void forget_memory(const tr_job *job)
{
    tr_memory_give_up(job->checkpoint.to, job->output);
    for (size_t i = 0; i < job->tasks; i++) forget_memory(job->task[i].job);
}

static int run(const struct run_options *o, int words)
{
    char self[PATH_MAX] = "";
    const char **command;
    tr_job *job;
    if (readlink("/proc/self/exe", self, sizeof self - 1) < 0)
        return tr_complain(tr_fail(TR_ERR_SYSTEM, "this program does not find itself"));
    /* what is wrong with the job is better said before mpirun is started */
    TR_TRY(tr_complain(read_job(o, &job)));
    struct tr_supervision supervision = {.output = job->output,
                                         .everywhere = is_everywhere(o),
                                         .heartbeat = o->heartbeat,
                                         .limit = o->limit,
                                         .max_restarts = atoi(o->restarts),
                                         .max_time = job->checkpoint.max_time,
                                         .log = o->log};
    int status = tr_complain(TR_NEW(&command, (size_t)words + 20));
    if (status == TR_OK) {
        write_command(o, self, command, &supervision);
        status = tr_supervise(&supervision);
        if (status != TR_ERR_STOPPED) forget_memory(job);
        tr_cache_clean(job->output); /* it is not started again */
        free(command);
    }
    tr_job_free(job);
    return status;
}

int tr_run_command(int argc, char **argv)
{
    struct run_options o = {.restarts = "5", .heartbeat = 1, .limit = 10};
    char *max_time = NULL, *plugin = NULL;
    int own = 0;
    while (own < argc && strcmp(argv[own], "--") != 0) own++;
    if (argc == 0 || tr_wants_help(own, argv)) {
        fputs(usage, argc == 0 ? stderr : stdout);
        return argc == 0 ? TR_ERR_USAGE : TR_OK;
    }
    if (tr_started_by_launcher())
        return tr_complain(
            tr_fail(TR_ERR_USAGE, "run: starts mpirun by itself, and is not to be started by it"));
    int status = TR_NEW(&o.setting, (size_t)argc + 2);
    if (status == TR_OK) status = read_words(argc, argv, &o);
    if (status == TR_OK && o.max_time) status = tr_format(&max_time, "checkpoint.max_time=%s", o.max_time);
    if (status == TR_OK && o.plugin) status = tr_format(&plugin, "model.plugin=%s", o.plugin);
    if (max_time) o.setting[o.settings++] = max_time;
    if (plugin) o.setting[o.settings++] = plugin;
    tr_complain(status);
    if (status == TR_OK) status = run(&o, argc);
    free(max_time);
    free(plugin);
    free(o.setting);
    return status;
}
