#include "unit.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/file.h"
#include "base/terminal.h"
#include "monitor/monitor.h"
#include "monitor/record.h"

/* Every case works in its folder. */
static void go_to_folder(void)
{
    unit_make_folder();
    ck_assert_int_eq(chdir(unit_folder), 0);
}

UNIT_FIXTURE(go_to_folder, NULL)

static char *contents(const char *path)
{
    static char text[1 << 16];
    FILE *file = fopen(path, "r");
    if (!file) return NULL;
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    return text;
}

static bool exists(const char *path)
{
    struct stat status;
    return lstat(path, &status) == 0;
}

/* ---- the folder ---- */

/* Writes the status of a run that has ended. */
static void write_status(const char *folder)
{
    char path[64];
    snprintf(path, sizeof path, "%s/status.json", folder);
    unit_write_text(path, "{\n  \"state\": \"done\"\n}\n");
}

UNIT_CASE(a_folder_is_made_with_its_parents)
{
    char *moved;
    int lock;
    ck_ok(tr_output_take("runs/a/b/", &moved, &lock));
    ck_assert_ptr_null(moved);
    ck_assert(exists("runs/a/b/.lock"));
    tr_output_release("runs/a/b/", lock);
    ck_assert(!exists("runs/a/b/.lock"));
    unit_write_text("runs/a/b/.lock",
                    "process 1 on host x\n");         /* a process killed immediately leaves only this */
    ck_ok(tr_output_take("runs/a/b", &moved, &lock)); /* still empty: taken as it is */
    ck_assert_ptr_null(moved);
    tr_output_release("runs/a/b", lock);
}

UNIT_CASE(the_lock_of_a_dead_run_is_ignored)
{
    char *moved;
    int lock, how;
    pid_t run = fork();
    if (run == 0) {
        int status = tr_output_take("run", &moved, &lock);
        if (status == TR_OK) unit_write_text("run/job.yaml", "dead");
        raise(SIGKILL);
    }
    waitpid(run, &how, 0);
    ck_assert(WIFSIGNALED(how) && WTERMSIG(how) == SIGKILL);
    ck_assert(exists("run/.lock"));
    ck_ok(tr_output_take("run", &moved, &lock));
    ck_assert_str_eq(moved, "run.1");
    ck_assert_str_eq(contents("run.1/job.yaml"), "dead");
    ck_assert(!exists("run.1/.lock"));
    free(moved);
    tr_output_release("run", lock);
}

/* Many start at the same time in the folder of an old run: one wins, the others change nothing. */
UNIT_CASE(of_many_that_begin_at_once_one_wins)
{
    enum { RUNS = 16 };
    char *moved;
    int lock, how, winners = 0, go[2], stay[2];
    pid_t run[RUNS];
    ck_ok(tr_make_folder("run", false));
    unit_write_text("run/job.yaml", "old");
    write_status("run");
    ck_assert_int_eq(pipe(go), 0);
    ck_assert_int_eq(pipe(stay), 0);
    for (int i = 0; i < RUNS; i++) {
        if ((run[i] = fork()) != 0) continue;
        char c;
        close(go[1]);
        close(stay[1]);
        (void)!read(go[0], &c, 1); /* until the parent closes it */
        int status = tr_output_take("run", &moved, &lock);
        if (status != TR_OK) _exit(status);
        unit_write_text("run/job.yaml", "new");
        alarm(600); /* if there are two winners, the parent waits for this */
        (void)!read(stay[0], &c, 1);
        _exit(0);
    }
    close(go[0]);
    close(go[1]);
    for (int losers = 0; losers < RUNS - 1; losers++) {
        ck_assert_int_gt(wait(&how), 0);
        ck_assert_int_eq(WEXITSTATUS(how), TR_ERR_NO_OUTPUT);
    }
    close(stay[0]);
    close(stay[1]);
    while (wait(&how) > 0) winners += WIFEXITED(how) && WEXITSTATUS(how) == 0;
    ck_assert_int_eq(winners, 1);
    ck_assert_str_eq(contents("run/job.yaml"), "new");
    ck_assert_str_eq(contents("run.1/job.yaml"), "old");
    ck_assert(!exists("run.2"));
}

