#include "data/names.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/escape.h"
#include "data/exchange.h"

/* ---- ids in lists, sorted or not ---- */

struct id {
    uint64_t number;
    const char *text; /* NULL: a number */
    size_t length;
};

static struct id id_of(const struct tr_ids *list, size_t i)
{
    if (!list->are_text) return (struct id){.number = list->number[i]};
    return (struct id){0, list->text + list->begin[i], (size_t)(list->begin[i + 1] - list->begin[i])};
}

static struct id id_of_piece(const tr_names_piece *list, size_t i)
{
    if (list->number) return (struct id){.number = list->number[i]};
    return (struct id){0, list->text + list->begin[i], (size_t)(list->begin[i + 1] - list->begin[i])};
}

static int id_compare(const struct id *a, const struct id *b)
{
    if (!a->text) return (a->number > b->number) - (a->number < b->number);
    int order = memcmp(a->text, b->text, tr_min_size(a->length, b->length));
    return order ? order : (a->length > b->length) - (a->length < b->length);
}

static int id_append(struct tr_ids *list, struct id id)
{
    uint32_t place;
    return id.text ? tr_ids_append_text(list, id.text, id.length, &place)
                   : tr_ids_append_number(list, id.number, &place);
}

/* Returns the first id of a sorted list that is not smaller. */
static size_t id_lower_bound(const tr_names_piece *list, const struct id *id)
{
    size_t low = 0, high = list->n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        struct id other = id_of_piece(list, middle);
        if (id_compare(&other, id) < 0) low = middle + 1;
        else high = middle;
    }
    return low;
}

/* ---- packed lists, for messages and for the next start ---- */

/* n numbers follow; or n + 1 offsets of texts and the texts, padded to 8 bytes. */
struct packed {
    uint64_t are_text, n, bytes;
};

/* Describes the ids first .. end - 1. */
static struct packed packed_of(const struct tr_ids *list, size_t first, size_t end)
{
    bool texts = list->are_text && end > first;
    return (struct packed){list->are_text, end - first, texts ? list->begin[end] - list->begin[first] : 0};
}

static size_t packed_bytes(const struct packed *p)
{
    return sizeof *p + (p->n + p->are_text) * sizeof(uint64_t) + (p->bytes + 7) / 8 * 8;
}

static char *packed_write(const struct tr_ids *list, size_t first, size_t end, char *to)
{
    struct packed p = packed_of(list, first, end);
    uint64_t *numbers = (uint64_t *)(void *)(to + sizeof p);
    memcpy(to, &p, sizeof p);
    for (size_t i = 0; i < p.n && !p.are_text; i++) numbers[i] = list->number[first + i];
    if (p.are_text) numbers[0] = 0;
    for (size_t i = 1; i <= p.n && p.are_text; i++) numbers[i] = list->begin[first + i] - list->begin[first];
    if (p.bytes > 0) memcpy(numbers + p.n + 1, list->text + list->begin[first], p.bytes);
    return to + packed_bytes(&p);
}

static int packed_new(const struct tr_ids *list, size_t first, size_t end, char **bytes, uint64_t *n)
{
    struct packed p = packed_of(list, first, end);
    *n = packed_bytes(&p);
    TR_TRY(TR_NEW(bytes, *n));
    (void)packed_write(list, first, end, *bytes);
    return TR_OK;
}

/* Finds the arrays of a packed list. Returns its end. */
static const char *packed_read(const char *from, tr_names_piece *piece)
{
    const struct packed *p = (const struct packed *)(const void *)from;
    const uint64_t *numbers = (const uint64_t *)(const void *)(from + sizeof *p);
    *piece = (tr_names_piece){.n = (size_t)p->n, .number = p->are_text ? NULL : numbers};
    if (p->are_text) {
        piece->begin = numbers;
        piece->text = (const char *)(numbers + p->n + 1);
    }
    return from + packed_bytes(p);
}

static int packed_append(struct tr_ids *list, const char **from)
{
    tr_names_piece piece;
    *from = packed_read(*from, &piece);
    for (size_t i = 0; i < piece.n; i++) TR_TRY(id_append(list, id_of_piece(&piece, i)));
    return TR_OK;
}

