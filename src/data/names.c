#define _GNU_SOURCE
#include "data/names.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/escape.h"
#include "data/exchange.h"
#include "ranks/ranks.h"

/* ================ ids of one process ================ */

bool tr_id_number(const char *text, size_t length, uint64_t *number)
{
    uint64_t id = 0;
    if (length == 0 || (text[0] == '0' && length > 1)) return false;
    for (size_t i = 0; i < length; i++) {
        uint64_t digit = (uint64_t)(unsigned char)text[i] - '0';
        if (digit > 9 || id > (UINT64_MAX - digit) / 10) return false;
        id = id * 10 + digit;
    }
    *number = id;
    return true;
}

void tr_ids_free(struct tr_ids *ids)
{
    void *parts[] = {ids->number, ids->text, ids->begin, ids->direct, ids->slot};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) free(parts[i]);
    *ids = (struct tr_ids){.are_text = ids->are_text};
}

static int ids_check_number(const struct tr_ids *ids)
{
    if (ids->n < UINT32_MAX - 1) return TR_OK;
    return tr_fail(TR_ERR_SYSTEM,
                   "a worker can tell 2^32 - 2 ids apart, and here are more: use more workers");
}

/* ---- hashing: open addressing, at most two thirds full ---- */

uint64_t tr_text_hash(const char *text, size_t n)
{
    uint64_t h = n, word;
    size_t all = n;
    uint32_t low, high;
    for (; n >= sizeof word; n -= sizeof word, text += sizeof word) {
        memcpy(&word, text, sizeof word);
        h = tr_mix(h ^ word);
    }
    /* combine the last n < 8 bytes to a number, without reading a byte outside of the text */
    const unsigned char *byte = (const unsigned char *)text;
    if (n == 0) {
        word = 0;
    } else if (all >= sizeof word) {
        memcpy(&word, text + n - sizeof word, sizeof word);
        word >>= 64 - 8 * n;
    } else if (n >= sizeof low) {
        memcpy(&low, text, sizeof low);
        memcpy(&high, text + n - sizeof high, sizeof high);
        word = low | (uint64_t)high << 8 * (n - sizeof high);
    } else {
        word = byte[0] | (uint64_t)byte[n / 2] << 8 * (n / 2) | (uint64_t)byte[n - 1] << 8 * (n - 1);
    }
    return tr_mix(h ^ word);
}

static void ids_put_slot(struct tr_ids *ids, size_t i, uint64_t hash, uint32_t place, size_t length)
{
    ids->slot[i] = (struct tr_ids_slot){hash, place + 1, (uint32_t)length};
    ids->hashed++;
}

/* Changes the number of slots of the hash table. Numbers that are in ids->direct are removed from the table. */
static int ids_rehash(struct tr_ids *ids, size_t slots)
{
    struct tr_ids_slot *slot;
    TR_TRY(TR_NEW(&slot, slots));
    ids->hashed = 0;
    for (size_t i = 0; i < ids->slots; i++) {
        const struct tr_ids_slot *old = &ids->slot[i];
        if (!old->place || (!ids->are_text && ids->number[old->place - 1] < ids->direct_size)) continue;
        size_t to = tr_ids_first_slot(old->hash, slots);
        while (slot[to].place) to = (to + 1) & (slots - 1);
        slot[to] = *old;
        ids->hashed++;
    }
    free(ids->slot);
    ids->slot = slot;
    ids->slots = slots;
    return TR_OK;
}

static int ids_make_slot(struct tr_ids *ids)
{
    return ids->slots / 3 * 2 > ids->hashed ? TR_OK : ids_rehash(ids, ids->slots ? 2 * ids->slots : 64);
}

/* ---- numbers ---- */

/* Enlarges ids->direct so that it includes a number. Other numbers that it includes now are moved there from the hash table. */
static int ids_enlarge_direct(struct tr_ids *ids, uint64_t number)
{
    uint64_t size = ids->direct_size ? 2 * ids->direct_size : 4096, old = ids->direct_size;
    while (size <= number) size *= 2;
    uint32_t *direct = realloc(ids->direct, (size_t)size * sizeof *direct);
    if (!direct)
        return tr_fail(TR_ERR_SYSTEM, "out of memory: a table of %llu ids", (unsigned long long)size);
    memset(direct + old, 0, (size_t)(size - old) * sizeof *direct);
    ids->direct = direct;
    ids->direct_size = size;
    for (size_t i = 0; i < ids->slots; i++) {
        uint32_t place = ids->slot[i].place;
        if (place && ids->number[place - 1] < size) direct[ids->number[place - 1]] = place;
    }
    return ids->hashed > 0 ? ids_rehash(ids, ids->slots) : TR_OK;
}

int tr_ids_append_number(struct tr_ids *ids, uint64_t number, uint32_t *place)
{
    TR_TRY(ids_check_number(ids));
    TR_TRY(TR_GROW(&ids->number, &ids->number_capacity, ids->n + 1));
    ids->number[ids->n] = number;
    *place = (uint32_t)ids->n++;
    return TR_OK;
}

int tr_ids_add_number(struct tr_ids *ids, uint64_t number, uint32_t *place)
{
    /* ids->direct takes 4 bytes for each number up to the largest: use it if about one number in four occurs, or if it is small */
    uint64_t worth = ((uint64_t)1 << 20) + 4 * (uint64_t)ids->n;
    if (number >= ids->direct_size && number < worth) TR_TRY(ids_enlarge_direct(ids, number));
    if (number < ids->direct_size) {
        if (!ids->direct[number]) {
            TR_TRY(tr_ids_append_number(ids, number, place));
            ids->direct[number] = *place + 1;
        }
        *place = ids->direct[number] - 1;
        return TR_OK;
    }
    TR_TRY(ids_make_slot(ids));
    uint64_t hash = tr_mix(number);
    size_t i = tr_ids_first_slot(hash, ids->slots);
    for (; ids->slot[i].place; i = (i + 1) & (ids->slots - 1)) {
        *place = ids->slot[i].place - 1;
        if (ids->slot[i].hash == hash) return TR_OK; /* different numbers have different hashes */
    }
    TR_TRY(tr_ids_append_number(ids, number, place));
    ids_put_slot(ids, i, hash, *place, 0);
    return TR_OK;
}

