/* Writes the resolved job as YAML and as JSON. */
#define _GNU_SOURCE
#include "job/schema.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "job/text.h"

/* State of the writer. */
struct writer {
    FILE *file;
    bool json;
    int indent;       /* of the next line */
    const char *next; /* JSON: separator before the next line: "" or "," */
};

static void begin_line(struct writer *w)
{
    if (w->json) fprintf(w->file, "%s\n", w->next);
    fprintf(w->file, "%*s", w->indent, "");
    w->next = ",";
}

static void put_name(struct writer *w, const char *name)
{
    tr_job_put_text(w->file, name, w->json);
    fputc(':', w->file);
}

/* Writes a line of YAML. It is formatted in memory first, so that comments are aligned. */
static int put_yaml_line(struct writer *w, const char *name, const struct tr_job_slot *slot)
{
    char *line = NULL;
    size_t length = 0;
    FILE *memory = open_memstream(&line, &length);
    if (!memory) return tr_fail(TR_ERR_SYSTEM, "out of memory for writing the job");
    fprintf(memory, "%*s%s: ", w->indent, "", name);
    tr_job_put_value(memory, slot, false);
    bool complete = fclose(memory) == 0;
    if (complete) {
        fprintf(w->file, "%-35s # ", line);
        const char *where = *slot->where ? *slot->where : "default";
        tr_put_visible(w->file, where, strlen(where));
        fputc('\n', w->file);
    }
    free(line);
    return complete ? TR_OK : tr_fail(TR_ERR_SYSTEM, "out of memory for writing the job");
}

static int put_setting(struct writer *w, const char *name, const struct tr_job_slot *slot)
{
    if (!w->json) return put_yaml_line(w, name, slot);
    begin_line(w);
    put_name(w, name);
    fputc(' ', w->file);
    tr_job_put_value(w->file, slot, true);
    return TR_OK;
}

static void open_level(struct writer *w, const char *name)
{
    begin_line(w);
    put_name(w, name);
    fputs(!w->json ? "\n" : " {", w->file);
    w->indent += 2;
    w->next = "";
}

static void close_level(struct writer *w)
{
    w->indent -= 2;
    w->next = ",";
    if (w->json) fprintf(w->file, "\n%*s}", w->indent, "");
}

/* ---- stages and tasks ---- */

static int put_own(struct writer *w, struct tr_job_values values)
{
    for (size_t i = 0; i < values.n; i++) {
        struct tr_job_slot slot = tr_job_slot(&values, i);
        TR_TRY(put_setting(w, tr_job_own_name(slot.key->name), &slot));
    }
    return TR_OK;
}

static int put_stages(struct writer *w, const struct tr_job *job)
{
    if (job->stages == 0) return TR_OK;
    open_level(w, "stages");
    for (size_t i = 0; i < job->stages; i++) {
        open_level(w, job->stage[i].name);
        TR_TRY(put_own(w, tr_job_stage_values(&job->stage[i])));
        close_level(w);
    }
    close_level(w);
    return TR_OK;
}

/* Returns whether the job sets the key or uses it. */
static bool is_written(const struct tr_job *job, const struct tr_job_slot *slot)
{
    return tr_job_uses(job, slot->key) || tr_job_is_own(job, *slot->where);
}

/* Writes the settings of a task that differ from the whole job, with full names, because `ranks` is a key of a task and also a section. */
static int put_differences(struct writer *w, const struct tr_job *job, const struct tr_job *whole)
{
    struct tr_job_values values = tr_job_values(job);
    for (size_t i = 0; i < values.n; i++) {
        struct tr_job_slot slot = tr_job_slot(&values, i), other;
        const char *name = slot.key->name;
        bool its_own = tr_job_is_own(job, *slot.where) ||
                       (slot.key->kind == TR_KIND_TEXT && !slot.key->words &&
                        **(char *const *)slot.field); /* texts such as names and folders */
        bool taken =
            tr_job_find(whole, name, &other) && is_written(whole, &other) && tr_job_same(&slot, &other);
        if (is_written(job, &slot) && (its_own || !taken)) TR_TRY(put_setting(w, name, &slot));
    }
    return TR_OK;
}

