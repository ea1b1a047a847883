/* Feeds the job room any bytes: text of a job file, then overrides, each behind a byte 1.
 *
 * Besides crashes and leaks it looks for errors that are not one line of UTF-8, and for jobs that do not
 * read back as they were written.
 */
#define _GNU_SOURCE

#include "job/job.h"
#include "fuzz.h"

enum { MOST_OVERRIDES = 8 };

static void expect_good_error(int status)
{
    const char *text = tr_error_text();
    expect(status == TR_ERR_CONFIG || status == TR_ERR_NO_INPUT || status == TR_ERR_USAGE, "odd status");
    expect(*text && tr_utf8_valid(text) && !strpbrk(text, "\n\r\t\x1b"), "not one line of UTF-8");
}

static char *written(const struct tr_job *job, bool json, size_t *length)
{
    char *text = NULL;
    FILE *file = open_memstream(&text, length);
    expect(file && (json ? tr_job_write_json(job, file, 0) : tr_job_write_yaml(job, file)) == TR_OK,
           "no text");
    fclose(file);
    return text;
}

/* Tasks are written with their own keys only. */
static void expect_same_tasks(const struct tr_job *job, const struct tr_job *copy)
{
    for (size_t i = 0; i < job->tasks; i++) {
        size_t length;
        char *json = written(job->task[i].job, true, &length);
        char *json_copy = written(copy->task[i].job, true, &length);
        expect(!strcmp(json, json_copy), "another task was read back");
        TR_FREE_ALL(json, json_copy);
    }
}

static void expect_round_trip(const struct tr_job *job)
{
    size_t length, json_length;
    char *yaml = written(job, false, &length), *json = written(job, true, &json_length);
    struct tr_job *copy;
    expect(tr_job_parse(yaml, length, "copy", 0, NULL, &copy) == TR_OK, "the written job does not read back");
    char *json_copy = written(copy, true, &json_length);
    expect(!strcmp(json, json_copy), "another job was read back");
    expect_same_tasks(job, copy);
    tr_job_free(copy);
    TR_FREE_ALL(yaml, json, json_copy);
}

static void expect_help(const char *filter)
{
    char *help = NULL;
    size_t length;
    FILE *file = open_memstream(&help, &length);
    tr_job_help(file, filter);
    fclose(file);
    expect(tr_utf8_valid(help), "help that is not UTF-8");
    free(help);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *input = malloc(size + 1), *overrides[MOST_OVERRIDES], *end = input + size;
    memcpy(input, data, size);
    *end = '\0';
    char *at = memchr(input, 1, size);
    size_t length = at ? (size_t)(at - input) : size;
    int n = 0;
    for (; at && n < MOST_OVERRIDES; at = memchr(at, 1, (size_t)(end - at))) {
        *at++ = '\0';
        overrides[n++] = at;
    }
    struct tr_job *job;
    int status = tr_job_parse(input, length, "fuzz/input.yaml", n, overrides, &job);
    if (status == TR_OK) {
        expect_round_trip(job);
        tr_job_free(job);
    } else {
        expect_good_error(status);
    }
    if (n) expect_help(overrides[0]);
    free(input);
    return 0;
}
