#define _GNU_SOURCE
#include "data/row_store.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/base.h"
#include "base/fault.h"
#include "base/file.h"
#include "data/dataset.h"
#include "data/names.h"
#include "store/checked.h"
#include "store/persistent.h"
#include "trireme/collective.h"

/* ---- arrays ---- */

const size_t tr_row_unit[] = {sizeof(uint64_t), sizeof(uint32_t), sizeof(float), sizeof(float),
                              sizeof(uint64_t), sizeof(uint64_t), sizeof(tr_key)};

void **tr_row_store_array(tr_data *data, size_t i)
{
    struct tr_matrix *m = &data->state->rows;
    void **const arrays[] = {(void **)&m->begin,
                             (void **)&m->column,
                             (void **)&m->value,
                             (void **)&m->label,
                             (void **)&data->state->row_number,
                             (void **)&data->state->row_mark,
                             (void **)(uintptr_t)&data->keys};
    _Static_assert(sizeof arrays / sizeof *arrays == TR_ROW_ARRAYS, "a pointer for each array");
    return arrays[i];
}

/* Returns the number of elements of all arrays, and which of them exist. */
static struct tr_row_shape rows_shape(tr_data *data)
{
    const struct tr_matrix *m = &data->state->rows;
    struct tr_row_shape shape = {m->rows, tr_matrix_nonzeros(m), data->n_keys, 0};
    for (size_t i = 0; i < TR_ROW_ARRAYS; i++)
        if (*tr_row_store_array(data, i)) shape.arrays |= (uint64_t)1 << i;
    return shape;
}

uint64_t tr_row_store_measure(const struct tr_row_shape *s, uint64_t bytes[TR_ROW_ARRAYS])
{
    const uint64_t elements[] = {s->rows + 1, s->values, s->values, s->rows, s->rows, s->rows, s->keys};
    uint64_t sum = 0;
    for (size_t i = 0; i < TR_ROW_ARRAYS; i++) {
        bytes[i] = s->arrays >> i & 1 ? elements[i] * tr_row_unit[i] : 0;
        sum += tr_to_pages(bytes[i]);
    }
    return sum;
}

void tr_row_store_attach(tr_data *data, uint64_t arrays)
{
    for (size_t i = 0; i < TR_ROW_ARRAYS; i++)
        if (arrays >> i & 1) *tr_row_store_array(data, i) = tr_row_file_at(data->state->file, i);
}

/* Frees the first n arrays, which are in the heap. */
static void rows_free(tr_data *data, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        free(*tr_row_store_array(data, i));
        *tr_row_store_array(data, i) = NULL;
    }
}

/* ---- files: layout ---- */

#define FORMAT "trireme-data"
enum { VERSION = 7 };

struct tr_row_directory {
    struct tr_row_key key;
    uint64_t arrays;
    struct {
        uint64_t first, bytes; /* offset of the array in the file, and its size in bytes */
    } array[];
};

/* Returns the 128-bit XXH3 hash of n bytes. */
static struct tr_row_key row_key_of(const void *bytes, size_t n)
{
    XXH128_hash_t hash = XXH3_128bits(bytes, n);
    return (struct tr_row_key){{hash.low64, hash.high64}};
}

static char *row_file_address(const struct tr_row_file *f, uint64_t first)
{
    return (char *)f->header + first;
}

void *tr_row_file_at(const struct tr_row_file *file, size_t i)
{
    return row_file_address(file, file->directory->array[i].first);
}

uint64_t tr_row_file_bytes(const struct tr_row_file *file)
{
    return file->header->bytes;
}

static uint64_t row_file_directory_bytes(uint64_t arrays)
{
    return sizeof(struct tr_row_directory) + arrays * sizeof((struct tr_row_directory *)0)->array[0];
}

static int row_file_failed(int status, const char *path)
{
    return tr_fail(status, "%s: %s", path, strerror(errno));
}

static int row_file_start(const char *path, int flags, struct tr_row_file **file)
{
    TR_TRY(TR_NEW(file, 1));
    (*file)->fd = -1;
    TR_TRY(tr_copy_string(path, &(*file)->path));
    (*file)->fd = open(path, flags | O_CLOEXEC | O_NOFOLLOW, 0600);
    return (*file)->fd < 0 ? row_file_failed(TR_ERR_NO_OUTPUT, path) : TR_OK;
}

static int row_file_map(struct tr_row_file *f, uint64_t bytes, int protection, int flags)
{
    void *memory = mmap(NULL, bytes, protection, MAP_SHARED | flags, f->fd, 0);
    if (memory == MAP_FAILED) return row_file_failed(TR_ERR_SYSTEM, f->path);
    f->header = memory;
    f->area = (struct tr_checked_area *)(void *)(f->header + 1);
    f->sum = (uint64_t *)(void *)(f->area + 1);
    return TR_OK;
}

static void row_file_find_directory(struct tr_row_file *f)
{
    f->directory = (struct tr_row_directory *)(void *)(f->sum + f->header->sums);
}

void tr_row_file_close(struct tr_row_file **file)
{
    struct tr_row_file *f = *file;
    if (!f) return;
    if (f->header) munmap(f->header, f->header->bytes);
    if (f->fd >= 0) close(f->fd);
    free(f->checked);
    free(f->path);
    free(f);
    *file = NULL;
}

/* ---- files: writing ---- */

/* Allocates space for the bytes first .. first + bytes - 1 of the file. TR_ERR_IO: no space is left. */
static int row_file_allocate(struct tr_row_file *f, uint64_t first, uint64_t bytes)
{
    if (bytes == 0) return TR_OK;
    if (TR_FAULT("cache.room") == TR_FAULT_ENOSPC) {
        errno = ENOSPC;
        return row_file_failed(TR_ERR_IO, f->path);
    }
    while (fallocate(f->fd, 0, (off_t)first, (off_t)bytes) < 0) {
        if (errno == EOPNOTSUPP) errno = posix_fallocate(f->fd, (off_t)first, (off_t)bytes);
        if (errno == 0) break;
        if (errno != EINTR) return row_file_failed(TR_ERR_IO, f->path);
    }
    return TR_OK;
}

/* Allocates space for range `member` of `members` equal ranges of each array, on the NUMA node of this process. All ranges must be
 * allocated before anything is written. TR_ERR_IO: no space is left. */
static int row_file_reserve(struct tr_row_file *file, size_t member, size_t members)
{
    const struct tr_row_directory *d = file->directory;
    for (size_t i = 0; i < d->arrays; i++) {
        uint64_t page = tr_page_bytes(), pages = tr_to_pages(d->array[i].bytes) / page;
        uint64_t first = pages * member / members, end = pages * (member + 1) / members;
        TR_TRY(row_file_allocate(file, d->array[i].first + first * page, (end - first) * page));
    }
    return TR_OK;
}