static int put_stage_differences(struct writer *w, const struct tr_job_stage *stage,
                                 const struct tr_job *whole)
{
    struct tr_job_values values = tr_job_stage_values(stage);
    for (size_t i = 0; i < values.n; i++) {
        struct tr_job_slot slot = tr_job_slot(&values, i), other;
        struct tr_job_name name;
        snprintf(name.text, sizeof name.text, "stages.%s.%s", stage->name, tr_job_own_name(slot.key->name));
        if (!tr_job_find(whole, name.text, &other) || !tr_job_same(&slot, &other))
            TR_TRY(put_setting(w, name.text, &slot));
    }
    return TR_OK;
}

static int put_task(struct writer *w, const struct tr_job *job, const struct tr_job_task *task)
{
    TR_TRY(put_own(w, tr_job_task_values(task)));
    TR_TRY(put_differences(w, task->job, job));
    for (size_t i = 0; i < task->job->stages; i++)
        TR_TRY(put_stage_differences(w, &task->job->stage[i], job));
    return TR_OK;
}

static int put_tasks(struct writer *w, const struct tr_job *job)
{
    if (job->tasks == 0) return TR_OK;
    open_level(w, "tasks");
    for (size_t i = 0; i < job->tasks; i++) {
        open_level(w, job->task[i].name);
        TR_TRY(put_task(w, job, &job->task[i]));
        close_level(w);
    }
    close_level(w);
    return TR_OK;
}

/* ---- the job ---- */

/* Writes a section: first the keys of the engine, then those of the class. */
static int put_section(struct writer *w, const struct tr_job *job, const char *section)
{
    struct tr_job_values values = tr_job_values(job);
    size_t length = strlen(section);
    bool open = !*section;
    for (size_t i = 0; i < values.n; i++) {
        struct tr_job_slot slot = tr_job_slot(&values, i);
        const char *name = slot.key->name;
        bool inside = *section ? !strncmp(name, section, length) && name[length] == '.' : !strchr(name, '.');
        if (!inside || !is_written(job, &slot)) continue;
        if (!open) open_level(w, section);
        open = true;
        TR_TRY(put_setting(w, tr_job_own_name(name), &slot));
    }
    if (*section && open) close_level(w);
    return TR_OK;
}

static int put_job(struct writer *w, const struct tr_job *job)
{
    TR_TRY(put_section(w, job, ""));
    for (size_t i = 0; i < TR_JOB_SECTIONS; i++)
        if (!tr_job_sections[i].named) TR_TRY(put_section(w, job, tr_job_sections[i].name));
    TR_TRY(put_stages(w, job));
    TR_TRY(put_tasks(w, job));
    return ferror(w->file) ? tr_fail(TR_ERR_IO, "the job cannot be written") : TR_OK;
}

int tr_job_write_yaml(const struct tr_job *job, FILE *file)
{
    struct writer w = {file, false, 0, ""};
    return put_job(&w, job);
}

int tr_job_write_json(const struct tr_job *job, FILE *file, int indent)
{
    struct writer w = {file, true, indent + 2, ""};
    fputc('{', file);
    int status = put_job(&w, job);
    fprintf(file, "\n%*s}", indent, "");
    if (status != TR_OK) return status;
    return ferror(file) ? tr_fail(TR_ERR_IO, "the job cannot be written") : TR_OK;
}

int tr_job_as_text(const tr_job *job, char **text)
{
    size_t length;
    FILE *file = open_memstream(text, &length);
    if (!file) return tr_fail(TR_ERR_SYSTEM, "out of memory: the text of the job");
    int status = tr_job_write_yaml(job, file);
    if (fclose(file) != 0 && status == TR_OK)
        status = tr_fail(TR_ERR_SYSTEM, "out of memory: the text of the job");
    return status;
}