/* Sends count[w] ids to each worker w, in the order of the list; *got has those of worker 0 first, got_count[w] of worker w. */
static int ids_exchange(tr_context *tr, const struct tr_ids *list, const uint64_t *count, struct tr_ids *got,
                        uint64_t *got_count)
{
    size_t workers = (size_t)tr_layout_workers(&tr->layout), at = 0;
    struct packed all = packed_of(list, 0, list->n);
    uint64_t *bytes;
    char *sent, *to, *received = NULL;
    TR_TRY(TR_NEW(&bytes, 2 * workers));
    TR_TRY(TR_NEW(&sent, packed_bytes(&all) + workers * (sizeof all + 16)));
    to = sent;
    for (size_t w = 0; w < workers; at += count[w++]) {
        char *end = count[w] > 0 ? packed_write(list, at, at + count[w], to) : to; /* no message for no ids */
        bytes[w] = (uint64_t)(end - to);
        to = end;
    }
    int status = tr_all_to_all(tr, TR_SET_WORKERS, sent, bytes, 1, (void **)&received, bytes + workers);
    const char *from = received;
    *got = (struct tr_ids){.are_text = list->are_text};
    for (size_t w = 0; w < workers && status == TR_OK; w++) {
        size_t before = got->n;
        if (bytes[workers + w] > 0) status = packed_append(got, &from);
        got_count[w] = got->n - before;
    }
    free(bytes);
    free(sent);
    free(received);
    return status;
}

int tr_ids_gather(tr_context *tr, enum tr_set set, const struct tr_ids *list, struct tr_ids *all)
{
    char *sent, *received = NULL;
    uint64_t n, total = 0;
    TR_TRY(packed_new(list, 0, list->n, &sent, &n));
    int status = tr_gather_to_all(tr, set, sent, n, 1, (void **)&received, &total);
    *all = (struct tr_ids){.are_text = list->are_text};
    for (const char *from = received; status == TR_OK && from < received + total;)
        status = packed_append(all, &from);
    free(sent);
    free(received);
    return status;
}

/* ---- names ---- */

struct tr_names {
    tr_context *tr;
    uint64_t first, count; /* of all workers together */
    uint64_t begin;        /* number of this worker's first name */
    struct tr_ids mine;
    struct tr_ids split; /* worker w has the names from split w - 1 on, below split w */
};

/* Divides the ids into ranges for the owners, by a sample of each worker's sorted ids. */
static int names_choose_splits(tr_context *tr, const struct tr_ids *ids, size_t owners, struct tr_ids *split)
{
    enum { SAMPLES = 64 };
    size_t n = tr_min_size(ids->n, SAMPLES);
    struct tr_ids sample = {.are_text = ids->are_text}, all;
    uint32_t *order;
    for (size_t i = 0; i < n && owners > 1; i++) TR_TRY(id_append(&sample, id_of(ids, ids->n * i / n)));
    TR_TRY(tr_ids_gather(tr, TR_SET_WORKERS, &sample, &all));
    TR_TRY(tr_ids_sort(&all, &order));
    for (size_t w = 1; w < owners && all.n > 0; w++)
        TR_TRY(id_append(split, id_of(&all, order[all.n * w / owners])));
    free(order);
    tr_ids_free(&sample);
    tr_ids_free(&all);
    return TR_OK;
}

/* Finds the number of this worker's first new name, and the number of names. Workers only. */
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

/* Numbers the ids that the workers have sent to the owner of a range: answer[i] is the number of id i. New names are appended to
 * names->mine, marked, and counted from 0 until the number of the first is known. */
static int names_number_range(const struct tr_ids *got, const tr_names *known, tr_names *names,
                              uint32_t *answer, bool *is_new)
{
    uint32_t *order;
    struct id id, last = {0};
    TR_TRY(tr_ids_sort(got, &order));
    int status = TR_OK;
    for (size_t i = 0, at = 0; i < got->n && status == TR_OK; i++, last = id) {
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
        if (is_new[place]) status = id_append(&names->mine, id);
    }
    free(order);
    return status;
}

