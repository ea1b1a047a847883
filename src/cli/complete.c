/* trireme help --complete WORD…: what the last of the words behind trireme on a command line may become, one a line. The
 * completion of shells (tools/completion) asks for it, so that it knows what this very program knows: commands and options from
 * their help, keys and values from the tables of keys. */
#define _GNU_SOURCE
#include "cli/cli.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "job/schema.h"

static void offer(const char *begin, const char *candidate, size_t length, const char *behind)
{
    size_t n = strlen(begin);
    if (n <= length + strlen(behind) && strncmp(begin, candidate, n < length ? n : length) == 0)
        tr_printf(stdout, "%.*s%s\n", (int)length, candidate, behind);
}

/* ---- what help says ---- */

/* Of a topic; to be freed, or NULL. */
static char *help_text(const char *topic)
{
    char *text = NULL;
    size_t length;
    FILE *before = stdout, *memory = open_memstream(&text, &length);
    if (!memory) return NULL;
    stdout = memory; /* the GNU C library lets us */
    tr_say_help(topic ? 1 : 0, (char *[]){(char *)(uintptr_t)topic, NULL});
    stdout = before;
    fclose(memory);
    return text;
}

/* Names that begin a line of «  name  what it is». */
static void offer_topics(const char *begin)
{
    char *text = help_text(NULL), *left = text;
    for (char *line; (line = strsep(&left, "\n"));) {
        size_t length = strspn(line + (strncmp(line, "  ", 2) == 0 ? 2 : 0), "abcdefghijklmnopqrstuvwxyz");
        bool is_name = strncmp(line, "  ", 2) == 0 && length > 0 && line[2 + length] == ' ';
        if (is_name && strncmp(line + 2, "trireme", 7) != 0 && strncmp(line + 2, "mpirun", 6) != 0)
            offer(begin, line + 2, length, "");
    }
    free(text);
}

/* Options of a command, or words with = that it takes, as the words of its help that look so. */
static void offer_words(const char *command, const char *begin)
{
    char *text = help_text(command), *left = text;
    for (char *word; (word = strsep(&left, " \n,;[]|():"));) {
        size_t length = strspn(word, "abcdefghijklmnopqrstuvwxyz0123456789_-");
        bool option = word[0] == '-' && isalpha(word[word[1] == '-' ? 2 : 1]) && word[length] == '\0';
        bool setting = word[0] != '-' && length > 0 && word[length] == '=';
        if (option && begin[0] == '-') offer(begin, word, length, "");
        if (setting && begin[0] != '-') offer(begin, word, length, "=");
    }
    free(text);
}

/* ---- keys of jobs ---- */

static void offer_key(const char *begin, const tr_option *key, const char *behind)
{
    if (!strstr(key->name, ".NAME.")) offer(begin, key->name, strlen(key->name), behind);
}

static void offer_keys(const char *begin, const char *behind)
{
    if (strchr(begin, '.') == NULL)
        for (size_t i = 0; i < TR_JOB_SECTIONS; i++)
            offer(begin, tr_job_sections[i].name, strlen(tr_job_sections[i].name), *behind ? "." : "");
    for (size_t i = 0; i < tr_job_tables[TR_TABLE_JOB].n; i++) {
        const tr_option *key = &tr_job_tables[TR_TABLE_JOB].key[i];
        if (strchr(begin, '.') || !strchr(key->name, '.')) offer_key(begin, key, behind);
    }
    for (size_t c = 0; c < tr_model_class_count && strchr(begin, '.'); c++)
        for (size_t i = 0; i < tr_job_options(tr_model_classes[c]); i++)
            offer_key(begin, &tr_model_classes[c]->options[i], behind);
}

static void offer_value(const char *begin, const char *name, const char *value)
{
    char word[256];
    if (strpbrk(value, " <>") || strcmp(value, "number") == 0 || strcmp(value, "integer") == 0) return;
    int n = snprintf(word, sizeof word, "%s=%s", name, value);
    if (n > 0 && n < (int)sizeof word) offer(begin, word, (size_t)n, "");
}

/* Of the key in front of the =: the words among its values. */
static void offer_values(const char *begin)
{
    struct tr_job_name name = {""};
    const tr_model_class *class;
    const tr_option *key;
    snprintf(name.text, sizeof name.text, "%.*s", (int)strcspn(begin, "="), begin);
    for (size_t n = 0; (key = tr_job_known_key(name.text, n, &class)); n++) {
        struct tr_job_words kinds = tr_job_kind_words(key);
        char *left = kinds.text;
        for (char *value; (value = strsep(&left, "|"));)
            if (*value && strcmp(value, "text")) offer_value(begin, name.text, value);
    }
    for (size_t c = 0; c < tr_model_class_count; c++) {
        class = tr_model_classes[c];
        for (size_t i = 0; class->types[i] && !strcmp(name.text, "model.type"); i++)
            offer_value(begin, name.text, class->types[i]);
        for (const tr_method *m = class->methods; m->name && !strcmp(name.text, "solve.method"); m++)
            offer_value(begin, name.text, m->name);
    }
}

int tr_complete_command(int argc, char **argv)
{
    static const char *const with_keys[] = {"train", "sweep", "run", "convert", "count"};
    const char *command = argc > 0 ? argv[0] : "", *begin = argc > 0 ? argv[argc - 1] : "";
    bool help = strcmp(command, "help") == 0, keys = false;
    for (size_t i = 0; i < sizeof with_keys / sizeof *with_keys; i++)
        keys = keys || strcmp(command, with_keys[i]) == 0;
    if (argc < 2 || (help && argc == 2)) offer_topics(begin);
    else if (help) offer_keys(begin, "");
    else if (keys && strchr(begin, '=')) offer_values(begin);
    else if (keys && begin[0] != '-') offer_keys(begin, "=");
    else offer_words(command, begin);
    return TR_OK;
}
