#define _GNU_SOURCE
#include "data/stream.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/fault.h"
#include "data/cache.h"
#include "data/dataset.h"

/* A pass over rows in another order takes so many blocks at once, from all over the file, and mixes their rows. The thread
 * reads up to so many blocks ahead of where the pass is. */
enum { GROUP = 8, AHEAD = 8 };

/* Numbers that belong to rows or to non-zeros. */
struct array {
    uint64_t first; /* byte of the file */
    size_t unit;    /* bytes of an element */
    bool by_row;
};

enum { ARRAYS = 4 };

enum state { ABSENT, READING, PRESENT };

/* An order of all blocks. */
struct plan {
    uint32_t *block; /* in their order */
    uint32_t *place; /* of each block in it */
    size_t group;    /* so many are used at the same time */
};

struct tr_row_stream {
    tr_context *tr;
    struct tr_cache_file *file;
    const struct tr_data_block *block;
    size_t n;
    struct array array[ARRAYS];
    size_t arrays;
    bool *keeps;          /* this block stays in memory once it is there */
    bool *checked;        /* the file's sums of it are right */
    size_t *held;         /* the thread's: blocks in memory that do not stay there */
    struct plan plans[2]; /* as in the file; of the last tr_data_permute() */
    uint32_t *order;      /* room for an order of the blocks */
    bool *listed;         /* … and for who is in it */
    uint64_t *group_row;  /* of the second: rows before each group, and behind the last one */
    uint64_t memory;      /* as tr_row_stream_open() was called, … */
    bool whole;           /* … checked */
    size_t parts;         /* no block has rows of two parts and not all of them; 0: they are not known */
    size_t last;          /* the block that was asked for last */
    bool mixes;           /* the second has been used */
    size_t mixed_at;      /* as `at`, when it was used last */
    int strays;           /* blocks asked for since that the order does not have about now */

    pthread_t thread;
    bool runs; /* the thread does */
    pthread_mutex_t lock;
    pthread_cond_t moved, ready;
    enum state *state; /* of each block; this and the rest are behind the lock */
    const struct plan *plan;
    size_t
        at; /* the pass is in the group of the plan that begins there; n: it has still to come to the first */
    size_t aside; /* a block besides that is wanted now; or n */
    bool ends;
    int error; /* errno of what could not be read, or EBADMSG: it is not what was written */
    size_t bad;
    uint64_t resident;
    struct tr_row_stream_counts counts;
};

uint64_t tr_block_bytes(uint64_t memory)
{
    const uint64_t least = (uint64_t)16 << 10, usual = (uint64_t)2 << 20;
    uint64_t wanted = memory / (4 * (GROUP + AHEAD));
    return memory == 0 || wanted > usual ? usual : wanted < least ? least : wanted;
}

/* ---- blocks ---- */

static size_t block_of(const struct tr_row_stream *s, uint64_t row)
{
    size_t low = 0, high = s->n, last = s->last;
    if (row >= s->block[last].row && row < s->block[last + 1].row) return last;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (s->block[middle].row <= row) low = middle;
        else high = middle;
    }
    return low;
}

/* Bytes first .. first + n - 1 of an array are a block's. Rows begin where the row before ends, so that of `begin` one more
 * element is needed: it is on the same page, or is read like one that nobody has announced. */
static void range_of(const struct tr_row_stream *s, const struct array *a, size_t b, uint64_t *first,
                     uint64_t *n)
{
    const struct tr_data_block *block = &s->block[b];
    uint64_t from = a->by_row ? block->row : block->nonzero, to = a->by_row ? block[1].row : block[1].nonzero;
    *first = from * a->unit;
    *n = (to - from) * a->unit;
}

static uint64_t bytes_of(const struct tr_row_stream *s, size_t b)
{
    uint64_t sum = 0, first, n;
    for (size_t i = 0; i < s->arrays; i++) {
        range_of(s, &s->array[i], b, &first, &n);
        sum += n;
    }
    return sum;
}

static int read_block(struct tr_row_stream *s, size_t b)
{
    uint64_t first, n;
    for (size_t i = 0; i < s->arrays; i++) {
        range_of(s, &s->array[i], b, &first, &n);
        int error = tr_cache_file_fetch(s->file, s->array[i].first + first, n);
        if (error) return error;
    }
    if (TR_FAULT("data.block") == TR_FAULT_EIO) return EIO;
    for (size_t i = 0; i < s->arrays && !s->checked[b]; i++) {
        range_of(s, &s->array[i], b, &first, &n);
        if (!tr_cache_file_is_whole(s->file, s->array[i].first + first, n)) return EBADMSG;
    }
    s->checked[b] = true;
    return 0;
}