/* Creates the file, without the format and the digest: until row_file_seal() writes them, the file cannot be opened. */
static int row_file_start_new(const char *path, struct tr_row_key key, const uint64_t *bytes, size_t n,
                              bool reserve, struct tr_row_file **file)
{
    uint64_t area = 0;
    for (size_t i = 0; i < n; i++) area += tr_to_pages(bytes[i]);
    const uint64_t sums = (area + TR_ROW_PIECE - 1) / TR_ROW_PIECE, directory = row_file_directory_bytes(n);
    uint64_t header = tr_to_pages(tr_checked_header_bytes(1, sums, directory));
    TR_TRY(row_file_start(path, O_RDWR | O_CREAT | O_EXCL, file));
    struct tr_row_file *f = *file;
    if (ftruncate(f->fd, (off_t)(header + area)) < 0) return row_file_failed(TR_ERR_IO, path);
    TR_TRY(row_file_allocate(f, 0, header)); /* without space, writing to a page raises SIGBUS */
    TR_TRY(row_file_map(f, header + area, PROT_READ | PROT_WRITE, 0));
    *f->header = (struct tr_checked_header){.version = VERSION,
                                            .order = TR_CHECKED_ORDER,
                                            .bytes = header + area,
                                            .header = header,
                                            .areas = 1,
                                            .sums = sums,
                                            .directory = directory};
    *f->area = (struct tr_checked_area){header, area, TR_ROW_PIECE, 0};
    row_file_find_directory(f);
    f->directory->key = key;
    f->directory->arrays = n;
    for (size_t i = 0; i < n; header += tr_to_pages(bytes[i++])) {
        f->directory->array[i].first = header;
        f->directory->array[i].bytes = bytes[i];
    }
    return reserve ? row_file_reserve(f, 0, 1) : TR_OK;
}

int tr_row_file_create(const char *path, struct tr_row_key key, const uint64_t *bytes, size_t n, bool reserve,
                       struct tr_row_file **file)
{
    *file = NULL;
    /* other processes may have opened an older file, so it is unlinked, not overwritten */
    if (unlink(path) < 0 && errno != ENOENT) return row_file_failed(TR_ERR_NO_OUTPUT, path);
    int status = row_file_start_new(path, key, bytes, n, reserve, file), error = errno;
    if (status == TR_OK) return TR_OK;
    if (*file && (*file)->fd >= 0) unlink(path);
    tr_row_file_close(file);
    errno = error;
    return status;
}

uint64_t tr_row_file_sum_piece(const struct tr_row_file *f, uint64_t piece)
{
    uint64_t at = piece * TR_ROW_PIECE, left = f->area->bytes - at;
    return XXH3_64bits(row_file_address(f, f->area->first + at), left < TR_ROW_PIECE ? left : TR_ROW_PIECE);
}

/* Computes the sums of range `member` of `members` equal ranges of the area. Makes the whole area read-only for this process. */
static void row_file_sum(struct tr_row_file *file, size_t member, size_t members)
{
    uint64_t sums = file->header->sums, end = sums * (member + 1) / members;
    for (uint64_t i = sums * member / members; i < end; i++) {
        (void)TR_FAULT("cache.sum");
        file->sum[i] = tr_row_file_sum_piece(file, i);
    }
    /* a later write raises SIGSEGV, instead of changing the data of the next start */
    if (sums > 0) (void)mprotect(row_file_address(file, file->area->first), file->area->bytes, PROT_READ);
}

/* Writes format and digest, so that the file can be opened. One process calls this when all sums are computed. */
static void row_file_seal(struct tr_row_file *file)
{
    struct tr_checked_header *h = file->header;
    memcpy(h->format, FORMAT, sizeof FORMAT);
    h->digest = 0;
    uint64_t digest = XXH3_64bits(h, h->header);
    atomic_thread_fence(memory_order_seq_cst);
    h->digest = digest;
}

/* Creates a file, moves n arrays from the heap into it, computes the sums and seals the file. Each *array[i] is freed and set to
 * NULL. After an error no array was moved. */
static int row_file_move(const char *path, struct tr_row_key key, void **const array[], const uint64_t *bytes,
                         size_t n, struct tr_row_file **file)
{
    TR_TRY(tr_row_file_create(path, key, bytes, n, true, file));
    for (size_t i = 0; i < n; i++)
        if (*array[i]) tr_pages_move(tr_row_file_at(*file, i), array[i], bytes[i], 1);
    row_file_sum(*file, 0, 1);
    row_file_seal(*file);
    return TR_OK;
}

/* ---- files: reading ---- */

static int row_file_odd(const struct tr_row_file *f, const char *what)
{
    return tr_fail(TR_ERR_DATA, "%s: %s", f->path, what);
}

/* Checks the directory, and the sums of range `member` of `members` equal ranges of the area (members = 0: no sums). The digest,
 * which was checked before, covers everything except the area; so if the directory is wrong, the file has another layout. */
static int row_file_check(const struct tr_row_file *f, struct tr_row_key key, size_t n, size_t member,
                          size_t members)
{
    const struct tr_checked_header *h = f->header;
    const struct tr_row_directory *d = f->directory;
    uint64_t at = h->header;
    if (h->areas != 1 || h->directory != row_file_directory_bytes(n) || d->arrays != n ||
        f->area->first != at || f->area->bytes != h->bytes - at ||
        h->sums != (f->area->bytes + TR_ROW_PIECE - 1) / TR_ROW_PIECE)
        return row_file_odd(f, "damaged: odd directory");
    if (memcmp(&d->key, &key, sizeof key) != 0) return row_file_odd(f, "of other data");
    for (size_t i = 0; i < n; at += tr_to_pages(d->array[i++].bytes))
        if (d->array[i].first != at || d->array[i].bytes > h->bytes - at)
            return row_file_odd(f, "damaged: odd array");
    if (at != h->bytes) return row_file_odd(f, "damaged: odd size");
    if (members == 0) return TR_OK;
    for (uint64_t i = h->sums * member / members, end = h->sums * (member + 1) / members; i < end; i++)
        if (tr_row_file_sum_piece(f, i) != f->sum[i]) return row_file_odd(f, "damaged: wrong checksum");
    return TR_OK;
}

/* Opens a sealed file for reading, and checks it as row_file_check() does. TR_ERR_NO_INPUT: there is no such file; TR_ERR_DATA: it has
 * another key, or is damaged. */
