#include "data/dataset.h"

#include <string.h>

#include "data/renumber.h"

/* ---- any amount, in pieces ---- */

#define PIECE ((uint64_t)64 << 20) /* bytes of one message at most */
enum { TAG_PIECE = 1 };            /* on communicators that carry no other messages from one to one */

struct pieces {
    MPI_Request *request;
    size_t n, capacity;
};

/* Sends (or receives) bytes as messages under way at once. */
static int begin_pieces(struct pieces *p, char *memory, uint64_t bytes, int member, bool sends, MPI_Comm comm)
{
    for (uint64_t at = 0; at < bytes; at += PIECE) {
        int n = (int)(bytes - at < PIECE ? bytes - at : PIECE);
        TR_TRY(TR_GROW(&p->request, &p->capacity, p->n + 1));
        MPI_Request *request = &p->request[p->n++];
        if (sends) MPI_Isend(memory + at, n, MPI_BYTE, member, TAG_PIECE, comm, request);
        else MPI_Irecv(memory + at, n, MPI_BYTE, member, TAG_PIECE, comm, request);
    }
    return TR_OK;
}

static int end_pieces(tr_context *tr, struct pieces *p, const char *what)
{
    int status = TR_OK;
    for (size_t i = 0; i < p->n && status == TR_OK; i++) status = tr_wait_request(tr, &p->request[i], what);
    free(p->request);
    return status;
}

static uint64_t place_of(const uint64_t *count, int member)
{
    uint64_t sum = 0;
    for (int m = 0; m < member; m++) sum += count[m];
    return sum;
}

int tr_ship(tr_context *tr, MPI_Comm comm, const void *from, const uint64_t *count, size_t unit, void **to,
            uint64_t *to_count)
{
    int members, me;
    MPI_Comm_size(comm, &members);
    MPI_Comm_rank(comm, &me);
    MPI_Request request;
    MPI_Ialltoall(count, 1, MPI_UINT64_T, to_count, 1, MPI_UINT64_T, comm, &request);
    TR_TRY(tr_wait_request(tr, &request, "other workers to exchange data"));
    char *memory, *out = (char *)(uintptr_t)from; /* MPI's sends only read it */
    struct pieces pieces = {0};
    TR_TRY(tr_new((void **)&memory, (size_t)place_of(to_count, members), unit, "data of other workers"));
    if (count[me] > 0)
        memcpy(memory + place_of(to_count, me) * unit, out + place_of(count, me) * unit,
               (size_t)count[me] * unit);
    for (int turn = 1; turn < members; turn++) {
        int m = (me + members - turn) % members;
        TR_TRY(
            begin_pieces(&pieces, memory + place_of(to_count, m) * unit, to_count[m] * unit, m, false, comm));
    }
    for (int turn = 1; turn < members; turn++) { /* not all to the same at once */
        int m = (me + turn) % members;
        if (count[m] > 0)
            TR_TRY(begin_pieces(&pieces, out + place_of(count, m) * unit, count[m] * unit, m, true, comm));
    }
    *to = memory;
    return end_pieces(tr, &pieces, "other workers to exchange data");
}

int tr_spread(tr_context *tr, MPI_Comm comm, const void *from, uint64_t n, size_t unit, void **all,
              uint64_t *total)
{
    int members, me;
    uint64_t *count;
    MPI_Comm_size(comm, &members);
    MPI_Comm_rank(comm, &me);
    TR_TRY(TR_NEW(&count, (size_t)members));
    MPI_Request request;
    MPI_Iallgather(&n, 1, MPI_UINT64_T, count, 1, MPI_UINT64_T, comm, &request);
    TR_TRY(tr_wait_request(tr, &request, "other workers to share data"));
    *total = place_of(count, members);
    char *memory, *to;
    TR_TRY(tr_new((void **)&memory, (size_t)*total, unit, "data of other workers"));
    *all = to = memory;
    for (int m = 0; m < members; m++) {
        uint64_t bytes = count[m] * unit;
        if (m == me && n > 0) memcpy(to, from, (size_t)bytes);
        for (uint64_t at = 0; at < bytes; at += PIECE) {
            MPI_Ibcast(to + at, (int)(bytes - at < PIECE ? bytes - at : PIECE), MPI_BYTE, m, comm, &request);
            TR_TRY(tr_wait_request(tr, &request, "other workers to share data"));
        }
        to += bytes;
    }
    free(count);
    return TR_OK;
}

