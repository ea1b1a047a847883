#include "store/snapshot.h"

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
    return status;
}

/* A copy of n elements, or NULL for none. */
static int copy(const void *from, size_t n, size_t size, void **to)
{
    *to = NULL;
    if (n == 0) return TR_OK;
    if (!(*to = malloc(n * size)))
        return tr_fail(TR_ERR_SYSTEM, "out of memory: %zu bytes of a checkpoint", n * size);
    memcpy(*to, from, n * size);
    return TR_OK;
}

static int take(tr_snapshot *snapshot, const struct tr_part *part)
{
    struct tr_part own = *part;
    own.run = NULL;
    own.begin = NULL;
    own.data = NULL;
    int status = copy(part->run, part->runs, sizeof *part->run, (void **)&own.run);
    if (status == TR_OK && part->begin)
        status = copy(part->begin, (size_t)part->rows + 1, sizeof *part->begin, (void **)&own.begin);
    if (status == TR_OK)
        status = copy(part->data, (size_t)tr_part_elements(part), tr_part_type_size(part->type), &own.data);
    if (status == TR_OK) return tr_snapshot_give(snapshot, &own);
    tr_part_free(&own);
    return status;
}

/* ---- shards ---- */

/* A shard to read from: stays open until the next one is asked for, at least. */
static int open_shard(tr_snapshot *snapshot, uint32_t number, struct tr_shard **shard)
{
    enum { OPEN = 32 };
    const struct tr_manifest *m = snapshot->manifest;
    struct tr_checkpoint_memory *memory = snapshot->memory;
    *shard = snapshot->shards[number];
    if (*shard) return TR_OK;
    if (snapshot->open == OPEN) {
        for (uint32_t i = 0; i < m->shards; i++) tr_shard_close(&snapshot->shards[i]);
        snapshot->open = 0;
    }
    char *path;
    struct tr_shard_head head = tr_manifest_head(m, number);
    TR_TRY(memory ? tr_memory_shard(memory, number, &path)
                  : tr_shard_path(snapshot->folder, m->number, number, &path));
    int status = tr_shard_open(path, &head, memory ? NULL : &m->seal[number], shard);
    free(path);
    if (status != TR_OK) return status;
    snapshot->shards[number] = *shard;
    snapshot->open++;
    return TR_OK;
}

/* Where the values of a stored part are. */
struct source {
    struct tr_shard *shard;
    size_t number;
    const struct tr_part *part;
};

/* ---- filling ---- */

/* Rows that are both stored and wanted, and follow each other in both: numbers within the parts. */
struct stretch {
    uint64_t stored, wanted, n;
};

/* Goes through them; begins with zeros. */
struct overlap {
    const struct tr_part *stored, *wanted;
    size_t i, k;                 /* runs */
    uint64_t before_i, before_k; /* rows before these runs */
};

static bool next_stretch(struct overlap *o, struct stretch *s)
{
    while (o->i < o->stored->runs && o->k < o->wanted->runs) {
        struct tr_row_run a = o->stored->run[o->i], b = o->wanted->run[o->k];
        uint64_t first = a.first > b.first ? a.first : b.first;
        uint64_t end_a = a.first + a.n, end_b = b.first + b.n, end = end_a < end_b ? end_a : end_b;
        *s = (struct stretch){o->before_i + first - a.first, o->before_k + first - b.first, end - first};
        bool found = first < end;
        if (end_a <= end_b) o->before_i += a.n, o->i++;
        if (end_b <= end_a) o->before_k += b.n, o->k++;
        if (found) return true;
    }
    return false;
}

