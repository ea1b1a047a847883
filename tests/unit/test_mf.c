#include "unit.h"

#include "model/mf/mf.h"

/* ---- a pass beside a plain one in double precision ---- */

enum { USERS = 5, ITEMS = 60, MOST_RANK = 200, MOST_PAD = 208, RATINGS = USERS * ITEMS };

struct side {
    double row[ITEMS][MOST_RANK], bias[ITEMS], sum[ITEMS], share[ITEMS];
    float *row32, bias32[ITEMS], sum32[ITEMS], share32[ITEMS];
};

struct fixture {
    struct tr_mf_pass pass;
    struct side user, item;
    bool bias, adagrad, plain;
    struct tr_mf_visit visit[USERS];
    uint16_t at[RATINGS + TR_MF_ALIGN];
    float value[RATINGS + TR_MF_ALIGN];
    struct tr_mf_tile tile;
    struct tr_rng rng;
};

static void make_side(struct fixture *f, struct side *s, size_t n)
{
    size_t pad = f->pass.width, rank = f->pass.rank;
    s->row32 = aligned_alloc(64, n * pad * sizeof(float));
    ck_assert_ptr_nonnull(s->row32);
    memset(s->row32, 0, n * pad * sizeof(float));
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < rank; k++) {
            s->row32[i * pad + k] = (float)((tr_rng_uniform(&f->rng) - 0.3) / sqrt((double)rank));
            s->row[i][k] = (double)s->row32[i * pad + k];
        }
        s->bias[i] = (double)(s->bias32[i] = (float)(tr_rng_uniform(&f->rng) - 0.5));
        s->sum[i] = (double)(s->sum32[i] = (float)(1 + tr_rng_uniform(&f->rng)));
        s->share[i] = (double)(s->share32[i] = (float)(0.1 + tr_rng_uniform(&f->rng)));
    }
}

/* User u has per[u] ratings, of items in ascending order. */
static struct fixture *make(size_t rank, const uint32_t per[USERS], enum tr_cpu level)
{
    struct fixture *f = calloc(1, sizeof *f);
    ck_assert_ptr_nonnull(f);
    tr_rng_seed(&f->rng, 7, rank, 1);
    size_t pad = (rank + TR_MF_ALIGN - 1) / TR_MF_ALIGN * TR_MF_ALIGN, n = 0;
    f->pass = (struct tr_mf_pass){.level = level,
                                  .width = pad,
                                  .rank = rank,
                                  .mean = 0.25f,
                                  .rate = 0.01f,
                                  .crowd = 1.5f,
                                  .l2 = 0.3f,
                                  .bias_l2 = 0.2f,
                                  .bias_part = 2};
    f->pass.spare = aligned_alloc(64, MOST_PAD * sizeof(float));
    make_side(f, &f->user, USERS);
    make_side(f, &f->item, ITEMS);
    for (uint32_t u = 0; u < USERS; u++) {
        f->visit[u] = (struct tr_mf_visit){u, per[u]};
        for (uint32_t j = 0; j < per[u]; j++, n++) {
            f->at[n] = (uint16_t)(j * ITEMS / per[u]);
            f->value[n] = (float)(3 * tr_rng_uniform(&f->rng) - 1);
        }
    }
    for (size_t i = n; i < n + TR_MF_ALIGN; i++)
        f->at[i] = UINT16_MAX, f->value[i] = NAN; /* may be read, not used */
    f->tile = (struct tr_mf_tile){f->visit, USERS, n, f->at, f->value};
    return f;
}

static void unmake(struct fixture *f)
{
    TR_FREE_ALL(f->user.row32, f->item.row32, f->pass.spare, f);
}

static struct tr_mf_rows rows_of(const struct fixture *f, struct side *s)
{
    return (struct tr_mf_rows){s->row32, f->bias ? s->bias32 : NULL, f->adagrad ? s->sum32 : NULL,
                               f->plain ? s->share32 : NULL};
}

static double plain_error(const struct fixture *f, size_t u, size_t i, double value)
{
    double error = value - (double)f->pass.mean;
    for (size_t k = 0; k < f->pass.rank; k++) error -= f->user.row[u][k] * f->item.row[i][k];
    return f->bias ? error - f->user.bias[u] - f->item.bias[i] : error;
}

static double square(const double *v, size_t n)
{
    double sum = 0;
    for (size_t k = 0; k < n; k++) sum += v[k] * v[k];
    return sum;
}

