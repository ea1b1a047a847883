/* Conversion of one value between text and field, the member of a struct that stores it. The table `kinds` has one row per kind. */
#define _GNU_SOURCE
#include "job/schema.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/base.h"

/* ---- text to numbers ---- */

/* Returns whether the text has the form [+-] digits [. digits] [e [+-] digits], as in the core schema of YAML, with a digit on one
 * side of the point. strtod() alone would also accept hexadecimal numbers, "nan" and leading blanks. */
static bool looks_like_a_number(const char *text)
{
    text += *text == '-' || *text == '+';
    size_t whole = strspn(text, "0123456789"), fraction = 0;
    text += whole;
    if (*text == '.') {
        fraction = strspn(++text, "0123456789");
        text += fraction;
    }
    if (!whole && !fraction) return false;
    if (*text == 'e' || *text == 'E') {
        text += text[1] == '-' || text[1] == '+' ? 2 : 1;
        if (!*text) return false;
        text += strspn(text, "0123456789");
    }
    return !*text;
}

static bool parse_real(const char *text, double *value)
{
    if (!looks_like_a_number(text)) return false;
    errno = 0;
    double x = strtod(text, NULL);
    if (!isfinite(x) || (errno == ERANGE && x == 0)) return false;
    *value = x + 0.0; /* -0 becomes 0 */
    return true;
}

/* Parses an integer: digits, up to 64 bits; a power of two as 2^22; a whole number up to 2^53 as 1e6 or 20.0. */
static bool parse_integer(const char *text, uint64_t *value)
{
    double x;
    unsigned power;
    char tail;
    if (sscanf(text, "2^%2u%c", &power, &tail) == 1 && power < 64) return *value = (uint64_t)1 << power, true;
    if (!looks_like_a_number(text) || *text == '-') return false;
    errno = 0;
    *value = strtoull(text, NULL, 10);
    if (!text[strspn(text, "+0123456789")]) return errno == 0;
    if (!parse_real(text, &x) || x != floor(x) || x > 0x1p53) return false;
    *value = (uint64_t)x;
    return true;
}

/* Parses 1048576, 1M, 1MB or "1.5 GiB". */
static bool parse_bytes(const char *text, uint64_t *value)
{
    static const char units[] = "KMGT";
    char number[32], unit[8] = "";
    double x;
    int end = 0;
    if (parse_integer(text, value)) return true;
    if (sscanf(text, "%31[0-9.] %7[A-Za-z]%n", number, unit, &end) != 2 || text[end]) return false;
    const char *at = strchr(units, toupper((unsigned char)*unit));
    if (!at || !*at || (unit[1] && strcasecmp(unit + 1, "b") != 0 && strcasecmp(unit + 1, "ib") != 0))
        return false;
    if (!parse_real(number, &x)) return false;
    x = ldexp(x, 10 * (int)(at - units + 1));
    return x < 0x1p63 && x == floor(x) ? (*value = (uint64_t)x, true) : false;
}

/* ---- text to fields ---- */

static int find_word(const tr_option *key, const char *text)
{
    for (int i = 0; key->words && key->words[i]; i++)
        if (!strcmp(key->words[i], text)) return i;
    return -1;
}

static bool in_range(const tr_option *key, double value)
{
    if (key->most > 0 && value > key->most) return false;
    return key->above ? value > key->least : value >= key->least;
}

/* Parses «auto», «every N» or «N per epoch», with any number of blanks between the words. */
static bool parse_often(const char *text, struct tr_job_often *often)
{
    char number[32], tail;
    int end = 0;
    *often = (struct tr_job_often){.unit = TR_OFTEN_AUTO};
    if (strcmp(text, "auto") == 0) return true;
    if (sscanf(text, "every %31s%c", number, &tail) == 1) often->unit = TR_OFTEN_EVERY;
    else if (sscanf(text, "%31s per epoch%n", number, &end) == 1 && end > 0 && !text[end])
        often->unit = TR_OFTEN_PER_EPOCH;
    else return false;
    return parse_integer(number, &often->n) && often->n > 0 && often->n <= INT64_MAX;
}

/* ---- times ---- */

