#include "data/exchange.h"

#include <string.h>

#include "data/renumber.h"

static uint64_t sum_of(const uint64_t *count, int n)
{
    uint64_t sum = 0;
    for (int m = 0; m < n; m++) sum += count[m];
    return sum;
}

int tr_all_to_all(tr_context *tr, enum tr_set set, const void *from, const uint64_t *count, size_t unit,
                  void **to, uint64_t *to_count)
{
    size_t members = (size_t)tr_set_size(tr, set), *bytes, *to_bytes;
    TR_TRY(TR_NEW(&bytes, 2 * members));
    to_bytes = bytes + members;
    for (size_t m = 0; m < members; m++) bytes[m] = (size_t)count[m] * unit;
    int status = tr_exchange_counts(tr, set, bytes, to_bytes);
    for (size_t m = 0; m < members && status == TR_OK; m++) to_count[m] = to_bytes[m] / unit;
    if (status == TR_OK)
        status = tr_new(to, (size_t)sum_of(to_count, (int)members), unit, "data of other workers");
    if (status == TR_OK) status = tr_exchange(tr, set, from, bytes, *to, to_bytes);
    free(bytes);
    return status;
}

int tr_gather_to_all(tr_context *tr, enum tr_set set, const void *from, uint64_t n, size_t unit, void **all,
                     uint64_t *total)
{
    size_t members = (size_t)tr_set_size(tr, set), *bytes, mine = (size_t)n * unit, sum = 0;
    TR_TRY(TR_NEW(&bytes, members));
    int status = tr_all_gather(tr, set, &mine, sizeof mine, bytes);
    for (size_t m = 0; m < members; m++) sum += bytes[m];
    *total = sum / unit;
    if (status == TR_OK) status = tr_new(all, (size_t)*total, unit, "data of other workers");
    if (status == TR_OK) status = tr_all_gather_lists(tr, set, from, bytes, *all);
    free(bytes);
    return status;
}

int tr_replicate(tr_context *tr, enum tr_set set, void **array, uint64_t n, size_t unit)
{
    void *all;
    uint64_t total;
    TR_TRY(tr_gather_to_all(tr, set, *array, n, unit, &all, &total));
    free(*array);
    *array = all;
    return TR_OK;
}

/* ---- columns inside a group ---- */

/* Columns are dealt by a hash: neighbours in a file are often of one kind and equally full. */
int tr_column_member(uint32_t column, int members)
{
    return (int)(tr_mix(column) % (uint64_t)members);
}

/* Whether one member at least has some, which the others have to bring too then. */
static int agree_on_any(tr_context *tr, enum tr_set set, bool mine, bool *any)
{
    int32_t one = mine;
    TR_TRY(tr_all_reduce(tr, set, TR_MAX, TR_I32, &one, 1));
    *any = one;
    return TR_OK;
}

/* Values that are all 1 are written out if one member has others. */
static int agree_on_values(tr_context *tr, enum tr_set set, struct tr_matrix *m, bool *any)
{
    TR_TRY(agree_on_any(tr, set, m->value != NULL, any));
    if (!*any || m->value) return TR_OK;
    TR_TRY(TR_NEW(&m->value, tr_matrix_nonzeros(m)));
    for (size_t k = 0; k < tr_matrix_nonzeros(m); k++) m->value[k] = 1;
    return TR_OK;
}

/* From lengths of n rows to where they begin. */
static int find_begins(const uint32_t *length, uint64_t n, struct tr_matrix *m)
{
    free(m->begin);
    m->rows = (size_t)n;
    TR_TRY(TR_NEW(&m->begin, (size_t)n + 1));
    for (size_t i = 0; i < n; i++) m->begin[i + 1] = m->begin[i] + length[i];
    return TR_OK;
}

/* A worker's non-zeros by the member that owns their column: of each, how long its part of each row is, and the part. */
struct parcels {
    uint64_t *rows, *nonzeros, *got; /* of each member */
    uint32_t *length, *column;
    float *value;
};

static int pack(const struct tr_matrix *m, int members, struct parcels *p)
{
    size_t n = tr_matrix_nonzeros(m);
    uint64_t *next;
    TR_TRY(TR_NEW(&p->rows, 4 * (size_t)members));
    p->nonzeros = p->rows + members;
    p->got = p->nonzeros + members;
    next = p->got + members;
    TR_TRY(TR_NEW(&p->length, (size_t)members * m->rows));
    TR_TRY(TR_NEW(&p->column, n));
    if (m->value) TR_TRY(TR_NEW(&p->value, n));
    for (size_t k = 0; k < n; k++) p->nonzeros[tr_column_member(m->column[k], members)]++;
    for (int to = 0; to < members; to++) {
        p->rows[to] = m->rows;
        next[to] = sum_of(p->nonzeros, to);
    }
    for (size_t i = 0; i < m->rows; i++)
        for (uint64_t k = m->begin[i]; k < m->begin[i + 1]; k++) {
            int to = tr_column_member(m->column[k], members);
            p->length[(size_t)to * m->rows + i]++;
            p->column[next[to]] = m->column[k];
            if (m->value) p->value[next[to]] = m->value[k];
            next[to]++;
        }
    return TR_OK;
}