static void clip(const struct fixture *f, double *v)
{
    for (size_t k = 0; k < f->pass.rank && f->pass.nonnegative; k++) v[k] = fmax(v[k], 0);
}

/* What tr_mf_tile_pass() says it does, for n ≤ 16 ratings of a user. */
static double plain_batch(struct fixture *f, size_t u, size_t first, size_t n)
{
    const struct tr_mf_pass *p = &f->pass;
    double error[16], sum[MOST_RANK] = {0}, all = 0, squares = 0, *user = f->user.row[u];
    double rate = (double)p->rate, l2 = (double)p->l2, bias_l2 = (double)p->bias_l2,
           strength = square(user, p->rank);
    for (size_t j = 0; j < n; j++) {
        size_t i = f->at[first + j];
        error[j] = plain_error(f, u, i, (double)f->value[first + j]);
        squares += error[j] * error[j];
        all += error[j];
        for (size_t k = 0; k < p->rank; k++) sum[k] += error[j] * f->item.row[i][k];
    }
    for (size_t j = 0; j < n; j++) {
        size_t i = f->at[first + j];
        double share = f->plain ? f->item.share[i] : 1, by = rate, bias_by = (double)(p->rate * p->bias_part);
        if (f->adagrad) {
            f->item.sum[i] += error[j] * error[j] * strength / (double)p->rank * (double)p->crowd;
            by = rate / sqrt(f->item.sum[i]);
            bias_by /= sqrt(f->item.sum[i]);
        }
        for (size_t k = 0; k < p->rank; k++)
            f->item.row[i][k] += by * (error[j] * user[k] - l2 * share * f->item.row[i][k]);
        clip(f, f->item.row[i]);
        f->item.bias[i] += bias_by * (error[j] - bias_l2 * share * f->item.bias[i]);
    }
    double share = (double)n * (f->plain ? f->user.share[u] : 1), by = rate,
           bias_by = (double)(p->rate * p->bias_part);
    if (f->adagrad) {
        f->user.sum[u] += square(sum, p->rank) / (double)p->rank;
        by = rate / sqrt(f->user.sum[u]);
        bias_by /= sqrt(f->user.sum[u]);
    }
    for (size_t k = 0; k < p->rank; k++) user[k] += by * (sum[k] - l2 * share * user[k]);
    clip(f, user);
    f->user.bias[u] += bias_by * (all - bias_l2 * share * f->user.bias[u]);
    return squares;
}

static void compare_side(const struct fixture *f, const struct side *s, size_t n, const char *what)
{
    size_t pad = f->pass.width, rank = f->pass.rank;
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < rank; k++)
            ck_assert_msg(fabs((double)s->row32[i * pad + k] - s->row[i][k]) < 2e-5,
                          "%s %zu, %zu of %zu, %s: %g for %g", what, i, k, rank, tr_cpu_name(f->pass.level),
                          (double)s->row32[i * pad + k], s->row[i][k]);
        for (size_t k = rank; k < pad; k++) ck_assert(s->row32[i * pad + k] == 0);
        if (f->bias) ck_assert_double_eq_tol((double)s->bias32[i], s->bias[i], 2e-5);
        if (f->adagrad) ck_assert_double_eq_tol((double)s->sum32[i], s->sum[i], 1e-4 * s->sum[i]);
    }
}

static void compare_pass(size_t rank, const uint32_t per[USERS], enum tr_cpu level, int variant)
{
    struct fixture *f = make(rank, per, level);
    f->bias = variant & 1;
    f->adagrad = variant & 2;
    f->plain = variant & 4;
    f->pass.nonnegative = variant & 8;
    double squares = 0;
    for (size_t u = 0, first = 0; u < USERS; first += per[u++])
        for (size_t j = 0; j < per[u]; j += 16)
            squares += plain_batch(f, u, first + j, per[u] - j < 16 ? per[u] - j : 16);
    struct tr_mf_rows users = rows_of(f, &f->user), items = rows_of(f, &f->item);
    double got = tr_mf_tile_pass(&f->pass, &f->tile, &users, &items);
    ck_assert_double_eq_tol(got, squares, 1e-4 * squares);
    compare_side(f, &f->user, USERS, "user");
    compare_side(f, &f->item, ITEMS, "item");
    unmake(f);
}

