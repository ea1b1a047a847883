#define _GNU_SOURCE
#include "data/split.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "data/dataset.h"
#include "data/exchange.h"
#include "data/reader.h"
#include "trireme/collective.h"

struct tr_split tr_split_of_share(double from, double to, uint64_t seed)
{
    if (to == 0) return (struct tr_split){.by = TR_SPLIT_NONE};
    return (struct tr_split){.by = TR_SPLIT_PLACE,
                             .seed = seed,
                             .from = (uint64_t)ceil(ldexp(from, 53)),
                             .to = (uint64_t)ceil(ldexp(to, 53))};
}

/* ---- labels ---- */

uint64_t tr_split_number_mark(float label)
{
    uint32_t bits;
    label += 0.0f; /* changes -0 to 0 */
    memcpy(&bits, &label, sizeof bits);
    return tr_mix((uint64_t)bits + 1) << 1 | (label == rintf(label));
}

uint64_t tr_split_text_mark(const char *text, size_t n)
{
    char line[TR_VALUE_DIGITS + 32];
    float number;
    if (n <= TR_VALUE_DIGITS) {
        memcpy(line, text, n);
        memset(line + n, '\n', sizeof line - n);
        if (tr_read_float(line, &number) == line + n) return tr_split_number_mark(number);
    }
    return tr_text_hash(text, n) << 1 | 1;
}

uint64_t tr_split_id_mark(const char *text, size_t n)
{
    uint64_t number;
    return tr_id_number(text, n, &number) ? number : tr_text_hash(text, n);
}

/* ---- times ---- */

/* Reads `digits` digits, and returns whether the number is between two limits. */
static bool time_read_digits(const char **p, const char *end, int digits, int least, int most, int *number)
{
    *number = 0;
    for (int i = 0; i < digits; i++, ++*p) {
        if (*p == end || !tr_is_digit(**p)) return false;
        *number = *number * 10 + (**p - '0');
    }
    return *number >= least && *number <= most;
}

/* Reads hours and minutes with or without a colon, as in 12:30. */
static bool time_read_clock(const char **p, const char *end, int *minutes)
{
    int hour, minute = 0;
    if (!time_read_digits(p, end, 2, 0, 23, &hour)) return false;
    bool colon = *p < end && **p == ':';
    *p += colon;
    if ((colon || (*p < end && tr_is_digit(**p))) && !time_read_digits(p, end, 2, 0, 59, &minute))
        return false;
    *minutes = hour * 60 + minute;
    return true;
}

bool tr_split_read_date(const char *p, size_t n, double *seconds)
{
    const char *end = p + n;
    static const int days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    int year, month, day, minutes = 0, second = 0, offset = 0;
    double fraction = 0;
    if (!time_read_digits(&p, end, 4, 0, 9999, &year) || p == end || *p++ != '-' ||
        !time_read_digits(&p, end, 2, 1, 12, &month) || p == end || *p++ != '-' ||
        !time_read_digits(&p, end, 2, 1, 31, &day))
        return false;
    bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    if (day > days[month - 1] + (month == 2 && leap)) return false;
    if (p < end) {
        if (*p != 'T' && *p != 't' && *p != ' ') return false;
        p++;
        if (!time_read_clock(&p, end, &minutes)) return false;
        if (p < end && *p == ':') {
            p++;
            if (!time_read_digits(&p, end, 2, 0, 60, &second)) return false;
        }
        if (p < end && (*p == '.' || *p == ',')) {
            double unit = 0.1;
            for (p++; p < end && tr_is_digit(*p); p++, unit /= 10) fraction += unit * (*p - '0');
        }
        if (p < end && (*p == 'Z' || *p == 'z')) {
            p++;
        } else if (p < end && (*p == '+' || *p == '-')) {
            int sign = *p++ == '+' ? 1 : -1;
            if (!time_read_clock(&p, end, &offset)) return false;
            offset *= sign;
        }
    }
    struct tm tm = {.tm_year = year - 1900, .tm_mon = month - 1, .tm_mday = day};
    *seconds = (double)timegm(&tm) + 60.0 * (minutes - offset) + second + fraction;
    return p == end;
}

