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

#include "monitor/display.h"
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

static int write_file(FILE *file, const void *what)
{
    const struct tr_status_file *s = what;
    bool ended = s->state == TR_DONE || s->state == TR_FAILED || s->state == TR_STOPPED;
    char now[32];
    say_time(now);
    fputs("{\n", file);
    tr_json_text_member(file, "state", state_name[s->state]);
    tr_json_text_member(file, "name", s->name);
    tr_json_real_member(file, "epoch", s->epoch);
    tr_json_count_member(file, "clock", (uint64_t)s->clock);
    tr_json_real_member(file, "objective", s->objective);
    tr_json_real_member(file, "gap", s->gap);
    tr_json_real_member(file, "loaded", tr_milliseconds(s->loaded));
    tr_json_real_member(file, "seconds", tr_milliseconds(tr_now() - s->begin));
    tr_json_real_member(file, "left", ended ? (double)NAN : tr_milliseconds(s->left));
    tr_json_count_member(file, "rows", s->rows);
    tr_json_real_member(file, "status", ended ? (double)s->code : (double)NAN);
    tr_json_text_member(file, "error", ended ? s->error : NULL);
    tr_json_count_member(file, "pid", (uint64_t)getpid());
    tr_json_text_member(file, "host", s->host);
    tr_json_text_member(file, "started", s->started);
    tr_json_count_member(file, "continued", s->continued);
    if (s->more) s->more(file, s->who);
    fprintf(file, "  \"updated\": \"%s\"\n}\n", now);
    return TR_OK;
}

/* ---- last words ---- */

/* A signal handler may do little: not even print a number. So what it would have to write is kept ready, in one of two
 * copies, while the other is being renewed. Signals are the process's, not a context's; hence a variable of the
 * process. */
static const int signals[] = {SIGTERM, SIGINT};
enum { GUARDS = 2 };

static _Atomic(const struct tr_last_words *) current[GUARDS];

static void leave(const struct tr_last_words *w, int i)
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
    int i = number != signals[0];
    for (int guard = 0; guard < GUARDS; guard++) {
        const struct tr_last_words *w = atomic_load(&current[guard]);
        if (w && w->text[i]) leave(w, i);
    }
    raise(number); /* SA_RESETHAND: as if there had been no handler, once this one returns */
}

static int prepare_last_words(struct tr_status_file *s)
{
    struct tr_last_words *w = &s->words[atomic_load(&current[s->guard - 1]) == &s->words[0]];
    for (int i = 0; i < TR_LAST_WORDS; i++) {
        struct tr_status_file end = *s;
        end.state = TR_FAILED;
        end.code = 128 + signals[i];
        end.error = signals[i] == SIGTERM ? "ended by SIGTERM" : "ended by SIGINT";
        free(w->text[i]);
        w->text[i] = NULL;
        TR_TRY(tr_json_render(write_file, &end, &w->text[i], &w->length[i]));
    }
    atomic_store(&current[s->guard - 1], w);
    return TR_OK;
}

/* From the one disposition, if it is this, to the other. */
static void change_handlers(void (*from)(int), struct sigaction to)
{
    for (int i = 0; i < TR_LAST_WORDS; i++) {
        struct sigaction old;
        if (sigaction(signals[i], NULL, &old) == 0 && old.sa_handler == from)
            sigaction(signals[i], &to, NULL);
    }
}

void tr_status_guard(struct tr_status_file *s)
{
    int guard = 0;
    while (guard < GUARDS && atomic_load(&current[guard])) guard++;
    if (guard == GUARDS) return;
    s->guard = guard + 1;
    for (int copy = 0; copy < 2; copy++)
        s->words[copy] = (struct tr_last_words){.path = s->path, .temporary = s->temporary};
    atomic_store(&current[guard], &s->words[0]);
    change_handlers(SIG_DFL, (struct sigaction){.sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND});
}

static void stop_guarding(struct tr_status_file *s)
{
    bool others = false;
    if (!s->guard) return;
    atomic_store(&current[s->guard - 1], NULL);
    for (int guard = 0; guard < GUARDS; guard++) others = others || atomic_load(&current[guard]);
    if (!others) change_handlers(on_signal, (struct sigaction){.sa_handler = SIG_DFL});
    for (int copy = 0; copy < 2; copy++)
        for (int i = 0; i < TR_LAST_WORDS; i++) free(s->words[copy].text[i]);
    s->guard = 0;
}

/* ---- the file ---- */

int tr_status_open(struct tr_status_file *s, const char *folder, const char *name)
{
    *s = (struct tr_status_file){
        .begin = tr_now(), .epoch = NAN, .objective = NAN, .gap = NAN, .loaded = NAN, .left = NAN};
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

/* What stands behind "name": in the line that begins with it, as it is written here; "" where it is not there. */
static struct tr_number_text find_member(const char *text, const char *name)
{
    struct tr_number_text sought, value = {""};
    snprintf(sought.text, sizeof sought.text, "\n  \"%s\": ", name);
    const char *at = strstr(text, sought.text);
    if (at) at += strlen(sought.text);
    if (at) snprintf(value.text, sizeof value.text, "%.*s", (int)tr_min_size(strcspn(at, ",\n"), 31), at);
    return value;
}

static double find_real(const char *text, const char *name)
{
    struct tr_number_text value = find_member(text, name);
    return *value.text && strcmp(value.text, "null") != 0 ? strtod(value.text, NULL) : (double)NAN;
}

/* The beginning of a file; "" where there is none. */
enum { LOOKED_AT = 4096 };
static void look(const char *folder, const char *name, char text[LOOKED_AT])
{
    char *path;
    text[0] = '\0';
    if (tr_format(&path, "%s/%s", folder, name) != TR_OK) return;
    FILE *file = fopen(path, "r");
    free(path);
    if (!file) return;
    text[fread(text, 1, LOOKED_AT - 1, file)] = '\0';
    fclose(file);
}

struct tr_outcome_seen tr_outcome_look(const char *folder)
{
    static const struct {
        const char *member, *name;
        bool ascends;
    } kinds[] = {{"test_accuracy", "accuracy", true},
                 {"test_rmse", "RMSE", false},
                 {"test_perplexity", "perplexity", false},
                 {"objective", "objective", false}};
    char text[LOOKED_AT];
    struct tr_outcome_seen seen = {.name = "objective", .value = NAN};
    look(folder, "summary.json", text);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds && isnan(seen.value); i++)
        seen = (struct tr_outcome_seen){kinds[i].name, find_real(text, kinds[i].member), kinds[i].ascends,
                                        find_real(text, "total_seconds")};
    return seen;
}

struct tr_status_seen tr_status_look(const char *folder)
{
    char text[LOOKED_AT];
    look(folder, "status.json", text);
    struct tr_number_text state = find_member(text, "state");
    return (struct tr_status_seen){.any = *state.text,
                                   .done = !strcmp(state.text, "\"done\""),
                                   .continued = strtoull(find_member(text, "continued").text, NULL, 10),
                                   .pid = strtoull(find_member(text, "pid").text, NULL, 10),
                                   .objective = find_real(text, "objective"),
                                   .epoch = find_real(text, "epoch")};
}

int tr_status_write(struct tr_status_file *s)
{
    s->written = tr_now();
    s->stale = true;
    int status = tr_json_replace(s->folder, "status.json", false, write_file, s);
    if (status == TR_OK && s->guard) status = prepare_last_words(s);
    s->stale = status != TR_OK;
    return status;
}

bool tr_status_due(const struct tr_status_file *s)
{
    return s->stale || tr_now() - s->written >= 1;
}
