#include "monitor/account.h"

#include <stdlib.h>
#include <string.h>

/* ---- as numbers ---- */

/* All are kept as f64, which counts to 2^53: more bytes than are moved in a century. */
enum kind { REAL, COUNT, CLOCK, FLAG };

struct number {
    enum kind kind;
    void *at;
};

static double get(const struct number *number)
{
    switch (number->kind) {
    case REAL: return *(const double *)number->at;
    case COUNT: return (double)*(const uint64_t *)number->at;
    case CLOCK: return (double)*(const int64_t *)number->at;
    case FLAG: return *(const bool *)number->at;
    }
    return 0;
}

static void set(const struct number *number, double value)
{
    switch (number->kind) {
    case REAL: *(double *)number->at = value; break;
    case COUNT: *(uint64_t *)number->at = (uint64_t)value; break;
    case CLOCK: *(int64_t *)number->at = (int64_t)value; break;
    case FLAG: *(bool *)number->at = value != 0; break;
    }
}

enum { TRAFFIC_NUMBERS = 11, ROW_NUMBERS = TRAFFIC_NUMBERS + 12 };

static size_t list_traffic(struct tr_traffic *t, struct number *to)
{
    const struct number numbers[TRAFFIC_NUMBERS] = {
        {COUNT, &t->bytes_pulled},  {COUNT, &t->bytes_pushed},     {COUNT, &t->pulls},
        {COUNT, &t->pushes},        {COUNT, &t->messages},         {COUNT, &t->filtered.seen},
        {COUNT, &t->filtered.held}, {COUNT, &t->filtered.dropped}, {REAL, &t->wait_seconds},
        {REAL, &t->pull_seconds},   {REAL, &t->push_seconds}};
    memcpy(to, numbers, sizeof numbers);
    return TRAFFIC_NUMBERS;
}

/* Without what workers are slowed by, which is measured anew. */
static size_t list_row(struct tr_progress_row *r, struct number *to)
{
    tr_evaluation *v = &r->evaluation;
    const struct number numbers[ROW_NUMBERS - TRAFFIC_NUMBERS] = {{CLOCK, &r->clock},
                                                                  {REAL, &r->epoch},
                                                                  {REAL, &r->seconds},
                                                                  {REAL, &v->objective},
                                                                  {REAL, &v->gap},
                                                                  {REAL, &v->metric},
                                                                  {REAL, &v->epoch},
                                                                  {FLAG, &r->exact},
                                                                  {REAL, &r->compute_seconds},
                                                                  {REAL, &r->evaluate_seconds},
                                                                  {COUNT, &r->updates},
                                                                  {REAL, &r->peak_rss}};
    memcpy(to, numbers, sizeof numbers);
    return ROW_NUMBERS - TRAFFIC_NUMBERS + list_traffic(&r->traffic, to + ROW_NUMBERS - TRAFFIC_NUMBERS);
}

/* ---- what rank 0 knows ---- */

int tr_account_keep(struct tr_account *a, tr_snapshot *snapshot)
{
    uint64_t metric = a->metric;
    const struct number own[] = {
        {REAL, &a->total},     {CLOCK, &a->metrics_bytes}, {COUNT, &metric},    {FLAG, &a->reached_target},
        {COUNT, &a->restarts}, {COUNT, &a->checkpoints},   {COUNT, &a->failed}, {REAL, &a->copying}};
    enum { OWN = sizeof own / sizeof *own, NUMBERS = OWN + TR_MONITOR_STATES + 2 * ROW_NUMBERS };
    struct number number[NUMBERS];
    double value[NUMBERS];
    size_t n = OWN;
    memcpy(number, own, sizeof own);
    for (int i = 0; i < TR_MONITOR_STATES; i++) number[n++] = (struct number){REAL, &a->spent[i]};
    n += list_row(&a->last, number + n);
    n += list_row(&a->target, number + n);
    for (size_t i = 0; i < n; i++) value[i] = get(&number[i]);
    TR_TRY(tr_snapshot_common(snapshot, "account", TR_F64, n, value));
    if (!tr_snapshot_restores(snapshot)) return TR_OK;
    for (size_t i = 0; i < n; i++) set(&number[i], value[i]);
    a->metric = (enum tr_test_metric)metric;
    return TR_OK;
}

/* ---- what each worker has counted ---- */

enum { COUNTED = TRAFFIC_NUMBERS + 1 };

static void to_values(struct tr_counted *c, double value[COUNTED])
{
    struct number number[TRAFFIC_NUMBERS];
    list_traffic(&c->traffic, number);
    for (int i = 0; i < TRAFFIC_NUMBERS; i++) value[i] = get(&number[i]);
    value[TRAFFIC_NUMBERS] = (double)c->updates;
}

static void add_values(struct tr_counted *c, const double value[COUNTED])
{
    struct number number[TRAFFIC_NUMBERS];
    list_traffic(&c->traffic, number);
    for (int i = 0; i < TRAFFIC_NUMBERS; i++) set(&number[i], get(&number[i]) + value[i]);
    c->updates += (uint64_t)value[TRAFFIC_NUMBERS];
}

/* Of this rank, with what was counted before on rank 0. */
static int take(const struct tr_counted *before, tr_context *tr, tr_snapshot *snapshot)
{
    struct tr_counted now = {.traffic = {0}};
    double value[COUNTED];
    if (tr_works(tr)) {
        now.traffic = tr->tables->traffic;
        now.updates = tr->active->member == 0 ? now.traffic.pushes : 0;
    }
    struct tr_counted earlier = *before;
    to_values(&earlier, value);
    add_values(&now, value);
    to_values(&now, value);
    return tr_snapshot_rows(snapshot, "counted", TR_F64, (uint64_t)tr->size, COUNTED, NULL,
                            (uint64_t)tr->rank, 1, value);
}

static int fill(struct tr_counted *c, tr_context *tr, tr_snapshot *snapshot)
{
    const struct tr_facts *facts = &tr_checkpoint_found(tr)->facts;
    size_t ranks = (size_t)facts->ranks, mine = tr->rank == 0 ? ranks : 0;
    double *value;
    *c = (struct tr_counted){.updates = 0};
    snprintf(c->stage, sizeof c->stage, "%s", facts->stage);
    TR_TRY(TR_NEW(&value, ranks * COUNTED));
    int status = tr_snapshot_rows(snapshot, "counted", TR_F64, ranks, COUNTED, NULL, 0, mine, value);
    for (size_t i = 0; status == TR_OK && i < mine; i++) add_values(c, value + i * COUNTED);
    free(value);
    return status;
}

int tr_counted_keep(struct tr_counted *c, tr_context *tr, const struct tr_progress_row *last,
                    tr_snapshot *snapshot)
{
    if (!tr_snapshot_restores(snapshot)) return take(c, tr, snapshot);
    TR_TRY(fill(c, tr, snapshot));
    c->compute_seconds = last->compute_seconds;
    c->evaluate_seconds = last->evaluate_seconds;
    return TR_OK;
}

void tr_counted_add(struct tr_counted *c, const tr_stage *stage, struct tr_progress_row *row)
{
    if (*c->stage && strcmp(stage->name, c->stage) != 0) *c = (struct tr_counted){.updates = 0};
    struct tr_counted sum = {.traffic = row->traffic, .updates = row->updates};
    double value[COUNTED];
    to_values(c, value);
    add_values(&sum, value);
    row->traffic = sum.traffic;
    row->updates = sum.updates;
    row->compute_seconds += c->compute_seconds;
    row->evaluate_seconds += c->evaluate_seconds;
}
