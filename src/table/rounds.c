#include "table/rounds.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- own keys ---- */

struct tr_own_keys tr_rounds_own(const struct tr_rounds *r, int participant, uint32_t chunk)
{
    int server = r->server[participant];
    if (!r->keys || server < 0) return (struct tr_own_keys){0};
    const struct tr_segment *s = &r->keys[server];
    uint64_t from = (uint64_t)chunk * r->chunk, to = from + r->chunk;
    uint32_t first = from > UINT32_MAX ? s->n : tr_segment_find(s, (uint32_t)from);
    uint32_t end = to > UINT32_MAX ? s->n : tr_segment_find(s, (uint32_t)to);
    return (struct tr_own_keys){s, first, end - first};
}

/* ---- what a rank holds, while the plan is made ---- */

/* Positions in the shares of the participants first .. end-1: by chunk, then by participant, ascending. */
struct holding {
    int first, end;
    uint32_t *n; /* by chunk and participant: how many */
    uint32_t *position;
    size_t total;
};

static void free_holding(struct holding *h)
{
    free(h->n);
    free(h->position);
    *h = (struct holding){0};
}

static size_t width(const struct holding *h)
{
    return (size_t)(h->end - h->first);
}

/* Makes room for positions, after n has been filled in. */
static int make_room(const struct tr_rounds *r, struct holding *h)
{
    h->total = 0;
    for (size_t i = 0; i < r->chunks * width(h); i++) h->total += h->n[i];
    return TR_NEW(&h->position, h->total);
}

static int hold_own_keys(const struct tr_rounds *r, struct holding *h)
{
    *h = (struct holding){.end = r->size};
    TR_TRY(TR_NEW(&h->n, r->chunks * width(h)));
    for (uint32_t c = 0; c < r->chunks; c++)
        for (int p = 0; p < r->size; p++) h->n[c * width(h) + (size_t)p] = tr_rounds_own(r, p, c).n;
    TR_TRY(make_room(r, h));
    uint32_t *to = h->position;
    for (uint32_t c = 0; c < r->chunks; c++)
        for (int p = 0; p < r->size; p++) {
            struct tr_own_keys own = tr_rounds_own(r, p, c);
            if (own.n > 0) memcpy(to, own.segment->position + own.first, own.n * sizeof *to);
            to += own.n;
        }
    return TR_OK;
}

/* What is held for the participants of a flow, and where in each chunk that is. */
static int cut(const struct tr_rounds *r, const struct holding *h, const struct tr_flow *f,
               struct holding *part)
{
    *part = (struct holding){.first = f->first, .end = f->end};
    TR_TRY(TR_NEW(&part->n, r->chunks * width(part)));
    for (uint32_t c = 0; c < r->chunks; c++)
        memcpy(part->n + c * width(part), h->n + c * width(h) + (f->first - h->first),
               width(part) * sizeof *part->n);
    TR_TRY(make_room(r, part));
    const uint32_t *from = h->position;
    uint32_t *to = part->position;
    for (uint32_t c = 0; c < r->chunks; c++) {
        const uint32_t *begin = from;
        for (int p = h->first; p < h->end; p++) {
            uint32_t n = h->n[c * width(h) + (size_t)(p - h->first)];
            if (p == f->first) f->at[c] = (uint32_t)(from - begin);
            if (p >= f->first && p < f->end) {
                if (n > 0) memcpy(to, from, n * sizeof *to);
                to += n;
                f->units[c] += n;
            }
            from += n;
        }
    }
    return TR_OK;
}

/* Both ascending lists as one. */
static uint32_t unite(const uint32_t *a, uint32_t n, const uint32_t *b, uint32_t m, uint32_t *both)
{
    uint32_t i = 0, k = 0, all = 0;
    while (i < n && k < m) {
        uint32_t next = a[i] < b[k] ? a[i] : b[k];
        i += a[i] == next;
        k += b[k] == next;
        both[all++] = next;
    }
    for (; i < n; i++) both[all++] = a[i];
    for (; k < m; k++) both[all++] = b[k];
    return all;
}