static void ask_for_block(struct tr_row_stream *s, size_t b)
{
    uint64_t first, n;
    for (size_t i = 0; i < s->arrays; i++) {
        range_of(s, &s->array[i], b, &first, &n);
        tr_cache_file_ask(s->file, s->array[i].first + first, n);
    }
}

static void drop_block(struct tr_row_stream *s, size_t b)
{
    uint64_t first, n;
    for (size_t i = 0; i < s->arrays; i++) {
        range_of(s, &s->array[i], b, &first, &n);
        tr_cache_file_drop(s->file, s->array[i].first + first, n, s->plan == &s->plans[0]);
    }
}

/* ---- the thread ---- */

static size_t group_end(const struct tr_row_stream *s)
{
    return tr_min_size(s->at + s->plan->group, s->n);
}

/* The i-th block from where the pass is; after the last block the first comes again. */
static size_t block_ahead(const struct tr_row_stream *s, size_t i)
{
    return s->plan->block[(s->at + i) % s->n];
}

static size_t window(const struct tr_row_stream *s)
{
    return tr_min_size(group_end(s) - s->at + AHEAD, s->n);
}

static bool is_ahead(const struct tr_row_stream *s, size_t b)
{
    return b == s->aside || (s->plan->place[b] + s->n - s->at) % s->n < window(s);
}

/* Which of the n blocks that are held nobody needs any more, or n. */
static size_t find_behind(const struct tr_row_stream *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!is_ahead(s, s->held[i])) return i;
    return n;
}

/* A block that is wanted next, or s->n. */
static size_t find_wanted(const struct tr_row_stream *s)
{
    if (s->aside < s->n && s->state[s->aside] == ABSENT) return s->aside;
    for (size_t i = 0, n = window(s); i < n; i++)
        if (s->state[block_ahead(s, i)] == ABSENT) return block_ahead(s, i);
    return s->n;
}

/* Reads a block, without the lock; while that goes on the system is told of the next two. */
static void take_block(struct tr_row_stream *s, size_t b)
{
    size_t next[2], n = 0;
    double begin = tr_now();
    s->state[b] = READING;
    for (size_t i = 0; i < window(s) && n < 2; i++)
        if (s->state[block_ahead(s, i)] == ABSENT) next[n++] = block_ahead(s, i);
    pthread_mutex_unlock(&s->lock);
    ask_for_block(s, b);
    for (size_t i = 0; i < n; i++) ask_for_block(s, next[i]);
    int error = read_block(s, b);
    pthread_mutex_lock(&s->lock);
    s->counts.read_seconds += tr_now() - begin;
    s->counts.read_bytes += bytes_of(s, b);
    s->resident += bytes_of(s, b);
    if (s->resident > s->counts.memory_bytes) s->counts.memory_bytes = s->resident;
    s->state[b] = PRESENT;
    if (!error) return;
    s->error = error;
    s->bad = b;
}

static void *read_ahead(void *stream)
{
    struct tr_row_stream *s = stream;
    size_t n = 0;
    pthread_mutex_lock(&s->lock);
    while (!s->ends && !s->error) {
        size_t behind = find_behind(s, n), b;
        if (behind < n) {
            b = s->held[behind];
            s->held[behind] = s->held[--n];
            s->state[b] = ABSENT;
            s->resident -= bytes_of(s, b);
            if (!tr_cache_file_stays(s->file)) s->counts.dropped_bytes += bytes_of(s, b);
            drop_block(s, b);
        } else if ((b = find_wanted(s)) < s->n) {
            take_block(s, b);
            if (!s->keeps[b]) s->held[n++] = b;
            pthread_cond_signal(&s->ready);
        } else {
            pthread_cond_wait(&s->moved, &s->lock);
        }
    }
    pthread_cond_signal(&s->ready);
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

/* Signals are for the thread that trains. */
static int start_thread(struct tr_row_stream *s)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&s->thread, NULL, read_ahead, s);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error) return tr_fail(TR_ERR_SYSTEM, "a thread to read data cannot be started: %s", strerror(error));
    s->runs = true;
    return TR_OK;
}

