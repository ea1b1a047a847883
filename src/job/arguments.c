#define _GNU_SOURCE
#include "job/arguments.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "job/schema.h"

/* ---- values ---- */

/* Parses a count: 4.1M, 500k or 1e6. Returns false if it is no whole number up to `most`. */
static bool argument_count(const char *text, double most, uint64_t *count)
{
    char *end;
    double number = strtod(text, &end);
    if (end == text || !isfinite(number)) return false;
    double unit = *end == 'k' || *end == 'K' ? 1e3 : *end == 'M' ? 1e6 : *end == 'G' ? 1e9 : 1;
    number = round(number * unit * 1e3) / 1e3; /* otherwise 4.1M would be 4099999.9999999995 */
    if (unit > 1) end++;
    if (*end || number < 0 || number > most || number != floor(number)) return false;
    *count = (uint64_t)number;
    return true;
}

/* Sets the member of an option. Returns false if the text is no value of the option's kind. */
static bool argument_set(void *field, const struct tr_argument *option, const char *text)
{
    char *end = NULL;
    uint64_t count = 0;
    double real = strtod(text, &end);
    bool good = end != text && *end == '\0';
    switch (option->kind) {
    case TR_ARG_FLAG: return *(bool *)field = true;
    case TR_ARG_TEXT: *(const char **)field = text; return true;
    case TR_ARG_NUMBER: {
        long n = strtol(text, &end, 10);
        if (end == text || *end || n < option->least || n > option->most) return false;
        *(long *)field = n;
        return true;
    }
    case TR_ARG_SECONDS:
        if ((!good && !tr_job_duration(text, &real)) || !(real >= 0.01 && real <= 86400)) return false;
        *(double *)field = real;
        return true;
    case TR_ARG_COUNT: return argument_count(text, 0x1p53, field);
    case TR_ARG_COUNT32:
        if (!argument_count(text, UINT32_MAX - 1, &count)) return false;
        *(uint32_t *)field = (uint32_t)count;
        return true;
    case TR_ARG_REAL:
        if (good) *(double *)field = real;
        return good;
    case TR_ARG_CHOICE:
        for (int i = 0; option->words[i]; i++)
            if (strcmp(text, option->words[i]) == 0) {
                *(int *)field = i;
                return true;
            }
        return false;
    case TR_ARG_SETTING:
    case TR_ARG_KINDS: break;
    }
    return false;
}

/* For each kind: the name of its values in help, for options without tr_argument.value, and their description in errors. */
static const struct kind {
    const char *value, *expected;
} kinds[] = {
    [TR_ARG_FLAG] = {"", ""},
    [TR_ARG_TEXT] = {"TEXT", "a text"},
    [TR_ARG_NUMBER] = {"N", "a number"},
    [TR_ARG_SECONDS] = {"TIME", "a time such as 500ms, 10s or 1min"},
    [TR_ARG_COUNT] = {"N", "a whole number such as 500000, 500k or 1M"},
    [TR_ARG_COUNT32] = {"N", "a whole number such as 500000, 500k or 1M"},
    [TR_ARG_REAL] = {"X", "a number"},
    [TR_ARG_CHOICE] = {"", ""},
    [TR_ARG_SETTING] = {"VALUE", "a value"},
};
_Static_assert(sizeof kinds / sizeof *kinds == TR_ARG_KINDS, "a row for each kind");

static struct tr_shown argument_expected(const struct tr_argument *option)
{
    struct tr_shown text = {""};
    bool is_text = option->kind == TR_ARG_TEXT || option->kind == TR_ARG_SETTING;
    if (option->words) return tr_shown_words(option->words);
    if (option->kind == TR_ARG_NUMBER)
        snprintf(text.text, sizeof text.text, "a number from %ld to %ld", option->least, option->most);
    else
        snprintf(text.text, sizeof text.text, "%s",
                 is_text && option->value ? option->value : kinds[option->kind].expected);
    return text;
}

struct tr_argument_text tr_argument_value(const struct tr_argument *option)
{
    struct tr_argument_text text = {""};
    const char *value = option->value ? option->value : option->words ? "" : kinds[option->kind].value;
    size_t n = (size_t)snprintf(text.text, sizeof text.text, "%s", value);
    for (size_t i = 0; !option->value && option->words && option->words[i] && n < sizeof text.text; i++)
        n +=
            (size_t)snprintf(text.text + n, sizeof text.text - n, "%s%s", i > 0 ? "|" : "", option->words[i]);
    return text;
}

