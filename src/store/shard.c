#define _GNU_SOURCE
#include "store/shard.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/base.h"
#include "base/file.h"
#include "store/checked.h"

/* ================ shard ================ */

#define SHARD_FORMAT "trireme-shard"
enum { SHARD_VERSION = 2 };

static const char *const part_kind_name[TR_PART_KINDS] = {"rows", "lists", "common", "own"};
static const char *const part_type_name[TR_PART_TYPES] = {"f32", "f64", "i32", "i64", "u8"};

/* The directory: all that opening a shard needs. */
struct shard_entry {
    struct tr_part part;                   /* without what it points to */
    uint64_t runs_at, begin_at, values_at; /* bytes in the file */
};

struct shard_directory {
    struct tr_shard_head head;
    uint64_t parts;
    struct shard_entry part[];
};

static hid_t part_h5_type(enum tr_part_type type)
{
    switch (type) {
    case TR_PART_F32: return H5T_NATIVE_FLOAT;
    case TR_PART_F64: return H5T_NATIVE_DOUBLE;
    case TR_PART_I32: return H5T_NATIVE_INT32;
    case TR_PART_I64: return H5T_NATIVE_INT64;
    default: return H5T_NATIVE_UINT8;
    }
}

static void part_path(const struct tr_part *p, char *path, size_t size)
{
    if (p->first_column > 0) snprintf(path, size, "%s@%" PRIu64, p->name, p->first_column);
    else snprintf(path, size, "%s", p->name);
}

