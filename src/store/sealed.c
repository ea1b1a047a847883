/* Reading: see sealed.h. */
#define _GNU_SOURCE
#include "store/sealed.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <xxhash.h>

#include "base/base.h"
#include "store/front.h"

enum { AT_ONCE = 1 << 20 };

/* ---- the file ---- */

int tr_sealed_read(const struct tr_sealed *s, void *data, uint64_t first, uint64_t bytes)
{
    char *to = data;
    while (bytes > 0) {
        ssize_t n = pread(s->fd, to, bytes < (1u << 30) ? bytes : 1u << 30, (off_t)first);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return tr_fail(TR_ERR_IO, "%s: cannot be read: %s", s->path, strerror(errno));
        if (n == 0)
            return tr_fail(TR_ERR_IO, "%s: ended at byte %llu while it was read", s->path,
                           (unsigned long long)first);
        to += n;
        first += (uint64_t)n;
        bytes -= (uint64_t)n;
    }
    return TR_OK;
}

static int damaged(const struct tr_sealed *s)
{
    return tr_fail(TR_ERR_DATA, "%s: damaged: its structure is not what was written", s->path);
}

static int open_file(struct tr_sealed *s)
{
    struct stat status;
    s->fd = open(s->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe in its place shall not hold us up */
    if (s->fd < 0 || fstat(s->fd, &status) < 0)
        return tr_fail(TR_ERR_NO_INPUT, "%s: %s", s->path, strerror(errno));
    if (!S_ISREG(status.st_mode)) return tr_fail(TR_ERR_NO_INPUT, "%s: not a file", s->path);
    s->bytes = (uint64_t)status.st_size;
    return s->bytes > 0 ? TR_OK : tr_fail(TR_ERR_DATA, "%s: empty", s->path);
}

/* What can be said before the digest is known to be right. */
static int check_front(struct tr_sealed *s, const struct tr_front *front, const char *format,
                       uint32_t version)
{
    char expected[sizeof front->format] = {0};
    memcpy(expected, format, strnlen(format, sizeof expected));
    if (memcmp(front->format, expected, sizeof expected) != 0)
        return tr_fail(TR_ERR_DATA, "%s: not a file of format %s, or damaged at its begin", s->path, format);
    if (front->order != TR_FRONT_ORDER)
        return tr_fail(TR_ERR_DATA, "%s: written on a machine with another order of bytes, or damaged",
                       s->path);
    if (front->version != version)
        return tr_fail(TR_ERR_DATA,
                       "%s: format version %u, expected %u: it comes from another version of Trireme",
                       s->path, front->version, version);
    if (s->bytes < front->bytes)
        return tr_fail(TR_ERR_DATA, "%s: cut off: %llu bytes, expected %llu", s->path,
                       (unsigned long long)s->bytes, (unsigned long long)front->bytes);
    if (s->bytes > front->bytes)
        return tr_fail(TR_ERR_DATA, "%s: %llu bytes, expected %llu", s->path, (unsigned long long)s->bytes,
                       (unsigned long long)front->bytes);
    return TR_OK;
}

/* Areas follow each other behind the front, so that no byte is left unchecked. */
static int take_areas(struct tr_sealed *s, struct tr_front *front)
{
    uint64_t at = s->front, end = s->bytes;
    for (size_t i = 0; i < front->areas; i++) {
        uint64_t first = front->area[i][0], bytes = front->area[i][1];
        if (first < at || first > end || bytes > end - first) return damaged(s);
        at = first + bytes;
    }
    s->areas = front->areas;
    s->area = front->area;
    if (front->directory_at > s->front || front->directory_bytes > s->front - front->directory_at)
        return damaged(s);
    s->directory = (const char *)front + front->directory_at;
    s->directory_bytes = front->directory_bytes;
    return TR_OK;
}

static int digest_rest(struct tr_sealed *s, XXH3_state_t *state)
{
    char *buffer;
    TR_TRY(TR_NEW(&buffer, s->bytes < AT_ONCE ? s->bytes : AT_ONCE));
    uint64_t at = s->front;
    int status = TR_OK;
    for (size_t i = 0; i <= s->areas; i++) {
        uint64_t next = i < s->areas ? s->area[i][0] : s->bytes;
        while (status == TR_OK && at < next) {
            uint64_t n = next - at < AT_ONCE ? next - at : AT_ONCE;
            status = tr_sealed_read(s, buffer, at, n);
            if (status == TR_OK) XXH3_64bits_update(state, buffer, n);
            at += n;
        }
        if (status == TR_OK && i < s->areas) at += s->area[i][1];
    }
    free(buffer);
    return status;
}

static int check_digest(struct tr_sealed *s, struct tr_front *front)
{
    XXH3_state_t *state = XXH3_createState();
    if (!state) return tr_fail(TR_ERR_SYSTEM, "out of memory for a digest");
    s->digest = front->digest;
    front->digest = 0;
    XXH3_64bits_reset(state);
    XXH3_64bits_update(state, front, s->front);
    int status = digest_rest(s, state);
    if (status == TR_OK && XXH3_64bits_digest(state) != s->digest) status = damaged(s);
    XXH3_freeState(state);
    return status;
}

static int read_front(struct tr_sealed *s, const char *format, uint32_t version)
{
    struct tr_front head = {.areas = 0};
    uint64_t there = s->bytes < sizeof head ? s->bytes : sizeof head;
    TR_TRY(tr_sealed_read(s, &head, 0, there));
    if (there < sizeof head)
        return tr_fail(TR_ERR_DATA, "%s: cut off: %llu bytes are no file of format %s", s->path,
                       (unsigned long long)s->bytes, format);
    TR_TRY(check_front(s, &head, format, version));
    if (head.front > s->bytes || head.front < sizeof head || head.areas > (head.front - sizeof head) / 16)
        return damaged(s);
    s->front = head.front;
    char *memory;
    TR_TRY(TR_NEW(&memory, s->front));
    s->memory = memory;
    struct tr_front *front = s->memory;
    TR_TRY(tr_sealed_read(s, front, 0, s->front));
    TR_TRY(take_areas(s, front));
    return check_digest(s, front);
}

/* By the descriptor: what was checked is what is read. */
int tr_sealed_structure(struct tr_sealed *s)
{
    char name[32];
    snprintf(name, sizeof name, "/proc/self/fd/%d", s->fd);
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL); /* errors are ours to print */
    hid_t access = H5Pcreate(H5P_FILE_ACCESS);
    H5Pset_fapl_stdio(access); /* the usual driver goes by the name that the link leads to */
    H5Pset_file_locking(access, false, true);
    H5Pset_fclose_degree(access, H5F_CLOSE_STRONG);
    s->file = H5Fopen(name, H5F_ACC_RDONLY, access);
    H5Pclose(access);
    return s->file >= 0 ? TR_OK : damaged(s);
}

