#include "table/server.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "table/view.h"

/* ======== messages ======== */

static_assert(sizeof(struct tr_message) % 16 == 0, "the body follows its header");

/* Messages of at least this size reuse buffers, because the system takes longer to provide new pages than to copy the values. */
enum { LONG = 1 << 16 };

int tr_message_new(struct tr_tables *tables, size_t room, struct tr_sending **message)
{
    struct tr_sending *m = room < LONG ? NULL : tables->spare;
    if (m && m->room >= room) {
        tables->spare = m->next;
    } else {
        *message = m = malloc(sizeof *m + room);
        if (!m) return tr_fail(TR_ERR_SYSTEM, "out of memory: a message of %zu bytes", room);
        m->room = room;
    }
    m->sent = m->acknowledged = MPI_REQUEST_NULL;
    m->pending = NULL;
    *message = m;
    return TR_OK;
}

void tr_message_release(struct tr_tables *tables, struct tr_sending *m)
{
    if (m->room < LONG) {
        free(m);
        return;
    }
    m->next = tables->spare;
    tables->spare = m;
}

static void message_list(struct tr_tables *tables, struct tr_sending *m)
{
    m->next = tables->sending;
    tables->sending = m;
}

void tr_message_send(struct tr_tables *tables, struct tr_sending *m, size_t bytes, int rank,
                     uint32_t *pending)
{
    MPI_Comm wire = tables->tr->wire;
    uint32_t kind = m->header.kind;
    int length = (int)(sizeof m->header + bytes);
    if ((kind == TR_MESSAGE_REGISTER || kind == TR_MESSAGE_PUSH) && m->header.reply > 0)
        MPI_Irecv(NULL, 0, MPI_BYTE, rank, TR_TAG_REPLY + (int)m->header.reply, wire, &m->acknowledged);
    /* a synchronous send, so that the message stays in the list until it has been received */
    if (kind == TR_MESSAGE_FORGET)
        MPI_Issend(&m->header, length, MPI_BYTE, rank, TR_TAG_SERVER, wire, &m->sent);
    else MPI_Isend(&m->header, length, MPI_BYTE, rank, TR_TAG_SERVER, wire, &m->sent);
    if (pending) ++*pending;
    m->pending = pending;
    tables->traffic.messages += kind != TR_MESSAGE_REGISTER && kind != TR_MESSAGE_FORGET;
    message_list(tables, m);
}

void tr_message_ask(struct tr_tables *tables, struct tr_sending *m, size_t bytes, int rank, void *answer,
                    size_t room, MPI_Request *received)
{
    m->header.reply = tr_request_number(tables);
    MPI_Irecv(answer, (int)room, MPI_BYTE, rank, TR_TAG_REPLY + (int)m->header.reply, tables->tr->wire,
              received);
    tr_message_send(tables, m, bytes, rank, NULL);
}

void tr_message_await(struct tr_tables *tables, struct tr_sending *m, MPI_Request received)
{
    m->acknowledged = received;
    message_list(tables, m);
}

/* Sends `bytes` bytes of the body as a reply. */
static void reply_send(struct tr_tables *tables, struct tr_sending *m, size_t bytes, int rank,
                       uint32_t number)
{
    MPI_Isend(m->body, (int)bytes, MPI_BYTE, rank, TR_TAG_REPLY + (int)number, tables->tr->wire, &m->sent);
    message_list(tables, m);
}

static int reply_acknowledge(struct tr_table *t, int rank, const struct tr_message *m)
{
    struct tr_sending *reply;
    if (m->reply == 0) return TR_OK;
    TR_TRY(tr_message_new(t->tr->tables, 0, &reply));
    reply_send(t->tr->tables, reply, 0, rank, m->reply);
    return TR_OK;
}

void tr_message_orphan(struct tr_tables *tables, const uint32_t *pending)
{
    for (struct tr_sending *m = tables->sending; m && *pending > 0; m = m->next)
        if (m->pending == pending) m->pending = NULL;
}

uint32_t tr_request_number(struct tr_tables *tables)
{
    enum { NUMBERS = 16384 }; /* more than ever in flight, and below the lowest limit of MPI tags */
    tables->next_request = tables->next_request % NUMBERS + 1;
    return tables->next_request;
}

struct tr_wire tr_push_wire(const struct tr_table *t)
{
    bool all = t->use && !t->use->function.sparse;
    return (struct tr_wire){all ? TR_ENCODING_DENSE : t->wire.encoding,
                            t->tr->tables->flushes ? TR_PRECISION_FULL : t->wire.precision};
}

struct tr_wire tr_pull_wire(const struct tr_table *t, bool exact)
{
    int rounded = t->wire.precision == TR_PRECISION_F8 ? TR_PRECISION_F16 : t->wire.precision;
    return (struct tr_wire){t->wire.encoding, exact ? TR_PRECISION_FULL : rounded};
}

/* ======== the server role ======== */

/* A registered key set, and its client. */
struct client {
    int rank;
    uint32_t tag;
    bool pushes;
    int pusher; /* index of the key set among those that push in this stage */
    uint32_t n;
    uint32_t *position;       /* positions of the n units; NULL: positions are 0 .. n-1, or hash storage */
    struct tr_hash_list keys; /* hash storage: the n keys and their slots */
    struct arriving {         /* messages of an update for a server function, until the last one arrives */
        uint32_t *unit;
        char *value;
        size_t n, unit_room, value_room;
    } arriving;
};

/* A message with an update that is held until the update may become visible. */
struct held {
    int rank;
    struct tr_message message;
    size_t bytes;
    max_align_t data[];
};

struct tr_serving {
    struct client **client; /* registered key sets and their clients, sorted by rank and tag */
    size_t clients, capacity;
    size_t pushing;     /* number of key sets whose clients push updates */
    int64_t served;     /* BSP: number of clocks of this stage whose updates have been added */
    struct held **held; /* held messages of clock `served` and of later clocks */
    size_t helds, held_capacity;
    size_t held_last; /* number of key sets whose messages of clock `served` have all arrived */
};