static int part_shape(const struct tr_part *p, uint64_t rows, uint64_t columns, uint64_t elements,
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

static bool part_is_name(const char *name, size_t size)
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

static int part_write_attributes(hid_t group, const struct tr_part *p)
{
    TR_TRY(tr_attribute_text(group, "kind", part_kind_name[p->kind]));
    TR_TRY(tr_attribute_text(group, "type", part_type_name[p->type]));
    TR_TRY(tr_attribute_count(group, "total_rows", p->total_rows));
    TR_TRY(tr_attribute_count(group, "total_columns", p->total_columns));
    TR_TRY(tr_attribute_count(group, "first_column", p->first_column));
    return tr_attribute_count(group, "columns", p->columns);
}

static int part_write_arrays(struct tr_checked_writer *w, hid_t group, const struct tr_part *p,
                             struct shard_entry *e)
{
    uint64_t elements = tr_part_elements(p), size = tr_part_type_size(p->type);
    uint64_t runs[2] = {p->runs, 2}, begins = p->rows + 1, values[2];
    int dimensions = part_shape(p, p->rows, p->columns, elements, values);
    TR_TRY(tr_checked_begin(w, group, "values", part_h5_type(p->type), dimensions, values,
                            TR_SHARD_PIECE * size, &e->values_at));
    TR_TRY(tr_checked_append(w, p->data, elements * size));
    TR_TRY(tr_checked_begin(w, group, "runs", H5T_NATIVE_UINT64, 2, runs, 0, &e->runs_at));
    TR_TRY(tr_checked_append(w, p->run, p->runs * sizeof *p->run));
    if (!p->begin) return TR_OK;
    TR_TRY(tr_checked_begin(w, group, "begin", H5T_NATIVE_UINT64, 1, &begins, 0, &e->begin_at));
    return tr_checked_append(w, p->begin, begins * sizeof *p->begin);
}

static hid_t part_create_group(hid_t file, const char *path)
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

static int part_write(struct tr_checked_writer *w, const struct tr_part *p, struct shard_entry *e)
{
    char path[TR_PART_PATH_BYTES];
    if (!part_is_name(p->name, sizeof p->name))
        return tr_fail(TR_ERR_INTERNAL,
                       "«%.*s» is no name for a part of a checkpoint: letters, digits, _ and /",
                       (int)sizeof p->name, p->name);
    part_path(p, path, sizeof path);
    hid_t group = part_create_group(w->file, path);
    if (group < 0) return tr_layout_failed(path);
    e->part = *p;
    e->part.run = NULL;
    e->part.begin = NULL;
    e->part.data = NULL;
    int status = part_write_attributes(group, p);
    if (status == TR_OK) status = part_write_arrays(w, group, p, e);
    H5Gclose(group);
    return status;
}

static int shard_write_parts(struct tr_checked_writer *w, const struct tr_part *parts,
                             struct shard_directory *d)
{
    TR_TRY(tr_attributes_of_format(w->file, SHARD_FORMAT, SHARD_VERSION, TR_VERSION));
    TR_TRY(tr_attribute_count(w->file, "run", d->head.run));
    TR_TRY(tr_attribute_count(w->file, "number", d->head.number));
    TR_TRY(tr_attribute_count(w->file, "shard", d->head.shard));
    TR_TRY(tr_attribute_count(w->file, "shards", d->head.shards));
    for (size_t i = 0; i < d->parts; i++) TR_TRY(part_write(w, &parts[i], &d->part[i]));
    return TR_OK;
}

int tr_shard_write(const char *path, const struct tr_shard_head *head, const struct tr_part *parts, size_t n,
                   bool durable, struct tr_shard_seal *seal)
{
    struct tr_checked_writer w;
    char *memory;
    size_t directory_bytes = sizeof(struct shard_directory) + n * sizeof(struct shard_entry);
    uint64_t sums = 2 * n;
    for (size_t i = 0; i < n; i++) sums += tr_part_elements(&parts[i]) / TR_SHARD_PIECE + 1;
    TR_TRY(TR_NEW(&memory, directory_bytes));
    struct shard_directory *d = (struct shard_directory *)(void *)memory;
    d->head = *head;
    d->parts = n;
    int status = tr_checked_create(
        &w, path, SHARD_FORMAT, SHARD_VERSION, tr_checked_header_bytes(3 * n, sums, directory_bytes),
        TR_TARGET_IN_PLACE | (durable ? TR_TARGET_DURABLE : 0), "checkpoint.write", NULL);
    if (status == TR_OK) status = shard_write_parts(&w, parts, d);
    if (status == TR_OK) status = tr_checked_seal(&w, d, directory_bytes);
    free(memory);
    *seal = (struct tr_shard_seal){w.bytes, w.digest};
    if (status == TR_OK) return tr_checked_finish(&w);
    tr_checked_abandon(&w);
    return status;
}

/* ---- opening ---- */

static int shard_damaged(const struct tr_shard *s, const struct tr_part *p, const char *what)
{
    return tr_fail(TR_ERR_DATA, "%s: damaged: odd %s of %s", s->file.path, what, p->name);
}

static int shard_read_runs(struct tr_shard *s, const struct shard_entry *e, struct tr_part *p)
{
    uint64_t end = 0;
    const struct tr_checked_array runs = {p->name, e->runs_at, p->runs, sizeof *p->run};
    TR_TRY(tr_checked_get(&s->file, &runs, &p->run));
    p->rows = 0;
    for (size_t i = 0; i < p->runs; i++) {
        struct tr_row_run run = p->run[i];
        if (run.first < end || run.first > p->total_rows || run.n > p->total_rows - run.first)
            return shard_damaged(s, p, "rows");
        end = run.first + run.n;
        p->rows += run.n;
    }
    return p->rows == e->part.rows ? TR_OK : shard_damaged(s, p, "rows");
}

static int shard_read_begin(struct tr_shard *s, const struct shard_entry *e, struct tr_part *p)
{
    const struct tr_checked_array begins = {p->name, e->begin_at, p->rows + 1, sizeof *p->begin};
    if (p->kind != TR_PART_LISTS) return TR_OK;
    if (p->rows == UINT64_MAX) return shard_damaged(s, p, "rows");
    TR_TRY(tr_checked_get(&s->file, &begins, &p->begin));
    if (p->begin[0] != 0) return shard_damaged(s, p, "lists");
    for (uint64_t i = 0; i < p->rows; i++)
        if (p->begin[i] > p->begin[i + 1]) return shard_damaged(s, p, "lists");
    return TR_OK;
}

static struct tr_checked_array shard_values(const struct tr_shard *s, size_t part)
{
    const struct tr_part *p = &s->part[part];
    const struct shard_directory *d = s->file.directory;
    return (struct tr_checked_array){p->name, d->part[part].values_at, tr_part_elements(p),
                                     tr_part_type_size(p->type)};
}

static int shard_read_part(struct tr_shard *s, const struct shard_entry *e, size_t i)
{
    struct tr_part *p = &s->part[i];
    uint64_t elements, bytes;
    if (!part_is_name(e->part.name, sizeof e->part.name))
        return tr_fail(TR_ERR_DATA, "%s: damaged: odd name", s->file.path);
    *p = e->part;
    p->run = NULL; /* what the file has there means nothing */
    p->begin = NULL;
    p->data = NULL;
    if ((unsigned)p->kind >= TR_PART_KINDS || (unsigned)p->type >= TR_PART_TYPES)
        return shard_damaged(s, p, "kind");
    TR_TRY(shard_read_runs(s, e, p));
    TR_TRY(shard_read_begin(s, e, p));
    if (__builtin_mul_overflow(p->rows, p->columns, &elements)) return shard_damaged(s, p, "size");
    if (__builtin_mul_overflow(tr_part_elements(p), tr_part_type_size(p->type), &bytes))
        return shard_damaged(s, p, "size");
    const struct tr_checked_array values = shard_values(s, i);
    return tr_checked_read(&s->file, &values, 0, 0, NULL); /* whether they are there */
}

static int shard_check_head(const struct tr_shard *s, const struct tr_shard_head *is,
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

static int shard_check_seal(const struct tr_shard *s, const struct tr_shard_seal *seal)
{
    const struct tr_checked_header *h = s->file.header;
    if (!seal || (seal->bytes == h->bytes && seal->digest == h->digest)) return TR_OK;
    return tr_fail(TR_ERR_DATA,
                   "%s: not the file that the manifest was written for: %" PRIu64 " bytes, digest %016" PRIx64
                   ", expected %" PRIu64 " and %016" PRIx64,
                   s->file.path, h->bytes, h->digest, seal->bytes, seal->digest);
}

static int shard_open(struct tr_shard *s, const char *path, const struct tr_shard_head *head,
                      const struct tr_shard_seal *seal)
{
    TR_TRY(tr_checked_open(&s->file, path, SHARD_FORMAT, SHARD_VERSION));
    const struct shard_directory *d = s->file.directory;
    uint64_t bytes = s->file.header->directory;
    if (bytes < sizeof *d || d->parts != (bytes - sizeof *d) / sizeof *d->part)
        return tr_fail(TR_ERR_DATA, "%s: damaged: odd directory", path);
    TR_TRY(shard_check_head(s, &d->head, head));
    TR_TRY(shard_check_seal(s, seal));
    TR_TRY(TR_NEW(&s->part, d->parts));
    s->parts = d->parts;
    for (size_t i = 0; i < s->parts; i++) TR_TRY(shard_read_part(s, &d->part[i], i));
    return TR_OK;
}

int tr_shard_open(const char *path, const struct tr_shard_head *head, const struct tr_shard_seal *seal,
                  struct tr_shard **shard)
{
    TR_TRY(TR_NEW(shard, 1));
    int status = shard_open(*shard, path, head, seal);
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
    const struct tr_checked_array array = shard_values(shard, part);
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

/* ================ manifest ================ */

#define MANIFEST_FORMAT "trireme-checkpoint"

/* The directory: all that reading a manifest needs. The job's text follows the seals, without a zero. */
struct manifest_directory {
    uint64_t run, number, attempt;
    struct tr_facts facts;
    uint64_t job_bytes, shards;
    struct tr_shard_seal seal[];
};

struct tr_shard_head tr_manifest_head(const struct tr_manifest *m, uint32_t shard)
{
    return (struct tr_shard_head){m->run, m->number, shard, m->shards, m->attempt};
}

int tr_manifest_pack(const struct tr_manifest *m, void *packed_pointer, size_t *bytes)
{
    size_t job = m->job ? strlen(m->job) : 0, seals = m->shards * sizeof *m->seal;
    char *memory;
    *bytes = sizeof(struct manifest_directory) + seals + job;
    TR_TRY(TR_NEW(&memory, *bytes));
    struct manifest_directory *d = (struct manifest_directory *)(void *)memory;
    *d = (struct manifest_directory){m->run, m->number, m->attempt, m->facts, job, m->shards};
    if (seals > 0) memcpy(d->seal, m->seal, seals);
    if (job > 0) memcpy((char *)d->seal + seals, m->job, job);
    *(void **)packed_pointer = memory;
    return TR_OK;
}

int tr_manifest_unpack(const void *packed, uint64_t bytes, const char *path, struct tr_manifest *m)
{
    const struct manifest_directory *d = packed;
    uint64_t rest = bytes - sizeof *d;
    if (bytes < sizeof *d || d->shards > UINT32_MAX || d->shards * sizeof *d->seal > rest ||
        d->job_bytes != rest - d->shards * sizeof *d->seal ||
        !memchr(d->facts.stage, 0, sizeof d->facts.stage))
        return tr_fail(TR_ERR_DATA, "%s: damaged: odd directory", path);
    *m = (struct tr_manifest){.run = d->run,
                              .number = d->number,
                              .attempt = d->attempt,
                              .facts = d->facts,
                              .shards = (uint32_t)d->shards};
    int status = TR_NEW(&m->job, d->job_bytes + 1);
    if (status == TR_OK) status = TR_NEW(&m->seal, d->shards);
    if (status != TR_OK) {
        tr_manifest_free(m);
        return status;
    }
    memcpy(m->seal, d->seal, d->shards * sizeof *d->seal);
    memcpy(m->job, d->seal + d->shards, d->job_bytes);
    return TR_OK;
}

/* ---- parts of all shards as whole tables: virtual datasets ---- */

/* A part, and where it is. */
struct manifest_part {
    struct tr_part part;
    uint32_t shard;
};

struct manifest_parts {
    size_t n, capacity;
    struct manifest_part *found;
};

/* The parts of a shard, with their runs taken over. */
static int manifest_list_parts(struct manifest_parts *all, const char *folder, const struct tr_manifest *m,
                               uint32_t number)
{
    char *path, name[TR_SHARD_NAME_BYTES];
    struct tr_shard *shard;
    struct tr_shard_head head = tr_manifest_head(m, number);
    tr_shard_name(number, name);
    TR_TRY(tr_format(&path, "%s/%s", folder, name));
    int status = tr_shard_open(path, &head, &m->seal[number], &shard);
    free(path);
    TR_TRY(status);
    status = TR_GROW(&all->found, &all->capacity, all->n + shard->parts);
    for (size_t i = 0; i < shard->parts && status == TR_OK; i++) {
        struct tr_part *p = &shard->part[i];
        if (p->kind != TR_PART_ROWS && p->kind != TR_PART_COMMON) continue;
        all->found[all->n++] = (struct manifest_part){*p, number};
        p->run = NULL;
    }
    tr_shard_close(&shard);
    return status;
}

static int manifest_by_name(const void *a, const void *b)
{
    const struct manifest_part *x = a, *y = b;
    int order = strcmp(x->part.name, y->part.name);
    if (order != 0) return order;
    return x->shard < y->shard ? -1 : x->shard > y->shard;
}

/* As many runs from this one on as are equally long and equally far apart: HDF5 takes them for one selection, and takes
 * time that grows with the square of the number of others. */
static size_t manifest_regular_runs(const struct tr_part *p, size_t i)
{
    const struct tr_row_run *run = p->run;
    if (i + 1 == p->runs || run[i + 1].n != run[i].n) return 1;
    size_t n = 2;
    while (i + n < p->runs && run[i + n].n == run[i].n &&
           run[i + n].first - run[i + n - 1].first == run[i + 1].first - run[i].first)
        n++;
    return n;
}

static size_t manifest_count_regular(const struct tr_part *p)
{
    size_t n = 0;
    for (size_t i = 0; i < p->runs; i += manifest_regular_runs(p, i)) n++;
    return n;
}

/* Maps n runs from this one on, whose rows follow `before` others in the shard. */
static bool manifest_map_runs(hid_t how, hid_t whole, const struct manifest_part *f, hid_t space, size_t i,
                              size_t n, uint64_t before)
{
    const struct tr_part *p = &f->part;
    const struct tr_row_run *run = &p->run[i];
    char part[TR_PART_PATH_BYTES], path[TR_PART_PATH_BYTES + 8], file[TR_SHARD_NAME_BYTES];
    tr_shard_name(f->shard, file);
    part_path(p, part, sizeof part);
    snprintf(path, sizeof path, "/%s/values", part);
    hsize_t first[2] = {run->first, p->first_column}, count[2] = {n, 1}, block[2] = {run->n, p->columns};
    hsize_t stride[2] = {n > 1 ? run[1].first - run->first : run->n, p->columns};
    hsize_t there[2] = {before, 0}, extent[2] = {n * run->n, p->columns};
    return H5Sselect_hyperslab(whole, H5S_SELECT_SET, first, stride, count, block) >= 0 &&
           H5Sselect_hyperslab(space, H5S_SELECT_SET, there, NULL, extent, NULL) >= 0 &&
           H5Pset_virtual(how, whole, file, path, space) >= 0;
}

static bool manifest_map_part(hid_t how, hid_t whole, const struct manifest_part *f)
{
    const struct tr_part *p = &f->part;
    uint64_t shape[2], before = 0;
    int dimensions = part_shape(p, p->rows, p->columns, p->rows * p->columns, shape);
    hsize_t extent[2] = {shape[0], shape[1]};
    hid_t space = H5Screate_simple(dimensions, extent, NULL);
    bool ok = space >= 0;
    for (size_t i = 0, n; i < p->runs && ok; i += n) {
        n = manifest_regular_runs(p, i);
        ok = p->columns == 0 || manifest_map_runs(how, whole, f, space, i, n, before);
        before += n * p->run[i].n;
    }
    if (space >= 0) H5Sclose(space);
    return ok;
}

static bool manifest_same_array(const struct tr_part *a, const struct tr_part *b)
{
    return a->kind == b->kind && a->type == b->type && a->total_rows == b->total_rows &&
           a->total_columns == b->total_columns;
}

/* n parts of one name. What HDF5 cannot show is left out. */
static void manifest_show_array(hid_t file, const struct manifest_part *f, size_t n)
{
    const struct tr_part *p = &f->part;
    uint64_t shape[2];
    int dimensions = part_shape(p, p->total_rows, p->total_columns, p->total_rows, shape);
    hsize_t extent[2] = {shape[0], shape[1]};
    hid_t whole = H5Screate_simple(dimensions, extent, NULL), links = H5Pcreate(H5P_LINK_CREATE);
    hid_t how = H5Pcreate(H5P_DATASET_CREATE), set = -1;
    H5Pset_create_intermediate_group(links, 1);
    H5Pset_obj_track_times(how, false);
    bool ok = whole >= 0;
    for (size_t i = 0; i < n && ok; i++)
        ok = manifest_same_array(p, &f[i].part) && manifest_map_part(how, whole, &f[i]);
    if (ok && H5Sselect_all(whole) >= 0)
        set = H5Dcreate2(file, p->name, part_h5_type(p->type), whole, links, how, H5P_DEFAULT);
    if (set >= 0) H5Dclose(set);
    if (whole >= 0) H5Sclose(whole);
    H5Pclose(how);
    H5Pclose(links);
}

static int manifest_show_arrays(hid_t file, const char *folder, const struct tr_manifest *m)
{
    struct manifest_parts all = {.n = 0};
    size_t shown = 0;
    int status = TR_OK;
    for (uint32_t i = 0; i < m->shards && status == TR_OK; i++)
        status = manifest_list_parts(&all, folder, m, i);
    if (status == TR_OK && all.n > 0) qsort(all.found, all.n, sizeof *all.found, manifest_by_name);
    for (size_t i = 0, n; status == TR_OK && i < all.n; i += n) {
        size_t maps = 0;
        for (n = 0; i + n < all.n && !strcmp(all.found[i].part.name, all.found[i + n].part.name); n++)
            maps += manifest_count_regular(&all.found[i + n].part);
        if (maps > TR_MANIFEST_RUNS - shown) continue;
        manifest_show_array(file, &all.found[i], n);
        shown += maps;
    }
    for (size_t i = 0; i < all.n; i++) tr_part_free(&all.found[i].part);
    free(all.found);
    return status;
}

/* ---- writing ---- */

static int manifest_write_attributes(hid_t file, const struct tr_manifest *m)
{
    const struct tr_facts *f = &m->facts;
    const struct {
        const char *name;
        int64_t value;
    } number[] = {{"stage_number", f->stage_number},
                  {"clock", f->clock},
                  {"evaluations", f->evaluations},
                  {"ended", f->ended},
                  {"ranks", f->ranks},
                  {"servers", f->servers},
                  {"groups", f->groups},
                  {"group_size", f->group_size}};
    char created[32];
    time_t now = time(NULL);
    struct tm utc;
    strftime(created, sizeof created, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
    TR_TRY(tr_attributes_of_format(file, MANIFEST_FORMAT, TR_MANIFEST_VERSION, TR_VERSION));
    TR_TRY(tr_attribute_count(file, "run", m->run));
    TR_TRY(tr_attribute_count(file, "number", m->number));
    TR_TRY(tr_attribute_text(file, "created", created));
    TR_TRY(tr_attribute_text(file, "stage", f->stage));
    for (size_t i = 0; i < sizeof number / sizeof *number; i++)
        TR_TRY(tr_attribute_int(file, number[i].name, number[i].value));
    TR_TRY(tr_attribute_real(file, "epoch", f->epoch));
    return tr_attribute_real(file, "seconds", f->seconds);
}

static int manifest_write_job(struct tr_checked_writer *w, const char *job)
{
    hid_t type = tr_text_type(strlen(job) + 1);
    int status = tr_checked_begin(w, w->file, "job", type, 0, NULL, 0, NULL);
    H5Tclose(type);
    return status == TR_OK ? tr_checked_append(w, job, strlen(job) + 1) : status;
}

static int manifest_write_file(struct tr_checked_writer *w, const char *path, const char *folder,
                               const struct tr_manifest *m, const void *packed, size_t bytes, bool durable)
{
    TR_TRY(tr_checked_create(w, path, MANIFEST_FORMAT, TR_MANIFEST_VERSION,
                             tr_checked_header_bytes(1, 1, bytes), durable ? TR_TARGET_DURABLE : 0,
                             "checkpoint.write", "checkpoint.manifest"));
    TR_TRY(manifest_write_attributes(w->file, m));
    TR_TRY(manifest_write_job(w, m->job ? m->job : ""));
    TR_TRY(manifest_show_arrays(w->file, folder, m));
    return tr_checked_seal(w, packed, bytes);
}

int tr_manifest_write(const char *folder, const struct tr_manifest *m, bool durable)
{
    struct tr_checked_writer w;
    size_t bytes;
    char *packed, *path;
    TR_TRY(tr_format(&path, "%s/manifest.h5", folder));
    int status = tr_manifest_pack(m, &packed, &bytes);
    if (status == TR_OK) {
        status = manifest_write_file(&w, path, folder, m, packed, bytes, durable);
        if (status == TR_OK) status = tr_checked_finish(&w);
        else tr_checked_abandon(&w);
        free(packed);
    }
    free(path);
    return status;
}

int tr_manifest_read(const char *folder, struct tr_manifest *manifest)
{
    char *path;
    struct tr_checked file;
    TR_TRY(tr_format(&path, "%s/manifest.h5", folder));
    int status = tr_checked_open(&file, path, MANIFEST_FORMAT, TR_MANIFEST_VERSION);
    if (status == TR_OK) status = tr_checked_verify(&file);
    if (status == TR_OK) status = tr_manifest_unpack(file.directory, file.header->directory, path, manifest);
    tr_checked_close(&file);
    free(path);
    return status;
}

void tr_manifest_free(struct tr_manifest *manifest)
{
    free(manifest->job);
    free(manifest->seal);
    *manifest = (struct tr_manifest){.seal = NULL};
}

/* ================ folder ================ */

int tr_checkpoints_place(const char *to, const char *output, char **folder)
{
    return *to ? tr_copy_string(to, folder) : tr_format(folder, "%s/checkpoints", output);
}

int tr_checkpoint_path(const char *to, uint64_t number, char **path)
{
    return tr_format(path, "%s/%08" PRIu64, to, number);
}

int tr_shard_path(const char *to, uint64_t number, uint32_t shard, char **path)
{
    char name[TR_SHARD_NAME_BYTES];
    tr_shard_name(shard, name);
    return tr_format(path, "%s/%08" PRIu64 "/%s", to, number, name);
}

static int folder_failed(int status, const char *path, const char *what)
{
    return tr_fail(status, "%s: cannot be %s: %s", path, what, strerror(errno));
}

/* ---- listing ---- */

static int folder_descending(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x > y ? -1 : x < y;
}

/* Whether it is a folder with a number for a name, written as we write it. */
static bool folder_is_checkpoint(DIR *in, const char *name, uint64_t *number)
{
    char text[32];
    struct stat status;
    *number = strtoull(name, NULL, 10);
    snprintf(text, sizeof text, "%08" PRIu64, *number);
    return !strcmp(text, name) && fstatat(dirfd(in), name, &status, AT_SYMLINK_NOFOLLOW) == 0 &&
           S_ISDIR(status.st_mode);
}

int tr_checkpoints_list(const char *to, uint64_t **numbers, size_t *n)
{
    uint64_t number;
    size_t capacity = 0;
    struct dirent *entry;
    *numbers = NULL;
    *n = 0;
    DIR *folder = opendir(to);
    if (!folder && access(to, F_OK) < 0 && (errno == ENOENT || errno == ENOTDIR)) return TR_OK;
    int status = folder ? TR_OK : folder_failed(TR_ERR_NO_INPUT, to, "read");
    while (status == TR_OK && (errno = 0, entry = readdir(folder))) {
        if (!folder_is_checkpoint(folder, entry->d_name, &number)) continue;
        status = TR_GROW(numbers, &capacity, *n + 1);
        if (status == TR_OK) (*numbers)[(*n)++] = number;
    }
    if (status == TR_OK && errno) status = folder_failed(TR_ERR_NO_INPUT, to, "read");
    if (folder) closedir(folder);
    if (*n > 0) qsort(*numbers, *n, sizeof **numbers, folder_descending);
    if (status == TR_OK) return TR_OK;
    free(*numbers);
    *numbers = NULL;
    *n = 0;
    return status;
}

int tr_checkpoint_make(const char *to, uint64_t number)
{
    char *path;
    TR_TRY(tr_make_folder(to, true));
    TR_TRY(tr_checkpoint_path(to, number, &path));
    int status =
        tr_create_folder(path) < 0 ? folder_failed(TR_ERR_NO_OUTPUT, path, "made") : tr_sync_folder(to);
    free(path);
    return status;
}

/* ---- removing ---- */

/* Removes a file of ours; one that is not there is fine. */
static int folder_remove_file(int folder, const char *path, const char *name, size_t *removed)
{
    if (unlinkat(folder, name, 0) == 0) {
        ++*removed;
        return TR_OK;
    }
    if (errno == ENOENT) return TR_OK;
    return tr_fail(TR_ERR_IO, "%s/%s: cannot be removed: %s", path, name, strerror(errno));
}

/* Without its manifest it is no checkpoint any more, whatever comes; and that first, on the disk too. What cannot be removed
 * does not keep the others from it; the first failure is told. */
static int folder_remove_files(DIR *folder, const char *path, size_t *removed)
{
    char name[TR_SHARD_NAME_BYTES];
    uint32_t shard;
    TR_TRY(folder_remove_file(dirfd(folder), path, "manifest.h5", removed));
    if (*removed > 0 && fsync(dirfd(folder)) < 0 && errno != EINVAL)
        return folder_failed(TR_ERR_IO, path, "brought to the disk");
    int first = folder_remove_file(dirfd(folder), path, "manifest.h5.part", removed);
    for (struct dirent *entry; (entry = readdir(folder));) {
        if (sscanf(entry->d_name, "shard-%10" SCNu32 ".h5", &shard) != 1) continue;
        tr_shard_name(shard, name);
        if (strcmp(name, entry->d_name) != 0) continue;
        if (first == TR_OK) first = folder_remove_file(dirfd(folder), path, name, removed);
        else *removed += unlinkat(dirfd(folder), name, 0) == 0;
    }
    return first;
}

/* What nothing was removed from, and what is not empty, was none of ours. */
static int folder_remove_checkpoint(const char *to, uint64_t number, bool tell)
{
    char *path;
    size_t removed = 0;
    int status = TR_OK;
    TR_TRY(tr_checkpoint_path(to, number, &path));
    DIR *folder = opendir(path);
    if (folder) {
        status = folder_remove_files(folder, path, &removed);
        closedir(folder);
    } else if (errno != ENOENT) {
        status = folder_failed(TR_ERR_IO, path, "removed");
    }
    if (status == TR_OK && rmdir(path) < 0 && errno != ENOENT) {
        bool foreign = errno == ENOTEMPTY || errno == EEXIST;
        if (!foreign) status = folder_failed(TR_ERR_IO, path, "removed");
        else if (tell || removed > 0)
            status = tr_fail(
                TR_ERR_IO, "%s: the folder stays: there are files in it that are none of a checkpoint", path);
    }
    free(path);
    return status;
}

int tr_checkpoint_remove(const char *to, uint64_t number)
{
    return folder_remove_checkpoint(to, number, true);
}

static bool folder_has_manifest(const char *to, uint64_t number)
{
    char *path;
    struct stat status;
    if (tr_format(&path, "%s/%08" PRIu64 "/manifest.h5", to, number) != TR_OK) return true;
    bool has = stat(path, &status) == 0 || errno != ENOENT;
    free(path);
    return has;
}

int tr_checkpoints_prune(const char *to, size_t keep)
{
    uint64_t *number;
    size_t n, whole = 0;
    int first = TR_OK;
    char why[1024] = "";
    TR_TRY(tr_checkpoints_list(to, &number, &n));
    for (size_t i = 0; i < n; i++) {
        bool is_whole = folder_has_manifest(to, number[i]);
        whole += is_whole;
        /* without a manifest, above all that have one, it may be in the making */
        if (is_whole ? whole <= keep : whole == 0) continue;
        int status = folder_remove_checkpoint(to, number[i], false);
        if (first == TR_OK && status != TR_OK) snprintf(why, sizeof why, "%s", tr_error_text());
        if (first == TR_OK) first = status;
    }
    free(number);
    return first == TR_OK ? TR_OK : tr_fail(first, "%s", why);
}

/* ---- files of one line ---- */

uint64_t tr_read_run(const char *to, const char *name)
{
    char *path;
    uint64_t run = 0;
    if (tr_format(&path, "%s/%s", to, name) != TR_OK) return 0;
    FILE *file = fopen(path, "re");
    if (file && fscanf(file, "%16" SCNx64, &run) != 1) run = 0;
    if (file) fclose(file);
    free(path);
    return run;
}

int tr_write_run(const char *to, const char *name, uint64_t run)
{
    char text[20];
    int length = snprintf(text, sizeof text, "%016" PRIx64 "\n", run);
    return tr_replace_file(to, name, text, (size_t)length, false);
}
