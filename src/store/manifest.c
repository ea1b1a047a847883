#define _GNU_SOURCE
#include "store/manifest.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/base.h"
#include "base/fault.h"
#include "store/sealed.h"
#include "store/stored.h"
#include "store/whole.h"

#define FORMAT "trireme-checkpoint"

/* /shards */
struct shard_row {
    char file[TR_SHARD_NAME_BYTES];
    uint64_t bytes, digest;
};

static hid_t shard_row_type(void)
{
    hid_t text = tr_text_type(sizeof((struct shard_row *)NULL)->file);
    hid_t type = H5Tcreate(H5T_COMPOUND, sizeof(struct shard_row));
    H5Tinsert(type, "file", offsetof(struct shard_row, file), text);
    H5Tinsert(type, "bytes", offsetof(struct shard_row, bytes), H5T_NATIVE_UINT64);
    H5Tinsert(type, "digest", offsetof(struct shard_row, digest), H5T_NATIVE_UINT64);
    H5Tclose(text);
    return type;
}

/* The numbers among the facts, by name. */
static const struct number {
    const char *name;
    size_t at;
} numbers[] = {
    {"stage_number", offsetof(struct tr_facts, stage_number)},
    {"clock", offsetof(struct tr_facts, clock)},
    {"evaluations", offsetof(struct tr_facts, evaluations)},
    {"ended", offsetof(struct tr_facts, ended)},
    {"ranks", offsetof(struct tr_facts, ranks)},
    {"servers", offsetof(struct tr_facts, servers)},
    {"groups", offsetof(struct tr_facts, groups)},
    {"group_size", offsetof(struct tr_facts, group_size)},
};
enum { NUMBERS = sizeof numbers / sizeof *numbers };

/* ---- writing ---- */

static int put_created(hid_t file)
{
    char text[32];
    time_t now = time(NULL);
    struct tm utc;
    strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
    return tr_image_text(file, "created", text);
}

static int put_facts(hid_t file, const struct tr_facts *facts)
{
    TR_TRY(tr_image_text(file, "stage", facts->stage));
    for (int i = 0; i < NUMBERS; i++)
        TR_TRY(tr_image_int(file, numbers[i].name,
                            *(const int64_t *)(const void *)((const char *)facts + numbers[i].at)));
    TR_TRY(tr_image_real(file, "epoch", facts->epoch));
    return tr_image_real(file, "seconds", facts->seconds);
}

static int put_attributes(hid_t file, const struct tr_manifest *m)
{
    TR_TRY(tr_image_count(file, "run", m->run));
    TR_TRY(tr_image_count(file, "number", m->number));
    TR_TRY(put_created(file));
    return put_facts(file, &m->facts);
}

static int put_job(struct tr_image *image, const char *job)
{
    hid_t type = tr_text_type(strlen(job) + 1);
    int status = tr_image_array(image, image->file, "job", type, 0, NULL, job, NULL, 0, NULL);
    H5Tclose(type);
    return status;
}

static int put_shards(struct tr_image *image, const struct tr_manifest *m, struct shard_row *rows)
{
    uint64_t n = m->shards;
    for (uint32_t i = 0; i < m->shards; i++) {
        tr_shard_name(i, rows[i].file);
        rows[i].bytes = m->seal[i].bytes;
        rows[i].digest = m->seal[i].digest;
    }
    hid_t type = shard_row_type();
    int status = tr_image_array(image, image->file, "shards", type, 1, &n, rows, NULL, 0, NULL);
    H5Tclose(type);
    return status;
}

static int lay_out(struct tr_image *image, const char *folder, const struct tr_manifest *m,
                   struct shard_row *rows)
{
    TR_TRY(put_attributes(image->file, m));
    TR_TRY(put_job(image, m->job ? m->job : ""));
    TR_TRY(put_shards(image, m, rows));
    return m->plain ? TR_OK : tr_whole_put(image->file, folder, m);
}

static int write_named(struct tr_image *image, const char *folder, const char *part, const char *path,
                       bool durable)
{
    uint64_t bytes, digest;
    TR_TRY(tr_image_write(image, NULL, durable, &bytes, &digest));
    if (durable) {
        int status = tr_sync_folder(folder); /* the shards' names, before that of the manifest */
        if (status != TR_OK) unlink(part);
        TR_TRY(status);
    }
    errno = EIO;
    if (TR_FAULT("checkpoint.manifest") != TR_FAULT_NONE || rename(part, path) < 0) {
        int status = tr_fail(TR_ERR_IO, "%s: cannot be written: %s", path, strerror(errno));
        unlink(part);
        return status;
    }
    return durable ? tr_sync_folder(folder) : TR_OK;
}

