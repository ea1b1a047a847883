#define _GNU_SOURCE
#include "store/shard.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

#define FORMAT "trireme-shard"
enum { VERSION = 2 };

static const char *const kind_name[TR_PART_KINDS] = {"rows", "lists", "common", "own"};
static const char *const type_name[TR_PART_TYPES] = {"f32", "f64", "i32", "i64", "u8"};

/* The directory: all that opening a shard needs. */
struct entry {
    struct tr_part part;                   /* without what it points to */
    uint64_t runs_at, begin_at, values_at; /* bytes in the file */
};

struct directory {
    struct tr_shard_head head;
    uint64_t parts;
    struct entry part[];
};

hid_t tr_part_h5_type(enum tr_part_type type)
{
    switch (type) {
    case TR_PART_F32: return H5T_NATIVE_FLOAT;
    case TR_PART_F64: return H5T_NATIVE_DOUBLE;
    case TR_PART_I32: return H5T_NATIVE_INT32;
    case TR_PART_I64: return H5T_NATIVE_INT64;
    default: return H5T_NATIVE_UINT8;
    }
}

void tr_part_path(const struct tr_part *p, char *path, size_t size)
{
    if (p->first_column > 0) snprintf(path, size, "%s@%" PRIu64, p->name, p->first_column);
    else snprintf(path, size, "%s", p->name);
}

int tr_part_shape(const struct tr_part *p, uint64_t rows, uint64_t columns, uint64_t elements,
                  uint64_t *shape)
{
    bool flat = p->kind == TR_PART_LISTS || p->total_columns == 1;
    shape[0] = flat ? elements : rows;
    shape[1] = columns;
    return flat ? 1 : 2;
}

void tr_shard_name(uint32_t shard, char name[TR_SHARD_NAME_BYTES])
{
    snprintf(name, TR_SHARD_NAME_BYTES, "shard-%04" PRIu32 ".h5", shard);
}

