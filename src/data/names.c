#include "data/names.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "data/dataset.h"
#include "data/exchange.h"

/* ---- lists of ids, sorted or not ---- */

struct list {
    bool are_text;
    size_t n;
    uint64_t *number;
    uint64_t *length; /* text */
    uint64_t *begin;
    char *text;
    size_t number_capacity, length_capacity, begin_capacity, text_capacity;
};

static void list_free(struct list *l)
{
    void *parts[] = {l->number, l->length, l->begin, l->text};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) free(parts[i]);
    *l = (struct list){.are_text = l->are_text};
}

struct id {
    uint64_t number;
    const char *text;
    size_t length;
};

static struct id list_id(const struct list *l, size_t i)
{
    if (!l->are_text) return (struct id){.number = l->number[i]};
    return (struct id){0, l->text + l->begin[i], (size_t)(l->begin[i + 1] - l->begin[i])};
}

static int compare_texts(const char *a, size_t n, const char *b, size_t m)
{
    int order = memcmp(a, b, tr_min_size(n, m));
    return order ? order : (n > m) - (n < m);
}

static int compare(const struct id *a, const struct id *b)
{
    if (a->text) return compare_texts(a->text, a->length, b->text, b->length);
    return (a->number > b->number) - (a->number < b->number);
}

static int list_append(struct list *l, const struct id *id)
{
    if (!l->are_text) {
        TR_TRY(TR_GROW(&l->number, &l->number_capacity, l->n + 1));
        l->number[l->n++] = id->number;
        return TR_OK;
    }
    TR_TRY(TR_GROW(&l->length, &l->length_capacity, l->n + 1));
    TR_TRY(TR_GROW(&l->begin, &l->begin_capacity, l->n + 2));
    if (l->n == 0) l->begin[0] = 0;
    uint64_t begin = l->begin[l->n];
    TR_TRY(TR_GROW(&l->text, &l->text_capacity, (size_t)begin + id->length + 1));
    memcpy(l->text + begin, id->text, id->length);
    l->length[l->n++] = id->length;
    l->begin[l->n] = begin + id->length;
    return TR_OK;
}

/* From lengths to places. */
static int find_begins(struct list *l)
{
    TR_TRY(TR_NEW(&l->begin, l->n + 1));
    for (size_t i = 0; i < l->n; i++) l->begin[i + 1] = l->begin[i] + l->length[i];
    return TR_OK;
}

static struct id ids_id(const struct tr_ids *ids, uint32_t place)
{
    if (!ids->are_text) return (struct id){.number = ids->number[place]};
    return (struct id){0, ids->text + ids->begin[place], (size_t)(ids->begin[place + 1] - ids->begin[place])};
}

static int list_sorted(const struct tr_ids *ids, const uint32_t *order, struct list *l)
{
    l->are_text = ids->are_text;
    for (size_t i = 0; i < ids->n; i++) {
        struct id id = ids_id(ids, order[i]);
        TR_TRY(list_append(l, &id));
    }
    return TR_OK;
}

static size_t bytes_between(const struct list *l, size_t first, size_t last)
{
    return l->are_text && last > first ? (size_t)(l->begin[last] - l->begin[first]) : 0;
}

/* The first id that is not smaller. */
static size_t lower_bound(const struct list *l, const struct id *id)
{
    size_t low = 0, high = l->n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        struct id other = list_id(l, middle);
        if (compare(&other, id) < 0) low = middle + 1;
        else high = middle;
    }
    return low;
}

/* ---- on their way ---- */

/* Hands each member count[m] ids, which lie in that order; *got has those of member 0 first, got_count by member. */
static int ship_ids(tr_context *tr, const struct list *l, const uint64_t *count, struct list *got,
                    uint64_t *got_count)
{
    *got = (struct list){.are_text = l->are_text};
    int members = tr_layout_workers(&tr->layout);
    uint64_t *bytes, *got_bytes;
    if (!l->are_text) {
        TR_TRY(tr_all_to_all(tr, TR_SET_WORKERS, l->number, count, sizeof *l->number, (void **)&got->number,
                             got_count));
        for (int m = 0; m < members; m++) got->n += got_count[m];
        return TR_OK;
    }
    TR_TRY(TR_NEW(&bytes, (size_t)members));
    TR_TRY(TR_NEW(&got_bytes, (size_t)members));
    for (size_t m = 0, at = 0; m < (size_t)members; at += count[m++])
        bytes[m] = bytes_between(l, at, at + count[m]);
    TR_TRY(tr_all_to_all(tr, TR_SET_WORKERS, l->length, count, sizeof *l->length, (void **)&got->length,
                         got_count));
    TR_TRY(tr_all_to_all(tr, TR_SET_WORKERS, l->text, bytes, 1, (void **)&got->text, got_bytes));
    for (int m = 0; m < members; m++) got->n += got_count[m];
    free(bytes);
    free(got_bytes);
    return find_begins(got);
}