static int fill_stretch(const struct source *from, const struct tr_part *wanted, const struct stretch *s)
{
    const struct tr_part *stored = from->part;
    size_t size = tr_part_type_size(stored->type);
    char *data = wanted->data;
    if (!wanted->begin)
        return tr_shard_read(from->shard, from->number, s->stored * stored->columns, s->n * stored->columns,
                             data + s->wanted * wanted->columns * size);
    for (uint64_t i = 0; i < s->n; i++) {
        uint64_t there = stored->begin[s->stored + i + 1] - stored->begin[s->stored + i];
        uint64_t here = wanted->begin[s->wanted + i + 1] - wanted->begin[s->wanted + i];
        if (there != here)
            return tr_fail(TR_ERR_DATA, "checkpoint: a row of %s has %llu elements, expected %llu",
                           wanted->name, (unsigned long long)there, (unsigned long long)here);
        TR_TRY(tr_shard_read(from->shard, from->number, stored->begin[s->stored + i], here,
                             data + (wanted->begin[s->wanted + i] - wanted->begin[0]) * size));
    }
    return TR_OK;
}

/* A bit for each wanted row that has been filled, as several ranks may have had the same one: the first counts. */
struct filled {
    uint64_t *bit;
    uint64_t rows;
};

static bool is_filled(const struct filled *f, uint64_t row)
{
    return f->bit[row / 64] >> row % 64 & 1;
}

/* The first row from this one on, up to `end`, that is filled and this is not, or the other way round. */
static uint64_t next_other(const struct filled *f, uint64_t row, uint64_t end)
{
    uint64_t same = is_filled(f, row) ? UINT64_MAX : 0;
    while (row < end) {
        uint64_t others = (f->bit[row / 64] ^ same) >> row % 64;
        if (others) row += (uint64_t)__builtin_ctzll(others);
        if (others) break;
        row += 64 - row % 64;
    }
    return row < end ? row : end;
}

static void mark(struct filled *f, uint64_t first, uint64_t n)
{
    f->rows += n;
    for (uint64_t end = first + n, some; first < end; first += some) {
        some = 64 - first % 64 < end - first ? 64 - first % 64 : end - first;
        f->bit[first / 64] |= (some < 64 ? ((uint64_t)1 << some) - 1 : UINT64_MAX) << first % 64;
    }
}

/* What is missing of a stretch. */
static int fill_missing(const struct source *from, const struct tr_part *wanted, const struct stretch *s,
                        struct filled *filled)
{
    for (uint64_t i = 0, n; i < s->n; i += n) {
        n = next_other(filled, s->wanted + i, s->wanted + s->n) - (s->wanted + i);
        if (is_filled(filled, s->wanted + i)) continue;
        TR_TRY(fill_stretch(from, wanted, &(struct stretch){s->stored + i, s->wanted + i, n}));
        mark(filled, s->wanted + i, n);
    }
    return TR_OK;
}

/* From one stored part. */
static int fill_from(const struct source *from, const struct tr_part *wanted, struct filled *filled)
{
    const struct tr_part *stored = from->part;
    if (stored->type != wanted->type || stored->columns != wanted->columns ||
        stored->total_rows != wanted->total_rows || !stored->begin != !wanted->begin)
        return tr_fail(TR_ERR_DATA,
                       "checkpoint: %s has rows of %llu elements of type %d, expected %llu of type %d (of "
                       "%llu rows %llu)",
                       wanted->name, (unsigned long long)stored->columns, (int)stored->type,
                       (unsigned long long)wanted->columns, (int)wanted->type,
                       (unsigned long long)wanted->total_rows, (unsigned long long)stored->total_rows);
    struct overlap o = {.stored = stored, .wanted = wanted};
    struct stretch s;
    while (next_stretch(&o, &s)) TR_TRY(fill_missing(from, wanted, &s, filled));
    return TR_OK;
}

/* What is common lies in the first shard; of other things a rank's own shard comes first, and is mostly enough. */
static int fill_from_all(tr_snapshot *snapshot, const struct tr_part *wanted, struct filled *filled)
{
    uint32_t shards = snapshot->manifest->shards;
    for (uint32_t i = 0; i < shards && filled->rows < wanted->rows; i++) {
        struct tr_shard *shard;
        TR_TRY(open_shard(snapshot, snapshot->order[i], &shard));
        ptrdiff_t at = tr_shard_find(shard, wanted->name, wanted->first_column);
        if (at < 0) continue;
        TR_TRY(fill_from(&(struct source){shard, (size_t)at, &shard->part[at]}, wanted, filled));
    }
    if (filled->rows == wanted->rows) return TR_OK;
    return tr_fail(TR_ERR_DATA, "checkpoint %llu: %llu rows of %s are missing",
                   (unsigned long long)snapshot->manifest->number,
                   (unsigned long long)(wanted->rows - filled->rows), wanted->name);
}

