#define _GNU_SOURCE
#include "store/manifest.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/base.h"

#define FORMAT "trireme-checkpoint"

/* The directory: all that reading a manifest needs. The job's text follows the seals, without a zero. */
struct directory {
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
    *bytes = sizeof(struct directory) + seals + job;
    TR_TRY(TR_NEW(&memory, *bytes));
    struct directory *d = (struct directory *)(void *)memory;
    *d = (struct directory){m->run, m->number, m->attempt, m->facts, job, m->shards};
    if (seals > 0) memcpy(d->seal, m->seal, seals);
    if (job > 0) memcpy((char *)d->seal + seals, m->job, job);
    *(void **)packed_pointer = memory;
    return TR_OK;
}

int tr_manifest_unpack(const void *packed, uint64_t bytes, const char *path, struct tr_manifest *m)
{
    const struct directory *d = packed;
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
struct found {
    struct tr_part part;
    uint32_t shard;
};

struct all {
    size_t n, capacity;
    struct found *found;
};

/* The parts of a shard, with their runs taken over. */
static int list_parts(struct all *all, const char *folder, const struct tr_manifest *m, uint32_t number)
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
        all->found[all->n++] = (struct found){*p, number};
        p->run = NULL;
    }
    tr_shard_close(&shard);
    return status;
}

static int by_name(const void *a, const void *b)
{
    const struct found *x = a, *y = b;
    int order = strcmp(x->part.name, y->part.name);
    if (order != 0) return order;
    return x->shard < y->shard ? -1 : x->shard > y->shard;
}

/* As many runs from this one on as are equally long and equally far apart: HDF5 takes them for one selection, and takes
 * time that grows with the square of the number of others. */
static size_t regular(const struct tr_part *p, size_t i)
{
    const struct tr_row_run *run = p->run;
    if (i + 1 == p->runs || run[i + 1].n != run[i].n) return 1;
    size_t n = 2;
    while (i + n < p->runs && run[i + n].n == run[i].n &&
           run[i + n].first - run[i + n - 1].first == run[i + 1].first - run[i].first)
        n++;
    return n;
}

static size_t count_regular(const struct tr_part *p)
{
    size_t n = 0;
    for (size_t i = 0; i < p->runs; i += regular(p, i)) n++;
    return n;
}

/* Maps n runs from this one on, whose rows follow `before` others in the shard. */
static bool map_runs(hid_t how, hid_t whole, const struct found *f, hid_t space, size_t i, size_t n,
                     uint64_t before)
{
    const struct tr_part *p = &f->part;
    const struct tr_row_run *run = &p->run[i];
    char part[TR_PART_PATH_BYTES], path[TR_PART_PATH_BYTES + 8], file[TR_SHARD_NAME_BYTES];
    tr_shard_name(f->shard, file);
    tr_part_path(p, part, sizeof part);
    snprintf(path, sizeof path, "/%s/values", part);
    hsize_t first[2] = {run->first, p->first_column}, count[2] = {n, 1}, block[2] = {run->n, p->columns};
    hsize_t stride[2] = {n > 1 ? run[1].first - run->first : run->n, p->columns};
    hsize_t there[2] = {before, 0}, extent[2] = {n * run->n, p->columns};
    return H5Sselect_hyperslab(whole, H5S_SELECT_SET, first, stride, count, block) >= 0 &&
           H5Sselect_hyperslab(space, H5S_SELECT_SET, there, NULL, extent, NULL) >= 0 &&
           H5Pset_virtual(how, whole, file, path, space) >= 0;
}

static bool map_part(hid_t how, hid_t whole, const struct found *f)
{
    const struct tr_part *p = &f->part;
    uint64_t shape[2], before = 0;
    int dimensions = tr_part_shape(p, p->rows, p->columns, p->rows * p->columns, shape);
    hsize_t extent[2] = {shape[0], shape[1]};
    hid_t space = H5Screate_simple(dimensions, extent, NULL);
    bool ok = space >= 0;
    for (size_t i = 0, n; i < p->runs && ok; i += n) {
        n = regular(p, i);
        ok = p->columns == 0 || map_runs(how, whole, f, space, i, n, before);
        before += n * p->run[i].n;
    }
    if (space >= 0) H5Sclose(space);
    return ok;
}

