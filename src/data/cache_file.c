#define _GNU_SOURCE
#include "data/cache_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <xxhash.h>

#include "base/base.h"
#include "base/fault.h"
#include "store/checked.h"

#define FORMAT "trireme-data"
enum { VERSION = 2 };

#define PIECE ((uint64_t)1 << 20) /* bytes of the area that have a sum */

struct directory {
    struct tr_cache_key key;
    uint64_t arrays;
    uint64_t number[]; /* arrays × 2: first byte in the file, bytes */
};

struct tr_cache_file {
    char *path;
    int fd; /* while it is written; -1 later */
    uint64_t front, bytes;
    char *memory;                   /* of the area; NULL where there is none */
    struct tr_checked_header *head; /* while it is written: mapped */
    struct tr_checked checked;      /* of a file that is read */
    uint64_t *sum;
    struct directory *directory;
};

/* ---- memory ---- */

size_t tr_page_bytes(void)
{
    long n = sysconf(_SC_PAGESIZE);
    return n > 0 ? (size_t)n : 4096;
}

uint64_t tr_to_pages(uint64_t bytes)
{
    uint64_t page = tr_page_bytes();
    return (bytes + page - 1) / page * page;
}

void tr_pages_give_back(char *memory, uint64_t bytes)
{
    uintptr_t page = tr_page_bytes(), begin = ((uintptr_t)memory + page - 1) / page * page,
              end = ((uintptr_t)memory + bytes) / page * page;
    if (end > begin) (void)madvise(memory + (begin - (uintptr_t)memory), end - begin, MADV_DONTNEED);
}

void tr_pages_move(void *to, void **array, uint64_t n, size_t unit)
{
    const uint64_t most = (uint64_t)4 << 20;
    char *from = *array;
    for (uint64_t at = 0; from && at < n * unit; at += most) {
        uint64_t bytes = n * unit - at < most ? n * unit - at : most;
        memcpy((char *)to + at, from + at, (size_t)bytes);
        tr_pages_give_back(from + at, bytes);
    }
    free(from);
    *array = NULL;
}

/* ---- what is in a file ---- */

struct tr_cache_key tr_cache_key_of(const void *bytes, size_t n)
{
    XXH128_hash_t hash = XXH3_128bits(bytes, n);
    return (struct tr_cache_key){{hash.low64, hash.high64}};
}

static uint64_t area_bytes(const uint64_t *bytes, size_t n)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < n; i++) sum += tr_to_pages(bytes[i]);
    return sum;
}

static uint64_t directory_bytes(uint64_t arrays)
{
    return sizeof(struct directory) + 2 * arrays * sizeof(uint64_t);
}

static uint64_t pieces_of(uint64_t area)
{
    return (area + PIECE - 1) / PIECE;
}

void *tr_cache_file_at(const struct tr_cache_file *file, size_t i, uint64_t *bytes)
{
    const uint64_t *place = file->directory->number + 2 * i;
    if (bytes) *bytes = place[1];
    return file->memory ? file->memory + (place[0] - file->front) : NULL;
}

static int start(const char *path, struct tr_cache_file **out)
{
    struct tr_cache_file *f;
    TR_TRY(TR_NEW(&f, 1));
    f->fd = f->checked.fd = -1;
    *out = f;
    return tr_copy_string(path, &f->path);
}

void tr_cache_file_close(struct tr_cache_file **file)
{
    struct tr_cache_file *f = *file;
    if (!f) return;
    if (f->memory) munmap(f->memory, f->bytes - f->front);
    if (f->head) munmap(f->head, f->front);
    tr_checked_close(&f->checked);
    if (f->fd >= 0) close(f->fd);
    free(f->path);
    free(f);
    *file = NULL;
}

static int failed(int status, const char *path)
{
    return tr_fail(status, "%s: %s", path, strerror(errno));
}

static int map(struct tr_cache_file *f, uint64_t first, uint64_t bytes, int protection, int flags, void **at)
{
    *at = mmap(NULL, bytes, protection, MAP_SHARED | flags, f->fd, (off_t)first);
    if (*at != MAP_FAILED) return TR_OK;
    *at = NULL;
    return failed(TR_ERR_SYSTEM, f->path);
}

/* ---- writing ---- */

static int map_to_write(struct tr_cache_file *f)
{
    int both = PROT_READ | PROT_WRITE;
    if (f->bytes > f->front) TR_TRY(map(f, f->front, f->bytes - f->front, both, 0, (void **)&f->memory));
    return TR_OK;
}