/* ---- from what this process has taken ---- */

static const struct tr_part *find_taken(const tr_snapshot *snapshot, const struct tr_part *wanted)
{
    for (size_t i = 0; i < snapshot->parts; i++) {
        const struct tr_part *p = &snapshot->part[i];
        if (p->first_column == wanted->first_column && !strcmp(p->name, wanted->name)) return p;
    }
    return NULL;
}

static int fill_from_taken(const tr_snapshot *snapshot, const struct tr_part *wanted)
{
    const struct tr_part *taken = find_taken(snapshot, wanted);
    uint64_t n = tr_part_elements(wanted);
    if (n == 0) return TR_OK;
    if (!taken || taken->type != wanted->type || tr_part_elements(taken) != n)
        return tr_fail(TR_ERR_INTERNAL, "%s is not what was kept of it", wanted->name);
    memcpy(wanted->data, taken->data, (size_t)n * tr_part_type_size(taken->type));
    return TR_OK;
}

int tr_snapshot_part(tr_snapshot *snapshot, struct tr_part *part)
{
    struct filled filled = {.rows = 0};
    if (!tr_snapshot_restores(snapshot)) return take(snapshot, part);
    if (snapshot->in_process) return fill_from_taken(snapshot, part);
    TR_TRY(TR_NEW(&filled.bit, part->rows / 64 + 1));
    int status = fill_from_all(snapshot, part, &filled);
    free(filled.bit);
    return status;
}

int tr_snapshot_has(tr_snapshot *snapshot, const char *name, bool *has)
{
    struct tr_part part = {.first_column = 0};
    snprintf(part.name, sizeof part.name, "%s", name);
    *has = snapshot->in_process && find_taken(snapshot, &part);
    if (snapshot->in_process) return TR_OK;
    for (uint32_t i = 0, n = snapshot->manifest->shards; i < n && !*has; i++) {
        struct tr_shard *shard;
        TR_TRY(open_shard(snapshot, snapshot->order[i], &shard));
        *has = tr_shard_find(shard, name, 0) >= 0;
    }
    return TR_OK;
}

/* ---- everything of a name ---- */

/* A run, whose rows follow `before` others, in pieces. */
static int hand_over(const struct source *from, struct tr_row_run run, uint64_t before, tr_piece_fn *piece,
                     void *who)
{
    const struct tr_part *stored = from->part;
    uint64_t columns = stored->columns, most = tr_max_size(1, TR_SHARD_PIECE / tr_max_size(1, columns));
    for (uint64_t done = 0, n; done < run.n; done += n) {
        n = run.n - done < most ? run.n - done : most;
        struct tr_row_run some = {run.first + done, n};
        struct tr_part p = *stored;
        p.runs = 1;
        p.run = &some;
        p.rows = n;
        TR_TRY(TR_NEW((char **)&p.data, n * columns * tr_part_type_size(stored->type)));
        int status = tr_shard_read(from->shard, from->number, (before + done) * columns, n * columns, p.data);
        if (status == TR_OK) status = piece(who, &p);
        free(p.data);
        TR_TRY(status);
    }
    return TR_OK;
}

static int hand_over_wanted(const struct source *from, tr_wanted_fn *wanted, tr_piece_fn *piece, void *who)
{
    uint64_t before = 0;
    for (size_t i = 0; i < from->part->runs; i++) {
        const struct tr_row_run *run = &from->part->run[i];
        if (wanted(who, run)) TR_TRY(hand_over(from, *run, before, piece, who));
        before += run->n;
    }
    return TR_OK;
}