/* ---- text ---- */

int tr_ids_append_text(struct tr_ids *ids, const char *text, size_t n, uint32_t *place)
{
    TR_TRY(ids_check_number(ids));
    if (ids->n + 2 > ids->begin_capacity) TR_TRY(TR_GROW(&ids->begin, &ids->begin_capacity, ids->n + 2));
    if (ids->n == 0) ids->begin[0] = 0;
    uint64_t begin = ids->begin[ids->n];
    if (begin + n >= ids->text_capacity)
        TR_TRY(TR_GROW(&ids->text, &ids->text_capacity, (size_t)begin + n + 1));
    memcpy(ids->text + begin, text, n);
    *place = (uint32_t)ids->n++;
    ids->begin[ids->n] = begin + n;
    return TR_OK;
}

/* Returns the slot of a text, or the free slot for it. Different texts of the same length up to 8 bytes have different hashes,
 * since tr_mix() is invertible: so their bytes need not be compared. */
static size_t ids_find_slot(const struct tr_ids *ids, uint64_t hash, const char *text, size_t n)
{
    size_t i = tr_ids_first_slot(hash, ids->slots);
    for (; ids->slot[i].place; i = (i + 1) & (ids->slots - 1)) {
        const struct tr_ids_slot *s = &ids->slot[i];
        if (s->hash != hash || s->length != (uint32_t)n) continue;
        if (n <= sizeof hash || memcmp(ids->text + ids->begin[s->place - 1], text, n) == 0) return i;
    }
    return i;
}

int tr_ids_add_hashed(struct tr_ids *ids, const char *text, size_t n, uint64_t hash, uint32_t *place)
{
    TR_TRY(ids_make_slot(ids));
    size_t i = ids_find_slot(ids, hash, text, n);
    if (ids->slot[i].place) {
        *place = ids->slot[i].place - 1;
        return TR_OK;
    }
    TR_TRY(tr_ids_append_text(ids, text, n, place));
    ids_put_slot(ids, i, hash, *place, n);
    return TR_OK;
}

uint32_t tr_ids_find_text(const struct tr_ids *ids, const char *text, size_t n)
{
    if (ids->slots == 0) return UINT32_MAX;
    uint64_t hash = tr_text_hash(text, n);
    return ids->slot[ids_find_slot(ids, hash, text, n)].place - 1;
}

/* ---- sorting ---- */

struct numbered {
    uint64_t number;
    uint32_t place;
};

static int ids_by_number(const void *a, const void *b)
{
    const struct numbered *x = a, *y = b;
    return (x->number > y->number) - (x->number < y->number);
}

/* Sorts places by numbers. ids->direct is in order already, and numbers in the hash table are larger. A list that is not searched
 * has no ids->direct and no hash table. */
static int ids_sort_numbers(const struct tr_ids *ids, uint32_t *order)
{
    TR_FREED struct numbered *large = NULL;
    bool listed = ids->direct_size == 0 && ids->slots == 0;
    size_t n = 0, k = 0;
    TR_TRY(TR_NEW(&large, listed ? ids->n : ids->hashed));
    for (size_t i = 0; i < ids->n && listed; i++) large[k++] = (struct numbered){ids->number[i], (uint32_t)i};
    for (uint64_t number = 0; number < ids->direct_size; number++)
        if (ids->direct[number]) order[n++] = ids->direct[number] - 1;
    for (size_t i = 0; i < ids->slots; i++)
        if (ids->slot[i].place)
            large[k++] = (struct numbered){ids->number[ids->slot[i].place - 1], ids->slot[i].place - 1};
    qsort(large, k, sizeof *large, ids_by_number);
    for (size_t i = 0; i < k; i++) order[n++] = large[i].place;
    return TR_OK;
}

struct word {
    const char *text;
    size_t n;
    uint32_t place;
};

/* Returns the bucket of a text: its byte at a position + 1, or 0 if the text ends there. */
static size_t word_bucket(const struct word *w, size_t at)
{
    return at < w->n ? (size_t)(unsigned char)w->text[at] + 1 : 0;
}

static int words_compare(const struct word *a, const struct word *b, size_t at)
{
    return tr_bytes_compare(a->text + at, a->n - at, b->text + at, b->n - at);
}

/* Radix sort by one byte at a time, from byte `at` on. The largest bucket is sorted by the loop, the others by recursion, whose
 * depth is therefore at most log n. */
static void words_sort(struct word *word, struct word *scratch, size_t n, size_t at)
{
    enum { FEW = 12, BUCKETS = 257 };
    for (; n > FEW; at++) {
        size_t end[BUCKETS + 1] = {0}, least = BUCKETS, most = 0;
        for (size_t i = 0; i < n; i++) {
            size_t b = word_bucket(&word[i], at);
            end[b + 1]++;
            least = tr_min_size(least, b);
            most = tr_max_size(most, b);
        }
        if (least == most && least > 0) continue;
        for (size_t b = least; b <= most; b++) end[b + 1] += end[b];
        for (size_t i = 0; i < n; i++) scratch[end[word_bucket(&word[i], at)]++] = word[i];
        memcpy(word, scratch, n * sizeof *word);
        least = tr_max_size(least, 1);
        size_t largest = least;
        for (size_t b = least; b <= most; b++)
            if (end[b] - end[b - 1] > end[largest] - end[largest - 1]) largest = b;
        for (size_t b = least; b <= most; b++)
            if (b != largest) words_sort(word + end[b - 1], scratch, end[b] - end[b - 1], at + 1);
        word += end[largest - 1];
        n = most > 0 ? end[largest] - end[largest - 1] : 0;
    }
    for (size_t i = 1; i < n; i++) { /* insertion sort of FEW texts */
        struct word w = word[i];
        size_t k = i;
        for (; k > 0 && words_compare(&word[k - 1], &w, at) > 0; k--) word[k] = word[k - 1];
        word[k] = w;
    }
}

