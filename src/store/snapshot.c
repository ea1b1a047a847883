#include "store/checkpoint.h"

#include <stdlib.h>
#include <string.h>

#include "store/shard.h"
#include "store/memory.h"

bool tr_snapshot_restores(const tr_snapshot *snapshot)
{
    return snapshot->shards || snapshot->fills;
}

/* ---- taking ---- */

int tr_snapshot_give(tr_snapshot *snapshot, struct tr_part *part)
{
    int status = TR_GROW(&snapshot->part, &snapshot->capacity, snapshot->parts + 1);
    if (status == TR_OK) snapshot->part[snapshot->parts++] = *part;
    else tr_part_free(part);
    *part = tr_part_without_arrays(part);
    return status;
}

/* Copies n elements to new memory, which is not set to zero before; *to becomes NULL if n is 0. */
static int snapshot_copy(const void *from, size_t n, size_t size, void **to)
{
    *to = NULL;
    if (n == 0) return TR_OK;
    if (!(*to = malloc(n * size)))
        return tr_fail(TR_ERR_SYSTEM, "out of memory: %zu bytes of a checkpoint", n * size);
    memcpy(*to, from, n * size);
    return TR_OK;
}

/* ---- shards ---- */

/* Opens a shard, which stays open at least until another shard is opened. If OPEN shards are open, closes all of them. */
static int snapshot_open_shard(tr_snapshot *snapshot, uint32_t number, struct tr_shard **shard)
{
    enum { OPEN = 32 };
    const struct tr_manifest *m = snapshot->manifest;
    struct tr_checkpoint_memory *memory = snapshot->memory;
    struct tr_shard_head head = tr_manifest_head(m, number);
    TR_FREED char *path = NULL;
    *shard = snapshot->shards[number];
    if (*shard) return TR_OK;
    if (snapshot->open == OPEN) {
        for (uint32_t i = 0; i < m->shards; i++) tr_shard_close(&snapshot->shards[i]);
        snapshot->open = 0;
    }
    TR_TRY(memory ? tr_memory_shard(memory, number, &path)
                  : tr_shard_path(snapshot->folder, m->number, number, &path));
    TR_TRY(tr_shard_open(path, &head, memory ? NULL : &m->seal[number], shard));
    snapshot->shards[number] = *shard;
    snapshot->open++;
    return TR_OK;
}

/* ---- filling ---- */

/* Reads n rows from row `from` of a stored part to row `to` of a wanted part. Rows are numbered within each part. */
static int fill_rows(struct tr_shard *shard, size_t number, uint64_t from, const struct tr_part *wanted,
                     uint64_t to, uint64_t n)
{
    const struct tr_part *stored = &shard->part[number];
    size_t size = tr_part_type_size(stored->type);
    char *data = wanted->data;
    if (!wanted->begin)
        return tr_shard_read(shard, number, from * stored->columns, n * stored->columns,
                             data + to * wanted->columns * size);
    for (; n > 0; n--, from++, to++) {
        uint64_t there = stored->begin[from + 1] - stored->begin[from];
        uint64_t here = wanted->begin[to + 1] - wanted->begin[to];
        if (there != here)
            return tr_fail(TR_ERR_DATA, "checkpoint: a row of %s has %llu elements, expected %llu",
                           wanted->name, (unsigned long long)there, (unsigned long long)here);
        TR_TRY(tr_shard_read(shard, number, stored->begin[from], here,
                             data + (wanted->begin[to] - wanted->begin[0]) * size));
    }
    return TR_OK;
}

/* Bit i is set if row i of the wanted part is filled. If several shards contain a row, it is read from the first of them only. */
struct filled {
    uint64_t *bit;
    uint64_t rows;
};

static bool filled_has(const struct filled *f, uint64_t row)
{
    return f->bit[row / 64] >> row % 64 & 1;
}

/* Returns the end of the longest range of rows from `row` on, at most until `end`, whose bits are equal. */
static uint64_t filled_end(const struct filled *f, uint64_t row, uint64_t end)
{
    uint64_t same = filled_has(f, row) ? UINT64_MAX : 0;
    while (row < end) {
        uint64_t others = (f->bit[row / 64] ^ same) >> row % 64;
        if (others) row += (uint64_t)__builtin_ctzll(others);
        if (others) break;
        row += 64 - row % 64;
    }
    return row < end ? row : end;
}