static int write_image(const char *folder, const struct tr_manifest *m, struct shard_row *rows, bool durable)
{
    struct tr_image image;
    char *path = NULL, *part = NULL;
    uint64_t bytes = (m->job ? strlen(m->job) : 0) + m->shards * sizeof *rows;
    int status = tr_format(&path, "%s/manifest.h5", folder);
    if (status == TR_OK) status = tr_format(&part, "%s.part", path);
    if (status == TR_OK) {
        status = tr_image_create(&image, part, FORMAT, TR_MANIFEST_VERSION, 2, bytes, 0);
        if (status == TR_OK) status = lay_out(&image, folder, m, rows);
        if (status == TR_OK) status = write_named(&image, folder, part, path, durable);
        tr_image_close(&image);
    }
    free(part);
    free(path);
    return status;
}

int tr_manifest_write(const char *folder, const struct tr_manifest *manifest, bool durable)
{
    struct shard_row *rows;
    TR_TRY(TR_NEW(&rows, manifest->shards));
    int status = write_image(folder, manifest, rows, durable);
    free(rows);
    return status;
}

/* ---- reading ---- */

static int get_facts(const struct tr_sealed *s, struct tr_facts *facts)
{
    TR_TRY(tr_sealed_text(s, "stage", facts->stage, sizeof facts->stage));
    for (int i = 0; i < NUMBERS; i++)
        TR_TRY(tr_sealed_int(s, numbers[i].name, (int64_t *)(void *)((char *)facts + numbers[i].at)));
    TR_TRY(tr_sealed_real(s, "epoch", &facts->epoch));
    return tr_sealed_real(s, "seconds", &facts->seconds);
}

static int get_job(const struct tr_sealed *s, char **job)
{
    hid_t set = H5Dopen2(s->file, "job", H5P_DEFAULT), type = set < 0 ? -1 : H5Dget_type(set);
    uint64_t first = 0;
    size_t length = type < 0 ? 0 : H5Tget_size(type);
    int status = type >= 0 && H5Tget_class(type) == H5T_STRING ? tr_sealed_find(s, "job", type, NULL, &first)
                                                               : tr_sealed_missing(s, "job");
    if (type >= 0) H5Tclose(type);
    if (set >= 0) H5Dclose(set);
    if (status == TR_OK) status = TR_NEW(job, length + 1);
    return status == TR_OK ? tr_sealed_read(s, *job, first, length) : status;
}

static int get_shards(const struct tr_sealed *s, struct tr_manifest *m)
{
    uint64_t n = 0;
    struct shard_row *rows = NULL;
    hid_t type = shard_row_type();
    int status = tr_sealed_get(s, "shards", type, &n, &rows);
    if (status == TR_OK && n > UINT32_MAX) status = tr_sealed_missing(s, "shards");
    if (status == TR_OK) status = TR_NEW(&m->seal, n);
    for (uint64_t i = 0; status == TR_OK && i < n; i++)
        m->seal[i] = (struct tr_shard_seal){rows[i].bytes, rows[i].digest};
    if (status == TR_OK) m->shards = (uint32_t)n;
    H5Tclose(type);
    free(rows);
    return status;
}

static int get_all(const struct tr_sealed *s, struct tr_manifest *m)
{
    TR_TRY(tr_sealed_count(s, "run", &m->run));
    TR_TRY(tr_sealed_count(s, "number", &m->number));
    TR_TRY(get_facts(s, &m->facts));
    TR_TRY(get_job(s, &m->job));
    return get_shards(s, m);
}

int tr_manifest_read(const char *folder, struct tr_manifest *manifest)
{
    char *path;
    struct tr_sealed sealed;
    struct tr_manifest m = {.seal = NULL};
    TR_TRY(tr_format(&path, "%s/manifest.h5", folder));
    int status = tr_sealed_open(&sealed, path, FORMAT, TR_MANIFEST_VERSION);
    if (status == TR_OK) status = tr_sealed_structure(&sealed);
    if (status == TR_OK) status = get_all(&sealed, &m);
    tr_sealed_close(&sealed);
    free(path);
    if (status == TR_OK) *manifest = m;
    else tr_manifest_free(&m);
    return status;
}

void tr_manifest_free(struct tr_manifest *manifest)
{
    free(manifest->job);
    free(manifest->seal);
    *manifest = (struct tr_manifest){.seal = NULL};
}
