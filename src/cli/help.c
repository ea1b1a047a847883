/* trireme help, and completion of command lines (trireme help --complete). Both use the tables of commands and of job keys. */
#define _GNU_SOURCE
#include "cli/cli.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "base/file.h"
#include "base/terminal.h"
#include "job/job.h"
#include "job/schema.h"
#include "ranks/ranks.h"

const struct tr_cli_command tr_help_command = {
    .syntax = {.command = "help"},
    .brief = "explain a command, a key of job files, or another topic",
    .usage = "trireme help [TOPIC]\n"
             "trireme help job [SECTION|SECTION.KEY|CLASS|all]\n"
             "trireme help from lightgbm|xgboost|scikit-learn|liblinear|vw",
};

/* Topics of help that are not commands. */
/* clang-format off */
static const struct topic {
    const char *name, *brief;
    const char *text; /* paragraphs and items, as in struct tr_cli_command; NULL: tr_job_help() prints the text */
} topics[] = {
    {"job", "the job file: its sections and keys, or one of them", NULL},
    {"from", "names of parameters in other programs: from lightgbm, xgboost, scikit-learn, liblinear or vw", NULL},
    {"output", "the files that train writes",
     "A run writes to the folder output of the job. An older folder is renamed to <folder>.1, .2, ..., unless its run was "
     "stopped or failed: then the new run continues from its last checkpoint.\n"
     "  job.yaml      the job with every key filled in; can be trained again as it is\n"
     "  status.json   the current state of the job, or how it ended\n"
     "  metrics.csv   a line for every evaluation: objective, gap, times, bytes moved\n"
     "  summary.json  the results in one flat object, for scripts\n"
     "  model.h5      the model, for trireme and everything that reads HDF5\n"
     "  model.txt     the same as text in LIBLINEAR's format\n"
     "  log           the messages, with a line for each doubling of the epochs\n"
     "  ranks.json    the state of each rank\n"
     "  events.csv    checkpoints, restarts and failures: see trireme watch\n"
     "  checkpoints   the data from which a run continues: see trireme help job checkpoint\n"
     "While the run lasts it holds a lock in the folder (.lock), and another run with this folder ends with 73. "
     "trireme inspect FOLDER shows the files. report.progress=no suppresses all messages except errors.\n"},
    {"status", "the exit codes",
     "The exit code of every command, also in status.json:\n"
     "   0  success\n"
     "  64  command line: unknown command or option\n"
     "  65  a record or a model is malformed\n"
     "  66  an input file is missing, empty or unreadable\n"
     "  69  another rank failed or does not answer\n"
     "  70  a bug of Trireme\n"
     "  71  out of memory, or MPI or the operating system failed\n"
     "  73  an output file or folder cannot be created\n"
     "  74  reading or writing failed, as on a full disk\n"
     "  75  stopped early on request: the same command continues\n"
     "  76  the objective is not finite\n"
     "  77  a plugin, file or folder that other users can change is not used\n"
     "  78  job file: unknown key, wrong type, impossible value\n"},
};
/* clang-format on */
enum { TOPICS = sizeof topics / sizeof *topics };

/* Returns the name of the i-th command or topic (topics follow the commands), and sets *brief. NULL: there are not that many. */
static const char *topic_at(size_t i, const char **brief)
{
    size_t commands = 0;
    while (tr_commands[commands]) commands++;
    if (i >= commands + TOPICS) return NULL;
    *brief = i < commands ? tr_commands[i]->brief : topics[i - commands].brief;
    return i < commands ? tr_commands[i]->syntax.command : topics[i - commands].name;
}

/* ---- help of a command ---- */

enum { TERM = 18 }; /* width of the column with the names of options */

static int help_width(void)
{
    enum { WIDEST = 110 };
    return tr_min_int(tr_terminal_columns(stdout, WIDEST), WIDEST);
}

static void help_text(const char *text)
{
    while (*text) {
        TR_FREED char *line = NULL;
        if (tr_format(&line, "%.*s", (int)strcspn(text, "\n"), text) != TR_OK) return;
        size_t at = strspn(line, " ");
        const char *gap = strstr(line + at, "  ");
        if (at > 0 && gap) at = (size_t)(gap - line) + strspn(gap, " ");
        tr_printf(stdout, "%.*s", (int)at, line);
        tr_put_paragraph(stdout, line + at, (int)at, help_width());
        text += strlen(line);
        text += *text == '\n';
    }
}

static void help_item(const char *term, const char *text)
{
    int column = TERM + 4;
    if (strlen(term) > TERM) tr_printf(stdout, "  %s\n%*s", term, column, "");
    else tr_printf(stdout, "  %-*s  ", TERM, term);
    tr_put_paragraph(stdout, text, column, help_width());
}