/* Fills the rows that the stored part contains, except those that are filled already. */
static int fill_from(struct tr_shard *shard, size_t number, const struct tr_part *wanted,
                     struct filled *filled)
{
    const struct tr_part *stored = &shard->part[number];
    if (stored->type != wanted->type || stored->columns != wanted->columns ||
        stored->total_rows != wanted->total_rows || !stored->begin != !wanted->begin)
        return tr_fail(TR_ERR_DATA,
                       "checkpoint: %s has rows of %llu elements of type %d, expected %llu of type %d (of "
                       "%llu rows %llu)",
                       wanted->name, (unsigned long long)stored->columns, (int)stored->type,
                       (unsigned long long)wanted->columns, (int)wanted->type,
                       (unsigned long long)wanted->total_rows, (unsigned long long)stored->total_rows);
    /* number of rows in the runs before run i of `stored`, and before run k of `wanted` */
    uint64_t before_i = 0, before_k = 0;
    for (size_t i = 0, k = 0; i < stored->runs && k < wanted->runs;) {
        struct tr_row_run a = stored->run[i], b = wanted->run[k];
        uint64_t end_a = a.first + a.n, end_b = b.first + b.n, end = end_a < end_b ? end_a : end_b;
        for (uint64_t row = a.first > b.first ? a.first : b.first, next; row < end; row = next) {
            uint64_t to = before_k + row - b.first;
            next = row + filled_end(filled, to, before_k + end - b.first) - to;
            if (filled_has(filled, to)) continue;
            TR_TRY(fill_rows(shard, number, before_i + row - a.first, wanted, to, next - row));
            filled->rows += next - row;
            for (uint64_t first = to, last = to + next - row, some; first < last; first += some) {
                some = 64 - first % 64 < last - first ? 64 - first % 64 : last - first;
                uint64_t ones = some < 64 ? ((uint64_t)1 << some) - 1 : UINT64_MAX;
                filled->bit[first / 64] |= ones << first % 64;
            }
        }
        if (end_a <= end_b) before_i += a.n, i++;
        if (end_b <= end_a) before_k += b.n, k++;
    }
    return TR_OK;
}

/* ---- from the parts in this process ---- */

static const struct tr_part *taken_find(const tr_snapshot *snapshot, const struct tr_part *wanted)
{
    for (size_t i = 0; i < snapshot->parts; i++) {
        const struct tr_part *p = &snapshot->part[i];
        if (p->first_column == wanted->first_column && !strcmp(p->name, wanted->name)) return p;
    }
    return NULL;
}

static int fill_from_taken(const tr_snapshot *snapshot, const struct tr_part *wanted)
{
    const struct tr_part *taken = taken_find(snapshot, wanted);
    uint64_t n = tr_part_elements(wanted);
    if (n == 0) return TR_OK;
    if (!taken || taken->type != wanted->type || tr_part_elements(taken) != n)
        return tr_fail(TR_ERR_INTERNAL, "%s: another size or type than in the snapshot", wanted->name);
    memcpy(wanted->data, taken->data, (size_t)n * tr_part_type_size(taken->type));
    return TR_OK;
}

/* Restoring: shards are searched in snapshot->order, which starts with that of this rank, where most of its rows are. */
int tr_snapshot_part(tr_snapshot *snapshot, struct tr_part *part)
{
    TR_FREED uint64_t *bit = NULL;
    if (!tr_snapshot_restores(snapshot)) {
        struct tr_part own TR_CLOSED_BY(tr_part_free) = tr_part_without_arrays(part);
        size_t n = (size_t)tr_part_elements(part);
        TR_TRY(snapshot_copy(part->run, part->runs, sizeof *part->run, (void **)&own.run));
        if (part->begin)
            TR_TRY(
                snapshot_copy(part->begin, (size_t)part->rows + 1, sizeof *part->begin, (void **)&own.begin));
        TR_TRY(snapshot_copy(part->data, n, tr_part_type_size(part->type), &own.data));
        return tr_snapshot_give(snapshot, &own);
    }
    if (snapshot->in_process) return fill_from_taken(snapshot, part);
    TR_TRY(TR_NEW(&bit, part->rows / 64 + 1));
    struct filled filled = {.bit = bit};
    for (uint32_t i = 0; i < snapshot->manifest->shards && filled.rows < part->rows; i++) {
        struct tr_shard *shard;
        TR_TRY(snapshot_open_shard(snapshot, snapshot->order[i], &shard));
        ptrdiff_t at = tr_shard_find(shard, part->name, part->first_column);
        if (at >= 0) TR_TRY(fill_from(shard, (size_t)at, part, &filled));
    }
    if (filled.rows == part->rows) return TR_OK;
    return tr_fail(TR_ERR_DATA, "checkpoint %llu: %llu rows of %s are missing",
                   (unsigned long long)snapshot->manifest->number,
                   (unsigned long long)(part->rows - filled.rows), part->name);
}

