/* One value of a job, a stage or a task: from text, into its field, and back. */
#define _GNU_SOURCE
#include "job/schema.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/base.h"
#include "job/text.h"

/* ---- errors ---- */

int tr_job_fail(struct tr_job_place place, const char *format, ...)
{
    char text[640];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (place.line) return tr_fail(TR_ERR_CONFIG, "%s:%zu: %s", place.name, place.line, text);
    return tr_fail(TR_ERR_CONFIG, "%s: %s", place.name, text);
}

int tr_job_fail_unknown(struct tr_job_place place, const char *what, const char *name, const char *suggestion)
{
    if (!suggestion || !*suggestion) return tr_job_fail(place, "unknown %s %s", what, tr_shown(name).text);
    return tr_job_fail(place, "unknown %s %s: did you mean %s?", what, tr_shown(name).text, suggestion);
}

static int bad_value(const struct tr_job_slot *slot, const char *text, bool quoted, struct tr_job_place place)
{
    bool misled = quoted && slot->key->kind != TR_KIND_TEXT && !tr_job_is_list(slot->key);
    return tr_job_fail(place, "%s is «%s»: expected %s%s", slot->name.text, tr_shown(text).text,
                       tr_job_expected(slot->key).text, misled ? " without quotes" : "");
}

/* ---- kinds in words ---- */

static void append(struct tr_job_words *words, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void append(struct tr_job_words *words, const char *format, ...)
{
    size_t n = strlen(words->text);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(words->text + n, sizeof words->text - n, format, arguments);
    va_end(arguments);
}

static void append_range(struct tr_job_words *words, const struct tr_job_key *key)
{
    if (isinf(key->least)) return;
    if (key->most > 0) append(words, " from %.12g to %.12g", key->least, key->most);
    else append(words, " %s %g", key->above ? ">" : ">=", key->least);
}

static bool is_number(const struct tr_job_key *key)
{
    return key->kind == TR_KIND_INTEGER || key->kind == TR_KIND_REAL;
}

struct tr_job_words tr_job_expected(const struct tr_job_key *key)
{
    static const char *const names[] = {
        [TR_KIND_TEXT] = "text (UTF-8)",
        [TR_KIND_LIST] = "a path or a list of paths (UTF-8)",
        [TR_KIND_NAMES] = "a name or a list of names",
        [TR_KIND_BOOL] = "yes or no",
        [TR_KIND_INTEGER] = "an integer",
        [TR_KIND_REAL] = "a number",
        [TR_KIND_CHOICE] = "",
        [TR_KIND_OFTEN] = "auto, «every N» or «N per epoch» with an integer N > 0",
        [TR_KIND_PACE] = "no, a time as 30s, 5min or 2h, or «N clocks» with an integer N > 0",
        [TR_KIND_TIME] = "no, or a time as 90 or 1:30:00 (both 90 minutes), 1-12 (days-hours) or 90min"};
    struct tr_job_words words = {""};
    append(&words, "%s", names[key->kind]);
    if (is_number(key)) append_range(&words, key);
    for (size_t i = 0; key->words && key->words[i]; i++) {
        bool first = i == 0 && !is_number(key), last = !key->words[i + 1];
        append(&words, "%s%s", first ? "" : last ? " or " : ", ", key->words[i]);
    }
    return words;
}

struct tr_job_words tr_job_kind_words(const struct tr_job_key *key)
{
    static const char *const names[] = {[TR_KIND_TEXT] = "text",
                                        [TR_KIND_LIST] = "paths",
                                        [TR_KIND_NAMES] = "names",
                                        [TR_KIND_BOOL] = "yes|no",
                                        [TR_KIND_INTEGER] = "integer",
                                        [TR_KIND_REAL] = "number",
                                        [TR_KIND_CHOICE] = "",
                                        [TR_KIND_OFTEN] = "auto|every N|N per epoch",
                                        [TR_KIND_PACE] = "no|time|N clocks",
                                        [TR_KIND_TIME] = "no|time"};
    struct tr_job_words words = {""};
    append(&words, "%s", names[key->kind]);
    if (key->most > 1) append(&words, " < 2^%.0f", log2(key->most + 1));
    else if (is_number(key)) append_range(&words, key);
    for (size_t i = 0; key->words && key->words[i]; i++)
        append(&words, "%s%s", words.text[0] ? "|" : "", key->words[i]);
    return words;
}

/* ---- text to numbers ---- */

/* [+-] digits [. digits] [e [+-] digits], as in YAML's core schema, with a digit on one side of the point:
 * strtod() alone would take hexadecimals, "nan" and leading blanks. */
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
    *value = x + 0.0; /* no -0 */
    return true;
}