static void help_option(const struct tr_argument *option, const void *defaults)
{
    char term[128], text[512];
    struct tr_argument_text value = tr_argument_value(option), usual = tr_argument_default(option, defaults);
    if (!option->help) return;
    if (option->name[0] == '-') {
        snprintf(term, sizeof term, "%s%s%s", option->name, *value.text ? " " : "", value.text);
        snprintf(text, sizeof text, "%s%s%s%s", option->help, *usual.text ? " (default: " : "", usual.text,
                 *usual.text ? ")" : "");
    } else {
        bool shows_default = *usual.text && !option->value;
        snprintf(term, sizeof term, "%s=%s", option->name, shows_default ? usual.text : value.text);
        snprintf(text, sizeof text, "%s%s%s", option->help, option->words ? ": " : "",
                 option->words ? tr_shown_words(option->words).text : "");
    }
    help_item(term, text);
}

static void help_command(const struct tr_cli_command *c)
{
    const struct tr_syntax *s = &c->syntax;
    const struct tr_argument *option;
    const tr_model_class *class;
    const tr_flag *flag;
    for (const char *line = c->usage; *line;) {
        char usage[256];
        size_t length = strcspn(line, "\n"), word = strcspn(line, " ") + 1;
        snprintf(usage, sizeof usage, "%.*s", (int)length, line);
        printf("%.*s", (int)word, usage);
        tr_put_paragraph(stdout, usage + word, (int)word, help_width());
        line += length + (line[length] == '\n');
    }
    if (c->about) {
        putchar('\n');
        help_text(c->about);
    }
    for (size_t i = 0; i < tr_model_class_count && s->asked; i++) { /* output of predict or evaluate */
        class = tr_model_classes[i];
        const char *text = s->asked == TR_PREDICT    ? class->predicts
                           : s->asked == TR_EVALUATE ? class->evaluates
                                                     : NULL;
        if (text) help_item(class->name, text);
    }
    if (tr_argument_at(s, NULL, 0) || s->asked) putchar('\n');
    for (size_t i = 0; (option = tr_argument_at(s, NULL, i)); i++) help_option(option, c->defaults);
    for (size_t i = 0; (flag = tr_argument_flag(s, i, &class)); i++) {
        char term[80], text[400];
        snprintf(term, sizeof term, "%s%s%s", flag->name, flag->value ? " " : "",
                 flag->value ? flag->value : "");
        snprintf(text, sizeof text, "%s: %s", class->name, flag->help);
        help_item(term, text);
    }
    for (const struct tr_variant *v = s->variants; v && v->name; v++) {
        int column = tr_printf(stdout, "\n%s: ", v->name) - 1;
        tr_put_paragraph(stdout, v->help, column, help_width());
        for (option = v->options; option->name; option++) help_option(option, c->defaults);
    }
    if (!c->notes) return;
    putchar('\n');
    help_text(c->notes);
}

/* ---- trireme help ---- */

/* Prints help on the job keys that `filter` selects. If it is unknown, prints an error to stderr. */
static int help_job(const char *filter)
{
    TR_FREED char *text = NULL;
    size_t length;
    FILE *memory = open_memstream(&text, &length);
    bool known = memory && tr_job_help(memory, filter);
    if (memory) fclose(memory);
    if (text) fputs(text, known ? stdout : stderr);
    return known ? TR_OK : TR_ERR_USAGE;
}

static int help_from(const char *tool)
{
    size_t n;
    const char *const *tools = tr_job_foreign_tools(&n);
    if (!tool) {
        puts("trireme help from PROGRAM prints the names of its parameters and the keys that mean the same "
             "here:");
        for (size_t i = 0; i < n; i++) printf("  %s\n", tools[i]);
        return TR_OK;
    }
    if (tr_job_foreign_help(stdout, tool)) return TR_OK;
    const char *meant = tr_job_suggest(tool, tools, n);
    return tr_complain(tr_fail(TR_ERR_USAGE,
                               "help from: expected lightgbm, xgboost, scikit-learn, liblinear or vw%s%s%s",
                               meant ? "; did you mean " : "", meant ? meant : "", meant ? "?" : ""));
}