/* Everybody gets all ids of all. */
static int spread_ids(tr_context *tr, const struct list *l, struct list *all)
{
    *all = (struct list){.are_text = l->are_text};
    uint64_t n, bytes;
    if (!l->are_text) {
        TR_TRY(tr_gather_to_all(tr, TR_SET_WORKERS, l->number, l->n, sizeof *l->number, (void **)&all->number,
                                &n));
        all->n = (size_t)n;
        return TR_OK;
    }
    TR_TRY(
        tr_gather_to_all(tr, TR_SET_WORKERS, l->length, l->n, sizeof *l->length, (void **)&all->length, &n));
    TR_TRY(tr_gather_to_all(tr, TR_SET_WORKERS, l->text, bytes_between(l, 0, l->n), 1, (void **)&all->text,
                            &bytes));
    all->n = (size_t)n;
    return find_begins(all);
}

/* ---- who has which range ---- */

struct tr_names {
    tr_context *tr;
    uint64_t first, count; /* of all workers together */
    uint64_t begin;        /* number of this worker's first */
    struct list mine;
    struct list split; /* worker w has what is not below split w - 1, and below split w */
};

struct sorted {
    struct id id;
    size_t place;
};

static int by_id(const void *a, const void *b)
{
    const struct sorted *x = a, *y = b;
    int order = compare(&x->id, &y->id);
    return order ? order : (x->place > y->place) - (x->place < y->place);
}

static int sort_list(const struct list *l, struct sorted **sorted)
{
    TR_TRY(TR_NEW(sorted, l->n));
    for (size_t i = 0; i < l->n; i++) (*sorted)[i] = (struct sorted){list_id(l, i), i};
    qsort(*sorted, l->n, sizeof **sorted, by_id);
    return TR_OK;
}

/* Of a sample of each worker's ids, one in so many. */
static int choose_splits(tr_context *tr, const struct list *ids, struct list *split)
{
    enum { SAMPLES = 64 };
    size_t members = (size_t)tr_layout_workers(&tr->layout), n = tr_min_size(ids->n, SAMPLES);
    struct list sample = {.are_text = ids->are_text}, all;
    struct sorted *sorted;
    split->are_text = ids->are_text;
    for (size_t i = 0; i < n && members > 1; i++) {
        struct id id = list_id(ids, ids->n * i / n);
        TR_TRY(list_append(&sample, &id));
    }
    TR_TRY(spread_ids(tr, &sample, &all));
    TR_TRY(sort_list(&all, &sorted));
    for (size_t m = 1; m < members && all.n > 0; m++)
        TR_TRY(list_append(split, &sorted[all.n * m / members].id));
    free(sorted);
    list_free(&sample);
    list_free(&all);
    return TR_OK;
}

static int copy_list(const struct list *from, struct list *to)
{
    to->are_text = from->are_text;
    for (size_t i = 0; i < from->n; i++) {
        struct id id = list_id(from, i);
        TR_TRY(list_append(to, &id));
    }
    return TR_OK;
}

/* How many of the sorted ids belong to each worker. Without splits (nobody has ids) there is nothing to send. */
static void count_for_owners(const struct list *ids, const struct list *split, size_t members,
                             uint64_t *count)
{
    size_t at = 0;
    for (size_t m = 0; m < members; m++) {
        size_t end = ids->n;
        if (m < split->n) {
            struct id id = list_id(split, m);
            end = lower_bound(ids, &id);
        }
        count[m] = end - at;
        at = end;
    }
}

/* ---- numbering ---- */

/* Numbers what all workers have sent to the owner of a range. answer[i] is that of id i; new names are counted from 0
 * and marked, until the others have said how many they have. */
struct numbering {
    uint32_t *answer;
    bool *is_new;
};