/* The sorted ids of a worker are sent to the owners of their ranges, and the numbers are sent back. */
static int names_unite(tr_context *tr, const struct tr_ids *ids, const tr_names *known, size_t owners,
                       uint32_t *number, tr_names *names)
{
    size_t workers = (size_t)tr_layout_workers(&tr->layout), at = 0;
    struct tr_ids sorted = {.are_text = ids->are_text}, got = {0};
    uint32_t *order = NULL, *answer = NULL, *answers = NULL;
    uint64_t *count = NULL;
    bool *is_new = NULL;
    names->mine.are_text = names->split.are_text = ids->are_text;
    int status = tr_ids_sort(ids, &order);
    for (size_t i = 0; i < ids->n && status == TR_OK; i++) status = id_append(&sorted, id_of(ids, order[i]));
    for (size_t i = 0; known && i < known->split.n && status == TR_OK; i++)
        status = id_append(&names->split, id_of(&known->split, i));
    if (status == TR_OK && !known) status = names_choose_splits(tr, &sorted, owners, &names->split);
    if (status == TR_OK) status = TR_NEW(&count, 2 * workers);
    const tr_names_piece list = {.n = sorted.n,
                                 .number = sorted.are_text ? NULL : sorted.number,
                                 .begin = sorted.begin,
                                 .text = sorted.text};
    for (size_t w = 0; w < workers && status == TR_OK; w++) { /* without ids there are no splits */
        struct id split = w < names->split.n ? id_of(&names->split, w) : (struct id){0};
        size_t end = w < names->split.n ? id_lower_bound(&list, &split) : sorted.n;
        count[w] = end - at;
        at = end;
    }
    if (status == TR_OK) status = ids_exchange(tr, &sorted, count, &got, count + workers);
    if (status == TR_OK) status = TR_NEW(&answer, got.n);
    if (status == TR_OK) status = TR_NEW(&is_new, got.n);
    if (status == TR_OK) status = names_number_range(&got, known, names, answer, is_new);
    if (status == TR_OK) status = names_place_range(tr, names);
    for (size_t i = 0; i < got.n && status == TR_OK; i++)
        if (is_new[i]) answer[i] += (uint32_t)names->begin;
    if (status == TR_OK)
        status = tr_all_to_all(tr, TR_SET_WORKERS, answer, count + workers, sizeof *answer, (void **)&answers,
                               count);
    for (size_t i = 0; i < ids->n && status == TR_OK; i++) number[order[i]] = answers[i];
    tr_ids_free(&got);
    tr_ids_free(&sorted);
    void *parts[] = {order, answer, answers, count, is_new};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) free(parts[i]);
    return status;
}

int tr_names_unite(tr_context *tr, const struct tr_ids *ids, const tr_names *known, size_t owners,
                   uint32_t *number, tr_names **out)
{
    tr_names *names;
    TR_TRY(TR_NEW(&names, 1));
    names->tr = tr;
    names->first = known ? known->first + known->count : 0;
    int status =
        tr_agree(tr, tr_is(tr, TR_SLAVE) ? names_unite(tr, ids, known, owners, number, names) : TR_OK);
    uint64_t facts[2] = {names->count, ids->are_text}; /* for ranks that are no workers */
    if (status == TR_OK) status = tr_all_reduce(tr, TR_SET_ALL, TR_MAX, TR_I64, facts, 2);
    names->count = facts[0];
    names->mine.are_text = facts[1];
    if (status == TR_OK) *out = names;
    else tr_names_free(&names);
    return status;
}

