#define _GNU_SOURCE
#include "store/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <xxhash.h>

#include "base/base.h"
#include "base/file.h"
#include "store/persistent.h"
#include "trireme/collective.h"

/* ================ files ================ */

#define MEMORY_KIND "trireme" /* <kind> in the names of persistent folders (persistent.h) */
#define MEMORY_NAME "memory"  /* file with the current run, in the folder of the checkpoints on the disk */

/* ---- all folders ---- */

/* An operation on the folders of this user on this host: look() is called for each folder. */
struct folder_visit {
    int (*look)(struct folder_visit *v, const char *folder, uint64_t run);
    char host[TR_HOST_BYTES];
    /* listing, removing: the run whose folders are visited; cleaning: the run whose folder stays */
    uint64_t run;
    uint64_t number, other;      /* removing: numbers of the two checkpoints that stay */
    struct tr_memory_file *file; /* listing: the n files found so far */
    size_t n, capacity;
};

/* Calls look() if the name has the form <run, 16 digits>-<host>.<node>, with the name of this host. */
static int folder_visit(void *what, const char *path, const char *name)
{
    struct folder_visit *v = what;
    size_t length = strlen(v->host);
    const char *host = name + 17, *node = host + length + 1;
    if (strspn(name, "0123456789abcdef") != 16 || name[16] != '-') return TR_OK;
    if (strncmp(host, v->host, length) != 0 || host[length] != '.') return TR_OK;
    if (!*node || strspn(node, "0123456789") != strlen(node)) return TR_OK;
    return v->look(v, path, strtoull(name, NULL, 16));
}

static int folder_visit_all(struct folder_visit *v)
{
    tr_host_name(v->host);
    return tr_persistent_each(MEMORY_KIND, folder_visit, v);
}

/* ---- listing ---- */

static int folder_list(struct folder_visit *v, const char *folder, uint64_t run)
{
    TR_FREED char *pattern = NULL;
    glob_t found;
    int status = TR_OK;
    if (run != v->run) return TR_OK;
    TR_TRY(tr_format(&pattern, "%s/*/shard-*.h5", folder));
    if (glob(pattern, GLOB_NOSORT, NULL, &found) != 0) return TR_OK;
    for (size_t i = 0; i < found.gl_pathc && status == TR_OK; i++) {
        const char *path = found.gl_pathv[i], *rest = path + strlen(folder);
        struct tr_memory_file f = {.number = 0};
        char is[64], name[TR_SHARD_NAME_BYTES];
        uint32_t shard;
        if (sscanf(rest, "/%20" SCNu64 "/shard-%10" SCNu32 ".h5", &f.number, &shard) != 2) continue;
        tr_shard_name(shard, name);
        snprintf(is, sizeof is, "/%08" PRIu64 "/%s", f.number, name);
        if (strcmp(rest, is) != 0) continue;
        f.shard = shard;
        status = TR_GROW(&v->file, &v->capacity, v->n + 1);
        if (status == TR_OK) status = tr_copy_string(path, &f.path);
        if (status == TR_OK) v->file[v->n++] = f;
    }
    globfree(&found);
    return status;
}

static int folder_newest_first(const void *a, const void *b)
{
    const struct tr_memory_file *x = a, *y = b;
    if (x->number != y->number) return x->number > y->number ? -1 : 1;
    if (x->shard != y->shard) return x->shard < y->shard ? -1 : 1;
    return strcmp(x->path, y->path);
}

int tr_memory_list(uint64_t run, struct tr_memory_file **files, size_t *n)
{
    struct folder_visit v = {.look = folder_list, .run = run};
    int status = folder_visit_all(&v);
    if (v.n > 0) qsort(v.file, v.n, sizeof *v.file, folder_newest_first);
    *files = v.file;
    *n = v.n;
    return status;
}

void tr_memory_files_free(struct tr_memory_file *files, size_t n)
{
    for (size_t i = 0; i < n; i++) free(files[i].path);
    free(files);
}

/* ---- the name of the run ---- */

uint64_t tr_memory_run(const char *to)
{
    return tr_read_run(to, MEMORY_NAME);
}

