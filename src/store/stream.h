/* A file on its way to another rank, in pieces that are sent and received whenever somebody polls. */
#ifndef TR_CHECKPOINT_STREAM_H
#define TR_CHECKPOINT_STREAM_H

#include "ranks/ranks.h"

enum { TR_STREAM_SLOTS = 4 };

struct tr_stream_slot {
    char *data;
    MPI_Request request;
};

struct tr_stream {
    tr_context *tr;
    bool sends, over;
    int peer, fd, status;
    char *path;                    /* where it goes to */
    uint64_t number;               /* whatever tells files from each other: the same on both sides */
    uint64_t bytes;                /* of the file; receiving: known from the first piece on */
    uint64_t pieces, begun, ended; /* that are sent or received; 1 until more are known */
    struct tr_stream_slot slot[TR_STREAM_SLOTS];
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
