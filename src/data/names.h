/* Numbering of texts and numbers: by one process (ids), and over all workers: users and items (names), and values of categories
 * (dictionaries). The place of an id is its position in the list of one process, in the order in which ids were added.
 *
 * Names are numbered 0, 1, 2, ... in ascending order. Every worker holds a range of the sorted names, about equally many, and no
 * worker holds all: a sample of the names of each worker determines the ranges, names are sent to the owner of their range, and
 * their numbers are sent back.
 *
 * Values of categories are counted first (Angel's distributed counter). Each worker sends its values and counts, in rounds, to
 * the workers that own them by their hash. Values that are frequent enough are sorted by column, count and bytes, as names, and
 * the owners answer requests for their numbers. No worker holds all values, and values with equal hashes stay distinct.
 */
#ifndef TR_DATA_NAMES_H
#define TR_DATA_NAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "trireme/collective.h"
#include "trireme/data.h"

/* ---- ids: a list of distinct whole numbers or texts, each of which has a place 0, 1, 2, ... ---- */

/* A slot of the hash table. place: the id's place + 1, 0 if the slot is free; length: bytes of a text. */
struct tr_ids_slot {
    uint64_t hash;
    uint32_t place, length;
};

struct tr_ids {
    bool are_text;
    size_t n;
    uint64_t *number; /* the ids, if they are numbers (are_text is false) */
    char *text;       /* the ids, if they are texts: id i is text[begin[i]] .. text[begin[i + 1] - 1] */
    uint64_t *begin;
    /* Numbers below direct_size are found by a table: direct[number] is place + 1, or 0 if the number is not in the list. All other
     * ids are found by hashing. */
    uint32_t *direct;
    uint64_t direct_size;
    struct tr_ids_slot *slot;
    size_t slots, hashed, number_capacity, text_capacity, begin_capacity;
};

/* Converts text to a number. Returns false unless it is a whole number below 2^64 without leading zeros. */
bool tr_id_number(const char *text, size_t length, uint64_t *number);

uint64_t tr_text_hash(const char *text, size_t length);

/* Compares texts by bytes: less than, equal to, or greater than 0. */
static inline int tr_bytes_compare(const char *a, size_t n_a, const char *b, size_t n_b)
{
    int order = memcmp(a, b, n_a < n_b ? n_a : n_b);
    return order ? order : (n_a > n_b) - (n_a < n_b);
}

void tr_ids_free(struct tr_ids *ids);

/* Finds the place of a number, which is added if the list does not have it. tr_ids_add_text() does this for texts. TR_ERR_SYSTEM:
 * there are more than 2^32 - 2 ids. */
int tr_ids_add_number(struct tr_ids *ids, uint64_t number, uint32_t *place);

/* Returns the slot where the search for a hash begins. It depends on the upper half of the hash, so that callers can use the lower
 * half independently. */
static inline size_t tr_ids_first_slot(uint64_t hash, size_t slots)
{
    return (size_t)(hash >> 32) & (slots - 1);
}

/* Add a text in two steps, with its tr_text_hash(): tr_ids_fetch() starts to load the slot into the cache, which
 * tr_ids_add_hashed() needs some time later. */
static inline void tr_ids_fetch(const struct tr_ids *ids, uint64_t hash)
{
    if (ids->slots > 0) __builtin_prefetch(&ids->slot[tr_ids_first_slot(hash, ids->slots)]);
}
int tr_ids_add_hashed(struct tr_ids *ids, const char *text, size_t length, uint64_t hash, uint32_t *place);

static inline int tr_ids_add_text(struct tr_ids *ids, const char *text, size_t length, uint32_t *place)
{
    return tr_ids_add_hashed(ids, text, length, tr_text_hash(text, length), place);
}

/* Finds the place of a text; UINT32_MAX: not found. */
uint32_t tr_ids_find_text(const struct tr_ids *ids, const char *text, size_t length);

/* Append an id without a search, to a list in which ids are never looked up. */
int tr_ids_append_number(struct tr_ids *ids, uint64_t number, uint32_t *place);
int tr_ids_append_text(struct tr_ids *ids, const char *text, size_t length, uint32_t *place);

/* Does the same as tr_ids_add_number(), and is inline for small known numbers. */
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

/* Sets *order (to be freed) to all places, by ascending numbers, or texts by bytes. Also for lists that are not searched. */
int tr_ids_sort(const struct tr_ids *ids, uint32_t **order);

/* ---- bytes, for other ranks and for the next start ---- */