static int row_file_open(const char *path, struct tr_row_key key, size_t n, size_t member, size_t members,
                         struct tr_row_file **file)
{
    TR_CLOSED_BY(tr_checked_close) struct tr_checked checked;
    TR_CLOSED_BY(tr_row_file_close) struct tr_row_file *f = NULL;
    TR_TRY(tr_checked_open(&checked, path, FORMAT, VERSION));
    TR_TRY(row_file_start(path, O_RDONLY, &f));
    TR_TRY(row_file_map(f, checked.header->bytes, PROT_READ, members > 0 ? MAP_POPULATE : 0));
    if (memcmp(f->header, checked.header, checked.header->header) != 0)
        return row_file_odd(f, "damaged: it changes");
    row_file_find_directory(f);
    TR_TRY(row_file_check(f, key, n, member, members));
    *file = f;
    f = NULL;
    return TR_OK;
}

/* ---- folders ---- */

#define FOLDERS "trireme-data"
#define UNNAMED "trireme-rows"
enum { SILENCE = 3600 }; /* a run is over if its status.json was not written for this number of seconds */

int tr_cache_folder_path(const char *base, const char *output, char **path)
{
    struct tr_persistent_bases bases;
    TR_FREED char *whole = NULL, *name = NULL;
    char host[TR_HOST_BYTES];
    TR_TRY(tr_whole_path(output, &whole));
    tr_persistent_bases(&bases);
    tr_host_name(host);
    TR_TRY(tr_format(&name, "%s\n%s", whole, host));
    return tr_format(path, "%s/" FOLDERS "-%u-%016llx", base ? base : bases.base[0], (unsigned)geteuid(),
                     (unsigned long long)XXH3_64bits(name, strlen(name)));
}

/* Locks the file `owner` of a folder. Returns its descriptor, or -1 if another process has locked it. make: creates the file. */
static int folder_try_lock(const char *folder, bool make)
{
    TR_FREED char *path = NULL;
    if (tr_format(&path, "%s/owner", folder) != TR_OK) return -1;
    int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | (make ? O_CREAT : 0), 0600);
    if (fd >= 0 && (flock(fd, LOCK_EX | LOCK_NB) < 0 || !tr_is_still_at(fd, path))) {
        close(fd);
        fd = -1;
    }
    return fd;
}

static void folder_unlock(struct tr_cache_folder *folder)
{
    if (folder->lock >= 0) close(folder->lock);
    free(folder->path);
    *folder = (struct tr_cache_folder){.lock = -1};
}

int tr_cache_folder_lock(const char *base, const char *output, struct tr_cache_folder *folder)
{
    enum { ATTEMPTS = 400 }; /* another job in tr_cache_clean() may hold the lock for a moment */
    char *files = NULL;
    folder->lock = -1;
    TR_TRY(tr_cache_folder_path(base, output, &folder->path));
    int status = TR_OK;
    for (int i = 0; i < ATTEMPTS && folder->lock < 0 && status == TR_OK; i++) {
        if (i > 0) tr_sleep(0.005);
        status = tr_persistent_make(folder->path);
        if (status == TR_OK) folder->lock = folder_try_lock(folder->path, true);
    }
    if (status == TR_OK && folder->lock < 0)
        status = tr_fail(TR_ERR_NO_OUTPUT, "%s: another process is using it", folder->path);
    /* if the owner cannot be written, the file stays empty, and the folder is removed when it is no longer locked */
    if (status == TR_OK && ftruncate(folder->lock, 0) == 0 && !tr_owner_write(folder->lock, output))
        (void)ftruncate(folder->lock, 0);
    if (status == TR_OK) status = tr_format(&files, "%s/" TR_CACHE_FILES, folder->path);
    if (status == TR_OK) status = tr_persistent_make(files);
    free(files);
    if (status != TR_OK) tr_cache_folder_remove(folder);
    return status;
}

void tr_cache_folder_remove(struct tr_cache_folder *folder)
{
    if (folder->path && folder->lock >= 0 && tr_persistent_is_own(folder->path))
        tr_persistent_remove(folder->path);
    folder_unlock(folder);
}

/* Returns whether the run that owns a folder is over. fd: the file `owner`; if it is empty, the folder belongs to no run. Runs with
 * output in the folder `ended` are over. Returns false if this process does not see the files of the run. A run writes its
 * status.json every few seconds. If it did not for SILENCE seconds but its process is alive, the run is not over: perhaps the clock
 * was set. */
static bool folder_is_over(const char *ended, int fd)
{
    static const char *const ends[] = {"\"state\": \"done\"", "\"state\": \"failed\"",
                                       "\"state\": \"stopped\""};
    char output[PATH_MAX], host[TR_HOST_BYTES], member[TR_HOST_BYTES + 16], text[2048], *path;
    struct stat status;
    bool here;
    if (!tr_owner_read(fd, output, &here)) return true;
    if (!here) return false;
    size_t n = ended ? strlen(ended) : 0;
    if (ended && strncmp(output, ended, n) == 0 && (output[n] == '\0' || output[n] == '/')) return true;
    if (tr_format(&path, "%s/status.json", output) != TR_OK) return false;
    FILE *file = fopen(path, "re");
    free(path);
    if (!file) return true;
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    bool silent = fstat(fileno(file), &status) < 0 || time(NULL) - status.st_mtime > SILENCE;
    fclose(file);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (strstr(text, ends[i])) return true;
    tr_host_name(host);
    snprintf(member, sizeof member, "\"host\": \"%s\"", host);
    const char *pid = strstr(text, member) ? strstr(text, "\"pid\": ") : NULL;
    long process = pid ? strtol(pid + strlen("\"pid\": "), NULL, 10) : 0;
    return silent && !(process > 0 && kill((pid_t)process, 0) == 0);
}