struct tr_argument_text tr_argument_default(const struct tr_argument *option, const void *defaults)
{
    static const char *const units[] = {"", "k", "M", "G"};
    struct tr_argument_text text = {""};
    const void *field = (const char *)defaults + option->offset;
    const char *word = NULL;
    uint64_t count;
    size_t unit = 0;
    if (!defaults) return text;
    switch (option->kind) {
    case TR_ARG_TEXT: word = *(const char *const *)field; break;
    case TR_ARG_CHOICE: word = *(const int *)field >= 0 ? option->words[*(const int *)field] : NULL; break;
    case TR_ARG_NUMBER:
        if (*(const long *)field != 0) snprintf(text.text, sizeof text.text, "%ld", *(const long *)field);
        break;
    case TR_ARG_SECONDS: snprintf(text.text, sizeof text.text, "%gs", *(const double *)field); break;
    case TR_ARG_REAL: snprintf(text.text, sizeof text.text, "%g", *(const double *)field); break;
    case TR_ARG_COUNT:
    case TR_ARG_COUNT32: /* written in the largest unit for which it is whole */
        count = option->kind == TR_ARG_COUNT ? *(const uint64_t *)field : *(const uint32_t *)field;
        for (; unit < 3 && count > 0 && count % 1000 == 0; unit++) count /= 1000;
        snprintf(text.text, sizeof text.text, "%llu%s", (unsigned long long)count, units[unit]);
        break;
    case TR_ARG_FLAG:
    case TR_ARG_SETTING:
    case TR_ARG_KINDS: break;
    }
    if (word) snprintf(text.text, sizeof text.text, "%s", word);
    return text;
}

/* ---- tables ---- */

const struct tr_argument *tr_argument_at(const struct tr_syntax *s, const struct tr_variant *variant,
                                         size_t i)
{
    const struct tr_argument *const tables[] = {s->options, s->shared, variant ? variant->options : NULL};
    for (size_t t = 0; t < sizeof tables / sizeof *tables; t++)
        for (const struct tr_argument *option = tables[t]; option && option->name; option++)
            if (i-- == 0) return option;
    return NULL;
}

const tr_flag *tr_argument_flag(const struct tr_syntax *s, size_t i, const tr_model_class **class)
{
    for (size_t c = 0; c < tr_model_class_count; c++)
        for (const tr_flag *flag = tr_model_classes[c]->flags; flag && flag->name; flag++) {
            *class = tr_model_classes[c];
            if ((flag->commands & s->asked) && i-- == 0) return flag;
        }
    return NULL;
}

bool tr_argument_takes_key(const struct tr_syntax *s, const char *key)
{
    for (size_t i = 0; s->keys && s->keys[i]; i++) {
        size_t n = strlen(s->keys[i]);
        bool section = n == 0 || s->keys[i][n - 1] == '.';
        if (section ? strncmp(key, s->keys[i], n) == 0 : strcmp(key, s->keys[i]) == 0) return true;
    }
    return false;
}

/* ---- errors ---- */

__attribute__((format(printf, 2, 3), cold)) static int argument_fail(const struct tr_syntax *s,
                                                                     const char *format, ...)
{
    char text[400];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return tr_fail(TR_ERR_USAGE, "%s%s%s", s->command ? s->command : "", s->command ? ": " : "", text);
}

/* Returns the error of an unknown word, with the suggestion `meant` or, if that is NULL, the hint of the command. */
static int argument_fail_unknown(const struct tr_syntax *s, const char *noun, const char *name,
                                 const char *meant)
{
    char see[64];
    const char *hint = s->hint ? s->hint : see;
    snprintf(see, sizeof see, "see trireme help %s", s->command ? s->command : "");
    return argument_fail(s, "unknown %s %s: %s%s%s", noun, tr_shown(name).text,
                         meant ? "did you mean " : hint, meant ? meant : "", meant ? "?" : "");
}

/* Returns the error of an unknown option, and suggests an option or, if users write the key of a setting as an option, the setting:
 * solve.epochs=3 for «--epochs 3». */