/* ---- columns inside a group ---- */

/* Columns are dealt by a hash: neighbours in a file are often of one kind and equally full. */
int tr_column_member(uint32_t column, int members)
{
    return (int)(tr_mix(column) % (uint64_t)members);
}

/* Everything one member sends to the others, or gets from them, laid end to end by member. */
struct parcel {
    int *rows, *rows_at;   /* by member: lengths of rows, and where they begin */
    int *units, *units_at; /* by member: non-zeros */
    uint32_t *length;      /* of each row's part */
    uint32_t *column;
    float *value;
};

static int parcel_new(struct parcel *p, int members)
{
    *p = (struct parcel){0};
    size_t n = (size_t)members + 1;
    TR_TRY(TR_NEW(&p->rows, n));
    TR_TRY(TR_NEW(&p->rows_at, n));
    TR_TRY(TR_NEW(&p->units, n));
    return TR_NEW(&p->units_at, n);
}

/* Running sums, refused where MPI's counts would overflow. */
static int lay_out(const int *count, int *at, int members)
{
    int64_t sum = 0;
    for (int m = 0; m <= members; m++) {
        at[m] = (int)sum;
        if (m < members) sum += count[m];
        if (sum > INT32_MAX)
            return tr_fail(TR_ERR_SYSTEM,
                           "a vertical partition exchanges at most 2^31 non-zeros a worker: use more groups");
    }
    return TR_OK;
}

static int parcel_room(struct parcel *p, int members)
{
    TR_TRY(lay_out(p->rows, p->rows_at, members));
    TR_TRY(lay_out(p->units, p->units_at, members));
    TR_TRY(TR_NEW(&p->length, (size_t)p->rows_at[members]));
    TR_TRY(TR_NEW(&p->column, (size_t)p->units_at[members]));
    return TR_NEW(&p->value, (size_t)p->units_at[members]);
}

static void parcel_free(struct parcel *p)
{
    void *parts[] = {p->rows, p->rows_at, p->units, p->units_at, p->length, p->column, p->value};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) free(parts[i]);
}

/* Sorts this worker's non-zeros by the member that owns their column. */
static int pack(const struct tr_csr *csr, int members, struct parcel *out)
{
    for (uint64_t k = 0; k < tr_csr_nonzeros(csr); k++)
        out->units[tr_column_member(csr->column[k], members)]++;
    for (int m = 0; m < members; m++) out->rows[m] = (int)csr->rows;
    TR_TRY(parcel_room(out, members));
    int *next;
    TR_TRY(TR_NEW(&next, (size_t)members));
    memcpy(next, out->units_at, (size_t)members * sizeof *next);
    for (size_t i = 0; i < csr->rows; i++)
        for (uint64_t k = csr->begin[i]; k < csr->begin[i + 1]; k++) {
            int m = tr_column_member(csr->column[k], members), at = next[m]++;
            out->length[out->rows_at[m] + (int)i]++;
            out->column[at] = csr->column[k];
            out->value[at] = csr->value ? csr->value[k] : 1.0f;
        }
    free(next);
    return TR_OK;
}

static int travel(tr_context *tr, const void *from, const int *count, const int *at, void *to,
                  const int *to_count, const int *to_at, MPI_Datatype type)
{
    MPI_Request request;
    MPI_Ialltoallv(from, count, at, type, to, to_count, to_at, type, tr->group, &request);
    return tr_wait_request(tr, &request, "the group to exchange columns");
}

/* Puts the rows together: those of member 0 first, and so on. */
static int unpack(struct parcel *in, int members, bool binary, const float *labels, struct tr_csr *csr)
{
    tr_csr_free(csr);
    csr->rows = (size_t)in->rows_at[members];
    size_t units = (size_t)in->units_at[members];
    TR_TRY(TR_NEW(&csr->begin, csr->rows + 1));
    TR_TRY(TR_NEW(&csr->label, csr->rows));
    memcpy(csr->label, labels, csr->rows * sizeof *labels);
    for (size_t i = 0; i < csr->rows; i++) csr->begin[i + 1] = csr->begin[i] + in->length[i];
    TR_TRY(TR_NEW(&csr->column, units));
    memcpy(csr->column, in->column, units * sizeof *in->column);
    if (binary) return TR_OK;
    TR_TRY(TR_NEW(&csr->value, units));
    memcpy(csr->value, in->value, units * sizeof *in->value);
    return TR_OK;
}

