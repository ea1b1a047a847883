#include "table/server.h"

#include <stdlib.h>
#include <string.h>

#include "table/function.h"
#include "table/rows.h"
#include "table/share.h"
#include "table/squeeze.h"

/* An update that waits for its clock to be served. */
struct tr_held {
    struct tr_held *next;
    int rank;
    struct tr_message message;
    size_t bytes;
    max_align_t data[];
};

/* ---- registered key sets, sorted by rank and tag ---- */

static int by_rank_tag(const void *a, const void *b)
{
    const struct tr_client *x = *(const struct tr_client *const *)a, *y = *(const struct tr_client *const *)b;
    if (x->rank != y->rank) return x->rank < y->rank ? -1 : 1;
    return (x->tag > y->tag) - (x->tag < y->tag);
}

/* Where a client is in the table's list, or NULL. */
static struct tr_client **find_place(const struct tr_table *t, int rank, uint32_t tag)
{
    struct tr_client key = {.rank = rank, .tag = tag}, *wanted = &key;
    return t->clients > 0 ? bsearch(&wanted, t->client, t->clients, sizeof wanted, by_rank_tag) : NULL;
}

static struct tr_client *find_client(const struct tr_table *t, int rank, uint32_t tag)
{
    struct tr_client **place = find_place(t, rank, tag);
    return place ? *place : NULL;
}

const struct tr_client *tr_server_client(const struct tr_table *t, int rank, uint32_t tag)
{
    return find_client(t, rank, tag);
}

static int add_client(struct tr_table *t, int rank, uint32_t tag)
{
    struct tr_client *c;
    size_t i;
    TR_TRY(TR_GROW(&t->client, &t->client_capacity, t->clients + 1));
    TR_TRY(TR_NEW(&c, 1));
    c->rank = rank;
    c->tag = tag;
    for (i = t->clients++; i > 0 && by_rank_tag(&t->client[i - 1], &c) > 0; i--)
        t->client[i] = t->client[i - 1];
    t->client[i] = c;
    return TR_OK;
}

static void free_client(struct tr_client *c)
{
    free(c->arriving.unit);
    free(c->arriving.value);
    free(c->position);
    free(c->told);
    tr_hash_list_free(&c->keys);
    free(c);
}

static void forget_client(struct tr_table *t, int rank, uint32_t tag)
{
    struct tr_client **place = find_place(t, rank, tag);
    if (!place) return;
    t->pushing_clients -= (*place)->pushes;
    free_client(*place);
    size_t behind = (size_t)(t->client + --t->clients - place);
    memmove(place, place + 1, behind * sizeof *place);
}

void tr_server_forget_all(struct tr_table *t)
{
    for (size_t i = 0; i < t->clients; i++) free_client(t->client[i]);
    free(t->client);
    t->client = NULL;
    t->clients = t->client_capacity = t->pushing_clients = t->held_last = 0;
    for (struct tr_held *held; (held = t->held); free(held)) t->held = held->next;
}

void tr_server_forget_slots(struct tr_table *t)
{
    for (size_t i = 0; i < t->clients; i++) tr_hash_list_forget(&t->client[i]->keys);
}

/* ---- answers ---- */

int tr_server_reply(struct tr_table *t, int rank, uint32_t number, const struct tr_reply_head *head,
                    const void *data)
{
    struct tr_sending *reply;
    TR_TRY(tr_message_new(t->tr->tables, sizeof *head + head->bytes, &reply));
    memcpy(reply->body, head, sizeof *head);
    memcpy(reply->body + sizeof *head, data, head->bytes);
    tr_message_reply(t->tr->tables, reply, sizeof *head + head->bytes, rank, number);
    return TR_OK;
}

static int acknowledge(struct tr_table *t, int rank, const struct tr_message *m)
{
    struct tr_sending *reply;
    if (m->reply == 0) return TR_OK;
    TR_TRY(tr_message_new(t->tr->tables, 0, &reply));
    tr_message_reply(t->tr->tables, reply, 0, rank, m->reply);
    return TR_OK;
}