/* value * 10^power, if that is an integer of 64 bits. */
static bool scale(uint64_t *value, long power)
{
    for (; power > 0 && *value; power--)
        if (__builtin_mul_overflow(*value, 10, value)) return false;
    for (; power < 0 && *value; power++) {
        if (*value % 10) return false;
        *value /= 10;
    }
    return true;
}

/* Exact, where going through a double would round what has more than 53 bits: 1e6 and 20.0 are integers,
 * 1e-1 is not. */
static bool parse_integer(const char *text, uint64_t *value)
{
    if (!looks_like_a_number(text) || *text == '-') return false;
    uint64_t digits = 0;
    long zeros = 0, behind_point = 0; /* zeros: seen, and put off until a digit follows */
    bool point = false;
    for (text += *text == '+'; *text == '.' || isdigit((unsigned char)*text); text++) {
        if (*text == '.') {
            point = true;
            continue;
        }
        behind_point += point;
        zeros++;
        if (*text == '0') continue;
        if (!scale(&digits, zeros)) return false;
        if (__builtin_add_overflow(digits, (uint64_t)(*text - '0'), &digits)) return false;
        zeros = 0;
    }
    const long beyond = 4 << 20; /* more digits than any text has */
    long exponent = *text ? strtol(text + 1, NULL, 10) : 0;
    exponent = exponent > beyond ? beyond : exponent < -beyond ? -beyond : exponent;
    if (!scale(&digits, zeros - behind_point + exponent)) return false;
    *value = digits;
    return true;
}

static bool in_range(const struct tr_job_key *key, double value)
{
    if (key->most > 0 && value > key->most) return false;
    return key->above ? value > key->least : value >= key->least;
}

static bool parse_bool(const char *text, bool *value)
{
    static const char *const words[] = {"no", "yes", "false", "true", "off", "on"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (strcasecmp(text, words[i])) continue;
        *value = i % 2;
        return true;
    }
    return false;
}

/* ---- fields ---- */

bool tr_job_is_list(const struct tr_job_key *key)
{
    return key->kind == TR_KIND_LIST || key->kind == TR_KIND_NAMES;
}

static int find_word(const struct tr_job_key *key, const char *text)
{
    for (int i = 0; key->words && key->words[i]; i++)
        if (!strcmp(key->words[i], text)) return i;
    return -1;
}

static const char *integer_word(const struct tr_job_key *key, uint64_t value)
{
    uint64_t word = 0 - value;
    for (uint64_t i = 0; key->words && key->words[i]; i++)
        if (i == word) return key->words[i];
    return NULL;
}

const char *tr_job_word(const struct tr_job_slot *slot)
{
    const struct tr_job_key *key = slot->key;
    if (key->kind == TR_KIND_CHOICE) return key->words[*(const int *)slot->field];
    if (key->kind == TR_KIND_INTEGER) return integer_word(key, *(const uint64_t *)slot->field);
    if (key->kind != TR_KIND_REAL || !key->words) return NULL;
    double value = *(const double *)slot->field;
    return value < 0 ? key->words[(int)-value - 1] : NULL;
}

static bool set_integer(uint64_t *field, const struct tr_job_key *key, const char *text)
{
    int word = find_word(key, text);
    uint64_t value;
    if (word >= 0) return *field = 0 - (uint64_t)word, true;
    if (!parse_integer(text, &value) || !in_range(key, (double)value)) return false;
    *field = value;
    return true;
}

