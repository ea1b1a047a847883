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

/* ---- sorting ---- */

struct item {
    uint64_t count, prefix; /* prefix: the first bytes of the text, as a number of the same order */
    const char *text;
    uint32_t column, length, place;
};

static uint64_t prefix_of(const char *text, size_t n)
{
    uint64_t prefix = 0;
    for (size_t i = 0; i < sizeof prefix; i++) prefix = prefix << 8 | (i < n ? (unsigned char)text[i] : 0);
    return prefix;
}

static int compare(const struct item *a, const struct item *b)
{
    if (a->column != b->column) return a->column < b->column ? -1 : 1;
    if (a->count != b->count) return a->count > b->count ? -1 : 1;
    if (a->prefix != b->prefix) return a->prefix < b->prefix ? -1 : 1;
    int order = memcmp(a->text, b->text, tr_min_size(a->length, b->length));
    return order ? order : (a->length > b->length) - (a->length < b->length);
}

static int by_frequency(const void *a, const void *b)
{
    return compare(a, b);
}

/* What is owned and frequent enough, in order. */
static int sort_owned(const struct owner *o, uint64_t min_count, struct item **items, size_t *n)
{
    const struct tr_ids *ids = &o->d->owned;
    TR_TRY(TR_NEW(items, ids->n));
    *n = 0;
    for (size_t i = 0; i < ids->n; i++) {
        size_t length;
        const char *key = tr_ids_text(ids, i, &length);
        struct item item = {.count = o->count[i], .place = (uint32_t)i, .text = key + sizeof item.column};
        memcpy(&item.column, key, sizeof item.column);
        item.length = (uint32_t)(length - sizeof item.column);
        item.prefix = prefix_of(item.text, item.length);
        if (item.count >= min_count) (*items)[(*n)++] = item;
    }
    if (*n > 0) qsort(*items, *n, sizeof **items, by_frequency);
    return TR_OK;
}

static char *put_item(char *to, const struct item *item)
{
    struct entry e = {item->count, item->column, item->length};
    return put_entry(to, &e, item->text);
}

static size_t item_bytes(const struct item *item)
{
    return sizeof(struct entry) + filled(item->length);
}

static int list_entries(const char *from, const char *end, struct item **items, size_t *n)
{
    struct entry e;
    const char *text;
    *n = 0;
    for (const char *p = from; p < end; ++*n) p = get_entry(p, &e, &text);
    TR_TRY(TR_NEW(items, *n));
    for (size_t i = 0; i < *n; i++) {
        from = get_entry(from, &e, &text);
        (*items)[i] =
            (struct item){e.count, prefix_of(text, e.length), text, e.column, e.length, (uint32_t)i};
    }
    return TR_OK;
}

/* Where the ranges of workers but the first begin, by a sample of what each owns: *split points into *bytes. */
static int choose_splits(tr_context *tr, const struct item *items, size_t n, size_t ranges,
                         struct item **split, size_t *splits, char **bytes)
{
    enum { SAMPLES = 64 };
    size_t samples = tr_min_size(n, SAMPLES), size = 0, all = 0;
    char *mine, *to;
    struct item *item = NULL;
    uint64_t total = 0;
    for (size_t i = 0; i < samples; i++) size += item_bytes(&items[n * i / samples]);
    TR_TRY(TR_NEW(&mine, size));
    to = mine;
    for (size_t i = 0; i < samples; i++) to = put_item(to, &items[n * i / samples]);
    int status = tr_gather_to_all(tr, TR_SET_WORKERS, mine, size, 1, (void **)bytes, &total);
    free(mine);
    if (status == TR_OK) status = list_entries(*bytes, *bytes + total, &item, &all);
    TR_TRY(status);
    if (all > 0) qsort(item, all, sizeof *item, by_frequency);
    *splits = all > 0 ? ranges - 1 : 0;
    for (size_t w = 1; w <= *splits; w++)
        item[w - 1] = item[all * w / ranges < w - 1 ? w - 1 : all * w / ranges];
    *split = item;
    return TR_OK;
}