/* ---- registered key sets, sorted by rank and tag ---- */

static int client_compare(const void *a, const void *b)
{
    const struct client *x = *(const struct client *const *)a, *y = *(const struct client *const *)b;
    if (x->rank != y->rank) return x->rank < y->rank ? -1 : 1;
    return (x->tag > y->tag) - (x->tag < y->tag);
}

/* Returns the address of the list entry of a key set; NULL: the key set is not registered. */
static struct client **client_place(const struct tr_table *t, int rank, uint32_t tag)
{
    struct client key = {.rank = rank, .tag = tag}, *wanted = &key;
    const struct tr_serving *s = t->serving;
    return s->clients > 0 ? bsearch(&wanted, s->client, s->clients, sizeof wanted, client_compare) : NULL;
}

static void client_free(struct client *c)
{
    TR_FREE_ALL(c->arriving.unit, c->arriving.value, c->position);
    tr_hash_list_free(&c->keys);
    free(c);
}

int tr_server_open(struct tr_table *t)
{
    return TR_NEW(&t->serving, 1);
}

void tr_server_close(struct tr_table *t)
{
    struct tr_serving *s = t->serving;
    if (!s) return;
    for (size_t i = 0; i < s->clients; i++) client_free(s->client[i]);
    for (size_t i = 0; i < s->helds; i++) free(s->held[i]);
    TR_FREE_ALL(s->held, s->client, s);
    t->serving = NULL;
}

void tr_server_begin(struct tr_table *t)
{
    t->serving->served = 0;
}

bool tr_server_has_clients(const struct tr_table *t)
{
    return t->serving->clients > 0;
}

void tr_server_forget_slots(struct tr_table *t)
{
    for (size_t i = 0; i < t->serving->clients; i++) tr_hash_list_forget(&t->serving->client[i]->keys);
}

/* ======== server functions ======== */

/* ---- registry ---- */

static const tr_function *function_find(const struct tr_functions *f, const char *name)
{
    for (size_t i = 0; i < f->functions; i++)
        if (!strcmp(f->function[i].name, name)) return &f->function[i];
    return NULL;
}

static int answer_find(const struct tr_functions *f, const char *name)
{
    for (size_t i = 0; i < f->answers; i++)
        if (!strcmp(f->answer[i].name, name)) return (int)i;
    return -1;
}

static int function_add(struct tr_tables *tables, const tr_function *function)
{
    struct tr_functions *f = &tables->functions;
    if (!function->name || !function->update)
        return tr_fail(TR_ERR_INTERNAL, "a server function needs a name and update()");
    if (function->state_arrays > TR_STATE_ARRAYS)
        return tr_fail(TR_ERR_INTERNAL, "server function %s: %zu arrays of state: expected at most %d",
                       function->name, function->state_arrays, TR_STATE_ARRAYS);
    if (function_find(f, function->name))
        return tr_fail(TR_ERR_INTERNAL, "a server function %s is known already", function->name);
    TR_TRY(TR_GROW(&f->function, &f->function_capacity, f->functions + 1));
    f->function[f->functions++] = *function;
    return TR_OK;
}

static int answer_add(struct tr_tables *tables, const tr_answer *answer)
{
    struct tr_functions *f = &tables->functions;
    if (!answer->name || !answer->get || !answer->combine)
        return tr_fail(TR_ERR_INTERNAL, "an answer needs a name, get() and combine()");
    if (answer_find(f, answer->name) >= 0)
        return tr_fail(TR_ERR_INTERNAL, "an answer %s is known already", answer->name);
    TR_TRY(TR_GROW(&f->answer, &f->answer_capacity, f->answers + 1));
    f->answer[f->answers++] = *answer;
    return TR_OK;
}

int tr_function_register(tr_context *tr, const tr_function *function)
{
    return tr_agree(tr, function_add(tr->tables, function));
}

int tr_answer_register(tr_context *tr, const tr_answer *answer)
{
    return tr_agree(tr, answer_add(tr->tables, answer));
}

int tr_functions_open(struct tr_tables *tables)
{
    for (size_t i = 0; i < tr_builtin_function_count; i++)
        TR_TRY(function_add(tables, &tr_builtin_functions[i]));
    for (size_t i = 0; i < tr_builtin_answer_count; i++) TR_TRY(answer_add(tables, &tr_builtin_answers[i]));
    return TR_OK;
}

/* ---- the function of a table ---- */

/* Describes a share for a server function or an answer. value is NULL if this rank cannot read the share. */
static tr_share function_share(const struct tr_table *t, int server)
{
    bool here = server >= 0, map = t->map && server == t->server;
    return (tr_share){.table = t->name,
                      .dtype = t->dtype,
                      .width = t->unit_width,
                      .units = map    ? t->map->count
                               : here ? tr_partition_share(&t->partition, (uint32_t)server)
                                      : 0,
                      .growing = t->hash,
                      .value = map    ? t->map->array[0].at
                               : here ? t->share[server]
                                      : NULL,
                      .server = server,
                      .place = t};
}

/* In hash storage, the arrays of the function follow the array of values. */
void tr_use_follow(struct tr_table *t)
{
    struct tr_use *use = t->use;
    if (!use || !t->map) return;
    const struct tr_hash_area *array = t->map->array;
    use->share.units = t->map->count;
    use->share.value = (array++)->at;
    for (size_t i = 0; i < use->function.state_arrays; i++) use->share.state[i] = (array++)->at;
    if (use->sums) use->sum = array->at;
}

