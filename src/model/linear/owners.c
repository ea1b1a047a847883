#include "owners.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "trireme/base.h"

static int by_bytes(const struct tr_owners *c, size_t bytes, size_t **sent, size_t **received)
{
    size_t workers = (size_t)tr_set_size(c->tr, TR_SET_WORKERS);
    TR_TRY(TR_NEW(sent, 2 * workers));
    *received = *sent + workers;
    for (size_t r = 0; r < workers; r++) {
        (*sent)[r] = c->to_each[r] * bytes;
        (*received)[r] = c->from_each[r] * bytes;
    }
    return TR_OK;
}

/* back: from owners to those who have the columns. */
static int exchange(struct tr_owners *c, const void *from, void *to, size_t bytes, bool back)
{
    size_t *sent, *received;
    TR_TRY(by_bytes(c, bytes, &sent, &received));
    int status = back ? tr_exchange(c->tr, TR_SET_WORKERS, from, received, to, sent)
                      : tr_exchange(c->tr, TR_SET_WORKERS, from, sent, to, received);
    free(sent);
    return status;
}

/* Worker r owns the keys from all r / workers on. */
static void divide(struct tr_owners *c, const tr_key *keys, uint64_t all, size_t workers)
{
    size_t at = 0;
    for (size_t r = 0; r < workers; r++) {
        tr_key end = r + 1 == workers ? UINT64_MAX : all / workers * (r + 1);
        for (; at < c->n && keys[at] < end; at++) c->to_each[r]++;
    }
}

/* Adds ascending keys to ascending ones; room: for all of them. */
static void merge(tr_key **keys, size_t *n, const tr_key *more, size_t n_more, tr_key **room)
{
    tr_key *old = *keys, *to = *room;
    size_t i = 0, k = 0, at = 0;
    while (i < *n || k < n_more) {
        bool first = k == n_more || (i < *n && old[i] <= more[k]);
        tr_key key = first ? old[i] : more[k];
        if (first) k += k < n_more && more[k] == key, i++;
        else k++;
        to[at++] = key;
    }
    *keys = to;
    *room = old;
    *n = at;
}

/* Owned columns are those that anybody has said something of. */
static int number_columns(struct tr_owners *c)
{
    const tr_key *said = c->buffer;
    size_t workers = (size_t)tr_set_size(c->tr, TR_SET_WORKERS), at = 0;
    tr_key *room;
    TR_TRY(TR_NEW(&c->key, c->received));
    TR_TRY(TR_NEW(&c->slot, c->received));
    TR_TRY(TR_NEW(&room, c->received));
    for (size_t r = 0; r < workers; at += c->from_each[r++])
        merge(&c->key, &c->owned, said + at, c->from_each[r], &room);
    free(room);
    at = 0;
    for (size_t r = 0; r < workers; r++)
        for (size_t i = 0, slot = 0; i < c->from_each[r]; i++, at++) {
            while (c->key[slot] != said[at]) slot++;
            c->slot[at] = (uint32_t)slot;
        }
    return TR_OK;
}

int tr_owners_open(tr_context *tr, const tr_key *keys, size_t n, uint64_t all, struct tr_owners *c)
{
    size_t workers = (size_t)tr_set_size(tr, TR_SET_WORKERS);
    *c = (struct tr_owners){.tr = tr, .n = n};
    TR_TRY(TR_NEW(&c->to_each, workers));
    TR_TRY(TR_NEW(&c->from_each, workers));
    divide(c, keys, all, workers);
    TR_TRY(tr_exchange_counts(tr, TR_SET_WORKERS, c->to_each, c->from_each));
    for (size_t r = 0; r < workers; r++) c->received += c->from_each[r];
    TR_TRY(TR_NEW((char **)&c->buffer, c->received * sizeof(double)));
    TR_TRY(exchange(c, keys, c->buffer, sizeof *keys, false));
    return number_columns(c);
}

void tr_owners_close(struct tr_owners *c)
{
    free(c->key);
    free(c->to_each);
    free(c->from_each);
    free(c->slot);
    free(c->buffer);
    *c = (struct tr_owners){.n = 0};
}

int tr_owners_sum(struct tr_owners *c, const double *mine, double *sums)
{
    const double *said = c->buffer;
    TR_TRY(exchange(c, mine, c->buffer, sizeof *mine, false));
    memset(sums, 0, c->owned * sizeof *sums);
    for (size_t i = 0; i < c->received; i++) sums[c->slot[i]] += said[i];
    return TR_OK;
}

int tr_owners_tell(struct tr_owners *c, const unsigned char *owned, unsigned char *mine)
{
    unsigned char *said = c->buffer;
    for (size_t i = 0; i < c->received; i++) said[i] = owned[c->slot[i]];
    return exchange(c, said, mine, 1, true);
}
