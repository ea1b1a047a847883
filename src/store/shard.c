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

/* The directory of a shard lists its parts, so that opening it does not need HDF5. */
struct shard_entry {
    struct tr_part part;                   /* description of the part; its pointers are NULL */
    uint64_t runs_at, begin_at, values_at; /* offsets of the arrays in the file */
};

struct shard_directory {
    struct tr_shard_head head;
    uint64_t parts;
    struct shard_entry part[];
};

static hid_t part_h5_type(enum tr_part_type type)
{
    const hid_t types[TR_PART_TYPES] = {H5T_NATIVE_FLOAT, H5T_NATIVE_DOUBLE, H5T_NATIVE_INT32,
                                        H5T_NATIVE_INT64, H5T_NATIVE_UINT8};
    return types[type];
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

static int part_write(struct tr_checked_writer *w, const struct tr_part *p, struct shard_entry *e)
{
    char path[TR_PART_PATH_BYTES];
    if (!part_is_name(p->name, sizeof p->name))
        return tr_fail(TR_ERR_INTERNAL,
                       "«%.*s» is no name for a part of a checkpoint: letters, digits, _ and /",
                       (int)sizeof p->name, p->name);
    part_path(p, path, sizeof path);
    TR_HID links = H5Pcreate(H5P_LINK_CREATE), how = tr_creation(H5P_GROUP_CREATE);
    H5Pset_create_intermediate_group(links, 1);
    /* the group of this part exists already if an earlier part lies within it: "a/b" was written before "a" */
    TR_HID group = H5Lexists(w->file, path, H5P_DEFAULT) > 0 &&
                           H5Aexists_by_name(w->file, path, "kind", H5P_DEFAULT) == 0
                       ? H5Gopen2(w->file, path, H5P_DEFAULT)
                       : H5Gcreate2(w->file, path, links, how, H5P_DEFAULT);
    if (group < 0) return tr_layout_failed(path);
    TR_TRY(tr_attribute_text(group, "kind", part_kind_name[p->kind]));
    TR_TRY(tr_attribute_text(group, "type", part_type_name[p->type]));
    TR_TRY(tr_attribute_count(group, "total_rows", p->total_rows));
    TR_TRY(tr_attribute_count(group, "total_columns", p->total_columns));
    TR_TRY(tr_attribute_count(group, "first_column", p->first_column));
    TR_TRY(tr_attribute_count(group, "columns", p->columns));
    e->part = tr_part_without_arrays(p);
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

int tr_shard_write(const char *path, const struct tr_shard_head *head, const struct tr_part *parts, size_t n,
                   bool durable, struct tr_shard_seal *seal)
{
    TR_FREED struct shard_directory *d = NULL;
    size_t directory_bytes = sizeof *d + n * sizeof d->part[0];
    uint64_t sums = 2 * n;
    for (size_t i = 0; i < n; i++) sums += tr_part_elements(&parts[i]) / TR_SHARD_PIECE + 1;
    TR_TRY(tr_new((void **)&d, 1, directory_bytes, "a directory"));
    d->head = *head;
    d->parts = n;
    struct tr_checked_writer w TR_CLOSED_BY(tr_checked_abandon);
    TR_TRY(tr_checked_create(
        &w, path, SHARD_FORMAT, SHARD_VERSION, tr_checked_header_bytes(3 * n, sums, directory_bytes),
        TR_TARGET_IN_PLACE | (durable ? TR_TARGET_DURABLE : 0), "checkpoint.write", NULL));
    TR_TRY(tr_attributes_of_format(w.file, SHARD_FORMAT, SHARD_VERSION, TR_VERSION));
    TR_TRY(tr_attribute_count(w.file, "run", head->run));
    TR_TRY(tr_attribute_count(w.file, "number", head->number));
    TR_TRY(tr_attribute_count(w.file, "shard", head->shard));
    TR_TRY(tr_attribute_count(w.file, "shards", head->shards));
    for (size_t i = 0; i < n; i++) TR_TRY(part_write(&w, &parts[i], &d->part[i]));
    TR_TRY(tr_checked_seal(&w, d, directory_bytes));
    *seal = (struct tr_shard_seal){w.bytes, w.digest};
    return tr_checked_finish(&w);
}

/* ---- opening ---- */

static int shard_damaged(const struct tr_shard *s, const struct tr_part *p, const char *what)
{
    return tr_fail(TR_ERR_DATA, "%s: damaged: odd %s of %s", s->file.path, what, p->name);
}

static struct tr_checked_array shard_values(const struct tr_shard *s, size_t part)
{
    const struct tr_part *p = &s->part[part];
    const struct shard_directory *d = s->file.directory;
    return (struct tr_checked_array){p->name, d->part[part].values_at, tr_part_elements(p),
                                     tr_part_type_size(p->type)};
}

/* Reads the description of a part, and checks it, because a wrong file must not crash the reader. */
static int shard_read_part(struct tr_shard *s, const struct shard_entry *e, size_t i)
{
    struct tr_part *p = &s->part[i];
    uint64_t elements, bytes, end = 0;
    if (!part_is_name(e->part.name, sizeof e->part.name))
        return tr_fail(TR_ERR_DATA, "%s: damaged: odd name", s->file.path);
    *p = tr_part_without_arrays(&e->part); /* the file contains pointers of the process that wrote it */
    p->rows = 0;
    if ((unsigned)p->kind >= TR_PART_KINDS || (unsigned)p->type >= TR_PART_TYPES)
        return shard_damaged(s, p, "kind");
    const struct tr_checked_array runs = {p->name, e->runs_at, p->runs, sizeof *p->run};
    TR_TRY(tr_checked_get(&s->file, &runs, &p->run));
    for (size_t r = 0; r < p->runs; r++) {
        struct tr_row_run run = p->run[r];
        if (run.first < end || run.first > p->total_rows || run.n > p->total_rows - run.first)
            return shard_damaged(s, p, "rows");
        end = run.first + run.n;
        p->rows += run.n;
    }
    bool lists = p->kind == TR_PART_LISTS;
    if (p->rows != e->part.rows || (lists && p->rows == UINT64_MAX)) return shard_damaged(s, p, "rows");
    const struct tr_checked_array begins = {p->name, e->begin_at, p->rows + 1, sizeof *p->begin};
    if (lists) TR_TRY(tr_checked_get(&s->file, &begins, &p->begin));
    if (lists && p->begin[0] != 0) return shard_damaged(s, p, "lists");
    for (uint64_t r = 0; lists && r < p->rows; r++)
        if (p->begin[r] > p->begin[r + 1]) return shard_damaged(s, p, "lists");
    if (__builtin_mul_overflow(p->rows, p->columns, &elements) ||
        __builtin_mul_overflow(tr_part_elements(p), tr_part_type_size(p->type), &bytes))
        return shard_damaged(s, p, "size");
    const struct tr_checked_array values = shard_values(s, i);
    return tr_checked_read(&s->file, &values, 0, 0, NULL); /* checks that the array exists */
}

int tr_shard_open(const char *path, const struct tr_shard_head *head, const struct tr_shard_seal *seal,
                  struct tr_shard **shard)
{
    struct tr_shard *s TR_CLOSED_BY(tr_shard_close) = NULL;
    *shard = NULL;
    TR_TRY(TR_NEW(&s, 1));
    TR_TRY(tr_checked_open(&s->file, path, SHARD_FORMAT, SHARD_VERSION));
    const struct shard_directory *d = s->file.directory;
    const struct tr_checked_header *h = s->file.header;
    const struct tr_shard_head *is = &d->head;
    if (h->directory < sizeof *d || d->parts != (h->directory - sizeof *d) / sizeof *d->part)
        return tr_fail(TR_ERR_DATA, "%s: damaged: odd directory", path);
    if (head && is->run != head->run)
        return tr_fail(TR_ERR_DATA, "%s: of run %016" PRIx64 ", expected %016" PRIx64, path, is->run,
                       head->run);
    if (head && is->number != head->number)
        return tr_fail(TR_ERR_DATA, "%s: of checkpoint %" PRIu64 ", expected %" PRIu64, path, is->number,
                       head->number);
    if (head && (is->shard != head->shard || is->shards != head->shards))
        return tr_fail(TR_ERR_DATA, "%s: shard %u of %u, expected shard %u of %u", path, is->shard,
                       is->shards, head->shard, head->shards);
    if (head && is->attempt != head->attempt)
        return tr_fail(TR_ERR_DATA, "%s: another start of the run wrote it", path);
    if (seal && (seal->bytes != h->bytes || seal->digest != h->digest))
        return tr_fail(TR_ERR_DATA,
                       "%s: not the file that the manifest was written for: %" PRIu64
                       " bytes, digest %016" PRIx64 ", expected %" PRIu64 " and %016" PRIx64,
                       path, h->bytes, h->digest, seal->bytes, seal->digest);
    TR_TRY(TR_NEW(&s->part, d->parts));
    s->parts = d->parts;
    for (size_t i = 0; i < s->parts; i++) TR_TRY(shard_read_part(s, &d->part[i], i));
    *shard = s;
    s = NULL;
    return TR_OK;
}

void tr_shard_close(struct tr_shard **shard)
{
    struct tr_shard *s = *shard;
    if (!s) return;
    tr_checked_close(&s->file);
    for (size_t i = 0; i < s->parts; i++) tr_part_free(&s->part[i]);
    TR_FREE_ALL(s->part, s);
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
    struct tr_shard *s TR_CLOSED_BY(tr_shard_close) = NULL;
    TR_TRY(tr_shard_open(path, head, seal, &s));
    return tr_checked_verify(&s->file);
}

/* ================ manifest ================ */

#define MANIFEST_FORMAT "trireme-checkpoint"

/* The directory of a manifest, so that reading it does not need HDF5. The text of the job follows the seals, without a NUL. */
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
    struct manifest_directory *d;
    *bytes = sizeof *d + seals + job;
    TR_TRY(tr_new((void **)&d, 1, *bytes, "a manifest"));
    *d = (struct manifest_directory){m->run, m->number, m->attempt, m->facts, job, m->shards};
    if (seals > 0) memcpy(d->seal, m->seal, seals);
    if (job > 0) memcpy((char *)d->seal + seals, m->job, job);
    *(void **)packed_pointer = d;
    return TR_OK;
}

int tr_manifest_unpack(const void *packed, uint64_t bytes, const char *path, struct tr_manifest *m)
{
    const struct manifest_directory *d = packed;
    uint64_t rest = bytes - sizeof *d;
    TR_FREED char *job = NULL;
    if (bytes < sizeof *d || d->shards > UINT32_MAX || d->shards * sizeof *d->seal > rest ||
        d->job_bytes != rest - d->shards * sizeof *d->seal ||
        !memchr(d->facts.stage, 0, sizeof d->facts.stage))
        return tr_fail(TR_ERR_DATA, "%s: damaged: odd directory", path);
    *m = (struct tr_manifest){.run = d->run,
                              .number = d->number,
                              .attempt = d->attempt,
                              .facts = d->facts,
                              .shards = (uint32_t)d->shards};
    TR_TRY(TR_NEW(&job, d->job_bytes + 1));
    TR_TRY(TR_NEW(&m->seal, d->shards));
    memcpy(m->seal, d->seal, d->shards * sizeof *d->seal);
    memcpy(job, d->seal + d->shards, d->job_bytes);
    m->job = job;
    job = NULL;
    return TR_OK;
}

/* ---- virtual datasets: the parts of all shards, shown as whole arrays ---- */

/* A part and the number of its shard. */
struct manifest_part {
    struct tr_part part;
    uint32_t shard;
};

struct manifest_parts {
    size_t n, capacity;
    struct manifest_part *found;
};

static void manifest_parts_free(struct manifest_parts *all)
{
    for (size_t i = 0; i < all->n; i++) tr_part_free(&all->found[i].part);
    free(all->found);
}

/* Adds the parts of a shard to the list, which becomes the owner of their runs. */
static int manifest_list_parts(struct manifest_parts *all, const char *folder, const struct tr_manifest *m,
                               uint32_t number)
{
    TR_FREED char *path = NULL;
    char name[TR_SHARD_NAME_BYTES];
    struct tr_shard *shard TR_CLOSED_BY(tr_shard_close) = NULL;
    struct tr_shard_head head = tr_manifest_head(m, number);
    tr_shard_name(number, name);
    TR_TRY(tr_format(&path, "%s/%s", folder, name));
    TR_TRY(tr_shard_open(path, &head, &m->seal[number], &shard));
    TR_TRY(TR_GROW(&all->found, &all->capacity, all->n + shard->parts));
    for (size_t i = 0; i < shard->parts; i++) {
        struct tr_part *p = &shard->part[i];
        if (p->kind != TR_PART_ROWS && p->kind != TR_PART_COMMON) continue;
        all->found[all->n++] = (struct manifest_part){*p, number};
        p->run = NULL;
    }
    return TR_OK;
}

static int manifest_by_name(const void *a, const void *b)
{
    const struct manifest_part *x = a, *y = b;
    int order = strcmp(x->part.name, y->part.name);
    if (order != 0) return order;
    return x->shard < y->shard ? -1 : x->shard > y->shard;
}

/* Returns the number of runs from run i on that have equal lengths and distances: they are one selection of HDF5, whose time grows
 * with the square of the number of selections. */
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

/* Maps the rows of a part to rows of the virtual dataset `whole`, one selection after the other. */
static bool manifest_map_part(hid_t how, hid_t whole, const struct manifest_part *f)
{
    const struct tr_part *p = &f->part;
    uint64_t shape[2], before = 0;
    char part[TR_PART_PATH_BYTES], path[TR_PART_PATH_BYTES + 8], file[TR_SHARD_NAME_BYTES];
    tr_shard_name(f->shard, file);
    part_path(p, part, sizeof part);
    snprintf(path, sizeof path, "/%s/values", part);
    int dimensions = part_shape(p, p->rows, p->columns, p->rows * p->columns, shape);
    hsize_t all[2] = {shape[0], shape[1]};
    TR_HID space = H5Screate_simple(dimensions, all, NULL);
    if (space < 0) return false;
    for (size_t i = 0, n; i < p->runs && p->columns > 0; i += n) {
        n = manifest_regular_runs(p, i);
        const struct tr_row_run *run = &p->run[i];
        hsize_t first[2] = {run->first, p->first_column}, count[2] = {n, 1}, block[2] = {run->n, p->columns};
        hsize_t stride[2] = {n > 1 ? run[1].first - run->first : run->n, p->columns};
        hsize_t there[2] = {before, 0}, extent[2] = {n * run->n, p->columns};
        if (H5Sselect_hyperslab(whole, H5S_SELECT_SET, first, stride, count, block) < 0 ||
            H5Sselect_hyperslab(space, H5S_SELECT_SET, there, NULL, extent, NULL) < 0 ||
            H5Pset_virtual(how, whole, file, path, space) < 0)
            return false;
        before += n * run->n;
    }
    return true;
}

/* Creates a virtual dataset for each array, from all parts of its name. Arrays that need too many selections are omitted. */
static int manifest_show_arrays(hid_t file, const char *folder, const struct tr_manifest *m)
{
    struct manifest_parts all TR_CLOSED_BY(manifest_parts_free) = {.n = 0};
    size_t shown = 0;
    for (uint32_t i = 0; i < m->shards; i++) TR_TRY(manifest_list_parts(&all, folder, m, i));
    if (all.n > 0) qsort(all.found, all.n, sizeof *all.found, manifest_by_name);
    for (size_t i = 0, n; i < all.n; i += n) {
        const struct manifest_part *f = &all.found[i];
        const struct tr_part *p = &f->part;
        size_t maps = 0;
        for (n = 0; i + n < all.n && !strcmp(p->name, f[n].part.name); n++)
            for (size_t r = 0; r < f[n].part.runs; r += manifest_regular_runs(&f[n].part, r)) maps++;
        if (maps > TR_MANIFEST_RUNS - shown) continue;
        shown += maps;

        uint64_t shape[2];
        int dimensions = part_shape(p, p->total_rows, p->total_columns, p->total_rows, shape);
        hsize_t extent[2] = {shape[0], shape[1]};
        TR_HID whole = H5Screate_simple(dimensions, extent, NULL), links = H5Pcreate(H5P_LINK_CREATE);
        TR_HID how = H5Pcreate(H5P_DATASET_CREATE), set = -1;
        H5Pset_create_intermediate_group(links, 1);
        H5Pset_obj_track_times(how, false);
        bool maps_all = whole >= 0;
        for (size_t k = 0; k < n && maps_all; k++) {
            const struct tr_part *q = &f[k].part;
            maps_all = p->kind == q->kind && p->type == q->type && p->total_rows == q->total_rows &&
                       p->total_columns == q->total_columns && manifest_map_part(how, whole, &f[k]);
        }
        if (maps_all && H5Sselect_all(whole) >= 0)
            set = H5Dcreate2(file, p->name, part_h5_type(p->type), whole, links, how, H5P_DEFAULT);
    }
    return TR_OK;
}

/* ---- writing ---- */

int tr_manifest_write(const char *folder, const struct tr_manifest *m, bool durable)
{
    const struct tr_facts *f = &m->facts;
    const struct {
        const char *name;
        const int64_t *value;
    } number[] = {{"stage_number", &f->stage_number},
                  {"clock", &f->clock},
                  {"evaluations", &f->evaluations},
                  {"ended", &f->ended},
                  {"ranks", &f->ranks},
                  {"servers", &f->servers},
                  {"groups", &f->groups},
                  {"group_size", &f->group_size}};
    const char *job = m->job ? m->job : "";
    size_t bytes;
    TR_FREED char *packed = NULL, *path = NULL;
    TR_TRY(tr_format(&path, "%s/manifest.h5", folder));
    TR_TRY(tr_manifest_pack(m, &packed, &bytes));
    struct tr_checked_writer w TR_CLOSED_BY(tr_checked_abandon);
    TR_TRY(tr_checked_create(&w, path, MANIFEST_FORMAT, TR_MANIFEST_VERSION,
                             tr_checked_header_bytes(1, 1, bytes), durable ? TR_TARGET_DURABLE : 0,
                             "checkpoint.write", "checkpoint.manifest"));
    char created[32];
    time_t now = time(NULL);
    struct tm utc;
    strftime(created, sizeof created, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
    TR_TRY(tr_attributes_of_format(w.file, MANIFEST_FORMAT, TR_MANIFEST_VERSION, TR_VERSION));
    TR_TRY(tr_attribute_count(w.file, "run", m->run));
    TR_TRY(tr_attribute_count(w.file, "number", m->number));
    TR_TRY(tr_attribute_text(w.file, "created", created));
    TR_TRY(tr_attribute_text(w.file, "stage", f->stage));
    for (size_t i = 0; i < sizeof number / sizeof *number; i++)
        TR_TRY(tr_attribute(w.file, number[i].name, H5T_NATIVE_INT64, number[i].value));
    TR_TRY(tr_attribute(w.file, "epoch", H5T_NATIVE_DOUBLE, &f->epoch));
    TR_TRY(tr_attribute(w.file, "seconds", H5T_NATIVE_DOUBLE, &f->seconds));
    TR_HID type = tr_text_type(strlen(job) + 1);
    TR_TRY(tr_checked_begin(&w, w.file, "job", type, 0, NULL, 0, NULL));
    TR_TRY(tr_checked_append(&w, job, strlen(job) + 1));
    TR_TRY(manifest_show_arrays(w.file, folder, m));
    TR_TRY(tr_checked_seal(&w, packed, bytes));
    return tr_checked_finish(&w);
}

int tr_manifest_read(const char *folder, struct tr_manifest *manifest)
{
    TR_FREED char *path = NULL;
    struct tr_checked file TR_CLOSED_BY(tr_checked_close) = {.fd = -1};
    TR_TRY(tr_format(&path, "%s/manifest.h5", folder));
    TR_TRY(tr_checked_open(&file, path, MANIFEST_FORMAT, TR_MANIFEST_VERSION));
    TR_TRY(tr_checked_verify(&file));
    return tr_manifest_unpack(file.directory, file.header->directory, path, manifest);
}

void tr_manifest_free(struct tr_manifest *manifest)
{
    TR_FREE_ALL(manifest->job, manifest->seal);
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

/* ---- listing ---- */

static int folder_descending(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x > y ? -1 : x < y;
}

int tr_checkpoints_list(const char *to, uint64_t **numbers, size_t *n)
{
    TR_FREED uint64_t *list = NULL;
    size_t capacity = 0;
    struct dirent *entry;
    int status = TR_OK;
    *numbers = NULL;
    *n = 0;
    DIR *folder = opendir(to);
    if (!folder && access(to, F_OK) < 0 && (errno == ENOENT || errno == ENOTDIR)) return TR_OK;
    if (!folder) return tr_fail(TR_ERR_NO_INPUT, "%s: cannot be read: %s", to, strerror(errno));
    size_t found = 0;
    while (status == TR_OK && (errno = 0, entry = readdir(folder))) {
        char text[32];
        struct stat about;
        uint64_t number = strtoull(entry->d_name, NULL, 10);
        snprintf(text, sizeof text, "%08" PRIu64, number);
        bool is_checkpoint = !strcmp(text, entry->d_name) &&
                             fstatat(dirfd(folder), text, &about, AT_SYMLINK_NOFOLLOW) == 0 &&
                             S_ISDIR(about.st_mode);
        if (!is_checkpoint) continue;
        status = TR_GROW(&list, &capacity, found + 1);
        if (status == TR_OK) list[found++] = number;
    }
    if (status == TR_OK && errno)
        status = tr_fail(TR_ERR_NO_INPUT, "%s: cannot be read: %s", to, strerror(errno));
    closedir(folder);
    TR_TRY(status);
    if (found > 0) qsort(list, found, sizeof *list, folder_descending);
    *n = found;
    *numbers = list;
    list = NULL;
    return TR_OK;
}

int tr_checkpoint_make(const char *to, uint64_t number)
{
    TR_FREED char *path = NULL;
    TR_TRY(tr_make_folder(to, true));
    TR_TRY(tr_checkpoint_path(to, number, &path));
    if (tr_create_folder(path) < 0)
        return tr_fail(TR_ERR_NO_OUTPUT, "%s: cannot be made: %s", path, strerror(errno));
    return tr_sync_folder(to);
}

/* ---- removing ---- */

/* Removes a file of a checkpoint if it exists, and counts it in *removed. */
static int folder_remove_file(int folder, const char *path, const char *name, size_t *removed)
{
    bool gone = unlinkat(folder, name, 0) == 0;
    *removed += gone;
    if (gone || errno == ENOENT) return TR_OK;
    return tr_fail(TR_ERR_IO, "%s/%s: cannot be removed: %s", path, name, strerror(errno));
}

/* Removes the manifest first, with fsync: without it the other files are no checkpoint. After a failure to remove a shard it
 * removes the other shards, and returns the first failure. */
int tr_checkpoint_remove(const char *to, uint64_t number, bool strict)
{
    TR_FREED char *path = NULL;
    size_t removed = 0;
    TR_TRY(tr_checkpoint_path(to, number, &path));
    DIR *folder = opendir(path);
    if (!folder && errno != ENOENT) return tr_file_failed(path, "removed", errno);
    int at = folder ? dirfd(folder) : -1;
    int status = folder ? folder_remove_file(at, path, "manifest.h5", &removed) : TR_OK;
    if (status == TR_OK && removed > 0 && fsync(at) < 0 && errno != EINVAL)
        status = tr_file_failed(path, "brought to the disk", errno);
    bool continues = folder && status == TR_OK;
    if (continues) status = folder_remove_file(at, path, "manifest.h5.part", &removed);
    for (struct dirent *entry; continues && (entry = readdir(folder));) {
        char name[TR_SHARD_NAME_BYTES];
        uint32_t shard;
        if (sscanf(entry->d_name, "shard-%10" SCNu32 ".h5", &shard) != 1) continue;
        tr_shard_name(shard, name);
        if (strcmp(name, entry->d_name) != 0) continue;
        if (status == TR_OK) status = folder_remove_file(at, path, name, &removed);
        else removed += unlinkat(at, name, 0) == 0;
    }
    if (folder) closedir(folder);
    TR_TRY(status);
    if (rmdir(path) == 0 || errno == ENOENT) return TR_OK;
    if (errno != ENOTEMPTY && errno != EEXIST) return tr_file_failed(path, "removed", errno);
    if (!strict && removed == 0) return TR_OK;
    return tr_fail(TR_ERR_IO, "%s: the folder stays: there are files in it that are none of a checkpoint",
                   path);
}

int tr_checkpoints_prune(const char *to, size_t keep)
{
    TR_FREED uint64_t *number = NULL;
    size_t n, whole = 0;
    int first = TR_OK;
    char why[1024] = "";
    TR_TRY(tr_checkpoints_list(to, &number, &n));
    for (size_t i = 0; i < n; i++) {
        TR_FREED char *path = NULL;
        TR_TRY(tr_format(&path, "%s/%08" PRIu64 "/manifest.h5", to, number[i]));
        bool is_whole = access(path, F_OK) == 0 || errno != ENOENT;
        whole += is_whole;
        /* a folder without manifest stays if it is newer than all checkpoints with a manifest: it may be in use by a writer */
        if (is_whole ? whole <= keep : whole == 0) continue;
        int status = tr_checkpoint_remove(to, number[i], false);
        if (first == TR_OK && status != TR_OK) snprintf(why, sizeof why, "%s", tr_error_text());
        if (first == TR_OK) first = status;
    }
    return first == TR_OK ? TR_OK : tr_fail(first, "%s", why);
}

/* ---- files of one line ---- */

uint64_t tr_read_run(const char *to, const char *name)
{
    TR_FREED char *path = NULL;
    uint64_t run = 0;
    if (tr_format(&path, "%s/%s", to, name) != TR_OK) return 0;
    FILE *file = fopen(path, "re");
    if (file && fscanf(file, "%16" SCNx64, &run) != 1) run = 0;
    if (file) fclose(file);
    return run;
}

int tr_write_run(const char *to, const char *name, uint64_t run)
{
    char text[20];
    int length = snprintf(text, sizeof text, "%016" PRIx64 "\n", run);
    return tr_replace_file(to, name, text, (size_t)length, false);
}