static int function_use(struct tr_table *t, const char *name, const void *argument)
{
    if (t->push == TR_PUSH_MERGE || t->push == TR_PUSH_ACCUMULATE)
        return tr_fail(
            TR_ERR_CONFIG,
            "%s: table.push %s is of no use: what servers do with updates of %s needs them as messages",
            tr_job_where(t->tr->job, "table.push"), t->push == TR_PUSH_MERGE ? "merge" : "accumulate",
            t->name);
    const struct tr_functions *known = &t->tr->tables->functions;
    const tr_function *function = function_find(known, name);
    if (!function) {
        char names[256];
        /* lists the known names as "a, b or c" */
        size_t size = sizeof names;
        size_t length = 0;
        *names = '\0';
        for (size_t i = 0; i < known->functions && length < size; i++)
            length += (size_t)snprintf(names + length, size - length, "%s%s",
                                       i == 0                      ? ""
                                       : i + 1 == known->functions ? " or "
                                                                   : ", ",
                                       known->function[i].name);
        return tr_fail(TR_ERR_CONFIG, "table %s: unknown server function %s: expected %s", t->name, name,
                       names);
    }
    if (function->read && (t->route == TR_ROUTE_LOAD || t->route == TR_ROUTE_GET))
        return tr_fail(
            TR_ERR_CONFIG,
            "%s: table.route %s is of no use: servers keep versions of %s, which are read by asking for them",
            tr_job_where(t->tr->job, "table.route"), t->route == TR_ROUTE_LOAD ? "load" : "get", t->name);
    TR_TRY(TR_NEW(&t->use, 1));
    t->use->function = *function;
    struct tr_use *use = t->use;
    use->share = function_share(t, t->server);
    if (argument && use->function.argument > 0) {
        char *copy;
        TR_TRY(TR_NEW(&copy, use->function.argument));
        memcpy(copy, argument, use->function.argument);
        use->share.argument = copy;
    }
    if (t->server < 0) return TR_OK;
    use->sums = use->function.merged && t->lockstep;
    /* allocates the function's arrays of state, and an array for the sum, each as large as the share */
    size_t bytes = t->share_units * t->unit_bytes, arrays = use->function.state_arrays;
    for (size_t i = 0; t->map && i < arrays + use->sums; i++)
        TR_TRY(tr_hashmap_add_array(t->map, t->unit_bytes));
    for (size_t i = 0; !t->map && i < arrays; i++) TR_TRY(TR_NEW((char **)&use->share.state[i], bytes));
    if (!t->map && use->sums) TR_TRY(TR_NEW(&use->sum, bytes));
    tr_use_follow(t);
    return use->function.open ? use->function.open(&use->share) : TR_OK;
}

int tr_table_use(tr_table *t, const char *name, const void *argument)
{
    if (t->sparse && name)
        return tr_agree(
            t->tr,
            tr_fail(TR_ERR_INTERNAL, "table %s has sparse rows: they are added up by no function", t->name));
    tr_use_free(t);
    return tr_agree(t->tr, name ? function_use(t, name, argument) : TR_OK);
}

int tr_table_set_argument(tr_table *t, const void *argument)
{
    struct tr_use *use = t->use;
    if (!use || !use->share.argument)
        return tr_fail(TR_ERR_INTERNAL, "table %s has no function with an argument", t->name);
    memcpy((void *)use->share.argument, argument, use->function.argument);
    return TR_OK;
}

void tr_use_free(struct tr_table *t)
{
    struct tr_use *use = t->use;
    if (!use) return;
    if (use->share.own && use->function.close) use->function.close(&use->share);
    free((void *)use->share.argument);
    for (size_t i = 0; !t->map && i < TR_STATE_ARRAYS; i++) free(use->share.state[i]);
    if (t->map) tr_hashmap_keep_arrays(t->map, 1);
    else free(use->sum);
    TR_FREE_ALL(use->sorted, use->passed, use->touched, use->unit, use->value, use);
    t->use = NULL;
}

/* Records a failure of a server function. After that updates are ignored, and the job continues until all ranks can stop
 * together. */
static void function_note(struct tr_table *t, const char *what, int status)
{
    struct tr_tables *tables = t->tr->tables;
    if (status == TR_OK || tables->status != TR_OK) return;
    snprintf(tables->why, sizeof tables->why, "server function %s of table %s on server %d (rank %d): %s: %s",
             t->use->function.name, t->name, t->server, t->tr->rank, what, tr_error_text());
    tables->status = status;
}

/* ---- updates ---- */

static int use_expire(struct tr_table *t, int64_t version)
{
    struct tr_use *use = t->use;
    if (!use->function.expire || version <= use->expired) return TR_OK;
    use->expired = version;
    return use->function.expire(&use->share, version);
}

int tr_use_begin(struct tr_table *t)
{
    struct tr_use *use = t->use;
    if (!use || t->server < 0) return TR_OK;
    int pushers = 0;
    for (size_t i = 0; i < t->serving->clients; i++)
        if (t->serving->client[i]->pushes) t->serving->client[i]->pusher = pushers++;
    free(use->passed);
    TR_TRY(TR_NEW(&use->passed, (size_t)pushers));
    use->share.pushers = pushers;
    use->share.stable = use->expired = 0;
    if (t->line[t->server]) atomic_store(&t->line[t->server]->version, 0);
    return TR_OK;
}

void tr_use_end(struct tr_table *t)
{
    if (!t->use || t->server < 0) return;
    function_note(t, "expire", use_expire(t, INT64_MAX));
}