static int number_range(const struct list *got, const tr_names *known, tr_names *names, struct numbering *n)
{
    struct sorted *sorted;
    TR_TRY(TR_NEW(&n->answer, got->n));
    TR_TRY(TR_NEW(&n->is_new, got->n));
    TR_TRY(sort_list(got, &sorted));
    names->mine.are_text = got->are_text;
    for (size_t i = 0, k = 0; i < got->n; i++) {
        const struct id *id = &sorted[i].id;
        size_t place = sorted[i].place;
        if (i > 0 && compare(&sorted[i - 1].id, id) == 0) {
            n->answer[place] = n->answer[sorted[i - 1].place];
            n->is_new[place] = n->is_new[sorted[i - 1].place];
            continue;
        }
        int order = 1;
        for (; known && k < known->mine.n; k++) {
            struct id other = list_id(&known->mine, k);
            if ((order = compare(&other, id)) >= 0) break;
        }
        n->is_new[place] = order != 0;
        if (order == 0) {
            n->answer[place] = (uint32_t)(known->begin + k);
        } else {
            n->answer[place] = (uint32_t)names->mine.n;
            TR_TRY(list_append(&names->mine, id));
        }
    }
    free(sorted);
    return TR_OK;
}

/* Where this worker's new names begin, and how many there are in all. */
static int place_range(tr_context *tr, tr_names *names)
{
    int members = tr_layout_workers(&tr->layout);
    uint64_t mine = names->mine.n, *all;
    TR_TRY(TR_NEW(&all, (size_t)members));
    MPI_Request request;
    MPI_Iallgather(&mine, 1, MPI_UINT64_T, all, 1, MPI_UINT64_T, tr->workers, &request);
    TR_TRY(tr_wait_request(tr, &request, "all workers to number ids"));
    names->begin = names->first;
    for (int m = 0; m < members; m++) {
        if (m < tr->me.group * tr->layout.group_size + tr->me.member) names->begin += all[m];
        names->count += all[m];
    }
    free(all);
    return TR_OK;
}

static int check_total(const tr_names *names)
{
    uint64_t total = names->first + names->count;
    if (total < UINT32_MAX) return TR_OK;
    return tr_fail(TR_ERR_SYSTEM, "%llu different ids in one column, expected at most 2^32 - 2",
                   (unsigned long long)total);
}

static int unite(tr_context *tr, const struct tr_ids *ids, const tr_names *known, uint32_t *number,
                 tr_names *names)
{
    size_t members = (size_t)tr_layout_workers(&tr->layout);
    struct list sorted = {0}, got;
    struct numbering n = {0};
    uint32_t *order, *answers;
    uint64_t *count, *got_count, *back_count;
    TR_TRY(tr_ids_sort(ids, &order));
    TR_TRY(list_sorted(ids, order, &sorted));
    TR_TRY(TR_NEW(&count, members));
    TR_TRY(TR_NEW(&got_count, members));
    TR_TRY(TR_NEW(&back_count, members));
    TR_TRY(known ? copy_list(&known->split, &names->split) : choose_splits(tr, &sorted, &names->split));
    count_for_owners(&sorted, &names->split, members, count);
    TR_TRY(ship_ids(tr, &sorted, count, &got, got_count));
    TR_TRY(number_range(&got, known, names, &n));
    TR_TRY(place_range(tr, names));
    int status = check_total(names);
    for (size_t i = 0; i < got.n; i++)
        if (n.is_new[i]) n.answer[i] += (uint32_t)names->begin;
    TR_TRY(tr_all_to_all(tr, TR_SET_WORKERS, n.answer, got_count, sizeof *answers, (void **)&answers,
                         back_count));
    for (size_t i = 0; i < ids->n; i++) number[order[i]] = answers[i];
    void *parts[] = {n.answer, n.is_new, answers, count, got_count, back_count, order};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) free(parts[i]);
    list_free(&sorted);
    list_free(&got);
    return status;
}

int tr_names_unite(tr_context *tr, const struct tr_ids *ids, const tr_names *known, uint32_t *number,
                   tr_names **out)
{
    tr_names *names;
    TR_TRY(TR_NEW(&names, 1));
    names->tr = tr;
    names->first = known ? known->first + known->count : 0;
    int status = tr_agree(tr, tr_is(tr, TR_SLAVE) ? unite(tr, ids, known, number, names) : TR_OK);
    uint64_t facts[2] = {names->count, ids->are_text}; /* those who do not work learn them */
    MPI_Request request;
    if (status == TR_OK) {
        MPI_Iallreduce(MPI_IN_PLACE, facts, 2, MPI_UINT64_T, MPI_MAX, tr->world, &request);
        status = tr_wait_request(tr, &request, "all workers to number ids");
    }
    names->count = facts[0];
    names->mine.are_text = facts[1];
    if (status == TR_OK) *out = names;
    else tr_names_free(&names);
    return status;
}

