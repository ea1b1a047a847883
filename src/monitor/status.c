#define _GNU_SOURCE
#include "monitor/status.h"

#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "monitor/json.h"
#include "monitor/output.h"

static const char *const state_name[] = {"starting", "loading", "training", "writing",
                                         "done",     "failed",  "stopped"};

/* ---- as text ---- */

static void say_time(char text[32])
{
    time_t now = time(NULL);
    struct tm parts;
    gmtime_r(&now, &parts);
    strftime(text, 32, "%Y-%m-%dT%H:%M:%SZ", &parts);
}

static int render(const struct tr_status_file *s, char **text, size_t *length)
{
    bool ended = s->state == TR_DONE || s->state == TR_FAILED || s->state == TR_STOPPED;
    char now[32];
    say_time(now);
    FILE *file = open_memstream(text, length);
    if (!file) return tr_fail(TR_ERR_SYSTEM, "out of memory: status.json");
    fputs("{\n", file);
    tr_json_text_member(file, "state", state_name[s->state]);
    tr_json_text_member(file, "name", s->name);
    tr_json_real_member(file, "epoch", s->epoch);
    tr_json_count_member(file, "clock", (uint64_t)s->clock);
    tr_json_real_member(file, "objective", s->objective);
    tr_json_real_member(file, "gap", s->gap);
    tr_json_real_member(file, "loaded", round(s->loaded * 1000) / 1000);
    tr_json_real_member(file, "seconds", round((tr_now() - s->begin) * 1000) / 1000);
    tr_json_real_member(file, "status", ended ? (double)s->code : (double)NAN);
    tr_json_text_member(file, "error", ended ? s->error : NULL);
    tr_json_count_member(file, "pid", (uint64_t)getpid());
    tr_json_text_member(file, "host", s->host);
    tr_json_text_member(file, "started", s->started);
    tr_json_count_member(file, "continued", s->continued);
    if (s->more) s->more(file, s->who);
    fprintf(file, "  \"updated\": \"%s\"\n}\n", now);
    return fclose(file) == 0 ? TR_OK : tr_fail(TR_ERR_SYSTEM, "out of memory: status.json");
}

/* ---- last words ---- */

/* What a signal handler may do is little: not even print a number. So what it would have to write is kept
 * ready, beside the names of the files, in one of two copies, while the other is being renewed. Signals are
 * the process's, not a context's; hence variables of the process. */
static const int signals[] = {SIGTERM, SIGINT};
enum { SIGNALS = 2, GUARDS = 2 };

struct last_words {
    char path[4096], temporary[4096];
    size_t length[SIGNALS];
    char *text[SIGNALS];
};
static struct last_words words[GUARDS][2];
static _Atomic(struct last_words *) current[GUARDS];
static bool taken[GUARDS];

static void leave(const struct last_words *w, int i)
{
    int fd = open(w->temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0) return;
    bool whole = write(fd, w->text[i], w->length[i]) == (ssize_t)w->length[i];
    close(fd);
    if (whole) rename(w->temporary, w->path);
    else unlink(w->temporary);
}

static void on_signal(int number)
{
    for (int guard = 0; guard < GUARDS; guard++) {
        const struct last_words *w = atomic_load(&current[guard]);
        if (w) leave(w, number == signals[0] ? 0 : 1);
    }
    raise(number); /* SA_RESETHAND: as if there had been no handler, once this one returns */
}

static int prepare_last_words(const struct tr_status_file *s)
{
    int guard = s->guard - 1;
    struct last_words *w = &words[guard][atomic_load(&current[guard]) == &words[guard][0]];
    if (strlen(s->temporary) >= sizeof w->temporary) return TR_OK; /* such a path cannot be opened either */
    strcpy(w->path, s->path);
    strcpy(w->temporary, s->temporary);
    for (int i = 0; i < SIGNALS; i++) {
        struct tr_status_file end = *s;
        end.state = TR_FAILED;
        end.code = 128 + signals[i];
        end.error = signals[i] == SIGTERM ? "ended by SIGTERM" : "ended by SIGINT";
        free(w->text[i]);
        w->text[i] = NULL;
        TR_TRY(render(&end, &w->text[i], &w->length[i]));
    }
    atomic_store(&current[guard], w);
    return TR_OK;
}