static int lay_out(struct tr_cache_file *f, const uint64_t *bytes, size_t n)
{
    uint64_t area = area_bytes(bytes, n);
    f->front = tr_to_pages(tr_checked_header_bytes(1, pieces_of(area), directory_bytes(n)));
    f->bytes = f->front + area;
    return f->fd < 0 ? failed(TR_ERR_NO_OUTPUT, f->path) : TR_OK;
}

static int map_front(struct tr_cache_file *f)
{
    TR_TRY(map(f, 0, f->front, PROT_READ | PROT_WRITE, 0, (void **)&f->head));
    f->sum = (uint64_t *)(void *)((char *)(f->head + 1) + sizeof(struct tr_checked_area));
    f->directory = (struct directory *)(void *)(f->sum + pieces_of(f->bytes - f->front));
    return TR_OK;
}

/* fallocate() that is not disturbed by signals. */
static int take_room(struct tr_cache_file *f, uint64_t first, uint64_t bytes)
{
    if (bytes == 0) return TR_OK;
    if (TR_FAULT("cache.room") == TR_FAULT_ENOSPC) {
        errno = ENOSPC;
        return failed(TR_ERR_IO, f->path);
    }
    while (fallocate(f->fd, 0, (off_t)first, (off_t)bytes) < 0)
        if (errno != EINTR) return failed(TR_ERR_IO, f->path);
    return TR_OK;
}

static void write_directory(struct tr_cache_file *f, struct tr_cache_key key, const uint64_t *bytes, size_t n)
{
    struct directory *d = f->directory;
    uint64_t at = f->front;
    d->key = key;
    d->arrays = n;
    for (size_t i = 0; i < n; i++) {
        d->number[2 * i] = at;
        d->number[2 * i + 1] = bytes[i];
        at += tr_to_pages(bytes[i]);
    }
}

