#include "metrics.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "labels.h"

/* ---- the area under the ROC curve ---- */

/* A run: one row; after area_sort(), all rows with the same score. */
struct run {
    double weight[2]; /* weight of its negative rows, and of its positive rows */
    uint32_t key;     /* tr_key_of_float() of the score */
};

struct tr_area {
    struct run *run;
    size_t n, capacity;
    bool has_nan; /* a score is NaN */
};

/* Sums over runs. NANS: ranks with has_nan; HALVES: weight of the pairs with the higher score at the positive row, twice, and of tied
 * pairs, once; PRECISIONS: weight of the positive rows × the precision if all rows with at least their score are called positive;
 * NEGATIVE, POSITIVE: weight of these rows. If all weights are 1, sums but PRECISIONS are whole numbers, exact up to 2^53. */
enum { NANS, HALVES, PRECISIONS, NEGATIVE, POSITIVE, AREA_SUMS };

int tr_area_open(size_t rows, struct tr_area **area)
{
    TR_TRY(TR_NEW(area, 1));
    return TR_GROW(&(*area)->run, &(*area)->capacity, rows);
}

static void area_close(struct tr_area **area)
{
    if (!*area) return;
    free((*area)->run);
    free(*area);
    *area = NULL;
}

static int area_add(struct tr_area *a, float score, bool positive, double weight)
{
    TR_TRY(TR_GROW(&a->run, &a->capacity, a->n + 1));
    a->run[a->n] = (struct run){.key = tr_key_of_float(score)};
    a->run[a->n++].weight[positive] = weight;
    a->has_nan = a->has_nan || isnan(score);
    return TR_OK;
}

/* Sorts the runs by key (radix sort, a byte per pass from the lowest), and joins runs with the same key. */
static int area_sort(struct tr_area *a)
{
    struct run *from = a->run, *to;
    size_t kept = 0;
    TR_TRY(TR_NEW(&to, a->n));
    for (unsigned shift = 0; shift < 32; shift += 8) { /* four passes: the result is in a->run again */
        size_t begin[257] = {0};
        for (size_t i = 0; i < a->n; i++) begin[((from[i].key >> shift) & 255) + 1]++;
        for (int b = 0; b < 256; b++) begin[b + 1] += begin[b];
        for (size_t i = 0; i < a->n; i++) to[begin[(from[i].key >> shift) & 255]++] = from[i];
        struct run *old = from;
        from = to;
        to = old;
    }
    free(to);
    for (size_t i = 0; i < a->n; i++) {
        const struct run *run = &a->run[i];
        if (kept == 0 || a->run[kept - 1].key != run->key) {
            a->run[kept++] = *run;
            continue;
        }
        for (int k = 0; k < 2; k++) a->run[kept - 1].weight[k] += run->weight[k];
    }
    a->n = kept;
    return TR_OK;
}

/* Computes the sums over sorted runs. above: weights of the negative and positive rows on other ranks with higher scores. */
static void area_sum(const struct tr_area *a, double above[2], double sum[AREA_SUMS])
{
    for (size_t i = a->n; i-- > 0;) {
        double negative = a->run[i].weight[0], positive = a->run[i].weight[1];
        sum[HALVES] += negative * (2 * above[1] + positive);
        above[0] += negative;
        above[1] += positive;
        if (positive > 0) sum[PRECISIONS] += positive * above[1] / (above[0] + above[1]);
        sum[POSITIVE] += positive;
        sum[NEGATIVE] += negative;
    }
    sum[NANS] = a->has_nan;
}

static double area_of_sums(const double sum[AREA_SUMS])
{
    return sum[NANS] == 0 ? sum[HALVES] / (2 * sum[POSITIVE] * sum[NEGATIVE]) : (double)NAN;
}

/* Maximum number of runs that a rank contributes to the samples of a sample sort. The numbers of runs per rank after the sort then
 * differ by about 1/sqrt(64) = 1/8. */
enum { SAMPLES = 64 };