/* Takes from packed values what a client has of them: beside that, the difference is small, or not. */
static bool take_from(enum tr_dtype dtype, size_t n, const void *told, void *packed)
{
    double differs = 0, has = 0;
    tr_subtract_elements(dtype, n, told, packed);
    TR_FOR_REAL(dtype, {
        const T *d = packed, *x = told;
        for (size_t i = 0; i < n; i++) {
            differs += (double)d[i] * (double)d[i];
            has += (double)x[i] * (double)x[i];
        }
    })
    return differs <= has / 4;
}

/* Notes what a client will have when it has added the difference that it is sent. */
static int tell(struct tr_table *t, const struct tr_slice *slice, const void *message, size_t bytes,
                char *told)
{
    struct tr_encoded sent;
    TR_TRY(tr_encoded_open(message, bytes, slice, &sent));
    TR_TRY(tr_decode_packed(&sent, t->tr->tables->packed));
    tr_add_elements(t->dtype, slice->n * slice->width, t->tr->tables->packed, told);
    return TR_OK;
}

/* Answers with the packed units that have been read; or by how much they differ from those that the client was told, at 8
 * bits, or at 16 where that is not little (at first, for one). */
static int answer_packed(struct tr_table *t, int rank, const struct tr_message *m, char *told)
{
    struct tr_tables *tables = t->tr->tables;
    struct tr_slice slice = tr_slice_of(t, m->n);
    struct tr_wire wire = tr_pull_wire(t, m->flags & TR_FLAG_EXACT);
    if (told && take_from(t->dtype, m->n * t->unit_width, told, tables->packed))
        wire.precision = TR_PRECISION_F8;
    struct tr_reply_head head = {.version = atomic_load(&t->line[t->server]->version)};
    struct tr_sending *reply;
    TR_TRY(tr_message_new(tables, sizeof head + tr_encode_room(&slice, wire), &reply));
    char *body = (char *)reply->body + sizeof head;
    size_t bytes = tr_encode(&slice, wire, tables->packed, NULL, 0, NULL, body);
    if (told) TR_TRY(tell(t, &slice, body, bytes, told));
    if (told) TR_TRY(tr_squeeze(&tables->squeezer, body, &bytes));
    head.bytes = (uint32_t)bytes;
    memcpy(reply->body, &head, sizeof head);
    tr_message_reply(tables, reply, sizeof head + head.bytes, rank, m->reply);
    return TR_OK;
}

/* ---- kinds of messages ---- */

/* The keys or positions of a registration, behind those that have come before. */
static int take_entries(struct tr_table *t, struct tr_client *c, int rank, const struct tr_message *m,
                        const unsigned char *data, size_t bytes)
{
    uint64_t *entry;
    TR_TRY(TR_NEW(&entry, m->n));
    int status = TR_OK;
    if (!tr_take_ascending(data, bytes, t->hash ? UINT64_MAX : t->share_units, m->n, entry))
        status = tr_fail(TR_ERR_PEER, "rank %d registers keys that table %s has not", rank, t->name);
    if (status == TR_OK && t->hash) status = tr_hash_list_append(&c->keys, entry, m->n);
    if (status == TR_OK && !t->hash) {
        uint32_t *longer = realloc(c->position, ((size_t)m->first + m->n) * sizeof *longer);
        if (longer) c->position = longer;
        else status = tr_fail(TR_ERR_SYSTEM, "out of memory: %u keys of rank %d", m->first + m->n, rank);
        for (uint32_t i = 0; longer && i < m->n; i++) longer[m->first + i] = (uint32_t)entry[i];
    }
    free(entry);
    return status;
}

static int handle_register(struct tr_table *t, int rank, const struct tr_message *m, const void *data,
                           size_t bytes)
{
    if (m->first == 0) TR_TRY(add_client(t, rank, m->tag));
    struct tr_client *c = find_client(t, rank, m->tag);
    if (!(m->flags & TR_FLAG_IDENTITY) && (m->n > 0 || t->hash))
        TR_TRY(take_entries(t, c, rank, m, data, bytes));
    c->n = m->first + m->n;
    if (m->first == 0 && (m->flags & TR_FLAG_PUSHES)) {
        c->pushes = true;
        t->pushing_clients++;
    }
    return acknowledge(t, rank, m);
}