const char *tr_split_read_time(const char *text, size_t n, uint64_t *mark)
{
    double seconds;
    uint64_t bits;
    bool is_date = tr_split_read_date(text, n, &seconds);
    if (n == 0) return "is missing, expected a time";
    if (!is_date && !(tr_value_is_number(text, n, &seconds) && isfinite(seconds)))
        return "is no time, expected numbers, or dates as 2024-01-31 or 2024-01-31T12:30:00";
    seconds += 0.0; /* changes -0 to 0 */
    memcpy(&bits, &seconds, sizeof bits);
    *mark = ((bits >> 63 ? ~bits : bits | (uint64_t)1 << 63) & ~(uint64_t)1) | is_date;
    return NULL;
}

/* Writes the time of a mark. */
static void time_print(uint64_t mark, char text[32])
{
    double seconds;
    bool is_date = mark & 1;
    mark &= ~(uint64_t)1;
    uint64_t bits = mark >> 63 ? mark & ~((uint64_t)1 << 63) : ~mark;
    struct tm tm;
    memcpy(&seconds, &bits, sizeof seconds);
    time_t whole = (time_t)(is_date ? floor(seconds) : 0);
    if (!is_date || !gmtime_r(&whole, &tm)) snprintf(text, 32, "%.15g", seconds);
    else strftime(text, 32, whole % 86400 == 0 ? "%Y-%m-%d" : "%Y-%m-%dT%H:%M:%S", &tm);
}

/* ---- keys of all ranks ---- */

struct keys {
    uint64_t *key; /* ascending */
    size_t n;
};

static int key_compare(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static void keys_sort(struct keys *k)
{
    if (k->n > 0) qsort(k->key, k->n, sizeof *k->key, key_compare);
}

/* Returns the number of keys of this rank that are below a limit. */
static uint64_t keys_below(const struct keys *k, uint64_t limit)
{
    size_t low = 0, high = k->n;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (k->key[middle] < limit) low = middle + 1;
        else high = middle;
    }
    return low;
}

/* Sets *distinct to the distinct keys of all ranks in this rank's range of the keys. */
static int keys_unite(tr_context *tr, const struct keys *k, struct keys *distinct)
{
    size_t ranks = (size_t)tr_set_size(tr, TR_SET_ALL), n = 0;
    TR_FREED uint64_t *own = NULL, *count = NULL, *received = NULL;
    TR_TRY(tr_agree(tr, TR_NEW(&own, k->n)));
    TR_TRY(tr_agree(tr, TR_NEW(&count, ranks)));
    TR_TRY(tr_agree(tr, TR_NEW(&received, ranks)));
    for (size_t i = 0; i < k->n; i++) {
        if (i > 0 && k->key[i] == k->key[i - 1]) continue;
        own[n++] = k->key[i];
        count[(k->key[i] >> 32) * ranks >> 32]++;
    }
    TR_TRY(tr_all_to_all(tr, TR_SET_ALL, own, count, sizeof *own, (void **)&distinct->key, received));
    for (size_t m = 0; m < ranks; m++) distinct->n += received[m];
    keys_sort(distinct);
    n = distinct->n;
    distinct->n = 0;
    for (size_t i = 0; i < n; i++)
        if (i == 0 || distinct->key[i] != distinct->key[i - 1])
            distinct->key[distinct->n++] = distinct->key[i];
    return TR_OK;
}

/* Sets found[i] to the key of all ranks that has place[i] in ascending order, from 0; UINT64_MAX if there are fewer keys. */
static int keys_select(tr_context *tr, const struct keys *k, const uint64_t place[2], uint64_t found[2])
{
    found[0] = found[1] = 0;
    for (int bit = 63; bit >= 0; bit--) {
        uint64_t below[2];
        for (int i = 0; i < 2; i++) below[i] = keys_below(k, found[i] | (uint64_t)1 << bit);
        TR_TRY(tr_all_reduce(tr, TR_SET_ALL, TR_SUM, TR_I64, below, 2));
        for (int i = 0; i < 2; i++)
            if (below[i] <= place[i]) found[i] |= (uint64_t)1 << bit;
    }
    return TR_OK;
}

/* ---- the split of a job ---- */

