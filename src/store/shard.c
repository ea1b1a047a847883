#define _GNU_SOURCE
#include "store/shard.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "base/base.h"
#include "store/sealed.h"
#include "store/stored.h"

#define FORMAT "trireme-shard"
enum { VERSION = 1 };

static const char *const kind_name[] = {"rows", "lists", "common", "own"};
static const char *const type_name[] = {"f32", "f64", "i32", "i64", "u8"};
enum { KINDS = sizeof kind_name / sizeof *kind_name, TYPES = sizeof type_name / sizeof *type_name };

/* The directory: all that opening a shard needs. */
struct entry {
    char name[sizeof((struct tr_part *)NULL)->name];
    uint32_t kind, type;
    uint64_t total_rows, total_columns, first_column, columns, runs, rows, elements;
    uint64_t runs_at, begin_at, values_at, sums_at; /* bytes in the file */
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

static uint64_t pieces_of(const struct tr_part *p)
{
    return (tr_part_elements(p) + TR_SHARD_PIECE - 1) / TR_SHARD_PIECE;
}

/* ---- writing ---- */

static bool is_name(const char *name)
{
    const char *c = name;
    for (bool begins = true; *c; c++) {
        bool letter =
            (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') || (*c >= '0' && *c <= '9') || *c == '_';
        if (!letter && (*c != '/' || begins)) return false;
        begins = *c == '/';
    }
    return c > name && c[-1] != '/';
}

static int describe_part(hid_t group, const struct tr_part *p)
{
    TR_TRY(tr_image_text(group, "kind", kind_name[p->kind]));
    TR_TRY(tr_image_text(group, "type", type_name[p->type]));
    TR_TRY(tr_image_count(group, "total_rows", p->total_rows));
    TR_TRY(tr_image_count(group, "total_columns", p->total_columns));
    TR_TRY(tr_image_count(group, "first_column", p->first_column));
    return tr_image_count(group, "columns", p->columns);
}

static int lay_arrays(struct tr_image *image, hid_t group, const struct tr_part *p, uint64_t *sums,
                      struct entry *e)
{
    uint64_t runs[2] = {p->runs, 2}, begins = p->rows + 1, pieces = pieces_of(p), values[2];
    int dimensions = tr_part_shape(p, p->rows, p->columns, e->elements, values);
    TR_TRY(tr_image_array(image, group, "values", tr_part_h5_type(p->type), dimensions, values, p->data, sums,
                          TR_SHARD_PIECE * tr_part_type_size(p->type), &e->values_at));
    TR_TRY(tr_image_array(image, group, "runs", H5T_NATIVE_UINT64, 2, runs, p->run, NULL, 0, &e->runs_at));
    if (p->begin)
        TR_TRY(tr_image_array(image, group, "begin", H5T_NATIVE_UINT64, 1, &begins, p->begin, NULL, 0,
                              &e->begin_at));
    return tr_image_array(image, group, "sums", H5T_NATIVE_UINT64, 1, &pieces, sums, NULL, 0, &e->sums_at);
}

static void enter(const struct tr_part *p, struct entry *e)
{
    *e = (struct entry){.kind = p->kind,
                        .type = p->type,
                        .total_rows = p->total_rows,
                        .total_columns = p->total_columns,
                        .first_column = p->first_column,
                        .columns = p->columns,
                        .runs = p->runs,
                        .rows = p->rows,
                        .elements = tr_part_elements(p)};
    memcpy(e->name, p->name, sizeof e->name);
}

static hid_t create_group(hid_t file, const char *path)
{
    hid_t links = H5Pcreate(H5P_LINK_CREATE), how = tr_image_how(H5P_GROUP_CREATE);
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

static int lay_part(struct tr_image *image, const struct tr_part *p, uint64_t *sums, struct entry *e)
{
    char path[TR_PART_PATH_BYTES];
    if (!memchr(p->name, 0, sizeof p->name) || !is_name(p->name))
        return tr_fail(TR_ERR_INTERNAL,
                       "«%.*s» is no name for a part of a checkpoint: letters, digits, _ and /",
                       (int)sizeof p->name, p->name);
    tr_part_path(p, path, sizeof path);
    hid_t group = create_group(image->file, path);
    if (group < 0) return tr_image_failed(path);
    enter(p, e);
    int status = describe_part(group, p);
    if (status == TR_OK) status = lay_arrays(image, group, p, sums, e);
    H5Gclose(group);
    return status;
}

static int describe_shard(hid_t file, const struct tr_shard_head *head)
{
    TR_TRY(tr_image_count(file, "run", head->run));
    TR_TRY(tr_image_count(file, "number", head->number));
    TR_TRY(tr_image_count(file, "shard", head->shard));
    return tr_image_count(file, "shards", head->shards);
}

static uint64_t bytes_of(const struct tr_part *parts, size_t n, uint64_t *pieces)
{
    uint64_t bytes = 0;
    *pieces = 0;
    for (size_t i = 0; i < n; i++) {
        const struct tr_part *p = &parts[i];
        *pieces += pieces_of(p);
        bytes += tr_part_elements(p) * tr_part_type_size(p->type) + p->runs * sizeof *p->run;
        if (p->begin) bytes += (p->rows + 1) * sizeof *p->begin;
    }
    return bytes + *pieces * 8;
}

static int write_image(struct tr_image *image, const struct tr_part *parts, uint64_t *sums,
                       struct directory *d, bool durable, struct tr_shard_seal *seal)
{
    TR_TRY(describe_shard(image->file, &d->head));
    for (size_t i = 0; i < d->parts; i++) {
        TR_TRY(lay_part(image, &parts[i], sums, &d->part[i]));
        sums += pieces_of(&parts[i]);
    }
    return tr_image_write(image, d, durable, &seal->bytes, &seal->digest);
}

static size_t directory_bytes(size_t parts)
{
    return sizeof(struct directory) + parts * sizeof(struct entry);
}

int tr_shard_write(const char *path, const struct tr_shard_head *head, const struct tr_part *parts, size_t n,
                   bool durable, struct tr_shard_seal *seal)
{
    struct tr_image image;
    uint64_t pieces, bytes = bytes_of(parts, n, &pieces), *sums = NULL;
    struct directory *d = calloc(1, directory_bytes(n));
    int status = d ? TR_NEW(&sums, pieces) : tr_fail(TR_ERR_SYSTEM, "no memory to write %s", path);
    if (status == TR_OK) {
        d->head = *head;
        d->parts = n;
        status = tr_image_create(&image, path, FORMAT, VERSION, 4 * n, bytes, directory_bytes(n));
        if (status == TR_OK) status = write_image(&image, parts, sums, d, durable, seal);
        tr_image_close(&image);
    }
    free(sums);
    free(d);
    return status;
}

/* ---- opening ---- */

/* Where the values of a part are in the file, and their sums. */
struct place {
    uint64_t first, *sums;
};

struct tr_shard {
    char *path;
    struct tr_sealed file;
    size_t parts;
    struct tr_part *part;
    struct place *place;
    char *piece; /* the one of which only some was wanted last; NULL: none so far */
    size_t piece_part;
    uint64_t piece_number;
};

static int odd(const struct tr_shard *s, const struct entry *e, const char *what)
{
    return tr_fail(TR_ERR_DATA, "%s: damaged: odd %s of %s", s->path, what, e->name);
}

/* n numbers of eight bytes, or pairs, to be freed. */
static int read_numbers(const struct tr_shard *s, const struct entry *e, uint64_t at, uint64_t n, size_t size,
                        void *numbers)
{
    if (at > s->file.bytes || n > (s->file.bytes - at) / size) return odd(s, e, "place");
    char *memory;
    TR_TRY(TR_NEW(&memory, n * size));
    *(void **)numbers = memory;
    return tr_sealed_read(&s->file, memory, at, n * size);
}

static int read_runs(const struct tr_shard *s, const struct entry *e, struct tr_part *p)
{
    uint64_t end = 0;
    TR_TRY(read_numbers(s, e, e->runs_at, e->runs, sizeof *p->run, &p->run));
    p->runs = (size_t)e->runs;
    for (size_t i = 0; i < p->runs; i++) {
        struct tr_row_run run = p->run[i];
        if (run.first < end || run.first > p->total_rows || run.n > p->total_rows - run.first)
            return odd(s, e, "rows");
        end = run.first + run.n;
        p->rows += run.n;
    }
    return p->rows == e->rows ? TR_OK : odd(s, e, "rows");
}

static int read_begin(const struct tr_shard *s, const struct entry *e, struct tr_part *p)
{
    if (p->kind != TR_PART_LISTS) return TR_OK;
    if (p->rows == UINT64_MAX) return odd(s, e, "rows");
    TR_TRY(read_numbers(s, e, e->begin_at, p->rows + 1, sizeof *p->begin, &p->begin));
    if (p->begin[0] != 0) return odd(s, e, "lists");
    for (uint64_t i = 0; i < p->rows; i++)
        if (p->begin[i] > p->begin[i + 1]) return odd(s, e, "lists");
    return TR_OK;
}

/* Values have sums, so they lie in the areas that the digest leaves out. */
static int read_sums(const struct tr_shard *s, const struct entry *e, const struct tr_part *p,
                     struct place *place)
{
    uint64_t elements, bytes, size = tr_part_type_size(p->type);
    if (__builtin_mul_overflow(p->rows, p->columns, &elements)) return odd(s, e, "size");
    if (p->begin) elements = p->begin[p->rows];
    if (elements != e->elements || __builtin_mul_overflow(elements, size, &bytes)) return odd(s, e, "size");
    place->first = e->values_at;
    for (size_t i = 0; bytes > 0; i++) {
        if (i == s->file.areas) return odd(s, e, "place");
        if (s->file.area[i][0] == e->values_at && s->file.area[i][1] == bytes) break;
    }
    return read_numbers(s, e, e->sums_at, pieces_of(p), sizeof *place->sums, &place->sums);
}

static int read_part(const struct tr_shard *s, const struct entry *e, struct tr_part *p, struct place *place)
{
    if (!memchr(e->name, 0, sizeof e->name) || !is_name(e->name))
        return tr_fail(TR_ERR_DATA, "%s: damaged: odd name", s->path);
    if (e->kind >= KINDS || e->type >= TYPES) return odd(s, e, "kind");
    *p = (struct tr_part){.kind = (enum tr_part_kind)e->kind,
                          .type = (enum tr_part_type)e->type,
                          .total_rows = e->total_rows,
                          .total_columns = e->total_columns,
                          .first_column = e->first_column,
                          .columns = e->columns};
    memcpy(p->name, e->name, sizeof p->name);
    TR_TRY(read_runs(s, e, p));
    TR_TRY(read_begin(s, e, p));
    return read_sums(s, e, p, place);
}

static int check_head(const struct tr_shard *s, const struct tr_shard_head *is,
                      const struct tr_shard_head *expected)
{
    if (!expected) return TR_OK;
    if (is->run != expected->run)
        return tr_fail(TR_ERR_DATA, "%s: of run %016" PRIx64 ", expected %016" PRIx64, s->path, is->run,
                       expected->run);
    if (is->number != expected->number)
        return tr_fail(TR_ERR_DATA, "%s: of checkpoint %" PRIu64 ", expected %" PRIu64, s->path, is->number,
                       expected->number);
    if (is->shard != expected->shard || is->shards != expected->shards)
        return tr_fail(TR_ERR_DATA, "%s: shard %u of %u, expected shard %u of %u", s->path, is->shard,
                       is->shards, expected->shard, expected->shards);
    return TR_OK;
}

static int check_seal(const struct tr_shard *s, const struct tr_shard_seal *seal)
{
    if (!seal || (seal->bytes == s->file.bytes && seal->digest == s->file.digest)) return TR_OK;
    return tr_fail(TR_ERR_DATA,
                   "%s: not the file that the manifest was written for: %" PRIu64 " bytes, digest %016" PRIx64
                   ", expected %" PRIu64 " and %016" PRIx64,
                   s->path, s->file.bytes, s->file.digest, seal->bytes, seal->digest);
}

static int list_parts(struct tr_shard *s, const struct directory *d)
{
    TR_TRY(TR_NEW(&s->part, d->parts));
    TR_TRY(TR_NEW(&s->place, d->parts));
    s->parts = d->parts;
    for (size_t i = 0; i < s->parts; i++) TR_TRY(read_part(s, &d->part[i], &s->part[i], &s->place[i]));
    return TR_OK;
}

static int open_shard(struct tr_shard *s, const char *path, const struct tr_shard_head *head,
                      const struct tr_shard_seal *seal)
{
    TR_TRY(tr_copy_string(path, &s->path));
    TR_TRY(tr_sealed_open(&s->file, s->path, FORMAT, VERSION));
    const struct directory *d = s->file.directory;
    uint64_t bytes = s->file.directory_bytes;
    if (bytes < sizeof *d || (uintptr_t)d % sizeof(uint64_t) != 0 ||
        d->parts != (bytes - sizeof *d) / sizeof *d->part)
        return tr_fail(TR_ERR_DATA, "%s: damaged: odd directory", s->path);
    TR_TRY(check_head(s, &d->head, head));
    TR_TRY(check_seal(s, seal));
    return list_parts(s, d);
}

int tr_shard_open(const char *path, const struct tr_shard_head *head, const struct tr_shard_seal *seal,
                  struct tr_shard **shard)
{
    struct tr_shard *s;
    TR_TRY(TR_NEW(&s, 1));
    s->file.fd = -1;
    s->file.file = -1;
    int status = open_shard(s, path, head, seal);
    if (status == TR_OK) *shard = s;
    else tr_shard_close(&s);
    return status;
}

void tr_shard_close(struct tr_shard **shard)
{
    struct tr_shard *s = *shard;
    if (!s) return;
    tr_sealed_close(&s->file);
    for (size_t i = 0; i < s->parts; i++) {
        tr_part_free(&s->part[i]);
        free(s->place[i].sums);
    }
    free(s->part);
    free(s->place);
    free(s->piece);
    free(s->path);
    free(s);
    *shard = NULL;
}

size_t tr_shard_parts(const struct tr_shard *shard, const struct tr_part **parts)
{
    *parts = shard->part;
    return shard->parts;
}

/* ---- reading ---- */

static int read_piece(struct tr_shard *s, size_t part, uint64_t number, void *values)
{
    const struct tr_part *p = &s->part[part];
    const struct place *place = &s->place[part];
    uint64_t first = number * TR_SHARD_PIECE, rest = tr_part_elements(p) - first,
             size = tr_part_type_size(p->type);
    uint64_t n = rest < TR_SHARD_PIECE ? rest : TR_SHARD_PIECE;
    TR_TRY(tr_sealed_read(&s->file, values, place->first + first * size, n * size));
    if (XXH3_64bits(values, n * size) == place->sums[number]) return TR_OK;
    return tr_fail(TR_ERR_DATA,
                   "%s: damaged: elements %" PRIu64 " to %" PRIu64 " of %s are not what was written", s->path,
                   first, first + n - 1, p->name);
}

/* A piece of which only some is wanted, and perhaps more the next time. */
static int hold_piece(struct tr_shard *s, size_t part, uint64_t number)
{
    if (s->piece && s->piece_part == part && s->piece_number == number) return TR_OK;
    if (!s->piece) TR_TRY(TR_NEW(&s->piece, TR_SHARD_PIECE * sizeof(double)));
    s->piece_part = s->parts; /* none, should this fail */
    TR_TRY(read_piece(s, part, number, s->piece));
    s->piece_part = part;
    s->piece_number = number;
    return TR_OK;
}

int tr_shard_read(struct tr_shard *shard, size_t part, uint64_t first, uint64_t n, void *values)
{
    const struct tr_part *p = part < shard->parts ? &shard->part[part] : NULL;
    uint64_t elements = p ? tr_part_elements(p) : 0, size = p ? tr_part_type_size(p->type) : 0;
    if (!p || first > elements || n > elements - first)
        return tr_fail(TR_ERR_INTERNAL, "%s: so many elements are not in part %zu", shard->path, part);
    for (char *to = values; n > 0;) {
        uint64_t number = first / TR_SHARD_PIECE, skip = first % TR_SHARD_PIECE, here = TR_SHARD_PIECE - skip;
        if (here > n) here = n;
        bool whole = skip == 0 && (here == TR_SHARD_PIECE || first + here == elements);
        TR_TRY(whole ? read_piece(shard, part, number, to) : hold_piece(shard, part, number));
        if (!whole) memcpy(to, shard->piece + skip * size, here * size);
        to += here * size;
        first += here;
        n -= here;
    }
    return TR_OK;
}

static int verify_part(struct tr_shard *s, size_t part, char *buffer)
{
    for (uint64_t i = 0; i < pieces_of(&s->part[part]); i++) TR_TRY(read_piece(s, part, i, buffer));
    return TR_OK;
}

int tr_shard_verify(const char *path, const struct tr_shard_head *head, const struct tr_shard_seal *seal)
{
    struct tr_shard *s;
    char *buffer;
    TR_TRY(TR_NEW(&buffer, TR_SHARD_PIECE * sizeof(double)));
    int status = tr_shard_open(path, head, seal, &s);
    if (status == TR_OK) {
        for (size_t i = 0; i < s->parts && status == TR_OK; i++) status = verify_part(s, i, buffer);
        tr_shard_close(&s);
    }
    free(buffer);
    return status;
}