static int folder_clean(void *what, const char *path, const char *rest)
{
    const char *ended = what;
    TR_FREED char *owner = NULL;
    if (strspn(rest, "0123456789abcdef") != 16 || rest[16]) return TR_OK;
    /* check without the lock first: a run that is starting again may want to lock it now */
    if (tr_format(&owner, "%s/owner", path) != TR_OK) return TR_OK;
    int fd = open(owner, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    bool over = fd < 0 || folder_is_over(ended, fd);
    if (fd >= 0) close(fd);
    if (!over) return TR_OK;
    int lock = folder_try_lock(path, false);
    if (lock < 0) {
        /* the process that made the folder was killed before it made `owner`; rmdir() fails if there are files */
        (void)rmdir(path);
        return TR_OK;
    }
    if (folder_is_over(ended, lock)) tr_persistent_remove(path);
    close(lock);
    return TR_OK;
}

/* Sets *path to the path of a file in this host's memory that is unlinked as soon as all its users have opened it. pid: id of the
 * process that creates it, or a pattern. */
static int unnamed_path(const char *pid, char **path)
{
    struct tr_persistent_bases bases;
    char host[TR_HOST_BYTES], view[TR_VIEW_BYTES], name[TR_HOST_BYTES + TR_VIEW_BYTES + 32];
    tr_persistent_bases(&bases);
    tr_host_name(host);
    tr_view_of_processes(view);
    snprintf(name, sizeof name, "%s-%s-%s", host, view, pid);
    return tr_persistent_path(bases.base[0], UNNAMED, name, path);
}

void tr_cache_clean(const char *ended)
{
    char *whole = NULL, *pattern;
    glob_t found;
    if (!ended || tr_whole_path(ended, &whole) == TR_OK)
        (void)tr_persistent_each(FOLDERS, folder_clean, whole);
    free(whole);
    if (unnamed_path("*", &pattern) != TR_OK) return;
    if (glob(pattern, GLOB_NOSORT, NULL, &found) == 0) {
        for (size_t i = 0; i < found.gl_pathc; i++) {
            long pid = strtol(strrchr(found.gl_pathv[i], '-') + 1, NULL, 10);
            if (pid > 0 && kill((pid_t)pid, 0) < 0 && errno == ESRCH) unlink(found.gl_pathv[i]);
        }
        globfree(&found);
    }
    free(pattern);
}

/* ---- the folders of a context ---- */

enum { IN_MEMORY, ON_DISK, PLACES }; /* the two places where a run can have a folder */

struct tr_cache {
    bool leads; /* this is the lowest rank of the host, which is responsible for the folders */
    bool said;  /* the note that data are not kept was printed */
    struct cache_place {
        bool entered;                  /* cache_enter() was called for this place */
        bool wanted;                   /* data are kept here, and the folder exists */
        struct tr_cache_folder folder; /* the folder; this rank has locked it if `leads` is set */
        char *path;                    /* path of the subfolder with the files */
    } place[PLACES];
};

static struct cache_place *cache_place(const tr_data *data)
{
    const struct tr_data_state *s = data->state;
    return &s->tr->cache->place[s->on_disk ? ON_DISK : IN_MEMORY];
}

/* Called when the job has ended without failure: no start needs the files in memory again. */
static void cache_end(tr_context *tr)
{
    struct tr_cache *c = tr->cache;
    tr->cache = NULL;
    tr_cache_folder_remove(&c->place[IN_MEMORY].folder);
    if (tr->job->data.cache == TR_CACHE_NO) tr_cache_folder_remove(&c->place[ON_DISK].folder);
    else folder_unlock(&c->place[ON_DISK].folder);
    for (int i = 0; i < PLACES; i++) free(c->place[i].path);
    free(c);
}

/* Prints once that data are not kept. The job continues, since it does not depend on kept data. */
static void cache_say_not_kept(tr_context *tr, const char *why)
{
    struct tr_cache *c = tr->cache;
    if (!c->said) tr_say(tr, "note:          data are not kept for another start%s%s", *why ? ": " : "", why);
    c->said = true;
}

/* Sets *all to whether it is true on all ranks of the set. */
static int all_true(tr_context *tr, enum tr_set set, bool *all)
{
    int32_t n = *all;
    TR_TRY(tr_all_reduce(tr, set, TR_MIN, TR_I32, &n, 1));
    *all = n;
    return TR_OK;
}

static int cache_lock_folder(const tr_context *tr, struct cache_place *p, const char *base)
{
    TR_FREED char *folder = NULL;
    TR_TRY(tr_cache_folder_path(base, tr->job->output, &folder));
    TR_TRY(tr_format(&p->path, "%s/" TR_CACHE_FILES, folder));
    return tr->cache->leads ? tr_cache_folder_lock(base, tr->job->output, &p->folder) : TR_OK;
}

/* Creates and locks the folder in memory or on disk, in the first call for it in a context. */
static int cache_enter(tr_context *tr, bool disk)
{
    if (!tr->cache) {
        struct tr_cache *c;
        int host_rank;
        TR_TRY(tr_agree(tr, TR_NEW(&c, 1)));
        tr->cache = c;
        tr->at_end = cache_end;
        for (int i = 0; i < PLACES; i++) c->place[i].folder.lock = -1;
        MPI_Comm_rank(tr->host, &host_rank);
        c->leads = host_rank == 0;
    }
    struct cache_place *p = &tr->cache->place[disk ? ON_DISK : IN_MEMORY];
    if (p->entered) return TR_OK;
    p->entered = true;
    if (disk) { /* rows on a disk cannot be stored without the folder: the job fails */
        int status = cache_lock_folder(tr, p, tr->job->data.scratch);
        if (status != TR_OK)
            status = tr_fail(TR_ERR_NO_OUTPUT, "%s: data.scratch: %s", tr_job_where(tr->job, "data.scratch"),
                             tr_error_text());
        p->wanted = true;
        return tr_agree(tr, status);
    }
    int mode = tr->job->data.cache;
    bool asked = mode == TR_CACHE_MEMORY || (mode == TR_CACHE_AUTO && tr->lifeline && !tr->team);
    TR_TRY(all_true(tr, TR_SET_ALL, &asked));
    p->wanted = asked && cache_lock_folder(tr, p, NULL) == TR_OK;
    const char *why = p->wanted ? "" : tr_error_text();
    if (tr->cache->leads) tr_cache_clean(asked ? NULL : tr->job->output); /* does not remove locked folders */
    if (!asked) return TR_OK;
    TR_TRY(all_true(tr, TR_SET_ALL, &p->wanted));
    if (!p->wanted) cache_say_not_kept(tr, why);
    return TR_OK;
}

/* ---- the head of a data set: everything except its rows ---- */

void tr_data_free_head(tr_data *data)
{
    struct tr_data_state *s = data->state;
    tr_names_free(&s->row_names);
    tr_names_free(&s->column_names);
    free(s->heads);
    free((void *)(uintptr_t)data->label);
    free(s->stretch);
    free(s->block);
    for (int e = 0; e < TR_EXTRAS; e++) free(s->extra[e]);
    free(s->third_label);
    free(s->split.label);
    for (size_t i = 0; i < s->word_lists; i++) tr_ids_free(&s->words[i]);
    free(s->words);
    tr_scale_free(&s->scale);
    tr_schema_release(&s->schema);
    tr_schema_release(&s->names);
    tr_bindings_free(&s->bindings);
}

struct head {
    struct tr_row_key generation;
    tr_data data; /* copy of the data set without its rows; pointers in it are not valid */
    size_t rows, columns, stretches, blocks;
    bool full;
    /* two counts of tr_data_state; bit mask of the arrays that exist (struct tr_row_shape) */
    uint64_t unknown, unlabelled, arrays;
};

/* Copies everything of a data set except its rows to or from an archive. */
static int archive_data(struct tr_archive *a, tr_data *data, struct head *h)
{
    struct tr_data_state *s = data->state;
    *h = (struct head){.generation = s->cached->generation,
                       .data = *data,
                       .rows = s->rows.rows,
                       .columns = s->rows.columns,
                       .stretches = s->stretches,
                       .blocks = s->blocks,
                       .full = s->full,
                       .unknown = s->unknown,
                       .unlabelled = s->unlabelled,
                       .arrays = rows_shape(data).arrays};
    TR_TRY(tr_archive_copy(a, h, sizeof *h));
    if (!a->writes) {
        *data = h->data;
        data->state = s;
        data->rows = (tr_batch){.n = 0};
        data->keys = NULL;
        data->label = NULL;
        data->row = NULL;
        data->row_names = data->column_names = NULL;
        data->scaling = NULL;
        s->rows.rows = h->rows;
        s->rows.columns = h->columns;
        s->stretches = h->stretches;
        s->blocks = h->blocks;
        s->full = h->full;
        s->unknown = h->unknown;
        s->unlabelled = h->unlabelled;
    }
    bool schema = s->schema != NULL, names = s->names != NULL;
    struct tr_bindings no_files = {.n = 0};
    struct tr_dictionary *none = NULL; /* not needed: test data use the dictionary of the training data */
    TR_TRY(tr_archive_copy(a, &schema, sizeof schema));
    TR_TRY(tr_archive_copy(a, &names, sizeof names));
    if (names) TR_TRY(tr_schema_archive(a, &s->names, &no_files));
    if (schema) TR_TRY(tr_schema_archive(a, &s->schema, &s->bindings));
    if (schema) TR_TRY(tr_dictionary_archive(a, s->tr, s->test ? &none : &s->schema->dictionary));
    TR_TRY(tr_archive_array(a, &s->heads, s->files.n * sizeof *s->heads));
    TR_TRY(tr_archive_array(a, &data->label, data->labels * sizeof *data->label));
    TR_TRY(tr_archive_array(a, &s->stretch, s->stretches * sizeof *s->stretch));
    TR_TRY(tr_archive_array(a, &s->block, s->blocks > 0 ? (s->blocks + 1) * sizeof *s->block : 0));
    for (int e = 0; e < TR_EXTRAS; e++)
        TR_TRY(tr_archive_array(a, &s->extra[e], s->extra[e] ? s->rows.rows * sizeof **s->extra : 0));
    TR_TRY(tr_archive_array(a, &s->third_label, s->third_label ? strlen(s->third_label) : 0));
    TR_TRY(tr_names_archive(a, s->tr, &s->row_names));
    TR_TRY(tr_names_archive(a, s->tr, &s->column_names));
    data->row_names = s->row_names;
    data->column_names = s->column_names;
    TR_TRY(tr_archive_array(a, &s->scale, s->scale ? sizeof *s->scale : 0));
    struct tr_scale *scale = s->scale;
    if (!scale) return TR_OK;
    uint64_t bytes = scale->share.n * sizeof(double), of_shift = scale->shift ? bytes : 0;
    if (!a->writes) scale->shift = scale->factor = NULL;
    TR_TRY(tr_archive_array(a, &scale->shift, of_shift));
    TR_TRY(tr_archive_array(a, &scale->factor, bytes));
    scale->share.shift = scale->shift;
    scale->share.factor = scale->factor;
    data->scaling = &scale->share;
    return TR_OK;
}

static int cache_write_head(tr_data *data)
{
    const struct tr_cached *c = data->state->cached;
    TR_CLOSED_BY(tr_archive_free) struct tr_archive a = {.writes = true};
    TR_CLOSED_BY(tr_row_file_close) struct tr_row_file *file = NULL;
    struct head h;
    TR_TRY(archive_data(&a, data, &h));
    void **const array[] = {(void **)&a.bytes};
    const uint64_t bytes[] = {a.n};
    return row_file_move(c->head, c->key, array, bytes, 1, &file);
}

/* ---- finding ---- */

static int cache_restore(tr_data *data)
{
    struct tr_data_state *s = data->state;
    struct tr_cached *c = s->cached;
    TR_CLOSED_BY(tr_row_file_close) struct tr_row_file *file = NULL;
    struct head h;
    bool shared = tr_data_is_shared(s->tr);
    TR_TRY(row_file_open(c->head, c->key, 1, 0, 1, &file));
    struct tr_archive a = {.bytes = tr_row_file_at(file, 0), .n = (size_t)file->directory->array[0].bytes};
    TR_TRY(archive_data(&a, data, &h));
    if (h.arrays != 0) {
        size_t member = shared ? (size_t)s->tr->me.member : 0,
               members = shared ? (size_t)s->tr->layout.group_size : 1;
        if (s->on_disk)
            members = 0; /* checks no checksums now: a pass checks those of the blocks that it reads */
        TR_TRY(row_file_open(c->rows, h.generation, TR_ROW_ARRAYS, member, members, &s->file));
        tr_row_store_attach(data, h.arrays);
    }
    c->generation = h.generation;
    return TR_OK;
}

int tr_row_store_find(tr_data *data, const char *what, const char *key, bool *found)
{
    struct tr_data_state *s = data->state;
    tr_context *tr = s->tr;
    *found = false;
    TR_TRY(cache_enter(tr, s->on_disk));
    if (!cache_place(data)->wanted) return TR_OK;

    /* each rank has its own files; with another layout it has other rows, so the layout is a part of the key */
    const struct tr_layout *layout = &tr->layout;
    const char *folder = cache_place(data)->path;
    int shared = tr_data_is_shared(tr), length = (int)strcspn(what, " "), rank = tr->rank;
    int owner = shared ? layout->worker_rank[tr->me.group * layout->group_size] : rank;
    TR_FREED char *text = NULL, *pattern = NULL;
    int status = TR_NEW(&s->cached, 1);
    struct tr_cached *c = s->cached;
    if (status == TR_OK)
        status =
            tr_format(&text, "%s: rank %d of %d, roles %u, group %d of %d, member %d of %d, shared %d\n%s",
                      TR_VERSION, rank, tr->size, tr->me.roles, tr->me.group, layout->groups, tr->me.member,
                      layout->group_size, shared, key);
    if (status == TR_OK) c->key = row_key_of(text, strlen(text));
    if (status == TR_OK) status = tr_format(&c->head, "%s/%.*s-%d", folder, length, what, rank);
    if (status == TR_OK) status = tr_format(&c->rows, "%s/%.*s-%d.rows", folder, length, what, owner);
    TR_TRY(tr_agree(tr, status));
    const struct tr_data_state before = *s;
    status = cache_restore(data);

    /* All ranks must have found files of the same generation. Compute maxima of: not found; found, but damaged or with another key;
     * the two words of the generation, and their inverses: an inverted maximum of inverses is a minimum, which must equal the
     * maximum. */
    const uint64_t *g = c->generation.word;
    uint64_t most[6] = {status != TR_OK, status == TR_ERR_DATA, g[0], ~g[0], g[1], ~g[1]};
    TR_TRY(tr_all_reduce(tr, TR_SET_ALL, TR_MAX, TR_I64, most, 6));
    *found = c->found = !most[0] && most[2] == ~most[3] && most[4] == ~most[5];
    if (*found) return TR_OK;
    if (most[1] || !most[0])
        tr_say(tr, "note:          the kept %s belong to other files or ranks, or are damaged", what);

    /* Undo cache_restore(): at least one rank has not found its row files of the earlier start, so all ranks read the input files. */
    tr_data_free_head(data);
    tr_row_file_close(&s->file);
    *s = before;
    *data = (tr_data){.state = s};

    /* Remove all files of older data, perhaps of other ranks, before any rank makes new files. */
    glob_t old;
    if (tr->cache->leads && tr_format(&pattern, "%s/%.*s-*", folder, length, what) == TR_OK &&
        glob(pattern, GLOB_NOSORT, NULL, &old) == 0) {
        for (size_t i = 0; i < old.gl_pathc; i++) unlink(old.gl_pathv[i]);
        globfree(&old);
    }
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    uint64_t facts[3] = {(uint64_t)now.tv_sec, (uint64_t)now.tv_nsec, (uint64_t)getpid()};
    c->generation = row_key_of(facts, sizeof facts);
    TR_TRY(tr_barrier(tr, tr->world, "all ranks to begin to read data"));
    return tr_broadcast(tr, TR_SET_ALL, 0, &c->generation, sizeof c->generation);
}

/* ---- keeping ---- */

/* Sets *enough: each node has twice the memory that its ranks need (`bytes`). If not, prints that data are not kept. All ranks. */
static int cache_has_memory(tr_data *data, uint64_t bytes, bool *enough)
{
    tr_context *tr = data->state->tr;
    struct tr_persistent_bases bases;
    *enough = false;
    if (!data->state->cached) return TR_OK;
    tr_persistent_bases(&bases);
    uint64_t memory = tr_memory_free(), space = tr_persistent_free(bases.base[0]);
    TR_TRY(tr_all_reduce(tr, TR_SET_NODE, TR_SUM, TR_I64, &bytes, 1));
    *enough = bytes <= (memory < space ? memory : space) / 2;
    TR_TRY(all_true(tr, TR_SET_ALL, enough));
    if (!*enough) cache_say_not_kept(tr, "memory has not twice the room for them");
    return TR_OK;
}

/* Moves the rows of this rank from the heap into a file with this path. */
static int cache_move_rows(tr_data *data, const char *path)
{
    struct tr_row_shape shape = rows_shape(data);
    uint64_t bytes[TR_ROW_ARRAYS];
    void **array[TR_ROW_ARRAYS];
    if (shape.arrays == 0) return TR_OK;
    (void)tr_row_store_measure(&shape, bytes);
    for (size_t i = 0; i < TR_ROW_ARRAYS; i++) array[i] = tr_row_store_array(data, i);
    TR_TRY(row_file_move(path, data->state->cached->generation, array, bytes, TR_ROW_ARRAYS,
                         &data->state->file));
    tr_row_store_attach(data, shape.arrays);
    return TR_OK;
}

int tr_row_store_keep(tr_data *data)
{
    struct tr_data_state *s = data->state;
    struct tr_row_shape shape = rows_shape(data);
    uint64_t bytes[TR_ROW_ARRAYS];
    bool well, shared = tr_data_is_shared(s->tr);
    if (!s->cached) return TR_OK;
    if (s->on_disk) { /* the rows are in a file already */
        int status = s->file ? tr_disk_sum(s->file) : TR_OK;
        if (status == TR_OK && s->file) row_file_seal(s->file);
        if (status == TR_OK) status = cache_write_head(data);
        return tr_agree(s->tr, status);
    }
    TR_TRY(cache_has_memory(data, shared ? 0 : tr_row_store_measure(&shape, bytes), &well));
    if (!well) return TR_OK;
    if (!shared) {
        well = cache_move_rows(data, s->cached->rows) == TR_OK;
    } else if ((well = !s->file->unnamed)) { /* each member computes the sums of a range */
        row_file_sum(s->file, (size_t)s->tr->me.member, (size_t)s->tr->layout.group_size);
        TR_TRY(tr_barrier(s->tr, s->tr->group, "the group to sum its rows"));
        if (s->tr->me.member == 0) row_file_seal(s->file);
    }
    well = well && cache_write_head(data) == TR_OK;
    const char *why = well ? "" : tr_error_text();
    bool all = well;
    TR_TRY(all_true(s->tr, TR_SET_ALL, &all));
    if (all) return TR_OK;
    unlink(s->cached->head); /* rows that were moved stay in the unlinked file until it is closed */
    if (!shared || s->tr->me.member == 0) unlink(s->cached->rows);
    cache_say_not_kept(s->tr, why);
    return TR_OK;
}

static void cached_free(struct tr_data_state *s)
{
    if (!s->cached) return;
    free(s->cached->head);
    free(s->cached->rows);
    free(s->cached);
    s->cached = NULL;
}

/* ---- pooling: several teams ---- */

/* Registers this process as a user of a pooled file, by a shared lock. Returns false if the file was removed meanwhile. */
static bool pool_join(const struct tr_row_file *file, const char *path)
{
    return flock(file->fd, LOCK_SH | LOCK_NB) == 0 && tr_is_still_at(file->fd, path);
}

/* Uses the file of another team, if it exists, instead of this rank's arrays in the file `own` (NULL: in the heap). */
static bool pool_use(tr_data *data, struct tr_row_file *own)
{
    struct tr_cached *c = data->state->cached;
    TR_CLOSED_BY(tr_row_file_close) struct tr_row_file *file = NULL;
    if (row_file_open(c->rows, c->generation, TR_ROW_ARRAYS, 0, 0, &file) != TR_OK) return false;
    if (!pool_join(file, c->rows)) return false;
    uint64_t arrays = rows_shape(data).arrays;
    if (!own) rows_free(data, TR_ROW_ARRAYS);
    data->state->file = file;
    file = NULL;
    tr_row_store_attach(data, arrays);
    c->found = true;
    return true;
}

/* Makes a pooled file: writes it under a temporary name, and then links it to its final name, so that other teams never find an
 * incomplete file. If another team was faster, its file is used. */
static int pool_make(tr_data *data, const char *folder)
{
    struct tr_data_state *s = data->state;
    const tr_context *tr = s->tr;
    TR_FREED char *key = NULL, *made = NULL;
    TR_TRY(tr_format(&key, "worker %d\n%s", tr->me.group * tr->layout.group_size + tr->me.member,
                     s->store->key));
    TR_TRY(TR_NEW(&s->cached, 1));
    struct tr_cached *c = s->cached;
    c->generation = row_key_of(key, strlen(key));
    TR_TRY(tr_format(&c->rows, "%s/%016llx%016llx", folder, (unsigned long long)c->generation.word[0],
                     (unsigned long long)c->generation.word[1]));
    if (pool_use(data, NULL)) return TR_OK;
    TR_TRY(tr_format(&made, "%s.%ld", c->rows, (long)getpid()));
    (void)cache_move_rows(data, made);
    struct tr_row_file *own = s->file;
    if (own) (void)pool_join(own, made);
    if (own && link(made, c->rows) < 0 && pool_use(data, own)) tr_row_file_close(&own);
    unlink(made);
    return TR_OK;
}

void tr_row_store_pool(tr_data *data)
{
    struct tr_data_state *s = data->state;
    const char *folder = s->node_rows ? s->node_rows->folder : NULL;
    bool forgets = s->form & TR_DATA_CODES || tr_data_is_triples(data);
    if (!folder || s->file || s->cached || forgets || !tr_is(s->tr, TR_SLAVE)) return;
    (void)pool_make(data, folder);
    if (s->file) s->cached->pooled = true;
    else cached_free(s);
}

/* ---- sharing: the rows of a group ---- */

bool tr_data_is_shared(const tr_context *tr)
{
    const struct tr_layout *layout = &tr->layout;
    if (tr->job->data.partition != TR_DATA_REPLICATED || !tr_is(tr, TR_SLAVE) || layout->group_size < 2)
        return false;
    for (int m = 0; m < layout->group_size; m++)
        if (!tr_same_node(tr, layout->worker_rank[tr->me.group * layout->group_size + m])) return false;
    return true;
}

struct sharing {
    tr_data *data;
    bool all_columns;    /* all columns are keys; false: columns are indices of `own` */
    const uint32_t *own; /* the n_own keys of this member */
    size_t n_own;
    uint32_t *piece;                       /* this member's range of the group's keys: mine.keys keys */
    struct tr_row_shape before, mine, all; /* sums over the members before this one; this member; all */
    bool kept;                             /* the file is kept for the next start of the job */
};

/* Computes the shapes, and this member's range of the group's keys: of the union of keys, or of all columns. */
static int sharing_plan(struct sharing *m)
{
    tr_context *tr = m->data->state->tr;
    uint64_t members = (uint64_t)tr->layout.group_size, me = (uint64_t)tr->me.member;
    size_t n = (size_t)(m->data->columns * (me + 1) / members - m->data->columns * me / members);
    TR_FREED struct tr_row_shape *every = NULL;
    if (!m->all_columns) TR_TRY(tr_unite_keys(tr, m->own, m->n_own, &m->piece, &n));
    m->mine = rows_shape(m->data);
    m->mine.keys = n;
    TR_TRY(TR_NEW(&every, members));
    TR_TRY(tr_all_gather(tr, TR_SET_GROUP, &m->mine, sizeof m->mine, every));
    for (uint64_t k = 0; k < members; k++) {
        struct tr_row_shape *sums[] = {&m->all, &m->before};
        for (int i = 0; i < (k < me ? 2 : 1); i++) {
            sums[i]->rows += every[k].rows;
            sums[i]->values += every[k].values;
            sums[i]->keys += every[k].keys;
            sums[i]->arrays |= every[k].arrays;
        }
    }
    m->all.arrays |= 1u << TR_ROWS_KEYS;
    m->all.arrays |=
        m->data->state->rows.columns > 0 ? 1u << TR_ROWS_VALUE : 1u << TR_ROWS_BEGIN | 1u << TR_ROWS_COLUMN;
    return TR_OK;
}

/* Member 0 creates a file for the rows of the group, and the others open it. key = NULL: unlinks it when all members have opened
 * it. Sets *well: all members can write to it. */
static int sharing_open_file(struct sharing *m, const char *path, const struct tr_row_key *key, bool *well)
{
    struct tr_row_file **file = &m->data->state->file;
    tr_context *tr = m->data->state->tr;
    size_t member = (size_t)tr->me.member, members = (size_t)tr->layout.group_size;
    const struct tr_row_key none = {{0}};
    uint64_t bytes[TR_ROW_ARRAYS];
    (void)tr_row_store_measure(&m->all, bytes);
    *well =
        member > 0 || tr_row_file_create(path, key ? *key : none, bytes, TR_ROW_ARRAYS, false, file) == TR_OK;
    TR_TRY(all_true(tr, TR_SET_GROUP, well));
    if (*well && member > 0) { /* opens the file for writing, too */
        struct stat about;
        int status = row_file_start(path, O_RDWR, file);
        if (status == TR_OK && fstat((*file)->fd, &about) < 0) status = row_file_failed(TR_ERR_IO, path);
        if (status == TR_OK) status = row_file_map(*file, (uint64_t)about.st_size, PROT_READ | PROT_WRITE, 0);
        if (status == TR_OK) row_file_find_directory(*file);
        else tr_row_file_close(file);
        *well = status == TR_OK;
    }
    TR_TRY(all_true(tr, TR_SET_GROUP, well));
    if (*well && !key) { /* a process holds a shared lock as long as it needs the arrays */
        (void)flock((*file)->fd, LOCK_SH);
        (void)unlink(path); /* only the first process can unlink the file; the calls of the others fail */
        (*file)->unnamed = true;
    }
    if (*well) *well = row_file_reserve(*file, member, members) == TR_OK;
    TR_TRY(all_true(tr, TR_SET_GROUP, well));
    if (*well) return TR_OK;
    tr_row_file_close(file);
    if (member == 0) unlink(path);
    return TR_OK;
}

static int sharing_open(struct sharing *m)
{
    tr_context *tr = m->data->state->tr;
    const struct tr_cached *c = m->data->state->cached;
    char path[TR_HOST_BYTES + 400] = "", pid[24];
    TR_FREED char *mine = NULL;
    bool well = false;
    TR_TRY(tr_barrier(tr, tr->group, "the group to open its memory"));
    if (m->kept) TR_TRY(sharing_open_file(m, c->rows, &c->generation, &well));
    if (well) return TR_OK;
    snprintf(pid, sizeof pid, "%ld", (long)getpid());
    TR_TRY(unnamed_path(pid, &mine));
    snprintf(path, sizeof path, "%s", mine);
    TR_TRY(tr_broadcast(tr, TR_SET_GROUP, 0, path, sizeof path));
    TR_TRY(sharing_open_file(m, path, NULL, &well));
    return well ? TR_OK : tr_fail(TR_ERR_SYSTEM, "%s: there is no room for rows that a group shares", path);
}

/* Each member writes its range of the keys, finds the indices of its own keys among all keys, and moves its rows behind those of
 * the members before it. Memory of the heap is freed as soon as its rows are moved, so that the node needs hardly more memory than
 * the rows take. */
static int sharing_move(struct sharing *m)
{
    struct tr_data_state *s = m->data->state;
    const struct tr_row_shape *mine = &m->mine, *before = &m->before;
    const uint64_t first[] = {before->rows + 1, before->values, before->values,
                              before->rows,     before->rows,   before->rows},
                   n[] = {mine->rows, mine->values, mine->values, mine->rows, mine->rows, mine->rows},
                   some = ((uint64_t)4 << 20) / sizeof *s->rows.column;
    tr_key *keys = tr_row_file_at(s->file, TR_ROWS_KEYS);
    TR_FREED uint32_t *number = NULL; /* index of each own key among the group's keys; NULL: equal */
    size_t u = 0;
    if (!m->all_columns) TR_TRY(TR_NEW(&number, m->n_own));
    for (uint64_t i = 0, at = before->keys; i < mine->keys; i++, at++)
        keys[at] = m->all_columns ? at : m->piece[i];
    TR_TRY(tr_barrier(s->tr, s->tr->group, "the group to unite keys"));
    for (size_t i = 0; number && i < m->n_own; i++) {
        while (keys[u] < m->own[i]) u++;
        number[i] = (uint32_t)u;
    }
    for (size_t i = 0; i < TR_ROWS_KEYS; i++) {
        if (!(m->all.arrays >> i & 1)) continue;
        void **array = tr_row_store_array(m->data, i), *at = tr_row_file_at(s->file, i),
             *to = (char *)at + first[i] * tr_row_unit[i];
        if (i == TR_ROWS_BEGIN) {
            uint64_t *begin = at;
            if (s->tr->me.member == 0) begin[0] = 0;
            for (uint64_t k = 1; k <= n[i]; k++) begin[before->rows + k] = before->values + s->rows.begin[k];
            rows_free(m->data, 1);
        } else if (i == TR_ROWS_COLUMN && number) {
            uint32_t *from = s->rows.column, *column = to;
            for (uint64_t k = 0, end; k < n[i]; k = end) {
                end = k + (n[i] - k < some ? n[i] - k : some);
                for (uint64_t j = k; j < end; j++) column[j] = number[from[j]];
                tr_pages_give_back(from + k, (end - k) * sizeof *from);
            }
            free(from);
            s->rows.column = NULL;
        } else if (i == TR_ROWS_VALUE && !s->rows.value) { /* all values of this member are 1 */
            for (uint64_t k = 0; k < n[i]; k++) ((float *)to)[k] = 1;
        } else {
            tr_pages_move(to, array, n[i], tr_row_unit[i]);
        }
    }
    tr_row_store_attach(m->data, m->all.arrays);
    s->rows.rows = (size_t)m->all.rows;
    m->data->n_keys = (size_t)m->all.keys;
    return tr_barrier(s->tr, s->tr->group, "the group to share rows");
}

static void sharing_close(struct sharing *m)
{
    free(m->piece);
}

int tr_row_store_share(tr_data *data, const uint32_t *keys, size_t n_keys, bool all_columns)
{
    tr_context *tr = data->state->tr;
    bool takes_part = tr_data_is_shared(tr);
    TR_CLOSED_BY(sharing_close)
    struct sharing m = {.data = data, .all_columns = all_columns, .own = keys, .n_own = n_keys};
    struct tr_persistent_bases bases;
    uint64_t bytes[TR_ROW_ARRAYS], mine = 0;
    TR_TRY(tr_agree(tr, takes_part ? sharing_plan(&m) : TR_OK));
    if (takes_part && tr->me.member == 0) mine = tr_row_store_measure(&m.all, bytes);

    /* check the space on all ranks of the node together; member 0 counts the rows of its group */
    tr_persistent_bases(&bases);
    uint64_t space = tr_persistent_free(bases.base[0]), sum = mine;
    TR_TRY(tr_all_reduce(tr, TR_SET_NODE, TR_SUM, TR_I64, &sum, 1));
    int status = TR_OK;
    if (sum > space)
        status = tr_fail(TR_ERR_SYSTEM,
                         "%s: data.partition: replicated rows need %.1f MB of shared memory on this node, "
                         "but %s has %.1f MB free",
                         tr_job_where(tr->job, "data.partition"), (double)sum / 1e6, bases.base[0],
                         (double)space / 1e6);
    TR_TRY(tr_agree(tr, status));
    TR_TRY(cache_has_memory(data, mine, &m.kept));
    status = tr_agree(tr, takes_part ? sharing_open(&m) : TR_OK);
    if (status != TR_OK) tr_row_file_close(&data->state->file); /* the rows are still in the heap */
    TR_TRY(status);
    return tr_agree(tr, takes_part ? sharing_move(&m) : TR_OK);
}

/* ---- the end of the rows ---- */

void tr_row_store_forget(tr_data *data)
{
    struct tr_data_state *s = data->state;
    struct tr_row_file *f = s->file;
    tr_row_stream_close(&s->stream);
    if (!f) {
        rows_free(data, TR_ROWS_LABEL);
        return;
    }
    uint64_t first = f->directory->array[0].first, bytes = f->directory->array[TR_ROWS_LABEL].first - first;
    if (bytes == 0) return;
    /* the memory of an unlinked file is freed by the last process that needs the arrays: only it gets an exclusive lock */
    if (f->unnamed && flock(f->fd, LOCK_EX | LOCK_NB) == 0)
        (void)fallocate(f->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)first, (off_t)bytes);
    /* the range stays mapped, so that tr_row_file_close() can unmap the whole file; but reading it raises SIGSEGV */
    (void)mmap(row_file_address(f, first), (size_t)bytes, PROT_NONE,
               MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
}

void tr_row_store_close(tr_data *data)
{
    struct tr_data_state *s = data->state;
    const struct tr_cached *c = s->cached;
    tr_row_stream_close(&s->stream);
    if (!s->file) rows_free(data, TR_ROW_ARRAYS);
    if (c && c->pooled && flock(s->file->fd, LOCK_EX | LOCK_NB) == 0 && tr_is_still_at(s->file->fd, c->rows))
        unlink(c->rows); /* no other process uses this file, so it is removed */
    tr_row_file_close(&s->file);
    cached_free(s);
}