int tr_snapshot_has(tr_snapshot *snapshot, const char *name, bool *has)
{
    struct tr_part part = {.first_column = 0};
    snprintf(part.name, sizeof part.name, "%s", name);
    *has = snapshot->in_process && taken_find(snapshot, &part);
    if (snapshot->in_process) return TR_OK;
    for (uint32_t i = 0, n = snapshot->manifest->shards; i < n && !*has; i++) {
        struct tr_shard *shard;
        TR_TRY(snapshot_open_shard(snapshot, snapshot->order[i], &shard));
        *has = tr_shard_find(shard, name, 0) >= 0;
    }
    return TR_OK;
}

/* ---- all rows of a name ---- */

int tr_snapshot_each(tr_snapshot *snapshot, const char *name, tr_wanted_fn *wanted, tr_piece_fn *piece,
                     void *who)
{
    for (uint32_t i = 0; i < snapshot->manifest->shards; i++) {
        struct tr_shard *shard;
        TR_TRY(snapshot_open_shard(snapshot, i, &shard));
        for (size_t k = 0; k < shard->parts; k++) {
            const struct tr_part *stored = &shard->part[k];
            uint64_t before = 0;
            if (stored->kind != TR_PART_ROWS || strcmp(stored->name, name) != 0) continue;
            for (size_t r = 0; r < stored->runs; before += stored->run[r++].n) {
                struct tr_row_run run = stored->run[r];
                if (!wanted(who, &run)) continue;
                uint64_t columns = stored->columns;
                uint64_t most = tr_max_size(1, TR_SHARD_PIECE / tr_max_size(1, columns));
                for (uint64_t done = 0, n; done < run.n; done += n) { /* at most `most` rows at a time */
                    n = run.n - done < most ? run.n - done : most;
                    TR_FREED char *data = NULL;
                    struct tr_row_run some = {run.first + done, n};
                    struct tr_part p = *stored;
                    TR_TRY(TR_NEW(&data, n * columns * tr_part_type_size(stored->type)));
                    p.runs = 1;
                    p.run = &some;
                    p.rows = n;
                    p.data = data;
                    TR_TRY(tr_shard_read(shard, k, (before + done) * columns, n * columns, data));
                    TR_TRY(piece(who, &p));
                }
            }
        }
    }
    return TR_OK;
}

/* ---- functions for stages ---- */

static int snapshot_set_name(const tr_snapshot *snapshot, const char *name, struct tr_part *part)
{
    int length =
        snprintf(part->name, sizeof part->name, "%s%s", snapshot->prefix ? snapshot->prefix : "", name);
    if (length > 0 && (size_t)length < sizeof part->name) return TR_OK;
    return tr_fail(TR_ERR_INTERNAL, "the name of an array in a snapshot is too long: %s", name);
}

/* Lists n rows: the rows row[0 .. n-1], ascending, or, if row is NULL, rows first .. first + n - 1. */
static int snapshot_list(tr_snapshot *snapshot, const char *name, struct tr_part *part, const uint64_t *row,
                         uint64_t first, size_t n)
{
    TR_FREED struct tr_row_run *run = NULL;
    TR_TRY(snapshot_set_name(snapshot, name, part));
    part->runs = n > 0;
    for (size_t i = 1; row && i < n; i++) part->runs += row[i] != row[i - 1] + 1;
    TR_TRY(TR_NEW(&run, part->runs));
    part->run = run;
    part->rows = n;
    if (n == 0) return TR_OK;
    struct tr_row_run *r = run;
    *r = (struct tr_row_run){row ? row[0] : first, row ? 1 : n};
    for (size_t i = 1; row && i < n; i++) {
        if (row[i] != row[i - 1] + 1) *++r = (struct tr_row_run){row[i], 0};
        r->n++;
    }
    return tr_snapshot_part(snapshot, part);
}

int tr_snapshot_rows(tr_snapshot *snapshot, const char *name, enum tr_dtype dtype, uint64_t total_rows,
                     size_t columns, const uint64_t *row, uint64_t first, size_t n, void *values)
{
    struct tr_part part = tr_part_make(TR_PART_ROWS, (enum tr_part_type)dtype, total_rows, columns);
    part.data = values;
    return snapshot_list(snapshot, name, &part, row, first, n);
}

