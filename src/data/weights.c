/* data.weight, where it is no column: what rows count, out of files with a number for each row, one a line, in the order of data.train. Every worker
 * reads them from end to end, and picks what belongs to its rows: they are small beside the rows. */
#define _GNU_SOURCE
#include "data/weights.h"

#include <stdlib.h>

#include "data/number.h"
#include "data/text.h"
#include "data/token.h"

struct weights {
    const tr_data *data;
    const char *path;
    uint64_t line, row; /* of this file; of all */
    size_t stretch;     /* of this worker's rows, ascending by their numbers: the first that is not behind */
    float *weight;
};

static int bad_weight(const struct weights *w, const char *p)
{
    char token[TR_TOKEN_ROOM];
    tr_token_quote(p, ' ', token);
    return tr_fail(TR_ERR_DATA, "%s:%llu: «%s» is no weight of a row, expected one number, 0 or more",
                   w->path, (unsigned long long)w->line, token);
}

static void take(struct weights *w, float weight)
{
    const struct tr_data_state *s = w->data->state;
    while (w->stretch < s->stretches && w->row >= s->stretch[w->stretch].first + s->stretch[w->stretch].n)
        w->stretch++;
    if (w->stretch == s->stretches || w->row < s->stretch[w->stretch].first) return;
    const struct tr_stretch *here = &s->stretch[w->stretch];
    w->weight[here->at + (size_t)(w->row - here->first)] = weight;
}

static int read_line(struct weights *w, const char *p)
{
    float weight = 0;
    w->line++;
    while (tr_is_blank(*p)) p++;
    const char *end = tr_read_float(p, &weight);
    while (end && tr_is_blank(*end)) end++;
    if (!end || end == p || !tr_at_line_end(end) || !isfinite(weight) || weight < 0) return bad_weight(w, p);
    if (w->row == w->data->total_rows)
        return tr_fail(TR_ERR_DATA, "%s:%llu: one weight too many: data.train has %llu rows", w->path,
                       (unsigned long long)w->line, (unsigned long long)w->data->total_rows);
    take(w, weight);
    w->row++;
    return TR_OK;
}

static int read_file(struct weights *w, const struct tr_files *files, size_t file)
{
    struct tr_file_part part;
    struct tr_text *text;
    struct tr_chunk lines = {.too_long = false};
    w->path = files->file[file].path;
    w->line = 0;
    if (!tr_files_part(files, file, 0, 1, &part)) return TR_OK;
    TR_TRY(tr_text_open(files, &part, TR_TEXT_CHUNK, &text));
    int status;
    while ((status = tr_text_next(text, &lines)) == TR_OK && (lines.begin < lines.end || lines.too_long)) {
        if (lines.too_long) status = tr_text_fail_too_long(files, file, lines.offset);
        for (const char *p = lines.begin; p < lines.end && status == TR_OK;) {
            status = read_line(w, p);
            p = (const char *)memchr(p, '\n', (size_t)(lines.end - p)) + 1;
        }
        if (status != TR_OK) break;
    }
    tr_text_close(text);
    return status;
}

static int read_all(struct weights *w)
{
    const tr_job *job = w->data->state->tr->job;
    struct tr_files files = {.n = 0};
    char *path;
    TR_TRY(tr_data_find(job, job->data.weight, &path));
    int status = tr_files_open(&path, 1, &files);
    free(path);
    files.max_record = job->data.max_record;
    for (size_t i = 0; i < files.n && status == TR_OK; i++) status = read_file(w, &files, i);
    if (status == TR_OK && w->row < w->data->total_rows)
        status = tr_fail(
            TR_ERR_DATA, "%s:%llu: the weights end here, after %llu, but data.train has %llu rows", w->path,
            (unsigned long long)w->line, (unsigned long long)w->row, (unsigned long long)w->data->total_rows);
    tr_files_close(&files);
    return status;
}

/* Each row of the files must be there. */
static int check(const tr_data *data)
{
    const tr_job *job = data->state->tr->job;
    if (data->state->held_out.to > 0)
        return tr_fail(TR_ERR_CONFIG,
                       "%s: data.weight has a number for each row, but data.test takes some rows away: "
                       "expected files for data.test",
                       tr_job_where(job, "data.weight"));
    if (data->skipped > 0)
        return tr_fail(TR_ERR_CONFIG,
                       "%s: data.weight has a number for each row, but malformed ones were left out: "
                       "expected data.on_error stop",
                       tr_job_where(job, "data.weight"));
    return TR_OK;
}

int tr_weights_read(tr_data *data)
{
    struct tr_data_state *s = data->state;
    struct weights w = {.data = data, .path = s->tr->job->data.weight};
    bool column = s->schema && tr_schema_weight(s->schema) < s->schema->n;
    if (s->test || !*w.path || column) return TR_OK;
    TR_TRY(check(data));
    data->weighted = true;
    int status = tr_is(s->tr, TR_SLAVE) ? TR_NEW(&s->weight, s->rows.rows) : TR_OK;
    w.weight = s->weight;
    if (status == TR_OK && tr_is(s->tr, TR_SLAVE)) status = read_all(&w);
    return tr_agree(s->tr, status);
}