UNIT_CASE(an_earlier_run_is_renamed_and_never_overwritten)
{
    char *moved;
    int lock;
    ck_ok(tr_output_take("run", &moved, &lock));
    for (int earlier = 1; earlier <= 3; earlier++) {
        char name[32], text[32];
        snprintf(text, sizeof text, "run %d", earlier);
        unit_write_text("run/job.yaml", text);
        write_status("run");
        tr_output_release("run", lock);
        ck_ok(tr_output_take("run/", &moved, &lock));
        snprintf(name, sizeof name, "run.%d", earlier);
        ck_assert_str_eq(moved, name);
        free(moved);
        snprintf(name, sizeof name, "run.%d/job.yaml", earlier);
        ck_assert_str_eq(contents(name), text);
        ck_assert(!exists("run/job.yaml"));
    }
    tr_output_release("run", lock);
}

UNIT_CASE(a_folder_of_something_else_is_left_alone)
{
    char *moved;
    int lock;
    ck_ok(tr_make_folder("home", false));
    unit_write_text("home/thesis.tex", "years of work");
    ck_fails(tr_output_take("home", &moved, &lock), TR_ERR_NO_OUTPUT,
             "home: holds files, but none of an earlier run");
    ck_assert_ptr_null(moved);
    ck_assert(!exists("home/.lock"));
    ck_ok(tr_make_folder("killed", false)); /* as it began */
    unit_write_text("killed/log", "layout");
    unit_write_text("killed/job.yaml.part", "name: k");
    ck_fails(tr_output_take("killed", &moved, &lock), TR_ERR_NO_OUTPUT, "none of an earlier run");
    unit_write_text("killed/.lock", "process 1");
    ck_ok(tr_output_take("killed", &moved, &lock));
    ck_assert_ptr_null(moved);
    tr_output_release("killed", lock);
    unit_write_text("file", "");
    ck_fails(tr_output_take("file", &moved, &lock), TR_ERR_NO_OUTPUT, "is a file");
    ck_fails(tr_output_take("file/run", &moved, &lock), TR_ERR_NO_OUTPUT, "is a file");
    ck_fails(tr_output_take("/proc/no/run", &moved, &lock), TR_ERR_NO_OUTPUT, "/proc/no");
}

/* ---- files ---- */

UNIT_CASE(a_full_disk_leaves_the_old_file)
{
    struct rlimit limit, old;
    ck_ok(tr_replace_file(".", "a.json", "old", 3, true));
    ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &old), 0);
    limit = old;
    limit.rlim_cur = 2;
    signal(SIGXFSZ, SIG_IGN);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    int status = tr_replace_file(".", "a.json", "new", 3, false);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &old), 0);
    ck_fails(status, TR_ERR_IO, "a.json: cannot be written: File too large");
    ck_assert_str_eq(contents("a.json"), "old");
    ck_assert(!exists("a.json.part"));
    ck_ok(tr_replace_file(".", "a.json", "new", 3, false));
    ck_assert_str_eq(contents("a.json"), "new");
    ck_fails(tr_replace_file("nowhere", "a.json", "new", 3, false), TR_ERR_NO_OUTPUT, "nowhere/a.json");
}

static struct tr_progress_row row_of(int64_t clock)
{
    return (struct tr_progress_row){
        .clock = clock,
        .epoch = (double)clock,
        .seconds = 0.01 * (double)clock,
        .evaluation = {.objective = 0.5, .gap = NAN, .metric = {INFINITY}},
        .exact = true,
        .traffic = {.bytes_pulled = 1, .bytes_pushed = 2, .pulls = 3, .pushes = 4},
        .updates = 5,
        .evaluate_seconds = 0.02};
}