/* All that the parts have, once each. */
static int unite_all(const struct tr_rounds *r, const struct holding *part, size_t parts, struct holding *h)
{
    *h = (struct holding){.first = part->first, .end = part->end};
    TR_TRY(TR_NEW(&h->n, r->chunks * width(h)));
    size_t most = 0;
    for (size_t i = 0; i < parts; i++) most += part[i].total;
    uint32_t *spare = NULL;
    size_t *at = NULL; /* in each part */
    int status = TR_NEW(&h->position, most);
    if (status == TR_OK) status = TR_NEW(&spare, most);
    if (status == TR_OK) status = TR_NEW(&at, parts);
    uint32_t *to = h->position;
    for (size_t cell = 0; cell < r->chunks * width(h) && status == TR_OK; cell++) {
        uint32_t n = 0;
        for (size_t i = 0; i < parts; i++) {
            memcpy(spare, to, n * sizeof *to);
            n = unite(spare, n, part[i].position + at[i], part[i].n[cell], to);
            at[i] += part[i].n[cell];
        }
        h->n[cell] = n;
        to += n;
    }
    h->total = (size_t)(to - h->position);
    free(spare);
    free(at);
    return status;
}

/* ---- flows ---- */

static int open_flow(const struct tr_rounds *r, struct tr_flow *f, int peer, int first, int end)
{
    *f = (struct tr_flow){.peer = peer, .first = first, .end = end};
    TR_TRY(TR_NEW(&f->units, r->chunks));
    return TR_NEW(&f->at, r->chunks);
}

static void free_flow(struct tr_flow *f)
{
    free(f->units);
    free(f->at);
    free(f->place);
}

/* Leaves the list of places out where the units of each chunk go side by side. */
static void leave_runs_out(const struct tr_rounds *r, struct tr_flow *f)
{
    const uint32_t *place = f->place;
    for (uint32_t c = 0; c < r->chunks; place += f->units[c++])
        if (f->units[c] > 0 && place[f->units[c] - 1] - place[0] + 1 != f->units[c]) return;
    place = f->place;
    for (uint32_t c = 0; c < r->chunks; place += f->units[c++]) f->at[c] = f->units[c] > 0 ? place[0] : 0;
    free(f->place);
    f->place = NULL;
}

/* Where each unit of a part lies in what is held after the round, or in the share where that is NULL. */
static int find_places(const struct tr_rounds *r, struct tr_flow *f, const struct holding *part,
                       const struct holding *held)
{
    TR_TRY(TR_NEW(&f->place, part->total));
    size_t at = 0, first = 0;
    for (uint32_t c = 0; c < r->chunks; c++) {
        uint32_t before = 0;
        f->at[c] = (uint32_t)at;
        for (size_t p = 0; p < width(part); p++) {
            uint32_t n = part->n[c * width(part) + p], all = held ? held->n[c * width(part) + p] : 0;
            for (uint32_t i = 0, k = 0; i < n; i++) {
                uint32_t position = part->position[at + i];
                while (held && held->position[first + k] != position) k++;
                f->place[at + i] = held ? before + k : position;
            }
            at += n;
            before += all;
            first += all;
        }
        f->units[c] = (uint32_t)at - f->at[c];
    }
    leave_runs_out(r, f);
    return TR_OK;
}

/* ---- keys travel ---- */

struct requests {
    MPI_Request *request;
    size_t n, capacity;
};

/* Starts to send or receive numbers, in messages that MPI can count. */
static int start(struct requests *all, uint32_t *number, size_t n, int peer, bool sends, MPI_Comm comm)
{
    const size_t most = (size_t)1 << 28;
    for (size_t at = 0; at < n; at += most) {
        int count = (int)tr_min_size(n - at, most);
        TR_TRY(TR_GROW(&all->request, &all->capacity, all->n + 1));
        MPI_Request *request = &all->request[all->n++];
        if (sends) MPI_Isend(number + at, count, MPI_UINT32_T, peer, TR_TAG_NONE, comm, request);
        else MPI_Irecv(number + at, count, MPI_UINT32_T, peer, TR_TAG_NONE, comm, request);
    }
    return TR_OK;
}