/* Lists the marks of this worker's share of the rows. */
static int split_list_marks(tr_data *data, struct tr_marks *marks)
{
    const struct tr_data_state *s = data->state;
    const tr_context *tr = s->tr;
    if (!tr_is(tr, TR_SLAVE)) return TR_OK;
    size_t worker = (size_t)(tr->me.group * tr->layout.group_size + tr->me.member);
    size_t workers = (size_t)tr_layout_workers(&tr->layout);
    if (s->node_rows && s->split.by != TR_SPLIT_LABEL) {
        const struct tr_data_state *node = s->node_rows->train->state;
        size_t all = (size_t)s->node_rows->train->total_rows, first = all * worker / workers;
        marks->n = all * (worker + 1) / workers - first;
        TR_TRY(TR_NEW(&marks->mark, marks->n));
        memcpy(marks->mark, node->row_mark + first, marks->n * sizeof *marks->mark);
        return TR_OK;
    }
    struct tr_reader_options options = tr_data_reading(data, NULL);
    struct tr_matrix none = {0};
    struct tr_triples no_triples = {0};
    struct tr_read_report report;
    options.marks = marks;
    options.marks_only = true;
    int status = tr_data_is_triples(data)
                     ? tr_read_triples(&s->files, worker, workers, &options, &no_triples, &report)
                     : tr_read_matrix(&s->files, worker, workers, &options, &none, &report);
    tr_triples_free(&no_triples);
    tr_matrix_free(&none);
    return status;
}

/* Sets the places of the first held-out key and of the first key behind it, among the `all` keys in ascending order. */
static int split_places(const struct tr_data_state *s, uint64_t all, uint64_t place[2])
{
    const tr_job *job = s->tr->job;
    const struct tr_job_held_out *held = &s->held_out;
    bool time = s->split.by == TR_SPLIT_TIME;
    uint64_t folds = (uint64_t)held->folds, fold = (uint64_t)held->fold, needs = folds > 0 ? folds + time : 2;
    if (all < needs)
        return tr_fail(TR_ERR_CONFIG, "%s: data.test: %s needs %llu %s, but data.train has %llu",
                       tr_job_where(job, "data.test"), job->data.test.item[0], (unsigned long long)needs,
                       time ? "rows" : "groups", (unsigned long long)all);
    if (folds > 0 && time) { /* of folds + 1 parts, the first is only trained on */
        place[0] = all - (folds + 1 - fold) * (all / (folds + 1));
        place[1] = place[0] + all / (folds + 1);
    } else if (folds > 0) {
        place[0] = all * (fold - 1) / folds;
        place[1] = all * fold / folds;
    } else {
        double share = round(held->to * (double)all);
        uint64_t n = share < 1 ? 1 : share > (double)(all - 1) ? all - 1 : (uint64_t)share;
        place[0] = time ? all - n : 0;
        place[1] = time ? all : n;
    }
    return TR_OK;
}

/* Prints the number of held-out rows. sum: of the rows below split.from, below split.to, and of all rows. */
static int split_say(const struct tr_data_state *s, const uint64_t sum[3], const uint64_t groups[2])
{
    const tr_job *job = s->tr->job;
    const struct tr_split *p = &s->split;
    unsigned long long held = sum[1] - sum[0], all = sum[2];
    char from[32], to[48] = "";
    if (p->by == TR_SPLIT_GROUP) {
        tr_say(s->tr, "held out:      %llu of %llu groups, %llu of %llu rows", (unsigned long long)groups[0],
               (unsigned long long)groups[1], held, all);
        return TR_OK;
    }
    if (held == 0 || sum[0] == 0)
        return tr_fail(
            TR_ERR_DATA, "%s: data.time: data.test: %s leaves no row to %s: too many rows have one time",
            tr_job_where(job, "data.time"), job->data.test.item[0], held == 0 ? "test with" : "learn from");
    time_print(p->from, from);
    if (p->to < UINT64_MAX) {
        memcpy(to, " to before ", sizeof " to before ");
        time_print(p->to, to + strlen(to));
    }
    tr_say(s->tr, "held out:      %llu of %llu rows, from %s%s; %llu rows before them are learnt from", held,
           all, from, *to ? to : " on", (unsigned long long)sum[0]);
    return TR_OK;
}

