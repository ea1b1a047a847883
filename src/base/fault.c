#define _GNU_SOURCE
#include "base/fault.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"

/* ---- rules ---- */

/* Actions by enum tr_fault. number: default of the number behind =; -1: the action has no number. */
static const struct {
    const char *name;
    long number;
} actions[] = {
    [TR_FAULT_NONE] = {"", -1},       [TR_FAULT_ENOSPC] = {"enospc", -1}, [TR_FAULT_EIO] = {"eio", -1},
    [TR_FAULT_SHORT] = {"short", -1}, [TR_FAULT_HANG] = {"hang", -1},     [TR_FAULT_KILL] = {"kill", -1},
    [TR_FAULT_SEGV] = {"segv", -1},   [TR_FAULT_EXIT] = {"exit", 70},     [TR_FAULT_STOP] = {"stop", -1},
    [TR_FAULT_DELAY] = {"delay", 10}};

static int fault_wrong_rule(const char *rule, const char *expected)
{
    return tr_fail(TR_ERR_USAGE, "TRIREME_FAULT: %s: expected %s", rule, expected);
}

/* Parses a text that is an integer of at least 0; returns false for other texts. */
static bool fault_read_number(const char *text, long *number)
{
    char *end;
    *number = strtol(text, &end, 10);
    return end != text && *end == '\0' && *number >= 0;
}

int tr_faults_parse(const char *text, struct tr_faults *faults)
{
    TR_FREED char *copy = NULL;
    memset(faults, 0, sizeof *faults);
    TR_TRY(tr_copy_string(text, &copy));
    for (char *rest = copy, *next; (next = strsep(&rest, ",")) != NULL;) {
        if (*next == '\0') continue;
        if (faults->n == TR_FAULT_RULES) return fault_wrong_rule(next, "at most 16 rules");
        struct tr_fault_rule *r = &faults->rule[faults->n];
        char rule[256], *end = NULL;
        long seed = 0, visit = 0;
        snprintf(rule, sizeof rule, "%s", next);
        char *rank = strsep(&next, ":"), *chance = strsep(&next, ":"), *seed_text = strsep(&next, ":");
        char *attempt = strsep(&next, ":"), *action = strsep(&rank, "@"), *point = strsep(&action, "=");
        *r = (struct tr_fault_rule){.action = TR_FAULT_KILL, .rank = -1, .attempt = -1};
        if (rank && !fault_read_number(rank, &r->rank)) return fault_wrong_rule(rule, "a rank behind @");
        if (*point == '\0' || strlen(point) >= sizeof r->point)
            return fault_wrong_rule(rule, "a point in front");
        strcpy(r->point, point);
        if (action) {
            const char *name = strsep(&action, "=");
            int i = TR_FAULT_ENOSPC;
            while (i <= TR_FAULT_DELAY && strcmp(actions[i].name, name) != 0) i++;
            r->action = (enum tr_fault)i;
            r->number = i <= TR_FAULT_DELAY ? actions[i].number : -1;
            if (i > TR_FAULT_DELAY || (action && (r->number < 0 || !fault_read_number(action, &r->number))))
                return fault_wrong_rule(
                    rule, "kill, segv, exit[=code], stop, delay[=milliseconds], enospc, eio, short or hang");
        }
        if (!chance) return fault_wrong_rule(rule, "POINT[=ACTION][@RANK]:CHANCE[:SEED[:ATTEMPT]]");
        if (*chance == '#') {
            if (!fault_read_number(chance + 1, &visit) || visit == 0)
                return fault_wrong_rule(rule, "#N, a visit from 1 on");
        } else {
            r->chance = strtod(chance, &end);
            if (end == chance || *end != '\0' || !(r->chance >= 0 && r->chance <= 1))
                return fault_wrong_rule(rule, "a chance from 0 to 1, or #N");
        }
        if (seed_text && !fault_read_number(seed_text, &seed))
            return fault_wrong_rule(rule, "a number as seed");
        if (attempt && !fault_read_number(attempt, &r->attempt))
            return fault_wrong_rule(rule, "a number of an attempt");
        r->at = (uint64_t)visit;
        r->seed = (uint64_t)seed;
        if (next) return fault_wrong_rule(rule, "nothing behind the attempt");
        faults->n++;
    }
    return TR_OK;
}

void tr_faults_settle(struct tr_faults *faults, long rank, long attempt)
{
    for (size_t i = 0; i < faults->n; i++) {
        struct tr_fault_rule *r = &faults->rule[i];
        bool meant = (r->rank < 0 || r->rank == rank) && (r->attempt < 0 || r->attempt == attempt);
        if (!meant) r->point[0] = '\0'; /* disables the rule, because no point has this name */
        r->seed = tr_mix(tr_mix(r->seed ^ (uint64_t)rank) ^ (uint64_t)attempt);
    }
}

const struct tr_fault_rule *tr_faults_visit(struct tr_faults *faults, const char *point)
{
    const struct tr_fault_rule *found = NULL;
    for (size_t i = 0; i < faults->n; i++) {
        struct tr_fault_rule *r = &faults->rule[i];
        if (strcmp(r->point, point) != 0) continue;
        uint64_t visit = atomic_fetch_add(&r->visits, 1) + 1;
        /* uniform in [0, 1); depends on rule and visit only, so that the order of threads does not matter */
        double drawn = (double)(tr_mix(tr_mix(r->seed) ^ visit) >> 11) * 0x1p-53;
        bool strikes = r->at ? visit == r->at : drawn < r->chance;
        if (strikes && !found) found = r;
    }
    return found;
}

/* ---- rules of the environment ---- */

static struct tr_faults planned; /* rules that apply to this process; global, as the environment is */
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* Reads the rules of the environment. */
static void fault_read_environment(void)
{
    const char *text = getenv("TRIREME_FAULT");
    if (!text) return;
    if (tr_faults_parse(text, &planned) != TR_OK) {
        tr_printf(stderr, "trireme: error: %s\n", tr_error_text());
        _exit(TR_ERR_USAGE);
    }
    long rank = tr_number_in("OMPI_COMM_WORLD_RANK", tr_number_in("PMIX_RANK", 0));
    tr_faults_settle(&planned, rank, tr_number_in("TRIREME_ATTEMPT", 0));
}

enum tr_fault tr_fault_at(const char *point)
{
    pthread_once(&once, fault_read_environment);
    if (planned.n == 0) return TR_FAULT_NONE;
    const struct tr_fault_rule *r = tr_faults_visit(&planned, point);
    switch (r ? r->action : TR_FAULT_NONE) {
    case TR_FAULT_KILL: raise(SIGKILL); break;
    case TR_FAULT_SEGV:
        signal(SIGSEGV, SIG_DFL);
        raise(SIGSEGV);
        break;
    case TR_FAULT_EXIT: _exit((int)r->number);
    case TR_FAULT_STOP: raise(SIGSTOP); break;
    case TR_FAULT_DELAY: tr_sleep((double)r->number * 1e-3); break;
    default: return r ? r->action : TR_FAULT_NONE;
    }
    return TR_FAULT_NONE;
}
