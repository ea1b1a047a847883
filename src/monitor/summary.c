#define _GNU_SOURCE
#include "monitor/summary.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "monitor/json.h"
#include "monitor/output.h"
#include "monitor/stages.h"

double tr_process_seconds(void)
{
    uint64_t ticks = tr_start_ticks();
    struct timespec now;
    if (ticks == 0 || clock_gettime(CLOCK_BOOTTIME, &now) < 0) return NAN;
    double started = (double)ticks / (double)sysconf(_SC_CLK_TCK);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9 - started;
}

/* More digits say nothing. */
static double milliseconds(double seconds)
{
    return round(seconds * 1000) / 1000;
}

static int write_members(FILE *file, const struct tr_outcome *o, const struct tr_job *job)
{
    fputs("{\n", file);
    tr_json_real_member(file, "objective", o->objective);
    tr_json_real_member(file, "gap", o->gap);
    tr_json_real_member(file, "test_accuracy", o->test_accuracy);
    tr_json_real_member(file, "test_auc", o->test_auc);
    tr_json_real_member(file, "test_rmse", o->test_rmse);
    tr_json_real_member(file, "test_perplexity", o->test_perplexity);
    tr_json_real_member(file, "load_seconds", milliseconds(o->load_seconds));
    tr_json_real_member(file, "train_seconds", milliseconds(o->train_seconds));
    tr_json_real_member(file, "total_seconds", milliseconds(o->total_seconds));
    tr_json_count_member(file, "bytes_pulled", o->bytes_pulled);
    tr_json_count_member(file, "bytes_pushed", o->bytes_pushed);
    tr_json_count_member(file, "updates", o->updates);
    tr_json_count_member(file, "filter_seen", o->filter_seen);
    tr_json_count_member(file, "filter_held", o->filter_held);
    tr_json_count_member(file, "filter_dropped", o->filter_dropped);
    tr_json_real_member(file, "serve_seconds", milliseconds(o->serve_seconds));
    tr_json_count_member(file, "table_bytes", o->table_bytes);
    tr_json_count_member(file, "version_bytes", o->version_bytes);
    fprintf(file, "  \"reached_target\": %s,\n",
            !o->has_target      ? "null"
            : o->reached_target ? "true"
                                : "false");
    tr_json_real_member(file, "target_time", milliseconds(o->target_time));
    tr_json_real_member(file, "target_training_time", milliseconds(o->target_training_time));
    tr_json_real_member(file, "target_updates", o->target_updates);
    tr_json_real_member(file, "slowed_workers", o->slowed_workers);
    tr_json_real_member(file, "level_reached", milliseconds(o->level_reached));
    tr_json_count_member(file, "peak_rss_bytes", o->peak_rss_bytes);
    tr_json_real_member(file, "epochs", o->epochs);
    tr_json_count_member(file, "rows", o->rows);
    tr_json_count_member(file, "features", o->features);
    tr_json_count_member(file, "nonzeros", o->nonzeros);
    tr_json_count_member(file, "restarts", o->restarts);
    tr_json_count_member(file, "checkpoints", o->checkpoints);
    tr_json_count_member(file, "checkpoints_failed", o->checkpoints_failed);
    tr_json_real_member(file, "checkpoint_seconds", milliseconds(o->checkpoint_seconds));
    if (o->more) o->more(file, o->who);
    if (o->stages) tr_write_stages(file, o->stages, o->stage_count);
    tr_json_text_member(file, "layout", o->layout);
    tr_json_count_member(file, "ranks", (uint64_t)o->ranks);
    tr_json_text_member(file, "version", TR_VERSION);
    tr_json_text_member(file, "host", o->host);
    fputs("  \"job\": ", file);
    int status = tr_job_write_json(job, file, 2);
    fputs("\n}\n", file);
    return status;
}

int tr_outcome_write(const struct tr_outcome *outcome, const struct tr_job *job, const char *folder)
{
    char *text = NULL;
    size_t length = 0;
    FILE *file = open_memstream(&text, &length);
    if (!file) return tr_fail(TR_ERR_SYSTEM, "out of memory: summary.json");
    int status = write_members(file, outcome, job);
    if (fclose(file) != 0) status = tr_fail(TR_ERR_SYSTEM, "out of memory: summary.json");
    if (status == TR_OK) status = tr_output_replace(folder, "summary.json", text, length, true);
    free(text);
    return status;
}