int tr_exchange_columns(tr_context *tr, struct tr_csr *csr)
{
    int members = tr->layout.group_size, rows = (int)csr->rows, binary = csr->value == NULL, all_binary = 0;
    if (csr->rows > INT32_MAX / 2)
        return tr_fail(TR_ERR_SYSTEM, "a vertical partition takes at most 2^30 rows a worker");
    struct parcel out, in;
    TR_TRY(parcel_new(&out, members));
    TR_TRY(parcel_new(&in, members));
    TR_TRY(pack(csr, members, &out));

    MPI_Request request;
    MPI_Iallreduce(&binary, &all_binary, 1, MPI_INT, MPI_LAND, tr->group, &request);
    TR_TRY(tr_wait_request(tr, &request, "the group to exchange columns"));
    MPI_Iallgather(&rows, 1, MPI_INT, in.rows, 1, MPI_INT, tr->group, &request);
    TR_TRY(tr_wait_request(tr, &request, "the group to exchange columns"));
    MPI_Ialltoall(out.units, 1, MPI_INT, in.units, 1, MPI_INT, tr->group, &request);
    TR_TRY(tr_wait_request(tr, &request, "the group to exchange columns"));
    TR_TRY(parcel_room(&in, members));
    TR_TRY(travel(tr, out.length, out.rows, out.rows_at, in.length, in.rows, in.rows_at, MPI_UINT32_T));
    TR_TRY(travel(tr, out.column, out.units, out.units_at, in.column, in.units, in.units_at, MPI_UINT32_T));
    if (!all_binary)
        TR_TRY(travel(tr, out.value, out.units, out.units_at, in.value, in.units, in.units_at, MPI_FLOAT));
    float *labels;
    TR_TRY(TR_NEW(&labels, (size_t)in.rows_at[members]));
    MPI_Iallgatherv(csr->label, rows, MPI_FLOAT, labels, in.rows, in.rows_at, MPI_FLOAT, tr->group, &request);
    TR_TRY(tr_wait_request(tr, &request, "the group to exchange labels"));
    parcel_free(&out);
    int status = unpack(&in, members, all_binary, labels, csr);
    parcel_free(&in);
    free(labels);
    return status;
}

/* ---- the keys of a group ---- */

/* From where on keys are a member's, so that all have about as many: of each member's keys so many as there are members
 * are a sample. */
static int choose_bounds(tr_context *tr, const uint32_t *keys, size_t n, uint32_t *bound)
{
    size_t members = (size_t)tr->layout.group_size, some = 0;
    uint32_t *sample, *all;
    uint64_t total;
    TR_TRY(TR_NEW(&sample, members));
    for (; some < members && n > 0; some++) sample[some] = keys[n * some / members];
    TR_TRY(tr_spread(tr, tr->group, sample, some, sizeof *sample, (void **)&all, &total));
    size_t distinct = (size_t)total;
    TR_TRY(tr_keys_sort(all, &distinct));
    for (size_t m = 1; m < members; m++) bound[m] = distinct > 0 ? all[distinct * m / members] : 0;
    free(sample);
    free(all);
    return TR_OK;
}

int tr_unite_keys(tr_context *tr, const uint32_t *keys, size_t n, uint32_t **piece, size_t *n_piece)
{
    size_t members = (size_t)tr->layout.group_size, at = 0;
    uint32_t *bound;
    uint64_t *count, *to_count;
    TR_TRY(TR_NEW(&bound, members));
    TR_TRY(TR_NEW(&count, members));
    TR_TRY(TR_NEW(&to_count, members));
    TR_TRY(choose_bounds(tr, keys, n, bound));
    for (size_t i = 0; i < n; i++) {
        while (at + 1 < members && keys[i] >= bound[at + 1]) at++;
        count[at]++;
    }
    TR_TRY(tr_ship(tr, tr->group, keys, count, sizeof *keys, (void **)piece, to_count));
    *n_piece = (size_t)place_of(to_count, (int)members);
    free(bound);
    free(count);
    free(to_count);
    return tr_keys_sort(*piece, n_piece);
}

