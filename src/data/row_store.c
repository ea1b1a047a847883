#define _GNU_SOURCE
#include "data/row_store.h"

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
#include "data/dataset.h"
#include "store/checked.h"

/* ---- arrays ---- */

const size_t tr_row_unit[] = {sizeof(uint64_t), sizeof(uint32_t), sizeof(float),
                              sizeof(float),    sizeof(uint64_t), sizeof(tr_key)};

void **tr_row_store_array(tr_data *data, size_t i)
{
    struct tr_matrix *m = &data->state->rows;
    void **const arrays[] = {(void **)&m->begin,
                             (void **)&m->column,
                             (void **)&m->value,
                             (void **)&m->label,
                             (void **)&data->state->row_number,
                             (void **)(uintptr_t)&data->keys};
    _Static_assert(sizeof arrays / sizeof *arrays == TR_ROW_ARRAYS, "a pointer for each array");
    return arrays[i];
}

struct tr_row_shape tr_row_store_shape(const tr_data *data)
{
    const struct tr_matrix *m = &data->state->rows;
    struct tr_row_shape shape = {m->rows, tr_matrix_nonzeros(m), data->n_keys, 0};
    for (size_t i = 0; i < TR_ROW_ARRAYS; i++)
        if (*tr_row_store_array((tr_data *)(uintptr_t)data, i)) shape.arrays |= (uint64_t)1 << i;
    return shape;
}

uint64_t tr_row_store_measure(const struct tr_row_shape *s, uint64_t bytes[TR_ROW_ARRAYS])
{
    const uint64_t elements[] = {s->rows + 1, s->values, s->values, s->rows, s->rows, s->keys};
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
        if (arrays >> i & 1) *tr_row_store_array(data, i) = tr_row_file_at(data->state->file, i, NULL);
}

void tr_row_store_free(tr_data *data, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        free(*tr_row_store_array(data, i));
        *tr_row_store_array(data, i) = NULL;
    }
}

/* ---- the layout of a file ---- */

#define FORMAT "trireme-data"
enum { VERSION = 3 };

#define PIECE ((uint64_t)1 << 20) /* bytes of the area that have one sum */

struct tr_row_directory {
    struct tr_row_key key;
    uint64_t arrays;
    struct {
        uint64_t first, bytes; /* in the file */
    } array[];
};

struct tr_row_key tr_row_key_of(const void *bytes, size_t n)
{
    XXH128_hash_t hash = XXH3_128bits(bytes, n);
    return (struct tr_row_key){{hash.low64, hash.high64}};
}

static char *row_file_address(const struct tr_row_file *f, uint64_t first)
{
    return (char *)f->header + first;
}

static uint64_t row_file_offset(const struct tr_row_file *f, const void *at)
{
    return (uint64_t)((const char *)at - (const char *)f->header);
}