int tr_snapshot_each(tr_snapshot *snapshot, const char *name, tr_wanted_fn *wanted, tr_piece_fn *piece,
                     void *who)
{
    for (uint32_t i = 0; i < snapshot->manifest->shards; i++) {
        struct tr_shard *shard;
        TR_TRY(open_shard(snapshot, i, &shard));
        for (size_t k = 0; k < shard->parts; k++) {
            const struct tr_part *stored = &shard->part[k];
            if (stored->kind != TR_PART_ROWS || strcmp(stored->name, name) != 0) continue;
            TR_TRY(hand_over_wanted(&(struct source){shard, k, stored}, wanted, piece, who));
        }
    }
    return TR_OK;
}

/* ---- what stages list ---- */

static int set_name(const tr_snapshot *snapshot, const char *name, struct tr_part *part)
{
    int length =
        snprintf(part->name, sizeof part->name, "%s%s", snapshot->prefix ? snapshot->prefix : "", name);
    if (length > 0 && (size_t)length < sizeof part->name) return TR_OK;
    return tr_fail(TR_ERR_INTERNAL, "the name of what is kept is too long: %s", name);
}

/* Ascending numbers as runs; first, first + 1, … without. To be freed. */
static int make_runs(const uint64_t *row, uint64_t first, size_t n, struct tr_row_run **run, size_t *runs)
{
    *runs = n > 0;
    for (size_t i = 1; row && i < n; i++) *runs += row[i] != row[i - 1] + 1;
    TR_TRY(TR_NEW(run, *runs));
    struct tr_row_run *r = *run;
    if (n > 0) *r = (struct tr_row_run){row ? row[0] : first, row ? 1 : n};
    for (size_t i = 1; row && i < n; i++) {
        if (row[i] != row[i - 1] + 1) *++r = (struct tr_row_run){row[i], 0};
        r->n++;
    }
    return TR_OK;
}

static int list_numbered(tr_snapshot *snapshot, const char *name, struct tr_part *part, const uint64_t *row,
                         uint64_t first, size_t n)
{
    TR_TRY(set_name(snapshot, name, part));
    TR_TRY(make_runs(row, first, n, &part->run, &part->runs));
    part->rows = n;
    int status = n > 0 ? tr_snapshot_part(snapshot, part) : TR_OK;
    free(part->run);
    return status;
}

static struct tr_part make_part(enum tr_part_kind kind, enum tr_part_type type, uint64_t rows,
                                uint64_t columns, void *values)
{
    return (struct tr_part){.kind = kind,
                            .type = type,
                            .total_rows = rows,
                            .total_columns = columns,
                            .columns = columns,
                            .data = values};
}

int tr_snapshot_rows(tr_snapshot *snapshot, const char *name, enum tr_dtype dtype, uint64_t total_rows,
                     size_t columns, const uint64_t *row, uint64_t first, size_t n, void *values)
{
    struct tr_part part = make_part(TR_PART_ROWS, (enum tr_part_type)dtype, total_rows, columns, values);
    return list_numbered(snapshot, name, &part, row, first, n);
}

int tr_snapshot_lists(tr_snapshot *snapshot, const char *name, enum tr_dtype dtype, uint64_t total_rows,
                      const uint64_t *row, uint64_t first, size_t n, const uint64_t *begin, void *values)
{
    struct tr_part part = make_part(TR_PART_LISTS, (enum tr_part_type)dtype, total_rows, 0, values);
    TR_TRY(TR_NEW(&part.begin, n + 1));
    for (size_t i = 0; n > 0 && i <= n; i++) part.begin[i] = begin[i] - begin[0];
    int status = list_numbered(snapshot, name, &part, row, first, n);
    free(part.begin);
    return status;
}

int tr_snapshot_common(tr_snapshot *snapshot, const char *name, enum tr_dtype dtype, size_t n, void *values)
{
    struct tr_part part = make_part(TR_PART_COMMON, (enum tr_part_type)dtype, n, 1, values);
    if (!tr_snapshot_restores(snapshot) && snapshot->tr->rank != 0 && !snapshot->in_process) return TR_OK;
    return list_numbered(snapshot, name, &part, NULL, 0, n);
}