UNIT_CASE(metrics_have_a_header_and_a_line_each)
{
    struct tr_metrics m;
    struct tr_progress_row row = row_of(7);
    ck_ok(tr_metrics_open(".", false, &m));
    ck_ok(tr_metrics_add(&m, &row));
    ck_assert_str_eq(
        contents("metrics.csv"),
        "time,epoch,clock,objective,gap,test_metric,bytes_pulled,bytes_pushed,pulls,pushes,compute_seconds,"
        "wait_seconds,pull_seconds,push_seconds,peak_rss_bytes,updates,training_time\n"
        "0.070000,7,7,0.5,,,1,2,3,4,0.000000,0.000000,0.000000,0.000000,0,5,0.050000\n");
    tr_metrics_close(&m);
}

/* Adds lines until the limit on the size of files is met; the status of that. */
static int fill(struct tr_metrics *m)
{
    struct tr_progress_row row = row_of(1);
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &(struct rlimit){300, 300});
    for (int i = 0; i < 10; i++) TR_TRY(tr_metrics_add(m, &row));
    return TR_OK;
}

UNIT_CASE(metrics_end_with_a_whole_line_when_the_disk_is_full)
{
    struct tr_metrics m;
    ck_ok(tr_metrics_open(".", false, &m));
    pid_t filler = fork(); /* the limit would keep Check from writing its own files */
    if (filler == 0) _exit(fill(&m));
    int how;
    waitpid(filler, &how, 0);
    ck_assert_int_eq(WEXITSTATUS(how), TR_ERR_IO);
    const char *text = contents("metrics.csv");
    ck_assert_int_eq(text[strlen(text) - 1], '\n');
    ck_contains(text, "\n0.010000,");
    ck_assert_uint_lt(strlen(text), 300);
    tr_metrics_close(&m);
}

/* ---- JSON ---- */

static const char *json_of(const char *text)
{
    static char json[256];
    FILE *file = fmemopen(json, sizeof json, "w");
    tr_json_text(file, text);
    fclose(file);
    return json;
}

UNIT_CASE(any_text_is_json)
{
    ck_assert_str_eq(json_of("a \"b\" \\ c\n\x01"), "\"a \\\"b\\\" \\\\ c\\u000a\\u0001\"");
    ck_assert_str_eq(json_of("Größe"), "\"Größe\"");
    ck_assert_str_eq(json_of("\xff|\xc3"), "\"\\ufffd|\\ufffd\""); /* a name in Latin 1, a text cut short */
    ck_assert_str_eq(json_of(NULL), "null");
}

UNIT_CASE(any_number_is_json)
{
    char json[256] = "";
    FILE *file = fmemopen(json, sizeof json, "w");
    double numbers[] = {0.1, NAN, -INFINITY, 1e300, 1.0 / 3, 12345678901234};
    for (size_t i = 0; i < COUNT(numbers); i++) {
        tr_json_real(file, numbers[i]);
        fputc(' ', file);
    }
    fclose(file);
    ck_assert_str_eq(json, "0.1 null null 1e+300 0.3333333333333333 12345678901234 ");
}

/* Reads JSON as a stricter reader would: braces and quotes in pairs, no NaN. */
static void ck_json(const char *text)
{
    int depth = 0;
    bool quoted = false;
    ck_assert_ptr_nonnull(text);
    for (; *text; text++) {
        if (quoted && *text == '\\') text++;
        else if (*text == '"') quoted = !quoted;
        else if (!quoted && *text == '{') depth++;
        else if (!quoted && *text == '}') depth--;
        ck_assert(!quoted || (unsigned char)*text >= ' ');
        ck_assert_msg(quoted || strncmp(text, "nan", 3) != 0, "%s", text);
    }
    ck_assert(!quoted && depth == 0);
}

/* ---- status ---- */