/* Limits of times in seconds, within which numbers are written without exponents. */
#define SHORTEST_TIME 1e-3
#define LONGEST_TIME  1e9

static const struct unit {
    const char *name;
    double seconds;
} units[] = {{"d", 86400}, {"h", 3600}, {"min", 60}, {"s", 1}, {"ms", 1e-3}};
enum { UNITS = sizeof units / sizeof *units };

bool tr_job_duration(const char *text, double *seconds)
{
    char number[32], unit[8], tail;
    double count;
    if (sscanf(text, "%31[0-9.]%*[ ]%7[a-z]%c", number, unit, &tail) != 2 &&
        sscanf(text, "%31[0-9.]%7[a-z]%c", number, unit, &tail) != 2)
        return false;
    size_t i = 0;
    while (i < UNITS && strcmp(units[i].name, unit) != 0) i++;
    if (i == UNITS || !parse_real(number, &count)) return false;
    count = units[i].seconds < 1 ? count / 1000 : count * units[i].seconds; /* 0.001 is not exact */
    if (count < SHORTEST_TIME || count > LONGEST_TIME) return false;
    return *seconds = count, true;
}

/* Parses the formats of Slurm: minutes, minutes:seconds, hours:minutes:seconds, days-hours, days-hours:minutes and
 * days-hours:minutes:seconds. */
static bool slurm_time(const char *text, double *seconds)
{
    double part[3], days = 0, sum = 0;
    int n = 0, end = 0;
    if (*text == '-' || text[strspn(text, "0123456789:-")]) return false;
    bool dated = sscanf(text, "%15lf-%n", &days, &end) == 1 && end > 0;
    if (dated) text += end;
    else days = 0;
    for (; n < 3; text++, n++) {
        size_t digits = strspn(text, "0123456789");
        if (digits == 0 || digits > 15) return false;
        part[n] = strtod(text, NULL);
        text += digits;
        if (*text != ':') break;
    }
    if (*text || n == 3) return false;
    double unit = dated || n == 2 ? 3600 : 60; /* seconds of a unit of the first part */
    sum = days * 86400;
    for (int i = 0; i <= n; i++, unit /= 60) sum += part[i] * unit;
    if (!(sum > 0) || sum > LONGEST_TIME) return false;
    return *seconds = sum, true;
}

/* Parses «no», a time, or «N clocks». */
static bool parse_pace(const char *text, struct tr_job_pace *pace)
{
    char number[32];
    int end = 0;
    *pace = (struct tr_job_pace){0};
    if (strcmp(text, "no") == 0) return true;
    if (sscanf(text, "%31s clock%n", number, &end) != 1 || end == 0)
        return tr_job_duration(text, &pace->seconds);
    if (strcmp(text + end, "s") != 0 && text[end]) return false;
    return parse_integer(number, &pace->clocks) && pace->clocks > 0 && pace->clocks <= INT64_MAX;
}

/* Sets the field of a number, a word or a time. Returns false if the text is not a value of this kind. Word i of a number's key is
 * stored as the integer -i (2^64 - i) or as the real number -(i + 1). */
static bool parse_value(void *field, const tr_option *key, const char *text)
{
    static const char *const switches[] = {"no", "yes", "false", "true", "off", "on"};
    struct tr_job_often often;
    struct tr_job_pace pace;
    int word = find_word(key, text);
    uint64_t count = 0 - (uint64_t)word;
    double real = -(word + 1);
    bool good = word >= 0;
    switch (key->kind) {
    case TR_KIND_INTEGER:
    case TR_KIND_BYTES:
        if (!good)
            good = key->kind == TR_KIND_BYTES ? parse_bytes(text, &count) : parse_integer(text, &count);
        good = good && (word >= 0 || in_range(key, (double)count));
        if (good) *(uint64_t *)field = count;
        return good;
    case TR_KIND_REAL:
        good = good || (parse_real(text, &real) && in_range(key, real));
        if (good) *(double *)field = real;
        return good;
    case TR_KIND_CHOICE:
        if (good) *(int *)field = word;
        return good;
    case TR_KIND_BOOL:
        for (size_t i = 0; i < sizeof switches / sizeof *switches; i++)
            if (strcasecmp(text, switches[i]) == 0) return *(bool *)field = i % 2, true;
        return false;
    case TR_KIND_OFTEN: return parse_often(text, &often) && (*(struct tr_job_often *)field = often, true);
    case TR_KIND_PACE: return parse_pace(text, &pace) && (*(struct tr_job_pace *)field = pace, true);
    case TR_KIND_TIME:
        if (strcmp(text, "no") == 0) return *(double *)field = 0, true;
        return slurm_time(text, field) || tr_job_duration(text, field);
    case TR_KIND_NONE:
    case TR_KIND_TEXT:
    case TR_KIND_LIST:
    case TR_KIND_NAMES:
    case TR_KIND_PAIRS: break;
    }
    return false;
}