/* In the rank's own shard, as a row of bytes. */
int tr_snapshot_own(tr_snapshot *snapshot, const char *name, void *data, size_t bytes, bool *found)
{
    struct tr_part part = make_part(TR_PART_OWN, TR_PART_U8, bytes, 1, data);
    struct tr_shard *shard;
    if (found) *found = false;
    if (!tr_snapshot_restores(snapshot)) return list_numbered(snapshot, name, &part, NULL, 0, bytes);
    if (!snapshot->same_layout) return TR_OK;
    TR_TRY(set_name(snapshot, name, &part));
    if (snapshot->in_process) {
        const struct tr_part *taken = find_taken(snapshot, &part);
        if (taken ? taken->rows != bytes : bytes > 0) return TR_OK;
        if (found) *found = true;
        part.rows = bytes;
        return fill_from_taken(snapshot, &part);
    }
    TR_TRY(open_shard(snapshot, (uint32_t)snapshot->tr->rank, &shard));
    ptrdiff_t at = tr_shard_find(shard, part.name, 0);
    const struct tr_part *stored = at < 0 ? NULL : &shard->part[at];
    if (stored ? stored->kind != TR_PART_OWN || stored->rows != bytes : bytes > 0) return TR_OK;
    if (found) *found = true;
    return stored ? tr_shard_read(shard, (size_t)at, 0, bytes, data) : TR_OK;
}

/* ---- from the beginning to the end ---- */

/* A rank's own shard, that of rank 0, which has what is common, and then all from its own on: first those that are on
 * this host, if that makes a difference. */
static void order_shards(tr_snapshot *snapshot)
{
    uint32_t n = snapshot->manifest->shards, at = 0, own = n > 0 ? (uint32_t)snapshot->tr->rank % n : 0;
    if (n == 0) return;
    for (int elsewhere = 0; elsewhere < 2; elsewhere++)
        for (uint32_t i = 0; i < n + 1; i++) {
            uint32_t shard = i == 0 ? own : i == 1 ? 0 : (own + i - 1) % n;
            bool is_elsewhere = snapshot->memory && i > 1 && !tr_memory_has(snapshot->memory, shard);
            bool again = (i == 1 && own == 0) || (i > 1 && (shard == 0 || shard == own));
            if (!again && is_elsewhere == elsewhere) snapshot->order[at++] = shard;
        }
}

void tr_snapshot_from_memory(tr_snapshot *snapshot, struct tr_checkpoint_memory *memory)
{
    snapshot->memory = memory;
    order_shards(snapshot);
}

int tr_snapshot_open(tr_context *tr, const char *folder, const struct tr_manifest *from, tr_snapshot **out)
{
    tr_snapshot *snapshot;
    TR_TRY(TR_NEW(&snapshot, 1));
    snapshot->tr = tr;
    *out = snapshot;
    if (!from) return TR_OK;
    snapshot->manifest = from;
    snapshot->folder = folder;
    const struct tr_layout *l = &tr->layout;
    snapshot->same_layout = from->facts.ranks == tr->size && from->facts.servers == l->servers &&
                            from->facts.groups == l->groups && from->facts.group_size == l->group_size;
    int status = TR_NEW(&snapshot->shards, from->shards);
    if (status == TR_OK) status = TR_NEW(&snapshot->order, from->shards);
    if (status == TR_OK) order_shards(snapshot);
    else tr_snapshot_close(out);
    return status;
}

void tr_snapshot_close(tr_snapshot **out)
{
    tr_snapshot *snapshot = *out;
    if (!snapshot) return;
    for (uint32_t i = 0; snapshot->shards && i < snapshot->manifest->shards; i++)
        tr_shard_close(&snapshot->shards[i]);
    for (size_t i = 0; i < snapshot->parts; i++) tr_part_free(&snapshot->part[i]);
    free(snapshot->order);
    free(snapshot->shards);
    free(snapshot->part);
    free(snapshot);
    *out = NULL;
}