void *tr_row_file_at(const struct tr_row_file *file, size_t i, uint64_t *bytes)
{
    if (bytes) *bytes = file->directory->array[i].bytes;
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

static int row_file_start(const char *path, int flags, struct tr_row_file **file)
{
    TR_TRY(TR_NEW(file, 1));
    (*file)->fd = -1;
    TR_TRY(tr_copy_string(path, &(*file)->path));
    (*file)->fd = open(path, flags | O_CLOEXEC | O_NOFOLLOW, 0600);
    return (*file)->fd < 0 ? row_file_failed(TR_ERR_NO_OUTPUT, path) : TR_OK;
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

/* ---- writing ---- */

/* fallocate() that is repeated after signals. */
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

/* The header is complete but for the format and the digest: until they are written, the file is refused. */
static int row_file_lay_out(struct tr_row_file *f, struct tr_row_key key, const uint64_t *bytes, size_t n)
{
    uint64_t area = 0, header;
    for (size_t i = 0; i < n; i++) area += tr_to_pages(bytes[i]);
    const uint64_t sums = (area + PIECE - 1) / PIECE, directory = row_file_directory_bytes(n);
    header = tr_to_pages(tr_checked_header_bytes(1, sums, directory));
    if (ftruncate(f->fd, (off_t)(header + area)) < 0) return row_file_failed(TR_ERR_IO, f->path);
    TR_TRY(row_file_allocate(f, 0, header)); /* otherwise the first write to it may raise SIGBUS */
    TR_TRY(row_file_map(f, header + area, PROT_READ | PROT_WRITE, 0));
    *f->header = (struct tr_checked_header){.version = VERSION,
                                            .order = TR_CHECKED_ORDER,
                                            .bytes = header + area,
                                            .header = header,
                                            .areas = 1,
                                            .sums = sums,
                                            .directory = directory};
    *f->area = (struct tr_checked_area){header, area, PIECE, 0};
    row_file_find_directory(f);
    f->directory->key = key;
    f->directory->arrays = n;
    for (size_t i = 0; i < n; header += tr_to_pages(bytes[i++])) {
        f->directory->array[i].first = header;
        f->directory->array[i].bytes = bytes[i];
    }
    return TR_OK;
}

int tr_row_file_create(const char *path, struct tr_row_key key, const uint64_t *bytes, size_t n,
                       struct tr_row_file **file)
{
    *file = NULL;
    /* a process that has opened an older file keeps its contents: it is removed, not overwritten */
    if (unlink(path) < 0 && errno != ENOENT) return row_file_failed(TR_ERR_NO_OUTPUT, path);
    int status = row_file_start(path, O_RDWR | O_CREAT | O_EXCL, file);
    if (status == TR_OK) status = row_file_lay_out(*file, key, bytes, n);
    if (status == TR_OK) return TR_OK;
    if (*file && (*file)->fd >= 0) unlink(path);
    tr_row_file_close(file);
    return status;
}

int tr_row_file_join(const char *path, struct tr_row_file **file)
{
    struct stat about;
    int status = row_file_start(path, O_RDWR, file);
    if (status == TR_OK && fstat((*file)->fd, &about) < 0) status = row_file_failed(TR_ERR_IO, path);
    if (status == TR_OK) status = row_file_map(*file, (uint64_t)about.st_size, PROT_READ | PROT_WRITE, 0);
    if (status == TR_OK) row_file_find_directory(*file);
    else tr_row_file_close(file);
    return status;
}

int tr_row_file_reserve(struct tr_row_file *file, size_t member, size_t members)
{
    const struct tr_row_directory *d = file->directory;
    for (size_t i = 0; i < d->arrays; i++) {
        uint64_t page = tr_page_bytes(), pages = tr_to_pages(d->array[i].bytes) / page;
        uint64_t first = pages * member / members, end = pages * (member + 1) / members;
        TR_TRY(row_file_allocate(file, d->array[i].first + first * page, (end - first) * page));
    }
    return TR_OK;
}

static uint64_t row_file_sum_piece(const struct tr_row_file *f, uint64_t piece)
{
    uint64_t at = piece * PIECE, left = f->area->bytes - at;
    return XXH3_64bits(row_file_address(f, f->area->first + at), left < PIECE ? left : PIECE);
}

void tr_row_file_sum(struct tr_row_file *file, size_t member, size_t members)
{
    uint64_t sums = file->header->sums, end = sums * (member + 1) / members;
    for (uint64_t i = sums * member / members; i < end; i++) {
        (void)TR_FAULT("cache.sum");
        file->sum[i] = row_file_sum_piece(file, i);
    }
    /* a write from here on is a fault, and not other data after the next start */
    if (sums > 0) (void)mprotect(row_file_address(file, file->area->first), file->area->bytes, PROT_READ);
}

void tr_row_file_seal(struct tr_row_file *file)
{
    struct tr_checked_header *h = file->header;
    memcpy(h->format, FORMAT, sizeof FORMAT);
    h->digest = 0;
    uint64_t digest = XXH3_64bits(h, h->header);
    atomic_thread_fence(memory_order_seq_cst);
    h->digest = digest;
}

int tr_row_file_move(const char *path, struct tr_row_key key, void **const array[], const uint64_t *bytes,
                     size_t n, struct tr_row_file **file)
{
    TR_TRY(tr_row_file_create(path, key, bytes, n, file));
    int status = tr_row_file_reserve(*file, 0, 1);
    if (status != TR_OK) {
        tr_row_file_close(file);
        return status;
    }
    for (size_t i = 0; i < n; i++)
        if (*array[i]) tr_pages_move(tr_row_file_at(*file, i, NULL), array[i], bytes[i], 1);
    tr_row_file_sum(*file, 0, 1);
    tr_row_file_seal(*file);
    return TR_OK;
}

/* ---- reading ---- */

static int row_file_odd(const struct tr_row_file *f, const char *what)
{
    return tr_fail(TR_ERR_DATA, "%s: %s", f->path, what);
}

/* Checks the directory. The digest covers everything but the area, so this finds files of another layout. */
static int row_file_check_directory(const struct tr_row_file *f, struct tr_row_key key, size_t n)
{
    const struct tr_checked_header *h = f->header;
    const struct tr_row_directory *d = f->directory;
    uint64_t at = h->header;
    if (h->areas != 1 || h->directory != row_file_directory_bytes(n) || d->arrays != n ||
        f->area->first != at || f->area->bytes != h->bytes - at ||
        h->sums != (f->area->bytes + PIECE - 1) / PIECE)
        return row_file_odd(f, "damaged: odd directory");
    if (memcmp(&d->key, &key, sizeof key) != 0) return row_file_odd(f, "of other data");
    for (size_t i = 0; i < n; at += tr_to_pages(d->array[i++].bytes))
        if (d->array[i].first != at || d->array[i].bytes > h->bytes - at)
            return row_file_odd(f, "damaged: odd array");
    return at == h->bytes ? TR_OK : row_file_odd(f, "damaged: odd size");
}

int tr_row_file_open(const char *path, struct tr_row_key key, size_t n, size_t member, size_t members,
                     struct tr_row_file **file)
{
    struct tr_checked checked;
    *file = NULL;
    int status = tr_checked_open(&checked, path, FORMAT, VERSION);
    if (status == TR_OK) status = row_file_start(path, O_RDONLY, file);
    struct tr_row_file *f = *file;
    if (status == TR_OK)
        status = row_file_map(f, checked.header->bytes, PROT_READ, members > 0 ? MAP_POPULATE : 0);
    if (status == TR_OK && memcmp(f->header, checked.header, checked.header->header) != 0)
        status = row_file_odd(f, "damaged: it changes");
    tr_checked_close(&checked);
    if (status == TR_OK) {
        row_file_find_directory(f);
        status = row_file_check_directory(f, key, n);
    }
    if (status == TR_OK && members > 0) {
        uint64_t sums = f->header->sums, end = sums * (member + 1) / members;
        for (uint64_t i = sums * member / members; i < end && status == TR_OK; i++)
            if (row_file_sum_piece(f, i) != f->sum[i])
                status = row_file_odd(f, "damaged: it is not what was written");
    }
    if (status != TR_OK) tr_row_file_close(file);
    return status;
}

/* ---- several processes ---- */

bool tr_row_file_use(const struct tr_row_file *file, const char *path)
{
    return flock(file->fd, LOCK_SH | LOCK_NB) == 0 && tr_is_still_at(file->fd, path);
}

void tr_row_file_leave(const struct tr_row_file *file, const char *path)
{
    if (flock(file->fd, LOCK_EX | LOCK_NB) == 0 && tr_is_still_at(file->fd, path)) unlink(path);
}

/* All processes that still need the arrays hold a shared lock. */
void tr_row_file_unname(struct tr_row_file *file)
{
    (void)flock(file->fd, LOCK_SH);
    (void)unlink(file->path); /* the first process does it */
    file->unnamed = true;
}

void tr_row_file_forget(struct tr_row_file *file, size_t n)
{
    const struct tr_row_directory *d = file->directory;
    uint64_t first = d->array[0].first, bytes = d->array[n].first - first;
    if (bytes == 0) return;
    if (file->unnamed && flock(file->fd, LOCK_EX | LOCK_NB) == 0)
        (void)fallocate(file->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)first, (off_t)bytes);
    /* the range stays mapped, so that tr_row_file_close() can unmap the whole file; reading it is a fault */
    (void)mmap(row_file_address(file, first), (size_t)bytes, PROT_NONE,
               MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
}

/* ---- files on a disk ---- */

/* The whole pages that hold these bytes; without `last`, the page of the last byte is left out unless they fill it. */
static void row_file_to_pages(uint64_t *first, uint64_t *n, bool last)
{
    uint64_t page = tr_page_bytes(), end = *first + *n;
    *first = *first / page * page;
    *n = (last ? (end + page - 1) / page * page : end / page * page) - *first;
    if (*first > end) *n = 0;
}

void tr_row_file_ask(const struct tr_row_file *file, const void *at, uint64_t n)
{
    if (n > 0) (void)posix_fadvise(file->fd, (off_t)row_file_offset(file, at), (off_t)n, POSIX_FADV_WILLNEED);
}

int tr_row_file_fetch(const struct tr_row_file *file, const void *at, uint64_t n)
{
    uint64_t first = row_file_offset(file, at);
    row_file_to_pages(&first, &n, true);
    if (n == 0) return 0;
#ifdef MADV_POPULATE_READ
    while (madvise(row_file_address(file, first), n, MADV_POPULATE_READ) < 0)
        if (errno == EFAULT) return EIO;
        else if (errno != EINTR && errno != EAGAIN) break;
        else continue;
#endif
    return 0; /* without it the first access reads the page */
}

void tr_row_file_drop(const struct tr_row_file *file, const void *at, uint64_t n, bool sequential)
{
    const uint64_t read_ahead =
        sequential ? (uint64_t)1 << 20 : 0; /* the page cache holds larger units than pages */
    uint64_t first = row_file_offset(file, at);
    row_file_to_pages(&first, &n, false);
    if (n == 0) return;
    (void)madvise(row_file_address(file, first), n, MADV_DONTNEED);
    if (file->stays) return;
    uint64_t more = first < read_ahead ? first : read_ahead;
    (void)posix_fadvise(file->fd, (off_t)(first - more), (off_t)(n + more), POSIX_FADV_DONTNEED);
}

void tr_row_file_send(const struct tr_row_file *file, const void *at, uint64_t n)
{
    if (n > 0)
        (void)sync_file_range(file->fd, (off_t)row_file_offset(file, at), (off_t)n, SYNC_FILE_RANGE_WRITE);
}

void tr_row_file_settle(const struct tr_row_file *file, const void *at, uint64_t n)
{
    if (n > 0)
        (void)sync_file_range(file->fd, (off_t)row_file_offset(file, at), (off_t)n,
                              SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE |
                                  SYNC_FILE_RANGE_WAIT_AFTER);
    tr_row_file_drop(file, at, n, true);
}

bool tr_row_file_is_whole(struct tr_row_file *file, const void *at, uint64_t n)
{
    uint64_t first = row_file_offset(file, at) - file->area->first;
    if (n == 0) return true;
    if (!file->checked) file->checked = calloc(file->header->sums, sizeof *file->checked);
    for (uint64_t i = first / PIECE; i <= (first + n - 1) / PIECE; i++) {
        if (file->checked && file->checked[i]) continue;
        if (row_file_sum_piece(file, i) != file->sum[i]) return false;
        if (file->checked) file->checked[i] = true;
    }
    return true;
}

int tr_row_file_sum_on_disk(struct tr_row_file *file)
{
    const uint64_t sums = file->header->sums, some = 8;
    const char *area = row_file_address(file, file->area->first);
    for (uint64_t i = 0; i < sums; i += some) {
        uint64_t end = i + some < sums ? i + some : sums;
        uint64_t n = i + some < sums ? some * PIECE : file->area->bytes - i * PIECE;
        tr_row_file_ask(file, area + i * PIECE + n, end + some < sums ? some * PIECE : 0);
        (void)TR_FAULT("cache.sum");
        for (uint64_t k = i; k < end; k++) file->sum[k] = row_file_sum_piece(file, k);
        tr_row_file_settle(file, area + i * PIECE, n);
    }
    if (sums > 0) (void)mprotect(row_file_address(file, file->area->first), file->area->bytes, PROT_READ);
    return fdatasync(file->fd) < 0 ? row_file_failed(TR_ERR_IO, file->path) : TR_OK;
}
