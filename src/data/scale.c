#include "data/dataset.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Sums of one column. Rows have weights w: weight n has the effect of n copies of the row, and rows of weight 0 are ignored. */
struct moments {
    uint32_t column;
    float least, most;  /* smallest and largest number; of sparse rows only the non-zeros */
    double n, squares;  /* over all non-zeros x of the column: Σ w, Σ w x² */
    double mean, apart; /* dense rows only: mean of all numbers x, Σ w (x - mean)² */
    double rows;        /* dense rows only: Σ w of all rows */
};

static inline double weight_of(const struct tr_data_state *s, size_t row)
{
    return s->own_weight ? (double)s->own_weight[row] : 1;
}

/* ---- owners of columns ---- */

static uint64_t share_begin(const tr_context *tr, uint64_t columns, int worker)
{
    return columns * (uint64_t)worker / (uint64_t)tr_layout_workers(&tr->layout);
}

/* Sets (*count)[w] to how many of these n ascending columns worker w owns. *count has room for another such list behind it. */
static int count_by_owner(const tr_data *data, const uint32_t *columns, size_t n, uint64_t **count)
{
    tr_context *tr = data->state->tr;
    int workers = tr_layout_workers(&tr->layout);
    size_t i = 0;
    TR_TRY(TR_NEW(count, 2 * (size_t)workers));
    for (int w = 0; w < workers; w++)
        for (uint64_t end = share_begin(tr, data->columns, w + 1); i < n && columns[i] < end; i++)
            (*count)[w]++;
    return TR_OK;
}

/* Lists the columns of rows in ascending order. In sparse rows, columns are replaced by indices of this list. */
static int list_columns(const tr_data *data, struct tr_matrix *m, uint32_t **columns, size_t *n)
{
    if (m->begin) return tr_renumber(m, 0, (uint32_t)(data->columns - 1), columns, n);
    *n = m->rows > 0 ? m->columns : 0;
    TR_TRY(TR_NEW(columns, *n));
    for (size_t j = 0; j < *n; j++) (*columns)[j] = (uint32_t)j;
    return TR_OK;
}

static void unlist_columns(struct tr_matrix *m, const uint32_t *columns)
{
    for (size_t k = 0; k < tr_matrix_nonzeros(m) && m->begin; k++) m->column[k] = columns[m->column[k]];
}

/* ---- moments ---- */

/* Computes the moments of this worker's dense rows. Differences from the first row of non-zero weight are summed, which loses
 * little precision, and none if the column is constant. */
static int dense_moments(const struct tr_data_state *s, struct moments *moments)
{
    const struct tr_matrix *m = &s->rows;
    size_t c = m->columns, first = 0;
    double *square, rows = 0;
    while (first < m->rows && weight_of(s, first) == 0) first++;
    if (first == m->rows) return TR_OK;
    const float *origin = m->value + first * c;
    TR_FREED double *sum = NULL;
    TR_TRY(TR_NEW(&sum, 2 * c));
    square = sum + c;
    for (size_t i = first; i < m->rows; i++) {
        const float *row = m->value + i * c;
        double w = weight_of(s, i);
        rows += w;
        for (size_t j = 0; j < c && w > 0; j++) {
            double x = (double)row[j], d = x - (double)origin[j];
            sum[j] += w * d;
            square[j] += w * d * d;
            moments[j].n += x != 0 ? w : 0;
            moments[j].squares += w * x * x;
            if (row[j] < moments[j].least) moments[j].least = row[j];
            if (row[j] > moments[j].most) moments[j].most = row[j];
        }
    }
    for (size_t j = 0; j < c; j++) {
        moments[j].rows = rows;
        moments[j].mean = (double)origin[j] + sum[j] / rows;
        moments[j].apart = fmax(0, square[j] - sum[j] * sum[j] / rows);
    }
    return TR_OK;
}

/* Computes the moments of this worker's sparse rows, whose columns are indices of `moments`. */
static void sparse_moments(const struct tr_data_state *s, struct moments *moments)
{
    const struct tr_matrix *m = &s->rows;
    for (size_t i = 0; i < m->rows; i++) {
        double w = weight_of(s, i);
        for (uint64_t k = m->begin[i]; k < m->begin[i + 1]; k++) {
            struct moments *c = &moments[m->column[k]];
            float x = m->value ? m->value[k] : 1;
            if (x == 0 || w == 0) continue;
            c->n += w;
            c->squares += w * (double)x * (double)x;
            c->least = fminf(c->least, x);
            c->most = fmaxf(c->most, x);
        }
    }
}

