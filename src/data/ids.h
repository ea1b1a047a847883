/* A set of ids, whole numbers or texts, numbered 0, 1, 2, ... in the order in which they are added: their places. */
#ifndef TR_DATA_IDS_H
#define TR_DATA_IDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A slot of the hash table: place + 1 (0: free), and the bytes of a text. */
struct tr_ids_slot {
    uint64_t hash;
    uint32_t place, length;
};

struct tr_ids {
    bool are_text;
    size_t n;
    uint64_t *number; /* numbers */
    char *text;       /* text: id i is text[begin[i]] .. text[begin[i + 1] - 1] */
    uint64_t *begin;
    /* The place of a small number is direct[number] - 1 unless 0; other ids are found by hashing. */
    uint32_t *direct;
    uint64_t direct_size;
    struct tr_ids_slot *slot;
    size_t slots, hashed, number_capacity, text_capacity, begin_capacity;
};

/* Converts text to an id; false unless it is a whole number of 64 bits without leading zeros. */
bool tr_id_number(const char *text, size_t length, uint64_t *number);

void tr_ids_free(struct tr_ids *ids);

/* Finds the place of a number or text, or adds it. TR_ERR_SYSTEM for more than 2^32 - 2 ids. */
int tr_ids_add_number(struct tr_ids *ids, uint64_t number, uint32_t *place);
int tr_ids_add_text(struct tr_ids *ids, const char *text, size_t length, uint32_t *place);

/* The same in two steps, with the hash of the text. The memory that the second step needs is loaded between them. */
static inline void tr_ids_fetch(const struct tr_ids *ids, uint64_t hash)
{
    if (ids->slots > 0) __builtin_prefetch(&ids->slot[(size_t)(hash >> 32) & (ids->slots - 1)]);
}
int tr_ids_add_hashed(struct tr_ids *ids, const char *text, size_t length, uint64_t hash, uint32_t *place);

/* Finds the place of a text; UINT32_MAX: not found. */
uint32_t tr_ids_find_text(const struct tr_ids *ids, const char *text, size_t length);

uint64_t tr_text_hash(const char *text, size_t length);

/* Appends an id without looking for it, to a list that is not searched. */
int tr_ids_append_number(struct tr_ids *ids, uint64_t number, uint32_t *place);
int tr_ids_append_text(struct tr_ids *ids, const char *text, size_t length, uint32_t *place);

/* tr_ids_add_number(), inline for small known numbers. */
static inline int tr_ids_number(struct tr_ids *ids, uint64_t number, uint32_t *place)
{
    if (number < ids->direct_size && ids->direct[number] > 0) {
        *place = ids->direct[number] - 1;
        return 0;
    }
    return tr_ids_add_number(ids, number, place);
}

static inline const char *tr_ids_text(const struct tr_ids *ids, size_t place, size_t *length)
{
    *length = (size_t)(ids->begin[place + 1] - ids->begin[place]);
    return ids->text + ids->begin[place];
}

/* Lists the n places in ascending order of numbers or bytes, to be freed. Also for lists that are not searched. */
int tr_ids_sort(const struct tr_ids *ids, uint32_t **order);

#endif