int tr_ids_sort(const struct tr_ids *ids, uint32_t **order)
{
    TR_FREED struct word *word = NULL;
    TR_FREED uint32_t *sorted = NULL;
    TR_TRY(TR_NEW(&sorted, ids->n));
    if (ids->are_text) {
        TR_TRY(TR_NEW(&word, 2 * ids->n));
        for (size_t i = 0; i < ids->n; i++) {
            word[i].text = tr_ids_text(ids, i, &word[i].n);
            word[i].place = (uint32_t)i;
        }
        size_t ordered = 1; /* the list may be sorted already */
        while (ordered < ids->n && words_compare(&word[ordered - 1], &word[ordered], 0) <= 0) ordered++;
        if (ordered < ids->n) words_sort(word, word + ids->n, ids->n, 0);
        for (size_t i = 0; i < ids->n; i++) sorted[i] = word[i].place;
    } else {
        TR_TRY(ids_sort_numbers(ids, sorted));
    }
    *order = sorted;
    sorted = NULL;
    return TR_OK;
}

/* ================ ids of all workers ================ */

/* ---- bytes, for other ranks and for the next start ---- */

int tr_archive_copy(struct tr_archive *a, void *memory, size_t n)
{
    size_t whole = (n + 7) / 8 * 8;
    if (a->writes) {
        TR_TRY(TR_GROW(&a->bytes, &a->capacity, a->at + whole));
        memset(a->bytes + a->at, 0, whole);
        if (n > 0) memcpy(a->bytes + a->at, memory, n);
        a->n = a->at + whole;
    } else {
        if (whole < n || whole > a->n - a->at) return tr_fail(TR_ERR_DATA, "damaged");
        if (n > 0) memcpy(memory, a->bytes + a->at, n);
    }
    a->at += whole;
    return TR_OK;
}

int tr_archive_array(struct tr_archive *a, void *pointer, uint64_t bytes)
{
    void **array = pointer;
    TR_TRY(tr_archive_copy(a, &bytes, sizeof bytes));
    if (!a->writes) {
        *array = NULL;
        if (bytes > a->n - a->at) return tr_fail(TR_ERR_DATA, "damaged");
        if (bytes > 0) TR_TRY(tr_new(array, (size_t)bytes + 1, 1, "kept data"));
    }
    return bytes > 0 ? tr_archive_copy(a, *array, (size_t)bytes) : TR_OK;
}

int tr_archive_put_ids(struct tr_archive *a, const struct tr_ids *ids, size_t first, size_t end)
{
    size_t n = end - first;
    bool are_text = ids->are_text;
    TR_TRY(tr_archive_copy(a, &are_text, sizeof are_text));
    TR_TRY(tr_archive_copy(a, &n, sizeof n));
    if (n == 0) return TR_OK;
    uint64_t *number = are_text ? ids->begin + first : ids->number + first;
    TR_TRY(tr_archive_array(a, &number, (n + are_text) * sizeof *number));
    if (!are_text) return TR_OK;
    char *text = ids->text + number[0];
    return tr_archive_array(a, &text, number[n] - number[0]);
}

int tr_archive_get_ids(struct tr_archive *a, struct tr_ids *ids, bool finds)
{
    TR_FREED uint64_t *number = NULL; /* the ids or, if ids are texts, the offsets where the texts begin */
    TR_FREED char *text = NULL;
    size_t n;
    uint32_t place;
    TR_TRY(tr_archive_copy(a, &ids->are_text, sizeof ids->are_text));
    TR_TRY(tr_archive_copy(a, &n, sizeof n));
    if (n == 0) return TR_OK;
    TR_TRY(tr_archive_array(a, &number, 0));
    if (ids->are_text) TR_TRY(tr_archive_array(a, &text, 0));
    for (size_t i = 0; i < n; i++) {
        const char *at = text ? text + (number[i] - number[0]) : "";
        size_t length = ids->are_text ? (size_t)(number[i + 1] - number[i]) : 0;
        TR_TRY(!ids->are_text ? tr_ids_append_number(ids, number[i], &place)
               : finds        ? tr_ids_add_text(ids, at, length, &place)
                              : tr_ids_append_text(ids, at, length, &place));
    }
    return TR_OK;
}

void tr_archive_free(struct tr_archive *a)
{
    free(a->bytes);
}

/* ---- lists of ids ---- */

struct id {
    uint64_t number;
    const char *text; /* text of the id; NULL: the id is `number` */
    size_t length;
};

static struct id id_of(const struct tr_ids *list, size_t i)
{
    struct id id = {.number = 0};
    if (!list->are_text) return (struct id){.number = list->number[i]};
    id.text = tr_ids_text(list, i, &id.length);
    return id;
}

static int id_compare(const struct id *a, const struct id *b)
{
    if (!a->text) return (a->number > b->number) - (a->number < b->number);
    return tr_bytes_compare(a->text, a->length, b->text, b->length);
}

static int id_append(struct tr_ids *list, struct id id)
{
    uint32_t place;
    return id.text ? tr_ids_append_text(list, id.text, id.length, &place)
                   : tr_ids_append_number(list, id.number, &place);
}

/* Returns the place in a sorted list of the first id that is not smaller than `id`. */
static size_t id_lower_bound(const struct tr_ids *list, const struct id *id)
{
    size_t low = 0, high = list->n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        struct id other = id_of(list, middle);
        if (id_compare(&other, id) < 0) low = middle + 1;
        else high = middle;
    }
    return low;
}