/* Sets (*all)[j] to the moments of column j of this worker's range of columns, over the rows of all workers. */
static int gather_moments(tr_data *data, struct moments **all)
{
    struct tr_data_state *s = data->state;
    struct tr_matrix *m = &s->rows;
    const tr_scaling *share = &s->scale->share;
    TR_FREED struct moments *mine = NULL, *got = NULL;
    TR_FREED uint32_t *columns = NULL;
    TR_FREED uint64_t *count = NULL;
    uint64_t sum = 0;
    size_t n = 0;
    int workers = tr_layout_workers(&s->tr->layout);
    TR_TRY(list_columns(data, m, &columns, &n));
    TR_TRY(TR_NEW(&mine, n));
    for (size_t j = 0; j < n; j++)
        mine[j] = (struct moments){.column = columns[j], .least = INFINITY, .most = -INFINITY};
    if (m->begin) sparse_moments(s, mine);
    else if (n > 0) TR_TRY(dense_moments(s, mine));
    unlist_columns(m, columns);
    TR_TRY(TR_NEW(all, share->n));
    TR_TRY(count_by_owner(data, columns, n, &count));
    TR_TRY(tr_all_to_all(s->tr, TR_SET_WORKERS, mine, count, sizeof *mine, (void **)&got, count + workers));
    for (int w = 0; w < workers; w++) sum += count[workers + w];
    for (size_t j = 0; j < share->n; j++) {
        (*all)[j].least = INFINITY;
        (*all)[j].most = -INFINITY;
    }
    for (uint64_t i = 0; i < sum; i++) { /* adds two sets of rows (Chan, Golub and LeVeque 1979) */
        struct moments *to = &(*all)[got[i].column - share->first];
        const struct moments *more = &got[i];
        double rows = to->rows + more->rows, d = more->mean - to->mean;
        to->least = fminf(to->least, more->least);
        to->most = fmaxf(to->most, more->most);
        to->n += more->n;
        to->squares += more->squares;
        if (rows == 0) continue;
        to->apart += more->apart + d * d * to->rows * more->rows / rows;
        to->mean += d * more->rows / rows;
        to->rows = rows;
    }
    return TR_OK;
}

/* ---- whether columns differ: data.scale auto ---- */

/* Decides from the values alone whether columns may differ. They do not if sparse rows all have length 1, or if all non-zeros and
 * the bias (1) are within a factor of ten. */
static int look_at_values(tr_data *data, bool *differ)
{
    bool dense = data->state->full;
    const struct tr_matrix *m = &data->state->rows;
    float least = 1, most = 1;
    double off = 0;
    for (size_t i = 0; i < m->rows; i++) {
        uint64_t begin = m->begin ? m->begin[i] : i * m->columns,
                 end = m->begin ? m->begin[i + 1] : begin + m->columns;
        double square = 0;
        if (weight_of(data->state, i) == 0) continue;
        for (uint64_t k = begin; k < end && m->value; k++) {
            float x = fabsf(m->value[k]);
            most = x > most ? x : most;
            least = x > 0 && x < least ? x : least;
        }
        for (uint64_t k = begin; k < end && m->begin; k++) {
            double x = m->value ? (double)m->value[k] : 1;
            square += x * x;
        }
        if (m->begin && end > begin) off = fmax(off, fabs(square - 1));
    }
    double extremes[3] = {(double)most, -(double)least, off};
    TR_TRY(tr_all_reduce(data->state->tr, TR_SET_ALL, TR_MAX, TR_F64, extremes, 3));
    bool unit = !dense && extremes[2] < 0.01;
    *differ = !unit && extremes[0] > -10 * extremes[1];
    return TR_OK;
}

/* Decides from the sizes of columns, the root mean squares of their non-zeros, whether columns differ: by a factor of ten. The bias
 * is a column of size 1. The smallest sizes, of 1 % of all non-zeros, are ignored; the largest size counts. Bins of the histogram
 * are eighths of powers of two. */
static int look_at_sizes(tr_data *data, const struct moments *own, bool *differ)
{
    enum { BINS = 2048, BINS_OCTAVE = 8 };
    struct tr_scale *scale = data->state->scale;
    tr_context *tr = data->state->tr;
    TR_FREED double *bin = NULL;
    double all = 0, below = 0, most = 0;
    TR_TRY(TR_NEW(&bin, BINS));
    for (size_t j = 0; j < scale->share.n; j++) {
        if (own[j].n == 0) continue;
        double size = sqrt(own[j].squares / own[j].n);
        int b = (int)(log2(size) * BINS_OCTAVE) + BINS / 2;
        bin[tr_max_int(0, tr_min_int(BINS - 1, b))] += own[j].n;
        most = fmax(most, size);
    }
    TR_TRY(tr_all_reduce(tr, TR_SET_ALL, TR_SUM, TR_F64, bin, BINS));
    TR_TRY(tr_all_reduce(tr, TR_SET_ALL, TR_MAX, TR_F64, &most, 1));
    for (int b = 0; b < BINS; b++) all += bin[b];
    int least = 0;
    while (least + 1 < BINS && (below += bin[least]) < 0.01 * all) least++;
    scale->least = exp2((double)(least - BINS / 2) / BINS_OCTAVE);
    scale->most = most;
    *differ = fmax(most, 1) > 10 * fmin(scale->least, 1);
    return TR_OK;
}