int tr_sealed_open(struct tr_sealed *s, const char *path, const char *format, uint32_t version)
{
    *s = (struct tr_sealed){.path = path, .fd = -1, .file = -1};
    TR_TRY(open_file(s));
    return read_front(s, format, version);
}

void tr_sealed_close(struct tr_sealed *s)
{
    if (s->file >= 0) H5Fclose(s->file);
    if (s->fd >= 0) close(s->fd);
    free(s->memory);
    *s = (struct tr_sealed){.fd = -1, .file = -1};
}

/* ---- attributes ---- */

int tr_sealed_missing(const struct tr_sealed *s, const char *name)
{
    return tr_fail(TR_ERR_DATA, "%s: %s is missing or of another kind", s->path, name);
}

static bool is_text(hid_t type)
{
    return type >= 0 && H5Tget_class(type) == H5T_STRING && H5Tis_variable_str(type) == 0;
}

/* A number of this type, or (value_size > 0) a text of less than so many bytes. */
static int get_attribute(const struct tr_sealed *s, const char *name, hid_t type, void *value,
                         size_t value_size)
{
    hid_t attribute = H5Aopen(s->file, name, H5P_DEFAULT);
    hid_t stored = attribute < 0 ? -1 : H5Aget_type(attribute);
    hid_t space = attribute < 0 ? -1 : H5Aget_space(attribute);
    bool ok = stored >= 0 && space >= 0 && H5Sget_simple_extent_npoints(space) == 1;
    if (value_size > 0) ok = ok && is_text(stored) && H5Tget_size(stored) < value_size;
    else ok = ok && H5Tequal(stored, type) > 0;
    ok = ok && H5Aread(attribute, stored, value) >= 0;
    if (ok && value_size > 0) ((char *)value)[H5Tget_size(stored)] = '\0';
    if (space >= 0) H5Sclose(space);
    if (stored >= 0) H5Tclose(stored);
    if (attribute >= 0) H5Aclose(attribute);
    return ok ? TR_OK : tr_sealed_missing(s, name);
}