/* Decides how data.train is split. */
static enum tr_split_by split_decide(const tr_data *data, const tr_data *like)
{
    const struct tr_data_state *s = data->state;
    const tr_job *job = s->tr->job;
    bool queries = false, libsvm = data->format == TR_FORMAT_LIBSVM;
    bool classes = (like ? like : data)->state->form & (TR_DATA_CLASSES | TR_DATA_FEW_CLASSES);
    for (size_t i = 0; i < s->files.n; i++) queries = queries || s->heads[i].queries;
    if (*job->data.time) return TR_SPLIT_TIME;
    if (*job->data.group || queries) return TR_SPLIT_GROUP;
    if (s->split.by == TR_SPLIT_PLACE && data->format == TR_FORMAT_RATINGS) return TR_SPLIT_PAIR;
    if (s->split.by == TR_SPLIT_NONE || !classes) return s->split.by;
    bool labels = s->schema ? s->schema->label < s->schema->n : libsvm || tr_data_hdf5_head(data)->labelled;
    return labels ? TR_SPLIT_LABEL : TR_SPLIT_PLACE;
}

/* Finds the limits of groups or times. */
static int split_by_keys(tr_data *data)
{
    struct tr_data_state *s = data->state;
    tr_context *tr = s->tr;
    struct tr_split *p = &s->split;
    struct tr_marks marks = {.n = 0};
    TR_FREED uint64_t *key_of_row = NULL;
    int status = split_list_marks(data, &marks);
    key_of_row = marks.mark;
    TR_TRY(tr_agree(tr, status));
    struct keys rows = {key_of_row, marks.n}, distinct = {.n = 0};
    for (size_t i = 0; i < rows.n && p->by == TR_SPLIT_GROUP; i++)
        rows.key[i] = tr_mix(tr_mix(p->seed) ^ rows.key[i]);
    keys_sort(&rows);
    if (p->by == TR_SPLIT_GROUP) TR_TRY(keys_unite(tr, &rows, &distinct));
    TR_FREED uint64_t *key_of_group = distinct.key;
    const struct keys *counted = p->by == TR_SPLIT_GROUP ? &distinct : &rows;
    uint64_t all = counted->n, place[2] = {0}, found[2];
    int32_t kinds[2] = {0}; /* there are numbers; there are dates */
    for (size_t i = 0; i < rows.n; i++) kinds[rows.key[i] & 1] = 1;
    TR_TRY(tr_all_reduce(tr, TR_SET_ALL, TR_SUM, TR_I64, &all, 1));
    TR_TRY(tr_all_reduce(tr, TR_SET_ALL, TR_MAX, TR_I32, kinds, 2));
    if (p->by == TR_SPLIT_TIME && kinds[0] && kinds[1])
        status = tr_fail(TR_ERR_DATA, "%s: column %s of data.time has numbers and dates, expected one kind",
                         s->files.file[0].path, tr->job->data.time);
    if (status == TR_OK) status = split_places(s, all, place);
    TR_TRY(tr_agree(tr, status));
    TR_TRY(keys_select(tr, counted, place, found));
    p->from = found[0];
    p->to = found[1];
    uint64_t sum[3] = {keys_below(&rows, p->from), keys_below(&rows, p->to), rows.n},
             groups[2] = {place[1] - place[0], all};
    TR_TRY(tr_all_reduce(tr, TR_SET_ALL, TR_SUM, TR_I64, sum, 3));
    return tr_agree(tr, split_say(s, sum, groups));
}

static int pair_compare(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;
    return x[0] != y[0] ? key_compare(x, y) : key_compare(x + 1, y + 1);
}

/* Finds the limits of one label with n rows, whose keys are key[0], key[2], ... The rows that remain after a division by the number
 * of folds, and the rounding, follow from `before`, a number drawn by the seed plus the number of rows with smaller marks. So all
 * folds have about the same number of rows. */
static struct tr_split_label split_label(const struct tr_job_held_out *held, const uint64_t *key, uint64_t n,
                                         uint64_t before)
{
    uint64_t first = 0, size;
    if (held->folds > 0) {
        uint64_t folds = (uint64_t)held->folds, rest = n % folds,
                 turn = ((uint64_t)held->fold - 1 + folds - before % folds) % folds;
        first = turn * (n / folds) + (turn < rest ? turn : rest);
        size = n / folds + (turn < rest);
    } else {
        size = (uint64_t)(round((double)(before + n) * held->to) - round((double)before * held->to));
        if (size == n && n > 1) size--; /* each label of several rows is learnt */
    }
    if (size == 0) return (struct tr_split_label){.from = 0};
    return (struct tr_split_label){.from = key[2 * first],
                                   .to = first + size < n ? key[2 * (first + size)] : UINT64_MAX};
}