/* Sends count[w] ids to each worker w, in the order of the list. *got receives got_count[w] ids from each w, worker 0 first. */
static int ids_exchange(tr_context *tr, const struct tr_ids *list, const uint64_t *count, struct tr_ids *got,
                        uint64_t *got_count)
{
    size_t workers = (size_t)tr_layout_workers(&tr->layout);
    TR_CLOSED_BY(tr_archive_free) struct tr_archive sent = {.writes = true}, received = {.writes = false};
    TR_FREED uint64_t *bytes = NULL;
    TR_TRY(TR_NEW(&bytes, 2 * workers));
    for (size_t w = 0, at = 0; w < workers; at += count[w++]) {
        size_t before = sent.n;
        if (count[w] > 0) TR_TRY(tr_archive_put_ids(&sent, list, at, at + count[w]));
        bytes[w] = sent.n - before; /* 0 if there are no ids: then no message is sent */
    }
    TR_TRY(
        tr_all_to_all(tr, TR_SET_WORKERS, sent.bytes, bytes, 1, (void **)&received.bytes, bytes + workers));
    *got = (struct tr_ids){.are_text = list->are_text};
    for (size_t w = 0; w < workers; w++) {
        size_t before = got->n;
        received.n += bytes[workers + w];
        if (bytes[workers + w] > 0) TR_TRY(tr_archive_get_ids(&received, got, false));
        got_count[w] = got->n - before;
    }
    return TR_OK;
}

int tr_ids_gather(tr_context *tr, enum tr_set set, const struct tr_ids *list, struct tr_ids *all)
{
    TR_CLOSED_BY(tr_archive_free) struct tr_archive sent = {.writes = true}, received = {.writes = false};
    uint64_t total = 0;
    *all = (struct tr_ids){.are_text = list->are_text};
    TR_TRY(tr_archive_put_ids(&sent, list, 0, list->n));
    TR_TRY(tr_gather_to_all(tr, set, sent.bytes, sent.n, 1, (void **)&received.bytes, &total));
    received.n = total;
    while (received.at < received.n) TR_TRY(tr_archive_get_ids(&received, all, false));
    all->are_text = list->are_text;
    return TR_OK;
}

/* ---- names ---- */

struct tr_names {
    tr_context *tr;
    uint64_t first, count; /* number of the first name of all workers, and number of all names */
    uint64_t begin;        /* number of this worker's first name */
    struct tr_ids mine;    /* the names of this worker's range, sorted */
    struct tr_ids split;   /* the range of worker w: names from split w - 1 on, and below split w */
};

/* Divides all ids into ranges for the owners, by a sample of each worker's sorted ids: *split has the ends of the ranges. */
static int names_choose_splits(tr_context *tr, const struct tr_ids *ids, size_t owners, struct tr_ids *split)
{
    enum { SAMPLES = 64 };
    size_t n = tr_min_size(ids->n, SAMPLES);
    TR_CLOSED_BY(tr_ids_free) struct tr_ids sample = {.are_text = ids->are_text}, all = {.n = 0};
    TR_FREED uint32_t *order = NULL;
    for (size_t i = 0; i < n && owners > 1; i++) TR_TRY(id_append(&sample, id_of(ids, ids->n * i / n)));
    TR_TRY(tr_ids_gather(tr, TR_SET_WORKERS, &sample, &all));
    TR_TRY(tr_ids_sort(&all, &order));
    for (size_t w = 1; w < owners && all.n > 0; w++)
        TR_TRY(id_append(split, id_of(&all, order[all.n * w / owners])));
    return TR_OK;
}

/* Sets names->begin and names->count when names->mine is complete. Workers only, together. */
static int names_place_range(tr_context *tr, tr_names *names)
{
    uint64_t before, total = names->mine.n;
    TR_TRY(tr_sum_before(tr, TR_SET_WORKERS, names->mine.n, &before));
    TR_TRY(tr_all_reduce(tr, TR_SET_WORKERS, TR_SUM, TR_I64, &total, 1));
    names->begin = names->first + before;
    names->count = total;
    if (names->first + total < UINT32_MAX) return TR_OK;
    return tr_fail(TR_ERR_SYSTEM, "%llu different ids in one column, expected at most 2^32 - 2",
                   (unsigned long long)(names->first + total));
}

/* Numbers the ids that the workers have sent to this worker as owner of their range: answer[i] is the number of id i. Names that
 * are not in `known` are appended to names->mine. */
static int names_number_range(tr_context *tr, const struct tr_ids *got, const tr_names *known,
                              tr_names *names, uint32_t *answer)
{
    TR_FREED uint32_t *order = NULL;
    TR_FREED bool *is_new =
        NULL; /* `answer` receives a place in names->mine, to which names->begin is added later */
    struct id id, last = {0};
    TR_TRY(TR_NEW(&is_new, got->n));
    TR_TRY(tr_ids_sort(got, &order));
    for (size_t i = 0, at = 0; i < got->n; i++, last = id) {
        size_t place = order[i];
        int differs = 1;
        id = id_of(got, place);
        if (i > 0 && id_compare(&last, &id) == 0) {
            answer[place] = answer[order[i - 1]];
            is_new[place] = is_new[order[i - 1]];
            continue;
        }
        for (; known && at < known->mine.n; at++) {
            struct id other = id_of(&known->mine, at);
            if ((differs = id_compare(&other, &id)) >= 0) break;
        }
        is_new[place] = differs != 0;
        answer[place] = (uint32_t)(is_new[place] ? names->mine.n : known->begin + at);
        if (is_new[place]) TR_TRY(id_append(&names->mine, id));
    }
    TR_TRY(names_place_range(tr, names));
    for (size_t i = 0; i < got->n; i++)
        if (is_new[i]) answer[i] += (uint32_t)names->begin;
    return TR_OK;
}

