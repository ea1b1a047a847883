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

static struct id id_at(const uint64_t *number, const uint64_t *begin, const char *text, size_t i)
{
    if (number) return (struct id){.number = number[i]};
    return (struct id){0, text + begin[i], (size_t)(begin[i + 1] - begin[i])};
}

static struct id id_of(const struct tr_ids *list, size_t i)
{
    return id_at(list->are_text ? NULL : list->number, list->begin, list->text, i);
}

static int compare(const struct id *a, const struct id *b)
{
    if (!a->text) return (a->number > b->number) - (a->number < b->number);
    int order = memcmp(a->text, b->text, tr_min_size(a->length, b->length));
    return order ? order : (a->length > b->length) - (a->length < b->length);
}

static int append(struct tr_ids *list, const struct id *id)
{
    uint32_t place;
    return id->text ? tr_ids_append_text(list, id->text, id->length, &place)
                    : tr_ids_append_number(list, id->number, &place);
}

/* The first id that is not smaller. */
static size_t lower_bound(const struct tr_ids *list, const struct id *id)
{
    size_t low = 0, high = list->n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        struct id other = id_of(list, middle);
        if (compare(&other, id) < 0) low = middle + 1;
        else high = middle;
    }
    return low;
}

/* ---- packed: as ids travel, and as they are kept ---- */

/* Behind it n numbers, or n + 1 places where texts begin and the texts, filled up to 8 bytes. */
struct packed {
    uint64_t are_text, n, bytes;
};

/* Of the ids first .. end - 1. */
static struct packed describe(const struct tr_ids *list, size_t first, size_t end)
{
    bool texts = list->are_text && end > first;
    return (struct packed){list->are_text, end - first, texts ? list->begin[end] - list->begin[first] : 0};
}

static size_t packed_bytes(const struct packed *p)
{
    return sizeof *p + (p->n + p->are_text) * sizeof(uint64_t) + (p->bytes + 7) / 8 * 8;
}

static char *pack(const struct tr_ids *list, size_t first, size_t end, char *to)
{
    struct packed p = describe(list, first, end);
    uint64_t *numbers = (uint64_t *)(void *)(to + sizeof p);
    memcpy(to, &p, sizeof p);
    for (size_t i = 0; i < p.n && !p.are_text; i++) numbers[i] = list->number[first + i];
    if (p.are_text) numbers[0] = 0;
    for (size_t i = 1; i <= p.n && p.are_text; i++) numbers[i] = list->begin[first + i] - list->begin[first];
    if (p.bytes > 0) memcpy(numbers + p.n + 1, list->text + list->begin[first], p.bytes);
    return to + packed_bytes(&p);
}

/* Where everything is in what was packed. Returns what is behind it. */
static const char *unpack(const char *from, tr_names_piece *piece)
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

static int append_packed(struct tr_ids *list, const char **from)
{
    tr_names_piece piece;
    *from = unpack(*from, &piece);
    for (size_t i = 0; i < piece.n; i++) {
        struct id id = id_at(piece.number, piece.begin, piece.text, i);
        TR_TRY(append(list, &id));
    }
    return TR_OK;
}

/* Hands each worker count[w] ids, which lie in that order; *got has those of worker 0 first, got_count by worker. */
static int exchange_ids(tr_context *tr, const struct tr_ids *list, const uint64_t *count, struct tr_ids *got,
                        uint64_t *got_count)
{
    size_t workers = (size_t)tr_layout_workers(&tr->layout), at = 0;
    struct packed all = describe(list, 0, list->n);
    uint64_t *bytes;
    char *sent, *to, *received = NULL;
    TR_TRY(TR_NEW(&bytes, 2 * workers));
    TR_TRY(TR_NEW(&sent, packed_bytes(&all) + workers * (sizeof all + 16)));
    to = sent;
    for (size_t w = 0; w < workers; at += count[w++]) {
        char *end = count[w] > 0 ? pack(list, at, at + count[w], to) : to; /* nothing takes no message */
        bytes[w] = (uint64_t)(end - to);
        to = end;
    }
    int status = tr_all_to_all(tr, TR_SET_WORKERS, sent, bytes, 1, (void **)&received, bytes + workers);
    const char *from = received;
    *got = (struct tr_ids){.are_text = list->are_text};
    for (size_t w = 0; w < workers && status == TR_OK; w++) {
        size_t before = got->n;
        if (bytes[workers + w] > 0) status = append_packed(got, &from);
        got_count[w] = got->n - before;
    }
    free(bytes);
    free(sent);
    free(received);
    return status;
}

