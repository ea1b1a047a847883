#define _GNU_SOURCE
#include "data/cache_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/pages.h"
#include "store/checked.h"

#define FORMAT "trireme-data"
enum { VERSION = 2 };

#define PIECE ((uint64_t)1 << 20) /* bytes of the area that have a sum */

struct directory {
    struct tr_cache_key key;
    uint64_t arrays;
    struct place {
        uint64_t first, bytes; /* in the file */
    } place[];
};

/* A file that is mapped as a whole: its header, then the area. */
struct tr_cache_file {
    char *path;
    int fd;
    struct tr_checked_header *header;
    struct tr_checked_area *area;
    uint64_t *sum;
    struct directory *directory;
    bool hidden; /* it has no name */
    bool stays;  /* what is dropped may stay in the system's cache */
    bool *whole; /* of each piece: its sum has been compared, and is right; NULL: none has */
};

/* ---- what is in a file ---- */

struct tr_cache_key tr_cache_key_of(const void *bytes, size_t n)
{
    XXH128_hash_t hash = XXH3_128bits(bytes, n);
    return (struct tr_cache_key){{hash.low64, hash.high64}};
}

static char *bytes_at(const struct tr_cache_file *f, uint64_t first)
{
    return (char *)f->header + first;
}

void *tr_cache_file_at(const struct tr_cache_file *file, size_t i, uint64_t *bytes)
{
    const struct place *place = &file->directory->place[i];
    if (bytes) *bytes = place->bytes;
    return bytes_at(file, place->first);
}

static uint64_t directory_bytes(uint64_t arrays)
{
    return sizeof(struct directory) + arrays * sizeof(struct place);
}

static int failed(int status, const char *path)
{
    return tr_fail(status, "%s: %s", path, strerror(errno));
}

/* Maps a file of so many bytes. */
static int map(struct tr_cache_file *f, uint64_t bytes, int protection, int flags)
{
    void *memory = mmap(NULL, bytes, protection, MAP_SHARED | flags, f->fd, 0);
    if (memory == MAP_FAILED) return failed(TR_ERR_SYSTEM, f->path);
    f->header = memory;
    f->area = (struct tr_checked_area *)(void *)(f->header + 1);
    f->sum = (uint64_t *)(void *)(f->area + 1);
    return TR_OK;
}

static void find_directory(struct tr_cache_file *f)
{
    f->directory = (struct directory *)(void *)(f->sum + f->header->sums);
}

static int start(const char *path, int flags, struct tr_cache_file **file)
{
    TR_TRY(TR_NEW(file, 1));
    (*file)->fd = -1;
    TR_TRY(tr_copy_string(path, &(*file)->path));
    (*file)->fd = open(path, flags | O_CLOEXEC | O_NOFOLLOW, 0600);
    return (*file)->fd < 0 ? failed(TR_ERR_NO_OUTPUT, path) : TR_OK;
}

void tr_cache_file_close(struct tr_cache_file **file)
{
    struct tr_cache_file *f = *file;
    if (!f) return;
    if (f->header) munmap(f->header, f->header->bytes);
    if (f->fd >= 0) close(f->fd);
    free(f->whole);
    free(f->path);
    free(f);
    *file = NULL;
}

/* ---- writing ---- */

/* fallocate() that is not disturbed by signals. */
static int take_room(struct tr_cache_file *f, uint64_t first, uint64_t bytes)
{
    if (bytes == 0) return TR_OK;
    if (TR_FAULT("cache.room") == TR_FAULT_ENOSPC) {
        errno = ENOSPC;
        return failed(TR_ERR_IO, f->path);
    }
    while (fallocate(f->fd, 0, (off_t)first, (off_t)bytes) < 0) {
        if (errno == EOPNOTSUPP) errno = posix_fallocate(f->fd, (off_t)first, (off_t)bytes);
        if (errno == 0) break;
        if (errno != EINTR) return failed(TR_ERR_IO, f->path);
    }
    return TR_OK;
}