/* Sends the sorted ids of this worker to the owners of their ranges, which send the numbers back. */
static int names_unite(tr_context *tr, const struct tr_ids *ids, const tr_names *known, size_t owners,
                       uint32_t *number, tr_names *names)
{
    size_t workers = (size_t)tr_layout_workers(&tr->layout);
    TR_CLOSED_BY(tr_ids_free) struct tr_ids sorted = {.are_text = ids->are_text}, got = {0};
    TR_FREED uint32_t *order = NULL, *answer = NULL, *answers = NULL;
    TR_FREED uint64_t *count = NULL;
    names->mine.are_text = names->split.are_text = ids->are_text;
    TR_TRY(tr_ids_sort(ids, &order));
    for (size_t i = 0; i < ids->n; i++) TR_TRY(id_append(&sorted, id_of(ids, order[i])));
    for (size_t i = 0; known && i < known->split.n; i++)
        TR_TRY(id_append(&names->split, id_of(&known->split, i)));
    if (!known) TR_TRY(names_choose_splits(tr, &sorted, owners, &names->split));
    TR_TRY(TR_NEW(&count, 2 * workers));
    /* does nothing if no worker has ids: then there are no ranges */
    for (size_t w = 0, at = 0, end; w < workers; w++, at = end) {
        struct id split = w < names->split.n ? id_of(&names->split, w) : (struct id){0};
        end = w < names->split.n ? id_lower_bound(&sorted, &split) : sorted.n;
        count[w] = end - at;
    }
    TR_TRY(ids_exchange(tr, &sorted, count, &got, count + workers));
    TR_TRY(TR_NEW(&answer, got.n));
    TR_TRY(names_number_range(tr, &got, known, names, answer));
    TR_TRY(
        tr_all_to_all(tr, TR_SET_WORKERS, answer, count + workers, sizeof *answer, (void **)&answers, count));
    for (size_t i = 0; i < ids->n; i++) number[order[i]] = answers[i];
    return TR_OK;
}

int tr_names_unite(tr_context *tr, const struct tr_ids *ids, const tr_names *known, size_t owners,
                   uint32_t *number, tr_names **out)
{
    TR_CLOSED_BY(tr_names_free) tr_names *names = NULL;
    TR_TRY(TR_NEW(&names, 1));
    names->tr = tr;
    names->first = known ? known->first + known->count : 0;
    TR_TRY(tr_agree(tr, tr_is(tr, TR_SLAVE) ? names_unite(tr, ids, known, owners, number, names) : TR_OK));
    uint64_t facts[2] = {names->count, ids->are_text}; /* sent to ranks that are no workers */
    TR_TRY(tr_all_reduce(tr, TR_SET_ALL, TR_MAX, TR_I64, facts, 2));
    names->count = facts[0];
    names->mine.are_text = facts[1];
    *out = names;
    names = NULL;
    return TR_OK;
}

int tr_names_gather(const tr_names *names, struct tr_ids *all)
{
    return tr_agree(names->tr, tr_ids_gather(names->tr, TR_SET_ALL, &names->mine, all));
}

void tr_names_free(tr_names **names)
{
    if (!*names) return;
    tr_ids_free(&(*names)->mine);
    tr_ids_free(&(*names)->split);
    free(*names);
    *names = NULL;
}

uint64_t tr_names_count(const tr_names *names)
{
    return names->count;
}

uint64_t tr_names_first(const tr_names *names)
{
    return names->first;
}

bool tr_names_are_numbers(const tr_names *names)
{
    return !names->mine.are_text;
}

int tr_names_archive(struct tr_archive *a, tr_context *tr, tr_names **names)
{
    bool there = *names != NULL;
    TR_TRY(tr_archive_copy(a, &there, sizeof there));
    if (!there) return TR_OK;
    if (!a->writes) TR_TRY(TR_NEW(names, 1));
    tr_names *n = *names;
    n->tr = tr;
    TR_TRY(tr_archive_copy(a, &n->first, sizeof n->first));
    TR_TRY(tr_archive_copy(a, &n->count, sizeof n->count));
    TR_TRY(tr_archive_copy(a, &n->begin, sizeof n->begin));
    TR_TRY(tr_archive_ids(a, &n->mine, false));
    return tr_archive_ids(a, &n->split, false);
}

/* ---- all names at rank 0, range by range ---- */

/* Packs the names first .. *end - 1, a piece of about 1 MiB. */
static int names_pack_piece(const tr_names *names, size_t first, size_t *end, struct tr_archive *a)
{
    const struct tr_ids *list = &names->mine;
    size_t bytes = 0, n = 0;
    *a = (struct tr_archive){.writes = true};
    for (*end = first; *end < list->n; ++*end) {
        if (list->are_text) (void)tr_ids_text(list, *end, &n);
        bytes += sizeof(uint64_t) + n;
        if (*end > first && bytes > (size_t)1 << 20) break;
    }
    return tr_archive_put_ids(a, list, first, *end);
}

/* Sends a worker's names to rank 0 in pieces: for each piece its size, and then its bytes. The last piece has no names. */
static int names_send(const tr_names *names)
{
    tr_context *tr = names->tr;
    for (size_t first = 0, end;; first = end) {
        TR_CLOSED_BY(tr_archive_free) struct tr_archive piece;
        MPI_Request request;
        TR_TRY(names_pack_piece(names, first, &end, &piece));
        MPI_Isend(&piece.n, 1, MPI_UINT64_T, 0, TR_TAG_NAMES, tr->wire, &request);
        TR_TRY(tr_wait_request(tr, &request, "rank 0 to take names"));
        MPI_Isend(piece.bytes, (int)piece.n, MPI_BYTE, 0, TR_TAG_NAMES, tr->wire, &request);
        TR_TRY(tr_wait_request(tr, &request, "rank 0 to take names"));
        if (end == first) return TR_OK;
    }
}

/* Calls hand_out() with the names of all workers. If it fails, the remaining names are received and dropped. */
static int names_receive(const tr_names *names, tr_names_fn *hand_out, void *state)
{
    tr_context *tr = names->tr;
    uint64_t next = names->first;
    int outcome = TR_OK;
    for (int w = 0; w < tr_layout_workers(&tr->layout); w++) {
        int rank = tr->layout.worker_rank[w];
        size_t first = 0, end = 0;
        for (bool more = true; more; first = end) {
            TR_CLOSED_BY(tr_archive_free) struct tr_archive bytes = {.writes = false};
            TR_CLOSED_BY(tr_ids_free) struct tr_ids list = {.n = 0};
            MPI_Request request;
            if (rank == tr->rank) {
                TR_TRY(names_pack_piece(names, first, &end, &bytes));
                bytes.writes = false;
                bytes.at = 0;
            } else {
                MPI_Irecv(&bytes.n, 1, MPI_UINT64_T, rank, TR_TAG_NAMES, tr->wire, &request);
                TR_TRY(tr_wait_request(tr, &request, "a worker to send names"));
                char *received;
                TR_TRY(TR_NEW(&received, bytes.n));
                MPI_Irecv(received, (int)bytes.n, MPI_BYTE, rank, TR_TAG_NAMES, tr->wire, &request);
                TR_TRY(tr_wait_request(tr, &request, "a worker to send names"));
                bytes.bytes = received;
            }
            TR_TRY(tr_archive_get_ids(&bytes, &list, false));
            tr_names_piece piece = {.first = next,
                                    .n = list.n,
                                    .number = list.are_text ? NULL : list.number,
                                    .begin = list.begin,
                                    .text = list.text};
            next += list.n;
            more = list.n > 0;
            if (more && outcome == TR_OK) outcome = hand_out(state, &piece);
        }
    }
    return outcome;
}

