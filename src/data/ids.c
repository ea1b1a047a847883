#include "data/ids.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"

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
    /* the last bytes, fewer than 8, as a number; no byte outside of the text is read */
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

/* Uses the upper half of the hash; the lower one is free for other uses. */
static size_t ids_first_slot(uint64_t hash, size_t slots)
{
    return (size_t)(hash >> 32) & (slots - 1);
}

static void ids_put_slot(struct tr_ids *ids, size_t i, uint64_t hash, uint32_t place, size_t length)
{
    ids->slot[i] = (struct tr_ids_slot){hash, place + 1, (uint32_t)length};
    ids->hashed++;
}

/* Drops numbers that are in ids->direct. */
static int ids_rehash(struct tr_ids *ids, size_t slots)
{
    struct tr_ids_slot *slot;
    TR_TRY(TR_NEW(&slot, slots));
    ids->hashed = 0;
    for (size_t i = 0; i < ids->slots; i++) {
        const struct tr_ids_slot *old = &ids->slot[i];
        if (!old->place || (!ids->are_text && ids->number[old->place - 1] < ids->direct_size)) continue;
        size_t to = ids_first_slot(old->hash, slots);
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

/* Enlarges ids->direct to include a number, and moves hashed numbers that are included now. */
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
    /* four bytes for each number up to the largest are worth it if about one in four occurs, or if it is little memory */
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
    size_t i = ids_first_slot(hash, ids->slots);
    for (; ids->slot[i].place; i = (i + 1) & (ids->slots - 1)) {
        *place = ids->slot[i].place - 1;
        if (ids->slot[i].hash == hash) return TR_OK; /* no two numbers have one */
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

/* Finds the slot of a text, or the free one where it belongs. Short texts of equal length have different hashes, since tr_mix()
 * has an inverse: they are not compared. */
static size_t ids_find_slot(const struct tr_ids *ids, uint64_t hash, const char *text, size_t n)
{
    size_t i = ids_first_slot(hash, ids->slots);
    for (; ids->slot[i].place; i = (i + 1) & (ids->slots - 1)) {
        const struct tr_ids_slot *s = &ids->slot[i];
        if (s->hash != hash || s->length != (uint32_t)n) continue;
        if (n <= sizeof hash || memcmp(ids->text + ids->begin[s->place - 1], text, n) == 0) return i;
    }
    return i;
}

int tr_ids_add_text(struct tr_ids *ids, const char *text, size_t n, uint32_t *place)
{
    return tr_ids_add_hashed(ids, text, n, tr_text_hash(text, n), place);
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

static int by_number(const void *a, const void *b)
{
    const struct numbered *x = a, *y = b;
    return (x->number > y->number) - (x->number < y->number);
}

/* Numbers in ids->direct are in order; others are larger. A list that is not searched has neither. */
static int ids_sort_numbers(const struct tr_ids *ids, uint32_t *order)
{
    struct numbered *large;
    bool listed = ids->direct_size == 0 && ids->slots == 0;
    size_t n = 0, k = 0;
    TR_TRY(TR_NEW(&large, listed ? ids->n : ids->hashed));
    for (size_t i = 0; i < ids->n && listed; i++) large[k++] = (struct numbered){ids->number[i], (uint32_t)i};
    for (uint64_t number = 0; number < ids->direct_size; number++)
        if (ids->direct[number]) order[n++] = ids->direct[number] - 1;
    for (size_t i = 0; i < ids->slots; i++)
        if (ids->slot[i].place)
            large[k++] = (struct numbered){ids->number[ids->slot[i].place - 1], ids->slot[i].place - 1};
    qsort(large, k, sizeof *large, by_number);
    for (size_t i = 0; i < k; i++) order[n++] = large[i].place;
    free(large);
    return TR_OK;
}

struct word {
    const char *text;
    size_t n;
    uint32_t place;
};

/* Returns the bucket of a text by its byte at a position: 0 if it ends there. */
static size_t word_bucket(const struct word *w, size_t at)
{
    return at < w->n ? (size_t)(unsigned char)w->text[at] + 1 : 0;
}

static int words_compare(const struct word *a, const struct word *b, size_t at)
{
    int order = memcmp(a->text + at, b->text + at, tr_min_size(a->n, b->n) - at);
    return order ? order : (a->n > b->n) - (a->n < b->n);
}

/* Radix sort by one byte at a time, from `at` on. The largest bucket is sorted in a loop, the others by recursion, whose depth is
 * log n at most. */
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
    for (size_t i = 1; i < n; i++) { /* insertion sort of the rest */
        struct word w = word[i];
        size_t k = i;
        for (; k > 0 && words_compare(&word[k - 1], &w, at) > 0; k--) word[k] = word[k - 1];
        word[k] = w;
    }
}

int tr_ids_sort(const struct tr_ids *ids, uint32_t **order)
{
    struct word *word;
    TR_TRY(TR_NEW(order, ids->n));
    int status = ids->are_text ? TR_NEW(&word, 2 * ids->n) : ids_sort_numbers(ids, *order);
    if (status != TR_OK) free(*order);
    if (status != TR_OK || !ids->are_text) return status;
    for (size_t i = 0; i < ids->n; i++) {
        word[i].text = tr_ids_text(ids, i, &word[i].n);
        word[i].place = (uint32_t)i;
    }
    size_t ordered = 1; /* as a list that one worker alone has sorted */
    while (ordered < ids->n && words_compare(&word[ordered - 1], &word[ordered], 0) <= 0) ordered++;
    if (ordered < ids->n) words_sort(word, word + ids->n, ids->n, 0);
    for (size_t i = 0; i < ids->n; i++) (*order)[i] = word[i].place;
    free(word);
    return TR_OK;
}