UNIT_CASE(a_pass_is_that_of_plain_loops)
{
    static const size_t ranks[] = {1, 7, 16, 32, 40, 64, 100, 128, 200};
    static const uint32_t per[][USERS] = {{1, 2, 3, 4, 5}, {16, 17, 20, 8, 33}, {60, 0, 9, 31, 12}};
    for (int level = TR_CPU_PLAIN; level <= (int)tr_cpu(); level++)
        for (size_t r = 0; r < COUNT(ranks); r++)
            for (int variant = 0; variant < 16; variant++)
                compare_pass(ranks[r], per[(r + (size_t)variant) % 3], (enum tr_cpu)level, variant);
}

/* ---- the step is downhill: half of Σ e² + λ (|u|² + |v|² ...), by differences ---- */

static double loss_of(const struct fixture *f, size_t n)
{
    double sum = 0;
    for (size_t j = 0; j < n; j++) {
        size_t i = f->at[j];
        double error = plain_error(f, 0, i, (double)f->value[j]);
        double user = f->plain ? f->user.share[0] : 1, item = f->plain ? f->item.share[i] : 1;
        sum += error * error;
        sum += (double)f->pass.l2 *
               (user * square(f->user.row[0], f->pass.rank) + item * square(f->item.row[i], f->pass.rank));
        if (f->bias)
            sum += (double)f->pass.bias_l2 *
                   (user * f->user.bias[0] * f->user.bias[0] + item * f->item.bias[i] * f->item.bias[i]);
    }
    return sum / 2;
}

static void check_slope(const struct fixture *f, size_t n, double *x, float before, float after, float rate)
{
    double h = 1e-4, old = *x;
    *x = old + h;
    double above = loss_of(f, n);
    *x = old - h;
    double slope = (above - loss_of(f, n)) / (2 * h);
    *x = old;
    double step = ((double)after - (double)before) / (double)rate;
    ck_assert_msg(fabs(step + slope) < 1e-3 * (1 + fabs(slope)), "%s: step %g, slope %g",
                  tr_cpu_name(f->pass.level), step, slope);
}

UNIT_CASE(steps_follow_the_gradient)
{
    static const uint32_t per[USERS] = {13, 0, 0, 0, 0};
    for (int level = TR_CPU_PLAIN; level <= (int)tr_cpu(); level++)
        for (int variant = 0; variant < 4; variant++) {
            struct fixture *f = make(20, per, (enum tr_cpu)level);
            f->bias = variant & 1;
            f->plain = variant & 2;
            float *users = f->user.row32, *items = f->item.row32;
            struct tr_mf_rows user = rows_of(f, &f->user), item = rows_of(f, &f->item);
            tr_mf_tile_pass(&f->pass, &f->tile, &user, &item);
            for (size_t k = 0; k < 20; k++) {
                size_t i = f->at[k % 13];
                check_slope(f, 13, &f->user.row[0][k], (float)f->user.row[0][k], users[k], f->pass.rate);
                check_slope(f, 13, &f->item.row[i][k], (float)f->item.row[i][k], items[i * 32 + k],
                            f->pass.rate);
            }
            if (f->bias) {
                float before = (float)f->user.bias[0], after = f->user.bias32[0];
                check_slope(f, 13, &f->user.bias[0], before, after, f->pass.rate * f->pass.bias_part);
                before = (float)f->item.bias[f->at[5]], after = f->item.bias32[f->at[5]];
                check_slope(f, 13, &f->item.bias[f->at[5]], before, after, f->pass.rate * f->pass.bias_part);
            }
            unmake(f);
        }
}

/* ---- cutting ---- */

enum { CUT_USERS = 40, CUT_ITEMS = 90 };

struct little_data {
    tr_data data;
    uint64_t begin[CUT_USERS + 1];
    uint32_t column[CUT_USERS * CUT_ITEMS];
    float value[CUT_USERS * CUT_ITEMS];
    tr_key key[CUT_ITEMS];
};

/* A third of all pairs; only every second item occurs. */
static struct little_data *little_data(void)
{
    struct little_data *d = calloc(1, sizeof *d);
    struct tr_rng rng;
    tr_rng_seed(&rng, 1, 2, 3);
    for (uint64_t j = 0; j < CUT_ITEMS / 2; j++) d->key[j] = 2 * j;
    uint64_t n = 0;
    for (size_t u = 0; u < CUT_USERS; u++) {
        d->begin[u] = n;
        for (uint32_t j = 0; j < CUT_ITEMS / 2 && u % 7 != 3; j++)
            if (tr_rng_below(&rng, 3) == 0) d->column[n] = j, d->value[n++] = (float)(u * 1000 + 2 * j);
    }
    d->begin[CUT_USERS] = n;
    d->data.rows = (tr_batch){.n = CUT_USERS, .begin = d->begin, .column = d->column, .value = d->value};
    d->data.keys = d->key;
    d->data.n_keys = CUT_ITEMS / 2;
    return d;
}