int tr_snapshot_lists(tr_snapshot *snapshot, const char *name, enum tr_dtype dtype, uint64_t total_rows,
                      const uint64_t *row, uint64_t first, size_t n, const uint64_t *begin, void *values)
{
    struct tr_part part = tr_part_make(TR_PART_LISTS, (enum tr_part_type)dtype, total_rows, 0);
    TR_FREED uint64_t *own = NULL;
    TR_TRY(TR_NEW(&own, n + 1));
    for (size_t i = 0; n > 0 && i <= n; i++) own[i] = begin[i] - begin[0];
    part.begin = own;
    part.data = values;
    return snapshot_list(snapshot, name, &part, row, first, n);
}

int tr_snapshot_common(tr_snapshot *snapshot, const char *name, enum tr_dtype dtype, size_t n, void *values)
{
    struct tr_part part = tr_part_make(TR_PART_COMMON, (enum tr_part_type)dtype, n, 1);
    if (!tr_snapshot_restores(snapshot) && snapshot->tr->rank != 0 && !snapshot->in_process) return TR_OK;
    part.data = values;
    return snapshot_list(snapshot, name, &part, NULL, 0, n);
}

/* Writes or restores the bytes as a part of kind own (TR_PART_OWN) in the shard of this rank. */
int tr_snapshot_own(tr_snapshot *snapshot, const char *name, void *data, size_t bytes, bool *found)
{
    struct tr_part part = tr_part_make(TR_PART_OWN, TR_PART_U8, bytes, 1);
    struct tr_shard *shard;
    part.data = data;
    if (found) *found = false;
    if (!tr_snapshot_restores(snapshot)) return snapshot_list(snapshot, name, &part, NULL, 0, bytes);
    if (!snapshot->same_layout) return TR_OK;
    TR_TRY(snapshot_set_name(snapshot, name, &part));
    if (snapshot->in_process) {
        const struct tr_part *taken = taken_find(snapshot, &part);
        if (taken ? taken->rows != bytes : bytes > 0) return TR_OK;
        if (found) *found = true;
        part.rows = bytes;
        return fill_from_taken(snapshot, &part);
    }
    TR_TRY(snapshot_open_shard(snapshot, (uint32_t)snapshot->tr->rank, &shard));
    ptrdiff_t at = tr_shard_find(shard, part.name, 0);
    const struct tr_part *stored = at < 0 ? NULL : &shard->part[at];
    if (stored ? stored->kind != TR_PART_OWN || stored->rows != bytes : bytes > 0) return TR_OK;
    if (found) *found = true;
    return stored ? tr_shard_read(shard, (size_t)at, 0, bytes, data) : TR_OK;
}

/* ---- opening and closing ---- */

/* Shards are searched in this order: the shard of this rank; the shard of rank 0, which contains the common parts; other shards on
 * this host; shards that must be fetched from other hosts. */
int tr_snapshot_open(tr_context *tr, const char *folder, struct tr_checkpoint_memory *memory,
                     const struct tr_manifest *from, tr_snapshot **out)
{
    tr_snapshot *s TR_CLOSED_BY(tr_snapshot_close) = NULL;
    const struct tr_layout *l = &tr->layout;
    TR_TRY(TR_NEW(&s, 1));
    s->tr = tr;
    if (from) {
        uint32_t n = from->shards, at = 0, own = n > 0 ? (uint32_t)tr->rank % n : 0;
        s->manifest = from;
        s->folder = folder;
        s->memory = memory;
        s->same_layout = from->facts.ranks == tr->size && from->facts.servers == l->servers &&
                         from->facts.groups == l->groups && from->facts.group_size == l->group_size;
        TR_TRY(TR_NEW(&s->shards, n));
        TR_TRY(TR_NEW(&s->order, n));
        for (int elsewhere = 0; elsewhere < 2 && n > 0; elsewhere++)
            for (uint32_t i = 0; i < n + 1; i++) {
                uint32_t shard = i == 0 ? own : i == 1 ? 0 : (own + i - 1) % n;
                bool is_elsewhere = memory && i > 1 && !memory->here[shard];
                bool again = (i == 1 && own == 0) || (i > 1 && (shard == 0 || shard == own));
                if (!again && is_elsewhere == elsewhere) s->order[at++] = shard;
            }
    }
    *out = s;
    s = NULL;
    return TR_OK;
}

void tr_snapshot_close(tr_snapshot **out)
{
    tr_snapshot *snapshot = *out;
    if (!snapshot) return;
    for (uint32_t i = 0; snapshot->shards && i < snapshot->manifest->shards; i++)
        tr_shard_close(&snapshot->shards[i]);
    for (size_t i = 0; i < snapshot->parts; i++) tr_part_free(&snapshot->part[i]);
    TR_FREE_ALL(snapshot->order, snapshot->shards, snapshot->part, snapshot);
    *out = NULL;
}
