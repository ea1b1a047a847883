#define _GNU_SOURCE
#include "data/guess.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "data/dataset.h"
#include "data/source.h"

/* ---- a sample of a file ---- */

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
    const char *last = n == most ? memrchr(text, '\n', n) : NULL; /* behind it is a part of a line */
    if (last) n = (size_t)(last - text) + 1;
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

/* ---- what it tells of LIBSVM text ---- */

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

/* How many features so much text has, by how many there are in the first half of a sample and in all of it: their number grows by
 * a power of the text. */
static double extrapolate(double half, double all, double times)
{
    double grows = half > 0 ? fmin(1, log2(fmax(1, all / half))) : 1;
    return all * pow(fmax(1, times), grows);
}

/* The highest feature: a number before a colon; beyond TR_LIBSVM_MAX_INDEX it is an error that reading will tell. Features that
 * occur at all, and in so many rows that a model may tell them apart: a sample of a tenth of the rows has those twice. Features
 * that share a counter are few. */
static int count_features(const struct sample *sample, double text, tr_data_size *size)
{
    enum { COUNTERS = 1 << 20, TENTH = TR_FREQUENT_ROWS / 2 };
    double n[2][2] = {{0}}; /* of the first half and of all; seen once, twice */
    uint8_t *seen;
    TR_TRY(TR_NEW(&seen, COUNTERS));
    for (const char *colon = sample->text; (colon = strchr(colon, ':')); colon++) {
        const char *digit = colon;
        while (digit > sample->text && digit[-1] >= '0' && digit[-1] <= '9') digit--;
        uint64_t index = strtoull(digit, NULL, 10);
        if (index <= TR_LIBSVM_MAX_INDEX) size->features = fmax(size->features, (double)index);
        uint8_t *times = &seen[index % COUNTERS];
        bool second = (size_t)(colon - sample->text) > sample->n / 2;
        if (*times < 2) n[1][*times]++;
        if (*times < 2 && !second) n[0][*times]++;
        *times = *times < 2 ? *times + 1 : 2;
    }
    free(seen);
    double times = text / (double)sample->n;
    size->occurring = fmax(size->occurring, extrapolate(n[0][0], n[1][0], times));
    size->frequent = fmax(size->frequent, extrapolate(n[0][1], n[1][1], times / TENTH));
    return TR_OK;
}

static const char *next_line(const char *line)
{
    const char *newline = strchr(line, '\n');
    return newline ? newline + 1 : line + strlen(line);
}

static double count_lines(const char *text)
{
    double lines = 0;
    for (; *text; text = next_line(text)) lines += *text != '\n' && *text != '\r';
    return fmax(lines, 1);
}

/* ---- of ratings and bags of words ---- */

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

/* ---- all files ---- */

/* files: how many there are, taken for alike. */
static int add_file(const struct tr_file *file, double files, int format, tr_data_size *size)
{
    struct sample sample;
    int status = TR_OK;
    TR_TRY(take_sample(file, &sample));
    double text = sample.packing * (double)file->size, lines = count_lines(sample.text);
    if (sample.n > 0) {
        size->text += text;
        if (format == TR_FORMAT_DOCWORD) read_bag(&sample, size);
        else size->records += lines * text / (double)sample.n;
        if (format == TR_FORMAT_RATINGS) guess_ids(&sample, text, size);
        if (format == TR_FORMAT_LIBSVM) size->values = fmax(size->values, count_values(sample.text));
        if (format == TR_FORMAT_LIBSVM) status = count_features(&sample, files * text, size);
    }
    free(sample.text);
    return status;
}

/* HDF5 says it; lists of non-zeros are about as much text. */
static int add_tables(const struct tr_files *files, int format, tr_data_size *size, bool *full)
{
    struct tr_head *heads;
    const double pair = 12;
    double nonzeros = 0;
    TR_TRY(tr_heads_read(files, (enum tr_format)format, TR_HEADER_AUTO, &heads));
    for (size_t i = 0; i < files->n; i++) {
        size->records += (double)heads[i].rows;
        size->features = fmax(size->features, (double)heads[i].fields);
        size->text += pair * (double)heads[i].nonzeros;
        nonzeros += (double)heads[i].nonzeros;
        *full |= heads[i].full;
    }
    size->values = 256;
    size->occurring = fmax(size->occurring, nonzeros);
    size->frequent = fmax(size->frequent, nonzeros / TR_FREQUENT_ROWS);
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
    for (size_t i = 0; i < files->n; i++) TR_TRY(add_file(&files->file[i], (double)files->n, *format, size));
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

int tr_data_guess(const struct tr_job *job, tr_data_size *size)
{
    int format = TR_FORMAT_AUTO;
    TR_TRY(add_size(job, false, &format, size));
    TR_TRY(add_size(job, true, &format, size));
    if (job->data.features > 0) size->features = (double)job->data.features;
    bool full = strcmp(size->format, "csv") == 0;
    size->occurring = full ? size->features : fmin(size->features, size->occurring);
    size->frequent = full ? size->features : fmin(size->features, size->frequent);
    return TR_OK;
}
