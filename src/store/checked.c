#define _GNU_SOURCE
#include "store/checked.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/base.h"
#include "base/file.h"
#include "base/fault.h"

enum { AT_ONCE = 1 << 20, LARGE_ARRAY = 1 << 16 }; /* bytes per write; bytes from which an array is aligned */

uint64_t tr_checked_header_bytes(uint64_t areas, uint64_t sums, uint64_t directory)
{
    uint64_t all = TR_CHECKED_LEAST, least = sizeof(struct tr_checked_header) +
                                             areas * sizeof(struct tr_checked_area) + sums * 8 + directory;
    while (all < least) all *= 2;
    return all;
}

/* ---- the layout ---- */

int tr_layout_failed(const char *name)
{
    return tr_fail(TR_ERR_INTERNAL, "HDF5 cannot lay out %s", name);
}

hid_t tr_text_type(size_t length)
{
    hid_t type = H5Tcopy(H5T_C_S1);
    H5Tset_size(type, length > 0 ? length : 1);
    H5Tset_strpad(type, H5T_STR_NULLPAD);
    H5Tset_cset(type, H5T_CSET_UTF8);
    return type;
}

hid_t tr_creation(hid_t class)
{
    hid_t how = H5Pcreate(class);
    H5Pset_obj_track_times(how, false);
    if (class == H5P_DATASET_CREATE) H5Pset_fill_time(how, H5D_FILL_TIME_NEVER);
    return how;
}

/* Returns properties with which HDF5 opens «/proc/self/fd/N»: its stdio driver follows such a link, the default driver does not. */
static hid_t checked_access(void)
{
    hid_t access = H5Pcreate(H5P_FILE_ACCESS);
    H5Pset_fapl_stdio(access);
    H5Pset_file_locking(access, false, true);
    H5Pset_fclose_degree(access, H5F_CLOSE_STRONG);
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL); /* HDF5 prints no errors, because Trireme does */
    return access;
}

/* Refuses a file above RLIMIT_FSIZE: HDF5 could not close the incomplete layout. */
static int checked_check_limit(const struct tr_checked_writer *w, uint64_t bytes)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_FSIZE, &limit) < 0 || limit.rlim_cur == RLIM_INFINITY) return TR_OK;
    uint64_t wanted = w->header + w->laid + bytes + (w->areas + 16) * 2 * TR_CHECKED_LEAST;
    if (wanted <= limit.rlim_cur) return TR_OK;
    return tr_fail(TR_ERR_IO,
                   "%s: cannot be written: some %llu bytes, but this process may write %llu (ulimit -f)",
                   w->target.path, (unsigned long long)wanted, (unsigned long long)limit.rlim_cur);
}

void tr_hid_close(const hid_t *id)
{
    if (*id >= 0) H5Idec_ref(*id);
}