static int help_topic(int argc, char **argv)
{
    enum { MOST = 64 };
    const char *names[MOST], *brief;
    size_t n = 0;
    if (argc == 0) {
        puts("Trireme trains models on many ranks of MPI.\n\n"
             "  trireme COMMAND ...\n"
             "  mpirun -n RANKS trireme COMMAND ...\n\n"
             "Commands:");
        for (const char *name; (name = topic_at(n, &brief)); n++) {
            if (name == topics[0].name) puts("\nMore help, by trireme help TOPIC: the commands above, and");
            tr_printf(stdout, "  %-10s %s\n", name, brief);
        }
        puts("\nTo begin with:\n"
             "  trireme generate ctr -o datasets/ctr-small.svm rows=40k features=100k nonzeros=30\n"
             "  trireme train jobs/ctr-small.yaml");
        return TR_OK;
    }
    const char *name = strcmp(argv[0], "--help") == 0 || strcmp(argv[0], "-h") == 0 ? "help" : argv[0];
    bool is_job = strcmp(name, "job") == 0, is_from = strcmp(name, "from") == 0;
    if (argc > 1 + (is_job || is_from))
        return tr_complain(tr_fail(TR_ERR_USAGE, "too many words: trireme help %s",
                                   is_job    ? "job [SECTION|KEY]"
                                   : is_from ? "from PROGRAM"
                                             : "[TOPIC]"));
    if (is_from) return help_from(argc > 1 ? argv[1] : NULL);
    if (is_job) return help_job(argc > 1 ? argv[1] : NULL);
    const struct tr_cli_command *command = tr_command_of(name);
    if (command) {
        help_command(command);
        return TR_OK;
    }
    for (size_t i = 0; i < TOPICS; i++)
        if (topics[i].text && strcmp(topics[i].name, name) == 0) {
            help_text(topics[i].text);
            return TR_OK;
        }
    const struct tr_model_class *class;
    bool of_job = tr_job_find_section(name) || tr_job_known_key(name, 0, &class);
    for (size_t i = 0; i < tr_model_class_count; i++)
        of_job = of_job || !strcmp(tr_model_classes[i]->name, name);
    if (of_job) return help_job(name);
    while (n < MOST && (names[n] = topic_at(n, &brief))) n++;
    const char *meant = tr_job_suggest(name, names, n);
    return tr_complain(tr_fail(TR_ERR_USAGE, "no help on %s: %s%s?", tr_shown(name).text,
                               meant ? "did you mean " : "see trireme help; or did you mean help job ",
                               meant ? meant : tr_shown(name).text));
}

/* ---- completion ---- */

