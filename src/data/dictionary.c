#include "data/dictionary.h"

#include <stdlib.h>
#include <string.h>

#include "data/exchange.h"

/* What travels at once: values of about so many bytes of each worker. With fewer bytes in all there are fewer owners, as many as
 * get so many each: the number of messages follows the bytes, and not the square of the ranks. */
enum { ROUND_BYTES = 1 << 23, OWNER_BYTES = 1 << 18 };

struct tr_dictionary {
    uint64_t owners; /* workers 0 .. owners - 1 have parts */
    /* what this worker owns by hash: the column's four bytes and the value, with their numbers */
    struct tr_ids owned;
    uint32_t *number;
    tr_names *names; /* its range of all values in their order */
};

/* A value on its way; its text follows, filled up to 8 bytes. */
struct entry {
    uint64_t count;
    uint32_t column, length;
};

static size_t filled(size_t n)
{
    return (n + 7) / 8 * 8;
}

/* ---- values in rounds, to their owners ---- */

struct ref {
    uint32_t column, place, owner;
};

struct rounds {
    tr_context *tr;
    const struct tr_counted *mine;
    size_t n, workers, owners;
    size_t column, place;     /* where the next round begins */
    struct ref *ref, *as_met; /* of this round, by owner, and as they were met */
    size_t refs, capacity, met_capacity;
    uint64_t *count, *bytes; /* for each worker … */
    uint64_t *got;           /* … and from each */
};

static int rounds_open(struct rounds *r, tr_context *tr, const struct tr_counted *mine, size_t n,
                       uint64_t owners)
{
    *r = (struct rounds){.tr = tr,
                         .mine = mine,
                         .n = n,
                         .workers = (size_t)tr_layout_workers(&tr->layout),
                         .owners = (size_t)owners};
    TR_TRY(TR_NEW(&r->count, 3 * r->workers));
    r->bytes = r->count + r->workers;
    r->got = r->bytes + r->workers;
    return TR_OK;
}

static void rounds_close(struct rounds *r)
{
    free(r->ref);
    free(r->as_met);
    free(r->count);
}

/* By the bytes of all workers' values. */
static int choose_owners(tr_context *tr, const struct tr_counted *mine, size_t n, uint64_t *owners)
{
    uint64_t bytes = 0, workers = (uint64_t)tr_layout_workers(&tr->layout);
    for (size_t c = 0; c < n; c++)
        if (mine[c].values->n > 0)
            bytes += mine[c].values->n * sizeof(struct entry) + mine[c].values->begin[mine[c].values->n];
    TR_TRY(tr_all_reduce(tr, TR_SET_WORKERS, TR_SUM, TR_I64, &bytes, 1));
    *owners = 1 + bytes / OWNER_BYTES < workers ? 1 + bytes / OWNER_BYTES : workers;
    return TR_OK;
}

static uint32_t owner_of(const struct rounds *r, uint32_t column, const char *text, size_t n)
{
    return (uint32_t)((tr_mix(tr_text_hash(text, n) + column) >> 20) % r->owners);
}

/* From as_met to ref, those of an owner as they were met. */
static int sort_refs(struct rounds *r)
{
    size_t *next, at = 0;
    TR_TRY(TR_GROW(&r->ref, &r->capacity, r->refs));
    TR_TRY(TR_NEW(&next, r->workers));
    for (size_t w = 0; w < r->workers; at += r->count[w++]) next[w] = at;
    for (size_t i = 0; i < r->refs; i++) r->ref[next[r->as_met[i].owner]++] = r->as_met[i];
    free(next);
    return TR_OK;
}