static bool set_real(double *field, const struct tr_job_key *key, const char *text)
{
    int word = find_word(key, text);
    double value;
    if (word >= 0) return *field = -(word + 1), true;
    if (!parse_real(text, &value) || !in_range(key, value)) return false;
    *field = value;
    return true;
}

static bool set_choice(int *field, const struct tr_job_key *key, const char *text)
{
    int word = find_word(key, text);
    if (word < 0) return false;
    *field = word;
    return true;
}

/* «auto», «every N» or «N per epoch», with any blanks between the words. */
static bool set_often(struct tr_job_often *field, const char *text)
{
    char number[32], tail;
    struct tr_job_often often = {.unit = TR_OFTEN_AUTO};
    if (strcmp(text, "auto") == 0) return *field = often, true;
    if (sscanf(text, "every %31s%c", number, &tail) == 1) often.unit = TR_OFTEN_EVERY;
    else {
        int end = 0;
        if (sscanf(text, "%31s per epoch%n", number, &end) != 1 || end == 0 || text[end]) return false;
        often.unit = TR_OFTEN_PER_EPOCH;
    }
    if (!parse_integer(number, &often.n) || often.n == 0 || often.n > INT64_MAX) return false;
    return *field = often, true;
}

/* ---- times ---- */

/* Others are mistakes; and within these limits numbers are written without exponents. */
#define SHORTEST_TIME 1e-3
#define LONGEST_TIME  1e9

static const struct unit {
    const char *name;
    double seconds;
} units[] = {{"ms", 1e-3}, {"s", 1}, {"min", 60}, {"h", 3600}, {"d", 86400}};
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
    count = i == 0 ? count / 1000 : count * units[i].seconds; /* 1e-3 is no number of the machine, 1000 is */
    if (count < SHORTEST_TIME || count > LONGEST_TIME) return false;
    return *seconds = count, true;
}

/* Takes digits, and the character behind them. */
static bool take_part(const char **text, double *part, char *then)
{
    size_t n = strspn(*text, "0123456789");
    char digits[16];
    if (n == 0 || n >= sizeof digits) return false;
    snprintf(digits, sizeof digits, "%.*s", (int)n, *text);
    *part = strtod(digits, NULL);
    *then = (*text)[n];
    *text += n + (*then != '\0');
    return true;
}

bool tr_job_slurm_time(const char *text, double *seconds)
{
    double part[3], days = 0;
    char then;
    int n = 0;
    if (!take_part(&text, &part[n++], &then)) return false;
    bool dated = then == '-';
    if (dated) {
        days = part[--n];
        if (!take_part(&text, &part[n++], &then)) return false;
    }
    for (; then == ':' && n < 3; n++)
        if (!take_part(&text, &part[n], &then)) return false;
    if (then) return false;
    double unit = dated || n == 3 ? 3600 : 60, sum = days * 86400; /* of the first part */
    for (int i = 0; i < n; i++, unit /= 60) sum += part[i] * unit;
    if (!(sum > 0) || sum > LONGEST_TIME) return false;
    return *seconds = sum, true;
}

static bool set_time(double *field, const char *text)
{
    if (strcmp(text, "no") == 0) return *field = 0, true;
    return tr_job_slurm_time(text, field) || tr_job_duration(text, field);
}

/* «no», a time, or «N clocks». */
static bool set_pace(struct tr_job_pace *field, const char *text)
{
    struct tr_job_pace pace = {0};
    char number[32];
    int end = 0;
    bool never = strcmp(text, "no") == 0;
    if (!never && sscanf(text, "%31s clock%n", number, &end) == 1 && end > 0) {
        if (strcmp(text + end, "s") != 0 && text[end]) return false;
        if (!parse_integer(number, &pace.clocks) || pace.clocks == 0 || pace.clocks > INT64_MAX) return false;
    } else if (!never && !tr_job_duration(text, &pace.seconds)) {
        return false;
    }
    return *field = pace, true;
}