int tr_ids_gather(tr_context *tr, enum tr_set set, const struct tr_ids *list, struct tr_ids *all)
{
    struct packed p = describe(list, 0, list->n);
    char *sent, *received = NULL;
    uint64_t total = 0;
    TR_TRY(TR_NEW(&sent, packed_bytes(&p)));
    (void)pack(list, 0, list->n, sent);
    int status = tr_gather_to_all(tr, set, sent, packed_bytes(&p), 1, (void **)&received, &total);
    *all = (struct tr_ids){.are_text = list->are_text};
    for (const char *from = received; status == TR_OK && from < received + total;)
        status = append_packed(all, &from);
    free(sent);
    free(received);
    return status;
}

/* ---- who has which range ---- */

struct tr_names {
    tr_context *tr;
    uint64_t first, count; /* of all workers together */
    uint64_t begin;        /* number of this worker's first */
    struct tr_ids mine;
    struct tr_ids split; /* worker w has what is not below split w - 1, and below split w */
};

/* Of a sample of each worker's ids, one in so many. */
static int choose_splits(tr_context *tr, const struct tr_ids *ids, size_t owners, struct tr_ids *split)
{
    enum { SAMPLES = 64 };
    size_t n = tr_min_size(ids->n, SAMPLES);
    struct tr_ids sample = {.are_text = ids->are_text}, all;
    uint32_t *order;
    for (size_t i = 0; i < n && owners > 1; i++) {
        struct id id = id_of(ids, ids->n * i / n);
        TR_TRY(append(&sample, &id));
    }
    TR_TRY(tr_ids_gather(tr, TR_SET_WORKERS, &sample, &all));
    TR_TRY(tr_ids_sort(&all, &order));
    split->are_text = ids->are_text;
    for (size_t w = 1; w < owners && all.n > 0; w++) {
        struct id id = id_of(&all, order[all.n * w / owners]);
        TR_TRY(append(split, &id));
    }
    free(order);
    tr_ids_free(&sample);
    tr_ids_free(&all);
    return TR_OK;
}

static int copy_list(const struct tr_ids *from, struct tr_ids *to)
{
    to->are_text = from->are_text;
    for (size_t i = 0; i < from->n; i++) {
        struct id id = id_of(from, i);
        TR_TRY(append(to, &id));
    }
    return TR_OK;
}

/* How many of the sorted ids belong to each worker. Without splits (nobody has ids) there is nothing to send. */
static void count_for_owners(const struct tr_ids *ids, const struct tr_ids *split, size_t workers,
                             uint64_t *count)
{
    size_t at = 0;
    for (size_t w = 0; w < workers; w++) {
        size_t end = ids->n;
        if (w < split->n) {
            struct id id = id_of(split, w);
            end = lower_bound(ids, &id);
        }
        count[w] = end - at;
        at = end;
    }
}

/* ---- numbering ---- */

/* The number of an id among the known ones, which are searched from *at on. */
static bool is_known(const tr_names *known, const struct id *id, size_t *at, uint32_t *number)
{
    for (; known && *at < known->mine.n; ++*at) {
        struct id other = id_of(&known->mine, *at);
        int order = compare(&other, id);
        if (order > 0) return false;
        if (order == 0) {
            *number = (uint32_t)(known->begin + *at);
            return true;
        }
    }
    return false;
}

/* Numbers what all workers have sent to the owner of a range: answer[i] is that of id i. New names, which go to names->mine,
 * are marked and counted from 0 until the others have said how many they have. */
static int number_range(const struct tr_ids *got, const tr_names *known, tr_names *names, uint32_t *answer,
                        bool *is_new)
{
    uint32_t *order;
    struct id id, last = {0};
    TR_TRY(tr_ids_sort(got, &order));
    int status = TR_OK;
    for (size_t i = 0, at = 0; i < got->n && status == TR_OK; i++, last = id) {
        size_t place = order[i];
        id = id_of(got, place);
        if (i > 0 && compare(&last, &id) == 0) {
            answer[place] = answer[order[i - 1]];
            is_new[place] = is_new[order[i - 1]];
        } else if (!is_known(known, &id, &at, &answer[place])) {
            is_new[place] = true;
            answer[place] = (uint32_t)names->mine.n;
            status = append(&names->mine, &id);
        }
    }
    free(order);
    return status;
}

/* Where this worker's new names begin, and how many there are in all. */
static int place_range(tr_context *tr, tr_names *names)
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