/* ---- all rows of a group ---- */

/* An array of n units becomes that of all members. */
static int replicate(tr_context *tr, void **array, uint64_t n, size_t unit)
{
    void *all;
    uint64_t total;
    TR_TRY(tr_spread(tr, tr->group, *array, n, unit, &all, &total));
    free(*array);
    *array = all;
    return TR_OK;
}

static int replicate_begins(tr_context *tr, struct tr_csr *csr)
{
    uint64_t rows = csr->rows, total;
    uint64_t *length, *all;
    TR_TRY(TR_NEW(&length, csr->rows));
    for (size_t i = 0; i < csr->rows; i++) length[i] = csr->begin[i + 1] - csr->begin[i];
    TR_TRY(tr_spread(tr, tr->group, length, rows, sizeof *length, (void **)&all, &total));
    free(length);
    free(csr->begin);
    TR_TRY(TR_NEW(&csr->begin, (size_t)total + 1));
    for (size_t i = 0; i < total; i++) csr->begin[i + 1] = csr->begin[i] + all[i];
    free(all);
    csr->rows = (size_t)total;
    return TR_OK;
}

/* Values are stored if one member has some. */
static int agree_on_values(tr_context *tr, struct tr_csr *csr, uint64_t nonzeros)
{
    int stored = csr->value != NULL;
    MPI_Request request;
    MPI_Iallreduce(MPI_IN_PLACE, &stored, 1, MPI_INT, MPI_LOR, tr->group, &request);
    TR_TRY(tr_wait_request(tr, &request, "the group to share rows"));
    if (!stored || csr->value) return TR_OK;
    TR_TRY(TR_NEW(&csr->value, (size_t)nonzeros));
    for (uint64_t k = 0; k < nonzeros; k++) csr->value[k] = 1;
    return TR_OK;
}

int tr_replicate_rows(tr_context *tr, struct tr_csr *csr, uint64_t **row_number)
{
    uint64_t rows = csr->rows, nonzeros = tr_csr_nonzeros(csr);
    int labelled = csr->label != NULL;
    MPI_Request request;
    MPI_Iallreduce(MPI_IN_PLACE, &labelled, 1, MPI_INT, MPI_LOR, tr->group, &request);
    TR_TRY(tr_wait_request(tr, &request, "the group to share rows"));
    TR_TRY(agree_on_values(tr, csr, nonzeros));
    TR_TRY(replicate_begins(tr, csr));
    TR_TRY(replicate(tr, (void **)&csr->column, nonzeros, sizeof *csr->column));
    if (csr->value) TR_TRY(replicate(tr, (void **)&csr->value, nonzeros, sizeof *csr->value));
    if (labelled) TR_TRY(replicate(tr, (void **)&csr->label, rows, sizeof *csr->label));
    return row_number ? replicate(tr, (void **)row_number, rows, sizeof **row_number) : TR_OK;
}

int tr_replicate_dense(tr_context *tr, struct tr_dense *dense)
{
    uint64_t rows = dense->rows;
    int labelled = dense->label != NULL;
    MPI_Request request;
    MPI_Iallreduce(MPI_IN_PLACE, &labelled, 1, MPI_INT, MPI_LOR, tr->group, &request);
    TR_TRY(tr_wait_request(tr, &request, "the group to share rows"));
    TR_TRY(replicate(tr, (void **)&dense->value, rows * dense->columns, sizeof *dense->value));
    if (labelled) TR_TRY(replicate(tr, (void **)&dense->label, rows, sizeof *dense->label));
    MPI_Iallreduce(MPI_IN_PLACE, &rows, 1, MPI_UINT64_T, MPI_SUM, tr->group, &request);
    TR_TRY(tr_wait_request(tr, &request, "the group to share rows"));
    dense->rows = (size_t)rows;
    return TR_OK;
}
