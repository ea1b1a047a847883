/* Writing: see sealed.h. */
#define _GNU_SOURCE
#include "store/sealed.h"

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

#include <xxhash.h>

#include "base/base.h"
#include "base/fault.h"
#include "store/front.h"

enum { AT_ONCE = 1 << 22, LARGE_ARRAY = 1 << 16 };

/* ---- laying out ---- */

int tr_image_failed(const char *name)
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

hid_t tr_image_how(hid_t class)
{
    hid_t how = H5Pcreate(class);
    H5Pset_obj_track_times(how, false);
    if (H5Pget_class(how) == H5P_DATASET_CREATE) H5Pset_fill_time(how, H5D_FILL_TIME_NEVER);
    return how;
}

static hid_t create_file(struct tr_image *image)
{
    char name[32];
    snprintf(name, sizeof name, "/proc/self/fd/%d", image->memory);
    hid_t access = H5Pcreate(H5P_FILE_ACCESS), how = H5Pcreate(H5P_FILE_CREATE);
    H5Pset_fapl_stdio(access); /* the usual driver follows the link, to where there is no file */
    H5Pset_libver_bounds(access, H5F_LIBVER_V110, H5F_LIBVER_V110); /* checksums, which h5dump checks too */
    H5Pset_file_locking(access, false, true);
    H5Pset_fclose_degree(access, H5F_CLOSE_STRONG);
    H5Pset_alignment(access, LARGE_ARRAY, TR_FRONT_LEAST);
    H5Pset_userblock(how, image->front);
    H5Pset_obj_track_times(how, false);
    H5Pset_attr_phase_change(how, 64, 32); /* they stay together, which is shorter */
    hid_t file = H5Fcreate(name, H5F_ACC_TRUNC, how, access);
    H5Pclose(how);
    H5Pclose(access);
    return file;
}

/* Beyond this limit HDF5 could not even lay the file out, and would be left with a file that it cannot close. */
static int check_limit(const char *path, size_t areas, uint64_t bytes)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_FSIZE, &limit) < 0 || limit.rlim_cur == RLIM_INFINITY) return TR_OK;
    uint64_t wanted = bytes + ((uint64_t)areas + 16) * 2 * TR_FRONT_LEAST;
    if (wanted <= limit.rlim_cur) return TR_OK;
    return tr_fail(TR_ERR_IO,
                   "%s: cannot be written: some %llu bytes, but this process may write %llu (ulimit -f)",
                   path, (unsigned long long)wanted, (unsigned long long)limit.rlim_cur);
}

static int describe_file(const struct tr_image *image)
{
    TR_TRY(tr_image_text(image->file, "format", image->format));
    TR_TRY(tr_image_int(image->file, "format_version", image->version));
    return tr_image_text(image->file, "trireme", TR_VERSION);
}

int tr_image_create(struct tr_image *image, const char *path, const char *format, uint32_t version,
                    size_t areas, uint64_t bytes, uint64_t directory)
{
    *image = (struct tr_image){.path = path,
                               .format = format,
                               .version = version,
                               .file = -1,
                               .memory = -1,
                               .front = TR_FRONT_LEAST,
                               .directory = directory,
                               .most = areas};
    while (image->front < sizeof(struct tr_front) + areas * 16 + directory) image->front *= 2;
    TR_TRY(check_limit(path, areas, image->front + bytes));
    TR_TRY(TR_NEW(&image->area, areas));
    image->memory = memfd_create("checkpoint", MFD_CLOEXEC);
    if (image->memory < 0) return tr_fail(TR_ERR_SYSTEM, "no file in memory: %s", strerror(errno));
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL); /* errors are ours to print */
    image->file = create_file(image);
    return image->file < 0 ? tr_image_failed("a file") : describe_file(image);
}

int tr_image_array(struct tr_image *image, hid_t where, const char *name, hid_t type, int dimensions,
                   const uint64_t *shape, const void *data, uint64_t *sums, size_t piece, uint64_t *at)
{
    if (image->areas == image->most) return tr_image_failed(name);
    hsize_t extent[2] = {1, 1};
    for (int i = 0; i < dimensions; i++) extent[i] = shape[i];
    hid_t space = dimensions > 0 ? H5Screate_simple(dimensions, extent, NULL) : H5Screate(H5S_SCALAR);
    hid_t how = tr_image_how(H5P_DATASET_CREATE);
    H5Pset_alloc_time(how, H5D_ALLOC_TIME_EARLY);
    hid_t set = H5Dcreate2(where, name, type, space, H5P_DEFAULT, how, H5P_DEFAULT);
    H5Pclose(how);
    H5Sclose(space);
    if (set < 0) return tr_image_failed(name);
    uint64_t bytes = extent[0] * extent[1] * H5Tget_size(type);
    haddr_t first = bytes > 0 ? H5Dget_offset(set) : 0;
    H5Dclose(set);
    if (first == HADDR_UNDEF) return tr_image_failed(name);
    if (bytes > 0) image->area[image->areas++] = (struct tr_area){first, bytes, data, sums, piece};
    if (at) *at = first;
    return TR_OK;
}