/* ---- pulls ---- */

/* What a function makes of those of n slots that there are; the others read as zeros. */
static int read_present(struct tr_table *t, int64_t version, uint32_t n, const uint32_t *slot, char *packed)
{
    uint64_t *present;
    uint32_t some = 0;
    TR_TRY(
        TR_NEW(&present,
               2 * (size_t)n)); /* slots and their places; behind them room to sort, then the slots alone */
    uint32_t *unit = (uint32_t *)(present + n);
    char *read = NULL;
    for (uint32_t i = 0; i < n; i++)
        if (slot[i] != TR_NO_SLOT) present[some++] = (uint64_t)slot[i] << 32 | i;
    tr_sort_by_upper_half(present, present + n, some); /* functions are promised units that ascend */
    for (uint32_t i = 0; i < some; i++) unit[i] = (uint32_t)(present[i] >> 32);
    int status = TR_NEW(&read, n * t->unit_bytes);
    if (status == TR_OK) status = tr_use_read(t, version, some, unit, read);
    memset(packed, 0, n * t->unit_bytes);
    for (uint32_t i = 0; status == TR_OK && i < some; i++)
        memcpy(packed + (uint32_t)present[i] * t->unit_bytes, read + i * t->unit_bytes, t->unit_bytes);
    free(present);
    free(read);
    return status;
}

static int read_slots(struct tr_table *t, struct tr_client *c, const struct tr_message *m, char *packed)
{
    const uint32_t *slot = c->keys.slot + m->first;
    tr_hash_list_refresh(&c->keys, t->map);
    if (t->use && t->use->function.read) return read_present(t, m->clock, m->n, slot, packed);
    tr_copy_slots_to_packed(slot, m->n, t->unit_bytes, t->map->array[0].at, packed);
    return TR_OK;
}

/* n units of a client's segment into packed memory: what is in the share, or what a function makes of it. */
static int read_units(struct tr_table *t, struct tr_client *c, const struct tr_message *m, char *packed)
{
    if (t->hash) return read_slots(t, c, m, packed);
    const char *share = t->share[t->server];
    const uint32_t *position = c->position ? c->position + m->first : NULL;
    if (t->use && t->use->function.read) {
        uint32_t *list = NULL;
        if (!position && m->first > 0) { /* a function knows the first units, or lists of them */
            TR_TRY(TR_NEW(&list, m->n));
            for (uint32_t i = 0; i < m->n; i++) list[i] = m->first + i;
        }
        int status = tr_use_read(t, m->clock, m->n, list ? list : position, packed);
        free(list);
        return status;
    }
    if (position) tr_gather(position, m->n, t->unit_bytes, share, packed);
    else memcpy(packed, share + m->first * t->unit_bytes, m->n * t->unit_bytes);
    return TR_OK;
}

static int handle_pull(struct tr_table *t, int rank, const struct tr_message *m)
{
    struct tr_tables *tables = t->tr->tables;
    TR_TRY(TR_GROW(&tables->packed, &tables->packed_size, m->n * t->unit_bytes));
    struct tr_client *c = find_client(t, m->owner, m->tag);
    TR_TRY(read_units(t, c, m, tables->packed));
    bool exact = m->flags & TR_FLAG_EXACT, once = m->flags & TR_FLAG_ONCE;
    if (!tr_pull_differs(t, exact && !once)) return answer_packed(t, rank, m, NULL);
    if (!c->told) TR_TRY(TR_NEW(&c->told, c->n * t->unit_bytes));
    char *told = c->told + m->first * t->unit_bytes;
    if (!once) return answer_packed(t, rank, m, told);
    memcpy(told, tables->packed, m->n * t->unit_bytes);
    return answer_packed(t, rank, m, NULL);
}

/* ---- pushes ---- */

/* The units that a message brings, by their places in the share, and their values: in memory of the message or of
 * tables. */