/* ---- opening ---- */

static int make_plan(struct tr_row_stream *s, struct plan *plan, size_t group)
{
    plan->group = group;
    TR_TRY(TR_NEW(&plan->block, s->n));
    TR_TRY(TR_NEW(&plan->place, s->n));
    for (size_t b = 0; b < s->n; b++) plan->block[b] = plan->place[b] = (uint32_t)b;
    return TR_OK;
}

static void list_arrays(struct tr_row_stream *s, const struct tr_matrix *m)
{
    const struct {
        const void *array;
        size_t unit;
        bool by_row;
    } all[ARRAYS] = {{m->begin, sizeof *m->begin, true},
                     {m->column, sizeof *m->column, false},
                     {m->value, sizeof *m->value, false},
                     {m->label, sizeof *m->label, true}};
    for (size_t i = 0; i < ARRAYS; i++) {
        if (!all[i].array) continue;
        s->array[s->arrays++] =
            (struct array){tr_cache_file_place(s->file, TR_CACHE_BEGIN + i), all[i].unit, all[i].by_row};
    }
}

/* Those that stay in memory lie between the others, so that while a pass uses them others can be read. */
static void choose_kept(struct tr_row_stream *s, uint64_t memory)
{
    uint64_t moving = 0, all = 0, kept = 0;
    for (size_t b = 0; b < s->n; b++) {
        all += bytes_of(s, b);
        if (b < 2 * GROUP + AHEAD) moving += bytes_of(s, b);
    }
    double part = memory > moving && all > 0 ? (double)(memory - moving) / (double)all : 0;
    for (size_t b = 0; b < s->n; b++) {
        uint64_t due = (uint64_t)(part * (double)(b + 1));
        s->keeps[b] = due > kept;
        kept = due > kept ? kept + 1 : kept;
    }
}

int tr_row_stream_open(tr_data *data, uint64_t memory, bool checked, struct tr_row_stream **stream)
{
    struct tr_data_state *state = data->state;
    struct tr_row_stream *s;
    if (state->blocks == 0) return TR_OK;
    TR_TRY(TR_NEW(stream, 1));
    s = *stream;
    s->tr = state->tr;
    s->file = state->file;
    s->block = state->block;
    s->n = s->at = s->aside = state->blocks;
    s->memory = memory;
    s->whole = checked;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->moved, NULL);
    pthread_cond_init(&s->ready, NULL);
    s->plan = &s->plans[0];
    list_arrays(s, &state->rows);
    TR_TRY(make_plan(s, &s->plans[0], 1));
    TR_TRY(make_plan(s, &s->plans[1], GROUP));
    TR_TRY(TR_NEW(&s->group_row, s->n / GROUP + 2));
    TR_TRY(TR_NEW(&s->state, s->n));
    TR_TRY(TR_NEW(&s->keeps, s->n));
    TR_TRY(TR_NEW(&s->checked, s->n));
    TR_TRY(TR_NEW(&s->held, s->n));
    TR_TRY(TR_NEW(&s->order, s->n));
    TR_TRY(TR_NEW(&s->listed, s->n));
    for (size_t b = 0; b < s->n; b++) {
        s->checked[b] = checked;
        s->counts.disk_bytes += bytes_of(s, b);
    }
    choose_kept(s, memory);
    return start_thread(s);
}

static void stop_thread(struct tr_row_stream *s)
{
    if (!s->runs) return;
    pthread_mutex_lock(&s->lock);
    s->ends = true;
    pthread_cond_signal(&s->moved);
    pthread_mutex_unlock(&s->lock);
    pthread_join(s->thread, NULL);
    s->runs = false;
}

void tr_row_stream_close(struct tr_row_stream **stream)
{
    struct tr_row_stream *s = *stream;
    *stream = NULL;
    if (!s) return;
    stop_thread(s);
    pthread_mutex_destroy(&s->lock);
    pthread_cond_destroy(&s->moved);
    pthread_cond_destroy(&s->ready);
    for (int i = 0; i < 2; i++) {
        free(s->plans[i].block);
        free(s->plans[i].place);
    }
    free(s->group_row);
    free(s->state);
    free(s->keeps);
    free(s->checked);
    free(s->held);
    free(s->order);
    free(s->listed);
    free(s);
}

