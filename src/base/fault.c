#define _GNU_SOURCE
#include "base/fault.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"

/* ---- rules ---- */

struct action_name {
    const char *name;
    enum tr_fault_action action;
    long number; /* -1: takes none */
    enum tr_fault pretend;
};

static const struct action_name actions[] = {
    {"kill", TR_FAULT_KILL, -1, TR_FAULT_NONE},    {"segv", TR_FAULT_SEGV, -1, TR_FAULT_NONE},
    {"exit", TR_FAULT_EXIT, 70, TR_FAULT_NONE},    {"stop", TR_FAULT_STOP, -1, TR_FAULT_NONE},
    {"delay", TR_FAULT_DELAY, 10, TR_FAULT_NONE},  {"enospc", TR_FAULT_PRETEND, -1, TR_FAULT_ENOSPC},
    {"eio", TR_FAULT_PRETEND, -1, TR_FAULT_EIO},   {"short", TR_FAULT_PRETEND, -1, TR_FAULT_SHORT},
    {"hang", TR_FAULT_PRETEND, -1, TR_FAULT_HANG},
};

static int wrong(const char *rule, const char *expected)
{
    return tr_fail(TR_ERR_USAGE, "TRIREME_FAULT: %s: expected %s", rule, expected);
}

/* A whole number from 0 on that is all of the text. */
static bool read_number(const char *text, long *number)
{
    char *end;
    *number = strtol(text, &end, 10);
    return end != text && *end == '\0' && *number >= 0;
}

static int read_action(const char *rule, char *text, struct tr_fault_rule *r)
{
    char *number = strchr(text, '=');
    if (number) *number++ = '\0';
    for (size_t i = 0; i < sizeof actions / sizeof *actions; i++) {
        const struct action_name *a = &actions[i];
        if (strcmp(a->name, text) != 0) continue;
        r->action = a->action;
        r->pretend = a->pretend;
        r->number = a->number;
        if (number && (a->number < 0 || !read_number(number, &r->number))) break;
        return TR_OK;
    }
    return wrong(rule, "kill, segv, exit[=code], stop, delay[=milliseconds], enospc, eio, short or hang");
}

static int read_chance(const char *rule, const char *text, struct tr_fault_rule *r)
{
    char *end;
    long visit;
    if (*text == '#') {
        if (!read_number(text + 1, &visit) || visit == 0) return wrong(rule, "#N, a visit from 1 on");
        r->at = (uint64_t)visit;
        return TR_OK;
    }
    r->chance = strtod(text, &end);
    bool fits = end != text && *end == '\0' && r->chance >= 0 && r->chance <= 1;
    return fits ? TR_OK : wrong(rule, "a chance from 0 to 1, or #N");
}

/* POINT[=ACTION][@RANK], which it takes apart. */
static int read_place(const char *rule, char *text, struct tr_fault_rule *r)
{
    char *rank = strchr(text, '@'), *action;
    if (rank) *rank++ = '\0';
    if (rank && !read_number(rank, &r->rank)) return wrong(rule, "a rank behind @");
    action = strchr(text, '=');
    if (action) *action++ = '\0';
    if (*text == '\0' || strlen(text) >= sizeof r->point) return wrong(rule, "a point in front");
    strcpy(r->point, text);
    return action ? read_action(rule, action, r) : TR_OK;
}

static int read_rule(const char *rule, char *text, struct tr_fault_rule *r)
{
    char *chance, *seed, *attempt, *rest = text;
    long number = 0;
    r->action = TR_FAULT_KILL;
    r->pretend = TR_FAULT_NONE;
    r->rank = r->attempt = -1;
    char *place = strsep(&rest, ":");
    chance = strsep(&rest, ":");
    seed = strsep(&rest, ":");
    attempt = strsep(&rest, ":");
    TR_TRY(read_place(rule, place, r));
    if (!chance) return wrong(rule, "POINT[=ACTION][@RANK]:CHANCE[:SEED[:ATTEMPT]]");
    TR_TRY(read_chance(rule, chance, r));
    if (seed && !read_number(seed, &number)) return wrong(rule, "a number as seed");
    r->seed = (uint64_t)number;
    if (attempt && !read_number(attempt, &r->attempt)) return wrong(rule, "a number of an attempt");
    return rest ? wrong(rule, "nothing behind the attempt") : TR_OK;
}