static int open_update(struct tr_table *t, const struct tr_client *c, const struct tr_message *m,
                       const void *data, size_t bytes, uint32_t *n, const uint32_t **unit, const void **value)
{
    struct tr_tables *tables = t->tr->tables;
    struct tr_slice slice = tr_slice_of(t, m->n);
    struct tr_encoded message;
    TR_TRY(tr_unsqueeze(&tables->squeezer, &slice, &data, &bytes));
    TR_TRY(tr_encoded_open(data, bytes, &slice, &message));
    bool whole = message.encoding == TR_ENCODING_DENSE;
    TR_TRY(TR_GROW(&tables->unit, &tables->unit_size, m->n));
    if (whole && message.precision == TR_PRECISION_FULL) {
        *value = message.value;
    } else {
        TR_TRY(TR_GROW(&tables->packed, &tables->packed_size, m->n * t->unit_bytes));
        *value = tables->packed;
        if (whole) TR_TRY(tr_decode_packed(&message, tables->packed));
        else TR_TRY(tr_decode_units(&message, tables->unit, tables->packed, n));
    }
    if (whole) *n = m->n;
    *unit = whole && c->position ? c->position + m->first : tables->unit;
    for (uint32_t i = 0; *unit == tables->unit && i < *n; i++) {
        uint32_t at = m->first + (whole ? i : tables->unit[i]);
        tables->unit[i] = c->position ? c->position[at] : at;
    }
    return TR_OK;
}

/* With hash storage, makes slots of an update's places in the list of keys, and room for those that are absent. Units
 * of zeros need none, so that the first update does not make all keys present that a view has. */
static int make_slots(struct tr_table *t, struct tr_client *c, uint32_t *n, const void **value)
{
    struct tr_tables *tables = t->tr->tables;
    uint32_t *unit = tables->unit;
    if (!t->use || t->use->function.sparse || t->use->function.gradients) {
        TR_TRY(TR_GROW(&tables->packed, &tables->packed_size, *n * t->unit_bytes));
        *n = tr_leave_zeros_out(*n, t->unit_bytes, unit, *value, tables->packed);
        *value = tables->packed;
    }
    TR_TRY(tr_hash_list_add(&c->keys, t->map, unit, *n));
    for (uint32_t i = 0; i < *n; i++) unit[i] = c->keys.slot[unit[i]];
    tr_use_follow(t);
    return TR_OK;
}

/* A part of an update for a function, which gets whole updates only. */
static int assemble(struct tr_table *t, struct tr_client *c, const struct tr_message *m, uint32_t n,
                    const uint32_t *unit, const void *value)
{
    bool first = m->first == 0, last = m->flags & TR_FLAG_LAST;
    if (first && last) {
        tr_use_update(t, c->pusher, m, n, unit, value);
        return TR_OK;
    }
    struct tr_arriving *a = &c->arriving;
    if (first) a->n = 0;
    TR_TRY(TR_GROW(&a->unit, &a->unit_room, a->n + n));
    TR_TRY(TR_GROW(&a->value, &a->value_room, (a->n + n) * t->unit_bytes));
    memcpy(a->unit + a->n, unit, n * sizeof *unit);
    memcpy(a->value + a->n * t->unit_bytes, value, n * t->unit_bytes);
    a->n += n;
    if (last) tr_use_update(t, c->pusher, m, a->n, a->unit, a->value);
    return TR_OK;
}

/* An update that arrived. Others may be adding to the share, or, in lockstep, nobody: locks cost little then. */
static int apply_push(struct tr_table *t, int rank, const struct tr_message *m, const void *data,
                      size_t bytes)
{
    if (t->sparse) return tr_sparse_take(t->sparse_share, t->width, data, bytes);
    struct tr_client *c = find_client(t, rank, m->tag);
    uint32_t n = 0;
    const uint32_t *unit;
    const void *value;
    TR_TRY(open_update(t, c, m, data, bytes, &n, &unit, &value));
    if (t->hash) TR_TRY(make_slots(t, c, &n, &value));
    if (t->use) return assemble(t, c, m, n, unit, value);
    if (t->hash) { /* nobody else writes there */
        tr_add_packed_to_share(t->dtype, unit, n, t->unit_width, value, t->map->array[0].at);
        return TR_OK;
    }
    tr_share_add(t, n == m->n && !c->position ? NULL : unit, m->first, n, value);
    return TR_OK;
}