void tr_names_free(tr_names **names)
{
    if (!*names) return;
    list_free(&(*names)->mine);
    list_free(&(*names)->split);
    free(*names);
    *names = NULL;
}

/* ---- packed ---- */

struct packed_list {
    uint64_t are_text, n, bytes;
};

struct packed_names {
    uint64_t first, count, begin;
    /* of each, behind all this: n numbers, or n lengths and the text, filled up to 8 bytes */
    struct packed_list mine, split;
};

static struct packed_list describe_list(const struct list *l)
{
    return (struct packed_list){l->are_text, l->n, bytes_between(l, 0, l->n)};
}

static size_t packed_bytes(const struct packed_list *l)
{
    return l->n * sizeof(uint64_t) + (l->bytes + 7) / 8 * 8;
}

static char *pack_list(const struct list *l, char *to)
{
    struct packed_list p = describe_list(l);
    const uint64_t *numbers = l->are_text ? l->length : l->number;
    if (l->n > 0) memcpy(to, numbers, l->n * sizeof *numbers);
    if (p.bytes > 0) memcpy(to + l->n * sizeof *numbers, l->text + l->begin[0], p.bytes);
    return to + packed_bytes(&p);
}

int tr_names_pack(const tr_names *names, char **bytes, size_t *n)
{
    struct packed_names p = {names->first, names->count, names->begin, describe_list(&names->mine),
                             describe_list(&names->split)};
    *n = sizeof p + packed_bytes(&p.mine) + packed_bytes(&p.split);
    TR_TRY(TR_NEW(bytes, *n));
    memcpy(*bytes, &p, sizeof p);
    (void)pack_list(&names->split, pack_list(&names->mine, *bytes + sizeof p));
    return TR_OK;
}

static int unpack_list(const struct packed_list *p, const char *from, struct list *l)
{
    uint64_t **numbers = p->are_text ? &l->length : &l->number;
    l->are_text = p->are_text;
    l->n = (size_t)p->n;
    TR_TRY(TR_NEW(numbers, l->n));
    memcpy(*numbers, from, l->n * sizeof **numbers);
    if (!l->are_text) return TR_OK;
    TR_TRY(TR_NEW(&l->text, p->bytes + 1));
    memcpy(l->text, from + l->n * sizeof **numbers, p->bytes);
    return find_begins(l);
}