/* Lists the values of the next round; *more: some worker has any. The same lists each time that all is gone through. */
static int next_round(struct rounds *r, bool *more)
{
    size_t size = 0;
    r->refs = 0;
    memset(r->count, 0, 2 * r->workers * sizeof *r->count);
    for (; r->column < r->n && size < ROUND_BYTES; r->column++, r->place = 0) {
        const struct tr_ids *values = r->mine[r->column].values;
        for (; r->place < values->n && size < ROUND_BYTES; r->place++) {
            size_t n;
            const char *text = tr_ids_text(values, r->place, &n);
            if (r->mine[r->column].count[r->place] == 0) continue;
            TR_TRY(TR_GROW(&r->as_met, &r->met_capacity, r->refs + 1));
            struct ref ref = {(uint32_t)r->column, (uint32_t)r->place,
                              owner_of(r, (uint32_t)r->column, text, n)};
            size += sizeof(struct entry) + filled(n);
            r->count[ref.owner]++;
            r->bytes[ref.owner] += sizeof(struct entry) + filled(n);
            r->as_met[r->refs++] = ref;
        }
        if (r->place < values->n) break;
    }
    TR_TRY(sort_refs(r));
    int32_t any = r->refs > 0;
    TR_TRY(tr_all_reduce(r->tr, TR_SET_WORKERS, TR_MAX, TR_I32, &any, 1));
    *more = any;
    return TR_OK;
}

static char *put_entry(char *to, const struct entry *e, const char *text)
{
    memcpy(to, e, sizeof *e);
    memcpy(to + sizeof *e, text, e->length);
    memset(to + sizeof *e + e->length, 0, filled(e->length) - e->length);
    return to + sizeof *e + filled(e->length);
}

static const char *get_entry(const char *from, struct entry *e, const char **text)
{
    memcpy(e, from, sizeof *e);
    *text = from + sizeof *e;
    return *text + filled(e->length);
}

/* Hands the round's values to their owners: *received (to be freed) has what came here, so many bytes of each worker. */
static int send_round(struct rounds *r, char **received)
{
    char *sent, *to;
    size_t size = 0;
    for (size_t w = 0; w < r->workers; w++) size += r->bytes[w];
    TR_TRY(TR_NEW(&sent, size));
    to = sent;
    for (size_t i = 0; i < r->refs; i++) {
        const struct ref *ref = &r->ref[i];
        size_t n;
        const char *text = tr_ids_text(r->mine[ref->column].values, ref->place, &n);
        struct entry e = {r->mine[ref->column].count[ref->place], ref->column, (uint32_t)n};
        to = put_entry(to, &e, text);
    }
    int status = tr_all_to_all(r->tr, TR_SET_WORKERS, sent, r->bytes, 1, (void **)received, r->got);
    free(sent);
    return status;
}

/* The column's number and the value, as one text; *key has room for it. */
static int make_key(const struct entry *e, const char *text, char **key, size_t *capacity)
{
    TR_TRY(TR_GROW(key, capacity, e->length + sizeof e->column));
    memcpy(*key, &e->column, sizeof e->column);
    memcpy(*key + sizeof e->column, text, e->length);
    return TR_OK;
}

/* ---- owners: counting ---- */

struct owner {
    struct tr_dictionary *d;
    uint64_t *count; /* of each value that is owned */
    char *key;
    size_t capacity, key_capacity;
};

static int add_entries(struct owner *o, const char *from, const char *end)
{
    while (from < end) {
        struct entry e;
        const char *text;
        uint32_t place;
        size_t known = o->d->owned.n;
        from = get_entry(from, &e, &text);
        TR_TRY(make_key(&e, text, &o->key, &o->key_capacity));
        TR_TRY(tr_ids_add_text(&o->d->owned, o->key, e.length + sizeof e.column, &place));
        TR_TRY(TR_GROW(&o->count, &o->capacity, o->d->owned.n));
        if (o->d->owned.n > known) o->count[place] = 0;
        o->count[place] += e.count;
    }
    return TR_OK;
}

static int count_all(struct rounds *r, struct owner *o)
{
    for (bool more = true; more;) {
        char *received = NULL;
        size_t n = 0;
        TR_TRY(next_round(r, &more));
        if (!more) break;
        TR_TRY(send_round(r, &received));
        for (size_t w = 0; w < r->workers; w++) n += r->got[w];
        int status = add_entries(o, received, received + n);
        free(received);
        TR_TRY(status);
    }
    return TR_OK;
}

/* ---- numbering: by the order of texts that begin with the column and the count ---- */

enum { BEFORE_VALUE = sizeof(uint32_t) + sizeof(uint64_t) };