/* ---- fields to text ---- */

void tr_job_put_text(FILE *file, const char *text, bool json)
{
    static const char inside[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-";
    bool plain = *text && *text != '-' && !text[strspn(text, inside)] && strcasecmp(text, "null");
    if (!json && plain) fputs(text, file); /* YAML needs no quotes */
    else tr_put_quoted(file, text);
}

/* Writes a time in the largest unit that gives a whole number, otherwise in seconds. */
static void put_time(FILE *file, double seconds)
{
    size_t i = 0;
    while (i < 3 && fmod(seconds, units[i].seconds) != 0) i++;
    if (seconds == 0) fputs("no", file);
    else tr_put_real(file, seconds / units[i].seconds), fputs(units[i].name, file);
}

/* ---- kinds ---- */

static const struct kind {
    const char *expected, *brief; /* descriptions for errors, and for help */
    bool numeric;                 /* values are numbers, and may have a range */
} kinds[] = {
    [TR_KIND_TEXT] = {"text (UTF-8)", "text", false},
    [TR_KIND_LIST] = {"a path or a list of paths (UTF-8)", "paths", false},
    [TR_KIND_NAMES] = {"a name or a list of names", "names", false},
    [TR_KIND_INTEGER] = {"an integer", "integer", true},
    [TR_KIND_BYTES] = {"a number of bytes, as 65536, 64K, 1MB or 2G,", "bytes", true},
    [TR_KIND_REAL] = {"a number", "number", true},
    [TR_KIND_BOOL] = {"yes or no", "yes|no", false},
    [TR_KIND_OFTEN] = {"auto, «every N» or «N per epoch» with an integer N > 0", "auto|every N|N per epoch",
                       false},
    [TR_KIND_PACE] = {"no, a time as 30s, 5min or 2h, or «N clocks» with an integer N > 0",
                      "no|time|N clocks", false},
    [TR_KIND_TIME] = {"no, or a time as 90 or 1:30:00 (both 90 minutes), 1-12 (days-hours) or 90min",
                      "no|time", false},
    [TR_KIND_CHOICE] = {"", "", false},
    [TR_KIND_PAIRS] = {"pairs of a name and a word, «name: word»,", "name: word", false},
};

/* Returns the value as one of the words of the key; NULL: it is none of them. */
static const char *value_word(const struct tr_job_slot *slot)
{
    const tr_option *key = slot->key;
    int i = -1, n = 0;
    while (key->words && key->words[n]) n++;
    if (key->kind == TR_KIND_CHOICE) i = *(const int *)slot->field;
    if (key->kind == TR_KIND_INTEGER && 0 - *(const uint64_t *)slot->field < (uint64_t)n)
        i = (int)(0 - *(const uint64_t *)slot->field);
    if (key->kind == TR_KIND_REAL && *(const double *)slot->field < 0)
        i = (int)-*(const double *)slot->field - 1;
    return i >= 0 && i < n ? key->words[i] : NULL;
}

void tr_job_put_value(FILE *file, const struct tr_job_slot *slot, bool json)
{
    const void *field = slot->field;
    const struct tr_job_list *list = field;
    const struct tr_job_pace *pace = field;
    const struct tr_job_often *often = field;
    const char *word = value_word(slot), *quote = json ? "\"" : "";
    if (word) {
        tr_job_put_text(file, word, json);
        return;
    }
    switch (slot->key->kind) {
    case TR_KIND_TEXT: tr_job_put_text(file, *(char *const *)field, json); break;
    case TR_KIND_INTEGER:
    case TR_KIND_BYTES: fprintf(file, "%" PRIu64, *(const uint64_t *)field); break;
    case TR_KIND_REAL: tr_put_real(file, *(const double *)field); break;
    case TR_KIND_BOOL: fputs(*(const bool *)field ? "true" : "false", file); break;
    case TR_KIND_OFTEN:
        fputs(quote, file);
        if (often->unit == TR_OFTEN_AUTO) fputs("auto", file);
        else
            fprintf(file, often->unit == TR_OFTEN_EVERY ? "every %" PRIu64 : "%" PRIu64 " per epoch",
                    often->n);
        fputs(quote, file);
        break;
    case TR_KIND_PACE:
    case TR_KIND_TIME:
        fputs(quote, file);
        if (slot->key->kind == TR_KIND_TIME) put_time(file, *(const double *)field);
        else if (pace->clocks == 0) put_time(file, pace->seconds);
        else fprintf(file, "%" PRIu64 " clock%s", pace->clocks, pace->clocks == 1 ? "" : "s");
        fputs(quote, file);
        break;
    case TR_KIND_LIST:
    case TR_KIND_NAMES:
    case TR_KIND_PAIRS:
        fputc('[', file);
        for (size_t i = 0; i < list->n; i++) {
            if (i) fputs(", ", file);
            tr_job_put_text(file, list->item[i], json);
        }
        fputc(']', file);
        break;
    case TR_KIND_NONE:
    case TR_KIND_CHOICE: break; /* a choice is always a word */
    }
}

bool tr_job_value_text(const struct tr_job_slot *slot, char **text)
{
    size_t length;
    FILE *memory = open_memstream(text, &length);
    if (!memory) return false;
    tr_job_put_value(memory, slot, false);
    return fclose(memory) == 0;
}

bool tr_job_same(const struct tr_job_slot *a, const struct tr_job_slot *b)
{
    TR_FREED char *x = NULL, *y = NULL;
    return tr_job_value_text(a, &x) && tr_job_value_text(b, &y) && !strcmp(x, y);
}

static void words_append(struct tr_job_words *words, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void words_append(struct tr_job_words *words, const char *format, ...)
{
    size_t n = strlen(words->text);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(words->text + n, sizeof words->text - n, format, arguments);
    va_end(arguments);
}

static void words_append_range(struct tr_job_words *words, const tr_option *key)
{
    if (isinf(key->least)) return;
    if (key->most > 0)
        words_append(words, " %s %.12g to %.12g", key->above ? "above" : "from", key->least, key->most);
    else words_append(words, " %s %g", key->above ? ">" : ">=", key->least);
}

struct tr_job_words tr_job_expected(const tr_option *key)
{
    const struct kind *kind = &kinds[key->kind];
    struct tr_job_words words = {""};
    words_append(&words, "%s", kind->expected);
    if (kind->numeric) words_append_range(&words, key);
    for (size_t i = 0; key->words && key->words[i]; i++) {
        bool first = i == 0 && !kind->numeric, last = !key->words[i + 1];
        if (i > 0 && !strcmp(key->words[i], key->words[i - 1]))
            continue; /* «auto» occurs twice if the class has a method of this name */
        words_append(&words, "%s%s", first ? "" : last ? " or " : ", ", key->words[i]);
    }
    return words;
}

struct tr_job_words tr_job_kind_words(const tr_option *key)
{
    const struct kind *kind = &kinds[key->kind];
    struct tr_job_words words = {""};
    words_append(&words, "%s", kind->brief);
    double power = log2(key->most + 1);
    if (key->most > 1 && power == round(power)) words_append(&words, " < 2^%.0f", power);
    else if (kind->numeric) words_append_range(&words, key);
    for (size_t i = 0; key->words && key->words[i]; i++)
        words_append(&words, "%s%s", words.text[0] ? "|" : "", key->words[i]);
    return words;
}

bool tr_job_is_list(const tr_option *key)
{
    return key->kind == TR_KIND_LIST || key->kind == TR_KIND_NAMES || key->kind == TR_KIND_PAIRS;
}

/* ---- settings ---- */

int tr_job_fail(const char *where, const char *format, ...)
{
    char text[640];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return tr_fail(TR_ERR_CONFIG, "%s: %s", where, text);
}

static int bad_value(const struct tr_job_slot *slot, const struct tr_job_setting *s, const char *name,
                     const char *text)
{
    bool misled = s->quoted && slot->key->kind != TR_KIND_TEXT && !tr_job_is_list(slot->key);
    return tr_job_fail(s->where, "%s is «%s»: expected %s%s", name, tr_shown(text).text,
                       tr_job_expected(slot->key).text, misled ? " without quotes" : "");
}

void tr_job_free_value(const struct tr_job_slot *slot)
{
    if (slot->key->kind == TR_KIND_TEXT) {
        free(*(char **)slot->field);
        *(char **)slot->field = NULL;
    } else if (tr_job_is_list(slot->key)) {
        tr_job_list_free(slot->field);
    }
}

/* Sets a text, or adds an item to a list. */
static int set_text(const struct tr_job_slot *slot, const struct tr_job_setting *s, const char *name,
                    const char *text)
{
    bool list = tr_job_is_list(slot->key), may_be_empty = !list && !*slot->key->by_default;
    if ((!*text && !may_be_empty) || !tr_utf8_valid(text)) return bad_value(slot, s, name, text);
    return list ? tr_job_append(slot->field, text) : tr_copy_string(text, slot->field);
}

/* Sets a list: from a list in YAML; or from text, which is parsed as YAML if it is in brackets, and otherwise divided at commas. A
 * text that is quoted in the file is one item, even with commas. */
static int set_list(const struct tr_job_slot *slot, const struct tr_job_setting *s, const char *name)
{
    const struct tr_job_list *items = &s->value;
    struct tr_job_setting parsed = {.list = true};
    int status = TR_OK, depth = 0;
    const char *text = items->n ? items->item[0] : "", *end = text;
    bool whole = s->list || s->quoted;
    if (!whole && (*text == '[' || *text == '{')) { /* unless it is a pattern such as [ab]*.[cd] */
        do depth += (*end == '[' || *end == '{') - (*end == ']' || *end == '}');
        while (depth > 0 && *++end);
        if (depth == 0 && !end[1]) {
            status = tr_job_read_list(s->where, name, text, &parsed);
            items = &parsed.value;
            whole = true;
        }
    }
    for (size_t i = 0; whole && i < items->n && status == TR_OK; i++)
        status = set_text(slot, s, name, items->item[i]);
    tr_job_list_free(&parsed.value);
    while (!whole && text && status == TR_OK) {
        TR_FREED char *copy = NULL;
        text += strspn(text, " ");
        const char *comma = strchr(text, ',');
        size_t n = comma ? (size_t)(comma - text) : strlen(text);
        while (n > 0 && text[n - 1] == ' ') n--;
        TR_TRY(tr_format(&copy, "%.*s", (int)n, text));
        status = set_text(slot, s, name, copy);
        text = comma ? comma + 1 : NULL;
    }
    return status;
}

int tr_job_set(const struct tr_job_slot *slot, const struct tr_job_setting *s, const char *name)
{
    const tr_option *key = slot->key;
    if (s->list && !tr_job_is_list(key))
        return tr_job_fail(s->where, "%s is a list: expected %s", name, tr_job_expected(key).text);
    tr_job_free_value(slot);
    if (tr_job_is_list(key)) return set_list(slot, s, name);
    const char *text = s->value.item[0];
    if (key->kind == TR_KIND_TEXT) return set_text(slot, s, name, text);
    bool number = kinds[key->kind].numeric || key->kind == TR_KIND_BOOL;
    if (s->quoted && number && find_word(key, text) < 0) return bad_value(slot, s, name, text);
    return parse_value(slot->field, key, text) ? TR_OK : bad_value(slot, s, name, text);
}

int tr_job_set_default(const struct tr_job_slot *slot, const char *text)
{
    char *item = (char *)(uintptr_t)text;
    struct tr_job_setting s = {
        .key = item, .where = (char *)(uintptr_t) "default", .commanded = true, .value = {1, &item}};
    /* There is no default. For a text, "" is a default, and any other word only describes it in help: "<job file>". */
    if (slot->key->kind == TR_KIND_TEXT ? !slot->key->words && *text : !*text) return TR_OK;
    return tr_job_set(slot, &s, slot->key->name);
}

/* ---- access by name ---- */

/* Finds a slot by its name. TR_ERR_CONFIG if there is none, or its kind is not in the set wanted_kinds, described by `wanted`. */
static int find_typed(const struct tr_job *job, const char *name, unsigned wanted_kinds, const char *wanted,
                      struct tr_job_slot *slot)
{
    if (!tr_job_find(job, name, slot))
        return tr_job_fail_unknown(job->path, "key", name, tr_job_suggest_key(job->class, name).text);
    if (wanted_kinds >> slot->key->kind & 1) return TR_OK;
    return tr_job_fail(job->path, "%s was asked for as %s, but is %s", name, wanted,
                       tr_job_expected(slot->key).text);
}

enum {
    INTEGERS = 1u << TR_KIND_INTEGER | 1u << TR_KIND_BYTES,
    REALS = 1u << TR_KIND_REAL | 1u << TR_KIND_TIME
};

int tr_job_real(const struct tr_job *job, const char *name, double *value)
{
    struct tr_job_slot slot;
    TR_TRY(find_typed(job, name, INTEGERS | REALS, "a number", &slot));
    *value = tr_job_number(job, name);
    return TR_OK;
}

int tr_job_integer(const struct tr_job *job, const char *name, uint64_t *value)
{
    struct tr_job_slot slot;
    unsigned kinds_wanted = INTEGERS | 1u << TR_KIND_BOOL | 1u << TR_KIND_CHOICE;
    TR_TRY(find_typed(job, name, kinds_wanted, "an integer", &slot));
    if (slot.key->kind == TR_KIND_BOOL) *value = *(const bool *)slot.field;
    else if (slot.key->kind == TR_KIND_CHOICE) *value = (uint64_t) * (const int *)slot.field;
    else *value = *(const uint64_t *)slot.field;
    return TR_OK;
}

int tr_job_string(const struct tr_job *job, const char *name, const char **value)
{
    struct tr_job_slot slot;
    TR_TRY(find_typed(job, name, 1u << TR_KIND_TEXT | 1u << TR_KIND_CHOICE, "text", &slot));
    *value = slot.key->kind == TR_KIND_TEXT ? *(char *const *)slot.field : value_word(&slot);
    return TR_OK;
}

int tr_job_often(const struct tr_job *job, const char *name, struct tr_job_often *often)
{
    struct tr_job_slot slot;
    TR_TRY(find_typed(job, name, 1u << TR_KIND_OFTEN, "how often", &slot));
    *often = *(const struct tr_job_often *)slot.field;
    return TR_OK;
}

double tr_job_number(const struct tr_job *job, const char *name)
{
    struct tr_job_slot slot;
    if (!tr_job_find(job, name, &slot)) return NAN;
    if (INTEGERS >> slot.key->kind & 1) return (double)*(const uint64_t *)slot.field;
    if (REALS >> slot.key->kind & 1) return *(const double *)slot.field;
    if (slot.key->kind == TR_KIND_BOOL) return *(const bool *)slot.field;
    if (slot.key->kind == TR_KIND_LIST) return (double)((const struct tr_job_list *)slot.field)->n;
    return NAN;
}

bool tr_job_is(const struct tr_job *job, const char *name, const char *word)
{
    struct tr_job_slot slot;
    const char *is = tr_job_find(job, name, &slot) ? value_word(&slot) : NULL;
    return is && strcmp(is, word) == 0;
}

size_t tr_job_files(const struct tr_job *job, const char *name, const char *const **files)
{
    struct tr_job_slot slot;
    if (!tr_job_find(job, name, &slot) || !tr_job_is_list(slot.key)) return *files = NULL, 0;
    const struct tr_job_list *list = slot.field;
    *files = (const char *const *)list->item;
    return list->n;
}