static bool is_name(const char *name, size_t size)
{
    const char *c = name;
    if (!memchr(name, 0, size)) return false;
    for (bool begins = true; *c; c++) {
        bool letter =
            (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') || (*c >= '0' && *c <= '9') || *c == '_';
        if (!letter && (*c != '/' || begins)) return false;
        begins = *c == '/';
    }
    return c > name && c[-1] != '/';
}

/* ---- writing ---- */

static int describe_part(hid_t group, const struct tr_part *p)
{
    TR_TRY(tr_attribute_text(group, "kind", kind_name[p->kind]));
    TR_TRY(tr_attribute_text(group, "type", type_name[p->type]));
    TR_TRY(tr_attribute_count(group, "total_rows", p->total_rows));
    TR_TRY(tr_attribute_count(group, "total_columns", p->total_columns));
    TR_TRY(tr_attribute_count(group, "first_column", p->first_column));
    return tr_attribute_count(group, "columns", p->columns);
}

static int put_arrays(struct tr_checked_writer *w, hid_t group, const struct tr_part *p, struct entry *e)
{
    uint64_t elements = tr_part_elements(p), size = tr_part_type_size(p->type);
    uint64_t runs[2] = {p->runs, 2}, begins = p->rows + 1, values[2];
    int dimensions = tr_part_shape(p, p->rows, p->columns, elements, values);
    TR_TRY(tr_checked_begin(w, group, "values", tr_part_h5_type(p->type), dimensions, values,
                            TR_SHARD_PIECE * size, &e->values_at));
    TR_TRY(tr_checked_append(w, p->data, elements * size));
    TR_TRY(tr_checked_begin(w, group, "runs", H5T_NATIVE_UINT64, 2, runs, 0, &e->runs_at));
    TR_TRY(tr_checked_append(w, p->run, p->runs * sizeof *p->run));
    if (!p->begin) return TR_OK;
    TR_TRY(tr_checked_begin(w, group, "begin", H5T_NATIVE_UINT64, 1, &begins, 0, &e->begin_at));
    return tr_checked_append(w, p->begin, begins * sizeof *p->begin);
}

static hid_t create_group(hid_t file, const char *path)
{
    hid_t links = H5Pcreate(H5P_LINK_CREATE), how = tr_creation(H5P_GROUP_CREATE);
    H5Pset_create_intermediate_group(links, 1);
    /* a longer name may have come first, with this one for a group in its path */
    hid_t group =
        H5Lexists(file, path, H5P_DEFAULT) > 0 && H5Aexists_by_name(file, path, "kind", H5P_DEFAULT) == 0
            ? H5Gopen2(file, path, H5P_DEFAULT)
            : H5Gcreate2(file, path, links, how, H5P_DEFAULT);
    H5Pclose(links);
    H5Pclose(how);
    return group;
}

static int put_part(struct tr_checked_writer *w, const struct tr_part *p, struct entry *e)
{
    char path[TR_PART_PATH_BYTES];
    if (!is_name(p->name, sizeof p->name))
        return tr_fail(TR_ERR_INTERNAL,
                       "«%.*s» is no name for a part of a checkpoint: letters, digits, _ and /",
                       (int)sizeof p->name, p->name);
    tr_part_path(p, path, sizeof path);
    hid_t group = create_group(w->file, path);
    if (group < 0) return tr_layout_failed(path);
    e->part = *p;
    e->part.run = NULL;
    e->part.begin = NULL;
    e->part.data = NULL;
    int status = describe_part(group, p);
    if (status == TR_OK) status = put_arrays(w, group, p, e);
    H5Gclose(group);
    return status;
}

static int put_parts(struct tr_checked_writer *w, const struct tr_part *parts, struct directory *d)
{
    TR_TRY(tr_attributes_of_format(w->file, FORMAT, VERSION, TR_VERSION));
    TR_TRY(tr_attribute_count(w->file, "run", d->head.run));
    TR_TRY(tr_attribute_count(w->file, "number", d->head.number));
    TR_TRY(tr_attribute_count(w->file, "shard", d->head.shard));
    TR_TRY(tr_attribute_count(w->file, "shards", d->head.shards));
    for (size_t i = 0; i < d->parts; i++) TR_TRY(put_part(w, &parts[i], &d->part[i]));
    return TR_OK;
}

int tr_shard_write(const char *path, const struct tr_shard_head *head, const struct tr_part *parts, size_t n,
                   bool durable, struct tr_shard_seal *seal)
{
    struct tr_checked_writer w;
    char *memory;
    size_t directory_bytes = sizeof(struct directory) + n * sizeof(struct entry);
    uint64_t sums = 2 * n;
    for (size_t i = 0; i < n; i++) sums += tr_part_elements(&parts[i]) / TR_SHARD_PIECE + 1;
    TR_TRY(TR_NEW(&memory, directory_bytes));
    struct directory *d = (struct directory *)(void *)memory;
    d->head = *head;
    d->parts = n;
    int status =
        tr_checked_create(&w, path, FORMAT, VERSION, tr_checked_header_bytes(3 * n, sums, directory_bytes),
                          durable, "checkpoint.write", NULL);
    if (status == TR_OK) status = put_parts(&w, parts, d);
    if (status == TR_OK) status = tr_checked_seal(&w, d, directory_bytes);
    free(memory);
    *seal = (struct tr_shard_seal){w.bytes, w.digest};
    if (status == TR_OK) return tr_checked_finish(&w);
    tr_checked_abandon(&w);
    return status;
}

/* ---- opening ---- */

static int odd(const struct tr_shard *s, const struct tr_part *p, const char *what)
{
    return tr_fail(TR_ERR_DATA, "%s: damaged: odd %s of %s", s->file.path, what, p->name);
}

static int read_runs(struct tr_shard *s, const struct entry *e, struct tr_part *p)
{
    uint64_t end = 0;
    const struct tr_checked_array runs = {p->name, e->runs_at, p->runs, sizeof *p->run};
    TR_TRY(tr_checked_get(&s->file, &runs, &p->run));
    p->rows = 0;
    for (size_t i = 0; i < p->runs; i++) {
        struct tr_row_run run = p->run[i];
        if (run.first < end || run.first > p->total_rows || run.n > p->total_rows - run.first)
            return odd(s, p, "rows");
        end = run.first + run.n;
        p->rows += run.n;
    }
    return p->rows == e->part.rows ? TR_OK : odd(s, p, "rows");
}

static int read_begin(struct tr_shard *s, const struct entry *e, struct tr_part *p)
{
    const struct tr_checked_array begins = {p->name, e->begin_at, p->rows + 1, sizeof *p->begin};
    if (p->kind != TR_PART_LISTS) return TR_OK;
    if (p->rows == UINT64_MAX) return odd(s, p, "rows");
    TR_TRY(tr_checked_get(&s->file, &begins, &p->begin));
    if (p->begin[0] != 0) return odd(s, p, "lists");
    for (uint64_t i = 0; i < p->rows; i++)
        if (p->begin[i] > p->begin[i + 1]) return odd(s, p, "lists");
    return TR_OK;
}

static struct tr_checked_array values_of(const struct tr_shard *s, size_t part)
{
    const struct tr_part *p = &s->part[part];
    const struct directory *d = s->file.directory;
    return (struct tr_checked_array){p->name, d->part[part].values_at, tr_part_elements(p),
                                     tr_part_type_size(p->type)};
}

static int read_part(struct tr_shard *s, const struct entry *e, size_t i)
{
    struct tr_part *p = &s->part[i];
    uint64_t elements, bytes;
    if (!is_name(e->part.name, sizeof e->part.name))
        return tr_fail(TR_ERR_DATA, "%s: damaged: odd name", s->file.path);
    *p = e->part;
    p->run = NULL; /* what the file has there means nothing */
    p->begin = NULL;
    p->data = NULL;
    if ((unsigned)p->kind >= TR_PART_KINDS || (unsigned)p->type >= TR_PART_TYPES) return odd(s, p, "kind");
    TR_TRY(read_runs(s, e, p));
    TR_TRY(read_begin(s, e, p));
    if (__builtin_mul_overflow(p->rows, p->columns, &elements)) return odd(s, p, "size");
    if (__builtin_mul_overflow(tr_part_elements(p), tr_part_type_size(p->type), &bytes))
        return odd(s, p, "size");
    const struct tr_checked_array values = values_of(s, i);
    return tr_checked_read(&s->file, &values, 0, 0, NULL); /* whether they are there */
}

static int check_head(const struct tr_shard *s, const struct tr_shard_head *is,
                      const struct tr_shard_head *expected)
{
    const char *path = s->file.path;
    if (!expected) return TR_OK;
    if (is->run != expected->run)
        return tr_fail(TR_ERR_DATA, "%s: of run %016" PRIx64 ", expected %016" PRIx64, path, is->run,
                       expected->run);
    if (is->number != expected->number)
        return tr_fail(TR_ERR_DATA, "%s: of checkpoint %" PRIu64 ", expected %" PRIu64, path, is->number,
                       expected->number);
    if (is->shard != expected->shard || is->shards != expected->shards)
        return tr_fail(TR_ERR_DATA, "%s: shard %u of %u, expected shard %u of %u", path, is->shard,
                       is->shards, expected->shard, expected->shards);
    if (is->attempt != expected->attempt)
        return tr_fail(TR_ERR_DATA, "%s: another start of the run wrote it", path);
    return TR_OK;
}

static int check_seal(const struct tr_shard *s, const struct tr_shard_seal *seal)
{
    const struct tr_checked_header *h = s->file.header;
    if (!seal || (seal->bytes == h->bytes && seal->digest == h->digest)) return TR_OK;
    return tr_fail(TR_ERR_DATA,
                   "%s: not the file that the manifest was written for: %" PRIu64 " bytes, digest %016" PRIx64
                   ", expected %" PRIu64 " and %016" PRIx64,
                   s->file.path, h->bytes, h->digest, seal->bytes, seal->digest);
}

static int open_shard(struct tr_shard *s, const char *path, const struct tr_shard_head *head,
                      const struct tr_shard_seal *seal)
{
    TR_TRY(tr_checked_open(&s->file, path, FORMAT, VERSION));
    const struct directory *d = s->file.directory;
    uint64_t bytes = s->file.header->directory;
    if (bytes < sizeof *d || d->parts != (bytes - sizeof *d) / sizeof *d->part)
        return tr_fail(TR_ERR_DATA, "%s: damaged: odd directory", path);
    TR_TRY(check_head(s, &d->head, head));
    TR_TRY(check_seal(s, seal));
    TR_TRY(TR_NEW(&s->part, d->parts));
    s->parts = d->parts;
    for (size_t i = 0; i < s->parts; i++) TR_TRY(read_part(s, &d->part[i], i));
    return TR_OK;
}

int tr_shard_open(const char *path, const struct tr_shard_head *head, const struct tr_shard_seal *seal,
                  struct tr_shard **shard)
{
    TR_TRY(TR_NEW(shard, 1));
    int status = open_shard(*shard, path, head, seal);
    if (status != TR_OK) tr_shard_close(shard);
    return status;
}

void tr_shard_close(struct tr_shard **shard)
{
    struct tr_shard *s = *shard;
    if (!s) return;
    tr_checked_close(&s->file);
    for (size_t i = 0; i < s->parts; i++) tr_part_free(&s->part[i]);
    free(s->part);
    free(s);
    *shard = NULL;
}

ptrdiff_t tr_shard_find(const struct tr_shard *s, const char *name, uint64_t first_column)
{
    for (size_t i = 0; i < s->parts; i++)
        if (s->part[i].first_column == first_column && !strcmp(s->part[i].name, name)) return (ptrdiff_t)i;
    return -1;
}

int tr_shard_read(struct tr_shard *shard, size_t part, uint64_t first, uint64_t n, void *values)
{
    const struct tr_checked_array array = values_of(shard, part);
    return tr_checked_read(&shard->file, &array, first, n, values);
}

int tr_shard_verify(const char *path, const struct tr_shard_head *head, const struct tr_shard_seal *seal)
{
    struct tr_shard *s;
    TR_TRY(tr_shard_open(path, head, seal, &s));
    int status = tr_checked_verify(&s->file);
    tr_shard_close(&s);
    return status;
}