int tr_sealed_count(const struct tr_sealed *s, const char *name, uint64_t *value)
{
    return get_attribute(s, name, H5T_NATIVE_UINT64, value, 0);
}

int tr_sealed_int(const struct tr_sealed *s, const char *name, int64_t *value)
{
    return get_attribute(s, name, H5T_NATIVE_INT64, value, 0);
}

int tr_sealed_real(const struct tr_sealed *s, const char *name, double *value)
{
    return get_attribute(s, name, H5T_NATIVE_DOUBLE, value, 0);
}

int tr_sealed_text(const struct tr_sealed *s, const char *name, char *text, size_t size)
{
    return get_attribute(s, name, -1, text, size);
}

/* ---- arrays ---- */

/* How many elements, in one dimension, or (0) in none. */
static bool get_length(hid_t set, int dimensions, uint64_t *n)
{
    hid_t space = H5Dget_space(set);
    hsize_t extent = 1;
    bool ok = space >= 0 && H5Sget_simple_extent_ndims(space) == dimensions &&
              H5Sget_simple_extent_dims(space, &extent, NULL) == dimensions;
    *n = extent;
    if (space >= 0) H5Sclose(space);
    return ok;
}

/* One block of the file, which is long enough for it. */
static bool get_place(const struct tr_sealed *s, hid_t set, uint64_t n, size_t size, uint64_t *first)
{
    uint64_t bytes;
    if (__builtin_mul_overflow(n, size, &bytes)) return false;
    haddr_t at = bytes > 0 ? H5Dget_offset(set) : 0;
    *first = at;
    return at != HADDR_UNDEF && at <= s->bytes && bytes <= s->bytes - at && H5Dget_storage_size(set) == bytes;
}

int tr_sealed_find(const struct tr_sealed *s, const char *name, hid_t type, uint64_t *n, uint64_t *first)
{
    hid_t set = H5Dopen2(s->file, name, H5P_DEFAULT), stored = set < 0 ? -1 : H5Dget_type(set);
    uint64_t length = 0;
    bool ok = stored >= 0 && H5Tequal(stored, type) > 0 && get_length(set, n ? 1 : 0, &length) &&
              get_place(s, set, length, H5Tget_size(type), first);
    if (ok && n) *n = length;
    if (stored >= 0) H5Tclose(stored);
    if (set >= 0) H5Dclose(set);
    return ok ? TR_OK : tr_sealed_missing(s, name);
}

int tr_sealed_get(const struct tr_sealed *s, const char *name, hid_t type, uint64_t *n, void *values_pointer)
{
    uint64_t length = 0, first = 0;
    TR_TRY(tr_sealed_find(s, name, type, &length, &first));
    char *values;
    TR_TRY(TR_NEW(&values, length * H5Tget_size(type)));
    int status = tr_sealed_read(s, values, first, length * H5Tget_size(type));
    if (status == TR_OK) {
        *n = length;
        *(void **)values_pointer = values;
    } else {
        free(values);
    }
    return status;
}