/* Opens the status file of a job of this name in the current folder. */
static struct tr_record record;
static void open_status(const char *name, struct tr_status_file *s)
{
    static char folder_name[] = ".", job_name[64];
    static struct tr_job job = {.name = job_name, .output = folder_name};
    static struct tr_context tr = {.job = &job};
    snprintf(job_name, sizeof job_name, "%s", name);
    tr_record_open(&tr, &record);
    if (tr_status_open(s, &record) != TR_OK) abort();
}

UNIT_CASE(status_says_how_it_goes_and_ends)
{
    struct tr_status_file s;
    open_status("job \"7\"", &s);
    record.code = 9;
    ck_ok(tr_status_write(&s));
    ck_json(contents("status.json"));
    ck_contains(contents("status.json"), "\"state\": \"starting\",\n  \"name\": \"job \\\"7\\\"\"");
    ck_contains(contents("status.json"), "\"status\": null,\n  \"error\": null");
    ck_assert(!tr_status_due(&s, false));
    s.took = 1e-4;
    ck_assert(tr_status_due(&s, true));
    s.took = 10; /* as the status of many tasks */
    ck_assert(!tr_status_due(&s, true));
    record.state = TR_FAILED;
    record.error = "line\none";
    ck_ok(tr_status_write(&s));
    ck_json(contents("status.json"));
    ck_contains(contents("status.json"), "\"status\": 9,\n  \"error\": \"line\\u000aone\"");
    tr_status_close(&s);
}

UNIT_CASE(status_is_whole_at_any_moment)
{
    struct tr_status_file s;
    open_status("atomic", &s);
    ck_ok(tr_status_write(&s));
    pid_t writer = fork();
    for (int i = 0; writer == 0 && i < 2000; i++)
        if (tr_status_write(&s) != TR_OK) _exit(1);
    if (writer == 0) _exit(0);
    int how;
    while (waitpid(writer, &how, WNOHANG) == 0) {
        const char *text = contents("status.json");
        ck_assert_ptr_nonnull(text);
        ck_assert_int_eq(text[0], '{');
        ck_assert_int_eq(text[strlen(text) - 2], '}');
    }
    ck_assert_int_eq(how, 0);
    tr_status_close(&s);
}

UNIT_CASE(a_signal_leaves_a_last_word)
{
    struct tr_status_file s;
    pid_t job = fork();
    if (job == 0) {
        signal(SIGTERM, SIG_DFL); /* Check has a handler */
        open_status("x", &s);
        tr_status_guard(&s);
        if (tr_status_write(&s) != TR_OK) _exit(1);
        raise(SIGTERM);
        _exit(1);
    }
    int how;
    waitpid(job, &how, 0);
    ck_assert(WIFSIGNALED(how) && WTERMSIG(how) == SIGTERM);
    ck_json(contents("status.json"));
    ck_contains(contents("status.json"), "\"status\": 143,\n  \"error\": \"ended by SIGTERM\"");
    ck_assert(!exists("status.json.end"));
}

/* ---- progress ---- */

/* A display that writes into `shown`. */
static char shown[1 << 16];
static struct tr_display display;

static void open_display(enum tr_display_style style)
{
    memset(shown, 0, sizeof shown);
    display = (struct tr_display){.style = style, .out = fmemopen(shown, sizeof shown - 1, "w")};
}

static char *close_display(void)
{
    tr_live_end();
    fclose(display.out);
    return shown;
}

static char *show_rows(enum tr_display_style style, int64_t rows, double seconds, bool gap)
{
    tr_stage stage = {.clocks = 1000, .metric = {{"accuracy", true}}};
    open_display(style);
    display.units = 100;
    display.rate = "rows/s";
    for (int64_t i = 1; i <= rows; i++) {
        struct tr_progress_row row = row_of(i);
        row.seconds = seconds * (double)i;
        row.evaluation.metric[0] = 0.75;
        if (gap) row.evaluation.gap = 0.5;
        tr_display_row(&display, &stage, &row);
    }
    tr_live_end();
    tr_display_end(&display);
    return close_display();
}