/* Prints a candidate if it starts with `begin`, the word that the user has typed so far. */
static void offer(const char *begin, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void offer(const char *begin, const char *format, ...)
{
    char candidate[256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(candidate, sizeof candidate, format, arguments);
    va_end(arguments);
    if (strncmp(begin, candidate, strlen(begin)) == 0) tr_printf(stdout, "%s\n", candidate);
}

/* Offers job keys that a command accepts, with «=» after them, and sections if `begin` contains no dot. s = NULL: offers all keys,
 * without «=», for trireme help. */
static void offer_keys(const char *begin, const struct tr_syntax *s)
{
    const char *after = s ? "=" : "", *dot = s ? "." : "";
    bool in_section = strchr(begin, '.') != NULL;
    for (size_t i = 0; i < TR_JOB_SECTIONS && !in_section; i++) {
        char section[64];
        bool takes = !s;
        snprintf(section, sizeof section, "%s.", tr_job_sections[i].name);
        for (size_t k = 0; s && s->keys[k]; k++)
            takes = takes || !*s->keys[k] || !strncmp(s->keys[k], section, strlen(section));
        if (takes) offer(begin, "%s%s", tr_job_sections[i].name, dot);
    }
    for (size_t t = 0; t < TR_JOB_TABLES + tr_model_class_count; t++) {
        struct tr_job_keys keys = tr_job_table(t);
        if (t == TR_TABLE_STAGE || t == TR_TABLE_TASK) continue; /* these keys contain names, unknown here */
        for (size_t i = 0; i < keys.n; i++)
            if (in_section == (strchr(keys.key[i].name, '.') != NULL) &&
                (!s || tr_argument_takes_key(s, keys.key[i].name)))
                offer(begin, "%s%s", keys.key[i].name, after);
    }
}

/* Offers the values of the key before the =, as far as they are words. */
static void offer_values(const char *begin)
{
    static const char *const kinds_of_value[] = {"number", "integer", "text"};
    struct tr_job_name name = {""};
    const tr_model_class *class;
    const tr_option *key;
    snprintf(name.text, sizeof name.text, "%.*s", (int)strcspn(begin, "="), begin);
    for (size_t n = 0; (key = tr_job_known_key(name.text, n, &class)); n++) {
        struct tr_job_words kinds = tr_job_kind_words(key);
        char *left = kinds.text;
        for (char *value; (value = strsep(&left, "|"));) {
            bool is_word = *value && !strpbrk(value, " <>");
            for (size_t i = 0; i < 3; i++) is_word = is_word && strcmp(value, kinds_of_value[i]) != 0;
            if (is_word) offer(begin, "%s=%s", name.text, value);
        }
    }
    for (size_t c = 0; c < tr_model_class_count; c++) {
        class = tr_model_classes[c];
        for (size_t i = 0; class->types[i] && !strcmp(name.text, "model.type"); i++)
            offer(begin, "%s=%s", name.text, class->types[i]);
        for (const tr_method *m = class->methods; m->name && !strcmp(name.text, "solve.method"); m++)
            offer(begin, "%s=%s", name.text, m->name);
    }
}

/* Offers candidates for the last word of a command. It may be the value of the option before it, an option, a variant or a key. */
static void offer_arguments(const struct tr_syntax *s, int argc, char **argv)
{
    const char *begin = argv[argc - 1], *before = argc > 1 ? argv[argc - 2] : "";
    const struct tr_variant *variant = NULL;
    const struct tr_argument *option;
    const tr_flag *flag;
    const tr_model_class *class;
    for (const struct tr_variant *v = s->variants; v && v->name; v++) {
        if (argc == 1) offer(begin, "%s", v->name);
        else if (strcmp(argv[0], v->name) == 0) variant = v;
    }
    for (size_t i = 0; (option = tr_argument_at(s, variant, i)); i++) {
        bool dash = option->name[0] == '-', has_value = strchr(begin, '=') != NULL;
        if (dash && !strcmp(before, option->name) && option->words)
            for (size_t w = 0; option->words[w]; w++) offer(begin, "%s", option->words[w]);
        for (size_t w = 0; has_value && option->words && option->words[w]; w++)
            offer(begin, "%s=%s", option->name, option->words[w]);
        if (!has_value && dash == (*begin == '-')) offer(begin, "%s%s", option->name, dash ? "" : "=");
    }
    for (size_t i = 0; *begin == '-' && (flag = tr_argument_flag(s, i, &class)); i++) {
        size_t first = 0; /* several classes may have a flag of this name */
        while (strcmp(tr_argument_flag(s, first, &class)->name, flag->name) != 0) first++;
        if (first == i) offer(begin, "%s", flag->name);
    }
    if (!s->keys || *begin == '-') return;
    if (strchr(begin, '=')) offer_values(begin);
    else offer_keys(begin, s);
}

/* Prints the candidates for the last of the words after «trireme», one per line. The scripts for shells (tools/completion) call it
 * with trireme help --complete, so that completion always corresponds to the program. */
static void complete(int argc, char **argv)
{
    const char *begin = argc > 0 ? argv[argc - 1] : "", *name, *brief;
    bool help = argc > 1 && strcmp(argv[0], "help") == 0;
    const struct tr_cli_command *command = argc > 1 && !help ? tr_command_of(argv[0]) : NULL;
    for (size_t i = 0; (argc < 2 || (help && argc == 2)) && (name = topic_at(i, &brief)); i++)
        offer(begin, "%s", name);
    if (help && argc > 2) offer_keys(begin, NULL);
    if (command) offer_arguments(&command->syntax, argc - 1, argv + 1);
}

/* On a terminal, help is shown by PAGER or less, which ends immediately if all lines fit. COLUMNS passes the width of the terminal
 * to the functions that print, because stdout is a pipe then. Ranks use no pager: they have no keyboard, although with Open MPI 5
 * their stdout may be a terminal. */
int tr_help(int argc, char **argv)
{
    FILE *pager = NULL;
    int terminal = -1;
    if (argc > 0 && strcmp(argv[0], "--complete") == 0) {
        complete(argc - 1, argv + 1);
        return TR_OK;
    }
    if (isatty(STDOUT_FILENO) && !tr_started_by_launcher()) {
        char columns[16];
        snprintf(columns, sizeof columns, "%d", tr_terminal_columns(stdout, 80));
        setenv("COLUMNS", columns, true);
        setenv("LESS", "FRX", false);
        pager = popen("${PAGER:-$(command -v less || echo cat)}", "w");
        terminal = pager ? dup(STDOUT_FILENO) : -1;
        if (pager) dup2(fileno(pager), STDOUT_FILENO);
    }
    int status = help_topic(argc, argv);
    if (pager) {
        signal(SIGPIPE, SIG_IGN); /* the user may leave the pager before the end */
        fflush(stdout);
        if (terminal >= 0) dup2(terminal, STDOUT_FILENO);
        pclose(pager);
        return status;
    }
    int flushed = tr_flush_output(status);
    return flushed != status ? tr_complain(flushed) : status;
}
