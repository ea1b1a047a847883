#define _GNU_SOURCE
#include "cli/estimate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include "data/dataset.h"
#include "monitor/display.h"

/* ---- what is known of the data before they are read ---- */

struct size {
    double text;     /* bytes, compressed files as they will be */
    double features; /* the highest index of a sample: rare features stand early, too */
};

/* The largest number before a colon. */
static double highest_index(const char *text)
{
    double highest = 0;
    for (const char *colon = text; (colon = strchr(colon, ':')); colon++) {
        const char *digit = colon;
        while (digit > text && digit[-1] >= '0' && digit[-1] <= '9') digit--;
        highest = fmax(highest, strtod(digit, NULL));
    }
    return highest;
}

/* The highest index among the first lines of a file, compressed or not; 0 if there is none. */
static double sample_features(const char *path)
{
    enum { SAMPLE = 1 << 18 };
    double highest = 0;
    char *text = malloc(SAMPLE + 1);
    gzFile file = text ? gzopen(path, "rb") : NULL;
    int n = file ? gzread(file, text, SAMPLE) : 0;
    if (n > 0) {
        text[n] = '\0';
        highest = highest_index(text);
    }
    if (file) gzclose(file);
    free(text);
    return highest;
}

static int add_size(const struct tr_job *job, const struct tr_job_list *patterns, struct size *size)
{
    struct tr_files files = {0};
    if (patterns->n == 0) return TR_OK;
    TR_TRY(tr_data_files(job, patterns, &files));
    for (size_t i = 0; i < files.n; i++)
        size->text += (files.file[i].gzip ? 4.0 : 1.0) * (double)files.file[i].size;
    size->features = fmax(size->features, sample_features(files.file[0].path));
    tr_files_close(&files);
    return TR_OK;
}

/* ---- the arithmetic ---- */

struct memory {
    double worker, server; /* bytes of one rank in each role */
    double rank, node;     /* of the fullest */
};

/* What the ranks of one node take together; m->rank grows to the fullest of them. */
static double add_up_node(const tr_context *tr, int node, struct memory *m)
{
    const double program = 40e6; /* the program itself and MPI */
    double sum = 0;
    for (int r = 0; r < tr->layout.ranks; r++) {
        if (tr->node_of[r] != node) continue;
        unsigned roles = tr->layout.place[r].roles;
        double rank = program;
        if (roles & TR_SLAVE) rank += m->worker;
        if (roles & TR_SERVER) rank += m->server;
        m->rank = fmax(m->rank, rank);
        sum += rank;
    }
    return sum;
}

/* With W workers and S servers, good to a factor of about one and a half, enough to see that a job cannot
 * fit:
 *
 * A worker has its rows, 0.6 × text / W: a non-zero takes 9 bytes or more as text and 8 in memory, 4 if all
 * values are 1, which is usual for wide data; what is kept for each row is in it. And its view, 3 × element
 * for each key (values, deltas, messages on their way): no more keys than features, nor than non-zeros in its
 * text.
 *
 * A server has its share, element × features / S; half as much again where SGD counts rows. S is table.servers
 * where that is fewer.
 *
 * With hash storage it has only keys that are used, no more than there are in all the text, but about 20 bytes more for
 * each; and of each worker's view a list, 12 bytes a key. */
static double server_bytes(const tr_context *tr, const struct size *size, double element, double view_keys)
{
    const tr_job *job = tr->job;
    double servers = job->table.servers > 0 ? (double)job->table.servers : tr->layout.servers;
    double tables = job->solve.method == TR_SOLVE_SGD ? 1.5 : 1;
    if (job->table.storage == TR_STORAGE_DENSE) return tables * element * size->features / servers;
    double used = fmin(size->features, size->text / 9),
           lists = 12 * view_keys * tr_layout_workers(&tr->layout);
    return (tables * (element + 20) * used + lists) / servers;
}

static struct memory estimate(const tr_context *tr, const struct size *size)
{
    const struct tr_layout *l = &tr->layout;
    double element = tr->job->model.dtype == TR_DTYPE_F32 ? 4 : 8;
    double text = size->text / tr_layout_workers(l), keys = fmin(size->features, text / 9);
    struct memory m = {.worker = 0.6 * text + 3 * element * keys,
                       .server = server_bytes(tr, size, element, keys)};
    for (int node = 0; node < l->nodes; node++) m.node = fmax(m.node, add_up_node(tr, node, &m));
    return m;
}

int tr_say_estimate(tr_context *tr)
{
    if (tr->rank != 0) return TR_OK;
    const tr_job *job = tr->job;
    if (job->data.train.n == 0)
        return tr_fail(TR_ERR_CONFIG, "%s: data.train is missing: the files to learn from",
                       tr_job_where(job, "data.train"));
    struct size size = {0};
    TR_TRY(add_size(job, &job->data.train, &size));
    TR_TRY(add_size(job, &job->data.test, &size));
    if (job->data.features > 0) size.features = (double)job->data.features;
    struct memory m = estimate(tr, &size);
    double present = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
    tr_say(tr, "memory:        about %s a rank, %s a node of %s", tr_bytes(m.rank).text,
           tr_bytes(m.node).text, tr_bytes(present).text);
    if (m.node > present)
        tr_say(tr, "memory:        this may not fit: use more nodes, or fewer files in data.train");
    return TR_OK;
}