/* The parts of all members, those of member 0 first, are the rows. */
static int exchange(tr_context *tr, struct tr_matrix *m, const struct parcels *p)
{
    void *length = NULL;
    uint64_t rows = m->rows;
    int members = tr->layout.group_size;
    TR_TRY(tr_all_to_all(tr, TR_SET_GROUP, p->length, p->rows, sizeof *p->length, &length, p->got));
    int status = find_begins(length, sum_of(p->got, members), m);
    free(length);
    free(m->column);
    m->column = NULL;
    if (status == TR_OK)
        status = tr_all_to_all(tr, TR_SET_GROUP, p->column, p->nonzeros, sizeof *p->column,
                               (void **)&m->column, p->got);
    if (status == TR_OK && p->value) {
        free(m->value);
        m->value = NULL;
        status = tr_all_to_all(tr, TR_SET_GROUP, p->value, p->nonzeros, sizeof *p->value, (void **)&m->value,
                               p->got);
    }
    if (status == TR_OK) status = tr_replicate(tr, TR_SET_GROUP, (void **)&m->label, rows, sizeof *m->label);
    return status;
}

int tr_exchange_columns(tr_context *tr, struct tr_matrix *m)
{
    struct parcels p = {0};
    bool valued;
    TR_TRY(agree_on_values(tr, TR_SET_GROUP, m, &valued));
    int status = pack(m, tr->layout.group_size, &p);
    if (status == TR_OK) status = exchange(tr, m, &p);
    void *parts[] = {p.rows, p.length, p.column, p.value};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) free(parts[i]);
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
    TR_TRY(tr_gather_to_all(tr, TR_SET_GROUP, sample, some, sizeof *sample, (void **)&all, &total));
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
    uint64_t *count;
    TR_TRY(TR_NEW(&bound, members));
    TR_TRY(TR_NEW(&count, 2 * members));
    TR_TRY(choose_bounds(tr, keys, n, bound));
    for (size_t i = 0; i < n; i++) {
        while (at + 1 < members && keys[i] >= bound[at + 1]) at++;
        count[at]++;
    }
    TR_TRY(tr_all_to_all(tr, TR_SET_GROUP, keys, count, sizeof *keys, (void **)piece, count + members));
    *n_piece = (size_t)sum_of(count + members, (int)members);
    free(bound);
    free(count);
    return tr_keys_sort(*piece, n_piece);
}

/* ---- all rows of a set ---- */

static int replicate_begins(tr_context *tr, enum tr_set set, struct tr_matrix *m)
{
    uint64_t total;
    uint32_t *length, *all;
    TR_TRY(TR_NEW(&length, m->rows));
    for (size_t i = 0; i < m->rows; i++) length[i] = (uint32_t)(m->begin[i + 1] - m->begin[i]);
    TR_TRY(tr_gather_to_all(tr, set, length, m->rows, sizeof *length, (void **)&all, &total));
    free(length);
    int status = find_begins(all, total, m);
    free(all);
    return status;
}

int tr_replicate_rows(tr_context *tr, enum tr_set set, struct tr_matrix *m, uint64_t **row_number)
{
    uint64_t rows = m->rows, nonzeros = tr_matrix_nonzeros(m), total;
    bool valued = true, labelled;
    TR_TRY(agree_on_any(tr, set, m->label != NULL, &labelled));
    if (m->columns == 0) {
        TR_TRY(agree_on_values(tr, set, m, &valued));
        TR_TRY(replicate_begins(tr, set, m));
        TR_TRY(tr_replicate(tr, set, (void **)&m->column, nonzeros, sizeof *m->column));
    }
    if (valued) TR_TRY(tr_replicate(tr, set, (void **)&m->value, nonzeros, sizeof *m->value));
    if (labelled) TR_TRY(tr_replicate(tr, set, (void **)&m->label, rows, sizeof *m->label));
    if (row_number) TR_TRY(tr_replicate(tr, set, (void **)row_number, rows, sizeof **row_number));
    if (m->columns == 0) return TR_OK;
    total = rows;
    TR_TRY(tr_all_reduce(tr, set, TR_SUM, TR_I64, &total, 1));
    m->rows = (size_t)total;
    return TR_OK;
}
