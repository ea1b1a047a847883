#include "data/dataset.h"

#include <string.h>

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