/* How many of the sorted items, and of their bytes, belong to the range of each worker. */
static void count_for_ranges(const struct item *items, size_t n, const struct item *split, size_t splits,
                             size_t workers, uint64_t *count, uint64_t *bytes)
{
    size_t i = 0;
    for (size_t w = 0; w < workers; w++) {
        count[w] = bytes[w] = 0;
        for (; i < n && (w >= splits || compare(&items[i], &split[w]) < 0); i++) {
            count[w]++;
            bytes[w] += item_bytes(&items[i]);
        }
    }
}

/* ---- numbering ---- */

/* A worker's range of the sorted values. */
struct range {
    char *bytes;
    struct item *items;
    size_t n;
    uint64_t *count, *bytes_to, *count_from, *bytes_from; /* by worker: to their ranges, from owners */
};

static void range_close(struct range *g)
{
    free(g->bytes);
    free(g->items);
    free(g->count);
}

/* Items to who has their range: as many workers as own values. */
static int send_to_ranges(tr_context *tr, const struct item *items, size_t n, size_t ranges, struct range *g)
{
    size_t workers = (size_t)tr_layout_workers(&tr->layout);
    struct item *split = NULL;
    size_t splits = 0, size = 0;
    char *sample = NULL, *sent = NULL, *to;
    uint64_t received = 0;
    TR_TRY(TR_NEW(&g->count, 4 * workers));
    g->bytes_to = g->count + workers;
    g->count_from = g->bytes_to + workers;
    g->bytes_from = g->count_from + workers;
    int status = choose_splits(tr, items, n, ranges, &split, &splits, &sample);
    if (status == TR_OK) count_for_ranges(items, n, split, splits, workers, g->count, g->bytes_to);
    free(split);
    free(sample);
    for (size_t w = 0; w < workers; w++) size += g->bytes_to[w];
    if (status == TR_OK) status = TR_NEW(&sent, size);
    to = sent;
    for (size_t i = 0; i < n && status == TR_OK; i++) to = put_item(to, &items[i]);
    if (status == TR_OK)
        status = tr_all_to_all(tr, TR_SET_WORKERS, sent, g->bytes_to, 1, (void **)&g->bytes, g->bytes_from);
    free(sent);
    for (size_t w = 0; w < workers; w++) received += g->bytes_from[w];
    return status == TR_OK ? list_entries(g->bytes, g->bytes + received, &g->items, &g->n) : status;
}

/* How many values each column has at all workers, and so the place in all where it begins. */
static int place_columns(tr_context *tr, const struct range *g, size_t n, uint64_t *total, uint64_t *begin,
                         uint64_t *first)
{
    memset(total, 0, n * sizeof *total);
    for (size_t i = 0; i < g->n; i++) total[g->items[i].column]++;
    TR_TRY(tr_all_reduce(tr, TR_SET_WORKERS, TR_SUM, TR_I64, total, n));
    for (size_t c = 0, sum = 0; c < n; sum += total[c++]) begin[c] = sum;
    return tr_sum_before(tr, TR_SET_WORKERS, g->n, first);
}

/* Numbers of the items by the order in which they came; values that keep theirs go into the list. */
static int number_range(struct range *g, const uint64_t *begin, uint64_t first, uint64_t most_values,
                        uint32_t *number, struct tr_ids *list)
{
    uint32_t place;
    list->are_text = true;
    if (g->n > 0) qsort(g->items, g->n, sizeof *g->items, by_frequency);
    for (size_t i = 0; i < g->n; i++) {
        const struct item *item = &g->items[i];
        uint64_t k = first + i - begin[item->column];
        bool kept = k < most_values && k < TR_NO_NUMBER;
        number[item->place] = kept ? (uint32_t)k : TR_NO_NUMBER;
        if (kept) TR_TRY(tr_ids_append_text(list, item->text, item->length, &place));
    }
    return TR_OK;
}