static int update_apply(struct tr_table *t, tr_update *u)
{
    struct tr_use *use = t->use;
    if (use->function.map) TR_TRY(use->function.map(&use->share, u, &u->version));
    TR_TRY(use->function.update(&use->share, u));
    double kept = use->function.memory ? (double)use->function.memory(&use->share) : 0;
    double *most = &t->tr->tables->service.version_bytes;
    if (kept > *most) *most = kept;
    _Atomic int64_t *version = &t->line[t->server]->version; /* only this rank writes the version */
    int64_t clocks = u->clock + 1 - t->tr->tables->before;
    if (clocks > atomic_load_explicit(version, memory_order_relaxed))
        atomic_store_explicit(version, clocks, memory_order_release);
    /* the pusher's next read may need an older version than its push had, but none below its own clock */
    int64_t past = 1 + (u->version < u->clock ? u->version : u->clock);
    if (u->pusher < 0 || past <= use->passed[u->pusher]) return TR_OK;
    use->passed[u->pusher] = past;
    int64_t unneeded = INT64_MAX; /* the first version that a pusher or, in read(), a reader may still need */
    for (int i = 0; i < use->share.pushers; i++)
        if (use->passed[i] < unneeded) unneeded = use->passed[i];
    if (use->function.read && use->share.stable < unneeded) unneeded = use->share.stable;
    return use_expire(t, unneeded);
}

static int update_handle(struct tr_table *t, tr_update *u)
{
    struct tr_use *use = t->use;
    size_t bytes = t->unit_bytes, ascending = 1;
    if (use->function.gradients && !t->hash) {
        /* omits units that are all zeros; with hash storage push_apply() has omitted them */
        TR_TRY(TR_GROW(&use->unit, &use->unit_room, u->n));
        TR_TRY(TR_GROW(&use->value, &use->value_room, u->n * bytes));
        for (size_t i = 0; i < u->n; i++) use->unit[i] = u->unit ? u->unit[i] : (uint32_t)i;
        u->n = tr_leave_zeros_out((uint32_t)u->n, bytes, use->unit, u->value, use->value);
        u->unit = use->unit;
        u->value = use->value;
    }
    if (use->sums) {
        /* adds the update to the sum of its clock */
        size_t words = use->touched_words;
        TR_TRY(TR_GROW(&use->touched, &use->touched_words, use->share.units / 64 + 1));
        memset(use->touched + words, 0, (use->touched_words - words) * sizeof *use->touched);
        tr_add_units(t->dtype, NULL, u->unit, u->n, t->unit_width, u->value, use->sum);
        for (size_t i = 0; i < u->n; i++) {
            size_t unit = u->unit ? u->unit[i] : i;
            use->touched[unit / 64] |= UINT64_C(1) << unit % 64;
        }
        return TR_OK;
    }
    while (t->hash && ascending < u->n && u->unit[ascending - 1] < u->unit[ascending]) ascending++;
    if (t->hash && ascending < u->n) {
        /* units of hash storage arrive in the order of keys, but server functions expect ascending slots */
        TR_TRY(TR_GROW(&use->sorted, &use->sorted_room, 2 * u->n));
        TR_TRY(TR_GROW(&use->unit, &use->unit_room, u->n));
        TR_TRY(TR_GROW(&use->value, &use->value_room, u->n * bytes));
        for (size_t i = 0; i < u->n; i++) use->sorted[i] = (uint64_t)u->unit[i] << 32 | i;
        tr_sort_by_upper_half(use->sorted, use->sorted + u->n, u->n);
        for (size_t i = 0; i < u->n; i++) use->unit[i] = (uint32_t)use->sorted[i];
        tr_gather(use->unit, u->n, bytes, u->value, use->value);
        for (size_t i = 0; i < u->n; i++) use->unit[i] = (uint32_t)(use->sorted[i] >> 32);
        u->unit = use->unit;
        u->value = use->value;
    }
    return update_apply(t, u);
}

/* Applies one complete update, or adds it to the sum of its clock. If the function fails, records that in tables->status. */
static void update_take(struct tr_table *t, int pusher, const struct tr_message *m, size_t n,
                        const uint32_t *unit, const void *value)
{
    const struct tr_tables *tables = t->tr->tables;
    int64_t clock = m->clock + tables->before, seen = m->seen + tables->before;
    tr_update u = {.pusher = pusher,
                   .clock = clock,
                   .seen = seen < clock ? clock : seen, /* at least the pusher's own `clock` updates */
                   .version = clock,
                   .n = n,
                   .unit = unit,
                   .value = value};
    if (tables->status == TR_OK) function_note(t, "update", update_handle(t, &u));
}

/* Under BSP, after all updates of a clock were added to the sum: applies the sum, and clears it for the next clock. */
static int update_clock(struct tr_table *t, int64_t clock)
{
    struct tr_use *use = t->use;
    size_t bytes = t->unit_bytes, count = 0;
    if (!use || !use->sums || t->tr->tables->status != TR_OK) return TR_OK;
    clock += t->tr->tables->before;
    tr_update u = {.pusher = -1, .clock = clock, .seen = clock, .version = clock};
    for (size_t w = 0; w < use->touched_words; w++) count += (size_t)__builtin_popcountll(use->touched[w]);
    TR_TRY(TR_GROW(&use->unit, &use->unit_room, count));
    TR_TRY(TR_GROW(&use->value, &use->value_room, count * bytes));
    for (size_t w = 0; w < use->touched_words; w++)
        for (uint64_t bits = use->touched[w]; bits; bits &= bits - 1)
            use->unit[u.n++] = (uint32_t)(64 * w + (size_t)__builtin_ctzll(bits));
    tr_gather(use->unit, count, bytes, use->sum, use->value);
    if (!t->map) memset(use->sum, 0, t->share_units * bytes);
    /* sets only the updated units to zero, because a map may have many more units */
    for (size_t i = 0; t->map && i < count; i++) memset(use->sum + use->unit[i] * bytes, 0, bytes);
    memset(use->touched, 0, use->touched_words * sizeof *use->touched);
    u.unit = use->unit;
    u.value = use->value;
    return update_apply(t, &u);
}

/* ---- access of server functions to keys (trireme/function.h) ---- */

tr_key tr_share_key(const tr_share *share, size_t unit)
{
    const struct tr_table *t = share->place;
    if (t->map) return tr_hashmap_key(t->map, (uint32_t)unit);
    uint64_t number = tr_partition_unit(&t->partition, (uint32_t)share->server, (uint32_t)unit);
    return number == UINT64_MAX ? number : number % t->keys;
}

