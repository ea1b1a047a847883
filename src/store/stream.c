#define _GNU_SOURCE
#include "store/stream.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Large enough for a network, small enough that nobody waits for the copy of one. */
enum { PIECE = 1 << 20 };

static void fail(struct tr_stream *s, int status, const char *error)
{
    if (s->status != TR_OK) return;
    s->status = status;
    snprintf(s->error, sizeof s->error, "%s", error);
}

static void fail_system(struct tr_stream *s, const char *what)
{
    char text[sizeof s->error];
    snprintf(text, sizeof text, "%.120s: cannot be %s: %s", s->path, what, strerror(errno));
    fail(s, TR_ERR_IO, text);
}

static void begin(struct tr_stream *s, tr_context *tr, int peer, uint64_t number, const char *path)
{
    *s = (struct tr_stream){.tr = tr, .peer = peer, .number = number, .pieces = 1};
    for (int i = 0; i < TR_STREAM_PIECES; i++) s->request[i] = MPI_REQUEST_NULL;
    if (tr_copy_string(path, &s->path) != TR_OK) fail(s, TR_ERR_SYSTEM, tr_error_text());
}

/* Opens the file that is sent or, receiving, makes one of so many bytes, for which there is room. */
static void map_file(struct tr_stream *s)
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
        if (memory == MAP_FAILED) ok = false;
        else s->memory = memory;
    }
    if (!ok) fail_system(s, s->sends ? "read" : "written");
    if (fd >= 0) close(fd);
}

static void count_pieces(struct tr_stream *s)
{
    s->pieces = 1 + (s->head.bytes + PIECE - 1) / PIECE;
}

void tr_stream_send(struct tr_stream *s, tr_context *tr, int peer, uint64_t number, const char *path,
                    int status, const char *error)
{
    begin(s, tr, peer, number, path);
    s->sends = true;
    if (status != TR_OK) fail(s, status, error);
    if (s->status == TR_OK) map_file(s);
    s->head.number = number;
    s->head.status = s->status;
    if (s->status != TR_OK) s->head.bytes = 0;
    memcpy(s->head.error, s->error, sizeof s->head.error);
    count_pieces(s);
}

void tr_stream_receive(struct tr_stream *s, tr_context *tr, int peer, uint64_t number, const char *path)
{
    begin(s, tr, peer, number, path);
}

/* All of what was announced comes, also where the file cannot be made. */
static void take_head(struct tr_stream *s)
{
    s->head.error[sizeof s->head.error - 1] = '\0';
    if (s->head.status != TR_OK) fail(s, (int)s->head.status, s->head.error);
    if (s->head.number != s->number) fail(s, TR_ERR_INTERNAL, "a piece of another checkpoint");
    if (s->status == TR_OK) map_file(s);
    count_pieces(s);
}

/* The memory of a message that is begun. What nobody wants goes where nobody looks. */
static char *place_of(struct tr_stream *s, uint64_t number, int *bytes)
{
    static char nowhere[PIECE];
    *bytes = (int)sizeof s->head;
    if (number == 0) return (char *)&s->head;
    uint64_t first = (number - 1) * PIECE, left = s->head.bytes - first;
    *bytes = (int)(left < PIECE ? left : PIECE);
    return s->memory ? s->memory + first : nowhere;
}

static void begin_piece(struct tr_stream *s)
{
    int bytes;
    char *at = place_of(s, s->begun, &bytes);
    MPI_Request *request = &s->request[s->begun % TR_STREAM_PIECES];
    if (s->sends) MPI_Isend(at, bytes, MPI_BYTE, s->peer, TR_TAG_COPY, s->tr->wire, request);
    else MPI_Irecv(at, bytes, MPI_BYTE, s->peer, TR_TAG_COPY, s->tr->wire, request);
    s->begun++;
}

static void end(struct tr_stream *s)
{
    s->over = true;
    if (s->memory && munmap(s->memory, s->head.bytes) < 0) fail_system(s, "written");
    s->memory = NULL;
    if (!s->sends && s->status != TR_OK && s->path) (void)unlink(s->path);
}

bool tr_stream_turn(struct tr_stream *s)
{
    bool did = false;
    if (s->over || !s->tr) return false;
    while (s->ended < s->begun && tr_request_done(&s->request[s->ended % TR_STREAM_PIECES])) {
        if (s->ended++ == 0 && !s->sends) take_head(s);
        did = true;
        if (!s->sends) break;
    }
    /* one at a time is sent: others wait for their turn */
    while (s->begun < s->pieces && s->begun - s->ended < TR_STREAM_PIECES) {
        begin_piece(s);
        did |= s->sends;
        if (s->sends) break;
    }
    if (s->ended == s->pieces) end(s);
    return did;
}

void tr_stream_close(struct tr_stream *s)
{
    bool under_way = false;
    for (int i = 0; s->tr && i < TR_STREAM_PIECES; i++) {
        if (s->request[i] == MPI_REQUEST_NULL) continue;
        under_way = true;
        MPI_Cancel(&s->request[i]);
        MPI_Request_free(&s->request[i]);
    }
    if (under_way) s->memory = NULL; /* which MPI may still use: left to it */
    if (s->tr && !s->over) {
        s->status = TR_ERR_IO;
        end(s);
    }
    free(s->path);
    *s = (struct tr_stream){.tr = NULL};
}