/* The highest byte first, so that texts are in the order of the numbers. */
static void put_number(char *to, uint64_t number, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) to[i] = (char)(number >> 8 * (bytes - 1 - i));
}

static uint32_t column_of(const char *text)
{
    uint32_t column = 0;
    for (size_t i = 0; i < sizeof column; i++) column = column << 8 | (unsigned char)text[i];
    return column;
}

/* The values that this worker owns and that are frequent enough: column, count (the largest first) and value of each, … */
struct ordered {
    struct tr_ids texts;
    uint32_t *place, *number; /* … where it is among those owned, and its number among all of all columns */
};

/* total: how many such values each column has. */
static int list_owned(const struct owner *o, uint64_t min_count, struct ordered *q, uint64_t *total)
{
    const struct tr_ids *owned = &o->d->owned;
    char *text = NULL;
    size_t capacity = 0, n;
    uint32_t column, at;
    TR_TRY(TR_NEW(&q->place, owned->n));
    TR_TRY(TR_NEW(&q->number, owned->n));
    int status = TR_OK;
    for (size_t i = 0; i < owned->n && status == TR_OK; i++) {
        const char *key = tr_ids_text(owned, i, &n);
        if (o->count[i] < min_count) continue;
        memcpy(&column, key, sizeof column);
        n -= sizeof column;
        status = TR_GROW(&text, &capacity, BEFORE_VALUE + n);
        if (status != TR_OK) break;
        put_number(text, column, sizeof column);
        put_number(text + sizeof column, ~o->count[i], sizeof *o->count);
        memcpy(text + BEFORE_VALUE, key + sizeof column, n);
        status = tr_ids_append_text(&q->texts, text, BEFORE_VALUE + n, &at);
        if (status != TR_OK) break;
        q->place[at] = (uint32_t)i;
        total[column]++;
    }
    free(text);
    return status;
}

/* The number in its column of what has this number among all; TR_NO_NUMBER: it gets none. */
static uint32_t number_in_column(const char *text, uint64_t number, const uint64_t *begin,
                                 uint64_t most_values)
{
    uint64_t k = number - begin[column_of(text)];
    return k < most_values && k < TR_NO_NUMBER ? (uint32_t)k : TR_NO_NUMBER;
}

/* Numbers what is owned; values of this worker's range of all go into the list. total: of all workers. */
static int number_owned(struct tr_dictionary *d, const struct ordered *q, const tr_names *all, size_t n,
                        uint64_t most_values, const uint64_t *total, struct tr_ids *list)
{
    uint64_t *begin, first;
    size_t length;
    uint32_t place;
    TR_TRY(TR_NEW(&begin, n));
    for (size_t c = 1; c < n; c++) begin[c] = begin[c - 1] + total[c - 1];
    int status = TR_NEW(&d->number, d->owned.n);
    for (size_t i = 0; i < d->owned.n && status == TR_OK; i++) d->number[i] = TR_NO_NUMBER;
    for (size_t i = 0; i < q->texts.n && status == TR_OK; i++)
        d->number[q->place[i]] =
            number_in_column(tr_ids_text(&q->texts, i, &length), q->number[i], begin, most_values);
    const struct tr_ids *range = tr_names_here(all, &first);
    for (size_t i = 0; i < range->n && status == TR_OK; i++) {
        const char *text = tr_ids_text(range, i, &length);
        if (number_in_column(text, first + i, begin, most_values) != TR_NO_NUMBER)
            status = tr_ids_append_text(list, text + BEFORE_VALUE, length - BEFORE_VALUE, &place);
    }
    free(begin);
    return status;
}

/* ---- asking ---- */