static void wait_for_all(tr_context *tr, struct requests *all)
{
    for (size_t i = 0; i < all->n; i++)
        tr_wait_alone(tr, &all->request[i], "other ranks to say which keys they merge");
    all->n = 0;
}

/* Tells each peer which units it will get from this rank, and hears which this one will get. */
static int exchange_keys(tr_context *tr, MPI_Comm comm, const struct tr_rounds *r,
                         const struct tr_round *round, struct holding *out, struct holding *in)
{
    struct requests all = {0};
    for (int turn = 0; turn < 2; turn++) { /* how many, then which */
        for (size_t i = 0; i < round->ins; i++) {
            if (round->in[i].peer == r->me) continue;
            if (turn == 0) TR_TRY(TR_NEW(&in[i].n, r->chunks * width(&in[i])));
            else TR_TRY(make_room(r, &in[i]));
            TR_TRY(start(&all, turn == 0 ? in[i].n : in[i].position,
                         turn == 0 ? r->chunks * width(&in[i]) : in[i].total, round->in[i].peer, false,
                         comm));
        }
        for (size_t i = 0; i < round->outs; i++)
            if (round->out[i].peer != r->me)
                TR_TRY(start(&all, turn == 0 ? out[i].n : out[i].position,
                             turn == 0 ? r->chunks * width(&out[i]) : out[i].total, round->out[i].peer, true,
                             comm));
        wait_for_all(tr, &all);
    }
    free(all.request);
    return TR_OK;
}

/* ---- rounds ---- */

/* Where part k of the participants first .. end-1 begins: parts differ by one at most. */
static int part_at(int first, int end, int parts, int k)
{
    return first + (int)((int64_t)(end - first) * k / parts);
}

/* Who gets what from whom among the participants first .. end-1. A rank sends to the member of a part that has its own number
 * there, or the first one where that part is smaller. */
static int find_peers(const struct tr_rounds *r, struct tr_round *round, int first, int end)
{
    int parts = r->degree < end - first ? r->degree : end - first, mine = 0;
    while (part_at(first, end, parts, mine + 1) <= r->me) mine++;
    round->first = part_at(first, end, parts, mine);
    round->end = part_at(first, end, parts, mine + 1);
    int number = r->me - round->first, members = round->end - round->first;
    TR_TRY(TR_NEW(&round->out, (size_t)parts));
    TR_TRY(TR_NEW(&round->in, 2 * (size_t)parts));
    TR_TRY(TR_NEW(&round->held, r->chunks));
    for (int k = 0; k < parts; k++) {
        int begin = part_at(first, end, parts, k), size = part_at(first, end, parts, k + 1) - begin;
        TR_TRY(open_flow(r, &round->out[round->outs++], begin + number % size, begin, begin + size));
        for (int i = number; i < size; i += members)
            TR_TRY(open_flow(r, &round->in[round->ins++], begin + i, round->first, round->end));
    }
    return TR_OK;
}

static struct tr_flow *flow_of(struct tr_flow *flow, int peer)
{
    while (flow->peer != peer) flow++;
    return flow;
}

static int plan_flows(tr_context *tr, MPI_Comm comm, struct tr_rounds *r, struct tr_round *round,
                      struct holding *h, struct holding *out, struct holding *in)
{
    for (size_t i = 0; i < round->ins; i++)
        in[i] = (struct holding){.first = round->first, .end = round->end};
    for (size_t i = 0; i < round->outs; i++) TR_TRY(cut(r, h, &round->out[i], &out[i]));
    TR_TRY(exchange_keys(tr, comm, r, round, out, in));
    struct holding *kept = &out[flow_of(round->out, r->me) - round->out];
    in[flow_of(round->in, r->me) - round->in] = *kept;
    *kept = (struct holding){0};
    free_holding(h);
    bool last = round->end - round->first == 1;
    if (!last) TR_TRY(unite_all(r, in, round->ins, h));
    for (size_t i = 0; i < round->ins; i++) TR_TRY(find_places(r, &round->in[i], &in[i], last ? NULL : h));
    for (uint32_t c = 0; c < r->chunks && !last; c++)
        for (size_t p = 0; p < width(h); p++) round->held[c] += h->n[c * width(h) + p];
    return TR_OK;
}