int tr_names_each(const tr_names *names, tr_names_fn *piece, void *state)
{
    tr_context *tr = names->tr;
    return tr_agree(tr, tr->rank == 0         ? names_receive(names, piece, state)
                        : tr_is(tr, TR_SLAVE) ? names_send(names)
                                              : TR_OK);
}

/* ---- names in memory ---- */

bool tr_name_find(const struct tr_name_list *list, const char *text, size_t length, uint64_t *number)
{
    const struct tr_ids all = {.are_text = !list->number,
                               .n = list->n,
                               .number = (uint64_t *)(uintptr_t)list->number,
                               .begin = (uint64_t *)(uintptr_t)list->begin,
                               .text = (char *)(uintptr_t)list->text};
    struct id wanted = {0, list->number ? NULL : text, length};
    if (list->number && !tr_id_number(text, length, &wanted.number)) return false;
    size_t at = id_lower_bound(&all, &wanted);
    struct id found = at < all.n ? id_of(&all, at) : (struct id){0};
    *number = at;
    return at < all.n && id_compare(&found, &wanted) == 0;
}

int tr_name_print(const struct tr_name_list *list, size_t i, FILE *file)
{
    if (list->number) return fprintf(file, "%" PRIu64, list->number[i]) < 0 ? TR_ERR_IO : TR_OK;
    size_t n = (size_t)(list->begin[i + 1] - list->begin[i]);
    tr_put_visible(file, list->text + list->begin[i], n);
    return ferror(file) ? TR_ERR_IO : TR_OK;
}

/* ---- dictionaries ---- */

/* In a round each worker sends about ROUND_BYTES. There are so few owners that each has at least OWNER_BYTES of values: otherwise
 * the number of messages would be the square of the number of ranks, even for few values. */
enum { ROUND_BYTES = 1 << 23, OWNER_BYTES = 1 << 18, VALUE_BYTES = 16 /* of a value without its text */ };

struct tr_dictionary {
    uint64_t owners;     /* number of owners: workers 0 .. owners - 1 own values */
    struct tr_ids owned; /* the values that this worker owns: 4 bytes of the column, then the text */
    uint32_t *number;    /* number[i]: number in its column of owned value i, or TR_NO_NUMBER */
    /* this worker's range of the values that have numbers, in the order of column and number */
    tr_names *names;
};

struct value_ref {
    uint32_t column, place, owner;
};

/* Sends the values of a worker to their owners, in rounds. All workers call its functions together. */
struct rounds {
    tr_context *tr;
    const struct tr_counted *mine;
    const struct tr_dictionary *d;
    /* number of columns; number of workers; column and place of the first value of the next round */
    size_t n, workers, column, place;
    /* the `refs` values of this round: found[] in the order of column and place, ref[] in the order of owners */
    struct value_ref *found, *ref;
    size_t refs, found_capacity, ref_capacity, key_capacity;
    uint64_t *to, *from; /* numbers of values sent to each worker, and received from each worker */
    char *key;
    struct tr_ids got; /* the values that this worker has received, as in tr_dictionary.owned */
};

static int rounds_open(struct rounds *r)
{
    r->workers = (size_t)tr_layout_workers(&r->tr->layout);
    TR_TRY(TR_NEW(&r->to, 2 * r->workers));
    r->from = r->to + r->workers;
    return TR_OK;
}

static void rounds_close(struct rounds *r)
{
    tr_ids_free(&r->got);
    void *arrays[] = {r->found, r->ref, r->to, r->key};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) free(arrays[i]);
}

/* Sends the values of the next round to their owners. Sets *more to false if no worker has a value left. */
static int rounds_next(struct rounds *r, bool *more)
{
    TR_CLOSED_BY(tr_ids_free) struct tr_ids keys = {.are_text = true};
    TR_FREED uint64_t *next = NULL;
    size_t bytes = 0, n;
    uint32_t at;
    r->refs = 0;
    memset(r->to, 0, r->workers * sizeof *r->to);
    for (; r->column < r->n && bytes < ROUND_BYTES; r->column++, r->place = 0) {
        const struct tr_ids *values = r->mine[r->column].values;
        for (; r->place < values->n && bytes < ROUND_BYTES; r->place++) {
            const char *text = tr_ids_text(values, r->place, &n);
            if (r->mine[r->column].count[r->place] == 0) continue;
            TR_TRY(TR_GROW(&r->found, &r->found_capacity, r->refs + 1));
            uint64_t owner = (tr_mix(tr_text_hash(text, n) + r->column) >> 20) % r->d->owners;
            r->found[r->refs++] =
                (struct value_ref){(uint32_t)r->column, (uint32_t)r->place, (uint32_t)owner};
            r->to[owner]++;
            bytes += VALUE_BYTES + n;
        }
        if (r->place < values->n) break;
    }
    int32_t any = r->refs > 0;
    TR_TRY(tr_all_reduce(r->tr, TR_SET_WORKERS, TR_MAX, TR_I32, &any, 1));
    *more = any;
    if (!any) return TR_OK;

    /* sort by owner, and form keys of column and value, as in tr_dictionary.owned */
    TR_TRY(TR_GROW(&r->ref, &r->ref_capacity, r->refs));
    TR_TRY(TR_NEW(&next, r->workers));
    for (size_t w = 1; w < r->workers; w++) next[w] = next[w - 1] + r->to[w - 1];
    for (size_t i = 0; i < r->refs; i++) r->ref[next[r->found[i].owner]++] = r->found[i];
    for (size_t i = 0; i < r->refs; i++) {
        const struct value_ref *ref = &r->ref[i];
        const char *text = tr_ids_text(r->mine[ref->column].values, ref->place, &n);
        TR_TRY(TR_GROW(&r->key, &r->key_capacity, n + sizeof ref->column));
        memcpy(r->key, &ref->column, sizeof ref->column);
        memcpy(r->key + sizeof ref->column, text, n);
        TR_TRY(tr_ids_append_text(&keys, r->key, n + sizeof ref->column, &at));
    }
    tr_ids_free(&r->got);
    return ids_exchange(r->tr, &keys, r->to, &r->got, r->from);
}