UNIT_CASE(every_rating_is_in_one_tile)
{
    struct little_data *d = little_data();
    static const uint64_t first[] = {0, 31, 31, 50, CUT_ITEMS};
    struct tr_mf_tiling cut;
    size_t met = 0;
    bool seen[CUT_USERS][CUT_ITEMS] = {{false}};
    ck_ok(tr_mf_tile_ratings(&d->data, 3, 4, first, 8, 5, 2, &cut));
    for (size_t part = 0; part < 3; part++)
        for (size_t block = 0; block < 4; block++) {
            size_t tiles;
            const struct tr_mf_tile *tile = tr_mf_tiles_of(&cut, part, block, &tiles);
            ck_assert_uint_eq(tiles, (first[block + 1] - first[block] + 7) / 8);
            for (size_t t = 0; t < tiles; t++) {
                size_t at = 0;
                for (size_t v = 0; v < tile[t].visits; v++)
                    for (size_t j = 0; j < tile[t].visit[v].n; j++, at++, met++) {
                        size_t user = tile[t].visit[v].user, item = first[block] + 8 * t + tile[t].item[at];
                        ck_assert(item < first[block + 1] && !seen[user][item]);
                        seen[user][item] = true;
                        ck_assert(tile[t].value[at] == ((float)(user * 1000 + item) - 5) * 2);
                    }
                ck_assert_uint_eq(at, tile[t].ratings);
            }
        }
    ck_assert_uint_eq(met, d->begin[CUT_USERS]);
    ck_assert_uint_eq(cut.ratings, met);
    tr_mf_tiling_free(&cut);
    free(d);
}

UNIT_CASE(nothing_can_be_cut)
{
    tr_data none = {0};
    uint64_t first[] = {0, 0, 10};
    struct tr_mf_tiling cut;
    size_t tiles;
    ck_ok(tr_mf_tile_ratings(&none, 2, 2, first, 64, 0, 1, &cut));
    ck_assert_uint_eq(tr_mf_tiles_of(&cut, 1, 1, &tiles)->visits, 0);
    ck_assert_uint_eq(tiles, 1);
    tr_mf_tiling_free(&cut);
}

/* ---- predictions ---- */

UNIT_CASE(cold_ones_count_with_what_is_known)
{
    const float user[] = {1, 2, 0.5f}, item[] = {3, -1, 0.25f};
    struct tr_mf m = {.rank = 2, .width = 3, .bias = 1, .mean = 4, .average = 4};
    ck_assert_double_eq_tol(tr_mf_predict(&m, user, item), 5.75, 1e-12);
    ck_assert_double_eq_tol(tr_mf_predict(&m, user, NULL), 4.5, 1e-12);
    ck_assert_double_eq_tol(tr_mf_predict(&m, NULL, item), 4.25, 1e-12);
    ck_assert_double_eq_tol(tr_mf_predict(&m, NULL, NULL), 4, 1e-12);
    m.bias = 0;
    m.mean = 0;
    ck_assert_double_eq_tol(tr_mf_predict(&m, user, item), 1, 1e-12);
    ck_assert_double_eq_tol(tr_mf_predict(&m, user, NULL), 4, 1e-12);
}

UNIT_CASE(best_items_come_first)
{
    float users[] = {1, 0, -1, 0}, items[] = {1, 9, 3, 9, 2, 9, 3, 9};
    struct tr_mf m = {
        .rank = 2, .width = 2, .users = 2, .items = 4, .saved = {{.row = users}, {.row = items}}};
    uint64_t *item;
    double *rating;
    size_t n = 3;
    ck_ok(tr_mf_best(&m, 0, &n, &item, &rating));
    ck_assert_uint_eq(n, 3);
    ck_assert(item[0] == 1 && item[1] == 3 && item[2] == 2 && rating[0] == 3 && rating[2] == 2);
    TR_FREE_ALL(item, rating);
    n = 9;
    ck_ok(tr_mf_best(&m, 1, &n, &item, &rating));
    ck_assert_uint_eq(n, 4);
    ck_assert(item[0] == 0 && item[3] == 3 && rating[0] == -1);
    TR_FREE_ALL(item, rating);
}