struct tr_row_stream_counts tr_row_stream_count(const struct tr_row_stream *stream)
{
    struct tr_row_stream *s = (struct tr_row_stream *)(uintptr_t)stream;
    if (!s) return (struct tr_row_stream_counts){.disk_bytes = 0};
    pthread_mutex_lock(&s->lock);
    struct tr_row_stream_counts counts = s->counts;
    pthread_mutex_unlock(&s->lock);
    return counts;
}

/* ---- where a pass is ---- */

/* Noted for the stage that runs, as passes do not return a status. */
static void fail(struct tr_row_stream *s)
{
    const char *path = tr_cache_file_path(s->file);
    const struct tr_data_block *b = &s->block[s->bad];
    if (s->tr->broken != TR_OK) return;
    if (s->error == EBADMSG) tr_cache_file_spoil(s->file);
    s->tr->broken =
        tr_fail(s->error == EBADMSG ? TR_ERR_DATA : TR_ERR_IO, "%s: rows %llu to %llu: %s", path,
                (unsigned long long)b->row, (unsigned long long)b[1].row - 1,
                s->error == EBADMSG ? "damaged: not what was written; the next start reads the text again"
                                    : strerror(s->error));
}

/* Waits until a block is in memory. Whether it had to. */
static bool await_block(struct tr_row_stream *s, size_t b)
{
    double begin;
    if (s->state[b] == PRESENT) {
        s->counts.ready++;
        return false;
    }
    begin = tr_now();
    while (s->state[b] != PRESENT && !s->error) pthread_cond_wait(&s->ready, &s->lock);
    s->counts.waited++;
    s->counts.waited_seconds += tr_now() - begin;
    return true;
}

/* The pass has come to this place of the plan: waits until the blocks of its group are in memory. */
static void move_to(struct tr_row_stream *s, const struct plan *plan, size_t place)
{
    size_t at = place / plan->group * plan->group;
    if (s->plan == plan && s->at == at) return;
    s->plan = plan;
    s->at = at;
    s->aside = s->n;
    if (plan == &s->plans[1]) s->mixed_at = at;
    pthread_cond_signal(&s->moved);
    for (size_t i = at; i < group_end(s); i++) (void)await_block(s, plan->block[i]);
}

static bool is_there(struct tr_row_stream *s)
{
    bool well = !s->error;
    pthread_mutex_unlock(&s->lock);
    if (!well) fail(s);
    return well;
}

/* A pass over parts that are mixed asks for neighbouring rows, as one in the order of the file does. A part may begin or end in
 * a block that has its turn at another time. */
static void wait_for_rows(struct tr_row_stream *s, size_t b)
{
    const struct plan *file = &s->plans[0], *mixed = &s->plans[1];
    bool follows = b == s->last || b == s->last + 1,
         near = s->mixes && (mixed->place[b] + s->n - s->mixed_at) % s->n < 2 * GROUP;
    if (b == s->aside) return;
    if (s->plan == file ? near && !follows : near) {
        s->strays = 0;
        move_to(s, mixed, mixed->place[b]);
    } else if (s->plan == mixed && s->strays++ < 2) {
        s->aside = b;
        pthread_cond_signal(&s->moved);
        (void)await_block(s, b);
    } else {
        move_to(s, file, b);
    }
}

size_t tr_data_ready(const tr_data *data, size_t first, size_t n)
{
    struct tr_row_stream *s = data->state->stream;
    if (!s || n == 0) return n;
    size_t b = block_of(s, first);
    pthread_mutex_lock(&s->lock);
    wait_for_rows(s, b);
    s->last = b;
    return is_there(s) ? tr_min_size(n, (size_t)s->block[b + 1].row - first) : 0;
}

size_t tr_data_ready_in(const tr_data *data, const uint32_t *order, size_t at, size_t n)
{
    struct tr_row_stream *s = data->state->stream;
    if (!s || n == 0) return n;
    const struct plan *plan = &s->plans[1];
    size_t b = block_of(s, order[at]);
    pthread_mutex_lock(&s->lock);
    move_to(s, plan, plan->place[b]);
    s->last = b;
    if (!is_there(s)) return 0;
    return tr_min_size(n, (size_t)s->group_row[plan->place[b] / GROUP + 1] - at);
}

/* ---- orders ---- */

