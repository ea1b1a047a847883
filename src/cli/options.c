#define _GNU_SOURCE
#include "cli/options.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

/* A value is text, or a number from least to most. */
struct option {
    const char *name;
    unsigned bit;
    enum { FLAG, TEXT, NUMBER } kind;
    size_t at; /* of the value in struct tr_options */
    long least, most;
    const char *expected; /* text: what should stand behind it */
};

#define AT(field) offsetof(struct tr_options, field)

static const struct option known_options[] = {
    {.name = "-o", .bit = TR_OPTION_OUTPUT, .kind = TEXT, .at = AT(output), .expected = "a file"},
    {.name = "--probability", .bit = TR_OPTION_PROBABILITY, .kind = FLAG},
    {.name = "--margin", .bit = TR_OPTION_MARGIN, .kind = FLAG},
    {.name = "--distance", .bit = TR_OPTION_DISTANCE, .kind = FLAG},
    {.name = "--json", .bit = TR_OPTION_JSON, .kind = FLAG},
    {.name = "--top", .bit = TR_OPTION_TOP, .kind = NUMBER, .at = AT(top), .least = 0, .most = 1000},
    {.name = "--user", .bit = TR_OPTION_USER, .kind = TEXT, .at = AT(user), .expected = "the id of a user"},
    {.name = "--vocabulary",
     .bit = TR_OPTION_VOCABULARY,
     .kind = TEXT,
     .at = AT(vocabulary),
     .expected = "a file"},
    {.name = "--format",
     .bit = TR_OPTION_FORMAT,
     .kind = TEXT,
     .at = AT(format),
     .expected = "a format of data"},
    {.name = "--plugin",
     .bit = TR_OPTION_PLUGIN,
     .kind = TEXT,
     .at = AT(plugin),
     .expected = "a shared object"},
    {.name = "--servers",
     .bit = TR_OPTION_SERVERS,
     .kind = NUMBER,
     .at = AT(servers),
     .least = 1,
     .most = 65536},
    {.name = "--partition",
     .bit = TR_OPTION_PARTITION,
     .kind = TEXT,
     .at = AT(partition),
     .expected = "one partition"},
};
enum { GENERAL = TR_OPTION_OUTPUT | TR_OPTION_JSON | TR_OPTION_FORMAT | TR_OPTION_PLUGIN };
enum { OPTIONS = sizeof known_options / sizeof *known_options };

static const struct option *find(const char *word, unsigned known)
{
    for (size_t i = 0; i < OPTIONS; i++)
        if ((known_options[i].bit & known) && strcmp(known_options[i].name, word) == 0)
            return &known_options[i];
    return NULL;
}

static int take_number(const struct option *option, const char *text, struct tr_options *o)
{
    char *end;
    long n = text ? strtol(text, &end, 10) : -1;
    if (!text || end == text || *end || n < option->least || n > option->most)
        return tr_fail(TR_ERR_USAGE, "%s: expected a number from %ld to %ld behind %s", o->command,
                       option->least, option->most, option->name);
    *(long *)(void *)((char *)o + option->at) = n;
    return TR_OK;
}

static int take_value(const struct option *option, const char *text, struct tr_options *o)
{
    bool twice = option->kind == TEXT && tr_given(o, option->bit);
    if (option->kind == NUMBER) return take_number(option, text, o);
    if (!text || twice)
        return tr_fail(TR_ERR_USAGE, "%s: expected %s behind %s%s", o->command, option->expected,
                       option->name, twice ? ", and once" : "");
    *(const char **)(void *)((char *)o + option->at) = text;
    return TR_OK;
}

static bool is_setting(const char *word, unsigned known)
{
    return (known & TR_OPTION_SETTING) && strncmp(word, "table.", 6) == 0 && strchr(word, '=');
}

static int take_words(int argc, char **argv, unsigned known, struct tr_options *o)
{
    bool options = true;
    for (int i = 0; i < argc; i++) {
        char *word = argv[i];
        const struct option *option = options ? find(word, known) : NULL;
        if (option && option->kind != FLAG) TR_TRY(take_value(option, ++i < argc ? argv[i] : NULL, o));
        if (option && !(option->bit & GENERAL))
            o->flag[o->flags++] = (struct tr_given){option->name, option->kind == FLAG ? NULL : argv[i]};
        if (option) {
            o->given |= option->bit;
        } else if (options && strcmp(word, "--") == 0) {
            options = false;
        } else if (options && word[0] == '-' && word[1]) {
            return tr_fail(TR_ERR_USAGE, "%s: unexpected %s, expected %s", o->command, word, o->usage);
        } else if (options && is_setting(word, known)) {
            o->setting[o->settings++] = word;
            o->given |= TR_OPTION_SETTING;
        } else {
            o->word[o->words++] = word;
        }
    }
    return TR_OK;
}

int tr_options_parse(int argc, char **argv, const char *command, const char *usage, unsigned known,
                     size_t least, struct tr_options *options)
{
    struct tr_options *o = options;
    *o = (struct tr_options){.command = command, .usage = usage};
    TR_TRY(TR_NEW(&o->word, (size_t)argc + 1));
    TR_TRY(TR_NEW(&o->setting, (size_t)argc + 1));
    TR_TRY(TR_NEW(&o->flag, (size_t)argc + 1));
    TR_TRY(take_words(argc, argv, known, o));
    return o->words >= least ? TR_OK : tr_fail(TR_ERR_USAGE, "%s: expected %s", command, usage);
}

void tr_options_free(struct tr_options *options)
{
    free(options->word);
    free(options->setting);
    free(options->flag);
    *options = (struct tr_options){0};
}

int tr_options_check(const struct tr_options *o, unsigned meaningful, const char *what)
{
    for (size_t i = 0; i < OPTIONS; i++)
        if (tr_given(o, known_options[i].bit) && !(meaningful & known_options[i].bit))
            return tr_fail(TR_ERR_USAGE, "%s: %s is not for %s", o->command, known_options[i].name, what);
    return TR_OK;
}

bool tr_wants_help(int argc, char **argv)
{
    for (int i = 0; i < argc; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) return true;
    return false;
}
