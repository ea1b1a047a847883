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

/* Of all files together. */
struct size {
    double text;     /* bytes, compressed files as they will be */
    double features; /* libsvm: the highest index of a sample: rare features stand early, too; csv: columns */
    double records;  /* csv: rows; ratings, docword: lines */
    double users, items;  /* ratings: about as many */
    double words, tokens; /* docword */
};

/* The beginning of a file, or its end. */
struct sample {
    char *text; /* ends with a newline and NUL */
    size_t n;
    double packing; /* bytes of text for one that is stored */
};

/* Whole lines of the first bytes of a file, compressed or not; none if it cannot be read. */
static int take_sample(const struct tr_file *file, struct sample *sample)
{
    enum { SAMPLE = 1 << 18 };
    *sample = (struct sample){.packing = 1};
    TR_TRY(TR_NEW(&sample->text, SAMPLE + 1));
    gzFile stream = gzopen(file->path, "rb");
    int n = stream ? gzread(stream, sample->text, SAMPLE) : 0;
    if (n > 0 && file->gzip)
        sample->packing = (double)n / fmax(1, fmin((double)gzoffset(stream), (double)file->size));
    if (stream) gzclose(stream);
    while (n == SAMPLE && sample->text[n - 1] != '\n' && memchr(sample->text, '\n', (size_t)n)) n--;
    sample->n = n > 0 ? (size_t)n : 0;
    sample->text[sample->n] = '\0';
    return TR_OK;
}

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

static double count_lines(const char *text)
{
    double lines = 0;
    for (; *text; lines++) {
        const char *newline = strchr(text, '\n');
        text = newline ? newline + 1 : text + strlen(text);
    }
    return fmax(lines, 1);
}

/* The first three fields of a line, if they are numbers. */
static int read_three(const char *line, double number[3])
{
    int n = 0;
    for (; n < 3; n++) {
        char *end;
        line += strspn(line, " \t,;:\"");
        number[n] = strtod(line, &end);
        if (end == line) break;
        line = end;
    }
    return n;
}

static const char *next_line(const char *line)
{
    const char *newline = strchr(line, '\n');
    return newline ? newline + 1 : line + strlen(line);
}

/* Ratings: what a sample tells of ids. Where users ascend there are as many more as there is more text; otherwise the
 * largest of a few thousand ids is not far from the largest of all. Ids as text are few beside the ratings. */
static void guess_ids(const struct sample *sample, double text, struct size *size)
{
    double lines = count_lines(sample->text), user = 0, item = 0, before = 0, three[3];
    bool ascends = true;
    for (const char *line = sample->text; *line; line = next_line(line)) {
        if (read_three(line, three) < 3) continue;
        ascends = ascends && three[0] >= before;
        before = three[0];
        user = fmax(user, three[0]);
        item = fmax(item, three[1]);
    }
    double records = lines * text / (double)sample->n;
    if (ascends) user *= text / (double)sample->n;
    size->users = fmax(size->users, fmin(user > 0 ? user : records / 20, records));
    size->items = fmax(size->items, fmin(item > 0 ? item : records / 50, records));
}

/* Docword: the header says it; how often words occur is seen in a sample. */
static void read_bag(const struct sample *sample, struct size *size)
{
    double header[3] = {0}, sum = 0, n = 0, three[3];
    const char *line = sample->text;
    for (int i = 0; i < 3; i++, line = next_line(line)) header[i] = strtod(line, NULL);
    for (; *line; line = next_line(line)) {
        if (read_three(line, three) < 3) continue;
        sum += three[2];
        n++;
    }
    size->words = header[1];
    size->records += header[2];
    size->tokens += header[2] * (n > 0 ? sum / n : 1);
}

static int add_file(const struct tr_file *file, int format, struct size *size)
{
    struct sample sample;
    TR_TRY(take_sample(file, &sample));
    double text = sample.packing * (double)file->size, lines = count_lines(sample.text);
    if (sample.n > 0) {
        size->text += text;
        if (format == TR_FORMAT_DOCWORD) read_bag(&sample, size);
        else size->records += lines * text / (double)sample.n;
        if (format == TR_FORMAT_RATINGS) guess_ids(&sample, text, size);
        if (format == TR_FORMAT_LIBSVM) size->features = fmax(size->features, highest_index(sample.text));
    }
    free(sample.text);
    return TR_OK;
}