/* The owners' answers to a round, in the order of what was asked. */
static int answer_round(struct rounds *r, const struct tr_dictionary *d, uint32_t **answers)
{
    char *received = NULL, *key = NULL;
    size_t n = 0, capacity = 0, key_capacity = 0;
    uint32_t *answer = NULL;
    int status = send_round(r, &received);
    const char *from = received;
    for (size_t w = 0; w < r->workers && status == TR_OK; w++) {
        const char *end = from + r->got[w];
        for (r->got[w] = 0; from < end && status == TR_OK; r->got[w]++) {
            struct entry e;
            const char *text;
            from = get_entry(from, &e, &text);
            status = make_key(&e, text, &key, &key_capacity);
            if (status == TR_OK) status = TR_GROW(&answer, &capacity, n + 1);
            if (status != TR_OK) break;
            uint32_t place = tr_ids_find_text(&d->owned, key, e.length + sizeof e.column);
            answer[n++] = place == UINT32_MAX ? TR_NO_NUMBER : d->number[place];
        }
    }
    if (status == TR_OK)
        status =
            tr_all_to_all(r->tr, TR_SET_WORKERS, answer, r->got, sizeof *answer, (void **)answers, r->count);
    free(received);
    free(key);
    free(answer);
    return status;
}

static int find_all(tr_context *tr, const struct tr_dictionary *d, const struct tr_counted *mine, size_t n,
                    uint32_t **number)
{
    struct rounds r;
    int status = rounds_open(&r, tr, mine, n, d->owners);
    for (size_t c = 0; c < n && status == TR_OK; c++) status = TR_NEW(&number[c], mine[c].values->n);
    for (bool more = true; status == TR_OK;) {
        uint32_t *answers = NULL;
        status = next_round(&r, &more);
        if (status != TR_OK || !more) break;
        status = answer_round(&r, d, &answers);
        for (size_t i = 0; i < r.refs && status == TR_OK; i++)
            number[r.ref[i].column][r.ref[i].place] = answers[i];
        free(answers);
    }
    rounds_close(&r);
    return status;
}

int tr_dictionary_find(tr_context *tr, const struct tr_dictionary *dictionary, const struct tr_counted *mine,
                       size_t n, uint32_t **number)
{
    return tr_agree(tr, tr_is(tr, TR_SLAVE) ? find_all(tr, dictionary, mine, n, number) : TR_OK);
}

/* ---- all of it ---- */

/* met: how many values each column has before any are left out; total: after those that are not frequent enough. */
static int count_owned(tr_context *tr, const struct tr_counted *mine, size_t n, uint64_t min_count,
                       struct tr_dictionary *d, uint64_t *met, uint64_t *total, struct ordered *q)
{
    struct rounds r;
    struct owner o = {.d = d};
    TR_TRY(choose_owners(tr, mine, n, &d->owners));
    int status = rounds_open(&r, tr, mine, n, d->owners);
    if (status == TR_OK) status = count_all(&r, &o);
    for (size_t i = 0; i < d->owned.n && status == TR_OK; i++) {
        size_t length;
        uint32_t column;
        memcpy(&column, tr_ids_text(&d->owned, i, &length), sizeof column);
        met[column]++;
    }
    if (status == TR_OK) status = list_owned(&o, min_count, q, total);
    if (status == TR_OK) status = tr_all_reduce(tr, TR_SET_WORKERS, TR_SUM, TR_I64, met, n);
    if (status == TR_OK) status = tr_all_reduce(tr, TR_SET_WORKERS, TR_SUM, TR_I64, total, n);
    rounds_close(&r);
    free(o.count);
    free(o.key);
    return status;
}