static int by_rank_tag_first(const void *a, const void *b)
{
    const struct tr_held *x = *(const struct tr_held *const *)a, *y = *(const struct tr_held *const *)b;
    if (x->rank != y->rank) return x->rank < y->rank ? -1 : 1;
    if (x->message.tag != y->message.tag) return x->message.tag < y->message.tag ? -1 : 1;
    return (x->message.first > y->message.first) - (x->message.first < y->message.first);
}

bool tr_server_holds(const struct tr_table *t)
{
    if (t->server < 0 || !t->lockstep) return false;
    return t->sparse ? tr_rows_wait(t) : tr_table_by_message(t) && t->pushing_clients > 0;
}

bool tr_server_holds_clock(const struct tr_table *t)
{
    return tr_server_holds(t) && (t->sparse || t->held_last == t->pushing_clients);
}

/* In a fixed order, so that runs repeat. What a worker that need not read has sent for later clocks stays. */
int tr_server_apply_held(struct tr_table *t)
{
    size_t n = 0;
    for (struct tr_held *held = t->held; held; held = held->next) n += held->message.clock == t->served;
    struct tr_held **sorted;
    TR_TRY(TR_NEW(&sorted, n));
    n = 0;
    t->held_last = 0;
    for (struct tr_held **link = &t->held; *link;) {
        struct tr_held *held = *link;
        if (held->message.clock == t->served) {
            sorted[n++] = held;
            *link = held->next;
            continue;
        }
        if (held->message.clock == t->served + 1 && held->message.flags & TR_FLAG_LAST) t->held_last++;
        link = &held->next;
    }
    qsort(sorted, n, sizeof *sorted, by_rank_tag_first);
    int status = TR_OK;
    for (size_t i = 0; i < n; i++) {
        if (status == TR_OK)
            status = apply_push(t, sorted[i]->rank, &sorted[i]->message, sorted[i]->data, sorted[i]->bytes);
        free(sorted[i]);
    }
    free(sorted);
    tr_use_clock(t, t->served);
    t->served++;
    return status;
}

static int hold_push(struct tr_table *t, int rank, const struct tr_message *m, const void *data, size_t bytes)
{
    struct tr_held *held = malloc(sizeof *held + bytes);
    if (!held) return tr_fail(TR_ERR_SYSTEM, "out of memory: an update of %zu bytes of rank %d", bytes, rank);
    held->rank = rank;
    held->message = *m;
    held->bytes = bytes;
    memcpy(held->data, data, bytes);
    held->next = t->held;
    t->held = held;
    if (m->clock == t->served && m->flags & TR_FLAG_LAST) t->held_last++;
    return TR_OK;
}

static int handle_push(struct tr_table *t, int rank, const struct tr_message *m, const void *data,
                       size_t bytes)
{
    TR_TRY(t->lockstep ? hold_push(t, rank, m, data, bytes) : apply_push(t, rank, m, data, bytes));
    return acknowledge(t, rank, m);
}

int tr_server_push_here(struct tr_table *t, const struct tr_message *m, const void *data, size_t bytes)
{
    return handle_push(t, t->tr->rank, m, data, bytes);
}

/* ---- rows ---- */

static int check_rows(const struct tr_table *t, int rank, const struct tr_message *m, size_t bytes)
{
    size_t each = t->hash ? sizeof(tr_key) : t->sparse ? sizeof(struct tr_sparse_request) : sizeof(uint32_t);
    if (bytes == m->n * each) return TR_OK;
    return tr_fail(TR_ERR_PEER, "rank %d asks for %u rows of table %s in %zu bytes", rank, m->n, t->name,
                   bytes);
}

static int answer_sparse(struct tr_table *t, int rank, const struct tr_message *m, const void *wishes)
{
    struct tr_sparse_head head = {0};
    struct tr_sending *reply;
    size_t room = (size_t)m->clock;
    TR_TRY(tr_message_new(t->tr->tables, sizeof head + room, &reply));
    int status = tr_sparse_answer(t->sparse_share, m->n, wishes, reply->body + sizeof head, room, &head);
    memcpy(reply->body, &head, sizeof head);
    if (status == TR_OK) tr_message_reply(t->tr->tables, reply, sizeof head + head.bytes, rank, m->reply);
    else tr_message_release(t->tr->tables, reply);
    return status;
}