/* The header is complete but for the format and the digest, without which nobody takes the file for one that is whole. */
static int lay_out(struct tr_cache_file *f, struct tr_cache_key key, const uint64_t *bytes, size_t n)
{
    uint64_t area = 0, header;
    for (size_t i = 0; i < n; i++) area += tr_to_pages(bytes[i]);
    const uint64_t sums = (area + PIECE - 1) / PIECE;
    header = tr_to_pages(tr_checked_header_bytes(1, sums, directory_bytes(n)));
    if (ftruncate(f->fd, (off_t)(header + area)) < 0) return failed(TR_ERR_IO, f->path);
    TR_TRY(take_room(f, 0, header)); /* else the first touch might kill us */
    TR_TRY(map(f, header + area, PROT_READ | PROT_WRITE, 0));
    *f->header = (struct tr_checked_header){.version = VERSION,
                                            .order = TR_CHECKED_ORDER,
                                            .bytes = header + area,
                                            .header = header,
                                            .areas = 1,
                                            .sums = sums,
                                            .directory = directory_bytes(n)};
    *f->area = (struct tr_checked_area){header, area, PIECE, 0};
    find_directory(f);
    f->directory->key = key;
    f->directory->arrays = n;
    for (size_t i = 0; i < n; header += tr_to_pages(bytes[i++]))
        f->directory->place[i] = (struct place){header, bytes[i]};
    return TR_OK;
}

int tr_cache_file_create(const char *path, struct tr_cache_key key, const uint64_t *bytes, size_t n,
                         struct tr_cache_file **file)
{
    *file = NULL;
    /* whoever still has an old one keeps it: it is not overwritten */
    if (unlink(path) < 0 && errno != ENOENT) return failed(TR_ERR_NO_OUTPUT, path);
    int status = start(path, O_RDWR | O_CREAT | O_EXCL, file);
    if (status == TR_OK) status = lay_out(*file, key, bytes, n);
    if (status == TR_OK) return TR_OK;
    if (*file && (*file)->fd >= 0) unlink(path);
    tr_cache_file_close(file);
    return status;
}

int tr_cache_file_join(const char *path, struct tr_cache_file **file)
{
    struct stat about;
    int status = start(path, O_RDWR, file);
    if (status == TR_OK && fstat((*file)->fd, &about) < 0) status = failed(TR_ERR_IO, path);
    if (status == TR_OK) status = map(*file, (uint64_t)about.st_size, PROT_READ | PROT_WRITE, 0);
    if (status == TR_OK) find_directory(*file);
    else tr_cache_file_close(file);
    return status;
}

int tr_cache_file_reserve(struct tr_cache_file *file, size_t share, size_t shares)
{
    for (size_t i = 0; i < file->directory->arrays; i++) {
        const struct place *place = &file->directory->place[i];
        uint64_t page = tr_page_bytes(), pages = tr_to_pages(place->bytes) / page;
        uint64_t first = pages * share / shares, end = pages * (share + 1) / shares;
        TR_TRY(take_room(file, place->first + first * page, (end - first) * page));
    }
    return TR_OK;
}

static uint64_t sum_of(const struct tr_cache_file *f, uint64_t piece)
{
    uint64_t at = piece * PIECE, left = f->area->bytes - at;
    return XXH3_64bits(bytes_at(f, f->area->first + at), left < PIECE ? left : PIECE);
}

void tr_cache_file_sum(struct tr_cache_file *file, size_t share, size_t shares)
{
    uint64_t sums = file->header->sums, end = sums * (share + 1) / shares;
    for (uint64_t i = sums * share / shares; i < end; i++) {
        (void)TR_FAULT("cache.sum");
        file->sum[i] = sum_of(file, i);
    }
    /* from here on a mistake is a fault, and not other data after the next start */
    if (sums > 0) (void)mprotect(bytes_at(file, file->area->first), file->area->bytes, PROT_READ);
}

void tr_cache_file_seal(struct tr_cache_file *file)
{
    struct tr_checked_header *h = file->header;
    memcpy(h->format, FORMAT, sizeof FORMAT);
    h->digest = 0;
    uint64_t digest = XXH3_64bits(h, h->header);
    atomic_thread_fence(memory_order_seq_cst);
    h->digest = digest;
}

/* ---- reading ---- */

static int odd(const struct tr_cache_file *f, const char *what)
{
    return tr_fail(TR_ERR_DATA, "%s: %s", f->path, what);
}