int tr_dictionary_make(tr_context *tr, const struct tr_counted *mine, size_t n, uint64_t min_count,
                       uint64_t most_values, struct tr_dictionary **dictionary,
                       struct tr_dictionary_column *column, uint32_t **number)
{
    struct tr_dictionary *d = NULL;
    struct ordered q = {.texts = {.are_text = true}};
    struct tr_ids list = {.are_text = true};
    tr_names *all = NULL;
    uint64_t *met = NULL, *total = NULL;
    bool works = tr_is(tr, TR_SLAVE);
    if (most_values == 0) most_values = UINT64_MAX;
    int status = TR_NEW(&d, 1);
    if (status == TR_OK) status = TR_NEW(&met, n);
    if (status == TR_OK) status = TR_NEW(&total, n);
    if (d) d->owned.are_text = true;
    status = tr_agree(tr, status);
    if (status == TR_OK)
        status = tr_agree(tr, works ? count_owned(tr, mine, n, min_count, d, met, total, &q) : TR_OK);
    if (status == TR_OK) status = tr_names_unite(tr, &q.texts, NULL, (size_t)d->owners, q.number, &all);
    if (status == TR_OK)
        status = tr_agree(tr, works ? number_owned(d, &q, all, n, most_values, total, &list) : TR_OK);
    if (status == TR_OK) status = tr_all_reduce(tr, TR_SET_ALL, TR_MAX, TR_I64, met, n);
    if (status == TR_OK) status = tr_all_reduce(tr, TR_SET_ALL, TR_MAX, TR_I64, total, n);
    for (size_t c = 0; c < n && status == TR_OK; c++) {
        column[c].values = total[c] < most_values ? total[c] : most_values;
        column[c].others = met[c] > column[c].values;
        column[c].met = met[c];
    }
    tr_names_free(&all);
    if (status == TR_OK) status = tr_names_of_list(tr, &list, &d->names);
    if (status == TR_OK) status = tr_dictionary_find(tr, d, mine, n, number);
    tr_ids_free(&q.texts);
    tr_ids_free(&list);
    void *parts[] = {q.place, q.number, met, total};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) free(parts[i]);
    if (status == TR_OK) *dictionary = d;
    else tr_dictionary_free(&d);
    return status;
}

/* ---- kept ---- */

/* How many own values, the bytes of the names, the names, and entries of what is owned, with numbers in place of counts. */
int tr_dictionary_pack(const struct tr_dictionary *d, char **bytes, size_t *n)
{
    char *names;
    size_t size;
    TR_TRY(tr_names_pack(d->names, &names, &size));
    const uint64_t head[2] = {d->owners, filled(size)};
    *n = sizeof head + filled(size);
    for (size_t i = 0; i < d->owned.n; i++) {
        size_t length;
        (void)tr_ids_text(&d->owned, i, &length);
        *n += sizeof(struct entry) + filled(length);
    }
    int status = TR_NEW(bytes, *n);
    if (status == TR_OK) {
        memcpy(*bytes, head, sizeof head);
        memcpy(*bytes + sizeof head, names, size);
        char *to = *bytes + sizeof head + filled(size);
        for (size_t i = 0; i < d->owned.n; i++) {
            size_t length;
            const char *text = tr_ids_text(&d->owned, i, &length);
            struct entry e = {.count = d->number[i], .length = (uint32_t)length};
            to = put_entry(to, &e, text);
        }
    }
    free(names);
    return status;
}

static int take_entries(struct tr_dictionary *d, const char *from, const char *end)
{
    size_t capacity = 0;
    while (from < end) {
        struct entry e;
        const char *text;
        uint32_t place;
        from = get_entry(from, &e, &text);
        TR_TRY(tr_ids_add_text(&d->owned, text, e.length, &place));
        TR_TRY(TR_GROW(&d->number, &capacity, d->owned.n));
        d->number[place] = (uint32_t)e.count;
    }
    return TR_OK;
}

int tr_dictionary_unpack(tr_context *tr, const char *bytes, size_t n, struct tr_dictionary **dictionary)
{
    struct tr_dictionary *d;
    uint64_t head[2];
    TR_TRY(TR_NEW(&d, 1));
    d->owned.are_text = true;
    memcpy(head, bytes, sizeof head);
    d->owners = head[0];
    int status = tr_names_unpack(tr, bytes + sizeof head, &d->names);
    if (status == TR_OK) status = take_entries(d, bytes + sizeof head + head[1], bytes + n);
    if (status == TR_OK) *dictionary = d;
    else tr_dictionary_free(&d);
    return status;
}

/* ---- asked for ---- */

const tr_names *tr_dictionary_names(const struct tr_dictionary *dictionary)
{
    return dictionary->names;
}

void tr_dictionary_free(struct tr_dictionary **dictionary)
{
    struct tr_dictionary *d = *dictionary;
    *dictionary = NULL;
    if (!d) return;
    tr_ids_free(&d->owned);
    tr_names_free(&d->names);
    free(d->number);
    free(d);
}