/* ---- decisions for columns ---- */

static void decide_column(struct tr_scale *scale, const struct moments *c, size_t j)
{
    double least = (double)c->least, most = (double)c->most, shift = 0, spread = 0;
    double size = c->n > 0 ? sqrt(c->squares / c->n) : 0;
    bool centred = scale->shift != NULL;
    double deviation = centred && c->rows > 0 ? sqrt(c->apart / c->rows) : size;
    if (c->n > 0 && (scale->how == TR_SCALE_STANDARD || scale->how == TR_SCALE_CENTRE)) {
        shift = c->mean;
        spread = deviation;
    } else if (c->n > 0 && scale->how == TR_SCALE_MINMAX && centred) {
        shift = least;
        spread = most - least;
    } else if (c->n > 0) {
        spread = fmax(fabs(least), fabs(most));
    }
    bool constant = !(spread > 0) || !isfinite(1 / spread);
    double unit = constant ? 0 : exp2(floor(log2(spread)) - 10);
    scale->factor[j] = 1;
    if (!constant && scale->how != TR_SCALE_CENTRE) { /* rounds the factor to 12 significant bits */
        int exponent;
        double mantissa = frexp(1 / spread, &exponent);
        scale->factor[j] = ldexp(round(ldexp(mantissa, 12)), exponent - 12);
    }
    if (centred) scale->shift[j] = unit > 0 ? unit * round(shift / unit) : shift;
}

/* ---- rows ---- */

/* Scales rows. pairs: shift and factor of each column, by column of the rows. */
static int apply_scale(struct tr_matrix *m, const double *pairs)
{
    size_t n = tr_matrix_nonzeros(m);
    if (!m->begin) {
        for (size_t i = 0; i < m->rows; i++)
            for (size_t j = 0; j < m->columns; j++) {
                float *x = &m->value[i * m->columns + j];
                *x = (float)(((double)*x - pairs[2 * j]) * pairs[2 * j + 1]);
            }
        return TR_OK;
    }
    if (!m->value) { /* all values are 1 */
        TR_TRY(TR_NEW(&m->value, n));
        for (size_t k = 0; k < n; k++) m->value[k] = 1;
    }
    for (size_t k = 0; k < n; k++) m->value[k] = (float)((double)m->value[k] * pairs[2 * m->column[k] + 1]);
    return TR_OK;
}

int tr_scale_matrix(const tr_data *data, const struct tr_scale *scale, struct tr_matrix *m)
{
    tr_context *tr = data->state->tr;
    int workers = tr_layout_workers(&tr->layout);
    TR_FREED uint64_t *count = NULL;
    TR_FREED uint32_t *columns = NULL, *got = NULL;
    TR_FREED double *answer = NULL, *pairs = NULL;
    uint64_t asked = 0;
    size_t n = 0;
    TR_TRY(list_columns(data, m, &columns, &n));

    /* each worker requests shift and factor of its columns from their owners */
    TR_TRY(count_by_owner(data, columns, n, &count));
    TR_TRY(
        tr_all_to_all(tr, TR_SET_WORKERS, columns, count, sizeof *columns, (void **)&got, count + workers));
    for (int w = 0; w < workers; w++) asked += count[workers + w];
    TR_TRY(TR_NEW(&answer, 2 * (size_t)asked));
    for (uint64_t i = 0; i < asked; i++) {
        size_t j = (size_t)(got[i] - scale->share.first);
        answer[2 * i] = scale->shift ? scale->shift[j] : 0;
        answer[2 * i + 1] = scale->factor[j];
    }
    TR_TRY(tr_all_to_all(tr, TR_SET_WORKERS, answer, count + workers, 2 * sizeof *answer, (void **)&pairs,
                         count));
    TR_TRY(apply_scale(m, pairs));
    unlist_columns(m, columns);
    return TR_OK;
}

/* ---- all steps ---- */

static bool may_centre(const tr_data *data)
{
    const struct tr_data_state *s = data->state;
    return !(s->form & TR_DATA_UNCENTRED) && s->tr->job->data.scale != TR_SCALE_MAXABS;
}

