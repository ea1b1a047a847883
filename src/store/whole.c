#define _GNU_SOURCE
#include "store/whole.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "store/sealed.h"
#include "store/stored.h"

/* A part, and where it is. */
struct found {
    struct tr_part part;
    uint32_t shard;
};

struct all {
    size_t n, capacity;
    struct found *found;
};

/* ---- what is there ---- */

static int add(struct all *all, const struct tr_part *p, uint32_t shard)
{
    if (p->kind != TR_PART_ROWS && p->kind != TR_PART_COMMON) return TR_OK;
    TR_TRY(TR_GROW(&all->found, &all->capacity, all->n + 1));
    struct found *f = &all->found[all->n];
    *f = (struct found){*p, shard};
    TR_TRY(TR_NEW(&f->part.run, p->runs));
    if (p->runs > 0) memcpy(f->part.run, p->run, p->runs * sizeof *p->run);
    all->n++;
    return TR_OK;
}

static int look_into(struct all *all, const char *folder, const struct tr_manifest *m, uint32_t number)
{
    char *path, name[TR_SHARD_NAME_BYTES];
    struct tr_shard *shard;
    const struct tr_part *part;
    struct tr_shard_head head = {m->run, m->number, number, m->shards};
    tr_shard_name(number, name);
    TR_TRY(tr_format(&path, "%s/%s", folder, name));
    int status = tr_shard_open(path, &head, &m->seal[number], &shard);
    free(path);
    TR_TRY(status);
    size_t n = tr_shard_parts(shard, &part);
    for (size_t i = 0; i < n && status == TR_OK; i++) status = add(all, &part[i], number);
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

/* ---- showing it ---- */

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

struct source {
    char file[TR_SHARD_NAME_BYTES], path[TR_PART_PATH_BYTES + 8];
    int dimensions;
    hid_t space;
};

/* n runs from this one on, whose rows follow `before` others in the shard. */
static bool map_runs(hid_t how, hid_t whole, const struct source *from, const struct tr_part *p, size_t i,
                     size_t n, uint64_t before)
{
    const struct tr_row_run *run = &p->run[i];
    hsize_t first[2] = {run->first, p->first_column}, count[2] = {n, 1}, block[2] = {run->n, p->columns};
    hsize_t stride[2] = {n > 1 ? run[1].first - run->first : run->n, p->columns};
    hsize_t there[2] = {before, 0}, extent[2] = {n * run->n, p->columns};
    return H5Sselect_hyperslab(whole, H5S_SELECT_SET, first, stride, count, block) >= 0 &&
           H5Sselect_hyperslab(from->space, H5S_SELECT_SET, there, NULL, extent, NULL) >= 0 &&
           H5Pset_virtual(how, whole, from->file, from->path, from->space) >= 0;
}

static bool map_part(hid_t how, hid_t whole, const struct found *f)
{
    const struct tr_part *p = &f->part;
    char path[TR_PART_PATH_BYTES];
    struct source from;
    uint64_t shape[2];
    from.dimensions = tr_part_shape(p, p->rows, p->columns, p->rows * p->columns, shape);
    tr_part_path(p, path, sizeof path);
    tr_shard_name(f->shard, from.file);
    snprintf(from.path, sizeof from.path, "/%s/values", path);
    hsize_t extent[2] = {shape[0], shape[1]};
    from.space = H5Screate_simple(from.dimensions, extent, NULL);
    bool ok = from.space >= 0;
    uint64_t before = 0;
    for (size_t i = 0, n; i < p->runs && ok; i += n) {
        n = regular(p, i);
        ok = p->columns == 0 || map_runs(how, whole, &from, p, i, n, before);
        before += n * p->run[i].n;
    }
    if (from.space >= 0) H5Sclose(from.space);
    return ok;
}

static bool same_whole(const struct tr_part *a, const struct tr_part *b)
{
    return a->kind == b->kind && a->type == b->type && a->total_rows == b->total_rows &&
           a->total_columns == b->total_columns;
}

/* n parts of one name. */
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

static void show_all(hid_t file, const struct all *all)
{
    size_t shown = 0;
    for (size_t i = 0, n; i < all->n; i += n) {
        size_t maps = 0;
        for (n = 0; i + n < all->n && strcmp(all->found[i].part.name, all->found[i + n].part.name) == 0; n++)
            maps += count_regular(&all->found[i + n].part);
        if (maps > TR_MANIFEST_RUNS - shown) continue;
        show(file, &all->found[i], n);
        shown += maps;
    }
}

int tr_whole_put(hid_t file, const char *folder, const struct tr_manifest *manifest)
{
    struct all all = {.n = 0};
    int status = TR_OK;
    for (uint32_t i = 0; i < manifest->shards && status == TR_OK; i++)
        status = look_into(&all, folder, manifest, i);
    if (status == TR_OK && all.n > 0) {
        qsort(all.found, all.n, sizeof *all.found, by_name);
        show_all(file, &all);
    }
    for (size_t i = 0; i < all.n; i++) tr_part_free(&all.found[i].part);
    free(all.found);
    return status;
}