/* Sends the counts of this worker's values to their owners, which add them up: (*count)[i] is that of owned value i. */
static int dictionary_count(tr_context *tr, const struct tr_counted *mine, size_t n, struct tr_dictionary *d,
                            uint64_t **count)
{
    TR_CLOSED_BY(rounds_close) struct rounds r = {.tr = tr, .mine = mine, .d = d, .n = n};
    TR_FREED uint64_t *got_from = NULL;
    size_t capacity = 0, length;
    TR_TRY(rounds_open(&r));
    TR_TRY(TR_NEW(&got_from, r.workers));
    for (bool more = true;;) {
        TR_FREED uint64_t *sent = NULL, *got = NULL;
        TR_TRY(rounds_next(&r, &more));
        if (!more) return TR_OK;
        TR_TRY(TR_NEW(&sent, r.refs));
        for (size_t i = 0; i < r.refs; i++) sent[i] = mine[r.ref[i].column].count[r.ref[i].place];
        TR_TRY(tr_all_to_all(tr, TR_SET_WORKERS, sent, r.to, sizeof *sent, (void **)&got, got_from));
        for (size_t i = 0; i < r.got.n; i++) {
            size_t known = d->owned.n;
            uint32_t place;
            const char *text = tr_ids_text(&r.got, i, &length);
            TR_TRY(tr_ids_add_text(&d->owned, text, length, &place));
            TR_TRY(TR_GROW(count, &capacity, d->owned.n));
            if (d->owned.n > known) (*count)[place] = 0;
            (*count)[place] += got[i];
        }
    }
}

static int dictionary_find(tr_context *tr, const struct tr_dictionary *d, const struct tr_counted *mine,
                           size_t n, uint32_t **number)
{
    TR_CLOSED_BY(rounds_close) struct rounds r = {.tr = tr, .mine = mine, .d = d, .n = n};
    size_t length;
    TR_TRY(rounds_open(&r));
    for (size_t c = 0; c < n; c++) TR_TRY(TR_NEW(&number[c], mine[c].values->n));
    for (bool more = true;;) {
        TR_FREED uint32_t *answer = NULL, *answers = NULL;
        TR_TRY(rounds_next(&r, &more));
        if (!more) return TR_OK;
        TR_TRY(TR_NEW(&answer, r.got.n));
        for (size_t i = 0; i < r.got.n; i++) {
            const char *text = tr_ids_text(&r.got, i, &length);
            uint32_t place = tr_ids_find_text(&d->owned, text, length);
            answer[i] = place == UINT32_MAX ? TR_NO_NUMBER : d->number[place];
        }
        TR_TRY(tr_all_to_all(tr, TR_SET_WORKERS, answer, r.from, sizeof *answer, (void **)&answers, r.to));
        for (size_t i = 0; i < r.refs; i++) number[r.ref[i].column][r.ref[i].place] = answers[i];
    }
}

int tr_dictionary_find(tr_context *tr, const struct tr_dictionary *dictionary, const struct tr_counted *mine,
                       size_t n, uint32_t **number)
{
    return tr_agree(tr, tr_is(tr, TR_SLAVE) ? dictionary_find(tr, dictionary, mine, n, number) : TR_OK);
}

/* The frequent values that this worker owns. `texts` are column, inverted count and value, so that they sort by column, then by
 * descending count, then by value. */
struct frequent {
    struct tr_ids texts;
    /* for each text: its place in `owned`, and its number among the texts of all workers */
    uint32_t *place, *number;
};

static void frequent_free(struct frequent *q)
{
    tr_ids_free(&q->texts);
    free(q->place);
    free(q->number);
}

/* bytes of column and count, which precede the value in a text */
enum { BEFORE_VALUE = sizeof(uint32_t) + sizeof(uint64_t) };

/* Counts the values that this worker owns, and lists the frequent ones. met[c]: number of all values of column c on all workers;
 * total[c]: number of its frequent values. */
static int dictionary_list(tr_context *tr, const struct tr_counted *mine, size_t n, uint64_t min_count,
                           struct tr_dictionary *d, uint64_t *met, uint64_t *total, struct frequent *q)
{
    uint64_t bytes = 0, workers = (uint64_t)tr_layout_workers(&tr->layout);
    TR_FREED uint64_t *count = NULL;
    TR_FREED char *text = NULL;
    size_t capacity = 0, length;
    uint32_t column, at;
    for (size_t c = 0; c < n; c++)
        if (mine[c].values->n > 0)
            bytes += mine[c].values->n * VALUE_BYTES + mine[c].values->begin[mine[c].values->n];
    TR_TRY(tr_all_reduce(tr, TR_SET_WORKERS, TR_SUM, TR_I64, &bytes, 1));
    d->owners = 1 + bytes / OWNER_BYTES < workers ? 1 + bytes / OWNER_BYTES : workers;
    TR_TRY(dictionary_count(tr, mine, n, d, &count));
    TR_TRY(TR_NEW(&q->place, d->owned.n));
    TR_TRY(TR_NEW(&q->number, d->owned.n));
    for (size_t i = 0; i < d->owned.n; i++) {
        const char *key = tr_ids_text(&d->owned, i, &length);
        memcpy(&column, key, sizeof column);
        met[column]++;
        if (count[i] < min_count) continue;
        TR_TRY(TR_GROW(&text, &capacity, sizeof count[i] + length));
        /* writes the highest byte first, so that texts sort as the numbers do */
        for (size_t k = 0; k < BEFORE_VALUE; k++)
            text[k] = (char)(k < sizeof column ? column >> 8 * (sizeof column - 1 - k)
                                               : ~count[i] >> 8 * (BEFORE_VALUE - 1 - k));
        memcpy(text + BEFORE_VALUE, key + sizeof column, length - sizeof column);
        TR_TRY(tr_ids_append_text(&q->texts, text, sizeof count[i] + length, &at));
        q->place[at] = (uint32_t)i;
        total[column]++;
    }
    TR_TRY(tr_all_reduce(tr, TR_SET_WORKERS, TR_SUM, TR_I64, met, n));
    return tr_all_reduce(tr, TR_SET_WORKERS, TR_SUM, TR_I64, total, n);
}