/* All of it has been checked, but for the area. */
static int check_directory(const struct tr_cache_file *f, struct tr_cache_key key, size_t n)
{
    const struct tr_checked_header *h = f->header;
    const struct directory *d = f->directory;
    uint64_t at = h->header;
    if (h->areas != 1 || h->directory != directory_bytes(n) || d->arrays != n || f->area->first != at ||
        f->area->bytes != h->bytes - at || h->sums != (f->area->bytes + PIECE - 1) / PIECE)
        return odd(f, "damaged: odd directory");
    if (memcmp(&d->key, &key, sizeof key) != 0) return odd(f, "of other data");
    for (size_t i = 0; i < n; at += tr_to_pages(d->place[i++].bytes))
        if (d->place[i].first != at || d->place[i].bytes > h->bytes - at) return odd(f, "damaged: odd array");
    return at == h->bytes ? TR_OK : odd(f, "damaged: odd size");
}

static int check_sums(const struct tr_cache_file *f, size_t share, size_t shares)
{
    uint64_t sums = f->header->sums, end = sums * (share + 1) / shares;
    for (uint64_t i = sums * share / shares; i < end; i++)
        if (sum_of(f, i) != f->sum[i]) return odd(f, "damaged: it is not what was written");
    return TR_OK;
}

int tr_cache_file_open(const char *path, struct tr_cache_key key, size_t n, size_t share, size_t shares,
                       struct tr_cache_file **file)
{
    struct tr_checked checked;
    *file = NULL;
    int status = tr_checked_open(&checked, path, FORMAT, VERSION);
    if (status == TR_OK) status = start(path, O_RDONLY, file);
    if (status == TR_OK) status = map(*file, checked.header->bytes, PROT_READ, shares > 0 ? MAP_POPULATE : 0);
    if (status == TR_OK && memcmp((*file)->header, checked.header, checked.header->header) != 0)
        status = odd(*file, "damaged: it changes");
    tr_checked_close(&checked);
    if (status == TR_OK) {
        find_directory(*file);
        status = check_directory(*file, key, n);
    }
    if (status == TR_OK && shares > 0) status = check_sums(*file, share, shares);
    if (status != TR_OK) tr_cache_file_close(file);
    return status;
}

/* ---- of several processes ---- */

bool tr_cache_file_use(const struct tr_cache_file *file, const char *path)
{
    return flock(file->fd, LOCK_SH | LOCK_NB) == 0 && tr_is_still_at(file->fd, path);
}

void tr_cache_file_leave(const struct tr_cache_file *file, const char *path)
{
    if (flock(file->fd, LOCK_EX | LOCK_NB) == 0 && tr_is_still_at(file->fd, path)) unlink(path);
}

/* ---- on a disk ---- */

const char *tr_cache_file_path(const struct tr_cache_file *file)
{
    return file->path;
}

uint64_t tr_cache_file_place(const struct tr_cache_file *file, size_t i)
{
    return file->directory->place[i].first;
}

/* The pages that hold these bytes; or, without the last one, those that nothing behind them needs. */
static void to_whole_pages(uint64_t *first, uint64_t *n, bool last)
{
    uint64_t page = tr_page_bytes(), end = *first + *n;
    *first = *first / page * page;
    *n = (last ? (end + page - 1) / page * page : end / page * page) - *first;
    if (*first > end) *n = 0;
}

void tr_cache_file_ask(const struct tr_cache_file *file, uint64_t first, uint64_t n)
{
    if (n > 0) (void)posix_fadvise(file->fd, (off_t)first, (off_t)n, POSIX_FADV_WILLNEED);
}

int tr_cache_file_fetch(const struct tr_cache_file *file, uint64_t first, uint64_t n)
{
    to_whole_pages(&first, &n, true);
    if (n == 0) return 0;
#ifdef MADV_POPULATE_READ
    while (madvise(bytes_at(file, first), n, MADV_POPULATE_READ) < 0)
        if (errno == EFAULT) return EIO;
        else if (errno != EINTR && errno != EAGAIN) break;
        else continue;
#endif
    return 0; /* else pages come when they are touched */
}

