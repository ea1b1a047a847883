/* trireme run: training under a supervisor (src/supervisor). */
#define _GNU_SOURCE
#include "cli/cli.h"

#include <limits.h>
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
    "  --fresh, --max-time TIME, --explain   as of trireme train; the time is that of all starts together\n"
    "A failure that repeats three times in a row at the same clock, without a checkpoint in between, ends "
    "the job.\n"
    "So do errors that would come again: exit codes 64, 65, 66, 73, 76 and 78. SIGUSR1, SIGUSR2, SIGTERM "
    "and\n"
    "SIGINT are passed on to the ranks; a second SIGINT or SIGTERM ends them at once.\n";

/* What the words say. */
struct wishes {
    const char *program; /* of one's own; NULL: trireme train */
    const char *job, *ranks, *hosts, *hostfile, *log;
    long restarts;
    double heartbeat, limit;
    bool fresh;
    char *time;   /* --max-time as a setting; to be freed */
    char **train; /* further words of train */
    size_t trains;
    char **setting; /* those of them that are settings */
    int settings;
    char **mpirun; /* what is behind --, ended by NULL */
};

static int wrong(const char *word, const char *expected)
{
    return tr_fail(TR_ERR_USAGE, "run: expected %s behind %s", expected, word);
}

static int take_number(const char *name, const char *text, long least, long most, long *number)
{
    char *end = NULL;
    long n = text ? strtol(text, &end, 10) : 0;
    if (!text || end == text || *end || n < least || n > most) {
        char expected[64];
        snprintf(expected, sizeof expected, "a number from %ld to %ld", least, most);
        return wrong(name, expected);
    }
    *number = n;
    return TR_OK;
}

/* 500ms, 1s, 2min; a bare number counts seconds. */
static int take_time(const char *name, const char *text, double *seconds)
{
    const double least = 0.01, most = 86400;
    char *end = NULL;
    double all = text ? strtod(text, &end) : 0;
    bool bare = text && end != text && *end == '\0', known = bare || (text && tr_job_duration(text, &all));
    if (!known || !(all >= least && all <= most)) return wrong(name, "a time such as 500ms, 10s or 1min");
    *seconds = all;
    return TR_OK;
}

static int take_text(const char *name, const char *text, const char **value)
{
    if (!text) return wrong(name, "a word");
    *value = text;
    return TR_OK;
}

/* An option with a value: *found if it is one of these. */
static int take_option(struct wishes *w, const char *name, const char *value, bool *found)
{
    long ranks;
    *found = true;
    if (strcmp(name, "-n") == 0 || strcmp(name, "-np") == 0) {
        TR_TRY(take_number(name, value, 1, 1 << 20, &ranks));
        w->ranks = value;
        return TR_OK;
    }
    if (strcmp(name, "--max-restarts") == 0) return take_number(name, value, 0, 1000000, &w->restarts);
    if (strcmp(name, "--heartbeat") == 0) return take_time(name, value, &w->heartbeat);
    if (strcmp(name, "--limit") == 0) return take_time(name, value, &w->limit);
    if (strcmp(name, "--hosts") == 0) return take_text(name, value, &w->hosts);
    if (strcmp(name, "--hostfile") == 0) return take_text(name, value, &w->hostfile);
    if (strcmp(name, "--log") == 0) return take_text(name, value, &w->log);
    if (strcmp(name, "--max-time") == 0) {
        if (!value || w->time) return wrong(name, "a time, and once");
        return tr_format(&w->time, "checkpoint.max_time=%s", value);
    }
    *found = false;
    return TR_OK;
}

/* What is behind -- is for mpirun where there is a job already, else a program and its words. */
static int take_words(int argc, char **argv, struct wishes *w)
{
    for (int i = 0; i < argc; i++) {
        char *word = argv[i];
        bool found;
        if (strcmp(word, "--") == 0 && w->job) {
            w->mpirun = argv + i + 1;
            break;
        }
        if (strcmp(word, "--") == 0 && !w->program && i + 1 < argc) {
            w->program = argv[++i];
            continue;
        }
        TR_TRY(take_option(w, word, i + 1 < argc ? argv[i + 1] : NULL, &found));
        if (found) {
            i++;
        } else if (strcmp(word, "--fresh") == 0) {
            w->fresh = true;
        } else if (strcmp(word, "--explain") == 0) {
            w->train[w->trains++] = word;
        } else if (*word == '-') {
            return tr_fail(TR_ERR_USAGE,
                           "run: unexpected %s: see trireme help run; options of mpirun go behind --", word);
        } else if (!w->job) {
            w->job = word;
        } else {
            w->train[w->trains++] = w->setting[w->settings++] = word;
        }
    }
    if (w->time) w->train[w->trains++] = w->setting[w->settings++] = w->time;
    if (!w->job)
        return tr_fail(TR_ERR_USAGE, "run: expected JOB.yaml%s: see trireme help run",
                       w->program ? " behind the program" : "");
    if (w->limit < 2 * w->heartbeat)
        return tr_fail(TR_ERR_USAGE,
                       "run: --limit is to be at least twice --heartbeat: a beat may come late");
    return TR_OK;
}

/* ---- mpirun's words ---- */

