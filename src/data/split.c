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
    return (struct tr_split){TR_SPLIT_PLACE, seed, (uint64_t)ceil(ldexp(from, 53)),
                             (uint64_t)ceil(ldexp(to, 53)), 0};
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

/* Reads a date with or without a time of day, as seconds since 1970 UTC. */
static bool time_read_date(const char *p, const char *end, double *seconds)
{
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

bool tr_split_read_time(const char *text, size_t n, uint64_t *mark)
{
    double seconds;
    uint64_t bits;
    bool is_date = time_read_date(text, text + n, &seconds);
    if (!is_date && !(tr_value_is_number(text, n, &seconds) && isfinite(seconds))) return false;
    seconds += 0.0; /* changes -0 to 0 */
    memcpy(&bits, &seconds, sizeof bits);
    *mark = ((bits >> 63 ? ~bits : bits | (uint64_t)1 << 63) & ~(uint64_t)1) | is_date;
    return true;
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

/* Sets found[i] to the key of all ranks that has place[i] in ascending order, from 0; UINT64_MAX if there are not so many keys. */
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
    if (s->node_rows) {
        const struct tr_data_state *node = s->node_rows->train->state;
        size_t all = (size_t)s->node_rows->train->total_rows, first = all * worker / workers;
        marks->n = all * (worker + 1) / workers - first;
        TR_TRY(TR_NEW(&marks->mark, marks->n));
        memcpy(marks->mark, node->row_mark + first, marks->n * sizeof *marks->mark);
        return TR_OK;
    }
    struct tr_reader_options options = tr_data_reading(data, NULL);
    struct tr_matrix none = {0};
    struct tr_read_report report;
    options.marks = marks;
    options.marks_only = true;
    int status = tr_read_matrix(&s->files, worker, workers, &options, &none, &report);
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

int tr_split_open(tr_data *data, const tr_data *like)
{
    struct tr_data_state *s = data->state;
    tr_context *tr = s->tr;
    const tr_job *job = tr->job;
    struct tr_split *p = &s->split;
    const char *key = *job->data.group ? "data.group" : "data.time",
               *column = *job->data.group ? job->data.group : job->data.time;
    bool node = s->form & TR_DATA_NODE, queries = false, named = false;
    for (size_t i = 0; i < s->files.n; i++) {
        queries = queries || s->heads[i].queries;
        named = named || s->heads[i].named;
    }
    if ((!*column && !queries) || (p->by == TR_SPLIT_NONE && !node) || (node && s->test)) return TR_OK;
    if (*column && named)
        return tr_agree(tr, tr_fail(TR_ERR_CONFIG,
                                    "%s: %s is for text, and %s is an HDF5 file: expected csv files",
                                    tr_job_where(job, key), key, s->files.file[0].path));
    *p = (struct tr_split){*job->data.time ? TR_SPLIT_TIME : TR_SPLIT_GROUP, job->seed, UINT64_MAX,
                           UINT64_MAX, 0};
    if (*column) p->column = tr_schema_find(s->schema, column);
    if (node) return TR_OK;
    if (like && like->state->split.by == p->by && like->state->split.from != p->from) {
        *p = like->state->split;
        return TR_OK;
    }

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
                         s->files.file[0].path, column);
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