static int lines_of(const char *text)
{
    int n = 0;
    for (; *text; text++) n += *text == '\n';
    return n;
}

UNIT_CASE(rows_grow_sparser_but_the_last_is_shown)
{
    const char *text = show_rows(TR_DISPLAY_LINES, 20, 0.01, true);
    ck_assert_int_eq(lines_of(text), 6); /* 1 2 4 8 16 20 */
    ck_assert_ptr_null(strchr(text, '\r'));
    ck_contains(text, "epoch 1.00  time 0.01 s  objective 0.5  gap 5.00e-01  accuracy 0.75000  rows/s 10k");
    ck_contains(text, "\nepoch 20.00 ");
    ck_assert_int_eq(lines_of(show_rows(TR_DISPLAY_LINES, 20, 1.5, true)), 20);
    ck_assert_int_lt(lines_of(show_rows(TR_DISPLAY_LINES, 900, 1.5, true)), 150);
    ck_assert_int_eq(lines_of(show_rows(TR_DISPLAY_SILENT, 20, 1.5, true)), 0);
}

UNIT_CASE(a_table_is_aligned_and_has_only_what_there_is)
{
    char *text = show_rows(TR_DISPLAY_TABLE, 4, 2, false);
    ck_assert_int_eq(lines_of(text), 5); /* with the header */
    ck_lacks(text, "gap");
    size_t width = strcspn(text, "\n");
    for (char *line = text; *line; line += width + 1) ck_assert_uint_eq(strcspn(line, "\n"), width);
    static const char *const columns[] = {"60", "70", "80", "200"};
    for (int i = 0; i < 4; i++) {
        setenv("COLUMNS", columns[i], 1);
        text = show_rows(TR_DISPLAY_TABLE, 20, 0.3, true);
        for (char *at = text; *at; at += strcspn(at, "\r\n"), at += *at != '\0')
            ck_assert_uint_lt(strcspn(at, "\r\n"), (size_t)atoi(columns[i]));
        ck_assert(!strstr(text, "gap") == (i == 0) && !strstr(text, "   rows/s ") == (i < 2));
        ck_contains(text, "\repoch 3.00");
    }
    unsetenv("COLUMNS");
    ck_assert_str_eq(tr_duration(59.9).text, "1:00 min");
    ck_assert_str_eq(tr_duration(11105).text, "3:05:05 h");
    ck_assert_str_eq(tr_duration(NAN).text, "-");
}

UNIT_CASE(an_estimated_gap_says_so)
{
    tr_stage stage = {.clocks = 2};
    open_display(TR_DISPLAY_LINES);
    for (int64_t i = 1; i <= 2; i++) {
        struct tr_progress_row row = row_of(i);
        row.evaluation.gap = 0.5;
        row.exact = i == 2; /* the last evaluation is exact even under ASP */
        tr_display_row(&display, &stage, &row);
    }
    close_display();
    ck_contains(shown, "epoch 1.00  time 0.01 s  objective 0.5  gap ~5.00e-01 ");
    ck_contains(shown, "\nepoch 2.00  time 0.02 s  objective 0.5  gap 5.00e-01 ");
}

/* A gap that is halved in every row, of 10 ms: from 2^-8 to 2^-12 there are four. */
UNIT_CASE(the_time_left_follows_from_how_the_gap_falls)
{
    tr_stage stage = {.name = "train", .clocks = 1000, .gap_goal = ldexp(1, -12)};
    open_display(TR_DISPLAY_LINES);
    for (int64_t i = 1; i <= 8; i++) {
        struct tr_progress_row row = row_of(i);
        row.evaluation.gap = ldexp(1, (int)-i);
        tr_display_row(&display, &stage, &row);
    }
    close_display();
    ck_contains(shown, "left <9.99 s\n");
    ck_contains(shown, "left ~0.04 s\n");
}