static bool names_hosts(char *const words[])
{
    for (; words && *words; words++)
        if (strstr(*words, "host") || strcmp(*words, "-H") == 0 || strstr(*words, "machinefile")) return true;
    return false;
}

static bool speaks_of(char *const words[], const char *what)
{
    for (; words && *words; words++)
        if (strcasestr(*words, what)) return true;
    return false;
}

/* Hosts that are given, or an allocation of several. */
static bool is_everywhere(const struct wishes *w)
{
    static const char *const allocations[] = {"PBS_NODEFILE",
                                              "PE_HOSTFILE",
                                              "LSB_HOSTS",
                                              "LSB_DJOB_HOSTFILE",
                                              "OMPI_MCA_orte_default_hostfile",
                                              "PRTE_MCA_prte_default_hostfile"};
    if (w->hosts || w->hostfile || names_hosts(w->mpirun)) return true;
    const char *nodes = getenv("SLURM_JOB_NUM_NODES");
    bool several = nodes && atoi(nodes) > 1;
    for (size_t i = 0; i < sizeof allocations / sizeof *allocations; i++)
        several = several || getenv(allocations[i]);
    return several;
}

/* A word that nobody changes: exec() and its kin are older than const. */
static char *word(const char *text)
{
    return (char *)(uintptr_t)text;
}

/* mpirun's name and options, the program, and train with its words; *options and *fresh as of struct tr_supervision. */
static void write_command(const struct wishes *w, char *program, char **command, size_t *options,
                          size_t *fresh)
{
    char **to = command;
    *to++ = word("mpirun");
    if (w->ranks) {
        *to++ = word("-n");
        *to++ = word(w->ranks);
    }
    bool crowded = w->ranks && atoi(w->ranks) > tr_supervisor_cores();
    if (crowded && !is_everywhere(w) && !speaks_of(w->mpirun, "oversubscribe"))
        *to++ = word("--oversubscribe");
    const char *const hosts[][2] = {{"--host", w->hosts}, {"--hostfile", w->hostfile}};
    for (size_t i = 0; i < 2; i++) {
        if (!hosts[i][1]) continue;
        *to++ = word(hosts[i][0]);
        *to++ = word(hosts[i][1]);
    }
    for (char **more = w->mpirun; more && *more; more++) *to++ = *more;
    *options = (size_t)(to - command);
    *to++ = w->program ? word(w->program) : program;
    if (!w->program) *to++ = word("train");
    *to++ = word(w->job);
    *fresh = w->fresh ? (size_t)(to - command) : 0;
    if (w->fresh) *to++ = word("--fresh");
    for (size_t i = 0; i < w->trains; i++) *to++ = w->train[i];
    *to = NULL;
}

static int find_program(char path[PATH_MAX])
{
    ssize_t n = readlink("/proc/self/exe", path, PATH_MAX - 1);
    if (n < 0) return tr_fail(TR_ERR_SYSTEM, "this program does not find itself");
    path[n] = '\0';
    return TR_OK;
}

/* What a run that is not started again has in memory. */
static void forget_memory(const tr_job *job)
{
    tr_memory_give_up(job->checkpoint.to, job->output);
    for (size_t i = 0; i < job->tasks; i++) forget_memory(job->task[i].job);
}

static int run(const struct wishes *w, int words)
{
    char program[PATH_MAX], **command;
    tr_job *job;
    TR_TRY(tr_complain(find_program(program)));
    /* what is wrong with the job is better said before mpirun is started */
    TR_TRY(tr_complain(tr_job_read(w->job, w->settings, w->setting, &job)));
    struct tr_supervision wish = {.output = job->output,
                                  .everywhere = is_everywhere(w),
                                  .heartbeat = w->heartbeat,
                                  .limit = w->limit,
                                  .max_restarts = (int)w->restarts,
                                  .max_time = job->checkpoint.max_time,
                                  .log = w->log};
    int status = TR_NEW(&command, (size_t)words + 20);
    if (status == TR_OK) {
        write_command(w, program, command, &wish.options, &wish.fresh);
        wish.command = command;
        status = tr_supervise(&wish);
        if (status != TR_ERR_STOPPED) forget_memory(job);
        tr_cache_clean(job->output); /* it is not started again */
        free(command);
    } else {
        tr_complain(status);
    }
    tr_job_free(job);
    return status;
}

int tr_run_command(int argc, char **argv)
{
    struct wishes w = {.restarts = 5, .heartbeat = 1, .limit = 10};
    int own = 0;
    while (own < argc && strcmp(argv[own], "--") != 0) own++;
    if (argc == 0 || tr_wants_help(own, argv)) {
        fputs(usage, argc == 0 ? stderr : stdout);
        return argc == 0 ? TR_ERR_USAGE : TR_OK;
    }
    if (getenv("OMPI_COMM_WORLD_RANK") || getenv("PMIX_RANK"))
        return tr_complain(
            tr_fail(TR_ERR_USAGE, "run: starts mpirun by itself, and is not to be started by it"));
    int status = TR_NEW(&w.train, (size_t)argc + 2);
    if (status == TR_OK) status = TR_NEW(&w.setting, (size_t)argc + 2);
    if (status == TR_OK) status = take_words(argc, argv, &w);
    tr_complain(status);
    if (status == TR_OK) status = run(&w, argc);
    free(w.time);
    free(w.setting);
    free(w.train);
    return status;
}