/* Finds the limits of each label if a label has few rows to test with; otherwise the split is by place. */
static int split_by_label(tr_data *data)
{
    struct tr_data_state *s = data->state;
    tr_context *tr = s->tr;
    struct tr_split *p = &s->split;
    const struct tr_job_held_out *held = &s->held_out;
    struct tr_marks marks = {.n = 0};
    TR_FREED uint64_t *own = NULL, *pair = NULL;
    uint64_t numbers = 0, labels = 0, least = UINT64_MAX, rows, held_out = 0;
    const uint64_t drawn =
        tr_mix(p->seed) % 1024; /* the seed decides whether a row that is alone is held out */
    int status = split_list_marks(data, &marks);
    own = marks.mark;
    TR_TRY(tr_agree(tr, status));
    p->by = TR_SPLIT_PLACE;
    rows = marks.n / 2;
    TR_TRY(tr_all_reduce(tr, TR_SET_ALL, TR_SUM, TR_I64, &rows, 1));
    if (rows > TR_SPLIT_MOST_ROWS) return TR_OK;
    TR_TRY(tr_gather_to_all(tr, TR_SET_ALL, own, marks.n, sizeof *own, (void **)&pair, &numbers));
    size_t n = (size_t)numbers / 2;
    bool integers = true;
    if (n > 0) qsort(pair, n, 2 * sizeof *pair, pair_compare);
    for (size_t i = 0, end; i < n; i = end, labels++) {
        for (end = i; end < n && pair[2 * end] == pair[2 * i];) end++;
        if (end - i < least) least = end - i;
        integers = integers && pair[2 * i] & 1;
    }
    bool classes = s->form & TR_DATA_CLASSES || tr_labels_may_be_classes(labels, integers);
    if (!classes || labels > TR_SPLIT_MOST_LABELS ||
        (double)least * (held->to - held->from) >= TR_SPLIT_FEW_ROWS)
        return TR_OK;
    TR_TRY(tr_agree(tr, TR_NEW(&p->label, labels)));
    for (size_t i = 0, end; i < n; i = end) {
        for (end = i; end < n && pair[2 * end] == pair[2 * i];) end++;
        struct tr_split_label label = split_label(held, pair + 2 * i + 1, end - i, i + drawn);
        label.mark = pair[2 * i];
        for (size_t k = i; k < end; k++)
            held_out += pair[2 * k + 1] >= label.from && pair[2 * k + 1] < label.to;
        p->label[p->labels++] = label;
    }
    p->by = TR_SPLIT_LABEL;
    tr_say(tr, "held out:      %llu of %zu rows, the same share of each of %llu labels",
           (unsigned long long)held_out, n, (unsigned long long)labels);
    return TR_OK;
}

int tr_split_open(tr_data *data, const tr_data *like)
{
    struct tr_data_state *s = data->state;
    const tr_job *job = s->tr->job;
    struct tr_split *p = &s->split;
    const char *key = *job->data.group ? "data.group" : "data.time",
               *column = *job->data.group ? job->data.group : job->data.time;
    enum tr_split_by by = split_decide(data, like);
    bool node = s->form & TR_DATA_NODE, marks = by == TR_SPLIT_GROUP || by == TR_SPLIT_TIME, named = false;
    if (by == TR_SPLIT_NONE || (p->by == TR_SPLIT_NONE && !node) || (node && (s->test || !marks)))
        return TR_OK;
    if (like && like->state->split.settled) {
        *p = like->state->split;
        p->label = NULL;
        TR_TRY(tr_agree(s->tr, TR_NEW(&p->label, p->labels)));
        if (p->labels > 0) memcpy(p->label, like->state->split.label, p->labels * sizeof *p->label);
        return TR_OK;
    }
    for (size_t i = 0; i < s->files.n; i++) named = named || s->heads[i].named;
    if (*column && named)
        return tr_agree(s->tr, tr_fail(TR_ERR_CONFIG,
                                       "%s: %s is for text, and %s is an HDF5 file: expected csv files",
                                       tr_job_where(job, key), key, s->files.file[0].path));
    p->by = by;
    if (s->schema) p->column = *column ? tr_schema_find(s->schema, column) : s->schema->label;
    if (marks) {
        p->seed = job->seed;
        p->from = p->to = UINT64_MAX; /* for rows of a node, none of which is held out */
    }
    if (node) return TR_OK;
    p->settled = true;
    return marks ? split_by_keys(data) : by == TR_SPLIT_LABEL ? split_by_label(data) : TR_OK;
}