static bool set_simple(void *field, const struct tr_job_key *key, const char *text, bool quoted)
{
    if (key->kind == TR_KIND_CHOICE) return set_choice(field, key, text);
    if (key->kind == TR_KIND_OFTEN) return set_often(field, text);
    if (key->kind == TR_KIND_PACE) return set_pace(field, text);
    if (key->kind == TR_KIND_TIME) return set_time(field, text);
    if (quoted && find_word(key, text) < 0) return false;
    if (key->kind == TR_KIND_INTEGER) return set_integer(field, key, text);
    if (key->kind == TR_KIND_REAL) return set_real(field, key, text);
    return parse_bool(text, field);
}

static int set_text(char **field, const struct tr_job_slot *slot, const char *text, struct tr_job_place place)
{
    bool may_be_empty = slot->key->kind == TR_KIND_TEXT && !*slot->key->by_default;
    if ((!*text && !may_be_empty) || !tr_utf8_valid(text)) return bad_value(slot, text, false, place);
    char *copy;
    TR_TRY(tr_copy_string(text, &copy));
    free(*field);
    *field = copy;
    return TR_OK;
}

int tr_job_set(struct tr_job_slot *slot, const char *text, bool quoted, struct tr_job_place place)
{
    if (slot->key->kind == TR_KIND_TEXT) return set_text(slot->field, slot, text, place);
    if (tr_job_is_list(slot->key)) {
        tr_job_empty_list(slot);
        return tr_job_add(slot, text, place);
    }
    return set_simple(slot->field, slot->key, text, quoted) ? TR_OK : bad_value(slot, text, quoted, place);
}

void tr_job_empty_list(struct tr_job_slot *slot)
{
    struct tr_job_list *list = slot->field;
    for (size_t i = 0; i < list->n; i++) free(list->item[i]);
    free(list->item);
    *list = (struct tr_job_list){0};
}

int tr_job_add(struct tr_job_slot *slot, const char *text, struct tr_job_place place)
{
    struct tr_job_list *list = slot->field;
    if ((list->n & (list->n - 1)) == 0) { /* full: the room doubles at each power of two */
        size_t room = list->n;
        TR_TRY(TR_GROW(&list->item, &room, list->n ? 2 * list->n : 1));
    }
    list->item[list->n] = NULL;
    TR_TRY(set_text(&list->item[list->n], slot, text, place));
    list->n++;
    return TR_OK;
}

int tr_job_split_list(struct tr_job_slot *slot, char *items, struct tr_job_place place)
{
    tr_job_empty_list(slot);
    for (char *item; (item = strsep(&items, ","));) TR_TRY(tr_job_add(slot, item, place));
    return TR_OK;
}

/* ---- from slot to slot ---- */

static size_t simple_size(const struct tr_job_key *key)
{
    switch (key->kind) {
    case TR_KIND_INTEGER: return sizeof(uint64_t);
    case TR_KIND_REAL:
    case TR_KIND_TIME: return sizeof(double);
    case TR_KIND_BOOL: return sizeof(bool);
    case TR_KIND_OFTEN: return sizeof(struct tr_job_often);
    case TR_KIND_PACE: return sizeof(struct tr_job_pace);
    default: return sizeof(int);
    }
}

/* A string may be missing: NULL. */
static int copy_text(char **to, const char *from)
{
    char *copy = NULL;
    if (from) TR_TRY(tr_copy_string(from, &copy));
    free(*to);
    *to = copy;
    return TR_OK;
}

static int copy_list(struct tr_job_slot *to, const struct tr_job_list *from)
{
    struct tr_job_place place = {"", 0};
    tr_job_empty_list(to);
    for (size_t i = 0; i < from->n; i++) TR_TRY(tr_job_add(to, from->item[i], place));
    return TR_OK;
}

int tr_job_copy(struct tr_job_slot *to, const struct tr_job_slot *from)
{
    const struct tr_job_key *key = to->key;
    if (key->kind == TR_KIND_TEXT) TR_TRY(copy_text(to->field, *(char *const *)from->field));
    else if (tr_job_is_list(key)) TR_TRY(copy_list(to, from->field));
    else memcpy(to->field, from->field, simple_size(key));
    return copy_text(to->where, *from->where);
}