/* Converts the number of a frequent value among all texts to its number in its column, or to TR_NO_NUMBER if that is too large.
 * begin[c]: number of the first text of column c. */
static uint32_t number_in_column(const char *text, uint64_t number, const uint64_t *begin,
                                 uint64_t most_values)
{
    uint32_t column = 0;
    for (size_t i = 0; i < sizeof column; i++) column = column << 8 | (unsigned char)text[i];
    uint64_t k = number - begin[column];
    return k < most_values && k < TR_NO_NUMBER ? (uint32_t)k : TR_NO_NUMBER;
}

/* Sets d->number of the owned values. Appends to `list` those values of this worker's range of `all` that have a number. */
static int dictionary_number(struct tr_dictionary *d, const struct frequent *q, const tr_names *all, size_t n,
                             uint64_t most_values, const uint64_t *total, struct tr_ids *list)
{
    TR_FREED uint64_t *begin = NULL;
    size_t length;
    uint32_t place;
    TR_TRY(TR_NEW(&begin, n));
    for (size_t c = 1; c < n; c++) begin[c] = begin[c - 1] + total[c - 1];
    TR_TRY(TR_NEW(&d->number, d->owned.n));
    for (size_t i = 0; i < d->owned.n; i++) d->number[i] = TR_NO_NUMBER;
    for (size_t i = 0; i < q->texts.n; i++)
        d->number[q->place[i]] =
            number_in_column(tr_ids_text(&q->texts, i, &length), q->number[i], begin, most_values);
    for (size_t i = 0; i < all->mine.n; i++) {
        const char *text = tr_ids_text(&all->mine, i, &length);
        if (number_in_column(text, all->begin + i, begin, most_values) != TR_NO_NUMBER)
            TR_TRY(tr_ids_append_text(list, text + BEFORE_VALUE, length - BEFORE_VALUE, &place));
    }
    return TR_OK;
}

int tr_dictionary_make(tr_context *tr, const struct tr_counted *mine, size_t n, uint64_t min_count,
                       uint64_t most_values, struct tr_dictionary **dictionary,
                       struct tr_dictionary_column *column, uint32_t **number)
{
    TR_CLOSED_BY(tr_dictionary_free) struct tr_dictionary *d = NULL;
    TR_CLOSED_BY(frequent_free) struct frequent q = {.texts = {.are_text = true}};
    TR_CLOSED_BY(tr_names_free) tr_names *all = NULL;
    TR_FREED uint64_t *met = NULL, *total = NULL;
    bool works = tr_is(tr, TR_SLAVE);
    if (most_values == 0) most_values = UINT64_MAX;
    int status = TR_NEW(&d, 1);
    if (status == TR_OK) status = TR_NEW(&d->names, 1);
    if (status == TR_OK) status = TR_NEW(&met, n);
    if (status == TR_OK) status = TR_NEW(&total, n);
    TR_TRY(tr_agree(tr, status));
    /* `texts` of all workers are sorted, so the values of worker 0 are the first ones */
    tr_names *list = d->names;
    list->tr = tr;
    d->owned.are_text = list->mine.are_text = true;
    TR_TRY(tr_agree(tr, works ? dictionary_list(tr, mine, n, min_count, d, met, total, &q) : TR_OK));
    TR_TRY(tr_names_unite(tr, &q.texts, NULL, (size_t)d->owners, q.number, &all));
    status = works ? dictionary_number(d, &q, all, n, most_values, total, &list->mine) : TR_OK;
    TR_TRY(tr_agree(tr, status));
    TR_TRY(tr_all_reduce(tr, TR_SET_ALL, TR_MAX, TR_I64, met, n));
    TR_TRY(tr_all_reduce(tr, TR_SET_ALL, TR_MAX, TR_I64, total, n));
    for (size_t c = 0; c < n; c++) {
        column[c].values = total[c] < most_values ? total[c] : most_values;
        column[c].others = met[c] > column[c].values;
        column[c].met = met[c];
    }
    TR_TRY(tr_agree(tr, works ? names_place_range(tr, list) : TR_OK));
    TR_TRY(tr_all_reduce(tr, TR_SET_ALL, TR_MAX, TR_I64, &list->count, 1));
    TR_TRY(tr_dictionary_find(tr, d, mine, n, number));
    *dictionary = d;
    d = NULL;
    return TR_OK;
}

int tr_dictionary_archive(struct tr_archive *a, tr_context *tr, struct tr_dictionary **dictionary)
{
    bool there = *dictionary != NULL;
    TR_TRY(tr_archive_copy(a, &there, sizeof there));
    if (!there) return TR_OK;
    if (!a->writes) TR_TRY(TR_NEW(dictionary, 1));
    struct tr_dictionary *d = *dictionary;
    TR_TRY(tr_archive_copy(a, &d->owners, sizeof d->owners));
    TR_TRY(tr_names_archive(a, tr, &d->names));
    TR_TRY(tr_archive_ids(a, &d->owned, true));
    return tr_archive_array(a, &d->number, d->owned.n * sizeof *d->number);
}

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