void tr_cache_file_set_stays(struct tr_cache_file *file, bool stays)
{
    file->stays = stays;
}

bool tr_cache_file_stays(const struct tr_cache_file *file)
{
    return file->stays;
}

void tr_cache_file_drop(const struct tr_cache_file *file, uint64_t first, uint64_t n, bool follows)
{
    const uint64_t before = follows ? (uint64_t)1 << 20 : 0; /* the system holds more than a page together */
    to_whole_pages(&first, &n, false);
    if (n == 0) return;
    (void)madvise(bytes_at(file, first), n, MADV_DONTNEED);
    if (file->stays) return;
    uint64_t more = first < before ? first : before;
    (void)posix_fadvise(file->fd, (off_t)(first - more), (off_t)(n + more), POSIX_FADV_DONTNEED);
}

void tr_cache_file_send(const struct tr_cache_file *file, uint64_t first, uint64_t n)
{
    if (n > 0) (void)sync_file_range(file->fd, (off_t)first, (off_t)n, SYNC_FILE_RANGE_WRITE);
}

void tr_cache_file_settle(const struct tr_cache_file *file, uint64_t first, uint64_t n)
{
    if (n > 0)
        (void)sync_file_range(file->fd, (off_t)first, (off_t)n,
                              SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE |
                                  SYNC_FILE_RANGE_WAIT_AFTER);
    tr_cache_file_drop(file, first, n, true);
}

bool tr_cache_file_is_whole(struct tr_cache_file *file, uint64_t first, uint64_t n)
{
    if (n == 0) return true;
    if (!file->whole) file->whole = calloc(file->header->sums, sizeof *file->whole);
    uint64_t begin = (first - file->area->first) / PIECE, end = (first + n - 1 - file->area->first) / PIECE;
    for (uint64_t i = begin; i <= end; i++) {
        if (file->whole && file->whole[i]) continue;
        if (sum_of(file, i) != file->sum[i]) return false;
        if (file->whole) file->whole[i] = true;
    }
    return true;
}

int tr_cache_file_sum_on_disk(struct tr_cache_file *file)
{
    const uint64_t sums = file->header->sums, some = 8;
    for (uint64_t i = 0; i < sums; i += some) {
        uint64_t end = i + some < sums ? i + some : sums, first = file->area->first + i * PIECE;
        uint64_t n = i + some < sums ? some * PIECE : file->area->bytes - i * PIECE;
        tr_cache_file_ask(file, first + n, end + some < sums ? some * PIECE : 0);
        (void)TR_FAULT("cache.sum");
        for (uint64_t k = i; k < end; k++) file->sum[k] = sum_of(file, k);
        tr_cache_file_settle(file, first, n);
    }
    if (sums > 0) (void)mprotect(bytes_at(file, file->area->first), file->area->bytes, PROT_READ);
    return fdatasync(file->fd) < 0 ? failed(TR_ERR_IO, file->path) : TR_OK;
}

void tr_cache_file_spoil(const struct tr_cache_file *file)
{
    (void)unlink(file->path);
}

/* The lock is shared by all who still need the arrays. */
void tr_cache_file_hide(struct tr_cache_file *file)
{
    (void)flock(file->fd, LOCK_SH);
    (void)unlink(file->path); /* the first does */
    file->hidden = true;
}

bool tr_cache_file_is_hidden(const struct tr_cache_file *file)
{
    return file->hidden;
}

uint64_t tr_cache_file_bytes(const struct tr_cache_file *file)
{
    return file->header->bytes;
}

void tr_cache_file_forget(struct tr_cache_file *file, size_t first, size_t last)
{
    const struct place *begin = &file->directory->place[first], *end = &file->directory->place[last];
    uint64_t n = end->first + tr_to_pages(end->bytes) - begin->first;
    if (n == 0) return;
    if (file->hidden && flock(file->fd, LOCK_EX | LOCK_NB) == 0)
        (void)fallocate(file->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)begin->first, (off_t)n);
    /* not unmapped, so that closing need not know: nothing is there any more that could be read by mistake */
    (void)mmap(bytes_at(file, begin->first), (size_t)n, PROT_NONE,
               MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
}
