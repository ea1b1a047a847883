#define _GNU_SOURCE
#include "store/persistent.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/base.h"

/* ---- bases ---- */

static void bases_add(struct tr_persistent_bases *b, const char *base, size_t length)
{
    while (length > 1 && base[length - 1] == '/') length--;
    if (b->n == TR_PERSISTENT_BASES || length == 0 || length >= sizeof b->base[0]) return;
    memcpy(b->base[b->n], base, length);
    b->base[b->n++][length] = '\0';
}

void tr_persistent_bases(struct tr_persistent_bases *b)
{
    const char *given = getenv(TR_PERSISTENT_VARIABLE), *other = getenv("TMPDIR");
    *b = (struct tr_persistent_bases){.n = 0};
    for (const char *at = given; at && *at;) {
        size_t length = strcspn(at, ":");
        bases_add(b, at, length);
        at += length + (at[length] == ':');
    }
    if (b->n > 0) return;
    if (!other || !*other) other = "/tmp";
    bases_add(b, "/dev/shm", strlen("/dev/shm"));
    bases_add(b, other, strlen(other));
}

uint64_t tr_persistent_free(const char *base)
{
    struct statvfs fs;
    if (statvfs(base, &fs) < 0) return 0;
    uint64_t unit = fs.f_frsize, all = fs.f_blocks * unit, left = fs.f_bavail * unit, others = all / 16;
    return left > others ? left - others : 0;
}

/* ---- folders ---- */

void tr_host_name(char host[TR_HOST_BYTES])
{
    host[TR_HOST_BYTES - 1] = '\0';
    if (gethostname(host, TR_HOST_BYTES - 1) < 0 || !*host) strcpy(host, "unknown");
    for (char *c = host; *c; c++)
        if (*c == '/') *c = '_';
}

/* Returns the number of a namespace; 0: unknown. */
static unsigned long long process_namespace(const char *path)
{
    struct stat status;
    return stat(path, &status) == 0 ? (unsigned long long)status.st_ino : 0;
}

void tr_view_of_processes(char view[TR_VIEW_BYTES])
{
    snprintf(view, TR_VIEW_BYTES, "%llu", process_namespace("/proc/self/ns/pid"));
}

int tr_persistent_path(const char *base, const char *kind, const char *name, char **path)
{
    return tr_format(path, "%s/%s-%u-%s", base, kind, (unsigned)geteuid(), name);
}

static bool folder_is_own(const struct stat *status)
{
    return S_ISDIR(status->st_mode) && status->st_uid == geteuid() && (status->st_mode & 077) == 0;
}

/* Repeats mkdir() if the new folder is missing: another process, which removes folders of ended jobs, may have removed it. */
int tr_persistent_make(const char *path)
{
    struct stat status = {.st_mode = 0};
    do {
        if (mkdir(path, 0700) < 0 && errno != EEXIST)
            return tr_fail(TR_ERR_NO_OUTPUT, "%s: cannot be made: %s", path, strerror(errno));
    } while (lstat(path, &status) < 0 && errno == ENOENT);
    if (folder_is_own(&status)) return TR_OK;
    return tr_fail(TR_ERR_NO_OUTPUT, "%s: is not a folder of this user alone", path);
}

bool tr_persistent_is_own(const char *path)
{
    struct stat status;
    return lstat(path, &status) == 0 && folder_is_own(&status);
}

int tr_persistent_each(const char *kind, tr_persistent_fn *look, void *who)
{
    char begin[64];
    struct tr_persistent_bases bases;
    int status = TR_OK, length = snprintf(begin, sizeof begin, "%s-%u-", kind, (unsigned)geteuid());
    tr_persistent_bases(&bases);
    for (size_t i = 0; i < bases.n && status == TR_OK; i++) {
        DIR *base = opendir(bases.base[i]);
        for (struct dirent *entry; base && status == TR_OK && (entry = readdir(base));) {
            char *path;
            if (strncmp(entry->d_name, begin, (size_t)length) != 0) continue;
            status = tr_format(&path, "%s/%s", bases.base[i], entry->d_name);
            if (status != TR_OK) break;
            if (tr_persistent_is_own(path)) status = look(who, path, entry->d_name + length);
            free(path);
        }
        if (base) closedir(base);
    }
    return status;
}

int tr_whole_path(const char *path, char **whole)
{
    char real[PATH_MAX], here[PATH_MAX];
    if (realpath(path, real)) return tr_copy_string(real, whole);
    if (*path == '/' || !getcwd(here, sizeof here)) return tr_copy_string(path, whole);
    return tr_format(whole, "%s/%s", here, path);
}

enum { MARK = TR_HOST_BYTES + TR_VIEW_BYTES + 16 };

/* Writes the text that follows the path in a file `owner`: this host, and the mount namespace and root folder of this process. */
static void owner_mark(char text[MARK])
{
    char host[TR_HOST_BYTES];
    struct stat root = {.st_ino = 0};
    tr_host_name(host);
    (void)stat("/", &root);
    snprintf(text, MARK, "host %s\nfiles %llu:%llx:%llx\n", host, process_namespace("/proc/self/ns/mnt"),
             (unsigned long long)root.st_dev, (unsigned long long)root.st_ino);
}

bool tr_owner_write(int fd, const char *path)
{
    TR_FREED char *whole = NULL;
    char text[MARK];
    if (tr_whole_path(path, &whole) != TR_OK) return false;
    owner_mark(text);
    return dprintf(fd, "%s\n%s", whole, text) > 0;
}

bool tr_owner_read(int fd, char path[PATH_MAX], bool *here)
{
    char text[PATH_MAX + MARK] = "", own[MARK], *rest = text;
    ssize_t n = pread(fd, text, sizeof text - 1, 0);
    snprintf(path, PATH_MAX, "%s", strsep(&rest, "\n"));
    owner_mark(own);
    *here = rest && strcmp(rest, own) == 0;
    return rest && *rest && text[n - 1] == '\n';
}

void tr_persistent_remove(const char *path)
{
    DIR *dir = opendir(path);
    for (struct dirent *entry; dir && (entry = readdir(dir));) {
        TR_FREED char *inside = NULL;
        if (entry->d_name[0] == '.' || !strcmp(entry->d_name, "owner")) continue;
        if (unlinkat(dirfd(dir), entry->d_name, 0) == 0 || errno != EISDIR) continue;
        if (tr_format(&inside, "%s/%s", path, entry->d_name) == TR_OK) tr_persistent_remove(inside);
    }
    if (dir) {
        (void)unlinkat(dirfd(dir), "owner", 0);
        closedir(dir);
    }
    (void)rmdir(path);
}