/* The rows of a group of blocks, mixed. */
static void mix_group(const struct tr_row_stream *s, struct tr_rng *rng, size_t g, uint32_t *order)
{
    const struct plan *plan = &s->plans[1];
    uint64_t before[GROUP + 1] = {0};
    size_t n = tr_min_size(GROUP, s->n - g * GROUP);
    for (size_t i = 0; i < n; i++) {
        const struct tr_data_block *b = &s->block[plan->block[g * GROUP + i]];
        before[i + 1] = before[i] + b[1].row - b->row;
    }
    tr_rng_permutation(rng, order, (size_t)before[n]);
    for (size_t r = 0; r < before[n]; r++) {
        size_t i = 0;
        while (order[r] >= before[i + 1]) i++;
        order[r] = (uint32_t)(s->block[plan->block[g * GROUP + i]].row + order[r] - before[i]);
    }
}

/* The pass to come has the blocks in this order. */
static void set_plan(struct tr_row_stream *s, const uint32_t *block)
{
    struct plan *plan = &s->plans[1];
    pthread_mutex_lock(&s->lock);
    for (size_t i = 0; i < s->n; i++) {
        plan->block[i] = block[i];
        plan->place[block[i]] = (uint32_t)i;
    }
    s->plan = plan;
    s->at = s->n;
    s->aside = s->n;
    s->mixed_at = 0;
    s->mixes = true;
    s->strays = 0;
    pthread_cond_signal(&s->moved);
    pthread_mutex_unlock(&s->lock);
}

/* By chance. */
static void mix_blocks(struct tr_row_stream *s, struct tr_rng *rng)
{
    const struct plan *plan = &s->plans[1];
    tr_rng_permutation(rng, s->order, s->n);
    set_plan(s, s->order);
    for (size_t g = 0, i = 0; i < s->n; g++)
        for (s->group_row[g + 1] = s->group_row[g]; i < tr_min_size((g + 1) * GROUP, s->n); i++) {
            const struct tr_data_block *b = &s->block[plan->block[i]];
            s->group_row[g + 1] += b[1].row - b->row;
        }
}

void tr_data_permute(const tr_data *data, struct tr_rng *rng, size_t first, size_t n, uint32_t *order)
{
    struct tr_row_stream *s = data->state->stream;
    if (!s) {
        tr_rng_permutation(rng, order, n);
        for (size_t i = 0; i < n; i++) order[i] += (uint32_t)first;
        return;
    }
    mix_blocks(s, rng);
    for (size_t g = 0; g * GROUP < s->n; g++) mix_group(s, rng, g, order + s->group_row[g]);
}

/* ---- parts ---- */

/* The rows before this one. */
static struct tr_data_block place_of(const struct tr_data_state *state, uint64_t row)
{
    const struct tr_matrix *m = &state->rows;
    return (struct tr_data_block){row, m->begin ? m->begin[row] : row * m->columns};
}

static uint64_t bytes_between(const struct tr_row_stream *s, const struct tr_data_block *from,
                              const struct tr_data_block *to)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < s->arrays; i++)
        sum += s->array[i].unit * (s->array[i].by_row ? to->row - from->row : to->nonzero - from->nonzero);
    return sum;
}

/* The first place behind from, up to end, where that is so many bytes; end if it is nowhere. */
static struct tr_data_block place_after(const struct tr_row_stream *s, const struct tr_data_state *state,
                                        struct tr_data_block from, uint64_t bytes, uint64_t end)
{
    uint64_t low = from.row + 1, high = end;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        struct tr_data_block place = place_of(state, middle);
        if (bytes_between(s, &from, &place) < bytes) low = middle + 1;
        else high = middle;
    }
    return place_of(state, low);
}

/* Blocks of about as many bytes as now, none of which has rows of two parts and not all of them. */
static int cut_blocks(const struct tr_row_stream *s, const struct tr_data_state *state, const size_t *begin,
                      size_t n, struct tr_data_block **blocks, size_t *count)
{
    struct tr_data_block start = {.row = 0}, last, *to = NULL;
    uint64_t most = bytes_of(s, 0), rows = state->rows.rows;
    size_t capacity = 0, k = 0;
    for (size_t i = 0; i < n; i++) {
        struct tr_data_block from = place_of(state, begin[i]);
        last = place_of(state, i + 1 < n ? begin[i + 1] : rows);
        TR_TRY(TR_GROW(&to, &capacity, k + 3));
        if (start.row < from.row && bytes_between(s, &start, &last) > most) {
            to[k++] = start;
            start = from;
        }
        while (bytes_between(s, &start, &last) > most + most / 4) {
            TR_TRY(TR_GROW(&to, &capacity, k + 3));
            to[k++] = start;
            start = place_after(s, state, start, most, last.row);
        }
    }
    if (start.row < rows) to[k++] = start;
    to[k] = place_of(state, rows);
    *blocks = to;
    *count = k;
    return TR_OK;
}