static bool same_lists(const struct tr_job_list *a, const struct tr_job_list *b)
{
    if (a->n != b->n) return false;
    for (size_t i = 0; i < a->n; i++)
        if (strcmp(a->item[i], b->item[i]) != 0) return false;
    return true;
}

/* Not by memcmp(): there may be a gap between them. */
static bool same_often(const struct tr_job_often *a, const struct tr_job_often *b)
{
    return a->unit == b->unit && a->n == b->n;
}

static bool same_pace(const struct tr_job_pace *a, const struct tr_job_pace *b)
{
    return a->seconds == b->seconds && a->clocks == b->clocks;
}

bool tr_job_same(const struct tr_job_slot *a, const struct tr_job_slot *b)
{
    const struct tr_job_key *key = a->key;
    if (key->kind == TR_KIND_TEXT) return !strcmp(*(char *const *)a->field, *(char *const *)b->field);
    if (key->kind == TR_KIND_OFTEN) return same_often(a->field, b->field);
    if (key->kind == TR_KIND_PACE) return same_pace(a->field, b->field);
    if (tr_job_is_list(key)) return same_lists(a->field, b->field);
    return !memcmp(a->field, b->field, simple_size(key));
}

/* ---- where values came from ---- */

int tr_job_place_text(struct tr_job_place place, char **text)
{
    if (place.line) return tr_format(text, "%s:%zu", place.name, place.line);
    return tr_copy_string(place.name, text);
}

int tr_job_mark(struct tr_job_slot *slot, struct tr_job_place place)
{
    char *text;
    TR_TRY(tr_job_place_text(place, &text));
    free(*slot->where);
    *slot->where = text;
    return TR_OK;
}

/* ---- by name ---- */

/* The value; TR_ERR_CONFIG if there is none or its kind is not one of these (a bit each). */
static int find_typed(const struct tr_job *job, const char *name, unsigned kinds, const char *wanted,
                      struct tr_job_slot *slot)
{
    struct tr_job_place place = {job->path, 0};
    if (!tr_job_find(job, name, slot))
        return tr_job_fail_unknown(place, "key", name, tr_job_suggest_key(name).text);
    if (kinds >> slot->key->kind & 1) return TR_OK;
    return tr_job_fail(place, "%s was asked for as %s, but is %s", name, wanted,
                       tr_job_expected(slot->key).text);
}

int tr_job_real(const struct tr_job *job, const char *name, double *value)
{
    struct tr_job_slot slot;
    unsigned kinds = 1u << TR_KIND_REAL | 1u << TR_KIND_TIME | 1u << TR_KIND_INTEGER;
    TR_TRY(find_typed(job, name, kinds, "a number", &slot));
    if (slot.key->kind != TR_KIND_INTEGER) *value = *(const double *)slot.field;
    else *value = (double)*(const uint64_t *)slot.field;
    return TR_OK;
}

int tr_job_integer(const struct tr_job *job, const char *name, uint64_t *value)
{
    struct tr_job_slot slot;
    unsigned kinds = 1u << TR_KIND_INTEGER | 1u << TR_KIND_BOOL | 1u << TR_KIND_CHOICE;
    TR_TRY(find_typed(job, name, kinds, "an integer", &slot));
    if (slot.key->kind == TR_KIND_INTEGER) *value = *(const uint64_t *)slot.field;
    else if (slot.key->kind == TR_KIND_BOOL) *value = *(const bool *)slot.field;
    else *value = (uint64_t) * (const int *)slot.field;
    return TR_OK;
}

int tr_job_string(const struct tr_job *job, const char *name, const char **value)
{
    struct tr_job_slot slot;
    TR_TRY(find_typed(job, name, 1u << TR_KIND_TEXT | 1u << TR_KIND_CHOICE, "text", &slot));
    *value = slot.key->kind == TR_KIND_TEXT ? *(char *const *)slot.field : tr_job_word(&slot);
    return TR_OK;
}