static int argument_fail_option(const struct tr_syntax *s, const struct tr_variant *variant, const char *word,
                                const char *next)
{
    enum { MOST = 128 };
    const char *names[MOST], *equals = strchr(word, '='), *value = equals ? equals + 1 : next;
    const tr_model_class *class;
    struct tr_job_name name = {""};
    size_t n = 0;
    snprintf(name.text, sizeof name.text, "%.*s", (int)strcspn(word, "="), word);
    for (const struct tr_argument *o; n < MOST && (o = tr_argument_at(s, variant, n)); n++)
        names[n] = o->name;
    const tr_flag *flag;
    for (size_t i = 0; n < MOST && (flag = tr_argument_flag(s, i, &class)); i++) names[n++] = flag->name;
    const char *meant = tr_job_suggest(name.text, names, n);
    bool all_keys = s->keys && !*s->keys[0];
    char *key = name.text + strspn(name.text, "-"), setting[sizeof name.text + 100];
    for (char *c = key; all_keys && *c; c++) /* keys have _: --max-bins becomes max_bins */
        if (*c == '-') *c = '_';
    struct tr_job_name known = all_keys ? tr_job_suggest_key(NULL, key) : (struct tr_job_name){""};
    if (*known.text && (!meant || tr_job_foreign_key(key) || strcmp(tr_job_own_name(known.text), key) == 0)) {
        bool takes = value && value[0] != '-' && !strchr(value, '=');
        snprintf(setting, sizeof setting, "%s=%s", known.text, takes ? tr_shown(value).text : "...");
        meant = setting;
    }
    return argument_fail_unknown(s, "option", all_keys ? word : name.text, meant);
}

/* ---- reading ---- */

struct reader {
    const struct tr_syntax *syntax;
    const struct tr_variant *variant;
    void *options;
    struct tr_arguments *a;
};

/* Adds the setting that an option stands for, or replaces the setting that the same option has made before. */
static int read_setting(struct tr_arguments *a, const struct tr_argument *option, const char *value)
{
    size_t i = 0, n = strlen(option->key);
    while (i < a->mades && (strncmp(a->made[i], option->key, n) != 0 || a->made[i][n] != '=')) i++;
    TR_TRY(TR_GROW(&a->made, &a->made_capacity, i + 1));
    if (i < a->mades) free(a->made[i]);
    else a->mades++;
    a->made[i] = NULL;
    return tr_format(&a->made[i], "%s=%s", option->key, value);
}

static const tr_flag *find_flag(const struct reader *r, const char *name)
{
    const tr_flag *flag;
    const tr_model_class *class;
    for (size_t i = 0; (flag = tr_argument_flag(r->syntax, i, &class)); i++)
        if (strcmp(flag->name, name) == 0) return flag;
    flag = r->syntax->more_flags ? r->syntax->more_flags(r->a, r->options) : NULL;
    for (; flag && flag->name; flag++)
        if ((flag->commands & r->syntax->asked) && strcmp(flag->name, name) == 0) return flag;
    return NULL;
}

/* Reads an option, with or without dashes, and its value: word[0], and perhaps word[1]. Sets *used to the number of words, or to 0
 * if word[0] is no option. */
static int read_known(const struct reader *r, char **word, int left, int *used)
{
    const struct tr_argument *option;
    struct tr_argument of_flag; /* a flag in the form of an option */
    long unused[2];             /* receives the value of a flag, which only the class uses */
    struct tr_arguments *a = r->a;
    size_t length = strcspn(word[0], "=");
    char name[64];
    snprintf(name, sizeof name, "%.*s", (int)tr_min_size(length, sizeof name - 1), word[0]);
    const char *value = word[0][length] ? word[0] + length + 1 : NULL;
    bool dash = word[0][0] == '-';
    *used = 0;
    for (size_t i = 0; (option = tr_argument_at(r->syntax, r->variant, i)); i++)
        if (strcmp(option->name, name) == 0) break;
    const tr_flag *flag = option || !dash || !r->syntax->asked ? NULL : find_flag(r, name);
    if ((!option && !flag) || (!dash && !value)) return TR_OK;
    void *field = flag ? (void *)unused : (char *)r->options + option->offset;
    if (flag) {
        enum tr_argument_kind kind = flag->most > 0 ? TR_ARG_NUMBER : flag->value ? TR_ARG_TEXT : TR_ARG_FLAG;
        of_flag = (struct tr_argument){flag->name, kind, .value = flag->value, .least = flag->least,
                                       .most = flag->most};
        option = &of_flag;
    }
    bool takes = option->kind != TR_ARG_FLAG;
    if (value && !takes) return argument_fail(r->syntax, "%s has no value", name);
    *used = takes && !value && left > 1 ? 2 : 1;
    if (*used == 2) value = word[1];
    if (takes && !value)
        return argument_fail(r->syntax, "%s%s: expected %s", option->name, dash ? "" : "=",
                             argument_expected(option).text);
    if (option->kind == TR_ARG_SETTING) return read_setting(a, option, value);
    if (!argument_set(field, option, value ? value : ""))
        return argument_fail(r->syntax, "%s is «%s»: expected %s", option->name, tr_shown(value).text,
                             argument_expected(option).text);
    if (!flag) return TR_OK;
    size_t i = 0; /* a repeated flag replaces the earlier one */
    while (i < a->flags && strcmp(a->flag[i].name, flag->name) != 0) i++;
    if (i == a->flags) a->flags++;
    a->flag[i] = (struct tr_given){flag->name, flag->value ? value : NULL};
    return TR_OK;
}