static int put_attribute(hid_t where, const char *name, hid_t type, const void *value)
{
    hid_t space = H5Screate(H5S_SCALAR);
    hid_t attribute = H5Acreate2(where, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
    bool ok = attribute >= 0 && H5Awrite(attribute, type, value) >= 0;
    if (attribute >= 0) H5Aclose(attribute);
    H5Sclose(space);
    return ok ? TR_OK : tr_image_failed(name);
}

int tr_image_count(hid_t where, const char *name, uint64_t value)
{
    return put_attribute(where, name, H5T_NATIVE_UINT64, &value);
}

int tr_image_int(hid_t where, const char *name, int64_t value)
{
    return put_attribute(where, name, H5T_NATIVE_INT64, &value);
}

int tr_image_real(hid_t where, const char *name, double value)
{
    return put_attribute(where, name, H5T_NATIVE_DOUBLE, &value);
}

int tr_image_text(hid_t where, const char *name, const char *text)
{
    hid_t type = tr_text_type(strlen(text));
    int status = put_attribute(where, name, type, text);
    H5Tclose(type);
    return status;
}

/* ---- to the disk ---- */

struct output {
    const char *path;
    int fd;
    bool durable;
};

static int failed(const struct output *o, int status)
{
    return tr_fail(status, "%s: cannot be written: %s", o->path, strerror(errno));
}

/* As pwrite(), but where a test wants it to fail or to stop half way. */
static ssize_t write_some(const struct output *o, const void *from, size_t bytes, uint64_t first)
{
    switch (TR_FAULT("checkpoint.write")) {
    case TR_FAULT_ENOSPC: errno = ENOSPC; return -1;
    case TR_FAULT_EIO: errno = EIO; return -1;
    case TR_FAULT_SHORT: bytes = (bytes + 1) / 2; break;
    default: break;
    }
    return pwrite(o->fd, from, bytes, (off_t)first);
}

/* All bytes of a checkpoint are written here. */
static int put(const struct output *o, const void *data, uint64_t bytes, uint64_t first)
{
    const char *from = data;
    while (bytes > 0) {
        ssize_t n = write_some(o, from, bytes < AT_ONCE ? bytes : AT_ONCE, first);
        if (n < 0 && errno == EINTR) continue;
        if (n == 0) errno = ENOSPC;
        if (n <= 0) return failed(o, TR_ERR_IO);
        from += n;
        first += (uint64_t)n;
        bytes -= (uint64_t)n;
    }
    return TR_OK;
}

/* Summed and written piece by piece, while a piece is in the cache. The disk starts on them at once: fsync has less to
 * wait for. */
static int put_summed(struct output *o, const struct tr_area *a)
{
    const char *data = a->data;
    uint64_t started = 0;
    for (uint64_t at = 0, i = 0, n; at < a->bytes; at += n, i++) {
        n = a->bytes - at < a->piece ? a->bytes - at : a->piece;
        a->sums[i] = XXH3_64bits(data + at, n);
        TR_TRY(put(o, data + at, n, a->first + at));
        if (!o->durable || at + n - started < AT_ONCE) continue;
        sync_file_range(o->fd, (off_t)(a->first + started), (off_t)(at + n - started), SYNC_FILE_RANGE_WRITE);
        started = at + n;
    }
    return TR_OK;
}

static int by_first(const void *a, const void *b)
{
    const struct tr_area *x = a, *y = b;
    return x->first < y->first ? -1 : x->first > y->first;
}

/* Everything else, in the order of the file, and all of that through the digest. */
static int put_rest(struct output *o, const struct tr_image *image, const char *memory, uint64_t bytes,
                    XXH3_state_t *digest)
{
    uint64_t at = image->front;
    for (size_t i = 0; i <= image->areas; i++) {
        const struct tr_area *a = i < image->areas ? &image->area[i] : NULL;
        uint64_t next = a ? a->first : bytes;
        if (next < at || next > bytes) return tr_image_failed("arrays");
        XXH3_64bits_update(digest, memory + at, next - at);
        TR_TRY(put(o, memory + at, next - at, at));
        if (!a) break;
        if (!a->sums) {
            XXH3_64bits_update(digest, a->data, a->bytes);
            TR_TRY(put(o, a->data, a->bytes, a->first));
        }
        at = a->first + a->bytes;
    }
    return TR_OK;
}

static struct tr_front *make_front(const struct tr_image *image, const void *directory, uint64_t bytes)
{
    struct tr_front *front = calloc(1, image->front);
    if (!front) return NULL;
    memcpy(front->format, image->format, strnlen(image->format, sizeof front->format));
    front->version = image->version;
    front->order = TR_FRONT_ORDER;
    front->bytes = bytes;
    front->front = image->front;
    for (size_t i = 0; i < image->areas; i++) {
        if (!image->area[i].sums) continue;
        front->area[front->areas][0] = image->area[i].first;
        front->area[front->areas++][1] = image->area[i].bytes;
    }
    front->directory_at = sizeof *front + image->most * sizeof *front->area;
    front->directory_bytes = image->directory;
    if (directory) memcpy((char *)front + front->directory_at, directory, image->directory);
    return front;
}

static int put_all(struct output *o, struct tr_image *image, const char *memory, struct tr_front *front,
                   XXH3_state_t *digest)
{
    /* room for all of it now, where a file system can: a disk that is too full says so before anything is written */
    if (fallocate(o->fd, 0, 0, (off_t)front->bytes) < 0 && errno != EOPNOTSUPP && errno != ENOSYS &&
        errno != EINVAL && errno != EINTR)
        return failed(o, TR_ERR_IO);
    for (size_t i = 0; i < image->areas; i++)
        if (image->area[i].sums) TR_TRY(put_summed(o, &image->area[i]));
    XXH3_64bits_reset(digest);
    XXH3_64bits_update(digest, front, image->front);
    TR_TRY(put_rest(o, image, memory, front->bytes, digest));
    front->digest = XXH3_64bits_digest(digest);
    TR_TRY(put(o, front, image->front, 0)); /* last: without it the rest is nothing */
    if (o->durable && fsync(o->fd) < 0) return failed(o, TR_ERR_IO);
    return TR_OK;
}

static int write_file(struct tr_image *image, const char *memory, struct tr_front *front,
                      XXH3_state_t *digest, bool durable)
{
    struct output o = {.path = image->path, .durable = durable};
    o.fd = open(o.path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (o.fd < 0) return failed(&o, TR_ERR_NO_OUTPUT);
    int status = put_all(&o, image, memory, front, digest);
    if (close(o.fd) < 0 && status == TR_OK) status = failed(&o, TR_ERR_IO); /* NFS may not know before */
    if (status != TR_OK) unlink(o.path);
    return status;
}

/* Beyond the limit of this process the kernel sends a signal besides failing: held back, and taken away. */
static int write_without_signal(struct tr_image *image, const char *memory, struct tr_front *front,
                                XXH3_state_t *digest, bool durable)
{
    sigset_t limit, old;
    sigemptyset(&limit);
    sigaddset(&limit, SIGXFSZ);
    pthread_sigmask(SIG_BLOCK, &limit, &old);
    int status = write_file(image, memory, front, digest, durable);
    if (!sigismember(&old, SIGXFSZ)) sigtimedwait(&limit, NULL, &(struct timespec){0});
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return status;
}

int tr_image_write(struct tr_image *image, const void *directory, bool durable, uint64_t *bytes,
                   uint64_t *digest)
{
    hid_t file = image->file;
    image->file = -1;
    struct stat laid;
    if (H5Fclose(file) < 0 || fstat(image->memory, &laid) < 0) return tr_image_failed(image->path);
    qsort(image->area, image->areas, sizeof *image->area, by_first);
    struct tr_front *front = make_front(image, directory, (uint64_t)laid.st_size);
    XXH3_state_t *state = XXH3_createState();
    void *memory = mmap(NULL, (size_t)laid.st_size, PROT_READ, MAP_SHARED, image->memory, 0);
    int status = front && state && memory != MAP_FAILED
                     ? write_without_signal(image, memory, front, state, durable)
                     : tr_fail(TR_ERR_SYSTEM, "no memory to write %s", image->path);
    if (status == TR_OK) {
        *bytes = front->bytes;
        *digest = front->digest;
    }
    if (memory != MAP_FAILED) munmap(memory, (size_t)laid.st_size);
    XXH3_freeState(state);
    free(front);
    return status;
}

void tr_image_close(struct tr_image *image)
{
    if (image->file >= 0) H5Fclose(image->file);
    if (image->memory >= 0) close(image->memory);
    free(image->area);
    *image = (struct tr_image){.file = -1, .memory = -1};
}

int tr_sync_folder(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    /* some file systems cannot sync a folder and say EINVAL: the names are as safe as they can be there */
    int status = fd < 0 || (fsync(fd) < 0 && errno != EINVAL)
                     ? tr_fail(TR_ERR_IO, "%s: cannot be brought to the disk: %s", path, strerror(errno))
                     : TR_OK;
    if (fd >= 0) close(fd);
    return status;
}