uint32_t tr_share_pieces(const tr_share *share)
{
    return share->place->pieces;
}

bool tr_share_find(const tr_share *share, tr_key key, uint32_t piece, size_t *unit)
{
    const struct tr_table *t = share->place;
    if (key >= t->keys) return false;
    if (t->map) {
        uint32_t slot = tr_hashmap_find(t->map, key);
        *unit = slot;
        return slot != TR_NO_SLOT;
    }
    struct tr_location at = tr_partition_locate(&t->partition, piece * t->keys + key);
    *unit = at.position;
    return at.server == (uint32_t)share->server;
}

bool tr_share_has_place(const tr_share *share, tr_key key, uint32_t piece)
{
    const struct tr_table *t = share->place;
    uint64_t unit = piece * t->keys + key;
    return key < t->keys && tr_partition_locate(&t->partition, unit).server == (uint32_t)share->server;
}

/* ---- answers ---- */

enum { ANSWER_TEXT = 1024 }; /* minimum size of a reply's buffer, for an error text instead of an answer */

/* Answers the question that tr_table_ask() has sent from another rank. */
static int server_answer(struct tr_table *t, int rank, const struct tr_message *m, const void *question)
{
    const tr_answer *answer = &t->tr->tables->functions.answer[m->first];
    struct tr_reply_head head = {.version = 0};
    const size_t room = tr_max_size((size_t)m->clock, ANSWER_TEXT);
    size_t bytes = (size_t)m->clock;
    struct tr_sending *reply;
    TR_TRY(tr_message_new(t->tr->tables, sizeof head + room, &reply));
    tr_share own = function_share(t, t->server);
    const tr_share *share = t->use ? &t->use->share : &own;
    unsigned char *result = reply->body + sizeof head;
    if (answer->get(share, question, m->n, result, &bytes) != TR_OK) {
        head.failed = 1;
        bytes = tr_min_size(strlen(tr_error_text()), room);
        memcpy(result, tr_error_text(), bytes);
    }
    head.bytes = (uint32_t)bytes;
    memcpy(reply->body, &head, sizeof head);
    reply_send(t->tr->tables, reply, sizeof head + bytes, rank, m->reply);
    return TR_OK;
}

/* Requests a server's part of an answer, and waits for it. part: memory of `room` bytes; *bytes: the size of the part. */
static int answer_request(struct tr_table *t, uint32_t server, int number, const void *question,
                          size_t question_bytes, void *part, size_t room, size_t *bytes)
{
    struct tr_tables *tables = t->tr->tables;
    const int rank = tr_table_server_rank(t, server);
    const size_t capacity = sizeof(struct tr_reply_head) + tr_max_size(room, ANSWER_TEXT);
    int status = TR_OK;
    struct tr_sending *m;
    struct tr_reply_head head;
    MPI_Request received;
    char *in;
    TR_TRY(TR_NEW(&in, capacity));
    TR_TRY(tr_message_new(tables, question_bytes, &m));
    m->header = (struct tr_message){.kind = TR_MESSAGE_ASK,
                                    .table = t->index,
                                    .first = (uint32_t)number,
                                    .n = (uint32_t)question_bytes,
                                    .clock = (int64_t)room};
    if (question_bytes) memcpy(m->body, question, question_bytes);
    tr_message_ask(tables, m, question_bytes, rank, in, capacity, &received);
    TR_WAIT_UNTIL(t->tr, tr_request_done(&received), "an answer about table %s from server rank %d", t->name,
                  rank);
    memcpy(&head, in, sizeof head);
    if (head.failed)
        status =
            tr_fail(TR_ERR_PEER, "answer %s of table %s on server rank %d: %.*s",
                    tables->functions.answer[number].name, t->name, rank, (int)head.bytes, in + sizeof head);
    else memcpy(part, in + sizeof head, *bytes = head.bytes);
    free(in);
    return status;
}

int tr_table_ask(tr_table *t, const char *name, const void *question, size_t question_bytes, void *result,
                 size_t *bytes)
{
    const struct tr_functions *known = &t->tr->tables->functions;
    int number = answer_find(known, name);
    if (number < 0) return tr_fail(TR_ERR_CONFIG, "table %s: unknown answer %s", t->name, name);
    if (t->sparse)
        return tr_fail(TR_ERR_INTERNAL, "table %s has sparse rows: there are no answers from them", t->name);
    const tr_answer *answer = &known->answer[number];
    TR_FREED char *part = NULL;
    size_t room = *bytes, total = 0;
    bool first = true;
    TR_TRY(TR_NEW(&part, room));
    for (uint32_t server = 0; server < t->partition.servers; server++) {
        if (!t->hash && tr_partition_share(&t->partition, server) == 0) continue;
        void *into = first ? result : part;
        size_t got = room;
        tr_share share = function_share(t, (int)server);
        if (t->share[server] && answer->values_only)
            TR_TRY(answer->get(&share, question, question_bytes, into, &got));
        else TR_TRY(answer_request(t, server, number, question, question_bytes, into, room, &got));
        if (first) total = got;
        else TR_TRY(answer->combine(result, &total, room, part, got));
        first = false;
    }
    *bytes = total;
    return TR_OK;
}

int tr_table_squares(struct tr_table *t, double *sum)
{
    size_t bytes = sizeof *sum;
    double total = 0;
    TR_TRY(tr_table_ask(t, "squares", NULL, 0, &total, &bytes));
    *sum = total;
    return TR_OK;
}

/* ======== handling messages ======== */