static int make(struct tr_cache_file *f, struct tr_cache_key key, const uint64_t *bytes, size_t n)
{
    /* whoever still has an old one keeps it: it is not overwritten */
    if (unlink(f->path) < 0 && errno != ENOENT) return failed(TR_ERR_NO_OUTPUT, f->path);
    f->fd = open(f->path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    TR_TRY(lay_out(f, bytes, n));
    if (ftruncate(f->fd, (off_t)f->bytes) < 0) return failed(TR_ERR_IO, f->path);
    TR_TRY(take_room(f, 0, f->front)); /* else the first touch might kill us */
    TR_TRY(map_front(f));
    write_directory(f, key, bytes, n);
    return map_to_write(f);
}

int tr_cache_file_create(const char *path, struct tr_cache_key key, const uint64_t *bytes, size_t n,
                         struct tr_cache_file **file)
{
    int status = start(path, file);
    if (status == TR_OK) status = make(*file, key, bytes, n);
    if (status == TR_OK) return TR_OK;
    if (*file && (*file)->fd >= 0) unlink(path);
    tr_cache_file_close(file);
    return status;
}

static int join(struct tr_cache_file *f, const uint64_t *bytes, size_t n)
{
    f->fd = open(f->path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    TR_TRY(lay_out(f, bytes, n));
    TR_TRY(map_front(f));
    return map_to_write(f);
}

int tr_cache_file_join(const char *path, const uint64_t *bytes, size_t n, struct tr_cache_file **file)
{
    int status = start(path, file);
    if (status == TR_OK) status = join(*file, bytes, n);
    if (status != TR_OK) tr_cache_file_close(file);
    return status;
}

int tr_cache_file_reserve(struct tr_cache_file *file, size_t share, size_t shares)
{
    for (size_t i = 0; i < file->directory->arrays; i++) {
        const uint64_t *place = file->directory->number + 2 * i;
        uint64_t page = tr_page_bytes(), pages = tr_to_pages(place[1]) / page;
        uint64_t first = pages * share / shares, end = pages * (share + 1) / shares;
        TR_TRY(take_room(file, place[0] + first * page, (end - first) * page));
    }
    return TR_OK;
}

/* Where a share of the pieces begins. */
static uint64_t share_begin(uint64_t pieces, size_t share, size_t shares)
{
    return pieces * share / shares;
}

static uint64_t sum_of(const struct tr_cache_file *f, uint64_t piece)
{
    uint64_t at = piece * PIECE, left = f->bytes - f->front - at;
    return XXH3_64bits(f->memory + at, left < PIECE ? left : PIECE);
}

void tr_cache_file_sum(struct tr_cache_file *file, size_t share, size_t shares)
{
    uint64_t pieces = pieces_of(file->bytes - file->front), end = share_begin(pieces, share + 1, shares);
    for (uint64_t i = share_begin(pieces, share, shares); i < end; i++) {
        (void)TR_FAULT("cache.sum");
        file->sum[i] = sum_of(file, i);
    }
    /* from here on a mistake is a fault, and not other data after the next start */
    if (file->memory) (void)mprotect(file->memory, file->bytes - file->front, PROT_READ);
}

void tr_cache_file_seal(struct tr_cache_file *file)
{
    struct tr_checked_header *head = file->head;
    uint64_t area = file->bytes - file->front;
    *head = (struct tr_checked_header){.format = FORMAT,
                                       .version = VERSION,
                                       .order = TR_CHECKED_ORDER,
                                       .bytes = file->bytes,
                                       .header = file->front,
                                       .areas = 1,
                                       .sums = pieces_of(area),
                                       .directory = directory_bytes(file->directory->arrays)};
    *(struct tr_checked_area *)(void *)(head + 1) = (struct tr_checked_area){file->front, area, PIECE, 0};
    uint64_t digest = XXH3_64bits(head, file->front);
    atomic_thread_fence(memory_order_seq_cst);
    head->digest = digest;
}

/* ---- reading ---- */

static int odd(const struct tr_cache_file *f, const char *what)
{
    return tr_fail(TR_ERR_DATA, "%s: %s", f->path, what);
}

static int take_directory(struct tr_cache_file *f, struct tr_cache_key key, size_t n)
{
    const struct tr_checked_header *h = f->checked.header;
    struct directory *d = f->directory = (struct directory *)(uintptr_t)f->checked.directory;
    uint64_t at = f->front = h->header;
    f->bytes = h->bytes;
    f->sum = (uint64_t *)(uintptr_t)f->checked.sum;
    if (h->directory != directory_bytes(n) || d->arrays != n || h->sums != pieces_of(f->bytes - f->front))
        return odd(f, "damaged: odd directory");
    if (memcmp(&d->key, &key, sizeof key) != 0) return odd(f, "of other data");
    for (size_t i = 0; i < n; i++) {
        if (d->number[2 * i] != at || d->number[2 * i + 1] > f->bytes - at)
            return odd(f, "damaged: odd array");
        at += tr_to_pages(d->number[2 * i + 1]);
    }
    return at == f->bytes ? TR_OK : odd(f, "damaged: odd size");
}

static int check_sums(const struct tr_cache_file *f, size_t share, size_t shares)
{
    uint64_t pieces = pieces_of(f->bytes - f->front), end = share_begin(pieces, share + 1, shares);
    for (uint64_t i = share_begin(pieces, share, shares); i < end; i++)
        if (sum_of(f, i) != f->sum[i]) return odd(f, "damaged: it is not what was written");
    return TR_OK;
}

static int map_to_read(struct tr_cache_file *f)
{
    if (f->bytes == f->front) return TR_OK;
    f->fd = f->checked.fd;
    int status = map(f, f->front, f->bytes - f->front, PROT_READ, MAP_POPULATE, (void **)&f->memory);
    f->fd = -1;
    return status;
}

int tr_cache_file_open(const char *path, struct tr_cache_key key, size_t n, size_t share, size_t shares,
                       struct tr_cache_file **file)
{
    int status = start(path, file);
    if (status == TR_OK) status = tr_checked_open(&(*file)->checked, path, FORMAT, VERSION);
    if (status == TR_OK) status = take_directory(*file, key, n);
    if (status == TR_OK) status = map_to_read(*file);
    if (status == TR_OK) status = check_sums(*file, share, shares);
    if (status != TR_OK) tr_cache_file_close(file);
    return status;
}

void tr_cache_file_forget(struct tr_cache_file *file, size_t first, size_t last)
{
    uint64_t bytes;
    char *begin = tr_cache_file_at(file, first, NULL), *end = tr_cache_file_at(file, last, &bytes);
    if (!begin || end + tr_to_pages(bytes) == begin) return;
    /* not unmapped, so that closing need not know: nothing is there any more that could be read by mistake */
    (void)mmap(begin, (size_t)(end - begin) + tr_to_pages(bytes), PROT_NONE,
               MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
}