int tr_memory_name(const char *to, uint64_t run)
{
    if (tr_memory_run(to) == run) return TR_OK;
    TR_TRY(tr_make_folder(to, true));
    return tr_write_run(to, MEMORY_NAME, run);
}

void tr_memory_unname(const char *to)
{
    TR_FREED char *path = NULL;
    if (tr_format(&path, "%s/" MEMORY_NAME, to) != TR_OK) return;
    if (unlink(path) == 0) rmdir(to); /* rmdir() has no effect if the folder contains other files */
}

/* ---- removing ---- */

static int folder_remove_from(struct folder_visit *v, const char *folder, uint64_t run)
{
    TR_FREED uint64_t *number = NULL;
    size_t n;
    if (run != v->run) return TR_OK;
    if (v->number == 0 && v->other == 0) {
        tr_persistent_remove(folder);
        return TR_OK;
    }
    if (tr_checkpoints_list(folder, &number, &n) != TR_OK) return TR_OK;
    for (size_t i = 0; i < n; i++) {
        TR_FREED char *path = NULL;
        if (number[i] == v->number || number[i] == v->other) continue;
        if (tr_checkpoint_path(folder, number[i], &path) != TR_OK) break;
        tr_persistent_remove(path);
    }
    return TR_OK;
}

void tr_memory_remove(uint64_t run, uint64_t number, uint64_t other)
{
    struct folder_visit v = {.look = folder_remove_from, .run = run, .number = number, .other = other};
    (void)folder_visit_all(&v);
}

/* Removes the folder of another run that is over: the file `memory` in the folder that `owner` names is missing or names another
 * run. The folder stays if these files cannot be read, or if `owner` refers to the files of another container. */
static int folder_clean(struct folder_visit *v, const char *folder, uint64_t run)
{
    enum { YOUNG = 600 };
    struct stat about;
    TR_FREED char *owner = NULL, *name = NULL;
    char to[PATH_MAX];
    bool here, over;
    if (run == v->run || tr_format(&owner, "%s/owner", folder) != TR_OK) return TR_OK;
    int fd = open(owner, O_RDONLY | O_CLOEXEC);
    bool hidden = fd < 0 && errno != ENOENT, known = fd >= 0 && tr_owner_read(fd, to, &here);
    if (fd >= 0) close(fd);
    if (hidden) return TR_OK;
    if (!known) { /* `owner` is missing or incomplete: a rank may be writing it, unless the folder is old */
        over = stat(folder, &about) == 0 && time(NULL) > about.st_mtime + YOUNG;
    } else {
        if (!here || tr_format(&name, "%s/" MEMORY_NAME, to) != TR_OK) return TR_OK;
        bool none = access(name, F_OK) < 0, seen = !none || errno == ENOENT || errno == ENOTDIR;
        over = seen && (none || tr_memory_run(to) != run);
    }
    if (over) tr_persistent_remove(folder);
    return TR_OK;
}

void tr_memory_clean(uint64_t run)
{
    struct folder_visit v = {.look = folder_clean, .run = run};
    (void)folder_visit_all(&v);
}

void tr_memory_give_up(const char *to, const char *output)
{
    TR_FREED char *folder = NULL;
    if (tr_checkpoints_place(to, output, &folder) != TR_OK) return;
    uint64_t run = tr_memory_run(folder);
    if (run == 0) return;
    tr_memory_unname(folder);
    tr_memory_remove(run, 0, 0);
}

/* ================ streams ================ */

/* bytes of a piece, which a network sends at full speed, and which is copied in a short time */
enum { STREAM_PIECE = 1 << 20 };

static void stream_fail(struct tr_stream *s, int status, const char *error)
{
    if (s->status != TR_OK) return;
    s->status = status;
    snprintf(s->error, sizeof s->error, "%s", error);
}

static void stream_fail_system(struct tr_stream *s, const char *what)
{
    char text[sizeof s->error];
    snprintf(text, sizeof text, "%.120s: cannot be %s: %s", s->path, what, strerror(errno));
    stream_fail(s, TR_ERR_IO, text);
}

