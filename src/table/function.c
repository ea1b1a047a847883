/* Server functions: the registry, calls for updates and reads, and answers. */
#include <stdlib.h>
#include <string.h>

#include "table/function.h"
#include "table/server.h"

struct tr_functions {
    tr_function *function;
    size_t functions, function_capacity;
    tr_answer *answer;
    size_t answers, answer_capacity;
};

/* ---- names ---- */

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
    struct tr_functions *f = tables->functions;
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
    struct tr_functions *f = tables->functions;
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
    TR_TRY(TR_NEW(&tables->functions, 1));
    for (size_t i = 0; i < tr_builtin_function_count; i++)
        TR_TRY(function_add(tables, tr_builtin_functions[i]));
    for (size_t i = 0; i < tr_builtin_answer_count; i++) TR_TRY(answer_add(tables, tr_builtin_answers[i]));
    return TR_OK;
}

void tr_functions_close(struct tr_tables *tables)
{
    struct tr_functions *f = tables->functions;
    if (!f) return;
    free(f->function);
    free(f->answer);
    free(f);
    tables->functions = NULL;
}

/* ---- using one ---- */

/* A share as functions see it; value may be NULL, if this rank cannot read it. */
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

/* Finds the arrays of a function in hash storage: behind the values. */
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
    /* updates must arrive as messages */
    if (t->push == TR_PUSH_MERGE || t->push == TR_PUSH_ACCUMULATE)
        return tr_fail(
            TR_ERR_CONFIG,
            "%s: table.push %s is of no use: what servers do with updates of %s needs them as messages",
            tr_job_where(t->tr->job, "table.push"), t->push == TR_PUSH_MERGE ? "merge" : "accumulate",
            t->name);
    const struct tr_functions *known = t->tr->tables->functions;
    const tr_function *function = function_find(known, name);
    if (!function) {
        char names[256];
        /* "a, b or c" */
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
    /* arrays of the size of the share: the state, and one for sums */
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
    free(use->sorted);
    free(use->passed);
    free(use->touched);
    free(use->unit);
    free(use->value);
    free(use);
    t->use = NULL;
}

/* ---- failing ---- */

/* Notes the failure; the job continues without updates until all ranks can stop together. */
static void function_fail(struct tr_table *t, const char *what, int status)
{
    struct tr_tables *tables = t->tr->tables;
    if (tables->status != TR_OK) return;
    snprintf(tables->why, sizeof tables->why, "server function %s of table %s on server %d (rank %d): %s: %s",
             t->use->function.name, t->name, t->server, t->tr->rank, what, tr_error_text());
    tables->status = status;
}

/* ---- updates ---- */

static int versions_expire(struct tr_table *t, int64_t version)
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
    int pushers = tr_server_number_pushers(t);
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
    int status = versions_expire(t, INT64_MAX);
    if (status != TR_OK) function_fail(t, "expire", status);
}

static int update_apply(struct tr_table *t, tr_update *u)
{
    struct tr_use *use = t->use;
    if (use->function.map) TR_TRY(use->function.map(&use->share, u, &u->version));
    TR_TRY(use->function.update(&use->share, u));
    double kept = (double)tr_use_memory(t), *most = &t->tr->tables->service.version_bytes;
    if (kept > *most) *most = kept;
    _Atomic int64_t *version = &t->line[t->server]->version; /* this server alone writes it */
    int64_t clocks = u->clock + 1 - t->tr->tables->before;
    if (clocks > atomic_load_explicit(version, memory_order_relaxed))
        atomic_store_explicit(version, clocks, memory_order_release);
    /* the next read of a pusher may be older than the version of its push, but not than its own clock */
    int64_t past = 1 + (u->version < u->clock ? u->version : u->clock);
    if (u->pusher < 0 || past <= use->passed[u->pusher]) return TR_OK;
    use->passed[u->pusher] = past;
    int64_t unneeded = INT64_MAX; /* versions above the stable one must stay separate for readers */
    for (int i = 0; i < use->share.pushers; i++)
        if (use->passed[i] < unneeded) unneeded = use->passed[i];
    if (use->function.read && use->share.stable < unneeded) unneeded = use->share.stable;
    return versions_expire(t, unneeded);
}