/* Replies to a pull with the m->n units in tables->packed. */
static int reply_packed(struct tr_table *t, int rank, const struct tr_message *m)
{
    struct tr_tables *tables = t->tr->tables;
    struct tr_slice slice = tr_slice_of(t, m->n);
    struct tr_wire wire = tr_pull_wire(t, m->flags & TR_FLAG_EXACT);
    struct tr_reply_head head = {.version = atomic_load(&t->line[t->server]->version)};
    struct tr_sending *reply;
    TR_TRY(tr_message_new(tables, sizeof head + tr_encode_room(&slice, wire), &reply));
    head.bytes = (uint32_t)tr_encode(&slice, wire, tables->packed, NULL, reply->body + sizeof head);
    memcpy(reply->body, &head, sizeof head);
    reply_send(tables, reply, sizeof head + head.bytes, rank, m->reply);
    return TR_OK;
}

static int server_register(struct tr_table *t, int rank, const struct tr_message *m, const void *data,
                           size_t bytes)
{
    struct tr_serving *s = t->serving;
    if (m->first == 0) {
        struct client *c;
        size_t i;
        TR_TRY(TR_GROW(&s->client, &s->capacity, s->clients + 1));
        TR_TRY(TR_NEW(&c, 1));
        *c = (struct client){.rank = rank, .tag = m->tag, .pushes = m->flags & TR_FLAG_PUSHES};
        for (i = s->clients++; i > 0 && client_compare(&s->client[i - 1], &c) > 0; i--)
            s->client[i] = s->client[i - 1];
        s->client[i] = c;
        s->pushing += c->pushes;
    }
    struct client *c = *client_place(t, rank, m->tag);
    c->n = m->first + m->n;
    if (!(m->flags & TR_FLAG_IDENTITY) && (m->n > 0 || t->hash)) {
        /* appends the keys or positions of the message */
        TR_FREED uint64_t *entry = NULL;
        TR_TRY(TR_NEW(&entry, m->n));
        if (!tr_take_ascending(data, bytes, t->hash ? UINT64_MAX : t->share_units, m->n, entry))
            return tr_fail(TR_ERR_PEER, "rank %d registers keys that table %s has not", rank, t->name);
        if (t->hash) {
            TR_TRY(tr_hash_list_append(&c->keys, entry, m->n));
        } else {
            uint32_t *longer = realloc(c->position, c->n * sizeof *longer);
            if (!longer) return tr_fail(TR_ERR_SYSTEM, "out of memory: %u keys of rank %d", c->n, rank);
            c->position = longer;
            for (uint32_t i = 0; i < m->n; i++) longer[m->first + i] = (uint32_t)entry[i];
        }
    }
    return reply_acknowledge(t, rank, m);
}

/* ---- pulls ---- */

/* Replies to a pull with units of a key set: values of the share, or those that the server function computes for a version. */
static int server_pull(struct tr_table *t, int rank, const struct tr_message *m)
{
    struct tr_tables *tables = t->tr->tables;
    TR_TRY(TR_GROW(&tables->packed, &tables->packed_size, m->n * t->unit_bytes));
    struct client *c = *client_place(t, m->owner, m->tag);
    const bool versions = tr_table_keeps_versions(t);
    const struct tr_use *use = t->use;
    const int64_t version = m->clock + tables->before;
    if (t->hash) {
        const uint32_t *slot = c->keys.slot + m->first;
        tr_hash_list_refresh(&c->keys, t->map);
        if (versions) {
            /* the function reads the slots that exist, in ascending order; absent keys are zeros. `present` has pairs of a slot and
             * its index in the pull; its second half is scratch for the sort, and then `unit`, the slots alone */
            TR_FREED uint64_t *present = NULL;
            TR_FREED char *read = NULL;
            uint32_t some = 0;
            TR_TRY(TR_NEW(&present, 2 * (size_t)m->n));
            TR_TRY(TR_NEW(&read, m->n * t->unit_bytes));
            uint32_t *unit = (uint32_t *)(present + m->n);
            for (uint32_t i = 0; i < m->n; i++)
                if (slot[i] != TR_NO_SLOT) present[some++] = (uint64_t)slot[i] << 32 | i;
            tr_sort_by_upper_half(present, present + m->n, some);
            for (uint32_t i = 0; i < some; i++) unit[i] = (uint32_t)(present[i] >> 32);
            TR_TRY(use->function.read(&use->share, version, some, unit, read));
            memset(tables->packed, 0, m->n * t->unit_bytes);
            for (uint32_t i = 0; i < some; i++)
                memcpy(tables->packed + (uint32_t)present[i] * t->unit_bytes, read + i * t->unit_bytes,
                       t->unit_bytes);
        } else {
            tr_copy_slots_to_packed(slot, m->n, t->unit_bytes, t->map->array[0].at, tables->packed);
        }
    } else {
        const char *share = t->share[t->server];
        const uint32_t *position = c->position ? c->position + m->first : NULL;
        /* read() without a list of units would read from unit 0 on, so a list is made */
        if (versions && !position && m->first > 0) {
            TR_TRY(TR_GROW(&tables->unit, &tables->unit_size, m->n));
            for (uint32_t i = 0; i < m->n; i++) tables->unit[i] = m->first + i;
            position = tables->unit;
        }
        if (versions) TR_TRY(use->function.read(&use->share, version, m->n, position, tables->packed));
        else if (position) tr_gather(position, m->n, t->unit_bytes, share, tables->packed);
        else memcpy(tables->packed, share + m->first * t->unit_bytes, m->n * t->unit_bytes);
    }
    return reply_packed(t, rank, m);
}

/* ---- pushes ---- */

/* Adds a message of an update to the share, or passes it to the server function. Takes the share's locks, because other ranks may
 * add directly at the same time. */