/* Reads a word that is no option: a setting, if the command takes keys of its section; the variant; or another word. */
static int read_word(struct reader *r, char *word)
{
    enum { MOST = 16 };
    const struct tr_syntax *s = r->syntax;
    struct tr_arguments *a = r->a;
    const char *names[MOST];
    size_t n = 0;
    if (s->keys && tr_job_is_setting(word)) {
        bool is_setting = false;
        struct tr_job_name key = {""};
        snprintf(key.text, sizeof key.text, "%.*s", (int)strcspn(word, "="), word);
        for (; s->keys[n]; n++) {
            size_t section = strcspn(s->keys[n], ".");
            section += s->keys[n][section] == '.';
            is_setting |= strncmp(word, s->keys[n], section) == 0;
        }
        if (is_setting) {
            a->setting[a->settings++] = word;
            if (tr_argument_takes_key(s, key.text)) return TR_OK;
            return argument_fail_unknown(s, "key", key.text, tr_job_suggest(key.text, s->keys, n));
        }
    }
    if (s->variants && !r->variant) {
        n = 0;
        for (const struct tr_variant *v = s->variants; v->name && n < MOST; v++) {
            names[n++] = v->name;
            if (strcmp(v->name, word) == 0) r->variant = v;
        }
        if (!r->variant) return argument_fail_unknown(s, "kind", word, tr_job_suggest(word, names, n));
        a->variant = (size_t)(r->variant - s->variants);
        return TR_OK;
    }
    if (s->variants) return argument_fail_option(s, r->variant, word, NULL);
    if (s->job && (a->words > 0 || a->settings > 0)) a->setting[a->settings++] = word;
    else a->word[a->words++] = word;
    return TR_OK;
}

int tr_arguments_read(const struct tr_syntax *s, int argc, char **argv, void *options, struct tr_arguments *a)
{
    struct reader r = {.syntax = s, .options = options, .a = a};
    bool only_words = false;
    a->rest = NULL;
    if (!a->word) {
        TR_TRY(TR_NEW(&a->word, (size_t)argc + 1));
        TR_TRY(TR_NEW(&a->setting, (size_t)argc + 1));
        TR_TRY(TR_NEW(&a->flag, (size_t)argc + 1));
    }
    for (int i = 0, used = 0; i < argc; i += tr_max_int(used, 1), used = 0) {
        char *word = argv[i];
        if (!only_words && strcmp(word, "--") == 0) {
            if (s->divides) a->rest = argv + i + 1;
            if (s->divides) break;
            only_words = true;
            continue;
        }
        if (!only_words) TR_TRY(read_known(&r, argv + i, argc - i, &used));
        if (used > 0) continue;
        if (!only_words && word[0] == '-' && word[1])
            return argument_fail_option(s, r.variant, word, i + 1 < argc ? argv[i + 1] : NULL);
        TR_TRY(read_word(&r, word));
    }
    if (a->rest && a->words == 0 && a->settings == 0) return TR_OK; /* the next call reads more words */
    for (size_t i = 0; i < a->mades; i++) a->setting[a->settings++] = a->made[i];
    if (s->variants && !r.variant)
        return argument_fail(s, "expected %s: see trireme help %s", s->expected, s->command);
    if (a->words < s->least || (s->most > 0 && a->words > s->most))
        return argument_fail(s, "%s%s%sexpected %s: see trireme help %s",
                             a->words > s->least ? "unexpected " : "",
                             a->words > s->least ? tr_shown(a->word[s->most]).text : "",
                             a->words > s->least ? ": " : "", s->expected, s->command);
    return TR_OK;
}

int tr_arguments_join(const struct tr_arguments *a, char **argv)
{
    int argc = 1;
    for (size_t i = 0; i < a->words; i++) argv[argc++] = a->word[i];
    for (int i = 0; i < a->settings; i++) argv[argc++] = a->setting[i];
    argv[argc] = NULL;
    return argc;
}

void tr_arguments_free(struct tr_arguments *a)
{
    for (size_t i = 0; i < a->mades; i++) free(a->made[i]);
    TR_FREE_ALL(a->made, a->word, a->setting, a->flag);
}