/* A sequence of bytes. A function that copies a struct to an archive (writes) also copies it back, member by member. */
struct tr_archive {
    bool writes;
    char *bytes;
    size_t n, capacity, at; /* n: number of bytes; at: offset of the next byte to read */
};

/* Copies n bytes to the archive, or from it. TR_ERR_DATA: the archive is damaged. */
int tr_archive_copy(struct tr_archive *a, void *memory, size_t n);

/* Copies an array; `pointer` is the address of the pointer to it. Reading allocates the array, with a 0 behind it, or sets the
 * pointer to NULL if it has no bytes. */
int tr_archive_array(struct tr_archive *a, void *pointer, uint64_t bytes);

/* tr_archive_put_ids() writes the ids first .. end - 1 of a list. tr_archive_get_ids() reads ids and appends them to a list; finds:
 * texts can be looked up in it. */
int tr_archive_put_ids(struct tr_archive *a, const struct tr_ids *ids, size_t first, size_t end);
int tr_archive_get_ids(struct tr_archive *a, struct tr_ids *ids, bool finds);

static inline int tr_archive_ids(struct tr_archive *a, struct tr_ids *ids, bool finds)
{
    return a->writes ? tr_archive_put_ids(a, ids, 0, ids->n) : tr_archive_get_ids(a, ids, finds);
}

void tr_archive_free(struct tr_archive *a);

/* ---- names ---- */

/* Numbers the ids of all workers. All ranks; they return the same status.
 *
 * @param [in]  ids     the ids of this worker; empty on other ranks
 * @param [in]  known   names that have numbers already and keep them; new names get the numbers behind them. NULL: no name is known
 * @param [in]  owners  workers 0 .. owners - 1 hold the ranges of names; ignored if `known` is given
 * @param [out] number  the number of each id
 * @param [out] names   the new names. Free them after all names that know them
 * @return TR_ERR_SYSTEM for more than 2^32 - 2 names
 */
int tr_names_unite(tr_context *tr, const struct tr_ids *ids, const tr_names *known, size_t owners,
                   uint32_t *number, tr_names **names);

/* Concatenates the ids of all members of the set in *all, which is not searched. Free it also after an error. All members
 * together. */
int tr_ids_gather(tr_context *tr, enum tr_set set, const struct tr_ids *mine, struct tr_ids *all);

/* Copies all names, which must be texts, to all ranks. All ranks; they return the same status. */
int tr_names_gather(const tr_names *names, struct tr_ids *all);

void tr_names_free(tr_names **names); /* *names may be NULL */

/* Saves this rank's range of names in an archive (*names may be NULL), or restores it. Restore only if the layout of the ranks is
 * that of the checkpoint. */
int tr_names_archive(struct tr_archive *a, tr_context *tr, tr_names **names);

/* ---- dictionaries ---- */

struct tr_dictionary;

/* The values of one column on one worker. count[place]: number of rows with the value; a value with count 0 is ignored. */
struct tr_counted {
    const struct tr_ids *values;
    const uint64_t *count;
};

/* The result for one column, the same on all ranks. */
struct tr_dictionary_column {
    uint64_t values; /* number of values that have numbers, 0 .. values - 1 */
    bool others;     /* there are values without a number */
    uint64_t met;    /* number of all values, with or without a number */
};

/* Numbers the values of n columns. The most frequent value of a column has number 0; equally frequent values are ordered by bytes.
 * All ranks; they return the same status.
 *
 * @param [in]  mine         the values of this worker, one element per column; NULL on other ranks
 * @param [in]  min_count    values in fewer rows get no number
 * @param [in]  most_values  maximum of numbers per column; 0: no maximum
 * @param [out] number       number[c][place]: the number of a value, or TR_NO_NUMBER
 */
#define TR_NO_NUMBER UINT32_MAX
int tr_dictionary_make(tr_context *tr, const struct tr_counted *mine, size_t n, uint64_t min_count,
                       uint64_t most_values, struct tr_dictionary **dictionary,
                       struct tr_dictionary_column *column, uint32_t **number);

/* Finds the numbers of other values, as tr_dictionary_make() returns them. All ranks; they return the same status. */
int tr_dictionary_find(tr_context *tr, const struct tr_dictionary *dictionary, const struct tr_counted *mine,
                       size_t n, uint32_t **number);

/* Returns all values, column by column, in the order of their numbers. */
const tr_names *tr_dictionary_names(const struct tr_dictionary *dictionary);

/* Does the same as tr_names_archive(), for a dictionary. */
int tr_dictionary_archive(struct tr_archive *a, tr_context *tr, struct tr_dictionary **dictionary);

void tr_dictionary_free(struct tr_dictionary **dictionary); /* *dictionary may be NULL */

#endif
