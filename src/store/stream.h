/* A file on its way to another rank, in pieces that are sent and received whenever somebody polls. */
#ifndef TR_STORE_STREAM_H
#define TR_STORE_STREAM_H

#include "ranks/ranks.h"

enum { TR_STREAM_PIECES = 4 }; /* on their way at the same time */

/* What comes first. */
struct tr_stream_head {
    uint64_t number, bytes;
    int64_t status;
    char error[200];
};

struct tr_stream {
    tr_context *tr; /* NULL: nothing is on its way */
    bool sends, over;
    int peer, status;
    uint64_t number; /* whatever tells files from each other: the same on both sides */
    char *path;      /* where it comes from, or goes to */
    char *memory;    /* the file's; NULL: none, or receiving what nobody wants any more */
    struct tr_stream_head head;
    uint64_t pieces, begun, ended; /* messages, the head among them; 1 until more are known */
    MPI_Request request[TR_STREAM_PIECES];
    char error[200];
};

/* Begins to send a file, or the word that there is none (status, error). Streams between two ranks follow each other; what
 * goes wrong is told to the other side, and never ends the job. */
void tr_stream_send(struct tr_stream *s, tr_context *tr, int peer, uint64_t number, const char *path,
                    int status, const char *error);
void tr_stream_receive(struct tr_stream *s, tr_context *tr, int peer, uint64_t number, const char *path);

/* Moves what can be moved without waiting, and says whether that was anything. When it is over, status and error (text of
 * `error`) tell how it went; a file that did not come whole is removed. */
bool tr_stream_turn(struct tr_stream *s);

/* Frees; also one that was never begun. */
void tr_stream_close(struct tr_stream *s);

#endif