int tr_faults_parse(const char *text, struct tr_faults *faults)
{
    char *copy, *rest, *rule;
    memset(faults, 0, sizeof *faults);
    TR_TRY(tr_copy_string(text, &copy));
    rest = copy;
    int status = TR_OK;
    while (status == TR_OK && (rule = strsep(&rest, ",")) != NULL) {
        char whole[256];
        if (*rule == '\0') continue;
        snprintf(whole, sizeof whole, "%s", rule);
        status = faults->n == TR_FAULT_RULES ? wrong(whole, "at most 16 rules")
                                             : read_rule(whole, rule, &faults->rule[faults->n]);
        faults->n += status == TR_OK;
    }
    free(copy);
    return status;
}

void tr_faults_settle(struct tr_faults *faults, long rank, long attempt)
{
    for (size_t i = 0; i < faults->n; i++) {
        struct tr_fault_rule *r = &faults->rule[i];
        bool meant = (r->rank < 0 || r->rank == rank) && (r->attempt < 0 || r->attempt == attempt);
        if (!meant) r->point[0] = '\0'; /* which nobody visits */
        r->seed = tr_mix(tr_mix(r->seed ^ (uint64_t)rank) ^ (uint64_t)attempt);
    }
}

/* Uniform in [0, 1), and a function of rule and visit alone: threads may come in any order. */
static double draw(const struct tr_fault_rule *r, uint64_t visit)
{
    return (double)(tr_mix(tr_mix(r->seed) ^ visit) >> 11) * 0x1p-53;
}

const struct tr_fault_rule *tr_faults_visit(struct tr_faults *faults, const char *point)
{
    const struct tr_fault_rule *found = NULL;
    for (size_t i = 0; i < faults->n; i++) {
        struct tr_fault_rule *r = &faults->rule[i];
        if (strcmp(r->point, point) != 0) continue;
        uint64_t visit = atomic_fetch_add(&r->visits, 1) + 1;
        bool strikes = r->at ? visit == r->at : draw(r, visit) < r->chance;
        if (strikes && !found) found = r;
    }
    return found;
}

/* ---- those of the environment ---- */

static struct tr_faults planned; /* a process has one environment */
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void read_environment(void)
{
    const char *text = getenv("TRIREME_FAULT");
    if (!text) return;
    if (tr_faults_parse(text, &planned) != TR_OK) {
        fprintf(stderr, "trireme: error: %s\n", tr_error_text());
        _exit(TR_ERR_USAGE);
    }
    long rank = tr_number_in("OMPI_COMM_WORLD_RANK", tr_number_in("PMIX_RANK", 0));
    tr_faults_settle(&planned, rank, tr_number_in("TRIREME_ATTEMPT", 0));
}

static enum tr_fault strike(const struct tr_fault_rule *r)
{
    switch (r->action) {
    case TR_FAULT_KILL: raise(SIGKILL); break;
    case TR_FAULT_SEGV:
        signal(SIGSEGV, SIG_DFL);
        raise(SIGSEGV);
        break;
    case TR_FAULT_EXIT: _exit((int)r->number);
    case TR_FAULT_STOP: raise(SIGSTOP); break;
    case TR_FAULT_DELAY: tr_sleep((double)r->number * 1e-3); break;
    case TR_FAULT_PRETEND: break;
    }
    return r->pretend;
}

enum tr_fault tr_fault_at(const char *point)
{
    pthread_once(&once, read_environment);
    if (planned.n == 0) return TR_FAULT_NONE;
    const struct tr_fault_rule *r = tr_faults_visit(&planned, point);
    return r ? strike(r) : TR_FAULT_NONE;
}