UNIT_CASE(a_row_that_repeats_the_last_one_is_not_shown)
{
    tr_stage train = {.name = "train", .clocks = 2}, after = {.name = "after", .clocks = 1};
    open_display(TR_DISPLAY_LINES);
    struct tr_progress_row row = row_of(2);
    tr_display_row(&display, &train, &row);
    row.clock = 1;
    tr_display_row(&display, &after, &row);
    row.evaluation.objective *= 0.99;
    tr_display_row(&display, &after, &row);
    close_display();
    ck_assert_int_eq(lines_of(shown), 2);
}

UNIT_CASE(what_is_no_number_is_a_dash)
{
    tr_stage stage = {.clocks = 2};
    open_display(TR_DISPLAY_LINES);
    struct tr_progress_row row = row_of(1);
    row.evaluation.objective = -(double)NAN;
    tr_display_row(&display, &stage, &row);
    close_display();
    ck_contains(shown, "objective -  epochs/s");
}

static char *show_loading(enum tr_display_style style, double seconds)
{
    open_display(style);
    struct tr_loading l = {.what = "training data", .total = 1e9};
    for (int step = 1; step <= 1000; step++) {
        l.done = 1e6 * step;
        l.seconds = seconds * step / 1000;
        tr_display_loading(&display, &l);
    }
    return close_display();
}

UNIT_CASE(loading_shows_when_it_takes_time)
{
    ck_assert_str_eq(show_loading(TR_DISPLAY_TABLE, 0.9), "");
    ck_assert_str_eq(show_loading(TR_DISPLAY_LINES, 100), "");
    ck_assert_str_eq(show_loading(TR_DISPLAY_SILENT, 100), "");
    const char *bar = show_loading(TR_DISPLAY_TABLE, 4); /* which is written over, and gone in the end */
    ck_assert_int_eq(lines_of(bar), 0);
    ck_contains(bar, "\rtraining data  [####");
    ck_contains(bar, " %  250 MB/s, ");
    for (const char *at = strchr(bar, '\r'); at; at = strchr(at + 1, '\r'))
        ck_assert_uint_lt(strcspn(at + 1, "\r"), 80);
    ck_assert_str_eq(tr_bytes(640).text, "640 B");
    ck_assert_str_eq(tr_bytes(999.7e3).text, "1 MB");
    ck_assert_str_eq(tr_bytes(25.3e9).text, "25.3 GB");
}

/* A pipe is no terminal, unless it leads to an mpirun that has one, which tests/cli/test_explain.sh tries. */
/* ---- going on ---- */

UNIT_CASE(a_run_that_goes_on_keeps_its_folder)
{
    char *moved;
    int lock, other;
    ck_ok(tr_output_take("run", &moved, &lock));
    unit_write_text("run/job.yaml", "seed: 1\n");
    write_status("run");
    char expected[80];
    snprintf(expected, sizeof expected, "another run is writing there now (process %d on host ",
             (int)getpid());
    ck_fails(tr_output_take("run", NULL, &other), TR_ERR_NO_OUTPUT, expected);
    tr_output_release("run", lock);
    ck_ok(tr_output_take("run/", NULL, &lock));
    ck_assert(exists("run/job.yaml") && exists("run/.lock") && !exists("run.1"));
    ck_fails(tr_output_take("run", &moved, &other), TR_ERR_NO_OUTPUT, "another run is writing there now");
    tr_output_release("run", lock);
    ck_ok(tr_output_take("gone/run", NULL, &lock)); /* its checkpoints lie elsewhere */
    tr_output_release("gone/run", lock);
    ck_assert_int_eq(mkdir("kept", 0777), 0);
    ck_ok(tr_make_folder("kept/checkpoints/00000001", false));
    unit_write_text("kept/checkpoints/00000001/manifest.h5", "manifest");
    ck_ok(tr_output_take("kept", &moved, &lock));
    ck_assert_str_eq(moved, "kept.1");
    ck_assert(exists("kept.1/checkpoints") && !exists("kept/checkpoints"));
    tr_output_release("kept", lock);
    free(moved);
}