static int add_files(const struct tr_job *job, const struct tr_files *files, int *format, struct size *size)
{
    struct tr_head *heads;
    enum tr_format found = TR_FORMAT_AUTO;
    if (*format == TR_FORMAT_AUTO) TR_TRY(tr_data_format(job, files, &found));
    if (*format == TR_FORMAT_AUTO) *format = (int)found;
    for (size_t i = 0; i < files->n; i++) TR_TRY(add_file(&files->file[i], *format, size));
    if (*format != TR_FORMAT_CSV) return TR_OK;
    TR_TRY(tr_heads_read(files, TR_FORMAT_CSV, job->data.header, &heads));
    size->features = (double)tr_csv_columns(files, heads, TR_LABEL_NONE);
    free(heads);
    return TR_OK;
}

/* The test data have the format of the training data. */
static int add_size(const struct tr_job *job, const struct tr_job_list *patterns, int *format,
                    struct size *size)
{
    struct tr_files files = {0};
    if (patterns->n == 0) return TR_OK;
    TR_TRY(tr_data_files(job, patterns, &files));
    int status = add_files(job, &files, format, size);
    tr_files_close(&files);
    return status;
}

/* ---- the arithmetic ---- */

struct memory {
    double worker, server; /* bytes of one rank in each role */
    double rank, node;     /* of the fullest */
};

/* What the ranks of one node take together; m->rank grows to the fullest of them. */
static double add_up_node(const tr_context *tr, int node, struct memory *m)
{
    const double program = 32e6; /* the program itself and MPI */
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

/* Linear models: with W workers and S servers, good to a factor of about one and a half, enough to see that a job cannot
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

static void estimate_linear(const tr_context *tr, const struct size *size, struct memory *m)
{
    double element = tr->job->model.dtype == TR_DTYPE_F32 ? 4 : 8;
    double text = size->text / tr_layout_workers(&tr->layout), keys = fmin(size->features, text / 9);
    m->worker = 0.6 * text + 3 * element * keys;
    m->server = server_bytes(tr, size, element, keys);
}

/* Rows, dense or sparse, and some copies of the centres. */
static void estimate_kmeans(const tr_context *tr, const struct size *size, int format, struct memory *m)
{
    double workers = tr_layout_workers(&tr->layout),
           centres = 4 * (double)tr->job->model.clusters * size->features;
    m->worker = (format == TR_FORMAT_CSV ? 4 * size->records * size->features : 0.6 * size->text) / workers +
                3 * centres;
    m->server = centres / tr->layout.servers;
}

/* Ratings once by user and once by item, which is about as much as reading takes, 20 bytes each; als has some more. And
 * factors: of this worker's users and of all items, with what changes them. */
static void estimate_mf(const tr_context *tr, const struct size *size, struct memory *m)
{
    double workers = tr_layout_workers(&tr->layout), row = 4 * (double)tr->job->model.rank;
    double each = tr->job->solve.method == TR_SOLVE_ALS ? 28 : 20;
    m->worker = each * size->records / workers + 2.5 * row * (size->users / workers + size->items);
    m->server = row * (size->users + size->items) / tr->layout.servers;
}

/* Words as they are read, 12 bytes for each of a document, or tokens with their topics; and the table of words and
 * topics, most of which are zeros that are not stored where there are fewer tokens than that. */
static void estimate_lda(const tr_context *tr, const struct size *size, struct memory *m)
{
    double workers = tr_layout_workers(&tr->layout);
    double table = fmin(4 * size->words * (double)tr->job->model.topics, 8 * size->tokens);
    m->worker = fmax(12 * size->records, 7 * size->tokens) / workers + table;
    m->server = 0.5 * table / tr->layout.servers;
}

static struct memory estimate(const tr_context *tr, const struct size *size, int format)
{
    const struct tr_layout *l = &tr->layout;
    struct memory m = {0};
    switch (tr->job->model.type) {
    case TR_MODEL_KMEANS: estimate_kmeans(tr, size, format, &m); break;
    case TR_MODEL_MF: estimate_mf(tr, size, &m); break;
    case TR_MODEL_LDA: estimate_lda(tr, size, &m); break;
    default: estimate_linear(tr, size, &m); break;
    }
    if (tr->job->data.partition == TR_DATA_REPLICATED) m.worker *= l->group_size;
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
    int format = TR_FORMAT_AUTO;
    TR_TRY(add_size(job, &job->data.train, &format, &size));
    TR_TRY(add_size(job, &job->data.test, &format, &size));
    if (job->data.features > 0) size.features = (double)job->data.features;
    struct memory m = estimate(tr, &size, format);
    double present = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
    tr_say(tr, "memory:        about %s a rank, %s a node of %s", tr_bytes(m.rank).text,
           tr_bytes(m.node).text, tr_bytes(present).text);
    if (m.node > present)
        tr_say(tr, "memory:        this may not fit: use more nodes, or fewer files in data.train");
    return TR_OK;
}