static int area_compare_keys(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* Returns the status; TR_ERR_PEER if only another member of the set has an error. */
static int area_agree(tr_context *tr, enum tr_set set, int status)
{
    int64_t worst = status;
    TR_TRY(tr_all_reduce(tr, set, TR_MAX, TR_I64, &worst, 1));
    return status != TR_OK  ? status
           : worst == TR_OK ? TR_OK
                            : tr_fail(TR_ERR_PEER, "another rank cannot evaluate its test rows");
}

/* Computes this rank's terms of the sums over the rows of all ranks of the set, which call it with the status of adding their rows.
 * Divides the range of keys among the ranks: rank r receives the keys from splitter r - 1 to below splitter r. The splitters are
 * evenly spaced in the sorted samples of all ranks. Each rank contributes every step-th of its runs, so ranks with more runs
 * contribute more samples. */
static int area_share(tr_context *tr, enum tr_set set, struct tr_area *a, int status, double sum[AREA_SUMS])
{
    size_t ranks = (size_t)tr_set_size(tr, set), total = 0, bytes = 0;
    TR_FREED size_t *count = NULL; /* bytes to each rank, followed by bytes from each rank */
    TR_FREED uint32_t *samples = NULL;
    TR_FREED double(*weight)[2] = NULL;
    uint32_t own[SAMPLES + 2] = {0}; /* number of samples of this rank, followed by their keys */
    double above[2] = {0}, mine[2] = {0};
    struct run *incoming = NULL;
    if (status == TR_OK) status = area_sort(a);
    if (status == TR_OK) status = TR_NEW(&samples, ranks * (SAMPLES + 3));
    if (status == TR_OK) status = TR_NEW(&count, 2 * ranks);
    if (status == TR_OK) status = TR_NEW(&weight, ranks);
    TR_TRY(area_agree(tr, set, status));
    uint64_t most = a->n;
    TR_TRY(tr_all_reduce(tr, set, TR_MAX, TR_I64, &most, 1));
    uint64_t step = most / SAMPLES + 1;
    for (uint64_t i = step / 2; i < a->n; i += step) own[++own[0]] = a->run[i].key;
    TR_TRY(tr_all_gather(tr, set, own, sizeof own, samples));
    for (size_t r = 0; r < ranks; r++) {
        const uint32_t *from = samples + r * (SAMPLES + 2);
        uint32_t n = *from;
        memmove(samples + total, from + 1, n * sizeof *samples);
        total += n;
    }
    qsort(samples, total, sizeof *samples, area_compare_keys);
    for (size_t r = 0, i = 0; r < ranks; r++) {
        size_t first = i;
        uint32_t splitter = total > 0 ? samples[(r + 1) * total / ranks - (r + 1 == ranks)] : 0;
        while (i < a->n && (r + 1 == ranks || a->run[i].key < splitter)) i++;
        count[r] = (i - first) * sizeof *a->run;
    }
    TR_TRY(tr_exchange_counts(tr, set, count, count + ranks));
    for (size_t r = 0; r < ranks; r++) bytes += count[ranks + r];
    status = area_agree(tr, set, TR_NEW(&incoming, bytes / sizeof *incoming));
    if (status == TR_OK) status = tr_exchange(tr, set, a->run, count, incoming, count + ranks);
    free(a->run);
    a->run = incoming;
    a->n = a->capacity = bytes / sizeof *incoming;
    TR_TRY(status);
    TR_TRY(area_agree(tr, set, area_sort(a)));
    for (size_t i = 0; i < a->n; i++)
        for (int k = 0; k < 2; k++) mine[k] += a->run[i].weight[k];
    TR_TRY(tr_all_gather(tr, set, mine, sizeof mine, weight));
    for (size_t r = (size_t)tr_set_rank(tr, set) + 1; r < ranks; r++)
        for (int k = 0; k < 2; k++) above[k] += weight[r][k];
    area_sum(a, above, sum);
    return TR_OK;
}

int tr_area_find(tr_context *tr, struct tr_area *a, double *auc)
{
    double sum[AREA_SUMS] = {0};
    TR_TRY(tr_agree(tr, area_share(tr, TR_SET_ALL, a, TR_OK, sum)));
    TR_TRY(tr_all_reduce(tr, TR_SET_ALL, TR_SUM, TR_F64, sum, AREA_SUMS));
    *auc = area_of_sums(sum);
    return TR_OK;
}

/* ---- classes ---- */

size_t tr_predicted_class(const double *margin, size_t n)
{
    size_t best = 0;
    if (n == 1) return *margin > 0;
    for (size_t k = 1; k < n; k++)
        if (margin[k] > margin[best]) best = k;
    return best;
}

void tr_margins_to_probabilities(const struct tr_loss *loss, bool joint, size_t n, double *margin)
{
    double sum = 0, most = margin[tr_predicted_class(margin, n)];
    for (size_t k = 0; k < n; k++) sum += margin[k] = joint ? exp(margin[k] - most) : loss->mean(margin[k]);
    for (size_t k = 0; k < n; k++) margin[k] /= sum;
}

/* ---- the metrics of a model ---- */

/* metric_of: models that have the metric: all, classifiers, classifiers with probabilities, of two classes, regressions. */
enum metric_kind { ACCURACY, AUC, PR_AUC, LOSS, BRIER, F1, RMSE, MAE, MAPE, R2, METRIC_KINDS };
enum metric_of { OF_ALL, OF_CLASSES, OF_PROBABILITIES, OF_TWO_CLASSES, OF_NUMBERS };
static const struct {
    const char *name; /* name in report.metric; NULL: tr_loss.metric */
    enum metric_of of;
    bool ascends; /* a higher value is better */
} metric_kinds[] = {[ACCURACY] = {"accuracy", OF_CLASSES, true},  [AUC] = {"auc", OF_TWO_CLASSES, true},
                    [PR_AUC] = {"pr_auc", OF_TWO_CLASSES, true},  [LOSS] = {NULL, OF_ALL, false},
                    [BRIER] = {"brier", OF_PROBABILITIES, false}, [F1] = {"f1", OF_TWO_CLASSES, true},
                    [RMSE] = {"rmse", OF_NUMBERS, false},         [MAE] = {"mae", OF_NUMBERS, false},
                    [MAPE] = {"mape", OF_NUMBERS, false},         [R2] = {"r2", OF_NUMBERS, true}};
_Static_assert((int)METRIC_KINDS == (int)TR_METRIC_KINDS, "a model may have each kind of metric");

bool tr_metric_ascends(const char *name)
{
    for (int kind = 0; kind < METRIC_KINDS; kind++)
        if (metric_kinds[kind].name && !strcmp(metric_kinds[kind].name, name))
            return metric_kinds[kind].ascends;
    return false;
}

static bool metrics_have_probabilities(const struct tr_test_metrics *m)
{
    return tr_loss_classifies(m->loss) && (m->joint || m->loss->mean);
}

/* Returns whether the model has this kind of metric. outputs 0: the number of classes is unknown, so it may have it. */
static bool metric_suits(const struct tr_test_metrics *m, enum metric_kind kind)
{
    bool classes = tr_loss_classifies(m->loss);
    switch (metric_kinds[kind].of) {
    case OF_ALL: return m->loss->metric_times > 0 && !isnan(m->shape);
    case OF_CLASSES: return classes;
    case OF_PROBABILITIES: return metrics_have_probabilities(m);
    case OF_TWO_CLASSES: return classes && m->outputs <= 2;
    case OF_NUMBERS: return !classes;
    }
    return false;
}

/* Returns whether a regression also has the metric of another loss: the margins have the same meaning, and the other loss takes all
 * labels that this one takes, and has no shape or the same. */
static bool metric_suits_other(const struct tr_test_metrics *m, const struct tr_loss *other)
{
    const struct tr_loss *own = m->loss;
    bool numbers = !tr_loss_classifies(own) && !tr_loss_classifies(other) && other->labels <= own->labels;
    return numbers && other != own && other->metric_times > 0 && other->mean == own->mean &&
           (other->shape == TR_SHAPE_NONE || (other->shape == own->shape && !isnan(m->shape)));
}

static const char *metric_name(const struct tr_test_metrics *m, size_t i)
{
    return m->metric[i].loss ? m->metric[i].loss->metric : metric_kinds[m->metric[i].kind].name;
}

/* Appends the metric of this name; NULL: all metrics that apply, without those of other losses. Returns whether one was appended. */
static bool metrics_append(struct tr_test_metrics *m, const char *name)
{
    size_t n = m->n;
    for (int kind = 0; kind < METRIC_KINDS; kind++) {
        const struct tr_loss *own = kind == LOSS ? m->loss : NULL;
        if (!metric_suits(m, (enum metric_kind)kind)) continue;
        m->metric[m->n].kind = kind;
        m->metric[m->n].loss = own;
        if (!name || !strcmp(metric_name(m, m->n), name)) m->n++;
        if (name && m->n > n) return true;
    }
    for (const struct tr_loss *const *other = tr_losses; name && *other && m->n == n; other++) {
        m->metric[n].kind = LOSS;
        m->metric[n].loss = *other;
        if (metric_suits_other(m, *other) && !strcmp((*other)->metric, name)) m->n++;
    }
    return m->n > n;
}

/* Refuses the metric of this name, with the names of the metrics that the model has. */
static int metrics_refuse(const struct tr_test_metrics *m, const char *where, const char *name)
{
    char names[256] = "";
    struct tr_test_metrics all = *m;
    all.n = 0;
    metrics_append(&all, NULL);
    for (size_t i = 0; i < all.n; i++) strcat(strcat(names, i > 0 ? ", " : ""), metric_name(&all, i));
    for (const struct tr_loss *const *other = tr_losses; *other; other++)
        if (metric_suits_other(m, *other)) strcat(strcat(names, ", "), (*other)->metric);
    return tr_fail(TR_ERR_CONFIG, "%s: report.metric: this model has no %s, expected of %s", where, name,
                   names);
}

int tr_test_metrics_check(const tr_job *job, const struct tr_loss *loss)
{
    const char *const *name, *where = tr_job_where(job, "report.metric");
    size_t n = tr_job_files(job, "report.metric", &name);
    if (n > TR_METRICS)
        return tr_fail(TR_ERR_CONFIG, "%s: report.metric: %zu metrics, expected at most %d", where, n,
                       TR_METRICS);
    for (size_t i = 0; i < n; i++) {
        const struct tr_loss *const own[] = {loss, NULL}, *const *any = loss ? own : tr_losses;
        struct tr_test_metrics m;
        do m = (struct tr_test_metrics){.loss = *any, .joint = (*any)->joint};
        while (!metrics_append(&m, name[i]) && *++any);
        if (*any) continue;
        if (!strncmp(name[i], "ndcg", 4) || !strncmp(name[i], "map@", 4) || !strncmp(name[i], "mrr", 3))
            return tr_fail(
                TR_ERR_CONFIG,
                "%s: report.metric: %s is of rows that are ranked within groups, which no model does", where,
                name[i]);
        if (loss) return metrics_refuse(&m, where, name[i]);
        return tr_fail(TR_ERR_CONFIG,
                       "%s: report.metric: no model has %s: see trireme help job report.metric", where,
                       name[i]);
    }
    return TR_OK;
}

int tr_test_metrics_choose(const tr_context *tr, struct tr_test_metrics *m)
{
    const tr_job *job = tr_context_job(tr);
    const char *const *name, *where = tr_job_where(job, "report.metric");
    size_t n = tr_job_files(job, "report.metric", &name);
    for (size_t i = 0; i < n; i++)
        if (!metrics_append(m, name[i])) return metrics_refuse(m, where, name[i]);
    const char *second = tr_loss_classifies(m->loss) ? "accuracy" : "rmse";
    if (n == 0) metrics_append(m, m->loss->metric);
    if (n == 0 && strcmp(second, m->loss->metric) != 0) metrics_append(m, second);
    for (size_t i = 0; i < m->n; i++) {
        int kind = m->metric[i].kind;
        m->brier = m->brier || kind == BRIER;
        if (kind != AUC && kind != PR_AUC) continue;
        if (!tr_in_lockstep(tr) && tr_workers(tr) > 1)
            return tr_fail(
                TR_ERR_CONFIG,
                "%s: report.metric: %s needs the same parameters on all workers: expected sync.mode bsp",
                where, metric_name(m, i));
        if (!m->area) TR_TRY(tr_area_open(0, &m->area));
    }
    return TR_OK;
}

void tr_test_metrics_close(struct tr_test_metrics *m)
{
    area_close(&m->area);
}

const char *tr_test_metrics_first(const struct tr_test_metrics *m)
{
    return metric_name(m, 0);
}

void tr_test_metrics_name(const struct tr_test_metrics *m, bool tests, tr_stage *stage)
{
    for (size_t i = 0; i < m->n && tests; i++)
        stage->metric[i] = (tr_stage_metric){metric_name(m, i), metric_kinds[m->metric[i].kind].ascends};
}

bool tr_test_metrics_lack_auc(const struct tr_test_metrics *m)
{
    bool has = false;
    for (size_t i = 0; i < m->n; i++) has = has || m->metric[i].kind == AUC;
    return metric_suits(m, AUC) && !has;
}

bool tr_test_metrics_better(const struct tr_test_metrics *m, double value, double than)
{
    return metric_kinds[m->metric[0].kind].ascends ? value > than : value < than;
}

bool tr_is_worse(const char *figure, double value, bool ascends, const char *constant, double of_constant,
                 char text[TR_WORSE_TEXT])
{
    double worse = ascends ? of_constant - value : value - of_constant;
    snprintf(text, TR_WORSE_TEXT, "the %s is %.8g, worse than %.8g of %s", figure, value, of_constant,
             constant);
    return worse > 1e-3 * fabs(of_constant) + 1e-12;
}

/* ---- the sums of a metric ---- */

struct tr_judged tr_judge(const struct tr_test_metrics *m, const double *margin, double target)
{
    const struct tr_loss *loss = m->loss;
    struct tr_judged row = {.is = SIZE_MAX};
    if (!tr_loss_classifies(loss)) {
        row.loss = loss->value(*margin, target, m->shape);
        row.error = (loss->mean ? loss->mean(*margin) : *margin) - target;
        return row;
    }
    row.as = tr_predicted_class(margin, m->outputs);
    if (isnan(target)) return row;
    row.is = (size_t)target;
    if (m->outputs == 1) {
        row.score = *margin;
        row.loss = loss->value(*margin, row.is ? 1 : -1, m->shape);
        if (!m->brier) return row;
        row.probability = loss->mean(*margin);
        row.brier = pow(row.probability - (double)row.is, 2);
        return row;
    }
    if (m->outputs == 2) row.score = margin[1] - margin[0];
    double most = margin[row.as], sum = 0, squares = 0, part = 0;
    for (size_t k = 0; k < m->outputs; k++) {
        if (!metrics_have_probabilities(m)) {
            row.loss += loss->value(margin[k], k == row.is ? 1 : -1, m->shape);
            continue;
        }
        part = m->joint ? exp(margin[k] - most) : loss->mean(margin[k]);
        if (k == row.is) row.probability = part;
        squares += part * part;
        sum += part;
    }
    if (!metrics_have_probabilities(m)) return row;
    row.probability /= sum;
    row.brier = squares / (sum * sum) - 2 * row.probability + 1;
    row.loss = m->joint ? log(sum) + most - margin[row.is] : -log(fmax(row.probability, 1e-300));
    if (m->outputs > 2) return row;
    row.brier /= 2;
    row.probability = part / sum; /* that of class 1 */
    return row;
}

/* Adds a row that was judged. */
static int metrics_add(struct tr_test_metrics *m, const struct tr_judged *row, const double *margin,
                       double target, double weight, double *sum)
{
    double from = target - m->origin;
    if (m->area && row->is != SIZE_MAX) TR_TRY(area_add(m->area, (float)row->score, row->is == 1, weight));
    for (size_t i = 0; i < m->n; i++, sum += TR_METRIC_TERMS) {
        const struct tr_loss *loss = m->metric[i].loss;
        enum metric_kind kind = (enum metric_kind)m->metric[i].kind;
        if (isnan(target) && kind != ACCURACY && kind != F1) continue;
        if (kind != AUC && kind != PR_AUC) sum[0] += weight;
        switch (kind) {
        case LOSS:
            sum[1] += weight * loss->metric_times *
                      (loss == m->loss ? row->loss : loss->value(*margin, target, m->shape));
            break;
        case ACCURACY: sum[1] += weight * (row->as == row->is); break;
        case BRIER: sum[1] += weight * row->brier; break;
        case F1:
            sum[1] += weight * (row->as == 1 && row->is == 1);
            sum[2] += weight * (row->as == 1);
            sum[3] += weight * (row->is == 1);
            break;
        case RMSE: sum[1] += weight * row->error * row->error; break;
        case MAE: sum[1] += weight * fabs(row->error); break;
        case MAPE:
            if (target != 0) sum[1] += weight * fabs(row->error / target);
            else sum[0] -= weight; /* the relative error of target 0 is not defined: omits the row */
            break;
        case R2:
            sum[1] += weight * row->error * row->error;
            sum[2] += weight * from;
            sum[3] += weight * from * from;
            break;
        case AUC:
        case PR_AUC: /* metrics_add_area() computes the sums */
        case METRIC_KINDS: break;
        }
    }
    return TR_OK;
}

int tr_test_metrics_add(struct tr_test_metrics *m, const double *margin, double target, double weight,
                        double *sum)
{
    struct tr_judged row = tr_judge(m, margin, target);
    return metrics_add(m, &row, margin, target, weight, sum);
}

/* Writes the sums of auc and pr_auc. */
static void metrics_add_area(const struct tr_test_metrics *m, const double area[AREA_SUMS], double *sum)
{
    for (size_t i = 0; i < m->n; i++, sum += TR_METRIC_TERMS) {
        bool precisions = m->metric[i].kind == PR_AUC;
        if (m->metric[i].kind != AUC && !precisions) continue;
        sum[0] = area[NANS];
        sum[1] = area[precisions ? PRECISIONS : HALVES];
        sum[2] = area[NEGATIVE];
        sum[3] = area[POSITIVE];
    }
}

int tr_test_metrics_rank(tr_context *tr, struct tr_test_metrics *m, int status, double *sum)
{
    double area[AREA_SUMS] = {0};
    if (!m->area) return status;
    TR_TRY(area_share(tr, TR_SET_WORKERS, m->area, status, area));
    metrics_add_area(m, area, sum);
    m->area->n = 0;
    m->area->has_nan = false;
    return TR_OK;
}

void tr_test_metrics_find(const struct tr_test_metrics *m, const double *sum, double *value)
{
    for (size_t i = 0; i < m->n; i++, sum += TR_METRIC_TERMS) {
        double mean = sum[1] / sum[0];
        switch ((enum metric_kind)m->metric[i].kind) {
        case RMSE: value[i] = sqrt(mean); break;
        case F1: value[i] = 2 * sum[1] / (sum[2] + sum[3]); break;
        case R2: value[i] = 1 - sum[1] / (sum[3] - sum[2] * sum[2] / sum[0]); break;
        case AUC: value[i] = sum[0] > 0 ? (double)NAN : sum[1] / (2 * sum[2] * sum[3]); break;
        case PR_AUC: value[i] = sum[0] > 0 || !(sum[2] > 0) ? (double)NAN : sum[1] / sum[3]; break;
        case ACCURACY:
        case LOSS:
        case BRIER:
        case MAE:
        case MAPE:
        case METRIC_KINDS: value[i] = mean;
        }
    }
}

/* ---- `evaluate` ---- */

/* Maximum number of labels of a confusion matrix; maximum length of its lines in the terminal, in characters. */
enum { MOST_TABLED = 100, MOST_SHOWN = 64 };
enum { BINS = 10, MOST_POINTS = 500 }; /* bins of the calibration; approximate maximum of points of a curve */

struct tr_evaluated {
    struct tr_test_metrics metrics;
    double sum[TR_METRIC_KINDS * TR_METRIC_TERMS];
    double weight, right,
        unknown; /* Σ weight of all rows; of rows predicted correctly; of rows with a label that training lacks */
    /* The other members are for classes. is, as, both: one element per label: weight of the rows with it, of the rows predicted as
     * it, and of the rows with both properties. */
    size_t labels;
    double *is, *as, *both;
    double *confusion; /* [is × labels + as]: weight; NULL: more than MOST_TABLED labels */
    struct {           /* rows with a predicted probability of label 1 in the i-th tenth of [0, 1] */
        double weight, positive, predicted; /* Σ weight; Σ weight of label 1; Σ weight × probability */
    } bin[BINS];
};

int tr_evaluated_open(const struct tr_test_metrics *metrics, size_t labels, struct tr_evaluated **e)
{
    TR_TRY(TR_NEW(e, 1));
    struct tr_test_metrics *m = &(*e)->metrics;
    *m = *metrics;
    metrics_append(m, NULL);
    m->brier = metrics_have_probabilities(m);
    if (!tr_loss_classifies(m->loss)) return TR_OK;
    (*e)->labels = labels;
    TR_TRY(TR_NEW(&(*e)->is, 3 * labels));
    (*e)->as = (*e)->is + labels;
    (*e)->both = (*e)->as + labels;
    if (labels == 2) TR_TRY(tr_area_open(0, &m->area));
    return labels <= MOST_TABLED ? TR_NEW(&(*e)->confusion, labels * labels) : TR_OK;
}

void tr_evaluated_close(struct tr_evaluated **e)
{
    if (!*e) return;
    tr_test_metrics_close(&(*e)->metrics);
    free((*e)->is);
    free((*e)->confusion);
    free(*e);
    *e = NULL;
}

int tr_evaluated_add(struct tr_evaluated *e, const double *margin, double target, double weight)
{
    struct tr_test_metrics *m = &e->metrics;
    struct tr_judged row = tr_judge(m, margin, target);
    if (e->weight == 0) m->origin = target;
    e->weight += weight;
    TR_TRY(metrics_add(m, &row, margin, target, weight, e->sum));
    if (e->labels == 0) return TR_OK;
    e->as[row.as] += weight;
    if (row.is == SIZE_MAX) {
        e->unknown += weight;
        return TR_OK;
    }
    if (e->labels == 2) {
        double p = row.probability;
        size_t bin = p >= 0 ? (size_t)fmin(p * BINS, BINS - 1) : 0; /* p may be NaN */
        e->bin[bin].weight += weight;
        e->bin[bin].positive += weight * (row.is == 1);
        e->bin[bin].predicted += weight * p;
    }
    if (e->confusion) e->confusion[row.is * e->labels + row.as] += weight;
    e->is[row.is] += weight;
    if (row.is == row.as) e->both[row.is] += weight, e->right += weight;
    return TR_OK;
}

/* Returns of / all; NaN if all is 0. */
static double ratio(double of, double all)
{
    return all > 0 ? of / all : (double)NAN;
}

/* Reports a curve. Of its n points, keeps the last and each that is at least 1 / MOST_POINTS away from the previous kept point. */
static int curve_report(tr_query *q, const char *name, const char *x, const char *y, size_t n,
                        double (*point)[2])
{
    size_t kept = 0;
    for (size_t i = 0; i < n; i++) {
        bool far = kept == 0 || fabs(point[i][0] - point[kept - 1][0]) > 1.0 / MOST_POINTS ||
                   fabs(point[i][1] - point[kept - 1][1]) > 1.0 / MOST_POINTS;
        if (!far && i + 1 < n) continue;
        point[kept][0] = point[i][0];
        point[kept++][1] = point[i][1];
    }
    return tr_figure_curve(q, name, x, y, kept, point);
}

/* Reports the ROC curve, and the curve of precision over recall. */
static int curves_report(const struct tr_evaluated *e, tr_query *q)
{
    const struct tr_area *a = e->metrics.area; /* its runs are sorted */
    double above[2] = {0, 0};
    TR_FREED double(*roc)[2] = NULL;
    TR_FREED double(*precision)[2] = NULL;
    TR_TRY(TR_NEW(&roc, a->n + 1));
    TR_TRY(TR_NEW(&precision, a->n));
    for (size_t i = 0; i < a->n; i++) {
        const struct run *run = &a->run[a->n - 1 - i];
        for (int k = 0; k < 2; k++) above[k] += run->weight[k];
        roc[i + 1][0] = ratio(above[0], e->is[0]);
        roc[i + 1][1] = precision[i][0] = ratio(above[1], e->is[1]);
        precision[i][1] = ratio(above[1], above[0] + above[1]);
    }
    TR_TRY(curve_report(q, "ROC", "false positive rate", "true positive rate (recall)", a->n + 1, roc));
    return curve_report(q, "precision and recall", "recall", "precision", a->n, precision);
}

/* Reports how often label 1 occurs among the rows whose predicted probability lies in each tenth of [0, 1]. */
static int calibration_report(const struct tr_evaluated *e, tr_query *q)
{
    double point[BINS][2];
    size_t n = 0;
    TR_TRY(tr_figure_text(q, "calibration", "predicted   observed        rows"));
    for (size_t i = 0; i < BINS; i++) {
        char name[64];
        double weight = e->bin[i].weight, predicted = e->bin[i].predicted / weight,
               observed = ratio(e->bin[i].positive, weight);
        snprintf(name, sizeof name, "calibration_%zu_rows", i);
        TR_TRY(tr_figure(q, name, weight, NULL));
        if (weight == 0) continue;
        snprintf(name, sizeof name, "calibration_%zu_predicted", i);
        TR_TRY(tr_figure(q, name, predicted, NULL));
        snprintf(name, sizeof name, "calibration_%zu_observed", i);
        TR_TRY(tr_figure(q, name, observed, NULL));
        snprintf(name, sizeof name, "%.1f to %.1f", (double)i / BINS, (double)(i + 1) / BINS);
        TR_TRY(tr_figure_text(q, name, "%9.6f  %9.6f  %10.10g", predicted, observed, weight));
        point[n][0] = predicted;
        point[n++][1] = observed;
    }
    return tr_figure_curve(q, "calibration", "predicted probability", "observed share", n, point);
}

/* Reports the confusion matrix. The terminal shows it only if its lines fit into 80 columns. */
static int confusion_report(const struct tr_evaluated *e, tr_query *q, const float *label)
{
    enum { LEAST = 4, MOST = 10 };
    char text[TR_LABEL_TEXT], is[TR_LABEL_TEXT], name[2 * TR_LABEL_TEXT + 32], line[MOST_SHOWN + 64];
    int width = LEAST;
    for (size_t i = 0; i < e->labels * e->labels; i++) {
        tr_query_label_text(q, label[i / e->labels], is);
        tr_query_label_text(q, label[i % e->labels], text);
        snprintf(name, sizeof name, "confusion_%s_as_%s", is, text);
        TR_TRY(tr_figure(q, name, e->confusion[i], NULL));
    }
    for (size_t k = 0; k < e->labels; k++) {
        tr_query_label_text(q, label[k], text);
        while (width < MOST && (strlen(text) > (size_t)width || e->is[k] >= pow(10, width))) width++;
    }
    if ((width + 2) * (int)e->labels > MOST_SHOWN) return TR_OK;
    for (size_t i = 0; i <= e->labels; i++) { /* line 0 is the heading */
        size_t at = 0;
        for (size_t k = 0; k < e->labels; k++) {
            double weight = i > 0 ? e->confusion[(i - 1) * e->labels + k] : 0;
            tr_query_label_text(q, label[k], text);
            int digits = i > 0 ? snprintf(text, sizeof text, "%.0f", weight) : width;
            if (weight != rint(weight) && digits + 2 <= width)
                snprintf(text, sizeof text, "%.*f", width - digits - 1, weight);
            at +=
                (size_t)snprintf(line + at, sizeof line - at, "%*s%*.*s", k ? 2 : 0, "", width, width, text);
        }
        if (i > 0) tr_query_label_text(q, label[i - 1], text);
        snprintf(name, sizeof name, i > 0 ? "%s is" : "predicted", text);
        TR_TRY(tr_figure_text(q, name, "%s", line));
    }
    return TR_OK;
}

/* Reports precision and recall: for label 1 if there are two labels, otherwise for each label, with their harmonic mean f1 and the mean
 * of f1 over the labels. */
static int labels_report(const struct tr_evaluated *e, tr_query *q, const float *label)
{
    static const char *const measures[] = {"precision", "recall", "f1"};
    double mean = 0;
    for (size_t k = e->labels == 2; k < e->labels; k++) {
        double f[] = {ratio(e->both[k], e->as[k]), ratio(e->both[k], e->is[k]),
                      ratio(2 * e->both[k], e->is[k] + e->as[k])};
        char name[TR_LABEL_TEXT + 32], text[TR_LABEL_TEXT];
        tr_query_label_text(q, label[k], text);
        for (int i = 0; i < 2 && e->labels == 2; i++)
            TR_TRY(tr_figure(q, measures[i], f[i], i ? "%.6f" : "%.6f  (of label %s)", f[i], text));
        if (e->labels == 2) return TR_OK;
        snprintf(name, sizeof name, "rows_%s", text);
        TR_TRY(tr_figure(q, name, e->is[k], NULL));
        for (int i = 0; i < 3; i++) { /* recall is reported last, with a text that shows all three */
            static const int order[] = {0, 2, 1};
            snprintf(name, sizeof name, "%s_%s", measures[order[i]], text);
            TR_TRY(tr_figure(q, name, f[order[i]], i < 2 ? NULL : "%.6f  precision %.6f  f1 %.6f  rows %.10g",
                             f[1], f[0], f[2], e->is[k]));
        }
        mean += (isnan(f[2]) ? 0 : f[2]) / (double)e->labels;
    }
    return tr_figure(q, "f1_macro", mean, "%.6f", mean);
}

int tr_evaluated_figures(struct tr_evaluated *e, tr_query *q, uint64_t rows, const float *label)
{
    struct tr_test_metrics *m = &e->metrics;
    double value[TR_METRIC_KINDS], area[AREA_SUMS] = {0};
    bool classes = tr_loss_classifies(m->loss), two = e->labels == 2;
    TR_TRY(tr_figure(q, "rows", (double)rows, "%llu", (unsigned long long)rows));
    if (e->weight != (double)rows)
        TR_TRY(tr_figure(q, "weight", e->weight, "%.10g  (sum of the weights of rows)", e->weight));
    if (e->unknown > 0 && e->unknown == e->weight)
        return tr_fail(TR_ERR_DATA, "none of the rows has a label that training has");
    if (two) TR_TRY(area_sort(m->area));
    if (two) area_sum(m->area, (double[2]){0}, area);
    metrics_add_area(m, area, e->sum);
    tr_test_metrics_find(m, e->sum, value);
    if (classes) TR_TRY(tr_figure(q, "right", e->right, NULL));
    for (size_t i = 0; i < m->n; i++) {
        if (m->metric[i].kind != ACCURACY)
            TR_TRY(tr_figure(q, metric_name(m, i), value[i], "%.6f", value[i]));
        else
            TR_TRY(tr_figure(q, "accuracy", value[i], "%.6f  (%.10g right, %.10g wrong)", value[i], e->right,
                             e->weight - e->right));
    }
    if (e->unknown > 0)
        TR_TRY(tr_figure(q, "unknown_labels", e->unknown,
                         "%.10g  (rows with a label that training does not have: wrong)", e->unknown));
    if (!classes) return TR_OK;
    if (two && area[NANS] == 0 && area[NEGATIVE] > 0 && area[POSITIVE] > 0) TR_TRY(curves_report(e, q));
    TR_TRY(labels_report(e, q, label));
    if (e->confusion) TR_TRY(confusion_report(e, q, label));
    return two && m->brier ? calibration_report(e, q) : TR_OK;
}