static int update_handle(struct tr_table *t, tr_update *u)
{
    struct tr_use *use = t->use;
    size_t bytes = t->unit_bytes, ascending = 1;
    if (use->function.gradients && !t->hash) {
        /* leaves units of zeros out; with hash storage they are left out already */
        TR_TRY(TR_GROW(&use->unit, &use->unit_room, u->n));
        TR_TRY(TR_GROW(&use->value, &use->value_room, u->n * bytes));
        for (size_t i = 0; i < u->n; i++) use->unit[i] = u->unit ? u->unit[i] : (uint32_t)i;
        u->n = tr_leave_zeros_out((uint32_t)u->n, bytes, use->unit, u->value, use->value);
        u->unit = use->unit;
        u->value = use->value;
    }
    if (use->sums) {
        /* summed up until the clock is complete */
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
        /* units of hash storage come in the order of keys, but functions get ascending slots */
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

void tr_use_update(struct tr_table *t, int pusher, const struct tr_message *m, size_t n, const uint32_t *unit,
                   const void *value)
{
    if (t->tr->tables->status != TR_OK) return;
    int64_t clock = m->clock + t->tr->tables->before, seen = m->seen + t->tr->tables->before;
    tr_update u = {.pusher = pusher,
                   .clock = clock,
                   .seen = seen < clock ? clock : seen, /* at least its own updates */
                   .version = clock,
                   .n = n,
                   .unit = unit,
                   .value = value};
    int status = update_handle(t, &u);
    if (status != TR_OK) function_fail(t, "update", status);
}

/* Packs the sum of a clock in memory of the use, and clears it for the next clock. */
static int update_pack_sum(struct tr_table *t, tr_update *u)
{
    struct tr_use *use = t->use;
    size_t bytes = t->unit_bytes, count = 0;
    for (size_t w = 0; w < use->touched_words; w++) count += (size_t)__builtin_popcountll(use->touched[w]);
    TR_TRY(TR_GROW(&use->unit, &use->unit_room, count));
    TR_TRY(TR_GROW(&use->value, &use->value_room, count * bytes));
    for (size_t w = 0; w < use->touched_words; w++)
        for (uint64_t bits = use->touched[w]; bits; bits &= bits - 1)
            use->unit[u->n++] = (uint32_t)(64 * w + (size_t)__builtin_ctzll(bits));
    tr_gather(use->unit, count, bytes, use->sum, use->value);
    if (!t->map) memset(use->sum, 0, t->share_units * bytes);
    for (size_t i = 0; t->map && i < count; i++) /* few units may have been updated */
        memset(use->sum + use->unit[i] * bytes, 0, bytes);
    memset(use->touched, 0, use->touched_words * sizeof *use->touched);
    u->unit = use->unit;
    u->value = use->value;
    return TR_OK;
}

void tr_use_clock(struct tr_table *t, int64_t clock)
{
    struct tr_use *use = t->use;
    if (!use || !use->sums || t->tr->tables->status != TR_OK) return;
    clock += t->tr->tables->before;
    tr_update u = {.pusher = -1, .clock = clock, .seen = clock, .version = clock};
    int status = update_pack_sum(t, &u);
    if (status == TR_OK) status = update_apply(t, &u);
    if (status != TR_OK) function_fail(t, "update", status);
}

int tr_use_read(struct tr_table *t, int64_t version, size_t n, const uint32_t *unit, void *packed)
{
    return t->use->function.read(&t->use->share, version + t->tr->tables->before, n, unit, packed);
}

size_t tr_use_memory(const struct tr_table *t)
{
    const struct tr_use *use = t->use;
    return use && t->server >= 0 && use->function.memory ? use->function.memory(&use->share) : 0;
}

/* ---- shares as functions see them ---- */

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

/* For an answer, or for its error text. */
static size_t answer_capacity(size_t result_room)
{
    enum { TEXT = 1024 };
    return tr_max_size(result_room, TEXT);
}

int tr_use_answer(struct tr_table *t, int rank, const struct tr_message *m, const void *question)
{
    const tr_answer *answer = &t->tr->tables->functions->answer[m->first];
    size_t bytes = (size_t)m->clock;
    char *result;
    TR_TRY(TR_NEW(&result, bytes));
    tr_share own = function_share(t, t->server);
    const tr_share *share = t->use ? &t->use->share : &own;
    struct tr_reply_head head = {.version = 0};
    const void *data = result;
    if (answer->get(share, question, m->n, result, &bytes) != TR_OK) {
        head.failed = 1;
        data = tr_error_text();
        bytes = tr_min_size(strlen(data), answer_capacity((size_t)m->clock));
    }
    head.bytes = (uint32_t)bytes;
    int status = tr_server_reply(t, rank, m->reply, &head, data);
    free(result);
    return status;
}

/* Requests one server's part of an answer, into `part` of `room` bytes. */
static int answer_request(struct tr_table *t, uint32_t server, int number, const void *question,
                          size_t question_bytes, void *part, size_t room, size_t *bytes)
{
    struct tr_tables *tables = t->tr->tables;
    int rank = tr_table_server_rank(t, server), status = TR_OK;
    struct tr_sending *m;
    struct tr_reply_head head;
    MPI_Request received;
    char *in;
    TR_TRY(TR_NEW(&in, sizeof head + answer_capacity(room)));
    TR_TRY(tr_message_new(tables, question_bytes, &m));
    m->header = (struct tr_message){.kind = TR_MESSAGE_ASK,
                                    .table = t->index,
                                    .first = (uint32_t)number,
                                    .n = (uint32_t)question_bytes,
                                    .clock = (int64_t)room};
    if (question_bytes) memcpy(m->body, question, question_bytes);
    tr_message_ask(tables, m, question_bytes, rank, in, sizeof head + answer_capacity(room), &received);
    TR_WAIT_UNTIL(t->tr, tr_request_done(&received), "an answer about table %s from server rank %d", t->name,
                  rank);
    memcpy(&head, in, sizeof head);
    if (head.failed)
        status =
            tr_fail(TR_ERR_PEER, "answer %s of table %s on server rank %d: %.*s",
                    tables->functions->answer[number].name, t->name, rank, (int)head.bytes, in + sizeof head);
    else memcpy(part, in + sizeof head, *bytes = head.bytes);
    free(in);
    return status;
}

int tr_table_ask(tr_table *t, const char *name, const void *question, size_t question_bytes, void *result,
                 size_t *bytes)
{
    const struct tr_functions *known = t->tr->tables->functions;
    int number = answer_find(known, name);
    if (number < 0) return tr_fail(TR_ERR_CONFIG, "table %s: unknown answer %s", t->name, name);
    if (t->sparse)
        return tr_fail(TR_ERR_INTERNAL, "table %s has sparse rows: there are no answers from them", t->name);
    const tr_answer *answer = &known->answer[number];
    size_t room = *bytes, total = 0;
    char *part;
    TR_TRY(TR_NEW(&part, room));
    int status = TR_OK;
    bool first = true;
    for (uint32_t server = 0; status == TR_OK && server < t->partition.servers; server++) {
        if (!t->hash && tr_partition_share(&t->partition, server) == 0) continue;
        void *into = first ? result : part;
        size_t got = room;
        tr_share share = function_share(t, (int)server);
        if (t->share[server] && answer->values_only)
            status = answer->get(&share, question, question_bytes, into, &got);
        else status = answer_request(t, server, number, question, question_bytes, into, room, &got);
        if (status == TR_OK && first) total = got;
        else if (status == TR_OK) status = answer->combine(result, &total, room, part, got);
        first = false;
    }
    free(part);
    *bytes = total;
    return status;
}

int tr_table_squares(struct tr_table *t, double *sum)
{
    size_t bytes = sizeof *sum;
    double total = 0;
    TR_TRY(tr_table_ask(t, "squares", NULL, 0, &total, &bytes));
    *sum = total;
    return TR_OK;
}
