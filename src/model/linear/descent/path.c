/* The regularisation path: descent for one penalty after the other, from the smallest that leaves no weight down to a
 * thousandth of it, each from the weights of the one before. */
#define _GNU_SOURCE
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "descent.h"

double tr_descent_alpha(const struct tr_linear *m, size_t i)
{
    const struct tr_linear_descent *d = m->descent;
    const double last = 1e-3;
    if (d->values == 0) return m->o->l1 * m->problem.n;
    return d->share * d->first_alpha * (d->values > 1 ? pow(last, (double)i / (double)(d->values - 1)) : 1);
}

/* ---- the best ---- */

static int remember(struct tr_linear *m, double metric)
{
    struct tr_linear_descent *d = m->descent;
    struct tr_descent_best *b = &d->best;
    const struct tr_descent_set *s = &d->set;
    free(b->key);
    free(b->weight);
    *b = (struct tr_descent_best){.metric = metric,
                                  .objective = tr_descent_objective(d),
                                  .dual = d->dual,
                                  .bias = d->bias,
                                  .nonzeros = d->at.nonzeros,
                                  .value = d->value + 1};
    TR_TRY(TR_NEW(&b->key, s->n));
    TR_TRY(TR_NEW(&b->weight, s->n));
    for (size_t j = 0; j < s->n; j++)
        if (s->weight[j] != 0) b->key[b->n] = s->key[j], b->weight[b->n++] = s->weight[j];
    return TR_OK;
}

/* The one that folds have chosen, or the best by the test data; without these the last. */
int tr_descent_compare(struct tr_linear *m, const tr_report *report)
{
    struct tr_linear_descent *d = m->descent;
    tr_report all = *report;
    if (d->folds.n > 0) return d->value == d->folds.chosen ? remember(m, 0) : TR_OK;
    if (!m->test) return remember(m, 0);
    TR_TRY(tr_all_reduce(m->tr, TR_SET_WORKERS, TR_SUM, TR_F64, all.sum, TR_SUMS));
    double metric = tr_linear_test_metric(m, &all);
    bool better = tr_linear_classifies(m) ? metric > d->best.metric : metric < d->best.metric;
    return better || d->best.value == 0 ? remember(m, metric) : TR_OK;
}

void tr_descent_choose(struct tr_linear *m)
{
    struct tr_linear_descent *d = m->descent;
    const struct tr_descent_best *b = &d->best;
    d->chosen = true;
    d->bias = b->bias;
    memset(d->weight, 0, d->shared.n * sizeof *d->weight);
    for (size_t i = 0; i < b->n; i++) {
        uint32_t slot = tr_descent_slot(d, b->key[i]);
        if (slot != UINT32_MAX) d->weight[slot] = b->weight[i];
    }
}

/* ---- what is told of it ---- */

void tr_descent_add(struct tr_linear *m, size_t value, double alpha, double nonzeros,
                    const tr_evaluation *evaluation)
{
    m->descent->done[value] = (struct tr_descent_value){.alpha = alpha,
                                                        .nonzeros = nonzeros,
                                                        .objective = evaluation->objective,
                                                        .gap = evaluation->gap,
                                                        .metric = evaluation->metric};
}

static void write_value(const struct tr_linear *m, size_t i, FILE *file)
{
    const struct tr_linear_descent *d = m->descent;
    const struct tr_descent_value *v = &d->done[i];
    bool metric = tr_linear_metric(m), done = v->alpha > 0;
    if (done) fprintf(file, "%.9g,%.0f,%.9g,%.3g", v->alpha, v->nonzeros, v->objective, fmax(v->gap, 0));
    else
        fprintf(file, "%.9g,,,", tr_descent_worth(&d->folds, i).l1); /* smaller than what folds have chosen */
    if (metric && done) fprintf(file, ",%.9g", v->metric);
    else if (metric) fputc(',', file);
    if (d->folds.n > 0) {
        struct tr_descent_worth worth = tr_descent_worth(&d->folds, i);
        fprintf(file, ",%.9g,%.9g", worth.loss, worth.error);
    }
    fputc('\n', file);
}

static int cannot_write(int status, const char *path)
{
    return tr_fail(status, "%s: cannot be written: %s", path, strerror(errno));
}

static int write_values(const struct tr_linear *m, const char *path, FILE *file)
{
    const struct tr_linear_descent *d = m->descent;
    const char *metric = tr_linear_metric(m);
    fprintf(file, "l1,nonzeros,objective,gap%s%s%s\n", metric ? "," : "", metric ? metric : "",
            d->folds.n > 0 ? ",held_out_loss,standard_error" : "");
    for (size_t i = 0; i < d->values && (d->done[i].alpha > 0 || d->folds.n > 0); i++)
        write_value(m, i, file);
    return ferror(file) || fflush(file) != 0 || fsync(fileno(file)) < 0 ? cannot_write(TR_ERR_IO, path)
                                                                        : TR_OK;
}

int tr_descent_write_path(const struct tr_linear *m)
{
    const char *folder;
    char *path, *part = NULL;
    TR_TRY(tr_job_string(m->job, "output", &folder));
    TR_TRY(tr_format(&path, "%s/path.csv", folder));
    int status = tr_format(&part, "%s.part", path);
    FILE *file = part ? fopen(part, "we") : NULL;
    if (status == TR_OK) status = file ? write_values(m, path, file) : cannot_write(TR_ERR_NO_OUTPUT, path);
    if (file && fclose(file) != 0 && status == TR_OK) status = cannot_write(TR_ERR_IO, path);
    if (status == TR_OK && rename(part, path) < 0) status = cannot_write(TR_ERR_IO, path);
    if (part && status != TR_OK) unlink(part);
    free(part);
    free(path);
    return status;
}

/* ---- checkpoints ---- */

/* The best weights are the same at all workers: the first one's are kept. */
int tr_descent_keep_path(tr_worker *me, struct tr_linear *m, tr_snapshot *snapshot)
{
    struct tr_linear_descent *d = m->descent;
    struct tr_descent_best *b = &d->best;
    bool restores = tr_snapshot_restores(snapshot), has = restores ? me->worker >= 0 : me->worker == 0;
    double number[7] = {b->metric,   b->objective, b->dual,         b->bias,
                        b->nonzeros, (double)b->n, (double)b->value};
    if (d->values == 0) return TR_OK;
    TR_TRY(
        tr_snapshot_common(snapshot, "path", TR_F64, d->values * sizeof *d->done / sizeof(double), d->done));
    TR_TRY(tr_snapshot_rows(snapshot, "best", TR_F64, 1, 7, NULL, 0, has, number));
    size_t n = has ? (size_t)number[5] : 0;
    if (restores) {
        free(b->key);
        free(b->weight);
        *b = (struct tr_descent_best){.metric = number[0],
                                      .objective = number[1],
                                      .dual = number[2],
                                      .bias = number[3],
                                      .nonzeros = number[4],
                                      .n = n,
                                      .value = (size_t)number[6]};
        TR_TRY(TR_NEW(&b->key, n));
        TR_TRY(TR_NEW(&b->weight, n));
    }
    TR_TRY(tr_snapshot_rows(snapshot, "best_key", TR_I64, n, 1, NULL, 0, n, b->key));
    return tr_snapshot_rows(snapshot, "best_weight", TR_F64, n, 1, NULL, 0, n, b->weight);
}