static int find_scale(tr_data *data)
{
    struct tr_data_state *s = data->state;
    tr_context *tr = s->tr;
    TR_FREED struct moments *own = NULL;
    bool differ = true, automatic = tr->job->data.scale == TR_SCALE_AUTO;
    bool centre = s->full && may_centre(data), off = false;
    bool may_only_centre = automatic && centre && s->form & TR_DATA_FREE_BIAS && !(s->form & TR_DATA_SPARSE);
    if (automatic) TR_TRY(look_at_values(data, &differ));
    if (!differ && !may_only_centre) return TR_OK;
    TR_TRY(tr_agree(tr, TR_NEW(&s->scale, 1)));
    struct tr_scale *scale = s->scale;
    tr_scaling *share = &scale->share;
    int status = TR_OK;
    scale->how = automatic ? TR_SCALE_STANDARD : tr->job->data.scale;
    if (tr_is(tr, TR_SLAVE)) {
        int worker = tr->me.group * tr->layout.group_size + tr->me.member;
        share->first = share_begin(tr, data->columns, worker);
        share->n = (size_t)(share_begin(tr, data->columns, worker + 1) - share->first);
        status = TR_NEW(&scale->factor, share->n);
        if (status == TR_OK && centre) status = TR_NEW(&scale->shift, share->n);
    }
    share->centred = centre;
    share->shift = scale->shift;
    share->factor = scale->factor;
    TR_TRY(tr_agree(tr, status));
    TR_TRY(tr_agree(tr, tr_is(tr, TR_SLAVE) ? gather_moments(data, &own) : TR_OK));
    TR_TRY(look_at_sizes(data, own, &differ));
    if (!differ && may_only_centre) {
        /* Centre if the means of columns exceed their deviations: then all columns resemble the bias, and the problem is
         * ill-conditioned. (letter, softmax, ten epochs of sgd: accuracy 0.755 without centring, 0.769 with it; 0.7685 at the
         * optimum.) */
        double sum[2] = {0};
        for (size_t j = 0; j < share->n; j++) {
            if (!(own[j].rows > 0)) continue;
            sum[0] += own[j].mean * own[j].mean;
            sum[1] += own[j].apart / own[j].rows;
        }
        TR_TRY(tr_all_reduce(tr, TR_SET_ALL, TR_SUM, TR_F64, sum, 2));
        off = sum[0] > sum[1];
    }
    if (off) scale->how = TR_SCALE_CENTRE;
    for (size_t j = 0; j < share->n; j++) decide_column(scale, &own[j], j);
    if (automatic && !differ && !off) tr_scale_free(&s->scale);
    return TR_OK;
}

bool tr_scale_is_wanted(const tr_data *data)
{
    const struct tr_data_state *s = data->state;
    int mode = s->tr->job->data.scale;
    if (s->on_disk) return false;
    if (mode == TR_SCALE_AUTO) return s->form & TR_DATA_SCALED;
    return mode != TR_SCALE_NONE && !(s->form & TR_DATA_RAW);
}

int tr_scale_would_centre(tr_data *data, bool *would)
{
    struct tr_data_state *s = data->state;
    *would = false;
    if (!tr_scale_is_wanted(data) || !may_centre(data)) return TR_OK;
    int status = find_scale(data);
    *would = s->scale != NULL;
    tr_scale_free(&s->scale);
    return status;
}

int tr_scale_rows(tr_data *data, const tr_data *like)
{
    struct tr_data_state *s = data->state;
    tr_context *tr = s->tr;
    if (!tr_scale_is_wanted(data)) return TR_OK;
    if (!like) TR_TRY(find_scale(data));
    const struct tr_scale *scale = like ? like->state->scale : s->scale;
    if (!scale) return TR_OK;
    if (!like) data->scaling = &scale->share;
    return tr_agree(tr, tr_is(tr, TR_SLAVE) ? tr_scale_matrix(data, scale, &s->rows) : TR_OK);
}

void tr_scale_say(const tr_data *data)
{
    const struct tr_scale *scale = data->state->scale;
    tr_context *tr = data->state->tr;
    static const char *const by[] = {
        [TR_SCALE_STANDARD] = "root mean square of their non-zeros", [TR_SCALE_MAXABS] = "largest value"};
    if (!scale) return;
    bool shifted = scale->share.centred;
    if (scale->how == TR_SCALE_CENTRE) {
        tr_say(tr,
               "centred:       columns, whose means are larger than their deviations (sizes %.3g to %.3g)",
               scale->least, scale->most);
        return;
    }
    const char *what = scale->how == TR_SCALE_MINMAX && shifted ? "brought to 0 .. 1"
                       : shifted ? "centred and divided by their standard deviation"
                                 : "divided by their ";
    tr_say(tr, "scaled:        columns are %s%s (sizes %.3g to %.3g in the files)", what,
           shifted ? "" : by[scale->how == TR_SCALE_STANDARD ? TR_SCALE_STANDARD : TR_SCALE_MAXABS],
           scale->least, scale->most);
}

void tr_scale_free(struct tr_scale **scale)
{
    struct tr_scale *s = *scale;
    if (!s) return;
    free(s->shift);
    free(s->factor);
    free(s);
    *scale = NULL;
}