void tr_status_guard(struct tr_status_file *s)
{
    int guard = 0;
    while (guard < GUARDS && taken[guard]) guard++;
    if (guard == GUARDS) return;
    taken[guard] = true;
    s->guard = guard + 1;
    for (int i = 0; i < SIGNALS; i++) {
        struct sigaction old, handler = {.sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND};
        if (sigaction(signals[i], NULL, &old) == 0 && old.sa_handler == SIG_DFL)
            sigaction(signals[i], &handler, NULL);
    }
}

static bool others_guard(int guard)
{
    for (int i = 0; i < GUARDS; i++)
        if (i != guard && taken[i]) return true;
    return false;
}

static void stop_guarding(struct tr_status_file *s)
{
    if (!s->guard) return;
    int guard = s->guard - 1;
    for (int i = 0; i < SIGNALS && !others_guard(guard); i++) {
        struct sigaction old;
        if (sigaction(signals[i], NULL, &old) == 0 && old.sa_handler == on_signal)
            signal(signals[i], SIG_DFL);
    }
    atomic_store(&current[guard], NULL);
    for (int copy = 0; copy < 2; copy++)
        for (int i = 0; i < SIGNALS; i++) free(words[guard][copy].text[i]);
    memset(words[guard], 0, sizeof words[guard]);
    taken[guard] = false;
    s->guard = 0;
}

/* ---- the file ---- */

int tr_status_open(struct tr_status_file *s, const char *folder, const char *name)
{
    *s =
        (struct tr_status_file){.begin = tr_now(), .epoch = NAN, .objective = NAN, .gap = NAN, .loaded = NAN};
    if (gethostname(s->host, sizeof s->host - 1) < 0) strcpy(s->host, "unknown");
    say_time(s->started);
    TR_TRY(tr_copy_string(folder, &s->folder));
    TR_TRY(tr_copy_string(name, &s->name));
    TR_TRY(tr_format(&s->path, "%s/status.json", folder));
    return tr_format(&s->temporary, "%s.end",
                     s->path); /* not that of an ordinary write, which a signal may interrupt */
}

void tr_status_close(struct tr_status_file *s)
{
    stop_guarding(s);
    free(s->folder);
    free(s->name);
    free(s->path);
    free(s->temporary);
    *s = (struct tr_status_file){0};
}

/* What stands behind "name": in the line that begins with it, as it is written here. */
static bool find_member(const char *text, const char *name, char value[32])
{
    char sought[64];
    snprintf(sought, sizeof sought, "\n  \"%s\": ", name);
    const char *at = strstr(text, sought);
    if (!at) return false;
    at += strlen(sought);
    snprintf(value, 32, "%.*s", (int)tr_min_size(strcspn(at, ",\n"), 31), at);
    return true;
}

struct tr_status_seen tr_status_look(const char *folder)
{
    struct tr_status_seen seen = {.objective = NAN, .epoch = NAN};
    char *path, text[4096] = "", value[32];
    if (tr_format(&path, "%s/status.json", folder) != TR_OK) return seen;
    FILE *file = fopen(path, "r");
    free(path);
    if (!file) return seen;
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    seen.any = find_member(text, "state", value);
    seen.done = seen.any && !strcmp(value, "\"done\"");
    if (find_member(text, "continued", value)) seen.continued = strtoull(value, NULL, 10);
    if (find_member(text, "pid", value)) seen.pid = strtoull(value, NULL, 10);
    if (find_member(text, "epoch", value) && strcmp(value, "null") != 0) seen.epoch = strtod(value, NULL);
    if (find_member(text, "objective", value) && strcmp(value, "null") != 0)
        seen.objective = strtod(value, NULL);
    return seen;
}

int tr_status_write(struct tr_status_file *s)
{
    char *text = NULL;
    size_t length = 0;
    s->written = tr_now();
    s->stale = true;
    TR_TRY(render(s, &text, &length));
    int status = tr_output_replace(s->folder, "status.json", text, length, false);
    free(text);
    if (status == TR_OK && s->guard) status = prepare_last_words(s);
    s->stale = status != TR_OK;
    return status;
}

bool tr_status_due(const struct tr_status_file *s)
{
    return s->stale || tr_now() - s->written >= 1;
}