/* What was done before the stream was opened anew, whose thread has begun to read. */
static void count_from(struct tr_row_stream *s, const struct tr_row_stream_counts *before)
{
    pthread_mutex_lock(&s->lock);
    s->counts.memory_bytes = tr_max_size(s->counts.memory_bytes, before->memory_bytes);
    s->counts.read_bytes += before->read_bytes;
    s->counts.dropped_bytes += before->dropped_bytes;
    s->counts.read_seconds += before->read_seconds;
    s->counts.ready += before->ready;
    s->counts.waited += before->waited;
    s->counts.waited_seconds += before->waited_seconds;
    pthread_mutex_unlock(&s->lock);
}

/* Once, and where the parts are others than before: a block that two parts shared would be read for each of them. */
static int follow_begins(const tr_data *data, const size_t *begin, size_t n)
{
    struct tr_data_state *state = data->state;
    struct tr_row_stream *s = state->stream;
    struct tr_data_block *blocks;
    size_t count;
    if (s->parts == n) return TR_OK;
    TR_TRY(cut_blocks(s, state, begin, n, &blocks, &count));
    stop_thread(s);
    for (size_t b = 0; b < s->n; b++)
        if (s->state[b] == PRESENT) drop_block(s, b);
    struct tr_row_stream_counts counts = s->counts;
    uint64_t memory = s->memory;
    bool whole = s->whole;
    tr_row_stream_close(&state->stream);
    free(state->block);
    state->block = blocks;
    state->blocks = count;
    TR_TRY(tr_row_stream_open((tr_data *)(uintptr_t)data, memory, whole, &state->stream));
    count_from(state->stream, &counts);
    state->stream->parts = n;
    return TR_OK;
}

/* Parts that are larger than blocks: these come as the parts do. */
static void follow_parts(struct tr_row_stream *s, const size_t *begin, size_t n, const uint32_t *order)
{
    bool *listed = s->listed;
    size_t k = 0;
    memset(listed, 0, s->n * sizeof *listed);
    for (size_t i = 0; i < n; i++) {
        size_t part = order[i], b = block_of(s, begin[part]);
        uint64_t end = part + 1 < n ? begin[part + 1] : s->block[s->n].row;
        for (; b < s->n && s->block[b].row < end; b++) {
            if (listed[b]) continue;
            listed[b] = true;
            s->order[k++] = (uint32_t)b;
        }
    }
    for (size_t b = 0; b < s->n; b++)
        if (!listed[b]) s->order[k++] = (uint32_t)b;
    set_plan(s, s->order);
}

/* Parts that are smaller: some blocks' parts, mixed, and then those of some others. */
static int mix_parts(struct tr_row_stream *s, struct tr_rng *rng, const size_t *begin, size_t n,
                     uint32_t *order)
{
    uint32_t *mixed;
    size_t *end;
    TR_TRY(TR_NEW(&end, s->n / GROUP + 2));
    int status = TR_NEW(&mixed, n);
    if (status == TR_OK) {
        mix_blocks(s, rng);
        tr_rng_permutation(rng, mixed, n);
        const uint32_t *place = s->plans[1].place;
        for (size_t i = 0; i < n; i++) end[place[block_of(s, begin[i])] / GROUP + 1]++;
        for (size_t g = 1; g < s->n / GROUP + 2; g++) end[g] += end[g - 1];
        for (size_t i = 0; i < n; i++) order[end[place[block_of(s, begin[mixed[i]])] / GROUP]++] = mixed[i];
    }
    free(mixed);
    free(end);
    return status;
}

int tr_data_permute_parts(const tr_data *data, struct tr_rng *rng, const size_t *begin, size_t n,
                          uint32_t *order)
{
    if (data->state->stream && n > 0) TR_TRY(follow_begins(data, begin, n));
    struct tr_row_stream *s = data->state->stream;
    if (!s || n <= s->n) tr_rng_permutation(rng, order, n);
    if (s && n > 0 && n <= s->n) follow_parts(s, begin, n, order);
    return s && n > s->n ? mix_parts(s, rng, begin, n, order) : TR_OK;
}
