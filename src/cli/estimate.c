#define _GNU_SOURCE
#include "cli/estimate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "data/dataset.h"
#include "data/source.h"
#include "data/part.h"
#include "trireme/collective.h"
#include "trireme/model.h"
#include "monitor/display.h"

/* ---- what is known of the data before they are read ---- */

/* Whole lines of the beginning of a file, and of its middle where that can be read for itself. */
struct sample {
    char *text; /* ends with a newline and NUL */
    size_t n;
    double packing; /* bytes of text for one that is stored */
    double end;     /* of the file's text that lies before the last line here, and this line */
};

/* Adds whole lines from the offset on; none if they cannot be read. */
static void read_lines(const struct tr_file *file, uint64_t offset, size_t most, struct sample *sample)
{
    struct tr_source source;
    char *text = sample->text + sample->n;
    size_t n = 0, got = 1, begin = 0;
    int status = tr_source_open(&source, file, offset);
    for (; status == TR_OK && got > 0 && n < most; n += got) {
        got = 0;
        status = tr_source_read(&source, text + n, most - n, &got);
    }
    if (n > 0 && file->packing)
        sample->packing = (double)n / fmax(1, fmin((double)source.stored, (double)file->size));
    tr_source_close(&source);
    while (n == most && text[n - 1] != '\n' && memchr(text, '\n', n)) n--;
    const char *newline = offset > 0 ? memchr(text, '\n', n) : NULL; /* of a line that begins before it */
    if (offset > 0) begin = newline ? (size_t)(newline - text) + 1 : n;
    memmove(text, text + begin, n - begin);
    sample->n += n - begin;
    if (n > begin) sample->end = (double)(offset + n);
}

static int take_sample(const struct tr_file *file, struct sample *sample)
{
    enum { SAMPLE = 1 << 17 };
    *sample = (struct sample){.packing = 1};
    TR_TRY(TR_NEW(&sample->text, 2 * SAMPLE + 1));
    bool halves = !file->packing && file->size > 4 * SAMPLE;
    read_lines(file, 0, halves ? SAMPLE : 2 * SAMPLE, sample);
    if (halves) read_lines(file, file->size / 2, SAMPLE, sample);
    sample->text[sample->n] = '\0';
    return TR_OK;
}

/* The largest number before a colon; beyond TR_LIBSVM_MAX_INDEX it is an error that reading will tell. */
static double highest_index(const char *text)
{
    double highest = 0;
    for (const char *colon = text; (colon = strchr(colon, ':')); colon++) {
        const char *digit = colon;
        while (digit > text && digit[-1] >= '0' && digit[-1] <= '9') digit--;
        double index = strtod(digit, NULL);
        if (index <= TR_LIBSVM_MAX_INDEX) highest = fmax(highest, index);
    }
    return highest;
}

/* Different numbers behind the first colons, as they are written; up to 256. */
static double count_values(const char *text)
{
    enum { MOST = 256, COLONS = 4096 };
    const char *value[MOST], *colon = text;
    size_t n = 0;
    for (int i = 0; n < MOST && i < COLONS && (colon = strchr(colon, ':')); i++, colon++) {
        size_t length = strcspn(colon + 1, " \t\r\n") + 1, at = 0;
        while (at < n && strncmp(value[at], colon + 1, length) != 0) at++;
        if (at == n) value[n++] = colon + 1;
    }
    return (double)n;
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
    if (ascends) user *= fmax(1, text / sample->end);
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
        if (format == TR_FORMAT_LIBSVM) size->values = fmax(size->values, count_values(sample.text));
    }
    free(sample.text);
    return TR_OK;
}

/* HDF5 says it; lists of non-zeros are about as much text. */
static int add_tables(const struct tr_files *files, int format, tr_data_size *size, bool *full)
{
    struct tr_head *heads;
    const double pair = 12;
    TR_TRY(tr_heads_read(files, (enum tr_format)format, TR_HEADER_AUTO, &heads));
    for (size_t i = 0; i < files->n; i++) {
        size->records += (double)heads[i].rows;
        size->features = fmax(size->features, (double)heads[i].fields);
        size->text += pair * (double)heads[i].nonzeros;
        *full |= heads[i].full;
    }
    size->values = 256;
    free(heads);
    return TR_OK;
}