/* Owned values get their numbers from the ranges. */
static int number_owned(tr_context *tr, struct owner *o, size_t n, uint64_t min_count, uint64_t most_values,
                        uint64_t *total, struct tr_ids *list)
{
    size_t workers = (size_t)tr_layout_workers(&tr->layout), owned = 0;
    struct item *items = NULL;
    struct range g = {.n = 0};
    uint64_t *begin = NULL, first = 0;
    uint32_t *number = NULL, *back = NULL;
    int status = sort_owned(o, min_count, &items, &owned);
    if (status == TR_OK) status = send_to_ranges(tr, items, owned, (size_t)o->d->owners, &g);
    if (status == TR_OK) status = TR_NEW(&begin, n);
    if (status == TR_OK) status = TR_NEW(&number, g.n);
    if (status == TR_OK) status = place_columns(tr, &g, n, total, begin, &first);
    /* what came of each worker came in order */
    for (size_t w = 0, at = 0; w < workers && status == TR_OK; w++) {
        const char *from = g.bytes + at;
        g.count_from[w] = 0;
        for (const char *p = from; p < from + g.bytes_from[w]; g.count_from[w]++) {
            struct entry e;
            const char *text;
            p = get_entry(p, &e, &text);
        }
        at += g.bytes_from[w];
    }
    if (status == TR_OK) status = number_range(&g, begin, first, most_values, number, list);
    if (status == TR_OK)
        status =
            tr_all_to_all(tr, TR_SET_WORKERS, number, g.count_from, sizeof *number, (void **)&back, g.count);
    if (status == TR_OK) status = TR_NEW(&o->d->number, o->d->owned.n);
    for (size_t i = 0; i < o->d->owned.n && status == TR_OK; i++) o->d->number[i] = TR_NO_NUMBER;
    for (size_t i = 0; i < owned && status == TR_OK; i++) o->d->number[items[i].place] = back[i];
    range_close(&g);
    void *parts[] = {items, begin, number, back};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) free(parts[i]);
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

/* met: how many values each column has before any are left out. */
static int make(tr_context *tr, const struct tr_counted *mine, size_t n, uint64_t min_count,
                uint64_t most_values, struct tr_dictionary *d, uint64_t *met, uint64_t *total,
                struct tr_ids *list)
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
    if (status == TR_OK) status = tr_all_reduce(tr, TR_SET_WORKERS, TR_SUM, TR_I64, met, n);
    if (status == TR_OK) status = number_owned(tr, &o, n, min_count, most_values, total, list);
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
    struct tr_ids list = {.are_text = true};
    uint64_t *met = NULL, *total = NULL;
    bool works = tr_is(tr, TR_SLAVE);
    if (most_values == 0) most_values = UINT64_MAX;
    int status = TR_NEW(&d, 1);
    if (status == TR_OK) status = TR_NEW(&met, n);
    if (status == TR_OK) status = TR_NEW(&total, n);
    if (d) d->owned.are_text = true;
    status = tr_agree(tr, status);
    if (status == TR_OK)
        status =
            tr_agree(tr, works ? make(tr, mine, n, min_count, most_values, d, met, total, &list) : TR_OK);
    if (status == TR_OK) status = tr_all_reduce(tr, TR_SET_ALL, TR_MAX, TR_I64, met, n);
    if (status == TR_OK) status = tr_all_reduce(tr, TR_SET_ALL, TR_MAX, TR_I64, total, n);
    for (size_t c = 0; c < n && status == TR_OK; c++) {
        column[c].values = total[c] < most_values ? total[c] : most_values;
        column[c].others = met[c] > column[c].values;
    }
    if (status == TR_OK) status = tr_names_of_list(tr, &list, &d->names);
    if (status == TR_OK) status = tr_dictionary_find(tr, d, mine, n, number);
    tr_ids_free(&list);
    free(met);
    free(total);
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