/* The units at a list of positions, or with hash storage the keys, that a message brings. */
static int read_listed(struct tr_table *t, uint32_t n, const void *list, char *packed)
{
    struct tr_tables *tables = t->tr->tables;
    TR_TRY(TR_GROW(&tables->unit, &tables->unit_size, n));
    if (t->hash) {
        for (uint32_t i = 0; i < n; i++) {
            tr_key key;
            memcpy(&key, (const char *)list + i * sizeof key, sizeof key);
            tables->unit[i] = tr_hashmap_find(t->map, key);
        }
        tr_copy_slots_to_packed(tables->unit, n, t->unit_bytes, t->map->array[0].at, packed);
        return TR_OK;
    }
    memcpy(tables->unit, list, n * sizeof *tables->unit);
    for (uint32_t i = 0; i < n; i++)
        if (tables->unit[i] >= t->share_units)
            return tr_fail(TR_ERR_PEER, "row %u of table %s is asked for, but the share has %llu",
                           tables->unit[i], t->name, (unsigned long long)t->share_units);
    tr_gather(tables->unit, n, t->unit_bytes, t->share[t->server], packed);
    return TR_OK;
}

static int handle_rows(struct tr_table *t, int rank, const struct tr_message *m, const void *list,
                       size_t bytes)
{
    struct tr_tables *tables = t->tr->tables;
    TR_TRY(check_rows(t, rank, m, bytes));
    if (t->sparse) return answer_sparse(t, rank, m, list);
    TR_TRY(TR_GROW(&tables->packed, &tables->packed_size, m->n * t->unit_bytes));
    TR_TRY(read_listed(t, m->n, list, tables->packed));
    return answer_packed(t, rank, m, NULL);
}

/* ---- all ---- */

static int handle(struct tr_tables *tables, int rank, const struct tr_message *m, const void *data,
                  size_t bytes)
{
    struct tr_table *t = tables->table[m->table];
    switch ((enum tr_message_kind)m->kind) {
    case TR_MESSAGE_REGISTER: return handle_register(t, rank, m, data, bytes);
    case TR_MESSAGE_FORGET: forget_client(t, rank, m->tag); return TR_OK;
    case TR_MESSAGE_PULL: return handle_pull(t, rank, m);
    case TR_MESSAGE_PUSH: return handle_push(t, rank, m, data, bytes);
    case TR_MESSAGE_ASK: return tr_use_answer(t, rank, m, data);
    case TR_MESSAGE_ROWS: return handle_rows(t, rank, m, data, bytes);
    }
    return tr_fail(TR_ERR_INTERNAL, "rank %d sent a message of unknown kind %u", rank, m->kind);
}

int tr_server_poll(struct tr_tables *tables, int *did)
{
    if (tables->tr->me.server < 0) return TR_OK;
    double begin = 0;
    enum { AT_ONCE = 64 }; /* others must be polled too, however busy this server is */
    for (int handled = 0; handled < AT_ONCE; handled++) {
        int here = 0, bytes = 0;
        MPI_Message message;
        MPI_Status status;
        MPI_Improbe(MPI_ANY_SOURCE, TR_TAG_SERVER, tables->tr->wire, &here, &message, &status);
        if (!here) break;
        if (handled == 0) begin = tr_now();
        MPI_Get_count(&status, MPI_BYTE, &bytes);
        TR_TRY(TR_GROW(&tables->inbox, &tables->inbox_size, (size_t)bytes));
        MPI_Request request;
        MPI_Imrecv(tables->inbox, bytes, MPI_BYTE, &message, &request);
        tr_wait_alone(tables->tr, &request, "the rest of a message to a server");
        struct tr_message m;
        memcpy(&m, tables->inbox, sizeof m);
        TR_TRY(handle(tables, status.MPI_SOURCE, &m, tables->inbox + sizeof m, (size_t)bytes - sizeof m));
        ++*did;
    }
    if (begin > 0) tables->service.seconds += tr_now() - begin;
    return TR_OK;
}