/* What this worker has met travels to the owners of ranges, and their numbers come back. */
static int ask_owners(tr_context *tr, const struct tr_ids *sorted, const tr_names *known, tr_names *names,
                      uint32_t **answers)
{
    size_t workers = (size_t)tr_layout_workers(&tr->layout);
    struct tr_ids got = {0};
    uint64_t *count, *got_count;
    uint32_t *answer = NULL;
    bool *is_new = NULL;
    TR_TRY(TR_NEW(&count, 2 * workers));
    got_count = count + workers;
    count_for_owners(sorted, &names->split, workers, count);
    int status = exchange_ids(tr, sorted, count, &got, got_count);
    if (status == TR_OK) status = TR_NEW(&answer, got.n);
    if (status == TR_OK) status = TR_NEW(&is_new, got.n);
    if (status == TR_OK) status = number_range(&got, known, names, answer, is_new);
    if (status == TR_OK) status = place_range(tr, names);
    for (size_t i = 0; i < got.n && status == TR_OK; i++)
        if (is_new[i]) answer[i] += (uint32_t)names->begin;
    if (status == TR_OK)
        status =
            tr_all_to_all(tr, TR_SET_WORKERS, answer, got_count, sizeof *answer, (void **)answers, count);
    tr_ids_free(&got);
    void *parts[] = {count, answer, is_new};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) free(parts[i]);
    return status;
}

static int unite(tr_context *tr, const struct tr_ids *ids, const tr_names *known, size_t owners,
                 uint32_t *number, tr_names *names)
{
    struct tr_ids sorted = {.are_text = ids->are_text};
    uint32_t *order, *answers = NULL;
    names->mine.are_text = ids->are_text;
    TR_TRY(tr_ids_sort(ids, &order));
    int status = TR_OK;
    for (size_t i = 0; i < ids->n && status == TR_OK; i++) {
        struct id id = id_of(ids, order[i]);
        status = append(&sorted, &id);
    }
    if (status == TR_OK)
        status = known ? copy_list(&known->split, &names->split)
                       : choose_splits(tr, &sorted, owners, &names->split);
    if (status == TR_OK) status = ask_owners(tr, &sorted, known, names, &answers);
    for (size_t i = 0; i < ids->n && status == TR_OK; i++) number[order[i]] = answers[i];
    free(order);
    free(answers);
    tr_ids_free(&sorted);
    return status;
}

int tr_names_unite(tr_context *tr, const struct tr_ids *ids, const tr_names *known, size_t owners,
                   uint32_t *number, tr_names **out)
{
    tr_names *names;
    TR_TRY(TR_NEW(&names, 1));
    names->tr = tr;
    names->first = known ? known->first + known->count : 0;
    int status = tr_agree(tr, tr_is(tr, TR_SLAVE) ? unite(tr, ids, known, owners, number, names) : TR_OK);
    uint64_t facts[2] = {names->count, ids->are_text}; /* those who do not work learn them */
    if (status == TR_OK) status = tr_all_reduce(tr, TR_SET_ALL, TR_MAX, TR_I64, facts, 2);
    names->count = facts[0];
    names->mine.are_text = facts[1];
    if (status == TR_OK) *out = names;
    else tr_names_free(&names);
    return status;
}

int tr_names_gather(const tr_names *names, struct tr_ids *all)
{
    return tr_agree(names->tr, tr_ids_gather(names->tr, TR_SET_ALL, &names->mine, all));
}

int tr_names_of_list(tr_context *tr, struct tr_ids *list, tr_names **out)
{
    tr_names *names;
    int status = tr_agree(tr, TR_NEW(&names, 1));
    if (status != TR_OK) return status;
    names->tr = tr;
    names->mine = *list;
    *list = (struct tr_ids){.are_text = list->are_text};
    status = tr_agree(tr, tr_is(tr, TR_SLAVE) ? place_range(tr, names) : TR_OK);
    uint64_t count = names->count;
    if (status == TR_OK) status = tr_all_reduce(tr, TR_SET_ALL, TR_MAX, TR_I64, &count, 1);
    names->count = count;
    if (status == TR_OK) *out = names;
    else tr_names_free(&names);
    return status;
}

void tr_names_free(tr_names **names)
{
    if (!*names) return;
    tr_ids_free(&(*names)->mine);
    tr_ids_free(&(*names)->split);
    free(*names);
    *names = NULL;
}