static int push_apply(struct tr_table *t, int rank, const struct tr_message *m, const void *data,
                      size_t bytes)
{
    if (t->sparse) return tr_sparse_take(t->sparse_share, t->width, data, bytes);
    struct tr_tables *tables = t->tr->tables;
    struct client *c = *client_place(t, rank, m->tag);
    struct tr_slice slice = tr_slice_of(t, m->n);
    struct tr_encoded message;
    uint32_t n = m->n;
    /* decodes the positions of the units in the share, and their values, which lie in the message or in tables->packed */
    TR_TRY(tr_encoded_open(data, bytes, &slice, &message));
    bool whole = message.encoding == TR_ENCODING_DENSE;
    const void *value = message.value;
    TR_TRY(TR_GROW(&tables->unit, &tables->unit_size, m->n));
    if (!whole || message.precision != TR_PRECISION_FULL) {
        TR_TRY(TR_GROW(&tables->packed, &tables->packed_size, m->n * t->unit_bytes));
        value = tables->packed;
        if (whole) TR_TRY(tr_decode_packed(&message, tables->packed));
        else TR_TRY(tr_decode_units(&message, tables->unit, tables->packed, &n));
    }
    const uint32_t *unit = whole && c->position ? c->position + m->first : tables->unit;
    for (uint32_t i = 0; unit == tables->unit && i < n; i++) {
        uint32_t at = m->first + (whole ? i : tables->unit[i]);
        tables->unit[i] = c->position ? c->position[at] : at;
    }
    if (t->hash) {
        /* replaces indices in the key set by slots, and adds absent keys. Units of zeros are omitted, so that the first update does
         * not add all keys of a view */
        if (!t->use || t->use->function.sparse || t->use->function.gradients) {
            TR_TRY(TR_GROW(&tables->packed, &tables->packed_size, n * t->unit_bytes));
            n = tr_leave_zeros_out(n, t->unit_bytes, tables->unit, value, tables->packed);
            value = tables->packed;
        }
        TR_TRY(tr_hash_list_add(&c->keys, t->map, unit, n));
        for (uint32_t i = 0; i < n; i++) tables->unit[i] = c->keys.slot[unit[i]];
        tr_use_follow(t);
    }
    if (t->use) {
        /* a server function gets complete updates: collects their messages */
        bool first = m->first == 0, last = m->flags & TR_FLAG_LAST;
        if (first && last) {
            update_take(t, c->pusher, m, n, unit, value);
            return TR_OK;
        }
        struct arriving *a = &c->arriving;
        if (first) a->n = 0;
        TR_TRY(TR_GROW(&a->unit, &a->unit_room, a->n + n));
        TR_TRY(TR_GROW(&a->value, &a->value_room, (a->n + n) * t->unit_bytes));
        memcpy(a->unit + a->n, unit, n * sizeof *unit);
        memcpy(a->value + a->n * t->unit_bytes, value, n * t->unit_bytes);
        a->n += n;
        if (last) update_take(t, c->pusher, m, a->n, a->unit, a->value);
    } else if (t->hash) { /* no locks are needed, because no other rank writes to the map */
        tr_add_units(t->dtype, NULL, unit, n, t->unit_width, value, t->map->array[0].at);
    } else {
        tr_share_add(t, n == m->n && !c->position ? NULL : unit, m->first, n, value);
    }
    return TR_OK;
}

static int held_compare(const void *a, const void *b)
{
    const struct held *x = *(const struct held *const *)a, *y = *(const struct held *const *)b;
    if (x->message.clock != y->message.clock) return x->message.clock < y->message.clock ? -1 : 1;
    if (x->rank != y->rank) return x->rank < y->rank ? -1 : 1;
    if (x->message.tag != y->message.tag) return x->message.tag < y->message.tag ? -1 : 1;
    return (x->message.first > y->message.first) - (x->message.first < y->message.first);
}

/* Returns whether this server holds updates in this stage. */
static bool server_holds(const struct tr_table *t)
{
    if (t->server < 0 || !t->lockstep) return false;
    return t->sparse ? tr_rows_wait(t) : tr_table_by_message(t) && t->serving->pushing > 0;
}

int64_t tr_server_settled(const struct tr_table *t)
{
    return server_holds(t) ? t->serving->served : INT64_MAX;
}

/* Updates are added in the order of ranks and tags, so that results are reproducible. Updates of later clocks stay in the list. */
int tr_server_serve(struct tr_table *t, int64_t visible, int *did)
{
    struct tr_serving *s = t->serving;
    if (!server_holds(t) || visible <= s->served) return TR_OK;
    if (!t->sparse && s->held_last < s->pushing) return TR_OK;
    if (s->helds > 0) qsort(s->held, s->helds, sizeof *s->held, held_compare);
    int status = TR_OK;
    size_t n = 0;
    for (; n < s->helds && s->held[n]->message.clock == s->served; n++) {
        const struct held *held = s->held[n];
        if (status == TR_OK) status = push_apply(t, held->rank, &held->message, held->data, held->bytes);
        free(s->held[n]);
    }
    s->helds -= n;
    if (n > 0) memmove(s->held, s->held + n, s->helds * sizeof *s->held);
    s->held_last = 0;
    for (size_t i = 0; i < s->helds && s->held[i]->message.clock == s->served + 1; i++)
        if (s->held[i]->message.flags & TR_FLAG_LAST) s->held_last++;
    function_note(t, "update", update_clock(t, s->served));
    s->served++;
    ++*did;
    return status;
}

int tr_server_push(struct tr_table *t, int rank, const struct tr_message *m, const void *data, size_t bytes)
{
    struct tr_serving *s = t->serving;
    if (!t->lockstep) {
        TR_TRY(push_apply(t, rank, m, data, bytes));
        return reply_acknowledge(t, rank, m);
    }
    TR_TRY(TR_GROW(&s->held, &s->held_capacity, s->helds + 1));
    struct held *held = malloc(sizeof *held + bytes);
    if (!held) return tr_fail(TR_ERR_SYSTEM, "out of memory: an update of %zu bytes of rank %d", bytes, rank);
    *held = (struct held){.rank = rank, .message = *m, .bytes = bytes};
    memcpy(held->data, data, bytes);
    s->held[s->helds++] = held;
    if (m->clock == s->served && m->flags & TR_FLAG_LAST) s->held_last++;
    return reply_acknowledge(t, rank, m);
}