int tr_names_unpack(tr_context *tr, const char *bytes, size_t n, tr_names **out)
{
    struct packed_names p;
    tr_names *names;
    if (n < sizeof p) return tr_fail(TR_ERR_DATA, "names that are no names");
    memcpy(&p, bytes, sizeof p);
    if (n != sizeof p + packed_bytes(&p.mine) + packed_bytes(&p.split))
        return tr_fail(TR_ERR_DATA, "names that are not whole");
    TR_TRY(TR_NEW(&names, 1));
    *names = (struct tr_names){.tr = tr, .first = p.first, .count = p.count, .begin = p.begin};
    int status = unpack_list(&p.mine, bytes + sizeof p, &names->mine);
    if (status == TR_OK)
        status = unpack_list(&p.split, bytes + sizeof p + packed_bytes(&p.mine), &names->split);
    if (status == TR_OK) *out = names;
    else tr_names_free(&names);
    return status;
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

/* ---- all names, one range after the other ---- */

/* How many names from the first on are a piece: they take no more than about 1 MiB. */
static size_t piece_end(const struct list *l, size_t first)
{
    const size_t most = (size_t)1 << 20;
    size_t end = first;
    while (end < l->n && (end == first || (end + 1 - first) * 8 + bytes_between(l, first, end + 1) <= most))
        end++;
    return end;
}

/* What travels of a piece: n numbers, or n lengths and the bytes. */
struct piece_head {
    uint64_t n, bytes;
};

/* A worker's names to rank 0; a piece of none is the last. */
static int send_piece(const tr_names *names, size_t first, size_t end)
{
    tr_context *tr = names->tr;
    const struct list *l = &names->mine;
    const uint64_t *numbers = l->are_text ? l->length : l->number;
    struct piece_head head = {end - first, bytes_between(l, first, end)};
    MPI_Request request;
    MPI_Isend(&head, 2, MPI_UINT64_T, 0, TR_TAG_NAMES, tr->wire, &request);
    TR_TRY(tr_wait_request(tr, &request, "rank 0 to take names"));
    if (head.n == 0) return TR_OK;
    MPI_Isend(numbers + first, (int)head.n, MPI_UINT64_T, 0, TR_TAG_NAMES, tr->wire, &request);
    TR_TRY(tr_wait_request(tr, &request, "rank 0 to take names"));
    if (!l->are_text) return TR_OK;
    MPI_Isend(l->text + l->begin[first], (int)head.bytes, MPI_BYTE, 0, TR_TAG_NAMES, tr->wire, &request);
    return tr_wait_request(tr, &request, "rank 0 to take names");
}

static int send_all(const tr_names *names)
{
    for (size_t first = 0; first < names->mine.n;) {
        size_t end = piece_end(&names->mine, first);
        TR_TRY(send_piece(names, first, end));
        first = end;
    }
    return send_piece(names, 0, 0);
}

struct taking {
    const tr_names *names;
    tr_names_fn *piece;
    void *state;
    uint64_t next; /* number of the next name */
    int status;    /* of piece(): once it fails, the rest is received and dropped */
};

static void take(struct taking *t, const struct list *l, size_t first, size_t end)
{
    tr_names_piece piece = {
        .first = t->next, .n = end - first, .number = l->are_text ? NULL : l->number + first};
    uint64_t *begin = NULL;
    if (l->are_text && t->status == TR_OK) {
        t->status = TR_NEW(&begin, piece.n + 1);
        for (size_t i = 0; i <= piece.n && t->status == TR_OK; i++)
            begin[i] = l->begin[first + i] - l->begin[first];
        piece.begin = begin;
        piece.text = l->text + l->begin[first];
    }
    if (t->status == TR_OK) t->status = t->piece(t->state, &piece);
    free(begin);
    t->next += piece.n;
}

static void take_own(struct taking *t)
{
    const struct list *l = &t->names->mine;
    for (size_t first = 0; first < l->n;) {
        size_t end = piece_end(l, first);
        take(t, l, first, end);
        first = end;
    }
}

static int receive(tr_context *tr, void *to, uint64_t n, MPI_Datatype type, int rank)
{
    MPI_Request request;
    MPI_Irecv(to, (int)n, type, rank, TR_TAG_NAMES, tr->wire, &request);
    return tr_wait_request(tr, &request, "a worker to send names");
}

static int receive_piece(struct taking *t, int rank, bool *more)
{
    tr_context *tr = t->names->tr;
    struct list l = {.are_text = t->names->mine.are_text};
    struct piece_head head;
    TR_TRY(receive(tr, &head, 2, MPI_UINT64_T, rank));
    *more = head.n > 0;
    if (!*more) return TR_OK;
    l.n = (size_t)head.n;
    TR_TRY(TR_NEW(l.are_text ? &l.length : &l.number, l.n));
    TR_TRY(receive(tr, l.are_text ? l.length : l.number, head.n, MPI_UINT64_T, rank));
    if (l.are_text) {
        TR_TRY(TR_NEW(&l.text, (size_t)head.bytes));
        TR_TRY(receive(tr, l.text, head.bytes, MPI_BYTE, rank));
        TR_TRY(find_begins(&l));
    }
    take(t, &l, 0, l.n);
    list_free(&l);
    return TR_OK;
}

static int take_all(struct taking *t)
{
    tr_context *tr = t->names->tr;
    for (int w = 0; w < tr_layout_workers(&tr->layout); w++) {
        int rank = tr->layout.worker_rank[w];
        if (rank == tr->rank) take_own(t);
        for (bool more = rank != tr->rank; more;) TR_TRY(receive_piece(t, rank, &more));
    }
    return t->status;
}

int tr_names_each(const tr_names *names, tr_names_fn *piece, void *state)
{
    tr_context *tr = names->tr;
    struct taking taking = {names, piece, state, names->first, TR_OK};
    int status = tr->rank == 0 ? take_all(&taking) : tr_is(tr, TR_SLAVE) ? send_all(names) : TR_OK;
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
        struct id id = {0};
        if (list->number) id.number = list->number[i];
        else id = (struct id){0, list->text + list->begin[i], (size_t)(list->begin[i + 1] - list->begin[i])};
        int order = compare(&id, &wanted);
        if (order == 0) {
            *number = i;
            return true;
        }
        if (order < 0) low = i + 1;
        else high = i;
    }
    return false;
}

int tr_name_print(const struct tr_name_list *list, size_t i, FILE *file)
{
    size_t n = 0;
    if (list->number) return fprintf(file, "%" PRIu64, list->number[i]) < 0 ? TR_ERR_IO : TR_OK;
    n = (size_t)(list->begin[i + 1] - list->begin[i]);
    return fwrite(list->text + list->begin[i], 1, n, file) == n ? TR_OK : TR_ERR_IO;
}