static int plan_round(tr_context *tr, MPI_Comm comm, struct tr_rounds *r, int first, int end,
                      struct holding *h)
{
    struct tr_round *round = &r->round[r->n++];
    TR_TRY(find_peers(r, round, first, end));
    struct holding *out;
    TR_TRY(TR_NEW(&out, round->outs + round->ins));
    int status = plan_flows(tr, comm, r, round, h, out, out + round->outs);
    for (size_t i = 0; i < round->outs + round->ins; i++) free_holding(&out[i]);
    free(out);
    return status;
}

int tr_rounds_open(tr_context *tr, MPI_Comm comm, int server, const struct tr_segment *keys, uint64_t longest,
                   uint32_t chunk, int degree, struct tr_rounds *r)
{
    enum { MOST = 32 }; /* of two parts each */
    *r = (struct tr_rounds){.degree = degree, .keys = keys, .chunk = chunk};
    r->chunks = (uint32_t)((longest + chunk - 1) / chunk);
    MPI_Comm_rank(comm, &r->me);
    MPI_Comm_size(comm, &r->size);
    TR_TRY(TR_NEW(&r->server, (size_t)r->size));
    TR_TRY(TR_NEW(&r->round, MOST));
    MPI_Request request;
    MPI_Iallgather(&server, 1, MPI_INT, r->server, 1, MPI_INT, comm, &request);
    tr_wait_alone(tr, &request, "all ranks to open the merge of a table");
    struct holding h;
    TR_TRY(hold_own_keys(r, &h));
    int first = 0, end = r->size, status = TR_OK;
    do {
        status = plan_round(tr, comm, r, first, end, &h);
        first = r->round[r->n - 1].first;
        end = r->round[r->n - 1].end;
    } while (status == TR_OK && end - first > 1);
    free_holding(&h);
    return status;
}

void tr_rounds_close(struct tr_rounds *r)
{
    for (size_t i = 0; i < r->n; i++) {
        struct tr_round *round = &r->round[i];
        for (size_t k = 0; k < round->outs; k++) free_flow(&round->out[k]);
        for (size_t k = 0; k < round->ins; k++) free_flow(&round->in[k]);
        free(round->out);
        free(round->in);
        free(round->held);
    }
    free(r->round);
    free(r->server);
    *r = (struct tr_rounds){0};
}

/* ---- the degree ---- */

/* Seconds of all rounds. Keys of ranks are taken for independent, so that what they hold together is overestimated where all
 * have the frequent ones; the constants are those of a common cluster. */
static double seconds_of(int n, double density, double bytes, int degree)
{
    const double round = 2e-5, message = 3e-6, bandwidth = 1e9;
    double seconds = 0, among = n;
    while (among > 1) {
        double parts = fmin(degree, among), ranks = n / among;
        double held = bytes * among / n * (1 - pow(1 - density, ranks));
        seconds += round + (parts - 1) * message + held * (parts - 1) / parts / bandwidth;
        among /= parts;
    }
    return seconds;
}

int tr_rounds_choose_degree(int n, double held, double units, size_t unit_bytes)
{
    const int degrees[] = {n, 2, 4, 8}; /* equals for the first: fewer rounds */
    int best = n;
    double density = fmin(1, held / (units * n)), least = INFINITY;
    for (size_t i = 0; i < sizeof degrees / sizeof *degrees; i++) {
        double seconds = seconds_of(n, density, units * (double)unit_bytes, degrees[i]);
        if (degrees[i] > n || seconds >= least) continue;
        best = degrees[i];
        least = seconds;
    }
    return best < 2 ? 2 : best;
}
