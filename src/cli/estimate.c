#define _GNU_SOURCE
#include "cli/estimate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include "data/dataset.h"
#include "data/store.h"
#include "trireme/model.h"
#include "monitor/display.h"

/* ---- what is known of the data before they are read ---- */

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
static void guess_ids(const struct sample *sample, double text, tr_data_size *size)
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
static void read_bag(const struct sample *sample, tr_data_size *size)
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

static int add_file(const struct tr_file *file, int format, tr_data_size *size)
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

static int add_files(const struct tr_job *job, const struct tr_files *files, int *format, tr_data_size *size)
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

/* The test data have the format of the training data, and may be a part of them. */
static int add_size(const struct tr_job *job, bool test, int *format, tr_data_size *size)
{
    struct tr_files files = {0};
    double share;
    TR_TRY(tr_job_test_share(job, &share));
    if (test && (job->data.test.n == 0 || share > 0)) return TR_OK;
    TR_TRY(tr_data_files(job, test, &files));
    int status = add_files(job, &files, format, size);
    tr_files_close(&files);
    return status;
}

/* ---- the arithmetic ---- */

struct memory {
    tr_memory role;    /* bytes of one rank in each */
    double rank, node; /* of the fullest */
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
        if (roles & TR_SLAVE) rank += m->role.worker;
        if (roles & TR_SERVER) rank += m->role.server;
        m->rank = fmax(m->rank, rank);
        sum += rank;
    }
    return sum;
}

static struct memory estimate(const tr_context *tr, const tr_data_size *size)
{
    const struct tr_layout *l = &tr->layout;
    struct memory m = {0};
    if (tr->job->class->memory) tr->job->class->memory(tr->job, tr->job->options, size, &m.role);
    bool copies = tr->job->data.partition == TR_DATA_REPLICATED && !tr_store_shares(tr);
    if (copies) m.role.worker *= l->group_size;
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
    tr_data_size size = {.workers = tr_layout_workers(&tr->layout), .servers = tr->layout.servers};
    int format = TR_FORMAT_AUTO;
    TR_TRY(add_size(job, false, &format, &size));
    TR_TRY(add_size(job, true, &format, &size));
    if (job->data.features > 0) size.features = (double)job->data.features;
    static const char *const words[] = {"auto", "libsvm", "csv", "ratings", "docword"};
    size.format = words[format];
    struct memory m = estimate(tr, &size);
    double present = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
    tr_say(tr, "memory:        about %s a rank, %s a node of %s", tr_bytes(m.rank).text,
           tr_bytes(m.node).text, tr_bytes(present).text);
    if (m.node > present)
        tr_say(tr, "memory:        this may not fit: use more nodes, or fewer files in data.train");
    return TR_OK;
}