int tr_attribute(hid_t where, const char *name, hid_t type, const void *value)
{
    TR_HID space = H5Screate(H5S_SCALAR);
    TR_HID attribute = H5Acreate2(where, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
    return attribute >= 0 && H5Awrite(attribute, type, value) >= 0 ? TR_OK : tr_layout_failed(name);
}

int tr_attribute_count(hid_t where, const char *name, uint64_t value)
{
    return tr_attribute(where, name, H5T_NATIVE_UINT64, &value);
}

int tr_attribute_text(hid_t where, const char *name, const char *text)
{
    TR_HID type = tr_text_type(strlen(text));
    return tr_attribute(where, name, type, text);
}

int tr_attributes_of_format(hid_t file, const char *format, int64_t version, const char *trireme)
{
    TR_TRY(tr_attribute_text(file, "format", format));
    TR_TRY(tr_attribute(file, "format_version", H5T_NATIVE_INT64, &version));
    return tr_attribute_text(file, "trireme", trireme);
}

/* ---- writing ---- */

/* Writes bytes at the offset `first`. Above RLIMIT_FSIZE the kernel also sends SIGXFSZ, which is blocked and removed here. */
static int checked_put(const struct tr_checked_writer *w, const char *from, uint64_t bytes, uint64_t first)
{
    sigset_t limit, old;
    int status = TR_OK;
    sigemptyset(&limit);
    sigaddset(&limit, SIGXFSZ);
    pthread_sigmask(SIG_BLOCK, &limit, &old);
    while (bytes > 0 && status == TR_OK) {
        enum tr_fault fault = TR_FAULT(w->fault_write);
        size_t some = bytes < AT_ONCE ? bytes : AT_ONCE;
        if (fault == TR_FAULT_SHORT) some = (some + 1) / 2;
        bool fails = fault == TR_FAULT_ENOSPC || fault == TR_FAULT_EIO;
        ssize_t n = fails ? -1 : pwrite(w->fd, from, some, (off_t)first);
        if (fails) errno = fault == TR_FAULT_EIO ? EIO : ENOSPC;
        if (n < 0 && errno == EINTR) continue;
        if (n == 0) errno = ENOSPC;
        if (n <= 0) {
            status = tr_file_failed(w->target.path, "written", errno);
            break;
        }
        from += n;
        first += (uint64_t)n;
        bytes -= (uint64_t)n;
    }
    if (!sigismember(&old, SIGXFSZ)) sigtimedwait(&limit, NULL, &(struct timespec){0});
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return status;
}

int tr_checked_create(struct tr_checked_writer *w, const char *path, const char *format, uint32_t version,
                      uint64_t header, int how, const char *fault_write, const char *fault_name)
{
    *w = (struct tr_checked_writer){.version = version,
                                    .fault_write = fault_write,
                                    .fault_name = fault_name,
                                    .fd = -1,
                                    .layout = -1,
                                    .file = -1,
                                    .array = -1,
                                    .header = header};
    memcpy(w->format, format, strnlen(format, sizeof w->format));
    TR_TRY(tr_target_open(&w->target, how, "%s", path));
    w->fd = fileno(w->target.file);
    TR_TRY(checked_check_limit(w, 0));
    w->state = XXH3_createState();
    w->layout = memfd_create("layout", MFD_CLOEXEC);
    if (!w->state || w->layout < 0) return tr_fail(TR_ERR_SYSTEM, "no memory to write %s", path);
    struct stat made;
    w->is_special = fstat(w->fd, &made) == 0 && !S_ISREG(made.st_mode);
    char name[32];
    snprintf(name, sizeof name, "/proc/self/fd/%d", w->layout);
    TR_HID access = checked_access(), create = H5Pcreate(H5P_FILE_CREATE);
    H5Pset_libver_bounds(access, H5F_LIBVER_V110, H5F_LIBVER_V110); /* with checksums for h5dump */
    H5Pset_alignment(access, LARGE_ARRAY, TR_CHECKED_LEAST);
    H5Pset_userblock(create, w->header);
    H5Pset_obj_track_times(create, false);
    H5Pset_attr_phase_change(create, 64, 32); /* up to 64 attributes are stored compactly */
    w->file = H5Fcreate(name, H5F_ACC_TRUNC, create, access);
    return w->file >= 0 ? TR_OK : tr_layout_failed("a file");
}

int tr_checked_begin(struct tr_checked_writer *w, hid_t where, const char *name, hid_t type, int dimensions,
                     const uint64_t *shape, uint64_t piece, uint64_t *at)
{
    hsize_t extent[2] = {1, 1};
    for (int i = 0; i < dimensions; i++) extent[i] = shape[i];
    uint64_t bytes = extent[0] * extent[1] * H5Tget_size(type);
    TR_TRY(checked_check_limit(w, bytes));
    w->laid += bytes;
    TR_HID space = dimensions > 0 ? H5Screate_simple(dimensions, extent, NULL) : H5Screate(H5S_SCALAR);
    TR_HID how = tr_creation(H5P_DATASET_CREATE);
    H5Pset_alloc_time(how, H5D_ALLOC_TIME_EARLY);
    if (w->array >= 0) H5Dclose(w->array);
    w->array = H5Dcreate2(where, name, type, space, H5P_DEFAULT, how, H5P_DEFAULT);
    haddr_t first = w->array >= 0 && bytes > 0 ? H5Dget_offset(w->array) : 0;
    if (w->array < 0 || first == HADDR_UNDEF) return tr_layout_failed(name);
    if (at) *at = first;
    if (bytes == 0) return TR_OK;
    if (piece == 0) piece = bytes;
    uint64_t pieces = (bytes + piece - 1) / piece;
    TR_TRY(TR_GROW(&w->area, &w->area_capacity, w->areas + 1));
    TR_TRY(TR_GROW(&w->progress, &w->progress_capacity, w->areas + 1));
    TR_TRY(TR_GROW(&w->sum, &w->sum_capacity, w->sums + pieces));
    XXH3_state_t *state = XXH3_createState();
    if (!state) return tr_fail(TR_ERR_SYSTEM, "out of memory for a digest");
    XXH3_64bits_reset(state);
    w->progress[w->areas] = (struct tr_checked_progress){0, state};
    w->area[w->areas++] = (struct tr_checked_area){first, bytes, piece, w->sums};
    w->sums += pieces;
    /* reserves the disk space of a large array, if the file system can, to detect a full disk before the array is written */
    if (w->is_special || bytes < LARGE_ARRAY || fallocate(w->fd, 0, (off_t)first, (off_t)bytes) == 0)
        return TR_OK;
    bool cannot = errno == EOPNOTSUPP || errno == ENOSYS || errno == EINVAL || errno == EINTR;
    return cannot ? TR_OK : tr_file_failed(w->target.path, "written", errno);
}

/* Sums and writes at most a megabyte at a time, while it is in the cache. Zeros of a large array are not written (a new file has
 * zeros there), and reserved disk space of a megabyte is released. Write-back starts immediately, so that fsync takes less time. */
int tr_checked_append_to(struct tr_checked_writer *w, size_t area, const void *data, uint64_t bytes)
{
    if (bytes == 0) return TR_OK;
    const struct tr_checked_area *a = area < w->areas && w->progress[area].state ? &w->area[area] : NULL;
    struct tr_checked_progress *p = a ? &w->progress[area] : NULL;
    if (!p || bytes > a->bytes - p->at) return tr_fail(TR_ERR_INTERNAL, "%s: too many rows", w->target.path);
    for (const char *from = data; bytes > 0;) {
        uint64_t n = a->piece - p->at % a->piece;
        if (n > AT_ONCE) n = AT_ONCE;
        if (n > bytes) n = bytes;
        off_t at = (off_t)(a->first + p->at);
        XXH3_64bits_update(p->state, from, n);
        bool zero = a->bytes >= LARGE_ARRAY && *from == 0 && memcmp(from, from + 1, n - 1) == 0;
        if (!zero) TR_TRY(checked_put(w, from, n, (uint64_t)at));
        else if (n == AT_ONCE)
            (void)fallocate(w->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, at, (off_t)n);
        if ((w->target.how & TR_TARGET_DURABLE) && n == AT_ONCE)
            sync_file_range(w->fd, at, (off_t)n, SYNC_FILE_RANGE_WRITE);
        p->at += n;
        from += n;
        bytes -= n;
        if (p->at < a->bytes && p->at % a->piece > 0) continue;
        w->sum[a->sum + (p->at - 1) / a->piece] = XXH3_64bits_digest(p->state);
        XXH3_64bits_reset(p->state);
    }
    if (p->at < a->bytes) return TR_OK;
    XXH3_freeState(p->state);
    p->state = NULL;
    return TR_OK;
}

int tr_checked_append(struct tr_checked_writer *w, const void *data, uint64_t bytes)
{
    return tr_checked_append_to(w, w->areas - 1, data, bytes);
}

static int checked_by_first(const void *a, const void *b)
{
    const struct tr_checked_area *x = a, *y = b;
    return x->first < y->first ? -1 : x->first > y->first;
}

/* Computes the digest, and writes all bytes outside the areas. The header is written last, because a file without it is invalid. */
static int checked_put_all(struct tr_checked_writer *w, const char *layout, const void *directory,
                           uint64_t directory_bytes)
{
    struct tr_checked_header h = {.version = w->version,
                                  .order = TR_CHECKED_ORDER,
                                  .bytes = w->bytes,
                                  .header = w->header,
                                  .areas = w->areas,
                                  .sums = w->sums,
                                  .directory = directory_bytes};
    TR_FREED char *header = NULL;
    uint64_t at = w->header;
    memcpy(h.format, w->format, sizeof h.format);
    if (tr_checked_header_bytes(w->areas, w->sums, directory_bytes) > w->header)
        return tr_fail(TR_ERR_INTERNAL, "%s: too many arrays", w->target.path);
    TR_TRY(TR_NEW(&header, w->header));
    if (w->areas > 0) qsort(w->area, w->areas, sizeof *w->area, checked_by_first);
    const void *part[] = {&h, w->area, w->sum, directory};
    const size_t bytes[] = {sizeof h, w->areas * sizeof *w->area, w->sums * 8, directory_bytes};
    char *to = header;
    for (int i = 0; i < 4; to += bytes[i++])
        if (bytes[i] > 0) memcpy(to, part[i], bytes[i]);
    XXH3_64bits_reset(w->state);
    XXH3_64bits_update(w->state, header, w->header);
    if (!w->is_special && ftruncate(w->fd, (off_t)w->bytes) < 0)
        return tr_file_failed(w->target.path, "written", errno);
    for (size_t i = 0; i <= w->areas; i++) {
        uint64_t next = i < w->areas ? w->area[i].first : w->bytes;
        if (next < at || next > w->bytes) return tr_layout_failed("arrays");
        XXH3_64bits_update(w->state, layout + at, next - at);
        TR_TRY(checked_put(w, layout + at, next - at, at));
        if (i < w->areas) at = next + w->area[i].bytes;
    }
    h.digest = w->digest = XXH3_64bits_digest(w->state);
    memcpy(header, &h, sizeof h);
    return checked_put(w, header, w->header, 0);
}

int tr_checked_seal(struct tr_checked_writer *w, const void *directory, uint64_t directory_bytes)
{
    if (w->array >= 0) H5Dclose(w->array);
    w->array = -1;
    for (size_t i = 0; i < w->areas; i++)
        if (w->progress[i].state)
            return tr_fail(TR_ERR_INTERNAL, "%s: an array has too few rows", w->target.path);
    hid_t file = w->file;
    w->file = -1;
    struct stat laid;
    if (H5Fclose(file) < 0 || fstat(w->layout, &laid) < 0) return tr_layout_failed(w->target.path);
    w->bytes = (uint64_t)laid.st_size;
    char *layout = mmap(NULL, (size_t)w->bytes, PROT_READ, MAP_SHARED, w->layout, 0);
    if (layout == MAP_FAILED) return tr_fail(TR_ERR_SYSTEM, "no memory to write %s", w->target.path);
    int status = checked_put_all(w, layout, directory, directory_bytes);
    munmap(layout, (size_t)w->bytes);
    return status;
}

/* Calls fsync for the folder before and after the rename. Before it, because the names of other files, to which a manifest refers,
 * must be on the disk first. */
int tr_checked_finish(struct tr_checked_writer *w)
{
    int status = TR_OK;
    bool durable = w->target.how & TR_TARGET_DURABLE, is_renamed = !w->target.in_place;
    TR_FREED char *path = NULL;
    if (is_renamed && durable) status = tr_sync_above(w->target.path);
    errno = EIO;
    if (status == TR_OK && is_renamed && TR_FAULT(w->fault_name) != TR_FAULT_NONE)
        status = tr_file_failed(w->target.path, "written", errno);
    if (status == TR_OK) status = tr_copy_string(w->target.path, &path);
    status = tr_target_close(&w->target, status);
    if (status == TR_OK && is_renamed && durable) status = tr_sync_above(path);
    tr_checked_abandon(w);
    return status;
}

void tr_checked_abandon(struct tr_checked_writer *w)
{
    /* removes the file, unless tr_checked_finish() has renamed it */
    (void)tr_target_close(&w->target, TR_ERR_IO);
    if (w->array >= 0) H5Dclose(w->array);
    if (w->file >= 0) H5Fclose(w->file);
    if (w->layout >= 0) close(w->layout);
    for (size_t i = 0; i < w->areas; i++) XXH3_freeState(w->progress[i].state);
    XXH3_freeState(w->state);
    TR_FREE_ALL(w->area, w->progress, w->sum);
    *w = (struct tr_checked_writer){.fd = -1, .layout = -1, .file = -1, .array = -1};
}

/* ---- reading ---- */

/* Returns whether these bytes are a hole of the file. They are zeros, and reading them would allocate memory for their pages. */
static bool checked_is_hole(const struct tr_checked *f, uint64_t first, uint64_t bytes)
{
    off_t next = lseek(f->fd, (off_t)first, SEEK_DATA);
    return next < 0 ? errno == ENXIO && lseek(f->fd, 0, SEEK_END) >= (off_t)(first + bytes)
                    : (uint64_t)next >= first + bytes;
}

static int checked_read_bytes(const struct tr_checked *f, void *data, uint64_t first, uint64_t bytes)
{
    char *to = data;
    if (bytes >= LARGE_ARRAY && checked_is_hole(f, first, bytes)) {
        memset(data, 0, bytes);
        return TR_OK;
    }
    while (bytes > 0) {
        ssize_t n = pread(f->fd, to, bytes < (1u << 30) ? bytes : 1u << 30, (off_t)first);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return tr_fail(TR_ERR_IO, "%s: cannot be read: %s", f->path, strerror(errno));
        if (n == 0)
            return tr_fail(TR_ERR_IO, "%s: ended at byte %llu while it was read", f->path,
                           (unsigned long long)first);
        to += n;
        first += (uint64_t)n;
        bytes -= (uint64_t)n;
    }
    return TR_OK;
}

int tr_checked_fill(const struct tr_checked *f, void *zeros, uint64_t first, uint64_t bytes)
{
    for (uint64_t at = 0, n; at < bytes; at += n) {
        n = bytes - at < AT_ONCE ? bytes - at : AT_ONCE;
        if (!checked_is_hole(f, first + at, n))
            TR_TRY(checked_read_bytes(f, (char *)zeros + at, first + at, n));
    }
    return TR_OK;
}

static int checked_damaged(const struct tr_checked *f)
{
    return tr_fail(TR_ERR_DATA, "%s: damaged: its structure does not match its checksum", f->path);
}

static void checked_free_state(XXH3_state_t **state)
{
    XXH3_freeState(*state);
}

static int checked_sum(const struct tr_checked *f, XXH3_state_t *state, uint64_t first, uint64_t bytes,
                       char *buffer)
{
    for (uint64_t n; bytes > 0; first += n, bytes -= n) {
        n = bytes < AT_ONCE ? bytes : AT_ONCE;
        TR_TRY(checked_read_bytes(f, buffer, first, n));
        XXH3_64bits_update(state, buffer, n);
    }
    return TR_OK;
}

/* values: compares the bytes of all areas with their sums. Otherwise: compares all bytes outside the areas with the digest. */
static int checked_compare(struct tr_checked *f, bool values)
{
    struct tr_checked_header *h = f->header;
    XXH3_state_t *state TR_CLOSED_BY(checked_free_state) = XXH3_createState();
    TR_FREED char *buffer = NULL;
    if (!state) return tr_fail(TR_ERR_SYSTEM, "out of memory for a digest");
    TR_TRY(TR_NEW(&buffer, h->bytes < AT_ONCE ? h->bytes : AT_ONCE));
    for (size_t i = 0; values && i < h->areas; i++) {
        const struct tr_checked_area *a = &f->area[i];
        const uint64_t *sum = f->sum + a->sum;
        for (uint64_t at = 0, n; at < a->bytes; at += n) {
            n = a->bytes - at < a->piece ? a->bytes - at : a->piece;
            XXH3_64bits_reset(state);
            TR_TRY(checked_sum(f, state, a->first + at, n, buffer));
            if (XXH3_64bits_digest(state) != *sum++)
                return tr_fail(TR_ERR_DATA, "%s: damaged: bytes %llu to %llu do not match their checksum",
                               f->path, (unsigned long long)(a->first + at),
                               (unsigned long long)(a->first + at + n - 1));
        }
    }
    if (values) return TR_OK;
    uint64_t digest = h->digest, at = h->header;
    h->digest = 0;
    XXH3_64bits_reset(state);
    XXH3_64bits_update(state, h, h->header);
    h->digest = digest;
    for (size_t i = 0; i <= h->areas; i++) {
        uint64_t next = i < h->areas ? f->area[i].first : h->bytes;
        TR_TRY(checked_sum(f, state, at, next - at, buffer));
        if (i < h->areas) at = next + f->area[i].bytes;
    }
    return XXH3_64bits_digest(state) == digest ? TR_OK : checked_damaged(f);
}

int tr_checked_verify(struct tr_checked *f)
{
    return checked_compare(f, true);
}

int tr_checked_open(struct tr_checked *f, const char *path, const char *format, uint32_t version)
{
    struct tr_checked_header h = {.areas = 0};
    char *memory, expected[sizeof h.format] = {0};
    struct stat about;
    *f = (struct tr_checked){.fd = -1};
    TR_TRY(tr_copy_string(path, &f->path));
    f->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* O_NONBLOCK: open() of a pipe must not wait */
    if (f->fd < 0 || fstat(f->fd, &about) < 0)
        return tr_fail(TR_ERR_NO_INPUT, "%s: %s", path, strerror(errno));
    if (!S_ISREG(about.st_mode)) return tr_fail(TR_ERR_NO_INPUT, "%s: not a file", path);
    uint64_t bytes = (uint64_t)about.st_size;
    if (bytes == 0) return tr_fail(TR_ERR_DATA, "%s: empty", path);
    TR_TRY(checked_read_bytes(f, &h, 0, bytes < sizeof h ? bytes : sizeof h));
    if (bytes < sizeof h)
        return tr_fail(TR_ERR_DATA, "%s: cut off: %llu bytes are no file of format %s", path,
                       (unsigned long long)bytes, format);
    memcpy(expected, format, strnlen(format, sizeof expected));
    if (memcmp(h.format, expected, sizeof expected) != 0)
        return tr_fail(TR_ERR_DATA, "%s: not a file of format %s, or damaged at its begin", path, format);
    if (h.order != TR_CHECKED_ORDER)
        return tr_fail(TR_ERR_DATA, "%s: written on a machine with another order of bytes, or damaged", path);
    if (h.version != version)
        return tr_fail(TR_ERR_DATA,
                       "%s: format version %u, expected %u: it comes from another version of Trireme", path,
                       h.version, version);
    if (bytes != h.bytes)
        return tr_fail(TR_ERR_DATA, "%s: %s%llu bytes, expected %llu", path,
                       bytes < h.bytes ? "cut off: " : "", (unsigned long long)bytes,
                       (unsigned long long)h.bytes);
    uint64_t rest = h.header - sizeof h;
    if (h.header > bytes || h.header < sizeof h || h.areas > rest / sizeof(struct tr_checked_area))
        return checked_damaged(f);
    rest -= h.areas * sizeof(struct tr_checked_area);
    if (h.sums > rest / 8 || h.directory > rest - h.sums * 8) return checked_damaged(f);
    TR_TRY(TR_NEW(&memory, h.header));
    f->header = (struct tr_checked_header *)(void *)memory;
    TR_TRY(checked_read_bytes(f, memory, 0, h.header));
    f->area = (const struct tr_checked_area *)(const void *)(memory + sizeof h);
    f->sum = (const uint64_t *)(const void *)(f->area + h.areas);
    f->directory = f->sum + h.sums;
    /* the file was changed while this function read it */
    if (memcmp(memory, &h, sizeof h) != 0) return checked_damaged(f);
    /* checks that areas are ascending and do not overlap, so that all bytes are checked, and that each area has its sums */
    uint64_t at = h.header;
    for (size_t i = 0; i < h.areas; i++) {
        const struct tr_checked_area *a = &f->area[i];
        if (a->first < at || a->first > h.bytes || a->bytes > h.bytes - a->first || a->piece == 0)
            return checked_damaged(f);
        if (a->sum > h.sums || (a->bytes > 0 && (a->bytes - 1) / a->piece + 1 > h.sums - a->sum))
            return checked_damaged(f);
        at = a->first + a->bytes;
    }
    return checked_compare(f, false);
}

void tr_checked_close(struct tr_checked *f)
{
    if (f->fd >= 0) close(f->fd);
    TR_FREE_ALL(f->header, f->piece, f->path);
    *f = (struct tr_checked){.fd = -1};
}

/* ---- values ---- */

static int checked_find_area(const struct tr_checked *f, const struct tr_checked_array *a,
                             const struct tr_checked_area **area)
{
    static const struct tr_checked_area none;
    uint64_t bytes;
    struct tr_checked_area key = {.first = a->at};
    *area = &none;
    if (a->n == 0) return TR_OK;
    *area = bsearch(&key, f->area, f->header->areas, sizeof key, checked_by_first);
    if (*area && !__builtin_mul_overflow(a->n, a->size, &bytes) && bytes == (*area)->bytes) return TR_OK;
    return tr_fail(TR_ERR_DATA, "%s: damaged: odd size of %s", f->path, a->name);
}

static int checked_read_piece(const struct tr_checked *f, const struct tr_checked_array *a,
                              const struct tr_checked_area *area, uint64_t number, void *values)
{
    uint64_t first = number * area->piece, rest = area->bytes - first,
             n = rest < area->piece ? rest : area->piece;
    TR_TRY(checked_read_bytes(f, values, area->first + first, n));
    if (XXH3_64bits(values, n) == f->sum[area->sum + number]) return TR_OK;
    return tr_fail(TR_ERR_DATA, "%s: damaged: elements %llu to %llu of %s do not match their checksum",
                   f->path, (unsigned long long)(first / a->size),
                   (unsigned long long)((first + n) / a->size - 1), a->name);
}

/* A piece of which only a part is needed is stored in f->piece, because the next call often needs its rest. */
int tr_checked_read(struct tr_checked *f, const struct tr_checked_array *a, uint64_t first, uint64_t n,
                    void *values)
{
    const struct tr_checked_area *area;
    if (first > a->n || n > a->n - first)
        return tr_fail(TR_ERR_INTERNAL, "%s: elements beyond the end of %s", f->path, a->name);
    TR_TRY(checked_find_area(f, a, &area));
    uint64_t at = first * a->size, end = at + n * a->size;
    for (char *to = values; at < end;) {
        uint64_t number = at / area->piece, skip = at % area->piece, here = area->piece - skip;
        bool whole = skip == 0 && (end - at >= here || end == area->bytes);
        if (here > end - at) here = end - at;
        if (whole) TR_TRY(checked_read_piece(f, a, area, number, to));
        else if (f->piece_area != area || f->piece_number != number) {
            f->piece_area = NULL; /* set only after the piece was read: after a failure no piece is stored */
            TR_TRY(TR_GROW(&f->piece, &f->piece_capacity,
                           area->piece < area->bytes ? area->piece : area->bytes));
            TR_TRY(checked_read_piece(f, a, area, number, f->piece));
            f->piece_area = area;
            f->piece_number = number;
        }
        if (!whole) memcpy(to, f->piece + skip, here);
        to += here;
        at += here;
    }
    return TR_OK;
}

int tr_checked_get(struct tr_checked *f, const struct tr_checked_array *a, void *values_pointer)
{
    const struct tr_checked_area *area;
    char *values;
    TR_TRY(checked_find_area(f, a, &area));
    TR_TRY(TR_NEW(&values, area->bytes));
    *(void **)values_pointer = values;
    return tr_checked_read(f, a, 0, a->n, values);
}

/* ---- HDF5 files of other users ---- */

enum { DEEPEST_GROUP = 64 };

struct link_check {
    const char *path;
    int status;
};

/* Called by H5Lvisit() for each object of a file. Refuses links to other files, and datasets with values in other files. */
static herr_t link_visit(hid_t group, const char *name, const H5L_info_t *link, void *check)
{
    struct link_check *c = check;
    int depth = 0;
    for (const char *at = name; *at; at++) depth += *at == '/';
    if (depth > DEEPEST_GROUP)
        c->status = tr_fail(TR_ERR_DATA, "%s:/%.200s: more than %d groups inside one another", c->path, name,
                            DEEPEST_GROUP);
    else if (link->type != H5L_TYPE_HARD && link->type != H5L_TYPE_SOFT)
        c->status = tr_fail(TR_ERR_DATA, "%s:/%s: a link to another file (external link): not followed",
                            c->path, name);
    if (c->status != TR_OK || link->type != H5L_TYPE_HARD) return c->status == TR_OK ? 0 : 1;
    TR_HID object = H5Oopen(group, name, H5P_DEFAULT), how = -1;
    if (object >= 0 && H5Iget_type(object) == H5I_DATASET) {
        size_t sources = 0;
        char source[256] = "";
        how = H5Dget_create_plist(object);
        if (how < 0) c->status = tr_fail(TR_ERR_DATA, "%s:/%s: HDF5 cannot read it", c->path, name);
        else if (H5Pget_external_count(how) != 0)
            c->status =
                tr_fail(TR_ERR_DATA, "%s:/%s: its values are in another file (external storage): not read",
                        c->path, name);
        else if (H5Pget_layout(how) == H5D_VIRTUAL && H5Pget_virtual_count(how, &sources) < 0)
            c->status = TR_ERR_DATA;
        for (size_t i = 0; c->status == TR_OK && i < sources; i++)
            if (H5Pget_virtual_filename(how, i, source, sizeof source) < 0 || strcmp(source, ".") != 0)
                c->status = tr_fail(TR_ERR_DATA,
                                    "%s:/%s: its values are in another file (a virtual dataset): not read",
                                    c->path, name);
    }
    return c->status == TR_OK ? 0 : 1;
}

int tr_hdf5_open(const char *path, int fd, hid_t *file)
{
    char name[32];
    unsigned loads;
    hid_t access = checked_access();
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    if (fd < 0) H5Pset_fapl_sec2(access);
    if (!getenv("HDF5_PLUGIN_PATH") && H5PLget_loading_state(&loads) >= 0)
        H5PLset_loading_state(loads & ~(unsigned)H5PL_FILTER_PLUGIN);
    *file = H5Fopen(fd < 0 ? path : name, H5F_ACC_RDONLY, access);
    hid_t errors = H5Eget_current_stack(); /* saved, because H5Pclose() empties the stack */
    H5Pclose(access);
    H5Eset_current_stack(errors);
    if (*file < 0) return TR_ERR_DATA;
    struct link_check c = {path, TR_OK};
    herr_t end = H5Lvisit(*file, H5_INDEX_NAME, H5_ITER_NATIVE, link_visit, &c);
    if (c.status != TR_OK || end >= 0) return c.status;
    return tr_fail(TR_ERR_DATA, "%s: HDF5 cannot list its objects", path);
}