UNIT_CASE(metrics_are_cut_back_and_go_on)
{
    struct tr_metrics m;
    bool lacking;
    ck_ok(tr_metrics_open(".", true, &m)); /* nothing is there */
    int64_t length[4] = {tr_metrics_length(&m)};
    ck_assert_int_gt(length[0], 0);
    for (int i = 1; i < 4; i++) {
        struct tr_progress_row row = row_of(i);
        ck_ok(tr_metrics_add(&m, &row));
        length[i] = tr_metrics_length(&m);
    }
    tr_metrics_close(&m);
    ck_ok(tr_metrics_open(".", true, &m));
    ck_assert_int_eq(tr_metrics_length(&m), length[3]);
    ck_ok(tr_metrics_cut(&m, length[2], &lacking));
    ck_assert(!lacking && tr_metrics_length(&m) == length[2]);
    struct tr_progress_row row = row_of(9);
    ck_ok(tr_metrics_add(&m, &row));
    ck_assert_int_eq(tr_metrics_length(&m), length[3]);
    ck_contains(contents("metrics.csv"), "\n0.020000,2,");
    ck_contains(contents("metrics.csv"), "\n0.090000,9,");
    ck_lacks(contents("metrics.csv"), "\n0.030000,3,");
    ck_assert_int_eq(truncate("metrics.csv", length[1] + 5), 0); /* in the middle of a line */
    ck_ok(tr_metrics_cut(&m, length[2], &lacking));
    ck_assert(lacking && tr_metrics_length(&m) == length[1]);
    ck_assert_int_eq(truncate("metrics.csv", 10), 0);
    ck_ok(tr_metrics_cut(&m, length[2], &lacking));
    ck_assert(lacking && tr_metrics_length(&m) == length[0]); /* the header is there again */
    tr_metrics_close(&m);
}

UNIT_CASE(an_earlier_status_is_read)
{
    struct tr_status_file s;
    struct tr_status_seen seen = tr_status_look(".");
    ck_assert(!seen.any && !seen.done && seen.continued == 0 && isnan(seen.objective));
    open_status("a \"state\": \"done\",", &s);
    record.state = TR_STOPPED;
    record.code = TR_ERR_STOPPED;
    record.account.restarts = 3;
    ck_ok(tr_status_write(&s));
    ck_contains(contents("status.json"), "\"state\": \"stopped\",");
    ck_contains(contents("status.json"), "\"status\": 75,\n  \"error\": null,");
    seen = tr_status_look(".");
    ck_assert(seen.any && !seen.done && seen.continued == 3 && isnan(seen.objective));
    record.state = TR_DONE;
    record.account.last.evaluation.objective = 0.25;
    ck_ok(tr_status_write(&s));
    seen = tr_status_look(".");
    ck_assert(seen.any && seen.done && seen.objective == 0.25);
    tr_status_close(&s);
    unit_write_text("status.json", "{");
    seen = tr_status_look(".");
    ck_assert(!seen.any && !seen.done);
}

UNIT_CASE(a_pipe_is_no_terminal)
{
    FILE *pipe = popen("cat >/dev/null", "w");
    ck_assert(!tr_terminal_shows(pipe));
    ck_assert_int_eq(tr_display_choose(TR_PROGRESS_AUTO, pipe), TR_DISPLAY_LINES);
    ck_assert_int_eq(tr_display_choose(TR_PROGRESS_YES, pipe), TR_DISPLAY_TABLE);
    ck_assert_int_eq(tr_display_choose(TR_PROGRESS_NO, pipe), TR_DISPLAY_SILENT);
    pclose(pipe);
}