/* Makes names of lists of text that are ordered already: the names of worker 0 are first. The list is moved. */
static int names_of_list(tr_context *tr, struct tr_ids *list, tr_names **out)
{
    tr_names *names;
    TR_TRY(tr_agree(tr, TR_NEW(&names, 1)));
    names->tr = tr;
    names->mine = *list;
    *list = (struct tr_ids){.are_text = true};
    int status = tr_agree(tr, tr_is(tr, TR_SLAVE) ? names_place_range(tr, names) : TR_OK);
    if (status == TR_OK) status = tr_all_reduce(tr, TR_SET_ALL, TR_MAX, TR_I64, &names->count, 1);
    if (status == TR_OK) *out = names;
    else tr_names_free(&names);
    return status;
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

/* Three numbers, then the packed lists mine and split. */
int tr_names_pack(const tr_names *names, char **bytes, size_t *n)
{
    const uint64_t head[] = {names->first, names->count, names->begin};
    struct packed mine = packed_of(&names->mine, 0, names->mine.n);
    struct packed split = packed_of(&names->split, 0, names->split.n);
    *n = sizeof head + packed_bytes(&mine) + packed_bytes(&split);
    TR_TRY(TR_NEW(bytes, *n));
    memcpy(*bytes, head, sizeof head);
    char *end = packed_write(&names->mine, 0, names->mine.n, *bytes + sizeof head);
    (void)packed_write(&names->split, 0, names->split.n, end);
    return TR_OK;
}

int tr_names_unpack(tr_context *tr, const char *bytes, tr_names **out)
{
    uint64_t head[3];
    const char *from = bytes + sizeof head;
    tr_names *names;
    TR_TRY(TR_NEW(&names, 1));
    memcpy(head, bytes, sizeof head);
    *names = (struct tr_names){.tr = tr, .first = head[0], .count = head[1], .begin = head[2]};
    names->mine.are_text = names->split.are_text = ((const struct packed *)(const void *)from)->are_text;
    int status = packed_append(&names->mine, &from);
    if (status == TR_OK) status = packed_append(&names->split, &from);
    if (status == TR_OK) *out = names;
    else tr_names_free(&names);
    return status;
}

/* ---- all names at rank 0, range by range ---- */

/* Returns the end of the piece that begins with a name: about 1 MiB. */
static size_t names_piece_end(const struct tr_ids *list, size_t first)
{
    const size_t most = (size_t)1 << 20;
    size_t end = first;
    for (; end < list->n; end++) {
        struct packed p = packed_of(list, first, end + 1);
        if (end > first && packed_bytes(&p) > most) break;
    }
    return end;
}

/* Sends a worker's names to rank 0: for each piece its size and its bytes. The last piece is empty. */
static int names_send(const tr_names *names)
{
    tr_context *tr = names->tr;
    for (size_t first = 0, end;; first = end) {
        char *bytes;
        uint64_t n;
        MPI_Request request;
        end = names_piece_end(&names->mine, first);
        TR_TRY(packed_new(&names->mine, first, end, &bytes, &n));
        MPI_Isend(&n, 1, MPI_UINT64_T, 0, TR_TAG_NAMES, tr->wire, &request);
        int status = tr_wait_request(tr, &request, "rank 0 to take names");
        if (status == TR_OK) {
            MPI_Isend(bytes, (int)n, MPI_BYTE, 0, TR_TAG_NAMES, tr->wire, &request);
            status = tr_wait_request(tr, &request, "rank 0 to take names");
        }
        free(bytes);
        if (status != TR_OK || end == first) return status;
    }
}

/* Calls piece() for the names of all workers. After an error of piece() the remaining names are received and dropped. */
static int names_receive(const tr_names *names, tr_names_fn *hand_out, void *state)
{
    tr_context *tr = names->tr;
    uint64_t next = names->first;
    int outcome = TR_OK;
    for (int w = 0; w < tr_layout_workers(&tr->layout); w++) {
        int rank = tr->layout.worker_rank[w];
        size_t first = 0, end = 0;
        for (bool more = true; more; first = end) {
            char *bytes = NULL;
            uint64_t n;
            tr_names_piece piece;
            MPI_Request request;
            if (rank == tr->rank) {
                end = names_piece_end(&names->mine, first);
                TR_TRY(packed_new(&names->mine, first, end, &bytes, &n));
            } else {
                MPI_Irecv(&n, 1, MPI_UINT64_T, rank, TR_TAG_NAMES, tr->wire, &request);
                TR_TRY(tr_wait_request(tr, &request, "a worker to send names"));
                TR_TRY(TR_NEW(&bytes, (size_t)n));
                MPI_Irecv(bytes, (int)n, MPI_BYTE, rank, TR_TAG_NAMES, tr->wire, &request);
                TR_TRY(tr_wait_request(tr, &request, "a worker to send names"));
            }
            (void)packed_read(bytes, &piece);
            piece.first = next;
            next += piece.n;
            more = piece.n > 0;
            if (more && outcome == TR_OK) outcome = hand_out(state, &piece);
            free(bytes);
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
    const tr_names_piece all = {
        .n = list->n, .number = list->number, .begin = list->begin, .text = list->text};
    struct id wanted = {0, list->number ? NULL : text, length};
    if (list->number && !tr_id_number(text, length, &wanted.number)) return false;
    size_t at = id_lower_bound(&all, &wanted);
    struct id found = at < list->n ? id_of_piece(&all, at) : (struct id){0};
    if (at == list->n || id_compare(&found, &wanted) != 0) return false;
    *number = at;
    return true;
}

int tr_name_print(const struct tr_name_list *list, size_t i, FILE *file)
{
    if (list->number) return fprintf(file, "%" PRIu64, list->number[i]) < 0 ? TR_ERR_IO : TR_OK;
    size_t n = (size_t)(list->begin[i + 1] - list->begin[i]);
    tr_put_visible(file, list->text + list->begin[i], n);
    return ferror(file) ? TR_ERR_IO : TR_OK;
}

/* ---- dictionaries ---- */

/* A round sends about ROUND_BYTES of each worker. Owners have at least OWNER_BYTES each, so that the number of messages follows
 * the bytes and not the square of the ranks. */
enum { ROUND_BYTES = 1 << 23, OWNER_BYTES = 1 << 18, VALUE_BYTES = 16 /* of a value besides its text */ };

struct tr_dictionary {
    uint64_t owners;     /* workers 0 .. owners - 1 own values */
    struct tr_ids owned; /* by hash: 4 bytes of the column, and the value */
    uint32_t *number;    /* of each owned value */
    tr_names *names;     /* this worker's range of all values in their order */
};

struct value_ref {
    uint32_t column, place, owner;
};

/* The values of a worker on the way to their owners. All workers call its functions together. */
struct rounds {
    tr_context *tr;
    const struct tr_counted *mine;
    const struct tr_dictionary *d;
    size_t n, workers, column, place; /* column, place: begin of the next round */
    struct value_ref *found, *ref;    /* of this round, in the order of places, and by owner */
    size_t refs, found_capacity, ref_capacity, key_capacity;
    uint64_t *to, *from; /* number of values to and from each worker */
    char *key;
    struct tr_ids got; /* the owned values of this round: column and value */
};

static int rounds_open(struct rounds *r, tr_context *tr, const struct tr_counted *mine, size_t n,
                       const struct tr_dictionary *d)
{
    *r = (struct rounds){
        .tr = tr, .mine = mine, .d = d, .n = n, .workers = (size_t)tr_layout_workers(&tr->layout)};
    TR_TRY(TR_NEW(&r->to, 2 * r->workers));
    r->from = r->to + r->workers;
    return TR_OK;
}

static void rounds_close(struct rounds *r)
{
    tr_ids_free(&r->got);
    free(r->found);
    free(r->ref);
    free(r->to);
    free(r->key);
}

/* Sends the values of the next round to their owners. *more: a worker had any. */
static int rounds_next(struct rounds *r, bool *more)
{
    struct tr_ids keys = {.are_text = true};
    size_t bytes = 0, n;
    uint32_t at;
    uint64_t *next, before = 0;
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
    TR_TRY(TR_GROW(&r->ref, &r->ref_capacity, r->refs));
    TR_TRY(TR_NEW(&next, r->workers));
    for (size_t w = 0; w < r->workers; before += r->to[w++]) next[w] = before;
    for (size_t i = 0; i < r->refs; i++) r->ref[next[r->found[i].owner]++] = r->found[i];
    free(next);
    int status = TR_OK;
    for (size_t i = 0; i < r->refs && status == TR_OK; i++) {
        const struct value_ref *ref = &r->ref[i];
        const char *text = tr_ids_text(r->mine[ref->column].values, ref->place, &n);
        status = TR_GROW(&r->key, &r->key_capacity, n + sizeof ref->column);
        if (status != TR_OK) break;
        memcpy(r->key, &ref->column, sizeof ref->column);
        memcpy(r->key + sizeof ref->column, text, n);
        status = tr_ids_append_text(&keys, r->key, n + sizeof ref->column, &at);
    }
    tr_ids_free(&r->got);
    if (status == TR_OK) status = ids_exchange(r->tr, &keys, r->to, &r->got, r->from);
    tr_ids_free(&keys);
    return status;
}

/* Adds up the counts of all workers: *count has one element per owned value. */
static int dictionary_count(struct rounds *r, struct tr_dictionary *d, uint64_t **count)
{
    uint64_t *got_from;
    size_t capacity = 0, n;
    TR_TRY(TR_NEW(&got_from, r->workers));
    int status = TR_OK;
    for (bool more = true; status == TR_OK;) {
        uint64_t *sent = NULL, *got = NULL;
        status = rounds_next(r, &more);
        if (status != TR_OK || !more) break;
        status = TR_NEW(&sent, r->refs);
        for (size_t i = 0; i < r->refs && status == TR_OK; i++)
            sent[i] = r->mine[r->ref[i].column].count[r->ref[i].place];
        if (status == TR_OK)
            status = tr_all_to_all(r->tr, TR_SET_WORKERS, sent, r->to, sizeof *sent, (void **)&got, got_from);
        for (size_t i = 0; i < r->got.n && status == TR_OK; i++) {
            size_t known = d->owned.n;
            uint32_t place;
            const char *text = tr_ids_text(&r->got, i, &n);
            status = tr_ids_add_text(&d->owned, text, n, &place);
            if (status == TR_OK) status = TR_GROW(count, &capacity, d->owned.n);
            if (status != TR_OK) break;
            if (d->owned.n > known) (*count)[place] = 0;
            (*count)[place] += got[i];
        }
        free(sent);
        free(got);
    }
    free(got_from);
    return status;
}

static int dictionary_find(tr_context *tr, const struct tr_dictionary *d, const struct tr_counted *mine,
                           size_t n, uint32_t **number)
{
    struct rounds r;
    int status = rounds_open(&r, tr, mine, n, d);
    for (size_t c = 0; c < n && status == TR_OK; c++) status = TR_NEW(&number[c], mine[c].values->n);
    for (bool more = true; status == TR_OK;) {
        uint32_t *answer = NULL, *answers = NULL;
        size_t length;
        status = rounds_next(&r, &more);
        if (status != TR_OK || !more) break;
        status = TR_NEW(&answer, r.got.n);
        for (size_t i = 0; i < r.got.n && status == TR_OK; i++) {
            const char *text = tr_ids_text(&r.got, i, &length);
            uint32_t place = tr_ids_find_text(&d->owned, text, length);
            answer[i] = place == UINT32_MAX ? TR_NO_NUMBER : d->number[place];
        }
        if (status == TR_OK)
            status =
                tr_all_to_all(tr, TR_SET_WORKERS, answer, r.from, sizeof *answer, (void **)&answers, r.to);
        for (size_t i = 0; i < r.refs && status == TR_OK; i++)
            number[r.ref[i].column][r.ref[i].place] = answers[i];
        free(answer);
        free(answers);
    }
    rounds_close(&r);
    return status;
}

int tr_dictionary_find(tr_context *tr, const struct tr_dictionary *dictionary, const struct tr_counted *mine,
                       size_t n, uint32_t **number)
{
    return tr_agree(tr, tr_is(tr, TR_SLAVE) ? dictionary_find(tr, dictionary, mine, n, number) : TR_OK);
}

/* The frequent values that this worker owns, as texts that sort by column, count (the largest first) and value. */
struct frequent {
    struct tr_ids texts;
    uint32_t *place, *number; /* place among the owned values; number among the values of all columns */
};

enum { BEFORE_VALUE = sizeof(uint32_t) + sizeof(uint64_t) };

/* Counts the values that this worker owns. met: the number of values of each column; total: of frequent values. */
static int dictionary_list(tr_context *tr, const struct tr_counted *mine, size_t n, uint64_t min_count,
                           struct tr_dictionary *d, uint64_t *met, uint64_t *total, struct frequent *q)
{
    struct rounds r;
    uint64_t *count = NULL, bytes = 0, workers = (uint64_t)tr_layout_workers(&tr->layout);
    char *text = NULL;
    size_t capacity = 0, length;
    uint32_t column, at;
    for (size_t c = 0; c < n; c++)
        if (mine[c].values->n > 0)
            bytes += mine[c].values->n * VALUE_BYTES + mine[c].values->begin[mine[c].values->n];
    TR_TRY(tr_all_reduce(tr, TR_SET_WORKERS, TR_SUM, TR_I64, &bytes, 1));
    d->owners = 1 + bytes / OWNER_BYTES < workers ? 1 + bytes / OWNER_BYTES : workers;
    int status = rounds_open(&r, tr, mine, n, d);
    if (status == TR_OK) status = dictionary_count(&r, d, &count);
    rounds_close(&r);
    if (status == TR_OK) status = TR_NEW(&q->place, d->owned.n);
    if (status == TR_OK) status = TR_NEW(&q->number, d->owned.n);
    for (size_t i = 0; i < d->owned.n && status == TR_OK; i++) {
        const char *key = tr_ids_text(&d->owned, i, &length);
        memcpy(&column, key, sizeof column);
        met[column]++;
        if (count[i] < min_count) continue;
        status = TR_GROW(&text, &capacity, sizeof count[i] + length);
        if (status != TR_OK) break;
        for (size_t k = 0; k < BEFORE_VALUE; k++) /* highest byte first */
            text[k] = (char)(k < sizeof column ? column >> 8 * (sizeof column - 1 - k)
                                               : ~count[i] >> 8 * (BEFORE_VALUE - 1 - k));
        memcpy(text + BEFORE_VALUE, key + sizeof column, length - sizeof column);
        status = tr_ids_append_text(&q->texts, text, sizeof count[i] + length, &at);
        if (status != TR_OK) break;
        q->place[at] = (uint32_t)i;
        total[column]++;
    }
    if (status == TR_OK) status = tr_all_reduce(tr, TR_SET_WORKERS, TR_SUM, TR_I64, met, n);
    if (status == TR_OK) status = tr_all_reduce(tr, TR_SET_WORKERS, TR_SUM, TR_I64, total, n);
    free(count);
    free(text);
    return status;
}

/* Converts a number among the values of all columns to the number in its column; TR_NO_NUMBER: too large. */
static uint32_t number_in_column(const char *text, uint64_t number, const uint64_t *begin,
                                 uint64_t most_values)
{
    uint32_t column = 0;
    for (size_t i = 0; i < sizeof column; i++) column = column << 8 | (unsigned char)text[i];
    uint64_t k = number - begin[column];
    return k < most_values && k < TR_NO_NUMBER ? (uint32_t)k : TR_NO_NUMBER;
}

/* Numbers the owned values, and lists the values with a number in this worker's range of all values. */
static int dictionary_number(struct tr_dictionary *d, const struct frequent *q, const tr_names *all, size_t n,
                             uint64_t most_values, const uint64_t *total, struct tr_ids *list)
{
    uint64_t *begin;
    size_t length;
    uint32_t place;
    TR_TRY(TR_NEW(&begin, n));
    for (size_t c = 1; c < n; c++) begin[c] = begin[c - 1] + total[c - 1];
    int status = TR_NEW(&d->number, d->owned.n);
    for (size_t i = 0; i < d->owned.n && status == TR_OK; i++) d->number[i] = TR_NO_NUMBER;
    for (size_t i = 0; i < q->texts.n && status == TR_OK; i++)
        d->number[q->place[i]] =
            number_in_column(tr_ids_text(&q->texts, i, &length), q->number[i], begin, most_values);
    for (size_t i = 0; i < all->mine.n && status == TR_OK; i++) {
        const char *text = tr_ids_text(&all->mine, i, &length);
        if (number_in_column(text, all->begin + i, begin, most_values) != TR_NO_NUMBER)
            status = tr_ids_append_text(list, text + BEFORE_VALUE, length - BEFORE_VALUE, &place);
    }
    free(begin);
    return status;
}

int tr_dictionary_make(tr_context *tr, const struct tr_counted *mine, size_t n, uint64_t min_count,
                       uint64_t most_values, struct tr_dictionary **dictionary,
                       struct tr_dictionary_column *column, uint32_t **number)
{
    struct tr_dictionary *d = NULL;
    struct frequent q = {.texts = {.are_text = true}};
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
        status = tr_agree(tr, works ? dictionary_list(tr, mine, n, min_count, d, met, total, &q) : TR_OK);
    if (status == TR_OK) status = tr_names_unite(tr, &q.texts, NULL, (size_t)d->owners, q.number, &all);
    if (status == TR_OK)
        status = tr_agree(tr, works ? dictionary_number(d, &q, all, n, most_values, total, &list) : TR_OK);
    if (status == TR_OK) status = tr_all_reduce(tr, TR_SET_ALL, TR_MAX, TR_I64, met, n);
    if (status == TR_OK) status = tr_all_reduce(tr, TR_SET_ALL, TR_MAX, TR_I64, total, n);
    for (size_t c = 0; c < n && status == TR_OK; c++) {
        column[c].values = total[c] < most_values ? total[c] : most_values;
        column[c].others = met[c] > column[c].values;
        column[c].met = met[c];
    }
    tr_names_free(&all);
    if (status == TR_OK) status = names_of_list(tr, &list, &d->names);
    if (status == TR_OK) status = tr_dictionary_find(tr, d, mine, n, number);
    tr_ids_free(&q.texts);
    tr_ids_free(&list);
    void *parts[] = {q.place, q.number, met, total};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) free(parts[i]);
    if (status == TR_OK) *dictionary = d;
    else tr_dictionary_free(&d);
    return status;
}

/* The number of owners, the bytes of the names, the names, the owned values, their numbers. */
int tr_dictionary_pack(const struct tr_dictionary *d, char **bytes, size_t *n)
{
    char *names, *to;
    size_t size;
    TR_TRY(tr_names_pack(d->names, &names, &size));
    const uint64_t head[2] = {d->owners, size};
    struct packed owned = packed_of(&d->owned, 0, d->owned.n);
    *n = sizeof head + size + packed_bytes(&owned) + d->owned.n * sizeof *d->number;
    int status = TR_NEW(bytes, *n);
    if (status == TR_OK) {
        memcpy(*bytes, head, sizeof head);
        memcpy(*bytes + sizeof head, names, size);
        to = packed_write(&d->owned, 0, d->owned.n, *bytes + sizeof head + size);
        if (d->owned.n > 0) memcpy(to, d->number, d->owned.n * sizeof *d->number);
    }
    free(names);
    return status;
}

int tr_dictionary_unpack(tr_context *tr, const char *bytes, struct tr_dictionary **dictionary)
{
    struct tr_dictionary *d;
    tr_names_piece owned;
    uint64_t head[2];
    uint32_t place;
    TR_TRY(TR_NEW(&d, 1));
    d->owned.are_text = true;
    memcpy(head, bytes, sizeof head);
    d->owners = head[0];
    const char *numbers = packed_read(bytes + sizeof head + head[1], &owned);
    int status = tr_names_unpack(tr, bytes + sizeof head, &d->names);
    for (size_t i = 0; i < owned.n && status == TR_OK; i++) {
        struct id id = id_of_piece(&owned, i);
        status = tr_ids_add_text(&d->owned, id.text, id.length, &place);
    }
    if (status == TR_OK) status = TR_NEW(&d->number, owned.n);
    if (status == TR_OK && owned.n > 0) memcpy(d->number, numbers, owned.n * sizeof *d->number);
    if (status == TR_OK) *dictionary = d;
    else tr_dictionary_free(&d);
    return status;
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
