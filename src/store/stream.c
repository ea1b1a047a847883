#define _GNU_SOURCE
#include "store/stream.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Large enough for a network, small enough that nobody waits for the copy of one. */
enum { PIECE = 1 << 20 };

struct head {
    uint64_t number, bytes, first, n; /* of the file; of this piece */
    int64_t status;
    char error[200];
};

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
    *s = (struct tr_stream){.tr = tr, .peer = peer, .number = number, .fd = -1, .pieces = 1};
    for (int i = 0; i < TR_STREAM_SLOTS; i++) s->slot[i].request = MPI_REQUEST_NULL;
    if (tr_copy_string(path, &s->path) != TR_OK) fail(s, TR_ERR_SYSTEM, tr_error_text());
}

static void end(struct tr_stream *s)
{
    s->over = true;
    if (s->fd >= 0 && close(s->fd) < 0 && !s->sends) fail_system(s, "written");
    s->fd = -1;
    if (!s->sends && s->status != TR_OK && s->path) (void)unlink(s->path);
}

/* A slot's memory, which comes into being only where it is needed. */
static char *data_of(struct tr_stream_slot *slot)
{
    if (!slot->data) slot->data = malloc(sizeof(struct head) + PIECE);
    return slot->data;
}

/* ---- sending ---- */

void tr_stream_send(struct tr_stream *s, tr_context *tr, int peer, uint64_t number, const char *path,
                    int status, const char *error)
{
    struct stat about;
    begin(s, tr, peer, number, path);
    s->sends = true;
    if (status != TR_OK) fail(s, status, error);
    if (s->status == TR_OK) {
        s->fd = open(path, O_RDONLY | O_CLOEXEC);
        if (s->fd < 0 || fstat(s->fd, &about) < 0) fail_system(s, "read");
        else s->bytes = (uint64_t)about.st_size;
    }
    if (s->status == TR_OK) s->pieces = tr_max_size(1, (s->bytes + PIECE - 1) / PIECE);
}

/* What was begun is ended with as many pieces, though they be empty: the other side counts them. */
static bool send_piece(struct tr_stream *s, struct tr_stream_slot *slot)
{
    if (!data_of(slot)) return false;
    struct head *h = (struct head *)(void *)slot->data;
    uint64_t first = s->begun * PIECE, left = s->bytes - first;
    *h = (struct head){
        .number = s->number, .bytes = s->bytes, .first = first, .n = left < PIECE ? left : PIECE};
    if (s->status == TR_OK && h->n > 0) {
        ssize_t n = pread(s->fd, slot->data + sizeof *h, h->n, (off_t)first);
        if (n != (ssize_t)h->n) {
            if (n >= 0) errno = EIO;
            fail_system(s, "read");
        }
    }
    if (s->status != TR_OK) h->n = 0;
    h->status = s->status;
    memcpy(h->error, s->error, sizeof h->error);
    MPI_Isend(slot->data, (int)(sizeof *h + h->n), MPI_BYTE, s->peer, TR_TAG_COPY, s->tr->wire,
              &slot->request);
    s->begun++;
    return true;
}

static bool turn_sending(struct tr_stream *s)
{
    bool did = false;
    for (; s->ended < s->begun && tr_request_done(&s->slot[s->ended % TR_STREAM_SLOTS].request); did = true)
        s->ended++;
    if (s->begun < s->pieces && s->begun - s->ended < TR_STREAM_SLOTS) /* one at a time: others wait */
        did |= send_piece(s, &s->slot[s->begun % TR_STREAM_SLOTS]);
    if (s->ended == s->pieces) end(s);
    return did;
}

/* ---- receiving ---- */

void tr_stream_receive(struct tr_stream *s, tr_context *tr, int peer, uint64_t number, const char *path)
{
    begin(s, tr, peer, number, path);
    if (s->status != TR_OK) return; /* what comes is read all the same */
    s->fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (s->fd < 0) fail_system(s, "written");
}

static void write_piece(struct tr_stream *s, const char *data, uint64_t first, uint64_t n)
{
    while (n > 0) {
        ssize_t some = pwrite(s->fd, data, n, (off_t)first);
        if (some < 0 && errno == EINTR) continue;
        if (some <= 0) {
            if (some == 0) errno = EIO;
            fail_system(s, "written");
            return;
        }
        data += some;
        first += (uint64_t)some;
        n -= (uint64_t)some;
    }
}

static void take_piece(struct tr_stream *s, const char *data)
{
    struct head h;
    memcpy(&h, data, sizeof h);
    if (s->ended == 0) {
        s->bytes = h.bytes;
        s->pieces = tr_max_size(1, (h.bytes + PIECE - 1) / PIECE);
    }
    if (h.number != s->number) fail(s, TR_ERR_INTERNAL, "a piece of another checkpoint");
    h.error[sizeof h.error - 1] = '\0';
    if (h.status != TR_OK) fail(s, (int)h.status, h.error);
    if (s->status == TR_OK && h.n > 0) write_piece(s, data + sizeof h, h.first, h.n);
    s->ended++;
}

static bool turn_receiving(struct tr_stream *s)
{
    bool did = false;
    struct tr_stream_slot *first = &s->slot[s->ended % TR_STREAM_SLOTS];
    if (s->ended < s->begun && tr_request_done(&first->request)) {
        take_piece(s, first->data);
        did = true;
    }
    while (s->begun < s->pieces && s->begun - s->ended < TR_STREAM_SLOTS) {
        struct tr_stream_slot *slot = &s->slot[s->begun % TR_STREAM_SLOTS];
        if (!data_of(slot)) break;
        MPI_Irecv(slot->data, sizeof(struct head) + PIECE, MPI_BYTE, s->peer, TR_TAG_COPY, s->tr->wire,
                  &slot->request);
        s->begun++;
    }
    if (s->ended == s->pieces) end(s);
    return did;
}

bool tr_stream_turn(struct tr_stream *s)
{
    if (s->over || !s->tr) return false;
    return s->sends ? turn_sending(s) : turn_receiving(s);
}

void tr_stream_close(struct tr_stream *s)
{
    bool under_way = s->tr && !s->over;
    if (under_way) {
        for (int i = 0; i < TR_STREAM_SLOTS; i++)
            if (s->slot[i].request != MPI_REQUEST_NULL) {
                MPI_Cancel(&s->slot[i].request);
                MPI_Request_free(&s->slot[i].request);
            }
        s->status = TR_ERR_IO;
        end(s);
    }
    /* a slot that MPI may still read is left to it */
    for (int i = 0; i < TR_STREAM_SLOTS; i++)
        if (!under_way) free(s->slot[i].data);
    free(s->path);
    *s = (struct tr_stream){.fd = -1};
}