static int add_files(const struct tr_job *job, const struct tr_files *files, int *format, tr_data_size *size)
{
    struct tr_head *heads;
    enum tr_format found = TR_FORMAT_AUTO;
    if (*format == TR_FORMAT_AUTO) TR_TRY(tr_data_format(job, files, &found));
    if (*format == TR_FORMAT_AUTO) *format = (int)found;
    bool full = false;
    if (*format == TR_FORMAT_HDF5 || files->file[0].hdf5) {
        TR_TRY(add_tables(files, *format, size, &full));
        size->format = full ? "csv" : "libsvm";
        return TR_OK;
    }
    size->format = tr_format_word((enum tr_format) * format);
    for (size_t i = 0; i < files->n; i++) TR_TRY(add_file(&files->file[i], *format, size));
    if (*format != TR_FORMAT_CSV) return TR_OK;
    TR_TRY(tr_heads_read(files, TR_FORMAT_CSV, job->data.header, &heads));
    size->features = (double)tr_csv_columns(files, heads, TR_LABEL_NONE) + (double)job->data.hash;
    free(heads);
    return TR_OK;
}

/* The test data have the format of the training data, and may be a part of them. */
static int add_size(const struct tr_job *job, bool test, int *format, tr_data_size *size)
{
    struct tr_files files = {0};
    struct tr_job_held_out held;
    TR_TRY(tr_job_held_out(job, &held));
    if (test && (job->data.test.n == 0 || held.to > 0)) return TR_OK;
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

struct ranks {
    int all, workers, servers; /* a rank may be both */
};

static struct ranks count_node(const tr_context *tr, int node)
{
    struct ranks n = {0};
    for (int r = 0; r < tr->layout.ranks; r++) {
        if (tr->node_of[r] != node) continue;
        n.all++;
        n.workers += (tr->layout.place[r].roles & TR_SLAVE) != 0;
        n.servers += (tr->layout.place[r].roles & TR_SERVER) != 0;
    }
    return n;
}

/* What the ranks of one node take together, where what they share counts once. In what one of them takes all counts that it
 * uses, as the system has it; m->rank grows to the fullest of them. */
static double add_up_node(const tr_context *tr, int node, struct memory *m)
{
    const double program = 32e6,
                 libraries = 20e6; /* the program itself and MPI, and what processes share of it */
    bool replicated = tr->job->data.partition == TR_DATA_REPLICATED, once = replicated && tr_data_shares(tr);
    struct ranks n = count_node(tr, node);
    double read = m->role.rows * (replicated ? tr->layout.group_size : 1), held = once ? m->role.rows : read,
           shared = n.servers * m->role.server + (n.workers > 0 ? m->role.node : 0),
           rank = n.workers > 0   ? read + m->role.worker + shared
                  : n.servers > 0 ? m->role.server
                                  : 0;
    m->rank = fmax(m->rank, program + rank);
    return libraries + n.all * (program - libraries) + n.workers * (held + m->role.worker) + shared;
}

static struct memory estimate(const tr_context *tr, const tr_data_size *size)
{
    const struct tr_layout *l = &tr->layout;
    struct memory m = {0};
    if (tr->job->class->memory) tr->job->class->memory(tr->job, tr->job->options, size, &m.role);
    if (tr->job->data.hash > 0 &&
        tr->job->data.scale != TR_SCALE_NONE) /* sums of its columns, and their factors */
        m.role.worker += 3 * sizeof(double) * size->features / fmax(1, size->workers);
    for (int node = 0; node < l->nodes; node++) m.node = fmax(m.node, add_up_node(tr, node, &m));
    return m;
}

/* Rows on a disk are one worker's: each of a group has its own, unless the job says otherwise. */
static int partition_on_disk(const tr_job *job)
{
    bool open = strcmp(tr_job_where(job, "data.partition"), "default") == 0;
    return open ? TR_DATA_HORIZONTAL : job->data.partition;
}

/* As if the job said so. */
static struct memory estimate_on_disk(const tr_context *tr, const tr_data_size *size)
{
    tr_job *job = tr->job;
    int storage = job->data.storage, partition = job->data.partition;
    job->data.storage = TR_LEVEL_DISK;
    job->data.partition = partition_on_disk(job);
    struct memory m = estimate(tr, size);
    job->data.storage = storage;
    job->data.partition = partition;
    return m;
}

static int no_room(const tr_context *tr, const struct memory *m, double left, bool on_disk)
{
    const char *advice =
        tr->job->data.hash > 0 ? "set a smaller data.hash; or "
        : !on_disk             ? ""
        : *tr->job->data.scratch
            ? "set data.partition: horizontal, so that rows may lie in data.scratch; or "
            : "set data.storage: disk and data.scratch: FOLDER, a folder on a disk of each node; or ";
    return tr_fail(
        TR_ERR_CONFIG,
        "this needs about %s of memory on a node, which has %s: %suse more nodes, or fewer files in "
        "data.train (data.storage: memory tries it all the same)",
        tr_bytes(m->node).text, tr_bytes(left).text, advice);
}

/* Where the job leaves it open: in memory, if there is room; else on a disk, if there is one and the model can. */
static int decide_storage(tr_context *tr, const struct memory *m, const tr_data_size *size)
{
    const tr_job *job = tr->job;
    double left = (double)tr_memory_free();
    bool fits = m->node <= left;
    if (job->data.storage == TR_LEVEL_MEMORY && !fits)
        tr_say(tr, "memory:        this may not fit, as only %s are free", tr_bytes(left).text);
    tr->storage = job->data.storage;
    if (job->data.storage != TR_LEVEL_AUTO) return TR_OK;
    tr->storage = TR_LEVEL_MEMORY;
    if (fits) return TR_OK;
    bool on_disk = estimate_on_disk(tr, size).node < 0.9 * m->node,
         can = partition_on_disk(job) == TR_DATA_HORIZONTAL || tr->layout.group_size == 1;
    if (!on_disk || !can || !*job->data.scratch) return no_room(tr, m, left, on_disk);
    tr->storage = TR_LEVEL_MEMORY_DISK;
    tr_say(tr, "storage:       memory_disk, in %s, as %s are free", job->data.scratch, tr_bytes(left).text);
    return TR_OK;
}

static int say_estimate(tr_context *tr)
{
    if (tr->rank != 0) return TR_OK;
    const tr_job *job = tr->job;
    if (job->data.train.n == 0)
        return tr_fail(TR_ERR_CONFIG, "%s: data.train is missing: the files to learn from",
                       tr_job_where(job, "data.train"));
    tr_data_size size = {.workers = tr_layout_workers(&tr->layout), .servers = tr->layout.servers};
    for (int node = 0; node < tr->layout.nodes; node++)
        size.node_workers = tr_max_int(size.node_workers, count_node(tr, node).workers);
    int format = TR_FORMAT_AUTO;
    TR_TRY(add_size(job, false, &format, &size));
    TR_TRY(add_size(job, true, &format, &size));
    if (job->data.features > 0) size.features = (double)job->data.features;
    struct memory m = estimate(tr, &size);
    double present = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
    tr_say(tr, "memory:        about %s a rank, %s a node of %s", tr_bytes(m.rank).text,
           tr_bytes(m.node).text, tr_bytes(present).text);
    return decide_storage(tr, &m, &size);
}

int tr_say_estimate(tr_context *tr)
{
    TR_TRY(tr_agree(tr, say_estimate(tr)));
    TR_TRY(tr_broadcast(tr, TR_SET_ALL, 0, &tr->storage, sizeof tr->storage));
    if (tr->storage != TR_LEVEL_MEMORY) tr->job->data.partition = partition_on_disk(tr->job);
    return TR_OK;
}