/* ---- rows ---- */

/* Replies with the units at the positions that a message lists. With hash storage the message lists keys, and for sparse rows it
 * lists struct tr_sparse_request. */
static int server_rows(struct tr_table *t, int rank, const struct tr_message *m, const void *list,
                       size_t bytes)
{
    struct tr_tables *tables = t->tr->tables;
    size_t each = t->hash ? sizeof(tr_key) : t->sparse ? sizeof(struct tr_sparse_request) : sizeof(uint32_t);
    if (bytes != m->n * each)
        return tr_fail(TR_ERR_PEER, "rank %d asks for %u rows of table %s in %zu bytes", rank, m->n, t->name,
                       bytes);
    if (t->sparse) {
        struct tr_sparse_head head = {0};
        struct tr_sending *reply;
        size_t room = (size_t)m->clock;
        TR_TRY(tr_message_new(tables, sizeof head + room, &reply));
        int status = tr_sparse_answer(t->sparse_share, m->n, list, reply->body + sizeof head, room, &head);
        memcpy(reply->body, &head, sizeof head);
        if (status == TR_OK) reply_send(tables, reply, sizeof head + head.bytes, rank, m->reply);
        else tr_message_release(tables, reply);
        return status;
    }
    TR_TRY(TR_GROW(&tables->packed, &tables->packed_size, m->n * t->unit_bytes));
    TR_TRY(TR_GROW(&tables->unit, &tables->unit_size, m->n));
    if (!t->hash) memcpy(tables->unit, list, bytes);
    for (uint32_t i = 0; i < m->n; i++) {
        tr_key key;
        if (t->hash) {
            memcpy(&key, (const char *)list + i * sizeof key, sizeof key);
            tables->unit[i] = tr_hashmap_find(t->map, key);
        } else if (tables->unit[i] >= t->share_units) {
            return tr_fail(TR_ERR_PEER, "row %u of table %s is asked for, but the share has %llu",
                           tables->unit[i], t->name, (unsigned long long)t->share_units);
        }
    }
    if (t->hash)
        tr_copy_slots_to_packed(tables->unit, m->n, t->unit_bytes, t->map->array[0].at, tables->packed);
    else tr_gather(tables->unit, m->n, t->unit_bytes, t->share[t->server], tables->packed);
    return reply_packed(t, rank, m);
}

/* ---- all messages ---- */

static int server_handle(struct tr_tables *tables, int rank, const struct tr_message *m, const void *data,
                         size_t bytes)
{
    struct tr_table *t = tables->table[m->table];
    switch ((enum tr_message_kind)m->kind) {
    case TR_MESSAGE_REGISTER: return server_register(t, rank, m, data, bytes);
    case TR_MESSAGE_FORGET: {
        struct tr_serving *s = t->serving;
        struct client **place = client_place(t, rank, m->tag);
        if (!place) return TR_OK;
        s->pushing -= (*place)->pushes;
        client_free(*place);
        memmove(place, place + 1, (size_t)(s->client + --s->clients - place) * sizeof *place);
        return TR_OK;
    }
    case TR_MESSAGE_PULL: return server_pull(t, rank, m);
    case TR_MESSAGE_PUSH: return tr_server_push(t, rank, m, data, bytes);
    case TR_MESSAGE_ASK: return server_answer(t, rank, m, data);
    case TR_MESSAGE_ROWS: return server_rows(t, rank, m, data, bytes);
    }
    return tr_fail(TR_ERR_INTERNAL, "rank %d sent a message of unknown kind %u", rank, m->kind);
}

int tr_server_poll(void *what, int *did)
{
    struct tr_tables *tables = what;
    for (struct tr_sending **link = &tables->sending; *link;) {
        struct tr_sending *m = *link;
        if (!tr_request_done(&m->sent) || !tr_request_done(&m->acknowledged)) {
            link = &m->next;
            continue;
        }
        *link = m->next;
        if (m->pending) --*m->pending;
        ++*did;
        tr_message_release(tables, m);
    }
    if (tables->tr->me.server < 0) return TR_OK;
    double begin = 0;
    enum { AT_ONCE = 64 }; /* messages per poll, so that a busy server still runs its other poll functions */
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
        TR_TRY(
            server_handle(tables, status.MPI_SOURCE, &m, tables->inbox + sizeof m, (size_t)bytes - sizeof m));
        ++*did;
    }
    if (begin > 0) tables->service.seconds += tr_now() - begin;
    return TR_OK;
}

/* ---- time that values are in flight ---- */

/* If a pull or push is in flight, adds the time since the last call to way_seconds, and also to hidden_seconds if this rank
 * computes without waiting. */
static void way_count(struct tr_tables *tables)
{
    struct tr_way_now *way = &tables->way;
    double now = tr_now(), passed = way->under_way > 0 ? now - way->since : 0;
    tables->traffic.way_seconds += passed;
    if (way->computes && way->waits == 0) tables->traffic.hidden_seconds += passed;
    way->since = now;
}

void tr_way_begin(struct tr_tables *tables)
{
    way_count(tables);
    tables->way.under_way++;
}

void tr_way_end(struct tr_tables *tables)
{
    way_count(tables);
    tables->way.under_way--;
}

void tr_way_compute(struct tr_tables *tables, bool computes)
{
    way_count(tables);
    tables->way.computes = computes;
    tables->way.waits = 0; /* a wait that failed did not call tr_wait_end() */
}

void tr_wait_begin(struct tr_tables *tables)
{
    way_count(tables);
    tables->way.waits++;
}

void tr_wait_end(struct tr_tables *tables)
{
    way_count(tables);
    if (tables->way.waits > 0) tables->way.waits--;
}
