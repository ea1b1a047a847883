#define _GNU_SOURCE
#include "monitor/ranks.h"

#include <fcntl.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "consistency/sync.h"
#include "job/text.h"
#include "monitor/display.h"
#include "monitor/json.h"

/* ---- ranks.json ---- */

struct file {
    const tr_context *tr;
    struct tr_rank_seen *seen;
};

static int write_ranks(FILE *file, const void *what)
{
    static const char letter[] = "-cepuws?"; /* by enum tr_rank_state */
    const struct file *f = what;
    int n = f->tr->size;
    fputs("{\n  \"does\": \"", file);
    for (int rank = 0; rank < n; rank++) fputc(letter[f->seen[rank].state], file);
    fputs("\",\n  \"node\": [", file);
    for (int rank = 0; rank < n; rank++) fprintf(file, "%s%d", rank ? "," : "", f->tr->node_of[rank]);
    fputs("],\n  \"clock\": [", file);
    for (int rank = 0; rank < n; rank++)
        fprintf(file, "%s%lld", rank ? "," : "", (long long)f->seen[rank].clock);
    fputs("],\n  \"compute\": [", file);
    for (int rank = 0; rank < n; rank++) fprintf(file, "%s%.3f", rank ? "," : "", f->seen[rank].seconds);
    fputs("],\n  \"serving\": [", file);
    for (int rank = 0; rank < n; rank++) fprintf(file, "%s%.3f", rank ? "," : "", f->seen[rank].serving);
    fputs("],\n  \"held\": [", file);
    for (int rank = 0; rank < n; rank++) fprintf(file, "%s%.0f", rank ? "," : "", f->seen[rank].held);
    fprintf(file, "],\n  \"updated\": %lld\n}\n", (long long)time(NULL));
    return TR_OK;
}

int tr_ranks_write(const tr_context *tr, const char *folder)
{
    struct file f = {.tr = tr};
    TR_TRY(TR_NEW(&f.seen, (size_t)tr->size));
    tr_clock_see(tr->sync->clock, f.seen);
    int status = tr_json_replace(folder, "ranks.json", false, write_ranks, &f);
    free(f.seen);
    return status;
}

/* ---- events.csv ---- */

void tr_event_add(const char *folder, const char *event, struct tr_event_place place, long rank,
                  const char *text)
{
    const double number[] = {place.seconds, place.epoch, place.updates,
                             rank < 0 ? (double)NAN : (double)rank};
    char *path, *line = NULL;
    size_t length = 0;
    if (tr_format(&path, "%s/events.csv", folder) != TR_OK) return;
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    free(path);
    if (fd < 0) return;
    FILE *file = open_memstream(&line, &length);
    if (file) {
        if (lseek(fd, 0, SEEK_END) == 0) fputs("when,time,epoch,updates,rank,event,text\n", file);
        fprintf(file, "%lld,", (long long)time(NULL));
        for (int i = 0; i < 4; i++) fprintf(file, isnan(number[i]) ? "," : "%.9g,", number[i]);
        fprintf(file, "%s,", event);
        tr_put_line(file, text);
        fputc('\n', file);
        if (fclose(file) == 0) (void)tr_write_all(fd, line, length);
    }
    free(line);
    close(fd);
}