static bool same_whole(const struct tr_part *a, const struct tr_part *b)
{
    return a->kind == b->kind && a->type == b->type && a->total_rows == b->total_rows &&
           a->total_columns == b->total_columns;
}

/* n parts of one name. What HDF5 cannot show is left out. */
static void show(hid_t file, const struct found *f, size_t n)
{
    const struct tr_part *p = &f->part;
    uint64_t shape[2];
    int dimensions = tr_part_shape(p, p->total_rows, p->total_columns, p->total_rows, shape);
    hsize_t extent[2] = {shape[0], shape[1]};
    hid_t whole = H5Screate_simple(dimensions, extent, NULL), links = H5Pcreate(H5P_LINK_CREATE);
    hid_t how = H5Pcreate(H5P_DATASET_CREATE), set = -1;
    H5Pset_create_intermediate_group(links, 1);
    H5Pset_obj_track_times(how, false);
    bool ok = whole >= 0;
    for (size_t i = 0; i < n && ok; i++) ok = same_whole(p, &f[i].part) && map_part(how, whole, &f[i]);
    if (ok && H5Sselect_all(whole) >= 0)
        set = H5Dcreate2(file, p->name, tr_part_h5_type(p->type), whole, links, how, H5P_DEFAULT);
    if (set >= 0) H5Dclose(set);
    if (whole >= 0) H5Sclose(whole);
    H5Pclose(how);
    H5Pclose(links);
}

static int show_whole_tables(hid_t file, const char *folder, const struct tr_manifest *m)
{
    struct all all = {.n = 0};
    size_t shown = 0;
    int status = TR_OK;
    for (uint32_t i = 0; i < m->shards && status == TR_OK; i++) status = list_parts(&all, folder, m, i);
    if (status == TR_OK && all.n > 0) qsort(all.found, all.n, sizeof *all.found, by_name);
    for (size_t i = 0, n; status == TR_OK && i < all.n; i += n) {
        size_t maps = 0;
        for (n = 0; i + n < all.n && !strcmp(all.found[i].part.name, all.found[i + n].part.name); n++)
            maps += count_regular(&all.found[i + n].part);
        if (maps > TR_MANIFEST_RUNS - shown) continue;
        show(file, &all.found[i], n);
        shown += maps;
    }
    for (size_t i = 0; i < all.n; i++) tr_part_free(&all.found[i].part);
    free(all.found);
    return status;
}

/* ---- writing ---- */

static int put_attributes(hid_t file, const struct tr_manifest *m)
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
    TR_TRY(tr_attributes_of_format(file, FORMAT, TR_MANIFEST_VERSION, TR_VERSION));
    TR_TRY(tr_attribute_count(file, "run", m->run));
    TR_TRY(tr_attribute_count(file, "number", m->number));
    TR_TRY(tr_attribute_text(file, "created", created));
    TR_TRY(tr_attribute_text(file, "stage", f->stage));
    for (size_t i = 0; i < sizeof number / sizeof *number; i++)
        TR_TRY(tr_attribute_int(file, number[i].name, number[i].value));
    TR_TRY(tr_attribute_real(file, "epoch", f->epoch));
    return tr_attribute_real(file, "seconds", f->seconds);
}

static int put_job(struct tr_checked_writer *w, const char *job)
{
    hid_t type = tr_text_type(strlen(job) + 1);
    int status = tr_checked_begin(w, w->file, "job", type, 0, NULL, 0, NULL);
    H5Tclose(type);
    return status == TR_OK ? tr_checked_append(w, job, strlen(job) + 1) : status;
}

static int write_file(struct tr_checked_writer *w, const char *path, const char *folder,
                      const struct tr_manifest *m, const void *packed, size_t bytes, bool durable)
{
    TR_TRY(tr_checked_create(w, path, FORMAT, TR_MANIFEST_VERSION, tr_checked_header_bytes(1, 1, bytes),
                             durable, "checkpoint.write", "checkpoint.manifest"));
    TR_TRY(put_attributes(w->file, m));
    TR_TRY(put_job(w, m->job ? m->job : ""));
    TR_TRY(show_whole_tables(w->file, folder, m));
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
        status = write_file(&w, path, folder, m, packed, bytes, durable);
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
    int status = tr_checked_open(&file, path, FORMAT, TR_MANIFEST_VERSION);
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