/* Initializes a stream that receives a file; stream_move() starts to receive. */
static void stream_start(struct tr_stream *s, tr_context *tr, int peer, uint64_t number, const char *path)
{
    *s = (struct tr_stream){.tr = tr, .peer = peer, .number = number, .pieces = 1};
    for (int i = 0; i < TR_STREAM_PIECES; i++) s->request[i] = MPI_REQUEST_NULL;
    if (tr_copy_string(path, &s->path) != TR_OK) stream_fail(s, TR_ERR_SYSTEM, tr_error_text());
}

/* Maps the file: the sender opens it; the receiver creates it and reserves its size, which fails if there is not enough space. */
static void stream_map_file(struct tr_stream *s)
{
    struct stat about;
    int fd = s->sends ? open(s->path, O_RDONLY | O_CLOEXEC)
                      : open(s->path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    bool ok = fd >= 0;
    if (ok && s->sends) ok = fstat(fd, &about) == 0;
    else if (ok && s->head.bytes > 0) ok = (errno = posix_fallocate(fd, 0, (off_t)s->head.bytes)) == 0;
    if (ok && s->sends) s->head.bytes = (uint64_t)about.st_size;
    if (ok && s->head.bytes > 0) {
        void *memory = mmap(NULL, s->head.bytes, PROT_READ | (s->sends ? 0 : PROT_WRITE), MAP_SHARED, fd, 0);
        ok = memory != MAP_FAILED;
        if (ok) s->memory = memory;
    }
    if (!ok) stream_fail_system(s, s->sends ? "read" : "written");
    if (fd >= 0) close(fd);
}

/* Starts to send a file, or, if status is not TR_OK, status and error. A failure to open the file is sent like such an error. */
static void stream_send(struct tr_stream *s, tr_context *tr, int peer, uint64_t number, const char *path,
                        int status, const char *error)
{
    stream_start(s, tr, peer, number, path);
    s->sends = true;
    if (status != TR_OK) stream_fail(s, status, error);
    if (s->status == TR_OK) stream_map_file(s);
    s->head.number = number;
    s->head.status = s->status;
    if (s->status != TR_OK) s->head.bytes = 0;
    memcpy(s->head.error, s->error, sizeof s->head.error);
    s->pieces = 1 + (s->head.bytes + STREAM_PIECE - 1) / STREAM_PIECE;
}

static void stream_end(struct tr_stream *s)
{
    s->over = true;
    if (s->memory && munmap(s->memory, s->head.bytes) < 0) stream_fail_system(s, "written");
    s->memory = NULL;
    if (!s->sends && s->status != TR_OK && s->path) (void)unlink(s->path);
}

/* Advances a stream without waiting. Returns whether something was done. The first message is the head; the pieces of the file
 * follow. A receiver that cannot create the file still receives all pieces, in the buffer `nowhere`. stream_end() removes a file
 * that was not received completely. */
static bool stream_move(struct tr_stream *s)
{
    static char nowhere[STREAM_PIECE];
    bool did = false;
    if (s->over || !s->tr) return false;
    while (s->ended < s->begun && tr_request_done(&s->request[s->ended % TR_STREAM_PIECES])) {
        if (s->ended++ == 0 && !s->sends) {
            s->head.error[sizeof s->head.error - 1] = '\0';
            if (s->head.status != TR_OK) stream_fail(s, (int)s->head.status, s->head.error);
            if (s->head.number != s->number) stream_fail(s, TR_ERR_INTERNAL, "a piece of another checkpoint");
            if (s->status == TR_OK) stream_map_file(s);
            s->pieces = 1 + (s->head.bytes + STREAM_PIECE - 1) / STREAM_PIECE;
        }
        did = true;
        if (!s->sends) break;
    }
    /* a call starts to send at most one message, so that other work of the rank is not delayed */
    while (s->begun < s->pieces && s->begun - s->ended < TR_STREAM_PIECES) {
        char *at = (char *)&s->head;
        int bytes = (int)sizeof s->head;
        if (s->begun > 0) {
            uint64_t first = (s->begun - 1) * STREAM_PIECE, left = s->head.bytes - first;
            bytes = (int)(left < STREAM_PIECE ? left : STREAM_PIECE);
            at = s->memory ? s->memory + first : nowhere;
        }
        MPI_Request *request = &s->request[s->begun++ % TR_STREAM_PIECES];
        if (s->sends) MPI_Isend(at, bytes, MPI_BYTE, s->peer, TR_TAG_COPY, s->tr->wire, request);
        else MPI_Irecv(at, bytes, MPI_BYTE, s->peer, TR_TAG_COPY, s->tr->wire, request);
        did |= s->sends;
        if (s->sends) break;
    }
    if (s->ended == s->pieces) stream_end(s);
    return did;
}

/* Ends and frees a stream, which may be all zeros. */
static void stream_close(struct tr_stream *s)
{
    bool under_way = false;
    for (int i = 0; s->tr && i < TR_STREAM_PIECES; i++) {
        if (s->request[i] == MPI_REQUEST_NULL) continue;
        under_way = true;
        MPI_Cancel(&s->request[i]);
        MPI_Request_free(&s->request[i]);
    }
    /* does not unmap the file, because messages in flight may still use the memory */
    if (under_way) s->memory = NULL;
    if (s->tr && !s->over) {
        s->status = TR_ERR_IO;
        stream_end(s);
    }
    free(s->path);
    *s = (struct tr_stream){.tr = NULL};
}

/* ================ writing ================ */

int tr_memory_open(tr_context *tr, const char *to, struct tr_checkpoint_memory **out)
{
    struct tr_checkpoint_memory *m;
    MPI_Request request;
    TR_TRY(TR_NEW(&m, 1));
    *out = m;
    m->tr = tr;
    m->to = to;
    m->asking = MPI_REQUEST_NULL;
    m->host = tr->host;
    MPI_Comm_rank(m->host, &m->host_rank);
    MPI_Comm_size(m->host, &m->host_size);
    int nodes = 0, own = tr->node_of[tr->rank], first = own;
    MPI_Iallreduce(MPI_IN_PLACE, &first, 1, MPI_INT, MPI_MIN, m->host, &request);
    TR_TRY(tr_wait_request(tr, &request, "all ranks to open checkpoints in memory"));
    m->node = own - first;
    /* Each rank sends its shard to one rank on each of the next nodes: that with the same number on its node, modulo the number of
     * ranks there. If a node has more ranks than its predecessor, some of its ranks receive nothing. */
    for (int r = 0; r < tr->size; r++) nodes = tr_max_int(nodes, tr->node_of[r] + 1);
    /* of each node: number of its ranks among the ranks seen so far; number of its ranks */
    TR_FREED int *seen = NULL, *ranks = NULL;
    m->copies = tr_min_int((int)tr->job->checkpoint.copies, nodes - 1);
    TR_TRY(TR_NEW(&m->peer, (size_t)m->copies));
    TR_TRY(TR_NEW(&m->source, (size_t)tr->size * (size_t)m->copies));
    TR_TRY(TR_NEW(&seen, (size_t)nodes));
    TR_TRY(TR_NEW(&ranks, (size_t)nodes));
    for (int r = 0; r < tr->size; r++) ranks[tr->node_of[r]]++;
    for (int r = 0; r < tr->size; r++) {
        int node = tr->node_of[r], number = seen[node]++;
        int after = (own - node + nodes) % nodes, before = (node - own + nodes) % nodes;
        if (after >= 1 && after <= m->copies && number % tr->node_size == tr->node_rank)
            m->source[m->sources++] = r;
        if (before >= 1 && before <= m->copies && tr->node_rank % ranks[node] == number)
            m->peer[before - 1] = r;
    }
    return TR_OK;
}

/* ---- opening and closing ---- */

void tr_memory_end(struct tr_checkpoint_memory *m)
{
    for (int i = 0; m->out && i < m->copies; i++) stream_close(&m->out[i]);
    for (size_t i = 0; m->in && i < m->sources; i++) stream_close(&m->in[i]);
    TR_FREE_ALL(m->out, m->in);
    m->out = m->in = NULL;
}

void tr_memory_close(struct tr_checkpoint_memory **out, uint64_t run, bool removes)
{
    struct tr_checkpoint_memory *m = *out;
    if (!m) return;
    tr_memory_end(m);
    tr_memory_found_end(m);
    /* rank 0 decides, because only rank 0 knows whether the disk has the last checkpoint; after the barrier no rank writes */
    int word = removes;
    removes = tr_broadcast(m->tr, TR_SET_ALL, 0, &word, sizeof word) == TR_OK && word &&
              tr_barrier(m->tr, m->host, "all ranks of a host to close their checkpoints") == TR_OK;
    if (removes && m->tr->rank == 0) tr_memory_unname(m->to);
    if (removes && m->host_rank == 0) tr_memory_remove(run, 0, 0);
    tr_memory_files_free(m->file, m->files);
    TR_FREE_ALL(m->here, m->holder, m->fetched, m->folder, m->source, m->peer, m);
    *out = NULL;
}

/* ---- taking ---- */

/* Chooses the first base (store/persistent.h) with enough space. Creates in it the folder of the node (*folder; free it), the file
 * `owner` in this folder, and the folder of the checkpoint. Several ranks of a node may call it at the same time. TR_ERR_NO_OUTPUT:
 * no base has enough space, or a folder cannot be created.
 *
 * @param [in] replaced  bytes of older checkpoints that will be removed from the first base
 */
static int memory_make_folder(struct tr_checkpoint_memory *m, uint64_t number, uint64_t bytes,
                              uint64_t replaced, char **folder)
{
    struct tr_persistent_bases bases;
    char host[TR_HOST_BYTES], name[TR_HOST_BYTES + 40];
    tr_persistent_bases(&bases);
    tr_host_name(host);
    snprintf(name, sizeof name, "%016" PRIx64 "-%s.%d", m->run, host, m->node);
    int status =
        tr_fail(TR_ERR_NO_OUTPUT, "there is no room for %" PRIu64 " MB of a checkpoint in %s or elsewhere",
                (bytes >> 20) + 1, bases.n > 0 ? bases.base[0] : "memory");
    for (size_t i = 0; i < bases.n; i++, replaced = 0) {
        TR_FREED char *made = NULL, *owner = NULL, *own = NULL;
        if (tr_persistent_free(bases.base[i]) + replaced < bytes) continue;
        status = tr_persistent_path(bases.base[i], MEMORY_KIND, name, &made);
        if (status == TR_OK) status = tr_persistent_make(made);
        if (status == TR_OK) status = tr_format(&owner, "%s/owner", made);
        if (status == TR_OK && access(owner, F_OK) < 0) {
            int fd = open(owner, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
            if (fd < 0 || !tr_owner_write(fd, m->to))
                status = tr_fail(TR_ERR_NO_OUTPUT, "%s: cannot be made: %s", owner, strerror(errno));
            if (fd >= 0) close(fd);
        }
        if (status == TR_OK) status = tr_checkpoint_path(made, number, &own);
        if (status == TR_OK) status = tr_persistent_make(own);
        if (status != TR_OK) continue;
        if (i > 0)
            snprintf(m->note, sizeof m->note,
                     "%.60s has no room for %" PRIu64 " MB; they are in %.60s instead", bases.base[0],
                     (bytes >> 20) + 1, bases.base[i]);
        *folder = made;
        made = NULL;
        return TR_OK;
    }
    return status;
}

int tr_memory_begin(struct tr_checkpoint_memory *m, uint64_t run, uint64_t number, uint64_t bytes)
{
    char error[512];
    tr_memory_end(m);
    free(m->folder);
    m->folder = NULL;
    *m->note = '\0';
    m->run = run;
    m->number = number;
    TR_TRY(tr_all_reduce(m->tr, TR_SET_NODE, TR_SUM, TR_I64, &bytes, 1));
    bytes *= 1 + (uint64_t)m->copies; /* a copy from another node has about the same size */
    int status = memory_make_folder(m, number, bytes, m->before[1], &m->folder);
    m->before[1] = m->before[0];
    m->before[0] = bytes;
    snprintf(error, sizeof error, "%s", status == TR_OK ? "" : tr_error_text());
    TR_TRY(TR_NEW(&m->in, m->sources));
    for (size_t i = 0; i < m->sources; i++) {
        TR_FREED char *path = NULL;
        if (m->folder) TR_TRY(tr_shard_path(m->folder, m->number, (uint32_t)m->source[i], &path));
        /* without a path the stream fails, and the error is reported */
        stream_start(&m->in[i], m->tr, m->source[i], m->number, path ? path : "");
    }
    return status == TR_OK ? TR_OK : tr_fail(status, "%s", error);
}

void tr_memory_send(struct tr_checkpoint_memory *m, int status, const char *error)
{
    TR_FREED char *path = NULL;
    char text[200];
    snprintf(text, sizeof text, "%s", error);
    if (status == TR_OK && tr_shard_path(m->folder, m->number, (uint32_t)m->tr->rank, &path) != TR_OK)
        status = TR_ERR_SYSTEM;
    if (TR_NEW(&m->out, (size_t)m->copies) != TR_OK) return;
    for (int i = 0; i < m->copies; i++)
        stream_send(&m->out[i], m->tr, m->peer[i], m->number, path ? path : "", status, text);
}

bool tr_memory_turn(struct tr_checkpoint_memory *m, bool *arrived, int *status, const char **error)
{
    bool did = false;
    *arrived = m->out != NULL;
    *status = TR_OK;
    for (size_t i = 0, out = m->out ? (size_t)m->copies : 0; i < m->sources + out; i++) {
        if (i < m->sources && !m->in) continue;
        struct tr_stream *s = i < m->sources ? &m->in[i] : &m->out[i - m->sources];
        did |= stream_move(s);
        *arrived = *arrived && s->over;
        if (*status != TR_OK || s->status == TR_OK) continue;
        *status = s->status;
        *error = s->error;
    }
    return did;
}

/* ================ reading ================ */

int tr_checkpoints_agree(tr_context *tr, int status, char *why, size_t size)
{
    int lowest = status == TR_OK ? tr->size : tr->rank;
    TR_TRY(tr_all_reduce(tr, TR_SET_ALL, TR_MIN, TR_I32, &lowest, 1));
    if (lowest == tr->size) return TR_OK;
    snprintf(why, size, "%s", lowest == tr->rank ? tr_error_text() : "");
    TR_TRY(tr_broadcast(tr, TR_SET_ALL, lowest, why, size));
    return TR_ERR_DATA;
}

/* ---- the list of files ---- */

int tr_memory_look(struct tr_checkpoint_memory *m, uint64_t run, uint64_t *most)
{
    m->run = run;
    TR_TRY(tr_agree(m->tr, tr_memory_list(run, &m->file, &m->files)));
    /* compares a hash of the list over the ranks of the host, which divide the work on its files and need the same list */
    uint64_t print = m->files;
    for (size_t i = 0; i < m->files; i++)
        print = tr_mix(print ^ XXH3_64bits(m->file[i].path, strlen(m->file[i].path)));
    uint64_t bounds[2] = {print, ~print};
    MPI_Request request;
    MPI_Iallreduce(MPI_IN_PLACE, bounds, 2, MPI_UINT64_T, MPI_MAX, m->host, &request);
    int status = tr_wait_request(m->tr, &request, "the ranks of a host to list its memory");
    if (status == TR_OK && bounds[0] != ~bounds[1])
        status = tr_fail(TR_ERR_NO_INPUT, "checkpoints in memory change while they are listed");
    TR_TRY(tr_agree(m->tr, status));
    *most = m->files > 0 ? m->file[0].number : 0;
    return tr_all_reduce(m->tr, TR_SET_ALL, TR_MAX, TR_I64, most, 1);
}

int tr_memory_next(struct tr_checkpoint_memory *m, uint64_t below, uint64_t *number, int *rank)
{
    struct {
        long number;
        int rank;
    } newest = {0, m->tr->rank};
    MPI_Request request;
    for (size_t i = 0; i < m->files && newest.number == 0; i++)
        if (m->file[i].shard == 0 && m->file[i].number < below) newest.number = (long)m->file[i].number;
    MPI_Iallreduce(MPI_IN_PLACE, &newest, 1, MPI_LONG_INT, MPI_MAXLOC, m->tr->world, &request);
    TR_TRY(tr_wait_request(m->tr, &request, "all hosts to list their memory"));
    *number = (uint64_t)newest.number;
    *rank = newest.rank;
    return TR_OK;
}

int tr_memory_manifest(const struct tr_checkpoint_memory *m, uint64_t number, struct tr_manifest *manifest)
{
    int status = tr_fail(TR_ERR_NO_INPUT, "shard 0 of checkpoint %" PRIu64 " is not here", number);
    for (size_t i = 0; i < m->files && status != TR_OK; i++) {
        const struct tr_memory_file *file = &m->file[i];
        struct tr_shard *shard TR_CLOSED_BY(tr_shard_close) = NULL;
        TR_FREED char *packed = NULL;
        if (file->number != number || file->shard != 0) continue;
        status = tr_shard_open(file->path, NULL, NULL, &shard);
        ptrdiff_t part = status == TR_OK ? tr_shard_find(shard, TR_MANIFEST_PART, 0) : -1;
        uint64_t bytes = part < 0 ? 0 : shard->part[part].rows;
        if (status == TR_OK) status = TR_NEW(&packed, bytes);
        if (status == TR_OK && part >= 0) status = tr_shard_read(shard, (size_t)part, 0, bytes, packed);
        if (status == TR_OK) status = tr_manifest_unpack(packed, bytes, file->path, manifest);
        if (status == TR_OK && (manifest->run != m->run || manifest->number != number)) {
            tr_manifest_free(manifest);
            status = tr_fail(TR_ERR_DATA, "%s: not of run %016" PRIx64, file->path, m->run);
        }
    }
    return status;
}

/* ---- verification ---- */

static bool memory_is_of(const struct tr_memory_file *f, const struct tr_manifest *m)
{
    return f->number == m->number && f->shard < m->shards;
}

int tr_memory_verify(struct tr_checkpoint_memory *m, const struct tr_manifest *manifest, char *why,
                     size_t size)
{
    TR_FREED unsigned char *good = NULL; /* for each file of this host: 1 if it is undamaged */
    MPI_Request request;
    struct stat about;
    int turn = 0;
    TR_FREE_ALL(m->here, m->holder);
    m->here = NULL;
    m->holder = NULL;
    m->shards = manifest->shards;
    m->largest = 0;
    *why = '\0';
    int status = TR_NEW(&good, m->files);
    if (status == TR_OK) status = TR_NEW(&m->here, m->shards);
    if (status == TR_OK) status = TR_NEW(&m->holder, m->shards);
    TR_TRY(tr_agree(m->tr, status));
    for (size_t i = 0; i < m->files; i++) { /* each rank verifies some of the files on its host */
        const struct tr_memory_file *f = &m->file[i];
        if (!memory_is_of(f, manifest) || turn++ % m->host_size != m->host_rank) continue;
        struct tr_shard_head head = tr_manifest_head(manifest, (uint32_t)f->shard);
        good[i] = tr_shard_verify(f->path, &head, NULL) == TR_OK;
        if (!good[i] && !*why) snprintf(why, size, "%s", tr_error_text());
    }
    MPI_Iallreduce(MPI_IN_PLACE, good, (int)m->files, MPI_UNSIGNED_CHAR, MPI_MAX, m->host, &request);
    TR_TRY(tr_wait_request(m->tr, &request, "the ranks of a host to verify a checkpoint"));
    for (uint32_t s = 0; s < m->shards; s++) m->holder[s] = INT_MAX;
    for (size_t i = 0; i < m->files; i++) {
        const struct tr_memory_file *f = &m->file[i];
        if (!memory_is_of(f, manifest) || !good[i]) continue;
        if (!m->here[f->shard]) m->here[f->shard] = f->path;
        if (f->shard % m->host_size == m->host_rank) m->holder[f->shard] = m->tr->rank;
        if (stat(f->path, &about) == 0) m->largest = tr_max_size(m->largest, (uint64_t)about.st_size);
    }
    TR_TRY(tr_all_reduce(m->tr, TR_SET_ALL, TR_MAX, TR_I64, &m->largest, 1));
    TR_TRY(tr_all_reduce(m->tr, TR_SET_ALL, TR_MIN, TR_I32, m->holder, m->shards));
    uint32_t lacking = 0;
    while (lacking < m->shards && m->holder[lacking] < INT_MAX) lacking++;
    if (lacking == m->shards) {
        m->found = manifest->number;
        m->serves = true;
        return TR_OK;
    }
    int mine = *why ? tr_fail(TR_ERR_DATA, "%s", why) : TR_OK;
    snprintf(why, size, "no node has shard %" PRIu32, lacking);
    char text[512] = "";
    (void)tr_checkpoints_agree(m->tr, mine, text, sizeof text);
    if (*text) snprintf(why, size, "%s", text);
    return TR_ERR_DATA;
}

/* ---- fetching shards ---- */

int tr_memory_shard(struct tr_checkpoint_memory *m, uint32_t shard, char **path)
{
    TR_FREED char *fetched = NULL, *part = NULL;
    tr_context *tr = m->tr;
    int holder = m->holder[shard], status = TR_OK;
    if (m->here[shard]) return tr_copy_string(m->here[shard], path);
    if (!m->fetched) TR_TRY(memory_make_folder(m, m->found, m->largest, 0, &m->fetched));
    TR_TRY(tr_format(&fetched, "%s/%08" PRIu64 "/fetched-%04" PRIu32 ".h5", m->fetched, m->found, shard));
    if (access(fetched, R_OK) < 0) {
        /* each rank uses another name until the file is complete, because several ranks of a node may fetch the same shard */
        TR_TRY(tr_format(&part, "%s.%d", fetched, tr->rank));
        m->wanted[0] = m->found;
        m->wanted[1] = shard;
        MPI_Isend(m->wanted, 2, MPI_UINT64_T, holder, TR_TAG_FETCH, tr->wire, &m->asking);
        stream_start(&m->asked, tr, holder, m->found, part);
        struct tr_waiting waiting = tr_waiting_begin();
        while (status == TR_OK && !(m->asked.over && tr_request_done(&m->asking))) {
            if (stream_move(&m->asked)) waiting = tr_waiting_begin();
            status = tr_waiting_turn(tr, &waiting, "shard %" PRIu32 " of a checkpoint from rank %d", shard,
                                     holder);
        }
        if (status == TR_OK && m->asked.status != TR_OK)
            status = tr_fail(m->asked.status, "shard %" PRIu32 " does not come from rank %d: %s", shard,
                             holder, m->asked.error);
        stream_close(&m->asked);
        TR_TRY(status);
        if (rename(part, fetched) < 0)
            return tr_fail(TR_ERR_IO, "%s: cannot be written: %s", fetched, strerror(errno));
    }
    *path = fetched;
    fetched = NULL;
    return TR_OK;
}

void tr_memory_serve(struct tr_checkpoint_memory *m, int *did)
{
    struct tr_stream *unused = NULL;
    if (!m->serves) return;
    for (size_t i = 0; i < TR_MEMORY_SERVED; i++) {
        struct tr_stream *s = &m->served[i];
        if (s->tr && stream_move(s)) ++*did;
        if (s->tr && s->over) stream_close(s);
        if (!s->tr) unused = s;
    }
    int from;
    uint64_t wanted[2];
    if (!unused || !tr_receive_here(m->tr, TR_TAG_FETCH, wanted, sizeof wanted, &from)) return;
    ++*did;
    bool known = wanted[0] == m->found && wanted[1] < m->shards && m->here[wanted[1]];
    stream_send(unused, m->tr, from, wanted[0], known ? m->here[wanted[1]] : "",
                known ? TR_OK : TR_ERR_INTERNAL, "it is not here");
}

void tr_memory_found_end(struct tr_checkpoint_memory *m)
{
    for (size_t i = 0; i < TR_MEMORY_SERVED; i++) stream_close(&m->served[i]);
    m->serves = false;
}
