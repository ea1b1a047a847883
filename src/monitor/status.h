/* status.json: what the job is doing at any moment, and how it ended. */
#ifndef TR_MONITOR_STATUS_H
#define TR_MONITOR_STATUS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "monitor/monitor.h"

/* What a signal that ends the process leaves as the file: a text for each of two signals. */
enum { TR_LAST_WORDS = 2 };
struct tr_last_words {
    const char *path, *temporary;
    char *text[TR_LAST_WORDS];
    size_t length[TR_LAST_WORDS];
};

/* It stays where it is between tr_status_guard() and tr_status_close(). */
struct tr_status_file {
    char *folder, *path, *temporary;
    char *name; /* of the job */
    char host[256];
    char started[32];
    double begin;
    double written; /* when it was tried last */
    bool stale;     /* … in vain */
    int guard;      /* which of a process's last words are its own, from 1 on; 0: none */
    struct tr_last_words words[2];

    enum tr_monitor_state state;
    double epoch, objective, gap; /* NaN: none yet */
    double left;                  /* seconds, of training; NaN: not known */
    uint64_t rows;                /* of the training data; 0: not known */
    int64_t clock;
    double loaded;                       /* part of the files being read, 0 to 1; NaN before */
    uint64_t continued;                  /* how often the run went on from a checkpoint */
    int code;                            /* at the end */
    const char *error;                   /* at the end, or NULL */
    void (*more)(FILE *file, void *who); /* writes members of its own, each with a comma behind it; or NULL */
    void *who;
};

/* What the status.json of an earlier run says. */
struct tr_status_seen {
    bool any, done;
    uint64_t continued, pid; /* pid: of rank 0 */
    double objective, epoch; /* NaN: none */
};

/* Where it cannot be read there is none. */
struct tr_status_seen tr_status_look(const char *folder);

/* What a run that is done has come to, as its summary.json says: its metric on data.test, or else its objective. */
struct tr_outcome_seen {
    const char *name; /* "accuracy" */
    double value;     /* NaN: none is there */
    bool ascends;     /* more is better */
    double seconds;   /* of the whole run */
};
struct tr_outcome_seen tr_outcome_look(const char *folder);

/* Nothing is written yet. Free with tr_status_close(). */
int tr_status_open(struct tr_status_file *status, const char *folder, const char *name);
void tr_status_close(struct tr_status_file *status);

int tr_status_write(struct tr_status_file *status);

/* Whether enough time has gone by to write it again. */
bool tr_status_due(const struct tr_status_file *status);

/* From now on SIGTERM and SIGINT, where nobody else handles them, write that they ended the job before they
 * do. Two files of a process can have that: of a task, and of the job that it is one of. */
void tr_status_guard(struct tr_status_file *status);

#endif