const struct tr_ids *tr_names_here(const tr_names *names, uint64_t *first)
{
    *first = names->begin;
    return &names->mine;
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

/* ---- kept ---- */

struct kept_names {
    uint64_t first, count, begin;
    /* behind it, packed: mine, split */
};

int tr_names_pack(const tr_names *names, char **bytes, size_t *n)
{
    struct kept_names k = {names->first, names->count, names->begin};
    struct packed mine = describe(&names->mine, 0, names->mine.n);
    struct packed split = describe(&names->split, 0, names->split.n);
    *n = sizeof k + packed_bytes(&mine) + packed_bytes(&split);
    TR_TRY(TR_NEW(bytes, *n));
    memcpy(*bytes, &k, sizeof k);
    (void)pack(&names->split, 0, names->split.n, pack(&names->mine, 0, names->mine.n, *bytes + sizeof k));
    return TR_OK;
}

int tr_names_unpack(tr_context *tr, const char *bytes, tr_names **out)
{
    struct kept_names k;
    const char *from = bytes + sizeof k;
    tr_names *names;
    TR_TRY(TR_NEW(&names, 1));
    memcpy(&k, bytes, sizeof k);
    *names = (struct tr_names){.tr = tr, .first = k.first, .count = k.count, .begin = k.begin};
    names->mine.are_text = names->split.are_text = ((const struct packed *)(const void *)from)->are_text;
    int status = append_packed(&names->mine, &from);
    if (status == TR_OK) status = append_packed(&names->split, &from);
    if (status == TR_OK) *out = names;
    else tr_names_free(&names);
    return status;
}

/* ---- all names, one range after the other ---- */

/* How many names from the first on are a piece: they take no more than about 1 MiB. */
static size_t piece_end(const struct tr_ids *list, size_t first)
{
    const size_t most = (size_t)1 << 20;
    size_t end = first;
    for (; end < list->n; end++) {
        struct packed p = describe(list, first, end + 1);
        if (end > first && packed_bytes(&p) > most) break;
    }
    return end;
}

static int pack_piece(const struct tr_ids *list, size_t first, size_t end, char **bytes, uint64_t *n)
{
    struct packed p = describe(list, first, end);
    TR_TRY(TR_NEW(bytes, packed_bytes(&p)));
    (void)pack(list, first, end, *bytes);
    *n = packed_bytes(&p);
    return TR_OK;
}

/* A worker's names to rank 0: how many bytes a piece has, and the piece. One of none is the last. */
static int send_names(const tr_names *names)
{
    tr_context *tr = names->tr;
    const struct tr_ids *list = &names->mine;
    for (size_t first = 0, end;; first = end) {
        char *bytes;
        uint64_t n;
        MPI_Request request;
        end = piece_end(list, first);
        TR_TRY(pack_piece(list, first, end, &bytes, &n));
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

static int receive_piece(tr_context *tr, int rank, char **bytes)
{
    uint64_t n;
    MPI_Request request;
    MPI_Irecv(&n, 1, MPI_UINT64_T, rank, TR_TAG_NAMES, tr->wire, &request);
    TR_TRY(tr_wait_request(tr, &request, "a worker to send names"));
    TR_TRY(TR_NEW(bytes, (size_t)n));
    MPI_Irecv(*bytes, (int)n, MPI_BYTE, rank, TR_TAG_NAMES, tr->wire, &request);
    return tr_wait_request(tr, &request, "a worker to send names");
}

/* The next piece of a worker, which may be this rank: *end is where its next one begins then. */
static int next_piece(const tr_names *names, int rank, size_t *end, char **bytes)
{
    uint64_t n;
    size_t first = *end;
    if (rank != names->tr->rank) return receive_piece(names->tr, rank, bytes);
    *end = piece_end(&names->mine, first);
    return pack_piece(&names->mine, first, *end, bytes, &n);
}

/* Once piece() fails, the rest is received and dropped. */
static int take_names(const tr_names *names, tr_names_fn *hand_out, void *state)
{
    const struct tr_layout *layout = &names->tr->layout;
    uint64_t next = names->first;
    int outcome = TR_OK;
    for (int w = 0; w < tr_layout_workers(layout); w++) {
        size_t end = 0;
        for (bool more = true; more;) {
            char *bytes = NULL;
            tr_names_piece piece;
            TR_TRY(next_piece(names, layout->worker_rank[w], &end, &bytes));
            (void)unpack(bytes, &piece);
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
    int status = tr->rank == 0         ? take_names(names, piece, state)
                 : tr_is(tr, TR_SLAVE) ? send_names(names)
                                       : TR_OK;
    return tr_agree(tr, status);
}

/* ---- names in memory ---- */

bool tr_name_find(const struct tr_name_list *list, const char *text, size_t length, uint64_t *number)
{
    struct id wanted = {0, text, length};
    if (list->number) {
        wanted.text = NULL;
        if (!tr_id_number(text, length, &wanted.number)) return false;
    }
    size_t low = 0, high = list->n;
    while (low < high) {
        size_t i = low + (high - low) / 2;
        struct id id = id_at(list->number, list->begin, list->text, i);
        int order = compare(&id, &wanted);
        *number = i;
        if (order == 0) return true;
        if (order < 0) low = i + 1;
        else high = i;
    }
    return false;
}

int tr_name_print(const struct tr_name_list *list, size_t i, FILE *file)
{
    if (list->number) return fprintf(file, "%" PRIu64, list->number[i]) < 0 ? TR_ERR_IO : TR_OK;
    size_t n = (size_t)(list->begin[i + 1] - list->begin[i]);
    tr_put_visible(file, list->text + list->begin[i], n);
    return ferror(file) ? TR_ERR_IO : TR_OK;
}
